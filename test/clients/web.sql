-- What a web server like PostgREST serves: a function that owns the right to use idem, and roles that have none. idem is
-- in the schema "idem", the tables are in "shop", and the functions that are served in "api"; nobody may create anything
-- in these but who owns them. What runs with its owner's rights looks there alone, and for temporary objects last: in
-- a schema where others create, public often is one, a name or a better match for a call could be theirs.
CREATE ROLE clients_owner;
CREATE ROLE clients_web LOGIN NOINHERIT;
CREATE ROLE clients_user;
CREATE ROLE clients_anon;
GRANT clients_user, clients_anon TO clients_web;
GRANT USAGE ON SCHEMA idem TO clients_owner;
DO $$ BEGIN PERFORM idem.idem_grant('clients_owner', 'caller'); END $$;

CREATE SCHEMA shop;
CREATE TABLE shop.web_order (idem_key uuid PRIMARY KEY, subject text, amount numeric);
GRANT USAGE ON SCHEMA shop TO clients_owner;
GRANT INSERT ON shop.web_order TO clients_owner;

CREATE SCHEMA api;
GRANT USAGE ON SCHEMA api TO clients_user, clients_anon, clients_owner;
GRANT CREATE ON SCHEMA api TO clients_owner;

-- POST /rpc/charge, the key of the operation in the header Idempotency-Key
SET ROLE clients_owner;
CREATE FUNCTION api.charge(params jsonb) RETURNS jsonb
	LANGUAGE plpgsql SECURITY DEFINER SET search_path = shop, idem, pg_temp AS $$
DECLARE
	subject text := current_setting('request.jwt.claims')::jsonb ->> 'sub';
	header text := current_setting('request.headers')::jsonb ->> 'idempotency-key';
	claim idem_claim;
	answer record;
BEGIN
	SELECT * INTO claim FROM idem_acquire_direct(subject, 'web charge', params, idem_http_key(header), '5 s');
	IF claim.outcome = 'ACQUIRED' THEN
		INSERT INTO web_order VALUES (claim.key, subject, (params ->> 'amount')::numeric);
		claim.result := jsonb_build_object('charged', params -> 'amount');
		IF idem_commit(claim.key, claim.owner, claim.result) <> 'OK' THEN
			RAISE 'the claim was lost' USING ERRCODE = 'serialization_failure';
		END IF;
		claim.outcome := 'DONE';
	END IF;
	SELECT * INTO answer FROM idem_http(claim);
	PERFORM set_config('response.status', answer.status::text, true),
		set_config('response.headers', answer.headers::text, true);
	RETURN answer.body;
END
$$;
REVOKE ALL ON FUNCTION api.charge FROM PUBLIC;
GRANT EXECUTE ON FUNCTION api.charge TO clients_user;
RESET ROLE;
REVOKE CREATE ON SCHEMA api FROM clients_owner;
