-- What the worst inputs of each function cost in memory (P11), on a server that counts what it takes from malloc.
-- Sizes alone decide here, never a clock. A row of the view verdict is one test.
\set ON_ERROR_STOP on
SET client_min_messages = warning;
CREATE EXTENSION idem CASCADE;
CREATE FUNCTION bounds_start() RETURNS void LANGUAGE c AS :'module';
CREATE FUNCTION bounds_peak() RETURNS bigint LANGUAGE c AS :'module';
CREATE FUNCTION bounds_calls() RETURNS bigint LANGUAGE c AS :'module';
CREATE FUNCTION echo(jsonb) RETURNS jsonb LANGUAGE sql AS 'SELECT $1';

-- Runs a statement that returns a number. state: its SQLSTATE; peak: how many bytes more than before were held at
-- once; calls: how often memory was asked for.
CREATE FUNCTION measured(statement text, OUT state text, OUT result bigint, OUT peak bigint, OUT calls bigint) LANGUAGE plpgsql AS $$
BEGIN
	PERFORM bounds_start();
	BEGIN
		EXECUTE statement INTO result;
		state := '00000';
	EXCEPTION WHEN OTHERS THEN
		state := SQLSTATE;
	END;
	peak := bounds_peak();
	calls := bounds_calls();
END
$$;

-- Inputs, as they come out of a table, not compressed: size is what they take
CREATE TABLE input (name text, j jsonb, size bigint, canonical bigint);
ALTER TABLE input ALTER j SET STORAGE EXTERNAL;
INSERT INTO input (name, j) VALUES
	('a string of 2 MB', to_jsonb(repeat('x', 2000000))),
	('300000 control characters', to_jsonb(repeat(E'\u0001', 300000))),
	('3000 times 1e131071', (SELECT jsonb_agg('1e131071'::numeric) FROM generate_series(1, 3000))),
	('5 numbers of 100000 digits', (SELECT jsonb_agg(repeat('7', 100000)::numeric) FROM generate_series(1, 5))),
	('40000 members', (SELECT jsonb_object_agg('member ' || n, n) FROM generate_series(1, 40000) AS n)),
	('20000 members of one letter', (SELECT jsonb_object_agg(chr(n + 20000), true) FROM generate_series(1, 20000) AS n)),
	('80000 elements', (SELECT jsonb_agg(n % 10) FROM generate_series(1, 80000) AS n)),
	('1000 names of 1 kB', (SELECT jsonb_object_agg(repeat('x', 1000) || n, 1) FROM generate_series(1, 1000) AS n)),
	('2000 arrays in one another', (repeat('[', 2000) || repeat(']', 2000))::jsonb),
	('40000 empty objects', (SELECT jsonb_agg('{}'::jsonb) FROM generate_series(1, 40000))),
	('nothing', '{}');
UPDATE input SET size = pg_column_size(j), canonical = octet_length(idem_canonical(NULL, j));

-- Calls that take all of it. A call may hold four times what goes in, its canonical form and what comes out, and 1 MB; one
-- that makes a new value of jsonb (builds) as much as PostgreSQL's own functions need for that: some hundred bytes for each
-- empty array or object, which is one of four or eight bytes. And as many pieces of memory for little as for much
CREATE TABLE call (name text, takes text, builds bool GENERATED ALWAYS AS (name ~ 'late|reconcile|reply|http') STORED);
INSERT INTO call (name, takes) VALUES
	('idem_canonical', 'octet_length(idem_canonical(NULL, j)) FROM input'),
	('idem_param_hash', 'octet_length(idem_param_hash(NULL, j)) FROM input'),
	('idem_key', 'pg_column_size(idem_key(''alice'', ''bounds'', j)) FROM input'),
	('idem_sign', 'octet_length(idem_sign(''alice'', ''bounds'', j)) FROM input'),
	('idem_preview', 'pg_column_size(idem_preview(''alice'', ''bounds'', j)) FROM input'),
	('idem_acquire', 'pg_column_size(idem_acquire(idem_sign(''alice'', ''bounds'', ''1''), ''alice'', ''bounds'', j)) FROM input'),
	('idem_acquire_direct', 'pg_column_size(idem_acquire_direct(''alice'', ''bounds direct'', j)) FROM input'),
	('idem_execute', 'pg_column_size((idem_execute(''alice'', ''bounds execute'', j, ''echo(jsonb)'')).result) FROM input'),
	('idem_execute, replayed', 'pg_column_size((idem_execute(''alice'', ''bounds execute'', j, ''echo(jsonb)'')).result) FROM input'),
	('idem_commit', 'pg_column_size(idem_commit(c.key, c.owner, j)) FROM input, LATERAL (SELECT * FROM idem_acquire_direct(''alice'', ''bounds commit'', what(name)) OFFSET 0) AS c'),
	('idem_commit, late', 'pg_column_size(idem_commit(c.key, gen_random_uuid(), j)) FROM input, LATERAL (SELECT * FROM idem_acquire_direct(''alice'', ''bounds commit'', what(name)) OFFSET 0) AS c'),
	('idem_fail', 'pg_column_size(idem_fail(c.key, c.owner, j)) FROM input, LATERAL (SELECT * FROM idem_acquire_direct(''alice'', ''bounds fail'', what(name)) OFFSET 0) AS c'),
	('idem_status_key', 'pg_column_size((idem_status_key(idem_key(''alice'', ''bounds fail'', what(name)), ''alice'')).result) FROM input'),
	('idem_reconcile', 'pg_column_size(idem_reconcile(c.key, ''DONE'', ''x'', j, force => true)) FROM input, LATERAL (SELECT * FROM idem_acquire_direct(''alice'', ''bounds reconcile'', what(name)) OFFSET 0) AS c'),
	('idem_reply', 'pg_column_size(idem_reply(c)) FROM input, LATERAL (SELECT * FROM idem_acquire_direct(''alice'', ''bounds commit'', what(name)) OFFSET 0) AS c'),
	('idem_http', 'pg_column_size(idem_http(c)) FROM input, LATERAL (SELECT * FROM idem_acquire_direct(''alice'', ''bounds fail'', what(name)) OFFSET 0) AS c');

-- the operation of an input; another one where the stack is small
CREATE FUNCTION what(name text) RETURNS jsonb STABLE LANGUAGE sql AS $$ SELECT to_jsonb(name || current_setting('max_stack_depth')) $$;

-- Values that are refused: nothing of them is fetched
CREATE TABLE long (t text, b bytea, k uuid, p jsonb);
ALTER TABLE long ALTER t SET STORAGE EXTERNAL, ALTER b SET STORAGE EXTERNAL;
INSERT INTO long VALUES (repeat('x', 20000000), decode(repeat('ab', 20000000), 'hex'), gen_random_uuid(), '1');
CREATE TABLE refusal (call text);
INSERT INTO refusal VALUES
	('idem_sign(t, ''x'', p)'), ('idem_sign(''x'', t, p)'), ('idem_preview(t, ''x'', p)'), ('idem_preview(''x'', t, p)'), ('idem_key(t, ''x'', p)'), ('idem_key(''x'', t, p)'), ('idem_key(''x'', ''x'', p, t)'),
	('idem_canonical(t, p)'), ('idem_param_hash(t, p)'), ('idem_downstream_key(k, t)'),
	('idem_acquire(t, ''x'', ''x'', p)'), ('idem_acquire(''x'', t, ''x'', p)'), ('idem_acquire(''x'', ''x'', t, p)'), ('idem_acquire(''x'', ''x'', ''x'', p, holder => t)'), ('idem_acquire(''x'', ''x'', ''x'', p, trace_id => t)'),
	('idem_acquire_direct(t, ''x'', p)'), ('idem_acquire_direct(''x'', t, p)'), ('idem_acquire_direct(''x'', ''x'', p, t)'), ('idem_acquire_direct(''x'', ''x'', p, holder => t)'), ('idem_acquire_direct(''x'', ''x'', p, trace_id => t)'),
	('idem_commit(k, k, p, t)'), ('idem_status(t, ''x'')'), ('idem_status(''x'', t)'), ('idem_status_key(k, t)'), ('idem_inspect(t)'),
	('idem_execute(t, ''x'', p, ''echo(jsonb)'')'), ('idem_execute(''x'', t, p, ''echo(jsonb)'')'), ('idem_execute(''x'', ''x'', p, ''echo(jsonb)'', t)'), ('idem_execute(''x'', ''x'', p, ''echo(jsonb)'', client_key => t)'), ('idem_execute(''x'', ''x'', p, ''echo(jsonb)'', trace_id => t)'),
	('idem_reconcile(k, t, ''x'')'), ('idem_reconcile(k, ''DONE'', t)'), ('idem_reconcile(k, ''DONE'', ''x'', result_ref => t)'), ('idem_import_secret(b)');

CREATE TABLE verdict (ok bool, test text, detail text);
-- the first calls of a session fill its caches
SELECT count(*) FROM call AS c, measured(format('SELECT %s WHERE name = ''nothing''', c.takes)) \g /dev/null
DELETE FROM idem_record;

INSERT INTO verdict
SELECT state = '00000' AND peak <= CASE WHEN NOT builds THEN 4 WHEN i.name ~ 'empty|another' THEN 300 ELSE 25 END * (size + canonical + result) + 1048576 AND calls <= 1000, c.name || ': ' || i.name,
		format('%s; in %s, canonical %s, out %s: held %s in %s pieces', state, size, canonical, result, peak, calls)
	FROM call AS c, input AS i, measured(format('SELECT %s WHERE name = %L', c.takes, i.name)) WHERE i.name <> 'nothing';
INSERT INTO verdict
SELECT state IN ('22023', '00000') AND (state = '22023' OR r.call ~ '^idem_(acquire|status|inspect|execute)') AND peak <= 1048576, 'not fetched: ' || r.call, format('%s: held %s of 20 MB', state, peak)
	FROM refusal AS r, measured(format('SELECT octet_length((%s)::text) FROM long', r.call));

-- Results' sizes
INSERT INTO verdict
SELECT size <= allowed, 'canonical form: ' || name, format('%s bytes, %s allowed', size, allowed) FROM (VALUES
	('an exponent is written as one', octet_length(idem_canonical(NULL, '1e131071')), 9),
	('a small one too', octet_length(idem_canonical(NULL, to_jsonb('1e-16000'::numeric))), 8),
	('a control character has six bytes at most', octet_length(idem_canonical(NULL, to_jsonb(repeat(E'\u0001', 1000)))), 6002),
	('digits are what was given', octet_length(idem_canonical(NULL, to_jsonb(repeat('7', 131072)::numeric))), 131100),
	('zeros are dropped', octet_length(idem_canonical(NULL, ('1.' || repeat('0', 16000))::jsonb)), 1)) AS t (name, size, allowed);
INSERT INTO verdict
SELECT CASE what WHEN 'control characters' THEN state = '22023' ELSE result <= 4096 END, 'a fingerprint of the longest labels: ' || what, state || ' ' || coalesce(result, 0) FROM (VALUES
	('letters', 'x'), ('control characters', E'\u0001'), ('quotes', '"')) AS t (what, c), measured(format('SELECT octet_length(idem_sign(%1$L, %1$L, ''1''))', repeat(c, 255)));

-- The greatest lists of pointers: checked, kept and followed in their own size; more is refused
CREATE TABLE lists AS SELECT array_agg('/' || rpad(n::text, 1022, 'x')) AS long, array_agg('/a' || n || repeat('/*', 500)) AS wild FROM generate_series(1, 1000) AS n;
INSERT INTO verdict
SELECT state = '00000' AND peak <= 128 * 1048576, 'lists: ' || name, format('%s: held %s for 1 MB', state, peak) FROM (VALUES
	('the version of 1000 pointers of 1 kB', 'SELECT idem_list_version(long, NULL) FROM lists'),
	('the version of 1000 pointers of 500 wildcards', 'SELECT idem_list_version(wild, NULL) FROM lists')) AS t (name, statement), measured(statement);
INSERT INTO idem_policy (scope, material) SELECT 'long lists', long FROM lists;
INSERT INTO idem_policy (scope, material) SELECT 'wild lists', wild FROM lists;
INSERT INTO verdict
SELECT peak <= 128 * 1048576, 'lists: ' || scope || ' of a policy, read and followed', format('%s: held %s', state, peak) FROM unnest(ARRAY['long lists', 'wild lists']) AS scope,
	measured(format('SELECT octet_length(idem_canonical(%L, ''{"a1": [[[[[1]]]]]}''))', scope));
INSERT INTO verdict
SELECT state = '22023', 'refused: ' || statement, state FROM unnest(ARRAY[
	'SELECT idem_list_version(long || long, NULL) FROM lists', 'SELECT idem_list_version(ARRAY[''/'' || repeat(''x'', 1024)], NULL)']) AS statement, measured(statement);
INSERT INTO verdict
SELECT state = '23514', 'refused: a policy with a long ' || name, state FROM unnest(ARRAY['scope', 'confirm_with', 'poll_with']) AS name,
	measured(format('INSERT INTO idem_policy (scope, %s) VALUES (''bounds'', repeat(''x'', 256)) RETURNING 1', CASE name WHEN 'scope' THEN 'entry, scope' ELSE name END))
	WHERE name <> 'scope';

-- A stack that is too small is an error, in every function that follows its argument down, and the session goes on
SET max_stack_depth = '100kB';
INSERT INTO verdict
SELECT state IN ('54001', '00000'), 'deep, with a stack of 100 kB: ' || c.name, state FROM call AS c, measured(format('SELECT %s WHERE name = ''2000 arrays in one another''', c.takes));
INSERT INTO verdict SELECT bool_or(detail = '54001'), 'the stack was too small for some', NULL FROM verdict WHERE test ~ '^deep';
RESET max_stack_depth;

-- What is held when all is over: nothing grows with what was done
CREATE TABLE held AS SELECT sum(total_bytes) AS bytes FROM pg_backend_memory_contexts;
SELECT count(*) FROM generate_series(1, 3), call AS c, input AS i, measured(format('SELECT %s WHERE name = %L', c.takes, i.name)) WHERE i.name ~ '^(1000|nothing)' \g /dev/null
INSERT INTO verdict SELECT sum(total_bytes) - min(held.bytes) < 1048576, 'nothing stays in memory', (sum(total_bytes) - min(held.bytes))::text FROM pg_backend_memory_contexts, held;

\pset format unaligned
\pset tuples_only on
SELECT CASE WHEN ok THEN 'ok    ' || test ELSE 'FAIL  ' || test || ' (' || coalesce(detail, '') || ')' END FROM verdict;
