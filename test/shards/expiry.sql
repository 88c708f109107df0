-- expiry.sql: the measurements of test/shards/expiry, in an empty database with the extension. Sizes are counted by the
-- log (WAL) and by buffers, which do not depend on what else the machine does; times are told beside them.

-- A version-7 key of a time
CREATE FUNCTION key_at(at timestamptz, n int) RETURNS uuid LANGUAGE sql VOLATILE AS $$
	SELECT (lpad(to_hex((extract(epoch FROM at) * 1000)::int8), 12, '0') || '7' || substr(h, 1, 3) || '8' || substr(h, 4, 15))::uuid
		FROM md5(n::text) AS h
$$;

-- Run a statement and tell what it cost: bytes of WAL, and milliseconds
CREATE PROCEDURE measure(what text, statement text, per int DEFAULT NULL) LANGUAGE plpgsql AS $$
DECLARE
	lsn pg_lsn := pg_current_wal_insert_lsn();
	began timestamptz := clock_timestamp();
	bytes numeric;
BEGIN
	EXECUTE statement;
	bytes := pg_current_wal_insert_lsn() - lsn;
	RAISE INFO '%: % bytes of WAL%, % ms', what, bytes, coalesce(' (' || round(bytes / per) || ' a row)', ''),
		round(1000 * extract(epoch FROM clock_timestamp() - began));
END
$$;

-- The prototype: columns, constraints and indexes of idem_record, partitioned by the key's hour; what has no time
-- (the keys of direct calls) in a partition of its own.
CREATE TABLE parted (LIKE idem_record INCLUDING ALL) PARTITION BY RANGE (key);
CREATE TABLE parted_rest PARTITION OF parted DEFAULT;
CREATE FUNCTION bound(hour timestamptz) RETURNS text LANGUAGE sql AS $$
	SELECT quote_literal((lpad(to_hex((extract(epoch FROM hour) * 1000)::int8), 12, '0') || repeat('0', 20))::uuid)
$$;
CREATE PROCEDURE add_hour(hour timestamptz) LANGUAGE plpgsql AS $$
BEGIN
	EXECUTE format('CREATE TABLE parted_%s PARTITION OF parted FOR VALUES FROM (%s) TO (%s)',
		to_char(hour AT TIME ZONE 'UTC', 'DDHH24'), bound(hour), bound(hour + '1 h'));
END
$$;
DO $$ BEGIN FOR i IN 1 .. 24 LOOP CALL add_hour('2026-01-01 00:00Z'::timestamptz + i * interval '1 h'); END LOOP; END $$;

CREATE TEMP TABLE source AS
	SELECT key_at(t, n) AS key, t, n FROM generate_series(1, :rows) AS n,
		LATERAL (SELECT '2026-01-01 01:00Z'::timestamptz + n * (interval '24 h' / (:rows + 1))) AS x(t);
\set columns 'key, acquired_at, lease_until, policy_version, attempt, state, downstream, param_hash, owner_hash, scope, subject, retained_until, finished_at, result'
\set values 't, t, 0, 1, ''D'', ''o'', sha256(int4send(n)), sha256(int4send(n)), ''charge'', ''alice'', t + interval ''24 h'', t, jsonb_build_object(''receipt'', n, ''note'', repeat(''x'', 100)) FROM source ORDER BY n'
\echo == filling
CHECKPOINT;
SELECT format($f$CALL measure('plain: insert', $i$INSERT INTO idem_record (%1$s) SELECT key, %2$s$i$, %3$s)$f$, :'columns', :'values', :rows) \gexec
CHECKPOINT;
SELECT format($f$CALL measure('partitions: insert', $i$INSERT INTO parted (%1$s) SELECT key, %2$s$i$, %3$s)$f$, :'columns', :'values', :rows) \gexec
VACUUM (ANALYZE, FREEZE) idem_record;
VACUUM (ANALYZE, FREEZE) parted;

\echo == one look-up by key: buffers, planned anew and from a plan that is kept
CREATE FUNCTION buffers(what text, statement text) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
	plan json;
BEGIN
	FOR i IN 1 .. 2 LOOP		-- the second time: the catalog is in the caches
		EXECUTE 'EXPLAIN (ANALYZE, BUFFERS, FORMAT json, SUMMARY) ' || statement INTO plan;
	END LOOP;
	RAISE INFO '%: % buffers, planning time % ms', what, plan -> 0 -> 'Plan' -> 'Shared Hit Blocks', plan -> 0 -> 'Planning Time';
END
$$;
SELECT key AS probe FROM source OFFSET :rows / 3 LIMIT 1 \gset
SELECT buffers('plain', format('SELECT * FROM idem_record WHERE key = %L', :'probe')) \g /dev/null
SELECT buffers('partitions', format('SELECT * FROM parted WHERE key = %L', :'probe')) \g /dev/null
SET plan_cache_mode = force_generic_plan;
PREPARE plain (uuid) AS SELECT * FROM idem_record WHERE key = $1;
PREPARE parted (uuid) AS SELECT * FROM parted WHERE key = $1;
EXECUTE plain (:'probe') \g /dev/null
EXECUTE parted (:'probe') \g /dev/null
SELECT buffers('plain, kept plan', format('EXECUTE plain (%L)', :'probe')) \g /dev/null
SELECT buffers('partitions, kept plan', format('EXECUTE parted (%L)', :'probe')) \g /dev/null
BEGIN;
EXECUTE plain (:'probe') \g /dev/null
EXECUTE parted (:'probe') \g /dev/null
SELECT 'locks of one look-up with a kept plan: plain ' || count(*) FILTER (WHERE r ~ '^idem_record') || ', partitions ' || count(*) FILTER (WHERE r ~ '^parted')
	FROM (SELECT relation::regclass::text AS r FROM pg_locks WHERE pid = pg_backend_pid() AND locktype = 'relation') AS l;
COMMIT;
RESET plan_cache_mode;

\echo == expiry of everything
CHECKPOINT;
CREATE PROCEDURE purge_all() LANGUAGE plpgsql AS $$
DECLARE
	lsn pg_lsn := pg_current_wal_insert_lsn();
	began timestamptz := clock_timestamp();
	went int8;
	total int8 := 0;
BEGIN
	LOOP
		went := idem_purge(10000);
		COMMIT;
		EXIT WHEN went = 0;
		total := total + went;
	END LOOP;
	RAISE INFO 'plain: idem_purge of % rows: % bytes of WAL (% a row), % ms', total, pg_current_wal_insert_lsn() - lsn,
		round((pg_current_wal_insert_lsn() - lsn) / total), round(1000 * extract(epoch FROM clock_timestamp() - began));
END
$$;
CALL purge_all();
SELECT pg_current_wal_insert_lsn() AS lsn, clock_timestamp() AS began \gset
VACUUM idem_record;
SELECT format('plain: VACUUM after it: %s bytes of WAL, %s ms', pg_current_wal_insert_lsn() - :'lsn'::pg_lsn,
	round(1000 * extract(epoch FROM clock_timestamp() - :'began'::timestamptz)));
CHECKPOINT;
SELECT string_agg(inhrelid::regclass::text, ', ') AS hours FROM pg_inherits
	WHERE inhparent = 'parted'::regclass AND inhrelid <> 'parted_rest'::regclass \gset
CALL measure('partitions: DROP TABLE of 24', 'DROP TABLE ' || :'hours', :rows);

\echo == what stands against it
-- direct calls have keys without a time: they fill the partition that cannot be dropped, and that a new hour has to scan
SELECT format($f$INSERT INTO parted (%1$s) SELECT idem_key('alice', 'charge', to_jsonb(n)), %2$s$f$, :'columns', :'values') \gexec
VACUUM ANALYZE parted_rest;
CREATE PROCEDURE next_hour() LANGUAGE plpgsql AS $$
DECLARE
	before numeric := pg_stat_get_xact_tuples_returned('parted_rest'::regclass);
	began timestamptz := clock_timestamp();
BEGIN
	CALL add_hour('2026-01-03 00:00Z');
	RAISE INFO 'a new hour beside % rows of direct calls: % of them read under an exclusive lock, % ms',
		(SELECT reltuples FROM pg_class WHERE oid = 'parted_rest'::regclass),
		pg_stat_get_xact_tuples_returned('parted_rest'::regclass) - before,
		round(1000 * extract(epoch FROM clock_timestamp() - began));
	RAISE INFO 'locks on the parent for it: %', (SELECT string_agg(DISTINCT mode, ', ') FROM pg_locks WHERE pid = pg_backend_pid() AND relation = 'parted'::regclass);
END
$$;
CALL next_hour();
BEGIN;
DROP TABLE parted_0300;
SELECT 'locks on the parent for DROP TABLE: ' || string_agg(DISTINCT mode, ', ') FROM pg_locks WHERE pid = pg_backend_pid() AND relation = 'parted'::regclass;
ROLLBACK;
\echo == for scale: the WAL of the life of one operation
CREATE PROCEDURE live(n int) LANGUAGE plpgsql AS $$
DECLARE
	lsn pg_lsn := pg_current_wal_insert_lsn();
	c idem_claim;
BEGIN
	FOR i IN 1 .. n LOOP
		c := idem_acquire_direct('alice', 'life', to_jsonb(i), gen_random_uuid()::text);
		COMMIT;
		PERFORM idem_commit(c.key, c.owner, jsonb_build_object('receipt', i, 'note', repeat('x', 100)));
		COMMIT;
	END LOOP;
	RAISE INFO 'acquired and committed in two transactions: % bytes of WAL an operation', round((pg_current_wal_insert_lsn() - lsn) / n);
END
$$;
CALL live(100);
CALL live(5000);
