# T21: a token that was waited for is verified again. Here the holder's claim is committed, so that its waiters look again now
# and then; test/isolation/specs/revoked.spec has those that wait for a transaction or a lock (P10, P6).
use strict;
use warnings;

use PostgreSQL::Test::Utils;
use Test::More;
use IdemTest;

my $count = 0;

foreach my $library ('', 'idem')
{
	my $node = idem_node($library eq '' ? 'plain' : 'preloaded', shared_preload_libraries => $library, autovacuum => 'off');
	value($node, q{CREATE FUNCTION effect(params jsonb) RETURNS jsonb LANGUAGE sql AS $$ SELECT '"ran"'::jsonb $$});
	my %call = (
		acquire => q{SELECT outcome, result FROM idem_acquire('%s', 'alice', 'pay', '%s', wait => '%s')},
		execute => q{SELECT outcome, result FROM idem_execute('alice', 'pay', '%2$s', 'effect(jsonb)', fingerprint => '%1$s', wait => '%3$s')},
		status => q{SELECT outcome, result FROM idem_status('%1$s', 'alice', wait => '%3$s')});
	my $waiter = session($node);

	# One call that waits for a claim in flight, until something is done to the secrets and then the holder releases it
	my $waits = sub {
		my ($name, $wait, $meanwhile, $release) = @_;
		my $n = ++$count;
		my $token = value($node, "SELECT idem_sign('alice', 'pay', '$n')");
		my ($key, $owner) = split /\|/, value($node, "SELECT key, owner FROM idem_acquire('$token', 'alice', 'pay', '$n')");
		$waiter->send(sprintf $call{$name}, $token, $n, $wait);
		wait_until($node, q{SELECT count(*) > 0 FROM pg_stat_activity WHERE pid = } . $waiter->pid . q{ AND state = 'active' AND wait_event_type = 'Extension'});
		$meanwhile->();
		is(value($node, "SELECT idem_release('$key', '$owner')"), 'OK', 'the holder releases it') if $release;
		return $waiter->wait;
	};
	my $revoke = sub {
		value($node, 'SELECT idem_rotate_secret()');
		value($node, 'SELECT idem_revoke_secret(id) FROM idem_secrets WHERE NOT signing AND revoked_at IS NULL');
	};
	# by the clock alone: nothing is written when it runs out
	my $run_out = sub {
		value($node, 'SELECT idem_rotate_secret()');
		value($node, q{UPDATE idem_secret SET verify_until = clock_timestamp() + interval '700 ms' WHERE signing IS NULL});
		wait_until($node, 'SELECT bool_and(verify_until < clock_timestamp()) FROM idem_secrets WHERE NOT signing');
	};
	my %granted = (acquire => 'ACQUIRED|', execute => 'DONE|"ran"', status => 'RETRYABLE|');
	foreach my $name (sort keys %call)
	{
		my $where = "$name, " . ($library eq '' ? 'not preloaded' : 'preloaded');
		is($waits->($name, '60 s', $revoke, 1), 'INVALID|', "$where: revoked");
		is($waits->($name, '60 s', $run_out, 1), 'INVALID|', "$where: run out");
		is($waits->($name, '3 s', $revoke, 0), 'INVALID|', "$where: revoked, and the time to wait is over");
		is($waits->($name, '60 s', sub { value($node, 'SELECT idem_rotate_secret()') }, 1), $granted{$name}, "$where: rotated alone");
	}
	# an open transaction that is still open when the time to wait is over
	my $holder = session($node);
	my $token = value($node, q{SELECT idem_sign('alice', 'pay', '"open"')});
	$holder->query_ok('BEGIN');
	is($holder->query_ok(qq{SELECT outcome FROM idem_acquire('$token', 'alice', 'pay', '"open"')}), 'ACQUIRED', 'an open claim');
	$waiter->send(sprintf $call{acquire}, $token, '"open"', '3 s');
	wait_blocked($node, $waiter);
	$revoke->();
	is($waiter->wait, 'INVALID|', 'revoked, and the holder is still at it');
	$_->quit foreach $holder, $waiter;
	$node->stop;
}
done_testing();
