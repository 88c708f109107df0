/*
 * peer.h: which operations have equal content: the rows that the repeat guard goes by.
 *
 * A row says that an operation, by its key, was granted with the content that a guard key stands for.  Rows are inserted
 * and deleted, never updated, so that a dirty scan sees every row that was there when it began.
 */
#ifndef IDEM_PEER_H
#define IDEM_PEER_H

#include "store.h"

/* Where a row of another operation stands. */
typedef enum PeerState
{
	PEER_STANDS,				/* committed, or this transaction's own */
	PEER_OPEN,					/* its transaction is open, and it holds */
	PEER_DECIDING				/* its insertion is neither confirmed nor withdrawn yet */
} PeerState;

typedef struct Peer
{
	PeerState	state;
	pg_uuid_t	operation;
	ItemPointerData tid;
	TransactionId rival;		/* whose row it is, where that transaction is open */
	uint32		speculation;	/* of its insertion, while that is undecided */
} Peer;

/* Looks at one row; returns false to see no more of them. */
typedef bool (*PeerVisitor) (const Peer *peer, void *arg);

/* Open idem_peer; raises as store_open does. */
extern void peer_open(Store *peers, LOCKMODE lock);

/*
 * Insert the row of a grant speculatively: store_confirm or store_withdraw decides.  Returns false where the same
 * operation's row of the same moment stands there: try again.
 */
extern bool peer_place(Store *peers, const pg_uuid_t *guard, const pg_uuid_t *operation, ItemPointer tid);

/*
 * Show all rows under a guard key, committed or not, the greatest operation key first, but for those of one operation.
 * Waits for nobody, and goes by no snapshot.  Returns false where the visitor wanted to see no more.
 */
extern bool peer_visit(Store *peers, const pg_uuid_t *guard, const pg_uuid_t *but, PeerVisitor visit, void *arg);

/* Delete a row that stands, without waiting; false where somebody else is doing that. */
extern bool peer_delete(Store *peers, ItemPointer tid);

/* Delete all rows of an operation that stand, without waiting; costs nothing where the table is empty. */
extern void peer_forget(Store *peers, const pg_uuid_t *operation);

extern const Layout peer_layout;

#endif							/* IDEM_PEER_H */
