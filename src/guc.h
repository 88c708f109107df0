/*
 * guc.h: the settings idem.*, alphabetical.
 */
#ifndef IDEM_GUC_H
#define IDEM_GUC_H

/* idem.alert_retention, in seconds */
extern int	guc_alert_retention;

/* idem.databases: a list of names */
extern char *guc_databases;

/* idem.fast_path: may new claims start in the unlogged table? */
extern bool guc_fast_path;

/* idem.lang: the language of replies, a Lang of reply_text.h */
extern int	guc_lang;

/* idem.max_clock_skew, in milliseconds: how far the clocks of two servers may differ */
extern int	guc_max_clock_skew;

/* idem.naptime, in seconds */
extern int	guc_naptime;

/* idem.stat_max: how many scopes the counters tell apart; only where the library is preloaded */
extern int	guc_stat_max;

/* Define all settings; called once, when the library is loaded. */
extern void guc_define(void);

#endif							/* IDEM_GUC_H */
