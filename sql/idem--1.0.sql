/* idem 1.0 */

-- complain if the script is sourced in psql, rather than via CREATE EXTENSION
\echo Use "CREATE EXTENSION idem" to load this file. \quit

-- Names without a schema are pg_catalog's.  All of this text is parsed before its first statement runs, so that no
-- SET in it decides how literals are read: there is no backslash in them.
SET LOCAL search_path = pg_catalog, pg_temp;

-- The schema is a name in this script. Its row is locked to the end, so that the name cannot pass to another one on
-- the way: what is called by it here is what was made here.
DO $$
BEGIN
	PERFORM FROM pg_extension AS e JOIN pg_namespace AS n ON n.oid = e.extnamespace
		WHERE e.extname = 'idem' AND quote_ident(n.nspname) = '@extschema@'
		FOR UPDATE OF n;
	IF NOT FOUND THEN
		RAISE EXCEPTION 'the schema of extension idem was renamed meanwhile'
			USING ERRCODE = 'object_not_in_prerequisite_state', HINT = 'Try again.';
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

-- What this script, and the objects that it makes, call takes an argument of a type that it made, and is called with a
-- null of it: nobody can have put a function there before that the call fits as well.
CREATE FUNCTION @extschema@._idem_require_utf8(@extschema@.idem_ack) RETURNS void
	LANGUAGE C STABLE PARALLEL SAFE
	AS 'MODULE_PATHNAME', 'idem_require_utf8';
COMMENT ON FUNCTION @extschema@._idem_require_utf8(@extschema@.idem_ack) IS 'internal: refuse a database of another encoding';
SELECT @extschema@._idem_require_utf8(NULL::@extschema@.idem_ack);

CREATE TYPE @extschema@.idem_claim AS (
	outcome          @extschema@.idem_outcome,
	key              uuid,
	owner            uuid,
	attempt          int4,
	replayed         bool,
	joined           bool,
	scope            text,
	subject          text,
	result           jsonb,
	result_ref       text,
	lease_until      timestamptz,
	finished_at      timestamptz,
	retained_until   timestamptz,
	trace_id         text
);
COMMENT ON TYPE @extschema@.idem_claim IS 'an outcome and what goes with it';


-- ---------------------------------------------------------------------------------------------------------
-- Policies and secrets
-- ---------------------------------------------------------------------------------------------------------

-- What the caches and the history of policies rest on (src/policy.c)

CREATE FUNCTION @extschema@._idem_stale() RETURNS trigger
	LANGUAGE C VOLATILE PARALLEL UNSAFE
	AS 'MODULE_PATHNAME', 'idem_stale';
COMMENT ON FUNCTION @extschema@._idem_stale() IS
	'trigger: tell every session that policies, secrets or bindings have changed';

CREATE FUNCTION @extschema@.idem_list_version(
	material         text[],
	immaterial       text[]
) RETURNS int4
	LANGUAGE C IMMUTABLE CALLED ON NULL INPUT PARALLEL SAFE
	AS 'MODULE_PATHNAME', 'idem_list_version';
COMMENT ON FUNCTION @extschema@.idem_list_version(text[], text[]) IS
	'the version of two pointer lists, 0 where both are null; refuses pointers that do not do';

CREATE FUNCTION @extschema@.idem_longest_retention() RETURNS interval
	LANGUAGE C VOLATILE PARALLEL UNSAFE
	AS 'MODULE_PATHNAME', 'idem_longest_retention';
COMMENT ON FUNCTION @extschema@.idem_longest_retention() IS
	'how long, at most, a fingerprint signed now may be asked about under any policy';

CREATE TABLE @extschema@.idem_policy (
	scope                text COLLATE "C" NOT NULL,
	material             text[] COLLATE "C",
	immaterial           text[] COLLATE "C",
	entry                text COLLATE "C" NOT NULL DEFAULT 'any',
	downstream           text COLLATE "C" NOT NULL DEFAULT 'opaque',
	fingerprint_ttl      interval NOT NULL DEFAULT '15 minutes',
	downstream_max       interval NOT NULL DEFAULT '30 seconds',
	gateway_timeout      interval NOT NULL DEFAULT '30 seconds',
	retry_backoff        interval NOT NULL DEFAULT '2 minutes',
	in_flight_ttl        interval NOT NULL DEFAULT '5 minutes',
	caller_retry_window  interval NOT NULL DEFAULT '1 hour',
	result_ttl           interval NOT NULL DEFAULT '24 hours',
	repeat_guard         interval,
	confirm_with         text COLLATE "C",
	poll_with            text COLLATE "C",
	poll_after           interval NOT NULL DEFAULT '2 seconds',
	enabled              bool NOT NULL DEFAULT true,
	CONSTRAINT idem_policy_pkey PRIMARY KEY (scope),
	CONSTRAINT idem_policy_scope CHECK (octet_length(scope) BETWEEN 1 AND 255),
	CONSTRAINT idem_policy_material CHECK (cardinality(material) > 0),
	CONSTRAINT idem_policy_immaterial CHECK (cardinality(immaterial) > 0),
	CONSTRAINT idem_policy_entry CHECK (entry IN ('any', 'fingerprint', 'direct')),
	CONSTRAINT idem_policy_downstream CHECK (downstream IN ('opaque', 'queryable', 'idempotent', 'local')),
	CONSTRAINT idem_policy_fingerprint_ttl CHECK (fingerprint_ttl > '0' AND fingerprint_ttl <= '100 years'),
	CONSTRAINT idem_policy_downstream_max CHECK (downstream_max > '0' AND downstream_max <= '100 years'),
	CONSTRAINT idem_policy_gateway_timeout CHECK (gateway_timeout > '0' AND gateway_timeout <= '100 years'),
	CONSTRAINT idem_policy_retry_backoff CHECK (retry_backoff > '0' AND retry_backoff <= '100 years'),
	CONSTRAINT idem_policy_in_flight_ttl CHECK (in_flight_ttl > '0' AND in_flight_ttl <= '100 years'),
	CONSTRAINT idem_policy_caller_retry_window CHECK (caller_retry_window > '0' AND caller_retry_window <= '100 years'),
	CONSTRAINT idem_policy_result_ttl CHECK (result_ttl > '0' AND result_ttl <= '100 years'),
	-- every session keeps the policies in memory
	CONSTRAINT idem_policy_confirm_with CHECK (octet_length(confirm_with) BETWEEN 1 AND 255),
	CONSTRAINT idem_policy_poll_with CHECK (octet_length(poll_with) BETWEEN 1 AND 255),
	CONSTRAINT idem_policy_repeat_guard CHECK (repeat_guard > '0' AND repeat_guard <= '100 years'),
	CONSTRAINT idem_policy_poll_after CHECK (poll_after > '0' AND poll_after <= '100 years'),
	-- a retry of ours must not meet an operation that the downstream may still be working on
	CONSTRAINT idem_policy_lease CHECK (in_flight_ttl > downstream_max + gateway_timeout + retry_backoff),
	-- a caller that still retries must still find the result
	CONSTRAINT idem_policy_retention CHECK (result_ttl >= caller_retry_window)
) USING heap;
COMMENT ON TABLE @extschema@.idem_policy IS
	'how the operations of a scope are treated; the row ''*'' holds for scopes without a row of their own';
COMMENT ON COLUMN @extschema@.idem_policy.scope IS 'the tool or operation, or ''*''';
COMMENT ON COLUMN @extschema@.idem_policy.material IS
	'JSON Pointers to what the operation is bound to, ''*'' for every element of an array; null: everything';
COMMENT ON COLUMN @extschema@.idem_policy.immaterial IS 'JSON Pointers to what is left out of that; null: nothing';
COMMENT ON COLUMN @extschema@.idem_policy.entry IS 'by which door operations come in: any, fingerprint, direct';
COMMENT ON COLUMN @extschema@.idem_policy.downstream IS
	'what the receiver of the effect can do: opaque (nothing), queryable (tell what became of a key), idempotent (deduplicate on our key), local (rows in this database)';
COMMENT ON COLUMN @extschema@.idem_policy.fingerprint_ttl IS 'how long after its preview an operation may start';
COMMENT ON COLUMN @extschema@.idem_policy.downstream_max IS 'the longest that the receiver works on one request';
COMMENT ON COLUMN @extschema@.idem_policy.gateway_timeout IS 'the longest that a request waits on its way';
COMMENT ON COLUMN @extschema@.idem_policy.retry_backoff IS 'the longest that the holder waits between its own retries';
COMMENT ON COLUMN @extschema@.idem_policy.in_flight_ttl IS
	'the lease of a claim; longer than downstream_max, gateway_timeout and retry_backoff together';
COMMENT ON COLUMN @extschema@.idem_policy.caller_retry_window IS 'how long callers may go on retrying';
COMMENT ON COLUMN @extschema@.idem_policy.result_ttl IS 'how long a result is kept; at least caller_retry_window';
COMMENT ON COLUMN @extschema@.idem_policy.repeat_guard IS
	'within this time an equal operation under another fingerprint or key is taken for a repeat; null: never';
COMMENT ON COLUMN @extschema@.idem_policy.confirm_with IS 'the name of the tool that confirms, for replies; null: not said';
COMMENT ON COLUMN @extschema@.idem_policy.poll_with IS 'the name of the tool that asks for the outcome, for replies; null: not said';
COMMENT ON COLUMN @extschema@.idem_policy.poll_after IS 'how long to wait before asking again';
COMMENT ON COLUMN @extschema@.idem_policy.enabled IS
	'false: no new operations; in the row ''*'': none in scopes without a row of their own';

CREATE TABLE @extschema@.idem_policy_version (
	scope                text COLLATE "C" NOT NULL,
	version              int4 NOT NULL,
	material             text[] COLLATE "C",
	immaterial           text[] COLLATE "C",
	since                timestamptz NOT NULL DEFAULT clock_timestamp(),
	replaced_at          timestamptz,
	result_ttl           interval NOT NULL DEFAULT '24 hours',
	CONSTRAINT idem_policy_version_pkey PRIMARY KEY (scope, version),
	CONSTRAINT idem_policy_version_version CHECK (version >= 0)
) USING heap;
CREATE INDEX idem_policy_version_number ON @extschema@.idem_policy_version (version);
COMMENT ON TABLE @extschema@.idem_policy_version IS
	'every pair of lists ever in force for a scope: fingerprints signed under them are judged by them. Kept by triggers on idem_policy';
COMMENT ON COLUMN @extschema@.idem_policy_version.scope IS 'the scope, or ''*''';
COMMENT ON COLUMN @extschema@.idem_policy_version.version IS 'the version of the lists, by idem_list_version; 0: everything is material';
COMMENT ON COLUMN @extschema@.idem_policy_version.material IS 'as in idem_policy, sorted, without duplicates';
COMMENT ON COLUMN @extschema@.idem_policy_version.immaterial IS 'as in idem_policy, sorted, without duplicates';
COMMENT ON COLUMN @extschema@.idem_policy_version.since IS 'since when the lists are on record';
COMMENT ON COLUMN @extschema@.idem_policy_version.replaced_at IS 'when other lists last took their place; null: in force';
COMMENT ON COLUMN @extschema@.idem_policy_version.result_ttl IS 'the longest result_ttl of the scope while they were in force';

-- Both triggers serve their own table only (src/history.c), and need no rights: changing a policy needs no privilege on
-- its history.

CREATE FUNCTION @extschema@._idem_version_merge() RETURNS trigger
	LANGUAGE C VOLATILE PARALLEL UNSAFE
	AS 'MODULE_PATHNAME', 'idem_version_merge';
COMMENT ON FUNCTION @extschema@._idem_version_merge() IS
	'trigger: check a row of idem_policy_version, and merge it with one that is there already';

CREATE FUNCTION @extschema@._idem_policy_history() RETURNS trigger
	LANGUAGE C VOLATILE PARALLEL UNSAFE
	AS 'MODULE_PATHNAME', 'idem_policy_history';
COMMENT ON FUNCTION @extschema@._idem_policy_history() IS
	'trigger: keep on record which lists are and were in force for a scope';

-- ALWAYS: a restore, or a subscription that applies changes, must not leave the history or a cache behind.
-- Triggers fire in the order of their names.

CREATE TRIGGER idem_a_stale BEFORE INSERT OR UPDATE OR DELETE ON @extschema@.idem_policy
	FOR EACH ROW EXECUTE FUNCTION @extschema@._idem_stale();
CREATE TRIGGER idem_b_history AFTER INSERT OR UPDATE OR DELETE ON @extschema@.idem_policy
	FOR EACH ROW EXECUTE FUNCTION @extschema@._idem_policy_history();
CREATE TRIGGER idem_b_history_truncate AFTER TRUNCATE ON @extschema@.idem_policy
	FOR EACH STATEMENT EXECUTE FUNCTION @extschema@._idem_policy_history();
CREATE TRIGGER idem_c_stale AFTER INSERT OR UPDATE OR DELETE ON @extschema@.idem_policy
	FOR EACH ROW EXECUTE FUNCTION @extschema@._idem_stale();
CREATE TRIGGER idem_c_stale_truncate AFTER TRUNCATE ON @extschema@.idem_policy
	FOR EACH STATEMENT EXECUTE FUNCTION @extschema@._idem_stale();
ALTER TABLE @extschema@.idem_policy
	ENABLE ALWAYS TRIGGER idem_a_stale,
	ENABLE ALWAYS TRIGGER idem_b_history,
	ENABLE ALWAYS TRIGGER idem_b_history_truncate,
	ENABLE ALWAYS TRIGGER idem_c_stale,
	ENABLE ALWAYS TRIGGER idem_c_stale_truncate;

CREATE TRIGGER idem_a_stale BEFORE INSERT OR UPDATE OR DELETE ON @extschema@.idem_policy_version
	FOR EACH ROW EXECUTE FUNCTION @extschema@._idem_stale();
CREATE TRIGGER idem_b_merge BEFORE INSERT OR UPDATE ON @extschema@.idem_policy_version
	FOR EACH ROW EXECUTE FUNCTION @extschema@._idem_version_merge();
CREATE TRIGGER idem_c_stale AFTER INSERT OR UPDATE OR DELETE ON @extschema@.idem_policy_version
	FOR EACH ROW EXECUTE FUNCTION @extschema@._idem_stale();
CREATE TRIGGER idem_c_stale_truncate AFTER TRUNCATE ON @extschema@.idem_policy_version
	FOR EACH STATEMENT EXECUTE FUNCTION @extschema@._idem_stale();
ALTER TABLE @extschema@.idem_policy_version
	ENABLE ALWAYS TRIGGER idem_a_stale,
	ENABLE ALWAYS TRIGGER idem_b_merge,
	ENABLE ALWAYS TRIGGER idem_c_stale,
	ENABLE ALWAYS TRIGGER idem_c_stale_truncate;

-- Secrets.  Nobody but the owner and the functions here reads the table: no grants, and row security without
-- a policy for those whom a later grant would let in.

CREATE TABLE @extschema@.idem_secret (
	id               text COLLATE "C" NOT NULL,
	secret           bytea NOT NULL,
	signing          bool,
	created_at       timestamptz NOT NULL DEFAULT clock_timestamp(),
	verify_until     timestamptz NOT NULL DEFAULT 'infinity',
	revoked_at       timestamptz,
	CONSTRAINT idem_secret_pkey PRIMARY KEY (id),
	CONSTRAINT idem_secret_id CHECK (id = "left"(encode(sha256('idem:secret:'::bytea || secret), 'hex'), 8)),
	CONSTRAINT idem_secret_length CHECK (octet_length(secret) BETWEEN 32 AND 64),
	CONSTRAINT idem_secret_signing CHECK (signing IS NULL OR (verify_until = 'infinity' AND revoked_at IS NULL)),
	-- true or null, and true once: the indexes of these tables have no predicate
	CONSTRAINT idem_secret_signs CHECK (signing),
	CONSTRAINT idem_secret_one_signs UNIQUE (signing)
) USING heap;
-- a sample of the column would be the secrets, for whoever may read pg_statistic
ALTER TABLE @extschema@.idem_secret ALTER COLUMN secret SET STATISTICS 0;
ALTER TABLE @extschema@.idem_secret ENABLE ROW LEVEL SECURITY;
COMMENT ON TABLE @extschema@.idem_secret IS
	'the secrets that sign and verify fingerprints; never dumped, open to nobody but its owner';
COMMENT ON COLUMN @extschema@.idem_secret.id IS
	'the first 8 hex digits of SHA-256 over ''idem:secret:'' and the secret: the same on every server';
COMMENT ON COLUMN @extschema@.idem_secret.secret IS '32 to 64 bytes';
COMMENT ON COLUMN @extschema@.idem_secret.signing IS 'true: new fingerprints are signed by this one, and by no other; else null';
COMMENT ON COLUMN @extschema@.idem_secret.created_at IS 'when it came into this database';
COMMENT ON COLUMN @extschema@.idem_secret.verify_until IS 'until when fingerprints signed by it are recognised';
COMMENT ON COLUMN @extschema@.idem_secret.revoked_at IS 'since when they are not, whatever verify_until says';

CREATE TRIGGER idem_a_stale BEFORE INSERT OR UPDATE OR DELETE ON @extschema@.idem_secret
	FOR EACH ROW EXECUTE FUNCTION @extschema@._idem_stale();
CREATE TRIGGER idem_c_stale AFTER INSERT OR UPDATE OR DELETE ON @extschema@.idem_secret
	FOR EACH ROW EXECUTE FUNCTION @extschema@._idem_stale();
CREATE TRIGGER idem_c_stale_truncate AFTER TRUNCATE ON @extschema@.idem_secret
	FOR EACH STATEMENT EXECUTE FUNCTION @extschema@._idem_stale();
ALTER TABLE @extschema@.idem_secret
	ENABLE ALWAYS TRIGGER idem_a_stale,
	ENABLE ALWAYS TRIGGER idem_c_stale,
	ENABLE ALWAYS TRIGGER idem_c_stale_truncate;

CREATE VIEW @extschema@.idem_secrets AS
	SELECT s.id, s.signing IS TRUE AS signing, s.created_at, s.verify_until, s.revoked_at
	FROM @extschema@.idem_secret AS s;
COMMENT ON VIEW @extschema@.idem_secrets IS 'the secrets, but not what they are';
COMMENT ON COLUMN @extschema@.idem_secrets.id IS 'the secret''s name, the same on every server';
COMMENT ON COLUMN @extschema@.idem_secrets.signing IS 'new fingerprints are signed by this one';
COMMENT ON COLUMN @extschema@.idem_secrets.created_at IS 'when it came into this database';
COMMENT ON COLUMN @extschema@.idem_secrets.verify_until IS 'until when fingerprints signed by it are recognised';
COMMENT ON COLUMN @extschema@.idem_secrets.revoked_at IS 'since when they are not, whatever verify_until says';

-- Roles that may act for one subject only (src/binding.c). A role is named, so that a dump can be restored where it is
-- not there, and its OID follows it through a change of its name.

CREATE FUNCTION @extschema@._idem_binding_role() RETURNS trigger
	LANGUAGE C VOLATILE PARALLEL UNSAFE
	AS 'MODULE_PATHNAME', 'idem_binding_role';
COMMENT ON FUNCTION @extschema@._idem_binding_role() IS
	'trigger: find the role that a row of idem_binding names';

CREATE FUNCTION @extschema@._idem_bound_signer() RETURNS void
	LANGUAGE C IMMUTABLE PARALLEL SAFE
	AS 'MODULE_PATHNAME', 'idem_bound';
COMMENT ON FUNCTION @extschema@._idem_bound_signer() IS
	'internal: does nothing; a signer that may execute it is bound, and refused where idem_binding does not say to what';

CREATE FUNCTION @extschema@._idem_bound_caller() RETURNS void
	LANGUAGE C IMMUTABLE PARALLEL SAFE
	AS 'MODULE_PATHNAME', 'idem_bound';
COMMENT ON FUNCTION @extschema@._idem_bound_caller() IS
	'internal: does nothing; a caller that may execute it is bound, and refused where idem_binding does not say to what';

CREATE TABLE @extschema@.idem_binding (
	role             text COLLATE "C" NOT NULL,
	role_oid         oid,
	subject_setting  text COLLATE "C" NOT NULL,
	CONSTRAINT idem_binding_pkey PRIMARY KEY (role),
	CONSTRAINT idem_binding_role CHECK (role <> ''),
	-- a setting of the user's own: PostgreSQL's have no dot, and those of idem are no subject
	CONSTRAINT idem_binding_setting CHECK (subject_setting ~ '^[A-Za-z_][A-Za-z0-9_$]*([.][A-Za-z_][A-Za-z0-9_$]*)+$'
		AND subject_setting !~* '^idem[.]' AND octet_length(subject_setting) <= 255)
) USING heap;
COMMENT ON TABLE @extschema@.idem_binding IS
	'roles that may act for one subject only, the one that a setting holds; written by idem_grant and idem_revoke';
COMMENT ON COLUMN @extschema@.idem_binding.role IS 'the name of the role; it, and those that have their privileges from it alone';
COMMENT ON COLUMN @extschema@.idem_binding.role_oid IS 'the role itself, which may have another name by now; null: there was none of that name';
COMMENT ON COLUMN @extschema@.idem_binding.subject_setting IS 'the setting whose value their calls must carry as subject';

CREATE TRIGGER idem_a_stale BEFORE INSERT OR UPDATE OR DELETE ON @extschema@.idem_binding
	FOR EACH ROW EXECUTE FUNCTION @extschema@._idem_stale();
CREATE TRIGGER idem_b_role BEFORE INSERT OR UPDATE ON @extschema@.idem_binding
	FOR EACH ROW EXECUTE FUNCTION @extschema@._idem_binding_role();
CREATE TRIGGER idem_c_stale AFTER INSERT OR UPDATE OR DELETE ON @extschema@.idem_binding
	FOR EACH ROW EXECUTE FUNCTION @extschema@._idem_stale();
CREATE TRIGGER idem_c_stale_truncate AFTER TRUNCATE ON @extschema@.idem_binding
	FOR EACH STATEMENT EXECUTE FUNCTION @extschema@._idem_stale();
ALTER TABLE @extschema@.idem_binding
	ENABLE ALWAYS TRIGGER idem_a_stale,
	ENABLE ALWAYS TRIGGER idem_b_role,
	ENABLE ALWAYS TRIGGER idem_c_stale,
	ENABLE ALWAYS TRIGGER idem_c_stale_truncate;

-- Made, brought, shown and revoked in C alone (src/secret_admin.c)

CREATE FUNCTION @extschema@.idem_rotate_secret(
	verify_for       interval DEFAULT NULL
) RETURNS text
	LANGUAGE C VOLATILE CALLED ON NULL INPUT PARALLEL UNSAFE
	AS 'MODULE_PATHNAME', 'idem_rotate_secret';
COMMENT ON FUNCTION @extschema@.idem_rotate_secret(interval) IS
	'sign with a new secret from now on; the former verifies for verify_for, or as long as any policy needs; returns the new one''s id';

CREATE FUNCTION @extschema@.idem_import_secret(
	secret           bytea,
	signing          bool DEFAULT false
) RETURNS text
	LANGUAGE C VOLATILE CALLED ON NULL INPUT PARALLEL UNSAFE
	AS 'MODULE_PATHNAME', 'idem_import_secret';
COMMENT ON FUNCTION @extschema@.idem_import_secret(bytea, bool) IS
	'bring a secret from another server, to verify by or to sign with as well; returns its id; one that is known is left as it is, unless it is to sign';

CREATE FUNCTION @extschema@.idem_export_secret(
	id               text DEFAULT NULL
) RETURNS bytea
	LANGUAGE C VOLATILE CALLED ON NULL INPUT PARALLEL UNSAFE
	AS 'MODULE_PATHNAME', 'idem_export_secret';
COMMENT ON FUNCTION @extschema@.idem_export_secret(text) IS
	'the secret of this id, or the one that signs, for other servers and for disaster recovery: keep it safe';

CREATE FUNCTION @extschema@.idem_revoke_secret(
	id               text
) RETURNS void
	LANGUAGE C VOLATILE CALLED ON NULL INPUT PARALLEL UNSAFE
	AS 'MODULE_PATHNAME', 'idem_revoke_secret';
COMMENT ON FUNCTION @extschema@.idem_revoke_secret(text) IS
	'stop recognising what this secret has signed, at once and for good';

-- the first secret
CREATE FUNCTION @extschema@._idem_first_secret(@extschema@.idem_ack) RETURNS void
	LANGUAGE C VOLATILE PARALLEL UNSAFE
	AS 'MODULE_PATHNAME', 'idem_first_secret';
COMMENT ON FUNCTION @extschema@._idem_first_secret(@extschema@.idem_ack) IS 'internal: make the secret that an installation begins with';
SELECT @extschema@._idem_first_secret(NULL::@extschema@.idem_ack);


-- ---------------------------------------------------------------------------------------------------------
-- Claims
-- ---------------------------------------------------------------------------------------------------------

-- The columns that both tables share come first, in the same places, so that one piece of code reads and
-- writes a row of either.
CREATE TABLE @extschema@.idem_record (
	key              uuid NOT NULL,
	acquired_at      timestamptz NOT NULL,
	lease_until      timestamptz NOT NULL,
	policy_version   int4 NOT NULL,
	attempt          int4 NOT NULL,
	state            "char" NOT NULL,
	downstream       "char" NOT NULL,
	param_hash       bytea NOT NULL,
	owner_hash       bytea NOT NULL,
	scope            text COLLATE "C" NOT NULL,
	subject          text COLLATE "C" NOT NULL,
	expires_at       timestamptz,
	holder           text COLLATE "C",
	trace_id         text COLLATE "C",
	retained_until   timestamptz NOT NULL,
	finished_at      timestamptz,
	result           jsonb,
	result_ref       text COLLATE "C",
	reconciled_at    timestamptz,
	reconciled_by    text COLLATE "C",
	reconcile_note   text COLLATE "C",
	former_owners    bytea,
	CONSTRAINT idem_record_pkey PRIMARY KEY (key),
	CONSTRAINT idem_record_state CHECK (state IN ('I', 'D', 'F', 'R')),
	CONSTRAINT idem_record_downstream CHECK (downstream IN ('o', 'q', 'i', 'l')),
	CONSTRAINT idem_record_attempt CHECK (attempt > 0),
	CONSTRAINT idem_record_hashes CHECK (octet_length(param_hash) = 32 AND octet_length(owner_hash) = 32),
	CONSTRAINT idem_record_finite CHECK (isfinite(lease_until) AND isfinite(acquired_at)),
	CONSTRAINT idem_record_retention CHECK ((state = 'I') = (retained_until = 'infinity')),
	CONSTRAINT idem_record_finished CHECK ((state = 'I') = (finished_at IS NULL))
) USING heap WITH (
	-- every claim that outlives its transaction leaves a dead version; the table may be large
	autovacuum_vacuum_scale_factor = 0.02,
	autovacuum_vacuum_insert_scale_factor = 0.05,
	autovacuum_analyze_scale_factor = 0.05
);
CREATE INDEX idem_record_retained_until ON @extschema@.idem_record (retained_until);
COMMENT ON TABLE @extschema@.idem_record IS 'what became of each operation: the truth';
COMMENT ON COLUMN @extschema@.idem_record.key IS 'the operation''s key: a fingerprint''s nonce, or made from a direct call';
COMMENT ON COLUMN @extschema@.idem_record.acquired_at IS 'when the latest attempt was granted';
COMMENT ON COLUMN @extschema@.idem_record.lease_until IS 'until when its holder need not fear a takeover';
COMMENT ON COLUMN @extschema@.idem_record.policy_version IS 'the version of the lists that the parameters were hashed under';
COMMENT ON COLUMN @extschema@.idem_record.attempt IS 'the latest attempt, from 1';
COMMENT ON COLUMN @extschema@.idem_record.state IS 'I in flight, D done, F failed, R released';
COMMENT ON COLUMN @extschema@.idem_record.downstream IS 'what the receiver of the effect can do: o opaque, q queryable, i idempotent, l local';
COMMENT ON COLUMN @extschema@.idem_record.param_hash IS 'SHA-256 of what is material in the parameters';
COMMENT ON COLUMN @extschema@.idem_record.owner_hash IS 'SHA-256 of the latest attempts owner token';
COMMENT ON COLUMN @extschema@.idem_record.scope IS 'the tool or operation';
COMMENT ON COLUMN @extschema@.idem_record.subject IS 'on whose behalf';
COMMENT ON COLUMN @extschema@.idem_record.expires_at IS 'the fingerprint''s expiry; null for a direct call';
COMMENT ON COLUMN @extschema@.idem_record.holder IS 'a label for audits';
COMMENT ON COLUMN @extschema@.idem_record.trace_id IS 'a label for traces';
COMMENT ON COLUMN @extschema@.idem_record.retained_until IS 'when the row lapses; infinity while in flight';
COMMENT ON COLUMN @extschema@.idem_record.finished_at IS 'when it was committed, failed, released or reconciled; null while in flight';
COMMENT ON COLUMN @extschema@.idem_record.result IS 'the result, or the reason of a failure';
COMMENT ON COLUMN @extschema@.idem_record.result_ref IS 'a reference that came with the result';
COMMENT ON COLUMN @extschema@.idem_record.reconciled_at IS 'when an operator gave a verdict';
COMMENT ON COLUMN @extschema@.idem_record.reconciled_by IS 'the role that gave it';
COMMENT ON COLUMN @extschema@.idem_record.reconcile_note IS 'why';
COMMENT ON COLUMN @extschema@.idem_record.former_owners IS
	'the first 16 bytes of each owner_hash that a later grant replaced, the latest 16, the last one last; null: none was';

CREATE UNLOGGED TABLE @extschema@.idem_fast (
	key              uuid NOT NULL,
	acquired_at      timestamptz NOT NULL,
	lease_until      timestamptz NOT NULL,
	policy_version   int4 NOT NULL,
	attempt          int4 NOT NULL,
	state            "char" NOT NULL,
	downstream       "char" NOT NULL,
	param_hash       bytea NOT NULL,
	owner_hash       bytea NOT NULL,
	scope            text COLLATE "C" NOT NULL,
	subject          text COLLATE "C" NOT NULL,
	expires_at       timestamptz,
	holder           text COLLATE "C",
	trace_id         text COLLATE "C",
	CONSTRAINT idem_fast_pkey PRIMARY KEY (key)
) USING heap WITH (
	-- every row is dead soon after it was born, and the table is small if that is cleaned up in time
	autovacuum_vacuum_threshold = 500,
	autovacuum_vacuum_scale_factor = 0,
	autovacuum_vacuum_cost_delay = 0
);
COMMENT ON TABLE @extschema@.idem_fast IS 'claims of transactions that are still open; losing it is safe';
COMMENT ON COLUMN @extschema@.idem_fast.key IS 'the operation''s key: a fingerprint''s nonce, or made from a direct call';
COMMENT ON COLUMN @extschema@.idem_fast.acquired_at IS 'when the latest attempt was granted';
COMMENT ON COLUMN @extschema@.idem_fast.lease_until IS 'until when its holder need not fear a takeover';
COMMENT ON COLUMN @extschema@.idem_fast.policy_version IS 'the version of the lists that the parameters were hashed under';
COMMENT ON COLUMN @extschema@.idem_fast.attempt IS 'the latest attempt, from 1';
COMMENT ON COLUMN @extschema@.idem_fast.state IS 'I in flight, D done, F failed, R released';
COMMENT ON COLUMN @extschema@.idem_fast.downstream IS 'what the receiver of the effect can do: o opaque, q queryable, i idempotent, l local';
COMMENT ON COLUMN @extschema@.idem_fast.param_hash IS 'SHA-256 of what is material in the parameters';
COMMENT ON COLUMN @extschema@.idem_fast.owner_hash IS 'SHA-256 of the latest attempts owner token';
COMMENT ON COLUMN @extschema@.idem_fast.scope IS 'the tool or operation';
COMMENT ON COLUMN @extschema@.idem_fast.subject IS 'on whose behalf';
COMMENT ON COLUMN @extschema@.idem_fast.expires_at IS 'the fingerprint''s expiry; null for a direct call';
COMMENT ON COLUMN @extschema@.idem_fast.holder IS 'a label for audits';
COMMENT ON COLUMN @extschema@.idem_fast.trace_id IS 'a label for traces';

-- Which operations have equal content, where a scope has a repeat_guard (src/guard.c): a row for each grant.  The first
-- index is for the guard, the second for what goes with its operation.
CREATE TABLE @extschema@.idem_peer (
	guard            uuid NOT NULL,
	key              uuid NOT NULL,
	granted_at       timestamptz NOT NULL,
	CONSTRAINT idem_peer_pkey PRIMARY KEY (guard, key, granted_at)
) USING heap;
CREATE INDEX idem_peer_key ON @extschema@.idem_peer (key);
COMMENT ON TABLE @extschema@.idem_peer IS 'the grants of scopes with a repeat_guard, by what their operations are about';
COMMENT ON COLUMN @extschema@.idem_peer.guard IS 'made from the scope, the subject and what is material in the parameters';
COMMENT ON COLUMN @extschema@.idem_peer.key IS 'the operation''s key';
COMMENT ON COLUMN @extschema@.idem_peer.granted_at IS 'when the grant was made';

CREATE TABLE @extschema@.idem_alert (
	key              uuid NOT NULL,
	kind             text COLLATE "C" NOT NULL,
	count            int8 NOT NULL,
	first_at         timestamptz NOT NULL,
	last_at          timestamptz NOT NULL,
	role             text NOT NULL,
	scope            text COLLATE "C",
	subject          text COLLATE "C",
	detail           jsonb,
	part             int4 NOT NULL DEFAULT 0,
	CONSTRAINT idem_alert_pkey PRIMARY KEY (key, kind, part),
	CONSTRAINT idem_alert_kind CHECK (kind IN ('parameter_mismatch', 'subject_mismatch', 'scope_mismatch', 'not_owner',
		'takeover', 'stuck', 'released', 'reconciled', 'never_owner')),
	CONSTRAINT idem_alert_count CHECK (count > 0),
	CONSTRAINT idem_alert_times CHECK (isfinite(first_at) AND isfinite(last_at) AND first_at <= last_at),
	CONSTRAINT idem_alert_role CHECK (octet_length(role) BETWEEN 1 AND 63),
	CONSTRAINT idem_alert_scope CHECK (octet_length(scope) BETWEEN 1 AND 255),
	CONSTRAINT idem_alert_subject CHECK (octet_length(subject) BETWEEN 1 AND 255),
	CONSTRAINT idem_alert_part CHECK (part BETWEEN 0 AND 63)
) USING heap;
CREATE INDEX idem_alert_last_at ON @extschema@.idem_alert (last_at);
COMMENT ON TABLE @extschema@.idem_alert IS 'what somebody should look at, one row for each operation and kind, and of not_owner now and then more';
COMMENT ON COLUMN @extschema@.idem_alert.key IS 'the operation''s key';
COMMENT ON COLUMN @extschema@.idem_alert.kind IS 'parameter_mismatch, subject_mismatch, scope_mismatch, not_owner, takeover, stuck, released, reconciled or never_owner';
COMMENT ON COLUMN @extschema@.idem_alert.count IS 'how often it was written, at most once a second but for late results that were new';
COMMENT ON COLUMN @extschema@.idem_alert.first_at IS 'the first time';
COMMENT ON COLUMN @extschema@.idem_alert.last_at IS 'the latest time';
COMMENT ON COLUMN @extschema@.idem_alert.role IS 'the role that made the latest call';
COMMENT ON COLUMN @extschema@.idem_alert.scope IS 'the operation''s scope';
COMMENT ON COLUMN @extschema@.idem_alert.subject IS 'the operation''s subject';
COMMENT ON COLUMN @extschema@.idem_alert.detail IS 'what else is known of the latest call; for not_owner the first and the latest late result that differ';
COMMENT ON COLUMN @extschema@.idem_alert.part IS '0; of not_owner more where a late result came while another transaction held the parts before';


-- ---------------------------------------------------------------------------------------------------------
-- Functions
-- ---------------------------------------------------------------------------------------------------------

-- Signing and reading fingerprints, and the pure functions that all else is made of (src/sign.c)

CREATE FUNCTION @extschema@.idem_sign(
	subject          text,
	scope            text,
	params           jsonb,
	not_after        timestamptz DEFAULT NULL,
	confirm_repeat   bool DEFAULT false
) RETURNS text
	LANGUAGE C VOLATILE CALLED ON NULL INPUT PARALLEL UNSAFE
	AS 'MODULE_PATHNAME', 'idem_sign';
COMMENT ON FUNCTION @extschema@.idem_sign(text, text, jsonb, timestamptz, bool) IS
	'sign a fingerprint for one operation; writes nothing';

CREATE FUNCTION @extschema@.idem_inspect(
	fingerprint          text,
	OUT valid            bool,
	OUT key              uuid,
	OUT expires_at       timestamptz,
	OUT subject          text,
	OUT scope            text,
	OUT param_hash       bytea,
	OUT version          int4,
	OUT confirmed_repeat bool
) RETURNS record
	LANGUAGE C STABLE CALLED ON NULL INPUT PARALLEL UNSAFE
	AS 'MODULE_PATHNAME', 'idem_inspect';
COMMENT ON FUNCTION @extschema@.idem_inspect(text) IS
	'what a fingerprint says; valid: signed by a secret that verifies now, even if its time is past';

CREATE FUNCTION @extschema@.idem_canonical(
	scope            text,
	params           jsonb
) RETURNS text
	LANGUAGE C STABLE CALLED ON NULL INPUT PARALLEL UNSAFE
	AS 'MODULE_PATHNAME', 'idem_canonical';
COMMENT ON FUNCTION @extschema@.idem_canonical(text, jsonb) IS
	'the canonical bytes of what is material in the parameters; of everything where the scope is null';

CREATE FUNCTION @extschema@.idem_param_hash(
	scope            text,
	params           jsonb
) RETURNS bytea
	LANGUAGE C STABLE CALLED ON NULL INPUT PARALLEL UNSAFE
	AS 'MODULE_PATHNAME', 'idem_param_hash';
COMMENT ON FUNCTION @extschema@.idem_param_hash(text, jsonb) IS
	'SHA-256 of what idem_canonical returns';

CREATE FUNCTION @extschema@.idem_key(
	subject          text,
	scope            text,
	params           jsonb,
	client_key       text DEFAULT NULL
) RETURNS uuid
	LANGUAGE C STABLE CALLED ON NULL INPUT PARALLEL UNSAFE
	AS 'MODULE_PATHNAME', 'idem_key';
COMMENT ON FUNCTION @extschema@.idem_key(text, text, jsonb, text) IS
	'the key of a direct call, by its client key or else by what is material in its parameters';

CREATE FUNCTION @extschema@.idem_downstream_key(
	key              uuid,
	step             text
) RETURNS uuid
	LANGUAGE C IMMUTABLE CALLED ON NULL INPUT PARALLEL SAFE
	AS 'MODULE_PATHNAME', 'idem_downstream_key';
COMMENT ON FUNCTION @extschema@.idem_downstream_key(uuid, text) IS
	'the key for one step of an operation that sends several requests downstream';

CREATE FUNCTION @extschema@.idem_shard(
	fingerprint      text,
	n                int4
) RETURNS int4
	LANGUAGE C IMMUTABLE CALLED ON NULL INPUT PARALLEL SAFE
	AS 'MODULE_PATHNAME', 'idem_shard';
COMMENT ON FUNCTION @extschema@.idem_shard(text, int4) IS
	'which of n servers, 0 to n - 1, the operation that a fingerprint names belongs to; reads it without verifying it';

CREATE FUNCTION @extschema@.idem_shard_key(
	key              uuid,
	n                int4
) RETURNS int4
	LANGUAGE C IMMUTABLE CALLED ON NULL INPUT PARALLEL SAFE
	AS 'MODULE_PATHNAME', 'idem_shard_key';
COMMENT ON FUNCTION @extschema@.idem_shard_key(uuid, int4) IS
	'which of n servers, 0 to n - 1, an operation belongs to, by its key';

-- The life of a claim (src/acquire.c, src/finish.c, src/status.c)

CREATE FUNCTION @extschema@.idem_acquire(
	fingerprint      text,
	subject          text,
	scope            text,
	params           jsonb,
	wait             interval DEFAULT '0',
	owner            uuid DEFAULT NULL,
	holder           text DEFAULT NULL,
	trace_id         text DEFAULT NULL
) RETURNS @extschema@.idem_claim
	LANGUAGE C VOLATILE CALLED ON NULL INPUT PARALLEL UNSAFE
	AS 'MODULE_PATHNAME', 'idem_acquire';
COMMENT ON FUNCTION @extschema@.idem_acquire(text, text, text, jsonb, interval, uuid, text, text) IS
	'claim the operation that a fingerprint was signed for, or learn what became of it';

CREATE FUNCTION @extschema@.idem_acquire_direct(
	subject          text,
	scope            text,
	params           jsonb,
	client_key       text DEFAULT NULL,
	wait             interval DEFAULT '0',
	owner            uuid DEFAULT NULL,
	holder           text DEFAULT NULL,
	trace_id         text DEFAULT NULL,
	confirm_repeat   bool DEFAULT false
) RETURNS @extschema@.idem_claim
	LANGUAGE C VOLATILE CALLED ON NULL INPUT PARALLEL UNSAFE
	AS 'MODULE_PATHNAME', 'idem_acquire_direct';
COMMENT ON FUNCTION @extschema@.idem_acquire_direct(text, text, jsonb, text, interval, uuid, text, text, bool) IS
	'the same without a fingerprint: the operation is named by a key of the client''s, or by what is material in its parameters';

CREATE FUNCTION @extschema@.idem_commit(
	key              uuid,
	owner            uuid,
	result           jsonb DEFAULT NULL,
	result_ref       text DEFAULT NULL
) RETURNS @extschema@.idem_ack
	LANGUAGE C VOLATILE CALLED ON NULL INPUT PARALLEL UNSAFE
	AS 'MODULE_PATHNAME', 'idem_commit';
COMMENT ON FUNCTION @extschema@.idem_commit(uuid, uuid, jsonb, text) IS
	'the operation happened, with this result; every retry gets it from now on';

CREATE FUNCTION @extschema@.idem_fail(
	key              uuid,
	owner            uuid,
	reason           jsonb,
	retryable        bool DEFAULT false
) RETURNS @extschema@.idem_ack
	LANGUAGE C VOLATILE CALLED ON NULL INPUT PARALLEL UNSAFE
	AS 'MODULE_PATHNAME', 'idem_fail';
COMMENT ON FUNCTION @extschema@.idem_fail(uuid, uuid, jsonb, bool) IS
	'the operation failed for good, with this reason; or, retryable, this attempt did and the next acquire makes another';

CREATE FUNCTION @extschema@.idem_release(
	key              uuid,
	owner            uuid
) RETURNS @extschema@.idem_ack
	LANGUAGE C VOLATILE CALLED ON NULL INPUT PARALLEL UNSAFE
	AS 'MODULE_PATHNAME', 'idem_release';
COMMENT ON FUNCTION @extschema@.idem_release(uuid, uuid) IS
	'give the claim up, certain that nothing happened';

CREATE FUNCTION @extschema@.idem_renew(
	key              uuid,
	owner            uuid,
	lease            interval DEFAULT NULL
) RETURNS @extschema@.idem_ack
	LANGUAGE C VOLATILE CALLED ON NULL INPUT PARALLEL UNSAFE
	AS 'MODULE_PATHNAME', 'idem_renew';
COMMENT ON FUNCTION @extschema@.idem_renew(uuid, uuid, interval) IS
	'hold the claim for lease from now on, or for the scope''s in_flight_ttl; never shortens';

CREATE FUNCTION @extschema@.idem_status(
	fingerprint      text,
	subject          text,
	wait             interval DEFAULT '0'
) RETURNS @extschema@.idem_claim
	LANGUAGE C VOLATILE CALLED ON NULL INPUT PARALLEL UNSAFE
	AS 'MODULE_PATHNAME', 'idem_status';
COMMENT ON FUNCTION @extschema@.idem_status(text, text, interval) IS
	'what became of the operation that a fingerprint was signed for; writes nothing';

CREATE FUNCTION @extschema@.idem_status_key(
	key              uuid,
	subject          text,
	wait             interval DEFAULT '0'
) RETURNS @extschema@.idem_claim
	LANGUAGE C VOLATILE CALLED ON NULL INPUT PARALLEL UNSAFE
	AS 'MODULE_PATHNAME', 'idem_status_key';
COMMENT ON FUNCTION @extschema@.idem_status_key(uuid, text, interval) IS
	'what became of the subject''s operation with this key; writes nothing';


-- Audits (src/audit.c)

CREATE FUNCTION @extschema@._idem_uncommitted(
	@extschema@.idem_ack,
	OUT key              uuid,
	OUT scope            text,
	OUT subject          text,
	OUT downstream       "char",
	OUT attempt          int4,
	OUT holder           text,
	OUT trace_id         text,
	OUT acquired_at      timestamptz,
	OUT lease_until      timestamptz,
	OUT xid              xid
) RETURNS SETOF record
	LANGUAGE C VOLATILE PARALLEL UNSAFE
	AS 'MODULE_PATHNAME', 'idem_uncommitted';
COMMENT ON FUNCTION @extschema@._idem_uncommitted(@extschema@.idem_ack) IS
	'internal: the claims of transactions that are still open, seen without waiting for them';

CREATE VIEW @extschema@.idem_in_flight AS
SELECT c.key, c.scope, c.subject,
		CASE c.downstream WHEN 'o' THEN 'opaque' WHEN 'q' THEN 'queryable' WHEN 'i' THEN 'idempotent' WHEN 'l' THEN 'local' END AS downstream,
		c.attempt, c.holder, c.trace_id, c.acquired_at, c.lease_until,
		clock_timestamp() - c.acquired_at AS age,
		c.lease_until - clock_timestamp() AS lease_left,
		c.xid, p.gid
	FROM (
		SELECT r.key, r.scope, r.subject, r.downstream, r.attempt, r.holder, r.trace_id, r.acquired_at, r.lease_until,
				NULL::xid AS xid
			FROM @extschema@.idem_record AS r
			WHERE r.retained_until = 'infinity'
		UNION ALL
		SELECT u.key, u.scope, u.subject, u.downstream, u.attempt, u.holder, u.trace_id, u.acquired_at, u.lease_until, u.xid
			FROM @extschema@._idem_uncommitted(NULL::@extschema@.idem_ack) AS u
	) AS c
	LEFT JOIN pg_prepared_xacts AS p ON p.transaction = c.xid;
COMMENT ON VIEW @extschema@.idem_in_flight IS 'operations at work; those of transactions still open have their xid, and the gid of a prepared one';
COMMENT ON COLUMN @extschema@.idem_in_flight.key IS 'the operation''s key';
COMMENT ON COLUMN @extschema@.idem_in_flight.scope IS 'the tool or operation';
COMMENT ON COLUMN @extschema@.idem_in_flight.subject IS 'on whose behalf';
COMMENT ON COLUMN @extschema@.idem_in_flight.downstream IS 'what the receiver of the effect can do';
COMMENT ON COLUMN @extschema@.idem_in_flight.attempt IS 'which attempt this is, from 1';
COMMENT ON COLUMN @extschema@.idem_in_flight.holder IS 'the label that the holder gave itself';
COMMENT ON COLUMN @extschema@.idem_in_flight.trace_id IS 'the trace that the holder gave';
COMMENT ON COLUMN @extschema@.idem_in_flight.acquired_at IS 'when this attempt was granted';
COMMENT ON COLUMN @extschema@.idem_in_flight.lease_until IS 'until when nobody else may take it over';
COMMENT ON COLUMN @extschema@.idem_in_flight.age IS 'since when';
COMMENT ON COLUMN @extschema@.idem_in_flight.lease_left IS 'what is left of the lease; negative: it is over';
COMMENT ON COLUMN @extschema@.idem_in_flight.xid IS 'the transaction that holds the claim and is not committed; null: committed';
COMMENT ON COLUMN @extschema@.idem_in_flight.gid IS 'the name of that transaction where it is prepared';

CREATE VIEW @extschema@.idem_stuck AS
SELECT r.key, r.scope, r.subject,
		CASE r.downstream WHEN 'o' THEN 'opaque' WHEN 'q' THEN 'queryable' WHEN 'i' THEN 'idempotent' WHEN 'l' THEN 'local' END AS downstream,
		r.attempt, r.holder, r.trace_id, r.acquired_at, r.lease_until,
		clock_timestamp() - r.lease_until AS overdue,
		-- pasted as it is, it is refused: which of the three is true only downstream knows
		'SELECT ' || (SELECT quote_ident(n.nspname) FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
				WHERE c.oid = '@extschema@.idem_record'::regclass)
			|| '.idem_reconcile(' || quote_literal(r.key::text)
			|| ', verdict => ''DONE|FAILED|RETRY'', note => ''what you found'', result => NULL);' AS reconcile
	FROM @extschema@.idem_record AS r
	WHERE r.retained_until = 'infinity'
		AND r.downstream <> 'i'
		AND r.lease_until <= clock_timestamp();
COMMENT ON VIEW @extschema@.idem_stuck IS 'operations whose outcome nobody knows: find it out downstream, then say so';
COMMENT ON COLUMN @extschema@.idem_stuck.key IS 'the operation''s key, which went downstream';
COMMENT ON COLUMN @extschema@.idem_stuck.scope IS 'the tool or operation';
COMMENT ON COLUMN @extschema@.idem_stuck.subject IS 'on whose behalf';
COMMENT ON COLUMN @extschema@.idem_stuck.downstream IS 'what the receiver of the effect can do';
COMMENT ON COLUMN @extschema@.idem_stuck.attempt IS 'which attempt was under way, from 1';
COMMENT ON COLUMN @extschema@.idem_stuck.holder IS 'the label that the holder gave itself';
COMMENT ON COLUMN @extschema@.idem_stuck.trace_id IS 'the trace that the holder gave';
COMMENT ON COLUMN @extschema@.idem_stuck.acquired_at IS 'when this attempt was granted';
COMMENT ON COLUMN @extschema@.idem_stuck.lease_until IS 'when its lease ended';
COMMENT ON COLUMN @extschema@.idem_stuck.overdue IS 'how long ago that was';
COMMENT ON COLUMN @extschema@.idem_stuck.reconcile IS 'the call that settles it: leave one of the three verdicts, and say what you found downstream';

CREATE VIEW @extschema@.idem_audit AS
SELECT r.key, r.scope, r.subject,
		CASE r.state WHEN 'I' THEN 'IN_FLIGHT' WHEN 'D' THEN 'DONE' WHEN 'F' THEN 'FAILED' WHEN 'R' THEN 'RELEASED' END AS state,
		CASE r.downstream WHEN 'o' THEN 'opaque' WHEN 'q' THEN 'queryable' WHEN 'i' THEN 'idempotent' WHEN 'l' THEN 'local' END AS downstream,
		r.attempt, r.holder, r.trace_id, r.result_ref, r.acquired_at, r.lease_until, r.expires_at, r.finished_at, r.retained_until,
		r.policy_version, encode(r.param_hash, 'hex') AS param_hash,
		r.reconciled_at, r.reconciled_by, r.reconcile_note
	FROM @extschema@.idem_record AS r;
COMMENT ON VIEW @extschema@.idem_audit IS 'every operation on record, without results and owners';
COMMENT ON COLUMN @extschema@.idem_audit.key IS 'the operation''s key';
COMMENT ON COLUMN @extschema@.idem_audit.scope IS 'the tool or operation';
COMMENT ON COLUMN @extschema@.idem_audit.subject IS 'on whose behalf';
COMMENT ON COLUMN @extschema@.idem_audit.state IS 'IN_FLIGHT, DONE, FAILED or RELEASED';
COMMENT ON COLUMN @extschema@.idem_audit.downstream IS 'what the receiver of the effect can do';
COMMENT ON COLUMN @extschema@.idem_audit.attempt IS 'the latest attempt, from 1';
COMMENT ON COLUMN @extschema@.idem_audit.holder IS 'the label that its holder gave itself';
COMMENT ON COLUMN @extschema@.idem_audit.trace_id IS 'the trace that its holder gave';
COMMENT ON COLUMN @extschema@.idem_audit.result_ref IS 'the reference that came with the result';
COMMENT ON COLUMN @extschema@.idem_audit.acquired_at IS 'when the latest attempt was granted';
COMMENT ON COLUMN @extschema@.idem_audit.lease_until IS 'the end of its lease';
COMMENT ON COLUMN @extschema@.idem_audit.expires_at IS 'the fingerprint''s expiry; null for a direct call';
COMMENT ON COLUMN @extschema@.idem_audit.finished_at IS 'when it was committed, failed, released or reconciled';
COMMENT ON COLUMN @extschema@.idem_audit.retained_until IS 'when it lapses; infinity while in flight';
COMMENT ON COLUMN @extschema@.idem_audit.policy_version IS 'the version of the lists that its parameters were hashed under';
COMMENT ON COLUMN @extschema@.idem_audit.param_hash IS 'SHA-256 of what is material in its parameters';
COMMENT ON COLUMN @extschema@.idem_audit.reconciled_at IS 'when an operator gave a verdict';
COMMENT ON COLUMN @extschema@.idem_audit.reconciled_by IS 'the role that gave it';
COMMENT ON COLUMN @extschema@.idem_audit.reconcile_note IS 'why';

CREATE FUNCTION @extschema@.idem_reconcile(
	key              uuid,
	verdict          text,
	note             text,
	result           jsonb DEFAULT NULL,
	result_ref       text DEFAULT NULL,
	force            bool DEFAULT false
) RETURNS @extschema@.idem_ack
	LANGUAGE C VOLATILE CALLED ON NULL INPUT PARALLEL UNSAFE
	AS 'MODULE_PATHNAME', 'idem_reconcile';
COMMENT ON FUNCTION @extschema@.idem_reconcile(uuid, text, text, jsonb, text, bool) IS
	'an operator has found out what became of an operation: DONE, FAILED, or RETRY where nothing happened; the note says how';

CREATE FUNCTION @extschema@.idem_execute(
	subject          text,
	scope            text,
	params           jsonb,
	fn               regprocedure,
	fingerprint      text DEFAULT NULL,
	client_key       text DEFAULT NULL,
	wait             interval DEFAULT '30 s',
	trace_id         text DEFAULT NULL,
	confirm_repeat   bool DEFAULT false
) RETURNS @extschema@.idem_claim
	LANGUAGE C VOLATILE CALLED ON NULL INPUT PARALLEL UNSAFE
	AS 'MODULE_PATHNAME', 'idem_execute';
COMMENT ON FUNCTION @extschema@.idem_execute(text, text, jsonb, regprocedure, text, text, interval, text, bool) IS
	'run fn(params) once and keep what it returns; DONE with replayed = false is the first run';

CREATE FUNCTION @extschema@.idem_require() RETURNS trigger
	LANGUAGE C VOLATILE PARALLEL UNSAFE
	AS 'MODULE_PATHNAME', 'idem_require';
COMMENT ON FUNCTION @extschema@.idem_require() IS
	'trigger for tables of one''s own, with the arguments scope and key column: refuse a row whose key names no operation under way';


-- Care: what lapses goes, what is stuck is told of (src/maintain.c)

-- A lapsed row is deleted only if it has still lapsed once it is locked; rows that are locked elsewhere are left
-- to the next call.
CREATE FUNCTION @extschema@.idem_purge(
	max_rows         int4 DEFAULT 10000
) RETURNS int8
	LANGUAGE C VOLATILE CALLED ON NULL INPUT PARALLEL UNSAFE
	AS 'MODULE_PATHNAME', 'idem_purge';
COMMENT ON FUNCTION @extschema@.idem_purge(int4) IS
	'delete records that have lapsed, at most so many; those in flight never lapse; returns how many went';

CREATE FUNCTION @extschema@.idem_maintain(
	OUT purged           int8,
	OUT newly_stuck      int8,
	OUT alerts_purged    int8
) RETURNS record
	LANGUAGE C VOLATILE PARALLEL UNSAFE
	AS 'MODULE_PATHNAME', 'idem_maintain';
COMMENT ON FUNCTION @extschema@.idem_maintain() IS
	'regular care in one call: purge what has lapsed, raise an alert for each newly stuck claim, drop old alerts';


-- Replies: what a model or an HTTP client is told (src/reply.c, src/guidance.c, src/preview.c, src/http.c)

CREATE TABLE @extschema@.idem_guidance (
	outcome          text COLLATE "C" NOT NULL,
	scope            text COLLATE "C" NOT NULL DEFAULT '*',
	lang             text COLLATE "C" NOT NULL DEFAULT 'en',
	meaning          text,
	instruction      text,
	CONSTRAINT idem_guidance_pkey PRIMARY KEY (outcome, scope, lang),
	CONSTRAINT idem_guidance_outcome CHECK (outcome IN (
		'PREVIEW_READY', 'ACQUIRED', 'ACQUIRED_AGAIN', 'TAKEOVER', 'IN_FLIGHT', 'DONE', 'DONE_NOW', 'FAILED', 'RECONCILE',
		'PARAM_MISMATCH', 'SUBJECT_MISMATCH', 'SCOPE_MISMATCH', 'EXPIRED', 'INVALID', 'REPEAT', 'REPEAT_OPEN',
		'NONE', 'NONE_UNSURE', 'UNKNOWN', 'RETRYABLE', 'ATTEMPT_FAILED', 'RELEASED')),
	CONSTRAINT idem_guidance_scope CHECK (octet_length(scope) BETWEEN 1 AND 255),
	CONSTRAINT idem_guidance_lang CHECK (lang IN ('en', 'zh')),
	CONSTRAINT idem_guidance_text CHECK (meaning IS NOT NULL OR instruction IS NOT NULL),
	CONSTRAINT idem_guidance_meaning CHECK (octet_length(meaning) BETWEEN 1 AND 4096),
	CONSTRAINT idem_guidance_instruction CHECK (octet_length(instruction) BETWEEN 1 AND 4096)
) USING heap;
COMMENT ON TABLE @extschema@.idem_guidance IS
	'your own texts for replies, in place of those that come with idem; a scope''s own row goes before ''*''';
COMMENT ON COLUMN @extschema@.idem_guidance.outcome IS
	'an outcome, or a case of one: ACQUIRED_AGAIN and TAKEOVER of ACQUIRED, DONE_NOW of DONE, REPEAT_OPEN of REPEAT, NONE_UNSURE of NONE, ATTEMPT_FAILED and RELEASED of RETRYABLE; or PREVIEW_READY';
COMMENT ON COLUMN @extschema@.idem_guidance.scope IS 'the tool or operation, or ''*'' for all';
COMMENT ON COLUMN @extschema@.idem_guidance.lang IS 'en or zh';
COMMENT ON COLUMN @extschema@.idem_guidance.meaning IS
	'what is the case; null: as it is without this row. {confirm_with}, {poll_with}, {wait} and {members} are filled in';
COMMENT ON COLUMN @extschema@.idem_guidance.instruction IS 'what to do next; likewise';

-- These read policies and texts directly: what a reply needs of them is no secret, and who gets replies needs no
-- privilege on the tables.

CREATE FUNCTION @extschema@.idem_reply(
	claim            @extschema@.idem_claim,
	lang             text DEFAULT NULL
) RETURNS jsonb
	LANGUAGE C STABLE CALLED ON NULL INPUT PARALLEL UNSAFE
	AS 'MODULE_PATHNAME', 'idem_reply';
COMMENT ON FUNCTION @extschema@.idem_reply(@extschema@.idem_claim, text) IS
	'what a model is told of a claim: what is the case, what to do next, whether the effect has happened; in lang, or idem.lang';

CREATE FUNCTION @extschema@.idem_preview(
	subject          text,
	scope            text,
	params           jsonb,
	not_after        timestamptz DEFAULT NULL,
	confirm_repeat   bool DEFAULT false
) RETURNS jsonb
	LANGUAGE C VOLATILE CALLED ON NULL INPUT PARALLEL UNSAFE
	AS 'MODULE_PATHNAME', 'idem_preview';
COMMENT ON FUNCTION @extschema@.idem_preview(text, text, jsonb, timestamptz, bool) IS
	'a reply with a fingerprint for one operation and how to confirm it; or, within the scope''s repeat_guard, that it is likely a repeat; writes nothing';

CREATE FUNCTION @extschema@.idem_http(
	claim            @extschema@.idem_claim,
	lang             text DEFAULT NULL,
	OUT status       int4,
	OUT headers      jsonb,
	OUT body         jsonb
) RETURNS record
	LANGUAGE C STABLE CALLED ON NULL INPUT PARALLEL UNSAFE
	AS 'MODULE_PATHNAME', 'idem_http';
COMMENT ON FUNCTION @extschema@.idem_http(@extschema@.idem_claim, text) IS
	'the same as an HTTP answer: a status, headers as PostgREST takes them, and the first result or an RFC 9457 problem';

CREATE FUNCTION @extschema@.idem_http_key(header text) RETURNS text
	LANGUAGE C IMMUTABLE CALLED ON NULL INPUT PARALLEL SAFE
	AS 'MODULE_PATHNAME', 'idem_http_key';
COMMENT ON FUNCTION @extschema@.idem_http_key(text) IS
	'the key in the value of an Idempotency-Key header, a quoted string by RFC 8941';


-- Counters (src/stat.c)

CREATE FUNCTION @extschema@.idem_preloaded() RETURNS bool
	LANGUAGE C STABLE PARALLEL SAFE
	AS 'MODULE_PATHNAME', 'idem_preloaded';
COMMENT ON FUNCTION @extschema@.idem_preloaded() IS
	'whether shared_preload_libraries names idem: without it nothing is counted, and there is no worker';

CREATE FUNCTION @extschema@.idem_stat_counters(
	OUT scope            text,
	OUT event            text,
	OUT calls            int8,
	OUT total_time       float8
) RETURNS SETOF record
	LANGUAGE C VOLATILE PARALLEL UNSAFE
	AS 'MODULE_PATHNAME', 'idem_stat_counters';
COMMENT ON FUNCTION @extschema@.idem_stat_counters() IS
	'this database''s counters, one row for each scope and event; total_time in milliseconds; needs shared_preload_libraries';

CREATE FUNCTION @extschema@._idem_stat_counters(
	@extschema@.idem_ack,
	OUT scope            text,
	OUT event            text,
	OUT calls            int8,
	OUT total_time       float8
) RETURNS SETOF record
	LANGUAGE C VOLATILE PARALLEL UNSAFE
	AS 'MODULE_PATHNAME', 'idem_stat_counters';
COMMENT ON FUNCTION @extschema@._idem_stat_counters(@extschema@.idem_ack) IS 'internal: the same, for the view idem_stat';

CREATE FUNCTION @extschema@.idem_stat_reset() RETURNS void
	LANGUAGE C VOLATILE PARALLEL UNSAFE
	AS 'MODULE_PATHNAME', 'idem_stat_reset';
COMMENT ON FUNCTION @extschema@.idem_stat_reset() IS 'set this database''s counters to zero';

-- Each call is in one of the columns from executed to rolled_back, so that these add up to calls.
CREATE VIEW @extschema@.idem_stat AS
WITH sums AS (
	SELECT c.scope,
			sum(c.calls) FILTER (WHERE c.event LIKE '%.%' OR c.event = 'rolled_back') AS calls,
			sum(c.calls) FILTER (WHERE c.event IN ('acquire.acquired', 'execute.acquired')) AS executed,
			sum(c.calls) FILTER (WHERE c.event IN ('acquire.done', 'acquire.failed', 'acquire.again', 'execute.done', 'execute.failed')) AS replayed,
			sum(c.calls) FILTER (WHERE c.event IN ('acquire.joined', 'execute.joined')) AS joined,
			sum(c.calls) FILTER (WHERE c.event IN ('acquire.in_flight', 'execute.in_flight')) AS in_flight,
			sum(c.calls) FILTER (WHERE c.event IN ('acquire.reconcile', 'execute.reconcile')) AS unknown,
			sum(c.calls) FILTER (WHERE c.event ~ '^(acquire|execute)[.](.*_mismatch|expired|invalid|repeat)$') AS rejected,
			sum(c.calls) FILTER (WHERE c.event LIKE 'status.%' AND c.event <> 'status.error') AS looked_up,
			sum(c.calls) FILTER (WHERE c.event ~ '^(commit|fail|release|renew|reconcile)[.](ok|already)$') AS acknowledged,
			sum(c.calls) FILTER (WHERE c.event ~ '^(commit|fail|release|renew|reconcile)[.](not_owner|none)$') AS refused,
			sum(c.calls) FILTER (WHERE c.event LIKE '%.error') AS errors,
			sum(c.calls) FILTER (WHERE c.event = 'rolled_back') AS rolled_back,
			sum(c.calls) FILTER (WHERE c.event = 'takeover') AS takeovers,
			sum(c.calls) FILTER (WHERE c.event = 'promoted') AS promoted,
			sum(c.calls) FILTER (WHERE c.event = 'fast_path_unavailable') AS fast_path_unavailable,
			sum(c.calls) FILTER (WHERE c.event = 'purged') AS purged,
			sum(c.calls) FILTER (WHERE c.event IN ('acquire.param_mismatch', 'execute.param_mismatch')) AS mismatched,
			sum(c.total_time) AS total_time
		FROM @extschema@._idem_stat_counters(NULL::@extschema@.idem_ack) AS c
		GROUP BY c.scope
), counts AS (
	SELECT s.scope, coalesce(s.calls, 0) AS calls, coalesce(s.executed, 0) AS executed,
			coalesce(s.replayed, 0) AS replayed, coalesce(s.joined, 0) AS joined,
			coalesce(s.in_flight, 0) AS in_flight, coalesce(s.unknown, 0) AS unknown,
			coalesce(s.rejected, 0) AS rejected, coalesce(s.looked_up, 0) AS looked_up,
			coalesce(s.acknowledged, 0) AS acknowledged, coalesce(s.refused, 0) AS refused,
			coalesce(s.errors, 0) AS errors, coalesce(s.rolled_back, 0) AS rolled_back,
			coalesce(s.takeovers, 0) AS takeovers, coalesce(s.promoted, 0) AS promoted,
			coalesce(s.fast_path_unavailable, 0) AS fast_path_unavailable, coalesce(s.purged, 0) AS purged,
			coalesce(s.mismatched, 0) AS mismatched, s.total_time
		FROM sums AS s
)
SELECT c.scope, c.calls, c.executed, c.replayed, c.joined, c.in_flight, c.unknown, c.rejected, c.looked_up,
		c.acknowledged, c.refused, c.errors, c.rolled_back,
		c.takeovers, c.promoted, c.fast_path_unavailable, c.purged,
		round((c.replayed + c.joined) / nullif(c.executed + c.replayed + c.joined, 0), 4) AS replay_ratio,
		c.total_time,
		CASE
			WHEN c.unknown > 0
			THEN 'outcomes that nobody knows: find them in idem_stuck, look downstream, call idem_reconcile()'
			WHEN c.mismatched >= 10 AND c.mismatched * 20 > c.executed + c.replayed + c.joined
			THEN 'many parameter mismatches: a free-text or changing field is in the hash; name it in "immaterial"'
			WHEN c.refused >= 10 AND c.refused * 20 > c.acknowledged
			THEN 'many calls by who no longer holds the claim: in_flight_ttl is too short for the work, or holders stall'
			WHEN c.rolled_back >= 100 AND c.rolled_back > c.executed
			THEN 'more grants rolled back than kept: an effect that starts before COMMIT is not protected'
			WHEN c.fast_path_unavailable >= 100 AND c.fast_path_unavailable * 10 > c.executed
			THEN 'many claims go straight into the record: something locks idem_fast, or idem.fast_path is off'
			WHEN c.executed >= 1000 AND c.replayed + c.joined = 0
			THEN 'nothing was ever replayed: the key is too fine, or retries never reach this layer'
			ELSE 'nothing remarkable'
		END AS finding
	FROM counts AS c;
COMMENT ON VIEW @extschema@.idem_stat IS
	'what became of the calls of each scope since the counters were reset; executed to rolled_back add up to calls; needs shared_preload_libraries';
COMMENT ON COLUMN @extschema@.idem_stat.scope IS 'the tool or operation; empty where a call was refused before its scope was known; "(other)" beyond idem.stat_max';
COMMENT ON COLUMN @extschema@.idem_stat.calls IS 'all calls of acquire, execute, status, commit, fail, release, renew and reconcile';
COMMENT ON COLUMN @extschema@.idem_stat.executed IS 'grants that were committed';
COMMENT ON COLUMN @extschema@.idem_stat.replayed IS 'calls that got the first result or reason, or were told again of their own grant';
COMMENT ON COLUMN @extschema@.idem_stat.joined IS 'calls that waited for somebody else''s run and got its result';
COMMENT ON COLUMN @extschema@.idem_stat.in_flight IS 'calls that were told that somebody is at work';
COMMENT ON COLUMN @extschema@.idem_stat.unknown IS 'calls that were told that the outcome is unknown';
COMMENT ON COLUMN @extschema@.idem_stat.rejected IS 'mismatches, expired and invalid fingerprints, likely repeats';
COMMENT ON COLUMN @extschema@.idem_stat.looked_up IS 'calls of idem_status and idem_status_key';
COMMENT ON COLUMN @extschema@.idem_stat.acknowledged IS 'commit, fail, release, renew and reconcile that were OK or ALREADY';
COMMENT ON COLUMN @extschema@.idem_stat.refused IS 'the same, answered NOT_OWNER or NONE';
COMMENT ON COLUMN @extschema@.idem_stat.errors IS 'calls that raised an error';
COMMENT ON COLUMN @extschema@.idem_stat.rolled_back IS 'calls that wrote something, in a transaction or savepoint that was rolled back';
COMMENT ON COLUMN @extschema@.idem_stat.takeovers IS 'grants among executed that took over a claim whose lease was over';
COMMENT ON COLUMN @extschema@.idem_stat.promoted IS 'claims that outlived their transaction and moved into the record';
COMMENT ON COLUMN @extschema@.idem_stat.fast_path_unavailable IS 'claims that could not use the fast table';
COMMENT ON COLUMN @extschema@.idem_stat.purged IS 'lapsed records that were deleted';
COMMENT ON COLUMN @extschema@.idem_stat.replay_ratio IS 'replayed and joined, of these and executed';
COMMENT ON COLUMN @extschema@.idem_stat.total_time IS 'time spent in these calls, waiting included, in milliseconds';
COMMENT ON COLUMN @extschema@.idem_stat.finding IS 'what the numbers suggest, in plain words';


CREATE VIEW @extschema@.idem_alerts AS
SELECT a.last_at, a.kind,
		CASE a.kind WHEN 'parameter_mismatch' THEN 'ID001' WHEN 'subject_mismatch' THEN 'ID002'
			WHEN 'scope_mismatch' THEN 'ID003' WHEN 'not_owner' THEN 'ID004' WHEN 'takeover' THEN 'ID005'
			WHEN 'stuck' THEN 'ID006' WHEN 'released' THEN 'ID007' WHEN 'reconciled' THEN 'ID008'
			WHEN 'never_owner' THEN 'ID010' END AS code,
		CASE a.kind
			WHEN 'parameter_mismatch' THEN 'a fingerprint came back with other parameters than were previewed'
			WHEN 'subject_mismatch' THEN 'a fingerprint was presented by another subject than it was signed for'
			WHEN 'scope_mismatch' THEN 'a fingerprint was presented to another tool than it was signed for'
			WHEN 'not_owner' THEN 'a holder came back after it had lost its claim; a late result is in "detail"'
			WHEN 'takeover' THEN 'a claim whose lease was over was taken over, under the same key'
			WHEN 'stuck' THEN 'the lease is over, and nobody knows whether the effect happened'
			WHEN 'released' THEN 'a holder gave its claim up: it says that nothing happened'
			WHEN 'reconciled' THEN 'an operator said what became of it'
			WHEN 'never_owner' THEN 'a call came with an owner token that never held the claim; what it brought is not kept'
		END AS meaning,
		a.scope, a.subject, a.key,
		CASE r.state WHEN 'I' THEN 'IN_FLIGHT' WHEN 'D' THEN 'DONE' WHEN 'F' THEN 'FAILED' WHEN 'R' THEN 'RELEASED' END AS state,
		a.kind = 'stuck' AND r.state = 'I' AND r.downstream <> 'i' AND r.lease_until <= clock_timestamp() AS is_open,
		a.count, a.first_at, a.role, a.detail
	FROM @extschema@.idem_alert AS a
	LEFT JOIN @extschema@.idem_record AS r ON r.key = a.key;
COMMENT ON VIEW @extschema@.idem_alerts IS 'what somebody should look at, in plain words: ORDER BY last_at DESC';
COMMENT ON COLUMN @extschema@.idem_alerts.last_at IS 'the latest time';
COMMENT ON COLUMN @extschema@.idem_alerts.kind IS 'parameter_mismatch, subject_mismatch, scope_mismatch, not_owner, takeover, stuck, released, reconciled or never_owner';
COMMENT ON COLUMN @extschema@.idem_alerts.code IS 'the SQLSTATE of its line in the server''s log';
COMMENT ON COLUMN @extschema@.idem_alerts.meaning IS 'what happened, in plain words';
COMMENT ON COLUMN @extschema@.idem_alerts.scope IS 'the operation''s scope';
COMMENT ON COLUMN @extschema@.idem_alerts.subject IS 'the operation''s subject';
COMMENT ON COLUMN @extschema@.idem_alerts.key IS 'the operation''s key';
COMMENT ON COLUMN @extschema@.idem_alerts.state IS 'the operation''s state now; null: it is not on record';
COMMENT ON COLUMN @extschema@.idem_alerts.is_open IS 'true where the operation still waits for a person: see idem_stuck';
COMMENT ON COLUMN @extschema@.idem_alerts.count IS 'how often it was written, at most once a second but for late results that were new';
COMMENT ON COLUMN @extschema@.idem_alerts.first_at IS 'the first time';
COMMENT ON COLUMN @extschema@.idem_alerts.role IS 'the role that made the latest call';
COMMENT ON COLUMN @extschema@.idem_alerts.detail IS 'what else is known of the latest call; for not_owner the first and the latest late result that differ';


-- Health.  Each check looks at little: the whole is meant to be asked every few seconds.

CREATE FUNCTION @extschema@._idem_settings(
	@extschema@.idem_ack,
	OUT is_preloaded     bool,
	OUT is_served        bool,
	OUT fast_path        bool,
	OUT max_clock_skew   interval
) RETURNS record
	LANGUAGE C STABLE PARALLEL SAFE
	AS 'MODULE_PATHNAME', 'idem_settings';
COMMENT ON FUNCTION @extschema@._idem_settings(@extschema@.idem_ack) IS
	'internal: settings of idem, and whether idem.databases names this database';

-- Its tables, views and types are those that were made here, whatever has become of them: bound, and not looked for by
-- name.  Where they were altered, and calls are refused, it still answers.
CREATE FUNCTION @extschema@.idem_health(
	OUT name             text,
	OUT status           text,
	OUT detail           text,
	OUT advice           text
) RETURNS SETOF record
	LANGUAGE sql VOLATILE SECURITY DEFINER PARALLEL UNSAFE
	SET row_security = off -- an error, rather than what an owner's policy would run
BEGIN ATOMIC
WITH checks (name) AS (
	VALUES ('preload'), ('worker'), ('purge'), ('stuck'), ('policies'), ('traffic'), ('secrets'), ('clock'), ('autovacuum'),
		('horizon'), ('triggers'), ('tables'), ('members'), ('row_security'), ('bindings'), ('fast_path'), ('durability'), ('replication')
),

-- what the script made: each table's types of columns (with ? where null may be), check constraints and triggers
made (relation, name, columns, checks, triggers) AS (
	VALUES ('@extschema@.idem_alert'::regclass, 'idem_alert',
			'uuid text int8 timestamptz timestamptz text text? text? jsonb? int4', 7, '{}'::text[]),
		('@extschema@.idem_binding'::regclass, 'idem_binding',
			'text oid? text', 2, '{idem_a_stale,idem_b_role,idem_c_stale,idem_c_stale_truncate}'),
		('@extschema@.idem_fast'::regclass, 'idem_fast',
			'uuid timestamptz timestamptz int4 int4 char char bytea bytea text text timestamptz? text? text?', 0, '{}'),
		('@extschema@.idem_guidance'::regclass, 'idem_guidance',
			'text text text text? text?', 6, '{}'),
		('@extschema@.idem_peer'::regclass, 'idem_peer',
			'uuid uuid timestamptz', 0, '{}'),
		('@extschema@.idem_policy'::regclass, 'idem_policy',
			'text _text? _text? text text interval interval interval interval interval interval interval interval? text? text? interval bool',
			18, '{idem_a_stale,idem_b_history,idem_b_history_truncate,idem_c_stale,idem_c_stale_truncate}'),
		('@extschema@.idem_policy_version'::regclass, 'idem_policy_version',
			'text int4 _text? _text? timestamptz timestamptz? interval',
			1, '{idem_a_stale,idem_b_merge,idem_c_stale,idem_c_stale_truncate}'),
		('@extschema@.idem_record'::regclass, 'idem_record',
			'uuid timestamptz timestamptz int4 int4 char char bytea bytea text text timestamptz? text? text? timestamptz timestamptz? jsonb? text? timestamptz? text? text? bytea?',
			7, '{}'),
		('@extschema@.idem_secret'::regclass, 'idem_secret',
			'text bytea bool? timestamptz timestamptz timestamptz?', 4, '{idem_a_stale,idem_c_stale,idem_c_stale_truncate}')
),
named (catalog, object, name) AS (
	SELECT 'pg_class'::regclass, m.relation::oid, m.name FROM made AS m
	UNION ALL VALUES ('pg_class'::regclass, '@extschema@.idem_alerts'::regclass::oid, 'idem_alerts'),
		('pg_class'::regclass, '@extschema@.idem_audit'::regclass::oid, 'idem_audit'),
		('pg_class'::regclass, '@extschema@.idem_in_flight'::regclass::oid, 'idem_in_flight'),
		('pg_class'::regclass, '@extschema@.idem_secrets'::regclass::oid, 'idem_secrets'),
		('pg_class'::regclass, '@extschema@.idem_stat'::regclass::oid, 'idem_stat'),
		('pg_class'::regclass, '@extschema@.idem_stuck'::regclass::oid, 'idem_stuck'),
		('pg_type'::regclass, '@extschema@.idem_ack'::regtype::oid, 'idem_ack'),
		('pg_type'::regclass, '@extschema@.idem_claim'::regtype::oid, 'idem_claim'),
		('pg_type'::regclass, '@extschema@.idem_outcome'::regtype::oid, 'idem_outcome')
),

-- what there is; who owns the functions in C owns all that the script made
extension (oid, schema, owner) AS (
	SELECT e.oid, e.extnamespace, p.proowner
		FROM pg_extension AS e, pg_proc AS p
		WHERE e.extname = 'idem' AND p.oid = '@extschema@._idem_stale()'::regprocedure
),
member (catalog, object, name, schema, owner) AS (
	SELECT d.classid, d.objid, coalesce(c.relname, p.proname, t.typname),
			coalesce(c.relnamespace, p.pronamespace, t.typnamespace), coalesce(c.relowner, p.proowner, t.typowner)
		FROM extension AS x
		JOIN pg_depend AS d ON d.refclassid = 'pg_extension'::regclass AND d.refobjid = x.oid AND d.deptype = 'e'
		LEFT JOIN pg_class AS c ON d.classid = 'pg_class'::regclass AND c.oid = d.objid
		LEFT JOIN pg_proc AS p ON d.classid = 'pg_proc'::regclass AND p.oid = d.objid
		LEFT JOIN pg_type AS t ON d.classid = 'pg_type'::regclass AND t.oid = d.objid
		-- but for the types that come and go with a relation or a type, which are members from PostgreSQL 17 on
		WHERE NOT EXISTS (SELECT FROM pg_depend AS i WHERE i.classid = 'pg_type'::regclass AND i.objid = t.oid AND i.deptype = 'i')
),
-- what has a name of idem's in its schema, and is not its own
stranger (catalog, object) AS (
	SELECT 'pg_proc'::regclass::oid, p.oid
		FROM extension AS x JOIN pg_proc AS p ON p.pronamespace = x.schema
		WHERE starts_with(p.proname::text, 'idem_') OR starts_with(p.proname::text, '_idem_')
	UNION ALL
	SELECT 'pg_class'::regclass::oid, c.oid
		FROM extension AS x JOIN pg_class AS c ON c.relnamespace = x.schema JOIN named AS n ON n.name = c.relname
		WHERE c.relkind <> 'c'
	UNION ALL
	SELECT n.catalog::oid, t.oid
		FROM extension AS x JOIN pg_type AS t ON t.typnamespace = x.schema
		JOIN named AS n ON n.name = t.typname AND n.catalog = 'pg_type'::regclass
	EXCEPT ALL
	SELECT m.catalog, m.object FROM member AS m
),
tables (oid, name, qualified, expected, columns, checks, triggers, kind, persistence, is_related, row_security,
		options, dead, live) AS (
	SELECT m.relation::oid, m.name, format('%I.%I', n.nspname, c.relname), m.columns,
			(SELECT string_agg(CASE WHEN a.attgenerated = '' THEN coalesce(t.typname::text, '-') ELSE '!' END
					|| CASE WHEN a.attnotnull THEN '' ELSE '?' END, ' ' ORDER BY a.attnum)
				FROM pg_attribute AS a
				LEFT JOIN pg_type AS t ON t.oid = a.atttypid AND t.typnamespace = 'pg_catalog'::regnamespace
				WHERE a.attrelid = m.relation AND a.attnum > 0),
			m.checks, m.triggers, c.relkind, c.relpersistence,
			EXISTS (SELECT FROM pg_inherits AS i WHERE m.relation IN (i.inhrelid, i.inhparent)),
			c.relrowsecurity OR c.relforcerowsecurity, coalesce(c.reloptions::text, ''),
			pg_stat_get_dead_tuples(c.oid), pg_stat_get_live_tuples(c.oid)
		FROM made AS m JOIN pg_class AS c ON c.oid = m.relation JOIN pg_namespace AS n ON n.oid = c.relnamespace
),

-- the latest work of each scope
recent AS (
	SELECT r.scope, r.finished_at - r.acquired_at AS took
		FROM @extschema@.idem_record AS r
		WHERE r.retained_until < 'infinity' AND r.state IN ('D', 'F') AND r.reconciled_at IS NULL
		ORDER BY r.retained_until DESC
		LIMIT 10000
),
longest AS (
	SELECT c.scope, max(c.took) AS took FROM recent AS c GROUP BY c.scope
),
leases AS (
	SELECT l.scope, l.took,
			coalesce(p.in_flight_ttl, (SELECT d.in_flight_ttl FROM @extschema@.idem_policy AS d WHERE d.scope = '*'),
				interval '5 minutes') AS lease
		FROM longest AS l LEFT JOIN @extschema@.idem_policy AS p ON p.scope = l.scope
),
-- the view raises an error where nothing is counted
remarkable (scope, finding) AS (
	SELECT f ->> 0, f ->> 1
		FROM jsonb_array_elements(CASE WHEN (SELECT o.is_preloaded FROM @extschema@._idem_settings(NULL::@extschema@.idem_ack) AS o) THEN (
			SELECT jsonb_agg(jsonb_build_array(s.scope, s.finding))
				FROM (SELECT t.scope, t.finding FROM @extschema@.idem_stat AS t WHERE t.finding <> 'nothing remarkable'
					ORDER BY t.calls DESC LIMIT 10) AS s) END) AS f
),

faults (name, status, detail, advice) AS (
	SELECT 'traffic', 'warn', format('scope "%s": %s', s.scope, split_part(s.finding, ':', 1)),
			btrim(coalesce(nullif(split_part(s.finding, ':', 2), ''), 'See the view idem_stat.'))
		FROM remarkable AS s

	-- the server
	UNION ALL
	SELECT 'preload', 'warn', 'the library is not preloaded: nothing is counted, and no worker runs',
			'Set shared_preload_libraries = ''idem'' and restart the server.'
		FROM @extschema@._idem_settings(NULL::@extschema@.idem_ack) AS o
		WHERE NOT o.is_preloaded
	UNION ALL
	SELECT 'worker', 'warn', 'no maintenance worker cares for this database',
			'Name the database in idem.databases and restart, or call idem_maintain() every minute by a scheduler.'
		FROM @extschema@._idem_settings(NULL::@extschema@.idem_ack) AS o
		WHERE NOT pg_is_in_recovery()
		AND NOT (o.is_served AND EXISTS (SELECT FROM pg_stat_activity AS a WHERE a.backend_type = 'idem launcher'))
	UNION ALL
	SELECT 'durability', 'bad', format('%s is off', s.name), 'Turn it on: a crash of the machine could lose grants and results.'
		FROM pg_settings AS s
		WHERE s.name IN ('fsync', 'full_page_writes') AND s.setting = 'off'
	UNION ALL
	SELECT 'replication', 'warn', 'standbys are attached, and none of them is synchronous',
			'Set synchronous_standby_names: the promises outlive a failover only with synchronous replication.'
		WHERE EXISTS (SELECT FROM pg_stat_replication AS r WHERE r.application_name <> 'pg_basebackup')
		AND NOT EXISTS (SELECT FROM pg_stat_replication AS r WHERE r.sync_state IN ('sync', 'quorum'))
	UNION ALL
	SELECT 'fast_path', 'warn', 'idem.fast_path is off', 'Turn it on unless there is a reason: each claim costs two writes without it.'
		FROM @extschema@._idem_settings(NULL::@extschema@.idem_ack) AS o
		WHERE NOT o.fast_path
	UNION ALL
	SELECT 'horizon', 'warn', format('a transaction has been open for %s s', ceil(extract(epoch FROM clock_timestamp() - o.since))),
			'End it: dead rows pile up until then. pg_stat_activity and pg_prepared_xacts show which it is.'
		FROM (SELECT least((SELECT min(a.xact_start) FROM pg_stat_activity AS a WHERE a.backend_xmin IS NOT NULL AND a.datname = current_database()),
				(SELECT min(p.prepared) FROM pg_prepared_xacts AS p WHERE p.database = current_database())) AS since) AS o
		WHERE o.since < clock_timestamp() - interval '1 hour'
	UNION ALL
	SELECT 'horizon', 'warn', format('replication slot "%s" is not in use and holds dead rows', l.slot_name), 'Drop it, or let its standby come back.'
		FROM pg_replication_slots AS l
		WHERE NOT l.active AND coalesce(l.xmin, l.catalog_xmin) IS NOT NULL

	-- claims, clocks and secrets
	UNION ALL
	SELECT 'stuck', 'bad', format('outcomes that nobody knows: %s, the oldest overdue by %s s', count(*), ceil(extract(epoch FROM max(s.overdue)))),
			'SELECT * FROM idem_stuck: look downstream, then paste its reconcile call.'
		FROM @extschema@.idem_stuck AS s
		HAVING count(*) > 0
	UNION ALL
	SELECT 'purge', CASE WHEN o.since < clock_timestamp() - interval '1 day' THEN 'bad' ELSE 'warn' END,
			format('the oldest lapsed record has waited %s s to be deleted', ceil(extract(epoch FROM clock_timestamp() - o.since))),
			'See that idem_maintain() runs every minute, and look for its errors in the server''s log.'
		FROM (SELECT min(r.retained_until) AS since FROM @extschema@.idem_record AS r) AS o
		WHERE o.since < clock_timestamp() - interval '1 hour'
	UNION ALL
	SELECT 'clock', 'bad', format('something on record is %s s in the future', ceil(extract(epoch FROM o.latest - clock_timestamp()))),
			'Keep the servers'' clocks together (NTP): leases and expiries are judged by this one.'
		FROM (SELECT greatest(
				(SELECT max(r.acquired_at) FROM @extschema@.idem_record AS r WHERE r.retained_until = 'infinity'),
				(SELECT max(a.last_at) FROM @extschema@.idem_alert AS a),
				(SELECT max(s.created_at) FROM @extschema@.idem_secret AS s)) AS latest) AS o
		WHERE o.latest > clock_timestamp() + (SELECT s.max_clock_skew FROM @extschema@._idem_settings(NULL::@extschema@.idem_ack) AS s)
	UNION ALL
	SELECT 'secrets', 'bad', 'no secret signs', 'Call idem_rotate_secret(), or bring the former one with idem_import_secret().'
		WHERE NOT EXISTS (SELECT FROM @extschema@.idem_secret AS s WHERE s.signing)
	UNION ALL
	SELECT 'secrets', 'warn', format('the secret that signs is %s days old', floor(extract(epoch FROM clock_timestamp() - s.created_at) / 86400)),
			'Call idem_rotate_secret(): fingerprints already signed stay good.'
		FROM @extschema@.idem_secret AS s
		WHERE s.signing AND s.created_at < clock_timestamp() - interval '1 year'

	-- the two tables of claims
	UNION ALL
	SELECT 'autovacuum', 'bad', format('autovacuum does not care for %s', t.name),
			'Set autovacuum and track_counts to on, and ALTER TABLE ... RESET (autovacuum_enabled).'
		FROM tables AS t
		WHERE t.name IN ('idem_record', 'idem_fast')
		AND (current_setting('autovacuum') <> 'on' OR current_setting('track_counts') <> 'on'
			OR t.options LIKE '%autovacuum_enabled=false%' OR t.options LIKE '%autovacuum_enabled=off%')
	UNION ALL
	SELECT 'autovacuum', 'warn', format('%s has lost the autovacuum settings it came with', t.name),
			'Set them again: docs/operations.md lists them.'
		FROM tables AS t
		WHERE t.name IN ('idem_record', 'idem_fast') AND t.options NOT LIKE '%autovacuum_vacuum_scale_factor=%'
	UNION ALL
	SELECT 'autovacuum', 'warn', format('%s has %s dead rows beside %s live ones', t.name, t.dead, t.live),
			'Look for what holds the horizon back (old transactions, prepared ones, slots); else give autovacuum more workers or less delay.'
		FROM tables AS t
		WHERE t.name IN ('idem_record', 'idem_fast') AND t.dead > greatest(100000, t.live)

	-- whether everything is what the script made
	UNION ALL
	SELECT 'triggers', 'bad', format('%s has triggers or foreign keys of somebody''s', t.name),
			'Drop them: idem refuses to work with them. Put triggers on your own tables.'
		FROM tables AS t
		WHERE EXISTS (SELECT FROM pg_trigger AS g WHERE g.tgrelid = t.oid
			AND (g.tgname::text <> ALL (t.triggers) OR g.tgisinternal OR g.tgqual IS NOT NULL OR NOT EXISTS (
				SELECT FROM member AS m WHERE m.catalog = 'pg_proc'::regclass AND m.object = g.tgfoid)))
	UNION ALL
	SELECT 'triggers', 'bad', format('%s has lost triggers: %s', t.name, string_agg(e, ', ' ORDER BY e)),
			'Create them again as the extension''s script does, and ENABLE ALWAYS: sessions go by what they read before a change.'
		FROM tables AS t, unnest(t.triggers) AS e
		WHERE NOT EXISTS (SELECT FROM pg_trigger AS g WHERE g.tgrelid = t.oid AND g.tgname = e)
		GROUP BY t.name
	UNION ALL
	SELECT 'triggers', 'bad', format('%s has triggers that do not always fire: %s', t.name, string_agg(e, ', ' ORDER BY e)),
			format('ALTER TABLE %s %s;', t.qualified, string_agg(format('ENABLE ALWAYS TRIGGER %I', e), ', ' ORDER BY e))
		FROM tables AS t, unnest(t.triggers) AS e
		JOIN pg_trigger AS g ON g.tgname = e
		WHERE g.tgrelid = t.oid AND g.tgenabled <> 'A'
		GROUP BY t.name, t.qualified
	UNION ALL
	SELECT 'tables', 'bad', format('%s has other columns than it came with', t.name),
			'Restore them. A column that was added leaves a trace when it is dropped, which goes only with a dump and a restore.'
		FROM tables AS t
		WHERE t.columns IS DISTINCT FROM t.expected
	UNION ALL
	SELECT 'tables', 'bad', format('%s takes part in inheritance, or is no plain table', t.name),
			'Put it back as it was: NO INHERIT, DETACH PARTITION, SET LOGGED.'
		FROM tables AS t
		WHERE t.kind <> 'r' OR t.is_related OR (t.persistence <> 'p' AND t.name <> 'idem_fast')
	UNION ALL
	SELECT 'tables', 'bad', format('%s has rules, or other check constraints than it came with', t.name),
			'Drop what was added, and restore what was dropped.'
		FROM tables AS t
		WHERE EXISTS (SELECT FROM pg_rewrite AS r WHERE r.ev_class = t.oid)
		OR t.checks <> (SELECT count(*) FROM pg_constraint AS c WHERE c.conrelid = t.oid AND c.contype = 'c')
	UNION ALL
	SELECT 'tables', 'bad', format('index %I on %s has an expression, a predicate or an exclusion constraint', c.relname, t.name),
			'Drop it: it would be evaluated with the rights of every caller. Plain indexes are welcome.'
		FROM tables AS t JOIN pg_index AS i ON i.indrelid = t.oid JOIN pg_class AS c ON c.oid = i.indexrelid
		WHERE i.indexprs IS NOT NULL OR i.indpred IS NOT NULL OR i.indisexclusion
	UNION ALL
	SELECT 'members', 'bad', format('%s %s belongs to the extension, and is not what its script made', o.type, o.identity),
			'Where somebody added it, take it out with ALTER EXTENSION idem DROP; else give it back its owner and its schema.'
		FROM extension AS x, member AS m, pg_identify_object(m.catalog, m.object, 0) AS o
		WHERE m.owner IS DISTINCT FROM x.owner OR m.schema IS DISTINCT FROM x.schema
	UNION ALL
	SELECT 'members', 'bad', format('%s was renamed, or taken out of the extension', n.name),
			'Give it back its name, or put it back with ALTER EXTENSION idem ADD.'
		FROM named AS n
		WHERE NOT EXISTS (SELECT FROM member AS m WHERE m.catalog = n.catalog AND m.object = n.object AND m.name = n.name)
	UNION ALL
	SELECT 'members', 'bad', format('%s %s has a name of idem''s, and is somebody else''s', o.type, o.identity),
			'Drop or rename it: whoever calls idem by that name may run it. Let nobody but trusted roles create in the schema.'
		FROM stranger AS s, pg_identify_object(s.catalog, s.object, 0) AS o
	UNION ALL
	SELECT 'row_security', 'bad', format('%s has row security: it hides rows from those whom idem_grant let in', t.name),
			format('ALTER TABLE %s DISABLE ROW LEVEL SECURITY, NO FORCE ROW LEVEL SECURITY;', t.qualified)
		FROM tables AS t
		WHERE t.row_security AND t.name <> 'idem_secret'

	UNION ALL
	SELECT DISTINCT 'bindings', 'bad',
			format('role "%s" is bound to a subject, and nothing says to which: its calls are refused', coalesce(r.rolname, 'public')),
			'Bind it again: SELECT idem_grant(role, set, subject_setting => ..). A restore without data, or under another name, loses it.'
		FROM pg_proc AS p, aclexplode(p.proacl) AS x LEFT JOIN pg_roles AS r ON r.oid = x.grantee
		WHERE p.oid IN ('@extschema@._idem_bound_signer()'::regprocedure, '@extschema@._idem_bound_caller()'::regprocedure)
		AND x.grantee <> p.proowner AND NOT x.is_grantable
		AND NOT EXISTS (SELECT FROM @extschema@.idem_binding AS b WHERE b.role_oid = x.grantee
			OR (b.role = r.rolname AND NOT EXISTS (SELECT FROM pg_roles AS o WHERE o.oid = b.role_oid)))

	-- the policies
	UNION ALL
	(SELECT 'policies', 'warn',
			format('scope "%s": work took up to %s s, and in_flight_ttl is %s s', s.scope,
				ceil(extract(epoch FROM s.took)), extract(epoch FROM s.lease)::int8),
			'Make in_flight_ttl and downstream_max longer than the work really takes, or let holders call idem_renew().'
		FROM leases AS s
		WHERE s.took > s.lease
		ORDER BY s.scope
		LIMIT 10)
)
SELECT f.name, f.status, f.detail, f.advice FROM faults AS f
UNION ALL
SELECT c.name, 'ok',
		CASE WHEN c.name = 'traffic' AND NOT (SELECT o.is_preloaded FROM @extschema@._idem_settings(NULL::@extschema@.idem_ack) AS o) THEN 'not counted: the library is not preloaded' END, NULL
	FROM checks AS c
	WHERE NOT EXISTS (SELECT FROM faults AS f WHERE f.name = c.name);
END;
COMMENT ON FUNCTION @extschema@.idem_health() IS
	'one row for each check, or for each fault it found: its name, ok, warn or bad, what was seen, what to do';


-- ---------------------------------------------------------------------------------------------------------
-- Privileges
-- ---------------------------------------------------------------------------------------------------------

-- Which set opens what is a table in src/privilege.c.

CREATE FUNCTION @extschema@.idem_privileges(
	OUT set          text,
	OUT name         text,
	OUT privilege    text
) RETURNS SETOF record
	LANGUAGE C IMMUTABLE PARALLEL SAFE
	AS 'MODULE_PATHNAME', 'idem_privileges';
COMMENT ON FUNCTION @extschema@.idem_privileges() IS 'what each set that idem_grant hands out consists of';

CREATE FUNCTION @extschema@.idem_grant(
	role             regrole,
	set              text,
	subject_setting  text DEFAULT NULL
) RETURNS void
	LANGUAGE C VOLATILE CALLED ON NULL INPUT PARALLEL UNSAFE
	AS 'MODULE_PATHNAME', 'idem_grant';
COMMENT ON FUNCTION @extschema@.idem_grant(regrole, text, text) IS
	'let a role sign (signer), act (caller), look on (auditor), intervene (operator) or rule (admin), a signer or caller for the subject alone that a setting holds; USAGE on the schema is granted apart';

CREATE FUNCTION @extschema@.idem_revoke(
	role             regrole,
	set              text
) RETURNS void
	LANGUAGE C VOLATILE CALLED ON NULL INPUT PARALLEL UNSAFE
	AS 'MODULE_PATHNAME', 'idem_revoke';
COMMENT ON FUNCTION @extschema@.idem_revoke(regrole, text) IS
	'take back what idem_grant gave; what another set of the role has in common goes too: grant that one again';

CREATE FUNCTION @extschema@.idem_grant_owner() RETURNS void
	LANGUAGE C VOLATILE PARALLEL UNSAFE
	AS 'MODULE_PATHNAME', 'idem_grant_owner';
COMMENT ON FUNCTION @extschema@.idem_grant_owner() IS
	'give the extension''s present owner what the role got that installed it; he calls it after REASSIGN OWNED';

-- What the extension consists of, for the scripts of updates (src/member.c)

CREATE FUNCTION @extschema@._idem_member_list() RETURNS SETOF text
	LANGUAGE C STABLE PARALLEL UNSAFE
	AS 'MODULE_PATHNAME', 'idem_member_list';
COMMENT ON FUNCTION @extschema@._idem_member_list() IS
	'internal: the extension''s members, as _idem_check_members wants them';

CREATE FUNCTION @extschema@._idem_check_members(
	expected         text[],
	@extschema@.idem_ack
) RETURNS void
	LANGUAGE C VOLATILE CALLED ON NULL INPUT PARALLEL UNSAFE
	AS 'MODULE_PATHNAME', 'idem_check_members';
COMMENT ON FUNCTION @extschema@._idem_check_members(text[], @extschema@.idem_ack) IS
	'internal: at the head of an update, refuse where the members are not exactly the former version''s, in its schema and with its owner';
-- An event trigger may have switched row security on for each new table.  It would hide rows from those whom
-- idem_grant lets in, and what they change would change nothing.
ALTER TABLE @extschema@.idem_alert DISABLE ROW LEVEL SECURITY, NO FORCE ROW LEVEL SECURITY;
ALTER TABLE @extschema@.idem_binding DISABLE ROW LEVEL SECURITY, NO FORCE ROW LEVEL SECURITY;
ALTER TABLE @extschema@.idem_fast DISABLE ROW LEVEL SECURITY, NO FORCE ROW LEVEL SECURITY;
ALTER TABLE @extschema@.idem_peer DISABLE ROW LEVEL SECURITY, NO FORCE ROW LEVEL SECURITY;
ALTER TABLE @extschema@.idem_guidance DISABLE ROW LEVEL SECURITY, NO FORCE ROW LEVEL SECURITY;
ALTER TABLE @extschema@.idem_policy DISABLE ROW LEVEL SECURITY, NO FORCE ROW LEVEL SECURITY;
ALTER TABLE @extschema@.idem_policy_version DISABLE ROW LEVEL SECURITY, NO FORCE ROW LEVEL SECURITY;
ALTER TABLE @extschema@.idem_record DISABLE ROW LEVEL SECURITY, NO FORCE ROW LEVEL SECURITY;

-- What pg_dump carries.  Not the secrets, and not the unlogged claims of transactions that are open.
SELECT pg_extension_config_dump('@extschema@.idem_policy', '');
SELECT pg_extension_config_dump('@extschema@.idem_policy_version', '');
SELECT pg_extension_config_dump('@extschema@.idem_record', '');
SELECT pg_extension_config_dump('@extschema@.idem_alert', '');
SELECT pg_extension_config_dump('@extschema@.idem_guidance', '');
SELECT pg_extension_config_dump('@extschema@.idem_peer', '');
SELECT pg_extension_config_dump('@extschema@.idem_binding', '');

-- Nothing is open to anybody, PUBLIC and default privileges included; then the installing role gets all, to
-- use and to grant: of a trusted installation it is not the owner.  An update does the same to what it adds.
CREATE FUNCTION @extschema@._idem_close(
	added            text[],
	@extschema@.idem_ack
) RETURNS void
	LANGUAGE C VOLATILE CALLED ON NULL INPUT PARALLEL UNSAFE
	AS 'MODULE_PATHNAME', 'idem_close';
COMMENT ON FUNCTION @extschema@._idem_close(text[], @extschema@.idem_ack) IS
	'internal: at an installation (null) or an update (the names of what it adds), close everything but to the installing role';
SELECT @extschema@._idem_close(NULL::text[], NULL::@extschema@.idem_ack);
