/*
 * http.c: the value of an Idempotency-Key header.
 *
 * Pure.  The header is a structured one whose value is a String (RFC 8941 section 3.3.3): a quoted text of
 * printable ASCII in which \" and \\ stand for themselves.  A bare word is another type there; taken for a key all
 * the same, it would be another operation than its quoted form, or the same, depending on who reads it.
 */
#include "compat.h"

#include "utils/builtins.h"

#include "args.h"

PG_FUNCTION_INFO_V1(idem_http_key);

/* Read a String, blanks around it allowed, into out, which has room for it; returns its length, or -1. */
static ssize_t
read_string(const char *p, const char *end, char *out)
{
	ssize_t		length = 0;

	while (p < end && *p == ' ')
		p++;
	while (end > p && end[-1] == ' ')
		end--;
	/* cppcheck-suppress knownConditionTrueFalse ; it takes the loops to have met */
	if (end - p < 2 || *p++ != '"' || *--end != '"')
		return -1;
	while (p < end)
	{
		char		c = *p++;

		if (c == '"' || c < ' ' || c > '~')
			return -1;
		if (c == '\\')
		{
			if (p == end || (*p != '"' && *p != '\\'))
				return -1;
			c = *p++;
		}
		out[length++] = c;
	}
	return length;
}

/*
 * idem_http_key(header text) RETURNS text
 *
 * The key in the value of an Idempotency-Key header.  Raises 22004 for null, a header that is missing, and 22023
 * for what is no String, for an empty one, and for parameters after it, of which none is defined.
 */
Datum
idem_http_key(PG_FUNCTION_ARGS)
{
	Span		header = args_text(fcinfo, 0);
	char	   *key;
	ssize_t		length;

	if (header.data == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("header is missing"),
				 errhint("Send an Idempotency-Key header, its value in double quotes.")));
	key = palloc(header.length + 1);
	length = read_string(header.data, header.data + header.length, key);
	if (length <= 0)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("header is not a quoted string"),
				 errhint("The value of Idempotency-Key is a String of RFC 8941: printable ASCII in double quotes, with a backslash before each double quote and backslash in it, and not empty.")));
	PG_RETURN_TEXT_P(cstring_to_text_with_len(key, length));
}
