/*
 * catalog.h: the extension's own tables and types, found as its members, never by name alone.
 */
#ifndef IDEM_CATALOG_H
#define IDEM_CATALOG_H

#include "access/tupdesc.h"

/* The extension's tables, in the order of their names in catalog.c. */
typedef enum IdemTable
{
	TABLE_ALERT,
	TABLE_BINDING,
	TABLE_FAST,
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

/* The OID of a table.  Raises 55000 where the extension is not installed in this database. */
extern Oid	catalog_table(IdemTable table);

/* The OIDs of the composite type idem_claim and of the enum idem_outcome; both raise likewise. */
extern Oid	catalog_claim_type(void);
extern Oid	catalog_outcome_type(void);

/* The OID of a value of the enum idem_outcome or idem_ack, by its place in state.h; raises likewise. */
extern Oid	catalog_outcome(int outcome);
extern Oid	catalog_ack(int ack);

/* Count of the invalidations that may concern a table of ours; rises by at least one with each. */
extern uint64 catalog_generation(IdemTable table);

#endif							/* IDEM_CATALOG_H */
