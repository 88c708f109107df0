/*
 * secret_admin.c: secrets are made, brought, shown and revoked.
 *
 * All of it happens here, so that no plan, no statistics and no statement's text carries a secret, and with the
 * caller's rights: who may execute the function may do what it does.  One transaction changes the secrets at a time
 * (ShareRowExclusiveLock until it ends), and judges by their latest state: so at most one of them signs.  Copies of
 * a secret's bytes are wiped when they have been used, but for what an export gives to its caller.
 */
#include "compat.h"

#include "access/detoast.h"
#include "access/table.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

#include "args.h"
#include "digest.h"
#include "generator.h"
#include "policy.h"
#include "record.h"
#include "rows.h"
#include "secret.h"

#define MADE_LENGTH 32			/* bytes of a secret that is made here */
#define ID_LENGTH 8				/* hexadecimal digits of the hash that names a secret */
#define ID_PREFIX "idem:secret:"
#define LONGEST_VERIFY_FOR_MONTHS 1200

PG_FUNCTION_INFO_V1(idem_first_secret);
PG_FUNCTION_INFO_V1(idem_rotate_secret);
PG_FUNCTION_INFO_V1(idem_import_secret);
PG_FUNCTION_INFO_V1(idem_export_secret);
PG_FUNCTION_INFO_V1(idem_revoke_secret);

/* ----- refusals ----- */

static void
refuse_null(const char *name, const char *hint)
{
	ereport(ERROR,
			(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
			 errmsg("%s must not be null", name),
			 errhint("%s", hint)));
}

static void
refuse_bytes(void)
{
	ereport(ERROR,
			(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
			 errmsg("secret must be 32 to 64 random bytes"),
			 errhint("Too short, too long, blank or one byte repeated will not do. pgcrypto's gen_random_bytes(32) makes a good one.")));
}

static void pg_attribute_noreturn()
refuse_unknown(void)
{
	ereport(ERROR,
			(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
			 errmsg("no secret has this id"),
			 errhint("The view idem_secrets lists them.")));
}

static void
prevent_where_nothing_is_written(const char *function)
{
	PreventCommandIfReadOnly(function);
	PreventCommandDuringRecovery(function);
}

/* ----- the table ----- */

/* What is on record of one secret. */
typedef struct Known
{
	Span		id;				/* the one looked for */
	const bytea *secret;		/* the bytes to compare with, or NULL */
	bool		exists;
	bool		differs;		/* it has other bytes */
	bool		signs;
	bool		revoked;
	TimestampTz verify_until;
} Known;

static bool
signs(TupleTableSlot *row)
{
	return !row->tts_isnull[SECRET_SIGNING] && DatumGetBool(row->tts_values[SECRET_SIGNING]);
}

static bool
has_id(TupleTableSlot *row, Span id)
{
	const text *own = DatumGetTextPP(row->tts_values[SECRET_ID]);

	return span_equal((Span) {VARDATA_ANY(own), VARSIZE_ANY_EXHDR(own)}, id);
}

static bool
has_bytes(TupleTableSlot *row, const bytea *secret)
{
	const bytea *own = DatumGetByteaPP(row->tts_values[SECRET_SECRET]);

	return span_equal((Span) {VARDATA_ANY(own), VARSIZE_ANY_EXHDR(own)},
					  (Span) {VARDATA_ANY(secret), VARSIZE_ANY_EXHDR(secret)});
}

static void
take_known(TupleTableSlot *row, void *into)
{
	Known	   *known = into;

	if (!has_id(row, known->id))
		return;
	known->exists = true;
	known->differs = known->secret != NULL && !has_bytes(row, known->secret);
	known->signs = signs(row);
	known->revoked = !row->tts_isnull[SECRET_REVOKED_AT];
	known->verify_until = DatumGetTimestampTz(row->tts_values[SECRET_VERIFY_UNTIL]);
}

/* One change to the row of an id, or to the row that signs. */
typedef struct Change
{
	Relation	relation;
	Span		id;				/* NULL data: the one that signs */
	int			column;			/* of the time */
	TimestampTz time;
	bool		signing;		/* whether it signs afterwards */
} Change;

static void
take_change(TupleTableSlot *row, void *into)
{
	const Change *change = into;
	Datum		values[SECRET_NATTS];
	bool		isnull[SECRET_NATTS];

	if (change->id.data == NULL ? !signs(row) : !has_id(row, change->id))
		return;
	memcpy(values, row->tts_values, sizeof(values));
	memcpy(isnull, row->tts_isnull, sizeof(isnull));
	values[SECRET_SIGNING] = BoolGetDatum(true);
	isnull[SECRET_SIGNING] = !change->signing;
	values[change->column] = TimestampTzGetDatum(change->time);
	isnull[change->column] = false;
	rows_update(change->relation, &row->tts_tid, values, isnull);
}

static void
insert_secret(Relation relation, Span id, bytea *secret, bool signing)
{
	Datum		values[SECRET_NATTS] = {0};
	bool		isnull[SECRET_NATTS] = {0};

	values[SECRET_ID] = span_datum(id);
	values[SECRET_SECRET] = PointerGetDatum(secret);
	values[SECRET_SIGNING] = BoolGetDatum(true);
	isnull[SECRET_SIGNING] = !signing;
	values[SECRET_CREATED_AT] = TimestampTzGetDatum(GetCurrentTimestamp());
	values[SECRET_VERIFY_UNTIL] = TimestampTzGetDatum(DT_NOEND);
	isnull[SECRET_REVOKED_AT] = true;
	rows_insert(relation, values, isnull);
}

/* ----- storing a secret ----- */

/* The name of a secret: the same on every server. */
static void
name_secret(const bytea *secret, char id[ID_LENGTH])
{
	uint8		hash[SHA256_LENGTH];

	digest_begin();
	digest_add(ID_PREFIX, strlen(ID_PREFIX));
	digest_add(VARDATA_ANY(secret), VARSIZE_ANY_EXHDR(secret));
	digest_end(hash);
	(void) hex_encode((const char *) hash, ID_LENGTH / 2, id);
}

/* White space alone, or one byte over and over, is a mistake and no secret. */
static void
check_bytes(const bytea *secret)
{
	static const char blank[] = {0, '\t', '\n', '\v', '\f', '\r', ' '};
	const char *bytes = VARDATA_ANY(secret);
	int			length = VARSIZE_ANY_EXHDR(secret);
	int			blanks = 0;
	int			repeated = 0;

	for (int i = 0; i < length; i++)
	{
		blanks += memchr(blank, bytes[i], sizeof(blank)) != NULL;
		repeated += bytes[i] == bytes[0];
	}
	if (blanks == length || repeated == length)
		refuse_bytes();
}

/* May a secret be stored, or be promoted to sign?  What is known already, and is not to change, is not touched. */
static bool
is_to_be_stored(const Known *known, bool signing)
{
	if (known->differs)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("another secret has the same id"),
				 errhint("Use another secret.")));
	if (known->revoked)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("secret \"%.*s\" is revoked", (int) known->id.length, known->id.data),
				 errhint("A revoked secret stays revoked. Make a new one with idem_rotate_secret().")));
	if (!known->exists || (signing && !known->signs))
		return true;
	if (known->verify_until <= GetCurrentTimestamp())
		ereport(NOTICE,
				(errmsg("secret \"%.*s\" is known here, and no longer verifies",
						(int) known->id.length, known->id.data)));
	return false;
}

/* From now on this one signs; the one that did verifies for some time yet. */
static void
let_sign(Relation relation, const Known *known, bytea *secret, const Interval *former_for)
{
	Change		demotion = {.relation = relation, .column = SECRET_VERIFY_UNTIL};
	Change		promotion = {.relation = relation, .id = known->id, .column = SECRET_VERIFY_UNTIL,
	.time = DT_NOEND, .signing = true};

	demotion.time = DatumGetTimestampTz(DirectFunctionCall2(timestamptz_pl_interval,
															TimestampTzGetDatum(GetCurrentTimestamp()),
															IntervalPGetDatum(former_for)));
	rows_read_latest(relation, take_change, &demotion);
	if (known->exists)
		rows_read_latest(relation, take_change, &promotion);
	else
		insert_secret(relation, known->id, secret, true);
}

/* Store a secret, to sign with or only to verify by. */
static void
store_secret(bytea *secret, bool signing, const Interval *former_for, char id[ID_LENGTH])
{
	Known		known = {.id = {id, ID_LENGTH}, .secret = secret};
	Relation	relation;

	check_bytes(secret);
	name_secret(secret, id);
	relation = rows_open(TABLE_SECRET, &secret_layout, ShareRowExclusiveLock);
	rows_read_latest(relation, take_known, &known);
	if (is_to_be_stored(&known, signing))
	{
		if (signing)
			let_sign(relation, &known, secret, former_for);
		else
			insert_secret(relation, known.id, secret, false);
	}
	table_close(relation, NoLock);
}

static void
wipe(bytea *secret)
{
	explicit_bzero(VARDATA_ANY(secret), VARSIZE_ANY_EXHDR(secret));
	pfree(secret);
}

/* The same, and the bytes are wiped, whatever comes of it.  Returns the id as text. */
static Datum
store_and_wipe(bytea *secret, bool signing, const Interval *former_for)
{
	char		id[ID_LENGTH];

	PG_TRY();
	{
		store_secret(secret, signing, former_for, id);
	}
	PG_CATCH();
	{
		wipe(secret);
		PG_RE_THROW();
	}
	PG_END_TRY();
	wipe(secret);
	return span_datum((Span) {id, ID_LENGTH});
}

/* As long as anything signed by now may be asked about. */
static void
longest_retention(Interval *into)
{
	memset(into, 0, sizeof(*into));
	into->time = policy_longest_retention();
}

static void
check_verify_for(const Interval *verify_for, const Interval *least)
{
	const Interval most = {.month = LONGEST_VERIFY_FOR_MONTHS};
	Datum		given = IntervalPGetDatum(verify_for);

	if (DatumGetBool(DirectFunctionCall2(interval_lt, given, IntervalPGetDatum(least))) ||
		DatumGetBool(DirectFunctionCall2(interval_gt, given, IntervalPGetDatum(&most))))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("verify_for is out of range"),
				 errdetail("Fingerprints already signed may be presented for %s, by the longest retention of any policy.",
						   DatumGetCString(DirectFunctionCall1(interval_out, IntervalPGetDatum(least)))),
				 errhint("Give at least that, or null for just that. To stop a leaked secret at once, rotate and then call idem_revoke_secret().")));
}

/* ----- SQL ----- */

/*
 * idem_rotate_secret(verify_for interval DEFAULT NULL) RETURNS text
 *
 * Signs with a new secret from now on; returns its id.  Raises 22023 for a verify_for that is too short or over 100
 * years, 25006 where nothing can be written, 55000 where pgcrypto's generator is not what it was.
 */
Datum
idem_rotate_secret(PG_FUNCTION_ARGS)
{
	Interval	least;
	const Interval *verify_for = &least;

	policy_begin();
	longest_retention(&least);
	if (!PG_ARGISNULL(0))
	{
		verify_for = PG_GETARG_INTERVAL_P(0);
		check_verify_for(verify_for, &least);
	}
	prevent_where_nothing_is_written("idem_rotate_secret()");
	PG_RETURN_DATUM(store_and_wipe(generator_bytes(MADE_LENGTH), true, verify_for));
}

/*
 * _idem_first_secret(idem_ack) RETURNS void
 *
 * For the install script: makes the secret that an installation begins with.
 */
Datum
idem_first_secret(PG_FUNCTION_ARGS)
{
	Interval	least;

	policy_begin();
	longest_retention(&least);
	(void) store_and_wipe(generator_bytes(MADE_LENGTH), true, &least);
	PG_RETURN_VOID();
}

/*
 * idem_import_secret(secret bytea, signing boolean DEFAULT false) RETURNS text
 *
 * Brings a secret; returns its id.  Raises 22004 for nulls, 22023 for bytes that are no secret or have the id of
 * another one, 55000 for one that is revoked, 25006 where nothing can be written.
 */
Datum
idem_import_secret(PG_FUNCTION_ARGS)
{
	Interval	former_for;
	Size		length;

	policy_begin();
	if (PG_ARGISNULL(0) || PG_ARGISNULL(1))
		refuse_null(PG_ARGISNULL(0) ? "secret" : "signing",
					"Give 32 to 64 random bytes, and whether they sign from now on.");
	/* one that is too long is not even fetched */
	length = toast_raw_datum_size(PG_GETARG_DATUM(0)) - VARHDRSZ;
	if (length < SECRET_MIN_LENGTH || length > SECRET_MAX_LENGTH)
		refuse_bytes();
	prevent_where_nothing_is_written("idem_import_secret()");
	longest_retention(&former_for);
	PG_RETURN_DATUM(store_and_wipe(PG_GETARG_BYTEA_P_COPY(0), PG_GETARG_BOOL(1), &former_for));
}

/* A secret that is asked for. */
typedef struct Wanted
{
	Span		id;				/* NULL data: the one that signs */
	bytea	   *secret;			/* NULL: not found */
} Wanted;

static void
take_wanted(TupleTableSlot *row, void *into)
{
	Wanted	   *wanted = into;

	if (wanted->id.data == NULL ? signs(row) : has_id(row, wanted->id))
		wanted->secret = DatumGetByteaPCopy(row->tts_values[SECRET_SECRET]);
}

/*
 * idem_export_secret(id text DEFAULT NULL) RETURNS bytea
 *
 * The bytes of one secret.  Raises 22023 for an id that none has, 55000 where none signs.
 */
Datum
idem_export_secret(PG_FUNCTION_ARGS)
{
	Wanted		wanted = {0};
	Snapshot	snapshot;

	policy_begin();
	wanted.id = args_text(fcinfo, 0);
	snapshot = RegisterSnapshot(GetLatestSnapshot());
	rows_read(TABLE_SECRET, &secret_layout, snapshot, take_wanted, &wanted);
	UnregisterSnapshot(snapshot);
	if (wanted.secret != NULL)
		PG_RETURN_BYTEA_P(wanted.secret);
	if (wanted.id.data == NULL)
		secret_refuse_to_sign();
	refuse_unknown();
}

/*
 * idem_revoke_secret(id text) RETURNS void
 *
 * Stops recognising what a secret has signed.  Raises 22004, 22023 for an id that none has, 55000 for the one that
 * signs, 25006 where nothing can be written.
 */
Datum
idem_revoke_secret(PG_FUNCTION_ARGS)
{
	Known		known = {0};
	Change		revocation = {.column = SECRET_REVOKED_AT};

	policy_begin();
	known.id = args_text(fcinfo, 0);
	if (known.id.data == NULL)
		refuse_null("id", "The view idem_secrets lists them.");
	prevent_where_nothing_is_written("idem_revoke_secret()");
	revocation.relation = rows_open(TABLE_SECRET, &secret_layout, ShareRowExclusiveLock);
	revocation.id = known.id;
	revocation.time = GetCurrentTimestamp();
	rows_read_latest(revocation.relation, take_known, &known);
	if (!known.exists)
		refuse_unknown();
	if (known.signs)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("the secret that signs cannot be revoked"),
				 errhint("Call idem_rotate_secret() first, and then revoke the former one.")));
	if (!known.revoked)
		rows_read_latest(revocation.relation, take_change, &revocation);
	table_close(revocation.relation, NoLock);
	PG_RETURN_VOID();
}
