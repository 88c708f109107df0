-- The receiver of the effects, which no fault touches.  It does what each kind of downstream can do:
--   i  deduplicates on the key: the first answer is every answer
--   q  can tell what became of a key
--   o  neither
-- A request says until when it may be carried out, as a gateway's timeout would; who looks an operation up closes
-- it for requests of the attempts before, so that what was found stays true.
CREATE TABLE effect (id bigserial, key uuid NOT NULL, attempt int NOT NULL, owner uuid NOT NULL, kind "char" NOT NULL,
	token text, at timestamptz NOT NULL DEFAULT clock_timestamp());
CREATE INDEX ON effect (key);
CREATE TABLE request (key uuid NOT NULL, attempt int NOT NULL, owner uuid NOT NULL, answer text NOT NULL);
CREATE TABLE closed (key uuid PRIMARY KEY, attempt int NOT NULL);

-- token null in effect: declined, nothing happened
CREATE FUNCTION send(kind "char", key uuid, attempt int, owner uuid, not_after bigint, decline bool) RETURNS text LANGUAGE plpgsql AS $$
#variable_conflict use_variable
DECLARE
	answer text;
BEGIN
	PERFORM pg_advisory_xact_lock(hashtextextended(key::text, 0));
	IF kind = 'i' AND EXISTS (SELECT FROM effect AS e WHERE e.key = key) THEN
		SELECT coalesce(e.token, 'declined') INTO answer FROM effect AS e WHERE e.key = key ORDER BY e.id LIMIT 1;
	ELSIF kind <> 'i' AND (extract(epoch FROM clock_timestamp()) * 1000000 >= not_after
			OR EXISTS (SELECT FROM closed AS c WHERE c.key = key AND c.attempt >= attempt)) THEN
		answer := 'late';
	ELSIF decline AND kind <> 'i' THEN
		answer := 'declined';
	ELSE
		INSERT INTO effect (key, attempt, owner, kind, token)
			VALUES (key, attempt, owner, kind, CASE WHEN NOT decline THEN 'e' || gen_random_uuid() END)
			RETURNING coalesce(effect.token, 'declined') INTO answer;
	END IF;
	INSERT INTO request VALUES (key, attempt, owner, answer);
	RETURN answer;
END $$;

CREATE FUNCTION look_up(key uuid, attempt int) RETURNS text LANGUAGE plpgsql AS $$
#variable_conflict use_variable
BEGIN
	PERFORM pg_advisory_xact_lock(hashtextextended(key::text, 0));
	INSERT INTO closed VALUES (key, attempt)
		ON CONFLICT ON CONSTRAINT closed_pkey DO UPDATE SET attempt = greatest(closed.attempt, excluded.attempt);
	RETURN (SELECT e.token FROM effect AS e WHERE e.key = key AND e.token IS NOT NULL ORDER BY e.id LIMIT 1);
END $$;

CREATE UNLOGGED TABLE history (client int, seq bigint, kind "char", at bigint, txn bigint, call text, scope text, op bigint, item bigint,
	key uuid, attempt int, owner uuid, asked text, answer text, replayed bool, result text, lease bigint);
CREATE TABLE record (key uuid, state "char", attempt int, downstream "char", scope text, subject text, result text, lease bigint,
	status text);
CREATE TABLE ledger (op bigint, token text);
CREATE TABLE violation (promise text NOT NULL, what text NOT NULL, key uuid, op bigint);
