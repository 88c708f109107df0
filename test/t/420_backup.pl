# Restored from a physical backup, or to a point in time: what is in the record at that point stands, the fast table
# is empty, and what was done later is not known (P1, P2, P5, P8, P10; G01). docs/guarantees.md tells what to do then.
use strict;
use warnings;

use PostgreSQL::Test::Utils;
use Test::More;
use IdemTest;
use IdemFault;

my $node = PostgreSQL::Test::Cluster->new('origin');
$node->init(allows_streaming => 1, has_archiving => 1, extra => [ '--encoding=UTF8', '--locale=C.UTF-8' ]);
$node->append_conf('postgresql.conf', "autovacuum = off\nmax_prepared_transactions = 5\n");
$node->start;
value($node, 'SET client_min_messages = warning; CREATE EXTENSION idem CASCADE');
furnish($node);

my %op = states($node);
my %expected = answers_of_states();

# Claims of transactions that are open while the backup is taken
my $open = operation($node, 'opaque');
my $s = session($node);
$s->query_ok('BEGIN');
is(grant($s, $open), 'ACQUIRED|1', 'a claim in the fast table');
my $prepared = operation($node, 'opaque');
value($node, 'BEGIN;' . acquire_sql($prepared) . "; PREPARE TRANSACTION 'p'");
$node->backup('base');
is(ask($s, commit_sql($open, 1)), 'OK', 'finished after the backup');
$s->query_ok('COMMIT');

subtest 'pg_basebackup (P1, P2, P8; G01)' => sub {
	my $copy = PostgreSQL::Test::Cluster->new('copy');
	$copy->init_from_backup($node, 'base');
	$copy->append_conf('postgresql.conf', "archive_mode = off\n");
	$copy->start;
	sound($copy, 'started');
	is(answer($copy, $op{$_}), $expected{$_}, "$_: $expected{$_}") foreach sort keys %op;
	is(answer($copy, $prepared), 'IN_FLIGHT|1|', 'a prepared claim');
	is(answer($copy, $open), 'ACQUIRED|1|', 'a claim that was not committed then was never there');
	is(value($copy, commit_sql($op{flight_opaque}, 2)), 'OK', 'a holder finishes');
	is(settle($copy, $op{flight_opaque}), 'DONE|2', 'and is replayed');
	value($copy, "ROLLBACK PREPARED 'p'");
	is(answer($copy, $prepared), 'ACQUIRED|1|', 'a prepared claim that is rolled back is free');
	$copy->stop;
};

subtest 'to a point in time (P1, P2, P5; G01)' => sub {
	my %later = map { $_ => operation($node, 'opaque') } qw(before finished after);
	is(grant($node, $later{$_}), 'ACQUIRED|1', "$_: granted") foreach qw(before finished);
	effect($later{$_}) foreach qw(before finished);
	is(value($node, commit_sql($later{finished}, '"first"')), 'OK', 'finished');
	value($node, "SELECT pg_create_restore_point('here')");
	is(value($node, commit_sql($later{before}, '"lost"')), 'OK', 'and after the target: one more finished');
	is(grant($node, $later{after}), 'ACQUIRED|1', 'and one more granted');
	effect($later{after});
	is(value($node, commit_sql($later{after}, '"lost"')), 'OK', 'and finished');
	value($node, 'SELECT pg_switch_wal()');

	my $copy = PostgreSQL::Test::Cluster->new('restored');
	$copy->init_from_backup($node, 'base', has_restoring => 1);
	$copy->append_conf('postgresql.conf', "archive_mode = off\nrecovery_target_name = 'here'\nrecovery_target_action = 'promote'\n");
	$node->stop;
	$copy->start;
	wait_until($copy, 'SELECT NOT pg_is_in_recovery()');
	sound($copy, 'restored');
	is(answer($copy, $op{$_}), $expected{$_}, "$_: $expected{$_}") foreach sort keys %op;
	is(answer($copy, $later{finished}), 'DONE|1|"first"', 'finished before the target: replayed');
	is(answer($copy, $later{before}), 'IN_FLIGHT|1|', 'in flight at the target: no plain grant, whatever came later');
	is(value($copy, commit_sql($later{before}, '"lost"')), 'OK', 'its holder, if it still knows, finishes it once more');
	is(settle($copy, $later{before}), 'DONE|"lost"', 'and it is replayed');

	# the limit: of what began after the target nothing is known here
	is(answer($copy, $later{after}), 'ACQUIRED|1|', 'granted after the target: not known, and so it would be granted again');
	# the remedy: no fingerprint of before may start anything, though the record still answers by key
	my $old = value($copy, 'SELECT id FROM idem_secrets WHERE signing');
	value($copy, "SELECT idem_rotate_secret(); SELECT idem_revoke_secret('$old')");
	is(answer($copy, $_), 'INVALID||', 'with the old secret revoked it is not') foreach $later{after}, $later{finished};
	is(status_key($copy, $later{finished}), 'DONE|1|"first"', 'while a key still finds its result');
	is(settle($copy, operation($copy, 'opaque')), 'DONE|"retried"', 'and new work goes on');
	cmp_ok(effects($_), '<=', 1, 'one effect at most') foreach values %later;
	sound($copy, 'in the end');
	$copy->stop;
};

$s->quit;
done_testing();
