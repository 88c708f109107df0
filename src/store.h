/*
 * store.h: find, insert unless present, update and delete a row by key, for both tables.
 *
 * Takes no decision.  It works through the table and index access methods, because only that sees another
 * transaction's uncommitted row without waiting for it; it then does what the executor would have done.
 */
#ifndef IDEM_STORE_H
#define IDEM_STORE_H

#include "executor/tuptable.h"
#include "nodes/execnodes.h"
#include "storage/itemptr.h"
#include "utils/rel.h"
#include "utils/uuid.h"

#include "catalog.h"

/* May a search see this version?  It looks at no more of the row than it needs. */
typedef bool (*VersionFilter) (TupleTableSlot *version, const void *arg);

/*
 * An open table.  Its lock is kept until the transaction ends where something was written or locked, and else let
 * go: who waits must not stand in the way of somebody that the holder comes to wait for.
 */
typedef struct Store
{
	IdemTable	table;
	MemoryContext context;		/* where it was opened */
	Relation	relation;
	LOCKMODE	lock;
	bool		raise;			/* a table that was altered is an error, and not just left alone */
	bool		changed;		/* something was written or locked */
	Relation	key_index;		/* of the primary key */
	Datum		kind;			/* second column of the key, idem_alert only */
	int32		part;			/* third column likewise */
	VersionFilter filter;		/* store_find passes over what it refuses, as if it were not there; NULL: nothing */
	const void *filter_arg;
	EState	   *estate;			/* NULL until the first write */
	ResultRelInfo *result_rel;	/* with all its indexes; NULL likewise */
	TupleTableSlot *found;		/* the version that store_find found */
	TupleTableSlot *version;	/* what a search is looking at; made by the first */
	TupleTableSlot *rival;		/* another transaction's uncommitted version */
	TupleTableSlot *row;		/* virtual: what is to be written */
	uint32		speculation;	/* token of the row inserted but not yet confirmed, else 0 */
} Store;

/* What store_find saw of a key. */
typedef struct Sighting
{
	bool		found;			/* a version that a committed transaction or this one left: in store->found */
	ItemPointerData tid;		/* of that version */
	bool		serializable;	/* false: what was seen is not what this transaction's own snapshot shows */
	TransactionId rival;		/* another transaction with an uncommitted version, else invalid */
	bool		rival_inserts;	/* that version is a new row's: in store->rival */
	uint32		rival_speculation;	/* token of its insertion, where that is not confirmed yet, else 0 */
} Sighting;

/*
 * Open a table.  A conditional open returns false where its lock is not to be had at once.  Raises 55000 where
 * the table was altered (a conditional open of idem_alert returns false), and where idem_record or idem_fast has triggers, foreign keys, rules or check constraints
 * of somebody's: they would not be obeyed, or where idem_record is not logged.
 */
extern bool store_open(Store *store, IdemTable table, LOCKMODE lock, bool conditional);

/*
 * Open an index that lists the rows by a column, counted from 0 and of type timestamptz, in its order; raises 55000
 * where there is none.  Close it with index_close(.., NoLock).
 */
extern Relation store_open_index(const Store *store, int column);

/* The virtual slot for what is to be written. */
extern TupleTableSlot *store_row(Store *store);

/* Let go of everything, but for the lock where it is kept. */
extern void store_close(Store *store);

/*
 * Look a key up under a new latest snapshot.  Waits for nobody, and takes no predicate lock but on the version
 * found.  That no rival was seen decides nothing: a non-HOT update may hide its new version from this scan.
 * That no version was found does decide, as of the snapshot.
 */
extern void store_find(Store *store, const pg_uuid_t *key, Sighting *sighting);

/* Fetch this transaction's own row, where it was put; looks the key up where it no longer stands there. */
extern bool store_find_own(Store *store, const pg_uuid_t *key, ItemPointer tid);

/*
 * Insert store->row.  Returns false, leaving a dead row for the abort to bury, where any other row with its key,
 * committed or not, stands in the way: the caller must raise.
 */
extern bool store_insert(Store *store);

/*
 * Insert store->row speculatively.  Returns false, leaving nothing, where another row with its key, committed
 * or not, stands in the way.  Else the caller must confirm or withdraw it before it does anything that waits.
 */
extern bool store_insert_speculative(Store *store, ItemPointer tid);
extern void store_confirm(Store *store);
extern void store_withdraw(Store *store);

/* Wait until another transaction has confirmed or withdrawn an insertion: never long, but cancellable. */
extern void store_await_insertion(TransactionId rival, uint32 speculation);

typedef enum UpdateResult
{
	UPDATE_DONE,
	UPDATE_MOVED,				/* the version is no longer the newest: look again */
	UPDATE_BUSY					/* another transaction has changed or locked it and is still open */
} UpdateResult;

/* Replace the version at tid by store->row.  Waits for a rival (lock_timeout applies) only where told to. */
extern UpdateResult store_update(Store *store, ItemPointer tid, bool wait);

/* Lock the version at tid FOR SHARE until the transaction ends, waiting for who is changing it; false: it moved. */
extern bool store_lock_shared(Store *store, ItemPointer tid);

/* Has its own transaction, still open, deleted a row again that a dirty scan shows? */
extern bool store_deleted_by_open(TupleTableSlot *row);

/* Delete the version at tid; returns false where somebody else is doing that, or has done it. */
extern bool store_delete_unless_busy(Store *store, ItemPointer tid);

/*
 * Lock the version at tid, which the transaction's snapshot sees, FOR UPDATE until the transaction ends.  Returns false
 * where another transaction has locked or changed it; raises 40001 where that committed and the isolation level
 * forbids to pass over it, as SKIP LOCKED does.
 */
extern bool store_lock_unless_busy(Store *store, ItemPointer tid);

/*
 * Delete this transaction's own version at tid, or one that it has locked.  Returns false where it is gone.  After
 * store_remove the transaction sees the row until the next CommandCounterIncrement: for many in a row.
 */
extern bool store_remove(Store *store, ItemPointer tid);
extern bool store_delete(Store *store, ItemPointer tid);

#endif							/* IDEM_STORE_H */
