# What idem writes to the log that makes it durable: no more than a plain INSERT for a claim finished in its own
# transaction, and nothing for what only asks (C03).
use strict;
use warnings;

use FindBin;
use PostgreSQL::Test::Utils;
use Test::More;
use IdemTest;

# Full pages would hide the difference between the records; nobody else writes.
my $node = idem_node('wal',
	wal_level => 'replica',
	full_page_writes => 'off',
	autovacuum => 'off',
	checkpoint_timeout => '1h',
	max_wal_size => '4GB',
	shared_buffers => '64MB',
	max_prepared_transactions => '5');
value($node, slurp_file("$FindBin::Bin/sign_at.sql"));
value($node, q{
	CREATE TABLE token (n int PRIMARY KEY, token text NOT NULL);
	CREATE TABLE template AS TABLE idem_record WITH NO DATA;
	CREATE FUNCTION fresh_tokens(count int) RETURNS void LANGUAGE sql AS $$
		TRUNCATE token;
		INSERT INTO token SELECT n, idem_sign('alice', 'charge', '{"amount": 100}') FROM generate_series(1, count) AS n
	$$;
	-- one transaction for each, through the API
	CREATE PROCEDURE by_idem(count int) LANGUAGE plpgsql AS $$
	DECLARE
		c idem_claim;
	BEGIN
		FOR i IN 1 .. count LOOP
			c := idem_acquire((SELECT token FROM token WHERE n = i), 'alice', 'charge', '{"amount": 100}',
				holder => 'worker 1', trace_id => 'trace 1');
			IF c.outcome <> 'ACQUIRED' OR idem_commit(c.key, c.owner, '{"charge": "ch_000001"}', 'ref 1') <> 'OK' THEN
				RAISE EXCEPTION 'no';
			END IF;
			COMMIT;
		END LOOP;
	END
	$$;
	-- two for each
	CREATE PROCEDURE by_idem_twice(count int) LANGUAGE plpgsql AS $$
	DECLARE
		c idem_claim;
	BEGIN
		FOR i IN 1 .. count LOOP
			c := idem_acquire((SELECT token FROM token WHERE n = i), 'alice', 'charge', '{"amount": 100}',
				holder => 'worker 1', trace_id => 'trace 1');
			COMMIT;
			PERFORM idem_commit(c.key, c.owner, '{"charge": "ch_000001"}', 'ref 1');
			COMMIT;
		END LOOP;
	END
	$$;
	-- the same rows by plain SQL: first what they will be, then one transaction for each
	CREATE PROCEDURE prepare_plain(count int) LANGUAGE plpgsql AS $$
	BEGIN
		TRUNCATE template;
		INSERT INTO template SELECT r.* FROM generate_series(1, count), LATERAL (SELECT * FROM idem_record WHERE state = 'D' LIMIT 1) AS r;
		UPDATE template SET key = fresh_nonce();
	END
	$$;
	CREATE PROCEDURE by_plain_sql() LANGUAGE plpgsql AS $$
	DECLARE
		r template;
	BEGIN
		FOR r IN SELECT * FROM template ORDER BY key LOOP
			INSERT INTO idem_record SELECT r.*;
			COMMIT;
		END LOOP;
	END
	$$;
	CREATE PROCEDURE by_plain_sql_twice() LANGUAGE plpgsql AS $$
	DECLARE
		r template;
	BEGIN
		FOR r IN SELECT * FROM template ORDER BY key LOOP
			INSERT INTO idem_record (key, acquired_at, lease_until, policy_version, attempt, state, downstream, param_hash,
				owner_hash, scope, subject, expires_at, holder, trace_id, retained_until)
				SELECT r.key, r.acquired_at, r.lease_until, r.policy_version, r.attempt, 'I', r.downstream, r.param_hash,
					r.owner_hash, r.scope, r.subject, r.expires_at, r.holder, r.trace_id, 'infinity';
			COMMIT;
			UPDATE idem_record SET state = 'D', retained_until = r.retained_until, finished_at = r.finished_at,
				result = r.result, result_ref = r.result_ref WHERE key = r.key;
			COMMIT;
		END LOOP;
	END
	$$});

my $s = session($node);

# The bytes of WAL that a statement makes
sub wal_of
{
	my ($sql) = @_;
	my $before = $s->query_ok('SELECT pg_current_wal_insert_lsn()');
	$s->query_ok($sql);
	return $s->query_ok("SELECT pg_current_wal_insert_lsn() - '$before'::pg_lsn");
}

sub median
{
	my @sorted = sort { $a <=> $b } @_;
	return $sorted[ @sorted / 2 ];
}

# The median over several batches, so that where a page happens to split does not matter
sub wal_per_call
{
	my ($prepare, $sql, $count) = @_;
	my @bytes;
	foreach (1 .. 5)
	{
		$s->query_ok($prepare);
		push @bytes, wal_of($sql) / $count;
	}
	return median(@bytes);
}

subtest 'a claim finished in its own transaction costs one insert (P9)' => sub {
	my $count = 400;
	$s->query_ok("SELECT fresh_tokens($count); CALL by_idem($count)");
	is($s->query_ok("SELECT count(*) FROM idem_record WHERE state = 'D' AND result_ref = 'ref 1'"), $count, 'the rows are there');

	my $plain = wal_per_call("CALL prepare_plain($count)", 'CALL by_plain_sql()', $count);
	my $idem = wal_per_call("SELECT fresh_tokens($count)", "CALL by_idem($count)", $count);
	my $report = sprintf 'acquire and commit in one transaction: %.0f bytes of WAL; INSERT of the same row: %.0f; ratio %.3f',
	  $idem, $plain, $idem / $plain;
	diag($report);
	cmp_ok($idem, '<=', 1.2 * $plain, 'no more WAL than a plain INSERT of the same row, plus one part in five');

	my $plain_twice = wal_per_call("CALL prepare_plain($count)", 'CALL by_plain_sql_twice()', $count);
	my $idem_twice = wal_per_call("SELECT fresh_tokens($count)", "CALL by_idem_twice($count)", $count);
	diag(sprintf 'acquire and commit in two transactions: %.0f bytes of WAL; INSERT and UPDATE of the same row: %.0f; ratio %.3f',
		$idem_twice, $plain_twice, $idem_twice / $plain_twice);
	cmp_ok($idem_twice, '<=', 1.2 * $plain_twice, 'in two transactions no more than INSERT and UPDATE, plus one part in five');
};

subtest 'a claim that comes to nothing costs next to nothing' => sub {
	my $count = 400;
	$s->query_ok("SELECT fresh_tokens($count)");
	my $bytes = wal_of(qq{
		DO \$\$
		DECLARE
			c idem_claim;
		BEGIN
			FOR i IN 1 .. $count LOOP
				c := idem_acquire((SELECT token FROM token WHERE n = i), 'alice', 'charge', '{"amount": 100}');
				ROLLBACK;
			END LOOP;
		END
		\$\$}) / $count;
	diag(sprintf 'acquire and roll back: %.0f bytes of WAL', $bytes);
	# an abort record, and no more
	cmp_ok($bytes, '<=', 64, 'a claim rolled back writes its abort alone');
	$s->query_ok("SELECT fresh_tokens($count)");
	$bytes = wal_of(qq{
		DO \$\$
		DECLARE
			c idem_claim;
		BEGIN
			FOR i IN 1 .. $count LOOP
				c := idem_acquire((SELECT token FROM token WHERE n = i), 'alice', 'charge', '{"amount": 100}');
				PERFORM idem_release(c.key, c.owner);
				COMMIT;
			END LOOP;
		END
		\$\$}) / $count;
	diag(sprintf 'acquire and release in one transaction: %.0f bytes of WAL', $bytes);
	cmp_ok($bytes, '<=', 64, 'a claim released in its transaction writes its commit alone');
};

# ----------------------------------------------------------------------------------------------------------
# What only asks writes nothing
# ----------------------------------------------------------------------------------------------------------

my $order = q{'{"amount": 100}'};
my ($key, $owner);

# A fingerprint with an operation in some state
sub with_operation
{
	my ($end) = @_;
	my $token = $s->query_ok("SELECT idem_sign('alice', 'charge', $order)");
	($key, $owner) = split /\|/, $s->query_ok("SELECT key, owner FROM idem_acquire('$token', 'alice', 'charge', $order)");
	$s->query_ok($end =~ s/KEY/$key/r =~ s/OWNER/$owner/r) if $end;
	return $token;
}

# So many calls, each in its own transaction: what they answer, whether one of them took a transaction id, and
# the bytes of WAL.
sub ask
{
	my ($call, $count) = @_;
	my $rows = q{SELECT (SELECT count(*) FROM idem_record), (SELECT count(*) FROM idem_fast), (SELECT count(*) FROM idem_alert)};
	$s->query_ok('DROP TABLE IF EXISTS asked');
	$s->query_ok('CREATE UNLOGGED TABLE asked (outcome text, has_xid bool)');
	my $rows_before = $s->query_ok($rows);
	my $bytes = wal_of(qq{
		DO \$\$
		DECLARE
			answer text;
			outcomes text[] := '{}';
			has_xid bool := false;
		BEGIN
			FOR i IN 1 .. $count LOOP
				SELECT outcome INTO answer FROM $call;
				has_xid := has_xid OR pg_current_xact_id_if_assigned() IS NOT NULL;
				IF answer <> ALL (outcomes) THEN
					outcomes := outcomes || answer;
				END IF;
				COMMIT;
			END LOOP;
			PERFORM set_config('test.outcomes', array_to_string(outcomes, ' '), false);
			PERFORM set_config('test.has_xid', has_xid::text, false);
		END
		\$\$});
	my $outcomes = $s->query_ok("SELECT current_setting('test.outcomes')");
	my $has_xid = $s->query_ok("SELECT current_setting('test.has_xid')");
	return ($outcomes, $has_xid, $bytes, $rows_before eq $s->query_ok($rows));
}

# A checkpointer or writer may log a snapshot of running transactions meanwhile
my $noise = 1024;

subtest 'a replay, a refusal and a status write nothing (C03)' => sub {
	my $done = with_operation("SELECT idem_commit('KEY', 'OWNER', '{\"charge\": \"ch_1\"}')");
	my $done_key = $key;
	my $failed = with_operation("SELECT idem_fail('KEY', 'OWNER', '\"no\"')");
	my $released = with_operation("SELECT idem_release('KEY', 'OWNER')");
	my $flight = with_operation();
	my $flight_key = $key;
	my $unused = $s->query_ok("SELECT idem_sign('alice', 'charge', $order)");
	$s->query_ok("SELECT * FROM idem_acquire_direct('alice', 'charge', '{\"amount\": 7}')");
	$s->query_ok('VACUUM');
	$s->query_ok('CHECKPOINT');

	my $acquire = sub { "idem_acquire('$_[0]', 'alice', 'charge', $order)" };
	my @case = (
		[ 'replay of a result', $acquire->($done), 'DONE' ],
		[ 'replay of a failure', $acquire->($failed), 'FAILED' ],
		[ 'in flight', $acquire->($flight), 'IN_FLIGHT' ],
		[ 'direct, in flight', "idem_acquire_direct('alice', 'charge', '{\"amount\": 7}')", 'IN_FLIGHT' ],
		[ 'status: done', "idem_status('$done', 'alice')", 'DONE' ],
		[ 'status: in flight', "idem_status('$flight', 'alice')", 'IN_FLIGHT' ],
		[ 'status: released', "idem_status('$released', 'alice')", 'RETRYABLE' ],
		[ 'status: unused', "idem_status('$unused', 'alice')", 'NONE' ],
		[ 'status: another subject', "idem_status('$unused', 'mallory')", 'SUBJECT_MISMATCH' ],
		[ 'status by key: done', "idem_status_key('$done_key', 'alice')", 'DONE' ],
		[ 'status by key: another subject', "idem_status_key('$done_key', 'mallory')", 'NONE' ],
		[ 'commit: nobody\'s', "(SELECT idem_commit('00000000-0000-7000-8000-000000000000', '00000000-0000-4000-8000-000000000000') AS outcome) AS x", 'NONE' ],
		[ 'sign', "(SELECT idem_sign('alice', 'charge', $order) IS NOT NULL AS outcome) AS x", 'true' ]);
	foreach my $case (@case)
	{
		my ($name, $call, $expected) = @$case;
		my ($outcomes, $has_xid, $bytes, $same) = ask($call, 500);
		is($outcomes, $expected, "$name: $expected");
		is($has_xid, 'false', "$name: no transaction id");
		cmp_ok($bytes, '<=', $noise, "$name: no WAL");
		ok($same, "$name: no row");
	}
};

subtest '10,000 forged, expired and wrong-subject acquires (C03, P7)' => sub {
	my $rows = q{SELECT (SELECT count(*) FROM idem_record), (SELECT count(*) FROM idem_fast), pg_relation_size('idem_record'), pg_relation_size('idem_fast')};
	my $token = $s->query_ok("SELECT idem_sign('alice', 'charge', $order)");
	$s->query_ok(qq{
		CREATE TABLE bad AS
			SELECT n, 'forged' AS kind, 'alice' AS subject, base64url(convert_to(format('{"n":"%s","exp":%s,"u":"alice","s":"charge","p":"%s"}',
					gen_random_uuid(), 4102444800, base64url(idem_param_hash(NULL, $order))), 'UTF8'))
					|| '.' || base64url(sha256(int4send(n))) AS token
				FROM generate_series(1, 4000) AS n
			UNION ALL SELECT n, 'flipped', 'alice', overlay('$token' PLACING chr(65 + n % 26) FROM length('$token') - 20 - n % 20 FOR 2)
				FROM generate_series(1, 1000) AS n
			UNION ALL SELECT n, 'expired', 'alice', sign_at(fresh_nonce(), 1700000000 + n, 'alice', 'charge', $order)
				FROM generate_series(1, 3000) AS n
			UNION ALL SELECT n, 'wrong subject', 'mallory', '$token'
				FROM generate_series(1, 2000) AS n});
	$s->query_ok('VACUUM bad, idem_record, idem_fast');
	my $before = $s->query_ok($rows);
	foreach my $kind ([ 'forged', 'INVALID', 4000 ], [ 'flipped', 'INVALID', 1000 ], [ 'expired', 'EXPIRED', 3000 ], [ 'wrong subject', 'SUBJECT_MISMATCH', 2000 ])
	{
		my ($name, $expected, $count) = @$kind;
		my $size = log_size($node);
		my $bytes = wal_of(qq{
			DO \$\$
			DECLARE
				b record;
				answers int := 0;
			BEGIN
				FOR b IN SELECT * FROM bad WHERE kind = '$name' LOOP
					answers := answers + (SELECT (outcome = '$expected')::int FROM idem_acquire(b.token, b.subject, 'charge', $order));
					COMMIT;
				END LOOP;
				PERFORM set_config('test.answers', answers::text, false);
			END
			\$\$});
		is($s->query_ok("SELECT current_setting('test.answers')"), $count, "$name: $count times $expected");
		my $logged = log_size($node) - $size;
		diag("$name, $count acquires: $bytes bytes of WAL, $logged bytes of log");
		# the alert of one operation is one row, written at most once a second
		cmp_ok($bytes, '<=', $name eq 'wrong subject' ? 20 * $noise : $noise, "$name: WAL growth about 0");
		cmp_ok($logged, '<=', 20 * $noise, "$name: nor is the log flooded") unless $name eq 'wrong subject';
	}
	is($s->query_ok($rows), $before, 'no row in either table, dead ones included');
	is($s->query_ok("SELECT outcome FROM idem_acquire('$token', 'alice', 'charge', $order)"), 'ACQUIRED', 'and the true holder still gets the grant');
};

$s->quit;
$node->stop;
done_testing();
