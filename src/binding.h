/*
 * binding.h: roles that may act for one subject only, the one that a setting holds.
 */
#ifndef IDEM_BINDING_H
#define IDEM_BINDING_H

#include "args.h"

/*
 * Argument n, "subject", of the SQL function that is being called, checked as a label is; and raise 42501 where the
 * current role is bound to a setting that does not hold this very subject.  To be called after policy_begin(), and
 * before anything is looked at: the refusal then tells nothing.
 */
extern Span binding_subject(FunctionCallInfo fcinfo, int n);

#endif							/* IDEM_BINDING_H */
