# P13: whatever runs with rights that are not its caller's, or on somebody's behalf, resolves no name at run time. Held
# over the catalog of a fresh installation, whose stored trees are walked, and over the text of the script; and what is
# planted against the rule is found. The objects are the same whatever the session's settings (T11).
use strict;
use warnings;

use JSON::PP;
use PostgreSQL::Test::Utils;
use Test::More;
use IdemTest;

plan skip_all => 'IDEM_SRC does not say where the sources are' unless $ENV{IDEM_SRC};

# ---------------------------------------------------------------------------------------------------------
# The rule over the script's text
# ---------------------------------------------------------------------------------------------------------

# The text without its comments and without the line that psql stops at
sub code
{
	my ($text) = @_;
	$text =~ s/^\\echo .*\\quit$//m;
	# a string is kept as it is: a comment does not begin in it
	$text =~ s/('(?:[^']|'')*')|--[^\n]*/$1 \/\/ ''/ge;
	return $text;
}

# The arguments of a call, from behind its opening parenthesis
sub arguments
{
	my ($text) = @_;
	my ($depth, $argument, @arguments) = (0, '');
	while ($text =~ /\G('(?:[^']|'')*'|.)/gs)
	{
		my $token = $1;
		last if $depth == 0 && $token eq ')';
		$depth++ if $token eq '(';
		$depth-- if $token eq ')';
		if ($depth == 0 && $token eq ',')
		{
			push @arguments, $argument;
			$argument = '';
			next;
		}
		$argument .= $token;
	}
	return map { s/^\s+|\s+$//gr } @arguments, $argument;
}

# Calls of idem's functions with an argument whose type an overload could choose
sub untyped_calls
{
	my ($code) = @_;
	my @faults;
	while ($code =~ /(\w+\s+)?\@extschema\@\.(_?idem_\w+)\s*\(/g)
	{
		my ($before, $name) = (uc($1 // ''), $2);
		next if $before =~ /^(FUNCTION|TABLE|ON|INTO|AS|REFERENCES)\s/;
		foreach my $argument (arguments(substr $code, pos $code))
		{
			push @faults, "$name is called with $argument, whose type is not said"
			  if $argument =~ /^(?:\w+\s*=>\s*)?(?:NULL|'(?:[^']|'')*')$/i;
		}
	}
	return @faults;
}

# The one block that the script may have, to the letter: it locks the schema's row, and all it names is pg_catalog's.
my $lock = <<'EOS';
DO $$
BEGIN
	PERFORM FROM pg_extension AS e JOIN pg_namespace AS n ON n.oid = e.extnamespace
		WHERE e.extname = 'idem' AND quote_ident(n.nspname) = '@extschema@'
		FOR UPDATE OF n;
	IF NOT FOUND THEN
		RAISE EXCEPTION 'the schema of extension idem was renamed meanwhile'
			USING ERRCODE = 'object_not_in_prerequisite_state', HINT = 'Try again.';
	END IF;
END
$$;
EOS

sub script_faults
{
	my $code = code($_[0] =~ s/\Q$lock\E//r);
	my %forbidden = (
		'a backslash' => qr/\\/,
		'a body in a string' => qr/\$\w*\$/,
		'PL/pgSQL' => qr/\bplpgsql\b/i,
		'an anonymous block' => qr/^\s*DO\b/mi,
		'CREATE OR REPLACE' => qr/\bCREATE\s+OR\s+REPLACE\b/i,
		'IF NOT EXISTS' => qr/\bIF\s+NOT\s+EXISTS\s+[^(]/i);
	return ((map { "it has $_" } grep { $code =~ $forbidden{$_} } sort keys %forbidden), untyped_calls($code));
}

# ---------------------------------------------------------------------------------------------------------
# The rule over the catalog
# ---------------------------------------------------------------------------------------------------------

my $members = q{
member AS (
	SELECT d.classid, d.objid FROM pg_depend AS d JOIN pg_extension AS e ON d.refclassid = 'pg_extension'::regclass AND d.refobjid = e.oid
	WHERE e.extname = 'idem' AND d.deptype = 'e'),
relation AS (SELECT c.* FROM pg_class AS c JOIN member AS m ON m.classid = 'pg_class'::regclass AND m.objid = c.oid),
function AS (SELECT p.* FROM pg_proc AS p JOIN member AS m ON m.classid = 'pg_proc'::regclass AND m.objid = p.oid)};

# What the catalog says without a look at trees; rows are faults
my $plain_faults = qq{
WITH $members
SELECT format('function %s is of language %s, and its body is a string', p.oid::regprocedure, l.lanname)
	FROM function AS p JOIN pg_language AS l ON l.oid = p.prolang
	WHERE NOT (l.lanname = 'c' OR l.lanname = 'sql' AND p.prosqlbody IS NOT NULL)
UNION ALL SELECT format('trigger %s on %s runs %s', g.tgname, g.tgrelid::regclass, g.tgfoid::regprocedure)
	FROM relation AS r JOIN pg_trigger AS g ON g.tgrelid = r.oid
	WHERE NOT EXISTS (SELECT FROM function AS p JOIN pg_language AS l ON l.oid = p.prolang WHERE p.oid = g.tgfoid AND l.lanname = 'c')
UNION ALL SELECT format('index %s evaluates something', i.indexrelid::regclass)
	FROM relation AS r JOIN pg_index AS i ON i.indrelid = r.oid
	WHERE i.indexprs IS NOT NULL OR i.indpred IS NOT NULL OR i.indisexclusion
UNION ALL SELECT format('%s is not owned as the others are, or lies elsewhere', pg_describe_object(m.classid, m.objid, 0))
	FROM member AS m
	LEFT JOIN pg_class AS c ON m.classid = 'pg_class'::regclass AND c.oid = m.objid
	LEFT JOIN pg_proc AS p ON m.classid = 'pg_proc'::regclass AND p.oid = m.objid
	LEFT JOIN pg_type AS t ON m.classid = 'pg_type'::regclass AND t.oid = m.objid,
	(SELECT f.proowner AS owner, e.extnamespace AS schema FROM function AS f, pg_extension AS e WHERE e.extname = 'idem' AND f.proname = '_idem_stale') AS should
	WHERE (coalesce(c.relowner, p.proowner, t.typowner), coalesce(c.relnamespace, p.pronamespace, t.typnamespace)) IS DISTINCT FROM (should.owner, should.schema)};

# Every stored expression, and all that one may speak of with the place that it comes from
my $trees = qq{
WITH $members
SELECT json_agg(t) FROM (
	SELECT 'the body of ' || p.oid::regprocedure AS what, p.prosqlbody::text AS tree FROM function AS p WHERE p.prosqlbody IS NOT NULL
	UNION ALL SELECT 'a default of ' || p.oid::regprocedure, p.proargdefaults::text FROM function AS p WHERE p.proargdefaults IS NOT NULL
	UNION ALL SELECT 'view ' || r.oid::regclass, w.ev_action::text FROM relation AS r JOIN pg_rewrite AS w ON w.ev_class = r.oid
	UNION ALL SELECT 'a default of ' || r.oid::regclass, d.adbin::text FROM relation AS r JOIN pg_attrdef AS d ON d.adrelid = r.oid
	UNION ALL SELECT 'constraint ' || n.conname, n.conbin::text FROM relation AS r JOIN pg_constraint AS n ON n.conrelid = r.oid WHERE n.conbin IS NOT NULL
	UNION ALL SELECT 'index ' || i.indexrelid::regclass, u.tree FROM relation AS r JOIN pg_index AS i ON i.indrelid = r.oid, LATERAL (VALUES (i.indexprs::text), (i.indpred::text)) AS u(tree) WHERE u.tree IS NOT NULL
	UNION ALL SELECT 'trigger ' || g.tgname, g.tgqual::text FROM relation AS r JOIN pg_trigger AS g ON g.tgrelid = r.oid WHERE g.tgqual IS NOT NULL) AS t};
my $known = qq{
WITH $members
SELECT json_object_agg(kind || k.oid, json_build_object('name', name, 'ours', is_member OR schema IN ('pg_catalog', 'information_schema'),
		'catalog', schema = 'pg_catalog', 'arguments', arguments)) FROM (
	SELECT 'function ' AS kind, p.oid, p.oid::regprocedure::text AS name, p.pronamespace::regnamespace::text AS schema, p.proargtypes::oid[]::text[] AS arguments,
		EXISTS (SELECT FROM member AS m WHERE m.classid = 'pg_proc'::regclass AND m.objid = p.oid) AS is_member FROM pg_proc AS p
	UNION ALL SELECT 'operator ', o.oid, o.oid::regoperator::text, o.oprnamespace::regnamespace::text, NULL, false FROM pg_operator AS o
	UNION ALL SELECT 'type ', t.oid, t.oid::regtype::text, t.typnamespace::regnamespace::text, NULL,
		EXISTS (SELECT FROM member AS m WHERE m.classid = 'pg_type'::regclass AND m.objid IN (t.oid, t.typelem)) FROM pg_type AS t
	UNION ALL SELECT 'relation ', c.oid, c.oid::regclass::text, c.relnamespace::regnamespace::text, NULL,
		EXISTS (SELECT FROM member AS m WHERE m.classid = 'pg_class'::regclass AND m.objid = c.oid) FROM pg_class AS c) AS k};

# A tree as PostgreSQL prints it: a node is {NAME :field value ...}, a list is (item ...)
sub parse
{
	my ($text) = @_;
	my @tokens = $text =~ /\G\s*([{}()]|(?:\\.|[^\s{}()\\])+)/g;
	my $at = 0;
	my $parse_value;
	$parse_value = sub {
		my $token = $tokens[ $at++ ];
		if ($token eq '(')
		{
			my @items;
			push @items, $parse_value->() while $tokens[$at] ne ')';
			$at++;
			return \@items;
		}
		return $token if $token ne '{';
		my %node = (tag => $tokens[ $at++ ], field => {});
		my $field;
		while ((my $next = $tokens[$at]) ne '}')
		{
			if ($next =~ /^:/)
			{
				$field = substr $next, 1;
				$at++;
				next;
			}
			push @{ $node{field}{$field} }, $parse_value->();
		}
		$at++;
		return \%node;
	};
	return $parse_value->();
}

my @type_fields = qw(vartype consttype funcresulttype opresulttype paramtype aggtype wintype resulttype casetype coalescetype
  minmaxtype array_typeid row_typeid refrestype typeId);
my %spoken_of = (
	(map { $_ => 'function ' } qw(funcid opfuncid aggfnoid winfnoid negfuncid hashfuncid startInRangeFunc endInRangeFunc)),
	(map { $_ => 'operator ' } qw(opno eqop sortop opnos)),
	(map { $_ => 'type ' } @type_fields),
	relid => 'relation ');
my $regtype = qr/^(?:pg_catalog\.)?reg(?:class|proc|procedure|oper|operator|type|role|namespace|config|dictionary|collation)$/;
# pseudo-types: what is given for them is printed, or cast, by what its own type says
my %any = map { $_ => 1 } qw(2276 2277 2283 2776 3500 3831 5077 5078 5079 5080 4537 4538);
my $resolves = qr/^(?:to_reg\w+|regclass|pg_get_viewdef|pg_get_serial_sequence|pg_get_object_address|ts_stat|ts_rewrite|currtid2?|(?:query|table|cursor|schema|database)_to_xml\w*)\(/;

sub type_of
{
	my ($node) = @_;
	return undef unless ref $node eq 'HASH';
	return type_of($node->{field}{expr}[0]) if $node->{tag} eq 'TARGETENTRY';
	foreach my $field (@type_fields)
	{
		return $node->{field}{$field}[0] if $node->{field}{$field};
	}
	return undef;
}

# Does this function look names up at run time?
sub resolves_names
{
	my ($function) = @_;
	my ($name) = $function->{name} =~ /([^.]*\(.*)$/;
	my @arguments = @{ $function->{arguments} // [] };
	return grep { $_ eq '19' || $_ eq '25' } @arguments[ 0 .. $#arguments - 1 ] if $name =~ /^(?:has_\w+_privilege|pg_has_role)\(/;
	return 1 if $name =~ /^row_security_active\(text/;
	return 0 if $name =~ /^pg_get_viewdef\(oid/ || $name =~ /^ts_rewrite\(tsquery,tsquery/;
	return $name =~ $resolves;
}

sub node_faults
{
	my ($node, $know) = @_;
	my $field = $node->{field};
	my @faults;
	foreach my $name (grep { $spoken_of{$_} } keys %$field)
	{
		foreach my $oid (grep { !ref && /^[1-9]\d*$/ } map { ref eq 'ARRAY' ? @$_ : $_ } @{ $field->{$name} })
		{
			my $object = $know->{"$spoken_of{$name}$oid"};
			push @faults, "$spoken_of{$name}$object->{name}, which is nobody's known" unless $object->{ours};
			push @faults, "$object->{name}, which looks a name up" if $spoken_of{$name} eq 'function ' && $object->{catalog} && resolves_names($object);
		}
	}
	if ($node->{tag} eq 'COERCEVIAIO')
	{
		my @types = map { $know->{"type $_"} } grep { defined } type_of($field->{arg}[0]), $field->{resulttype}[0];
		push @faults, "a cast by the text of type $_->{name}" foreach grep { !$_->{catalog} } @types;
		push @faults, "a cast to $types[-1]{name}, which looks a name up" if $types[-1]{name} =~ $regtype;
	}
	if ($node->{tag} eq 'FUNCEXPR' || $node->{tag} eq 'AGGREF')
	{
		my $function = $know->{ 'function ' . ($field->{funcid} // $field->{aggfnoid})->[0] };
		my @given = map { ref eq 'ARRAY' ? @$_ : $_ } @{ $field->{args} };
		if (grep { $any{$_} } @{ $function->{arguments} })
		{
			my @types = map { $know->{"type $_"} } grep { defined } map { type_of($_) } @given;
			push @faults, "$function->{name} with a value of type $_->{name}" foreach grep { !$_->{catalog} } @types;
		}
	}
	return @faults;
}

sub tree_faults
{
	my ($tree, $know) = @_;
	return map { tree_faults($_, $know) } @$tree if ref $tree eq 'ARRAY';
	return () unless ref $tree eq 'HASH';
	return (node_faults($tree, $know), map { tree_faults($_, $know) } values %{ $tree->{field} });
}

sub catalog_faults
{
	my ($node, $dbname) = @_;
	# every name comes with its schema but pg_catalog's
	my $pinned = 'SET search_path = pg_catalog;';
	my $know = decode_json(value($node, $pinned . $known, $dbname));
	my $trees = decode_json(value($node, $pinned . $trees, $dbname));
	my @faults = split /\n/, value($node, $pinned . $plain_faults, $dbname);
	foreach my $tree (@$trees)
	{
		my %seen;
		push @faults, map { "$tree->{what} has $_" } grep { !$seen{$_}++ } tree_faults(parse($tree->{tree}), $know);
	}
	return @faults;
}

# ---------------------------------------------------------------------------------------------------------
# What is kept, and what would not be
# ---------------------------------------------------------------------------------------------------------

my ($version) = slurp_file("$ENV{IDEM_SRC}/idem.control") =~ /^default_version = '(.*)'$/m;
my $script = slurp_file("$ENV{IDEM_SRC}/sql/idem--$version.sql");
my $node = idem_node('rule', -extension => 0);
value($node, "CREATE DATABASE $_") foreach qw(fresh planted odd);

is(join("\n", script_faults($script)), '', 'the script keeps the rule');
value($node, 'SET client_min_messages = warning; CREATE SCHEMA "We ird.Sch"; CREATE EXTENSION idem SCHEMA "We ird.Sch" CASCADE', 'fresh');
is(join("\n", catalog_faults($node, 'fresh')), '', 'the catalog keeps the rule');

subtest 'what is planted in the text is found' => sub {
	my %planted = (
		q{CREATE FUNCTION @extschema@.idem_x() RETURNS int LANGUAGE plpgsql AS 'BEGIN RETURN 1; END';} => qr/PL\/pgSQL/,
		q{CREATE FUNCTION @extschema@.idem_x() RETURNS int LANGUAGE sql AS $x$ SELECT 1 $x$;} => qr/a body in a string/,
		q{DO LANGUAGE sql 'SELECT 1';} => qr/an anonymous block/,
		q{CREATE OR REPLACE VIEW @extschema@.idem_x AS SELECT 1;} => qr/CREATE OR REPLACE/,
		q{CREATE TABLE IF NOT EXISTS @extschema@.idem_x ();} => qr/IF NOT EXISTS/,
		q{ALTER TABLE @extschema@.idem_record ADD CHECK (scope ~ '\.');} => qr/a backslash/,
		q{SELECT @extschema@.idem_grant('x'::regrole, NULL);} => qr/idem_grant is called with NULL/,
		q{CREATE VIEW @extschema@.idem_x AS SELECT f(@extschema@.idem_list_version((SELECT '{/a}'::text[]), '{}'));} => qr/idem_list_version is called with '\{\}'/);
	foreach my $text (sort keys %planted)
	{
		like(join("\n", script_faults($text)), $planted{$text}, $text);
		like(join("\n", script_faults("$script\n$text\n")), $planted{$text}, 'also at the end of the script');
	}
	is(join("\n", script_faults(q{-- it's \ DO
SELECT @extschema@.idem_x(NULL::text, 'a'::text, b => NULL::int, c, @extschema@.idem_y(), 1); CREATE TABLE @extschema@.idem_z (a text DEFAULT 'x --');})), '', 'and what keeps the rule is not');
};

subtest 'what is planted in the catalog is found' => sub {
	value($node, q{SET client_min_messages = warning; CREATE EXTENSION idem CASCADE;
		CREATE SCHEMA evil; CREATE DOMAIN evil.word AS text; CREATE TYPE evil.mood AS ENUM ('x');
		CREATE FUNCTION evil.f(text) RETURNS text LANGUAGE sql IMMUTABLE AS 'SELECT $1';
		CREATE FUNCTION evil.same(text, text) RETURNS bool LANGUAGE sql IMMUTABLE AS 'SELECT true';
		CREATE OPERATOR evil.= (LEFTARG = text, RIGHTARG = text, FUNCTION = evil.same);
		CREATE VIEW evil.v AS SELECT 1 AS one; CREATE VIEW evil.w AS SELECT 1 AS one;
		CREATE FUNCTION evil.t() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END';
		CREATE ROLE stranger}, 'planted');
	my %before = map { $_ => 1 } catalog_faults($node, 'planted');
	my $count = 0;
	my @planted = (
		q{CREATE FUNCTION idem_x() RETURNS int LANGUAGE plpgsql SECURITY DEFINER AS 'BEGIN RETURN 1; END'; ALTER EXTENSION idem ADD FUNCTION idem_x()}
		  => qr/function public\.idem_x\(\) is of language plpgsql/,
		q{CREATE FUNCTION idem_y() RETURNS int LANGUAGE sql AS 'SELECT 1'; ALTER EXTENSION idem ADD FUNCTION idem_y()}
		  => qr/function public\.idem_y\(\) is of language sql/,
		q{CREATE TRIGGER x AFTER INSERT ON idem_guidance FOR EACH ROW EXECUTE FUNCTION evil.t()} => qr/trigger x on public\.idem_guidance runs evil\.t/,
		q{CREATE INDEX x ON idem_record (lower(subject))} => qr/index public\.x evaluates/,
		q{CREATE INDEX y ON idem_record (subject) WHERE state = 'I'} => qr/index public\.y evaluates/,
		q{ALTER VIEW idem_stat OWNER TO stranger} => qr/view public\.idem_stat is not owned/,
		q{ALTER EXTENSION idem ADD VIEW evil.v} => qr/view evil\.v is not owned/,
		q{ALTER TABLE idem_record ADD CHECK (evil.f(scope) <> '')} => qr/has function evil\.f/,
		q{ALTER TABLE idem_guidance ALTER COLUMN meaning SET DEFAULT evil.f('x')} => qr/a default of public\.idem_guidance has function evil\.f/,
		(map { (view_planted($_->[0], ++$count), $_->[1]) } (
			[ q{SELECT scope::regclass FROM idem_audit}, qr/looks a name up/ ],
			[ q{SELECT scope::regprocedure FROM idem_audit}, qr/a cast to regprocedure/ ],
			[ q{SELECT to_regtype(scope) FROM idem_audit}, qr/to_regtype\(text\), which looks/ ],
			[ q{SELECT has_table_privilege(scope, 'SELECT') FROM idem_audit}, qr/has_table_privilege\(text,text\)/ ],
			[ q{SELECT has_function_privilege(subject::name, 1::oid, 'EXECUTE') FROM idem_audit}, qr/has_function_privilege\(name,oid,text\)/ ],
			[ q{SELECT query_to_xml(scope, true, true, '') FROM idem_audit}, qr/query_to_xml/ ],
			[ q{SELECT 'OK'::idem_ack::text}, qr/by the text of type public\.idem_ack/ ],
			[ q{SELECT format('%s', 'OK'::idem_ack)}, qr/format\(text,"any"\) with a value of type public\.idem_ack/ ],
			[ q{SELECT jsonb_agg(a) FROM idem_audit AS a}, qr/jsonb_agg\(anyelement\) with a value of type public\.idem_audit/ ],
			[ q{SELECT 'x'::evil.mood AS mood}, qr/type evil\.mood/ ],
			[ q{SELECT scope::evil.word FROM idem_audit}, qr/type evil\.word/ ],
			[ q{SELECT evil.f(scope) FROM idem_audit}, qr/function evil\.f/ ],
			[ q{SELECT scope OPERATOR(evil.=) 'x'::text AS x FROM idem_audit}, qr/operator evil\.=\(text,text\)/ ],
			[ q{SELECT one FROM evil.w}, qr/relation evil\.w/ ])),
		q{CREATE FUNCTION idem_w(n text) RETURNS regclass LANGUAGE sql BEGIN ATOMIC SELECT (SELECT n::regclass LIMIT 1); END; ALTER EXTENSION idem ADD FUNCTION idem_w(text)}
		  => qr/the body of public\.idem_w\(text\) has .*looks a name up/);
	while (my ($statement, $fault) = splice @planted, 0, 2)
	{
		value($node, $statement, 'planted');
		my @new = grep { !$before{$_} } catalog_faults($node, 'planted');
		ok(scalar(grep { $_ =~ $fault } @new), $statement) or diag(join "\n", @new);
		$before{$_} = 1 foreach @new;
	}
	my $harmless = view_planted(q{SELECT has_table_privilege('idem_record'::regclass, 'SELECT'), 1::text, now()::date, current_setting('x', true), scope::varchar, to_jsonb(scope), 'x'::regtype::oid FROM idem_audit}
		=~ s/'x'::regtype/'int4'::regtype/r, ++$count);
	value($node, $harmless, 'planted');
	is(join("\n", grep { !$before{$_} } catalog_faults($node, 'planted')), '', 'what is bound when it is made is not');
};

sub view_planted
{
	my ($query, $number) = @_;
	return "CREATE VIEW idem_view_$number AS $query; ALTER EXTENSION idem ADD VIEW idem_view_$number";
}

# ---------------------------------------------------------------------------------------------------------
# T11: settings
# ---------------------------------------------------------------------------------------------------------

my $objects = qq{
SET search_path = pg_catalog;
WITH $members
SELECT 'function', pg_get_functiondef(p.oid) FROM function AS p
UNION ALL SELECT 'relation', concat_ws(' ', r.relname, r.relkind, r.relpersistence, r.reltablespace, r.reloptions::text, r.relrowsecurity, r.relforcerowsecurity) FROM relation AS r
UNION ALL SELECT 'view', pg_get_viewdef(r.oid) FROM relation AS r WHERE r.relkind = 'v'
UNION ALL SELECT 'column', concat_ws(' ', r.relname, a.attnum, a.attname, a.atttypid::regtype, a.attcollation, a.attnotnull, a.attcompression, a.attstorage, pg_get_expr(d.adbin, d.adrelid))
	FROM relation AS r JOIN pg_attribute AS a ON a.attrelid = r.oid LEFT JOIN pg_attrdef AS d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
UNION ALL SELECT 'constraint', concat_ws(' ', r.relname, n.conname, pg_get_constraintdef(n.oid)) FROM relation AS r JOIN pg_constraint AS n ON n.conrelid = r.oid
UNION ALL SELECT 'index', pg_get_indexdef(i.indexrelid) FROM relation AS r JOIN pg_index AS i ON i.indrelid = r.oid
UNION ALL SELECT 'trigger', concat_ws(' ', pg_get_triggerdef(g.oid), g.tgenabled) FROM relation AS r JOIN pg_trigger AS g ON g.tgrelid = r.oid
UNION ALL SELECT 'comment', concat_ws(' ', m.classid, obj_description(m.objid, m.classid::regclass::name)) FROM member AS m
UNION ALL SELECT 'dumped', concat_ws(' ', t.c::regclass, t.w) FROM pg_extension AS e, unnest(e.extconfig, e.extcondition) AS t(c, w) WHERE e.extname = 'idem'
ORDER BY 1, 2};

value($node, q{
	SET client_min_messages = warning;
	CREATE SCHEMA "We ird.Sch"; CREATE EXTENSION pgcrypto SCHEMA "We ird.Sch";
	SET standard_conforming_strings = off; SET escape_string_warning = on; SET backslash_quote = off; SET transform_null_equals = on;
	SET array_nulls = off; SET quote_all_identifiers = on; SET IntervalStyle = sql_standard; SET DateStyle = 'German, DMY';
	SET TimeZone = 'Asia/Kathmandu'; SET bytea_output = escape; SET row_security = off; SET check_function_bodies = off;
	SET default_transaction_isolation = serializable; SET session_replication_role = replica; SET xmloption = document;
	SET extra_float_digits = -15; SET default_statistics_target = 1; SET lc_messages = 'C'; SET search_path = '';
	SET client_min_messages = debug5;
	CREATE EXTENSION idem SCHEMA "We ird.Sch"}, 'odd');
is(value($node, $objects, 'odd'), value($node, $objects, 'fresh'), 'T11: whatever the settings, the objects are the same');
my ($state) = psql_error($node, q{INSERT INTO "We ird.Sch".idem_binding (role, subject_setting) VALUES ('pg_monitor', 'appXsubject')}, 'odd');
is($state, '23514', 'T11: a setting without a dot is refused');
($state) = psql_error($node, q{INSERT INTO "We ird.Sch".idem_binding (role, subject_setting) VALUES ('pg_monitor', 'app.subject')}, 'odd');
is($state, '', 'and one with a dot is not');

$node->stop;
done_testing();
