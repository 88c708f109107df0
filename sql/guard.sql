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
	SELECT (SELECT count(*) FROM idem_peer JOIN idem_record AS r USING (key) WHERE r.scope = s), (SELECT count(*) FROM idem_peer JOIN idem_fast AS f USING (key) WHERE f.scope = s)
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
-- a person has confirmed: it runs, and both guard from now on
SELECT tell(c), c.key AS k2, c.owner AS o2 FROM fresh('gd.pay', '{"x": 1}', true) AS c \gset
\echo :tell
SELECT tell(c), c.key IN (:'k', :'k2') AS names_one_of_both FROM fresh('gd.pay', '{"x": 1}') AS c \gset
\echo :names_one_of_both
SELECT idem_commit(:'k2', :'o2', '{"receipt": 2}');
SELECT c.outcome, c.result IN ('{"receipt": 1}', '{"receipt": 2}') AS with_a_result FROM fresh('gd.pay', '{"x": 1}') AS c;
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
SELECT count(*) FROM idem_peer WHERE key = :'k3';
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
-- R18: who makes up a new key with each thought is guarded as well, unless a person has confirmed
SELECT tell(c), c.key = :'k' AS names_it FROM idem_acquire_direct('alice', 'gd.pay', '{"x": "other door"}', 'client-1') AS c;
SELECT tell(c) FROM idem_acquire_direct('alice', 'gd.pay', '{"x": "other door"}', 'client-1', confirm_repeat => true) AS c;

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

-- released in a savepoint that is rolled back: it stands, and guards
BEGIN;
SELECT c.key AS k, c.owner AS o FROM fresh('gd.pay', '{"x": "back"}') AS c \gset
SAVEPOINT a;
SELECT idem_release(:'k', :'o');
SELECT count(*) FROM idem_peer WHERE key = :'k';
ROLLBACK TO a;
COMMIT;
SELECT c.outcome, c.key = :'k' AS names_it FROM fresh('gd.pay', '{"x": "back"}') AS c;

-- a guard key is no operation -----------------------------------------------------------------------------------------
SELECT DISTINCT tell(s) FROM idem_peer AS p JOIN idem_record AS r USING (key), LATERAL idem_status_key(p.guard, r.subject) AS s WHERE r.scope LIKE 'gd.%';
SELECT count(*) FROM idem_audit AS a JOIN idem_peer AS p ON a.key = p.guard;
SELECT DISTINCT idem_commit(guard, gen_random_uuid(), '1') AS commit, idem_reconcile(guard, 'FAILED', 'note', force => true) AS verdict FROM idem_peer;
-- R20: no step can have it
BEGIN;
SELECT c.key AS k, c.outcome FROM idem_acquire_direct('alice', 'gd.pay', '{"x": "step"}') AS c \gset
SELECT guard <> idem_downstream_key(key, 'repeat guard') AS no_step FROM idem_peer WHERE key = :'k';
ROLLBACK;
BEGIN;
SELECT c.outcome FROM fresh('gd.pay', '{"x": "views"}') AS c;
SELECT count(*) FROM idem_in_flight WHERE scope = 'gd.pay' AND xid IS NOT NULL;
COMMIT;

-- an equal operation by the other door, from before the scope had a guard ---------------------------------------------
INSERT INTO idem_policy (scope) VALUES ('gd.late');
SELECT c.key AS k, idem_commit(c.key, c.owner, '"direct"') FROM idem_acquire_direct('alice', 'gd.late', '{"x": 1}') AS c \gset
SELECT count(*) FROM idem_peer WHERE key = :'k';
UPDATE idem_policy SET repeat_guard = '10 min' WHERE scope = 'gd.late';
SELECT c.outcome, c.key = :'k' AS named, c.result FROM fresh('gd.late', '{"x": 1}') AS c;
SELECT c.outcome FROM fresh('gd.late', '{"x": 2}') AS c;

-- all equal operations, whatever became of others between --------------------------------------------------------------
CREATE FUNCTION granted(params jsonb, confirmed bool DEFAULT false, OUT k uuid, OUT o uuid) LANGUAGE sql AS $$
	SELECT key, owner FROM fresh('gd.pay', params, confirmed)
$$;
CREATE FUNCTION told(params jsonb, named uuid) RETURNS text LANGUAGE sql AS $$
	SELECT concat_ws(' ', idem_preview('alice', 'gd.pay', params) ->> 'status', c.outcome, CASE c.key WHEN named THEN 'names it' END)
		FROM fresh('gd.pay', params) AS c
$$;
-- R4: a confirmed one that failed, or was released, does not make the first forgotten
SELECT * FROM granted('{"r4": 1}') \gset
SELECT idem_commit(:'k', :'o', '1');
SELECT c.k AS k2, c.o AS o2 FROM granted('{"r4": 1}', true) AS c \gset
SELECT idem_fail(:'k2', :'o2', '"declined"');
SELECT told('{"r4": 1}', :'k');
SELECT c.k AS k2, c.o AS o2 FROM granted('{"r4": 1}', true) AS c \gset
SELECT idem_release(:'k2', :'o2');
SELECT told('{"r4": 1}', :'k');
-- R4: the first still at work
SELECT * FROM granted('{"r4": 2}') \gset
SELECT c.k AS k2, c.o AS o2 FROM granted('{"r4": 2}', true) AS c \gset
SELECT idem_fail(:'k2', :'o2', '"declined"');
SELECT told('{"r4": 2}', :'k');
-- R4: the first done later than the second
SELECT c.k AS k2, c.o AS o2 FROM granted('{"r4": 2}', true) AS c \gset
SELECT idem_commit(:'k2', :'o2', '2'), idem_commit(:'k', :'o', '1');
UPDATE idem_record SET finished_at = clock_timestamp() - '11 min'::interval WHERE key = :'k2';
SELECT told('{"r4": 2}', :'k');
-- R4: the first's outcome unknown
SELECT c.key AS k FROM fresh('gd.opaque', '{"r4": 3}') AS c \gset
UPDATE idem_record SET lease_until = '2020-01-01' WHERE key = :'k';
SELECT c.key AS k2, c.owner AS o2 FROM fresh('gd.opaque', '{"r4": 3}', true) AS c \gset
SELECT idem_fail(:'k2', :'o2', '"declined"');
SELECT c.outcome, c.key = :'k' AS names_it FROM fresh('gd.opaque', '{"r4": 3}') AS c;
-- released, passed by another, and then found to have been done: it guards
SELECT * FROM granted('{"r4": 4}') \gset
SELECT idem_release(:'k', :'o');
SELECT c.k AS k2, c.o AS o2 FROM granted('{"r4": 4}') AS c \gset
SELECT idem_release(:'k2', :'o2');
SELECT idem_reconcile(:'k', 'DONE', 'it happened after all', force => true);
SELECT told('{"r4": 4}', :'k');
-- failed for good: nothing of it is looked at again
SELECT * FROM granted('{"r4": 5}') \gset
SELECT idem_fail(:'k', :'o', '1');
SELECT count(*) FROM idem_peer WHERE key = :'k';
-- R5: the lists change; R17: long ago, and the operation began under the former ones only now
INSERT INTO idem_policy (scope, repeat_guard, material) VALUES ('gd.lists', '1 h', '{/x}');
SELECT c.key AS k, idem_commit(c.key, c.owner, '1') FROM fresh('gd.lists', '{"x": 1, "y": 1}') AS c \gset
SELECT idem_sign('alice', 'gd.lists', '{"x": 2, "y": 1}') AS fp \gset
SELECT idem_sign('alice', 'gd.lists', '{"x": 1, "y": 2}') AS other \gset
UPDATE idem_policy SET material = '{/x,/y}' WHERE scope = 'gd.lists';
SELECT c.outcome, c.key = :'k' AS names_it, idem_preview('alice', 'gd.lists', '{"x": 1, "y": 1}') ->> 'status' AS preview FROM fresh('gd.lists', '{"x": 1, "y": 1}') AS c;
SELECT c.outcome, c.key = :'k' AS names_it FROM idem_acquire(:'other', 'alice', 'gd.lists', '{"x": 1, "y": 2}') AS c;
UPDATE idem_policy_version SET replaced_at = now() - '2 h'::interval WHERE scope = 'gd.lists' AND replaced_at IS NOT NULL;
SELECT c.key AS k, c.outcome, idem_commit(c.key, c.owner, '1') FROM idem_acquire(:'fp', 'alice', 'gd.lists', '{"x": 2, "y": 1}') AS c \gset
\echo :outcome
SELECT c.outcome, c.key = :'k' AS names_it FROM fresh('gd.lists', '{"x": 2, "y": 1}') AS c;
-- R16: unknown, and its lists replaced days ago
INSERT INTO idem_policy (scope, downstream, material) VALUES ('gd.unknown', 'opaque', '{/x}');
SELECT c.key AS k FROM idem_acquire_direct('alice', 'gd.unknown', '{"x": 1, "y": 1}') AS c \gset
UPDATE idem_record SET lease_until = '2020-01-01' WHERE key = :'k';
UPDATE idem_policy SET material = '{/x,/y}' WHERE scope = 'gd.unknown';
UPDATE idem_policy_version SET replaced_at = now() - '2 days'::interval WHERE scope = 'gd.unknown' AND replaced_at IS NOT NULL;
SELECT c.outcome, c.key = :'k' AS names_it FROM idem_acquire_direct('alice', 'gd.unknown', '{"x": 1, "y": 1}') AS c;
-- R25: lists of one's own that came and went by a clock that was ahead
INSERT INTO idem_policy (scope, material) VALUES ('*', '{/a}'), ('gd.ahead', '{/c}');
DELETE FROM idem_policy WHERE scope = 'gd.ahead';
UPDATE idem_policy_version SET replaced_at = now() + '1 h'::interval WHERE scope = 'gd.ahead';
SELECT c.outcome, idem_commit(c.key, c.owner, '1') FROM idem_acquire_direct('alice', 'gd.ahead', '{"a": 1, "b": 1}') AS c;
UPDATE idem_policy SET material = '{/a,/b}' WHERE scope = '*';
SELECT c.outcome FROM idem_acquire_direct('alice', 'gd.ahead', '{"a": 1, "b": 1}') AS c;
DELETE FROM idem_policy WHERE scope = '*';
-- R18: client keys, and a person's word
INSERT INTO idem_policy (scope, repeat_guard) VALUES ('gd.client', '1 h');
SELECT c.key AS k, idem_commit(c.key, c.owner, '1') FROM idem_acquire_direct('alice', 'gd.client', '{"x": 1}', 'k1') AS c \gset
SELECT c.outcome, c.key = :'k' AS names_it FROM idem_acquire_direct('alice', 'gd.client', '{"x": 1}', 'k2') AS c;
SELECT idem_preview('alice', 'gd.client', '{"x": 1}') ->> 'status' AS preview;
SELECT tell(c) FROM idem_acquire_direct('alice', 'gd.client', '{"x": 1}', 'k1') AS c;
SELECT c.outcome FROM idem_acquire_direct('alice', 'gd.client', '{"x": 1}', 'k2', confirm_repeat => true) AS c;
CREATE FUNCTION runs(jsonb) RETURNS jsonb LANGUAGE sql AS $$ SELECT '"it ran"'::jsonb $$;
SELECT tell(c) FROM idem_execute('alice', 'gd.client', '{"x": 1}', 'must_not_run(jsonb)', client_key => 'k3') AS c;
SELECT c.outcome, c.replayed, c.result FROM idem_execute('alice', 'gd.client', '{"x": 1}', 'runs(jsonb)', client_key => 'k3', confirm_repeat => true) AS c;
SELECT c.outcome, c.replayed, c.result FROM idem_execute('alice', 'gd.client', '{"x": 1}', 'must_not_run(jsonb)', client_key => 'k3') AS c;
-- R6: the memory is never shorter than the guard
INSERT INTO idem_policy (scope, repeat_guard) VALUES ('gd.days', '3 days');
SELECT idem_commit(c.key, c.owner, '1') FROM fresh('gd.days', '{"x": 1}') AS c;
INSERT INTO idem_policy (scope, repeat_guard, caller_retry_window, result_ttl) VALUES ('gd.brief', '1 h', '1 s', '1 s');
SELECT idem_commit(c.key, c.owner, '1') FROM idem_acquire_direct('alice', 'gd.brief', '{"x": 1}', 'k1') AS c;
SELECT scope, retained_until - finished_at >= CASE scope WHEN 'gd.days' THEN '3 days' ELSE '1 h' END::interval AS kept FROM idem_record
	WHERE scope IN ('gd.days', 'gd.brief') ORDER BY scope;
-- unguarded scopes leave no rows
INSERT INTO idem_policy (scope) VALUES ('gd.none');
SELECT c.key AS k, c.outcome FROM fresh('gd.none', '{"x": 1}') AS c \gset
SELECT count(*) FROM idem_peer WHERE key = :'k';

-- purge --------------------------------------------------------------------------------------------------------------
-- a peer stays while its operation is at work, or on record, and goes with it (R6: purge deletes peers)
SELECT c.key AS k, c.owner AS o FROM fresh('gd.pay', '{"x": "purge"}') AS c \gset
SELECT idem_purge() >= 0;
SELECT count(*) FROM idem_peer WHERE key = :'k';
SELECT tell(c) FROM fresh('gd.pay', '{"x": "purge"}') AS c;
SELECT idem_commit(:'k', :'o', '1');
SELECT idem_purge() >= 0;
SELECT tell(c) FROM fresh('gd.pay', '{"x": "purge"}') AS c;
UPDATE idem_record SET finished_at = now() - '25 hours'::interval, retained_until = now() - '1 hour'::interval WHERE key = :'k';
SELECT idem_purge() > 0;
SELECT count(*) FROM idem_peer WHERE key = :'k';

DELETE FROM idem_policy WHERE scope LIKE 'gd.%';
