/*
 * floor.c: what calls of C functions cost that do nothing.
 *
 *		CREATE FUNCTION bench_floor(text, text, jsonb) RETURNS text AS '.../floor' LANGUAGE C VOLATILE
 *		CREATE FUNCTION bench_claim(..., answer idem_claim) RETURNS idem_claim AS '.../floor' LANGUAGE C VOLATILE
 */
#include "postgres.h"

#include "fmgr.h"
#include "utils/builtins.h"

PG_MODULE_MAGIC;
PG_FUNCTION_INFO_V1(bench_floor);
PG_FUNCTION_INFO_V1(bench_claim);

/* A text as long as a fingerprint. */
Datum
bench_floor(PG_FUNCTION_ARGS)
{
	static const char answer[] =
		"0123456789012345678901234567890123456789012345678901234567890123456789012345678901234567890123456789"
		"0123456789012345678901234567890123456789012345678901234567890123456789012345678901234567890123456789"
		"0123456789012345678901234567890123456789";

	PG_RETURN_TEXT_P(cstring_to_text_with_len(answer, sizeof(answer) - 1));
}

/* The claim that is its last argument, after those that idem_acquire() has. */
Datum
bench_claim(PG_FUNCTION_ARGS)
{
	PG_RETURN_DATUM(PG_GETARG_DATUM(8));
}
