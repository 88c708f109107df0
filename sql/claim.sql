-- A fingerprint's way: signed, claimed, committed, replayed, and refused. Each test names its promise and case.
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS idem CASCADE;
RESET client_min_messages;
CREATE SCHEMA idem_test_claim;
SET search_path = idem_test_claim, public;
SET timezone = 'UTC';
SELECT count(*) FROM idem_import_secret('\x000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f');

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
CREATE FUNCTION b64(bytes bytea) RETURNS text LANGUAGE sql IMMUTABLE AS $$
	SELECT translate(encode(bytes, 'base64'), E'+/=\n', '-_')
$$;
-- a token as another server with the same secret would sign it
CREATE FUNCTION mint(n uuid, exp int8, subject text, scope text, hash bytea, version int DEFAULT 0) RETURNS text LANGUAGE sql AS $$
	SELECT p || '.' || b64(hmac(convert_to(p, 'UTF8'), '\x000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f', 'sha256'))
	FROM b64(convert_to(format('{"n":"%s","exp":%s,"u":%s,"s":%s,"p":"%s"%s}', n, exp, to_json(subject), to_json(scope), b64(hash),
		CASE WHEN version <> 0 THEN ',"v":' || version END), 'UTF8')) AS p
$$;
CREATE FUNCTION uuid7() RETURNS uuid LANGUAGE sql VOLATILE AS $$
	SELECT overlay(overlay(gen_random_uuid()::text PLACING '7' FROM 15 FOR 1) PLACING '0192f0c1-7e3a' FROM 1 FOR 13)::uuid
$$;


-- P1, P3: the story -----------------------------------------------------------------------------------------------
SELECT idem_sign('alice', 'charge', '{"amount": 199, "payee": "acct_42"}') AS fp \gset
SELECT key AS k, owner AS o, tell(c) FROM idem_acquire(:'fp', 'alice', 'charge', '{"payee": "acct_42", "amount": 199.0}', holder => 'gw-1', trace_id => 't-1') AS c \gset
\echo :tell
SELECT idem_inspect.key = :'k' AS key_is_the_nonce FROM idem_inspect(:'fp');
-- meanwhile, from another session's point of view: nothing of the owner
SELECT tell(c) FROM idem_acquire(:'fp', 'alice', 'charge', '{"payee": "acct_42", "amount": 199}', trace_id => 't-2') AS c;
SELECT tell(c) FROM idem_status(:'fp', 'alice') AS c;
SELECT tell(c) FROM idem_status_key(:'k', 'alice') AS c;
SELECT idem_commit(:'k', :'o', '{"receipt": "r-1", "amount": 199.00}', 'ref-1');
SELECT tell(c) FROM idem_acquire(:'fp', 'alice', 'charge', '{"payee": "acct_42", "amount": 199}', trace_id => 't-3') AS c;
SELECT tell(c) FROM idem_status(:'fp', 'alice') AS c;
SELECT tell(c) FROM idem_status_key(:'k', 'alice') AS c;
-- the record, and what is not in it: the owner token (P10)
SELECT state, attempt, downstream, holder, trace_id, result, policy_version, owner_hash = digest(uuid_send(:'o'), 'sha256') AS owner_hash,
	   strpos(r::text, :'o') AS token, strpos(r::text, replace(:'o', '-', '')) AS token_bare
FROM idem_record AS r WHERE key = :'k';

-- P2 (B10): replays do not move anything, the time of its lapse included
CREATE TEMP TABLE before AS SELECT r.ctid AS place, r.xmin::text AS version FROM idem_record AS r WHERE key = :'k';
SELECT count(*), min(tell(c)) = max(tell(c)) AS equal, count(DISTINCT retained_until) AS lapses
FROM generate_series(1, 100), idem_acquire(:'fp', 'alice', 'charge', '{"payee": "acct_42", "amount": 199}') AS c;
SELECT before = (SELECT (r.ctid, r.xmin::text)::before FROM idem_record AS r WHERE key = :'k') AS untouched FROM before;
DROP TABLE before;

-- A16, P6: kept for result_ttl, or as long as the fingerprint may come, whichever is later
SELECT retained_until - finished_at = '24 hours' AS by_policy FROM idem_record WHERE key = :'k';
SELECT key AS k2, owner AS o2 FROM idem_acquire(mint(uuid7(), 4102444800, 'alice', 'charge', idem_param_hash('charge', '{}')), 'alice', 'charge', '{}') \gset
SELECT idem_commit(:'k2', :'o2');
SELECT retained_until - expires_at AS by_fingerprint FROM idem_record WHERE key = :'k2';
SELECT lease_until - acquired_at AS lease FROM idem_record WHERE key = :'k';


-- P7 (B07): one member more, one less, another type, another value: no grant, nothing shown, nothing changed -------
SELECT p AS params, c.outcome, num_nonnulls(key, owner, attempt, result, result_ref, lease_until, finished_at, retained_until, trace_id) AS shown,
	   c.scope, c.subject, c.replayed, c.joined
FROM unnest(ARRAY['{"payee": "acct_42", "amount": 199, "x": 1}', '{"amount": 199}', '{"payee": "acct_42", "amount": "199"}',
	'{"payee": "acct_42", "amount": 199.001}', '{"payee": ["acct_42"], "amount": 199}', '[{"payee": "acct_42", "amount": 199}]', '{}', 'null', '""']::jsonb[]) AS p,
	idem_acquire(:'fp', 'alice', 'charge', p) AS c;

-- P7 (B06): scopes and subjects compare by their bytes
SELECT scope, outcome FROM unnest(ARRAY['Charge', 'charge ', ' charge', 'chargé', 'charge.pay', '*']) AS s,
	idem_acquire(:'fp', 'alice', s, '{"payee": "acct_42", "amount": 199}') AS c;
SELECT subject, outcome FROM unnest(ARRAY['Alice', 'alice ', 'bob', E'alice\n', E'alic\u0065\u0301']) AS s,
	idem_acquire(:'fp', s, 'charge', '{"payee": "acct_42", "amount": 199}') AS c;

-- The order of the checks: MAC, subject, scope, parameters, record, expiry, policy
CREATE TEMP TABLE token AS
SELECT forged, expired, consumed, subject, scope, hash, n,
	   mint(n, CASE WHEN expired THEN 1000000000 ELSE 4102444800 END, 'alice', 'claim.closed', '\x44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a')
			|| CASE WHEN forged THEN 'A' ELSE '' END AS fp
FROM (SELECT *, uuid7() AS n FROM unnest('{f,t}'::bool[]) AS forged, unnest('{f,t}'::bool[]) AS expired, unnest('{f,t}'::bool[]) AS consumed,
	unnest('{alice,bob}'::text[]) AS subject, unnest('{claim.closed,claim.other}'::text[]) AS scope, unnest('{good,bad}'::text[]) AS hash) AS t;
-- the parameters {} are good, and what their token consumed is done
SELECT count(idem_commit(c.key, c.owner, '1')) FROM token AS t,
	idem_acquire(mint(t.n, 4102444800, 'alice', 'claim.closed', idem_param_hash(NULL, '{}')), 'alice', 'claim.closed', '{}') AS c WHERE consumed;
INSERT INTO idem_policy (scope, enabled) VALUES ('claim.closed', false), ('claim.other', false);
CREATE FUNCTION verdict(t token) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
	RETURN outcome FROM idem_acquire(t.fp, t.subject, t.scope, CASE t.hash WHEN 'good' THEN '{}' ELSE '{"a": 1}'::jsonb END);
EXCEPTION WHEN OTHERS THEN
	RETURN SQLSTATE;
END
$$;
SELECT verdict(t), count(*), bool_or(forged) AS forged, bool_or(subject = 'bob') AS subject, bool_or(scope = 'claim.other') AS scope,
	   bool_or(hash = 'bad') AS parameters, bool_or(expired) AS expired, bool_or(consumed) AS consumed
FROM token AS t GROUP BY 1 ORDER BY count(*) DESC, 1;
DROP FUNCTION verdict;
DROP TABLE token;
DELETE FROM idem_policy WHERE scope LIKE 'claim.%';

-- lists that this database never had: the token is not for it, whatever its hash
SELECT outcome FROM idem_acquire(mint(uuid7(), 4102444800, 'alice', 'charge', idem_param_hash(NULL, '{}'), 12345), 'alice', 'charge', '{}');
SELECT outcome FROM idem_acquire(mint(uuid7(), 4102444800, 'alice', 'charge', idem_param_hash(NULL, '{}'), 12345), 'bob', 'charge', '{}');
SELECT outcome FROM idem_status(mint(uuid7(), 4102444800, 'alice', 'charge', idem_param_hash(NULL, '{}'), 12345), 'alice');

-- P7 (C01): another subject gets the same bytes, whatever has become of the operation; the same for other refusals
CREATE TEMP TABLE story (state text, n uuid, fp text, late text);
INSERT INTO story SELECT state, n, mint(n, 4102444800, 'alice', 'charge', idem_param_hash(NULL, '{"a": 1}')), mint(n, 1000000000, 'alice', 'charge', idem_param_hash(NULL, '{"a": 1}'))
FROM (SELECT state, uuid7() AS n FROM unnest(ARRAY['none', 'running', 'over', 'done', 'failed', 'released', 'retryable', 'lapsed']) AS state) AS s;
DO $$
DECLARE
	s story; c idem_claim;
BEGIN
	FOR s IN SELECT * FROM story WHERE state <> 'none' LOOP
		c := idem_acquire(s.fp, 'alice', 'charge', '{"a": 1}', trace_id => 'secret');
		CASE s.state
			WHEN 'done', 'lapsed' THEN PERFORM idem_commit(c.key, c.owner, '"secret"', 'secret');
			WHEN 'failed' THEN PERFORM idem_fail(c.key, c.owner, '"secret"');
			WHEN 'retryable' THEN PERFORM idem_fail(c.key, c.owner, '"secret"', true);
			ELSE NULL;
		END CASE;
	END LOOP;
END
$$;
UPDATE idem_record SET lease_until = '2020-01-01' WHERE key = (SELECT n FROM story WHERE state = 'over');
UPDATE idem_record SET retained_until = '2020-01-01' WHERE key = (SELECT n FROM story WHERE state = 'lapsed');
UPDATE idem_record SET state = 'R', finished_at = now(), retained_until = now() + '1 day' WHERE key = (SELECT n FROM story WHERE state = 'released');
SELECT count(*) AS asked, count(DISTINCT c::text) AS answers, min(c::text) AS answer FROM story, unnest(ARRAY[fp, late]) AS t, idem_acquire(t, 'bob', 'charge', '{"a": 1}') AS c;
SELECT count(*) AS asked, count(DISTINCT c::text) AS answers, min(c::text) AS answer FROM story, unnest(ARRAY[fp, late]) AS t, idem_acquire(t, 'alice', 'chargE', '{"a": 1}') AS c;
SELECT count(*) AS asked, count(DISTINCT c::text) AS answers, min(c::text) AS answer FROM story, unnest(ARRAY[fp, late]) AS t, idem_acquire(t, 'alice', 'charge', '{"a": 2}') AS c;
SELECT count(*) AS asked, count(DISTINCT c::text) AS answers, min(c::text) AS answer FROM story, unnest(ARRAY[fp, late]) AS t, idem_status(t, 'bob') AS c;
SELECT count(*) AS asked, count(DISTINCT c::text) AS answers, min(c::text) AS answer FROM story, unnest(ARRAY[n, uuid7()]) AS k, idem_status_key(k, 'bob') AS c;
SELECT count(*) AS asked, count(DISTINCT c::text) AS answers, min(c::text) AS answer FROM story, unnest(ARRAY[NULL, '', 'x.y', repeat('A', 5000), fp || 'A']) AS t, idem_acquire(t, 'alice', 'charge', '{"a": 1}') AS c;
-- the subject itself is told
SELECT state, c.outcome, s.outcome AS status, k.outcome AS status_key FROM story, idem_status(fp, 'alice') AS s, idem_status_key(n, 'alice') AS k, LATERAL (SELECT (idem_acquire(fp, 'alice', 'charge', '{"a": 1}')).*) AS c ORDER BY state;

-- C03 (P7, P11): forgeries leave no row behind, anywhere
SELECT (SELECT count(*) FROM idem_record) AS records, (SELECT count(*) FROM idem_alert) AS alerts \gset
SELECT outcome, count(*) FROM generate_series(1, 1000) AS i, idem_acquire(mint(uuid7(), 4102444800, 'alice', 'charge', idem_param_hash(NULL, '{}')) || 'x' || i, 'alice', 'charge', '{}') GROUP BY 1;
SELECT outcome, count(*) FROM generate_series(1, 100) AS i, idem_acquire(mint(uuid7(), 1000000000, 'alice', 'charge', idem_param_hash(NULL, '{}')), 'alice', 'charge', '{}') GROUP BY 1;
SELECT (SELECT count(*) FROM idem_record) - :records AS records, (SELECT count(*) FROM idem_fast) AS fast, (SELECT count(*) FROM idem_alert) - :alerts AS alerts;


-- P4: the owner's token. A lost reply is asked for again, by the same session or another -----------------------------
SELECT idem_sign('alice', 'charge', '{"n": 1}') AS fp \gset
\set mine '00000000-0000-4000-8000-000000000001'
SELECT tell(c), owner = :'mine' AS mine FROM idem_acquire(:'fp', 'alice', 'charge', '{"n": 1}', owner => :'mine', trace_id => 'a') AS c;
SELECT tell(c), owner = :'mine' AS mine FROM idem_acquire(:'fp', 'alice', 'charge', '{"n": 1}', owner => :'mine', trace_id => 'b') AS c;
SELECT key AS k FROM idem_inspect(:'fp') \gset
SELECT idem_fail(:'k', :'mine', '{"why": "busy"}', true);
SELECT tell(c) FROM idem_status(:'fp', 'alice') AS c;
-- not for the next attempt
SELECT raised(format('SELECT idem_acquire(%L, ''alice'', ''charge'', ''{"n": 1}'', owner => %L)', :'fp', :'mine'));
SELECT owner AS o, tell(c) FROM idem_acquire(:'fp', 'alice', 'charge', '{"n": 1}') AS c \gset
\echo :tell
SELECT idem_commit(:'k', :'mine', '"late"'), idem_fail(:'k', :'mine', '"late"'), idem_release(:'k', :'mine'), idem_renew(:'k', :'mine');
SELECT idem_commit(:'k', :'o', '"good"'), idem_commit(:'k', :'o', '"good"'), idem_commit(:'k', :'o', '"other"'), idem_commit(:'k', :'o'), idem_commit(:'k', :'o', '"good"', 'ref');
SELECT tell(c) FROM idem_status(:'fp', 'alice') AS c;
-- equality is that of jsonb: numbers by value, members in any order
SELECT idem_sign('alice', 'charge', '{"n": 2}') AS fp \gset
SELECT key AS k, owner AS o FROM idem_acquire(:'fp', 'alice', 'charge', '{"n": 2}') \gset
SELECT idem_commit(:'k', :'o', '{"a": 1.0, "b": [1, null]}'), idem_commit(:'k', :'o', '{"b": [1.00, null], "a": 1}'), idem_commit(:'k', :'o', '{"b": [null, 1], "a": 1}');
-- P3: byte for byte, the scale of numbers included
SELECT result FROM idem_status(:'fp', 'alice');

-- Renewal never shortens, and is for the claim in flight
SELECT idem_sign('alice', 'charge', '{"n": 3}') AS fp \gset
SELECT key AS k, owner AS o FROM idem_acquire(:'fp', 'alice', 'charge', '{"n": 3}') \gset
CREATE FUNCTION lease(k uuid) RETURNS interval LANGUAGE sql AS $$ SELECT date_trunc('minute', lease_until - clock_timestamp() + '30 s') FROM idem_record WHERE key = k $$;
SELECT lease(:'k');
SELECT idem_renew(:'k', :'o', '1 hour');
SELECT lease(:'k');
SELECT idem_renew(:'k', :'o', '1 min'), idem_renew(:'k', :'o'), idem_renew(:'k', :'o', '1 us');
SELECT lease(:'k');
UPDATE idem_record SET lease_until = '2020-01-01' WHERE key = :'k';
SELECT outcome FROM idem_status(:'fp', 'alice');
SELECT idem_renew(:'k', :'o');
SELECT lease(:'k'), outcome FROM idem_status(:'fp', 'alice');
SELECT idem_renew(:'k', :'o', '100 years');
SELECT lease_until < 'infinity' AND lease_until > now() + '90 years' AS finite FROM idem_record WHERE key = :'k';


-- P3 (B01): nothing is a result like anything else. JSON's null and SQL's are told apart, in one transaction and in two -
CREATE TEMP TABLE result (n serial, r jsonb);
INSERT INTO result (r) VALUES ('false'), ('0'), ('""'), ('[]'), ('{}'), ('null'), (NULL), ('-0.0'), ('{"a": null}'), ('[[]]'), ('"null"');
CREATE FUNCTION finish(n int, r jsonb, failed bool) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	c idem_claim := idem_acquire_direct('alice', 'claim.result', to_jsonb(n));
BEGIN
	RETURN c.outcome || ' ' || CASE WHEN failed THEN idem_fail(c.key, c.owner, r) ELSE idem_commit(c.key, c.owner, r) END;
END
$$;
SELECT coalesce(r::text, 'NULL') AS given, finish(n, r, false), finish(n + 100, coalesce(r, 'null'), true) AS failed FROM result ORDER BY n;
SELECT coalesce(r::text, 'NULL') AS given, coalesce(c.result::text, 'NULL') AS replayed, c.result IS NOT DISTINCT FROM r AND c.result::text IS NOT DISTINCT FROM r::text AS equal,
	   c.outcome, f.outcome AS failed, f.result AS reason
FROM result, idem_acquire_direct('alice', 'claim.result', to_jsonb(n)) AS c, idem_acquire_direct('alice', 'claim.result', to_jsonb(n + 100)) AS f ORDER BY n;
CREATE TEMP TABLE held AS SELECT n, c.key, c.owner FROM result, idem_acquire_direct('alice', 'claim.result', to_jsonb(n + 200)) AS c;
SELECT ack, count(*) FROM (SELECT idem_commit(key, owner, r) AS ack FROM held JOIN result USING (n)) AS a GROUP BY ack;
SELECT count(*) FILTER (WHERE s.result IS NOT DISTINCT FROM r AND s.result::text IS NOT DISTINCT FROM r::text) AS equal, count(*) FROM held JOIN result USING (n), idem_status_key(key, 'alice') AS s;
-- the same result again is OK, any other ALREADY: null is not nothing
SELECT coalesce(a.r::text, 'NULL') AS first, string_agg(coalesce(b.r::text, 'NULL'), ' ' ORDER BY b.n) AS repeated_by
FROM held JOIN result AS a USING (n), result AS b WHERE idem_commit(key, owner, b.r) = 'OK' GROUP BY a.n, a.r ORDER BY a.n;

-- P3 (B12): large results, incompressible too, in one transaction and in two; in no index
CREATE TEMP TABLE large AS SELECT size, jsonb_build_object('big', string_agg(md5(size::text || i), '')) AS r
	FROM unnest(ARRAY[1000, 9000, 10000000]) AS size, generate_series(1, size / 32) AS i GROUP BY size;
SELECT size, finish(size, r, false) FROM large ORDER BY size;
CREATE TEMP TABLE large_held AS SELECT size, c.key, c.owner FROM large, idem_acquire_direct('alice', 'claim.result', to_jsonb(-size)) AS c;
SELECT size, idem_commit(key, owner, r), idem_commit(key, owner, r) AS again, idem_commit(key, owner, r || '{"x": 1}') AS other FROM large_held JOIN large USING (size) ORDER BY size;
SELECT size, count(*), bool_and(sha256(convert_to(c.result::text, 'UTF8')) = sha256(convert_to(r::text, 'UTF8'))) AS equal
FROM large, unnest(ARRAY[size, -size]) AS n, idem_acquire_direct('alice', 'claim.result', to_jsonb(n)) AS c GROUP BY size ORDER BY size;
-- compressible
SELECT finish(1000007, to_jsonb(repeat('x', 50000000)), false);
SELECT length(result::text) FROM idem_acquire_direct('alice', 'claim.result', '1000007');
-- a retryable failure's reason, and what replaces it
SELECT key AS k, owner AS o FROM idem_acquire_direct('alice', 'claim.result', '1000008') \gset
SELECT idem_fail(:'k', :'o', r, true) FROM large WHERE size = 10000000;
SELECT c.result = large.r AS reason, c.outcome FROM large, idem_status_key(:'k', 'alice') AS c WHERE size = 10000000;
SELECT owner AS o FROM idem_acquire_direct('alice', 'claim.result', '1000008') \gset
SELECT tell(s) FROM idem_status_key(:'k', 'alice') AS s;
SELECT idem_commit(:'k', :'o', '1');
SELECT tell(s) FROM idem_status_key(:'k', 'alice') AS s;


-- P3: a changed policy turns no honest retry into a mismatch, nor into a second execution ---------------------------
INSERT INTO idem_policy (scope, material) VALUES ('claim.lists', '{/amount}');
SELECT idem_sign('alice', 'claim.lists', '{"amount": 1, "memo": "a"}') AS fp, idem_sign('alice', 'claim.lists', '{"amount": 2, "memo": "a"}') AS fp2 \gset
SELECT key AS k, owner AS o FROM idem_acquire(:'fp', 'alice', 'claim.lists', '{"amount": 1, "memo": "b"}') \gset
UPDATE idem_policy SET material = NULL WHERE scope = 'claim.lists';
SELECT outcome FROM idem_acquire(:'fp', 'alice', 'claim.lists', '{"amount": 1, "memo": "c"}');
SELECT idem_commit(:'k', :'o', '1');
SELECT outcome FROM idem_acquire(:'fp', 'alice', 'claim.lists', '{"amount": 1, "memo": "d"}');
-- signed before, started after
SELECT outcome FROM idem_acquire(:'fp2', 'alice', 'claim.lists', '{"amount": 2, "memo": "e"}');
SELECT outcome FROM idem_acquire(:'fp2', 'alice', 'claim.lists', '{"amount": 3, "memo": "a"}');
DELETE FROM idem_policy WHERE scope = 'claim.lists';
SELECT outcome FROM idem_acquire(:'fp', 'alice', 'claim.lists', '{"amount": 1, "memo": "f"}');
-- nothing material is a mismatch here, and 22023 when signing
SELECT outcome FROM idem_acquire(:'fp', 'alice', 'claim.lists', '{"memo": "f"}');

-- what policy forbids is judged where a grant would be made, after expiry; a replay, a rival and a status never ask it
INSERT INTO idem_policy (scope) VALUES ('claim.rules');
CREATE TEMP TABLE rule AS SELECT what, n, mint(n, 4102444800, 'alice', 'claim.rules', idem_param_hash(NULL, '1')) AS fp FROM (
	SELECT what, uuid7() AS n FROM unnest(ARRAY['none', 'running', 'over', 'done', 'released', 'lapsed']) AS what) AS w;
CREATE TEMP TABLE grants AS SELECT what, c.* FROM rule, idem_acquire(fp, 'alice', 'claim.rules', '1') AS c WHERE what <> 'none';
SELECT idem_commit(key, owner, '1') FROM grants WHERE what IN ('done', 'lapsed');
SELECT idem_release(key, owner) FROM grants WHERE what = 'released';
UPDATE idem_record SET retained_until = '2020-01-01' WHERE key = (SELECT key FROM grants WHERE what = 'lapsed');
UPDATE idem_record SET lease_until = '2020-01-01', downstream = 'i' WHERE key = (SELECT key FROM grants WHERE what = 'over');
CREATE FUNCTION said(fp text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	answer text;
BEGIN
	SELECT outcome INTO answer FROM idem_acquire(fp, 'alice', 'claim.rules', '1');
	-- taken back, so that the next change meets the same
	RAISE EXCEPTION USING ERRCODE = 'ZZ000';
EXCEPTION
	WHEN SQLSTATE 'ZZ000' THEN RETURN answer;
	WHEN OTHERS THEN RETURN SQLSTATE;
END
$$;
CREATE TEMP TABLE said (policy text, what text, answer text);
INSERT INTO said SELECT 'open', what, said(fp) FROM rule;
UPDATE idem_policy SET enabled = false WHERE scope = 'claim.rules';
INSERT INTO said SELECT 'not enabled', what, said(fp) FROM rule;
SELECT split_part(raised(format('SELECT idem_acquire(%L, ''alice'', ''claim.rules'', ''1'')', fp)), ' | ', 2) FROM rule WHERE what = 'none';
UPDATE idem_policy SET enabled = true, entry = 'direct' WHERE scope = 'claim.rules';
INSERT INTO said SELECT 'direct only', what, said(fp) FROM rule;
SELECT split_part(raised(format('SELECT idem_acquire(%L, ''alice'', ''claim.rules'', ''1'')', fp)), ' | ', 2) FROM rule WHERE what = 'none';
UPDATE idem_policy SET entry = 'fingerprint' WHERE scope = 'claim.rules';
INSERT INTO said SELECT 'fingerprint only', what, said(fp) FROM rule;
DELETE FROM idem_policy WHERE scope = 'claim.rules';
INSERT INTO idem_policy (scope, enabled) VALUES ('*', false);
INSERT INTO said SELECT 'strict', what, said(fp) FROM rule;
SELECT split_part(raised(format('SELECT idem_acquire(%L, ''alice'', ''claim.rules'', ''1'')', fp)), ' | ', 2) FROM rule WHERE what = 'none';
INSERT INTO said SELECT 'strict status', what, s.outcome FROM rule, idem_status(fp, 'alice') AS s;
DELETE FROM idem_policy WHERE scope = '*';
SELECT policy, what, answer FROM said ORDER BY array_position('{open,not enabled,direct only,fingerprint only,strict,strict status}', policy), what \crosstabview policy what answer
-- the lease and what its end means are of the claim, not of today's policy
SELECT outcome FROM rule, idem_status(fp, 'alice') WHERE what = 'over';
INSERT INTO idem_policy (scope, downstream) VALUES ('claim.rules', 'opaque');
SELECT outcome, attempt FROM rule, idem_acquire(fp, 'alice', 'claim.rules', '1') WHERE what = 'over';
DELETE FROM idem_policy WHERE scope = 'claim.rules';


-- P11: bad input of every call: 22004 for null, 22023 for the rest, each with a hint; tokens are never an error -------
SELECT call, raised('SELECT ' || replace(call, 'K', '''0192f0c1-7e3a-7c11-8a5b-0d5c2f6e9a01''')) FROM unnest(ARRAY[
	$$idem_acquire(NULL, 'a', 's', '{}')$$, $$idem_acquire('x', NULL, 's', '{}')$$, $$idem_acquire('x', '', 's', '{}')$$, $$idem_acquire('x', repeat('a', 256), 's', '{}')$$,
	$$idem_acquire('x', 'a', NULL, '{}')$$, $$idem_acquire('x', 'a', '', '{}')$$, $$idem_acquire('x', 'a', repeat('é', 128), '{}')$$, $$idem_acquire('x', 'a', 's', NULL)$$,
	$$idem_acquire('x', 'a', 's', '{}', NULL)$$, $$idem_acquire('x', 'a', 's', '{}', '-1 us')$$, $$idem_acquire('x', 'a', 's', '{}', '102 years')$$,
	$$idem_acquire('x', 'a', 's', '{}', '1 mon -31 days')$$, $$idem_acquire('x', 'a', 's', '{}', '178000000 years')$$,
	$$idem_acquire('x', 'a', 's', '{}', holder => '')$$, $$idem_acquire('x', 'a', 's', '{}', holder => repeat('a', 256))$$, $$idem_acquire('x', 'a', 's', '{}', trace_id => '')$$,
	$$idem_acquire('x', 'a', 's', '{}', trace_id => repeat('a', 256))$$, $$idem_acquire('x', 'a', 's', '{}', '100 years', NULL, repeat('a', 255), repeat('a', 255))$$,
	$$idem_acquire_direct(NULL, 's', '{}')$$, $$idem_acquire_direct('', 's', '{}')$$, $$idem_acquire_direct(repeat('a', 256), 's', '{}')$$, $$idem_acquire_direct('a', NULL, '{}')$$,
	$$idem_acquire_direct('a', '', '{}')$$, $$idem_acquire_direct('a', repeat('a', 256), '{}')$$, $$idem_acquire_direct('a', 's', NULL)$$, $$idem_acquire_direct('a', 's', '{}', '')$$,
	$$idem_acquire_direct('a', 's', '{}', repeat('a', 256))$$, $$idem_acquire_direct('a', 's', '{}', 'c', NULL)$$, $$idem_acquire_direct('a', 's', '{}', 'c', '-1 s')$$,
	$$idem_acquire_direct('a', 's', '{}', 'c', '102 years')$$, $$idem_acquire_direct('a', 's', '{}', holder => '')$$, $$idem_acquire_direct('a', 's', '{}', trace_id => repeat('a', 256))$$,
	$$idem_commit(NULL, K)$$, $$idem_commit(K, NULL)$$, $$idem_commit(K, K, NULL, repeat('a', 10000))$$, $$idem_commit(K, K, NULL, '')$$,
	$$idem_fail(NULL, K, '1')$$, $$idem_fail(K, NULL, '1')$$, $$idem_fail(K, K, NULL)$$, $$idem_fail(K, K, '1', NULL)$$,
	$$idem_release(NULL, K)$$, $$idem_release(K, NULL)$$,
	$$idem_renew(NULL, K)$$, $$idem_renew(K, NULL)$$, $$idem_renew(K, K, '0')$$, $$idem_renew(K, K, '-1 s')$$, $$idem_renew(K, K, '102 years')$$, $$idem_renew(K, K, NULL)$$,
	$$idem_status(NULL, 'a')$$, $$idem_status('x', NULL)$$, $$idem_status('x', '')$$, $$idem_status('x', repeat('a', 256))$$, $$idem_status('x', 'a', NULL)$$, $$idem_status('x', 'a', '-1 s')$$,
	$$idem_status_key(NULL, 'a')$$, $$idem_status_key(K, NULL)$$, $$idem_status_key(K, '')$$, $$idem_status_key(K, 'a', NULL)$$, $$idem_status_key(K, 'a', '102 years')$$
]) AS call;
-- deep nesting ends in 54001 or in an answer, never in a crash (D16)
SELECT c.outcome FROM idem_acquire('x', 'a', 's', (repeat('[', 5000) || repeat(']', 5000))::jsonb) AS c;
CREATE TEMP TABLE deep AS SELECT (repeat('[', 5000) || repeat(']', 5000))::jsonb AS x;
SET max_stack_depth = '100kB';
SELECT left(raised($$SELECT idem_acquire_direct('a', 's', x) FROM deep$$), 5) AS params, left(raised($$SELECT idem_commit('0192f0c1-7e3a-7c11-8a5b-0d5c2f6e9a01', '0192f0c1-7e3a-7c11-8a5b-0d5c2f6e9a01', x) FROM deep$$), 7) AS result;
RESET max_stack_depth;


-- B11: states that are none do not get in
SELECT state, raised(format('UPDATE idem_record SET state = %L WHERE key = (SELECT n FROM story WHERE state = ''done'')', state)) FROM unnest(ARRAY[NULL, 'X', 'd', '', 'N']) AS state;
SELECT what, left(raised('UPDATE idem_record SET ' || what || ' WHERE key = (SELECT n FROM story WHERE state = ''running'')'), 5) FROM unnest(ARRAY[
	$$lease_until = NULL$$, $$lease_until = 'infinity'$$, $$lease_until = '-infinity'$$, $$retained_until = now()$$, $$retained_until = NULL$$, $$finished_at = now()$$, $$attempt = 0$$,
	$$downstream = 'x'$$, $$downstream = NULL$$, $$param_hash = 'x'$$, $$owner_hash = ''$$, $$key = NULL$$, $$subject = NULL$$, $$state = 'D'$$]) AS what;

DELETE FROM idem_record;
DELETE FROM idem_alert;
SET client_min_messages = warning;
DROP SCHEMA idem_test_claim CASCADE;
