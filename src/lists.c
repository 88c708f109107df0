/*
 * lists.c: which lists a scope has and had, as of now and not as of the cache.
 *
 * A session hears of a change of policies some time after its commit.  Who has placed a claim or a peer row asks here
 * whether somebody may know its operation by other lists: whoever goes by lists that are committed later places, and
 * then looks, after that, and sees what stands.
 *
 * A change of policies holds idem_policy_version in SHARE ROW EXCLUSIVE mode until it has committed and told all
 * sessions.  So where a weaker lock that conflicts with that one is had at once, nothing is committed that this session
 * could not hear of by now, and the cache, with what is pending taken in, is right.  Where it is not had, somebody is
 * changing policies, or has committed and not told yet: then the tables are read, under a new snapshot.
 */
#include "compat.h"

#include "access/table.h"
#include "storage/lmgr.h"
#include "utils/array.h"

#include "lists.h"
#include "policy_rows.h"
#include "record.h"
#include "rows.h"

/* Where lists lie in a row. */
typedef struct ListColumns
{
	int			material;
	int			immaterial;
} ListColumns;

static ArrayType *
list_at(TupleTableSlot *row, int column)
{
	return row->tts_isnull[column] ? NULL : DatumGetArrayTypePCopy(row->tts_values[column]);
}

/* Add the lists of a row, unless their version is among those known; returns the version. */
static int32
add_lists(ListsOnRecord *into, TupleTableSlot *row, ListColumns columns)
{
	ArrayType  *material = list_at(row, columns.material);
	ArrayType  *immaterial = list_at(row, columns.immaterial);
	int32		version = material_version(material, immaterial);

	for (int i = 0; i < into->count; i++)
		if (into->lists[i].version == version)
			return version;
	if (into->lists == NULL)
		into->lists = palloc(sizeof(Lists) * 8);
	else if (into->count >= 8 && (into->count & (into->count - 1)) == 0)
		into->lists = repalloc_huge(into->lists, sizeof(Lists) * into->count * 2);
	into->lists[into->count++] = (Lists) {version, material_parse(material, immaterial)};
	return version;
}

static bool
take_policy(TupleTableSlot *row, void *into)
{
	ListsOnRecord *lists = into;

	lists->in_force = add_lists(lists, row, (ListColumns) {POLICY_MATERIAL, POLICY_IMMATERIAL});
	return false;
}

static bool
take_version(TupleTableSlot *row, void *into)
{
	(void) add_lists(into, row, (ListColumns) {VERSION_MATERIAL, VERSION_IMMATERIAL});
	return true;
}

/* A scope without a row of its own goes by "*", and where there is no such row everything is material. */
static void
read_lists_in_force(Datum scope, Datum star, ListsOnRecord *into)
{
	Relation	policies = rows_open(TABLE_POLICY, &policy_layout, AccessShareLock);
	RowKey		key = {POLICY_SCOPE, scope};

	rows_find(policies, &key, 1, take_policy, into);
	key.value = star;
	if (into->count == 0)
		rows_find(policies, &key, 1, take_policy, into);
	table_close(policies, AccessShareLock);
	if (into->count == 0)
	{
		into->lists = palloc(sizeof(Lists) * 8);
		into->lists[into->count++] = (Lists) {0, NULL};
	}
}

/* The tables' own word. */
static void
read_lists(Span scope, ListsOnRecord *into)
{
	Datum		own = span_datum(scope);
	Datum		star = span_datum((Span) {"*", 1});
	Relation	history;
	RowKey		key = {VERSION_SCOPE, own};

	memset(into, 0, sizeof(*into));
	read_lists_in_force(own, star, into);
	history = rows_open(TABLE_POLICY_VERSION, &version_layout, AccessShareLock);
	rows_find(history, &key, 1, take_version, into);
	key.value = star;
	rows_find(history, &key, 1, take_version, into);
	table_close(history, AccessShareLock);
}

void
lists_now(Span scope, ListsOnRecord *into)
{
	Oid			history = catalog_table(TABLE_POLICY_VERSION);
	bool		all_are_told = ConditionalLockRelationOid(history, RowExclusiveLock);

	policy_begin();
	if (!all_are_told)
	{
		read_lists(scope, into);
		return;
	}
	UnlockRelationOid(history, RowExclusiveLock);
	policy_lists(scope, into);
}
