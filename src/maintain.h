/*
 * maintain.h: regular care: what lapses goes, what is stuck is told of, old alerts are dropped.
 */
#ifndef IDEM_MAINTAIN_H
#define IDEM_MAINTAIN_H

/* What one round of care did. */
typedef struct Care
{
	int64		purged;			/* records that had lapsed */
	int64		newly_stuck;	/* alerts raised for claims whose outcome nobody knows */
	int64		alerts_purged;	/* old alerts */
} Care;

/*
 * Delete records that have lapsed, the oldest first and max_rows (more than 0) at most; returns how many went.  Rows that
 * others hold are left to the next call, but where the isolation level forbids that: 40001.  Raises 25006 in a
 * transaction that is read-only, 55000 where idem_record was altered or has lost an index.  Needs a transaction, and no
 * snapshot.
 */
extern int64 maintain_purge(int max_rows);

/* All care, each kind of it in a bounded portion.  Raises as maintain_purge does, and the same of idem_alert. */
extern void maintain_all(Care *care);

#endif							/* IDEM_MAINTAIN_H */
