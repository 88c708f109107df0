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
 * The bindings are cached as policies are: read whole at first use, with a snapshot taken after the generation was
 * noted, and read again after a change.  Where there are none, a call costs two comparisons.
 */
#include "compat.h"

#include "catalog/pg_proc.h"
#include "catalog/pg_type_d.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/guc.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"
#include "utils/syscache.h"

#include "binding.h"
#include "catalog.h"
#include "rows.h"

/* The columns of idem_binding. */
enum
{
	BINDING_ROLE,
	BINDING_SUBJECT_SETTING,
	BINDING_NATTS
};

static const Oid column_types[BINDING_NATTS] = {
	[BINDING_ROLE] = REGROLEOID,
	[BINDING_SUBJECT_SETTING] = TEXTOID,
};

static const Layout binding_layout = {BINDING_NATTS, 1, column_types, 0, 2};

typedef struct Binding
{
	Oid			role;
	const char *setting;
} Binding;

typedef struct BindingCache
{
	MemoryContext context;
	uint64		generation;
	int			count;
	int			room;
	Binding    *binding;		/* by role */
} BindingCache;

static BindingCache *cache = NULL;

static void
take_binding(TupleTableSlot *columns, void *into)
{
	const Datum *values = columns->tts_values;
	BindingCache *known = into;
	MemoryContext before = MemoryContextSwitchTo(known->context);
	Binding    *binding;

	if (known->count == known->room)
	{
		known->room = Max(16, known->room * 2);
		known->binding = known->binding == NULL ? palloc(sizeof(Binding) * known->room) :
			repalloc(known->binding, sizeof(Binding) * known->room);
	}
	binding = &known->binding[known->count++];
	binding->role = DatumGetObjectId(values[BINDING_ROLE]);
	binding->setting = TextDatumGetCString(values[BINDING_SUBJECT_SETTING]);
	MemoryContextSwitchTo(before);
}

static int
compare_bindings(const void *a, const void *b)
{
	Oid			left = ((const Binding *) a)->role;
	Oid			right = ((const Binding *) b)->role;

	return left < right ? -1 : left > right;
}

/* Read all bindings.  The memory is the caller's until nothing can fail any more. */
static BindingCache *
load(void)
{
	MemoryContext context = AllocSetContextCreate(CurrentMemoryContext, "idem bindings", ALLOCSET_SMALL_SIZES);
	BindingCache *into = MemoryContextAllocZero(context, sizeof(BindingCache));
	Snapshot	snapshot;

	into->context = context;
	(void) catalog_table(TABLE_BINDING);
	into->generation = catalog_generation(TABLE_BINDING);

	snapshot = RegisterSnapshot(GetLatestSnapshot());
	rows_read(TABLE_BINDING, &binding_layout, snapshot, take_binding, into);
	UnregisterSnapshot(snapshot);
	if (into->count > 0)
		qsort(into->binding, into->count, sizeof(Binding), compare_bindings);

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

/* The setting that a role itself is bound to; NULL: none. */
static const char *
setting_of(const BindingCache *known, Oid role)
{
	Binding		wanted = {.role = role};
	const Binding *hit = known->count == 0 ? NULL :
		bsearch(&wanted, known->binding, known->count, sizeof(Binding), compare_bindings);

	return hit == NULL ? NULL : hit->setting;
}

/* Is this the subject that a setting holds?  One that is unset or empty holds none, and no subject is empty. */
static bool
setting_holds(const char *setting, Span subject)
{
	const char *value = GetConfigOption(setting, true, false);

	return value != NULL && strlen(value) == subject.length && memcmp(value, subject.data, subject.length) == 0;
}

/* What the entries of a function's access list that reach a role say of a subject. */
typedef enum WayIn
{
	WAY_NONE,					/* no entry reaches the role */
	WAY_CLOSED,					/* those that do are of roles bound to other subjects */
	WAY_OPEN
} WayIn;

static WayIn
best_way_in(const BindingCache *known, Oid function, Oid role, Span subject)
{
	HeapTuple	tuple = SearchSysCache1(PROCOID, ObjectIdGetDatum(function));
	Datum		datum;
	bool		is_default;
	Acl		   *acl;
	const AclItem *item;
	WayIn		best = WAY_NONE;

	if (!HeapTupleIsValid(tuple))
		elog(ERROR, "cache lookup failed for function %u", function);
	datum = SysCacheGetAttr(PROCOID, tuple, Anum_pg_proc_proacl, &is_default);
	acl = is_default ? acldefault(OBJECT_FUNCTION, ((Form_pg_proc) GETSTRUCT(tuple))->proowner) :
		DatumGetAclPCopy(datum);
	ReleaseSysCache(tuple);

	item = ACL_DAT(acl);
	for (int i = 0; best != WAY_OPEN && i < ACL_NUM(acl); i++)
	{
		const char *setting;

		if ((ACLITEM_GET_PRIVS(item[i]) & ACL_EXECUTE) == 0 ||
			(item[i].ai_grantee != ACL_ID_PUBLIC && !has_privs_of_role(role, item[i].ai_grantee)))
			continue;
		setting = setting_of(known, item[i].ai_grantee);
		best = setting == NULL || setting_holds(setting, subject) ? WAY_OPEN : WAY_CLOSED;
	}
	pfree(acl);
	return best;
}

static WayIn
way_in(const BindingCache *known, Oid function, Span subject)
{
	Oid			role = GetUserId();
	const char *own = setting_of(known, role);

	if (own != NULL)
		return setting_holds(own, subject) ? WAY_OPEN : WAY_CLOSED;
	return superuser_arg(role) ? WAY_OPEN : best_way_in(known, function, role, subject);
}

Span
binding_subject(FunctionCallInfo fcinfo, int n)
{
	Span		subject = args_label(fcinfo, n, "subject");
	const BindingCache *known = bindings();

	if (known->count > 0 && way_in(known, fcinfo->flinfo->fn_oid, subject) != WAY_OPEN)
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("role \"%s\" may not act for this subject", GetUserNameFromId(GetUserId(), false)),
				 errdetail("Its privilege is bound to the subject that a setting holds, and the call carries another one, or the setting is unset or empty."),
				 errhint("The table idem_binding says which setting. Whoever has authenticated the user must set it, for the transaction.")));
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

	return known->count == 0 || way_in(known, function, subject) == WAY_OPEN;
}

bool
binding_admits_writer(Oid trigger_function, Span subject)
{
	const BindingCache *known = bindings();

	return known->count == 0 || way_in(known, trigger_function, subject) != WAY_CLOSED;
}
