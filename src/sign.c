/*
 * sign.c: the SQL functions that compute and write nothing.
 *
 * They sign and read fingerprints, and show the canonical bytes, hashes and keys that everything else is made
 * of.  None of them judges whether an operation may run: that is for the grant.
 */
#include "compat.h"

#include "access/htup_details.h"
#include "common/int.h"
#include "funcapi.h"
#include "lib/stringinfo.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"

#include "args.h"
#include "binding.h"
#include "canonical.h"
#include "fingerprint.h"
#include "key.h"
#include "policy.h"
#include "sign.h"

#define INSPECT_COLUMNS 8

/* PostgreSQL's epoch in Unix seconds */
#define EPOCH_SECONDS ((int64) (POSTGRES_EPOCH_JDATE - UNIX_EPOCH_JDATE) * SECS_PER_DAY)

PG_FUNCTION_INFO_V1(idem_sign);
PG_FUNCTION_INFO_V1(idem_inspect);
PG_FUNCTION_INFO_V1(idem_canonical);
PG_FUNCTION_INFO_V1(idem_param_hash);
PG_FUNCTION_INFO_V1(idem_key);
PG_FUNCTION_INFO_V1(idem_downstream_key);

static int64 choose_expiry(FunctionCallInfo fcinfo, int n, TimestampTz now, int64 ttl);
static TimestampTz unix_to_timestamp(int64 seconds);
static const MaterialPart *part_of_scope(Span scope);
static void refuse_immaterial(void) pg_attribute_noreturn();

void
sign_operation(FunctionCallInfo fcinfo, Signed *operation)
{
	TimestampTz now = GetCurrentTimestamp();
	Fingerprint fingerprint;
	const Policy *policy;

	operation->subject = binding_subject(fcinfo, 0);
	operation->scope = args_label(fcinfo, 1, "scope");
	operation->params = args_params(fcinfo, 2);
	policy = policy_of(operation->scope.data, operation->scope.length);

	fingerprint.expires = choose_expiry(fcinfo, 3, now, policy->fingerprint_ttl);
	fingerprint.confirmed_repeat = args_bool(fcinfo, 4, "confirm_repeat");
	fingerprint.subject = unconstify(char *, operation->subject.data);
	fingerprint.subject_length = operation->subject.length;
	fingerprint.scope = unconstify(char *, operation->scope.data);
	fingerprint.scope_length = operation->scope.length;
	fingerprint.version = policy->version;
	if (!canonical_hash(operation->params, policy->part, fingerprint.param_hash))
		refuse_immaterial();
	key_v7(now, &fingerprint.nonce);

	operation->confirmed_repeat = fingerprint.confirmed_repeat;
	operation->expires_at = unix_to_timestamp(fingerprint.expires);
	operation->token = fingerprint_encode(&fingerprint, policy_signing_secret());
}

/*
 * idem_sign(subject text, scope text, params jsonb, not_after timestamptz, confirm_repeat boolean) RETURNS text
 *
 * A fingerprint for one operation, good until the earlier of not_after and now plus the scope's
 * fingerprint_ttl.
 */
Datum
idem_sign(PG_FUNCTION_ARGS)
{
	Signed		operation;

	policy_begin();
	sign_operation(fcinfo, &operation);
	PG_RETURN_TEXT_P(cstring_to_text(operation.token));
}

/*
 * idem_inspect(fingerprint text, OUT valid boolean, OUT key uuid, OUT expires_at timestamptz, OUT subject text,
 *     OUT scope text, OUT param_hash bytea, OUT version int, OUT confirmed_repeat boolean)
 *
 * What a fingerprint says.  Valid means signed by a secret that verifies now, whether or not its time is past;
 * where it is not, the other columns are null.
 */
Datum
idem_inspect(PG_FUNCTION_ARGS)
{
	const SecretBytes *secrets;
	Fingerprint fingerprint;
	TupleDesc	desc;
	Span		token;
	int			nsecrets;
	Datum		values[INSPECT_COLUMNS] = {0};
	bool		nulls[INSPECT_COLUMNS];

	policy_begin();
	token = args_token(fcinfo, 0);
	if (get_call_result_type(fcinfo, NULL, &desc) != TYPEFUNC_COMPOSITE || desc->natts != INSPECT_COLUMNS)
		elog(ERROR, "idem_inspect is declared with other columns");

	nsecrets = policy_secrets(GetCurrentTimestamp(), &secrets);
	memset(nulls, true, sizeof(nulls));
	nulls[0] = false;
	if (token.data != NULL &&
		fingerprint_decode(token.data, token.length, secrets, nsecrets, &fingerprint))
	{
		bytea	   *hash = palloc(VARHDRSZ + SHA256_LENGTH);

		SET_VARSIZE(hash, VARHDRSZ + SHA256_LENGTH);
		memcpy(VARDATA(hash), fingerprint.param_hash, SHA256_LENGTH);
		memset(nulls, false, sizeof(nulls));
		values[0] = BoolGetDatum(true);
		values[1] = UUIDPGetDatum(&fingerprint.nonce);
		values[2] = TimestampTzGetDatum(unix_to_timestamp(fingerprint.expires));
		values[3] = PointerGetDatum(cstring_to_text_with_len(fingerprint.subject, fingerprint.subject_length));
		values[4] = PointerGetDatum(cstring_to_text_with_len(fingerprint.scope, fingerprint.scope_length));
		values[5] = PointerGetDatum(hash);
		values[6] = Int32GetDatum(fingerprint.version);
		values[7] = BoolGetDatum(fingerprint.confirmed_repeat);
	}
	PG_RETURN_DATUM(HeapTupleGetDatum(heap_form_tuple(BlessTupleDesc(desc), values, nulls)));
}

/*
 * idem_canonical(scope text, params jsonb) RETURNS text
 *
 * The canonical bytes of the parameters' material part; of all of them where scope is null.  Raises 22023
 * where nothing is material.
 */
Datum
idem_canonical(PG_FUNCTION_ARGS)
{
	Span		scope;
	Jsonb	   *params;
	StringInfoData out;

	policy_begin();
	scope = args_optional_label(fcinfo, 0, "scope");
	params = args_params(fcinfo, 1);

	initStringInfo(&out);
	if (!canonical_append(&out, params, part_of_scope(scope)))
		refuse_immaterial();
	PG_RETURN_TEXT_P(cstring_to_text_with_len(out.data, out.len));
}

/*
 * idem_param_hash(scope text, params jsonb) RETURNS bytea
 *
 * SHA-256 of what idem_canonical returns; raises likewise.
 */
Datum
idem_param_hash(PG_FUNCTION_ARGS)
{
	Span		scope;
	Jsonb	   *params;
	bytea	   *hash = palloc(VARHDRSZ + SHA256_LENGTH);

	policy_begin();
	scope = args_optional_label(fcinfo, 0, "scope");
	params = args_params(fcinfo, 1);

	SET_VARSIZE(hash, VARHDRSZ + SHA256_LENGTH);
	if (!canonical_hash(params, part_of_scope(scope), (uint8 *) VARDATA(hash)))
		refuse_immaterial();
	PG_RETURN_BYTEA_P(hash);
}

/*
 * idem_key(subject text, scope text, params jsonb, client_key text) RETURNS uuid
 *
 * The key of a direct call: made from the client's key where one is given, whatever the parameters, else from
 * the parameters' material part.  Raises 22023 where that is empty.
 */
Datum
idem_key(PG_FUNCTION_ARGS)
{
	pg_uuid_t  *key = palloc(sizeof(pg_uuid_t));
	StringInfoData out;
	DirectKind	kind = DIRECT_CLIENT;
	Span		subject;
	Span		scope;
	Span		content;
	Jsonb	   *params;

	policy_begin();
	subject = binding_subject(fcinfo, 0);
	scope = args_label(fcinfo, 1, "scope");
	params = args_params(fcinfo, 2);
	content = args_optional_label(fcinfo, 3, "client_key");

	if (content.data == NULL)
	{
		kind = DIRECT_CONTENT;
		initStringInfo(&out);
		if (!canonical_append(&out, params, part_of_scope(scope)))
			refuse_immaterial();
		content.data = out.data;
		content.length = out.len;
	}
	key_direct(kind, scope.data, scope.length, subject.data, subject.length,
			   content.data, content.length, key);
	PG_RETURN_UUID_P(key);
}

/*
 * idem_downstream_key(key uuid, step text) RETURNS uuid
 *
 * The key for one step of an operation that sends several requests downstream.
 */
Datum
idem_downstream_key(PG_FUNCTION_ARGS)
{
	pg_uuid_t  *operation = args_uuid(fcinfo, 0, "key");
	Span		step = args_label(fcinfo, 1, "step");
	pg_uuid_t  *key = palloc(sizeof(pg_uuid_t));

	key_step(operation, step.data, step.length, key);
	PG_RETURN_UUID_P(key);
}

/*
 * The earlier of now plus ttl and argument n, not_after, in Unix seconds, rounded down.  A null or infinite
 * not_after sets no limit.  Raises 22023 where the time is past already, or beyond the year 9999.
 */
static int64
choose_expiry(FunctionCallInfo fcinfo, int n, TimestampTz now, int64 ttl)
{
	TimestampTz expires;
	int64		seconds;

	if (pg_add_s64_overflow(now, ttl, &expires))
		expires = PG_INT64_MAX;
	if (!PG_ARGISNULL(n))
		expires = Min(expires, PG_GETARG_TIMESTAMPTZ(n));

	/* what is later than now is after 2000, PostgreSQL's epoch, so that dividing rounds down */
	seconds = expires <= now ? 0 : expires / USECS_PER_SEC + EPOCH_SECONDS;
	if (unix_to_timestamp(seconds) <= now)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("fingerprint would already be expired"),
				 errdetail("It is good until the earlier of not_after and now plus the scope's fingerprint_ttl, rounded down to whole seconds."),
				 errhint("Give a not_after some seconds from now, or none, and the scope a fingerprint_ttl of some seconds.")));
	if (seconds > FINGERPRINT_MAX_EXPIRY)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("fingerprint would expire after the year 9999"),
				 errhint("Shorten fingerprint_ttl of the scope in idem_policy, or give a not_after.")));
	return seconds;
}

/*
 * The PostgreSQL timestamp of a time in Unix seconds.
 */
static TimestampTz
unix_to_timestamp(int64 seconds)
{
	return (seconds - EPOCH_SECONDS) * USECS_PER_SEC;
}

/*
 * The lists in force for a scope; NULL, everything, where there is no scope.
 */
static const MaterialPart *
part_of_scope(Span scope)
{
	return scope.data == NULL ? NULL : policy_of(scope.data, scope.length)->part;
}

/*
 * Raise 22023 for parameters that would leave an operation bound to nothing.
 */
static void
refuse_immaterial(void)
{
	ereport(ERROR,
			(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
			 errmsg("nothing of the parameters is material"),
			 errhint("Compare them with the lists \"material\" and \"immaterial\" that idem_policy has for the scope, in a row of its own or in '*'.")));
}
