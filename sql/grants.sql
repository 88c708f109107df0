-- Privileges: nothing is open to everybody, each set opens what it should and no more (P10), and the role that
-- installs the extension, no superuser, can use all of it and grant all of it.
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS idem CASCADE;
RESET client_min_messages;

CREATE ROLE regress_idem_plain;
CREATE ROLE "regress_idem_We ird.Rôle""x";
CREATE VIEW opened AS
	WITH member AS (
		SELECT p.oid, p.proname::text AS name, 'f' AS kind
			FROM pg_proc AS p JOIN pg_depend AS d ON d.classid = 'pg_proc'::regclass AND d.objid = p.oid AND d.deptype = 'e'
			JOIN pg_extension AS e ON e.extname = 'idem' AND d.refobjid = e.oid
		UNION ALL
		SELECT c.oid, c.relname, 'r'
			FROM pg_class AS c JOIN pg_depend AS d ON d.classid = 'pg_class'::regclass AND d.objid = c.oid AND d.deptype = 'e'
			JOIN pg_extension AS e ON e.extname = 'idem' AND d.refobjid = e.oid
			WHERE c.relkind IN ('r', 'v'))
	SELECT r.rolname::text AS role, m.name, CASE WHEN m.kind = 'f' THEN 'EXECUTE' ELSE p END AS privilege
		FROM member AS m, pg_roles AS r, LATERAL unnest(CASE m.kind WHEN 'f' THEN ARRAY['EXECUTE']
			ELSE ARRAY['SELECT', 'INSERT', 'UPDATE', 'DELETE', 'TRUNCATE', 'REFERENCES', 'TRIGGER'] END) AS p
		WHERE r.rolname LIKE 'regress_idem_%'
		AND CASE m.kind WHEN 'f' THEN has_function_privilege(r.oid, m.oid, p) ELSE has_table_privilege(r.oid, m.oid, p) END;

-- A plain role may do nothing at all; what is open to everybody asks itself who calls
SELECT * FROM opened;

-- Every object is in some set, but for what no one needs to touch
SELECT p.proname FROM pg_proc AS p JOIN pg_depend AS d ON d.classid = 'pg_proc'::regclass AND d.objid = p.oid AND d.deptype = 'e'
	JOIN pg_extension AS e ON e.extname = 'idem' AND d.refobjid = e.oid
	WHERE p.proname NOT IN (SELECT name FROM idem_privileges()) ORDER BY p.proname COLLATE "C";
SELECT c.relname FROM pg_class AS c JOIN pg_depend AS d ON d.classid = 'pg_class'::regclass AND d.objid = c.oid AND d.deptype = 'e'
	JOIN pg_extension AS e ON e.extname = 'idem' AND d.refobjid = e.oid
	WHERE relkind IN ('r', 'v') AND c.relname NOT IN (SELECT name FROM idem_privileges()) ORDER BY c.relname COLLATE "C";

-- Each set gives what it lists, as far as it exists, and no more; and is taken back
CREATE FUNCTION difference(role text, set text) RETURNS SETOF text LANGUAGE plpgsql AS $$
#variable_conflict use_variable
BEGIN
	PERFORM idem_grant(quote_ident(role)::regrole, set);
	RETURN QUERY
		WITH listed AS (
			SELECT p.name, trim(both from w) AS privilege FROM idem_privileges() AS p, unnest(string_to_array(p.privilege, ',')) AS w WHERE p.set = difference.set)
		SELECT 'too much: ' || o.name || ' ' || o.privilege FROM opened AS o WHERE o.role = difference.role AND o.name <> 'idem_grant_owner'
			AND (o.name, o.privilege) NOT IN (SELECT l.name, l.privilege FROM listed AS l)
		UNION ALL
		SELECT 'too little: ' || l.name || ' ' || l.privilege FROM listed AS l WHERE (l.name, l.privilege) NOT IN
			(SELECT o.name, o.privilege FROM opened AS o WHERE o.role = difference.role)
			AND (to_regproc(l.name) IS NOT NULL OR to_regclass(l.name) IS NOT NULL);
	PERFORM idem_revoke(quote_ident(role)::regrole, set);
	RETURN QUERY SELECT 'left: ' || o.name FROM opened AS o WHERE o.role = difference.role AND o.name <> 'idem_grant_owner';
END
$$;
SELECT s, difference('regress_idem_plain', s) FROM unnest(ARRAY['signer', 'caller', 'auditor', 'operator', 'admin']) AS s;
SELECT difference('regress_idem_We ird.Rôle"x', 'caller');

-- What the sets are for
SELECT string_agg(DISTINCT name, ' ' ORDER BY name) FROM idem_privileges() WHERE set = 'admin';
-- what changes something, or says what is not everybody's to know, is each in one set alone
SELECT set, string_agg(name, ' ' ORDER BY name) AS names FROM idem_privileges()
	WHERE name IN ('idem_sign', 'idem_preview', 'idem_acquire', 'idem_acquire_direct', 'idem_commit', 'idem_fail', 'idem_release', 'idem_renew',
		'idem_execute', 'idem_status', 'idem_status_key', 'idem_reconcile', 'idem_purge', 'idem_maintain', 'idem_inspect', 'idem_audit', 'idem_alert')
	GROUP BY set ORDER BY set;
SELECT idem_grant('regress_idem_plain', 'signer');
SET ROLE regress_idem_plain;
SELECT length(idem_sign('alice', 'pay', '{"amount": 1}')) > 0 AS signs;
SELECT idem_export_secret();
SELECT * FROM idem_secret;
SELECT idem_grant('regress_idem_plain', 'admin');
RESET ROLE;
SELECT idem_revoke('regress_idem_plain', 'signer');
SELECT idem_grant('regress_idem_plain', 'admin');
SET ROLE regress_idem_plain;
INSERT INTO idem_policy (scope, material) VALUES ('regress grants', '{/a}');
UPDATE idem_policy SET material = '{/b}' WHERE scope = 'regress grants';
SELECT count(*) > 0 AS kept FROM idem_policy_version WHERE scope = 'regress grants';
DELETE FROM idem_policy WHERE scope = 'regress grants';
-- the history is not theirs to change
DELETE FROM idem_policy_version;
SELECT octet_length(idem_export_secret());
SELECT idem_grant('"regress_idem_We ird.Rôle""x"', 'signer');
RESET ROLE;
SELECT idem_revoke('regress_idem_plain', 'admin');
SELECT name FROM opened WHERE privilege = 'EXECUTE' AND name = 'idem_sign';

SELECT idem_revoke('"regress_idem_We ird.Rôle""x"', 'signer');
-- what a role gave on goes with its own (M11), and so does what was granted on columns
SELECT idem_grant('regress_idem_plain', 'caller'), idem_grant('regress_idem_plain', 'admin');
GRANT EXECUTE ON FUNCTION idem_acquire_direct TO regress_idem_plain WITH GRANT OPTION;
GRANT SELECT (scope) ON idem_policy TO regress_idem_plain WITH GRANT OPTION;
SET ROLE regress_idem_plain;
GRANT EXECUTE ON FUNCTION idem_acquire_direct TO "regress_idem_We ird.Rôle""x";
GRANT SELECT (scope) ON idem_policy TO "regress_idem_We ird.Rôle""x";
RESET ROLE;
SELECT has_function_privilege('regress_idem_We ird.Rôle"x', oid, 'EXECUTE') AS executes, has_column_privilege('regress_idem_We ird.Rôle"x', 'idem_policy', 'scope', 'SELECT') AS reads FROM pg_proc WHERE proname = 'idem_acquire_direct';
SELECT idem_revoke('regress_idem_plain', 'caller'), idem_revoke('regress_idem_plain', 'admin');
SELECT has_function_privilege('regress_idem_We ird.Rôle"x', oid, 'EXECUTE') AS executes, has_column_privilege('regress_idem_We ird.Rôle"x', 'idem_policy', 'scope', 'SELECT') AS reads FROM pg_proc WHERE proname = 'idem_acquire_direct';
SELECT count(*) FROM opened WHERE name <> 'idem_grant_owner';
SELECT count(*) AS forgotten FROM pg_shdepend AS d WHERE d.refobjid IN ('regress_idem_plain'::regrole, '"regress_idem_We ird.Rôle""x"'::regrole);
-- a caller's whole round, and what an auditor sees of it
SELECT idem_grant('regress_idem_plain', 'caller'), idem_grant('"regress_idem_We ird.Rôle""x"', 'auditor');
SET ROLE regress_idem_plain;
SELECT idem_commit(key, owner, '{"paid": true}') FROM idem_acquire_direct('regress alice', 'regress pay', '{"amount": 1}');
SELECT outcome, result FROM idem_acquire_direct('regress alice', 'regress pay', '{"amount": 1}');
SELECT key FROM idem_audit;
SET ROLE "regress_idem_We ird.Rôle""x";
SELECT state FROM idem_audit WHERE subject = 'regress alice';
SELECT (SELECT count(*) FROM idem_in_flight) + (SELECT count(*) FROM idem_stuck) + (SELECT count(*) FROM idem_alert) >= 0 AS sees, (SELECT count(*) FROM idem_secrets) > 0 AS secrets;
SELECT key FROM idem_record;
SELECT idem_acquire_direct('regress alice', 'regress pay', '{"amount": 1}');
RESET ROLE;

-- Every object says what it is for
SELECT pg_describe_object(d.classid, d.objid, 0) AS silent FROM pg_depend AS d JOIN pg_extension AS e ON e.extname = 'idem' AND d.refobjid = e.oid AND d.deptype = 'e'
	WHERE obj_description(d.objid, d.classid::regclass::name) IS NULL AND d.classid IN ('pg_proc'::regclass, 'pg_class'::regclass, 'pg_type'::regclass)
	AND NOT EXISTS (SELECT FROM pg_type AS t WHERE t.oid = d.objid AND d.classid = 'pg_type'::regclass AND (t.typtype = 'c' AND t.typname <> 'idem_claim' OR t.typelem <> 0));

-- Bad arguments
SELECT idem_grant('regress_idem_plain', 'everything');
\echo :SQLSTATE
SELECT idem_grant('regress_idem_plain', NULL);
\echo :SQLSTATE
SELECT idem_grant(NULL, 'caller');
\echo :SQLSTATE
SELECT idem_grant('-', 'caller');
\echo :SQLSTATE
SELECT idem_grant(0::oid::regrole, 'caller');
\echo :SQLSTATE

-- Installed by a role that is no superuser, in a schema of its own with an odd name, with no search path
SET client_min_messages = warning;
DROP VIEW opened;
DROP EXTENSION idem CASCADE;
CREATE ROLE regress_idem_owner;
DO $$ BEGIN EXECUTE format('GRANT CREATE ON DATABASE %I TO regress_idem_owner', current_database()); END $$;
SET ROLE regress_idem_owner;
CREATE SCHEMA "We ird.Sch";
SET search_path = '';
CREATE EXTENSION idem SCHEMA "We ird.Sch";
RESET client_min_messages;
SELECT e.extowner::regrole, p.proowner::regrole = e.extowner::regrole AS owns_the_functions
	FROM pg_extension AS e, pg_proc AS p WHERE e.extname = 'idem' AND p.proname = 'idem_sign';
INSERT INTO "We ird.Sch".idem_policy (scope, material) VALUES ('pay', '{/amount}');
SELECT "We ird.Sch".idem_canonical('pay', '{"amount": 1, "memo": "x"}');
SELECT length("We ird.Sch".idem_sign('alice', 'pay', '{"amount": 1}')) > 0 AS signs;
SELECT count("We ird.Sch".idem_rotate_secret());
SELECT count(*) FROM "We ird.Sch".idem_secrets;
SELECT octet_length("We ird.Sch".idem_export_secret());
SELECT count(*) FROM "We ird.Sch".idem_record;
SELECT * FROM "We ird.Sch".idem_secret;
-- by GRANT and by the function
GRANT USAGE ON SCHEMA "We ird.Sch" TO regress_idem_plain, "regress_idem_We ird.Rôle""x";
GRANT EXECUTE ON FUNCTION "We ird.Sch".idem_export_secret(text) TO regress_idem_plain;
GRANT SELECT ON "We ird.Sch".idem_policy, "We ird.Sch".idem_record, "We ird.Sch".idem_secrets TO regress_idem_plain;
SELECT "We ird.Sch".idem_grant('"regress_idem_We ird.Rôle""x"', 'signer');
SET ROLE regress_idem_plain;
SELECT octet_length("We ird.Sch".idem_export_secret());
SELECT scope FROM "We ird.Sch".idem_policy;
SET ROLE "regress_idem_We ird.Rôle""x";
SELECT length("We ird.Sch".idem_sign('alice', 'pay', '{"amount": 1}')) > 0 AS signs;
SET ROLE regress_idem_owner;
-- what would run the installer's code with the owner's rights
CREATE FUNCTION "We ird.Sch".rise() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'as %', current_user; END $$;
CREATE TRIGGER rise AFTER UPDATE ON "We ird.Sch".idem_policy_version FOR EACH ROW EXECUTE FUNCTION "We ird.Sch".rise();
CREATE TABLE "We ird.Sch".lure (scope text, material text[], immaterial text[], result_ttl interval);
CREATE TRIGGER lure AFTER INSERT ON "We ird.Sch".lure FOR EACH ROW EXECUTE FUNCTION "We ird.Sch"._idem_policy_history();
CREATE TABLE "We ird.Sch".lure2 (scope text REFERENCES "We ird.Sch".idem_policy);
SELECT "We ird.Sch"._idem_close(NULL, NULL);
SELECT count(*) FROM "We ird.Sch"._idem_member_list();
-- functions and operators of its own in its own path and in pg_temp are not taken for PostgreSQL's
CREATE FUNCTION "We ird.Sch".trap() RETURNS text LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'trapped as %', current_user; END $$;
CREATE FUNCTION "We ird.Sch".clock_timestamp() RETURNS timestamptz LANGUAGE sql AS $$ SELECT "We ird.Sch".trap()::timestamptz $$;
CREATE FUNCTION "We ird.Sch".same(text, text) RETURNS bool LANGUAGE sql AS $$ SELECT "We ird.Sch".trap() IS NULL $$;
CREATE FUNCTION "We ird.Sch".format(text, text, text, text) RETURNS text LANGUAGE sql AS $$ SELECT "We ird.Sch".trap() $$;
CREATE OPERATOR "We ird.Sch".= (LEFTARG = text, RIGHTARG = text, FUNCTION = "We ird.Sch".same);
CREATE OPERATOR "We ird.Sch".<> (LEFTARG = text, RIGHTARG = text, FUNCTION = "We ird.Sch".same);
CREATE TEMP TABLE pg_roles (oid oid);
CREATE TEMP TABLE idem_policy_version (scope text);
CREATE TEMP TABLE idem_policy (scope text);
SET search_path = "We ird.Sch", pg_temp, pg_catalog;
SELECT 'a' = 'b'::text;
UPDATE "We ird.Sch".idem_policy SET material = '{/amount,/payee}' WHERE scope OPERATOR(pg_catalog.=) 'pay';
UPDATE "We ird.Sch".idem_policy SET scope = 'repay';
SELECT "We ird.Sch".idem_canonical('repay', '{"amount": 1, "memo": "x"}');
SELECT count("We ird.Sch".idem_rotate_secret());
SELECT count("We ird.Sch".idem_import_secret(pg_catalog.sha256('a'), true));
SELECT "We ird.Sch".idem_revoke('"regress_idem_We ird.Rôle""x"', 'signer');
SELECT "We ird.Sch".idem_grant('regress_idem_plain', 'operator');
RESET search_path;
RESET ROLE;

-- T12: handed to another owner, who calls one function and may do all that the former might
CREATE ROLE regress_idem_heir;
GRANT USAGE ON SCHEMA "We ird.Sch" TO regress_idem_heir;
SET ROLE regress_idem_heir;
SELECT "We ird.Sch".idem_grant_owner();
\echo :SQLSTATE
RESET ROLE;
CREATE TABLE held AS SELECT d.classid, d.objid, x.privilege_type, x.is_grantable FROM pg_depend AS d JOIN pg_extension AS e ON d.refclassid = 'pg_extension'::regclass AND d.refobjid = e.oid AND d.deptype = 'e'
	LEFT JOIN pg_proc AS p ON d.classid = 'pg_proc'::regclass AND p.oid = d.objid LEFT JOIN pg_class AS c ON d.classid = 'pg_class'::regclass AND c.oid = d.objid, aclexplode(coalesce(p.proacl, c.relacl)) AS x
	WHERE e.extname = 'idem' AND x.grantee = 'regress_idem_owner'::regrole;
REASSIGN OWNED BY regress_idem_owner TO regress_idem_heir;
DROP OWNED BY regress_idem_owner;
SELECT count(*) > 60 AS held FROM held;
SET ROLE regress_idem_heir;
SELECT "We ird.Sch".idem_rotate_secret();
SELECT "We ird.Sch".idem_grant_owner();
SELECT count("We ird.Sch".idem_rotate_secret());
INSERT INTO "We ird.Sch".idem_policy (scope) VALUES ('heirs');
SELECT "We ird.Sch".idem_grant('regress_idem_plain', 'caller');
GRANT SELECT ON "We ird.Sch".idem_policy TO regress_idem_plain;
SELECT * FROM "We ird.Sch".idem_secret;
RESET ROLE;
SELECT count(*) FROM (TABLE held EXCEPT SELECT d.classid, d.objid, x.privilege_type, x.is_grantable FROM held AS d
	LEFT JOIN pg_proc AS p ON d.classid = 'pg_proc'::regclass AND p.oid = d.objid LEFT JOIN pg_class AS c ON d.classid = 'pg_class'::regclass AND c.oid = d.objid, aclexplode(coalesce(p.proacl, c.relacl)) AS x
	WHERE x.grantee = 'regress_idem_heir'::regrole) AS missing;
-- a superuser may call it as well, and it changes nothing more
SELECT "We ird.Sch".idem_grant_owner();
DROP TABLE held;

SET client_min_messages = warning;
DROP TABLE pg_temp.pg_roles, pg_temp.idem_policy, pg_temp.idem_policy_version;
DROP EXTENSION idem;
DROP SCHEMA "We ird.Sch" CASCADE;
DROP OWNED BY regress_idem_plain, "regress_idem_We ird.Rôle""x", regress_idem_owner, regress_idem_heir;
DROP ROLE regress_idem_plain, "regress_idem_We ird.Rôle""x", regress_idem_owner, regress_idem_heir;
DROP FUNCTION difference;
CREATE EXTENSION idem;
