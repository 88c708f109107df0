# Purge: bounded batches that skip what others hold, beside each other and beside acquirers; what is at work stays
# (P2, P5; H06, H07).
use strict;
use warnings;

use Cwd;
use FindBin;
use IPC::Run;
use PostgreSQL::Test::Utils;
use Test::More;
use IdemTest;

my $node = idem_node('purge', autovacuum => 'off', max_connections => 40);
value($node, q{
	CREATE FUNCTION fill(s text, n int) RETURNS void LANGUAGE sql AS $$
		INSERT INTO idem_record (key, acquired_at, lease_until, policy_version, attempt, state, downstream, param_hash, owner_hash, scope, subject, retained_until, finished_at)
			SELECT idem_key('alice', s, to_jsonb(n)), t - '2 h'::interval, t - '2 h'::interval, 0, 1, ('{D,F,R}'::text[])[n % 3 + 1]::"char", 'o', sha256(''), sha256(''), s, 'alice', t, t - '1 h'::interval
			FROM generate_series(1, n) AS n, LATERAL (SELECT clock_timestamp() - n * '1 ms'::interval) AS x(t)
	$$});
my ($a, $b) = map { session($node) } 1, 2;

# H06: what holds a claim in flight holds it against any purge
{
	my ($key, $owner) = split /\|/, $a->query_ok(q{SELECT key, owner FROM idem_acquire_direct('alice', 'work', '1')});
	value($node, "UPDATE idem_record SET lease_until = '2020-01-01' WHERE key = '$key'");
	$b->query_ok('BEGIN');
	my ($key2, $owner2) = split /\|/, $b->query_ok(q{SELECT key, owner FROM idem_acquire_direct('alice', 'work', '2')});
	value($node, "SELECT fill('lapsed', 100)");
	is(value($node, 'SELECT idem_purge(100000)'), '100', 'H06: the lapsed go');
	is($b->query_ok("SELECT idem_commit('$key2', '$owner2')"), 'OK', 'who is at work in an open transaction is not disturbed');
	$b->query_ok('COMMIT');
	is($a->query_ok("SELECT idem_commit('$key', '$owner')"), 'OK', 'nor is who has a committed claim, its lease long over');
}

# rows that others hold are left to the next call; two purges take different rows
{
	value($node, q{SELECT fill('lapsed', 300)});
	$a->query_ok('BEGIN');
	is($a->query_ok('SELECT idem_purge(100)'), '100', 'one purge');
	is($b->query_ok('SELECT idem_purge(100)'), '100', 'another, beside it, does not wait');
	$a->query_ok('ROLLBACK');
	is($b->query_ok('SELECT idem_purge(1000)'), '200', 'and a third gets what the first gave back');

	# somebody begins anew on a lapsed record: it is not purged under them
	value($node, q{SELECT fill('lapsed', 3)});
	$a->query_ok('BEGIN');
	is($a->query_ok(q{SELECT outcome, attempt FROM idem_acquire_direct('alice', 'lapsed', '2')}), 'ACQUIRED|1', 'a lapsed record is taken');
	is($b->query_ok('SELECT idem_purge()'), '2', 'the purge does not wait for it');
	$a->query_ok('COMMIT');
	is($b->query_ok('SELECT idem_purge()'), '0', 'and leaves it in flight');
	is($b->query_ok(q{SELECT outcome FROM idem_acquire_direct('alice', 'lapsed', '2')}), 'IN_FLIGHT', 'where others find it');

	# the purge is first: nobody waits for it who does not want to, and nobody is granted in its way
	value($node, q{SELECT fill('late', 3)});
	$a->query_ok('BEGIN');
	is($a->query_ok('SELECT idem_purge()'), '3', 'purged, not yet committed');
	is($b->query_ok(q{SELECT outcome FROM idem_acquire_direct('alice', 'late', '2')}), 'IN_FLIGHT', 'somebody is at work on it');
	$b->send(q{SELECT outcome, attempt FROM idem_acquire_direct('alice', 'late', '2', wait => '1 min')});
	wait_blocked($node, $b);
	$a->query_ok('COMMIT');
	is($b->wait, 'ACQUIRED|1', 'and then it is free');
}

# as DELETE would: what the transaction's snapshot shows and others have changed since is passed over by READ COMMITTED alone
foreach my $level ('READ COMMITTED', 'REPEATABLE READ', 'SERIALIZABLE')
{
	(my $scope = lc $level) =~ tr/ /_/;
	value($node, "SELECT fill('$scope', 3)");
	$a->query_ok($_) foreach "BEGIN ISOLATION LEVEL $level", 'SELECT count(*) FROM idem_record';
	$b->query_ok('BEGIN');
	is($b->query_ok("SELECT outcome FROM idem_acquire_direct('alice', '$scope', '2')"), 'ACQUIRED', "$level: one is taken");
	$a->query_ok('SAVEPOINT s');
	is($a->query_ok('SELECT idem_purge()'), '2', "$level: while that is open, it is skipped");
	$a->query_ok('ROLLBACK TO s');
	$b->query_ok('COMMIT');
	my $purged = $a->query('SELECT idem_purge()');
	if ($level eq 'READ COMMITTED')
	{
		is($purged, '2', "$level: and after its commit");
	}
	else
	{
		is($a->sqlstate, '40001', "$level: its commit came after the snapshot");
	}
	$a->query_ok('ROLLBACK');
	is($a->query_ok('SELECT idem_purge()'), '2', "$level: the next transaction takes the others");
	is($a->query_ok("SELECT outcome FROM idem_acquire_direct('alice', '$scope', '2')"), 'IN_FLIGHT', "$level: and that one is at work");
	value($node, "SELECT fill('$scope 2', 3)");
	$a->query_ok($_) foreach "BEGIN ISOLATION LEVEL $level", 'SELECT count(*) FROM idem_record';
	is($a->query_ok('SELECT idem_purge()'), '3', "$level: alone, it takes all");
	is($a->query_ok('SELECT idem_purge()'), '0', "$level: and sees that they are gone");
	$a->query_ok('COMMIT');
}

# H07: cancelled midway, nothing is lost
{
	value($node, q{SELECT fill('cancelled', 20000)});
	$a->query_ok('SET statement_timeout = 5');
	my $purged = $a->query('SELECT idem_purge(20000)');
	$a->query_ok('RESET statement_timeout');
	my $left = value($node, q{SELECT count(*) FROM idem_record WHERE scope = 'cancelled'});
	is($left, $a->sqlstate eq '00000' && $purged ? 20000 - $purged : 20000, 'H07: a purge that is cancelled has done nothing');
	is($a->query_ok('SELECT idem_purge(100000)'), $left, 'the next does it all');
}

# H07: two purgers and eight acquirers; the figures are test/bench/purge's
{
	my $folder = "$PostgreSQL::Test::Utils::tmp_check/purging";
	my ($out, $err) = ('', '');
	mkdir $folder or die "$folder: $!";
	local $ENV{PGHOST} = $node->host;
	local $ENV{PGPORT} = $node->port;
	local $ENV{PGDATABASE} = 'postgres';
	my $here = getcwd;
	chdir $folder or die "$folder: $!";
	my $ok = IPC::Run::run([ 'bash', "$FindBin::Bin/../bench/purging", 20000, 8, 1 ], '>', \$out, '2>', \$err);
	chdir $here or die "$here: $!";
	ok($ok, "purging beside acquirers: $err");
	like($out, qr/^purged 20000 in 3 calls/m, 'all that had lapsed went, in bounded calls');
	like($out, qr/^left of the lapsed: 0$/m, 'nothing is left of it');
	is(value($node, q{SELECT count(*) FROM idem_record WHERE scope = 'bench.live' AND state <> 'I'}), '0', 'and what was acquired meanwhile is there');
	diag($_) foreach grep { /^(purged|acquires|size)/ } split /\n/, $out;

	value($node, q{SELECT fill('two', 20000)});
	$_->send(q{DO $$ DECLARE n int8 := 1; BEGIN WHILE n > 0 LOOP n := idem_purge(500); COMMIT; END LOOP; END $$}) foreach $a, $b;
	$_->wait foreach $a, $b;
	is($_->sqlstate, '00000', 'two purgers do not get in each other\'s way') foreach $a, $b;
	is(value($node, q{SELECT count(*) FROM idem_record WHERE scope = 'two'}), '0', 'and leave nothing');
}
is(value($node, 'SELECT count(*) FROM idem_fast'), '0', 'no orphan in the fast table');

$_->quit foreach $a, $b;
$node->stop;
done_testing();
