CREATE EXTENSION pgcrypto;

CREATE EXTENSION idem;

CREATE PROCEDURE idem_fuzz(target text, VARIADIC words text[]) LANGUAGE C AS 'idem', 'idem_fuzz';

DO $$ BEGIN
	PERFORM idem_import_secret('\x000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f', true);
END $$;

INSERT INTO idem_policy (scope, material) VALUES ('listed', '{/amount,/payee}'), ('charge', '{/amount,/currency,/payee}');

INSERT INTO idem_policy (scope, downstream) VALUES ('local', 'local'), ('idempotent', 'idempotent'), ('queryable', 'queryable');

INSERT INTO idem_policy (scope, repeat_guard) VALUES ('guarded', '1 hour');

INSERT INTO idem_policy (scope, enabled) VALUES ('off', false);

INSERT INTO idem_policy (scope, entry) VALUES ('direct', 'direct'), ('signed', 'fingerprint');

CREATE FUNCTION fuzz_echo(jsonb) RETURNS jsonb LANGUAGE sql AS 'SELECT $1';

CREATE FUNCTION fuzz_nothing(jsonb) RETURNS jsonb LANGUAGE sql AS 'SELECT NULL::jsonb';

CREATE FUNCTION fuzz_fail(jsonb) RETURNS jsonb LANGUAGE plpgsql AS 'BEGIN RAISE EXCEPTION ''no''; END';

CREATE FUNCTION fuzz_nested(jsonb) RETURNS jsonb LANGUAGE sql AS
'SELECT to_jsonb(outcome) FROM idem_execute(''alice'', ''plain'', $1, ''fuzz_echo(jsonb)'')';

CREATE TABLE fuzz_guarded (key uuid);

CREATE TRIGGER guarded BEFORE INSERT ON fuzz_guarded FOR EACH ROW EXECUTE FUNCTION idem_require('plain', 'key');

CREATE TABLE fuzz_genuine (token text);


