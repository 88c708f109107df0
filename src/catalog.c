/*
 * catalog.c: the extension's own tables, types and functions: found as its members, and verified.
 *
 * Whoever owns the extension may add objects of his own to it, and whoever owns its tables may alter them.  So an
 * object with a name of ours counts only where it is what the script made: in the extension's schema, owned by who
 * owns idem's C functions (which only a superuser can make), and of the right kind.  Where anything else has such a
 * name, all calls raise 55000 before they touch it: none of it is evaluated.
 *
 * What was found is kept for the session.  The callback on relation invalidations does no catalog access: it counts,
 * and marks the findings stale, so that the next caller looks again.  The tables of an extension that is dropped, or
 * whose creation rolls back, are invalidated one by one, and their types go with them.
 *
 * Findings that were invalidated while they were being read are used once and read again by the next caller:
 * nothing loops, whatever the rate of invalidations.
 */
#include "compat.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "catalog/dependency.h"
#include "catalog/indexing.h"
#include "catalog/pg_am_d.h"
#include "catalog/pg_class.h"
#include "catalog/pg_depend.h"
#include "catalog/pg_enum.h"
#include "catalog/pg_extension.h"
#include "catalog/pg_index.h"
#include "catalog/pg_inherits.h"
#include "catalog/pg_language_d.h"
#include "catalog/pg_proc.h"
#include "catalog/pg_type.h"
#include "commands/extension.h"
#include "nodes/execnodes.h"
#include "utils/builtins.h"
#include "utils/catcache.h"
#include "utils/fmgroids.h"
#include "utils/inval.h"
#include "utils/lsyscache.h"
#include "utils/reltrigger.h"
#include "utils/syscache.h"

#include "catalog.h"
#include "state.h"

/* What is looked for, and where it was found; InvalidOid: not found. */
typedef struct Members
{
	Oid			owner;			/* of everything that the script made */
	Oid			schema;
	char	   *stranger;		/* what has a name of ours and is not what the script made; NULL: nothing */
	Oid			table[TABLE_COUNT];
	Oid			bound_marker[BINDABLE_COUNT];
	Oid			claim_type;
	Oid			outcome_type;
	Oid			outcome[OUTCOME_COUNT];
	Oid			ack[ACK_COUNT];
} Members;

static const char *const table_name[TABLE_COUNT] = {
	[TABLE_ALERT] = "idem_alert",
	[TABLE_BINDING] = "idem_binding",
	[TABLE_FAST] = "idem_fast",
	[TABLE_GUIDANCE] = "idem_guidance",
	[TABLE_PEER] = "idem_peer",
	[TABLE_POLICY] = "idem_policy",
	[TABLE_POLICY_VERSION] = "idem_policy_version",
	[TABLE_RECORD] = "idem_record",
	[TABLE_SECRET] = "idem_secret",
};

static const char *const outcome_label[OUTCOME_COUNT] = {
	[OUTCOME_ACQUIRED] = "ACQUIRED",
	[OUTCOME_IN_FLIGHT] = "IN_FLIGHT",
	[OUTCOME_DONE] = "DONE",
	[OUTCOME_FAILED] = "FAILED",
	[OUTCOME_RECONCILE] = "RECONCILE",
	[OUTCOME_PARAM_MISMATCH] = "PARAM_MISMATCH",
	[OUTCOME_SUBJECT_MISMATCH] = "SUBJECT_MISMATCH",
	[OUTCOME_SCOPE_MISMATCH] = "SCOPE_MISMATCH",
	[OUTCOME_EXPIRED] = "EXPIRED",
	[OUTCOME_INVALID] = "INVALID",
	[OUTCOME_REPEAT] = "REPEAT",
	[OUTCOME_NONE] = "NONE",
	[OUTCOME_UNKNOWN] = "UNKNOWN",
	[OUTCOME_RETRYABLE] = "RETRYABLE",
};

static const char *const ack_label[ACK_COUNT] = {
	[ACK_OK] = "OK",
	[ACK_NOT_OWNER] = "NOT_OWNER",
	[ACK_ALREADY] = "ALREADY",
	[ACK_NONE] = "NONE",
};

static Members members;
static uint64 generation[TABLE_COUNT];
static uint64 invalidations = 1;	/* that concern members, or may */
static uint64 read_at = 0;		/* the value of invalidations when members was read */
static bool reading = false;	/* members is being read, or its reading failed */

static Oid	found(const Oid *member);
static void look_again(void);
static void watch(void);
static void on_invalidation(Datum arg, Oid relation);

/* The function by whose owner all members are judged: made in C, which only a superuser can do. */
#define OWNED_FUNCTION "_idem_stale"

/* The functions whose access lists mark the roles that are bound to a subject. */
static const char *const marker_name[BINDABLE_COUNT] = {
	[SET_SIGNER] = "_idem_bound_signer",
	[SET_CALLER] = "_idem_bound_caller",
};

Oid
catalog_table(IdemTable table)
{
	return found(&members.table[table]);
}

Oid
catalog_bound_marker(BindableSet set)
{
	return found(&members.bound_marker[set]);
}

Oid
catalog_claim_type(void)
{
	return found(&members.claim_type);
}

Oid
catalog_outcome_type(void)
{
	return found(&members.outcome_type);
}

Oid
catalog_outcome(int outcome)
{
	Assert(outcome >= 0 && outcome < OUTCOME_COUNT);
	return found(&members.outcome[outcome]);
}

const char *
catalog_outcome_label(int outcome)
{
	Assert(outcome >= 0 && outcome < OUTCOME_COUNT);
	return outcome_label[outcome];
}

Oid
catalog_ack(int ack)
{
	Assert(ack >= 0 && ack < ACK_COUNT);
	return found(&members.ack[ack]);
}

Oid
catalog_owner(void)
{
	return found(&members.owner);
}

Oid
catalog_schema(void)
{
	return found(&members.schema);
}

uint64
catalog_generation(IdemTable table)
{
	watch();
	return generation[table];
}

/* ----- what belongs to the extension ----- */

static void
add_member(List **list, Oid class_id, Oid object, NameData name, Oid schema, Oid owner, char kind, Oid language)
{
	Member	   *member = palloc(sizeof(Member));

	member->class_id = class_id;
	member->object = object;
	member->name = name;
	member->schema = schema;
	member->owner = owner;
	member->kind = kind;
	member->language = language;
	*list = lappend(*list, member);
}

static void
add_relation(List **list, Oid relation)
{
	HeapTuple	tuple = SearchSysCache1(RELOID, ObjectIdGetDatum(relation));
	Form_pg_class form;

	if (!HeapTupleIsValid(tuple))
		return;
	form = (Form_pg_class) GETSTRUCT(tuple);
	add_member(list, RelationRelationId, relation, form->relname, form->relnamespace, form->relowner, form->relkind,
			   InvalidOid);
	ReleaseSysCache(tuple);
}

static void
add_function(List **list, Oid function)
{
	HeapTuple	tuple = SearchSysCache1(PROCOID, ObjectIdGetDatum(function));
	Form_pg_proc form;

	if (!HeapTupleIsValid(tuple))
		return;
	form = (Form_pg_proc) GETSTRUCT(tuple);
	add_member(list, ProcedureRelationId, function, form->proname, form->pronamespace, form->proowner, form->prokind,
			   form->prolang);
	ReleaseSysCache(tuple);
}

static void
add_type(List **list, Oid type)
{
	HeapTuple	tuple = SearchSysCache1(TYPEOID, ObjectIdGetDatum(type));
	Form_pg_type form;

	if (!HeapTupleIsValid(tuple))
		return;
	form = (Form_pg_type) GETSTRUCT(tuple);
	add_member(list, TypeRelationId, type, form->typname, form->typnamespace, form->typowner, form->typtype,
			   InvalidOid);
	ReleaseSysCache(tuple);
}

/* What has no place here is said to be there, and no more. */
static void
add_other(List **list, Oid class_id, Oid object)
{
	static const NameData no_name;

	add_member(list, class_id, object, no_name, InvalidOid, InvalidOid, 0, InvalidOid);
}

List *
catalog_members_of(Oid extension)
{
	Relation	depend = table_open(DependRelationId, AccessShareLock);
	List	   *list = NIL;
	ScanKeyData key[2];
	SysScanDesc scan;
	HeapTuple	tuple;

	ScanKeyInit(&key[0], Anum_pg_depend_refclassid, BTEqualStrategyNumber, F_OIDEQ,
				ObjectIdGetDatum(ExtensionRelationId));
	ScanKeyInit(&key[1], Anum_pg_depend_refobjid, BTEqualStrategyNumber, F_OIDEQ,
				ObjectIdGetDatum(extension));
	scan = systable_beginscan(depend, DependReferenceIndexId, true, NULL, lengthof(key), key);
	while (HeapTupleIsValid(tuple = systable_getnext(scan)))
	{
		Form_pg_depend row = (Form_pg_depend) GETSTRUCT(tuple);

		if (row->deptype != DEPENDENCY_EXTENSION)
			continue;
		if (row->classid == RelationRelationId)
			add_relation(&list, row->objid);
		else if (row->classid == ProcedureRelationId)
			add_function(&list, row->objid);
		else if (row->classid == TypeRelationId)
			add_type(&list, row->objid);
		else
			add_other(&list, row->classid, row->objid);
	}
	systable_endscan(scan);
	table_close(depend, AccessShareLock);
	return list;
}

static void
refuse_not_installed(void)
{
	ereport(ERROR,
			(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
			 errmsg("extension idem is not installed in this database"),
			 errhint("Run CREATE EXTENSION idem CASCADE, or ALTER EXTENSION idem UPDATE where an older version is installed.")));
}

/* The extension, its schema and owner; raises where it is not installed. */
static Oid
find_extension(Oid *schema, Oid *owner)
{
	Relation	catalog = table_open(ExtensionRelationId, AccessShareLock);
	ScanKeyData key;
	SysScanDesc scan;
	HeapTuple	tuple;
	Oid			extension = InvalidOid;

	ScanKeyInit(&key, Anum_pg_extension_extname, BTEqualStrategyNumber, F_NAMEEQ, CStringGetDatum("idem"));
	scan = systable_beginscan(catalog, ExtensionNameIndexId, true, NULL, 1, &key);
	if (HeapTupleIsValid(tuple = systable_getnext(scan)))
	{
		Form_pg_extension form = (Form_pg_extension) GETSTRUCT(tuple);

		extension = form->oid;
		*schema = form->extnamespace;
		*owner = form->extowner;
	}
	systable_endscan(scan);
	table_close(catalog, AccessShareLock);
	return extension;
}

bool
catalog_is_installed(void)
{
	if (read_at != invalidations || !OidIsValid(members.table[TABLE_RECORD]))
		look_again();
	return OidIsValid(members.table[TABLE_RECORD]);
}

Oid
catalog_extension_owner(void)
{
	Oid			schema;
	Oid			owner;

	if (!OidIsValid(find_extension(&schema, &owner)))
		refuse_not_installed();
	return owner;
}

List *
catalog_members(void)
{
	Oid			schema;
	Oid			owner;
	Oid			extension = find_extension(&schema, &owner);

	if (!OidIsValid(extension))
		refuse_not_installed();
	return catalog_members_of(extension);
}

/* ----- which of it is ours ----- */

static bool
has_name_of_ours(const Member *member)
{
	const char *name = NameStr(member->name);

	/* the row type of a relation is that relation's */
	return strncmp(name, "idem_", 5) == 0 || strncmp(name, "_idem_", 6) == 0;
}

/* Who owns idem's C functions; InvalidOid where the one to go by is not there. */
static Oid
owner_of_functions(List *list, Oid schema)
{
	ListCell   *cell;

	foreach(cell, list)
	{
		const Member *member = lfirst(cell);

		if (member->class_id == ProcedureRelationId && member->language == ClanguageId &&
			member->schema == schema && strcmp(NameStr(member->name), OWNED_FUNCTION) == 0)
			return member->owner;
	}
	return InvalidOid;
}

/* What the script makes lies in the extension's schema, and has one owner; its relations are tables and views. */
static bool
is_of_the_script(const Member *member, const Members *into)
{
	if (member->schema != into->schema || member->owner != into->owner)
		return false;
	if (member->class_id != RelationRelationId)
		return true;
	for (int table = 0; table < TABLE_COUNT; table++)
		if (strcmp(NameStr(member->name), table_name[table]) == 0)
			return member->kind == RELKIND_RELATION;
	return true;
}

/* The labels of an enum; false where it is no enum or has not these labels, and these alone. */
static bool
take_labels(const Member *member, const char *const *label, int count, Oid *into)
{
	CatCList   *all = SearchSysCacheList1(ENUMTYPOIDNAME, ObjectIdGetDatum(member->object));
	bool		fits = member->kind == TYPTYPE_ENUM && all->n_members == count;

	ReleaseSysCacheList(all);
	for (int i = 0; i < count && fits; i++)
	{
		into[i] = GetSysCacheOid2(ENUMTYPOIDNAME, Anum_pg_enum_oid,
								  ObjectIdGetDatum(member->object), CStringGetDatum(label[i]));
		fits = OidIsValid(into[i]);
	}
	return fits;
}

static bool
take_type(const Member *member, Members *into)
{
	const char *name = NameStr(member->name);

	if (strcmp(name, "idem_claim") == 0)
	{
		into->claim_type = member->object;
		return member->kind == TYPTYPE_COMPOSITE;
	}
	if (strcmp(name, "idem_outcome") == 0)
	{
		into->outcome_type = member->object;
		return take_labels(member, outcome_label, OUTCOME_COUNT, into->outcome);
	}
	if (strcmp(name, "idem_ack") == 0)
		return take_labels(member, ack_label, ACK_COUNT, into->ack);
	return true;
}

static void
take_table(const Member *member, Members *into)
{
	for (int table = 0; table < TABLE_COUNT; table++)
		if (strcmp(NameStr(member->name), table_name[table]) == 0)
			into->table[table] = member->object;
}

static void
take_function(const Member *member, Members *into)
{
	for (int set = 0; set < BINDABLE_COUNT; set++)
		if (strcmp(NameStr(member->name), marker_name[set]) == 0)
			into->bound_marker[set] = member->object;
}

/* Remember a member that is not what it says, with its schema's name. */
static void
note_stranger(const Member *member, Members *into)
{
	char	   *schema = get_namespace_name(member->schema);

	into->stranger = quote_qualified_identifier(schema, NameStr(member->name));
}

static void
find_members(Oid extension, Members *into)
{
	List	   *list = catalog_members_of(extension);
	ListCell   *cell;

	into->owner = owner_of_functions(list, into->schema);
	foreach(cell, list)
	{
		const Member *member = lfirst(cell);
		bool		fits = is_of_the_script(member, into);

		if (!has_name_of_ours(member))
			continue;
		if (fits && member->class_id == RelationRelationId)
			take_table(member, into);
		else if (fits && member->class_id == TypeRelationId)
			fits = take_type(member, into);
		else if (fits && member->class_id == ProcedureRelationId)
			take_function(member, into);
		if (!fits && into->stranger == NULL)
			note_stranger(member, into);
	}
	list_free_deep(list);
}

static void
refuse_stranger(const char *name)
{
	ereport(ERROR,
			(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
			 errmsg("%s belongs to extension idem, and is not what its script made", name),
			 errdetail("It has another schema, another owner, another kind or other labels than what the script made."),
			 errhint("Put it back as it was, or, where somebody added it, take it out with ALTER EXTENSION idem DROP.")));
}

/* One of the members, looked for again where something was invalidated; raises where there is none. */
static Oid
found(const Oid *member)
{
	if (read_at != invalidations || !OidIsValid(*member))
		look_again();
	if (members.stranger != NULL)
		refuse_stranger(members.stranger);
	if (!OidIsValid(*member))
		refuse_not_installed();
	return *member;
}

/* The findings outlive the transaction, and with them the stranger's name. */
static void
keep(const Members *now)
{
	char	   *before = members.stranger;
	char	   *stranger = now->stranger == NULL ? NULL : MemoryContextStrdup(TopMemoryContext, now->stranger);

	for (int table = 0; table < TABLE_COUNT; table++)
	{
		if (now->table[table] != members.table[table])
			generation[table]++;
	}
	members = *now;
	members.stranger = stranger;
	if (before != NULL)
		pfree(before);
}

/*
 * Read members anew.  The count of invalidations is noted before, so that one that arrives meanwhile is not
 * lost: until members is known, any relation may be ours.
 */
static void
look_again(void)
{
	Members		now = {0};
	uint64		before;
	Oid			extension;
	Oid			extension_owner;

	watch();
	before = invalidations;
	reading = true;
	extension = find_extension(&now.schema, &extension_owner);
	if (OidIsValid(extension))
		find_members(extension, &now);
	reading = false;
	keep(&now);

	/* a stranger that is taken out again is no relation of ours, and invalidates nothing */
	read_at = now.stranger == NULL ? before : before - 1;
}

/* ----- whether a table is still what the script made ----- */

bool
layout_holds(const Layout *layout, TupleDesc columns)
{
	if (columns->natts != layout->natts)
		return false;
	for (int i = 0; i < layout->natts; i++)
	{
		Form_pg_attribute column = TupleDescAttr(columns, i);

		if (column->attisdropped || column->atttypid != layout->types[i] || column->attgenerated != '\0' ||
			column->attnotnull == ((layout->nullable & NULLABLE(i)) != 0))
			return false;
	}
	return true;
}

/* What is wrong with a table, in words; NULL: nothing. */
typedef struct Fault
{
	const char *what;
	const char *detail;
	const char *hint;
} Fault;

static bool
refuse_table(Relation relation, const Fault *fault, bool raise)
{
	if (!raise)
		return false;
	ereport(ERROR,
			(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
			 errmsg("table \"%s\" %s", RelationGetRelationName(relation), fault->what),
			 errdetail("%s", fault->detail),
			 errhint("%s", fault->hint)));
}

/* A trigger of ours: its function is the extension's, and in C, which only a superuser can make. */
static bool
is_own_trigger(const Trigger *trigger)
{
	HeapTuple	tuple = SearchSysCache1(PROCOID, ObjectIdGetDatum(trigger->tgfoid));
	bool		own = false;

	if (HeapTupleIsValid(tuple))
	{
		Form_pg_proc form = (Form_pg_proc) GETSTRUCT(tuple);

		own = !trigger->tgisinternal && form->proowner == members.owner &&
			form->pronamespace == members.schema && form->prolang == ClanguageId && trigger->tgqual == NULL &&
			strncmp(NameStr(form->proname), "_idem_", 6) == 0;
		ReleaseSysCache(tuple);
	}
	return own;
}

/* The small tables come with triggers that tell the caches; the others have none. */
static bool
has_strange_trigger(Relation relation, IdemTable table)
{
	TriggerDesc *triggers = relation->trigdesc;
	bool		may_have = table == TABLE_POLICY || table == TABLE_POLICY_VERSION || table == TABLE_SECRET ||
		table == TABLE_BINDING;

	for (int i = 0; triggers != NULL && i < triggers->numtriggers; i++)
		if (!may_have || !is_own_trigger(&triggers->triggers[i]))
			return true;
	return false;
}

static bool
has_more_checks(Relation relation, const Layout *layout)
{
	TupleConstr *constraints = RelationGetDescr(relation)->constr;

	return constraints != NULL && constraints->num_check > layout->nchecks;
}

/* A partition, a child or a parent: rows would come and go by another table. */
static bool
is_related(Relation relation)
{
	Oid			oid = RelationGetRelid(relation);

	return relation->rd_rel->relispartition || has_superclass(oid) ||
		(has_subclass(oid) && find_inheritance_children(oid, NoLock) != NIL);
}

/* Would some index evaluate code of whoever made it? */
static bool
has_evaluated_index(Relation relation)
{
	List	   *indexes = RelationGetIndexList(relation);
	ListCell   *cell;
	bool		evaluated = false;

	foreach(cell, indexes)
	{
		Relation	index = index_open(lfirst_oid(cell), AccessShareLock);

		evaluated |= !heap_attisnull(index->rd_indextuple, Anum_pg_index_indexprs, NULL) ||
			!heap_attisnull(index->rd_indextuple, Anum_pg_index_indpred, NULL) || index->rd_index->indisexclusion;
		index_close(index, AccessShareLock);
	}
	list_free(indexes);
	return evaluated;
}

static const Fault evaluated_index = {"has an index with an expression, a predicate or an exclusion constraint",
"It would be evaluated with the rights of every caller.", "Drop it. Plain indexes are welcome."};

bool
catalog_verify(Relation relation, IdemTable table, const Layout *layout, bool raise)
{
	static const Fault altered = {"was altered", "It has not the columns that this library was built for.", LAYOUT_HINT};
	static const Fault unlogged = {"is not logged", "A crash would empty it, and finished operations would run again.",
	"Use ALTER TABLE ... SET LOGGED."};
	static const Fault related = {"is a partition, or takes part in inheritance",
	"Rows would be looked for in one table and lie in another.", "Detach it: ALTER TABLE ... DETACH PARTITION or NO INHERIT."};
	static const Fault triggers = {"has triggers, foreign keys or rules", "They would not be obeyed.", "Drop them."};
	static const Fault checks = {"has check constraints that it did not come with", "They would not be obeyed.", "Drop them."};

	if (relation->rd_rel->relkind != RELKIND_RELATION || relation->rd_rel->relam != HEAP_TABLE_AM_OID ||
		!layout_holds(layout, RelationGetDescr(relation)))
		return refuse_table(relation, &altered, raise);
	if (is_related(relation))
		return refuse_table(relation, &related, raise);
	if (table != TABLE_FAST && relation->rd_rel->relpersistence != RELPERSISTENCE_PERMANENT)
		return refuse_table(relation, &unlogged, raise);
	if (relation->rd_rules != NULL || has_strange_trigger(relation, table))
		return refuse_table(relation, &triggers, raise);
	if (has_more_checks(relation, layout))
		return refuse_table(relation, &checks, raise);
	if (has_evaluated_index(relation))
		return refuse_table(relation, &evaluated_index, raise);
	return true;
}

bool
catalog_verify_indexes(ResultRelInfo *result_rel, bool raise)
{
	for (int i = 0; i < result_rel->ri_NumIndices; i++)
	{
		const IndexInfo *index = result_rel->ri_IndexRelationInfo[i];

		if (index->ii_Expressions != NIL || index->ii_Predicate != NIL || index->ii_ExclusionOps != NULL)
			return refuse_table(result_rel->ri_RelationDesc, &evaluated_index, raise);
	}
	return true;
}

/* ----- invalidations ----- */

/* Ask for the invalidations, once in a session. */
static void
watch(void)
{
	static bool watching = false;

	if (watching)
		return;
	CacheRegisterRelcacheCallback(on_invalidation, (Datum) 0);
	watching = true;
}

/* A relation was invalidated, or all of them (InvalidOid). */
static void
on_invalidation(Datum arg, Oid relation)
{
	/* look_again counts for the tables that turn out to be others than before */
	for (int table = 0; table < TABLE_COUNT; table++)
	{
		if (!OidIsValid(relation) || relation == members.table[table])
		{
			generation[table]++;
			invalidations++;
		}
	}
	if (reading)
		invalidations++;
}
