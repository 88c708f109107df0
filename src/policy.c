/*
 * policy.c: the policies and the versions of their lists, cached in each backend.
 *
 * idem_policy and idem_policy_version are read whole at first use, under one snapshot, taken after the
 * generation was noted: a change that commits while they are being read raises the generation, and the next
 * policy_begin() forgets what was read.  Thus a call works with one state of both tables from its beginning to
 * its end, and a reload never waits or loops.  Pointer lists are parsed when they are first needed.
 *
 * A scope without a row of its own is judged by the row "*", and where there is none, by the defaults compiled
 * in here; sql/policy.sql checks that they equal the column defaults of the table.
 */
#include "compat.h"

#include "commands/trigger.h"
#include "mb/pg_wchar.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/inval.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

#include "args.h"
#include "catalog.h"
#include "guc.h"
#include "policy.h"
#include "policy_rows.h"
#include "rows.h"
#include "secret.h"

/* Two pointer lists; part is theirs once they are parsed. */
typedef struct PointerLists
{
	ArrayType  *material;
	ArrayType  *immaterial;
	const MaterialPart *part;
	bool		parsed;
} PointerLists;

typedef struct PolicyRow
{
	Span		scope;
	PointerLists lists;
	bool		ready;			/* policy.part and policy.version are set */
	Policy		policy;
} PolicyRow;

typedef struct VersionRow
{
	Span		scope;
	int32		version;
	PointerLists lists;
	TimestampTz replaced_at;	/* DT_NOEND: in force */
	int64		result_ttl;		/* the longest while it was in force */
} VersionRow;

typedef struct PolicyCache
{
	MemoryContext context;
	uint64		generation;
	int			npolicies;
	int			policy_room;
	PolicyRow  *policy;			/* by scope */
	int			nversions;
	int			version_room;
	VersionRow *version;		/* by scope, the latest replaced first */
	VersionRow **by_number;		/* the same by version and scope */
	PolicyRow  *star;			/* the row "*", or NULL */
	Policy		fallback;		/* for scopes without a row of their own */
} PolicyCache;

const Policy policy_defaults = {
	.enabled = true,
	.entry = ENTRY_ANY,
	.downstream = DOWNSTREAM_OPAQUE,
	.fingerprint_ttl = 15 * USECS_PER_MINUTE,
	.in_flight_ttl = 5 * USECS_PER_MINUTE,
	.result_ttl = USECS_PER_DAY,
	.poll_after = 2 * USECS_PER_SEC,
};

static const Span star_scope = {"*", 1};

static PolicyCache *cache = NULL;

PG_FUNCTION_INFO_V1(idem_stale);
PG_FUNCTION_INFO_V1(idem_list_version);
PG_FUNCTION_INFO_V1(idem_longest_retention);

static uint64 policy_generation(void);
static PolicyCache *policies(void);
static PolicyCache *load(void);
static void take_policy(TupleTableSlot *columns, void *into);
static void take_version(TupleTableSlot *columns, void *into);
static void *next_row(void **rows, int *count, int *room, size_t size);
static Span copy_span(Datum value);
static const char *copy_string(Datum value, bool isnull);
static PointerLists copy_lists(const Datum *values, const bool *isnull, int material, int immaterial);
static Entry entry_named(char *name);
static Downstream downstream_named(char *name);
static void sort_rows(PolicyCache *into);
static int	compare_scopes(Span a, Span b);
static int	compare_policies(const void *a, const void *b);
static int	compare_versions(const void *a, const void *b);
static int	compare_histories(const void *a, const void *b);
static int	compare_numbers(const void *a, const void *b);
static VersionRow *find_version(const PolicyCache *known, Span scope, int32 version);
static PolicyRow *find_policy(const PolicyCache *known, Span scope);
static const Policy *ready_policy(PolicyRow *row);
static const MaterialPart *parsed_part(PointerLists *lists);
static VersionRow *first_version(const PolicyCache *known, Span scope);
static int	count_versions(const PolicyCache *known, Span scope);
static void add_versions(const PolicyCache *known, Span scope, int32 in_force, ListsOnRecord *into);

void
policy_begin(void)
{
	if (GetDatabaseEncoding() != PG_UTF8)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("idem needs a database with encoding UTF8"),
				 errhint("Keys and fingerprints are computed over UTF-8 bytes. Create the database with ENCODING 'UTF8'.")));

	AcceptInvalidationMessages();
	if (cache != NULL && cache->generation != policy_generation())
	{
		MemoryContext old = cache->context;

		cache = NULL;
		MemoryContextDelete(old);
	}
	secret_begin();
}

bool
policy_changed(void)
{
	return cache == NULL || cache->generation != policy_generation();
}

const Policy *
policy_of(const char *scope, size_t scope_length)
{
	PolicyCache *known = policies();
	PolicyRow  *row = find_policy(known, (Span) {scope, scope_length});

	return row != NULL ? ready_policy(row) : &known->fallback;
}

bool
policy_version(const char *scope, size_t scope_length, int32 version, const MaterialPart **part)
{
	PolicyCache *known = policies();
	Span		span = {scope, scope_length};
	PolicyRow  *row = find_policy(known, span);
	const Policy *policy = row != NULL ? ready_policy(row) : &known->fallback;
	VersionRow *had;

	*part = NULL;
	if (version == 0)
		return true;
	/* in force, though someone may have deleted its history */
	if (version == policy->version)
	{
		*part = policy->part;
		return true;
	}
	had = find_version(known, span, version);
	if (had == NULL && row == NULL)
		had = find_version(known, star_scope, version);
	if (had != NULL)
		*part = parsed_part(&had->lists);
	return had != NULL;
}

void
policy_lists(Span scope, ListsOnRecord *into)
{
	PolicyCache *known = policies();
	const Policy *policy = policy_of(scope.data, scope.length);
	int			room = 1 + count_versions(known, scope) + count_versions(known, star_scope);

	into->in_force = policy->version;
	into->count = 1;
	into->lists = palloc(sizeof(Lists) * room);
	into->lists[0] = (Lists) {policy->version, policy->part};
	add_versions(known, scope, policy->version, into);
	if (compare_scopes(scope, star_scope) != 0)
		add_versions(known, star_scope, policy->version, into);
}

/*
 * _idem_stale() RETURNS trigger
 *
 * Tells every backend that a table which the caches hold has changed.  Before each row as well as after it,
 * so that neither a cache filled between the two, nor one filled before an error, outlives the change.
 */
Datum
idem_stale(PG_FUNCTION_ARGS)
{
	TriggerData *trigger = (TriggerData *) fcinfo->context;

	if (!CALLED_AS_TRIGGER(fcinfo))
		ereport(ERROR,
				(errcode(ERRCODE_E_R_I_E_TRIGGER_PROTOCOL_VIOLATED),
				 errmsg("_idem_stale can only be called as a trigger")));

	CacheInvalidateRelcacheByRelid(RelationGetRelid(trigger->tg_relation));
	if (!TRIGGER_FIRED_BEFORE(trigger->tg_event) || !TRIGGER_FIRED_FOR_ROW(trigger->tg_event))
		return PointerGetDatum(NULL);
	return PointerGetDatum(TRIGGER_FIRED_BY_UPDATE(trigger->tg_event) ?
						   trigger->tg_newtuple : trigger->tg_trigtuple);
}

/*
 * idem_list_version(material text[], immaterial text[]) RETURNS int4
 *
 * The version of two lists (0 where both are null).  Raises 22023 for lists that do not do.
 */
Datum
idem_list_version(PG_FUNCTION_ARGS)
{
	ArrayType  *material = PG_ARGISNULL(0) ? NULL : PG_GETARG_ARRAYTYPE_P(0);
	ArrayType  *immaterial = PG_ARGISNULL(1) ? NULL : PG_GETARG_ARRAYTYPE_P(1);

	(void) material_parse(material, immaterial);
	PG_RETURN_INT32(material_version(material, immaterial));
}

int64
policy_longest_retention(void)
{
	PolicyCache *known = policies();
	int64		longest = policy_defaults.fingerprint_ttl + policy_defaults.result_ttl;

	for (int i = 0; i < known->npolicies; i++)
	{
		const Policy *policy = &known->policy[i].policy;

		longest = Max(longest, policy->fingerprint_ttl + policy->result_ttl);
	}
	return longest + guc_max_clock_skew * INT64CONST(1000);
}

/*
 * idem_longest_retention() RETURNS interval
 */
Datum
idem_longest_retention(PG_FUNCTION_ARGS)
{
	Interval   *result = palloc0(sizeof(Interval));

	policy_begin();
	result->time = policy_longest_retention();
	PG_RETURN_INTERVAL_P(result);
}

/* Rises with every change of either table. */
static uint64
policy_generation(void)
{
	return catalog_generation(TABLE_POLICY) + catalog_generation(TABLE_POLICY_VERSION);
}

static PolicyCache *
policies(void)
{
	if (cache == NULL)
		cache = load();
	return cache;
}

/* Read both tables.  The memory is the caller's until nothing can fail any more. */
static PolicyCache *
load(void)
{
	MemoryContext context = AllocSetContextCreate(CurrentMemoryContext, "idem policies", ALLOCSET_SMALL_SIZES);
	MemoryContext before = MemoryContextSwitchTo(context);
	PolicyCache *into = palloc0(sizeof(PolicyCache));
	Snapshot	snapshot;

	into->context = context;
	(void) catalog_table(TABLE_POLICY);
	into->generation = policy_generation();

	snapshot = RegisterSnapshot(GetLatestSnapshot());
	rows_read(TABLE_POLICY, &policy_layout, snapshot, take_policy, into);
	rows_read(TABLE_POLICY_VERSION, &version_layout, snapshot, take_version, into);
	UnregisterSnapshot(snapshot);

	sort_rows(into);
	into->star = find_policy(into, star_scope);
	into->fallback = into->star != NULL ? *ready_policy(into->star) : policy_defaults;
	into->fallback.strict = !into->fallback.enabled;

	MemoryContextSwitchTo(before);
	MemoryContextSetParent(context, TopMemoryContext);
	return into;
}

/* In microseconds as extract(epoch) counts, a year as 365.25 days: for what is told and not reckoned with. */
static int64
length_to_tell(const Interval *interval)
{
	int64		years = interval->month / MONTHS_PER_YEAR;
	int64		days = (int64) (interval->month % MONTHS_PER_YEAR) * DAYS_PER_MONTH + interval->day;

	return years * (int64) (DAYS_PER_YEAR * USECS_PER_DAY) + days * USECS_PER_DAY + interval->time;
}

static void
take_policy(TupleTableSlot *columns, void *into)
{
	const Datum *values = columns->tts_values;
	const bool *isnull = columns->tts_isnull;
	PolicyCache *known = into;
	MemoryContext before = MemoryContextSwitchTo(known->context);
	PolicyRow  *row = next_row((void **) &known->policy, &known->npolicies, &known->policy_room,
							   sizeof(PolicyRow));
	Policy	   *policy = &row->policy;

	row->scope = copy_span(values[POLICY_SCOPE]);
	row->lists = copy_lists(values, isnull, POLICY_MATERIAL, POLICY_IMMATERIAL);
	policy->material = row->lists.material;
	policy->immaterial = row->lists.immaterial;
	policy->enabled = DatumGetBool(values[POLICY_ENABLED]);
	policy->entry = entry_named(TextDatumGetCString(values[POLICY_ENTRY]));
	policy->downstream = downstream_named(TextDatumGetCString(values[POLICY_DOWNSTREAM]));
	policy->fingerprint_ttl = rows_interval(values[POLICY_FINGERPRINT_TTL]);
	policy->in_flight_ttl = rows_interval(values[POLICY_IN_FLIGHT_TTL]);
	policy->result_ttl = rows_interval(values[POLICY_RESULT_TTL]);
	policy->repeat_guard = isnull[POLICY_REPEAT_GUARD] ? 0 : rows_interval(values[POLICY_REPEAT_GUARD]);
	policy->poll_after = length_to_tell(DatumGetIntervalP(values[POLICY_POLL_AFTER]));
	policy->confirm_with = copy_string(values[POLICY_CONFIRM_WITH], isnull[POLICY_CONFIRM_WITH]);
	policy->poll_with = copy_string(values[POLICY_POLL_WITH], isnull[POLICY_POLL_WITH]);
	MemoryContextSwitchTo(before);
}

static void
take_version(TupleTableSlot *columns, void *into)
{
	const Datum *values = columns->tts_values;
	const bool *isnull = columns->tts_isnull;
	PolicyCache *known = into;
	MemoryContext before = MemoryContextSwitchTo(known->context);
	VersionRow *row = next_row((void **) &known->version, &known->nversions, &known->version_room,
							   sizeof(VersionRow));

	row->scope = copy_span(values[VERSION_SCOPE]);
	row->version = DatumGetInt32(values[VERSION_VERSION]);
	row->lists = copy_lists(values, isnull, VERSION_MATERIAL, VERSION_IMMATERIAL);
	row->replaced_at = isnull[VERSION_REPLACED_AT] ? DT_NOEND : DatumGetTimestampTz(values[VERSION_REPLACED_AT]);
	row->result_ttl = rows_interval(values[VERSION_RESULT_TTL]);
	MemoryContextSwitchTo(before);
}

/* One more row, zeroed, at the end of an array that grows. */
static void *
next_row(void **rows, int *count, int *room, size_t size)
{
	void	   *row;

	if (*count == *room)
	{
		*room = Max(16, *room * 2);
		*rows = *rows == NULL ? palloc(*room * size) : repalloc_huge(*rows, *room * size);
	}
	row = (char *) *rows + size * (*count)++;
	memset(row, 0, size);
	return row;
}

static Span
copy_span(Datum value)
{
	char	   *string = TextDatumGetCString(value);

	return (Span) {string, strlen(string)};
}

static const char *
copy_string(Datum value, bool isnull)
{
	return isnull ? NULL : TextDatumGetCString(value);
}

static PointerLists
copy_lists(const Datum *values, const bool *isnull, int material, int immaterial)
{
	PointerLists lists = {0};

	if (!isnull[material])
		lists.material = DatumGetArrayTypePCopy(values[material]);
	if (!isnull[immaterial])
		lists.immaterial = DatumGetArrayTypePCopy(values[immaterial]);
	return lists;
}

static Entry
entry_named(char *name)
{
	if (strcmp(name, "any") == 0)
		return ENTRY_ANY;
	if (strcmp(name, "fingerprint") == 0)
		return ENTRY_FINGERPRINT;
	if (strcmp(name, "direct") == 0)
		return ENTRY_DIRECT;
	elog(ERROR, "unknown entry of a policy");
}

static Downstream
downstream_named(char *name)
{
	if (strcmp(name, "opaque") == 0)
		return DOWNSTREAM_OPAQUE;
	if (strcmp(name, "queryable") == 0)
		return DOWNSTREAM_QUERYABLE;
	if (strcmp(name, "idempotent") == 0)
		return DOWNSTREAM_IDEMPOTENT;
	if (strcmp(name, "local") == 0)
		return DOWNSTREAM_LOCAL;
	elog(ERROR, "unknown downstream of a policy");
}

/* Bring the rows into the orders in which they are looked for. */
static void
sort_rows(PolicyCache *into)
{
	if (into->npolicies > 0)
		qsort(into->policy, into->npolicies, sizeof(PolicyRow), compare_policies);
	if (into->nversions == 0)
		return;
	qsort(into->version, into->nversions, sizeof(VersionRow), compare_histories);
	into->by_number = palloc_extended(sizeof(VersionRow *) * into->nversions, MCXT_ALLOC_HUGE);
	for (int i = 0; i < into->nversions; i++)
		into->by_number[i] = &into->version[i];
	qsort(into->by_number, into->nversions, sizeof(VersionRow *), compare_numbers);
}

/* Shorter scopes first, then by their bytes: any order does. */
static int
compare_scopes(Span a, Span b)
{
	if (a.length != b.length)
		return a.length < b.length ? -1 : 1;
	return memcmp(a.data, b.data, a.length);
}

static int
compare_policies(const void *a, const void *b)
{
	return compare_scopes(((const PolicyRow *) a)->scope, ((const PolicyRow *) b)->scope);
}

static int
compare_versions(const void *a, const void *b)
{
	return compare_scopes(((const VersionRow *) a)->scope, ((const VersionRow *) b)->scope);
}

/* Within a scope the latest replaced first: it is the likeliest to be asked for. */
static int
compare_histories(const void *a, const void *b)
{
	TimestampTz left = ((const VersionRow *) a)->replaced_at;
	TimestampTz right = ((const VersionRow *) b)->replaced_at;
	int			order = compare_versions(a, b);

	return order != 0 ? order : left > right ? -1 : left < right;
}

static int
compare_numbers(const void *a, const void *b)
{
	const VersionRow *left = *(VersionRow *const *) a;
	const VersionRow *right = *(VersionRow *const *) b;

	if (left->version != right->version)
		return left->version < right->version ? -1 : 1;
	return compare_scopes(left->scope, right->scope);
}

/* What is on record for the scope under a version, or NULL. */
static VersionRow *
find_version(const PolicyCache *known, Span scope, int32 version)
{
	VersionRow	wanted = {.scope = scope, .version = version};
	VersionRow *key = &wanted;
	VersionRow **hit = known->nversions == 0 ? NULL :
		bsearch(&key, known->by_number, known->nversions, sizeof(VersionRow *), compare_numbers);

	return hit != NULL ? *hit : NULL;
}

/* The scope's own row, or NULL. */
static PolicyRow *
find_policy(const PolicyCache *known, Span scope)
{
	PolicyRow	wanted = {.scope = scope};

	if (known->npolicies == 0)
		return NULL;
	return bsearch(&wanted, known->policy, known->npolicies, sizeof(PolicyRow), compare_policies);
}

/* The row's policy, its lists parsed. */
static const Policy *
ready_policy(PolicyRow *row)
{
	if (!row->ready)
	{
		row->policy.part = parsed_part(&row->lists);
		row->policy.version = material_version(row->lists.material, row->lists.immaterial);
		row->ready = true;
	}
	return &row->policy;
}

/* The lists parsed, in the memory they lie in themselves. */
static const MaterialPart *
parsed_part(PointerLists *lists)
{
	ArrayType  *some = lists->material != NULL ? lists->material : lists->immaterial;

	if (!lists->parsed && some != NULL)
	{
		MemoryContext before = MemoryContextSwitchTo(GetMemoryChunkContext(some));

		lists->part = material_parse(lists->material, lists->immaterial);
		MemoryContextSwitchTo(before);
	}
	lists->parsed = true;
	return lists->part;
}

/* The first of the scope's versions, which lie together; NULL where it has none. */
static VersionRow *
first_version(const PolicyCache *known, Span scope)
{
	VersionRow	wanted = {.scope = scope};
	VersionRow *row = known->nversions == 0 ? NULL :
		bsearch(&wanted, known->version, known->nversions, sizeof(VersionRow), compare_versions);

	while (row != NULL && row > known->version && compare_scopes(row[-1].scope, scope) == 0)
		row--;
	return row;
}

static int
count_versions(const PolicyCache *known, Span scope)
{
	VersionRow *row = first_version(known, scope);
	int			count = 0;

	for (; row != NULL && row < known->version + known->nversions && compare_scopes(row->scope, scope) == 0; row++)
		count++;
	return count;
}

/* Add what is on record for a scope, or for "*" what is not on record for it already. */
static void
add_versions(const PolicyCache *known, Span scope, int32 in_force, ListsOnRecord *into)
{
	VersionRow *row = first_version(known, scope);
	int			before = into->count;

	for (; row != NULL && row < known->version + known->nversions && compare_scopes(row->scope, scope) == 0; row++)
	{
		bool		is_there = row->version == in_force;

		for (int i = 1; i < before && !is_there; i++)
			is_there = into->lists[i].version == row->version;
		if (!is_there)
			into->lists[into->count++] = (Lists) {row->version, parsed_part(&row->lists)};
	}
}
