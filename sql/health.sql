-- What needs a person: stuck claims with the call that settles them, alerts in plain words, and checks of the whole
-- (P5, P10). Each check is provoked; those of the server's settings stand in test/t.
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS idem CASCADE;
RESET client_min_messages;
SET intervalstyle = 'postgres';
DELETE FROM idem_record;
DELETE FROM idem_alert;
-- what this server is like is not asked here
CREATE FUNCTION health(OUT name text, OUT status text, OUT detail text, OUT advice text) RETURNS SETOF record LANGUAGE sql AS $$
	SELECT name, status, regexp_replace(detail, '\d+ s\y', 'N s', 'g'), advice FROM idem_health()
	WHERE name NOT IN ('preload', 'worker', 'durability', 'replication', 'horizon', 'fast_path', 'traffic') ORDER BY name, detail
$$;
CREATE FUNCTION faults(OUT name text, OUT status text, OUT detail text, OUT advice text) RETURNS SETOF record LANGUAGE sql AS $$
	SELECT * FROM health() AS h WHERE h.status <> 'ok'
$$;
SELECT name, status, detail, advice FROM health();
SELECT count(*), count(DISTINCT name) AS checks, bool_and(status IN ('ok', 'warn', 'bad')) AS known, bool_and((status = 'ok') = (advice IS NULL)) AS advised FROM idem_health();

-- a stuck claim, and what to paste
INSERT INTO idem_policy (scope, downstream) VALUES ('health', 'opaque'), ('health <b>"x"', 'opaque');
SELECT outcome FROM idem_acquire_direct('alice', 'health', '1', holder => 'worker-1', owner => '00000000-0000-4000-8000-000000000001');
SELECT outcome FROM idem_acquire_direct('alice', 'health <b>"x"', '1');
UPDATE idem_record SET lease_until = '2020-01-01' WHERE scope LIKE 'health%';
SELECT * FROM faults();
SELECT replace(reconcile, key::text, 'KEY') AS reconcile FROM idem_stuck WHERE scope = 'health';
-- as it is, it decides nothing
SELECT reconcile FROM idem_stuck WHERE scope = 'health' \gset
\set reconcile_as_is :reconcile
:reconcile_as_is
\echo :SQLSTATE
SELECT replace(:'reconcile', 'DONE|FAILED|RETRY', 'DONE') AS done \gset
:done
SELECT state, reconcile_note FROM idem_audit WHERE scope = 'health';
SELECT newly_stuck FROM idem_maintain();
SELECT * FROM faults();

-- alerts in words
SELECT outcome FROM idem_acquire(idem_sign('alice', 'health', '2'), 'alice', 'health', '3');
SELECT outcome FROM idem_acquire(idem_sign('alice', 'health', '2'), 'bob', 'health', '2');
SELECT outcome FROM idem_acquire(idem_sign('alice', 'health', '2'), 'alice', 'wealth', '2');
SELECT idem_commit(idem_key('alice', 'health', '1'), '00000000-0000-4000-8000-000000000001', '"late"');
SELECT idem_commit(idem_key('alice', 'health', '1'), gen_random_uuid(), '"forged"');
SELECT idem_release(key, owner) FROM idem_acquire_direct('alice', 'health', '4') \g /dev/null
SELECT key AS k4, owner AS o4 FROM idem_acquire_direct('alice', 'health', '5') \gset
SELECT idem_release(:'k4', :'o4');
SELECT kind, code, meaning, scope, subject, state, is_open, count, role = current_user AS mine, detail FROM idem_alerts WHERE scope LIKE 'health%' OR scope = 'wealth' ORDER BY code, scope, state;
SELECT count(*) FROM idem_alerts WHERE meaning IS NULL OR code IS NULL;
-- every kind has its words
SELECT string_agg(kind, ' ') FROM (SELECT DISTINCT unnest(regexp_matches(description, '\y(?:\w+_mismatch|\w+_owner|takeover|stuck|released|reconciled)\y', 'g')) AS kind FROM pg_description WHERE objoid = 'idem_alert'::regclass AND description LIKE 'parameter_mismatch%') AS k
WHERE pg_get_viewdef('idem_alerts') NOT LIKE '%''' || kind || '''%';
DELETE FROM idem_record;
DELETE FROM idem_alert;
SELECT * FROM faults();

-- nobody purges
INSERT INTO idem_record SELECT gen_random_uuid(), now(), now(), 0, 1, 'D', 'o', sha256(''), sha256(''), 'health', 'alice', NULL, NULL, NULL, now() - interval '2 hours', now();
SELECT * FROM faults();
UPDATE idem_record SET retained_until = now() - interval '2 days';
SELECT * FROM faults();
-- work that takes longer than its lease
UPDATE idem_record SET acquired_at = now() - interval '10 minutes', retained_until = now() + interval '1 day';
SELECT * FROM faults();
-- also where no policy, or that of all scopes, is in force
UPDATE idem_record SET scope = 'health.none';
SELECT * FROM faults();
INSERT INTO idem_policy (scope, in_flight_ttl) VALUES ('*', '11 minutes');
SELECT * FROM faults();
DELETE FROM idem_policy WHERE scope IN ('*', 'health', 'health <b>"x"');
-- an operator's verdict, much later, says nothing of the work
UPDATE idem_record SET reconciled_at = now();
SELECT * FROM faults();
-- a clock that went back
INSERT INTO idem_record SELECT gen_random_uuid(), now() + interval '1 hour', now(), 0, 1, 'I', 'i', sha256(''), sha256(''), 'health', 'alice', NULL, NULL, NULL, 'infinity';
SELECT * FROM faults();
DELETE FROM idem_record;
-- secrets
BEGIN;
UPDATE idem_secret SET created_at = created_at - interval '400 days';
SELECT * FROM faults();
UPDATE idem_secret SET signing = NULL, verify_until = now() WHERE signing;
SELECT * FROM faults();
ROLLBACK;
-- the two tables
BEGIN;
ALTER TABLE idem_record SET (autovacuum_enabled = false);
ALTER TABLE idem_fast RESET (autovacuum_vacuum_scale_factor);
CREATE FUNCTION nothing() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NEW; END $$;
CREATE TRIGGER meddling AFTER INSERT ON idem_fast FOR EACH ROW EXECUTE FUNCTION nothing();
SELECT * FROM faults();
ROLLBACK;

-- What is not as the script made it. Calls may be refused then: the checks are not
-- T13: row security hides what idem_grant opened; that of the secrets is meant
BEGIN;
ALTER TABLE idem_policy ENABLE ROW LEVEL SECURITY;
ALTER TABLE idem_alert FORCE ROW LEVEL SECURITY;
SELECT * FROM faults();
SELECT advice FROM faults() WHERE detail LIKE 'idem_policy %' \gset
:advice
SELECT detail FROM faults();
ROLLBACK;
-- T14: triggers that do not fire in replication and for a restore, or never, or are no more
BEGIN;
ALTER TABLE idem_policy DISABLE TRIGGER ALL;
ALTER TABLE idem_policy_version ENABLE TRIGGER idem_b_merge;
SELECT * FROM faults();
SELECT advice FROM faults() WHERE detail LIKE 'idem_policy %' \gset
:advice
SELECT detail FROM faults();
DROP TRIGGER idem_c_stale ON idem_secret;
SELECT * FROM faults();
ROLLBACK;
-- somebody's own, under a name of ours or on a small table
BEGIN;
CREATE FUNCTION nothing() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NEW; END $$;
CREATE OR REPLACE TRIGGER idem_c_stale AFTER INSERT ON idem_binding FOR EACH ROW EXECUTE FUNCTION nothing();
ALTER TABLE idem_binding ENABLE ALWAYS TRIGGER idem_c_stale;
CREATE TRIGGER meddling AFTER INSERT ON idem_guidance FOR EACH ROW EXECUTE FUNCTION nothing();
SELECT * FROM faults();
ROLLBACK;
-- R23: columns, also one that came and went
BEGIN;
ALTER TABLE idem_record ADD COLUMN foo int;
ALTER TABLE idem_record DROP COLUMN foo;
ALTER TABLE idem_guidance ALTER COLUMN meaning SET NOT NULL;
SELECT * FROM faults();
ROLLBACK;
-- rules, constraints, inheritance, persistence
BEGIN;
CREATE RULE meddling AS ON INSERT TO idem_guidance DO ALSO NOTHING;
ALTER TABLE idem_policy ADD CHECK (scope <> 'x');
ALTER TABLE idem_policy_version DROP CONSTRAINT idem_policy_version_version;
CREATE TABLE child () INHERITS (idem_alert);
ALTER TABLE idem_record SET UNLOGGED;
SELECT * FROM faults();
ROLLBACK;
-- indexes that evaluate something; plain ones, and statistics, are nobody's fault
BEGIN;
CREATE INDEX plain ON idem_record (subject, acquired_at);
CREATE STATISTICS plain_too ON scope, subject FROM idem_record;
ALTER TABLE idem_record ALTER COLUMN scope SET STATISTICS 1000;
SELECT * FROM faults();
CREATE INDEX predicate ON idem_record (subject) WHERE state = 'I';
CREATE INDEX expression ON idem_alert (lower(subject));
SELECT * FROM faults();
ROLLBACK;
-- members that are not the script's, in whatever schema; and what was taken out or renamed
CREATE SCHEMA idem_test_health;
CREATE ROLE idem_test_health_role;
BEGIN;
CREATE TABLE idem_test_health.idem_alert (LIKE idem_alert INCLUDING ALL);
ALTER EXTENSION idem ADD TABLE idem_test_health.idem_alert;
SELECT * FROM faults();
ROLLBACK;
BEGIN;
CREATE FUNCTION helper() RETURNS int LANGUAGE sql AS 'SELECT 1';
ALTER FUNCTION helper() OWNER TO idem_test_health_role;
ALTER EXTENSION idem ADD FUNCTION helper();
CREATE OPERATOR CLASS idem_test_health.ops FOR TYPE int USING btree AS FUNCTION 1 btint4cmp(int, int);
ALTER EXTENSION idem ADD OPERATOR CLASS idem_test_health.ops USING btree;
SELECT * FROM faults();
ROLLBACK;
BEGIN;
ALTER VIEW idem_stat OWNER TO idem_test_health_role;
ALTER TABLE idem_guidance SET SCHEMA idem_test_health;
ALTER TABLE idem_fast RENAME TO slow;
ALTER EXTENSION idem DROP VIEW idem_audit;
SELECT * FROM faults();
ROLLBACK;
-- T18: somebody's function, table or type under a name of ours in our schema; elsewhere, or under another name, it is his
BEGIN;
CREATE FUNCTION idem_grant(text, text) RETURNS void LANGUAGE sql AS '';
CREATE FUNCTION idem_new() RETURNS void LANGUAGE sql AS '';
CREATE FUNCTION _idem_new() RETURNS void LANGUAGE sql AS '';
ALTER TABLE idem_guidance SET SCHEMA idem_test_health;
CREATE TABLE idem_guidance ();
ALTER TYPE idem_ack RENAME TO ack;
CREATE DOMAIN idem_ack AS text;
SELECT * FROM faults();
ROLLBACK;
BEGIN;
CREATE FUNCTION idem_test_health.idem_grant(text, text) RETURNS void LANGUAGE sql AS '';
CREATE FUNCTION grant_idem(text, text) RETURNS void LANGUAGE sql AS '';
CREATE TABLE idem_orders (id int PRIMARY KEY);
SELECT * FROM faults();
ROLLBACK;
DROP SCHEMA idem_test_health;
DROP ROLE idem_test_health_role;

-- read only, and by an auditor with no other right
BEGIN READ ONLY; SELECT count(*) > 0 AS works FROM idem_health(); COMMIT;
CREATE ROLE idem_test_health_role;
SET ROLE idem_test_health_role;
SELECT count(*) FROM idem_health();
\echo :SQLSTATE
SELECT count(*) FROM idem_alerts;
\echo :SQLSTATE
RESET ROLE;
SELECT idem_grant('idem_test_health_role', 'auditor');
SET ROLE idem_test_health_role;
SELECT count(*) > 0 AS works FROM idem_health();
SELECT count(*) FROM idem_alerts;
SELECT _idem_settings(NULL);
\echo :SQLSTATE
RESET ROLE;
DROP OWNED BY idem_test_health_role;
DROP ROLE idem_test_health_role;
DROP FUNCTION health, faults;
