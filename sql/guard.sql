-- The repeat guard: an equal operation under a new fingerprint is taken for a repeat (P1).
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS idem CASCADE;
RESET client_min_messages;
CREATE SCHEMA idem_test_guard;
SET search_path = idem_test_guard, public;
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
INSERT INTO idem_policy (scope, downstream, repeat_guard) VALUES ('gd.pay', 'idempotent', '10 min'), ('gd.opaque', 'opaque', '10 min'), ('gd.local', 'local', '10 min');
INSERT INTO idem_policy (scope, immaterial, repeat_guard) VALUES ('gd.memo', '{/memo}', '10 min');
-- a fresh fingerprint, and an acquire by it
CREATE FUNCTION fresh(scope text, params jsonb, confirmed bool DEFAULT false, subject text DEFAULT 'alice') RETURNS idem_claim LANGUAGE sql AS $$
	SELECT idem_acquire(idem_sign(subject, scope, params, confirm_repeat => confirmed), subject, scope, params)
$$;
CREATE FUNCTION guards(s text) RETURNS TABLE (guards int8, fast int8) LANGUAGE sql AS $$
	SELECT (SELECT count(*) FROM idem_record WHERE scope = s AND operation IS NOT NULL), (SELECT count(*) FROM idem_fast WHERE scope = s AND operation IS NOT NULL)
$$;

-- the operation is at work, then done: the answer names it, without its owner
SELECT tell(c), c.key AS k, c.owner AS o FROM fresh('gd.pay', '{"x": 1}') AS c \gset
\echo :tell
SELECT tell(c), c.key = :'k' AS names_it, c.owner, c.scope, c.subject FROM fresh('gd.pay', '{"x": 1}') AS c;
SELECT idem_commit(:'k', :'o', '{"receipt": 1}', 'ref-1');
SELECT tell(c), c.key = :'k' AS names_it, c.owner, c.scope, c.subject FROM fresh('gd.pay', '{"x": 1}') AS c;
-- not for others: subject, scope, parameters
SELECT tell(c) FROM fresh('gd.pay', '{"x": 1}', subject => 'bob') AS c;
SELECT tell(c) FROM fresh('gd.pay', '{"x": 2}') AS c;
SELECT tell(c) FROM fresh('gd.opaque', '{"x": 1}') AS c;
-- what is not material makes no difference
SELECT tell(c) FROM fresh('gd.memo', '{"x": 1, "memo": "rent"}') AS c;
SELECT tell(c) FROM fresh('gd.memo', '{"x": 1, "memo": "the rent"}') AS c;
-- a person has confirmed: it runs, and guards from now on
SELECT tell(c), c.key AS k2, c.owner AS o2 FROM fresh('gd.pay', '{"x": 1}', true) AS c \gset
\echo :tell
SELECT tell(c), c.key = :'k2' AS names_the_latest FROM fresh('gd.pay', '{"x": 1}') AS c;
SELECT idem_commit(:'k2', :'o2', '{"receipt": 2}');
SELECT tell(c) FROM fresh('gd.pay', '{"x": 1}') AS c;
-- P3: the first fingerprint's retries get their own result
SELECT tell(c) FROM idem_status_key(:'k', 'alice') AS c;

-- a failure, a release and age leave it free -------------------------------------------------------------------------
SELECT c.key AS k, c.owner AS o FROM fresh('gd.pay', '{"x": "fail"}') AS c \gset
SELECT idem_fail(:'k', :'o', '"declined"');
SELECT tell(c), c.key AS k2, c.owner AS o2 FROM fresh('gd.pay', '{"x": "fail"}') AS c \gset
\echo :tell
SELECT idem_release(:'k2', :'o2');
SELECT tell(c), c.key AS k3, c.owner AS o3 FROM fresh('gd.pay', '{"x": "fail"}') AS c \gset
\echo :tell
-- it is at work now: the one that was released must not go on beside it
SELECT operation = :'k3' AS names_the_third FROM idem_record WHERE operation IN (:'k', :'k2', :'k3');
SELECT idem_fail(:'k3', :'o3', '"busy"', true);
-- and now the fourth may start, or the third continue, but not both
SELECT idem_sign('alice', 'gd.pay', '{"x": "again"}') AS fp \gset
SELECT c.key AS k, c.owner AS o FROM idem_acquire(:'fp', 'alice', 'gd.pay', '{"x": "again"}') AS c \gset
SELECT idem_release(:'k', :'o');
SELECT tell(c), c.key AS k2, c.owner AS o2 FROM fresh('gd.pay', '{"x": "again"}') AS c \gset
\echo :tell
SELECT tell(c), c.key = :'k2' AS names_the_second FROM idem_acquire(:'fp', 'alice', 'gd.pay', '{"x": "again"}') AS c;
SELECT idem_release(:'k2', :'o2');
SELECT tell(c) FROM idem_acquire(:'fp', 'alice', 'gd.pay', '{"x": "again"}') AS c;
SELECT tell(c), c.key = :'k' AS names_the_first FROM fresh('gd.pay', '{"x": "again"}') AS c;
-- an operation whose lease is over guards still, whatever its downstream (P5)
SELECT c.key AS k FROM fresh('gd.pay', '{"x": "over"}') AS c \gset
UPDATE idem_record SET lease_until = '2020-01-01' WHERE key = :'k';
SELECT tell(c) FROM fresh('gd.pay', '{"x": "over"}') AS c;
SELECT c.key AS k FROM fresh('gd.opaque', '{"x": "over"}') AS c \gset
UPDATE idem_record SET lease_until = '2020-01-01' WHERE key = :'k';
SELECT tell(c) FROM fresh('gd.opaque', '{"x": "over"}') AS c;
-- too old
SELECT c.key AS k, c.owner AS o FROM fresh('gd.pay', '{"x": "old"}') AS c \gset
SELECT idem_commit(:'k', :'o', '"old"');
UPDATE idem_record SET finished_at = clock_timestamp() - '9 min'::interval WHERE key = :'k';
SELECT tell(c) FROM fresh('gd.pay', '{"x": "old"}') AS c;
UPDATE idem_record SET finished_at = clock_timestamp() - '10 min'::interval WHERE key = :'k';
SELECT tell(c) FROM fresh('gd.pay', '{"x": "old"}') AS c;
SELECT tell(c) FROM fresh('gd.pay', '{"x": "old"}') AS c;

-- direct calls in the same scope -------------------------------------------------------------------------------------
SELECT tell(c), c.key AS k, c.owner AS o FROM idem_acquire_direct('alice', 'gd.pay', '{"x": "door"}') AS c \gset
\echo :tell
SELECT tell(c), c.key = :'k' AS names_it FROM fresh('gd.pay', '{"x": "door"}') AS c;
SELECT idem_commit(:'k', :'o', '"direct"');
SELECT tell(c), c.key = :'k' AS names_it FROM fresh('gd.pay', '{"x": "door"}') AS c;
SELECT tell(c) FROM idem_acquire_direct('alice', 'gd.pay', '{"x": "door"}') AS c;
SELECT c.key AS k, c.owner AS o FROM fresh('gd.pay', '{"x": "other door"}') AS c \gset
SELECT tell(c), c.key = :'k' AS names_it FROM idem_acquire_direct('alice', 'gd.pay', '{"x": "other door"}') AS c;
SELECT idem_commit(:'k', :'o', '"by fingerprint"');
SELECT tell(c), c.key = :'k' AS names_it FROM idem_acquire_direct('alice', 'gd.pay', '{"x": "other door"}') AS c;
-- idem_execute as well, and its fn does not run
CREATE FUNCTION must_not_run(jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'it ran'; END $$;
SELECT tell(c) FROM idem_execute('alice', 'gd.pay', '{"x": "other door"}', 'must_not_run(jsonb)') AS c;
SELECT tell(c) FROM idem_execute('alice', 'gd.pay', '{"x": "other door"}', 'must_not_run(jsonb)', fingerprint => idem_sign('alice', 'gd.pay', '{"x": "other door"}')) AS c;
-- a client's key is the client's own word that these are two
SELECT tell(c) FROM idem_acquire_direct('alice', 'gd.pay', '{"x": "other door"}', 'client-1') AS c;

-- one transaction, savepoints ----------------------------------------------------------------------------------------
DELETE FROM idem_record WHERE scope = 'gd.local';
BEGIN;
SELECT c.key AS k, c.owner AS o FROM fresh('gd.local', '{"x": 1}') AS c \gset
SELECT * FROM guards('gd.local');
SELECT tell(c), c.key = :'k' AS names_it FROM fresh('gd.local', '{"x": 1}') AS c;
SELECT idem_commit(:'k', :'o', '"here"');
SELECT tell(c), c.key = :'k' AS names_it FROM fresh('gd.local', '{"x": 1}') AS c;
COMMIT;
SELECT * FROM guards('gd.local');
SELECT tell(c) FROM fresh('gd.local', '{"x": 1}') AS c;
-- released or failed in its own transaction: free at once, and nothing of the guard stays
BEGIN;
SELECT c.key AS k, c.owner AS o FROM fresh('gd.local', '{"x": 2}') AS c \gset
SELECT idem_release(:'k', :'o');
SELECT tell(c), c.key AS k, c.owner AS o FROM fresh('gd.local', '{"x": 2}') AS c \gset
\echo :tell
SELECT idem_fail(:'k', :'o', '"no"');
COMMIT;
SELECT * FROM guards('gd.local');
SELECT tell(c) FROM fresh('gd.opaque', '{"x": 2}') AS c;
-- rolled back to a savepoint: free
BEGIN;
SAVEPOINT a;
SELECT tell(c) FROM fresh('gd.local', '{"x": 3}') AS c;
ROLLBACK TO a;
SELECT c.outcome, c.key AS k, c.owner AS o FROM fresh('gd.local', '{"x": 3}') AS c \gset
\echo :outcome
SAVEPOINT b;
SELECT idem_commit(:'k', :'o', '1');
ROLLBACK TO b;
SELECT tell(c) FROM fresh('gd.local', '{"x": 3}') AS c;
SELECT idem_commit(:'k', :'o', '2');
COMMIT;
SELECT tell(c) FROM fresh('gd.local', '{"x": 3}') AS c;
BEGIN;
SELECT c.outcome FROM fresh('gd.pay', '{"x": "rolled back"}') AS c;
ROLLBACK;
SELECT c.outcome FROM fresh('gd.pay', '{"x": "rolled back"}') AS c;

-- the guard row is no operation ---------------------------------------------------------------------------------------
SELECT DISTINCT tell(s) FROM idem_record AS r, LATERAL idem_status_key(r.key, r.subject) AS s WHERE r.operation IS NOT NULL AND r.scope LIKE 'gd.%';
SELECT count(*) FROM idem_audit AS a JOIN idem_record AS r USING (key) WHERE r.operation IS NOT NULL;
SELECT DISTINCT idem_commit(key, gen_random_uuid(), '1') AS commit, idem_reconcile(key, 'FAILED', 'note', force => true) AS verdict FROM idem_record WHERE operation IS NOT NULL AND scope LIKE 'gd.%';
BEGIN;
SELECT c.outcome, c.owner AS o FROM fresh('gd.pay', '{"x": "open"}') AS c \gset
SELECT :'outcome' AS outcome, idem_commit(key, :'o', '1') AS commit, idem_fail(key, :'o', '1') AS fail, idem_release(key, :'o') AS release FROM idem_fast WHERE operation IS NOT NULL;
ROLLBACK;
-- it is kept as long as it guards
SELECT DISTINCT retained_until - finished_at AS kept, state FROM idem_record WHERE operation IS NOT NULL AND scope LIKE 'gd.%';
SELECT count(*) FROM idem_in_flight AS a JOIN idem_record AS r USING (key) WHERE r.operation IS NOT NULL;
SELECT count(*) FROM idem_stuck AS a JOIN idem_record AS r USING (key) WHERE r.operation IS NOT NULL;
BEGIN;
SELECT c.outcome FROM fresh('gd.pay', '{"x": "views"}') AS c;
SELECT count(*) FROM idem_in_flight WHERE scope = 'gd.pay' AND xid IS NOT NULL;
SELECT DISTINCT tell(s) FROM idem_fast AS r, LATERAL idem_status_key(r.key, r.subject) AS s WHERE r.operation IS NOT NULL;
COMMIT;

-- an equal operation by the other door, from before the scope had a guard ---------------------------------------------
INSERT INTO idem_policy (scope) VALUES ('gd.late');
SELECT c.key AS k, idem_commit(c.key, c.owner, '"direct"') FROM idem_acquire_direct('alice', 'gd.late', '{"x": 1}') AS c \gset
UPDATE idem_policy SET repeat_guard = '10 min' WHERE scope = 'gd.late';
SELECT c.outcome, c.key = :'k' AS named, c.result FROM fresh('gd.late', '{"x": 1}') AS c;
SELECT c.outcome FROM fresh('gd.late', '{"x": 2}') AS c;

-- purge --------------------------------------------------------------------------------------------------------------
-- a guard whose time is over stays while its operation is at work, or finished within the guard's time
SELECT c.key AS k, c.owner AS o FROM fresh('gd.pay', '{"x": "purge"}') AS c \gset
UPDATE idem_record SET acquired_at = now() - '1 hour'::interval, finished_at = now() - '1 hour'::interval, retained_until = now() - '50 min'::interval
	WHERE operation = :'k';
SELECT idem_purge() >= 0;
SELECT count(*) FROM idem_record WHERE operation = :'k';
SELECT tell(c) FROM fresh('gd.pay', '{"x": "purge"}') AS c;
SELECT idem_commit(:'k', :'o', '1');
SELECT idem_purge() >= 0;
SELECT tell(c) FROM fresh('gd.pay', '{"x": "purge"}') AS c;
UPDATE idem_record SET finished_at = now() - '11 min'::interval WHERE key = :'k';
SELECT idem_purge() >= 0;
SELECT count(*) FROM idem_record WHERE operation = :'k';

DELETE FROM idem_policy WHERE scope LIKE 'gd.%';
