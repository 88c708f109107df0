# pg_upgrade from the oldest PostgreSQL on this machine to each newer one in turn, and from the oldest to the newest
# at once: records, policies and secrets come through, and nothing runs twice (P1, P2, P3, P8; G06, G07).
#
# Runs where IDEM_TEST_UPGRADE=1, with every /usr/lib/postgresql/VERSION that has its server headers.
# test/lib/upgrade_room makes a chroot that has 15, 17 and 18.
use strict;
use warnings;

use IPC::Run;
use PostgreSQL::Test::Utils;
use Test::More;
use IdemTest;
use IdemFault;

my @versions = sort { $a <=> $b } map { m{/(\d+)/bin/} && $1 >= 15 ? $1 : () } glob '/usr/lib/postgresql/*/bin/pg_config';
@versions = grep { -e `/usr/lib/postgresql/$_/bin/pg_config --includedir-server` =~ s/\n//r . '/postgres.h' } @versions;

plan skip_all => 'set IDEM_TEST_UPGRADE=1 to upgrade through every PostgreSQL on this machine' unless $ENV{IDEM_TEST_UPGRADE};
plan skip_all => "there is no second PostgreSQL with server headers on this machine (found: @versions)" if @versions < 2;
plan skip_all => 'IDEM_SRC does not say where the sources are' unless $ENV{IDEM_SRC};

my $folder = PostgreSQL::Test::Utils::tempdir();
my %prefix;

# A private copy of a PostgreSQL with the extension built for it
foreach my $version (@versions)
{
	my $dir = "$folder/$version";
	my $log = "$folder/$version.log";
	my $script = qq{
		set -e
		mkdir $dir $dir/src
		tar -C '$ENV{IDEM_SRC}' --exclude='*.o' --exclude='*.so' -cf - . | tar -C $dir/src -xf -
		config=\$(PG_CONFIG=/usr/lib/postgresql/$version/bin/pg_config $dir/src/test/lib/prefix $dir/pg)
		make -s -C $dir/src PG_CONFIG="\$config" with_llvm=no COPT=-Werror
		make -s -C $dir/src PG_CONFIG="\$config" with_llvm=no install
	};
	ok(IPC::Run::run([ 'bash', '-c', $script ], '<', '/dev/null', '>', $log, '2>', $log), "idem builds without a warning for $version")
	  or diag(slurp_file($log));
	$prefix{$version} = "$dir/pg/usr/lib/postgresql/$version";
}

sub cluster
{
	my ($name, $version, $preload) = @_;
	my $node = PostgreSQL::Test::Cluster->new($name, install_path => $prefix{$version});
	my @extra = ('--encoding=UTF8', '--locale=C.UTF-8', $version >= 18 ? '--no-data-checksums' : ());
	$node->init(extra => \@extra);
	$node->append_conf('postgresql.conf', "autovacuum = off\nmax_prepared_transactions = 5\n");
	$node->append_conf('postgresql.conf', "shared_preload_libraries = 'idem'\nidem.databases = 'postgres'\n") if $preload;
	return $node;
}

sub upgrade
{
	my ($old, $old_version, $new, $new_version) = @_;
	my $dir = "$folder/" . $new->name;
	mkdir $dir;
	my ($out, $done) = ('');
	$done = IPC::Run::run([
			"$prefix{$new_version}/bin/pg_upgrade", '--no-sync', '--retain',
			'-b', "$prefix{$old_version}/bin", '-B', "$prefix{$new_version}/bin",
			'-d', $old->data_dir, '-D', $new->data_dir, '-p', $old->port, '-P', $new->port, '-s', $new->host ],
		'<', '/dev/null', '>', \$out, '2>&1', init => sub { chdir $dir or die });
	ok($done, "pg_upgrade from $old_version to $new_version") or diag($out);
	# its servers log beside the data; where all went well it removes that, so --retain keeps it
	my @logs = glob $new->data_dir . '/pg_upgrade_output.d/*/log/pg_upgrade_server.log';
	is(scalar(@logs), 1, 'its log is there');
	ok(slurp_file($logs[0]) !~ /background worker "idem/, 'and no worker of ours was at work meanwhile');
	return $done;
}

my %expected = answers_of_states();

my $content = q{
	SELECT * FROM idem_policy ORDER BY scope;
	SELECT * FROM idem_policy_version ORDER BY scope, version;
	SELECT * FROM idem_record ORDER BY key;
	SELECT * FROM idem_alert WHERE kind <> 'stuck' ORDER BY key, kind; -- which a worker may find meanwhile
	SELECT * FROM idem_secrets ORDER BY id;
	SELECT encode(sha256(idem_export_secret()), 'hex')};

# Along the versions given, with new operations in every state at each
sub chain
{
	my ($name, $preload, @along) = @_;
	my $from = shift @along;
	my $node = cluster("${name}_$from", $from, $preload);
	$node->start;
	value($node, 'SET client_min_messages = warning; CREATE EXTENSION idem CASCADE');
	furnish($node);
	my @generations = ({ states($node) });
	foreach my $to (@along)
	{
		my $before = value($node, $content);
		$node->stop;
		my $next = cluster("${name}_$to", $to, $preload);
		upgrade($node, $from, $next, $to) or return;
		$next->start;
		is(value($next, $content), $before, "$to: policies, records, alerts and secrets are the same");
		sound($next, "$to");
		foreach my $op (@generations)
		{
			is(answer($next, $op->{$_}), $expected{$_}, "$to, $_: $expected{$_}") foreach sort keys %$op;
		}
		is(value($next, q{
				SELECT count(*) FILTER (WHERE (a).outcome = 'ACQUIRED'), count(DISTINCT (a).key)
					FROM (SELECT idem_acquire(idem_sign('carol', 'opaque', '{}'), 'carol', 'opaque', '{}') AS a FROM generate_series(1, 1000) OFFSET 0) AS calls}),
			'1000|1000', "$to: a thousand acquires, no duplicate key (G06)");
		push @generations, { states($next) };
		crash_and_start($next);
		is(answer($next, $generations[-1]{flight_opaque}), 'IN_FLIGHT|1|', "$to: crashed, and in flight");
		unlike(log_since($next, 0), qr/PANIC|TRAP|ERROR:  XX|FATAL:  (?!the database system is starting up)/, "$to: no fault in the log");
		($node, $from) = ($next, $to);
	}
	# the holders finish, everybody retries
	foreach my $op (@generations)
	{
		foreach my $state (sort keys %$op)
		{
			is(value($node, commit_sql($op->{$state}, '"late"')), 'OK', "$state: its holder finishes") if $expected{$state} =~ /^(IN_FLIGHT|RECONCILE)/;
			my $first = settle($node, $op->{$state});
			is(settle($node, $op->{$state}), $first, "$state: settled for good (P2, P3)");
			cmp_ok(effects($op->{$state}), '<=', 1, "$state: one effect at most (P1)");
		}
	}
	sound($node, 'in the end');
	$node->stop;
	return;
}

subtest "@versions (G07)" => sub { chain('plain', 0, @versions) };
subtest "$versions[0] $versions[-1], preloaded (G07)" => sub { chain('preloaded', 1, @versions[ 0, -1 ]) };

done_testing();
