# Lists that change, promotions and guards between sessions: one content is granted once, by whichever lists a session
# goes, and however long ago they were replaced (P1, P3; R1, R2, R3, R4, R5).
use strict;
use warnings;

use Cwd 'abs_path';
use File::Basename 'dirname';
use PostgreSQL::Test::Utils;
use Test::More;
use IdemTest;

my $library = dirname(abs_path(__FILE__)) . '/../lib';
my $node = idem_node('lists', -streaming => 1, autovacuum => 'off', max_prepared_transactions => 5, deadlock_timeout => '10s');
value($node, q{
	CREATE TABLE effect (params text);
	CREATE FUNCTION act(params jsonb) RETURNS jsonb LANGUAGE sql AS $$ INSERT INTO effect VALUES (params::text) RETURNING to_jsonb(1) $$;
	CREATE FUNCTION pay(p jsonb) RETURNS text LANGUAGE plpgsql AS $$
	DECLARE c idem_claim;
	BEGIN
		c := idem_acquire_direct('u', 'race', p, wait => '30 s');
		IF c.outcome = 'ACQUIRED' THEN
			INSERT INTO effect VALUES (p::text);
			PERFORM idem_commit(c.key, c.owner, '1');
		END IF;
		RETURN c.outcome;
	END $$});
my ($a, $b, $c, $side) = map { session($node) } 1 .. 4;

sub direct
{
	my ($scope, $params, $columns, $more) = @_;
	return sprintf q{SELECT %s FROM idem_acquire_direct('u', '%s', '%s'%s)}, $columns // 'outcome', $scope, $params, $more // '';
}

sub told { my ($s) = @_; my $out = $s->wait; return $s->sqlstate eq '00000' ? $out : $s->sqlstate }

# Until a session waits for a lock, asked quickly
sub blocked
{
	my ($s) = @_;
	my $until = time + $PostgreSQL::Test::Utils::timeout_default;
	until ($side->query_ok("SELECT wait_event_type = 'Lock' FROM pg_stat_activity WHERE pid = " . $s->pid) eq 't')
	{
		die 'it does not wait' if time > $until;
	}
	return;
}

# Until a process is stopped
sub stopped
{
	my ($pid) = @_;
	for (1 .. 100 * $PostgreSQL::Test::Utils::timeout_default)
	{
		return if slurp_file("/proc/$pid/stat") =~ /^\d+ \(.*\) T /;
		Time::HiRes::usleep(10_000);
	}
	die 'it did not stop';
}

# R2: a waiter whose holder rolls back after the lists have changed, and a newcomer that goes by the new ones. The waiter
# is held still, so that the newcomer is through before it looks up.
foreach my $call ('idem_acquire_direct', 'idem_execute')
{
	my $p = '{"a": 1, "b": 1}';
	my $scope = "r2_$call";
	value($node, "INSERT INTO idem_policy (scope, material) VALUES ('$scope', '{/a}')");
	$a->query_ok('BEGIN');
	is($a->query_ok(direct($scope, $p)), 'ACQUIRED', "R2, $call: the holder, by the former lists");
	value($node, "UPDATE idem_policy SET material = '{/a,/b}' WHERE scope = '$scope'");
	$b->send($call eq 'idem_execute' ? "SELECT outcome, replayed FROM idem_execute('u', '$scope', '$p', 'act(jsonb)', wait => '30 s')"
		: direct($scope, $p, 'outcome, replayed', ", wait => '30 s'"));
	blocked($b);
	kill 'STOP', $b->pid;
	stopped($b->pid);
	$a->query_ok('ROLLBACK');
	my ($outcome, $key, $owner) = split /\|/, $c->query_ok(direct($scope, $p, 'outcome, key, owner'));
	is($outcome, 'ACQUIRED', 'the newcomer');
	$c->query_ok("SELECT idem_commit('$key', '$owner', '1')");
	kill 'CONT', $b->pid;
	is(told($b), 'DONE|t', 'the waiter hears of the newcomer');
	is(value($node, "SELECT count(*) FROM idem_record WHERE scope = '$scope'"), 1, 'one grant');
}

# R2, by its race
foreach my $call ("SELECT pay('%s')", "SELECT outcome FROM idem_execute('u', 'race', '%s', 'act(jsonb)', wait => '30 s')")
{
	my %seen;
	value($node, "TRUNCATE effect; DELETE FROM idem_policy WHERE scope = 'race'; INSERT INTO idem_policy (scope, material) VALUES ('race', '{/a}')");
	foreach my $round (1 .. 100)
	{
		my $p = sprintf '{"a": "%s %d", "b": 1}', substr($call, 7, 3), $round;
		$a->query_ok('BEGIN');
		$a->query_ok(direct('race', $p)) eq 'ACQUIRED' or die 'not granted';
		$c->query_ok("UPDATE idem_policy SET material = CASE cardinality(material) WHEN 1 THEN '{/a,/b}' ELSE '{/a}' END::text[] WHERE scope = 'race'");
		$b->send(sprintf $call, $p);
		blocked($b);
		$a->send('ROLLBACK');
		$c->send(sprintf $call, $p);
		$seen{join ' ', sort(told($b), told($c))}++;
		$a->wait;
	}
	is(value($node, 'SELECT count(*) FROM (SELECT FROM effect GROUP BY params HAVING count(*) > 1) AS twice'), 0, 'R2: effects more than once in 100 rounds');
	is(join(', ', grep { /[^A-Z0-9_ ]/ } keys %seen), '', 'nothing else was told');
	note(join ', ', map { "$_: $seen{$_}" } sort keys %seen);
}

# R3: a change of policies that is open, and one whose session stands between its commit and telling others of it
value($node, q{INSERT INTO idem_policy (scope, material) VALUES ('r3', '{/a}')});
is($a->query_ok(direct('r3', '{"a": 0, "b": 0}')), 'ACQUIRED', 'R3: a warm cache');
$c->query_ok(q{BEGIN; UPDATE idem_policy SET material = '{/a,/b}' WHERE scope = 'r3'});
is($a->query_ok(direct('r3', '{"a": 1, "b": 1}')), 'ACQUIRED', 'beside an open change: by the former lists');
$c->query_ok('ROLLBACK');
is($b->query_ok(direct('r3', '{"a": 1, "b": 2}')), 'IN_FLIGHT', 'which hold');
SKIP:
{
	my $folder = PostgreSQL::Test::Utils::tempdir();
	my $include = `pg_config --includedir-server`;
	chomp $include;
	system('cc', '-shared', '-fPIC', "-I$include", '-o', "$folder/stop.so", "$library/stop.c") == 0
		or skip 'no compiler for a session that stops within its commit', 6;
	foreach my $first ('warm', 'fresh')
	{
		my $scope = "r3_$first";
		# under no lists at all, which are on record as well, it would be another one
		my $p = '{"a": 1, "b": 1, "c": 1}';
		value($node, "INSERT INTO idem_policy (scope, material) VALUES ('$scope', '{/a}')");
		is($a->query_ok(direct($scope, '{"a": 0, "b": 0}')), 'ACQUIRED', 'a warm cache');
		my $updater = session($node);
		$updater->query_ok("LOAD '$folder/stop.so'");
		$updater->send("UPDATE idem_policy SET material = '{/a,/b}' WHERE scope = '$scope'");
		stopped($updater->pid);
		my $fresh = session($node);
		my @told;
		foreach my $s ($first eq 'warm' ? ($a, $fresh) : ($fresh, $a))
		{
			$s->send(direct($scope, $p));
			push @told, told($s);
		}
		is((scalar grep { $_ eq 'ACQUIRED' } @told), 1, "R3: the $first one first: one grant (@told)");
		kill 'CONT', $updater->pid;
		$updater->wait;
		is(value($node, "SELECT count(*) FROM idem_record WHERE scope = '$scope' AND param_hash <> idem_param_hash('$scope', '{\"a\": 0, \"b\": 0}') AND policy_version IS NOT NULL"),
			2, 'with the first call, two on record') ;
		$_->quit foreach $fresh, $updater;
	}
}

# ----------------------------------------------------------------------------------------------------------
# The guard between sessions
# ----------------------------------------------------------------------------------------------------------

value($node, q{INSERT INTO idem_policy (scope, downstream, repeat_guard) VALUES ('g', 'idempotent', '1 h')});
my $n = 0;
sub fresh { return sprintf '{"n": %d, "memo": "m"}', ++$n }
sub key { return ", 'k" . ++$n . "'" }

# a savepoint: what was released within is back when it is rolled back
{
	my $p = fresh();
	$a->query_ok('BEGIN');
	my ($k, $o) = split /\|/, $a->query_ok(direct('g', $p, 'key, owner', key()));
	$a->query_ok("SAVEPOINT s");
	is($a->query_ok("SELECT idem_release('$k', '$o')"), 'OK', 'released in a savepoint');
	is($b->query_ok(direct('g', $p, 'outcome', key())), 'REPEAT', 'it may come back');
	$a->query_ok('ROLLBACK TO s; COMMIT');
	is($b->query_ok(direct('g', $p, 'outcome', key())), 'REPEAT', 'and is back');
	# a grant that is rolled back to a savepoint leaves nothing
	$p = fresh();
	$a->query_ok('BEGIN; SAVEPOINT s');
	is($a->query_ok(direct('g', $p, 'outcome', key())), 'ACQUIRED', 'granted in a savepoint');
	$a->query_ok('ROLLBACK TO s');
	is($b->query_ok(direct('g', $p, 'outcome', key())), 'ACQUIRED', 'rolled back, it guards nothing');
	$a->query_ok('COMMIT');
}

# a repeat that waits: joins the open one
foreach my $end ('COMMIT', 'ROLLBACK', 'PREPARE')
{
	my $p = fresh();
	$a->query_ok('BEGIN');
	my ($k, $o) = split /\|/, $a->query_ok(direct('g', $p, 'key, owner', key()));
	$a->query_ok("SELECT idem_commit('$k', '$o', '\"r\"')") if $end ne 'ROLLBACK';
	$b->send(direct('g', $p, 'outcome, result, joined', key() . ", '30 s'"));
	blocked($b);
	if ($end eq 'PREPARE')
	{
		$a->query_ok("PREPARE TRANSACTION 'p'");
		is($c->query_ok(direct('g', $p, 'outcome', key())), 'REPEAT', 'while it is prepared');
		$a->query_ok("COMMIT PREPARED 'p'");
	}
	else
	{
		$a->query_ok($end);
	}
	is(told($b), $end eq 'ROLLBACK' ? 'ACQUIRED||f' : 'REPEAT|"r"|t', "a repeat with a wait, after $end");
}

# other isolation levels: an equal operation that committed after the snapshot was taken
foreach my $level ('REPEATABLE READ', 'SERIALIZABLE')
{
	my $p = fresh();
	$b->query_ok("BEGIN ISOLATION LEVEL $level; SELECT 1");
	$b->query_ok('SELECT count(*) FROM idem_policy');
	my ($k, $o) = split /\|/, $a->query_ok(direct('g', $p, 'key, owner', key()));
	$a->query_ok("SELECT idem_commit('$k', '$o', '1')");
	$b->send(direct('g', $p, 'outcome', key()));
	like(told($b), qr/^(REPEAT|40001)$/, "$level: no second grant");
	$b->query('ROLLBACK');
	my $q = fresh();
	$b->query_ok("BEGIN ISOLATION LEVEL $level");
	is($b->query_ok(direct('g', $q, 'outcome', key())), 'ACQUIRED', "$level: a first one");
	is($a->query_ok(direct('g', $q, 'outcome', key())), 'REPEAT', 'guards at once');
	$b->query_ok('COMMIT');
}

# two at once: one grant; by the lists in force, and where each was signed under other ones (R5)
foreach my $case ('one version', 'two versions')
{
	my ($granted, %seen) = (0);
	value($node, q{UPDATE idem_policy SET material = NULL WHERE scope = 'g'});
	foreach my $round (1 .. 200)
	{
		my $p = fresh();
		my @fp;
		foreach my $i (0, 1)
		{
			$side->query_ok(sprintf q{UPDATE idem_policy SET material = %s WHERE scope = 'g'}, $round % 2 == $i ? q{'{/n}'} : q{'{/n,/memo}'}) if $case eq 'two versions';
			push @fp, $side->query_ok("SELECT idem_sign('u', 'g', '$p')");
		}
		$_->[0]->send("SELECT outcome FROM idem_acquire('$_->[1]', 'u', 'g', '$p')") foreach [ $a, $fp[0] ], [ $b, $fp[1] ];
		my @told = map { told($_) } $a, $b;
		$granted++ if (grep { $_ eq 'ACQUIRED' } @told) == 1;
		$seen{join ' ', sort @told}++;
	}
	is($granted, 200, "$case: of two fresh fingerprints at once one is granted, in each round");
	note(join ', ', map { "$_: $seen{$_}" } sort keys %seen);
}

# ----------------------------------------------------------------------------------------------------------
# What it costs
# ----------------------------------------------------------------------------------------------------------

# Buffers that a statement touches that has been run before, and leaves nothing
sub buffers
{
	my ($sql) = @_;
	$a->query_ok("BEGIN; $sql; ROLLBACK");
	my $plan = $a->query_ok("BEGIN; EXPLAIN (ANALYZE, BUFFERS, COSTS OFF, TIMING OFF, SUMMARY OFF) $sql; ROLLBACK");
	$plan =~ s/Planning:.*//s;
	return ($plan =~ /Buffers: shared hit=(\d+)/)[0] // 0;
}

value($node, q{INSERT INTO idem_policy (scope, repeat_guard) VALUES ('many', '1 h')});
foreach my $end (q{idem_commit(key, owner, '1')}, q{idem_fail(key, owner, '1')})
{
	my $p = sprintf '{"end": "%s"}', substr($end, 0, 8);
	my @before = map { buffers($_) } "SELECT idem_preview('u', 'many', '$p')", direct('many', $p, 'outcome', ", 'x'");
	value($node, qq{DO \$\$
		BEGIN
			DELETE FROM idem_peer WHERE key IN (SELECT key FROM idem_record WHERE scope = 'many');
			DELETE FROM idem_record WHERE scope = 'many';
			FOR i IN 1 .. 10000 LOOP
				PERFORM $end FROM idem_acquire_direct('u', 'many', '$p', i::text, confirm_repeat => true);
			END LOOP;
		END \$\$});
	value($node, 'VACUUM ANALYZE idem_peer; VACUUM ANALYZE idem_record');
	my @after = map { buffers($_) } "SELECT idem_preview('u', 'many', '$p')", direct('many', $p, 'outcome', ", 'y'");
	is($a->query_ok(direct('many', $p, 'outcome', ", 'z'")), $end =~ /commit/ ? 'REPEAT' : 'ACQUIRED', 'a look beside 10,000 equal ones');
	cmp_ok($after[$_], '<', 100, "$end: buffers of " . ('a preview', 'an acquire')[$_] . ": $before[$_] without, $after[$_] with them") foreach 0, 1;
}

# who is granted, gives up and comes again by another key: a few of the rows are kept, since a verdict may still say done
{
	my $p = '{"end": "released"}';
	value($node, qq{DO \$\$
		DECLARE c idem_claim;
		BEGIN
			FOR i IN 1 .. 500 LOOP
				c := idem_acquire_direct('u', 'many', '$p', 'r' || i);
				COMMIT;
				PERFORM idem_release(c.key, c.owner);
				COMMIT;
			END LOOP;
		END \$\$});
	value($node, 'VACUUM ANALYZE idem_peer; VACUUM ANALYZE idem_record');
	cmp_ok(value($node, q{SELECT count(*) FROM idem_peer JOIN idem_record AS r USING (key) WHERE scope = 'many' AND state = 'R'}), '<=', 21, 'rows of what was released 500 times');
	cmp_ok(buffers("SELECT idem_preview('u', 'many', '$p')"), '<', 1000, 'buffers of a preview beside them');
}

# unguarded scopes pay nothing
{
	my $counts = q{SELECT idx_scan + seq_scan + n_tup_ins, (SELECT heap_blks_hit + heap_blks_read + idx_blks_hit + idx_blks_read FROM pg_statio_user_tables WHERE relname = 'idem_peer') FROM pg_stat_user_tables WHERE relname = 'idem_peer'};
	my $other = idem_node('other', autovacuum => 'off');
	my $before = value($other, $counts);
	value($other, q{INSERT INTO idem_policy (scope) VALUES ('none');
		SELECT idem_commit(c.key, c.owner) FROM generate_series(1, 100) AS i, idem_acquire_direct('u', 'none', jsonb_build_object('i', i)) AS c;
		SELECT idem_fail(c.key, c.owner, '1') FROM generate_series(1, 100) AS i, idem_acquire_direct('u', 'none', '{"x": 1}', i::text) AS c;
		SELECT idem_release(c.key, c.owner) FROM generate_series(101, 200) AS i, idem_acquire_direct('u', 'none', jsonb_build_object('i', i)) AS c;
		SELECT idem_preview('u', 'none', '{"x": 1}')});
	is(value($other, $counts), $before, 'unguarded scopes open no peers');
	value($other, q{UPDATE idem_policy SET repeat_guard = '1 h'; SELECT outcome FROM idem_acquire_direct('u', 'none', '{"x": 2}')});
	isnt(value($other, $counts), $before, 'as it would be seen');
	$other->stop;
}

# ----------------------------------------------------------------------------------------------------------
# R1: a promotion while a call waits on a replayed lock
# ----------------------------------------------------------------------------------------------------------

value($node, q{INSERT INTO idem_policy (scope, material) VALUES ('lst', '{/a}'); UPDATE idem_policy SET material = '{/a,/b}' WHERE scope = 'lst'});
$node->backup('one');
my $standby = PostgreSQL::Test::Cluster->new('standby');
$standby->init_from_backup($node, 'one', has_streaming => 1);
$standby->start;
my ($alive, $first, $second, $watch) = map { session($standby) } 1 .. 4;
$first->query('SELECT 1');
$c->query_ok('BEGIN; TRUNCATE idem_record');
value($node, 'SELECT pg_switch_wal()');
my $until = time + $PostgreSQL::Test::Utils::timeout_default;
until ($watch->query_ok("SELECT count(*) > 0 FROM pg_locks WHERE relation = 'idem_record'::regclass AND mode = 'AccessExclusiveLock' AND granted") eq 't')
{
	die 'the lock is not replayed' if time > $until;
}
$first->send(direct('lst', '{"a": 1}'));
$second->send(q{SELECT outcome FROM idem_status_key(gen_random_uuid(), 'u')});
foreach my $s ($first, $second)
{
	my $end = time + $PostgreSQL::Test::Utils::timeout_default;
	until ($watch->query_ok("SELECT wait_event_type = 'Lock' FROM pg_stat_activity WHERE pid = " . $s->pid) eq 't')
	{
		die 'it does not wait' if time > $end;
	}
}
$standby->promote;
like(told($first), qr/^(ACQUIRED|25006)$/, 'R1: an answer, or read-only');
like(told($second), qr/^(UNKNOWN|NONE)$/, 'a status as well');
is($alive->query('SELECT 1'), '1', 'and no session of the new primary was ended');
is(value($standby, direct('lst', '{"a": 1}')), 'ACQUIRED', 'which grants');
# a transaction from before the promotion, that is made to write after it, is in no danger either
$_->quit foreach $alive, $first, $second, $watch;
$c->query_ok('ROLLBACK');
$standby->stop;
$node->stop;
done_testing();
