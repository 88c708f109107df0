/*
 * health.c: what idem_health() asks that only the library knows.
 *
 * Its settings are known once the library is loaded, by any of its functions, and this may be a session's first.
 */
#include "compat.h"

#include "commands/dbcommands.h"
#include "mb/pg_wchar.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"
#include "utils/varlena.h"

#include "guc.h"
#include "stat.h"

PG_FUNCTION_INFO_V1(idem_settings);
PG_FUNCTION_INFO_V1(idem_require_utf8);

/* The columns of _idem_settings(). */
enum
{
	SETTINGS_IS_PRELOADED,
	SETTINGS_IS_SERVED,
	SETTINGS_FAST_PATH,
	SETTINGS_MAX_CLOCK_SKEW,
	SETTINGS_NATTS
};

/* Does idem.databases name this database? */
static bool
is_served(void)
{
	char	   *name = get_database_name(MyDatabaseId);
	List	   *names;
	ListCell   *cell;

	if (name == NULL || !SplitIdentifierString(pstrdup(guc_databases), ',', &names))
		return false;
	foreach(cell, names)
		if (strcmp(lfirst(cell), name) == 0)
			return true;
	return false;
}

static Interval *
skew_interval(void)
{
	Interval   *skew = palloc0(sizeof(Interval));

	skew->time = (TimeOffset) guc_max_clock_skew * 1000;
	return skew;
}

/*
 * _idem_settings(idem_ack, OUT is_preloaded boolean, OUT is_served boolean, OUT fast_path boolean,
 *		OUT max_clock_skew interval) RETURNS record
 */
Datum
idem_settings(PG_FUNCTION_ARGS)
{
	TupleDesc	columns;
	Datum		values[SETTINGS_NATTS];
	bool		nulls[SETTINGS_NATTS] = {0};

	if (get_call_result_type(fcinfo, NULL, &columns) != TYPEFUNC_COMPOSITE)
		elog(ERROR, "return type must be a row type");
	values[SETTINGS_IS_PRELOADED] = BoolGetDatum(stat_is_preloaded());
	values[SETTINGS_IS_SERVED] = BoolGetDatum(is_served());
	values[SETTINGS_FAST_PATH] = BoolGetDatum(guc_fast_path);
	values[SETTINGS_MAX_CLOCK_SKEW] = IntervalPGetDatum(skew_interval());
	PG_RETURN_DATUM(HeapTupleGetDatum(heap_form_tuple(BlessTupleDesc(columns), values, nulls)));
}

/*
 * _idem_require_utf8(idem_ack) RETURNS void
 *
 * For the install script: refuses a database of another encoding.
 */
Datum
idem_require_utf8(PG_FUNCTION_ARGS)
{
	if (GetDatabaseEncoding() != PG_UTF8)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("idem needs a database with encoding UTF8"),
				 errhint("Keys and fingerprints are computed over UTF-8 bytes. Create the database with ENCODING 'UTF8'.")));
	PG_RETURN_VOID();
}
