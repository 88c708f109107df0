# What monitoring/ holds, with the real exporter and a real Prometheus on a loopback port, while calls are made; and
# the report, which escapes whatever callers wrote (P10).
#
# The two programs are taken from the machine or, where they are not installed, out of Debian's packages, which are
# unpacked into the test's own folder: nothing is installed, and no service starts.
use strict;
use warnings;

use HTTP::Tiny;
use IO::Socket::INET;
use IPC::Run;
use JSON::PP;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(time);
use IdemTest;

my $source = $ENV{IDEM_SRC} // '.';
my $room = $ENV{TESTDATADIR} // PostgreSQL::Test::Utils::tempdir();

sub slurp { open my $file, '<', $_[0] or die "$_[0]: $!"; local $/ = undef; return scalar <$file> }
sub spit { my ($path, $text) = @_; open my $file, '>', $path or die "$path: $!"; print $file $text; close $file; return $path }
sub run_quietly { my ($out, $err); my $ok = IPC::Run::run([@_], '<', '/dev/null', '>', \$out, '2>', \$err); return ($ok, $out . $err) }

my @programs = ('prometheus', 'promtool', 'prometheus-postgres-exporter');
my %program;

sub find_programs
{
	foreach my $name (@programs)
	{
		($program{$name}) = grep { -x $_ } map { "$_/$name" } split(/:/, $ENV{PATH}), "$room/debian/usr/bin";
	}
	return !grep { !defined $program{$_} } @programs;
}

# The reason why they cannot be had, or nothing
sub fetch_programs
{
	return if find_programs();
	return 'neither installed nor to be unpacked: no apt-get here' unless grep { -x "$_/apt-get" } split /:/, $ENV{PATH};
	mkdir "$room/packages";
	foreach my $package ('prometheus', 'prometheus-postgres-exporter')
	{
		my ($ok, $said) = run_quietly('sh', '-c', "cd '$room/packages' && exec apt-get -q download $package");
		return "package $package is not to be had: $said" unless $ok;
	}
	foreach my $file (glob "$room/packages/*.deb")
	{
		my ($ok, $said) = run_quietly('dpkg-deb', '-x', $file, "$room/debian");
		return "cannot unpack $file: $said" unless $ok;
	}
	return find_programs() ? undef : 'the packages do not bring the programs';
}

sub free_port
{
	my $socket = IO::Socket::INET->new(LocalAddr => '127.0.0.1', Listen => 1, Proto => 'tcp') or die $!;
	return $socket->sockport;
}

my $http = HTTP::Tiny->new(timeout => 10);

sub get
{
	my ($url) = @_;
	my $answer = $http->get($url);
	return $answer->{success} ? $answer->{content} : '';
}

sub until_true
{
	my ($what, $condition) = @_;
	my $end = time + $PostgreSQL::Test::Utils::timeout_default;
	while (time < $end)
	{
		my $value = $condition->();
		return $value if $value;
		Time::HiRes::usleep(200_000);
	}
	diag("never happened: $what");
	return;
}

my $node = idem_node('monitored',
	-streaming => 1,
	shared_preload_libraries => 'idem',
	'idem.databases' => 'postgres',
	'idem.naptime' => '1');
value($node, q{
	CREATE ROLE prometheus LOGIN;
	SELECT idem_grant('prometheus', 'auditor');
	INSERT INTO idem_policy (scope, downstream_max, gateway_timeout, retry_backoff, in_flight_ttl) VALUES ('stuck', '1 ms', '1 ms', '1 ms', '10 ms');
	CREATE FUNCTION ring(jsonb) RETURNS jsonb LANGUAGE sql AS 'SELECT $1';
	CREATE PROCEDURE load(rounds int) LANGUAGE plpgsql AS $$
	DECLARE k uuid; o uuid;
	BEGIN
		FOR i IN 1 .. rounds LOOP
			PERFORM idem_execute('alice', 'pay', to_jsonb(i / 4), 'ring(jsonb)');
			IF i % 10 = 0 THEN
				SELECT key, owner INTO k, o FROM idem_acquire_direct('alice', 'slow', to_jsonb(random()), holder => 'worker-' || i % 3);
				COMMIT;
				PERFORM idem_commit(k, CASE WHEN i % 20 = 0 THEN gen_random_uuid() ELSE o END, '1');
				PERFORM idem_acquire('forged.token', 'alice', 'pay', '1');
			END IF;
			COMMIT;
		END LOOP;
	END $$});

my $dashboard = decode_json(slurp("$source/monitoring/grafana.json"));
my %used;
my @expressions = map { $_->{expr} } map { @{ $_->{targets} } } @{ $dashboard->{panels} };
my $rules = slurp("$source/monitoring/alerts.yml");
$used{$_} = 1 foreach map { /\b(idem_\w+)\b(?!\()/g } @expressions, $rules =~ /^ +expr: (\S.*)$/mg, $rules =~ /^ {10}\s+(.*)$/mg;
delete $used{$_} foreach grep { /^idem_(stuck|health|audit|fast|maintain|alerts|acquire|grant)$/ } keys %used;

subtest 'dashboard' => sub {
	cmp_ok(scalar(@expressions), '>', 10, 'has panels');
	my (%id, @clash);
	foreach my $p (@{ $dashboard->{panels} })
	{
		push @clash, $p->{title} if $id{ $p->{id} }++ || $p->{title} eq '';
		push @clash, "$p->{title}: too wide" if $p->{gridPos}{x} + $p->{gridPos}{w} > 24;
	}
	is("@clash", '', 'panels have titles, ids of their own and room');
};

my $reason = fetch_programs();
SKIP:
{
	skip "Prometheus: $reason", 3 if defined $reason;
	my ($exporter_port, $prometheus_port) = (free_port(), free_port());
	my $folder = "$room/prometheus";
	mkdir $folder;
	(my $quick = $rules) =~ s/for: \d+[mh]/for: 1s/g;
	spit("$folder/alerts.yml", $rules);
	spit("$folder/quick.yml", $quick);
	spit("$folder/alerts_test.yml", slurp("$source/test/monitoring/alerts_test.yml"));
	spit("$folder/prometheus.yml", <<"CONFIG");
global: {scrape_interval: 1s, evaluation_interval: 1s}
rule_files: [quick.yml]
scrape_configs:
  - job_name: idem
    static_configs: [{targets: ['127.0.0.1:$exporter_port']}]
CONFIG

	subtest 'alert rules' => sub {
		my ($ok, $said) = run_quietly($program{promtool}, 'check', 'rules', "$folder/alerts.yml");
		ok($ok, 'promtool accepts them') or diag($said);
		($ok, $said) = run_quietly($program{promtool}, 'check', 'config', "$folder/prometheus.yml");
		ok($ok, 'and the configuration') or diag($said);
		($ok, $said) = run_quietly($program{promtool}, 'test', 'rules', "$folder/alerts_test.yml");
		ok($ok, 'each fires when it should') or diag($said);
	};

	my @running;
	my ($exporter_log, $prometheus_log) = ("$room/exporter.log", "$room/prometheus.log");
	{
		local $ENV{DATA_SOURCE_NAME} = sprintf 'host=%s port=%s user=prometheus dbname=postgres sslmode=disable', $node->host, $node->port;
		push @running, IPC::Run::start([ $program{'prometheus-postgres-exporter'}, "--web.listen-address=127.0.0.1:$exporter_port",
				"--extend.query-path=$source/monitoring/postgres_exporter.yaml", '--disable-default-metrics', '--disable-settings-metrics' ],
			'<', '/dev/null', '>', $exporter_log, '2>', $exporter_log);
	}
	push @running, IPC::Run::start([ $program{prometheus}, "--config.file=$folder/prometheus.yml", "--storage.tsdb.path=$folder/data",
			"--web.listen-address=127.0.0.1:$prometheus_port", '--log.level=warn' ],
		'<', '/dev/null', '>', $prometheus_log, '2>', $prometheus_log);

	# one value of Prometheus's, by an expression
	my $query = sub {
		my ($expression) = @_;
		my $escaped = join '', map { /[A-Za-z0-9_.]/ ? $_ : sprintf '%%%02X', ord } split //, $expression;
		my $answer = get("http://127.0.0.1:$prometheus_port/api/v1/query?query=$escaped");
		return '' if $answer eq '';
		my $result = decode_json($answer)->{data}{result};
		return @$result ? $result->[0]{value}[1] : '';
	};

	subtest 'a live load, through the exporter into Prometheus' => sub {
		my @sessions = map { session($node) } 1 .. 2;
		$_->send('CALL load(200)') foreach @sessions;
		value($node, "SELECT idem_acquire_direct('alice', 'stuck', '1', holder => 'gone')");
		my $seen = until_true('a rate', sub {
			$_->wait, $_->send('CALL load(200)') foreach grep { !$_->busy } @sessions;
			my $rate = $query->('sum(rate(idem_calls_total[10s]))');
			return $rate ne '' && $rate > 10;
		});
		ok($seen, 'Prometheus sees calls being made');
		$_->wait, $_->quit foreach @sessions;
		my $metrics = until_true('metrics', sub { get("http://127.0.0.1:$exporter_port/metrics") });
		like($metrics, qr/^pg_exporter_last_scrape_error 0$/m, 'the exporter met no error');
		is(join(' ', $metrics =~ /^pg_exporter_user_queries_load_error\{.*\} ([1-9].*)$/mg), '', 'and could read its queries');
		my $calls = value($node, 'SELECT sum(calls) FROM idem_stat');
		ok(until_true('all calls', sub { my $sum = $query->('sum(idem_calls_total)'); $sum ne '' && $sum >= $calls }), 'all calls arrive');
		my $ratio = $query->('sum(idem_calls_total{scope="pay",call="execute",outcome="done"}) / sum(idem_calls_total{scope="pay",call="execute",outcome=~"acquired|done"})');
		cmp_ok($ratio, '>', 0.5, 'the replay ratio can be computed');
		my @missing = grep { $metrics !~ /^\Q$_\E[ {]/m } grep { $_ ne 'idem_events_total' } sort keys %used;
		cmp_ok(scalar(keys %used), '>', 10, 'metrics that dashboard and rules name');
		is("@missing", '', 'all exist');
		unlike($metrics, qr/alice/, 'no subject in any label');
		my @empty = grep { (my $e = $_) =~ s/\$__rate_interval/30s/g; $e =~ s/\$(server|scope)/.*/g; my $v = $query->($e); $v eq '' } @expressions;
		is(join("\n", grep { !/idem_events_total/ } @empty), '', 'every panel has something to show');
	};

	subtest 'alerts fire' => sub {
		foreach my $alert ('IdemOutcomeUnknown', 'IdemHealthBad', 'IdemLateHolders')
		{
			ok(until_true($alert, sub { $query->("ALERTS{alertname=\"$alert\", alertstate=\"firing\"}") ne '' }), $alert);
		}
		value($node, value($node, 'SELECT reconcile FROM idem_stuck') =~ s/DONE\|FAILED\|RETRY/FAILED/r);
		ok(until_true('resolved', sub { $query->('ALERTS{alertname="IdemOutcomeUnknown"}') eq '' && $query->('idem_claims_stuck') eq '0' }),
			'a verdict ends the first');
	};
	$_->kill_kill(grace => 5) foreach @running;
	note(slurp($exporter_log) =~ s/.*level=info.*\n//gr);
}

subtest 'report' => sub {
	value($node, q{SELECT idem_acquire_direct('alice', '<script>alert(1)</script>', '1', holder => '"><img src=x onerror=alert(2)>', trace_id => '&amp;');
		SELECT idem_acquire_direct('<b>bob</b>', 'stuck', '{"a": "<i>"}', holder => '<u>');
		SELECT idem_acquire(idem_sign('alice', '<s>', '1'), 'alice', '<s>', '2')});
	wait_until($node, "SELECT count(*) = 1 FROM idem_stuck");
	my @psql = ($node->installed_command('psql'), '-X', '-q', '-d', $node->connstr('postgres'));
	foreach my $as ('', 'prometheus')
	{
		my ($html, $err) = ('', '');
		ok(IPC::Run::run([ @psql, ($as ? ('-U', $as) : ()), '-f', "$source/monitoring/report.sql" ], '<', '/dev/null', '>', \$html, '2>', \$err), 'made ' . ($as ? 'by an auditor' : 'by the owner'));
		is($err, '', 'without a complaint');
		like($html, qr/\A<!DOCTYPE html>.*<\/html>\n\z/s, 'a page');
		unlike($html, qr/<(script|img|u|i|s)\b|<b>bob/i, 'callers\' text is escaped');
		like($html, qr/&lt;script&gt;alert\(1\)&lt;\/script&gt;/, 'and shown');
		unlike($html, qr/(?:src|href|url)\s*[=(]\s*["']?(?:https?:)?\/\//i, 'nothing is loaded from elsewhere');
		like($html, qr/idem_reconcile\(&#39;|idem_reconcile\('/, 'the call that settles what is stuck');
		# the tags nest
		my @open;
		my $wrong = '';
		while ($html =~ /<(\/?)([a-z][a-z0-9]*)\b[^>]*?(\/?)>/gi)
		{
			my ($end, $tag, $empty) = ($1, $2, $3);
			next if $empty || $tag =~ /^(meta|br|hr|col)$/;
			if (!$end) { push @open, $tag }
			elsif (!@open || $open[-1] ne $tag) { $wrong .= "</$tag> " }
			else { pop @open }
		}
		is("$wrong@open", '', 'well-formed');
	}
	$node->backup('copy');
	my $standby = PostgreSQL::Test::Cluster->new('standby');
	$standby->init_from_backup($node, 'copy', has_streaming => 1);
	$standby->start;
	$node->wait_for_catchup($standby, 'replay', $node->lsn('insert'));
	my ($there, $complaint) = ('', '');
	ok(IPC::Run::run([ $node->installed_command('psql'), '-X', '-q', '-d', $standby->connstr('postgres'), '-f', "$source/monitoring/report.sql" ],
			'<', '/dev/null', '>', \$there, '2>', \$complaint), 'on a standby');
	is($complaint, '', 'without a complaint');
	like($there, qr/idem_reconcile\(.*&lt;img/s, 'with what is on record');
	is(value($standby, "SELECT count(*) FROM idem_health() WHERE name = 'worker' AND status = 'ok'"), '1', 'nobody asks for care there');
	is(value($node, "SELECT status FROM idem_health() WHERE name = 'replication'"), 'warn', 'and an asynchronous standby is warned of');
	$standby->stop;

	value($node, 'CREATE DATABASE empty');
	value($node, 'SET client_min_messages = warning; CREATE EXTENSION idem CASCADE', 'empty');
	my ($html, $err) = ('', '');
	ok(IPC::Run::run([ $node->installed_command('psql'), '-X', '-q', '-d', $node->connstr('empty'), '-f', "$source/monitoring/report.sql" ], '<', '/dev/null', '>', \$html, '2>', \$err), 'of a database without a record');
	is($err, '', 'without a complaint');
	$node->adjust_conf('postgresql.conf', 'shared_preload_libraries', "''");
	$node->restart;
	($html, $err) = ('', '');
	ok(IPC::Run::run([ @psql, '-f', "$source/monitoring/report.sql" ], '<', '/dev/null', '>', \$html, '2>', \$err), 'without preload');
	is($err, '', 'without a complaint');
	like($html, qr/not preloaded/, 'says so');
};

$node->stop;
done_testing();
