/*
 * guc.c: the settings idem.*, alphabetical.
 */
#include "compat.h"

#include "datatype/timestamp.h"
#include "utils/guc.h"

#include "guc.h"

int			guc_alert_retention = 90 * SECS_PER_DAY;
bool		guc_fast_path = true;
int			guc_max_clock_skew = 5000;

void
guc_define(void)
{
	DefineCustomIntVariable("idem.alert_retention",
							"How long an alert is kept after it was last raised.",
							"Older ones are deleted by idem_maintain().",
							&guc_alert_retention,
							90 * SECS_PER_DAY,
							60,
							INT_MAX,
							PGC_SIGHUP,
							GUC_UNIT_S,
							NULL, NULL, NULL);

	DefineCustomBoolVariable("idem.fast_path",
							 "Lets new claims start in the unlogged table.",
							 "When off, every claim is written to the record table at once: slower, and just as correct.",
							 &guc_fast_path,
							 true,
							 PGC_SIGHUP,
							 0,
							 NULL, NULL, NULL);

	DefineCustomIntVariable("idem.max_clock_skew",
							"How far the clocks of two servers may differ.",
							"A finished record is kept at least this long after its fingerprint expires.",
							&guc_max_clock_skew,
							5000,
							0,
							3600 * 1000,
							PGC_SIGHUP,
							GUC_UNIT_MS,
							NULL, NULL, NULL);

	MarkGUCPrefixReserved("idem");
}
