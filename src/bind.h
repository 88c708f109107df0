/*
 * bind.h: roles are bound to a subject, and released.
 */
#ifndef IDEM_BIND_H
#define IDEM_BIND_H

#include "utils/relcache.h"

/*
 * Open idem_binding to change it and the privileges that go with it, one transaction at a time; to be closed with
 * table_close(.., NoLock).  Rows get the names that their roles have by now.
 */
extern Relation bind_open(void);

/*
 * Bind a role that was granted a set to the subject that a setting holds; where it is NULL, what is bound stays so,
 * with a notice.  Raises 22023 where the set has nothing to do with subjects, or for the name of a setting that is
 * no setting of the user's own.
 */
extern void bind_role(Relation bindings, Oid role, const char *set, const char *setting);

/* Forget the binding of a role that has nothing left of the sets that can be bound. */
extern void bind_release(Relation bindings, Oid role);

#endif							/* IDEM_BIND_H */
