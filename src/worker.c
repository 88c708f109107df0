/*
 * worker.c: idem_maintain() in each of idem.databases, every idem.naptime.
 *
 * A launcher, connected to no database, looks each time which of the databases exist and starts a worker for one
 * after the other.  A worker does one round and ends, so that nothing of ours stays connected: DROP DATABASE
 * works.  Each piece of it runs as the tables' owner, in a security-restricted operation: in C, and no name is looked
 * up, so that whoever owns the database, and with it schema public, puts no code of his in its way.
 *
 * Whatever is missing (database, extension, lock, worker slot) costs one log line a round at most and is
 * tried again in the next; an error does not end the process with a failure, which the postmaster would log as well.
 * Nothing ends the launcher but the server's shutdown.
 *
 * New alerts are told of by NOTIFY idem_alert, from here and never from anybody's transaction.  What was told
 * already is remembered in shared memory, one time for each database.
 */
#include "compat.h"

#include "access/heapam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "catalog/pg_database.h"
#include "commands/extension.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "portability/instr_time.h"
#include "postmaster/bgworker.h"
#include "postmaster/interrupt.h"
#include "storage/ipc.h"
#include "storage/latch.h"
#include "storage/lwlock.h"
#include "storage/proc.h"
#include "storage/shmem.h"
#include "tcop/tcopprot.h"
#include "utils/guc.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"
#include "utils/timeout.h"
#include "utils/timestamp.h"
#include "utils/varlena.h"
#include "utils/wait_event.h"

#include "catalog.h"
#include "excerpt.h"
#include "guc.h"
#include "maintain.h"
#include "notify.h"
#include "worker.h"

#define RESTART_SECONDS 10		/* where the launcher itself died */
#define LOCK_TIMEOUT "2s"		/* a worker waits no longer for a table */
#define PIECE_TIMEOUT 60000 /* ms: nor does one transaction take longer, */
#define PURGE_TIME (60 * USECS_PER_SEC) /* nor all batches together, since others wait for their turn */
#define PURGE_BATCH 10000		/* rows */

/* What was told of a database's alerts. */
typedef struct Told
{
	Oid			database;
	TimestampTz until;
	int64		at;				/* steady_time() of the round that told it */
} Told;

static Told *told = NULL;		/* one for each name in idem.databases; one worker at a time uses it */
static int	ntold = 0;
static shmem_request_hook_type earlier_request_hook = NULL;
static shmem_startup_hook_type earlier_startup_hook = NULL;

PGDLLEXPORT void idem_launcher_main(Datum arg);
PGDLLEXPORT void idem_worker_main(Datum arg);

/* The names in idem.databases, in the current memory context. */
static List *
database_names(void)
{
	List	   *names;

	if (!SplitIdentifierString(pstrdup(guc_databases), ',', &names))
		return NIL;
	return names;
}

/* Microseconds, by a clock that nobody sets and that all processes share: a rhythm kept by the other would sleep. */
static int64
steady_time(void)
{
	instr_time	now;

	INSTR_TIME_SET_CURRENT(now);
	return (int64) INSTR_TIME_GET_MICROSEC(now);
}

/* ----- a worker: one round in one database ----- */

static Told *
told_of(Oid database)
{
	for (int i = 0; i < ntold; i++)
		if (told[i].database == database)
			return &told[i];
	for (int i = 0; i < ntold; i++)
		if (!OidIsValid(told[i].database))
		{
			told[i].database = database;
			told[i].until = 0;
			return &told[i];
		}
	return NULL;
}

/* Where the clock was set back since the last round, that round was as long ago as the steady clock says. */
static TimestampTz
last_round(const Told *mark, TimestampTz now)
{
	TimestampTz steady = now - (steady_time() - mark->at);

	return steady < mark->until - USECS_PER_SEC ? steady : mark->until;
}

/*
 * Tell of what was raised since the last round; returns until when.  These are hints to look: an alert whose
 * transaction commits later than the round after it is told of by its row alone.
 */
static int64
tell(void)
{
	Told	   *mark = told_of(MyDatabaseId);
	TimestampTz now = GetCurrentTimestamp();

	if (mark != NULL && mark->until != 0)
		notify_alerts(last_round(mark, now), now);
	return now;
}

/* What was told stays told once it is committed. */
static void
remember_told(TimestampTz until)
{
	Told	   *mark = told_of(MyDatabaseId);

	if (mark == NULL || until == 0)
		return;
	mark->until = until;
	mark->at = steady_time();
}

/* One batch of what has lapsed; returns how many rows went. */
static int64
purge(void)
{
	return maintain_purge(PURGE_BATCH);
}

/* All other care. */
static int64
maintain(void)
{
	Care		care;

	maintain_all(&care);
	return 0;
}

/* Do a piece of work as the tables' owner, as PostgreSQL's own maintenance does. */
static int64
do_as_owner(int64 (*work) (void))
{
	Oid			user;
	int			context;
	int			nest;
	int64		done;

	GetUserIdAndSecContext(&user, &context);
	SetUserIdAndSecContext(catalog_owner(), context | SECURITY_RESTRICTED_OPERATION);
	nest = NewGUCNestLevel();
	done = work();
	AtEOXact_GUC(false, nest);
	SetUserIdAndSecContext(user, context);
	return done;
}

/* Do a piece of work in a transaction of its own, which may take so long and no longer; 0 where there is none. */
static int64
do_piece(const char *activity, int64 (*work) (void))
{
	int64		done = 0;

	SetCurrentStatementStartTimestamp();
	StartTransactionCommand();
	PushActiveSnapshot(GetTransactionSnapshot());
	enable_timeout_after(STATEMENT_TIMEOUT, PIECE_TIMEOUT);
	if (OidIsValid(get_extension_oid("idem", true)))
	{
		pgstat_report_activity(STATE_RUNNING, activity);
		done = do_as_owner(work);
	}
	PopActiveSnapshot();
	disable_timeout(STATEMENT_TIMEOUT, false);
	CommitTransactionCommand();
	pgstat_report_activity(STATE_IDLE, NULL);
	pgstat_report_stat(true);
	return done;
}

/*
 * The bulk of what has lapsed goes in transactions of its own first: what one batch has done stays done, however
 * slow the disk is.  What is left over waits for the next round.
 */
static void
do_round(void)
{
	int64		end = steady_time() + PURGE_TIME;

	while (do_piece("idem: purging", purge) == PURGE_BATCH && steady_time() < end)
		;
	(void) do_piece("idem: maintaining", maintain);
	remember_told(do_piece("idem: telling of alerts", tell));
}

/* A round that failed is one line in the log. */
static void
tell_of_error(MemoryContext context)
{
	ErrorData  *error;
	StringInfoData message;

	MemoryContextSwitchTo(context);
	error = CopyErrorData();
	FlushErrorState();
	disable_timeout(STATEMENT_TIMEOUT, false);
	AbortCurrentTransaction();
	/* it may name what somebody else has named */
	initStringInfo(&message);
	excerpt_append_plain(&message, error->message);
	ereport(LOG,
			(errcode(error->sqlerrcode),
			 errmsg("idem worker could not do its round: %s", message.data),
			 errhidecontext(true)));
}

void
idem_worker_main(Datum arg)
{
	MemoryContext context = CurrentMemoryContext;

	pqsignal(SIGTERM, die);
	pqsignal(SIGHUP, SignalHandlerForConfigReload);
	BackgroundWorkerUnblockSignals();
	BackgroundWorkerInitializeConnectionByOid(DatumGetObjectId(arg), InvalidOid, 0);
	SetConfigOption("lock_timeout", LOCK_TIMEOUT, PGC_USERSET, PGC_S_SESSION);
	SetConfigOption("search_path", "pg_catalog, pg_temp", PGC_USERSET, PGC_S_SESSION);
	PG_TRY();
	{
		do_round();
	}
	PG_CATCH();
	{
		tell_of_error(context);
	}
	PG_END_TRY();
	proc_exit(0);
}

/* ----- the launcher ----- */

static bool
is_named(const char *database, List *names)
{
	ListCell   *cell;

	foreach(cell, names)
		if (strcmp(lfirst(cell), database) == 0)
			return true;
	return false;
}

/*
 * The databases to visit, those that exist and take connections.  Read by a plain scan: connected to no database,
 * only the shared catalogs can be read, and not by index.
 */
static List *
existing_databases(MemoryContext context)
{
	List	   *databases = NIL;
	List	   *names;
	Relation	catalog;
	TableScanDesc scan;
	HeapTuple	tuple;

	StartTransactionCommand();
	(void) GetTransactionSnapshot();
	names = database_names();
	catalog = table_open(DatabaseRelationId, AccessShareLock);
	scan = table_beginscan_catalog(catalog, 0, NULL);
	while ((tuple = heap_getnext(scan, ForwardScanDirection)) != NULL)
	{
		Form_pg_database database = (Form_pg_database) GETSTRUCT(tuple);
		MemoryContext inner = MemoryContextSwitchTo(context);

		if (database->datallowconn && is_named(NameStr(database->datname), names))
			databases = lappend_oid(databases, database->oid);
		MemoryContextSwitchTo(inner);
	}
	table_endscan(scan);
	table_close(catalog, AccessShareLock);
	CommitTransactionCommand();
	MemoryContextSwitchTo(context);
	return databases;
}

static void
describe_worker(BackgroundWorker *worker, const char *function)
{
	memset(worker, 0, sizeof(*worker));
	worker->bgw_flags = BGWORKER_SHMEM_ACCESS | BGWORKER_BACKEND_DATABASE_CONNECTION;
	worker->bgw_start_time = BgWorkerStart_RecoveryFinished;
	strlcpy(worker->bgw_library_name, "idem", sizeof(worker->bgw_library_name));
	strlcpy(worker->bgw_function_name, function, sizeof(worker->bgw_function_name));
}

/* One worker's round, from start to end; false where there is no slot for a worker. */
static bool
visit(Oid database)
{
	BackgroundWorker worker;
	BackgroundWorkerHandle *handle;

	describe_worker(&worker, "idem_worker_main");
	snprintf(worker.bgw_name, sizeof(worker.bgw_name), "idem worker");
	snprintf(worker.bgw_type, sizeof(worker.bgw_type), "idem worker");
	worker.bgw_restart_time = BGW_NEVER_RESTART;
	worker.bgw_main_arg = ObjectIdGetDatum(database);
	worker.bgw_notify_pid = MyProcPid;
	if (!RegisterDynamicBackgroundWorker(&worker, &handle))
	{
		ereport(LOG,
				(errcode(ERRCODE_INSUFFICIENT_RESOURCES),
				 errmsg("idem launcher could not start a worker"),
				 errhint("You might need to increase max_worker_processes.")));
		return false;
	}
	(void) WaitForBackgroundWorkerShutdown(handle);
	return true;
}

/* A database made anew under an old name needs the place of the one that went. */
static void
forget_missing(List *databases)
{
	for (int i = 0; i < ntold; i++)
		if (!list_member_oid(databases, told[i].database))
			told[i].database = InvalidOid;
}

static void
visit_all(MemoryContext context)
{
	List	   *databases = existing_databases(context);
	ListCell   *cell;

	forget_missing(databases);
	pgstat_report_activity(STATE_RUNNING, "idem: visiting databases");
	foreach(cell, databases)
	{
		CHECK_FOR_INTERRUPTS();
		if (!visit(lfirst_oid(cell)))
			break;
	}
	MemoryContextReset(context);
}

static void
nap(int64 microseconds)
{
	pgstat_report_activity(STATE_IDLE, NULL);
	(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH, microseconds / 1000 + 1,
					 PG_WAIT_EXTENSION);
	ResetLatch(MyLatch);
	CHECK_FOR_INTERRUPTS();
	if (ConfigReloadPending)
	{
		ConfigReloadPending = false;
		ProcessConfigFile(PGC_SIGHUP);
	}
}

void
idem_launcher_main(Datum arg)
{
	MemoryContext context;
	int64		rest = 0;		/* microseconds to the next round */
	int64		ended = 0;		/* steady_time() of the last one */

	pqsignal(SIGTERM, die);
	pqsignal(SIGHUP, SignalHandlerForConfigReload);
	BackgroundWorkerUnblockSignals();
	BackgroundWorkerInitializeConnection(NULL, NULL, 0);
	context = AllocSetContextCreate(TopMemoryContext, "idem launcher", ALLOCSET_DEFAULT_SIZES);
	MemoryContextSwitchTo(context);
	for (;;)
	{
		/* latches are set for other reasons as well: only the time starts a round */
		if (rest <= 0)
		{
			visit_all(context);
			ended = steady_time();
		}
		else
			nap(rest);
		rest = ended + (int64) guc_naptime * USECS_PER_SEC - steady_time();
	}
}

/* ----- start ----- */

static void
request_memory(void)
{
	if (earlier_request_hook != NULL)
		earlier_request_hook();
	ntold = list_length(database_names());
	RequestAddinShmemSpace(mul_size(ntold, sizeof(Told)));
}

static void
start_memory(void)
{
	bool		known;

	if (earlier_startup_hook != NULL)
		earlier_startup_hook();
	ntold = list_length(database_names());
	LWLockAcquire(AddinShmemInitLock, LW_EXCLUSIVE);
	told = ShmemInitStruct("idem alerts told", mul_size(ntold, sizeof(Told)), &known);
	if (!known)
		memset(told, 0, mul_size(ntold, sizeof(Told)));
	LWLockRelease(AddinShmemInitLock);
}

void
worker_register(void)
{
	BackgroundWorker worker;

	/* pg_upgrade drops and fills databases that nobody else must be connected to */
	if (guc_databases[0] == '\0' || IsBinaryUpgrade)
		return;
	earlier_request_hook = shmem_request_hook;
	shmem_request_hook = request_memory;
	earlier_startup_hook = shmem_startup_hook;
	shmem_startup_hook = start_memory;
	describe_worker(&worker, "idem_launcher_main");
	snprintf(worker.bgw_name, sizeof(worker.bgw_name), "idem launcher");
	snprintf(worker.bgw_type, sizeof(worker.bgw_type), "idem launcher");
	worker.bgw_restart_time = RESTART_SECONDS;
	RegisterBackgroundWorker(&worker);
}
