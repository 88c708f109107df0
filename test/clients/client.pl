#!/usr/bin/perl
# client.pl STORY RUN MODE: the story told by DBD::Pg, in mode prepared (on the server) or text (by the driver's own
# quoting, as behind a pooler that knows no prepared statements).
use strict;
use warnings;
use utf8;

use DBD::Pg qw(:pg_types);
use DBI;
use IO::Handle;
use JSON::PP ();

binmode STDOUT, ':utf8';

# recipe
# Run $work in a transaction, again for as long as a concurrent one is in its way.
sub transaction
{
	my ($dbh, $work) = @_;
	while (1)
	{
		my @result = eval {
			$dbh->begin_work;
			my @got = $work->();
			$dbh->commit;
			@got;
		};
		return @result if $@ eq '';
		my ($error, $state) = ($@, $dbh->state);
		eval { $dbh->rollback };    # where the connection is lost the first error tells
		die $error unless $state =~ /^(?:40001|40P01)$/;
	}
}

# Cause the effect of an operation once; returns what became of it, and its result. $dbh is in AutoCommit mode: the
# grant is committed before the effect starts. $owner is a fresh UUID, kept by the caller: after a lost connection
# the same call on a new one goes on. Where $effect dies, its outcome is unknown.
sub once
{
	my ($dbh, $fingerprint, $subject, $scope, $params, $owner, $effect) = @_;
	my $json = JSON::PP->new->allow_nonref;
	my ($outcome, $key, $result) = $dbh->selectrow_array(
		'SELECT outcome, key, result FROM idem_acquire($1, $2, $3, $4, owner => $5)',
		undef, $fingerprint, $subject, $scope, $json->encode($params), $owner);
	return ($outcome, defined $result ? $json->decode($result) : undef) if $outcome ne 'ACQUIRED';
	$result = $effect->($key);    # the key is the request's Idempotency-Key
	my ($ack) = $dbh->selectrow_array('SELECT idem_commit($1, $2, $3)', undef, $key, $owner, $json->encode($result));
	return ('DONE', $result) if $ack eq 'OK';
	($outcome, $result) =
	  $dbh->selectrow_array('SELECT outcome, result FROM idem_status_key($1, $2)', undef, $key, $subject);
	return ($outcome, defined $result ? $json->decode($result) : undef);
}
# end of recipe

my ($story, $run, $mode) = @ARGV;
my %host = (main => $ENV{PGHOST}, other => $ENV{PGHOST}, standby => $ENV{STANDBY_HOST});
my %type = (int => PG_INT4, uuid => PG_UUID, jsonb => PG_JSONB, interval => PG_INTERVAL, timestamptz => PG_TIMESTAMPTZ,
	text => PG_TEXT);
my %name = (run => $run);
my (%dbh, $again);
my $failed = 0;

sub opened
{
	my ($host) = @_;
	return DBI->connect("dbi:Pg:host=$host", undef, undef,
		{ AutoCommit => 1, RaiseError => 1, PrintError => 0, PrintWarn => 0, pg_server_prepare => $mode eq 'prepared' });
}

sub new_uuid
{
	open my $in, '<', '/proc/sys/kernel/random/uuid' or die "uuid: $!";
	chomp(my $uuid = <$in>);
	return $uuid;
}

sub filled { return $_[0] =~ s/<(\w+)>/$name{$1}/gr }

# The text of a column's value: DBD::Pg gives booleans as 1 and 0.
sub text
{
	my ($got, $type) = @_;
	return 'null' unless defined $got;
	return $type eq 'bool' ? ($got ? 'true' : 'false') : $got;
}

sub report
{
	my ($what, $problem) = @_;
	$failed++ if defined $problem;
	print defined $problem ? "not ok - $what: $problem\n" : "ok - $what\n";
	return;
}

sub run_statement
{
	my ($step) = @_;
	my $sth = $dbh{ $step->{on} }->prepare($step->{sql});
	my $number = 0;
	foreach my $arg (@{ $step->{args} })
	{
		my $given = defined $arg->[1] ? filled($arg->[1]) : undef;
		$sth->bind_param(++$number, $given, { pg_type => $type{ $arg->[0] } });
	}
	$sth->execute;
	return {} unless $sth->{NUM_OF_FIELDS};
	my @row = $sth->fetchrow_array;
	$sth->finish;
	my ($names, $types) = ($sth->{NAME}, $sth->{pg_type});
	return { map { $names->[$_] => text($row[$_], $types->[$_]) } 0 .. $#row };
}

# Run a statement; what the transaction's repetition needs is raised.
sub perform
{
	my ($step) = @_;
	my $problem;
	if (my $row = eval { run_statement($step) })
	{
		foreach my $is (@{ $step->{is} })
		{
			my ($column, $wanted) = ($is->[0], filled($is->[1]));
			$problem = "$column is $row->{$column}, not $wanted" if $row->{$column} ne $wanted;
		}
		$name{$_} = $row->{$_} foreach @{ $step->{keep} };
		$problem = 'it did not fail' if defined $step->{error};
	}
	else
	{
		my $state = $dbh{ $step->{on} }->state;
		die $@ if $state =~ /^40/;
		$problem = "$state $@" if $state ne ($step->{error} // '');
	}
	report($step->{name}, $problem);
	return;
}

sub retried
{
	my ($level, $steps, $wanted) = @_;
	my $runs = 0;
	transaction($dbh{main}, sub {
		$runs++;
		$dbh{main}->do("SET TRANSACTION ISOLATION LEVEL $level");
		foreach my $step (@$steps) { perform($step) if $runs == 1 || !$step->{first} }
	});
	report("$level, repeated", $runs == $wanted ? undef : "$runs runs");
	return;
}

sub pipelined
{
	my ($steps) = @_;
	perform($_) foreach @$steps;
	print "skip - pipelined: DBD::Pg waits for each answer\n";
	return;
}

sub lost
{
	my ($which, $what) = @_;
	report($what, eval { $dbh{$which}->do('SELECT 1') } ? 'the connection is there' : undef);
	eval { $dbh{$which}->disconnect };
	$dbh{$which} = opened($host{$which});
	return;
}

sub cut
{
	my ($which, $what) = @_;
	open my $line, '+<&', $dbh{$which}{pg_socket} or die "socket: $!";
	shutdown $line, 2 or die "shutdown: $!";
	lost($which, $what);
	return;
}

# Read the story and act on each line; a step is performed when all its lines are read.
sub whole_story
{
	my ($step, $before, $block, $level);
	my %end = (
		step => sub { $step = { name => $_[0], on => 'main', args => [], is => [], keep => [] } },
		new => sub { $name{ $_[0] } = new_uuid() },
		retry => sub { ($block, $level) = ([], $_[0]) },
		pipeline => sub { ($block, $level) = ([], undef) },
		end => sub { defined $level ? retried($level, $block, $_[0]) : pipelined($block); undef $block },
		lost => sub { lost($_[0], "lost after: $before->{name}") },
		cut => sub { cut($_[0], "cut after: $before->{name}") });
	open my $in, '<:utf8', $story or die "$story: $!";
	while (my $line = <$in>)
	{
		chomp $line;
		my ($word, $rest) = $line =~ /^(\S*) ?(.*)$/;
		my ($first, $second) = $rest =~ /^(\S*) ?(.*)$/;
		if ($word eq 'arg') { push @{ $step->{args} }, [ $first, $second ] }
		elsif ($word eq 'null') { push @{ $step->{args} }, [ $first, undef ] }
		elsif ($word eq 'is') { push @{ $step->{is} }, [ $first, $second ] }
		elsif ($word eq 'keep') { push @{ $step->{keep} }, $rest }
		elsif ($word =~ /^(?:on|sql|error|first)$/) { $step->{$word} = $rest || 1 }
		elsif ($end{$word})
		{
			if ($step && $block) { push @$block, $step }
			elsif ($step) { perform($step) }
			($before, $step) = ($step, undef);
			$end{$word}->($rest);
		}
	}
	perform($step);
	return;
}

sub recipe
{
	my $conn = opened($ENV{PGHOST});
	my $params = { amount => 20, payee => $run, currency => 'EUR' };
	my ($fingerprint) = $conn->selectrow_array('SELECT idem_sign($1, $2, $3)', undef, $run, 'charge',
		JSON::PP->new->encode($params));
	my $effect = sub { $dbh{other}->do('INSERT INTO sent VALUES ($1)', undef, $_[0]); return { sent => $_[0] } };
	my @answers = map { [ once($conn, $fingerprint, $run, 'charge', $params, new_uuid(), $effect) ] } 1 .. 2;
	my ($sent) = $dbh{other}->selectrow_array('SELECT count(*) FROM sent WHERE idem_key = $1', undef,
		$answers[0][1]{sent});
	my @said = map { JSON::PP->new->canonical->encode($_) } @answers;
	report('recipe', $said[0] eq $said[1] && $answers[0][0] eq 'DONE' && $sent == 1 ? undef : "@said $sent");
	$conn->disconnect;
	return;
}

$dbh{$_} = opened($host{$_}) foreach keys %host;
whole_story();
recipe();
print "# DBD::Pg $DBD::Pg::VERSION, libpq $dbh{main}{pg_lib_version}\n";
$_->disconnect foreach values %dbh;
exit($failed > 0);
