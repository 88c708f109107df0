# A fingerprint that expires while its acquire waits for a table's lock starts nothing (P6).
use strict;
use warnings;

use Test::More;
use IdemTest;

my $node = idem_node('late');
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

done_testing();
