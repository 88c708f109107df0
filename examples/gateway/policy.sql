-- The scope of the gateway's charges, and who may do what. For a database that has the extension, as the role that
-- installed it. The roles are made before: CREATE ROLE idem_example_gateway LOGIN, CREATE ROLE idem_example_operator LOGIN.

INSERT INTO idem_policy (scope, material, entry, downstream, repeat_guard, confirm_with, poll_with)
VALUES ('charge', '{/amount,/currency,/payee}', 'fingerprint', 'opaque', '1 hour', 'charge_confirm', 'charge_status');

SELECT idem_grant('idem_example_gateway', 'signer'), idem_grant('idem_example_gateway', 'caller'),
	idem_grant('idem_example_operator', 'operator');
