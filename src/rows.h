/*
 * rows.h: all rows of one of the extension's own small tables, for the caches.
 */
#ifndef IDEM_ROWS_H
#define IDEM_ROWS_H

#include "utils/snapshot.h"

#include "catalog.h"

/* Takes one row; values are detoasted by the taker, and gone when it returns. */
typedef void (*RowTaker) (const Datum *values, const bool *isnull, void *into);

/*
 * Give every row of the table that the snapshot sees to take.  Privileges and row security do not matter.
 * Raises 55000 where the extension is not installed or the table has not the columns of the layout.
 */
extern void rows_read(IdemTable table, const Layout *layout, Snapshot snapshot, RowTaker take, void *into);

/* The length of an interval in microseconds, a month counted as 30 days and a day as 24 hours. */
extern int64 rows_interval(Datum value);

#endif							/* IDEM_ROWS_H */
