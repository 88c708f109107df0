-- Canonical JSON, the material part and the parameter hash (RFC 8785, RFC 6901, FIPS 180-4).
-- Each test names the promise that it guards (P1 to P12) and, where there is one, the field case.
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS idem CASCADE;
RESET client_min_messages;
\set VERBOSITY sqlstate

-- Shorthands: the canonical text and the hash of everything.
CREATE FUNCTION pg_temp.canonical(jsonb) RETURNS text LANGUAGE sql
	AS $$ SELECT idem_canonical(NULL, $1) $$;
CREATE FUNCTION pg_temp.hash(jsonb) RETURNS text LANGUAGE sql
	AS $$ SELECT encode(idem_param_hash(NULL, $1), 'hex') $$;

-- P3: the vectors of test/vectors/canonical.json, computed by an independent program; each hash is also what
-- pgcrypto makes of the canonical bytes that stand here. Rows shown are failures.
CREATE TEMP TABLE vector (id int, json text, canonical text, sha256 text);
INSERT INTO vector VALUES
	(1, '{}', '{}',
		'44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a'),
	(2, '[]', '[]',
		'4f53cda18c2baa0c0354bb5f9a3ecbe5ed12ab4d8e11ba873c2f11161202b945'),
	(3, 'null', 'null',
		'74234e98afe7498fb5daf1f36ac2d78acc339464f950703b8c019892f982b90b'),
	(4, 'true', 'true',
		'b5bea41b6c623f7c09f1bf24dcae58ebab3c0cdd90ad966bc43a45b44867e12b'),
	(5, '"x"', '"x"',
		'ba2df4903a2c14e86dc3bcca58911b44ac1d2514b7227bf6eb08cfb978f55a1b'),
	(6, '0', '0',
		'5feceb66ffc86f38d952786c6d696c79c2dbc239dd4e91b46729d73a27fb57e9'),
	(7, '-0', '0',
		'5feceb66ffc86f38d952786c6d696c79c2dbc239dd4e91b46729d73a27fb57e9'),
	(8, '-0.0', '0',
		'5feceb66ffc86f38d952786c6d696c79c2dbc239dd4e91b46729d73a27fb57e9'),
	(9, '1', '1',
		'6b86b273ff34fce19d6b804eff5a3f5747ada4eaa22f1d49c01e52ddb7875b4b'),
	(10, '1.0', '1',
		'6b86b273ff34fce19d6b804eff5a3f5747ada4eaa22f1d49c01e52ddb7875b4b'),
	(11, '1.00', '1',
		'6b86b273ff34fce19d6b804eff5a3f5747ada4eaa22f1d49c01e52ddb7875b4b'),
	(12, '1e0', '1',
		'6b86b273ff34fce19d6b804eff5a3f5747ada4eaa22f1d49c01e52ddb7875b4b'),
	(13, '10e-1', '1',
		'6b86b273ff34fce19d6b804eff5a3f5747ada4eaa22f1d49c01e52ddb7875b4b'),
	(14, '100', '100',
		'ad57366865126e55649ecb23ae1d48887544976efea46a48eb5d85a6eeb4d306'),
	(15, '1e2', '100',
		'ad57366865126e55649ecb23ae1d48887544976efea46a48eb5d85a6eeb4d306'),
	(16, '199.90', '199.9',
		'b29ce31dc788146e151d6c06ee4481193d707d11ffc57f0327346cbef4a98738'),
	(17, '0.1', '0.1',
		'14be4b45f18e0d8c67b4f719b5144eee88497e413709d11d85b096d8e2346310'),
	(18, '0.10', '0.1',
		'14be4b45f18e0d8c67b4f719b5144eee88497e413709d11d85b096d8e2346310'),
	(19, '1e-6', '0.000001',
		'159fb29a827ad04b260aa6c8ab6d8637f8f2b38af5c4f3cb49d6a21205e040f8'),
	(20, '1e-7', '1e-7',
		'5b33e02f2c5103a05d32f6ba9cb058294452bfbf393967f68bb30c1bdcbbab22'),
	(21, '0.0000001', '1e-7',
		'5b33e02f2c5103a05d32f6ba9cb058294452bfbf393967f68bb30c1bdcbbab22'),
	(22, '123e-9', '1.23e-7',
		'60880613bdf523cf9e6d60ae163612a08794d2a0655ed01072c0d2c6d5ca451b'),
	(23, '1e20', '100000000000000000000',
		'c344e9487bfbd5c4e03c9fb90d62a5dde5e00b54d55c46e9f4a803aea162b80c'),
	(24, '1e21', '1e+21',
		'241c4643fa70b1dcde1205b71be4e3bebb17e9f880c8e1a33d0ead6c27271d3c'),
	(25, '100000000000000000000', '100000000000000000000',
		'c344e9487bfbd5c4e03c9fb90d62a5dde5e00b54d55c46e9f4a803aea162b80c'),
	(26, '1000000000000000000000', '1e+21',
		'241c4643fa70b1dcde1205b71be4e3bebb17e9f880c8e1a33d0ead6c27271d3c'),
	(27, '123456789012345678901', '123456789012345678901',
		'84ed10bcfb6360d89f008e12f0bd488170552c2cc0858f86894190047e7f56a0'),
	(28, '1234567890123456789012', '1.234567890123456789012e+21',
		'6306dd6f7126170fa8590f3323da88acac6d600cdfe9ce6be203ecf121576659'),
	(29, '9007199254740992', '9007199254740992',
		'c681da39d7273a6a24c15c9cac3a75526ff2ecf8ba4ee60346a0c70c8163bdb2'),
	(30, '9007199254740993', '9007199254740993',
		'a1c367c29158357e62a3ff5d3e800fb7698a22396439dbc0a9d4929322afd35d'),
	(31, '-1.5e-7', '-1.5e-7',
		'5d1523c3c7ec2cb017ae6d4de39dadc71a857a10a05fa897aee1bb71213a9168'),
	(32, '1e131071', '1e+131071',
		'c112d9b82ac79d88f44b2ed3b8299853a9dd9886f8c0ed206d250a7806b0c7ba'),
	(33, '1e-1000', '1e-1000',
		'44d9aae1ecd727b8f6692877da666384955ddd580094b48bc1d417c9e7df58ca'),
	(34, '12345678901234567890.123456789', '12345678901234567890.123456789',
		'14200286ec17c10831a29ba1f013b9072431abde5eadc65501158ed742ebada6'),
	(35, '{"b":2,"a":1}', '{"a":1,"b":2}',
		'43258cff783fe7036d8a43033f830adfc60ec037382473548ac742b888292777'),
	(36, '{"a":1,"b":2}', '{"a":1,"b":2}',
		'43258cff783fe7036d8a43033f830adfc60ec037382473548ac742b888292777'),
	(37, '{"aa":1,"b":2}', '{"aa":1,"b":2}',
		'816dc4695b5f30d00c35cca07e452b157afc6542a9a54e10e707d5504c290af7'),
	(38, '{"a":null}', '{}',
		'44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a'),
	(39, '[null]', '[null]',
		'1d8fc6ceb1f94c6326d6d5483d258fcb2e179e9869325b245d105c2219bf69fd'),
	(40, '[null,1,null]', '[null,1,null]',
		'bc78cf0d28818469fb84cfa63c4cf3bbcd0e75d71efeb080a15347c6c7e6c150'),
	(41, '{"a":{"b":null}}', '{"a":{}}',
		'5d8171b9fc362e385a79ccd9d7992c96bcb4afca51d6278068bd1df49863b3a7'),
	(42, '{"a":[{"b":null,"c":1.50}]}', '{"a":[{"c":1.5}]}',
		'1ab2d8b9dff8a7f3731f7e789054cbff93c66cf7b1206a2e781588a1bb4b7868'),
	(43, '{"A":1,"a":2,"_":3}', '{"A":1,"_":3,"a":2}',
		'2070bb215d4cd54a55bf9ae4ec237bb939345fd9ecc5dc793d482215737c8647'),
	(44, '"\u00e9"', E'"\u00e9"',
		'f2886017e9c7abacf804b54d64787dce2b611c9544ba21f3affdd126a6e50086'),
	(45, '"e\u0301"', E'"e\u0301"',
		'3d68ce21f2899a475713cdbe7562ba9bdb6b1dfde8af1f221bdff4a0935b53b2'),
	(46, '"\u20ac$\u000f\nA''B\"\\\\\"/"', E'"\u20ac$\\u000f\\nA''B\\"\\\\\\\\\\"/"',
		'48caa679d7f31885aac4a400aa52732f9b304c1a417dfa6e75631e81ca2f785c'),
	(47, '"\u007f\u0080\u2028"', E'"\u007f\u0080\u2028"',
		'41612b0f2afbbed73d83809aec41c58026f855b9bc69a52a141838a6731c54ea'),
	(48, '{"\ufb33":1,"\ud83d\ude02":2,"\u20ac":3,"\r":4,"1":5,"\u0080":6,"\u00f6":7}', E'{"\\r":4,"1":5,"\u0080":6,"\u00f6":7,"\u20ac":3,"\U0001f602":2,"\ufb33":1}',
		'23c3fb0f0224ce8b68fdf2fe379443ce9cc91cc105fecc63ce78ebef9b794858'),
	(49, '{"":1}', '{"":1}',
		'f3d86de1bf4b354382f91a12a4487daaeb56692b2c46f2df52f6f83a84610074'),
	(50, '{"amount":199,"currency":"USD","payee":"acct_42","memo":"please hurry"}', '{"amount":199,"currency":"USD","memo":"please hurry","payee":"acct_42"}',
		'651b4fcf2ccfec69cfa860122dc37924de521079abab1b297c8b261128e2befb'),
	(51, '{"x":"\t\b\f"}', '{"x":"\t\b\f"}',
		'1d997b5a68b6b79a5020af6445448ee83761b8334b523c701dedb0f8ad70c122'),
	(52, '[1,"1",true,[],{}]', '[1,"1",true,[],{}]',
		'02e7186af1bb9492dc336647c9b0344d4a502ca85f9eb23819db7c2de089f693'),
	(53, '{"orders":[{"sku":"A","qty":2.0},{"sku":"B","qty":1}]}', '{"orders":[{"qty":2,"sku":"A"},{"qty":1,"sku":"B"}]}',
		'0c3f794be4029482635259414d0d5c3b149d6e501e24ccef90628d1007c6ab29'),
	(54, '{"a":1,"a":2}', '{"a":2}',
		'7e8059f495589fcd981232cc11d00b00da3802c01d688fa1cf1f6bed6e5bb33c'),
	(55, '[[[[[[1]]]]]]', '[[[[[[1]]]]]]',
		'23d496fdc0a639d74906a3839c08004d25f030967a63a3f44619e8e4256e361a'),
	(56, '{"k":1e1,"j":1E+1,"i":10.0}', '{"i":10,"j":10,"k":10}',
		'1aca6cfce0a6df7fb8fae38e260326c446fee6783ea5c1cc0cb3d371cd26189a');
SELECT count(*) FROM vector;
SELECT id, json, canonical, pg_temp.canonical(json::jsonb) AS got
FROM vector
WHERE pg_temp.canonical(json::jsonb) IS DISTINCT FROM canonical
	OR pg_temp.hash(json::jsonb) IS DISTINCT FROM sha256
	OR encode(digest(convert_to(canonical, 'UTF8'), 'sha256'), 'hex') IS DISTINCT FROM sha256
ORDER BY id;

-- P3 (D01): the order of members, white space and the spelling of escapes do not count.
SELECT count(DISTINCT pg_temp.hash(spelling::jsonb)) AS hashes, min(pg_temp.canonical(spelling::jsonb)) AS canonical
FROM (VALUES
	('{"A":"/x","b":[1,{"c":2,"d":3}]}'),
	('{"b":[1,{"d":3,"c":2}],"A":"/x"}'),
	(E' {\n\t"b" : [ 1 , { "d" : 3 , "c" : 2 } ] , "A" : "/x" } '),
	('{"\u0041":"\/x","\u0062":[1,{"\u0063":2,"d":3}]}')) AS s (spelling);
-- P3 (D01): a thousand objects, each written with its members in two orders at both depths
SELECT count(*) AS objects, count(*) FILTER (WHERE pg_temp.hash(one) = pg_temp.hash(other)) AS equal,
	count(DISTINCT pg_temp.hash(one)) AS hashes
FROM (
	SELECT i,
		('{' || string_agg(member, ',' ORDER BY md5('x' || member)) || '}')::jsonb AS one,
		(' { ' || string_agg(member2, ' , ' ORDER BY md5('y' || member)) || ' } ')::jsonb AS other
	FROM generate_series(1, 1000) AS i, generate_series(1, 8) AS j,
		LATERAL (SELECT format('"%s":{"p":%s,"q":%s}', md5(i || '.' || j), i, j) AS member,
			format('"%s" : { "q" : %s , "p" : %s.0 }', md5(i || '.' || j), j, i) AS member2) AS m
	GROUP BY i) AS objects;

-- P7 (D02): case counts, and an array's order counts.
SELECT pg_temp.hash('{"a":1,"A":2}') = pg_temp.hash('{"A":2,"a":1}') AS same,
	pg_temp.hash('{"a":1}') = pg_temp.hash('{"A":1}') AS "case",
	pg_temp.hash('[1,2]') = pg_temp.hash('[2,1]') AS "order",
	pg_temp.hash('[{"a":1,"b":2}]') = pg_temp.hash('[{"b":2,"a":1}]') AS same_too;

-- P3 (D03): members in UTF-16 order, not in jsonb's own; the hash comes from an independent program.
SELECT pg_temp.canonical(params) = E'{"a weird":4,"is":3,"it is":1,"that":2,"z":6,"\u00e9":5}' AS canonical,
	pg_temp.hash(params) = 'a63c1d6b89e9a8341a5873de7f9391d8c7316650cdfd750d6ac8305854e7a078' AS hash
FROM (SELECT '{"it is":1,"that":2,"is":3,"a weird":4,"\u00e9":5,"z":6}'::jsonb AS params) AS p;

-- P3: every control character below a blank is escaped, five of them by a letter, and nothing else of ASCII but two.
SELECT string_agg(pg_temp.canonical(to_jsonb(chr(c))), ' ' ORDER BY c) AS escaped FROM generate_series(1, 127) AS c WHERE pg_temp.canonical(to_jsonb(chr(c))) <> '"' || chr(c) || '"';

-- P3 (D04): beyond U+FFFF the order is that of surrogates: before U+E000 to U+FFFF, though its UTF-8 is after.
SELECT n, upper(encode(convert_to(trim('"' FROM quoted), 'UTF8'), 'hex')) AS utf8
FROM regexp_split_to_table(trim('{}' FROM pg_temp.canonical(
	'{"\ud83d\ude00":0,"\ufb33":0,"\ufffd":0,"\uffff":0,"\ue000":0,"\ud7ff":0,"\udbff\udfff":0,"\ud800\udc00":0,"\uee80":0,"z":0,"\u00e9":0,"":0}')),
	':0,?') WITH ORDINALITY AS names (quoted, n)
WHERE quoted <> ''
ORDER BY n;
-- P3 (D04): in the middle of a name, and where one is the beginning of another
SELECT pg_temp.canonical('{"ax\ufb33":1,"ax\ud83d\ude00":2,"ax":3,"ax\ufb33a":4,"ax\ud83d\ude01":5}')
	= E'{"ax":3,"ax\U0001f600":2,"ax\U0001f601":5,"ax\ufb33":1,"ax\ufb33a":4}' AS ordered;

-- P3 (D05): zero is zero.
SELECT DISTINCT pg_temp.canonical(zero::jsonb)
FROM unnest('{0,-0,0.0,-0.0,0e5,0.000,-0e-3,0e-16000,0E+100000}'::text[]) AS zero;

-- P3 (D06): the spellings of a number are one number; the numbers differ.
SELECT class, array_agg(DISTINCT pg_temp.canonical(spelling::jsonb)) AS canonical, count(*) AS spellings
FROM (VALUES
	(1, '{1,1.0,1.00,1e0,10e-1,0.1e1}'::text[]),
	(2, '{100,1e2,1E+2,100.0,0.01e4}'),
	(3, '{1e21,1000000000000000000000,1000000000000000000000.000}'),
	(4, '{0.000001,1e-6,0.0000010,0.1E-5}'),
	(5, '{1e23,1.0E+23,100000000000000000000000}'),
	(6, '{1e20,100000000000000000000,0.1e21}'),
	(7, '{0.0000001,1e-7,10e-8}'),
	(8, '{-12.5e-8,-0.000000125,-1.250E-7}')) AS c (class, spellings), unnest(spellings) AS spelling
GROUP BY class ORDER BY class;

-- P7 (D07): nothing goes through a double.
SELECT pg_temp.canonical(n::jsonb)
FROM unnest('{9007199254740992,9007199254740993,18446744073709551615,18446744073709551614,0.1,0.10000000000000000001,
	333333333.33333329,333333333.3333333,123456789012345678901.5,1234567890123456789012.5,-0.000001234567890123456789}'::text[]) AS n;

-- P11: every place of the point and of the groups of four digits in numeric, against its text
SELECT count(*) AS numbers, count(*) FILTER (WHERE pg_temp.canonical(to_jsonb(n)) IS DISTINCT FROM
	CASE WHEN n = 0 THEN '0' ELSE trim_scale(n)::text END) AS wrong
FROM (SELECT sign * digits * power(10::numeric, e) AS n
	FROM unnest('{1,-1}'::numeric[]) AS sign,
		unnest('{0,1,12,123,1234,12345,10001,100010001,99999999,70000,1000000000000001}'::numeric[]) AS digits,
		generate_series(-5, 4) AS e) AS numbers
WHERE n = 0 OR abs(n) >= 0.000001;

-- P11: a huge exponent costs nothing; the longest numbers of jsonb keep every digit.
SELECT length(pg_temp.canonical((SELECT jsonb_agg('1e131071'::jsonb) FROM generate_series(1, 100)))) AS bytes;
SELECT pg_temp.canonical('1e-16383');
SELECT pg_temp.canonical((repeat('123456789', 14000) || '.' || repeat('987654321', 1000))::jsonb)
	= '1.' || substr(repeat('123456789', 14000), 2) || repeat('987654321', 1000) || 'e+125999' AS every_digit;

-- P7 (D09): Unicode is not normalised, in names or values.
SELECT count(DISTINCT pg_temp.hash(params)) AS hashes
FROM unnest(ARRAY['"\u00e9"', '"e\u0301"', '{"\u00e9":1}', '{"e\u0301":1}']::jsonb[]) AS params;
SELECT pg_temp.canonical('{"\u00e9":1,"e\u0301":2}') = E'{"e\u0301":2,"\u00e9":1}' AS both_kept;

-- P11 (D10, D12): what jsonb refuses, and which of two equal names it keeps
SELECT pg_temp.canonical('"\ud800"');
SELECT pg_temp.canonical('{"\udc00\ud800":1}');
SELECT pg_temp.canonical('{"a":1,"\u0061":2}');

-- P7 (D13): null and absent are one in an object, not in an array.
SELECT params, pg_temp.canonical(params)
FROM unnest(ARRAY['{"a":null}', '{}', '[null]', '[]', '[1,null,2]', '[1,2]', '{"a":{"b":null}}', '{"a":{}}',
	'[{"a":null}]', 'null']::jsonb[]) AS params;

-- P7 (D14): the canonical form is one-to-one: different values, different hashes.
CREATE TEMP TABLE distinct_value AS
WITH seed (v) AS (
	SELECT v::jsonb FROM unnest(ARRAY[
		'{"ab":"c"}', '{"a":"bc"}', '{"a":1}', '{"a":"1"}', 'true', '"true"', 'false', '"false"', 'null', '"null"',
		'{}', '[]', '""', '0', '"0"', '"{}"', '"[]"', '{"a\":1,\"b":2}', '{"a":1,"b":2}', '{"":""}', '{"":{}}', '{"":[]}',
		'[""]', '[[]]', '[{}]', '[[],[]]', '[[[]]]', '[[],{}]', '[0]', '[false]', '[null]', '[null,null]', '[1,2]', '[12]',
		'["1,2"]', '["1","2"]', '[1,"2"]', '["a","b"]', '["a\",\"b"]', '"\\"', '"\\\\"', '"\\n"', '"\n"', '"\\u000a"', '"/"',
		'"\u0001"', '"\\u0001"', '"\u007f"', '" "', '"a"', '"A"', '"a "', '" a"', '1', '-1', '0.1', '0.01', '10', '1e21', '"1e+21"',
		'1e-7', '{"a":{"b":1}}', '{"a.b":1}', '{"a/b":1}', '{"b":{"a":1}}', '{"a":[1]}', '{"a":[[1]]}', '{"a":1,"c":[]}']) AS v)
SELECT v FROM seed
UNION ALL SELECT jsonb_build_array('wrapped', v) FROM seed
UNION ALL SELECT jsonb_build_object('wrapped', v) FROM seed WHERE v <> 'null';
SELECT count(*) AS values, count(DISTINCT pg_temp.hash(v)) AS hashes
FROM distinct_value;

-- P7 (D15): one leaf changed at any depth changes the hash, inside arrays and objects in arrays.
SELECT count(*) AS values, count(DISTINCT pg_temp.hash(v)) AS hashes
FROM generate_series(1, 50) AS depth, generate_series(1, 4) AS leaf,
	unnest(ARRAY['[', '{"a":', '[0,{"b":[', '{"c":[1,{"d":']) WITH ORDINALITY AS opening (start, kind),
	LATERAL (SELECT (repeat(start, depth::int) || leaf
		|| repeat((ARRAY[']', '}', ']}]', '}]}'])[kind], depth::int))::jsonb AS v) AS built;

-- P11 (D16): deep nesting is written or refused with 54001, and the backend lives on.
CREATE FUNCTION pg_temp.depth(levels int, opening text, closing text) RETURNS text LANGUAGE plpgsql
AS $$
BEGIN
	RETURN length(pg_temp.canonical((repeat(opening, levels) || '1' || repeat(closing, levels))::jsonb))::text;
EXCEPTION WHEN statement_too_complex THEN
	RETURN SQLSTATE;
END
$$;
SELECT pg_backend_pid() AS pid \gset
SELECT pg_temp.depth(1000, '[', ']') AS arrays, pg_temp.depth(1000, '{"a":', '}') AS objects;
SELECT pg_temp.depth(7000, '[', ']') IN ('14001', '54001') AS arrays, pg_temp.depth(7000, '{"a":', '}') IN ('42001', '54001') AS objects;
SELECT pg_temp.depth(50000, '[', ']') AS arrays, pg_temp.depth(50000, '{"a":', '}') AS objects;
SELECT pg_temp.depth(1000000, '[', ']') AS arrays;
-- the walk itself checks, not jsonb's parser alone
CREATE TEMP TABLE deep AS
SELECT (repeat('[', 3000) || '1' || repeat(']', 3000))::jsonb AS arrays, (repeat('{"a":', 3000) || '1' || repeat('}', 3000))::jsonb AS objects;
SET max_stack_depth = '100kB';
SELECT idem_canonical(NULL, '[{"a":[1]}]');
SELECT idem_canonical(NULL, arrays) FROM deep;
SELECT idem_param_hash(NULL, objects) FROM deep;
RESET max_stack_depth;
SELECT length(idem_canonical(NULL, arrays)) AS arrays, length(idem_canonical(NULL, objects)) AS objects FROM deep;
SELECT pg_backend_pid() = :pid AS alive;

-- P11: null parameters
SELECT idem_canonical(NULL, NULL);
SELECT idem_param_hash(NULL, NULL);


-- The material part, through policies that are rolled back at the end.
BEGIN;

-- P3: the vectors of test/vectors/material.json: canonical text, hash, and the version that a fingerprint carries.
CREATE TEMP TABLE material_vector (id int, json text, material text[], immaterial text[], canonical text, version int, sha256 text);
INSERT INTO material_vector VALUES
	(1, '{"amount":199.00,"currency":"USD","payee":"acct_42","memo":"please hurry"}',
		'{/amount,/currency,/payee}', NULL,
		'{"amount":199,"currency":"USD","payee":"acct_42"}', 561908243,
		'10dcb8e814333a724520486a812124a71a322496ad849a4d40bb841cd4df1db3'),
	(2, '{"payee":"acct_42","amount":199,"currency":"USD","memo":"as soon as possible"}',
		'{/amount,/currency,/payee}', NULL,
		'{"amount":199,"currency":"USD","payee":"acct_42"}', 561908243,
		'10dcb8e814333a724520486a812124a71a322496ad849a4d40bb841cd4df1db3'),
	(3, '{"amount":199,"currency":"USD","memo":"x","ui":{"tab":3}}',
		NULL, '{/memo,/ui}',
		'{"amount":199,"currency":"USD"}', 559585350,
		'2b26a68664b073f1fa332320413afd2eabd6233ae258c061578d0855b307bdbe'),
	(4, '{"items":[{"sku":"A","qty":2,"note":"n1"},{"sku":"B","qty":1,"note":"n2"}],"note":"top"}',
		NULL, '{/items/*/note}',
		'{"items":[{"qty":2,"sku":"A"},{"qty":1,"sku":"B"}],"note":"top"}', 1230681654,
		'e8059834830aa05decddedee7c6100a391b2560fed9fe0ee25303433530750e3'),
	(5, '{"items":[{"sku":"A","qty":2,"note":"n1"},{"sku":"B","qty":1,"note":"n2"}],"note":"top"}',
		'{/items/*/sku,/items/*/qty}', NULL,
		'{"items":[{"qty":2,"sku":"A"},{"qty":1,"sku":"B"}]}', 1274852796,
		'19d9b5c9255656894fb84c77e4b82941f750b0b2345bc31ce207b2edba1226a1'),
	(6, '{"a/b":1,"m~n":2,"z":3}',
		'{/a~1b,/m~0n}', NULL,
		'{"a/b":1,"m~n":2}', 853436377,
		'e628be64c7c54129f7864bf2043e91283049e5ee57a2037b38475225b5e848e6'),
	(7, '{"amount":5}',
		'{/amount,/payee}', NULL,
		'{"amount":5}', 1494864176,
		'7e84cbf0f7a7c92c037058665d66152f8eb8580ab2534e52c877bccceb9cc7bf'),
	(8, '{"to":{"acct":"9","name":"Zoe"},"amount":1}',
		'{/to/acct,/amount}', NULL,
		'{"amount":1,"to":{"acct":"9"}}', 1774421005,
		'ebd36d198a907e90a834616fa2ad3fff1a35987819a13b5dc3b730562bab1ac1'),
	(9, '{"to":{"acct":"9","name":"Zoe"},"amount":1}',
		'{/to,/amount}', '{/to/name}',
		'{"amount":1,"to":{"acct":"9"}}', 1009107333,
		'ebd36d198a907e90a834616fa2ad3fff1a35987819a13b5dc3b730562bab1ac1');
INSERT INTO idem_policy (scope, material, immaterial)
SELECT 'canonical.' || id, material, immaterial FROM material_vector;
SELECT count(*) FROM material_vector;
SELECT id, json, canonical, idem_canonical(scope, json::jsonb) AS got, version,
	(idem_inspect(idem_sign('alice', scope, json::jsonb))).version AS got_version
FROM material_vector, concat('canonical.', id) AS scope
WHERE idem_canonical(scope, json::jsonb) IS DISTINCT FROM canonical
	OR encode(idem_param_hash(scope, json::jsonb), 'hex') IS DISTINCT FROM sha256
	OR encode(digest(convert_to(canonical, 'UTF8'), 'sha256'), 'hex') IS DISTINCT FROM sha256
	OR (idem_inspect(idem_sign('alice', scope, json::jsonb))).version IS DISTINCT FROM version
ORDER BY id;
-- P3: a version from SQL alone: the order of a list and its duplicates do not count
SELECT version, ('x' || encode(substr(digest(lists, 'sha256'), 1, 4), 'hex'))::bit(32)::int & 2147483647 AS computed
FROM material_vector, convert_to(idem_canonical(NULL, jsonb_build_object('material',
	(SELECT jsonb_agg(DISTINCT p ORDER BY p) FROM unnest(material) AS p))), 'UTF8') AS lists
WHERE id = 1;
UPDATE idem_policy SET material = '{/payee,/amount,/currency,/amount}' WHERE scope = 'canonical.2';
SELECT (idem_inspect(idem_sign('alice', scope, '{"amount":1}'))).version
FROM unnest('{canonical.1,canonical.2}'::text[]) AS scope;

-- What a pair of lists makes of parameters, or the SQLSTATE of the refusal.
CREATE FUNCTION pg_temp.project(params jsonb, material text[], immaterial text[]) RETURNS text LANGUAGE plpgsql
AS $$
DECLARE
	canonical text;
BEGIN
	INSERT INTO idem_policy (scope, material, immaterial) VALUES ('canonical', material, immaterial);
	canonical := idem_canonical('canonical', params);
	DELETE FROM idem_policy WHERE scope = 'canonical';
	RETURN canonical;
EXCEPTION WHEN invalid_parameter_value OR check_violation THEN
	RETURN SQLSTATE;
END
$$;

-- P7: what is bound, and what is not
SELECT why, pg_temp.project(params, material, immaterial)
FROM (VALUES
	(1, 'on the way, only what is bound below', '{"to":{"acct":1,"name":2,"x":{}},"y":3}'::jsonb, '{/to/acct}'::text[], NULL::text[]),
	(2, 'selected whole, empty object included', '{"to":{},"x":1}', '{/to}', NULL),
	(3, 'an immaterial name below a material one', '{"to":{"acct":1,"name":2}}', '{/to}', '{/to/name}'),
	(4, 'immaterial wins over what is below it', '{"to":{"acct":1},"x":1}', '{/to/acct,/x}', '{/to}'),
	(5, 'immaterial wins at the same place', '{"to":1,"x":1}', '{/to,/x}', '{/to}'),
	(6, 'all but one', '{"to":1,"x":1}', '{""}', '{/to}'),
	(7, 'the place of an element stays bound', '[{"a":1},{"b":2},{"a":3},4,null]', '{/*/a}', NULL),
	(8, 'one element by its number', '{"l":[1,2,3]}', '{/l/1}', NULL),
	(9, 'an element by number and by star', '[{"a":1,"b":2},{"a":3,"b":4}]', '{/*/a,/1/b}', NULL),
	(10, 'an immaterial element stands as null', '{"l":[1,2,3]}', NULL, '{/l/1}'),
	(11, 'all elements immaterial: their number stays', '{"l":[1,2,3]}', NULL, '{/l/*}'),
	(12, 'a number on an object is a name', '{"l":{"1":2,"3":4}}', '{/l/1}', NULL),
	(13, 'a star on an object is a name', '{"l":{"*":2,"3":4}}', '{/l/*}', NULL),
	(14, 'null members select nothing', '{"a":null,"b":1}', '{/a,/b}', NULL),
	(15, 'null elements that are selected count', '[null,null]', '{/0}', NULL),
	(16, 'the empty name', '{"":{"":1,"x":2}}', '{//}', NULL),
	(17, 'tilde and slash, unescaped once', '{"~1":1,"/":2,"~":3}', '{/~01,/~0}', NULL),
	(18, 'stars at two depths', '[[{"a":1,"b":2}],[],[{"b":3}]]', '{/*/*/a}', NULL),
	(19, 'a list that is empty is bound where it is selected', '{"l":[],"m":1}', '{/l}', NULL),
	(20, 'members stay in UTF-16 order', '{"b":1,"aa":2,"c":3}', '{/c,/b,/aa}', NULL)
) AS c (id, why, params, material, immaterial)
ORDER BY id;

-- P7: refused, since nothing would be bound
SELECT why, pg_temp.project(params, material, immaterial)
FROM (VALUES
	(1, 'a mistyped pointer', '{"amount":1}'::jsonb, '{/amuont}'::text[], NULL::text[]),
	(2, 'a scalar under material', '5', '{/a}', NULL),
	(3, 'a scalar under the empty pointer', '5', '{""}', NULL),
	(4, 'a scalar under immaterial', '"x"', NULL, '{/a}'),
	(5, 'nothing left', '{"a":1}', NULL, '{/a}'),
	(6, 'nothing there', '{}', NULL, '{/a}'),
	(7, 'nothing there, empty pointer', '[]', '{""}', NULL),
	(8, 'only null', '{"a":null}', '{/a}', NULL),
	(9, 'a star meets an empty array', '{"l":[]}', '{/l/*}', NULL),
	(10, 'a star meets an object', '{"l":{"a":1}}', '{/l/*}', NULL),
	(11, 'a leading zero is no number of an element', '[1,2]', '{/01}', NULL),
	(12, 'nor is the place after the last', '[1,2]', '{/-,/2}', NULL),
	(13, 'through a scalar', '{"a":1}', '{/a/b}', NULL)
) AS c (id, why, params, material, immaterial)
ORDER BY id;

-- P11: lists that no policy can have
SELECT why, pg_temp.project('{"a":1}', material, immaterial)
FROM (VALUES
	(1, 'no slash', '{a}'::text[], NULL::text[]),
	(2, 'an escape that is none', '{/a~2}', NULL),
	(3, 'half an escape', '{/a~}', NULL),
	(4, 'null', '{/a,NULL}', NULL),
	(5, 'an empty list', '{}', NULL),
	(6, 'a list of lists', '{{/a},{/b}}', NULL),
	(7, 'everything immaterial', NULL, '{""}'),
	(8, 'an empty list of what is immaterial', '{/a}', '{}'),
	(9, 'too long a pointer', ARRAY['/' || repeat('x', 1024)], NULL),
	(10, 'the longest pointer does', ARRAY['/a', '/' || repeat('x', 1023)], NULL),
	(11, 'too many', array_fill('/a'::text, ARRAY[1001]), NULL),
	(12, 'the longest list does', array_fill('/a'::text, ARRAY[1000]), NULL)
) AS c (id, why, material, immaterial)
ORDER BY id;

-- P11 (D16): deep nesting under a list
SELECT pg_temp.project((SELECT arrays FROM deep), ARRAY[repeat('/*', 500)], '{/x}') = repeat('[', 3000) || '1' || repeat(']', 3000) AS arrays;
ROLLBACK;
-- P3: a policy that was rolled back binds nothing.
SELECT idem_canonical('canonical.1', '{"amount":199.00,"memo":"please hurry"}');
