/*
 * state.h: the transition table.  Pure: no table, no clock.  The only place that decides.
 *
 * Needs nothing of a server, so that a test can compile it alone.
 */
#ifndef IDEM_STATE_H
#define IDEM_STATE_H

/* The state of a record, stored as this letter. */
typedef enum State
{
	STATE_NONE = 0,				/* no record */
	STATE_IN_FLIGHT = 'I',
	STATE_DONE = 'D',
	STATE_FAILED = 'F',
	STATE_RELEASED = 'R'
} State;

/* What is asked of it. */
typedef enum Event
{
	EVENT_ACQUIRE,
	EVENT_STATUS,
	EVENT_COMMIT,
	EVENT_FAIL,
	EVENT_FAIL_RETRYABLE,
	EVENT_RELEASE,
	EVENT_RENEW,
	EVENT_VERDICT_DONE,
	EVENT_VERDICT_FAILED,
	EVENT_VERDICT_RETRY,
	EVENT_PURGE
} Event;

/* What is known when it is asked, as bits. */
typedef enum Fact
{
	FACT_LAPSED = 1 << 0,		/* the record's retention is over */
	FACT_LEASE_OVER = 1 << 1,	/* the clock has reached lease_until */
	FACT_DEDUPLICATES = 1 << 2, /* the downstream stored with the claim deduplicates on our key */
	FACT_EXPIRED = 1 << 3,		/* the clock has reached the fingerprint's time (never for direct calls) */
	FACT_OWNER = 1 << 4,		/* the caller's token is the one stored */
	FACT_SAME_RESULT = 1 << 5,	/* the caller's result or reason equals the one stored */
	FACT_FORCED = 1 << 6		/* an operator insists */
} Fact;

/* The values of the enum idem_outcome, in its order. */
typedef enum Outcome
{
	OUTCOME_ACQUIRED,
	OUTCOME_IN_FLIGHT,
	OUTCOME_DONE,
	OUTCOME_FAILED,
	OUTCOME_RECONCILE,
	OUTCOME_PARAM_MISMATCH,
	OUTCOME_SUBJECT_MISMATCH,
	OUTCOME_SCOPE_MISMATCH,
	OUTCOME_EXPIRED,
	OUTCOME_INVALID,
	OUTCOME_REPEAT,
	OUTCOME_NONE,
	OUTCOME_UNKNOWN,
	OUTCOME_RETRYABLE,
	OUTCOME_COUNT
} Outcome;

/* The values of the enum idem_ack, in its order. */
typedef enum Ack
{
	ACK_OK,
	ACK_NOT_OWNER,
	ACK_ALREADY,
	ACK_NONE,
	ACK_COUNT
} Ack;

/* What becomes of the record. */
typedef enum Action
{
	ACTION_KEEP,				/* nothing is written */
	ACTION_START,				/* a first attempt begins, under a new grant */
	ACTION_CONTINUE,			/* the next attempt begins, under a new grant */
	ACTION_TAKE_OVER,			/* likewise, while the attempt before may still be at work */
	ACTION_FINISH,				/* the grant ends, its result or reason is kept */
	ACTION_RELEASE,				/* the grant ends, nothing happened */
	ACTION_EXTEND,				/* the lease is set anew */
	ACTION_DELETE,				/* the row goes */
	ACTION_REFUSE_TOKEN,		/* misuse: a token for a new attempt that was used before */
	ACTION_REFUSE_VERDICT		/* misuse: a verdict on a claim whose lease still runs */
} Action;

/* The decision; of outcome and ack the one that answers the event holds. */
typedef struct Decision
{
	Action		action;
	State		next;			/* the state afterwards */
	Outcome		outcome;		/* acquire, status */
	Ack			ack;			/* all others */
} Decision;

/* What becomes of a record in a state (STATE_NONE where there is none), when an event meets it. */
extern Decision state_decide(State state, Event event, unsigned facts);

#endif							/* IDEM_STATE_H */
