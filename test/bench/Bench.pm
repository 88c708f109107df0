package Bench;
# Bench: what the programs of the benchmarks share. They run in the folder where their files may lie, as the user who
# owns the servers; PGHOST and so on lead to one.
use strict;
use warnings;
use Exporter 'import';
use POSIX ();
use JSON::PP;
use Time::HiRes ();

our @EXPORT = qw(ask ask_rows pgbench script peer median ratio_text write_json write_file start_server stop_server
	start_redis prepare_database run_file $params $once $cycle);

# One operation, as the benchmarks call it: its parameters, an acquire of a fresh one, and both its calls.
our $params = q({"amount":199,"currency":"USD","payee":"acct_42"});
our $once = q(select outcome from idem_acquire_direct('alice', 'charge', :params, gen_random_uuid()::text););
our $cycle = q(select key as k, owner as o from idem_acquire_direct('alice', 'charge', :params, gen_random_uuid()::text) \gset)
	. qq(\nselect idem_commit(:k, :o, '{"ok": true}'););

sub bench_folder { return ($0 =~ m{^(.*)/})[0]; }

sub run
{
	my @command = @_;
	open(my $pipe, '-|', @command) or die "$command[0]: $!";
	my @lines = <$pipe>;
	close($pipe) or die "failed: @command\n";
	chomp @lines;
	return @lines;
}

# The rows of a command's last statement, columns separated by tabs; errors end the program.
sub ask_rows { return run('psql', '-XAtq', '-F', "\t", '-v', 'ON_ERROR_STOP=1', map { ('-c', $_) } @_) }

# Run a file of this folder.
sub run_file { return run('psql', '-Xq', '-v', 'ON_ERROR_STOP=1', '-f', bench_folder() . "/$_[0]") }

# The last row.
sub ask { return (ask_rows(@_))[-1] }

sub write_file
{
	my ($name, $text) = @_;
	open(my $file, '>', $name) or die "$name: $!";
	print $file $text;
	close($file) or die "$name: $!";
	return $name;
}

# A pgbench script; \set and the like as usual.
sub script
{
	my ($name, $text) = @_;
	return write_file("$name.pgbench", "$text\n");
}

# Run pgbench with prepared statements; gives its rate. An aborted client ends the program.
sub pgbench
{
	my (@arguments) = @_;
	my $errors = 'pgbench.err';
	open(my $keep, '>&', \*STDERR) or die $!;
	open(STDERR, '>', $errors) or die $!;
	my @lines = eval { run('pgbench', '-n', '-M', 'prepared', '-D', "params=$params", @arguments) };
	my $failure = $@;
	open(STDERR, '>&', $keep) or die $!;
	open(my $file, '<', $errors) or die $!;
	my $said = join('', <$file>);
	my ($tps) = map { /^tps = ([0-9.]+)/ ? $1 : () } @lines;
	die "pgbench @arguments: nothing was done in the time; take longer rounds\n" if grep { /actually processed: 0/ } @lines;
	die "pgbench @arguments:\n$failure$said" if $failure || !defined $tps || $said =~ /abort/;
	return $tps;
}

# Run the client of peer.c; gives its rate.
sub peer
{
	my (@arguments) = @_;
	my ($tps) = map { /^tps = ([0-9.]+)/ ? $1 : () } run('./peer', '-l', bench_folder(), @arguments);
	return $tps;
}

sub median
{
	my @sorted = sort { $a <=> $b } @_;
	return @sorted % 2 ? $sorted[$#sorted / 2] : ($sorted[@sorted / 2 - 1] + $sorted[@sorted / 2]) / 2;
}

# The ratio of two series of runs: that of the medians, and the least and the greatest within one round.
sub ratio
{
	my ($ours, $theirs) = @_;
	my @rounds = sort { $a <=> $b } map { $ours->[$_] / $theirs->[$_] } 0 .. $#$ours;
	return (median(@$ours) / median(@$theirs), $rounds[0], $rounds[-1]);
}

# One line of a table of ratios, and what a program wants of it. Wanted: at least so much, or at most, if negative.
sub ratio_text
{
	my ($name, $against, $ours, $theirs, $wanted) = @_;
	my ($ratio, $low, $high) = ratio($ours, $theirs);
	my %row = (operation => $name, against => $against, ratio => $ratio, lowest => $low, highest => $high);
	my $text = sprintf('%6.2f  %5.2f - %5.2f  ', $ratio, $low, $high);
	if (defined $wanted)
	{
		$row{wanted} = abs($wanted);
		$row{met} = ($wanted > 0 ? $ratio >= $wanted : $ratio <= -$wanted) ? JSON::PP::true : JSON::PP::false;
		$text .= sprintf('%s %.2f %-4s', $wanted > 0 ? '>=' : '<=', abs($wanted), $row{met} ? '' : 'NO');
	}
	else { $text .= ' ' x 12 }
	return ("$text $name / $against", \%row);
}

sub write_json
{
	my ($name, $data) = @_;
	($data->{server}) = run('postgres', '--version');
	write_file($name, JSON::PP->new->canonical->pretty->encode($data)) if defined $name;
	return;
}

# ----- servers -----

my %redis;

# A private server in a new folder, with further settings; PGPORT leads to it from then on.
sub start_server
{
	my ($folder, $port, @settings) = @_;
	run('initdb', '-D', $folder, '-E', 'UTF8', '--locale=C.UTF-8', '-A', 'trust', '-N');
	open(my $conf, '>>', "$folder/postgresql.conf") or die $!;
	print $conf "$_\n" foreach "listen_addresses = ''", "unix_socket_directories = '$ENV{PGHOST}'", "port = $port", @settings;
	close($conf) or die $!;
	system('pg_ctl', '-s', '-w', '-D', $folder, '-l', "$folder.log", 'start') == 0 or die "no server in $folder\n";
	$ENV{PGPORT} = $port;
	return;
}

sub stop_server
{
	my ($folder) = @_;
	system('pg_ctl', '-s', '-w', '-D', $folder, '-m', 'fast', 'stop') == 0 or die "the server in $folder does not stop\n";
	return;
}

# A private Redis server with further options; gives its socket. It ends with the program.
sub start_redis
{
	my ($name, @options) = @_;
	mkdir($name) or die "$name: $!";
	my $socket = "$ENV{PGHOST}/$name";
	my $pid = fork // die "fork: $!";
	if ($pid == 0)
	{
		open(STDOUT, '>', "$name/log") or die $!;
		exec('./redis-server', '--port', 0, '--unixsocket', $socket, '--dir', $name, @options) or die "redis-server: $!\n";
	}
	$redis{$name} = $pid;
	until (-S $socket)
	{
		die "no Redis server: see $name/log\n" if waitpid($pid, POSIX::WNOHANG()) == $pid;
		Time::HiRes::sleep(0.02);
	}
	return $socket;
}

END
{
	local $?;
	foreach my $pid (values %redis)
	{
		kill('TERM', $pid);
		waitpid($pid, 0);
	}
}

# The tables that operations are held against, and the extension.
sub prepare_database
{
	ask('SET client_min_messages = warning', 'CREATE EXTENSION idem CASCADE');
	ask(q(CREATE TABLE bench_pk (id int PRIMARY KEY, r jsonb, s text)),
		q(INSERT INTO bench_pk SELECT g, '{"ok": true}', 'x' FROM generate_series(1, 100000) AS g),
		# the same columns and indexes; CHECK constraints would cost an INSERT more than the row does
		q(CREATE TABLE bench_logged (LIKE idem_record INCLUDING DEFAULTS INCLUDING INDEXES INCLUDING STORAGE)),
		q(CREATE UNLOGGED TABLE bench_unlogged (LIKE bench_logged INCLUDING ALL)),
		q(CREATE TABLE bench_effect (n int, at timestamptz)),
		q(CREATE TABLE bench_write_record (idem_key uuid PRIMARY KEY, n int, at timestamptz)),
		# PL/pgSQL keeps its plans
		q(CREATE FUNCTION bench_effect(p jsonb) RETURNS jsonb LANGUAGE plpgsql AS
			$$BEGIN INSERT INTO bench_effect VALUES (1, now()); RETURN '{"ok": true}'; END$$));
	run_file('peers.sql');
	run_file('token.sql');
	return;
}

1;
