/*
 * privilege.c: which set opens what, and how sets are handed out, taken back and closed.
 *
 * These functions run with their caller's rights, and need none: who may call them is the whole of it.  They find the
 * objects as members of the extension that are the script's, never by a name that is looked up, and give and take
 * in their owner's name.
 *
 * One transaction at a time changes privileges: it holds the lock on idem_binding that bind_open takes, for what a
 * role still has decides on its binding.
 */
#include "compat.h"

#include "access/table.h"
#include "catalog/pg_class.h"
#include "catalog/pg_proc.h"
#include "commands/extension.h"
#include "miscadmin.h"
#include "utils/acl.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/syscache.h"

#include "access.h"
#include "bind.h"
#include "catalog.h"
#include "privilege.h"

PG_FUNCTION_INFO_V1(idem_privileges);
PG_FUNCTION_INFO_V1(idem_grant);
PG_FUNCTION_INFO_V1(idem_revoke);
PG_FUNCTION_INFO_V1(idem_grant_owner);
PG_FUNCTION_INFO_V1(idem_close);

typedef struct Privilege
{
	const char *set;
	const char *name;
	const char *words;
	AclMode		mode;
} Privilege;

#define RUN "EXECUTE", ACL_EXECUTE
#define READ "SELECT", ACL_SELECT
#define WRITE "SELECT, INSERT, UPDATE, DELETE", ACL_SELECT | ACL_INSERT | ACL_UPDATE | ACL_DELETE

/*
 * Which set opens what: a new function or view is one more line here.  A name stands for every member of the
 * extension so called.  A function that is in no set is not for callers.
 */
static const Privilege privileges[] = {
	{"signer", "idem_sign", RUN},
	{"signer", "idem_preview", RUN},
	{"signer", "idem_canonical", RUN},
	{"signer", "idem_param_hash", RUN},
	{"signer", "idem_key", RUN},
	{"signer", "idem_downstream_key", RUN},
	{"signer", "idem_shard", RUN},
	{"signer", "idem_shard_key", RUN},
	{"signer", "idem_reply", RUN},
	{"signer", "idem_http", RUN},
	{"signer", "idem_http_key", RUN},
	{"caller", "idem_acquire", RUN},
	{"caller", "idem_acquire_direct", RUN},
	{"caller", "idem_commit", RUN},
	{"caller", "idem_fail", RUN},
	{"caller", "idem_release", RUN},
	{"caller", "idem_renew", RUN},
	{"caller", "idem_status", RUN},
	{"caller", "idem_status_key", RUN},
	{"caller", "idem_execute", RUN},
	{"caller", "idem_require", RUN},
	{"caller", "idem_canonical", RUN},
	{"caller", "idem_param_hash", RUN},
	{"caller", "idem_key", RUN},
	{"caller", "idem_downstream_key", RUN},
	{"caller", "idem_shard", RUN},
	{"caller", "idem_shard_key", RUN},
	{"caller", "idem_reply", RUN},
	{"caller", "idem_http", RUN},
	{"caller", "idem_http_key", RUN},
	{"auditor", "idem_inspect", RUN},
	{"auditor", "_idem_uncommitted", RUN},
	{"auditor", "idem_in_flight", READ},
	{"auditor", "idem_stuck", READ},
	{"auditor", "idem_audit", READ},
	{"auditor", "idem_secrets", READ},
	{"auditor", "idem_stat", READ},
	{"auditor", "idem_stat_counters", RUN},
	{"auditor", "_idem_stat_counters", RUN},
	{"auditor", "idem_preloaded", RUN},
	{"auditor", "idem_health", RUN},
	{"auditor", "idem_alerts", READ},
	{"auditor", "idem_alert", READ},
	{"auditor", "idem_binding", READ},
	{"operator", "idem_reconcile", RUN},
	{"operator", "idem_maintain", RUN},
	{"operator", "idem_purge", RUN},
	{"admin", "idem_policy", WRITE},
	{"admin", "idem_policy_version", READ},
	{"admin", "idem_guidance", WRITE},
	{"admin", "idem_binding", READ},
	{"admin", "idem_list_version", RUN},
	{"admin", "idem_longest_retention", RUN},
	{"admin", "idem_secrets", READ},
	{"admin", "idem_rotate_secret", RUN},
	{"admin", "idem_import_secret", RUN},
	{"admin", "idem_export_secret", RUN},
	{"admin", "idem_revoke_secret", RUN},
	{"admin", "idem_privileges", RUN},
	{"admin", "idem_stat_reset", RUN},
	{"admin", "idem_grant", RUN},
	{"admin", "idem_revoke", RUN},
};

static const char *const bindable_set[BINDABLE_COUNT] = {
	[SET_SIGNER] = "signer",
	[SET_CALLER] = "caller",
};

/* Open to everybody: it says itself who may. */
#define OPEN_FUNCTION "idem_grant_owner"

/* Nobody but its owner reads it, whatever is granted. */
#define CLOSED_TABLE "idem_secret"

static bool
is_function(const Member *member)
{
	return member->class_id == ProcedureRelationId;
}

/* The functions, tables and views that the script made, as Member *. */
static List *
script_members(void)
{
	Oid			owner = catalog_owner();
	Oid			schema = catalog_schema();
	List	   *members = NIL;
	ListCell   *cell;

	foreach(cell, catalog_members())
	{
		Member	   *member = lfirst(cell);
		bool		is_relation = member->class_id == RelationRelationId &&
			(member->kind == RELKIND_RELATION || member->kind == RELKIND_VIEW);

		if (member->owner == owner && member->schema == schema && (is_function(member) || is_relation))
			members = lappend(members, member);
	}
	return members;
}

/* Does a line of the table open this member? */
static bool
opens(const Privilege *privilege, const Member *member)
{
	return strcmp(privilege->name, NameStr(member->name)) == 0 &&
		(privilege->mode == ACL_EXECUTE) == is_function(member);
}

static bool
is_for_callers(const Member *member)
{
	for (size_t i = 0; i < lengthof(privileges); i++)
		if (opens(&privileges[i], member))
			return true;
	return false;
}

static bool
set_exists(const char *set)
{
	for (size_t i = 0; i < lengthof(privileges); i++)
		if (strcmp(privileges[i].set, set) == 0)
			return true;
	return false;
}

bool
privilege_set_is_bindable(const char *set)
{
	for (int i = 0; i < BINDABLE_COUNT; i++)
		if (strcmp(bindable_set[i], set) == 0)
			return true;
	return false;
}

/* ----- one change ----- */

typedef struct Change
{
	Oid			role;
	AclMode		mode;
	bool		give;
} Change;

static Acl *
changed(Acl *acl, const Member *member, void *arg)
{
	const Change *change = arg;

	return change->give ? access_with(acl, member, change->role, change->mode, false) :
		access_without(acl, member, change->role, change->mode);
}

/* Give or take a whole set.  As REVOKE does, taking takes what there is on single columns, too. */
static void
hand_out(Oid role, const char *set, bool give)
{
	List	   *members = script_members();

	for (size_t i = 0; i < lengthof(privileges); i++)
	{
		Change		change = {role, privileges[i].mode, give};
		ListCell   *cell;

		if (strcmp(privileges[i].set, set) != 0)
			continue;
		foreach(cell, members)
		{
			const Member *member = lfirst(cell);

			if (!opens(&privileges[i], member))
				continue;
			access_edit(member, changed, &change);
			if (!give && !is_function(member))
				access_edit_columns(member, changed, &change);
		}
	}
}

/* ----- marks ----- */

/* Is the role itself in an access list? */
static bool
is_granted(const Member *member, Oid role)
{
	Acl		   *acl = access_list(member);

	for (int i = 0; i < ACL_NUM(acl); i++)
		if (ACL_DAT(acl)[i].ai_grantee == role)
			return true;
	return false;
}

/* Do other sets that can be bound open it as well? */
static bool
is_shared(const char *name, const char *set)
{
	for (size_t i = 0; i < lengthof(privileges); i++)
		if (strcmp(privileges[i].name, name) == 0 && strcmp(privileges[i].set, set) != 0 &&
			privilege_set_is_bindable(privileges[i].set))
			return true;
	return false;
}

/* Has the role anything that a set opens; or, alone, that no other set that can be bound does? */
static bool
has_any(Oid role, const char *set, bool alone)
{
	List	   *members = script_members();

	for (size_t i = 0; i < lengthof(privileges); i++)
	{
		ListCell   *cell;

		if (strcmp(privileges[i].set, set) != 0 || (alone && is_shared(privileges[i].name, set)))
			continue;
		foreach(cell, members)
			if (opens(&privileges[i], lfirst(cell)) && is_granted(lfirst(cell), role))
				return true;
	}
	return false;
}

bool
privilege_has_bindable(Oid role)
{
	return has_any(role, bindable_set[SET_SIGNER], false) || has_any(role, bindable_set[SET_CALLER], false);
}

static Member
marker(BindableSet set)
{
	Member		member = {.class_id = ProcedureRelationId, .object = catalog_bound_marker(set), .owner = catalog_owner()};

	return member;
}

static bool
is_marker(const Member *member)
{
	return member->object == catalog_bound_marker(SET_SIGNER) || member->object == catalog_bound_marker(SET_CALLER);
}

static bool
has_mark(const Member *member, Oid role)
{
	Acl		   *acl = access_list(member);

	for (int i = 0; i < ACL_NUM(acl); i++)
		if (ACL_DAT(acl)[i].ai_grantee == role && access_is_mark(&ACL_DAT(acl)[i], member->owner))
			return true;
	return false;
}

bool
privilege_is_marked(Oid role)
{
	Member		signer = marker(SET_SIGNER);
	Member		caller = marker(SET_CALLER);

	return has_mark(&signer, role) || has_mark(&caller, role);
}

/* What a role may grant on is no mark, and stays. */
static Acl *
unmarked(Acl *acl, const Member *member, void *arg)
{
	Oid			role = *(Oid *) arg;
	Acl		   *result = acl;

	for (int i = 0; i < ACL_NUM(acl); i++)
	{
		AclItem		item = ACL_DAT(acl)[i];

		if (item.ai_grantee == role && access_is_mark(&item, member->owner))
			result = aclupdate(result, &item, ACL_MODECHG_DEL, member->owner, DROP_RESTRICT);
	}
	return result;
}

/*
 * A role is marked for a set only while it has of it what no other set opens: then all of the marker's roles are those
 * of the set's functions as well, and no marker is lost in a restore whose grants are not.
 */
void
privilege_mark(Oid role, bool bound)
{
	for (int set = 0; set < BINDABLE_COUNT; set++)
	{
		Member		member = marker(set);
		Change		change = {role, ACL_EXECUTE, true};

		if (!bound || !has_any(role, bindable_set[set], true))
			access_edit(&member, unmarked, &role);
		else if (role != member.owner)
			access_edit(&member, changed, &change);
	}
}

/* ----- handing out ----- */

/* The first two arguments of idem_grant and idem_revoke: raises 22004, 42704 or 22023. */
static char *
role_and_set(FunctionCallInfo fcinfo, Oid *role)
{
	char	   *set;

	if (PG_ARGISNULL(0) || PG_ARGISNULL(1))
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("%s must not be null", PG_ARGISNULL(0) ? "role" : "set"),
				 errhint("Give a role, and one of the sets signer, caller, auditor, operator, admin.")));
	*role = PG_GETARG_OID(0);
	set = text_to_cstring(PG_GETARG_TEXT_PP(1));
	if (!SearchSysCacheExists1(AUTHOID, ObjectIdGetDatum(*role)))
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_OBJECT),
				 errmsg("role does not exist")));
	if (!set_exists(set))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("unknown set of privileges"),
				 errhint("The sets are signer, caller, auditor, operator and admin.")));
	return set;
}

/*
 * idem_grant(role regrole, set text, subject_setting text) RETURNS void
 */
Datum
idem_grant(PG_FUNCTION_ARGS)
{
	Oid			role;
	char	   *set = role_and_set(fcinfo, &role);
	char	   *setting = PG_ARGISNULL(2) ? NULL : text_to_cstring(PG_GETARG_TEXT_PP(2));
	Relation	bindings = bind_open();

	hand_out(role, set, true);
	bind_role(bindings, role, set, setting);
	table_close(bindings, NoLock);
	PG_RETURN_VOID();
}

/*
 * idem_revoke(role regrole, set text) RETURNS void
 */
Datum
idem_revoke(PG_FUNCTION_ARGS)
{
	Oid			role;
	char	   *set = role_and_set(fcinfo, &role);
	Relation	bindings = bind_open();

	hand_out(role, set, false);
	bind_release(bindings, role);
	table_close(bindings, NoLock);
	PG_RETURN_VOID();
}

/*
 * idem_privileges() RETURNS SETOF record
 */
Datum
idem_privileges(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *result = (ReturnSetInfo *) fcinfo->resultinfo;
	bool		nulls[3] = {0};

	materialize_result(fcinfo);
	for (size_t i = 0; i < lengthof(privileges); i++)
	{
		Datum		values[3];

		values[0] = CStringGetTextDatum(privileges[i].set);
		values[1] = CStringGetTextDatum(privileges[i].name);
		values[2] = CStringGetTextDatum(privileges[i].words);
		tuplestore_putvalues(result->setResult, result->setDesc, values, nulls);
	}
	return (Datum) 0;
}

/* ----- the extension's owner, who of a trusted installation is not the owner of its objects ----- */

/*
 * What he gets, to use and to grant; the markers of bindings as well, so that he can restore a dump.  Tables come
 * without TRIGGER and REFERENCES, which would let him run his code with the owner's rights.
 */
static AclMode
rights_of_installer(const Member *member)
{
	if (is_function(member))
		return is_for_callers(member) || is_marker(member) ? ACL_EXECUTE : ACL_NO_RIGHTS;
	if (strcmp(NameStr(member->name), CLOSED_TABLE) == 0)
		return ACL_NO_RIGHTS;
	return member->kind == RELKIND_VIEW ? ACL_SELECT :
		ACL_SELECT | ACL_INSERT | ACL_UPDATE | ACL_DELETE | ACL_TRUNCATE;
}

static Acl *
with_installer(Acl *acl, const Member *member, void *arg)
{
	Oid			installer = *(Oid *) arg;
	AclMode		rights = rights_of_installer(member);

	return installer == member->owner || rights == ACL_NO_RIGHTS ? acl :
		access_with(acl, member, installer, rights, true);
}

/* Nothing of it is open to anybody, PUBLIC and default privileges included; then the installing role gets his. */
static Acl *
closed(Acl *acl, const Member *member, void *arg)
{
	AclMode		all = is_function(member) ? ACL_ALL_RIGHTS_FUNCTION : ACL_ALL_RIGHTS_RELATION;
	Acl		   *result = acl;

	for (int i = 0; i < ACL_NUM(acl); i++)
	{
		Oid			role = ACL_DAT(acl)[i].ai_grantee;

		if (role != member->owner)
			result = access_without(result, member, role, all);
	}
	if (strcmp(NameStr(member->name), OPEN_FUNCTION) == 0)
		result = access_with(result, member, ACL_ID_PUBLIC, ACL_EXECUTE, false);
	return with_installer(result, member, arg);
}

/*
 * idem_grant_owner() RETURNS void
 *
 * Give the extension's present owner what the one got who installed it.  Raises 42501 for who is neither.
 */
Datum
idem_grant_owner(PG_FUNCTION_ARGS)
{
	Oid			owner = catalog_extension_owner();
	Relation	bindings;
	ListCell   *cell;

	if (!has_privs_of_role(GetUserId(), owner))
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("must be owner of extension idem"),
				 errhint("Call it as the extension's owner, or as a superuser.")));
	bindings = bind_open();
	foreach(cell, script_members())
		access_edit(lfirst(cell), with_installer, &owner);
	table_close(bindings, NoLock);
	PG_RETURN_VOID();
}

static bool
is_named(const Member *member, ArrayType *names)
{
	Datum	   *values;
	bool	   *nulls;
	int			count;

	deconstruct_array(names, TEXTOID, -1, false, TYPALIGN_INT, &values, &nulls, &count);
	for (int i = 0; i < count; i++)
		if (!nulls[i] && strcmp(TextDatumGetCString(values[i]), NameStr(member->name)) == 0)
			return true;
	return false;
}

/*
 * _idem_close(added text[], idem_ack) RETURNS void
 *
 * At an installation (null) or an update (the names of what it adds), close everything but to the installing role.
 * What was there before an update has been granted meanwhile, and stays as it is.
 */
Datum
idem_close(PG_FUNCTION_ARGS)
{
	ArrayType  *added = PG_ARGISNULL(0) ? NULL : PG_GETARG_ARRAYTYPE_P(0);
	Oid			installer = catalog_extension_owner();
	ListCell   *cell;

	if (!creating_extension)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("_idem_close is called by the extension's scripts only"),
				 errhint("Use idem_grant and idem_revoke.")));
	foreach(cell, script_members())
		if (added == NULL || is_named(lfirst(cell), added))
			access_edit(lfirst(cell), closed, &installer);
	PG_RETURN_VOID();
}
