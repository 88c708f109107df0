/*
 * fingerprint.c: encode, decode and verify the token signed at preview.
 *
 * Pure: no table, no clock.  Nothing inside a token is decoded, let alone believed, before its MAC holds over
 * the bytes as received (RFC 2104, RFC 4231); only who routes it peeks, and believes nothing.  The time taken
 * does not tell which secret matched, or how much of a wrong MAC was right.
 */
#include "compat.h"

#include "lib/stringinfo.h"

#include "base64url.h"
#include "fingerprint.h"
#include "payload.h"

#define MAC_LENGTH SHA256_LENGTH
#define MAC_TEXT_LENGTH BASE64URL_LENGTH(MAC_LENGTH)

static bool split(const char **token, size_t length, size_t *text_length);
static bool read_text(const char *text, size_t length, Fingerprint *fingerprint);
static void trim(const char **token, size_t *length);
static bool is_forgiven(char c);
static bool verify(const char *text, size_t length, const uint8 mac[MAC_LENGTH],
				   const SecretBytes *secrets, int nsecrets);
static uint8 difference(const uint8 a[MAC_LENGTH], const uint8 b[MAC_LENGTH]);

char *
fingerprint_encode(const Fingerprint *fingerprint, const SecretBytes *secret)
{
	StringInfoData payload;
	uint8		mac[MAC_LENGTH];
	size_t		text_length;
	char	   *token;

	if (secret->length < SECRET_MIN_LENGTH || secret->length > SECRET_MAX_LENGTH)
		elog(ERROR, "secret has an impossible length");

	initStringInfo(&payload);
	payload_append(&payload, fingerprint);
	text_length = BASE64URL_LENGTH((size_t) payload.len);
	if (text_length + 1 + MAC_TEXT_LENGTH > FINGERPRINT_MAX_LENGTH)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("fingerprint would be too long"),
				 errdetail("It would have %zu bytes; at most %d are allowed.",
						   text_length + 1 + MAC_TEXT_LENGTH, FINGERPRINT_MAX_LENGTH),
				 errhint("Use a shorter subject and scope, or one with fewer control characters.")));

	token = palloc(text_length + 1 + MAC_TEXT_LENGTH + 1);
	base64url_encode((uint8 *) payload.data, payload.len, token);
	pfree(payload.data);

	hmac_sha256(secret->bytes, secret->length, token, text_length, mac);
	token[text_length] = '.';
	base64url_encode(mac, MAC_LENGTH, token + text_length + 1);
	token[text_length + 1 + MAC_TEXT_LENGTH] = '\0';
	return token;
}

bool
fingerprint_decode(const char *token, size_t length, const SecretBytes *secrets, int nsecrets,
				   Fingerprint *fingerprint)
{
	uint8		mac[MAC_LENGTH];
	size_t		text_length;

	/* a second full stop, or one elsewhere, is outside the alphabet of the part it falls into */
	return split(&token, length, &text_length) &&
		base64url_decode(token + text_length + 1, MAC_TEXT_LENGTH, mac) &&
		verify(token, text_length, mac, secrets, nsecrets) &&
		read_text(token, text_length, fingerprint);
}

bool
fingerprint_peek(const char *token, size_t length, pg_uuid_t *key)
{
	Fingerprint fingerprint;
	size_t		text_length;

	if (!split(&token, length, &text_length) || !read_text(token, text_length, &fingerprint))
		return false;
	*key = fingerprint.nonce;
	return true;
}

/*
 * Trim a token, and find the full stop before its MAC: text_length is the length of what stands before it.
 */
static bool
split(const char **token, size_t length, size_t *text_length)
{
	if (length > FINGERPRINT_MAX_LENGTH)
		return false;
	trim(token, &length);
	if (length <= 1 + MAC_TEXT_LENGTH)
		return false;
	*text_length = length - 1 - MAC_TEXT_LENGTH;
	return (*token)[*text_length] == '.';
}

/*
 * Decode and read what the MAC is over.
 */
static bool
read_text(const char *text, size_t length, Fingerprint *fingerprint)
{
	uint8		payload[BASE64URL_BYTES(FINGERPRINT_MAX_LENGTH)];

	return base64url_decode(text, length, payload) &&
		payload_read((char *) payload, BASE64URL_BYTES(length), fingerprint);
}

/*
 * Drop from the ends what models add to a token when they copy it: white space, quotes, backticks, and one full
 * stop at the end of a sentence.
 */
static void
trim(const char **token, size_t *length)
{
	bool		full_stop = false;

	while (*length > 0 && is_forgiven((*token)[0]))
	{
		(*token)++;
		(*length)--;
	}
	while (*length > 0)
	{
		char		last = (*token)[*length - 1];

		if (last == '.' && !full_stop)
			full_stop = true;
		else if (!is_forgiven(last))
			break;
		(*length)--;
	}
}

/*
 * Is this ASCII white space, a quote or a backtick?
 */
static bool
is_forgiven(char c)
{
	switch (c)
	{
		case ' ':
		case '\t':
		case '\n':
		case '\v':
		case '\f':
		case '\r':
		case '"':
		case '\'':
		case '`':
			return true;
		default:
			return false;
	}
}

/*
 * Is the MAC that of the text under one of the secrets?  All of them are tried whatever is found, so that the
 * time taken is the same.
 */
static bool
verify(const char *text, size_t length, const uint8 mac[MAC_LENGTH],
	   const SecretBytes *secrets, int nsecrets)
{
	volatile bool matches = false;

	for (int i = 0; i < nsecrets; i++)
	{
		uint8		computed[MAC_LENGTH];

		/* an empty or short secret is one that anybody can guess: the table refuses it, and so do we */
		if (secrets[i].length < SECRET_MIN_LENGTH || secrets[i].length > SECRET_MAX_LENGTH)
			continue;
		hmac_sha256(secrets[i].bytes, secrets[i].length, text, length, computed);
		matches |= difference(computed, mac) == 0;
	}
	return matches;
}

/*
 * Zero where two MACs are equal; the time taken does not depend on where they differ.  Volatile, so that no
 * compiler finds a way out of the loop.
 */
static uint8
difference(const uint8 a[MAC_LENGTH], const uint8 b[MAC_LENGTH])
{
	volatile uint8 bits = 0;

	for (int i = 0; i < MAC_LENGTH; i++)
		bits |= a[i] ^ b[i];
	return bits;
}
