# pg_cron in place of the maintenance worker, for who cannot preload idem: the job of docs/operations.md is accepted, runs
# as a role that may maintain and nothing else, and does what the worker does (H06; P2, P5).
#
# pg_cron counts in minutes. What is waited for here is the same job at "@reboot", which runs when pg_cron starts.
use strict;
use warnings;

use Test::More;
use IdemTest;

my $node = idem_node('cron', autovacuum => 'off');
plan skip_all => 'this PostgreSQL has no pg_cron (Debian: postgresql-VERSION-cron)'
  if value($node, q{SELECT count(*) FROM pg_available_extensions WHERE name = 'pg_cron'}) == 0;
$node->append_conf('postgresql.conf', q{
shared_preload_libraries = 'pg_cron'
cron.database_name = 'postgres'
cron.use_background_workers = on
});
$node->restart;

my $create = 'SET client_min_messages = warning; CREATE EXTENSION idem CASCADE';
value($node, "CREATE EXTENSION pg_cron; CREATE DATABASE shop; CREATE ROLE carer LOGIN; CREATE ROLE stranger LOGIN");
value($node, "$create; SELECT idem_grant('carer', 'operator')", 'shop');
value($node, q{SELECT cron.schedule_in_database('idem', '* * * * *', 'SELECT idem_maintain()', 'shop', 'carer')});
is(value($node, q{SELECT schedule, database, username, active FROM cron.job WHERE jobname = 'idem'}), '* * * * *|shop|carer|t', 'the job of every minute');
value($node, q{SELECT cron.schedule_in_database('at start', '@reboot', 'SELECT idem_maintain()', 'shop', 'carer')});
value($node, q{SELECT cron.schedule_in_database('not theirs', '@reboot', 'SELECT idem_maintain()', 'shop', 'stranger')});

# something for each part of the care: lapsed records, a claim that is stuck, one at work, an old alert
value($node, q{
	INSERT INTO idem_policy (scope, downstream_max, gateway_timeout, retry_backoff, in_flight_ttl) VALUES ('quick', '1 ms', '1 ms', '1 ms', '10 ms');
	INSERT INTO idem_record (key, acquired_at, lease_until, policy_version, attempt, state, downstream, param_hash, owner_hash, scope, subject, retained_until, finished_at)
		SELECT gen_random_uuid(), now(), now(), 0, 1, 'D', 'o', sha256(''), sha256(''), 'old', 'alice', '2020-01-01', now() FROM generate_series(1, 250);
	SELECT idem_acquire_direct('alice', 'quick', '1');
	SELECT idem_acquire_direct('alice', 'mail', '1');
	INSERT INTO idem_alert (key, kind, count, first_at, last_at, role, scope, subject, detail)
		VALUES (gen_random_uuid(), 'released', 1, '2020-01-01', '2020-01-01', 'x', 'old', 'alice', '{}')}, 'shop');
$node->restart;
wait_until($node, q{SELECT count(*) = 2 FROM cron.job_run_details WHERE status IN ('succeeded', 'failed') AND jobid IN (SELECT jobid FROM cron.job WHERE schedule = '@reboot')});
is(value($node, q{SELECT d.status, d.username, d.database FROM cron.job_run_details AS d JOIN cron.job USING (jobid) WHERE jobname = 'at start'}),
	'succeeded|carer|shop', 'the job has run as its role, in its database');
is(value($node, q{SELECT count(*) FROM idem_record WHERE scope = 'old'}, 'shop'), 0, 'what has lapsed is gone');
is(value($node, q{SELECT string_agg(scope, ' ' ORDER BY scope) FROM idem_record}, 'shop'), 'mail quick', 'what is at work, or unknown, stays (P5)');
is(value($node, q{SELECT string_agg(kind || ' ' || scope, ', ') FROM idem_alert}, 'shop'), 'stuck quick', 'what is stuck has its alert, and the old alert is gone');
is(value($node, q{SELECT d.status, d.return_message LIKE '%permission denied for function idem_maintain%' FROM cron.job_run_details AS d JOIN cron.job USING (jobid) WHERE jobname = 'not theirs'}),
	'failed|t', 'a role without the set operator is told why not, in cron.job_run_details');
is(value($node, q{SELECT status FROM idem_health() WHERE name = 'purge'}, 'shop'), 'ok', 'idem_health finds nothing to purge');
done_testing();
