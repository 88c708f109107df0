-- Roles that may act for one subject only, the one that a setting holds (P7, P10): who is bound, to what, for how long.
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS idem CASCADE;
CREATE ROLE regress_idem_web;
CREATE ROLE regress_idem_app;
CREATE ROLE regress_idem_free;
CREATE ROLE regress_idem_pool;
CREATE ROLE regress_idem_none;
CREATE ROLE regress_idem_super SUPERUSER;
CREATE SCHEMA idem_test_binding;
GRANT ALL ON SCHEMA idem_test_binding TO PUBLIC;
SET search_path = idem_test_binding, public;
RESET client_min_messages;

CREATE FUNCTION raised(statement text) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
	EXECUTE statement;
	RETURN 'nothing';
EXCEPTION WHEN OTHERS THEN
	RETURN SQLSTATE || ' ' || SQLERRM;
END
$$;
-- what a role is told that looks for a subject's operation: its outcome, or why not
CREATE FUNCTION looks(role regrole, subject text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	said text;
BEGIN
	EXECUTE format('SET LOCAL ROLE %s', role);
	SELECT outcome INTO said FROM idem_status_key('00000000-0000-8000-8000-000000000000', subject);
	RESET ROLE;
	RETURN said;
EXCEPTION WHEN OTHERS THEN
	RETURN SQLSTATE;
END
$$;

-- Granted, and kept ------------------------------------------------------------------------------------------

SELECT idem_grant('regress_idem_web', 'caller', subject_setting => 'app.subject');
SELECT role, role_oid::regrole, subject_setting FROM idem_binding;
-- a repeated grant does not open what was bound; another setting replaces the first, for both sets
SELECT idem_grant('regress_idem_web', 'caller'), idem_grant('regress_idem_web', 'signer');
\set VERBOSITY terse
SELECT idem_grant('regress_idem_web', 'signer', subject_setting => 'App.User_id.$1');
\echo :SQLSTATE
SELECT idem_grant('regress_idem_web', 'signer', subject_setting => 'App.user_id.s$1');
SELECT role, role_oid::regrole, subject_setting FROM idem_binding;
SELECT idem_grant('regress_idem_web', 'caller', subject_setting => 'app.subject');
-- not a setting of the user's own, or no set that carries a subject
SELECT left(name, 20) AS name, raised(format('SELECT idem_grant(''regress_idem_app'', ''caller'', %L)', name)) FROM unnest(ARRAY[
	'', ' ', 'app', '.', 'app.', '.subject', 'app..subject', '1app.subject', 'app.subject-id', 'app.subject; x', 'app.sub ject',
	'app.' || chr(228), 'idem.lang', 'IDEM.subject', 'work_mem', 'app.' || repeat('x', 300)]) AS name;
SELECT s, raised(format('SELECT idem_grant(''regress_idem_app'', %L, ''app.subject'')', s)) FROM unnest(ARRAY['auditor', 'operator', 'admin', 'none', NULL]) AS s;
SELECT count(*) FROM idem_binding WHERE role = 'regress_idem_app';
SELECT count(*) AS left_over FROM pg_proc WHERE proname ~ '^_?idem_' AND proname <> 'idem_grant_owner' AND has_function_privilege('regress_idem_app', oid, 'EXECUTE');

-- Its own subject and no other -------------------------------------------------------------------------------

-- unset, empty, another, and what only looks alike
SELECT looks('regress_idem_web', 'alice');
SET app.subject = '';
SELECT looks('regress_idem_web', 'alice');
SET app.subject = 'alice';
SELECT quote_literal(s) AS subject, looks('regress_idem_web', s)
	FROM unnest(ARRAY['alice', 'bob', 'Alice', 'alice ', ' alice', 'alic', 'alicee', E'alice\n', '', 'al%', NULL]) AS s;
RESET app.subject;
SELECT looks('regress_idem_web', 'alice');
-- for a transaction, and no longer
BEGIN;
SET LOCAL app.subject = 'alice';
SELECT looks('regress_idem_web', 'alice');
COMMIT;
SELECT looks('regress_idem_web', 'alice'), current_setting('app.subject', true) = '' AS left_empty;
SELECT set_config('app.subject', 'alice', true), looks('regress_idem_web', 'alice'), set_config('app.subject', 'bob', true), looks('regress_idem_web', 'alice');
-- any bytes
SELECT count(*) AS bytes, count(DISTINCT looks('regress_idem_web', v)) AS answers, min(looks('regress_idem_web', v))
	FROM (SELECT set_config('app.subject', repeat(chr(n), 3), true) AS v FROM generate_series(1, 1200) AS n OFFSET 0) AS t;
SET app.subject = 'alice';
SET ROLE regress_idem_web;
\set VERBOSITY default
SELECT outcome FROM idem_acquire_direct('bob', 'binding', '1');
\echo :SQLSTATE
\set VERBOSITY terse
RESET ROLE;

-- P7: every function that a signer or caller is given and that carries a subject; of those that carry none, see below
CREATE FUNCTION echo(params jsonb) RETURNS jsonb LANGUAGE sql AS 'SELECT params';
CREATE FUNCTION token(subject text) RETURNS text LANGUAGE sql SECURITY DEFINER SET search_path = public, pg_temp AS $$ SELECT idem_sign(subject, 'binding', '1') $$;
ALTER FUNCTION token OWNER TO regress_idem_super;
SELECT idem_grant('regress_idem_super', 'signer');
GRANT EXECUTE ON FUNCTION token TO PUBLIC;
CREATE TABLE call AS
SELECT name, call FROM (VALUES
	('idem_sign', 'idem_sign(%1$L, ''binding'', ''1'')'),
	('idem_preview', 'idem_preview(%1$L, ''binding'', ''1'')'),
	('idem_key', 'idem_key(%1$L, ''binding'', ''1'')'),
	('idem_acquire', 'idem_acquire(token(%1$L), %1$L, ''binding'', ''1'')'),
	('idem_acquire_direct', 'idem_acquire_direct(%1$L, ''binding'', ''1'')'),
	('idem_status', 'idem_status(token(%1$L), %1$L)'),
	('idem_status_key', 'idem_status_key(gen_random_uuid(), %1$L)'),
	('idem_execute', 'idem_execute(%1$L, ''binding'', ''2'', ''echo(jsonb)'')')) AS t (name, call);
GRANT SELECT ON call TO PUBLIC;
SELECT p.proname AS not_tried FROM pg_proc AS p JOIN pg_namespace AS n ON n.oid = p.pronamespace
	WHERE n.nspname = 'public' AND 'subject' = ANY (p.proargnames[1:p.pronargs]) AND p.proname IN (SELECT name FROM idem_privileges() WHERE set IN ('signer', 'caller'))
	AND p.proname NOT IN (SELECT name FROM call);
SET ROLE regress_idem_web;
SELECT name, raised('SELECT ' || format(call, 'alice')) AS own, raised('SELECT ' || format(call, 'bob')) AS another FROM call;
RESET ROLE;
-- nothing was written for the other, and what is refused is the same whatever is on record and whatever the token is worth
SELECT subject, count(*) FROM idem_record WHERE scope = 'binding' GROUP BY 1;
SELECT outcome FROM idem_acquire_direct('bob', 'binding', '1');
SET ROLE regress_idem_web;
SELECT raised('SELECT ' || c) FROM unnest(ARRAY[$$idem_acquire_direct('bob', 'binding', '1')$$, $$idem_acquire(token('bob'), 'bob', 'binding', '1')$$, $$idem_acquire('forged', 'bob', 'binding', '1')$$,
	$$idem_status(NULL, 'bob')$$, $$idem_status_key(idem_key('alice', 'binding', '1'), 'bob')$$, $$idem_execute('bob', 'binding', NULL, NULL)$$]) AS c;
-- a token of the other's is a mismatch, as ever
SELECT outcome FROM idem_acquire(token('bob'), 'alice', 'binding', '1');
RESET ROLE;
SELECT idem_release(key, owner) FROM idem_acquire_direct('bob', 'binding token', '1', owner => '11111111-1111-4111-8111-111111111111');
SELECT key FROM idem_acquire_direct('bob', 'binding token', '1', owner => '22222222-2222-4222-8222-222222222222') \gset
SET ROLE regress_idem_web;
-- T6: the token is no way to another subject's claim either; what else there is of this stands in sql/subject.sql
SELECT idem_renew(:'key', '22222222-2222-4222-8222-222222222222'), idem_commit(:'key', '22222222-2222-4222-8222-222222222222');
RESET ROLE;

-- Who is bound -----------------------------------------------------------------------------------------------

SELECT idem_grant('regress_idem_free', 'caller'), idem_grant('regress_idem_app', 'caller', 'app.other');
CREATE VIEW who AS SELECT r.role, looks(r.role, 'alice') AS alice, looks(r.role, 'bob') AS bob, looks(r.role, 'carol') AS carol
	FROM unnest(ARRAY['web', 'app', 'free', 'pool', 'none', 'super']) AS n, LATERAL (SELECT ('regress_idem_' || n)::regrole AS role) AS r;
SET app.other = 'bob';
SELECT * FROM who;
-- a member of a bound role has what that has; of two, either; of one that is free as well, anything
GRANT regress_idem_web TO regress_idem_pool;
SELECT * FROM who WHERE role = 'regress_idem_pool'::regrole;
GRANT regress_idem_app TO regress_idem_pool;
SELECT * FROM who WHERE role = 'regress_idem_pool'::regrole;
GRANT regress_idem_free TO regress_idem_pool;
SELECT * FROM who WHERE role = 'regress_idem_pool'::regrole;
REVOKE regress_idem_free FROM regress_idem_pool;
REVOKE regress_idem_app FROM regress_idem_pool;
-- a grant of its own is free, and a binding of its own goes before all
SELECT idem_grant('regress_idem_pool', 'caller');
SELECT * FROM who WHERE role = 'regress_idem_pool'::regrole;
SELECT idem_grant('regress_idem_pool', 'caller', 'app.other');
GRANT regress_idem_free TO regress_idem_pool;
SELECT * FROM who WHERE role = 'regress_idem_pool'::regrole;
REVOKE regress_idem_free FROM regress_idem_pool;
SELECT idem_revoke('regress_idem_pool', 'caller');
-- members of members; and who does not inherit has to become the other, and is it then
GRANT regress_idem_pool TO regress_idem_none;
SELECT * FROM who WHERE role = 'regress_idem_none'::regrole;
REVOKE regress_idem_pool FROM regress_idem_none;
ALTER ROLE regress_idem_none NOINHERIT;
GRANT regress_idem_web TO regress_idem_none;
SELECT * FROM who WHERE role = 'regress_idem_none'::regrole;
SET SESSION AUTHORIZATION regress_idem_none;
SET ROLE regress_idem_web;
SELECT outcome FROM idem_status_key('00000000-0000-8000-8000-000000000000', 'alice');
SELECT outcome FROM idem_status_key('00000000-0000-8000-8000-000000000000', 'bob');
RESET SESSION AUTHORIZATION;
REVOKE regress_idem_web FROM regress_idem_none;
ALTER ROLE regress_idem_none INHERIT;
-- what is open to everybody is open to who is not bound itself
GRANT EXECUTE ON FUNCTION idem_status_key TO PUBLIC;
SELECT * FROM who;
REVOKE EXECUTE ON FUNCTION idem_status_key FROM PUBLIC;
-- who is made a superuser is one, unless bound by name
GRANT regress_idem_web TO regress_idem_super;
SELECT * FROM who WHERE role = 'regress_idem_super'::regrole;
REVOKE regress_idem_web FROM regress_idem_super;
-- a function that runs with its owner's rights is the owner
CREATE FUNCTION door(subject text) RETURNS text LANGUAGE sql SECURITY DEFINER SET search_path = public, pg_temp
	AS $$ SELECT outcome::text FROM idem_status_key('00000000-0000-8000-8000-000000000000', subject) $$;
ALTER FUNCTION door OWNER TO regress_idem_free;
SET ROLE regress_idem_web;
SELECT door('bob');
RESET ROLE;
ALTER FUNCTION door OWNER TO regress_idem_web;
SET ROLE regress_idem_free;
SELECT raised($$SELECT door('bob')$$), door('alice');
RESET ROLE;
-- an aggregate is run by whoever its owner lets: a bound role lends nobody more than it has, and no role without a grant
-- gets past it
CREATE AGGREGATE free_sign(text, jsonb, timestamptz, bool) (SFUNC = idem_sign, STYPE = text, INITCOND = 'bob');
SET ROLE regress_idem_web;
CREATE AGGREGATE web_sign(text, jsonb, timestamptz, bool) (SFUNC = idem_sign, STYPE = text, INITCOND = 'bob');
SELECT raised(format('SELECT %s(''binding'', ''1'', NULL, false)', a)) FROM unnest(ARRAY['free_sign', 'web_sign']) AS a;
SET ROLE regress_idem_none;
SELECT raised(format('SELECT %s(''binding'', ''1'', NULL, false)', a)) FROM unnest(ARRAY['free_sign', 'web_sign']) AS a;
RESET ROLE;
SELECT length(free_sign('binding', '1', NULL, false)) > 0 AS signed;
-- what one role has prepared or opened, another runs as itself
PREPARE ask AS SELECT outcome FROM idem_status_key('00000000-0000-8000-8000-000000000000', 'bob');
EXECUTE ask;
BEGIN;
DECLARE asked CURSOR FOR SELECT outcome FROM generate_series(1, 2), idem_status_key('00000000-0000-8000-8000-000000000000', 'bob');
SET LOCAL ROLE regress_idem_web;
SAVEPOINT s;
FETCH asked;
ROLLBACK TO s;
EXECUTE ask;
ROLLBACK;
DEALLOCATE ask;

-- Changes ----------------------------------------------------------------------------------------------------

-- taken back, it is taken back with both sets
SELECT idem_revoke('regress_idem_web', 'signer');
SELECT looks('regress_idem_web', 'bob'), (SELECT count(*) FROM idem_binding WHERE role = 'regress_idem_web') AS bound;
SELECT idem_grant('regress_idem_web', 'caller');
SELECT looks('regress_idem_web', 'alice'), looks('regress_idem_web', 'bob');
SELECT idem_revoke('regress_idem_web', 'caller');
SELECT looks('regress_idem_web', 'alice'), (SELECT count(*) FROM idem_binding WHERE role = 'regress_idem_web') AS bound;
SELECT idem_grant('regress_idem_web', 'caller');
SELECT looks('regress_idem_web', 'alice'), looks('regress_idem_web', 'bob');
-- rolled back
BEGIN;
SELECT idem_grant('regress_idem_web', 'caller', 'app.subject');
SELECT looks('regress_idem_web', 'bob');
SAVEPOINT s;
SELECT idem_grant('regress_idem_web', 'caller', 'app.other');
SELECT looks('regress_idem_web', 'bob');
ROLLBACK TO s;
SELECT looks('regress_idem_web', 'bob');
ROLLBACK;
SELECT looks('regress_idem_web', 'bob');
-- a binding made in replica mode and by hand holds as well; one that is emptied out is refused, not free
SET session_replication_role = replica;
SELECT idem_grant('regress_idem_web', 'caller', 'app.subject');
RESET session_replication_role;
SELECT looks('regress_idem_web', 'bob');
UPDATE idem_binding SET subject_setting = 'app.other' WHERE role = 'regress_idem_web';
SELECT looks('regress_idem_web', 'bob');
BEGIN;
TRUNCATE idem_binding;
SELECT looks('regress_idem_web', 'carol');
ROLLBACK;
SELECT looks('regress_idem_web', 'carol');
-- in a read-only transaction
BEGIN READ ONLY;
SELECT looks('regress_idem_web', 'bob'), looks('regress_idem_web', 'carol');
COMMIT;
-- another name is the same role; privileges that are gone leave the binding for those that come
ALTER ROLE regress_idem_web RENAME TO regress_idem_site;
SELECT looks('regress_idem_site', 'bob'), looks('regress_idem_site', 'carol');
SET client_min_messages = warning;
DROP OWNED BY regress_idem_site;
RESET client_min_messages;
SELECT looks('regress_idem_site', 'bob');
SELECT idem_grant('regress_idem_site', 'caller');
SELECT looks('regress_idem_site', 'bob'), looks('regress_idem_site', 'carol');
ALTER ROLE regress_idem_site RENAME TO regress_idem_web;
-- a role's setting of its own, and a function's
ALTER ROLE regress_idem_web SET app.other = 'carol';
CREATE FUNCTION as_carol() RETURNS text LANGUAGE sql SET app.other = 'carol'
	AS $$ SELECT outcome::text FROM public.idem_status_key('00000000-0000-8000-8000-000000000000', 'carol') $$;
SET ROLE regress_idem_web;
SELECT as_carol(), raised($$SELECT idem_status_key(gen_random_uuid(), 'carol')$$) AS outside;
RESET ROLE;
ALTER ROLE regress_idem_web RESET app.other;
DROP FUNCTION as_carol;

-- Who may bind -----------------------------------------------------------------------------------------------

SELECT idem_grant('regress_idem_free', 'auditor'), idem_grant('regress_idem_none', 'admin');
SET ROLE regress_idem_web;
SELECT raised(s) FROM unnest(ARRAY['TABLE idem_binding', 'DELETE FROM idem_binding', 'TRUNCATE idem_binding', $$SELECT idem_grant('regress_idem_web', 'caller')$$, $$SELECT idem_revoke('regress_idem_web', 'caller')$$]) AS s;
SET ROLE regress_idem_free;
SELECT role, role_oid::regrole, subject_setting FROM idem_binding ORDER BY role;
SELECT raised('DELETE FROM idem_binding'), raised($$UPDATE idem_binding SET subject_setting = 'a.b'$$);
SET ROLE regress_idem_none;
SELECT raised('DELETE FROM idem_binding'), raised($$INSERT INTO idem_binding VALUES ('regress_idem_free', NULL, 'app.subject')$$);
SELECT idem_grant('regress_idem_free', 'caller', 'app.subject');
RESET ROLE;
SELECT looks('regress_idem_free', 'alice'), looks('regress_idem_free', 'bob');
-- T19: all rows are dumped, and a role's name is taken whoever is there; whose OID comes with it does not matter, in no mode
SELECT extcondition[array_position(extconfig, 'idem_binding'::regclass::oid)] = '' AS dumped_all FROM pg_extension WHERE extname = 'idem';
SELECT raised('INSERT INTO idem_binding VALUES ('''', NULL, ''app.subject'')'), raised('INSERT INTO idem_binding VALUES (NULL, NULL, ''app.subject'')'),
	raised('INSERT INTO idem_binding VALUES (''regress_idem_none'', NULL, NULL)');
SET session_replication_role = replica;
INSERT INTO idem_binding VALUES ('regress_idem_gone', 'regress_idem_super'::regrole, 'app.subject'), ('regress_idem_none', 10, 'app.other');
RESET session_replication_role;
SELECT role, role_oid::regrole, subject_setting FROM idem_binding WHERE role ~ '_gone|_none' ORDER BY role;
UPDATE idem_binding SET role_oid = 10 WHERE role ~ '_gone|_none';
SELECT role, role_oid::regrole, subject_setting FROM idem_binding WHERE role ~ '_gone|_none' ORDER BY role;
DELETE FROM idem_binding WHERE role ~ '_none';
-- a row waits for its role, and binds it before anything is granted
SELECT looks('regress_idem_super', 'carol');
CREATE ROLE regress_idem_gone;
GRANT EXECUTE ON FUNCTION idem_status_key TO regress_idem_gone;
SELECT looks('regress_idem_gone', 'alice'), looks('regress_idem_gone', 'carol');
REVOKE EXECUTE ON FUNCTION idem_status_key FROM regress_idem_gone;
SELECT idem_grant('regress_idem_gone', 'caller');
SELECT role, role_oid::regrole, subject_setting FROM idem_binding WHERE role ~ '_gone';
SELECT looks('regress_idem_gone', 'alice'), looks('regress_idem_gone', 'carol');

-- The mark beside the grant (T19) -----------------------------------------------------------------------------

-- who may execute a marker of his set is bound; a row that is lost lets nobody in
CREATE VIEW marked AS SELECT p.proname, x.grantee::regrole AS role, x.is_grantable FROM pg_proc AS p, aclexplode(p.proacl) AS x WHERE p.proname ~ '^_idem_bound' AND x.grantee <> p.proowner;
SELECT * FROM marked ORDER BY proname, role::text COLLATE "C";
BEGIN;
DELETE FROM idem_binding;
SELECT looks('regress_idem_gone', 'alice'), looks('regress_idem_free', 'alice'), looks('regress_idem_super', 'alice');
SELECT status, detail FROM idem_health() WHERE name = 'bindings' ORDER BY detail;
\set VERBOSITY default
-- a grant that is repeated does not open it; one that says a setting binds it again
SELECT idem_grant('regress_idem_gone', 'caller');
SELECT looks('regress_idem_gone', 'alice');
SELECT idem_grant('regress_idem_gone', 'caller', 'app.subject');
SELECT looks('regress_idem_gone', 'alice'), looks('regress_idem_gone', 'carol');
-- both sets taken back, it is free to begin anew
SELECT idem_revoke('regress_idem_free', 'caller'), idem_grant('regress_idem_free', 'caller');
SELECT looks('regress_idem_free', 'carol');
SAVEPOINT s;
SET LOCAL ROLE regress_idem_app;
SELECT idem_status_key('00000000-0000-8000-8000-000000000000', 'alice');
ROLLBACK TO s;
-- so is who has its privilege from a role whose row is lost, in the same words
GRANT regress_idem_app TO regress_idem_none;
SET LOCAL ROLE regress_idem_none;
SELECT idem_status_key('00000000-0000-8000-8000-000000000000', 'alice');
\set VERBOSITY terse
ROLLBACK;
-- the marks go with the sets
BEGIN;
SELECT idem_grant('regress_idem_gone', 'signer');
SELECT * FROM marked WHERE role = 'regress_idem_gone'::regrole ORDER BY proname;
SELECT idem_revoke('regress_idem_gone', 'caller');
SELECT * FROM marked WHERE role = 'regress_idem_gone'::regrole ORDER BY proname;
SELECT looks('regress_idem_gone', 'carol');
SELECT idem_revoke('regress_idem_gone', 'signer');
SELECT count(*) FROM marked WHERE role = 'regress_idem_gone'::regrole;
ROLLBACK;
-- a change of the mark alone is seen
SELECT looks('regress_idem_gone', 'alice');
BEGIN;
GRANT EXECUTE ON FUNCTION _idem_bound_caller() TO regress_idem_super;
SELECT looks('regress_idem_super', 'alice');
ROLLBACK;
SELECT looks('regress_idem_super', 'alice');
-- a changed name is taken over by the next grant, whoever it is for; a name that somebody else has by now is not taken for his
ALTER ROLE regress_idem_gone RENAME TO regress_idem_former;
CREATE ROLE regress_idem_gone;
SELECT idem_grant('regress_idem_gone', 'caller');
SELECT looks('regress_idem_former', 'alice'), looks('regress_idem_former', 'carol'), looks('regress_idem_gone', 'carol');
SELECT idem_grant('regress_idem_gone', 'caller', 'app.other');
SELECT role, role_oid::regrole, subject_setting FROM idem_binding WHERE role ~ '_gone|_former' ORDER BY role;
-- two that have changed names stay who they are
ALTER ROLE regress_idem_former RENAME TO regress_idem_third;
ALTER ROLE regress_idem_gone RENAME TO regress_idem_former;
ALTER ROLE regress_idem_third RENAME TO regress_idem_gone;
SELECT idem_grant('regress_idem_gone', 'signer', 'app.subject');
SELECT role, role_oid::regrole, subject_setting FROM idem_binding WHERE role ~ '_gone|_former' ORDER BY role;
SELECT looks('regress_idem_gone', 'alice'), looks('regress_idem_former', 'alice'), looks('regress_idem_gone', 'bob'), looks('regress_idem_former', 'bob');
SELECT idem_revoke(r::regrole, s) FROM unnest(ARRAY['regress_idem_gone', 'regress_idem_former']) AS r, unnest(ARRAY['signer', 'caller']) AS s \g /dev/null
SELECT count(*) FROM idem_binding WHERE role ~ '_gone|_former';
DROP ROLE regress_idem_gone, regress_idem_former;
-- the trigger serves no other table
CREATE TABLE lure (role text, role_oid oid, subject_setting text);
CREATE TRIGGER lure BEFORE INSERT ON lure FOR EACH ROW EXECUTE FUNCTION _idem_binding_role();
SELECT raised($$INSERT INTO lure VALUES ('regress_idem_free', 0, 'app.subject')$$);

SELECT idem_revoke(r.role, s) FROM unnest(ARRAY['web', 'app', 'free', 'super']) AS n, LATERAL (SELECT ('regress_idem_' || n)::regrole AS role) AS r, unnest(ARRAY['signer', 'caller', 'auditor', 'admin']) AS s \g /dev/null
SELECT count(*) FROM idem_binding;
DELETE FROM idem_record WHERE scope LIKE 'binding%';
DELETE FROM idem_alert WHERE scope LIKE 'binding%';
SET client_min_messages = warning;
DROP SCHEMA idem_test_binding CASCADE;
DROP OWNED BY regress_idem_web, regress_idem_app, regress_idem_free, regress_idem_pool, regress_idem_none, regress_idem_super;
DROP ROLE regress_idem_web, regress_idem_app, regress_idem_free, regress_idem_pool, regress_idem_none, regress_idem_super;
