# What is counted adds up, whatever becomes of the calls: each is counted once, under what became of it (P12, F11, H09).
use strict;
use warnings;

use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(time);
use IdemTest;

my $seconds = $ENV{IDEM_MIX_SECONDS} // 10;
my $node = idem_node('stat',
	# behind a library that asks for shared memory as well
	shared_preload_libraries => 'pg_stat_statements,idem',
	'idem.stat_max' => 12,
	'idem.fast_path' => 'on',
	max_connections => 40,
	max_prepared_transactions => 5,
	autovacuum => 'off');

sub acquire { my ($scope, $n, $more) = @_; return "SELECT outcome FROM idem_acquire_direct('alice', '$scope', '$n'" . ($more // '') . ')' }

# The counters of a scope, those that are not zero, as event=calls
sub counters
{
	my ($scope, $db) = @_;
	return value($node, "SELECT coalesce(string_agg(event || '=' || calls, ' ' ORDER BY event COLLATE \"C\"), '') FROM idem_stat_counters() WHERE scope = '$scope'", $db);
}

sub finding { return value($node, "SELECT finding FROM idem_stat WHERE scope = '$_[0]'") }

value($node, qq{
	INSERT INTO idem_policy (scope, downstream, downstream_max, gateway_timeout, retry_backoff, in_flight_ttl)
		VALUES ('quick', 'opaque', '1 ms', '1 ms', '1 ms', '10 ms'), ('again', 'idempotent', '1 ms', '1 ms', '1 ms', '10 ms');
	CREATE SEQUENCE calls;
	CREATE FUNCTION ring(jsonb) RETURNS jsonb LANGUAGE plpgsql AS \$\$
		BEGIN IF \$1::text = '"fail"' THEN RAISE 'no'; END IF; RETURN \$1; END \$\$;
	CREATE FUNCTION descend(n jsonb) RETURNS jsonb LANGUAGE plpgsql AS \$\$
		BEGIN
			IF n::int < 30 THEN
				PERFORM idem_execute('alice', 'deep', to_jsonb(n::int + 1), 'descend(jsonb)');
			END IF;
			RETURN n;
		END \$\$});

subtest 'each call is counted under what became of it' => sub {
	my $owner = '00000000-0000-4000-8000-000000000001';
	my $s = session($node);
	$s->query_ok(acquire('one', 1, ", owner => '$owner'"));
	$s->query_ok(acquire('one', 1, ", owner => '$owner'"));
	$s->query_ok(acquire('one', 1));
	my $key = "idem_key('alice', 'one', '1')";
	$s->query_ok("SELECT idem_renew($key, '$owner')");
	$s->query_ok("SELECT idem_commit($key, gen_random_uuid())");
	$s->query_ok("SELECT idem_commit($key, '$owner', '1')");
	$s->query_ok("SELECT idem_commit($key, '$owner', '2')");
	$s->query_ok(acquire('one', 1)) foreach 1 .. 3;
	$s->query_ok("SELECT idem_status_key($key, 'alice')");
	$s->query(acquire('one', 1, ", wait => '-1 s'"));
	is(counters('one'),
		'acquire.acquired=1 acquire.again=1 acquire.done=3 acquire.error=1 acquire.in_flight=1 commit.already=1 commit.not_owner=1 commit.ok=1'
		  . ' promoted=1 renew.ok=1 status.done=1', 'acquire, renew, commit, status');
	is(value($node, "SELECT calls, executed, replayed, joined, in_flight, acknowledged, refused, looked_up, errors, rolled_back, promoted, replay_ratio FROM idem_stat WHERE scope = 'one'"),
		'12|1|4|0|1|3|1|1|1|0|1|0.8000', 'and summed for people');
	$s->query_ok("SELECT idem_execute('alice', 'run', '1', 'ring(jsonb)')") foreach 1 .. 2;
	$s->query("SELECT idem_execute('alice', 'run', '\"fail\"', 'ring(jsonb)')");
	is(counters('run'), 'execute.acquired=1 execute.done=1 execute.error=1', 'execute; its own commit is no call');
	$s->query_ok("SELECT idem_execute('alice', 'deep', '1', 'descend(jsonb)')");
	is(counters('deep'), 'execute.acquired=30', 'thirty calls within each other');
	$s->quit;
};

subtest 'who waits for another\'s run and gets its result has joined it' => sub {
	my $owner = '00000000-0000-4000-8000-000000000001';
	my ($s, $t) = (session($node), session($node));
	foreach my $end (q{idem_commit(%s, '1')}, q{idem_fail(%s, '"no"')})
	{
		my ($scope) = $end =~ /idem_(\w+)/;
		$s->query_ok('BEGIN');
		$s->query_ok(acquire("join $scope", 1, ", owner => '$owner'"));
		$t->send(acquire("join $scope", 1, ", wait => '1 min'"));
		wait_blocked($node, $t);
		$s->query_ok('SELECT ' . sprintf($end, "idem_key('alice', 'join $scope', '1'), '$owner'"));
		$s->query_ok('COMMIT');
		$t->wait;
		is(counters("join $scope"), "acquire.acquired=1 acquire.joined=1 $scope.ok=1", "$scope: counted as joined");
		is(value($node, "SELECT calls, executed, replayed, joined FROM idem_stat WHERE scope = 'join $scope'"), '3|1|0|1', "$scope: and summed");
	}
	$_->quit foreach $s, $t;
};

subtest 'what is rolled back was not executed, and a refusal stands (F11)' => sub {
	my $s = session($node);
	$s->query_ok($_) foreach 'BEGIN', acquire('back', 1), 'SAVEPOINT a', acquire('back', 2), 'SAVEPOINT b', acquire('back', 3),
	  'RELEASE b', acquire('back', 1), 'ROLLBACK TO a', acquire('back', 4);
	is(counters('back'), 'acquire.in_flight=1 rolled_back=2', 'inside the transaction');
	$s->query_ok('COMMIT');
	is(counters('back'), 'acquire.acquired=2 acquire.in_flight=1 promoted=2 rolled_back=2', 'and after it');
	$s->query_ok($_) foreach 'BEGIN', acquire('back', 5), acquire('back', 1), 'ROLLBACK';
	is(counters('back'), 'acquire.acquired=2 acquire.in_flight=2 promoted=2 rolled_back=3', 'rolled back as a whole');
	$s->query_ok($_) foreach 'BEGIN', acquire('back', 6), "PREPARE TRANSACTION 'stat'";
	is(counters('back'), 'acquire.acquired=3 acquire.in_flight=2 promoted=3 rolled_back=3', 'prepared: counted then');
	$s->query_ok("COMMIT PREPARED 'stat'");
	$s->query_ok($_) foreach 'BEGIN', acquire('back', 7);
	$s->terminate;
	$s->quit;
	wait_until($node, "SELECT calls = 4 FROM idem_stat_counters() WHERE scope = 'back' AND event = 'rolled_back'");
	pass('a backend that ended in its transaction rolled it back');
};

subtest 'purged rows and takeovers' => sub {
	value($node, acquire('again', 1));
	wait_until($node, "SELECT lease_until <= clock_timestamp() FROM idem_record WHERE scope = 'again'");
	value($node, acquire('again', 1));
	is(counters('again'), 'acquire.acquired=2 promoted=1 takeover=1', 'a takeover is a grant, and said besides');
	value($node, "UPDATE idem_record SET retained_until = '2020-01-01' WHERE scope = 'run'; SELECT idem_purge()");
	like(counters('run'), qr/ purged=1$/, 'purge');

	# of many scopes, callers' words all: what is kept until the commit does not grow with them (P11)
	my $s = session($node);
	$s->query_ok(q{INSERT INTO idem_record (key, acquired_at, lease_until, policy_version, attempt, state, downstream, param_hash, owner_hash, scope, subject, retained_until, finished_at)
		SELECT gen_random_uuid(), now(), now(), 0, 1, 'D', 'o', sha256(''), sha256(''), 'word ' || n, 'alice', '2020-01-01', now() FROM generate_series(1, 20000) AS n});
	$s->query_ok('BEGIN');
	$s->query_ok('SELECT idem_purge(1)');
	my $memory = q{SELECT sum(total_bytes) FROM pg_backend_memory_contexts};
	my $before = $s->query_ok($memory);
	is($s->query_ok('SELECT idem_purge(100000)'), '19999', 'all go');
	cmp_ok($s->query_ok($memory) - $before, '<', 2_000_000, 'in bounded memory');
	$s->query_ok('COMMIT');
	$s->quit;
	is(value($node, q{SELECT sum(calls) FROM idem_stat_counters() WHERE event = 'purged'}), '20001', 'and each is counted');
};

subtest 'more scopes than idem.stat_max share one entry; reset' => sub {
	value($node, 'SELECT idem_stat_reset()');
	is(value($node, 'SELECT count(*) FROM idem_stat'), '0', 'reset');
	my $s = session($node);
	$s->query_ok(acquire("many.$_", 1)) foreach 1 .. 30;
	is(value($node, "SELECT count(*), sum(calls), max(calls) FILTER (WHERE scope = '(other)') FROM idem_stat"), '13|30|18',
		'none is lost');
	$s->quit;
};

subtest 'two databases do not see each other; the counters survive a clean restart, not a crash' => sub {
	value($node, 'CREATE DATABASE second');
	value($node, 'SET client_min_messages = warning; CREATE EXTENSION idem CASCADE', 'second');
	value($node, 'SELECT idem_stat_reset()', $_) foreach 'postgres', 'second';
	value($node, acquire('both', $_)) foreach 1 .. 3;
	value($node, acquire('both', 1), 'second');
	is(counters('both'), 'acquire.acquired=3 promoted=3', 'here');
	is(counters('both', 'second'), 'acquire.acquired=1 promoted=1', 'there');
	value($node, 'SELECT idem_stat_reset()', 'second');
	is(counters('both'), 'acquire.acquired=3 promoted=3', 'reset there');
	$node->restart;
	is(counters('both'), 'acquire.acquired=3 promoted=3', 'a clean restart');
	ok(!-e $node->data_dir . '/pg_stat/idem.stat', 'the file is gone, so that a crash cannot bring it back');
	value($node, acquire('both', 4));
	crash_and_start($node);
	is(counters('both'), '', 'a crash clears them, as it does all of shared memory');
	my $size = log_size($node);
	$node->stop;
	open my $file, '>', $node->data_dir . '/pg_stat/idem.stat' or die;
	print $file 'no counters';
	close $file;
	$node->start;
	like(log_since($node, $size), qr/ignoring invalid data in file "pg_stat\/idem.stat"/, 'a broken file is said, and ignored');
	is(value($node, 'SELECT count(*) FROM idem_stat'), '0', 'and the server runs');
};

subtest 'findings, each provoked' => sub {
	my $s = session($node);
	value($node, 'SELECT idem_stat_reset()');
	$s->query_ok(acquire('fine', 1)) foreach 1 .. 2;
	is(finding('fine'), 'nothing remarkable', 'nothing');
	$s->query_ok(acquire('quick', 1));
	wait_until($node, "SELECT lease_until <= clock_timestamp() FROM idem_record WHERE scope = 'quick'");
	$s->query_ok(acquire('quick', 1));
	like(finding('quick'), qr/outcomes that nobody knows/, 'unknown outcomes');
	$s->query_ok("SELECT idem_acquire(fp, 'alice', 'text', to_jsonb(n)) FROM idem_sign('alice', 'text', '0') AS fp, generate_series(1, 10) AS n");
	like(finding('text'), qr/many parameter mismatches/, 'mismatches');
	$s->query_ok(acquire('late', 1));
	$s->query_ok("SELECT idem_commit(idem_key('alice', 'late', '1'), gen_random_uuid()) FROM generate_series(1, 10)");
	like(finding('late'), qr/no longer holds the claim/, 'late holders');
	$s->query_ok($_) foreach 'BEGIN', "SELECT idem_acquire_direct('alice', 'undo', to_jsonb(n)) FROM generate_series(1, 100) AS n", 'ROLLBACK';
	like(finding('undo'), qr/more grants rolled back than kept/, 'rolled back');
	$s->query_ok("SELECT idem_acquire_direct('alice', 'fresh', to_jsonb(n)) FROM generate_series(1, 1000) AS n");
	like(finding('fresh'), qr/nothing was ever replayed/, 'nothing replayed');
	$node->adjust_conf('postgresql.conf', 'idem.fast_path', 'off');
	$node->reload;
	1 until $s->query_ok('SHOW idem.fast_path') eq 'off';
	$s->query_ok("SELECT idem_acquire_direct('alice', 'slow', to_jsonb(n)) FROM generate_series(1, 100) AS n");
	like(finding('slow'), qr/straight into the record/, 'no fast path');
	$node->adjust_conf('postgresql.conf', 'idem.fast_path', 'on');
	$node->reload;
	is(value($node, "SELECT string_agg(DISTINCT status, ' ') FROM idem_health() WHERE name = 'traffic'"), 'warn', 'the health check passes them on');
	$s->quit;
};

subtest "a random mix for $seconds s, with savepoints, rollbacks, cancels and ended backends: the sum is the calls made (H09)" => sub {
	# A sequence follows no transaction. It is drawn in the same expression list as the call, with no interrupt
	# between the two, so that it tells how many calls were begun.
	value($node, q{
	CREATE PROCEDURE mix(rounds int) LANGUAGE plpgsql AS $$
	DECLARE
		sc text; params jsonb; k uuid; own uuid; said text; n bigint;
	BEGIN
		FOR i IN 1 .. rounds LOOP
			BEGIN
				FOR j IN 1 .. 1 + floor(random() * 3) LOOP
					sc := (ARRAY['mix', 'again', 'quick'])[1 + floor(random() * 3)];
					params := to_jsonb(floor(random() * 30));
					k := idem_key('alice', sc, params);
					own := gen_random_uuid();
					CASE floor(random() * 9)
						WHEN 0 THEN SELECT nextval('calls'), idem_status_key(k, 'alice', '1 ms') INTO n, said;
						WHEN 1 THEN SELECT nextval('calls'), idem_execute('alice', sc, params, 'ring(jsonb)', wait => '1 ms') INTO n, said;
						WHEN 2 THEN SELECT nextval('calls'), idem_execute('alice', sc, '"fail"', 'ring(jsonb)', wait => '1 ms') INTO n, said;
						WHEN 3 THEN SELECT nextval('calls'), idem_commit(k, own, '1') INTO n, said;
						WHEN 4 THEN SELECT nextval('calls'), idem_reconcile(k, 'RETRY', 'mix', force => true) INTO n, said;
						ELSE
							SELECT nextval('calls'), idem_acquire_direct('alice', sc, params, owner => own, wait => '3 ms') INTO n, said;
							CASE floor(random() * 5)
								WHEN 0 THEN SELECT nextval('calls'), idem_commit(k, own, '1') INTO n, said;
								WHEN 1 THEN SELECT nextval('calls'), idem_fail(k, own, '1', random() < 0.8) INTO n, said;
								WHEN 2 THEN SELECT nextval('calls'), idem_renew(k, own) INTO n, said;
								WHEN 3 THEN SELECT nextval('calls'), idem_acquire_direct('alice', sc, params, owner => own) INTO n, said;
								ELSE NULL;
							END CASE;
					END CASE;
				END LOOP;
				IF random() < 0.2 THEN
					RAISE 'undo';
				END IF;
			EXCEPTION WHEN OTHERS THEN NULL;
			END;
			IF random() < 0.3 THEN ROLLBACK; ELSE COMMIT; END IF;
		END LOOP;
	END $$});
	value($node, 'DELETE FROM idem_record; SELECT idem_stat_reset()');
	my @sessions = map { session($node) } 1 .. 5;
	my $killer = session($node);
	my ($end, $ended, $cancelled) = (time + $seconds, 0, 0);
	while (time < $end)
	{
		foreach my $s (@sessions)
		{
			next if $s->busy;
			if (defined $s->{pending})
			{
				$s->wait;
				if ($s->sqlstate eq '08006' || $s->sqlstate eq '57P01')
				{
					$s->quit;
					$s = session($node);
				}
			}
			$s->send('CALL mix(200)');
		}
		my $function = rand() < 0.8 ? 'pg_cancel_backend' : 'pg_terminate_backend';
		my $hit = $killer->query_ok("SELECT count($function(pid)) FROM (SELECT pid FROM pg_stat_activity WHERE query LIKE 'CALL mix%' AND state = 'active' ORDER BY random() LIMIT 1) AS a");
		$function eq 'pg_cancel_backend' ? ($cancelled += $hit) : ($ended += $hit);
		Time::HiRes::usleep(1000 * (5 + rand 40));
	}
	foreach my $s (@sessions)
	{
		$s->wait if defined $s->{pending};
		$s->quit;
	}
	$killer->quit;
	wait_until($node, "SELECT count(*) = 0 FROM pg_stat_activity WHERE query LIKE 'CALL mix%' AND pid <> pg_backend_pid()");
	my ($made, $counted, $parts) = split /\|/, value($node, q{
		SELECT (SELECT last_value FROM calls), sum(calls),
			sum(executed + replayed + joined + in_flight + unknown + rejected + looked_up + acknowledged + refused + errors + rolled_back)
		FROM idem_stat});
	note("$made calls, $cancelled cancels, $ended backends ended");
	note(value($node, 'SELECT event, sum(calls) FROM idem_stat_counters() GROUP BY event ORDER BY event'));
	cmp_ok($made, '>', 1000, 'many calls were made');
	is($counted, $made, 'each was counted once');
	is($parts, $made, 'and stands in one column of the view');
	is(value($node, "SELECT count(*) FROM idem_stat_counters() WHERE calls <= 0 OR total_time < 0"), '0', 'no counter is negative');
	# A grant ends as done, failed, given up, taken over, or is still at work: by what is on record, each attempt is
	# one committed grant.
	is(value($node, 'SELECT sum(executed) FROM idem_stat'), value($node, 'SELECT sum(attempt) FROM idem_record'),
		'as many grants as attempts on record');
	is(value($node, "SELECT sum(calls) FROM idem_stat_counters() WHERE event = 'promoted'") > 0, 1, 'some outlived their transaction');
};

subtest 'without preload' => sub {
	$node->adjust_conf('postgresql.conf', 'shared_preload_libraries', "''");
	$node->restart;
	my ($state, $message) = psql_error($node, 'SELECT * FROM idem_stat');
	is($state, '55000', 'the view raises');
	like($message, qr/counts nothing/, 'and says why');
	my ($rc, $out, $err) = $node->psql('postgres', 'SELECT * FROM idem_stat');
	like($err, qr/HINT:  Set shared_preload_libraries = 'idem' and restart the server\./, 'and what to set');
	is(value($node, 'SELECT idem_preloaded()'), 'f', 'which can be asked without an error');
	is(value($node, acquire('plain', 1)), 'ACQUIRED', 'all else works');
	is(value($node, "SELECT string_agg(name, ' ' ORDER BY name) FROM idem_health() WHERE status <> 'ok' AND name IN ('preload', 'worker')"),
		'preload worker', 'the health check says so');
};

$node->stop;
done_testing();
