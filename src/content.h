/*
 * content.h: what an operation is by its content, whichever lists that is read under.
 */
#ifndef IDEM_CONTENT_H
#define IDEM_CONTENT_H

#include "acquire.h"

/* What parameters name under some lists. */
typedef struct Content
{
	pg_uuid_t	key;			/* of an operation that is named by its content */
	uint8		hash[SHA256_LENGTH];	/* the parameter hash */
} Content;

/*
 * Name the parameters of a scope and subject; false where nothing of them is material.  guard, unless NULL, becomes what
 * all operations of equal content have in common.
 */
extern bool content_name(Span scope, Span subject, Jsonb *params, const MaterialPart *part, Content *content,
						 pg_uuid_t *guard);

/*
 * Choose the key of a request that comes by its content: that of the lists in force, unless the operation is known by
 * others on record.  To be done anew at each try, since what was known may have been rolled back.  Raises 22023 where
 * nothing of the parameters is material, 40001 where it cannot be told whether the operation is known.
 */
extern void content_choose(Request *request);

/*
 * The request's claim has just been placed: raise 40001 where other lists are in force by now than its key was chosen
 * by, or where the operation is known by any others on record.
 */
extern void content_require_alone(Request *request);

#endif							/* IDEM_CONTENT_H */
