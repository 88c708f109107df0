-- For tests: sign a fingerprint with any nonce and expiry, by pgcrypto and the secret that signs here.

CREATE FUNCTION base64url(bytes bytea) RETURNS text
	LANGUAGE sql IMMUTABLE AS $$
SELECT rtrim(translate(encode(bytes, 'base64'), E'+/\n', '-_'), '=')
$$;

-- a nonce that nobody has used
CREATE FUNCTION fresh_nonce() RETURNS uuid
	LANGUAGE sql VOLATILE AS $$
SELECT key FROM idem_inspect(idem_sign('nobody', 'nothing', '{}'))
$$;

CREATE FUNCTION sign_at(nonce uuid, expires bigint, subject text, scope text, params jsonb) RETURNS text
	LANGUAGE sql VOLATILE AS $$
SELECT p.text || '.' || base64url(hmac(convert_to(p.text, 'UTF8'), idem_export_secret(), 'sha256'))
	FROM (SELECT base64url(convert_to(format('{"n":"%s","exp":%s,"u":"%s","s":"%s","p":"%s"}',
			nonce, expires, subject, scope, base64url(idem_param_hash(NULL, params))), 'UTF8'))) AS p(text)
$$;
