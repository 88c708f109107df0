-- idem_reconcile: an operator's verdict on an operation whose outcome nobody knew (P2, P4, P5, P6).
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS idem CASCADE;
RESET client_min_messages;
CREATE SCHEMA idem_test_reconcile;
SET search_path = idem_test_reconcile, public;
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
INSERT INTO idem_policy (scope, downstream) VALUES ('rc.opaque', 'opaque'), ('rc.idempotent', 'idempotent');

-- every verdict on every state ---------------------------------------------------------------------------------------
-- The expected answers come from the rules of the state machine, not from what the code does.
CREATE TABLE verdict (n serial, verdict text, result jsonb, result_ref text, force bool);
INSERT INTO verdict (verdict, result, result_ref, force) VALUES
	('DONE', '{"r": 1}', 'ref', false), ('DONE', '{"r": 2}', 'ref', false), ('DONE', '{"r": 1}', NULL, false), ('DONE', NULL, NULL, false),
	('FAILED', '{"r": 1}', 'ref', false), ('FAILED', '{"r": 2}', NULL, false), ('RETRY', '{"r": 1}', 'ref', false), ('RETRY', NULL, NULL, false),
	('DONE', '{"r": 1}', 'ref', true), ('FAILED', '{"r": 1}', 'ref', true), ('RETRY', '{"r": 1}', 'ref', true);
CREATE TABLE situation (name text PRIMARY KEY, scope text);
INSERT INTO situation VALUES ('none', 'rc.opaque'), ('running', 'rc.opaque'), ('running idempotent', 'rc.idempotent'),
	('over', 'rc.opaque'), ('over idempotent', 'rc.idempotent'), ('done', 'rc.opaque'), ('failed', 'rc.opaque'), ('released', 'rc.opaque'),
	('retryable', 'rc.opaque'), ('lapsed done', 'rc.opaque'), ('lapsed released', 'rc.opaque'), ('taken over', 'rc.idempotent');
CREATE TABLE cell AS
	SELECT s.name, s.scope, v.*, jsonb_build_object('cell', s.name, 'n', v.n) AS params, gen_random_uuid() AS owner, NULL::uuid AS late
	FROM situation AS s, verdict AS v;
CREATE FUNCTION key_of(c cell) RETURNS uuid LANGUAGE sql AS $$ SELECT idem_key('alice', c.scope, c.params) $$;
SELECT count(*) AS begun FROM cell AS c,
	LATERAL (SELECT CASE WHEN name <> 'none' THEN (idem_acquire_direct('alice', scope, params, owner => owner)).outcome ELSE 'ACQUIRED' END AS o) AS a
	WHERE a.o = 'ACQUIRED';
CREATE FUNCTION prepare(c cell) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	ack text := 'OK';
BEGIN
	CASE regexp_replace(c.name, 'lapsed ', '')
		WHEN 'done' THEN ack := idem_commit(key_of(c), c.owner, '{"r": 1}', 'ref');
		WHEN 'failed' THEN ack := idem_fail(key_of(c), c.owner, '{"r": 1}');
		WHEN 'released' THEN ack := idem_release(key_of(c), c.owner);
		WHEN 'retryable' THEN ack := idem_fail(key_of(c), c.owner, '"busy"', true);
		ELSE NULL;
	END CASE;
	IF c.name LIKE 'over%' OR c.name = 'taken over' THEN
		UPDATE idem_record SET lease_until = '2020-01-01' WHERE key = key_of(c);
	ELSIF c.name LIKE 'lapsed%' THEN
		UPDATE idem_record SET retained_until = '2020-01-01' WHERE key = key_of(c);
	END IF;
	IF c.name = 'taken over' THEN
		ack := (idem_acquire_direct('alice', c.scope, c.params)).outcome;
	END IF;
	RETURN ack;
END
$$;
SELECT prepare(c) AS prepared, count(*) FROM cell AS c GROUP BY 1 ORDER BY 1;
CREATE FUNCTION expected(c cell) RETURNS text LANGUAGE sql AS $$
	SELECT CASE
		WHEN c.name = 'none' OR c.name LIKE 'lapsed%' THEN 'NONE'
		WHEN c.name IN ('running', 'running idempotent', 'taken over') AND NOT c.force THEN '55000'
		WHEN c.name = 'done' THEN CASE WHEN c.verdict = 'DONE' AND c.result = '{"r": 1}' AND c.result_ref = 'ref' THEN 'OK' ELSE 'ALREADY' END
		-- a failure has no reference
		WHEN c.name = 'failed' THEN CASE WHEN c.verdict = 'FAILED' AND c.result = '{"r": 1}' AND c.result_ref IS NULL THEN 'OK' ELSE 'ALREADY' END
		ELSE 'OK' END
$$;
CREATE FUNCTION give(c cell) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
	RETURN idem_reconcile(key_of(c), c.verdict, 'checked with the bank', c.result, c.result_ref, c.force);
EXCEPTION WHEN OTHERS THEN
	RETURN SQLSTATE;
END
$$;
CREATE TABLE answer AS SELECT c.*, key_of(c) AS key, give(c) AS got, expected(c) AS expected FROM cell AS c;
SELECT name, n, verdict, got, expected FROM answer WHERE got IS DISTINCT FROM expected;
SELECT got, count(*) FROM answer GROUP BY 1 ORDER BY 1;
-- what has become of them: an OK stands with its result, who, when and why; anything else changed nothing
SELECT a.name, a.n, a.verdict, a.got, r.state, r.result FROM answer AS a LEFT JOIN idem_record AS r USING (key)
	WHERE CASE WHEN a.got = 'OK' AND a.name NOT IN ('done', 'failed') THEN
			r.state <> (CASE a.verdict WHEN 'DONE' THEN 'D' WHEN 'FAILED' THEN 'F' ELSE 'R' END)::"char"
			OR r.result IS DISTINCT FROM a.result OR r.result_ref IS DISTINCT FROM a.result_ref
			OR r.reconcile_note <> 'checked with the bank' OR r.reconciled_by <> current_user::text OR r.reconciled_at IS NULL
			OR r.retained_until - r.finished_at <> '24 hours'
		ELSE r.reconciled_at IS NOT NULL OR r.reconciled_by IS NOT NULL OR r.reconcile_note IS NOT NULL END;
-- P2: a second verdict is judged by the first
SELECT s.second, a.got, count(*) FROM answer AS a, unnest('{DONE,FAILED,RETRY}'::text[]) AS s(second),
	LATERAL (SELECT idem_reconcile(a.key, s.second, 'again', a.result, a.result_ref)) AS x(again)
	WHERE a.got = 'OK' AND a.verdict <> 'RETRY' AND a.name NOT IN ('done', 'failed')
		AND x.again <> (CASE WHEN s.second = a.verdict THEN 'OK' ELSE 'ALREADY' END)::idem_ack
	GROUP BY 1, 2;
-- P4: the late holder of an operation that got a verdict changes nothing, and what it brings is evidence
SELECT idem_commit(a.key, a.owner, '"late"') AS late, count(*) FROM answer AS a
	WHERE a.got = 'OK' AND a.name LIKE 'over%' GROUP BY 1;
SELECT idem_release(a.key, a.owner) AS late, count(*) FROM answer AS a WHERE a.got = 'OK' AND a.name LIKE 'over%' GROUP BY 1;
SELECT count(*), min(al.detail -> 'first' ->> 'result') AS first_result FROM idem_alert AS al JOIN answer AS a USING (key)
	WHERE kind = 'not_owner' AND a.name LIKE 'over%' AND a.got = 'OK';
-- RETRY: the next acquire continues, with the same key
SELECT c.outcome, c.attempt, c.key = a.key AS same_key, count(*) FROM answer AS a, LATERAL idem_acquire_direct('alice', a.scope, a.params) AS c
	WHERE a.got = 'OK' AND a.verdict = 'RETRY' GROUP BY 1, 2, 3 ORDER BY 2;


-- P6: RETRY lets the same key go on even after its fingerprint's time -------------------------------------------------
SELECT idem_sign('alice', 'rc.opaque', '{"x": "expired"}', not_after => clock_timestamp() + '3 s') AS fp \gset
SELECT key AS k, owner AS o FROM idem_acquire(:'fp', 'alice', 'rc.opaque', '{"x": "expired"}') \gset
UPDATE idem_record SET lease_until = '2020-01-01' WHERE key = :'k';
SELECT tell(c) FROM idem_acquire(:'fp', 'alice', 'rc.opaque', '{"x": "expired"}') AS c;
SELECT pg_sleep(greatest(0, extract(epoch FROM expires_at - clock_timestamp()))) FROM idem_inspect(:'fp');
SELECT tell(c) FROM idem_acquire(:'fp', 'alice', 'rc.opaque', '{"x": "expired"}') AS c;
SELECT idem_reconcile(:'k', 'RETRY', 'the bank knows nothing of it');
SELECT tell(c) FROM idem_status(:'fp', 'alice') AS c;
SELECT tell(c), (c.key = :'k') AS same_key FROM idem_acquire(:'fp', 'alice', 'rc.opaque', '{"x": "expired"}') AS c;
SELECT idem_commit(:'k', :'o', '"late"');


-- the note, and other arguments --------------------------------------------------------------------------------------
SELECT a, raised('SELECT idem_reconcile(' || a || ')') FROM unnest(ARRAY[
	$$NULL, 'DONE', 'note'$$, $$gen_random_uuid(), NULL, 'note'$$, $$gen_random_uuid(), 'done', 'note'$$, $$gen_random_uuid(), 'MAYBE', 'note'$$,
	$$gen_random_uuid(), 'DONE', NULL$$, $$gen_random_uuid(), 'DONE', ''$$, $$gen_random_uuid(), 'DONE', '  '$$,
	$$gen_random_uuid(), 'DONE', 'note', force => NULL$$, $$gen_random_uuid(), 'DONE', 'note', result_ref => repeat('x', 100000)$$,
	$$gen_random_uuid(), 'DONE', repeat('x', 1000000)$$]) AS a;
-- who and when
SELECT key AS k, owner AS o FROM idem_acquire_direct('alice', 'rc.opaque', '{"x": "who"}') \gset
SET client_min_messages = error;
DROP ROLE IF EXISTS idem_test_reconcile_op;
RESET client_min_messages;
CREATE ROLE idem_test_reconcile_op;
GRANT USAGE ON SCHEMA idem_test_reconcile TO idem_test_reconcile_op;
SET ROLE idem_test_reconcile_op;
SELECT raised(format('SELECT public.idem_reconcile(%L, %L, %L)', :'k', 'DONE', 'x'));
RESET ROLE;
SELECT idem_grant('idem_test_reconcile_op', 'operator');
SET ROLE idem_test_reconcile_op;
SELECT idem_reconcile(:'k', 'DONE', 'the bank''s statement shows it', '{"r": 9}', 'stmt-7', force => true);
RESET ROLE;
SELECT state, result_ref, reconciled_by, reconcile_note, reconciled_at = finished_at AS at_once FROM idem_audit WHERE key = :'k';
SELECT kind, role, detail ->> 'note' AS note FROM idem_alert WHERE key = :'k';
SELECT tell(c) FROM idem_acquire_direct('alice', 'rc.opaque', '{"x": "who"}') AS c;
-- the holder whose lease still ran
SELECT idem_commit(:'k', :'o', '{"r": 9}', 'stmt-7');


-- in a transaction ---------------------------------------------------------------------------------------------------
-- its own claim, uncommitted: not yet an operation that anybody could know of
BEGIN;
SELECT key AS k, owner AS o FROM idem_acquire_direct('alice', 'rc.opaque', '{"x": "own"}') \gset
SELECT idem_reconcile(:'k', 'DONE', 'note', force => true);
SELECT idem_commit(:'k', :'o');
SELECT idem_reconcile(:'k', 'DONE', 'note');
SELECT idem_reconcile(:'k', 'FAILED', 'note');
COMMIT;
-- taken back
SELECT key AS k, owner AS o FROM idem_acquire_direct('alice', 'rc.opaque', '{"x": "back"}') \gset
BEGIN;
SAVEPOINT a;
SELECT idem_reconcile(:'k', 'FAILED', 'note', force => true);
ROLLBACK TO a;
SELECT tell(c) FROM idem_status_key(:'k', 'alice') AS c;
SELECT idem_commit(:'k', :'o', '1');
COMMIT;
-- its own takeover
SELECT key AS k, owner AS o FROM idem_acquire_direct('alice', 'rc.idempotent', '{"x": "takeover"}') \gset
UPDATE idem_record SET lease_until = '2020-01-01' WHERE key = :'k';
BEGIN;
SELECT tell(c) FROM idem_acquire_direct('alice', 'rc.idempotent', '{"x": "takeover"}') AS c;
SELECT idem_reconcile(:'k', 'DONE', 'note', force => true);
SELECT tell(c) FROM idem_acquire_direct('alice', 'rc.idempotent', '{"x": "takeover"}') AS c;
COMMIT;
SELECT key AS k, owner AS o FROM idem_acquire_direct('alice', 'rc.opaque', '{"x": "read only"}') \gset
BEGIN READ ONLY;
SELECT raised(format('SELECT idem_reconcile(%L, %L, %L, force => true)', :'k', 'DONE', 'x'));
COMMIT;
-- P7: a guard key is no operation
UPDATE idem_policy SET repeat_guard = '1 hour' WHERE scope = 'rc.opaque';
SELECT outcome, owner AS o FROM idem_acquire(idem_sign('alice', 'rc.opaque', '{"x": "guarded"}'), 'alice', 'rc.opaque', '{"x": "guarded"}') \gset
SELECT idem_reconcile(guard, 'DONE', 'note', force => true), idem_commit(guard, :'o'), idem_renew(guard, :'o'), idem_release(guard, :'o'), idem_fail(guard, gen_random_uuid(), '1')
	FROM idem_peer JOIN idem_record USING (key) WHERE scope = 'rc.opaque';

BEGIN;
SELECT outcome, owner AS o FROM idem_acquire(idem_sign('alice', 'rc.opaque', '{"x": "guarded here"}'), 'alice', 'rc.opaque', '{"x": "guarded here"}') \gset
SELECT idem_reconcile(guard, 'DONE', 'note', force => true), idem_commit(guard, :'o'), idem_renew(guard, :'o'), idem_release(guard, :'o'), idem_fail(guard, gen_random_uuid(), '1')
	FROM idem_peer JOIN idem_fast USING (key) WHERE scope = 'rc.opaque';
ROLLBACK;

DELETE FROM idem_policy WHERE scope LIKE 'rc.%';
DROP OWNED BY idem_test_reconcile_op;
DROP ROLE idem_test_reconcile_op;
