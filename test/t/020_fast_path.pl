# The fast table is optional at every moment: switched off, locked, emptied, rewritten, crashed. Whatever happens
# to it costs speed, never a second grant (P1, P8), and what was granted or finished is on disk (G12).
use strict;
use warnings;

use Test::More;
use IdemTest;

my $node = idem_node('fast',
	autovacuum => 'off',
	# nothing but a forced flush brings anything to disk before a crash
	synchronous_commit => 'off',
	wal_writer_delay => '10s',
	wal_writer_flush_after => '1GB',
	checkpoint_timeout => '1h',
	max_prepared_transactions => '5');

my $params = q{'{"amount": 100}'};

sub sign
{
	return value($node, "SELECT idem_sign('alice', 'charge', $params)");
}

sub acquire_sql
{
	my ($token, $columns) = @_;
	return 'SELECT ' . ($columns // 'outcome, attempt, result')
	  . " FROM idem_acquire('$token', 'alice', 'charge', $params)";
}

sub acquire
{
	my ($token, $columns) = @_;
	return value($node, acquire_sql($token, $columns));
}

# Open a transaction in a session and claim in it; returns key and owner.
sub open_claim
{
	my ($session, $token) = @_;
	$session->query_ok('BEGIN');
	my ($outcome, $key, $owner) = split /\|/, $session->query_ok(acquire_sql($token, 'outcome, key, owner'));
	is($outcome, 'ACQUIRED', 'claimed');
	return ($key, $owner);
}

# Where a key's claim stands, as its own session sees it
sub place
{
	my ($session, $key) = @_;
	return $session->query_ok(qq{
		SELECT (SELECT count(*) FROM idem_fast WHERE key = '$key') || ' ' || (SELECT count(*) FROM idem_record WHERE key = '$key')});
}

sub fast_path
{
	my ($on, @sessions) = @_;
	$node->append_conf('postgresql.conf', "idem.fast_path = $on\n");
	$node->reload;
	foreach my $session (@sessions)
	{
		# a session reads its settings between two statements, once it was told to
		foreach (1 .. 6000)
		{
			last if $session->query_ok('SHOW idem.fast_path') eq $on;
			value($node, 'SELECT pg_sleep(0.01)');
		}
		is($session->query_ok('SHOW idem.fast_path'), $on, "the fast path is $on");
	}
	return;
}

sub commit_sql
{
	my ($key, $owner, $result) = @_;
	return "SELECT idem_commit('$key', '$owner', '$result')";
}

my ($s, $r, $t) = map { session($node) } 1 .. 3;

subtest 'switched off and on while claims are open (P1, P8)' => sub {
	my @token = map { sign() } 0 .. 3;
	my ($key, $owner) = open_claim($s, $token[0]);
	is(place($s, $key), '1 0', 'on: in the fast table');

	fast_path('off', $s, $r);
	is($r->query_ok(acquire_sql($token[0])), 'IN_FLIGHT|1|', 'off: a claim in the fast table is still seen');
	is($r->query_ok("SELECT outcome FROM idem_status('$token[0]', 'alice')"), 'IN_FLIGHT', 'by a status too');
	is($s->query_ok(acquire_sql($token[0])), 'IN_FLIGHT|1|', 'and by its own session');
	my ($key1) = open_claim($r, $token[1]);
	is(place($r, $key1), '0 1', 'off: in the record at once');
	is($s->query_ok(acquire_sql($token[1])), 'IN_FLIGHT|1|', 'a claim in the record, not committed, is a rival');
	is($s->query_ok("SELECT outcome FROM idem_status('$token[1]', 'alice')"), 'IN_FLIGHT', 'for a status too');
	is($s->query_ok(commit_sql($key, $owner, 1)), 'OK', 'off: what is in the fast table can be finished');
	$s->query_ok('COMMIT');
	is($r->query_ok(acquire_sql($token[0])), 'DONE|1|1', 'and is replayed');

	my ($key2) = open_claim($t, $token[2]);
	fast_path('on', $s, $r);
	is($s->query_ok(acquire_sql($token[1])), 'IN_FLIGHT|1|', 'on again: the claim in the record is still a rival');
	is($s->query_ok(acquire_sql($token[2])), 'IN_FLIGHT|1|', 'and so is the other');
	$r->query_ok('COMMIT');
	$t->query_ok('ROLLBACK');
	is(acquire($token[1]), 'IN_FLIGHT|1|', 'committed: in flight');
	is(acquire($token[2]), 'ACQUIRED|1|', 'rolled back: never there');
	open_claim($s, $token[3]);
	$s->query_ok('ROLLBACK');
	is(value($node, 'SELECT count(*) FROM idem_fast'), 0, 'the fast table is empty between transactions');
};

subtest 'one by the fast table, one by the record (P1, P8)' => sub {
	# LOCK TABLE cannot be had while a claim is open, and whoever comes while it waits goes by the record
	foreach my $isolation ('READ COMMITTED', 'REPEATABLE READ', 'SERIALIZABLE')
	{
		foreach my $end ('commit', 'leave open')
		{
			foreach my $first ('fast', 'record')
			{
				my $name = "$isolation, $end, $first ends first";
				my $token = sign();
				$_->query_ok("SET default_transaction_isolation = '$isolation'") foreach $s, $r;
				my ($fast_key, $fast_owner) = open_claim($s, $token);
				$t->query_ok('BEGIN');
				$t->send('LOCK TABLE idem_fast');
				wait_blocked($node, $t);
				my ($key, $owner) = open_claim($r, $token);
				is($r->query_ok("SELECT count(*) FROM idem_record WHERE key = '$key'"), 1, "$name: a second claim is in the record");
				my $fast_end = sub {
					$s->query(commit_sql($fast_key, $fast_owner, '"fast"')) if $end eq 'commit';
					$s->query('COMMIT') if $end ne 'commit' || $s->sqlstate eq '00000';
					is($s->sqlstate, '40001', "$name: the one in the fast table loses");
					$s->query('ROLLBACK');
				};
				$fast_end->() if $first eq 'fast';
				is($r->query_ok(commit_sql($key, $owner, '"record"')), 'OK', "$name: the other finishes") if $end eq 'commit';
				$r->query_ok('COMMIT');
				$fast_end->() if $first eq 'record';
				$t->wait;
				$t->query_ok('ROLLBACK');
				is(acquire($token), $end eq 'commit' ? 'DONE|1|"record"' : 'IN_FLIGHT|1|', "$name: one grant");
			}
		}
	}
	$_->query_ok('RESET default_transaction_isolation') foreach $s, $r;
};

subtest 'locked by a third session (P8, P11)' => sub {
	$t->query_ok('BEGIN; LOCK TABLE idem_fast');
	my $token = sign();
	my ($key, $owner) = open_claim($s, $token);
	is($r->query_ok(acquire_sql($token)), 'IN_FLIGHT|1|', 'a rival is told at once');
	is($r->query_ok("SELECT outcome FROM idem_status('$token', 'alice')"), 'IN_FLIGHT', 'and so is a status');
	is($s->query_ok(commit_sql($key, $owner, 1)), 'OK', 'committed');
	$s->query_ok('COMMIT');
	is($r->query_ok(acquire_sql($token)), 'DONE|1|1', 'and replayed');
	$token = sign();
	is($r->query_ok(acquire_sql($token)), 'ACQUIRED|1|', 'a claim left open');
	is($s->query_ok(acquire_sql($token)), 'IN_FLIGHT|1|', 'is in flight');
	$t->query_ok('ROLLBACK');
	is($s->query_ok(acquire_sql($token)), 'IN_FLIGHT|1|', 'also when the lock is gone');
};

subtest 'maintenance between the calls (P8, H01)' => sub {
	my @upkeep = (
		'VACUUM idem_fast, idem_record',
		'VACUUM FULL idem_fast',
		'VACUUM FULL idem_record',
		'CLUSTER idem_fast USING idem_fast_pkey',
		'CLUSTER idem_record USING idem_record_pkey',
		'REINDEX TABLE idem_fast',
		'REINDEX TABLE idem_record',
		'REINDEX TABLE CONCURRENTLY idem_record',
		'ALTER TABLE idem_fast SET LOGGED',
		'ALTER TABLE idem_fast SET UNLOGGED',
		'CREATE INDEX more ON idem_record (subject)',
		'VACUUM FREEZE idem_record',
		'DROP INDEX more',
		'ANALYZE idem_fast, idem_record',
		'TRUNCATE idem_fast',
		'ALTER EXTENSION idem UPDATE');
	my $done = sign();
	my ($key, $owner) = open_claim($s, $done);
	$s->query_ok(commit_sql($key, $owner, '"old"'));
	$s->query_ok('COMMIT');
	foreach my $upkeep (@upkeep)
	{
		my ($early, $token) = (sign(), sign());
		($key, $owner) = split /\|/, $s->query_ok(acquire_sql($early, 'key, owner'));
		$t->query_ok("SET client_min_messages = warning; $upkeep");
		is($s->query_ok(acquire_sql($done)), 'DONE|1|"old"', "$upkeep: a replay");
		is($r->query_ok(acquire_sql($early)), 'IN_FLIGHT|1|', "$upkeep: one in flight");
		is($s->query_ok(commit_sql($key, $owner, 1)), 'OK', "$upkeep: and committed");
		($key, $owner) = open_claim($s, $token);
		is($r->query_ok(acquire_sql($token)), 'IN_FLIGHT|1|', "$upkeep: a rival");
		$s->query_ok(commit_sql($key, $owner, 2));
		$s->query_ok('COMMIT');
		is($r->query_ok(acquire_sql($token)), 'DONE|1|2', "$upkeep: and a new one");
	}
	# plain VACUUM needs no strong lock: it runs beside an open claim, and takes nothing away
	my $token = sign();
	($key, $owner) = open_claim($s, $token);
	$t->query_ok('VACUUM idem_fast, idem_record');
	is($r->query_ok(acquire_sql($token)), 'IN_FLIGHT|1|', 'vacuumed beside an open claim');
	is($s->query_ok(commit_sql($key, $owner, 1)), 'OK', 'and committed');
	$s->query_ok('COMMIT');
};

subtest 'a rewrite waits for an open claim, which does not wait for it (P8)' => sub {
	foreach my $upkeep ('VACUUM FULL idem_fast', 'CLUSTER idem_fast USING idem_fast_pkey', 'ALTER TABLE idem_fast SET LOGGED', 'ALTER TABLE idem_fast SET UNLOGGED')
	{
		my ($token, $other) = (sign(), sign());
		my ($key, $owner) = open_claim($s, $token);
		$t->send($upkeep);
		wait_blocked($node, $t);
		is($r->query_ok(acquire_sql($other)), 'ACQUIRED|1|', "$upkeep: others go on");
		is($s->query_ok(commit_sql($key, $owner, 1)), 'OK', "$upkeep: the holder goes on");
		$s->query_ok('COMMIT');
		$t->wait;
		is($t->sqlstate, '00000', "$upkeep: then it is done");
		is($r->query_ok(acquire_sql($token)), 'DONE|1|1', "$upkeep: and the result is there");
	}
};

subtest 'ahead of a rewrite inside the holder\'s own transaction (P8)' => sub {
	foreach my $upkeep ('CLUSTER idem_fast USING idem_fast_pkey', 'ALTER TABLE idem_fast SET LOGGED', 'ALTER TABLE idem_fast SET UNLOGGED', 'REINDEX TABLE idem_fast')
	{
		my $token = sign();
		my ($key, $owner) = open_claim($s, $token);
		$s->query_ok($upkeep);
		is($s->query_ok(commit_sql($key, $owner, 1)), 'OK', "$upkeep: the claim is found where it went");
		$s->query_ok('COMMIT');
		is(acquire($token), 'DONE|1|1', "$upkeep: and finished");
		$token = sign();
		($key, $owner) = open_claim($s, $token);
		$s->query_ok($upkeep);
		$s->query_ok('COMMIT');
		is(value($node, commit_sql($key, $owner, 2)), 'OK', "$upkeep: or left open, and finished later");
	}
};

# ----------------------------------------------------------------------------------------------------------
# Crashes
# ----------------------------------------------------------------------------------------------------------

# What each session wrote without a flush is lost; what rests on idem is not. The row written last shows that
# nothing else flushed.
sub crash_after
{
	my ($name, @sql) = @_;
	my $session = session($node);
	my @out = map { ref $_ ? $_->($session) : $session->query_ok($_) } @sql;
	$session->query_ok("INSERT INTO unflushed VALUES ('$name')");
	crash_and_start($node);
	$session->quit;
	is(value($node, "SELECT count(*) FROM unflushed WHERE name = '$name'"), 0, "$name: the crash does lose what was not flushed");
	return @out;
}

value($node, 'CREATE TABLE unflushed (name text); CHECKPOINT');

subtest 'crash, with synchronous_commit off (P1, P2, P8, G12, B02)' => sub {
	$_->quit foreach $s, $r, $t;
	my @token = map { sign() } 0 .. 9;
	my ($line) = crash_after('claim left open', acquire_sql($token[0], 'key, owner'));
	my ($key, $owner) = split /\|/, $line;
	is(acquire($token[0]), 'IN_FLIGHT|1|', 'a claim left open is not lost');
	is(value($node, 'SELECT count(*) FROM idem_fast'), 0, 'though the fast table is empty');
	is(psql_error($node, "SELECT * FROM idem_acquire('$token[0]', 'alice', 'charge', '{\"amount\": 101}')"), '', 'and it can be asked');
	is(value($node, "SELECT outcome FROM idem_acquire('$token[0]', 'alice', 'charge', '{\"amount\": 101}')"), 'PARAM_MISMATCH', 'with its parameters');

	crash_after('commit of an earlier claim', commit_sql($key, $owner, '"kept"'));
	is(acquire($token[0]), 'DONE|1|"kept"', 'the commit of an earlier claim is not lost');

	foreach my $call ([ 'fail', "'\"no\"'", 'FAILED|1|"no"' ], [ 'release', '', 'ACQUIRED|2|' ])
	{
		my ($function, $more, $verdict) = @$call;
		my $token = shift @{ [ splice @token, 1, 1 ] };
		($key, $owner) = split /\|/, acquire($token, 'key, owner');
		crash_after("$function of an earlier claim", "SELECT idem_$function('$key', '$owner'" . ($more ? ", $more" : '') . ')');
		is(acquire($token), $verdict, "the $function of an earlier claim is not lost");
	}

	my $token = $token[1];
	crash_after('claim in a block with other work', "BEGIN; INSERT INTO unflushed VALUES ('together')", acquire_sql($token), 'COMMIT');
	is(acquire($token), 'IN_FLIGHT|1|', 'nor is one in a longer transaction');
	is(value($node, "SELECT count(*) FROM unflushed WHERE name = 'together'"), 1, 'with the rows beside it (P9)');

	$token = $token[2];
	crash_after('claim after a savepoint', 'BEGIN; SAVEPOINT s', acquire_sql($token), 'RELEASE s', 'SET LOCAL synchronous_commit = off', 'COMMIT');
	is(acquire($token), 'IN_FLIGHT|1|', 'nor one in a subtransaction, whatever is set at the end');

	$token = $token[3];
	crash_after('claim prepared', 'BEGIN', acquire_sql($token), "PREPARE TRANSACTION 'p'");
	is(acquire($token), 'IN_FLIGHT|1|', 'nor a prepared one');
	value($node, "COMMIT PREPARED 'p'");
	is(acquire($token), 'IN_FLIGHT|1|', 'also when it is committed');

	# without an outside effect there is nothing that the caller's own setting may not lose: claim, rows and all
	$token = $token[4];
	crash_after('one transaction', 'BEGIN', "INSERT INTO unflushed VALUES ('inside')",
		sub { my ($k, $o) = split /\|/, $_[0]->query_ok(acquire_sql($token, 'key, owner')); $_[0]->query_ok(commit_sql($k, $o, 1)) }, 'COMMIT');
	is(value($node, "SELECT count(*) FROM unflushed WHERE name = 'inside'"), 0, 'one transaction: the caller\'s setting holds');
	is(acquire($token), 'ACQUIRED|1|', 'and the claim went with the caller\'s rows (P9)');

	$token = $token[5];
	my $session = session($node);
	open_claim($session, $token);
	value($node, 'CHECKPOINT');
	crash_and_start($node);
	$session->quit;
	is(value($node, 'SELECT count(*) FROM idem_fast'), 0, 'a claim that was never committed is gone');
	is(acquire($token), 'ACQUIRED|1|', 'and free');
};

$node->stop;
done_testing();
