# Clients: what the suites clients and pooler share: running commands, and making the clients.
#
#   use lib "$source/test/clients";
#   use Clients qw(made must output_of slurp sql told);
#
#   my @command = made('pgjdbc');     # the words that run this client, to be followed by STORY RUN MODE; it dies
#                                     # with { skip => REASON } where a driver or a language is not there
#   told('pgjdbc', 'binary', 'story.txt', @command);    # one test: it tells the whole story
package Clients;

use strict;
use warnings;

use Cwd qw(getcwd);
use Exporter 'import';
use File::Basename qw(dirname);
use Test::More;

our @EXPORT_OK = qw(made must output_of slurp sql told);

my $clients = dirname(__FILE__);
my $here = getcwd();

# The output of a command, a list of words, with its errors; $? is its status.
sub output_of
{
	my @command = @_;
	my $pid = open(my $in, '-|') // die "fork: $!";
	if ($pid == 0)
	{
		open STDERR, '>&', \*STDOUT or die "dup: $!";
		exec @command or die "$command[0]: $!\n";
	}
	local $/ = undef;
	my $output = <$in> // '';
	close $in;
	$output =~ s{\n\z}{};
	return $output;
}

sub must
{
	my @command = @_;
	my $output = output_of(@command);
	die "@command: $output\n" if $?;
	return $output;
}

sub sql { return must('psql', '-XAtq', '-v', 'ON_ERROR_STOP=1', map { ('-c', $_) } @_) }

sub skipped { die { skip => $_[0] } }

# The first of these commands that succeeds with these words.
sub working
{
	my ($programs, @words) = @_;
	foreach my $program (@$programs)
	{
		output_of('sh', '-c', 'command -v "$1" >/dev/null && exec "$@"', 'sh', $program, @words);
		return $program if $? == 0;
	}
	return undef;
}

sub psycopg
{
	my $python = working([qw(python3 /usr/bin/python3)], '-c', 'import psycopg') // skipped('psycopg 3 is not there');
	return ($python, '-B', "$clients/client.py");
}

sub node
{
	my $said = output_of("$clients/../lib/npm_ci", $clients);
	skipped($said) if $? >> 8 == 77;
	die $said if $?;
	return ('node', "$clients/client.mjs");
}

sub jdbc
{
	my $driver = '/usr/share/java/postgresql.jar';
	skipped('pgjdbc is not there') unless -e $driver;
	working(['javac'], '--release', '17', '--version') // skipped('there is no javac of Java 17 or later');
	must('javac', '-cp', $driver, '-d', "$here/classes", glob "$clients/*.java");
	return ('java', '-XX:+UseSerialGC', '-XX:TieredStopAtLevel=1', '-cp', "$driver:$here/classes", 'Client');
}

sub dbd
{
	my $perl = working([qw(perl /usr/bin/perl)], '-MDBD::Pg', '-e', '1') // skipped('DBD::Pg is not there');
	return ($perl, "$clients/client.pl");
}

sub pgx
{
	skipped('pgx 4 is not there') unless -d '/usr/share/gocode/src/github.com/jackc/pgx/v4';
	working(['go'], 'version') // skipped('go is not there');
	$ENV{PGX_VERSION} = output_of('dpkg-query', '-W', '-f', '${Version}', 'golang-github-jackc-pgx-v4-dev');
	local @ENV{qw(GOPATH GO111MODULE GOCACHE GOFLAGS)} = ('/usr/share/gocode', 'off', "$here/gocache", '');
	must('go', 'build', '-o', "$here/client_go", "$clients/client.go");
	return ("$here/client_go");
}

sub libpq
{
	my $includes = output_of('sh', '-c', 'pkg-config --cflags libpq 2>/dev/null || echo -I/usr/include/postgresql');
	my ($include, $lib) = map { must($ENV{PG_CONFIG} // 'pg_config', "--$_") } qw(includedir libdir);
	must(qw(gcc -Wall -Wextra -Werror -O1), "-I$include", split(' ', $includes), "-L$lib", "-Wl,-rpath,$lib",
		"$clients/client.c", '-o', "$here/client_c", '-lpq');
	return ("$here/client_c");
}

sub slurp
{
	my ($file) = @_;
	open my $in, '<', $file or die "$file: $!";
	local $/ = undef;
	return scalar <$in>;
}

my %client = (libpq => \&libpq, 'psycopg 3' => \&psycopg, 'node pg' => \&node, pgjdbc => \&jdbc, 'DBD::Pg' => \&dbd,
	pgx => \&pgx);

sub made { return $client{ $_[0] }->() }

# The steps of a transaction's first run that come before its error are told again in the second.
my %again = ('REPEATABLE READ' => 1, 'READ COMMITTED' => 3);

sub told
{
	my ($client, $mode, $file, @command) = @_;
	(my $run = "$client $mode") =~ tr/ :/--/;
	my $story = slurp($file);
	my $wanted = () = $story =~ /^(?:step|retry|pipeline|lost|cut)\b/mg;
	$wanted += $again{$_} foreach $story =~ /^retry (.*)/mg;
	$wanted++;    # the recipe
	my @lines = split /\n/, output_of('timeout', '-k', '5', '120', @command, $file, $run, $mode);
	my $status = $?;
	my @bad = grep { !/^(?:ok|skip) - |^# / } @lines;
	my $told = grep { /^(?:not ok|ok|skip) - / } @lines;
	my ($about) = map { /^# (.*)/ } @lines;
	ok($status == 0 && !@bad && $told == $wanted, "$client, $mode: the story in $wanted steps")
	  or diag(join "\n", "status $status, $told steps told, $wanted wanted", @bad);
	note("$client, $mode: " . ($about // 'it does not say what it is'));
	note("$client, $mode: $_") foreach map { s/^skip - //r } grep { /^skip/ } @lines;
	return;
}

1;
