/*
 * floor.c: what a call of a C function costs that does nothing.
 *
 *		CREATE FUNCTION bench_floor(text, text, jsonb) RETURNS text AS '.../floor' LANGUAGE C VOLATILE
 */
#include "postgres.h"

#include "fmgr.h"
#include "utils/builtins.h"

PG_MODULE_MAGIC;
PG_FUNCTION_INFO_V1(bench_floor);

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
