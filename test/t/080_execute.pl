# idem_execute and idem_require between sessions: a duplicate joins, what fails leaves nothing, and a protected row
# keeps its operation from ending before the row's transaction does (P1, P3, P9).
use strict;
use warnings;

use Test::More;
use IdemTest;

my $node = idem_node('execute', autovacuum => 'off', max_prepared_transactions => 5, deadlock_timeout => '100ms');
my $short = "'1 ms', '1 ms', '1 ms', '300 ms'";
value($node, qq{
	INSERT INTO idem_policy (scope, downstream, downstream_max, gateway_timeout, retry_backoff, in_flight_ttl)
		VALUES ('short', 'idempotent', $short);
	CREATE TABLE effect (params jsonb);
	-- waits until the test opens the gate, and fails where the test has said so
	CREATE TABLE failing (params jsonb);
	CREATE FUNCTION charge(params jsonb) RETURNS jsonb LANGUAGE plpgsql AS \$\$
	BEGIN
		PERFORM pg_advisory_xact_lock_shared(1);
		INSERT INTO effect VALUES (params);
		IF EXISTS (SELECT FROM failing AS f WHERE f.params = charge.params) THEN
			RAISE EXCEPTION USING ERRCODE = 'ZX042', MESSAGE = 'card declined', DETAIL = 'Over its limit.', HINT = 'Use another.';
		END IF;
		RETURN to_jsonb((SELECT count(*) FROM effect AS e WHERE e.params = charge.params));
	END \$\$});

my $count = 0;
my ($gate, $a, $b, $c) = map { session($node) } 1 .. 4;

sub fresh { return sprintf '{"n": %d}', ++$count }

sub execute_sql
{
	my ($params, $door, $scope) = (@_, 'charge');
	$scope = $_[2] // 'charge';
	my $more =
		$door eq 'client' ? ", client_key => '$params'"
	  : $door =~ /\./ ? ", fingerprint => '$door'"
	  : '';
	return "SELECT outcome, attempt, joined, replayed, result FROM idem_execute('alice', '$scope', '$params', 'charge(jsonb)'$more)";
}

sub at_the_gate
{
	my ($session) = @_;
	wait_until($node, "SELECT count(*) = 1 FROM pg_catalog.pg_locks WHERE locktype = 'advisory' AND NOT granted AND pid = " . $session->pid);
	return;
}

sub close_gate { $gate->query_ok('SELECT pg_advisory_lock(1)'); return }
sub open_gate { $gate->query_ok('SELECT pg_advisory_unlock(1)'); return }

# ----------------------------------------------------------------------------------------------------------
# A duplicate joins
# ----------------------------------------------------------------------------------------------------------

foreach my $door ('content', 'client', 'fingerprint')
{
	my $p = fresh();
	my $by = $door eq 'fingerprint' ? value($node, "SELECT idem_sign('alice', 'charge', '$p')") : $door;
	close_gate();
	$a->send(execute_sql($p, $by));
	at_the_gate($a);
	$b->send(execute_sql($p, $by));
	wait_blocked($node, $b);
	is($c->query_ok(execute_sql($p, $by) =~ s/\)$/, wait => '0')/r), 'IN_FLIGHT|1|f|f|', "$door: who does not wait is told so");
	open_gate();
	is($a->wait, 'DONE|1|f|f|1', "$door: the first runs");
	is($b->wait, 'DONE|1|t|t|1', "$door: the second joins");
	is($c->query_ok(execute_sql($p, $by)), 'DONE|1|f|t|1', "$door: the third replays");

	# the first fails: the second, which has waited, runs in its turn
	$p = fresh();
	$by = value($node, "SELECT idem_sign('alice', 'charge', '$p')") if $door eq 'fingerprint';
	value($node, "INSERT INTO failing VALUES ('$p')");
	close_gate();
	$a->send(execute_sql($p, $by));
	at_the_gate($a);
	$b->send(execute_sql($p, $by));
	wait_blocked($node, $b);
	open_gate();
	# the second is at work on it as soon as the first has failed, and fails as well
	$a->wait;
	is($a->sqlstate, 'ZX042', "$door: the caller gets the function's own error");
	like($a->error, qr/ERROR:  card declined\nDETAIL:  Over its limit\.\nHINT:  Use another\.\nCONTEXT:  PL\/pgSQL function charge\(jsonb\) line 6 at RAISE\n/, 'unchanged');
	$b->wait;
	is($b->sqlstate, 'ZX042', "$door: the second had its own try");
	value($node, 'DELETE FROM failing');
	is($c->query_ok(execute_sql($p, $by)), 'DONE|1|f|f|1', "$door: and so has the third, as if nothing had been");
}

# in an open transaction it is not done before that commits; in a savepoint, not at all if that is rolled back
foreach my $end ('COMMIT', 'ROLLBACK', 'ROLLBACK TO s; COMMIT', "PREPARE TRANSACTION 'p'; COMMIT PREPARED 'p'")
{
	my $p = fresh();
	$a->query_ok('BEGIN; SAVEPOINT s');
	is($a->query_ok(execute_sql($p, 'content')), 'DONE|1|f|f|1', 'done, in an open transaction');
	$b->send(execute_sql($p, 'content'));
	wait_blocked($node, $b);
	if ($end =~ /TO s; (.*)/)
	{
		$a->query_ok('ROLLBACK TO s');
		# the savepoint's claim is gone, while its transaction is still open
		$a->query_ok($1);
	}
	else
	{
		$a->query_ok($_) foreach split /; /, $end;
	}
	is($b->wait, $end =~ /ROLLBACK/ ? 'DONE|1|f|f|1' : 'DONE|1|t|t|1', "the second, after $end");
	is(value($node, "SELECT count(*) FROM effect WHERE params = '$p'"), '1', 'it ran once');
}

# stopped by force
foreach my $how ('cancel', 'terminate')
{
	my $p = fresh();
	my $s = session($node);
	close_gate();
	$s->send(execute_sql($p, 'content'));
	at_the_gate($s);
	$b->send(execute_sql($p, 'content'));
	wait_blocked($node, $b);
	$s->$how;
	$s->wait;
	is($s->sqlstate, $how eq 'cancel' ? '57014' : '08006', "$how while the function runs");
	at_the_gate($b);
	open_gate();
	is($b->wait, 'DONE|1|f|f|1', 'the other runs it');
	$s->quit;
}

# a takeover while the function of the attempt before still runs cannot be: its claim is not committed before it is done
{
	my $p = fresh();
	close_gate();
	$a->send(execute_sql($p, 'content', 'short'));
	at_the_gate($a);
	wait_until($node, "SELECT count(*) = 1 FROM idem_in_flight WHERE scope = 'short' AND lease_left < '0'");
	is($b->query_ok(execute_sql($p, 'content', 'short') =~ s/\)$/, wait => '50 ms')/r), 'IN_FLIGHT|1|t|f|', 'a lease that ran out while the function runs is nobody\'s chance');
	open_gate();
	is($a->wait, 'DONE|1|f|f|1', 'it is done in the end');
	is(value($node, "SELECT count(*) FROM effect WHERE params = '$p'"), '1', 'once');
}

# ----------------------------------------------------------------------------------------------------------
# A protected row and its operation
# ----------------------------------------------------------------------------------------------------------

value($node, q{CREATE TABLE payment (key uuid, n int);
	CREATE TRIGGER payment_for_a_claim BEFORE INSERT ON payment FOR EACH ROW EXECUTE FUNCTION idem_require('charge', 'key');
	CREATE TABLE short_payment (key uuid);
	CREATE TRIGGER payment_for_a_claim BEFORE INSERT ON short_payment FOR EACH ROW EXECUTE FUNCTION idem_require('short', 'key')});

sub granted
{
	my ($session, $scope) = @_;
	my $p = fresh();
	my ($key, $owner) = split /\|/, $session->query_ok("SELECT key, owner FROM idem_acquire_direct('alice', '$scope', '$p')");
	return ($key, $owner, $p);
}

# the end of an operation waits for the rows that are being written for it
foreach my $call ("idem_commit('K', 'O', '1')", "idem_fail('K', 'O', '1')", "idem_release('K', 'O')", "idem_reconcile('K', 'FAILED', 'note', force => true)")
{
	my ($key, $owner) = granted($a, 'charge');
	(my $sql = $call) =~ s/'K'/'$key'/;
	$sql =~ s/'O'/'$owner'/;
	$b->query_ok("BEGIN; INSERT INTO payment VALUES ('$key', 1)");
	$c->query_ok("BEGIN; INSERT INTO payment VALUES ('$key', 2)");
	pass('two writers for one operation do not wait for each other');
	$a->send("SELECT $sql");
	wait_blocked($node, $a);
	$b->query_ok('COMMIT');
	ok($a->busy, "$call waits for the row's transaction");
	$c->query_ok('ROLLBACK');
	is($a->wait, 'OK', 'and then ends the operation');
	$b->query("INSERT INTO payment VALUES ('$key', 3)");
	is($b->sqlstate, '23000', 'after which no row is written for it');
}

# a row waits for an end that is not committed
foreach my $end ('COMMIT', 'ROLLBACK')
{
	my ($key, $owner) = granted($a, 'charge');
	$a->query_ok('BEGIN');
	$a->query_ok("SELECT idem_commit('$key', '$owner')");
	$b->send("INSERT INTO payment VALUES ('$key', 1)");
	wait_blocked($node, $b);
	$a->query_ok($end);
	$b->wait;
	is($b->sqlstate, $end eq 'COMMIT' ? '23000' : '00000', "a row written beside a commit, after its $end");
}

# a takeover does not wait: it is told that somebody is at work, as long as the row is not committed
{
	my ($key, $owner, $p) = granted($a, 'short');
	$b->query_ok("BEGIN; INSERT INTO short_payment VALUES ('$key')");
	wait_until($node, "SELECT lease_until <= clock_timestamp() FROM idem_record WHERE key = '$key'");
	my $acquire = "SELECT outcome, attempt FROM idem_acquire_direct('alice', 'short', '$p')";
	is($c->query_ok("SET statement_timeout = 20000; $acquire"), 'IN_FLIGHT|1', 'no takeover while a row is being written for the attempt, and no wait');
	$b->query_ok('COMMIT');
	is($c->query_ok($acquire), 'ACQUIRED|2', 'afterwards there is');
	# the former attempt's rows are no longer written by its own lease, but by the key's new one
	is($a->query_ok("SELECT idem_commit('$key', '$owner')"), 'NOT_OWNER', 'and the former holder is none');
}

# where the snapshot is older than what has become of the claim
foreach my $level ('REPEATABLE READ', 'SERIALIZABLE')
{
	my ($key, $owner) = granted($a, 'charge');
	$b->query_ok("BEGIN ISOLATION LEVEL $level; SELECT count(*) FROM payment");
	$a->query_ok("SELECT idem_renew('$key', '$owner', '1 hour')");
	$b->query("INSERT INTO payment VALUES ('$key', 1)");
	is($b->sqlstate, '40001', "$level: the claim has changed since the snapshot");
	$b->query_ok('ROLLBACK');
	$b->query_ok("BEGIN ISOLATION LEVEL $level; SELECT count(*) FROM payment");
	$b->query_ok("INSERT INTO payment VALUES ('$key', 1)");
	$b->query_ok('COMMIT');
	pass("$level: as of a newer one it is written");
}

$_->quit foreach $gate, $a, $b, $c;
$node->stop;
done_testing();
