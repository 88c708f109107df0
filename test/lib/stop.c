/*
 * stop.c: loaded into one session, lets that session stop itself, as by SIGSTOP, in the middle of its next commit: the
 * transaction has ended for all others, who have not been told yet what it changed.
 */
#include "postgres.h"

#include <signal.h>

#include "access/xact.h"
#include "fmgr.h"

PG_MODULE_MAGIC;

void		_PG_init(void);

static void
stop_at_commit(XactEvent event, void *arg)
{
	if (event == XACT_EVENT_COMMIT && TransactionIdIsValid(GetTopTransactionIdIfAny()))
		raise(SIGSTOP);
}

void
_PG_init(void)
{
	RegisterXactCallback(stop_at_commit, NULL);
}
