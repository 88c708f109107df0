-- The extension as an object: its catalog, and its life in one session (P10, P11; G10, H01, H02)
SET client_min_messages = warning;
-- in a database of its own: others may have made things that depend on the extension
\set database :DBNAME
CREATE DATABASE idem_test_install TEMPLATE template0;
\c idem_test_install
SET client_min_messages = warning;
CREATE EXTENSION idem CASCADE;
RESET client_min_messages;
SET intervalstyle = 'postgres';

CREATE TEMP VIEW member AS
	SELECT d.classid, d.objid FROM pg_depend AS d JOIN pg_extension AS e ON d.refclassid = 'pg_extension'::regclass AND d.refobjid = e.oid
	WHERE e.extname = 'idem' AND d.deptype = 'e';
CREATE TEMP VIEW member_function AS SELECT p.* FROM pg_proc AS p JOIN member AS m ON m.classid = 'pg_proc'::regclass AND m.objid = p.oid;
CREATE TEMP VIEW member_table AS SELECT c.* FROM pg_class AS c JOIN member AS m ON m.classid = 'pg_class'::regclass AND m.objid = c.oid;

-- Every object begins with idem_, or _idem_ where it is not for callers, and has a comment; so has every column. Rows shown are faults.
SELECT pg_describe_object(classid, objid, 0) FROM member WHERE (pg_identify_object(classid, objid, 0)).identity !~ '^(public\.)?_?idem_' AND (pg_identify_object(classid, objid, 0)).identity !~ 'public\._?idem_';
SELECT pg_describe_object(classid, objid, 0) FROM member AS m
WHERE obj_description(m.objid, (SELECT relname FROM pg_class WHERE oid = m.classid)) IS NULL AND pg_describe_object(classid, objid, 0) !~ '\[\]$'
	AND NOT (m.classid = 'pg_type'::regclass AND EXISTS (SELECT FROM pg_type AS t JOIN pg_class AS c ON c.oid = t.typrelid WHERE t.oid = m.objid AND c.relkind <> 'c'));
SELECT t.relname, a.attname FROM member_table AS t JOIN pg_attribute AS a ON a.attrelid = t.oid AND a.attnum > 0 AND NOT a.attisdropped
WHERE t.relkind IN ('r', 'v') AND col_description(t.oid, a.attnum) IS NULL ORDER BY 1, a.attnum;

-- None is leakproof; what runs with its owner's rights pins the search path or was bound when it was made; who may run in a worker
-- changes nothing
SELECT proname FROM member_function WHERE proleakproof;
SELECT proname FROM member_function WHERE prosecdef AND prosqlbody IS NULL AND NOT coalesce(proconfig, '{}') @> '{"search_path=pg_catalog, pg_temp"}';
SELECT proname FROM member_function WHERE proparallel <> 'u' AND provolatile = 'v';
-- the interface, with its labels and its defaults (A16)
SELECT proname, provolatile AS volatile, proparallel AS parallel, proisstrict AS strict, pg_get_function_arguments(oid) AS arguments, pg_get_function_result(oid) AS result FROM member_function
WHERE proname IN ('idem_sign', 'idem_acquire', 'idem_acquire_direct', 'idem_commit', 'idem_fail', 'idem_release', 'idem_renew', 'idem_status', 'idem_status_key',
	'idem_canonical', 'idem_param_hash', 'idem_key', 'idem_downstream_key', 'idem_shard', 'idem_shard_key', 'idem_inspect') ORDER BY 1 \gx
-- nothing is open to PUBLIC, but for what asks itself who calls
SELECT proname FROM member_function WHERE has_function_privilege('public', oid, 'EXECUTE');
SELECT relname FROM member_table, unnest('{SELECT,INSERT,UPDATE,DELETE,TRUNCATE,REFERENCES,TRIGGER}'::text[]) AS p WHERE relkind IN ('r', 'v') AND has_table_privilege('public', oid, p);

-- G10: keys compare by bytes; indexes are plain btrees; no triggers on the two tables; fast is unlogged, all else is not; G06: no sequence
SELECT i.indexrelid::regclass AS index, i.indcollation FROM pg_index AS i JOIN member_table AS t ON t.oid = i.indrelid
WHERE EXISTS (SELECT FROM unnest(i.indcollation) AS c WHERE c <> 0 AND c <> 'pg_catalog."C"'::regcollation);
SELECT relname, relpersistence, (SELECT amname FROM pg_am WHERE oid = relam) AS am, relrowsecurity AS rls, (SELECT count(*) FROM pg_index WHERE indrelid = t.oid) AS indexes,
	   (SELECT count(*) FROM pg_trigger WHERE tgrelid = t.oid) AS triggers
FROM member_table AS t WHERE relname IN ('idem_alert', 'idem_binding', 'idem_fast', 'idem_guidance', 'idem_policy', 'idem_policy_version', 'idem_record', 'idem_secret') ORDER BY relname;
SELECT count(*) AS sequences FROM member_table WHERE relkind = 'S';
-- triggers fire in replication too, so that no session keeps a stale policy
SELECT tgrelid::regclass AS table, tgname FROM pg_trigger WHERE tgrelid IN ('idem_policy'::regclass, 'idem_policy_version'::regclass, 'idem_secret'::regclass, 'idem_binding'::regclass) AND NOT tgisinternal AND tgenabled <> 'A';
-- what pg_dump carries (G04, P10)
SELECT t::regclass::text AS table, t = ANY (extconfig) AS dumped, extcondition[array_position(extconfig, t)] AS condition
FROM pg_extension, unnest('{idem_alert,idem_binding,idem_fast,idem_guidance,idem_policy,idem_policy_version,idem_record,idem_secret}'::regclass[]::oid[]) AS t WHERE extname = 'idem' ORDER BY 1;
SELECT extrelocatable, extversion FROM pg_extension WHERE extname = 'idem';

-- H01: dropped, and made anew, in one session. Claims and caches do not survive it --------------------------------------------------
DROP VIEW member_function, member_table, member;
CREATE FUNCTION pay(n int) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	outcome text; key uuid; owner uuid; ack text;
BEGIN
	EXECUTE 'SELECT outcome, key, owner FROM idem_acquire_direct(''alice'', ''install'', $1)' INTO outcome, key, owner USING to_jsonb(n);
	IF outcome = 'ACQUIRED' THEN
		EXECUTE 'SELECT idem_commit($1, $2, $3)' INTO ack USING key, owner, to_jsonb(n);
	END IF;
	RETURN concat_ws(' ', outcome, ack);
END
$$;
SELECT pay(1), pay(1);
PREPARE sign AS SELECT idem_sign('alice', 'install', '1');
CREATE TEMP TABLE token AS SELECT idem_sign('alice', 'install', '1') AS fp;
SET client_min_messages = error;
DROP EXTENSION idem;
SELECT pay(1);
EXECUTE sign;
CREATE EXTENSION idem;
SELECT pay(1), pay(1);
DEALLOCATE sign;
-- another secret, therefore other tokens
SELECT outcome FROM token, idem_acquire(fp, 'alice', 'install', '1');
-- with a policy in force and cached, then without
INSERT INTO idem_policy (scope, enabled) VALUES ('install', false);
SELECT pay(2);
DROP EXTENSION idem;
CREATE EXTENSION idem;
SELECT pay(2);
-- in a transaction that is rolled back: dropped, then made
BEGIN;
DROP EXTENSION idem;
ROLLBACK;
SELECT pay(2), pay(3);
BEGIN;
DROP EXTENSION idem;
CREATE EXTENSION idem;
SELECT pay(2);
ROLLBACK;
SELECT pay(2), pay(3);
DROP EXTENSION idem;
BEGIN;
CREATE EXTENSION idem;
SELECT pay(4), pay(4);
ROLLBACK;
SELECT pay(4);
BEGIN;
SAVEPOINT a;
CREATE EXTENSION idem;
SELECT pay(4);
ROLLBACK TO a;
CREATE EXTENSION idem;
SELECT pay(4), pay(4);
COMMIT;
SELECT pay(4);
-- dropped with a claim open in the transaction: the claim has nowhere to go
BEGIN;
SELECT outcome FROM idem_acquire_direct('alice', 'install', '5');
DROP EXTENSION idem;
COMMIT;
SELECT pay(5), pay(4);
-- claimed, and its extension's creation rolled back below it
BEGIN;
SAVEPOINT a;
DROP EXTENSION idem;
CREATE EXTENSION idem;
SELECT outcome FROM idem_acquire_direct('alice', 'install', '6');
ROLLBACK TO a;
COMMIT;
SELECT pay(6);
-- with its schema
CREATE SCHEMA idem_test_install;
DROP EXTENSION idem;
CREATE EXTENSION idem SCHEMA idem_test_install;
SET search_path = idem_test_install, public;
SELECT pay(7), pay(7);
DROP SCHEMA idem_test_install CASCADE;
SELECT pay(7);
RESET search_path;

-- H02: an odd name, and nothing in the search path -----------------------------------------------------------------------------------
CREATE SCHEMA "We ird.Sch";
SET search_path = '';
CREATE EXTENSION idem SCHEMA "We ird.Sch";
INSERT INTO "We ird.Sch".idem_policy (scope, material, downstream) VALUES ('pay', '{/amount}', 'idempotent');
SELECT "We ird.Sch".idem_sign('alice', 'pay', '{"amount": 1, "memo": "a"}') AS fp \gset
SELECT outcome, attempt, key AS k, owner AS o FROM "We ird.Sch".idem_acquire(:'fp', 'alice', 'pay', '{"amount": 1, "memo": "b"}') \gset
\echo :outcome :attempt
SELECT outcome FROM "We ird.Sch".idem_acquire(:'fp', 'bob', 'pay', '{"amount": 1}');
SELECT outcome FROM "We ird.Sch".idem_acquire(:'fp', 'alice', 'pay', '{"amount": 2}');
SELECT "We ird.Sch".idem_commit(:'k', pg_catalog.gen_random_uuid(), '1');
SELECT "We ird.Sch".idem_renew(:'k', :'o');
SELECT scope, attempt FROM "We ird.Sch".idem_in_flight;
SELECT pg_catalog.count(*) FROM "We ird.Sch".idem_stuck;
SELECT "We ird.Sch".idem_commit(:'k', :'o', '1');
SELECT outcome, result FROM "We ird.Sch".idem_acquire(:'fp', 'alice', 'pay', '{"amount": 1}');
SELECT outcome, result FROM "We ird.Sch".idem_status(:'fp', 'alice');
SELECT kind FROM "We ird.Sch".idem_alert ORDER BY kind;
SELECT state, downstream FROM "We ird.Sch".idem_audit;
SELECT outcome FROM "We ird.Sch".idem_acquire_direct('alice', 'pay', '{"amount": 1}', 'k');
SELECT valid FROM "We ird.Sch".idem_inspect(:'fp');
SELECT pg_catalog.count("We ird.Sch".idem_rotate_secret());
SELECT outcome FROM "We ird.Sch".idem_acquire(:'fp', 'alice', 'pay', '{"amount": 1}');
SET search_path = pg_catalog;
SELECT outcome FROM "We ird.Sch".idem_acquire_direct('alice', 'pay', '{"amount": 3}');
-- impostors ahead of everything
CREATE TABLE public.idem_record (key uuid PRIMARY KEY);
CREATE TEMP TABLE idem_record (key uuid PRIMARY KEY);
CREATE TEMP TABLE idem_fast (key uuid PRIMARY KEY);
CREATE TYPE pg_temp.idem_outcome AS ENUM ('NO');
SET search_path = pg_temp, public, "We ird.Sch", pg_catalog;
SELECT outcome FROM "We ird.Sch".idem_acquire_direct('alice', 'pay', '{"amount": 4}');
SELECT count(*) FROM pg_temp.idem_record;
SELECT count(*) FROM "We ird.Sch".idem_record;
DROP TABLE public.idem_record, pg_temp.idem_record, pg_temp.idem_fast;
DROP TYPE pg_temp.idem_outcome;
RESET search_path;
-- a name that format() would take for its own
DROP EXTENSION idem;
CREATE SCHEMA "100% %s";
CREATE EXTENSION idem SCHEMA "100% %s";
INSERT INTO "100% %s".idem_policy (scope, in_flight_ttl, downstream_max, gateway_timeout, retry_backoff) VALUES ('pay', '4 us', '1 us', '1 us', '1 us');
SELECT outcome FROM "100% %s".idem_acquire_direct('alice', 'pay', '1');
SELECT replace(reconcile, key::text, 'key') FROM "100% %s".idem_stuck;
SELECT count(*) FROM "100% %s".idem_health() WHERE name = 'stuck' AND status = 'bad';
SELECT "100% %s".idem_grant('pg_monitor', 'auditor'), "100% %s".idem_revoke('pg_monitor', 'auditor');
DROP EXTENSION idem;
DROP SCHEMA "100% %s";
CREATE EXTENSION idem SCHEMA "We ird.Sch";
-- it stays where it is
ALTER EXTENSION idem SET SCHEMA public;
\echo :SQLSTATE
DROP EXTENSION idem;
DROP SCHEMA "We ird.Sch";
CREATE EXTENSION idem;
SELECT pay(8), pay(8);

-- T11: the script says the same however literals are read
CREATE TABLE made (what text, says text);
CREATE FUNCTION note_made() RETURNS void LANGUAGE sql AS $$
	WITH member AS (SELECT d.classid, d.objid, pg_describe_object(d.classid, d.objid, 0) AS what FROM pg_depend AS d JOIN pg_extension AS e
		ON d.refclassid = 'pg_extension'::regclass AND d.refobjid = e.oid AND d.deptype = 'e' WHERE e.extname = 'idem')
	INSERT INTO made
		SELECT what, pg_get_functiondef(objid) FROM member WHERE classid = 'pg_proc'::regclass
		UNION ALL SELECT what, pg_get_viewdef(objid) FROM member JOIN pg_class AS c ON classid = 'pg_class'::regclass AND c.oid = objid WHERE relkind = 'v'
		UNION ALL SELECT what || ' ' || conname, pg_get_constraintdef(n.oid) FROM member JOIN pg_constraint AS n ON classid = 'pg_class'::regclass AND conrelid = objid
		UNION ALL SELECT what, obj_description(objid, (SELECT relname FROM pg_class WHERE oid = classid)) FROM member
$$;
SELECT note_made();
DROP EXTENSION idem;
SET client_min_messages = error;
SET standard_conforming_strings = off;
CREATE EXTENSION idem;
INSERT INTO idem_binding (role, subject_setting) VALUES ('regress_idem_none', 'app,subject');
INSERT INTO idem_binding (role, subject_setting) VALUES ('regress_idem_none', 'app.subject');
RESET standard_conforming_strings;
RESET client_min_messages;
SELECT count(*) > 100 AS compared FROM made;
CREATE TABLE made_on AS TABLE made;
TRUNCATE made;
SELECT note_made();
(TABLE made_on EXCEPT ALL TABLE made) UNION ALL (TABLE made EXCEPT ALL TABLE made_on);
DROP TABLE made, made_on;

\c :database
DROP DATABASE idem_test_install;
