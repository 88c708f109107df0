-- Tell of the violations: how many of each kind, and of the first of each the history.
SELECT v.promise || ': ' || v.what || ' (' || count(*) || ' times)' FROM violation AS v GROUP BY v.promise, v.what ORDER BY min(v.promise), 1;
CREATE TEMP TABLE shown AS
	SELECT DISTINCT ON (v.promise, v.what) v.promise, v.what, v.key, v.op FROM violation AS v ORDER BY v.promise, v.what, v.key;
SELECT s.promise || ': ' || s.what || E'\n' ||
		'  operation ' || coalesce(s.op::text, '?') || ', key ' || coalesce(s.key::text, '?') || E'\n' || coalesce((
	SELECT string_agg(line, E'\n' ORDER BY at) FROM (
		SELECT c.t0 AS at, format('  %s %s..%s client %s/%s %s%s attempt %s owner %s: %s%s %s, %s',
				to_char(to_timestamp(c.t0 / 1000000.0), 'HH24:MI:SS.US'), '', to_char(to_timestamp(c.t1 / 1000000.0), 'SS.US'),
				c.client, c.txn, c.call, ' (' || c.asked || ')', c.attempt, left(c.owner::text, 8), c.answer,
				CASE WHEN c.replayed THEN ' replayed' END, coalesce(c.result, c.token), c.fate) AS line
			FROM call AS c WHERE c.key = s.key OR c.op = s.op
		UNION ALL
		SELECT h.at, format('  %s client %s %s %s attempt %s: %s', to_char(to_timestamp(h.at / 1000000.0), 'HH24:MI:SS.US'), h.client,
				h.call, left(h.owner::text, 8), h.attempt, h.answer)
			FROM history AS h WHERE h.kind = 'I' AND h.txn = 0 AND h.key = s.key
		UNION ALL
		SELECT h.at, format('  %s (%s)', to_char(to_timestamp(h.at / 1000000.0), 'HH24:MI:SS.US'), h.call)
			FROM history AS h WHERE h.client = 0 AND h.kind = 'I' AND h.asked IS NULL
			AND h.at BETWEEN (SELECT min(c.t0) FROM call AS c WHERE c.key = s.key OR c.op = s.op)
				AND (SELECT max(c.t1) FROM call AS c WHERE c.key = s.key OR c.op = s.op)
		UNION ALL
		SELECT 1e18::bigint, format('  record: state %s attempt %s result %s', r.state, r.attempt, r.result) FROM record AS r WHERE r.key = s.key
		UNION ALL
		SELECT 1e18::bigint, format('  outside: attempt %s owner %s token %s', e.attempt, left(e.owner::text, 8), e.token) FROM effect AS e WHERE e.key = s.key
		UNION ALL
		SELECT 1e18::bigint, format('  ledger: token %s', l.token) FROM ledger AS l WHERE l.op = s.op
	) AS lines), '')
FROM shown AS s LIMIT 6;
