-- Secrets: one signs, the others verify for as long as they may, and nobody sees them (P10).
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS idem CASCADE;
DROP EXTENSION idem CASCADE;
CREATE EXTENSION idem;
RESET client_min_messages;

-- The first secret: 32 bytes from pgcrypto, named by its own hash
SELECT id = left(encode(digest('idem:secret:'::bytea || secret, 'sha256'), 'hex'), 8) AS named, octet_length(secret), signing, verify_until, revoked_at
	FROM idem_secret;
SELECT id = (SELECT id FROM idem_secret) AS same, signing, created_at <= clock_timestamp() AS created, verify_until, revoked_at FROM idem_secrets;

-- No privilege, row security without a policy, not dumped; and in no view
SELECT relacl, relrowsecurity, (SELECT count(*) FROM pg_policy WHERE polrelid = c.oid) AS policies,
		(SELECT c.oid = ANY (extconfig) FROM pg_extension WHERE extname = 'idem') AS dumped
	FROM pg_class AS c WHERE oid = 'idem_secret'::regclass;
SELECT attrelid::regclass AS view, attname FROM pg_attribute
	JOIN pg_depend AS d ON d.classid = 'pg_class'::regclass AND d.objid = attrelid AND d.deptype = 'e'
	JOIN pg_class AS c ON c.oid = attrelid AND c.relkind = 'v'
	WHERE (attname = 'secret' OR atttypid = 'bytea'::regtype) AND attrelid <> 'idem_secret'::regclass;
CREATE ROLE regress_idem_plain;
GRANT SELECT ON idem_secret TO regress_idem_plain;
SET ROLE regress_idem_plain;
SELECT count(*) FROM idem_secret;
RESET ROLE;
REVOKE SELECT ON idem_secret FROM regress_idem_plain;
DROP ROLE regress_idem_plain;

-- What the table takes, even from a superuser
CREATE FUNCTION try(statement text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	broken text;
	told text;
BEGIN
	EXECUTE statement;
	RAISE EXCEPTION 'accepted' USING ERRCODE = 'ZZ000';
EXCEPTION WHEN OTHERS THEN
	GET STACKED DIAGNOSTICS broken = CONSTRAINT_NAME, told = MESSAGE_TEXT;
	RETURN CASE WHEN SQLSTATE = 'ZZ000' THEN told WHEN broken <> '' THEN broken ELSE SQLSTATE || ' ' || told END;
END
$$;
CREATE FUNCTION id_of(secret bytea) RETURNS text LANGUAGE sql AS $$
	SELECT left(encode(digest('idem:secret:'::bytea || secret, 'sha256'), 'hex'), 8)
$$;
SELECT try($$ INSERT INTO idem_secret (id, secret) VALUES (id_of('\x0102'), '\x0102') $$) AS short,
	try($$ INSERT INTO idem_secret (id, secret, signing) VALUES ('12345678', sha256('a'), NULL) $$) AS name,
	try($$ INSERT INTO idem_secret (id, secret, signing) VALUES (id_of(sha256('a')), sha256('a'), true) $$) AS second,
	try($$ INSERT INTO idem_secret (id, secret, signing) VALUES (id_of(sha256('a')), sha256('a'), false) $$) AS unsure,
	try($$ INSERT INTO idem_secret (id, secret, signing) VALUES (id_of(sha256('a')), sha256('a'), NULL) $$) AS good,
	try($$ UPDATE idem_secret SET verify_until = '2100-01-01' $$) AS ends,
	try($$ UPDATE idem_secret SET revoked_at = '2020-01-01' $$) AS revoked;

-- Import: 32 to 64 bytes that are not blank (E06)
SELECT a AS secret, try(format('SELECT idem_import_secret(%s)', a)) FROM unnest(ARRAY[
	'NULL', $$''$$, $$'   '$$, $$'abc'$$, $$convert_to(repeat(' ', 32), 'UTF8')$$, $$convert_to(repeat(E' \t\n', 12), 'UTF8')$$, $$decode(repeat('00', 40), 'hex')$$,
	$$decode(repeat('5a', 32), 'hex')$$, $$substr(sha256('a'), 1, 31)$$, $$sha256('a')$$, $$sha512('a')$$, $$sha512('a') || '\x00'$$, $$sha256('a'), NULL$$]) AS a;

-- The secret of the published vectors signs from now on
\set vector '\\x000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f'
SELECT idem_sign('alice', 'pay', '{"amount": 1}') AS before \gset
SELECT idem_import_secret(:'vector');
SELECT idem_import_secret(:'vector', true);
SELECT idem_import_secret(:'vector', true);
SELECT idem_import_secret(:'vector');
SELECT idem_export_secret() = :'vector' AS signing, idem_export_secret(id_of(:'vector')) = :'vector' AS named;
SELECT signing, verify_until FROM idem_secrets WHERE id = id_of(:'vector');
SELECT signing, verify_until - clock_timestamp() BETWEEN '24:15:00' AND '24:15:05' AS retained FROM idem_secrets WHERE id <> id_of(:'vector');
SELECT idem_sign('alice', 'pay', '{"amount": 1}') AS token \gset
SELECT translate(encode(hmac(convert_to(split_part(:'token', '.', 1), 'UTF8'), :'vector', 'sha256'), 'base64'), '+/=', '-_') = split_part(:'token', '.', 2) AS signed_by_it;
SELECT (idem_inspect(:'before')).valid AS former, (idem_inspect(:'token')).valid AS latter;

-- Rotation: the former verifies as long as anything it signed may be asked about, under any policy
SELECT try($$ SELECT idem_rotate_secret('24:15:04') $$), try($$ SELECT idem_rotate_secret('24:15:05') $$), try($$ SELECT idem_rotate_secret('-1 s') $$), try($$ SELECT idem_rotate_secret('101 years') $$);
SELECT idem_rotate_secret('1 h');
INSERT INTO idem_policy (scope, fingerprint_ttl, result_ttl) VALUES ('regress long', '1 h', '30 days');
SELECT idem_longest_retention();
SELECT try($$ SELECT idem_rotate_secret('30 days 01:00:04') $$);
SELECT idem_rotate_secret() AS id \gset
SELECT id = :'id' AS new, verify_until BETWEEN clock_timestamp() + '30 days 01:00:00' AND clock_timestamp() + '30 days 01:00:05' AS retained FROM idem_secrets WHERE signing OR id = id_of(:'vector') ORDER BY signing;
DELETE FROM idem_policy WHERE scope = 'regress long';
SELECT octet_length(idem_export_secret()), idem_export_secret() <> :'vector' AS other, id_of(idem_export_secret()) = :'id' AS named;
SELECT idem_sign('alice', 'pay', '{"amount": 1}') AS third \gset
SELECT (idem_inspect(:'before')).valid AS first, (idem_inspect(:'token')).valid AS second, (idem_inspect(:'third')).valid AS third;

-- The server's clock ends it, whatever a token says (E08)
UPDATE idem_secret SET verify_until = clock_timestamp() WHERE id = id_of(:'vector');
SELECT (idem_inspect(:'token')).valid;
SELECT idem_import_secret(:'vector') = id_of(:'vector') AS known;
UPDATE idem_secret SET verify_until = 'infinity' WHERE id = id_of(:'vector');
SELECT (idem_inspect(:'token')).valid;

-- Revocation: at once, for good, and as transactional as all else
BEGIN;
SELECT idem_revoke_secret(id_of(:'vector'));
SELECT (idem_inspect(:'token')).valid;
ROLLBACK;
SELECT (idem_inspect(:'token')).valid;
SELECT idem_revoke_secret(id_of(:'vector'));
SELECT idem_revoke_secret(id_of(:'vector'));
SELECT (idem_inspect(:'token')).valid;
SELECT idem_import_secret(:'vector');
\echo :SQLSTATE
SELECT idem_import_secret(:'vector', true);
SELECT try(format('SELECT idem_revoke_secret(%L)', :'id')) AS signing, try($$ SELECT idem_revoke_secret('12345678') $$) AS unknown, try('SELECT idem_revoke_secret(NULL)') AS null;
SELECT try($$ SELECT idem_export_secret('12345678') $$) AS unknown;

-- No secret signs: nothing is signed, and what was is still recognised
UPDATE idem_secret SET signing = NULL;
SELECT try($$ SELECT idem_export_secret() $$) AS export;
SELECT idem_sign('alice', 'pay', '{"amount": 1}');
\echo :SQLSTATE
SELECT (idem_inspect(:'third')).valid;
DELETE FROM idem_secret;
SELECT (idem_inspect(:'third')).valid;
-- nothing verifies by no secret: a token signed with the empty key (E06)
SELECT (idem_inspect(split_part(:'third', '.', 1) || '.' || translate(encode(hmac(convert_to(split_part(:'third', '.', 1), 'UTF8'), '', 'sha256'), 'base64'), '+/=', '-_'))).valid;
SELECT count(idem_rotate_secret());
SELECT signing, verify_until, revoked_at FROM idem_secrets;

-- Nothing is written where nothing may be; a secret is shown there too
BEGIN READ ONLY;
SELECT try('SELECT idem_rotate_secret()') AS rotate, try($$ SELECT idem_import_secret(sha256('a')) $$) AS import, try($$ SELECT idem_revoke_secret('12345678') $$) AS revoke;
SELECT octet_length(idem_export_secret());
ROLLBACK;

-- T11: how the session reads literals changes nothing
BEGIN;
SET LOCAL standard_conforming_strings = off;
SET LOCAL escape_string_warning = off;
SELECT try($$ SELECT idem_import_secret(sha256('t11')) $$) AS good, try($$ SELECT idem_import_secret(convert_to(repeat(' ', 32), 'UTF8')) $$) AS blank, try('SELECT idem_rotate_secret()') AS rotate;
ROLLBACK;

-- The latest state decides, whatever a transaction's snapshot shows
BEGIN ISOLATION LEVEL REPEATABLE READ;
SELECT count(*) FROM idem_secrets;
SELECT octet_length(idem_export_secret(idem_rotate_secret()));
SELECT count(*), count(*) FILTER (WHERE signing) AS signing FROM idem_secrets;
ROLLBACK;

-- pgcrypto is found wherever it lies, and no function that looks like its own is
CREATE SCHEMA "regress Cry.pto";
ALTER EXTENSION pgcrypto SET SCHEMA "regress Cry.pto";
CREATE FUNCTION gen_random_bytes(int) RETURNS bytea LANGUAGE sql AS $$ SELECT sha256('known') $$;
SELECT count(idem_rotate_secret());
SELECT idem_export_secret() = sha256('known') AS tricked;
DROP FUNCTION gen_random_bytes(int);
ALTER EXTENSION pgcrypto SET SCHEMA public;
DROP SCHEMA "regress Cry.pto";
DROP FUNCTION try, id_of;

-- T15: what carries whole tables carries the secrets: a publication of all tables, or of those in idem's schema
SET client_min_messages = error;
CREATE PUBLICATION secret_all FOR ALL TABLES;
CREATE PUBLICATION secret_schema FOR TABLES IN SCHEMA public;
RESET client_min_messages;
SELECT pubname FROM pg_publication_tables WHERE tablename = 'idem_secret' ORDER BY pubname;
DROP PUBLICATION secret_all, secret_schema;
