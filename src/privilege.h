/*
 * privilege.h: the marks of roles that are bound to a subject, set with what idem_grant hands out.
 */
#ifndef IDEM_PRIVILEGE_H
#define IDEM_PRIVILEGE_H

/* Does this set's privileges concern a subject, so that a role can be bound that has it? */
extern bool privilege_set_is_bindable(const char *set);

/* Has the role anything left of the sets that can be bound? */
extern bool privilege_has_bindable(Oid role);

/* Is the role marked as bound?  Mark it for the sets that it has, or take the marks away. */
extern bool privilege_is_marked(Oid role);
extern void privilege_mark(Oid role, bool bound);

#endif							/* IDEM_PRIVILEGE_H */
