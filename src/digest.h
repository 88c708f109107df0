/*
 * digest.h: SHA-256 (FIPS 180-4) and HMAC-SHA256 (RFC 2104).
 */
#ifndef IDEM_DIGEST_H
#define IDEM_DIGEST_H

#define SHA256_LENGTH 32
#define SHA256_BLOCK_LENGTH 64

/*
 * SHA-256 of what is added between the two.  There is one such hash at a time in a session: whoever begins one ends
 * it before anybody else begins the next, and may leave it where an error is raised.
 */
extern void digest_begin(void);
extern void digest_add(const void *bytes, size_t length);
extern void digest_end(uint8 hash[SHA256_LENGTH]);

/* SHA-256 of bytes. */
extern void sha256(const void *bytes, size_t length, uint8 hash[SHA256_LENGTH]);

/* HMAC-SHA256 of bytes under a key of at most SHA256_BLOCK_LENGTH bytes. */
extern void hmac_sha256(const uint8 *key, size_t key_length, const void *bytes, size_t length,
						uint8 mac[SHA256_LENGTH]);

#endif							/* IDEM_DIGEST_H */
