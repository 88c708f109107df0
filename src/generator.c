/*
 * generator.c: random bytes for secrets, by pgcrypto.
 *
 * pgcrypto may lie in any schema, functions with its generator's name may lie anywhere, whoever owns the extension may
 * add such functions to it, and whoever owns its functions may alter them.  So the generator is found among pgcrypto's
 * members by the code that it runs, which only a superuser can give to a function, and called by its OID.
 */
#include "compat.h"

#include "catalog/pg_language_d.h"
#include "catalog/pg_proc.h"
#include "catalog/pg_type_d.h"
#include "commands/extension.h"
#include "utils/builtins.h"
#include "utils/syscache.h"

#include "catalog.h"
#include "generator.h"

#define GENERATOR_LIBRARY "$libdir/pgcrypto"
#define GENERATOR_SYMBOL "pg_random_bytes"

static void
refuse(void)
{
	ereport(ERROR,
			(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
			 errmsg("pgcrypto's function gen_random_bytes(integer) is not there, or was altered"),
			 errhint("It must belong to the extension pgcrypto as CREATE EXTENSION made it, in any schema, without settings and without SECURITY DEFINER.")));
}

/* Is a text column of a function's row this? */
static bool
says(HeapTuple function, AttrNumber column, const char *wanted)
{
	bool		isnull;
	Datum		value = SysCacheGetAttr(PROCOID, function, column, &isnull);

	return !isnull && strcmp(TextDatumGetCString(value), wanted) == 0;
}

static bool
runs_generator(HeapTuple function)
{
	return ((Form_pg_proc) GETSTRUCT(function))->prolang == ClanguageId &&
		says(function, Anum_pg_proc_prosrc, GENERATOR_SYMBOL) &&
		says(function, Anum_pg_proc_probin, GENERATOR_LIBRARY);
}

/* With these, and only with these, calling it runs its code and nothing else, with the rights that there are. */
static bool
is_unaltered(HeapTuple function)
{
	Form_pg_proc form = (Form_pg_proc) GETSTRUCT(function);

	return form->prokind == PROKIND_FUNCTION && !form->proretset && form->prorettype == BYTEAOID &&
		form->pronargs == 1 && form->proargtypes.values[0] == INT4OID && !form->prosecdef &&
		heap_attisnull(function, Anum_pg_proc_proconfig, NULL);
}

/* Is this member the generator?  One that was altered is refused. */
static bool
is_generator(const Member *member)
{
	HeapTuple	function;
	bool		runs;

	if (member->class_id != ProcedureRelationId || member->language != ClanguageId)
		return false;
	function = SearchSysCache1(PROCOID, ObjectIdGetDatum(member->object));
	if (!HeapTupleIsValid(function))
		return false;
	runs = runs_generator(function);
	if (runs && !is_unaltered(function))
		refuse();
	ReleaseSysCache(function);
	return runs;
}

static Oid
find_generator(void)
{
	Oid			extension = get_extension_oid("pgcrypto", true);
	List	   *members = OidIsValid(extension) ? catalog_members_of(extension) : NIL;
	Oid			generator = InvalidOid;
	ListCell   *cell;

	foreach(cell, members)
	{
		const Member *member = lfirst(cell);

		if (is_generator(member))
			generator = member->object;
	}
	list_free_deep(members);
	if (!OidIsValid(generator))
		refuse();
	return generator;
}

bytea *
generator_bytes(int length)
{
	bytea	   *bytes = DatumGetByteaP(OidFunctionCall1(find_generator(), Int32GetDatum(length)));

	if (VARSIZE(bytes) - VARHDRSZ != (Size) length)
		elog(ERROR, "pgcrypto made another number of random bytes than asked for");
	return bytes;
}
