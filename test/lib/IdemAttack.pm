# IdemAttack: what the tests share that try to make another role run an attacker's code (P13).
#
#   use IdemAttack;
#   attack_roles($node);                 # attacker, and one role for each set; nobody
#   open_schema($node, $db, 'idem');     # each role gets its set and USAGE
#   my $calls = bind_calls($node, $db);  # every function, view and table of the extension, ready to be called
#   my $before = play($node, $db, $calls, 'caller');
#   my $size = log_size($node);
#   act($node, $db, overloads($node, $db, 'idem'));        # as the attacker
#   same_answers($before, play($node, $db, $calls, 'caller'), 'with overloads');
#   nothing_sprung($node, $size, 'with overloads');
#
# Everything is taken from the catalog, so that a new function is called and attacked without a change here.
#
# What a caller types resolves in his own session, and that is his affair.  So calls are bound while nothing is planted
# yet, in functions with a standard body (schema play): what runs in one of them is idem's doing.  Each answer is an
# SQLSTATE.
#
# A trap is a function of the attacker's.  It leaves a line in the server's log, which no rollback takes away, and tries
# to make the attacker superuser.
package IdemAttack;

use strict;
use warnings;

use Exporter 'import';
use JSON::PP;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes ();
use IdemTest;

our @EXPORT = qw(attack_roles hand_over open_schema bind_calls play play_all same_answers same_or_refused act act_ok spring_set trap trap_view
  members relations types overloads namesakes catalog_traps nothing_sprung sprung no_superuser worker_round catalog @callers @kinds);

# Who calls: a superuser, and one role for each set
our @callers = qw(postgres signer caller auditor operator admin);

# ---------------------------------------------------------------------------------------------------------
# Asking, as a superuser whose search path nobody has a hand in
# ---------------------------------------------------------------------------------------------------------

sub catalog
{
	my ($node, $db, $sql) = @_;
	return value($node, "SET search_path = pg_catalog; SET client_min_messages = warning; $sql", $db);
}

sub rows
{
	my ($node, $db, $sql) = @_;
	return @{ decode_json(catalog($node, $db, "SELECT coalesce(json_agg(r), '[]') FROM ($sql) AS r") || '[]') };
}

my $of_idem = q{FROM pg_extension AS e JOIN pg_depend AS d ON d.refclassid = 'pg_extension'::regclass AND d.refobjid = e.oid AND d.deptype = 'e'
	AND e.extname = 'idem'};

# The extension's functions: name, schema, prefix (the schema, quoted, with its dot), identity, args [name, type], those without a default (required),
# arguments and result as CREATE FUNCTION takes them, out: has OUT arguments, language
sub members
{
	my ($node, $db) = @_;
	return rows($node, $db, qq{
		SELECT p.proname AS name, n.nspname AS schema, quote_ident(n.nspname) || '.' AS prefix, p.oid::regprocedure::text AS identity, p.pronargs - p.pronargdefaults AS required,
			pg_get_function_arguments(p.oid) AS arguments, pg_get_function_result(p.oid) AS result, l.lanname AS language,
			p.proallargtypes IS NOT NULL AS out,
			(SELECT coalesce(json_agg(json_build_array(coalesce(u.name, ''), format_type(u.type, NULL)) ORDER BY u.n), '[]')
				FROM unnest(coalesce(p.proallargtypes, p.proargtypes::oid[]), p.proargmodes, p.proargnames) WITH ORDINALITY AS u (type, mode, name, n)
				WHERE coalesce(u.mode, 'i') IN ('i', 'b', 'v')) AS args
		$of_idem AND d.classid = 'pg_proc'::regclass JOIN pg_proc AS p ON p.oid = d.objid JOIN pg_namespace AS n ON n.oid = p.pronamespace
			JOIN pg_language AS l ON l.oid = p.prolang
		ORDER BY p.proname COLLATE "C", p.oid});
}

# Its tables and views: name, full (qualified), kind, columns [name, type, whether it must be given, whether it may be null, its collation]
sub relations
{
	my ($node, $db) = @_;
	return rows($node, $db, qq{
		SELECT c.relname AS name, c.oid::regclass::text AS full, c.relkind AS kind,
			(SELECT json_agg(json_build_array(quote_ident(attname), format_type(atttypid, NULL), attnotnull AND NOT atthasdef, NOT attnotnull,
					coalesce((SELECT ' COLLATE ' || quote_ident(collname) FROM pg_collation AS l WHERE l.oid = attcollation AND collname <> 'default'), '')) ORDER BY attnum)
				FROM pg_attribute WHERE attrelid = c.oid AND attnum > 0 AND NOT attisdropped) AS columns
		$of_idem AND d.classid = 'pg_class'::regclass JOIN pg_class AS c ON c.oid = d.objid WHERE c.relkind IN ('r', 'v')
		ORDER BY c.relname COLLATE "C"});
}

# Its types of its own: name, full, kind, labels, attributes [name, type]
sub types
{
	my ($node, $db) = @_;
	return rows($node, $db, qq{
		SELECT t.typname AS name, t.oid::regtype::text AS full, t.typtype AS kind,
			(SELECT json_agg(enumlabel ORDER BY enumsortorder) FROM pg_enum WHERE enumtypid = t.oid) AS labels,
			(SELECT json_agg(json_build_array(attname, format_type(atttypid, NULL)) ORDER BY attnum)
				FROM pg_attribute WHERE attrelid = t.typrelid AND attnum > 0 AND NOT attisdropped) AS attributes
		$of_idem AND d.classid = 'pg_type'::regclass JOIN pg_type AS t ON t.oid = d.objid
			LEFT JOIN pg_class AS c ON c.oid = t.typrelid
		WHERE t.typtype = 'e' OR c.relkind = 'c' ORDER BY t.typname COLLATE "C"});
}

# ---------------------------------------------------------------------------------------------------------
# Roles, and every call there is
# ---------------------------------------------------------------------------------------------------------

sub attack_roles
{
	my ($node) = @_;
	value($node, join ';', 'CREATE ROLE attacker LOGIN', map { "CREATE ROLE $_ LOGIN" } qw(signer caller auditor operator admin nobody));
	return;
}

# Each role gets its set, and all may look names up in the schema; before anything is planted there
sub open_schema
{
	my ($node, $db, $schema) = @_;
	catalog($node, $db, "GRANT USAGE ON SCHEMA $schema TO PUBLIC;" . join ';', map { "SELECT $schema.idem_grant('$_', '$_')" } qw(signer caller auditor operator admin));
	return;
}

# What a typical argument is, by its name, else by its type; "a" is the row of play.at
my %by_name = (
	subject => q{'alice'}, scope => q{'charge'}, params => 'a.params', fingerprint => 'a.fingerprint', key => 'a.key', owner => 'a.owner',
	wait => q{'0'}, result_ref => q{'ref'}, lease => q{'1 hour'}, verdict => q{'DONE'}, note => q{'seen'}, role => 'a.role', set => q{'caller'},
	subject_setting => q{'app.subject'}, secret => q{sha256('attack')}, id => 'a.secret_id', fn => q{'play.echo(jsonb)'}, header => q{'"x"'},
	lang => q{'en'}, command => q{'GRANT %s ON %s TO %s'}, added => q{'{no_such_object}'}, outcome => undef, result => q{'1'}, client_key => q{gen_random_uuid()},
	verify_for => 'NULL', not_after => 'NULL', kind => q{'DONE'}, entry => q{'any'}, downstream => q{'o'}, attempt => '1');
my %by_type = (
	text => q{'x'}, uuid => 'gen_random_uuid()', jsonb => q{'1'}, interval => q{'1 s'}, boolean => 'true', integer => '1', bigint => '1',
	bytea => q{sha256('x')}, 'timestamp with time zone' => 'clock_timestamp()', 'text[]' => q{'{/amount}'}, regrole => 'a.role',
	regprocedure => q{'play.echo(jsonb)'}, '"char"' => q{'o'});

sub argument
{
	my ($name, $type, $types, $label) = @_;
	my ($own) = grep { $_->{full} eq $type } @$types;
	my $value = $by_name{$name} // $by_type{$type};
	if ($own)
	{
		$value = $own->{labels} ? "'" . ($label // $own->{labels}[0]) . "'" :
		  'ROW(' . join(', ', map { argument($_->[0], $_->[1], $types, $label) } @{ $own->{attributes} }) . ')';
	}
	return 'NULL::' . $type unless defined $value;
	return "($value)::$type";
}

# Make schema play in a database with the extension; returns the calls: {label, sql, fresh: what must be made before}
sub bind_calls
{
	my ($node, $db) = @_;
	my @types = types($node, $db);
	my @functions = members($node, $db);
	my $schema = $functions[0]{prefix};
	my (@sql, @calls);
	my $bind = sub {
		my ($label, $fresh, $result, $body) = @_;
		my $name = 'play.call_' . scalar @calls;
		push @sql, "CREATE FUNCTION $name() RETURNS $result BEGIN ATOMIC $body; END";
		push @calls, { label => $label, fresh => $fresh, sql => "SELECT $name()" };
	};

	push @sql, 'DROP SCHEMA IF EXISTS play CASCADE', 'CREATE SCHEMA play', 'GRANT USAGE ON SCHEMA play TO PUBLIC',
	  'CREATE TABLE play.at (params jsonb, fingerprint text, key uuid, owner uuid, secret_id text, role regrole)', 'GRANT SELECT ON play.at TO PUBLIC',
	  q{INSERT INTO play.at (role) VALUES ('nobody')},
	  q{CREATE FUNCTION play.echo(params jsonb) RETURNS jsonb LANGUAGE plpgsql AS 'BEGIN RETURN params; END'},
	  qq{INSERT INTO ${schema}idem_policy (scope, downstream_max, gateway_timeout, retry_backoff, in_flight_ttl) VALUES ('short', '1 us', '1 us', '1 us', '4 us')
		ON CONFLICT DO NOTHING},
	  # a fresh operation in flight with its token, an imported secret, and work for the purge
	  qq{CREATE FUNCTION play.fresh() RETURNS void SECURITY DEFINER BEGIN ATOMIC
		UPDATE play.at SET params = c.p, fingerprint = ${schema}idem_sign('alice', 'charge', c.p), key = (c.c).key, owner = (c.c).owner
			FROM (SELECT p, ${schema}idem_acquire_direct('alice', 'charge', p) AS c FROM (SELECT to_jsonb(gen_random_uuid()::text) AS p OFFSET 0) AS d OFFSET 0) AS c; END},
	  qq{CREATE FUNCTION play.secret() RETURNS void SECURITY DEFINER BEGIN ATOMIC
		UPDATE play.at SET secret_id = ${schema}idem_import_secret(sha256(uuid_send(gen_random_uuid()))); END},
	  qq{CREATE FUNCTION play.lapse() RETURNS void SECURITY DEFINER BEGIN ATOMIC
		INSERT INTO ${schema}idem_record (key, acquired_at, lease_until, policy_version, attempt, state, downstream, param_hash, owner_hash, scope, subject, retained_until, finished_at)
			VALUES (gen_random_uuid(), now(), now(), 0, 1, 'D', 'o', sha256(''), sha256(''), 'old', 'alice', '2020-01-01', now()); END},
	  qq{CREATE FUNCTION play.work() RETURNS void SECURITY DEFINER BEGIN ATOMIC
		SELECT play.lapse();
		SELECT ${schema}idem_acquire_direct('alice', 'short', to_jsonb(gen_random_uuid()::text)); END},
	  # what the purge has left; safe to call under any search path
	  qq{CREATE FUNCTION play.lapsed() RETURNS bool BEGIN ATOMIC SELECT EXISTS (SELECT FROM ${schema}idem_record WHERE scope = 'old'); END};

	foreach my $f (@functions)
	{
		my %takes = map { $_->[0] => 1 } @{ $f->{args} };
		my $fresh = $takes{key} || $takes{fingerprint} || $takes{params} ? 'fresh' : $takes{id} ? 'secret' : $f->{name} =~ /maintain|purge|health/ ? 'work' : undef;
		if ($f->{result} eq 'trigger')
		{
			my $hung = 'play.hung_' . scalar @calls;
			push @sql, "CREATE TABLE $hung (key uuid, scope text)", "GRANT ALL ON $hung TO PUBLIC",
			  "CREATE TRIGGER t BEFORE INSERT ON $hung FOR EACH ROW EXECUTE FUNCTION $schema$f->{name}('charge', 'key')";
			$bind->("hung $f->{name}", 'fresh', 'void', "INSERT INTO $hung SELECT key, 'charge' FROM play.at");
			next;
		}
		# with a claim: one of each outcome
		my ($claim) = grep { my $type = $_->[1]; grep { $_->{full} eq $type && $_->{attributes} } @types } @{ $f->{args} };
		my ($outcome) = grep { $_->{name} eq 'idem_outcome' } @types;
		foreach my $label ($claim ? @{ $outcome->{labels} } : undef)
		{
			my $call = "$schema$f->{name}(" . join(', ', map { argument(@$_, \@types, $label) } @{ $f->{args} }) . ')';
			# the name of a call is the same wherever the extension lies
			my $name = "$f->{name}(" . join(', ', map { $_->[1] =~ s/^\Q$schema\E//r } @{ $f->{args} }) . ')';
			$bind->($name . (defined $label ? " $label" : ''), $fresh, 'text',
				$f->{result} eq 'void' ? "SELECT count(r)::text FROM play.at AS a, LATERAL $call AS r"
				: "SELECT string_agg(r::text, ' ') FROM play.at AS a, LATERAL $call AS r");
		}
	}
	foreach my $t (relations($node, $db))
	{
		my @columns = @{ $t->{columns} };
		# whole rows as text, so that every column is computed
		$bind->("select $t->{name}", 'work', 'text', "SELECT string_agg((r.*)::text, ' ') FROM $t->{full} AS r");
		next if $t->{kind} ne 'r';
		my ($scope) = map { $_->[0] eq 'scope' ? 'scope' : () } @columns;
		my @given = grep { $_->[2] } @columns;
		$bind->("insert $t->{name}", undef, 'void',
			"INSERT INTO $t->{full} (" . join(', ', map { $_->[0] } @given) . ') SELECT '
			  . join(', ', map { $_->[0] eq 'scope' ? q{'attack ' || gen_random_uuid()} : argument($_->[0], $_->[1], \@types) } @given) . ' FROM play.at AS a');
		$bind->("update $t->{name}", undef, 'void', "UPDATE $t->{full} SET $columns[0][0] = $columns[0][0]");
		$bind->("delete $t->{name}", undef, 'void', "DELETE FROM $t->{full} WHERE " . ($scope ? q{scope LIKE 'attack %'} : "$columns[0][0] IS NULL"));
	}
	catalog($node, $db, join ";\n", @sql);
	cmp_ok(scalar @calls, '>', 100, "there are " . scalar @calls . " calls to make in $db");
	return \@calls;
}

# ---------------------------------------------------------------------------------------------------------
# Everybody does everything
# ---------------------------------------------------------------------------------------------------------

# All calls as one role: {label => SQLSTATE}.  $where is a node (then a new session is opened, of that role) or a session
# of a superuser.  only => a pattern of labels; path => a search path; except => answers of before: what was refused
# for lack of privileges then is left out.  idle: a
# pattern of what is not made before calls (fresh, secret, work), since that would be a direct call.
sub play
{
	my ($where, $db, $calls, $role, %how) = @_;
	my $kept = $where->isa('IdemTest::Session');
	my $s = $kept ? $where : session($where, dbname => $db, user => $role);
	my @script = $kept ? ("SET ROLE $role;") : ();
	push @script, "SET search_path = $how{path};" if defined $how{path};
	my @did;
	foreach my $call (@$calls)
	{
		next if defined $how{only} && $call->{label} !~ $how{only};
		next if defined $how{skip} && $call->{label} =~ $how{skip};
		next if defined $how{except} && ($how{except}{ $call->{label} } // '') eq '42501';
		push @script, "SELECT play.$call->{fresh}() \\g /dev/null" if defined $call->{fresh} && !(defined $how{idle} && $call->{fresh} =~ $how{idle});
		push @script, "$call->{sql} \\g /dev/null", "\\echo answer :SQLSTATE";
		push @did, $call->{label};
	}
	push @script, 'RESET ROLE; RESET search_path' if $kept;
	my $out = $s->query(join "\n", @script);
	my $alive = $s->sqlstate ne '08006';
	my @answers = $out =~ /^answer (\S+)$/mg;
	my %answer;
	@answer{@did} = map { $answers[$_] // '08006' } 0 .. $#did;
	$s->quit unless $kept || !$alive;
	return \%answer;
}

# The same as each of several: {"role label" => SQLSTATE}
sub play_all
{
	my ($where, $db, $calls, $roles, %how) = @_;
	$roles = [$roles] unless ref $roles;
	my $before = delete $how{except};
	my %all;
	foreach my $role (@$roles)
	{
		my $except = $before && { map { my $l = $_; $l =~ s/^\Q$role\E // ? ($l => $before->{$_}) : () } keys %$before };
		my $answers = play($where, $db, $calls, $role, %how, except => $except);
		$all{"$role $_"} = $answers->{$_} foreach keys %$answers;
	}
	return \%all;
}

# Test that all is as it was, or where it is not that it is refused with 55000
sub compare
{
	my ($before, $now, $what, @allowed) = @_;
	my @faults = map { "$_: $now->{$_}, before $before->{$_}" }
	  grep { my $call = $_; $now->{$call} ne $before->{$call} && !grep { $now->{$call} eq $_ } @allowed } sort keys %$now;
	ok(!@faults, $what) or diag(join "\n", @faults > 12 ? (@faults[ 0 .. 11 ], '... ' . @faults . ' in all') : @faults);
	return !@faults;
}

sub same_answers { my ($before, $now, $what) = @_; return compare($before, $now, "$what: every call answers as before") }

# Where an acquire is refused, idem_require finds none either
sub same_or_refused
{
	my ($before, $now, $what) = @_;
	my %known = %$now;
	delete @known{ grep { /hung idem_require/ && $known{$_} eq '23000' } keys %known };
	return compare($before, \%known, "$what: every call answers as before or 55000", '55000');
}

# Wait for a round: what had lapsed is gone (done), or the worker said that it could not do its round (refused); or else,
# where a round has done nothing, it is missed
sub worker_round
{
	my ($node, $db) = @_;
	my $size = log_size($node);
	catalog($node, $db, 'SELECT play.lapse()');
	foreach (1 .. 120)
	{
		return 'refused' if log_since($node, $size) =~ /idem worker could not do its round/;
		return 'done' if catalog($node, $db, 'SELECT play.lapsed()') eq 'f';
		Time::HiRes::usleep(50_000);
	}
	return 'missed';
}

# ---------------------------------------------------------------------------------------------------------
# Traps
# ---------------------------------------------------------------------------------------------------------

# A database whose idem is the attacker's: a superuser installed it, and all that was his was handed over
sub hand_over
{
	my ($node, $db) = @_;
	value($node, "CREATE ROLE boss SUPERUSER LOGIN; CREATE DATABASE $db TEMPLATE template0; GRANT CREATE ON DATABASE $db TO attacker");
	act_ok($node, $db, [ 'CREATE SCHEMA idem', 'CREATE EXTENSION pgcrypto SCHEMA public', 'CREATE EXTENSION idem SCHEMA idem' ], 'boss');
	open_schema($node, $db, 'idem');
	catalog($node, $db, 'REASSIGN OWNED BY boss TO attacker');
	spring_set($node, $db);
	act_ok($node, $db, [
		trap('evil.bait_text', '', 'text'),
		trap('evil.bait', 'anyelement', 'text', immutable => 1, value => '$1::text'),
		trap('evil.bait_bool', 'anyelement', 'boolean', immutable => 1, value => 'true'),
		trap('evil.bait_trigger', '', 'trigger') ]);
	is(catalog($node, $db, q{SELECT string_agg(DISTINCT relowner::regrole::text, ' ') FROM pg_class WHERE relname LIKE 'idem%'}), 'attacker', 'all is his');
	return;
}

# Statements, as the attacker (or another role), each for itself; what fails is returned
sub act
{
	my ($node, $db, $sql, $role) = @_;
	my ($rc, $out, $err) = $node->psql($db, "SET client_min_messages = error;\n" . join(";\n", ref $sql ? @$sql : $sql) . ";\n",
		extra_params => [ '-U', $role // 'attacker' ], on_error_stop => 0);
	return $err;
}

sub act_ok
{
	my ($node, $db, $sql, $role) = @_;
	my $err = act($node, $db, $sql, $role);
	die "the attack cannot be made: $err" if $err ne '';
	return;
}

# The schema evil, open to all, with what every trap calls
sub spring_set
{
	my ($node, $db, $role) = @_;
	$role //= 'attacker';
	act_ok($node, $db, [
		'CREATE SCHEMA IF NOT EXISTS evil', 'GRANT USAGE ON SCHEMA evil TO PUBLIC',
		qq{CREATE FUNCTION evil.spring(name text) RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog AS \$\$
			BEGIN
				RAISE LOG 'TRAP "%" as "%" for "%"', name, current_user, session_user;
				IF current_user <> '$role' THEN
					ALTER ROLE $role SUPERUSER;
				END IF;
			EXCEPTION WHEN OTHERS THEN
				NULL;
			END\$\$} ], $role);
	return;
}

# A function that is a trap; its name is qualified
sub trap
{
	my ($name, $args, $result, %how) = @_;
	my $return = $result eq 'trigger' ? q{IF TG_OP = 'DELETE' THEN RETURN OLD; END IF; RETURN NEW}
	  : $result =~ /^void|^SETOF|^TABLE/i || $how{out} ? 'RETURN' : 'RETURN ' . ($how{value} // 'NULL');
	(my $label = "$name($args)") =~ s/['"]//g;
	my $volatility = $how{immutable} ? 'IMMUTABLE' : 'VOLATILE';
	return "CREATE OR REPLACE FUNCTION $name($args) RETURNS $result LANGUAGE plpgsql $volatility SET search_path = pg_catalog AS "
	  . "\$trap\$BEGIN PERFORM evil.spring('$label'); $return; END\$trap\$";
}

# A view that springs for each row and column
sub trap_view
{
	my ($name, $relation) = @_;
	return "CREATE VIEW $name AS SELECT "
	  . join(', ', map { "evil.bait_text()::pg_catalog.text::$_->[1]$_->[4] AS $_->[0]" } @{ $relation->{columns} });
}

# Overloads of every function in a schema, of each kind or of one: all arguments text, which untyped literals prefer; one
# more with a default; variadic; polymorphic; without those that have a default; and, where they are not to lie beside
# idem's own, the very same
our @kinds = qw(text default variadic polymorphic cut same);

sub overloads
{
	my ($node, $db, $schema, %how) = @_;
	my @sql;
	foreach my $f (members($node, $db))
	{
		my @types = map { $_->[1] } @{ $f->{args} };
		my $result = $f->{out} || $f->{result} eq 'trigger' ? 'text' : $f->{result};
		my %planted = $how{beside} ? (join(', ', @types) => 1) : ();
		my %arguments = (
			same => [ join(', ', @types) ],
			text => [ join(', ', ('text') x @types) ],
			default => [ map { join ', ', @$_, 'extra int DEFAULT 0' } \@types, [ ('text') x @types ] ],
			variadic => [ 'VARIADIC text[]', @types && $types[-1] !~ /\[\]$/ ? join(', ', @types[ 0 .. $#types - 1 ], "VARIADIC $types[-1]\[\]") : () ],
			polymorphic => [ @types ? join(', ', ('anyelement') x @types) : () ],
			cut => [ map { join ', ', @types[ 0 .. $_ - 1 ] } $f->{required} .. $#types ]);
		foreach my $arguments (grep { !$planted{ s/VARIADIC //r }++ } map { @{ $arguments{$_} } } $how{kind} // @kinds)
		{
			push @sql, trap("$schema.$f->{name}", $arguments, $result);
		}
	}
	return \@sql;
}

# Objects of exactly the names and signatures of the extension's, in another schema
sub namesakes
{
	my ($node, $db, $schema) = @_;
	my @sql = (trap('evil.bait_text', '', 'text'));
	foreach my $t (types($node, $db))
	{
		push @sql, $t->{labels} ? "CREATE TYPE $schema.$t->{name} AS ENUM (" . join(', ', map { "'$_'" } @{ $t->{labels} }) . ')'
		  : "CREATE TYPE $schema.$t->{name} AS (" . join(', ', map { "$_->[0] $_->[1]" } @{ $t->{attributes} }) . ')';
	}
	foreach my $r (relations($node, $db))
	{
		push @sql, $r->{kind} eq 'v' ? trap_view("$schema.$r->{name}", $r) : (
			"CREATE TABLE $schema.$r->{name} (" . join(', ', map { "$_->[0] $_->[1]" } @{ $r->{columns} }) . ')',
			trap("$schema.row_$r->{name}", '', 'trigger'),
			"CREATE TRIGGER t BEFORE INSERT OR UPDATE OR DELETE ON $schema.$r->{name} FOR EACH ROW EXECUTE FUNCTION $schema.row_$r->{name}()");
	}
	push @sql, map { trap("$schema.$_->{name}", $_->{arguments}, $_->{result}, out => $_->{out}) } members($node, $db);
	return \@sql;
}

# Namesakes of the functions and operators of pg_catalog over ordinary types (T10)
sub catalog_traps
{
	my ($schema) = @_;
	return qq{DO \$do\$
	DECLARE
		usual CONSTANT oid[] := '{text,"\\"char\\"",name,int4,int8,float8,numeric,bool,bytea,jsonb,json,uuid,timestamptz,interval,oid,regclass,regrole,regprocedure,"text[]","oid[]"}'::regtype[]::oid[];
		o record;
		n int := 0;
		form CONSTANT text := 'CREATE FUNCTION $schema.%I(%s) RETURNS %s LANGUAGE plpgsql SET search_path = pg_catalog AS
			\$trap\$BEGIN PERFORM evil.spring(%L); RETURN NULL; END\$trap\$';
	BEGIN
		FOR o IN SELECT oprname AS name, format_type(oprleft, NULL) AS l, format_type(oprright, NULL) AS r, format_type(oprresult, NULL) AS res FROM pg_operator
			WHERE oprnamespace = 'pg_catalog'::regnamespace AND oprleft = ANY (usual) AND oprright = ANY (usual) AND oprcode <> 0
		LOOP
			n := n + 1;
			EXECUTE format(form, 'operator_' || n, o.l || ', ' || o.r, o.res, format('%s(%s,%s)', o.name, o.l, o.r));
			EXECUTE format('CREATE OPERATOR $schema.%s (FUNCTION = $schema.operator_%s, LEFTARG = %s, RIGHTARG = %s)', o.name, n, o.l, o.r);
		END LOOP;
		FOR o IN SELECT proname AS name, oidvectortypes(proargtypes) AS args, format_type(prorettype, NULL) AS res FROM pg_proc
			WHERE pronamespace = 'pg_catalog'::regnamespace AND prokind = 'f' AND NOT proretset AND prorettype = ANY (usual) AND proargtypes::oid[] <@ usual
		LOOP
			EXECUTE format(form, o.name, o.args, o.res, format('%s(%s)', o.name, o.args));
		END LOOP;
	END
	\$do\$};
}

# Where traps sprang as or for somebody else than the attacker: "name as role for role", each once
sub sprung
{
	my ($node, $size, $role) = @_;
	$role //= 'attacker';
	my %seen;
	my $log = log_since($node, $size);
	while ($log =~ /LOG:  TRAP "(.*?)" as "(.*?)" for "(.*?)"$/mg)
	{
		$seen{"$1 as $2 for $3"}++ if $2 ne $role || $3 ne $role;
	}
	return sort keys %seen;
}

sub no_superuser
{
	my ($node, $what, $role) = @_;
	$role //= 'attacker';
	my $super = catalog($node, 'postgres', "SELECT rolsuper FROM pg_roles WHERE rolname = '$role'");
	is($super, 'f', "$what: the attacker is no superuser");
	# what follows is worth trying by who is none
	catalog($node, 'postgres', "ALTER ROLE $role NOSUPERUSER") if $super eq 't';
	return;
}

# Test that since the log had this size no code of the attacker's ran as somebody else or in somebody else's session
sub nothing_sprung
{
	my ($node, $size, $what, $role) = @_;
	my @sprung = sprung($node, $size, $role);
	ok(!@sprung, "$what: no code of the attacker's ran for others")
	  or diag(join "\n", @sprung > 12 ? (@sprung[ 0 .. 11 ], '... ' . @sprung . ' in all') : @sprung);
	no_superuser($node, $what, $role);
	return;
}

1;
