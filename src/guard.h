/*
 * guard.h: the repeat guard: an equal operation under another key is taken for a repeat.
 */
#ifndef IDEM_GUARD_H
#define IDEM_GUARD_H

#include "acquire.h"
#include "place.h"

/*
 * May the request be granted, as far as its scope's guard is concerned?  STEP_ON: yes, and the grant's row stands among
 * its peers.  STEP_ANSWERED: no, an equal operation is under way, unknown, or was done within the guard's time: REPEAT
 * with that one's key, and its result where it is done; rival is the transaction that makes or changes it, where that
 * is open.  STEP_AGAIN: look at everything again.
 */
extern Step guard_pass(Request *request, Answer *answer);

/* The grant did not come about after all: take its row back. */
extern void guard_withdraw(Request *request);

/*
 * Is an operation with equal parameters known within the scope's guard, under any lists on record?  Then *answer is
 * REPEAT with its key, result and time.  Writes nothing.
 */
extern bool guard_look(Span scope, Span subject, Jsonb *params, int64 guard, Answer *answer);

#endif							/* IDEM_GUARD_H */
