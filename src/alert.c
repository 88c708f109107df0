/*
 * alert.c: the log line and the row of an alert.
 *
 * The line stands even if the caller rolls back; the row goes with the caller's transaction.  Nothing here may
 * stop or fail the call that raised the alert, so every way in is a conditional one.
 *
 * A late result is evidence that operators reconcile from: it must be in the table once its caller has committed,
 * whatever others do meanwhile.  To wait for a row that somebody else is writing would let whoever leaves a transaction
 * open hang the caller, and could deadlock; so a row has parts, of which nearly always the first alone is there, and who
 * finds one busy takes the next.
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
#include "evidence.h"
#include "excerpt.h"
#include "record.h"

#define LOGGED_DETAIL_LENGTH 1024	/* bytes */
#define EVIDENCE_MAX_SIZE (64 * 1024 * 1024)	/* bytes of a result; a jsonb holds twice that, the first and the latest */
#define EVIDENCE_PARTS 64		/* as many late results may be in open transactions at once */
#define EVIDENCE_AT_ONCE BLCKSZ /* bytes of a detail that is written anew whenever there is a new result */

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
	[ALERT_PART] = INT4OID,
};

const Layout alert_layout = {
	ALERT_NATTS, 3, column_types,
	NULLABLE(ALERT_SCOPE_NAME) | NULLABLE(ALERT_SUBJECT_NAME) | NULLABLE(ALERT_DETAIL), 7
};

typedef struct KindText
{
	const char *name;			/* in the row */
	int			sqlstate;
	const char *message;
} KindText;

static const KindText kinds[ALERT_KIND_COUNT] = {
	[ALERT_PARAMETER] = {"parameter_mismatch", MAKE_SQLSTATE('I', 'D', '0', '0', '1'),
	"a fingerprint came with other parameters than it was signed for"},
	[ALERT_SUBJECT] = {"subject_mismatch", MAKE_SQLSTATE('I', 'D', '0', '0', '2'),
	"a fingerprint came from another subject than it was signed for"},
	[ALERT_SCOPE] = {"scope_mismatch", MAKE_SQLSTATE('I', 'D', '0', '0', '3'),
	"a fingerprint came for another scope than it was signed for"},
	[ALERT_NOT_OWNER] = {"not_owner", MAKE_SQLSTATE('I', 'D', '0', '0', '4'),
	"a call came from a holder that has lost its claim"},
	[ALERT_TAKEOVER] = {"takeover", MAKE_SQLSTATE('I', 'D', '0', '0', '5'),
	"a claim whose lease was over was taken over"},
	[ALERT_STUCK] = {"stuck", MAKE_SQLSTATE('I', 'D', '0', '0', '6'),
	"a claim's outcome is unknown and waits for reconciliation"},
	[ALERT_RELEASED] = {"released", MAKE_SQLSTATE('I', 'D', '0', '0', '7'),
	"a claim was released by its holder"},
	[ALERT_RECONCILED] = {"reconciled", MAKE_SQLSTATE('I', 'D', '0', '0', '8'),
	"a claim was reconciled by an operator"},
	[ALERT_NEVER_OWNER] = {"never_owner", MAKE_SQLSTATE('I', 'D', '0', '1', '0'),
	"a call came with an owner token that never held the claim"},
};

const char *
alert_kind_name(AlertKind kind)
{
	return kinds[kind].name;
}

/* ----- the detail, a JSON object ----- */

/* A result too large to be kept is known by its size: an alert must never fail the call that raised it. */
static void
add_result(Document *document, Jsonb *result, bool whole)
{
	if (!whole || VARSIZE(result) > EVIDENCE_MAX_SIZE)
		document_add_number(document, "result_size", VARSIZE(result));
	else
		document_add_jsonb(document, "result", result);
}

/* whole: with what was brought, and not its size alone. */
static Jsonb *
detail_jsonb(const AlertDetail *detail, bool whole)
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
		add_result(&document, DatumGetJsonbP(PointerGetDatum(detail->result)), whole);
	if (whole)
		document_add_span(&document, "result_ref", detail->result_ref);
	document_add_span(&document, "note", detail->note);
	document_close_object(&document);
	return document_jsonb(&document);
}

/* ----- the line ----- */

/* A JSON string: whatever the caller has put into it, the line's other fields are ours. */
static const char *
quoted(Span label)
{
	StringInfoData text;

	initStringInfo(&text);
	excerpt_append_string(&text, label.data, label.length);
	return text.data;
}

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
			 errdetail_log("Operation %s, scope %s, subject %s: %.*s%s",
						   name, quoted(scope), quoted(subject), shown, text.data, shown < text.len ? " (cut)" : ""),
			 errhidestmt(true),
			 errhidecontext(true)));
}

/* ----- the row ----- */

/* No longer than the table's constraints allow, whatever somebody wrote into the record. */
static Datum
label_datum(Span label)
{
	return span_datum((Span) {label.data, pg_mbcliplen(label.data, Min(label.length, INT_MAX), LABEL_MAX_LENGTH)});
}

static void
fill_row(Store *store, const pg_uuid_t *key, int64 count, TimestampTz first_at, TimestampTz last_at, Span scope,
		 Span subject, Jsonb *detail)
{
	TupleTableSlot *row = store_row(store);

	ExecClearTuple(row);
	memset(row->tts_isnull, false, ALERT_NATTS);
	row->tts_values[ALERT_KEY] = UUIDPGetDatum(key);
	row->tts_values[ALERT_KIND] = store->kind;
	row->tts_values[ALERT_COUNT] = Int64GetDatum(count);
	row->tts_values[ALERT_FIRST_AT] = TimestampTzGetDatum(first_at);
	row->tts_values[ALERT_LAST_AT] = TimestampTzGetDatum(last_at);
	row->tts_values[ALERT_ROLE] = CStringGetTextDatum(GetUserNameFromId(GetUserId(), false));
	row->tts_values[ALERT_SCOPE_NAME] = label_datum(scope);
	row->tts_values[ALERT_SUBJECT_NAME] = label_datum(subject);
	row->tts_values[ALERT_DETAIL] = JsonbPGetDatum(detail);
	row->tts_values[ALERT_PART] = Int32GetDatum(store->part);
	ExecStoreVirtualTuple(row);
}

/* The kinds whose row keeps the first detail beside the latest. */
static bool
keeps_first(AlertKind kind)
{
	return kind == ALERT_NOT_OWNER;
}

static bool
insert_row(Store *store, AlertKind kind, const pg_uuid_t *key, Span scope, Span subject, Jsonb *detail)
{
	TimestampTz now = GetCurrentTimestamp();
	ItemPointerData tid;

	if (keeps_first(kind))
		detail = evidence_add(NULL, detail);
	fill_row(store, key, 1, now, now, scope, subject, detail);
	if (!store_insert_speculative(store, &tid))
		return false;
	store_confirm(store);
	return true;
}

/* Within the last second, and not later than now, which only a clock that was set back makes possible. */
static bool
is_recent(TimestampTz at, TimestampTz now)
{
	return at > now - USECS_PER_SEC && at <= now;
}

/*
 * False where the row must have the detail and cannot.  A row is written once a second, but for a result that is new;
 * a large row not even for that, so that a small result never costs the writing of a large one.
 */
static bool
update_row(Store *store, ItemPointer tid, AlertKind kind, const pg_uuid_t *key, Span scope, Span subject,
		   Jsonb *detail)
{
	TupleTableSlot *old = store->found;
	TimestampTz now = GetCurrentTimestamp();
	Jsonb	   *kept = NULL;
	bool		is_new;

	slot_getallattrs(old);
	if (keeps_first(kind) && !old->tts_isnull[ALERT_DETAIL])
		kept = DatumGetJsonbP(old->tts_values[ALERT_DETAIL]);
	is_new = keeps_first(kind) && evidence_is_new(kept, detail);
	if (is_recent(DatumGetTimestampTz(old->tts_values[ALERT_LAST_AT]), now) &&
		(!is_new || (kept != NULL && VARSIZE(kept) > EVIDENCE_AT_ONCE)))
		return !is_new;
	if (keeps_first(kind))
		detail = is_new || kept == NULL ? evidence_add(kept, detail) : kept;
	fill_row(store, key, DatumGetInt64(old->tts_values[ALERT_COUNT]) + 1,
			 Min(DatumGetTimestampTz(old->tts_values[ALERT_FIRST_AT]), now), now, scope, subject, detail);
	return store_update(store, tid, false) == UPDATE_DONE || !is_new;
}

/* False where this part of the row is busy elsewhere. */
static bool
count_in_part(Store *store, AlertKind kind, const pg_uuid_t *key, Span scope, Span subject, Jsonb *detail)
{
	Sighting	sighting;

	store_find(store, key, &sighting);
	if (TransactionIdIsValid(sighting.rival) || !sighting.serializable)
		return false;
	if (sighting.found)
		return update_row(store, &sighting.tid, kind, key, scope, subject, detail);
	return insert_row(store, kind, key, scope, subject, detail);
}

static void
count_in_row(AlertKind kind, const pg_uuid_t *key, Span scope, Span subject, Jsonb *detail)
{
	int			parts = keeps_first(kind) && evidence_has_result(detail) ? EVIDENCE_PARTS : 1;
	Store		store;

	if (XactReadOnly || TransactionStartedDuringRecovery() ||
		!store_open(&store, TABLE_ALERT, RowExclusiveLock, true))
		return;
	store.kind = CStringGetTextDatum(kinds[kind].name);
	while (store.part < parts && !count_in_part(&store, kind, key, scope, subject, detail))
		store.part++;
	store_close(&store);
}

void
alert_log(AlertKind kind, const pg_uuid_t *key, Span scope, Span subject, const AlertDetail *detail)
{
	write_line(&kinds[kind], key, scope, subject, detail_jsonb(detail, true));
}

void
alert_raise(AlertKind kind, const pg_uuid_t *key, Span scope, Span subject, const AlertDetail *detail)
{
	Jsonb	   *document = detail_jsonb(detail, true);

	write_line(&kinds[kind], key, scope, subject, document);
	if (kind == ALERT_NEVER_OWNER)
		document = detail_jsonb(detail, false);
	count_in_row(kind, key, scope, subject, document);
}

bool
alert_told_since(Store *alerts, AlertKind kind, const pg_uuid_t *key, TimestampTz since)
{
	Sighting	sighting;
	bool		isnull;

	alerts->kind = CStringGetTextDatum(kinds[kind].name);
	alerts->part = 0;
	store_find(alerts, key, &sighting);
	if (TransactionIdIsValid(sighting.rival))
		return true;
	return sighting.found &&
		DatumGetTimestampTz(slot_getattr(alerts->found, ALERT_LAST_AT + 1, &isnull)) >= since;
}
