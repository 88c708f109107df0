/*
 * acquire.h: from a call's arguments to a grant, a replay or a refusal.
 */
#ifndef IDEM_ACQUIRE_H
#define IDEM_ACQUIRE_H

#include "claim.h"
#include "policy.h"

/* By which door a call comes, and so what names its operation. */
typedef enum Door
{
	DOOR_FINGERPRINT,			/* the nonce of a token that the server signed */
	DOOR_CONTENT,				/* the parameters */
	DOOR_CLIENT					/* a key of the client's */
} Door;

/* One acquire. */
typedef struct Request
{
	const char *function;		/* the SQL function's name, for messages */
	Door		door;
	Span		token;			/* where the call comes by one */
	pg_uuid_t	key;
	Span		scope;
	Span		subject;
	Jsonb	   *params;
	int32		version;		/* of the lists that param_hash was computed under */
	bool		immaterial;		/* nothing of params is material under them: nothing can begin */
	uint8		param_hash[SHA256_LENGTH];
	int32		lists_in_force; /* the version of the scope's own lists when a content key was made */
	TimestampTz expires_at;		/* DT_NOEND for a direct call */
	bool		confirmed_repeat;
	bool		has_peer;		/* this try's grant has left a row among its peers, */
	ItemPointerData peer;		/* here */
	const Policy *policy;		/* of the scope, as of now */
	bool		owner_given;	/* by the caller */
	bool		has_owner;		/* or made since, for a grant */
	pg_uuid_t	owner;
	uint8		owner_hash[SHA256_LENGTH];
	Span		holder;
	Span		trace_id;
	int64		wait;			/* microseconds */
} Request;

/* Verify a token and read it; false for a null, over-long or garbled one. */
extern bool fingerprint_read(Span token, Fingerprint *fingerprint);

/* The time in a token, as the server counts. */
extern TimestampTz fingerprint_expiry(const Fingerprint *fingerprint);

/*
 * Make a request of a token.  Returns false, with the refusal in *answer and an alert raised where one is due,
 * for a token that is not good for this subject, scope and parameters.
 */
extern bool request_by_fingerprint(Request *request, Span token, Answer *answer);

/*
 * Something was waited for: take the scope's policy as it is now, and verify the token again.  Returns false, with the
 * refusal in *answer, for one whose secret verifies no more.
 */
extern bool request_refresh(Request *request, Answer *answer);

/* Another try begins: a call that comes by its content chooses its key anew. */
extern void request_choose_again(Request *request);

/*
 * Make a request of a direct call.  Raises 22023 where nothing of the parameters is material, but for a client's
 * key leaves that until a grant is to be made: what it began under other lists is still its own.
 */
extern void request_direct(Request *request, Span client_key);

/* Raise 22023: the parameters bind the operation to nothing. */
extern void request_refuse_immaterial(void) pg_attribute_noreturn();

/* The caller's token for the attempt, or NULL. */
extern void request_owner(Request *request, const pg_uuid_t *owner);

/*
 * No token: the call that acquires also finishes.  The claim's hash is one that no token has, so that nobody else
 * can act on it.
 */
extern void request_without_owner(Request *request);

/* A grant will be made: see that there is a token.  Replays need none, and it costs random bytes and a hash. */
extern void request_need_owner(Request *request);

/*
 * Acquire.  Raises 55000 for a grant that policy forbids, 22023 for a token used before, 25006 where nothing can be
 * written, 40001 for a grant that the transaction's snapshot conflicts with.
 */
extern void acquire(Request *request, Answer *answer);

#endif							/* IDEM_ACQUIRE_H */
