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


-- ---------------------------------------------------------------------------------------------------------
-- Privileges
-- ---------------------------------------------------------------------------------------------------------

