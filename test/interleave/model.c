/*
 * model.c: see model.h.
 */
#include <stdio.h>
#include <string.h>

#include "model.h"

static const char *const names[OP_KINDS] = {
	[OP_ACQUIRE] = "acquire",
	[OP_AGAIN] = "acquire again",
	[OP_COMMIT] = "commit",
	[OP_COMMIT_OTHER] = "commit other",
	[OP_FAIL] = "fail",
	[OP_FAIL_RETRYABLE] = "fail retryable",
	[OP_RELEASE] = "release",
	[OP_RENEW] = "renew",
	[OP_STATUS] = "status",
	[OP_DONE] = "verdict DONE",
	[OP_FAILED] = "verdict FAILED",
	[OP_RETRY] = "verdict RETRY",
	[OP_DONE_FORCED] = "forced DONE",
	[OP_FAILED_FORCED] = "forced FAILED",
	[OP_RETRY_FORCED] = "forced RETRY",
	[OP_PURGE] = "purge",
	[OP_LEASE_OVER] = "lease over",
	[OP_LAPSE] = "lapse",
	[OP_EXPIRE] = "expire",
	[OP_UNDO] = "rollback to savepoint",
	[OP_END] = "COMMIT",
	[OP_ROLLBACK] = "ROLLBACK",
};

static const char *const outcomes[OUTCOME_COUNT] = {
	"ACQUIRED", "IN_FLIGHT", "DONE", "FAILED", "RECONCILE", "PARAM_MISMATCH", "SUBJECT_MISMATCH",
	"SCOPE_MISMATCH", "EXPIRED", "INVALID", "REPEAT", "NONE", "UNKNOWN", "RETRYABLE"
};

static const char *const acks[ACK_COUNT] = {"OK", "NOT_OWNER", "ALREADY", "NONE"};

const char *
op_name(OpKind kind)
{
	return names[kind];
}

bool
op_is_actors(OpKind kind)
{
	return kind < FIRST_OF_OPERATOR;
}

void
world_init(World *world, bool deduplicates)
{
	memset(world, 0, sizeof(*world));
	world->deduplicates = deduplicates;
	for (int i = 0; i < 2; i++)
	{
		world->token[i] = world->fresh[i] = i * TOKENS_EACH;
		world->snapshot[i] = -1;
	}
}

/* ----- what an op is to the transition table ----- */

static Event
event_of(OpKind kind)
{
	static const Event events[OP_KINDS] = {
		[OP_ACQUIRE] = EVENT_ACQUIRE,
		[OP_AGAIN] = EVENT_ACQUIRE,
		[OP_COMMIT] = EVENT_COMMIT,
		[OP_COMMIT_OTHER] = EVENT_COMMIT,
		[OP_FAIL] = EVENT_FAIL,
		[OP_FAIL_RETRYABLE] = EVENT_FAIL_RETRYABLE,
		[OP_RELEASE] = EVENT_RELEASE,
		[OP_RENEW] = EVENT_RENEW,
		[OP_STATUS] = EVENT_STATUS,
		[OP_DONE] = EVENT_VERDICT_DONE,
		[OP_FAILED] = EVENT_VERDICT_FAILED,
		[OP_RETRY] = EVENT_VERDICT_RETRY,
		[OP_DONE_FORCED] = EVENT_VERDICT_DONE,
		[OP_FAILED_FORCED] = EVENT_VERDICT_FAILED,
		[OP_RETRY_FORCED] = EVENT_VERDICT_RETRY,
		[OP_PURGE] = EVENT_PURGE,
	};

	return events[kind];
}

/* The result or reason that the call brings. */
static int
result_of(OpKind kind)
{
	switch (kind)
	{
		case OP_COMMIT_OTHER:
			return 2;
		case OP_RELEASE:
		case OP_RENEW:
		case OP_RETRY:
		case OP_RETRY_FORCED:
			return 0;
		default:
			return 1;
	}
}

static bool
is_verdict(OpKind kind)
{
	return kind >= OP_DONE && kind <= OP_RETRY_FORCED;
}

static bool
asks(OpKind kind)
{
	return kind == OP_ACQUIRE || kind == OP_AGAIN || kind == OP_STATUS;
}

static bool
acquires(OpKind kind)
{
	return kind == OP_ACQUIRE || kind == OP_AGAIN;
}

static unsigned
facts_of(const World *world, const Record *record, Op op)
{
	unsigned	facts = 0;
	bool		holder = op.actor != OPERATOR && op.kind != OP_STATUS && op.kind != OP_PURGE && !is_verdict(op.kind);

	if (world->expired)
		facts |= FACT_EXPIRED;
	if (op.kind >= OP_DONE_FORCED && op.kind <= OP_RETRY_FORCED)
		facts |= FACT_FORCED;
	if (!record->exists)
		return facts;
	if (record->lapsed)
		facts |= FACT_LAPSED;
	if (record->lease_over)
		facts |= FACT_LEASE_OVER;
	if (world->deduplicates)
		facts |= FACT_DEDUPLICATES;
	if (holder && record->token == world->token[op.actor] && (acquires(op.kind) || !record->by_verdict))
		facts |= FACT_OWNER;
	if (record->result == result_of(op.kind))
		facts |= FACT_SAME_RESULT;
	return facts;
}

/* What the record is after a decision; returns whether it was written. */
static bool
apply(const World *world, Record *record, Op op, const Decision *decision)
{
	switch (decision->action)
	{
		case ACTION_KEEP:
		case ACTION_REFUSE_TOKEN:
		case ACTION_REFUSE_VERDICT:
			return false;
		case ACTION_START:
			*record = (Record) {true, STATE_IN_FLIGHT, world->token[op.actor], 1, 0, false, false, false};
			return true;
		case ACTION_CONTINUE:
		case ACTION_TAKE_OVER:
			*record = (Record) {
				true, STATE_IN_FLIGHT, world->token[op.actor], record->attempt + 1, 0, false, false, false
			};
			return true;
		case ACTION_EXTEND:
			record->lease_over = false;
			return true;
		case ACTION_DELETE:
			*record = (Record) {0};
			return true;
		case ACTION_FINISH:
		case ACTION_RELEASE:
			record->state = decision->next;
			record->result = result_of(op.kind);
			record->lapsed = false;
			record->by_verdict = is_verdict(op.kind);
			return true;
	}
	return false;
}

/* ----- answers ----- */

static void
tell_number(char *text, bool known, int number)
{
	if (known)
		sprintf(text, "%d", number);
	else
		text[0] = '\0';
}

static void
tell_outcome(char *answer, Outcome outcome, const Record *shown, bool replayed, bool owner)
{
	char		attempt[16];
	char		result[16];

	tell_number(attempt, shown != NULL, shown == NULL ? 0 : shown->attempt);
	tell_number(result, shown != NULL && shown->state != STATE_IN_FLIGHT && shown->result > 0,
				shown == NULL ? 0 : shown->result);
	snprintf(answer, ANSWER_LENGTH, "%s|%s|%s|%s|%s", outcomes[outcome], attempt, replayed ? "t" : "f", result,
			 owner ? "t" : "");
}

/* After: the record as the decision leaves it. */
static void
tell_answer(char *answer, Op op, const Decision *decision, const Record *after)
{
	Outcome		outcome = decision->outcome;
	bool		stands = decision->action == ACTION_KEEP;

	if (decision->action == ACTION_REFUSE_TOKEN)
		strcpy(answer, "22023");
	else if (decision->action == ACTION_REFUSE_VERDICT)
		strcpy(answer, "55000");
	else if (op.kind == OP_PURGE)
		strcpy(answer, decision->action == ACTION_DELETE ? "1" : "0");
	else if (!asks(op.kind))
		strcpy(answer, acks[decision->ack]);
	else if (outcome == OUTCOME_NONE || outcome == OUTCOME_EXPIRED)
		tell_outcome(answer, outcome, NULL, false, false);
	else
		tell_outcome(answer, outcome, after,
					 stands && (outcome == OUTCOME_ACQUIRED || outcome == OUTCOME_DONE || outcome == OUTCOME_FAILED),
					 outcome == OUTCOME_ACQUIRED);
}

void
tell_record(const Record *record, char *text)
{
	char		result[16];

	tell_number(result, record->result > 0, record->result);
	if (!record->exists)
		strcpy(text, "no record");
	else
		snprintf(text, ANSWER_LENGTH, "%c|%d|%s|%d|%s|%s|%s", record->state, record->attempt, result, record->token,
				 record->state == STATE_IN_FLIGHT && record->lease_over ? "over" : "",
				 record->lapsed ? "lapsed" : "", record->by_verdict ? "verdict" : "");
}

/* ----- time ----- */

static bool
pass_time(World *world, OpKind kind, char *answer)
{
	Record	   *record = &world->record;

	answer[0] = '\0';
	switch (kind)
	{
		case OP_LEASE_OVER:
			if (!record->exists || record->state != STATE_IN_FLIGHT || record->lease_over)
				return false;
			record->lease_over = true;
			return true;
		case OP_LAPSE:
			if (!record->exists || record->state == STATE_IN_FLIGHT || record->lapsed)
				return false;
			record->lapsed = true;
			return true;
		default:
			world->expired = true;
			return false;
	}
}

/* ----- one call ----- */

/* The token that an acquire brings; it is the actor's from now on, whatever the answer. */
static void
take_token(World *world, Op op)
{
	if (op.kind == OP_ACQUIRE)
		world->token[op.actor] = ++world->fresh[op.actor];
}

static Decision
decide(World *world, const Record *record, Op op)
{
	return state_decide(record->exists ? record->state : STATE_NONE, event_of(op.kind), facts_of(world, record, op));
}

bool
step_alone(World *world, Op op, char *answer)
{
	Decision	decision;
	int			token = op_is_actors(op.kind) ? world->token[op.actor] : 0;
	bool		written;

	if (op.kind >= FIRST_OF_CLOCK)
		return pass_time(world, op.kind, answer);
	take_token(world, op);
	if (op_is_actors(op.kind))
		world->brought = world->token[op.actor];
	decision = decide(world, &world->record, op);
	written = apply(world, &world->record, op, &decision);
	tell_answer(answer, op, &decision, &world->record);
	/* who is not granted goes on with the token it had */
	if (op.kind == OP_ACQUIRE && !written)
		world->token[op.actor] = token;
	return written;
}

/* ----- within transactions ----- */

static void
tell_in_flight(char *answer)
{
	snprintf(answer, ANSWER_LENGTH, "%s||f||", outcomes[OUTCOME_IN_FLIGHT]);
}

/* The other's transaction has changed the record, or holds a claim that nobody sees yet. */
static Turn
meet_change_of_other(World *world, Op op, char *answer)
{
	Decision	decision;

	if (op.kind == OP_PURGE)
	{
		/* what is locked is left to the next purge */
		strcpy(answer, "0");
		return TURN_ANSWERED;
	}
	if (!asks(op.kind))
	{
		if (world->record.exists)
			return TURN_WAITS;
		strcpy(answer, acks[ACK_NONE]);
		return TURN_ANSWERED;
	}
	decision = decide(world, &world->record, op);
	if (decision.outcome == OUTCOME_DONE || decision.outcome == OUTCOME_FAILED)
		tell_answer(answer, op, &decision, &world->record);
	else
		tell_in_flight(answer);
	return TURN_ANSWERED;
}

/* The claim is this transaction's own and still open: the clock does not matter, only the token does. */
static bool
meet_own_claim(const World *world, const Change *own, Op op, char *answer)
{
	if (is_verdict(op.kind) && own->unseen)
	{
		strcpy(answer, acks[ACK_NONE]);
		return true;
	}
	if (!asks(op.kind))
		return false;
	if (op.kind == OP_AGAIN && own->record.token == world->token[op.actor])
		tell_outcome(answer, OUTCOME_ACQUIRED, &own->record, true, true);
	else
		tell_in_flight(answer);
	return true;
}

/* REPEATABLE READ: would the call change a version that its snapshot does not show, or miss one that it does? */
static bool
conflicts(const World *world, Op op, const Decision *decision, char *answer)
{
	if (!world->repeatable || world->change[op.actor].made || world->snapshot[op.actor] == world->commits)
		return false;
	if (op.kind == OP_PURGE)
	{
		strcpy(answer, world->lapsed_then[op.actor] ? "40001" : "0");
		return true;
	}
	if (decision->action == ACTION_KEEP || decision->action == ACTION_REFUSE_TOKEN ||
		decision->action == ACTION_REFUSE_VERDICT)
		return false;
	strcpy(answer, "40001");
	return true;
}

static void
note_change(Change *own, const Record *before, const Record *after, Action action)
{
	own->made = true;
	own->record = *after;
	if (action == ACTION_START || action == ACTION_CONTINUE || action == ACTION_TAKE_OVER)
	{
		own->open = true;
		own->unseen = !before->exists;
	}
	else if (action != ACTION_EXTEND)
	{
		/* released before anybody saw it: nothing is left */
		if (own->unseen && action == ACTION_RELEASE)
			own->record = (Record) {0};
		own->open = own->unseen = false;
	}
}

static Turn
call_within(World *world, Op op, char *answer)
{
	Change	   *own = &world->change[op.actor];
	Record		before;
	Record		after;
	Decision	decision;

	if (world->change[1 - op.actor].made)
		return meet_change_of_other(world, op, answer);
	if (own->open && meet_own_claim(world, own, op, answer))
		return TURN_ANSWERED;
	before = after = own->made ? own->record : world->record;
	decision = decide(world, &before, op);
	if (conflicts(world, op, &decision, answer))
		return TURN_ANSWERED;
	if (apply(world, &after, op, &decision))
		note_change(own, &before, &after, decision.action);
	tell_answer(answer, op, &decision, &after);
	return TURN_ANSWERED;
}

static void
end_transaction(World *world, Op op)
{
	Change	   *own = &world->change[op.actor];

	if (own->made && op.kind == OP_END)
	{
		if (world->record.exists || own->record.exists)
			world->commits++;
		world->record = own->record;
	}
	*own = world->saved[op.actor] = (Change) {0};
	world->snapshot[op.actor] = -1;
}

static void
take_snapshot(World *world, int actor)
{
	if (world->snapshot[actor] >= 0)
		return;
	world->snapshot[actor] = world->commits;
	world->lapsed_then[actor] = world->record.exists && world->record.lapsed;
}

Turn
step_within(World *world, Op op, char *answer)
{
	Change	   *own = &world->change[op.actor];
	int			token = world->token[op.actor];
	Turn		turn;

	answer[0] = '\0';
	if (op.kind == OP_END || op.kind == OP_ROLLBACK)
	{
		end_transaction(world, op);
		return TURN_ANSWERED;
	}
	if (op.kind == OP_UNDO)
	{
		*own = world->saved[op.actor];
		return TURN_ANSWERED;
	}
	take_snapshot(world, op.actor);
	take_token(world, op);
	world->brought = world->token[op.actor];
	world->saved[op.actor] = *own;
	turn = call_within(world, op, answer);
	if (op.kind == OP_ACQUIRE && !(own->open && own->record.token == world->brought))
		world->token[op.actor] = token;
	return turn;
}

/* ----- situations ----- */

static unsigned long
relation(const World *world, const Record *record)
{
	for (int i = 0; i < 2; i++)
		if (record->token == world->token[i])
			return i;
	return 2;
}

static unsigned long
record_situation(const World *world, const Record *record)
{
	unsigned long n;

	if (!record->exists)
		return 0;
	n = record->state & 0x1f;
	n = n * 3 + relation(world, record);
	n = n * 3 + record->result;
	n = n * 8 + (record->lease_over ? 4 : 0) + (record->lapsed ? 2 : 0) + (record->by_verdict ? 1 : 0);
	return n + 1;
}

unsigned long
world_situation(const World *world)
{
	unsigned long n = record_situation(world, &world->record) * 4 + (world->deduplicates ? 2 : 0) +
		(world->expired ? 1 : 0);

	for (int i = 0; i < 2; i++)
	{
		const Change *change = &world->change[i];

		if (change->made)
			n += (record_situation(world, &change->record) * 8 + i * 4 + (change->open ? 2 : 0) +
				  (change->unseen ? 1 : 0) + 8) << 18;
	}
	return n;
}
