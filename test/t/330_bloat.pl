# A long transaction keeps dead rows from being removed: idem goes on, right and bounded, and is as small as before
# when that transaction has ended (P8; H08).
use strict;
use warnings;

use Test::More;
use IdemTest;

my $node = idem_node('bloat', autovacuum => 'off', fsync => 'off');
value($node, q{
	CREATE PROCEDURE work(scope text, n int) LANGUAGE plpgsql AS $$
	DECLARE
		c idem_claim;
	BEGIN
		FOR i IN 1 .. n LOOP
			-- in two transactions, and then in one
			c := idem_acquire_direct('alice', scope, to_jsonb(i), client_key => 'two ' || i);
			COMMIT;
			PERFORM idem_commit(c.key, c.owner, to_jsonb(i));
			COMMIT;
			c := idem_acquire_direct('alice', scope, to_jsonb(i), client_key => 'one ' || i);
			PERFORM idem_commit(c.key, c.owner, to_jsonb(i));
			COMMIT;
		END LOOP;
	END $$});

sub pages { return value($node, "SELECT pg_relation_size('$_[0]') / current_setting('block_size')::int") }

# How many rows of a table are dead, and how many of those no VACUUM could remove
sub kept_dead
{
	my ($table) = @_;
	my ($out, $err);
	$node->psql('postgres', "VACUUM (VERBOSE) $table", stderr => \$err);
	return $err =~ /(\d+) are dead but not yet removable/ ? $1 : die "unexpected: $err";
}

my $rounds = 1000;

# nobody looks back
value($node, "CALL work('free', $rounds)");
my $fast = pages('idem_fast');
is(kept_dead('idem_fast'), '0', 'without a long transaction nothing is kept in the fast table');
is(kept_dead('idem_record'), '0', 'nor in the record');
cmp_ok($fast, '<', 20, "the fast table stays small by itself, without any VACUUM: $fast pages for 2,000 claims");

# somebody does
my $old = session($node);
$old->query_ok('BEGIN ISOLATION LEVEL REPEATABLE READ');
$old->query_ok('SELECT 1');
value($node, "CALL work('held', $rounds)");
is(kept_dead('idem_record'), $rounds, 'held: one dead version for each claim that outlived its transaction');
is(kept_dead('idem_fast'), 2 * $rounds, 'held: one dead row for each claim in the fast table');
my $held = pages('idem_fast');
is(value($node, q{SELECT count(*) FROM idem_record WHERE scope = 'held' AND state = 'D'}), 2 * $rounds, 'held: and all is done');
is(value($node, q{SELECT outcome, result FROM idem_acquire_direct('alice', 'held', '7', client_key => 'two 7')}), 'DONE|7', 'held: replayed');

# the long transaction ends
$old->query_ok('COMMIT');
is(kept_dead('idem_fast'), '0', 'after: nothing is kept in the fast table');
is(kept_dead('idem_record'), '0', 'after: nor in the record');
value($node, "CALL work('after', $rounds)");
cmp_ok(pages('idem_fast'), '<=', $held, 'after: the fast table does not grow again');
is(value($node, 'SELECT count(*) FROM idem_fast'), '0', 'and is empty, as ever');

done_testing();
