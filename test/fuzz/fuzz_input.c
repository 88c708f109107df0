/*
 * fuzz_input.c: from bytes to texts, JSON and lists of pointers.
 *
 * Every input is one of these, so that no run is spent on what the JSON parser turns away; names come from a few,
 * so that pointers and members meet.
 */
#include "compat.h"

#include "catalog/pg_type.h"
#include "mb/pg_wchar.h"
#include "utils/builtins.h"
#include "utils/fmgrprotos.h"
#include "utils/json.h"

#include "fuzz.h"

#define DEPTH_MAX 12
#define MEMBERS_MAX 8

static const char *const names[] = {
	"amount", "currency", "payee", "items", "sku", "memo", "0", "1", "10", "00", "*", "-", "", "a/b", "m~n", "~0",
	"\xc3\xa9", "\xe2\x82\xac", "\xee\x80\x80", "\xef\xbf\xbf", "\xf0\x9f\x98\x80", "\x01", "\"", "\\"
};

static void put_value(StringInfo out, Input *input, int depth);

uint8
take_byte(Input *input)
{
	return input->at < input->end ? *input->at++ : 0;
}

void
mend_utf8(char *text)
{
	for (char *at = text; *at != '\0';)
	{
		int			length = pg_utf_mblen((unsigned char *) at);

		if (length > (int) strlen(at) || !pg_utf8_islegal((unsigned char *) at, length))
		{
			*at = '?';
			length = 1;
		}
		at += length;
	}
}

char *
take_text(Input *input, size_t max)
{
	size_t		length = Min(take_byte(input), max);
	char	   *text;

	length = Min(length, (size_t) (input->end - input->at));
	text = palloc(length + 1);
	memcpy(text, input->at, length);
	input->at += length;
	for (size_t i = 0; i < length; i++)
		if (text[i] == '\0')
			text[i] = '0';
	text[length] = '\0';
	mend_utf8(text);
	return text;
}

/* One character as \uXXXX, or as two of them. */
static void
put_escape(StringInfo out, pg_wchar c)
{
	if (c < 0x10000)
		appendStringInfo(out, "\\u%04X", c);
	else
		appendStringInfo(out, "\\u%04x\\u%04x", 0xd7c0 + (c >> 10), 0xdc00 + (c & 0x3ff));
}

static void
put_string(StringInfo out, const char *text, bool escape)
{
	if (!escape)
	{
		escape_json(out, text);
		return;
	}
	appendStringInfoChar(out, '"');
	for (const char *at = text; *at != '\0'; at += pg_utf_mblen((unsigned char *) at))
		put_escape(out, utf8_to_unicode((unsigned char *) at));
	appendStringInfoChar(out, '"');
}

static void
put_digits(StringInfo out, Input *input, int count, bool leading)
{
	for (int i = 0; i < count; i++)
	{
		int			digit = take_byte(input) % 10;

		/* no number may begin with a zero but zero */
		appendStringInfoChar(out, '0' + (leading && i == 0 && count > 1 && digit == 0 ? 1 : digit));
	}
}

static int
take_exponent(Input *input)
{
	static const int edges[] = {-7, -6, 20, 21, 131071, 131072, -16383, -16384, 400, -400, 308, -324};
	uint8		kind = take_byte(input);

	if (kind < 64)
		return edges[kind % lengthof(edges)];
	if (kind < 128)
		return (int16) (take_byte(input) << 8 | take_byte(input));
	return (kind - 192) / 2;
}

static void
put_number(StringInfo out, Input *input)
{
	uint8		form = take_byte(input);
	uint8		counts = take_byte(input);

	if (form & 1)
		appendStringInfoChar(out, '-');
	put_digits(out, input, 1 + counts % 24, true);
	if (form & 2)
		for (int i = take_byte(input) * 4; i > 0; i--)
			appendStringInfoChar(out, '0');
	if (form & 4)
	{
		appendStringInfoChar(out, '.');
		if (form & 8)
			for (int i = take_byte(input) * 4; i > 0; i--)
				appendStringInfoChar(out, '0');
		put_digits(out, input, 1 + counts / 24, false);
	}
	if (form & 16)
		appendStringInfo(out, form & 32 ? "E%+d" : "e%d", take_exponent(input));
}

/* "0" followed by digits is no number: a lone leading zero is left as it is. */
static void
put_sound_number(StringInfo out, Input *input)
{
	int			start = out->len;
	int			first;

	put_number(out, input);
	first = start + (out->data[start] == '-');
	if (out->data[first] == '0' && first + 1 < out->len && isdigit((unsigned char) out->data[first + 1]))
		out->data[first] = '1';
}

static void
put_object(StringInfo out, Input *input, int depth)
{
	int			count = take_byte(input) % MEMBERS_MAX;

	appendStringInfoChar(out, '{');
	for (int i = 0; i < count && input->at < input->end; i++)
	{
		uint8		name = take_byte(input);

		if (i > 0)
			appendStringInfoChar(out, ',');
		put_string(out, name < 192 ? names[name % lengthof(names)] : take_text(input, 255), name & 1);
		appendStringInfoChar(out, ':');
		put_value(out, input, depth + 1);
	}
	appendStringInfoChar(out, '}');
}

static void
put_array(StringInfo out, Input *input, int depth)
{
	int			count = take_byte(input) % MEMBERS_MAX;

	appendStringInfoChar(out, '[');
	for (int i = 0; i < count && input->at < input->end; i++)
	{
		if (i > 0)
			appendStringInfoChar(out, ',');
		put_value(out, input, depth + 1);
	}
	appendStringInfoChar(out, ']');
}

static void
put_value(StringInfo out, Input *input, int depth)
{
	uint8		kind = take_byte(input) % 16;

	if (kind >= 10 && depth >= DEPTH_MAX)
		kind -= 8;
	if (kind < 1)
		appendStringInfoString(out, "null");
	else if (kind < 2)
		appendStringInfoString(out, take_byte(input) & 1 ? "true" : "false");
	else if (kind < 7)
		put_sound_number(out, input);
	else if (kind < 10)
		put_string(out, take_text(input, 255), kind == 9);
	else if (kind < 13)
		put_object(out, input, depth);
	else
		put_array(out, input, depth);
}

char *
take_document(Input *input)
{
	StringInfoData out;

	initStringInfo(&out);
	/* parameters are an object as a rule */
	if (take_byte(input) < 224)
		put_object(&out, input, 0);
	else
		put_value(&out, input, 0);
	return out.data;
}

/* A pointer of some tokens, now and then not escaped, or any text. */
static Datum
take_pointer(Input *input)
{
	uint8		kind = take_byte(input);
	StringInfoData out;

	if (kind >= 240)
		return CStringGetTextDatum(take_text(input, 255));
	initStringInfo(&out);
	for (int i = kind % 5; i > 0; i--)
	{
		uint8		name = take_byte(input);
		const char *token = name < 224 ? names[name % lengthof(names)] : take_text(input, 255);

		appendStringInfoChar(&out, '/');
		for (; *token != '\0'; token++)
			appendStringInfoString(&out, kind >= 208 ? (char[]) {*token, '\0'} : *token == '~' ? "~0" : *token == '/' ? "~1" : (char[]) {*token, '\0'});
	}
	return CStringGetTextDatum(out.data);
}

ArrayType *
take_list(Input *input)
{
	int			count = take_byte(input) % 9;
	int			bound = 1;
	Datum		pointers[8];
	bool		nulls[8];

	if (count == 0)
		return NULL;
	count--;
	for (int i = 0; i < count; i++)
	{
		nulls[i] = input->at < input->end && *input->at == 255;
		pointers[i] = take_pointer(input);
	}
	return construct_md_array(pointers, nulls, count > 0 ? 1 : 0, &count, &bound, TEXTOID, -1, false, TYPALIGN_INT);
}

typedef struct Reading
{
	const char *text;
	Jsonb	   *jsonb;
} Reading;

static void
run_read(void *argument)
{
	Reading    *reading = argument;

	reading->jsonb = DatumGetJsonbP(DirectFunctionCall1(jsonb_in, CStringGetDatum(reading->text)));
}

Jsonb *
read_jsonb(const char *text)
{
	static const int refusals[] = {
		ERRCODE_INVALID_TEXT_REPRESENTATION, ERRCODE_UNTRANSLATABLE_CHARACTER, ERRCODE_NUMERIC_VALUE_OUT_OF_RANGE,
		ERRCODE_STATEMENT_TOO_COMPLEX, 0
	};
	Reading		reading = {.text = text};

	return attempt(run_read, &reading, refusals) == 0 ? reading.jsonb : NULL;
}
