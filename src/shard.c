/*
 * shard.c: which of several servers an operation belongs to (docs/format.md, docs/scaling.md).
 *
 * Pure: no table, no clock, no secret.  Whoever routes has no secret: a token is read without being believed, and
 * the shard that it leads to judges it.  One that says nothing still leads to some shard, always the same, where it
 * is INVALID.
 *
 * The mapping is for ever: an operation that is looked for on another shard than before would be granted again.
 */
#include "compat.h"

#include "args.h"
#include "fingerprint.h"
#include "key.h"

#define SHARDS_MAX 65536

PG_FUNCTION_INFO_V1(idem_shard);
PG_FUNCTION_INFO_V1(idem_shard_key);

static int32 shard_of(const void *name, size_t length, int32 shards);
static int32 shard_count(FunctionCallInfo fcinfo, int n);

/*
 * idem_shard(fingerprint text, n int) RETURNS int
 *
 * The shard, 0 to n - 1, of the operation that a fingerprint names.  Raises nothing for what the fingerprint is;
 * 22004 and 22023 for n.
 */
Datum
idem_shard(PG_FUNCTION_ARGS)
{
	int32		shards = shard_count(fcinfo, 1);
	Span		token = args_text(fcinfo, 0);
	pg_uuid_t	key;

	if (token.data == NULL)
		token.data = "";
	if (fingerprint_peek(token.data, token.length, &key))
		PG_RETURN_INT32(shard_of(key.data, UUID_LEN, shards));
	PG_RETURN_INT32(shard_of(token.data, Min(token.length, FINGERPRINT_MAX_LENGTH), shards));
}

/*
 * idem_shard_key(key uuid, n int) RETURNS int
 *
 * The shard of an operation by its key; raises 22004 and 22023.
 */
Datum
idem_shard_key(PG_FUNCTION_ARGS)
{
	pg_uuid_t  *key = args_uuid(fcinfo, 0, "key");

	PG_RETURN_INT32(shard_of(key->data, UUID_LEN, shard_count(fcinfo, 1)));
}

/*
 * The jump consistent hash of Lamping and Veach (arXiv:1406.2294): with one shard more, one key in so many moves,
 * and only to the new one.  Doubles are IEEE 754's, so that the places are the same everywhere.  Hashed first, as
 * the bits of a key are only as random as its signer made them.
 */
static int32
shard_of(const void *name, size_t length, int32 shards)
{
	uint64		state = key_spread(name, length);
	int64		shard = -1;
	int64		next = 0;

	while (next < shards)
	{
		shard = next;
		state = state * UINT64CONST(2862933555777941757) + 1;
		next = (int64) ((double) (shard + 1) *
						((double) (INT64CONST(1) << 31) / (double) ((state >> 33) + 1)));
	}
	return (int32) shard;
}

/*
 * Argument n, the number of shards.
 */
static int32
shard_count(FunctionCallInfo fcinfo, int n)
{
	if (PG_ARGISNULL(n))
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("argument \"n\" must not be null"),
				 errhint("It is the number of shards.")));
	if (PG_GETARG_INT32(n) < 1 || PG_GETARG_INT32(n) > SHARDS_MAX)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("argument \"n\" is out of range"),
				 errhint("It is the number of shards, 1 to %d.", SHARDS_MAX)));
	return PG_GETARG_INT32(n);
}
