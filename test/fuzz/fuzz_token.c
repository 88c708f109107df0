/*
 * fuzz_token.c: only what was signed verifies, through idem_inspect, idem_status and idem_acquire.
 *
 * A fuzzer cannot forge a MAC, so a token that verifies must be one of those in the table fuzz_genuine, once what
 * models add at its ends is taken away; and one of them must.
 */
#include "compat.h"

#include "executor/spi.h"
#include "utils/builtins.h"

#include "fingerprint.h"
#include "fuzz.h"
#include "fuzz_sql.h"

#define GENUINE_MAX 16

static char *genuine[GENUINE_MAX];
static int	ngenuine;
static Statement inspect = {"SELECT valid, valid = (key IS NOT NULL) FROM idem_inspect($1)", "t", NULL};
static Statement status = {
	"SELECT outcome <> 'INVALID', key IS NULL OR outcome <> 'INVALID' FROM idem_status($1, 'alice')", "t", NULL
};
static Statement acquire = {
	"SELECT outcome <> 'INVALID', (outcome = 'ACQUIRED') = (owner IS NOT NULL) FROM idem_acquire($1, 'alice', 'charge',"
	" '{\"amount\":199,\"currency\":\"USD\",\"payee\":\"acct_42\"}')", "t", NULL
};

static void
begin_token(void)
{
	SPI_execute("SELECT token FROM fuzz_genuine", true, GENUINE_MAX);
	ngenuine = SPI_processed;
	for (int i = 0; i < ngenuine; i++)
		genuine[i] = strdup(SPI_getvalue(SPI_tuptable->vals[i], SPI_tuptable->tupdesc, 1));
	CHECK(ngenuine > 0);
}

/* The ends are trimmed of these, and at the end of one full stop among them. */
static bool
is_genuine(const char *token, size_t length)
{
	static const char *const forgiven = " \t\n\v\f\r\"'`";
	bool		stopped = false;

	if (length > FINGERPRINT_MAX_LENGTH || memchr(token, '\0', length) != NULL)
		return false;
	for (; length > 0 && strchr(forgiven, *token) != NULL; token++)
		length--;
	for (; length > 0; length--)
	{
		char		last = token[length - 1];

		if (last == '.' && !stopped)
			stopped = true;
		else if (strchr(forgiven, last) == NULL)
			break;
	}
	for (int i = 0; i < ngenuine; i++)
		if (strlen(genuine[i]) == length && memcmp(genuine[i], token, length) == 0)
			return true;
	return false;
}

/* Both columns of the one row: what the statement says of the token, and whether it is sound. */
static void
check_statement(Statement *statement, Datum token, bool expected)
{
	const Datum values[] = {token};
	Rows		rows = {0};

	CHECK(sql_run(statement, values, NULL, NULL, &rows) == 0);
	CHECK(rows.count == 1 && rows.column[0] != NULL && rows.column[1] != NULL);
	if (strcmp(rows.column[0], expected ? "t" : "f") != 0)
		finding("a token that is %s is said to be %s by %s", expected ? "genuine" : "forged", rows.column[0],
				statement->sql);
	CHECK(strcmp(rows.column[1], "t") == 0);
}

static void
run_token(const uint8 *data, size_t size)
{
	/* not mended: these functions take any bytes */
	Datum		token = PointerGetDatum(cstring_to_text_with_len((const char *) data, size));
	bool		expected = is_genuine((const char *) data, size);

	sql_savepoint();
	check_statement(&inspect, token, expected);
	check_statement(&status, token, expected);
	check_statement(&acquire, token, expected);
	sql_rollback_to_savepoint();
}

const Target target_token = {"token", run_token, begin_token, 0, 0};
