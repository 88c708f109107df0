/*
 * policy.h: policies, the versions of their lists, and the secrets, cached in each backend.
 *
 * What these functions return stays valid until the next policy_begin().
 */
#ifndef IDEM_POLICY_H
#define IDEM_POLICY_H

#include "utils/array.h"

#include "args.h"
#include "canonical.h"
#include "fingerprint.h"

/* By which door a scope's operations come in. */
typedef enum Entry
{
	ENTRY_ANY,
	ENTRY_FINGERPRINT,
	ENTRY_DIRECT
} Entry;

/* What the effect's receiver can do; stored with each claim as this letter. */
typedef enum Downstream
{
	DOWNSTREAM_OPAQUE = 'o',	/* neither deduplicates nor can be asked */
	DOWNSTREAM_QUERYABLE = 'q', /* can be asked what became of a key */
	DOWNSTREAM_IDEMPOTENT = 'i',	/* deduplicates on our key */
	DOWNSTREAM_LOCAL = 'l'		/* rows in this database */
} Downstream;

/* One row of idem_policy, or the defaults compiled in.  Times are in microseconds. */
typedef struct Policy
{
	bool		enabled;
	Entry		entry;
	Downstream	downstream;
	int32		version;		/* of its lists */
	const MaterialPart *part;	/* NULL: everything is material */
	ArrayType  *material;		/* its lists as they stand in the table, text[]; NULL: null */
	ArrayType  *immaterial;
	int64		fingerprint_ttl;
	int64		in_flight_ttl;
	int64		result_ttl;
	int64		repeat_guard;	/* 0: none */
	int64		poll_after;
	const char *confirm_with;	/* NULL: not said */
	const char *poll_with;		/* NULL: not said */
	bool		strict;			/* the scope has no row of its own, and "*" is disabled */
} Policy;

/* For a scope without a row of its own where there is no row "*" either. */
extern const Policy policy_defaults;

/*
 * Start of every entry point: accept pending invalidations, forget what they made stale, and refuse (0A000)
 * a database that is not UTF-8.
 */
extern void policy_begin(void);

/* The policy of a scope: its own row, else the row "*", else the defaults.  Never NULL. */
extern const Policy *policy_of(const char *scope, size_t scope_length);

/*
 * Has any policy changed since the last policy_begin(), as far as this session was told?  Taking a lock that had to be
 * waited for tells it.
 */
extern bool policy_changed(void);

/*
 * The lists that a scope has or had under a version, in *part (NULL for version 0, which every scope has).  A scope
 * with a row of its own has its own history, which begins with that of "*"; one without has that of "*" too.  Returns
 * false for a version that is another scope's, or nobody's.
 */
extern bool policy_version(const char *scope, size_t scope_length, int32 version, const MaterialPart **part);

/* One pair of lists. */
typedef struct Lists
{
	int32		version;
	const MaterialPart *part;	/* NULL: everything is material */
} Lists;

/* All of a scope's, each version once. */
typedef struct ListsOnRecord
{
	int32		in_force;		/* the version that goes by the scope's policy */
	int			count;
	Lists	   *lists;			/* those in force first */
} ListsOnRecord;

/*
 * All lists on record for a scope and for "*", as far as this session was told, however long ago they were replaced:
 * an operation whose outcome is unknown never lapses.  The array is in the current memory context.
 */
extern void policy_lists(Span scope, ListsOnRecord *into);

/*
 * How long, at most, anything signed now may be asked about, in microseconds: the greatest fingerprint_ttl + result_ttl
 * of any policy and of the defaults, and the allowed difference of clocks.
 */
extern int64 policy_longest_retention(void);

/* The secrets that verify at a time; the array lives in the cache. Returns their number. */
extern int	policy_secrets(TimestampTz now, const SecretBytes **verifying);

/*
 * May policy_secrets() answer now with other secrets than when it was last asked?  Where a cached one has changed, the
 * new answer takes a policy_begin().
 */
extern bool policy_secrets_changed(void);

/* The secret that signs; raises 55000 where there is none. */
extern const SecretBytes *policy_signing_secret(void);

#endif							/* IDEM_POLICY_H */
