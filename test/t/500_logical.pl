# Logical replication of idem_record to a reporting server, as docs/operations.md sets it up: what happens to operations
# arrives there, by columns that give nothing away; secrets, owners, parameters and results do not; the publisher does
# not depend on it (P9, P10, P11; G09).
use strict;
use warnings;

use PostgreSQL::Test::Utils;
use Test::More;
use IdemTest;
use IdemFault;

my $node = idem_node('gateway', -streaming => 'logical', autovacuum => 'off');
my $report = idem_node('report', -extension => 0, autovacuum => 'off', wal_retrieve_retry_interval => '100ms');
furnish($node);
my $s = session($node);

my $columns = 'key, scope, subject, state, downstream, attempt, acquired_at, lease_until, expires_at, finished_at, retained_until, trace_id';
my $table = q{
	CREATE TABLE idem_record (
		key uuid PRIMARY KEY, scope text, subject text, state "char", downstream "char", attempt int,
		acquired_at timestamptz, lease_until timestamptz, expires_at timestamptz, finished_at timestamptz,
		retained_until timestamptz, trace_id text)};

# Where deletes are not published, an operation that begins anew under a purged key arrives as an INSERT
my $replacing = $table . q{;
	CREATE FUNCTION replace_record() RETURNS trigger LANGUAGE plpgsql AS $$
	BEGIN
		DELETE FROM public.idem_record WHERE key = NEW.key;
		RETURN NEW;
	END
	$$;
	CREATE TRIGGER replace_record BEFORE INSERT ON idem_record FOR EACH ROW EXECUTE FUNCTION replace_record();
	ALTER TABLE idem_record ENABLE REPLICA TRIGGER replace_record};

# The role that the subscriber comes as may read the published columns, and replicate
value($node, "CREATE ROLE reporter LOGIN REPLICATION; GRANT SELECT ($columns) ON idem_record TO reporter");
value($node, "CREATE PUBLICATION idem_report FOR TABLE idem_record ($columns)");
value($node, "CREATE PUBLICATION idem_history FOR TABLE idem_record ($columns) WITH (publish = 'insert, update')");

sub subscribe
{
	my ($name, $publication, $dbname, $create) = @_;
	value($report, "CREATE DATABASE $dbname");
	value($report, $create, $dbname);
	value($report, "CREATE SUBSCRIPTION $name CONNECTION 'host=" . $node->host . ' port=' . $node->port
		  . " dbname=postgres user=reporter' PUBLICATION $publication", $dbname);
	return;
}

sub arrived
{
	my ($name, $dbname) = @_;
	wait_until($report, "SELECT count(*) > 0 AND bool_and(srsubstate = 'r') FROM pg_subscription_rel", $dbname);
	$node->wait_for_catchup($name);
	return;
}

# Both sides of a table, by the columns that are published
sub both
{
	my ($where) = @_;
	my $all = "SELECT $columns FROM idem_record " . ($where // '') . ' ORDER BY key';
	return (value($report, $all, 'report'), value($node, $all));
}

sub same
{
	my ($what, $where) = @_;
	arrived('idem_report', 'report');
	my ($there, $here) = both($where);
	return is($there, $here, $what);
}

subtest 'what happens to operations arrives (P9)' => sub {
	my %op = states($node);
	subscribe('idem_report', 'idem_report', 'report', $table);
	subscribe('idem_history', 'idem_history', 'history', $replacing);
	same('what was there before');
	is(value($report, q{SELECT string_agg(state::text || n, ' ' ORDER BY state) FROM (SELECT state, count(*) AS n FROM idem_record GROUP BY 1) AS s}, 'report'),
		'D1 F1 I6 R2', 'one done, one failed, six in flight, two released');

	# a claim that outlives its transaction, and its end
	my $two = operation($s, 'opaque');
	is(grant($s, $two), 'ACQUIRED|1', 'granted');
	same('in flight');
	is(ask($s, commit_sql($two, '{"iban": "secret result"}')), 'OK', 'finished');
	same('done');
	# in one transaction: nothing before its end, then one row
	my $one = operation($s, 'local');
	$s->query_ok('BEGIN');
	is(ask($s, acquire_sql($one, 'outcome')), 'ACQUIRED', 'granted in a transaction that is still open');
	arrived('idem_report', 'report');
	is(value($report, "SELECT count(*) FROM idem_record WHERE key = '$one->{key}'", 'report'), 0, 'is not to be seen');
	$s->query_ok('ROLLBACK');
	is(settle($s, $one), 'DONE|"retried"', 'and in one that commits');
	same('done at once');
	# given up and continued, taken over, settled by an operator, guarded
	is(settle($s, $op{$_}, '"again"'), 'DONE|"again"', "$_: continued") foreach qw(released retried over_idempotent);
	is(ask($s, "SELECT idem_reconcile('$op{over_opaque}{key}', 'DONE', 'seen', '1')"), 'OK', 'settled by an operator');
	ask($s, q{INSERT INTO idem_policy (scope, repeat_guard) VALUES ('guarded', '1 hour')});
	is(settle($s, operation($s, 'guarded')), 'DONE|"retried"', 'with a guard');
	same('all of it');
	# with the fast table out of reach, rows are inserted speculatively
	my $locker = session($node);
	$locker->query_ok('BEGIN; LOCK TABLE idem_fast');
	is(grant($s, operation($s, 'opaque')), 'ACQUIRED|1', 'granted past the fast table');
	$locker->query_ok('ROLLBACK');
	$locker->quit;
	same('likewise');
	# what is purged goes, where it is wanted
	my $direct = q{idem_acquire_direct('alice', 'mail', '"again"')};
	my $key = ask($s, "SELECT key FROM (SELECT key, idem_commit(key, owner) FROM $direct) AS c");
	ask($s, "UPDATE idem_record SET retained_until = '2020-01-01' WHERE state = 'D'");
	cmp_ok(ask($s, 'SELECT (idem_maintain()).purged'), '>=', 8, 'purged');
	same('gone');
	$node->wait_for_catchup('idem_history');
	cmp_ok(value($report, q{SELECT count(*) FROM idem_record WHERE state = 'D'}, 'history'), '>=', 8, 'kept where deletes are not published');
	is(ask($s, "SELECT outcome FROM $direct"), 'ACQUIRED', 'a direct call begins anew');
	$node->wait_for_catchup('idem_history');
	is(value($report, "SELECT state FROM idem_record WHERE key = '$key'", 'history'), 'I', 'and takes the place of its former self');
};

subtest 'what does not arrive (P10)' => sub {
	is(value($node, q{SELECT string_agg(tablename, ' ') FROM pg_publication_tables WHERE pubname = 'idem_report'}), 'idem_record', 'one table');
	my $published = value($node, q{SELECT string_agg(a, ' ' ORDER BY a) FROM pg_publication_tables, unnest(attnames) AS a WHERE pubname = 'idem_report'});
	unlike($published, qr/\b(owner_hash|param_hash|result|holder|reconcile_note)\b/, "published: $published");
	my $reporter = session($node, user => 'reporter');
	foreach my $closed ('SELECT * FROM idem_record', 'SELECT owner_hash FROM idem_record', 'SELECT result FROM idem_record', 'SELECT * FROM idem_secret', 'SELECT idem_export_secret()')
	{
		$reporter->query($closed);
		is($reporter->sqlstate, '42501', "closed to the subscriber's role: $closed");
	}
	$reporter->quit;
	is((psql_error($node, 'CREATE PUBLICATION fast FOR TABLE idem_fast'))[0], '22023', 'the unlogged table cannot be published');
};

subtest 'the publisher does not depend on its subscriber' => sub {
	value($report, 'ALTER SUBSCRIPTION idem_report DISABLE', 'report');
	wait_until($node, q{SELECT NOT active FROM pg_replication_slots WHERE slot_name = 'idem_report'});
	my $op = operation($s, 'opaque');
	is(grant($s, $op), 'ACQUIRED|1', 'granted while it is away');
	is(ask($s, commit_sql($op, 1)), 'OK', 'finished');
	is(value($node, q{SELECT status FROM idem_health() WHERE name = 'horizon' AND detail LIKE '%idem_report%'}), 'warn', 'idem_health says that a slot holds things up');
	value($report, 'ALTER SUBSCRIPTION idem_report ENABLE', 'report');
	same('it catches up');
	is(value($node, q{SELECT status FROM idem_health() WHERE name = 'horizon'}), 'ok', 'and nothing is held up any more');
};

subtest 'a reporting server that has the extension itself (G09)' => sub {
	# its own table of the same name, which needs more than what is published: the copy fails, and nobody else is hurt
	my $size = log_size($report);
	subscribe('clash', 'idem_report', 'clash', 'SET client_min_messages = warning; CREATE EXTENSION idem CASCADE');
	ok($report->wait_for_log(qr/null value in column "policy_version" of relation "idem_record" violates not-null constraint/, $size), 'in the same schema it is refused');
	my $own = operation($node, 'opaque');
	is(settle($s, $own), 'DONE|"retried"', 'the publisher goes on');
	is(value($report, q{SELECT outcome FROM idem_acquire_direct('alice', 'own', '1')}, 'clash'), 'ACQUIRED', 'and so does its own idem');
	value($report, 'DROP SUBSCRIPTION clash', 'clash');
	# in another schema the two do not meet
	subscribe('beside', 'idem_report', 'beside', "$table; SET client_min_messages = warning; CREATE SCHEMA idem; CREATE EXTENSION idem SCHEMA idem CASCADE");
	arrived('beside', 'beside');
	is(value($report, 'SELECT count(*) FROM idem_record', 'beside'), value($node, 'SELECT count(*) FROM idem_record'), 'in another schema the copy is there');
	is(value($report, q{SET search_path = idem; SELECT outcome FROM idem_acquire_direct('alice', 'own', '1')}, 'beside'), 'ACQUIRED', 'beside an idem that works');
	is(value($report, 'SELECT count(*) FROM idem.idem_record', 'beside'), 1, 'with rows of its own');
};

# What PostgreSQL refuses to whoever updates a table whose publication cannot carry it, idem refuses too, and before
# it grants anything: the subscriber would lose the row's end in silence.
subtest 'a publication that cannot carry changes is refused (P9, P11)' => sub {
	my $flying = operation($s, 'opaque');
	is(grant($s, $flying), 'ACQUIRED|1', 'granted before');
	foreach my $bad ('idem_record (scope, state)', q{idem_record WHERE (scope = 'opaque')})
	{
		value($node, "CREATE PUBLICATION bad FOR TABLE $bad");
		is(ask($s, "SELECT outcome FROM idem_status_key('$flying->{key}', 'alice')"), 'IN_FLIGHT', 'reading goes on');
		my $op = operation($s, 'opaque');
		ask($s, 'BEGIN');
		$s->query(acquire_sql($op));
		is($s->sqlstate, '42P10', "$bad: no grant");
		$s->query('ROLLBACK');
		$s->query(commit_sql($flying, 1));
		is($s->sqlstate, '42P10', 'no commit');
		like($s->error, qr/cannot update table "idem_record"/, 'as for an UPDATE');
		value($node, 'DROP PUBLICATION bad');
	}
	value($node, q{ALTER TABLE idem_record REPLICA IDENTITY NOTHING});
	$s->query(commit_sql($flying, 1));
	is($s->sqlstate, '55000', 'without a replica identity: no commit');
	value($node, q{ALTER TABLE idem_record REPLICA IDENTITY DEFAULT});
	is(ask($s, commit_sql($flying, 1)), 'OK', 'and goes on when it is mended');
	value($node, 'CREATE PUBLICATION bad FOR TABLE idem_alert (kind)');
	ask($s, "SELECT idem_commit('$flying->{key}', gen_random_uuid(), '2')");
	is(value($node, "SELECT count(*) FROM idem_alert WHERE key = '$flying->{key}'"), 0, 'alerts go without their row');
	value($node, 'DROP PUBLICATION bad');
	same('the reporting server has it all');
};

$s->quit;
value($report, "DROP SUBSCRIPTION idem_$_", $_) foreach qw(history);
done_testing();
