# Logical replication FOR ALL TABLES, both sides with the extension and rows of their own: the set-up that
# docs/guarantees.md describes copies without an error, keeps both sides working, and after a switch-over nothing
# runs twice. What goes wrong without it is shown as well (P1, P2, P3, P8; G09).
use strict;
use warnings;

use PostgreSQL::Test::Utils;
use Test::More;
use IdemTest;
use IdemFault;

my $old = idem_node('old', -streaming => 'logical', autovacuum => 'off');
furnish($old);
my %op = states($old);

sub subscriber
{
	my ($name) = @_;
	my $node = idem_node($name, -streaming => 'logical', autovacuum => 'off', wal_retrieve_retry_interval => '100ms');
	furnish($node);
	my $own = operation($node, 'opaque');
	is(grant($node, $own), 'ACQUIRED|1', "$name: has rows of its own");
	is(value($node, commit_sql($own, '"own"')), 'OK', "$name: finished");
	return ($node, $own);
}

sub ready
{
	my ($node, $name) = @_;
	wait_until($node, "SELECT count(*) > 0 AND bool_and(srsubstate = 'r') FROM pg_subscription_rel");
	$old->wait_for_catchup($name);
	return;
}

my %expected = answers_of_states();

value($old, 'CREATE PUBLICATION everything FOR ALL TABLES');
is(value($old, q{SELECT count(*) FROM pg_publication_tables WHERE tablename = 'idem_fast'}), 0, 'the unlogged table is never published');
is(value($old, q{SELECT count(*) FROM pg_publication_tables WHERE tablename = 'idem_secret'}), 1, 'the secrets are: who may subscribe may read them');

subtest 'without a set-up, the copy of what both sides have fails again and again (G09)' => sub {
	my ($node) = subscriber('unprepared');
	my $size = log_size($node);
	value($node, "CREATE SUBSCRIPTION unprepared CONNECTION '" . $old->connstr . " dbname=postgres' PUBLICATION everything");
	ok($node->wait_for_log(qr/duplicate key value violates unique constraint "idem_(policy|secret)/, $size), 'duplicate keys');
	is(answer($node, $op{done}), 'INVALID||', 'and tokens of the other side are not known here');
	value($node, 'DROP SUBSCRIPTION unprepared');
	$node->stop;
};

# The set-up: on the subscriber, before subscribing, empty what the publisher will send, its own records kept aside or
# given up; secrets and policies are the publisher's from then on.
subtest 'with it, the copy goes through and a switch-over repeats nothing (P1, P2, P3; G09)' => sub {
	my ($new, $own) = subscriber('new');
	my $s = session($new);
	is(ask($s, "SELECT outcome FROM idem_status('$own->{token}', 'alice')"), 'DONE', 'a session that knows the secret of before');
	my $size = log_size($new);
	my $secret = value($new, q{SELECT encode(idem_export_secret(), 'hex')});
	value($new, q{
		BEGIN;
		DELETE FROM idem_policy;
		DELETE FROM idem_policy_version;
		DELETE FROM idem_secret;
		DELETE FROM idem_alert;
		DELETE FROM idem_guidance;
		DELETE FROM idem_binding;
		COMMIT});
	value($new, "CREATE SUBSCRIPTION new CONNECTION '" . $old->connstr . " dbname=postgres' PUBLICATION everything");
	ready($new, 'new');
	value($new, "SELECT idem_import_secret('\\x$secret')");
	my $check = q{
		SELECT (SELECT count(*) FROM idem_policy), (SELECT count(*) FROM idem_policy_version), (SELECT count(*) FROM idem_record), (SELECT string_agg(id, ' ' ORDER BY id) FROM idem_secrets WHERE signing)};
	my ($a, $b) = map { value($_, $check) } $old, $new;
	my ($records) = $a =~ /\|(\d+)\|\w+$/;
	is($b, $a =~ s/\|\d+(\|\w+)$/'|' . ($records + 1) . $1/er, 'policies, versions, records and the secret that signs are the publisher\'s, and its own record is kept');
	is(ask($s, "SELECT outcome FROM idem_status('$own->{token}', 'alice')"), 'DONE', 'what was signed here before is still known');
	is(status($s, $op{$_}), status($old, $op{$_}), "$_: the same status on both") foreach sort keys %op;

	# changes flow: a claim, its end, a policy, a rotated secret
	my %later = map { $_ => operation($old, 'opaque') } qw(flight done failed released);
	is(grant($old, $later{$_}), 'ACQUIRED|1', "$_: granted on the publisher") foreach sort keys %later;
	effect($later{$_}) foreach qw(flight done);
	is(value($old, commit_sql($later{done}, '"later"')), 'OK', 'finished');
	is(value($old, "SELECT idem_fail('$later{failed}{key}', '$later{failed}{owner}', '\"no\"')"), 'OK', 'failed');
	is(value($old, "SELECT idem_release('$later{released}{key}', '$later{released}{owner}')"), 'OK', 'released');
	value($old, "UPDATE idem_policy SET immaterial = '{/memo}' WHERE scope = 'opaque'; SELECT idem_rotate_secret()");
	my $under_new = operation($old, 'opaque');
	is(grant($old, $under_new), 'ACQUIRED|1', 'granted under new lists and a new secret');
	effect($under_new);
	is(value($old, commit_sql($under_new, 1)), 'OK', 'finished');
	$old->wait_for_catchup('new');
	is(status($s, $later{flight}), 'IN_FLIGHT|1|', 'a session that was open all the time: in flight');
	is(status($s, $later{done}), 'DONE|1|"later"', 'done');
	is(status($s, $under_new), 'DONE|1|1', 'and under the new secret and lists');
	is(ask($s, "SELECT idem_canonical('opaque', '{\"a\": 1, \"memo\": 2}')"), '{"a":1}', 'whose policies are in force');

	# switch over: the old one takes no more writes, the rest is applied, the subscription goes
	my $open = session($old);
	my $cut = operation($old, 'opaque');
	$open->query_ok('BEGIN');
	is(grant($open, $cut), 'ACQUIRED|1', 'a claim that is open at the switch-over');
	value($old, "ALTER SYSTEM SET default_transaction_read_only = on; SELECT pg_reload_conf()");
	$open->terminate;
	$open->wait if $open->busy;
	$open->quit;
	wait_until($old, "SELECT count(*) = 0 FROM pg_stat_activity WHERE pid = " . $open->pid);
	is((psql_error($old, acquire_sql($cut)))[0], '25006', 'the old one grants nothing more');
	$old->wait_for_catchup('new');
	value($new, 'DROP SUBSCRIPTION new');
	$old->stop('immediate');
	sound($new, 'switched over');
	my %all = (%op, map { ("later $_" => $later{$_}) } keys %later);
	$expected{'later flight'} = 'IN_FLIGHT|1|';
	$expected{'later done'} = 'DONE|1|"later"';
	$expected{'later failed'} = 'FAILED|1|"no"';
	$expected{'later released'} = 'ACQUIRED|2|';
	is(answer($s, $all{$_}), $expected{$_}, "$_: $expected{$_}") foreach sort keys %all;
	is(answer($s, $cut), 'ACQUIRED|1|', 'the claim that was cut off is free');
	foreach my $name (sort keys %all)
	{
		is(ask($s, commit_sql($all{$name}, '"late"')), 'OK', "$name: its holder finishes") if $expected{$name} =~ /^(IN_FLIGHT|RECONCILE)/;
		my $first = settle($s, $all{$name});
		is(settle($s, $all{$name}), $first, "$name: settled for good (P2, P3)");
		cmp_ok(effects($all{$name}), '<=', 1, "$name: one effect at most (P1)");
	}
	unlike(log_since($new, $size), qr/ERROR/, 'no error on the subscriber');
	$s->quit;
	sound($new, 'in the end');
	$new->stop;
};

done_testing();
