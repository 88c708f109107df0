/*
 * planted_faults.c: a module whose functions each do one thing that is forbidden.
 *
 * test/suites/sanitize and test/analysis/server call them, to know that what they watch with would see it.
 */
#include "postgres.h"

#include "access/table.h"
#include "fmgr.h"
#include "storage/bufmgr.h"
#include "utils/rel.h"

PG_MODULE_MAGIC;

PG_FUNCTION_INFO_V1(planted_stack);
PG_FUNCTION_INFO_V1(planted_sum);
PG_FUNCTION_INFO_V1(planted_chunk);
PG_FUNCTION_INFO_V1(planted_pin);
PG_FUNCTION_INFO_V1(planted_leak);

/* Read one byte behind an array on the stack. */
Datum
planted_stack(PG_FUNCTION_ARGS)
{
	char		array[8] = {0};
	char	   *volatile digits = array;	/* the compiler's own check of bounds is not asked */

	PG_RETURN_INT32(digits[PG_GETARG_INT32(0)]);
}

/* Add to the greatest integer. */
Datum
planted_sum(PG_FUNCTION_ARGS)
{
	volatile int sum = PG_INT32_MAX;

	sum = sum + PG_GETARG_INT32(0);
	PG_RETURN_INT32(sum);
}

/* Write one byte behind a palloc'd chunk, which is still inside a block of the memory context. */
Datum
planted_chunk(PG_FUNCTION_ARGS)
{
	volatile char *chunk = palloc0(13);

	chunk[PG_GETARG_INT32(0)] = 1;
	PG_RETURN_INT32(chunk[0]);
}

/* Read a page of a table after its pin was given back. */
Datum
planted_pin(PG_FUNCTION_ARGS)
{
	Relation	table = table_open(PG_GETARG_OID(0), AccessShareLock);
	Buffer		buffer = ReadBuffer(table, 0);
	volatile char *page = BufferGetPage(buffer);
	int			byte;

	ReleaseBuffer(buffer);
	byte = page[0];
	table_close(table, AccessShareLock);
	PG_RETURN_INT32(byte);
}

/* Keep a pin until the transaction's end finds it. */
Datum
planted_leak(PG_FUNCTION_ARGS)
{
	Relation	table = table_open(PG_GETARG_OID(0), AccessShareLock);
	Buffer		buffer = ReadBuffer(table, 0);

	table_close(table, AccessShareLock);
	PG_RETURN_INT32(buffer);
}
