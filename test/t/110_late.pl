# A fingerprint that expires while its acquire waits for a table's lock starts nothing (P6); a transaction that
# outlives what others did meanwhile, and their record, does not do it once more (P1).
use strict;
use warnings;

use Test::More;
use IdemTest;

my $node = idem_node('late', 'idem.max_clock_skew' => '10ms', autovacuum => 'off');
my $holder = session($node);
my $refuser = session($node);
my $caller = session($node);

# with the fast table, and with its lock refused, so that the claim would go into the record at once
foreach my $way ('fast', 'record')
{
	my $fp = value($node, q{SELECT idem_sign('alice', 'pay', '1', clock_timestamp() + '3 s')});
	my $late = "SELECT clock_timestamp() >= expires_at FROM idem_inspect('$fp')";

	$holder->query_ok('BEGIN; LOCK TABLE idem_record IN ACCESS EXCLUSIVE MODE');
	$refuser->query_ok('BEGIN; LOCK TABLE idem_fast IN ACCESS EXCLUSIVE MODE') if $way eq 'record';
	$caller->send("SELECT outcome FROM idem_acquire('$fp', 'alice', 'pay', '1')");
	wait_blocked($node, $caller);
	is(value($node, $late), 'f', "$way: the call began in time");
	wait_until($node, $late);
	$holder->query_ok('COMMIT');
	is($caller->wait, 'EXPIRED', "$way: and came too late");
	$refuser->query_ok('ROLLBACK');
}
is(value($node, 'SELECT count(*) FROM idem_record'), '0', 'no record');

# A transaction keeps its claim in the fast table; another, refused there, finishes the operation in the record,
# which lapses and is purged.
value($node, q{INSERT INTO idem_policy (scope, caller_retry_window, result_ttl) VALUES ('brief', '100 ms', '200 ms')});
foreach my $end ('leaves its claim open', 'finishes it')
{
	my $fp = value($node, q{SELECT idem_sign('alice', 'brief', '1', clock_timestamp() + '4 s')});
	my $acquire = "SELECT outcome, key, owner FROM idem_acquire('$fp', 'alice', 'brief', '1')";
	my ($first, $key, $owner) = split /\|/, $caller->query_ok("BEGIN; $acquire");
	my ($second, undef, $other);

	is($first, 'ACQUIRED', "$end: granted, but not yet committed");
	$refuser->send('TRUNCATE idem_fast');
	wait_blocked($node, $refuser);
	($second, undef, $other) = split /\|/, $holder->query_ok("BEGIN; $acquire");
	is($second, 'ACQUIRED', "$end: so is another, which cannot see it");
	is($holder->query_ok("SELECT idem_commit('$key', '$other', '\"first\"'); COMMIT"), 'OK', "$end: the other finishes first");
	wait_until($node, "SELECT clock_timestamp() >= retained_until FROM idem_record WHERE key = '$key'");
	is(value($node, 'SELECT idem_purge()'), '1', "$end: and is forgotten");
	$caller->query($end eq 'finishes it' ? "SELECT idem_commit('$key', '$owner', '\"second\"')" : 'COMMIT');
	is($caller->sqlstate, '40001', "$end: the one that slept does not do it again");
	$caller->query('ROLLBACK');
	$refuser->wait;
	is(value($node, "SELECT outcome FROM idem_acquire('$fp', 'alice', 'brief', '1')"), 'EXPIRED', "$end: nor does a retry");
}

done_testing();
