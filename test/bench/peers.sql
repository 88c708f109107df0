-- peers.sql: what one would write without idem, for the benchmarks.
--
-- peer_*: idem's main promises by hand, in PL/pgSQL: signed fingerprints bound to subject, scope and parameters, four
-- states, leases, owners known by their hash, results kept. It leaves out what a first version would: exact canonical
-- numbers, material lists, secrets that rotate, joining, alerts, savepoints and isolation levels thought through.
--
-- two_state: INSERT .. ON CONFLICT DO NOTHING, as most people begin.

CREATE TABLE peer_secret (secret bytea NOT NULL);
INSERT INTO peer_secret VALUES (gen_random_bytes(32));

CREATE TYPE peer_state AS ENUM ('IN_FLIGHT', 'DONE', 'FAILED', 'RELEASED');

CREATE TABLE peer_operation (
	key            uuid PRIMARY KEY,
	scope          text NOT NULL,
	subject        text NOT NULL,
	param_hash     bytea NOT NULL,
	state          peer_state NOT NULL,
	attempt        int NOT NULL,
	owner_hash     bytea NOT NULL,
	acquired_at    timestamptz NOT NULL,
	lease_until    timestamptz NOT NULL,
	expires_at     timestamptz NOT NULL,
	finished_at    timestamptz,
	retained_until timestamptz NOT NULL,
	result         jsonb
);
CREATE INDEX ON peer_operation (retained_until);

CREATE TYPE peer_claim AS (outcome text, key uuid, owner uuid, attempt int, replayed boolean, scope text, subject text,
	result jsonb, lease_until timestamptz, finished_at timestamptz, retained_until timestamptz);

CREATE FUNCTION peer_encode(bytes bytea) RETURNS text LANGUAGE sql IMMUTABLE STRICT AS
	$$SELECT rtrim(translate(encode(bytes, 'base64'), E'+/\n', '-_'), '=')$$;

CREATE FUNCTION peer_decode(code text) RETURNS bytea LANGUAGE sql IMMUTABLE STRICT AS
	$$SELECT decode(rpad(translate(code, '-_', '+/'), (length(code) + 3) / 4 * 4, '='), 'base64')$$;

CREATE FUNCTION peer_hash(params jsonb) RETURNS bytea LANGUAGE sql IMMUTABLE STRICT AS
	$$SELECT sha256(convert_to(jsonb_strip_nulls(params)::text, 'UTF8'))$$;

CREATE FUNCTION peer_sign(subject text, scope text, params jsonb, ttl interval DEFAULT '15 minutes') RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	body text := peer_encode(convert_to(jsonb_build_object('n', gen_random_uuid(), 'u', subject, 's', scope,
		'exp', extract(epoch FROM clock_timestamp() + ttl)::int8, 'p', peer_encode(peer_hash(params)))::text, 'UTF8'));
BEGIN
	RETURN body || '.' || peer_encode((SELECT hmac(body::bytea, s.secret, 'sha256') FROM peer_secret AS s));
END $$;

CREATE FUNCTION peer_acquire(token text, subject text, scope text, params jsonb, owner uuid DEFAULT gen_random_uuid())
	RETURNS peer_claim LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
	body text := split_part(token, '.', 1);
	said jsonb;
	hash bytea;
	op peer_operation;
	answer peer_claim;
BEGIN
	answer.scope := peer_acquire.scope;
	answer.subject := peer_acquire.subject;
	IF token IS NULL OR token !~ '^[A-Za-z0-9_-]+\.[A-Za-z0-9_-]{43}$' OR
		(SELECT hmac(body::bytea, s.secret, 'sha256') FROM peer_secret AS s) <> peer_decode(split_part(token, '.', 2)) THEN
		answer.outcome := 'INVALID';
		RETURN answer;
	END IF;
	said := convert_from(peer_decode(body), 'UTF8')::jsonb;
	hash := peer_hash(params);
	answer.outcome := CASE
		WHEN said->>'u' <> peer_acquire.subject THEN 'SUBJECT_MISMATCH'
		WHEN said->>'s' <> peer_acquire.scope THEN 'SCOPE_MISMATCH'
		WHEN peer_decode(said->>'p') <> hash THEN 'PARAM_MISMATCH' END;
	IF answer.outcome IS NOT NULL THEN
		RETURN answer;
	END IF;
	answer.key := (said->>'n')::uuid;
	LOOP
		SELECT * INTO op FROM peer_operation AS o WHERE o.key = answer.key;
		IF FOUND AND op.state = 'RELEASED' THEN
			SELECT * INTO op FROM peer_operation AS o WHERE o.key = answer.key AND o.state = 'RELEASED' FOR UPDATE;
			CONTINUE WHEN NOT FOUND;
			UPDATE peer_operation AS o SET state = 'IN_FLIGHT', attempt = o.attempt + 1, owner_hash = sha256(uuid_send(peer_acquire.owner)),
					acquired_at = clock_timestamp(), lease_until = clock_timestamp() + interval '5 minutes',
					finished_at = NULL, retained_until = 'infinity', result = NULL
				WHERE o.key = answer.key RETURNING * INTO op;
			answer.outcome := 'ACQUIRED';
			EXIT;
		ELSIF FOUND THEN
			answer.outcome := CASE WHEN op.state = 'IN_FLIGHT' AND op.lease_until <= clock_timestamp() THEN 'RECONCILE' ELSE op.state::text END;
			EXIT;
		ELSIF to_timestamp((said->>'exp')::int8) <= clock_timestamp() THEN
			answer.outcome := 'EXPIRED';
			RETURN answer;
		END IF;
		INSERT INTO peer_operation VALUES (answer.key, peer_acquire.scope, peer_acquire.subject, hash, 'IN_FLIGHT', 1,
				sha256(uuid_send(peer_acquire.owner)), clock_timestamp(), clock_timestamp() + interval '5 minutes',
				to_timestamp((said->>'exp')::int8), NULL, 'infinity', NULL)
			ON CONFLICT DO NOTHING RETURNING * INTO op;
		IF FOUND THEN
			answer.outcome := 'ACQUIRED';
			EXIT;
		END IF;
	END LOOP;
	answer.owner := CASE WHEN answer.outcome = 'ACQUIRED' THEN peer_acquire.owner END;
	answer.attempt := op.attempt;
	answer.replayed := op.state IN ('DONE', 'FAILED');
	answer.result := op.result;
	answer.lease_until := op.lease_until;
	answer.finished_at := op.finished_at;
	answer.retained_until := op.retained_until;
	RETURN answer;
END $$;

-- RELEASED: the next acquire makes another attempt.
CREATE FUNCTION peer_commit(key uuid, owner uuid, result jsonb, state peer_state DEFAULT 'DONE') RETURNS text LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
	op peer_operation;
BEGIN
	UPDATE peer_operation AS o SET state = peer_commit.state, result = peer_commit.result, finished_at = clock_timestamp(),
			retained_until = greatest(clock_timestamp() + interval '24 hours', o.expires_at)
		WHERE o.key = peer_commit.key AND o.state = 'IN_FLIGHT' AND o.owner_hash = sha256(uuid_send(peer_commit.owner));
	IF FOUND THEN
		RETURN 'OK';
	END IF;
	SELECT * INTO op FROM peer_operation AS o WHERE o.key = peer_commit.key;
	IF NOT FOUND THEN
		RETURN 'NONE';
	END IF;
	RETURN CASE
		WHEN op.owner_hash <> sha256(uuid_send(peer_commit.owner)) OR op.state = 'RELEASED' THEN 'NOT_OWNER'
		WHEN op.state = peer_commit.state AND op.result IS NOT DISTINCT FROM peer_commit.result THEN 'OK'
		ELSE 'ALREADY' END;
END $$;

CREATE TABLE two_state (key text PRIMARY KEY, created_at timestamptz NOT NULL DEFAULT clock_timestamp(), result jsonb);
