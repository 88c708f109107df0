-- Policies: what may stand in them, the history of their lists, and that a change is obeyed at once.
-- P3 (a policy change does not turn honest retries into mismatches) rests on the history, P11 on the constraints.
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS idem CASCADE;
RESET client_min_messages;
DELETE FROM idem_policy;
DELETE FROM idem_policy_version;

-- The defaults
INSERT INTO idem_policy (scope) VALUES ('plain');
\x on
SELECT * FROM idem_policy;
\x off
-- the same are compiled in for scopes without a row: the longest retention is that of the defaults, plus the skew
SELECT idem_longest_retention() = fingerprint_ttl + result_ttl + '5 s' AS equal FROM idem_policy;
-- what becomes of one changed column
CREATE FUNCTION try(change text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	broken text;
BEGIN
	EXECUTE format('UPDATE idem_policy SET %s WHERE scope = ''plain''', change);
	RAISE EXCEPTION 'accepted' USING ERRCODE = 'ZZ000';
EXCEPTION
	WHEN check_violation THEN
		GET STACKED DIAGNOSTICS broken = CONSTRAINT_NAME;
		RETURN broken;
	WHEN OTHERS THEN
		RETURN CASE SQLSTATE WHEN 'ZZ000' THEN 'accepted' ELSE SQLSTATE END;
END
$$;

-- Every time is positive and finite (the lease and the retention are also bound to others)
SELECT c AS column, try(c || $$ = '0'$$) AS zero, try(c || $$ = '-1 s'$$) AS negative, try(c || $$ = '1 mon -30 days'$$) AS nothing,
		try(c || $$ = 'infinity'$$) IN ('22007', try(c || $$ = '101 years'$$)) AS infinite, try(c || $$ = '101 years'$$) AS endless,
		try(c || ' = NULL') AS null
	FROM unnest(ARRAY['fingerprint_ttl', 'downstream_max', 'gateway_timeout', 'retry_backoff', 'in_flight_ttl',
		'caller_retry_window', 'result_ttl', 'repeat_guard', 'poll_after']) AS c;
SELECT c AS column, try(c || $$ = '1 us'$$) AS shortest
	FROM unnest(ARRAY['fingerprint_ttl', 'downstream_max', 'gateway_timeout', 'retry_backoff', 'caller_retry_window', 'repeat_guard', 'poll_after']) AS c;

-- The lease is longer than all that may pass before the holder is done, the result lives as long as callers retry
SELECT change, try(change) FROM unnest(ARRAY[
	$$in_flight_ttl = '3 min'$$, $$in_flight_ttl = '180.000001 s'$$, $$downstream_max = '2 min 30 s'$$, $$gateway_timeout = '2 min 30 s'$$,
	$$retry_backoff = '4 min'$$, $$retry_backoff = '3 min 59.999999 s'$$,
	$$result_ttl = '59 min 59 s'$$, $$result_ttl = '1 h'$$, $$caller_retry_window = '1 day 1 us'$$, $$caller_retry_window = '24 h'$$]) AS change;

-- Names, lists, and words
SELECT change, try(change) FROM unnest(ARRAY[
	$$scope = ''$$, $$scope = NULL$$, $$scope = ' '$$, $$scope = '*'$$, $$scope = repeat('x', 255)$$, $$scope = repeat('x', 256)$$, $$scope = repeat('é', 128)$$,
	$$material = '{}'$$, $$immaterial = '{}'$$, $$material = ARRAY[NULL]$$, $$material = '{amount}'$$, $$material = '{/a~2}'$$, $$immaterial = '{/a/~}'$$,
	$$material = '{""}'$$, $$immaterial = '{""}'$$, $$material = '{/a,/b/*}', immaterial = '{/c}'$$,
	$$entry = 'fingerprint'$$, $$entry = 'direct'$$, $$entry = 'Any'$$, $$entry = NULL$$,
	$$downstream = 'queryable'$$, $$downstream = 'idempotent'$$, $$downstream = 'local'$$, $$downstream = 'o'$$, $$downstream = NULL$$,
	$$enabled = NULL$$, $$confirm_with = 'pay_confirm', poll_with = NULL$$]) AS change;

-- Nothing of that left a trace
SELECT scope, version, replaced_at FROM idem_policy_version;

-- Key columns compare by bytes, whatever the database's collation
SELECT attrelid::regclass AS table, attname, collname FROM pg_attribute JOIN pg_collation AS c ON c.oid = attcollation
	WHERE attrelid IN ('idem_policy'::regclass, 'idem_policy_version'::regclass, 'idem_secret'::regclass) AND attnum > 0 AND collname <> 'C';

-- Versions: published values (in docs/format.md), by lists in any order
SELECT idem_list_version('{/amount,/currency,/payee}', NULL) = 561908243 AS a,
	idem_list_version('{/payee,/amount,/currency,/amount}', NULL) = 561908243 AS reordered,
	idem_list_version(NULL, '{/memo,/ui}') = 559585350 AS b,
	idem_list_version(NULL, '{/items/*/note}') = 1230681654 AS c,
	idem_list_version('{/items/*/sku,/items/*/qty}', NULL) = 1274852796 AS d,
	idem_list_version('{/a~1b,/m~0n}', NULL) = 853436377 AS e,
	idem_list_version('{/to,/amount}', '{/to/name}') = 1009107333 AS f,
	idem_list_version(NULL, NULL) = 0 AS none;

-- History.  A scope's lists, and what was in force before its row came, stay on record.
CREATE FUNCTION history() RETURNS TABLE (scope text, version int, material text[], immaterial text[], in_force bool) LANGUAGE sql AS $$
	SELECT scope, version, material, immaterial, replaced_at IS NULL FROM idem_policy_version ORDER BY scope, version
$$;
DELETE FROM idem_policy;
DELETE FROM idem_policy_version;
INSERT INTO idem_policy (scope, material) VALUES ('pay', '{/payee,/amount,/amount}');
SELECT * FROM history();
UPDATE idem_policy SET material = NULL, immaterial = '{/memo}' WHERE scope = 'pay';
SELECT * FROM history();
-- back: it is in force again
UPDATE idem_policy SET material = '{/amount,/payee}', immaterial = NULL WHERE scope = 'pay';
SELECT * FROM history();
-- what leaves the lists as they are replaces nothing; the longest result_ttl is kept, as results are
UPDATE idem_policy SET result_ttl = '3 days', material = '{/payee,/amount}' WHERE scope = 'pay';
UPDATE idem_policy SET result_ttl = '2 days' WHERE scope = 'pay';
SELECT scope, version, replaced_at IS NULL AS in_force, result_ttl FROM idem_policy_version ORDER BY scope, version;
-- "*", and a scope that followed it
INSERT INTO idem_policy (scope, immaterial) VALUES ('*', '{/memo}');
UPDATE idem_policy SET immaterial = '{/note}' WHERE scope = '*';
INSERT INTO idem_policy (scope, material) VALUES ('refund', '{/id}');
SELECT * FROM history() WHERE scope <> 'pay';
-- gone, and renamed
DELETE FROM idem_policy WHERE scope = '*';
UPDATE idem_policy SET scope = 'payback' WHERE scope = 'refund';
SELECT * FROM history() WHERE scope <> 'pay';
-- all at once
TRUNCATE idem_policy;
SELECT * FROM history() WHERE in_force;

-- One number stands for one pair of lists: these two have the same
SELECT idem_list_version('{/a79668}', NULL) = idem_list_version('{/a80537}', NULL) AS collide;
INSERT INTO idem_policy (scope, material) VALUES ('one', '{/a79668}');
INSERT INTO idem_policy (scope, material) VALUES ('two', '{/a80537}');
\echo :SQLSTATE
INSERT INTO idem_policy (scope, material) VALUES ('two', '{/a79668}');
-- nor has a scope both of them one after the other
UPDATE idem_policy SET material = NULL WHERE scope = 'one';
UPDATE idem_policy SET material = '{/a80537}' WHERE scope = 'one';
\echo :SQLSTATE

-- The history itself takes rows from a dump: they merge, whichever table is loaded first, and what does not fit is refused
DELETE FROM idem_policy;
DELETE FROM idem_policy_version;
INSERT INTO idem_policy_version (scope, version, material, since) VALUES ('pay', 561908243, '{/amount,/currency,/payee}', '2020-01-01Z');
INSERT INTO idem_policy (scope, material) VALUES ('pay', '{/amount,/currency,/payee}');
SELECT version, since < '2021-01-01Z' AS old, replaced_at IS NULL AS in_force FROM idem_policy_version;
INSERT INTO idem_policy_version (scope, version, since, replaced_at) VALUES ('pay', 0, '2019-01-01Z', '2020-01-01Z');
INSERT INTO idem_policy_version (scope, version, material, since) VALUES
	('pay', 561908243, '{/amount,/currency,/payee}', '2019-01-01Z'), ('pay', 1494864176, '{/amount,/payee}', '2019-01-01Z');
SELECT version, since < '2020-01-01Z' AS older, replaced_at IS NULL AS in_force FROM idem_policy_version ORDER BY version;
INSERT INTO idem_policy_version (scope, version, material) VALUES ('pay', 7, '{/amount}');
\echo :SQLSTATE
UPDATE idem_policy_version SET material = '{/amount}' WHERE version = 561908243;
\echo :SQLSTATE
-- in one statement, and spelled otherwise
DELETE FROM idem_policy_version;
INSERT INTO idem_policy_version (scope, version, material, since, replaced_at, result_ttl) VALUES
	('get', 561908243, '{/payee,/amount,/currency,/payee}', '2021-01-01Z', '2022-01-01Z', '1 h'),
	('get', 561908243, '{/amount,/payee,/currency}', '2020-01-01Z', '2021-01-01Z', '2 h');
UPDATE idem_policy_version SET material = '{/payee,/currency,/amount}';
SELECT scope, version, material, since AT TIME ZONE 'UTC' AS since, replaced_at AT TIME ZONE 'UTC' AS replaced_at, result_ttl FROM idem_policy_version;
INSERT INTO idem_policy_version (scope, version, since) VALUES (NULL, 0, '2020-01-01Z');
\echo :SQLSTATE
INSERT INTO idem_policy_version (scope, version, material) VALUES ('get', NULL, '{/amount}');
\echo :SQLSTATE

-- A change is obeyed at once: in the same session, in the same transaction, and taken back with it
DELETE FROM idem_policy;
CREATE FUNCTION seen() RETURNS text LANGUAGE sql AS $$ SELECT idem_canonical('pay', '{"amount": 1, "memo": "x", "note": "y"}') $$;
SELECT seen();
INSERT INTO idem_policy (scope, immaterial) VALUES ('*', '{/memo}');
SELECT seen();
INSERT INTO idem_policy (scope, material) VALUES ('pay', '{/amount}');
SELECT seen();
BEGIN;
UPDATE idem_policy SET material = NULL, immaterial = '{/note}' WHERE scope = 'pay';
SELECT seen();
SAVEPOINT s;
DELETE FROM idem_policy WHERE scope = 'pay';
SELECT seen();
ROLLBACK TO s;
SELECT seen();
TRUNCATE idem_policy;
SELECT seen();
ROLLBACK;
SELECT seen();
-- a transaction that fails in the midst of the change itself leaves nothing in the cache
DO $$
BEGIN
	UPDATE idem_policy SET material = '{/note}' WHERE scope = 'pay';
	RAISE EXCEPTION 'seen within: %', seen();
END
$$;
SELECT seen();
DO $$
BEGIN
	UPDATE idem_policy SET material = '{/note}' WHERE scope = 'pay';
	RAISE EXCEPTION 'seen within: %', seen();
EXCEPTION WHEN OTHERS THEN
	RAISE NOTICE '%; then: %', SQLERRM, seen();
END
$$;
-- a trigger of somebody's would run as whoever changes a policy: nothing goes by such a table
BEGIN;
CREATE FUNCTION late() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END';
CREATE TRIGGER a_late AFTER UPDATE ON idem_policy FOR EACH ROW EXECUTE FUNCTION late();
SELECT seen();
ROLLBACK;
-- the triggers fire for a restore and for replication too
SET session_replication_role = replica;
UPDATE idem_policy SET material = '{/memo}' WHERE scope = 'pay';
RESET session_replication_role;
SELECT seen();
SELECT count(*) FROM history() WHERE scope = 'pay' AND material = '{/memo}' AND in_force;
-- and in a transaction that reads an older snapshot: policies are always today's
BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY;
SELECT seen();
COMMIT;

-- P3: what was done under lists since replaced is found again, by a direct call and by a fingerprint
DELETE FROM idem_policy;
CREATE FUNCTION pay(memo text) RETURNS text LANGUAGE sql AS $$
	SELECT CASE WHEN c.outcome = 'ACQUIRED' THEN 'acquired, ' || idem_commit(c.key, c.owner, to_jsonb(memo)) ELSE c.outcome || ' ' || c.result END
		FROM idem_acquire_direct('regress bob', 'regress history', jsonb_build_object('amount', 7, 'memo', memo)) AS c
$$;
SELECT idem_sign('regress bob', 'regress history', '{"amount": 7, "memo": "one"}') AS all_material \gset
SELECT pay('one');
INSERT INTO idem_policy (scope, immaterial) VALUES ('*', '{/note}');
SELECT pay('one');
INSERT INTO idem_policy (scope, material) VALUES ('regress history', '{/amount}');
SELECT pay('one');
SELECT pay('two');
SELECT pay('three');
SELECT outcome FROM idem_acquire(:'all_material', 'regress bob', 'regress history', '{"amount": 7, "memo": "another"}');
SELECT outcome FROM idem_acquire(:'all_material', 'regress bob', 'regress history', '{"amount": 7, "memo": "one"}');
DELETE FROM idem_policy;
SELECT pay('four');
TRUNCATE idem_policy_version;
SELECT pay('five');
DELETE FROM idem_record WHERE scope = 'regress history';
DROP FUNCTION pay;

-- M1: what was done under lists that were replaced is remembered for the longest result_ttl they had, not for today's
INSERT INTO idem_policy (scope, material, result_ttl) VALUES ('regress history', '{/amount}', '2 days');
SELECT outcome, idem_commit(key, owner, '"paid"') AS ended FROM idem_acquire_direct('regress bob', 'regress history', '{"amount": 8, "memo": "one"}');
UPDATE idem_policy SET material = '{/amount,/memo}', result_ttl = '1 h' WHERE scope = 'regress history';
UPDATE idem_policy_version SET replaced_at = clock_timestamp() - interval '25 h' WHERE scope = 'regress history' AND replaced_at IS NOT NULL;
SELECT outcome, result FROM idem_acquire_direct('regress bob', 'regress history', '{"amount": 8, "memo": "one"}');
DELETE FROM idem_record WHERE scope = 'regress history';
DELETE FROM idem_policy;
DELETE FROM idem_policy_version;

-- T25: a version counts for the scopes that had it: who signs with a leaked secret, or by mistake, binds to no other's lists
CREATE FUNCTION base64url(bytes bytea) RETURNS text LANGUAGE sql IMMUTABLE AS $$
	SELECT rtrim(translate(encode(bytes, 'base64'), E'+/\n', '-_'), '=')
$$;
CREATE FUNCTION forge(scope text, version int, material_part text) RETURNS text LANGUAGE sql VOLATILE AS $$
	SELECT p.text || '.' || base64url(hmac(convert_to(p.text, 'UTF8'), idem_export_secret(), 'sha256'))
		FROM (SELECT base64url(convert_to(format('{"n":"%s","exp":4102444800,"u":"regress bob","s":"%s","p":"%s","v":%s}',
			(idem_inspect(idem_sign('nobody', 'nothing', '{"payee": 1}'))).key, scope, base64url(sha256(convert_to(material_part, 'UTF8'))), version), 'UTF8'))) AS p(text)
$$;
CREATE FUNCTION presented(token text, scope text) RETURNS text LANGUAGE sql AS $$
	SELECT concat_ws(' ', c.outcome, (SELECT s.outcome FROM idem_status(token, 'regress bob') AS s))
		FROM idem_acquire(token, 'regress bob', scope, '{"payee": "mallory", "amount": 1000000}') AS c
$$;
INSERT INTO idem_policy (scope, material) VALUES ('weak', '{/payee}'), ('transfer', '{/payee,/amount}');
SELECT idem_list_version('{/payee}', NULL) AS weak \gset
SELECT presented(forge('weak', :weak, '{"payee":"mallory"}'), 'weak') AS its_own,
	presented(forge('transfer', :weak, '{"payee":"mallory"}'), 'transfer') AS other, presented(forge('none', :weak, '{"payee":"mallory"}'), 'none') AS no_row;
-- nor does what "*" has had since the scope has a row of its own
INSERT INTO idem_policy (scope, material) VALUES ('*', '{/payee}');
SELECT presented(forge('transfer', :weak, '{"payee":"mallory"}'), 'transfer') AS star, presented(forge('none', :weak, '{"payee":"mallory"}'), 'none') AS no_row;
DELETE FROM idem_record WHERE subject = 'regress bob';
DELETE FROM idem_policy;
DELETE FROM idem_policy_version;
-- P3: what was signed under lists that the scope had is good, whatever became of them
CREATE TEMP TABLE signed (step serial, token text, params jsonb);
CREATE FUNCTION sign_with(memo text) RETURNS void LANGUAGE sql AS $$
	INSERT INTO signed (token, params) SELECT idem_sign('regress bob', 'regress moves', p), p FROM (SELECT jsonb_build_object('amount', 7, 'memo', memo, 'note', memo)) AS x(p)
$$;
CREATE FUNCTION good() RETURNS text LANGUAGE sql AS $$
	SELECT count(*) || ' of ' || (SELECT count(*) FROM signed) FROM signed AS f, idem_status(f.token, 'regress bob') AS c WHERE c.outcome = 'NONE'
$$;
SELECT sign_with('everything');
INSERT INTO idem_policy (scope, immaterial) VALUES ('*', '{/note}');
SELECT sign_with('followed *');
UPDATE idem_policy SET immaterial = '{/memo}';
SELECT sign_with('follows *');
INSERT INTO idem_policy (scope, material) VALUES ('regress moves', '{/amount}');
SELECT sign_with('own row'), good();
UPDATE idem_policy SET material = '{/amount,/memo}' WHERE scope = 'regress moves';
UPDATE idem_policy SET immaterial = '{/a}' WHERE scope = '*';
UPDATE idem_policy SET immaterial = '{/b}' WHERE scope = '*';
SELECT sign_with('other row'), good();
DELETE FROM idem_policy WHERE scope = 'regress moves';
SELECT sign_with('follows * again'), good();
-- of what "*" had in between, only that which was in force when the row went has been the scope's
INSERT INTO idem_policy (scope, material) VALUES ('regress moves', '{/memo}');
SELECT sign_with('row again'), good();
SELECT version, material, immaterial FROM idem_policy_version WHERE scope = 'regress moves' ORDER BY since, version;
UPDATE idem_policy SET scope = 'regress moved' WHERE scope = 'regress moves';
SELECT good();
TRUNCATE idem_policy;
SELECT good();
-- each is judged by the lists it was signed under
SELECT f.step, (SELECT outcome FROM idem_acquire(f.token, 'regress bob', 'regress moves', f.params - 'memo')) AS without_memo,
	(SELECT outcome FROM idem_acquire(f.token, 'regress bob', 'regress moves', f.params - 'note')) AS without_note FROM signed AS f ORDER BY step;
-- and by a client's key, the record by those that it was made under
INSERT INTO idem_policy (scope, immaterial) VALUES ('*', '{/memo}');
SELECT outcome, idem_commit(key, owner, '"paid"') AS ended FROM idem_acquire_direct('regress bob', 'regress moves', '{"amount": 7, "memo": 1}', 'client 1');
INSERT INTO idem_policy (scope, material) VALUES ('regress moves', '{/amount,/memo}');
SELECT outcome FROM idem_acquire_direct('regress bob', 'regress moves', '{"amount": 7, "memo": 2}', 'client 1');
SELECT outcome FROM idem_acquire_direct('regress bob', 'regress moves', '{"amount": 8, "memo": 1}', 'client 1');
DELETE FROM idem_record WHERE subject = 'regress bob';
DROP TABLE signed;
DROP FUNCTION good, sign_with, presented, forge, base64url;

-- Thousands of scopes
DELETE FROM idem_policy;
INSERT INTO idem_policy (scope, material) SELECT 'scope ' || i, ARRAY['/m' || i] FROM generate_series(1, 3000) AS i;
SELECT count(*) FROM generate_series(1, 3000) AS i WHERE idem_canonical('scope ' || i, jsonb_build_object('m' || i, i, 'x', 0)) = format('{"m%s":%s}', i, i);

-- Objects that come and go in one session are not remembered
SET client_min_messages = warning;
DROP EXTENSION idem CASCADE;
BEGIN;
CREATE EXTENSION idem;
INSERT INTO idem_policy (scope, material) VALUES ('pay', '{/note}');
SELECT seen();
ROLLBACK;
CREATE EXTENSION idem;
SELECT seen();
DROP EXTENSION idem;
CREATE EXTENSION idem;
INSERT INTO idem_policy (scope, material) VALUES ('pay', '{/amount}');
SELECT seen();
BEGIN;
DROP EXTENSION idem;
CREATE EXTENSION idem;
SELECT seen();
ROLLBACK;
SELECT seen();
DELETE FROM idem_policy;
DROP FUNCTION seen, history, try;
