# Attacks that need several sessions, other roles' connections or a server of their own (sql/attack.sql has the rest):
# autonomous sessions inside a claim's transaction, the log that replication reads, triggers that somebody else's table or
# mode brings, large results, and roles that change in the middle.
use strict;
use warnings;

use PostgreSQL::Test::Utils;
use Test::More;
use IdemTest;

my $node = idem_node('attack',
	autovacuum => 'off',
	wal_level => 'logical',
	max_prepared_transactions => 5,
	deadlock_timeout => '100ms');
my $started = value($node, 'SELECT pg_postmaster_start_time()');
my $connect = "host=" . $node->host . " port=" . $node->port . " dbname=postgres";
value($node, 'CREATE EXTENSION dblink');

# P1, P11: a second session that the holder itself waits for cannot be seen by the deadlock detector; the wait is bounded
subtest 'an autonomous session inside the transaction that holds the claim' => sub {
	my $s = session($node);
	my $inside = sub { return $s->query("SELECT * FROM dblink('$connect', \$\$$_[0]\$\$) AS t (a text, b text)") };
	$s->query_ok('BEGIN');
	my ($key, $owner) = split /\|/, $s->query_ok(q{SELECT key, owner FROM idem_acquire_direct('alice', 'auto', '1')});
	is($inside->(q{SELECT outcome, joined FROM idem_acquire_direct('alice', 'auto', '1')}), 'IN_FLIGHT|f', 'without waiting');
	is($inside->(q{SELECT outcome, joined FROM idem_acquire_direct('alice', 'auto', '1', wait => '200 ms')}), 'IN_FLIGHT|t', 'waiting as long as it may');
	is($inside->(q{SELECT outcome, joined FROM idem_status_key(idem_key('alice', 'auto', '1'), 'alice', '200 ms')}), 'IN_FLIGHT|t', 'asking');
	is($inside->("SELECT idem_commit('$key', '$owner', '\"by another\"'), 1"), 'NONE|1', 'nobody can end what nobody can see, not even with its token');
	is($s->query_ok("SELECT idem_commit('$key', '$owner', '\"first\"')"), 'OK', 'the holder can');
	is($inside->(q{SELECT outcome, joined FROM idem_acquire_direct('alice', 'auto', '1', wait => '200 ms')}), 'IN_FLIGHT|t', 'not done before it is committed');
	$s->query_ok('COMMIT');
	is($inside->(q{SELECT outcome, result FROM idem_acquire_direct('alice', 'auto', '1')}), 'DONE|"first"', 'done then');
	$s->quit;
};

# P1, P9: what replication reads of the log is the truth's history: no claim of the fast table, no version that was withdrawn
subtest 'logical decoding sees records and nothing else' => sub {
	value($node, q{SELECT pg_create_logical_replication_slot('seen', 'test_decoding')});
	my $s = session($node);
	$s->query_ok('BEGIN');
	my ($key, $owner) = split /\|/, $s->query_ok(q{SELECT key, owner FROM idem_acquire_direct('alice', 'decoded', '1')});
	$s->query_ok("SELECT idem_commit('$key', '$owner', '1'); COMMIT");
	($key, $owner) = split /\|/, $s->query_ok(q{SELECT key, owner FROM idem_acquire_direct('alice', 'decoded', '2')});
	$s->query_ok("SELECT idem_commit('$key', '$owner', '2')");
	$s->query_ok(q{BEGIN; SELECT idem_acquire_direct('alice', 'decoded', '3'); ROLLBACK});
	$s->query_ok(q{BEGIN; SAVEPOINT s; SELECT idem_acquire_direct('alice', 'decoded', '4'); ROLLBACK TO s; COMMIT});
	$s->query_ok(q{SELECT idem_acquire_direct('alice', 'decoded', '1'), idem_acquire_direct('alice', 'decoded', '2')});
	# the way past the fast table inserts speculatively into the record itself
	my $locker = session($node);
	$locker->query_ok('BEGIN; LOCK TABLE idem_fast');
	$s->query_ok(q{SELECT idem_acquire_direct('alice', 'decoded', '5')});
	$locker->query_ok('ROLLBACK');
	my $changes = $s->query_ok(q{SELECT string_agg(substring(data FROM 'table \w+\.(\w+: \w+)'), ', ') FROM pg_logical_slot_get_changes('seen', NULL, NULL)});
	is($changes, 'idem_record: INSERT, idem_record: INSERT, idem_record: UPDATE, idem_record: INSERT', 'four changes for three operations');
	value($node, q{SELECT pg_drop_replication_slot('seen')});
	$_->quit foreach $s, $locker;
};

# P1, P7: modes and roles that change around a call
subtest 'replica mode, row security, roles and event triggers decide nothing' => sub {
	my $s = session($node);
	$s->query_ok(q{SET session_replication_role = replica});
	$s->query_ok(q{INSERT INTO idem_policy (scope, enabled) VALUES ('replica', false)});
	$s->query_ok(q{SELECT idem_rotate_secret()});
	$s->query_ok(q{RESET session_replication_role});
	my $other = session($node);
	$other->query(q{SELECT idem_acquire_direct('alice', 'replica', '1')});
	is($other->sqlstate, '55000', 'a policy made in replica mode holds for everybody');
	is($other->query_ok(q{SELECT count(*) FROM idem_policy_version WHERE scope = 'replica' AND replaced_at IS NULL}), '1', 'and has its history');
	is($other->query_ok(q{SELECT valid FROM idem_inspect(idem_sign('alice', 'replica', '1'))}), 't', 'a secret made there signs');
	$s->query_ok(q{SET row_security = off});
	is($s->query_ok(q{SELECT valid FROM idem_inspect(idem_sign('alice', 'rls', '1'))}), 't', 'row security off');
	# claims know no roles: who holds the token holds the grant
	value($node, q{CREATE ROLE one LOGIN; CREATE ROLE two LOGIN; CREATE ROLE outsider LOGIN; SELECT idem_grant('one', 'caller'), idem_grant('two', 'caller')});
	$s->query_ok('SET ROLE one');
	my ($key, $owner) = split /\|/, $s->query_ok(q{SELECT key, owner FROM idem_acquire_direct('alice', 'roles', '1')});
	$s->query_ok('SET ROLE outsider');
	$s->query("SELECT idem_commit('$key', '$owner', '1')");
	is($s->sqlstate, '42501', 'a role without the set');
	$s->query_ok('SET ROLE two');
	is($s->query_ok("SELECT idem_commit('$key', gen_random_uuid(), '1')"), 'NOT_OWNER', 'another role without the token');
	is($s->query_ok("SELECT idem_commit('$key', '$owner', '1')"), 'OK', 'another role with the token');
	# a function with more rights than its caller lends them to what it calls, and to nothing else
	$s->query_ok('RESET ROLE');
	$s->query_ok(q{CREATE FUNCTION public.door(params jsonb) RETURNS text LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
		AS $$ SELECT outcome::text FROM public.idem_acquire_direct('fixed', 'door', params) $$});
	$s->query_ok('SET ROLE outsider');
	is($s->query_ok(q{SELECT public.door('1')}), 'ACQUIRED', 'through a door that somebody opened');
	$s->query(q{SELECT idem_acquire_direct('fixed', 'door', '1')});
	is($s->sqlstate, '42501', 'and not past it');
	$s->query_ok('RESET ROLE');
	# an event trigger sees no DDL in a claim's life
	$s->query_ok(q{CREATE TABLE ddl (tag text); CREATE FUNCTION note() RETURNS event_trigger LANGUAGE plpgsql AS $$ BEGIN INSERT INTO ddl VALUES (tg_tag); END $$;
		CREATE EVENT TRIGGER watch ON ddl_command_start EXECUTE FUNCTION note()});
	($key, $owner) = split /\|/, $s->query_ok(q{SELECT key, owner FROM idem_acquire_direct('alice', 'roles', '2')});
	$s->query_ok("SELECT idem_renew('$key', '$owner'), idem_commit('$key', '$owner'), idem_purge(), idem_maintain(), idem_rotate_secret()");
	$s->query_ok(q{SELECT idem_preview('alice', 'roles', '3'), idem_reply(idem_acquire_direct('alice', 'roles', '2'))});
	$s->query_ok('DROP EVENT TRIGGER watch');
	is($s->query_ok(q{SELECT count(*) FROM ddl WHERE tag <> 'DROP EVENT TRIGGER'}), '0', 'no DDL');
	$_->quit foreach $s, $other;
};

# P1: the trigger that closes the way around, on tables that it was not made for
subtest 'idem_require on partitions, views, deferred and in COPY' => sub {
	my $s = session($node);
	$s->query_ok(q{CREATE TABLE pay (k uuid, n int) PARTITION BY RANGE (n);
		CREATE TABLE pay1 PARTITION OF pay FOR VALUES FROM (0) TO (10);
		CREATE TABLE pay2 PARTITION OF pay FOR VALUES FROM (10) TO (20);
		CREATE TRIGGER r BEFORE INSERT OR UPDATE ON pay FOR EACH ROW EXECUTE FUNCTION idem_require('pay', 'k');
		CREATE TABLE plain_pay (k uuid, n int);
		CREATE VIEW pay_view AS SELECT * FROM plain_pay;
		CREATE TRIGGER r INSTEAD OF INSERT ON pay_view FOR EACH ROW EXECUTE FUNCTION idem_require('pay', 'k');
		CREATE TABLE late_pay (k uuid);
		CREATE CONSTRAINT TRIGGER r AFTER INSERT ON late_pay DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION idem_require('pay', 'k')});
	my $refused = sub { $s->query($_[0]); is($s->sqlstate, '23000', "refused: $_[1]"); return };
	$refused->('INSERT INTO pay VALUES (gen_random_uuid(), 1)', 'a partitioned table');
	$refused->('INSERT INTO pay1 VALUES (gen_random_uuid(), 1)', 'a partition');
	$refused->('INSERT INTO pay_view VALUES (gen_random_uuid(), 1)', 'a view');
	$refused->('INSERT INTO late_pay VALUES (gen_random_uuid())', 'at the end of the transaction');
	$refused->('INSERT INTO late_pay VALUES (NULL)', 'no key');
	$refused->(q{COPY pay FROM PROGRAM 'printf "00000000-0000-0000-0000-000000000000\t3\n"'}, 'COPY');
	$s->query_ok('BEGIN');
	my ($key, $owner) = split /\|/, $s->query_ok(q{SELECT key, owner FROM idem_acquire_direct('alice', 'pay', '1')});
	$s->query_ok("INSERT INTO pay VALUES ('$key', 1); UPDATE pay SET n = 15; INSERT INTO late_pay VALUES ('$key')");
	is($s->query_ok("SELECT idem_commit('$key', '$owner')"), 'OK', 'committed with its rows');
	$s->query_ok("COMMIT");
	is($s->query_ok('SELECT count(*) FROM pay2'), '1', 'moved to another partition');
	$refused->('UPDATE pay SET n = 1', 'a row of an operation that is over');
	$s->query_ok('BEGIN');
	($key, $owner) = split /\|/, $s->query_ok(q{SELECT key, owner FROM idem_acquire_direct('alice', 'pay', '2')});
	$s->query_ok("INSERT INTO late_pay VALUES ('$key'); SELECT idem_release('$key', '$owner')");
	$refused->('COMMIT', 'released before the end');
	# an unfit table or argument is told as such, and lets nothing through
	$s->query_ok('CREATE TABLE unfit (a int)');
	foreach my $arguments (q{'pay'}, q{'pay', 'a', 'b'}, q{'pay', 'none'}, q{'pay', 'a'}, q{'pay', 'ctid'}, q{'pay', ''})
	{
		$s->query_ok("CREATE TRIGGER r BEFORE INSERT ON unfit FOR EACH ROW EXECUTE FUNCTION idem_require($arguments)");
		$s->query('INSERT INTO unfit VALUES (1)');
		is($s->sqlstate, '39P01', "arguments $arguments");
		$s->query_ok('DROP TRIGGER r ON unfit');
	}
	foreach my $when ('BEFORE DELETE', 'AFTER INSERT')
	{
		my $each = $when eq 'AFTER INSERT' ? 'STATEMENT' : 'ROW';
		$s->query_ok("INSERT INTO unfit VALUES (1); CREATE TRIGGER r $when ON unfit FOR EACH $each EXECUTE FUNCTION idem_require('pay', 'a')");
		$s->query($when =~ /DELETE/ ? 'DELETE FROM unfit' : 'INSERT INTO unfit VALUES (1)');
		is($s->sqlstate, '39P01', "$when FOR EACH $each");
		$s->query_ok('DROP TRIGGER r ON unfit');
	}
	$s->quit;
};

# P3, P11: what is large is kept and replayed, or refused; the session's memory is given back
subtest 'large results and parameters' => sub {
	my $s = session($node);
	$s->query_ok(q{CREATE TEMP TABLE big AS SELECT to_jsonb(repeat('0123456789', 2000000)) AS j});
	my ($key, $owner) = split /\|/, $s->query_ok(q{SELECT key, owner FROM big, idem_acquire_direct('alice', 'big', j)});
	is($s->query_ok("SELECT idem_commit('$key', '$owner', j) FROM big"), 'OK', '20 MB as parameters and as result');
	my $memory = sub { return $s->query_ok(q{SELECT sum(total_bytes) FROM pg_backend_memory_contexts}) };
	my $replay = q{SELECT c.outcome, c.result = j, length(idem_reply(c)::text) > 20000000 FROM big, idem_acquire_direct('alice', 'big', j) AS c};
	is($s->query_ok($replay), 'DONE|t|t', 'replayed whole, in a reply too');
	my $before = $memory->();
	is($s->query_ok($replay), 'DONE|t|t', 'again') foreach 1 .. 3;
	cmp_ok($memory->() - $before, '<', 5_000_000, 'nothing of it stays in memory');
	($key, $owner) = split /\|/, $s->query_ok(q{SELECT key, owner FROM idem_acquire_direct('alice', 'big', '1')});
	$s->query_ok("SELECT idem_reconcile('$key', 'FAILED', 'gone', force => true)");
	is($s->query_ok("SELECT idem_commit('$key', '$owner', j) FROM big"), 'NOT_OWNER', 'a late result of that size');
	is($s->query_ok("SELECT length(detail::text) > 20000000 FROM idem_alert WHERE key = '$key' AND kind = 'not_owner'"), 't', 'is evidence');
	$s->query_ok("SELECT idem_commit('$key', gen_random_uuid(), j) FROM big");
	is($s->query_ok("SELECT detail ->> 'result_size' FROM idem_alert WHERE key = '$key' AND kind = 'never_owner'"), '20000012', 'of a forged one its size alone is (T20)');
	my $size = log_size($node);
	$s->query_ok("SELECT idem_commit('$key', '$owner', j) FROM big");
	cmp_ok(log_size($node) - $size, '<', 10_000, 'the log line is cut');
	$s->quit;
};

is(value($node, 'SELECT pg_postmaster_start_time()'), $started, 'the server never crashed');
unlike(slurp_file($node->logfile), qr/TRAP:|PANIC:|terminated by signal|WARNING:  (?:buffer|relcache|TupleDesc|snapshot|cache) .*leak/, 'no crash, no leaked resource in the log');
$node->stop;
done_testing();
