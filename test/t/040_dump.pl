# pg_dump and restore: records in every state, policies with their history and alerts are carried, secrets never
# (P2, P3, P10, G04, G05, G06), for a superuser and for the owner of a database who is none. Who is bound to a subject is
# bound, or refused, whatever a restore loses (P7, T19).
use strict;
use warnings;

use IPC::Run;
use PostgreSQL::Test::Utils;
use Test::More;
use IdemTest;

my $node = idem_node('dump', -extension => 0, autovacuum => 'off');
my $folder = PostgreSQL::Test::Utils::tempdir();
my $order = q{'{"amount": 100, "memo": "x"}'};

value($node, 'CREATE ROLE landlord LOGIN CREATEROLE; CREATE ROLE agent LOGIN; CREATE ROLE bystander LOGIN');

sub as
{
	my ($user, $db, $sql) = @_;
	return $node->safe_psql($db, $sql, extra_params => [ '-U', $user ]);
}

sub run
{
	my ($what, @command) = @_;
	my ($out, $err) = ('', '');
	my $program = shift @command;
	my $done = IPC::Run::run([ $node->installed_command($program), '-h', $node->host, '-p', $node->port, @command ],
		'<', '/dev/null', '>', \$out, '2>', \$err);
	ok($done, $what) or diag($err);
	is($err, '', "$what: without a word") if $done;
	return;
}

# A database with the extension in a schema of an odd name, and one operation in every state
sub furnish
{
	my ($db, $user, $schema) = @_;
	my $i = qq{"$schema"};
	as($user, $db, qq{
		SET client_min_messages = warning;
		CREATE SCHEMA IF NOT EXISTS $i;
		CREATE EXTENSION idem SCHEMA $i CASCADE;
		SET search_path = $i;
		INSERT INTO idem_policy (scope, immaterial, result_ttl) VALUES ('charge', '{/memo}', '30 days');
		CREATE TABLE public.token (name text PRIMARY KEY, token text, key uuid);
		CREATE TABLE public.result_of (name text PRIMARY KEY, answer text);
		INSERT INTO public.token (name, token) SELECT n, idem_sign('alice', 'charge', $order)
			FROM unnest('{done,failed,released,flight,unused,tampered,empty}'::text[]) AS n;
		UPDATE public.token SET key = (idem_inspect(token)).key;
		CREATE FUNCTION public.play(who text, what text) RETURNS text LANGUAGE plpgsql AS \$\$
		DECLARE
			c $i.idem_claim := idem_acquire((SELECT token FROM public.token WHERE name = who), 'alice', 'charge', $order);
		BEGIN
			RETURN CASE what
				WHEN 'commit' THEN idem_commit(c.key, c.owner, '{"charge": "ch_\\u00e9", "n": 1.50}', 'ref')::text
				WHEN 'empty' THEN idem_commit(c.key, c.owner)::text
				WHEN 'fail' THEN idem_fail(c.key, c.owner, '"no"')::text
				WHEN 'retry' THEN idem_fail(c.key, c.owner, '"later"', true)::text
				END;
		END
		\$\$;
		SELECT public.play('done', 'commit'), public.play('failed', 'fail'), public.play('released', 'retry'),
			public.play('flight', ''), public.play('empty', 'empty'), public.play('tampered', 'commit');
		SELECT outcome FROM idem_acquire((SELECT token FROM public.token WHERE name = 'tampered'), 'alice', 'charge', '{"amount": 999}');
		-- lists that are in force no longer
		UPDATE idem_policy SET immaterial = '{/memo,/note}' WHERE scope = 'charge';
		UPDATE idem_policy SET immaterial = NULL, material = '{/amount}' WHERE scope = 'charge';
		DROP FUNCTION public.play(text, text);
		GRANT USAGE ON SCHEMA $i TO agent, bystander;
		GRANT SELECT ON public.token TO agent;
		SELECT idem_grant('agent', 'caller', subject_setting => 'app.subject')});
	return;
}

# What can be said without a secret, and what must come through unchanged
sub content
{
	my ($db, $user, $schema) = @_;
	my $i = qq{"$schema"};
	return as($user, $db, qq{
		SET search_path = $i;
		SELECT * FROM idem_policy ORDER BY scope;
		-- that everything was material once counts anew from the restore: looked up for longer, never for less
		SELECT scope, version, material, immaterial, since, CASE WHEN version <> 0 THEN replaced_at END, replaced_at IS NULL, result_ttl
			FROM idem_policy_version ORDER BY scope, version;
		SELECT * FROM idem_record ORDER BY key;
		SELECT * FROM idem_alert ORDER BY key, kind;
		SELECT role, role_oid::regrole, subject_setting FROM idem_binding;
		SELECT t.name, s.* FROM public.token AS t, LATERAL idem_status_key(t.key, 'alice') AS s ORDER BY 1;
		SELECT e.extname, n.nspname, e.extconfig IS NOT NULL, r.rolname FROM pg_extension AS e
			JOIN pg_namespace AS n ON n.oid = extnamespace JOIN pg_roles AS r ON r.oid = extowner
			WHERE extname IN ('idem', 'pgcrypto') ORDER BY 1});
}

my %answer = (
	done => 'DONE|1|{"n": 1.50, "charge": "ch_é"}|ref',
	failed => 'FAILED|1|"no"|',
	flight => 'IN_FLIGHT|1||',
	empty => 'DONE|1||',
	released => 'ACQUIRED|2||',
	tampered => 'DONE|1|{"n": 1.50, "charge": "ch_é"}|ref',
	unused => 'ACQUIRED|1||');

sub acquire_all
{
	my ($db, $user, $schema) = @_;
	return as($user, $db, qq{
		BEGIN;
		SET LOCAL search_path = "$schema";
		SELECT t.name, a.outcome, a.attempt, a.result, a.result_ref FROM public.token AS t, LATERAL idem_acquire(t.token, 'alice', 'charge', $order) AS a ORDER BY 1;
		ROLLBACK});
}

# What a restored database must be able to do
sub check_restored
{
	my ($name, $db, $user, $schema, $content, $secret) = @_;
	my $i = qq{"$schema"};
	is(content($db, $user, $schema), $content, "$name: policies, versions, records and alerts are the same");
	is(acquire_all($db, $user, $schema), join("\n", map { "$_|INVALID|||" } sort keys %answer), "$name: fingerprints are INVALID without their secret");
	isnt(as($user, $db, "SELECT encode($i.idem_export_secret(), 'hex')"), $secret, "$name: it has a secret of its own");
	is(as($user, $db, qq{SET search_path = $i; SELECT outcome FROM idem_acquire(idem_sign('bob', 'charge', $order), 'bob', 'charge', $order)}), 'ACQUIRED', "$name: and works with it");
	as($user, $db, "SELECT $i.idem_import_secret('\\x$secret')");
	is(acquire_all($db, $user, $schema), join("\n", map { "$_|$answer{$_}" } sort keys %answer), "$name: with the secret imported every state answers");
	is(as($user, $db, qq{
			SET search_path = $i;
			SELECT outcome FROM idem_acquire((SELECT token FROM public.token WHERE name = 'done'), 'alice', 'charge', '{"amount": 999}')}),
		'PARAM_MISMATCH', "$name: other parameters are refused");
	is(as('agent', $db, qq{SET search_path = $i; SET app.subject = 'alice'; SELECT outcome FROM idem_acquire((SELECT token FROM public.token WHERE name = 'done'), 'alice', 'charge', $order)}),
		'DONE', "$name: who was let in still is");
	my ($rc, $out, $err) = $node->psql($db, "SELECT $i.idem_status('x', 'alice')", extra_params => [ '-U', 'agent' ]);
	like($err, qr/may not act for this subject/, "$name: bound to the same subject");
	($rc, $out, $err) = $node->psql($db, "SELECT $i.idem_sign('alice', 'charge', $order)", extra_params => [ '-U', 'agent' ]);
	like($err, qr/permission denied/, "$name: and to no more than before");
	($rc, $out, $err) = $node->psql($db, "SET search_path = $i; SELECT outcome FROM idem_acquire('x', 'alice', 'charge', $order)", extra_params => [ '-U', 'bystander' ]);
	like($err, qr/permission denied/, "$name: nor is it open to others");
	# whoever restored it is who granted it there
	is(as($user, $db, qq{BEGIN; SET search_path = $i; SELECT idem_revoke('agent', 'caller');
			SELECT has_function_privilege('agent', oid, 'EXECUTE') FROM pg_proc WHERE oid::regproc::text = 'idem_acquire';
			SELECT count(*) FROM idem_binding; ROLLBACK}), "\nf\n0", "$name: and what is restored can be taken back");
	return;
}

# No secret in any file of a dump, in whatever spelling; a custom one is read as SQL
sub has_no_secret
{
	my ($name, $path, $secret) = @_;
	my $bytes = pack 'H*', $secret;
	my @files = -d $path ? glob("$path/*") : ($path);
	my $found = 0;
	foreach my $file (@files)
	{
		my $text = $file =~ /\.gz$/ ? `gzip -dc '$file'` : slurp_file($file);
		$found++ if $text =~ /\Q$bytes\E/ || $text =~ /$secret/i || $text =~ /COPY \S*idem_secret/ || $text =~ /INSERT INTO \S*idem_secret/;
	}
	is($found, 0, "$name: no secret in it (P10)");
	return;
}

my %restore = (
	plain => sub { run("$_[0]: restored", 'psql', '-Xq', '-v', 'ON_ERROR_STOP=1', '-o', '/dev/null', '-U', $_[3], '-d', $_[2], '-f', $_[1]) },
	map { $_ => sub { run("$_[0]: restored", 'pg_restore', '--exit-on-error', '-U', $_[3], '-d', $_[2], $_[1]) } } qw(custom directory tar));

my $count = 0;

sub new_database
{
	my ($owner) = @_;
	my $db = 'restored_' . ++$count;
	run('a new database', 'createdb', '-T', 'template0', '-E', 'UTF8', '-O', $owner, $db);
	return $db;
}

foreach my $user (scalar getpwuid($>), 'landlord')
{
	my $is_super = $user ne 'landlord';
	my $who = $is_super ? 'superuser' : 'owner who is no superuser';
	# quotes, dollars, backslashes and comments the server itself refuses here
	my $schema = $is_super ? 'od;d Sch.ema (%s)' : 'We ird.Sch';
	my $source = "source_" . ($is_super ? 'super' : 'landlord');
	subtest "dump and restore, $who (P2, P3, P10, G04, G05, G06)" => sub {
		run('the source', 'createdb', '-T', 'template0', '-E', 'UTF8', '-O', $user, $source);
		furnish($source, $user, $schema);
		my $content = content($source, $user, $schema);
		my $secret = as($user, $source, qq{SELECT encode("$schema".idem_export_secret(), 'hex')});
		is(acquire_all($source, $user, $schema), join("\n", map { "$_|$answer{$_}" } sort keys %answer), 'the source answers');

		foreach my $format (qw(plain custom directory tar))
		{
			my $path = "$folder/$source.$format";
			run("$format: dumped", 'pg_dump', '-F', $format, '-U', $user, '-f', $path, $source);
			has_no_secret($format, $path, $secret);
			if ($format ne 'plain')
			{
				run("$format: as SQL", 'pg_restore', '-f', "$path.sql", $path);
				has_no_secret("$format as SQL", "$path.sql", $secret);
			}
			my $db = new_database($user);
			$restore{$format}->($format, $path, $db, $user);
			check_restored($format, $db, $user, $schema, $content, $secret);
			next unless $format eq 'plain';

			# and once more: a dump of the restored one is good, and still carries nothing of either secret
			run('again: dumped', 'pg_dump', '-U', $user, '-f', "$folder/$db.sql", $db);
			has_no_secret('again', "$folder/$db.sql", $secret);
			has_no_secret('again', "$folder/$db.sql", as($user, $db, qq{SELECT encode("$schema".idem_export_secret(), 'hex')}));
			my $again = new_database($user);
			my $second = content($db, $user, $schema);
			$restore{plain}->('again', "$folder/$db.sql", $again, $user);
			is(content($again, $user, $schema), $second, 'again: the same');
		}

		my $path = "$folder/$source.schema.sql";
		run('--schema-only', 'pg_dump', '--schema-only', '-U', $user, '-f', $path, $source);
		unlike(slurp_file($path), qr/COPY|alice|memo/, '--schema-only carries no data');
		my $db = new_database($user);
		$restore{plain}->('--schema-only', $path, $db, $user);
		is(as($user, $db, qq{
				SET search_path = "$schema";
				SELECT (SELECT count(*) FROM idem_policy), (SELECT count(*) FROM idem_policy_version), (SELECT count(*) FROM idem_record), (SELECT count(*) FROM idem_alert)}),
			as($user, $db, q{SELECT '0|' || 0 || '|0|0'}), '--schema-only: nothing is carried');

		run('--inserts', 'pg_dump', '--inserts', '-U', $user, '-f', "$folder/$source.inserts", $source);
		has_no_secret('--inserts', "$folder/$source.inserts", $secret);
		$db = new_database($user);
		$restore{plain}->('--inserts', "$folder/$source.inserts", $db, $user);
		is(content($db, $user, $schema), $content, '--inserts: the same');

		# into a database that has the extension already: the seed rows are there once (G05)
		$db = new_database($user);
		as($user, $db, qq{SET client_min_messages = error; CREATE SCHEMA IF NOT EXISTS "$schema"; CREATE EXTENSION idem SCHEMA "$schema" CASCADE});
		run('data alone', 'pg_dump', '--data-only', '-F', 'custom', '-U', $user, '-f', "$folder/$source.data", $source);
		has_no_secret('data alone', "$folder/$source.data", $secret);
		as($user, $db, 'CREATE TABLE public.token (name text PRIMARY KEY, token text, key uuid); CREATE TABLE public.result_of (name text PRIMARY KEY, answer text)');
		$restore{custom}->('data alone', "$folder/$source.data", $db, $user);
		is(content($db, $user, $schema), $content, 'into a prepared database: the same');

		is(as($user, $db, qq{
				SET search_path = "$schema";
				SELECT count(*) FILTER (WHERE (a).outcome = 'ACQUIRED'), count(DISTINCT (a).key)
					FROM (SELECT idem_acquire(idem_sign('carol', 'charge', $order), 'carol', 'charge', $order) AS a FROM generate_series(1, 1000) OFFSET 0) AS calls}),
			'1000|1000', 'a thousand acquires after the restore: no duplicate key (G06)');
	};
}

subtest 'pg_dumpall carries no secret (P10, E10)' => sub {
	run('dumped', 'pg_dumpall', '-f', "$folder/all.sql");
	foreach my $db (qw(source_super source_landlord))
	{
		my $schema = value($node, q{SELECT quote_ident(nspname) FROM pg_extension JOIN pg_namespace AS n ON n.oid = extnamespace WHERE extname = 'idem'}, $db);
		has_no_secret("of $db", "$folder/all.sql", value($node, "SELECT encode($schema.idem_export_secret(), 'hex')", $db));
	}
};

# What a role is told of bob's operations while app.subject says alice, in a database
sub looks
{
	my ($server, $role, $db, $call) = @_;
	$call //= "idem_status_key(gen_random_uuid(), 'bob')";
	my ($rc, $out, $err) = $server->psql($db, "\\set VERBOSITY verbose\nSET app.subject = 'alice';\nSET ROLE $role;\nSELECT count($call)", on_error_stop => 0);
	return $err =~ /ERROR:  (\w{5})/ ? $1 : $out;
}

sub marks
{
	my ($server, $db) = @_;
	return $server->safe_psql($db, 'SELECT string_agg(split_part(detail, \'"\', 2), \' \' ORDER BY detail) FROM idem_health() WHERE name = \'bindings\' AND status = \'bad\'');
}

# T19: web and sign are bound, renamed was under another name, gone is a bound role that the other cluster does not have
subtest 'a restore loses no binding (P7, T19)' => sub {
	my @roles = qw(web sign renamed free);
	my $sign = "idem_sign('bob', 'charge', '{\"amount\": 1}')";
	value($node, 'CREATE DATABASE bound; CREATE ROLE web; CREATE ROLE sign; CREATE ROLE free; CREATE ROLE first_name; CREATE ROLE gone');
	value($node, q{
		SET client_min_messages = warning;
		CREATE EXTENSION idem CASCADE;
		SELECT idem_grant('web', 'caller', 'app.subject'), idem_grant('gone', 'caller', 'app.subject'), idem_grant('first_name', 'caller', 'app.subject'),
			idem_grant('sign', 'signer', 'app.subject'), idem_grant('free', 'caller');
		ALTER ROLE first_name RENAME TO renamed}, 'bound');
	is(looks($node, $_, 'bound'), '42501', "before: $_ is bound") foreach qw(web renamed);
	is(looks($node, 'sign', 'bound', $sign), '42501', 'before: so is who signs');
	is(looks($node, 'free', 'bound'), '1', 'before: free is not');

	# without data the rows are gone, and the grants are there
	run('without data: dumped', 'pg_dump', '-s', '-f', "$folder/bound.schema.sql", 'bound');
	value($node, 'CREATE DATABASE bound_schema');
	run('without data: restored', 'psql', '-Xq', '-v', 'ON_ERROR_STOP=1', '-o', '/dev/null', '-d', 'bound_schema', '-f', "$folder/bound.schema.sql");
	is(value($node, 'SELECT count(*) FROM idem_binding', 'bound_schema'), '0', 'without data: no row');
	is(looks($node, $_, 'bound_schema'), '42501', "without data: $_ is refused") foreach qw(web renamed);
	is(looks($node, 'web', 'bound_schema', "idem_status_key(gen_random_uuid(), 'alice')"), '42501', 'without data: for any subject');
	# the row is missing for those that can sign, before they find that the secret is another one
	is(looks($node, 'sign', 'bound_schema', $sign), '42501', 'without data: so is who signs');
	is(looks($node, 'free', 'bound_schema'), '1', 'without data: free is as before');
	is(marks($node, 'bound_schema'), 'gone renamed sign web', 'without data: they are told of');
	value($node, "SELECT idem_grant('web', 'caller', 'app.subject')", 'bound_schema');
	is(looks($node, 'web', 'bound_schema', "idem_status_key(gen_random_uuid(), 'alice')"), '1', 'bound again, it acts for its subject');
	is(looks($node, 'web', 'bound_schema'), '42501', 'and for no other');

	# a cluster where one bound role is missing, and OIDs mean others
	my $other = idem_node('other', -extension => 0, autovacuum => 'off');
	value($other, 'CREATE ROLE shift_of_oids; CREATE ROLE free; CREATE ROLE sign; CREATE ROLE renamed; CREATE ROLE web; CREATE DATABASE plain; CREATE DATABASE custom; CREATE DATABASE custom_schema');
	run('dumped', 'pg_dump', '-f', "$folder/bound.sql", 'bound');
	run('dumped', 'pg_dump', '-F', 'custom', '-f', "$folder/bound.custom", 'bound');
	# the grants to the role that is missing fail, and nothing else does
	my $err = '';
	IPC::Run::run([ $other->installed_command('psql'), '-Xq', '-h', $other->host, '-p', $other->port, '-o', '/dev/null', '-d', 'plain', '-f', "$folder/bound.sql" ],
		'<', '/dev/null', '2>', \$err);
	is(join(' ', sort { $a cmp $b } keys %{ { map { $_ => 1 } $err =~ /ERROR:  (.*)/g } }), 'role "gone" does not exist', 'plain: only the missing role is missed');
	# pg_restore grants on a function to all or to nobody: what is granted to the one that is missing is not granted at all
	foreach my $how ([ 'custom' ], [ 'custom_schema', '-s' ])
	{
		my ($db, @options) = @$how;
		IPC::Run::run([ $other->installed_command('pg_restore'), '-h', $other->host, '-p', $other->port, @options, '-d', $db, "$folder/bound.custom" ],
			'<', '/dev/null', '2>', \$err);
	}
	my $of_alice = "idem_status_key(gen_random_uuid(), 'alice')";
	my $rows = q{SELECT string_agg(role || '=' || coalesce(role_oid::regrole::text, 'nobody'), ' ' ORDER BY role) FROM idem_binding};
	foreach my $db (qw(plain custom))
	{
		is(value($other, $rows, $db), 'first_name=nobody gone=nobody sign=sign web=web', "$db: rows mean the roles that are so called here");
		is(looks($other, 'sign', $db, $sign), '42501', "$db: who has the set signer alone is bound");
		is(looks($other, 'sign', $db, $sign =~ s/bob/alice/r), '1', "$db: to its subject");
		is(looks($other, $_, $db), '42501', "$db: $_ is refused") foreach qw(web renamed);
	}
	is(looks($other, 'web', 'plain', $of_alice), '1', 'plain: web is bound to its subject');
	is(looks($other, 'free', 'plain'), '1', 'plain: free is as before');
	is(marks($other, 'plain'), 'renamed', 'plain: who is to be bound again is told of');
	is(looks($other, 'sign', 'custom_schema', $sign =~ s/bob/alice/r), '42501', 'without data and with a role missing: refused');
	is(marks($other, 'custom_schema'), 'sign', 'and told of');
	# a role that comes later finds its binding
	value($other, 'CREATE ROLE gone');
	value($other, "SELECT idem_grant('gone', 'caller')", 'plain');
	is(looks($other, 'gone', 'plain'), '42501', 'a role that comes later is bound as it was');
	is(looks($other, 'gone', 'plain', "idem_status_key(gen_random_uuid(), 'alice')"), '1', 'to its subject');
	$other->stop;
};

$node->stop;
done_testing();
