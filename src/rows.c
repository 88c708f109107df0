/*
 * rows.c: the rows of the extension's own small tables, read whole for the caches, and written one by one.
 *
 * Tables are read and written directly: no executor and no SQL, so that no name is looked up, no code of anybody's
 * runs, whoever may call a function of the extension needs no privilege on what it reads or keeps, and reading works
 * in a read-only transaction and on a standby.  What the triggers of the tables do for statements is done here too:
 * each write tells all sessions that their caches are stale.
 *
 * A writer holds a lock on the table that keeps other writers out, from its reading to the transaction's end, so that
 * the versions it found are the newest.
 */
#include "compat.h"

#include "access/htup_details.h"
#include "access/table.h"
#include "access/tableam.h"
#include "catalog/indexing.h"
#include "executor/tuptable.h"
#include "utils/inval.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

#include "rows.h"

Relation
rows_open(IdemTable table, const Layout *layout, LOCKMODE lock)
{
	Relation	relation = table_open(catalog_table(table), lock);

	(void) catalog_verify(relation, table, layout, true);
	if (lock >= RowExclusiveLock)
		CheckCmdReplicaIdentity(relation, CMD_UPDATE);
	return relation;
}

void
rows_scan(Relation relation, Snapshot snapshot, RowTaker take, void *into)
{
	TupleTableSlot *slot = table_slot_create(relation, NULL);
	TableScanDesc scan = table_beginscan(relation, snapshot, 0, NULL);

	while (table_scan_getnextslot(scan, ForwardScanDirection, slot))
	{
		slot_getallattrs(slot);
		take(slot, into);
	}
	table_endscan(scan);
	ExecDropSingleTupleTableSlot(slot);
}

void
rows_read(IdemTable table, const Layout *layout, Snapshot snapshot, RowTaker take, void *into)
{
	Relation	relation = rows_open(table, layout, AccessShareLock);

	rows_scan(relation, snapshot, take, into);
	table_close(relation, AccessShareLock);
}

void
rows_read_latest(Relation relation, RowTaker take, void *into)
{
	Snapshot	snapshot = RegisterSnapshot(GetLatestSnapshot());

	rows_scan(relation, snapshot, take, into);
	UnregisterSnapshot(snapshot);
}

/* An index that would evaluate code is refused before it could. */
static void
verify_indexes(Relation relation)
{
	ResultRelInfo *indexes = makeNode(ResultRelInfo);

	InitResultRelInfo(indexes, relation, 0, NULL, 0);
	ExecOpenIndices(indexes, false);
	(void) catalog_verify_indexes(indexes, true);
	ExecCloseIndices(indexes);
	pfree(indexes);
}

/* The row is there from the next look on, and every session's cache of the table is stale. */
static void
after_write(Relation relation)
{
	CacheInvalidateRelcache(relation);
	CommandCounterIncrement();
}

/* The catalogs' own way to write does for a plain heap table with plain indexes what the executor would. */
void
rows_insert(Relation relation, Datum *values, bool *isnull)
{
	HeapTuple	tuple = heap_form_tuple(RelationGetDescr(relation), values, isnull);

	verify_indexes(relation);
	CatalogTupleInsert(relation, tuple);
	heap_freetuple(tuple);
	after_write(relation);
}

void
rows_update(Relation relation, ItemPointer tid, Datum *values, bool *isnull)
{
	HeapTuple	tuple = heap_form_tuple(RelationGetDescr(relation), values, isnull);

	verify_indexes(relation);
	tuple->t_self = *tid;
	CatalogTupleUpdate(relation, tid, tuple);
	heap_freetuple(tuple);
	after_write(relation);
}

void
rows_delete(Relation relation, ItemPointer tid)
{
	CatalogTupleDelete(relation, tid);
	after_write(relation);
}

int64
rows_interval(Datum value)
{
	const Interval *interval = DatumGetIntervalP(value);

	return interval->time + ((int64) interval->month * DAYS_PER_MONTH + interval->day) * USECS_PER_DAY;
}
