-- idem_require: nobody writes around the layer (P1, P4). Each test names what it shows.
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS idem CASCADE;
RESET client_min_messages;
CREATE SCHEMA idem_test_require;
SET search_path = idem_test_require, public;
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
INSERT INTO idem_policy (scope, downstream) VALUES ('rq.pay', 'idempotent'), ('rq.other', 'idempotent'), ('rq.local', 'local');
CREATE TABLE payment (id serial, key uuid, amount int);
CREATE TRIGGER payment_for_a_claim BEFORE INSERT OR UPDATE ON payment FOR EACH ROW EXECUTE FUNCTION idem_require('rq.pay', 'key');
CREATE FUNCTION pay(k uuid, amount int DEFAULT 1) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
	RETURN idem_test_require.raised(format('INSERT INTO payment (key, amount) VALUES (%L, %s)', k, amount));
END
$$;

-- no claim
SELECT pay(NULL) AS "null", pay(gen_random_uuid()) AS unknown;
-- a claim of this transaction, in the fast table
BEGIN;
SELECT key AS k, owner AS o FROM idem_acquire_direct('alice', 'rq.pay', '{"x": "own"}') \gset
SELECT pay(:'k') AS own_claim;
-- and once it is committed, in the same transaction
SELECT idem_commit(:'k', :'o', '"r"');
SELECT pay(:'k') AS committed_here;
COMMIT;
SELECT pay(:'k') AS done;
-- released, failed: no more
BEGIN;
SELECT key AS k, owner AS o FROM idem_acquire_direct('alice', 'rq.pay', '{"x": "released"}') \gset
SELECT idem_release(:'k', :'o');
SELECT pay(:'k') AS released_here;
SELECT key AS k, owner AS o FROM idem_acquire_direct('alice', 'rq.pay', '{"x": "failed"}') \gset
SELECT idem_fail(:'k', :'o', '"no"');
SELECT pay(:'k') AS failed_here;
COMMIT;
SELECT pay(:'k') AS failed;
-- a claim taken back with its savepoint
BEGIN;
SAVEPOINT a;
SELECT key AS k, owner AS o FROM idem_acquire_direct('alice', 'rq.pay', '{"x": "savepoint"}') \gset
ROLLBACK TO a;
SELECT pay(:'k') AS rolled_back;
COMMIT;
-- committed in flight, by whomever: while its lease runs
SELECT key AS k, owner AS o FROM idem_acquire_direct('alice', 'rq.pay', '{"x": "in flight"}') \gset
SELECT pay(:'k') AS in_flight;
UPDATE idem_record SET lease_until = clock_timestamp() WHERE key = :'k';
SELECT pay(:'k') AS lease_over;
SELECT idem_renew(:'k', :'o');
SELECT pay(:'k') AS renewed;
BEGIN;
UPDATE idem_record SET lease_until = clock_timestamp() WHERE key = :'k';
SELECT outcome, attempt, owner AS o2 FROM idem_acquire_direct('alice', 'rq.pay', '{"x": "in flight"}') \gset
\echo :outcome :attempt
UPDATE idem_record SET lease_until = clock_timestamp() WHERE key = :'k';
SELECT pay(:'k') AS own_takeover_even_if_its_lease_is_over;
SELECT idem_fail(:'k', :'o2', '"busy"', true);
SELECT pay(:'k') AS retryable;
COMMIT;
SELECT pay(:'k') AS retryable_committed;
-- another scope's
BEGIN;
SELECT key AS k, owner AS o FROM idem_acquire_direct('alice', 'rq.other', '{"x": 1}') \gset
SELECT pay(:'k') AS other_scope_own;
COMMIT;
SELECT pay(:'k') AS other_scope;
-- a finished one and a lapsed one
SELECT idem_commit(:'k', :'o');
SELECT key AS k, owner AS o FROM idem_acquire_direct('alice', 'rq.pay', '{"x": "lapsed"}') \gset
SELECT idem_commit(:'k', :'o');
UPDATE idem_record SET retained_until = '2020-01-01' WHERE key = :'k';
SELECT pay(:'k') AS lapsed;
-- the fast table switched off: the claim is in the record
SHOW idem.fast_path;

-- updates: the new key counts, and each update asks anew
SELECT key AS k, owner AS o FROM idem_acquire_direct('alice', 'rq.pay', '{"x": "update"}') \gset
INSERT INTO payment (key, amount) VALUES (:'k', 5) RETURNING amount;
UPDATE payment SET amount = 6 WHERE key = :'k' RETURNING amount;
SELECT raised(format('UPDATE payment SET key = %L WHERE key = %L', gen_random_uuid(), :'k')) AS to_unknown;
SELECT raised(format('UPDATE payment SET key = NULL WHERE key = %L', :'k')) AS to_null;
SELECT key AS k2, owner AS o2 FROM idem_acquire_direct('alice', 'rq.pay', '{"x": "update 2"}') \gset
UPDATE payment SET key = :'k2' WHERE key = :'k';
SELECT idem_commit(:'k2', :'o2');
SELECT raised(format('UPDATE payment SET amount = 7 WHERE key = %L', :'k2')) AS after_the_end;
DELETE FROM payment WHERE key = :'k2';
-- many rows of one claim; COPY asks as well
INSERT INTO payment (key, amount) SELECT :'k', n FROM generate_series(1, 1000) AS n;
SELECT count(*) FROM payment WHERE key = :'k';
COPY payment (key, amount) FROM stdin;
00000000-0000-0000-0000-000000000000	1
\.

-- deferred: judged at the end, when the transaction's claim may have been committed
CREATE TABLE late (key uuid);
CREATE CONSTRAINT TRIGGER late_for_a_claim AFTER INSERT ON late DEFERRABLE INITIALLY DEFERRED
	FOR EACH ROW EXECUTE FUNCTION idem_require('rq.pay', 'key');
BEGIN;
INSERT INTO late VALUES (idem_key('alice', 'rq.pay', '{"x": "late"}'));
SELECT key AS k, owner AS o FROM idem_acquire_direct('alice', 'rq.pay', '{"x": "late"}') \gset
SELECT idem_commit(:'k', :'o');
COMMIT;
BEGIN;
INSERT INTO late VALUES (idem_key('alice', 'rq.pay', '{"x": "late, open"}'));
SELECT outcome FROM idem_acquire_direct('alice', 'rq.pay', '{"x": "late, open"}');
COMMIT;
BEGIN;
INSERT INTO late VALUES (idem_key('alice', 'rq.pay', '{"x": "late, never"}'));
COMMIT;
SELECT count(*) FROM late;

-- an effect that is rows in this database
CREATE TABLE booking (key uuid NOT NULL);
CREATE TRIGGER booking_for_a_claim BEFORE INSERT ON booking FOR EACH ROW EXECUTE FUNCTION idem_require('rq.local', 'key');
CREATE FUNCTION book(params jsonb) RETURNS jsonb LANGUAGE sql AS $$
	INSERT INTO idem_test_require.booking VALUES (idem_key('alice', 'rq.local', params)) RETURNING '"booked"'::jsonb
$$;
SELECT tell(c) FROM idem_execute('alice', 'rq.local', '{"x": 1}', 'book(jsonb)') AS c;
SELECT raised($$SELECT book('{"x": 2}')$$) AS around_the_layer;

-- P7: a guard key is no operation
UPDATE idem_policy SET repeat_guard = '1 hour' WHERE scope = 'rq.pay';
SELECT idem_sign('alice', 'rq.pay', '{"x": "guarded"}') AS fp \gset
SELECT outcome FROM idem_acquire(:'fp', 'alice', 'rq.pay', '{"x": "guarded"}');
SELECT pay(p.guard) AS guard_key FROM idem_peer AS p JOIN idem_record AS r USING (key) WHERE r.scope = 'rq.pay';

-- wrong use
CREATE TABLE wrong (key uuid, name text, generated uuid GENERATED ALWAYS AS (key) STORED);
CREATE FUNCTION wrong(declaration text, statement text DEFAULT 'INSERT INTO wrong (key) VALUES (gen_random_uuid())') RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	answer text;
BEGIN
	EXECUTE 'CREATE TRIGGER t ' || declaration;
	answer := idem_test_require.raised(statement);
	DROP TRIGGER t ON idem_test_require.wrong;
	RETURN answer;
END
$$;
SELECT d, wrong(d) FROM unnest(ARRAY[
	'BEFORE INSERT ON wrong FOR EACH ROW EXECUTE FUNCTION idem_require()',
	$$BEFORE INSERT ON wrong FOR EACH ROW EXECUTE FUNCTION idem_require('rq.pay')$$,
	$$BEFORE INSERT ON wrong FOR EACH ROW EXECUTE FUNCTION idem_require('rq.pay', 'key', 'more')$$,
	$$BEFORE INSERT ON wrong FOR EACH ROW EXECUTE FUNCTION idem_require('rq.pay', 'missing')$$,
	$$BEFORE INSERT ON wrong FOR EACH ROW EXECUTE FUNCTION idem_require('rq.pay', 'name')$$,
	$$BEFORE INSERT ON wrong FOR EACH ROW EXECUTE FUNCTION idem_require('rq.pay', 'ctid')$$,
	$$BEFORE INSERT ON wrong EXECUTE FUNCTION idem_require('rq.pay', 'key')$$]) AS d;
INSERT INTO payment (key, amount) VALUES (:'k', 1);
SELECT wrong($$BEFORE DELETE ON payment FOR EACH ROW EXECUTE FUNCTION idem_require('rq.pay', 'key')$$, 'SELECT 1') AS unrelated;
CREATE TABLE deleting (key uuid);
INSERT INTO deleting VALUES (gen_random_uuid());
CREATE TRIGGER t BEFORE DELETE ON deleting FOR EACH ROW EXECUTE FUNCTION idem_require('rq.pay', 'key');
SELECT raised('DELETE FROM deleting');
SELECT raised('SELECT idem_require()');

DELETE FROM idem_policy WHERE scope LIKE 'rq.%';
