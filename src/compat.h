/*
 * compat.h: every difference between PostgreSQL versions lives here.
 *
 * Written against 15; later versions are brought to the same names.
 */
#ifndef IDEM_COMPAT_H
#define IDEM_COMPAT_H

#include "postgres.h"

#if PG_VERSION_NUM < 150000
#error "idem needs PostgreSQL 15 or later"
#endif

#include "access/genam.h"
#include "access/tableam.h"
#include "access/xact.h"
#include "catalog/pg_proc_d.h"
#include "executor/executor.h"
#include "fmgr.h"
#include "funcapi.h"
#include "replication/message.h"
#include "storage/lmgr.h"
#include "utils/acl.h"
#include "utils/rel.h"
#include "utils/relcache.h"
#include "utils/syscache.h"
#if PG_VERSION_NUM >= 160000
#include "varatt.h"
#endif

/* PostgreSQL's operators of timestamps; their family has no symbol */
#ifndef DATETIME_BTREE_FAM_OID
#define DATETIME_BTREE_FAM_OID 434
#endif

#if PG_VERSION_NUM >= 180000
/* 18 has pg_noreturn instead, which stands before the declaration */
#define pg_attribute_noreturn() __attribute__((noreturn))
#endif

/* The index of the primary key, or InvalidOid; a deferrable one does not count. */
static inline Oid
primary_key_index(Relation relation)
{
#if PG_VERSION_NUM >= 180000
	return RelationGetPrimaryKeyIndex(relation, false);
#else
	return RelationGetPrimaryKeyIndex(relation);
#endif
}

/* A scan of an index by some keys. */
static inline IndexScanDesc
begin_index_scan(Relation table, Relation index, Snapshot snapshot, int nkeys)
{
#if PG_VERSION_NUM >= 180000
	return index_beginscan(table, index, snapshot, NULL, nkeys, 0);
#else
	return index_beginscan(table, index, snapshot, nkeys, 0);
#endif
}

/* Index entries of a new row; a unique index where its key is taken sets *conflict and never waits. */
static inline List *
insert_into_indexes(ResultRelInfo *result_rel, TupleTableSlot *row, EState *estate, bool *conflict)
{
#if PG_VERSION_NUM >= 160000
	return ExecInsertIndexTuples(result_rel, row, estate, false, true, conflict, NIL, false);
#else
	return ExecInsertIndexTuples(result_rel, row, estate, false, true, conflict, NIL);
#endif
}

/* What table_tuple_update says of the indexes. */
#if PG_VERSION_NUM >= 160000
typedef TU_UpdateIndexes IndexesToUpdate;
#else
typedef bool IndexesToUpdate;
#endif

/* Replace a version, waiting for whoever else is changing it. */
static inline TM_Result
update_version(Relation table, ItemPointer tid, TupleTableSlot *row, IndexesToUpdate *indexes)
{
	TM_FailureData failure;
	LockTupleMode lock;

	return table_tuple_update(table, tid, row, GetCurrentCommandId(true), InvalidSnapshot, InvalidSnapshot,
							  true, &failure, &lock, indexes);
}

/* Index entries of the new version, where the update was not heap-only. */
static inline void
update_indexes(ResultRelInfo *result_rel, TupleTableSlot *row, EState *estate, IndexesToUpdate indexes)
{
#if PG_VERSION_NUM >= 160000
	if (indexes != TU_None)
		list_free(ExecInsertIndexTuples(result_rel, row, estate, true, false, NULL, NIL,
										indexes == TU_Summarizing));
#else
	if (indexes)
		list_free(ExecInsertIndexTuples(result_rel, row, estate, true, false, NULL, NIL));
#endif
}

/* May a role call a function? */
static inline AclResult
may_execute(Oid function, Oid role)
{
#if PG_VERSION_NUM >= 160000
	return object_aclcheck(ProcedureRelationId, function, role, ACL_EXECUTE);
#else
	return pg_proc_aclcheck(function, role, ACL_EXECUTE);
#endif
}

/* A catalog's row that is to be changed, to be released; locked against updates in place where minor versions do so. */
static inline HeapTuple
find_row_to_change(int cache, Datum key)
{
#ifdef InplaceUpdateTupleLock
	return SearchSysCacheLocked1(cache, key);
#else
	return SearchSysCache1(cache, key);
#endif
}

static inline void
release_row_to_change(Relation catalog, ItemPointer tid)
{
#ifdef InplaceUpdateTupleLock
	UnlockTuple(catalog, tid, InplaceUpdateTupleLock);
#endif
}

/* Give this transaction something in the log to commit, though it changed nothing. */
static inline void
write_log_mark(void)
{
#if PG_VERSION_NUM >= 170000
	(void) LogLogicalMessage("idem", "", 0, true, false);
#else
	(void) LogLogicalMessage("idem", "", 0, true);
#endif
}

/* Let a set-returning function put its rows into fcinfo->resultinfo's tuplestore. */
static inline void
materialize_result(FunctionCallInfo fcinfo)
{
#if PG_VERSION_NUM >= 160000
	InitMaterializedSRF(fcinfo, 0);
#else
	SetSingleFuncCall(fcinfo, 0);
#endif
}

/* The same where the rows are single values. */
static inline void
materialize_values(FunctionCallInfo fcinfo)
{
#if PG_VERSION_NUM >= 160000
	InitMaterializedSRF(fcinfo, MAT_SRF_USE_EXPECTED_DESC);
#else
	SetSingleFuncCall(fcinfo, SRF_SINGLE_USE_EXPECTED);
#endif
}

#endif							/* IDEM_COMPAT_H */
