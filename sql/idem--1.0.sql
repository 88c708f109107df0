/* idem 1.0 */

-- complain if the script is sourced in psql, rather than via CREATE EXTENSION
\echo Use "CREATE EXTENSION idem" to load this file. \quit

-- Every name is qualified, every operator is pg_catalog's: nothing here depends on the search path.
SET LOCAL search_path = pg_catalog, pg_temp;

DO $$
BEGIN
	IF pg_catalog.getdatabaseencoding() OPERATOR(pg_catalog.<>) 'UTF8' THEN
		RAISE EXCEPTION 'idem needs a database with encoding UTF8'
			USING ERRCODE = 'feature_not_supported',
				  HINT = 'Keys and fingerprints are computed over UTF-8 bytes. Create the database with ENCODING ''UTF8''.';
	END IF;
END
$$;


-- ---------------------------------------------------------------------------------------------------------
-- Types
-- ---------------------------------------------------------------------------------------------------------

CREATE TYPE @extschema@.idem_outcome AS ENUM (
	'ACQUIRED', 'IN_FLIGHT', 'DONE', 'FAILED', 'RECONCILE',
	'PARAM_MISMATCH', 'SUBJECT_MISMATCH', 'SCOPE_MISMATCH', 'EXPIRED', 'INVALID', 'REPEAT',
	'NONE', 'UNKNOWN', 'RETRYABLE'
);
COMMENT ON TYPE @extschema@.idem_outcome IS 'what an acquire or a status found';

CREATE TYPE @extschema@.idem_ack AS ENUM ('OK', 'NOT_OWNER', 'ALREADY', 'NONE');
COMMENT ON TYPE @extschema@.idem_ack IS
	'what became of a commit, fail, release, renew or reconcile; unless it is OK, roll your own rows back';

CREATE TYPE @extschema@.idem_claim AS (
	outcome          @extschema@.idem_outcome,
	key              pg_catalog.uuid,
	owner            pg_catalog.uuid,
	attempt          pg_catalog.int4,
	replayed         pg_catalog.bool,
	joined           pg_catalog.bool,
	scope            pg_catalog.text,
	subject          pg_catalog.text,
	result           pg_catalog.jsonb,
	result_ref       pg_catalog.text,
	lease_until      pg_catalog.timestamptz,
	finished_at      pg_catalog.timestamptz,
	retained_until   pg_catalog.timestamptz,
	trace_id         pg_catalog.text
);
COMMENT ON TYPE @extschema@.idem_claim IS 'an outcome and what goes with it';


-- ---------------------------------------------------------------------------------------------------------
-- Policies and secrets
-- ---------------------------------------------------------------------------------------------------------


-- ---------------------------------------------------------------------------------------------------------
-- Claims
-- ---------------------------------------------------------------------------------------------------------

-- The columns that both tables share come first, in the same places, so that one piece of code reads and
-- writes a row of either.
CREATE TABLE @extschema@.idem_record (
	key              pg_catalog.uuid NOT NULL,
	acquired_at      pg_catalog.timestamptz NOT NULL,
	lease_until      pg_catalog.timestamptz NOT NULL,
	policy_version   pg_catalog.int4 NOT NULL,
	attempt          pg_catalog.int4 NOT NULL,
	state            pg_catalog."char" NOT NULL,
	downstream       pg_catalog."char" NOT NULL,
	param_hash       pg_catalog.bytea NOT NULL,
	owner_hash       pg_catalog.bytea NOT NULL,
	scope            pg_catalog.text COLLATE pg_catalog."C" NOT NULL,
	subject          pg_catalog.text COLLATE pg_catalog."C" NOT NULL,
	expires_at       pg_catalog.timestamptz,
	operation        pg_catalog.uuid,
	holder           pg_catalog.text COLLATE pg_catalog."C",
	trace_id         pg_catalog.text COLLATE pg_catalog."C",
	retained_until   pg_catalog.timestamptz NOT NULL,
	finished_at      pg_catalog.timestamptz,
	result           pg_catalog.jsonb,
	result_ref       pg_catalog.text COLLATE pg_catalog."C",
	CONSTRAINT idem_record_pkey PRIMARY KEY (key),
	CONSTRAINT idem_record_state CHECK (state IN ('I', 'D', 'F', 'R')),
	CONSTRAINT idem_record_downstream CHECK (downstream IN ('o', 'q', 'i', 'l')),
	CONSTRAINT idem_record_attempt CHECK (attempt > 0),
	CONSTRAINT idem_record_hashes CHECK (pg_catalog.octet_length(param_hash) = 32 AND pg_catalog.octet_length(owner_hash) = 32),
	CONSTRAINT idem_record_finite CHECK (pg_catalog.isfinite(lease_until) AND pg_catalog.isfinite(acquired_at)),
	CONSTRAINT idem_record_retention CHECK ((state = 'I') = (retained_until = 'infinity')),
	CONSTRAINT idem_record_finished CHECK ((state = 'I') = (finished_at IS NULL))
) USING heap;
CREATE INDEX idem_record_retained_until ON @extschema@.idem_record (retained_until);

CREATE UNLOGGED TABLE @extschema@.idem_fast (
	key              pg_catalog.uuid NOT NULL,
	acquired_at      pg_catalog.timestamptz NOT NULL,
	lease_until      pg_catalog.timestamptz NOT NULL,
	policy_version   pg_catalog.int4 NOT NULL,
	attempt          pg_catalog.int4 NOT NULL,
	state            pg_catalog."char" NOT NULL,
	downstream       pg_catalog."char" NOT NULL,
	param_hash       pg_catalog.bytea NOT NULL,
	owner_hash       pg_catalog.bytea NOT NULL,
	scope            pg_catalog.text COLLATE pg_catalog."C" NOT NULL,
	subject          pg_catalog.text COLLATE pg_catalog."C" NOT NULL,
	expires_at       pg_catalog.timestamptz,
	operation        pg_catalog.uuid,
	holder           pg_catalog.text COLLATE pg_catalog."C",
	trace_id         pg_catalog.text COLLATE pg_catalog."C",
	CONSTRAINT idem_fast_pkey PRIMARY KEY (key)
) USING heap;

CREATE TABLE @extschema@.idem_alert (
	key              pg_catalog.uuid NOT NULL,
	kind             pg_catalog.text COLLATE pg_catalog."C" NOT NULL,
	count            pg_catalog.int8 NOT NULL,
	first_at         pg_catalog.timestamptz NOT NULL,
	last_at          pg_catalog.timestamptz NOT NULL,
	role             pg_catalog.text NOT NULL,
	scope            pg_catalog.text COLLATE pg_catalog."C",
	subject          pg_catalog.text COLLATE pg_catalog."C",
	detail           pg_catalog.jsonb,
	CONSTRAINT idem_alert_pkey PRIMARY KEY (key, kind)
) USING heap;


-- ---------------------------------------------------------------------------------------------------------
-- Functions
-- ---------------------------------------------------------------------------------------------------------

-- Signing and reading fingerprints, and the pure functions that all else is made of (src/sign.c)

CREATE FUNCTION @extschema@.idem_sign(
	subject          pg_catalog.text,
	scope            pg_catalog.text,
	params           pg_catalog.jsonb,
	not_after        pg_catalog.timestamptz DEFAULT NULL,
	confirm_repeat   pg_catalog.bool DEFAULT false
) RETURNS pg_catalog.text
	LANGUAGE C VOLATILE CALLED ON NULL INPUT PARALLEL UNSAFE
	AS 'MODULE_PATHNAME', 'idem_sign';
COMMENT ON FUNCTION @extschema@.idem_sign(pg_catalog.text, pg_catalog.text, pg_catalog.jsonb, pg_catalog.timestamptz, pg_catalog.bool) IS
	'sign a fingerprint for one operation; writes nothing';
REVOKE ALL ON FUNCTION @extschema@.idem_sign(pg_catalog.text, pg_catalog.text, pg_catalog.jsonb, pg_catalog.timestamptz, pg_catalog.bool) FROM PUBLIC;

CREATE FUNCTION @extschema@.idem_inspect(
	fingerprint          pg_catalog.text,
	OUT valid            pg_catalog.bool,
	OUT key              pg_catalog.uuid,
	OUT expires_at       pg_catalog.timestamptz,
	OUT subject          pg_catalog.text,
	OUT scope            pg_catalog.text,
	OUT param_hash       pg_catalog.bytea,
	OUT version          pg_catalog.int4,
	OUT confirmed_repeat pg_catalog.bool
) RETURNS record
	LANGUAGE C STABLE CALLED ON NULL INPUT PARALLEL UNSAFE
	AS 'MODULE_PATHNAME', 'idem_inspect';
COMMENT ON FUNCTION @extschema@.idem_inspect(pg_catalog.text) IS
	'what a fingerprint says; valid: signed by a secret that verifies now, even if its time is past';
REVOKE ALL ON FUNCTION @extschema@.idem_inspect(pg_catalog.text) FROM PUBLIC;

CREATE FUNCTION @extschema@.idem_canonical(
	scope            pg_catalog.text,
	params           pg_catalog.jsonb
) RETURNS pg_catalog.text
	LANGUAGE C STABLE CALLED ON NULL INPUT PARALLEL UNSAFE
	AS 'MODULE_PATHNAME', 'idem_canonical';
COMMENT ON FUNCTION @extschema@.idem_canonical(pg_catalog.text, pg_catalog.jsonb) IS
	'the canonical bytes of what is material in the parameters; of everything where the scope is null';
REVOKE ALL ON FUNCTION @extschema@.idem_canonical(pg_catalog.text, pg_catalog.jsonb) FROM PUBLIC;

CREATE FUNCTION @extschema@.idem_param_hash(
	scope            pg_catalog.text,
	params           pg_catalog.jsonb
) RETURNS pg_catalog.bytea
	LANGUAGE C STABLE CALLED ON NULL INPUT PARALLEL UNSAFE
	AS 'MODULE_PATHNAME', 'idem_param_hash';
COMMENT ON FUNCTION @extschema@.idem_param_hash(pg_catalog.text, pg_catalog.jsonb) IS
	'SHA-256 of what idem_canonical returns';
REVOKE ALL ON FUNCTION @extschema@.idem_param_hash(pg_catalog.text, pg_catalog.jsonb) FROM PUBLIC;

CREATE FUNCTION @extschema@.idem_key(
	subject          pg_catalog.text,
	scope            pg_catalog.text,
	params           pg_catalog.jsonb,
	client_key       pg_catalog.text DEFAULT NULL
) RETURNS pg_catalog.uuid
	LANGUAGE C STABLE CALLED ON NULL INPUT PARALLEL UNSAFE
	AS 'MODULE_PATHNAME', 'idem_key';
COMMENT ON FUNCTION @extschema@.idem_key(pg_catalog.text, pg_catalog.text, pg_catalog.jsonb, pg_catalog.text) IS
	'the key of a direct call, by its client key or else by what is material in its parameters';
REVOKE ALL ON FUNCTION @extschema@.idem_key(pg_catalog.text, pg_catalog.text, pg_catalog.jsonb, pg_catalog.text) FROM PUBLIC;

CREATE FUNCTION @extschema@.idem_downstream_key(
	key              pg_catalog.uuid,
	step             pg_catalog.text
) RETURNS pg_catalog.uuid
	LANGUAGE C IMMUTABLE CALLED ON NULL INPUT PARALLEL SAFE
	AS 'MODULE_PATHNAME', 'idem_downstream_key';
COMMENT ON FUNCTION @extschema@.idem_downstream_key(pg_catalog.uuid, pg_catalog.text) IS
	'the key for one step of an operation that sends several requests downstream';
REVOKE ALL ON FUNCTION @extschema@.idem_downstream_key(pg_catalog.uuid, pg_catalog.text) FROM PUBLIC;


-- ---------------------------------------------------------------------------------------------------------
-- Privileges
-- ---------------------------------------------------------------------------------------------------------

