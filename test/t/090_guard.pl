# The repeat guard between sessions: of two fingerprints for the same thing at most one is granted, whatever way the
# two take, and whatever happens meanwhile (P1).
use strict;
use warnings;

use PostgreSQL::Test::Utils;
use Test::More;
use IdemTest;

my $node = idem_node('guard', autovacuum => 'off', max_prepared_transactions => 5, deadlock_timeout => '100ms');
value($node, q{INSERT INTO idem_policy (scope, downstream, repeat_guard) VALUES ('pay', 'idempotent', '10 min')});

my $count = 0;
my ($a, $b, $c, $side) = map { session($node) } 1 .. 4;

sub fresh { return sprintf '{"n": %d}', ++$count }
sub sign { return $side->query_ok("SELECT idem_sign('alice', 'pay', '$_[0]')") }

sub acquire_sql
{
	my ($fp, $params, $columns) = @_;
	$columns //= 'outcome';
	return "SELECT $columns FROM idem_acquire('$fp', 'alice', 'pay', '$params')";
}

# The state of the operations with these parameters: how many have ever been granted and stand
sub standing
{
	my ($params) = @_;
	return $side->query_ok("SELECT count(*) FROM idem_record WHERE param_hash = idem_param_hash('pay', '$params') AND state IN ('I', 'D')");
}

# ----------------------------------------------------------------------------------------------------------
# Two at once, step by step
# ----------------------------------------------------------------------------------------------------------

# the first is in an open transaction, and ends in each way; what the second was told, and is told then
foreach my $case (
	[ 'COMMIT', 'REPEAT' ], [ 'ROLLBACK', 'ACQUIRED' ],
	[ 'SELECT idem_commit(:k, :o); COMMIT', 'REPEAT' ], [ 'SELECT idem_release(:k, :o); COMMIT', 'ACQUIRED' ],
	[ 'SELECT idem_fail(:k, :o, \'1\'); COMMIT', 'ACQUIRED' ], [ 'SELECT idem_fail(:k, :o, \'1\', true); COMMIT', 'ACQUIRED' ],
	[ 'ROLLBACK TO s; COMMIT', 'ACQUIRED' ],
	[ 'PREPARE TRANSACTION \'p\'; ?; COMMIT PREPARED \'p\'', 'REPEAT' ], [ 'PREPARE TRANSACTION \'p\'; ?; ROLLBACK PREPARED \'p\'', 'ACQUIRED' ],
	[ 'SELECT idem_commit(:k, :o); PREPARE TRANSACTION \'p\'; ?; COMMIT PREPARED \'p\'', 'REPEAT' ])
{
	my ($end, $expected) = @$case;
	foreach my $flow ('one transaction', 'two transactions')
	{
		my $p = fresh();
		my @fp = (sign($p), sign($p));
		$a->query_ok('BEGIN; SAVEPOINT s');
		my (undef, $key, $owner) = split /\|/, $a->query_ok(acquire_sql($fp[0], $p, 'outcome, key, owner'));
		is($b->query_ok(acquire_sql($fp[1], $p, "outcome, key = '$key', owner IS NULL")), 'REPEAT|t|t', 'while the first is at work');
		foreach my $step (split /; /, $end)
		{
			if ($step eq '?')
			{
				is($b->query_ok(acquire_sql($fp[1], $p)), 'REPEAT', 'while it is prepared');
				next;
			}
			$step =~ s/:k/'$key'/;
			$step =~ s/:o/'$owner'/;
			$a->query_ok($step);
		}
		$b->query_ok('BEGIN') if $flow eq 'one transaction';
		my ($outcome, $k, $o) = split /\|/, $b->query_ok(acquire_sql($fp[1], $p, 'outcome, key, owner'));
		is($outcome, $expected, "$flow: after $case->[0]");
		$b->query_ok("SELECT idem_commit('$k', '$o')") if $outcome eq 'ACQUIRED';
		$b->query_ok('COMMIT') if $flow eq 'one transaction';
		is(standing($p), '1', 'one stands');
	}
}

# one of the two cannot use the fast table: the record decides, before either commits
{
	my $p = fresh();
	my @fp = (sign($p), sign($p));
	$c->query_ok('BEGIN; LOCK TABLE idem_fast IN ACCESS EXCLUSIVE MODE');
	$a->query_ok('BEGIN');
	is($a->query_ok(acquire_sql($fp[0], $p)), 'ACQUIRED', 'the first without the fast table');
	$c->query_ok('ROLLBACK');
	is($b->query_ok(acquire_sql($fp[1], $p)), 'REPEAT', 'the second with it');
	$a->query_ok('COMMIT');
	is(standing($p), '1', 'one stands');
}
foreach my $first ('a', 'b')
{
	my $p = fresh();
	my @fp = (sign($p), sign($p));
	$a->query_ok('BEGIN');
	is($a->query_ok(acquire_sql($fp[0], $p)), 'ACQUIRED', 'the first with the fast table');
	$c->send('BEGIN; LOCK TABLE idem_fast IN ACCESS EXCLUSIVE MODE');
	wait_blocked($node, $c);
	$b->query_ok('BEGIN');
	is($b->query_ok(acquire_sql($fp[1], $p)), 'REPEAT', 'the second, without it, sees the first among its peers');
	my ($x, $y) = $first eq 'a' ? ($a, $b) : ($b, $a);
	$x->query_ok('COMMIT');
	if ($first eq 'a')
	{
		$c->wait;
		$c->query_ok('ROLLBACK');
	}
	$y->query_ok('COMMIT');
	if ($first eq 'b')
	{
		$c->wait;
		$c->query_ok('ROLLBACK');
	}
	is(standing($p), '1', 'one stands');
}

# ----------------------------------------------------------------------------------------------------------
# Many at once
# ----------------------------------------------------------------------------------------------------------

my $gate = session($node);

# All statements at the same moment; the last line of what each answers
sub at_once
{
	my ($sessions, @sql) = @_;
	$gate->query_ok('SELECT pg_advisory_lock(1)');
	$sessions->[$_]->send("SELECT pg_advisory_lock_shared(1);\nSELECT pg_advisory_unlock_shared(1);\n$sql[$_]") foreach 0 .. $#sql;
	my $n = @sql;
	my $until = time + $PostgreSQL::Test::Utils::timeout_default;
	until ($side->query_ok("SELECT count(*) FROM pg_catalog.pg_locks WHERE locktype = 'advisory' AND NOT granted") == $n)
	{
		die 'not all of them came to the gate' if time > $until;
	}
	$gate->query_ok('SELECT pg_advisory_unlock(1)');
	return map { my $out = $sessions->[$_]->wait; $sessions->[$_]->sqlstate eq '00000' ? ($out =~ /(\w+)$/)[0] : $sessions->[$_]->sqlstate } 0 .. $#sql;
}

{
	my @s = map { session($node) } 1 .. 8;
	my (%seen, @wrong);
	foreach my $round (1 .. 25)
	{
		my $p = fresh();
		my @fp = map { sign($p) } @s;
		# half of them by the content's own door
		my @told = at_once(\@s, map { $round % 2 && $_ % 2 ? "SELECT outcome FROM idem_acquire_direct('alice', 'pay', '$p')" : acquire_sql($fp[$_], $p) } 0 .. $#s);
		$seen{$_}++ foreach @told;
		push @wrong, "round $round: @told" if standing($p) ne '1' || (grep { $_ eq 'ACQUIRED' } @told) != 1;
	}
	is(join("\n", @wrong), '', 'of eight fresh fingerprints at once one is granted');
	is(join(' ', grep { !/^(ACQUIRED|REPEAT|IN_FLIGHT|40001)$/ } keys %seen), '', 'and the others hear what is documented');
	note(join ', ', map { "$_: $seen{$_}" } sort keys %seen);

	# an operation that was released goes on, while a fresh one for the same thing begins
	@wrong = %seen = ();
	foreach my $round (1 .. 60)
	{
		my $p = fresh();
		my @fp = (sign($p), sign($p));
		my ($key, $owner) = split /\|/, $a->query_ok(acquire_sql($fp[0], $p, 'key, owner'));
		$a->query_ok("SELECT idem_release('$key', '$owner')");
		my @told = at_once(\@s, acquire_sql($fp[0], $p), acquire_sql($fp[1], $p));
		$seen{"@told"}++;
		push @wrong, "round $round: @told" if standing($p) ne '1';
	}
	is(join("\n", @wrong), '', 'of one that continues and one that begins, one is granted');
	note(join ', ', map { "$_: $seen{$_}" } sort keys %seen);
	$_->quit foreach @s;
}

# ----------------------------------------------------------------------------------------------------------
# A continuation places a row of its own
# ----------------------------------------------------------------------------------------------------------

{
	my $p = fresh();
	my @fp = (sign($p), sign($p));
	my ($key, $owner) = split /\|/, $a->query_ok(acquire_sql($fp[0], $p, 'key, owner'));
	$a->query_ok("SELECT idem_release('$key', '$owner')");
	is(value($node, "SELECT count(*) FROM idem_peer WHERE key = '$key'"), 1, 'one grant');
	is($a->query_ok(acquire_sql($fp[0], $p, 'outcome, attempt')), 'ACQUIRED|2', 'it continues');
	is(value($node, "SELECT count(*) FROM idem_peer WHERE key = '$key'"), 2, 'and has a new row, which who looked before the old one counts must see');
}

# a purge that has deleted an operation, but is not committed: nobody begins an equal one before it is
{
	my $p = fresh();
	my @fp = (sign($p), sign($p));
	my ($key, $owner) = split /\|/, $a->query_ok(acquire_sql($fp[0], $p, 'key, owner'));
	$a->query_ok("SELECT idem_release('$key', '$owner')");
	value($node, "UPDATE idem_record SET finished_at = now() - '1 hour'::interval, retained_until = now() - '50 min'::interval WHERE key = '$key'");
	$c->query_ok('BEGIN');
	$c->query_ok('SELECT idem_purge()');
	is($a->query_ok(acquire_sql($fp[0], $p)), 'IN_FLIGHT', 'its own operation, meanwhile');
	is($b->query_ok(acquire_sql($fp[1], $p)), 'REPEAT', 'and an equal one, which may have come to nothing or not');
	$b->send("SELECT outcome FROM idem_acquire('$fp[1]', 'alice', 'pay', '$p', wait => '1 min')");
	wait_blocked($node, $b);
	$c->query_ok('COMMIT');
	is($b->wait, 'ACQUIRED', 'which starts as soon as the purge is committed');
	is($a->query_ok(acquire_sql($fp[0], $p)), 'REPEAT', 'and keeps the former from going on');
}

# ----------------------------------------------------------------------------------------------------------
# A crash
# ----------------------------------------------------------------------------------------------------------

{
	my ($p, $q) = (fresh(), fresh());
	my @fp = map { sign($_) } $p, $p, $q, $q;
	is($a->query_ok(acquire_sql($fp[0], $p)), 'ACQUIRED', 'committed in flight');
	$b->query_ok('BEGIN');
	is($b->query_ok(acquire_sql($fp[2], $q)), 'ACQUIRED', 'in an open transaction');
	$_->quit foreach $a, $c, $gate, $side;
	crash_and_start($node);
	$b->quit;
	is(value($node, acquire_sql($fp[1], $p)), 'REPEAT', 'after a crash: what was committed guards');
	is(value($node, acquire_sql($fp[3], $q)), 'ACQUIRED', 'what was not does not');
}

$node->stop;
done_testing();
