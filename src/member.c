/*
 * member.c: what the extension consists of, told and checked for the scripts of updates.
 *
 * Whoever owns the extension may add objects of his own to it.  A script that then said CREATE OR REPLACE would leave
 * him the owner of what runs with higher rights.  So an update first has its members checked against the list of the
 * version that it starts from, and creates what is new by plain CREATE.
 *
 * The list has one line for each member, without the schema, for instance
 * function idem_commit(uuid,uuid,jsonb,text).  Types of PostgreSQL's have the names that pg_type has, so that the
 * search path changes nothing.  Indexes, triggers and constraints are no members; row types and arrays are left out.
 */
#include "compat.h"

#include "catalog/pg_class.h"
#include "catalog/objectaddress.h"
#include "catalog/pg_namespace_d.h"
#include "catalog/pg_proc.h"
#include "catalog/pg_type.h"
#include "lib/stringinfo.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/syscache.h"

#include "catalog.h"

PG_FUNCTION_INFO_V1(idem_member_list);
PG_FUNCTION_INFO_V1(idem_check_members);

/* A member and its line. */
typedef struct Line
{
	const Member *member;
	char	   *text;
} Line;

/* The name of a type: of the extension's own and of PostgreSQL's without the schema. */
static void
append_type(StringInfo line, Oid type, Oid schema)
{
	Oid			element = get_element_type(type);
	Oid			named = OidIsValid(element) ? element : type;
	HeapTuple	row = SearchSysCache1(TYPEOID, ObjectIdGetDatum(named));
	Form_pg_type form;

	if (!HeapTupleIsValid(row))
		elog(ERROR, "cache lookup failed for type %u", named);
	form = (Form_pg_type) GETSTRUCT(row);
	if (form->typnamespace != schema && form->typnamespace != PG_CATALOG_NAMESPACE)
		appendStringInfo(line, "%s.", quote_identifier(get_namespace_name(form->typnamespace)));
	appendStringInfo(line, "%s%s", quote_identifier(NameStr(form->typname)), OidIsValid(element) ? "[]" : "");
	ReleaseSysCache(row);
}

static void
append_function(StringInfo line, const Member *member, Oid schema)
{
	HeapTuple	row = SearchSysCache1(PROCOID, ObjectIdGetDatum(member->object));
	Form_pg_proc form;

	if (!HeapTupleIsValid(row))
		elog(ERROR, "cache lookup failed for function %u", member->object);
	form = (Form_pg_proc) GETSTRUCT(row);
	appendStringInfo(line, "%s %s(", member->kind == PROKIND_FUNCTION ? "function" : "routine",
					 quote_identifier(NameStr(member->name)));
	for (int i = 0; i < form->pronargs; i++)
	{
		if (i > 0)
			appendStringInfoChar(line, ',');
		append_type(line, form->proargtypes.values[i], schema);
	}
	appendStringInfoChar(line, ')');
	ReleaseSysCache(row);
}

static const char *
kind_of_relation(char relkind)
{
	return relkind == RELKIND_RELATION ? "table" : relkind == RELKIND_VIEW ? "view" : "relation";
}

static char *
line_of(const Member *member, Oid schema)
{
	ObjectAddress object = {member->class_id, member->object, 0};
	StringInfoData line;

	initStringInfo(&line);
	if (member->class_id == ProcedureRelationId)
		append_function(&line, member, schema);
	else if (member->class_id == RelationRelationId)
		appendStringInfo(&line, "%s %s", kind_of_relation(member->kind), quote_identifier(NameStr(member->name)));
	else if (member->class_id == TypeRelationId)
		appendStringInfo(&line, "type %s", quote_identifier(NameStr(member->name)));
	else
		appendStringInfo(&line, "%s %s", getObjectTypeDescription(&object, false), getObjectIdentity(&object, false));
	return line.data;
}

static int
compare_lines(const void *a, const void *b)
{
	return strcmp(((const Line *) a)->text, ((const Line *) b)->text);
}

static int
compare_strings(const void *a, const void *b)
{
	return strcmp(*(char *const *) a, *(char *const *) b);
}

/*
 * Does a type come and go with a relation, or with the type that it is the array of?  Such are members only from
 * PostgreSQL 17 on, or where they were added.
 */
static bool
is_made_along(const Member *member)
{
	Oid			relation;
	Oid			element;

	if (member->class_id != TypeRelationId)
		return false;
	relation = get_typ_typrelid(member->object);
	element = get_element_type(member->object);
	return (OidIsValid(relation) && get_rel_relkind(relation) != RELKIND_COMPOSITE_TYPE) ||
		(OidIsValid(element) && get_array_type(element) == member->object);
}

/* All members with their lines, sorted, but for types made along; in *self the function that is being called, which is one of them. */
static Line *
lines(FunctionCallInfo fcinfo, int *count, const Member **self)
{
	List	   *members = catalog_members();
	Line	   *all = palloc(sizeof(Line) * Max(1, list_length(members)));
	ListCell   *cell;

	*count = 0;
	*self = NULL;
	foreach(cell, members)
	{
		Member	   *member = lfirst(cell);

		if (member->class_id == ProcedureRelationId && member->object == fcinfo->flinfo->fn_oid)
			*self = member;
	}
	if (*self == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("function %u does not belong to extension idem", fcinfo->flinfo->fn_oid),
				 errhint("Put it back with ALTER EXTENSION idem ADD FUNCTION.")));
	foreach(cell, members)
	{
		Member	   *member = lfirst(cell);

		if (is_made_along(member))
			continue;
		all[*count].member = member;
		all[(*count)++].text = line_of(member, (*self)->schema);
	}
	qsort(all, *count, sizeof(Line), compare_lines);
	return all;
}

/*
 * _idem_member_list() RETURNS SETOF text
 */
Datum
idem_member_list(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *result = (ReturnSetInfo *) fcinfo->resultinfo;
	const Member *self;
	int			count;
	Line	   *all = lines(fcinfo, &count, &self);
	bool		isnull = false;

	materialize_values(fcinfo);
	for (int i = 0; i < count; i++)
	{
		Datum		text = CStringGetTextDatum(all[i].text);

		tuplestore_putvalues(result->setResult, result->setDesc, &text, &isnull);
	}
	return (Datum) 0;
}

static void refuse_null_line(void) pg_attribute_noreturn();

static void
refuse_null_line(void)
{
	ereport(ERROR,
			(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
			 errmsg("the list of members must not be null, and have no null in it"),
			 errhint("Give what _idem_member_list() returned where the former version was installed.")));
}

/* The expected lines, sorted.  Raises 22004 for a null. */
static char **
expected_lines(FunctionCallInfo fcinfo, int *count)
{
	Datum	   *values;
	bool	   *nulls;
	char	  **expected;

	if (PG_ARGISNULL(0))
		refuse_null_line();
	deconstruct_array(PG_GETARG_ARRAYTYPE_P(0), TEXTOID, -1, false, TYPALIGN_INT, &values, &nulls, count);
	expected = palloc(sizeof(char *) * Max(1, *count));
	for (int i = 0; i < *count; i++)
	{
		if (nulls[i])
			refuse_null_line();
		expected[i] = TextDatumGetCString(values[i]);
	}
	qsort(expected, *count, sizeof(char *), compare_strings);
	return expected;
}

static void
refuse_update(const char *line, const char *what, const char *hint)
{
	ereport(ERROR,
			(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
			 errmsg("%s %s", line, what),
			 errdetail("An update starts from exactly what the script of the former version made."),
			 errhint("%s", hint)));
}

/* What the script makes has one owner and one schema: those of this function, which only a superuser could make. */
static void
check_places(const Line *all, int count, const Member *self)
{
	for (int i = 0; i < count; i++)
		if (all[i].member->owner != self->owner || all[i].member->schema != self->schema)
			refuse_update(all[i].text, "belongs to extension idem, with another owner or in another schema than the rest of it",
						  "Put it back as it was, or, where somebody added it, take it out with ALTER EXTENSION idem DROP.");
}

/*
 * _idem_check_members(expected text[], idem_ack) RETURNS void
 *
 * Raises 55000 naming the first member that is wrongly placed or owned, not expected or missing.
 */
Datum
idem_check_members(PG_FUNCTION_ARGS)
{
	const Member *self;
	int			count;
	int			nexpected;
	char	  **expected = expected_lines(fcinfo, &nexpected);
	Line	   *all = lines(fcinfo, &count, &self);

	check_places(all, count, self);
	for (int i = 0; i < count || i < nexpected; i++)
	{
		int			order = i >= count ? 1 : i >= nexpected ? -1 : strcmp(all[i].text, expected[i]);

		if (order < 0)
			refuse_update(all[i].text, "belongs to extension idem, and is not of its former version",
						  "Take it out with ALTER EXTENSION idem DROP.");
		if (order > 0)
			refuse_update(expected[i], "is of the former version of extension idem, and does not belong to it",
						  "Put it back as it was, with ALTER EXTENSION idem ADD.");
	}
	PG_RETURN_VOID();
}
