/*
 * access.c: the access lists of the extension's own functions, tables and views, changed as GRANT and REVOKE would.
 *
 * GRANT wants names, and a name may be somebody else's by the time it is looked up.  Here a member is known by its
 * OID, from the catalog of members to the row that is written.  The owner is the grantor, as it is where the owner or
 * a superuser runs GRANT.  What is taken is taken whoever gave it: a dump that is restored by a role that is no
 * superuser makes that role the grantor.  No event trigger fires: it would run with the rights of who grants.
 *
 * The row is read and written under the lock that GRANT takes.  Two that change one list at a time end as two GRANTs
 * do: the second raises an error.
 */
#include "compat.h"

#include "access/htup_details.h"
#include "access/table.h"
#include "catalog/dependency.h"
#include "catalog/indexing.h"
#include "catalog/objectaccess.h"
#include "catalog/pg_attribute.h"
#include "catalog/pg_class.h"
#include "catalog/pg_proc.h"
#include "commands/extension.h"
#include "utils/acl.h"
#include "utils/array.h"
#include "utils/syscache.h"

#include "access.h"

/* Where the access lists of a kind of member are. */
typedef struct Place
{
	int			cache;
	AttrNumber	column;
	ObjectType	kind;
} Place;

static Place
place_of(const Member *member)
{
	static const Place function = {PROCOID, Anum_pg_proc_proacl, OBJECT_FUNCTION};
	static const Place relation = {RELOID, Anum_pg_class_relacl, OBJECT_TABLE};

	return member->class_id == ProcedureRelationId ? function : relation;
}

Acl *
access_with(const Acl *acl, const Member *member, Oid role, AclMode privileges, bool grantable)
{
	AclItem		item = {.ai_grantee = role, .ai_grantor = member->owner};

	ACLITEM_SET_PRIVS_GOPTIONS(item, privileges, grantable ? privileges : ACL_NO_RIGHTS);
	return aclupdate(acl, &item, ACL_MODECHG_ADD, member->owner, DROP_CASCADE);
}

Acl *
access_without(const Acl *acl, const Member *member, Oid role, AclMode privileges)
{
	Acl		   *result = aclcopy(acl);

	for (int i = 0; i < ACL_NUM(acl); i++)
	{
		AclItem		item = ACL_DAT(acl)[i];

		if (item.ai_grantee != role)
			continue;
		ACLITEM_SET_PRIVS_GOPTIONS(item, privileges, privileges);
		result = aclupdate(result, &item, ACL_MODECHG_DEL, member->owner, DROP_CASCADE);
	}
	return result;
}

/* The access list in a catalog's row, and whether there is one. */
static Acl *
list_in(HeapTuple row, const Place *place, Oid owner, bool *is_default)
{
	Datum		datum = SysCacheGetAttr(place->cache, row, place->column, is_default);

	return *is_default ? acldefault(place->kind, owner) : DatumGetAclPCopy(datum);
}

Acl *
access_list(const Member *member)
{
	Place		place = place_of(member);
	HeapTuple	row = SearchSysCache1(place.cache, ObjectIdGetDatum(member->object));
	bool		is_default;
	Acl		   *acl;

	if (!HeapTupleIsValid(row))
		elog(ERROR, "cache lookup failed for member %u", member->object);
	acl = list_in(row, &place, member->owner, &is_default);
	ReleaseSysCache(row);
	return acl;
}

Acl *
access_of_function(Oid function)
{
	HeapTuple	row = SearchSysCache1(PROCOID, ObjectIdGetDatum(function));
	Member		member = {.class_id = ProcedureRelationId, .object = function};

	if (!HeapTupleIsValid(row))
		elog(ERROR, "cache lookup failed for function %u", function);
	member.owner = ((Form_pg_proc) GETSTRUCT(row))->proowner;
	ReleaseSysCache(row);
	return access_list(&member);
}

/* Write a list into the row of an object, or of its column, with all that hangs on it. */
static void
write_list(Relation catalog, HeapTuple row, const ObjectAddress *object, const Place *place, Oid owner,
		   const Acl *before, Acl *after)
{
	int			column = place->column;
	Datum		value = PointerGetDatum(after);
	bool		isnull = object->objectSubId != 0 && ACL_NUM(after) == 0;
	HeapTuple	changed = heap_modify_tuple_by_cols(row, RelationGetDescr(catalog), 1, &column, &value, &isnull);
	Oid		   *old_roles = NULL;
	Oid		   *new_roles = NULL;
	int			nold = before == NULL ? 0 : aclmembers(before, &old_roles);
	int			nnew = aclmembers(after, &new_roles);

	CatalogTupleUpdate(catalog, &row->t_self, changed);
	updateAclDependencies(object->classId, object->objectId, object->objectSubId, owner, nold, old_roles, nnew, new_roles);
	InvokeObjectPostAlterHook(object->classId, object->objectId, object->objectSubId);
	heap_freetuple(changed);
	CommandCounterIncrement();
	if (creating_extension)
		recordExtObjInitPriv(object->objectId, object->classId);
}

void
access_edit(const Member *member, AccessEdit edit, void *arg)
{
	Place		place = place_of(member);
	ObjectAddress object = {member->class_id, member->object, 0};
	Relation	catalog = table_open(member->class_id, RowExclusiveLock);
	HeapTuple	row = find_row_to_change(place.cache, ObjectIdGetDatum(member->object));
	ItemPointerData tid;
	bool		is_default;
	Acl		   *before;
	Acl		   *after;

	if (!HeapTupleIsValid(row))
		elog(ERROR, "cache lookup failed for member %u", member->object);
	tid = row->t_self;
	before = list_in(row, &place, member->owner, &is_default);
	after = edit(before, member, arg);
	if (!aclequal(before, after))
		write_list(catalog, row, &object, &place, member->owner, is_default ? NULL : before, after);
	release_row_to_change(catalog, &tid);
	ReleaseSysCache(row);
	table_close(catalog, RowExclusiveLock);
}

static int
column_count(Oid relation)
{
	HeapTuple	row = SearchSysCache1(RELOID, ObjectIdGetDatum(relation));
	int			count = HeapTupleIsValid(row) ? ((Form_pg_class) GETSTRUCT(row))->relnatts : 0;

	if (HeapTupleIsValid(row))
		ReleaseSysCache(row);
	return count;
}

void
access_edit_columns(const Member *member, AccessEdit edit, void *arg)
{
	static const Place place = {ATTNUM, Anum_pg_attribute_attacl, OBJECT_COLUMN};
	ObjectAddress object = {member->class_id, member->object, 0};
	Relation	catalog = table_open(AttributeRelationId, RowExclusiveLock);
	int			count = column_count(member->object);

	for (int column = 1; column <= count; column++)
	{
		HeapTuple	row = SearchSysCache2(ATTNUM, ObjectIdGetDatum(member->object), Int16GetDatum(column));
		bool		is_default;
		Acl		   *before;
		Acl		   *after;

		if (!HeapTupleIsValid(row))
			continue;
		object.objectSubId = column;
		before = list_in(row, &place, member->owner, &is_default);
		after = is_default ? before : edit(before, member, arg);
		if (!aclequal(before, after))
			write_list(catalog, row, &object, &place, member->owner, before, after);
		ReleaseSysCache(row);
	}
	table_close(catalog, RowExclusiveLock);
}
