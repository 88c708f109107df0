/*
 * access.h: the access lists of the extension's own functions, tables and views, changed as GRANT and REVOKE would.
 */
#ifndef IDEM_ACCESS_H
#define IDEM_ACCESS_H

#include "utils/acl.h"

#include "catalog.h"

/* Makes of an access list another one, of the member's or, on revoking, of one of its columns. */
typedef Acl *(*AccessEdit) (Acl *acl, const Member *member, void *arg);

/* A copy of an access list; what holds by default where there is none. */
extern Acl *access_list(const Member *member);
extern Acl *access_of_function(Oid function);

/*
 * Give a member the access list that edit makes of its present one; the caller answers for who may do so.  Within an
 * installation or an update it becomes the member's initial one, as with GRANT: pg_dump dumps what differs from that.
 */
extern void access_edit(const Member *member, AccessEdit edit, void *arg);

/* The same for those columns of a table or view that have an access list of their own. */
extern void access_edit_columns(const Member *member, AccessEdit edit, void *arg);

/*
 * The access list with a role's privileges added, also to grant on; or taken away, whoever gave them, with what the
 * role granted on.
 */
extern Acl *access_with(const Acl *acl, const Member *member, Oid role, AclMode privileges, bool grantable);
extern Acl *access_without(const Acl *acl, const Member *member, Oid role, AclMode privileges);

/* Does this entry of the list of a marker mark a role as bound?  Not its owner's, nor one to grant on. */
static inline bool
access_is_mark(const AclItem *item, Oid owner)
{
	return (ACLITEM_GET_PRIVS(*item) & ACL_EXECUTE) != 0 && (ACLITEM_GET_GOPTIONS(*item) & ACL_EXECUTE) == 0 &&
		item->ai_grantee != owner;
}

#endif							/* IDEM_ACCESS_H */
