# Members that are not the script's (P13; T3, T16): the extension's owner adds objects of his own to it, with the names of
# idem's tables, types and functions and of every kind, on which his code hangs.  Every call answers as before, or 55000;
# none runs his code, and none crashes.  Once they are taken out again all is as before.
use strict;
use warnings;

use PostgreSQL::Test::Utils;
use Test::More;
use IdemTest;
use IdemAttack;

my $node = idem_node('members',
	shared_preload_libraries => 'idem',
	'idem.databases' => 'rented',
	'idem.naptime' => '1',
	autovacuum => 'off',
	-extension => 0,
	log_statement => 'none');
attack_roles($node);
value($node, 'CREATE DATABASE rented TEMPLATE template0; GRANT CREATE ON DATABASE rented TO attacker');
spring_set($node, 'rented');
act_ok($node, 'rented', [ 'CREATE SCHEMA s', 'CREATE EXTENSION idem SCHEMA s CASCADE' ]);
open_schema($node, 'rented', 's');
catalog($node, 'rented', 'CREATE FOREIGN DATA WRAPPER dummy; CREATE SERVER dummy FOREIGN DATA WRAPPER dummy; GRANT USAGE ON FOREIGN SERVER dummy TO attacker');

my $calls = bind_calls($node, 'rented');
my @who = qw(postgres caller operator admin);
# of the claims that replies are made of, one will do
my %some = (skip => qr/ (?!DONE)[A-Z_]+$/);
# and of all calls, where many things are tried, one of each kind
my %few = (only => qr/^(?:idem_(?:acquire|commit|status_key|preview|reply|reconcile|maintain|grant|rotate_secret|health)\(.*\)(?: DONE)?|insert idem_policy|select idem_stuck)$/);
my $warm = session($node, dbname => 'rented');
play_all($warm, 'rented', $calls, \@who, %some) foreach 1 .. 2;
my $before = play_all($warm, 'rented', $calls, \@who, %some);

# Add, look, take out, look
sub add
{
	my ($what, $make, $member, $drop, $all) = @_;
	my %which = $all ? %some : %few;
	my $size = log_size($node);
	my @members = ref $member ? @$member : $member;
	act_ok($node, 'rented', [ @$make, map { "ALTER EXTENSION idem ADD $_" } @members ]);
	same_or_refused($before, play_all($warm, 'rented', $calls, \@who, %which, except => $before), $what);
	same_or_refused($before, play_all($node, 'rented', $calls, [qw(postgres caller)], %few, except => $before), "$what, in new sessions") if $all;
	act_ok($node, 'rented', [ 'SET client_min_messages = error', (map { "ALTER EXTENSION idem DROP $_" } @members), map { "DROP $_ CASCADE" } @$drop ]);
	nothing_sprung($node, $size, $what);
	same_answers($before, play_all($warm, 'rented', $calls, 'caller', %some, only => qr/acquire|commit|status/, except => $before), "$what, and taken out again");
	return;
}

act_ok($node, 'rented', [
	trap('evil.bait_text', '', 'text'),
	trap('evil.bait', 'anyelement', 'text', immutable => 1, value => '$1::text'),
	trap('evil.bait_bool', 'anyelement', 'boolean', immutable => 1, value => 'true'),
	trap('evil.bait_trigger', '', 'trigger'),
	'CREATE DOMAIN evil.bait_domain AS text CHECK (evil.bait_bool(VALUE))' ]);

# Tables -----------------------------------------------------------------------------------------------------

foreach my $table (grep { $_->{kind} eq 'r' } relations($node, 'rented'))
{
	my $name = "evil.$table->{name}";
	my $first = $table->{columns}[0][0];
	my $columns = join ', ', map { "$_->[0] $_->[1]" . ($_->[2] ? ' NOT NULL' : '') } @{ $table->{columns} };
	# secrets are not even for the installer to read
	my $like = $table->{name} eq 'idem_secret' ? "$columns, PRIMARY KEY ($first)" : "LIKE $table->{full} INCLUDING ALL";
	subtest $table->{name} => sub {
		add('a table with an index on a function (T3)', [ "CREATE TABLE $name ($like)", "CREATE INDEX ON $name ((evil.bait($first)))" ], "TABLE $name", ["TABLE $name"]);
		add('a table with all that can hang on one', [
			"CREATE TABLE $name ($like)",
			"CREATE INDEX ON $name (($first IS NULL)) WHERE evil.bait_bool($first)",
			"CREATE TRIGGER t BEFORE INSERT OR UPDATE OR DELETE ON $name FOR EACH ROW EXECUTE FUNCTION evil.bait_trigger()",
			"CREATE TRIGGER s AFTER INSERT OR UPDATE OR DELETE ON $name FOR EACH STATEMENT EXECUTE FUNCTION evil.bait_trigger()",
			"ALTER TABLE $name ENABLE ALWAYS TRIGGER t",
			"CREATE RULE r AS ON INSERT TO $name DO ALSO SELECT evil.bait_text()",
			"ALTER TABLE $name ADD CHECK (evil.bait_bool($first))",
			"ALTER TABLE $name ALTER $first SET DEFAULT evil.bait_text()::$table->{columns}[0][1]",
			"ALTER TABLE $name ADD g text GENERATED ALWAYS AS (evil.bait('g'::text)) STORED",
			"ALTER TABLE $name ADD d evil.bait_domain DEFAULT evil.bait_text()",
			"ALTER TABLE $name ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY",
			"CREATE POLICY p ON $name USING (evil.bait_bool($first)) WITH CHECK (evil.bait_bool($first))" ], "TABLE $name", ["TABLE $name"], 'all');
		add('a partitioned table', [
			"CREATE TABLE $name ($columns) PARTITION BY LIST ((evil.bait($first)))",
			"CREATE TABLE evil.part PARTITION OF $name DEFAULT" ], "TABLE $name", ["TABLE $name"]);
		add('a view', [ trap_view($name, $table) ], "VIEW $name", ["VIEW $name"]);
		add('a materialized view', [ trap_view($name, $table) =~ s/CREATE VIEW/CREATE MATERIALIZED VIEW/r . ' WITH NO DATA' ],
			"MATERIALIZED VIEW $name", ["MATERIALIZED VIEW $name"]);
		add('a foreign table', [ "CREATE FOREIGN TABLE $name ($columns) SERVER dummy" ], "FOREIGN TABLE $name", ["FOREIGN TABLE $name"]);
		add('a sequence', [ "CREATE SEQUENCE $name" ], "SEQUENCE $name", ["SEQUENCE $name"]);
	};
}

# Views, by a table and a view -------------------------------------------------------------------------------

foreach my $view (grep { $_->{kind} eq 'v' } relations($node, 'rented'))
{
	my $name = "evil.$view->{name}";
	subtest $view->{name} => sub {
		add('a view', [ trap_view($name, $view) ], "VIEW $name", ["VIEW $name"]);
	};
}

# Types ------------------------------------------------------------------------------------------------------

foreach my $type (types($node, 'rented'))
{
	my $name = "evil.$type->{name}";
	my @labels = @{ $type->{labels} // ['x'] };
	subtest $type->{name} => sub {
		add('an enum of the same labels', [ "CREATE TYPE $name AS ENUM (" . join(', ', map { "'$_'" } @labels) . ')' ], "TYPE $name", ["TYPE $name"]);
		add('an enum of others', [ "CREATE TYPE $name AS ENUM ('NO')" ], "TYPE $name", ["TYPE $name"]);
		add('a composite type', [ "CREATE TYPE $name AS (outcome evil.bait_domain, key text)" ], "TYPE $name", ["TYPE $name"]);
		add('a domain', [ "CREATE DOMAIN $name AS text CHECK (evil.bait_bool(VALUE))" ], "DOMAIN $name", ["DOMAIN $name"]);
	};
}

# Functions --------------------------------------------------------------------------------------------------

subtest 'functions' => sub {
	my @functions = members($node, 'rented');
	my $signature = sub { "FUNCTION evil.$_[0]{name}(" . join(', ', map { $_->[1] } @{ $_[0]{args} }) . ')' };
	my $make = sub { trap("evil.$_[0]{name}", $_[0]{arguments}, $_[0]{result}, out => $_[0]{out}) };
	add('the same ones, all', [ map { $make->($_) } @functions ], [ map { $signature->($_) } @functions ], [ map { $signature->($_) } @functions ], 'all');
	foreach my $name (qw(_idem_stale _idem_close idem_acquire idem_purge idem_new))
	{
		my ($f) = (grep({ $_->{name} eq $name } @functions), { name => $name, args => [], arguments => '', result => 'void' });
		add("one, $name", [ $make->($f) ], $signature->($f), [ $signature->($f) ]);
		# beside idem's own, where that can be (T16)
		my $beside = trap("s.$name", 'evil.bait_domain', 'void');
		add("an overload, $name, in idem's schema", [$beside], "FUNCTION s.$name(evil.bait_domain)", ["FUNCTION s.$name(evil.bait_domain)"]);
	}
};

# The worker, where it meets one -----------------------------------------------------------------------------

subtest 'the worker' => sub {
	my $size = log_size($node);
	foreach my $name (qw(idem_alert idem_record))
	{
		act_ok($node, 'rented', [ "CREATE TABLE evil.$name (LIKE s.$name INCLUDING ALL)", "CREATE INDEX ON evil.$name ((evil.bait(key)))", "ALTER EXTENSION idem ADD TABLE evil.$name" ]);
		like(worker_round($node, 'rented'), qr/^(?:refused|done)$/, "$name: a round passes");
		act_ok($node, 'rented', [ "ALTER EXTENSION idem DROP TABLE evil.$name", "DROP TABLE evil.$name" ]);
		is(worker_round($node, 'rented'), 'done', "$name: taken out, a round is done");
	}
	nothing_sprung($node, $size, 'the worker');
};

same_answers($before, play_all($warm, 'rented', $calls, \@who, %some), 'in the end');
$warm->quit;
$node->stop;
done_testing();
