-- The database under test: the scopes, and rows of the callers' own.
SET client_min_messages = warning;
CREATE EXTENSION idem CASCADE;
CREATE EXTENSION amcheck;
CREATE SCHEMA torture;

-- Leases are short, so that takeovers and unknown outcomes are everyday matters.
INSERT INTO idem_policy (scope, downstream, fingerprint_ttl, downstream_max, gateway_timeout, retry_backoff, in_flight_ttl, repeat_guard)
	SELECT s.scope, s.downstream, '15 min', '0.2 s', '0.2 s', '0.2 s', '1.5 s', s.guard::interval
	FROM (VALUES ('opaque', 'opaque', NULL), ('queryable', 'queryable', NULL), ('idempotent', 'idempotent', NULL),
		('guarded', 'opaque', '10 h'), ('local', 'local', NULL), ('async', 'local', NULL)) AS s (scope, downstream, guard);
INSERT INTO idem_policy (scope, downstream, fingerprint_ttl, downstream_max, gateway_timeout, retry_backoff, in_flight_ttl,
		caller_retry_window, result_ttl)
	VALUES ('brief', 'local', '2 s', '0.2 s', '0.2 s', '0.2 s', '1.5 s', '1 s', '2 s');

-- No constraint keeps the rows apart: that is what idem is for.
CREATE TABLE torture.ledger (op bigint NOT NULL, token text NOT NULL);
CREATE INDEX ON torture.ledger (op);

CREATE FUNCTION torture.charge(params jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
	token text := 'x' || gen_random_uuid();
BEGIN
	INSERT INTO torture.ledger VALUES ((params ->> 'op')::bigint, token);
	RETURN jsonb_build_object('token', token);
END $$;
