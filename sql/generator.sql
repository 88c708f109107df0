-- Secrets come from pgcrypto's generator and from nothing that looks like it, whoever owns its schema, idem's or the extension,
-- and whatever lies under the names that they had or have (P13; T2).
SET client_min_messages = warning;
CREATE ROLE regress_idem_lord;
CREATE DATABASE idem_test_generator TEMPLATE template0 ENCODING 'UTF8' LC_COLLATE 'C' LC_CTYPE 'C';
GRANT CREATE ON DATABASE idem_test_generator TO regress_idem_lord;
SELECT current_database() AS database \gset
\c idem_test_generator
SET client_min_messages = warning;
CREATE FUNCTION told(statement text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	hint text;
BEGIN
	EXECUTE statement;
	RETURN 'ok';
EXCEPTION WHEN OTHERS THEN
	GET STACKED DIAGNOSTICS hint = PG_EXCEPTION_HINT;
	RETURN concat_ws(' ', SQLSTATE, SQLERRM, nullif(hint <> '', false) AND SQLSTATE = '55000');
END
$$;
GRANT USAGE, CREATE ON SCHEMA public TO regress_idem_lord;

-- He installs both, and both schemas are his: so he may rename them, and take their names for his own
SET ROLE regress_idem_lord;
CREATE SCHEMA idem;
CREATE SCHEMA crypt;
CREATE EXTENSION pgcrypto SCHEMA crypt;
CREATE EXTENSION idem SCHEMA idem;
ALTER SCHEMA idem RENAME TO idem2;
ALTER SCHEMA crypt RENAME TO crypt2;
CREATE SCHEMA idem;
CREATE SCHEMA crypt;
CREATE FUNCTION public.trap() RETURNS text LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'trapped as %', current_user; END $$;
DO $$
DECLARE
	place text;
	trap text;
BEGIN
	FOREACH place IN ARRAY '{idem,idem2,crypt,crypt2,public,pg_temp}'::text[] LOOP
		FOREACH trap IN ARRAY ARRAY['gen_random_bytes(n int8) RETURNS bytea', 'gen_random_bytes(n numeric) RETURNS bytea', 'gen_random_bytes(n text) RETURNS bytea',
			'gen_random_bytes(n int4, m int4 DEFAULT 0) RETURNS bytea', 'gen_random_bytes(m text, VARIADIC n int4[]) RETURNS bytea', 'pg_random_bytes(n int4) RETURNS bytea',
			'gen_random_bytes() RETURNS bytea', 'idem_random_secret() RETURNS bytea', 'idem_put_secret(secret bytea, signing bool, verify_for interval) RETURNS text',
			'sha256(bytea) RETURNS bytea', 'encode(bytea, text) RETURNS text', 'clock_timestamp() RETURNS timestamptz'] LOOP
			EXECUTE format('CREATE FUNCTION %I.%s LANGUAGE plpgsql AS $f$ BEGIN PERFORM public.trap(); END $f$', place, trap);
		END LOOP;
		IF place <> 'crypt2' THEN
			EXECUTE format('CREATE FUNCTION %I.gen_random_bytes(n int4) RETURNS bytea LANGUAGE plpgsql AS $f$ BEGIN PERFORM public.trap(); END $f$', place);
		END IF;
		IF place <> 'idem2' THEN
			EXECUTE format('CREATE FUNCTION %I.idem_longest_retention() RETURNS interval LANGUAGE plpgsql AS $f$ BEGIN PERFORM public.trap(); END $f$', place);
			EXECUTE format('CREATE TABLE %I.idem_secret (LIKE idem2.idem_secrets)', place);
		END IF;
	END LOOP;
END
$$;
-- pgcrypto is his as well, and so he adds to it
ALTER EXTENSION pgcrypto ADD FUNCTION crypt.gen_random_bytes(int4);
ALTER EXTENSION pgcrypto ADD FUNCTION public.gen_random_bytes(int8);
ALTER EXTENSION pgcrypto ADD FUNCTION crypt2.pg_random_bytes(int4);
SET search_path = crypt, idem, crypt2, idem2, public, pg_catalog;
SELECT public.told('SELECT crypt.pg_random_bytes(32)') AS trap;
SELECT public.told('SELECT idem2.idem_rotate_secret()') AS rotate, public.told($$SELECT idem2.idem_import_secret('\x000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f', true)$$) AS import,
	public.told('SELECT idem2.idem_export_secret()') AS export, public.told($$SELECT idem2.idem_rotate_secret('1 year')$$) AS again, public.told($$SELECT idem2.idem_revoke_secret('f3bebd7d')$$) AS revoke;
RESET ROLE;
SELECT public.told('SELECT idem2.idem_rotate_secret()') AS superuser;
RESET search_path;
SELECT count(DISTINCT idem2.idem_export_secret(id)) AS secrets, count(*) FILTER (WHERE signing) AS signing, count(revoked_at) AS revoked FROM idem2.idem_secrets;

-- What he may do to the function itself, once a superuser has let him have it
ALTER FUNCTION crypt2.gen_random_bytes(int4) OWNER TO regress_idem_lord;
SET ROLE regress_idem_lord;
ALTER FUNCTION crypt2.gen_random_bytes(int4) SECURITY DEFINER;
SELECT told('SELECT idem2.idem_rotate_secret()') AS definer;
ALTER FUNCTION crypt2.gen_random_bytes(int4) SECURITY INVOKER SET search_path = public;
SELECT told('SELECT idem2.idem_rotate_secret()') AS setting;
ALTER FUNCTION crypt2.gen_random_bytes(int4) RESET ALL;
SELECT told('SELECT idem2.idem_rotate_secret()') AS restored;
ALTER FUNCTION crypt2.gen_random_bytes(int4) RENAME TO made;
SELECT told('SELECT idem2.idem_rotate_secret()') AS renamed;
ALTER FUNCTION crypt2.made(int4) RENAME TO gen_random_bytes;
ALTER EXTENSION pgcrypto DROP FUNCTION crypt2.gen_random_bytes(int4);
SELECT told('SELECT idem2.idem_rotate_secret()') AS taken_out;
ALTER EXTENSION pgcrypto ADD FUNCTION crypt2.gen_random_bytes(int4);
SELECT told('SELECT idem2.idem_rotate_secret()') AS put_back;
CREATE OR REPLACE FUNCTION crypt2.gen_random_bytes(int4) RETURNS bytea LANGUAGE plpgsql AS $$ BEGIN PERFORM public.trap(); END $$;
SELECT told('SELECT idem2.idem_rotate_secret()') AS replaced;
-- the rest needs no generator
SELECT told('SELECT idem2.idem_import_secret(pg_catalog.sha256(pg_catalog.convert_to(repeat(''s'', 3), ''UTF8'')), true)') AS import, octet_length(idem2.idem_export_secret());
RESET ROLE;
SELECT told('SELECT idem2.idem_rotate_secret()') AS superuser;

\c :database
SET client_min_messages = warning;
DROP DATABASE idem_test_generator;
DROP ROLE regress_idem_lord;
