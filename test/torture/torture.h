/*
 * torture.h: what the parts of the rig share.
 *
 * One controller (main.c) starts two servers: the one under test, and the "outside", which no fault ever touches and
 * which stands for the receiver of the effects.  It forks the clients, a proxy between them and both servers, and an
 * operator; its own loop is the killer.  All choices come from generators seeded by the run's seed and the role's
 * number, so that a seed repeats the schedule as far as the operating system allows.
 *
 * Clients share nothing but the desk: operations that have been previewed, for all of them to fight over.
 */
#ifndef TORTURE_H
#define TORTURE_H

#include <libpq-fe.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>

#define MAX_CLIENTS 64
#define DESK_SIZE 65536			/* operations; only the latest few are taken up, so none is overwritten while in use */
#define UUID_TEXT 37
#define NUL "\\N"				/* as COPY writes a null */

typedef enum Scope
{
	SCOPE_OPAQUE,
	SCOPE_QUERYABLE,
	SCOPE_IDEMPOTENT,
	SCOPE_GUARDED,				/* opaque, with a repeat guard */
	SCOPE_LOCAL,
	SCOPE_BRIEF,				/* local, and soon expired, lapsed and purged */
	SCOPE_ASYNC,				/* local, its commits not flushed */
	SCOPE_COUNT
} Scope;

extern const char *const scope_names[SCOPE_COUNT];

typedef enum Door
{
	BY_FINGERPRINT,
	BY_CONTENT,
	BY_CLIENT_KEY
} Door;

/* One operation, as somebody previewed it. */
typedef struct Op
{
	uint64_t	number;
	uint64_t	item;			/* what it is about: equal for previews made again */
	Scope		scope;
	Door		door;
	int64_t		expires;		/* microseconds since 1970; INT64_MAX: never */
	char		key[UUID_TEXT];
	char		fingerprint[512];
} Op;

typedef enum Fault
{
	FAULT_CLIENT_KILLED,
	FAULT_CLIENT_STALLED,
	FAULT_BACKEND_TERMINATED,
	FAULT_BACKEND_CANCELLED,
	FAULT_BACKEND_KILLED,
	FAULT_IMMEDIATE_SHUTDOWN,
	FAULT_POSTMASTER_KILLED,
	FAULT_POWER_CUT,
	FAULT_PROMOTED,
	FAULT_FAST_TRUNCATED,
	FAULT_FAST_LOCKED,
	FAULT_FAST_REWRITTEN,
	FAULT_FAST_PATH_SWITCHED,
	FAULT_SECRET_ROTATED,
	FAULT_SECRET_REVOKED,
	FAULT_PURGED,
	FAULT_REPLY_DROPPED,
	FAULT_REQUEST_DROPPED,
	FAULT_DELAYED,
	FAULT_COUNT
} Fault;

extern const char *const fault_names[FAULT_COUNT];

/* In memory that all processes share. */
typedef struct Shared
{
	_Atomic bool stop;			/* clients end their present flow and exit */
	_Atomic bool calm;			/* no faults by the proxy */
	_Atomic bool settle;		/* the operator gives every verdict that is due */
	_Atomic uint64_t next_op;
	_Atomic uint64_t first_op;	/* of this round */
	_Atomic uint64_t published;
	_Atomic uint64_t faults[FAULT_COUNT];
	_Atomic uint64_t operations;
	_Atomic int64_t call_since[MAX_CLIENTS];	/* 0: not in a call */
	Op			desk[DESK_SIZE];
} Shared;

typedef struct Options
{
	int			seconds;
	int			round;			/* seconds of one round */
	int			clients;
	uint64_t	seed;
	bool		standby;
	const char *folder;			/* everything is kept under it */
	const char *source;			/* of the rig: its SQL scripts */
} Options;

extern Options options;
extern Shared *shared;

/* random.c */
typedef struct Random
{
	uint64_t	state;
} Random;

extern Random random_of(uint64_t seed, uint64_t role);
extern uint64_t random_next(Random *random);
extern uint64_t random_below(Random *random, uint64_t limit);
extern bool random_percent(Random *random, double percent);
extern void random_uuid(Random *random, char *text);
extern int64_t now_us(void);
extern void nap_ms(int64_t milliseconds);

/* history.c: append-only, one row for COPY at a time; unknown values are NULL, 0 or -1 */
typedef struct Entry
{
	char		kind;			/* I intent, A answer, T a transaction's end, U a call undone by a savepoint */
	uint64_t	seq;
	uint64_t	txn;
	const char *call;
	const Op   *op;
	const char *key;
	int			attempt;
	const char *owner;
	const char *asked;
	const char *answer;
	int			replayed;
	const char *result;
	int64_t		lease;
} Entry;

typedef struct History
{
	int			fd;
	int			client;
} History;

extern void history_open(History *history, int client);
extern void history_write(History *history, const Entry *entry);

/* server.c */
typedef struct Server
{
	char		folder[256];	/* of the data directory and the socket */
	pid_t		pid;
	int			number;
} Server;

typedef enum Crash
{
	CRASH_IMMEDIATE,
	CRASH_POSTMASTER,
	CRASH_POWER
} Crash;

extern void server_make(Server *server, int number, const char *settings);
extern void server_start(Server *server);
extern void server_stop(Server *server);
extern void server_crash(Server *server, Crash kind);
extern bool server_alive(Server *server);
extern void be_silent(void *arg, const char *message);	/* what libpq is told that nobody asked for */
extern PGconn *server_connect(const Server *server, const char *dbname);
extern void server_clone(Server *standby, const Server *primary);
extern void server_promote(Server *standby);
extern void reap(void);
extern void fatal(const char *format,...) __attribute__((format(printf, 1, 2), noreturn));
extern void say(const char *format,...) __attribute__((format(printf, 1, 2)));

/* proxy.c: what listens is made before the fork */
extern int	proxy_listen(int *port);
extern void proxy_run(const int listeners[2], const char *const sockets[2]) __attribute__((noreturn));

/* client.c, flows.c */
extern void client_run(int number, int slot, int port, int outside_port) __attribute__((noreturn));

/* operator.c */
extern void operator_run(int number, const char *inside, const char *outside) __attribute__((noreturn));

/* killer.c */
typedef struct Clients
{
	int			count;
	int			made;			/* so many were ever started */
	pid_t		pid[MAX_CLIENTS];
	int64_t		stalled_until[MAX_CLIENTS];
	int			port;
	int			outside_port;
} Clients;

extern void clients_start(Clients *clients, int slot);
extern void clients_tend(Clients *clients);
extern void killer_strike(Clients *clients, Server *inside, Server *standby, Random *random, History *history);
extern void killer_calm(Server *inside);
extern void killer_clear_prepared(Server *inside, int seconds, Random *random);

/* An error that ends in exit(1) of this process; with PGconn the server's words. */
extern PGresult *must(PGconn *db, const char *sql);

#endif							/* TORTURE_H */
