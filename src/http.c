/*
 * http.c: a claim as an HTTP answer, and the value of an Idempotency-Key header.
 *
 * A first result is replayed as it is; every other answer is the reply, and where its status says so a problem
 * (RFC 9457).  No header carries what a caller brought.
 *
 * The header Idempotency-Key is a structured one whose value is a String (RFC 8941 section 3.3.3): a quoted text of
 * printable ASCII in which \" and \\ stand for themselves.  A bare word is another type there; taken for a key all
 * the same, it would be another operation than its quoted form, or the same, depending on who reads it.
 */
#include "compat.h"

#include "access/htup_details.h"
#include "funcapi.h"
#include "utils/builtins.h"
#include "utils/numeric.h"

#include "args.h"
#include "catalog.h"
#include "document.h"
#include "reply.h"

#define HTTP_COLUMNS 3

PG_FUNCTION_INFO_V1(idem_http);
PG_FUNCTION_INFO_V1(idem_http_key);

/* Is this claim answered by its result alone? */
static bool
is_first_answer(const GivenClaim *claim)
{
	return claim->outcome == OUTCOME_DONE && claim->result != NULL;
}

/* The status of a reason that is an HTTP failure itself, 400 to 599 as a whole number; 0 where it is none. */
static int
status_of_reason(Jsonb *reason)
{
	JsonbValue	found;
	char	   *number;

	if (reason == NULL || !JB_ROOT_IS_OBJECT(reason) ||
		getKeyJsonValueFromContainer(&reason->root, "status", strlen("status"), &found) == NULL ||
		found.type != jbvNumeric)
		return 0;
	number = DatumGetCString(DirectFunctionCall1(numeric_out, NumericGetDatum(found.val.numeric)));
	if ((number[0] != '4' && number[0] != '5') || strspn(number, "0123456789") != 3 || number[3] != '\0')
		return 0;
	return (int) strtol(number, NULL, 10);
}

static int
http_status(const Reply *reply)
{
	int			status = reply->claim.outcome == OUTCOME_FAILED ? status_of_reason(reply->claim.result) : 0;

	return status != 0 ? status : reply->kind->http_status;
}

/* An object with one member, as PostgREST takes a header. */
static void
add_header(Document *document, const char *name, const char *value)
{
	document_open_object(document, NULL);
	document_add_string(document, name, value);
	document_close_object(document);
}

static Jsonb *
http_headers(const Reply *reply, int status)
{
	const GivenClaim *claim = &reply->claim;
	bool		is_problem = !is_first_answer(claim) && status >= 400;
	Document	document = {0};

	document_open_array(&document, NULL);
	add_header(&document, "Cache-Control", "no-store");
	add_header(&document, "Content-Type", is_problem ? "application/problem+json" : "application/json");
	if (!is_first_answer(claim))
		add_header(&document, "Content-Language", lang_names[reply->lang]);
	if (claim->is_replay && (claim->outcome == OUTCOME_DONE || claim->outcome == OUTCOME_FAILED))
		add_header(&document, "Idempotent-Replayed", "true");
	if (reply->kind->tells & TELLS_WAIT)
		add_header(&document, "Retry-After", psprintf(INT64_FORMAT, (reply_poll_after_ms(reply) + 999) / 1000));
	document_close_array(&document);
	return document_jsonb(&document);
}

/* The reply as a problem: its code makes room for the number that "status" is there. */
static Jsonb *
problem(const Reply *reply, int status)
{
	char	   *outcome = pstrdup(catalog_outcome_label(reply->claim.outcome));
	Document	document = {0};

	for (char *p = outcome; *p != '\0'; p++)
		*p = pg_ascii_tolower((unsigned char) *p);
	document_open_object(&document, NULL);
	document_add_string(&document, "type", psprintf("urn:idem:problem:%s", outcome));
	document_add_string(&document, "title", reply->kind->texts[reply->lang].title);
	document_add_number(&document, "status", status);
	document_add_string(&document, "detail", reply->meaning);
	document_add_string(&document, "code", reply->kind->code);
	reply_add_members(reply, &document);
	document_close_object(&document);
	return document_jsonb(&document);
}

static Jsonb *
http_body(const Reply *reply, int status)
{
	if (is_first_answer(&reply->claim))
		return reply->claim.result;
	return status >= 400 ? problem(reply, status) : reply_jsonb(reply);
}

/*
 * idem_http(claim idem_claim, lang text DEFAULT NULL, OUT status int, OUT headers jsonb, OUT body jsonb)
 *
 * The HTTP answer that a claim calls for, its texts in lang, or in idem.lang where it is null.
 */
Datum
idem_http(PG_FUNCTION_ARGS)
{
	TupleDesc	desc;
	Reply		reply;
	int			status;
	Datum		values[HTTP_COLUMNS];
	bool		nulls[HTTP_COLUMNS] = {false};

	if (get_call_result_type(fcinfo, NULL, &desc) != TYPEFUNC_COMPOSITE || desc->natts != HTTP_COLUMNS)
		elog(ERROR, "idem_http is declared with other columns");
	reply_begin(fcinfo, &reply);
	if (!is_first_answer(&reply.claim))
		reply_word(&reply);
	status = http_status(&reply);
	values[0] = Int32GetDatum(status);
	values[1] = JsonbPGetDatum(http_headers(&reply, status));
	values[2] = JsonbPGetDatum(http_body(&reply, status));
	PG_RETURN_DATUM(HeapTupleGetDatum(heap_form_tuple(BlessTupleDesc(desc), values, nulls)));
}

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
