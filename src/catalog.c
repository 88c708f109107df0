/*
 * catalog.c: the extension's own tables and types, found as its members, never by name alone.
 *
 * A table of the same name in another schema, or in pg_temp, is never taken for ours: only what pg_depend
 * calls a member of the extension counts.  What was found is kept for the session.  The callback on relation
 * invalidations does no catalog access: it counts, and marks the findings stale, so that the next caller looks
 * again.  The tables of an extension that is dropped, or whose creation rolls back, are invalidated one by one,
 * and their types go with them.
 *
 * Findings that were invalidated while they were being read are used once and read again by the next caller:
 * nothing loops, whatever the rate of invalidations.
 */
#include "compat.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "catalog/dependency.h"
#include "catalog/indexing.h"
#include "catalog/pg_class.h"
#include "catalog/pg_depend.h"
#include "catalog/pg_enum.h"
#include "catalog/pg_extension.h"
#include "catalog/pg_type.h"
#include "commands/extension.h"
#include "utils/fmgroids.h"
#include "utils/inval.h"
#include "utils/lsyscache.h"
#include "utils/syscache.h"

#include "catalog.h"
#include "state.h"

/* What is looked for, and where it was found; InvalidOid: not found. */
typedef struct Members
{
	Oid			table[TABLE_COUNT];
	Oid			claim_type;
	Oid			outcome_type;
	Oid			outcome[OUTCOME_COUNT];
	Oid			ack[ACK_COUNT];
} Members;

static const char *const table_name[TABLE_COUNT] = {
	[TABLE_ALERT] = "idem_alert",
	[TABLE_BINDING] = "idem_binding",
	[TABLE_FAST] = "idem_fast",
	[TABLE_POLICY] = "idem_policy",
	[TABLE_POLICY_VERSION] = "idem_policy_version",
	[TABLE_RECORD] = "idem_record",
	[TABLE_SECRET] = "idem_secret",
};

static const char *const outcome_label[OUTCOME_COUNT] = {
	[OUTCOME_ACQUIRED] = "ACQUIRED",
	[OUTCOME_IN_FLIGHT] = "IN_FLIGHT",
	[OUTCOME_DONE] = "DONE",
	[OUTCOME_FAILED] = "FAILED",
	[OUTCOME_RECONCILE] = "RECONCILE",
	[OUTCOME_PARAM_MISMATCH] = "PARAM_MISMATCH",
	[OUTCOME_SUBJECT_MISMATCH] = "SUBJECT_MISMATCH",
	[OUTCOME_SCOPE_MISMATCH] = "SCOPE_MISMATCH",
	[OUTCOME_EXPIRED] = "EXPIRED",
	[OUTCOME_INVALID] = "INVALID",
	[OUTCOME_REPEAT] = "REPEAT",
	[OUTCOME_NONE] = "NONE",
	[OUTCOME_UNKNOWN] = "UNKNOWN",
	[OUTCOME_RETRYABLE] = "RETRYABLE",
};

static const char *const ack_label[ACK_COUNT] = {
	[ACK_OK] = "OK",
	[ACK_NOT_OWNER] = "NOT_OWNER",
	[ACK_ALREADY] = "ALREADY",
	[ACK_NONE] = "NONE",
};

static Members members;
static uint64 generation[TABLE_COUNT];
static uint64 invalidations = 1;	/* that concern members, or may */
static uint64 read_at = 0;		/* the value of invalidations when members was read */
static bool reading = false;	/* members is being read, or its reading failed */

static Oid	found(const Oid *member);
static void look_again(void);
static void find_members(Oid extension, Members *into);
static void take_class(Oid relation, Members *into);
static void take_type(Oid type, Members *into);
static void take_labels(Oid type, const char *const *label, int count, Oid *into);
static void watch(void);
static void on_invalidation(Datum arg, Oid relation);

Oid
catalog_table(IdemTable table)
{
	return found(&members.table[table]);
}

Oid
catalog_claim_type(void)
{
	return found(&members.claim_type);
}

Oid
catalog_outcome_type(void)
{
	return found(&members.outcome_type);
}

Oid
catalog_outcome(int outcome)
{
	Assert(outcome >= 0 && outcome < OUTCOME_COUNT);
	return found(&members.outcome[outcome]);
}

Oid
catalog_ack(int ack)
{
	Assert(ack >= 0 && ack < ACK_COUNT);
	return found(&members.ack[ack]);
}

uint64
catalog_generation(IdemTable table)
{
	watch();
	return generation[table];
}

bool
layout_holds(const Layout *layout, TupleDesc columns)
{
	if (columns->natts != layout->natts)
		return false;
	for (int i = 0; i < layout->natts; i++)
	{
		Form_pg_attribute column = TupleDescAttr(columns, i);

		if (column->attisdropped || column->atttypid != layout->types[i] ||
			column->attnotnull == ((layout->nullable & NULLABLE(i)) != 0))
			return false;
	}
	return true;
}

/* One of the members, looked for again where something was invalidated; raises where there is none. */
static Oid
found(const Oid *member)
{
	if (read_at != invalidations || !OidIsValid(*member))
		look_again();
	if (!OidIsValid(*member))
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("extension idem is not installed in this database"),
				 errhint("Run CREATE EXTENSION idem CASCADE, or ALTER EXTENSION idem UPDATE where an older version is installed.")));
	return *member;
}

/*
 * Read members anew.  The count of invalidations is noted before, so that one that arrives meanwhile is not
 * lost: until members is known, any relation may be ours.
 */
static void
look_again(void)
{
	Members		now = {0};
	uint64		before;
	Oid			extension;

	watch();
	before = invalidations;
	reading = true;
	extension = get_extension_oid("idem", true);
	if (OidIsValid(extension))
		find_members(extension, &now);
	reading = false;

	for (int table = 0; table < TABLE_COUNT; table++)
	{
		if (now.table[table] != members.table[table])
			generation[table]++;
	}
	members = now;
	read_at = before;
}

/* Go through everything that belongs to the extension. */
static void
find_members(Oid extension, Members *into)
{
	Relation	depend = table_open(DependRelationId, AccessShareLock);
	ScanKeyData key[2];
	SysScanDesc scan;
	HeapTuple	tuple;

	ScanKeyInit(&key[0], Anum_pg_depend_refclassid, BTEqualStrategyNumber, F_OIDEQ,
				ObjectIdGetDatum(ExtensionRelationId));
	ScanKeyInit(&key[1], Anum_pg_depend_refobjid, BTEqualStrategyNumber, F_OIDEQ,
				ObjectIdGetDatum(extension));
	scan = systable_beginscan(depend, DependReferenceIndexId, true, NULL, lengthof(key), key);
	while (HeapTupleIsValid(tuple = systable_getnext(scan)))
	{
		Form_pg_depend row = (Form_pg_depend) GETSTRUCT(tuple);

		if (row->deptype != DEPENDENCY_EXTENSION)
			continue;
		if (row->classid == RelationRelationId)
			take_class(row->objid, into);
		else if (row->classid == TypeRelationId)
			take_type(row->objid, into);
	}
	systable_endscan(scan);
	table_close(depend, AccessShareLock);
}

static void
take_class(Oid relation, Members *into)
{
	char	   *name = get_rel_name(relation);

	for (int table = 0; name != NULL && table < TABLE_COUNT; table++)
	{
		if (strcmp(name, table_name[table]) == 0)
			into->table[table] = relation;
	}
}

static void
take_type(Oid type, Members *into)
{
	HeapTuple	tuple = SearchSysCache1(TYPEOID, ObjectIdGetDatum(type));
	const char *name;

	if (!HeapTupleIsValid(tuple))
		return;
	name = NameStr(((Form_pg_type) GETSTRUCT(tuple))->typname);
	if (strcmp(name, "idem_claim") == 0)
		into->claim_type = type;
	else if (strcmp(name, "idem_outcome") == 0)
	{
		into->outcome_type = type;
		take_labels(type, outcome_label, OUTCOME_COUNT, into->outcome);
	}
	else if (strcmp(name, "idem_ack") == 0)
		take_labels(type, ack_label, ACK_COUNT, into->ack);
	ReleaseSysCache(tuple);
}

static void
take_labels(Oid type, const char *const *label, int count, Oid *into)
{
	for (int i = 0; i < count; i++)
		into[i] = GetSysCacheOid2(ENUMTYPOIDNAME, Anum_pg_enum_oid,
								  ObjectIdGetDatum(type), CStringGetDatum(label[i]));
}

/* Ask for the invalidations, once in a session. */
static void
watch(void)
{
	static bool watching = false;

	if (watching)
		return;
	CacheRegisterRelcacheCallback(on_invalidation, (Datum) 0);
	watching = true;
}

/* A relation was invalidated, or all of them (InvalidOid). */
static void
on_invalidation(Datum arg, Oid relation)
{
	/* look_again counts for the tables that turn out to be others than before */
	for (int table = 0; table < TABLE_COUNT; table++)
	{
		if (!OidIsValid(relation) || relation == members.table[table])
		{
			generation[table]++;
			invalidations++;
		}
	}
	if (reading)
		invalidations++;
}
