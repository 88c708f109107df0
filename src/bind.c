/*
 * bind.c: roles are bound to a subject, and released: the rows of idem_binding, by idem_grant, idem_revoke and users.
 *
 * A row has the role's name, which a dump carries to another cluster, and its OID, which follows the role through a
 * change of its name.  The OID is found by the name whenever a row is written: one that comes from another cluster,
 * with a dump or a subscription, means another role here, or none.
 */
#include "compat.h"

#include "access/htup_details.h"
#include "access/table.h"
#include "catalog/pg_authid.h"
#include "commands/trigger.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/syscache.h"

#include "bind.h"
#include "binding.h"
#include "privilege.h"
#include "rows.h"

PG_FUNCTION_INFO_V1(idem_binding_role);
PG_FUNCTION_INFO_V1(idem_bound);

#define SETTING_MAX_LENGTH 255

typedef struct BindingRow
{
	ItemPointerData tid;
	char	   *name;
	Oid			role_oid;		/* as it stands there; InvalidOid: null */
	Oid			role;			/* whom it means; InvalidOid: nobody */
	char	   *setting;
} BindingRow;

static void
take_row(TupleTableSlot *columns, void *into)
{
	List	  **rows = into;
	BindingRow *row = palloc(sizeof(BindingRow));

	row->tid = columns->tts_tid;
	row->name = TextDatumGetCString(columns->tts_values[BINDING_ROLE]);
	row->role_oid = columns->tts_isnull[BINDING_ROLE_OID] ? InvalidOid :
		DatumGetObjectId(columns->tts_values[BINDING_ROLE_OID]);
	row->role = binding_role_of(row->role_oid, row->name);
	row->setting = TextDatumGetCString(columns->tts_values[BINDING_SUBJECT_SETTING]);
	*rows = lappend(*rows, row);
}

static List *
read_rows(Relation bindings)
{
	List	   *rows = NIL;

	rows_read_latest(bindings, take_row, &rows);
	return rows;
}

/* The row of a role: the one that has its OID goes before one that has only its name. */
static BindingRow *
row_of(List *rows, Oid role)
{
	BindingRow *by_name = NULL;
	ListCell   *cell;

	foreach(cell, rows)
	{
		BindingRow *row = lfirst(cell);

		if (row->role != role)
			continue;
		if (row->role_oid == role)
			return row;
		by_name = row;
	}
	return by_name;
}

static BindingRow *
row_named(List *rows, const char *name)
{
	ListCell   *cell;

	foreach(cell, rows)
		if (strcmp(((BindingRow *) lfirst(cell))->name, name) == 0)
			return lfirst(cell);
	return NULL;
}

/* Write a row anew, or a new one where there is no place yet. */
static void
write_row(Relation bindings, ItemPointer tid, const char *name, Oid role, const char *setting)
{
	Datum		values[BINDING_NATTS];
	bool		isnull[BINDING_NATTS] = {0};

	values[BINDING_ROLE] = CStringGetTextDatum(name);
	values[BINDING_ROLE_OID] = ObjectIdGetDatum(role);
	values[BINDING_SUBJECT_SETTING] = CStringGetTextDatum(setting);
	if (tid != NULL)
		rows_update(bindings, tid, values, isnull);
	else
		rows_insert(bindings, values, isnull);
}

/*
 * Give one row the name and the OID of the role that it means, and say whether that changed anything.  A row in the
 * way that means nobody, or a role that has a row of its own by its OID, goes.  Two that have changed their names
 * for each other's stay as they are: their OIDs tell.
 */
static bool
refresh_one(Relation bindings, List *rows)
{
	ListCell   *cell;

	foreach(cell, rows)
	{
		BindingRow *row = lfirst(cell);
		char	   *name = OidIsValid(row->role) ? GetUserNameFromId(row->role, false) : row->name;
		BindingRow *other;

		if (!OidIsValid(row->role) || (row->role_oid == row->role && strcmp(name, row->name) == 0))
			continue;
		other = row_named(rows, name);
		if (other != NULL && other != row && OidIsValid(other->role) && other->role == other->role_oid)
			continue;
		if (other != NULL && other != row)
			rows_delete(bindings, &other->tid);
		write_row(bindings, &row->tid, name, row->role, row->setting);
		return true;
	}
	return false;
}

Relation
bind_open(void)
{
	Relation	bindings = rows_open(TABLE_BINDING, &binding_layout, ShareRowExclusiveLock);

	while (refresh_one(bindings, read_rows(bindings)))
		CHECK_FOR_INTERRUPTS();
	return bindings;
}

/* A name in dotted parts, each as an identifier is; not idem's, and no longer than it may be. */
static bool
is_own_setting(const char *name)
{
	bool		begins = true;
	int			parts = 1;

	for (const char *c = name; *c != '\0'; c++)
	{
		bool		letter = (*c >= 'A' && *c <= 'Z') || (*c >= 'a' && *c <= 'z') || *c == '_';
		bool		further = (*c >= '0' && *c <= '9') || *c == '$';

		if (*c == '.' && !begins)
			parts++;
		else if (!letter && (begins || !further))
			return false;
		begins = *c == '.';
	}
	return parts > 1 && !begins && pg_strncasecmp(name, "idem.", 5) != 0 && strlen(name) <= SETTING_MAX_LENGTH;
}

/* What was bound stays so until it is taken back: a grant that is merely repeated must not open it. */
static void
keep_binding(const BindingRow *row, Oid role)
{
	const char *name = quote_identifier(GetUserNameFromId(role, false));

	if (row != NULL)
		ereport(NOTICE,
				(errmsg("role %s is still bound to the subject that \"%s\" holds", name, row->setting),
				 errhint("To grant without a binding, first idem_revoke both signer and caller.")));
	else if (privilege_is_marked(role))
		ereport(NOTICE,
				(errmsg("role %s is still bound, and the table idem_binding does not say to which subject", name),
				 errhint("Give a subject_setting. To grant without a binding, first idem_revoke both signer and caller.")));
	if (row != NULL || privilege_is_marked(role))
		privilege_mark(role, true);
}

void
bind_role(Relation bindings, Oid role, const char *set, const char *setting)
{
	BindingRow *row = row_of(read_rows(bindings), role);

	if (setting == NULL)
	{
		if (privilege_set_is_bindable(set))
			keep_binding(row, role);
		return;
	}
	if (!privilege_set_is_bindable(set))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("only signer and caller can be bound to a subject"),
				 errhint("What the other sets open concerns all subjects.")));
	if (!is_own_setting(setting))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("subject_setting is not the name of a setting of your own"),
				 errhint("Such a name has a dot in it, as app.subject has. Those that begin with idem. are not yours.")));
	write_row(bindings, row == NULL ? NULL : &row->tid, row == NULL ? GetUserNameFromId(role, false) : row->name,
			  role, setting);
	privilege_mark(role, true);
}

void
bind_release(Relation bindings, Oid role)
{
	BindingRow *row = row_of(read_rows(bindings), role);
	bool		stays = privilege_has_bindable(role);

	if (row != NULL && !stays)
		rows_delete(bindings, &row->tid);
	privilege_mark(role, stays && (row != NULL || privilege_is_marked(role)));
}

/*
 * _idem_binding_role() RETURNS trigger
 *
 * Before each row of idem_binding: the OID of the role by its name, null where there is no such role.
 */
Datum
idem_binding_role(PG_FUNCTION_ARGS)
{
	TriggerData *trigger = (TriggerData *) fcinfo->context;
	int			column = BINDING_ROLE_OID + 1;
	HeapTuple	row;
	TupleDesc	columns;
	Datum		name;
	Datum		role;
	bool		isnull;

	if (!CALLED_AS_TRIGGER(fcinfo) || !TRIGGER_FIRED_BEFORE(trigger->tg_event) ||
		!TRIGGER_FIRED_FOR_ROW(trigger->tg_event) || TRIGGER_FIRED_BY_DELETE(trigger->tg_event) ||
		RelationGetRelid(trigger->tg_relation) != catalog_table(TABLE_BINDING))
		ereport(ERROR,
				(errcode(ERRCODE_E_R_I_E_TRIGGER_PROTOCOL_VIOLATED),
				 errmsg("_idem_binding_role serves idem_binding only, before each row")));
	(void) catalog_verify(trigger->tg_relation, TABLE_BINDING, &binding_layout, true);

	row = TRIGGER_FIRED_BY_UPDATE(trigger->tg_event) ? trigger->tg_newtuple : trigger->tg_trigtuple;
	columns = RelationGetDescr(trigger->tg_relation);
	name = heap_getattr(row, BINDING_ROLE + 1, columns, &isnull);
	role = ObjectIdGetDatum(isnull ? InvalidOid : binding_role_of(InvalidOid, TextDatumGetCString(name)));
	isnull = !OidIsValid(DatumGetObjectId(role));
	return PointerGetDatum(heap_modify_tuple_by_cols(row, columns, 1, &column, &role, &isnull));
}

/*
 * _idem_bound_signer() RETURNS void, _idem_bound_caller() RETURNS void
 *
 * Does nothing: who has the privilege to execute one of them is marked as bound.
 */
Datum
idem_bound(PG_FUNCTION_ARGS)
{
	PG_RETURN_VOID();
}
