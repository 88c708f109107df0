/*
 * client.c STORY RUN MODE: the story told by libpq, in mode text or binary (of the results).
 *
 * Lines of the story are cut where they stand, and everything points into them.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

#include <libpq-fe.h>

/* recipe */
/* Is a concurrent transaction in the way, so that the same transaction is to be run again? */
static int
again(const PGresult *result)
{
	const char *state = PQresultErrorField(result, PG_DIAG_SQLSTATE);

	return state && (strcmp(state, "40001") == 0 || strcmp(state, "40P01") == 0);
}

static void
command(PGconn *conn, const char *sql)
{
	PQclear(PQexec(conn, sql));
}

/* Run work in a transaction, again while its answer is such an error; returns its answer, or COMMIT's if that failed. */
static PGresult *
transaction(PGconn *conn, const char *begin, PGresult *(*work) (PGconn *conn, void *arg), void *arg)
{
	for (;;)
	{
		PGresult   *answer,
				   *end;

		command(conn, begin);
		answer = work(conn, arg);
		/* in a transaction that failed COMMIT says ROLLBACK */
		end = PQexec(conn, "COMMIT");
		if (again(answer) || again(end))
		{
			PQclear(answer);
			PQclear(end);
			continue;
		}
		if (PQresultStatus(end) == PGRES_COMMAND_OK)
		{
			PQclear(end);
			return answer;
		}
		PQclear(answer);
		return end;
	}
}

/*
 * Cause the effect of an operation once; returns what became of it: outcome and result, or an error.  The grant is
 * committed before the effect starts.  owner is a fresh UUID, kept by the caller: after a lost connection the same
 * call on a new one goes on.  Where effect returns NULL, its outcome is unknown, and so is what this returns.
 */
static PGresult *
once(PGconn *conn, const char *fingerprint, const char *subject, const char *scope, const char *params,
	 const char *owner, const char *(*effect) (const char *key))
{
	const char *call[] = {fingerprint, subject, scope, params, owner};
	const char *commit[] = {NULL, owner, NULL};
	const char *status[] = {NULL, subject};
	PGresult   *claim = PQexecParams(conn, "SELECT outcome, result, key FROM idem_acquire($1, $2, $3, $4, owner => $5)",
									 5, NULL, call, NULL, NULL, 0);
	PGresult   *became;

	if (PQntuples(claim) != 1 || strcmp(PQgetvalue(claim, 0, 0), "ACQUIRED") != 0)
		return claim;
	commit[0] = status[0] = PQgetvalue(claim, 0, 2);
	commit[2] = effect(commit[0]);	/* the key is the request's Idempotency-Key */
	if (commit[2] == NULL)
		return claim;
	PQclear(PQexecParams(conn, "SELECT idem_commit($1, $2, $3)", 3, NULL, commit, NULL, NULL, 0));
	became = PQexecParams(conn, "SELECT outcome, result FROM idem_status_key($1, $2)", 2, NULL, status, NULL, NULL, 0);
	PQclear(claim);
	return became;
}
/* end of recipe */

#define MAX_ARGS 8
#define MAX_IS 16
#define MAX_NAMES 40
#define MAX_BLOCK 16

typedef struct Step
{
	const char *name;
	const char *on;
	const char *sql;
	const char *error;
	int			first;
	int			nargs,
				nis,
				nkeep;
	const char *arg[MAX_ARGS];	/* NULL: null */
	const char *column[MAX_IS];
	const char *wanted[MAX_IS];
	const char *keep[MAX_IS];
} Step;

static const char *const roles[] = {"main", "other", "standby"};
static PGconn *conns[3];
static const char *names[MAX_NAMES];
static char values[MAX_NAMES][4096];
static int	nnames = 0;
static int	binary = 0;
static int	failed = 0;

static PGconn **
conn_of(const char *role)
{
	int			i = 0;

	while (strcmp(roles[i], role) != 0)
		i++;
	return &conns[i];
}

static PGconn *
opened(const char *role)
{
	const char *keywords[] = {"host", NULL};
	const char *hosts[] = {getenv(strcmp(role, "standby") == 0 ? "STANDBY_HOST" : "PGHOST"), NULL};
	PGconn	   *conn = PQconnectdbParams(keywords, hosts, 0);

	if (PQstatus(conn) != CONNECTION_OK)
	{
		fprintf(stderr, "%s", PQerrorMessage(conn));
		exit(2);
	}
	return conn;
}

static char *
name_value(const char *name, size_t length)
{
	int			i;

	for (i = 0; i < nnames; i++)
	{
		if (strlen(names[i]) == length && strncmp(names[i], name, length) == 0)
			return values[i];
	}
	if (nnames == MAX_NAMES)
		abort();
	names[nnames] = strndup(name, length);
	return values[nnames++];
}

static void
set_name(const char *name, const char *value)
{
	snprintf(name_value(name, strlen(name)), sizeof values[0], "%s", value);
}

/* The text with its <names> replaced, into a buffer of 4096 bytes. */
static const char *
filled(const char *text, char *buffer)
{
	char	   *out = buffer;

	for (; *text; text++)
	{
		const char *close = text[0] == '<' ? strchr(text, '>') : NULL;

		if (close)
		{
			out += sprintf(out, "%s", name_value(text + 1, (size_t) (close - text - 1)));
			text = close;
		}
		else
			*out++ = *text;
	}
	*out = '\0';
	return buffer;
}

static void
say(const char *name, const char *problem)
{
	if (problem)
		printf("not ok - %s: %s\n", name, problem);
	else
		printf("ok - %s\n", name);
	failed += problem != NULL;
}

static void
new_uuid(char *buffer)
{
	FILE	   *in = fopen("/proc/sys/kernel/random/uuid", "r");

	if (!in || fscanf(in, "%36s", buffer) != 1)
		abort();
	fclose(in);
}

static uint64_t
big_endian(const char *bytes, int length)
{
	uint64_t	number = 0;

	for (int i = 0; i < length; i++)
		number = number << 8 | (unsigned char) bytes[i];
	return number;
}

/* The text of a value, into a buffer; in the binary format those of a uuid, a boolean, an integer, a time, a jsonb. */
static const char *
text_of(const PGresult *result, int column, char *buffer)
{
	const char *value = PQgetvalue(result, 0, column);
	int			at = 0;

	if (PQgetisnull(result, 0, column))
		return "null";
	if (!PQfformat(result, column))
		return PQftype(result, column) != 16 ? value : *value == 't' ? "true" : "false";
	switch (PQftype(result, column))
	{
		case 16:
			return *value ? "true" : "false";
		case 23:
			sprintf(buffer, "%d", (int) (int32_t) big_endian(value, 4));
			return buffer;
		case 1184:
			{
				uint64_t	time = big_endian(value, 8);
				time_t		seconds = (time_t) (time / 1000000) + 946684800;
				size_t		end = strftime(buffer, 64, "%Y-%m-%d %H:%M:%S", gmtime(&seconds));

				sprintf(buffer + end, ".%06d+00", (int) (time % 1000000));
				return buffer;
			}
		case 2950:
			for (int i = 0; i < 16; i++)
				at += sprintf(buffer + at, i == 4 || i == 6 || i == 8 || i == 10 ? "-%02x" : "%02x", (unsigned char) value[i]);
			return buffer;
		case 3802:
			return value + 1;	/* after the version of the format; libpq ends each value with a zero */
		default:
			return value;
	}
}

static int
send_step(PGconn *conn, const Step *step)
{
	static char buffers[MAX_ARGS][4096];
	const char *args[MAX_ARGS];

	for (int i = 0; i < step->nargs; i++)
		args[i] = step->arg[i] ? filled(step->arg[i], buffers[i]) : NULL;
	return PQsendQueryParams(conn, step->sql, step->nargs, NULL, args, NULL, NULL, binary);
}

/* Hold an answer against what it must be. */
static void
judge(const Step *step, const PGresult *result)
{
	static char problem[10000];
	char		got[4096],
				wanted[4096];
	const char *state = PQresultErrorField(result, PG_DIAG_SQLSTATE);

	problem[0] = '\0';
	if (step->error ? !state || strcmp(state, step->error) != 0 :
		PQresultStatus(result) != PGRES_TUPLES_OK && PQresultStatus(result) != PGRES_COMMAND_OK)
		snprintf(problem, sizeof problem, "%s", state ? PQresultErrorMessage(result) : "it did not fail");
	for (int i = 0; !*problem && i < step->nis; i++)
	{
		const char *text = text_of(result, PQfnumber(result, step->column[i]), got);

		if (strcmp(text, filled(step->wanted[i], wanted)) != 0)
			snprintf(problem, sizeof problem, "%s is %s, not %s", step->column[i], text, wanted);
	}
	for (int i = 0; !*problem && i < step->nkeep; i++)
		set_name(step->keep[i], text_of(result, PQfnumber(result, step->keep[i]), got));
	say(step->name, *problem ? problem : NULL);
}

/* What a statement comes to: its last result, since one that gave rows may fail yet when it commits. */
static PGresult *
answer(PGconn *conn)
{
	PGresult   *result = PQgetResult(conn);
	PGresult   *next;

	while (result && PQresultStatus(result) != PGRES_PIPELINE_SYNC && (next = PQgetResult(conn)) != NULL)
	{
		PQclear(result);
		result = next;
	}
	return result;
}

/* Run a statement; the answer is judged unless the transaction is to be repeated. */
static PGresult *
perform(const Step *step)
{
	PGconn	   *conn = *conn_of(step->on);
	PGresult   *result;

	send_step(conn, step);
	result = answer(conn);
	if (!again(result))
		judge(step, result);
	return result;
}

typedef struct Block
{
	Step		step[MAX_BLOCK];
	int			nsteps;
	int			runs;
} Block;

static PGresult *
work(PGconn *conn, void *arg)
{
	Block	   *block = arg;
	PGresult   *result = NULL;

	(void) conn;
	block->runs++;
	for (int i = 0; i < block->nsteps && !(result && again(result)); i++)
	{
		if (block->runs > 1 && block->step[i].first)
			continue;
		PQclear(result);
		result = perform(&block->step[i]);
	}
	return result;
}

static void
retried(const char *level, Block *block, int wanted)
{
	char		begin[100],
				name[100],
				problem[100];

	snprintf(begin, sizeof begin, "BEGIN ISOLATION LEVEL %s", level);
	snprintf(name, sizeof name, "%s, repeated", level);
	block->runs = 0;
	PQclear(transaction(conns[0], begin, work, block));
	snprintf(problem, sizeof problem, "%d runs", block->runs);
	say(name, block->runs == wanted ? NULL : problem);
}

/* All are sent before the first answer is read. */
static void
pipelined(Block *block)
{
	PGconn	   *conn = conns[0];
	PGresult   *result;

	PQenterPipelineMode(conn);
	for (int i = 0; i < block->nsteps; i++)
		send_step(conn, &block->step[i]);
	PQpipelineSync(conn);
	for (int i = 0; i < block->nsteps; i++)
	{
		result = answer(conn);
		judge(&block->step[i], result);
		PQclear(result);
	}
	result = answer(conn);
	say("pipelined", PQresultStatus(result) == PGRES_PIPELINE_SYNC && PQexitPipelineMode(conn) ? NULL : "no end");
	PQclear(result);
}

static void
lost(const char *role, const char *word, const char *after)
{
	PGconn	  **conn = conn_of(role);
	char		name[200];

	snprintf(name, sizeof name, "%s after: %s", word, after);
	if (strcmp(word, "cut") == 0)
		shutdown(PQsocket(*conn), SHUT_RDWR);
	command(*conn, "SELECT 1");
	say(name, PQstatus(*conn) == CONNECTION_BAD ? NULL : "the connection is there");
	PQfinish(*conn);
	*conn = opened(role);
}

/* One line that belongs to a step; returns whether it was one. */
static int
line_of_step(Step *step, const char *word, char *rest)
{
	int			is = strcmp(word, "is") == 0,
				arg = strcmp(word, "arg") == 0;
	char	   *space = is || arg ? strchr(rest, ' ') : NULL;
	char	   *second = space ? space + 1 : rest + strlen(rest);

	if (space)
		*space = '\0';
	if (is)
	{
		step->column[step->nis] = rest;
		step->wanted[step->nis++] = second;
	}
	else if (arg || strcmp(word, "null") == 0)
	{
		step->arg[step->nargs++] = arg ? second : NULL;
	}
	else if (strcmp(word, "keep") == 0)
		step->keep[step->nkeep++] = rest;
	else if (strcmp(word, "on") == 0)
		step->on = rest;
	else if (strcmp(word, "sql") == 0)
		step->sql = rest;
	else if (strcmp(word, "error") == 0)
		step->error = rest;
	else if (strcmp(word, "first") == 0)
		step->first = 1;
	else
		return 0;
	return 1;
}

/* Read the story and act on each line; a step is performed when all its lines are read. */
static void
tell(FILE *in)
{
	static Block block;
	static Step step;
	int			in_step = 0,
				in_block = 0;
	const char *level = NULL;
	char	   *line = NULL;
	size_t		size = 0;

	while (getline(&line, &size, in) > 0)
	{
		char	   *word = strdup(line);
		char	   *rest = word + strcspn(word, " \n");
		const char *before = step.name;

		word[strcspn(word, "\n")] = '\0';
		if (*rest)
			*rest++ = '\0';
		if (*word == '\0' || *word == '#' || line_of_step(&step, word, rest))
			continue;
		if (in_step && in_block)
			block.step[block.nsteps++] = step;
		else if (in_step)
			PQclear(perform(&step));
		in_step = strcmp(word, "step") == 0;
		if (in_step)
			step = (Step) {.name = rest, .on = "main"};
		else if (strcmp(word, "new") == 0)
			new_uuid(name_value(rest, strlen(rest)));
		else if (strcmp(word, "retry") == 0 || strcmp(word, "pipeline") == 0)
		{
			block.nsteps = 0;
			in_block = 1;
			level = *word == 'r' ? rest : NULL;
		}
		else if (strcmp(word, "end") == 0)
		{
			in_block = 0;
			if (level)
				retried(level, &block, atoi(rest));
			else
				pipelined(&block);
		}
		else
			lost(rest, word, before);
	}
	PQclear(perform(&step));
	free(line);
}

static const char *
effect(const char *key)
{
	static char result[100];

	PQclear(PQexecParams(conns[1], "INSERT INTO sent VALUES ($1)", 1, NULL, &key, NULL, NULL, 0));
	snprintf(result, sizeof result, "\"%s\"", key);
	return result;
}

static void
recipe(const char *run)
{
	PGconn	   *conn = opened("main");
	const char *args[] = {run, "{\"amount\": 20, \"payee\": \"a\", \"currency\": \"EUR\"}"};
	PGresult   *fingerprint = PQexecParams(conn, "SELECT idem_sign($1, 'charge', $2)", 2, NULL, args, NULL, NULL, 0);
	PGresult   *answers[2],
			   *sent;
	const char *result;
	char		owner[37];

	for (int i = 0; i < 2; i++)
	{
		new_uuid(owner);
		answers[i] = once(conn, PQgetvalue(fingerprint, 0, 0), run, "charge", args[1], owner, effect);
	}
	result = PQgetvalue(answers[0], 0, 1);
	sent = PQexecParams(conn, "SELECT count(*) FROM sent WHERE to_jsonb(idem_key) = $1", 1, NULL, &result, NULL, NULL, 0);
	say("recipe", strcmp(PQgetvalue(answers[0], 0, 0), "DONE") == 0 && strcmp(PQgetvalue(answers[1], 0, 0), "DONE") == 0 &&
		strcmp(result, PQgetvalue(answers[1], 0, 1)) == 0 && strcmp(PQgetvalue(sent, 0, 0), "1") == 0 ? NULL : result);
	PQclear(fingerprint);
	PQclear(answers[0]);
	PQclear(answers[1]);
	PQclear(sent);
	PQfinish(conn);
}

int
main(int argc, char **argv)
{
	FILE	   *story = argc == 4 ? fopen(argv[1], "r") : NULL;

	if (!story)
		return 2;
	set_name("run", argv[2]);
	binary = strcmp(argv[3], "binary") == 0;
	for (int i = 0; i < 3; i++)
		conns[i] = opened(roles[i]);
	tell(story);
	recipe(argv[2]);
	printf("# libpq %d\n", PQlibVersion());
	for (int i = 0; i < 3; i++)
		PQfinish(conns[i]);
	return failed > 0;
}
