-- What the clients' story finds in the database: policies, tables, and a rival in a session of its own.
CREATE EXTENSION dblink;

INSERT INTO idem_policy (scope, material) VALUES ('charge', '{/amount,/currency,/payee}');
INSERT INTO idem_policy (scope, downstream) VALUES ('book', 'local');
INSERT INTO idem_policy (scope, entry) VALUES ('signed', 'fingerprint');
INSERT INTO idem_policy (scope, repeat_guard) VALUES ('guarded', '1 hour');
-- a lease that is soon over
INSERT INTO idem_policy (scope, downstream, downstream_max, gateway_timeout, retry_backoff, in_flight_ttl)
	VALUES ('short opaque', 'opaque', '1 ms', '1 ms', '1 ms', '20 ms'),
		('short idempotent', 'idempotent', '1 ms', '1 ms', '1 ms', '20 ms');

-- rows that are the effect
CREATE TABLE ledger (idem_key uuid NOT NULL UNIQUE, amount numeric);
CREATE TRIGGER ledger_idem BEFORE INSERT OR UPDATE ON ledger
	FOR EACH ROW EXECUTE FUNCTION idem_require('book', 'idem_key');
CREATE FUNCTION book(params jsonb) RETURNS jsonb LANGUAGE sql AS $$
	SELECT jsonb_build_object('booked', params -> 'amount')
$$;

-- what is sent outside by the recipes
CREATE TABLE sent (idem_key uuid NOT NULL);

-- two rows for a deadlock
CREATE TABLE spot (run text, id int);

CREATE FUNCTION rival_connects(name text) RETURNS void LANGUAGE sql AS $$
	SELECT dblink_connect(name, format('host=%s port=%s dbname=%s user=%s', current_setting('unix_socket_directories'),
		current_setting('port'), current_database(), current_user))
$$;

-- another session begins the operation, and its attempt fails
CREATE FUNCTION rival_fails(fingerprint text, subject text, scope text, params jsonb) RETURNS text
	LANGUAGE plpgsql AS $$
DECLARE
	ack text;
BEGIN
	PERFORM rival_connects('rival');
	SELECT a INTO ack FROM dblink('rival', format('SELECT idem_fail(c.key, c.owner, ''"busy"'', true)::text
		FROM idem_acquire(%L, %L, %L, %L) AS c', fingerprint, subject, scope, params)) AS t (a text);
	PERFORM dblink_disconnect('rival');
	RETURN ack;
END
$$;

-- another session holds the second spot and waits for the first
CREATE FUNCTION rival_crosses(run text) RETURNS bool LANGUAGE plpgsql AS $$
DECLARE
	rival int;
BEGIN
	PERFORM rival_connects('crossing');
	SELECT p INTO rival FROM dblink('crossing', 'SELECT pg_backend_pid()') AS t (p int);
	PERFORM dblink_exec('crossing', 'SET deadlock_timeout = ''10 min''');
	PERFORM dblink_exec('crossing', 'BEGIN');
	PERFORM dblink_exec('crossing', format('UPDATE spot SET id = id WHERE run = %L AND id = 2', run));
	PERFORM dblink_send_query('crossing', format('UPDATE spot SET id = id WHERE run = %L AND id = 1', run));
	WHILE cardinality(pg_blocking_pids(rival)) = 0 LOOP
		PERFORM pg_sleep(0.001);
	END LOOP;
	RETURN true;
END
$$;
-- and leaves, if it has come, once it has got its way
CREATE FUNCTION rival_leaves() RETURNS bool LANGUAGE plpgsql AS $$
BEGIN
	IF 'crossing' = ANY (dblink_get_connections()) THEN
		PERFORM FROM dblink_get_result('crossing') AS t (state text);
		PERFORM dblink_disconnect('crossing');
	END IF;
	RETURN true;
END
$$;

-- the standby has all that is committed here
CREATE FUNCTION standby_follows() RETURNS bool LANGUAGE plpgsql AS $$
BEGIN
	WHILE NOT coalesce((SELECT bool_and(replay_lsn >= pg_current_wal_flush_lsn()) FROM pg_stat_replication), false) LOOP
		PERFORM pg_sleep(0.001);
	END LOOP;
	RETURN true;
END
$$;
