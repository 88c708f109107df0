# Three shards behind PL/Proxy (examples/plproxy/router.sql): calls with idem's own names and arguments go where their
# operation lives; while shards are killed one after the other, the rest goes on, and no effect happens twice; a
# fourth shard takes its part of the records; a client learns no password and is held to its subject (P1, P2, P3, P4, P7,
# P11; T23).
use strict;
use warnings;

use List::Util qw(shuffle);
use POSIX ();
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes ();
use IdemTest;

my $source = $ENV{IDEM_SRC} // '.';
my $operations = 90;    # in each round
my $clients = 5;

my $router = idem_node('router', -extension => 0);
plan skip_all => 'this PostgreSQL has no plproxy (Debian: postgresql-VERSION-plproxy)'
  if value($router, q{SELECT count(*) FROM pg_available_extensions WHERE name = 'plproxy'}) == 0;
my @shard = map { idem_node("shard$_") } 0 .. 2;
my $folder = PostgreSQL::Test::Utils::tempdir();

# ---------------------------------------------------------------------------------------------------------
# The set-up that examples/plproxy/README.md describes
# ---------------------------------------------------------------------------------------------------------

my $policies = q{
	INSERT INTO idem_policy (scope, material, downstream, in_flight_ttl) VALUES ('charge', '{/op}', 'opaque', '1 hour');
	INSERT INTO idem_policy (scope, downstream) VALUES ('book', 'local');};

# the password is where the router's operating-system user alone can read it
my $password = 'kept-in-a-file';
append_to_file("$folder/passfile", "*:*:*:gateway:$password\n");
chmod 0600, "$folder/passfile" or die $!;
sub at { my ($node, $dbname) = @_; return 'host=' . $node->host . ' port=' . $node->port . " dbname=$dbname passfile=$folder/passfile" }
foreach my $node (@shard)
{
	my $hba = $node->data_dir . '/pg_hba.conf';
	my $rest = slurp_file($hba);
	unlink $hba;
	append_to_file($hba, "local all gateway scram-sha-256\n$rest");
	$node->reload;
}

# A shard: policies, the common secret and no other, a role that calls, a function that books
sub furnish_shard
{
	my ($node, $dbname, $secret, $policies) = @_;
	value($node, "SET client_min_messages = warning; CREATE EXTENSION IF NOT EXISTS idem CASCADE; $policies", $dbname);
	value($node, "SELECT idem_import_secret('\\x$secret', true)", $dbname);
	value($node, 'SELECT idem_revoke_secret(id) FROM idem_secrets WHERE NOT signing', $dbname);
	value($node, qq{DO 'BEGIN CREATE ROLE gateway LOGIN PASSWORD ''$password''; EXCEPTION WHEN duplicate_object THEN NULL; END'}, $dbname);
	value($node, q{
		SELECT idem_grant('gateway', 'signer'), idem_grant('gateway', 'caller');
		CREATE TABLE booking (n int);
		CREATE FUNCTION book(params jsonb) RETURNS jsonb LANGUAGE sql SECURITY DEFINER
		BEGIN ATOMIC
			INSERT INTO booking VALUES ((params ->> 'n')::int);
			SELECT jsonb_build_object('booked', params -> 'n');
		END}, $dbname);
	return;
}

my $secret = value($shard[0], q{SELECT encode(idem_export_secret(), 'hex')});
furnish_shard($_, 'postgres', $secret, $policies) foreach @shard;

value($router, "SET client_min_messages = warning; CREATE EXTENSION plproxy; CREATE EXTENSION idem CASCADE; CREATE ROLE gateway LOGIN; $policies");
value($router, q{CREATE SERVER idem FOREIGN DATA WRAPPER plproxy OPTIONS (modular_mapping '1', }
	  . join(', ', map { "p$_ '" . at($shard[$_], 'postgres') . q{'} } 0 .. 2)
	  . q{); CREATE ROLE web LOGIN; CREATE ROLE pool LOGIN; GRANT web TO pool; }
	  . join ' ', map { "CREATE USER MAPPING FOR $_ SERVER idem OPTIONS (user 'gateway');" } qw(gateway web pool));
value($router, q{CREATE USER MAPPING FOR CURRENT_USER SERVER idem});
foreach (1, 2)
{
	$router->command_ok([ 'psql', '-qX', '-v', 'ON_ERROR_STOP=1', '-v', 'client=gateway', '-d', $router->connstr('postgres'),
			'-f', "$source/examples/plproxy/router.sql" ], 'the router is laid' . ($_ == 1 ? '' : ', and laid again'));
}
value($router, q{ALTER ROLE gateway SET search_path = router, public});

# What becomes of effects: a table of its own
value($router, 'CREATE DATABASE outside');
value($router, q{
	CREATE TABLE operation (op int PRIMARY KEY, token text NOT NULL, shard int NOT NULL);
	CREATE TABLE effect (id serial PRIMARY KEY, op int NOT NULL, key uuid NOT NULL, client int NOT NULL);
	GRANT ALL ON ALL TABLES IN SCHEMA public TO gateway;
	GRANT ALL ON SEQUENCE effect_id_seq TO gateway}, 'outside');

# ---------------------------------------------------------------------------------------------------------
# Calls
# ---------------------------------------------------------------------------------------------------------

my $s = session($router, user => 'gateway');

sub call
{
	my ($sql) = @_;
	my $out = $s->query($sql);
	return $s->sqlstate eq '00000' ? $out : $s->sqlstate;
}

# The answer to a statement. The router notices only when it calls that its connection to a shard that was killed
# meanwhile is dead: once for each of them the call is made again.
sub routed
{
	my ($sql) = @_;
	foreach my $shard (@shard)
	{
		my $answer = $s->query($sql);
		return $answer if $s->sqlstate eq '00000';
	}
	return $s->query_ok($sql);
}

sub sign { my ($scope, $params) = @_; return routed("SELECT idem_sign('alice', '$scope', '$params')") }

subtest 'every call reaches the shard of its operation (P3, P4, P7)' => sub {
	is(value($router, 'SELECT router.shards(), router.agree()'), '3|t', 'three shards with the same policies and secrets');
	my %seen;
	foreach my $i (1 .. 12)
	{
		my $params = qq({"op": $i});
		my $fp = sign('charge', $params);
		my ($key, $owner) = split /\|/, $s->query_ok("SELECT key, owner FROM idem_acquire('$fp', 'alice', 'charge', '$params')");
		my $home = $s->query_ok("SELECT router.shard('$fp'::text)");
		$seen{$home} = 1;
		my @held = map { value($_, "SELECT count(*) FROM idem_record WHERE key = '$key'") } @shard;
		is("@held", join(' ', map { $_ == $home ? 1 : 0 } 0 .. 2), "operation $i is on shard $home and nowhere else");
		is(call("SELECT idem_renew('$key', '$owner')"), 'OK', 'renewed');
		is(call("SELECT idem_commit('$key', '00000000-0000-4000-8000-000000000000', '1')"), 'NOT_OWNER', 'not by a stranger');
		is(call("SELECT idem_commit('$key', '$owner', '{\"n\": $i}')"), 'OK', 'committed');
		is(call("SELECT outcome, replayed, result FROM idem_acquire('  `$fp`.', 'alice', 'charge', '$params')"), qq(DONE|t|{"n": $i}), 'replayed, however it was copied');
		is(call("SELECT outcome, result FROM idem_status('$fp', 'alice')"), qq(DONE|{"n": $i}), 'its status');
		is(call("SELECT outcome, result FROM idem_status_key('$key', 'alice')"), qq(DONE|{"n": $i}), 'by its key');
		is(call("SELECT outcome FROM idem_acquire('$fp', 'bob', 'charge', '$params')"), 'SUBJECT_MISMATCH', 'another subject');
		is(call("SELECT outcome FROM idem_acquire('$fp', 'alice', 'charge', '{\"op\": -1}')"), 'PARAM_MISMATCH', 'other parameters');
		is(call("SELECT idem_reply(c) ->> 'status' FROM idem_acquire('$fp', 'alice', 'charge', '$params') AS c"), 'already_completed', 'a reply for a model');
	}
	is(join(' ', sort keys %seen), '0 1 2', 'every shard has its part');

	foreach my $i (1 .. 6)
	{
		my $direct = "idem_acquire_direct('alice', 'mail', '{\"to\": $i}'" . ($i % 2 ? ", 'mine-$i')" : ')');
		my ($key, $owner) = split /\|/, $s->query_ok("SELECT key, owner FROM $direct");
		is(call("SELECT outcome FROM $direct"), 'IN_FLIGHT', "direct call $i is taken");
		is(call($i % 3 ? "SELECT idem_fail('$key', '$owner', '\"no\"')" : "SELECT idem_release('$key', '$owner')"), 'OK', 'ended');
		is(call("SELECT outcome FROM $direct"), $i % 3 ? 'FAILED' : 'ACQUIRED', 'and known');
	}
	foreach my $i (1 .. 6)
	{
		my $fp = $i % 2 ? sign('book', qq({"n": $i})) : undef;
		my $execute = "SELECT outcome, replayed, result FROM idem_execute('alice', 'book', '{\"n\": $i}', 'book(jsonb)'" . ($fp ? ", '$fp')" : ')');
		is(call($execute), qq(DONE|f|{"booked": $i}), "booked $i");
		is(call($execute), qq(DONE|t|{"booked": $i}), 'once');
	}
	is(join(' ', map { value($_, 'SELECT count(*) = count(DISTINCT n) FROM booking') } @shard), 't t t', 'no shard booked twice');
};

subtest 'what is wrong is wrong in the same way as without a router (P7, P11)' => sub {
	my $fp = sign('charge', '{"op": 0}');
	is(call("SELECT outcome FROM idem_acquire($_, 'alice', 'charge', '{\"op\": 0}')"), 'INVALID', 'a token that is none')
	  foreach 'NULL', q{''}, q{'made-up'}, q{repeat('x', 5000)}, "left('$fp', -1)", "left('$fp', 40)", "'$fp' || 'A'";
	is(call(q{SELECT outcome FROM idem_status(NULL, 'alice')}), 'INVALID', 'likewise its status');
	my $none = q{'00000000-0000-7000-8000-000000000000'};
	is(call("SELECT idem_commit($none, $none)"), 'NONE', 'a key that is none');
	is(call("SELECT idem_commit(NULL, $none)"), '22004', 'no key');
	is(call("SELECT outcome FROM idem_acquire('$fp', '', 'charge', '{}')"), '22023', 'no subject');
	is(call(q{SELECT outcome FROM idem_acquire_direct('', 'charge', '{}')}), '22023', 'no subject of a direct call');
	is(call(q{SELECT outcome FROM idem_acquire_direct('alice', 'charge', '{}')}), '22023', 'nothing material');
	is(call(q{SELECT outcome FROM idem_acquire_direct('alice', 'book', '{}')}), '55000', 'what policy forbids');
	is(call(q{SELECT outcome FROM public.idem_acquire_direct('alice', 'mail', '{}')}), '42501', 'the router itself grants nothing');
	is(call("SELECT idem_reconcile($none, 'DONE', 'x')"), '42501', 'an operator is somebody else');
	is(call('SELECT * FROM idem_record'), '42501', 'and tables are closed');
	value($shard[1], q{UPDATE idem_policy SET material = '{/op,/to}' WHERE scope = 'charge'});
	is(value($router, 'SELECT router.agree()'), 'f', 'a shard with another policy is noticed');
	value($shard[1], q{UPDATE idem_policy SET material = '{/op}' WHERE scope = 'charge'});
	is(value($router, 'SELECT router.agree()'), 't', 'until it is as it was');
};

subtest 'a role that is bound to a subject is refused, and no client reads a password (P7, P10, T23)' => sub {
	my $fp = sign('charge', '{"op": 0}');
	my ($key, $owner) = split /\|/, $s->query_ok(q{SELECT key, owner FROM idem_acquire_direct('bob', 'mail', '{"to": 0}', 'bobs')});
	is(call("SELECT idem_commit('$key', '$owner', '\"secret of bob\"')"), 'OK', q(bob's operation));
	$router->command_ok([ 'psql', '-qX', '-v', 'ON_ERROR_STOP=1', '-v', 'client=web', '-d', $router->connstr('postgres'),
			'-f', "$source/examples/plproxy/router.sql" ], 'the router is laid for another client');
	my @call = ((map { my $subject = $_; map { sprintf $_, $subject }
				q{idem_sign('%s', 'charge', '{"op": 1}')}, q{idem_preview('%s', 'charge', '{"op": 1}')}, "idem_acquire('$fp', '%s', 'charge', '{\"op\": 0}')",
				q{idem_acquire_direct('%s', 'mail', '{"to": 0}', 'bobs')}, "idem_status('$fp', '%s')", "idem_status_key('$key', '%s')",
				q{idem_execute('%s', 'book', '{"n": 9}', 'book(jsonb)')} } qw(alice bob)),
		"idem_commit('$key', '$owner', '1')", "idem_fail('$key', gen_random_uuid(), '1')", "idem_release('$key', '$owner')", "idem_renew('$key', '$owner')");
	my $tables = sub { return join "\n", map { value($_, q{SELECT (SELECT string_agg(r::text, ' ' ORDER BY key) FROM idem_record AS r), (SELECT count(*) FROM idem_alert)}) } @shard };
	my $try = sub {
		my ($role) = @_;
		my $client = session($router, user => $role);
		$client->query_ok(q{SET app.subject = 'alice'});
		my @told = map { $client->query("SELECT router.$_"); $client->sqlstate } @call;
		is($client->query_ok(q{SELECT count(*), count(*) FILTER (WHERE umoptions::text LIKE '%password%') FROM pg_user_mappings WHERE umoptions IS NOT NULL}) =~ /\|0$/, 1, "$role: no password in the mappings");
		is($client->query_ok(qq{SELECT count(*) FROM pg_foreign_server AS s WHERE s::text LIKE '%$password%'}), 0, 'nor in the server');
		$client->quit;
		return join ' ', sort { $a cmp $b } keys %{ { map { $_ => 1 } @told } };
	};
	is($try->('gateway') =~ /42501/, '', 'a free client is served');
	is($try->('web') =~ /42501/, '', 'as is another');
	value($router, q{SELECT idem_grant('web', 'caller', subject_setting => 'app.subject')});
	my $before = $tables->();
	is($try->('web'), '42501', 'bound, it is refused, whatever the subject');
	is($try->('pool'), '42501', 'and so is who is a member of it');
	is($tables->(), $before, 'nothing was written anywhere');
	my $web = session($router, user => 'web');
	$web->query_ok(q{SET app.subject = 'bob'});
	$web->query("SELECT router.idem_status_key('$key', 'bob')");
	like($web->error, qr/not served through the router/, 'and is told why');
	$web->quit;
	is(call("SELECT outcome FROM idem_status_key('$key', 'bob')"), 'DONE', 'the free one goes on');
	value($router, q{SELECT idem_revoke('web', 'signer'), idem_revoke('web', 'caller'); DROP OWNED BY web, pool; DROP ROLE web, pool});
};

# ---------------------------------------------------------------------------------------------------------
# The storm
# ---------------------------------------------------------------------------------------------------------

# One client, in a process of its own: it wants every operation done, in an order of its own, and learns of each its
# result. It is honest: it acts only when granted, repeats a call whose answer did not come with the same owner token,
# and turns to something else meanwhile. The last quarter of its operations waits until the round's shard is dead. What
# it learned goes into a file: "op result" and "error op sqlstate".
sub client
{
	my ($round, $number, @operation) = @_;
	srand(10 * $round + $number);
	my $db = session($router, user => 'gateway');
	my $outside = session($router, dbname => 'outside', user => 'gateway');
	open my $said, '>', "$folder/client.$round.$number" or die $!;
	my @todo = shuffle(@operation);
	my @later = splice @todo, 3 * @todo / 4;
	while (1)
	{
		push @todo, splice @later if @later && -e "$folder/dead.$round";
		my $op = shift @todo;
		if (!$op)
		{
			last if !@later;
			Time::HiRes::usleep(5_000);    # until the file is there
			next;
		}
		$op->{owner} //= sprintf '%08x-0000-4000-8000-%04x%08x', int rand 2**32, $number, $op->{op};
		my $sql = $op->{result}
		  ? "SELECT idem_commit('$op->{key}', '$op->{owner}', '$op->{result}')"
		  : "SELECT outcome, key, result FROM idem_acquire('$op->{token}', 'alice', 'charge', '{\"op\": $op->{op}}', '50 ms', '$op->{owner}')";
		my $answer = $db->query($sql);
		if ($db->sqlstate ne '00000')
		{
			print $said "error $op->{op} " . $db->sqlstate . "\n";
			Time::HiRes::usleep(20_000);    # as clients do before they try again
			push @todo, $op;
			next;
		}
		my ($outcome, $key, $result) = split /\|/, $answer, 3;
		if ($outcome eq 'ACQUIRED')
		{
			my $id = $outside->query_ok("INSERT INTO effect (op, key, client) VALUES ($op->{op}, '$key', $number) RETURNING id");
			@$op{qw(key result)} = ($key, "{\"effect\": $id}");
			unshift @todo, $op;
		}
		elsif ($outcome eq 'OK') { print $said "$op->{op} $op->{result}\n" }
		elsif ($outcome eq 'DONE') { print $said "$op->{op} $result\n" }
		elsif ($outcome eq 'IN_FLIGHT') { push @todo, $op }
		else { print $said "error $op->{op} $outcome\n"; last }
	}
	close $said or die $!;
	$_->quit foreach $db, $outside;
	return;
}

# The processes of a round
sub clients
{
	my ($round, @operation) = @_;
	my @pid;
	foreach my $number (1 .. $clients)
	{
		my $pid = fork // die "fork: $!";
		if ($pid == 0)
		{
			# nothing of the parent's is torn down by a child
			my $fine = eval { client($round, $number, @operation); 1 };
			print STDERR $@ unless $fine;
			POSIX::_exit($fine ? 0 : 1);
		}
		push @pid, $pid;
	}
	return @pid;
}

# What the clients of a round were told: op => {result => how many of them}, and sqlstate => how often
sub learned
{
	my ($round) = @_;
	my (%result, %error);
	foreach my $number (1 .. $clients)
	{
		foreach my $line (split /\n/, slurp_file("$folder/client.$round.$number"))
		{
			if ($line =~ /^error \d+ (\S+)/) { $error{$1}++; next }
			my ($op, $result) = split / /, $line, 2;
			$result{$op}{$result}++;
		}
	}
	return (\%result, \%error);
}

sub outside { my ($sql) = @_; return value($router, $sql, 'outside') }

value($router, 'CREATE EXTENSION idem CASCADE', 'outside');
foreach my $down (0 .. 2)
{
	subtest "shard $down is killed and comes back: the others go on, and nothing happens twice (P1, P2, P3)" => sub {
		my @operation = map { { op => $_, token => sign('charge', qq({"op": $_})) } } 1 + $down * $operations .. ($down + 1) * $operations;
		outside('INSERT INTO operation VALUES ' . join ', ', map { "($_->{op}, '$_->{token}', idem_shard('$_->{token}', 3))" } @operation);
		my $mine = "op > $down * $operations";
		my $others = outside("SELECT count(*) FROM operation WHERE $mine AND shard <> $down");

		my @pid = clients($down, @operation);
		wait_until($router, "SELECT count(*) >= 10 FROM effect WHERE $mine", 'outside');
		if ($down == 1) { $shard[$down]->kill9 } else { $shard[$down]->stop('immediate') }
		append_to_file("$folder/dead.$down", '');
		wait_until($router, "SELECT count(*) = $others FROM effect JOIN operation USING (op) WHERE $mine AND shard <> $down", 'outside');
		pass("while it is dead, all $others operations of the others get done");
		if ($down == 1) { crash_and_start($shard[$down]) } else { $shard[$down]->start }
		my @status = map { waitpid $_, 0; $? } @pid;
		is("@status", join(' ', (0) x $clients), 'every client comes to its end');

		my ($result, $error) = learned($down);
		is(outside("SELECT count(*), count(DISTINCT op), count(DISTINCT key) FROM effect WHERE $mine"),
			"$operations|$operations|$operations", 'every operation had one effect (P1)');
		my %wanted = map { split /\|/ } split /\n/, outside("SELECT op, '{\"effect\": ' || id || '}' FROM effect WHERE $mine");
		is_deeply($result, { map { $_ => { $wanted{$_} => $clients } } keys %wanted }, 'and every client was told its result (P3)');
		is(join(' ', grep { !/^(08|57P|XX000)/ } sort keys %$error), '', 'clients saw no errors but those of lost and refused connections');
		cmp_ok(scalar(keys %$error), '>', 0, 'and these they saw') or diag explain $error;
		note join ', ', map { "$_: $error->{$_}" } sort keys %$error;
	};
}
is(join(' ', map { my $n = $_; value($shard[$n], "SELECT count(*) FROM idem_record WHERE idem_shard_key(key, 3) <> $n") } 0 .. 2),
	'0 0 0', 'no shard has a record that is not its own');

# ---------------------------------------------------------------------------------------------------------
# One shard more
# ---------------------------------------------------------------------------------------------------------

subtest 'a fourth shard takes its part, and every retry gets its first result (P1, P3)' => sub {
	my $open = sign('charge', '{"op": 1000}');
	$open = sign('charge', '{"op": 1000}') until $s->query_ok("SELECT idem_shard('$open', 4)") == 3;
	my ($key, $owner) = split /\|/, routed("SELECT key, owner FROM idem_acquire('$open', 'alice', 'charge', '{\"op\": 1000}')");
	my @token = map { [ split /\|/ ] } split /\n/, outside('SELECT op, token FROM operation ORDER BY op');
	my $ask = sub { return join "\n", map { routed("SELECT outcome, result FROM idem_acquire('$_->[1]', 'alice', 'charge', '{\"op\": $_->[0]}')") } @token };
	my $first = $ask->();
	unlike($first, qr/^(?!DONE)/m, 'all are done');

	# other lists since: what was signed before is judged by those of before, on the new shard as well
	value($_, q{UPDATE idem_policy SET material = '{/op,/to}' WHERE scope = 'charge'}) foreach @shard, $router;
	is($ask->(), $first, 'known under lists that were replaced');

	# docs/scaling.md: nobody calls; the records move; then the router knows of the shard
	value($shard[0], 'CREATE DATABASE fourth');
	my @settings = ('idem_policy', 'idem_policy_version');
	value($shard[0], "COPY $_ TO '$folder/$_'") foreach @settings;
	furnish_shard($shard[0], 'fourth', $secret, join ';', map { "COPY $_ FROM '$folder/$_'" } @settings);
	my $moved = 0;
	foreach my $from (0 .. 2)
	{
		foreach my $table ('idem_record', 'idem_peer', 'idem_alert')
		{
			my $file = "$folder/$table.$from";
			value($shard[$from], "COPY (SELECT * FROM $table WHERE idem_shard_key(key, 4) = 3) TO '$file'");
			value($shard[0], "COPY $table FROM '$file'", 'fourth');
			my $gone = value($shard[$from], "WITH gone AS (DELETE FROM $table WHERE idem_shard_key(key, 4) = 3 RETURNING 1) SELECT count(*) FROM gone");
			$moved += $gone if $table eq 'idem_record';
		}
	}
	value($router, "ALTER SERVER idem OPTIONS (ADD p3 '" . at($shard[0], 'fourth') . "')");
	is(value($router, 'SELECT router.shards(), router.agree()'), '4|t', 'four shards that agree');
	my $all = $moved + eval { my $n = 0; $n += value($_, 'SELECT count(*) FROM idem_record') foreach @shard; $n };
	cmp_ok($moved, '>', $all / 8, "a part of the records moved: $moved of $all");
	cmp_ok($moved, '<', $all / 2, 'and no more than that');
	is($ask->(), $first, 'every operation still has its result, in a session that was open all the time');
	is(outside('SELECT count(*) FROM effect'), 3 * $operations, 'nothing happened again');
	is(call("SELECT outcome FROM idem_acquire('$open', 'alice', 'charge', '{\"op\": 1000}')"), 'IN_FLIGHT', 'what was at work is at work');
	is(call("SELECT idem_commit('$key', '$owner', '1')"), 'OK', 'its holder finishes');
	is(value($shard[0], "SELECT count(*) FROM idem_record WHERE key = '$key'", 'fourth'), 1, 'on the new shard');
};

$s->quit;
$_->stop('fast') foreach @shard, $router;
done_testing();
