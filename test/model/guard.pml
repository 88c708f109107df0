/*
 * guard.pml: the repeat guard, over operations of equal content that have different keys.
 *
 * README.md says what each step stands for, and what is left out.  Operation c is client c's: what becomes of one key
 * under rivals is idem.pml's.  Keys are ordered as the clients are.  The -DBUG_... switches break one rule each, for the
 * runner to see that the promise it protects is then found broken.
 *
 * What PostgreSQL itself guarantees is an axiom here: a commit makes all of a transaction's rows visible at once, and a
 * dirty scan sees every row that was inserted before it began, committed or not, for rows that are never updated.
 */

#ifndef OPERATIONS
#define OPERATIONS 3
#endif
#ifndef TRIES
#define TRIES 2
#endif

/* what is on record of an operation */
#define NONE 0
#define IN_FLIGHT 1			/* or unknown */
#define DONE 2
#define FREE 3				/* released or failed */

/* the peer row of an operation's open transaction */
#define ABSENT 0
#define SPECULATIVE 1
#define CONFIRMED 2

byte op[OPERATIONS];
bool aged[OPERATIONS];			/* done longer ago than the guard lasts */
byte peer[OPERATIONS];
byte peer_lists[OPERATIONS];	/* the lists that the uncommitted row's guard key was made under */
bool kept1[OPERATIONS];		/* a committed row, by the lists of its guard key */
bool kept2[OPERATIONS];
bool claimed[OPERATIONS];		/* the claim stands, its transaction is open */

bool second_lists;				/* the scope's lists were replaced: 1 by 2 */

/* for the promise only */
bool sure[OPERATIONS];			/* the latest grant was a repeat that a person confirmed */
bool before0[OPERATIONS], before1[OPERATIONS], before2[OPERATIONS];	/* who guarded when it began, and does still */

#define guards(i) (op[i] == IN_FLIGHT || (op[i] == DONE && !aged[i]))

/* A look-up sees the claim of an open transaction as well. */
#define judged_to_guard(i) (guards(i) || claimed[i])

#ifdef BUG_OWN_LISTS_ONLY
#define SEES1(j) (kept1[j] && lists == 1)
#define SEES2(j) (kept2[j] && lists == 2)
#define SEES_OPEN(j) (peer[j] != ABSENT && peer_lists[j] == lists)
#else
#define SEES1(j) (kept1[j])
#define SEES2(j) (kept2[j] && known)
#define SEES_OPEN(j) (peer[j] != ABSENT && (peer_lists[j] == 1 || known))
#endif

inline no_longer_guards(i)
{
	true;
	before0[i] = false; before1[i] = false; before2[i] = false
}

#define BEFORE(i) ((c == 0 && before0[i]) || (c == 1 && before1[i]) || (c == 2 && before2[i]))

inline remember_guards()
{
	byte i;
	for (i : 0 .. OPERATIONS - 1) {
		if
		:: i != c && guards(i) && c == 0 -> before0[i] = true
		:: i != c && guards(i) && c == 1 -> before1[i] = true
		:: i != c && guards(i) && c == 2 -> before2[i] = true
		:: else
		fi
	}
	i = 0
}

/*
 * The grant commits.  No equal operation guarded when it began and does still, and none that was granted meanwhile
 * without a person's word.
 */
inline check_grant()
{
	byte k;
	for (k : 0 .. OPERATIONS - 1) {
		assert(k == c || confirmed || !guards(k) || (sure[k] && !BEFORE(k)))	/* P1: of equal operations one is granted */
	}
	k = 0
}

proctype Client(byte c)
{
	byte try = 0;
	byte lists;
	byte j;
	bool known = false;
	bool confirmed = false;

begin:
	atomic {
		remember_guards();
		if
		:: lists = 1						/* a token signed before the lists were replaced, too */
		:: second_lists -> lists = 2
		fi;
		if
		:: confirmed = false
		:: c == OPERATIONS - 1 -> confirmed = true
		fi;
#ifdef BUG_LISTS_BEFORE_PLACE
		known = second_lists
#endif
	};

place:
#ifdef BUG_LOOK_FIRST
	goto scan;
placed_late:
#endif
#ifdef BUG_NO_NEW_ROW
	if
	:: kept1[c] || kept2[c] -> skip
	:: else -> peer[c] = SPECULATIVE
	fi;
	peer_lists[c] = lists;
#else
	atomic { peer[c] = SPECULATIVE; peer_lists[c] = lists };
#endif
#ifdef BUG_LOOK_FIRST
	goto clear_way;
#endif
	if
	:: confirmed -> goto clear_way
	:: else
	fi;
scan:
#ifndef BUG_LISTS_BEFORE_PLACE
	known = second_lists;					/* a fresh snapshot, after the row was placed */
#endif
	j = 0;
look:
	do
	:: j == c -> j++
	:: j < OPERATIONS && j != c ->
		if
		:: atomic { (SEES1(j) || SEES2(j)) && judged_to_guard(j) -> goto repeat }
		:: atomic { SEES_OPEN(j) && peer[j] == CONFIRMED -> goto repeat }
		:: atomic { SEES_OPEN(j) && peer[j] == SPECULATIVE && j < c -> peer[c] = ABSENT; goto wait_for_smaller }
#ifdef BUG_WAITS_FOR_ALL
		:: atomic { SEES_OPEN(j) && peer[j] == SPECULATIVE && j < c -> goto wait_for_larger }
#endif
		:: atomic { SEES_OPEN(j) && peer[j] == SPECULATIVE && j > c -> goto wait_for_larger }
		:: atomic { !((SEES1(j) || SEES2(j)) && judged_to_guard(j)) && !SEES_OPEN(j) -> j++ }
		fi
	:: j >= OPERATIONS -> break
	od;
#ifdef BUG_LOOK_FIRST
	goto placed_late;
#endif
clear_way:
	peer[c] = CONFIRMED;
	atomic { claimed[c] = true };
	if
	/* left open, or ended in the same transaction */
	:: atomic { check_grant(); sure[c] = confirmed; aged[c] = false; no_longer_guards(c); op[c] = IN_FLIGHT; goto committed }
	:: atomic { check_grant(); sure[c] = confirmed; aged[c] = false; no_longer_guards(c); op[c] = DONE; goto committed }
	:: goto rolled_back
	fi;
committed:
	atomic {
#ifdef BUG_LATEST_ONLY
		byte l;
		for (l : 0 .. OPERATIONS - 1) { kept1[l] = false; kept2[l] = false }
		l = 0;
#endif
		if
		:: lists == 1 -> kept1[c] = true
		:: lists == 2 -> kept2[c] = true
		fi;
		peer[c] = ABSENT; claimed[c] = false
	};
	if
	:: atomic { op[c] == IN_FLIGHT -> op[c] = DONE }
	:: atomic { op[c] == IN_FLIGHT -> op[c] = FREE; no_longer_guards(c) }
	:: skip										/* nobody knows what became of it, or it is done */
	fi;
	goto over;

wait_for_smaller:
	peer[j] != SPECULATIVE;
	goto place;
wait_for_larger:
	peer[j] != SPECULATIVE;
	goto scan;

repeat:
rolled_back:
	atomic { peer[c] = ABSENT; claimed[c] = false };
over:
	try++;
	if
	/* a released operation continues, one that was refused is tried again */
	:: try < TRIES && (op[c] == NONE || op[c] == FREE) -> goto begin
	:: else
	fi
}

active proctype Updater()
{
	second_lists = true
}

/* Time passes: what was done is no longer within the guard's time. */
#define AGES(i) op[i] == DONE && !aged[i] -> aged[i] = true; no_longer_guards(i)
active proctype Clock()
{
end:
	do
	:: atomic { AGES(0) }
	:: atomic { AGES(1) }
#if OPERATIONS > 2
	:: atomic { AGES(2) }
#endif
	od
}

init
{
	byte c;
	atomic {
		for (c : 0 .. OPERATIONS - 1) { run Client(c) }
	}
}
