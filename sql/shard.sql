-- Which of several servers an operation belongs to (docs/format.md).
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS idem CASCADE;
RESET client_min_messages;
\set VERBOSITY sqlstate

-- P1, P3: the vectors of test/vectors/shards.json, computed by an independent program: an operation that is looked for
-- elsewhere than before would be granted again. Rows shown are failures.
CREATE TEMP TABLE vector (key uuid, fingerprint text, shards int[]);
INSERT INTO vector VALUES
	('0192f0c1-7e3a-7c11-8a5b-0d5c2f6e9a01', NULL, '{0,0,2,2,4,388,7750}'),
	('0192f0c1-7e3a-7c11-8a5b-0d5c2f6e9a04', NULL, '{0,0,0,3,6,856,51329}'),
	('0192f0c1-7e3a-7c11-8a5b-0d5c2f6e9a05', NULL, '{0,1,1,1,13,515,47089}'),
	('df34ea3d-d58e-8094-985e-eaf73b3c4688', NULL, '{0,1,1,1,12,247,7729}'),
	('84b42ac4-2879-8cd3-b5e0-309268abbfdf', NULL, '{0,0,2,2,14,632,9858}'),
	('00000000-0000-0000-0000-000000000000', NULL, '{0,1,1,3,12,782,36807}'),
	('ffffffff-ffff-ffff-ffff-ffffffffffff', NULL, '{0,1,2,2,15,511,40856}'),
	(NULL, 'eyJuIjoiMDE5MmYwYzEtN2UzYS03YzExLThhNWItMGQ1YzJmNmU5YTA0IiwiZXhwIjo0MTAyNDQ0ODAwLCJ1IjoiYWxpY2UiLCJzIjoiY2hhcmdlIiwicCI6IkVOeTQ2QlF6T25KRklFaHFnU0VrcHhveUpKYXRoSnBOUUx1RUhOVGZIYk0iLCJ2Ijo1NjE5MDgyNDN9.4-UkHl0mGS7-Co18OHTctk-nZHzCip6g5Wn11AIWsOk', '{0,0,0,3,6,856,51329}'),
	(NULL, E'"eyJuIjoiMDE5MmYwYzEtN2UzYS03YzExLThhNWItMGQ1YzJmNmU5YTA0IiwiZXhwIjo0MTAyNDQ0ODAwLCJ1IjoiYWxpY2UiLCJzIjoiY2hhcmdlIiwicCI6IkVOeTQ2QlF6T25KRklFaHFnU0VrcHhveUpKYXRoSnBOUUx1RUhOVGZIYk0iLCJ2Ijo1NjE5MDgyNDN9.4-UkHl0mGS7-Co18OHTctk-nZHzCip6g5Wn11AIWsOk." \n', '{0,0,0,3,6,856,51329}'),
	(NULL, 'eyJuIjoiMDE5MmYwYzEtN2UzYS03YzExLThhNWItMGQ1YzJmNmU5YTA0IiwiZXhwIjo0MTAyNDQ0ODAwLCJ1IjoiYWxpY2UiLCJzIjoiY2hhcmdlIiwicCI6IkVOeTQ2QlF6T25KRklFaHFnU0VrcHhveUpKYXRoSnBOUUx1RUhOVGZIYk0iLCJ2Ijo1NjE5MDgyNDN9.4-UkHl0mGS7-Co18OHTctk-nZHzCip6g5Wn11AIWAAA', '{0,0,0,3,6,856,51329}'),
	(NULL, '', '{0,0,0,0,8,41,27956}'),
	(NULL, 'made-up', '{0,0,0,0,9,870,15830}'),
	(NULL, '{"n":"0192f0c1-7e3a-7c11-8a5b-0d5c2f6e9a04"}', '{0,1,1,1,9,159,46331}'),
	(NULL, 'café', '{0,1,1,1,7,565,64744}');
SELECT count(*) FROM vector;
SELECT v.*, m.n, idem_shard_key(key, n), idem_shard(fingerprint, n)
FROM vector AS v, unnest('{1,2,3,4,16,1000,65536}'::int[], shards) AS m (n, shard)
WHERE CASE WHEN key IS NOT NULL THEN idem_shard_key(key, n) ELSE idem_shard(fingerprint, n) END IS DISTINCT FROM shard;

-- The same from its definition, over many keys and numbers of shards
CREATE FUNCTION pg_temp.place(name bytea, n int) RETURNS int LANGUAGE plpgsql AS $$
DECLARE
	hash bytea := sha256(int4send(12) || 'idem:shard:1' || int4send(length(name)) || name);
	state numeric := 0;
	b int8;
	j int8 := 0;
BEGIN
	FOR i IN 0 .. 7 LOOP
		state := state * 256 + get_byte(hash, i);
	END LOOP;
	WHILE j < n LOOP
		b := j;
		state := mod(state * 2862933555777941757 + 1, 18446744073709551616);
		j := floor((b + 1)::float8 * (2147483648::float8 / (div(state, 8589934592) + 1)::float8));
	END LOOP;
	RETURN b;
END
$$;
SELECT setseed(0.25);
CREATE TEMP TABLE many AS
	SELECT md5(random()::text || i)::uuid AS key, 1 + floor(exp(random() * ln(65536)))::int % 65536 AS n FROM generate_series(1, 500) AS i;
SELECT * FROM many WHERE idem_shard_key(key, n) <> pg_temp.place(uuid_send(key), n);
SELECT min(idem_shard_key(key, 65536)) >= 0 AS from_zero, max(idem_shard_key(key, 65536)) < 65536 AS to_n FROM many;

-- P1: a fingerprint leads where its operation's key leads, before and after a policy's change, and however a model
-- copies it; a stranger's MAC changes nothing
CREATE TEMP TABLE signed AS
	SELECT i, idem_sign('alice', 'shard', to_jsonb(i)) AS fp FROM generate_series(1, 200) AS i;
ALTER TABLE signed ADD key uuid;
UPDATE signed SET key = (idem_inspect(fp)).key;
SELECT count(DISTINCT idem_shard(fp, 3)) AS shards,
	   bool_and(idem_shard(fp, n) = idem_shard_key(key, n)) AS alike,
	   bool_and(idem_shard(E' "`' || fp || E'`".\n', n) = idem_shard_key(key, n)) AS copied,
	   bool_and(idem_shard(left(fp, -43) || repeat('A', 43), n) = idem_shard_key(key, n)) AS forged
FROM signed, unnest('{3,7,65536}'::int[]) AS n;
-- what was granted has the key that it was routed by
SELECT c.outcome, count(*), bool_and(idem_shard_key(c.key, 5) = idem_shard(fp, 5)) AS alike
FROM signed, LATERAL idem_acquire(fp, 'alice', 'shard', to_jsonb(i)) AS c WHERE i <= 3 GROUP BY 1;

-- Spread: each of three shards has a third of keys that differ in their last bits only
SELECT idem_shard_key(('00000000-0000-7000-8000-' || lpad(to_hex(i), 12, '0'))::uuid, 3) AS shard, count(*) BETWEEN 1800 AND 2200 AS a_third
FROM generate_series(1, 6000) AS i GROUP BY 1 ORDER BY 1;
-- and with one shard more, only what moves to the new one moves: a quarter
SELECT count(*) FILTER (WHERE three <> four AND four <> 3) AS moved_elsewhere, count(*) FILTER (WHERE four = 3) BETWEEN 1300 AND 1700 AS a_quarter
FROM (SELECT idem_shard_key(key, 3) AS three, idem_shard_key(key, 4) AS four
	FROM (SELECT ('00000000-0000-7000-8000-' || lpad(to_hex(i), 12, '0'))::uuid AS key FROM generate_series(1, 6000) AS i) AS k) AS s;

-- P11: whatever a model sends leads somewhere, always to the same place: there it is INVALID
SELECT idem_shard(NULL, 3) = idem_shard('', 3) AS null_is_empty, idem_shard(repeat('x', 5000), 65536) AS over_long,
	   idem_shard(repeat('x', 5000), 65536) = idem_shard(repeat('x', 4096), 65536) AS bounded;
SELECT count(*) AS answers, count(*) FILTER (WHERE s NOT BETWEEN 0 AND 2) AS outside
FROM (SELECT idem_shard(CASE i % 3 WHEN 0 THEN left(fp, i) WHEN 1 THEN overlay(fp PLACING chr(33 + i % 90) FROM i) ELSE substr(fp, i) END, 3) AS s
	FROM signed) AS t;
SELECT idem_shard_key(NULL, 3);
SELECT idem_shard_key('00000000-0000-0000-0000-000000000000', NULL);
SELECT idem_shard('x', NULL);
SELECT idem_shard('x', 0);
SELECT idem_shard('x', -1);
SELECT idem_shard('x', 65537);
SELECT idem_shard_key('00000000-0000-0000-0000-000000000000', 2147483647);
\set VERBOSITY terse
SELECT idem_shard('secret text', 0);
SELECT idem_shard_key(NULL, 3);

-- whoever routes needs no secret and no table
SELECT proname, provolatile AS volatile, proparallel AS parallel, proisstrict AS strict FROM pg_proc WHERE proname ~ '^idem_shard' ORDER BY 1;
DELETE FROM idem_record WHERE scope = 'shard';
