-- Views for people: what is in flight, what is stuck, what there was; no result, no owner (P5, P10)
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS idem CASCADE;
RESET client_min_messages;
CREATE SCHEMA idem_test_views;
SET search_path = idem_test_views, public;
DELETE FROM idem_record;
DELETE FROM idem_alert;

CREATE FUNCTION acquire(scope text, n int) RETURNS idem_outcome LANGUAGE sql AS $$
	SELECT outcome FROM idem_acquire_direct('alice', scope, to_jsonb(n), owner => '00000000-0000-4000-8000-000000000001', holder => 'holder-' || n, trace_id => 'trace-' || n)
$$;
CREATE FUNCTION k(scope text, n int) RETURNS uuid LANGUAGE sql AS $$ SELECT idem_key('alice', scope, to_jsonb(n)) $$;
INSERT INTO idem_policy (scope, downstream) VALUES ('view.o', 'opaque'), ('view.q', 'queryable'), ('view.i', 'idempotent'), ('view.l', 'local');

-- the columns, and nothing secret among them
SELECT c.relname AS view, string_agg(a.attname || ' ' || format_type(a.atttypid, NULL), ', ' ORDER BY a.attnum) AS columns
FROM pg_class AS c JOIN pg_attribute AS a ON a.attrelid = c.oid AND a.attnum > 0
WHERE c.oid IN ('idem_in_flight'::regclass, 'idem_stuck'::regclass, 'idem_audit'::regclass, 'idem_secrets'::regclass) GROUP BY 1 ORDER BY 1;
SELECT attrelid::regclass AS table, attname FROM pg_attribute
WHERE attrelid IN ('idem_in_flight'::regclass, 'idem_stuck'::regclass, 'idem_audit'::regclass, 'idem_secrets'::regclass) AND attnum > 0 AND attname IN ('result', 'owner', 'owner_hash', 'secret');

-- of this transaction's own, and when it is committed
BEGIN;
SELECT acquire('view.o', 1), acquire('view.l', 2);
SELECT scope, subject, downstream, attempt, holder, trace_id, age >= '0' AS age, lease_left BETWEEN '4 min' AND '5 min' AS lease, xid IS NOT NULL AS xid, gid FROM idem_in_flight ORDER BY holder;
SELECT count(*) AS records FROM idem_audit WHERE scope LIKE 'view.%';
SAVEPOINT a;
SELECT acquire('view.o', 3);
SELECT count(*), count(DISTINCT xid::text) AS transactions FROM idem_in_flight;
ROLLBACK TO a;
SELECT idem_commit(k('view.l', 2), '00000000-0000-4000-8000-000000000001', '1');
SELECT holder FROM idem_in_flight;
COMMIT;
SELECT holder, xid FROM idem_in_flight;
-- prepared: with its name
BEGIN;
SELECT acquire('view.q', 5), acquire('view.o', 6);
SELECT idem_commit(k('view.o', 6), '00000000-0000-4000-8000-000000000001', '1');
PREPARE TRANSACTION 'idem_test_views';
SELECT holder, attempt, xid IS NOT NULL AS uncommitted, gid FROM idem_in_flight WHERE gid IS NOT NULL;
SELECT count(*) FROM idem_stuck;
COMMIT PREPARED 'idem_test_views';
SELECT holder, attempt, xid, gid FROM idem_in_flight ORDER BY holder;
SELECT acquire('view.i', 4);

-- P5: stuck is what nobody may take over; what a takeover will continue is not
UPDATE idem_record SET lease_until = '2020-01-01' WHERE state = 'I';
SELECT scope, downstream, attempt, holder, trace_id, overdue > '1 year' AS overdue FROM idem_stuck ORDER BY scope;
SELECT scope, lease_left < '0' AS over FROM idem_in_flight ORDER BY scope;
-- the view and the answer agree
SELECT r.scope, s.outcome, EXISTS (SELECT FROM idem_stuck AS t WHERE t.key = r.key) AS stuck FROM idem_record AS r, idem_status_key(r.key, 'alice') AS s WHERE r.scope LIKE 'view.%' ORDER BY r.scope, s.outcome;

-- all there was
SELECT acquire('view.o', 7), acquire('view.o', 8), acquire('view.o', 9);
SELECT idem_fail(k('view.o', 7), '00000000-0000-4000-8000-000000000001', '"secret"'), idem_release(k('view.o', 8), '00000000-0000-4000-8000-000000000001'),
	   idem_commit(k('view.o', 9), '00000000-0000-4000-8000-000000000001', '"secret"', 'ref');
SELECT holder, state, downstream, attempt, trace_id, result_ref, expires_at IS NULL AS direct, finished_at IS NOT NULL AS finished, retained_until = 'infinity' AS kept, policy_version,
	   param_hash = encode(idem_param_hash(scope, to_jsonb(right(holder, 1)::int)), 'hex') AS hash, reconciled_at, reconciled_by, reconcile_note
FROM idem_audit WHERE scope LIKE 'view.%' ORDER BY holder;
SELECT count(*) FROM idem_audit AS a WHERE a::text ~ 'secret|00000000-?0000';
-- lapsed ones are there until they are purged
UPDATE idem_record SET retained_until = '2020-01-01' WHERE state <> 'I';
SELECT state, count(*) FROM idem_audit GROUP BY state ORDER BY state;

-- the list of claims in flight goes by the index, also when it is large
SET enable_seqscan = off;
SET enable_bitmapscan = off;
EXPLAIN (COSTS OFF) SELECT key FROM idem_stuck;
RESET enable_seqscan;
RESET enable_bitmapscan;

-- T10: whatever a reader has in his search path, none of it is run
CREATE SCHEMA idem_test_trap;
CREATE FUNCTION idem_test_trap.sprung("char", "char") RETURNS bool LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'the trap was sprung'; END $$;
CREATE FUNCTION idem_test_trap.sprung(text, text) RETURNS bool LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'the trap was sprung'; END $$;
CREATE FUNCTION idem_test_trap.sprung(timestamptz, timestamptz) RETURNS bool LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'the trap was sprung'; END $$;
CREATE FUNCTION idem_test_trap.clock_timestamp() RETURNS timestamptz LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'the trap was sprung'; END $$;
CREATE FUNCTION idem_test_trap.format(text, VARIADIC text[]) RETURNS text LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'the trap was sprung'; END $$;
CREATE OPERATOR idem_test_trap.= (LEFTARG = "char", RIGHTARG = "char", FUNCTION = idem_test_trap.sprung);
CREATE OPERATOR idem_test_trap.= (LEFTARG = text, RIGHTARG = text, FUNCTION = idem_test_trap.sprung);
CREATE OPERATOR idem_test_trap.|| (LEFTARG = text, RIGHTARG = text, FUNCTION = idem_test_trap.sprung);
CREATE OPERATOR idem_test_trap.= (LEFTARG = timestamptz, RIGHTARG = timestamptz, FUNCTION = idem_test_trap.sprung);
CREATE OPERATOR idem_test_trap.<= (LEFTARG = timestamptz, RIGHTARG = timestamptz, FUNCTION = idem_test_trap.sprung);
SET search_path = idem_test_trap, pg_catalog;
SELECT 'a'::text = 'a'::text;
SELECT count(downstream) > 0 AS seen FROM public.idem_audit;
SELECT count(v) > 0 AS seen FROM public.idem_audit AS v;
SELECT count(v) > 0 AS seen FROM public.idem_in_flight AS v;
SELECT count(v) > 0 AS seen FROM public.idem_stuck AS v;
SELECT count(v) > 0 AS seen FROM public.idem_alerts AS v;
SELECT count(v) > 0 AS seen FROM public.idem_secrets AS v;
SELECT count(v) > 0 AS seen FROM public.idem_health() AS v;
SET search_path = idem_test_views, public;
SET client_min_messages = warning;
DROP SCHEMA idem_test_trap CASCADE;
RESET client_min_messages;
-- the call that settles a stuck claim is right under whatever name the schema has now
BEGIN;
ALTER SCHEMA public RENAME TO "re Named";
SELECT DISTINCT split_part(reconcile, '(', 1) AS call FROM "re Named".idem_stuck;
SELECT count(*) > 1 AS works FROM "re Named".idem_health();
ROLLBACK;

-- read only
BEGIN READ ONLY; SELECT count(*) FROM idem_in_flight; COMMIT;
-- C05 (P10): nobody looks in without being let in
CREATE ROLE idem_test_views_role;
GRANT USAGE ON SCHEMA idem_test_views TO idem_test_views_role;
SET ROLE idem_test_views_role;
\set VERBOSITY sqlstate
SELECT count(*) FROM idem_in_flight;
SELECT count(*) FROM idem_stuck;
SELECT count(*) FROM idem_audit;
SELECT count(*) FROM idem_secrets;
SELECT count(*) FROM idem_record;
SELECT count(*) FROM idem_fast;
SELECT count(*) FROM idem_alert;
SELECT count(*) FROM idem_secret;
SELECT count(*) FROM _idem_uncommitted(NULL::idem_ack);
RESET ROLE;
SELECT idem_grant('idem_test_views_role', 'auditor');
SET ROLE idem_test_views_role;
SELECT count(*) > 0 AS sees FROM idem_in_flight;
SELECT count(*) > 0 AS sees FROM idem_stuck;
SELECT count(*) > 0 AS sees FROM idem_audit;
SELECT count(*) FROM idem_record;
SELECT count(*) FROM idem_fast;
RESET ROLE;
SELECT idem_revoke('idem_test_views_role', 'auditor');
DROP OWNED BY idem_test_views_role;
DROP ROLE idem_test_views_role;
DELETE FROM idem_record;
DELETE FROM idem_alert;
DELETE FROM idem_policy WHERE scope LIKE 'view.%';
