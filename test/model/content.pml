/*
 * content.pml: one content whose key depends on the scope's lists, while these change.
 *
 * README.md says what each step stands for, and what is left out.  Under lists 1 the content has key 1, under lists 2
 * key 2: an operation that began under the one is the same operation under the other.  What becomes of one key under
 * rivals is idem.pml's: here a key's claim is one step.  The -DBUG_... switches break one rule each, for the runner to
 * see that the promise it protects is then found broken.
 */

#ifndef TRIES
#define TRIES 2
#endif
#define CLIENTS 2
#define ME (c + 1)
#define OTHER(k) (3 - (k))

/* what is on record under a key */
#define NONE 0
#define IN_FLIGHT 1			/* or unknown: it never lapses */
#define DONE 2
#define RELEASED 3

byte st[3];
byte w[3];						/* who has an uncommitted claim of the key (client + 1) */

/* idem_policy and idem_policy_version, as committed; what was in force once stays on record */
byte in_force = 1;
bool second_on_record;
byte changes;					/* so many have committed, */
byte told[CLIENTS];			/* and of so many this session was told */

#define is_known(k) (st[k] != NONE || w[k] != 0)

#ifdef BUG_FORGETS_LISTS
bool forgotten;					/* lists that were replaced long ago are no longer looked under */
#define REMEMBERED(k) (!forgotten || (k) == lists)
#else
#define REMEMBERED(k) true
#endif

/* what a fresh snapshot says of the lists, after the claim was placed */
#ifdef BUG_CACHED_LISTS
#define LISTS_NOW lists
#define BOTH_NOW knows_both
#else
#define LISTS_NOW in_force
#define BOTH_NOW second_on_record
#endif

proctype Client(bit c)
{
	byte try = 0;
	byte lists = 1;				/* in force, by the session's cache */
	bool knows_both = false;	/* likewise: both are on record */
	byte seen = 0;				/* of so many changes the cache knows */
	byte key = 0;

begin:
	/* the cache is read again once the session is told of a change, or where it is fresh */
	if
	:: atomic { lists = in_force; knows_both = second_on_record; seen = changes }
	:: told[c] <= seen -> skip
	fi;

	/* choose the key: that of the lists in force, unless the operation is known under others */
	atomic {
		if
		:: is_known(lists) || !knows_both || !REMEMBERED(OTHER(lists)) -> key = lists
		:: else ->
			if
			:: is_known(OTHER(lists)) -> key = OTHER(lists)
			:: else -> key = lists
			fi
		fi
	};
probe:
	if
	:: atomic { w[key] != 0 -> goto wait }
	:: atomic { w[key] == 0 && (st[key] == DONE || st[key] == IN_FLIGHT) -> goto answered }
	:: atomic { w[key] == 0 && (st[key] == NONE || st[key] == RELEASED) -> w[key] = ME }
	fi;

#ifndef BUG_LOOKS_BEFORE_ONLY
	/* the claim stands: what was committed until now decides which lists there are, and which are in force */
	atomic {
		if
		:: LISTS_NOW != lists -> goto rolled_back				/* 40001 */
		:: else
		fi;
		knows_both = BOTH_NOW
	};
#ifndef BUG_KEEPS_KEY							/* what it waited for is taken to be what it names */
	if
	:: atomic { knows_both && REMEMBERED(OTHER(key)) && is_known(OTHER(key)) -> goto rolled_back }	/* 40001 */
	:: atomic { !(knows_both && REMEMBERED(OTHER(key)) && is_known(OTHER(key))) -> skip }
	fi;
#endif
#endif
	if
	:: atomic {
			assert(st[OTHER(key)] != DONE && st[OTHER(key)] != IN_FLIGHT);	/* P1: one content is granted once */
			if
			:: st[key] = IN_FLIGHT
			:: st[key] = DONE
			:: st[key] = RELEASED
			fi;
			w[key] = 0; goto ended }
	:: goto rolled_back
	fi;
wait:
	w[key] == 0;
#ifdef BUG_KEEPS_KEY
	goto probe;
#else
	goto begin;
#endif
rolled_back:
	atomic {
		if
		:: w[key] == ME -> w[key] = 0
		:: else
		fi
	};
answered:
ended:
	atomic {
		/* a holder ends what it left open, if it is seen again */
		if
		:: st[key] == IN_FLIGHT && w[key] == 0 -> st[key] = DONE
		:: st[key] == IN_FLIGHT && w[key] == 0 -> st[key] = RELEASED
		:: skip
		fi
	};
	try++;
	if
	:: try < TRIES -> goto begin
	:: else
	fi
}

/* Somebody who changes the lists, and changes them back: each session is told only some time after the commit. */
active proctype Updater()
{
	atomic { in_force = 2; second_on_record = true; changes = 1 };
	told[0] = 1; told[1] = 1;
	atomic { in_force = 1; changes = 2 };
	told[1] = 2; told[0] = 2
#ifdef BUG_FORGETS_LISTS
	;
	forgotten = true
#endif
}

init
{
	atomic { run Client(0); run Client(1) }
}
