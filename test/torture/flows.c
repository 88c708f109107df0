/*
 * flows.c: what clients do, well and badly.
 *
 * They are honest where the promises want it: an effect is sent only after a grant's COMMIT was acknowledged, a
 * release says that nothing happened only where that is certain, a terminal failure comes only after a refusal that
 * stands.  All else is as careless as callers are: they stall, come late, forget, repeat, roll back, ask with wrong
 * parameters, and call with tokens that they do not hold.
 */
#include <inttypes.h>
#include <string.h>

#include "client.h"

#define LEASE 1500000			/* microseconds: in_flight_ttl of the scopes, in inside.sql */

/* Drop what is held the longest where there is no room: its holder has forgotten it. */
static void
keep(Client *client, const Claim *claim)
{
	if (client->nheld == MAX_HELD)
		memmove(&client->held[0], &client->held[1], sizeof(Claim) * --client->nheld);
	client->held[client->nheld++] = *claim;
}

static void
sometimes_nap(Client *client)
{
	Random	   *random = &client->random;

	if (random_percent(random, 4))
		nap_ms(random_below(random, 2500));
	else if (random_percent(random, 25))
		nap_ms(random_below(random, 40));
}

static bool
is_effect_scope(Scope scope)
{
	return scope <= SCOPE_GUARDED;
}

static bool
deduplicates(const Claim *claim)
{
	return claim->op.scope == SCOPE_IDEMPOTENT;
}

/* An operation that has not come to its end is asked for again. */
static void
remember(Client *client, const Op *op, const Answer *answer)
{
	if (answer->lost || client_is(answer, "IN_FLIGHT") || client_is(answer, "RECONCILE") || client_is(answer, "ACQUIRED"))
		client->open[client->nopen++ % MAX_OPEN] = *op;
}

/*
 * Choose an operation: one of those that this client knows to be open, or one from the desk, often the newest, for
 * which everybody rushes.
 */
static bool
choose(Client *client, Op *op)
{
	uint64_t	newest = atomic_load(&shared->published);
	uint64_t	first = atomic_load(&shared->first_op);
	uint64_t	back = random_percent(&client->random, 40) ? 0 :
		random_below(&client->random, random_percent(&client->random, 25) ? 400 : 50);

	if (client->nopen > 0 && random_percent(&client->random, 30))
	{
		*op = client->open[random_below(&client->random, client->nopen < MAX_OPEN ? client->nopen : MAX_OPEN)];
		return true;
	}
	if (newest < first + back)
		return false;
	*op = shared->desk[(newest - back) % DESK_SIZE];
	return op->number == newest - back;
}

/* ----- the end of a grant ----- */

static void
repeat_finish(Client *client, const Claim *claim, const char *name, const char *token)
{
	if (random_percent(&client->random, 12))
		(void) client_finish(client, name, claim, token, "again");
	if (random_percent(&client->random, 12))
		(void) client_finish(client, random_percent(&client->random, 50) ? "commit" : "fail", claim, "other", "other");
}

/* Finish outside a block, or in one that is rolled back first; true where the claim need not be thought of again. */
static bool
finish(Client *client, const Claim *claim, const char *name, const char *token)
{
	Answer		answer;

	if (random_percent(&client->random, 8) && client_begin(client, false))
	{
		(void) client_finish(client, name, claim, token, "holder");
		(void) client_end(client, false);
	}
	if (!client_connect(client))
		return false;
	answer = client_finish(client, name, claim, token, "holder");
	if (answer.lost || answer.error)
		return false;
	if (client_is(&answer, "OK"))
		repeat_finish(client, claim, name, token);
	return true;
}

/* Nothing happened, for certain; and nothing may, whether or not the answer comes. */
static bool
give_up(Client *client, Claim *claim)
{
	char		reason[64];

	claim->effect = EFFECT_LATE;
	if (random_percent(&client->random, 60))
		return finish(client, claim, "release", "");
	snprintf(reason, sizeof(reason), "r%d.%" PRIu64, client->history.client, client->seq);
	return finish(client, claim, "fail_retryable", reason);
}

static bool
tend_declined(Client *client, Claim *claim)
{
	char		reason[64];

	if (!deduplicates(claim) && random_percent(&client->random, 40))
		return give_up(client, claim);
	snprintf(reason, sizeof(reason), "f%d.%" PRIu64, client->history.client, client->seq);
	return finish(client, claim, "fail", reason);
}

/* The reply of the downstream did not come. */
static bool
tend_unknown(Client *client, Claim *claim)
{
	switch (claim->op.scope)
	{
		case SCOPE_IDEMPOTENT:
			client_send(client, claim, false);
			return false;
		case SCOPE_QUERYABLE:
			client_look_up(client, claim);
			return false;
		default:
			return true;		/* nobody knows: an operator will find out */
	}
}

/* Go on with a claim; true where it need not be thought of again. */
static bool
tend(Client *client, Claim *claim)
{
	switch (claim->effect)
	{
		case EFFECT_NOT_SENT:
			if (random_percent(&client->random, 10))
				return give_up(client, claim);
			client_send(client, claim, random_percent(&client->random, 8));
			return false;
		case EFFECT_DONE:
			return finish(client, claim, "commit", claim->token);
		case EFFECT_DECLINED:
			return tend_declined(client, claim);
		case EFFECT_LATE:
			return random_percent(&client->random, 50) ? true : give_up(client, claim);
		case EFFECT_UNKNOWN:
			return tend_unknown(client, claim);
	}
	return true;
}

static void
renew(Client *client, Claim *claim)
{
	int64_t		asked;
	Answer		answer;

	if (!client_connect(client))
		return;
	asked = now_us();
	answer = client_finish(client, "renew", claim, "", "holder");

	/* the scope's own lease, counted from no later than the server does */
	if (client_is(&answer, "OK") && answer.fate == FATE_COMMITTED && claim->lease < asked + LEASE)
		claim->lease = asked + LEASE;
}

static void
take_up(Client *client, Claim *claim)
{
	Random	   *random = &client->random;

	if (random_percent(random, 6))
		return;					/* forgotten */
	if (random_percent(random, 10))
		renew(client, claim);
	if (random_percent(random, 10))
	{
		keep(client, claim);	/* and turn to something else */
		return;
	}
	if (random_percent(random, 8))
		nap_ms(random_below(random, 2600));
	for (int i = 0; i < 3; i++)
	{
		if (tend(client, claim))
			return;
		sometimes_nap(client);
	}
	keep(client, claim);
}

static void
go_on_with_held(Client *client)
{
	int			i = (int) random_below(&client->random, client->nheld);
	Claim		claim = client->held[i];

	client->held[i] = client->held[--client->nheld];
	if (!tend(client, &claim) && now_us() - claim.since < 20000000)
		keep(client, &claim);
}

/* ----- two transactions: the effect is outside ----- */

static void
claim_of(Claim *claim, const Op *op, const Answer *answer)
{
	memset(claim, 0, sizeof(*claim));
	claim->op = *op;
	memcpy(claim->key, answer->key, sizeof(claim->key));
	memcpy(claim->owner, answer->owner, sizeof(claim->owner));
	claim->attempt = answer->attempt;
	claim->lease = answer->lease;
	claim->since = now_us();
}

/* A grant taken and rolled back to a savepoint was never there. */
static bool
acquire_and_take_back(Client *client, const Op *op)
{
	char		owner[UUID_TEXT];
	Answer		answer;

	random_uuid(&client->random, owner);
	if (!client_run_sql(client, "SAVEPOINT s", 0, NULL))
		return false;
	answer = client_acquire(client, op, owner, 0, "honest");
	if (answer.lost || !client_run_sql(client, "ROLLBACK TO s", 0, NULL))
		return false;
	client_undone(client, answer.seq);
	return true;
}

/* Acquire within a block; the fate is that of its end. */
static Answer
acquire_in_block(Client *client, const Op *op, const char *owner)
{
	Answer		answer = {.lost = true};
	Random	   *random = &client->random;
	bool		commit = !random_percent(random, 12);
	Claim		claim;

	if (!client_begin(client, false))
		return answer;
	if (random_percent(random, 30) && !acquire_and_take_back(client, op))
	{
		(void) client_end(client, false);
		return answer;
	}
	answer = client_acquire(client, op, owner, (int) random_below(random, 200), "honest");
	sometimes_nap(client);
	claim_of(&claim, op, &answer);
	if (client_is(&answer, "ACQUIRED") && random_percent(random, 6))
	{
		(void) client_finish(client, "release", &claim, "", "holder");
		answer.text[0] = '\0';
	}
	if (!answer.error && random_percent(random, 10))
		answer.fate = client_prepare(client, commit, (int) random_below(random, 400));
	else
		answer.fate = client_end(client, commit && !answer.error);
	return answer;
}

static void
two_transactions(Client *client, const Op *op)
{
	char		fresh[UUID_TEXT];
	bool		brings_owner = !random_percent(&client->random, 15);
	const char *owner = brings_owner ? fresh : NULL;
	Answer		answer;
	Claim		claim;

	random_uuid(&client->random, fresh);
	if (random_percent(&client->random, 30))
		answer = acquire_in_block(client, op, owner);
	else
		answer = client_acquire(client, op, owner,
								random_percent(&client->random, 30) ? (int) random_below(&client->random, 500) : 0, "honest");
	/* the answer was lost: who brought a token asks again */
	for (int i = 0; brings_owner && (answer.lost || answer.fate == FATE_UNKNOWN) && i < 5 && client_connect(client); i++)
		answer = client_acquire(client, op, owner, 0, "honest");
	remember(client, op, &answer);
	if (!client_is(&answer, "ACQUIRED") || answer.fate != FATE_COMMITTED)
		return;
	claim_of(&claim, op, &answer);
	take_up(client, &claim);
}

/* ----- one transaction: the effect is rows of our own ----- */

static bool
write_row(Client *client, const Op *op, const char *token)
{
	char		number[24];
	const char *values[2] = {number, token};

	snprintf(number, sizeof(number), "%" PRIu64, op->number);
	return client_run_sql(client, "INSERT INTO torture.ledger VALUES ($1, $2)", 2, values);
}

/* The granted work, within the block; true where it is to be committed. */
static bool
work(Client *client, const Claim *claim)
{
	Random	   *random = &client->random;
	uint64_t	choice = random_below(random, 100);
	char		token[64];
	Answer		answer;

	snprintf(token, sizeof(token), "l%d.%" PRIu64, client->history.client, client->seq);
	if (choice < 3)
		return true;			/* its end is forgotten: the commit must be refused */
	if (choice < 15)
	{
		if (!client_run_sql(client, "SAVEPOINT w", 0, NULL) || !write_row(client, &claim->op, token) ||
			!client_run_sql(client, "ROLLBACK TO w", 0, NULL))
			return false;
		answer = client_finish(client, choice < 8 ? "fail" : choice < 12 ? "fail_retryable" : "release", claim,
							   choice < 12 ? token : "", "holder");
		return client_is(&answer, "OK");
	}
	if (!write_row(client, &claim->op, token))
		return false;
	sometimes_nap(client);
	if (choice < 22)
	{
		/* a commit that is rolled back to a savepoint leaves the claim open */
		if (!client_run_sql(client, "SAVEPOINT c", 0, NULL))
			return false;
		answer = client_finish(client, "commit", claim, "undone", "holder");
		if (answer.error || answer.lost || !client_run_sql(client, "ROLLBACK TO c", 0, NULL))
			return false;
		client_undone(client, answer.seq);
	}
	answer = client_finish(client, "commit", claim, token, "holder");
	if (client_is(&answer, "OK") && random_percent(random, 5))
		(void) client_finish(client, "commit", claim, token, "again");
	return client_is(&answer, "OK") && !random_percent(random, 8);
}

static void
one_transaction(Client *client, const Op *op)
{
	char		owner[UUID_TEXT];
	bool		good = true;
	Answer		answer;
	Claim		claim;

	random_uuid(&client->random, owner);
	if (!client_begin(client, op->scope != SCOPE_ASYNC))
		return;
	if (random_percent(&client->random, 15))
		good = acquire_and_take_back(client, op);
	if (good)
	{
		answer = client_acquire(client, op, random_percent(&client->random, 80) ? owner : NULL,
								(int) random_below(&client->random, 300), "honest");
		claim_of(&claim, op, &answer);
		good = client_is(&answer, "ACQUIRED") && work(client, &claim);
	}
	if (good && random_percent(&client->random, 5))
		(void) client_prepare(client, true, (int) random_below(&client->random, 200));
	else
		(void) client_end(client, good);
}

static void
execute(Client *client, const Op *op)
{
	if (op->scope == SCOPE_ASYNC)
		(void) client_execute(client, op);
	else if (client_begin(client, true))
	{
		Answer		answer = client_execute(client, op);

		(void) client_end(client, !answer.error && !random_percent(&client->random, 8));
	}
}

/* ----- what nobody should do ----- */

static void
ask_wrongly(Client *client, const Op *op)
{
	static const char *const wrongs[] = {"subject", "params", "scope"};

	if (op->door == BY_FINGERPRINT)
		(void) client_acquire(client, op, NULL, 0, wrongs[random_below(&client->random, 3)]);
}

static void
call_without_grant(Client *client, const Op *op)
{
	static const char *const names[] = {"commit", "fail", "fail_retryable", "release", "renew"};
	Claim		claim = {.op = *op};

	memcpy(claim.key, op->key, sizeof(claim.key));
	random_uuid(&client->random, claim.owner);
	(void) client_finish(client, names[random_below(&client->random, 5)], &claim, "stray", "stray");
}

/* ----- the choice ----- */

/* A new operation, or one that somebody has forgotten to have previewed before. */
static void
preview(Client *client)
{
	Random	   *random = &client->random;
	Scope		scope = (Scope) random_below(random, SCOPE_COUNT);
	int			expire = random_percent(random, 15) ? 200 + (int) random_below(random, 2500) : 0;
	uint64_t	item = 0;
	Op			op;

	if (random_percent(random, 15) && choose(client, &op) && op.scope == SCOPE_GUARDED)
	{
		scope = SCOPE_GUARDED;
		item = op.item;
	}
	(void) client_preview(client, scope, item, expire);
}

void
flow(Client *client)
{
	uint64_t	choice = random_below(&client->random, 100);
	Op			op;

	if (client->nheld > 0 && random_percent(&client->random, 30))
		go_on_with_held(client);
	else if (choice < 14 || !choose(client, &op))
		preview(client);
	else if (choice < 76)
	{
		if (is_effect_scope(op.scope))
			two_transactions(client, &op);
		else if (random_percent(&client->random, 35))
			execute(client, &op);
		else
			one_transaction(client, &op);
	}
	else if (choice < 85)
		(void) client_status(client, &op);
	else if (choice < 91)
		ask_wrongly(client, &op);
	else if (choice < 96)
		call_without_grant(client, &op);
	else
		nap_ms(random_below(&client->random, 60));
	nap_ms(random_below(&client->random, 4));
}
