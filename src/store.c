/*
 * store.c: rows by key, through the table and index access methods.
 *
 * Invariants
 *	- Every write but store_remove is followed by CommandCounterIncrement, so that the transaction sees it at once.
 *	- All indexes of the table are kept, those that somebody added as well.  They are opened for range-table
 *	  index 0: there is no query, hence no range table to look into.
 *	- Reads use SnapshotAny and judge each version of the key by itself: one scan tells the version in force and
 *	  the rivals, and takes no predicate lock on index pages, so that serializable transactions with different
 *	  keys never abort each other.
 *
 * Lock order: idem_fast before idem_record before idem_peer before idem_alert.
 */
#include "compat.h"

#include "access/heapam.h"
#include "access/nbtree.h"
#include "access/relation.h"
#include "access/table.h"
#include "catalog/pg_am_d.h"
#include "catalog/pg_class.h"
#include "catalog/pg_collation_d.h"
#include "catalog/pg_publication.h"
#include "pgstat.h"
#include "storage/lmgr.h"
#include "storage/procarray.h"
#include "utils/fmgroids.h"
#include "utils/inval.h"
#include "utils/snapmgr.h"

#include "alert.h"
#include "peer.h"
#include "record.h"
#include "store.h"

static const Layout *
layout_of(IdemTable table)
{
	switch (table)
	{
		case TABLE_RECORD:
			return &record_layout;
		case TABLE_FAST:
			return &fast_layout;
		case TABLE_ALERT:
			return &alert_layout;
		case TABLE_PEER:
			return &peer_layout;
		default:
			elog(ERROR, "table %d has no rows by key", table);
	}
}

static void
refuse_additions(Relation rel, const char *what)
{
	ereport(ERROR,
			(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
			 errmsg("table \"%s\" has %s", RelationGetRelationName(rel), what),
			 errdetail("They would not be obeyed."),
			 errhint("Drop them.")));
}

/* Can every publication of the table carry an update, by its columns, its row filter and the replica identity? */
static bool
publishes_updates(Relation rel)
{
	PublicationDesc published;

	RelationBuildPublicationDesc(rel, &published);
	return published.cols_valid_for_update && published.rf_valid_for_update &&
		(!published.pubactions.pubupdate || rel->rd_rel->relreplident == REPLICA_IDENTITY_FULL ||
		 OidIsValid(RelationGetReplicaIndex(rel)));
}

/*
 * Refuse a table that is not what the script made, or whose subscribers would lose its updates, which the executor
 * refuses as well.  A call that raises an alert must not notice: false, and the alert goes without its row.
 */
static bool
inspect(const Store *store)
{
	Relation	rel = store->relation;

	if (!catalog_verify(rel, store->table, layout_of(store->table), store->raise))
		return false;
	if (!store->raise)
		return publishes_updates(rel);
	if (store->lock >= RowExclusiveLock && !publishes_updates(rel))
		CheckCmdReplicaIdentity(rel, CMD_UPDATE);
	return true;
}

/*
 * A table that was found good is so until it is invalidated: to inspect it took a fifth of the instructions of opening
 * it, and an operation opens four.  Any invalidation that arrives meanwhile lets the next caller inspect it again.
 */
static bool
is_good(const Store *store)
{
	static struct
	{
		uint64		generation;
		LOCKMODE	lock;		/* the stronger one is inspected for more */
	}			good[TABLE_COUNT];
	uint64		generation = catalog_generation(store->table);

	if (good[store->table].generation == generation && good[store->table].lock >= store->lock)
		return true;
	if (!inspect(store))
		return false;
	good[store->table].generation = generation;
	good[store->table].lock = store->lock;
	return true;
}

static bool
is_key_index(const Store *store, Relation index)
{
	return index->rd_rel->relam == BTREE_AM_OID &&
		index->rd_index->indnkeyatts == layout_of(store->table)->key_natts &&
		index->rd_index->indkey.values[0] == RECORD_KEY + 1 &&
		index->rd_index->indimmediate &&
		index->rd_index->indisvalid;
}

/* As try_relation_open, without its look at the catalog: the entry is made or found under the lock, or not at all. */
static Relation
open_if_there(Oid oid, LOCKMODE lock)
{
	Relation	relation;

	if (lock != NoLock)
		LockRelationOid(oid, lock);
	relation = RelationIdGetRelation(oid);
	if (RelationIsValid(relation))
		pgstat_init_relation(relation);
	else if (lock != NoLock)
		UnlockRelationOid(oid, lock);
	return relation;
}

/*
 * The index of the primary key as this library knows it; NULL where there is none such.  REINDEX CONCURRENTLY may put
 * another in its place between the look for its OID and its lock, which is when this session hears of it: look again,
 * as long as that brings another one.
 */
static Relation
open_key_index(Store *store, LOCKMODE lock)
{
	Oid			oid = primary_key_index(store->relation);
	Oid			before = InvalidOid;

	while (OidIsValid(oid) && oid != before)
	{
		Relation	index = open_if_there(oid, lock);

		if (index != NULL && is_key_index(store, index))
			return index;
		if (index != NULL)
			relation_close(index, NoLock);
		before = oid;
		AcceptInvalidationMessages();
		oid = primary_key_index(store->relation);
	}
	return NULL;
}

/* As inspect does, refuse a table without its primary key. */
static bool
find_key_index(Store *store, LOCKMODE lock)
{
	store->key_index = open_key_index(store, lock);
	if (store->key_index == NULL && store->raise)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("the primary key of table \"%s\" was altered or dropped",
						RelationGetRelationName(store->relation)),
				 errhint("Restore the primary key that the extension created.")));
	return store->key_index != NULL;
}

/* Does an index keep rows out that have another key?  One that is unique over the key and more does not. */
static bool
keeps_others_out(Form_pg_index index)
{
	if (!index->indisunique)
		return index->indisexclusion;
	for (int i = 0; i < index->indnkeyatts; i++)
		if (index->indkey.values[i] == RECORD_KEY + 1)
			return false;
	return true;
}

/* A conflict with such an index would be taken for a rival's claim. */
static bool
has_conflicting_index(Store *store)
{
	ResultRelInfo *result_rel = store->result_rel;

	for (int i = 0; store->table != TABLE_ALERT && i < result_rel->ri_NumIndices; i++)
		if (keeps_others_out(result_rel->ri_IndexRelationDescs[i]->rd_index))
			return true;
	return false;
}

/* Open the indexes for a write.  False where an alert's would evaluate code: it goes without its row. */
static bool
prepare_to_write(Store *store)
{
	if (store->result_rel != NULL)
		return true;
	store->estate = CreateExecutorState();
	store->result_rel = makeNode(ResultRelInfo);
	InitResultRelInfo(store->result_rel, store->relation, 0, NULL, 0);
	/* what "speculative" would prepare is for ON CONFLICT's search of an arbiter, and nothing here searches for one */
	ExecOpenIndices(store->result_rel, false);
	if (has_conflicting_index(store))
		refuse_additions(store->relation, "unique indexes without its key, or exclusion constraints");
	return catalog_verify_indexes(store->result_rel, store->raise);
}

/*
 * Open a table by the OID it was found under.  While the lock was waited for the extension may have been dropped, and
 * created again: look for it again then, which says so where it is gone.
 */
static Relation
open_table(IdemTable table, Oid oid, LOCKMODE lock)
{
	Relation	relation = open_if_there(oid, lock);

	while (relation == NULL)
	{
		Oid			before = oid;

		AcceptInvalidationMessages();
		oid = catalog_table(table);
		if (oid == before)
			elog(ERROR, "table %u of idem cannot be opened", oid);
		relation = open_if_there(oid, lock == NoLock ? AccessShareLock : lock);
	}
	return relation;
}

bool
store_open(Store *store, IdemTable table, LOCKMODE lock, bool conditional)
{
	Oid			oid = catalog_table(table);

	memset(store, 0, sizeof(*store));
	if (conditional && !ConditionalLockRelationOid(oid, lock))
		return false;
	store->table = table;
	store->context = CurrentMemoryContext;
	store->raise = table != TABLE_ALERT || !conditional;
	store->relation = open_table(table, oid, conditional ? NoLock : lock);
	store->lock = lock;
	if (!is_good(store) || !find_key_index(store, lock))
	{
		table_close(store->relation, lock);
		return false;
	}
	store->found = table_slot_create(store->relation, NULL);
	if (table == TABLE_ALERT && lock >= RowExclusiveLock && !prepare_to_write(store))
	{
		store_close(store);
		return false;
	}
	return true;
}

void
store_close(Store *store)
{
	if (store->result_rel != NULL)
		ExecCloseIndices(store->result_rel);
	if (store->estate != NULL)
		FreeExecutorState(store->estate);
	if (store->row != NULL)
		ExecDropSingleTupleTableSlot(store->row);
	if (store->rival != NULL)
		ExecDropSingleTupleTableSlot(store->rival);
	if (store->version != NULL)
		ExecDropSingleTupleTableSlot(store->version);
	ExecDropSingleTupleTableSlot(store->found);
	index_close(store->key_index, store->changed ? NoLock : store->lock);
	table_close(store->relation, store->changed ? NoLock : store->lock);
}

/*
 * Does an index list the rows by a column, in its order?  One whose heap-only chains were broken when it was made may
 * show a row under a later value; who walks it judges by the row, and only finds it later.
 */
static bool
lists_by(Relation index, int column)
{
	return index->rd_rel->relam == BTREE_AM_OID && index->rd_index->indisvalid &&
		index->rd_index->indkey.values[0] == column + 1 && index->rd_indoption[0] == 0 &&
		index_getprocid(index, 1, BTORDER_PROC) == F_TIMESTAMPTZ_CMP;
}

Relation
store_open_index(const Store *store, int column)
{
	List	   *indexes = RelationGetIndexList(store->relation);
	Form_pg_attribute attribute = TupleDescAttr(RelationGetDescr(store->relation), column);
	ListCell   *cell;

	foreach(cell, indexes)
	{
		Relation	index = index_open(lfirst_oid(cell), AccessShareLock);

		if (lists_by(index, column))
		{
			list_free(indexes);
			return index;
		}
		index_close(index, AccessShareLock);
	}
	ereport(ERROR,
			(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
			 errmsg("table \"%s\" has no index on \"%s\"", RelationGetRelationName(store->relation),
					NameStr(attribute->attname)),
			 errhint("Restore the index that the extension created.")));
}

/* The slot for what is to be written, made when first asked for. */
TupleTableSlot *
store_row(Store *store)
{
	if (store->row == NULL)
		store->row = MakeSingleTupleTableSlot(RelationGetDescr(store->relation), &TTSOpsVirtual);
	return store->row;
}

/* A slot for rows of the table, which lives as long as the store, whatever the context of the call that needs it. */
static TupleTableSlot *
make_slot(const Store *store)
{
	MemoryContext outer = MemoryContextSwitchTo(store->context);
	TupleTableSlot *slot = table_slot_create(store->relation, NULL);

	MemoryContextSwitchTo(outer);
	return slot;
}

/* Another transaction's version: remember whose, and the row where it is a new one. */
static void
note_rival(Store *store, TupleTableSlot *version, SnapshotData *dirty, Sighting *sighting)
{
	bool		inserts = TransactionIdIsValid(dirty->xmin);

	if (sighting->rival_inserts && !inserts)
		return;
	sighting->rival = inserts ? dirty->xmin : dirty->xmax;
	sighting->rival_inserts = inserts;
	sighting->rival_speculation = inserts ? dirty->speculativeToken : 0;
	if (inserts)
	{
		if (store->rival == NULL)
			store->rival = make_slot(store);
		ExecCopySlot(store->rival, version);
	}
}

/* What one scan has learnt so far beside the sighting. */
typedef struct Search
{
	Snapshot	latest;
	bool		live;			/* store->found holds the version in force */
	bool		own_snapshot_saw_one;
} Search;

/* Judge one version of the key. */
static void
judge_version(Store *store, TupleTableSlot *version, Search *search, Sighting *sighting)
{
	SnapshotData dirty;
	bool		live;

	InitDirtySnapshot(dirty);
	live = table_tuple_satisfies_snapshot(store->relation, version, &dirty);
	if (live && (TransactionIdIsValid(dirty.xmin) || TransactionIdIsValid(dirty.xmax)))
		note_rival(store, version, &dirty, sighting);
	live = live && !TransactionIdIsValid(dirty.xmin);

	/*
	 * A version that is no longer live may still be the one in force as of the snapshot, where its successor
	 * committed behind the scan.
	 */
	if (live || (!search->live && table_tuple_satisfies_snapshot(store->relation, version, search->latest)))
	{
		search->live = live;
		sighting->found = true;
		sighting->tid = version->tts_tid;
		ExecCopySlot(store->found, version);
	}
	if (IsolationUsesXactSnapshot() &&
		table_tuple_satisfies_snapshot(store->relation, version, GetTransactionSnapshot()))
		search->own_snapshot_saw_one = true;
}

/*
 * REPEATABLE READ and above: is the version in force the one that this transaction's own snapshot shows?
 * Reading it under that snapshot is what serializable transactions are checked by.
 */
static bool
matches_own_snapshot(Store *store, Search *search, Sighting *sighting)
{
	ItemPointerData tid = sighting->tid;
	TupleTableSlot *slot;
	bool		visible;

	if (!IsolationUsesXactSnapshot())
		return true;
	if (!sighting->found)
		return !search->own_snapshot_saw_one;
	slot = table_slot_create(store->relation, NULL);
	visible = table_tuple_fetch_row_version(store->relation, &tid, GetTransactionSnapshot(), slot);
	ExecDropSingleTupleTableSlot(slot);
	return visible;
}

/* A scan over all versions of the rows with a key. */
static IndexScanDesc
scan_key(Store *store, const pg_uuid_t *key)
{
	int			nkeys = layout_of(store->table)->key_natts;
	IndexScanDesc scan = begin_index_scan(store->relation, store->key_index, SnapshotAny, nkeys);
	ScanKeyData keys[3];

	ScanKeyInit(&keys[0], 1, BTEqualStrategyNumber, F_UUID_EQ, UUIDPGetDatum(key));
	if (nkeys > 1)
	{
		ScanKeyEntryInitialize(&keys[1], 0, 2, BTEqualStrategyNumber, InvalidOid, C_COLLATION_OID, F_TEXTEQ,
							   store->kind);
		ScanKeyInit(&keys[2], 3, BTEqualStrategyNumber, F_INT4EQ, Int32GetDatum(store->part));
	}
	index_rescan(scan, keys, nkeys, NULL, 0);
	return scan;
}

void
store_find(Store *store, const pg_uuid_t *key, Sighting *sighting)
{
	Search		search = {0};
	IndexScanDesc scan;

	if (store->version == NULL)
		store->version = make_slot(store);
	memset(sighting, 0, sizeof(*sighting));
	ExecClearTuple(store->found);
	search.latest = RegisterSnapshot(GetLatestSnapshot());
	scan = scan_key(store, key);
	while (index_getnext_slot(scan, ForwardScanDirection, store->version))
		if (store->filter == NULL || store->filter(store->version, store->filter_arg))
			judge_version(store, store->version, &search, sighting);
	index_endscan(scan);
	ExecClearTuple(store->version);
	sighting->serializable = matches_own_snapshot(store, &search, sighting);
	UnregisterSnapshot(search.latest);
}

/*
 * Does this transaction's own, live row with the key stand at tid?  Fetched as an index scan would fetch it: that
 * prunes a full page of the rows that other transactions have left dead, which keeps the fast table small.
 */
static bool
stands_at(Store *store, const pg_uuid_t *key, ItemPointer tid)
{
	IndexFetchTableData *fetch;
	ItemPointerData at = *tid;
	bool		call_again = false;
	bool		stands;
	bool		isnull;

	/* the table may have been emptied or rewritten since */
	if (ItemPointerGetBlockNumber(tid) >= RelationGetNumberOfBlocks(store->relation))
		return false;
	fetch = table_index_fetch_begin(store->relation);
	stands = table_index_fetch_tuple(fetch, &at, SnapshotSelf, store->found, &call_again, NULL) &&
		ItemPointerEquals(&at, tid) &&
		memcmp(DatumGetUUIDP(slot_getattr(store->found, RECORD_KEY + 1, &isnull)), key, UUID_LEN) == 0;
	table_index_fetch_end(fetch);
	return stands;
}

bool
store_find_own(Store *store, const pg_uuid_t *key, ItemPointer tid)
{
	Sighting	sighting;

	if (stands_at(store, key, tid))
		return true;
	store_find(store, key, &sighting);
	*tid = sighting.tid;
	return sighting.found;
}

/* Put the row that now stands in the table into its indexes; returns false where the key is taken. */
static bool
insert_index_entries(Store *store, TupleTableSlot *row)
{
	bool		conflict = false;

	list_free(insert_into_indexes(store->result_rel, row, store->estate, &conflict));
	return !conflict;
}

bool
store_insert(Store *store)
{
	bool		unique;

	(void) prepare_to_write(store);
	store->changed = true;
	table_tuple_insert(store->relation, store->row, GetCurrentCommandId(true), 0, NULL);
	unique = insert_index_entries(store, store->row);
	CommandCounterIncrement();
	return unique;
}

bool
store_insert_speculative(Store *store, ItemPointer tid)
{
	bool		unique;

	(void) prepare_to_write(store);
	store->speculation = SpeculativeInsertionLockAcquire(GetCurrentTransactionId());
	table_tuple_insert_speculative(store->relation, store->row, GetCurrentCommandId(true), 0, NULL,
								   store->speculation);
	unique = insert_index_entries(store, store->row);
	*tid = store->row->tts_tid;
	if (!unique)
		store_withdraw(store);
	return unique;
}

static void
end_speculation(Store *store, bool succeeded)
{
	table_tuple_complete_speculative(store->relation, store->row, store->speculation, succeeded);
	SpeculativeInsertionLockRelease(GetCurrentTransactionId());
	store->speculation = 0;
	store->changed = store->changed || succeeded;
	CommandCounterIncrement();
}

void
store_confirm(Store *store)
{
	end_speculation(store, true);
}

void
store_withdraw(Store *store)
{
	end_speculation(store, false);
}

void
store_await_insertion(TransactionId rival, uint32 speculation)
{
	SpeculativeInsertionWait(rival, speculation);
}

static TM_Result
lock_version(Store *store, ItemPointer tid, LockTupleMode mode, LockWaitPolicy policy)
{
	TupleTableSlot *slot = table_slot_create(store->relation, NULL);
	TM_FailureData failure;
	TM_Result	result;

	result = table_tuple_lock(store->relation, tid, SnapshotAny, slot, GetCurrentCommandId(true),
							  mode, policy, 0, &failure);
	ExecDropSingleTupleTableSlot(slot);
	store->changed = store->changed || result == TM_Ok;
	return result;
}

bool
store_lock_shared(Store *store, ItemPointer tid)
{
	return lock_version(store, tid, LockTupleShare, LockWaitBlock) == TM_Ok;
}

bool
store_lock_unless_busy(Store *store, ItemPointer tid)
{
	TM_Result	result = lock_version(store, tid, LockTupleExclusive, LockWaitSkip);

	if (IsolationUsesXactSnapshot() && (result == TM_Updated || result == TM_Deleted))
		ereport(ERROR,
				(errcode(ERRCODE_T_R_SERIALIZATION_FAILURE),
				 errmsg("could not serialize access due to concurrent %s",
						result == TM_Updated ? "update" : "delete"),
				 errhint("Roll back and run the transaction again.")));
	return result == TM_Ok;
}

/* Lock the version at tid for an update, without waiting. */
static UpdateResult
lock_for_update(Store *store, ItemPointer tid)
{
	switch (lock_version(store, tid, LockTupleNoKeyExclusive, LockWaitSkip))
	{
		case TM_Ok:
			return UPDATE_DONE;
		case TM_WouldBlock:
		case TM_BeingModified:
			return UPDATE_BUSY;
		default:
			return UPDATE_MOVED;
	}
}

UpdateResult
store_update(Store *store, ItemPointer tid, bool wait)
{
	IndexesToUpdate indexes;

	(void) prepare_to_write(store);
	if (!wait)
	{
		UpdateResult locked = lock_for_update(store, tid);

		if (locked != UPDATE_DONE)
			return locked;
	}
	if (update_version(store->relation, tid, store->row, &indexes) != TM_Ok)
		return UPDATE_MOVED;
	store->changed = true;
	update_indexes(store->result_rel, store->row, store->estate, indexes);
	CommandCounterIncrement();
	return UPDATE_DONE;
}

bool
store_deleted_by_open(TupleTableSlot *row)
{
	bool		isnull;
	TransactionId xmax = DatumGetTransactionId(slot_getsysattr(row, MaxTransactionIdAttributeNumber, &isnull));

	return TransactionIdIsValid(xmax) && TransactionIdIsInProgress(xmax);
}

bool
store_delete_unless_busy(Store *store, ItemPointer tid)
{
	TM_FailureData failure;
	TM_Result	result;

	result = table_tuple_delete(store->relation, tid, GetCurrentCommandId(true), InvalidSnapshot,
								InvalidSnapshot, false, &failure, false);
	store->changed = store->changed || result == TM_Ok;
	CommandCounterIncrement();
	return result == TM_Ok;
}

bool
store_remove(Store *store, ItemPointer tid)
{
	TM_FailureData failure;
	TM_Result	result;

	result = table_tuple_delete(store->relation, tid, GetCurrentCommandId(true), InvalidSnapshot,
								InvalidSnapshot, true, &failure, false);
	store->changed = store->changed || result == TM_Ok;
	return result == TM_Ok;
}

bool
store_delete(Store *store, ItemPointer tid)
{
	bool		deleted = store_remove(store, tid);

	CommandCounterIncrement();
	return deleted;
}
