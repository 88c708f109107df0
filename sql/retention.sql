-- Retention: what has lapsed counts as absent at once, and purge takes it away in batches (P2, P5, P6).
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS idem CASCADE;
RESET client_min_messages;
CREATE SCHEMA idem_test_retention;
SET search_path = idem_test_retention, public;
SET timezone = 'UTC';

CREATE FUNCTION tell(c idem_claim) RETURNS text LANGUAGE sql AS $$
	SELECT concat_ws(' ', c.outcome, c.attempt, CASE WHEN c.replayed THEN 'replayed' END, CASE WHEN c.joined THEN 'joined' END,
		CASE WHEN c.owner IS NOT NULL THEN 'owner' END, c.result, c.result_ref, CASE WHEN c.lease_until IS NOT NULL THEN 'lease' END,
		CASE WHEN c.finished_at IS NOT NULL THEN 'finished' END, CASE WHEN c.retained_until IS NOT NULL THEN 'retained' END, c.trace_id)
$$;
-- what a statement raises: SQLSTATE, message, hint
CREATE FUNCTION raised(statement text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	state text; message text; hint text;
BEGIN
	EXECUTE statement;
	RETURN 'nothing';
EXCEPTION WHEN OTHERS THEN
	GET STACKED DIAGNOSTICS state = RETURNED_SQLSTATE, message = MESSAGE_TEXT, hint = PG_EXCEPTION_HINT;
	RETURN concat_ws(' | ', state, message, CASE WHEN hint = '' THEN 'NO HINT' END);
END
$$;
-- the effect, counted; it answers with how often it has run for these parameters
INSERT INTO idem_policy (scope, downstream) VALUES ('rt.pay', 'opaque');
CREATE FUNCTION lapse(k uuid) RETURNS void LANGUAGE sql AS $$
	UPDATE idem_record SET retained_until = clock_timestamp() WHERE key = k
$$;

-- absent at once, by every door: a new first attempt under the same key -----------------------------------------------
SELECT tell(c), c.key AS k, c.owner AS o FROM idem_acquire_direct('alice', 'rt.pay', '{"x": 1}') AS c \gset
SELECT idem_commit(:'k', :'o', '1');
SELECT tell(c) FROM idem_acquire_direct('alice', 'rt.pay', '{"x": 1}') AS c;
SELECT lapse(:'k');
SELECT tell(c) FROM idem_status_key(:'k', 'alice') AS c;
SELECT idem_commit(:'k', :'o', '1') AS late, idem_reconcile(:'k', 'DONE', 'note', '1') AS verdict;
SELECT tell(c), c.key = :'k' AS same_key, c.owner AS o FROM idem_acquire_direct('alice', 'rt.pay', '{"x": 1}') AS c \gset
\echo :tell :same_key
SELECT idem_commit(:'k', :'o', '2');
SELECT tell(c) FROM idem_acquire_direct('alice', 'rt.pay', '{"x": 1}') AS c;
-- by a client's key with other parameters, too: nothing is left that they could differ from
SELECT c.key AS k, c.owner AS o FROM idem_acquire_direct('alice', 'rt.pay', '{"x": 1}', 'c-1') AS c \gset
SELECT idem_commit(:'k', :'o', '1');
SELECT tell(c) FROM idem_acquire_direct('alice', 'rt.pay', '{"x": 2}', 'c-1') AS c;
SELECT lapse(:'k');
SELECT tell(c) FROM idem_acquire_direct('alice', 'rt.pay', '{"x": 2}', 'c-1') AS c;
SELECT tell(c) FROM idem_acquire_direct('alice', 'rt.pay', '{"x": 1}', 'c-1') AS c;
-- P6: a fingerprint's record that lapsed after its time never executes again
SELECT idem_sign('alice', 'rt.pay', '{"x": 3}', not_after => clock_timestamp() + '1.2 s') AS fp \gset
SELECT c.key AS k, c.owner AS o FROM idem_acquire(:'fp', 'alice', 'rt.pay', '{"x": 3}') AS c \gset
SELECT idem_commit(:'k', :'o', '3');
SELECT pg_sleep(greatest(0, extract(epoch FROM expires_at - clock_timestamp()))) FROM idem_inspect(:'fp');
SELECT tell(c) FROM idem_acquire(:'fp', 'alice', 'rt.pay', '{"x": 3}') AS c;
SELECT lapse(:'k');
SELECT tell(c) FROM idem_acquire(:'fp', 'alice', 'rt.pay', '{"x": 3}') AS c;
SELECT tell(c) FROM idem_status(:'fp', 'alice') AS c;
-- by its key as well: the record still says when its fingerprint expired
SELECT tell(c) FROM idem_status_key(:'k', 'alice') AS c;

-- how long: the later of result_ttl and the fingerprint's time with the allowed skew ----------------------------------
INSERT INTO idem_policy (scope, fingerprint_ttl, caller_retry_window, result_ttl) VALUES ('rt.short', '1 hour', '1 min', '2 min');
CREATE FUNCTION finish(what text, by_fingerprint bool) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	c idem_claim;
	p jsonb := to_jsonb(what || by_fingerprint);
	r record;
BEGIN
	IF by_fingerprint THEN
		c := idem_acquire(idem_sign('alice', 'rt.short', p), 'alice', 'rt.short', p);
	ELSE
		c := idem_acquire_direct('alice', 'rt.short', p);
	END IF;
	CASE what
		WHEN 'commit' THEN PERFORM idem_commit(c.key, c.owner);
		WHEN 'fail' THEN PERFORM idem_fail(c.key, c.owner, '1');
		WHEN 'retryable' THEN PERFORM idem_fail(c.key, c.owner, '1', true);
	END CASE;
	SELECT retained_until - finished_at AS ttl, retained_until - expires_at AS after_expiry INTO r FROM idem_record WHERE key = c.key;
	RETURN CASE WHEN r.ttl = '2 min' THEN 'result_ttl' WHEN r.after_expiry = '5 s' THEN 'expiry and skew' ELSE r::text END;
END
$$;
SELECT what, finish(what, false) AS direct, finish(what, true) AS fingerprint FROM unnest('{commit,fail,retryable}'::text[]) AS what;
SELECT key AS k, owner AS o FROM idem_acquire_direct('alice', 'rt.short', '"in flight"') \gset
SELECT retained_until FROM idem_record WHERE key = :'k';
SELECT idem_reconcile(:'k', 'RETRY', 'note', force => true);
SELECT retained_until - finished_at FROM idem_record WHERE key = :'k';

-- H06, P5: purge takes nothing that is at work, and nothing that has not lapsed ----------------------------------------
SELECT idem_purge(100000) >= 0;
SELECT m, raised(format('SELECT idem_purge(%s)', m)) FROM unnest('{"NULL",0,-1}'::text[]) AS m;
CREATE FUNCTION fill(s text, n int) RETURNS void LANGUAGE sql AS $$
	INSERT INTO idem_record (key, acquired_at, lease_until, policy_version, attempt, state, downstream, param_hash, owner_hash, scope, subject, retained_until, finished_at)
		SELECT gen_random_uuid(), t - '2 h'::interval, t - '2 h'::interval, 0, 1, ('{D,F,R}'::text[])[n % 3 + 1]::"char", 'o', sha256(''), sha256(''), s, 'alice', t, t - '1 h'::interval
		FROM generate_series(1, n) AS n, LATERAL (SELECT clock_timestamp() - n * '1 s'::interval) AS x(t)
$$;
SELECT fill('rt.fill', 1000);
SELECT count(*) AS at_work FROM generate_series(1, 10) AS n, LATERAL idem_acquire_direct('alice', 'rt.pay', to_jsonb('busy ' || n)) AS c WHERE c.outcome = 'ACQUIRED';
UPDATE idem_record SET lease_until = '2020-01-01' WHERE scope = 'rt.pay' AND state = 'I';
-- the oldest first, at most so many
SELECT idem_purge(300);
SELECT count(*), max(retained_until) < clock_timestamp() - '1 s'::interval AS oldest_went FROM idem_record WHERE scope = 'rt.fill';
SELECT idem_purge(300), idem_purge(300), idem_purge(300), idem_purge(300);
SELECT state, count(*) FROM idem_record WHERE scope = 'rt.pay' GROUP BY 1 ORDER BY 1;
-- rolled back, nothing went
SELECT fill('rt.fill', 100);
BEGIN;
SELECT idem_purge();
ROLLBACK;
SELECT count(*) FROM idem_record WHERE scope = 'rt.fill';
-- maintenance in one call: purge, stuck alerts once, old alerts
SELECT count(*) FROM idem_alert AS a JOIN idem_record AS r USING (key) WHERE r.scope = 'rt.pay' AND kind = 'stuck';
SELECT purged, newly_stuck >= 10 AS newly_stuck FROM idem_maintain();
SELECT purged, newly_stuck FROM idem_maintain();
SELECT count(*), min(detail ->> 'attempt') FROM idem_alert AS a JOIN idem_record AS r USING (key) WHERE r.scope = 'rt.pay' AND kind = 'stuck';
-- a lease that was renewed, and is over once more: told once more
UPDATE idem_record SET lease_until = clock_timestamp() WHERE key = (SELECT r.key FROM idem_alert AS a JOIN idem_record AS r USING (key) WHERE r.scope = 'rt.pay' AND a.kind = 'stuck' LIMIT 1);
SELECT newly_stuck FROM idem_maintain();
INSERT INTO idem_alert SELECT gen_random_uuid(), 'takeover', 1, now() - '10 years'::interval, now() - '10 years'::interval, 'x' FROM generate_series(1, 5);
SELECT alerts_purged FROM idem_maintain();
SELECT count(*) FROM idem_alert WHERE last_at < now() - '9 years'::interval;
BEGIN READ ONLY;
SELECT raised('SELECT idem_purge()'), raised('SELECT idem_maintain()');
COMMIT;

DELETE FROM idem_policy WHERE scope LIKE 'rt.%';
