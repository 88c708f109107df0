# idem_health() and an installation that is not as it was made: row security that an event trigger switches on (T13), a
# restore that leaves triggers behind (T14), a stranger's functions in the schema (T18). It warns, says what to run, and
# is content when that is done; and it speaks where calls are refused (P11, P13).
use strict;
use warnings;

use IPC::Run;
use PostgreSQL::Test::Utils;
use Test::More;
use IdemTest;

my $node = idem_node('health', -extension => 0);
my $folder = PostgreSQL::Test::Utils::tempdir();

# What is wrong, but for the server and its settings
sub faults
{
	my ($dbname, $schema) = @_;
	return value($node, 'SELECT name, status, detail FROM ' . ($schema // 'public') . q{.idem_health()
		WHERE status <> 'ok' AND name NOT IN ('preload', 'worker', 'durability', 'replication', 'horizon') ORDER BY 1, 3}, $dbname);
}

sub advice
{
	my ($dbname, $name) = @_;
	return value($node, "SELECT string_agg(advice, ' ') FROM public.idem_health() WHERE name = '$name' AND status <> 'ok'", $dbname);
}

sub run
{
	my ($name, @command) = @_;
	my ($out, $err) = ('', '');
	local %ENV = (%ENV, PGHOST => $node->host, PGPORT => $node->port);
	ok(IPC::Run::run([ $node->installed_command($command[0]), @command[ 1 .. $#command ] ], '>', \$out, '2>', \$err), $name)
	  or diag("@command: $err");
	return;
}

sub as
{
	my ($user, $dbname, $sql) = @_;
	my ($rc, $out, $err) = $node->psql($dbname, $sql, extra_params => [ '-U', $user ]);
	chomp $err;
	return "$out$err";
}

value($node, q{CREATE ROLE ruler LOGIN; CREATE ROLE caller LOGIN});
value($node, "CREATE DATABASE $_") foreach qw(hosted source restored shared);
my $create = 'SET client_min_messages = warning; CREATE EXTENSION idem CASCADE';

subtest 'T13: row security switched on for each new table' => sub {
	value($node, q{
		CREATE FUNCTION public.secure() RETURNS event_trigger LANGUAGE plpgsql AS $$
		DECLARE t record;
		BEGIN
			FOR t IN SELECT objid::regclass AS name FROM pg_event_trigger_ddl_commands() WHERE command_tag = 'CREATE TABLE' LOOP
				EXECUTE format('ALTER TABLE %s ENABLE ROW LEVEL SECURITY', t.name);
				EXECUTE format('ALTER TABLE %s FORCE ROW LEVEL SECURITY', t.name);
			END LOOP;
		END $$;
		CREATE EVENT TRIGGER secure ON ddl_command_end WHEN TAG IN ('CREATE TABLE') EXECUTE FUNCTION public.secure()}, 'hosted');
	value($node, 'CREATE TABLE public.proof ()', 'hosted');
	is(value($node, q{SELECT relrowsecurity FROM pg_class WHERE relname = 'proof'}, 'hosted'), 't', 'the event trigger works');
	value($node, $create, 'hosted');
	is(value($node, q{SELECT string_agg(c.relname, ' ' ORDER BY 1) FROM pg_class AS c JOIN pg_depend AS d ON d.classid = 'pg_class'::regclass AND d.objid = c.oid
			JOIN pg_extension AS e ON d.refobjid = e.oid AND e.extname = 'idem' WHERE c.relrowsecurity}, 'hosted'), 'idem_secret', 'it is on for the secrets alone');
	is(faults('hosted'), '', 'health finds no fault');
	value($node, q{SELECT idem_grant('ruler', 'admin'), idem_grant('caller', 'caller'); INSERT INTO idem_policy (scope) VALUES ('pay')}, 'hosted');
	my $acquire = q{SELECT outcome FROM idem_acquire_direct('alice', 'pay', '%d')};
	is(as('caller', 'hosted', sprintf $acquire, 1), 'ACQUIRED', 'a call');
	is(as('ruler', 'hosted', q{UPDATE idem_policy SET enabled = false RETURNING scope}), 'pay', 'a policy is disabled by who may');
	like(as('caller', 'hosted', sprintf $acquire, 2), qr/disabled/, 'and that is obeyed');

	value($node, q{ALTER TABLE idem_policy ENABLE ROW LEVEL SECURITY}, 'hosted');
	is(as('ruler', 'hosted', q{UPDATE idem_policy SET enabled = true RETURNING scope}), '', 'switched on later, it hides');
	is(faults('hosted'), 'row_security|bad|idem_policy has row security: it hides rows from those whom idem_grant let in', 'and health says so');
	value($node, advice('hosted', 'row_security'), 'hosted');
	is(faults('hosted'), '', 'what it says helps');
	is(as('ruler', 'hosted', q{UPDATE idem_policy SET enabled = true RETURNING scope}), 'pay', 'indeed');
};

subtest 'T14: pg_restore --disable-triggers' => sub {
	value($node, $create, $_) foreach qw(source restored);
	value($node, q{INSERT INTO idem_policy (scope, material) VALUES ('pay', '{/amount}')}, 'source');
	run('dumped', 'pg_dump', '-Fc', '-f', "$folder/dump", 'source');
	run('restored', 'pg_restore', '--data-only', '--disable-triggers', '--exit-on-error', '-d', 'restored', "$folder/dump");
	is(value($node, 'SELECT scope FROM idem_policy', 'restored'), 'pay', 'the policy came');
	my @lost = split /\n/, faults('restored');
	ok(scalar(@lost) && !grep({ !/^triggers\|bad\|idem_\w+ has triggers that do not always fire: idem_/ } @lost), 'health says which triggers were left') or diag(@lost);
	# as a subscription applies changes: a session that knows the policy learns nothing of them
	my $session = session($node, dbname => 'restored');
	is($session->query(q{SELECT outcome FROM idem_acquire_direct('alice', 'pay', '{"amount": 1}')}), 'ACQUIRED', 'a session knows the policy');
	value($node, q{SET session_replication_role = replica; UPDATE idem_policy SET enabled = false}, 'restored');
	is($session->query(q{SELECT outcome FROM idem_acquire_direct('alice', 'pay', '{"amount": 2}')}), 'ACQUIRED', 'and does not learn of a change');

	value($node, advice('restored', 'triggers'), 'restored');
	is(faults('restored'), '', 'what it says helps');
	value($node, q{SET session_replication_role = replica; UPDATE idem_policy SET enabled = false}, 'restored');
	$session->query(q{SELECT outcome FROM idem_acquire_direct('alice', 'pay', '{"amount": 3}')});
	like($session->error, qr/disabled/, 'changes are obeyed again');
	$session->quit;
};

subtest 'T18: strangers in the schema' => sub {
	value($node, qq{$create; CREATE ROLE landlord LOGIN; GRANT CREATE ON SCHEMA public TO landlord}, 'shared');
	is(faults('shared'), '', 'health finds no fault');
	is(as('landlord', 'shared', q{CREATE FUNCTION public.idem_grant(text, text) RETURNS text LANGUAGE sql AS $$ SELECT 'mine' $$}), '', 'planted');
	is(value($node, q{SELECT idem_grant('caller', 'caller')}, 'shared'), 'mine', q{who types what README shows runs the stranger's});
	is(faults('shared'), q{members|bad|function public.idem_grant(pg_catalog.text,pg_catalog.text) has a name of idem's, and is somebody else's}, 'health says so');
	value($node, 'DROP FUNCTION public.idem_grant(text, text)', 'shared');
	is(faults('shared'), '', 'and no more when it is gone');

	# T3, R23: calls are refused, health is not
	my $call = q{SELECT outcome FROM idem_acquire_direct('alice', 'x', '1')};
	value($node, q{CREATE SCHEMA evil; CREATE TABLE evil.idem_alert (LIKE idem_alert INCLUDING ALL); ALTER EXTENSION idem ADD TABLE evil.idem_alert}, 'shared');
	is((psql_error($node, $call, 'shared'))[0], '55000', 'a false member: calls are refused');
	is(faults('shared'), 'members|bad|table evil.idem_alert belongs to the extension, and is not what its script made', 'health says why');
	value($node, q{ALTER EXTENSION idem DROP TABLE evil.idem_alert}, 'shared');
	is(value($node, $call, 'shared'), 'ACQUIRED', 'without it they are not');
	value($node, q{ALTER TABLE idem_record ADD COLUMN foo int}, 'shared');
	is((psql_error($node, $call =~ s/'1'/'2'/r, 'shared'))[0], '55000', 'a column more: calls are refused');
	is(faults('shared'), 'tables|bad|idem_record has other columns than it came with', 'health says why');
};

subtest 'T2: the schema has another name, and another has its old one' => sub {
	value($node, q{CREATE DATABASE moved});
	value($node, q{SET client_min_messages = warning; CREATE SCHEMA idem; CREATE EXTENSION idem SCHEMA idem CASCADE;
		SELECT outcome FROM idem.idem_acquire_direct('alice', 'x', '1');
		UPDATE idem.idem_record SET lease_until = '2020-01-01';
		ALTER SCHEMA idem RENAME TO "O'dd";
		CREATE SCHEMA idem;
		CREATE FUNCTION idem.trap() RETURNS bool LANGUAGE plpgsql AS 'BEGIN RAISE EXCEPTION ''sprung''; END';
		CREATE FUNCTION idem.idem_preloaded() RETURNS bool LANGUAGE sql AS 'SELECT idem.trap()';
		CREATE VIEW idem.idem_stuck AS SELECT idem.trap() AS overdue;
		CREATE TABLE idem.idem_record ()}, 'moved');
	like(faults('moved', q{"O'dd"}), qr/^stuck\|bad\|outcomes that nobody knows: 1[^\n]*$/, 'health looks at what was made, and finds no other fault');
	my $reconcile = value($node, q{SELECT reconcile FROM "O'dd".idem_stuck}, 'moved');
	is(value($node, $reconcile =~ s/DONE\|FAILED\|RETRY/DONE/r, 'moved'), 'OK', 'the call of idem_stuck settles it');
	value($node, q{ALTER TABLE "O'dd".idem_policy ENABLE ROW LEVEL SECURITY}, 'moved');
	is(value($node, q{SELECT advice FROM "O'dd".idem_health() WHERE name = 'row_security'}, 'moved'),
		q{ALTER TABLE "O'dd".idem_policy DISABLE ROW LEVEL SECURITY, NO FORCE ROW LEVEL SECURITY;}, 'what is to be run has the new name');
};

$node->stop;
done_testing();
