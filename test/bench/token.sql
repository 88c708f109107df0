-- token.sql: fingerprints of alice's operations in the scope "charge", for a key and a time of one's choice, as
-- docs/format.md lays them down.
CREATE FUNCTION bench_code(bytes bytea) RETURNS text LANGUAGE sql IMMUTABLE STRICT AS
	$$SELECT rtrim(translate(encode(bytes, 'base64'), E'+/\n', '-_'), '=')$$;

CREATE FUNCTION bench_token(key uuid, expires_at timestamptz, params jsonb) RETURNS text LANGUAGE plpgsql STRICT AS $$
DECLARE
	body text := bench_code(convert_to(format('{"n":"%s","exp":%s,"u":"alice","s":"charge","p":"%s"}', key,
		floor(extract(epoch FROM expires_at))::int8, bench_code(idem_param_hash('charge', params))), 'UTF8'));
BEGIN
	RETURN body || '.' || bench_code(hmac(body::bytea, idem_export_secret(), 'sha256'));
END $$;
