/*
 * state.h: the transition table.  Pure: no table, no clock.  The only place that decides.
 */
#ifndef IDEM_STATE_H
#define IDEM_STATE_H

#include "policy.h"

/* The state of a record, stored as this letter. */
typedef enum State
{
	STATE_NONE = 0,				/* no record, or one that has lapsed */
	STATE_IN_FLIGHT = 'I',
	STATE_DONE = 'D',
	STATE_FAILED = 'F',
	STATE_RELEASED = 'R'
} State;

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

#endif							/* IDEM_STATE_H */
