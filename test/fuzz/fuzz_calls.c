/*
 * fuzz_calls.c: the input is a script of calls and ends of transactions, with arguments of every kind.
 *
 * Whatever the order and the arguments, each call gets an answer or one of the errors that README.md lists (P11).
 * An operation is granted to one owner at a time within the script (P1), and what a finished one gave stays (P2, P3).
 */
#include "compat.h"

#include "utils/builtins.h"

#include "fuzz.h"
#include "fuzz_sql.h"

#define CALLS_MAX 24
#define SAVEPOINTS_MAX 3
#define OPERATIONS_MAX 32

/* The operations of a script whose end was committed, and what they gave. */
typedef struct Operation
{
	const char *key;
	const char *result;			/* empty: none */
} Operation;

static Operation operations[OPERATIONS_MAX];
static Operation kept[OPERATIONS_MAX];
static int	noperations;
static char last_key[40];
static char last_owner[40];
static char *last_token;

/*
 * Parameters: T token, S subject, C scope, J JSON, I interval, W wait, K key, O owner, B boolean, N text, V verdict.  Those
 * that return a claim give key, owner, outcome and result.
 */
typedef struct Call
{
	Statement	statement;
	const char *kinds;
} Call;

#define CLAIM "SELECT c.key, c.owner, c.outcome, c.result, idem_reply(c), idem_http(c) FROM "

static Call calls[] = {
	{{CLAIM "idem_acquire($1, $2, $3, $4, $5::interval, $6::uuid, $7, $8) AS c", "tttjtttt", NULL}, "TSCJWONN"},
	{{CLAIM "idem_acquire_direct($1, $2, $3, $4, $5::interval, $6::uuid, $7, $8) AS c", "ttjttttt", NULL}, "SCJNWONN"},
	{{CLAIM "idem_acquire_direct($1, $2, $3) AS c", "ttj", NULL}, "SCJ"},
	{{"SELECT NULL, NULL, idem_commit($1::uuid, $2::uuid, $3, $4)", "ttjt", NULL}, "KOJN"},
	{{"SELECT NULL, NULL, idem_fail($1::uuid, $2::uuid, $3, $4::bool)", "ttjt", NULL}, "KOJB"},
	{{"SELECT NULL, NULL, idem_release($1::uuid, $2::uuid)", "tt", NULL}, "KO"},
	{{"SELECT NULL, NULL, idem_renew($1::uuid, $2::uuid, $3::interval)", "ttt", NULL}, "KOI"},
	{{CLAIM "idem_status($1, $2, $3::interval) AS c", "ttt", NULL}, "TSW"},
	{{CLAIM "idem_status_key($1::uuid, $2, $3::interval) AS c", "ttt", NULL}, "KSW"},
	{{CLAIM "idem_execute($1, $2, $3, $4::regprocedure, $5, $6, $7::interval, $8) AS c", "ttjttttt", NULL}, "SCJFTNWN"},
	{{"SELECT NULL, NULL, idem_reconcile($1::uuid, $2, $3, $4, $5, $6::bool)", "tttjtt", NULL}, "KVNJNB"},
	{{"SELECT NULL, NULL, NULL, idem_sign($1, $2, $3, now() + $4::interval, $5::bool)", "ttjtt", NULL}, "SCJIB"},
	{{"SELECT NULL, NULL, NULL, idem_preview($1, $2, $3) ->> 'fingerprint'", "ttj", NULL}, "SCJ"},
	{{"SELECT NULL, NULL, idem_key($1, $2, $3, $4), idem_canonical($2, $3), idem_param_hash($2, $3)", "ttjt", NULL}, "SCJN"},
	{{"SELECT NULL, NULL, idem_downstream_key($1::uuid, $2)", "tt", NULL}, "KN"},
	{{"INSERT INTO fuzz_guarded VALUES ($1::uuid)", "t", NULL}, "K"},
	{{"SELECT NULL, NULL, (SELECT count(*) FROM idem_in_flight) + (SELECT count(*) FROM idem_audit) + (SELECT count(*) FROM idem_stuck)", "", NULL}, ""},
	{{"SELECT NULL, NULL, idem_purge($1::int)", "t", NULL}, "D"},
	{{"SELECT NULL, NULL, idem_maintain()", "", NULL}, ""},
	{{"UPDATE idem_record SET lease_until = clock_timestamp() - interval '1 s' WHERE key = $1::uuid AND finished_at IS NULL", "t", NULL}, "K"},
	{{"UPDATE idem_policy SET material = ('{' || $1 || '}')::text[] WHERE scope = 'listed'", "t", NULL}, "P"},
	{{"SELECT set_config('idem.fast_path', $1, true)", "t", NULL}, "G"},
};

static Statement empty_tables = {"DELETE FROM idem_record", "", NULL};
static Statement truncate_tables = {"TRUNCATE idem_record, idem_fast, idem_peer, idem_alert, fuzz_guarded", "", NULL};

/* What README.md lists, and what PostgreSQL itself says of arguments that are no such thing. */
static const int refusals[] = {
	ERRCODE_NULL_VALUE_NOT_ALLOWED, ERRCODE_INVALID_PARAMETER_VALUE, ERRCODE_READ_ONLY_SQL_TRANSACTION,
	ERRCODE_T_R_SERIALIZATION_FAILURE, ERRCODE_INSUFFICIENT_PRIVILEGE, ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE,
	ERRCODE_INTEGRITY_CONSTRAINT_VIOLATION, ERRCODE_INVALID_FUNCTION_DEFINITION,
	ERRCODE_INVALID_TEXT_REPRESENTATION, ERRCODE_DATETIME_VALUE_OUT_OF_RANGE, ERRCODE_INVALID_DATETIME_FORMAT,
	ERRCODE_INTERVAL_FIELD_OVERFLOW, ERRCODE_CHECK_VIOLATION, ERRCODE_CANT_CHANGE_RUNTIME_PARAM,
	ERRCODE_UNDEFINED_FUNCTION, ERRCODE_RAISE_EXCEPTION, ERRCODE_DIVISION_BY_ZERO, 0
};

/* One of a few texts, or any; NULL for null. */
static char *
take_one_of(Input *input, const char *const *choices, int count)
{
	uint8		byte = take_byte(input);

	if (byte == 255)
		return NULL;
	return byte >= 240 ? take_text(input, 255) : pstrdup(choices[byte % count]);
}

#define ONE_OF(input, ...) \
	take_one_of(input, (const char *const[]) {__VA_ARGS__}, lengthof(((const char *const[]) {__VA_ARGS__})))

static const char *
take_argument(Input *input, char kind)
{
	switch (kind)
	{
		case 'T':
			return ONE_OF(input, last_token, "x.y", last_token);
		case 'S':
			return ONE_OF(input, "alice", "bob", "alice");
		case 'C':
			return ONE_OF(input, "plain", "listed", "local", "idempotent", "queryable", "guarded", "off", "direct", "signed");
		case 'I':
			return ONE_OF(input, "0", "1 ms", "1 hour", "-1 s", "100 years", "1 mon", "200 years", "infinity");
		case 'W':
			/* a run is not to wait for long */
			return ((const char *const[]) {"0", "1 ms", "-1 s", "200 years", "infinity", NULL})[take_byte(input) % 6];
		case 'K':
			return ONE_OF(input, last_key, last_key, "0192f0c1-7e3a-7c11-8a5b-0d5c2f6e9a01");
		case 'O':
			return ONE_OF(input, last_owner, last_owner, "4a7a4e46-93cf-4c29-a2ee-9d4f0c9e0f11");
		case 'F':
			return ONE_OF(input, "fuzz_echo(jsonb)", "fuzz_fail(jsonb)", "fuzz_nested(jsonb)", "fuzz_nothing(jsonb)");
		case 'B':
			return ONE_OF(input, "false", "true");
		case 'V':
			return ONE_OF(input, "DONE", "FAILED", "RETRY", "NEVER");
		case 'D':
			return ONE_OF(input, "10000", "1", "0", "-1");
		case 'G':
			return ONE_OF(input, "on", "off");
		case 'P':
			return ONE_OF(input, "/amount", "/items/*/sku", "\"\"", "/amount,/payee");
		default:
			return ONE_OF(input, "order-1", "", "order-2", "note");
	}
}

static char
bind(Input *input, char kind, Datum *value)
{
	if (kind == 'J')
	{
		/* often the same parameters, so that calls meet */
		uint8		byte = take_byte(input);
		Jsonb	   *json = byte == 255 ? NULL : read_jsonb(byte < 160 ? "{\"amount\": 5, \"payee\": \"x\"}" : take_document(input));

		*value = JsonbPGetDatum(json);
		return json != NULL ? ' ' : 'n';
	}
	else
	{
		const char *text = take_argument(input, kind);

		*value = text != NULL ? CStringGetTextDatum(text) : (Datum) 0;
		return text != NULL ? ' ' : 'n';
	}
}

/* What a finished operation gave must be what it gave before. */
static void
check_result(const char *key, const char *result)
{
	for (int i = 0; i < noperations; i++)
	{
		if (strcmp(operations[i].key, key) != 0)
			continue;
		if (strcmp(operations[i].result, result) != 0)
			finding("operation %s gave %s and then %s", key, operations[i].result, result);
		return;
	}
}

static void
remember(const Rows *rows)
{
	if (rows->column[0] != NULL)
		strlcpy(last_key, rows->column[0], sizeof(last_key));
	if (rows->column[1] != NULL)
		strlcpy(last_owner, rows->column[1], sizeof(last_owner));
	if (rows->column[3] != NULL && rows->column[0] == NULL && strchr(rows->column[3], '.') != NULL && strlen(rows->column[3]) > 200)
		last_token = rows->column[3];
	if (rows->column[0] != NULL && rows->column[2] != NULL && strcmp(rows->column[2], "DONE") == 0)
		check_result(rows->column[0], rows->column[3] != NULL ? rows->column[3] : "");
}

static void
call(Input *input, Call *it)
{
	Datum		values[16];
	char		nulls[16];
	Rows		rows = {0};

	for (int i = 0; it->kinds[i] != '\0'; i++)
		nulls[i] = bind(input, it->kinds[i], &values[i]);
	if (sql_run(&it->statement, values, nulls, refusals, &rows) == 0)
		remember(&rows);
}

/* What is finished and committed now stays so: in the next look, and in every answer. */
static void
keep_operations(void)
{
	static Statement finished = {
		"SELECT string_agg(key || '=' || coalesce(result::text, '') || E'\\x01', '' ORDER BY key) FROM idem_record"
		" WHERE state = 'D' AND retained_until > clock_timestamp()", "", NULL
	};
	Rows		rows = {0};
	int			count = 0;

	CHECK(sql_run(&finished, NULL, NULL, NULL, &rows) == 0);
	for (char *at = rows.column[0]; at != NULL && *at != '\0' && count < OPERATIONS_MAX; at++)
	{
		char	   *end = strchr(at, '\x01');

		*end = '\0';
		at[36] = '\0';
		check_result(at, at + 37);
		kept[count++] = (Operation) {at, at + 37};
		at = end;
	}
	CHECK(count >= noperations);
	memcpy(operations, kept, sizeof(Operation) * count);
	noperations = count;
}

static void
end_transaction(bool commit, int *savepoints)
{
	for (; *savepoints > 0; (*savepoints)--)
		sql_release_savepoint();
	if (!commit || sql_commit(refusals) != 0)
	{
		if (!commit)
			sql_rollback();
		return;
	}
	keep_operations();
}

/* Deleted rows stay in the way until nobody can see them: now and then the tables are made anew. */
static void
clean_up(void)
{
	static unsigned int runs = 0;
	Rows		rows = {0};

	if (runs++ % 500 == 0)
		CHECK(sql_run(&truncate_tables, NULL, NULL, NULL, &rows) == 0);
	else
		CHECK(sql_run(&empty_tables, NULL, NULL, NULL, &rows) == 0);
	CHECK(sql_commit(refusals) == 0);
}

static void
run_calls(const uint8 *data, size_t size)
{
	Input		input = {data, data + size};
	int			savepoints = 0;

	clean_up();
	noperations = 0;
	strcpy(last_key, "0192f0c1-7e3a-7c11-8a5b-0d5c2f6e9a02");
	strcpy(last_owner, "4a7a4e46-93cf-4c29-a2ee-9d4f0c9e0f12");
	last_token = "none";
	for (int i = 0; i < CALLS_MAX && input.at < input.end; i++)
	{
		uint8		code = take_byte(&input);

		if (code < 200)
			call(&input, &calls[code % lengthof(calls)]);
		else if (code < 220)
			end_transaction(code < 214, &savepoints);
		else if (code < 235 && savepoints < SAVEPOINTS_MAX)
		{
			sql_savepoint();
			savepoints++;
		}
		else if (savepoints > 0)
		{
			if (code < 242)
				sql_release_savepoint();
			else
				sql_rollback_to_savepoint();
			savepoints--;
		}
	}
	end_transaction(size % 2 == 0, &savepoints);
}

const Target target_calls = {"calls", run_calls, NULL, 0, 0};
