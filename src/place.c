/*
 * place.c: where a fresh claim is put: into the fast table, or else into the record.
 *
 * How a fresh claim is granted
 *	1. The record is probed: nothing there, neither committed nor in the making.
 *	2. The claim goes into idem_fast by a speculative insertion: no WAL, no flush, no wait.  Another row with its key
 *	   is a rival.
 *	3. The record is probed again under a new latest snapshot.  A rival that finished between 1 and 2 has left its
 *	   record by now, since it deletes its fast row in the same transaction; one that went straight into the
 *	   record is seen too, or meets us there before either of us commits.
 *	4. Only then, and where the fingerprint has not expired meanwhile, is the insertion confirmed.  The clock is
 *	   asked last: while this one waited for a lock, a rival's record may have come, lapsed and been purged.
 * Where the fast table is not to be had the claim goes into the record at once, by the same kind of insertion.
 * What the fast table says is never more than "somebody is at work": losing it costs speed, not correctness.
 */
#include "compat.h"

#include "access/xlog.h"
#include "utils/timestamp.h"

#include "guc.h"
#include "place.h"
#include "stat.h"

void
rival_read(Rival *rival, Store *store, const Sighting *sighting)
{
	TupleTableSlot *row = sighting->rival_inserts ? store->rival : store->found;

	rival->xid = sighting->rival;
	rival->has_claim = sighting->rival_inserts || sighting->found;
	if (!rival->has_claim)
		return;
	record_read(row, &rival->claim);
	rival->claim.scope = span_copy(rival->claim.scope);
	rival->claim.subject = span_copy(rival->claim.subject);
	rival->claim.holder = span_copy(rival->claim.holder);
	rival->claim.trace_id = span_copy(rival->claim.trace_id);
	rival->claim.result = NULL;
}

static void
note_open(const Claim *claim, Place place, ItemPointer tid)
{
	xact_put(&claim->key, place, tid, claim_spot_kind(claim));
}

/* A rival in the fast table: wait out an insertion that is not confirmed, else they are at work. */
static Step
meet_rival(Store *fast, const Sighting *sighting, Rival *rival)
{
	if (sighting->rival_speculation != 0)
	{
		store_await_insertion(sighting->rival, sighting->rival_speculation);
		return STEP_AGAIN;
	}
	rival_read(rival, fast, sighting);
	return STEP_ANSWERED;
}

/* The key is taken in the fast table. */
static Step
meet_conflict(const Claim *claim, Store *fast, Rival *rival)
{
	Sighting	sighting;

	store_find(fast, &claim->key, &sighting);
	if (TransactionIdIsValid(sighting.rival))
		return meet_rival(fast, &sighting, rival);

	/* a row that no open transaction holds is no claim, but it keeps ours out: the record must take it */
	return sighting.found ? STEP_ON : STEP_AGAIN;
}

static bool
is_too_late(const Claim *claim)
{
	return GetCurrentTimestamp() >= claim->expires_at;
}

/* STEP_ON where the record must take the claim. */
static Step
place_fast(const Claim *claim, Store *fast, Store *record, Rival *rival, bool *placed)
{
	Sighting	sighting;
	ItemPointerData tid;

	record_write(claim, store_row(fast));
	if (!store_insert_speculative(fast, &tid))
		return meet_conflict(claim, fast, rival);
	store_find(record, &claim->key, &sighting);
	if (sighting.found || TransactionIdIsValid(sighting.rival) || is_too_late(claim))
	{
		store_withdraw(fast);
		return STEP_AGAIN;
	}
	store_confirm(fast);
	note_open(claim, PLACE_FAST, &tid);
	*placed = true;
	return STEP_ON;
}

/* The slower way, and as safe. */
static Step
place_in_record(const Claim *claim, Store *record)
{
	ItemPointerData tid;

	record_write(claim, store_row(record));
	if (!store_insert_speculative(record, &tid))
		return STEP_AGAIN;
	if (is_too_late(claim))
	{
		store_withdraw(record);
		return STEP_AGAIN;
	}
	store_confirm(record);
	note_open(claim, PLACE_RECORD, &tid);
	stat_extra(STAT_FAST_UNAVAILABLE, claim->scope, 1);
	return STEP_ON;
}

/* What the fast table tells of a key. */
static Step
ask_fast(Store *fast, const pg_uuid_t *key, Rival *rival)
{
	Sighting	sighting;

	store_find(fast, key, &sighting);
	return TransactionIdIsValid(sighting.rival) ? meet_rival(fast, &sighting, rival) : STEP_ON;
}

Step
find_fast_rival(const pg_uuid_t *key, Rival *rival)
{
	Store		fast;
	Step		step;

	if (TransactionStartedDuringRecovery() || !store_open(&fast, TABLE_FAST, AccessShareLock, true))
		return STEP_ON;
	step = ask_fast(&fast, key, rival);
	store_close(&fast);
	return step;
}

Step
place_claim(const Claim *claim, Store *record, Rival *rival)
{
	Store		fast;
	Step		step;
	bool		placed = false;

	if (!guc_fast_path)
		step = find_fast_rival(&claim->key, rival);
	else if (store_open(&fast, TABLE_FAST, RowExclusiveLock, true))
	{
		step = place_fast(claim, &fast, record, rival, &placed);
		store_close(&fast);
	}
	else
		step = STEP_ON;
	if (step == STEP_ON && !placed)
		step = place_in_record(claim, record);
	return step;
}
