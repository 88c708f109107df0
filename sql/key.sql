-- The UUIDs that name operations and their downstream steps (RFC 9562).
-- Each test names the promise that it guards (P1 to P12) and, where there is one, the field case.
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS idem CASCADE;
RESET client_min_messages;
\set VERBOSITY sqlstate

-- The same from pgcrypto: parts hashed with their lengths before them, version 8 and the variant stamped on.
CREATE FUNCTION pg_temp.name_parts(VARIADIC parts bytea[]) RETURNS uuid LANGUAGE sql
AS $$
	SELECT encode(set_byte(set_byte(hash, 6, get_byte(hash, 6) & 15 | 128), 8, get_byte(hash, 8) & 63 | 128), 'hex')::uuid
	FROM (SELECT substr(digest(string_agg(int4send(length(part)) || part, '' ORDER BY n), 'sha256'), 1, 16) AS hash
		FROM unnest(parts) WITH ORDINALITY AS p (part, n)) AS h
$$;
CREATE FUNCTION pg_temp.bytes(text) RETURNS bytea LANGUAGE sql AS $$ SELECT convert_to($1, 'UTF8') $$;

-- P3: the vectors of test/vectors/keys.json, computed by an independent program. Rows shown are failures.
CREATE TEMP TABLE vector (id int, subject text, scope text, params jsonb, client_key text, key uuid);
INSERT INTO vector VALUES
	(1, 'alice', 'charge', '{"a":1,"b":2}', NULL,
		'df34ea3d-d58e-8094-985e-eaf73b3c4688'),
	(2, 'alice', 'charge', '{"b":2.0,"a":1}', NULL,
		'df34ea3d-d58e-8094-985e-eaf73b3c4688'),
	(3, 'bob', 'charge', '{"a":1,"b":2}', NULL,
		'dd985a79-ecfe-8fce-b2e1-59b4ed55902e'),
	(4, 'a|b', 'c', '{}', NULL,
		'ac90c499-40e8-8f98-ac45-99fa7c3399ed'),
	(5, 'a', 'b|c', '{}', NULL,
		'3636bd5f-ebc9-88d5-8a20-3233693d6fd2'),
	(6, 'alice', 'charge', '{"a":1}', 'order-1',
		'84b42ac4-2879-8cd3-b5e0-309268abbfdf');
SELECT count(*) FROM vector;
SELECT * FROM vector
WHERE idem_key(subject, scope, params, client_key) IS DISTINCT FROM key
	OR pg_temp.name_parts('idem:key:1', pg_temp.bytes(CASE WHEN client_key IS NULL THEN 'content' ELSE 'client' END),
		pg_temp.bytes(scope), pg_temp.bytes(subject),
		pg_temp.bytes(coalesce(client_key, idem_canonical(scope, params)))) IS DISTINCT FROM key
ORDER BY id;

-- P3: the vectors of test/vectors/steps.json
CREATE TEMP TABLE step_vector (id int, key uuid, step text, downstream_key uuid);
INSERT INTO step_vector VALUES
	(1, '0192f0c1-7e3a-7c11-8a5b-0d5c2f6e9a01', 'debit', 'e99be90a-c117-8b47-863c-20dab0dbc9b1'),
	(2, '0192f0c1-7e3a-7c11-8a5b-0d5c2f6e9a01', 'email', '1cea9a2c-0538-8403-aa7e-5c5a1e933e06'),
	(3, '0192f0c1-7e3a-7c11-8a5b-0d5c2f6e9a01', E'debit\u00e9', '840429d5-3ea3-8d2d-9562-b09bb530d1a5');
SELECT count(*) FROM step_vector;
SELECT * FROM step_vector
WHERE idem_downstream_key(key, step) IS DISTINCT FROM downstream_key
	OR pg_temp.name_parts('idem:step:1', uuid_send(key), pg_temp.bytes(step)) IS DISTINCT FROM downstream_key
ORDER BY id;

-- P7 (C04): parts do not run into each other, whatever they hold; a client's key is never taken for content.
CREATE TEMP TABLE named AS
SELECT subject, scope, client_key, idem_key(subject, scope, params, client_key) AS key
FROM (VALUES
	('a|b', 'c', '{}'::jsonb, NULL), ('a', 'b|c', '{}', NULL),
	('ab', 'c', '{}', NULL), ('a', 'bc', '{}', NULL), ('c', 'ab', '{}', NULL),
	('a:b', 'c', '{}', NULL), ('a', 'b:c', '{}', NULL),
	('a.b', 'c', '{}', NULL), ('a', 'b.c', '{}', NULL),
	(E'a\x1fb', 'c', '{}', NULL), ('a', E'b\x1fc', '{}', NULL),
	(E'a\nb', 'c', '{}', NULL), ('a', E'b\nc', '{}', NULL), ('a', E'b\n', '"c"', NULL),
	('a', 'b', '{}', NULL), ('a', 'b', '[]', NULL), ('a', 'b', '""', NULL), ('a', 'b', '"{}"', NULL),
	('a', 'b', '{}', '{}'), ('a', 'b', '{}', '[]'), ('a', 'b', '{}', '""'), ('a', 'b', '{}', ' '),
	('content', 'a', '{}', NULL), ('client', 'a', '{}', NULL), ('a', 'client', '{}', 'content'), ('a', 'content', '{}', 'client'),
	('b', 'a', '{}', '{}'), (E'\x01', E'\x01\x01', '{}', 'x'), (E'\x01\x01', E'\x01', '{}', 'x')) AS c (subject, scope, params, client_key);
SELECT count(*) AS names, count(DISTINCT key) AS keys FROM named;
-- P3: under a client's key the parameters do not name the operation
SELECT idem_key('alice', 'charge', '{"a":1}', 'order-1') = idem_key('alice', 'charge', '{"a":2}', 'order-1') AS same;

-- P11: every key is a UUID of version 8 and of the RFC's variant.
SELECT DISTINCT substr(key::text, 15, 1) AS version, substr(key::text, 20, 1) IN ('8', '9', 'a', 'b') AS variant
FROM (SELECT key FROM named UNION ALL SELECT idem_downstream_key(key, 'step') FROM named) AS keys;

-- P1: a step's key is neither its operation's nor another step's.
SELECT count(*) AS steps, count(DISTINCT downstream) AS keys
FROM (SELECT idem_downstream_key(key, step) AS downstream FROM named, unnest('{a,b,ab,A," ",a1}'::text[]) AS step
	UNION ALL SELECT key FROM named) AS k;

-- P7: only what is material names a direct call.
BEGIN;
INSERT INTO idem_policy (scope, material) VALUES ('key.charge', '{/amount,/payee}');
SELECT idem_key('alice', 'key.charge', '{"amount":199,"payee":"acct_42","memo":"please hurry"}')
		= idem_key('alice', 'key.charge', '{"payee":"acct_42","amount":199.00,"memo":"now"}') AS same,
	idem_key('alice', 'key.charge', '{"amount":199,"payee":"acct_42"}')
		= idem_key('alice', 'key.charge', '{"amount":200,"payee":"acct_42"}') AS other_amount;
SELECT idem_key('alice', 'key.charge', '{"amuont":199}');
ROLLBACK;

-- P1: a fingerprint's key is a version-7 UUID of its own, with the time of signing in its first 48 bits.
SELECT count(DISTINCT key) AS keys, bool_and(substr(key::text, 15, 1) = '7') AS version,
	bool_and(substr(key::text, 20, 1) IN ('8', '9', 'a', 'b')) AS variant,
	bool_and(abs(('x' || lpad(left(replace(key::text, '-', ''), 12), 16, '0'))::bit(64)::bigint
		- extract(epoch FROM clock_timestamp()) * 1000) < 60000) AS now
FROM (SELECT (idem_inspect(idem_sign('alice', 'charge', '{"a":1}'))).key FROM generate_series(1, 1000)) AS signed;

-- P11: null, empty and over-long arguments
SELECT idem_key(NULL, 'charge', '{}');
SELECT idem_key('alice', NULL, '{}');
SELECT idem_key('alice', 'charge', NULL);
SELECT idem_key('', 'charge', '{}');
SELECT idem_key('alice', '', '{}');
SELECT idem_key('alice', 'charge', '{}', '');
SELECT idem_key(repeat('x', 256), 'charge', '{}');
SELECT idem_key('alice', 'charge', '{}', repeat('x', 256));
SELECT idem_key(repeat('x', 255), repeat('y', 255), '{}', repeat('z', 255)) IS NOT NULL AS longest;
SELECT idem_downstream_key(NULL, 'step');
SELECT idem_downstream_key('0192f0c1-7e3a-7c11-8a5b-0d5c2f6e9a01', NULL);
SELECT idem_downstream_key('0192f0c1-7e3a-7c11-8a5b-0d5c2f6e9a01', '');
SELECT idem_downstream_key('0192f0c1-7e3a-7c11-8a5b-0d5c2f6e9a01', repeat('x', 256));
