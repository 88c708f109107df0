-- The functions that compute and write nothing: how they are declared, and what they refuse (P11)
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS idem CASCADE;
RESET client_min_messages;
SET timezone = 'UTC';

-- what a statement raises: SQLSTATE, message, detail, hint
CREATE FUNCTION raised(statement text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	state text; message text; detail text; hint text;
BEGIN
	EXECUTE statement;
	RETURN 'nothing';
EXCEPTION WHEN OTHERS THEN
	GET STACKED DIAGNOSTICS state = RETURNED_SQLSTATE, message = MESSAGE_TEXT, detail = PG_EXCEPTION_DETAIL, hint = PG_EXCEPTION_HINT;
	RETURN concat_ws(E'\n', state || ': ' || message, NULLIF(detail, ''), NULLIF(hint, ''));
END
$$;


-- How they are declared: nothing open to PUBLIC, each with a comment, parallel only where no table is read (P10)
SELECT proname, provolatile AS volatile, proisstrict AS strict, proparallel AS parallel,
	   has_function_privilege('public', p.oid, 'EXECUTE') AS public, obj_description(p.oid, 'pg_proc') IS NOT NULL AS comment
FROM pg_proc p
WHERE proname IN ('idem_sign', 'idem_inspect', 'idem_canonical', 'idem_param_hash', 'idem_key', 'idem_downstream_key')
ORDER BY proname COLLATE "C";
CREATE ROLE idem_args_nobody;
SET ROLE idem_args_nobody;
SELECT call, raised('SELECT ' || call) FROM unnest(ARRAY[
	$$idem_sign('alice', 'charge', '{}')$$, $$idem_inspect('x')$$, $$idem_canonical(NULL, '{}')$$, $$idem_param_hash('charge', '{}')$$,
	$$idem_key('alice', 'charge', '{}')$$, $$idem_downstream_key('0192f0c1-7e3a-7c11-8a5b-0d5c2f6e9a01', 'debit')$$
]) call;
RESET ROLE;
DROP ROLE idem_args_nobody;


-- Bad input: null is 22004, what is empty, too long or out of range 22023, each with a hint; no value is shown
\pset format unaligned
\pset tuples_only on
\pset fieldsep '\n'
SELECT '* ' || call, raised('SELECT ' || call) FROM unnest(ARRAY[
	$$idem_sign(NULL, 'charge', '{}')$$, $$idem_sign('', 'charge', '{}')$$, $$idem_sign(repeat('x', 256), 'charge', '{}')$$,
	$$idem_sign(repeat('é', 128), 'charge', '{}')$$, $$idem_sign(repeat('x', 10000000), 'charge', '{}')$$,
	$$idem_sign('alice', NULL, '{}')$$, $$idem_sign('alice', '', '{}')$$, $$idem_sign('alice', repeat('x', 256), '{}')$$,
	$$idem_sign('alice', 'charge', NULL)$$, $$idem_sign('alice', 'charge', '{}', confirm_repeat => NULL)$$,
	$$idem_canonical('', '{}')$$, $$idem_canonical(repeat('x', 256), '{}')$$, $$idem_canonical('charge', NULL)$$, $$idem_canonical(NULL, NULL)$$,
	$$idem_param_hash('', '{}')$$, $$idem_param_hash(repeat('x', 256), '{}')$$, $$idem_param_hash('charge', NULL)$$,
	$$idem_key(NULL, 'charge', '{}')$$, $$idem_key('', 'charge', '{}')$$, $$idem_key(repeat('x', 256), 'charge', '{}')$$,
	$$idem_key('alice', NULL, '{}')$$, $$idem_key('alice', '', '{}')$$, $$idem_key('alice', repeat('x', 256), '{}')$$,
	$$idem_key('alice', 'charge', NULL)$$, $$idem_key('alice', 'charge', NULL, 'order-1')$$,
	$$idem_key('alice', 'charge', '{}', '')$$, $$idem_key('alice', 'charge', '{}', repeat('x', 256))$$,
	$$idem_downstream_key(NULL, 'debit')$$, $$idem_downstream_key('0192f0c1-7e3a-7c11-8a5b-0d5c2f6e9a01', NULL)$$,
	$$idem_downstream_key('0192f0c1-7e3a-7c11-8a5b-0d5c2f6e9a01', '')$$, $$idem_downstream_key('0192f0c1-7e3a-7c11-8a5b-0d5c2f6e9a01', repeat('x', 256))$$
]) call;
\pset format aligned
\pset tuples_only off
\pset fieldsep '|'

-- labels of 255 bytes, blanks and line breaks, and every length stored in a table or compressed, are as good as any
CREATE TABLE label (name text, value text);
ALTER TABLE label ALTER value SET STORAGE EXTERNAL;
INSERT INTO label VALUES ('255', repeat('x', 255)), ('127 of two', repeat('é', 127)), ('blank', ' '), ('line break', E'\n'),
	('quote', '"'), ('256', repeat('x', 256)), ('outside the row', repeat('x', 100000));
ALTER TABLE label ALTER value SET STORAGE EXTENDED;
INSERT INTO label VALUES ('compressed', repeat('x', 100000)), ('compressed outside', repeat(md5('x'), 500000));
SELECT name, octet_length(value) AS bytes,
	   split_part(raised(format('SELECT idem_sign(value, ''charge'', ''{}'') FROM label WHERE name = %L', name)), E'\n', 1) AS subject,
	   split_part(raised(format('SELECT idem_key(''alice'', ''charge'', ''{}'', value) FROM label WHERE name = %L', name)), E'\n', 1) AS client_key,
	   split_part(raised(format('SELECT idem_downstream_key(''0192f0c1-7e3a-7c11-8a5b-0d5c2f6e9a01'', value) FROM label WHERE name = %L', name)), E'\n', 1) AS step
FROM label;
DROP TABLE label;

-- any jsonb is parameters, JSON's null too (D14)
SELECT params, idem_canonical('charge', params), idem_param_hash('charge', params) = digest(idem_canonical('charge', params), 'sha256') AS hash
FROM unnest(ARRAY['null', '[]', '{}', '""', '0', 'false', '{"a": null}']::jsonb[]) params;


-- Nothing material is refused, wherever it would bind an operation to nothing (P7) --------------------------
INSERT INTO idem_policy (scope, material) VALUES ('args.listed', ARRAY['/amount']);
INSERT INTO idem_policy (scope, immaterial) VALUES ('args.minus', ARRAY['/memo']);
SELECT params, raised(format('SELECT idem_sign(''alice'', ''args.listed'', %L)', params)) AS sign,
	   left(raised(format('SELECT idem_canonical(''args.listed'', %L)', params)), 5) AS canonical,
	   left(raised(format('SELECT idem_param_hash(''args.listed'', %L)', params)), 5) AS param_hash,
	   left(raised(format('SELECT idem_key(''alice'', ''args.listed'', %L)', params)), 5) AS key,
	   left(raised(format('SELECT idem_key(''alice'', ''args.listed'', %L, ''order-1'')', params)), 5) AS client_key
FROM unnest(ARRAY['{}', '{"memo": "x"}', '{"amount": null}', '5', '[]', 'null']) params;
SELECT idem_canonical('args.listed', '{"amount": 1.50, "memo": "x"}') AS listed, idem_canonical('args.minus', '{"amount": 1.50, "memo": "x"}') AS minus,
	   idem_canonical('charge', '{"amount": 1.50, "memo": "x"}') AS no_policy, idem_canonical(NULL, '{"amount": 1.50, "memo": "x"}') AS no_scope;
-- the memo reworded is the same operation, the amount changed another (I04)
SELECT idem_key('alice', 'args.listed', '{"amount": 1, "memo": "x"}') = idem_key('alice', 'args.listed', '{"amount": 1.0, "memo": "y"}') AS memo,
	   idem_key('alice', 'args.listed', '{"amount": 1}') = idem_key('alice', 'args.listed', '{"amount": 2}') AS amount;

-- whether a scope is open is judged when granting, not when signing
INSERT INTO idem_policy (scope, enabled) VALUES ('args.closed', false);
INSERT INTO idem_policy (scope, entry) VALUES ('args.direct', 'direct');
SELECT scope, (idem_inspect(idem_sign('alice', scope, '{}'))).valid, idem_key('alice', scope, '{}') IS NOT NULL AS key
FROM unnest(ARRAY['args.closed', 'args.direct']) scope;

-- a policy of less than a second leaves no whole second to sign for
INSERT INTO idem_policy (scope, fingerprint_ttl) VALUES ('args.short', '1 ms');
SELECT split_part(raised($$SELECT idem_sign('alice', 'args.short', '{}')$$), E'\n', 1) AS short;
DELETE FROM idem_policy WHERE scope LIKE 'args.%';


-- Bytes are UTF-8 or nothing: another encoding is refused at the door
CREATE DATABASE idem_args_latin1 TEMPLATE template0 ENCODING 'LATIN1' LOCALE 'C';
\set database :DBNAME
\c idem_args_latin1
SET client_min_messages = warning;
\set VERBOSITY terse
CREATE EXTENSION idem CASCADE;
\c :database
DROP DATABASE idem_args_latin1;

DROP FUNCTION raised;
