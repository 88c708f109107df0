# What people copy: test/clients/web.sql, where public is open to everybody as it was before PostgreSQL 15 (T27, P13). Its
# function runs with its owner's rights, so no name in it may be the attacker's, and none of what it looks in may be open.
use strict;
use warnings;

use PostgreSQL::Test::Utils;
use Test::More;
use IdemTest;
use IdemAttack;

my $node = idem_node('recipe', autovacuum => 'off');
attack_roles($node);
value($node, q{GRANT CREATE ON SCHEMA public TO PUBLIC; GRANT CREATE ON DATABASE postgres TO attacker;
	SET client_min_messages = warning; DROP EXTENSION idem, pgcrypto; CREATE SCHEMA idem; CREATE EXTENSION idem SCHEMA idem CASCADE;
	GRANT USAGE ON SCHEMA idem TO attacker});
$node->safe_psql('postgres', slurp_file("$ENV{IDEM_SRC}/test/clients/web.sql"));
value($node, 'GRANT clients_user TO attacker');
spring_set($node, 'postgres');

# Two requests of one key; what they answer, and what is in the table
sub charge
{
	my ($s, $key) = @_;
	my $settings = qq{SET search_path = public; SELECT set_config('request.jwt.claims', '{"sub": "alice"}', false);
		SELECT set_config('request.headers', '{"idempotency-key": "\\"$key\\""}', false)};
	$s->query_ok($settings);
	return join ' ', map { $s->query_ok(q{SELECT api.charge('{"amount": 5}')}) } 1, 2;
}

my $usual = session($node, user => 'clients_web');
$usual->query_ok('SET ROLE clients_user');
my $before = charge($usual, 'before');
like($before, qr/"charged": 5.*"charged": 5/, 'one request and its retry');

# whatever the function names, offered in public by who may create there, and as temporary objects by who calls
my $size = log_size($node);
my @planted = (@{ namesakes($node, 'postgres', 'public') }, @{ overloads($node, 'postgres', 'public') }, catalog_traps('public'),
	'CREATE TABLE public.web_order (idem_key uuid, subject text, amount numeric)', 'GRANT ALL ON public.web_order TO PUBLIC', trap('public.bait', '', 'trigger'),
	'CREATE TRIGGER t BEFORE INSERT ON public.web_order FOR EACH ROW EXECUTE FUNCTION public.bait()');
act($node, 'postgres', \@planted);
cmp_ok(value($node, q{SELECT count(*) FROM pg_proc WHERE pronamespace = 'public'::regnamespace AND proowner = 'attacker'::regrole}), '>', 500, 'traps lie in public');
is(charge($usual, 'planted'), $before, 'it answers among them as before');
my $fresh = session($node, user => 'clients_web');
$fresh->query_ok('SET ROLE clients_user');
is(charge($fresh, 'fresh'), $before, 'in a new session too');

my $own = session($node, user => 'attacker');
foreach my $plant (@{ namesakes($node, 'postgres', 'pg_temp') }, 'CREATE TEMP TABLE web_order (idem_key uuid, subject text, amount numeric)',
	'GRANT ALL ON pg_temp.web_order TO PUBLIC', trap('pg_temp.bait', '', 'trigger'), 'CREATE TRIGGER t BEFORE INSERT ON pg_temp.web_order FOR EACH ROW EXECUTE FUNCTION pg_temp.bait()')
{
	$own->query($plant);
}
is(charge($own, 'own'), $before, 'and for a caller with temporary objects of these names');
is(value($node, 'SELECT count(*) FROM shop.web_order'), '4', 'the rows are where they belong');
nothing_sprung($node, $size, 'the recipe');

# the traps are good: where it looks for temporary objects first, as every path does that does not say otherwise, they spring
$size = log_size($node);
value($node, 'ALTER FUNCTION api.charge SET search_path = shop, idem');
$own->query(q{SELECT set_config('request.headers', '{"idempotency-key": "\"control\""}', false)});
$own->query(q{SELECT api.charge('{"amount": 5}')});
my @sprung = sprung($node, $size);
cmp_ok(scalar(@sprung), '>', 0, 'without the last word of its path, they would spring');

$_->quit foreach $usual, $fresh, $own;
$node->stop;
done_testing();
