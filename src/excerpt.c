/*
 * excerpt.c: the beginning of a JSON value as text, for the log.
 *
 * The text looks as jsonb's own does, but for numbers, which are written in the canonical way: as text of jsonb,
 * 1e131071 is 131072 digits, and a list of such numbers, small as it is, more than PostgreSQL can hold.
 */
#include "compat.h"

#include "mb/pg_wchar.h"
#include "utils/json.h"

#include "excerpt.h"
#include "number.h"

/* No more of a string than can be shown; its bytes are valid, and are not cut in the middle of a character. */
static void
append_string(StringInfo out, const JsonbValue *value, int max)
{
	int			shown = pg_mbcliplen(value->val.string.val, value->val.string.len, max + MAX_MULTIBYTE_CHAR_LEN);
	char	   *string = pnstrdup(value->val.string.val, shown);

	escape_json(out, string);
	pfree(string);
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
