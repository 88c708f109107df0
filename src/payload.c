/*
 * payload.c: the JSON object inside a fingerprint, written and read.
 *
 * The reader is its own, rather than the server's JSON parser, as that one raises errors, lets duplicate
 * members pass, and knows numbers beyond our range.  It never recurses, reads each byte once, never raises, and
 * stops at the first thing that no signer may write.
 */
#include "compat.h"

#include "mb/pg_wchar.h"
#include "utils/builtins.h"

#include "args.h"
#include "base64url.h"
#include "canonical.h"
#include "key.h"
#include "payload.h"

#define UUID_TEXT_LENGTH 36
#define HASH_TEXT_LENGTH BASE64URL_LENGTH(SHA256_LENGTH)
#define NAME_MAX_LENGTH 3		/* of the longest member name, "exp" */

/* What is still to be read. */
typedef struct Scanner
{
	const char *at;
	const char *end;
} Scanner;

typedef struct Member
{
	const char *name;
	bool		(*read) (Scanner *scanner, Fingerprint *fingerprint);
	bool		required;
} Member;

static bool read_member(Scanner *scanner, Fingerprint *fingerprint, uint32 *seen);
static bool read_nonce(Scanner *scanner, Fingerprint *fingerprint);
static bool read_expiry(Scanner *scanner, Fingerprint *fingerprint);
static bool read_subject(Scanner *scanner, Fingerprint *fingerprint);
static bool read_scope(Scanner *scanner, Fingerprint *fingerprint);
static bool read_hash(Scanner *scanner, Fingerprint *fingerprint);
static bool read_version(Scanner *scanner, Fingerprint *fingerprint);
static bool read_repeat(Scanner *scanner, Fingerprint *fingerprint);
static bool read_label(Scanner *scanner, char **label, size_t *length);
static bool read_integer(Scanner *scanner, int64 max, int64 *value);
static bool read_string(Scanner *scanner, char *out, size_t max, size_t *length);
static size_t read_escape(Scanner *scanner, unsigned char *out);
static bool read_code_unit(Scanner *scanner, pg_wchar *unit);
static bool read_literal(Scanner *scanner, const char *literal);
static bool read_char(Scanner *scanner, char c);
static void skip_white_space(Scanner *scanner);
static int	hex_value(char c);

/* In the order in which they are written. */
static const Member members[] = {
	{"n", read_nonce, true},
	{"exp", read_expiry, true},
	{"u", read_subject, true},
	{"s", read_scope, true},
	{"p", read_hash, true},
	{"v", read_version, false},
	{"r", read_repeat, false},
};

/*
 * Append a UUID as text.  By hand, like the numbers below: printf's way took as long as the hash of the payload.
 */
static void
append_uuid(StringInfo out, const pg_uuid_t *uuid)
{
	static const char hex[] = "0123456789abcdef";
	char		text[UUID_TEXT_LENGTH];
	char	   *at = text;

	for (int i = 0; i < UUID_LEN; i++)
	{
		if (i == 4 || i == 6 || i == 8 || i == 10)
			*at++ = '-';
		*at++ = hex[uuid->data[i] >> 4];
		*at++ = hex[uuid->data[i] & 0x0f];
	}
	appendBinaryStringInfo(out, text, UUID_TEXT_LENGTH);
}

static void
append_integer(StringInfo out, int64 value)
{
	char		text[MAXINT8LEN + 1];

	appendBinaryStringInfo(out, text, pg_lltoa(value, text));
}

void
payload_append(StringInfo out, const Fingerprint *fingerprint)
{
	char		hash[HASH_TEXT_LENGTH];

	appendStringInfoString(out, "{\"n\":\"");
	append_uuid(out, &fingerprint->nonce);
	appendStringInfoString(out, "\",\"exp\":");
	append_integer(out, fingerprint->expires);
	appendStringInfoString(out, ",\"u\":");
	canonical_append_string(out, fingerprint->subject, fingerprint->subject_length);
	appendStringInfoString(out, ",\"s\":");
	canonical_append_string(out, fingerprint->scope, fingerprint->scope_length);
	base64url_encode(fingerprint->param_hash, SHA256_LENGTH, hash);
	appendStringInfoString(out, ",\"p\":\"");
	appendBinaryStringInfo(out, hash, HASH_TEXT_LENGTH);
	appendStringInfoChar(out, '"');
	if (fingerprint->version != 0)
	{
		appendStringInfoString(out, ",\"v\":");
		append_integer(out, fingerprint->version);
	}
	if (fingerprint->confirmed_repeat)
		appendStringInfoString(out, ",\"r\":true");
	appendStringInfoChar(out, '}');
}

bool
payload_read(const char *json, size_t length, Fingerprint *fingerprint)
{
	Scanner		scanner = {json, json + length};
	uint32		seen = 0;

	/* this also finds a NUL, so that bytes of strings need no further look */
	if (pg_encoding_verifymbstr(PG_UTF8, json, length) != (int) length)
		return false;

	memset(fingerprint, 0, sizeof(*fingerprint));
	if (!read_char(&scanner, '{'))
		return false;
	do
	{
		if (!read_member(&scanner, fingerprint, &seen))
			return false;
	} while (read_char(&scanner, ','));
	if (!read_char(&scanner, '}'))
		return false;
	skip_white_space(&scanner);
	if (scanner.at != scanner.end)
		return false;

	for (int i = 0; i < (int) lengthof(members); i++)
		if (members[i].required && (seen & (1u << i)) == 0)
			return false;
	return true;
}

/*
 * Read one member, which must be known and not yet seen.
 */
static bool
read_member(Scanner *scanner, Fingerprint *fingerprint, uint32 *seen)
{
	char		name[NAME_MAX_LENGTH + 1];
	size_t		length;

	/* names are compared unescaped: "\u006e" is "n", and a duplicate of it */
	if (!read_string(scanner, name, NAME_MAX_LENGTH, &length) || !read_char(scanner, ':'))
		return false;
	for (int i = 0; i < (int) lengthof(members); i++)
	{
		if (strcmp(name, members[i].name) != 0)
			continue;
		if ((*seen & (1u << i)) != 0)
			return false;
		*seen |= 1u << i;
		return members[i].read(scanner, fingerprint);
	}
	return false;
}

/*
 * "n": the one spelling of a version-7 UUID, 36 characters in lower case.
 */
static bool
read_nonce(Scanner *scanner, Fingerprint *fingerprint)
{
	char		text[UUID_TEXT_LENGTH + 1];
	uint8	   *out = fingerprint->nonce.data;
	size_t		length;

	if (!read_string(scanner, text, UUID_TEXT_LENGTH, &length) || length != UUID_TEXT_LENGTH)
		return false;
	for (int i = 0; i < UUID_TEXT_LENGTH;)
	{
		int			high;
		int			low;

		if (i == 8 || i == 13 || i == 18 || i == 23)
		{
			if (text[i++] != '-')
				return false;
			continue;
		}
		high = hex_value(text[i]);
		low = hex_value(text[i + 1]);
		if (high < 0 || low < 0)
			return false;
		*out++ = (uint8) (high << 4 | low);
		i += 2;
	}
	return key_is_v7(&fingerprint->nonce);
}

/*
 * "exp": a time in whole seconds.  One in milliseconds is past the year 9999 and refused with it.
 */
static bool
read_expiry(Scanner *scanner, Fingerprint *fingerprint)
{
	return read_integer(scanner, FINGERPRINT_MAX_EXPIRY, &fingerprint->expires) &&
		fingerprint->expires > 0;
}

static bool
read_subject(Scanner *scanner, Fingerprint *fingerprint)
{
	return read_label(scanner, &fingerprint->subject, &fingerprint->subject_length);
}

static bool
read_scope(Scanner *scanner, Fingerprint *fingerprint)
{
	return read_label(scanner, &fingerprint->scope, &fingerprint->scope_length);
}

/*
 * "p": base64url of a parameter hash.
 */
static bool
read_hash(Scanner *scanner, Fingerprint *fingerprint)
{
	char		text[HASH_TEXT_LENGTH + 1];
	size_t		length;

	return read_string(scanner, text, HASH_TEXT_LENGTH, &length) &&
		length == HASH_TEXT_LENGTH &&
		base64url_decode(text, length, fingerprint->param_hash);
}

/*
 * "v": the version of the policy's lists.  A signer may write the 0 that its absence means.
 */
static bool
read_version(Scanner *scanner, Fingerprint *fingerprint)
{
	int64		version;

	if (!read_integer(scanner, PG_INT32_MAX, &version))
		return false;
	fingerprint->version = (int32) version;
	return true;
}

/*
 * "r": there and true, or not there.
 */
static bool
read_repeat(Scanner *scanner, Fingerprint *fingerprint)
{
	fingerprint->confirmed_repeat = true;
	return read_literal(scanner, "true");
}

/*
 * Read a subject or scope.
 */
static bool
read_label(Scanner *scanner, char **label, size_t *length)
{
	*label = palloc(LABEL_MAX_LENGTH + 1);
	return read_string(scanner, *label, LABEL_MAX_LENGTH, length) && *length > 0;
}

/*
 * Read digits that stand for an integer from 0 to max: no sign, leading zero, fraction or exponent.
 */
static bool
read_integer(Scanner *scanner, int64 max, int64 *value)
{
	const char *start;

	skip_white_space(scanner);
	*value = 0;
	for (start = scanner->at; scanner->at < scanner->end; scanner->at++)
	{
		int			digit = *scanner->at - '0';

		if (digit < 0 || digit > 9)
			break;
		if (scanner->at > start && *start == '0')
			return false;
		if (*value > (max - digit) / 10)
			return false;
		*value = *value * 10 + digit;
	}

	/* whatever else follows the digits is no comma and no brace, and refused as such */
	return scanner->at > start;
}

/*
 * Read a string of at most max bytes, unescaped, into out, which has room for one more: a NUL follows.
 */
static bool
read_string(Scanner *scanner, char *out, size_t max, size_t *length)
{
	*length = 0;
	if (!read_char(scanner, '"'))
		return false;
	while (scanner->at < scanner->end)
	{
		unsigned char c = (unsigned char) *scanner->at++;
		unsigned char bytes[MAX_MULTIBYTE_CHAR_LEN + 1];
		size_t		count;

		if (c == '"')
		{
			out[*length] = '\0';
			return true;
		}
		if (c < 0x20)
			return false;
		if (c != '\\')
		{
			if (*length == max)
				return false;
			out[(*length)++] = (char) c;
			continue;
		}
		count = read_escape(scanner, bytes);
		if (count == 0 || count > max - *length)
			return false;
		memcpy(out + *length, bytes, count);
		*length += count;
	}
	return false;
}

/*
 * Read what follows a backslash and write the UTF-8 bytes it stands for, at most 4; returns their number, 0 for
 * an escape that JSON does not know, a lone surrogate and U+0000, which no text can hold.
 */
static size_t
read_escape(Scanner *scanner, unsigned char *out)
{
	static const char letter[] = "\"\\/bfnrt";
	static const char meaning[] = "\"\\/\b\f\n\r\t";
	const char *place;
	pg_wchar	unit;
	pg_wchar	second;

	if (scanner->at == scanner->end)
		return 0;
	if (*scanner->at != 'u')
	{
		place = strchr(letter, *scanner->at++);
		if (place == NULL)
			return 0;
		out[0] = (unsigned char) meaning[place - letter];
		return 1;
	}

	if (!read_code_unit(scanner, &unit) || unit == 0 || is_utf16_surrogate_second(unit))
		return 0;
	if (is_utf16_surrogate_first(unit))
	{
		if (scanner->at == scanner->end || *scanner->at++ != '\\' ||
			!read_code_unit(scanner, &second) || !is_utf16_surrogate_second(second))
			return 0;
		unit = surrogate_pair_to_codepoint(unit, second);
	}
	unicode_to_utf8(unit, out);
	return pg_utf_mblen(out);
}

/*
 * Read "u" and four hexadecimal digits.
 */
static bool
read_code_unit(Scanner *scanner, pg_wchar *unit)
{
	if (scanner->end - scanner->at < 5 || *scanner->at++ != 'u')
		return false;
	*unit = 0;
	for (int i = 0; i < 4; i++)
	{
		int			digit = hex_value(pg_ascii_tolower((unsigned char) *scanner->at++));

		if (digit < 0)
			return false;
		*unit = *unit << 4 | digit;
	}
	return true;
}

/*
 * Step over white space and then a literal; returns false, having stepped over the white space alone, where
 * something else stands there.
 */
static bool
read_literal(Scanner *scanner, const char *literal)
{
	size_t		length = strlen(literal);

	skip_white_space(scanner);
	if (scanner->end - scanner->at < (ptrdiff_t) length || memcmp(scanner->at, literal, length) != 0)
		return false;
	scanner->at += length;
	return true;
}

/*
 * The same for a single character.
 */
static bool
read_char(Scanner *scanner, char c)
{
	skip_white_space(scanner);
	if (scanner->at == scanner->end || *scanner->at != c)
		return false;
	scanner->at++;
	return true;
}

/*
 * Step over the four characters that JSON takes for white space.
 */
static void
skip_white_space(Scanner *scanner)
{
	while (scanner->at < scanner->end &&
		   (*scanner->at == ' ' || *scanner->at == '\t' || *scanner->at == '\n' || *scanner->at == '\r'))
		scanner->at++;
}

/*
 * What a hexadecimal digit in lower case stands for, or -1.
 */
static int
hex_value(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	if (c >= 'a' && c <= 'f')
		return c - 'a' + 10;
	return -1;
}
