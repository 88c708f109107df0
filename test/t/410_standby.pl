# A hot standby answers and never writes; promoted after the primary's death it has every grant and every result,
# and nothing runs twice (P1, P2, P3, P5, P8; G01, G03, G12).
use strict;
use warnings;

use Test::More;
use IdemTest;
use IdemFault;

my $primary = idem_node('primary', -streaming => 1,
	autovacuum => 'off',
	shared_preload_libraries => 'idem',
	max_connections => '50',
	max_prepared_transactions => '10');
furnish($primary);

# A standby whose acknowledgement every commit waits for
sub standby_of
{
	my ($node, $name) = @_;
	$node->backup($name);
	my $standby = PostgreSQL::Test::Cluster->new($name);
	$standby->init_from_backup($node, $name, has_streaming => 1);
	$standby->start;
	$node->append_conf('postgresql.conf', "synchronous_standby_names = '$name'\n");
	$node->reload;
	wait_until($node, "SELECT sync_state = 'sync' FROM pg_stat_replication WHERE application_name = '$name'");
	return $standby;
}

# What no standby may do, by the call's name
sub writes
{
	my ($op) = @_;
	my $key = "'$op->{key}', gen_random_uuid()";
	return (
		idem_acquire => acquire_sql($op),
		idem_acquire_direct => q{SELECT * FROM idem_acquire_direct('alice', 'opaque', '{"amount": 7}')},
		idem_rotate_secret => 'SELECT idem_rotate_secret()',
		idem_purge => 'SELECT idem_purge()',
		idem_maintain => 'SELECT idem_maintain()',
		idem_policy => q{INSERT INTO idem_policy (scope) VALUES ('new')},
		idem_execute => q{SELECT * FROM idem_execute('alice', 'opaque', '{"amount": 8}', 'pay(jsonb)')});
}

value($primary, q{CREATE FUNCTION pay(jsonb) RETURNS jsonb LANGUAGE sql RETURN $1});
my %op = states($primary);
my $standby = standby_of($primary, 'standby');
$primary->wait_for_catchup('standby', 'replay');

my %expected = (
	done => 'DONE|1|{"n": 1.50, "charge": "ch_1"}',
	failed => 'FAILED|1|"no"',
	released => 'RETRYABLE|1|',
	retried => 'RETRYABLE|1|"busy"',
	flight_opaque => 'IN_FLIGHT|1|',
	flight_queryable => 'IN_FLIGHT|1|',
	flight_idempotent => 'IN_FLIGHT|1|',
	over_opaque => 'RECONCILE|1|',
	over_queryable => 'RECONCILE|1|',
	over_idempotent => 'RETRYABLE|1|',
	unused => 'UNKNOWN||');

subtest 'a hot standby answers, and touches no unlogged table (G03)' => sub {
	my $size = log_size($standby);
	is((psql_error($standby, 'SELECT * FROM idem_fast'))[0], '0A000', 'which could not be read here');
	my $s = session($standby);
	foreach my $name (sort keys %op)
	{
		is(status($s, $op{$name}), $expected{$name}, "$name: $expected{$name}");
		is(status_key($s, $op{$name}), $expected{$name}, "$name: by its key");
	}
	is(ask($s, "SELECT outcome FROM idem_status_key('$op{done}{key}', 'bob')"), 'UNKNOWN', 'another subject learns nothing (P7)');
	is(ask($s, "SELECT outcome FROM idem_status('$op{done}{token}', 'bob')"), 'SUBJECT_MISMATCH', 'nor with a token');
	is(ask($s, "SELECT outcome FROM idem_status('garbled', 'alice')"), 'INVALID', 'a garbled token');
	is(ask($s, acquire_sql($op{$_})), $expected{$_}, "$_: an acquire replays") foreach qw(done failed flight_opaque over_opaque);
	is(ask($s, "SELECT outcome FROM idem_acquire('$op{done}{token}', 'alice', 'opaque', '{\"amount\": 101}')"), 'PARAM_MISMATCH', 'or refuses');
	is(ask($s, "SELECT length(idem_canonical(NULL, '{\"a\": 1}')), length(idem_param_hash('opaque', '{}')), (idem_inspect('$op{done}{token}')).valid"),
		'7|32|t', 'the pure functions work');
	is(ask($s, "SELECT idem_key('alice', 'opaque', '{}') IS NOT NULL, idem_downstream_key('$op{done}{key}', 'a') IS NOT NULL"), 't|t', 'so do the keys');
	like(ask($s, "SELECT (idem_inspect(idem_sign('alice', 'opaque', '{}'))).valid"), qr/^t$/, 'and signing, which writes nothing');
	foreach my $view (qw(idem_in_flight idem_stuck idem_audit idem_secrets idem_stat idem_policy idem_alert))
	{
		like(ask($s, "SELECT count(*) FROM $view"), qr/^\d+$/, "$view can be read");
	}
	is(ask($s, "SELECT count(*) FROM idem_in_flight"), 6, 'idem_in_flight: those of the record');
	like(ask($s, "SELECT idem_reply(idem_status('$op{unused}{token}', 'alice'))"), qr/"effect": "unknown"/, 'and the reply says that nobody knows');

	my %writes = writes($op{unused});
	$writes{"idem_acquire, $_"} = acquire_sql($op{$_}) foreach qw(released over_idempotent);
	$writes{idem_commit} = commit_sql($op{flight_opaque}, '1');
	$writes{"idem_$_"} = "SELECT idem_$_('$op{flight_opaque}{key}', '$op{flight_opaque}{owner}')" foreach qw(release renew);
	$writes{idem_fail} = "SELECT idem_fail('$op{flight_opaque}{key}', '$op{flight_opaque}{owner}', '1')";
	$writes{idem_reconcile} = "SELECT idem_reconcile('$op{over_opaque}{key}', 'DONE', 'seen')";
	foreach my $name (sort keys %writes)
	{
		my ($code, $message) = psql_error($standby, $writes{$name});
		is($code, '25006', "$name: read only");
	}
	unlike(log_since($standby, $size) =~ s/.*SELECT \* FROM idem_fast.*\n//r, qr/unlogged relation.*\n.*STATEMENT:  SELECT (?!\* FROM idem_fast)/, 'no call touched the fast table');
	$s->quit;
};

subtest 'waiting on a standby (P11)' => sub {
	my $op = operation($primary, 'opaque');
	is(grant($primary, $op), 'ACQUIRED|1', 'granted');
	$primary->wait_for_catchup('standby', 'replay');
	my $s = session($standby);
	is(ask($s, "SELECT outcome FROM idem_status('$op->{token}', 'alice', '50 ms')"), 'IN_FLIGHT', 'in vain');
	$s->send("SELECT outcome, result FROM idem_status('$op->{token}', 'alice', '60 s')");
	is(value($primary, commit_sql($op, 1)), 'OK', 'finished on the primary');
	is($s->wait, 'DONE|1', 'and so the wait ends');
	$s->quit;
};

# ----------------------------------------------------------------------------------------------------------
# Failover
# ----------------------------------------------------------------------------------------------------------

# Every step of the flow at once, by callers who asked for no durability at all
sub steps
{
	my ($node) = @_;
	my (%step, %left, @session);
	my $add = sub {
		my ($name, $scope, $after, $run) = @_;
		my $s = session($node);
		push @session, $s;
		$s->query_ok('SET synchronous_commit = off');
		my $op = $step{$name} = operation($s, $scope);
		$left{$name} = $after;
		$run->($s, $op);
	};
	my $acquire = sub { grant(@_) eq 'ACQUIRED|1' or die 'not granted' };
	my $finish = sub { effect($_[1]); ask($_[0], commit_sql($_[1], '"first"')) eq 'OK' or die 'not finished' };
	my $call = sub { my ($s, $op, $call, $more) = @_; ask($s, "SELECT idem_$call('$op->{key}', '$op->{owner}'" . ($more // '') . ')') eq 'OK' or die $call };
	$add->('acquire, not committed', 'opaque', 'ACQUIRED|1|', sub { $_[0]->query_ok('BEGIN'); $acquire->(@_) });
	$add->('acquire, committed', 'opaque', 'IN_FLIGHT|1|', sub { $acquire->(@_); effect($_[1]) });
	$add->('commit, not committed', 'opaque', 'IN_FLIGHT|1|', sub { $acquire->(@_); $_[0]->query_ok('BEGIN'); $finish->(@_) });
	$add->('commit, committed', 'opaque', 'DONE|1|"first"', sub { $acquire->(@_); $finish->(@_) });
	$add->('fail, committed', 'opaque', 'FAILED|1|"no"', sub { $acquire->(@_); $call->(@_, 'fail', q{, '"no"'}) });
	$add->('release, committed', 'opaque', 'ACQUIRED|2|', sub { $acquire->(@_); $call->(@_, 'release') });
	$add->('renew, committed', 'short_opaque', 'IN_FLIGHT|1|', sub { $acquire->(@_); effect($_[1]); $call->(@_, 'renew', q{, '1 hour'}) });
	$add->('takeover, committed', 'short_idempotent', 'ACQUIRED|3|', sub {
		$acquire->(@_); effect($_[1]); lease_over($node, $_[1]);
		grant(@_) eq 'ACQUIRED|2' or die 'not taken over'; effect($_[1]); lease_over($node, $_[1]) });
	$add->('takeover, not committed', 'short_idempotent', 'ACQUIRED|2|', sub {
		$acquire->(@_); effect($_[1]); lease_over($node, $_[1]); $_[0]->query_ok('BEGIN'); grant(@_) eq 'ACQUIRED|2' or die 'not taken over' });
	$add->('local, committed', 'local', 'DONE|1|"first"', sub {
		$_[0]->query_ok('BEGIN; SET LOCAL synchronous_commit = on'); $acquire->(@_);
		$_[0]->query_ok("INSERT INTO booking VALUES ('$_[1]{key}')"); $finish->(@_); $_[0]->query_ok('COMMIT') });
	$add->('local, not committed', 'local', 'ACQUIRED|1|', sub {
		$_[0]->query_ok('BEGIN'); $acquire->(@_); $_[0]->query_ok("INSERT INTO booking VALUES ('$_[1]{key}')") });
	$add->('prepared', 'opaque', 'IN_FLIGHT|1|', sub { $_[0]->query_ok('BEGIN'); $acquire->(@_); $_[0]->query_ok("PREPARE TRANSACTION '$_[1]{key}'") });
	return (\%step, \%left, @session);
}

subtest 'failover at each step (P1, P2, P3, P5, P8, P9; G01, G12)' => sub {
	my ($step, $left, @session) = steps($primary);
	$primary->kill9;
	$_->quit foreach @session;
	$standby->promote;
	wait_until($standby, 'SELECT NOT pg_is_in_recovery()');
	$standby->append_conf('postgresql.conf', "synchronous_standby_names = ''\n");
	$standby->reload;
	sound($standby, 'promoted');
	my $s = session($standby);
	foreach my $name (sort keys %$step)
	{
		is(answer($s, $step->{$name}), $left->{$name}, "$name: $left->{$name}");
	}
	# those of before, once more
	$expected{released} = 'ACQUIRED|2|';
	$expected{retried} = 'ACQUIRED|2|';
	$expected{over_idempotent} = 'ACQUIRED|2|';
	$expected{unused} = 'ACQUIRED|1|';
	is(answer($s, $op{$_}), $expected{$_}, "$_: $expected{$_}") foreach sort keys %op;
	is(ask($s, 'SELECT count(*) FROM booking AS b WHERE NOT EXISTS (SELECT FROM idem_record AS r WHERE r.key = b.key)'), 0, 'no row without its claim (P9)');
	is(ask($s, q{SELECT count(*) FROM idem_in_flight WHERE gid IS NOT NULL}), 1, 'the prepared claim is in sight');
	ask($s, "COMMIT PREPARED '$step->{prepared}{key}'");

	# the holders live on and turn to the new primary, the clients retry
	my %all = (%op, %$step);
	foreach my $name (sort grep { answer($s, $all{$_}) =~ /^(IN_FLIGHT|RECONCILE)/ } keys %all)
	{
		is(ask($s, commit_sql($all{$name}, '"late"')), 'OK', "$name: its holder finishes");
	}
	foreach my $name (sort keys %all)
	{
		my $first = settle($s, $all{$name});
		like($first, qr/^(DONE|FAILED)/, "$name: settled");
		is(settle($s, $all{$name}), $first, "$name: for good (P2, P3)");
		cmp_ok(effects($all{$name}), '<=', 1, "$name: one effect at most (P1)");
	}
	$s->quit;
	sound($standby, 'in the end');
};

# ----------------------------------------------------------------------------------------------------------
# A commit cut short while it waited for the standby
# ----------------------------------------------------------------------------------------------------------

# It stands on the primary, though the standby may not have it. What is built on it must wait for the standby too.
subtest 'a commit that was cut short while waiting for the standby (P1)' => sub {
	my $second = standby_of($standby, 'second');
	my $op = operation($standby, 'opaque');
	my $owner = value($standby, 'SELECT gen_random_uuid()');
	my $late = operation($standby, 'opaque');
	is(grant($standby, $late), 'ACQUIRED|1', 'a grant before it');
	$second->stop;
	my ($s, $t) = (session($standby), session($standby));
	# callers who asked for no more than the primary's own disk
	$_->query_ok('SET synchronous_commit = local') foreach $s, $t;
	$s->send(acquire_sql($op, 'outcome', ", owner => '$owner'"));
	$t->send(commit_sql($late, 1));
	wait_until($standby, "SELECT count(*) = 2 FROM pg_stat_activity WHERE wait_event = 'SyncRep'");
	crash_and_start($standby);
	$_->quit foreach $s, $t;
	is(value($standby, "SELECT outcome FROM idem_status('$op->{token}', 'alice')"), 'IN_FLIGHT', 'it stands on the primary');

	# the holder asks again for the grant whose reply it lost: it may act on the answer, so that must not come yet
	($s, $t) = (session($standby), session($standby));
	$s->send(acquire_sql($op, 'outcome, replayed', ", owner => '$owner'"));
	$t->send(commit_sql($late, 1));
	my $waits = $standby->poll_query_until('postgres', "SELECT count(*) = 2 FROM pg_stat_activity WHERE wait_event = 'SyncRep'");
	ok($waits, 'a repeated acquire or commit waits for the standby');
	if ($waits)
	{
		$second->start;
		is($s->wait, 'ACQUIRED|t', 'and is granted when the standby has it');
		is($t->wait, 'OK', 'and acknowledged');
		$second->stop;
	}
	$_->quit foreach $s, $t;
};

$standby->stop('immediate');
done_testing();
