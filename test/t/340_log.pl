# The log lines of alerts: what callers chose stays in its own field, on its own line, and steers no terminal (P7), and
# a long one is cut between characters.
use strict;
use warnings;

use Encode ();
use Test::More;
use IdemTest;

my $node = idem_node('log');

# What was logged of alerts while some statements ran: text without an operation's key
sub details
{
	my @statements = @_;
	my $size = log_size($node);
	value($node, $_) foreach @statements;
	my @found = log_since($node, $size) =~ /DETAIL:  Operation [0-9a-f-]{36}, (.*)/g;
	return @found;
}

# T24
subtest 'a label is a JSON string, in which controls are escaped' => sub {
	my @found = details(q{SELECT outcome FROM idem_acquire(idem_sign(E'x", subject "ceo": {}\r\n\x1b\u202e\u2028\u009b\\\\', E'a\x1b]0', '1'), E'b\x7f"', E'a\x1b]0', '1')});
	is_deeply(\@found, [
			'scope "a\u001b]0", subject "x\", subject \"ceo\": {}\u000d\u000a\u001b\u202e\u2028\u009b\\\\":'
			  . ' {"call": "idem_acquire()", "subject": "b\u007f\""}' ],
		'scope, subject and the caller\'s own');

	# one of each that is escaped, with its neighbours that are not
	@found = details(q{SELECT outcome FROM idem_acquire(idem_sign('x', 'y', '1'),
		(SELECT string_agg(chr(c), '' ORDER BY c) FROM unnest('{1,9,31,32,126,127,128,159,160,1563,1564,1565,8205,8206,8207,8208,8231,8232,8233,8234,8238,8239,8293,8294,8297,8298,65278,65279,65280}'::int[]) AS c), 'y', '1')});
	my $subject = '\u0001\u0009\u001f ~\u007f\u0080\u009f' . chr(160) . chr(1563) . '\u061c' . chr(1565) . chr(8205) . '\u200e\u200f' . chr(8208)
	  . chr(8231) . '\u2028\u2029\u202a\u202e' . chr(8239) . chr(8293) . '\u2066\u2069' . chr(8298) . chr(65278) . '\ufeff' . chr(65280);
	is(Encode::decode('UTF-8', $found[0]), 'scope "y", subject "x": {"call": "idem_acquire()", "subject": "' . $subject . '"}', 'each kind of character');
};

value($node, q{INSERT INTO idem_policy (scope, downstream) VALUES ('late', 'idempotent')});

# What is logged where who held an operation until another took over brings a result
sub late
{
	my ($n, $result) = @_;
	my $old = '00000000-0000-4000-8000-' . sprintf('%012d', $n);
	return details(
		qq{SELECT outcome FROM idem_acquire_direct('alice', 'late', '$n', owner => '$old', holder => E'h\\x1b"1')},
		q{UPDATE idem_record SET lease_until = '2020-01-01' WHERE scope = 'late' AND state = 'I'},
		qq{SELECT outcome FROM idem_acquire_direct('alice', 'late', '$n')},
		qq{SELECT idem_commit(idem_key('alice', 'late', '$n'), '$old', $result)});
}

# T24
subtest 'holders, results and their names too' => sub {
	my ($takeover, $late) = late(1, q{jsonb_build_object(E'k\u202e', E'v\u2028"', 'n', 1e2)});
	like($takeover, qr/"holder": "h\\u001b\\"1"/, 'the former holder');
	like($late, qr/"result": \{"n": 100, "k\\u202e": "v\\u2028\\""\}/, 'a late result');
};

# M12
subtest 'a long result is cut between characters' => sub {
	foreach my $letters (0 .. 3)
	{
		my (undef, $late) = late(10 + $letters, "to_jsonb(repeat('a', $letters) || repeat(chr(28450), 2000))");
		my $shown = eval { Encode::decode('UTF-8', $late, Encode::FB_CROAK | Encode::LEAVE_SRC) };
		ok(defined $shown, "$letters letters before them: valid UTF-8");
		like($shown // '', qr/"a{$letters}\x{6F22}{300,350} \(cut\)$/, 'and cut');
	}
};

$node->stop;
done_testing();
