/*
 * secret.c: the secrets that sign and verify, cached in each backend.
 *
 * Loaded whole at first use, with a snapshot taken after the generation was noted: a change that commits while
 * the table is being read raises the generation, and the next policy_begin() forgets what was read.  Secrets
 * are wiped from memory when they are forgotten.
 *
 * Which secrets verify depends on the time.  The answer is kept together with the span of time in which it
 * holds, so that asking costs two comparisons.
 */
#include "compat.h"

#include "catalog/pg_type_d.h"
#include "utils/inval.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

#include "catalog.h"
#include "policy.h"
#include "rows.h"
#include "secret.h"

static const Oid column_types[SECRET_NATTS] = {
	[SECRET_ID] = TEXTOID,
	[SECRET_SECRET] = BYTEAOID,
	[SECRET_SIGNING] = BOOLOID,
	[SECRET_CREATED_AT] = TIMESTAMPTZOID,
	[SECRET_VERIFY_UNTIL] = TIMESTAMPTZOID,
	[SECRET_REVOKED_AT] = TIMESTAMPTZOID,
};

const Layout secret_layout = {
	SECRET_NATTS, 1, column_types, NULLABLE(SECRET_SIGNING) | NULLABLE(SECRET_REVOKED_AT), 4
};

/* One secret that is not revoked. */
typedef struct Secret
{
	SecretBytes secret;
	bool		signing;
	TimestampTz verify_until;
} Secret;

typedef struct SecretCache
{
	MemoryContext context;
	uint64		generation;
	int			count;
	int			room;
	Secret	   *secret;
	SecretBytes *verifying;		/* those that verify at a time within [from, until) */
	int			nverifying;
	TimestampTz from;
	TimestampTz until;
} SecretCache;

static SecretCache *cache = NULL;

static SecretCache *secrets(void);
static SecretCache *load(void);
static void take_secret(TupleTableSlot *columns, void *into);
static void choose_verifying(SecretCache *into, TimestampTz now);

void
secret_begin(void)
{
	SecretCache *old = cache;

	if (old == NULL || old->generation == catalog_generation(TABLE_SECRET))
		return;
	cache = NULL;
	if (old->count > 0)
	{
		explicit_bzero(old->secret, sizeof(Secret) * old->count);
		explicit_bzero(old->verifying, sizeof(SecretBytes) * old->count);
	}
	MemoryContextDelete(old->context);
}

/* The clock may be set back, so the span has two ends. */
static bool
answer_holds(const SecretCache *known, TimestampTz now)
{
	return now >= known->from && now < known->until;
}

bool
policy_secrets_changed(void)
{
	return cache == NULL || cache->generation != catalog_generation(TABLE_SECRET) ||
		!answer_holds(cache, GetCurrentTimestamp());
}

int
policy_secrets(TimestampTz now, const SecretBytes **verifying)
{
	SecretCache *known = secrets();

	if (!answer_holds(known, now))
		choose_verifying(known, now);
	*verifying = known->verifying;
	return known->nverifying;
}

void
secret_refuse_to_sign(void)
{
	ereport(ERROR,
			(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
			 errmsg("no secret signs fingerprints"),
			 errhint("Make one with idem_rotate_secret(), or bring one with idem_import_secret().")));
}

const SecretBytes *
policy_signing_secret(void)
{
	SecretCache *known = secrets();

	for (int i = 0; i < known->count; i++)
	{
		if (known->secret[i].signing)
			return &known->secret[i].secret;
	}
	secret_refuse_to_sign();
}

static SecretCache *
secrets(void)
{
	if (cache == NULL)
		cache = load();
	return cache;
}

/* Read all secrets.  The memory is the caller's until nothing can fail any more. */
static SecretCache *
load(void)
{
	MemoryContext context = AllocSetContextCreate(CurrentMemoryContext, "idem secrets", ALLOCSET_SMALL_SIZES);
	SecretCache *into = MemoryContextAllocZero(context, sizeof(SecretCache));
	Snapshot	snapshot;

	into->context = context;
	into->room = 4;
	into->secret = MemoryContextAlloc(context, sizeof(Secret) * into->room);
	(void) catalog_table(TABLE_SECRET);
	into->generation = catalog_generation(TABLE_SECRET);

	snapshot = RegisterSnapshot(GetLatestSnapshot());
	rows_read(TABLE_SECRET, &secret_layout, snapshot, take_secret, into);
	UnregisterSnapshot(snapshot);

	into->verifying = MemoryContextAlloc(context, sizeof(SecretBytes) * into->room);
	into->from = into->until = DT_NOEND;	/* no time lies between */
	MemoryContextSetParent(context, TopMemoryContext);
	return into;
}

/* Twice the room, and nothing left in what it was before. */
static void
make_room(SecretCache *known)
{
	Secret	   *before = known->secret;

	known->room *= 2;
	known->secret = MemoryContextAlloc(known->context, sizeof(Secret) * known->room);
	memcpy(known->secret, before, sizeof(Secret) * known->count);
	explicit_bzero(before, sizeof(Secret) * known->count);
	pfree(before);
}

static void
take_secret(TupleTableSlot *columns, void *into)
{
	const Datum *values = columns->tts_values;
	const bool *isnull = columns->tts_isnull;
	SecretCache *known = into;
	Secret	   *secret;
	bytea	   *bytes;

	if (!isnull[SECRET_REVOKED_AT])
		return;
	bytes = DatumGetByteaPP(values[SECRET_SECRET]);
	if (VARSIZE_ANY_EXHDR(bytes) < SECRET_MIN_LENGTH || VARSIZE_ANY_EXHDR(bytes) > SECRET_MAX_LENGTH)
		elog(ERROR, "a secret has a length that its constraint does not allow");

	if (known->count == known->room)
		make_room(known);
	secret = &known->secret[known->count++];
	memset(secret, 0, sizeof(Secret));
	secret->secret.length = VARSIZE_ANY_EXHDR(bytes);
	memcpy(secret->secret.bytes, VARDATA_ANY(bytes), secret->secret.length);
	secret->signing = !isnull[SECRET_SIGNING] && DatumGetBool(values[SECRET_SIGNING]);
	secret->verify_until = DatumGetTimestampTz(values[SECRET_VERIFY_UNTIL]);
}

/* Find what verifies now, and from when until when that answer holds. */
static void
choose_verifying(SecretCache *into, TimestampTz now)
{
	into->nverifying = 0;
	into->from = DT_NOBEGIN;
	into->until = DT_NOEND;
	for (int i = 0; i < into->count; i++)
	{
		const Secret *secret = &into->secret[i];

		if (now < secret->verify_until)
		{
			into->verifying[into->nverifying++] = secret->secret;
			into->until = Min(into->until, secret->verify_until);
		}
		else
			into->from = Max(into->from, secret->verify_until);
	}
}
