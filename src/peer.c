/*
 * peer.c: the rows of idem_peer.
 *
 * The table is logged and has two indexes: its primary key, which begins with the guard key and orders the operations
 * under it, and one on the operation's key, by which an operation's rows go with it.
 *
 * Lock order: idem_peer after idem_record, before idem_alert.
 */
#include "compat.h"

#include "access/sysattr.h"
#include "access/transam.h"
#include "catalog/pg_am_d.h"
#include "catalog/pg_type_d.h"
#include "storage/bufmgr.h"
#include "utils/fmgroids.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

#include "peer.h"

enum
{
	PEER_GUARD,
	PEER_OPERATION,
	PEER_GRANTED_AT,
	PEER_NATTS
};

static const Oid column_types[PEER_NATTS] = {
	[PEER_GUARD] = UUIDOID,
	[PEER_OPERATION] = UUIDOID,
	[PEER_GRANTED_AT] = TIMESTAMPTZOID,
};

const Layout peer_layout = {PEER_NATTS, PEER_NATTS, column_types, 0, 0};

void
peer_open(Store *peers, LOCKMODE lock)
{
	(void) store_open(peers, TABLE_PEER, lock, false);
}

bool
peer_place(Store *peers, const pg_uuid_t *guard, const pg_uuid_t *operation, ItemPointer tid)
{
	TupleTableSlot *row = store_row(peers);

	ExecClearTuple(row);
	memset(row->tts_isnull, false, PEER_NATTS);
	row->tts_values[PEER_GUARD] = UUIDPGetDatum(guard);
	row->tts_values[PEER_OPERATION] = UUIDPGetDatum(operation);
	row->tts_values[PEER_GRANTED_AT] = TimestampTzGetDatum(GetCurrentTimestamp());
	ExecStoreVirtualTuple(row);
	return store_insert_speculative(peers, tid);
}

/* What the row that a dirty scan stands at says. */
static Peer
read_peer(TupleTableSlot *row, const SnapshotData *dirty)
{
	Peer		peer = {.state = PEER_STANDS};
	bool		isnull;

	peer.operation = *DatumGetUUIDP(slot_getattr(row, PEER_OPERATION + 1, &isnull));
	peer.tid = row->tts_tid;
	if (TransactionIdIsValid(dirty->xmin))
	{
		peer.state = dirty->speculativeToken != 0 ? PEER_DECIDING : PEER_OPEN;
		peer.rival = dirty->xmin;
		peer.speculation = dirty->speculativeToken;
	}
	return peer;
}

/*
 * A row that the very subtransaction that inserted it has deleted again is no row, whatever comes.  One that a later
 * subtransaction has deleted comes back where that is rolled back.
 */
static bool
is_given_up(TupleTableSlot *row)
{
	bool		isnull;
	TransactionId xmin = DatumGetTransactionId(slot_getsysattr(row, MinTransactionIdAttributeNumber, &isnull));
	TransactionId xmax = DatumGetTransactionId(slot_getsysattr(row, MaxTransactionIdAttributeNumber, &isnull));

	return TransactionIdEquals(xmin, xmax);
}

bool
peer_visit(Store *peers, const pg_uuid_t *guard, const pg_uuid_t *but, PeerVisitor visit, void *arg)
{
	SnapshotData dirty;
	ScanKeyData by_guard;
	IndexScanDesc scan;
	bool		more = true;

	InitDirtySnapshot(dirty);
	ScanKeyInit(&by_guard, PEER_GUARD + 1, BTEqualStrategyNumber, F_UUID_EQ, UUIDPGetDatum(guard));
	scan = begin_index_scan(peers->relation, peers->key_index, &dirty, 1);
	index_rescan(scan, &by_guard, 1, NULL, 0);
	while (more && index_getnext_slot(scan, BackwardScanDirection, peers->found))
	{
		Peer		peer = read_peer(peers->found, &dirty);

		if (memcmp(&peer.operation, but, UUID_LEN) != 0 && !is_given_up(peers->found))
			more = visit(&peer, arg);
	}
	index_endscan(scan);
	ExecClearTuple(peers->found);
	return more;
}

bool
peer_delete(Store *peers, ItemPointer tid)
{
	return store_delete_unless_busy(peers, tid);
}

/* The index on the operation's key; NULL where somebody dropped it. */
static Relation
open_operation_index(Relation peers)
{
	List	   *indexes = RelationGetIndexList(peers);
	ListCell   *cell;
	Relation	found = NULL;

	foreach(cell, indexes)
	{
		Relation	index = index_open(lfirst_oid(cell), AccessShareLock);

		if (found == NULL && index->rd_rel->relam == BTREE_AM_OID && index->rd_index->indisvalid &&
			index->rd_index->indkey.values[0] == PEER_OPERATION + 1)
			found = index;
		else
			index_close(index, AccessShareLock);
	}
	list_free(indexes);
	return found;
}

static void
forget_by(Store *peers, Relation index, const pg_uuid_t *operation)
{
	SnapshotData dirty;
	ScanKeyData by_operation;
	IndexScanDesc scan;

	InitDirtySnapshot(dirty);
	ScanKeyInit(&by_operation, 1, BTEqualStrategyNumber, F_UUID_EQ, UUIDPGetDatum(operation));
	scan = begin_index_scan(peers->relation, index, &dirty, 1);
	index_rescan(scan, &by_operation, 1, NULL, 0);
	while (index_getnext_slot(scan, ForwardScanDirection, peers->found))
		if (!TransactionIdIsValid(dirty.xmin))
			(void) peer_delete(peers, &peers->found->tts_tid);
	index_endscan(scan);
}

void
peer_forget(Store *peers, const pg_uuid_t *operation)
{
	Relation	index;

	if (RelationGetNumberOfBlocks(peers->relation) == 0)
		return;
	index = open_operation_index(peers->relation);
	if (index == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("table \"%s\" has no index on \"key\"", RelationGetRelationName(peers->relation)),
				 errhint("Restore the index that the extension created.")));
	forget_by(peers, index, operation);
	index_close(index, AccessShareLock);
}
