/*
 * maintain.c: regular care: what lapses goes, what is stuck is told of, old alerts are dropped.
 *
 * Invariants
 *	- Nothing runs but this: rows are found by walking an index, and no operator, function or trigger is looked up.
 *	- Each walk has the snapshot that a statement would have.  A row goes only if it is still the version that the
 *	  snapshot showed once it is locked; nobody is waited for.
 *	- Rows are read by the columns that matter here: one that was tampered with stops nothing.
 *	- Memory is that of one row and of some scopes' names, whatever the number of rows.
 *
 * Lock order: idem_record before idem_peer before idem_alert.
 */
#include "compat.h"

#include "funcapi.h"
#include "miscadmin.h"
#include "utils/fmgroids.h"
#include "utils/hsearch.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

#include "alert.h"
#include "args.h"
#include "claim.h"
#include "guc.h"
#include "maintain.h"
#include "peer.h"
#include "record.h"
#include "stat.h"
#include "state.h"
#include "store.h"

PG_FUNCTION_INFO_V1(idem_purge);
PG_FUNCTION_INFO_V1(idem_maintain);

/* bounded, so that one call never runs for hours: the next one goes on */
#define PURGED_MAX 100000
#define STUCK_MAX 10000
#define ALERTS_PURGED_MAX 10000

#define SCOPES_MAX 1000			/* scopes counted one by one; what goes of others is counted together */

/* ----- rows in the order of a time ----- */

typedef struct Walk
{
	Store	   *store;
	Relation	index;
	Snapshot	snapshot;
	IndexScanDesc scan;
	TupleTableSlot *row;		/* where the walk stands */
	MemoryContext of_row;		/* emptied before the next row is fetched */
} Walk;

/* Begin at the first row whose column (of type timestamptz) is in a relation, by a btree's strategy, to a time. */
static void
walk_begin(Walk *walk, Store *store, int column, StrategyNumber strategy, RegProcedure is, TimestampTz time)
{
	ScanKeyData key;

	/* what the command that is running has written counts as well */
	CommandCounterIncrement();
	walk->store = store;
	walk->index = store_open_index(store, column);
	walk->snapshot = RegisterSnapshot(GetTransactionSnapshot());
	walk->row = table_slot_create(store->relation, NULL);
	walk->of_row = AllocSetContextCreate(CurrentMemoryContext, "idem row", ALLOCSET_DEFAULT_SIZES);
	walk->scan = begin_index_scan(store->relation, walk->index, walk->snapshot, 1);
	ScanKeyInit(&key, 1, strategy, is, TimestampTzGetDatum(time));
	index_rescan(walk->scan, &key, 1, NULL, 0);
}

static bool
walk_next(Walk *walk)
{
	CHECK_FOR_INTERRUPTS();
	MemoryContextReset(walk->of_row);
	return index_getnext_slot(walk->scan, ForwardScanDirection, walk->row);
}

/* The transaction sees what was done. */
static void
walk_end(Walk *walk)
{
	index_endscan(walk->scan);
	MemoryContextDelete(walk->of_row);
	ExecDropSingleTupleTableSlot(walk->row);
	UnregisterSnapshot(walk->snapshot);
	index_close(walk->index, NoLock);
	CommandCounterIncrement();
}

/* ----- how many went of each scope ----- */

typedef struct ScopeCount
{
	char		scope[LABEL_MAX_LENGTH + 1];
	int64		count;
} ScopeCount;

static HTAB *
make_counts(void)
{
	HASHCTL		control = {0};

	control.keysize = LABEL_MAX_LENGTH + 1;
	control.entrysize = sizeof(ScopeCount);
	control.hcxt = CurrentMemoryContext;
	return hash_create("idem purged", 16, &control, HASH_ELEM | HASH_STRINGS | HASH_CONTEXT);
}

/* They are kept until the transaction ends. */
static void
hand_on(HTAB *counts)
{
	HASH_SEQ_STATUS scan;
	ScopeCount *entry;

	hash_seq_init(&scan, counts);
	while ((entry = hash_seq_search(&scan)) != NULL)
		stat_extra(STAT_PURGED, (Span) {entry->scope, strlen(entry->scope)}, entry->count);
	hash_destroy(counts);
}

static void
count_purged(HTAB *counts, Span scope)
{
	char		name[LABEL_MAX_LENGTH + 1] = {0};
	ScopeCount *entry;
	bool		known;

	if (scope.data != NULL)
		memcpy(name, scope.data, Min(scope.length, LABEL_MAX_LENGTH));
	if (hash_get_num_entries(counts) >= SCOPES_MAX && hash_search(counts, name, HASH_FIND, NULL) == NULL)
		strlcpy(name, STAT_OTHER_SCOPES, sizeof(name));
	entry = hash_search(counts, name, HASH_ENTER, &known);
	entry->count = known ? entry->count + 1 : 1;
}

/* ----- what has lapsed ----- */

/* A time of a row; DT_NOEND where it is null. */
static TimestampTz
time_of(TupleTableSlot *row, int column)
{
	bool		isnull;
	Datum		value = slot_getattr(row, column + 1, &isnull);

	return isnull ? DT_NOEND : DatumGetTimestampTz(value);
}

static State
state_of(TupleTableSlot *row)
{
	bool		isnull;
	Datum		value = slot_getattr(row, RECORD_STATE + 1, &isnull);

	return isnull ? STATE_NONE : (State) DatumGetChar(value);
}

/* By the clock as it is now. */
static bool
may_go(TupleTableSlot *row)
{
	TimestampTz now = GetCurrentTimestamp();
	unsigned	facts = now >= time_of(row, RECORD_RETAINED_UNTIL) ? FACT_LAPSED : 0;

	return state_decide(state_of(row), EVENT_PURGE, facts).action == ACTION_DELETE;
}

/* Once locked, the row is the version that was judged.  What it was in scopes with a guard goes with it. */
static bool
purge_row(Store *record, Store *peers, TupleTableSlot *row)
{
	bool		isnull;

	if (!may_go(row) || !store_lock_unless_busy(record, &row->tts_tid) || !store_remove(record, &row->tts_tid))
		return false;
	peer_forget(peers, DatumGetUUIDP(slot_getattr(row, RECORD_KEY + 1, &isnull)));
	return true;
}

static int64
purge(Store *record, Store *peers, int max_rows)
{
	HTAB	   *counts = make_counts();
	int64		purged = 0;
	Walk		walk;

	walk_begin(&walk, record, RECORD_RETAINED_UNTIL, BTLessEqualStrategyNumber, F_TIMESTAMPTZ_LE,
			   GetCurrentTimestamp());
	while (purged < max_rows && walk_next(&walk))
	{
		MemoryContext outer = MemoryContextSwitchTo(walk.of_row);

		if (purge_row(record, peers, walk.row))
		{
			count_purged(counts, record_span(walk.row, RECORD_SCOPE));
			purged++;
		}
		MemoryContextSwitchTo(outer);
	}
	walk_end(&walk);
	hand_on(counts);
	return purged;
}

/* ----- what is stuck ----- */

/* The view idem_stuck, for one row in flight, and no alert since its lease ended. */
static bool
is_newly_stuck(Store *alerts, TupleTableSlot *row)
{
	TimestampTz lease_until = time_of(row, RECORD_LEASE_UNTIL);
	bool		isnull;

	return lease_until <= GetCurrentTimestamp() &&
		DatumGetChar(slot_getattr(row, RECORD_DOWNSTREAM + 1, &isnull)) != DOWNSTREAM_IDEMPOTENT &&
		!alert_told_since(alerts, ALERT_STUCK, DatumGetUUIDP(slot_getattr(row, RECORD_KEY + 1, &isnull)), lease_until);
}

static void
tell_of(TupleTableSlot *row)
{
	AlertDetail detail = {.call = "idem_maintain()"};
	bool		isnull;

	detail.holder = record_span(row, RECORD_HOLDER);
	detail.attempt = DatumGetInt32(slot_getattr(row, RECORD_ATTEMPT + 1, &isnull));
	alert_raise(ALERT_STUCK, DatumGetUUIDP(slot_getattr(row, RECORD_KEY + 1, &isnull)), record_span(row, RECORD_SCOPE),
				record_span(row, RECORD_SUBJECT), &detail);
}

static int64
tell_of_stuck(Store *record, Store *alerts)
{
	int64		told = 0;
	Walk		walk;

	walk_begin(&walk, record, RECORD_RETAINED_UNTIL, BTEqualStrategyNumber, F_TIMESTAMPTZ_EQ, DT_NOEND);
	while (told < STUCK_MAX && walk_next(&walk))
	{
		MemoryContext outer = MemoryContextSwitchTo(walk.of_row);

		if (is_newly_stuck(alerts, walk.row))
		{
			tell_of(walk.row);
			told++;
		}
		MemoryContextSwitchTo(outer);
	}
	walk_end(&walk);
	return told;
}

/* ----- old alerts ----- */

static int64
purge_alerts(Store *alerts)
{
	TimestampTz before = GetCurrentTimestamp() - (int64) guc_alert_retention * USECS_PER_SEC;
	int64		purged = 0;
	Walk		walk;

	walk_begin(&walk, alerts, ALERT_LAST_AT, BTLessStrategyNumber, F_TIMESTAMPTZ_LT, before);
	while (purged < ALERTS_PURGED_MAX && walk_next(&walk))
	{
		MemoryContext outer = MemoryContextSwitchTo(walk.of_row);

		if (store_lock_unless_busy(alerts, &walk.row->tts_tid) && store_remove(alerts, &walk.row->tts_tid))
			purged++;
		MemoryContextSwitchTo(outer);
	}
	walk_end(&walk);
	return purged;
}

/* ----- the calls ----- */

static void
require_writable(const char *function)
{
	PreventCommandIfReadOnly(function);
	PreventCommandDuringRecovery(function);
}

/* Open a table whose rows are to be deleted. */
static void
open_to_delete(Store *store, IdemTable table)
{
	store_open(store, table, RowExclusiveLock, false);
	/* as DELETE would: subscribers must be able to follow */
	CheckCmdReplicaIdentity(store->relation, CMD_DELETE);
}

int64
maintain_purge(int max_rows)
{
	Store		record;
	Store		peers;
	int64		purged;

	require_writable("idem_purge()");
	open_to_delete(&record, TABLE_RECORD);
	open_to_delete(&peers, TABLE_PEER);
	purged = purge(&record, &peers, max_rows);
	store_close(&peers);
	store_close(&record);
	return purged;
}

void
maintain_all(Care *care)
{
	Store		record;
	Store		peers;
	Store		alerts;

	require_writable("idem_maintain()");
	open_to_delete(&record, TABLE_RECORD);
	open_to_delete(&peers, TABLE_PEER);
	open_to_delete(&alerts, TABLE_ALERT);
	care->purged = purge(&record, &peers, PURGED_MAX);
	care->newly_stuck = tell_of_stuck(&record, &alerts);
	care->alerts_purged = purge_alerts(&alerts);
	store_close(&alerts);
	store_close(&peers);
	store_close(&record);
}

/*
 * idem_purge(max_rows int DEFAULT 10000) RETURNS bigint
 */
Datum
idem_purge(PG_FUNCTION_ARGS)
{
	if (PG_ARGISNULL(0))
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("max_rows must not be null"),
				 errhint("Give the number of rows to delete at most.")));
	if (PG_GETARG_INT32(0) <= 0)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("max_rows must be positive"),
				 errhint("Give the number of rows to delete at most.")));
	PG_RETURN_INT64(maintain_purge(PG_GETARG_INT32(0)));
}

/*
 * idem_maintain(OUT purged bigint, OUT newly_stuck bigint, OUT alerts_purged bigint) RETURNS record
 */
Datum
idem_maintain(PG_FUNCTION_ARGS)
{
	TupleDesc	columns;
	Care		care;
	Datum		values[3];
	bool		nulls[3] = {0};

	if (get_call_result_type(fcinfo, NULL, &columns) != TYPEFUNC_COMPOSITE || columns->natts != lengthof(values))
		elog(ERROR, "idem_maintain() was declared with another result");
	maintain_all(&care);
	values[0] = Int64GetDatum(care.purged);
	values[1] = Int64GetDatum(care.newly_stuck);
	values[2] = Int64GetDatum(care.alerts_purged);
	PG_RETURN_DATUM(HeapTupleGetDatum(heap_form_tuple(BlessTupleDesc(columns), values, nulls)));
}
