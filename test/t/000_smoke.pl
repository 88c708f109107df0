# The extension can be created, dropped and created again, and the test session keeps its word.
use strict;
use warnings;

use Test::More;
use IdemTest;

my $node = idem_node('smoke');

is(value($node, "SELECT extversion FROM pg_catalog.pg_extension WHERE extname = 'idem'"),
	'1.0', 'the extension is there');
value($node, 'DROP EXTENSION idem');
value($node, 'CREATE EXTENSION idem');
is(value($node, "SELECT count(*) FROM pg_catalog.pg_extension WHERE extname = 'idem'"),
	'1', 'dropped and created again');

my $s = session($node);
is($s->query_ok('SELECT 6 * 7'), '42', 'a session answers');
$s->query('SELECT 1 / 0');
is($s->sqlstate, '22012', 'and tells the SQLSTATE of an error');

$s->query_ok('BEGIN');
$s->query_ok('SELECT pg_catalog.pg_advisory_xact_lock(1)');
my $t = session($node);
$t->send('SELECT pg_catalog.pg_advisory_lock(1)');
wait_blocked($node, $t);
ok($t->busy, 'one session waits for another');
$t->cancel;
$t->wait;
is($t->sqlstate, '57014', 'and can be cancelled');
$t->send('SELECT pg_catalog.pg_advisory_lock(1)');
wait_blocked($node, $t);
$s->query_ok('COMMIT');
$t->wait;
is($t->sqlstate, '00000', 'or gets what it waited for');

$t->send('SELECT pg_catalog.pg_sleep(600)');
$t->terminate;
$t->wait;
is($t->sqlstate, '08006', 'a lost connection is noticed');
$t->quit;

my $size = log_size($node);
is((psql_error($node, 'SELECT 1 / 0'))[0], '22012', 'an error in a connection of its own');
like(log_since($node, $size), qr/division by zero/, 'stands in the log');

crash_and_start($node);
$s->query('SELECT 1');
is($s->sqlstate, '08006', 'a crash ends every session');
$s->quit;
is(value($node, 'SELECT 1'), '1', 'and the server comes back');

$node->stop;
done_testing();
