/*
 * stat.c: what became of every call, counted in shared memory.
 *
 * Invariants
 *	- A call is counted once: under its outcome or acknowledgement; as an error where it raised one; as rolled back
 *	  where it wrote something and its transaction, or the savepoint around it, did not stand.
 *	- What waits for the transaction's end is kept in a list of this backend, each with its subtransaction.  Those
 *	  ids rise, so a savepoint that is rolled back takes the list's tail.  What is equal but for its number and time
 *	  is one item of the list, so that it stays as short as there are scopes and events.
 *	- Scopes are callers' words: the table holds a fixed number of them, and the rest share one entry.
 *	- The counters are lost in a crash, as all of shared memory is; a clean shutdown writes them to a file, which
 *	  the next start reads and removes.
 *
 * Locking: the table's lock is held shared to find an entry, exclusive to make or drop one; an entry's spinlock
 * guards its numbers.
 */
#include "compat.h"

#include <unistd.h>

#include "access/xact.h"
#include "catalog/pg_authid_d.h"
#include "miscadmin.h"
#include "portability/instr_time.h"
#include "storage/fd.h"
#include "storage/ipc.h"
#include "storage/lwlock.h"
#include "storage/shmem.h"
#include "storage/spin.h"
#include "utils/builtins.h"
#include "utils/hsearch.h"
#include "utils/memutils.h"
#include "utils/tuplestore.h"

#include "guc.h"
#include "stat.h"

#define STAT_FILE "pg_stat/idem.stat"
#define STAT_FILE_MAGIC 0x1DE30002
#define MERGED_OVER 4096		/* items of the list of what is pending that an equal one is looked for among */

/* the events: what acquire, execute and status can come to, then the acknowledgements, then the rest */
#define OUTCOME_EVENTS (OUTCOME_COUNT + 3)	/* each outcome, joined, a grant told of again, error */
#define EVENT_JOINED OUTCOME_COUNT
#define EVENT_AGAIN (OUTCOME_COUNT + 1)
#define EVENT_ERROR (OUTCOME_COUNT + 2)
#define ACK_EVENTS (ACK_COUNT + 1)	/* each acknowledgement, error */
#define CALLS_WITH_OUTCOME 3
#define CALLS_WITH_ACK 5
#define FIRST_ACK_EVENT (CALLS_WITH_OUTCOME * OUTCOME_EVENTS)
#define FIRST_EXTRA_EVENT (FIRST_ACK_EVENT + CALLS_WITH_ACK * ACK_EVENTS)
#define EVENT_ROLLED_BACK (FIRST_EXTRA_EVENT + STAT_PURGED + 1)
#define EVENT_COUNT (EVENT_ROLLED_BACK + 1)

static const char *const call_names[] = {
	"acquire", "execute", "status", "commit", "fail", "release", "renew", "reconcile"
};
static const char *const outcome_names[OUTCOME_EVENTS] = {
	"acquired", "in_flight", "done", "failed", "reconcile", "param_mismatch", "subject_mismatch",
	"scope_mismatch", "expired", "invalid", "repeat", "none", "unknown", "retryable", "joined", "again", "error"
};
static const char *const ack_names[ACK_EVENTS] = {"ok", "not_owner", "already", "none", "error"};
static const char *const extra_names[] = {
	"takeover", "promoted", "fast_path_unavailable", "purged", "rolled_back"
};

typedef struct EntryKey
{
	Oid			database;
	char		scope[LABEL_MAX_LENGTH + 1];	/* NUL-filled */
} EntryKey;

typedef struct Count
{
	int64		calls;
	double		milliseconds;
} Count;

typedef struct Entry
{
	EntryKey	key;
	slock_t		mutex;
	Count		counts[EVENT_COUNT];
} Entry;

typedef struct SharedState
{
	LWLock	   *lock;
} SharedState;

/* A call under way in this backend. */
typedef struct Frame
{
	StatCall	call;
	SubTransactionId subid;
	instr_time	start;
	int			scope_length;
	char		scope[LABEL_MAX_LENGTH];
} Frame;

/* Something that counts when the transaction commits. */
typedef struct Pending
{
	int			event;
	bool		is_call;		/* counts as rolled back otherwise */
	SubTransactionId subid;
	int64		count;
	double		milliseconds;
	EntryKey	key;
} Pending;

static SharedState *shared = NULL;
static HTAB *entries = NULL;
static shmem_request_hook_type earlier_request_hook = NULL;
static shmem_startup_hook_type earlier_startup_hook = NULL;

static Frame *frames = NULL;	/* calls within calls, as deep as they go */
static int	nframes = 0;
static int	frames_size = 0;

static Pending *pending = NULL; /* in TopTransactionContext, NULL between transactions */
static int	npending = 0;
static int	pending_size = 0;

PG_FUNCTION_INFO_V1(idem_preloaded);
PG_FUNCTION_INFO_V1(idem_stat_counters);
PG_FUNCTION_INFO_V1(idem_stat_reset);

/* ----- entries ----- */

static void
make_key(EntryKey *key, Span scope)
{
	memset(key, 0, sizeof(*key));
	key->database = MyDatabaseId;
	if (scope.data != NULL)
		memcpy(key->scope, scope.data, Min(scope.length, LABEL_MAX_LENGTH));
}

/* Make an entry; the one that the rest share where the table is full.  The lock is held exclusively. */
static Entry *
make_entry(const EntryKey *key)
{
	EntryKey	other;
	Entry	   *entry;
	bool		known;

	if (hash_get_num_entries(entries) >= guc_stat_max && strcmp(key->scope, STAT_OTHER_SCOPES) != 0)
	{
		make_key(&other, (Span) {STAT_OTHER_SCOPES, strlen(STAT_OTHER_SCOPES)});
		other.database = key->database;
		key = &other;
	}
	entry = hash_search(entries, key, HASH_ENTER_NULL, &known);
	if (entry != NULL && !known)
	{
		SpinLockInit(&entry->mutex);
		memset(entry->counts, 0, sizeof(entry->counts));
	}
	return entry;
}

static void
add(const EntryKey *key, int event, int64 calls, double milliseconds)
{
	Entry	   *entry;

	LWLockAcquire(shared->lock, LW_SHARED);
	entry = hash_search(entries, key, HASH_FIND, NULL);
	if (entry == NULL)
	{
		LWLockRelease(shared->lock);
		LWLockAcquire(shared->lock, LW_EXCLUSIVE);
		entry = make_entry(key);
	}
	if (entry != NULL)
	{
		SpinLockAcquire(&entry->mutex);
		entry->counts[event].calls += calls;
		entry->counts[event].milliseconds += milliseconds;
		SpinLockRelease(&entry->mutex);
	}
	LWLockRelease(shared->lock);
}

/* ----- calls ----- */

void
stat_begin(StatCall call)
{
	Frame	   *frame;

	if (shared == NULL)
		return;
	if (nframes == frames_size)
	{
		int			size = frames_size == 0 ? 4 : frames_size * 2;

		frames = frames == NULL ? MemoryContextAlloc(TopMemoryContext, size * sizeof(Frame)) :
			repalloc(frames, size * sizeof(Frame));
		frames_size = size;
	}
	frame = &frames[nframes++];
	frame->call = call;
	frame->subid = GetCurrentSubTransactionId();
	frame->scope_length = 0;
	INSTR_TIME_SET_CURRENT(frame->start);
}

void
stat_scope(Span scope)
{
	Frame	   *frame;

	if (nframes == 0)
		return;
	frame = &frames[nframes - 1];
	frame->scope_length = Min(scope.length, LABEL_MAX_LENGTH);
	memcpy(frame->scope, scope.data, frame->scope_length);
}

static int
outcome_event(StatCall call, int outcome)
{
	return call * OUTCOME_EVENTS + outcome;
}

static int
ack_event(StatCall call, int ack)
{
	return FIRST_ACK_EVENT + (call - CALLS_WITH_OUTCOME) * ACK_EVENTS + ack;
}

static int
error_event(StatCall call)
{
	return call < CALLS_WITH_OUTCOME ? outcome_event(call, EVENT_ERROR) : ack_event(call, ACK_COUNT);
}

/* The item of a subtransaction that counts the same, if it is among the latest; NULL: none. */
static Pending *
find_pending(const EntryKey *key, int event, bool is_call, SubTransactionId subid, int before)
{
	for (int i = before - 1; i >= 0 && i >= before - MERGED_OVER && pending[i].subid == subid; i--)
		if (pending[i].event == event && pending[i].is_call == is_call &&
			memcmp(&pending[i].key, key, sizeof(*key)) == 0)
			return &pending[i];
	return NULL;
}

static void
add_pending(const EntryKey *key, int event, bool is_call, int64 count, double milliseconds)
{
	SubTransactionId subid = GetCurrentSubTransactionId();
	Pending    *item = find_pending(key, event, is_call, subid, npending);

	if (item != NULL)
	{
		item->count += count;
		item->milliseconds += milliseconds;
		return;
	}
	if (npending == pending_size)
	{
		Size		size = pending_size == 0 ? 8 : (Size) pending_size * 2;

		if (pending == NULL)
			pending = MemoryContextAlloc(TopTransactionContext, size * sizeof(Pending));
		else
			pending = repalloc_huge(pending, size * sizeof(Pending));
		pending_size = size;
	}
	item = &pending[npending++];
	item->event = event;
	item->is_call = is_call;
	item->subid = subid;
	item->count = count;
	item->milliseconds = milliseconds;
	item->key = *key;
}

/* The call at the top of the stack came to this. */
static void
end_call(int event, bool wrote)
{
	Frame	   *frame = &frames[nframes - 1];
	instr_time	end;
	EntryKey	key;

	INSTR_TIME_SET_CURRENT(end);
	INSTR_TIME_SUBTRACT(end, frame->start);
	make_key(&key, (Span) {frame->scope, frame->scope_length});
	nframes--;
	if (wrote)
		add_pending(&key, event, true, 1, INSTR_TIME_GET_MILLISEC(end));
	else
		add(&key, event, 1, INSTR_TIME_GET_MILLISEC(end));
}

void
stat_end_outcome(Outcome outcome, bool joined, bool wrote)
{
	int			event = outcome;

	if (joined && (outcome == OUTCOME_DONE || outcome == OUTCOME_FAILED))
		event = EVENT_JOINED;
	else if (outcome == OUTCOME_ACQUIRED && !wrote)
		event = EVENT_AGAIN;
	if (nframes > 0)
		end_call(outcome_event(frames[nframes - 1].call, event), wrote);
}

void
stat_end_ack(Ack ack, bool wrote)
{
	if (nframes > 0)
		end_call(ack_event(frames[nframes - 1].call, ack), wrote);
}

void
stat_extra(StatExtra extra, Span scope, int64 count)
{
	EntryKey	key;

	if (shared == NULL)
		return;
	make_key(&key, scope);
	add_pending(&key, FIRST_EXTRA_EVENT + extra, false, count, 0);
}

/* ----- the transaction's end ----- */

/* Calls that an error ended. */
static void
count_errors(SubTransactionId subid)
{
	while (nframes > 0 && frames[nframes - 1].subid >= subid)
		end_call(error_event(frames[nframes - 1].call), false);
}

static void
forget_pending(void)
{
	pending = NULL;
	npending = pending_size = 0;
}

void
stat_at_commit(void)
{
	for (int i = 0; i < npending; i++)
		add(&pending[i].key, pending[i].event, pending[i].count, pending[i].milliseconds);
	forget_pending();
}

void
stat_at_subabort(SubTransactionId subid)
{
	if (shared == NULL)
		return;
	count_errors(subid);
	while (npending > 0 && pending[npending - 1].subid >= subid)
	{
		Pending    *item = &pending[--npending];

		if (item->is_call)
			add(&item->key, EVENT_ROLLED_BACK, item->count, item->milliseconds);
	}
}

void
stat_at_subcommit(SubTransactionId subid, SubTransactionId parent)
{
	int			first = npending;
	int			end = npending;

	while (first > 0 && pending[first - 1].subid >= subid)
		first--;
	npending = first;
	for (int i = first; i < end; i++)
	{
		Pending		item = pending[i];
		Pending    *equal = find_pending(&item.key, item.event, item.is_call, parent, npending);

		if (equal != NULL)
		{
			equal->count += item.count;
			equal->milliseconds += item.milliseconds;
		}
		else
		{
			item.subid = parent;
			pending[npending++] = item;
		}
	}
}

void
stat_at_abort(void)
{
	stat_at_subabort(TopSubTransactionId);
	forget_pending();
}

/* ----- SQL ----- */

bool
stat_is_preloaded(void)
{
	return shared != NULL;
}

static void
require_preload(void)
{
	if (shared == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("idem counts nothing, since its library is not preloaded"),
				 errhint("Set shared_preload_libraries = 'idem' and restart the server.")));
}

static char *
event_name(int event)
{
	if (event < FIRST_ACK_EVENT)
		return psprintf("%s.%s", call_names[event / OUTCOME_EVENTS], outcome_names[event % OUTCOME_EVENTS]);
	if (event < FIRST_EXTRA_EVENT)
	{
		int			i = event - FIRST_ACK_EVENT;

		return psprintf("%s.%s", call_names[CALLS_WITH_OUTCOME + i / ACK_EVENTS], ack_names[i % ACK_EVENTS]);
	}
	return pstrdup(extra_names[event - FIRST_EXTRA_EVENT]);
}

static void
put_entry(ReturnSetInfo *result, Entry *entry)
{
	Count		counts[EVENT_COUNT];

	SpinLockAcquire(&entry->mutex);
	memcpy(counts, entry->counts, sizeof(counts));
	SpinLockRelease(&entry->mutex);
	for (int i = 0; i < EVENT_COUNT; i++)
	{
		Datum		values[4];
		bool		nulls[4] = {0};

		if (counts[i].calls == 0)
			continue;
		values[0] = CStringGetTextDatum(entry->key.scope);
		values[1] = CStringGetTextDatum(event_name(i));
		values[2] = Int64GetDatum(counts[i].calls);
		values[3] = Float8GetDatum(counts[i].milliseconds);
		tuplestore_putvalues(result->setResult, result->setDesc, values, nulls);
	}
}

/*
 * idem_preloaded() RETURNS boolean
 */
Datum
idem_preloaded(PG_FUNCTION_ARGS)
{
	PG_RETURN_BOOL(stat_is_preloaded());
}

/*
 * idem_stat_counters(OUT scope text, OUT event text, OUT calls bigint, OUT total_time double precision)
 *		RETURNS SETOF record
 *
 * This database's counters that are not zero; times in milliseconds.
 */
Datum
idem_stat_counters(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *result = (ReturnSetInfo *) fcinfo->resultinfo;
	HASH_SEQ_STATUS scan;
	Entry	   *entry;

	require_preload();
	materialize_result(fcinfo);
	LWLockAcquire(shared->lock, LW_SHARED);
	hash_seq_init(&scan, entries);
	while ((entry = hash_seq_search(&scan)) != NULL)
		if (entry->key.database == MyDatabaseId)
			put_entry(result, entry);
	LWLockRelease(shared->lock);
	return (Datum) 0;
}

/*
 * idem_stat_reset() RETURNS void
 */
Datum
idem_stat_reset(PG_FUNCTION_ARGS)
{
	HASH_SEQ_STATUS scan;
	Entry	   *entry;

	require_preload();
	LWLockAcquire(shared->lock, LW_EXCLUSIVE);
	hash_seq_init(&scan, entries);
	while ((entry = hash_seq_search(&scan)) != NULL)
		if (entry->key.database == MyDatabaseId)
			hash_search(entries, &entry->key, HASH_REMOVE, NULL);
	LWLockRelease(shared->lock);
	PG_RETURN_VOID();
}

/* ----- the file ----- */

static bool
write_entries(FILE *file)
{
	uint32		header[3] = {STAT_FILE_MAGIC, sizeof(Entry), hash_get_num_entries(entries)};
	HASH_SEQ_STATUS scan;
	Entry	   *entry;
	bool		ok = fwrite(header, sizeof(header), 1, file) == 1;

	hash_seq_init(&scan, entries);
	while ((entry = hash_seq_search(&scan)) != NULL)
		ok = ok && fwrite(&entry->key, sizeof(entry->key), 1, file) == 1 &&
			fwrite(entry->counts, sizeof(entry->counts), 1, file) == 1;
	return ok;
}

/* At a clean shutdown, in the postmaster. */
static void
save(int code, Datum arg)
{
	FILE	   *file;
	bool		ok;

	if (code != 0 || shared == NULL)
		return;
	file = AllocateFile(STAT_FILE ".tmp", PG_BINARY_W);
	ok = file != NULL && write_entries(file);
	if (file != NULL && FreeFile(file) != 0)
		ok = false;
	if (ok)
		(void) durable_rename(STAT_FILE ".tmp", STAT_FILE, LOG);
	else
	{
		ereport(LOG,
				(errcode_for_file_access(),
				 errmsg("could not write file \"%s\": %m", STAT_FILE ".tmp")));
		unlink(STAT_FILE ".tmp");
	}
}

static bool
read_entries(FILE *file)
{
	uint32		header[3];
	EntryKey	key;
	Count		counts[EVENT_COUNT];

	if (fread(header, sizeof(header), 1, file) != 1 ||
		header[0] != STAT_FILE_MAGIC || header[1] != sizeof(Entry))
		return false;
	for (uint32 i = 0; i < header[2]; i++)
	{
		Entry	   *entry;

		if (fread(&key, sizeof(key), 1, file) != 1 || fread(counts, sizeof(counts), 1, file) != 1)
			return false;
		key.scope[LABEL_MAX_LENGTH] = '\0';
		entry = make_entry(&key);
		for (int event = 0; entry != NULL && event < EVENT_COUNT; event++)
		{
			entry->counts[event].calls += counts[event].calls;
			entry->counts[event].milliseconds += counts[event].milliseconds;
		}
	}
	return true;
}

/* At the server's start. The file goes: after a crash it would tell of the past as if it were the present. */
static void
load(void)
{
	FILE	   *file = AllocateFile(STAT_FILE, PG_BINARY_R);

	if (file == NULL)
		return;
	if (!read_entries(file))
		ereport(LOG,
				(errcode(ERRCODE_DATA_CORRUPTED),
				 errmsg("ignoring invalid data in file \"%s\"", STAT_FILE)));
	FreeFile(file);
	unlink(STAT_FILE);
}

/* ----- shared memory ----- */

static void
request_memory(void)
{
	if (earlier_request_hook != NULL)
		earlier_request_hook();
	RequestAddinShmemSpace(add_size(MAXALIGN(sizeof(SharedState)),
									hash_estimate_size(guc_stat_max + 1, sizeof(Entry))));
	RequestNamedLWLockTranche("idem", 1);
}

static void
start_memory(void)
{
	HASHCTL		control = {.keysize = sizeof(EntryKey), .entrysize = sizeof(Entry)};
	bool		known;

	if (earlier_startup_hook != NULL)
		earlier_startup_hook();
	LWLockAcquire(AddinShmemInitLock, LW_EXCLUSIVE);
	shared = ShmemInitStruct("idem statistics", sizeof(SharedState), &known);
	entries = ShmemInitHash("idem counters", guc_stat_max + 1, guc_stat_max + 1, &control, HASH_ELEM | HASH_BLOBS);
	if (!known)
		shared->lock = &GetNamedLWLockTranche("idem")->lock;
	LWLockRelease(AddinShmemInitLock);
	if (!IsUnderPostmaster)
		on_shmem_exit(save, (Datum) 0);
	if (!known)
		load();
}

void
stat_request_memory(void)
{
	earlier_request_hook = shmem_request_hook;
	shmem_request_hook = request_memory;
	earlier_startup_hook = shmem_startup_hook;
	shmem_startup_hook = start_memory;
}
