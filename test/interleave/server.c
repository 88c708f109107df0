/*
 * server.c: see server.h.
 */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "server.h"

static const char *const set_up[] = {
	"SET client_min_messages = warning",
	"SELECT idem_import_secret('\\x000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f')",
	"INSERT INTO idem_policy (scope, downstream) VALUES ('iv.idempotent', 'idempotent'), ('iv.opaque', 'opaque'), "
	"('iv.queryable', 'queryable') ON CONFLICT DO NOTHING",
	"TRUNCATE idem_record, idem_peer, idem_alert",
	"DROP SCHEMA IF EXISTS interleave CASCADE",
	"CREATE SCHEMA interleave",
	"CREATE SEQUENCE interleave.number",
	"CREATE TABLE interleave.token AS SELECT digest(uuid_send((lpad(to_hex(slot), 8, '0') || '-0000-4000-8000-0000000000'"
	" || lpad(to_hex(id), 2, '0'))::uuid), 'sha256') AS hash, slot, id FROM generate_series(0, 511) AS slot, generate_series(0, 31) AS id",
	"CREATE INDEX ON interleave.token (hash)",
	"ANALYZE interleave.token",
	"CREATE FUNCTION interleave.b64(bytes bytea) RETURNS text LANGUAGE sql IMMUTABLE AS "
	"$$ SELECT translate(encode(bytes, 'base64'), E'+/=\\n', '-_') $$",
	"CREATE FUNCTION interleave.mint(n uuid, late bool, scope text, params jsonb) RETURNS text LANGUAGE sql AS $$ "
	"SELECT p || '.' || interleave.b64(hmac(convert_to(p, 'UTF8'), "
	"'\\x000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f', 'sha256')) "
	"FROM interleave.b64(convert_to(format('{\"n\":\"%s\",\"exp\":%s,\"u\":\"alice\",\"s\":\"%s\",\"p\":\"%s\"}', n, "
	"CASE WHEN late THEN 1000000000 ELSE 4102444800 END, scope, interleave.b64(idem_param_hash(scope, params))), 'UTF8')) AS p $$",
	"CREATE FUNCTION interleave.name(door int, scope text, OUT n bigint, OUT params jsonb, OUT key uuid, OUT fresh text, OUT late text) "
	"LANGUAGE plpgsql AS $$ BEGIN n := nextval('interleave.number'); params := jsonb_build_object('n', n); "
	"IF door = 0 THEN key := format('0192f0c1-%s-7000-8000-%s', lpad(to_hex(n & 65535), 4, '0'), lpad(to_hex(n), 12, '0')); "
	"fresh := interleave.mint(key, false, scope, params); late := interleave.mint(key, true, scope, params); "
	"ELSE key := idem_key('alice', scope, params, CASE door WHEN 2 THEN n::text END); END IF; END $$",
	"CREATE FUNCTION interleave.tell(c idem_claim, mine uuid) RETURNS text LANGUAGE sql STABLE AS $$ "
	"SELECT concat(c.outcome, '|', c.attempt, CASE WHEN c.replayed THEN '|t|' ELSE '|f|' END, c.result ->> 'r', '|', "
	"CASE WHEN c.owner = mine THEN 't' WHEN c.owner IS NOT NULL THEN 'other' END, CASE WHEN c.joined THEN '|joined' END) $$",
	"CREATE FUNCTION interleave.tell(r idem_record) RETURNS text LANGUAGE sql VOLATILE AS $$ "
	"SELECT concat(r.state, '|', r.attempt, '|', r.result ->> 'r', '|', "
	"(SELECT t.id FROM interleave.token AS t WHERE t.hash = r.owner_hash AND t.slot::text = r.trace_id), '|', "
	"CASE WHEN r.state = 'I' AND r.lease_until <= clock_timestamp() THEN 'over' END, '|', "
	"CASE WHEN r.retained_until <= clock_timestamp() THEN 'lapsed' END, '|', "
	"CASE WHEN r.state <> 'I' AND r.reconciled_at = r.finished_at THEN 'verdict' END) $$",
};

static const struct
{
	const char *name;
	int			nparams;
	const char *text;
}			statements[] = {
	/* $1 fingerprint, params or key, $2 scope, $3 owner, $4 slot */
	{"acquire0", 5, "SELECT interleave.tell(c, $3::uuid) FROM idem_acquire($1, 'alice', $2, $5::jsonb, owner => $3::uuid, trace_id => $4) AS c"},
	{"acquire1", 5, "SELECT interleave.tell(c, $3::uuid) FROM idem_acquire_direct('alice', $2, $5::jsonb, owner => $3::uuid, trace_id => $4) AS c WHERE $1::text IS NOT NULL"},
	{"acquire2", 5, "SELECT interleave.tell(c, $3::uuid) FROM idem_acquire_direct('alice', $2, $5::jsonb, $5::jsonb ->> 'n', owner => $3::uuid, trace_id => $4) AS c WHERE $1::text IS NOT NULL"},
	{"status0", 1, "SELECT interleave.tell(c, NULL) FROM idem_status($1, 'alice') AS c"},
	{"status1", 1, "SELECT interleave.tell(c, NULL) FROM idem_status_key($1::uuid, 'alice') AS c"},
	{"commit", 3, "SELECT idem_commit($1::uuid, $2::uuid, $3::jsonb)"},
	{"fail", 3, "SELECT idem_fail($1::uuid, $2::uuid, $3::jsonb)"},
	{"retryable", 3, "SELECT idem_fail($1::uuid, $2::uuid, $3::jsonb, true)"},
	{"release", 2, "SELECT idem_release($1::uuid, $2::uuid)"},
	{"renew", 2, "SELECT idem_renew($1::uuid, $2::uuid)"},
	{"verdict", 4, "SELECT idem_reconcile($1::uuid, $2, 'looked', $3::jsonb, force => $4::bool)"},
	{"purge", 0, "SELECT idem_purge()"},
	{"over", 1, "UPDATE idem_record SET lease_until = '2020-01-01' WHERE key = $1::uuid AND state = 'I' AND lease_until > clock_timestamp()"},
	{"lapse", 1, "UPDATE idem_record SET retained_until = '2020-01-01' WHERE key = $1::uuid AND state <> 'I' AND retained_until > clock_timestamp()"},
	{"nothing", 0, "SELECT ''"},
	{"name", 2, "SELECT n, params, key, fresh, late FROM interleave.name($1::int, $2)"},
	{"records", 0, "SELECT r.trace_id, interleave.tell(r), r.xmin || ' ' || r.ctid FROM idem_record AS r"},
	{"record", 1, "SELECT coalesce((SELECT interleave.tell(r) FROM idem_record AS r WHERE r.key = $1::uuid), 'no record') "
		"|| coalesce((SELECT ' fast' FROM idem_fast AS f WHERE f.key = $1::uuid), '')"},
	{"forget", 1, "DELETE FROM idem_record WHERE key = $1::uuid"},
	{"put", 11, "INSERT INTO idem_record (key, acquired_at, lease_until, policy_version, attempt, state, downstream, param_hash, owner_hash, "
		"scope, subject, expires_at, retained_until, finished_at, result, reconciled_at, trace_id) "
		"SELECT $1::uuid, now(), CASE WHEN $2::bool THEN '2020-01-01' ELSE now() + '1 day' END, 0, $3::int, $4::\"char\", $5::\"char\", "
		"idem_param_hash($6, $7::jsonb), digest(uuid_send($8::uuid), 'sha256'), $6, 'alice', '2100-01-01', "
		"CASE WHEN $4 = 'I' THEN 'infinity' WHEN $9::bool THEN '2020-01-01' ELSE '2100-01-02' END::timestamptz, "
		"CASE WHEN $4 <> 'I' THEN now() END, CASE WHEN $10 <> '0' THEN jsonb_build_object('r', $10::int) END, "
		"CASE WHEN $11 LIKE 'v%' THEN now() END, ltrim($11, 'v')"},
};

#define NSTATEMENTS ((int) (sizeof(statements) / sizeof(statements[0])))

void
die(const char *format,...)
{
	va_list		args;

	va_start(args, format);
	vfprintf(stderr, format, args);
	va_end(args);
	fputc('\n', stderr);
	exit(2);
}

const char *
server_scope(bool deduplicates, int n)
{
	return deduplicates ? "iv.idempotent" : n % 2 == 0 ? "iv.opaque" : "iv.queryable";
}

PGresult *
server_run(PGconn *conn, const char *command)
{
	PGresult   *result = PQexec(conn, command);
	ExecStatusType status = PQresultStatus(result);

	if (status != PGRES_TUPLES_OK && status != PGRES_COMMAND_OK)
		die("%s: %s", command, PQerrorMessage(conn));
	return result;
}

static PGconn *
connect_bare(void)
{
	/* the server is where the environment says */
	PGconn	   *conn = PQconnectdb("options='-c jit=off -c log_min_messages=error'");

	if (PQstatus(conn) != CONNECTION_OK)
		die("%s", PQerrorMessage(conn));
	return conn;
}

void
server_set_up(void)
{
	PGconn	   *conn = connect_bare();

	for (size_t i = 0; i < sizeof(set_up) / sizeof(set_up[0]); i++)
		PQclear(server_run(conn, set_up[i]));
	PQfinish(conn);
}

PGconn *
server_connect(void)
{
	PGconn	   *conn = connect_bare();

	for (int i = 0; i < NSTATEMENTS; i++)
	{
		PGresult   *result = PQprepare(conn, statements[i].name, statements[i].text, 0, NULL);

		if (PQresultStatus(result) != PGRES_COMMAND_OK)
			die("%s: %s", statements[i].name, PQerrorMessage(conn));
		PQclear(result);
	}
	return conn;
}

static int
number_of_params(const char *name)
{
	for (int i = 0; i < NSTATEMENTS; i++)
		if (strcmp(statements[i].name, name) == 0)
			return statements[i].nparams;
	die("no statement %s", name);
}

static void
send_prepared(PGconn *conn, const char *name, const char *const *values)
{
	if (!PQsendQueryPrepared(conn, name, number_of_params(name), values, NULL, NULL, 0))
		die("%s: %s", name, PQerrorMessage(conn));
}

static PGresult *
run_prepared(PGconn *conn, const char *name, const char *const *values)
{
	PGresult   *result = PQexecPrepared(conn, name, number_of_params(name), values, NULL, NULL, 0);
	ExecStatusType status = PQresultStatus(result);

	if (status != PGRES_TUPLES_OK && status != PGRES_COMMAND_OK)
		die("%s: %s", name, PQerrorMessage(conn));
	return result;
}

void
server_name_targets(PGconn *conn, Target *targets, int n)
{
	for (int i = 0; i < n; i++)
	{
		Target	   *target = &targets[i];
		char		door[4];
		PGresult   *result;

		sprintf(door, "%d", target->door);
		result = run_prepared(conn, "name", (const char *[]) {door, target->scope});
		snprintf(target->params, sizeof(target->params), "%s", PQgetvalue(result, 0, 1));
		snprintf(target->key, sizeof(target->key), "%s", PQgetvalue(result, 0, 2));
		snprintf(target->fingerprint, sizeof(target->fingerprint), "%s", PQgetvalue(result, 0, 3));
		snprintf(target->late_fingerprint, sizeof(target->late_fingerprint), "%s", PQgetvalue(result, 0, 4));
		PQclear(result);
	}
}

static void
tell_token(const Target *target, int token, char *text)
{
	sprintf(text, "%08x-0000-4000-8000-0000000000%02x", (unsigned) target->slot, (unsigned) token);
}

static void
send_acquire(PGconn *conn, const Target *target, const char *token, bool expired)
{
	const char *fingerprint = expired ? target->late_fingerprint : target->fingerprint;
	char		name[] = "acquire0";
	char		slot[16];

	name[7] += target->door;
	sprintf(slot, "%d", target->slot);
	send_prepared(conn, name, (const char *[]) {fingerprint, target->scope, token, slot, target->params});
}

static void
send_status(PGconn *conn, const Target *target, bool expired)
{
	const char *fingerprint = expired ? target->late_fingerprint : target->fingerprint;

	if (target->door == DOOR_FINGERPRINT)
		send_prepared(conn, "status0", &fingerprint);
	else
		send_prepared(conn, "status1", (const char *[]) {target->key});
}

static void
send_verdict(PGconn *conn, const Target *target, OpKind kind)
{
	static const char *const verdicts[] = {"DONE", "FAILED", "RETRY"};
	int			verdict = (kind - OP_DONE) % 3;

	send_prepared(conn, "verdict", (const char *[]) {
		target->key, verdicts[verdict], verdict == 2 ? NULL : "{\"r\": 1}", kind >= OP_DONE_FORCED ? "t" : "f"
	});
}

void
server_send(PGconn *conn, const Target *target, Op op, int token, bool expired)
{
	static const char *const names[OP_KINDS] = {
		[OP_COMMIT] = "commit",
		[OP_COMMIT_OTHER] = "commit",
		[OP_FAIL] = "fail",
		[OP_FAIL_RETRYABLE] = "retryable",
		[OP_RELEASE] = "release",
		[OP_RENEW] = "renew",
		[OP_PURGE] = "purge",
		[OP_LEASE_OVER] = "over",
		[OP_LAPSE] = "lapse",
		[OP_EXPIRE] = "nothing",
	};
	char		owner[40];

	tell_token(target, token, owner);
	if (op.kind == OP_ACQUIRE || op.kind == OP_AGAIN)
		send_acquire(conn, target, owner, expired);
	else if (op.kind == OP_STATUS)
		send_status(conn, target, expired);
	else if (names[op.kind] == NULL)
		send_verdict(conn, target, op.kind);
	else
		send_prepared(conn, names[op.kind], (const char *[]) {
			target->key, owner, op.kind == OP_COMMIT_OTHER ? "{\"r\": 2}" : "{\"r\": 1}"
		});
}

void
server_answer(PGresult *result, char *answer)
{
	switch (PQresultStatus(result))
	{
		case PGRES_TUPLES_OK:
			snprintf(answer, ANSWER_LENGTH, "%s", PQntuples(result) == 1 ? PQgetvalue(result, 0, 0) : "no row");
			break;
		case PGRES_COMMAND_OK:
			answer[0] = '\0';
			break;
		default:
			snprintf(answer, ANSWER_LENGTH, "%s", PQresultErrorField(result, PG_DIAG_SQLSTATE) == NULL ?
					 PQresultErrorMessage(result) : PQresultErrorField(result, PG_DIAG_SQLSTATE));
	}
}

PGresult *
server_records(PGconn *conn)
{
	return run_prepared(conn, "records", NULL);
}

PGresult *
server_record(PGconn *conn, const Target *target)
{
	return run_prepared(conn, "record", (const char *[]) {target->key});
}

void
server_forget(PGconn *conn, const Target *target)
{
	PQclear(run_prepared(conn, "forget", (const char *[]) {target->key}));
}

void
server_put_record(PGconn *conn, const Target *target, const Record *record, bool deduplicates)
{
	char		attempt[16];
	char		state[2] = {record->state, '\0'};
	char		owner[40];
	char		result[16];
	char		slot[16];

	sprintf(attempt, "%d", record->attempt);
	sprintf(result, "%d", record->result);
	sprintf(slot, "%s%d", record->by_verdict ? "v" : "", target->slot);
	tell_token(target, record->token, owner);
	PQclear(run_prepared(conn, "put", (const char *[]) {
		target->key, record->lease_over ? "t" : "f", attempt, state, deduplicates ? "i" : "o", target->scope,
		target->params, owner, record->lapsed ? "t" : "f", result, slot
	}));
}
