# ALTER EXTENSION idem UPDATE: a later version made here, with the changes that versions bring (a column that the library
# reads, one with a default, functions and a view replaced, a table and a function more), is installed over this one.
# What is on record stays and answers (P1, P2, P3, P5), sessions of the old library are told what to do (P11), and the
# objects, their texts and their privileges (P10) are those of a fresh installation. It is refused where the members are
# not exactly the former version's (P13, T16).
use strict;
use warnings;

use IPC::Run;
use PostgreSQL::Test::Utils;
use Test::More;
use IdemTest;
use IdemFault;

plan skip_all => 'IDEM_SRC does not say where the sources are' unless $ENV{IDEM_SRC};

my $folder = PostgreSQL::Test::Utils::tempdir();
my $next = "$folder/src";
my ($version) = slurp_file("$ENV{IDEM_SRC}/idem.control") =~ /^default_version = '(.*)'$/m;
my $update = "$version--9.9";

# ---------------------------------------------------------------------------------------------------------
# The later version
# ---------------------------------------------------------------------------------------------------------

sub shell
{
	my ($what, $script) = @_;
	my $out;
	ok(IPC::Run::run([ 'bash', '-ec', $script ], '<', '/dev/null', '>', \$out, '2>&1'), $what) or diag($out);
	return;
}

# A file changed; each change must find its place
sub edit
{
	my ($name, @changes) = @_;
	my $text = slurp_file("$next/$name");
	while (my ($from, $to) = splice @changes, 0, 2)
	{
		$text =~ s/$from/$to->()/e or die "$name: there is no $from";
	}
	unlink "$next/$name";
	append_to_file("$next/$name", $text);
	return;
}

my $install = slurp_file("$ENV{IDEM_SRC}/sql/idem--$version.sql");
my $place = qr/-- What pg_dump carries\./;

# A statement of the installation script, changed
sub replaced
{
	my ($statement, $from, $to) = @_;
	my ($text) = $install =~ $statement or die "there is no $statement";
	(my $changed = $text) =~ s/$from/$to/ or die "there is no $from in $text";
	return ($text, $changed);
}

my ($audit, $more_audit) = replaced(qr/^(CREATE VIEW \@extschema\@\.idem_audit AS.*?;\n)/ms,
	qr/r\.reconcile_note$/m, 'r.reconcile_note, 9 AS sample');
my $added = q{
COMMENT ON COLUMN @extschema@.idem_policy.note IS 'sample: a note';
COMMENT ON COLUMN @extschema@.idem_guidance.author IS 'sample: who wrote it';
COMMENT ON COLUMN @extschema@.idem_audit.sample IS 'sample: nine';
CREATE TABLE @extschema@.idem_sample (n pg_catalog.int4 PRIMARY KEY);
COMMENT ON TABLE @extschema@.idem_sample IS 'sample: numbers';
COMMENT ON COLUMN @extschema@.idem_sample.n IS 'sample: a number';
SELECT pg_catalog.pg_extension_config_dump('@extschema@.idem_sample', 'WHERE n > 0');
CREATE FUNCTION @extschema@.idem_sample_count() RETURNS pg_catalog.int8
	LANGUAGE sql STABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
	AS $$ SELECT count(*) FROM @extschema@.idem_sample $$;
COMMENT ON FUNCTION @extschema@.idem_sample_count() IS 'sample: how many';
};

shell('the sources are copied', "cp -a '$ENV{IDEM_SRC}' $next");
edit('idem.control', qr/'\Q$version\E'/, sub { q{'9.9'} });
edit('src/policy_rows.h',
	qr/\tPOLICY_NATTS\n/, sub { "\tPOLICY_NOTE,\n\tPOLICY_NATTS\n" });
edit('src/policy_rows.c',
	qr/(\t\[POLICY_ENABLED\] = BOOLOID,\n)/, sub { "$1\t[POLICY_NOTE] = TEXTOID,\n" },
	# and one check constraint more
	qr/NULLABLE\(POLICY_POLL_WITH\), (\d+)/, sub { 'NULLABLE(POLICY_POLL_WITH) | NULLABLE(POLICY_NOTE), ' . ($1 + 1) });
edit('src/guidance.c',
	qr/\tGUIDANCE_NATTS\n/, sub { "\tGUIDANCE_AUTHOR,\n\tGUIDANCE_NATTS\n" },
	qr/(\t\[GUIDANCE_INSTRUCTION\] = TEXTOID,\n)/, sub { "$1\t[GUIDANCE_AUTHOR] = TEXTOID,\n" });
# which set opens what is new
edit('src/privilege.c',
	qr/(static const Privilege privileges\[\] = \{\n)/,
	sub { qq{$1\t{"caller", "idem_sample_count", RUN},\n\t{"auditor", "idem_sample", READ},\n} });
append_to_file("$next/sql/idem--9.9.sql", $install);
edit('sql/idem--9.9.sql',
	qr/(CREATE TABLE \@extschema\@\.idem_policy \(.*?)(\tCONSTRAINT )/s,
	sub { "$1\tnote pg_catalog.text,\n\tCONSTRAINT idem_policy_note CHECK (note <> ''),\n$2" },
	qr/(CREATE TABLE \@extschema\@\.idem_guidance \(.*?)(\tCONSTRAINT )/s,
	sub { "$1\tauthor pg_catalog.text NOT NULL DEFAULT 'nobody',\n$2" },
	qr/\Q$audit\E/, sub { $more_audit },
	$place, sub { "$added\n-- What pg_dump carries." });

# The way there: lock the schema, check the members against the former version's list, create what is new. The list is
# what this version says of itself; a release writes it down in its script.
my ($lock) = $install =~ /^(-- The schema is a name in this script\..*?^\$\$;\n)/ms or die 'there is no lock';
sub update_script
{
	my ($list) = @_;
	my $members = join ",\n", map { "\t'" . s/'/''/gr . "'" } split /\n/, $list;
	append_to_file("$next/sql/idem--$update.sql", q{
\echo Use "ALTER EXTENSION idem UPDATE" to load this file. \quit
SET LOCAL search_path = pg_catalog, pg_temp;
} . $lock . "SELECT \@extschema\@._idem_check_members(ARRAY[\n$members\n]::text[], NULL::\@extschema\@.idem_ack);\n" . q{
ALTER TABLE @extschema@.idem_policy ADD COLUMN note pg_catalog.text, ADD CONSTRAINT idem_policy_note CHECK (note <> '');
ALTER TABLE @extschema@.idem_guidance ADD COLUMN author pg_catalog.text NOT NULL DEFAULT 'nobody';
} . ($more_audit =~ s/CREATE/CREATE OR REPLACE/r)
	  . $added . q{SELECT @extschema@._idem_close('{idem_sample,idem_sample_count}'::text[], NULL::@extschema@.idem_ack);});
	return;
}

# A PostgreSQL of our own, for it gets the later version
shell('it gets a PostgreSQL of its own', "$next/test/lib/prefix $folder/pg >$folder/config");
my $config = slurp_file("$folder/config") =~ s/\n//r;
shell('and is built', "make -s -C $next PG_CONFIG=$config with_llvm=no COPT=-Werror");

# ---------------------------------------------------------------------------------------------------------
# This version, with something in every state
# ---------------------------------------------------------------------------------------------------------

my $node = PostgreSQL::Test::Cluster->new('update', install_path => $config =~ s{/bin/pg_config$}{}r);
$node->init(extra => [ '--encoding=UTF8', '--locale=C.UTF-8' ]);
$node->append_conf('postgresql.conf', "max_prepared_transactions = 5\nautovacuum = off\n");
$node->start;
value($node, q{
	CREATE ROLE landlord LOGIN; CREATE ROLE agent LOGIN; CREATE ROLE bystander LOGIN;
	CREATE DATABASE owned OWNER landlord; CREATE DATABASE owned_afresh OWNER landlord; CREATE DATABASE afresh;
	CREATE EXTENSION pgcrypto; CREATE EXTENSION idem});

# As the owner of a database who is no superuser, in a schema with an odd name, with privileges open by default
sub install_owned
{
	my ($dbname) = @_;
	value($node, 'ALTER DEFAULT PRIVILEGES GRANT SELECT ON TABLES TO bystander; ALTER DEFAULT PRIVILEGES GRANT EXECUTE ON FUNCTIONS TO bystander', $dbname);
	as('landlord', $dbname, 'SET client_min_messages = warning; CREATE SCHEMA "We ird.Sch"; CREATE EXTENSION idem SCHEMA "We ird.Sch" CASCADE');
	as('landlord', $dbname, 'SET search_path = "We ird.Sch"; SELECT idem_grant(\'agent\', \'caller\'); GRANT USAGE ON SCHEMA "We ird.Sch" TO agent, bystander');
	return;
}

sub as
{
	my ($user, $dbname, $sql) = @_;
	return $node->safe_psql($dbname, $sql, extra_params => [ '-U', $user ]);
}

install_owned('owned');
my $list = value($node, 'SELECT _idem_member_list()');
is(value($node, 'SELECT "We ird.Sch"._idem_member_list()', 'owned'), $list, 'the list of members is the same in any schema');
cmp_ok(scalar(() = $list =~ /^(?:function|table|view|type) \S+$/mg), '==', scalar(split /\n/, $list), 'a line for each');
update_script($list);
furnish($node);
my %op = states($node);
my %expected = (
	answers_of_states(),
	reconciled => 'DONE|1|"found"',
	prepared => 'IN_FLIGHT|1|',
	guarded => 'DONE|1|"guarded"',
	repeat => 'REPEAT|1|"guarded"');
value($node, q{INSERT INTO idem_policy (scope, material, repeat_guard) VALUES ('guard', '{/amount}', '1 hour');
	INSERT INTO idem_guidance (outcome, meaning) VALUES ('EXPIRED', 'too late')});
$op{$_} = operation($node, 'short_opaque') foreach qw(reconciled);
$op{$_} = operation($node, 'guard') foreach qw(guarded repeat);
$op{prepared} = operation($node, 'opaque');
grant($node, $op{$_}) foreach qw(reconciled guarded);
lease_over($node, $op{reconciled});
is(value($node, "SELECT idem_reconcile('$op{reconciled}{key}', 'DONE', 'looked', '\"found\"')"), 'OK', 'one is reconciled');
is(value($node, commit_sql($op{guarded}, '"guarded"')), 'OK', 'one is guarded');
my $preparing = session($node);
$preparing->query_ok('BEGIN');
is(grant($preparing, $op{prepared}), 'ACQUIRED|1', 'one is prepared');
$preparing->query_ok("PREPARE TRANSACTION 'one'");
is(value($node, "SELECT outcome FROM idem_acquire('$op{done}{token}', 'alice', 'opaque', '{\"amount\": 101}')"), 'PARAM_MISMATCH', 'an alert');
value($node, 'SELECT idem_rotate_secret()');
value($node, "UPDATE idem_policy SET immaterial = '{/memo}' WHERE scope = 'opaque'");

# ---------------------------------------------------------------------------------------------------------
# What there is, and what the objects are
# ---------------------------------------------------------------------------------------------------------

# All rows, without the columns that are added
sub content
{
	my @tables = qw(idem_policy idem_policy_version idem_record idem_alert idem_guidance idem_secret);
	return value($node, join(' UNION ALL ', map { "SELECT '$_', to_jsonb(t) - 'note' - 'author' FROM $_ AS t" } @tables) . ' ORDER BY 1, 2');
}

# Everything that belongs to the extension or hangs on it, one line each
my $objects = q{
SET search_path = pg_catalog;
WITH e AS (SELECT * FROM pg_extension WHERE extname = 'idem'),
member AS (SELECT d.classid, d.objid, (pg_identify_object(d.classid, d.objid, 0)).* FROM pg_depend AS d, e
	WHERE d.refclassid = 'pg_extension'::regclass AND d.refobjid = e.oid AND d.deptype = 'e'),
relation AS (SELECT m.identity AS own, c.* FROM member AS m JOIN pg_class AS c ON m.classid = 'pg_class'::regclass AND c.oid = m.objid
	UNION ALL SELECT m.identity, c.* FROM member AS m JOIN pg_type AS t ON m.classid = 'pg_type'::regclass AND t.oid = m.objid
		JOIN pg_class AS c ON c.oid = t.typrelid WHERE c.relkind = 'c'),
acl AS (SELECT m.identity, m.classid, m.objid, 'now' AS kind, coalesce(p.proacl, c.relacl, t.typacl) AS acl FROM member AS m
		LEFT JOIN pg_proc AS p ON m.classid = 'pg_proc'::regclass AND p.oid = m.objid
		LEFT JOIN pg_class AS c ON m.classid = 'pg_class'::regclass AND c.oid = m.objid
		LEFT JOIN pg_type AS t ON m.classid = 'pg_type'::regclass AND t.oid = m.objid
	UNION ALL SELECT m.identity, m.classid, m.objid, 'initially', i.initprivs FROM member AS m
		JOIN pg_init_privs AS i ON i.classoid = m.classid AND i.objoid = m.objid AND i.objsubid = 0)
SELECT 'object', type, identity, coalesce(obj_description(objid, classid::regclass::name), 'no comment') FROM member
UNION ALL SELECT 'function', identity, pg_get_functiondef(objid), p.proowner::regrole::text FROM member JOIN pg_proc AS p ON classid = 'pg_proc'::regclass AND p.oid = objid
UNION ALL SELECT 'relation', own, concat_ws(' ', relkind, relpersistence, (SELECT amname FROM pg_am AS a WHERE a.oid = relam), reloptions::text, relrowsecurity, relreplident), relowner::regrole::text FROM relation
UNION ALL SELECT 'column', own, concat_ws(' ', a.attnum, a.attname, format_type(a.atttypid, a.atttypmod), nullif(a.attcollation, 0)::regcollation::text,
		CASE WHEN a.attnotnull THEN 'not null' END, a.attstorage, a.attacl::text, a.attisdropped, pg_get_expr(d.adbin, d.adrelid)), coalesce(col_description(a.attrelid, a.attnum), 'no comment')
	FROM relation AS r JOIN pg_attribute AS a ON a.attrelid = r.oid AND a.attnum > 0 LEFT JOIN pg_attrdef AS d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
UNION ALL SELECT 'constraint', own, concat_ws(' ', conname, pg_get_constraintdef(n.oid), n.convalidated), coalesce(obj_description(n.oid, 'pg_constraint'), '') FROM relation AS r JOIN pg_constraint AS n ON n.conrelid = r.oid
UNION ALL SELECT 'index', own, pg_get_indexdef(indexrelid), concat(indisvalid, obj_description(indexrelid, 'pg_class')) FROM relation AS r JOIN pg_index AS i ON i.indrelid = r.oid
UNION ALL SELECT 'trigger', own, pg_get_triggerdef(g.oid), concat(g.tgenabled, obj_description(g.oid, 'pg_trigger')) FROM relation AS r JOIN pg_trigger AS g ON g.tgrelid = r.oid
UNION ALL SELECT 'view', own, pg_get_viewdef(oid), '' FROM relation WHERE relkind = 'v'
UNION ALL SELECT 'label', m.identity, n.enumlabel, row_number() OVER (PARTITION BY n.enumtypid ORDER BY n.enumsortorder)::text FROM member AS m JOIN pg_enum AS n ON m.classid = 'pg_type'::regclass AND n.enumtypid = m.objid
UNION ALL SELECT 'privilege', a.identity, concat_ws(' ', a.kind, x.grantee::regrole, x.privilege_type, CASE WHEN x.is_grantable THEN 'to grant' END), x.grantor::regrole::text FROM acl AS a, aclexplode(a.acl) AS x
UNION ALL SELECT 'closed', a.identity, a.kind, '' FROM acl AS a WHERE a.acl IS NOT NULL
UNION ALL SELECT 'dumped', c::regclass::text, w, '' FROM e, unnest(e.extconfig, e.extcondition) AS u(c, w)
UNION ALL SELECT 'extension', extversion, extnamespace::regnamespace::text, extowner::regrole::text FROM e
UNION ALL SELECT 'dependency', pg_describe_object(d.classid, d.objid, d.objsubid), pg_describe_object(d.refclassid, d.refobjid, d.refobjsubid), d.deptype::text FROM pg_depend AS d
	WHERE EXISTS (SELECT FROM member AS m WHERE (m.classid, m.objid) IN ((d.classid, d.objid), (d.refclassid, d.refobjid))) AND d.deptype <> 'i' AND d.classid <> 'pg_constraint'::regclass
ORDER BY 1, 2, 3, 4};

# The lines that only one of two lists has
sub differences
{
	my %count;
	$count{$_}++ foreach split /\n/, $_[0];
	$count{$_}-- foreach split /\n/, $_[1];
	return join "\n", map { ($count{$_} > 0 ? 'only the first: ' : 'only the second: ') . $_ } grep { $count{$_} } sort keys %count;
}

my $content = content();
my $before = value($node, $objects);
cmp_ok(scalar(() = $before =~ /^object\|/mg), '>', 60, 'the objects are listed');

# ---------------------------------------------------------------------------------------------------------
# The files of the later version come, and then the update
# ---------------------------------------------------------------------------------------------------------

my $old = session($node);
my $holding = session($node);
$op{old} = operation($node, 'opaque');
is(answer($old, $op{old}), 'ACQUIRED|1|', 'a session of this version');
$holding->query_ok('BEGIN');
my $open = operation($holding, 'opaque');
is(grant($holding, $open), 'ACQUIRED|1', 'and another that holds a claim in an open transaction');

shell('the files of the later version are installed', "make -s -C $next PG_CONFIG=$config with_llvm=no install");
is(answer($old, $op{old}), 'ACQUIRED|1|', 'the session goes on');
my $new = session($node);
$new->query(acquire_sql($op{old}));
is($new->sqlstate, '55000', 'a new one is refused: its library wants the update');
like($new->error, qr/ALTER EXTENSION idem UPDATE/, 'and says so');
is($new->query('SELECT count(*) FROM idem_audit'), value($node, 'SELECT count(*) FROM idem_record'), 'what needs no library works');

# a hand that shakes: rolled back, all is as before
$new->query_ok('BEGIN; ALTER EXTENSION idem UPDATE');
is($new->query_ok("SELECT extversion FROM pg_extension WHERE extname = 'idem'"), '9.9', 'updated');
$new->query_ok('ROLLBACK');
is(differences($before, value($node, $objects)), '', 'and rolled back: nothing has changed');
is(content(), $content, 'nor in the tables');
is(answer($old, $op{old}), 'ACQUIRED|1|', 'and the old session goes on');

# ---------------------------------------------------------------------------------------------------------
# An update starts from exactly what the former version made (T16)
# ---------------------------------------------------------------------------------------------------------

# What the installer, who is no superuser, does to it; and a superuser's hand, or a superuser's own objects in his
my $i = '"We ird.Sch"';
my $grab = "ALTER EXTENSION idem ADD";
my @attacks = (
	landlord => 'a function of the name that the update brings',
	"CREATE FUNCTION $i.idem_sample_count() RETURNS int8 LANGUAGE sql AS 'SELECT 1::int8'; $grab FUNCTION $i.idem_sample_count()", qr/idem_sample_count\(\)/,
	landlord => 'an overload',
	"CREATE FUNCTION $i.idem_purge(int4, int4 DEFAULT 0) RETURNS int8 LANGUAGE sql AS 'SELECT 1::int8'; $grab FUNCTION $i.idem_purge(int4, int4)", qr/idem_purge\(int4,int4\)/,
	landlord => 'a table', "CREATE TABLE $i.idem_sample (n int4); $grab TABLE $i.idem_sample", qr/table idem_sample/,
	landlord => 'a view', "CREATE VIEW $i.idem_more AS SELECT 1 AS n; $grab VIEW $i.idem_more", qr/view idem_more/,
	landlord => 'a type', "CREATE TYPE $i.idem_kind AS ENUM ('a'); $grab TYPE $i.idem_kind", qr/type idem_kind/,
	landlord => 'an operator', "CREATE OPERATOR $i.=== (LEFTARG = int4, RIGHTARG = int4, FUNCTION = int4eq); $grab OPERATOR $i.=== (int4, int4)", qr/operator .*===/,
	landlord => 'a function in another schema', "CREATE SCHEMA other; CREATE FUNCTION other.idem_purge(int4) RETURNS int8 LANGUAGE sql AS 'SELECT 1::int8'; $grab FUNCTION other.idem_purge(int4)", qr/idem_purge\(int4\)/,
	'' => 'a function that was moved', "CREATE SCHEMA other; ALTER FUNCTION $i.idem_health() SET SCHEMA other", qr/idem_health\(\)/,
	'' => 'a function that was renamed', "ALTER FUNCTION $i.idem_health() RENAME TO idem_wealth", qr/idem_wealth\(\)|idem_health\(\)/,
	'' => 'a function with another owner', "ALTER FUNCTION $i.idem_health() OWNER TO landlord", qr/idem_health\(\)/,
	'' => 'a table with another owner', "ALTER TABLE $i.idem_guidance OWNER TO landlord", qr/idem_guidance/,
	'' => 'a view with another owner', "ALTER VIEW $i.idem_audit OWNER TO landlord", qr/idem_audit/,
	'' => 'a view that was taken out', "ALTER EXTENSION idem DROP VIEW $i.idem_audit", qr/view idem_audit/,
	'' => 'a superuser\'s own table', "CREATE TABLE $i.idem_mine (n int4); $grab TABLE $i.idem_mine", qr/table idem_mine/);
my $owned_before = value($node, $objects, 'owned');
while (my ($who, $what, $sql, $named) = splice @attacks, 0, 4)
{
	my $hand = session($node, dbname => 'owned');
	$hand->query_ok('BEGIN');
	$hand->query_ok("SET LOCAL client_min_messages = warning; " . ($who eq '' ? '' : "SET LOCAL ROLE $who; ") . "$sql; SET LOCAL ROLE landlord");
	$hand->query('ALTER EXTENSION idem UPDATE');
	is($hand->sqlstate, '55000', "$what: the update is refused (T16)");
	like($hand->error, $named, "$what: which is named");
	$hand->query('ROLLBACK');
	$hand->quit;
}
is(differences(value($node, $objects, 'owned'), $owned_before), '', 'nothing has changed');

# The schema keeps its name while a script runs
my $updating = session($node, dbname => 'owned');
my $renaming = session($node, dbname => 'owned');
foreach my $script ('ALTER EXTENSION idem UPDATE', qq{DROP EXTENSION idem; CREATE EXTENSION idem SCHEMA $i})
{
	$updating->query_ok("SET client_min_messages = warning; BEGIN; $script");
	$renaming->send(qq{ALTER SCHEMA $i RENAME TO swapped});
	wait_blocked($node, $renaming);
	$updating->query_ok('ROLLBACK');
	$renaming->wait;
	is(value($node, q{SELECT count(*) FROM pg_namespace WHERE nspname = 'swapped'}, 'owned'), '1', "$script: renamed when it is over, not before");
	value($node, qq{ALTER SCHEMA swapped RENAME TO $i}, 'owned');
}
# renamed, not yet committed: the update waits, and goes on under the new name, or not at all
$renaming->query_ok(qq{BEGIN; ALTER SCHEMA $i RENAME TO swapped});
$updating->query_ok('BEGIN');
$updating->send('ALTER EXTENSION idem UPDATE');
wait_blocked($node, $updating);
$renaming->query_ok('COMMIT');
$updating->wait;
like($updating->sqlstate, qr/^(00000|55000)$/, 'renamed before: the update waits for that');
is($updating->query(q{SELECT p.oid::regprocedure FROM pg_proc AS p JOIN pg_depend AS d ON d.classid = 'pg_proc'::regclass AND d.objid = p.oid AND d.deptype = 'e'
	JOIN pg_extension AS e ON e.oid = d.refobjid AND e.extname = 'idem' WHERE p.pronamespace <> e.extnamespace}), '', 'and all of it lies in one schema');
$updating->query_ok('ROLLBACK');
value($node, qq{ALTER SCHEMA swapped RENAME TO $i}, 'owned');
# renamed after the script was given the name: it finds another, and stops
$renaming->query_ok(qq{SET allow_system_table_mods = on; BEGIN; UPDATE pg_namespace SET nspname = 'swapped' WHERE nspname = 'We ird.Sch'});
$updating->send('ALTER EXTENSION idem UPDATE');
wait_blocked($node, $updating);
$renaming->query_ok('COMMIT');
$updating->wait;
is($updating->sqlstate, '55000', 'renamed meanwhile: the update is refused');
like($updating->error, qr/was renamed/, 'and says so');
value($node, qq{ALTER SCHEMA swapped RENAME TO $i}, 'owned');
is(differences(value($node, $objects, 'owned'), $owned_before), '', 'and nothing has changed');
$_->quit foreach $updating, $renaming;

value($node, 'ALTER EXTENSION idem UPDATE');
is(content(), $content, 'updated: policies, their history, records, alerts, texts and secrets are the same (P2)');
is(answer($new, $op{old}), 'ACQUIRED|1|', 'the new session works, without connecting again');
$old->query(acquire_sql($op{old}));
is($old->sqlstate, '55000', 'the old one is refused: its library knows the former columns (P11)');
like($old->error, qr/connect again/i, 'and says what to do');
is($old->query('SELECT 1'), '1', 'it lives');
$old->quit;
$holding->query('COMMIT');
is($holding->sqlstate, '55000', 'so is the transaction that was open meanwhile, at its end');
$holding->quit;
is(answer($node, $open), 'ACQUIRED|1|', 'and nothing of its claim is left (P9)');

foreach my $name (sort keys %expected)
{
	is(answer($node, $op{$name}), $expected{$name}, "$name: $expected{$name} (P3)");
}
value($node, "COMMIT PREPARED 'one'");
is(answer($node, $op{prepared}), $expected{prepared}, 'prepared before, committed after: in flight');
is(value($node, 'SELECT count(*), min(author) FROM idem_guidance'), '1|nobody', 'the default is filled in');
value($node, "UPDATE idem_policy SET note = 'n', repeat_guard = NULL WHERE scope = 'guard'");
foreach my $name (sort grep { $_ ne 'repeat' && exists $expected{$_} } keys %op)
{
	is(value($node, commit_sql($op{$name}, '"late"')), 'OK', "$name: its holder finishes") if $expected{$name} =~ /^(IN_FLIGHT|RECONCILE)/;
	my $first = settle($node, $op{$name});
	is(settle($node, $op{$name}), $first, "$name: settled for good (P2, P3)");
	cmp_ok(effects($op{$name}), '<=', 1, "$name: one effect at most (P1)");
}
sound($node, 'in the end');

# ---------------------------------------------------------------------------------------------------------
# The objects are those of a fresh installation
# ---------------------------------------------------------------------------------------------------------

value($node, 'SET client_min_messages = warning; CREATE EXTENSION idem CASCADE; CREATE EXTENSION amcheck; CREATE TABLE booking (key uuid)', 'afresh');
my $fresh = value($node, $objects, 'afresh');
is(differences(value($node, $objects), $fresh), '', 'updated by a superuser: every object is as in a fresh installation');
isnt(differences(value($node, "SET client_min_messages = warning; BEGIN; COMMENT ON COLUMN idem_policy.note IS NULL;$objects"), $fresh), '', 'a comment that is missing would be seen');
isnt(differences(value($node, "SET client_min_messages = warning; BEGIN; GRANT EXECUTE ON FUNCTION idem_sample_count() TO agent;$objects"), $fresh), '', 'so would a privilege');

as('landlord', 'owned', 'ALTER EXTENSION idem UPDATE');
install_owned('owned_afresh');
my $schema = 'SET search_path = "We ird.Sch"';
foreach my $who (qw(agent bystander))
{
	is(as($who, 'owned', "SELECT has_function_privilege('\"We ird.Sch\".idem_sample_count()', 'EXECUTE'), has_table_privilege('\"We ird.Sch\".idem_sample', 'SELECT')"),
		'f|f', "what the update adds is closed to $who (P10)");
}
is(as('agent', 'owned', qq{$schema; SELECT outcome FROM idem_acquire_direct('alice', 'charge', '{"amount": 1}')}), 'ACQUIRED', 'what was granted before is not taken back');
is(as('landlord', 'owned', qq{$schema; INSERT INTO idem_sample VALUES (1); SELECT idem_sample_count(); SELECT idem_grant('agent', 'caller')}),
	"1\n", 'the owner of the database uses what is new, and grants it');
is(differences(value($node, $objects, 'owned'), value($node, $objects, 'owned_afresh')), '', 'updated by the owner of a database: likewise');
$node->stop;

done_testing();
