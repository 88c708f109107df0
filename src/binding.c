/*
 * binding.c: roles that may act for one subject only, the one that a setting holds (idem_grant with a
 * subject_setting).
 *
 * Who calls is the current role, whatever the session's: a pool that does SET ROLE is judged by that, and a
 * SECURITY DEFINER function by its owner.  A role with a binding of its own is held to it.  Any other is judged by
 * the ways in which it may execute the function, which are the entries of the function's access list that reach it:
 * it is free if one of them was given to a role without a binding, or to everybody; else it must carry the
 * subject of one of the bound roles that it has the right from.  Superusers are free.  A role that none of the
 * entries reaches has been let in some other way, by an aggregate's owner for instance, and is refused where anybody
 * is bound: a binding must not end where a role lends its right to another.
 *
 * Calls that carry a subject are refused where it is another's.  In those that carry none, and for rows that a trigger
 * guards, an operation of another subject is one that does not exist.
 *
 * A binding is a row of idem_binding and, beside the grants, a mark: the privilege to execute _idem_bound_signer() or
 * _idem_bound_caller(), by the sets that it has, without the option to grant it on, which the role has that installed
 * the extension, so that it can restore a dump.  Grants come back from a dump where rows do not: from one without
 * data, or where a role has another name.  Then the mark comes back with the grants, and a role that is marked without
 * a row is refused.  pg_restore runs all grants on one function together, and none of them where a role is missing:
 * then the grants on the set's functions fail with those on its marker, for that role is in both.  A row without a
 * mark binds as well.
 *
 * Which role a row means is told by role_oid, which follows it through a change of its name; where there is no such
 * role, by the name.
 *
 * The bindings are cached as policies are: read whole at first use, marks first, then the rows by a snapshot taken
 * after the generation was noted, and read again after a change of the table, of the marker or, where there are any,
 * of roles.  Where there are none, a call costs two comparisons.
 */
#include "compat.h"

#include "catalog/pg_authid.h"
#include "catalog/pg_proc.h"
#include "catalog/pg_type_d.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/guc.h"
#include "utils/inval.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"
#include "utils/syscache.h"

#include "access.h"
#include "binding.h"
#include "catalog.h"
#include "rows.h"

static const Oid column_types[BINDING_NATTS] = {
	[BINDING_ROLE] = TEXTOID,
	[BINDING_ROLE_OID] = OIDOID,
	[BINDING_SUBJECT_SETTING] = TEXTOID,
};

const Layout binding_layout = {BINDING_NATTS, 1, column_types, NULLABLE(BINDING_ROLE_OID), 2};

/* Where a binding was found; of several for one role the first counts. */
typedef enum Source
{
	BY_OID,
	BY_NAME,
	BY_MARK						/* alone: what it is bound to is not known */
} Source;

typedef struct Binding
{
	Oid			role;
	Source		source;
	const char *setting;		/* NULL: not known, so that none holds */
} Binding;

typedef struct BindingCache
{
	MemoryContext context;
	uint64		generation;
	int			count;
	int			room;
	Binding    *binding;		/* by role */
} BindingCache;

/* A generation that the table never has. */
#define STALE PG_UINT64_MAX

static BindingCache *cache = NULL;
static uint64 changes = 0;		/* of the marker or of roles */
static uint32 marker_hash[BINDABLE_COUNT];	/* by which an invalidation tells them from other functions; 0: not known */

static void
add_binding(BindingCache *known, Oid role, Source source, const char *setting)
{
	Binding    *binding;

	if (known->count == known->room)
	{
		known->room = Max(16, known->room * 2);
		known->binding = known->binding == NULL ? palloc(sizeof(Binding) * known->room) :
			repalloc(known->binding, sizeof(Binding) * known->room);
	}
	binding = &known->binding[known->count++];
	binding->role = role;
	binding->source = source;
	binding->setting = setting;
}

Oid
binding_role_of(Oid role_oid, const char *name)
{
	if (OidIsValid(role_oid) && SearchSysCacheExists1(AUTHOID, ObjectIdGetDatum(role_oid)))
		return role_oid;
	return GetSysCacheOid1(AUTHNAME, Anum_pg_authid_oid, CStringGetDatum(name));
}

static void
take_binding(TupleTableSlot *columns, void *into)
{
	const Datum *values = columns->tts_values;
	BindingCache *known = into;
	MemoryContext before = MemoryContextSwitchTo(known->context);
	Oid			role_oid = columns->tts_isnull[BINDING_ROLE_OID] ? InvalidOid :
		DatumGetObjectId(values[BINDING_ROLE_OID]);
	Oid			role = binding_role_of(role_oid, TextDatumGetCString(values[BINDING_ROLE]));

	if (OidIsValid(role))
		add_binding(known, role, role == role_oid ? BY_OID : BY_NAME,
					TextDatumGetCString(values[BINDING_SUBJECT_SETTING]));
	MemoryContextSwitchTo(before);
}

/* The roles that may execute the marker of a set and not grant it on. */
static void
take_marks(BindingCache *known, BindableSet set)
{
	Datum		marker = ObjectIdGetDatum(catalog_bound_marker(set));
	HeapTuple	tuple;
	MemoryContext before = MemoryContextSwitchTo(known->context);
	Oid			owner;
	Datum		datum;
	bool		is_default;

	marker_hash[set] = GetSysCacheHashValue1(PROCOID, marker);
	tuple = SearchSysCache1(PROCOID, marker);
	if (!HeapTupleIsValid(tuple))
		elog(ERROR, "cache lookup failed for the marker of bindings");
	owner = ((Form_pg_proc) GETSTRUCT(tuple))->proowner;
	datum = SysCacheGetAttr(PROCOID, tuple, Anum_pg_proc_proacl, &is_default);
	if (!is_default)
	{
		const Acl  *acl = DatumGetAclP(datum);
		const AclItem *item = ACL_DAT(acl);

		for (int i = 0; i < ACL_NUM(acl); i++)
			if (access_is_mark(&item[i], owner))
				add_binding(known, item[i].ai_grantee, BY_MARK, NULL);
	}
	ReleaseSysCache(tuple);
	MemoryContextSwitchTo(before);
}

static int
compare_roles(const void *a, const void *b)
{
	Oid			left = ((const Binding *) a)->role;
	Oid			right = ((const Binding *) b)->role;

	return left < right ? -1 : left > right;
}

static int
compare_bindings(const void *a, const void *b)
{
	int			order = compare_roles(a, b);

	return order != 0 ? order : (int) ((const Binding *) a)->source - (int) ((const Binding *) b)->source;
}

/* Sort them, and leave one for each role. */
static void
order_bindings(BindingCache *known)
{
	int			kept = 0;

	if (known->count == 0)
		return;
	qsort(known->binding, known->count, sizeof(Binding), compare_bindings);
	for (int i = 0; i < known->count; i++)
		if (kept == 0 || known->binding[kept - 1].role != known->binding[i].role)
			known->binding[kept++] = known->binding[i];
	known->count = kept;
}

static bool
is_marker(uint32 hash_value)
{
	for (int set = 0; set < BINDABLE_COUNT; set++)
		if (marker_hash[set] == 0 || marker_hash[set] == hash_value)
			return true;
	return false;
}

/* A function or a role was changed, or anything (0). */
static void
on_change(Datum arg, int cache_id, uint32 hash_value)
{
	if (cache_id == PROCOID && hash_value != 0 && !is_marker(hash_value))
		return;
	changes++;
	if (cache != NULL && (cache_id == PROCOID || cache->count > 0))
		cache->generation = STALE;
}

/* Ask for the invalidations, once in a session. */
static void
watch(void)
{
	static bool watching = false;

	if (watching)
		return;
	CacheRegisterSyscacheCallback(PROCOID, on_change, (Datum) 0);
	CacheRegisterSyscacheCallback(AUTHOID, on_change, (Datum) 0);
	watching = true;
}

/* Read all bindings.  The memory is the caller's until nothing can fail any more. */
static BindingCache *
load(void)
{
	MemoryContext context = AllocSetContextCreate(CurrentMemoryContext, "idem bindings", ALLOCSET_SMALL_SIZES);
	BindingCache *into = MemoryContextAllocZero(context, sizeof(BindingCache));
	uint64		before = changes;
	Snapshot	snapshot;

	into->context = context;
	watch();
	(void) catalog_table(TABLE_BINDING);
	into->generation = catalog_generation(TABLE_BINDING);

	for (int set = 0; set < BINDABLE_COUNT; set++)
		take_marks(into, set);
	snapshot = RegisterSnapshot(GetLatestSnapshot());
	rows_read(TABLE_BINDING, &binding_layout, snapshot, take_binding, into);
	UnregisterSnapshot(snapshot);
	order_bindings(into);
	if (changes != before)
		into->generation = STALE;

	MemoryContextSetParent(context, TopMemoryContext);
	return into;
}

static const BindingCache *
bindings(void)
{
	if (cache != NULL && cache->generation != catalog_generation(TABLE_BINDING))
	{
		MemoryContext old = cache->context;

		cache = NULL;
		MemoryContextDelete(old);
	}
	if (cache == NULL)
		cache = load();
	return cache;
}

/* What a role itself is bound to; NULL: nothing. */
static const Binding *
binding_of(const BindingCache *known, Oid role)
{
	Binding		wanted = {.role = role};

	return known->count == 0 ? NULL :
		bsearch(&wanted, known->binding, known->count, sizeof(Binding), compare_roles);
}

/* Is this the subject that a binding's setting holds?  Unset or empty it holds none, and no subject is empty. */
static bool
binding_holds(const Binding *binding, Span subject)
{
	const char *value = binding->setting == NULL ? NULL : GetConfigOption(binding->setting, true, false);

	return value != NULL && strlen(value) == subject.length && memcmp(value, subject.data, subject.length) == 0;
}

/* What the entries of a function's access list that reach a role say of a subject. */
typedef enum WayIn
{
	WAY_NONE,					/* no entry reaches the role */
	WAY_CLOSED,					/* those that do are of roles bound to other subjects */
	WAY_OPEN
} WayIn;

/* What lies behind an entry that was given to a role, bound or not; notes whether a row was missed. */
static WayIn
way_by(const Binding *binding, Span subject, bool *missed)
{
	*missed |= binding != NULL && binding->setting == NULL;
	return binding == NULL || binding_holds(binding, subject) ? WAY_OPEN : WAY_CLOSED;
}

static WayIn
best_way_in(const BindingCache *known, Oid function, Oid role, Span subject, bool *missed)
{
	Acl		   *acl = access_of_function(function);
	const AclItem *item = ACL_DAT(acl);
	WayIn		best = WAY_NONE;

	for (int i = 0; best != WAY_OPEN && i < ACL_NUM(acl); i++)
		if ((ACLITEM_GET_PRIVS(item[i]) & ACL_EXECUTE) != 0 &&
			(item[i].ai_grantee == ACL_ID_PUBLIC || has_privs_of_role(role, item[i].ai_grantee)))
			best = way_by(binding_of(known, item[i].ai_grantee), subject, missed);
	pfree(acl);
	return best;
}

static WayIn
way_in(const BindingCache *known, Oid function, Span subject, bool *missed)
{
	Oid			role = GetUserId();
	const Binding *own = binding_of(known, role);

	if (own != NULL)
		return way_by(own, subject, missed);
	return superuser_arg(role) ? WAY_OPEN : best_way_in(known, function, role, subject, missed);
}

static void
refuse_subject(bool missed)
{
	ereport(ERROR,
			(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
			 errmsg("role \"%s\" may not act for this subject", GetUserNameFromId(GetUserId(), false)),
			 missed ? errdetail("Its privilege is bound to a subject, and the table idem_binding does not say to which: the row was lost, as in a restore without data, or has a former name of the role.") :
			 errdetail("Its privilege is bound to the subject that a setting holds, and the call carries another one, or the setting is unset or empty."),
			 missed ? errhint("Bind the role again, with idem_grant(.., subject_setting => ..).") :
			 errhint("The table idem_binding says which setting. Whoever has authenticated the user must set it, for the transaction.")));
}

Span
binding_subject(FunctionCallInfo fcinfo, int n)
{
	Span		subject = args_label(fcinfo, n, "subject");
	const BindingCache *known = bindings();
	bool		missed = false;

	if (known->count > 0 && way_in(known, fcinfo->flinfo->fn_oid, subject, &missed) != WAY_OPEN)
		refuse_subject(missed);
	return subject;
}

bool
binding_exists(void)
{
	return bindings()->count > 0;
}

bool
binding_admits(Oid function, Span subject)
{
	const BindingCache *known = bindings();
	bool		missed = false;

	return known->count == 0 || way_in(known, function, subject, &missed) == WAY_OPEN;
}

bool
binding_admits_writer(Oid trigger_function, Span subject)
{
	const BindingCache *known = bindings();
	bool		missed = false;

	return known->count == 0 || way_in(known, trigger_function, subject, &missed) != WAY_CLOSED;
}
