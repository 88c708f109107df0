/*
 * fuzz_sql.h: SQL for targets, each statement planned once.
 */
#ifndef IDEM_FUZZ_SQL_H
#define IDEM_FUZZ_SQL_H

#include "executor/spi.h"

#define COLUMNS_MAX 4

/* A statement with a letter for each parameter: 't' text, 'j' jsonb; the plan is made at its first run. */
typedef struct Statement
{
	const char *sql;
	const char *parameters;
	SPIPlanPtr	plan;
} Statement;

/* The first row of a result as text. */
typedef struct Rows
{
	uint64		count;
	char	   *column[COLUMNS_MAX];
} Rows;

/* Begin, end or undo a subtransaction. */
extern void sql_savepoint(void);
extern void sql_release_savepoint(void);
extern void sql_rollback_to_savepoint(void);

/*
 * Run a statement in a subtransaction, kept if it succeeds; nulls may be NULL.  Returns the SQLSTATE of its error, or
 * 0.  Errors are judged as attempt() does, but where allowed is NULL there may be none.
 */
extern int	sql_run(Statement *statement, const Datum *values, const char *nulls, const int *allowed, Rows *rows);

/* End the transaction and begin another. */
extern int	sql_commit(const int *allowed);
extern void sql_rollback(void);

#endif							/* IDEM_FUZZ_SQL_H */
