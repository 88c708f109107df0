/*
 * schedules.c: two open transactions, one of A's and one of B's, their calls interleaved.
 *
 * The generator walks through every order of calls, rollbacks to a savepoint and ends in which the two overlap,
 * from each state that a record may be in at first.  Of the calls only so many may change nothing: more of them
 * in one schedule tell no more than as many schedules.  A call that must wait for the other's transaction is seen
 * to wait, and is answered when the model says so.
 */
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "interleave.h"
#include "server.h"

#define WORKERS 4
#define PATIENCE 20000			/* milliseconds */
#define STROLL_CALLS 4
#define MOST_MOVES 32

typedef struct Start
{
	const char *name;
	Record		record;
	bool		deduplicates;
	bool		expired;
} Start;

/* token 0 is A's first */
static const Start starts[] = {
	{"nothing", {.exists = false}, false, false},
	{"nothing, expired", {.exists = false}, false, true},
	{"A's claim", {.exists = true, .state = STATE_IN_FLIGHT, .attempt = 1}, false, false},
	{"A's claim, lease over", {.exists = true, .state = STATE_IN_FLIGHT, .attempt = 1, .lease_over = true}, false, false},
	{"A's claim, lease over, takeover allowed", {.exists = true, .state = STATE_IN_FLIGHT, .attempt = 1, .lease_over = true}, true, true},
	{"released by A", {.exists = true, .state = STATE_RELEASED, .attempt = 2, .result = 1}, false, true},
	{"to be retried by a verdict", {.exists = true, .state = STATE_RELEASED, .attempt = 1, .by_verdict = true}, true, false},
	{"done by A", {.exists = true, .state = STATE_DONE, .attempt = 1, .result = 1}, false, false},
	{"failed by A", {.exists = true, .state = STATE_FAILED, .attempt = 1, .result = 1}, false, true},
	{"done, lapsed", {.exists = true, .state = STATE_DONE, .attempt = 3, .result = 1, .lapsed = true}, false, false},
	{"released, lapsed", {.exists = true, .state = STATE_RELEASED, .attempt = 1, .lapsed = true}, true, true},
};

#define NSTARTS ((int) (sizeof(starts) / sizeof(starts[0])))

/* Where a walk through the moves has come to, in thought or on the server. */
typedef struct Walk
{
	const Start *start;
	World		world;
	int			calls[2];
	bool		ended[2];
	bool		waits[2];
	Op			waiting[2];
	bool		may_undo[2];
	bool		purges;
	int			idle;
	int			nmoves;
	Op			moves[MOST_MOVES];
} Walk;

/* What may run at the same time, since a purge takes what has lapsed anywhere. */
typedef enum Class
{
	CLASS_NOT_LAPSED,
	CLASS_LAPSED,
	CLASS_LAPSED_PURGED,
	CLASSES
} Class;

typedef struct Worker
{
	PGconn	   *conn[3];
	Target		target;
	Tally	   *tally;
	bool		begun[2];
	bool		wrong;
} Worker;

static const Extent *extent;
static long number;				/* of the schedule that the walk has come to */
static unsigned long random_state;
static Class wanted_class;
static Worker *worker;			/* NULL: only count */
static int	worker_number;
static int	nworkers;
static pid_t parent;
static long counted[CLASSES];

/* ----- on the server ----- */

static void
complain(const Walk *walk, const char *what, const char *expected, const char *got)
{
	worker->wrong = true;
	if (__atomic_fetch_add(&worker->tally->disagreements, 1, __ATOMIC_RELAXED) >= MOST_SHOWN)
		return;
	printf("not as computed: %s is \"%s\" and should be \"%s\" (%s%s):", what, got, expected, walk->start->name,
		   walk->world.repeatable ? ", repeatable read" : "");
	for (int i = 0; i < walk->nmoves; i++)
		printf("%s %s %s", i == 0 ? "" : ",", walk->moves[i].actor == 0 ? "A" : "B", op_name(walk->moves[i].kind));
	printf("\n");
	fflush(stdout);
}

/* Is there a result within so many milliseconds? */
static bool
has_result(PGconn *conn, int milliseconds)
{
	struct pollfd wait = {.fd = PQsocket(conn), .events = POLLIN};

	while (PQconsumeInput(conn) && PQisBusy(conn))
		if (poll(&wait, 1, milliseconds) <= 0)
			return false;
	return true;
}

static void
drain(PGconn *conn)
{
	PGresult   *result;

	while ((result = PQgetResult(conn)) != NULL)
		PQclear(result);
}

static void
cancel(PGconn *conn)
{
	PGcancel   *cancel = PQgetCancel(conn);
	char		error[256];

	(void) PQcancel(cancel, error, sizeof(error));
	PQfreeCancel(cancel);
	drain(conn);
}

static void
take_answer(const Walk *walk, Op op, const char *expected)
{
	PGconn	   *conn = worker->conn[op.actor];
	char		answer[ANSWER_LENGTH];
	char		what[64];
	bool		same;

	snprintf(what, sizeof(what), "the answer to %s %s", op.actor == 0 ? "A" : "B", op_name(op.kind));
	if (!has_result(conn, PATIENCE))
	{
		complain(walk, what, expected, "none, it hangs");
		cancel(conn);
		return;
	}
	PGresult   *result = PQgetResult(conn);

	server_answer(result, answer);
	PQclear(result);
	drain(conn);
	/* of somebody at work the attempt may be told, or not */
	same = strcmp(answer, expected) == 0 ||
		(strncmp(expected, "IN_FLIGHT||", 11) == 0 && strncmp(answer, "IN_FLIGHT|", 10) == 0 &&
		 strcmp(strchr(answer + 10, '|'), expected + 10) == 0);
	if (!same)
		complain(walk, what, expected, answer);
	if (PQtransactionStatus(conn) == PQTRANS_INERROR)
		PQclear(server_run(conn, "ROLLBACK TO s"));
}

/* Wait until the call is seen to wait for a lock. */
static void
await_wait(const Walk *walk, Op op)
{
	char		query[160];

	snprintf(query, sizeof(query), "SELECT count(*) FROM pg_stat_get_activity(%d) WHERE wait_event_type = 'Lock'",
			 PQbackendPID(worker->conn[op.actor]));
	for (int i = 0; i < PATIENCE; i++)
	{
		PGresult   *result = server_run(worker->conn[OPERATOR], query);
		bool		waits = PQgetvalue(result, 0, 0)[0] == '1';

		PQclear(result);
		if (waits)
			return;
		if (has_result(worker->conn[op.actor], 1))
			break;
	}
	complain(walk, op_name(op.kind), "waiting", "not waiting");
	cancel(worker->conn[op.actor]);
}

static void
send_move(const Walk *walk, Op op, const char *expected, Turn turn)
{
	PGconn	   *conn = worker->conn[op.actor];

	worker->tally->steps++;
	switch (op.kind)
	{
		case OP_END:
		case OP_ROLLBACK:
			PQclear(server_run(conn, op.kind == OP_END ? "COMMIT" : "ROLLBACK"));
			return;
		case OP_UNDO:
			PQclear(server_run(conn, "ROLLBACK TO s"));
			return;
		default:
			break;
	}
	if (worker->begun[op.actor])
		PQclear(server_run(conn, "SAVEPOINT s"));
	else
		PQclear(server_run(conn, walk->world.repeatable ?
						   "BEGIN ISOLATION LEVEL REPEATABLE READ; SAVEPOINT s" : "BEGIN; SAVEPOINT s"));
	worker->begun[op.actor] = true;
	server_send(conn, &worker->target, op, walk->world.brought, walk->world.expired);
	if (turn == TURN_WAITS)
		await_wait(walk, op);
	else
		take_answer(walk, op, expected);
}

/* ----- one move, in thought and, where there is a worker at it, on the server ----- */

static void
note_idle(Walk *walk, unsigned long before)
{
	if (world_situation(&walk->world) == before)
		walk->idle++;
}

/* Whoever waited: is it answered now? */
static void
wake(Walk *walk, int actor, bool on_server)
{
	char		expected[ANSWER_LENGTH];

	if (!walk->waits[actor] || step_within(&walk->world, walk->waiting[actor], expected) == TURN_WAITS)
		return;
	walk->waits[actor] = false;
	walk->may_undo[actor] = true;
	if (on_server)
		take_answer(walk, walk->waiting[actor], expected);
}

static void
make_move(Walk *walk, Op op, bool on_server)
{
	char		expected[ANSWER_LENGTH];
	unsigned long before = world_situation(&walk->world);
	Turn		turn;

	walk->moves[walk->nmoves++] = op;
	turn = step_within(&walk->world, op, expected);
	if (op.kind < OP_UNDO)
	{
		walk->calls[op.actor]++;
		walk->may_undo[op.actor] = turn == TURN_ANSWERED;
		walk->purges |= op.kind == OP_PURGE;
		if (turn == TURN_ANSWERED)
			note_idle(walk, before);
	}
	else
	{
		walk->may_undo[op.actor] = false;
		walk->ended[op.actor] |= op.kind != OP_UNDO;
	}
	if (turn == TURN_WAITS)
	{
		walk->waits[op.actor] = true;
		walk->waiting[op.actor] = op;
	}
	if (on_server)
	{
		situation_reached(worker->tally, &walk->world);
		worker->tally->waits += turn == TURN_WAITS;
		send_move(walk, op, expected, turn);
	}
	wake(walk, 1 - op.actor, on_server);
}

/* ----- a whole schedule on the server ----- */

static void
begin_walk(Walk *walk, const Start *start, bool repeatable)
{
	*walk = (Walk) {.start = start};
	world_init(&walk->world, start->deduplicates);
	walk->world.record = start->record;
	walk->world.expired = start->expired;
	walk->world.repeatable = repeatable;
}

static void
compare_end(const Walk *walk)
{
	char		expected[ANSWER_LENGTH];
	char		answer[ANSWER_LENGTH];
	World		world = walk->world;
	Op			status = {OP_STATUS, OPERATOR};
	PGresult   *result;

	tell_record(&world.record, expected);
	result = server_record(worker->conn[OPERATOR], &worker->target);
	server_answer(result, answer);
	PQclear(result);
	if (strcmp(answer, expected) != 0)
		complain(walk, "the record at the end", expected, answer);
	(void) step_alone(&world, status, expected);
	server_send(worker->conn[OPERATOR], &worker->target, status, 0, world.expired);
	result = PQgetResult(worker->conn[OPERATOR]);
	server_answer(result, answer);
	PQclear(result);
	drain(worker->conn[OPERATOR]);
	if (strcmp(answer, expected) != 0)
		complain(walk, "the status at the end", expected, answer);
}

static void
run_schedule(const Walk *plan)
{
	Walk		walk;

	begin_walk(&walk, plan->start, plan->world.repeatable);
	worker->target = (Target) {.slot = worker_number, .door = DOOR_FINGERPRINT,
		.scope = server_scope(plan->start->deduplicates, worker_number)};
	server_name_targets(worker->conn[OPERATOR], &worker->target, 1);
	if (plan->start->record.exists)
		server_put_record(worker->conn[OPERATOR], &worker->target, &plan->start->record, plan->start->deduplicates);
	worker->wrong = worker->begun[0] = worker->begun[1] = false;
	for (int i = 0; i < plan->nmoves && !worker->wrong; i++)
		make_move(&walk, plan->moves[i], true);
	worker->tally->runs++;
	if (!worker->wrong)
		compare_end(&walk);
	for (int i = 0; worker->wrong && i < 2; i++)
	{
		if (PQtransactionStatus(worker->conn[i]) == PQTRANS_ACTIVE)
			cancel(worker->conn[i]);
		PQclear(server_run(worker->conn[i], "ROLLBACK"));
	}
	server_forget(worker->conn[OPERATOR], &worker->target);
}

/* ----- enumerating ----- */

static void
complete(const Walk *walk)
{
	Class		class = !walk->start->record.lapsed ? CLASS_NOT_LAPSED :
		walk->purges ? CLASS_LAPSED_PURGED : CLASS_LAPSED;
	long		mine = number++;

	/* a run that was broken off shall not go on here */
	if (worker != NULL && getppid() != parent)
		_exit(1);
	if (worker == NULL)
		counted[class]++;
	else if (class == wanted_class && mine % nworkers == worker_number)
		run_schedule(walk);
}

/* The moves that there are; returns their number. */
static int
list_moves(const Walk *walk, int calls, Op *moves)
{
	int			n = 0;

	for (int actor = 0; actor < 2; actor++)
	{
		const Change *change = &walk->world.change[actor];

		if (walk->ended[actor] || walk->waits[actor])
			continue;
		/* who begins after the other's end overlaps with nothing */
		if (walk->calls[actor] < calls && !(walk->calls[actor] == 0 && walk->ended[1 - actor]))
			for (int kind = 0; kind <= OP_PURGE; kind++)
				/* what differs from others in the result alone, or in what is refused outside transactions too */
				if (kind != OP_COMMIT_OTHER && kind != OP_DONE && kind != OP_FAILED_FORCED)
					moves[n++] = (Op) {kind, actor};
		if (walk->calls[actor] > 0)
			moves[n++] = (Op) {OP_END, actor};
		if (change->made)
			moves[n++] = (Op) {OP_ROLLBACK, actor};
		if (change->made && walk->may_undo[actor])
			moves[n++] = (Op) {OP_UNDO, actor};
	}
	return n;
}

static void
walk_on(const Walk *walk)
{
	Op			moves[2 * OP_KINDS];
	int			n = list_moves(walk, extent->calls, moves);

	if (walk->idle > extent->idle)
		return;
	if (walk->ended[0] && walk->ended[1])
		complete(walk);
	for (int i = 0; i < n; i++)
	{
		Walk		next = *walk;

		make_move(&next, moves[i], false);
		walk_on(&next);
	}
}

/* xorshift: the same walks wherever it runs */
static unsigned long
some(unsigned long n)
{
	random_state ^= random_state << 13;
	random_state ^= random_state >> 7;
	random_state ^= random_state << 17;
	return (random_state >> 16) % n;
}

/* A walk by chance: longer transactions than could all be enumerated. */
static void
stroll(void)
{
	Walk		walk;
	Op			moves[2 * OP_KINDS];
	int			n;

	begin_walk(&walk, &starts[some(NSTARTS)], some(2) == 1);
	while ((n = list_moves(&walk, STROLL_CALLS, moves)) > 0)
	{
		Walk		next = walk;

		make_move(&next, moves[some(n)], false);
		/* calls that change nothing are a few, or strolls would be of little else */
		if (next.idle <= 2 || walk.nmoves >= MOST_MOVES - 2 * STROLL_CALLS)
			walk = next;
	}
	if (walk.ended[0] && walk.ended[1])
		complete(&walk);
}

static void
walk_all(void)
{
	number = 0;
	random_state = 0x1d5eed;
	for (long i = 0; i < extent->strolls; i++)
		stroll();
	for (int repeatable = 0; repeatable < (extent->all ? 2 : 1); repeatable++)
		for (int i = 0; i < NSTARTS; i++)
		{
			Walk		walk;

			begin_walk(&walk, &starts[i], repeatable);
			walk_on(&walk);
		}
}

/* ----- workers ----- */

static void
work(Tally *tally)
{
	Worker		me = {.tally = tally};

	for (int i = 0; i < 3; i++)
		me.conn[i] = server_connect();
	worker = &me;
	walk_all();
	for (int i = 0; i < 3; i++)
		PQfinish(me.conn[i]);
	fflush(stdout);
	_exit(0);
}

static void
add_tally(Tally *sum, const Tally *part)
{
	sum->runs += part->runs;
	sum->steps += part->steps;
	sum->waits += part->waits;
	sum->disagreements += part->disagreements;
	for (int i = 0; i < MOST_SITUATIONS; i++)
		if (part->situations[i] != 0)
			situation_add(sum, part->situations[i]);
}

static void
run_class(Class class, Tally *tally)
{
	Tally	   *parts = mmap(NULL, WORKERS * sizeof(Tally), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	if (parts == MAP_FAILED)
		die("no memory");
	wanted_class = class;
	parent = getpid();
	nworkers = class == CLASS_LAPSED_PURGED ? 1 : WORKERS;
	for (worker_number = 0; worker_number < nworkers; worker_number++)
		if (fork() == 0)
			work(&parts[worker_number]);
	for (int i = 0; i < nworkers; i++)
	{
		int			status;

		if (wait(&status) < 0 || status != 0)
			die("a worker failed");
	}
	for (int i = 0; i < nworkers; i++)
		add_tally(tally, &parts[i]);
	munmap(parts, WORKERS * sizeof(Tally));
}

void
run_schedules(const Extent *how_far, Tally *tally)
{
	extent = how_far;
	worker = NULL;
	walk_all();
	printf("%ld schedules of two transactions, %ld of them by chance\n", number, extent->strolls);
	fflush(stdout);
	for (Class class = 0; class < CLASSES; class++)
		if (counted[class] > 0)
			run_class(class, tally);
}
