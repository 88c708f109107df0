-- A role bound to a subject learns nothing of another subject's operation, and blocks it by nothing: its key is one that
-- does not exist (P7; T6, T20, T22). What open transactions have to do with it stands in test/isolation/specs/subject.spec.
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS idem CASCADE;
CREATE ROLE regress_idem_web;
CREATE ROLE regress_idem_pool;
CREATE ROLE regress_idem_free;
CREATE ROLE regress_idem_writer;
CREATE SCHEMA idem_test_subject;
GRANT ALL ON SCHEMA idem_test_subject TO PUBLIC;
SET search_path = idem_test_subject, public;
RESET client_min_messages;
DELETE FROM idem_record;
DELETE FROM idem_alert;
INSERT INTO idem_policy (scope, downstream) VALUES ('su', 'idempotent');

CREATE FUNCTION k(subject text, n int) RETURNS uuid LANGUAGE sql SECURITY DEFINER SET search_path = public, pg_temp
	AS $$ SELECT idem_key(subject, 'su', to_jsonb(n)) $$;
CREATE FUNCTION o(n int) RETURNS uuid LANGUAGE sql AS $$ SELECT ('00000000-0000-4000-8000-00000000000' || n)::uuid $$;
CREATE FUNCTION raised(statement text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	detail text;
	hint text;
BEGIN
	EXECUTE statement;
	RETURN 'nothing';
EXCEPTION WHEN OTHERS THEN
	GET STACKED DIAGNOSTICS detail = PG_EXCEPTION_DETAIL, hint = PG_EXCEPTION_HINT;
	RETURN concat_ws(' | ', SQLSTATE, SQLERRM, detail, hint);
END
$$;
CREATE TABLE payment (key uuid);
CREATE TRIGGER payment BEFORE INSERT ON payment FOR EACH ROW EXECUTE FUNCTION idem_require('su', 'key');
GRANT ALL ON payment TO PUBLIC;

-- bob's: 1 in flight, 2 with its lease over, 3 done, 4 failed, 5 to be tried again, 6 lapsed; 7 is alice's; 9 is nobody's
SELECT outcome FROM generate_series(1, 6) AS n, idem_acquire_direct('bob', 'su', to_jsonb(n), owner => o(n)) \g /dev/null
SELECT idem_commit(k('bob', 3), o(3), '"secret"'), idem_fail(k('bob', 4), o(4), '"secret"'), idem_fail(k('bob', 5), o(5), '"secret"', true), idem_commit(k('bob', 6), o(6), '"secret"');
SELECT outcome FROM idem_acquire_direct('alice', 'su', '7', owner => o(7));
UPDATE idem_record SET lease_until = '2020-01-01' WHERE key = k('bob', 2);
UPDATE idem_record SET retained_until = '2020-01-01' WHERE key = k('bob', 6);
DELETE FROM idem_alert;
SELECT string_agg(xmin::text || ctid::text || xmax::text, ' ' ORDER BY key) AS before FROM idem_record \gset

SELECT idem_grant('regress_idem_web', 'caller', 'app.subject'), idem_grant('regress_idem_web', 'operator'), idem_grant('regress_idem_free', 'caller');
GRANT regress_idem_web TO regress_idem_pool;
-- every call with a key, with the owner token as well as without
CREATE TABLE call AS SELECT * FROM (VALUES
	(1, 'idem_commit(%1$L, %2$L)'),
	(2, 'idem_commit(%1$L, %2$L, ''{"order":"FORGED"}'', ''REF'')'),
	(3, 'idem_fail(%1$L, %2$L, ''"FORGED"'')'),
	(4, 'idem_fail(%1$L, %2$L, ''"FORGED"'', true)'),
	(5, 'idem_release(%1$L, %2$L)'),
	(6, 'idem_renew(%1$L, %2$L)'),
	(7, '(SELECT outcome FROM idem_status_key(%1$L, ''alice''))'),
	(8, 'idem_reconcile(%1$L, ''DONE'', ''why'', ''"FORGED"'')'),
	(9, 'idem_reconcile(%1$L, ''RETRY'', ''why'', force => true)')) AS t (i, call);
GRANT SELECT ON call TO PUBLIC;
CREATE FUNCTION answers(subject text, n int, owner uuid) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	c text;
	answer text;
	said text := '';
BEGIN
	FOR c IN SELECT call FROM call ORDER BY i LOOP
		EXECUTE 'SELECT ' || format(c, k(subject, n), owner) INTO answer;
		said := said || ' ' || answer;
	END LOOP;
	RETURN said || ' ' || raised(format('INSERT INTO payment VALUES (%L)', k(subject, n)));
END
$$;
CREATE FUNCTION as_role(role text, subject text, n int, owner uuid) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	said text;
BEGIN
	EXECUTE format('SET LOCAL ROLE %I', role);
	said := answers(subject, n, owner);
	RESET ROLE;
	RETURN said;
END
$$;

-- T6, T20: as for nobody's key, by the bound role and by who is a member of it
SELECT set_config('app.subject', 'alice', false);
SELECT as_role('regress_idem_web', 'bob', 9, o(9));
SELECT role, count(*) AS asked, count(DISTINCT said) AS answers, min(said) = as_role('regress_idem_web', 'bob', 9, o(9)) AS as_nobodys
	FROM unnest('{regress_idem_web,regress_idem_pool}'::text[]) AS role, generate_series(1, 6) AS n, unnest(ARRAY[o(n), o(9)]) AS owner,
		LATERAL as_role(role, 'bob', n, owner) AS said GROUP BY role ORDER BY role DESC;
-- in a transaction that sees what was there before alone
BEGIN ISOLATION LEVEL SERIALIZABLE;
SELECT count(DISTINCT as_role('regress_idem_web', 'bob', n, o(n))) FROM generate_series(1, 6) AS n;
SELECT count(*) FROM pg_locks WHERE mode = 'SIReadLock' AND relation = 'idem_record'::regclass AND tuple IS NOT NULL;
COMMIT;
-- nothing was written and nothing locked
SELECT string_agg(xmin::text || ctid::text || xmax::text, ' ' ORDER BY key) = :'before' AS as_it_was FROM idem_record;
SELECT count(*) FROM idem_alert;
SELECT count(*) FROM payment;
-- its own, as ever
BEGIN;
SET LOCAL ROLE regress_idem_web;
SELECT idem_renew(k('alice', 7), o(9)), outcome FROM idem_status_key(k('alice', 7), 'alice');
INSERT INTO payment VALUES (k('alice', 7));
SELECT idem_renew(k('alice', 7), o(7)), idem_commit(k('alice', 7), o(7), '"r"');
ROLLBACK;
-- the setting unset, or another's: then there is none
CREATE FUNCTION of_own(setting text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	said text;
BEGIN
	PERFORM set_config('app.subject', setting, true);
	SET LOCAL ROLE regress_idem_web;
	said := concat_ws(' ', idem_renew(k('alice', 7), o(7)), idem_commit(k('alice', 7), o(7), '"r"'), idem_reconcile(k('alice', 7), 'DONE', 'why', force => true),
		left(raised(format('INSERT INTO payment VALUES (%L)', k('alice', 7))), 5));
	RESET ROLE;
	RETURN said;
END
$$;
SELECT setting, of_own(setting) FROM unnest('{"",bob,Alice}'::text[]) AS setting;
BEGIN;
SELECT of_own('alice');
ROLLBACK;
-- in the fast table, this transaction's own claim that it made as somebody else
BEGIN;
SELECT outcome FROM idem_acquire_direct('bob', 'su', '8', owner => o(8));
SELECT as_role('regress_idem_web', 'bob', 8, o(8)) = as_role('regress_idem_web', 'bob', 9, o(9)) AS as_nobodys;
SELECT idem_commit(k('bob', 8), o(8), '"r"');
COMMIT;
-- who executes has been admitted, whatever its function does to the setting
CREATE FUNCTION changes(params jsonb) RETURNS jsonb LANGUAGE sql AS $$ SELECT to_jsonb(set_config('app.subject', 'carol', true)) $$;
BEGIN;
SET LOCAL ROLE regress_idem_web;
SELECT outcome, replayed FROM idem_execute('alice', 'su', '10', 'changes(jsonb)');
ROLLBACK;

-- free are a role without a binding, and one that writes rows without any right of idem's
BEGIN;
SET LOCAL ROLE regress_idem_writer;
INSERT INTO payment VALUES (k('bob', 1));
SET LOCAL ROLE regress_idem_free;
INSERT INTO payment VALUES (k('bob', 1));
SELECT idem_renew(k('bob', 1), o(1));
SELECT idem_commit(k('bob', 1), o(9), '"FORGED"');
ROLLBACK;
-- and where a function of one's own writes, its owner
CREATE FUNCTION pay(key uuid) RETURNS void LANGUAGE sql SECURITY DEFINER SET search_path = idem_test_subject, pg_temp
	AS 'INSERT INTO payment VALUES (key)';
BEGIN;
ALTER FUNCTION pay OWNER TO regress_idem_writer;
SET LOCAL ROLE regress_idem_web;
SELECT pay(k('bob', 1));
ROLLBACK;
SELECT raised(format('ALTER FUNCTION pay OWNER TO regress_idem_web')), raised(format('SELECT pay(%L)', k('bob', 1)));

-- T22: what a status of another subject's key reads does not grow with the result ---------------------------------------------
CREATE FUNCTION buffers(subject text, n int) RETURNS int LANGUAGE plpgsql AS $$
DECLARE
	plan json;
BEGIN
	EXECUTE format('EXPLAIN (ANALYZE, BUFFERS, COSTS OFF, TIMING OFF, SUMMARY OFF, FORMAT json) SELECT outcome FROM idem_status_key(%L, ''alice'')', k(subject, n)) INTO plan;
	RETURN (plan #>> '{0,Plan,Shared Hit Blocks}')::int + (plan #>> '{0,Plan,Shared Read Blocks}')::int;
END
$$;
-- incompressible, from a hash: 3 kB to 10 MB
CREATE FUNCTION noise(bytes int) RETURNS jsonb LANGUAGE sql AS $$
	SELECT to_jsonb(string_agg(encode(sha256(int4send(n)), 'hex'), '')) FROM generate_series(1, bytes / 64) AS n
$$;
SELECT idem_commit(k('bob', n), idem_acquire_direct.owner, noise(bytes))
	FROM (VALUES (21, 64), (22, 3000), (23, 100000), (24, 10000000)) AS t (n, bytes), idem_acquire_direct('bob', 'su', to_jsonb(n)) \g /dev/null
SELECT idem_commit(k('alice', 25), owner, noise(10000000)) FROM idem_acquire_direct('alice', 'su', '25');
VACUUM idem_record, idem_fast;
SELECT buffers('bob', n) >= 0 AS warm FROM unnest('{9,21,22,23,24,25}'::int[]) AS n \g /dev/null
SELECT count(DISTINCT buffers('bob', n)) AS all_alike, bool_and(buffers('bob', n) - buffers('bob', 9) BETWEEN 0 AND 2) AS little_more_than_none
	FROM generate_series(21, 24) AS n;
SELECT buffers('alice', 25) > 1000 AS ones_own_is_read;

SET client_min_messages = warning;
SELECT idem_revoke('regress_idem_web', 'caller'), idem_revoke('regress_idem_web', 'operator'), idem_revoke('regress_idem_free', 'caller') \g /dev/null
DROP SCHEMA idem_test_subject CASCADE;
DROP OWNED BY regress_idem_web, regress_idem_pool, regress_idem_free, regress_idem_writer;
DROP ROLE regress_idem_web, regress_idem_pool, regress_idem_free, regress_idem_writer;
DELETE FROM idem_record;
DELETE FROM idem_alert;
DELETE FROM idem_policy WHERE scope = 'su';
