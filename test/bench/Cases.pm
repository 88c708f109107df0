package Cases;
# Cases: the operations that are measured, as scripts for pgbench or modes of the client of peer.c, and what they need in
# the database.
use strict;
use warnings;
use Cwd ();
use Exporter 'import';

use Bench;

our @EXPORT = qw(@cases $bench_row prepare_cases pgbench_words expected_outcome);

my $tokens = 5;	# fingerprints of finished operations, replayed at random; each is a statement to prepare

# A row of the record table as plain SQL would insert it.
our $bench_row = q(gen_random_uuid(), now(), now(), 0, 1, 'D', 'o', '\x%1$s', '\x%1$s', 'charge', 'alice', NULL, NULL, NULL,
	now() + interval '1 day', now(), '{"ok": true}', NULL, NULL, NULL, NULL, NULL);
$bench_row = sprintf($bench_row, '00' x 32) =~ s/\n\s*/ /gr;

# What every caller needs of an answer. Making and sending the other ten columns costs 16,000 instructions, two fifths of a
# SELECT by primary key, of idem as of the PL/pgSQL peer; one operation shows it.
my $needed = 'outcome, key, owner, result';
my $acquire = "select $needed from idem_acquire(%s, '%s', '%s', %s);";
my $replay = sprintf($acquire, ':fp%d', 'alice', 'charge', ':params');
my $peer_cycle = "select peer_sign('alice', 'charge', :params) as fp \\gset\n%s"
	. "select key as k, owner as o from peer_acquire(:fp, 'alice', 'charge', :params) \\gset\n"
	. "select peer_commit(:k, :o, '{\"ok\": true}');%s";

# An operation: a script for pgbench (one for each fingerprint where it names :fp%d), or what the client of peer.c
# gets; and the number of clients where it is not the common one.
our @cases = (
	['return at once', "select bench_floor('alice', 'charge', :params);"],
	['a claim at once', $replay =~ s/idem_acquire/bench_claim/r],
	['primary-key SELECT', "\\set i random(1, 100000)\nselect r, s from bench_pk where id = :i;"],
	['INSERT, unlogged', "insert into bench_unlogged values ($bench_row);"],
	['INSERT, logged', "insert into bench_logged values ($bench_row);"],
	['two INSERTs in one statement', "with a as (insert into bench_logged values ($bench_row)) insert into bench_effect values (1, now());"],

	['sign', "select idem_sign('alice', 'charge', :params);"],
	['status by fingerprint', "select $needed from idem_status(:fp%d, 'alice');"],
	['status by key', "select $needed from idem_status_key(:key, 'alice');"],
	['replay by fingerprint', $replay],
	['replay by fingerprint, all columns', $replay =~ s/\Q$needed\E/*/r],
	['replay by client key', "select $needed from idem_acquire_direct('alice', 'charge', :params, 'done');"],
	['replay by content', "select $needed from idem_acquire_direct('alice', 'content', :params);"],
	['acquire, in autocommit', $once],
	['execute by client key', "select $needed from idem_execute('alice', 'charge', :params, 'bench_effect(jsonb)', client_key => gen_random_uuid()::text);"],
	['cycle in one transaction', "begin;\n$cycle\ncommit;"],
	['cycle in two transactions', $cycle],

	['refused: other parameters', sprintf($acquire, ':fp%d', 'alice', 'charge', ':other')],
	['refused: another subject', sprintf($acquire, ':fp%d', 'bob', 'charge', ':params')],
	['refused: another scope', sprintf($acquire, ':fp%d', 'alice', 'refund', ':params')],
	['refused: expired', sprintf($acquire, ':expired', 'alice', 'charge', ':params')],
	['refused: garbled', sprintf($acquire, q('garbled'), 'alice', 'charge', ':params')],
	['refused: forged', sprintf($acquire, ':forged', 'alice', 'charge', ':params')],

	['64 clients: SELECT of one row', 'select r, s from bench_pk where id = 1;', 64],
	['64 clients: one finished key', "select $needed from idem_acquire_direct('alice', 'charge', :params, 'done');", 64],
	['64 clients: one key in flight', "select $needed from idem_acquire_direct('alice', 'held', :params, 'held');", 64],
	['64 clients: racing for a key', "select $needed from idem_execute('alice', 'race', :params, 'bench_race(jsonb)', "
		. "client_key => (extract(epoch from clock_timestamp()) * 20)::int8::text);", 64],

	['PL/pgSQL: replay', "select $needed from peer_acquire(:peer_fp, 'alice', 'charge', :params);"],
	['PL/pgSQL: sign, one transaction', sprintf($peer_cycle, "begin;\n", "\ncommit;")],
	['PL/pgSQL: sign, two transactions', sprintf($peer_cycle, '', '')],
	['sign, cycle in one transaction', by_fingerprint("begin;\n", "\ncommit;")],
	['sign, cycle in two transactions', by_fingerprint('', '')],
	['two states: replay', "insert into two_state (key) values ('done') on conflict do nothing;\nselect result from two_state where key = 'done';"],
	['two states: cycle', "select gen_random_uuid() as k \\gset\ninsert into two_state (key) values (:k) on conflict do nothing;\n"
		. "update two_state set result = '{\"ok\": true}' where key = :k;"],

	['client: Redis, snapshots', ['redis', 'snapshots']],
	['client: Redis, fsync always', ['redis', 'always']],
	['client: execute by fingerprint', ['execute']],
	['client: Redis replay', ['redis-replay', 'snapshots']],
	['client: replay by fingerprint', ['replay']],
);

# The same calls as the PL/pgSQL peer's.
sub by_fingerprint
{
	my ($begin, $end) = @_;
	return sprintf($peer_cycle, $begin, $end) =~ s/peer_/idem_/gr;
}

# A finished operation, and its fingerprint.
sub finished
{
	my ($prefix) = @_;
	my $fp = ask("SELECT ${prefix}_sign('alice', 'charge', '$params')");
	my $ack = ask("SELECT ${prefix}_commit(key, owner, '{\"ok\": true}') FROM ${prefix}_acquire('$fp', 'alice', 'charge', '$params')");
	die "the operation was not finished: $ack\n" unless $ack eq 'OK';
	return $fp;
}

# Make the database and what the operations need in it; gives the values of the scripts' variables. A refusal is not to
# be measured as a replay: each is tried once.
sub prepare_cases
{
	my %value;
	system('createdb', $ENV{PGDATABASE}) == 0 or die "no database\n";
	prepare_database();
	my $folder = Cwd::getcwd();
	ask("CREATE FUNCTION bench_floor(text, text, jsonb) RETURNS text AS '$folder/floor' LANGUAGE C VOLATILE",
		"CREATE FUNCTION bench_claim(fingerprint text, subject text, scope text, params jsonb, wait interval DEFAULT '0',
			owner uuid DEFAULT NULL, holder text DEFAULT NULL, trace_id text DEFAULT NULL, answer idem_claim DEFAULT
			'(DONE,0192f0c1-7e3a-7c11-8a5b-0d5c2f6e9a01,,1,t,f,charge,alice,\"{\"\"ok\"\": true}\",,,2026-01-02,2026-01-03,)')
			RETURNS idem_claim AS '$folder/floor' LANGUAGE C VOLATILE",
		q(CREATE TABLE bench_race (at timestamptz)),
		q(CREATE FUNCTION bench_race(p jsonb) RETURNS jsonb LANGUAGE sql VOLATILE AS
			$$INSERT INTO bench_race VALUES (now()) RETURNING '{"ok": true}'::jsonb$$),
		q(INSERT INTO idem_policy (scope, in_flight_ttl) VALUES ('held', '30 days')),
		q(INSERT INTO two_state (key, result) VALUES ('done', '{"ok": true}')));
	$value{"fp$_"} = finished('idem') for 0 .. $tokens - 1;
	$value{peer_fp} = finished('peer');
	$value{other} = q({"amount":1,"currency":"USD","payee":"acct_42"});
	$value{forged} = $value{fp0} =~ s/\.\K(.)/$1 eq 'A' ? 'B' : 'A'/er;
	$value{key} = ask("SELECT key FROM idem_inspect('$value{fp0}')");
	$value{expired} = ask("SELECT bench_token(overlay(gen_random_uuid()::text placing '7' from 15)::uuid, now() - interval '10 s', '$params')");
	ask("SELECT idem_commit(key, owner, '{\"ok\": true}') FROM idem_acquire_direct('alice', 'charge', '$params', 'done')");
	ask("SELECT idem_commit(key, owner, '{\"ok\": true}') FROM idem_acquire_direct('alice', 'content', '$params')");
	ask("SELECT outcome FROM idem_acquire_direct('alice', 'held', '$params', 'held')");
	check_outcomes(\%value);
	ask('VACUUM ANALYZE', 'CHECKPOINT');
	$value{secret} = ask("SELECT encode(idem_export_secret(), 'hex')");
	return %value;
}

# The outcome that an operation must give, where it has one.
sub expected_outcome
{
	my ($name) = @_;
	return 'ACQUIRED' if $name =~ /^acquire|cycle|^PL.*transaction/ && $name !~ /two states/;
	return 'DONE' if $name =~ /replay by|claim at once|status|execute|finished key|^PL.*replay/;
	my %refusal = (parameters => 'PARAM_MISMATCH', subject => 'SUBJECT_MISMATCH', scope => 'SCOPE_MISMATCH', expired => 'EXPIRED',
		garbled => 'INVALID', forged => 'INVALID');
	return $refusal{$1} if $name =~ /^refused: .*?(\w+)$/;
	return $name =~ /in flight/ ? 'IN_FLIGHT' : undef;
}

# Does each that can be called again give the outcome that it must?
sub check_outcomes
{
	my ($value) = @_;
	my %set = (%$value, params => $params);
	foreach my $case (@cases)
	{
		my ($name, $text) = @$case;
		my $expected = expected_outcome($name);
		next if !defined $expected || ref $text || $text =~ /\n|gen_random_uuid/;
		my $outcome = (split /\t/, ask($text =~ s/%d/0/r =~ s/(?<!:):(\w+)\b/'$set{$1}'/gr))[0];
		die "$name: $outcome instead of $expected\n" unless $outcome eq $expected;
	}
	return;
}

# The words for pgbench that run a case: its scripts, and the variables in them.
sub pgbench_words
{
	my ($case, $value) = @_;
	my ($name, $text) = @$case;
	my $file = $name =~ s/\W+/-/gr;
	my @files = $text =~ /%d/ ? map { script("$file.$_", sprintf($text, $_)) } 0 .. $tokens - 1 : script($file, $text);
	my @used = grep { /^fp\d/ ? $text =~ /:fp%d/ : $text =~ /:$_\b/ } sort keys %$value;
	return ((map { ('-D', "$_=$value->{$_}") } @used), map { ('-f', $_) } @files);
}

1;
