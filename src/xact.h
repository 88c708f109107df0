/*
 * xact.h: the claims open in this transaction.
 */
#ifndef IDEM_XACT_H
#define IDEM_XACT_H

#include "storage/itemptr.h"
#include "utils/uuid.h"

/* Where this transaction's open claim of a key stands. */
typedef enum Place
{
	PLACE_NONE,					/* it has none, or has finished it */
	PLACE_FAST,
	PLACE_RECORD
} Place;

/* The place of a key's claim, and in *tid its row (a hint where it is in the fast table). */
extern Place xact_place(const pg_uuid_t *key, ItemPointer tid);

/*
 * From here on the claim stands there; undone with the current subtransaction.  A local claim may not outlive
 * the transaction.
 */
extern void xact_put(const pg_uuid_t *key, Place place, ItemPointer tid, bool is_local);

/* This transaction changed a claim that began in an earlier one: its commit must be flushed. */
extern void xact_must_flush(void);

/* Register the callbacks; called once, when the library is loaded. */
extern void xact_register(void);

#endif							/* IDEM_XACT_H */
