# Functions, views and types of idem that are the attacker's own (P13): after REASSIGN OWNED of a superuser's installation he
# puts others in their place, makes casts of the types, and takes the search paths from the functions.  Nothing of idem
# runs them for others.
#
# Not idem's doing, as in all of PostgreSQL: who calls a function or reads a view by its name runs what its owner made of it.
# So what is replaced is not called directly here; all else is, but for idem_health(), which is bound to views and functions
# that its owner may replace, and runs as he does.
use strict;
use warnings;

use PostgreSQL::Test::Utils;
use Test::More;
use IdemTest;
use IdemAttack;

my $node = idem_node('replaced', autovacuum => 'off', -extension => 0, log_statement => 'none');
attack_roles($node);
hand_over($node, 'passed');

my $calls = bind_calls($node, 'passed');
my @who = qw(postgres signer caller operator admin);
# a call of every kind needs no more than these
my @some = qw(postgres caller admin);
# of the claims that replies are made of, one will do; where many things are tried, of all calls one of each kind
my $many = qr/ (?!DONE)[A-Z_]+$/;
my $few = qr/^(?:idem_(?:sign|acquire|commit|status_key|preview|reply|http|reconcile|maintain|purge|grant|revoke|rotate_secret|import_secret|health|execute)\(.*\)(?: DONE)?|hung idem_require|(?:insert|update|delete) idem_policy|select idem_\w+)$/;
my $warm = session($node, dbname => 'passed');
play_all($warm, 'passed', $calls, \@who, skip => $many) foreach 1 .. 2;
my $before = play_all($warm, 'passed', $calls, \@who, skip => $many);

# Alter, look, undo, look. No row is put in by statements of ours meanwhile. direct: what calls the altered object by its name
sub alter
{
	my ($what, $do, $undo, $direct, %how) = @_;
	my $size = log_size($node);
	my $skip = $how{all} ? qr/$many|$direct/ : $direct;
	my %only = $how{all} ? () : (only => $few);
	act_ok($node, 'passed', $do);
	my $compare = $how{welcome} ? \&same_answers : \&same_or_refused;
	$compare->($before, play_all($warm, 'passed', $calls, \@who, skip => $skip, except => $before, idle => qr/work/, %only), $what);
	$compare->($before, play_all($node, 'passed', $calls, ['caller'], skip => $skip, except => $before, idle => qr/work/, only => $few), "$what, in a new session");
	act_ok($node, 'passed', [ 'SET client_min_messages = error', @$undo ]);
	nothing_sprung($node, $size, $what);
	same_answers($before, play_all($warm, 'passed', $calls, 'caller', only => qr/^idem_(?:acquire|commit)/, except => $before), "$what, and undone");
	return;
}

# Views that say something else; what reads them by itself does not
subtest 'views' => sub {
	foreach my $view (grep { $_->{kind} eq 'v' } relations($node, 'passed'))
	{
		my $was = catalog($node, 'passed', "SELECT pg_get_viewdef('$view->{full}'::regclass)");
		alter($view->{name}, [ trap_view($view->{full}, $view) =~ s/CREATE VIEW/CREATE OR REPLACE VIEW/r ], ["CREATE OR REPLACE VIEW $view->{full} AS $was"], qr/^(?:select |idem_health\()/);
	}
};

# Functions that do something else; what they were called by is in C, or bound to what it calls
subtest 'functions' => sub {
	foreach my $f (members($node, 'passed'))
	{
		my $size = log_size($node);
		my $was = catalog($node, 'passed', "SELECT pg_get_functiondef('$f->{identity}'::regprocedure)");
		my $direct = $f->{result} eq 'trigger' ? qr/^(?:hung|insert|update|delete) / : qr/^\Q$f->{name}\E\(/;
		# a view may call a function, and its owner could have it call any
		$direct = qr/$direct|^select |^idem_health\(/;
		# what makes a fresh operation or a secret is a direct call too
		my $idle = $f->{name} =~ /^idem_(?:sign|acquire_direct|import_secret)$/ ? qr/./ : qr/work/;
		act_ok($node, 'passed', [ trap("idem.$f->{name}", $f->{arguments}, $f->{result}, out => $f->{out}, immutable => 1) ]);
		same_or_refused($before, play_all($warm, 'passed', $calls, \@some, skip => qr/$many|$direct/, except => $before, idle => $idle, only => $few), $f->{name});
		catalog($node, 'passed', $was);
		nothing_sprung($node, $size, $f->{name});
	}
};

subtest 'casts of its types, and functions without their search path' => sub {
	my $size = log_size($node);
	foreach my $type (types($node, 'passed'))
	{
		foreach my $to (qw(text jsonb json))
		{
			act_ok($node, 'passed', [ trap('evil.bait_cast', $type->{full}, $to), "CREATE CAST ($type->{full} AS $to) WITH FUNCTION evil.bait_cast($type->{full}) AS IMPLICIT" ]);
			same_answers($before, play_all($warm, 'passed', $calls, \@some, skip => $many, except => $before, only => $few), "$type->{name} as $to");
			act_ok($node, 'passed', [ "DROP CAST ($type->{full} AS $to)", "DROP FUNCTION evil.bait_cast($type->{full})" ]);
		}
	}
	act_ok($node, 'passed', [ catalog_traps('evil'), map { "ALTER FUNCTION $_->{identity} RESET ALL" } members($node, 'passed') ]);
	same_answers($before, play_all($warm, 'passed', $calls, \@who, skip => $many, except => $before, path => 'evil, pg_catalog, idem, public'), 'no search path pinned');
	nothing_sprung($node, $size, 'casts and search paths');
};

$warm->quit;
$node->stop;
done_testing();
