/*
 * audit.c: the claims that no ordinary query sees, because their transactions are still open.
 *
 * A dirty read: it tells what somebody is doing right now and decides nothing.
 */
#include "compat.h"

#include "access/subtrans.h"
#include "access/xlog.h"
#include "catalog/pg_type_d.h"
#include "funcapi.h"
#include "storage/procarray.h"
#include "utils/fmgroids.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

#include "record.h"
#include "store.h"

PG_FUNCTION_INFO_V1(idem_uncommitted);

/* The columns of _idem_uncommitted(). */
enum
{
	UNCOMMITTED_KEY,
	UNCOMMITTED_SCOPE,
	UNCOMMITTED_SUBJECT,
	UNCOMMITTED_DOWNSTREAM,
	UNCOMMITTED_ATTEMPT,
	UNCOMMITTED_HOLDER,
	UNCOMMITTED_TRACE_ID,
	UNCOMMITTED_ACQUIRED_AT,
	UNCOMMITTED_LEASE_UNTIL,
	UNCOMMITTED_XID,
	UNCOMMITTED_NATTS
};

static void
put_row(ReturnSetInfo *result, const Claim *claim, TransactionId xid)
{
	Datum		values[UNCOMMITTED_NATTS];
	bool		nulls[UNCOMMITTED_NATTS] = {0};

	values[UNCOMMITTED_KEY] = UUIDPGetDatum(&claim->key);
	values[UNCOMMITTED_SCOPE] = span_datum(claim->scope);
	values[UNCOMMITTED_SUBJECT] = span_datum(claim->subject);
	values[UNCOMMITTED_DOWNSTREAM] = CharGetDatum((char) claim->downstream);
	values[UNCOMMITTED_ATTEMPT] = Int32GetDatum(claim->attempt);
	nulls[UNCOMMITTED_HOLDER] = claim->holder.data == NULL;
	values[UNCOMMITTED_HOLDER] = claim->holder.data == NULL ? (Datum) 0 : span_datum(claim->holder);
	nulls[UNCOMMITTED_TRACE_ID] = claim->trace_id.data == NULL;
	values[UNCOMMITTED_TRACE_ID] = claim->trace_id.data == NULL ? (Datum) 0 : span_datum(claim->trace_id);
	values[UNCOMMITTED_ACQUIRED_AT] = TimestampTzGetDatum(claim->acquired_at);
	values[UNCOMMITTED_LEASE_UNTIL] = TimestampTzGetDatum(claim->lease_until);
	values[UNCOMMITTED_XID] = TransactionIdGetDatum(xid);
	tuplestore_putvalues(result->setResult, result->setDesc, values, nulls);
}

/* One version that a scan under the dirty snapshot gave: is it an open transaction's claim? */
static void
put_if_uncommitted(ReturnSetInfo *result, TupleTableSlot *row, SnapshotData *dirty)
{
	TransactionId xmin;
	Claim		claim;
	bool		isnull;

	if (TransactionIdIsValid(dirty->xmin))
		xmin = dirty->xmin;
	else
	{
		/* this transaction's own */
		xmin = DatumGetTransactionId(slot_getsysattr(row, MinTransactionIdAttributeNumber, &isnull));
		if (!TransactionIdIsCurrentTransactionId(xmin))
			return;
	}
	record_read(row, &claim);
	if (claim.state == STATE_IN_FLIGHT && !store_deleted_by_open(row))
		put_row(result, &claim, SubTransGetTopmostTransaction(xmin));
}

static void
list_fast(ReturnSetInfo *result)
{
	Store		fast;
	SnapshotData dirty;
	TableScanDesc scan;

	if (TransactionStartedDuringRecovery() || !store_open(&fast, TABLE_FAST, AccessShareLock, true))
		return;
	InitDirtySnapshot(dirty);
	scan = table_beginscan(fast.relation, &dirty, 0, NULL);
	while (table_scan_getnextslot(scan, ForwardScanDirection, fast.found))
		put_if_uncommitted(result, fast.found, &dirty);
	table_endscan(scan);
	store_close(&fast);
}

static void
list_record(ReturnSetInfo *result)
{
	Store		record;
	SnapshotData dirty;
	Relation	index;
	IndexScanDesc scan;
	ScanKeyData in_flight;

	store_open(&record, TABLE_RECORD, AccessShareLock, false);
	index = store_open_index(&record, RECORD_RETAINED_UNTIL);
	InitDirtySnapshot(dirty);
	ScanKeyInit(&in_flight, 1, BTEqualStrategyNumber, F_TIMESTAMPTZ_EQ, TimestampTzGetDatum(DT_NOEND));
	scan = begin_index_scan(record.relation, index, &dirty, 1);
	index_rescan(scan, &in_flight, 1, NULL, 0);
	while (index_getnext_slot(scan, ForwardScanDirection, record.found))
		put_if_uncommitted(result, record.found, &dirty);
	index_endscan(scan);
	index_close(index, NoLock);
	store_close(&record);
}

/*
 * _idem_uncommitted(idem_ack, OUT key uuid, ..., OUT xid xid) RETURNS SETOF record
 */
Datum
idem_uncommitted(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *result = (ReturnSetInfo *) fcinfo->resultinfo;

	materialize_result(fcinfo);
	list_fast(result);
	list_record(result);
	return (Datum) 0;
}
