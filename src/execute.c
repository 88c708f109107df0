/*
 * execute.c: idem_execute, a protected call in one statement.
 *
 * Acquire, fn, commit, all in the caller's transaction: an exception in fn takes the claim back with everything
 * else and reaches the caller as it is.
 */
#include "compat.h"

#include "access/htup_details.h"
#include "catalog/pg_proc.h"
#include "catalog/pg_type_d.h"
#include "miscadmin.h"
#include "utils/acl.h"
#include "utils/lsyscache.h"
#include "utils/syscache.h"
#include "utils/timestamp.h"

#include "acquire.h"
#include "binding.h"
#include "stat.h"

PG_FUNCTION_INFO_V1(idem_execute);

static void
check_right(Oid fn)
{
	AclResult	right = may_execute(fn, GetUserId());

	if (right != ACLCHECK_OK)
		aclcheck_error(right, OBJECT_FUNCTION, get_func_name(fn));
}

/* Refuse what is not fn(jsonb) returns jsonb, or what the caller may not call: before anything is claimed. */
static void
check_function(Oid fn)
{
	HeapTuple	tuple = SearchSysCache1(PROCOID, ObjectIdGetDatum(fn));
	Form_pg_proc form;
	bool		fits;

	if (!HeapTupleIsValid(tuple))
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_FUNCTION),
				 errmsg("function with OID %u does not exist", fn)));
	form = (Form_pg_proc) GETSTRUCT(tuple);
	fits = form->prokind == PROKIND_FUNCTION && !form->proretset && form->prorettype == JSONBOID &&
		form->pronargs == 1 && form->proargtypes.values[0] == JSONBOID && !OidIsValid(form->provariadic);
	ReleaseSysCache(tuple);
	if (!fits)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_FUNCTION_DEFINITION),
				 errmsg("argument \"fn\" must be a function of one jsonb that returns jsonb"),
				 errhint("Wrap what you want to call in such a function.")));
	check_right(fn);
}

/* The effect, with the caller's rights. */
static Jsonb *
run(Oid fn, Jsonb *params)
{
	LOCAL_FCINFO(call, 1);
	FmgrInfo	function;
	Datum		result;

	fmgr_info(fn, &function);
	InitFunctionCallInfoData(*call, &function, 1, InvalidOid, NULL, NULL);
	call->args[0].value = JsonbPGetDatum(params);
	call->args[0].isnull = false;
	result = FunctionCallInvoke(call);
	return call->isnull ? NULL : DatumGetJsonbP(result);
}

/* The claim was granted: do it, and say so. */
static void
run_and_commit(Request *request, Oid fn, Answer *answer)
{
	Jsonb	   *result = run(fn, request->params);

	policy_begin();
	if (claim_commit(&request->key, request->owner_hash, result, answer) != ACK_OK)
		ereport(ERROR,
				(errcode(ERRCODE_T_R_SERIALIZATION_FAILURE),
				 errmsg("the claim was lost while its function ran"),
				 errhint("Roll back and run the transaction again.")));
	answer->replayed = false;
}

static Oid
read_function(FunctionCallInfo fcinfo, int n)
{
	if (PG_ARGISNULL(n))
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("argument \"fn\" must not be null"),
				 errhint("Name a function, for instance 'charge(jsonb)'.")));
	check_function(PG_GETARG_OID(n));
	return PG_GETARG_OID(n);
}

static void
refuse_two_names(void)
{
	ereport(ERROR,
			(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
			 errmsg("both a fingerprint and a client key were given"),
			 errhint("An operation is named by the one or by the other.")));
}

/*
 * idem_execute(subject text, scope text, params jsonb, fn regprocedure, fingerprint text DEFAULT NULL,
 *		client_key text DEFAULT NULL, wait interval DEFAULT '30 s', trace_id text DEFAULT NULL,
 *		confirm_repeat boolean DEFAULT false) RETURNS idem_claim
 *
 * DONE with replayed = false is the first run.
 */
Datum
idem_execute(PG_FUNCTION_ARGS)
{
	Request		request = {.function = "idem_execute()"};
	Answer		answer;
	Span		client_key;
	Oid			fn;
	bool		good = true;

	policy_begin();
	stat_begin(STAT_EXECUTE);
	request.subject = binding_subject(fcinfo, 0);
	request.scope = args_label(fcinfo, 1, "scope");
	stat_scope(request.scope);
	request.params = args_params(fcinfo, 2);
	fn = read_function(fcinfo, 3);
	client_key = args_optional_label(fcinfo, 5, "client_key");
	request.wait = args_interval(fcinfo, 6, "wait", true);
	request.trace_id = args_optional_label(fcinfo, 7, "trace_id");
	request.policy = policy_of(request.scope.data, request.scope.length);
	request_without_owner(&request);
	request.confirmed_repeat = args_bool(fcinfo, 8, "confirm_repeat");
	if (PG_ARGISNULL(4))
		request_direct(&request, client_key);
	else if (client_key.data != NULL)
		refuse_two_names();
	else
		good = request_by_fingerprint(&request, args_token(fcinfo, 4), &answer);
	if (good)
		acquire(&request, &answer);
	if (answer.outcome == OUTCOME_ACQUIRED)
	{
		run_and_commit(&request, fn, &answer);
		stat_end_outcome(OUTCOME_ACQUIRED, false, true);
	}
	else
		stat_end_outcome(answer.outcome, answer.joined, false);
	PG_RETURN_DATUM(answer_datum(&answer));
}
