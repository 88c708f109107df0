/*
 * content.c: what an operation is by its content, whichever lists that is read under.
 *
 * A content-named call's key is made from what is material in its parameters, so it changes with the scope's lists;
 * an operation that began under one pair of lists is the same operation under the next.  Hence a call looks under all
 * lists on record before it chooses its key, places its claim, and then looks again, under the lists that are on record
 * by then: of two that chose different keys for one content both place before they look, so one of them sees the other.
 * test/model/content.pml searches this for a way around it.
 */
#include "compat.h"

#include "lib/stringinfo.h"

#include "content.h"
#include "key.h"
#include "lists.h"
#include "status.h"
#include "xact.h"

bool
content_name(Span scope, Span subject, Jsonb *params, const MaterialPart *part, Content *content, pg_uuid_t *guard)
{
	StringInfoData canonical;
	bool		material;

	initStringInfo(&canonical);
	material = canonical_append(&canonical, params, part);
	if (material)
	{
		key_direct(DIRECT_CONTENT, scope.data, scope.length, subject.data, subject.length,
				   canonical.data, canonical.len, &content->key);
		if (guard != NULL)
			key_guard(scope.data, scope.length, subject.data, subject.length, canonical.data, canonical.len, guard);
		sha256(canonical.data, canonical.len, content->hash);
	}
	pfree(canonical.data);
	return material;
}

/* Has the operation of a key begun, and not lapsed: in this transaction, in another one, or on record? */
static bool
is_known(const pg_uuid_t *key, Span subject)
{
	ItemPointerData tid;
	Answer		answer;

	if (xact_place(key, &tid) != PLACE_NONE)
		return true;
	claim_look_up(key, subject, DT_NOEND, &answer);
	return answer.outcome != OUTCOME_NONE && answer.outcome != OUTCOME_UNKNOWN;
}

/*
 * The fast table, held over all looks so that none of them is refused it; false where it cannot be had at once.  On a
 * standby there is nothing in it.
 */
static bool
hold_fast(Store *fast, bool *held)
{
	*held = !TransactionStartedDuringRecovery() && store_open(fast, TABLE_FAST, AccessShareLock, true);
	return *held || TransactionStartedDuringRecovery();
}

/* A claim under other lists may stand in the fast table, and that cannot be read: here a miss would decide. */
static void
refuse_to_guess(void)
{
	ereport(ERROR,
			(errcode(ERRCODE_T_R_SERIALIZATION_FAILURE),
			 errmsg("could not look for a claim made under the scope's earlier lists"),
			 errdetail("The fast table is locked."),
			 errhint("Run the transaction again.")));
}

static void
take_name(Request *request, const Lists *lists, const Content *content)
{
	request->version = lists->version;
	request->key = content->key;
	memcpy(request->param_hash, content->hash, SHA256_LENGTH);
}

/* Choose the first lists under which the operation is known; false where it is under none. */
static bool
choose_known(Request *request, const ListsOnRecord *lists)
{
	Content		content;
	Store		fast;
	bool		held;
	bool		can_tell = hold_fast(&fast, &held);
	bool		known = false;

	for (int i = 0; i < lists->count && !known; i++)
	{
		known = content_name(request->scope, request->subject, request->params, lists->lists[i].part, &content, NULL) &&
			is_known(&content.key, request->subject);
		if (known)
			take_name(request, &lists->lists[i], &content);
	}
	if (held)
		store_close(&fast);
	if (!known && !can_tell)
		refuse_to_guess();
	return known;
}

void
content_choose(Request *request)
{
	ListsOnRecord lists;
	Content		content;

	policy_lists(request->scope, &lists);
	request->lists_in_force = lists.in_force;
	if (lists.count > 1 && choose_known(request, &lists))
		return;
	if (!content_name(request->scope, request->subject, request->params, lists.lists[0].part, &content, NULL))
		request_refuse_immaterial();
	take_name(request, &lists.lists[0], &content);
}

static void
refuse_other_lists(void)
{
	ereport(ERROR,
			(errcode(ERRCODE_T_R_SERIALIZATION_FAILURE),
			 errmsg("the scope's lists were replaced meanwhile"),
			 errhint("Run the transaction again.")));
}

/* Is the operation known under lists by which it has another key? */
static bool
is_known_otherwise(Request *request, const ListsOnRecord *lists)
{
	Content		content;
	Store		fast;
	bool		held;
	bool		known = false;

	if (!hold_fast(&fast, &held))
		refuse_to_guess();
	for (int i = 0; i < lists->count && !known; i++)
		known = content_name(request->scope, request->subject, request->params, lists->lists[i].part, &content, NULL) &&
			memcmp(&content.key, &request->key, UUID_LEN) != 0 &&
			is_known(&content.key, request->subject);
	if (held)
		store_close(&fast);
	return known;
}

void
content_require_alone(Request *request)
{
	ListsOnRecord lists;

	lists_now(request->scope, &lists);
	request->policy = policy_of(request->scope.data, request->scope.length);
	if (lists.in_force != request->lists_in_force ||
		(lists.count > 1 && is_known_otherwise(request, &lists)))
		refuse_other_lists();
}
