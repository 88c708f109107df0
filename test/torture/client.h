/*
 * client.h: one client's connections, its calls, and what it remembers.
 */
#ifndef CLIENT_H
#define CLIENT_H

#include "torture.h"

#define MAX_HELD 24
#define MAX_OPEN 24

/* How a transaction ended, as far as its client knows. */
typedef enum Fate
{
	FATE_ABORTED,
	FATE_COMMITTED,
	FATE_UNKNOWN
} Fate;

/* What was answered. */
typedef struct Answer
{
	bool		lost;			/* no answer: the connection broke */
	bool		error;
	char		text[24];		/* outcome, acknowledgement, or SQLSTATE */
	char		key[UUID_TEXT];
	char		owner[UUID_TEXT];
	int			attempt;
	bool		replayed;
	char		fingerprint[512];
	char		result[128];	/* its token, and a digest of all of it */
	int64_t		lease;
	uint64_t	seq;			/* of the call */
	Fate		fate;			/* of a call outside a transaction block */
} Answer;

typedef enum Effect
{
	EFFECT_NOT_SENT,
	EFFECT_DONE,
	EFFECT_DECLINED,
	EFFECT_LATE,
	EFFECT_UNKNOWN
} Effect;

/* A grant that this client holds, or held. */
typedef struct Claim
{
	Op			op;
	char		key[UUID_TEXT];
	char		owner[UUID_TEXT];
	int			attempt;
	int64_t		lease;
	Effect		effect;
	char		token[64];
	int64_t		since;
} Claim;

typedef struct Client
{
	int			slot;
	Random		random;
	History		history;
	PGconn	   *db;
	PGconn	   *outside;
	int			port;
	int			outside_port;
	bool		in_block;
	bool		snapshot;		/* in one of a stricter isolation level, which 40001 belongs to */
	uint64_t	seq;
	uint64_t	txn;
	Claim		held[MAX_HELD];
	int			nheld;
	Op			open[MAX_OPEN];	/* operations that were at work when last asked for */
	unsigned	nopen;
} Client;

extern bool client_is(const Answer *answer, const char *text);
extern bool client_connect(Client *client);
extern bool client_begin(Client *client, bool durable);
extern Fate client_end(Client *client, bool commit);
extern Fate client_prepare(Client *client, bool commit, int nap);
extern bool client_run_sql(Client *client, const char *sql, int n, const char *const *values);
extern void client_undone(Client *client, uint64_t seq);

/* Sign an operation and lay it on the desk; returns NULL where that failed. */
extern Op  *client_preview(Client *client, Scope scope, uint64_t item, int expire_ms);
extern Answer client_acquire(Client *client, const Op *op, const char *owner, int wait_ms, const char *asked);
extern Answer client_execute(Client *client, const Op *op);
extern Answer client_status(Client *client, const Op *op);
extern Answer client_finish(Client *client, const char *call, const Claim *claim, const char *token, const char *asked);

/* Send the effect, or ask what became of it. */
extern void client_send(Client *client, Claim *claim, bool decline);
extern void client_look_up(Client *client, Claim *claim);

/* flows.c: one thing that a client does. */
extern void flow(Client *client);

#endif							/* CLIENT_H */
