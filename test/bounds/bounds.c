/*
 * bounds.c: what counter.c counts, for SQL.
 */
#include "postgres.h"

#include <dlfcn.h>

#include "fmgr.h"

PG_MODULE_MAGIC;

PG_FUNCTION_INFO_V1(bounds_start);
PG_FUNCTION_INFO_V1(bounds_peak);
PG_FUNCTION_INFO_V1(bounds_calls);

static long *bytes;
static long *peak;
static long *calls;
static long bytes_at_start;
static long calls_at_start;

static long *
counter(const char *name)
{
	long	   *at = dlsym(RTLD_DEFAULT, name);

	if (at == NULL)
		elog(ERROR, "the server was started without the counter");
	return at;
}

/* bounds_start() RETURNS void: count from here on */
Datum
bounds_start(PG_FUNCTION_ARGS)
{
	bytes = counter("counter_bytes");
	peak = counter("counter_peak");
	calls = counter("counter_calls");
	bytes_at_start = *peak = *bytes;
	calls_at_start = *calls;
	PG_RETURN_VOID();
}

/* bounds_peak() RETURNS bigint: by how many bytes more was held at once than at the start */
Datum
bounds_peak(PG_FUNCTION_ARGS)
{
	PG_RETURN_INT64(*peak - bytes_at_start);
}

/* bounds_calls() RETURNS bigint: how often memory was asked for */
Datum
bounds_calls(PG_FUNCTION_ARGS)
{
	PG_RETURN_INT64(*calls - calls_at_start);
}
