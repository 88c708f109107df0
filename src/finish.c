/*
 * finish.c: idem_commit, idem_fail, idem_release, idem_renew, and an operator's idem_reconcile.
 *
 * A claim of this transaction that is still in the fast table is finished by one insert into the record; any other
 * by an update of the record it left there, compare-and-swap on the version that was judged.  Who does not hold
 * the grant changes nothing, and what they brought is kept as evidence, if they held it once.
 *
 * Lock order: idem_fast before idem_record before idem_alert.
 */
#include "compat.h"

#include "access/xlog.h"
#include "miscadmin.h"
#include "storage/lmgr.h"
#include "utils/builtins.h"
#include "utils/jsonb.h"
#include "utils/timestamp.h"

#include "alert.h"
#include "binding.h"
#include "claim.h"
#include "peer.h"
#include "stat.h"
#include "xact.h"

#define LONG_WAIT 100			/* ms, for a row's lock */

PG_FUNCTION_INFO_V1(idem_commit);
PG_FUNCTION_INFO_V1(idem_fail);
PG_FUNCTION_INFO_V1(idem_release);
PG_FUNCTION_INFO_V1(idem_renew);
PG_FUNCTION_INFO_V1(idem_reconcile);

/* One call, by who says to hold a grant or by an operator. */
typedef struct Call
{
	const char *function;		/* the SQL function's name, for messages */
	Oid			oid;			/* its OID; invalid: the call is idem's own, and its subject was admitted */
	Event		event;
	pg_uuid_t	key;
	uint8		owner_hash[SHA256_LENGTH];	/* of no meaning for a verdict */
	Jsonb	   *result;			/* or reason; NULL: none */
	Span		result_ref;
	int64		lease;			/* renew, in microseconds; 0: the scope's */
	Span		note;			/* verdict: why */
	bool		forced;			/* verdict: even if the lease still runs */
	Answer	   *answer;			/* where what is on record afterwards is told; NULL: nowhere */
} Call;

static bool
is_verdict(const Call *call)
{
	return call->event == EVENT_VERDICT_DONE || call->event == EVENT_VERDICT_FAILED ||
		call->event == EVENT_VERDICT_RETRY;
}

static bool
same_jsonb(struct varlena *stored, Jsonb *given)
{
	Jsonb	   *a;

	if (stored == NULL || given == NULL)
		return stored == NULL && given == NULL;
	a = DatumGetJsonbP(PointerGetDatum(stored));
	return compareJsonbContainers(&a->root, &given->root) == 0;
}

/* A renewal that is longer than what is left sets the lease anew; it never shortens. */
static void
extend(Claim *claim, const Call *call, TimestampTz now)
{
	int64		lease = call->lease;
	TimestampTz until;

	if (lease == 0)
		lease = policy_of(claim->scope.data, claim->scope.length)->in_flight_ttl;
	until = time_after(now, lease);
	claim->lease_until = Max(claim->lease_until, until);
}

/* The claim as it is after the decision. */
static void
apply(Claim *claim, const Call *call, const Decision *decision, TimestampTz now)
{
	claim->state = decision->next;
	if (decision->action == ACTION_EXTEND)
	{
		extend(claim, call, now);
		return;
	}
	claim->finished_at = now;
	claim->retained_until = claim_retention(claim, now);
	claim->result = (struct varlena *) call->result;
	claim->result_ref = call->result_ref;
	if (is_verdict(call))
	{
		const char *role = GetUserNameFromId(GetUserId(), false);

		claim->reconciled_at = now;
		claim->reconciled_by = (Span) {role, strlen(role)};
		claim->reconcile_note = call->note;
	}
	if (call->answer != NULL)
	{
		answer_init(call->answer, OUTCOME_DONE, span_copy(claim->scope), span_copy(claim->subject));
		answer_add_claim(call->answer, claim);
	}
}

/* Did the caller's token hold the claim once, as far back as tokens are kept? */
static bool
has_held(const Call *call, const Claim *claim)
{
	Span		former = claim->former_owners;

	if (memcmp(call->owner_hash, claim->owner_hash, SHA256_LENGTH) == 0)
		return true;
	for (size_t at = 0; at + FORMER_OWNER_LENGTH <= former.length; at += FORMER_OWNER_LENGTH)
		if (memcmp(call->owner_hash, former.data + at, FORMER_OWNER_LENGTH) == 0)
			return true;
	return false;
}

/* The caller is not who holds the grant: keep what it brought, if it ever was. */
static void
keep_evidence(const Call *call, const Claim *claim)
{
	AlertDetail detail = {
		.call = call->function,
		.attempt = claim->attempt,
		.result = (struct varlena *) call->result,
		.result_ref = call->result_ref
	};

	alert_raise(has_held(call, claim) ? ALERT_NOT_OWNER : ALERT_NEVER_OWNER, &call->key, span_copy(claim->scope),
				span_copy(claim->subject), &detail);
}

/* A release or a verdict is for the record of who looks later. */
static void
tell_of(AlertKind kind, const Call *call, const Claim *claim)
{
	AlertDetail detail = {
		.call = call->function,
		.holder = span_copy(claim->holder),
		.attempt = claim->attempt,
		.result = (struct varlena *) call->result,
		.result_ref = call->result_ref,
		.note = call->note
	};

	alert_raise(kind, &call->key, span_copy(claim->scope), span_copy(claim->subject), &detail);
}

/* Did a verdict end the grant?  Then its holder holds it no longer. */
static bool
ended_by_verdict(const Claim *claim)
{
	return claim->state != STATE_IN_FLIGHT && claim->reconciled_at != DT_NOEND &&
		claim->reconciled_at == claim->finished_at;
}

/* May the caller know of the claim in a row?  One that a bound role may not is for it a claim that does not exist. */
static bool
is_admitted(TupleTableSlot *row, const void *call)
{
	return binding_admits(((const Call *) call)->oid, record_subject(row));
}

/* Is there any need to ask? */
static bool
may_be_foreign(const Call *call)
{
	return OidIsValid(call->oid) && binding_exists();
}

static Decision
decide(const Call *call, const Claim *claim, TimestampTz now)
{
	const uint8 *owner = is_verdict(call) || ended_by_verdict(claim) ? NULL : call->owner_hash;
	unsigned	facts = claim_facts(claim, now, owner);

	stat_scope(claim->scope);
	if (call->forced)
		facts |= FACT_FORCED;
	if (same_jsonb(claim->result, call->result) && span_equal(claim->result_ref, call->result_ref))
		facts |= FACT_SAME_RESULT;
	return state_decide(claim->state, call->event, facts);
}

/* An operation that will never guard has no rows among its peers. */
static void
forget_peers(const Call *call, const Claim *claim)
{
	Store		peers;

	if (policy_of(claim->scope.data, claim->scope.length)->repeat_guard == 0)
		return;
	peer_open(&peers, RowExclusiveLock);
	peer_forget(&peers, &call->key);
	store_close(&peers);
}

/* ----- this transaction's own claim, in the fast table ----- */

/* What the grant's end leaves in the record: all but a plain release, after which nothing can have happened. */
static void
finish_fast(const Call *call, Store *fast, ItemPointer tid, Claim *claim, const Decision *decision,
			TimestampTz now)
{
	Store		record;

	apply(claim, call, decision, now);
	if (decision->action == ACTION_FINISH)
	{
		store_open(&record, TABLE_RECORD, RowExclusiveLock, false);
		record_write(claim, store_row(&record));
		if (!store_delete(fast, tid))
			claim_vanished();
		claim_insert_record(&record);
		claim_require_remembered(claim);
		store_close(&record);
	}
	else if (!store_delete(fast, tid))
		claim_vanished();
	if (decision->action == ACTION_RELEASE || decision->next == STATE_FAILED)
		forget_peers(call, claim);
	xact_put(&call->key, PLACE_NONE, NULL, SPOT_PLAIN);
}

static void
renew_fast(const Call *call, Store *fast, ItemPointer tid, Claim *claim, const Decision *decision,
		   TimestampTz now)
{
	apply(claim, call, decision, now);
	record_write(claim, store_row(fast));
	if (store_update(fast, tid, true) != UPDATE_DONE)
		claim_vanished();
	xact_put(&call->key, PLACE_FAST, &fast->row->tts_tid, claim_spot_kind(claim));
}

static Ack
call_fast(const Call *call, ItemPointer tid)
{
	TimestampTz now = GetCurrentTimestamp();
	Store		fast;
	Claim		claim;
	Decision	decision;

	store_open(&fast, TABLE_FAST, RowExclusiveLock, false);
	if (!store_find_own(&fast, &call->key, tid))
		claim_vanished();
	if (may_be_foreign(call) && !is_admitted(fast.found, call))
	{
		store_close(&fast);
		return ACK_NONE;
	}
	record_read(fast.found, &claim);
	decision = decide(call, &claim, now);
	if (decision.action != ACTION_KEEP)
		PreventCommandIfReadOnly(call->function);
	if (decision.action == ACTION_EXTEND)
		renew_fast(call, &fast, tid, &claim, &decision, now);
	else if (decision.action != ACTION_KEEP)
		finish_fast(call, &fast, tid, &claim, &decision, now);
	else if (decision.ack == ACK_NOT_OWNER)
		keep_evidence(call, &claim);
	store_close(&fast);
	return decision.ack;
}

/* ----- a claim in the record ----- */

static void
note_change(const Call *call, Place place, const Claim *claim, const Decision *decision, ItemPointer tid)
{
	if (place == PLACE_NONE)
		xact_changed(&call->key);
	else if (decision->action == ACTION_EXTEND)
		xact_put(&call->key, PLACE_RECORD, tid, claim_spot_kind(claim));
	else
		xact_put(&call->key, PLACE_NONE, NULL, SPOT_PLAIN);
	if (is_verdict(call))
		tell_of(ALERT_RECONCILED, call, claim);
	else if (decision->action == ACTION_RELEASE)
		tell_of(ALERT_RELEASED, call, claim);
}

static void
refuse_verdict(void)
{
	ereport(ERROR,
			(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
			 errmsg("the claim's lease still runs"),
			 errdetail("Its holder may be at work, and report a result of its own."),
			 errhint("Wait until the lease is over, or pass force => true where the holder is certainly gone.")));
}

/*
 * The row's lock was waited for, as long as somebody held it FOR SHARE: a lease or a retention counted from before
 * that would be too short.
 */
static void
write_again(const Call *call, Store *record, Claim *claim, const Decision *decision)
{
	ItemPointerData tid = record->row->tts_tid;

	apply(claim, call, decision, GetCurrentTimestamp());
	record_write(claim, store_row(record));
	if (store_update(record, &tid, true) != UPDATE_DONE)
		claim_vanished();
}

/* Write the decision; false where the version has moved meanwhile. */
static bool
change_record(const Call *call, Store *record, Sighting *sighting, Claim *claim, const Decision *decision,
			  TimestampTz now)
{
	ItemPointerData tid;
	Place		place = xact_place(&call->key, &tid);

	PreventCommandIfReadOnly(call->function);
	PreventCommandDuringRecovery(call->function);
	claim_require_serializable(sighting);
	apply(claim, call, decision, now);
	record_write(claim, store_row(record));
	if (store_update(record, &sighting->tid, true) != UPDATE_DONE)
		return false;
	if (TimestampDifferenceExceeds(now, GetCurrentTimestamp(), LONG_WAIT))
		write_again(call, record, claim, decision);
	if (decision->next == STATE_FAILED)
		forget_peers(call, claim);
	note_change(call, place, claim, decision, &record->row->tts_tid);
	return true;
}

/* One try on the record; false to look again. */
static bool
try_record(const Call *call, Ack *ack)
{
	TimestampTz now;
	Store		record;
	Sighting	sighting;
	Claim		claim;
	Decision	decision;
	bool		settled = true;

	store_open(&record, TABLE_RECORD, RowExclusiveLock, false);
	if (may_be_foreign(call))
	{
		record.filter = is_admitted;
		record.filter_arg = call;
	}
	store_find(&record, &call->key, &sighting);
	/* the table's lock may have been waited for */
	now = GetCurrentTimestamp();
	if (XactIsoLevel == XACT_SERIALIZABLE)
		claim_require_serializable(&sighting);
	if (!sighting.found)
		decision = state_decide(STATE_NONE, call->event, 0);
	else
	{
		record_read(record.found, &claim);
		decision = decide(call, &claim, now);
		if (TransactionIdIsValid(sighting.rival))
		{
			/* somebody is changing it: what they leave decides */
			store_close(&record);
			XactLockTableWait(sighting.rival, NULL, NULL, XLTW_None);
			return false;
		}
		if (decision.action == ACTION_REFUSE_VERDICT)
			refuse_verdict();
		if (decision.action != ACTION_KEEP)
			settled = change_record(call, &record, &sighting, &claim, &decision, now);
		else if (decision.ack == ACK_NOT_OWNER)
			keep_evidence(call, &claim);
		else if (decision.ack == ACK_OK)
			xact_confirm();
	}
	store_close(&record);
	*ack = decision.ack;
	return settled;
}

static Ack
call_claim(const Call *call)
{
	ItemPointerData tid;
	Ack			ack;

	if (xact_place(&call->key, &tid) == PLACE_FAST && !is_verdict(call))
		return call_fast(call, &tid);
	while (!try_record(call, &ack))
		CHECK_FOR_INTERRUPTS();
	return ack;
}

Ack
claim_commit(const pg_uuid_t *key, const uint8 *owner, Jsonb *result, Answer *answer)
{
	Call		call = {
		.function = "idem_execute()",
		.event = EVENT_COMMIT,
		.key = *key,
		.result = result,
		.answer = answer
	};

	memcpy(call.owner_hash, owner, SHA256_LENGTH);
	return call_claim(&call);
}

/* ----- SQL ----- */

static void
read_key_and_owner(FunctionCallInfo fcinfo, Call *call, StatCall stat, const char *function, Event event)
{
	memset(call, 0, sizeof(*call));
	policy_begin();
	stat_begin(stat);
	call->function = function;
	call->oid = fcinfo->flinfo->fn_oid;
	call->event = event;
	call->key = *args_uuid(fcinfo, 0, "key");
	owner_hash(args_uuid(fcinfo, 1, "owner"), call->owner_hash);
}

/* Make the call, count it, and say what came of it. */
static Datum
answer_call(const Call *call)
{
	Ack			ack = call_claim(call);

	stat_end_ack(ack, ack == ACK_OK);
	return ObjectIdGetDatum(catalog_ack(ack));
}

/*
 * idem_commit(key uuid, owner uuid, result jsonb DEFAULT NULL, result_ref text DEFAULT NULL) RETURNS idem_ack
 */
Datum
idem_commit(PG_FUNCTION_ARGS)
{
	Call		call;

	read_key_and_owner(fcinfo, &call, STAT_COMMIT, "idem_commit()", EVENT_COMMIT);
	if (!PG_ARGISNULL(2))
		call.result = PG_GETARG_JSONB_P(2);
	call.result_ref = args_result_ref(fcinfo, 3);
	return answer_call(&call);
}

/*
 * idem_fail(key uuid, owner uuid, reason jsonb, retryable boolean DEFAULT false) RETURNS idem_ack
 */
Datum
idem_fail(PG_FUNCTION_ARGS)
{
	Call		call;

	read_key_and_owner(fcinfo, &call, STAT_FAIL, "idem_fail()",
					   args_bool(fcinfo, 3, "retryable") ? EVENT_FAIL_RETRYABLE : EVENT_FAIL);
	call.result = args_jsonb(fcinfo, 2, "reason");
	return answer_call(&call);
}

/*
 * idem_release(key uuid, owner uuid) RETURNS idem_ack
 */
Datum
idem_release(PG_FUNCTION_ARGS)
{
	Call		call;

	read_key_and_owner(fcinfo, &call, STAT_RELEASE, "idem_release()", EVENT_RELEASE);
	return answer_call(&call);
}

/*
 * idem_renew(key uuid, owner uuid, lease interval DEFAULT NULL) RETURNS idem_ack
 */
Datum
idem_renew(PG_FUNCTION_ARGS)
{
	Call		call;

	read_key_and_owner(fcinfo, &call, STAT_RENEW, "idem_renew()", EVENT_RENEW);
	if (!PG_ARGISNULL(2))
		call.lease = args_interval(fcinfo, 2, "lease", false);
	return answer_call(&call);
}

static Event
verdict_event(Span verdict)
{
	static const struct
	{
		const char *name;
		Event		event;
	}			verdicts[] = {
		{"DONE", EVENT_VERDICT_DONE},
		{"FAILED", EVENT_VERDICT_FAILED},
		{"RETRY", EVENT_VERDICT_RETRY}
	};

	for (size_t i = 0; i < lengthof(verdicts); i++)
		if (span_equal(verdict, (Span) {verdicts[i].name, strlen(verdicts[i].name)}))
			return verdicts[i].event;
	ereport(ERROR,
			(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
			 errmsg("unknown verdict"),
			 errhint("A verdict is DONE, FAILED or RETRY.")));
}

/*
 * idem_reconcile(key uuid, verdict text, note text, result jsonb DEFAULT NULL, result_ref text DEFAULT NULL,
 *		force boolean DEFAULT false) RETURNS idem_ack
 */
Datum
idem_reconcile(PG_FUNCTION_ARGS)
{
	Call		call = {.function = "idem_reconcile()", .oid = fcinfo->flinfo->fn_oid};

	policy_begin();
	stat_begin(STAT_RECONCILE);
	call.key = *args_uuid(fcinfo, 0, "key");
	call.event = verdict_event(args_label(fcinfo, 1, "verdict"));
	call.note = args_note(fcinfo, 2, "note");
	if (!PG_ARGISNULL(3))
		call.result = PG_GETARG_JSONB_P(3);
	call.result_ref = args_result_ref(fcinfo, 4);
	call.forced = args_bool(fcinfo, 5, "force");
	return answer_call(&call);
}
