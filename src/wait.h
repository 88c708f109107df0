/*
 * wait.h: joining whoever is at work on an operation.
 */
#ifndef IDEM_WAIT_H
#define IDEM_WAIT_H

#include "claim.h"

/* One caller's wait, over as many rivals as it takes. */
typedef struct Wait
{
	TimestampTz until;
	int			rounds;			/* how often it has looked at a committed claim */
	bool		joined;			/* it has waited for somebody, whatever came of it */
	MemoryContext caller;		/* where the caller works */
	MemoryContext looks;		/* what one look allocates; NULL before the first wait */
} Wait;

/* Begin a wait of some microseconds, 0 for none. */
extern void wait_begin(Wait *wait, int64 microseconds);

/*
 * Wait until what the answer (IN_FLIGHT) found may have changed.  Returns false where there is nothing to wait
 * for: the time is over, the claim is this transaction's own, or waiting on would be a deadlock or exceed the
 * caller's lock_timeout.  Holds no lock while it waits, and can be cancelled.  What the last look allocated, the
 * answer included, is gone after true: the current memory context is one for a single look then.
 */
extern bool wait_for_change(Wait *wait, const Answer *answer);

/* End a wait: call it when the last look has been taken; its answer stays until the caller's context goes. */
extern void wait_end(Wait *wait);

/* This transaction changed a claim: wake who waits for it, once it has committed; or forget about that. */
extern void wait_note(const pg_uuid_t *key);
extern void wait_wake_noted(void);
extern void wait_forget(void);

/* Ask for shared memory; called once, while the postmaster loads the library. */
extern void wait_request_memory(void);

#endif							/* IDEM_WAIT_H */
