/*
 * status.h: what is known of an operation, without touching it.
 */
#ifndef IDEM_STATUS_H
#define IDEM_STATUS_H

#include "claim.h"

/*
 * What an acquire of the key without wait and token would say, as of now, in *answer: NONE (UNKNOWN on a
 * standby) and EXPIRED of an operation that never began, RETRYABLE where an acquire would continue it.
 * expires_at is the token's, DT_NOEND where there is none; then the record's own counts.  Writes nothing.
 * The answer's scope and subject are the operation's, and null where nothing is known of it.  An operation of another
 * subject than this one is not known: nothing of its row but the subject is looked at.
 */
extern void claim_look_up(const pg_uuid_t *key, Span subject, TimestampTz expires_at, Answer *answer);

#endif							/* IDEM_STATUS_H */
