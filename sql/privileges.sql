-- Who may do what (P10): every function is called and every table touched by every kind of role, in an extension that a
-- role installed which is no superuser. Then what such calls tell.
SET client_min_messages = warning;
-- in a database of its own: its owner is to install the extension
\set database :DBNAME
CREATE ROLE regress_idem_installer;
CREATE DATABASE idem_test_privileges TEMPLATE template0 OWNER regress_idem_installer;
\c idem_test_privileges
SET client_min_messages = warning;
CREATE ROLE regress_idem_nobody;
CREATE ROLE regress_idem_signer;
CREATE ROLE regress_idem_caller;
CREATE ROLE regress_idem_auditor;
CREATE ROLE regress_idem_operator;
CREATE ROLE regress_idem_admin;
CREATE ROLE regress_idem_reader IN ROLE pg_read_all_data;
CREATE ROLE regress_idem_writer IN ROLE pg_write_all_data;
CREATE SCHEMA test;
GRANT ALL ON SCHEMA test TO PUBLIC;
SET ROLE regress_idem_installer;
CREATE EXTENSION pgcrypto SCHEMA public;
CREATE EXTENSION idem SCHEMA public;
SELECT idem_grant(('regress_idem_' || s)::regrole, s) FROM unnest(ARRAY['signer', 'caller', 'auditor', 'operator', 'admin']) AS s \g /dev/null
RESET ROLE;
SET search_path = test, public;

-- what comes of a statement of a role's; it is undone
CREATE FUNCTION tried(role text, statement text) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
	EXECUTE format('SET LOCAL ROLE %I', 'regress_idem_' || role);
	EXECUTE statement;
	RAISE SQLSTATE 'ZZ000';
EXCEPTION
	WHEN SQLSTATE 'ZZ000' THEN RETURN 'ok';
	-- counters are not there without preloading: that is said to those alone who may read them
	WHEN object_not_in_prerequisite_state THEN RETURN CASE WHEN statement ~ 'idem_stat' THEN 'ok' ELSE SQLSTATE END;
	WHEN insufficient_privilege THEN RETURN CASE WHEN SQLERRM ~ '^permission denied for' THEN '-' ELSE SQLSTATE END;
	WHEN OTHERS THEN RETURN SQLSTATE;
END
$$;
-- one column for each role
CREATE FUNCTION tried_by_all(statement text, OUT nobody text, OUT signer text, OUT caller text, OUT auditor text, OUT operator text, OUT admin text,
	OUT installer text, OUT reader text, OUT writer text) LANGUAGE sql AS $$
	SELECT tried('nobody', statement), tried('signer', statement), tried('caller', statement), tried('auditor', statement), tried('operator', statement),
		tried('admin', statement), tried('installer', statement), tried('reader', statement), tried('writer', statement)
$$;
CREATE VIEW member AS
	SELECT d.classid, d.objid FROM pg_depend AS d JOIN pg_extension AS e ON d.refclassid = 'pg_extension'::regclass AND d.refobjid = e.oid
	WHERE e.extname = 'idem' AND d.deptype = 'e';
CREATE VIEW member_function AS SELECT p.* FROM pg_proc AS p JOIN member AS m ON m.classid = 'pg_proc'::regclass AND m.objid = p.oid;

-- Functions --------------------------------------------------------------------------------------------------

CREATE FUNCTION echo(params jsonb) RETURNS jsonb LANGUAGE sql AS 'SELECT params';
SELECT idem_acquire_direct('alice', 'privileges', '"claim"', owner => '11111111-1111-4111-8111-111111111111') \g /dev/null
CREATE TABLE argument (name text, arguments text);
INSERT INTO argument VALUES
	('idem_sign', $$'alice', 'privileges', '1'$$), ('idem_preview', $$'alice', 'privileges', '1'$$), ('idem_inspect', $$'x'$$),
	('idem_canonical', $$'privileges', '1'$$), ('idem_param_hash', $$'privileges', '1'$$), ('idem_key', $$'alice', 'privileges', '1'$$),
	('idem_downstream_key', $$gen_random_uuid(), 'step'$$), ('idem_shard', $$'x', 4$$), ('idem_shard_key', $$gen_random_uuid(), 4$$),
	('idem_acquire', $$'x', 'alice', 'privileges', '1'$$), ('idem_acquire_direct', $$'alice', 'privileges', '1'$$),
	('idem_commit', $$:key, '11111111-1111-4111-8111-111111111111'$$), ('idem_fail', $$:key, '11111111-1111-4111-8111-111111111111', '1'$$),
	('idem_release', $$:key, '11111111-1111-4111-8111-111111111111'$$), ('idem_renew', $$:key, '11111111-1111-4111-8111-111111111111'$$),
	('idem_status', $$'x', 'alice'$$), ('idem_status_key', $$:key, 'alice'$$), ('idem_execute', $$'alice', 'privileges', '1', 'test.echo(jsonb)'$$),
	('idem_reconcile', $$:key, 'DONE', 'seen', force => true$$), ('idem_purge', ''), ('idem_maintain', ''), ('idem_reply', ':claim'), ('idem_http', ':claim'),
	('idem_http_key', $$'"x"'$$), ('idem_list_version', $$'{/a}', NULL$$), ('idem_longest_retention', ''), ('idem_rotate_secret', ''),
	('idem_import_secret', $$sha256('privileges')$$), ('idem_export_secret', ''), ('idem_revoke_secret', ':secret'),
	('idem_grant', $$'regress_idem_nobody', 'signer'$$), ('idem_revoke', $$'regress_idem_nobody', 'signer'$$), ('idem_grant_owner', ''), ('idem_health', ''), ('idem_privileges', ''),
	('idem_stat_counters', ''), ('idem_stat_reset', ''), ('idem_preloaded', ''), ('_idem_uncommitted', 'NULL'), ('_idem_stat_counters', 'NULL');
-- what is not named above is called with nulls; a trigger is hung on a table of one's own
CREATE VIEW call AS
SELECT p.proname::text AS name,
	p.provolatile::text || p.proparallel::text || CASE WHEN p.proisstrict THEN 'S' ELSE '' END || CASE WHEN p.prosecdef THEN 'D' ELSE '' END
		|| CASE WHEN p.proleakproof THEN 'L' ELSE '' END AS label,
	CASE WHEN p.prorettype = 'trigger'::regtype
		THEN format('CREATE TABLE test.hung (); CREATE TRIGGER t BEFORE INSERT ON test.hung FOR EACH ROW EXECUTE FUNCTION public.%I()', p.proname)
	ELSE format('SELECT * FROM public.%I(%s)', p.proname, replace(replace(replace(coalesce(a.arguments,
			(SELECT string_agg('NULL::' || t::regtype, ', ') FROM unnest(p.proargtypes) AS t)),
			':key', format('%L', (SELECT key FROM idem_audit WHERE scope = 'privileges'))),
			':claim', 'ROW(''NONE'', NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL)::public.idem_claim'),
			':secret', '''00000000''')) END AS statement
	FROM member_function AS p LEFT JOIN argument AS a ON a.name = p.proname;
SELECT a.name FROM argument AS a WHERE a.name NOT IN (SELECT proname FROM member_function);
-- the label: i immutable, s stable, v volatile; s safe, r restricted, u unsafe in parallel; S strict; D security definer; L leakproof
SELECT c.name, c.label, t.* FROM call AS c, tried_by_all(c.statement) AS t ORDER BY c.name COLLATE "C";

-- Tables and views -------------------------------------------------------------------------------------------

-- s select, i insert, u update, d delete, t truncate; g would hang a trigger on it, r refer to it
CREATE FUNCTION touched(role text, relation text, key text) RETURNS text LANGUAGE sql AS $$
	SELECT coalesce(string_agg(CASE WHEN tried(role, statement) <> '-' THEN letter END, ''), '')
	FROM (VALUES ('s', 'SELECT FROM public.%1$I LIMIT 1'), ('i', 'INSERT INTO public.%1$I DEFAULT VALUES'), ('u', 'UPDATE public.%1$I SET %2$I = DEFAULT'),
		('d', 'DELETE FROM public.%1$I'), ('t', 'TRUNCATE public.%1$I'),
		('g', 'CREATE TRIGGER t AFTER INSERT ON public.%1$I FOR EACH ROW EXECUTE FUNCTION pg_catalog.suppress_redundant_updates_trigger()'),
		('r', 'CREATE UNLOGGED TABLE test.refers (x text REFERENCES public.%1$I)')) AS t (letter, form),
		LATERAL (SELECT format(form, relation, key) AS statement) AS s
	WHERE letter = 's' OR (SELECT relkind FROM pg_class WHERE oid = format('public.%I', relation)::regclass) = 'r'
$$;
SELECT c.relname AS name, touched('nobody', relname, k.key) AS nobody, touched('signer', relname, k.key) AS signer, touched('caller', relname, k.key) AS caller, touched('auditor', relname, k.key) AS auditor,
		touched('operator', relname, k.key) AS operator, touched('admin', relname, k.key) AS admin, touched('installer', relname, k.key) AS installer, touched('reader', relname, k.key) AS reader, touched('writer', relname, k.key) AS writer
	FROM pg_class AS c JOIN member AS m ON m.classid = 'pg_class'::regclass AND m.objid = c.oid,
	LATERAL (SELECT attname::text AS key FROM pg_attribute AS a WHERE a.attrelid = c.oid AND a.attnum = 1) AS k
	WHERE c.relkind IN ('r', 'v') ORDER BY c.relname COLLATE "C";

-- the secrets have row security besides: who may read or write everything sees none, makes none, and cannot switch it off
SELECT count(*) > 0 AS there_are_some FROM idem_secret;
SET ROLE regress_idem_reader;
SELECT count(*) FROM idem_secret;
COPY idem_secret TO STDOUT;
SELECT tried('reader', 'SET LOCAL row_security = off; SELECT * FROM public.idem_secret');
SET ROLE regress_idem_writer;
SELECT tried('writer', $$INSERT INTO public.idem_secret (id, secret, signing) VALUES ('x', sha256('x'), false)$$);
RESET ROLE;
GRANT regress_idem_reader TO regress_idem_writer;
SET ROLE regress_idem_writer;
UPDATE idem_secret SET secret = sha256('x') RETURNING id;
DELETE FROM idem_secret RETURNING id;
RESET ROLE;
SELECT count(*) > 0 AS there_still_are FROM idem_secret;
-- no view has a column for a result, an owner's token or its hash, or a secret
SELECT c.relname, a.attname FROM pg_class AS c JOIN member AS m ON m.classid = 'pg_class'::regclass AND m.objid = c.oid JOIN pg_attribute AS a ON a.attrelid = c.oid
	WHERE c.relkind = 'v' AND (a.attname ~ 'owner' OR a.attname IN ('result', 'secret'));

-- What calls tell ---------------------------------------------------------------------------------------------

-- P10: an error with an owner token, a result or a secret at hand repeats none, in no field; arguments come as parameters, as a
-- program's do. The last statement shows that it would be seen: PostgreSQL shows a row that fails to who may read it
CREATE FUNCTION told(statement text, token text, result jsonb DEFAULT '"RESULT-9f3a"') RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	said text; detail text; hint text; context text; state text;
BEGIN
	EXECUTE statement USING token::uuid, result, decode(md5(token) || md5(token), 'hex');
	RETURN 'nothing';
EXCEPTION WHEN OTHERS THEN
	GET STACKED DIAGNOSTICS state = RETURNED_SQLSTATE, said = MESSAGE_TEXT, detail = PG_EXCEPTION_DETAIL, hint = PG_EXCEPTION_HINT, context = PG_EXCEPTION_CONTEXT;
	said := concat_ws(' ', said, detail, hint, context);
	RETURN state || CASE WHEN said ~* ('9f3a|' || left(md5(token), 16) || '|' || left(encode(sha256(uuid_send(token::uuid)), 'hex'), 16)) THEN ' LEAKED' ELSE '' END;
END
$$;
SELECT idem_fail(key, owner, '"again"', retryable => true) FROM idem_acquire_direct('alice', 'privileges used', '1', owner => '9f3a9f3a-1111-4111-8111-111111111111');
SELECT statement, told(statement, '9f3a9f3a-1111-4111-8111-111111111111') FROM unnest(ARRAY[
	$$SELECT idem_acquire_direct('alice', 'privileges used', '1', owner => $1)$$,
	$$SELECT idem_acquire_direct('alice', 'privileges', $2, $1::text || repeat('x', 300), owner => $1)$$,
	$$SELECT idem_acquire_direct(NULL, 'privileges', $2, owner => $1)$$,
	$$SELECT idem_acquire_direct('alice', 'privileges', $2, owner => $1, wait => '-1')$$,
	$$SELECT idem_acquire_direct('alice', 'privileges', $2, owner => $1, holder => repeat('x', 300))$$,
	$$SELECT idem_commit(NULL, $1, $2)$$, $$SELECT idem_commit(gen_random_uuid(), $1, $2, repeat('x', 2000))$$, $$SELECT idem_fail(gen_random_uuid(), $1, NULL)$$,
	$$SELECT idem_renew(gen_random_uuid(), $1, '1000 years')$$, $$SELECT idem_fail(gen_random_uuid(), $1, $2, NULL)$$,
	$$SELECT idem_import_secret(substr($3, 1, 31))$$, $$SELECT idem_import_secret($3 || $3 || $3)$$, $$SELECT idem_import_secret($3, NULL)$$,
	$$INSERT INTO idem_secret (id, secret, signing) VALUES ('x', $3, NULL)$$]) AS statement;
BEGIN READ ONLY;
SELECT told($$SELECT idem_acquire_direct('alice', 'privileges', $2, owner => $1)$$, '9f3a9f3a-2222-4111-8111-111111111111');
ROLLBACK;
-- How PostgreSQL judges them ----------------------------------------------------------------------------------

-- none is told to be cheaper or dearer than it is, to return more rows, or to be helped by others; views are read with their owner's rights
SELECT proname FROM member_function WHERE procost NOT IN (1, 100) OR prosupport <> 0 OR prorows NOT IN (0, 1000);
SELECT c.relname, c.reloptions FROM pg_class AS c JOIN member AS m ON m.classid = 'pg_class'::regclass AND m.objid = c.oid WHERE c.relkind = 'v' AND c.reloptions IS NOT NULL;

\c :database
SET client_min_messages = warning;
DROP DATABASE idem_test_privileges;
DROP ROLE regress_idem_installer, regress_idem_nobody, regress_idem_signer, regress_idem_caller, regress_idem_auditor, regress_idem_operator, regress_idem_admin, regress_idem_reader, regress_idem_writer;
