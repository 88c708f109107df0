# Planted overloads (P13; T1, T7, T10): functions, operators, tables and types with the names of idem's and PostgreSQL's, in
# every schema that an attacker can write to, before the extension is created and after.  Everybody does everything, the
# worker too, and none of the planted code runs for anybody but the attacker.
use strict;
use warnings;

use PostgreSQL::Test::Utils;
use Test::More;
use IdemTest;
use IdemAttack;

my $node = idem_node('planted',
	shared_preload_libraries => 'idem',
	'idem.databases' => 'rented, owned',
	'idem.naptime' => '1',
	autovacuum => 'off',
	log_statement => 'none');
attack_roles($node);
my @roles = (@callers, 'attacker');
# rented: the attacker may create schemas, and installs. owned: it is his, public with it, and a superuser installs
value($node, 'CREATE DATABASE rented TEMPLATE template0; GRANT CREATE ON DATABASE rented TO attacker; CREATE DATABASE owned TEMPLATE template0 OWNER attacker');

# What the attacker has planted in the extension's schema is taken away, but for what belongs to the extension
sub weed
{
	my ($db, $schema) = @_;
	catalog($node, $db, join ";\n", split /\n/, catalog($node, $db, qq{
		SELECT format('DROP FUNCTION %s CASCADE', p.oid::regprocedure) FROM pg_proc AS p
			WHERE pronamespace = '$schema'::regnamespace AND NOT EXISTS (SELECT FROM pg_depend AS d WHERE d.objid = p.oid AND d.deptype = 'e')}));
	return;
}

# How many functions the attacker has in a schema
sub planted
{
	my ($db, $schema) = @_;
	return catalog($node, $db, "SELECT count(*) FROM pg_proc WHERE pronamespace = '$schema'::regnamespace AND proowner = 'attacker'::regrole");
}

sub attack
{
	my ($db, $schema, $install) = @_;
	my $names = scalar members($node, 'postgres');
	my $installer = $db eq 'rented' ? 'attacker' : 'postgres';
	spring_set($node, $db);
	act($node, $db, [ "CREATE SCHEMA IF NOT EXISTS $schema", catalog_traps('evil'), @{ overloads($node, 'postgres', 'evil') } ]);
	cmp_ok(planted($db, 'evil'), '>', 1000 + 2 * $names, "$db: there are functions and operators named as PostgreSQL's and idem's");

	# before: what he knows of idem is what an installation elsewhere has.  A call that fits an overload with a default
	# just as well is refused by PostgreSQL: who may create functions there can hinder an installation, as he could by
	# taking a name.  Of those that fit worse or better comes nothing
	foreach my $kind (grep { $_ ne 'same' } reverse @kinds)
	{
		my $size = log_size($node);
		weed($db, $schema);
		act($node, $db, overloads($node, 'postgres', $schema, beside => 1, kind => $kind));
		my $err = act($node, $db, [ @{ overloads($node, 'postgres', 'pg_temp') }, 'SET search_path = evil, pg_catalog, public', $install ], $installer);
		my ($fault) = $err =~ /ERROR:  (.*is not unique)/;
		is(catalog($node, $db, q{SELECT extowner::regrole FROM pg_extension WHERE extname = 'idem'}), $fault ? '' : $installer,
			"$db: among overloads, $kind, " . ($fault ? "a call in the script $fault" : 'it is installed (T1)'));
		nothing_sprung($node, $size, "$db: installed among overloads, $kind (T1)");
		catalog($node, $db, 'DROP EXTENSION IF EXISTS idem') if $kind ne 'text';
	}

	# what a caller types is his affair: calls are bound while nothing is planted
	weed($db, $schema);
	open_schema($node, $db, $schema);
	my $calls = bind_calls($node, $db);
	play_all($node, $db, $calls, \@roles);
	my $before = play_all($node, $db, $calls, \@roles);
	my $warm = session($node, dbname => $db);
	play($warm, $db, $calls, 'operator');

	# and after
	my $size = log_size($node);
	act($node, $db, [ @{ overloads($node, $db, $schema, beside => 1) }, @{ namesakes($node, $db, 'evil') } ]);
	act($node, $db, "ALTER DATABASE $db SET search_path = evil, pg_catalog, public");
	cmp_ok(planted($db, $schema), '>', 3 * $names, "$db: afterwards there are more");
	my $now = play_all($node, $db, $calls, \@callers, path => 'evil, pg_catalog, public, pg_temp');
	same_answers($before, $now, "$db: among traps");
	is($now->{'operator idem_maintain()'}, '00000', "$db: idem_maintain() works (T7)");
	same_answers($before, play_all($warm, $db, $calls, 'operator', path => 'evil, pg_catalog, public, pg_temp'), "$db: in a session that was there before");
	nothing_sprung($node, $size, "$db: everybody does everything (P13, T7, T10)");

	# the attacker himself, with temporary objects of idem's names
	$size = log_size($node);
	my $own = session($node, dbname => $db, user => 'attacker');
	$own->query(join ";\n", @{ overloads($node, $db, 'pg_temp') }, @{ namesakes($node, $db, 'pg_temp') });
	my $script = join "\n", map { ($_->{fresh} ? "SELECT play.$_->{fresh}();" : ()) . "$_->{sql};" } @$calls;
	$own->query("SET search_path = pg_temp, evil, pg_catalog; $script");
	isnt($own->sqlstate, '08006', "$db: the attacker's own session lives");
	nothing_sprung($node, $size, "$db: with temporary objects");

	$size = log_size($node);
	is(worker_round($node, $db), 'done', "$db: a round of the worker is done");
	nothing_sprung($node, $size, "$db: the worker");

	# updates have nothing to do yet, and look at nothing of his
	$size = log_size($node);
	catalog($node, $db, "SET search_path = evil, pg_catalog; ALTER EXTENSION idem UPDATE");
	nothing_sprung($node, $size, "$db: ALTER EXTENSION UPDATE");
	$_->quit foreach $warm, $own;
	return;
}

subtest 'a role that may create schemas installs among its own overloads (T1)' => sub {
	attack('rented', 'x', 'CREATE EXTENSION idem SCHEMA x CASCADE');
};

subtest 'a superuser installs in public, where the owner of the database has been before (T1)' => sub {
	attack('owned', 'public', 'CREATE EXTENSION idem SCHEMA public CASCADE');
};

# What the script would make is there already: refused, and nothing of it is taken over
subtest 'names that are taken' => sub {
	value($node, 'CREATE DATABASE taken TEMPLATE template0; GRANT CREATE ON DATABASE taken TO attacker');
	spring_set($node, 'taken');
	my $size = log_size($node);
	act($node, 'taken', 'CREATE SCHEMA x');
	foreach my $plant (@{ namesakes($node, 'postgres', 'x') })
	{
		next unless $plant =~ /^CREATE (?:OR REPLACE )?(?:TABLE|VIEW|TYPE|FUNCTION) x\.(_?idem_\w+)/;
		# those with types of idem's own do not exist before it does
		next if act($node, 'taken', $plant) ne '';
		my ($rc, undef, $err) = $node->psql('taken', 'CREATE EXTENSION idem SCHEMA x CASCADE', extra_params => [ '-U', 'attacker' ]);
		like($err, qr/already exists|is not a member of extension/, "$1 is taken: no installation");
		act($node, 'taken', 'DROP SCHEMA x CASCADE; CREATE SCHEMA x');
	}
	nothing_sprung($node, $size, 'names that are taken');
};

$node->stop;
done_testing();
