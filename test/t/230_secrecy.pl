# P10: owner tokens and results stay where they belong. Every call that takes or gives one is made, on a server that logs all
# it can, with tokens that come from a table as a program's come as parameters; then they are looked for.
use strict;
use warnings;

use IPC::Run;
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
	debug_print_plan => 'on');
value($node, 'CREATE EXTENSION pg_stat_statements');
value($node, q{CREATE ROLE watcher LOGIN IN ROLE pg_read_all_stats; SELECT idem_grant('watcher', 'auditor')});

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
  qw(idem_audit idem_in_flight idem_stuck idem_alerts idem_alert idem_secrets idem_stat idem_binding pg_stat_activity pg_stat_statements pg_stats idem_health() idem_uncommitted());
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
