/*
 * guard.c: the repeat guard.
 *
 * A model that lost its memory previews again, and gets a fresh fingerprint or makes up a new key for what it has done
 * already.  Where a scope sets the guard, each grant leaves a row in idem_peer that names its operation under a guard
 * key, which is made from what the operation is about; so equal operations are peers, by whichever door they came.  A
 * grant looks at all of them: one that is under way, unknown, or was done within the guard's time makes it a REPEAT.
 *
 * How two that come at once get one grant (test/model/guard.pml searches this for a way around it)
 *	1. The grant inserts its row speculatively: a new one for each grant, also where its operation continues.
 *	2. It reads which lists are on record by then, and computes the guard keys under each.
 *	3. It scans the rows under these, committed or not, but for its own operation's.
 *	4. A row that stands, whose operation guards: withdraw, REPEAT.
 *	5. A confirmed row of an open transaction: withdraw, REPEAT.
 *	6. An undecided row of a smaller operation key: withdraw, wait for it, begin again.
 *	7. One of a larger key: keep one's own, wait for it, and look again.
 *	8. Nothing left: confirm the row; then the claim is placed.
 * Both place before they look, so one of two sees the other; who holds an undecided row waits for larger keys alone, so
 * there is no cycle.  A repeat that a person has confirmed does 1 and 8 only.
 *
 * Rows whose operation guards no more, whatever may come, are deleted as it fails, by the next grant that meets them, or
 * else with their operation: so a look costs as many look-ups as there are equal operations not yet looked at, and the first that
 * guards ends it.  A released operation may still be found to have been done (idem_reconcile): its row stays, unless
 * there are very many such.
 */
#include "compat.h"

#include "miscadmin.h"
#include "utils/timestamp.h"

#include "content.h"
#include "guard.h"
#include "lists.h"
#include "peer.h"
#include "status.h"

#define SPENT_MAX 1000			/* rows that one grant deletes, at most */
#define RELEASED_MAX 20			/* rows of released operations that are kept, at most */

/* What a look through the peers of an operation has found. */
typedef struct Look
{
	Span		subject;
	const pg_uuid_t *own;		/* the operation that looks */
	int64		guard;			/* how long a finished operation guards, in microseconds */
	bool		found;			/* a peer that decides, in peer and answer */
	Peer		peer;
	Answer		answer;			/* what is known of its operation */
	int			nreleased;
	int			nspent;
	ItemPointerData spent[SPENT_MAX];	/* rows of operations that guard no more */
} Look;

/* Does an operation still forbid a repeat? */
static bool
still_guards(const Answer *operation, int64 guard)
{
	switch (operation->outcome)
	{
		case OUTCOME_IN_FLIGHT:
		case OUTCOME_RECONCILE:
			return true;
		case OUTCOME_RETRYABLE:
			/* released leaves it free; a lease that is over does not end what it was for */
			return operation->finished_at == DT_NOEND;
		case OUTCOME_DONE:
			return GetCurrentTimestamp() < time_after(operation->finished_at, guard);
		default:
			return false;
	}
}

/* The operation that was just looked up does not guard: will it never? */
static bool
is_spent(Look *look)
{
	return look->answer.outcome != OUTCOME_RETRYABLE || ++look->nreleased > RELEASED_MAX;
}

static bool
look_at(const Peer *peer, void *arg)
{
	Look	   *look = arg;

	CHECK_FOR_INTERRUPTS();
	look->peer = *peer;
	if (peer->state == PEER_STANDS)
	{
		claim_look_up(&peer->operation, look->subject, DT_NOEND, &look->answer);
		look->found = still_guards(&look->answer, look->guard);
		if (!look->found && is_spent(look) && look->nspent < SPENT_MAX)
			look->spent[look->nspent++] = peer->tid;
	}
	else
		look->found = true;
	return !look->found;
}

/*
 * The operation that these parameters are by their content: it may have been granted before its scope had a guard, and
 * so without a row.
 */
static void
look_at_content(const pg_uuid_t *key, Look *look)
{
	if (memcmp(key, look->own, UUID_LEN) == 0)
		return;
	look->peer.state = PEER_STANDS;
	look->peer.operation = *key;
	claim_look_up(key, look->subject, DT_NOEND, &look->answer);
	look->found = still_guards(&look->answer, look->guard);
}

/* Look through the peers under all lists on record; true where one was found that decides. */
static bool
look_through(Store *peers, const ListsOnRecord *lists, Span scope, Jsonb *params, Look *look)
{
	Content		content;
	pg_uuid_t	guard;

	look->found = false;
	look->nreleased = 0;
	look->nspent = 0;
	for (int i = 0; i < lists->count && !look->found; i++)
		if (content_name(scope, look->subject, params, lists->lists[i].part, &content, &guard) &&
			peer_visit(peers, &guard, look->own, look_at, look))
			look_at_content(&content.key, look);
	return look->found;
}

/* The answer that names the earlier operation. */
static void
answer_repeat(const Look *look, Span scope, Answer *answer)
{
	if (look->peer.state == PEER_STANDS)
		*answer = look->answer;
	else
		answer_init(answer, OUTCOME_REPEAT, scope, look->subject);
	if (answer->outcome != OUTCOME_DONE)
	{
		/* a time and a result say that it happened, to those who read them */
		answer->finished_at = answer->retained_until = DT_NOEND;
		answer->result = NULL;
		answer->result_ref = (Span) {NULL, 0};
	}
	answer->outcome = OUTCOME_REPEAT;
	answer->replayed = false;
	answer->has_key = true;
	answer->key = look->peer.operation;
	answer->scope = scope;
	answer->subject = look->subject;
	/* of one that stands, who is about to change it */
	if (look->peer.state == PEER_OPEN)
		answer->rival = look->peer.rival;
}

/* A row is undecided: is it for this one to wait for that with its own row standing? */
static bool
waits_for(const Look *look)
{
	return memcmp(&look->peer.operation, look->own, UUID_LEN) > 0;
}

/* Steps 3 to 8; the row has been placed. */
static Step
decide(Store *peers, Request *request, const ListsOnRecord *lists, Look *look, Answer *answer)
{
	while (look_through(peers, lists, request->scope, request->params, look))
	{
		if (look->peer.state != PEER_DECIDING || !waits_for(look))
		{
			store_withdraw(peers);
			if (look->peer.state == PEER_DECIDING)
			{
				store_await_insertion(look->peer.rival, look->peer.speculation);
				return STEP_AGAIN;
			}
			answer_repeat(look, request->scope, answer);
			return STEP_ANSWERED;
		}
		store_await_insertion(look->peer.rival, look->peer.speculation);
	}
	store_confirm(peers);
	for (int i = 0; i < look->nspent; i++)
		(void) peer_delete(peers, &look->spent[i]);
	return STEP_ON;
}

/* Place the grant's row, and decide. */
static Step
place_and_look(Store *peers, Request *request, const pg_uuid_t *guard, Answer *answer)
{
	Look		look = {.subject = request->subject, .own = &request->key, .guard = request->policy->repeat_guard};
	ListsOnRecord lists;

	if (!peer_place(peers, guard, &request->key, &request->peer))
		return STEP_AGAIN;
	request->has_peer = true;
	if (request->confirmed_repeat)
	{
		store_confirm(peers);
		return STEP_ON;
	}
	lists_now(request->scope, &lists);
	request->policy = policy_of(request->scope.data, request->scope.length);
	return decide(peers, request, &lists, &look, answer);
}

Step
guard_pass(Request *request, Answer *answer)
{
	const MaterialPart *part;
	Content		content;
	pg_uuid_t	guard;
	Store		peers;
	Step		step;

	request->has_peer = false;
	if (request->policy->repeat_guard == 0)
		return STEP_ON;
	if (!policy_version(request->scope.data, request->scope.length, request->version, &part) ||
		!content_name(request->scope, request->subject, request->params, part, &content, &guard))
		return STEP_ON;
	peer_open(&peers, RowExclusiveLock);
	step = place_and_look(&peers, request, &guard, answer);
	if (step != STEP_ON)
		request->has_peer = false;
	store_close(&peers);
	return step;
}

void
guard_withdraw(Request *request)
{
	Store		peers;

	if (!request->has_peer)
		return;
	peer_open(&peers, RowExclusiveLock);
	(void) peer_delete(&peers, &request->peer);
	store_close(&peers);
	request->has_peer = false;
}

bool
guard_look(Span scope, Span subject, Jsonb *params, int64 guard, Answer *answer)
{
	static const pg_uuid_t none = {{0}};
	Look		look = {.subject = subject, .own = &none, .guard = guard};
	ListsOnRecord lists;
	Store		peers;
	bool		found;

	if (guard == 0)
		return false;
	policy_lists(scope, &lists);
	peer_open(&peers, AccessShareLock);
	while ((found = look_through(&peers, &lists, scope, params, &look)) && look.peer.state == PEER_DECIDING)
		store_await_insertion(look.peer.rival, look.peer.speculation);
	store_close(&peers);
	if (found)
		answer_repeat(&look, scope, answer);
	return found;
}
