# Tables of idem that are the attacker's own (P13; T17): after REASSIGN OWNED of a superuser's installation he hangs his code
# on them in every way there is.  Every call by others answers as before or 55000, and does not run it.
#
# Not idem's doing, as in all of PostgreSQL: who types a statement against a table runs what its owner hung on it, and who
# reads a view reads its tables as its owner has them.  So what is altered is not named directly here; all else is called.
use strict;
use warnings;

use PostgreSQL::Test::Utils;
use Test::More;
use IdemTest;
use IdemAttack;

my $node = idem_node('owned', autovacuum => 'off', -extension => 0, log_statement => 'none');
attack_roles($node);
hand_over($node, 'passed');

my $calls = bind_calls($node, 'passed');
my @who = qw(postgres signer caller operator admin);
# of the claims that replies are made of, one will do; where many things are tried, of all calls one of each kind
my $many = qr/ (?!DONE)[A-Z_]+$/;
my $few = qr/^(?:idem_(?:sign|acquire|commit|status_key|preview|reply|http|reconcile|maintain|purge|grant|revoke|rotate_secret|import_secret|health|execute)\(.*\)(?: DONE)?|hung idem_require|(?:insert|update|delete) idem_policy|select idem_\w+)$/;
my $warm = session($node, dbname => 'passed');
play_all($warm, 'passed', $calls, \@who, skip => $many) foreach 1 .. 2;
my $before = play_all($warm, 'passed', $calls, \@who, skip => $many);

# Alter, look, undo, look. No row is put in by statements of ours meanwhile. direct: what calls the altered object by its name
sub alter
{
	my ($what, $do, $undo, $direct, %how) = @_;
	my $size = log_size($node);
	my $skip = $how{all} ? qr/$many|$direct/ : $direct;
	my %only = $how{all} ? () : (only => $few);
	act_ok($node, 'passed', $do);
	my $compare = $how{welcome} ? \&same_answers : \&same_or_refused;
	$compare->($before, play_all($warm, 'passed', $calls, \@who, skip => $skip, except => $before, idle => qr/work/, %only), $what);
	$compare->($before, play_all($node, 'passed', $calls, ['caller'], skip => $skip, except => $before, idle => qr/work/, only => $few), "$what, in a new session");
	# what runs with its owner's rights, and would be held to his policy, says so
	like((psql_error($node, 'SELECT * FROM idem.idem_health()', 'passed'))[0], qr/^(?:42501)?$/, "$what, and health") if $how{health};
	act_ok($node, 'passed', [ 'SET client_min_messages = error', @$undo ]);
	nothing_sprung($node, $size, $what);
	same_answers($before, play_all($warm, 'passed', $calls, 'caller', only => qr/^idem_(?:acquire|commit)/, except => $before), "$what, and undone");
	return;
}

foreach my $table (grep { $_->{kind} eq 'r' } relations($node, 'passed'))
{
	my $name = $table->{full};
	my $first = $table->{columns}[0][0];
	my ($other) = map { $_->[0] } grep { $_->[3] && $_->[1] eq 'text' } @{ $table->{columns} };
	my $direct = qr/^(?:insert|update|delete) $table->{name}$/;
	my $read = qr/^(?:(?:insert|update|delete) $table->{name}|select \w+|idem_health\(.*)$/;
	my $rls = $table->{name} eq 'idem_secret' ? 'NO FORCE ROW LEVEL SECURITY' : 'NO FORCE ROW LEVEL SECURITY, DISABLE ROW LEVEL SECURITY';
	subtest $table->{name} => sub {
		alter('a plain index is welcome', ["CREATE INDEX aa_plain ON $name ($first)"], ['DROP INDEX idem.aa_plain'], qr/^$/, welcome => 1);
		alter('an index on an expression (T17)', ["CREATE INDEX aa_bait ON $name ((evil.bait($first)))"], ['DROP INDEX idem.aa_bait'], $direct, all => 1);
		alter('an index with a predicate', ["CREATE INDEX aa_bait ON $name ($first) WHERE evil.bait_bool($first)"], ['DROP INDEX idem.aa_bait'], $direct);
		alter('an exclusion constraint', ["ALTER TABLE $name ADD CONSTRAINT aa_bait EXCLUDE USING btree ((evil.bait($first)) WITH =)"], ["ALTER TABLE $name DROP CONSTRAINT aa_bait"], $direct)
		  if $table->{name} !~ /idem_policy_version|idem_guidance/;
		alter('a trigger', ["CREATE TRIGGER aa_bait BEFORE INSERT OR UPDATE OR DELETE ON $name FOR EACH ROW EXECUTE FUNCTION evil.bait_trigger()", "ALTER TABLE $name ENABLE ALWAYS TRIGGER aa_bait"],
			["DROP TRIGGER aa_bait ON $name"], $direct);
		alter('a trigger for the statement', ["CREATE TRIGGER aa_bait AFTER INSERT OR UPDATE OR DELETE ON $name FOR EACH STATEMENT EXECUTE FUNCTION evil.bait_trigger()"],
			["DROP TRIGGER aa_bait ON $name"], $direct);
		alter('a rule', ["CREATE RULE aa_bait AS ON INSERT TO $name DO ALSO SELECT evil.bait_text()"], ["DROP RULE aa_bait ON $name"], $direct);
		alter('a default', ["ALTER TABLE $name ALTER $other SET DEFAULT evil.bait_text()"], ["ALTER TABLE $name ALTER $other DROP DEFAULT"], $direct) if defined $other;
		alter('a check', ["ALTER TABLE $name ADD CONSTRAINT aa_bait CHECK (evil.bait_bool($first)) NOT VALID"], ["ALTER TABLE $name DROP CONSTRAINT aa_bait"], $direct);
		alter('a child', ["CREATE TABLE evil.child () INHERITS ($name)", "CREATE INDEX ON evil.child ((evil.bait($first)))"], ['DROP TABLE evil.child'], $direct);
		alter('a parent', ["CREATE TABLE evil.parent (LIKE $name)", "ALTER TABLE $name INHERIT evil.parent"], ["ALTER TABLE $name NO INHERIT evil.parent", 'DROP TABLE evil.parent'], $direct);
		alter('row security', ["CREATE POLICY aa_bait ON $name USING (evil.bait_bool($first)) WITH CHECK (evil.bait_bool($first))", "ALTER TABLE $name ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY"],
			["DROP POLICY aa_bait ON $name", "ALTER TABLE $name $rls"], $read, health => 1);
	};
}

# What cannot be undone, in copies: columns that are computed, or of his type
subtest 'columns' => sub {
	$warm->quit;
	foreach my $table (grep { $_->{kind} eq 'r' } relations($node, 'passed'))
	{
		catalog($node, 'postgres', 'CREATE DATABASE copy TEMPLATE passed');
		my $size = log_size($node);
		act_ok($node, 'copy', [
			"ALTER TABLE $table->{full} ADD bait text GENERATED ALWAYS AS (evil.bait($table->{columns}[0][0])) STORED",
			'CREATE DOMAIN evil.bait_domain AS text CHECK (evil.bait_bool(VALUE))', "ALTER TABLE $table->{full} ADD bait_too evil.bait_domain DEFAULT evil.bait_text()" ]);
		same_or_refused($before, play_all($node, 'copy', $calls, \@who, skip => qr/^(?:insert|update|delete) $table->{name}$/, except => $before, idle => qr/work/, only => $few), $table->{name});
		nothing_sprung($node, $size, $table->{name});
		catalog($node, 'postgres', 'DROP DATABASE copy');
	}
};

$node->stop;
done_testing();
