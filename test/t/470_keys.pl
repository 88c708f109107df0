# Keys, scopes and subjects as the indexes see them: by bytes, whatever the database's collation, and of a bounded
# length, refused at the door beyond it (P7, P11; G10, G11).
use strict;
use warnings;

use Test::More;
use IdemTest;

my $node = idem_node('keys', autovacuum => 'off');

subtest 'a database whose collation ignores case and accents (G10)' => sub {
	my ($rc, $out, $err) = $node->psql('postgres',
		q{CREATE DATABASE loose TEMPLATE template0 ENCODING 'UTF8' LOCALE_PROVIDER icu ICU_LOCALE 'und-u-ks-level1'});
	plan skip_all => "this PostgreSQL has no ICU: $err" if $rc != 0;
	value($node, q{
		SET client_min_messages = warning;
		CREATE EXTENSION idem CASCADE;
		CREATE EXTENSION amcheck;
		CREATE COLLATION loose (provider = icu, locale = 'und-u-ks-level1', deterministic = false)}, 'loose');
	is(value($node, q{SELECT 'A' COLLATE loose = 'a' COLLATE loose}, 'loose'), 't', 'it does');
	my @labels = ('a', 'A', "\x{c3}\x{a4}", "a\x{cc}\x{88}", "\x{c3}\x{84}", 'aa', "a\x{c2}\x{ad}");
	my %key;
	foreach my $label (@labels)
	{
		foreach my $call (
			[ 'scope', "('s', '$label' COLLATE loose, '{}')" ],
			[ 'subject', "('$label' COLLATE loose, 's', '{}')" ],
			[ 'client key', "('s', 's', '{}', '$label' COLLATE loose)" ],
			[ 'parameters', "('s', 'p', jsonb_build_object('name', '$label'))" ])
		{
			my ($what, $arguments) = @$call;
			my ($outcome, $key) = split /\|/, value($node, "SELECT outcome, key FROM idem_acquire_direct$arguments", 'loose');
			is($outcome, 'ACQUIRED', "$what " . unpack('H*', $label) . ': of its own');
			$key{$key}++;
		}
		value($node, "INSERT INTO idem_policy (scope) VALUES ('$label')", 'loose');
	}
	is(scalar(keys %key), 4 * @labels, 'no two keys are the same');
	is(value($node, 'SELECT count(*) FROM idem_policy', 'loose'), scalar(@labels), 'nor two policies');
	is(value($node, q{
			SELECT count(*) FROM pg_index AS i, unnest(i.indcollation) AS c JOIN pg_collation AS k ON k.oid = c
				WHERE i.indrelid::regclass::text ~ '^idem_' AND k.collname <> 'C'}, 'loose'), 0, 'no index depends on a collation library');
	is(value($node, q{SELECT count(bt_index_check(indexrelid, true)::text) > 5 FROM pg_index WHERE indrelid::regclass::text ~ '^idem_' AND indrelid <> 'idem_fast'::regclass}, 'loose'),
		't', 'amcheck finds no fault');
};

subtest 'labels that do not compress (G11)' => sub {
	value($node, q{
		CREATE FUNCTION noise(bytes int) RETURNS text LANGUAGE sql VOLATILE AS $$
			SELECT left(string_agg(encode(sha256(convert_to(n::text || random(), 'UTF8')), 'hex'), ''), bytes) FROM generate_series(1, bytes / 64 + 1) AS n
		$$;
		CREATE FUNCTION state_of(call text) RETURNS text LANGUAGE plpgsql AS $$
		DECLARE
			answer text;
		BEGIN
			EXECUTE call INTO answer;
			RETURN answer;
		EXCEPTION WHEN OTHERS THEN
			RETURN sqlstate;
		END
		$$});
	my %call = (
		'subject' => q{SELECT outcome FROM idem_acquire_direct(noise(%d), 's', '{}')},
		'scope' => q{SELECT outcome FROM idem_acquire_direct('s', noise(%d), '{}')},
		'client key' => q{SELECT outcome FROM idem_acquire_direct('s', 's', '{}', noise(%d))},
		'holder' => q{SELECT outcome FROM idem_acquire_direct('s', noise(20), '{}', holder => noise(%d))},
		'trace' => q{SELECT outcome FROM idem_acquire_direct('s', noise(20), '{}', trace_id => noise(%d))},
		'signed subject' => q{SELECT 'ACQUIRED' FROM idem_sign(noise(%d), 's', '{}')},
		'signed scope' => q{SELECT 'ACQUIRED' FROM idem_sign('s', noise(%d), '{}')},
		'status subject' => q{SELECT outcome FROM idem_status_key(gen_random_uuid(), noise(%d))},
		'result reference' => q{SELECT idem_commit(gen_random_uuid(), gen_random_uuid(), '1', noise(%d))});
	foreach my $what (sort keys %call)
	{
		my ($limit, @answers) = (255);
		foreach my $size (255, 2_700, 10_000, 1_000_000)
		{
			my $answer = value($node, 'SELECT state_of($$' . sprintf($call{$what}, $size) . '$$)');
			push @answers, $answer;
		}
		like($answers[0], qr/^(ACQUIRED|NONE)$/, "$what of 255 bytes: taken");
		unlike("@answers", qr/54000|XX000/, "$what: no index entry is too large (@answers)");
		is($answers[3], '22023', "$what of 1 MB: refused at the door");
	}
	# parameters may be as long as they like: they are hashed
	is(value($node, q{SELECT outcome FROM idem_acquire_direct('s', 'long', jsonb_build_object('a', noise(1000000)))}), 'ACQUIRED', 'parameters of 1 MB');
	is(value($node, q{SELECT state_of($$SELECT outcome FROM idem_acquire(noise(1000000), 's', 's', '{}')$$)}), 'INVALID', 'a token of 1 MB is INVALID');
	value($node, q{INSERT INTO idem_policy (scope) VALUES ('x')});
	is(value($node, q{SELECT state_of($$INSERT INTO idem_policy (scope) VALUES (noise(10000)) RETURNING 'ACQUIRED'$$)}), '23514', 'a policy\'s scope of 10 kB');
};

$node->stop;
done_testing();
