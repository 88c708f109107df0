/*
 * digest.c: SHA-256 and HMAC-SHA256, by OpenSSL, which pgcrypto brings to every server that has this extension.
 *
 * The server's own interface (common/cryptohash.h, common/hmac.h) makes a context for each hash, and OpenSSL 3 looks
 * the algorithm up for each context, behind a lock: that was a third of a replay's instructions, and more than
 * half of a signature's.  Here algorithm and context are made once in a session.
 */
#include "compat.h"

#include <openssl/evp.h>

#include "digest.h"

static EVP_MD_CTX *context = NULL;
static const EVP_MD *algorithm = NULL;

static void
refuse(void)
{
	ereport(ERROR,
			(errcode(ERRCODE_INTERNAL_ERROR),
			 errmsg("could not compute SHA-256"),
			 errhint("See whether OpenSSL on this server provides it.")));
}

/* Look the algorithm up, once in a session.  The context comes last: while there is none, nothing is ready. */
static void
prepare(void)
{
#if OPENSSL_VERSION_NUMBER >= 0x30000000L
	if (algorithm == NULL)
		algorithm = EVP_MD_fetch(NULL, "SHA256", NULL);
#else
	algorithm = EVP_sha256();
#endif
	if (algorithm != NULL)
		context = EVP_MD_CTX_new();
	if (context == NULL)
		refuse();
}

void
digest_begin(void)
{
	if (context == NULL)
		prepare();
	if (!EVP_DigestInit_ex(context, algorithm, NULL))
		refuse();
}

void
digest_add(const void *bytes, size_t length)
{
	if (!EVP_DigestUpdate(context, bytes, length))
		refuse();
}

void
digest_end(uint8 hash[SHA256_LENGTH])
{
	if (!EVP_DigestFinal_ex(context, hash, NULL))
		refuse();
}

void
sha256(const void *bytes, size_t length, uint8 hash[SHA256_LENGTH])
{
	digest_begin();
	digest_add(bytes, length);
	digest_end(hash);
}

/* Begin a hash with the key, each of its bytes changed by a mask, filled up to a block (RFC 2104 section 2). */
static void
begin_with_key(const uint8 *key, size_t key_length, uint8 mask)
{
	uint8		pad[SHA256_BLOCK_LENGTH];

	memset(pad, mask, sizeof(pad));
	for (size_t i = 0; i < key_length; i++)
		pad[i] ^= key[i];
	digest_begin();
	digest_add(pad, sizeof(pad));
	explicit_bzero(pad, sizeof(pad));
}

void
hmac_sha256(const uint8 *key, size_t key_length, const void *bytes, size_t length, uint8 mac[SHA256_LENGTH])
{
	Assert(key_length <= SHA256_BLOCK_LENGTH);
	begin_with_key(key, key_length, 0x36);
	digest_add(bytes, length);
	digest_end(mac);
	begin_with_key(key, key_length, 0x5c);
	digest_add(mac, SHA256_LENGTH);
	digest_end(mac);
}
