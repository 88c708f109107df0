/*
 * main.c: the run: servers, rounds of storm and calm, and the judgement after each.
 */
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "torture.h"

Options options = {.seconds = 120, .round = 40, .clients = 8, .folder = ".", .source = "."};
Shared *shared;

/* Everybody's children die with the controller. */
typedef struct Run
{
	Server		inside;
	Server		standby;
	Server		outside;
	Clients		clients;
	Random		random;
	pid_t		proxy;
	pid_t		operator;
	int			rounds;
	int64_t		started;
	int64_t		round_started;
	uint64_t	sums[6];		/* grants, takeovers, verdicts, effects, continued, duplicates */
} Run;

static const char inside_settings[] =
"fsync = off\nsynchronous_commit = off\nwal_writer_delay = 10s\nmax_connections = 120\nshared_buffers = 32MB\n"
"deadlock_timeout = 200ms\ncheckpoint_timeout = 30s\nmax_wal_size = 512MB\nautovacuum_naptime = 5s\n"
"max_prepared_transactions = 40\nwal_level = replica\nmax_wal_senders = 5\nwal_retrieve_retry_interval = 200ms\nidem.max_clock_skew = 500ms\n"
"log_line_prefix = '%m [%p] '\n";

static const char outside_settings[] =
"fsync = off\nsynchronous_commit = off\nmax_connections = 120\nshared_buffers = 64MB\nmax_wal_size = 1GB\n";

static int
shell(const char *format,...)
{
	char		command[2000];
	va_list		args;

	va_start(args, format);
	vsnprintf(command, sizeof(command), format, args);
	va_end(args);
	return system(command);
}

static void
script(const Server *server, const char *dbname, const char *file)
{
	if (shell("psql -qX -v ON_ERROR_STOP=1 -h %s -p 5432 -d %s -f %s/%s >%s/%s.out 2>&1", server->folder, dbname,
			  options.source, file, options.folder, file) != 0)
		fatal("%s failed; see %s/%s.out", file, options.folder, file);
}

static void
create_database(const Server *server, const char *dbname)
{
	PGconn	   *db = server_connect(server, "postgres");
	char		sql[100];

	snprintf(sql, sizeof(sql), "CREATE DATABASE %s", dbname);
	PQclear(must(db, sql));
	PQfinish(db);
}

/* ----- beginning ----- */

/* The standby takes the setting over, so that it waits for its own standby once it is promoted. */
static void
make_standby(Run *run)
{
	PGconn	   *db = server_connect(&run->inside, "postgres");

	PQclear(must(db, "ALTER SYSTEM SET synchronous_standby_names = '*'"));
	run->standby.number = 2;
	server_clone(&run->standby, &run->inside);
	PQclear(must(db, "SELECT pg_reload_conf()"));
	PQfinish(db);
}

static void
make_servers(Run *run)
{
	char		settings[1200];
	char		link[400];

	server_make(&run->outside, 9, outside_settings);
	server_start(&run->outside);
	create_database(&run->outside, "outside");
	script(&run->outside, "outside", "outside.sql");

	/* half of the seeds run with the library loaded on demand */
	snprintf(settings, sizeof(settings), "%s%s", inside_settings,
			 options.seed % 2 == 0 ? "shared_preload_libraries = 'idem'\nidem.databases = 'torture'\nidem.naptime = 1s\n" : "");
	server_make(&run->inside, 1, settings);
	server_start(&run->inside);
	create_database(&run->inside, "torture");
	script(&run->inside, "torture", "inside.sql");
	snprintf(link, sizeof(link), "%s/current", options.folder);
	if (symlink(run->inside.folder, link) < 0)
		fatal("cannot link %s", link);
	if (options.standby)
		make_standby(run);
}

static void
start_proxy(Run *run)
{
	static char paths[2][400];
	const char *const sockets[2] = {paths[0], paths[1]};
	int			listeners[2] = {proxy_listen(&run->clients.port), proxy_listen(&run->clients.outside_port)};

	snprintf(paths[0], sizeof(paths[0]), "%s/current/.s.PGSQL.5432", options.folder);
	snprintf(paths[1], sizeof(paths[1]), "%s/.s.PGSQL.5432", run->outside.folder);
	fflush(NULL);
	run->proxy = fork();
	if (run->proxy == 0)
		proxy_run(listeners, sockets);
	close(listeners[0]);
	close(listeners[1]);
}

static void
start_operator(Run *run)
{
	static char inside[500];
	static char outside[500];

	snprintf(inside, sizeof(inside), "host=%s/current port=5432 dbname=torture connect_timeout=5 options='-c client_min_messages=error -c lock_timeout=3s'", options.folder);
	snprintf(outside, sizeof(outside), "host=%s port=5432 dbname=outside", run->outside.folder);
	fflush(NULL);
	run->operator = fork();
	if (run->operator == 0)
		operator_run(100000 + run->rounds, inside, outside);
}

/* ----- a round ----- */

static void
storm(Run *run, int64_t until)
{
	History		history;

	history_open(&history, 0);
	while (now_us() < until)
	{
		int64_t		next = now_us() + 1000 * (60 + (int64_t) random_below(&run->random, 900));

		while (now_us() < next)
		{
			clients_tend(&run->clients);
			nap_ms(20);
		}
		killer_strike(&run->clients, &run->inside, &run->standby, &run->random, &history);
	}
	close(history.fd);
}

/* All clients end what they are at. */
static void
stop_clients(Run *run)
{
	Clients    *clients = &run->clients;

	atomic_store(&shared->stop, true);
	for (int slot = 0; slot < clients->count; slot++)
		clients->stalled_until[slot] = 1;
	for (int i = 0; i < 3000; i++)
	{
		int			left = 0;

		clients_tend(clients);
		for (int slot = 0; slot < clients->count; slot++)
			left += kill(clients->pid[slot], 0) == 0;
		if (left == 0)
			return;
		nap_ms(10);
	}
	say("some clients had to be killed at the round's end");
	for (int slot = 0; slot < clients->count; slot++)
		kill(clients->pid[slot], SIGKILL);
	nap_ms(200);
	reap();
}

/* The operator clears up; then nothing may be stuck any more. */
static void
settle(Run *run)
{
	PGconn	   *db = server_connect(&run->inside, "torture");

	killer_clear_prepared(&run->inside, 0, &run->random);
	nap_ms(1600);
	atomic_store(&shared->settle, true);
	for (int i = 0; i < 200; i++)
	{
		PGresult   *result = must(db, "SELECT count(*) FROM idem_record WHERE retained_until = 'infinity' AND downstream <> 'i'");
		bool		clear = strcmp(PQgetvalue(result, 0, 0), "0") == 0;

		PQclear(result);
		if (clear)
			break;
		nap_ms(100);
	}
	PQfinish(db);
	kill(run->operator, SIGKILL);
	nap_ms(100);
	reap();
	atomic_store(&shared->settle, false);
}

/* Load what everybody says happened, and judge; returns how many promises were broken. */
static int
judge(Run *run)
{
	PGconn	   *db;
	PGresult   *result;
	int			violations;

	if (shell("psql -qX -v ON_ERROR_STOP=1 -v folder=%s -v since=%" PRId64 " -h %s -p 5432 -d torture -f %s/export.sql >%s/export.out 2>&1",
			  options.folder, run->round_started, run->inside.folder, options.source, options.folder) != 0)
		fatal("export.sql failed; see %s/export.out", options.folder);
	if (shell("cat %s/history/* >%s/history.tsv && psql -qX -v ON_ERROR_STOP=1 -v folder=%s -h %s -p 5432 -d outside -f %s/check.sql >%s/check.out 2>&1",
			  options.folder, options.folder, options.folder, run->outside.folder, options.source, options.folder) != 0)
		fatal("check.sql failed; see %s/check.out", options.folder);
	if (shell("grep -hE 'terminated by signal (11|6|7|8)|PANIC|TRAP' %s/s[12]/log", options.folder) == 0)
		(void) shell("psql -qX -h %s -p 5432 -d outside -c \"INSERT INTO violation VALUES ('P11', 'the server crashed by itself; see its log')\"",
					 run->outside.folder);
	db = server_connect(&run->outside, "outside");
	result = must(db, "SELECT count(*) FROM violation");
	violations = atoi(PQgetvalue(result, 0, 0));
	PQclear(result);
	result = must(db, "SELECT grants, takeovers, verdicts, effects, continued, duplicates FROM summary");
	for (int i = 0; i < 6; i++)
		run->sums[i] += strtoull(PQgetvalue(result, 0, i), NULL, 10);
	PQclear(result);
	PQfinish(db);
	return violations;
}

static void
show_violations(Run *run, int violations)
{
	say("%d violations in round %d; seed %" PRIu64 ", after %.1f s", violations, run->rounds, options.seed,
		(now_us() - run->started) / 1e6);
	(void) shell("psql -qXAt -F ' ' -h %s -p 5432 -d outside -f %s/show.sql", run->outside.folder, options.source);
	fflush(stdout);
}

static int
run_round(Run *run, int64_t until)
{
	PGconn	   *db;
	int			violations;

	run->rounds++;
	(void) shell("rm -rf %s/history && mkdir %s/history", options.folder, options.folder);
	for (int i = 1; i <= 2; i++)
		(void) shell("[ ! -e %s/s%d/log ] || : >%s/s%d/log", options.folder, i, options.folder, i);
	db = server_connect(&run->outside, "outside");
	PQclear(must(db, "TRUNCATE effect, request, closed"));
	PQfinish(db);
	atomic_store(&shared->first_op, atomic_load(&shared->next_op));
	atomic_store(&shared->stop, false);
	atomic_store(&shared->calm, false);
	run->round_started = now_us();
	start_operator(run);
	for (int slot = 0; slot < run->clients.count; slot++)
		clients_start(&run->clients, slot);
	storm(run, until);
	atomic_store(&shared->calm, true);
	killer_calm(&run->inside);
	stop_clients(run);
	settle(run);
	violations = judge(run);
	say("round %d: %" PRIu64 " calls so far, %.0f s, %d violations", run->rounds, atomic_load(&shared->operations),
		(now_us() - run->started) / 1e6, violations);
	if (violations > 0)
		show_violations(run, violations);
	return violations;
}

/* ----- the end ----- */

static void
report(Run *run, int violations)
{
	uint64_t	crashes = 0;

	say("seed %" PRIu64 ", %d clients, %d rounds, %.0f s%s", options.seed, options.clients, run->rounds,
		(now_us() - run->started) / 1e6, options.standby ? ", with a synchronous standby" : "");
	say("%10" PRIu64 "  calls", atomic_load(&shared->operations));
	say("%10" PRIu64 "  operations previewed", atomic_load(&shared->next_op) - 1);
	say("%10" PRIu64 "  grants committed", run->sums[0]);
	say("%10" PRIu64 "  of them continued an earlier attempt", run->sums[4]);
	say("%10" PRIu64 "  of them taken over", run->sums[1]);
	say("%10" PRIu64 "  reconciled by the operator", run->sums[2]);
	say("%10" PRIu64 "  effects outside", run->sums[3]);
	say("%10" PRIu64 "  of them duplicates", run->sums[5]);
	for (int i = 0; i < FAULT_COUNT; i++)
		say("%10" PRIu64 "  %s", atomic_load(&shared->faults[i]), fault_names[i]);
	for (int i = FAULT_BACKEND_KILLED; i <= FAULT_PROMOTED; i++)
		crashes += atomic_load(&shared->faults[i]);
	say("%10" PRIu64 "  crashes survived", crashes);
	say("%10d  violations", violations);
}

static void
read_options(int argc, char **argv)
{
	static const struct option names[] = {
		{"seconds", required_argument, NULL, 's'}, {"seed", required_argument, NULL, 'S'},
		{"clients", required_argument, NULL, 'c'}, {"round", required_argument, NULL, 'r'},
		{"folder", required_argument, NULL, 'f'}, {"source", required_argument, NULL, 'd'},
		{"standby", no_argument, NULL, 'b'}, {NULL, 0, NULL, 0}
	};
	int			c;

	options.seed = (uint64_t) now_us() % 1000000;
	while ((c = getopt_long(argc, argv, "", names, NULL)) != -1)
		switch (c)
		{
			case 's':
				options.seconds = atoi(optarg);
				break;
			case 'S':
				options.seed = strtoull(optarg, NULL, 10);
				break;
			case 'c':
				options.clients = atoi(optarg);
				break;
			case 'r':
				options.round = atoi(optarg);
				break;
			case 'f':
				options.folder = optarg;
				break;
			case 'd':
				options.source = optarg;
				break;
			case 'b':
				options.standby = true;
				break;
			default:
				exit(2);
		}
	if (options.clients < 1 || options.clients > MAX_CLIENTS || options.seconds < 1 || options.round < 1)
		fatal("1 to %d clients, and at least one second", MAX_CLIENTS);
}

int
main(int argc, char **argv)
{
	static Run	run;
	int			violations = 0;

	read_options(argc, argv);
	options.folder = realpath(options.folder, NULL);
	options.source = realpath(options.source, NULL);
	if (options.folder == NULL || options.source == NULL)
		fatal("--folder and --source name folders");
	(void) prctl(PR_SET_CHILD_SUBREAPER, 1);
	(void) signal(SIGPIPE, SIG_IGN);
	shared = mmap(NULL, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (shared == MAP_FAILED)
		fatal("no memory");
	atomic_store(&shared->next_op, 1);
	run.random = random_of(options.seed, 0);
	run.clients.count = options.clients;
	say("seed %" PRIu64, options.seed);
	make_servers(&run);
	start_proxy(&run);
	run.started = now_us();
	while (violations == 0 && now_us() < run.started + (int64_t) options.seconds * 1000000)
	{
		int64_t		until = now_us() + (int64_t) options.round * 1000000;
		int64_t		end = run.started + (int64_t) options.seconds * 1000000;

		violations = run_round(&run, until < end ? until : end);
	}
	report(&run, violations);
	kill(run.proxy, SIGKILL);
	server_stop(&run.standby);
	server_stop(&run.inside);
	server_stop(&run.outside);
	return violations > 0;
}
