/*
 * catalog.h: the extension's own tables, types and functions: found as its members, and verified.
 */
#ifndef IDEM_CATALOG_H
#define IDEM_CATALOG_H

#include "access/tupdesc.h"
#include "nodes/execnodes.h"
#include "nodes/pg_list.h"
#include "utils/relcache.h"

/* The extension's tables, in the order of their names in catalog.c. */
typedef enum IdemTable
{
	TABLE_ALERT,
	TABLE_BINDING,
	TABLE_FAST,
	TABLE_GUIDANCE,
	TABLE_PEER,
	TABLE_POLICY,
	TABLE_POLICY_VERSION,
	TABLE_RECORD,
	TABLE_SECRET,
	TABLE_COUNT
} IdemTable;

/* The columns that this library was built for. */
typedef struct Layout
{
	int			natts;
	int			key_natts;		/* the first so many are the primary key */
	const Oid  *types;
	uint32		nullable;		/* bit n: column n, counted from 0, may be null */
	int			nchecks;		/* check constraints, at most; of meaning where rows are written */
} Layout;

#define NULLABLE(column) ((uint32) 1 << (column))

/* What to do about other columns than those. */
#define LAYOUT_HINT \
	"Restore the columns that the extension created. After an update of the extension connect again; after one of its library run ALTER EXTENSION idem UPDATE."

/* Are these the columns of a table that this library was built for?  Others would be read as what they are not. */
extern bool layout_holds(const Layout *layout, TupleDesc columns);

/*
 * The OID of a table.  Raises 55000 where the extension is not installed in this database, and where something that
 * has a name of ours belongs to the extension without being what its script made: another schema, another owner,
 * another kind of object.  So do all the others below.
 */
extern Oid	catalog_table(IdemTable table);

/*
 * Is an open table of ours still what the script made?  Where its columns or its kind are others, where it is part of
 * an inheritance tree, or has rules, check constraints or triggers that it did not come with, this raises 55000, or
 * returns false where it is not to raise.  Nothing of the table is evaluated.
 */
extern bool catalog_verify(Relation relation, IdemTable table, const Layout *layout, bool raise);

/* The same for its indexes, opened for a write: none has an expression, a predicate or an exclusion constraint. */
extern bool catalog_verify_indexes(ResultRelInfo *result_rel, bool raise);

/* Is the extension installed in this database? */
extern bool catalog_is_installed(void);

/* Who owns everything that the script made, and the schema that it lies in. */
extern Oid	catalog_owner(void);
extern Oid	catalog_schema(void);

/* The role that created the extension, or owns it since.  Raises 55000 where it is not installed. */
extern Oid	catalog_extension_owner(void);

/* One object that belongs to the extension, whether or not it is the script's. */
typedef struct Member
{
	Oid			class_id;		/* RelationRelationId, ProcedureRelationId, TypeRelationId, or another catalog's */
	Oid			object;			/* all that is said of an object of another catalog */
	NameData	name;
	Oid			schema;
	Oid			owner;
	char		kind;			/* relkind, prokind or typtype */
	Oid			language;		/* of a function */
} Member;

/*
 * All relations, functions and types that belong to the extension, or to any other one, as Member *, in the current
 * memory context.
 */
extern List *catalog_members(void);
extern List *catalog_members_of(Oid extension);

/* The sets whose functions carry a subject. */
typedef enum BindableSet
{
	SET_SIGNER,
	SET_CALLER,
	BINDABLE_COUNT
} BindableSet;

/* The function whose access list marks the roles that are bound and have the set (binding.c); raises likewise. */
extern Oid	catalog_bound_marker(BindableSet set);

/* The OIDs of the composite type idem_claim and of the enum idem_outcome; both raise likewise. */
extern Oid	catalog_claim_type(void);
extern Oid	catalog_outcome_type(void);

/* The OID of a value of the enum idem_outcome or idem_ack, by its place in state.h; raises likewise. */
extern Oid	catalog_outcome(int outcome);
extern Oid	catalog_ack(int ack);

/* The label of a value of idem_outcome, by its place in state.h. */
extern const char *catalog_outcome_label(int outcome);

/* Count of the invalidations that may concern a table of ours; rises by at least one with each. */
extern uint64 catalog_generation(IdemTable table);

#endif							/* IDEM_CATALOG_H */
