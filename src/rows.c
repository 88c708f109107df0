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

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/nbtree.h"
#include "access/stratnum.h"
#include "access/table.h"
#include "access/tableam.h"
#include "catalog/indexing.h"
#include "catalog/pg_am_d.h"
#include "catalog/pg_collation_d.h"
#include "catalog/pg_opfamily_d.h"
#include "catalog/pg_type_d.h"
#include "executor/tuptable.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/inval.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

#include "rows.h"

Relation
rows_open(IdemTable table, const Layout *layout, LOCKMODE lock)
{
	static uint64 good[TABLE_COUNT];
	Relation	relation = table_open(catalog_table(table), lock);
	uint64		generation = catalog_generation(table);

	/* a table that was found good is so until it is invalidated; the generation of one that was found is not 0 */
	if (good[table] != generation)
		(void) catalog_verify(relation, table, layout, true);
	good[table] = generation;
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

/* The index of the primary key, which is over the layout's columns. */
static Relation
open_key_index(Relation relation, const Layout *layout)
{
	Oid			oid = primary_key_index(relation);
	Relation	index = OidIsValid(oid) ? index_open(oid, AccessShareLock) : NULL;
	bool		fits = index != NULL && index->rd_rel->relam == BTREE_AM_OID &&
		index->rd_index->indnkeyatts == layout->key_natts && index->rd_index->indisvalid;

	for (int i = 0; fits && i < layout->key_natts; i++)
		fits = index->rd_index->indkey.values[i] == i + 1;
	if (!fits)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("the primary key of table \"%s\" was altered or dropped", RelationGetRelationName(relation)),
				 errhint("Restore the primary key that the extension created.")));
	return index;
}

void
rows_get(Relation relation, const Layout *layout, const Span *key, RowTaker take, void *into)
{
	Relation	index = open_key_index(relation, layout);
	TupleTableSlot *slot = table_slot_create(relation, NULL);
	IndexScanDesc scan = begin_index_scan(relation, index, GetActiveSnapshot(), layout->key_natts);
	ScanKeyData keys[INDEX_MAX_KEYS];

	/* each column is compared as the index compares it, whatever collation its owner has given it */
	for (int i = 0; i < layout->key_natts; i++)
		ScanKeyEntryInitialize(&keys[i], 0, i + 1, BTEqualStrategyNumber, InvalidOid, index->rd_indcollation[i],
							   F_TEXTEQ, PointerGetDatum(cstring_to_text_with_len(key[i].data, key[i].length)));
	index_rescan(scan, keys, layout->key_natts, NULL, 0);
	while (index_getnext_slot(scan, ForwardScanDirection, slot))
	{
		slot_getallattrs(slot);
		take(slot, into);
	}
	index_endscan(scan);
	ExecDropSingleTupleTableSlot(slot);
	index_close(index, AccessShareLock);
}

/* How a column is compared: by operators of PostgreSQL's own, whatever the index is made for. */
static void
init_key(Relation relation, const RowKey *from, ScanKey key)
{
	bool		is_text = TupleDescAttr(RelationGetDescr(relation), from->column)->atttypid == TEXTOID;

	ScanKeyEntryInitialize(key, 0, from->column + 1, BTEqualStrategyNumber, InvalidOid,
						   is_text ? C_COLLATION_OID : InvalidOid, is_text ? F_TEXTEQ : F_INT4EQ, from->value);
}

/* The operators that a column of one of those types is indexed by. */
static Oid
family_for(Relation index, int column)
{
	switch (TupleDescAttr(RelationGetDescr(index), column)->atttypid)
	{
		case TEXTOID:
			return TEXT_BTREE_FAM_OID;
		case TIMESTAMPTZOID:
			return DATETIME_BTREE_FAM_OID;
		default:
			return INTEGER_BTREE_FAM_OID;
	}
}

/* Does an index begin with the columns of some keys, in their order, and hold every row? */
static bool
serves(Relation index, ScanKey keys, int nkeys)
{
	Form_pg_index form = index->rd_index;

	if (!form->indisvalid || form->indcheckxmin || form->indnkeyatts < nkeys ||
		index->rd_rel->relam != BTREE_AM_OID || !heap_attisnull(index->rd_indextuple, Anum_pg_index_indpred, NULL))
		return false;
	for (int i = 0; i < nkeys; i++)
		if (form->indkey.values[i] != keys[i].sk_attno || index->rd_opfamily[i] != family_for(index, i) ||
			index->rd_indcollation[i] != keys[i].sk_collation)
			return false;
	return true;
}

/* An index to find rows by, whatever its name; InvalidOid where there is none. */
static Oid
index_for(Relation relation, ScanKey keys, int nkeys)
{
	Oid			found = InvalidOid;
	List	   *indexes = nkeys == 0 ? NIL : RelationGetIndexList(relation);
	ListCell   *cell;

	foreach(cell, indexes)
	{
		Relation	index = index_open(lfirst_oid(cell), AccessShareLock);

		if (serves(index, keys, nkeys))
			found = RelationGetRelid(index);
		index_close(index, AccessShareLock);
		if (OidIsValid(found))
			break;
	}
	list_free(indexes);
	return found;
}

/* By an index on the first so many keys' columns, where there is one. */
static void
seek(Relation relation, ScanKey keys, int nkeys, int indexed, RowSeeker take, void *into)
{
	TupleTableSlot *slot = MakeSingleTupleTableSlot(RelationGetDescr(relation), &TTSOpsHeapTuple);
	Oid			index = index_for(relation, keys, indexed);
	Snapshot	snapshot;
	SysScanDesc scan;
	HeapTuple	tuple;

	snapshot = RegisterSnapshot(GetLatestSnapshot());
	scan = systable_beginscan(relation, index, OidIsValid(index), snapshot, nkeys, keys);
	while (HeapTupleIsValid(tuple = systable_getnext(scan)))
	{
		CHECK_FOR_INTERRUPTS();
		ExecStoreHeapTuple(tuple, slot, false);
		slot_getallattrs(slot);
		if (!take(slot, into))
			break;
	}
	systable_endscan(scan);
	UnregisterSnapshot(snapshot);
	ExecDropSingleTupleTableSlot(slot);
}

void
rows_find(Relation relation, const RowKey *keys, int nkeys, RowSeeker take, void *into)
{
	ScanKeyData scan_keys[INDEX_MAX_KEYS];

	for (int i = 0; i < nkeys; i++)
		init_key(relation, &keys[i], &scan_keys[i]);

	/* what the command that is running has written counts as well */
	CommandCounterIncrement();
	seek(relation, scan_keys, nkeys, nkeys, take, into);
}

void
rows_between(Relation relation, int column, TimestampTz after, TimestampTz until, RowSeeker take, void *into)
{
	ScanKeyData keys[2];

	ScanKeyInit(&keys[0], column + 1, BTGreaterStrategyNumber, F_TIMESTAMPTZ_GT, TimestampTzGetDatum(after));
	ScanKeyInit(&keys[1], column + 1, BTLessEqualStrategyNumber, F_TIMESTAMPTZ_LE, TimestampTzGetDatum(until));
	keys[0].sk_collation = keys[1].sk_collation = InvalidOid;
	seek(relation, keys, lengthof(keys), 1, take, into);
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

/* What was written may be a secret. */
static void
wipe(HeapTuple tuple)
{
	explicit_bzero(tuple->t_data, tuple->t_len);
	heap_freetuple(tuple);
}

/* The catalogs' own way to write does for a plain heap table with plain indexes what the executor would. */
void
rows_insert(Relation relation, Datum *values, bool *isnull)
{
	HeapTuple	tuple = heap_form_tuple(RelationGetDescr(relation), values, isnull);

	verify_indexes(relation);
	CatalogTupleInsert(relation, tuple);
	wipe(tuple);
	after_write(relation);
}

void
rows_update(Relation relation, ItemPointer tid, Datum *values, bool *isnull)
{
	HeapTuple	tuple = heap_form_tuple(RelationGetDescr(relation), values, isnull);

	verify_indexes(relation);
	tuple->t_self = *tid;
	CatalogTupleUpdate(relation, tid, tuple);
	wipe(tuple);
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
