/*
 * preview.c: idem_preview's door, and what a preview looks for before it shows a fingerprint.
 */
#include "compat.h"

#include "catalog/pg_proc.h"
#include "utils/lsyscache.h"
#include "utils/syscache.h"

#include "args.h"
#include "binding.h"
#include "guard.h"
#include "policy.h"

PG_FUNCTION_INFO_V1(idem_preview);
PG_FUNCTION_INFO_V1(idem_find_repeat);

/* The function that makes the preview: of the same schema and arguments as the one that is called. */
static Oid
find_maker(Oid preview)
{
	HeapTuple	tuple = SearchSysCache1(PROCOID, ObjectIdGetDatum(preview));
	Form_pg_proc form;
	Oid			maker;

	if (!HeapTupleIsValid(tuple))
		elog(ERROR, "cache lookup failed for function %u", preview);
	form = (Form_pg_proc) GETSTRUCT(tuple);
	maker = GetSysCacheOid3(PROCNAMEARGSNSP, Anum_pg_proc_oid, CStringGetDatum("idem_make_preview"),
							PointerGetDatum(&form->proargtypes), ObjectIdGetDatum(form->pronamespace));
	ReleaseSysCache(tuple);
	if (!OidIsValid(maker))
		elog(ERROR, "function idem_make_preview is gone");
	return maker;
}

/*
 * idem_preview(subject text, scope text, params jsonb, not_after timestamptz DEFAULT NULL,
 *		confirm_repeat boolean DEFAULT false) RETURNS jsonb
 *
 * Whether the caller may act for the subject is judged here, where it is still the caller; the preview is then made
 * with the owner's rights.
 */
Datum
idem_preview(PG_FUNCTION_ARGS)
{
	LOCAL_FCINFO(call, 5);
	FmgrInfo	maker;
	Datum		preview;

	policy_begin();
	(void) binding_subject(fcinfo, 0);
	fmgr_info(find_maker(fcinfo->flinfo->fn_oid), &maker);
	InitFunctionCallInfoData(*call, &maker, 5, fcinfo->fncollation, NULL, NULL);
	memcpy(call->args, fcinfo->args, sizeof(NullableDatum) * 5);
	preview = FunctionCallInvoke(call);
	if (call->isnull)
		PG_RETURN_NULL();
	PG_RETURN_DATUM(preview);
}

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
