# The seven tests of the fingerprint article, by name: concurrency, crash between effect and commit, fast table
# emptied, amount tampered, another subject, expiry, late commit after a takeover.
use strict;
use warnings;

use FindBin;
use IPC::Run;
use PostgreSQL::Test::Utils;
use Test::More;
use IdemTest;

my $clients = 64;
my $node = idem_node('seven',
	max_connections => $clients + 20,
	shared_buffers => '16MB',
	autovacuum => 'off',
	log_line_prefix => '%m [%p] %e ');
value($node, slurp_file("$FindBin::Bin/sign_at.sql"));

# A lease as short as it gets, so that its end can be waited for
my $short = "'1 ms', '1 ms', '1 ms', '300 ms'";
value($node, qq{
	INSERT INTO idem_policy (scope, downstream, downstream_max, gateway_timeout, retry_backoff, in_flight_ttl)
		VALUES ('opaque', 'opaque', $short), ('queryable', 'queryable', $short), ('idempotent', 'idempotent', $short);
	CREATE TABLE payment (key uuid NOT NULL, amount int)});

my $order = q{'{"amount": 100, "payee": "bob"}'};
my $tampered = q{'{"amount": 999, "payee": "bob"}'};

sub sign
{
	my ($scope, $subject) = (@_, 'alice');
	return value($node, "SELECT idem_sign('$subject', '$scope', $order)");
}

# The call of an acquire, what it answers in one line, and its parts
sub acquire_sql
{
	my ($token, $scope, %how) = @_;
	my ($subject, $params, $columns) =
	  ($how{subject} // 'alice', $how{params} // $order, $how{columns} // 'outcome, attempt, replayed, result');
	return "SELECT $columns FROM idem_acquire('$token', '$subject', '$scope', $params)";
}

sub acquire
{
	my ($token, $scope, %how) = @_;
	return value($node, acquire_sql($token, $scope, %how));
}

# A grant: its key and owner
sub granted
{
	my ($token, $scope) = @_;
	my ($outcome, $key, $owner) = split /\|/, acquire($token, $scope, columns => 'outcome, key, owner');
	is($outcome, 'ACQUIRED', "$scope: granted");
	return ($key, $owner);
}

sub key_of
{
	my ($token) = @_;
	return value($node, "SELECT key FROM idem_inspect('$token')");
}

sub lease_over
{
	my ($key) = @_;
	wait_until($node, "SELECT lease_until <= clock_timestamp() FROM idem_record WHERE key = '$key'");
	return;
}

sub alerts
{
	my ($key) = @_;
	return value($node, "SELECT string_agg(kind, ' ' ORDER BY kind) FROM idem_alert WHERE key = '$key'");
}

# ----------------------------------------------------------------------------------------------------------
# Concurrency
# ----------------------------------------------------------------------------------------------------------

# Opens the gates one by one: gate N when every client waits there, with gate N + 1 shut before.
value($node, q{
	CREATE TABLE token (round int PRIMARY KEY, token text NOT NULL);
	CREATE TABLE effect (round int NOT NULL);
	CREATE TABLE reply (round int NOT NULL, outcome text NOT NULL, result text);
	CREATE FUNCTION open_gates(rounds int, clients int) RETURNS void LANGUAGE plpgsql AS $$
	BEGIN
		FOR n IN 1 .. rounds LOOP
			PERFORM pg_advisory_lock(n + 1);
			WHILE (SELECT count(*) FROM pg_locks
					WHERE locktype = 'advisory' AND objid = n::oid AND NOT granted) < clients LOOP
				PERFORM pg_sleep(0.0005);
			END LOOP;
			PERFORM pg_advisory_unlock(n);
		END LOOP;
	END
	$$});

my %script = (
	'one transaction' => q{
SELECT pg_advisory_xact_lock_shared(:r);
BEGIN;
SELECT outcome, outcome = 'ACQUIRED' AS won, key, owner, result
	FROM idem_acquire((SELECT token FROM token WHERE round = :r), 'alice', 'charge', '{"amount": 100}') \gset
\if :won
INSERT INTO effect VALUES (:r);
SELECT 1 / (idem_commit(:key, :owner, to_jsonb(:r::int)) = 'OK')::int AS ok \gset
\endif
INSERT INTO reply VALUES (:r, :outcome, :result);
COMMIT;
\set r :r + 1
},
	'two transactions' => q{
SELECT pg_advisory_xact_lock_shared(:r);
SELECT outcome, outcome = 'ACQUIRED' AS won, key, owner, result
	FROM idem_acquire((SELECT token FROM token WHERE round = :r), 'alice', 'charge', '{"amount": 100}') \gset
INSERT INTO reply VALUES (:r, :outcome, :result);
\if :won
INSERT INTO effect VALUES (:r);
SELECT 1 / (idem_commit(:key, :owner, to_jsonb(:r::int)) = 'OK')::int AS ok \gset
\endif
\set r :r + 1
});

sub race
{
	my ($flow, $isolation, $rounds) = @_;
	my $name = "$flow, $isolation";
	value($node, qq{
		TRUNCATE token, effect, reply;
		INSERT INTO token SELECT n, idem_sign('alice', 'charge', '{"amount": 100}') FROM generate_series(1, $rounds) AS n});
	my $file = PostgreSQL::Test::Utils::tempdir() . '/race.sql';
	append_to_file($file, $script{$flow});

	my $gate = session($node);
	$gate->query_ok('SELECT pg_advisory_lock(1)');
	$gate->send("SELECT open_gates($rounds, $clients)");
	my ($out, $err);
	local $ENV{PGOPTIONS} = "-c default_transaction_isolation=" . $isolation =~ s/ /\\ /r;
	my $done = IPC::Run::run(
		[
			$node->installed_command('pgbench'), '-n', '-M', 'prepared', '-c', $clients, '-j', '2', '-t', $rounds,
			'-D', 'r=1', '-f', $file, '--max-tries=1000', '-h', $node->host, '-p', $node->port, 'postgres' ],
		'>', \$out, '2>', \$err);
	diag($err) unless $done;
	ok($done, "$name: every client played $rounds rounds");
	$gate->wait;
	$gate->quit;

	my ($retried) = $out =~ /number of transactions retried: (\d+)/;
	my ($failed) = $out =~ /number of failed transactions: (\d+)/;
	is($failed, 0, "$name: none failed");
	is($retried, 0, "$name: none had to be run again") if $isolation eq 'read committed';
	note("$name: $retried of " . $rounds * $clients . ' run again');
	is(value($node, qq{
			SELECT count(*) FROM (SELECT FROM reply GROUP BY round HAVING
				count(*) = $clients
				AND count(*) FILTER (WHERE outcome = 'ACQUIRED') = 1
				AND bool_and(outcome = 'ACQUIRED' OR outcome = 'IN_FLIGHT' OR outcome = 'DONE' AND result = round::text)) AS good}),
		$rounds, "$name: one ACQUIRED in every round, else IN_FLIGHT or DONE with its result");
	is(value($node, 'SELECT count(*), count(DISTINCT round) FROM effect'), "$rounds|$rounds", "$name: one effect in every round");
	is(value($node, q{
			SELECT count(*) FROM token AS t JOIN idem_record AS r ON r.key = (SELECT key FROM idem_inspect(t.token))
				WHERE state = 'D' AND result = to_jsonb(t.round) AND attempt = 1}),
		$rounds, "$name: one record for each");
	is(value($node, 'SELECT count(*) FROM idem_fast'), 0, "$name: the fast table is empty");
	note("$name: " . value($node, "SELECT string_agg(outcome || ' ' || n, ', ') FROM (SELECT outcome, count(*) AS n FROM reply GROUP BY 1) AS c"));
	unlink $file;
	return;
}

subtest "concurrency: $clients clients on one fingerprint (P1, A09, F04)" => sub {
	my $size = log_size($node);
	race('one transaction', 'read committed', 1000);
	race('two transactions', 'read committed', 1000);
	foreach my $isolation ('repeatable read', 'serializable')
	{
		race('one transaction', $isolation, 100);
		race('two transactions', $isolation, 100);
	}
	unlike(log_since($node, $size), qr/ (?:23505|40P01|XX000) ERROR| WARNING| FATAL| PANIC/, 'no unique violation, no deadlock, no fault');
};

# ----------------------------------------------------------------------------------------------------------
# Crash between effect and commit
# ----------------------------------------------------------------------------------------------------------

my %crash = (
	'kill -9' => sub { crash_and_start($node) },
	'immediate shutdown' => sub { $node->stop('immediate'); $node->start });

foreach my $how (sort keys %crash)
{
	subtest "crash between effect and commit: $how (P1, P5, P8, A01, A04)" => sub {
		# opaque twice: with the lease running, and over; the effects are outside: nothing of them is here
		my $running = sign('charge');
		my ($running_key, $running_owner) = granted($running, 'charge');
		my %token = map { $_ => sign($_) } qw(opaque queryable idempotent);
		my %grant = map { $_ => [ granted($token{$_}, $_) ] } sort keys %token;
		my $inside = sign('charge');
		my $session = session($node);
		$session->query_ok('BEGIN');
		my $grant = $session->query_ok(acquire_sql($inside, 'charge', columns => 'key, owner'));
		my ($key, $owner) = split /\|/, $grant;
		$session->query_ok("INSERT INTO payment VALUES ('$key', 100)");
		is($session->query_ok("SELECT idem_commit('$key', '$owner', '1')"), 'OK', 'one transaction, not committed');
		$crash{$how}->();
		$session->quit;

		is(acquire($running, 'charge', columns => 'outcome, attempt, owner, key'), "IN_FLIGHT|1||$running_key", 'lease running: IN_FLIGHT');
		is(value($node, "SELECT outcome FROM idem_status('$running', 'alice')"), 'IN_FLIGHT', 'and status says so');
		is(value($node, "SELECT idem_commit('$running_key', '$running_owner', '1')"), 'OK', 'its holder, if alive, commits');
		is(acquire($running, 'charge'), 'DONE|1|t|1', 'and is replayed');

		lease_over($grant{$_}[0]) foreach sort keys %grant;
		foreach my $scope (qw(opaque queryable))
		{
			($key, $owner) = @{ $grant{$scope} };
			is(acquire($token{$scope}, $scope), 'RECONCILE|1|f|', "$scope: nobody knows, so RECONCILE");
			is(acquire($token{$scope}, $scope), 'RECONCILE|1|f|', "$scope: and again");
			is(value($node, "SELECT outcome FROM idem_status('$token{$scope}', 'alice')"), 'RECONCILE', "$scope: and status");
			is(alerts($key), 'stuck', "$scope: an alert says so");
			is(value($node, "SELECT count(*) FROM idem_stuck WHERE key = '$key'"), 1, "$scope: and the view");
			is(value($node, "SELECT idem_commit('$key', '$owner', '2')"), 'OK', "$scope: the holder was only late");
			is(acquire($token{$scope}, $scope), 'DONE|1|t|2', "$scope: and is replayed");
		}
		($key, $owner) = @{ $grant{idempotent} };
		is(value($node, "SELECT outcome FROM idem_status('$token{idempotent}', 'alice')"), 'RETRYABLE', 'idempotent: may be taken over');
		my ($outcome, $attempt, $same, $second) =
		  split /\|/, acquire($token{idempotent}, 'idempotent', columns => 'outcome, attempt, key, owner');
		is("$outcome $attempt $same", "ACQUIRED 2 $key", 'idempotent: taken over with the same key');
		is(alerts($key), 'takeover', 'idempotent: an alert says so');
		is(value($node, "SELECT idem_commit('$key', '$second', '3')"), 'OK', 'idempotent: and commits');

		is(value($node, "SELECT count(*) FROM payment"), 0, 'one transaction: its row went with its claim (P9)');
		is(acquire($inside, 'charge'), 'ACQUIRED|1|f|', 'one transaction: so the retry starts afresh');
	};
}

# ----------------------------------------------------------------------------------------------------------
# Fast table emptied
# ----------------------------------------------------------------------------------------------------------

subtest 'fast table emptied (P1, P8)' => sub {
	my $token = sign('charge');
	my ($key, $owner) = granted($token, 'charge');
	value($node, 'TRUNCATE idem_fast');
	is(acquire($token, 'charge'), 'IN_FLIGHT|1|f|', 'in flight');
	is(value($node, "SELECT idem_commit('$key', '$owner', '1')"), 'OK', 'and committed');
	value($node, 'TRUNCATE idem_fast');
	is(acquire($token, 'charge'), 'DONE|1|t|1', 'after success');

	# by another session, while a claim is open: it waits, and who comes meanwhile goes another way
	foreach my $first (qw(holder rival))
	{
		$token = sign('charge');
		my ($s, $t, $r) = map { session($node) } 1 .. 3;
		$s->query_ok('BEGIN');
		($key, $owner) = split /\|/, $s->query_ok(acquire_sql($token, 'charge', columns => 'key, owner'));
		$t->send('TRUNCATE idem_fast');
		wait_blocked($node, $t);
		$r->query_ok('BEGIN');
		is($r->query_ok(acquire_sql($token, 'charge')), 'ACQUIRED|1|f|', 'uncommitted: a rival goes by the record, and neither waits');
		if ($first eq 'rival')
		{
			$r->query_ok('COMMIT');
			$s->query("SELECT idem_commit('$key', '$owner', '1')");
			is($s->sqlstate, '40001', 'rival first: the holder loses');
			$s->query_ok('ROLLBACK');
		}
		else
		{
			$s->query('COMMIT');
			is($s->sqlstate, '40001', 'holder first: it loses as well');
			$r->query_ok('COMMIT');
		}
		$t->wait;
		is($t->sqlstate, '00000', 'the fast table is emptied once the claim is over');
		is(acquire($token, 'charge'), 'IN_FLIGHT|1|f|', 'one grant stands');
		is(value($node, "SELECT idem_commit('$key', '$owner', '1')"), 'NOT_OWNER', 'and it is not the loser\'s');
		$_->quit foreach $s, $t, $r;
	}

	# where the rival gives up, the holder has lost nothing
	$token = sign('charge');
	my ($s, $t, $r) = map { session($node) } 1 .. 3;
	$s->query_ok('BEGIN');
	($key, $owner) = split /\|/, $s->query_ok(acquire_sql($token, 'charge', columns => 'key, owner'));
	$t->send('TRUNCATE idem_fast');
	wait_blocked($node, $t);
	$r->query_ok('BEGIN');
	is($r->query_ok(acquire_sql($token, 'charge')), 'ACQUIRED|1|f|', 'uncommitted: a rival again');
	$r->query_ok('ROLLBACK');
	is($s->query_ok("SELECT idem_commit('$key', '$owner', '1')"), 'OK', 'that gives up');
	$s->query_ok('COMMIT');
	$t->wait;
	is(acquire($token, 'charge'), 'DONE|1|t|1', 'and the holder\'s result stands');
	$_->quit foreach $t, $r;

	# by the transaction that holds the claim
	foreach my $empty ('TRUNCATE idem_fast', 'DELETE FROM idem_fast')
	{
		foreach my $end ('COMMIT', "SELECT idem_commit('KEY', 'OWNER', '1')", "SELECT idem_release('KEY', 'OWNER')")
		{
			$token = sign('charge');
			$s->query_ok('BEGIN');
			($key, $owner) = split /\|/, $s->query_ok(acquire_sql($token, 'charge', columns => 'key, owner'));
			$s->query_ok($empty);
			$s->query($end =~ s/KEY/$key/r =~ s/OWNER/$owner/r);
			is($s->sqlstate, '40001', "$empty, then " . lc($end =~ s/.*(idem_\w+).*/$1/r) . ' in one transaction: refused');
			$s->query_ok('ROLLBACK');
			is(acquire($token, 'charge'), 'ACQUIRED|1|f|', 'and nothing was granted');
		}
	}
	$token = sign('charge');
	$s->query_ok('BEGIN');
	($key, $owner) = split /\|/, $s->query_ok(acquire_sql($token, 'charge', columns => 'key, owner'));
	$s->query_ok('SAVEPOINT s; TRUNCATE idem_fast; ROLLBACK TO s');
	is($s->query_ok("SELECT idem_commit('$key', '$owner', '1')"), 'OK', 'emptied, but rolled back: nothing is lost');
	$s->query_ok('COMMIT');
	$s->query_ok('BEGIN; TRUNCATE idem_fast');
	($key, $owner) = split /\|/, $s->query_ok(acquire_sql($token = sign('charge'), 'charge', columns => 'key, owner'));
	$s->query_ok('COMMIT');
	is(value($node, "SELECT idem_commit('$key', '$owner', '1')"), 'OK', 'emptied first: nothing is lost either');
	$s->quit;
};

# ----------------------------------------------------------------------------------------------------------
# Amount tampered, another subject
# ----------------------------------------------------------------------------------------------------------

# One fingerprint in each state, and the call that shall be refused
sub in_every_state
{
	my %token = map { $_ => sign('charge') } qw(none flight done failed released);
	foreach my $state (qw(flight done failed released))
	{
		my ($key, $owner) = granted($token{$state}, 'charge');
		value($node, "SELECT idem_commit('$key', '$owner', '\"secret\"', 'ref')") if $state eq 'done';
		value($node, "SELECT idem_fail('$key', '$owner', '\"secret\"')") if $state eq 'failed';
		value($node, "SELECT idem_fail('$key', '$owner', '\"secret\"', true)") if $state eq 'released';
	}
	my ($now) = value($node, 'SELECT floor(extract(epoch FROM clock_timestamp()))::bigint');
	$token{expired} = value($node, "SELECT sign_at(fresh_nonce(), $now - 1, 'alice', 'charge', $order)");
	return %token;
}

sub refused
{
	my ($kind, $sqlstate, $refusal, %how) = @_;
	my %token = in_every_state();
	foreach my $state (sort keys %token)
	{
		my ($token, $key) = ($token{$state}, key_of($token{$state}));
		my $before = value($node, "SELECT r.xmin, r FROM idem_record AS r WHERE key = '$key'");
		my $size = log_size($node);
		is(value($node, 'BEGIN; ' . acquire_sql($token, 'charge', columns => '*', %how) . '; ROLLBACK'),
			$refusal, "$state: refused, with nothing of the operation");
		like(log_since($node, $size), qr/ $sqlstate LOG:  idem: .*\n.*DETAIL:  Operation $key,/, "$state: the log tells, though the caller rolled back");
		unlike(log_since($node, $size), qr/secret/, "$state: and shows no result");
		is(alerts($key), '', "$state: the row went with the caller's transaction");
		is(acquire($token, 'charge', columns => '*', %how), $refusal, "$state: refused again");
		is(alerts($key), $kind, "$state: an alert");
		is(value($node, "SELECT count, scope, subject, role = current_user FROM idem_alert WHERE key = '$key'"), '1|charge|alice|t', "$state: of this operation");
		is(value($node, "SELECT r.xmin, r FROM idem_record AS r WHERE key = '$key'"), $before, "$state: the record is untouched");
	}
	is(value($node, 'SELECT count(*) FROM idem_fast'), 0, 'nothing is claimed');
	is(acquire($token{none}, 'charge'), 'ACQUIRED|1|f|', 'who comes rightly still gets the grant');
	is(acquire($token{done}, 'charge'), 'DONE|1|t|"secret"', 'or the result');
	return;
}

subtest 'amount tampered: refused and alerted (P7, B03, B07)' => sub {
	refused('parameter_mismatch', 'ID001', 'PARAM_MISMATCH||||f|f|charge|alice||||||', params => $tampered);
	my $token = sign('charge');
	foreach my $params ('{"amount": "100", "payee": "bob"}', '{"amount": 100}', '{"amount": 100, "payee": "bob", "more": 1}', '{}', '[]', '1', 'null')
	{
		is(acquire($token, 'charge', params => "'$params'", columns => 'outcome'), 'PARAM_MISMATCH', "other parameters: $params");
	}
};

subtest 'another subject: refused, and told nothing (P7, C01)' => sub {
	refused('subject_mismatch', 'ID002', 'SUBJECT_MISMATCH||||f|f|charge|mallory||||||', subject => 'mallory');
	my $token = sign('charge');
	my ($key, $owner) = granted($token, 'charge');
	value($node, "SELECT idem_commit('$key', '$owner', '\"secret\"')");
	is(value($node, "SELECT * FROM idem_status('$token', 'mallory')"), 'SUBJECT_MISMATCH||||f|f||mallory||||||', 'status by the fingerprint');
	is(value($node, "SELECT * FROM idem_status_key('$key', 'mallory')"),
		value($node, "SELECT * FROM idem_status_key('00000000-0000-7000-8000-000000000000', 'mallory')"), 'status by the key: as if there were nothing');
	is(value($node, "SELECT outcome FROM idem_status_key('$key', 'alice')"), 'DONE', 'and the subject gets the answer');
	is(acquire($token, 'charge', subject => 'mallory', params => $tampered, columns => 'outcome'), 'SUBJECT_MISMATCH', 'the subject is judged before the parameters');
};

# ----------------------------------------------------------------------------------------------------------
# Expiry
# ----------------------------------------------------------------------------------------------------------

subtest 'expiry: one second before and one after (P6)' => sub {
	# both calls in one statement with the clock before and after, so that a slow machine cannot mislead
	value($node, qq{
		CREATE FUNCTION at_distance(seconds int, OUT outcome text, OUT left_before float8, OUT left_after float8)
			LANGUAGE plpgsql AS \$\$
		DECLARE
			expires bigint := floor(extract(epoch FROM clock_timestamp())) + seconds;
			token text := sign_at(fresh_nonce(), expires, 'alice', 'charge', $order);
		BEGIN
			left_before := expires - extract(epoch FROM clock_timestamp());
			outcome := (SELECT a.outcome FROM idem_acquire(token, 'alice', 'charge', $order) AS a);
			left_after := expires - extract(epoch FROM clock_timestamp());
		END
		\$\$});
	my ($outcome, $before, $after);
	foreach (1 .. 20)
	{
		($outcome, $before, $after) = split /\|/, value($node, 'SELECT * FROM at_distance(2)');
		last if $after > 0;
	}
	is($outcome, 'ACQUIRED', "granted $before seconds before");
	foreach my $distance (0, -1, -1000000)
	{
		($outcome, $before) = split /\|/, value($node, "SELECT * FROM at_distance($distance)");
		is($outcome, 'EXPIRED', "refused " . -$before . ' seconds after');
	}

	# the very same fingerprint, before and after: never used, and used
	my ($expires, $unused, $used) = split /\|/, value($node, qq{
		SELECT e, sign_at(fresh_nonce(), e, 'alice', 'charge', $order), sign_at(fresh_nonce(), e, 'alice', 'charge', $order)
			FROM (SELECT ceil(extract(epoch FROM clock_timestamp()))::bigint + 2) AS x(e)});
	my ($key, $owner) = granted($used, 'charge');
	is(value($node, "SELECT idem_commit('$key', '$owner', '\"first\"')"), 'OK', 'consumed in time');
	is(value($node, "SELECT outcome FROM idem_status('$unused', 'alice')"), 'NONE', 'not used, in time: NONE');
	wait_until($node, "SELECT extract(epoch FROM clock_timestamp()) >= $expires");
	is(acquire($unused, 'charge', columns => '*'), 'EXPIRED||||f|f|charge|alice||||||', 'not used in time: EXPIRED');
	is(value($node, "SELECT outcome FROM idem_status('$unused', 'alice')"), 'EXPIRED', 'and status says so');
	is(acquire($used, 'charge'), 'DONE|1|t|"first"', 'consumed in time: replayed after');
	is(value($node, "SELECT outcome FROM idem_status('$used', 'alice')"), 'DONE', 'and status says so');

	# consumed ones go on after: the same nonce under an expiry that is past stands for the time gone by
	my %case = (
		'in flight' => [ 'charge', '', 'IN_FLIGHT|1|f|' ],
		'failed' => [ 'charge', "SELECT idem_fail('KEY', 'OWNER', '\"no\"')", 'FAILED|1|t|"no"' ],
		'failed, retryable' => [ 'charge', "SELECT idem_fail('KEY', 'OWNER', '\"later\"', true)", 'ACQUIRED|2|f|' ],
		'released' => [ 'charge', "SELECT idem_release('KEY', 'OWNER')", 'ACQUIRED|2|f|' ],
		'lease over, idempotent' => [ 'idempotent', '', 'ACQUIRED|2|f|' ],
		'lease over, opaque' => [ 'opaque', '', 'RECONCILE|1|f|' ]);
	my $now = value($node, 'SELECT floor(extract(epoch FROM clock_timestamp()))::bigint');
	foreach my $name (sort keys %case)
	{
		my ($scope, $sql, $verdict) = @{ $case{$name} };
		my $nonce = value($node, 'SELECT fresh_nonce()');
		my ($early, $late) = map { value($node, "SELECT sign_at('$nonce', $now + $_, 'alice', '$scope', $order)") } 1000, -1000;
		is(acquire($late, $scope, columns => 'outcome'), 'EXPIRED', "$name: not consumed yet");
		($key, $owner) = granted($early, $scope);
		value($node, $sql =~ s/KEY/$key/r =~ s/OWNER/$owner/r) if $sql;
		lease_over($key) if $name =~ /over/;
		is(acquire($late, $scope), $verdict, "$name: goes on after its expiry");
		value($node, "DELETE FROM idem_record WHERE key = '$key'");
		is(acquire($late, $scope), 'EXPIRED||f|', "$name: and never starts again once its record is gone");
	}
};

# ----------------------------------------------------------------------------------------------------------
# Late commit after a takeover
# ----------------------------------------------------------------------------------------------------------

subtest 'late commit after a takeover: NOT_OWNER, evidence kept (P4, A05)' => sub {
	my $token = sign('idempotent');
	my ($key, $first) = granted($token, 'idempotent');
	lease_over($key);
	my ($attempt, $second) = split /\|/, acquire($token, 'idempotent', columns => 'attempt, owner');
	is($attempt, 2, 'taken over');
	my $row = "SELECT r.xmin, r.ctid, r FROM idem_record AS r WHERE key = '$key'";
	my $before = value($node, $row);

	my $size = log_size($node);
	is(value($node, "BEGIN; SELECT idem_commit('$key', '$first', '{\"charge\": \"ch_1\"}', 'ref_1'); ROLLBACK"), 'NOT_OWNER', 'the first holder is late');
	like(log_since($node, $size), qr/ ID004 LOG:  idem: .*\n.*DETAIL:  Operation $key, .*ch_1.*/, 'its result is in the log, though it rolled back');
	is(alerts($key), 'takeover', 'and not in the table');
	foreach my $result (1 .. 3)
	{
		is(value($node, "SELECT idem_commit('$key', '$first', '{\"charge\": \"ch_$result\"}', 'ref_$result')"), 'NOT_OWNER', "late result $result");
		# rows are written at most once a second
		value($node, "UPDATE idem_alert SET first_at = first_at - interval '2 s', last_at = last_at - interval '2 s' WHERE key = '$key'");
	}
	is(value($node, "SELECT count, detail #>> '{first,result,charge}', detail #>> '{latest,result,charge}', detail #>> '{latest,result_ref}' FROM idem_alert WHERE key = '$key' AND kind = 'not_owner'"),
		'3|ch_1|ch_3|ref_3', 'the first and the latest late result are kept');
	is(value($node, "SELECT idem_fail('$key', '$first', '\"no\"')"), 'NOT_OWNER', 'it cannot fail it');
	is(value($node, "SELECT idem_fail('$key', '$first', '\"no\"', true)"), 'NOT_OWNER', 'nor so that it may be retried');
	is(value($node, "SELECT idem_release('$key', '$first')"), 'NOT_OWNER', 'nor release it');
	is(value($node, "SELECT idem_renew('$key', '$first')"), 'NOT_OWNER', 'nor renew it');
	is(value($node, $row), $before, 'the record is untouched');
	is(value($node, "SELECT idem_commit('$key', '$second', '\"second\"')"), 'OK', 'who took over commits');
	is(value($node, "SELECT idem_commit('$key', '$first', '\"first\"')"), 'NOT_OWNER', 'later still is no better');
	is(acquire($token, 'idempotent'), 'DONE|2|t|"second"', 'and one result stands');
	my $log = log_since($node, 0);
	unlike($log, qr/$first|$second/, 'no owner token in the log (P10)') if value($node, 'SHOW log_statement') eq 'none';
};

$node->stop;
done_testing();
