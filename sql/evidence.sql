-- P4, P11: a late result so large that two of them fit no jsonb is refused like any other; its size is kept.
SELECT key, owner FROM idem_acquire_direct('evidence', 'evidence', '{}') \gset
SELECT idem_commit(:'key', gen_random_uuid(), pg_catalog.to_jsonb(pg_catalog.repeat('x', 135000000)));
SELECT idem_commit(:'key', :'owner', '"ours"');
SELECT detail -> 'first' AS first FROM idem_alert WHERE key = :'key' AND kind = 'not_owner';
SELECT outcome, result FROM idem_acquire_direct('evidence', 'evidence', '{}');
