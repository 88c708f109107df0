# The maintenance worker: it does its work, misses nothing that comes back, complains once a round at most, and is
# in nobody's way (H04, H05, H06; P5: what is at work is never purged).
use strict;
use warnings;

use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(time);
use IdemTest;

my $node = idem_node('worker',
	shared_preload_libraries => 'idem',
	'idem.databases' => 'postgres, second, gone, plain, "Odd name"',
	'idem.naptime' => '1',
	max_worker_processes => 8,
	autovacuum => 'off');
my $create = 'SET client_min_messages = warning; CREATE EXTENSION idem CASCADE';

sub lapse { return "INSERT INTO idem_record SELECT gen_random_uuid(), now(), now(), 0, 1, 'D', 'o', sha256(''), sha256(''), 'old', 'alice', NULL, NULL, NULL, '2020-01-01', now() FROM generate_series(1, $_[0])" }

# The worker has taken this away
sub cared_for
{
	my ($db, $what) = @_;
	value($node, lapse(3), $db);
	wait_until($node, "SELECT count(*) = 0 FROM idem_record WHERE scope = 'old'", $db);
	pass($what);
	return;
}

# Let some rounds pass, and return what was logged meanwhile by others than our own sessions
sub rounds_logged
{
	my ($n, $what) = @_;
	my $size = log_size($node);
	my $end = time + $n;
	Time::HiRes::usleep(50_000) while time < $end;
	my @lines = grep { !/^\t|\d{3}_\w+\.pl|checkpoint/ && /(LOG|WARNING|ERROR|FATAL|PANIC):/ } split /\n/, log_since($node, $size);
	note("$what: $_") foreach @lines;
	return @lines;
}

# What a listener is told until something is, a notification a line
sub told
{
	my ($listener, $awaited) = @_;
	my $told = '';
	foreach (1 .. 600)
	{
		$told .= $listener->query_ok('SELECT 1') . "\n";
		last if $told =~ $awaited;
		Time::HiRes::usleep(50_000);
	}
	return join "\n", $told =~ /notification "idem_alert" with payload "(.*?)" received/g;
}

# Alerts of some kinds, all raised at one time that has yet to come, so that one round tells of them
sub alerts { return "INSERT INTO idem_alert (key, kind, count, first_at, last_at, role, scope, subject) SELECT gen_random_uuid(), kind, 1, t, t, 'x', 'secret scope', 'alice' FROM unnest(ARRAY['" . join("', '", @_) . "']) AS kind, (SELECT clock_timestamp() + '1500 ms' AS t) AS t" }

subtest 'regular care, alerts told of, and what is at work stays (H06)' => sub {
	cared_for('postgres', 'lapsed records go');
	value($node, "INSERT INTO idem_policy (scope, downstream_max, gateway_timeout, retry_backoff, in_flight_ttl) VALUES ('quick', '1 ms', '1 ms', '1 ms', '10 ms')");
	my $listener = session($node);
	$listener->query_ok('LISTEN idem_alert');
	my $key = value($node, "SELECT key FROM idem_acquire_direct('alice', 'quick', '1')");
	my $live = value($node, "SELECT key FROM idem_acquire_direct('alice', 'live', '1')");
	wait_until($node, "SELECT count(*) = 1 FROM idem_alert WHERE kind = 'stuck' AND key = '$key'");
	pass('a stuck claim raises its alert by itself');
	my $told = told($listener, qr/"kind": "stuck"/);
	is($told, '{"kind": "stuck", "count": 1}', 'and a notification');
	# two rounds, since a round's notifications come at its end
	cared_for('postgres', 'rounds go on') foreach 1 .. 2;
	unlike($listener->query_ok('SELECT 1'), qr/Asynchronous/, 'of each alert there is one');
	$listener->quit;
	is(value($node, "SELECT count(*) FROM idem_alert WHERE kind = 'stuck'"), '1', 'one alert for one stuck claim');
	is(value($node, "SELECT count(*) FROM idem_record WHERE key IN ('$key', '$live') AND state = 'I'"), '2', 'neither is purged');
	foreach my $bad ('NULL', '0', '-1')
	{
		my ($state) = psql_error($node, "SELECT idem_purge($bad)");
		like($state, qr/^22/, "idem_purge($bad) is refused");
	}
	value($node, 'SELECT idem_purge(2147483647)');
	is(value($node, "SELECT count(*) FROM idem_record WHERE key IN ('$key', '$live') AND state = 'I'"), '2', 'nor by any purge');
	is(value($node, "SELECT string_agg(name || ' ' || status, ', ' ORDER BY name) FROM idem_health() WHERE name IN ('worker', 'preload', 'stuck', 'purge')"),
		'preload ok, purge ok, stuck bad, worker ok', 'the health check knows');
};

# T8, T9
subtest 'who listens, which any role may, is told kinds and numbers' => sub {
	my $known = value($node, "SELECT pg_get_constraintdef(oid) FROM pg_constraint WHERE conname = 'idem_alert_kind'");
	value($node, 'CREATE ROLE listener LOGIN; ALTER TABLE idem_alert DROP CONSTRAINT idem_alert_kind');
	my $listener = session($node, user => 'listener');
	$listener->query_ok('LISTEN idem_alert');
	my $long = 'x' x 9000;
	value($node, alerts('takeover', 'not_owner', 'stuck', $long, 'takeover', 'unheard', 'stuck', 'stuck'));
	is(told($listener, qr/other/), join("\n", '{"kind": "stuck", "count": 3}', '{"kind": "not_owner", "count": 1}', '{"kind": "takeover", "count": 2}', '{"kind": "other", "count": 2}'),
		'what waits for a person first, and what nobody knows last');
	$listener->quit;
	value($node, "DELETE FROM idem_alert WHERE kind NOT IN ('stuck', 'takeover', 'not_owner')");
	value($node, "ALTER TABLE idem_alert ADD CONSTRAINT idem_alert_kind $known");
	cared_for('postgres', 'care goes on');
};

subtest 'no extension, a foreign schema and table of its names, a database that is not there: nothing to say (H04)' => sub {
	value($node, 'CREATE DATABASE second TEMPLATE template0');
	value($node, 'CREATE SCHEMA idem; CREATE TABLE idem.idem_record (a int); CREATE TABLE public.idem_record (a int);'
		. " CREATE FUNCTION public.idem_maintain() RETURNS void LANGUAGE plpgsql AS \$\$ BEGIN RAISE 'not mine'; END \$\$", 'second');
	is(scalar(rounds_logged(3, 'foreign names')), 0, 'no line in three rounds');
	value($node, 'DROP TABLE public.idem_record; DROP FUNCTION public.idem_maintain()', 'second');
	value($node, $create, 'second');
	cared_for('second', 'work begins once the extension is there');
};

subtest 'the extension dropped and created again while the worker runs (H04)' => sub {
	foreach (1 .. 5)
	{
		value($node, 'DROP EXTENSION idem', 'second');
		value($node, $create, 'second');
	}
	value($node, 'DROP EXTENSION idem', 'second');
	is(scalar(rounds_logged(3, 'dropped')), 0, 'dropped: no line in three rounds');
	value($node, 'CREATE SCHEMA "We ird.Sch"', 'second');
	value($node, 'SET client_min_messages = warning; CREATE EXTENSION idem SCHEMA "We ird.Sch"', 'second');
	value($node, 'SET search_path = "We ird.Sch"; ' . lapse(3), 'second');
	wait_until($node, 'SELECT count(*) = 0 FROM "We ird.Sch".idem_record', 'second');
	pass('back in another schema: work resumes');
	value($node, 'DROP EXTENSION idem; DROP SCHEMA "We ird.Sch"', 'second');
	value($node, $create, 'second');
};

subtest 'locked tables (H04)' => sub {
	my $s = session($node);
	$s->query_ok($_) foreach 'BEGIN', 'LOCK TABLE idem_record IN ACCESS EXCLUSIVE MODE';
	wait_until($node, "SELECT count(*) > 0 FROM pg_stat_activity WHERE backend_type = 'idem worker' AND query = 'idem: purging' AND wait_event_type = 'Lock'");
	pass('pg_stat_activity shows what it does and that it waits');
	cared_for('second', 'another database gets its turn');
	my @lines = rounds_logged(7, 'locked');
	cmp_ok(scalar(@lines), '>=', 1, 'it says so');
	cmp_ok(scalar(@lines), '<=', 4, 'once a round, of three seconds each');
	is(scalar(grep { !/LOG:  idem worker could not do its round: canceling statement due to lock timeout/ } @lines), 0, 'and plainly');
	$s->query_ok('COMMIT');
	$s->quit;
	cared_for('postgres', 'work resumes');
};

subtest 'max_worker_processes used up (H04)' => sub {
	$node->append_conf('postgresql.conf', "max_worker_processes = 2\n");
	$node->restart;
	my @lines = rounds_logged(4, 'no slot');
	cmp_ok(scalar(@lines), '>=', 1, 'it says so');
	cmp_ok(scalar(@lines), '<=', 5, 'once a round');
	is(scalar(grep { !/LOG:  idem launcher could not start a worker/ } @lines), 0, 'and plainly');
	value($node, lapse(3));
	is(value($node, 'SELECT idem_purge()'), '3', 'purge by hand works');
	$node->append_conf('postgresql.conf', "max_worker_processes = 8\n");
	$node->restart;
	cared_for('postgres', 'work resumes');
};

subtest 'launcher and worker ended by hand (H04)' => sub {
	is(value($node, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE backend_type = 'idem launcher'"), 't', 'the launcher');
	wait_until($node, "SELECT count(*) = 1 FROM pg_stat_activity WHERE backend_type = 'idem launcher'");
	cared_for('postgres', 'is back');
	my $s = session($node);
	$s->query_ok($_) foreach 'BEGIN', 'LOCK TABLE idem_record IN ACCESS EXCLUSIVE MODE';
	wait_until($node, "SELECT count(*) > 0 FROM (SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE backend_type = 'idem worker' AND wait_event_type = 'Lock') AS t");
	wait_until($node, "SELECT count(*) > 0 FROM (SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE backend_type = 'idem worker' AND wait_event_type = 'Lock') AS t");
	$s->query_ok('COMMIT');
	$s->quit;
	cared_for('postgres', 'a worker ended, and one cancelled, in the middle of its round are followed by another');
};

subtest 'databases come, go and change their names (H05)' => sub {
	my $begun = time;
	value($node, 'DROP DATABASE second');
	cmp_ok(time - $begun, '<', 5, 'DROP DATABASE while the worker cares for it');
	foreach (1 .. 5)
	{
		value($node, 'CREATE DATABASE gone');
		value($node, $create, 'gone');
		value($node, 'DROP DATABASE gone');
	}
	pass('made and dropped again, with rounds going on');
	# a new database under an old name is told of its alerts too
	value($node, 'CREATE DATABASE second');
	value($node, $create, 'second');
	cared_for('second', 'made anew under the same name');
	value($node, "INSERT INTO idem_policy (scope, downstream_max, gateway_timeout, retry_backoff, in_flight_ttl) VALUES ('quick', '1 ms', '1 ms', '1 ms', '10 ms')", 'second');
	my $listener = session($node, dbname => 'second');
	$listener->query_ok('LISTEN idem_alert');
	value($node, "SELECT key FROM idem_acquire_direct('alice', 'quick', '1')", 'second');
	is(told($listener, qr/"kind": "stuck"/), '{"kind": "stuck", "count": 1}', 'its alerts are told of');
	$listener->quit;
	value($node, 'ALTER DATABASE second RENAME TO renamed');
	value($node, lapse(1), 'renamed');
	is(scalar(rounds_logged(2, 'renamed')), 0, 'renamed: nothing to say');
	is(value($node, "SELECT count(*) FROM idem_record WHERE scope = 'old'", 'renamed'), '1', 'and no longer cared for, as its name is not listed');
};

subtest 'a copy of a database, as template (H05)' => sub {
	my $key = value($node, "SELECT key FROM idem_acquire_direct('alice', 'live', '2')", 'renamed');
	my $token = value($node, "SELECT idem_sign('alice', 'pay', '1')", 'renamed');
	value($node, 'CREATE DATABASE copy TEMPLATE renamed');
	is(value($node, "SELECT outcome FROM idem_status_key('$key', 'alice')", 'copy'), 'IN_FLIGHT', 'a copy is a copy, its claims included');
	# what docs/operations.md says of copies
	value($node, q{
		BEGIN;
		SELECT idem_rotate_secret();
		SELECT idem_revoke_secret(id) FROM idem_secrets WHERE NOT signing AND revoked_at IS NULL;
		TRUNCATE idem_record, idem_fast, idem_alert;
		COMMIT}, 'copy');
	is(value($node, "SELECT outcome FROM idem_status_key('$key', 'alice')", 'copy'), 'NONE', 'afterwards its claims are gone');
	is(value($node, "SELECT outcome FROM idem_acquire('$token', 'alice', 'pay', '1')", 'copy'), 'INVALID', 'and the fingerprints of the original are nothing to it');
	is(value($node, "SELECT outcome FROM idem_status('$token', 'alice')", 'renamed'), 'NONE', 'while the original knows its own');
	is(value($node, "SELECT status FROM idem_health() WHERE name = 'worker'", 'copy'), 'warn', 'no worker cares for the copy, and the health check says so');
};

subtest 'an owner who is no superuser, and a name that wants quotes' => sub {
	value($node, 'CREATE ROLE plain LOGIN; CREATE DATABASE plain OWNER plain; CREATE DATABASE "Odd name" OWNER plain');
	foreach my $db ('plain', 'Odd name')
	{
		my ($rc, $out, $err) = $node->psql($db, $create, extra_params => [ '-U', 'plain' ]);
		is($rc, 0, "$db: installed") or diag($err);
		cared_for($db, "$db: cared for");
	}
};

subtest 'no error but those provoked' => sub {
	my @lines = grep { /(ERROR|FATAL|PANIC|WARNING):/ && !/\.pl / } split /\n/, log_since($node, 0);
	my @known = grep { /terminating background worker|canceling statement due to (lock timeout|user request)|database .* does not exist|terminating connection due to administrator command/ } @lines;
	is(scalar(@lines), scalar(@known), 'in the whole log') or diag(join "\n", @lines);
};

$node->stop;

# T2
subtest 'the database\'s owner puts a schema of his in the place of public' => sub {
	my $theirs = idem_node('theirs', -extension => 0, shared_preload_libraries => 'idem', 'idem.databases' => 'theirs', 'idem.naptime' => '1', autovacuum => 'off');
	value($theirs, 'CREATE ROLE dba LOGIN; CREATE DATABASE theirs OWNER dba');
	value($theirs, $create, 'theirs');
	my $dba = session($theirs, dbname => 'theirs', user => 'dba');
	$dba->query_ok($_) foreach 'ALTER SCHEMA public RENAME TO moved', 'CREATE SCHEMA public; GRANT ALL ON SCHEMA public TO PUBLIC';
	foreach my $table ('record', 'fast', 'alert', 'policy', 'policy_version')
	{
		my $columns = value($theirs, "SELECT string_agg(format('%I %s', attname, format_type(atttypid, atttypmod)), ', ' ORDER BY attnum) FROM pg_attribute WHERE attrelid = 'moved.idem_$table'::regclass AND attnum > 0", 'theirs');
		$dba->query_ok("CREATE TABLE public.idem_$table ($columns); GRANT ALL ON public.idem_$table TO PUBLIC");
		$dba->query_ok("CREATE FUNCTION public.trap_$table() RETURNS trigger LANGUAGE plpgsql AS \$\$ BEGIN RAISE WARNING 'his code'; RETURN NULL; END \$\$;"
			. " CREATE TRIGGER trap BEFORE INSERT OR UPDATE OR DELETE ON public.idem_$table FOR EACH STATEMENT EXECUTE FUNCTION public.trap_$table()");
	}
	$dba->query_ok("CREATE FUNCTION public.$_ LANGUAGE plpgsql AS \$\$ BEGIN RAISE WARNING 'his code'; END \$\$")
	  foreach 'idem_purge(max_rows int4 DEFAULT 10000) RETURNS int8', 'idem_maintain(OUT purged int8, OUT newly_stuck int8, OUT alerts_purged int8)',
	  'idem_alert_stuck(uuid, text, text, text, int4) RETURNS int8', '_idem_alert_stuck(uuid, text, text, text, int4) RETURNS int8';
	my $size = log_size($theirs);
	foreach (1 .. 2)
	{
		value($theirs, 'SET search_path = moved; ' . lapse(3), 'theirs');
		wait_until($theirs, "SELECT count(*) = 0 FROM moved.idem_record WHERE scope = 'old'", 'theirs');
	}
	value($theirs, "SET search_path = moved; INSERT INTO idem_policy (scope, downstream_max, gateway_timeout, retry_backoff, in_flight_ttl) VALUES ('quick', '1 ms', '1 ms', '1 ms', '10 ms')", 'theirs');
	value($theirs, "SET search_path = moved; SELECT key FROM idem_acquire_direct('alice', 'quick', '1')", 'theirs');
	wait_until($theirs, "SELECT count(*) = 1 FROM moved.idem_alert WHERE kind = 'stuck'", 'theirs');
	pass('the worker does its round under the new name');
	unlike(log_since($theirs, $size), qr/WARNING:  his code|could not do its round/, 'and runs nothing of his');
	$dba->quit;
	$theirs->stop;
};

# M9
subtest 'a database made anew under its name has its place' => sub {
	my $again = idem_node('again', -extension => 0, shared_preload_libraries => 'idem', 'idem.databases' => 'again', 'idem.naptime' => '1', autovacuum => 'off');
	foreach my $time (1 .. 4)
	{
		value($again, 'DROP DATABASE again') if $time > 1;
		value($again, 'CREATE DATABASE again');
		value($again, $create, 'again');
		foreach (1 .. 2)
		{
			value($again, lapse(3), 'again');
			wait_until($again, "SELECT count(*) = 0 FROM idem_record WHERE scope = 'old'", 'again');
		}
	}
	my $listener = session($again, dbname => 'again');
	$listener->query_ok('LISTEN idem_alert');
	value($again, alerts('stuck'), 'again');
	is(told($listener, qr/stuck/), '{"kind": "stuck", "count": 1}', 'its alert is told of, once');
	$listener->quit;
	$again->stop;
};

# R24
subtest 'the clock is set back an hour' => sub {
	my $dir = PostgreSQL::Test::Utils::tempdir();
	append_to_file("$dir/clock.c", <<'END');
#include <stdio.h>
#include <stdlib.h>
#include <sys/time.h>
#include <time.h>

int
gettimeofday(struct timeval *restrict now, void *restrict zone)
{
	struct timespec real;
	FILE	   *file = fopen(getenv("CLOCK_STEP"), "r");
	long		step = 0;

	clock_gettime(CLOCK_REALTIME, &real);
	if (file != NULL)
	{
		if (fscanf(file, "%ld", &step) != 1)
			step = 0;
		fclose(file);
	}
	now->tv_sec = real.tv_sec + step;
	now->tv_usec = real.tv_nsec / 1000;
	return 0;
}
END
	plan skip_all => 'no compiler' if system("cc -shared -fPIC -o $dir/clock.so $dir/clock.c 2>$dir/errors") != 0;
	my $stepping;
	{
		local $ENV{CLOCK_STEP} = "$dir/step";
		local $ENV{LD_PRELOAD} = join ' ', grep { defined && $_ ne '' } $ENV{LD_PRELOAD}, "$dir/clock.so";
		$stepping = idem_node('stepping', shared_preload_libraries => 'idem', 'idem.databases' => 'postgres', 'idem.naptime' => '1', autovacuum => 'off');
	}
	my $cared_for = sub {
		value($stepping, lapse(3));
		wait_until($stepping, "SELECT count(*) = 0 FROM idem_record WHERE scope = 'old'");
	};
	$cared_for->() foreach 1 .. 2;
	my $listener = session($stepping);
	$listener->query_ok('LISTEN idem_alert');
	append_to_file("$dir/step", '-3600');
	cmp_ok(value($stepping, 'SELECT extract(epoch FROM clock_timestamp())'), '<', time - 3000, 'the server believes it');
	value($stepping, alerts('stuck'));
	is(told($listener, qr/stuck/), '{"kind": "stuck", "count": 1}', 'what happens afterwards is told of');
	$cared_for->();
	pass('rounds go on');
	$listener->quit;
	$stepping->stop;
};

done_testing();
