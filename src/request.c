/*
 * request.c: what a call asks for: the operation's key, and whether the token is good for it.
 *
 * The order of the checks is part of the interface: MAC, subject, scope, parameters.  Nothing of a record is
 * looked at before all of them hold, so a refusal can tell nothing of it.  Of what they rest on, only the secrets may
 * lose their force later: whenever something was waited for, the MAC is checked again.
 */
#include "compat.h"

#include "access/xlog.h"
#include "lib/stringinfo.h"
#include "utils/timestamp.h"

#include "acquire.h"
#include "alert.h"
#include "content.h"
#include "fingerprint.h"
#include "key.h"
#include "status.h"
#include "xact.h"

/* Refuse a good token used wrongly: the caller learns nothing but that, the operators all. */
static void
refuse_token(Request *request, const Fingerprint *fingerprint, Outcome outcome, AlertKind kind, Answer *answer)
{
	AlertDetail detail = {.call = request->function, .holder = request->holder};

	answer_init(answer, outcome, request->scope, request->subject);
	if (outcome == OUTCOME_SUBJECT_MISMATCH)
		detail.subject = request->subject;
	if (outcome == OUTCOME_SCOPE_MISMATCH)
		detail.scope = request->scope;
	alert_raise(kind, &fingerprint->nonce,
				(Span) {fingerprint->scope, fingerprint->scope_length},
				(Span) {fingerprint->subject, fingerprint->subject_length}, &detail);
}

TimestampTz
fingerprint_expiry(const Fingerprint *fingerprint)
{
	return (TimestampTz) (fingerprint->expires -
						  (POSTGRES_EPOCH_JDATE - UNIX_EPOCH_JDATE) * (int64) SECS_PER_DAY) * USECS_PER_SEC;
}

bool
fingerprint_read(Span token, Fingerprint *fingerprint)
{
	const SecretBytes *secrets;
	int			nsecrets;

	if (token.data == NULL)
		return false;
	nsecrets = policy_secrets(GetCurrentTimestamp(), &secrets);
	return fingerprint_decode(token.data, token.length, secrets, nsecrets, fingerprint);
}

bool
request_by_fingerprint(Request *request, Span token, Answer *answer)
{
	Fingerprint fingerprint;
	const MaterialPart *part;

	answer_init(answer, OUTCOME_INVALID, request->scope, request->subject);
	if (!fingerprint_read(token, &fingerprint))
		return false;
	if (!span_equal((Span) {fingerprint.subject, fingerprint.subject_length}, request->subject))
	{
		refuse_token(request, &fingerprint, OUTCOME_SUBJECT_MISMATCH, ALERT_SUBJECT, answer);
		return false;
	}
	if (!span_equal((Span) {fingerprint.scope, fingerprint.scope_length}, request->scope))
	{
		refuse_token(request, &fingerprint, OUTCOME_SCOPE_MISMATCH, ALERT_SCOPE, answer);
		return false;
	}
	if (!policy_version(request->scope.data, request->scope.length, fingerprint.version, &part))
		return false;
	if (!canonical_hash(request->params, part, request->param_hash) ||
		memcmp(request->param_hash, fingerprint.param_hash, SHA256_LENGTH) != 0)
	{
		refuse_token(request, &fingerprint, OUTCOME_PARAM_MISMATCH, ALERT_PARAMETER, answer);
		return false;
	}
	request->door = DOOR_FINGERPRINT;
	request->token = token;
	request->key = fingerprint.nonce;
	request->version = fingerprint.version;
	request->expires_at = fingerprint_expiry(&fingerprint);
	request->confirmed_repeat = request->confirmed_repeat || fingerprint.confirmed_repeat;
	return true;
}

void
request_choose_again(Request *request)
{
	if (request->door != DOOR_CONTENT)
		return;
	policy_begin();
	request->policy = policy_of(request->scope.data, request->scope.length);
	content_choose(request);
}

bool
request_refresh(Request *request, Answer *answer)
{
	Fingerprint fingerprint;

	policy_begin();
	request->policy = policy_of(request->scope.data, request->scope.length);
	if (request->door == DOOR_CONTENT)
		content_choose(request);
	if (request->door != DOOR_FINGERPRINT || fingerprint_read(request->token, &fingerprint))
		return true;
	answer_init(answer, OUTCOME_INVALID, request->scope, request->subject);
	return false;
}

void
request_refuse_immaterial(void)
{
	ereport(ERROR,
			(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
			 errmsg("nothing of the parameters is material"),
			 errhint("Compare them with the lists \"material\" and \"immaterial\" that idem_policy has for the scope.")));
}

void
request_direct(Request *request, Span client_key)
{
	const Policy *policy = request->policy;

	request->expires_at = DT_NOEND;
	if (client_key.data != NULL)
	{
		request->door = DOOR_CLIENT;
		key_direct(DIRECT_CLIENT, request->scope.data, request->scope.length,
				   request->subject.data, request->subject.length,
				   client_key.data, client_key.length, &request->key);
		request->version = policy->version;
		request->immaterial = !canonical_hash(request->params, policy->part, request->param_hash);
		return;
	}
	request->door = DOOR_CONTENT;
	content_choose(request);
}

static void
set_owner(Request *request, const pg_uuid_t *owner)
{
	request->has_owner = true;
	request->owner = *owner;
	owner_hash(owner, request->owner_hash);
}

void
request_owner(Request *request, const pg_uuid_t *owner)
{
	request->owner_given = owner != NULL;
	request->has_owner = false;
	if (owner != NULL)
		set_owner(request, owner);
}

void
request_without_owner(Request *request)
{
	request->owner_given = false;
	request->has_owner = true;
	memset(request->owner_hash, 0, SHA256_LENGTH);
}

void
request_need_owner(Request *request)
{
	pg_uuid_t	owner;

	if (request->has_owner)
		return;
	key_v4(&owner);
	set_owner(request, &owner);
}
