/*
 * preview.c: a fingerprint with what a model is to do with it, or the likely repeat that stands in its way.
 */
#include "compat.h"

#include "guard.h"
#include "guc.h"
#include "policy.h"
#include "reply.h"
#include "sign.h"

PG_FUNCTION_INFO_V1(idem_preview);

/* The earlier operation that an equal one would repeat, within the scope's repeat_guard, as a claim. */
static bool
find_repeat(const Signed *operation, GivenClaim *claim)
{
	const Policy *policy = policy_of(operation->scope.data, operation->scope.length);
	Answer		answer;

	if (operation->confirmed_repeat ||
		!guard_look(operation->scope, operation->subject, operation->params, policy->repeat_guard,
					&answer))
		return false;
	answer.scope = operation->scope;
	answer.subject = operation->subject;
	return claim_read(DatumGetHeapTupleHeader(answer_datum(&answer)), claim);
}

static Jsonb *
preview_jsonb(const Reply *reply, const Signed *operation)
{
	Document	document = {0};

	document_open_object(&document, NULL);
	document_add_string(&document, "status", reply->kind->code);
	reply_add_members(reply, &document);
	document_add_string(&document, "fingerprint", operation->token);
	document_add_time(&document, "expires_at", operation->expires_at);
	document_open_array(&document, "copy_back");
	document_add_string(&document, NULL, "fingerprint");
	document_close_array(&document);
	document_close_object(&document);
	return document_jsonb(&document);
}

/*
 * idem_preview(subject text, scope text, params jsonb, not_after timestamptz DEFAULT NULL,
 *		confirm_repeat boolean DEFAULT false) RETURNS jsonb
 *
 * It signs first, so that arguments are judged the same way whether or not there is a repeat.  A repeat is told without
 * the fingerprint: a model that has one goes on, and a person is to decide.  Raises what idem_sign raises.
 */
Datum
idem_preview(PG_FUNCTION_ARGS)
{
	Signed		operation;
	Reply		reply = {.lang = (Lang) guc_lang};
	bool		is_repeat;

	policy_begin();
	sign_operation(fcinfo, &operation);
	is_repeat = find_repeat(&operation, &reply.claim);
	reply.claim.scope = operation.scope;
	reply.kind = is_repeat ? reply_kind_of(&reply.claim) : reply_kind("PREVIEW_READY");
	reply_word(&reply);
	PG_RETURN_JSONB_P(is_repeat ? reply_jsonb(&reply) : preview_jsonb(&reply, &operation));
}
