/*
 * killer.c: bad days, on demand.
 *
 * Each strike is noted in the history (client 0): the checker wants to know what can explain an error.
 */
#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "torture.h"

const char *const fault_names[FAULT_COUNT] = {
	"client killed", "client stalled", "backend terminated", "backend cancelled", "backend killed",
	"immediate shutdown", "postmaster killed", "power cut", "standby promoted", "fast table truncated",
	"fast table locked", "fast table rewritten", "fast path switched", "secret rotated", "secret revoked",
	"purged", "reply dropped", "request dropped", "message delayed"
};

/* Of a hundred strikes, how many are of which kind. */
static const int weights[FAULT_COUNT] = {
	[FAULT_CLIENT_KILLED] = 18, [FAULT_CLIENT_STALLED] = 9, [FAULT_BACKEND_TERMINATED] = 14,
	[FAULT_BACKEND_CANCELLED] = 7, [FAULT_BACKEND_KILLED] = 3, [FAULT_IMMEDIATE_SHUTDOWN] = 3,
	[FAULT_POSTMASTER_KILLED] = 3, [FAULT_POWER_CUT] = 5, [FAULT_PROMOTED] = 4, [FAULT_FAST_TRUNCATED] = 8,
	[FAULT_FAST_LOCKED] = 6, [FAULT_FAST_REWRITTEN] = 3, [FAULT_FAST_PATH_SWITCHED] = 5,
	[FAULT_SECRET_ROTATED] = 3, [FAULT_SECRET_REVOKED] = 4, [FAULT_PURGED] = 7
};

static uint64_t seq = 0;

/* ----- clients ----- */

void
clients_start(Clients *clients, int slot)
{
	int			number = ++clients->made;
	pid_t		pid;

	fflush(NULL);
	pid = fork();
	if (pid == 0)
		client_run(number, slot, clients->port, clients->outside_port);
	clients->pid[slot] = pid;
	clients->stalled_until[slot] = 0;
	atomic_store(&shared->call_since[slot], 0);
}

/* A client that waits longer than any wait may last. */
static void
watch_for_hang(Clients *clients, int slot)
{
	int64_t		since = atomic_load(&shared->call_since[slot]);

	if (since == 0 || clients->stalled_until[slot] != 0 || now_us() - since < 60000000)
		return;
	say("violation: P11: a call of the client in slot %d hangs for a minute (seed %" PRIu64 ")", slot, options.seed);
	exit(1);
}

/* Wake who has stalled long enough, and replace the dead: by somebody who remembers nothing. */
void
clients_tend(Clients *clients)
{
	reap();
	for (int slot = 0; slot < clients->count; slot++)
	{
		if (clients->stalled_until[slot] != 0 && now_us() >= clients->stalled_until[slot])
		{
			clients->stalled_until[slot] = 0;
			atomic_store(&shared->call_since[slot], 0);
			kill(clients->pid[slot], SIGCONT);
		}
		if (kill(clients->pid[slot], 0) < 0 && errno == ESRCH && !atomic_load(&shared->stop))
			clients_start(clients, slot);
		watch_for_hang(clients, slot);
	}
}

static void
strike_client(Clients *clients, Fault fault, Random *random)
{
	int			slot = (int) random_below(random, clients->count);

	if (fault == FAULT_CLIENT_KILLED)
		kill(clients->pid[slot], SIGKILL);
	else
	{
		kill(clients->pid[slot], SIGSTOP);
		clients->stalled_until[slot] = now_us() + 200000 + (int64_t) random_below(random, 4000000);
	}
}

/* ----- the server ----- */

static void
note(History *history, char kind, const char *call, const char *asked, const char *answer)
{
	Entry		entry = {.kind = kind, .seq = seq, .txn = seq, .call = call, .asked = asked, .answer = answer, .replayed = -1};

	history_write(history, &entry);
}

static void
strike_backend(Server *inside, Fault fault, Random *random)
{
	PGconn	   *db = server_connect(inside, "torture");
	PGresult   *pids = PQexec(db, "SELECT pid FROM pg_stat_activity WHERE application_name = 'torture' ORDER BY pid");

	if (PQresultStatus(pids) == PGRES_TUPLES_OK && PQntuples(pids) > 0)
	{
		const char *pid = PQgetvalue(pids, (int) random_below(random, PQntuples(pids)), 0);

		kill(atoi(pid), fault == FAULT_BACKEND_KILLED ? SIGKILL : fault == FAULT_BACKEND_TERMINATED ? SIGTERM : SIGINT);
	}
	PQclear(pids);
	PQfinish(db);
}

/* Run statements; the first to fail ends them. */
static void
run(Server *inside, const char *const *statements)
{
	PGconn	   *db = server_connect(inside, "torture");

	for (int i = 0; statements[i] != NULL; i++)
	{
		PGresult   *result = PQexec(db, statements[i]);
		bool		good = PQresultStatus(result) == PGRES_COMMAND_OK || PQresultStatus(result) == PGRES_TUPLES_OK;

		PQclear(result);
		if (!good)
			break;
	}
	PQfinish(db);
}

/* Prepared transactions that were left behind, so many seconds ago, are committed or rolled back. */
void
killer_clear_prepared(Server *inside, int seconds, Random *random)
{
	char		sql[200];
	PGconn	   *db = server_connect(inside, "torture");
	PGresult   *left;

	snprintf(sql, sizeof(sql), "SELECT gid FROM pg_prepared_xacts WHERE prepared <= clock_timestamp() - interval '%d s' ORDER BY gid", seconds);
	left = PQexec(db, sql);
	for (int i = 0; PQresultStatus(left) == PGRES_TUPLES_OK && i < PQntuples(left); i++)
	{
		snprintf(sql, sizeof(sql), "%s PREPARED '%s'", random_percent(random, 50) ? "COMMIT" : "ROLLBACK", PQgetvalue(left, i, 0));
		PQclear(PQexec(db, sql));
	}
	PQclear(left);
	PQfinish(db);
}

static void
strike_fast_table(Server *inside, Fault fault, Random *random)
{
	char		nap[60];
	const char *truncate[] = {"SET lock_timeout = '3s'", "TRUNCATE idem_fast", NULL};
	const char *rewrite[] = {"SET lock_timeout = '3s'", random_percent(random, 50) ? "VACUUM FULL idem_fast" : "REINDEX TABLE idem_fast", NULL};
	const char *lock[] = {"SET lock_timeout = '3s'", "BEGIN", "LOCK TABLE idem_fast IN ACCESS EXCLUSIVE MODE", nap, "COMMIT", NULL};

	snprintf(nap, sizeof(nap), "SELECT pg_sleep(%d / 1000.0)", (int) random_below(random, 1500));
	run(inside, fault == FAULT_FAST_TRUNCATED ? truncate : fault == FAULT_FAST_LOCKED ? lock : rewrite);
}

static void
switch_fast_path(Server *inside, bool on)
{
	const char *statements[] = {on ? "ALTER SYSTEM SET idem.fast_path = on" : "ALTER SYSTEM SET idem.fast_path = off",
	"SELECT pg_reload_conf()", NULL};

	run(inside, statements);
}

static void
crash(Server *inside, Fault fault)
{
	server_crash(inside, fault == FAULT_IMMEDIATE_SHUTDOWN ? CRASH_IMMEDIATE :
				 fault == FAULT_POSTMASTER_KILLED ? CRASH_POSTMASTER : CRASH_POWER);
	server_start(inside);
}

/* The primary is lost and the standby takes its place; the former comes back as the new one's standby. */
static void
promote(Server *inside, Server *standby)
{
	Server		lost = *inside;
	char		link[400];

	/* what the primary showed after a restart may not have reached the standby yet */
	nap_ms(1500);
	server_crash(inside, CRASH_POWER);
	server_promote(standby);
	*inside = *standby;
	*standby = lost;
	snprintf(link, sizeof(link), "%s/current", options.folder);
	(void) unlink(link);
	if (symlink(inside->folder, link) < 0)
		fatal("cannot link %s", link);
	server_clone(standby, inside);
}

/* ----- secrets ----- */

static void
probe_revoked(Server *inside, PGconn *db, const char *fingerprint, History *history)
{
	const char *values[1] = {fingerprint};
	PGconn	   *other = server_connect(inside, "torture");
	PGconn	   *both[2] = {db, other};

	for (int i = 0; i < 2; i++)
	{
		PGresult   *result = PQexecParams(both[i], "SELECT outcome FROM idem_acquire($1, 'agent', 'opaque', '{\"op\": 0}')",
										  1, NULL, values, NULL, NULL, 0);

		seq++;
		note(history, 'I', "acquire", "revoked", NULL);
		if (PQresultStatus(result) == PGRES_TUPLES_OK)
			note(history, 'A', "acquire", "revoked", PQgetvalue(result, 0, 0));
		PQclear(result);
	}
	PQfinish(other);
}

/*
 * What a revoked secret has signed is worth nothing any more.  Mostly one that signed for a moment only, so that the
 * clients do not lose all that they have.
 */
static void
revoke_secret(Server *inside, Random *random, History *history)
{
	PGconn	   *db = server_connect(inside, "torture");
	PGresult   *result;
	char		fingerprint[512] = "";
	char		id[100] = "";
	const char *values[1] = {id};

	if (random_percent(random, 75))
		PQclear(PQexec(db, "SELECT idem_rotate_secret()"));
	result = PQexec(db, "SELECT id, idem_sign('agent', 'opaque', '{\"op\": 0}') FROM idem_secrets WHERE signing");
	if (PQresultStatus(result) == PGRES_TUPLES_OK && PQntuples(result) == 1)
	{
		snprintf(id, sizeof(id), "%s", PQgetvalue(result, 0, 0));
		snprintf(fingerprint, sizeof(fingerprint), "%s", PQgetvalue(result, 0, 1));
	}
	PQclear(result);
	seq++;
	note(history, 'I', "secret revoked", NULL, NULL);
	PQclear(PQexec(db, "SELECT idem_rotate_secret()"));
	result = PQexecParams(db, "SELECT idem_revoke_secret($1)", 1, NULL, values, NULL, NULL, 0);
	if (PQresultStatus(result) == PGRES_TUPLES_OK)
	{
		note(history, 'A', "secret revoked", NULL, "OK");
		probe_revoked(inside, db, fingerprint, history);
	}
	PQclear(result);
	PQfinish(db);
}

/* ----- the choice ----- */

static bool
is_possible(Fault fault)
{
	if (fault == FAULT_PROMOTED)
		return options.standby;

	/* a wait for the standby that is cancelled ends in an acknowledgement that means less */
	return fault != FAULT_BACKEND_CANCELLED || !options.standby;
}

static Fault
choose(Random *random)
{
	int			sum = 0;
	int			at;

	for (int i = 0; i < FAULT_COUNT; i++)
		sum += weights[i];
	at = (int) random_below(random, sum);
	for (int i = 0; i < FAULT_COUNT; i++)
	{
		at -= weights[i];
		if (at < 0)
			return (Fault) i;
	}
	return FAULT_CLIENT_KILLED;
}

static void
strike(Fault fault, Clients *clients, Server *inside, Server *standby, Random *random, History *history)
{
	static const char *const rotate[] = {"SELECT idem_rotate_secret()", NULL};
	static const char *const purge[] = {"SELECT idem_purge()", "SELECT * FROM idem_maintain()", NULL};

	switch (fault)
	{
		case FAULT_CLIENT_KILLED:
		case FAULT_CLIENT_STALLED:
			strike_client(clients, fault, random);
			break;
		case FAULT_BACKEND_TERMINATED:
		case FAULT_BACKEND_CANCELLED:
		case FAULT_BACKEND_KILLED:
			strike_backend(inside, fault, random);
			break;
		case FAULT_IMMEDIATE_SHUTDOWN:
		case FAULT_POSTMASTER_KILLED:
		case FAULT_POWER_CUT:
			crash(inside, fault);
			break;
		case FAULT_PROMOTED:
			promote(inside, standby);
			break;
		case FAULT_FAST_TRUNCATED:
		case FAULT_FAST_LOCKED:
		case FAULT_FAST_REWRITTEN:
			strike_fast_table(inside, fault, random);
			break;
		case FAULT_FAST_PATH_SWITCHED:
			switch_fast_path(inside, random_percent(random, 60));
			break;
		case FAULT_SECRET_ROTATED:
			run(inside, rotate);
			break;
		case FAULT_SECRET_REVOKED:
			revoke_secret(inside, random, history);
			break;
		default:
			run(inside, purge);
			killer_clear_prepared(inside, 3, random);
			break;
	}
}

void
killer_strike(Clients *clients, Server *inside, Server *standby, Random *random, History *history)
{
	Fault		fault = choose(random);
	uint64_t	mine;

	if (!is_possible(fault))
		return;
	mine = ++seq;
	note(history, 'I', fault_names[fault], NULL, NULL);
	strike(fault, clients, inside, standby, random, history);
	seq++;
	{
		Entry		entry = {.kind = 'A', .seq = mine, .txn = mine, .call = fault_names[fault], .answer = "OK", .replayed = -1};

		history_write(history, &entry);
	}
	atomic_fetch_add(&shared->faults[fault], 1);
}

/* After the storm: the server runs, and works as it does by default. */
void
killer_calm(Server *inside)
{
	server_start(inside);
	switch_fast_path(inside, true);
}
