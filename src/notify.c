/*
 * notify.c: who listens is told that there are new alerts.
 *
 * Any role may LISTEN, and needs no privilege for it.  So a notification says which kind of alert there is and how
 * many, and nothing of the operations: those are in the table, for whoever may read it.
 */
#include "compat.h"

#include "access/detoast.h"
#include "access/table.h"
#include "commands/async.h"

#include "alert.h"
#include "notify.h"
#include "rows.h"

#define CHANNEL "idem_alert"

/* A row of a kind that this library does not know is counted as well: a hand has put it there. */
#define KIND_OTHER ALERT_KIND_COUNT

/* How many there are of each kind, and of others. */
typedef struct Tally
{
	int64		count[ALERT_KIND_COUNT + 1];
} Tally;

/* A kind by its name, which is not fetched where it is longer than any that is known. */
static int
kind_of(Datum name)
{
	size_t		length = toast_raw_datum_size(name) - VARHDRSZ;

	for (int kind = 0; kind < ALERT_KIND_COUNT; kind++)
	{
		const char *known = alert_kind_name(kind);

		if (strlen(known) == length && memcmp(VARDATA_ANY(DatumGetTextPP(name)), known, length) == 0)
			return kind;
	}
	return KIND_OTHER;
}

static bool
count_row(TupleTableSlot *row, void *into)
{
	Tally	   *tally = into;

	tally->count[kind_of(row->tts_values[ALERT_KIND])]++;
	return true;
}

static void
notify_of(int kind, int64 count)
{
	const char *name = kind == KIND_OTHER ? "other" : alert_kind_name(kind);

	if (count > 0)
		Async_Notify(CHANNEL, psprintf("{\"kind\": \"%s\", \"count\": " INT64_FORMAT "}", name, count));
}

void
notify_alerts(TimestampTz after, TimestampTz until)
{
	Relation	alerts = rows_open(TABLE_ALERT, &alert_layout, AccessShareLock);
	Tally		tally = {0};

	rows_between(alerts, ALERT_LAST_AT, after, until, count_row, &tally);
	table_close(alerts, AccessShareLock);

	/* what waits for a person comes first */
	notify_of(ALERT_STUCK, tally.count[ALERT_STUCK]);
	for (int kind = 0; kind <= KIND_OTHER; kind++)
		if (kind != ALERT_STUCK)
			notify_of(kind, tally.count[kind]);
}
