/*
 * claim.c: what the calls of a claim's life have in common: facts, answers, times, and the transaction's end.
 */
#include "compat.h"

#include "access/htup_details.h"
#include "catalog/pg_type_d.h"
#include "common/int.h"
#include "funcapi.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"
#include "utils/typcache.h"

#include "catalog.h"
#include "claim.h"
#include "guc.h"
#include "policy.h"
#include "stat.h"

TimestampTz
time_after(TimestampTz at, int64 microseconds)
{
	TimestampTz result;

	if (pg_add_s64_overflow(at, microseconds, &result) || !IS_VALID_TIMESTAMP(result))
		return END_TIMESTAMP - 1;
	return result;
}

void
owner_hash(const pg_uuid_t *owner, uint8 hash[SHA256_LENGTH])
{
	sha256(owner->data, UUID_LEN, hash);
}

unsigned
claim_facts(const Claim *claim, TimestampTz now, const uint8 *owner_hash)
{
	unsigned	facts = 0;

	if (now >= claim->retained_until)
		facts |= FACT_LAPSED;
	if (now >= claim->lease_until)
		facts |= FACT_LEASE_OVER;
	if (claim->downstream == DOWNSTREAM_IDEMPOTENT)
		facts |= FACT_DEDUPLICATES;
	/* hashes of tokens: how long the comparison takes tells nothing of the token */
	if (owner_hash != NULL && memcmp(owner_hash, claim->owner_hash, SHA256_LENGTH) == 0)
		facts |= FACT_OWNER;
	return facts;
}

TimestampTz
claim_retention(const Claim *claim, TimestampTz now)
{
	const Policy *policy = policy_of(claim->scope.data, claim->scope.length);
	TimestampTz by_policy = time_after(now, Max(policy->result_ttl, policy->repeat_guard));
	TimestampTz by_expiry;

	if (claim->expires_at == DT_NOEND)
		return by_policy;
	by_expiry = time_after(claim->expires_at, (int64) guc_max_clock_skew * 1000);
	return Max(by_policy, by_expiry);
}

void
claim_require_serializable(const Sighting *sighting)
{
	if (!sighting->serializable)
		ereport(ERROR,
				(errcode(ERRCODE_T_R_SERIALIZATION_FAILURE),
				 errmsg("could not serialize access due to a concurrent change of the claim"),
				 errhint("Roll back and run the transaction again.")));
}

void
claim_vanished(void)
{
	ereport(ERROR,
			(errcode(ERRCODE_T_R_SERIALIZATION_FAILURE),
			 errmsg("an open claim vanished from its table"),
			 errdetail("The table was emptied within the transaction that holds the claim."),
			 errhint("Roll back and run the transaction again.")));
}

SpotKind
claim_spot_kind(const Claim *claim)
{
	return claim->downstream == DOWNSTREAM_LOCAL ? SPOT_LOCAL : SPOT_PLAIN;
}

/* ----- answers ----- */

void
answer_init(Answer *answer, Outcome outcome, Span scope, Span subject)
{
	memset(answer, 0, sizeof(*answer));
	answer->outcome = outcome;
	answer->scope = scope;
	answer->subject = subject;
	answer->lease_until = answer->finished_at = answer->retained_until = DT_NOEND;
}

void
answer_init_in_flight(Answer *answer, const pg_uuid_t *key, Span scope, Span subject, TransactionId rival)
{
	answer_init(answer, OUTCOME_IN_FLIGHT, scope, subject);
	answer->has_key = true;
	answer->key = *key;
	answer->rival = rival;
}

Span
span_copy(Span span)
{
	if (span.data == NULL)
		return span;
	return (Span) {pnstrdup(span.data, span.length), span.length};
}

void
answer_add_claim(Answer *answer, const Claim *claim)
{
	if (answer->outcome == OUTCOME_NONE || answer->outcome == OUTCOME_EXPIRED)
		return;
	answer->has_key = true;
	answer->key = claim->key;
	answer->attempt = claim->attempt;
	answer->trace_id = span_copy(claim->trace_id);
	if (claim->state == STATE_IN_FLIGHT)
		answer->lease_until = claim->lease_until;

	/* what a rival has written and not committed is nobody's result yet */
	if (claim->state == STATE_IN_FLIGHT || answer->outcome == OUTCOME_IN_FLIGHT)
		return;
	answer->replayed = claim->state != STATE_RELEASED;
	answer->finished_at = claim->finished_at;
	answer->retained_until = claim->retained_until;
	if (claim->result != NULL)
		answer->result = PG_DETOAST_DATUM_COPY(PointerGetDatum(claim->result));
	answer->result_ref = span_copy(claim->result_ref);
}

/* The columns of idem_claim. */
enum
{
	CLAIM_OUTCOME,
	CLAIM_KEY,
	CLAIM_OWNER,
	CLAIM_ATTEMPT,
	CLAIM_REPLAYED,
	CLAIM_JOINED,
	CLAIM_SCOPE,
	CLAIM_SUBJECT,
	CLAIM_RESULT,
	CLAIM_RESULT_REF,
	CLAIM_LEASE_UNTIL,
	CLAIM_FINISHED_AT,
	CLAIM_RETAINED_UNTIL,
	CLAIM_TRACE_ID,
	CLAIM_NATTS
};

static bool
are_claim_columns(TupleDesc columns, Oid outcome_type)
{
	const Oid	types[CLAIM_NATTS] = {
		outcome_type, UUIDOID, UUIDOID, INT4OID, BOOLOID, BOOLOID, TEXTOID, TEXTOID, JSONBOID,
		TEXTOID, TIMESTAMPTZOID, TIMESTAMPTZOID, TIMESTAMPTZOID, TEXTOID
	};
	const Layout layout = {CLAIM_NATTS, 0, types, PG_UINT32_MAX, 0};

	return columns != NULL && layout_holds(&layout, columns);
}

/*
 * The type's columns; raises 55000 where its owner has altered them: values would be read as what they are not.  They
 * hold until the next look into a catalog; the type cache numbers them, so that each set of them is looked at once.
 */
static TupleDesc
claim_columns(void)
{
	static uint64 good = 0;
	Oid			outcome_type = catalog_outcome_type();
	TypeCacheEntry *type = lookup_type_cache(catalog_claim_type(), TYPECACHE_TUPDESC);

	if (good == 0 || type->tupDesc_identifier != good)
	{
		if (!are_claim_columns(type->tupDesc, outcome_type))
			ereport(ERROR,
					(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
					 errmsg("type idem_claim was altered"),
					 errhint(LAYOUT_HINT)));
		good = type->tupDesc_identifier;
	}
	return type->tupDesc;
}

static void
put(Datum *values, bool *nulls, int column, bool known, Datum value)
{
	nulls[column] = !known;
	values[column] = known ? value : (Datum) 0;
}

static void
put_span(Datum *values, bool *nulls, int column, Span span)
{
	put(values, nulls, column, span.data != NULL, span.data == NULL ? (Datum) 0 : span_datum(span));
}

static void
put_time(Datum *values, bool *nulls, int column, TimestampTz at)
{
	put(values, nulls, column, at != DT_NOEND, TimestampTzGetDatum(at));
}

Datum
answer_datum(const Answer *answer)
{
	Datum		values[CLAIM_NATTS];
	bool		nulls[CLAIM_NATTS];

	put(values, nulls, CLAIM_OUTCOME, true, ObjectIdGetDatum(catalog_outcome(answer->outcome)));
	put(values, nulls, CLAIM_KEY, answer->has_key, UUIDPGetDatum(&answer->key));
	put(values, nulls, CLAIM_OWNER, answer->has_owner, UUIDPGetDatum(&answer->owner));
	put(values, nulls, CLAIM_ATTEMPT, answer->attempt > 0, Int32GetDatum(answer->attempt));
	put(values, nulls, CLAIM_REPLAYED, true, BoolGetDatum(answer->replayed));
	put(values, nulls, CLAIM_JOINED, true, BoolGetDatum(answer->joined));
	put_span(values, nulls, CLAIM_SCOPE, answer->scope);
	put_span(values, nulls, CLAIM_SUBJECT, answer->subject);
	put(values, nulls, CLAIM_RESULT, answer->result != NULL, PointerGetDatum(answer->result));
	put_span(values, nulls, CLAIM_RESULT_REF, answer->result_ref);
	put_time(values, nulls, CLAIM_LEASE_UNTIL, answer->lease_until);
	put_time(values, nulls, CLAIM_FINISHED_AT, answer->finished_at);
	put_time(values, nulls, CLAIM_RETAINED_UNTIL, answer->retained_until);
	put_span(values, nulls, CLAIM_TRACE_ID, answer->trace_id);
	return HeapTupleGetDatum(heap_form_tuple(claim_columns(), values, nulls));
}

/* The outcome that a value of the enum stands for; catalog.c knows all its labels. */
static Outcome
outcome_of(Datum value)
{
	for (int outcome = 0; outcome < OUTCOME_COUNT; outcome++)
		if (catalog_outcome(outcome) == DatumGetObjectId(value))
			return (Outcome) outcome;
	elog(ERROR, "a claim has an outcome that is none");
}

static Span
given_text(const Datum *values, const bool *nulls, int column)
{
	text	   *value;

	if (nulls[column])
		return (Span) {NULL, 0};
	value = DatumGetTextPP(values[column]);
	return (Span) {VARDATA_ANY(value), VARSIZE_ANY_EXHDR(value)};
}

bool
claim_read(HeapTupleHeader row, GivenClaim *claim)
{
	TupleDesc	columns = claim_columns();
	HeapTupleData tuple = {.t_len = HeapTupleHeaderGetDatumLength(row), .t_data = row};
	Datum		values[CLAIM_NATTS];
	bool		nulls[CLAIM_NATTS];

	if (HeapTupleHeaderGetTypeId(row) != catalog_claim_type())
		elog(ERROR, "a claim is of another type");
	heap_deform_tuple(&tuple, columns, values, nulls);
	memset(claim, 0, sizeof(*claim));
	if (nulls[CLAIM_OUTCOME])
		return false;
	claim->outcome = outcome_of(values[CLAIM_OUTCOME]);
	claim->attempt = nulls[CLAIM_ATTEMPT] ? 0 : DatumGetInt32(values[CLAIM_ATTEMPT]);
	claim->is_replay = !nulls[CLAIM_REPLAYED] && DatumGetBool(values[CLAIM_REPLAYED]);
	claim->is_first_run = !nulls[CLAIM_REPLAYED] && !DatumGetBool(values[CLAIM_REPLAYED]);
	claim->is_finished = !nulls[CLAIM_FINISHED_AT];
	claim->finished_at = claim->is_finished ? DatumGetTimestampTz(values[CLAIM_FINISHED_AT]) : DT_NOEND;
	claim->scope = given_text(values, nulls, CLAIM_SCOPE);
	claim->result_ref = given_text(values, nulls, CLAIM_RESULT_REF);
	claim->trace_id = given_text(values, nulls, CLAIM_TRACE_ID);
	claim->result = nulls[CLAIM_RESULT] ? NULL : DatumGetJsonbP(values[CLAIM_RESULT]);
	return true;
}

/* ----- the transaction's end ----- */

/* A lease that is over as its claim becomes visible is set anew: the holder is only starting. */
static void
refresh_lease(Claim *claim)
{
	TimestampTz now = GetCurrentTimestamp();

	if (now >= claim->lease_until)
		claim->lease_until = time_after(now, policy_of(claim->scope.data, claim->scope.length)->in_flight_ttl);
}

void
claim_move_to_record(const pg_uuid_t *key, ItemPointer tid)
{
	Store		fast;
	Store		record;
	Claim		claim;

	policy_begin();
	store_open(&fast, TABLE_FAST, RowExclusiveLock, false);
	store_open(&record, TABLE_RECORD, RowExclusiveLock, false);
	if (!store_find_own(&fast, key, tid))
		claim_vanished();
	record_read(fast.found, &claim);
	refresh_lease(&claim);
	record_write(&claim, store_row(&record));
	if (!store_delete(&fast, tid))
		claim_vanished();
	claim_insert_record(&record);
	claim_require_remembered(&claim);
	stat_extra(STAT_PROMOTED, span_copy(claim.scope), 1);
	store_close(&record);
	store_close(&fast);
}

void
claim_insert_record(Store *record)
{
	if (!store_insert(record))
		ereport(ERROR,
				(errcode(ERRCODE_T_R_SERIALIZATION_FAILURE),
				 errmsg("another transaction holds a claim with the same key"),
				 errdetail("It went another way: one of the two could not use the fast table."),
				 errhint("Roll back and run the transaction again.")));
}

void
claim_require_remembered(const Claim *claim)
{
	if (GetCurrentTimestamp() >= claim_retention(claim, claim->acquired_at))
		ereport(ERROR,
				(errcode(ERRCODE_T_R_SERIALIZATION_FAILURE),
				 errmsg("the transaction held its claim for longer than results are kept"),
				 errdetail("Another one that could not use the fast table may have finished the operation meanwhile, "
						   "and been forgotten."),
				 errhint("Roll back and run the transaction again, or keep results for longer by \"result_ttl\" in "
						 "the scope's row of idem_policy.")));
}

void
claim_refresh_lease(const pg_uuid_t *key)
{
	Store		record;
	Sighting	sighting;
	Claim		claim;

	policy_begin();
	store_open(&record, TABLE_RECORD, RowExclusiveLock, false);
	store_find(&record, key, &sighting);
	if (!sighting.found)
		claim_vanished();
	record_read(record.found, &claim);
	if (GetCurrentTimestamp() >= claim.lease_until)
	{
		refresh_lease(&claim);
		record_write(&claim, store_row(&record));
		if (store_update(&record, &sighting.tid, true) != UPDATE_DONE)
			claim_vanished();
	}
	store_close(&record);
}
