/*
 * stat.h: what became of every call, counted in shared memory.
 *
 * Without shared_preload_libraries = 'idem' all of this does nothing.
 */
#ifndef IDEM_STAT_H
#define IDEM_STAT_H

#include "args.h"
#include "state.h"

/* The scope that those share which are too many to be told apart. */
#define STAT_OTHER_SCOPES "(other)"

/* The calls that are counted. */
typedef enum StatCall
{
	STAT_ACQUIRE,
	STAT_EXECUTE,
	STAT_STATUS,
	STAT_COMMIT,
	STAT_FAIL,
	STAT_RELEASE,
	STAT_RENEW,
	STAT_RECONCILE
} StatCall;

/* What is counted beside what calls came to. */
typedef enum StatExtra
{
	STAT_TAKEOVER,				/* a grant took over a claim whose lease was over */
	STAT_PROMOTED,				/* a claim moved from the fast table to the record at its transaction's end */
	STAT_FAST_UNAVAILABLE,		/* a claim went straight into the record */
	STAT_PURGED					/* a lapsed record went */
} StatExtra;

/*
 * A call begins; its scope is said when it is known.  One that ends by an error is counted as that, when its
 * transaction or savepoint goes.
 */
extern void stat_begin(StatCall call);
extern void stat_scope(Span scope);

/*
 * It ends with an outcome, or with an acknowledgement.  What wrote something counts when its transaction commits,
 * and as rolled back where it does not; all else counts at once.
 */
extern void stat_end_outcome(Outcome outcome, bool joined, bool wrote);
extern void stat_end_ack(Ack ack, bool wrote);

/* Something beside that happened, in this transaction (counts when it commits). */
extern void stat_extra(StatExtra extra, Span scope, int64 count);

/* The transaction, or a subtransaction and those below it, ended. */
extern void stat_at_commit(void);
extern void stat_at_abort(void);
extern void stat_at_subabort(SubTransactionId subid);
extern void stat_at_subcommit(SubTransactionId subid, SubTransactionId parent);

/* Is the library preloaded, so that calls are counted? */
extern bool stat_is_preloaded(void);

/* Ask for shared memory and define what only the postmaster may set; while the library is preloaded. */
extern void stat_request_memory(void);

#endif							/* IDEM_STAT_H */
