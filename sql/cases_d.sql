-- Canonical JSON: field cases of group D that sql/canonical.sql does not show (test/CASES.md is the index).
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS idem CASCADE;
RESET client_min_messages;
CREATE SCHEMA idem_test_cases_d;
SET search_path = idem_test_cases_d, public;

-- P7, D14: nearly two hundred values more that somebody's canonical form took for each other, and no two hash alike
CREATE TABLE doc (id int GENERATED ALWAYS AS IDENTITY, j jsonb);
-- scalars, and what they are easily turned into
INSERT INTO doc (j) SELECT j::jsonb FROM unnest(ARRAY[
	'null', '"null"', 'true', '"true"', '"TRUE"', 'false', '"false"', '0', '"0"', '1', '"1"', '-1', '"-1"', '0.1', '"0.1"', '1e21', '"1e21"', '"1e+21"',
	'10', '100', '1000000000000000000001', '1000000000000000000002', '0.30000000000000004', '0.3', '9007199254740993', '9007199254740992', '1e-7', '1e-6',
	'""', '" "', '"  "', '"\t"', '"\n"', '"\\"', '"\\\\"', '"\""', '"\\\""', '"/"', '"\\/"', '"\u0001"', '"\\u0001"', '"\u001f"', '"\u007f"', '"\u2028"', '"\ufeff"',
	'"a"', '"A"', '"\u00e9"', '"e\u0301"', '"\u00c9"', '"\ufb33"', '"\ud83d\ude00"', '"\\ud83d\\ude00"', '"[]"', '"{}"', '"undefined"', '"None"', '"NaN"', '"Infinity"'
]) AS j;
-- each of ten values alone, in an array, twice in one, nested, as a member, and as a text
INSERT INTO doc (j) SELECT w.j FROM unnest(ARRAY['null', 'true', 'false', '0', '1', '""', '"a"', '{}', '[]', '{"a": 1}', '"b"', '[[]]']::jsonb[]) AS v (j), LATERAL (VALUES
	(jsonb_build_array(v.j)), (jsonb_build_array(v.j, v.j)), (jsonb_build_array(jsonb_build_array(jsonb_build_array(v.j)))), (jsonb_build_array(v.j, '[]'::jsonb)),
	(jsonb_build_array(jsonb_build_object('k', jsonb_build_array(v.j)))), (jsonb_build_object('a', jsonb_build_array(v.j))), (to_jsonb('[' || v.j::text || ', ]'))) AS w (j);
-- members whose names and values run into each other
INSERT INTO doc (j) SELECT j::jsonb FROM unnest(ARRAY[
	'{}', '[]', '[[],[]]', '[[[]]]', '[{}]', '[{},{}]', '{"ab":"c"}', '{"a":"bc"}', '{"a":"b","c":"d"}', '{"a":"b,c:d"}', '{"a":"b\",\"c\":\"d"}', '{"a\":\"b":"c"}', '{"a\":1,\"b":2}',
	'{"a":1,"b":2}', '{"a":2,"b":1}', '{"a":1}', '{"a":"1"}', '{"A":1}', '{"a ":1}', '{" a":1}', '{"":1}', '{"":""}', '{"a":""}', '{"a":{}}', '{"a":{"a":1}}', '{"a":{"b":2}}',
	'{"a":[1,2]}', '{"a":[2,1]}', '{"a":[12]}', '{"a":["1,2"]}', '{"a":[[1],2]}', '{"a":[1,[2]]}', '{"a":[[1,2]]}', '{"0":"a"}', '["a","b"]', '["ab"]', '["a,b"]', '["b","a"]', '["a",["b"]]',
	'{"0":"a","1":"b"}', '[null,1]', '[1,null]', '[1,2]', '[12]', '["1","2"]', '[1,"2"]', '[1.2]', '{"\u00e9":1}', '{"e\u0301":1}', '{"\ud83d\ude00":1,"\ufb33":2}', '{"\ud83d\ude00":2,"\ufb33":1}',
	'{"__proto__":1}', '{"constructor":1}', '{"toJSON":1}', '{"length":0}', '{"type":"int","value":1}'
]) AS j;
DELETE FROM doc AS a USING doc AS b WHERE a.j = b.j AND a.id > b.id;
SELECT count(*) >= 190 AS enough FROM doc;
SELECT a.j, b.j FROM doc AS a JOIN doc AS b ON a.id < b.id WHERE idem_param_hash(NULL, a.j) = idem_param_hash(NULL, b.j);
SELECT count(DISTINCT idem_param_hash(NULL, j)) = count(*) AS hashes, count(DISTINCT idem_canonical(NULL, j)) = count(*) AS texts,
	count(DISTINCT idem_key('alice', 'cases d', j)) = count(*) AS keys FROM doc;
-- and what is written is read back as what it was; members that are null are left out of all of them alike
SELECT j FROM doc WHERE idem_canonical(NULL, j)::jsonb <> j;
-- each stays itself inside a larger document
SELECT count(DISTINCT idem_param_hash(NULL, jsonb_build_object('before', 1, 'x', j, 'zzz', 2))) = count(*) AS as_member,
	count(DISTINCT idem_param_hash(NULL, jsonb_build_array(1, j, 2))) = count(*) AS as_element FROM doc WHERE j <> 'null';

-- P7, D14, I04: a subset and the whole never collide. The hash does not say which list it came from; the version in
-- the token, and on record, does
INSERT INTO idem_policy (scope, material) VALUES ('cases d part', '{/amount}'), ('cases d other', '{/amount,/payee}');
SELECT idem_canonical('cases d part', '{"amount": 1, "memo": "x"}') = idem_canonical('cases d all', '{"amount": 1}') AS same_bytes,
	(idem_inspect(idem_sign('alice', 'cases d part', '{"amount": 1, "memo": "x"}'))).version <> (idem_inspect(idem_sign('alice', 'cases d all', '{"amount": 1}'))).version AS other_version;
SELECT outcome FROM idem_acquire(idem_sign('alice', 'cases d part', '{"amount": 1}'), 'alice', 'cases d part', '{"amount": 1, "payee": "eve"}');
SELECT outcome FROM idem_acquire(idem_sign('alice', 'cases d other', '{"amount": 1}'), 'alice', 'cases d other', '{"amount": 1, "payee": "eve"}');
DELETE FROM idem_policy WHERE scope LIKE 'cases d %';

-- P11, D16: however small the stack is, deep parameters end in an answer or in 54001
CREATE TABLE deep AS SELECT depth, (repeat('[', depth) || repeat(']', depth))::jsonb AS j FROM unnest(ARRAY[10, 1000, 5000]) AS depth;
CREATE FUNCTION how_it_ends(deep jsonb) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
	PERFORM idem_canonical(NULL, deep), idem_param_hash(NULL, deep), idem_key('alice', 'cases d', deep), idem_sign('alice', 'cases d', deep);
	RETURN 'an answer';
EXCEPTION WHEN statement_too_complex THEN
	RETURN '54001';
END
$$;
SET max_stack_depth = '100kB';
SELECT depth, CASE depth WHEN 10 THEN how_it_ends(j) ELSE (how_it_ends(j) IN ('an answer', '54001'))::text END AS ends FROM deep ORDER BY depth;
SET max_stack_depth = '2MB';
SELECT depth, CASE depth WHEN 5000 THEN (how_it_ends(j) IN ('an answer', '54001'))::text ELSE how_it_ends(j) END AS ends FROM deep ORDER BY depth;
RESET max_stack_depth;

DROP TABLE doc, deep;
DROP FUNCTION how_it_ends;
RESET search_path;
DROP SCHEMA idem_test_cases_d;
