-- idem_execute: acquire, fn, commit in one statement. Each test names its promise and case.
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS idem CASCADE;
RESET client_min_messages;
CREATE SCHEMA idem_test_execute;
SET search_path = idem_test_execute, public;
SET timezone = 'UTC';

CREATE FUNCTION tell(c idem_claim) RETURNS text LANGUAGE sql AS $$
	SELECT concat_ws(' ', c.outcome, c.attempt, CASE WHEN c.replayed THEN 'replayed' END, CASE WHEN c.joined THEN 'joined' END,
		CASE WHEN c.owner IS NOT NULL THEN 'owner' END, c.result, c.result_ref, CASE WHEN c.lease_until IS NOT NULL THEN 'lease' END,
		CASE WHEN c.finished_at IS NOT NULL THEN 'finished' END, CASE WHEN c.retained_until IS NOT NULL THEN 'retained' END, c.trace_id)
$$;
-- what a statement raises: SQLSTATE, message, hint
CREATE FUNCTION raised(statement text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	state text; message text; hint text;
BEGIN
	EXECUTE statement;
	RETURN 'nothing';
EXCEPTION WHEN OTHERS THEN
	GET STACKED DIAGNOSTICS state = RETURNED_SQLSTATE, message = MESSAGE_TEXT, hint = PG_EXCEPTION_HINT;
	RETURN concat_ws(' | ', state, message, CASE WHEN hint = '' THEN 'NO HINT' END);
END
$$;
-- the effect, counted; it answers with how often it has run for these parameters
CREATE TABLE effect (params jsonb, role name DEFAULT current_user);
CREATE FUNCTION charge(params jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
	INSERT INTO idem_test_execute.effect VALUES (params);
	RETURN jsonb_build_object('run', (SELECT count(*) FROM idem_test_execute.effect AS e WHERE e.params = charge.params));
END
$$;
CREATE FUNCTION effects() RETURNS int8 LANGUAGE sql AS $$ SELECT count(*) FROM idem_test_execute.effect $$;


-- P1, P3: a first run, and its replays, by each door -----------------------------------------------------------------
SELECT tell(c) FROM idem_execute('alice', 'charge', '{"by": "content"}', 'charge(jsonb)', trace_id => 't-1') AS c;
SELECT tell(c) FROM idem_execute('alice', 'charge', '{"by": "content"}', 'charge(jsonb)', trace_id => 't-2') AS c;
SELECT tell(c) FROM idem_execute('alice', 'charge', '{"by": "client"}', 'charge(jsonb)', client_key => 'order-1') AS c;
SELECT tell(c) FROM idem_execute('alice', 'charge', '{"by": "client"}', 'charge(jsonb)', client_key => 'order-1') AS c;
SELECT tell(c) FROM idem_execute('alice', 'charge', '{"by": "other"}', 'charge(jsonb)', client_key => 'order-1') AS c;
SELECT idem_sign('alice', 'charge', '{"by": "fingerprint"}') AS fp \gset
SELECT tell(c) FROM idem_execute('alice', 'charge', '{"by": "fingerprint"}', 'charge(jsonb)', :'fp') AS c;
SELECT tell(c) FROM idem_execute('alice', 'charge', '{"by": "fingerprint"}', 'charge(jsonb)', :'fp') AS c;
SELECT effects();
-- the same by the calls one by one
SELECT tell(c) FROM idem_acquire(:'fp', 'alice', 'charge', '{"by": "fingerprint"}') AS c;
SELECT tell(c) FROM idem_status(:'fp', 'alice') AS c;
-- what is not good runs nothing
SELECT tell(c) FROM idem_execute('mallory', 'charge', '{"by": "fingerprint"}', 'charge(jsonb)', :'fp') AS c;
SELECT tell(c) FROM idem_execute('alice', 'refund', '{"by": "fingerprint"}', 'charge(jsonb)', :'fp') AS c;
SELECT tell(c) FROM idem_execute('alice', 'charge', '{"by": "tampered"}', 'charge(jsonb)', :'fp') AS c;
SELECT tell(c) FROM idem_execute('alice', 'charge', '{"by": "fingerprint"}', 'charge(jsonb)', 'garbled') AS c;
SELECT effects();


-- P11: misuse -------------------------------------------------------------------------------------------------------
CREATE FUNCTION no_jsonb(text) RETURNS jsonb LANGUAGE sql AS $$ SELECT '1'::jsonb $$;
CREATE FUNCTION returns_text(jsonb) RETURNS text LANGUAGE sql AS $$ SELECT 'x' $$;
CREATE FUNCTION two(jsonb, jsonb DEFAULT NULL) RETURNS jsonb LANGUAGE sql AS $$ SELECT $1 $$;
CREATE FUNCTION several(jsonb) RETURNS SETOF jsonb LANGUAGE sql AS $$ SELECT $1 $$;
CREATE FUNCTION many(VARIADIC jsonb[]) RETURNS jsonb LANGUAGE sql AS $$ SELECT $1[1] $$;
CREATE FUNCTION outs(INOUT x jsonb) LANGUAGE sql AS $$ SELECT x $$;
CREATE PROCEDURE proc(jsonb) LANGUAGE sql AS $$ SELECT 1 $$;
CREATE AGGREGATE agg(jsonb) (SFUNC = jsonb_concat, STYPE = jsonb);
SELECT f, raised(format('SELECT * FROM idem_execute(%L, %L, %L, %s)', 'alice', 'misuse', '{"x": 1}', f))
	FROM unnest('{"NULL", ''no_jsonb(text)'', ''returns_text(jsonb)'', "''two(jsonb,jsonb)''", ''several(jsonb)'', ''many(jsonb[])'',
		''proc(jsonb)'', ''agg(jsonb)'', 999999, ''outs(jsonb)''}'::text[]) AS f;
SELECT a, raised('SELECT * FROM idem_execute(' || a || ')') FROM unnest(ARRAY[
	$$NULL, 'misuse', '{}', 'charge(jsonb)'$$,
	$$'alice', NULL, '{}', 'charge(jsonb)'$$,
	$$'alice', 'misuse', NULL, 'charge(jsonb)'$$,
	$$'alice', 'misuse', '{}', 'charge(jsonb)', wait => NULL$$,
	$$'alice', 'misuse', '{}', 'charge(jsonb)', wait => '-1 s'$$,
	$$'alice', 'misuse', '{}', 'charge(jsonb)', client_key => ''$$,
	$$'alice', 'misuse', '{}', 'charge(jsonb)', fingerprint => 'x', client_key => 'k'$$]) AS a;
-- EXECUTE on fn is asked for before anything is claimed, and of the caller
SET client_min_messages = error;
DROP ROLE IF EXISTS idem_test_execute_role;
RESET client_min_messages;
CREATE ROLE idem_test_execute_role;
SELECT idem_grant('idem_test_execute_role', 'caller');
GRANT USAGE ON SCHEMA idem_test_execute TO idem_test_execute_role;
CREATE FUNCTION forbidden(jsonb) RETURNS jsonb LANGUAGE sql AS $$ SELECT $1 $$;
REVOKE ALL ON FUNCTION forbidden(jsonb) FROM PUBLIC;
BEGIN;
SET LOCAL ROLE idem_test_execute_role;
SELECT raised($$SELECT * FROM idem_execute('alice', 'charge', '{"x": "forbidden"}', 'forbidden(jsonb)')$$);
RESET ROLE;
SELECT count(*) FROM idem_fast;
COMMIT;
SELECT tell(c) FROM idem_status_key(idem_key('alice', 'charge', '{"x": "forbidden"}'), 'alice') AS c;
-- fn runs with the caller's rights: it may not write there
SET ROLE idem_test_execute_role;
SELECT raised($$SELECT * FROM idem_execute('alice', 'charge', '{"x": "rights"}', 'charge(jsonb)')$$);
RESET ROLE;
-- unless it says so itself
CREATE FUNCTION charge_definer(params jsonb) RETURNS jsonb LANGUAGE plpgsql SECURITY DEFINER SET search_path = idem_test_execute, pg_temp AS $$
BEGIN
	INSERT INTO effect VALUES (params);
	RETURN to_jsonb(current_user = session_user);
END
$$;
SET ROLE idem_test_execute_role;
SELECT tell(c) FROM idem_execute('alice', 'charge', '{"x": "rights"}', 'charge_definer(jsonb)') AS c;
SELECT current_user;
RESET ROLE;


-- P9: an exception in fn leaves no claim and reaches the caller as it is ---------------------------------------------
CREATE FUNCTION fails(params jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
	INSERT INTO idem_test_execute.effect VALUES (params);
	RAISE EXCEPTION USING ERRCODE = 'ZX042', MESSAGE = 'card declined', DETAIL = 'The card is over its limit.', HINT = 'Use another card.';
END
$$;
\set SHOW_CONTEXT always
DO $$
DECLARE
	s text; m text; d text; h text; c text;
BEGIN
	PERFORM idem_execute('alice', 'charge', '{"x": "fails"}', 'fails(jsonb)');
EXCEPTION WHEN OTHERS THEN
	GET STACKED DIAGNOSTICS s = RETURNED_SQLSTATE, m = MESSAGE_TEXT, d = PG_EXCEPTION_DETAIL, h = PG_EXCEPTION_HINT, c = PG_EXCEPTION_CONTEXT;
	RAISE INFO '% / % / % / % / %', s, m, d, h, split_part(c, E'\n', 1);
END
$$;
\set SHOW_CONTEXT errors
SELECT count(*) FROM effect AS e WHERE params ->> 'x' = 'fails';
SELECT tell(c) FROM idem_status_key(idem_key('alice', 'charge', '{"x": "fails"}'), 'alice') AS c;
-- so that the next call runs, under the same key
SELECT tell(c) FROM idem_execute('alice', 'charge', '{"x": "fails"}', 'charge(jsonb)') AS c;


-- P3: results of every kind -------------------------------------------------------------------------------------------
CREATE FUNCTION sql_null(jsonb) RETURNS jsonb LANGUAGE sql AS $$ SELECT NULL::jsonb $$;
CREATE FUNCTION json_null(jsonb) RETURNS jsonb LANGUAGE sql AS $$ SELECT 'null'::jsonb $$;
-- a built-in: a copy of any value of variable length, in all versions
CREATE FUNCTION built_in(jsonb) RETURNS jsonb LANGUAGE internal STRICT IMMUTABLE AS 'byteasend';
CREATE FUNCTION strictly(params jsonb) RETURNS jsonb LANGUAGE plpgsql STRICT AS $$ BEGIN RETURN params; END $$;
CREATE FUNCTION stable_one(params jsonb) RETURNS jsonb LANGUAGE plpgsql STABLE AS $$ BEGIN RETURN params; END $$;
CREATE FUNCTION huge(params jsonb) RETURNS jsonb LANGUAGE sql AS $$ SELECT to_jsonb(string_agg(md5(n::text), '')) FROM generate_series(1, 20000) AS n $$;
SELECT f, tell(c) AS first, c.result IS NULL AS is_null, tell(d) AS again, d.result IS NULL AS is_null
	FROM unnest('{sql_null,json_null,strictly,stable_one,built_in}'::text[]) AS f,
		LATERAL idem_execute('alice', 'kinds', to_jsonb(f), (f || '(jsonb)')::regprocedure) AS c,
		LATERAL idem_execute('alice', 'kinds', to_jsonb(f), CASE c.outcome WHEN 'DONE' THEN (f || '(jsonb)')::regprocedure END) AS d;
SELECT c.outcome, c.replayed, length(c.result ->> 0), c.result = d.result AS same, d.replayed
	FROM idem_execute('alice', 'kinds', '{"x": "huge"}', 'huge(jsonb)') AS c,
		LATERAL idem_execute('alice', 'kinds', '{"x": "huge"}', CASE c.outcome WHEN 'DONE' THEN 'huge(jsonb)'::regprocedure END) AS d;


-- fn that calls the layer itself -------------------------------------------------------------------------------------
-- the same key: at work, without a token, at once, whatever the wait
CREATE FUNCTION nested_same(params jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
	c idem_claim;
BEGIN
	c := idem_execute('alice', 'nested', params, 'charge(jsonb)', wait => '1 min');
	RETURN jsonb_build_object('inner', idem_test_execute.tell(c), 'renew', idem_renew(c.key, gen_random_uuid()));
END
$$;
SELECT c.outcome, c.replayed, regexp_replace(c.result::text, 'lease', 'LEASE') FROM idem_execute('alice', 'nested', '{"x": "same"}', 'nested_same(jsonb)') AS c;
-- another key: an operation of its own, which goes with the outer one
CREATE FUNCTION nested_other(params jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
	c idem_claim;
BEGIN
	c := idem_execute('alice', 'nested', params || '{"inner": true}', 'charge(jsonb)');
	IF params ? 'fail' THEN
		RAISE EXCEPTION 'outer fails';
	END IF;
	RETURN to_jsonb(idem_test_execute.tell(c));
END
$$;
SELECT tell(c) FROM idem_execute('alice', 'nested', '{"x": "other"}', 'nested_other(jsonb)') AS c;
SELECT tell(c) FROM idem_status_key(idem_key('alice', 'nested', '{"x": "other", "inner": true}'), 'alice') AS c;
SELECT raised($$SELECT * FROM idem_execute('alice', 'nested', '{"x": "other", "fail": 1}', 'nested_other(jsonb)')$$);
SELECT tell(c) FROM idem_status_key(idem_key('alice', 'nested', '{"x": "other", "fail": 1, "inner": true}'), 'alice') AS c;
-- P8: fn that empties the fast table does not get away with it
CREATE FUNCTION truncates(params jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
	DELETE FROM idem_fast;
	RETURN '1';
END
$$;
SELECT raised($$SELECT * FROM idem_execute('alice', 'nested', '{"x": "truncates"}', 'truncates(jsonb)')$$);
SELECT tell(c) FROM idem_status_key(idem_key('alice', 'nested', '{"x": "truncates"}'), 'alice') AS c;


-- P9: savepoints and transactions ------------------------------------------------------------------------------------
BEGIN;
SAVEPOINT a;
SELECT tell(c) FROM idem_execute('alice', 'savepoint', '{"x": 1}', 'charge(jsonb)') AS c;
ROLLBACK TO a;
SELECT tell(c) FROM idem_status_key(idem_key('alice', 'savepoint', '{"x": 1}'), 'alice') AS c;
SAVEPOINT b;
SELECT tell(c) FROM idem_execute('alice', 'savepoint', '{"x": 1}', 'charge(jsonb)') AS c;
RELEASE b;
SELECT tell(c) FROM idem_execute('alice', 'savepoint', '{"x": 1}', 'charge(jsonb)') AS c;
COMMIT;
SELECT tell(c) FROM idem_execute('alice', 'savepoint', '{"x": 1}', 'charge(jsonb)') AS c;
BEGIN;
SELECT tell(c) FROM idem_execute('alice', 'savepoint', '{"x": 2}', 'charge(jsonb)') AS c;
ROLLBACK;
SELECT tell(c) FROM idem_execute('alice', 'savepoint', '{"x": 2}', 'charge(jsonb)') AS c;
-- read only: a replay answers, a first run is refused before fn runs
BEGIN READ ONLY;
SELECT tell(c) FROM idem_execute('alice', 'savepoint', '{"x": 2}', 'charge(jsonb)') AS c;
SELECT raised($$SELECT * FROM idem_execute('alice', 'savepoint', '{"x": 3}', 'charge(jsonb)')$$);
COMMIT;
-- F14: several in one statement
SELECT tell(idem_execute('alice', 'many', '{"x": 1}', 'charge(jsonb)')) FROM generate_series(1, 3);


-- P6: execute goes on where an attempt was released, or its lease is over ---------------------------------------------
INSERT INTO idem_policy (scope, downstream) VALUES ('ex.idempotent', 'idempotent'), ('ex.opaque', 'opaque'), ('ex.local', 'local');
SELECT key AS k, owner AS o FROM idem_acquire_direct('alice', 'ex.opaque', '{"x": "released"}') \gset
SELECT idem_release(:'k', :'o');
SELECT tell(c) FROM idem_execute('alice', 'ex.opaque', '{"x": "released"}', 'charge(jsonb)') AS c;
SELECT key AS k, owner AS o FROM idem_acquire_direct('alice', 'ex.opaque', '{"x": "retry"}') \gset
SELECT idem_fail(:'k', :'o', '"busy"', true);
SELECT tell(c) FROM idem_execute('alice', 'ex.opaque', '{"x": "retry"}', 'charge(jsonb)') AS c;
SELECT tell(c) FROM idem_execute('alice', 'ex.opaque', '{"x": "retry"}', 'charge(jsonb)') AS c;
SELECT key AS k, owner AS o FROM idem_acquire_direct('alice', 'ex.opaque', '{"x": "failed"}') \gset
SELECT idem_fail(:'k', :'o', '"declined"');
SELECT tell(c) FROM idem_execute('alice', 'ex.opaque', '{"x": "failed"}', 'charge(jsonb)') AS c;
-- P5: nobody knows
SELECT key AS k, owner AS o FROM idem_acquire_direct('alice', 'ex.opaque', '{"x": "over"}') \gset
UPDATE idem_record SET lease_until = '2020-01-01' WHERE key = :'k';
SELECT tell(c) FROM idem_execute('alice', 'ex.opaque', '{"x": "over"}', 'charge(jsonb)', wait => '0') AS c;
-- P4: taken over, and what the late holder hears
SELECT key AS k, owner AS o FROM idem_acquire_direct('alice', 'ex.idempotent', '{"x": "over"}') \gset
SELECT tell(c) FROM idem_execute('alice', 'ex.idempotent', '{"x": "over"}', 'charge(jsonb)', wait => '0') AS c;
UPDATE idem_record SET lease_until = '2020-01-01' WHERE key = :'k';
SELECT tell(c) FROM idem_execute('alice', 'ex.idempotent', '{"x": "over"}', 'charge(jsonb)') AS c;
SELECT idem_commit(:'k', :'o', '"late"');
SELECT kind, detail -> 'first' ->> 'result' AS first, detail ->> 'attempt' AS attempt FROM idem_alert WHERE key = :'k' ORDER BY kind;
-- a fn that fails takes the takeover back
SELECT key AS k, owner AS o FROM idem_acquire_direct('alice', 'ex.idempotent', '{"x": "over, fails"}') \gset
UPDATE idem_record SET lease_until = '2020-01-01' WHERE key = :'k';
SELECT raised($$SELECT * FROM idem_execute('alice', 'ex.idempotent', '{"x": "over, fails"}', 'fails(jsonb)')$$);
SELECT tell(c) FROM idem_status_key(:'k', 'alice') AS c;
SELECT idem_commit(:'k', :'o', '"late, and accepted"');
-- an effect that is rows in this database
SELECT tell(c) FROM idem_execute('alice', 'ex.local', '{"x": 1}', 'charge(jsonb)') AS c;
SELECT tell(c) FROM idem_execute('alice', 'ex.local', '{"x": 1}', 'charge(jsonb)') AS c;
SELECT raised($$SELECT * FROM idem_execute('alice', 'ex.local', '{"x": 2}', 'fails(jsonb)')$$);
SELECT tell(c) FROM idem_execute('alice', 'ex.local', '{"x": 2}', 'charge(jsonb)') AS c;
-- what policy forbids, it forbids here, and replays go on
UPDATE idem_policy SET enabled = false WHERE scope = 'ex.local';
SELECT tell(c) FROM idem_execute('alice', 'ex.local', '{"x": 1}', 'charge(jsonb)') AS c;
SELECT raised($$SELECT * FROM idem_execute('alice', 'ex.local', '{"x": 3}', 'charge(jsonb)')$$);
-- fn that changes its own scope's policy
CREATE FUNCTION changes_policy(params jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
	UPDATE idem_policy SET result_ttl = '48 hours', enabled = false WHERE scope = 'ex.opaque';
	RETURN '1';
END
$$;
SELECT tell(c), c.retained_until - c.finished_at AS kept FROM idem_execute('alice', 'ex.opaque', '{"x": "policy"}', 'changes_policy(jsonb)') AS c;


-- each ran as often as it says
SELECT params ->> 'x' AS x, count(*) FROM effect GROUP BY params HAVING count(*) > 1;
DELETE FROM idem_policy WHERE scope LIKE 'ex.%';
DROP OWNED BY idem_test_execute_role;
DROP ROLE idem_test_execute_role;
