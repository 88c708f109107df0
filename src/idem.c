/*
 * idem.c: the module's magic block and its start.
 */
#include "compat.h"

#include "fmgr.h"
#include "miscadmin.h"

#include "guc.h"
#include "stat.h"
#include "wait.h"
#include "worker.h"
#include "xact.h"

PG_MODULE_MAGIC;

void		_PG_init(void);

void
_PG_init(void)
{
	guc_define();
	xact_register();
	if (process_shared_preload_libraries_in_progress)
	{
		stat_request_memory();
		wait_request_memory();
		worker_register();
	}
}
