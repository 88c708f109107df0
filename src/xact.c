/*
 * xact.c: the claims open in this transaction, and what becomes of them when it ends.
 *
 * Invariants
 *	- A map from key to place says what holds now; a log says what held before each change, and by which
 *	  subtransaction it was made.  Subtransaction ids rise, so rolling one back takes back the log's tail; one
 *	  that commits into its parent needs nothing.
 *	- At pre-commit, and at PREPARE, every claim that is still open in idem_fast moves into idem_record: the fast
 *	  table is logically empty between transactions, which is what makes losing it safe.
 *	- A transaction that leaves a claim open, or changed one of an earlier transaction, is flushed: an outside
 *	  effect may follow its commit, or may be reported by it.
 *
 * Lock order: idem_fast before idem_record.
 */
#include "compat.h"

#include "access/xact.h"
#include "access/xlog.h"
#include "common/hashfn.h"
#include "replication/syncrep.h"
#include "utils/guc.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

#include "claim.h"
#include "guard.h"
#include "stat.h"
#include "store.h"
#include "wait.h"
#include "xact.h"

typedef struct Spot
{
	Place		place;
	SpotKind	kind;
	ItemPointerData tid;
} Spot;

typedef struct OpenClaim
{
	pg_uuid_t	key;
	Spot		spot;
	/* cppcheck-suppress unusedStructMember ; simplehash's own */
	char		status;
} OpenClaim;

#define SH_PREFIX open_claims
#define SH_ELEMENT_TYPE OpenClaim
#define SH_KEY_TYPE pg_uuid_t
#define SH_KEY key
#define SH_HASH_KEY(table, key) hash_bytes((key).data, UUID_LEN)
#define SH_EQUAL(table, a, b) (memcmp(&(a), &(b), UUID_LEN) == 0)
#define SH_SCOPE static inline
#define SH_DECLARE
#define SH_DEFINE
#include "lib/simplehash.h"

typedef struct Change
{
	pg_uuid_t	key;
	SubTransactionId by;
	Spot		before;
} Change;

/* All in TopTransactionContext, and NULL or zero between transactions. */
static open_claims_hash *claims = NULL;
static Change *changes = NULL;
static int	nchanges = 0;
static int	changes_size = 0;
static bool must_flush = false;
static bool must_confirm = false;	/* the synchronous standby must have all that was committed so far */
static List *changed = NIL;		/* keys to wake waiters of */

static void
forget_all(void)
{
	claims = NULL;
	changes = NULL;
	nchanges = changes_size = 0;
	must_flush = must_confirm = false;
	changed = NIL;
}

Place
xact_place(const pg_uuid_t *key, ItemPointer tid)
{
	OpenClaim  *claim = claims == NULL ? NULL : open_claims_lookup(claims, *key);

	if (claim == NULL)
		return PLACE_NONE;
	*tid = claim->spot.tid;
	return claim->spot.place;
}

static void
log_change(const pg_uuid_t *key, Spot before)
{
	if (nchanges == changes_size)
	{
		Size		size = changes_size == 0 ? 8 : (Size) changes_size * 2;

		if (changes == NULL)
			changes = MemoryContextAlloc(TopTransactionContext, size * sizeof(Change));
		else
			changes = repalloc_huge(changes, size * sizeof(Change));
		changes_size = size;
	}
	changes[nchanges].key = *key;
	changes[nchanges].by = GetCurrentSubTransactionId();
	changes[nchanges].before = before;
	nchanges++;
}

void
xact_put(const pg_uuid_t *key, Place place, ItemPointer tid, SpotKind kind)
{
	OpenClaim  *claim;
	bool		known;

	if (claims == NULL)
		claims = open_claims_create(TopTransactionContext, 8, NULL);
	claim = open_claims_insert(claims, *key, &known);
	if (!known)
		memset(&claim->spot, 0, sizeof(claim->spot));
	log_change(key, claim->spot);
	claim->spot.place = place;
	claim->spot.kind = kind;
	if (tid != NULL)
		claim->spot.tid = *tid;
}

void
xact_changed(const pg_uuid_t *key)
{
	MemoryContext earlier = MemoryContextSwitchTo(TopTransactionContext);
	pg_uuid_t  *copy = palloc(sizeof(pg_uuid_t));

	*copy = *key;
	changed = lappend(changed, copy);
	MemoryContextSwitchTo(earlier);
	must_flush = true;
}

void
xact_confirm(void)
{
	must_flush = must_confirm = true;
}

/* The changes are there for everybody to see now. */
static void
wake_waiters(void)
{
	ListCell   *cell;

	foreach(cell, changed)
		wait_wake(lfirst(cell));
}

/* Take back what a subtransaction, and those below it, changed. */
static void
undo_changes(SubTransactionId subid)
{
	while (nchanges > 0 && changes[nchanges - 1].by >= subid)
	{
		Change	   *change = &changes[--nchanges];
		OpenClaim  *claim = open_claims_lookup(claims, change->key);

		/* nothing is ever taken out of the table, and an abort must not stumble */
		Assert(claim != NULL);
		if (claim != NULL)
			claim->spot = change->before;
	}
}

static void
at_subxact_event(SubXactEvent event, SubTransactionId subid, SubTransactionId parent, void *arg)
{
	if (event == SUBXACT_EVENT_ABORT_SUB)
	{
		undo_changes(subid);
		stat_at_subabort(subid);
	}
}

/* A claim that is still open as the transaction ends. */
static void
leave_open(OpenClaim *claim)
{
	if (claim->spot.kind == SPOT_GUARD)
	{
		guard_move_to_record(&claim->key, &claim->spot.tid);
		return;
	}
	if (claim->spot.kind == SPOT_LOCAL)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("a claim of a scope whose downstream is \"local\" would outlive its transaction"),
				 errhint("Acquire, write your rows and call idem_commit() in one transaction, or set another "
						 "downstream for the scope.")));
	if (claim->spot.place == PLACE_FAST)
		claim_move_to_record(&claim->key, &claim->spot.tid);
	else
		claim_refresh_lease(&claim->key);
	must_flush = true;
}

/* Leave the claims that are still open where every other session finds them. */
static void
leave_claims_open(void)
{
	open_claims_iterator iterator;
	OpenClaim  *claim;

	if (claims == NULL)
		return;
	PushActiveSnapshot(GetTransactionSnapshot());
	open_claims_start_iterate(claims, &iterator);
	while ((claim = open_claims_iterate(claims, &iterator)) != NULL)
		if (claim->spot.place == PLACE_FAST || claim->spot.place == PLACE_RECORD)
			leave_open(claim);
	PopActiveSnapshot();
}

static void
at_pre_commit(void)
{
	leave_claims_open();
	/* who wrote nothing waits for no standby; a few bytes of log after what is to be confirmed are enough */
	if (must_confirm && !RecoveryInProgress() && SyncRepStandbyNames != NULL && SyncRepStandbyNames[0] != '\0')
		write_log_mark();
	if (must_flush && synchronous_commit < SYNCHRONOUS_COMMIT_ON)
		(void) set_config_option("synchronous_commit", "on", PGC_USERSET, PGC_S_SESSION,
								 GUC_ACTION_LOCAL, true, 0, false);
}

static void
at_xact_event(XactEvent event, void *arg)
{
	switch (event)
	{
		case XACT_EVENT_PRE_COMMIT:
		case XACT_EVENT_PRE_PREPARE:
			at_pre_commit();
			break;
		case XACT_EVENT_COMMIT:
			wake_waiters();
			stat_at_commit();
			forget_all();
			break;
		case XACT_EVENT_PREPARE:
			stat_at_commit();
			forget_all();
			break;
		case XACT_EVENT_ABORT:
			stat_at_abort();
			forget_all();
			break;
		default:
			break;
	}
}

void
xact_register(void)
{
	RegisterXactCallback(at_xact_event, NULL);
	RegisterSubXactCallback(at_subxact_event, NULL);
}
