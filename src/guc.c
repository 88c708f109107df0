/*
 * guc.c: the settings idem.*, alphabetical.
 */
#include "compat.h"

#include "datatype/timestamp.h"
#include "miscadmin.h"
#include "utils/guc.h"

#include "guc.h"
#include "reply_text.h"

int			guc_alert_retention = 90 * SECS_PER_DAY;
char	   *guc_databases = "";
bool		guc_fast_path = true;
int			guc_lang = LANG_EN;
int			guc_max_clock_skew = 5000;
int			guc_naptime = 60;
int			guc_stat_max = 1000;

static const struct config_enum_entry langs[] = {
	{"en", LANG_EN, false},
	{"zh", LANG_ZH, false},
	{NULL, 0, false}
};

void
guc_define(void)
{
	/* what only shared memory and workers want; known everywhere, so that a configuration file may name it */
	GucContext	at_start = process_shared_preload_libraries_in_progress ? PGC_POSTMASTER : PGC_SIGHUP;

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

	DefineCustomStringVariable("idem.databases",
							   "The databases that the maintenance worker cares for.",
							   "Names separated by commas, as in search_path; empty: no worker.",
							   &guc_databases,
							   "",
							   at_start,
							   GUC_LIST_INPUT,
							   NULL, NULL, NULL);

	DefineCustomBoolVariable("idem.fast_path",
							 "Lets new claims start in the unlogged table.",
							 "When off, every claim is written to the record table at once: slower, and just as correct.",
							 &guc_fast_path,
							 true,
							 PGC_SIGHUP,
							 0,
							 NULL, NULL, NULL);

	DefineCustomEnumVariable("idem.lang",
							 "The language of the replies that models read.",
							 NULL,
							 &guc_lang,
							 LANG_EN,
							 langs,
							 PGC_USERSET,
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

	DefineCustomIntVariable("idem.naptime",
							"How long the maintenance worker rests between two rounds.",
							NULL,
							&guc_naptime,
							60,
							1,
							24 * 3600,
							PGC_SIGHUP,
							GUC_UNIT_S,
							NULL, NULL, NULL);

	DefineCustomIntVariable("idem.stat_max",
							"How many scopes the counters tell apart.",
							"The rest are counted together.",
							&guc_stat_max,
							1000,
							10,
							100000,
							at_start,
							0,
							NULL, NULL, NULL);

	MarkGUCPrefixReserved("idem");
}
