-- router.sql: put a database in front of several that have idem, one shard each. See README.md here.
--
--   psql -v ON_ERROR_STOP=1 -v client=gateway -d router -f router.sql
--
-- The database has the extensions idem and plproxy and a foreign server "idem" with the shards p0, p1, ...; the
-- role "client" gets what callers need. The functions stand in the schema "router", under idem's names and with
-- idem's arguments: a caller whose search_path begins with it need not know that there is a router. Run again, the
-- script replaces them.
--
-- Names are qualified, and bound when the functions are created: nothing here depends on a search path.

SELECT extnamespace::pg_catalog.regnamespace AS idem FROM pg_catalog.pg_extension WHERE extname = 'idem' \gset
CREATE SCHEMA IF NOT EXISTS router;
SET search_path = pg_catalog, pg_temp;
BEGIN;

-- ---------------------------------------------------------------------------------------------------------
-- Where an operation lives
-- ---------------------------------------------------------------------------------------------------------

-- The shards know the router alone, and not who calls it: they cannot hold a caller to its subject. So the router does
-- not serve roles that are bound to one (idem_grant(.., subject_setting => ..) here). Whether the caller is, idem
-- decides, by its own rules: it is asked for a subject that nobody can have foreseen, and refuses it for who is bound.
CREATE OR REPLACE FUNCTION router.serves() RETURNS boolean LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
	idem text := (SELECT extnamespace::regnamespace FROM pg_extension WHERE extname = 'idem');
BEGIN
	EXECUTE format('SELECT %s.idem_key(gen_random_uuid()::text, ''router'', ''{}''::jsonb, ''router'')', idem);
	RETURN true;
EXCEPTION WHEN insufficient_privilege THEN
	RAISE EXCEPTION '%', SQLERRM USING ERRCODE = 'insufficient_privilege',
		DETAIL = 'A role that is bound to a subject is not served through the router, whose shards do not know who calls.',
		HINT = 'Call as a role without a binding, and compare the subject with the authenticated one before; or connect to a shard, as a role that is bound there.';
END
$$;

-- The number of shards is that of the server's partitions and stands nowhere else: two numbers could differ.
CREATE OR REPLACE FUNCTION router.shards() RETURNS int LANGUAGE sql
BEGIN ATOMIC
	SELECT CASE WHEN router.serves() THEN (
		SELECT count(*)::int FROM pg_foreign_server AS s, unnest(s.srvoptions) AS o WHERE s.srvname = 'idem' AND o ~ '^p[0-9]+=') END;
END;

CREATE OR REPLACE FUNCTION router.any_shard() RETURNS int LANGUAGE sql
BEGIN ATOMIC
	SELECT floor(random() * router.shards())::int;
END;

CREATE OR REPLACE FUNCTION router.shard(fingerprint text) RETURNS int LANGUAGE sql
BEGIN ATOMIC
	SELECT :idem.idem_shard(fingerprint, router.shards());
END;

CREATE OR REPLACE FUNCTION router.shard(key uuid) RETURNS int LANGUAGE sql
BEGIN ATOMIC
	SELECT :idem.idem_shard_key(key, router.shards());
END;

-- A direct call goes by the key that it will have, with the lists of the policies here.
CREATE OR REPLACE FUNCTION router.shard(subject text, scope text, params jsonb, client_key text, fingerprint text DEFAULT NULL)
RETURNS int LANGUAGE sql
BEGIN ATOMIC
	SELECT CASE WHEN fingerprint IS NULL
		THEN :idem.idem_shard_key(:idem.idem_key(subject, scope, params, client_key), router.shards())
		ELSE :idem.idem_shard(fingerprint, router.shards()) END;
END;

-- ---------------------------------------------------------------------------------------------------------
-- Calls: each is one transaction on one shard
-- ---------------------------------------------------------------------------------------------------------

-- A fingerprint's key is not known before it is signed, and every shard has the secret.
CREATE OR REPLACE FUNCTION router.idem_sign(subject text, scope text, params jsonb, not_after timestamptz DEFAULT NULL,
	confirm_repeat boolean DEFAULT false)
RETURNS text LANGUAGE plproxy AS $$
	CLUSTER 'idem';
	RUN ON router.any_shard();
	SELECT idem_sign(subject, scope, params, not_after, confirm_repeat);
$$;

CREATE OR REPLACE FUNCTION router.idem_preview(subject text, scope text, params jsonb, not_after timestamptz DEFAULT NULL,
	confirm_repeat boolean DEFAULT false)
RETURNS jsonb LANGUAGE plproxy AS $$
	CLUSTER 'idem';
	RUN ON router.any_shard();
	SELECT idem_preview(subject, scope, params, not_after, confirm_repeat);
$$;

CREATE OR REPLACE FUNCTION router.idem_acquire(fingerprint text, subject text, scope text, params jsonb, wait interval DEFAULT '0',
	owner uuid DEFAULT NULL, holder text DEFAULT NULL, trace_id text DEFAULT NULL)
RETURNS :idem.idem_claim LANGUAGE plproxy AS $$
	CLUSTER 'idem';
	RUN ON router.shard(fingerprint);
	SELECT * FROM idem_acquire(fingerprint, subject, scope, params, wait, owner, holder, trace_id);
$$;

CREATE OR REPLACE FUNCTION router.idem_acquire_direct(subject text, scope text, params jsonb, client_key text DEFAULT NULL,
	wait interval DEFAULT '0', owner uuid DEFAULT NULL, holder text DEFAULT NULL, trace_id text DEFAULT NULL,
	confirm_repeat boolean DEFAULT false)
RETURNS :idem.idem_claim LANGUAGE plproxy AS $$
	CLUSTER 'idem';
	RUN ON router.shard(subject, scope, params, client_key);
	SELECT * FROM idem_acquire_direct(subject, scope, params, client_key, wait, owner, holder, trace_id, confirm_repeat);
$$;

CREATE OR REPLACE FUNCTION router.idem_commit(key uuid, owner uuid, result jsonb DEFAULT NULL, result_ref text DEFAULT NULL)
RETURNS :idem.idem_ack LANGUAGE plproxy AS $$
	CLUSTER 'idem';
	RUN ON router.shard(key);
	SELECT idem_commit(key, owner, result, result_ref);
$$;

CREATE OR REPLACE FUNCTION router.idem_fail(key uuid, owner uuid, reason jsonb, retryable boolean DEFAULT false)
RETURNS :idem.idem_ack LANGUAGE plproxy AS $$
	CLUSTER 'idem';
	RUN ON router.shard(key);
	SELECT idem_fail(key, owner, reason, retryable);
$$;

CREATE OR REPLACE FUNCTION router.idem_release(key uuid, owner uuid)
RETURNS :idem.idem_ack LANGUAGE plproxy AS $$
	CLUSTER 'idem';
	RUN ON router.shard(key);
	SELECT idem_release(key, owner);
$$;

CREATE OR REPLACE FUNCTION router.idem_renew(key uuid, owner uuid, lease interval DEFAULT NULL)
RETURNS :idem.idem_ack LANGUAGE plproxy AS $$
	CLUSTER 'idem';
	RUN ON router.shard(key);
	SELECT idem_renew(key, owner, lease);
$$;

CREATE OR REPLACE FUNCTION router.idem_status(fingerprint text, subject text, wait interval DEFAULT '0')
RETURNS :idem.idem_claim LANGUAGE plproxy AS $$
	CLUSTER 'idem';
	RUN ON router.shard(fingerprint);
	SELECT * FROM idem_status(fingerprint, subject, wait);
$$;

CREATE OR REPLACE FUNCTION router.idem_status_key(key uuid, subject text, wait interval DEFAULT '0')
RETURNS :idem.idem_claim LANGUAGE plproxy AS $$
	CLUSTER 'idem';
	RUN ON router.shard(key);
	SELECT * FROM idem_status_key(key, subject, wait);
$$;

-- fn is a function of the shards, which the router need not have: its name and argument, as text.
CREATE OR REPLACE FUNCTION router.idem_execute(subject text, scope text, params jsonb, fn text, fingerprint text DEFAULT NULL,
	client_key text DEFAULT NULL, wait interval DEFAULT '30 s', trace_id text DEFAULT NULL,
	confirm_repeat boolean DEFAULT false)
RETURNS :idem.idem_claim LANGUAGE plproxy AS $$
	CLUSTER 'idem';
	RUN ON router.shard(subject, scope, params, client_key, fingerprint);
	SELECT * FROM idem_execute(subject, scope, params, fn::regprocedure, fingerprint, client_key, wait, trace_id, confirm_repeat);
$$;

CREATE OR REPLACE FUNCTION router.idem_reconcile(key uuid, verdict text, note text, result jsonb DEFAULT NULL,
	result_ref text DEFAULT NULL, force boolean DEFAULT false)
RETURNS :idem.idem_ack LANGUAGE plproxy AS $$
	CLUSTER 'idem';
	RUN ON router.shard(key);
	SELECT idem_reconcile(key, verdict, note, result, result_ref, force);
$$;

-- ---------------------------------------------------------------------------------------------------------
-- All shards at once, for operators
-- ---------------------------------------------------------------------------------------------------------

CREATE OR REPLACE FUNCTION router.stuck(OUT key uuid, OUT scope text, OUT subject text, OUT overdue interval)
RETURNS SETOF record LANGUAGE plproxy AS $$
	CLUSTER 'idem';
	RUN ON ALL;
	SELECT s.key, s.scope, s.subject, s.overdue FROM idem_stuck AS s;
$$;

-- What must be the same on all of them: policies with their history, and the secrets. One row for each shard; where
-- they agree all rows are equal.
CREATE OR REPLACE FUNCTION router.settings(OUT policies text, OUT secrets text, OUT signing text)
RETURNS SETOF record LANGUAGE plproxy AS $$
	CLUSTER 'idem';
	RUN ON ALL;
	SELECT (SELECT md5(string_agg(p::text, E'\n' ORDER BY p.scope)) FROM idem_policy AS p) AS policies,
		(SELECT string_agg(s.id, ' ' ORDER BY s.id) FROM idem_secrets AS s WHERE s.revoked_at IS NULL) AS secrets,
		(SELECT s.id FROM idem_secrets AS s WHERE s.signing) AS signing;
$$;

CREATE OR REPLACE FUNCTION router.agree() RETURNS boolean LANGUAGE sql
BEGIN ATOMIC
	SELECT count(DISTINCT s) = 1 AND count(s.signing) = count(*) FROM router.settings() AS s;
END;

-- ---------------------------------------------------------------------------------------------------------
-- Privileges
-- ---------------------------------------------------------------------------------------------------------

-- Nothing of this is open to everybody. Of the router's own idem the client gets what computes and writes nothing:
-- an acquire that missed the router would be granted here, beside the shards.
REVOKE ALL ON ALL FUNCTIONS IN SCHEMA router FROM PUBLIC;
GRANT USAGE ON SCHEMA router TO :"client";
GRANT USAGE ON FOREIGN SERVER idem TO :"client";
GRANT EXECUTE ON FUNCTION router.serves(), router.shards(), router.any_shard(), router.shard(text), router.shard(uuid), router.shard(text, text, jsonb, text, text),
	router.idem_sign, router.idem_preview, router.idem_acquire, router.idem_acquire_direct, router.idem_commit, router.idem_fail,
	router.idem_release, router.idem_renew, router.idem_status, router.idem_status_key, router.idem_execute TO :"client";
GRANT EXECUTE ON FUNCTION :idem.idem_shard, :idem.idem_shard_key, :idem.idem_key, :idem.idem_downstream_key,
	:idem.idem_canonical, :idem.idem_param_hash, :idem.idem_reply, :idem.idem_http, :idem.idem_http_key TO :"client";

COMMIT;
