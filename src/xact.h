/*
 * xact.h: the claims open in this transaction.
 */
#ifndef IDEM_XACT_H
#define IDEM_XACT_H

#include "storage/itemptr.h"
#include "utils/uuid.h"

/* Where this transaction's claim of a key stands. */
typedef enum Place
{
	PLACE_NONE,					/* it has none, or has given it up */
	PLACE_FAST,
	PLACE_RECORD
} Place;

/* The place of a key's claim, and in *tid its row where the claim is open (a hint where it is in the fast table). */
extern Place xact_place(const pg_uuid_t *key, ItemPointer tid);

typedef enum SpotKind
{
	SPOT_PLAIN,
	SPOT_LOCAL					/* a claim that may not outlive the transaction */
} SpotKind;

/* From here on the claim stands there; undone with the current subtransaction. */
extern void xact_put(const pg_uuid_t *key, Place place, ItemPointer tid, SpotKind kind);

/*
 * This transaction changed a claim that began in an earlier one: its commit must be flushed, and wakes who waits
 * for the claim.
 */
extern void xact_changed(const pg_uuid_t *key);

/*
 * The caller will act on what an earlier transaction committed: a grant it is told of again, a commit it is told
 * has been made.  That transaction may have been cut short while it waited for its synchronous standby, which then
 * does not have it yet; this one waits in its place.
 */
extern void xact_confirm(void);

/* Register the callbacks; called once, when the library is loaded. */
extern void xact_register(void);

#endif							/* IDEM_XACT_H */
