/*
 * key.c: the UUIDs that name operations and their downstream steps (RFC 9562 sections 5.7 and 5.8).
 *
 * A name's parts are hashed each with its length before it, so that no two lists of parts give the same
 * bytes, whatever they hold.
 */
#include "compat.h"

#include "port/pg_bswap.h"
#include "utils/timestamp.h"

#include "canonical.h"
#include "key.h"

#define UNIX_EPOCH_OFFSET \
	((POSTGRES_EPOCH_JDATE - UNIX_EPOCH_JDATE) * USECS_PER_DAY)	/* from PostgreSQL's epoch to 1970 */

typedef struct Part
{
	const void *data;
	size_t		length;
} Part;

/* Set the version, 1 to 15, and the RFC's variant. */
static void
stamp_version(pg_uuid_t *key, int version)
{
	key->data[6] = (key->data[6] & 0x0f) | (version << 4);
	key->data[8] = (key->data[8] & 0x3f) | 0x80;
}

/*
 * Fill the bytes from place from on with random ones.  They are drawn for some keys at a time, since a draw of 10
 * bytes costs as much as one of 500, and as much as hashing a payload; bytes once given out are wiped.
 */
static void
randomize(pg_uuid_t *key, int from)
{
	static uint8 pool[32 * UUID_LEN];
	static size_t left = 0;
	size_t		wanted = UUID_LEN - from;

	if (left < wanted)
	{
		left = 0;
		if (!pg_strong_random(pool, sizeof(pool)))
			ereport(ERROR,
					errcode(ERRCODE_INTERNAL_ERROR),
					errmsg("could not generate random values for a key"));
		left = sizeof(pool);
	}
	left -= wanted;
	memcpy(key->data + from, pool + left, wanted);
	explicit_bzero(pool + left, wanted);
}

void
key_v7(TimestampTz now, pg_uuid_t *key)
{
	uint64		milliseconds = (now + UNIX_EPOCH_OFFSET) / 1000;

	for (int i = 0; i < 6; i++)
		key->data[i] = milliseconds >> (8 * (5 - i));
	randomize(key, 6);
	stamp_version(key, 7);
}

void
key_v4(pg_uuid_t *key)
{
	randomize(key, 0);
	stamp_version(key, 4);
}

bool
key_is_v7(const pg_uuid_t *key)
{
	return key->data[6] >> 4 == 7 && key->data[8] >> 6 == 2;
}

/* hash_parts makes the SHA-256 of a list of parts. */
static void
hash_parts(const Part *parts, int count, uint8 hash[SHA256_LENGTH])
{
	digest_begin();
	for (int i = 0; i < count; i++)
	{
		uint32		length = pg_hton32((uint32) parts[i].length);

		digest_add(&length, sizeof(length));
		digest_add(parts[i].data, parts[i].length);
	}
	digest_end(hash);
}

/* name_parts makes the version-8 UUID that a list of parts has. */
static void
name_parts(const Part *parts, int count, pg_uuid_t *key)
{
	uint8		hash[SHA256_LENGTH];

	hash_parts(parts, count, hash);
	memcpy(key->data, hash, UUID_LEN);
	stamp_version(key, 8);
}

void
key_direct(DirectKind kind, const char *scope, size_t scope_length,
		   const char *subject, size_t subject_length,
		   const char *content, size_t content_length, pg_uuid_t *key)
{
	const char *door = kind == DIRECT_CONTENT ? "content" : "client";
	Part		parts[] = {
		{"idem:key:1", strlen("idem:key:1")},
		{door, strlen(door)},
		{scope, scope_length},
		{subject, subject_length},
		{content, content_length}
	};

	name_parts(parts, lengthof(parts), key);
}

void
key_guard(const char *scope, size_t scope_length, const char *subject, size_t subject_length,
		  const char *content, size_t content_length, pg_uuid_t *key)
{
	Part		parts[] = {
		{"idem:guard:1", strlen("idem:guard:1")},
		{scope, scope_length},
		{subject, subject_length},
		{content, content_length}
	};

	name_parts(parts, lengthof(parts), key);
}

void
key_step(const pg_uuid_t *operation, const char *step, size_t step_length, pg_uuid_t *key)
{
	Part		parts[] = {
		{"idem:step:1", strlen("idem:step:1")},
		{operation->data, UUID_LEN},
		{step, step_length}
	};

	name_parts(parts, lengthof(parts), key);
}

uint64
key_spread(const void *name, size_t length)
{
	Part		parts[] = {
		{"idem:shard:1", strlen("idem:shard:1")},
		{name, length}
	};
	uint8		hash[SHA256_LENGTH];
	uint64		spread;

	hash_parts(parts, lengthof(parts), hash);
	memcpy(&spread, hash, sizeof(spread));
	return pg_ntoh64(spread);
}
