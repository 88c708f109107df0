/*
 * sign.h: a fingerprint for one operation.
 */
#ifndef IDEM_SIGN_H
#define IDEM_SIGN_H

#include "args.h"

/* What was asked for, and the fingerprint, in the current memory context. */
typedef struct Signed
{
	Span		subject;
	Span		scope;
	Jsonb	   *params;
	bool		confirmed_repeat;
	TimestampTz expires_at;
	char	   *token;
} Signed;

/*
 * Check the arguments of idem_sign or idem_preview, which are the same, and sign what they ask for.  To be called after
 * policy_begin().  Raises 22004 and 22023 for arguments that do not do, parameters of which nothing is material and a
 * time that is past, 42501 for a subject that the caller may not act for, 55000 where no secret signs.
 */
extern void sign_operation(FunctionCallInfo fcinfo, Signed *operation);

#endif							/* IDEM_SIGN_H */
