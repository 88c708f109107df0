/*
 * excerpt.c: the beginning of a JSON value as text, for the log.
 *
 * The text looks as jsonb's own does, but for characters that could pass for another line of the log, or steer the
 * terminal that shows it: they are escaped.  And but for numbers, which are written in the canonical way: as text of jsonb,
 * 1e131071 is 131072 digits, and a list of such numbers, small as it is, more than PostgreSQL can hold.
 */
#include "compat.h"

#include "mb/pg_wchar.h"

#include "excerpt.h"
#include "number.h"

/* C0, DEL and C1, controls of bidirectional text, the separators of lines and paragraphs, the byte order mark. */
static bool
misleads(pg_wchar c)
{
	return c < 0x20 || (c >= 0x7F && c <= 0x9F) || c == 0x061C || c == 0x200E || c == 0x200F ||
		(c >= 0x2028 && c <= 0x202E) || (c >= 0x2066 && c <= 0x2069) || c == 0xFEFF;
}

/* One character, of so many bytes.  In another encoding than UTF-8, where idem does no work, ASCII alone is known. */
static void
append_character(StringInfo out, const char *at, int length, bool escaped)
{
	unsigned char first = *at;
	pg_wchar	c = first;

	if (length > 1)
		c = GetDatabaseEncoding() == PG_UTF8 ? utf8_to_unicode((const unsigned char *) at) : ' ';
	if (escaped && (c == '"' || c == '\\'))
		appendStringInfo(out, "\\%c", first);
	else if (misleads(c))
		appendStringInfo(out, "\\u%04x", (unsigned) c);
	else
		appendBinaryStringInfo(out, at, length);
}

/* The last character counts no more bytes than there are. */
static void
append_text(StringInfo out, const char *text, size_t length, bool escaped)
{
	const char *end = text + length;

	for (const char *at = text; at < end;)
	{
		int			size = Min(pg_encoding_mblen(GetDatabaseEncoding(), at), (int) (end - at));

		append_character(out, at, size, escaped);
		at += size;
	}
}

void
excerpt_append_string(StringInfo out, const char *text, size_t length)
{
	appendStringInfoChar(out, '"');
	append_text(out, text, length, true);
	appendStringInfoChar(out, '"');
}

void
excerpt_append_plain(StringInfo out, const char *text)
{
	append_text(out, text, strlen(text), false);
}

/* No more of a string than can be shown; its bytes are valid, and are not cut in the middle of a character. */
static void
append_string(StringInfo out, const JsonbValue *value, int max)
{
	int			shown = pg_mbcliplen(value->val.string.val, value->val.string.len, max + MAX_MULTIBYTE_CHAR_LEN);

	excerpt_append_string(out, value->val.string.val, shown);
}

static void
append_scalar(StringInfo out, const JsonbValue *value, int max)
{
	switch (value->type)
	{
		case jbvNull:
			appendStringInfoString(out, "null");
			break;
		case jbvString:
			append_string(out, value, max);
			break;
		case jbvNumeric:
			number_append(out, value->val.numeric);
			break;
		case jbvBool:
			appendStringInfoString(out, value->val.boolean ? "true" : "false");
			break;
		default:
			elog(ERROR, "a scalar in jsonb is of an unknown type");
	}
}

void
excerpt_append(StringInfo out, Jsonb *value, int max)
{
	JsonbIterator *at = JsonbIteratorInit(&value->root);
	JsonbIteratorToken token;
	JsonbValue	found;
	bool		first = true;

	while (out->len <= max && (token = JsonbIteratorNext(&at, &found, false)) != WJB_DONE)
	{
		/* a scalar alone is kept as an array of one */
		bool		is_array = (token == WJB_BEGIN_ARRAY || token == WJB_END_ARRAY) && !JB_ROOT_IS_SCALAR(value);
		bool		ends = token == WJB_END_ARRAY || token == WJB_END_OBJECT;

		if (!first && !ends && token != WJB_VALUE)
			appendStringInfoString(out, ", ");
		if (token == WJB_BEGIN_OBJECT || token == WJB_END_OBJECT)
			appendStringInfoChar(out, ends ? '}' : '{');
		else if (is_array)
			appendStringInfoChar(out, ends ? ']' : '[');
		else if (token == WJB_KEY || token == WJB_VALUE || token == WJB_ELEM)
			append_scalar(out, &found, max);
		if (token == WJB_KEY)
			appendStringInfoString(out, ": ");
		first = token == WJB_BEGIN_ARRAY || token == WJB_BEGIN_OBJECT || token == WJB_KEY;
	}
}
