/*
 * guard.h: the repeat guard: an equal operation under a new fingerprint is taken for a repeat.
 */
#ifndef IDEM_GUARD_H
#define IDEM_GUARD_H

#include "acquire.h"
#include "place.h"

/*
 * May the request's operation start, as far as its scope's guard is concerned?  STEP_ON: yes, and this
 * transaction holds the guard.  STEP_ANSWERED: no, an equal operation has happened or is under way: REPEAT with that
 * one's key and outcome; or IN_FLIGHT where it is this very operation.
 */
extern Step guard_pass(Request *request, Answer *answer);

/*
 * Is an equal operation known within a guard's time (microseconds)?  Then *answer is REPEAT with its key, result
 * and time.  Writes nothing.
 */
extern bool guard_look(Span scope, Span subject, Jsonb *params, const MaterialPart *part, int64 guard,
					   Answer *answer);

/* At the transaction's end: a guard in the fast table goes into the record if its operation lives, else it goes. */
extern void guard_move_to_record(const pg_uuid_t *key, ItemPointer tid);

#endif							/* IDEM_GUARD_H */
