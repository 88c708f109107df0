-- Judge a round: every promise that histories, records and the outside together can show to be broken.
--
-- Times are the clients' (one machine, one clock).  An answer counts as known from the moment it, or the COMMIT of its
-- transaction, had come; a call is later than that only where it began after.  Of operations in scope async nothing is
-- promised across a crash but that rows and record agree; those in scope brief are forgotten after a while.
SET client_min_messages = warning;
SET work_mem = '128MB';
TRUNCATE history, record, ledger, violation;
\set load '\\copy history FROM ''' :folder '/history.tsv'''
:load
\set load '\\copy record FROM ''' :folder '/record.tsv'''
:load
\set load '\\copy ledger FROM ''' :folder '/ledger.tsv'''
:load
CREATE TEMP TABLE whole (duplicates bigint, fast bigint);
\set load '\\copy whole FROM ''' :folder '/whole.tsv'''
:load

-- ----- one row for each call -----

DROP TABLE IF EXISTS call, summary;
CREATE UNLOGGED TABLE call AS
	SELECT i.client, i.seq, i.txn, i.at AS t0, a.at AS t1, i.call, i.scope, i.op, i.item, coalesce(i.key, a.key) AS key,
			coalesce(a.attempt, i.attempt) AS attempt, coalesce(a.owner, i.owner) AS owner, i.asked,
			coalesce(a.answer, 'LOST') AS answer, a.replayed, i.result AS token, a.result, a.lease,
			CASE WHEN u.seq IS NOT NULL THEN 'undone' ELSE coalesce(t.answer, 'unknown') END AS fate, t.at AS t2
		FROM history AS i
		LEFT JOIN history AS a ON a.client = i.client AND a.seq = i.seq AND a.kind = 'A'
		LEFT JOIN history AS t ON t.client = i.client AND t.txn = i.txn AND t.kind = 'T'
		LEFT JOIN history AS u ON u.client = i.client AND u.seq = i.seq AND u.kind = 'U'
		WHERE i.kind = 'I' AND i.txn > 0;
CREATE INDEX ON call (key);
ANALYZE call;

-- the operations of this round, one for each key
CREATE TEMP TABLE op AS
	SELECT DISTINCT ON (c.key) c.key, c.op, c.item, c.scope, c.t0 AS signed, c.lease AS expires,
			c.scope IN ('opaque', 'queryable', 'idempotent', 'guarded') AS outside, c.scope NOT IN ('async', 'brief') AS kept
		FROM call AS c WHERE c.call = 'sign' AND c.answer = 'SIGNED' ORDER BY c.key;
CREATE UNIQUE INDEX ON op (key);

-- grants: by acquire, and by an execute that ran
CREATE TEMP TABLE granted AS
	SELECT c.* FROM call AS c
		WHERE c.call = 'acquire' AND c.answer = 'ACQUIRED' OR c.call = 'execute' AND c.answer = 'DONE' AND NOT c.replayed;
CREATE TEMP TABLE finished AS
	SELECT c.* FROM call AS c WHERE c.call IN ('commit', 'fail', 'fail_retryable', 'release', 'renew');
-- what a finished operation answered: whole results, of grants' ends too
CREATE TEMP TABLE told AS
	SELECT c.key, c.answer AS state, c.result, c.t0, c.t1 AS known, c.client, c.seq FROM call AS c
		WHERE c.call IN ('acquire', 'execute', 'status') AND c.answer IN ('DONE', 'FAILED') AND (c.replayed OR c.call = 'status')
	UNION ALL
	SELECT f.key, CASE f.call WHEN 'commit' THEN 'DONE' ELSE 'FAILED' END, f.result, f.t0, f.t2, f.client, f.seq FROM finished AS f
		WHERE f.call IN ('commit', 'fail') AND f.answer = 'OK' AND f.fate = 'committed'
	UNION ALL
	SELECT c.key, 'DONE', c.result, c.t0, c.t2, c.client, c.seq FROM call AS c
		WHERE c.call = 'execute' AND c.answer = 'DONE' AND NOT c.replayed AND c.fate = 'committed'
	UNION ALL
	SELECT c.key, c.asked, c.result, c.t0, c.t2, c.client, c.seq FROM call AS c
		WHERE c.call = 'reconcile' AND c.answer = 'OK' AND c.fate = 'committed' AND c.asked <> 'RETRY';
CREATE INDEX ON told (key);
-- within a block that reads its own commit nothing is known yet
DELETE FROM told AS t USING call AS c
	WHERE c.client = t.client AND c.seq = t.seq AND c.fate <> 'committed' AND EXISTS (SELECT FROM finished AS f
		WHERE f.client = c.client AND f.txn = c.txn AND f.key = c.key);
CREATE TEMP TABLE first_told AS SELECT t.key, min(t.known) AS known FROM told AS t GROUP BY t.key;
-- what allows one more attempt
CREATE TEMP TABLE allowed AS
	SELECT c.key, c.t0 FROM call AS c
		WHERE (c.call IN ('release', 'fail_retryable') OR c.call = 'reconcile' AND c.asked = 'RETRY')
		AND (c.answer = 'OK' AND c.fate IN ('committed', 'unknown') OR c.answer = 'LOST' OR c.answer LIKE '57P%');
CREATE TEMP TABLE effects AS SELECT e.* FROM effect AS e JOIN op USING (key) WHERE e.token IS NOT NULL;
CREATE INDEX ON effects (key);
ANALYZE;

-- ----- P1: one grant -----

INSERT INTO violation SELECT 'P1', 'two committed grants of one attempt', g.key FROM granted AS g
	JOIN op USING (key)
	WHERE g.fate = 'committed' AND g.call = 'acquire' AND op.kept
	AND NOT EXISTS (SELECT FROM finished AS f WHERE f.client = g.client AND f.txn = g.txn AND f.key = g.key
		AND f.call = 'release' AND f.answer = 'OK')
	GROUP BY g.key, g.attempt HAVING count(DISTINCT g.owner) > 1;
INSERT INTO violation SELECT 'P1', 'effects by two owners of one attempt', r.key FROM request AS r JOIN op USING (key)
	GROUP BY r.key, r.attempt HAVING count(DISTINCT r.owner) > 1;
INSERT INTO violation SELECT 'P1', 'duplicate effect in the ' || op.scope || ' downstream', e.key FROM effects AS e JOIN op USING (key)
	GROUP BY e.key, op.scope HAVING count(*) > 1;
INSERT INTO violation SELECT 'P1', 'two effects of one item under the repeat guard', min(e.key::text)::uuid FROM effects AS e JOIN op USING (key)
	WHERE op.scope = 'guarded' GROUP BY op.item HAVING count(*) > 1;
INSERT INTO violation SELECT 'P1', 'a key stands twice in the record' FROM whole WHERE duplicates > 0;

-- ----- P2, P3: the first result, for good -----

INSERT INTO violation SELECT 'P3', 'different answers of a finished operation', a.key
	FROM (SELECT t.key, t.state, t.result FROM told AS t
		UNION SELECT r.key, CASE r.state WHEN 'D' THEN 'DONE' ELSE 'FAILED' END, r.result FROM record AS r WHERE r.state IN ('D', 'F')) AS a
	JOIN op USING (key) WHERE op.scope <> 'async'
	GROUP BY a.key HAVING count(DISTINCT (a.state, a.result)) > 1;
INSERT INTO violation SELECT DISTINCT 'P2', 'a finished operation was granted again', g.key FROM granted AS g
	JOIN first_told AS f USING (key) JOIN op USING (key)
	WHERE op.scope <> 'async' AND g.t0 > f.known;
INSERT INTO violation SELECT DISTINCT 'P2', 'a finished operation answered ' || c.answer, c.key FROM call AS c
	JOIN first_told AS f USING (key) JOIN op USING (key)
	WHERE op.kept AND c.t0 > f.known AND (c.call IN ('acquire', 'execute') AND c.asked = 'honest' OR c.call = 'status')
	AND c.answer IN ('IN_FLIGHT', 'RECONCILE', 'RETRYABLE', 'NONE', 'EXPIRED', 'PARAM_MISMATCH', 'REPEAT', 'UNKNOWN');
INSERT INTO violation SELECT DISTINCT 'P2', 'the record of a finished operation is ' || coalesce(r.state::text, 'gone'), f.key
	FROM first_told AS f JOIN op USING (key) LEFT JOIN record AS r USING (key)
	WHERE op.kept AND (r.state IS NULL OR r.state NOT IN ('D', 'F'));
INSERT INTO violation SELECT 'P2', 'another result was taken for a finished operation', f.key FROM finished AS f
	WHERE f.asked = 'other' AND f.answer = 'OK';
INSERT INTO violation SELECT 'P2', 'a repeated call by the owner answered ' || f.answer, f.key FROM finished AS f JOIN op USING (key)
	WHERE f.asked = 'again' AND op.kept AND f.call IN ('commit', 'fail') AND f.answer IN ('NONE', 'NOT_OWNER', 'ALREADY')
	AND NOT EXISTS (SELECT FROM call AS c WHERE c.key = f.key AND c.call = 'reconcile');
INSERT INTO violation SELECT 'P2', 'a result that nobody brought', r.key FROM record AS r JOIN op USING (key)
	WHERE r.state IN ('D', 'F') AND op.scope NOT IN ('local', 'async', 'brief')
	AND NOT EXISTS (SELECT FROM call AS c WHERE c.key = r.key AND c.token = split_part(r.result, ':', 1));

-- ----- P4: who holds no grant changes nothing -----

INSERT INTO violation SELECT 'P4', f.call || ' with a token never granted answered ' || f.answer, f.key FROM finished AS f
	WHERE f.asked = 'stray' AND f.answer NOT IN ('NOT_OWNER', 'NONE', 'LOST') AND f.answer !~ '^(57|55P03|40P01)';
INSERT INTO violation SELECT DISTINCT 'P4', f.call || ' by the owner of an earlier attempt was taken', f.key FROM finished AS f
	JOIN granted AS g USING (key)
	WHERE f.answer = 'OK' AND f.fate = 'committed' AND f.call <> 'release' AND g.fate = 'committed'
	AND g.attempt > f.attempt AND g.t2 < f.t0 AND f.asked = 'holder';
INSERT INTO violation SELECT 'P4', 'a result with a token never granted', r.key FROM record AS r WHERE split_part(r.result, ':', 1) = 'stray';

-- ----- P5: unknown is not "go ahead" -----

INSERT INTO violation SELECT DISTINCT 'P5', 'attempt ' || g.attempt || ' without a verdict, a release or a retryable failure', g.key
	FROM granted AS g JOIN op USING (key)
	WHERE op.scope <> 'idempotent' AND op.scope <> 'async' AND g.attempt > 1 AND g.fate <> 'undone'
	AND g.attempt - 1 > (SELECT count(*) FROM allowed AS a WHERE a.key = g.key AND a.t0 < g.t1);
INSERT INTO violation SELECT DISTINCT 'P5', 'taken over while the lease was running', g.key FROM granted AS g JOIN op USING (key)
	JOIN granted AS b ON b.key = g.key AND b.attempt = g.attempt - 1 AND b.fate = 'committed' AND NOT b.replayed
	WHERE op.scope = 'idempotent' AND g.t1 < b.lease
	AND NOT EXISTS (SELECT FROM allowed AS a WHERE a.key = g.key AND a.t0 < g.t1);
INSERT INTO violation SELECT DISTINCT 'P5', 'a granted operation is forgotten: ' || c.call || ' answered ' || c.answer, c.key
	FROM call AS c JOIN op USING (key) JOIN granted AS g USING (key)
	WHERE op.outside AND g.call = 'acquire' AND g.fate = 'committed' AND g.t2 < c.t0
	AND NOT EXISTS (SELECT FROM finished AS f WHERE f.client = g.client AND f.txn = g.txn AND f.key = g.key)
	AND (c.call IN ('acquire', 'status', 'commit', 'fail', 'release', 'renew') AND c.answer IN ('NONE', 'EXPIRED', 'UNKNOWN')
		OR c.call = 'acquire' AND c.answer = 'ACQUIRED' AND c.attempt <= g.attempt AND c.owner <> g.owner);
INSERT INTO violation SELECT DISTINCT 'P5', 'no record of a committed grant', g.key FROM granted AS g
	JOIN op USING (key) LEFT JOIN record AS r USING (key)
	WHERE op.outside AND g.fate = 'committed' AND r.key IS NULL
	AND NOT EXISTS (SELECT FROM finished AS f WHERE f.client = g.client AND f.txn = g.txn AND f.key = g.key AND f.call = 'release');
INSERT INTO violation SELECT DISTINCT 'P5', 'an effect without a record', e.key FROM effects AS e LEFT JOIN record AS r USING (key)
	WHERE r.key IS NULL;
INSERT INTO violation SELECT 'P5', 'no effect, or another, of an operation that is done', r.key FROM record AS r JOIN op USING (key)
	WHERE r.state = 'D' AND op.outside
	AND NOT EXISTS (SELECT FROM effects AS e WHERE e.key = r.key AND e.token = split_part(r.result, ':', 1));
INSERT INTO violation SELECT DISTINCT 'P5', 'an effect of an operation that ' || CASE r.state WHEN 'F' THEN 'failed' ELSE 'was released' END, r.key
	FROM record AS r JOIN op USING (key) JOIN effects AS e USING (key)
	WHERE r.state = 'F' OR r.state = 'R' AND op.scope <> 'idempotent';
INSERT INTO violation SELECT 'P5', 'still in flight after all verdicts', r.key FROM record AS r JOIN op USING (key)
	WHERE r.state = 'I' AND r.downstream <> 'i';
INSERT INTO violation SELECT 'P5', 'status says ' || r.status || ' of a record in state ' || r.state::text, r.key FROM record AS r
	WHERE (r.state = 'D' AND r.status <> 'DONE' OR r.state = 'F' AND r.status <> 'FAILED' OR
		r.state = 'R' AND r.status <> 'RETRYABLE' OR r.state = 'I' AND r.status <> 'RETRYABLE')
	AND r.scope <> 'brief';

-- ----- P6: expired fingerprints start nothing -----

INSERT INTO violation SELECT DISTINCT 'P6', 'begun after its fingerprint had expired', g.key FROM granted AS g JOIN op USING (key)
	WHERE g.attempt = 1 AND NOT g.replayed AND g.t0 > op.expires;

-- ----- P7: wrong subject, scope, parameters; P10: revoked secrets -----

INSERT INTO violation SELECT 'P7', 'a wrong ' || c.asked || ' answered ' || c.answer, c.key FROM call AS c
	WHERE c.asked IN ('subject', 'scope', 'params')
	AND c.answer NOT IN (CASE c.asked WHEN 'subject' THEN 'SUBJECT_MISMATCH' WHEN 'scope' THEN 'SCOPE_MISMATCH' ELSE 'PARAM_MISMATCH' END, 'INVALID', 'LOST')
	AND c.answer !~ '^(57|40P01)';
INSERT INTO violation SELECT 'P7', 'a wrong ' || c.asked || ' was told of the record', c.key FROM call AS c
	WHERE c.asked IN ('subject', 'scope', 'params') AND (c.result IS NOT NULL OR c.attempt IS NOT NULL OR c.lease IS NOT NULL OR c.owner IS NOT NULL);
INSERT INTO violation SELECT 'P7', 'a fingerprint of a revoked secret answered ' || c.answer, c.key FROM call AS c
	WHERE c.asked = 'revoked' AND c.answer NOT IN ('INVALID', 'LOST');
INSERT INTO violation SELECT 'P7', 'a good fingerprint answered INVALID', c.key FROM call AS c JOIN op USING (key)
	WHERE c.answer = 'INVALID' AND NOT EXISTS (SELECT FROM history AS h
		LEFT JOIN history AS a ON a.client = 0 AND a.seq = h.seq AND a.kind = 'A'
		WHERE h.call = 'secret revoked' AND h.kind = 'I' AND h.at < c.t1 AND coalesce(a.at, h.at + 30000000) > op.signed);

-- ----- P8, P11: only what explains an error may cause it -----

INSERT INTO violation SELECT 'P8', 'the fast table holds claims of no transaction' FROM whole WHERE fast > 0;
CREATE TEMP TABLE trouble AS
	SELECT i.at - 1000000 AS since, coalesce(a.at, i.at + 30000000) + 1000000 AS until
		FROM history AS i LEFT JOIN history AS a ON a.client = 0 AND a.seq = i.seq AND a.kind = 'A'
		WHERE i.client = 0 AND i.kind = 'I' AND i.call LIKE 'fast%';
CREATE TEMP TABLE error AS
	SELECT c.client, c.txn, c.key, c.op, c.call, c.answer, c.t1 FROM call AS c WHERE c.answer ~ '^[0-9A-Z]{5}$'
	UNION ALL
	SELECT h.client, h.txn, NULL, NULL, 'COMMIT', h.answer, h.at FROM history AS h WHERE h.call = 'end' AND h.answer ~ '^[0-9A-Z]{5}$';
INSERT INTO violation SELECT 'P8', '40001 by ' || e.call || ' though nobody touched the fast table',
		coalesce(e.key, (SELECT min(c.key::text)::uuid FROM call AS c WHERE c.client = e.client AND c.txn = e.txn)) FROM error AS e
	WHERE e.answer = '40001'
	AND NOT EXISTS (SELECT FROM history AS h WHERE h.client = e.client AND h.txn = e.txn AND h.kind = 'T' AND h.asked = 'snapshot')
	-- nor may a transaction outlast the memory of its key
	AND NOT EXISTS (SELECT FROM call AS c WHERE c.client = e.client AND c.txn = e.txn AND c.scope = 'brief' AND e.t1 - c.t0 >= 2000000)
	AND NOT EXISTS (SELECT FROM trouble AS d WHERE e.t1 >= d.since AND d.until >=
		(SELECT min(h.at) FROM history AS h WHERE h.client = e.client AND h.txn = e.txn));
INSERT INTO violation SELECT 'P11', 'error ' || e.answer || ' by ' || e.call,
		coalesce(e.key, (SELECT min(c.key::text)::uuid FROM call AS c WHERE c.client = e.client AND c.txn = e.txn)) FROM error AS e
	WHERE e.answer !~ '^(40001|57|08|25P0|55P03|40P01)' AND e.answer NOT IN ('LOST', 'OK')
	-- the local claim that its holder forgot, an operator too early, a token brought twice, a time that has passed
	AND NOT (e.answer = '55000' AND (e.call = 'COMMIT' OR e.call = 'reconcile'))
	AND NOT (e.answer = '22023' AND e.call IN ('acquire', 'sign'));

-- ----- P9: rows and record together -----

INSERT INTO violation SELECT 'P9', 'rows of an operation stand ' || count(*) || ' times', NULL, l.op FROM ledger AS l
	GROUP BY l.op HAVING count(*) > 1;
INSERT INTO violation SELECT 'P9', 'rows without a record of what was done', op.key, op.op FROM ledger AS l JOIN op USING (op)
	LEFT JOIN record AS r USING (key)
	WHERE op.scope <> 'brief' AND (r.state IS NULL OR r.state <> 'D' OR split_part(r.result, ':', 1) <> l.token);
INSERT INTO violation SELECT 'P9', 'done, and its rows are missing', r.key, op.op FROM record AS r JOIN op USING (key)
	WHERE NOT op.outside AND r.state = 'D' AND NOT EXISTS (SELECT FROM ledger AS l WHERE l.op = op.op);
INSERT INTO violation SELECT 'P9', 'a local claim outlived its transaction', r.key FROM record AS r WHERE r.downstream = 'l' AND r.state = 'I';
INSERT INTO violation SELECT 'P9', 'a local claim was committed unfinished', g.key FROM granted AS g JOIN op USING (key)
	WHERE NOT op.outside AND g.call = 'acquire' AND g.fate = 'committed'
	AND NOT EXISTS (SELECT FROM finished AS f WHERE f.client = g.client AND f.txn = g.txn AND f.key = g.key AND f.answer = 'OK');

-- ----- figures -----

CREATE TABLE summary AS SELECT
	(SELECT count(*) FROM granted AS g WHERE g.fate = 'committed' AND NOT g.replayed) AS grants,
	(SELECT count(*) FROM granted AS g WHERE g.fate = 'committed' AND NOT g.replayed AND g.attempt > 1) AS continued,
	(SELECT count(*) FROM granted AS g JOIN op USING (key) WHERE op.scope = 'idempotent' AND g.fate = 'committed' AND NOT g.replayed
		AND g.attempt > 1 AND NOT EXISTS (SELECT FROM allowed AS a WHERE a.key = g.key)) AS takeovers,
	(SELECT count(*) FROM call AS c WHERE c.call = 'reconcile' AND c.answer = 'OK') AS verdicts,
	(SELECT count(*) FROM effects) AS effects,
	(SELECT count(*) - count(DISTINCT e.key) FROM effects AS e) AS duplicates,
	(SELECT count(*) FROM history) AS lines;
UPDATE violation SET op = o.op FROM op AS o WHERE violation.key = o.key AND violation.op IS NULL;
CREATE TABLE IF NOT EXISTS answers (call text, asked text, answer text, n bigint);
TRUNCATE answers;
INSERT INTO answers SELECT c.call, c.asked, c.answer, count(*) FROM call AS c GROUP BY 1, 2, 3;
