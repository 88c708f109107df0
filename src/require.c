/*
 * require.c: idem_require, the trigger that closes the way around the layer.
 *
 * A row of a protected table names the operation it belongs to, and is refused unless that operation is under
 * way: claimed by this very transaction, or committed in flight with its lease running, which the row's
 * transaction then keeps from ending before it does itself.  For a bound role an operation of another subject is none:
 * it is neither told of nor locked.
 */
#include "compat.h"

#include "access/sysattr.h"
#include "access/xact.h"
#include "catalog/pg_type_d.h"
#include "commands/trigger.h"
#include "executor/spi.h"
#include "utils/timestamp.h"

#include "binding.h"
#include "claim.h"
#include "policy.h"
#include "xact.h"

PG_FUNCTION_INFO_V1(idem_require);

static void
check_call(FunctionCallInfo fcinfo)
{
	TriggerData *data = (TriggerData *) fcinfo->context;

	if (!CALLED_AS_TRIGGER(fcinfo) ||
		!TRIGGER_FIRED_FOR_ROW(data->tg_event) ||
		TRIGGER_FIRED_BY_DELETE(data->tg_event) ||
		data->tg_trigger->tgnargs != 2)
		ereport(ERROR,
				(errcode(ERRCODE_E_R_I_E_TRIGGER_PROTOCOL_VIOLATED),
				 errmsg("idem_require was not called as it must be"),
				 errhint("Use CREATE TRIGGER ... BEFORE INSERT OR UPDATE ... FOR EACH ROW EXECUTE FUNCTION "
						 "idem_require('scope', 'key_column').")));
}

/* The operation that the new row names; NULL where it names none. */
static pg_uuid_t *
named_key(TriggerData *data)
{
	TupleDesc	columns = RelationGetDescr(data->tg_relation);
	const char *name = data->tg_trigger->tgargs[1];
	HeapTuple	row = TRIGGER_FIRED_BY_UPDATE(data->tg_event) ? data->tg_newtuple : data->tg_trigtuple;
	int			column = SPI_fnumber(columns, name);
	Datum		key;
	bool		isnull;

	if (column <= 0 || SPI_gettypeid(columns, column) != UUIDOID)
		ereport(ERROR,
				(errcode(ERRCODE_E_R_I_E_TRIGGER_PROTOCOL_VIOLATED),
				 errmsg("column \"%s\" is missing, or is not of type uuid", name),
				 errhint("The second argument of idem_require names the column that holds the operation's key.")));
	key = SPI_getbinval(row, columns, column, &isnull);
	return isnull ? NULL : DatumGetUUIDP(key);
}

static bool
is_in_scope(const Claim *claim, const char *scope)
{
	return span_equal(claim->scope, (Span) {scope, strlen(scope)});
}

/* May whoever writes the row know of the claim? */
static bool
is_admitted(TupleTableSlot *version, const void *function)
{
	return !binding_exists() || binding_admits_writer(*(const Oid *) function, record_subject(version));
}

/* This transaction's own claim, still in the fast table. */
static bool
holds_in_fast(Oid function, const pg_uuid_t *key, ItemPointer tid, const char *scope)
{
	Store		fast;
	Claim		claim;
	bool		holds;

	store_open(&fast, TABLE_FAST, RowExclusiveLock, false);
	holds = store_find_own(&fast, key, tid) && is_admitted(fast.found, &function);
	if (holds)
	{
		record_read(fast.found, &claim);
		holds = is_in_scope(&claim, scope);
	}
	store_close(&fast);
	return holds;
}

/* Was the claim finished, with success, in this very transaction? */
static bool
is_done_here(TupleTableSlot *version, const Claim *claim)
{
	bool		isnull;
	Datum		xmin = slot_getsysattr(version, MinTransactionIdAttributeNumber, &isnull);

	return claim->state == STATE_DONE && TransactionIdIsCurrentTransactionId(DatumGetTransactionId(xmin));
}

/* One look at the record; false in *settled where the version moved before it could be locked. */
static bool
holds_in_record(Oid function, const pg_uuid_t *key, bool is_own, const char *scope, bool *settled)
{
	Store		record;
	Sighting	sighting;
	Claim		claim;
	bool		holds = false;

	*settled = true;
	store_open(&record, TABLE_RECORD, RowShareLock, false);
	record.filter = is_admitted;
	record.filter_arg = &function;
	store_find(&record, key, &sighting);
	if (sighting.found)
	{
		record_read(record.found, &claim);
		is_own = is_own || is_done_here(record.found, &claim);
		holds = is_in_scope(&claim, scope) &&
			(is_own || (claim.state == STATE_IN_FLIGHT && GetCurrentTimestamp() < claim.lease_until));
	}
	if (holds && !is_own)
	{
		claim_require_serializable(&sighting);
		*settled = store_lock_shared(&record, &sighting.tid);
	}
	store_close(&record);
	return holds;
}

static bool
is_under_way(Oid function, const pg_uuid_t *key, const char *scope)
{
	ItemPointerData tid;
	Place		place = xact_place(key, &tid);
	bool		settled;
	bool		holds;

	if (place == PLACE_FAST)
		return holds_in_fast(function, key, &tid, scope);
	do
	{
		holds = holds_in_record(function, key, place != PLACE_NONE, scope, &settled);
	} while (!settled);
	return holds;
}

/*
 * idem_require('scope', 'key_column') RETURNS trigger
 *
 * Raises 23000 for a row whose key names no operation of the scope that is under way.
 */
Datum
idem_require(PG_FUNCTION_ARGS)
{
	TriggerData *data = (TriggerData *) fcinfo->context;
	pg_uuid_t  *key;

	policy_begin();
	check_call(fcinfo);
	key = named_key(data);
	if (key == NULL || !is_under_way(fcinfo->flinfo->fn_oid, key, data->tg_trigger->tgargs[0]))
		ereport(ERROR,
				(errcode(ERRCODE_INTEGRITY_CONSTRAINT_VIOLATION),
				 errmsg("no operation of scope \"%s\" is under way for this row", data->tg_trigger->tgargs[0]),
				 errdetail("Rows of table \"%s\" are written for a claim: by the transaction that holds it, or while "
						   "its lease runs.", RelationGetRelationName(data->tg_relation)),
				 errhint("Call idem_acquire() first, and write its key into the row.")));
	return PointerGetDatum(TRIGGER_FIRED_BY_UPDATE(data->tg_event) ? data->tg_newtuple : data->tg_trigtuple);
}
