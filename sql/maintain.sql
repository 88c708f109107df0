-- Regular care works as the first and only call of a session, as a scheduler makes it.
SELECT purged >= 0 AND newly_stuck >= 0 AND alerts_purged >= 0 AS works FROM idem_maintain();
