/*
 * rows.h: the rows of the extension's own small tables, read whole for the caches, and written one by one.
 */
#ifndef IDEM_ROWS_H
#define IDEM_ROWS_H

#include "executor/tuptable.h"
#include "storage/lockdefs.h"
#include "utils/snapshot.h"

#include "args.h"
#include "catalog.h"

/*
 * Takes one row, all of its columns at hand; they are detoasted by the taker, and gone when it returns.  row->tts_tid
 * says where it stands, for rows_update and rows_delete.
 */
typedef void (*RowTaker) (TupleTableSlot *row, void *into);

/*
 * Open a table and verify it (catalog_verify raises 55000).  A table that is to be written is opened with
 * ShareRowExclusiveLock, so that one transaction writes it at a time; close it with table_close(.., NoLock).
 */
extern Relation rows_open(IdemTable table, const Layout *layout, LOCKMODE lock);

/* Give every row that the snapshot, or a new latest one, sees to take.  Privileges and row security do not matter. */
extern void rows_scan(Relation relation, Snapshot snapshot, RowTaker take, void *into);
extern void rows_read_latest(Relation relation, RowTaker take, void *into);

/* A column, counted from 0, of type text (with collation "C") or int4, and the value that a row is looked for by. */
typedef struct RowKey
{
	int			column;
	Datum		value;
} RowKey;

/* Takes one row as a RowTaker does, and says whether to go on. */
typedef bool (*RowSeeker) (TupleTableSlot *row, void *into);

/*
 * Give the rows that have these values, by an index that begins with the columns where there is one, to take.  They
 * are those that are there now, for the transaction itself at once, whatever its own snapshot sees.
 */
extern void rows_find(Relation relation, const RowKey *keys, int nkeys, RowSeeker take, void *into);

/* rows_scan with the table opened and closed. */
extern void rows_read(IdemTable table, const Layout *layout, Snapshot snapshot, RowTaker take, void *into);

/*
 * Give every row whose timestamptz column, counted from 0, is later than one time and not than another, in no order,
 * as a new latest snapshot sees them.  By an index, where there is one.
 */
extern void rows_between(Relation relation, int column, TimestampTz after, TimestampTz until, RowSeeker take,
						 void *into);

/*
 * Give the row with a primary key to take, if the query's snapshot sees one: a value for each of its columns, which
 * are of type text and the table's first.  Raises 55000 where the table has no such primary key any more.
 */
extern void rows_get(Relation relation, const Layout *layout, const Span *key, RowTaker take, void *into);

/*
 * Write one row, with a value or null for each column; the caller vouches for what the table's constraints say.  The
 * transaction sees it at once, and all sessions read their caches of the table again when it commits.
 */
extern void rows_insert(Relation relation, Datum *values, bool *isnull);
extern void rows_update(Relation relation, ItemPointer tid, Datum *values, bool *isnull);
extern void rows_delete(Relation relation, ItemPointer tid);

/* The length of an interval in microseconds, a month counted as 30 days and a day as 24 hours. */
extern int64 rows_interval(Datum value);

#endif							/* IDEM_ROWS_H */
