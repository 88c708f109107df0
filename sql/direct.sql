-- Direct calls: named by their content, or by a key of the client's (P1, P3, P7; B05, B13, C02, C04)
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS idem CASCADE;
RESET client_min_messages;
CREATE SCHEMA idem_test_direct;
SET search_path = idem_test_direct, public;
\set VERBOSITY sqlstate

-- one whole call: granted and committed in one transaction, or what there is
CREATE FUNCTION pay(subject text, scope text, params jsonb, client_key text DEFAULT NULL) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	c idem_claim;
BEGIN
	SELECT * INTO c FROM idem_acquire_direct(subject, scope, params, client_key);
	IF c.outcome = 'ACQUIRED' THEN
		ASSERT idem_commit(c.key, c.owner, params) = 'OK';
	END IF;
	RETURN concat_ws(' ', c.outcome, c.attempt, c.result);
EXCEPTION WHEN OTHERS THEN
	RETURN SQLSTATE;
END
$$;

-- Content: the same parameters are the same operation, however they are spelt, and whoever asks ---------------------
SELECT pay('alice', 'direct', '{"a": 1, "b": 2}');
SELECT pay('alice', 'direct', '{"b": 2.0, "a": 1e0}'), pay('alice', 'direct', '{"a": 1, "b": 2, "c": null}');
SELECT key = idem_key('alice', 'direct', '{"b": 2, "a": 1}') AS key FROM idem_acquire_direct('alice', 'direct', '{"a": 1, "b": 2}');
SELECT pay('alice', 'direct', '{"a": 1, "b": 3}') AS value, pay('bob', 'direct', '{"a": 1, "b": 2}') AS subject, pay('alice', 'Direct', '{"a": 1, "b": 2}') AS scope,
	   pay('alice', 'direct', '{"a": 1, "b": 2}', 'k') AS client_key;
-- B05: nothing of the session is in it
CREATE ROLE idem_test_direct_role;
SELECT idem_grant('idem_test_direct_role', 'caller');
GRANT USAGE ON SCHEMA idem_test_direct TO idem_test_direct_role;
SET ROLE idem_test_direct_role;
SET timezone = 'Asia/Tokyo';
SET search_path = pg_catalog;
SELECT outcome, result FROM public.idem_acquire_direct('alice', 'direct', '{"a": 1, "b": 2}');
RESET ROLE;
RESET timezone;
SET search_path = idem_test_direct, public;
SELECT idem_revoke('idem_test_direct_role', 'caller');
DROP OWNED BY idem_test_direct_role;
DROP ROLE idem_test_direct_role;
-- C02: no subject, no operation
SELECT pay(NULL, 'direct', '{}'), pay('', 'direct', '{}'), pay(' ', 'direct', '{}'), pay('anonymous', 'direct', '{}');

-- A client's key: other parameters under it are a mismatch, in every state -----------------------------------------------
SELECT pay('alice', 'direct', '{"n": 1}', 'order-1'), pay('alice', 'direct', '{"n": 1.0}', 'order-1'), pay('alice', 'direct', '{"n": 2}', 'order-1'),
	   pay('alice', 'direct', '{}', 'order-1'), pay('alice', 'direct', 'null', 'order-1');
SELECT num_nonnulls(key, owner, attempt, result, result_ref, lease_until, finished_at, retained_until, trace_id) AS shown, replayed
FROM idem_acquire_direct('alice', 'direct', '{"n": 2}', 'order-1');
SELECT pay('bob', 'direct', '{"n": 2}', 'order-1') AS subject, pay('alice', 'direct2', '{"n": 2}', 'order-1') AS scope, pay('alice', 'direct', '{"n": 2}', 'Order-1') AS key,
	   pay('alice', 'direct', '{"n": 2}', 'order-1 ') AS blank;
-- in its own transaction, open and with the token of the claim
BEGIN;
SELECT outcome FROM idem_acquire_direct('alice', 'direct', '{"n": 1}', 'order-2', owner => '00000000-0000-4000-8000-000000000001');
SELECT outcome, num_nonnulls(key, owner, attempt) AS shown FROM idem_acquire_direct('alice', 'direct', '{"n": 2}', 'order-2', owner => '00000000-0000-4000-8000-000000000001');
SELECT outcome, num_nonnulls(key, owner, attempt) AS shown FROM idem_acquire_direct('alice', 'direct', '{"n": 2}', 'order-2');
SELECT outcome, replayed FROM idem_acquire_direct('alice', 'direct', '{"n": 1.0}', 'order-2', owner => '00000000-0000-4000-8000-000000000001');
COMMIT;
-- in flight, the lease over, released: and with the token
SELECT outcome FROM idem_acquire_direct('alice', 'direct', '{"n": 2}', 'order-2', owner => '00000000-0000-4000-8000-000000000001');
UPDATE idem_record SET lease_until = '2020-01-01', downstream = 'i' WHERE key = idem_key('alice', 'direct', '{}', 'order-2');
SELECT outcome FROM idem_acquire_direct('alice', 'direct', '{"n": 2}', 'order-2');
SELECT idem_release(idem_key('alice', 'direct', '{}', 'order-2'), '00000000-0000-4000-8000-000000000001');
SELECT outcome FROM idem_acquire_direct('alice', 'direct', '{"n": 2}', 'order-2');
SELECT pay('alice', 'direct', '{"n": 1}', 'order-2'), pay('alice', 'direct', '{"n": 2}', 'order-2');
-- once lapsed the key is free for anything, from attempt 1
UPDATE idem_record SET retained_until = '2020-01-01' WHERE key = idem_key('alice', 'direct', '{}', 'order-2');
SELECT outcome FROM idem_status_key(idem_key('alice', 'direct', '{}', 'order-2'), 'alice');
SELECT pay('alice', 'direct', '{"n": 2}', 'order-2'), pay('alice', 'direct', '{"n": 2}', 'order-2'), pay('alice', 'direct', '{"n": 1}', 'order-2');
-- and its scope's present policy holds for it
INSERT INTO idem_policy (scope, downstream, immaterial) VALUES ('direct', 'queryable', '{/memo}');
UPDATE idem_record SET retained_until = '2020-01-01' WHERE key = idem_key('alice', 'direct', '{}', 'order-2');
SELECT pay('alice', 'direct', '{"n": 3, "memo": "x"}', 'order-2');
SELECT downstream, policy_version = idem_list_version(NULL, '{/memo}') AS lists FROM idem_record WHERE key = idem_key('alice', 'direct', '{}', 'order-2');
DELETE FROM idem_policy WHERE scope = 'direct';

-- P3: lists changed under a client's key: its parameters are compared under the lists of its record -----------------------
INSERT INTO idem_policy (scope, material) VALUES ('direct.c', '{/amount}');
SELECT pay('alice', 'direct.c', '{"amount": 1, "memo": "a"}', 'k'), pay('alice', 'direct.c', '{"amount": 1, "memo": "b"}', 'k');
UPDATE idem_policy SET material = '{/amount,/payee}' WHERE scope = 'direct.c';
SELECT pay('alice', 'direct.c', '{"amount": 1, "memo": "c"}', 'k'), pay('alice', 'direct.c', '{"amount": 1, "payee": "x"}', 'k'), pay('alice', 'direct.c', '{"amount": 2, "payee": "x"}', 'k');
UPDATE idem_policy SET material = NULL WHERE scope = 'direct.c';
SELECT pay('alice', 'direct.c', '{"amount": 1, "memo": "d"}', 'k'), pay('alice', 'direct.c', '{"amount": 2, "memo": "a"}', 'k'), pay('alice', 'direct.c', '{"memo": "a"}', 'k');
DELETE FROM idem_policy WHERE scope = 'direct.c';
SELECT pay('alice', 'direct.c', '{"amount": 1, "memo": "e"}', 'k'), pay('alice', 'direct.c', '{"amount": 2}', 'k');
-- nothing material under today's lists, while it was when the key was new
INSERT INTO idem_policy (scope, material) VALUES ('direct.c', '{/other}');
SELECT pay('alice', 'direct.c', '{"amount": 1, "memo": "f"}', 'k'), pay('alice', 'direct.c', '{"amount": 2}', 'k'), pay('alice', 'direct.c', '{"amount": 1}', 'k2'), pay('alice', 'direct.c', '{"amount": 1}');
DELETE FROM idem_policy WHERE scope = 'direct.c';

-- P3: lists changed under content: an operation begun under the former ones is found, as long as it is on record -----------
INSERT INTO idem_policy (scope, material) VALUES ('direct.l', '{/amount}');
SELECT pay('alice', 'direct.l', '{"amount": 1, "memo": "a"}');
SELECT outcome FROM idem_acquire_direct('alice', 'direct.l', '{"amount": 2, "memo": "a"}', owner => '00000000-0000-4000-8000-000000000001');
UPDATE idem_policy SET material = '{/amount,/memo}' WHERE scope = 'direct.l';
SELECT pay('alice', 'direct.l', '{"amount": 1, "memo": "b"}') AS replayed, pay('alice', 'direct.l', '{"amount": 2, "memo": "b"}') AS in_flight,
	   pay('alice', 'direct.l', '{"amount": 3, "memo": "a"}') AS new, pay('alice', 'direct.l', '{"amount": 3, "memo": "b"}') AS other;
UPDATE idem_policy SET material = NULL WHERE scope = 'direct.l';
SELECT pay('alice', 'direct.l', '{"amount": 1, "memo": "c"}') AS oldest, pay('alice', 'direct.l', '{"amount": 3, "memo": "a", "x": 1}') AS middle;
-- in one transaction with the change
BEGIN;
SELECT pay('alice', 'direct.l', '{"amount": 4, "memo": "a"}');
UPDATE idem_policy SET material = '{/memo}' WHERE scope = 'direct.l';
SELECT pay('alice', 'direct.l', '{"amount": 4, "memo": "a"}'), pay('alice', 'direct.l', '{"amount": 5, "memo": "a"}');
ROLLBACK;
SELECT pay('alice', 'direct.l', '{"amount": 4, "memo": "a"}');
-- R16: however long ago the former lists were replaced
UPDATE idem_policy_version SET replaced_at = now() - interval '25 hours' WHERE scope = 'direct.l' AND replaced_at IS NOT NULL;
SELECT pay('alice', 'direct.l', '{"amount": 1, "memo": "d"}');
SELECT pay('alice', 'direct.l', '{"amount": 1, "memo": "d"}');
-- where the lists in force name one that is known, and former lists another, it is that of the lists in force
INSERT INTO idem_policy (scope, material) VALUES ('direct.n', '{/amount,/memo}');
SELECT pay('alice', 'direct.n', '{"amount": 1, "memo": "a"}');
UPDATE idem_policy SET material = '{/amount}' WHERE scope = 'direct.n';
SELECT pay('alice', 'direct.n', '{"amount": 1, "memo": "b"}');
UPDATE idem_policy SET material = '{/amount,/memo}' WHERE scope = 'direct.n';
SELECT outcome, key = idem_key('alice', 'direct.n', '{"amount": 1, "memo": "a"}') AS by_lists_in_force FROM idem_acquire_direct('alice', 'direct.n', '{"amount": 1, "memo": "a"}');
SELECT outcome, key = idem_key('alice', 'direct.n', '{"amount": 1, "memo": "b"}') AS by_lists_in_force FROM idem_acquire_direct('alice', 'direct.n', '{"amount": 1, "memo": "b"}');
-- two former operations may be one now; the one found is one of theirs, never a third
INSERT INTO idem_policy (scope) VALUES ('direct.m');
SELECT pay('alice', 'direct.m', '{"amount": 1, "memo": "a"}'), pay('alice', 'direct.m', '{"amount": 1, "memo": "b"}');
UPDATE idem_policy SET immaterial = '{/memo}' WHERE scope = 'direct.m';
SELECT pay('alice', 'direct.m', '{"amount": 1, "memo": "a"}'), pay('alice', 'direct.m', '{"amount": 1, "memo": "b"}'), pay('alice', 'direct.m', '{"amount": 1, "memo": "c"}');
DELETE FROM idem_policy WHERE scope LIKE 'direct%';
-- lists that came by '*'
INSERT INTO idem_policy (scope, immaterial) VALUES ('*', '{/memo}');
SELECT pay('alice', 'direct.s', '{"amount": 1, "memo": "a"}'), pay('alice', 'direct.s', '{"amount": 1, "memo": "b"}');
DELETE FROM idem_policy WHERE scope = '*';
SELECT pay('alice', 'direct.s', '{"amount": 1, "memo": "c"}'), pay('alice', 'direct.s', '{"amount": 2, "memo": "a"}'), pay('alice', 'direct.s', '{"amount": 2, "memo": "b"}');

-- The doors: entry, enabled, strict. Judged where a grant would be made; replays and rivals are told in any case ---------------
CREATE FUNCTION said(params jsonb, k text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	answer text;
BEGIN
	answer := (SELECT outcome FROM idem_acquire_direct('alice', 'direct.e', params, k || params::text));
	RAISE EXCEPTION USING ERRCODE = 'ZZ000';
EXCEPTION
	WHEN SQLSTATE 'ZZ000' THEN RETURN answer;
	WHEN OTHERS THEN RETURN SQLSTATE;
END
$$;
CREATE FUNCTION all_ways() RETURNS TABLE (door text, new text, done text, running text, retryable text) LANGUAGE sql AS $$
	SELECT CASE WHEN k IS NULL THEN 'content' ELSE 'client' END, said('"new"', k), said('"done"', k), said('"running"', k), said('"retryable"', k)
	FROM unnest(ARRAY[NULL, 'k']) AS k ORDER BY k NULLS FIRST
$$;
SELECT count(*) FROM (SELECT c.outcome, CASE p WHEN '"done"' THEN idem_commit(c.key, c.owner) WHEN '"retryable"' THEN idem_fail(c.key, c.owner, '1', true) END
	FROM unnest('{"done","running","retryable"}'::text[]) AS n, to_jsonb(n) AS p, unnest(ARRAY[NULL, 'k']) AS k, idem_acquire_direct('alice', 'direct.e', p, k || p::text) AS c) AS x WHERE outcome = 'ACQUIRED';
SELECT * FROM all_ways();
INSERT INTO idem_policy (scope, entry) VALUES ('direct.e', 'direct');
SELECT * FROM all_ways();
UPDATE idem_policy SET entry = 'fingerprint' WHERE scope = 'direct.e';
SELECT * FROM all_ways();
UPDATE idem_policy SET entry = 'any', enabled = false WHERE scope = 'direct.e';
SELECT * FROM all_ways();
DELETE FROM idem_policy WHERE scope = 'direct.e';
INSERT INTO idem_policy (scope, enabled) VALUES ('*', false);
SELECT * FROM all_ways();
INSERT INTO idem_policy (scope) VALUES ('direct.e');
SELECT * FROM all_ways();
DELETE FROM idem_policy WHERE scope IN ('direct.e', '*');
\set VERBOSITY default
INSERT INTO idem_policy (scope, entry) VALUES ('direct.f', 'fingerprint');
SELECT outcome FROM idem_acquire_direct('alice', 'direct.f', '1');
DELETE FROM idem_policy WHERE scope = 'direct.f';
INSERT INTO idem_policy (scope, material) VALUES ('direct.f', '{/amount}');
SELECT outcome FROM idem_acquire_direct('alice', 'direct.f', '{"amuont": 1}');
SELECT outcome FROM idem_acquire_direct('alice', 'direct.f', '{"amuont": 1}', 'k');
DELETE FROM idem_policy WHERE scope = 'direct.f';

-- B13: a fingerprint is one operation, whatever its parameters; content is one for all of them -------------------------------
SELECT (SELECT outcome FROM idem_acquire(idem_sign('alice', 'direct', '{"batch": 1}'), 'alice', 'direct', '{"batch": 1}')) AS first,
	   (SELECT outcome FROM idem_acquire(idem_sign('alice', 'direct', '{"batch": 1}'), 'alice', 'direct', '{"batch": 1}')) AS second,
	   pay('alice', 'direct', '{"batch": 1}') AS content, pay('alice', 'direct', '{"batch": 1}') AS again;
-- a direct call does not expire
SELECT expires_at IS NULL AS never, retained_until - finished_at = '24 hours' AS kept FROM idem_record WHERE key = idem_key('alice', 'direct', '{"batch": 1}');

DELETE FROM idem_record;
DELETE FROM idem_alert;
