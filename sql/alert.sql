-- Alerts: a row for each operation and kind (P4, P7). The log lines are tested by TAP.
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS idem CASCADE;
RESET client_min_messages;
CREATE SCHEMA idem_test_alert;
SET search_path = idem_test_alert, public;
\set VERBOSITY sqlstate
DELETE FROM idem_record;
DELETE FROM idem_alert;

CREATE FUNCTION acquire(n int, holder text DEFAULT NULL) RETURNS text LANGUAGE sql AS $$
	SELECT outcome FROM idem_acquire_direct('alice', 'alert', to_jsonb(n), owner => '00000000-0000-4000-8000-000000000001', holder => holder)
$$;
CREATE FUNCTION k(n int) RETURNS uuid LANGUAGE sql AS $$ SELECT idem_key('alice', 'alert', to_jsonb(n)) $$;
\set mine '''00000000-0000-4000-8000-000000000001'''
\set late '''00000000-0000-4000-8000-000000000002'''
\set never '''00000000-0000-4000-8000-000000000003'''
-- a second passes
CREATE FUNCTION later() RETURNS void LANGUAGE sql AS $$ UPDATE idem_alert SET last_at = last_at - interval '2 s', first_at = first_at - interval '2 s' $$;
CREATE VIEW alerts AS SELECT kind, count, scope, subject, role = current_user AS mine, first_at < last_at AS lasting, detail FROM idem_alert ORDER BY kind, scope;

-- P7: a good token used wrongly. The row is the operation's; what was brought is in the detail ----------------------------
SELECT idem_sign('alice', 'alert', '{"amount": 199}') AS fp \gset
SELECT outcome FROM idem_acquire(:'fp', 'alice', 'alert', '{"amount": 200, "iban": "DE02 1234"}', holder => 'gw-1');
SELECT outcome FROM idem_acquire(:'fp', 'bob', 'alert', '{"amount": 199}');
SELECT outcome FROM idem_acquire(:'fp', 'alice', 'alert.other', '{"amount": 199}');
SELECT * FROM alerts;
SELECT count(DISTINCT a.key), bool_and(a.key = i.key) AS key FROM idem_alert AS a, idem_inspect(:'fp') AS i;
-- neither the right parameters nor the wrong ones, nor the token, nor a hash
SELECT count(*) FROM idem_alert AS a WHERE concat_ws(' ', a.kind, a.scope, a.subject, a.detail) ~ '200|199|DE02' OR strpos(a::text, :'fp') > 0 OR strpos(a::text, encode(idem_param_hash(NULL, '{"amount": 200, "iban": "DE02 1234"}'), 'hex')) > 0;
-- at most once a second, however often; then counted
SELECT count(*) FROM generate_series(1, 50), idem_acquire(:'fp', 'bob', 'alert', '{"amount": 199}');
SELECT kind, count, lasting FROM alerts;
SELECT later();
SELECT outcome FROM idem_acquire(:'fp', 'carol', 'alert', '{"amount": 199}');
SELECT kind, count, lasting, detail FROM alerts WHERE kind = 'subject_mismatch';
-- rolled back by the caller, the row goes with it
BEGIN;
SELECT outcome FROM idem_acquire(idem_sign('alice', 'alert.rolled', '1'), 'bob', 'alert.rolled', '1');
SELECT count(*) FROM idem_alert WHERE scope = 'alert.rolled';
ROLLBACK;
SELECT count(*) FROM idem_alert WHERE scope = 'alert.rolled';
-- forged, expired, and never heard of: no row
DELETE FROM idem_alert;
SELECT outcome FROM unnest(ARRAY[NULL, 'x', :'fp' || 'A', 'a.b']) AS t, idem_acquire(t, 'alice', 'alert', '1');
SELECT idem_commit(gen_random_uuid(), gen_random_uuid(), '"x"'), idem_release(gen_random_uuid(), gen_random_uuid());
-- a status writes nothing, whoever asks
SELECT outcome FROM idem_status(:'fp', 'bob');
SELECT outcome FROM idem_status_key((SELECT key FROM idem_inspect(:'fp')), 'bob');
-- nor is it an alert to be refused by a claim in flight, or to replay
SELECT acquire(1), acquire(1);
SELECT outcome FROM idem_acquire_direct('alice', 'alert', '1');
SELECT count(*) FROM idem_alert;
-- a client's key with other parameters
SELECT count(*) FROM unnest('{1,2}'::text[]) AS p, idem_acquire_direct('alice', 'alert.client', to_jsonb(p), 'order');
SELECT * FROM alerts;
DELETE FROM idem_alert;

-- P4: a holder that has lost its claim: the first and the latest of what came late is kept ------------------------------------
INSERT INTO idem_policy (scope, downstream) VALUES ('alert', 'idempotent');
-- :late held it, its lease ended, and :mine took over
CREATE FUNCTION hold(n int) RETURNS text LANGUAGE sql AS $$
	SELECT outcome FROM idem_acquire_direct('alice', 'alert', to_jsonb(n), owner => '00000000-0000-4000-8000-000000000002')
$$;
CREATE FUNCTION let_go() RETURNS void LANGUAGE sql AS $$ UPDATE idem_record SET lease_until = '2020-01-01' $$;
SELECT hold(n) FROM unnest('{5,10,11,12,13,14,15,16,18}'::int[]) AS n;
SELECT let_go();
SELECT acquire(n) FROM unnest('{5,10,11,12,13,14,15,16,18}'::int[]) AS n;
DELETE FROM idem_alert;
SELECT idem_commit(k(5), :late, '{"receipt": 1}', 'ref-1');
SELECT later();
SELECT idem_commit(k(5), :late, '{"receipt": 2}');
SELECT later();
SELECT idem_fail(k(5), :late, '"third"');
SELECT * FROM alerts;
-- R21: what brings no result counts, and takes no result's place
SELECT later();
SELECT idem_release(k(5), :late), idem_renew(k(5), :late), idem_commit(k(5), :late);
SELECT count, detail -> 'first' ->> 'result' AS first, detail -> 'latest' AS latest FROM alerts;
-- the evidence holds no token
SELECT count(*) FROM idem_alert AS a WHERE a::text ~ '00000000-?0000-?4000';
-- of every kind of result, null and nothing apart
DELETE FROM idem_alert;
SELECT idem_commit(k(10), :late, 'null'), idem_commit(k(11), :late), idem_commit(k(12), :late, '[]'), idem_commit(k(13), :late, '{}'), idem_commit(k(14), :late, '0'), idem_commit(k(15), :late, '"x"');
SELECT n, detail -> 'latest' AS latest FROM generate_series(10, 15) AS n JOIN idem_alert ON key = k(n) ORDER BY n;
-- large evidence is kept whole
SELECT idem_commit(k(16), :late, to_jsonb(repeat('x', 2000000)));
SELECT length(detail #>> '{first,result}') FROM idem_alert WHERE key = k(16);
-- R21: within the second a result that is new is written, over a heartbeat's row, once a result; the same again is not
DELETE FROM idem_alert;
SELECT idem_renew(k(18), :late);
SELECT idem_renew(k(18), :late);
SELECT kind, count, detail FROM alerts;
SELECT idem_commit(k(18), :late, '"one"');
SELECT idem_commit(k(18), :late, '"one"'), idem_renew(k(18), :late);
SELECT kind, count, detail FROM alerts;
SELECT idem_commit(k(18), :late, '"two"');
SELECT idem_commit(k(18), :late, '"one"'), idem_commit(k(18), :late, '"two"'), idem_commit(k(18), :late);
SELECT kind, count, detail FROM alerts;
-- the same result by another call or with a reference is another; the latest takes the latest's place
SELECT idem_fail(k(18), :late, '"two"');
SELECT detail -> 'first' ->> 'result' AS first, detail -> 'latest' AS latest FROM alerts;
SELECT idem_commit(k(18), :late, '"two"', 'ref');
SELECT count, detail -> 'first' ->> 'result' AS first, detail -> 'latest' AS latest FROM alerts;
-- where that is large it is not written again for a small one at once: that has a part of its own
SELECT idem_commit(k(18), :late, to_jsonb(repeat('x', 20000))), idem_commit(k(18), :late, '"small"'), idem_commit(k(18), :late, '"small"');
SELECT part, count, left(detail #>> '{first,result}', 5) AS first, left(detail #>> '{latest,result}', 5) AS latest FROM idem_alert WHERE key = k(18) ORDER BY part;
SELECT later();
SELECT idem_commit(k(18), :late, '"later"');
SELECT part, count, left(detail #>> '{first,result}', 5) AS first, left(detail #>> '{latest,result}', 5) AS latest FROM idem_alert WHERE key = k(18) ORDER BY part;
-- what a hand has put there stops nothing
SELECT later();
UPDATE idem_alert SET detail = CASE part WHEN 0 THEN '"x"'::jsonb END WHERE key = k(18);
SELECT idem_commit(k(18), :late, '"again"');
UPDATE idem_alert SET detail = NULL, first_at = first_at - interval '2 s', last_at = last_at - interval '2 s' WHERE key = k(18);
SELECT idem_commit(k(18), :late, '"again"');
SELECT part, detail #>> '{first,result}' AS first FROM idem_alert WHERE key = k(18) ORDER BY part;

-- T20: a token that never held the claim is another kind, and what it brings is not kept, but for its size ---------------------
DELETE FROM idem_alert;
SELECT idem_commit(k(5), :never, '{"order": "FORGED"}', 'REF'), idem_fail(k(10), :never, '"FORGED"'), idem_renew(k(11), :never), idem_release(k(12), :never);
SELECT * FROM alerts ORDER BY detail::text COLLATE "C";
SELECT count(*) FROM idem_alert AS a WHERE a::text ~ 'FORGED|REF';
-- whoever held it, up to 16 grants ago, is a lost holder: by takeover, after a failure that may be retried, and after a lapse
CREATE FUNCTION o(n int) RETURNS uuid LANGUAGE sql AS $$ SELECT ('00000000-0000-4000-8000-0000000010' || lpad(n::text, 2, '0'))::uuid $$;
CREATE FUNCTION next_holder(n int) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
	IF n % 3 = 1 THEN
		UPDATE idem_record SET lease_until = '2020-01-01' WHERE key = k(30);
	ELSIF n % 3 = 2 THEN
		PERFORM idem_fail(k(30), o(n - 1), '"again"', true);
	ELSE
		PERFORM idem_commit(k(30), o(n - 1), '"done"');
		UPDATE idem_record SET retained_until = '2020-01-01' WHERE key = k(30);
	END IF;
	RETURN (SELECT concat_ws(' ', outcome, attempt) FROM idem_acquire_direct('alice', 'alert', '30', owner => o(n)));
END
$$;
SELECT outcome FROM idem_acquire_direct('alice', 'alert', '30', owner => o(0));
SELECT former_owners IS NULL AS none FROM idem_record WHERE key = k(30);
\pset tuples_only on
SELECT format('SELECT next_holder(%s)', n) FROM generate_series(1, 18) AS n \gexec
\pset tuples_only off
SELECT octet_length(former_owners), substr(former_owners, 241) = substr(sha256(uuid_send(o(17))), 1, 16) AS latest_last FROM idem_record WHERE key = k(30);
DELETE FROM idem_alert;
SELECT n FROM generate_series(0, 19) AS n WHERE idem_commit(k(30), o(n), to_jsonb(n)) <> 'NOT_OWNER';
SELECT kind, count, detail #>> '{first,result}' AS first, detail #>> '{latest,result}' AS latest, detail -> 'result_size' AS size FROM alerts;
-- a holder that was told off by a verdict is one that lost its claim
DELETE FROM idem_alert;
SELECT hold(31), let_go();
SELECT idem_reconcile(k(31), 'FAILED', 'gone', force => true), idem_commit(k(31), :late, '"late"'), idem_commit(k(31), :never, '"FORGED"');
SELECT kind, detail #>> '{first,result}' AS first FROM alerts;
DELETE FROM idem_policy WHERE scope = 'alert';
-- in the claim's own transaction too, and on a finished record
DELETE FROM idem_alert;
BEGIN;
SELECT acquire(17), idem_commit(k(17), :late, '"early"');
SELECT idem_commit(k(17), :mine, '"good"'), idem_commit(k(17), :late, '"late"');
COMMIT;
SELECT kind, count, detail FROM alerts;

-- the other kinds ---------------------------------------------------------------------------------------------------------------
DELETE FROM idem_alert;
INSERT INTO idem_policy (scope, downstream) VALUES ('alert', 'idempotent');
SELECT acquire(20, 'worker-1');
UPDATE idem_record SET lease_until = '2020-01-01' WHERE key = k(20);
SELECT outcome, attempt FROM idem_acquire_direct('alice', 'alert', '20', holder => 'worker-2');
SELECT idem_commit(k(20), :mine, '"late"');
SELECT kind, count, detail FROM alerts;
DELETE FROM idem_alert;
DELETE FROM idem_policy WHERE scope = 'alert';
SELECT acquire(21, 'worker-1');
UPDATE idem_record SET lease_until = '2020-01-01' WHERE key = k(21);
SELECT acquire(21), acquire(21);
SELECT idem_commit(k(21), :mine, '"late but alone"');
SELECT acquire(22, 'worker-1');
SELECT idem_release(k(22), :mine), idem_release(k(22), :mine);
SELECT acquire(23);
SELECT idem_fail(k(23), :mine, '"why"', true);
SELECT kind, count, detail FROM alerts;
-- released before anybody could see it: nothing to tell
DELETE FROM idem_alert;
BEGIN; SELECT acquire(24), idem_release(k(24), :mine); COMMIT;
SELECT count(*) FROM idem_alert;

-- an alert never stops or fails the call that raised it --------------------------------------------------------------------------
BEGIN READ ONLY;
SELECT outcome FROM idem_acquire(:'fp', 'bob', 'alert', '{"amount": 199}');
SELECT idem_commit(k(1), :late, '"x"');
COMMIT;
SELECT count(*) FROM idem_alert;
-- its table altered, by column, key and constraint
BEGIN;
ALTER TABLE idem_alert ADD COLUMN extra int;
SELECT outcome FROM idem_acquire(:'fp', 'bob', 'alert', '{"amount": 199}');
SELECT count(*) FROM idem_alert;
ROLLBACK;
BEGIN;
ALTER TABLE idem_alert DROP CONSTRAINT idem_alert_pkey;
SELECT outcome FROM idem_acquire(:'fp', 'bob', 'alert', '{"amount": 199}');
ROLLBACK;
BEGIN;
ALTER TABLE idem_alert ADD CONSTRAINT never CHECK (count < 0);
SELECT outcome FROM idem_acquire(:'fp', 'bob', 'alert', '{"amount": 199}');
ROLLBACK;
-- REPEATABLE READ and SERIALIZABLE
BEGIN ISOLATION LEVEL SERIALIZABLE;
SELECT outcome FROM idem_acquire(:'fp', 'bob', 'alert', '{"amount": 199}');
COMMIT;
SELECT kind, count FROM alerts;
-- T9: no row that this library would not write, by hand either ------------------------------------------------------------------
CREATE FUNCTION refused(kind text, count int8 = 1, role text = 'x', scope text = 's', subject text = 's', part int4 = 0) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	name text;
BEGIN
	INSERT INTO public.idem_alert VALUES (gen_random_uuid(), kind, count, now(), now(), role, scope, subject, NULL, part);
	RETURN 'no';
EXCEPTION WHEN check_violation THEN
	GET STACKED DIAGNOSTICS name = CONSTRAINT_NAME;
	RETURN name;
END
$$;
SELECT refused(repeat('x', 9000)), refused('');
SELECT refused('stuck', count => 0), refused('stuck', count => -1);
SELECT refused('stuck', role => ''), refused('stuck', role => repeat('x', 64)), refused('stuck', role => repeat('x', 63));
SELECT refused('stuck', scope => ''), refused('stuck', scope => repeat('x', 256)), refused('stuck', scope => repeat('x', 255)), refused('stuck', scope => NULL);
SELECT refused('stuck', subject => ''), refused('stuck', subject => repeat('x', 256)), refused('stuck', subject => repeat('x', 255)), refused('stuck', subject => NULL);
SELECT refused('stuck', part => -1), refused('stuck', part => 64), refused('stuck', part => 63);
CREATE FUNCTION refused_times(first_at timestamptz, last_at timestamptz) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	name text;
BEGIN
	INSERT INTO public.idem_alert VALUES (gen_random_uuid(), 'stuck', 1, first_at, last_at, 'x');
	RETURN 'no';
EXCEPTION WHEN check_violation THEN
	GET STACKED DIAGNOSTICS name = CONSTRAINT_NAME;
	RETURN name;
END
$$;
SELECT refused_times(now(), now()), refused_times(now(), now() - interval '1 s'), refused_times(now(), 'infinity'), refused_times('-infinity', now());
SELECT kind, refused(kind) FROM unnest('{parameter_mismatch,subject_mismatch,scope_mismatch,not_owner,takeover,stuck,released,reconciled,never_owner}'::text[]) AS kind;
-- nor by the library, from a record with labels that no call takes
DELETE FROM idem_alert;
SELECT key AS long FROM idem_acquire_direct('alice', 'alert', '"long"') \gset
UPDATE idem_record SET scope = repeat('文', 5000), subject = repeat('字', 5000), lease_until = '2020-01-01' WHERE key = :'long';
SELECT newly_stuck > 0 AS told FROM idem_maintain();
SELECT scope = repeat('文', 85) AS scope, subject = repeat('字', 85) AS subject FROM idem_alert WHERE key = :'long';
-- R24: a clock that was set back silences no alert
UPDATE idem_record SET lease_until = now() + '2 h'::interval WHERE key = :'long';
SELECT idem_commit(:'long', gen_random_uuid());
UPDATE idem_alert SET first_at = now() + '1 h'::interval, last_at = now() + '1 h'::interval;
SELECT idem_commit(:'long', gen_random_uuid());
SELECT kind, count, first_at <= last_at AND last_at <= now() AS now FROM idem_alert WHERE key = :'long' ORDER BY kind;
DELETE FROM idem_alert;
DELETE FROM idem_record;
