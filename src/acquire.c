/*
 * acquire.c: idem_acquire and idem_acquire_direct.
 *
 * The record is probed, state.c decides, and what is to be written is written: a fresh claim by place.c, any other
 * by compare-and-swap on the version that was judged.  When something has moved meanwhile, all of it is done again.
 */
#include "compat.h"

#include "access/xlog.h"
#include "miscadmin.h"
#include "utils/inval.h"
#include "utils/timestamp.h"

#include "acquire.h"
#include "alert.h"
#include "binding.h"
#include "content.h"
#include "guard.h"
#include "place.h"
#include "stat.h"
#include "wait.h"
#include "xact.h"

PG_FUNCTION_INFO_V1(idem_acquire);
PG_FUNCTION_INFO_V1(idem_acquire_direct);

/* ----- answers ----- */

/* Somebody is at work: here is what their row says, where there is one; rival: their transaction, if it is open. */
static Step
answer_in_flight(Request *request, TupleTableSlot *row, TransactionId rival, Answer *answer)
{
	Claim		claim;

	answer_init_in_flight(answer, &request->key, request->scope, request->subject, rival);
	if (row != NULL && !TupIsNull(row))
	{
		record_read(row, &claim);
		answer_add_claim(answer, &claim);
	}
	return STEP_ANSWERED;
}

static Step
answer_granted(Request *request, const Claim *claim, bool replayed, Answer *answer)
{
	answer_init(answer, OUTCOME_ACQUIRED, request->scope, request->subject);
	answer_add_claim(answer, claim);
	answer->has_owner = true;
	answer->owner = request->owner;
	answer->replayed = replayed;
	return STEP_ANSWERED;
}

/* Are the caller's parameters the ones the record was made with, under the lists it was made under? */
static bool
same_parameters(Request *request, const Claim *claim)
{
	const MaterialPart *part;
	uint8		hash[SHA256_LENGTH];

	/* a content key is made from the parameters, whatever lists they were read under */
	if (request->door == DOOR_CONTENT)
		return true;
	if (claim->policy_version == request->version)
		return !request->immaterial && memcmp(claim->param_hash, request->param_hash, SHA256_LENGTH) == 0;
	return request->door == DOOR_CLIENT &&
		policy_version(claim->scope.data, claim->scope.length, claim->policy_version, &part) &&
		canonical_hash(request->params, part, hash) &&
		memcmp(claim->param_hash, hash, SHA256_LENGTH) == 0;
}

static Step
refuse_parameters(Request *request, Answer *answer)
{
	AlertDetail detail = {.call = request->function, .holder = request->holder};

	alert_raise(ALERT_PARAMETER, &request->key, request->scope, request->subject, &detail);
	answer_init(answer, OUTCOME_PARAM_MISMATCH, request->scope, request->subject);
	return STEP_ANSWERED;
}

/* The claim is this transaction's own and still open: only its token gets it again. */
static Step
answer_own(Request *request, Store *store, Answer *answer)
{
	Claim		claim;

	record_read(store->found, &claim);
	if (!same_parameters(request, &claim))
		return refuse_parameters(request, answer);
	if (request->owner_given && memcmp(claim.owner_hash, request->owner_hash, SHA256_LENGTH) == 0)
		return answer_granted(request, &claim, true, answer);
	(void) answer_in_flight(request, store->found, InvalidTransactionId, answer);
	answer->is_own = true;
	return STEP_ANSWERED;
}

static Step
answer_own_fast(Request *request, ItemPointer tid, Answer *answer)
{
	Store		fast;
	Step		step;

	store_open(&fast, TABLE_FAST, RowExclusiveLock, false);
	if (!store_find_own(&fast, &request->key, tid))
		claim_vanished();
	step = answer_own(request, &fast, answer);
	store_close(&fast);
	return step;
}

/* ----- the grant ----- */

/* What policy forbids is judged here alone, so that an honest replay is never refused by a policy's change. */
static void
require_policy_allows(Request *request)
{
	const Policy *policy = request->policy;
	bool		by_fingerprint = request->door == DOOR_FINGERPRINT;

	if (policy->strict)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("the scope has no policy"),
				 errdetail("The policy \"*\" is disabled, so that every scope needs one of its own."),
				 errhint("Insert a row for the scope into idem_policy.")));
	if (!policy->enabled)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("the scope is disabled"),
				 errhint("Set \"enabled\" in its row of idem_policy.")));
	if (policy->entry == (by_fingerprint ? ENTRY_DIRECT : ENTRY_FINGERPRINT))
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("the scope does not admit %s", by_fingerprint ? "fingerprints" : "direct calls"),
				 errdetail("One operation must not come in by two doors with two keys."),
				 errhint("Use %s, or change \"entry\" in the scope's row of idem_policy.",
						 by_fingerprint ? "idem_acquire_direct()" : "idem_sign() and idem_acquire()")));
}

static bool
grant_is_possible(Request *request)
{
	const Policy *policy = request->policy;
	Entry		other_door = request->door == DOOR_FINGERPRINT ? ENTRY_DIRECT : ENTRY_FINGERPRINT;

	return !policy->strict && policy->enabled && policy->entry != other_door &&
		!XactReadOnly && !TransactionStartedDuringRecovery();
}

/* A grant will be written: may it be? */
static void
require_grant(Request *request, const Sighting *sighting)
{
	require_policy_allows(request);
	request_need_owner(request);
	PreventCommandIfReadOnly(request->function);
	PreventCommandDuringRecovery(request->function);
	claim_require_serializable(sighting);
}

/* A new grant on the claim: this caller's, from now. */
static void
grant(Request *request, Claim *claim, int32 attempt, TimestampTz now)
{
	claim->state = STATE_IN_FLIGHT;
	claim->attempt = attempt;
	claim->acquired_at = now;
	claim->lease_until = time_after(now, request->policy->in_flight_ttl);
	claim->retained_until = DT_NOEND;
	claim->finished_at = DT_NOEND;
	memcpy(claim->owner_hash, request->owner_hash, SHA256_LENGTH);
	claim->holder = request->holder;
	claim->trace_id = request->trace_id;
	claim->result = NULL;
	claim->result_ref = (Span) {NULL, 0};
}

/* A first attempt's claim. */
static void
fresh_claim(Request *request, Claim *claim, TimestampTz now)
{
	if (request->immaterial)
		request_refuse_immaterial();
	memset(claim, 0, sizeof(*claim));
	claim->key = request->key;
	claim->scope = request->scope;
	claim->subject = request->subject;
	claim->policy_version = request->version;
	memcpy(claim->param_hash, request->param_hash, SHA256_LENGTH);
	claim->downstream = request->policy->downstream;
	claim->expires_at = request->expires_at;
	claim->reconciled_at = DT_NOEND;
	grant(request, claim, 1, now);
}

static Step
answer_rival(Request *request, const Rival *rival, Answer *answer)
{
	answer_init_in_flight(answer, &request->key, request->scope, request->subject, rival->xid);
	if (rival->has_claim)
		answer_add_claim(answer, &rival->claim);
	return STEP_ANSWERED;
}

static Step
start(Request *request, Store *record, TimestampTz now, Answer *answer)
{
	Claim		claim;
	Rival		rival = {0};
	Step		step;

	fresh_claim(request, &claim, now);
	step = place_claim(&claim, record, &rival);
	if (step == STEP_ANSWERED)
		step = answer_rival(request, &rival, answer);
	if (step != STEP_ON)
	{
		guard_withdraw(request);
		return step;
	}
	if (request->door == DOOR_CONTENT)
		content_require_alone(request);
	return answer_granted(request, &claim, false, answer);
}

/* Tell the operators of a claim as it was found. */
static void
tell_of(AlertKind kind, Request *request, const Claim *claim)
{
	AlertDetail detail = {
		.call = request->function,
		.holder = span_copy(claim->holder),
		.attempt = claim->attempt
	};

	alert_raise(kind, &request->key, request->scope, request->subject, &detail);
}

/*
 * The hashes of the tokens that held the operation before, by their beginnings: those already on record and the one
 * that a new grant replaces, so that a holder that comes back late is told from somebody who never was one.
 */
static Span
former_owners(const Claim *before)
{
	Span		kept = before->former_owners;
	size_t		most = (size_t) (FORMER_OWNERS - 1) * FORMER_OWNER_LENGTH;
	size_t		passed = kept.length > most ? kept.length - most : 0;
	size_t		length = kept.length - passed;
	char	   *owners = palloc(length + FORMER_OWNER_LENGTH);

	if (length > 0)
		memcpy(owners, kept.data + passed, length);
	memcpy(owners + length, before->owner_hash, FORMER_OWNER_LENGTH);
	return (Span) {owners, length + FORMER_OWNER_LENGTH};
}

/* Grant on a row that is there already: compare-and-swap on the version that was judged. */
static Step
resume(Request *request, Store *record, Sighting *sighting, const Claim *before, Action action,
	   TimestampTz now, Answer *answer)
{
	Claim		claim;

	if (action == ACTION_START)
		fresh_claim(request, &claim, now);
	else
	{
		claim = *before;
		grant(request, &claim, before->attempt + 1, now);
	}
	claim.former_owners = former_owners(before);
	record_write(&claim, store_row(record));
	switch (store_update(record, &sighting->tid, false))
	{
		case UPDATE_MOVED:
			guard_withdraw(request);
			return STEP_AGAIN;
		case UPDATE_BUSY:
			guard_withdraw(request);
			return answer_in_flight(request, record->found, InvalidTransactionId, answer);
		case UPDATE_DONE:
			break;
	}
	xact_put(&request->key, PLACE_RECORD, &record->row->tts_tid, claim_spot_kind(&claim));
	xact_changed(&request->key);
	if (request->door == DOOR_CONTENT)
		content_require_alone(request);
	if (action == ACTION_TAKE_OVER)
	{
		stat_extra(STAT_TAKEOVER, request->scope, 1);
		tell_of(ALERT_TAKEOVER, request, before);
	}
	return answer_granted(request, &claim, false, answer);
}

/* ----- what stands in the record ----- */

/* Nothing is written: a replay, somebody at work, or nobody knows. */
static Step
answer_standing(Request *request, const Claim *claim, Outcome outcome, Answer *answer)
{
	if (outcome == OUTCOME_ACQUIRED)
	{
		xact_confirm();
		return answer_granted(request, claim, true, answer);
	}
	answer_init(answer, outcome, request->scope, request->subject);
	answer_add_claim(answer, claim);
	if (outcome == OUTCOME_RECONCILE)
		tell_of(ALERT_STUCK, request, claim);
	return STEP_ANSWERED;
}

static void
refuse_owner_token(void)
{
	ereport(ERROR,
			(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
			 errmsg("the owner token was used for an earlier attempt"),
			 errhint("Bring a fresh UUID for each attempt, or none.")));
}

/* A version in force, and perhaps somebody who is changing it. */
static Step
meet_record(Request *request, Store *record, Sighting *sighting, TimestampTz now, Answer *answer)
{
	Claim		claim;
	Decision	decision;
	unsigned	facts;
	Step		step;

	record_read(record->found, &claim);
	facts = claim_facts(&claim, now, request->owner_given ? request->owner_hash : NULL);
	if (now >= request->expires_at)
		facts |= FACT_EXPIRED;
	decision = state_decide(claim.state, EVENT_ACQUIRE, facts);
	if (!(claim.state != STATE_IN_FLIGHT && (facts & FACT_LAPSED)) && !same_parameters(request, &claim))
		return refuse_parameters(request, answer);
	if (XactIsoLevel == XACT_SERIALIZABLE)
		claim_require_serializable(sighting);
	if (TransactionIdIsValid(sighting->rival) &&
		decision.outcome != OUTCOME_DONE && decision.outcome != OUTCOME_FAILED)
		return answer_in_flight(request, record->found, sighting->rival, answer);
	switch (decision.action)
	{
		case ACTION_REFUSE_TOKEN:
			refuse_owner_token();
			return STEP_AGAIN;	/* not reached */
		case ACTION_START:
		case ACTION_CONTINUE:
		case ACTION_TAKE_OVER:
			require_grant(request, sighting);
			step = guard_pass(request, answer);
			if (step != STEP_ON)
				return step;
			return resume(request, record, sighting, &claim, decision.action, now, answer);
		default:
			return answer_standing(request, &claim, decision.outcome, answer);
	}
}

/* No grant can be made; but is somebody at work?  As in a status, the fast table is asked before the record. */
static Step
look_for_rival(Request *request, Store *record, Answer *answer)
{
	Rival		rival = {0};
	Sighting	sighting;
	Step		step = find_fast_rival(&request->key, &rival);

	if (step == STEP_ANSWERED)
		return answer_rival(request, &rival, answer);
	if (step == STEP_AGAIN)
		return step;
	store_find(record, &request->key, &sighting);
	return sighting.found || TransactionIdIsValid(sighting.rival) ? STEP_AGAIN : STEP_ON;
}

/* Nothing in force. */
static Step
meet_nothing(Request *request, Store *record, Sighting *sighting, TimestampTz now, Answer *answer)
{
	unsigned	facts = now >= request->expires_at ? FACT_EXPIRED : 0;
	Decision	decision = state_decide(STATE_NONE, EVENT_ACQUIRE, facts);
	Step		step;

	if (sighting->rival_speculation != 0)
	{
		store_await_insertion(sighting->rival, sighting->rival_speculation);
		return STEP_AGAIN;
	}
	if (TransactionIdIsValid(sighting->rival))
		return answer_in_flight(request, sighting->rival_inserts ? record->rival : NULL, sighting->rival, answer);
	if (decision.action == ACTION_KEEP || !grant_is_possible(request))
	{
		step = look_for_rival(request, record, answer);
		if (step != STEP_ON)
			return step;
		if (decision.action == ACTION_KEEP)
		{
			answer_init(answer, decision.outcome, request->scope, request->subject);
			return STEP_ANSWERED;
		}
	}
	require_grant(request, sighting);
	step = guard_pass(request, answer);
	return step == STEP_ON ? start(request, record, now, answer) : step;
}

/* Has what the request rests on changed since it was last looked at? */
static bool
is_stale(const Request *request)
{
	return policy_changed() || (request->door == DOOR_FINGERPRINT && policy_secrets_changed());
}

/* One try: probe, decide, act. */
static Step
try_acquire(Request *request, Answer *answer)
{
	ItemPointerData tid;
	Place		place = xact_place(&request->key, &tid);
	TimestampTz now;
	Store		record;
	Sighting	sighting;
	Step		step;

	if (place == PLACE_FAST)
		return answer_own_fast(request, &tid, answer);
	store_open(&record, TABLE_RECORD, RowExclusiveLock, false);
	/* the table's lock may have been waited for, or what the last try met */
	if (is_stale(request))
	{
		store_close(&record);
		return request_refresh(request, answer) ? STEP_AGAIN : STEP_ANSWERED;
	}
	store_find(&record, &request->key, &sighting);
	now = GetCurrentTimestamp();
	if (place == PLACE_RECORD && !sighting.found)
		claim_vanished();
	if (place == PLACE_RECORD)
		step = answer_own(request, &record, answer);
	else if (sighting.found)
		step = meet_record(request, &record, &sighting, now, answer);
	else
		step = meet_nothing(request, &record, &sighting, now, answer);
	store_close(&record);
	return step;
}

/* Somebody is at work, on the operation or on an equal one. */
static bool
is_worth_waiting(const Answer *answer)
{
	return answer->outcome == OUTCOME_IN_FLIGHT ||
		(answer->outcome == OUTCOME_REPEAT && TransactionIdIsValid(answer->rival));
}

void
acquire(Request *request, Answer *answer)
{
	Wait		wait;
	bool		again = true;

	wait_begin(&wait, request->wait);
	while (again)
	{
		while (try_acquire(request, answer) == STEP_AGAIN)
		{
			CHECK_FOR_INTERRUPTS();
			AcceptInvalidationMessages();
			request_choose_again(request);
		}
		if (!is_worth_waiting(answer))
			break;				/* a grant that was made stands */
		again = wait_for_change(&wait, answer);
		if (wait.joined && !request_refresh(request, answer))
			again = false;
	}
	wait_end(&wait);
	answer->joined = wait.joined && answer->outcome != OUTCOME_ACQUIRED;
}

/* ----- SQL ----- */

/* The arguments that both functions have; n is the first after those that name the operation. */
static void
read_arguments(FunctionCallInfo fcinfo, int subject, int n, Request *request)
{
	policy_begin();
	stat_begin(STAT_ACQUIRE);
	memset(request, 0, sizeof(*request));
	request->subject = binding_subject(fcinfo, subject);
	request->scope = args_label(fcinfo, subject + 1, "scope");
	stat_scope(request->scope);
	request->params = args_params(fcinfo, subject + 2);
	request->wait = args_interval(fcinfo, n, "wait", true);
	request_owner(request, args_optional_uuid(fcinfo, n + 1));
	request->holder = args_optional_label(fcinfo, n + 2, "holder");
	request->trace_id = args_optional_label(fcinfo, n + 3, "trace_id");
	request->policy = policy_of(request->scope.data, request->scope.length);
}

static Datum
finish(const Answer *answer)
{
	bool		is_grant = answer->outcome == OUTCOME_ACQUIRED && !answer->replayed;

	stat_end_outcome(answer->outcome, answer->joined, is_grant);
	return answer_datum(answer);
}

/*
 * idem_acquire(fingerprint text, subject text, scope text, params jsonb, wait interval DEFAULT '0',
 *		owner uuid DEFAULT NULL, holder text DEFAULT NULL, trace_id text DEFAULT NULL) RETURNS idem_claim
 */
Datum
idem_acquire(PG_FUNCTION_ARGS)
{
	Request		request;
	Answer		answer;

	read_arguments(fcinfo, 1, 4, &request);
	request.function = "idem_acquire()";
	if (request_by_fingerprint(&request, args_token(fcinfo, 0), &answer))
		acquire(&request, &answer);
	PG_RETURN_DATUM(finish(&answer));
}

/*
 * idem_acquire_direct(subject text, scope text, params jsonb, client_key text DEFAULT NULL,
 *		wait interval DEFAULT '0', owner uuid DEFAULT NULL, holder text DEFAULT NULL, trace_id text DEFAULT NULL,
 *		confirm_repeat boolean DEFAULT false) RETURNS idem_claim
 */
Datum
idem_acquire_direct(PG_FUNCTION_ARGS)
{
	Request		request;
	Answer		answer;

	read_arguments(fcinfo, 0, 4, &request);
	request.function = "idem_acquire_direct()";
	request.confirmed_repeat = args_bool(fcinfo, 8, "confirm_repeat");
	request_direct(&request, args_optional_label(fcinfo, 3, "client_key"));
	acquire(&request, &answer);
	PG_RETURN_DATUM(finish(&answer));
}
