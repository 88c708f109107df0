/*
 * model.h: a record as the transition table (src/state.c) says it moves, and what each call is then answered.
 *
 * Nothing here knows what the right answer is: state_decide tells.  What the model adds is the bookkeeping around
 * it: whose token is stored, which transaction has changed what, and who has to wait for whom.
 */
#ifndef INTERLEAVE_MODEL_H
#define INTERLEAVE_MODEL_H

#include <stdbool.h>

#include "state.h"

typedef enum OpKind
{
	OP_ACQUIRE,					/* with a fresh token */
	OP_AGAIN,					/* with the token used last */
	OP_COMMIT,
	OP_COMMIT_OTHER,			/* with another result */
	OP_FAIL,
	OP_FAIL_RETRYABLE,
	OP_RELEASE,
	OP_RENEW,
	OP_STATUS,
	OP_DONE,					/* an operator's verdicts, and with force */
	OP_FAILED,
	OP_RETRY,
	OP_DONE_FORCED,
	OP_FAILED_FORCED,
	OP_RETRY_FORCED,
	OP_PURGE,
	OP_LEASE_OVER,				/* time passes */
	OP_LAPSE,
	OP_EXPIRE,
	OP_UNDO,					/* only within transactions: back to the savepoint before the last call */
	OP_END,
	OP_ROLLBACK,
	OP_KINDS
} OpKind;

#define FIRST_OF_OPERATOR OP_STATUS
#define FIRST_OF_CLOCK OP_LEASE_OVER

/* Actors A and B hold tokens; the operator and the clock do not. */
#define OPERATOR 2

typedef struct Op
{
	unsigned char kind;
	unsigned char actor;
} Op;

typedef struct Record
{
	bool		exists;
	State		state;
	int			token;			/* whose hash is stored */
	int			attempt;
	int			result;			/* 0: none */
	bool		lease_over;
	bool		lapsed;
	bool		by_verdict;		/* an operator ended the grant: its holder holds it no longer */
} Record;

/* What one transaction has changed, and nobody else sees. */
typedef struct Change
{
	bool		made;
	Record		record;			/* as that transaction sees it */
	bool		open;			/* its claim is still open */
	bool		unseen;			/* and is visible to nobody yet */
} Change;

/* A token's number tells whose it is: 16 for each actor, the first of them held before any acquire. */
#define TOKENS_EACH 16

typedef struct World
{
	bool		deduplicates;	/* the downstream */
	bool		expired;		/* the fingerprint's time is past */
	Record		record;			/* as committed */
	int			token[2];		/* that each actor uses */
	int			fresh[2];		/* the last number given to each */
	int			brought;		/* the token that the last call brought */

	/* within transactions; never made by both at once */
	Change		change[2];
	Change		saved[2];		/* before the last call of each */

	/* REPEATABLE READ: how often the record had changed when the transaction took its snapshot, -1: none yet */
	bool		repeatable;
	int			commits;
	int			snapshot[2];
	bool		lapsed_then[2];
} World;

/* What a step is answered: text, the same that the server's answers are turned into. */
#define ANSWER_LENGTH 64

typedef enum Turn
{
	TURN_ANSWERED,
	TURN_WAITS					/* for the other's transaction */
} Turn;

extern const char *op_name(OpKind kind);
extern bool op_is_actors(OpKind kind);
extern void world_init(World *world, bool deduplicates);

/* One call outside any transaction block.  Tells whether the record was written. */
extern bool step_alone(World *world, Op op, char *answer);

/* One call within a transaction block of the actor's, the other's being open or not; also OP_END and OP_ROLLBACK. */
extern Turn step_within(World *world, Op op, char *answer);

/* Everything that later answers depend on, as a number: equal for equal situations. */
extern unsigned long world_situation(const World *world);

/* The record as a row of the server's is told. */
extern void tell_record(const Record *record, char *text);

#endif							/* INTERLEAVE_MODEL_H */
