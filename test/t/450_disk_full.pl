# The disk is full, under the tables and under the write-ahead log: calls fail with an error and never with a wrong
# answer, what was acknowledged is there afterwards, and nothing runs twice (P1, P2, P5, P8, P11).
#
# Small file systems are mounted in a mount namespace of this test's own, which needs no privilege where the kernel
# lets users make one.
use strict;
use warnings;

BEGIN
{
	# before anything holds on to the namespace of before
	if (!$ENV{IDEM_OWN_MOUNTS} && system('unshare --map-current-user --mount --keep-caps mount -t tmpfs tmpfs /mnt >/dev/null 2>&1') == 0)
	{
		$ENV{IDEM_OWN_MOUNTS} = 1;
		exec 'unshare', '--map-current-user', '--mount', '--keep-caps', $^X, $0;
	}
}

use PostgreSQL::Test::Utils;
use Test::More;
use IdemTest;
use IdemFault;

plan skip_all => 'this user may not mount a small file system here (unprivileged user namespaces are off)'
  unless $ENV{IDEM_OWN_MOUNTS};

sub small_disk
{
	my ($size) = @_;
	my $folder = PostgreSQL::Test::Utils::tempdir();
	system('mount', '-t', 'tmpfs', '-o', "size=$size,mode=700", 'tmpfs', $folder) == 0 or die 'cannot mount';
	return $folder;
}

# All the room that is left, or all of it given back
sub fill
{
	my ($folder) = @_;
	open my $file, '>', "$folder/filler" or die $!;
	my $block = "\0" x 4096;
	# unbuffered, so that the last page is taken as well
	1 while syswrite $file, $block;
	close $file;
	return;
}

sub relieve
{
	unlink "$_[0]/filler" or die $!;
	return;
}

# Play operations until one fails; what was acknowledged is noted, by name
sub play
{
	my ($s, $scope, $played, $most) = @_;
	my $filler = 'x' x 3000;
	foreach my $n (1 .. $most)
	{
		my $op = operation($s, $scope);
		push @$played, $op;
		my $line = $s->query(acquire_sql($op, 'outcome, owner'));
		return $s->sqlstate if $s->sqlstate ne '00000';
		$line =~ /^ACQUIRED\|(.*)$/ or die "not granted: $line";
		@$op{qw(owner stands)} = ($1, 'IN_FLIGHT');
		effect($op);
		$s->query(qq{SELECT idem_commit('$op->{key}', '$op->{owner}', to_jsonb((SELECT string_agg(md5(random()::text), '') FROM generate_series(1, 200))))});
		return $s->sqlstate if $s->sqlstate ne '00000';
		$op->{stands} = 'DONE';
	}
	return '00000';
}

# Everything that was acknowledged stands; retries settle the rest, once
sub verify
{
	my ($node, $name, @played) = @_;
	my $s = session($node);
	my %wrong;
	my $count = 0;
	foreach my $op (@played)
	{
		my ($found) = split /\|/, ask($s, 'BEGIN;' . acquire_sql($op, 'outcome') . '; ROLLBACK');
		my $stands = $op->{stands} // 'nothing';
		# an error leaves open whether it was committed, and then it is in flight and known to nobody: never granted anew
		my $good = $stands eq 'nothing' ? qr/^(ACQUIRED|IN_FLIGHT)$/ : $stands eq 'IN_FLIGHT' ? qr/^(IN_FLIGHT|DONE)$/ : qr/^DONE$/;
		$wrong{"$stands: $found"}++ unless $found =~ $good;
		ask($s, commit_sql($op, '1')) if $found eq 'IN_FLIGHT' && $op->{owner};
		my $first = $found eq 'IN_FLIGHT' && !$op->{owner} ? $found : settle($s, $op);
		$wrong{'not settled'}++ unless $first =~ /^(DONE|IN_FLIGHT)/;
		$wrong{'twice'}++ if effects($op) > 1;
		$op->{stands} = 'DONE' if $first =~ /^DONE/;
		$count++;
	}
	is_deeply(\%wrong, {}, "$name: all $count operations are as they were acknowledged, and ran once");
	$s->quit;
	return;
}

subtest 'no room for the tables (P1, P2, P8, P11)' => sub {
	my $disk = small_disk('24m');
	my $node = idem_node('tables', -extension => 0, autovacuum => 'off', max_prepared_transactions => '5');
	value($node, "CREATE TABLESPACE small LOCATION '$disk'");
	value($node, 'CREATE DATABASE small TEMPLATE template0 TABLESPACE small');
	$node->safe_psql('small', 'SET client_min_messages = warning; CREATE EXTENSION idem CASCADE');
	# the helpers look in database postgres
	value($node, 'ALTER DATABASE postgres RENAME TO empty', 'template1');
	value($node, 'ALTER DATABASE small RENAME TO postgres', 'template1');
	furnish($node);
	my (@played, $s);
	foreach my $fast ('on', 'off')
	{
		$node->append_conf('postgresql.conf', "idem.fast_path = $fast\n");
		$node->reload;
		$s = session($node);
		wait_until($node, "SELECT current_setting('idem.fast_path') = '$fast'");
		is(play($s, 'opaque', \@played, 20), '00000', "fast path $fast: there is room at first");
		fill($disk);
		my $size = log_size($node);
		is(play($s, 'opaque', \@played, 2000), '53100', "fast path $fast: in the end the disk is full");
		note(scalar(@played) . ' operations');
		foreach my $n (1 .. 20)
		{
			my $op = operation($s, 'opaque');
			my $line = $s->query(acquire_sql($op, 'outcome, owner'));
			like($s->sqlstate, qr/^(00000|53100)$/, "fast path $fast: a call that fails says why") if $n == 1;
			push @played, $op;
			@$op{qw(owner stands)} = ($1, 'IN_FLIGHT') if $line =~ /^ACQUIRED\|(.*)$/;
			effect($op) if $op->{owner};
		}
		my ($done) = grep { ($_->{stands} // '') eq 'DONE' } @played;
		like(ask($s, acquire_sql($done, 'outcome')), qr/^DONE$/, "fast path $fast: replays go on") if $done;
		unlike(log_since($node, $size), qr/PANIC|TRAP|ERROR:  XX/, "fast path $fast: no fault in the log");
		$s->quit;
		relieve($disk);
	}
	is(value($node, 'SELECT count(*) FROM idem_fast'), 0, 'the fast table is empty');
	verify($node, 'relieved', @played);
	fill($disk);
	$node->kill9;
	relieve($disk);
	$node->{_pid} = undef;
	crash_and_start($node);
	verify($node, 'and after a crash on a full disk', @played);
	sound($node, 'in the end');
	$node->stop;
};

subtest 'no room for the log (P1, P2, P5, P8)' => sub {
	my $disk = small_disk('12m');
	my $node = PostgreSQL::Test::Cluster->new('log');
	$node->init(extra => [ '--encoding=UTF8', '--locale=C.UTF-8', "--waldir=$disk/wal", '--wal-segsize=1' ]);
	$node->append_conf('postgresql.conf', "autovacuum = off\nmin_wal_size = 2MB\nmax_wal_size = 1GB\nwal_recycle = off\nmax_prepared_transactions = 5\n");
	$node->start;
	value($node, 'SET client_min_messages = warning; CREATE EXTENSION idem CASCADE');
	furnish($node);
	my @played;
	my $s = session($node);
	is(play($s, 'opaque', \@played, 20), '00000', 'there is room at first');
	fill($disk);
	my $state = play($s, 'opaque', \@played, 2000);
	isnt($state, '00000', "then there is none (SQLSTATE '$state')");
	note(scalar(@played) . ' operations');
	$s->quit;
	# it may be down, or recover and go down again; nobody gets through
	$node->stop('immediate', fail_ok => 1);
	relieve($disk);
	$node->{_pid} = undef;
	crash_and_start($node);
	sound($node, 'relieved');
	verify($node, 'relieved', @played);
	sound($node, 'in the end');
	$node->stop;
};

done_testing();
