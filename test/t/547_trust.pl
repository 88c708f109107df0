# What else others may not do or learn through idem (P13): alerts listened to (T8), operators in front of PostgreSQL's (T10),
# another reading of literals (T11), row security that an event trigger switches on (T13), and a stranger of a function's
# name in idem's schema (T18).
use strict;
use warnings;

use PostgreSQL::Test::Utils;
use Test::More;
use IdemTest;
use IdemAttack;

my $node = idem_node('trust',
	shared_preload_libraries => 'idem',
	'idem.databases' => 'postgres',
	'idem.naptime' => '1',
	autovacuum => 'off');
attack_roles($node);
open_schema($node, 'postgres', 'public');
my $install = 'SET client_min_messages = warning; CREATE EXTENSION idem CASCADE';

subtest 'a listener without any grant learns no key and nothing of a subject (T8)' => sub {
	my $listener = session($node, user => 'nobody');
	$listener->query_ok('LISTEN idem_alert');
	value($node, q{INSERT INTO idem_policy (scope, downstream_max, gateway_timeout, retry_backoff, in_flight_ttl) VALUES ('secretive', '1 us', '1 us', '1 us', '4 us')});
	my ($told, @key) = ('');
	# a round has told of all when the one after it has raised its own
	foreach my $n (1 .. 4)
	{
		my $key = value($node, "SELECT key FROM idem_acquire_direct('alice-$n', 'secretive', '$n')");
		push @key, $key, idem_words($key);
		wait_until($node, "SELECT count(*) = 1 FROM idem_alert WHERE kind = 'stuck' AND key = '$key'");
		$told .= $listener->query_ok('SELECT 1');
	}
	like($told, qr/notification "idem_alert"/, 'it hears that there is something to look at');
	foreach my $word (@key, 'alice', 'secretive')
	{
		unlike($told, qr/\Q$word\E/i, "but not \"$word\"");
	}
	$listener->quit;
};

# A key, and the same without its dashes
sub idem_words { return $_[0] =~ s/-//gr }

subtest 'operators in front of PostgreSQL\'s (T10)' => sub {
	value($node, q{
		CREATE SCHEMA trap;
		CREATE FUNCTION trap.sprung("char", "char") RETURNS bool LANGUAGE plpgsql AS 'BEGIN RAISE ''sprung''; END';
		CREATE FUNCTION trap.sprung("char", text) RETURNS bool LANGUAGE plpgsql AS 'BEGIN RAISE ''sprung''; END';
		CREATE OPERATOR trap.= (FUNCTION = trap.sprung, LEFTARG = "char", RIGHTARG = "char");
		CREATE OPERATOR trap.= (FUNCTION = trap.sprung, LEFTARG = "char", RIGHTARG = text);
		SELECT idem_acquire_direct('alice', 'trap', '1')});
	my @views = map { $_->{name} } grep { $_->{kind} eq 'v' } relations($node, 'postgres');
	foreach my $view (@views)
	{
		my ($state, $said) = psql_error($node, "SET search_path = trap, pg_catalog; SELECT v.*::text FROM public.$view AS v");
		is("$state $said", ' ', $view);
	}
	my $s = session($node);
	is($s->query('SET search_path = trap, pg_catalog; SELECT DISTINCT downstream FROM public.idem_audit'), 'opaque', 'and they say what they should');
	$s->quit;
};

subtest 'standard_conforming_strings off (T11)' => sub {
	value($node, 'CREATE DATABASE literal TEMPLATE template0');
	my $off = 'SET standard_conforming_strings = off; SET escape_string_warning = off';
	my ($state, $said) = psql_error($node, "$off; $install", 'literal');
	is("$state $said", ' ', 'it installs');
	my $checks = q{SELECT string_agg(conname || ' ' || pg_get_constraintdef(c.oid), E'\n' ORDER BY conname) FROM pg_constraint AS c JOIN pg_class AS t ON t.oid = conrelid WHERE relname LIKE 'idem%'};
	is(value($node, $checks, 'literal'), value($node, $checks), 'with the same constraints');
	my $bodies = q{SELECT string_agg(pg_get_functiondef(p.oid), E'\n' ORDER BY p.oid::regprocedure::text COLLATE "C") FROM pg_proc AS p JOIN pg_depend AS d ON d.objid = p.oid AND d.deptype = 'e'
		JOIN pg_extension AS e ON e.oid = d.refobjid AND extname = 'idem'};
	is(value($node, $bodies, 'literal'), value($node, $bodies), 'and the same functions');
	foreach my $setting ('subject', 'idem.subject', 'appXsubject', 'app.sub ject', '.app')
	{
		my ($refused) = psql_error($node, "SELECT idem_grant('nobody', 'caller', '$setting')", 'literal');
		is($refused, '22023', "no binding to $setting");
	}
	is(value($node, q{SELECT idem_grant('nobody', 'caller', 'app.subject'); SELECT subject_setting FROM idem_binding}, 'literal') =~ s/^\n//r, 'app.subject', 'but to app.subject');
	my $s = session($node, dbname => 'literal');
	$s->query_ok($off);
	is($s->query(q{SELECT length(idem_import_secret(sha256('literal')))}), '8', 'and a secret comes in');
	is($s->query(q{SELECT length(idem_rotate_secret()); SELECT outcome FROM idem_acquire(idem_sign('alice', 's', '1'), 'alice', 's', '1')}), "8\nACQUIRED", 'all else works');
	$s->quit;
};

subtest 'row security on each new table (T13)' => sub {
	value($node, q{CREATE DATABASE hosted TEMPLATE template0});
	value($node, q{
		CREATE FUNCTION secure() RETURNS event_trigger LANGUAGE plpgsql AS $$
		DECLARE
			made record;
		BEGIN
			FOR made IN SELECT * FROM pg_event_trigger_ddl_commands() WHERE command_tag = 'CREATE TABLE' LOOP
				EXECUTE format('ALTER TABLE %s ENABLE ROW LEVEL SECURITY', made.object_identity);
			END LOOP;
		END
		$$;
		CREATE EVENT TRIGGER secure ON ddl_command_end WHEN TAG IN ('CREATE TABLE') EXECUTE FUNCTION secure()}, 'hosted');
	value($node, $install, 'hosted');
	open_schema($node, 'hosted', 'public');
	is(value($node, q{SELECT coalesce(string_agg(relname, ' '), '') FROM pg_class WHERE relname LIKE 'idem%' AND relrowsecurity AND relname <> 'idem_secret'}, 'hosted'), '', 'it is off on idem\'s tables');
	is(value($node, q{SELECT relrowsecurity FROM pg_class WHERE relname = 'idem_secret'}, 'hosted'), 't', 'but for the secrets');
	my $admin = session($node, dbname => 'hosted', user => 'admin');
	is($admin->query(q{INSERT INTO idem_policy (scope) VALUES ('stopped') RETURNING scope}), 'stopped', 'an admin writes policies');
	is($admin->query(q{UPDATE idem_policy SET enabled = false RETURNING scope}), 'stopped', 'and changes them');
	my ($state) = psql_error($node, q{SELECT idem_acquire_direct('alice', 'stopped', '1')}, 'hosted');
	is($state, '55000', 'which is obeyed');
	$admin->quit;
	value($node, 'ALTER TABLE idem_policy ENABLE ROW LEVEL SECURITY', 'hosted');
	my $seen = value($node, q{SELECT count(*) FROM idem_health() WHERE status <> 'ok' AND concat(detail, advice) ~* 'row (level )?security' AND concat(detail, advice) ~ 'idem_policy'}, 'hosted');
	cmp_ok($seen, '>', 0, 'where it is switched on later, idem_health() sees it');
};

# As in all of PostgreSQL a superuser who types a name runs what the schema's owner put there; idem tells of it
subtest 'a stranger of a member\'s name in idem\'s schema (T18)' => sub {
	value($node, 'CREATE DATABASE rented TEMPLATE template0; GRANT CREATE ON DATABASE rented TO attacker');
	spring_set($node, 'rented');
	act_ok($node, 'rented', [ 'CREATE SCHEMA s', 'CREATE EXTENSION idem SCHEMA s CASCADE' ]);
	my $health = q{SELECT count(*) FROM s.idem_health() WHERE status = 'bad' AND concat(detail, advice) ~ 'idem_grant'};
	is(value($node, $health, 'rented'), '0', 'nothing strange at first');
	act_ok($node, 'rented', [ trap('s.idem_grant', 'text, text', 'void') ]);
	my $size = log_size($node);
	cmp_ok(value($node, $health, 'rented'), '>', 0, 'idem_health() is bad, and names it');
	nothing_sprung($node, $size, 'idem_health()');
	act_ok($node, 'rented', [ 'DROP FUNCTION s.idem_grant(text, text)' ]);
	is(value($node, $health, 'rented'), '0', 'dropped, it is well');
};

$node->stop;
done_testing();
