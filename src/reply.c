/*
 * reply.c: what a model is told of a claim.
 *
 * The kind of reply follows from the claim alone; its words are the administrator's (guidance.c) or ours
 * (reply_text.c).  A text is filled in one pass, so that nothing put into it is taken for a place.  What callers and
 * receivers brought enters no text: it stands in members of its own, which "data" names.
 */
#include "compat.h"

#include "catalog/pg_type_d.h"
#include "lib/stringinfo.h"
#include "utils/array.h"
#include "utils/builtins.h"

#include "args.h"
#include "catalog.h"
#include "guc.h"
#include "guidance.h"
#include "reply.h"

#define MEMBERS_IN_TEXT 20		/* so many are named in a text; all of them stand in must_equal */

PG_FUNCTION_INFO_V1(idem_reply);

static const char *const effect_names[] = {
	[EFFECT_NONE] = "none",
	[EFFECT_HAPPENED] = "happened",
	[EFFECT_UNKNOWN] = "unknown"
};

/* ----- which reply ----- */

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
 * The case that an outcome falls into.  Only idem_status knows a token's time, and then NONE is certain: its claim has a
 * scope.  A finished operation behind REPEAT has a time, one whose outcome is unknown has none.  Who releases a claim is
 * certain that nothing happened, but that speaks of no attempt before, and a reason speaks of a failure.
 */
static const char *
case_of(const GivenClaim *claim)
{
	switch (claim->outcome)
	{
		case OUTCOME_ACQUIRED:
			return claim->attempt > 1 ? "TAKEOVER" : claim->is_replay ? "ACQUIRED_AGAIN" : "ACQUIRED";
		case OUTCOME_DONE:
			return claim->is_first_run ? "DONE_NOW" : "DONE";
		case OUTCOME_REPEAT:
			return claim->is_finished ? "REPEAT" : "REPEAT_OPEN";
		case OUTCOME_NONE:
			return claim->scope.data == NULL ? "NONE_UNSURE" : "NONE";
		case OUTCOME_RETRYABLE:
			if (!claim->is_finished)
				return "RETRYABLE";
			return claim->attempt == 1 && claim->result == NULL ? "RELEASED" : "ATTEMPT_FAILED";
		default:
			return catalog_outcome_label(claim->outcome);
	}
}

const ReplyKind *
reply_kind_of(const GivenClaim *claim)
{
	return reply_kind(case_of(claim));
}

void
reply_begin(FunctionCallInfo fcinfo, Reply *reply)
{
	policy_begin();
	if (PG_ARGISNULL(0) || !claim_read(PG_GETARG_HEAPTUPLEHEADER(0), &reply->claim))
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("claim must not be null"),
				 errhint("Give what idem_acquire, idem_acquire_direct, idem_execute, idem_status or idem_status_key returned.")));
	reply->kind = reply_kind_of(&reply->claim);
	reply->lang = choose_lang(fcinfo, 1);
}

/* ----- its texts ----- */

int64
reply_poll_after_ms(const Reply *reply)
{
	return (Max(reply->policy->poll_after, 0) + 999) / 1000;
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
append_wait(StringInfo out, const Reply *reply)
{
	int64		ms = reply_poll_after_ms(reply);
	char		number[32];
	int			length = snprintf(number, sizeof(number), INT64_FORMAT ".%03d", ms / 1000, (int) (ms % 1000));

	while (number[length - 1] == '0')
		length--;
	if (number[length - 1] == '.')
		length--;
	number[length] = '\0';
	append_around(out, ms == 1000 ? reply_words[reply->lang].second : reply_words[reply->lang].seconds, number);
}

/* Pointers, comma between them; returns whether the empty one, which stands for everything, is among them. */
static bool
append_pointers(StringInfo out, ArrayType *pointers, const ReplyWords *words)
{
	Datum	   *values;
	int			nvalues;
	bool		everything = false;

	deconstruct_array(pointers, TEXTOID, -1, false, TYPALIGN_INT, &values, NULL, &nvalues);
	for (int i = 0; i < nvalues; i++)
	{
		char	   *pointer = TextDatumGetCString(values[i]);

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
append_members(StringInfo out, const Reply *reply)
{
	const ReplyWords *words = &reply_words[reply->lang];
	const Policy *policy = reply->policy;
	StringInfoData members;
	StringInfoData exceptions;
	bool		everything = true;

	initStringInfo(&members);
	initStringInfo(&exceptions);
	if (policy->material != NULL)
		everything = append_pointers(&members, policy->material, words);
	if (policy->immaterial != NULL)
		append_pointers(&exceptions, policy->immaterial, words);
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
append_place(StringInfo out, const char *text, const Reply *reply)
{
	static const char *const places[] = {"{confirm_with}", "{poll_with}", "{wait}", "{members}"};
	const ReplyWords *words = &reply_words[reply->lang];
	const Policy *policy = reply->policy;
	size_t		i;

	for (i = 0; i < lengthof(places); i++)
		if (strncmp(text, places[i], strlen(places[i])) == 0)
			break;
	switch (i)
	{
		case 0:
			appendStringInfoString(out, policy->confirm_with ? policy->confirm_with : words->confirm_tool);
			break;
		case 1:
			appendStringInfoString(out, policy->poll_with ? policy->poll_with : words->poll_tool);
			break;
		case 2:
			append_wait(out, reply);
			break;
		case 3:
			append_members(out, reply);
			break;
		default:
			return 0;
	}
	return strlen(places[i]);
}

/* A text with its places filled: see reply_text.c. */
static const char *
fill(const Reply *reply, const char *text)
{
	StringInfoData out;

	initStringInfo(&out);
	while (*text != '\0')
	{
		size_t		length = *text == '{' ? append_place(&out, text, reply) : 0;

		if (length == 0)
		{
			/* to the next place; a brace that begins none stands for itself */
			length = 1 + strcspn(text + 1, "{");
			appendBinaryStringInfo(&out, text, length);
		}
		text += length;
	}
	return out.data;
}

void
reply_word(Reply *reply)
{
	const ReplyText *ours = &reply->kind->texts[reply->lang];
	Span		scope = reply->claim.scope;

	reply->policy = policy_of(scope.data, scope.length);
	reply->meaning = ours->meaning;
	reply->instruction = ours->instruction;
	guidance_apply(reply->kind->name, reply->lang, scope, &reply->meaning, &reply->instruction);
	reply->meaning = fill(reply, reply->meaning);
	reply->instruction = fill(reply, reply->instruction);
}

/* ----- its members ----- */

static void
add_optional(Document *document, const char *name, const char *value)
{
	if (value != NULL)
		document_add_string(document, name, value);
}

/* Pointers as the table has them. */
static void
add_pointers(Document *document, const char *name, ArrayType *pointers)
{
	Datum	   *values;
	int			nvalues;

	deconstruct_array(pointers, TEXTOID, -1, false, TYPALIGN_INT, &values, NULL, &nvalues);
	document_open_array(document, name);
	for (int i = 0; i < nvalues; i++)
		document_add_string(document, NULL, TextDatumGetCString(values[i]));
	document_close_array(document);
}

/* What must equal the preview's parameters, the whole document where no list says less, and what may differ in it. */
static void
add_material(const Policy *policy, Document *document)
{
	if (policy->material != NULL)
		add_pointers(document, "must_equal", policy->material);
	else
	{
		document_open_array(document, "must_equal");
		document_add_string(document, NULL, "");
		document_close_array(document);
	}
	if (policy->immaterial != NULL)
		add_pointers(document, "may_differ", policy->immaterial);
}

static void
add_policy(const Reply *reply, Document *document)
{
	const Policy *policy = reply->policy;
	unsigned	tells = reply->kind->tells;

	if (tells & TELLS_POLL)
		add_optional(document, "poll_with", policy->poll_with);
	if (tells & TELLS_WAIT)
		document_add_number(document, "poll_after_ms", reply_poll_after_ms(reply));
	if (tells & TELLS_CONFIRM)
		add_optional(document, "confirm_with", policy->confirm_with);
	if (tells & TELLS_MATERIAL)
		add_material(policy, document);
}

static void
add_result(const GivenClaim *claim, Document *document)
{
	document_add_jsonb(document, "result", claim->result);
	document_add_span(document, "result_ref", claim->result_ref);
	if (claim->is_finished)
		document_add_time(document, "finished_at", claim->finished_at);
}

/* Which members hold what callers or receivers chose: a model must not take it for an instruction of ours. */
static void
add_data(const GivenClaim *claim, bool has_result, Document *document)
{
	bool		result = has_result && claim->result != NULL;
	bool		result_ref = has_result && claim->result_ref.data != NULL;
	bool		trace_id = claim->trace_id.data != NULL;

	if (!result && !result_ref && !trace_id)
		return;
	document_open_array(document, "data");
	if (result)
		document_add_string(document, NULL, "result");
	if (result_ref)
		document_add_string(document, NULL, "result_ref");
	if (trace_id)
		document_add_string(document, NULL, "trace_id");
	document_close_array(document);
}

void
reply_add_members(const Reply *reply, Document *document)
{
	const GivenClaim *claim = &reply->claim;
	bool		has_result = (reply->kind->tells & TELLS_RESULT) != 0;

	document_add_string(document, "meaning", reply->meaning);
	document_add_string(document, "instruction", reply->instruction);
	document_add_bool(document, "retryable", reply->kind->retryable);
	document_add_string(document, "effect", effect_names[reply->kind->effect]);
	if (claim->trace_id.data == NULL)
		document_add_null(document, "trace_id");
	document_add_span(document, "trace_id", claim->trace_id);
	add_policy(reply, document);
	if (has_result)
		add_result(claim, document);
	add_data(claim, has_result, document);
}

Jsonb *
reply_jsonb(const Reply *reply)
{
	Document	document = {0};

	document_open_object(&document, NULL);
	document_add_string(&document, "status", reply->kind->code);
	reply_add_members(reply, &document);
	document_close_object(&document);
	return document_jsonb(&document);
}

/*
 * idem_reply(claim idem_claim, lang text DEFAULT NULL) RETURNS jsonb
 *
 * What a model is told of a claim, in lang, or in idem.lang where it is null.
 */
Datum
idem_reply(PG_FUNCTION_ARGS)
{
	Reply		reply;

	reply_begin(fcinfo, &reply);
	reply_word(&reply);
	PG_RETURN_JSONB_P(reply_jsonb(&reply));
}
