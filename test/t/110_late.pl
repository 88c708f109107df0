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

# Lists are replaced while a claim made under the former ones is open and the fast table cannot be read: a miss there
# must not give the same operation a second key (P3, P8).
{
	value($node, q{INSERT INTO idem_policy (scope, material) VALUES ('lists', '{/amount}')});
	my $call = q{SELECT outcome FROM idem_acquire_direct('alice', 'lists', '{"amount": 1, "payee": "bob"}')};
	$holder->query_ok('BEGIN');
	is($holder->query_ok($call), 'ACQUIRED', 'lists: a claim under the first lists, left open');
	value($node, q{UPDATE idem_policy SET material = '{/amount,/payee}' WHERE scope = 'lists'});
	is($caller->query_ok($call), 'IN_FLIGHT', 'lists: found under the next ones');
	$refuser->send('TRUNCATE idem_fast');
	wait_blocked($node, $refuser);
	$caller->query($call);
	is($caller->sqlstate, '40001', 'lists: not to be found, and nothing is granted on that');
	$holder->query_ok('COMMIT');
	$refuser->wait;
	is($caller->query_ok($call), 'IN_FLIGHT', 'lists: found in the record');
	is(value($node, q{SELECT count(*) FROM idem_record WHERE scope = 'lists'}), '1', 'lists: one operation, one key');

	# replaced between naming the operation and claiming it
	value($node, q{INSERT INTO idem_policy (scope, material) VALUES ('changing', '{/amount}')});
	$call =~ s/'lists'/'changing'/;
	$caller->query_ok($call =~ s/"amount": 1/"amount": 2/r);
	$holder->query_ok('BEGIN; LOCK TABLE idem_record IN ACCESS EXCLUSIVE MODE');
	$caller->send($call);
	wait_blocked($node, $caller);
	value($node, q{UPDATE idem_policy SET material = '{/amount,/payee}' WHERE scope = 'changing'});
	$holder->query_ok('COMMIT');
	is($caller->wait, 'ACQUIRED', 'lists: replaced while a call made under the former ones was on its way');
	is($caller->query_ok($call), 'IN_FLIGHT', 'lists: the next call finds it');
	is(value($node, q{SELECT count(*) FROM idem_record WHERE key = idem_key('alice', 'changing', '{"amount": 1, "payee": "bob"}')}),
		'1', 'lists: it went by the new ones');
}

# A call that waited for a row's lock counts its lease, and its record's retention, from after that (P5, P2)
{
	my ($key, $owner) = split /\|/, value($node, q{SELECT key, owner FROM idem_acquire_direct('alice', 'share', '1')});
	foreach my $case (
		[ "SELECT idem_renew('$key', '$owner', '1 hour')", q{lease_until >= '%s'::timestamptz + interval '1 hour'}, 'its lease' ],
		[ "SELECT idem_commit('$key', '$owner', '1')", q{retained_until >= '%s'::timestamptz + interval '24 hours' AND finished_at >= '%s'}, 'its retention' ])
	{
		my ($call, $holds, $what) = @$case;
		$holder->query_ok('BEGIN');
		my $began = $holder->query_ok("SELECT clock_timestamp() FROM idem_record WHERE key = '$key' FOR SHARE");
		$caller->send($call);
		wait_blocked($node, $caller);
		wait_until($node, "SELECT clock_timestamp() > '$began'::timestamptz + interval '1 s'");
		my $ended = $holder->query_ok('SELECT clock_timestamp()');
		$holder->query_ok('COMMIT');
		is($caller->wait, 'OK', 'a call that waited for the row');
		is(value($node, 'SELECT ' . ($holds =~ s/%s/$ended/gr) . " FROM idem_record WHERE key = '$key'"), 't', "counts $what from after that");
	}
}

done_testing();
