/*
 * rows.c: all rows of one of the extension's own small tables, for the caches.
 *
 * Tables are read directly: no executor, so that whoever may call a function of the extension needs no
 * privilege on what it looks up, and so that it works in a read-only transaction and on a standby.
 */
#include "compat.h"

#include "access/table.h"
#include "access/tableam.h"
#include "executor/tuptable.h"
#include "utils/rel.h"
#include "utils/timestamp.h"

#include "rows.h"

void
rows_read(IdemTable table, const Layout *layout, Snapshot snapshot, RowTaker take, void *into)
{
	Relation	relation = table_open(catalog_table(table), AccessShareLock);
	TupleTableSlot *slot;
	TableScanDesc scan;

	if (!layout_holds(layout, RelationGetDescr(relation)))
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("table \"%s\" has other columns than this library was built for",
						RelationGetRelationName(relation)),
				 errhint(LAYOUT_HINT)));

	slot = table_slot_create(relation, NULL);
	scan = table_beginscan(relation, snapshot, 0, NULL);
	while (table_scan_getnextslot(scan, ForwardScanDirection, slot))
	{
		slot_getallattrs(slot);
		take(slot->tts_values, slot->tts_isnull, into);
	}
	table_endscan(scan);
	ExecDropSingleTupleTableSlot(slot);
	table_close(relation, AccessShareLock);
}

int64
rows_interval(Datum value)
{
	const Interval *interval = DatumGetIntervalP(value);

	return interval->time + ((int64) interval->month * DAYS_PER_MONTH + interval->day) * USECS_PER_DAY;
}
