/*
 * preview.c: what a preview looks for before it shows a fingerprint (idem_preview in sql/idem--1.0.sql).
 */
#include "compat.h"

#include "args.h"
#include "guard.h"
#include "policy.h"

PG_FUNCTION_INFO_V1(idem_find_repeat);

/*
 * idem_find_repeat(subject text, scope text, params jsonb) RETURNS idem_claim
 *
 * REPEAT, with the key, result and time of an equal operation of the subject's within the scope's repeat_guard;
 * null where there is none or the scope has no guard.  Writes nothing.
 */
Datum
idem_find_repeat(PG_FUNCTION_ARGS)
{
	Span		subject;
	Span		scope;
	Jsonb	   *params;
	const Policy *policy;
	Answer		answer;

	policy_begin();
	subject = args_label(fcinfo, 0, "subject");
	scope = args_label(fcinfo, 1, "scope");
	params = args_params(fcinfo, 2);
	policy = policy_of(scope.data, scope.length);
	if (!guard_look(scope, subject, params, policy->part, policy->repeat_guard, &answer))
		PG_RETURN_NULL();
	answer.scope = scope;
	answer.subject = subject;
	PG_RETURN_DATUM(answer_datum(&answer));
}
