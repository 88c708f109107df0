-- P4, P11: a late result so large that two of them fit no jsonb is refused like any other; its size is kept.
INSERT INTO idem_policy (scope, downstream) VALUES ('evidence', 'idempotent');
SELECT key, owner AS lost FROM idem_acquire_direct('evidence', 'evidence', '{}') \gset
UPDATE idem_record SET lease_until = '2020-01-01' WHERE key = :'key';
SELECT owner FROM idem_acquire_direct('evidence', 'evidence', '{}') \gset
SELECT idem_commit(:'key', :'lost', pg_catalog.to_jsonb(pg_catalog.repeat('x', 135000000)));
SELECT idem_commit(:'key', :'owner', '"ours"');
SELECT detail -> 'first' AS first FROM idem_alert WHERE key = :'key' AND kind = 'not_owner';
SELECT outcome, result FROM idem_acquire_direct('evidence', 'evidence', '{}');
DELETE FROM idem_policy WHERE scope = 'evidence';
