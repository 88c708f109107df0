/*
 * alert.c: the log line and the row of an alert.
 *
 * The line stands even if the caller rolls back; the row goes with the caller's transaction.  Nothing here may
 * stop or fail the call that raised the alert, so every way in is a conditional one.
 *
 * Lock order: idem_alert last.
 */
#include "compat.h"

#include "access/xlog.h"
#include "catalog/pg_type_d.h"
#include "mb/pg_wchar.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"

#include "alert.h"
#include "document.h"
#include "excerpt.h"
#include "record.h"

PG_FUNCTION_INFO_V1(idem_alert_stuck);

#define LOGGED_DETAIL_LENGTH 1024	/* bytes */
#define EVIDENCE_MAX_SIZE (64 * 1024 * 1024)	/* bytes of a result; a jsonb holds twice that, the first and the latest */

enum
{
	ALERT_KEY,
	ALERT_KIND,
	ALERT_COUNT,
	ALERT_FIRST_AT,
	ALERT_LAST_AT,
	ALERT_ROLE,
	ALERT_SCOPE_NAME,
	ALERT_SUBJECT_NAME,
	ALERT_DETAIL,
	ALERT_NATTS
};

static const Oid column_types[ALERT_NATTS] = {
	[ALERT_KEY] = UUIDOID,
	[ALERT_KIND] = TEXTOID,
	[ALERT_COUNT] = INT8OID,
	[ALERT_FIRST_AT] = TIMESTAMPTZOID,
	[ALERT_LAST_AT] = TIMESTAMPTZOID,
	[ALERT_ROLE] = TEXTOID,
	[ALERT_SCOPE_NAME] = TEXTOID,
	[ALERT_SUBJECT_NAME] = TEXTOID,
	[ALERT_DETAIL] = JSONBOID,
};

const Layout alert_layout = {
	ALERT_NATTS, 2, column_types,
	NULLABLE(ALERT_SCOPE_NAME) | NULLABLE(ALERT_SUBJECT_NAME) | NULLABLE(ALERT_DETAIL), 0
};

typedef struct KindText
{
	const char *name;			/* in the row */
	int			sqlstate;
	const char *message;
} KindText;

static const KindText kinds[] = {
	[ALERT_PARAMETER] = {"parameter_mismatch", MAKE_SQLSTATE('I', 'D', '0', '0', '1'),
	"a fingerprint came with other parameters than it was signed for"},
	[ALERT_SUBJECT] = {"subject_mismatch", MAKE_SQLSTATE('I', 'D', '0', '0', '2'),
	"a fingerprint came from another subject than it was signed for"},
	[ALERT_SCOPE] = {"scope_mismatch", MAKE_SQLSTATE('I', 'D', '0', '0', '3'),
	"a fingerprint came for another scope than it was signed for"},
	[ALERT_NOT_OWNER] = {"not_owner", MAKE_SQLSTATE('I', 'D', '0', '0', '4'),
	"a call came from who does not hold the claim's grant"},
	[ALERT_TAKEOVER] = {"takeover", MAKE_SQLSTATE('I', 'D', '0', '0', '5'),
	"a claim whose lease was over was taken over"},
	[ALERT_STUCK] = {"stuck", MAKE_SQLSTATE('I', 'D', '0', '0', '6'),
	"a claim's outcome is unknown and waits for reconciliation"},
	[ALERT_RELEASED] = {"released", MAKE_SQLSTATE('I', 'D', '0', '0', '7'),
	"a claim was released by its holder"},
	[ALERT_RECONCILED] = {"reconciled", MAKE_SQLSTATE('I', 'D', '0', '0', '8'),
	"a claim was reconciled by an operator"},
};

/* ----- the detail, a JSON object ----- */

/* A result too large to be kept is known by its size: an alert must never fail the call that raised it. */
static void
add_result(Document *document, Jsonb *result)
{
	if (VARSIZE(result) > EVIDENCE_MAX_SIZE)
		document_add_number(document, "result_size", VARSIZE(result));
	else
		document_add_jsonb(document, "result", result);
}

static Jsonb *
detail_jsonb(const AlertDetail *detail)
{
	Document	document = {0};

	document_open_object(&document, NULL);
	if (detail->call != NULL)
		document_add_string(&document, "call", detail->call);
	document_add_span(&document, "subject", detail->subject);
	document_add_span(&document, "scope", detail->scope);
	document_add_span(&document, "holder", detail->holder);
	if (detail->attempt != 0)
		document_add_number(&document, "attempt", detail->attempt);
	if (detail->result != NULL)
		add_result(&document, DatumGetJsonbP(PointerGetDatum(detail->result)));
	document_add_span(&document, "result_ref", detail->result_ref);
	document_add_span(&document, "note", detail->note);
	document_close_object(&document);
	return document_jsonb(&document);
}

/* {"first": .., "latest": ..}: evidence is never overwritten by later evidence. */
static Jsonb *
first_and_latest(Jsonb *earlier, Jsonb *latest)
{
	Document	document = {0};
	JsonbValue	first;
	bool		known = earlier != NULL && JB_ROOT_IS_OBJECT(earlier) &&
		getKeyJsonValueFromContainer(&earlier->root, "first", strlen("first"), &first) != NULL;

	document_open_object(&document, NULL);
	if (known)
		document_add_value(&document, "first", &first);
	else
		document_add_jsonb(&document, "first", latest);
	document_add_jsonb(&document, "latest", latest);
	document_close_object(&document);
	return document_jsonb(&document);
}

/* ----- the line ----- */

static void
write_line(const KindText *kind, const pg_uuid_t *key, Span scope, Span subject, Jsonb *detail)
{
	char	   *name = DatumGetCString(DirectFunctionCall1(uuid_out, UUIDPGetDatum(key)));
	StringInfoData text;
	int			shown;

	initStringInfo(&text);
	excerpt_append(&text, detail, LOGGED_DETAIL_LENGTH);
	shown = pg_mbcliplen(text.data, text.len, LOGGED_DETAIL_LENGTH);
	ereport(LOG_SERVER_ONLY,
			(errcode(kind->sqlstate),
			 errmsg("idem: %s", kind->message),
			 errdetail_log("Operation %s, scope \"%.*s\", subject \"%.*s\": %.*s%s",
						   name, (int) scope.length, scope.data, (int) subject.length, subject.data,
						   shown, text.data, shown < text.len ? " (cut)" : ""),
			 errhidestmt(true),
			 errhidecontext(true)));
}

/* ----- the row ----- */

static void
fill_row(TupleTableSlot *row, const pg_uuid_t *key, Datum kind, int64 count, TimestampTz first_at,
		 TimestampTz last_at, Span scope, Span subject, Jsonb *detail)
{
	ExecClearTuple(row);
	memset(row->tts_isnull, false, ALERT_NATTS);
	row->tts_values[ALERT_KEY] = UUIDPGetDatum(key);
	row->tts_values[ALERT_KIND] = kind;
	row->tts_values[ALERT_COUNT] = Int64GetDatum(count);
	row->tts_values[ALERT_FIRST_AT] = TimestampTzGetDatum(first_at);
	row->tts_values[ALERT_LAST_AT] = TimestampTzGetDatum(last_at);
	row->tts_values[ALERT_ROLE] = CStringGetTextDatum(GetUserNameFromId(GetUserId(), false));
	row->tts_values[ALERT_SCOPE_NAME] = span_datum(scope);
	row->tts_values[ALERT_SUBJECT_NAME] = span_datum(subject);
	row->tts_values[ALERT_DETAIL] = JsonbPGetDatum(detail);
	ExecStoreVirtualTuple(row);
}

/* The kinds whose row keeps the first detail beside the latest. */
static bool
keeps_first(AlertKind kind)
{
	return kind == ALERT_NOT_OWNER;
}

static void
insert_row(Store *store, AlertKind kind, const pg_uuid_t *key, Span scope, Span subject, Jsonb *detail)
{
	TimestampTz now = GetCurrentTimestamp();
	ItemPointerData tid;

	if (keeps_first(kind))
		detail = first_and_latest(NULL, detail);
	fill_row(store_row(store), key, store->kind, 1, now, now, scope, subject, detail);
	if (store_insert_speculative(store, &tid))
		store_confirm(store);
}

static void
update_row(Store *store, ItemPointer tid, AlertKind kind, const pg_uuid_t *key, Span scope, Span subject,
		   Jsonb *detail)
{
	TupleTableSlot *old = store->found;
	TimestampTz now = GetCurrentTimestamp();

	slot_getallattrs(old);
	if (DatumGetTimestampTz(old->tts_values[ALERT_LAST_AT]) > now - USECS_PER_SEC)
		return;
	if (keeps_first(kind))
		detail = first_and_latest(old->tts_isnull[ALERT_DETAIL] ? NULL :
								  DatumGetJsonbP(old->tts_values[ALERT_DETAIL]), detail);
	fill_row(store_row(store), key, store->kind, DatumGetInt64(old->tts_values[ALERT_COUNT]) + 1,
			 DatumGetTimestampTz(old->tts_values[ALERT_FIRST_AT]), now, scope, subject, detail);
	(void) store_update(store, tid, false);
}

static void
count_in_row(AlertKind kind, const pg_uuid_t *key, Span scope, Span subject, Jsonb *detail)
{
	Store		store;
	Sighting	sighting;

	if (XactReadOnly || RecoveryInProgress() ||
		!store_open(&store, TABLE_ALERT, RowExclusiveLock, true))
		return;
	store.kind = CStringGetTextDatum(kinds[kind].name);
	store_find(&store, key, &sighting);
	if (!TransactionIdIsValid(sighting.rival) && sighting.serializable)
	{
		if (sighting.found)
			update_row(&store, &sighting.tid, kind, key, scope, subject, detail);
		else
			insert_row(&store, kind, key, scope, subject, detail);
	}
	store_close(&store);
}

void
alert_log(AlertKind kind, const pg_uuid_t *key, Span scope, Span subject, const AlertDetail *detail)
{
	write_line(&kinds[kind], key, scope, subject, detail_jsonb(detail));
}

void
alert_raise(AlertKind kind, const pg_uuid_t *key, Span scope, Span subject, const AlertDetail *detail)
{
	Jsonb	   *document = detail_jsonb(detail);

	write_line(&kinds[kind], key, scope, subject, document);
	count_in_row(kind, key, scope, subject, document);
}

/*
 * idem_alert_stuck(key uuid, scope text, subject text, holder text, attempt int) RETURNS void
 *
 * For idem_maintain(), which has found the claim.
 */
Datum
idem_alert_stuck(PG_FUNCTION_ARGS)
{
	AlertDetail detail = {.call = "idem_maintain()"};

	detail.holder = args_optional_label(fcinfo, 3, "holder");
	if (!PG_ARGISNULL(4))
		detail.attempt = PG_GETARG_INT32(4);
	alert_raise(ALERT_STUCK, args_uuid(fcinfo, 0, "key"), args_label(fcinfo, 1, "scope"),
				args_label(fcinfo, 2, "subject"), &detail);
	PG_RETURN_VOID();
}
