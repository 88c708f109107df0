/*
 * history.c: which lists are in force for a scope, and which were: the triggers that keep idem_policy_version.
 *
 * _idem_policy_history writes down what a change of idem_policy does to the lists in force.  _idem_version_merge checks
 * what statements write into idem_policy_version, as a restore and a subscription do, and merges it with what is there.
 * Both need no rights, whoever changes a table: they read and write rows directly, and only those of our own tables.
 *
 * Rows are looked for under a new snapshot each time, so that a change that another transaction has committed is seen
 * at every isolation level.
 *
 * Lock order: rows of idem_policy, then idem_policy_version, which a change of policies locks to the transaction's end
 * in SHARE ROW EXCLUSIVE mode.  So policies change one after the other, and the first row of a scope and a change of
 * "*" see each other.
 */
#include "compat.h"

#include "access/htup_details.h"
#include "access/table.h"
#include "catalog/pg_collation_d.h"
#include "commands/trigger.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

#include "canonical.h"
#include "catalog.h"
#include "policy.h"
#include "policy_rows.h"
#include "rows.h"

PG_FUNCTION_INFO_V1(idem_policy_history);
PG_FUNCTION_INFO_V1(idem_version_merge);

/* One row of idem_policy_version, that on record or one to be put there. */
typedef struct Version
{
	ItemPointerData tid;		/* of a row on record */
	Datum		values[VERSION_NATTS];
	bool		isnull[VERSION_NATTS];
} Version;

/* ----- rows ----- */

static bool
is_same_text(Datum a, Datum b)
{
	return DatumGetBool(DirectFunctionCall2Coll(texteq, C_COLLATION_OID, a, b));
}

static bool
is_star(Datum scope)
{
	return is_same_text(scope, CStringGetTextDatum("*"));
}

static int32
number_of(const Version *version)
{
	return DatumGetInt32(version->values[VERSION_VERSION]);
}

static bool
is_in_force(const Version *version)
{
	return version->isnull[VERSION_REPLACED_AT];
}

static TimestampTz
time_of(const Version *version, int column)
{
	return DatumGetTimestampTz(version->values[column]);
}

static void
set_time(Version *version, int column, TimestampTz time)
{
	version->values[column] = TimestampTzGetDatum(time);
	version->isnull[column] = false;
}

/* What a version's lists have done is kept for the longest result_ttl of all while they were in force. */
static void
prolong(Version *version, Datum result_ttl)
{
	version->values[VERSION_RESULT_TTL] =
		DirectFunctionCall2(interval_larger, result_ttl, version->values[VERSION_RESULT_TTL]);
}

static ArrayType *
list_of(const Datum *values, const bool *isnull, int column)
{
	return isnull[column] ? NULL : DatumGetArrayTypeP(values[column]);
}

static bool
collect(TupleTableSlot *row, void *into)
{
	List	  **versions = into;
	Version    *version = palloc(sizeof(Version));

	heap_deform_tuple(ExecCopySlotHeapTuple(row), row->tts_tupleDescriptor, version->values, version->isnull);
	version->tid = row->tts_tid;
	*versions = lappend(*versions, version);
	return true;
}

/* All versions on record for a scope. */
static List *
versions_of(Relation history, Datum scope)
{
	RowKey		key = {VERSION_SCOPE, scope};
	List	   *versions = NIL;

	rows_find(history, &key, 1, collect, &versions);
	return versions;
}

/* The scope's row for a version; NULL where it has none. */
static Version *
on_record(Relation history, Datum scope, int32 number)
{
	RowKey		keys[] = {{VERSION_SCOPE, scope}, {VERSION_VERSION, Int32GetDatum(number)}};
	List	   *versions = NIL;

	rows_find(history, keys, lengthof(keys), collect, &versions);
	return versions == NIL ? NULL : linitial(versions);
}

static void
update(Relation history, Version *version)
{
	rows_update(history, &version->tid, version->values, version->isnull);
}

/* ----- what may stand there ----- */

/* The lists as all rows have them. */
static void
normalize(Version *version)
{
	for (int column = VERSION_MATERIAL; column <= VERSION_IMMATERIAL; column++)
	{
		if (!version->isnull[column])
			version->values[column] =
				PointerGetDatum(material_sorted(DatumGetArrayTypeP(version->values[column])));
	}
}

static void
check_number(const Version *version)
{
	int32		number = material_version(list_of(version->values, version->isnull, VERSION_MATERIAL),
										  list_of(version->values, version->isnull, VERSION_IMMATERIAL));

	if (version->isnull[VERSION_VERSION] || number != number_of(version))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("version does not belong to its lists"),
				 errhint("Rows of idem_policy_version are written by the triggers of idem_policy. Change that table.")));
}

/* Lists to be put on record, and whether others have their version. */
typedef struct Comparison
{
	const Version *version;
	bool		differ;
} Comparison;

static bool
lists_differ(TupleTableSlot *row, const Version *version, int column)
{
	if (row->tts_isnull[column] || version->isnull[column])
		return row->tts_isnull[column] != version->isnull[column];
	return !DatumGetBool(OidFunctionCall2Coll(F_ARRAY_EQ, C_COLLATION_OID,
											  row->tts_values[column], version->values[column]));
}

static bool
compare_lists(TupleTableSlot *row, void *into)
{
	Comparison *comparison = into;

	comparison->differ = lists_differ(row, comparison->version, VERSION_MATERIAL) ||
		lists_differ(row, comparison->version, VERSION_IMMATERIAL);
	/* rows of one version have the same lists, so any one of them tells */
	return false;
}

/* A version stands for one pair of lists, whatever the scope: 22023 where others have it already. */
static void
check_lists(Relation history, const Version *version)
{
	RowKey		key = {VERSION_VERSION, version->values[VERSION_VERSION]};
	Comparison	comparison = {version, false};

	rows_find(history, &key, 1, compare_lists, &comparison);
	if (comparison.differ)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("other lists on record have the same version as these"),
				 errhint("Fingerprints could not tell the two apart. Change the lists a little, for instance by a "
						 "pointer to a member that never occurs.")));
}

/* Let a row on record hold what another of the same scope and version says too. */
static void
merge(Version *known, const Version *other)
{
	set_time(known, VERSION_SINCE, Min(time_of(known, VERSION_SINCE), time_of(other, VERSION_SINCE)));
	if (is_in_force(known) || is_in_force(other))
		known->isnull[VERSION_REPLACED_AT] = true;
	else
		set_time(known, VERSION_REPLACED_AT,
				 Max(time_of(known, VERSION_REPLACED_AT), time_of(other, VERSION_REPLACED_AT)));
	prolong(known, other->values[VERSION_RESULT_TTL]);
}

/* ----- a change of policies ----- */

/* A policy's row as a trigger sees it. */
typedef struct PolicyRow
{
	Datum		values[POLICY_NATTS];
	bool		isnull[POLICY_NATTS];
} PolicyRow;

/* Put a version on record, or into what is there already. */
static void
record_version(Relation history, Version *version)
{
	Version    *known = on_record(history, version->values[VERSION_SCOPE], number_of(version));

	if (known == NULL)
		rows_insert(history, version->values, version->isnull);
	else
	{
		merge(known, version);
		update(history, known);
	}
}

/* The version of a policy's lists, in force from now on. */
static void
version_of_policy(const PolicyRow *policy, TimestampTz now, Version *into)
{
	into->values[VERSION_SCOPE] = policy->values[POLICY_SCOPE];
	into->values[VERSION_VERSION] =
		Int32GetDatum(material_version(list_of(policy->values, policy->isnull, POLICY_MATERIAL),
									   list_of(policy->values, policy->isnull, POLICY_IMMATERIAL)));
	into->values[VERSION_MATERIAL] = policy->values[POLICY_MATERIAL];
	into->values[VERSION_IMMATERIAL] = policy->values[POLICY_IMMATERIAL];
	into->values[VERSION_RESULT_TTL] = policy->values[POLICY_RESULT_TTL];
	memset(into->isnull, false, sizeof(into->isnull));
	into->isnull[VERSION_MATERIAL] = policy->isnull[POLICY_MATERIAL];
	into->isnull[VERSION_IMMATERIAL] = policy->isnull[POLICY_IMMATERIAL];
	into->isnull[VERSION_REPLACED_AT] = true;
	set_time(into, VERSION_SINCE, now);
	normalize(into);
}

/* Without the row "*" everything is material for scopes that have none: these lists nothing ever replaces. */
static bool
is_last_resort(const Version *version)
{
	return number_of(version) == 0 && is_star(version->values[VERSION_SCOPE]);
}

/* A policy's row is gone: no lists of its scope are in force. */
static void
end_history(Relation history, const PolicyRow *policy, TimestampTz now)
{
	ListCell   *cell;

	foreach(cell, versions_of(history, policy->values[POLICY_SCOPE]))
	{
		Version    *version = lfirst(cell);

		if (is_last_resort(version))
			version->isnull[VERSION_REPLACED_AT] = true;
		else if (is_in_force(version))
			set_time(version, VERSION_REPLACED_AT, now);
		else
			continue;
		prolong(version, policy->values[POLICY_RESULT_TTL]);
		update(history, version);
	}
}

/* When the last of the versions was replaced; DT_NOBEGIN where none was. */
static TimestampTz
last_end(const List *versions)
{
	TimestampTz last = DT_NOBEGIN;
	ListCell   *cell;

	foreach(cell, versions)
	{
		const Version *version = lfirst(cell);

		if (!is_in_force(version))
			last = Max(last, time_of(version, VERSION_REPLACED_AT));
	}
	return last;
}

/* Until now everything was material. */
static void
record_everything(Relation history, Datum scope, TimestampTz now)
{
	Interval	result_ttl = {.time = policy_defaults.result_ttl};
	Version		version = {.isnull = {[VERSION_MATERIAL] = true, [VERSION_IMMATERIAL] = true}};

	version.values[VERSION_SCOPE] = scope;
	version.values[VERSION_VERSION] = Int32GetDatum(0);
	version.values[VERSION_RESULT_TTL] = IntervalPGetDatum(&result_ttl);
	set_time(&version, VERSION_SINCE, now);
	set_time(&version, VERSION_REPLACED_AT, now);
	record_version(history, &version);
}

/* Until now a scope followed "*", since its own row went if it ever had one: what was in force there was so here. */
static void
inherit(Relation history, Datum scope, TimestampTz now)
{
	TimestampTz after = last_end(versions_of(history, scope));
	List	   *versions = is_star(scope) ? NIL : versions_of(history, CStringGetTextDatum("*"));
	bool		followed = false;
	ListCell   *cell;

	foreach(cell, versions)
	{
		Version    *version = lfirst(cell);

		if (is_in_force(version))
		{
			followed = true;
			set_time(version, VERSION_REPLACED_AT, now);
		}
		else if (time_of(version, VERSION_REPLACED_AT) <= after)
			continue;
		version->values[VERSION_SCOPE] = scope;
		record_version(history, version);
	}
	if (!followed)
		record_everything(history, scope, now);
}

/* These are the scope's lists in force: they, and no others. */
static void
put_in_force(Relation history, Version *own, TimestampTz now)
{
	Version    *known = NULL;
	ListCell   *cell;

	foreach(cell, versions_of(history, own->values[VERSION_SCOPE]))
	{
		Version    *version = lfirst(cell);

		if (number_of(version) == number_of(own))
			known = version;
		else if (is_in_force(version))
		{
			set_time(version, VERSION_REPLACED_AT, now);
			update(history, version);
		}
	}
	if (known == NULL)
		rows_insert(history, own->values, own->isnull);
	else if (!is_in_force(known) ||
			 DatumGetBool(DirectFunctionCall2(interval_lt, known->values[VERSION_RESULT_TTL],
											  own->values[VERSION_RESULT_TTL])))
	{
		known->isnull[VERSION_REPLACED_AT] = true;
		prolong(known, own->values[VERSION_RESULT_TTL]);
		update(history, known);
	}
}

/* A policy's row came, or its lists may have changed. */
static void
begin_history(Relation history, const PolicyRow *policy, bool is_new, TimestampTz now)
{
	Version		own;
	Version    *known;

	version_of_policy(policy, now, &own);
	check_lists(history, &own);
	known = is_new ? on_record(history, own.values[VERSION_SCOPE], number_of(&own)) : NULL;
	if (is_new && (known == NULL || !is_in_force(known)))
		inherit(history, own.values[VERSION_SCOPE], now);
	put_in_force(history, &own, now);
}

static void
follow_row(const TriggerData *trigger, Relation history, TimestampTz now)
{
	TupleDesc	columns = RelationGetDescr(trigger->tg_relation);
	bool		is_update = TRIGGER_FIRED_BY_UPDATE(trigger->tg_event);
	bool		is_delete = TRIGGER_FIRED_BY_DELETE(trigger->tg_event);
	PolicyRow	before;
	PolicyRow	after;

	heap_deform_tuple(trigger->tg_trigtuple, columns, before.values, before.isnull);
	heap_deform_tuple(is_update ? trigger->tg_newtuple : trigger->tg_trigtuple, columns, after.values, after.isnull);
	if (is_update && is_same_text(before.values[POLICY_SCOPE], after.values[POLICY_SCOPE]))
	{
		begin_history(history, &after, false, now);
		return;
	}
	if (is_update || is_delete)
		end_history(history, &before, now);
	if (!is_delete)
		begin_history(history, &after, true, now);
}

static bool
collect_replaceable(TupleTableSlot *row, void *into)
{
	Version    *version;

	if (!row->tts_isnull[VERSION_REPLACED_AT])
		return true;
	(void) collect(row, into);
	version = llast(*(List **) into);
	if (is_last_resort(version))
		*(List **) into = list_delete_last(*(List **) into);
	return true;
}

/* All policies are gone at once. */
static void
follow_truncation(Relation history, TimestampTz now)
{
	List	   *versions = NIL;
	ListCell   *cell;

	rows_find(history, NULL, 0, collect_replaceable, &versions);
	foreach(cell, versions)
	{
		Version    *version = lfirst(cell);

		set_time(version, VERSION_REPLACED_AT, now);
		update(history, version);
	}
}

/* ----- the triggers ----- */

static void
refuse_call(const char *message)
{
	ereport(ERROR,
			(errcode(ERRCODE_E_R_I_E_TRIGGER_PROTOCOL_VIOLATED),
			 errmsg("%s", message)));
}

/*
 * _idem_policy_history() RETURNS trigger
 *
 * AFTER each row, and after TRUNCATE, of idem_policy: keep on record which lists are and were in force for a scope.
 * Raises 22023 where other lists have the version of the new ones.
 */
Datum
idem_policy_history(PG_FUNCTION_ARGS)
{
	TriggerData *trigger = (TriggerData *) fcinfo->context;
	Relation	history;
	TimestampTz now;

	if (!CALLED_AS_TRIGGER(fcinfo))
		refuse_call("_idem_policy_history can only be called as a trigger");
	if (RelationGetRelid(trigger->tg_relation) != catalog_table(TABLE_POLICY) ||
		!TRIGGER_FIRED_AFTER(trigger->tg_event) ||
		TRIGGER_FIRED_FOR_ROW(trigger->tg_event) == TRIGGER_FIRED_BY_TRUNCATE(trigger->tg_event))
		refuse_call("_idem_policy_history serves idem_policy only");
	(void) catalog_verify(trigger->tg_relation, TABLE_POLICY, &policy_layout, true);

	history = rows_open(TABLE_POLICY_VERSION, &version_layout, ShareRowExclusiveLock);
	now = GetCurrentTimestamp();
	if (TRIGGER_FIRED_BY_TRUNCATE(trigger->tg_event))
		follow_truncation(history, now);
	else
		follow_row(trigger, history, now);
	table_close(history, NoLock);
	return PointerGetDatum(NULL);
}

/* A policy's row, and whether its lists are others than a version's. */
static bool
compare_with_policy(TupleTableSlot *row, void *into)
{
	Comparison *comparison = into;

	comparison->differ = number_of(comparison->version) !=
		material_version(list_of(row->tts_values, row->tts_isnull, POLICY_MATERIAL),
						 list_of(row->tts_values, row->tts_isnull, POLICY_IMMATERIAL));
	return false;
}

/*
 * Lists in force are those of the policy's row.  Others that arrive as if they were, from a dump or a publisher,
 * have been replaced by it.
 */
static void
yield_to_policy(Version *own)
{
	Relation	policy = rows_open(TABLE_POLICY, &policy_layout, AccessShareLock);
	RowKey		key = {POLICY_SCOPE, own->values[VERSION_SCOPE]};
	Comparison	comparison = {own, false};

	rows_find(policy, &key, 1, compare_with_policy, &comparison);
	table_close(policy, NoLock);
	if (comparison.differ)
		set_time(own, VERSION_REPLACED_AT, GetCurrentTimestamp());
}

/* The row that is there already, locked; NULL where there is none.  Who else changes it is waited for. */
static Version *
lock_on_record(Relation history, const Version *own)
{
	Version    *known;
	TM_Result	result;

	do
	{
		TupleTableSlot *slot = table_slot_create(history, NULL);
		TM_FailureData failure;

		known = on_record(history, own->values[VERSION_SCOPE], number_of(own));
		result = known == NULL ? TM_Ok :
			table_tuple_lock(history, &known->tid, SnapshotAny, slot, GetCurrentCommandId(true),
							 LockTupleExclusive, LockWaitBlock, 0, &failure);
		ExecDropSingleTupleTableSlot(slot);
	} while (result != TM_Ok);
	return known;
}

/* Is a column null that must not be?  The executor will say which. */
static bool
is_incomplete(const Version *version)
{
	return version->isnull[VERSION_SCOPE] || version->isnull[VERSION_SINCE] || version->isnull[VERSION_RESULT_TTL];
}

/* Merge a row that a statement is about to insert with one that is there already; false where none is. */
static bool
merge_inserted(Relation history, Version *own)
{
	Version    *known;

	if (is_incomplete(own))
		return false;
	if (is_in_force(own))
		yield_to_policy(own);
	known = lock_on_record(history, own);
	if (known == NULL)
		return false;
	merge(known, own);
	update(history, known);
	return true;
}

/*
 * _idem_version_merge() RETURNS trigger
 *
 * BEFORE each row that a statement inserts into idem_policy_version, or updates: check it, and merge a new one with
 * what is there already.  Raises 22023 where its version is not that of its lists, or is that of others.
 */
Datum
idem_version_merge(PG_FUNCTION_ARGS)
{
	TriggerData *trigger = (TriggerData *) fcinfo->context;
	Relation	history;
	bool		is_update;
	Version		own;

	if (!CALLED_AS_TRIGGER(fcinfo))
		refuse_call("_idem_version_merge can only be called as a trigger");
	history = trigger->tg_relation;
	if (RelationGetRelid(history) != catalog_table(TABLE_POLICY_VERSION) ||
		!TRIGGER_FIRED_BEFORE(trigger->tg_event) || !TRIGGER_FIRED_FOR_ROW(trigger->tg_event) ||
		TRIGGER_FIRED_BY_DELETE(trigger->tg_event))
		refuse_call("_idem_version_merge serves idem_policy_version only");
	(void) catalog_verify(history, TABLE_POLICY_VERSION, &version_layout, true);

	is_update = TRIGGER_FIRED_BY_UPDATE(trigger->tg_event);
	heap_deform_tuple(is_update ? trigger->tg_newtuple : trigger->tg_trigtuple, RelationGetDescr(history),
					  own.values, own.isnull);
	check_number(&own);
	normalize(&own);
	check_lists(history, &own);
	if (!is_update && merge_inserted(history, &own))
		return PointerGetDatum(NULL);
	return PointerGetDatum(heap_form_tuple(RelationGetDescr(history), own.values, own.isnull));
}
