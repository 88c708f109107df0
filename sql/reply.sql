-- Replies: what a model is told of every outcome, in every language, and that none of it invites a second effect.
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS idem CASCADE;
RESET client_min_messages;
CREATE SCHEMA idem_test_reply;
SET search_path = idem_test_reply, public;
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

-- Every case that an outcome falls into, as a claim with all that it can carry. What callers brought is marked.
INSERT INTO idem_policy (scope, material, immaterial, confirm_with, poll_with, poll_after)
	VALUES ('regress reply', '{/amount,/items/*/sku}', '{/items/0/note}', 'charge_confirm', 'charge_status', '2.5 seconds');
CREATE TABLE cases (n serial, kind text, c idem_claim);
INSERT INTO cases (kind, c)
	SELECT kind, ROW(outcome, '0192f0c1-7e3a-7c11-8a5b-0d5c2f6e9a01', '0192f0c1-7e3a-4c11-8a5b-0d5c2f6e9a02', attempt, replayed, false,
			CASE WHEN kind <> 'NONE_UNSURE' THEN 'regress reply' END, 'CALLER subject',
			CASE WHEN finished THEN '{"paid": true, "note": "CALLER try again {wait} {poll_with}", "kept": null}'::jsonb END, CASE WHEN finished THEN 'CALLER ref' END,
			'2026-01-02 03:04:05Z', CASE WHEN finished IS NOT FALSE THEN timestamptz '2026-01-02 03:04:06Z' END, '2026-01-03 00:00:00Z', 'CALLER trace')::idem_claim
	FROM (VALUES
		('ACQUIRED', 'ACQUIRED', 1, false, false), ('ACQUIRED_AGAIN', 'ACQUIRED', 1, true, false), ('TAKEOVER', 'ACQUIRED', 2, false, false),
		('IN_FLIGHT', 'IN_FLIGHT', 1, false, false), ('DONE', 'DONE', 1, true, true), ('DONE_NOW', 'DONE', 1, false, true), ('FAILED', 'FAILED', 1, true, true),
		('RECONCILE', 'RECONCILE', 1, false, false), ('PARAM_MISMATCH', 'PARAM_MISMATCH', NULL, false, false), ('SUBJECT_MISMATCH', 'SUBJECT_MISMATCH', NULL, false, false),
		('SCOPE_MISMATCH', 'SCOPE_MISMATCH', NULL, false, false), ('EXPIRED', 'EXPIRED', NULL, false, false), ('INVALID', 'INVALID', NULL, false, false),
		('REPEAT', 'REPEAT', 1, false, true), ('REPEAT_OPEN', 'REPEAT', 1, false, false), ('NONE', 'NONE', NULL, false, false), ('NONE_UNSURE', 'NONE', NULL, false, false),
		('UNKNOWN', 'UNKNOWN', NULL, false, false), ('RETRYABLE', 'RETRYABLE', 1, false, false), ('ATTEMPT_FAILED', 'RETRYABLE', 1, false, true), ('RELEASED', 'RETRYABLE', 1, false, NULL)
	) AS v (kind, outcome, attempt, replayed, finished);

-- No outcome is missing
SELECT o AS missing FROM unnest(enum_range(NULL::idem_outcome)) AS o WHERE o NOT IN (SELECT (c).outcome FROM cases);

-- All outcomes x both languages x the reply
SELECT kind, idem_reply(c) ->> 'status' AS status, idem_reply(c) ->> 'retryable' AS retryable, idem_reply(c) ->> 'effect' AS effect,
	string_agg(k, ' ' ORDER BY k COLLATE "C") FILTER (WHERE k NOT IN ('status', 'meaning', 'instruction', 'retryable', 'effect', 'trace_id')) AS more
	FROM cases, jsonb_object_keys(idem_reply(c)) AS k GROUP BY n, kind, c ORDER BY n;
\pset format unaligned
\pset tuples_only on
SELECT E'\n' || kind || E'\nen: ' || (idem_reply(c, 'en') ->> 'meaning') || E'\n    ' || (idem_reply(c, 'en') ->> 'instruction')
	|| E'\nzh: ' || (idem_reply(c, 'zh') ->> 'meaning') || E'\n    ' || (idem_reply(c, 'zh') ->> 'instruction') FROM cases ORDER BY n;
-- whole replies
SELECT jsonb_pretty(idem_reply(c)) FROM cases WHERE kind IN ('IN_FLIGHT', 'DONE', 'PARAM_MISMATCH') ORDER BY n;
\pset format aligned
\pset tuples_only off

-- In every reply: the six members; no key, no owner, no subject
CREATE VIEW replies AS SELECT n, kind, lang, idem_reply(c, lang) AS r FROM cases, unnest(ARRAY['en', 'zh']) AS lang;
SELECT count(*) FROM replies;
SELECT kind, lang FROM replies WHERE NOT r ?& ARRAY['status', 'meaning', 'instruction', 'retryable', 'effect', 'trace_id']
	OR jsonb_typeof(r -> 'retryable') <> 'boolean' OR r ->> 'effect' NOT IN ('none', 'happened', 'unknown') OR r ->> 'meaning' = '' OR r ->> 'instruction' = ''
	OR r::text ~ '0192f0c1|CALLER subject' OR r ->> 'trace_id' <> 'CALLER trace';
-- codes are these, whatever the language, and stable
SELECT string_agg(DISTINCT r ->> 'status', ' ' ORDER BY r ->> 'status') FROM replies;
SELECT kind FROM replies GROUP BY kind HAVING count(DISTINCT r - ARRAY['meaning', 'instruction']) <> 1;
-- P11: what callers brought is in its own member, and enters no text; no place is left open
SELECT kind, lang FROM replies WHERE (r ->> 'meaning') || (r ->> 'instruction') ~ 'CALLER|[{}]';
SELECT DISTINCT r -> 'result' AS result, r ->> 'result_ref' AS ref FROM replies WHERE r ? 'result';

-- T26: what callers and receivers chose is named as data in every reply, and a text that speaks of it says that it is no instruction
SELECT r -> 'data' AS data, string_agg(DISTINCT kind, ' ' ORDER BY kind) AS kinds FROM replies GROUP BY 1 ORDER BY 1;
SELECT kind, lang FROM replies WHERE r -> 'data' IS DISTINCT FROM (SELECT jsonb_agg(k ORDER BY k COLLATE "C") FROM jsonb_object_keys(r) AS k WHERE r ->> k ~ 'CALLER');
SELECT kind, lang FROM replies WHERE (r ? 'result' OR r ->> 'instruction' ~ 'trace_id') AND r ->> 'instruction' !~ 'is information and not an instruction|只是信息，不是指令';
SELECT bool_or(idem_reply(jsonb_populate_record(c, '{"result": null, "result_ref": null, "trace_id": null}')) ? 'data') AS of_nothing FROM cases;

-- I01: where the effect may have happened, no sentence speaks of doing it again unless to forbid it
CREATE VIEW sentences AS
	SELECT kind, lang, r ->> 'effect' AS effect, trim(s) AS sentence
	FROM replies, regexp_split_to_table((r ->> 'meaning') || ' ' || (r ->> 'instruction'), CASE lang WHEN 'en' THEN '[.;:]( |$)' ELSE '[。；：]' END) AS s;
SELECT * FROM sentences WHERE effect <> 'none'
	AND sentence ~* '\m(again|re-?tr(y|ies|ied|ying)|once more|another (try|attempt)|resubmit|re-?send|re-?issue|repeat the|duplicate)\M|再次|重试|再试|重新|重发|再调|再来'
	AND sentence !~* '^(do not|never)\M|^(不要|先不要|切勿)';
-- and none speaks of retrying at all, or calls anything a duplicate
SELECT * FROM sentences WHERE sentence ~* '\mretr(y|ies)|try again|duplicate|重试|再试';
-- another preview, a way to do it twice, is forbidden, or left until it is certain that nothing happened; these are what else is said of previews
SELECT DISTINCT lang, sentence FROM sentences WHERE effect <> 'none' AND sentence ~* 'preview|预览' AND sentence !~* '^(do not|never)|^(不要|先不要)'
	AND sentence !~* '^only if|only if|^只有|preview''s|previewed|its preview|that carries|预览时|预览与|预览的|预览在' ORDER BY 1, 2;
-- an unknown effect is said to be unknown, or not told here
SELECT kind, lang, r ->> 'meaning' AS meaning FROM replies WHERE r ->> 'effect' = 'unknown'
	AND r ->> 'meaning' !~ 'unknown|not known|cannot be told|not told|tells nothing|did nothing|may have|without completing|未知|尚未确定|无法|不说明|不透露|没有执行任何操作|可能|没有完成';
-- RECONCILE and takeovers: the earlier outcome is unknown, and who must look
SELECT kind, lang FROM replies WHERE kind IN ('RECONCILE', 'TAKEOVER', 'ACQUIRED_AGAIN', 'UNKNOWN', 'RETRYABLE', 'ATTEMPT_FAILED')
	AND NOT (r ->> 'meaning' ~ 'unknown|未知' AND r ->> 'instruction' ~ 'operator|[Ww]hoever (holds|carries)|运维人员|执行方');
-- a repeat is for a person to decide
SELECT kind, lang FROM replies WHERE kind LIKE 'REPEAT%' AND r ->> 'instruction' !~ 'A person decides|由人决定';
-- nothing retryable but what goes on as the same operation
SELECT DISTINCT kind FROM replies WHERE (r ->> 'retryable')::bool ORDER BY kind;
-- only these say that it has happened, or that it has not
SELECT r ->> 'effect' AS effect, string_agg(DISTINCT kind, ' ' ORDER BY kind) FROM replies GROUP BY 1 ORDER BY 1;
-- released at the first attempt without a reason: its holder was certain that nothing happened
SELECT r ->> 'effect' AS effect FROM (SELECT idem_reply(ROW('RETRYABLE', NULL, NULL, a, false, false, 'regress reply', 's', reason, NULL, NULL, '2026-01-02', NULL, NULL)::idem_claim) AS r
	FROM (VALUES (1, NULL::jsonb), (2, NULL), (1, '"no"'), (1, 'null')) AS v (a, reason)) AS x;

-- The language: the argument, else idem.lang, else English
SET idem.lang = 'zh';
SELECT idem_reply(c) = idem_reply(c, 'zh') AS by_setting, idem_reply(c, 'en') <> idem_reply(c) AS by_argument FROM cases WHERE kind = 'DONE';
SET idem.lang = 'fr';
\echo :SQLSTATE
RESET idem.lang;
SHOW idem.lang;
SELECT l, raised(format('SELECT idem_reply(c, %L) FROM cases LIMIT 1', l)) FROM unnest(ARRAY['en', 'zh', 'EN', 'fr', '', 'en ', 'zhx', NULL]) AS l;
SELECT raised('SELECT idem_reply(NULL)') AS nothing, raised('SELECT idem_reply(NULL, NULL)') AS nothing_twice,
	raised('SELECT idem_reply(ROW(NULL,NULL,NULL,NULL,NULL,NULL,''s'',''u'',NULL,NULL,NULL,NULL,NULL,NULL)::idem_claim)') AS no_outcome;

-- What the policy does not say is said in other words; "*" holds for scopes without a row
SELECT r ->> 'instruction' AS instruction, r -> 'must_equal' AS must_equal, r -> 'may_differ' AS may_differ, r ? 'confirm_with' AS confirm_with
	FROM (SELECT idem_reply(ROW('PARAM_MISMATCH', NULL, NULL, NULL, false, false, 'regress reply none', 'u', NULL, NULL, NULL, NULL, NULL, NULL)::idem_claim, l) AS r
		FROM unnest(ARRAY['en', 'zh']) AS l) AS x;
CREATE FUNCTION members(material text[], immaterial text[], lang text DEFAULT 'en') RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	said text;
BEGIN
	UPDATE idem_policy SET (material, immaterial) = ROW(members.material, members.immaterial) WHERE scope = 'regress reply';
	INSERT INTO idem_guidance (outcome, scope, lang, meaning) VALUES ('PARAM_MISMATCH', 'regress reply', lang, '{members}');
	said := idem_reply(c, lang) ->> 'meaning' FROM cases WHERE kind = 'PARAM_MISMATCH';
	DELETE FROM idem_guidance;
	RETURN said;
END
$$;
SELECT members(NULL, NULL), members(NULL, '{/memo}'), members('{""}', NULL), members('{""}', '{/memo,/note}'), members('{/b,/a}', NULL), members('{/b,/a}', '{/b/c}');
SELECT members(NULL, NULL, 'zh'), members(NULL, '{/memo,/note}', 'zh'), members('{/b,/a}', '{/b/c}', 'zh');
-- many are not all named in a text, and a name is taken literally
SELECT members(ARRAY(SELECT '/m' || i FROM generate_series(1, 21) AS i), NULL), members('{"/{wait}","/%s"}', '{"/%s/%d"}');
UPDATE idem_policy SET material = '{/amount}', immaterial = NULL WHERE scope = 'regress reply';

-- How long to wait, in words and as a number
CREATE FUNCTION waits(poll_after interval, lang text DEFAULT 'en') RETURNS text LANGUAGE plpgsql AS $$
BEGIN
	UPDATE idem_policy SET poll_after = waits.poll_after WHERE scope = 'regress reply';
	RETURN (SELECT substring(idem_reply(c, lang) ->> 'instruction', '(?:Wait|等待) ([^,后]*)') || ' = ' || (idem_reply(c, lang) ->> 'poll_after_ms') FROM cases WHERE kind = 'IN_FLIGHT');
END
$$;
SELECT waits('2 seconds'), waits('1 second'), waits('0.25 seconds'), waits('1 microsecond'), waits('1 day'), waits('1 second', 'zh'), waits('100 years');

-- Texts of your own: the scope's before those for all, each text by itself, in that language only
INSERT INTO idem_guidance (outcome, scope, lang, meaning, instruction) VALUES
	('DONE', '*', 'en', 'for all', 'for all: {poll_with}'), ('DONE', 'regress reply', 'en', NULL, 'of the scope: {poll_with} {unknown} {'), ('TAKEOVER', '*', 'zh', '接手', NULL);
SELECT kind, lang, r ->> 'meaning' AS meaning, r ->> 'instruction' AS instruction FROM replies WHERE kind = 'DONE' OR kind = 'TAKEOVER' AND lang = 'zh' ORDER BY n, lang;
-- those for ACQUIRED do not hide that an earlier outcome is unknown
INSERT INTO idem_guidance (outcome, meaning) VALUES ('ACQUIRED', 'go ahead');
SELECT kind, r ->> 'meaning' AS meaning FROM replies WHERE kind IN ('ACQUIRED', 'TAKEOVER', 'ACQUIRED_AGAIN') AND lang = 'en' ORDER BY n;
SELECT what, left(raised('INSERT INTO idem_guidance (outcome, scope, lang, meaning) VALUES ' || what), 5) FROM unnest(ARRAY[
	'(''NO SUCH'', ''*'', ''en'', ''x'')', '(NULL, ''*'', ''en'', ''x'')', '(''DONE'', '''', ''en'', ''x'')', '(''FAILED'', ''*'', ''fr'', ''x'')', '(''FAILED'', ''*'', ''en'', NULL)', '(''FAILED'', ''*'', ''en'', '''')',
	'(''FAILED'', ''*'', ''en'', repeat(''x'', 4097))', '(''DONE'', ''*'', ''en'', ''x'')']) AS what;
DELETE FROM idem_guidance;
-- every kind that has a text can be overridden, and the other way round
SELECT kind, raised(format('INSERT INTO idem_guidance (outcome, meaning) VALUES (%L, ''x'')', kind)) FROM cases WHERE raised(format('INSERT INTO idem_guidance (outcome, meaning) VALUES (%L, ''x'')', kind)) <> 'nothing';
DELETE FROM idem_guidance;

-- P13: texts are found by the key, however many there are, whatever collation its columns were given
INSERT INTO idem_guidance (outcome, scope, meaning) SELECT 'DONE', 'regress many ' || i, 'of scope ' || i FROM generate_series(1, 2000) AS i;
BEGIN;
ALTER TABLE idem_guidance ALTER scope TYPE text COLLATE "default";
SELECT pg_stat_get_xact_numscans('idem_guidance'::regclass) AS scans \gset
SELECT idem_reply(ROW('DONE', NULL, NULL, 1, true, false, 'regress many 1234', 'u', NULL, NULL, NULL, NULL, NULL, NULL)::idem_claim) ->> 'meaning' AS meaning,
	idem_reply(ROW('DONE', NULL, NULL, 1, true, false, 'regress many 2001', 'u', NULL, NULL, NULL, NULL, NULL, NULL)::idem_claim) ->> 'meaning' AS ours;
SELECT pg_stat_get_xact_numscans('idem_guidance'::regclass) - :scans AS whole_scans;
ROLLBACK;
DELETE FROM idem_guidance;
-- and nothing is read from a table that is not what the script made
CREATE FUNCTION altered(statement text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	state text; message text; hint text;
BEGIN
	EXECUTE statement;
	PERFORM idem_reply(c) FROM cases LIMIT 1;
	RAISE 'it is read';
EXCEPTION WHEN OTHERS THEN
	GET STACKED DIAGNOSTICS state = RETURNED_SQLSTATE, message = MESSAGE_TEXT, hint = PG_EXCEPTION_HINT;
	RETURN concat_ws(' | ', state, message, CASE WHEN hint = '' THEN 'NO HINT' END);
END
$$;
SELECT s, altered(s) FROM unnest(ARRAY['ALTER TABLE idem_guidance ADD author text', 'ALTER TABLE idem_guidance ALTER meaning TYPE bytea USING NULL', 'ALTER TABLE idem_guidance DROP CONSTRAINT idem_guidance_pkey',
	'ALTER TABLE idem_guidance DROP CONSTRAINT idem_guidance_pkey, ADD PRIMARY KEY (scope, outcome, lang)', 'ALTER TABLE idem_guidance DROP CONSTRAINT idem_guidance_pkey, ADD PRIMARY KEY (outcome, scope, lang)',
	'CREATE TABLE child () INHERITS (idem_guidance)', 'CREATE RULE r AS ON INSERT TO idem_guidance DO NOTHING', 'ALTER TYPE idem_claim ADD ATTRIBUTE more int CASCADE', 'ALTER TYPE idem_claim RENAME ATTRIBUTE key TO name CASCADE']) AS s;
SELECT idem_reply(c) ->> 'status' AS status FROM cases LIMIT 1;

-- Real claims, each step in a transaction of its own: first run, replay, failure, a second attempt, mismatches
CREATE FUNCTION pay(p jsonb) RETURNS jsonb LANGUAGE sql AS $$ SELECT '{"paid": true}'::jsonb $$;
SELECT idem_reply(idem_execute('regress ann', 'regress reply', '{"amount": 1}', 'pay(jsonb)')) ->> 'meaning' AS first;
SELECT idem_reply(idem_execute('regress ann', 'regress reply', '{"amount": 1}', 'pay(jsonb)')) - 'finished_at' AS replay;
SELECT c.key, c.owner FROM idem_acquire_direct('regress ann', 'regress reply', '{"amount": 2}', 'order-2') AS c \gset
SELECT idem_reply(c) ->> 'status' AS running FROM idem_acquire_direct('regress ann', 'regress reply', '{"amount": 2}', 'order-2') AS c;
-- I03, P7: other parameters learn nothing of the first ones
SELECT idem_reply(c) AS changed FROM idem_acquire_direct('regress ann', 'regress reply', '{"amount": 98765}', 'order-2') AS c;
SELECT idem_fail(:'key', :'owner', '{"no": "CALLER try again"}', true);
SELECT idem_reply(c) - 'finished_at' AS left_open FROM idem_status_key(:'key', 'regress ann') AS c;
SELECT idem_reply(c) ->> 'effect' AS effect, idem_reply(c) ->> 'meaning' AS second_attempt FROM idem_acquire_direct('regress ann', 'regress reply', '{"amount": 2}', 'order-2') AS c;
-- P7: another subject is told the same whether or not there is a record
SELECT (SELECT idem_reply(c) FROM idem_status_key(:'key', 'regress bob') AS c) = (SELECT idem_reply(c) FROM idem_status_key('0192f0c1-7e3a-7c11-8a5b-0d5c2f6e9aff', 'regress bob') AS c) AS same;
SELECT idem_reply(c) ->> 'status' AS status, idem_reply(c) ->> 'effect' AS effect FROM idem_status_key(:'key', 'regress bob') AS c;
-- a fingerprint that has begun nothing is certain of that
SELECT idem_reply(c) ->> 'status' AS status, idem_reply(c) ->> 'effect' AS effect, idem_reply(c) ->> 'retryable' AS retryable
	FROM idem_status(idem_sign('regress ann', 'regress reply', '{"amount": 3}'), 'regress ann') AS c;
-- E, I: what is no fingerprint
SELECT idem_reply(c) ->> 'status' AS status, idem_reply(c) ->> 'effect' AS effect FROM unnest(ARRAY[NULL, '', 'abc', repeat('A', 5000)]) AS t, LATERAL idem_status(t, 'regress ann') AS c;
-- I04: a reworded memo is no change where memos are not material, and named where it is
SELECT idem_sign('regress ann', 'regress reply', '{"amount": 4, "memo": "a"}') AS fp, idem_sign('regress ann', 'regress memo', '{"amount": 4, "memo": "a"}') AS fp_all \gset
SELECT idem_commit(c.key, c.owner, '{"n": 4}') FROM idem_acquire(:'fp', 'regress ann', 'regress reply', '{"amount": 4, "memo": "a"}') AS c;
SELECT idem_reply(c) ->> 'status' AS reworded FROM idem_acquire(:'fp', 'regress ann', 'regress reply', '{"amount": 4, "memo": "b"}') AS c;
SELECT idem_reply(c) ->> 'status' AS reworded, idem_reply(c) -> 'must_equal' AS must_equal FROM idem_acquire(:'fp_all', 'regress ann', 'regress memo', '{"amount": 4, "memo": "b"}') AS c;

-- Who may: signers and callers, with no right on the tables it reads, whatever the search path
CREATE ROLE regress_idem_reply;
GRANT USAGE ON SCHEMA public, idem_test_reply TO regress_idem_reply;
GRANT SELECT ON cases TO regress_idem_reply;
SET ROLE regress_idem_reply;
SELECT idem_reply(c) FROM cases LIMIT 1;
RESET ROLE;
SELECT idem_grant('regress_idem_reply', 'caller');
SET ROLE regress_idem_reply;
SET search_path = '';
SELECT public.idem_reply(c) ->> 'status' AS status FROM idem_test_reply.cases WHERE n = 1;
SELECT * FROM public.idem_guidance;
RESET ROLE;
SET search_path = idem_test_reply, public;
SET client_min_messages = warning;
SELECT idem_revoke('regress_idem_reply', 'caller');
DROP OWNED BY regress_idem_reply;
DROP ROLE regress_idem_reply;
DELETE FROM idem_policy WHERE scope = 'regress reply';
DELETE FROM idem_record;
DELETE FROM idem_alert;
DROP SCHEMA idem_test_reply CASCADE;
