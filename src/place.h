/*
 * place.h: where a fresh claim is put.
 */
#ifndef IDEM_PLACE_H
#define IDEM_PLACE_H

#include "claim.h"
#include "xact.h"

/* What one try came to. */
typedef enum Step
{
	STEP_ANSWERED,				/* the answer is there */
	STEP_AGAIN,					/* something moved meanwhile: probe again */
	STEP_ON						/* nothing in the way */
} Step;

/* Somebody who is at work on a key. */
typedef struct Rival
{
	TransactionId xid;			/* their transaction */
	bool		has_claim;
	Claim		claim;			/* what their row says, copied; where has_claim */
} Rival;

/*
 * Put a claim of this transaction, for whose key the record (open) has just shown nothing, into the fast table,
 * or into the record where the fast table is not to be had.  STEP_ON: it is there, and noted as open.
 * STEP_ANSWERED: a rival is at work, in *rival.
 */
extern Step place_claim(const Claim *claim, Store *record, Rival *rival);

/*
 * Is somebody at work on the key in the fast table, although no claim is to be put there?  STEP_ANSWERED: yes,
 * in *rival.  STEP_ON: no, as of a moment before this call.
 */
extern Step find_fast_rival(const pg_uuid_t *key, Rival *rival);

/* Note what a store's sighting shows of a rival. */
extern void rival_read(Rival *rival, Store *store, const Sighting *sighting);

#endif							/* IDEM_PLACE_H */
