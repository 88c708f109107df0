# Prepared transactions across a crash: what they claimed, finished or took over stays theirs until they end, and
# then it is as they left it (P1, P2, P5, P8, P9).
use strict;
use warnings;

use Test::More;
use IdemTest;
use IdemFault;

my $node = idem_node('prepared', autovacuum => 'off', synchronous_commit => 'off', wal_writer_delay => '10s',
	max_prepared_transactions => '40');
furnish($node);
value($node, q{INSERT INTO idem_policy (scope, repeat_guard) VALUES ('guarded', '1 hour')});

my (%op, %after);

# Prepared, twice: one of the two is to be committed and the other to be rolled back
sub prepare
{
	my ($name, $scope, $committed, $rolled_back, $before, $inside) = @_;
	foreach my $end (qw(COMMIT ROLLBACK))
	{
		my $gid = "$end $name";
		my $s = session($node);
		my $op = $op{$gid} = operation($s, $scope);
		$before->($s, $op) if $before;
		$s->query_ok('BEGIN');
		$inside->($s, $op);
		$s->query_ok("PREPARE TRANSACTION '$gid'");
		$s->quit;
		$after{$gid} = $end eq 'COMMIT' ? $committed : $rolled_back;
	}
	return;
}

my $acquire = sub { is(grant(@_), 'ACQUIRED|1', 'granted') };
my $acquired = sub { grant(@_); effect($_[1]) };
my $commit = sub { is(ask($_[0], commit_sql($_[1], '"first"')), 'OK', 'finished') };
my $call = sub { my ($f, $more) = @_; return sub { is(ask($_[0], "SELECT idem_$f('$_[1]{key}', '$_[1]{owner}'" . ($more // '') . ')'), 'OK', $f) } };
my $all = sub { my @steps = @_; return sub { my @with = @_; ref $_ ? $_->(@with) : $with[0]->query_ok($_) foreach @steps } };

prepare('claim left open', 'opaque', 'IN_FLIGHT|1|', 'ACQUIRED|1|', undef, $acquire);
prepare('claim finished', 'local', 'DONE|1|"first"', 'ACQUIRED|1|', undef,
	$all->($acquire, sub { $_[0]->query_ok("INSERT INTO booking VALUES ('$_[1]{key}')") }, $commit));
prepare('claim failed', 'opaque', 'FAILED|1|"no"', 'ACQUIRED|1|', undef, $all->($acquire, $call->('fail', q{, '"no"'})));
prepare('claim released', 'opaque', 'ACQUIRED|1|', 'ACQUIRED|1|', undef, $all->($acquire, $call->('release')));
prepare('earlier claim finished', 'opaque', 'DONE|1|"first"', 'IN_FLIGHT|1|', $acquired, $commit);
prepare('earlier claim released', 'opaque', 'ACQUIRED|2|', 'IN_FLIGHT|1|', $acquire, $call->('release'));
prepare('earlier claim renewed', 'short_opaque', 'IN_FLIGHT|1|', 'RECONCILE|1|', $acquired, $call->('renew', q{, '1 hour'}));
prepare('taken over', 'short_idempotent', 'ACQUIRED|3|', 'ACQUIRED|2|', $all->($acquired, sub { lease_over($node, $_[1]) }),
	sub { is(grant(@_), 'ACQUIRED|2', 'taken over') });
prepare('in a savepoint', 'opaque', 'IN_FLIGHT|1|', 'ACQUIRED|1|', undef, $all->('SAVEPOINT s', $acquire, 'RELEASE s'));
prepare('in a savepoint rolled back', 'opaque', 'ACQUIRED|1|', 'ACQUIRED|1|', undef, $all->('SAVEPOINT s', $acquire, 'ROLLBACK TO s', 'SELECT pg_current_xact_id()'));
prepare('commit in a savepoint rolled back', 'opaque', 'IN_FLIGHT|1|', 'ACQUIRED|1|', undef, $all->($acquire, 'SAVEPOINT s', $commit, 'ROLLBACK TO s'));

# A claim that must not outlive its transaction cannot be prepared open
{
	my $s = session($node);
	my $op = operation($s, 'local');
	$s->query_ok('BEGIN');
	$acquire->($s, $op);
	$s->query("PREPARE TRANSACTION 'local'");
	is($s->sqlstate, '55000', 'an open claim of a local scope cannot be prepared');
	$s->query('ROLLBACK');
	is(answer($s, $op), 'ACQUIRED|1|', 'and is free');
	$s->quit;
}

# What others are told meanwhile
sub rivals
{
	my ($when) = @_;
	my $s = session($node);
	foreach my $gid (sort keys %op)
	{
		next if $gid =~ /claim released$/ && $gid !~ /earlier/ || $gid =~ / in a savepoint rolled back$/ && $gid !~ /commit in/;
		my $answer = ask($s, 'BEGIN; SET LOCAL lock_timeout = 0;' . acquire_sql($op{$gid}, 'outcome') . '; ROLLBACK');
		is($answer, 'IN_FLIGHT', "$when, $gid: somebody is at work");
		is((split /\|/, status($s, $op{$gid}))[0], 'IN_FLIGHT', "$when, $gid: says status");
		next if $gid !~ /earlier|taken/;
		# and nobody changes it meanwhile: they wait, and give up by their own limit
		$s->query("SET lock_timeout = '10 ms'");
		$s->query(commit_sql($op{$gid}, '"other"'));
		is($s->sqlstate, '55P03', "$when, $gid: its holder waits for what will become of it");
		$s->query('RESET lock_timeout');
	}
	is(ask($s, "SELECT count(*) FROM idem_in_flight WHERE gid ~ '^(COMMIT|ROLLBACK) claim left open\$' AND xid IS NOT NULL"), 2,
		"$when: the view names the transactions");
	$s->quit;
	return;
}

rivals('before the crash');
# the second crash finds them read back from their files
foreach my $crash (1, 2)
{
	crash_and_start($node);
	rivals("after crash $crash");
	value($node, 'CHECKPOINT');
}
sound($node, 'after two crashes');

foreach my $gid (sort keys %op)
{
	my ($end) = $gid =~ /^(\w+)/;
	value($node, "$end PREPARED '$gid'");
}
crash_and_start($node);
my $s = session($node);
is(answer($s, $op{$_}), $after{$_}, "$_: $after{$_}") foreach sort keys %op;
is(ask($s, 'SELECT count(*) FROM booking'), 1, 'the rows went with their claims (P9)');
foreach my $gid (sort keys %op)
{
	my $op = $op{$gid};
	is(ask($s, commit_sql($op, '"late"')), 'OK', "$gid: its holder finishes") if $after{$gid} =~ /^(IN_FLIGHT|RECONCILE)/;
	my $first = settle($s, $op);
	like($first, qr/^(DONE|FAILED)/, "$gid: settled");
	is(settle($s, $op), $first, "$gid: for good (P2, P3)");
	cmp_ok(effects($op), '<=', 1, "$gid: one effect at most (P1)");
}
$s->quit;
sound($node, 'in the end');
unlike(log_since($node, 0), qr/PANIC|TRAP|ERROR:  XX/, 'no fault in the log');
$node->stop;
done_testing();
