/*
 * reply.c: the parts of a reply that SQL composes it of (idem_reply in sql/idem--1.0.sql).
 *
 * SQL chooses the kind of reply and reads the policy and the administrator's own texts; here are the texts that
 * come with idem, the language, and the places of a text.  A text is filled in one pass, so that nothing put
 * into it is taken for a place.
 */
#include "compat.h"

#include "catalog/pg_type.h"
#include "lib/stringinfo.h"
#include "utils/array.h"
#include "utils/builtins.h"

#include "args.h"
#include "guc.h"
#include "reply_text.h"

#define DEFAULT_COLUMNS 8
#define MEMBERS_IN_TEXT 20		/* so many are named in a text; all of them stand in must_equal */

PG_FUNCTION_INFO_V1(idem_reply_default);
PG_FUNCTION_INFO_V1(idem_reply_fill);

/* What the places of a text are filled with; NULL: not said by the policy. */
typedef struct Filling
{
	const ReplyWords *words;
	const char *confirm_with;
	const char *poll_with;
	int64		poll_after_ms;
	ArrayType  *material;
	ArrayType  *immaterial;
} Filling;

static const char *const effect_names[] = {
	[EFFECT_NONE] = "none",
	[EFFECT_HAPPENED] = "happened",
	[EFFECT_UNKNOWN] = "unknown"
};

/* The language of argument n, or that of the session where it is null.  Raises 22023 for one that we do not speak. */
static Lang
choose_lang(FunctionCallInfo fcinfo, int n)
{
	Span		name = args_text(fcinfo, n);

	if (name.data == NULL)
		return (Lang) guc_lang;
	for (int lang = 0; lang < LANG_COUNT; lang++)
		if (strlen(lang_names[lang]) == name.length && memcmp(lang_names[lang], name.data, name.length) == 0)
			return (Lang) lang;
	ereport(ERROR,
			(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
			 errmsg("unknown language"),
			 errhint("Replies are written in \"en\" and \"zh\". Give one of them, or null for the setting idem.lang.")));
}

/*
 * idem_reply_default(kind text, lang text, OUT language text, OUT code text, OUT retryable boolean, OUT effect text,
 *     OUT http_status int, OUT title text, OUT meaning text, OUT instruction text)
 *
 * What idem itself says in one kind of reply; a null lang is that of idem.lang.
 */
Datum
idem_reply_default(PG_FUNCTION_ARGS)
{
	char	   *name = PG_ARGISNULL(0) ? pstrdup("") : text_to_cstring(PG_GETARG_TEXT_PP(0));
	const ReplyKind *kind = reply_kind(name);
	Lang		lang = choose_lang(fcinfo, 1);
	TupleDesc	desc;
	Datum		values[DEFAULT_COLUMNS];
	bool		nulls[DEFAULT_COLUMNS] = {false};

	if (kind == NULL)
		elog(ERROR, "there is no reply of this kind");
	if (get_call_result_type(fcinfo, NULL, &desc) != TYPEFUNC_COMPOSITE || desc->natts != DEFAULT_COLUMNS)
		elog(ERROR, "idem_reply_default is declared with other columns");
	values[0] = CStringGetTextDatum(lang_names[lang]);
	values[1] = CStringGetTextDatum(kind->code);
	values[2] = BoolGetDatum(kind->retryable);
	values[3] = CStringGetTextDatum(effect_names[kind->effect]);
	values[4] = Int32GetDatum(kind->http_status);
	values[5] = CStringGetTextDatum(kind->texts[lang].title);
	values[6] = CStringGetTextDatum(kind->texts[lang].meaning);
	values[7] = CStringGetTextDatum(kind->texts[lang].instruction);
	PG_RETURN_DATUM(HeapTupleGetDatum(heap_form_tuple(BlessTupleDesc(desc), values, nulls)));
}

/* Append words, a "%s" in them replaced by what. */
static void
append_around(StringInfo out, const char *words, const char *what)
{
	const char *place = strstr(words, "%s");

	if (place == NULL)
	{
		appendStringInfoString(out, words);
		return;
	}
	appendBinaryStringInfo(out, words, place - words);
	appendStringInfoString(out, what);
	appendStringInfoString(out, place + 2);
}

/* "2 seconds", "0.25 seconds". */
static void
append_wait(StringInfo out, const Filling *filling)
{
	int64		ms = Max(filling->poll_after_ms, 0);
	char		number[32];
	int			length = snprintf(number, sizeof(number), INT64_FORMAT ".%03d", ms / 1000, (int) (ms % 1000));

	while (number[length - 1] == '0')
		length--;
	if (number[length - 1] == '.')
		length--;
	number[length] = '\0';
	append_around(out, ms == 1000 ? filling->words->second : filling->words->seconds, number);
}

/* Pointers, comma between them; returns whether the empty one, which stands for everything, is among them. */
static bool
append_pointers(StringInfo out, ArrayType *pointers, const ReplyWords *words)
{
	Datum	   *values;
	bool	   *nulls;
	int			nvalues;
	bool		everything = false;

	deconstruct_array(pointers, TEXTOID, -1, false, TYPALIGN_INT, &values, &nulls, &nvalues);
	for (int i = 0; i < nvalues; i++)
	{
		char	   *pointer = nulls[i] ? pstrdup("") : TextDatumGetCString(values[i]);

		everything |= pointer[0] == '\0';
		if (i < MEMBERS_IN_TEXT)
			appendStringInfo(out, "%s%s", i == 0 ? "" : words->separator, pointer);
	}
	if (nvalues > MEMBERS_IN_TEXT)
		appendStringInfoString(out, words->and_more);
	return everything;
}

/* The names of what is material: "/amount, /payee", "every member except /memo". */
static void
append_members(StringInfo out, const Filling *filling)
{
	const ReplyWords *words = filling->words;
	StringInfoData members;
	StringInfoData exceptions;
	bool		everything = true;

	initStringInfo(&members);
	initStringInfo(&exceptions);
	if (filling->material != NULL)
		everything = append_pointers(&members, filling->material, words);
	if (filling->immaterial != NULL)
		append_pointers(&exceptions, filling->immaterial, words);
	if (everything)
		append_around(out, exceptions.len == 0 ? words->every_member : words->every_member_but, exceptions.data);
	else if (exceptions.len == 0)
		appendStringInfoString(out, members.data);
	else
	{
		appendStringInfoString(out, members.data);
		append_around(out, words->members_but, exceptions.data);
	}
}

/* Fill the place that text begins with, if it is one; returns its length, or 0. */
static size_t
append_place(StringInfo out, const char *text, const Filling *filling)
{
	static const char *const places[] = {"{confirm_with}", "{poll_with}", "{wait}", "{members}"};
	const ReplyWords *words = filling->words;
	size_t		i;

	for (i = 0; i < lengthof(places); i++)
		if (strncmp(text, places[i], strlen(places[i])) == 0)
			break;
	switch (i)
	{
		case 0:
			appendStringInfoString(out, filling->confirm_with ? filling->confirm_with : words->confirm_tool);
			break;
		case 1:
			appendStringInfoString(out, filling->poll_with ? filling->poll_with : words->poll_tool);
			break;
		case 2:
			append_wait(out, filling);
			break;
		case 3:
			append_members(out, filling);
			break;
		default:
			return 0;
	}
	return strlen(places[i]);
}

static char *
optional_text(FunctionCallInfo fcinfo, int n)
{
	return PG_ARGISNULL(n) ? NULL : text_to_cstring(PG_GETARG_TEXT_PP(n));
}

static ArrayType *
optional_array(FunctionCallInfo fcinfo, int n)
{
	return PG_ARGISNULL(n) ? NULL : PG_GETARG_ARRAYTYPE_P(n);
}

/*
 * idem_reply_fill(template text, lang text, confirm_with text, poll_with text, poll_after_ms bigint,
 *     material text[], immaterial text[]) RETURNS text
 *
 * The template with its places filled: see reply_text.c.
 */
Datum
idem_reply_fill(PG_FUNCTION_ARGS)
{
	char	   *text = optional_text(fcinfo, 0);
	Filling		filling = {
		.words = &reply_words[choose_lang(fcinfo, 1)],
		.confirm_with = optional_text(fcinfo, 2),
		.poll_with = optional_text(fcinfo, 3),
		.poll_after_ms = PG_ARGISNULL(4) ? 0 : PG_GETARG_INT64(4),
		.material = optional_array(fcinfo, 5),
		.immaterial = optional_array(fcinfo, 6)
	};
	StringInfoData out;

	if (text == NULL)
		PG_RETURN_NULL();
	initStringInfo(&out);
	while (*text != '\0')
	{
		size_t		length = *text == '{' ? append_place(&out, text, &filling) : 0;

		if (length == 0)
			appendStringInfoChar(&out, *text);
		text += Max(length, 1);
	}
	PG_RETURN_TEXT_P(cstring_to_text_with_len(out.data, out.len));
}
