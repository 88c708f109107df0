# IdemFault: what the tests of crashes, standbys, backups and upgrades share.
#
#   use IdemFault;
#   furnish($node);                    # policies; amcheck
#   my %op = states($node);            # one operation in each state, by name
#   my $op = operation($node, 'opaque');           # a fresh one: {token, key, scope}
#   grant($where, $op)                             # acquire it, keeping its owner in $op
#   answer($where, $op)                # what an acquire says, rolled back: "outcome|attempt|result"
#   status($where, $op), status_key($where, $op)   # "outcome|attempt|result"
#   settle($where, $op)                # play an honest client to the end; returns "outcome|result" of the last call
#   sound($node, 'after the crash');   # amcheck finds nothing, the fast table is empty
#
# $where is a node, or a session of it. The downstream is a hash here, outside every server: effects($op) counts what
# it did for an operation.
package IdemFault;

use strict;
use warnings;

use Exporter 'import';
use Test::More;
use IdemTest;

our @EXPORT = qw(furnish states answers_of_states operation acquire_sql commit_sql grant ask answer status status_key settle effect effects
  lease_over sound);

my $params = q{'{"amount": 100}'};
my %effects;

# Scopes of every kind of downstream, each with a long lease and with one that is soon over ("short_")
sub furnish
{
	my ($node) = @_;
	value($node, q{
		SET client_min_messages = warning;
		CREATE EXTENSION IF NOT EXISTS amcheck;
		CREATE TABLE booking (key uuid NOT NULL);
		INSERT INTO idem_policy (scope, downstream, in_flight_ttl) SELECT d, d, '1 hour' FROM unnest('{opaque,queryable,idempotent}'::text[]) AS d;
		INSERT INTO idem_policy (scope, downstream, downstream_max, gateway_timeout, retry_backoff, in_flight_ttl)
			SELECT 'short_' || d, d, '1 ms', '1 ms', '1 ms', '50 ms' FROM unnest('{opaque,queryable,idempotent}'::text[]) AS d;
		INSERT INTO idem_policy (scope, downstream) VALUES ('local', 'local');
		-- an honest client of a local scope: rows and claim in one transaction
		CREATE FUNCTION book(token text) RETURNS text LANGUAGE plpgsql AS $$
		DECLARE
			c idem_claim := idem_acquire(token, 'alice', 'local', '{"amount": 100}');
		BEGIN
			IF c.outcome = 'ACQUIRED' THEN
				INSERT INTO booking VALUES (c.key);
				IF idem_commit(c.key, c.owner, '"retried"') <> 'OK' THEN
					RAISE EXCEPTION 'not acknowledged';
				END IF;
			END IF;
			RETURN c.outcome;
		END
		$$});
	return;
}

# A statement's output, by a session or in a connection of its own
sub ask
{
	my ($where, $sql) = @_;
	return $where->isa('IdemTest::Session') ? $where->query_ok($sql) : value($where, $sql);
}

sub operation
{
	my ($where, $scope) = @_;
	my $token = ask($where, "SELECT idem_sign('alice', '$scope', $params)");
	return {
		token => $token,
		scope => $scope,
		key => ask($where, "SELECT key FROM idem_inspect('$token')") };
}

sub acquire_sql
{
	my ($op, $columns, $more) = @_;
	return "SELECT " . ($columns // 'outcome, attempt, result')
	  . " FROM idem_acquire('$op->{token}', 'alice', '$op->{scope}', $params" . ($more // '') . ')';
}

sub commit_sql
{
	my ($op, $result) = @_;
	return "SELECT idem_commit('$op->{key}', '$op->{owner}', '$result')";
}

# Acquire; the outcome and the attempt
sub grant
{
	my ($where, $op) = @_;
	my ($outcome, $attempt, $owner) = split /\|/, ask($where, acquire_sql($op, 'outcome, attempt, owner'));
	$op->{owner} = $owner if $outcome eq 'ACQUIRED';
	return "$outcome|$attempt";
}

sub answer
{
	my ($where, $op) = @_;
	return ask($where, 'BEGIN;' . acquire_sql($op) . '; ROLLBACK');
}

sub status
{
	my ($where, $op) = @_;
	return ask($where, "SELECT outcome, attempt, result FROM idem_status('$op->{token}', 'alice')");
}

sub status_key
{
	my ($where, $op) = @_;
	return ask($where, "SELECT outcome, attempt, result FROM idem_status_key('$op->{key}', 'alice')");
}

# The downstream does what it is told; one that deduplicates on the key does it once
sub effect
{
	my ($op) = @_;
	$effects{ $op->{key} }++ unless $op->{scope} =~ /idempotent/ && $effects{ $op->{key} };
	return;
}

# What it did were rows of a transaction that never committed
sub undo
{
	my ($op) = @_;
	delete $effects{ $op->{key} };
	return;
}

sub effects
{
	my ($op) = @_;
	return $effects{ $op->{key} } // 0;
}

# An honest client that knows nothing but its token: it acts when it is granted, and never else
sub settle
{
	my ($where, $op, $result) = @_;
	if ($op->{scope} eq 'local')
	{
		effect($op) if ask($where, "SELECT book('$op->{token}')") eq 'ACQUIRED';
	}
	elsif (grant($where, $op) =~ /^ACQUIRED/)
	{
		effect($op);
		is(ask($where, commit_sql($op, $result // '"retried"')), 'OK', 'a retry that was granted commits');
	}
	my ($outcome, $answer) = split /\|/, ask($where, acquire_sql($op, 'outcome, result')), 2;
	return "$outcome|$answer";
}

sub lease_over
{
	my ($node, @op) = @_;
	foreach my $op (@op)
	{
		wait_until($node, "SELECT lease_until <= clock_timestamp() FROM idem_record WHERE key = '$op->{key}'");
	}
	return;
}

# One operation in each state; those of a short lease have it over
sub states
{
	my ($node) = @_;
	my %op;
	foreach my $name (qw(done failed released retried unused))
	{
		$op{$name} = operation($node, 'opaque');
	}
	$op{"flight_$_"} = operation($node, $_) foreach qw(opaque queryable idempotent);
	$op{"over_$_"} = operation($node, "short_$_") foreach qw(opaque queryable idempotent);
	foreach my $name (sort keys %op)
	{
		next if $name eq 'unused';
		grant($node, $op{$name}) eq 'ACQUIRED|1' or die "$name is not granted";
		effect($op{$name}) unless $name =~ /released|failed|retried/;
	}
	my %finish = (
		done => commit_sql($op{done}, '{"charge": "ch_1", "n": 1.50}'),
		failed => "SELECT idem_fail('$op{failed}{key}', '$op{failed}{owner}', '\"no\"')",
		released => "SELECT idem_release('$op{released}{key}', '$op{released}{owner}')",
		retried => "SELECT idem_fail('$op{retried}{key}', '$op{retried}{owner}', '\"busy\"', true)");
	ask($node, $finish{$_}) eq 'OK' or die "$_ is not finished" foreach sort keys %finish;
	lease_over($node, map { $op{"over_$_"} } qw(opaque queryable idempotent));
	return %op;
}

# What an acquire of each of them is answered: outcome, attempt and result
sub answers_of_states
{
	return (
		done => 'DONE|1|{"n": 1.50, "charge": "ch_1"}',
		failed => 'FAILED|1|"no"',
		released => 'ACQUIRED|2|',
		retried => 'ACQUIRED|2|',
		flight_opaque => 'IN_FLIGHT|1|',
		flight_queryable => 'IN_FLIGHT|1|',
		flight_idempotent => 'IN_FLIGHT|1|',
		over_opaque => 'RECONCILE|1|',
		over_queryable => 'RECONCILE|1|',
		over_idempotent => 'ACQUIRED|2|',
		unused => 'ACQUIRED|1|');
}

# The server's files are as they should be, and nothing is left in the fast table
sub sound
{
	my ($node, $name, $dbname) = @_;
	my $faults = value($node, q{
		WITH own AS (SELECT oid, relname FROM pg_class WHERE relkind = 'r' AND relname ~ '^(idem_|booking)' AND relpersistence = 'p')
		SELECT count(*) FROM own, verify_heapam(oid, check_toast => true)}, $dbname);
	my $indexes = value($node, q{
		SELECT count(bt_index_check(i.indexrelid, true)::text) FROM pg_index AS i JOIN pg_class AS c ON c.oid = indrelid
			WHERE relname ~ '^(idem_|booking)'}, $dbname);
	is($faults, 0, "$name: amcheck finds no fault in the tables");
	cmp_ok($indexes, '>=', 8, "$name: nor in $indexes indexes");
	is(value($node, 'SELECT count(*) FROM idem_fast', $dbname), 0, "$name: the fast table is empty");
	return;
}

1;
