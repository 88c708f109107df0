-- What a user does first, whatever way idem came to the server: test/package and test/container
CREATE EXTENSION idem CASCADE;
INSERT INTO idem_policy (scope, material) VALUES ('charge', '{/amount,/payee}');
SELECT idem_sign('alice', 'charge', '{"amount": 199, "payee": "acct_42", "memo": "soon"}') AS fp \gset
SELECT outcome, attempt, key, owner FROM idem_acquire(:'fp', 'alice', 'charge', '{"amount": 199, "payee": "acct_42"}') \gset
\echo :outcome :attempt
SELECT outcome FROM idem_acquire(:'fp', 'alice', 'charge', '{"amount": 199, "payee": "acct_42"}');
SELECT idem_commit(:'key', :'owner', '{"order": "ORD-1001"}');
SELECT outcome, replayed, result FROM idem_acquire(:'fp', 'alice', 'charge', '{"payee": "acct_42", "amount": 199.0}');
SELECT outcome FROM idem_acquire(:'fp', 'alice', 'charge', '{"amount": 200, "payee": "acct_42"}');
DROP EXTENSION idem;
