-- What becomes of a claim with its transaction: savepoints, exception blocks, PREPARE, the fast table's loss.
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS idem CASCADE;
RESET client_min_messages;
CREATE SCHEMA idem_test_xact;
SET search_path = idem_test_xact, public;
\set VERBOSITY sqlstate
DELETE FROM idem_record;

CREATE FUNCTION acquire(n int) RETURNS text LANGUAGE sql AS $$
	SELECT concat_ws(' ', c.outcome, c.attempt, CASE WHEN c.replayed THEN 'again' END, c.result)
	FROM idem_acquire_direct('alice', 'xact', to_jsonb(n), owner => '00000000-0000-4000-8000-000000000001') AS c
$$;
CREATE FUNCTION other(n int) RETURNS text LANGUAGE sql AS $$
	SELECT concat_ws(' ', c.outcome, c.attempt, c.owner, c.result) FROM idem_acquire_direct('alice', 'xact', to_jsonb(n)) AS c
$$;
CREATE FUNCTION done(n int, result jsonb DEFAULT '1') RETURNS idem_ack LANGUAGE sql AS $$
	SELECT idem_commit(idem_key('alice', 'xact', to_jsonb(n)), '00000000-0000-4000-8000-000000000001', result)
$$;
CREATE FUNCTION retry(n int) RETURNS idem_ack LANGUAGE sql AS $$
	SELECT idem_fail(idem_key('alice', 'xact', to_jsonb(n)), '00000000-0000-4000-8000-000000000001', '"why"', true)
$$;
CREATE FUNCTION release(n int) RETURNS idem_ack LANGUAGE sql AS $$
	SELECT idem_release(idem_key('alice', 'xact', to_jsonb(n)), '00000000-0000-4000-8000-000000000001')
$$;
CREATE FUNCTION renew(n int) RETURNS idem_ack LANGUAGE sql AS $$
	SELECT idem_renew(idem_key('alice', 'xact', to_jsonb(n)), '00000000-0000-4000-8000-000000000001', '1 h')
$$;
CREATE FUNCTION status(n int) RETURNS text LANGUAGE sql AS $$
	SELECT concat_ws(' ', c.outcome, c.result) FROM idem_status_key(idem_key('alice', 'xact', to_jsonb(n)), 'alice') AS c
$$;
-- where it stands
CREATE VIEW place AS
	SELECT n, coalesce(r.state::text, CASE WHEN f.key IS NOT NULL THEN 'fast' END, '-') AS place
	FROM generate_series(1, 99) AS n JOIN LATERAL idem_key('alice', 'xact', to_jsonb(n)) AS k ON true
	LEFT JOIN idem_record AS r ON r.key = k LEFT JOIN idem_fast AS f ON f.key = k;
CREATE FUNCTION places(VARIADIC ns int[]) RETURNS text LANGUAGE sql AS $$ SELECT string_agg(n || ' ' || place, ', ' ORDER BY n) FROM place WHERE n = ANY (ns) $$;


-- P9: with the transaction, or not at all (A14) -----------------------------------------------------------------
BEGIN; SELECT acquire(1), places(1); ROLLBACK;
SELECT places(1), status(1);
BEGIN; SELECT acquire(1), places(1); COMMIT;
SELECT places(1), status(1), acquire(1), other(1);
BEGIN; SELECT done(1), status(1); ROLLBACK;
SELECT places(1), status(1);
BEGIN; SELECT acquire(2), places(2); SELECT done(2, '"two"'), places(2), status(2), acquire(2), other(2); COMMIT;
SELECT places(2), status(2), acquire(2);
-- in autocommit: granted, and in the record at once
SELECT acquire(3);
SELECT places(3), status(3);
-- released before anybody could know of it: nothing is left, and nothing is known; and begun anew
BEGIN; SELECT acquire(4), release(4), places(4), release(4), status(4); SELECT acquire(4), done(4); COMMIT;
SELECT places(4);
BEGIN; SELECT acquire(5), release(5); COMMIT;
SELECT places(5), status(5);
-- a retryable failure stays, in either form
BEGIN; SELECT acquire(6), retry(6), places(6); SELECT other(6) LIKE 'ACQUIRED 2%' AS next, places(6); COMMIT;
SELECT places(6), status(6);

-- Savepoints (F11): what was rolled back was never there, what stays is there
BEGIN;
SAVEPOINT a; SELECT acquire(10); ROLLBACK TO a;
SELECT places(10), status(10);
SAVEPOINT b; SELECT acquire(11); RELEASE b;
SAVEPOINT c; SELECT acquire(12); SAVEPOINT d; SELECT acquire(13); RELEASE d; ROLLBACK TO c;
SAVEPOINT e; SELECT acquire(14); SAVEPOINT f; SELECT acquire(15); ROLLBACK TO f; RELEASE e;
-- the same key again after its rollback
SELECT acquire(10), acquire(12);
SELECT places(10, 11, 12, 13, 14, 15);
COMMIT;
SELECT places(10, 11, 12, 13, 14, 15), status(10), status(13);
-- the end of a claim, rolled back: it is open as before, and can be ended otherwise
BEGIN;
SELECT acquire(16), acquire(17), acquire(18), acquire(19);
SAVEPOINT a; SELECT done(16), release(17), retry(18), renew(19); SELECT places(16, 17, 18, 19); ROLLBACK TO a;
SELECT places(16, 17, 18, 19), status(16), acquire(17), other(18);
SELECT done(16, '"second"');
SAVEPOINT b; SELECT done(18, '"kept"'); RELEASE b;
COMMIT;
SELECT places(16, 17, 18, 19), status(16), status(18);
SELECT lease_until < clock_timestamp() + '30 min' AS renewal_is_gone FROM idem_record WHERE key = idem_key('alice', 'xact', '19');
-- the same of a claim begun earlier
BEGIN;
SAVEPOINT a; SELECT done(17), release(19); ROLLBACK TO a;
SAVEPOINT b; SELECT renew(17); ROLLBACK TO b;
SELECT status(17), status(19);
SAVEPOINT c; SELECT release(17), other(17) LIKE 'ACQUIRED 2%' AS next; ROLLBACK TO c;
SELECT done(17, '"late"'), status(17);
COMMIT;
SELECT places(17, 19), status(17), status(19);

-- F11: exception blocks, three deep; each level raises or not
CREATE FUNCTION deep(base int, raises bool[]) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
	PERFORM acquire(base);
	BEGIN
		PERFORM acquire(base + 1);
		BEGIN
			PERFORM acquire(base + 2), done(base);
			BEGIN
				PERFORM acquire(base + 3), done(base + 1), release(base + 2);
				IF raises[3] THEN RAISE 'three'; END IF;
			EXCEPTION WHEN OTHERS THEN NULL;
			END;
			IF raises[2] THEN RAISE 'two'; END IF;
		EXCEPTION WHEN OTHERS THEN NULL;
		END;
		IF raises[1] THEN RAISE 'one'; END IF;
	EXCEPTION WHEN OTHERS THEN NULL;
	END;
	RETURN places(base, base + 1, base + 2, base + 3);
END
$$;
SELECT r, deep(20 + n * 4, r) FROM (VALUES (0, '{f,f,f}'::bool[]), (1, '{f,f,t}'), (2, '{f,t,f}'), (3, '{f,t,t}'), (4, '{t,f,f}'), (5, '{t,t,t}')) AS v (n, r);
SELECT n, places(20 + n * 4, 21 + n * 4, 22 + n * 4, 23 + n * 4) FROM generate_series(0, 5) AS n;
-- many of them, and many keys in one transaction
DO $$
BEGIN
	FOR i IN 1001..1200 LOOP
		BEGIN
			PERFORM acquire(i);
			IF i % 3 = 0 THEN RAISE 'x'; END IF;
			IF i % 3 = 1 THEN PERFORM done(i); END IF;
		EXCEPTION WHEN raise_exception THEN NULL;
		END;
	END LOOP;
END
$$;
SELECT state, count(*) FROM generate_series(1001, 1200) AS n JOIN idem_record ON key = idem_key('alice', 'xact', to_jsonb(n)) GROUP BY state ORDER BY state;
SELECT count(*) FROM idem_fast;

-- F14: one key several times in one statement: one grant, and only its token gets it again
SELECT i, outcome, attempt, owner IS NOT NULL AS owner FROM generate_series(1, 3) AS i, idem_acquire_direct('alice', 'xact', to_jsonb(50 + 0 * i));
SELECT a.outcome, b.outcome FROM idem_acquire_direct('alice', 'xact', '51') AS a, idem_acquire_direct('alice', 'xact', '51') AS b;
WITH a AS MATERIALIZED (SELECT outcome FROM idem_acquire_direct('alice', 'xact', '52')), b AS MATERIALIZED (SELECT outcome FROM idem_acquire_direct('alice', 'xact', '52'))
SELECT a.outcome, b.outcome FROM a, b;
SELECT outcome, replayed, owner FROM generate_series(1, 3) AS i, idem_acquire_direct('alice', 'xact', '53', owner => ('00000000-0000-4000-8000-00000000000' || i % 2)::uuid);
-- one's own claim is not waited for, whatever the wait
BEGIN;
SET LOCAL statement_timeout = '1 min';
SELECT outcome FROM idem_acquire_direct('alice', 'xact', '156');
SELECT outcome, joined FROM idem_acquire_direct('alice', 'xact', '156', wait => '1 day');
SELECT outcome, joined FROM idem_status_key(idem_key('alice', 'xact', '156'), 'alice', wait => '1 day');
ROLLBACK;
-- what one call of a statement has just written, the next one continues
SELECT key AS k154, owner AS o154 FROM idem_acquire_direct('alice', 'xact', '154') \gset
SELECT idem_fail(:'k154', :'o154', '"busy"', true), (SELECT concat_ws(' ', c.outcome, c.attempt) FROM idem_acquire_direct('alice', 'xact', '154') AS c);
BEGIN;
SELECT key AS k155, owner AS o155 FROM idem_acquire_direct('alice', 'xact', '155') \gset
SELECT idem_fail(:'k155', :'o155', '"busy"', true), (SELECT concat_ws(' ', c.outcome, c.attempt) FROM idem_acquire_direct('alice', 'xact', '155') AS c);
COMMIT;
CREATE TABLE payment (n int);
CREATE FUNCTION guard() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	IF (idem_acquire_direct('alice', 'xact', to_jsonb(NEW.n))).outcome <> 'ACQUIRED' THEN RETURN NULL; END IF;
	RETURN NEW;
END
$$;
CREATE TRIGGER guard BEFORE INSERT ON payment FOR EACH ROW EXECUTE FUNCTION guard();
INSERT INTO payment VALUES (54), (55), (54), (54);
INSERT INTO payment SELECT 54 FROM idem_acquire_direct('alice', 'xact', '56');
SELECT n, count(*) FROM payment GROUP BY n ORDER BY n;
SELECT places(50, 51, 52, 53, 54, 55, 56);
-- acquired and committed in one expression, and asked for again
SELECT outcome, idem_commit(key, owner, '1'), acquire(57) FROM idem_acquire_direct('alice', 'xact', '57');

-- Cursors and functions: what is told is told at the call
BEGIN;
DECLARE c CURSOR FOR SELECT acquire(58);
FETCH c; FETCH c; CLOSE c;
SELECT places(58);
COMMIT;

-- P9: PREPARE TRANSACTION, and then each end
BEGIN; SELECT acquire(60), acquire(61), done(61, '"prepared"'), acquire(62), retry(62), acquire(63), release(63); PREPARE TRANSACTION 'idem_test_1';
SELECT (SELECT count(*) FROM idem_fast) AS fast, places(60, 61, 62, 63);
SELECT status(60), status(61), status(62), status(63), acquire(60), other(61), done(60), release(62);
SELECT scope, attempt, xid IS NOT NULL AS xid, gid FROM idem_in_flight WHERE gid IS NOT NULL;
COMMIT PREPARED 'idem_test_1';
SELECT places(60, 61, 62, 63), status(60), status(61), status(62), acquire(60);
SELECT done(60);
BEGIN; SELECT acquire(64), acquire(65), done(65); PREPARE TRANSACTION 'idem_test_2';
ROLLBACK PREPARED 'idem_test_2';
SELECT places(64, 65), status(64), status(65), acquire(64);
-- the end of an earlier claim, prepared
BEGIN; SELECT done(64); PREPARE TRANSACTION 'idem_test_3';
SELECT status(64);
SET lock_timeout = '20ms';
SELECT done(64);
RESET lock_timeout;
ROLLBACK PREPARED 'idem_test_3';
SELECT status(64), done(64, '"after"'), status(64);

-- Local scopes: a claim that would outlive its transaction does not ------------------------------------------------
INSERT INTO idem_policy (scope, downstream) VALUES ('local', 'local');
\set VERBOSITY default
SELECT outcome FROM idem_acquire_direct('alice', 'local', '1');
\set VERBOSITY sqlstate
BEGIN; SELECT outcome FROM idem_acquire_direct('alice', 'local', '1'); COMMIT;
BEGIN; SELECT outcome FROM idem_acquire_direct('alice', 'local', '1'); PREPARE TRANSACTION 'idem_test_4';
ROLLBACK;
SELECT count(*) FROM idem_record WHERE scope = 'local';
BEGIN; SELECT key AS k, owner AS o FROM idem_acquire_direct('alice', 'local', '1') \gset
SELECT idem_renew(:'k', :'o'); COMMIT;
BEGIN; SELECT key AS k, owner AS o FROM idem_acquire_direct('alice', 'local', '1') \gset
SELECT idem_commit(:'k', :'o', '1'); COMMIT;
BEGIN; SELECT key AS k, owner AS o FROM idem_acquire_direct('alice', 'local', '2') \gset
SELECT idem_release(:'k', :'o'); COMMIT;
BEGIN; SELECT key AS k, owner AS o FROM idem_acquire_direct('alice', 'local', '3') \gset
SELECT idem_fail(:'k', :'o', '1', true); COMMIT;
-- the next attempt, which goes by the record, is bound likewise
BEGIN; SELECT outcome, attempt FROM idem_acquire_direct('alice', 'local', '3'); COMMIT;
BEGIN; SELECT outcome, attempt FROM idem_acquire_direct('alice', 'local', '4'); SAVEPOINT a; ROLLBACK TO a; COMMIT;
BEGIN; SAVEPOINT a; SELECT outcome, attempt FROM idem_acquire_direct('alice', 'local', '5'); ROLLBACK TO a; COMMIT;
SELECT params, outcome FROM unnest('{1,2,3,4,5}'::int[]) AS params, idem_status_key(idem_key('alice', 'local', to_jsonb(params)), 'alice');
DELETE FROM idem_policy WHERE scope = 'local';

-- P8: the fast table emptied -------------------------------------------------------------------------------------
-- by others it cannot be: they wait. By the transaction itself: 40001 where a claim is gone, at whatever step
\set VERBOSITY default
BEGIN; SELECT acquire(70); TRUNCATE idem_fast; COMMIT;
\set VERBOSITY sqlstate
BEGIN; SELECT acquire(70); TRUNCATE idem_fast; SELECT done(70); ROLLBACK;
BEGIN; SELECT acquire(70); TRUNCATE idem_fast; SELECT release(70); ROLLBACK;
BEGIN; SELECT acquire(70); TRUNCATE idem_fast; SELECT renew(70); ROLLBACK;
BEGIN; SELECT acquire(70); TRUNCATE idem_fast; SELECT acquire(70); ROLLBACK;
BEGIN; SELECT acquire(70); DELETE FROM idem_fast; COMMIT;
BEGIN; SELECT acquire(70); TRUNCATE idem_fast; PREPARE TRANSACTION 'idem_test_5';
ROLLBACK;
SELECT places(70), status(70);
-- emptied and taken back, before it, or after the claim has ended: nothing is lost
BEGIN; SELECT acquire(71); SAVEPOINT a; TRUNCATE idem_fast; ROLLBACK TO a; SELECT done(71); COMMIT;
BEGIN; TRUNCATE idem_fast; SELECT acquire(72); COMMIT;
BEGIN; SELECT acquire(73), done(73); TRUNCATE idem_fast; COMMIT;
BEGIN; SELECT acquire(74); CLUSTER idem_fast USING idem_fast_pkey; SELECT done(74); COMMIT;
BEGIN; SELECT acquire(75); UPDATE idem_fast SET holder = 'moved'; COMMIT;
BEGIN; SELECT acquire(76); REINDEX TABLE idem_fast; COMMIT;
SELECT places(71, 72, 73, 74, 75, 76);
-- between transactions nothing is lost by it: each replay comes from the record
TRUNCATE idem_fast;
VACUUM FULL idem_fast;
SELECT status(71), status(72), acquire(73), acquire(75);
-- the same of the record table
BEGIN; SELECT retry(72), acquire(77); SELECT other(72) LIKE 'ACQUIRED 2%' AS next; DELETE FROM idem_record WHERE key = idem_key('alice', 'xact', '72'); COMMIT;
SELECT places(72, 77);
-- rows that no transaction holds are no claims
INSERT INTO idem_fast SELECT key, acquired_at, lease_until, policy_version, attempt, state, downstream, param_hash, owner_hash, scope, subject, expires_at, holder, trace_id
	FROM idem_record WHERE key = idem_key('alice', 'xact', '71');
UPDATE idem_fast SET key = idem_key('alice', 'xact', '78');
SELECT acquire(78), places(78);
SELECT acquire(78), done(78), status(78);
TRUNCATE idem_fast;
SELECT places(78);

-- Read-only transactions: what is known is told, what would write is 25006 --------------------------------------------
BEGIN READ ONLY; SELECT acquire(73), status(73), status(99); SELECT other(75); COMMIT;
BEGIN READ ONLY; SELECT acquire(80); ROLLBACK;
BEGIN READ ONLY; SELECT done(75); ROLLBACK;
BEGIN READ ONLY; SELECT release(75); ROLLBACK;
BEGIN READ ONLY; SELECT renew(75); ROLLBACK;
BEGIN READ ONLY; SELECT done(73, '1'), done(73, '2'), done(99), release(73); COMMIT;
BEGIN READ ONLY; SELECT outcome FROM idem_acquire('x', 'alice', 'xact', '1'); SELECT length(idem_sign('alice', 'xact', '1')) > 0 AS signs; COMMIT;
BEGIN; SELECT acquire(81); SET TRANSACTION READ ONLY; SELECT acquire(81), status(81), other(81); SELECT done(81); ROLLBACK;
-- acquired before it became read-only, and left open: it is written all the same
BEGIN; SELECT acquire(82); SET TRANSACTION READ ONLY; COMMIT;
SELECT places(82);
SET default_transaction_read_only = on;
SELECT status(82), acquire(73);
SELECT acquire(83);
RESET default_transaction_read_only;

-- Tables that were tampered with: refused, or kept as they are ----------------------------------------------------------
CREATE FUNCTION nothing() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NEW; END $$;
\set VERBOSITY default
CREATE TRIGGER t BEFORE INSERT ON idem_record FOR EACH ROW EXECUTE FUNCTION nothing();
SELECT acquire(84);
DROP TRIGGER t ON idem_record;
\set VERBOSITY sqlstate
CREATE TRIGGER t AFTER UPDATE ON idem_fast FOR EACH ROW EXECUTE FUNCTION nothing();
SELECT acquire(84);
SELECT status(73);
DROP TRIGGER t ON idem_fast;
CREATE TABLE child (key uuid REFERENCES idem_record);
SELECT acquire(84);
SELECT done(82);
DROP TABLE child;
CREATE TABLE parent (scope text PRIMARY KEY);
INSERT INTO parent VALUES ('xact');
DELETE FROM idem_record WHERE scope <> 'xact';
ALTER TABLE idem_record ADD CONSTRAINT fk FOREIGN KEY (scope) REFERENCES parent;
SELECT acquire(84);
ALTER TABLE idem_record DROP CONSTRAINT fk;
CREATE RULE r AS ON UPDATE TO idem_record DO INSTEAD NOTHING;
SELECT acquire(84);
DROP RULE r ON idem_record;
SELECT acquire(84);
-- columns and key
BEGIN; ALTER TABLE idem_record ADD COLUMN extra int; SELECT acquire(85); ROLLBACK;
BEGIN; ALTER TABLE idem_record RENAME COLUMN holder TO held_by; SELECT acquire(85); ROLLBACK;
BEGIN; ALTER TABLE idem_record DROP CONSTRAINT idem_record_pkey; SELECT acquire(85); ROLLBACK;
BEGIN; ALTER TABLE idem_record DROP CONSTRAINT idem_record_pkey, ADD PRIMARY KEY (key, scope); SELECT acquire(85); ROLLBACK;
BEGIN; ALTER TABLE idem_record DROP CONSTRAINT idem_record_pkey, ADD PRIMARY KEY (key) DEFERRABLE; SELECT acquire(85); ROLLBACK;
BEGIN; ALTER TABLE idem_fast DROP CONSTRAINT idem_fast_pkey; SELECT acquire(85); ROLLBACK;
BEGIN; ALTER TABLE idem_record RENAME TO idem_notes; SELECT acquire(85), done(85); ROLLBACK;
-- an index of the administrator's is kept: plain, unique, covering, of any access method
CREATE INDEX extra_scope ON idem_record (scope, acquired_at) INCLUDE (attempt);
CREATE INDEX extra_document ON idem_record USING gin (result);
CREATE UNIQUE INDEX extra_unique ON idem_record (key, attempt);
CREATE INDEX extra_hash ON idem_fast USING hash (subject);
BEGIN; SELECT acquire(86), done(86, '{"n": "eighty-six"}'); COMMIT;
SELECT acquire(87);
SELECT done(87, '{"n": "eighty-seven"}');
SELECT acquire(88), retry(88);
SELECT other(88) LIKE 'ACQUIRED 2%' AS next;
SET enable_seqscan = off;
EXPLAIN (COSTS OFF) SELECT key FROM idem_record WHERE result @> '{"n": "eighty-six"}';
SELECT count(*) FROM idem_record WHERE result @> '{"n": "eighty-six"}' OR result @> '{"n": "eighty-seven"}';
SELECT count(*) FROM idem_record WHERE subject = 'alice' AND state = 'D' AND result ? 'n';
SELECT attempt, count(*) FROM idem_record WHERE scope = 'xact' AND key IN (SELECT idem_key('alice', 'xact', to_jsonb(n)) FROM generate_series(86, 88) AS n) GROUP BY 1 ORDER BY 1;
RESET enable_seqscan;
DROP INDEX extra_scope, extra_document, extra_unique, extra_hash;
-- T17: what it would evaluate runs with every caller's rights, and is refused
BEGIN; CREATE INDEX extra ON idem_record ((result ->> 'n')); SELECT acquire(85); ROLLBACK;
BEGIN; CREATE INDEX extra ON idem_record (subject) WHERE state = 'D'; SELECT acquire(85), done(85); ROLLBACK;
BEGIN; CREATE INDEX extra ON idem_fast (lower(subject)); SELECT acquire(85); ROLLBACK;
BEGIN; CREATE INDEX extra ON idem_alert (lower(subject)); SELECT acquire(85), done(85); ROLLBACK;
-- rebuilt meanwhile
VACUUM FULL idem_record;
SELECT done(88), status(86), acquire(87);
ALTER TABLE idem_fast SET LOGGED;
SELECT acquire(89), done(89);
ALTER TABLE idem_fast SET UNLOGGED;
SELECT acquire(90), done(90), status(90);

-- G12: a claim left open, and the end of one begun earlier, are flushed whatever the caller set; its setting stays
SET synchronous_commit = off;
SELECT acquire(91);
SHOW synchronous_commit;
SELECT done(91);
SHOW synchronous_commit;
BEGIN; SET LOCAL synchronous_commit = local; SELECT acquire(92); COMMIT;
SHOW synchronous_commit;
RESET synchronous_commit;

DELETE FROM idem_record;
DELETE FROM idem_alert;
