# Field cases that no other test shows, each named by its id (test/CASES.md is the index of all).
use strict;
use warnings;

use Cwd qw(abs_path);
use File::Basename qw(dirname);
use PostgreSQL::Test::Utils;
use Test::More;
use IdemTest;

my $node = idem_node('cases', max_connections => 40, autovacuum => 'off', deadlock_timeout => '100ms');
my $short = "'1 ms', '1 ms', '1 ms', '1 s'";
value($node, qq{
	INSERT INTO idem_policy (scope, downstream, downstream_max, gateway_timeout, retry_backoff, in_flight_ttl)
		VALUES ('short', 'idempotent', $short), ('opaque', 'opaque', $short)});

my $count = 0;

# A fingerprint for parameters that nobody has asked for yet
sub sign
{
	my ($scope) = @_;
	my $params = sprintf '{"n": %d}', ++$count;
	return (value($node, "SELECT idem_sign('alice', '$scope', '$params')"), $params);
}

sub acquire_sql
{
	my ($fp, $scope, $params, $columns, $more) = @_;
	return "SELECT $columns FROM idem_acquire('$fp', 'alice', '$scope', '$params'" . ($more // '') . ')';
}

sub granted
{
	my ($session, @call) = @_;
	my ($outcome, @claim) = split /\|/, $session->query_ok(acquire_sql(@call[ 0 .. 2 ], 'outcome, key, owner'));
	die "not granted: $outcome" if $outcome ne 'ACQUIRED';
	return @claim;
}

sub lease_over
{
	my ($key) = @_;
	wait_until($node, "SELECT lease_until <= clock_timestamp() FROM idem_record WHERE key = '$key'");
	return;
}

# ----------------------------------------------------------------------------------------------------------
# A
# ----------------------------------------------------------------------------------------------------------

# P1, P5: a client that is gone, with a restart before anybody comes back
subtest 'A01: a claim outlives its client and a restart, and nobody has to clean up' => sub {
	foreach my $how (qw(restart crash))
	{
		my ($fp, $params) = sign('short');
		my ($opaque, $its_params) = sign('opaque');
		my $s = session($node);
		my ($key) = granted($s, $fp, 'short', $params);
		my ($its_key) = granted($s, $opaque, 'opaque', $its_params);
		$s->kill_client;
		if ($how eq 'restart') { $node->restart }
		else { crash_and_start($node) }
		is(value($node, "SELECT count(*) FROM idem_record WHERE key IN ('$key', '$its_key') AND state = 'I'"), 2, "$how: the claims are there");
		lease_over($_) foreach $key, $its_key;
		is(value($node, acquire_sql($fp, 'short', $params, 'outcome, attempt')), 'ACQUIRED|2', "$how: taken over once the lease is over");
		is(value($node, acquire_sql($opaque, 'opaque', $its_params, 'outcome')), 'RECONCILE', "$how: or waiting for a verdict");
		is(value($node, "SELECT idem_reconcile('$its_key', 'RETRY', 'looked')"), 'OK', "$how: which needs no repair of the table");
		is(value($node, acquire_sql($opaque, 'opaque', $its_params, 'outcome, attempt')), 'ACQUIRED|2', "$how: and lets it go on");
	}
};

# The README's tables of defaults and its signatures
subtest 'A16: the defaults that are documented are those that run' => sub {
	my $readme = slurp_file(dirname(abs_path($0)) . '/../../README.md');
	my ($policies) = $readme =~ /^### Policies\n(.*?)^### /ms;
	my ($settings) = $readme =~ /^### Settings\n(.*?)^### /ms;
	my %default = $policies =~ /^\| `(\w+)` \| `?([^|`]*?)`? \|/mg;
	value($node, "INSERT INTO idem_policy (scope) VALUES ('defaults')");
	my $columns = value($node, "SELECT string_agg(attname, ' ') FROM pg_catalog.pg_attribute WHERE attrelid = 'idem_policy'::regclass AND attnum > 0 AND NOT attisdropped AND attname <> 'scope'");
	foreach my $column (split / /, $columns)
	{
		ok(defined $default{$column}, "$column is documented") or next;
		my $type = value($node, "SELECT pg_typeof($column) FROM idem_policy WHERE scope = 'defaults'");
		my $documented = $default{$column} eq 'null' ? 'NULL' : "'$default{$column}'";
		is(value($node, "SELECT $column IS NOT DISTINCT FROM $documented" . "::$type FROM idem_policy WHERE scope = 'defaults'"), 't', "$column: $default{$column}");
	}
	# what is compiled in, for scopes without a row, is the same
	is(value($node, "SELECT outcome FROM idem_acquire_direct('alice', 'no row', '1')"), 'ACQUIRED', 'a scope without a row');
	is(value($node, "SELECT lease_until - acquired_at = '$default{in_flight_ttl}', downstream FROM idem_record WHERE scope = 'no row'"), 't|o', 'the lease without a policy');
	is(value($node, "SELECT expires_at BETWEEN clock_timestamp() + '$default{fingerprint_ttl}'::interval - interval '10 s' AND clock_timestamp() + '$default{fingerprint_ttl}'::interval FROM idem_inspect(idem_sign('alice', 'no row', '1'))"),
		't', 'the fingerprint\'s time without a policy');
	my ($key, $owner) = split /\|/, value($node, q{SELECT key, owner FROM idem_acquire_direct('alice', 'no row', '2')});
	value($node, "SELECT idem_commit('$key', '$owner')");
	is(value($node, "SELECT retained_until - finished_at = '$default{result_ttl}' FROM idem_record WHERE key = '$key'"), 't', 'the retention without a policy');

	my %setting = $settings =~ /^\| `idem\.(\w+)` \| `?([^|`]*?)`? \|/mg;
	ok(scalar(keys %setting) >= 3, 'settings are documented');
	foreach my $name (sort keys %setting)
	{
		my $shown = value($node, "LOAD 'idem'; SELECT boot_val, unit, vartype FROM pg_catalog.pg_settings WHERE name = 'idem.$name'");
		my ($boot, $unit, $type) = split /\|/, $shown;
		$setting{$name} = '' if $setting{$name} eq 'empty';
		my $same =
		  $type eq 'integer' && $unit ne '' ? value($node, "SELECT '$boot $unit'::interval = '" . ($setting{$name} =~ s/^0$/0 s/r) . "'::interval")
		  : $boot eq $setting{$name} ? 't' : "$boot";
		is($same, 't', "idem.$name: $setting{$name}");
	}

	# the arguments' names and defaults
	my ($functions) = $readme =~ /^### Functions\n(.*?)^### /ms;
	$functions //= $readme;
	my $checked = 0;
	while ($functions =~ /^\| `(idem_\w+)\(([^`]*?)\) →/mg)
	{
		my ($name, $arguments) = ($1, $2);
		# "…": as in the function before
		next if $arguments =~ /\xe2\x80\xa6|\x{2026}/;
		my $real = value($node, "SELECT pg_get_function_arguments(oid) FROM pg_catalog.pg_proc WHERE proname = '$name'");
		my ($a, $b) = map { plain_arguments($_) } $arguments, $real;
		is($a, $b, "$name");
		$checked++;
	}
	cmp_ok($checked, '>=', 10, 'signatures were found');
};

# How the README and the catalog spell one list of arguments
sub plain_arguments
{
	my ($text) = @_;
	$text =~ s/OUT .*//;
	$text =~ s/timestamp with time zone/timestamptz/g;
	$text =~ s/\binteger\b/int/g;
	$text =~ s/::[\w ]+//g;
	$text =~ s/'00:00:00'/'0'/g;
	$text =~ s/'00:00:30'/'30 s'/g;
	$text =~ s/"//g;
	$text =~ s/[\s,]+\z//;
	return $text;
}

# ----------------------------------------------------------------------------------------------------------
# B
# ----------------------------------------------------------------------------------------------------------

# P2, P3, P7: whatever went meanwhile, the parameters are still compared
subtest 'B02: the hash stays with the record' => sub {
	my ($fp, $params) = sign('charge');
	my $s = session($node);
	my ($key, $owner) = granted($s, $fp, 'charge', $params);
	is($s->query_ok("SELECT idem_commit('$key', '$owner', '\"first\"')"), 'OK', 'committed');
	$s->quit;
	my %after = (
		'nothing' => sub { },
		'emptying the fast table' => sub { value($node, 'TRUNCATE idem_fast') },
		'a vacuum that rewrites' => sub { value($node, 'VACUUM FULL idem_record') },
		'a crash' => sub { crash_and_start($node) });
	foreach my $what ('nothing', 'emptying the fast table', 'a vacuum that rewrites', 'a crash')
	{
		$after{$what}->();
		is(value($node, acquire_sql($fp, 'charge', $params, 'outcome, result')), 'DONE|"first"', "after $what: an honest retry");
		is(value($node, acquire_sql($fp, 'charge', '{"n": -1}', 'outcome, result')), 'PARAM_MISMATCH|', "after $what: another amount");
	}
};

# P7: every way by which an acquire may find the claim
subtest 'B03: parameters are compared on every path' => sub {
	my ($holder, $s) = map { session($node) } 1 .. 2;
	my %path = (
		'nothing there' => [ 'charge', sub { } ],
		'fast table, another\'s' => [ 'charge', sub { $holder->query_ok('BEGIN'); granted($holder, @_) } ],
		'record, in flight' => [ 'charge', sub { granted($holder, @_) } ],
		'record, changed by an open transaction' => [ 'charge', sub { my ($key, $owner) = granted($holder, @_);
				$holder->query_ok("BEGIN; SELECT idem_commit('$key', '$owner', '\"secret\"')") } ],
		'to be taken over' => [ 'short', sub { my ($key) = granted($holder, @_); lease_over($key) } ],
		'taken over by an open transaction' => [ 'short', sub { my ($key) = granted($holder, @_); lease_over($key);
				$holder->query_ok('BEGIN'); granted($holder, @_) } ],
		'to be reconciled' => [ 'opaque', sub { my ($key) = granted($holder, @_); lease_over($key) } ],
		'done' => [ 'charge', sub { my ($key, $owner) = granted($holder, @_); $holder->query_ok("SELECT idem_commit('$key', '$owner', '\"secret\"', 'secret')") } ],
		'failed' => [ 'charge', sub { my ($key, $owner) = granted($holder, @_); $holder->query_ok("SELECT idem_fail('$key', '$owner', '\"secret\"')") } ],
		'released with a reason' => [ 'charge', sub { my ($key, $owner) = granted($holder, @_); $holder->query_ok("SELECT idem_fail('$key', '$owner', '\"secret\"', true)") } ]);
	foreach my $name (sort keys %path)
	{
		my ($scope, $lead) = @{ $path{$name} };
		my ($fp, $params) = sign($scope);
		$lead->($fp, $scope, $params);
		is($s->query_ok(acquire_sql($fp, $scope, $_, '*')), "PARAM_MISMATCH||||f|f|$scope|alice||||||", "$name: $_")
		  foreach '{"n": -1}', '{}', $params =~ s/(\d+)/"$1"/r, $params =~ s/}/, "m": 1}/r;
		$holder->query('ROLLBACK');
	}
	# and within the transaction that holds the claim
	my ($fp, $params) = sign('charge');
	$holder->query_ok('BEGIN');
	my ($key, $owner) = granted($holder, $fp, 'charge', $params);
	is($holder->query_ok(acquire_sql($fp, 'charge', '{"n": -1}', '*', ", owner => '$owner'")), 'PARAM_MISMATCH||||f|f|charge|alice||||||', 'one\'s own claim');
	$holder->query_ok("SELECT idem_commit('$key', '$owner', '\"secret\"')");
	is($holder->query_ok(acquire_sql($fp, 'charge', '{"n": -1}', '*')), 'PARAM_MISMATCH||||f|f|charge|alice||||||', 'one\'s own result');
	$holder->query_ok('ROLLBACK');
	$_->quit foreach $holder, $s;
};

# P3: nothing that a backend remembers outlives a statement
subtest 'B04: who was told "in flight" is told "done" as soon as it is' => sub {
	my ($x, $y) = map { session($node) } 1 .. 2;
	foreach my $level ('READ COMMITTED', 'REPEATABLE READ', 'SERIALIZABLE')
	{
		foreach my $form ('in one transaction', 'in two')
		{
			my ($fp, $params) = sign('charge');
			$y->query_ok('BEGIN') if $form eq 'in one transaction';
			my ($key, $owner) = granted($y, $fp, 'charge', $params);
			$x->query_ok("BEGIN ISOLATION LEVEL $level");
			my $answer = sub { return $x->query(acquire_sql($fp, 'charge', $params, 'outcome, result')) };
			is($answer->(), 'IN_FLIGHT|', "$level, $form: held by another");
			is($y->query_ok("SELECT idem_commit('$key', '$owner', '\"first\"')"), 'OK', 'which commits');
			is($answer->(), 'IN_FLIGHT|', 'not yet for everybody to see') if $form eq 'in one transaction';
			$y->query_ok('COMMIT') if $form eq 'in one transaction';
			my $now = $answer->();
			if ($level eq 'SERIALIZABLE') { ok($now eq 'DONE|"first"' || $x->sqlstate eq '40001', "$level, $form: done, or to be run again") }
			else { is($now, 'DONE|"first"', "$level, $form: done") }
			$x->query('ROLLBACK');
		}
	}
	$_->quit foreach $x, $y;
};

# ----------------------------------------------------------------------------------------------------------
# F
# ----------------------------------------------------------------------------------------------------------

my $leftovers = q{SELECT count(*) FROM pg_catalog.pg_locks WHERE pid = pg_catalog.pg_backend_pid() AND locktype NOT IN ('relation', 'virtualxid') };
my $changed_settings = q{SELECT coalesce(string_agg(name || ' = ' || setting, ', ' ORDER BY name), '') FROM pg_catalog.pg_settings
	WHERE source = 'session' AND name NOT IN ('application_name')};

# P1: a pool hands each transaction another backend; no call may leave anything behind in one
subtest 'F08: nothing of a call stays on its connection' => sub {
	my ($x, $y) = map { session($node) } 1 .. 2;
	my ($fp, $params) = sign('charge');
	my ($key, $owner) = granted($x, $fp, 'charge', $params);
	is($y->query_ok("SELECT idem_renew('$key', '$owner')"), 'OK', 'renewed on another backend');
	is($y->query_ok("SELECT idem_commit('$key', '$owner', '1')"), 'OK', 'committed there');
	is($x->query_ok(acquire_sql($fp, 'charge', $params, 'outcome')), 'DONE', 'replayed on the first');
	my @calls = (
		acquire_sql($fp, 'charge', '{"n": -1}', 'outcome'),
		"SELECT outcome FROM idem_acquire_direct('alice', 'charge', '\"f08\"')",
		"SELECT outcome FROM idem_acquire_direct('alice', 'charge', '\"f08\"', wait => '1 ms')",
		"SELECT idem_commit('$key', gen_random_uuid(), '2')",
		"SELECT outcome FROM idem_status('$fp', 'alice', '1 s')",
		"SELECT idem_purge()", "SELECT idem_maintain()", "SELECT idem_release('$key', '$owner')");
	foreach my $call (@calls)
	{
		my $settings = $x->query_ok($changed_settings);
		foreach my $end ('', 'COMMIT', 'ROLLBACK')
		{
			$x->query_ok('BEGIN') if $end ne '';
			$x->query_ok("SET LOCAL synchronous_commit = off; $call") if $end ne '';
			$x->query_ok($call) if $end eq '';
			$x->query_ok($end) if $end ne '';
			is($x->query_ok($leftovers), 0, "no lock after: $call $end");
			is($x->query_ok($changed_settings), $settings, "no setting after: $call $end");
		}
	}
	# the client dies in the middle of a call
	($fp, $params) = sign('charge');
	$y->query_ok('BEGIN');
	granted($y, $fp, 'charge', $params);
	my $pid = $x->pid;
	$x->send('BEGIN; ' . acquire_sql($fp, 'charge', $params, 'outcome', ", wait => '1 min'"));
	wait_blocked($node, $x);
	$x->kill_client;
	$y->query_ok('ROLLBACK');
	wait_until($node, "SELECT NOT EXISTS (SELECT FROM pg_catalog.pg_stat_activity WHERE pid = $pid)");
	is($y->query_ok(acquire_sql($fp, 'charge', $params, 'outcome, attempt')), 'ACQUIRED|1', 'what it was granted as it died is nobody\'s');
	$y->quit;
};

# P1, P11: keys are compared whole, and no advisory lock is taken
subtest 'F09: keys that hash alike do not meet, and a user\'s advisory locks stop nobody' => sub {
	my ($x, $y, $user) = map { session($node) } 1 .. 3;
	# parameters whose keys have equal hashes, by each hash that somebody might take for a lock
	value($node, q{CREATE TABLE key AS SELECT n, idem_key('alice', 'hash', to_jsonb(n)) AS key FROM generate_series(1, 200000) AS n});
	my @pairs;
	foreach my $hash ('hashtext(key::text)', 'uuid_hash(key)')
	{
		push @pairs, split /\n/, value($node, "SELECT min(n), max(n) FROM key GROUP BY $hash HAVING count(*) > 1 LIMIT 3");
	}
	cmp_ok(scalar @pairs, '>=', 2, scalar @pairs . ' pairs of keys that hash alike');
	$user->query_ok('BEGIN');
	foreach my $pair (@pairs)
	{
		my ($first, $second) = split /\|/, $pair;
		$user->query_ok("SELECT pg_advisory_lock(hashtext(key::text)), pg_advisory_lock(uuid_hash(key)), pg_advisory_lock(uuid_hash_extended(key, 0)), "
			  . "pg_advisory_lock(hashtextextended(key::text, 0)), pg_advisory_lock(hashtext(key::text), 0), pg_advisory_lock(0, hashtext(key::text)) FROM key WHERE n IN ($first, $second)");
		$x->query_ok('BEGIN');
		$y->query_ok("BEGIN; SET LOCAL lock_timeout = '1 s'");
		is($x->query_ok("SELECT outcome FROM idem_acquire_direct('alice', 'hash', '$first')"), 'ACQUIRED', "$first is granted");
		is($y->query_ok("SELECT outcome FROM idem_acquire_direct('alice', 'hash', '$second', wait => '10 s')"), 'ACQUIRED', "$second too, at once");
		is($x->query_ok("SELECT count(*) FROM pg_catalog.pg_locks WHERE locktype = 'advisory' AND pid IN (" . $x->pid . ', ' . $y->pid . ')'), 0, 'no advisory lock of ours');
		$_->query_ok('COMMIT') foreach $x, $y;
	}
	$user->query_ok('SELECT pg_advisory_lock(0), pg_advisory_lock(1), pg_advisory_lock(-1)');
	is($x->query_ok("SELECT outcome FROM idem_acquire_direct('alice', 'hash', '\"other\"')"), 'ACQUIRED', 'nor by locks on plain numbers');
	$_->quit foreach $x, $y, $user;
};

$node->stop;
done_testing();
