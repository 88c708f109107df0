/*
 * server.h: the calls of the model, made of a real server.
 *
 * The database is this program's alone while it runs: it sets the policies of its scopes, and empties
 * idem_record.  Errors that are no answers end the program.
 */
#ifndef INTERLEAVE_SERVER_H
#define INTERLEAVE_SERVER_H

#include <libpq-fe.h>

#include "model.h"

#define SLOTS 512				/* operations that may be under way at once */

typedef enum Door
{
	DOOR_FINGERPRINT,
	DOOR_CONTENT,
	DOOR_CLIENT,
	DOORS
} Door;

/* One operation. */
typedef struct Target
{
	int			slot;
	Door		door;
	const char *scope;
	char		params[32];
	char		key[37];
	char		fingerprint[512];
	char		late_fingerprint[512];	/* the same, but past its time */
} Target;

extern void die(const char *format,...) __attribute__((format(printf, 1, 2), noreturn));

/* The scope for a downstream, of several that are the same to the table. */
extern const char *server_scope(bool deduplicates, int n);

extern void server_set_up(void);
extern PGconn *server_connect(void);

/* Run a command that must succeed, in whatever state the connection is. */
extern PGresult *server_run(PGconn *conn, const char *command);

/* Name n operations: their scopes and slots are given, the rest is made, all of them new. */
extern void server_name_targets(PGconn *conn, Target *targets, int n);

/* Send a call; its answer is the next result of the connection. */
extern void server_send(PGconn *conn, const Target *target, Op op, int token, bool expired);

/* A result as the model tells it: what was returned, or a SQLSTATE. */
extern void server_answer(PGresult *result, char *answer);

/* The rows of idem_record: slot, the text of tell_record, version. */
extern PGresult *server_records(PGconn *conn);

/* What tell_record tells of one operation's row. */
extern PGresult *server_record(PGconn *conn, const Target *target);

/* Delete one operation's row. */
extern void server_forget(PGconn *conn, const Target *target);

/* Put a record where the model has one. */
extern void server_put_record(PGconn *conn, const Target *target, const Record *record, bool deduplicates);

#endif							/* INTERLEAVE_SERVER_H */
