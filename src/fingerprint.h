/*
 * fingerprint.h: encode, decode and verify the token signed at preview.
 *
 * Pure: no table, no clock.  B64(payload) "." B64(HMAC-SHA256(secret, B64(payload))), B64 being unpadded
 * base64url (RFC 4648 section 5), one spelling for each value.  docs/format.md has the payload.
 */
#ifndef IDEM_FINGERPRINT_H
#define IDEM_FINGERPRINT_H

#include "utils/uuid.h"

#include "canonical.h"

#define FINGERPRINT_MAX_LENGTH 4096		/* bytes, before the ends are trimmed */
#define FINGERPRINT_MAX_EXPIRY INT64CONST(253402300799)	/* 9999-12-31T23:59:59Z, in Unix seconds */
#define SECRET_MIN_LENGTH 32			/* bytes */
#define SECRET_MAX_LENGTH 64			/* bytes: SHA-256's block, so that no secret is hashed first */

/* The bytes of one secret. */
typedef struct SecretBytes
{
	int			length;
	uint8		bytes[SECRET_MAX_LENGTH];
} SecretBytes;

/* What a token says. Strings are not terminated by what their length counts, but a NUL follows. */
typedef struct Fingerprint
{
	pg_uuid_t	nonce;			/* version 7: the operation's key */
	int64		expires;		/* Unix seconds */
	char	   *subject;
	size_t		subject_length;
	char	   *scope;
	size_t		scope_length;
	uint8		param_hash[SHA256_LENGTH];
	int32		version;		/* of the policy's lists, 0: everything is material */
	bool		confirmed_repeat;
} Fingerprint;

/* The token, in the current memory context.  Raises 22023 where it would be over FINGERPRINT_MAX_LENGTH. */
extern char *fingerprint_encode(const Fingerprint *fingerprint, const SecretBytes *secret);

/*
 * Verify a token against every one of the secrets, in constant time, and only then read it.  Returns false for
 * anything that fingerprint_encode, under one of them, could not have made (white space, quotes, backticks
 * and one trailing full stop at its ends are forgiven, and members may come in any order).  Never raises for
 * what the token says.  Strings are allocated in the current memory context.
 */
extern bool fingerprint_decode(const char *token, size_t length,
							   const SecretBytes *secrets, int nsecrets,
							   Fingerprint *fingerprint);

/*
 * The key that a token names, without a secret and therefore without belief, for routing alone.  Returns false where
 * its payload cannot be read; whatever fingerprint_decode accepts can.  Never raises for what the token says.
 */
extern bool fingerprint_peek(const char *token, size_t length, pg_uuid_t *key);

#endif							/* IDEM_FINGERPRINT_H */
