/*
 * binding.h: roles that may act for one subject only, the one that a setting holds.
 */
#ifndef IDEM_BINDING_H
#define IDEM_BINDING_H

#include "args.h"
#include "catalog.h"

/* The columns of idem_binding. */
enum
{
	BINDING_ROLE,
	BINDING_ROLE_OID,
	BINDING_SUBJECT_SETTING,
	BINDING_NATTS
};

extern const Layout binding_layout;

/*
 * Argument n, "subject", of the SQL function that is being called, checked as a label is; and raise 42501 where the
 * current role is bound to a setting that does not hold this very subject.  To be called after policy_begin(), and
 * before anything is looked at: the refusal then tells nothing.
 */
extern Span binding_subject(FunctionCallInfo fcinfo, int n);

/* Is any role bound?  Two comparisons where none is and the cache is valid. */
extern bool binding_exists(void);

/*
 * May the current role, calling the SQL function, know of an operation of this subject?  One that it may not know of is
 * to be treated as one that does not exist.  Likewise for who fires a trigger function, for which nobody needs a right:
 * a role that none of its grants reaches is free.
 */
extern bool binding_admits(Oid function, Span subject);
extern bool binding_admits_writer(Oid trigger_function, Span subject);

/* The role that a row of idem_binding means, as its first two columns tell; InvalidOid: one that is not there. */
extern Oid	binding_role_of(Oid role_oid, const char *name);

#endif							/* IDEM_BINDING_H */
