/*
 * record.h: a claim, and how it lies in a row.
 *
 * idem_record (logged, the truth) and idem_fast (unlogged, the claims of transactions still open) share their
 * first columns, so one reader and one writer serve both; idem_record goes on with what a finished operation
 * left behind.
 */
#ifndef IDEM_RECORD_H
#define IDEM_RECORD_H

#include "executor/tuptable.h"

#include "args.h"
#include "policy.h"
#include "state.h"
#include "store.h"

/* The columns of both tables; those after RECORD_TRACE_ID are idem_record's alone. */
enum
{
	RECORD_KEY,
	RECORD_ACQUIRED_AT,
	RECORD_LEASE_UNTIL,
	RECORD_POLICY_VERSION,
	RECORD_ATTEMPT,
	RECORD_STATE,
	RECORD_DOWNSTREAM,
	RECORD_PARAM_HASH,
	RECORD_OWNER_HASH,
	RECORD_SCOPE,
	RECORD_SUBJECT,
	RECORD_EXPIRES_AT,
	RECORD_HOLDER,
	RECORD_TRACE_ID,
	FAST_NATTS,
	RECORD_RETAINED_UNTIL = FAST_NATTS,
	RECORD_FINISHED_AT,
	RECORD_RESULT,
	RECORD_RESULT_REF,
	RECORD_RECONCILED_AT,
	RECORD_RECONCILED_BY,
	RECORD_RECONCILE_NOTE,
	RECORD_FORMER_OWNERS,
	RECORD_NATTS
};

/* One claim.  Spans and the result point into the row it was read from, or wherever the caller keeps them. */
typedef struct Claim
{
	pg_uuid_t	key;
	TimestampTz acquired_at;
	TimestampTz lease_until;
	int32		policy_version;
	int32		attempt;
	State		state;
	Downstream	downstream;
	uint8		param_hash[SHA256_LENGTH];
	uint8		owner_hash[SHA256_LENGTH];
	Span		scope;
	Span		subject;
	TimestampTz expires_at;		/* the fingerprint's; DT_NOEND for a direct call (null in the row) */
	Span		holder;			/* data NULL: not given; so below */
	Span		trace_id;
	TimestampTz retained_until;	/* DT_NOEND while in flight */
	TimestampTz finished_at;	/* DT_NOEND while in flight (null in the row) */
	struct varlena *result;		/* jsonb, perhaps toasted; NULL: none */
	Span		result_ref;
	TimestampTz reconciled_at;	/* DT_NOEND: no verdict was ever given (null in the row) */
	Span		reconciled_by;
	Span		reconcile_note;
	Span		former_owners;	/* FORMER_OWNER_LENGTH bytes of each hash that owner_hash replaced, the latest last */
} Claim;

#define FORMER_OWNER_LENGTH 16	/* bytes of a hash: tokens have 122 random bits */
#define FORMER_OWNERS 16		/* so many are kept */

/* Fill a virtual row of either table (as many columns as the slot has) from a claim. */
extern void record_write(const Claim *claim, TupleTableSlot *slot);

/* Read a row of either table; what only idem_record has is empty for idem_fast. Valid as long as the slot's row. */
extern void record_read(TupleTableSlot *slot, Claim *claim);

/*
 * A column of type text, or the subject, of a row of either table, read without looking at what follows it: data NULL
 * where it is null.  Valid as long as the slot's row.
 */
extern Span record_span(TupleTableSlot *slot, int column);
extern Span record_subject(TupleTableSlot *slot);

/* A filter of store_find that admits the versions of one subject alone; arg: the subject's Span. */
extern bool record_is_of_subject(TupleTableSlot *version, const void *arg);

extern const Layout record_layout;
extern const Layout fast_layout;

/* Do two spans hold the same bytes (or both nothing)? */
extern bool span_equal(Span a, Span b);

/* A text datum of a span. */
extern Datum span_datum(Span span);

#endif							/* IDEM_RECORD_H */
