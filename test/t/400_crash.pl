# The server or a backend dies at each step of the flow: what was committed stands, what was not never was, and no
# honest retry runs an effect a second time (P1, P2, P3, P5, P8, P9; G12).
use strict;
use warnings;

use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes;
use IdemTest;
use IdemFault;

my $node = idem_node('crash',
	autovacuum => 'off',
	# nothing but a forced flush brings anything to disk before a crash
	synchronous_commit => 'off',
	wal_writer_delay => '10s',
	restart_after_crash => 'on',
	max_prepared_transactions => '10');
furnish($node);

# A session of its own for each step, so that one crash meets them all
my (%op, %session);

sub at
{
	my ($name, $scope, @sql) = @_;
	my $s = $session{$name} = session($node);
	my $op = $op{$name} = operation($s, $scope);
	foreach my $step (@sql)
	{
		ref $step ? $step->($s, $op) : $s->query_ok($step);
	}
	return;
}

my $acquire = sub { is(grant(@_), 'ACQUIRED|1', 'granted') };
my $effect = sub { effect($_[1]) };
my $commit = sub { is(ask($_[0], commit_sql($_[1], '"first"')), 'OK', 'finished') };
my $row = sub { $_[0]->query_ok("INSERT INTO booking VALUES ('$_[1]{key}')"); effect($_[1]) };
my $call = sub {
	my ($function, $more) = @_;
	return sub { is($_[0]->query_ok("SELECT idem_$function('$_[1]{key}', '$_[1]{owner}'" . ($more // '') . ')'), 'OK', $function) };
};
my $prepare = sub { $_[0]->query_ok("PREPARE TRANSACTION '$_[1]{key}'") };
my $over = sub { lease_over($node, $_[1]) };

# What stands afterwards, and what every honest retry leads to; 'open' effects are outside and may have happened
my %expected;

sub steps
{
	%op = %session = %expected = ();
	my $step = sub {
		my ($name, $scope, $answer, @sql) = @_;
		$expected{$name} = $answer;
		at($name, $scope, @sql);
	};
	# two transactions, the effect between them
	$step->('acquire, not committed', 'opaque', 'ACQUIRED|1|', 'BEGIN', $acquire);
	$step->('acquire, in a savepoint', 'opaque', 'ACQUIRED|1|', 'BEGIN', 'SAVEPOINT s', $acquire, 'RELEASE s');
	$step->('acquire, committed', 'opaque', 'IN_FLIGHT|1|', $acquire);
	$step->('effect done', 'opaque', 'IN_FLIGHT|1|', $acquire, $effect);
	$step->('commit, not committed', 'opaque', 'IN_FLIGHT|1|', $acquire, $effect, 'BEGIN', $commit);
	$step->('commit, committed', 'opaque', 'DONE|1|"first"', $acquire, $effect, $commit);
	$step->('fail, not committed', 'opaque', 'IN_FLIGHT|1|', $acquire, 'BEGIN', $call->('fail', q{, '"no"'}));
	$step->('fail, committed', 'opaque', 'FAILED|1|"no"', $acquire, $call->('fail', q{, '"no"'}));
	$step->('release, not committed', 'opaque', 'IN_FLIGHT|1|', $acquire, 'BEGIN', $call->('release'));
	$step->('release, committed', 'opaque', 'ACQUIRED|2|', $acquire, $call->('release'));
	$step->('renew, not committed', 'short_opaque', 'RECONCILE|1|', $acquire, $effect, 'BEGIN', $call->('renew', q{, '1 hour'}), $over);
	$step->('renew, committed', 'short_opaque', 'IN_FLIGHT|1|', $acquire, $effect, $call->('renew', q{, '1 hour'}));
	$step->('lease over, opaque', 'short_opaque', 'RECONCILE|1|', $acquire, $effect, $over);
	$step->('lease over, queryable', 'short_queryable', 'RECONCILE|1|', $acquire, $effect, $over);
	$step->('takeover, not committed', 'short_idempotent', 'ACQUIRED|2|', $acquire, $effect, $over,
		'BEGIN', sub { is(grant(@_), 'ACQUIRED|2', 'taken over') });
	$step->('takeover, committed', 'short_idempotent', 'ACQUIRED|3|', $acquire, $effect, $over,
		sub { is(grant(@_), 'ACQUIRED|2', 'taken over') }, $effect, $over);
	$step->('verdict, not committed', 'short_opaque', 'RECONCILE|1|', $acquire, $effect, $over,
		'BEGIN', sub { is($_[0]->query_ok("SELECT idem_reconcile('$_[1]{key}', 'DONE', 'seen', '1')"), 'OK', 'reconciled') });
	$step->('verdict, committed', 'short_opaque', 'DONE|1|1', $acquire, $effect, $over,
		sub { is($_[0]->query_ok("SELECT idem_reconcile('$_[1]{key}', 'DONE', 'seen', '1')"), 'OK', 'reconciled') });
	# one transaction, the effect being rows of its own; flushed where the caller wants it
	$step->('local: acquired', 'local', 'ACQUIRED|1|', 'BEGIN', $acquire, $row);
	$step->('local: finished', 'local', 'ACQUIRED|1|', 'BEGIN', $acquire, $row, $commit);
	$step->('local: committed', 'local', 'DONE|1|"first"', 'BEGIN', 'SET LOCAL synchronous_commit = on', $acquire, $row, $commit, 'COMMIT');
	# prepared
	$step->('prepared, claim open', 'opaque', 'IN_FLIGHT|1|', 'BEGIN', $acquire, $prepare);
	$step->('prepared, finished', 'opaque', 'IN_FLIGHT|1|', 'BEGIN', $acquire, $row, $commit, $prepare);
	return;
}

my %crash = (
	'immediate shutdown' => sub { $node->stop('immediate'); $node->start },
	'kill -9 of the postmaster' => sub { crash_and_start($node) },
	'kill -9 of a holder' => sub { kill_backend($session{'effect done'}->pid) },
	'kill -9 of an unrelated backend' => sub { my $s = session($node); kill_backend($s->pid); $s->quit });

# The postmaster ends every other backend and recovers by itself
sub kill_backend
{
	my ($pid) = @_;
	my $size = log_size($node);
	kill 'KILL', $pid;
	foreach my $n (1 .. 100 * $PostgreSQL::Test::Utils::timeout_default)
	{
		last if log_since($node, $size) =~ /all server processes terminated; reinitializing.*ready to accept connections/s;
		Time::HiRes::usleep(10_000);
	}
	$node->poll_query_until('postgres', 'SELECT true') or die 'the server does not come back';
	return;
}

foreach my $how (sort keys %crash)
{
	subtest "$how at each step (P1, P2, P3, P5, P8, P9)" => sub {
		steps();
		$crash{$how}->();
		$session{$_}->quit foreach keys %session;
		sound($node, 'after it');
		my $r = session($node);
		is(answer($r, $op{$_}), $expected{$_}, "$_: $expected{$_}") foreach sort keys %op;
		is(ask($r, 'SELECT count(*) FROM booking AS b WHERE NOT EXISTS (SELECT FROM idem_record AS r WHERE r.key = b.key)'),
			0, 'no row without its claim (P9)');

		# effects in rows of the dead transactions are gone with them; what is prepared is not lost
		IdemFault::undo($op{$_}) foreach 'local: acquired', 'local: finished';
		my %status = map { $_ => (split /\|/, status($r, $op{$_}))[0] } keys %op;
		is($status{'acquire, not committed'}, 'NONE', 'status: never there');
		is($status{'prepared, finished'}, 'IN_FLIGHT', 'status: prepared');
		is($status{'takeover, not committed'}, 'RETRYABLE', 'status: may be taken over');
		ask($r, "COMMIT PREPARED '$op{$_}{key}'") foreach 'prepared, claim open', 'prepared, finished';
		is(answer($r, $op{'prepared, claim open'}), 'IN_FLIGHT|1|', 'prepared, claim open: committed');
		is(answer($r, $op{'prepared, finished'}), 'DONE|1|"first"', 'prepared, finished: committed');

		# the holders that live on elsewhere finish what they began, everybody retries, and nothing ran twice
		foreach my $name (sort grep { $expected{$_} =~ /^(IN_FLIGHT|RECONCILE)/ && !/prepared, finished/ } keys %op)
		{
			is(ask($r, commit_sql($op{$name}, '"late"')), 'OK', "$name: its holder finishes");
			is(settle($r, $op{$name}), 'DONE|"late"', "$name: and every retry gets that");
		}
		foreach my $name (sort keys %op)
		{
			my $first = settle($r, $op{$name});
			like($first, qr/^(DONE|FAILED)/, "$name: settled");
			is(settle($r, $op{$name}), $first, "$name: for good (P2, P3)");
			cmp_ok(effects($op{$name}), '<=', 1, "$name: one effect at most (P1)");
		}
		$r->quit;
		sound($node, 'in the end');
	};
}

# A crash while the dead row of a crash is still there, and again while recovery has only just ended
subtest 'one crash after another (P1, P8)' => sub {
	my $op = operation($node, 'opaque');
	foreach (1 .. 3)
	{
		my $s = session($node);
		$s->query_ok('BEGIN');
		is(grant($s, $op), 'ACQUIRED|1', 'granted, not committed');
		crash_and_start($node);
		$s->quit;
	}
	my $s = session($node);
	is(grant($s, $op), 'ACQUIRED|1', 'granted');
	crash_and_start($node);
	$s->quit;
	is(answer($node, $op), 'IN_FLIGHT|1|', 'and committed: it stays');
	sound($node, 'in the end');
};

unlike(log_since($node, 0), qr/PANIC|TRAP|ERROR:  (?:XX|could not)/, 'no fault in the log');
$node->stop;
done_testing();
