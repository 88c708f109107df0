-- HTTP: statuses, headers and bodies (RFC 9457), and the Idempotency-Key header (RFC 8941; I01, I03).
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS idem CASCADE;
RESET client_min_messages;
CREATE SCHEMA idem_test_http;
SET search_path = idem_test_http, public;
SET timezone = 'UTC';

CREATE FUNCTION raised(statement text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	state text; message text; hint text;
BEGIN
	EXECUTE statement;
	RETURN 'nothing';
EXCEPTION WHEN OTHERS THEN
	GET STACKED DIAGNOSTICS state = RETURNED_SQLSTATE, message = MESSAGE_TEXT, hint = PG_EXCEPTION_HINT;
	RETURN concat_ws(' | ', state, message, CASE WHEN hint = '' THEN 'NO HINT' END);
END
$$;
-- a claim of an outcome, with a trace; a time where there is a result
CREATE FUNCTION claim(outcome text, attempt int DEFAULT NULL, replayed bool DEFAULT false, result jsonb DEFAULT NULL, result_ref text DEFAULT NULL, scope text DEFAULT 'regress http') RETURNS idem_claim LANGUAGE sql AS $$
	SELECT ROW(outcome, '0192f0c1-7e3a-7c11-8a5b-0d5c2f6e9a01', '0192f0c1-7e3a-4c11-8a5b-0d5c2f6e9a02', attempt, replayed, false, scope, 'regress ann',
		result, result_ref, NULL, CASE WHEN result IS NOT NULL THEN timestamptz '2026-01-02 03:04:06Z' END, NULL, 'trace-1')::idem_claim
$$;
INSERT INTO idem_policy (scope, material, confirm_with, poll_with, poll_after) VALUES ('regress http', '{/amount}', 'charge_confirm', 'charge_status', '1.2 seconds');
CREATE TABLE cases (n serial, what text, c idem_claim);
INSERT INTO cases (what, c) VALUES
	('granted', claim('ACQUIRED', 1)), ('granted again', claim('ACQUIRED', 1, true)), ('taken over', claim('ACQUIRED', 2)), ('in flight', claim('IN_FLIGHT', 1)),
	('replay', claim('DONE', 1, true, '{"id": 7, "none": null}', 'ch_7')), ('first run', claim('DONE', 1, false, '{"id": 7, "none": null}')), ('replay without result', claim('DONE', 1, true, NULL, 'ch_7')),
	('failed', claim('FAILED', 1, true, '{"declined": true}')), ('reconcile', claim('RECONCILE', 1)), ('other parameters', claim('PARAM_MISMATCH')), ('other subject', claim('SUBJECT_MISMATCH')),
	('other scope', claim('SCOPE_MISMATCH')), ('expired', claim('EXPIRED')), ('invalid', claim('INVALID')), ('repeat', claim('REPEAT', 1, false, '{"id": 7}')), ('repeat of one at work', claim('REPEAT', 1)),
	('not begun', claim('NONE')), ('not on record', claim('NONE', scope => NULL)), ('standby', claim('UNKNOWN')), ('lease over', claim('RETRYABLE', 1)),
	('attempt failed', ROW('RETRYABLE', NULL, NULL, 1, false, false, 'regress http', 'regress ann', '"busy"', NULL, NULL, '2026-01-02 03:04:06Z', NULL, 'trace-1')), ('released', ROW('RETRYABLE', NULL, NULL, 1, false, false, 'regress http', 'regress ann', NULL, NULL, NULL, '2026-01-02 03:04:06Z', NULL, 'trace-1'));
SELECT o AS missing FROM unnest(enum_range(NULL::idem_outcome)) AS o WHERE o NOT IN (SELECT (c).outcome FROM cases);

-- Every outcome: status, headers, type
CREATE VIEW answers AS SELECT n, what, c, h.* FROM cases, LATERAL idem_http(c) AS h;
SELECT what, status, body ->> 'type' AS type, (SELECT string_agg(k || ': ' || v, '; ' ORDER BY k) FROM jsonb_array_elements(headers) AS e, jsonb_each_text(e) AS t (k, v) WHERE k NOT IN ('Cache-Control', 'Content-Language')) AS headers
	FROM answers ORDER BY n;
-- headers are as PostgREST takes them: an array of objects with one text each; nothing is to be cached, and none carries what a caller brought
SELECT what FROM answers, jsonb_array_elements(headers) AS e WHERE jsonb_typeof(headers) <> 'array' OR (SELECT count(*) FROM jsonb_each(e)) <> 1 OR (SELECT bool_or(jsonb_typeof(v) <> 'string') FROM jsonb_each(e) AS x (k, v));
SELECT what FROM answers WHERE NOT headers @> '[{"Cache-Control": "no-store"}]' OR headers::text ~ 'trace|ann|ch_7';
-- a refusal is a problem: type, title, status, detail, and the reply with its code
SELECT what FROM answers WHERE status >= 400 AND (NOT body ?& ARRAY['type', 'title', 'status', 'detail', 'code', 'meaning', 'instruction', 'retryable', 'effect', 'trace_id']
	OR (body -> 'status')::int <> status OR body ->> 'code' <> idem_reply(c) ->> 'status' OR body - ARRAY['type', 'title', 'status', 'detail', 'code'] <> idem_reply(c) - 'status' OR NOT headers @> '[{"Content-Type": "application/problem+json"}]');
SELECT what FROM answers WHERE status < 400 AND (body ? 'type' OR NOT headers @> '[{"Content-Type": "application/json"}]');
-- T26: what callers and receivers chose is named as data, but in a first answer, which is theirs alone
SELECT what, body -> 'data' AS data FROM answers WHERE what IN ('in flight', 'replay', 'replay without result', 'failed', 'not on record') ORDER BY n;
-- each outcome has a type of its own
SELECT body ->> 'type' AS type FROM answers WHERE status >= 400 GROUP BY 1 HAVING count(DISTINCT (c).outcome) > 1;
-- P3: a replay's body is the first result as it was; without one it is the reply
SELECT what, body, headers @> '[{"Idempotent-Replayed": "true"}]' AS replayed FROM answers WHERE what IN ('replay', 'first run', 'replay without result') ORDER BY n;
\pset format unaligned
\pset tuples_only on
SELECT jsonb_pretty(body) FROM answers WHERE what IN ('in flight', 'failed', 'reconcile') ORDER BY n;
SELECT status, headers, body FROM idem_http(claim('INVALID'), 'zh');
\pset format aligned
\pset tuples_only off
-- titles in both languages
SELECT what, en.body ->> 'title' AS en, zh.body ->> 'title' AS zh FROM cases, LATERAL idem_http(c, 'en') AS en, LATERAL idem_http(c, 'zh') AS zh WHERE en.status >= 400 ORDER BY n;

-- A reason that is an HTTP failure itself is replayed with its status, and with nothing else of it outside result
SELECT left(r::text, 40) AS reason, h.status, h.body ->> 'type' AS type, h.body ->> 'title' AS title, h.body -> 'result' = r AS kept FROM unnest(ARRAY['{"status": 402, "type": "x", "title": "y"}', '{"status": 503}', '{"status": 200}', '{"status": 302}', '{"status": 600}',
	'{"status": 400.5}', '{"status": 4e2}', '{"status": "402"}', '{"status": 1e400}', '{"status": null}', '[402]', '402', 'null']::jsonb[]) AS r, LATERAL idem_http(claim('FAILED', 1, true, r)) AS h;

-- How long to wait, in whole seconds, never none
UPDATE idem_policy SET poll_after = '1 microsecond' WHERE scope = 'regress http';
SELECT headers -> -1 AS wait FROM idem_http(claim('IN_FLIGHT', 1));
UPDATE idem_policy SET poll_after = '3 seconds' WHERE scope = 'regress http';
SELECT headers -> -1 AS wait FROM idem_http(claim('IN_FLIGHT', 1));

-- Within PostgREST
CREATE FUNCTION confirm(header text, amount int) RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
	claim idem_claim;
	answer record;
BEGIN
	claim := idem_acquire_direct('regress ann', 'regress http', jsonb_build_object('amount', amount), idem_http_key(header));
	IF claim.outcome = 'ACQUIRED' THEN
		PERFORM idem_commit(claim.key, claim.owner, jsonb_build_object('charged', amount));
		RETURN jsonb_build_object('charged', amount);
	END IF;
	answer := idem_http(claim);
	PERFORM set_config('response.status', answer.status::text, true), set_config('response.headers', answer.headers::text, true);
	RETURN answer.body;
END
$$;
BEGIN;
SELECT confirm('"order-1"', 7), current_setting('response.status', true) AS status;
COMMIT;
BEGIN;
SELECT confirm(' "order-1"', 7), current_setting('response.status') AS status, current_setting('response.headers') AS headers;
SELECT confirm('"order-1"', 8) ->> 'code' AS code, current_setting('response.status') AS status;
COMMIT;
SELECT raised($$SELECT confirm('order-1', 7)$$) AS malformed, raised('SELECT confirm(NULL, 7)') AS missing;

-- The header's value
SELECT h, idem_http_key(h) AS key FROM unnest(ARRAY['"a"', '  "a b"  ', '"\""', '"\\"', '"a\"b\\c"', '" "', '"8e03978e-40d5-43dd-bc93-6894a57f9324"', '"!#[]^~;,="', '"\\\\\""']) AS h;
SELECT h, raised(format('SELECT idem_http_key(%L)', h)) FROM unnest(ARRAY[NULL, '', ' ', '"', '""', 'a', '8e03978e-40d5-43dd-bc93-6894a57f9324', '"a', 'a"', '"a"b"', '"a" "b"', '"a", "b"', '"a"; q=1', '"\a"', '"a\"', '"\\\"',
	E'"a\tb"', E'"a\nb"', E'\t"a"', E'"a"\n', E'"a\x7f"', '"é"', '“a”', '''a''', ':YQ==:', '?1', '"a\']) AS h;
-- P11: of any length
SELECT length(idem_http_key('"' || repeat('a', 1000000) || '"')) AS long, raised($$SELECT idem_http_key('"' || repeat('\', 1000001) || '"')$$) AS odd, length(idem_http_key('"' || repeat('\', 1000000) || '"')) AS even;
-- what is read is what was written
SELECT count(*) FROM (SELECT string_agg(chr(32 + (get_byte(sha256((n || ':' || i)::text::bytea), 0) * 95 / 256)), '' ORDER BY i) AS k FROM generate_series(1, 300) AS n, generate_series(1, 20) AS i GROUP BY n) AS x
	WHERE idem_http_key('"' || regexp_replace(k, '(["\\])', '\\\1', 'g') || '"') = k;

-- Bad arguments, languages
SELECT raised('SELECT idem_http(NULL)') AS nothing, raised($$SELECT idem_http(claim('DONE'), 'fr')$$) AS language;
SET idem.lang = 'zh';
SELECT headers @> '[{"Content-Language": "zh"}]' AS by_setting FROM idem_http(claim('INVALID'));
RESET idem.lang;

-- Who may: signers and callers, whatever the search path
CREATE ROLE regress_idem_http;
GRANT USAGE ON SCHEMA public, idem_test_http TO regress_idem_http;
SET ROLE regress_idem_http;
SELECT idem_http(claim('DONE'));
SELECT idem_http_key('"a"');
RESET ROLE;
SELECT idem_grant('regress_idem_http', 'signer');
SET ROLE regress_idem_http;
SET search_path = '';
SELECT (public.idem_http(ROW('DONE', NULL, NULL, NULL, true, NULL, 'regress http', NULL, '{"id": 7}', NULL, NULL, NULL, NULL, NULL)::public.idem_claim)).status, public.idem_http_key('"a"');
RESET ROLE;
SET search_path = idem_test_http, public;
SET client_min_messages = warning;
DROP OWNED BY regress_idem_http;
DROP ROLE regress_idem_http;
DELETE FROM idem_policy WHERE scope LIKE 'regress %';
DELETE FROM idem_record;
DELETE FROM idem_alert;
DROP SCHEMA idem_test_http CASCADE;
