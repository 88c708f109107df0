/*
 * operator.c: a person who looks at what is stuck, asks the downstream, and says what became of it.
 *
 * Looking an operation up outside closes it there for the attempts before, so that a verdict is never overtaken by a
 * request that was still on its way.
 */
#include <inttypes.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "torture.h"

typedef struct Operator
{
	Random		random;
	History		history;
	PGconn	   *inside;
	PGconn	   *outside;
	uint64_t	seq;
} Operator;

static void
note(Operator *it, char kind, const char *key, int attempt, const char *verdict, const char *answer, const char *result)
{
	Entry		entry = {.kind = kind, .seq = it->seq, .txn = it->seq, .call = "reconcile", .key = key, .attempt = attempt,
	.asked = verdict, .answer = answer, .replayed = -1, .result = result};

	history_write(&it->history, &entry);
}

/* Ask outside; false where there was no answer. */
static bool
look_up(Operator *it, const char *key, const char *attempt, char *token, size_t size)
{
	const char *values[2] = {key, attempt};
	PGresult   *result = PQexecParams(it->outside, "SELECT look_up($1, $2)", 2, NULL, values, NULL, NULL, 0);
	bool		good = PQresultStatus(result) == PGRES_TUPLES_OK;

	if (good)
		snprintf(token, size, "%s", PQgetvalue(result, 0, 0));
	PQclear(result);
	return good;
}

static void
judge(Operator *it, const char *key, const char *attempt)
{
	char		token[64];
	char		json[120];
	const char *verdict;
	const char *values[3];
	const char *sqlstate;
	PGresult   *result;

	if (!look_up(it, key, attempt, token, sizeof(token)))
		return;
	verdict = token[0] != '\0' ? "DONE" : random_percent(&it->random, 60) ? "RETRY" : "FAILED";
	if (token[0] == '\0')
		snprintf(token, sizeof(token), "o%" PRIu64, it->seq);
	snprintf(json, sizeof(json), "{\"token\": \"%s\"}", token);
	values[0] = key;
	values[1] = verdict;
	values[2] = strcmp(verdict, "RETRY") == 0 ? NULL : json;
	it->seq++;
	note(it, 'I', key, atoi(attempt), verdict, NULL, token);
	result = PQexecParams(it->inside, "SELECT idem_reconcile($1, $2, 'the downstream was asked', $3::jsonb), ($3::jsonb ->> 'token') || ':' || md5($3::jsonb::text)",
						  3, NULL, values, NULL, NULL, 0);
	if (PQresultStatus(result) == PGRES_TUPLES_OK)
	{
		note(it, 'A', key, atoi(attempt), verdict, PQgetvalue(result, 0, 0), PQgetvalue(result, 0, 1));
		note(it, 'T', NULL, 0, NULL, "committed", NULL);
	}
	else
	{
		sqlstate = PQresultErrorField(result, PG_DIAG_SQLSTATE);
		note(it, 'A', key, atoi(attempt), verdict, sqlstate == NULL ? "LOST" : sqlstate, NULL);
		note(it, 'T', NULL, 0, NULL, sqlstate == NULL || strncmp(sqlstate, "57P", 3) == 0 ? "unknown" : "aborted", NULL);
	}
	PQclear(result);
}

/* One round over what is stuck. */
static void
look(Operator *it)
{
	PGresult   *stuck = PQexec(it->inside, "SELECT key, attempt FROM idem_stuck");

	for (int i = 0; i < PQntuples(stuck); i++)
		if (atomic_load(&shared->settle) || random_percent(&it->random, 25))
			judge(it, PQgetvalue(stuck, i, 0), PQgetvalue(stuck, i, 1));
	PQclear(stuck);
}

static bool
connected(PGconn **db, const char *conninfo)
{
	if (*db != NULL && PQstatus(*db) == CONNECTION_OK)
		return true;
	PQfinish(*db);
	*db = PQconnectdb(conninfo);
	(void) PQsetNoticeProcessor(*db, be_silent, NULL);
	return PQstatus(*db) == CONNECTION_OK;
}

void
operator_run(int number, const char *inside, const char *outside)
{
	Operator	it = {.random = random_of(options.seed, number)};

	(void) prctl(PR_SET_PDEATHSIG, SIGKILL);
	(void) signal(SIGPIPE, SIG_IGN);
	history_open(&it.history, number);
	for (;;)
	{
		if (connected(&it.inside, inside) && connected(&it.outside, outside))
			look(&it);
		nap_ms(atomic_load(&shared->settle) ? 50 : 100 + random_below(&it.random, 500));
	}
}
