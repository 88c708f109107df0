-- Every pair of a state and a call, against the table of the state machine (P1 to P7; A07, A12, A13).
-- The expected answers are written down here from the rules, not from what the code does.
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS idem CASCADE;
RESET client_min_messages;
CREATE SCHEMA idem_test_state;
SET search_path = idem_test_state, public;
SET timezone = 'UTC';

-- Fingerprints made in SQL, so that one nonce can be had with a time to come and with one that is past
\set secret '\\x000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f'
SELECT count(*) FROM idem_import_secret(:'secret');
CREATE FUNCTION b64(bytes bytea) RETURNS text LANGUAGE sql IMMUTABLE AS $$
	SELECT translate(encode(bytes, 'base64'), E'+/=\n', '-_')
$$;
CREATE FUNCTION mint(n uuid, expired bool, subject text, scope text, params jsonb) RETURNS text LANGUAGE sql AS $$
	SELECT p || '.' || b64(hmac(convert_to(p, 'UTF8'), '\x000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f', 'sha256'))
	FROM b64(convert_to(format('{"n":"%s","exp":%s,"u":%s,"s":%s,"p":"%s"}', n, CASE WHEN expired THEN 1000000000 ELSE 4102444800 END,
		to_json(subject), to_json(scope), b64(idem_param_hash(scope, params))), 'UTF8')) AS p
$$;
CREATE FUNCTION uuid7() RETURNS uuid LANGUAGE sql VOLATILE AS $$
	SELECT overlay(overlay(gen_random_uuid()::text PLACING '7' FROM 15 FOR 1) PLACING '0192f0c1-7e3a' FROM 1 FOR 13)::uuid
$$;

INSERT INTO idem_policy (scope, downstream) VALUES
	('st.opaque', 'opaque'), ('st.queryable', 'queryable'), ('st.idempotent', 'idempotent'), ('st.local', 'local');

-- The situations, and the downstream of each.  "taken over": the caller called owner had the attempt before.
CREATE TABLE situation (n serial, name text PRIMARY KEY, downstream text, doors text[], one_transaction bool);
INSERT INTO situation (name, downstream, doors, one_transaction) VALUES
	('none', 'opaque', '{fingerprint,content,client}', true),
	('none expired', 'opaque', '{fingerprint}', true),
	('running opaque', 'opaque', '{fingerprint,content,client}', true),
	('running queryable', 'queryable', '{fingerprint,content,client}', true),
	('running idempotent', 'idempotent', '{fingerprint,content,client}', true),
	('running local', 'local', '{fingerprint,content,client}', true),
	('running expired', 'opaque', '{fingerprint}', true),
	('over opaque', 'opaque', '{fingerprint,content,client}', true),
	('over queryable', 'queryable', '{fingerprint,content,client}', true),
	('over idempotent', 'idempotent', '{fingerprint,content,client}', true),
	('over local', 'local', '{fingerprint,content,client}', true),
	('over idempotent expired', 'idempotent', '{fingerprint}', true),
	('taken over', 'idempotent', '{fingerprint,content,client}', false),
	('done', 'opaque', '{fingerprint,content,client}', true),
	('done expired', 'opaque', '{fingerprint}', true),
	('failed', 'opaque', '{fingerprint,content,client}', true),
	('failed expired', 'opaque', '{fingerprint}', true),
	('released', 'opaque', '{fingerprint,content,client}', true),
	('released expired', 'opaque', '{fingerprint}', true),
	('retryable', 'opaque', '{fingerprint,content,client}', true),
	('lapsed done', 'opaque', '{fingerprint,content,client}', true),
	('lapsed failed', 'opaque', '{fingerprint,content,client}', true),
	('lapsed released', 'opaque', '{fingerprint,content,client}', false),
	('lapsed retryable', 'opaque', '{fingerprint,content,client}', true),
	('lapsed done expired', 'opaque', '{fingerprint}', true);

-- The calls.  "=": with the result, or reason, that is on record; "#": with another one.
CREATE TABLE call (n serial, name text PRIMARY KEY);
INSERT INTO call (name) VALUES ('acquire'), ('acquire same token'), ('acquire other token'), ('acquire #'), ('status'),
	('owner commit ='), ('owner commit #'), ('owner fail ='), ('owner fail #'), ('owner retry ='), ('owner retry #'), ('owner release'), ('owner renew'),
	('other commit ='), ('other commit #'), ('other fail ='), ('other retry ='), ('other release'), ('other renew');

CREATE TABLE cell AS
	SELECT s.n * 100 + c.n AS n, s.name AS situation, c.name AS call, door, s.one_transaction,
			'st.' || s.downstream AS scope, uuid7() AS nonce, gen_random_uuid() AS owner,
			jsonb_build_object('amount', s.n, 'call', c.n, 'door', door) AS params
	FROM situation AS s, call AS c, unnest(s.doors) AS door;

-- An acquire through the cell's door; with another amount where that is called for
CREATE FUNCTION acquire(c cell, expired bool, token uuid, other bool DEFAULT false) RETURNS idem_claim LANGUAGE plpgsql AS $$
DECLARE
	p jsonb := CASE WHEN other THEN c.params || jsonb_build_object('amount', -c.n) ELSE c.params END;
	claim idem_claim;
BEGIN
	IF c.door = 'fingerprint' THEN
		SELECT * INTO claim FROM idem_acquire(mint(c.nonce, expired, 'alice', c.scope, c.params), 'alice', c.scope, p, owner => token);
	ELSE
		SELECT * INTO claim FROM idem_acquire_direct('alice', c.scope, p, CASE c.door WHEN 'client' THEN c.nonce::text END, owner => token);
	END IF;
	RETURN claim;
END
$$;
CREATE FUNCTION key_of(c cell) RETURNS uuid LANGUAGE sql AS $$
	SELECT CASE c.door WHEN 'fingerprint' THEN c.nonce
		ELSE idem_key('alice', c.scope, c.params, CASE c.door WHEN 'client' THEN c.nonce::text END) END
$$;

-- Step 1 and 2 of a situation: the claim, and its end
CREATE FUNCTION begin_situation(c cell) RETURNS bool LANGUAGE plpgsql AS $$
BEGIN
	IF c.situation NOT LIKE 'none%' THEN
		ASSERT (acquire(c, false, c.owner)).outcome = 'ACQUIRED', c.situation;
	END IF;
	RETURN true;
END
$$;
CREATE FUNCTION end_situation(c cell) RETURNS bool LANGUAGE plpgsql AS $$
DECLARE
	ack idem_ack := 'OK';
BEGIN
	CASE regexp_replace(c.situation, 'lapsed | expired', '', 'g')
		WHEN 'done' THEN ack := idem_commit(key_of(c), c.owner, '{"receipt": 1}', 'ref-1');
		WHEN 'failed' THEN ack := idem_fail(key_of(c), c.owner, '{"receipt": 1}');
		WHEN 'released' THEN ack := idem_release(key_of(c), c.owner);
		WHEN 'retryable' THEN ack := idem_fail(key_of(c), c.owner, '{"receipt": 1}', true);
		ELSE NULL;
	END CASE;
	ASSERT ack = 'OK', c.situation;
	RETURN true;
END
$$;
-- Step 3: time passes
CREATE FUNCTION pass_time(c cell) RETURNS bool LANGUAGE plpgsql AS $$
BEGIN
	IF c.situation LIKE 'over%' OR c.situation = 'taken over' THEN
		UPDATE idem_record SET lease_until = '2020-01-01' WHERE key = key_of(c);
		UPDATE idem_fast SET lease_until = '2020-01-01' WHERE key = key_of(c);
	ELSIF c.situation LIKE 'lapsed%' THEN
		UPDATE idem_record SET retained_until = '2020-01-01' WHERE key = key_of(c);
	END IF;
	RETURN true;
END
$$;

-- Step 4: the call, and what it answers.  Of an acquire the attempt too, "again" for an own grant told again.
CREATE FUNCTION tell(c idem_claim) RETURNS text LANGUAGE sql AS $$
	SELECT concat_ws(' ', c.outcome, CASE WHEN c.outcome = 'ACQUIRED' THEN c.attempt END, CASE WHEN c.outcome = 'ACQUIRED' AND c.replayed THEN 'again' END)
$$;
CREATE FUNCTION ask(c cell) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	expired bool := c.situation LIKE '%expired';
	k uuid := key_of(c);
	who uuid := CASE WHEN c.call LIKE 'owner%' THEN c.owner ELSE gen_random_uuid() END;
	-- commit carries a reference as well, a reason does not
	same jsonb := CASE WHEN c.call LIKE '%=' THEN '{"receipt": 1.0}' ELSE '{"receipt": 2}' END;
BEGIN
	CASE regexp_replace(c.call, '^(owner|other) | [=#]$', '', 'g')
		WHEN 'acquire' THEN RETURN tell(acquire(c, expired, NULL, c.call LIKE '%#'));
		WHEN 'acquire same token' THEN RETURN tell(acquire(c, expired, c.owner));
		WHEN 'acquire other token' THEN RETURN tell(acquire(c, expired, gen_random_uuid()));
		WHEN 'status' THEN
			IF c.door = 'fingerprint' THEN
				RETURN tell(s) FROM idem_status(mint(c.nonce, expired, 'alice', c.scope, c.params), 'alice') AS s;
			END IF;
			RETURN tell(s) FROM idem_status_key(k, 'alice') AS s;
		WHEN 'commit' THEN RETURN idem_commit(k, who, same, CASE WHEN c.call LIKE '%=' THEN 'ref-1' ELSE 'ref-2' END);
		WHEN 'fail' THEN RETURN idem_fail(k, who, same);
		WHEN 'retry' THEN RETURN idem_fail(k, who, same, true);
		WHEN 'release' THEN RETURN idem_release(k, who);
		WHEN 'renew' THEN RETURN idem_renew(k, who, '7 minutes');
	END CASE;
EXCEPTION WHEN OTHERS THEN
	RETURN SQLSTATE;
END
$$;

-- What is to be answered: for each situation the five questions, the owner's eight calls, and another's six.
-- A second row for "in its own transaction" where that differs.
CREATE TABLE answers (situation text, own bool, questions text[], owner text[], other text);
INSERT INTO answers VALUES
	('none', NULL, '{ACQUIRED 1,ACQUIRED 1,ACQUIRED 1,PARAM_MISMATCH,NONE}', '{NONE,NONE,NONE,NONE,NONE,NONE,NONE,NONE}', 'NONE'),
	('none expired', NULL, '{EXPIRED,EXPIRED,EXPIRED,PARAM_MISMATCH,EXPIRED}', '{NONE,NONE,NONE,NONE,NONE,NONE,NONE,NONE}', 'NONE'),
	('running %', NULL, '{IN_FLIGHT,ACQUIRED 1 again,IN_FLIGHT,PARAM_MISMATCH,IN_FLIGHT}', '{OK,OK,OK,OK,OK,OK,OK,OK}', 'NOT_OWNER'),
	-- the clock does not matter to the transaction that holds it
	('over %', true, '{IN_FLIGHT,ACQUIRED 1 again,IN_FLIGHT,PARAM_MISMATCH,IN_FLIGHT}', '{OK,OK,OK,OK,OK,OK,OK,OK}', 'NOT_OWNER'),
	('over opaque', false, '{RECONCILE,RECONCILE,RECONCILE,PARAM_MISMATCH,RECONCILE}', '{OK,OK,OK,OK,OK,OK,OK,OK}', 'NOT_OWNER'),
	('over queryable', false, '{RECONCILE,RECONCILE,RECONCILE,PARAM_MISMATCH,RECONCILE}', '{OK,OK,OK,OK,OK,OK,OK,OK}', 'NOT_OWNER'),
	('over local', false, '{RECONCILE,RECONCILE,RECONCILE,PARAM_MISMATCH,RECONCILE}', '{OK,OK,OK,OK,OK,OK,OK,OK}', 'NOT_OWNER'),
	('over idempotent%', false, '{ACQUIRED 2,22023,ACQUIRED 2,PARAM_MISMATCH,RETRYABLE}', '{OK,OK,OK,OK,OK,OK,OK,OK}', 'NOT_OWNER'),
	('taken over', false, '{IN_FLIGHT,IN_FLIGHT,IN_FLIGHT,PARAM_MISMATCH,IN_FLIGHT}',
		'{NOT_OWNER,NOT_OWNER,NOT_OWNER,NOT_OWNER,NOT_OWNER,NOT_OWNER,NOT_OWNER,NOT_OWNER}', 'NOT_OWNER'),
	('done%', NULL, '{DONE,DONE,DONE,PARAM_MISMATCH,DONE}', '{OK,ALREADY,ALREADY,ALREADY,ALREADY,ALREADY,ALREADY,ALREADY}', 'NOT_OWNER'),
	('failed%', NULL, '{FAILED,FAILED,FAILED,PARAM_MISMATCH,FAILED}', '{ALREADY,ALREADY,OK,ALREADY,ALREADY,ALREADY,ALREADY,ALREADY}', 'NOT_OWNER'),
	('released', false, '{ACQUIRED 2,22023,ACQUIRED 2,PARAM_MISMATCH,RETRYABLE}',
		'{NOT_OWNER,NOT_OWNER,NOT_OWNER,NOT_OWNER,NOT_OWNER,NOT_OWNER,OK,NOT_OWNER}', 'NOT_OWNER'),
	('released expired', false, '{ACQUIRED 2,22023,ACQUIRED 2,PARAM_MISMATCH,RETRYABLE}',
		'{NOT_OWNER,NOT_OWNER,NOT_OWNER,NOT_OWNER,NOT_OWNER,NOT_OWNER,OK,NOT_OWNER}', 'NOT_OWNER'),
	-- released before anybody saw it: nothing can have started, and nothing is left
	('released', true, '{ACQUIRED 1,ACQUIRED 1,ACQUIRED 1,PARAM_MISMATCH,NONE}', '{NONE,NONE,NONE,NONE,NONE,NONE,NONE,NONE}', 'NONE'),
	('released expired', true, '{EXPIRED,EXPIRED,EXPIRED,PARAM_MISMATCH,EXPIRED}', '{NONE,NONE,NONE,NONE,NONE,NONE,NONE,NONE}', 'NONE'),
	('retryable', NULL, '{ACQUIRED 2,22023,ACQUIRED 2,PARAM_MISMATCH,RETRYABLE}',
		'{NOT_OWNER,NOT_OWNER,NOT_OWNER,NOT_OWNER,OK,NOT_OWNER,NOT_OWNER,NOT_OWNER}', 'NOT_OWNER'),
	-- a token for one attempt: not even a lapsed one
	('lapsed done', NULL, '{ACQUIRED 1,22023,ACQUIRED 1,PARAM_MISMATCH,NONE}', '{NONE,NONE,NONE,NONE,NONE,NONE,NONE,NONE}', 'NONE'),
	('lapsed failed', NULL, '{ACQUIRED 1,22023,ACQUIRED 1,PARAM_MISMATCH,NONE}', '{NONE,NONE,NONE,NONE,NONE,NONE,NONE,NONE}', 'NONE'),
	('lapsed released', NULL, '{ACQUIRED 1,22023,ACQUIRED 1,PARAM_MISMATCH,NONE}', '{NONE,NONE,NONE,NONE,NONE,NONE,NONE,NONE}', 'NONE'),
	('lapsed retryable', NULL, '{ACQUIRED 1,22023,ACQUIRED 1,PARAM_MISMATCH,NONE}', '{NONE,NONE,NONE,NONE,NONE,NONE,NONE,NONE}', 'NONE'),
	('lapsed done expired', NULL, '{EXPIRED,EXPIRED,EXPIRED,PARAM_MISMATCH,EXPIRED}', '{NONE,NONE,NONE,NONE,NONE,NONE,NONE,NONE}', 'NONE');
CREATE FUNCTION due(c cell, own bool) RETURNS text LANGUAGE sql AS $$
	SELECT CASE
			-- other parameters are another operation where they are its name, and where nothing has that name yet
			WHEN c.call = 'acquire #' AND c.door = 'content' THEN 'ACQUIRED 1'
			WHEN c.call = 'acquire #' AND c.door = 'client' AND (a.questions[1] = 'ACQUIRED 1') THEN 'ACQUIRED 1'
			WHEN i.n <= 5 THEN a.questions[i.n]
			WHEN i.n <= 13 THEN a.owner[i.n - 5]
			ELSE a.other END
	FROM answers AS a, call AS i
	WHERE i.name = c.call AND c.situation LIKE a.situation AND a.own IS DISTINCT FROM NOT due.own
$$;
-- each cell has one answer
SELECT count(*) AS cells, count(due(c, false)) AS two_transactions, count(due(c, true)) FILTER (WHERE one_transaction) AS one_transaction,
	   count(*) FILTER (WHERE one_transaction) AS of
FROM cell AS c;


-- The two-transaction form --------------------------------------------------------------------------------------
-- (local claims come in as opaque ones: the rule would not let them)
UPDATE idem_policy SET downstream = 'opaque' WHERE scope = 'st.local';
SELECT count(begin_situation(c)) FROM cell AS c;
UPDATE idem_record SET downstream = 'l' WHERE scope = 'st.local';
SELECT count(end_situation(c)) FROM cell AS c;
SELECT count(pass_time(c)) FROM cell AS c;
SELECT count(*), min((acquire(c, false, NULL)).outcome) AS outcome FROM cell AS c WHERE situation = 'taken over';
CREATE TABLE before AS SELECT r.ctid AS place, r.xmin::text AS version, * FROM idem_record AS r;
CREATE TABLE two AS SELECT c.*, ask(c) AS answer FROM cell AS c;

SELECT situation, call, answer FROM two WHERE door = 'fingerprint' AND split_part(call, ' ', 1) IN ('acquire', 'status') ORDER BY n \crosstabview situation call answer
SELECT situation, call, answer FROM two WHERE door = 'fingerprint' AND call LIKE 'owner %' ORDER BY n \crosstabview situation call answer
SELECT situation, call, answer FROM two WHERE door = 'fingerprint' AND call LIKE 'other %' ORDER BY n \crosstabview situation call answer
-- none is other than it should be, through whatever door
SELECT situation, call, door, answer, due(c, false) AS due
FROM (SELECT t.answer, c FROM two AS t JOIN cell AS c USING (n, door)) AS x, LATERAL (SELECT (c).situation, (c).call, (c).door) AS y
WHERE answer IS DISTINCT FROM due(c, false)
ORDER BY (c).n, door;

-- P2, P4: rows change where a call was granted or accepted in flight, and nowhere else: not by one byte
SELECT t.situation, t.call, t.door, t.answer
FROM two AS t JOIN cell AS c USING (n, door) JOIN before AS b ON b.key = key_of(c) LEFT JOIN idem_record AS r ON r.key = b.key
WHERE ((b.place, b.version) IS DISTINCT FROM (r.ctid, r.xmin::text))
	IS DISTINCT FROM (t.answer ~ '^ACQUIRED \d$' AND NOT (t.call = 'acquire #' AND t.door = 'content') OR t.answer = 'OK' AND b.state = 'I')
ORDER BY t.n, t.door;
-- and a call that started nothing left nothing
SELECT t.situation, t.call, t.door, t.answer
FROM two AS t JOIN cell AS c USING (n, door) JOIN idem_record AS r ON r.key = key_of(c)
WHERE t.situation LIKE 'none%' AND t.answer NOT LIKE 'ACQUIRED%';
-- what the holders' calls have left
SELECT t.call, r.state, r.attempt, r.result, r.result_ref, r.finished_at IS NULL AS open, r.retained_until = 'infinity' AS kept_for_ever,
	   r.retained_until > r.expires_at AS outlives_the_fingerprint, count(*)
FROM two AS t JOIN cell AS c USING (n, door) JOIN idem_record AS r ON r.key = key_of(c)
WHERE t.situation ~ '^(running|over)' AND t.call LIKE 'owner%' AND t.door = 'fingerprint'
GROUP BY 1, 2, 3, 4, 5, 6, 7, 8 ORDER BY min(t.n);
-- the new grants: nothing of the attempt before is left
SELECT DISTINCT r.state, r.attempt, r.result, r.result_ref, r.finished_at, r.retained_until, r.owner_hash = digest(uuid_send(c.owner), 'sha256') AS former_owner
FROM two AS t JOIN cell AS c USING (n, door) JOIN idem_record AS r ON r.key = key_of(c)
WHERE t.answer ~ '^ACQUIRED \d$' AND t.call <> 'acquire #' AND t.situation NOT LIKE 'none%'
ORDER BY attempt;
-- who came late, or from elsewhere: evidence, for each key one row
SELECT a.kind, count(*) FROM idem_alert AS a JOIN idem_record AS r USING (key) WHERE r.scope LIKE 'st.%' GROUP BY kind ORDER BY kind;
SELECT count(*) AS not_owner FROM two WHERE answer = 'NOT_OWNER';


-- The one-transaction form --------------------------------------------------------------------------------------
DELETE FROM idem_record WHERE scope LIKE 'st.%';
UPDATE idem_policy SET downstream = 'local' WHERE scope = 'st.local';
BEGIN;
CREATE TEMP TABLE one ON COMMIT DROP AS
	SELECT c.*, begin_situation(c), end_situation(c), pass_time(c), ask(c) AS answer FROM cell AS c WHERE one_transaction;
SELECT situation, call, answer FROM one WHERE door = 'fingerprint' AND split_part(call, ' ', 1) IN ('acquire', 'status') ORDER BY n \crosstabview situation call answer
SELECT situation, call, answer FROM one WHERE door = 'fingerprint' AND call LIKE 'owner %' ORDER BY n \crosstabview situation call answer
SELECT situation, call, answer FROM one WHERE door = 'fingerprint' AND call LIKE 'other %' ORDER BY n \crosstabview situation call answer
SELECT situation, call, door, answer, due(c, true) AS due
FROM (SELECT t.answer, c FROM one AS t JOIN cell AS c USING (n, door)) AS x, LATERAL (SELECT (c).situation, (c).call, (c).door) AS y
WHERE answer IS DISTINCT FROM due(c, true)
ORDER BY (c).n, door;
-- an open claim is in one of the two tables, a finished one in the record alone (4.1)
SELECT count(*) FROM idem_fast JOIN idem_record USING (key);
SELECT state, count(*) FILTER (WHERE in_fast) AS fast, count(*) FILTER (WHERE NOT in_fast) AS record
FROM (SELECT state, true AS in_fast FROM idem_fast UNION ALL SELECT state, false FROM idem_record WHERE scope LIKE 'st.%') AS r
GROUP BY state ORDER BY state;
-- P9: all of it goes with the transaction
ROLLBACK;
SELECT (SELECT count(*) FROM idem_fast) AS fast, (SELECT count(*) FROM idem_record WHERE scope LIKE 'st.%') AS record;

-- The same once more, in a scope that is let out of the transaction: it commits, and every claim still open is then in flight
UPDATE idem_policy SET downstream = 'opaque' WHERE scope = 'st.local';
CREATE TABLE kept AS
	SELECT c.*, begin_situation(c), end_situation(c), pass_time(c), ask(c) AS answer FROM cell AS c WHERE one_transaction AND door = 'fingerprint';
SELECT (SELECT count(*) FROM idem_fast) AS fast, count(*) FILTER (WHERE lease_until <= clock_timestamp() AND state = 'I') AS lease_over
FROM idem_record WHERE scope LIKE 'st.%';
SELECT k.situation ~ '^(running|over)' AS open_before, k.call, s.outcome, count(*)
FROM kept AS k JOIN cell AS c USING (n, door), idem_status_key(key_of(c), 'alice') AS s
WHERE k.situation ~ '^(running|over)' AND k.call LIKE 'owner%'
GROUP BY 1, 2, 3 ORDER BY min(k.n);
SELECT count(*) FROM kept AS k JOIN cell AS c USING (n, door), idem_status_key(key_of(c), 'alice') AS s
WHERE k.answer ~ '^ACQUIRED' AND k.call <> 'acquire #' AND s.outcome <> 'IN_FLIGHT';

DELETE FROM idem_record WHERE scope LIKE 'st.%';
DELETE FROM idem_policy WHERE scope LIKE 'st.%';
SET client_min_messages = warning;
DROP SCHEMA idem_test_state CASCADE;
