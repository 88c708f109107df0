# The life of the extension itself: dropped and created again under everybody's feet, in a schema with an odd name,
# by an owner who is no superuser, with an empty search path; and backends that end in the middle of a call.
use strict;
use warnings;

use IPC::Run;
use PostgreSQL::Test::Utils;
use Test::More;
use IdemTest;

my $node = idem_node('install', -extension => 0, autovacuum => 'off', max_connections => 40);
my $order = q{'{"amount": 100}'};
my $quiet = 'SET client_min_messages = warning';
my $create = "$quiet; CREATE EXTENSION idem CASCADE";
my $charge = "SELECT outcome FROM idem_acquire(idem_sign('alice', 'charge', $order), 'alice', 'charge', $order)";

sub cluster
{
	my ($what, $program, @arguments) = @_;
	my ($out, $err);
	ok(IPC::Run::run([ $node->installed_command($program), '-h', $node->host, '-p', $node->port, @arguments ],
			'<', '/dev/null', '>', \$out, '2>', \$err), $what) or diag($err);
	return;
}

# A statement as a role: its output, and its SQLSTATE, message and the rest
sub as
{
	my ($user, $db, $sql) = @_;
	my ($rc, $out, $err) = $node->psql($db, "\\set VERBOSITY verbose\n$sql", extra_params => [ '-U', $user ], on_error_stop => 1);
	my ($state) = $err =~ /(?:ERROR|FATAL):  (\w{5}):/;
	return wantarray ? ($out, $state // '00000', $err) : $out;
}

sub state_of
{
	my @answer = as(@_);
	return $answer[1];
}

subtest 'DROP and CREATE EXTENSION in one session, while another holds prepared statements (H01)' => sub {
	my ($s, $p) = (session($node), session($node));
	$s->query_ok($create);
	my @prepared = (
		"PREPARE acquire AS SELECT outcome::text FROM idem_acquire(\$1, 'alice', 'charge', $order)",
		"PREPARE status AS SELECT outcome::text FROM idem_status(\$1, 'alice')",
		"PREPARE sign AS SELECT idem_sign('alice', 'charge', $order)",
		'PREPARE audit AS SELECT count(*) FROM idem_audit, idem_in_flight');
	foreach my $round (1 .. 3)
	{
		my $token = $s->query_ok("SELECT idem_sign('alice', 'charge', $order)");
		is($s->query_ok("SELECT outcome FROM idem_acquire('$token', 'alice', 'charge', $order)"), 'ACQUIRED', "round $round: granted");
		is($s->query_ok("SELECT outcome FROM idem_acquire('$token', 'alice', 'charge', $order)"), 'IN_FLIGHT', "round $round: and in flight");
		$p->query_ok($_) foreach $round == 1 ? @prepared : ();
		# five and more executions, so that the plans are generic ones
		foreach (1 .. 7)
		{
			$p->query("EXECUTE acquire ('$token')");
			$p->query("EXECUTE status ('$token')");
		}
		is($p->query("EXECUTE acquire ('$token')"), 'IN_FLIGHT', "round $round: a prepared acquire");
		is($p->query("EXECUTE status ('$token')"), 'IN_FLIGHT', "round $round: a prepared status");
		is($p->query('EXECUTE audit'), '1', "round $round: a prepared look at the views");
		my $own = $p->query('EXECUTE sign');
		is($s->query_ok("SELECT outcome FROM idem_acquire('$own', 'alice', 'charge', $order)"), 'ACQUIRED', "round $round: a prepared sign signs with the secret there is");

		$s->query_ok('DROP EXTENSION idem');
		$p->query("EXECUTE acquire ('$token')");
		isnt($p->sqlstate, '00000', "round $round: dropped, a prepared acquire fails");
		isnt($p->sqlstate, 'XX000', "round $round: and says why");
		isnt($p->sqlstate, '08006', "round $round: and lives");
		is($p->query('SELECT 1'), '1', "round $round: the session goes on");
		$s->query_ok($create);
		is($s->query_ok("SELECT outcome FROM idem_acquire('$token', 'alice', 'charge', $order)"), 'INVALID', "round $round: created again, it has another secret");
		is($p->query("EXECUTE acquire ('$token')"), 'INVALID', "round $round: for the prepared acquire too");
	}

	# created, used and rolled back
	$s->query_ok('DROP EXTENSION idem');
	$s->query_ok("BEGIN; CREATE EXTENSION idem");
	is($s->query_ok($charge), 'ACQUIRED', 'used in the transaction that created it');
	$s->query_ok('ROLLBACK');
	$s->query($charge);
	is($s->sqlstate, '42883', 'rolled back, it is not there');
	$s->query_ok($create);
	is($s->query_ok($charge), 'ACQUIRED', 'created once more');
	$s->query_ok("BEGIN; DROP EXTENSION idem; CREATE EXTENSION idem");
	is($s->query_ok($charge), 'ACQUIRED', 'and replaced within a transaction');
	$s->query_ok('ROLLBACK');
	is($s->query_ok($charge), 'ACQUIRED', 'which is rolled back');
	$s->query_ok('BEGIN');
	is($s->query_ok($charge), 'ACQUIRED', 'a claim that is open');
	$s->query('DROP EXTENSION idem');
	$s->query('COMMIT');
	isnt($s->sqlstate, '08006', 'when its transaction drops the extension: the session lives');
	$s->query_ok("ROLLBACK; DROP EXTENSION IF EXISTS idem; $create");
	is($s->query_ok($charge), 'ACQUIRED', 'and works');

	# a drop meets an open claim: it locks the tables and their indexes one by one, so one of the two may have to
	# give way, and is told so
	$p->query_ok('BEGIN');
	$p->query_ok($charge);
	$s->send('DROP EXTENSION idem');
	wait_blocked($node, $s);
	$p->query('COMMIT');
	my $commit = $p->sqlstate;
	$s->wait;
	my $drop = $s->sqlstate;
	like("$commit $drop", qr/^(?:00000 00000|00000 40P01|40P01 00000)$/, "a drop and an open claim: $commit and $drop");
	$s->query_ok('DROP EXTENSION IF EXISTS idem');
	$p->query($charge);
	is($p->sqlstate, '42883', 'and in the end it is gone');
	$_->quit foreach $s, $p;
};

subtest 'DROP SCHEMA CASCADE (H01)' => sub {
	my $s = session($node);
	$s->query_ok("$quiet; CREATE SCHEMA apart; CREATE EXTENSION idem SCHEMA apart CASCADE; SET search_path = apart, public");
	is($s->query_ok($charge), 'ACQUIRED', 'in a schema of its own');
	$s->query_ok('DROP SCHEMA apart CASCADE');
	$s->query($charge);
	is($s->sqlstate, '42883', 'dropped with it');
	is($s->query_ok("SELECT count(*) FROM pg_extension WHERE extname = 'idem'"), '0', 'as a whole');
	# what was there may leave nothing behind that a new one meets
	$s->query_ok("CREATE SCHEMA apart; $create SCHEMA apart" =~ s/CASCADE SCHEMA apart/SCHEMA apart CASCADE/r);
	is($s->query_ok($charge), 'ACQUIRED', 'and created again in the same session');
	$s->query('ALTER EXTENSION idem SET SCHEMA public');
	is($s->sqlstate, '0A000', 'it stays where it is');
	$s->query_ok('ALTER EXTENSION idem UPDATE');
	is($s->query_ok($charge), 'ACQUIRED', 'an update to the version it has changes nothing');
	$s->query("ALTER EXTENSION idem UPDATE TO '99'");
	is($s->sqlstate, '22023', 'and one to a version that is not there is refused');
	is($s->query_ok($charge), 'ACQUIRED', 'without harm');
	$s->query_ok('DROP EXTENSION idem; DROP SCHEMA apart');
	is($s->query_ok(q{SELECT count(*) FROM pg_class WHERE relname LIKE 'idem%'}) + $s->query_ok(q{SELECT count(*) FROM pg_proc WHERE proname LIKE 'idem%'})
			+ $s->query_ok(q{SELECT count(*) FROM pg_type WHERE typname LIKE '%idem%'}), 0, 'nothing is left of it');
	$s->quit;
};

subtest 'an owner who is no superuser, an odd schema, an empty search path (H02, P10)' => sub {
	my $idem = '"We ird.Sch"';
	value($node, 'CREATE ROLE landlord LOGIN CREATEROLE; CREATE ROLE stranger LOGIN');
	value($node, "CREATE ROLE m_$_ LOGIN") foreach qw(signer caller auditor operator admin);
	cluster('a database of their own', 'createdb', '-T', 'template0', '-E', 'UTF8', '-O', 'landlord', 'house');
	is(state_of('stranger', 'house', 'CREATE EXTENSION idem CASCADE'), '42501', 'others may not install it');

	my (undef, $state, $err) = as('landlord', 'house', qq{
		$quiet;
		CREATE SCHEMA $idem;
		SET search_path = '';
		CREATE EXTENSION idem SCHEMA $idem CASCADE});
	is("$state $err", '00000 ', 'created with an empty search path');
	is(as('landlord', 'house', q{SELECT rolsuper FROM pg_roles WHERE rolname = current_user}), 'f', 'by no superuser');

	# whose functions they are, and whose paths they follow, in one session with nothing on its search path
	my $call = sub {
		my ($params, $end) = @_;
		return qq{
			SET search_path = '';
			CREATE TEMP TABLE c AS SELECT * FROM $idem.idem_acquire($idem.idem_sign('alice', 'charge', $params), 'alice', 'charge', $params);
			SELECT $end FROM pg_temp.c};
	};
	is(as('landlord', 'house', $call->($order, "$idem.idem_commit(key, owner, '1', 'ref')")), 'OK', 'acquire and commit');
	is(as('landlord', 'house', $call->($order, "$idem.idem_fail(key, owner, '1')")), 'OK', 'fail');
	is(as('landlord', 'house', $call->($order, "$idem.idem_release(key, owner)")), 'OK', 'release');
	is(as('landlord', 'house', $call->($order, "$idem.idem_renew(key, owner, '1 hour')")), 'OK', 'renew');
	is(as('landlord', 'house', $call->($order, "($idem.idem_status_key(key, 'alice')).outcome")), 'IN_FLIGHT', 'status by key');
	foreach my $each (
		[ "SELECT outcome FROM $idem.idem_status($idem.idem_sign('alice', 'charge', $order), 'alice')", 'NONE' ],
		[ "SELECT outcome FROM $idem.idem_acquire_direct('alice', 'charge', $order)", 'ACQUIRED' ],
		[ "SELECT outcome FROM $idem.idem_acquire_direct('alice', 'charge', $order, 'mine')", 'ACQUIRED' ],
		[ "SELECT valid FROM $idem.idem_inspect($idem.idem_sign('alice', 'charge', $order))", 't' ],
		[ "SELECT $idem.idem_canonical('charge', '{\"b\": 1, \"a\": 2}')", '{"a":2,"b":1}' ],
		[ "SELECT pg_catalog.length($idem.idem_param_hash('charge', $order))", '32' ],
		[ "SELECT $idem.idem_downstream_key($idem.idem_key('alice', 'charge', $order), 's') IS NOT NULL", 't' ],
		[ "INSERT INTO $idem.idem_policy (scope, immaterial) VALUES ('refund', '{/memo}'); SELECT pg_catalog.count(*) FROM $idem.idem_policy", '1' ],
		[ "UPDATE $idem.idem_policy SET immaterial = '{/note}'; SELECT pg_catalog.count(*) FROM $idem.idem_policy_version WHERE replaced_at IS NULL AND scope = 'refund'", '1' ],
		[ "DELETE FROM $idem.idem_policy; SELECT pg_catalog.count(*) FROM $idem.idem_policy", '0' ],
		[ "SELECT pg_catalog.length($idem.idem_rotate_secret())", '8' ],
		[ "SELECT pg_catalog.length($idem.idem_export_secret())", '32' ],
		[ "SELECT pg_catalog.length($idem.idem_import_secret(pg_catalog.sha256('x')))", '8' ],
		[ "SELECT $idem.idem_revoke_secret(id) FROM $idem.idem_secrets WHERE NOT signing LIMIT 1", '' ],
		[ "SELECT pg_catalog.count(*) > 0 FROM $idem.idem_audit", 't' ],
		[ "SELECT pg_catalog.count(*) > 0 FROM $idem.idem_in_flight", 't' ],
		[ "SELECT pg_catalog.count(*) FROM $idem.idem_stuck", '0' ],
		[ "SELECT pg_catalog.count(*) > 0 FROM $idem.idem_alert", 't' ],
		[ "SELECT pg_catalog.count(*) > 1 FROM $idem.idem_secrets", 't' ],
		[ "SELECT pg_catalog.count(*) > 0 FROM $idem.idem_record", 't' ])
	{
		my ($sql, $expected) = @$each;
		my ($out, $state, $error) = as('landlord', 'house', "SET search_path = ''; $sql");
		is("$state $out", "00000 $expected", $sql =~ s/\Q$idem\E\.//gr);
	}
	# a search path with traps in it changes nothing
	is(as('landlord', 'house', qq{
			CREATE SCHEMA trap;
			CREATE FUNCTION trap.clock_timestamp() RETURNS timestamptz LANGUAGE sql AS 'SELECT NULL::timestamptz';
			CREATE FUNCTION trap.sha256(bytea) RETURNS bytea LANGUAGE sql AS 'SELECT NULL::bytea';
			CREATE FUNCTION trap.wrong(text, text) RETURNS bool LANGUAGE sql AS 'SELECT 1 / 0 = 1';
			CREATE OPERATOR trap.= (FUNCTION = trap.wrong, LEFTARG = text, RIGHTARG = text);
			CREATE OPERATOR trap.<> (FUNCTION = trap.wrong, LEFTARG = text, RIGHTARG = text);
			CREATE TABLE trap.idem_record (key uuid); CREATE TABLE trap.idem_secret (secret bytea);
			SET search_path = trap, pg_catalog, $idem;
			INSERT INTO idem_policy (scope, material) VALUES ('trap', '{/amount}');
			SELECT length(idem_rotate_secret());
			SELECT outcome FROM idem_acquire(idem_sign('alice', 'trap', $order), 'alice', 'trap', $order);
			SELECT count(*) >= 0 FROM idem_audit, idem_in_flight;
			DELETE FROM idem_policy WHERE scope OPERATOR(pg_catalog.=) 'trap'}), "8\nACQUIRED\nt", 'a search path full of traps is stepped over');

	is(state_of('landlord', 'house', "SELECT * FROM $idem.idem_secret"), '42501', 'not even the owner reads the secrets but by idem_export_secret');
	is(state_of('stranger', 'house', "SELECT $idem.idem_sign('alice', 'charge', $order)"), '42501', 'nothing is open to others');

	# who may do what
	as('landlord', 'house', "GRANT USAGE ON SCHEMA $idem TO m_signer, m_caller, m_auditor, m_operator, m_admin, stranger");
	foreach my $set (qw(signer caller auditor operator admin))
	{
		is(state_of('landlord', 'house', "SET search_path = ''; SELECT $idem.idem_grant('m_$set', '$set')"), '00000', "the owner makes a $set");
	}
	my $call_nothing = "'00000000-0000-7000-8000-000000000000', '00000000-0000-4000-8000-000000000000'";
	my %may = (
		"SELECT $idem.idem_sign('alice', 'charge', $order)" => 'signer',
		"SELECT * FROM $idem.idem_acquire('x', 'alice', 'charge', $order)" => 'caller',
		"SELECT * FROM $idem.idem_acquire_direct('alice', 'who', $order)" => 'caller',
		"SELECT $idem.idem_commit($call_nothing)" => 'caller',
		"SELECT $idem.idem_fail($call_nothing, '1')" => 'caller',
		"SELECT $idem.idem_release($call_nothing)" => 'caller',
		"SELECT $idem.idem_renew($call_nothing)" => 'caller',
		"SELECT * FROM $idem.idem_status('x', 'alice')" => 'caller',
		"SELECT * FROM $idem.idem_status_key('00000000-0000-7000-8000-000000000000', 'alice')" => 'caller',
		"SELECT $idem.idem_canonical('charge', $order)" => 'signer caller',
		"SELECT $idem.idem_param_hash('charge', $order)" => 'signer caller',
		"SELECT $idem.idem_key('alice', 'charge', $order)" => 'signer caller',
		"SELECT $idem.idem_downstream_key('00000000-0000-7000-8000-000000000000', 's')" => 'signer caller',
		"SELECT $idem.idem_shard('x', 3)" => 'signer caller',
		"SELECT $idem.idem_shard_key('00000000-0000-7000-8000-000000000000', 3)" => 'signer caller',
		"SELECT * FROM $idem.idem_inspect('x')" => 'auditor',
		"SELECT * FROM $idem.idem_audit" => 'auditor',
		"SELECT * FROM $idem.idem_in_flight" => 'auditor',
		"SELECT * FROM $idem.idem_stuck" => 'auditor',
		"SELECT * FROM $idem.idem_alert" => 'auditor',
		"SELECT * FROM $idem.idem_secrets" => 'auditor admin',
		"SELECT * FROM $idem.idem_record" => '',
		"SELECT * FROM $idem.idem_fast" => '',
		"SELECT * FROM $idem.idem_secret" => '',
		"DELETE FROM $idem.idem_alert" => '',
		"TRUNCATE $idem.idem_fast" => '',
		"INSERT INTO $idem.idem_policy (scope) VALUES ('x')" => 'admin',
		"DELETE FROM $idem.idem_policy" => 'admin',
		"SELECT $idem.idem_rotate_secret()" => 'admin',
		"SELECT $idem.idem_export_secret()" => 'admin',
		"SELECT $idem.idem_import_secret(pg_catalog.sha256('y'))" => 'admin',
		"SELECT $idem.idem_grant('stranger', 'caller')" => 'admin');
	my %role = map { $_ => session($node, dbname => 'house', user => $_ eq 'stranger' ? $_ : "m_$_") }
	  qw(signer caller auditor operator admin stranger);
	my $state_for = sub {
		my ($role, $sql) = @_;
		$role{$role}->query("BEGIN; SET LOCAL search_path = ''");
		$role{$role}->query($sql);
		my $state = $role{$role}->sqlstate;
		$role{$role}->query('ROLLBACK');
		return $state;
	};
	foreach my $sql (sort keys %may)
	{
		my $who = join ' ', grep { $state_for->($_, $sql) ne '42501' } qw(signer caller auditor operator admin stranger);
		is($who, $may{$sql}, 'who may: ' . $sql =~ s/\Q$idem\E\.//gr);
	}
	$_->quit foreach values %role;
	is(as('landlord', 'house', "$quiet; DROP EXTENSION idem; CREATE EXTENSION idem SCHEMA $idem; SELECT outcome FROM $idem.idem_acquire_direct('alice', 'charge', $order)"),
		'ACQUIRED', 'they drop and create it again');
	is(as('landlord', 'house', "$quiet; DROP SCHEMA $idem CASCADE; SELECT count(*) FROM pg_extension WHERE extname = 'idem'"), 0, 'and drop it with its schema');
};

subtest 'a database that is not UTF-8 is refused (P11)' => sub {
	foreach my $encoding (qw(LATIN1 SQL_ASCII))
	{
		cluster("a $encoding database", 'createdb', '-T', 'template0', '-E', $encoding, '--locale', 'C', lc $encoding);
		my (undef, $state, $err) = as(scalar getpwuid($>), lc $encoding, $create);
		is($state, '0A000', "$encoding: refused");
		like($err, qr/HINT:  .*UTF8/, "$encoding: with a hint");
		is(as(scalar getpwuid($>), lc $encoding, "SELECT count(*) FROM pg_extension WHERE extname = 'idem'"), 0, "$encoding: nothing is there");
	}
};

subtest 'backends terminated in the middle of acquire and commit (P1, P2, P9, F13)' => sub {
	value($node, "$create; CREATE TABLE token (n int PRIMARY KEY, token text); CREATE TABLE effect (n int NOT NULL)");
	value($node, "INSERT INTO token SELECT n, idem_sign('alice', 'charge', $order) FROM generate_series(1, 12 * 1000) AS n");
	value($node, qq{
		CREATE PROCEDURE work(round int) LANGUAGE plpgsql AS \$\$
		DECLARE
			c idem_claim;
			i int;
		BEGIN
			LOOP
				i := 1000 * (round - 1) + 1 + floor(random() * 1000);
				c := idem_acquire((SELECT token FROM token WHERE n = i), 'alice', 'charge', $order);
				IF c.outcome = 'ACQUIRED' THEN
					INSERT INTO effect VALUES (i);
					-- half of them in one transaction, and some not at all
					IF random() < 0.5 THEN COMMIT; END IF;
					IF random() < 0.2 THEN
						PERFORM idem_release(c.key, c.owner);
						ROLLBACK;
					ELSIF idem_commit(c.key, c.owner, to_jsonb(i)) <> 'OK' THEN
						RAISE EXCEPTION 'not OK';
					END IF;
				ELSIF c.outcome = 'DONE' AND c.result <> to_jsonb(i) OR c.outcome NOT IN ('DONE', 'IN_FLIGHT') THEN
					RAISE EXCEPTION 'a wrong answer';
				END IF;
				COMMIT;
			END LOOP;
		END
		\$\$});
	my $size = log_size($node);
	my $killed = 0;
	foreach my $round (1 .. 12)
	{
		my @workers = map { session($node) } 1 .. 3;
		$_->send("CALL work($round)") foreach @workers;
		# until they have done something
		wait_until($node, "SELECT count(*) > 20 FROM effect WHERE n > 1000 * ($round - 1)");
		foreach my $worker (@workers)
		{
			$round % 2 ? $worker->terminate : $worker->cancel;
			$worker->wait;
			is($worker->sqlstate, $round % 2 ? '08006' : '57014', "round $round: ended in the middle");
			$killed++;
			$worker->quit;
		}
	}
	wait_until($node, q{SELECT count(*) = 0 FROM pg_stat_activity WHERE query LIKE 'CALL work%'});
	is(value($node, 'SELECT count(*) FROM idem_fast'), 0, 'the fast table is empty');
	is(value($node, "SELECT count(*) FROM pg_locks WHERE relation IN ('idem_fast'::regclass, 'idem_record'::regclass) AND pid <> pg_backend_pid()"), 0, 'no lock is left');
	is(value($node, q{
			SELECT count(*) FROM (SELECT n FROM effect GROUP BY n HAVING count(*) > 1) AS twice}), 0, 'no effect twice');
	is(value($node, q{
			SELECT count(*) FROM token AS t
				FULL JOIN (SELECT DISTINCT n FROM effect) AS e USING (n)
				LEFT JOIN idem_record AS r ON r.key = (SELECT key FROM idem_inspect(t.token))
				WHERE (e.n IS NOT NULL) <> (r.key IS NOT NULL) OR r.state = 'D' AND r.result <> to_jsonb(n)}),
		0, 'a record wherever there is an effect, and nowhere else');
	unlike(log_since($node, $size), qr/PANIC|TRAP|WARNING|XX000|server process .* was terminated|not OK|a wrong answer/, "$killed ends, and no complaint");
	is(value($node, $charge), 'ACQUIRED', 'and all goes on');
};

$node->stop;
done_testing();
