/*
 * status.c: idem_status and idem_status_key.
 *
 * The fast table is read first and the record last: a claim moves from the one to the other, so one that is
 * missed in the first stands in the second.  An operation of another subject is passed over by its row's subject alone,
 * before its result is fetched: neither the answer nor what it costs tells how large that is.  What the fast table says is only that somebody is at work; the
 * record decides everything else.
 */
#include "compat.h"

#include "access/xlog.h"
#include "utils/timestamp.h"

#include "acquire.h"
#include "alert.h"
#include "binding.h"
#include "policy.h"
#include "stat.h"
#include "status.h"
#include "wait.h"
#include "xact.h"

PG_FUNCTION_INFO_V1(idem_status);
PG_FUNCTION_INFO_V1(idem_status_key);

/* The open claim of a row, in flight whatever its lease: its transaction is still open. */
static void
answer_open(Answer *answer, TupleTableSlot *row, TransactionId rival)
{
	Claim		claim;

	record_read(row, &claim);
	answer_init(answer, OUTCOME_IN_FLIGHT, span_copy(claim.scope), span_copy(claim.subject));
	answer->rival = rival;
	answer->is_own = !TransactionIdIsValid(rival);
	answer_add_claim(answer, &claim);
}

/* Is the key claimed in the fast table, by this transaction or another open one? */
static bool
look_up_fast(const pg_uuid_t *key, Span subject, Answer *answer)
{
	Store		fast;
	Sighting	sighting;
	bool		claimed;

	/* an unlogged table cannot be read on a standby, where it is empty anyway */
	if (TransactionStartedDuringRecovery() || !store_open(&fast, TABLE_FAST, AccessShareLock, true))
		return false;
	fast.filter = record_is_of_subject;
	fast.filter_arg = &subject;
	store_find(&fast, key, &sighting);
	claimed = sighting.found || (TransactionIdIsValid(sighting.rival) && sighting.rival_inserts);
	if (claimed)
		answer_open(answer, sighting.found ? fast.found : fast.rival, sighting.rival);
	store_close(&fast);
	return claimed;
}

/* The version in force, as an acquire without wait and token would judge it. */
static void
answer_committed(Answer *answer, TupleTableSlot *row, TimestampTz expires_at)
{
	TimestampTz now = GetCurrentTimestamp();
	ItemPointerData tid;
	Claim		claim;
	unsigned	facts;

	record_read(row, &claim);
	if (expires_at == DT_NOEND)
		expires_at = claim.expires_at;
	facts = claim_facts(&claim, now, NULL) | (now >= expires_at ? FACT_EXPIRED : 0);
	answer_init(answer, state_decide(claim.state, EVENT_STATUS, facts).outcome,
				span_copy(claim.scope), span_copy(claim.subject));
	if (xact_place(&claim.key, &tid) == PLACE_RECORD)
	{
		answer->outcome = OUTCOME_IN_FLIGHT;
		answer->is_own = true;
	}
	answer_add_claim(answer, &claim);
}

/* Would an acquire find somebody else at work, rather than what stands there? */
static bool
rival_goes_first(const Sighting *sighting, Outcome standing)
{
	if (!TransactionIdIsValid(sighting->rival))
		return false;
	return !sighting->found || !(standing == OUTCOME_DONE || standing == OUTCOME_FAILED);
}

/* What the record says; false where it has neither a version in force nor an uncommitted one. */
static bool
look_up_record(const pg_uuid_t *key, Span subject, TimestampTz expires_at, Answer *answer)
{
	Store		record;
	Sighting	sighting;
	bool		known;

	store_open(&record, TABLE_RECORD, AccessShareLock, false);
	record.filter = record_is_of_subject;
	record.filter_arg = &subject;
	store_find(&record, key, &sighting);
	if (XactIsoLevel == XACT_SERIALIZABLE)
		claim_require_serializable(&sighting);
	if (sighting.found)
		answer_committed(answer, record.found, expires_at);
	known = sighting.found;
	if (rival_goes_first(&sighting, known ? answer->outcome : OUTCOME_NONE))
	{
		known = true;
		answer_open(answer, sighting.rival_inserts ? record.rival : record.found, sighting.rival);
	}
	store_close(&record);
	return known;
}

void
claim_look_up(const pg_uuid_t *key, Span subject, TimestampTz expires_at, Answer *answer)
{
	Answer		open;
	bool		is_open = look_up_fast(key, subject, &open);

	if (look_up_record(key, subject, expires_at, answer))
		return;
	if (is_open)
		*answer = open;
	else
		answer_init(answer,
					TransactionStartedDuringRecovery() ? OUTCOME_UNKNOWN :
					GetCurrentTimestamp() >= expires_at ? OUTCOME_EXPIRED : OUTCOME_NONE,
					(Span) {NULL, 0}, (Span) {NULL, 0});
}

/* Does the token, if the call comes by one, still verify?  A table's lock may have been waited for, or a rival. */
static bool
token_holds(Span token)
{
	Fingerprint fingerprint;

	if (token.data == NULL || !policy_secrets_changed())
		return true;
	policy_begin();
	return fingerprint_read(token, &fingerprint);
}

/* The same, waiting while it is in flight. */
static void
look_up_waiting(const pg_uuid_t *key, Span token, Span subject, TimestampTz expires_at, int64 microseconds,
				Answer *answer)
{
	Wait		wait;
	bool		again;

	wait_begin(&wait, microseconds);
	do
	{
		claim_look_up(key, subject, expires_at, answer);
		again = answer->outcome == OUTCOME_IN_FLIGHT && wait_for_change(&wait, answer);
		if (wait.joined)
			policy_begin();
		if (!token_holds(token))
		{
			answer_init(answer, OUTCOME_INVALID, (Span) {NULL, 0}, subject);
			again = false;
		}
	} while (again);
	wait_end(&wait);
	answer->joined = wait.joined;
}

/* The same, with the caller's own scope and subject. */
static void
look_up_for(const pg_uuid_t *key, Span token, Span scope, Span subject, TimestampTz expires_at, int64 wait,
			Answer *answer)
{
	look_up_waiting(key, token, subject, expires_at, wait, answer);
	if (answer->outcome == OUTCOME_INVALID)
		return;
	if (answer->scope.data == NULL)
		answer->scope = scope;
	answer->subject = subject;
}

static Datum
finish(const Answer *answer)
{
	if (answer->scope.data != NULL)
		stat_scope(answer->scope);
	stat_end_outcome(answer->outcome, answer->joined, false);
	return answer_datum(answer);
}

/*
 * idem_status(fingerprint text, subject text, wait interval DEFAULT '0') RETURNS idem_claim
 *
 * What became of a fingerprint's operation.  Writes nothing; works on a standby.
 */
Datum
idem_status(PG_FUNCTION_ARGS)
{
	Span		none = {NULL, 0};
	Span		token;
	Span		subject;
	Fingerprint fingerprint;
	const MaterialPart *part;
	int64		wait;
	Answer		answer;

	policy_begin();
	stat_begin(STAT_STATUS);
	token = args_token(fcinfo, 0);
	subject = binding_subject(fcinfo, 1);
	wait = args_interval(fcinfo, 2, "wait", true);
	answer_init(&answer, OUTCOME_INVALID, none, subject);
	if (!fingerprint_read(token, &fingerprint))
		PG_RETURN_DATUM(finish(&answer));
	if (!span_equal((Span) {fingerprint.subject, fingerprint.subject_length}, subject))
	{
		AlertDetail detail = {.call = "idem_status", .subject = subject};

		alert_log(ALERT_SUBJECT, &fingerprint.nonce,
				  (Span) {fingerprint.scope, fingerprint.scope_length},
				  (Span) {fingerprint.subject, fingerprint.subject_length}, &detail);
		answer_init(&answer, OUTCOME_SUBJECT_MISMATCH, none, subject);
	}
	else if (policy_version(fingerprint.scope, fingerprint.scope_length, fingerprint.version, &part))
		look_up_for(&fingerprint.nonce, token, (Span) {fingerprint.scope, fingerprint.scope_length}, subject,
					fingerprint_expiry(&fingerprint), wait, &answer);
	PG_RETURN_DATUM(finish(&answer));
}

/*
 * idem_status_key(key uuid, subject text, wait interval DEFAULT '0') RETURNS idem_claim
 *
 * What became of the operation with a key; NONE for another subject's.  Writes nothing; works on a standby.
 */
Datum
idem_status_key(PG_FUNCTION_ARGS)
{
	Span		none = {NULL, 0};
	pg_uuid_t  *key;
	Span		subject;
	int64		wait;
	Answer		answer;

	policy_begin();
	stat_begin(STAT_STATUS);
	key = args_uuid(fcinfo, 0, "key");
	subject = binding_subject(fcinfo, 1);
	wait = args_interval(fcinfo, 2, "wait", true);
	look_up_for(key, none, none, subject, DT_NOEND, wait, &answer);
	PG_RETURN_DATUM(finish(&answer));
}
