# Joining whoever is at work: every call that waits, every end that a rival can come to, with and without
# shared_preload_libraries (P1, P3, P11; F07).
use strict;
use warnings;

use IPC::Run;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(time);
use IdemTest;

my $waiters = 200;
my %node;

foreach my $library ('', 'idem')
{
	my $node = idem_node(
		$library eq '' ? 'plain' : 'preloaded',
		shared_preload_libraries => $library,
		max_prepared_transactions => 5,
		max_connections => $waiters + 30,
		shared_buffers => '32MB',
		autovacuum => 'off',
		restart_after_crash => 'on',
		deadlock_timeout => '100ms');
	# leases as short as they get where their end is waited for
	my $short = "'1 ms', '1 ms', '1 ms', '500 ms'";
	value($node, qq{
		INSERT INTO idem_policy (scope, downstream, downstream_max, gateway_timeout, retry_backoff, in_flight_ttl)
			VALUES ('opaque', 'opaque', $short), ('idempotent', 'idempotent', $short);
		CREATE TABLE effect (params jsonb);
		CREATE FUNCTION charge(params jsonb) RETURNS jsonb LANGUAGE plpgsql AS \$\$
		BEGIN
			INSERT INTO effect VALUES (params);
			RETURN to_jsonb((SELECT count(*) FROM effect AS e WHERE e.params = charge.params));
		END
		\$\$});
	$node{$library} = $node;
}

my $count = 0;

sub sign
{
	my ($node, $scope) = @_;
	my $params = sprintf '{"n": %d}', ++$count;
	return (value($node, "SELECT idem_sign('alice', '$scope', '$params')"), $params);
}

# The calls that wait
sub call
{
	my ($name, $fp, $scope, $params, $wait) = @_;
	my $columns = 'outcome, attempt, joined, replayed, result';
	return "SELECT $columns FROM idem_status('$fp', 'alice', '$wait')" if $name eq 'status';
	return "SELECT $columns FROM idem_acquire('$fp', 'alice', '$scope', '$params', wait => '$wait')"
	  if $name eq 'acquire';
	return "SELECT $columns FROM idem_execute('alice', '$scope', '$params', 'charge(jsonb)', fingerprint => '$fp', wait => '$wait')";
}

# ----------------------------------------------------------------------------------------------------------
# Every end of a rival, for every call that waits
# ----------------------------------------------------------------------------------------------------------

# What the holder, in an open transaction with the claim, does while somebody waits; and what each call is told.
my $taken = {
	acquire => 'ACQUIRED|1|f|f|', status => 'NONE||t|f|', execute => 'DONE|1|f|f|1' };
my $again = {
	acquire => 'ACQUIRED|2|f|f|', status => 'RETRYABLE|1|t|f|"busy"', execute => 'DONE|2|f|f|1' };
my $done = 'DONE|1|t|t|"r"';
my @ends = (
	[ 'commits', sub { finish(@_, "idem_commit(:k, :o, '\"r\"')"); $_[0]->query_ok('COMMIT') }, $done ],
	[ 'fails', sub { finish(@_, "idem_fail(:k, :o, '\"no\"')"); $_[0]->query_ok('COMMIT') }, 'FAILED|1|t|t|"no"' ],
	[ 'fails, retryable', sub { finish(@_, "idem_fail(:k, :o, '\"busy\"', true)"); $_[0]->query_ok('COMMIT') }, $again ],
	[ 'releases', sub { finish(@_, "idem_release(:k, :o)"); $_[0]->query_ok('COMMIT') }, $taken ],
	[ 'rolls back', sub { $_[0]->query_ok('ROLLBACK') }, $taken ],
	[ 'commits, then rolls back', sub { finish(@_, "idem_commit(:k, :o, '\"r\"')"); $_[0]->query_ok('ROLLBACK') }, $taken ],
	[ 'is terminated', sub { $_[0]->terminate }, $taken ],
	[ 'leaves it open, and commits later',
		sub {
			my ($holder, $node, $waiter, $claim) = @_;
			$holder->query_ok('COMMIT');
			wait_until($node, 'SELECT wait_event_type = \'Extension\' OR wait_event_type IS NULL FROM pg_catalog.pg_stat_activity WHERE pid = ' . $waiter->pid);
			ok($waiter->busy, 'the wait goes on on the committed claim');
			finish(@_, "idem_commit(:k, :o, '\"r\"')");
		}, $done ],
	[ 'leaves it open, and releases later',
		sub { $_[0]->query_ok('COMMIT'); finish(@_, "idem_release(:k, :o)") },
		{ acquire => 'ACQUIRED|2|f|f|', status => 'RETRYABLE|1|t|f|', execute => 'DONE|2|f|f|1' } ],
	[ 'is prepared, and committed later',
		sub {
			my ($holder, $node, $waiter) = @_;
			$holder->query_ok("PREPARE TRANSACTION 'p'");
			wait_blocked($node, $waiter);
			$holder->query_ok("COMMIT PREPARED 'p'");
			finish(@_, "idem_commit(:k, :o, '\"r\"')");
		}, $done ],
	[ 'commits, is prepared',
		sub {
			finish(@_, "idem_commit(:k, :o, '\"r\"')");
			$_[0]->query_ok("PREPARE TRANSACTION 'p'");
			$_[0]->query_ok("COMMIT PREPARED 'p'");
		}, $done ],
	[ 'is prepared, and rolled back later',
		sub { $_[0]->query_ok("PREPARE TRANSACTION 'p'"); $_[0]->query_ok("ROLLBACK PREPARED 'p'") }, $taken ]);

sub finish
{
	my ($holder, $node, $waiter, $claim, $sql) = @_;
	my ($key, $owner) = @$claim;
	$sql =~ s/:k/'$key'/;
	$sql =~ s/:o/'$owner'/;
	$holder->query_ok("SELECT 1 / ($sql = 'OK')::int");
	return;
}

sub hold
{
	my ($holder, $fp, $scope, $params) = @_;
	my @claim = split /\|/,
	  $holder->query_ok("SELECT key, owner, outcome FROM idem_acquire('$fp', 'alice', '$scope', '$params')");
	die "not granted: $claim[2]" if $claim[2] ne 'ACQUIRED';
	return \@claim;
}

sub every_end
{
	my ($node, $library) = @_;
	foreach my $end (@ends)
	{
		my ($name, $act, $expected) = @$end;
		foreach my $call (qw(acquire status execute))
		{
			my ($fp, $params) = sign($node, 'charge');
			my ($holder, $waiter) = (session($node), session($node));
			$holder->query_ok('BEGIN');
			my $claim = hold($holder, $fp, 'charge', $params);
			$waiter->send(call($call, $fp, 'charge', $params, '1 min'));
			wait_blocked($node, $waiter);
			$act->($holder, $node, $waiter, $claim);
			is($waiter->wait, ref $expected ? $expected->{$call} : $expected,
				"'$library': the holder $name: $call");
			$holder->quit;
			$waiter->quit;
		}
	}
	return;
}

# ----------------------------------------------------------------------------------------------------------
# The end of a lease, of a wait, of patience
# ----------------------------------------------------------------------------------------------------------

sub ends_of_waiting
{
	my ($node, $library) = @_;
	my ($holder, $waiter) = (session($node), session($node));

	# a committed claim whose holder is never heard of again
	foreach my $case (
		[ 'idempotent', 'acquire', 'ACQUIRED|2|f|f|' ], [ 'idempotent', 'status', 'RETRYABLE|1|t|f|' ],
		[ 'idempotent', 'execute', 'DONE|2|f|f|1' ],
		map { [ 'opaque', $_, 'RECONCILE|1|t|f|' ] } qw(acquire status execute))
	{
		my ($scope, $call, $expected) = @$case;
		my ($fp, $params) = sign($node, $scope);
		hold($holder, $fp, $scope, $params);
		is($waiter->query_ok(call($call, $fp, $scope, $params, '1 min')), $expected,
			"'$library': the lease of an $scope claim runs out: $call");
	}
	# the wait is over first; none at all never blocks
	foreach my $call (qw(acquire status execute))
	{
		my ($fp, $params) = sign($node, 'charge');
		$holder->query_ok('BEGIN');
		hold($holder, $fp, 'charge', $params);
		is($waiter->query_ok(call($call, $fp, 'charge', $params, '50 ms')), 'IN_FLIGHT|1|t|f|', "'$library': $call: not longer than told to, open");
		is($waiter->query_ok(call($call, $fp, 'charge', $params, '0')), 'IN_FLIGHT|1|f|f|', "'$library': $call: no wait, open");
		is($waiter->query_ok('SET lock_timeout = 20; ' . call($call, $fp, 'charge', $params, '1 min')), 'IN_FLIGHT|1|t|f|', "'$library': $call: lock_timeout");
		is($waiter->query_ok('SHOW lock_timeout'), '20ms', 'which stays as it was');
		$waiter->query_ok('RESET lock_timeout');
		is($holder->query_ok(call($call, $fp, 'charge', $params, '1 min')), 'IN_FLIGHT|1|f|f|', "'$library': $call: one's own claim is not waited for");
		$holder->query_ok('COMMIT');
		is($waiter->query_ok(call($call, $fp, 'charge', $params, '50 ms')), 'IN_FLIGHT|1|t|f|', "'$library': $call: not longer than told to, committed");
		is($waiter->query_ok(call($call, $fp, 'charge', $params, '0')), 'IN_FLIGHT|1|f|f|', "'$library': $call: no wait, committed");
	}
	$_->quit foreach $holder, $waiter;
	return;
}

# Two that wait for each other: the deadlock detector finds it, and nobody gets an error
sub deadlock
{
	my ($node, $library) = @_;
	my @s = (session($node), session($node));
	my @operation = map { [ sign($node, 'charge') ] } 0, 1;
	my @claim;
	foreach my $i (0, 1)
	{
		$s[$i]->query_ok('BEGIN');
		$claim[$i] = hold($s[$i], $operation[$i][0], 'charge', $operation[$i][1]);
	}
	$s[0]->send(call('acquire', $operation[1][0], 'charge', $operation[1][1], '1 min'));
	wait_blocked($node, $s[0]);
	$s[1]->send(call('acquire', $operation[0][0], 'charge', $operation[0][1], '1 min'));
	wait_until($node, "SELECT count(*) = 1 FROM pg_catalog.pg_locks WHERE NOT granted");
	my ($loser, $winner) = $s[0]->busy ? (1, 0) : (0, 1);
	is($s[$loser]->wait, 'IN_FLIGHT|1|t|f|', "'$library': the deadlock's victim is told that the other is at work");
	is($s[$loser]->query("SELECT idem_commit('$claim[$loser][0]', '$claim[$loser][1]', '\"r\"')"), 'OK', 'its transaction goes on');
	$s[$loser]->query_ok('COMMIT');
	is($s[$winner]->wait, $done, 'and the other gets its result');
	$_->quit foreach @s;
	return;
}

# Cancel and statement_timeout stop a wait, for whoever catches it as well
sub cancelled
{
	my ($node, $library) = @_;
	my ($holder, $waiter) = (session($node), session($node));
	foreach my $open (1, 0)
	{
		my $how = "'$library': " . ($open ? 'open' : 'committed');
		my ($fp, $params) = sign($node, 'charge');
		$holder->query_ok('BEGIN') if $open;
		my $claim = hold($holder, $fp, 'charge', $params);
		foreach my $call (qw(acquire status execute))
		{
			$waiter->query("SET statement_timeout = 50; " . call($call, $fp, 'charge', $params, '1 min'));
			is($waiter->sqlstate, '57014', "$how: statement_timeout stops $call");
			$waiter->query_ok('RESET statement_timeout');
			$waiter->send(call($call, $fp, 'charge', $params, '1 min'));
			wait_until($node, 'SELECT wait_event_type IN (\'Lock\', \'Extension\') FROM pg_catalog.pg_stat_activity WHERE pid = ' . $waiter->pid);
			$waiter->cancel;
			$waiter->wait;
			is($waiter->sqlstate, '57014', "$how: cancel stops $call");
		}
		# the handler's own subtransaction is rolled back, no more and no less
		$waiter->query_ok('CREATE TEMP TABLE step (what text)');
		$waiter->query_ok('BEGIN; SET LOCAL statement_timeout = 100');
		$waiter->query_ok("DO \$\$
			BEGIN
				INSERT INTO step VALUES ('before');
				BEGIN
					INSERT INTO step VALUES ('inside');
					PERFORM idem_acquire('$fp', 'alice', 'charge', '$params', wait => '1 min');
				EXCEPTION WHEN query_canceled THEN
					INSERT INTO step VALUES ('caught');
				END;
			END \$\$");
		unlike($waiter->error, qr/WARNING/, "$how: nothing leaks where a cancelled wait is caught");
		$waiter->query_ok("SAVEPOINT a; INSERT INTO step VALUES ('undone'); ROLLBACK TO a; COMMIT");
		is($waiter->query_ok("SELECT string_agg(what, ' ') FROM step"), 'before caught', "$how: and the handler goes on where it should");
		$waiter->query_ok('DROP TABLE step');
		is($holder->query_ok("SELECT idem_commit('$claim->[0]', '$claim->[1]')"), 'OK', "$how: the holder never noticed");
		$holder->query_ok('COMMIT') if $open;
	}
	$_->quit foreach $holder, $waiter;
	return;
}

# Who waits holds no lock on the tables: somebody who wants them for himself is not in the holder's way
sub stands_in_nobodys_way
{
	my ($node, $library) = @_;
	my ($holder, $waiter) = (session($node), session($node));
	foreach my $open (1, 0)
	{
		foreach my $call (qw(acquire status execute))
		{
			my $how = "'$library': " . ($open ? 'open' : 'committed') . ", $call";
			my ($fp, $params) = sign($node, 'charge');
			$holder->query_ok('BEGIN') if $open;
			my $claim = hold($holder, $fp, 'charge', $params);
			$waiter->send(call($call, $fp, 'charge', $params, '1 min'));
			wait_until($node, 'SELECT wait_event_type IN (\'Lock\', \'Extension\') FROM pg_catalog.pg_stat_activity WHERE pid = ' . $waiter->pid);
			wait_until($node, "SELECT count(*) = 0 FROM pg_catalog.pg_locks AS l JOIN pg_catalog.pg_class AS c ON c.oid = l.relation
				WHERE c.relname LIKE 'idem%' AND l.pid = " . $waiter->pid);
			pass("$how: no lock on our tables");
			unless ($open)
			{
				value($node, 'SET statement_timeout = 30000; VACUUM FULL idem_record');
				pass("$how: the record can be rewritten meanwhile");
			}
			is($holder->query_ok("SELECT idem_commit('$claim->[0]', '$claim->[1]', '\"r\"')"), 'OK', "$how: the holder commits");
			$holder->query_ok('COMMIT') if $open;
			is($waiter->wait, $done, "$how: the waiter is told");
		}
	}
	$_->quit foreach $holder, $waiter;
	return;
}

# ----------------------------------------------------------------------------------------------------------
# F07: a thousand cancels at random times around the holder's end
# ----------------------------------------------------------------------------------------------------------

sub random_cancels
{
	my ($node, $library, $rounds, $seconds) = @_;
	my ($holder, $waiter, $canceller, $third) = map { session($node) } 1 .. 4;
	my $until = time + $seconds;
	my (%seen, @wrong);
	my $round = 0;
	$third->query_ok("CREATE TEMP TABLE token AS
		SELECT n, idem_sign('alice', 'charge', to_jsonb(n)) AS fp FROM generate_series(1, $rounds) AS n");
	my @fp = split /\n/, $third->query_ok('SELECT fp FROM token ORDER BY n');
	while ($round < $rounds && time < $until)
	{
		my $fp = $fp[$round++];
		my $end = $round % 3 == 0 ? 'ROLLBACK' : $round % 3 == 1 ? 'COMMIT' : "SELECT idem_commit(:'key', :'owner', '1'); COMMIT";
		# every second claim is committed before it is finished
		my $begin = $round % 2 ? 'BEGIN;' : '';
		$begin .= "SELECT key, owner FROM idem_acquire('$fp', 'alice', 'charge', '$round') \\gset\n";
		$begin .= "BEGIN;" unless $round % 2;
		$holder->query_ok($begin);
		$holder->send("SELECT pg_sleep(random() * 0.004); $end");
		$waiter->send("SELECT outcome FROM idem_acquire('$fp', 'alice', 'charge', '$round', wait => '10 s')");
		$canceller->query_ok('SELECT pg_sleep(random() * 0.006), pg_cancel_backend(' . $waiter->pid . ')');
		$holder->wait;
		# what was left open is waited for until somebody stops it
		$canceller->query_ok('SELECT pg_cancel_backend(' . $waiter->pid . ')') while $waiter->busy;
		my $got = $waiter->wait;
		$got = $waiter->sqlstate if $waiter->sqlstate ne '00000';
		my $after = $third->query("SELECT outcome FROM idem_acquire('$fp', 'alice', 'charge', '$round')");
		my $open_stays = !($round % 2) || $round % 3 == 1;
		my $expected =
			$round % 3 == 2 ? 'DONE'
		  : $open_stays ? 'IN_FLIGHT'
		  : $got eq 'ACQUIRED' ? 'IN_FLIGHT'
		  : 'ACQUIRED';
		$seen{"$got, then $after"}++;
		push @wrong, "round $round: $got, then $after instead of $expected" if $after ne $expected;
	}
	is(join("\n", @wrong), '', "'$library': F07: no ghost holder in $round cancelled waits");
	cmp_ok($round, '>=', 50, 'enough of them were tried');
	note("'$library': $seen{$_} times: $_") foreach sort keys %seen;
	is(value($node, 'SELECT count(*) FROM pg_catalog.pg_locks AS l LEFT JOIN pg_catalog.pg_class AS c ON c.oid = l.relation
		WHERE l.pid <> pg_catalog.pg_backend_pid() AND (c.relname LIKE \'idem%\' OR l.locktype IN (\'transactionid\', \'spectoken\', \'advisory\'))'),
		'0', 'no lock leaks');
	is(value($node, 'SELECT count(*) FROM idem_in_flight WHERE xid IS NOT NULL'), '0', 'no claim leaks');
	is($waiter->query_ok("SELECT outcome FROM idem_acquire_direct('alice', 'charge', '\"after $library\"')"), 'ACQUIRED', 'who was cancelled so often is well');
	$_->quit foreach $holder, $waiter, $canceller, $third;
	return;
}

# ----------------------------------------------------------------------------------------------------------
# Five at once (Part E of the content-key article): one runs, four join
# ----------------------------------------------------------------------------------------------------------

sub five_at_once
{
	my ($node, $library) = @_;
	value($node, q{CREATE FUNCTION slow_charge(params jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
		BEGIN
			PERFORM pg_advisory_xact_lock(5);
			RETURN charge(params);
		END $$});
	my $gate = session($node);
	$gate->query_ok('SELECT pg_advisory_lock(5)');
	my @s = map { session($node) } 1 .. 5;
	$_->send(q{SELECT outcome, joined, replayed, result FROM idem_execute('alice', 'charge', '{"five": 1}', 'slow_charge(jsonb)')}) foreach @s;
	wait_until($node, q{SELECT count(*) = 5 AND count(*) FILTER (WHERE locktype = 'advisory') = 1 FROM pg_catalog.pg_locks WHERE NOT granted});
	$gate->query_ok('SELECT pg_advisory_unlock(5)');
	my %answer;
	$answer{ $_->wait }++ foreach @s;
	is_deeply(\%answer, { 'DONE|f|f|1' => 1, 'DONE|t|t|1' => 4 }, "'$library': five at once: one runs, four have joined and the same result");
	is(value($node, q{SELECT count(*) FROM effect WHERE params = '{"five": 1}'}), '1', 'and it ran once');
	$_->quit foreach $gate, @s;
	return;
}

# ----------------------------------------------------------------------------------------------------------
# Two hundred at one key
# ----------------------------------------------------------------------------------------------------------

sub pgbench_words
{
	my ($node, @words) = @_;
	return [ $node->installed_command('pgbench'), '-n', '-h', $node->host, '-p', $node->port, @words, 'postgres' ];
}

# Transactions a second on other keys for a while
sub other_keys
{
	my ($node, $seconds) = @_;
	my ($out, $err) = ('', '');
	my $script = "$PostgreSQL::Test::Utils::tmp_check/other.sql";
	open my $file, '>', $script or die "$script: $!";
	print $file "BEGIN;\n"
	  . "SELECT key, owner FROM idem_acquire_direct('bob', 'charge', '{}', gen_random_uuid()::text) \\gset\n"
	  . "SELECT idem_commit(:key, :owner, '1');\nCOMMIT;\n";
	close $file;
	IPC::Run::run(pgbench_words($node, '-M', 'prepared', '-c', 2, '-j', 1, '-T', $seconds, '-f', $script), '>', \$out, '2>', \$err)
	  or die "pgbench: $err";
	return $out =~ /^tps = ([0-9.]+)/m ? int $1 : die "no tps in: $out";
}

sub two_hundred
{
	my ($node, $library, $seconds) = @_;
	my $holder = session($node);
	my $alone = other_keys($node, $seconds);
	value($node, 'CREATE TABLE reply (round text, outcome text, joined bool, result jsonb)');
	foreach my $open (1, 0)
	{
		my $how = $open ? 'open' : 'committed';
		my ($fp, $params) = sign($node, 'charge');
		my $script = "$PostgreSQL::Test::Utils::tmp_check/wait.sql";
		my ($out, $err) = ('', '');
		open my $file, '>', $script or die "$script: $!";
		print $file "INSERT INTO reply SELECT '$how', outcome, joined, result"
		  . " FROM idem_acquire('$fp', 'alice', 'charge', '$params', wait => '2 min');\n";
		close $file;
		$holder->query_ok('BEGIN') if $open;
		my $claim = hold($holder, $fp, 'charge', $params);
		my $run = IPC::Run::start(pgbench_words($node, '-c', $waiters, '-j', 2, '-t', 1, '-f', $script), '>', \$out, '2>', \$err);
		wait_until($node, "SELECT count(*) = $waiters FROM pg_catalog.pg_stat_activity WHERE query LIKE 'INSERT INTO reply%' AND state = 'active'");
		my $beside = other_keys($node, $seconds);
		$holder->query_ok("SELECT 1 / (idem_commit('$claim->[0]', '$claim->[1]', '{\"receipt\": \"$how\"}') = 'OK')::int");
		my $at = time;
		$holder->query_ok('COMMIT') if $open;
		$run->finish or die "pgbench: $err";
		is(value($node, "SELECT count(*), count(DISTINCT result), min(outcome), max(outcome), bool_and(joined) FROM reply WHERE round = '$how'"),
			"$waiters|1|DONE|DONE|t", "'$library': $waiters wait on one key, $how, and get the same result");
		diag(sprintf "'%s', %s: other keys, 2 clients, transactions a second: %d alone, %d beside %d waiters; all of them told %.2f s after the end",
			$library, $how, $alone, $beside, $waiters, time - $at);
	}
	$holder->quit;
	return;
}

# ----------------------------------------------------------------------------------------------------------
# A process killed outright
# ----------------------------------------------------------------------------------------------------------

# The server restarts: what was committed stands, what was open is gone, and nobody waits for ghosts
sub killed
{
	my ($node, $library) = @_;
	my ($holder, $waiter) = (session($node), session($node));
	my ($fp, $params) = sign($node, 'charge');
	my ($fp2, $params2) = sign($node, 'charge');
	my $claim = hold($holder, $fp2, 'charge', $params2);
	$holder->query_ok('BEGIN');
	hold($holder, $fp, 'charge', $params);
	$waiter->send(call('acquire', $fp, 'charge', $params, '1 min'));
	wait_blocked($node, $waiter);
	kill 'KILL', $holder->pid;
	$waiter->wait;
	is($waiter->sqlstate, '08006', "'$library': the holder's process is killed, and the server restarts");
	$_->quit foreach $holder, $waiter;
	# it may still take connections of before the crash
	wait_until($node, q{SELECT NOT pg_is_in_recovery()});
	is(value($node, call('acquire', $fp, 'charge', $params, '1 min')), $taken->{acquire}, 'the open claim is gone');
	is(value($node, call('status', $fp2, 'charge', $params2, '0')), 'IN_FLIGHT|1|f|f|', 'the committed one stands');
	is(value($node, "SELECT idem_commit('$claim->[0]', '$claim->[1]', '\"r\"')"), 'OK', 'and its holder can still finish it');
	return;
}

foreach my $library ('', 'idem')
{
	my $node = $node{$library};
	every_end($node, $library);
	ends_of_waiting($node, $library);
	deadlock($node, $library);
	cancelled($node, $library);
	stands_in_nobodys_way($node, $library);
	five_at_once($node, $library);
	random_cancels($node, $library, 500, 12);
	two_hundred($node, $library, 3);
	killed($node, $library);
	$node->stop;
}
done_testing();
