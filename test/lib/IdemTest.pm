# IdemTest: what the TAP tests of idem share.
#
#   use IdemTest;
#   my $node = idem_node('main', max_prepared_transactions => 5);   # a running server with the extension
#   is(value($node, 'SELECT 1'), '1', 'one');
#
#   my $s = session($node);              # a psql kept open
#   $s->query('BEGIN');                  # its output; ->error and ->sqlstate tell what went wrong
#   $s->send('SELECT pg_sleep(1)');      # in the background
#   wait_blocked($node, $s);             # until it waits for a lock
#   $s->cancel;                          # or ->terminate, ->kill_client
#   $s->wait;                            # the output of what was sent
#   $s->quit;
#
#   crash_and_start($node);
#
# Every wait ends with an exception after $PostgreSQL::Test::Utils::timeout_default seconds.
package IdemTest;

use strict;
use warnings;

use Exporter 'import';
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Scalar::Util 'weaken';
use Test::More;
use Time::HiRes ();

our @EXPORT =
  qw(idem_node session value psql_error wait_until wait_blocked log_size log_since crash_and_start);

# Where test/coverage counts what runs, everything ends in peace, since what is killed leaves no counts. Runs before the
# servers are torn down.
my (@nodes, @sessions);

END
{
	local $?;
	if (($ENV{IDEM_COVERAGE} // '') ne '')
	{
		$_->quit foreach grep { defined } @sessions;
		$_->stop('fast', fail_ok => 1) foreach grep { defined $_->{_pid} } @nodes;
	}
}

# A new server, started, with the given settings and the extension in database postgres. The pseudo setting
# -extension => 0 leaves the extension out, -streaming => 1 prepares for standbys.
sub idem_node
{
	my ($name, %conf) = @_;
	my $extension = delete $conf{-extension} // 1;
	my $streaming = delete $conf{-streaming} // 0;
	my $node = PostgreSQL::Test::Cluster->new($name);
	$node->init(
		allows_streaming => $streaming,
		extra => [ '--encoding=UTF8', '--locale=C.UTF-8' ]);
	foreach my $setting (sort keys %conf)
	{
		(my $quoted = $conf{$setting}) =~ s/'/''/g;
		$node->append_conf('postgresql.conf', "$setting = '$quoted'\n");
	}
	$node->start;
	push @nodes, $node;
	$node->safe_psql('postgres',
		'SET client_min_messages = warning; CREATE EXTENSION idem CASCADE')
	  if $extension;
	return $node;
}

# A psql kept open to a node; named arguments: dbname, user.
sub session
{
	my ($node, %how) = @_;
	my $session = IdemTest::Session->new($node, %how);
	push @sessions, $session;
	weaken($sessions[-1]);
	return $session;
}

# The output of a statement that must succeed, in a connection of its own.
sub value
{
	my ($node, $sql, $dbname) = @_;
	return $node->safe_psql($dbname // 'postgres', $sql);
}

# The SQLSTATE and the message of a statement that should fail, in a connection of its own; two empty strings
# if it did not.
sub psql_error
{
	my ($node, $sql, $dbname) = @_;
	my ($rc, $out, $err) =
	  $node->psql($dbname // 'postgres', "\\set VERBOSITY verbose\n$sql");
	return $err =~ /(?:ERROR|FATAL):  (\w{5}): (.*)/ ? ($1, $2) : ('', '');
}

# Wait until a query says 't'.
sub wait_until
{
	my ($node, $sql, $dbname) = @_;
	$node->poll_query_until($dbname // 'postgres', $sql)
	  or die "never became true: $sql";
	return;
}

# Wait until a session waits for a lock of any kind.
sub wait_blocked
{
	my ($node, $session) = @_;
	wait_until($node,
			"SELECT count(*) > 0 FROM pg_catalog.pg_stat_activity WHERE pid = "
		  . $session->pid
		  . " AND wait_event_type = 'Lock'");
	return;
}

# The size of a node's log now, and what was logged since it had that size.
sub log_size
{
	my ($node) = @_;
	return -s $node->logfile;
}

sub log_since
{
	my ($node, $size) = @_;
	open my $log, '<', $node->logfile or die $node->logfile . ": $!";
	seek $log, $size, 0;
	local $/ = undef;
	return <$log> // '';
}

# The server dies at once, as by a power cut, and is started again.
sub crash_and_start
{
	my ($node) = @_;
	$node->kill9;
	# its last children may hold on to the shared memory for a moment, and its number is free only when the dead
	# process has been taken in; until then the node believes the old server to run
	foreach (1 .. 10 * $PostgreSQL::Test::Utils::timeout_default)
	{
		return if $node->start(fail_ok => 1);
		$node->{_pid} = undef;
		Time::HiRes::usleep(100_000);
	}
	die "the server does not come back";
}

package IdemTest::Session;

use strict;
use warnings;

use IPC::Run;
use PostgreSQL::Test::Utils;

sub new
{
	my ($class, $node, %how) = @_;
	my $self = bless {
		node => $node,
		stdin => '',
		stdout => '',
		stderr => '',
		count => 0,
		error => '',
		sqlstate => '00000',
		pending => undef }, $class;
	my $connect = $node->connstr($how{dbname} // 'postgres');
	$connect .= " user=$how{user}" if defined $how{user};
	$self->{timer} = IPC::Run::timer($PostgreSQL::Test::Utils::timeout_default);
	$self->{run} = IPC::Run::start(
		[ $node->installed_command('psql'), '-XAtq', '-d', $connect, '-f', '-', '-v', 'ON_ERROR_STOP=0' ],
		'<', \$self->{stdin}, '>', \$self->{stdout}, '2>', \$self->{stderr},
		$self->{timer});
	$self->{pid} = $self->query('SELECT pg_catalog.pg_backend_pid()');
	return $self;
}

# The server process's id.
sub pid { return $_[0]{pid} }

# What the server complained of in the last statement waited for, notices included, and its SQLSTATE (00000:
# it succeeded).
sub error { return $_[0]{error} }
sub sqlstate { return $_[0]{sqlstate} }

# Start a statement (without its semicolon) in the background.
sub send
{
	my ($self, $sql) = @_;
	die "the session is busy" if defined $self->{pending};
	my $mark = "-- done " . ++$self->{count} . " --";
	$self->{pending} = $mark;
	$self->{timer}->start;
	$self->{stdin} .= "$sql\n;\n\\echo '$mark' :SQLSTATE\n\\warn '$mark'\n";
	$self->{run}->pump_nb;
	return;
}

# Is the statement sent still running?
sub busy
{
	my ($self) = @_;
	return 0 unless defined $self->{pending};
	$self->{run}->pump_nb if $self->{run}->pumpable;
	return !$self->_done;
}

sub _done
{
	my ($self) = @_;
	my $mark = $self->{pending};
	return $self->{stdout} =~ /^\Q$mark\E \S*\n/m && $self->{stderr} =~ /^\Q$mark\E\n/m;
}

# Wait for the statement sent; returns its output. A lost connection gives SQLSTATE 08006.
sub wait
{
	my ($self) = @_;
	my $mark = $self->{pending} // die "nothing was sent";
	until ($self->_done)
	{
		if ($self->{timer}->is_expired)
		{
			die "the session's statement takes too long; so far: $self->{stdout}$self->{stderr}";
		}
		# psql without -f would end with its connection; either way nothing more comes
		last unless $self->{run}->pumpable;
		eval { $self->{run}->pump; 1 } or last;
	}
	my $done = $self->_done;
	my ($out, $err) = @$self{qw(stdout stderr)};
	$self->{sqlstate} = $done && $out =~ s/^\Q$mark\E (\S*)\n//m ? $1 : '08006';
	$err =~ s/^\Q$mark\E\n//m;
	chomp $out;
	@$self{qw(stdout stderr pending error)} = ('', '', undef, $err);
	return $out;
}

# Run a statement and return its output.
sub query
{
	my ($self, $sql) = @_;
	$self->send($sql);
	return $self->wait;
}

# The same for one that must succeed.
sub query_ok
{
	my ($self, $sql) = @_;
	my $out = $self->query($sql);
	die "failed with $self->{sqlstate}: $sql\n$self->{error}" if $self->{sqlstate} ne '00000';
	return $out;
}

sub _signal
{
	my ($self, $function) = @_;
	$self->{node}->safe_psql('postgres', "SELECT pg_catalog.$function($self->{pid})");
	return;
}

# End the running statement, or the server process, politely.
sub cancel { return $_[0]->_signal('pg_cancel_backend') }
sub terminate { return $_[0]->_signal('pg_terminate_backend') }

# The client dies as by an outage; the server finds out by itself.
sub kill_client
{
	my ($self) = @_;
	$self->{run}->kill_kill(grace => 0);
	$self->{pending} = undef;
	return;
}

sub quit
{
	my ($self) = @_;
	$self->{pending} = undef;
	if ($self->{run}->pumpable)
	{
		$self->{stdin} .= "\\q\n";
		eval { $self->{run}->finish };
	}
	return;
}

1;
