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
	request->confirmed_repeat = fingerprint.confirmed_repeat;
	return true;
}

bool
request_refresh(Request *request, Answer *answer)
{
	Fingerprint fingerprint;

	policy_begin();
	request->policy = policy_of(request->scope.data, request->scope.length);
	if (request->door != DOOR_FINGERPRINT || fingerprint_read(request->token, &fingerprint))
		return true;
	answer_init(answer, OUTCOME_INVALID, request->scope, request->subject);
	return false;
}

/* Name the operation by the parameters under some lists; false where nothing of them is material. */
static bool
name_by_content(Request *request, int32 version, const MaterialPart *part)
{
	StringInfoData canonical;
	bool		material;

	initStringInfo(&canonical);
	material = canonical_append(&canonical, request->params, part);
	if (material)
	{
		key_direct(DIRECT_CONTENT, request->scope.data, request->scope.length,
				   request->subject.data, request->subject.length,
				   canonical.data, canonical.len, &request->key);
		sha256(canonical.data, canonical.len, request->param_hash);
		request->version = version;
	}
	pfree(canonical.data);
	return material;
}

/* Has the operation of a key begun, and not lapsed: in this transaction, in another one, or on record? */
static bool
is_known(const pg_uuid_t *key, Span subject)
{
	ItemPointerData tid;
	Answer		answer;

	if (xact_place(key, &tid) != PLACE_NONE)
		return true;
	claim_look_up(key, subject, DT_NOEND, &answer);
	return answer.outcome != OUTCOME_NONE && answer.outcome != OUTCOME_UNKNOWN;
}

/* A claim under replaced lists may stand in the fast table, and that cannot be read: here a miss would decide. */
static void
refuse_to_guess(void)
{
	ereport(ERROR,
			(errcode(ERRCODE_T_R_SERIALIZATION_FAILURE),
			 errmsg("could not look for a claim made under the scope's earlier lists"),
			 errdetail("The fast table is locked."),
			 errhint("Run the transaction again.")));
}

/*
 * An operation that began under lists replaced since is still the same operation: its honest retry must find
 * it, unless the lists in force name one that is known.
 */
static bool
name_by_known_content(Request *request)
{
	const Policy *policy = request->policy;
	const ReplacedVersion *versions;
	int			nversions = policy_replaced(request->scope.data, request->scope.length,
											GetCurrentTimestamp(), &versions);
	Store		fast;
	bool		fast_was_read;
	bool		known;

	if (nversions == 0)
		return false;
	/* held over all looks, so that none of them is refused the table */
	fast_was_read = RecoveryInProgress() || store_open(&fast, TABLE_FAST, AccessShareLock, true);
	known = name_by_content(request, policy->version, policy->part) && is_known(&request->key, request->subject);
	for (int i = 0; !known && i < nversions; i++)
		known = name_by_content(request, versions[i].version, versions[i].part) &&
			is_known(&request->key, request->subject);
	if (!fast_was_read && !known)
		refuse_to_guess();
	if (fast_was_read && !RecoveryInProgress())
		store_close(&fast);
	return known;
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
	request->confirmed_repeat = false;
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
	request->lists_in_force = policy->version;
	if (!name_by_known_content(request) &&
		!name_by_content(request, policy->version, policy->part))
		request_refuse_immaterial();
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
