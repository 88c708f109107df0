/*
 * client.c: a client's connections and calls.
 *
 * Each call is written to the history before it is made, and its answer when it comes.  What became of a transaction
 * is written as its own row: committed only where the server said so, unknown where the connection broke while COMMIT
 * was under way.
 */
#include <inttypes.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "client.h"

#define CLAIM_COLUMNS "outcome, key, owner, attempt, replayed, (result ->> 'token') || ':' || md5(result::text), " \
	"(extract(epoch FROM lease_until) * 1000000)::bigint"

const char *const scope_names[SCOPE_COUNT] = {
	"opaque", "queryable", "idempotent", "guarded", "local", "brief", "async"
};

bool
client_is(const Answer *answer, const char *text)
{
	return !answer->lost && strcmp(answer->text, text) == 0;
}

/* ----- connections ----- */

static PGconn *
connect_to(int port, const char *dbname, const char *options_text)
{
	char		conninfo[300];
	PGconn	   *db;

	snprintf(conninfo, sizeof(conninfo),
			 "host=127.0.0.1 port=%d dbname=%s connect_timeout=4 application_name=torture sslmode=disable gssencmode=disable options='%s'",
			 port, dbname, options_text);
	db = PQconnectdb(conninfo);
	(void) PQsetNoticeProcessor(db, be_silent, NULL);
	return db;
}

static void
drop(PGconn **db)
{
	PQfinish(*db);
	*db = NULL;
}

bool
client_connect(Client *client)
{
	for (int i = 0; i < 400 && !atomic_load(&shared->stop); i++)
	{
		if (client->db != NULL && PQstatus(client->db) == CONNECTION_OK)
			return true;
		drop(&client->db);
		/* a holder that stalls must not keep the others from the fast table for ever */
		client->db = connect_to(client->port, "torture",
								"-c client_min_messages=error -c idle_in_transaction_session_timeout=8000 -c lock_timeout=5000");
		if (PQstatus(client->db) == CONNECTION_OK)
			return true;
		nap_ms(20 + random_below(&client->random, 200));
	}
	return client->db != NULL && PQstatus(client->db) == CONNECTION_OK;
}

static void
call_begins(Client *client)
{
	atomic_store(&shared->call_since[client->slot], now_us());
	atomic_fetch_add(&shared->operations, 1);
}

static void
call_ends(Client *client)
{
	atomic_store(&shared->call_since[client->slot], 0);
}

/* ----- transactions ----- */

static void
note_end(Client *client, Fate fate)
{
	static const char *const names[] = {"aborted", "committed", "unknown"};
	Entry		entry = {.kind = 'T', .seq = client->seq, .txn = client->txn, .replayed = -1, .answer = names[fate],
	.asked = client->snapshot ? "snapshot" : NULL};

	history_write(&client->history, &entry);
	client->txn++;
	client->snapshot = false;
}

static bool
is_gone(Client *client)
{
	return client->db == NULL || PQstatus(client->db) != CONNECTION_OK;
}

/* The connection broke within a block: COMMIT was never sent, so nothing of it can have stayed. */
static void
block_is_lost(Client *client)
{
	if (!client->in_block)
		return;
	client->in_block = false;
	note_end(client, FATE_ABORTED);
}

/* Run a statement whose result does not matter; false where it failed. */
bool
client_run_sql(Client *client, const char *sql, int n, const char *const *values)
{
	PGresult   *result;
	bool		good;

	if (is_gone(client))
		return false;
	call_begins(client);
	result = PQexecParams(client->db, sql, n, NULL, values, NULL, NULL, 0);
	call_ends(client);
	good = PQresultStatus(result) == PGRES_COMMAND_OK || PQresultStatus(result) == PGRES_TUPLES_OK;
	PQclear(result);
	if (is_gone(client))
		block_is_lost(client);
	return good;
}

bool
client_begin(Client *client, bool durable)
{
	static const char *const begins[] = {"BEGIN ISOLATION LEVEL REPEATABLE READ", "BEGIN ISOLATION LEVEL SERIALIZABLE"};
	bool		snapshot = random_percent(&client->random, 15);

	if (!client_connect(client) ||
		!client_run_sql(client, snapshot ? begins[random_below(&client->random, 2)] : "BEGIN", 0, NULL))
		return false;
	client->in_block = true;
	client->snapshot = snapshot;
	if (durable && !client_run_sql(client, "SET LOCAL synchronous_commit = on", 0, NULL))
	{
		(void) client_end(client, false);
		return false;
	}
	return true;
}

Fate
client_end(Client *client, bool commit)
{
	PGresult   *result;
	Fate		fate = FATE_ABORTED;

	if (!client->in_block)
		return FATE_ABORTED;
	call_begins(client);
	result = PQexec(client->db, commit ? "COMMIT" : "ROLLBACK");
	call_ends(client);
	if (commit && PQresultStatus(result) == PGRES_COMMAND_OK && strcmp(PQcmdStatus(result), "COMMIT") == 0)
		fate = FATE_COMMITTED;
	else if (commit && is_gone(client))
		fate = FATE_UNKNOWN;
	else if (commit && PQresultStatus(result) == PGRES_FATAL_ERROR)
	{
		const char *sqlstate = PQresultErrorField(result, PG_DIAG_SQLSTATE);
		Entry		entry = {.kind = 'A', .seq = ++client->seq, .txn = client->txn, .call = "end", .replayed = -1,
		.answer = sqlstate == NULL ? "LOST" : sqlstate};

		/* an administrator's command may come after the commit, while it waits for a standby */
		if (sqlstate == NULL || strncmp(sqlstate, "57", 2) == 0)
			fate = FATE_UNKNOWN;
		history_write(&client->history, &entry);
	}
	PQclear(result);
	client->in_block = false;
	note_end(client, fate);
	return fate;
}

/* End a block in two steps.  Where the second is not answered, whoever clears up prepared transactions decides. */
Fate
client_prepare(Client *client, bool commit, int nap)
{
	char		sql[100];
	char		gid[40];
	Fate		fate = FATE_UNKNOWN;

	if (!client->in_block)
		return FATE_ABORTED;
	snprintf(gid, sizeof(gid), "t%d.%" PRIu64, client->history.client, client->txn);
	snprintf(sql, sizeof(sql), "PREPARE TRANSACTION '%s'", gid);
	client->in_block = false;
	if (!client_run_sql(client, sql, 0, NULL))
	{
		/* it may have been prepared all the same, unless the server said no */
		if (!is_gone(client))
			(void) client_run_sql(client, "ROLLBACK", 0, NULL);
		note_end(client, FATE_UNKNOWN);
		return FATE_UNKNOWN;
	}
	nap_ms(nap);
	snprintf(sql, sizeof(sql), "%s PREPARED '%s'", commit ? "COMMIT" : "ROLLBACK", gid);
	if (client_run_sql(client, sql, 0, NULL))
		fate = commit ? FATE_COMMITTED : FATE_ABORTED;
	note_end(client, fate);
	return fate;
}

void
client_undone(Client *client, uint64_t seq)
{
	Entry		entry = {.kind = 'U', .seq = seq, .txn = client->txn, .replayed = -1};

	history_write(&client->history, &entry);
}

/* ----- calls ----- */

static void
take(char *into, size_t size, PGresult *result, int column)
{
	snprintf(into, size, "%s", column < PQnfields(result) ? PQgetvalue(result, 0, column) : "");
}

static void
read_claim(PGresult *result, Answer *answer)
{
	take(answer->text, sizeof(answer->text), result, 0);
	if (PQnfields(result) < 7)
	{
		take(answer->result, sizeof(answer->result), result, 1);
		return;
	}
	take(answer->key, sizeof(answer->key), result, 1);
	take(answer->owner, sizeof(answer->owner), result, 2);
	answer->attempt = atoi(PQgetvalue(result, 0, 3));
	answer->replayed = PQgetvalue(result, 0, 4)[0] == 't';
	take(answer->result, sizeof(answer->result), result, 5);
	answer->lease = strtoll(PQgetvalue(result, 0, 6), NULL, 10);
	take(answer->fingerprint, sizeof(answer->fingerprint), result, 7);
}

/* Make a call whose intent is in the entry; the first column answered is the outcome or acknowledgement. */
static Answer
call(Client *client, Entry *entry, const char *sql, int n, const char *const *values)
{
	Answer		answer = {.seq = ++client->seq};
	PGresult   *result;

	entry->kind = 'I';
	entry->seq = answer.seq;
	entry->txn = client->txn;
	entry->replayed = -1;
	history_write(&client->history, entry);
	if (is_gone(client))
		answer.lost = true;
	else
	{
		call_begins(client);
		result = PQexecParams(client->db, sql, n, NULL, values, NULL, NULL, 0);
		call_ends(client);
		if (PQresultStatus(result) == PGRES_TUPLES_OK && PQntuples(result) == 1)
			read_claim(result, &answer);
		else
		{
			const char *sqlstate = PQresultErrorField(result, PG_DIAG_SQLSTATE);

			/* an administrator's command may come when the work is committed already */
			answer.error = true;
			answer.lost = sqlstate == NULL || strncmp(sqlstate, "57P", 3) == 0 || is_gone(client);
			snprintf(answer.text, sizeof(answer.text), "%s", sqlstate == NULL ? "LOST" : sqlstate);
		}
		PQclear(result);
	}
	entry->kind = 'A';
	entry->answer = answer.text[0] == '\0' ? "LOST" : answer.text;
	if (answer.key[0] != '\0')
		entry->key = answer.key;
	if (answer.owner[0] != '\0')
		entry->owner = answer.owner;
	entry->attempt = answer.attempt;
	entry->replayed = answer.replayed;
	entry->result = answer.result;
	entry->lease = answer.lease;
	history_write(&client->history, entry);
	if (client->in_block && is_gone(client))
		block_is_lost(client);
	else if (!client->in_block)
	{
		answer.fate = answer.lost ? FATE_UNKNOWN : answer.error ? FATE_ABORTED : FATE_COMMITTED;
		note_end(client, answer.fate);
	}
	return answer;
}

static const char *
params_of(const Op *op, char *room, size_t size, bool wrong)
{
	if (op->scope == SCOPE_GUARDED)
		snprintf(room, size, "{\"item\": %" PRIu64 ", \"amount\": %d}", op->item, wrong ? 2 : 1);
	else
		snprintf(room, size, "{\"op\": %" PRIu64 ", \"amount\": %d}", op->number, wrong ? 2 : 1);
	return room;
}

/* Lay an operation on the desk for everybody. */
static Op *
publish(const Op *op)
{
	Op		   *place = &shared->desk[op->number % DESK_SIZE];

	*place = *op;
	atomic_thread_fence(memory_order_seq_cst);
	atomic_store(&shared->published, op->number);
	return place;
}

Op *
client_preview(Client *client, Scope scope, uint64_t item, int expire_ms)
{
	Op			op = {.scope = scope, .door = BY_FINGERPRINT, .expires = INT64_MAX};
	Entry		entry = {.call = "sign", .op = &op};
	char		params[100];
	char		expire[24];
	const char *values[4] = {"agent", scope_names[scope], params, expire_ms > 0 ? expire : NULL};
	Answer		answer;

	op.number = atomic_fetch_add(&shared->next_op, 1);
	op.item = item != 0 ? item : op.number;
	params_of(&op, params, sizeof(params), false);
	snprintf(expire, sizeof(expire), "%d ms", expire_ms);
	if (scope != SCOPE_GUARDED && scope != SCOPE_BRIEF && random_percent(&client->random, 25))
	{
		const char *ask[4] = {"agent", scope_names[scope], params, NULL};
		char		number[24];

		op.door = random_percent(&client->random, 50) ? BY_CONTENT : BY_CLIENT_KEY;
		snprintf(number, sizeof(number), "%" PRIu64, op.number);
		ask[3] = op.door == BY_CLIENT_KEY ? number : NULL;
		answer = call(client, &entry, "SELECT 'SIGNED', idem_key($1, $2, $3::jsonb, $4), NULL, NULL, NULL, NULL, NULL", 4, ask);
	}
	else
		answer = call(client, &entry,
					  "SELECT 'SIGNED', (i).key, NULL, NULL, NULL, NULL, (extract(epoch FROM (i).expires_at) * 1000000)::bigint, fp FROM "
					  "(SELECT fp, idem_inspect(fp) AS i FROM (SELECT idem_sign($1, $2, $3::jsonb, clock_timestamp() + $4::interval) AS fp OFFSET 0) AS s OFFSET 0) AS t",
					  4, values);
	if (!client_is(&answer, "SIGNED"))
		return NULL;
	memcpy(op.key, answer.key, sizeof(op.key));
	memcpy(op.fingerprint, answer.fingerprint, sizeof(op.fingerprint));
	if (answer.lease > 0)
		op.expires = answer.lease;
	return publish(&op);
}

Answer
client_acquire(Client *client, const Op *op, const char *owner, int wait_ms, const char *asked)
{
	Entry		entry = {.call = "acquire", .op = op, .key = op->key, .owner = owner, .asked = asked};
	char		params[100];
	char		wait[24];
	char		number[24];
	const char *values[7] = {op->fingerprint,
		strcmp(asked, "subject") == 0 ? "stranger" : "agent",
		strcmp(asked, "scope") == 0 ? scope_names[(op->scope + 1) % SCOPE_COUNT] : scope_names[op->scope],
		params_of(op, params, sizeof(params), strcmp(asked, "params") == 0), wait, owner, "torture"};

	snprintf(wait, sizeof(wait), "%d ms", wait_ms);
	if (op->door == BY_FINGERPRINT)
		return call(client, &entry, "SELECT " CLAIM_COLUMNS
					" FROM idem_acquire($1, $2, $3, $4::jsonb, $5::interval, $6::uuid, $7)", 7, values);
	snprintf(number, sizeof(number), "%" PRIu64, op->number);
	values[0] = op->door == BY_CLIENT_KEY ? number : NULL;
	return call(client, &entry, "SELECT " CLAIM_COLUMNS
				" FROM idem_acquire_direct($2, $3, $4::jsonb, $1, $5::interval, $6::uuid, $7)", 7, values);
}

Answer
client_execute(Client *client, const Op *op)
{
	Entry		entry = {.call = "execute", .op = op, .key = op->key, .asked = "honest"};
	char		params[100];
	char		number[24];
	const char *values[4] = {scope_names[op->scope], params_of(op, params, sizeof(params), false),
		op->door == BY_FINGERPRINT ? op->fingerprint : NULL, op->door == BY_CLIENT_KEY ? number : NULL};

	snprintf(number, sizeof(number), "%" PRIu64, op->number);
	return call(client, &entry, "SELECT " CLAIM_COLUMNS
				" FROM idem_execute('agent', $1, $2::jsonb, 'torture.charge(jsonb)', $3, $4, '0.3 s')", 4, values);
}

Answer
client_status(Client *client, const Op *op)
{
	bool		by_key = op->door != BY_FINGERPRINT || random_percent(&client->random, 30);
	Entry		entry = {.call = "status", .op = op, .key = op->key, .asked = by_key ? "key" : "fingerprint"};
	const char *values[1] = {by_key ? op->key : op->fingerprint};

	return call(client, &entry, by_key ?
				"SELECT " CLAIM_COLUMNS " FROM idem_status_key($1::uuid, 'agent')" :
				"SELECT " CLAIM_COLUMNS " FROM idem_status($1, 'agent')", 1, values);
}

/* commit, fail, fail_retryable, release or renew; some results are long enough to be stored elsewhere */
Answer
client_finish(Client *client, const char *name, const Claim *claim, const char *token, const char *asked)
{
	Entry		entry = {.call = name, .op = &claim->op, .key = claim->key, .owner = claim->owner,
	.attempt = claim->attempt, .asked = asked, .result = token};
	char		result[200];
	const char *values[3] = {claim->key, claim->owner, result};
	const char *sql;
	int			n = 2;

	snprintf(result, sizeof(result), "{\"token\": \"%s\"}", token);
	if (strcmp(name, "release") == 0)
		sql = "SELECT idem_release($1::uuid, $2::uuid), NULL";
	else if (strcmp(name, "renew") == 0)
		sql = "SELECT idem_renew($1::uuid, $2::uuid), NULL";
	else
	{
		n = 3;
		sql = strcmp(name, "commit") == 0 ?
			"SELECT idem_commit($1::uuid, $2::uuid, r), (r ->> 'token') || ':' || md5(r::text) FROM (SELECT $3::text::jsonb || "
			"CASE WHEN hashtext($3::text) % 8 = 0 THEN jsonb_build_object('pad', (SELECT string_agg(md5(i::text), '') FROM generate_series(1, 200) AS i)) "
			"ELSE '{}'::jsonb END AS r OFFSET 0) AS s" :
			strcmp(name, "fail") == 0 ?
			"SELECT idem_fail($1::uuid, $2::uuid, r), (r ->> 'token') || ':' || md5(r::text) FROM (SELECT $3::jsonb AS r OFFSET 0) AS s" :
			"SELECT idem_fail($1::uuid, $2::uuid, r, true), (r ->> 'token') || ':' || md5(r::text) FROM (SELECT $3::jsonb AS r OFFSET 0) AS s";
	}
	return call(client, &entry, sql, n, values);
}

/* ----- the outside ----- */

static PGresult *
ask_outside(Client *client, const char *sql, int n, const char *const *values)
{
	PGresult   *result;

	if (client->outside == NULL || PQstatus(client->outside) != CONNECTION_OK)
	{
		drop(&client->outside);
		client->outside = connect_to(client->outside_port, "outside", "");
	}
	call_begins(client);
	result = PQexecParams(client->outside, sql, n, NULL, values, NULL, NULL, 0);
	call_ends(client);
	return result;
}

static void
note_effect(Client *client, const Claim *claim, const char *what, const char *answer)
{
	Entry		entry = {.kind = 'I', .seq = ++client->seq, .txn = 0, .call = what, .op = &claim->op, .key = claim->key,
	.owner = claim->owner, .attempt = claim->attempt, .answer = answer, .replayed = -1};

	history_write(&client->history, &entry);
}

void
client_send(Client *client, Claim *claim, bool decline)
{
	static const char *const kinds[] = {"o", "q", "i", "o"};
	char		attempt[12];
	char		not_after[24];
	const char *values[6] = {kinds[claim->op.scope], claim->key, attempt, claim->owner, not_after, decline ? "t" : "f"};
	PGresult   *result;

	snprintf(attempt, sizeof(attempt), "%d", claim->attempt);
	snprintf(not_after, sizeof(not_after), "%" PRId64, claim->lease);
	note_effect(client, claim, "send", NULL);
	result = ask_outside(client, "SELECT send($1, $2, $3, $4, $5, $6)", 6, values);
	claim->effect = EFFECT_UNKNOWN;
	if (PQresultStatus(result) == PGRES_TUPLES_OK)
	{
		take(claim->token, sizeof(claim->token), result, 0);
		claim->effect = strcmp(claim->token, "late") == 0 ? EFFECT_LATE :
			strcmp(claim->token, "declined") == 0 ? EFFECT_DECLINED : EFFECT_DONE;
	}
	note_effect(client, claim, "sent", claim->effect == EFFECT_UNKNOWN ? "LOST" : claim->token);
	PQclear(result);
}

void
client_look_up(Client *client, Claim *claim)
{
	char		attempt[12];
	const char *values[2] = {claim->key, attempt};
	PGresult   *result;

	snprintf(attempt, sizeof(attempt), "%d", claim->attempt);
	result = ask_outside(client, "SELECT look_up($1, $2)", 2, values);
	if (PQresultStatus(result) == PGRES_TUPLES_OK)
	{
		claim->effect = PQgetisnull(result, 0, 0) ? EFFECT_LATE : EFFECT_DONE;
		take(claim->token, sizeof(claim->token), result, 0);
		note_effect(client, claim, "look_up", claim->effect == EFFECT_DONE ? claim->token : "nothing");
	}
	PQclear(result);
}

/* ----- its life ----- */

void
client_run(int number, int slot, int port, int outside_port)
{
	static Client client;

	(void) prctl(PR_SET_PDEATHSIG, SIGKILL);
	(void) signal(SIGPIPE, SIG_IGN);
	client.slot = slot;
	client.random = random_of(options.seed, number);
	client.port = port;
	client.outside_port = outside_port;
	client.txn = 1;
	history_open(&client.history, number);
	while (!atomic_load(&shared->stop))
		if (client_connect(&client))
			flow(&client);
	PQfinish(client.db);
	PQfinish(client.outside);
	_exit(0);
}
