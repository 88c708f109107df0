-- What the database under test says at the end of a round, for check.sql.
SET client_min_messages = warning;
\set record '\\copy (SELECT r.key, r.state, r.attempt, r.downstream, r.scope, r.subject, (r.result ->> ''token'') || '':'' || md5(r.result::text), (extract(epoch FROM r.lease_until) * 1000000)::bigint, (SELECT s.outcome FROM idem_status_key(r.key, r.subject) AS s OFFSET 0) FROM idem_record AS r WHERE r.acquired_at >= to_timestamp(' :since ' / 1000000.0) - interval ''1 s'') TO ''' :folder '/record.tsv'''
:record
\set ledger '\\copy torture.ledger TO ''' :folder '/ledger.tsv'''
:ledger
TRUNCATE torture.ledger;

-- The indexes hold what the table holds, and no key stands twice.
SELECT bt_index_check('idem_record_pkey', true), bt_index_check('idem_record_retained_until', true);
SET enable_indexscan = off;
SET enable_indexonlyscan = off;
\set whole '\\copy (SELECT count(*) - count(DISTINCT key), (SELECT count(*) FROM idem_fast) FROM idem_record) TO ''' :folder '/whole.tsv'''
:whole
