/*
 * xact.c: the claims open in this transaction, and what becomes of them when it ends.
 *
 * Invariants
 *	- A map from key to place says what holds now; a log says what held before each change, and by which
 *	  subtransaction it was made.  Subtransaction ids rise, so rolling one back takes back the log's tail.
 *	- What the transaction itself did, or a subtransaction that committed into it, can no longer be taken back apart:
 *	  it is not logged, or no longer, and a claim that was given up leaves the map.  So a transaction of a million
 *	  operations needs no more memory than one.
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
#include "miscadmin.h"
#include "replication/syncrep.h"
#include "utils/guc.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

#include "catalog.h"
#include "claim.h"
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
#define SH_USE_NONDEFAULT_ALLOCATOR
#define SH_DECLARE
#include "lib/simplehash.h"

/* The map's measures before it is touched: simplehash sets new ones before it has the memory for them. */
static open_claims_hash measures;

static inline void *
open_claims_allocate(open_claims_hash *type, Size size)
{
	void	   *memory = MemoryContextAllocExtended(type->ctx, size, MCXT_ALLOC_HUGE | MCXT_ALLOC_NO_OOM | MCXT_ALLOC_ZERO);

	if (memory == NULL)
	{
		*type = measures;
		ereport(ERROR,
				(errcode(ERRCODE_OUT_OF_MEMORY),
				 errmsg("out of memory"),
				 errdetail("The map of the transaction's open claims could not grow to %zu bytes.", size)));
	}
	return memory;
}

static inline void
open_claims_free(open_claims_hash *type, void *pointer)
{
	pfree(pointer);
}

#define SH_PREFIX open_claims
#define SH_ELEMENT_TYPE OpenClaim
#define SH_KEY_TYPE pg_uuid_t
#define SH_KEY key
#define SH_HASH_KEY(table, key) hash_bytes((key).data, UUID_LEN)
#define SH_EQUAL(table, a, b) (memcmp(&(a), &(b), UUID_LEN) == 0)
#define SH_SCOPE static inline
#define SH_USE_NONDEFAULT_ALLOCATOR
#define SH_DEFINE
#include "lib/simplehash.h"

typedef struct Change
{
	pg_uuid_t	key;
	SubTransactionId by;
	bool		is_new;			/* the map had nothing of the key before */
	Spot		before;
} Change;

/* All in TopTransactionContext, and NULL or zero between transactions. */
static open_claims_hash *claims = NULL;
static Change *changes = NULL;
static int	nchanges = 0;
static int	changes_size = 0;
static bool must_flush = false;
static bool must_confirm = false;	/* the synchronous standby must have all that was committed so far */

static void
forget_all(void)
{
	claims = NULL;
	changes = NULL;
	nchanges = changes_size = 0;
	must_flush = must_confirm = false;
	wait_forget();
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

/* May a change be rolled back without the whole transaction? */
static bool
can_be_undone(SubTransactionId subid)
{
	return subid != TopSubTransactionId;
}

static void
log_change(const pg_uuid_t *key, Spot before, bool is_new)
{
	SubTransactionId subid = GetCurrentSubTransactionId();

	if (!can_be_undone(subid))
		return;
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
	changes[nchanges].by = subid;
	changes[nchanges].is_new = is_new;
	changes[nchanges].before = before;
	nchanges++;
}

/* Take a claim out of the map where it was given up and nothing can bring it back. */
static void
forget_if_ended(const pg_uuid_t *key)
{
	OpenClaim  *claim = open_claims_lookup(claims, *key);

	if (claim != NULL && claim->spot.place == PLACE_NONE)
		open_claims_delete_item(claims, claim);
}

void
xact_put(const pg_uuid_t *key, Place place, ItemPointer tid, SpotKind kind)
{
	OpenClaim  *claim;
	bool		known;

	if (claims == NULL)
		claims = open_claims_create(TopTransactionContext, 8, NULL);
	measures = *claims;
	claim = open_claims_insert(claims, *key, &known);
	if (!known)
		memset(&claim->spot, 0, sizeof(claim->spot));
	log_change(key, claim->spot, !known);
	claim->spot.place = place;
	claim->spot.kind = kind;
	if (tid != NULL)
		claim->spot.tid = *tid;
	if (!can_be_undone(GetCurrentSubTransactionId()))
		forget_if_ended(key);
}

void
xact_changed(const pg_uuid_t *key)
{
	wait_note(key);
	must_flush = true;
}

void
xact_confirm(void)
{
	must_flush = must_confirm = true;
}

/* Take back what a subtransaction, and those below it, changed. */
static void
undo_changes(SubTransactionId subid)
{
	while (nchanges > 0 && changes[nchanges - 1].by >= subid)
	{
		Change	   *change = &changes[--nchanges];
		OpenClaim  *claim = open_claims_lookup(claims, change->key);

		/* what is still logged is in the map, and an abort must not stumble */
		Assert(claim != NULL);
		if (claim != NULL && change->is_new)
			open_claims_delete_item(claims, claim);
		else if (claim != NULL)
			claim->spot = change->before;
	}
}

/* A subtransaction committed into the transaction itself: what it changed is undone with all or not at all. */
static void
keep_changes(SubTransactionId subid)
{
	while (nchanges > 0 && changes[nchanges - 1].by >= subid)
		forget_if_ended(&changes[--nchanges].key);
}

static void
at_subxact_event(SubXactEvent event, SubTransactionId subid, SubTransactionId parent, void *arg)
{
	if (event == SUBXACT_EVENT_ABORT_SUB)
	{
		undo_changes(subid);
		stat_at_subabort(subid);
	}
	else if (event == SUBXACT_EVENT_COMMIT_SUB)
	{
		if (!can_be_undone(parent))
			keep_changes(subid);
		stat_at_subcommit(subid, parent);
	}
}

/* A claim that is still open as the transaction ends. */
static void
leave_open(OpenClaim *claim)
{
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

/* The tables went, and with them the claims: nothing could be found of an effect that follows this commit. */
static void
refuse_lost_claims(void)
{
	ereport(ERROR,
			(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
			 errmsg("extension idem was dropped while this transaction held a claim"),
			 errdetail("The claim went with its tables."),
			 errhint("Roll back. Where the drop was meant, finish or roll back claims first.")));
}

/*
 * Leave the claims that are still open where every other session finds them.  There may be many, and within a
 * procedure the caller's context lives on: each is left with the memory of one.
 */
static void
leave_claims_open(void)
{
	MemoryContext caller = CurrentMemoryContext;
	MemoryContext context;
	open_claims_iterator iterator;
	OpenClaim  *claim;

	if (claims == NULL || claims->members == 0)
		return;
	if (!catalog_is_installed())
		refuse_lost_claims();
	context = AllocSetContextCreate(TopTransactionContext, "idem claims left open", ALLOCSET_DEFAULT_SIZES);
	MemoryContextSwitchTo(context);
	PushActiveSnapshot(GetTransactionSnapshot());
	open_claims_start_iterate(claims, &iterator);
	while ((claim = open_claims_iterate(claims, &iterator)) != NULL)
	{
		CHECK_FOR_INTERRUPTS();
		if (claim->spot.place == PLACE_FAST || claim->spot.place == PLACE_RECORD)
			leave_open(claim);
		MemoryContextReset(context);
	}
	PopActiveSnapshot();
	MemoryContextSwitchTo(caller);
	MemoryContextDelete(context);
}

static void
at_pre_commit(void)
{
	leave_claims_open();
	/* who wrote nothing waits for no standby; a few bytes of log after what is to be confirmed are enough */
	if (must_confirm && !TransactionStartedDuringRecovery() &&
		SyncRepStandbyNames != NULL && SyncRepStandbyNames[0] != '\0')
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
			wait_wake_noted();
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
