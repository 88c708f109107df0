/*
 * sequences.c: two actors, an operator and the clock, each call a transaction of its own.
 *
 * Enumerated are all sequences of a length, and beyond it those longer ones in which every step but the last
 * changes something: after a step that changes nothing, what follows is a shorter sequence.  Every prefix of a
 * sequence is checked as well, since after every step both the answer and the row, its version included, are
 * compared with the model's.
 *
 * Many sequences run side by side, one step of each at a time, each actor's calls in a pipeline.  A purge takes
 * what has lapsed anywhere, so only sequences with their purges at the same places run together.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "interleave.h"
#include "server.h"

#define LONGEST 8

typedef struct Sequence
{
	bool		deduplicates;
	Op			ops[LONGEST];
} Sequence;

typedef struct Bucket
{
	int			length;
	int			count;
	Sequence	sequences[SLOTS];
} Bucket;

/* One sequence while it runs. */
typedef struct Run
{
	const Sequence *sequence;
	World		world;
	Target		target;
	char		version[64];
	bool		wrong;
} Run;

static Bucket buckets[LONGEST + 1][1 << LONGEST];
static PGconn *conns[3];
static Tally *tally;
static const Extent *extent;
static int	flushes = 0;

/* ----- running ----- */

static void
complain(Run *run, int length, int step, const char *what, const char *expected, const char *got)
{
	run->wrong = true;
	if (tally->disagreements++ >= MOST_SHOWN)
		return;
	printf("not as computed: %s of step %d is \"%s\" and should be \"%s\" (%s, door %d):", what, step + 1, got, expected,
		   run->target.scope, run->target.door);
	for (int i = 0; i < length; i++)
		printf("%s %s %s", i == 0 ? "" : ",", (const char *[]) {"A", "B", "-"}[run->sequence->ops[i].actor],
			   op_name(run->sequence->ops[i].kind));
	printf("\n");
}

static void
send_step(Run *runs, int n, int step, char (*expected)[ANSWER_LENGTH], bool *written)
{
	bool		purges = false;

	for (int i = 0; i < n; i++)
	{
		Op			op = runs[i].sequence->ops[step];
		bool		expired = runs[i].world.expired && runs[i].target.door == DOOR_FINGERPRINT;

		if (runs[i].target.door != DOOR_FINGERPRINT)
			runs[i].world.expired = false;
		written[i] = step_alone(&runs[i].world, op, expected[i]);
		situation_reached(tally, &runs[i].world);
		tally->steps++;
		if (op.kind == OP_PURGE)
		{
			purges = true;
			continue;
		}
		server_send(conns[op.actor], &runs[i].target, op, runs[i].world.brought, expired);
		if (!PQpipelineSync(conns[op.actor]))
			die("%s", PQerrorMessage(conns[op.actor]));
	}
	if (purges)
	{
		server_send(conns[OPERATOR], &runs[0].target, (Op) {OP_PURGE, OPERATOR}, 0, false);
		if (!PQpipelineSync(conns[OPERATOR]))
			die("%s", PQerrorMessage(conns[OPERATOR]));
	}
}

/* The next answer of a connection in a pipeline. */
static void
take_answer(PGconn *conn, char *answer)
{
	PGresult   *result = PQgetResult(conn);

	if (result == NULL)
		die("no answer: %s", PQerrorMessage(conn));
	server_answer(result, answer);
	PQclear(result);
	while ((result = PQgetResult(conn)) != NULL)
		PQclear(result);
	result = PQgetResult(conn);
	if (PQresultStatus(result) != PGRES_PIPELINE_SYNC)
		die("out of step: %s", PQerrorMessage(conn));
	PQclear(result);
}

static void
take_step(Run *runs, int n, int length, int step, char (*expected)[ANSWER_LENGTH])
{
	char		answer[ANSWER_LENGTH];
	int			due = 0;
	bool		purges = false;

	for (int i = 0; i < n; i++)
	{
		Op			op = runs[i].sequence->ops[step];

		if (op.kind == OP_PURGE)
		{
			purges = true;
			due += atoi(expected[i]);
			continue;
		}
		take_answer(conns[op.actor], answer);
		if (strcmp(answer, expected[i]) != 0)
			complain(&runs[i], length, step, "the answer", expected[i], answer);
	}
	if (purges)
	{
		char		text[16];

		take_answer(conns[OPERATOR], answer);
		sprintf(text, "%d", due);
		if (strcmp(answer, text) != 0)
			complain(&runs[0], length, step, "the sum of all purges", text, answer);
	}
}

/* The rows, and that only those that the model wrote have changed. */
static void
compare_records(Run *runs, int n, int length, int step, const bool *written)
{
	PGresult   *rows = server_records(conns[OPERATOR]);
	int			row_of[SLOTS];

	memset(row_of, -1, sizeof(row_of));
	for (int i = 0; i < PQntuples(rows); i++)
		row_of[atoi(PQgetvalue(rows, i, 0))] = i;
	for (int i = 0; i < n; i++)
	{
		int			row = row_of[i];
		const char *got = row < 0 ? "no record" : PQgetvalue(rows, row, 1);
		const char *version = row < 0 ? "" : PQgetvalue(rows, row, 2);
		bool		moved = strcmp(runs[i].version, version) != 0;
		char		expected[ANSWER_LENGTH];

		tell_record(&runs[i].world.record, expected);
		if (strcmp(got, expected) != 0)
			complain(&runs[i], length, step, "the record", expected, got);
		if (moved != written[i])
			complain(&runs[i], length, step, "the row's version", written[i] ? "new" : "as before", moved ? "new" : "as before");
		snprintf(runs[i].version, sizeof(runs[i].version), "%s", version);
	}
	PQclear(rows);
}

static void
pipelines(bool on)
{
	for (int i = 0; i < 3; i++)
		if (on ? !PQenterPipelineMode(conns[i]) : !PQexitPipelineMode(conns[i]))
			die("%s", PQerrorMessage(conns[i]));
}

static void
run_bucket(Bucket *bucket, Door door)
{
	static Run	runs[SLOTS];
	static Target targets[SLOTS];
	static char expected[SLOTS][ANSWER_LENGTH];
	bool		written[SLOTS];
	int			n = bucket->count;

	for (int i = 0; i < n; i++)
		targets[i] = (Target) {.slot = i, .door = door, .scope = server_scope(bucket->sequences[i].deduplicates, i)};
	server_name_targets(conns[OPERATOR], targets, n);
	for (int i = 0; i < n; i++)
	{
		runs[i] = (Run) {.sequence = &bucket->sequences[i], .target = targets[i]};
		world_init(&runs[i].world, bucket->sequences[i].deduplicates);
	}
	for (int step = 0; step < bucket->length; step++)
	{
		pipelines(true);
		send_step(runs, n, step, expected, written);
		take_step(runs, n, bucket->length, step, expected);
		pipelines(false);
		compare_records(runs, n, bucket->length, step, written);
	}
	tally->runs += n;
	PQclear(server_run(conns[OPERATOR], "TRUNCATE idem_record"));
}

static void
flush_bucket(Bucket *bucket)
{
	if (bucket->count == 0)
		return;
	if (extent->all)
		for (Door door = 0; door < DOORS; door++)
			run_bucket(bucket, door);
	else
		/* by fingerprints mostly: they can expire */
		run_bucket(bucket, flushes++ % 4 < 2 ? DOOR_FINGERPRINT : flushes % 2 + 1);
	bucket->count = 0;
}

static void
add_sequence(const Sequence *sequence, int length)
{
	Bucket	   *bucket;
	int			purges = 0;

	for (int i = 0; i < length; i++)
		if (sequence->ops[i].kind == OP_PURGE)
			purges |= 1 << i;
	bucket = &buckets[length][purges];
	bucket->length = length;
	bucket->sequences[bucket->count++] = *sequence;
	if (bucket->count == SLOTS)
		flush_bucket(bucket);
}

/* ----- enumerating ----- */

typedef void (*Visit) (Op op, void *context);

/* Every op there is; B comes in only after A, since the two are alike. */
static void
each_op(bool a_was_there, Visit visit, void *context)
{
	for (int kind = 0; kind <= OP_EXPIRE; kind++)
	{
		if (kind >= FIRST_OF_OPERATOR)
			visit((Op) {kind, OPERATOR}, context);
		else
			for (int actor = 0; actor <= (a_was_there ? 1 : 0); actor++)
				visit((Op) {kind, actor}, context);
	}
}

typedef struct Path
{
	Sequence	sequence;
	World		world;
	int			length;
	bool		a_was_there;
	int			aim;
	bool		only_changes;	/* all steps but the last one change something */
} Path;

static void
extend_path(Op op, void *context)
{
	Path		path = *(Path *) context;
	char		answer[ANSWER_LENGTH];
	unsigned long before = world_situation(&path.world);

	path.sequence.ops[path.length++] = op;
	if (op.actor == 0)
		path.a_was_there = true;
	(void) step_alone(&path.world, op, answer);
	if (path.length == path.aim)
		add_sequence(&path.sequence, path.length);
	else if (!path.only_changes || world_situation(&path.world) != before)
		each_op(path.a_was_there, extend_path, &path);
}

static void
enumerate(int aim, bool only_changes, bool deduplicates)
{
	Path		path = {.aim = aim, .only_changes = only_changes, .sequence.deduplicates = deduplicates};

	world_init(&path.world, deduplicates);
	each_op(false, extend_path, &path);
}

void
run_sequences(const Extent *how_far, Tally *counts)
{
	extent = how_far;
	tally = counts;
	for (int i = 0; i < 3; i++)
		conns[i] = server_connect();
	for (int deduplicates = 0; deduplicates < 2; deduplicates++)
	{
		enumerate(extent->whole_length, false, deduplicates);
		for (int length = extent->whole_length + 1; length <= extent->changing_length; length++)
			enumerate(length, true, deduplicates);
	}
	for (int length = 0; length <= LONGEST; length++)
		for (int purges = 0; purges < 1 << LONGEST; purges++)
			flush_bucket(&buckets[length][purges]);
	for (int i = 0; i < 3; i++)
		PQfinish(conns[i]);
}
