# A claim's life over time and between sessions: leases, takeovers, late holders, verdicts, and the same history
# told to three ways of working (P1 to P6; A01, A03, A04, A05, A09, A10, A11, A12, A14, B09).
use strict;
use warnings;

use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(time);
use IdemTest;

my $node = idem_node('life',
	max_prepared_transactions => 5,
	max_connections => 60,
	autovacuum => 'off',
	deadlock_timeout => '100ms');
my $short = "'1 ms', '1 ms', '1 ms', '400 ms'";
value($node, qq{
	INSERT INTO idem_policy (scope, downstream, downstream_max, gateway_timeout, retry_backoff, in_flight_ttl)
		VALUES ('short', 'idempotent', $short), ('opaque', 'opaque', $short), ('queryable', 'queryable', $short)});

my $count = 0;

# Parameters of an operation that nobody has asked for yet
sub fresh { return sprintf '{"n": %d}', ++$count }

sub acquire_sql
{
	my ($scope, $params, $columns, $more) = @_;
	return "SELECT $columns FROM idem_acquire_direct('alice', '$scope', '$params'" . ($more // '') . ')';
}

# A grant: its key and owner
sub granted
{
	my ($session, $scope, $params) = @_;
	my ($outcome, @claim) = split /\|/, $session->query_ok(acquire_sql($scope, $params, 'outcome, key, owner'));
	die "not granted: $outcome" if $outcome ne 'ACQUIRED';
	return @claim;
}

sub lease_over
{
	my ($key) = @_;
	wait_until($node, "SELECT lease_until <= clock_timestamp() FROM idem_record WHERE key = '$key'");
	return;
}

my ($a, $b, $c) = map { session($node) } 1 .. 3;

# Switch the fast table; each session hears of it by itself
sub set_fast_path
{
	my ($value) = @_;
	$node->append_conf('postgresql.conf', "idem.fast_path = $value");
	$node->reload;
	foreach my $session ($a, $b)
	{
		$session->query_ok("SELECT idem_key('alice', 'load', '1')");
		my $until = time + 30;
		1 until $session->query_ok('SHOW idem.fast_path') eq $value || time > $until;
	}
	return;
}

# ----------------------------------------------------------------------------------------------------------
# Leases
# ----------------------------------------------------------------------------------------------------------

{
	my $p = fresh();
	my ($key, $owner) = granted($a, 'charge', $p);
	my $lease = sub { return value($node, "SELECT extract(epoch FROM lease_until - acquired_at)::numeric(9, 1) FROM idem_record WHERE key = '$key'") };
	is($lease->(), '300.0', 'the lease is the scope\'s');
	is($a->query_ok("SELECT idem_renew('$key', '$owner', '1 s')"), 'OK', 'renewed for less than is left');
	is($lease->(), '300.0', 'which never shortens it');
	is($a->query_ok("SELECT idem_renew('$key', '$owner', '1 hour')"), 'OK', 'for more');
	cmp_ok($lease->(), '>=', 3600, 'lengthens it');
	is($a->query_ok("SELECT idem_renew('$key', '$owner')"), 'OK', 'for the scope\'s own time');
	cmp_ok($lease->(), '>=', 3600, 'does not shorten it either');
	is($b->query_ok("SELECT idem_renew('$key', gen_random_uuid(), '1 day')"), 'NOT_OWNER', 'nobody else renews');
	$a->query("SELECT idem_renew('$key', '$owner', '0')");
	is($a->sqlstate, '22023', 'A02: not for no time');
	$a->query("SELECT idem_renew('$key', '$owner', '-1 s')");
	is($a->sqlstate, '22023', 'nor for less');
	is(value($node, 'SELECT count(*) FROM idem_record WHERE NOT isfinite(lease_until)'), '0', 'every lease is finite');
}

# after the lease: by the current owner accepted, after a takeover not
foreach my $call ("idem_commit('K', 'O', '1')", "idem_fail('K', 'O', '1')", "idem_fail('K', 'O', '1', true)", "idem_release('K', 'O')", "idem_renew('K', 'O')")
{
	my $p = fresh();
	my ($key, $owner) = granted($a, 'short', $p);
	lease_over($key);
	(my $sql = $call) =~ s/'K', 'O'/'$key', '$owner'/;
	is($a->query_ok("SELECT $sql"), 'OK', "late, but nobody took over: $call");

	$p = fresh();
	($key, $owner) = granted($a, 'short', $p);
	lease_over($key);
	is($b->query_ok(acquire_sql('short', $p, 'outcome, attempt')), 'ACQUIRED|2', 'taken over');
	my $row = "SELECT xmin, r FROM idem_record AS r WHERE key = '$key'";
	my $before = value($node, $row);
	($sql = $call) =~ s/'K', 'O'/'$key', '$owner'/;
	is($a->query_ok("SELECT $sql"), 'NOT_OWNER', "A05: late, after a takeover: $call");
	is(value($node, $row), $before, 'and changes nothing');
	is(value($node, "SELECT string_agg(kind, ' ' ORDER BY kind) FROM idem_alert WHERE key = '$key'"), 'not_owner takeover', 'but is evidence');
}

# A01: the client is gone; A04: what a lease over means is the downstream's to say
foreach my $scope (qw(short opaque queryable))
{
	my $lost = session($node);
	my $p = fresh();
	my ($key) = granted($lost, $scope, $p);
	$lost->kill_client;
	is($b->query_ok(acquire_sql($scope, $p, 'outcome, attempt, owner IS NULL, lease_until IS NOT NULL')), 'IN_FLIGHT|1|t|t', "A01: $scope: the lost client's claim is in flight");
	lease_over($key);
	is($b->query_ok(acquire_sql($scope, $p, 'outcome, attempt')), $scope eq 'short' ? 'ACQUIRED|2' : 'RECONCILE|1', 'A04: and when its lease is over');
	is($b->query_ok(acquire_sql($scope, $p, 'outcome')), $scope eq 'short' ? 'IN_FLIGHT' : 'RECONCILE', 'again');
}

# A03, B11: somebody writes into the table behind our back
{
	my $p = fresh();
	my ($key) = granted($a, 'charge', $p);
	foreach my $set ("lease_until = NULL", "lease_until = 'infinity'", "lease_until = '-infinity'", "retained_until = now()", "state = 'x'", "attempt = 0")
	{
		isnt((psql_error($node, "UPDATE idem_record SET $set WHERE key = '$key'"))[0], '', "A03: $set is refused");
	}
	is($b->query_ok(acquire_sql('charge', $p, 'outcome')), 'IN_FLIGHT', 'and nobody else is granted');
}

# the lease is set after a wait, and anew where it ran out before it could be seen: in the fast table and in the record
foreach my $way ('fast', 'record', 'fast off', 'renewed')
{
	my $p = fresh();
	my ($key, $owner);
	set_fast_path('off') if $way eq 'fast off';
	if ($way eq 'record')
	{
		($key, $owner) = granted($a, 'short', $p);
		$a->query_ok("SELECT idem_release('$key', '$owner')");
	}
	$a->query_ok('BEGIN');
	($key, $owner) = granted($a, 'short', $p);
	$a->query_ok("SELECT idem_renew('$key', '$owner', '500 ms')") if $way eq 'renewed';
	$b->send(acquire_sql('short', $p, 'outcome, attempt, lease_until > clock_timestamp() + \'300 ms\'::interval', ", wait => '1 min'"));
	wait_blocked($node, $b);
	$a->query_ok("SELECT pg_sleep(greatest(0, extract(epoch FROM lease_until - clock_timestamp())) + 0.01) FROM idem_status_key('$key', 'alice')");
	is($a->query_ok("SELECT outcome FROM idem_status_key('$key', 'alice')"), 'IN_FLIGHT', "$way: over within the transaction");
	$a->query_ok('COMMIT');
	cmp_ok(value($node, "SELECT extract(epoch FROM lease_until - clock_timestamp()) FROM idem_record WHERE key = '$key' AND state = 'I'"), '>', 0, "$way: set anew at commit");
	my $attempt = $way eq 'record' ? 3 : 2;
	is($b->wait, "ACQUIRED|$attempt|t", "$way: the waiter takes over when that lease is over, with a whole one");
	set_fast_path('on') if $way eq 'fast off';
}

# A12, A14, B09: only a commit makes it done
{
	my $p = fresh();
	my ($key, $owner) = granted($a, 'charge', $p);
	foreach my $n (2 .. 4)
	{
		is($a->query_ok("SELECT idem_fail('$key', '$owner', '\"timeout\"', true)"), 'OK', 'B09: a transient failure');
		is($b->query_ok("SELECT outcome, result FROM idem_status_key('$key', 'alice')"), 'RETRYABLE|"timeout"', 'is no result');
		($key, $owner) = granted($a, 'charge', $p);
		is(value($node, "SELECT attempt FROM idem_record WHERE key = '$key'"), $n, "A12: attempt $n");
	}
	is($a->query_ok("SELECT idem_fail('$key', '$owner', '\"card declined\"')"), 'OK', 'a final failure');
	is($b->query_ok(acquire_sql('charge', $p, 'outcome, replayed, result')), 'FAILED|t|"card declined"', 'B09: is replayed') foreach 1, 2;
	$p = fresh();
	$a->query_ok('BEGIN');
	granted($a, 'charge', $p);
	$a->query_ok('ROLLBACK');
	is($b->query_ok(acquire_sql('charge', $p, 'outcome, attempt')), 'ACQUIRED|1', 'A14: a claim rolled back was never there');
}

# A10: one row for the key throughout; scopes do not meet
{
	my $p = fresh();
	my ($key, $owner) = granted($a, 'charge', $p);
	is($b->query_ok(acquire_sql('charge', $p, 'outcome')), 'IN_FLIGHT', 'A10') foreach 1 .. 10;
	is($b->query_ok(acquire_sql('other', $p, 'outcome, key <> ' . "'$key'")), 'ACQUIRED|t', 'A10: another scope');
	$a->query_ok("SELECT idem_commit('$key', '$owner', '1')");
	is($b->query_ok(acquire_sql('charge', $p, 'outcome')), 'DONE', 'A10') foreach 1 .. 10;
	is(value($node, "SELECT count(*) FROM idem_record WHERE key = '$key'"), '1', 'A10: one row');
}

# ----------------------------------------------------------------------------------------------------------
# A verdict waits for a change that is not committed
# ----------------------------------------------------------------------------------------------------------

foreach my $end ('COMMIT', 'ROLLBACK')
{
	my $p = fresh();
	my ($key, $owner) = granted($a, 'opaque', $p);
	lease_over($key);
	$a->query_ok('BEGIN');
	is($a->query_ok("SELECT idem_commit('$key', '$owner', '\"r\"')"), 'OK', 'the late holder commits');
	$b->send("SELECT idem_reconcile('$key', 'FAILED', 'gave up')");
	wait_blocked($node, $b);
	$c->query("SET lock_timeout = 50; SELECT idem_reconcile('$key', 'FAILED', 'gave up')");
	is($c->sqlstate, '55P03', 'lock_timeout applies');
	$a->query_ok($end);
	is($b->wait, $end eq 'COMMIT' ? 'ALREADY' : 'OK', "the verdict waited for its $end");
	is($c->query_ok("SELECT outcome FROM idem_status_key('$key', 'alice')"), $end eq 'COMMIT' ? 'DONE' : 'FAILED', 'and one of them stands');
	is($a->query_ok("SELECT idem_commit('$key', '$owner', '\"r\"')"), $end eq 'COMMIT' ? 'OK' : 'NOT_OWNER', 'as its holder learns');
}

# ----------------------------------------------------------------------------------------------------------
# A11: the claim goes while one looks
# ----------------------------------------------------------------------------------------------------------

{
	value($node, 'CREATE TABLE seen (outcome text, n int8)');
	value($node, q{CREATE PROCEDURE look(seconds float8, act bool) LANGUAGE plpgsql AS $$
		DECLARE
			stop timestamptz := clock_timestamp() + seconds * '1 s'::interval;
			c idem_claim;
			counts jsonb := '{}';
		BEGIN
			WHILE clock_timestamp() < stop LOOP
				BEGIN
					c := idem_acquire_direct('alice', 'gone', '{"x": 1}');
					IF c.outcome = 'ACQUIRED' THEN
						PERFORM idem_commit(c.key, c.owner, '1');
					END IF;
				EXCEPTION WHEN serialization_failure THEN
					c.outcome := NULL;
				END;
				counts := counts || jsonb_build_object(coalesce(c.outcome::text, '40001'), coalesce((counts ->> coalesce(c.outcome::text, '40001'))::int8, 0) + 1);
				COMMIT;
				IF act THEN
					UPDATE idem_record SET retained_until = '2020-01-01' WHERE scope = 'gone';
					PERFORM idem_purge();
					COMMIT;
				END IF;
			END LOOP;
			INSERT INTO seen SELECT key, value::int8 FROM jsonb_each_text(counts);
		END $$});
	$a->send('CALL look(4, true)');
	$b->send('CALL look(4, false)');
	$_->wait foreach $a, $b;
	is($_->sqlstate, '00000', 'A11: ' . $_->error) foreach $a, $b;
	is(value($node, q{SELECT count(*) FROM seen WHERE outcome NOT IN ('ACQUIRED', 'DONE', 'IN_FLIGHT')}), '0', 'A11: beside a purge only answers that are documented');
	note('A11: ' . value($node, q{SELECT string_agg(format('%s %s', s.outcome, s.n), ', ') FROM (SELECT outcome, sum(n) AS n FROM seen GROUP BY 1 ORDER BY 1) AS s}));
}

# ----------------------------------------------------------------------------------------------------------
# A09: sixteen at once, at every isolation level, in one and in two transactions
# ----------------------------------------------------------------------------------------------------------

{
	my $clients = 16;
	my @s = map { session($node) } 1 .. $clients;
	my $gate = session($node);
	foreach my $level ('READ COMMITTED', 'REPEATABLE READ', 'SERIALIZABLE')
	{
		foreach my $round (1 .. 4)
		{
			my $p = fresh();
			$gate->query_ok('SELECT pg_advisory_lock(9)');
			# the gate is passed before the snapshot is taken
			$_->send("SELECT pg_advisory_lock_shared(9);\nSELECT pg_advisory_unlock_shared(9);\nBEGIN ISOLATION LEVEL $level;\n"
				  . acquire_sql('charge', $p, 'outcome') . ";\nCOMMIT")
			  foreach @s;
			wait_until($node, "SELECT count(*) = $clients FROM pg_catalog.pg_locks WHERE locktype = 'advisory' AND NOT granted");
			$gate->query_ok('SELECT pg_advisory_unlock(9)');
			my %seen;
			foreach my $s (@s)
			{
				my ($last) = $s->wait =~ /^([A-Z_]+)$/m;
				# a grant counts only if its COMMIT did
				$seen{ $s->error =~ /ERROR/ ? ($s->error =~ /could not serialize|same key|vanished/ ? '40001' : $s->error) : $last }++;
				$s->query('ROLLBACK') if $s->error =~ /ERROR/;
			}
			is($seen{ACQUIRED}, 1, "A09: $level: one is granted: " . join ', ', map { "$seen{$_} $_" } sort keys %seen);
			is($seen{ACQUIRED} + ($seen{IN_FLIGHT} // 0) + ($level eq 'READ COMMITTED' ? 0 : $seen{40001} // 0), $clients, 'and the others are told so');
		}
	}
	$_->quit foreach $gate, @s;
}

# ----------------------------------------------------------------------------------------------------------
# One history, three ways of working: the same verdicts
# ----------------------------------------------------------------------------------------------------------

# A history is a list of attempts on a few operations: each runs to an end, or is asked about. What each step is
# told must not depend on how the effect is wrapped: by idem_execute, in one transaction, in two.
value($node, q{CREATE FUNCTION effect(params jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
	BEGIN
		IF current_setting('test.fails') = 'on' THEN
			RAISE EXCEPTION 'no effect';
		END IF;
		RETURN to_jsonb('done at step ' || current_setting('test.step'));
	END $$});

sub history
{
	my ($seed, $steps) = @_;
	srand $seed;
	# each door begins with one of each, so that no history is dull
	my @history = map { my $door = $_; map { { n => 0, door => $door, what => $_ } } qw(fails run run tampered status) } 0 .. 2;
	push @history, { n => int rand 4, door => int rand 3, what => (qw(run run fails status tampered reconciled))[ int rand 6 ] }
	  foreach 1 .. $steps;
	# an attempt given up after its transaction stays on record until another finishes: there a verdict finds it, and a
	# client's key with other parameters is told so, which is no difference of verdicts
	my %stage;
	return grep {
		my $operation = "$_->{n} $_->{door}";
		my $kept = ($stage{$operation} // '') ne 'given up'
		  || $_->{what} ne 'reconciled' && !($_->{what} eq 'tampered' && $_->{door} == 1);
		$stage{$operation} //= 'given up' if $_->{what} eq 'fails';
		$stage{$operation} = 'finished' if $_->{what} eq 'run';
		$kept
	} @history;
}

sub told_by
{
	my ($way, $seed, @history) = @_;
	my (%fp, @told);
	my $step = 0;
	foreach my $event (@history)
	{
		my ($n, $door, $what) = @$event{qw(n door what)};
		my ($scope, $id) = ("h.$way", "$seed-$n");
		my $params = $what eq 'tampered' ? qq({"id": "$id", "x": 1}) : qq({"id": "$id"});
		my $by = (qw(content client fingerprint))[$door];
		$step++;
		if ($by eq 'fingerprint')
		{
			$fp{$id} //= value($node, "SELECT idem_sign('alice', '$scope', '{\"id\": \"$id\"}')");
		}
		# by its content, other parameters are another operation
		$params = qq({"id": "$id"}) if $by eq 'content';
		my $key = $by eq 'fingerprint' ? "(SELECT key FROM idem_inspect('$fp{$id}'))"
		  : $by eq 'client' ? "idem_key('alice', '$scope', '$params', '$id')" : "idem_key('alice', '$scope', '$params')";
		my $acquire = $by eq 'fingerprint' ? "idem_acquire('$fp{$id}', 'alice', '$scope', '$params')"
		  : $by eq 'client' ? "idem_acquire_direct('alice', '$scope', '$params', '$id')" : "idem_acquire_direct('alice', '$scope', '$params')";
		my $told;
		if ($what eq 'status')
		{
			$told = $a->query_ok("SELECT outcome, attempt, result FROM idem_status_key($key, 'alice')");
		}
		elsif ($what eq 'reconciled')
		{
			$told = $a->query_ok("SELECT idem_reconcile($key, 'FAILED', 'note', '\"verdict\"')");
		}
		elsif ($way eq 'execute')
		{
			my $more = $by eq 'fingerprint' ? ", fingerprint => '$fp{$id}'" : $by eq 'client' ? ", client_key => '$id'" : '';
			$a->query_ok("SELECT set_config('test.fails', '" . ($what eq 'fails' ? 'on' : 'off') . "', false), set_config('test.step', '$step', false)");
			$told = $a->query("SELECT outcome, attempt, replayed, result FROM idem_execute('alice', '$scope', '$params', 'effect(jsonb)'$more)");
			$told = 'failed' if $a->error =~ /no effect/;
		}
		else
		{
			$a->query_ok('BEGIN') if $way eq 'one';
			$told = $a->query_ok("SELECT outcome, attempt, replayed, result, key, owner FROM $acquire");
			my ($outcome, undef, undef, undef, $k, $o) = split /\|/, $told;
			$told =~ s/\|[^|]*\|[^|]*$//;
			if ($outcome eq 'ACQUIRED' && $what eq 'fails')
			{
				$told = 'failed';
				# certain that nothing happened: the claim is given up
				$a->query_ok($way eq 'one' ? 'ROLLBACK' : "SELECT idem_release('$k', '$o')");
				$a->query_ok('BEGIN') if $way eq 'one';
			}
			elsif ($outcome eq 'ACQUIRED')
			{
				my $ack = $a->query_ok("SELECT idem_commit('$k', '$o', '\"done at step $step\"')");
				$told = $ack eq 'OK' ? $a->query_ok("SELECT outcome, attempt, false, result FROM idem_status_key('$k', 'alice')") : $ack;
			}
			$a->query_ok('COMMIT') if $way eq 'one';
		}
		push @told, "$step: $n $by $what: $told";
	}
	return @told;
}

{
	my $seed = $ENV{IDEM_TEST_SEED} // int(time) % 1_000_000;
	note("seed $seed");
	foreach my $run (1 .. 3)
	{
		my @history = history($seed + $run, 60);
		my %told = map { $_ => [ told_by($_, "$seed-$run", @history) ] } qw(execute one two);
		is_deeply($told{one}, $told{execute}, "seed $seed, run $run: one transaction tells what idem_execute tells");
		# what is given up after its transaction stays on record: its attempts are counted, and status knows of it
		my ($two, $execute) = map { [ map { s/\|\d+\|/|n|/r =~ s/(status: )(?:RETRYABLE|NONE)\|.*/$1nothing/r } @$_ ] } @told{qw(two execute)};
		is_deeply($two, $execute, "seed $seed, run $run: two transactions tell it, too");
		my @execute = @$execute;
		ok((grep { /DONE\|n\|t/ } @execute) && (grep { /failed/ } @execute) && (grep { /PARAM_MISMATCH/ } @execute), 'the history had replays, failures and refusals');
	}
}

$_->quit foreach $a, $b, $c;
$node->stop;
done_testing();
