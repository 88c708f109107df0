/*
 * key.h: the UUIDs that name operations (RFC 9562).
 *
 * Pure but for the random source.
 */
#ifndef IDEM_KEY_H
#define IDEM_KEY_H

#include "datatype/timestamp.h"
#include "utils/uuid.h"

/* How a direct call names its operation: by its parameters, or by a key of the client's. */
typedef enum DirectKind
{
	DIRECT_CONTENT,
	DIRECT_CLIENT
} DirectKind;

/* A fresh version-7 UUID: 48 bits of Unix milliseconds, the rest random.  Raises XX000 without randomness. */
extern void key_v7(TimestampTz now, pg_uuid_t *key);

/* A fresh version-4 UUID, all random: an owner token.  Raises likewise. */
extern void key_v4(pg_uuid_t *key);

/* Is this a version-7 UUID of the RFC's variant? */
extern bool key_is_v7(const pg_uuid_t *key);

/*
 * The version-8 UUID of a direct call: SHA-256 over the parts "idem:key:1", "content" or "client", scope,
 * subject, and the canonical bytes or the client's key, each preceded by its length as 4 bytes big-endian.
 */
extern void key_direct(DirectKind kind, const char *scope, size_t scope_length,
					   const char *subject, size_t subject_length,
					   const char *content, size_t content_length, pg_uuid_t *key);

/*
 * The version-8 UUID that all operations of equal content have in common: the same over "idem:guard:1", scope, subject
 * and the canonical bytes.
 */
extern void key_guard(const char *scope, size_t scope_length, const char *subject, size_t subject_length,
					  const char *content, size_t content_length, pg_uuid_t *key);

/* The version-8 UUID of one downstream step: the same over "idem:step:1", the key's 16 bytes, the name. */
extern void key_step(const pg_uuid_t *operation, const char *step, size_t step_length, pg_uuid_t *key);

/*
 * A number that spreads names evenly, for routing: the first 8 bytes, big-endian, of SHA-256 over "idem:shard:1" and
 * the name, each preceded by its length.
 */
extern uint64 key_spread(const void *name, size_t length);

#endif							/* IDEM_KEY_H */
