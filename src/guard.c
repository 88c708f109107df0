/*
 * guard.c: the repeat guard.
 *
 * A model that lost its memory previews again and gets a fresh, valid fingerprint for what it has done already.
 * Where a scope sets the guard, a grant by fingerprint also claims a guard row, whose key is made from what the
 * operation is about and not from its nonce: of two fresh fingerprints for the same thing at most one gets it.
 * The row names the operation that holds it and is none itself.  Whether it still guards is judged by that
 * operation: one that failed, was released or finished longer ago than the guard lasts leaves it free.
 *
 * The guard is claimed before the operation.  Who holds it and then loses the operation's own key to a rival
 * leaves it behind until the transaction ends, where it goes.
 */
#include "compat.h"

#include "lib/stringinfo.h"
#include "utils/timestamp.h"

#include "guard.h"
#include "key.h"
#include "status.h"

#define GUARD_STEP "repeat guard"

/*
 * The guard's key: made from the operation's content key, and different from it, so that a guard never stands
 * where a direct call's own record belongs.
 */
static bool
guard_key(Span scope, Span subject, Jsonb *params, const MaterialPart *part, pg_uuid_t *guard,
		  pg_uuid_t *content)
{
	StringInfoData canonical;
	bool		material;

	initStringInfo(&canonical);
	material = canonical_append(&canonical, params, part);
	if (material)
	{
		key_direct(DIRECT_CONTENT, scope.data, scope.length, subject.data, subject.length,
				   canonical.data, canonical.len, content);
		key_step(content, GUARD_STEP, strlen(GUARD_STEP), guard);
	}
	pfree(canonical.data);
	return material;
}

/* Does this operation, at work or finished, still forbid a repeat?  Fills the answer. */
static bool
still_guards(const pg_uuid_t *operation, Span subject, int64 guard, Answer *answer)
{
	claim_look_up(operation, subject, DT_NOEND, answer);
	switch (answer->outcome)
	{
		case OUTCOME_IN_FLIGHT:
		case OUTCOME_RECONCILE:
			return true;
		case OUTCOME_RETRYABLE:
			/* released leaves it free; a lease that is over does not end what it was for */
			return answer->finished_at == DT_NOEND;
		case OUTCOME_DONE:
			return GetCurrentTimestamp() < time_after(answer->finished_at, guard);
		default:
			return false;
	}
}

/* The answer that names an earlier operation. */
static Step
answer_repeat(Request *request, const pg_uuid_t *operation, Answer *answer)
{
	claim_look_up(operation, request->subject, DT_NOEND, answer);
	if (answer->outcome != OUTCOME_DONE)
	{
		/* it may have failed since it was judged: a time and a result say that it happened, to those who read them */
		answer->finished_at = answer->retained_until = DT_NOEND;
		answer->result = NULL;
		answer->result_ref = (Span) {NULL, 0};
	}
	answer->outcome = OUTCOME_REPEAT;
	answer->replayed = false;
	answer->has_key = true;
	answer->key = *operation;
	answer->scope = request->scope;
	answer->subject = request->subject;
	return STEP_ANSWERED;
}

/* Somebody, rival if their transaction is known, is at work on this operation's guard: there is no saying more. */
static Step
answer_busy(Request *request, TransactionId rival, Answer *answer)
{
	answer_init_in_flight(answer, &request->key, request->scope, request->subject, rival);
	return STEP_ANSWERED;
}

static bool
is_for(Request *request, const Claim *row)
{
	return memcmp(&row->operation, &request->key, UUID_LEN) == 0;
}

static void
guard_row(Request *request, const pg_uuid_t *key, Claim *row)
{
	memset(row, 0, sizeof(*row));
	row->key = *key;
	row->is_guard = true;
	row->operation = request->key;
	row->scope = request->scope;
	row->subject = request->subject;
	row->policy_version = request->version;
	memcpy(row->param_hash, request->param_hash, SHA256_LENGTH);
	memcpy(row->owner_hash, request->owner_hash, SHA256_LENGTH);
	row->downstream = request->policy->downstream;
	row->state = STATE_IN_FLIGHT;
	row->attempt = 1;
	row->acquired_at = GetCurrentTimestamp();
	row->lease_until = time_after(row->acquired_at, request->policy->repeat_guard);
	row->expires_at = row->retained_until = row->finished_at = row->reconciled_at = DT_NOEND;
}

/* Take a free guard over: compare-and-swap on the version that was judged. */
static Step
take_over(Request *request, Store *record, Sighting *sighting, const pg_uuid_t *key, Answer *answer)
{
	Claim		claim;
	Claim		row;

	claim_require_serializable(sighting);
	guard_row(request, key, &claim);
	row = claim_as_recorded(&claim);
	record_write(&row, store_row(record));
	switch (store_update(record, &sighting->tid, false))
	{
		case UPDATE_DONE:
			return STEP_ON;
		case UPDATE_MOVED:
			return STEP_AGAIN;
		case UPDATE_BUSY:
			break;
	}
	record_read(record->found, &claim);
	return is_for(request, &claim) ? answer_busy(request, InvalidTransactionId, answer) :
		answer_repeat(request, &claim.operation, answer);
}

/*
 * A guard row stands in the record.  One that is this operation's own, since it continues, is written anew as
 * well: another operation that found it free, or a purge, must not get past it at the same time.
 */
static Step
meet_guard(Request *request, Store *record, Sighting *sighting, const pg_uuid_t *key, Answer *answer)
{
	Claim		row;

	record_read(record->found, &row);
	if (!is_for(request, &row) && !request->confirmed_repeat &&
		still_guards(&row.operation, request->subject, request->policy->repeat_guard, answer))
		return answer_repeat(request, &row.operation, answer);
	return take_over(request, record, sighting, key, answer);
}

/*
 * Somebody else is claiming the guard right now; or, going by a version that is not new, perhaps a purge is
 * deleting it.
 */
static Step
meet_rival(Request *request, const Rival *rival, bool is_new, Answer *answer)
{
	Answer		named;

	if (request->confirmed_repeat)
		return STEP_ON;
	if (!rival->has_claim)
		return STEP_AGAIN;
	if (is_for(request, &rival->claim) ||
		(!is_new && !still_guards(&rival->claim.operation, request->subject, request->policy->repeat_guard, &named)))
		return answer_busy(request, rival->xid, answer);
	return answer_repeat(request, &rival->claim.operation, answer);
}

/* One try to claim the guard in the record, or where it has none, as a fresh claim. */
static Step
try_guard(Request *request, const pg_uuid_t *key, Answer *answer)
{
	Store		record;
	Sighting	sighting;
	Rival		rival = {0};
	Claim		row;
	Step		step;

	store_open(&record, TABLE_RECORD, RowExclusiveLock, false);
	store_find(&record, key, &sighting);
	if (sighting.rival_speculation != 0)
	{
		store_close(&record);
		store_await_insertion(sighting.rival, sighting.rival_speculation);
		return STEP_AGAIN;
	}
	if (TransactionIdIsValid(sighting.rival))
	{
		rival_read(&rival, &record, &sighting);
		step = meet_rival(request, &rival, sighting.rival_inserts, answer);
	}
	else if (sighting.found)
		step = meet_guard(request, &record, &sighting, key, answer);
	else
	{
		claim_require_serializable(&sighting);
		guard_row(request, key, &row);
		step = place_claim(&row, &record, &rival);
		if (step == STEP_ANSWERED)
			step = meet_rival(request, &rival, true, answer);
	}
	store_close(&record);
	return step;
}

/* This transaction holds the guard already, for this operation or for an equal one. */
static Step
meet_own_guard(Request *request, const pg_uuid_t *key, ItemPointer tid, Answer *answer)
{
	Store		fast;
	Claim		row;
	Step		step = STEP_ON;

	store_open(&fast, TABLE_FAST, RowExclusiveLock, false);
	if (!store_find_own(&fast, key, tid))
		claim_vanished();
	record_read(fast.found, &row);
	if (!is_for(request, &row))
	{
		if (!request->confirmed_repeat &&
			still_guards(&row.operation, request->subject, request->policy->repeat_guard, answer))
			step = answer_repeat(request, &row.operation, answer);
		else
		{
			guard_row(request, key, &row);
			record_write(&row, store_row(&fast));
			if (store_update(&fast, tid, true) != UPDATE_DONE)
				claim_vanished();
			xact_put(key, PLACE_FAST, &fast.row->tts_tid, SPOT_GUARD);
		}
	}
	store_close(&fast);
	return step;
}

/* An equal operation that came by the other door, named by its content. */
static bool
direct_call_guards(Request *request, const pg_uuid_t *content, Answer *answer)
{
	return memcmp(content, &request->key, UUID_LEN) != 0 && !request->confirmed_repeat &&
		still_guards(content, request->subject, request->policy->repeat_guard, answer);
}

Step
guard_pass(Request *request, Answer *answer)
{
	const MaterialPart *part;
	pg_uuid_t	key;
	pg_uuid_t	content;
	ItemPointerData tid;

	if (request->policy->repeat_guard == 0 || request->door == DOOR_CLIENT)
		return STEP_ON;
	if (!policy_version(request->scope.data, request->scope.length, request->version, &part) ||
		!guard_key(request->scope, request->subject, request->params, part, &key, &content))
		return STEP_ON;
	if (direct_call_guards(request, &content, answer))
		return answer_repeat(request, &content, answer);
	if (xact_place(&key, &tid) == PLACE_FAST)
		return meet_own_guard(request, &key, &tid, answer);
	return try_guard(request, &key, answer);
}

bool
guard_look(Span scope, Span subject, Jsonb *params, const MaterialPart *part, int64 guard, Answer *answer)
{
	pg_uuid_t	key;
	pg_uuid_t	operation;
	bool		guarded;

	if (guard == 0 || !guard_key(scope, subject, params, part, &key, &operation))
		return false;
	guarded = still_guards(&operation, subject, guard, answer) ||
		(claim_guarded_operation(&key, &operation) && still_guards(&operation, subject, guard, answer));
	if (guarded)
	{
		answer->outcome = OUTCOME_REPEAT;
		answer->replayed = false;
		answer->has_key = true;
		answer->key = operation;
	}
	return guarded;
}

void
guard_move_to_record(const pg_uuid_t *key, ItemPointer tid)
{
	Store		fast;
	Store		record;
	Claim		claim;
	ItemPointerData operation_tid;

	store_open(&fast, TABLE_FAST, RowExclusiveLock, false);
	store_open(&record, TABLE_RECORD, RowExclusiveLock, false);
	if (!store_find_own(&fast, key, tid))
		claim_vanished();
	record_read(fast.found, &claim);
	if (xact_place(&claim.operation, &operation_tid) != PLACE_NONE)
	{
		Claim		row = claim_as_recorded(&claim);

		record_write(&row, store_row(&record));
		claim_insert_record(&record);
	}
	if (!store_delete(&fast, tid))
		claim_vanished();
	store_close(&record);
	store_close(&fast);
}
