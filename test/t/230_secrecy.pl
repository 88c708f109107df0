# P10: secrets, owner tokens and results stay where they belong. Every call that takes or gives one is made, on a server that
# logs all it can, with tokens that come from a table as a program's come as parameters; then they are looked for.
use strict;
use warnings;

use IPC::Run;
use MIME::Base64;
use PostgreSQL::Test::Utils;
use Test::More;
use IdemTest;

my $node = idem_node('secrecy',
	autovacuum => 'off',
	shared_preload_libraries => 'idem,pg_stat_statements,auto_explain',
	'pg_stat_statements.track' => 'all',
	'auto_explain.log_min_duration' => 0,
	'auto_explain.log_analyze' => 'on',
	'auto_explain.log_verbose' => 'on',
	'auto_explain.log_nested_statements' => 'on',
	log_statement => 'all',
	log_min_messages => 'debug5',
	log_error_verbosity => 'verbose',
	debug_print_parse => 'on',
	debug_print_rewritten => 'on',
	debug_print_plan => 'on');
value($node, 'CREATE EXTENSION pg_stat_statements');
value($node, q{CREATE ROLE watcher LOGIN IN ROLE pg_read_all_stats; SELECT idem_grant('watcher', 'auditor')});

# Secrets: made, brought, shown and revoked, and nowhere to be read but by who asked for one.
sub forms
{
	my ($hex) = @_;
	my $raw = pack 'H*', $hex;
	return ($hex, uc $hex, substr(MIME::Base64::encode_base64($raw, ''), 0, 40), join('', map { sprintf '\\%03o', ord } split //, $raw), substr($raw, 0, 16));
}

sub secrets_in
{
	my ($text, @hex) = @_;
	return scalar grep { index($text, $_) >= 0 } map { forms($_) } @hex;
}

# T5
subtest 'no secret in the log' => sub {
	my $start = log_size($node);
	my $s = session($node);
	# a parameter that PostgreSQL itself is told not to show
	my @hidden = ('plan_cache_mode=force_generic_plan', 'log_parameter_max_length=0');
	push @hidden, 'auto_explain.log_parameter_max_length=0' if value($node, 'SHOW server_version_num') >= 160000;
	local $ENV{PGOPTIONS} = join ' ', map { "-c $_" } @hidden;
	my $import = sub {
		my ($hex, $signing, $rc, $said) = @_;
		my $file = PostgreSQL::Test::Utils::tempdir() . '/import.sql';
		append_to_file($file, "SELECT idem_import_secret(:secret, $signing);\n");
		my ($out, $err) = ('', '');
		IPC::Run::run([ $node->installed_command('pgbench'), '-h', $node->host, '-p', $node->port, '-n', '-t', '1', '-M', 'extended',
				'-D', "secret=\\x$hex", '-f', $file, 'postgres' ], '>', \$out, '2>', \$err);
		is($? >> 8, $rc, "a bind parameter: $said");
		return $err;
	};
	my @secrets;
	my $export = sub { push @secrets, $s->query_ok(q{SELECT encode(idem_export_secret(), 'hex')}); return; };
	$export->();
	$s->query_ok('SELECT idem_rotate_secret()');
	$export->();
	$s->query_ok('BEGIN; SELECT idem_rotate_secret(); ROLLBACK');
	push @secrets, my $brought = join '', map { sprintf '%02x', int rand 256 } 1 .. 48;
	$import->($brought, 'false', 0, 'brought');
	$import->($brought, 'true', 0, 'known, and signs now');
	$s->query_ok(q{SET bytea_output = 'escape'; SELECT idem_export_secret(id) FROM idem_secrets});
	$s->query_ok('SELECT idem_rotate_secret()');
	$export->();
	$s->query_ok('SELECT idem_revoke_secret(id) FROM idem_secrets WHERE NOT signing');
	my $errors = $import->($brought, 'true', 2, 'revoked') . $import->(substr($brought, 0, 62), 'true', 2, 'too short');
	like($errors, qr/is revoked.*32 to 64 random bytes/s, 'both are refused');
	is($s->query_ok('SELECT count(*) FROM idem_secrets'), '4', 'four secrets');
	$s->quit;

	my $log = log_since($node, $start);
	like($log, qr/Query Text: SELECT idem_(rotate|export|revoke|import)_secret/, 'the log has the calls, and their plans');
	like($log, qr/idem_import_secret\(\$1/, 'with their parameters as such');
	is(secrets_in($log, @secrets), 0, 'and no secret');
	is(secrets_in($errors, @secrets), 0, 'nor have the errors');
	is(secrets_in(value($node, q{SELECT string_agg(query, ' ') FROM pg_stat_statements}), @secrets), 0, 'nor has pg_stat_statements');
};

# T4
subtest 'no secret in statistics' => sub {
	value($node, 'CREATE ROLE reader LOGIN IN ROLE pg_read_all_data');
	my @secrets = split /\n/, value($node, q{SELECT encode(secret, 'hex') FROM idem_secret});
	cmp_ok(@secrets, '>=', 4, 'secrets to look for');
	# whoever owns the table may ask for statistics of several columns together
	value($node, q{CREATE STATISTICS more ON id, secret, verify_until FROM idem_secret; ALTER STATISTICS more SET STATISTICS 1000});
	my $reader = session($node, user => 'reader');
	foreach my $analyze ('ANALYZE idem_secret', 'SET default_statistics_target = 10000; ANALYZE', 'VACUUM (ANALYZE) idem_secret')
	{
		value($node, $analyze);
		my $seen = join "\n", map { $reader->query_ok("SELECT * FROM $_") } 'pg_statistic', 'pg_stats', 'pg_statistic_ext_data', 'pg_stats_ext';
		is($reader->query_ok(q{SELECT count(*) > 0 FROM pg_statistic WHERE starelid = 'idem_secret'::regclass}), 't', 'there are statistics');
		is(secrets_in($seen, @secrets), 0, "none after $analyze");
		is($reader->query_ok(q{SELECT count(*) FROM pg_statistic WHERE starelid = 'idem_secret'::regclass AND staattnum = 2}), 0, 'nor any of the column');
		is($reader->query_ok('SELECT count(*) FROM idem_secret'), 0, 'and the table shows none');
	}
	value($node, 'DROP STATISTICS more');
	$reader->quit;
};

my @names = qw(done failed retry released stuck late executed used readonly);
my $start = log_size($node);
my $s = session($node);
$s->query_ok(q{CREATE TABLE own (name text PRIMARY KEY, token uuid, result jsonb)});
$s->query_ok(q{CREATE FUNCTION give(params jsonb) RETURNS jsonb LANGUAGE sql AS $$ SELECT result FROM own WHERE name = params #>> '{}' $$});
# what to look for stands in no statement and no plan
$s->query_ok(q{INSERT INTO own SELECT n, gen_random_uuid(), jsonb_build_object('it', gen_random_uuid())
	FROM unnest(string_to_array('} . join(' ', @names) . q{', ' ')) AS n});
my $errors = '';
my $call = sub {
	my ($what, $name, $is) = @_;
	my $said = $s->query("SELECT ($what)::text FROM own AS o, LATERAL (SELECT idem_key('alice', 'secrecy', to_jsonb(name)) AS key) AS k WHERE name = '$name'");
	$errors .= $s->error;
	like($s->sqlstate . " $said", $is, "$name: " . $what =~ s/\(.*//r);
	return;
};
my $acquire = q{(idem_acquire_direct('alice', 'secrecy', to_jsonb(name), owner => token)).outcome};

subtest 'every call' => sub {
	foreach my $name (qw(done failed retry released stuck late used))
	{
		$call->($acquire, $name, qr/ACQUIRED/);
		$call->($acquire, $name, qr/ACQUIRED/) if $name eq 'done';
	}
	$call->('idem_renew(key, token)', 'done', qr/OK/);
	$call->('idem_commit(key, token, result)', 'done', qr/OK/);
	$call->('idem_commit(key, token, result)', 'done', qr/OK/);
	$call->('idem_commit(key, token)', 'done', qr/ALREADY/);
	$call->('idem_fail(key, token, result)', 'failed', qr/OK/);
	$call->('idem_fail(key, token, result, true)', 'retry', qr/OK/);
	$call->('idem_release(key, token)', 'released', qr/OK/);
	$call->('idem_fail(key, token, result, true)', 'used', qr/OK/);
	$call->($acquire, 'used', qr/^22023/);
	# one that holds nothing: its token is as good as any
	$call->("idem_$_", 'failed', qr/NOT_OWNER/) foreach 'release(key, md5(token::text)::uuid)', 'renew(key, md5(token::text)::uuid)';
	$call->(q{idem_reconcile(key, 'DONE', 'seen', '1', force => true)}, 'stuck', qr/OK/);
	$call->(q{(idem_execute('alice', 'secrecy', to_jsonb(name), 'give(jsonb)')).outcome}, 'executed', qr/DONE/);
	$call->(q{length((idem_acquire_direct('alice', 'secrecy', to_jsonb(name))).result::text)}, 'done', qr/\d\d/);
	$call->(q{(idem_status_key(key, 'alice')).outcome}, 'done', qr/DONE/);
	$call->(q{length(idem_reply(idem_status_key(key, 'alice'))::text)}, 'done', qr/\d\d/);
	$s->query('BEGIN READ ONLY');
	$call->($acquire, 'readonly', qr/^25006/);
	$s->query('ROLLBACK');
	$s->query_ok('ANALYZE');
};

my @tokens = split /\n/, $s->query_ok('SELECT token FROM own');
my @results = split /\n/, $s->query_ok(q{SELECT result ->> 'it' FROM own});
is(@tokens + @results, 2 * @names, 'tokens and results to look for');
# how many of them stand in a text, with and without hyphens
sub seen
{
	my ($text, @wanted) = @_;
	return scalar grep { index($text, $_) >= 0 } @wanted, map { s/-//gr } @wanted;
}
my $watcher = session($node, user => 'watcher');
my $watched = join "\n", map { $watcher->query_ok($_) } map { "SELECT * FROM $_" }
  qw(idem_audit idem_in_flight idem_stuck idem_alerts idem_alert idem_secrets idem_stat idem_binding pg_stat_activity pg_stat_statements pg_stats idem_health() _idem_uncommitted(NULL::idem_ack));
my $log = log_since($node, $start);
my ($dump, $err) = ('', '');
IPC::Run::run([ $node->installed_command('pg_dump'), '-h', $node->host, '-p', $node->port, '-T', 'own', 'postgres' ], '>', \$dump, '2>', \$err) or die $err;
like($log, qr/DEBUG:.*CommitTransaction/, 'the log is at its most talkative');
like($log, qr/Query Text: .*idem_commit/, 'with plans');
like($dump, qr/idem_record/, 'the dump has the records');

my %where = ('error messages' => $errors, 'what an auditor sees, statistics included' => $watched, 'the log' => $log);
foreach my $place (sort keys %where)
{
	is(seen($where{$place}, @tokens), 0, "no owner token in $place");
	is(seen($where{$place}, @results), 0, "no result in $place");
}
is(seen($dump, @tokens), 0, 'no owner token in a dump');
cmp_ok(seen($dump, @results), '>', 0, 'where the results are');

# what is meant to be kept is: a late result is evidence, in the log and for auditors, and its token is not
$start = log_size($node);
$call->('idem_commit(key, token, result)', 'stuck', qr/NOT_OWNER/);
like(log_since($node, $start), qr/LOG:  ID004: /, 'it is told of');
is(seen(log_since($node, $start), @results), 1, 'a late result is in the log');
is(seen($watcher->query_ok('SELECT detail FROM idem_alert'), @results), 1, 'and in the alert');
my $late = $s->query_ok(q{SELECT token FROM own WHERE name = 'stuck'});
is(seen(log_since($node, $start) . $watcher->query_ok('SELECT * FROM idem_alert'), $late), 0, 'its token is in neither');
# one that never held the claim is told of by itself, and what it brings is in no table (T20)
$start = log_size($node);
$call->('idem_commit(key, md5(token::text)::uuid, result)', 'late', qr/NOT_OWNER/);
like(log_since($node, $start), qr/LOG:  ID010: /, 'a stranger is told of as such');
is(seen($watcher->query_ok('SELECT * FROM idem_alert'), @results), 1, 'and its result is not in an alert');
$late = $s->query_ok(q{SELECT md5(token::text)::uuid FROM own WHERE name = 'late'});
is(seen(log_since($node, $start) . $watcher->query_ok('SELECT * FROM idem_alert'), $late), 0, 'nor is its token anywhere');
$_->quit foreach $s, $watcher;
$node->stop;
done_testing();
