# R15: calls beside REINDEX INDEX CONCURRENTLY of the primary keys, which puts another index in the place of the one that
# a call has just looked up: no call ever fails (P11).
use strict;
use warnings;

use PostgreSQL::Test::Utils;
use Test::More;
use IdemTest;

my $node = idem_node('reindex');
my $folder = PostgreSQL::Test::Utils::tempdir();

append_to_file("$folder/calls.sql", <<'EOS');
SELECT idem_commit(c.key, c.owner, to_jsonb(1)) FROM idem_acquire_direct(CAST(chr(97) AS text), CAST(chr(98) AS text), to_jsonb(1), CAST(gen_random_uuid() AS text)) AS c;
EOS

my $reindexes = session($node);
$reindexes->send(join("\n", map { "REINDEX INDEX CONCURRENTLY idem_record_pkey; REINDEX INDEX CONCURRENTLY idem_fast_pkey;" } 1 .. 60));
my ($out, $err) = ('', '');
my $ok = IPC::Run::run([ 'pgbench', '-n', '-c', 4, '-j', 2, '-t', 15000, '-f', "$folder/calls.sql", 'postgres', '-h', $node->host, '-p', $node->port ],
	'<', '/dev/null', '>', \$out, '2>', \$err);
ok($ok, 'no call fails beside REINDEX CONCURRENTLY') or diag($err);
$reindexes->wait;
is($reindexes->error, '', 'nor does a REINDEX');
is(value($node, 'SELECT count(*) FROM idem_record'), 60000, 'and each operation is on record');
$reindexes->quit;
$node->stop;
done_testing();
