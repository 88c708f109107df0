-- Previews: a fingerprint and how to confirm it, likely repeats, and what models do to a token when they copy it.
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS idem CASCADE;
RESET client_min_messages;
CREATE SCHEMA idem_test_preview;
SET search_path = idem_test_preview, public;
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
INSERT INTO idem_policy (scope, material, confirm_with, poll_with, repeat_guard) VALUES
	('regress preview', '{/amount,/payee}', 'charge_confirm', 'charge_status', NULL),
	('regress guarded', '{/amount,/payee}', 'charge_confirm', 'charge_status', '1 hour');

-- What a preview says
\pset format unaligned
\pset tuples_only on
SELECT jsonb_pretty(idem_preview('regress ann', 'regress preview', '{"amount": 80, "payee": "acct_7", "memo": "CALLER"}') - ARRAY['fingerprint', 'expires_at']);
SET idem.lang = 'zh';
SELECT jsonb_pretty(idem_preview('regress ann', 'regress preview', '{"amount": 80, "payee": "acct_7", "memo": "CALLER"}') - ARRAY['fingerprint', 'expires_at']);
RESET idem.lang;
-- a scope of which nothing is known
SELECT idem_preview('regress ann', 'regress other', '{"amount": 80}') - ARRAY['fingerprint', 'expires_at'];
\pset format aligned
\pset tuples_only off

-- The fingerprint is the one that idem_sign makes, and the time is its own
SELECT i.valid, i.subject, i.scope, i.confirmed_repeat, i.param_hash = idem_param_hash('regress preview', '{"amount": 80, "payee": "acct_7"}') AS same_parameters,
	i.expires_at = (p ->> 'expires_at')::timestamptz AS same_time, i.expires_at > clock_timestamp() AND i.expires_at <= clock_timestamp() + '15 minutes' AS in_time
	FROM idem_preview('regress ann', 'regress preview', '{"amount": 80, "payee": "acct_7", "memo": 1}') AS p, idem_inspect(p ->> 'fingerprint') AS i;
SELECT i.confirmed_repeat, i.expires_at = (p ->> 'expires_at')::timestamptz AS same_time, i.expires_at <= clock_timestamp() + '5 seconds' AS sooner
	FROM idem_preview('regress ann', 'regress preview', '{"amount": 80}', clock_timestamp() + '5 seconds', true) AS p, idem_inspect(p ->> 'fingerprint') AS i;
-- nothing is written
SELECT count(*) FROM idem_audit WHERE scope LIKE 'regress %';
BEGIN READ ONLY;
SELECT idem_preview('regress ann', 'regress guarded', '{"amount": 80}') ->> 'status' AS status, pg_current_xact_id_if_assigned();
COMMIT;

-- E, I: copied as models copy: forgiven at the ends, and there alone
CREATE TABLE copied (n serial, how text, before text, after text);
INSERT INTO copied (how, before, after) VALUES ('as it is', '', ''), ('white space', E' \t\n', E'\r\n'), ('quotes', '"', '"'), ('apostrophes', '''', ''''), ('backticks', '`', '`'), ('a code block', E'```\n', E'\n```'),
	('the end of a sentence', '', '.'), ('a quote at the end of one', '`"', '".'), ('a full stop before', '.', ''), ('two full stops', '', '..'), ('angle brackets', '<', '>'), ('its name', 'fingerprint: ', ''),
	('curly quotes', '“', '”'), ('a comma', '', ','), ('Bearer', 'Bearer ', ''), ('padding', '', '='), ('a wide full stop', '', '。'), ('no-break space', U&'\00A0', '');
SELECT idem_preview('regress ann', 'regress preview', '{"amount": 1}') ->> 'fingerprint' AS fp \gset
SELECT idem_commit(c.key, c.owner, '{"n": 1}') FROM idem_acquire(:'fp', 'regress ann', 'regress preview', '{"amount": 1}') AS c;
SELECT how, idem_reply(c) ->> 'status' AS status FROM copied, LATERAL idem_acquire(before || :'fp' || after, 'regress ann', 'regress preview', '{"amount": 1}') AS c ORDER BY n;
-- in the middle nothing is: cut short, a blank or a line break in it, case changed, two in one
SELECT how, idem_reply(c) ->> 'status' AS status FROM (VALUES ('cut short', left(:'fp', -1)), ('first letter lost', substr(:'fp', 2)), ('a blank', overlay(:'fp' placing ' ' from 9 for 0)),
	('a line break', overlay(:'fp' placing E'\n' from 77 for 0)), ('lower case', lower(:'fp')), ('an ellipsis', left(:'fp', 40) || '...'), ('twice', :'fp' || ' ' || :'fp'), ('without signature', split_part(:'fp', '.', 1))) AS v (how, t),
	LATERAL idem_acquire(t, 'regress ann', 'regress preview', '{"amount": 1}') AS c;
-- changed after all: the members to keep are named, no value is (I03, I04)
SELECT idem_reply(c) ->> 'status' AS status, idem_reply(c) -> 'must_equal' AS must_equal, idem_reply(c)::text ~ '987654' AS tells
	FROM idem_acquire(:'fp', 'regress ann', 'regress preview', '{"amount": 987654}') AS c;
SELECT idem_reply(c) ->> 'status' AS status FROM idem_acquire(:'fp', 'regress bob', 'regress preview', '{"amount": 1}') AS c;
SELECT idem_reply(c) ->> 'status' AS status FROM idem_acquire(:'fp', 'regress ann', 'regress guarded', '{"amount": 1}') AS c;

-- A likely repeat: a model that has lost its memory previews again
SELECT idem_preview('regress ann', 'regress guarded', '{"amount": 5, "payee": "x"}') ->> 'fingerprint' AS first \gset
SELECT c.key, c.owner FROM idem_acquire(:'first', 'regress ann', 'regress guarded', '{"amount": 5, "payee": "x"}', trace_id => 'trace-5') AS c \gset
-- while the first is at work, its outcome is unknown
SELECT p ->> 'status' AS status, p ->> 'effect' AS effect, p ->> 'retryable' AS retryable, p ? 'fingerprint' AS fingerprint, p ->> 'trace_id' AS trace
	FROM idem_preview('regress ann', 'regress guarded', '{"amount": 5.0, "payee": "x", "memo": "reworded"}') AS p;
SELECT idem_commit(:'key', :'owner', '{"charged": 5}', 'ch_5');
-- and then it has happened: its result is shown, and no fingerprint, key or owner
SELECT p - 'finished_at' AS repeat, p ? 'finished_at' AS time, p::text ~ :'key' OR p::text ~ :'owner' AS leaks FROM idem_preview('regress ann', 'regress guarded', '{"amount": 5, "payee": "x"}') AS p;
-- something else, or somebody else, is no repeat
SELECT idem_preview('regress ann', 'regress guarded', '{"amount": 6, "payee": "x"}') ->> 'status' AS other_amount, idem_preview('regress bob', 'regress guarded', '{"amount": 5, "payee": "x"}') ->> 'status' AS other_subject,
	idem_preview('regress ann', 'regress preview', '{"amount": 5, "payee": "x"}') ->> 'status' AS other_scope;
-- a person has said yes: signed as confirmed, and granted
SELECT p ->> 'status' AS status, i.confirmed_repeat FROM idem_preview('regress ann', 'regress guarded', '{"amount": 5, "payee": "x"}', confirm_repeat => true) AS p, idem_inspect(p ->> 'fingerprint') AS i;
SELECT idem_reply(c) ->> 'status' AS unconfirmed, c.owner IS NULL AS not_granted FROM idem_acquire(idem_sign('regress ann', 'regress guarded', '{"amount": 5, "payee": "x"}'), 'regress ann', 'regress guarded', '{"amount": 5, "payee": "x"}') AS c;
SELECT idem_preview('regress ann', 'regress guarded', '{"amount": 5, "payee": "x"}', confirm_repeat => true) ->> 'fingerprint' AS second \gset
SELECT idem_reply(c) ->> 'status' AS confirmed FROM idem_acquire(:'second', 'regress ann', 'regress guarded', '{"amount": 5, "payee": "x"}') AS c;
-- one that failed is no repeat
SELECT idem_preview('regress ann', 'regress guarded', '{"amount": 7}') ->> 'fingerprint' AS failing \gset
SELECT idem_fail(c.key, c.owner, '"no"') FROM idem_acquire(:'failing', 'regress ann', 'regress guarded', '{"amount": 7}') AS c;
SELECT idem_preview('regress ann', 'regress guarded', '{"amount": 7}') ->> 'status' AS after_failure;
-- T7: what is planted in the schema beside ours is reached by none of them
CREATE FUNCTION public.idem_sign(text, text, jsonb, timestamptz, bool, int DEFAULT 0) RETURNS text LANGUAGE sql AS $$ SELECT 'planted' $$;
CREATE FUNCTION public.idem_reply_default(text, text, int DEFAULT 0) RETURNS record LANGUAGE sql AS $$ SELECT NULL::record $$;
CREATE FUNCTION public.idem_reply_kind(public.idem_claim, int DEFAULT 0) RETURNS text LANGUAGE sql AS $$ SELECT 'planted' $$;
CREATE FUNCTION public.idem_compose_reply(public.idem_claim, text, text, int DEFAULT 0) RETURNS jsonb LANGUAGE sql AS $$ SELECT '"planted"'::jsonb $$;
SELECT idem_reply(c) ->> 'status' AS reply, (SELECT status FROM idem_http(c)) AS http FROM CAST(ROW('EXPIRED', NULL, NULL, NULL, false, false, 'regress guarded', 'u', NULL, NULL, NULL, NULL, NULL, NULL) AS idem_claim) AS c;
CREATE FUNCTION public.idem_reply(public.idem_claim, text DEFAULT NULL, int DEFAULT 0) RETURNS jsonb LANGUAGE sql AS $$ SELECT '"planted"'::jsonb $$;
DISCARD PLANS;
SELECT p ->> 'status' AS preview, p ->> 'fingerprint' LIKE '%.%' AS signed, idem_preview('regress ann', 'regress guarded', '{"amount": 5, "payee": "x"}') ->> 'status' AS repeat FROM idem_preview('regress ann', 'regress guarded', '{"amount": 8, "payee": "x"}') AS p;
DROP FUNCTION public.idem_sign(text, text, jsonb, timestamptz, bool, int), public.idem_reply_default(text, text, int), public.idem_reply_kind(public.idem_claim, int), public.idem_compose_reply(public.idem_claim, text, text, int),
	public.idem_reply(public.idem_claim, text, int);
-- the guard is off
UPDATE idem_policy SET repeat_guard = NULL WHERE scope = 'regress guarded';
SELECT idem_preview('regress ann', 'regress guarded', '{"amount": 5, "payee": "x"}') ->> 'status' AS unguarded;

-- Bad arguments are refused as by idem_sign
SELECT a, raised('SELECT idem_preview(' || a || ')') FROM unnest(ARRAY['NULL, ''s'', ''{}''', '''u'', NULL, ''{}''', '''u'', ''s'', NULL', ''''', ''s'', ''{}''', '''u'', repeat(''s'', 256), ''{}''',
	'''u'', ''regress preview'', ''{"memo": 1}''', '''u'', ''s'', ''{}'', ''-infinity''', '''u'', ''s'', ''{}'', NULL, NULL', '''u'', ''s'', ''{}'', ''infinity'', false']) AS a;

-- Who may: signers, with no right on the tables it reads, whatever the search path
CREATE ROLE regress_idem_preview;
GRANT USAGE ON SCHEMA public TO regress_idem_preview;
SET ROLE regress_idem_preview;
SELECT idem_preview('u', 's', '{}');
RESET ROLE;
SELECT idem_grant('regress_idem_preview', 'caller');
SET ROLE regress_idem_preview;
SELECT idem_preview('u', 's', '{}');
RESET ROLE;
SELECT idem_grant('regress_idem_preview', 'signer');
SET ROLE regress_idem_preview;
SET search_path = '';
SELECT public.idem_preview('u', 's', '{}') ->> 'status' AS status;
RESET ROLE;
SET search_path = idem_test_preview, public;
SET client_min_messages = warning;
DROP OWNED BY regress_idem_preview;
DROP ROLE regress_idem_preview;
DELETE FROM idem_policy WHERE scope LIKE 'regress %';
DELETE FROM idem_record;
DELETE FROM idem_alert;
DROP SCHEMA idem_test_preview CASCADE;
