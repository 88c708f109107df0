/*
 * fuzz_sql.c: SQL for targets, each statement planned once.
 */
#include "compat.h"

#include "access/xact.h"
#include "catalog/pg_type.h"
#include "utils/resowner.h"

#include "fuzz.h"
#include "fuzz_sql.h"

static const int none[] = {0};
static MemoryContext outer_context;

void
sql_savepoint(void)
{
	MemoryContext before = CurrentMemoryContext;

	BeginInternalSubTransaction(NULL);
	MemoryContextSwitchTo(before);
}

void
sql_release_savepoint(void)
{
	MemoryContext before = CurrentMemoryContext;

	ReleaseCurrentSubTransaction();
	MemoryContextSwitchTo(before);
}

void
sql_rollback_to_savepoint(void)
{
	MemoryContext before = CurrentMemoryContext;

	RollbackAndReleaseCurrentSubTransaction();
	MemoryContextSwitchTo(before);
}

static void
plan_statement(Statement *statement)
{
	Oid			types[16];
	int			count = strlen(statement->parameters);

	for (int i = 0; i < count; i++)
		types[i] = statement->parameters[i] == 'j' ? JSONBOID : TEXTOID;
	statement->plan = SPI_prepare(statement->sql, count, types);
	CHECK(statement->plan != NULL && SPI_keepplan(statement->plan) == 0);
}

typedef struct Run
{
	Statement  *statement;
	const Datum *values;
	const char *nulls;
	Rows	   *rows;
} Run;

static void
run_plan(void *argument)
{
	Run		   *run = argument;
	int			rc;

	if (run->statement->plan == NULL)
		plan_statement(run->statement);
	rc = SPI_execute_plan(run->statement->plan, (Datum *) run->values, run->nulls, false, 0);
	CHECK(rc > 0);
	run->rows->count = SPI_processed;
	if (SPI_tuptable == NULL || SPI_processed == 0)
		return;
	for (int i = 0; i < Min(SPI_tuptable->tupdesc->natts, COLUMNS_MAX); i++)
	{
		char	   *value = SPI_getvalue(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, i + 1);

		run->rows->column[i] = value == NULL ? NULL : MemoryContextStrdup(outer_context, value);
	}
	SPI_freetuptable(SPI_tuptable);
}

int
sql_run(Statement *statement, const Datum *values, const char *nulls, const int *allowed, Rows *rows)
{
	Run			run = {statement, values, nulls, rows};
	int			code;

	outer_context = CurrentMemoryContext;
	sql_savepoint();
	code = attempt(run_plan, &run, allowed != NULL ? allowed : none);
	if (code == 0)
		sql_release_savepoint();
	else
		sql_rollback_to_savepoint();
	return code;
}

static void
run_commit(void *argument)
{
	SPI_commit();
}

int
sql_commit(const int *allowed)
{
	MemoryContext before = CurrentMemoryContext;
	int			code = attempt(run_commit, NULL, allowed);

	MemoryContextSwitchTo(before);
	return code;
}

void
sql_rollback(void)
{
	MemoryContext before = CurrentMemoryContext;

	SPI_rollback();
	MemoryContextSwitchTo(before);
}
