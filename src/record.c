/*
 * record.c: a claim <-> a row of idem_record or idem_fast.
 */
#include "compat.h"

#include "catalog/pg_type_d.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"

#include "record.h"

static const Oid column_types[RECORD_NATTS] = {
	[RECORD_KEY] = UUIDOID,
	[RECORD_ACQUIRED_AT] = TIMESTAMPTZOID,
	[RECORD_LEASE_UNTIL] = TIMESTAMPTZOID,
	[RECORD_POLICY_VERSION] = INT4OID,
	[RECORD_ATTEMPT] = INT4OID,
	[RECORD_STATE] = CHAROID,
	[RECORD_DOWNSTREAM] = CHAROID,
	[RECORD_PARAM_HASH] = BYTEAOID,
	[RECORD_OWNER_HASH] = BYTEAOID,
	[RECORD_SCOPE] = TEXTOID,
	[RECORD_SUBJECT] = TEXTOID,
	[RECORD_EXPIRES_AT] = TIMESTAMPTZOID,
	[RECORD_HOLDER] = TEXTOID,
	[RECORD_TRACE_ID] = TEXTOID,
	[RECORD_RETAINED_UNTIL] = TIMESTAMPTZOID,
	[RECORD_FINISHED_AT] = TIMESTAMPTZOID,
	[RECORD_RESULT] = JSONBOID,
	[RECORD_RESULT_REF] = TEXTOID,
	[RECORD_RECONCILED_AT] = TIMESTAMPTZOID,
	[RECORD_RECONCILED_BY] = TEXTOID,
	[RECORD_RECONCILE_NOTE] = TEXTOID,
	[RECORD_FORMER_OWNERS] = BYTEAOID,
};

#define FAST_NULLABLE (NULLABLE(RECORD_EXPIRES_AT) | \
					   NULLABLE(RECORD_HOLDER) | NULLABLE(RECORD_TRACE_ID))
#define RECORD_NULLABLE (FAST_NULLABLE | NULLABLE(RECORD_FINISHED_AT) | \
						 NULLABLE(RECORD_RESULT) | NULLABLE(RECORD_RESULT_REF) | \
						 NULLABLE(RECORD_RECONCILED_AT) | NULLABLE(RECORD_RECONCILED_BY) | \
						 NULLABLE(RECORD_RECONCILE_NOTE) | NULLABLE(RECORD_FORMER_OWNERS))

const Layout record_layout = {RECORD_NATTS, 1, column_types, RECORD_NULLABLE, 7};
const Layout fast_layout = {FAST_NATTS, 1, column_types, FAST_NULLABLE, 0};

bool
span_equal(Span a, Span b)
{
	if (a.data == NULL || b.data == NULL)
		return a.data == b.data;
	return a.length == b.length && memcmp(a.data, b.data, a.length) == 0;
}

Datum
span_datum(Span span)
{
	return PointerGetDatum(cstring_to_text_with_len(span.data, span.length));
}

static Datum
hash_datum(const uint8 hash[SHA256_LENGTH])
{
	return span_datum((Span) {(const char *) hash, SHA256_LENGTH});
}

/* A time that is null in the row where it is DT_NOEND. */
static void
write_time(TupleTableSlot *slot, int column, TimestampTz at)
{
	slot->tts_isnull[column] = at == DT_NOEND;
	slot->tts_values[column] = TimestampTzGetDatum(at);
}

static void
write_span(TupleTableSlot *slot, int column, Span span)
{
	slot->tts_isnull[column] = span.data == NULL;
	slot->tts_values[column] = span.data == NULL ? (Datum) 0 : span_datum(span);
}

/* What only idem_record holds. */
static void
write_outcome(const Claim *claim, TupleTableSlot *slot)
{
	slot->tts_isnull[RECORD_RETAINED_UNTIL] = false;
	slot->tts_values[RECORD_RETAINED_UNTIL] = TimestampTzGetDatum(claim->retained_until);
	write_time(slot, RECORD_FINISHED_AT, claim->finished_at);
	slot->tts_isnull[RECORD_RESULT] = claim->result == NULL;
	slot->tts_values[RECORD_RESULT] = PointerGetDatum(claim->result);
	write_span(slot, RECORD_RESULT_REF, claim->result_ref);
	write_time(slot, RECORD_RECONCILED_AT, claim->reconciled_at);
	write_span(slot, RECORD_RECONCILED_BY, claim->reconciled_by);
	write_span(slot, RECORD_RECONCILE_NOTE, claim->reconcile_note);
	write_span(slot, RECORD_FORMER_OWNERS, claim->former_owners);
}

void
record_write(const Claim *claim, TupleTableSlot *slot)
{
	Datum	   *values = slot->tts_values;

	ExecClearTuple(slot);
	memset(slot->tts_isnull, false, slot->tts_tupleDescriptor->natts);
	values[RECORD_KEY] = UUIDPGetDatum(&claim->key);
	values[RECORD_ACQUIRED_AT] = TimestampTzGetDatum(claim->acquired_at);
	values[RECORD_LEASE_UNTIL] = TimestampTzGetDatum(claim->lease_until);
	values[RECORD_POLICY_VERSION] = Int32GetDatum(claim->policy_version);
	values[RECORD_ATTEMPT] = Int32GetDatum(claim->attempt);
	values[RECORD_STATE] = CharGetDatum((char) claim->state);
	values[RECORD_DOWNSTREAM] = CharGetDatum((char) claim->downstream);
	values[RECORD_PARAM_HASH] = hash_datum(claim->param_hash);
	values[RECORD_OWNER_HASH] = hash_datum(claim->owner_hash);
	values[RECORD_SCOPE] = span_datum(claim->scope);
	values[RECORD_SUBJECT] = span_datum(claim->subject);
	write_time(slot, RECORD_EXPIRES_AT, claim->expires_at);
	write_span(slot, RECORD_HOLDER, claim->holder);
	write_span(slot, RECORD_TRACE_ID, claim->trace_id);
	if (slot->tts_tupleDescriptor->natts == RECORD_NATTS)
		write_outcome(claim, slot);
	ExecStoreVirtualTuple(slot);
}

static TimestampTz
read_time(TupleTableSlot *slot, int column)
{
	return slot->tts_isnull[column] ? DT_NOEND : DatumGetTimestampTz(slot->tts_values[column]);
}

static Span
read_span(TupleTableSlot *slot, int column)
{
	struct varlena *bytes;

	if (slot->tts_isnull[column])
		return (Span) {NULL, 0};
	bytes = PG_DETOAST_DATUM_PACKED(slot->tts_values[column]);
	return (Span) {VARDATA_ANY(bytes), VARSIZE_ANY_EXHDR(bytes)};
}

/* A hash of another length, or none, compares with nothing: the row was tampered with. */
static void
read_hash(TupleTableSlot *slot, int column, uint8 hash[SHA256_LENGTH])
{
	Span		bytes = read_span(slot, column);

	if (bytes.length != SHA256_LENGTH)
		ereport(ERROR,
				(errcode(ERRCODE_DATA_CORRUPTED),
				 errmsg("a claim's row holds a hash of %zu bytes", bytes.length)));
	memcpy(hash, bytes.data, SHA256_LENGTH);
}

/* The columns that the constraints of both tables keep from being null. */
static void
check_not_null(TupleTableSlot *slot)
{
	for (int i = RECORD_KEY; i <= RECORD_SUBJECT; i++)
		if (slot->tts_isnull[i])
			ereport(ERROR,
					(errcode(ERRCODE_DATA_CORRUPTED),
					 errmsg("a claim's row has a null where none is allowed")));
}

static State
read_state(char letter)
{
	switch (letter)
	{
		case STATE_IN_FLIGHT:
		case STATE_DONE:
		case STATE_FAILED:
		case STATE_RELEASED:
			return (State) letter;
	}
	ereport(ERROR,
			(errcode(ERRCODE_DATA_CORRUPTED),
			 errmsg("a claim's row holds an unknown state")));
}

static void
read_outcome(TupleTableSlot *slot, Claim *claim)
{
	claim->retained_until = read_time(slot, RECORD_RETAINED_UNTIL);
	claim->finished_at = read_time(slot, RECORD_FINISHED_AT);
	if (!slot->tts_isnull[RECORD_RESULT])
		claim->result = (struct varlena *) DatumGetPointer(slot->tts_values[RECORD_RESULT]);
	claim->result_ref = read_span(slot, RECORD_RESULT_REF);
	claim->reconciled_at = read_time(slot, RECORD_RECONCILED_AT);
	claim->reconciled_by = read_span(slot, RECORD_RECONCILED_BY);
	claim->reconcile_note = read_span(slot, RECORD_RECONCILE_NOTE);
	claim->former_owners = read_span(slot, RECORD_FORMER_OWNERS);
}

void
record_read(TupleTableSlot *slot, Claim *claim)
{
	Datum	   *values;

	slot_getallattrs(slot);
	values = slot->tts_values;
	check_not_null(slot);
	memset(claim, 0, sizeof(*claim));
	claim->key = *DatumGetUUIDP(values[RECORD_KEY]);
	claim->acquired_at = DatumGetTimestampTz(values[RECORD_ACQUIRED_AT]);
	claim->lease_until = DatumGetTimestampTz(values[RECORD_LEASE_UNTIL]);
	claim->policy_version = DatumGetInt32(values[RECORD_POLICY_VERSION]);
	claim->attempt = DatumGetInt32(values[RECORD_ATTEMPT]);
	claim->state = read_state(DatumGetChar(values[RECORD_STATE]));
	claim->downstream = (Downstream) DatumGetChar(values[RECORD_DOWNSTREAM]);
	read_hash(slot, RECORD_PARAM_HASH, claim->param_hash);
	read_hash(slot, RECORD_OWNER_HASH, claim->owner_hash);
	claim->scope = read_span(slot, RECORD_SCOPE);
	claim->subject = read_span(slot, RECORD_SUBJECT);
	claim->expires_at = read_time(slot, RECORD_EXPIRES_AT);
	claim->holder = read_span(slot, RECORD_HOLDER);
	claim->trace_id = read_span(slot, RECORD_TRACE_ID);
	claim->retained_until = claim->finished_at = claim->reconciled_at = DT_NOEND;
	if (slot->tts_tupleDescriptor->natts == RECORD_NATTS)
		read_outcome(slot, claim);
}

Span
record_span(TupleTableSlot *slot, int column)
{
	slot_getsomeattrs(slot, column + 1);
	return read_span(slot, column);
}

Span
record_subject(TupleTableSlot *slot)
{
	return record_span(slot, RECORD_SUBJECT);
}

bool
record_is_of_subject(TupleTableSlot *version, const void *arg)
{
	return span_equal(record_subject(version), *(const Span *) arg);
}
