/*
 * state.c: the transition table.
 *
 * One row for each thing that can happen; the first row that fits decides, and a row fits where the state and
 * the event are its own, all its facts hold, and none of those it excludes.  A lapsed record that is finished
 * or released counts as none; one in flight never lapses.
 */
#include "state.h"

/* sets of states, so that a row can serve several */
#define NONE		(1 << 0)
#define IN_FLIGHT	(1 << 1)
#define DONE		(1 << 2)
#define FAILED		(1 << 3)
#define RELEASED	(1 << 4)
#define FINISHED	(DONE | FAILED)
#define ANY			(NONE | IN_FLIGHT | FINISHED | RELEASED)

/* sets of events */
#define ON(event)	(1 << EVENT_##event)
#define BY_HOLDER	(ON(COMMIT) | ON(FAIL) | ON(FAIL_RETRYABLE) | ON(RELEASE) | ON(RENEW))
#define BY_OPERATOR (ON(VERDICT_DONE) | ON(VERDICT_FAILED) | ON(VERDICT_RETRY))

#define LEASE_OVER	FACT_LEASE_OVER
#define TAKEABLE	(FACT_LEASE_OVER | FACT_DEDUPLICATES)
#define OWNER		FACT_OWNER
#define SAME		FACT_SAME_RESULT

#define GIVES(outcome) OUTCOME_##outcome, ACK_OK
#define ANSWERS(ack) OUTCOME_NONE, ACK_##ack

typedef struct Rule
{
	int			events;
	int			states;
	unsigned	with;			/* facts that must hold */
	unsigned	without;		/* facts that must not */
	Action		action;
	State		next;			/* STATE_NONE: as before */
	Outcome		outcome;
	Ack			ack;
} Rule;

/* *INDENT-OFF* */
static const Rule rules[] = {
	/* acquire */
	{ON(ACQUIRE), NONE, FACT_EXPIRED, 0, ACTION_KEEP, STATE_NONE, GIVES(EXPIRED)},
	{ON(ACQUIRE), NONE, OWNER, 0, ACTION_REFUSE_TOKEN, STATE_NONE, GIVES(EXPIRED)},
	{ON(ACQUIRE), NONE, 0, 0, ACTION_START, STATE_IN_FLIGHT, GIVES(ACQUIRED)},
	{ON(ACQUIRE), IN_FLIGHT, OWNER, LEASE_OVER, ACTION_KEEP, STATE_NONE, GIVES(ACQUIRED)},
	{ON(ACQUIRE), IN_FLIGHT, 0, LEASE_OVER, ACTION_KEEP, STATE_NONE, GIVES(IN_FLIGHT)},
	{ON(ACQUIRE), IN_FLIGHT, TAKEABLE | OWNER, 0, ACTION_REFUSE_TOKEN, STATE_NONE, GIVES(IN_FLIGHT)},
	{ON(ACQUIRE), IN_FLIGHT, TAKEABLE, 0, ACTION_TAKE_OVER, STATE_IN_FLIGHT, GIVES(ACQUIRED)},
	{ON(ACQUIRE), IN_FLIGHT, 0, 0, ACTION_KEEP, STATE_NONE, GIVES(RECONCILE)},
	{ON(ACQUIRE), DONE, 0, 0, ACTION_KEEP, STATE_NONE, GIVES(DONE)},
	{ON(ACQUIRE), FAILED, 0, 0, ACTION_KEEP, STATE_NONE, GIVES(FAILED)},
	{ON(ACQUIRE), RELEASED, OWNER, 0, ACTION_REFUSE_TOKEN, STATE_NONE, GIVES(RETRYABLE)},
	{ON(ACQUIRE), RELEASED, 0, 0, ACTION_CONTINUE, STATE_IN_FLIGHT, GIVES(ACQUIRED)},

	/* status: what an acquire without wait and token would say, but that it grants nothing */
	{ON(STATUS), NONE, FACT_EXPIRED, 0, ACTION_KEEP, STATE_NONE, GIVES(EXPIRED)},
	{ON(STATUS), NONE, 0, 0, ACTION_KEEP, STATE_NONE, GIVES(NONE)},
	{ON(STATUS), IN_FLIGHT, 0, LEASE_OVER, ACTION_KEEP, STATE_NONE, GIVES(IN_FLIGHT)},
	{ON(STATUS), IN_FLIGHT, TAKEABLE, 0, ACTION_KEEP, STATE_NONE, GIVES(RETRYABLE)},
	{ON(STATUS), IN_FLIGHT, 0, 0, ACTION_KEEP, STATE_NONE, GIVES(RECONCILE)},
	{ON(STATUS), DONE, 0, 0, ACTION_KEEP, STATE_NONE, GIVES(DONE)},
	{ON(STATUS), FAILED, 0, 0, ACTION_KEEP, STATE_NONE, GIVES(FAILED)},
	{ON(STATUS), RELEASED, 0, 0, ACTION_KEEP, STATE_NONE, GIVES(RETRYABLE)},

	/* the holder's calls; who does not hold the grant changes nothing */
	{BY_HOLDER, NONE, 0, 0, ACTION_KEEP, STATE_NONE, ANSWERS(NONE)},
	{BY_HOLDER, ANY, 0, OWNER, ACTION_KEEP, STATE_NONE, ANSWERS(NOT_OWNER)},
	{ON(COMMIT), IN_FLIGHT, 0, 0, ACTION_FINISH, STATE_DONE, ANSWERS(OK)},
	{ON(FAIL), IN_FLIGHT, 0, 0, ACTION_FINISH, STATE_FAILED, ANSWERS(OK)},
	{ON(FAIL_RETRYABLE), IN_FLIGHT, 0, 0, ACTION_FINISH, STATE_RELEASED, ANSWERS(OK)},
	{ON(RELEASE), IN_FLIGHT, 0, 0, ACTION_RELEASE, STATE_RELEASED, ANSWERS(OK)},
	{ON(RENEW), IN_FLIGHT, 0, 0, ACTION_EXTEND, STATE_IN_FLIGHT, ANSWERS(OK)},
	{ON(COMMIT), DONE, SAME, 0, ACTION_KEEP, STATE_NONE, ANSWERS(OK)},
	{ON(FAIL), FAILED, SAME, 0, ACTION_KEEP, STATE_NONE, ANSWERS(OK)},
	{BY_HOLDER, FINISHED, 0, 0, ACTION_KEEP, STATE_NONE, ANSWERS(ALREADY)},
	{ON(FAIL_RETRYABLE) | ON(RELEASE), RELEASED, SAME, 0, ACTION_KEEP, STATE_NONE, ANSWERS(OK)},
	{BY_HOLDER, RELEASED, 0, 0, ACTION_KEEP, STATE_NONE, ANSWERS(NOT_OWNER)},

	/* an operator's verdict */
	{BY_OPERATOR, NONE, 0, 0, ACTION_KEEP, STATE_NONE, ANSWERS(NONE)},
	{BY_OPERATOR, IN_FLIGHT, 0, LEASE_OVER | FACT_FORCED, ACTION_REFUSE_VERDICT, STATE_NONE, ANSWERS(NONE)},
	{ON(VERDICT_DONE), IN_FLIGHT | RELEASED, 0, 0, ACTION_FINISH, STATE_DONE, ANSWERS(OK)},
	{ON(VERDICT_FAILED), IN_FLIGHT | RELEASED, 0, 0, ACTION_FINISH, STATE_FAILED, ANSWERS(OK)},
	{ON(VERDICT_RETRY), IN_FLIGHT | RELEASED, 0, 0, ACTION_FINISH, STATE_RELEASED, ANSWERS(OK)},
	{ON(VERDICT_DONE), DONE, SAME, 0, ACTION_KEEP, STATE_NONE, ANSWERS(OK)},
	{ON(VERDICT_FAILED), FAILED, SAME, 0, ACTION_KEEP, STATE_NONE, ANSWERS(OK)},
	{BY_OPERATOR, FINISHED, 0, 0, ACTION_KEEP, STATE_NONE, ANSWERS(ALREADY)},

	/* purge: what is in flight stays, whatever its lease */
	{ON(PURGE), FINISHED | RELEASED, FACT_LAPSED, 0, ACTION_DELETE, STATE_NONE, ANSWERS(OK)},
	{ON(PURGE), ANY, 0, 0, ACTION_KEEP, STATE_NONE, ANSWERS(NONE)},
};
/* *INDENT-ON* */

static int
set_of(State state)
{
	switch (state)
	{
		case STATE_NONE:
			return NONE;
		case STATE_IN_FLIGHT:
			return IN_FLIGHT;
		case STATE_DONE:
			return DONE;
		case STATE_FAILED:
			return FAILED;
		case STATE_RELEASED:
			return RELEASED;
	}
	return 0;
}

static State
effective(State state, Event event, unsigned facts)
{
	if ((facts & FACT_LAPSED) && state != STATE_IN_FLIGHT && event != EVENT_PURGE)
		return STATE_NONE;
	return state;
}

Decision
state_decide(State state, Event event, unsigned facts)
{
	int			set = set_of(effective(state, event, facts));

	for (unsigned i = 0; i < sizeof(rules) / sizeof(rules[0]); i++)
	{
		const Rule *rule = &rules[i];

		if ((rule->events & (1 << event)) && (rule->states & set) &&
			(facts & rule->with) == rule->with && (facts & rule->without) == 0)
			return (Decision) {
				rule->action, rule->next == STATE_NONE ? state : rule->next, rule->outcome, rule->ack
			};
	}
	/* a state that is none: keep, and let nobody through */
	return (Decision) {ACTION_KEEP, state, OUTCOME_RECONCILE, ACK_NOT_OWNER};
}
