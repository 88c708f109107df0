-- Fingerprints: field cases of group E that sql/fingerprint.sql and sql/secret.sql do not show (test/CASES.md is the index).
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS idem CASCADE;
RESET client_min_messages;
CREATE SCHEMA idem_test_cases_e;
SET search_path = idem_test_cases_e, public;

-- P3, E02: a hundred thousand fingerprints as they are issued, every payload length, subjects in several scripts:
-- one alphabet, no padding, no line break, one full stop, and each says what it was signed for
SELECT count(*) AS issued, count(DISTINCT token) = count(*) AS all_differ, count(DISTINCT length(split_part(token, '.', 1)) % 4) AS lengths,
		bool_and(token ~ '^[A-Za-z0-9_-]+\.[A-Za-z0-9_-]{43}$') AS well_formed, bool_and(i.valid AND i.subject = t.subject AND i.scope = 'cases e') AS all_verify
	FROM (SELECT s.subject, idem_sign(s.subject, 'cases e', to_jsonb(n)) AS token
			FROM generate_series(1, 100000) AS n,
				LATERAL (SELECT repeat((ARRAY['a', 'é', '汉', '😀', 'Ω', '"', E'\\', E'\n', '~?'])[n % 9 + 1], n % 13 + 1) || n AS subject) AS s) AS t,
		LATERAL idem_inspect(t.token) AS i;

-- P7, P11, E03: a forged token is INVALID before any table of claims is looked at, whatever else is wrong with it
CREATE FUNCTION looks() RETURNS bigint LANGUAGE sql AS $$
SELECT coalesce(sum(coalesce(seq_scan, 0) + coalesce(idx_scan, 0) + n_tup_ins + n_tup_upd), 0)::bigint FROM pg_stat_xact_user_tables
	WHERE relid IN ('idem_record'::regclass, 'idem_fast'::regclass, 'idem_alert'::regclass)
$$;
SELECT idem_sign('alice', 'cases e', '{"n": 1}') AS good \gset
SELECT left(:'good', -1) || CASE WHEN right(:'good', 1) = 'A' THEN 'E' ELSE 'A' END AS forged \gset
SELECT key, owner FROM idem_acquire(:'good', 'alice', 'cases e', '{"n": 1}') \gset
SELECT idem_commit(:'key', :'owner', '"secret"');
BEGIN;
SELECT looks() AS before \gset
SELECT subject, scope, params, outcome, c.key, result FROM (VALUES ('alice', 'cases e', '{"n": 1}'::jsonb), ('bob', 'cases e', '{"n": 1}'), ('alice', 'other', '{"n": 1}'), ('alice', 'cases e', '{"n": 2}')) AS t (subject, scope, params),
	LATERAL (SELECT outcome, key, result FROM idem_acquire(:'forged', t.subject, t.scope, t.params)) AS c;
SELECT outcome FROM idem_status(:'forged', 'alice');
SELECT looks() - :before AS looks_for_a_forged_one;
SELECT outcome FROM idem_acquire(:'good', 'alice', 'cases e', '{"n": 1}');
SELECT looks() - :before > 0 AS looks_for_a_good_one;
ROLLBACK;

-- P6, E04: the edge of each time, asked as often as the server can around it. A call is judged by a clock reading within
-- the call: one that ended before the time must not have seen it over, one that began at it must have.
CREATE FUNCTION edge(question text, over_says text, edge_at timestamptz, VARIADIC values_used text[]) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	began timestamptz;
	ended timestamptz;
	answer text;
	early bigint := 0;
	late bigint := 0;
	asked_before bigint := 0;
	asked_after bigint := 0;
BEGIN
	LOOP
		began := clock_timestamp();
		EXECUTE question INTO answer USING values_used;
		ended := clock_timestamp();
		IF ended < edge_at THEN
			asked_before := asked_before + 1;
			early := early + (answer = over_says)::int;
		ELSIF began >= edge_at THEN
			asked_after := asked_after + 1;
			late := late + (answer <> over_says)::int;
		END IF;
		EXIT WHEN asked_after >= 100;
		IF began > edge_at + interval '1 min' THEN
			RAISE EXCEPTION 'the time never comes';
		END IF;
	END LOOP;
	RETURN format('%s too early, %s too late, %s', early, late, CASE WHEN asked_before > 0 THEN 'asked on both sides' ELSE 'not asked before' END);
END
$$;
-- never consumed: EXPIRED from its second on, by status and by acquire (rolled back to before each call, it is never consumed)
SELECT idem_sign('alice', 'cases e', '"status"', clock_timestamp() + interval '2 s') AS fp \gset
SELECT edge('SELECT outcome FROM idem_status($1[1], ''alice'')', 'EXPIRED', (SELECT expires_at FROM idem_inspect(:'fp')), :'fp');
CREATE FUNCTION acquire_and_undo(fp text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	said text;
BEGIN
	SELECT outcome INTO said FROM idem_acquire(fp, 'alice', 'cases e', '"acquire"');
	RAISE EXCEPTION 'undo' USING ERRCODE = 'ZZ000';
EXCEPTION WHEN SQLSTATE 'ZZ000' THEN
	RETURN said;
END
$$;
SELECT idem_sign('alice', 'cases e', '"acquire"', clock_timestamp() + interval '2 s') AS fp \gset
SELECT edge('SELECT acquire_and_undo($1[1])', 'EXPIRED', (SELECT expires_at FROM idem_inspect(:'fp')), :'fp');
-- a lease, to the microsecond
SELECT key FROM idem_acquire_direct('alice', 'cases e', '"lease"') \gset
UPDATE idem_record SET lease_until = clock_timestamp() + interval '300.001 ms' WHERE key = :'key';
SELECT edge('SELECT outcome FROM idem_status_key($1[1]::uuid, ''alice'')', 'RECONCILE', (SELECT lease_until FROM idem_record WHERE key = :'key'), :'key');
-- a record's retention, by replay and by purge
SELECT key, owner FROM idem_acquire_direct('alice', 'cases e', '"kept"') \gset
SELECT idem_commit(:'key', :'owner', '1');
UPDATE idem_record SET retained_until = clock_timestamp() + interval '300.001 ms' WHERE key = :'key';
SELECT edge('SELECT outcome FROM idem_status_key($1[1]::uuid, ''alice'')', 'NONE', (SELECT retained_until FROM idem_record WHERE key = :'key'), :'key');
UPDATE idem_record SET retained_until = clock_timestamp() + interval '300.001 ms' WHERE key = :'key' RETURNING retained_until AS until \gset
CREATE FUNCTION purged(wanted uuid) RETURNS bool LANGUAGE plpgsql AS $$
BEGIN
	PERFORM idem_purge();
	RETURN NOT EXISTS (SELECT FROM idem_record WHERE key = wanted);
END
$$;
SELECT edge('SELECT purged($1[1]::uuid)::text', 'true', :'until', :'key');

-- P10, E08: what a secret signed is good until its verify_until by this server's clock, whatever the token says of its time;
-- what is issued is signed by the new one
SELECT idem_sign('alice', 'cases e', '"rotated"') AS fp \gset
SELECT id AS old FROM idem_secrets WHERE signing \gset
SELECT idem_rotate_secret() <> :'old' AS another;
SELECT (idem_inspect(:'fp')).valid AS still_good, (idem_inspect(:'fp')).expires_at > clock_timestamp() + interval '10 min' AS says_it_lives;
UPDATE idem_secret SET verify_until = clock_timestamp() + interval '300.001 ms' WHERE id = :'old' RETURNING verify_until AS until \gset
SELECT edge('SELECT valid::text FROM idem_inspect($1[1])', 'false', :'until', :'fp');
SELECT outcome FROM idem_acquire(:'fp', 'alice', 'cases e', '"rotated"');
SELECT outcome FROM idem_acquire(idem_sign('alice', 'cases e', '"rotated"'), 'alice', 'cases e', '"rotated"');

-- P6, E12: callers give spans, not times. The one time that is taken can only bring a fingerprint's end nearer
SELECT p.proname, a.name FROM pg_depend AS d JOIN pg_extension AS e ON e.oid = d.refobjid AND e.extname = 'idem'
	JOIN pg_proc AS p ON d.classid = 'pg_proc'::regclass AND p.oid = d.objid,
	LATERAL unnest(p.proargtypes::oid[], p.proargnames) AS a (type, name)
	WHERE d.deptype = 'e' AND a.type IN ('timestamptz'::regtype, 'timestamp'::regtype, 'date'::regtype, 'time'::regtype) ORDER BY 1;
SELECT (idem_inspect(idem_sign('alice', 'cases e', '1', 'infinity'))).expires_at <= clock_timestamp() + interval '15 min' AS bounded;

-- P11, E05: a policy cannot give a time that a token cannot hold
\set VERBOSITY terse
INSERT INTO idem_policy (scope, fingerprint_ttl) VALUES ('cases e long', '1000000 years');
INSERT INTO idem_policy (scope, fingerprint_ttl) VALUES ('cases e long', '-1 s');
INSERT INTO idem_policy (scope, fingerprint_ttl) VALUES ('cases e long', '100 years');
SELECT date_trunc('year', (idem_inspect(idem_sign('alice', 'cases e long', '1'))).expires_at) > '2100-01-01' AS a_century;

DELETE FROM idem_policy WHERE scope = 'cases e long';
DELETE FROM idem_record WHERE scope LIKE 'cases e%';
DROP FUNCTION looks, edge, acquire_and_undo, purged;
RESET search_path;
DROP SCHEMA idem_test_cases_e;
