/*
 * wait.c: joining whoever is at work on an operation.
 *
 * A claim of a transaction that is still open is waited for by that transaction's own lock, so that the deadlock
 * detector sees it.  A committed claim in flight has no transaction: its waiters look again now and then, backing
 * off.  Where the library is preloaded they sleep on a condition variable that the finishing transaction
 * broadcasts; there is a fixed number of those, shared by the keys that hash alike, and a wake-up is only a hint
 * to look again.
 *
 * Nothing is held while waiting: no table is open, no row locked, so nobody who waits can stop a holder.
 */
#include "compat.h"

#include "access/xlog.h"
#include "common/hashfn.h"
#include "miscadmin.h"
#include "storage/condition_variable.h"
#include "storage/ipc.h"
#include "storage/latch.h"
#include "storage/lmgr.h"
#include "storage/lwlock.h"
#include "storage/proc.h"
#include "storage/shmem.h"
#include "utils/memutils.h"
#include "utils/resowner.h"
#include "utils/timestamp.h"
#include "utils/wait_event.h"

#include "wait.h"

#define WAKE_SLOTS 256

/* how long to sleep between two looks, in milliseconds */
#define FIRST_NAP 2L
#define LONGEST_NAP 500L
#define LONGEST_NAP_WHERE_WOKEN 1000L

typedef struct WakeSlot
{
	ConditionVariable changed;
} WakeSlot;

static WakeSlot *slots = NULL;	/* in shared memory; NULL where the library is not preloaded */
static uint64 noted[WAKE_SLOTS / 64];	/* a bit for each slot to wake when the transaction has committed */
static bool any_noted = false;
static shmem_request_hook_type earlier_request_hook = NULL;
static shmem_startup_hook_type earlier_startup_hook = NULL;

void
wait_begin(Wait *wait, int64 microseconds)
{
	wait->until = microseconds == 0 ? 0 : time_after(GetCurrentTimestamp(), microseconds);
	wait->rounds = 0;
	wait->joined = false;
	wait->caller = CurrentMemoryContext;
	wait->looks = NULL;
}

/* Leave the condition variable's list. */
static void
stop_sleeping(Wait *wait)
{
	if (slots != NULL && wait->rounds > 0)
		ConditionVariableCancelSleep();
	wait->rounds = 0;
}

void
wait_end(Wait *wait)
{
	stop_sleeping(wait);
	MemoryContextSwitchTo(wait->caller);
}

/* Work in a context of its own from now on, so that a long wait needs no more memory than a short one. */
static void
begin_look(Wait *wait)
{
	if (wait->looks == NULL)
		wait->looks = AllocSetContextCreate(wait->caller, "idem wait", ALLOCSET_SMALL_SIZES);
	else
		MemoryContextReset(wait->looks);
	MemoryContextSwitchTo(wait->looks);
}

static long
milliseconds_left(const Wait *wait)
{
	return wait->until == 0 ? 0 : TimestampDifferenceMilliseconds(GetCurrentTimestamp(), wait->until);
}

static uint32
slot_of(const pg_uuid_t *key)
{
	return hash_bytes(key->data, UUID_LEN) % WAKE_SLOTS;
}

static ConditionVariable *
variable_of(const pg_uuid_t *key)
{
	return slots == NULL ? NULL : &slots[slot_of(key)].changed;
}

void
wait_note(const pg_uuid_t *key)
{
	if (slots == NULL)
		return;
	noted[slot_of(key) / 64] |= UINT64CONST(1) << slot_of(key) % 64;
	any_noted = true;
}

void
wait_wake_noted(void)
{
	for (int i = 0; any_noted && i < WAKE_SLOTS; i++)
		if ((noted[i / 64] >> i % 64 & 1) != 0)
			ConditionVariableBroadcast(&slots[i].changed);
}

void
wait_forget(void)
{
	if (any_noted)
		memset(noted, 0, sizeof(noted));
	any_noted = false;
}

/* ----- an open transaction ----- */

/* Errors that say "do not wait for this one" rather than "stop". */
static bool
is_end_of_wait(int sqlstate)
{
	return sqlstate == ERRCODE_LOCK_NOT_AVAILABLE || sqlstate == ERRCODE_T_R_DEADLOCK_DETECTED;
}

/*
 * Wait for a transaction under a time limit in milliseconds.  A lock wait ends by an error only, so it goes into a
 * subtransaction of its own.
 */
static bool
await_transaction(TransactionId xid, int limit)
{
	MemoryContext context = CurrentMemoryContext;
	ResourceOwner owner = CurrentResourceOwner;
	volatile int lock_timeout = LockTimeout;
	volatile bool ended = true;

	BeginInternalSubTransaction(NULL);
	MemoryContextSwitchTo(context);
	PG_TRY();
	{
		LockTimeout = lock_timeout > 0 ? Min(lock_timeout, limit) : limit;
		XactLockTableWait(xid, NULL, NULL, XLTW_None);
		LockTimeout = lock_timeout;
		ReleaseCurrentSubTransaction();
	}
	PG_CATCH();
	{
		ErrorData  *error;

		LockTimeout = lock_timeout;
		MemoryContextSwitchTo(context);
		error = CopyErrorData();
		FlushErrorState();

		/* whoever catches the error outside must find the subtransaction that is theirs */
		RollbackAndReleaseCurrentSubTransaction();
		MemoryContextSwitchTo(context);
		CurrentResourceOwner = owner;
		if (!is_end_of_wait(error->sqlerrcode))
			ReThrowError(error);
		FreeErrorData(error);
		ended = false;
	}
	PG_END_TRY();
	MemoryContextSwitchTo(context);
	CurrentResourceOwner = owner;
	return ended;
}

/* ----- a committed claim ----- */

static long
nap_length(const Wait *wait, long left)
{
	long		longest = slots == NULL ? LONGEST_NAP : LONGEST_NAP_WHERE_WOKEN;
	long		length = wait->rounds < 10 ? Min(FIRST_NAP << wait->rounds, longest) : longest;

	return Min(length, left);
}

static void
nap(long milliseconds)
{
	(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH, milliseconds, PG_WAIT_EXTENSION);
	ResetLatch(MyLatch);
	CHECK_FOR_INTERRUPTS();
}

/*
 * The first look only puts the caller on the variable's list; what changed before that is seen by the look that
 * follows, what changes after it ends the sleep.
 */
static void
sleep_until_woken(Wait *wait, ConditionVariable *changed, long milliseconds)
{
	if (wait->rounds == 0)
		ConditionVariablePrepareToSleep(changed);
	else
		(void) ConditionVariableTimedSleep(changed, milliseconds, PG_WAIT_EXTENSION);
}

bool
wait_for_change(Wait *wait, const Answer *answer)
{
	long		left = milliseconds_left(wait);
	ConditionVariable *changed = variable_of(&answer->key);

	if (left <= 0 || answer->is_own)
		return false;
	wait->joined = true;
	if (TransactionIdIsValid(answer->rival) && !TransactionStartedDuringRecovery())
	{
		stop_sleeping(wait);
		if (!await_transaction(answer->rival, Min(left, INT_MAX)))
			return false;
	}
	else
	{
		if (changed == NULL)
			nap(nap_length(wait, left));
		else
			sleep_until_woken(wait, changed, nap_length(wait, left));
		wait->rounds++;
	}
	begin_look(wait);
	return true;
}

/* ----- shared memory ----- */

static void
request_memory(void)
{
	if (earlier_request_hook != NULL)
		earlier_request_hook();
	RequestAddinShmemSpace(MAXALIGN(WAKE_SLOTS * sizeof(WakeSlot)));
}

static void
start_memory(void)
{
	bool		known;

	if (earlier_startup_hook != NULL)
		earlier_startup_hook();
	LWLockAcquire(AddinShmemInitLock, LW_EXCLUSIVE);
	slots = ShmemInitStruct("idem waiters", WAKE_SLOTS * sizeof(WakeSlot), &known);
	for (int i = 0; !known && i < WAKE_SLOTS; i++)
		ConditionVariableInit(&slots[i].changed);
	LWLockRelease(AddinShmemInitLock);
}

void
wait_request_memory(void)
{
	earlier_request_hook = shmem_request_hook;
	shmem_request_hook = request_memory;
	earlier_startup_hook = shmem_startup_hook;
	shmem_startup_hook = start_memory;
}
