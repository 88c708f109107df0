-- sqlsmith.sql: the two roles that sqlsmith asks as, what they see, and some rows.
CREATE ROLE smith LOGIN;
CREATE ROLE nobody LOGIN;
SELECT idem_grant('smith', set) FROM unnest('{signer,caller,auditor,operator,admin}'::text[]) AS set;
CREATE SCHEMA seen;
GRANT USAGE ON SCHEMA seen TO smith, nobody;
CREATE VIEW seen.pg_proc AS
	SELECT p.* FROM pg_catalog.pg_proc AS p
	WHERE p.proname ~ '^idem_' OR p.proname IN ('now', 'to_jsonb', 'upper', 'length', 'min', 'max', 'count')
		AND p.pronamespace = 'pg_catalog'::regnamespace AND NOT '"any"'::regtype = ANY (p.proargtypes);
CREATE VIEW seen.pg_operator AS
	SELECT o.* FROM pg_catalog.pg_operator AS o
	WHERE o.oprleft = ANY ('{text,uuid,jsonb,interval,bool,int4,timestamptz}'::regtype[])
		AND o.oprright = o.oprleft AND o.oprname IN ('=', '<', '||', '+', '-');
GRANT SELECT ON seen.pg_proc, seen.pg_operator TO smith, nobody;
ALTER ROLE smith SET search_path = seen, pg_catalog, public;
ALTER ROLE nobody SET search_path = seen, pg_catalog, public;
SELECT idem_execute('alice', 'plain', jsonb_build_object('amount', i), 'fuzz_echo(jsonb)') FROM generate_series(1, 20) AS i;
SELECT idem_acquire_direct('bob', 'plain', jsonb_build_object('amount', i)) FROM generate_series(1, 20) AS i;
CREATE VIEW public.given AS
	SELECT i AS n, idem_sign('alice', 'plain', jsonb_build_object('amount', i)) AS token, 'alice'::text AS subject,
		'plain'::text AS scope, jsonb_build_object('amount', i) AS params, gen_random_uuid() AS owner, '1 min'::interval AS time,
		'fuzz_echo(jsonb)'::regprocedure AS fn
	FROM generate_series(1, 5) AS i;
GRANT SELECT ON public.given TO smith, nobody;
