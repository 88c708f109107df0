# Renamed schemas (P13; T2): whoever owns the schema that idem lies in, or pgcrypto, gives it another name, and puts objects
# of the same names and signatures into one with the former name.  All goes on under the new name, in new sessions and in
# those with warm caches, and nobody runs what was put there.
use strict;
use warnings;

use PostgreSQL::Test::Utils;
use Test::More;
use IdemTest;
use IdemAttack;

my $node = idem_node('renamed',
	shared_preload_libraries => 'idem',
	'idem.databases' => 'rented, owned, crypto',
	'idem.naptime' => '1',
	autovacuum => 'off',
	-extension => 0,
	log_statement => 'none');
attack_roles($node);

# Somebody else's look: new sessions of everybody, then the sessions that were there before, then the worker
sub look
{
	my ($db, $calls, $before, $warm, $size, $what) = @_;
	same_answers($before, play_all($node, $db, $calls, \@callers), "$what, in new sessions");
	same_answers($before, play_all($warm->{$_}, $db, $calls, $_), "$what, in a session that was there before as $_") foreach sort keys %$warm;
	is(worker_round($node, $db), 'done', "$what: a round of the worker is done");
	nothing_sprung($node, $size, $what);
	return;
}

# Rename the schema, once and back; each time the other name is full of traps
sub rename_schema
{
	my ($db, $schema) = @_;
	my $calls = bind_calls($node, $db);
	play_all($node, $db, $calls, \@callers) foreach 1 .. 2;
	my $before = play_all($node, $db, $calls, \@callers);
	my %warm = map { $_ => session($node, dbname => $db) } qw(postgres admin operator caller);
	play($warm{$_}, $db, $calls, $_) foreach sort keys %warm;

	my $size = log_size($node);
	act_ok($node, $db, [ "ALTER SCHEMA $schema RENAME TO ${schema}2", "CREATE SCHEMA $schema", "GRANT USAGE ON SCHEMA $schema TO PUBLIC" ]);
	act_ok($node, $db, namesakes($node, $db, $schema));
	look($db, $calls, $before, \%warm, $size, "$schema renamed");
	# a caller types names: the schema's new one is idem's
	is(value($node, qq{SELECT outcome FROM ${schema}2.idem_acquire_direct('alice', 'typed', '1'); SELECT length(${schema}2.idem_rotate_secret())}, $db),
		"ACQUIRED\n8", "$schema renamed: typed calls");

	$size = log_size($node);
	act_ok($node, $db, [ 'SET client_min_messages = error', "DROP SCHEMA $schema CASCADE", "ALTER SCHEMA ${schema}2 RENAME TO $schema",
		"CREATE SCHEMA ${schema}2", "GRANT USAGE ON SCHEMA ${schema}2 TO PUBLIC" ]);
	act_ok($node, $db, namesakes($node, $db, "${schema}2"));
	look($db, $calls, $before, \%warm, $size, "$schema renamed back");

	# to and fro, in sessions that are at work
	$size = log_size($node);
	foreach my $n (1 .. 5)
	{
		act_ok($node, $db, [ "ALTER SCHEMA $schema RENAME TO aside", "ALTER SCHEMA ${schema}2 RENAME TO $schema", "ALTER SCHEMA aside RENAME TO ${schema}2" ]);
		same_answers($before, play_all($warm{$_}, $db, $calls, $_, only => qr/acquire|commit|policy|secret|maintain|select|health/, except => $before),
			"to and fro, $n, as $_") foreach sort keys %warm;
	}
	nothing_sprung($node, $size, 'to and fro');
	$_->quit foreach values %warm;
	return;
}

subtest 'the installer owns the schema (T2)' => sub {
	value($node, 'CREATE DATABASE rented TEMPLATE template0; GRANT CREATE ON DATABASE rented TO attacker');
	spring_set($node, 'rented');
	act_ok($node, 'rented', [ 'CREATE SCHEMA idem', 'CREATE EXTENSION idem SCHEMA idem CASCADE' ]);
	open_schema($node, 'rented', 'idem');
	rename_schema('rented', 'idem');
};

subtest 'a superuser installs in public, and the owner of the database renames public (T2)' => sub {
	value($node, 'CREATE DATABASE owned TEMPLATE template0 OWNER attacker');
	spring_set($node, 'owned');
	catalog($node, 'owned', 'CREATE EXTENSION idem SCHEMA public CASCADE');
	open_schema($node, 'owned', 'public');
	rename_schema('owned', 'public');
};

# Secrets come from pgcrypto's generator, found as what it is
subtest 'the schema of pgcrypto (T2)' => sub {
	value($node, 'CREATE DATABASE crypto TEMPLATE template0; GRANT CREATE ON DATABASE crypto TO attacker');
	spring_set($node, 'crypto');
	act_ok($node, 'crypto', [ 'CREATE SCHEMA crypto', 'CREATE EXTENSION pgcrypto SCHEMA crypto' ]);
	catalog($node, 'crypto', 'CREATE EXTENSION idem SCHEMA public');
	open_schema($node, 'crypto', 'public');
	my $calls = bind_calls($node, 'crypto');
	my @who = qw(postgres admin);
	play_all($node, 'crypto', $calls, \@who, only => qr/secret/) foreach 1 .. 2;
	my $before = play_all($node, 'crypto', $calls, \@who, only => qr/secret/);
	my $warm = session($node, dbname => 'crypto');
	play($warm, 'crypto', $calls, 'admin', only => qr/secret/);

	my $fake = sub { trap("$_[0].gen_random_bytes", 'integer', 'bytea', value => q{decode(repeat('00', 32), 'hex')}) };
	my %attack = (
		'1 renamed' => [ 'ALTER SCHEMA crypto RENAME TO crypto2', 'CREATE SCHEMA crypto', 'GRANT USAGE ON SCHEMA crypto TO PUBLIC', $fake->('crypto') ],
		'2 moved' => [ 'CREATE SCHEMA crypto3', 'GRANT USAGE ON SCHEMA crypto3 TO PUBLIC' ],
		'3 with an overload' => [ trap('crypto3.gen_random_bytes', 'bigint', 'bytea'), trap('crypto3.gen_random_bytes', 'integer, x integer DEFAULT 0', 'bytea'),
			'ALTER EXTENSION pgcrypto ADD FUNCTION crypto3.gen_random_bytes(integer, integer)' ],
		'4 with another in front' => [ $fake->('evil'), 'ALTER EXTENSION pgcrypto ADD FUNCTION evil.gen_random_bytes(integer)' ]);
	foreach my $what (sort keys %attack)
	{
		my $size = log_size($node);
		act_ok($node, 'crypto', $attack{$what});
		# its functions are a superuser's
		catalog($node, 'crypto', 'ALTER EXTENSION pgcrypto SET SCHEMA crypto3') if $what =~ /moved/;
		# with two of them, one is refused or the true one is taken
		my $compare = $what =~ /^[34]/ ? \&same_or_refused : \&same_answers;
		$compare->($before, play_all($node, 'crypto', $calls, \@who, only => qr/secret/), "pgcrypto $what");
		$compare->($before, play_all($warm, 'crypto', $calls, 'admin', only => qr/secret/), "pgcrypto $what, in a session that was there before");
		nothing_sprung($node, $size, "pgcrypto $what");
	}
	is(catalog($node, 'crypto', q{SELECT count(*) FROM public.idem_secret WHERE secret = decode(repeat('00', 32), 'hex')}), '0', 'no secret is the attacker\'s');
	$warm->quit;
};

$node->stop;
done_testing();
