/*
 * claim.h: a claim's life, from acquire to its end.
 */
#ifndef IDEM_CLAIM_H
#define IDEM_CLAIM_H

#include "access/htup.h"
#include "datatype/timestamp.h"
#include "storage/itemptr.h"

#include "args.h"
#include "record.h"
#include "store.h"
#include "xact.h"

/* What is returned as idem_claim.  What is not said is null there. */
typedef struct Answer
{
	Outcome		outcome;
	bool		has_key;
	pg_uuid_t	key;
	bool		has_owner;
	pg_uuid_t	owner;
	int32		attempt;		/* 0: not said */
	bool		replayed;
	bool		joined;
	Span		scope;
	Span		subject;
	struct varlena *result;		/* jsonb, detoasted; NULL: none */
	Span		result_ref;
	TimestampTz lease_until;	/* DT_NOEND: not said; so below */
	TimestampTz finished_at;
	TimestampTz retained_until;
	Span		trace_id;
	bool		is_own;			/* in flight: by this very transaction */
	TransactionId rival;		/* in flight: by this open transaction; invalid: a committed claim */
} Answer;

/* An answer that says no more than its outcome and the caller's own scope and subject. */
extern void answer_init(Answer *answer, Outcome outcome, Span scope, Span subject);

/* An answer that says that somebody is at work on the key; rival: their transaction, if it is open. */
extern void answer_init_in_flight(Answer *answer, const pg_uuid_t *key, Span scope, Span subject,
								  TransactionId rival);

/*
 * Add what a claim holds, as far as the answer's outcome speaks of it: key, attempt, lease, and where it is
 * finished or released its result or reason.  Copies everything, so that the row may go; a result is
 * detoasted, for which a snapshot must be active.
 */
extern void answer_add_claim(Answer *answer, const Claim *claim);

/* A copy in the current memory context. */
extern Span span_copy(Span span);

/* The composite value. */
extern Datum answer_datum(const Answer *answer);

/*
 * What a caller hands in as idem_claim.  It need not be what any function returned, so what is null is told apart from
 * every value.
 */
typedef struct GivenClaim
{
	Outcome		outcome;
	int32		attempt;		/* 0: null */
	bool		is_replay;		/* replayed is true */
	bool		is_first_run;	/* replayed is false */
	bool		is_finished;	/* finished_at is not null */
	TimestampTz finished_at;
	Span		scope;			/* data NULL: null; so below */
	Span		result_ref;
	Span		trace_id;
	Jsonb	   *result;			/* NULL: null */
} GivenClaim;

/*
 * Read a composite value.  Returns false where its outcome is null; raises 55000 where the type was altered.  What the
 * claim holds points into the row, or to copies in the current memory context.
 */
extern bool claim_read(HeapTupleHeader row, GivenClaim *claim);

/* at + microseconds, within the range of finite times. */
extern TimestampTz time_after(TimestampTz at, int64 microseconds);

/* The facts that state_decide wants to know of a claim; owner_hash NULL: the caller brings no token. */
extern unsigned claim_facts(const Claim *claim, TimestampTz now, const uint8 *owner_hash);

/* When a claim that finishes now may lapse, by its scope's policy and its fingerprint's expiry. */
extern TimestampTz claim_retention(const Claim *claim, TimestampTz now);

/* SHA-256 of an owner token. */
extern void owner_hash(const pg_uuid_t *owner, uint8 hash[SHA256_LENGTH]);

/* As what a claim of this transaction is noted with xact_put. */
extern SpotKind claim_spot_kind(const Claim *claim);

/* Commit a claim for its holder, as idem_commit() does; where that is OK, *answer says what is on record now. */
extern Ack	claim_commit(const pg_uuid_t *key, const uint8 *owner_hash, Jsonb *result, Answer *answer);

/* Raise 40001 for a grant or an update that this transaction's own snapshot knows nothing of. */
extern void claim_require_serializable(const Sighting *sighting);

/* Raise 40001: an open claim is no longer where this transaction put it. */
extern void claim_vanished(void) pg_attribute_noreturn();

/* Insert the row prepared in record; raises 40001 where the record has another with its key, committed or not. */
extern void claim_insert_record(Store *record);

/*
 * Raise 40001 for a claim that was in the fast table for so long that the record of a rival, who met its lock refused,
 * may have come, lapsed and been purged in that time.  To be asked after the insertion into the record, which
 * keeps further rivals out.
 */
extern void claim_require_remembered(const Claim *claim);

/*
 * At the transaction's end: move an open claim from the fast table to the record, set its lease anew where
 * it is over; or only the latter, for a claim that is in the record already.  Both raise 40001 where the claim is gone,
 * the first also where the record has another.
 */
extern void claim_move_to_record(const pg_uuid_t *key, ItemPointer tid);
extern void claim_refresh_lease(const pg_uuid_t *key);

#endif							/* IDEM_CLAIM_H */
