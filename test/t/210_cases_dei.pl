# Field cases of groups D, E and I that need other databases, other roles or the server's log (test/CASES.md is the
# index of all).
use strict;
use warnings;

use PostgreSQL::Test::Utils;
use Test::More;
use IdemTest;

my $node = idem_node('cases_dei',
	autovacuum => 'off',
	shared_preload_libraries => 'idem,pg_stat_statements',
	log_statement => 'all',
	log_min_duration_statement => 0,
	log_parameter_max_length_on_error => -1,
	log_error_verbosity => 'verbose');

# P3: the order of members is that of UTF-16 units, whatever a database sorts by (G10)
subtest 'D04: one hash in every locale' => sub {
	my @documents = (
		'{"\ud83d\ude00": 1, "\ufb33": 2}', '{"\ud83d\ude00": 1, "\ufffd": 2, "a": 3, "A": 4, "\u00e4": 5, "z": 6}',
		'{"it is": 1, "that": 2, "is": 3, "a weird": 4, "\u00e9": 5, "z": 6}', '{"co-op": 1, "coop": 2, "co op": 3, "Coop": 4}',
		'{"\u0131": 1, "i": 2, "I": 3, "\u0130": 4}', '{"ss": 1, "\u00df": 2, "\u1e9e": 3}', '{"\u00e9": 1, "e\u0301": 2, "e": 3}');
	my $all = join ', ', map { "'$_'" } @documents;
	my %how = (
		'C' => "LOCALE 'C'",
		'C.UTF-8' => "LOCALE 'C.UTF-8'",
		'ICU root' => "LOCALE_PROVIDER icu ICU_LOCALE 'und' LOCALE 'C'",
		'ICU Swedish' => "LOCALE_PROVIDER icu ICU_LOCALE 'sv-SE' LOCALE 'C'",
		'ICU, blind to case and accents' => "LOCALE_PROVIDER icu ICU_LOCALE 'und-u-ks-level1' LOCALE 'C'");
	foreach my $installed (split /\n/, `locale -a 2>&1`)
	{
		$how{$installed} = "LOCALE '$installed'" if $installed =~ /^(?:en_US|de_DE|tr_TR)\.utf-?8$/i;
	}
	my $ask = qq{SELECT string_agg(concat_ws(' ', idem_canonical(NULL, j::jsonb), encode(idem_param_hash(NULL, j::jsonb), 'hex'), idem_key('alice', 'charge', j::jsonb)), E'\\n' ORDER BY n)
		FROM unnest(ARRAY[$all]) WITH ORDINALITY AS d (j, n)};
	my $expected = value($node, $ask);
	like($expected, qr/^\{"\xf0\x9f\x98\x80":1,"\xef\xac\xb3":2\}/, 'U+1F600 goes before U+FB33, as its first unit U+D83D does');
	my $count = 0;
	foreach my $locale (sort keys %how)
	{
		my $db = 'locale' . ++$count;
		my ($state, $message) = psql_error($node, "CREATE DATABASE $db TEMPLATE template0 ENCODING 'UTF8' $how{$locale}");
	  SKIP:
		{
			skip "$locale: $message", 1 if $state ne '';
			value($node, 'SET client_min_messages = warning; CREATE EXTENSION idem CASCADE', $db);
			is(value($node, $ask, $db), $expected, "$locale");
			# keys, scopes and subjects are compared by their bytes
			is(value($node, q{SELECT string_agg(outcome::text, ' ' ORDER BY n) FROM unnest(ARRAY['bob', 'Bob', 'bób']) WITH ORDINALITY AS s (s, n), idem_acquire_direct(s, 'charge', '1')}, $db), 'ACQUIRED ACQUIRED ACQUIRED', "$locale: three subjects");
			is(value($node, q{INSERT INTO idem_policy (scope, downstream) VALUES ('pay', 'local'), ('PAY', 'idempotent'); SELECT count(*) FROM idem_policy}, $db), '2', "$locale: two scopes");
		}
	}
	# where bytes are not UTF-8 there is no canonical form
	foreach my $encoding (qw(LATIN1 SQL_ASCII))
	{
		value($node, "CREATE DATABASE other_$encoding TEMPLATE template0 ENCODING '$encoding' LOCALE 'C'");
		is((psql_error($node, 'CREATE EXTENSION idem CASCADE', "other_\L$encoding"))[0], '0A000', "$encoding is refused");
	}
};

# Every form in which the bytes of a secret might be written
sub forms
{
	my ($hex) = @_;
	my $raw = pack 'H*', $hex;
	require MIME::Base64;
	my $base64 = MIME::Base64::encode_base64($raw, '');
	(my $escaped = join '', map { sprintf '\\%03o', ord } split //, $raw);
	return ($hex, uc $hex, substr($base64, 0, 40), $escaped, substr($raw, 0, 16));
}

# P10: a plain role looks everywhere it may, and the log is read at its most talkative
subtest 'E10: no secret in settings, statistics, errors or the log' => sub {
	value($node, 'CREATE EXTENSION pg_stat_statements');
	value($node, 'CREATE ROLE plain LOGIN; CREATE ROLE clerk LOGIN');
	value($node, "SELECT idem_grant('clerk', 'caller'), idem_grant('clerk', 'signer'), idem_grant('clerk', 'auditor'), idem_grant('clerk', 'operator')");
	my $start = log_size($node);
	my $admin = session($node);
	my $plain = session($node, user => 'plain');
	my $clerk = session($node, user => 'clerk');
	my @secrets;
	$admin->query_ok('SET log_min_messages = debug5; SET debug_print_plan = on; SET log_parser_stats = on');
	push @secrets, $admin->query_ok(q{SELECT encode(idem_export_secret(), 'hex')});
	$admin->query_ok('SELECT idem_rotate_secret()');
	push @secrets, $admin->query_ok(q{SELECT encode(idem_export_secret(), 'hex')});
	# brought from elsewhere, without being written in a statement
	$admin->query_ok('CREATE TEMP TABLE elsewhere AS SELECT gen_random_bytes(48) AS secret');
	$admin->query_ok('SELECT idem_import_secret(secret, true) FROM elsewhere');
	push @secrets, $admin->query_ok(q{SELECT encode(secret, 'hex') FROM elsewhere});
	is($admin->query_ok(q{SELECT count(*) FROM idem_secrets}), '3', 'three secrets');
	my $fp = $admin->query_ok(q{SELECT idem_sign('alice', 'charge', '1')});
	is($admin->query_ok("SELECT outcome FROM idem_acquire('$fp', 'alice', 'charge', '1')"), 'ACQUIRED', 'signed and acquired');
	$admin->query_ok("SELECT outcome FROM idem_acquire('x$fp', 'alice', 'charge', '1')");
	# errors with a secret at hand
	$admin->query(q{SELECT idem_import_secret(substr(secret, 1, 31)) FROM elsewhere});
	is($admin->sqlstate, '22023', 'too short');
	unlike($admin->error, qr/\\x/, 'and not repeated');
	$admin->query(q{DO $$ DECLARE s bytea := (SELECT secret FROM elsewhere); BEGIN PERFORM idem_revoke_secret((SELECT id FROM idem_secrets WHERE signing)); END $$});
	is($admin->sqlstate, '55000', 'the one that signs cannot be revoked');
	$admin->query(q{SELECT idem_import_secret(secret, true) FROM elsewhere, idem_rotate_secret('1 s')});
	is($admin->sqlstate, '22023', 'rotated for too short a time');

	# what a plain role can read of the server, and one that holds all but admin
	my $seen = '';
	foreach my $s ($plain, $clerk)
	{
		$seen .= $s->query_ok($_)
		  foreach 'SELECT * FROM pg_settings', 'SHOW ALL', 'SELECT * FROM pg_stat_activity', 'SELECT * FROM pg_stat_statements',
		  'SELECT * FROM pg_stats', 'SELECT * FROM pg_prepared_statements', 'SELECT * FROM pg_cursors',
		  'SELECT proname, prosrc, proconfig FROM pg_proc', 'SELECT setconfig FROM pg_db_role_setting',
		  q{SELECT description FROM pg_description};
		foreach my $forbidden ('SELECT * FROM pg_file_settings', 'SELECT * FROM idem_secret', 'SELECT idem_export_secret()', 'TABLE pg_statistic',
			'SELECT idem_rotate_secret()', q{SELECT idem_import_secret(sha256('x'), true)}, q{COPY idem_secret TO STDOUT},
			q{CREATE STATISTICS leak ON id, secret FROM idem_secret}, q{SELECT pg_read_binary_file('base')}, q{CREATE VIEW pg_temp.v AS SELECT secret FROM idem_secret; SELECT * FROM pg_temp.v},
			q{SELECT get_raw_page('idem_secret', 0)})
		{
			$seen .= $s->query($forbidden) . $s->error;
			isnt($s->sqlstate, '00000', "refused: $forbidden");
		}
	}
	is($plain->query_ok(q{SELECT count(*) FROM pg_settings WHERE name LIKE 'idem%secret%'}), '0', 'no setting holds a secret');
	foreach my $sql (q{SELECT idem_sign('alice', 'charge', '1')}, q{SELECT * FROM idem_secrets})
	{
		$plain->query($sql);
		is($plain->sqlstate, '42501', "not for a plain role: $sql");
	}
	is($clerk->query_ok(q{SELECT count(*) FROM idem_secrets WHERE signing}), '1', 'an auditor sees that there are secrets');
	$seen .= $clerk->query_ok('SELECT * FROM idem_secrets');
	$_->quit foreach $admin, $plain, $clerk;

	my $log = log_since($node, $start);
	like($log, qr/idem_rotate_secret/, 'the log tells of the calls');
	like($log, qr/DEBUG:/, 'and of much more');
	my $statements = value($node, 'SELECT string_agg(query, chr(10)) FROM pg_stat_statements');
	like($statements, qr/idem_import_secret/, 'so do the statistics');
	my $counters = slurp_folder($node->data_dir . '/pg_stat') . slurp_folder($node->data_dir . '/pg_logical') . slurp_file($node->data_dir . '/postgresql.conf');
	my %where = ('what roles see' => $seen, 'the log' => $log, 'pg_stat_statements' => $statements, 'files of statistics and settings' => $counters);
	my $n = 0;
	foreach my $hex (@secrets)
	{
		$n++;
		cmp_ok(length $hex, '>=', 64, "secret $n");
		foreach my $place (sort keys %where)
		{
			# a statement that prints a secret sends it to who asked; debug_print_plan shows plans, and those hold none
			is(scalar(grep { index($where{$place}, $_) >= 0 } forms($hex)), 0, "secret $n is not in $place");
		}
	}
};

sub slurp_folder
{
	my ($dir) = @_;
	return join '', map { -f $_ ? slurp_file($_) : '' } glob "$dir/*";
}

$node->stop;
done_testing();
