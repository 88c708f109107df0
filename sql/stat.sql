-- Counters where the library is not preloaded: they say what to do, and nothing else minds (P12). What they count
-- where it is: test/t/300_stat.pl
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS idem CASCADE;
RESET client_min_messages;

-- this server may have it preloaded; then there is nothing to see here
SELECT NOT idem_preloaded() AS plain \gset
\if :plain
\else
\echo the library is preloaded
\quit
\endif
SELECT count(*) FROM idem_stat;
\echo :SQLSTATE
SELECT count(*) FROM idem_stat_counters();
\echo :SQLSTATE
SELECT idem_stat_reset();
\echo :SQLSTATE
-- its columns can be read about all the same
SELECT a.attname, col_description(a.attrelid, a.attnum) FROM pg_attribute AS a WHERE a.attrelid = 'idem_stat'::regclass AND a.attnum > 0 ORDER BY a.attnum;
-- calls go on, and purging too
SELECT outcome FROM idem_acquire_direct('alice', 'stat', '1');
UPDATE idem_record SET state = 'D', finished_at = now(), retained_until = '2020-01-01' WHERE scope = 'stat';
SELECT idem_purge() > 0 AS purged;
-- who may look, and who may reset
SELECT set, name FROM idem_privileges() WHERE name ~ 'stat|health|alerts|preloaded' AND name !~ 'status' ORDER BY 1, 2;
-- settings of its own, known without preload, and changed by the configuration alone
SELECT name, context FROM pg_settings WHERE name IN ('idem.databases', 'idem.naptime', 'idem.stat_max') ORDER BY name;
SET idem.stat_max = 10;
\echo :SQLSTATE
SET idem.databases = 'a';
\echo :SQLSTATE
