/*
 * fuzz_text.c: any text where callers put text: the Idempotency-Key header, and what a reply carries.
 */
#include "compat.h"

#include "utils/builtins.h"

#include "fuzz.h"
#include "fuzz_sql.h"

/* A key is taken from its header alone, and its quoted form gives it again. */
static Statement header = {
	"SELECT idem_http_key('\"' || replace(replace(k, '\\', '\\\\'), '\"', '\\\"') || '\"') = k AND k ~ '^[ -~]+$'"
	" FROM idem_http_key($1) AS k", "t", NULL
};

/* What comes from the caller stands in its own field, as it is, and in no text of ours. */
static Statement reply = {
	"SELECT (r ->> 'instruction', r ->> 'meaning', r ->> 'status') = (p ->> 'instruction', p ->> 'meaning', p ->> 'status')"
	" AND r ->> 'trace_id' = $2 AND (NOT r ? 'result' OR r -> 'result' = $3) AND (NOT r ? 'result_ref' OR r ->> 'result_ref' = $2)"
	" AND h.status BETWEEN 200 AND 599 AND jsonb_typeof(h.headers) = 'array' AND h.body IS NOT NULL"
	" FROM (SELECT ROW($1::idem_outcome, NULL, NULL, 1, true, false, 'plain', $2, $3, $2, NULL, now(), NULL, $2)::idem_claim AS mine,"
	"  ROW($1::idem_outcome, NULL, NULL, 1, true, false, 'plain', 'x',"
	"  CASE WHEN $3 IS NOT NULL THEN '{}'::jsonb END, 'x', NULL, now(), NULL, 'x')::idem_claim AS plain) AS c,"
	" LATERAL idem_reply(mine, $4) AS r, LATERAL idem_reply(plain, $4) AS p, LATERAL idem_http(mine, $4) AS h", "ttjt", NULL
};

static const char *const outcomes[] = {
	"ACQUIRED", "IN_FLIGHT", "DONE", "FAILED", "RECONCILE", "PARAM_MISMATCH", "SUBJECT_MISMATCH", "SCOPE_MISMATCH",
	"EXPIRED", "INVALID", "REPEAT", "NONE", "UNKNOWN", "RETRYABLE"
};

static void
check_true(Statement *statement, const Datum *values, const char *nulls)
{
	static const int refusals[] = {ERRCODE_INVALID_PARAMETER_VALUE, 0};
	Rows		rows = {0};

	if (sql_run(statement, values, nulls, refusals, &rows) == 0)
		CHECK(rows.count == 1 && rows.column[0] != NULL && strcmp(rows.column[0], "t") == 0);
}

static void
run_text(const uint8 *data, size_t size)
{
	Input		input = {data, data + size};
	uint8		kind = take_byte(&input);
	uint8		lang = take_byte(&input);
	char	   *text = pnstrdup((const char *) input.at, input.end - input.at);
	Datum		values[4];
	Jsonb	   *result;

	mend_utf8(text);
	values[0] = CStringGetTextDatum(text);
	check_true(&header, values, NULL);

	values[0] = CStringGetTextDatum(outcomes[kind % lengthof(outcomes)]);
	values[1] = CStringGetTextDatum(text);
	result = read_jsonb(take_document(&input));
	values[2] = JsonbPGetDatum(result);
	values[3] = CStringGetTextDatum(lang < 100 ? "en" : lang < 200 ? "zh" : text);
	check_true(&reply, values, result != NULL ? "    " : "  n ");
}

const Target target_text = {"text", run_text, NULL, 0, 0};
