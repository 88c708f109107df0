-- Fingerprints: what is signed, what is read, and what is not believed. Promises P4, P7 and P11 rest on it.
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS idem CASCADE;
RESET client_min_messages;
SET timezone = 'UTC';

-- the secret of the published vectors; what it returns is shown elsewhere
SELECT count(*) FROM idem_import_secret('\x000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f', true);
INSERT INTO idem_policy (scope, material) VALUES ('listed', ARRAY['/amount', '/currency', '/payee']);

-- The format once more, in SQL and by pgcrypto: what another program would write to make a fingerprint
CREATE FUNCTION b64(bytes bytea) RETURNS text LANGUAGE sql IMMUTABLE AS $$
	SELECT translate(encode(bytes, 'base64'), E'+/=\n', '-_')
$$;
CREATE FUNCTION mac(signed text, secret bytea DEFAULT '\x000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f')
RETURNS bytea LANGUAGE sql IMMUTABLE AS $$
	SELECT hmac(convert_to(signed, 'UTF8'), secret, 'sha256')
$$;
-- any bytes, signed with the real secret
CREATE FUNCTION forge(payload bytea) RETURNS text LANGUAGE sql IMMUTABLE AS $$
	SELECT b64(payload) || '.' || b64(mac(b64(payload)))
$$;
CREATE FUNCTION forge(payload text) RETURNS text LANGUAGE sql IMMUTABLE AS $$
	SELECT forge(convert_to(payload, 'UTF8'))
$$;
CREATE FUNCTION payload(n text, exp bigint, u text, s text, p bytea, v int, r boolean) RETURNS text LANGUAGE sql IMMUTABLE AS $$
	SELECT format('{"n":"%s","exp":%s,"u":%s,"s":%s,"p":"%s"%s%s}', n, exp, to_json(u), to_json(s), b64(p),
				  CASE WHEN v <> 0 THEN ',"v":' || v END, CASE WHEN r THEN ',"r":true' END)
$$;
-- a good payload with one thing changed
CREATE FUNCTION altered(old text, new text) RETURNS text LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
	good CONSTANT text := '{"n":"0192f0c1-7e3a-7c11-8a5b-0d5c2f6e9a01","exp":4102444800,"u":"alice","s":"charge",'
		'"p":"ENy46BQzOnJFIEhqgSEkpxoyJJathJpNQLuEHNTfHbM"}';
BEGIN
	IF position(old IN good) = 0 THEN
		RAISE EXCEPTION 'nothing to alter';
	END IF;
	RETURN replace(good, old, new);
END
$$;
CREATE FUNCTION verdict(token text) RETURNS text LANGUAGE sql AS $$
	SELECT CASE WHEN valid THEN 'valid'
				WHEN num_nonnulls(key, expires_at, subject, scope, param_hash, version, confirmed_repeat) > 0 THEN 'LEAK'
				WHEN valid IS NULL THEN 'NULL'
				ELSE 'INVALID' END
	FROM idem_inspect(token)
$$;
-- what a statement raises: SQLSTATE, message, hint
CREATE FUNCTION raised(statement text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	state text; message text; detail text; hint text;
BEGIN
	EXECUTE statement;
	RETURN 'nothing';
EXCEPTION WHEN OTHERS THEN
	GET STACKED DIAGNOSTICS state = RETURNED_SQLSTATE, message = MESSAGE_TEXT, detail = PG_EXCEPTION_DETAIL, hint = PG_EXCEPTION_HINT;
	RETURN concat_ws(E'\n', state || ': ' || message, NULLIF(detail, ''), NULLIF(hint, ''));
END
$$;


-- The published vectors, computed by an independent program ------------------------------------------------

CREATE TABLE vector (id int, n text, exp bigint, u text, s text, material text[], params jsonb, token text);
INSERT INTO vector VALUES
	(1, '0192f0c1-7e3a-7c11-8a5b-0d5c2f6e9a01', 4102444800, 'alice', 'charge',
	 NULL, '{"amount":199,"currency":"USD","payee":"acct_42"}',
	 'eyJuIjoiMDE5MmYwYzEtN2UzYS03YzExLThhNWItMGQ1YzJmNmU5YTAxIiwiZXhwIjo0MTAyNDQ0ODAwLCJ1IjoiYWxpY2UiLCJzIjoiY2hhcmdlIiwicCI6IkVOeTQ2QlF6T25KRklFaHFnU0VrcHhveUpKYXRoSnBOUUx1RUhOVGZIYk0ifQ.j3F6_oaVGrb_vg53MH7eSPKHoGmmGSXRc3PM72Gwi10'),
	(2, '0192f0c1-7e3a-7c11-8a5b-0d5c2f6e9a02', 4102444800, 'tené/"q"\', 'pay.transfer',
	 NULL, '{"amount":199,"currency":"USD","payee":"acct_42"}',
	 'eyJuIjoiMDE5MmYwYzEtN2UzYS03YzExLThhNWItMGQ1YzJmNmU5YTAyIiwiZXhwIjo0MTAyNDQ0ODAwLCJ1IjoidGVuw6kvXCJxXCJcXCIsInMiOiJwYXkudHJhbnNmZXIiLCJwIjoiRU55NDZCUXpPbkpGSUVocWdTRWtweG95SkphdGhKcE5RTHVFSE5UZkhiTSJ9.APBljpw5uYBMNKc8qfC25U1r-4aVrMwuuTtsKBj3Vbg'),
	(3, '0192f0c1-7e3a-7c11-8a5b-0d5c2f6e9a03', 1753500000, 'alice', 'charge',
	 NULL, '{"amount":199,"currency":"USD","payee":"acct_42"}',
	 'eyJuIjoiMDE5MmYwYzEtN2UzYS03YzExLThhNWItMGQ1YzJmNmU5YTAzIiwiZXhwIjoxNzUzNTAwMDAwLCJ1IjoiYWxpY2UiLCJzIjoiY2hhcmdlIiwicCI6IkVOeTQ2QlF6T25KRklFaHFnU0VrcHhveUpKYXRoSnBOUUx1RUhOVGZIYk0ifQ.4ddtq9NuhFD-e6vp8_XK297pmV7lDLMsrf5CSZtJJIg'),
	(4, '0192f0c1-7e3a-7c11-8a5b-0d5c2f6e9a04', 4102444800, 'alice', 'charge',
	 ARRAY['/amount', '/currency', '/payee'], '{"amount":199.0,"currency":"USD","payee":"acct_42","memo":"hi"}',
	 'eyJuIjoiMDE5MmYwYzEtN2UzYS03YzExLThhNWItMGQ1YzJmNmU5YTA0IiwiZXhwIjo0MTAyNDQ0ODAwLCJ1IjoiYWxpY2UiLCJzIjoiY2hhcmdlIiwicCI6IkVOeTQ2QlF6T25KRklFaHFnU0VrcHhveUpKYXRoSnBOUUx1RUhOVGZIYk0iLCJ2Ijo1NjE5MDgyNDN9.4-UkHl0mGS7-Co18OHTctk-nZHzCip6g5Wn11AIWsOk');

-- read: a fingerprint is what it says, past its time or not (P7)
SELECT id, valid, key = n::uuid AS key, expires_at, subject, subject = u AS u, scope = s AS s, version, confirmed_repeat
FROM vector, idem_inspect(token) ORDER BY id;

-- its hash is that of the parameters, or of their material part (P3, P7)
SELECT id, i.param_hash = idem_param_hash(CASE WHEN material IS NULL THEN 'charge' ELSE 'listed' END, params) AS hash
FROM vector, idem_inspect(token) i ORDER BY id;

-- pgcrypto computes the same
SELECT id, token = forge(payload(n, exp, u, s, param_hash, version, confirmed_repeat)) AS same
FROM vector, idem_inspect(token) ORDER BY id;


-- What idem_sign writes ------------------------------------------------------------------------------------

-- byte for byte what the format asks for; E02: every payload length, subjects of 1 to 255 bytes in any script
CREATE TABLE issued AS
SELECT i, subject, scope, repeated, idem_sign(subject, scope, jsonb_build_object('amount', i), confirm_repeat => repeated) AS token
FROM (SELECT i, left(repeat(chr(1 + i * 17 % 55000) || chr(128514) || 'aé€"\/' || chr(1 + i % 31), 20), 1 + i % 60) AS subject,
			 CASE WHEN i % 2 = 0 THEN 'listed' ELSE 'charge' || i END AS scope, i % 3 = 0 AS repeated
	  FROM generate_series(1, 3000) i) s;
SELECT count(*), count(DISTINCT key) AS keys,
	   bool_and(valid) AS valid,
	   bool_and(i.subject = issued.subject AND i.scope = issued.scope AND confirmed_repeat = repeated) AS same,
	   bool_and(version = CASE WHEN issued.scope = 'listed' THEN 561908243 ELSE 0 END) AS version,
	   bool_and(param_hash = digest('{"amount":' || issued.i || '}', 'sha256')) AS hash,
	   bool_and(token ~ '^[A-Za-z0-9_-]+[.][A-Za-z0-9_-]{43}$') AS form,
	   bool_and(token = forge(payload(key::text, extract(epoch FROM expires_at)::bigint, i.subject, i.scope, param_hash, version, confirmed_repeat))) AS bytes,
	   array_agg(DISTINCT length(split_part(token, '.', 1)) % 4) AS lengths
FROM issued, idem_inspect(token) i;

-- each is a new operation: a UUID of version 7
SELECT bool_and(key::text ~ '^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$') AS v7
FROM issued, idem_inspect(token);
SELECT count(DISTINCT idem_sign('alice', 'charge', '{}')) FROM generate_series(1, 100);

-- labels of 255 bytes at both places
SELECT verdict(idem_sign(repeat('é', 127) || 'x', repeat('s', 255), '{}'));
-- so many control characters, six bytes each, that the token would be too long to be read again (P11)
SELECT raised($$SELECT idem_sign(repeat(chr(1), 255), repeat(chr(2), 255), '{}')$$);

-- the time: fingerprint_ttl (15 min), or not_after where that is earlier, in whole seconds, never rounded up (P6)
SELECT expires_at - clock_timestamp() BETWEEN '14 min' AND '15 min' AS ttl, expires_at = date_trunc('second', expires_at) AS whole
FROM (VALUES (NULL), ('infinity'), ('9999-12-31'), ('294276-12-31'), (clock_timestamp() + interval '1 h')) t (not_after),
	 idem_inspect(idem_sign('alice', 'charge', '{}', not_after => not_after::timestamptz));
SELECT expires_at <= now.now + interval '60.9 s' AND expires_at > now.now + interval '59.8 s' AS bounded
FROM (SELECT clock_timestamp() AS now) now, idem_inspect(idem_sign('alice', 'charge', '{}', now.now + interval '60.9 s'));
SELECT not_after, raised(format('SELECT idem_sign(''alice'', ''charge'', ''{}'', %L)', not_after))
FROM (VALUES ('-infinity'), ('2000-01-01 00:00:00Z'), ('1969-12-31 23:59:59.5Z'), ('4713-01-01 BC')) t (not_after);
SELECT left(raised('SELECT idem_sign(''alice'', ''charge'', ''{}'', clock_timestamp())'), 5) AS now,
	   left(raised('SELECT idem_sign(''alice'', ''charge'', ''{}'', date_trunc(''second'', clock_timestamp()) + interval ''0.999999 s'')'), 5) AS same_second;


-- What nobody signed ---------------------------------------------------------------------------------------

-- E07: pieces, nothing, too much
SELECT name, verdict(token) FROM (VALUES
	('null', NULL), ('empty', ''), ('.', '.'), ('p.', 'p.'), ('.s', '.s'), ('p', 'p'), ('p.s.x', 'p.s.x'), ('p..s', 'p..s'),
	('1 MB', repeat('A', 1000000)), ('1 MB of blanks', repeat(' ', 1000000)), ('trimmed away', ' "` '' .' || E'\t\n\r\f\x0b'),
	('payload alone', b64(convert_to(altered('alice', 'alice'), 'UTF8'))),
	('payload and full stop', b64(convert_to(altered('alice', 'alice'), 'UTF8')) || '.'),
	('signature alone', '.' || b64(mac(''))),
	('43 characters', repeat('A', 43)), ('full stop and 43', '.' || repeat('A', 43)), ('one and 43', 'A.' || repeat('A', 43)),
	('three parts', forge(altered('alice', 'alice')) || '.' || b64(mac(''))),
	('JWT', 'eyJhbGciOiJub25lIn0.' || b64(convert_to(altered('alice', 'alice'), 'UTF8')) || '.'),
	('non-ASCII', repeat('é', 100))
) t (name, token);

-- E06: signed with no secret, or one that anybody can guess, or nearly the right one
SELECT secret, verdict(text || '.' || b64(mac(text, secret)))
FROM (SELECT b64(convert_to(altered('alice', 'alice'), 'UTF8')) AS text) t,
	 (VALUES (''::bytea), ('\x00'), ('   '), ('key'), (decode(repeat('00', 32), 'hex')), (decode(repeat('00', 64), 'hex')),
			 ('\x000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e'),
			 ('\x000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f')) s (secret);

-- E11: signatures of other lengths, the true one at their start
SELECT bytes, verdict(text || '.' || b64(substr(mac(text) || mac(text), 1, bytes)))
FROM (SELECT b64(convert_to(altered('alice', 'alice'), 'UTF8')) AS text) t, unnest(ARRAY[0, 1, 31, 32, 33, 64]) bytes;

-- E11: any bit of the signature wrong, any character of the payload another
SELECT verdict(text || '.' || b64(set_bit(mac(text), bit, 1 - get_bit(mac(text), bit)))) AS verdict, count(*)
FROM (SELECT b64(convert_to(altered('alice', 'alice'), 'UTF8')) AS text) t, generate_series(0, 255) bit GROUP BY 1;
SELECT verdict(overlay(token PLACING CASE substr(token, i, 1) WHEN other THEN 'Z' ELSE other END FROM i)) AS verdict, count(*)
FROM (SELECT forge(altered('alice', 'alice')) AS token) t, generate_series(1, position('.' IN token) - 1) i,
	 (VALUES ('A'), ('_'), ('.'), ('='), (' '), ('é')) o (other) GROUP BY 1;

-- E03: forged and expired, of another scope, with a known key: INVALID and nothing else
SELECT verdict(text || '.' || b64(mac(text, decode(repeat('ab', 32), 'hex')))) AS verdict, count(*)
FROM (VALUES ('4102444800', '1'), ('"charge"', '"refund"'), ('"alice"', '"bob"'), ('ENy4', 'AAAA'), ('alice', 'alice')) a (old, new),
	 LATERAL (SELECT b64(convert_to(altered(old, new), 'UTF8')) AS text) t GROUP BY 1;
-- the parts of two good fingerprints exchanged
SELECT verdict(split_part(a.token, '.', 1) || '.' || split_part(b.token, '.', 2)), count(*)
FROM vector a, vector b WHERE a.id <> b.id GROUP BY 1;


-- What no signer may write, though signed with the real secret ---------------------------------------------

-- E05: times
SELECT exp, verdict(forge(altered('4102444800', exp))) FROM unnest(ARRAY[
	'1', '253402300799', '253402300800', '1753500000000', '1' || repeat('0', 50), '9223372036854775807', '9223372036854775808',
	'18446744073709551617', '1e308', '1e9', '"Infinity"', 'Infinity', 'NaN', '"4102444800"', 'null', 'true', '[1]', '{}', '', '-1', '-0',
	'0', '+1', '01', '00', '1.5', '1.0', '1.', '0x1', '1_0', '1 0', '१'
]) exp;
-- a time that has passed, or the last there is, is read as it stands
SELECT valid, expires_at FROM unnest(ARRAY['1', '253402300799']) exp, idem_inspect(forge(altered('4102444800', exp)));

-- E07, D12: the object as a whole
SELECT payload, verdict(forge(payload)) FROM unnest(ARRAY[
	'', '[]', '"x"', '1', 'null', 'true', '{}', '{', '}', 'not JSON', '{"alg":"none"}', '[' || altered('alice', 'alice') || ']'
]) payload;
SELECT name, verdict(forge(payload)) FROM (VALUES
	('good', altered('alice', 'alice')),
	('alg added', altered('{', '{"alg":"none",')),
	('n twice', altered('{', '{"n":"0192f0c1-7e3a-7c11-8a5b-0d5c2f6e9a01",')),
	('n twice, another', altered('{', '{"n":"0192f0c1-7e3a-7c11-8a5b-0d5c2f6e9a02",')),
	('n twice, escaped', altered('{', '{"\u006e":"0192f0c1-7e3a-7c11-8a5b-0d5c2f6e9a02",')),
	('exp twice', altered('}', ',"exp":4102444800}')),
	('u twice', altered('}', ',"u":"bob"}')),
	('u twice, escaped', altered('}', ',"\u0075":"bob"}')),
	('s twice', altered('}', ',"s":"charge"}')),
	('p twice', altered('}', ',"p":"ENy46BQzOnJFIEhqgSEkpxoyJJathJpNQLuEHNTfHbM"}')),
	('v twice', altered('}', ',"v":1,"v":1}')),
	('r twice', altered('}', ',"r":true,"r":true}')),
	('no n', altered('"n":"0192f0c1-7e3a-7c11-8a5b-0d5c2f6e9a01",', '')),
	('no exp', altered('"exp":4102444800,', '')),
	('no u', altered('"u":"alice",', '')),
	('no s', altered('"s":"charge",', '')),
	('no p', altered(',"p":"ENy46BQzOnJFIEhqgSEkpxoyJJathJpNQLuEHNTfHbM"', '')),
	('U', altered('"u"', '"U"')),
	('name with blank', altered('"u"', '"u "')),
	('empty name', altered('"u"', '""')),
	('long name', altered('"u"', '"' || repeat('u', 1000) || '"')),
	('name escaped', altered('"u"', '"\u0075"')),
	('name not quoted', altered('"u"', 'u')),
	('comma at the end', altered('}', ',}')),
	('comma at the start', altered('{', '{,')),
	('two commas', altered(',"u"', ',,"u"')),
	('no comma', altered(',"u"', '"u"')),
	('no colon', altered('"u":', '"u"')),
	('no brace', altered('}', '')),
	('two objects', altered('}', '}{}')),
	('something after', altered('}', '}x')),
	('comment', altered('{', '{/**/')),
	('apostrophes', altered('"alice"', '''alice''')),
	('byte order mark', U&'\feff' || altered('{', '{')),
	('blanks between', altered(',', E' \t,\r\n ')),
	('blanks around', E'\n ' || altered(':', ' : ') || E' \n'),
	('form feed', altered(',', E'\f,')),
	('no-break space', altered(',', U&'\00a0,')),
	('deep', altered('"alice"', repeat('[', 1000) || repeat(']', 1000))),
	('other order', '{"r":true,"p":"ENy46BQzOnJFIEhqgSEkpxoyJJathJpNQLuEHNTfHbM","s":"charge","v":7,"u":"alice","exp":1,"n":"0192f0c1-7e3a-7c11-8a5b-0d5c2f6e9a01"}')
) t (name, payload);
-- bytes that are no text: NUL, half a character, too long a form, a surrogate, beyond Unicode
SELECT bytes, verdict(forge(overlay(convert_to(altered('alice', 'a@e'), 'UTF8') PLACING bytes FROM position('@' IN altered('alice', 'a@e')) FOR 1)))
FROM unnest(ARRAY['\x62', '\x00', '\x01', '\x1f', '\x0a', '\x7f', '\xc3', '\xa9', '\xc3a9', '\xc080', '\xeda080', '\xf09f9882', '\xf4908080', '\xff']::bytea[]) bytes;

-- cut off anywhere, in the middle of an escape too
SELECT verdict(forge(left(payload, cut))) AS verdict, count(*)
FROM (SELECT altered('alice', 'a\n\u00e9\ud83d\ude02"') AS payload) p, generate_series(0, length(payload) - 1) cut GROUP BY 1;

-- the key: one spelling of a UUID of version 7
SELECT n, verdict(forge(altered('"0192f0c1-7e3a-7c11-8a5b-0d5c2f6e9a01"', n))) FROM unnest(ARRAY[
	'"0192f0c1-7e3a-7c11-8a5b-0d5c2f6e9a01"', '"0192f0c1-7e3a-7c11-ba5b-0d5c2f6e9a01"', '"\u00300192f0c-7e3a-7c11-8a5b-0d5c2f6e9a01"',
	'"0192F0C1-7E3A-7C11-8A5B-0D5C2F6E9A01"', '"0192f0c1-7e3a-4c11-8a5b-0d5c2f6e9a01"', '"0192f0c1-7e3a-8c11-8a5b-0d5c2f6e9a01"',
	'"0192f0c1-7e3a-7c11-7a5b-0d5c2f6e9a01"', '"0192f0c1-7e3a-7c11-ca5b-0d5c2f6e9a01"', '"0192f0c17e3a7c118a5b0d5c2f6e9a01"',
	'"{0192f0c1-7e3a-7c11-8a5b-0d5c2f6e9a01}"', '"0192f0c1-7e3a-7c11-8a5b-0d5c2f6e9a0"', '"0192f0c1-7e3a-7c11-8a5b-0d5c2f6e9a011"',
	'"0192f0c17-e3a-7c11-8a5b-0d5c2f6e9a01"', '"0192f0c1-7e3a-7c11-8a5b-0d5c2f6e9a0g"', '"0192f0c1-7e3a-7c11-8a5b-0d5c2f6e9a0 "',
	'""', 'null', '1', '["0192f0c1-7e3a-7c11-8a5b-0d5c2f6e9a01"]'
]) n;

-- subject and scope: text of 1 to 255 bytes, any escape that JSON knows
SELECT left(label, 40) AS label, verdict(forge(altered('"alice"', label))) AS subject, verdict(forge(altered('"charge"', label))) AS scope,
	   left((idem_inspect(forge(altered('"alice"', label)))).subject, 20) AS read
FROM unnest(ARRAY[
	'"a"', '""', 'null', '1', '[]', '{}', '"a', 'a"', '"a""b"',
	'"' || repeat('x', 255) || '"', '"' || repeat('x', 256) || '"', '"' || repeat('é', 127) || '"', '"' || repeat('é', 128) || '"',
	'"' || repeat('\u00e9', 127) || '"', '"' || repeat('\u00e9', 128) || '"',
	'"\"\\\/\b\f\n\r\t"', '"\u0061\u00E9\u00e9\u20AC\uffff"', '"\ud83d\ude02"', '"\uD83D\uDE02"', '"\u0001"',
	'"\u0000"', '"\ud83d"', '"\ude02"', '"\ude02\ud83d"', '"\ud83d\ud83d"', '"\ud83dx"', '"\ud83d\n"', '"\ud83d\u0041"',
	'"\x41"', '"\a"', '"\u12"', '"\u 123"', '"\u00g1"', '"\U0041"', '"\u"', '"\"', '"\'
]) label;

-- the hash: the one spelling of 32 bytes (B64 of the last two bytes ends in one of 16 letters)
SELECT p, verdict(forge(altered('"ENy46BQzOnJFIEhqgSEkpxoyJJathJpNQLuEHNTfHbM"', p))) FROM unnest(ARRAY[
	'"ENy46BQzOnJFIEhqgSEkpxoyJJathJpNQLuEHNTfHbM"', '"ENy46BQzOnJFIEhqgSEkpxoyJJathJpNQLuEHNTfHbN"', '"ENy46BQzOnJFIEhqgSEkpxoyJJathJpNQLuEHNTfHbM="',
	'"ENy46BQzOnJFIEhqgSEkpxoyJJathJpNQLuEHNTfHb"', '"ENy46BQzOnJFIEhqgSEkpxoyJJathJpNQLuEHNTfHbMA"', '"_-y46BQzOnJFIEhqgSEkpxoyJJathJpNQLuEHNTfHbM"',
	'"/+y46BQzOnJFIEhqgSEkpxoyJJathJpNQLuEHNTfHbM"', '"\u0045Ny46BQzOnJFIEhqgSEkpxoyJJathJpNQLuEHNTfHbM"', '"ENy46BQzOnJFIEhqgSEkpxoyJJathJpNQLuEHNTfHb "',
	'"10dcb8e814333a724520486a812124a71a322496ad849a4d40bb841cd4df1db3"', '""', 'null'
]) p;

-- the version and the confirmed repeat; a version of 0 is what its absence means
SELECT member, verdict(token), version, confirmed_repeat
FROM unnest(ARRAY[
	'"v":0', '"v":1', '"v":2147483647', '"v":2147483648', '"v":4294967297', '"v":-1', '"v":01', '"v":1.0', '"v":1e1', '"v":"1"', '"v":null', '"v":true',
	'"r":true', '"r":false', '"r":null', '"r":1', '"r":"true"', '"r":True', '"r":truex', '"r":tru', '"r"', '"v":3,"r":true', '"r" : true , "v" : 3'
]) member, LATERAL (SELECT forge(altered('}', ',' || member || '}')) AS token) t, idem_inspect(token);

-- P7: lists that this database never had are not taken for "everything", though the hash would be right
SELECT (SELECT outcome FROM idem_acquire(token, 'alice', 'charge', '{"amount":199,"currency":"USD","payee":"acct_42"}')) AS acquire,
	   (SELECT outcome FROM idem_status(token, 'alice')) AS status
FROM (SELECT forge(altered('}', ',"v":1234567}')) AS token) t;


-- One spelling, and what is forgiven at the ends -----------------------------------------------------------

-- E02: of all the ways to write a fingerprint in base64, one is read
SELECT name, verdict(token) FROM (SELECT text, sign, text || '.' || sign AS good FROM
		(SELECT b64(convert_to(altered('alice', U&'\00ff\00ff\00fb\00ff~?>x'), 'UTF8')) AS text) t,
		LATERAL (SELECT b64(mac(text)) AS sign) s) g,
	LATERAL (VALUES
		('good', good), ('padded', good || '='), ('padded payload', text || '=.' || b64(mac(text || '='))),
		('standard alphabet', translate(text, '-_', '+/') || '.' || b64(mac(translate(text, '-_', '+/')))),
		('standard signature', text || '.' || translate(sign, '-_', '+/')),
		('line break', left(text, 76) || E'\n' || substr(text, 77) || '.' || b64(mac(left(text, 76) || E'\n' || substr(text, 77)))),
		('blank', left(text, 20) || ' ' || substr(text, 21) || '.' || sign),
		('blank before the full stop', text || ' .' || sign), ('blank after it', text || '. ' || sign),
		('upper case', upper(good)), ('escaped', replace(good, '.', '%2E')), ('comma', replace(good, '.', ','))
	) t (name, token);
SELECT (text <> translate(text, '-_', '+/')) AS has_both FROM (SELECT forge(altered('alice', U&'\00ff\00ff\00fb\00ff~?>x')) AS text) t;
-- unused bits of the last digit, 2 in a signature, 2 or 4 in a payload: all but the zero ones are refused
SELECT verdict(left(token, -1) || digit) AS verdict, count(*)
FROM regexp_split_to_table('ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_', '') digit,
	 (SELECT forge(altered('alice', 'alice')) AS token) t GROUP BY 1 ORDER BY 1;
SELECT length(text) % 4 AS length, verdict(spelling || '.' || b64(mac(spelling))) AS verdict, count(*)
FROM regexp_split_to_table('ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_', '') digit,
	 (VALUES ('al'), ('ali'), ('alic')) u (u),
	 LATERAL (SELECT b64(convert_to(altered('alice', u), 'UTF8')) AS text) t, LATERAL (SELECT left(text, -1) || digit AS spelling) s
GROUP BY 1, 2 ORDER BY 1, 2;
-- a digit that is left over stands for no byte
SELECT verdict(spelling || '.' || b64(mac(spelling))) AS verdict, count(*)
FROM (VALUES ('al'), ('ali'), ('alic')) u (u),
	 LATERAL (SELECT b64(convert_to(altered('alice', u), 'UTF8')) AS text) t, LATERAL (SELECT text || repeat('A', 5 - length(text) % 4) AS spelling) s
GROUP BY 1;

-- as models copy: white space, quotes, backticks, one full stop at the end of the sentence
SELECT name, verdict(before || forge(altered('alice', 'alice')) || after) FROM (VALUES
	('nothing', '', ''), ('blanks', '  ', '  '), ('line breaks', E'\n\t', E'\r\n'), ('other white space', E'\f\x0b', E'\x0b\f'),
	('quotes', '"', '"'), ('one quote', '"', ''), ('apostrophes', '''', ''''), ('backticks', '`', '`'), ('code block', E'```\n', E'\n```'),
	('all mixed', E' "`''\n', E'''` "\n'), ('full stop', '', '.'), ('full stop outside', '"', '".'), ('full stop inside', '"', '."'),
	('full stop, break', '', E'.\n'), ('amid', '`', E'` ."\n'), ('thousand blanks', repeat(' ', 1000), repeat(' ', 1000)),
	('two full stops', '', '..'), ('two, apart', '', '.".'), ('ellipsis', '', U&'\2026'), ('full stop before', '.', ''), ('comma', '', ','),
	('colon', '', ':'), ('brackets', '(', ')'), ('angle brackets', '<', '>'), ('stars', '**', '**'), ('typographic', U&'\201c', U&'\201d'),
	('guillemets', U&'\00ab', U&'\00bb'), ('no-break space', U&'\00a0', ''), ('zero width', '', U&'\200b'), ('ideographic', '', U&'\3000'),
	('byte order mark', U&'\feff', ''), ('backslash', '\', ''), ('escaped quotes', '\"', '\"'), ('control character', E'\x01', ''),
	('fp=', 'fp=', '')
) t (name, before, after);

-- 4096 bytes before trimming, not one more
SELECT total, verdict(lpad(token, total)) AS before, verdict(rpad(token, total)) AS after
FROM (SELECT forge(altered('alice', 'alice')) AS token) t, unnest(ARRAY[4095, 4096, 4097]) total;
SELECT length(token), verdict(token), verdict(token || '.') AS full_stop
FROM unnest(ARRAY[3038, 3039, 3040]) bytes, LATERAL (SELECT forge(rpad(altered('alice', 'alice'), bytes)) AS token) t;

DELETE FROM idem_policy WHERE scope = 'listed';
DROP TABLE vector, issued;
DROP FUNCTION b64, mac, forge(bytea), forge(text), payload, altered, verdict, raised;
