/*
 * idem.pml: the protocol of acquire, commit and fail over the two tables, for one key.
 *
 * README.md says what each step stands for, which C function implements it, and what is left out.
 * Choose the downstream by -DIDEMPOTENT, -DQUERYABLE, -DOPAQUE or -DLOCAL.  The -DBUG_... switches break one rule
 * each, for the runner to see that the promise it protects is then found broken.
 *
 * What PostgreSQL itself guarantees is an axiom here: a commit makes all of a transaction's rows visible at
 * once; a unique index admits one live or uncommitted row for the key; an uncommitted version locks the row.
 */

#ifndef TRIES
#define TRIES 2
#endif
#define CLIENTS 2

/* states of the record */
#define NONE 0
#define IN_FLIGHT 1
#define DONE 2
#define FAILED 3
#define RELEASED 4

/* who writes: a client is its number + 1 */
#define NOBODY 0
#define OPERATOR 3
#define PURGE 4

#define OPERATOR_TOKEN 15
#define ME (c + 1)
#define TOKEN (c * TRIES + try + 1)

/* where an open claim of a transaction is */
#define NOWHERE 0
#define FAST 1
#define RECORD 2

#ifdef IDEMPOTENT
#define DEDUPLICATES true
#else
#define DEDUPLICATES false
#endif

#if defined(BUG_TAKE_OPAQUE)
#define MAY_TAKE_OVER true
#else
#define MAY_TAKE_OVER DEDUPLICATES
#endif

/* idem_record: the version in force, which committed transactions left */
byte st, own, att, res;
bool lease_over, lapsed;

/* idem_record: the version that an open transaction has written, if any */
byte w;
byte wst, wown, watt, wres;
bool wgrant;

/* the version that this one judged (two clients, the operator): is it still the one in force? */
#define NOTHING 0
#define CURRENT 1
#define REPLACED 2
byte judged[3];

/* idem_fast: its row (client + 1), not yet confirmed, deleted by its own transaction, lock until the end */
byte frow;
bool fspec, fdel;
bool fold;				/* it has been there for longer than results are kept */
bool flock[CLIENTS];
byte exclusive;			/* who emptied the table within its transaction */
#ifdef BUG_TRUST_MISS
bool fkept;				/* the row outlived its transaction */
#endif

/* clients */
bool in_tx[CLIENTS], prepared[CLIENTS];
#ifdef LTL
bool calling[CLIENTS];
#define CALLS(yes) calling[c] = yes
#else
#define CALLS(yes) skip
#endif
byte place[CLIENTS];
bool rows[CLIENTS];		/* this transaction holds the effect as rows of its own */

/* the clock, as far as it matters */
bool expired;

/* what happened: for the promises only */
bool consumed;			/* a grant or a result has committed */
byte grants;			/* bit n: attempt n + 1 was granted, by a commit */
byte effects;			/* at the downstream, as it counts them */
bool said_retry;		/* an operator did */
byte first_st, first_res;	/* the first terminal state */

#define terminal(s) ((s) == DONE || (s) == FAILED)

/* The downstream. */
inline take_effect()
{
	true;
	if
	:: DEDUPLICATES -> effects = 1
	:: else -> effects = (effects < 2 -> effects + 1 : 2)
	fi;
	assert(effects <= 1 || said_retry)			/* P5, and the point of it all */
}

inline all_moved()
{
	if
	:: judged[0] == CURRENT -> judged[0] = REPLACED
	:: else
	fi;
	if
	:: judged[1] == CURRENT -> judged[1] = REPLACED
	:: else
	fi;
	if
	:: judged[2] == CURRENT -> judged[2] = REPLACED
	:: else
	fi
}

/* Every committed change of the record passes here. */
inline install(new_st, new_own, new_att, new_res, is_grant, token)
{
	assert(!terminal(st) || lapsed);			/* P2 */
	if
	:: is_grant ->
		assert(!(grants & (1 << new_att)));		/* P1: one for each attempt */
		grants = grants | (1 << new_att);
		if
		:: st == NONE -> assert(!consumed)		/* P1, P6, P8: a first attempt begins once */
		:: st == IN_FLIGHT -> assert(DEDUPLICATES && lease_over)	/* P5 */
		:: else -> assert(st == RELEASED)
		fi
	:: !is_grant && token != OPERATOR_TOKEN ->
		assert(st == IN_FLIGHT && own == token)	/* P4 */
	:: else
	fi;
	consumed = true;
	if
	:: terminal(new_st) ->
		assert(first_st == NONE || st != NONE);	/* P2: nor after a loss */
		first_st = new_st;
		first_res = new_res
	:: else
	fi;
	st = new_st; own = new_own; att = new_att; res = new_res;
	lease_over = false; lapsed = false;
	all_moved()
}

inline clear_w()
{
	w = NOBODY; wst = NONE; wown = 0; watt = 0; wres = 0; wgrant = false
}

/* The transaction is over: what it held is let go. */
inline let_go(i)
{
#ifdef BUG_TRUST_MISS
	if
	:: frow == i + 1 && !fkept -> frow = 0; fspec = false; fdel = false; fold = false
	:: else
	fi;
#else
	if
	:: frow == i + 1 -> frow = 0; fspec = false; fdel = false; fold = false
	:: else
	fi;
#endif
	if
	:: exclusive == i + 1 -> exclusive = 0
	:: else
	fi;
	flock[i] = false; in_tx[i] = false; judged[i] = NOTHING; place[i] = NOWHERE; rows[i] = false; prepared[i] = false
}

inline roll_back(i)
{
	true;
	if
	:: w == i + 1 -> clear_w()
	:: else
	fi;
	let_go(i)
}

/* The commit record: all becomes visible at once. */
inline commit(token)
{
	true;
	if
	:: w == ME ->
		if
		:: wgrant && wst != IN_FLIGHT ->		/* begun and ended in one transaction */
			install(IN_FLIGHT, wown, watt, 0, true, token);
			install(wst, wown, watt, wres, false, token)
		:: else -> install(wst, wown, watt, wres, wgrant, token)
		fi;
		clear_w()
	:: else
	fi;
	if
	:: rows[c] -> take_effect()
	:: else
	fi;
	let_go(c)
}

inline write(new_st, new_own, new_att, new_res, is_grant)
{
	w = ME; wst = new_st; wown = new_own; watt = new_att; wres = new_res; wgrant = is_grant
}

/* The unique index lets the row in, or not. */
#ifdef BUG_MOVE_OVERWRITES
#define RECORD_TAKES (w == NOBODY || w == ME)
#else
#define RECORD_TAKES (st == NONE && w == NOBODY)
#endif

#ifdef BUG_NO_CAS
#define UNMOVED true
#else
#define UNMOVED (judged[c] == CURRENT)
#endif

#ifdef BUG_NO_OWNER_CHECK
#define IS_OWNER true
#else
#define IS_OWNER (own == TOKEN)
#endif

#ifdef BUG_STALE_CLOCK
#define STILL_GOOD true
#else
#define STILL_GOOD (!expired)
#endif

/* A claim that was in the fast table for longer than results are kept does not get into the record. */
#ifdef BUG_FORGOTTEN_RIVAL
#define REMEMBERED true
#else
#define REMEMBERED (!fold)
#endif

#ifdef BUG_PURGE_OPEN
#define MAY_GO ((st == IN_FLIGHT && lease_over) || (st != NONE && st != IN_FLIGHT && lapsed))
#else
#define MAY_GO (st != NONE && st != IN_FLIGHT && lapsed)
#endif

/* A terminal record answers. */
inline replay()
{
	assert(st == first_st && res == first_res)	/* P3 */
}

/*
 * At each step the transaction may end without having committed: by the caller, by a signal, by the server's crash.
 * A crash is no more than that for all of them at once, and the loss of the fast table (see Fate).
 */
#ifdef LTL
#define OR_ENDS
#else
#define OR_ENDS :: goto answered
#endif

proctype Client(bit c)
{
	byte try = 0;
	bool acted = false;		/* this holder has reached the downstream */

	/* ----- one call of idem_acquire, in a transaction of its own ----- */
begin:
	atomic { in_tx[c] = true; CALLS(true) };
probe:
	if
	:: atomic {
			judged[c] = CURRENT;
			if
			/* nothing in force */
			:: st == NONE && w != NOBODY -> goto answered
			:: st == NONE && w == NOBODY && expired -> goto answered
			:: st == NONE && w == NOBODY && !expired -> judged[c] = NOTHING
			/* a result: the first one, whoever is at work */
			:: terminal(st) && !lapsed -> replay(); goto answered
			/* lapsed: as if there were none, and the fingerprint expired before that */
			:: st != NONE && st != IN_FLIGHT && lapsed ->
				assert(expired);				/* P6 */
				goto answered
			/* somebody is changing it; a dirty scan may miss them */
			:: (st == IN_FLIGHT || (st == RELEASED && !lapsed)) && w != NOBODY -> goto answered
			:: st == IN_FLIGHT && !lease_over -> goto answered
			:: st == IN_FLIGHT && lease_over && !MAY_TAKE_OVER -> goto answered	/* RECONCILE */
			:: st == IN_FLIGHT && lease_over && MAY_TAKE_OVER -> goto resume
			:: st == RELEASED && !lapsed -> goto resume
			fi
		}
	OR_ENDS
	fi;

	/* start: the fast table, if it is to be had */
	if
	:: atomic { exclusive == 0 && frow == 0 ->
			flock[c] = true; frow = ME; fspec = true; goto second_probe }
	:: atomic { exclusive == 0 && frow != 0 && !fspec -> flock[c] = true; goto answered }
	:: atomic { exclusive == 0 && frow != 0 && fspec -> flock[c] = true }
#ifndef NEVER_REFUSED
	/* switched off: read, but not written */
	:: atomic { exclusive == 0 && frow == 0 -> flock[c] = true; goto slow }
	/* its lock is refused */
	:: goto slow
#endif
	OR_ENDS
	fi;

	/* wait for the other's insertion */
	if
	:: atomic { !fspec -> goto probe }
	OR_ENDS
	fi;

second_probe:
#ifndef BUG_SECOND_PROBE
	if
	:: atomic { st != NONE || w != NOBODY || !STILL_GOOD -> frow = 0; fspec = false; fold = false; goto probe }
	:: atomic { st == NONE && w == NOBODY && STILL_GOOD -> skip }
	OR_ENDS
	fi;
#endif
	if
	:: atomic {
			fspec = false; place[c] = FAST;
#ifdef NEVER_REFUSED
			assert(!terminal(st));				/* P3: the answer is right at once */
#endif
			goto granted
		}
	OR_ENDS
	fi;

	/* into the record at once */
slow:
	if
	:: atomic { !RECORD_TAKES || !STILL_GOOD -> goto probe }
	:: atomic { RECORD_TAKES && STILL_GOOD ->
			write(IN_FLIGHT, TOKEN, 1, 0, true); place[c] = RECORD; goto granted }
	OR_ENDS
	fi;

resume:
	if
	:: atomic { w != NOBODY -> goto answered }
	:: atomic { w == NOBODY && !UNMOVED -> goto probe }
	:: atomic { w == NOBODY && UNMOVED ->
			write(IN_FLIGHT, TOKEN, att + 1, 0, true); judged[c] = NOTHING; place[c] = RECORD }
	OR_ENDS
	fi;

	/* ----- granted, and the transaction is open ----- */
granted:
	CALLS(false);
#ifdef BUG_EARLY_EFFECT
	if
	:: atomic { take_effect(); acted = true }
	:: skip
	fi;
#endif
	/* finish at once, or leave it open: both write the record, where the fast table held the claim */
	if
	/* it may have emptied the fast table itself: 40001 */
	:: atomic { place[c] == FAST && !flock[1 - c] -> frow = 0; fold = false; exclusive = ME; place[c] = NOWHERE; goto answered }
	/* a rival, or one may have been forgotten: 40001 */
	:: atomic { place[c] == FAST && (!RECORD_TAKES || !REMEMBERED) -> goto answered }
	/* release */
	:: atomic { place[c] == FAST -> fdel = true; place[c] = NOWHERE; goto ending }
	:: atomic { (place[c] == FAST && RECORD_TAKES && REMEMBERED) || place[c] == RECORD ->
			if
			:: place[c] == FAST -> fdel = true; write(IN_FLIGHT, TOKEN, 1, 0, true)
			:: else
			fi;
			place[c] = NOWHERE;
			if
			:: wst = DONE; wres = TOKEN; rows[c] = !acted
			:: wst = FAILED; wres = TOKEN
			:: wst = RELEASED; wres = TOKEN
			fi;
			goto ending
		}
#ifndef LOCAL									/* which would outlive: 55000, a rollback */
#ifdef BUG_TRUST_MISS
	:: atomic { place[c] == FAST && frow == ME ->
			install(IN_FLIGHT, TOKEN, 1, 0, true, TOKEN); st = NONE; fkept = true; let_go(c); goto holding }
#else
	:: atomic { place[c] == FAST && RECORD_TAKES && REMEMBERED ->
			fdel = true; write(IN_FLIGHT, TOKEN, 1, 0, true); place[c] = RECORD; goto leaving }
#endif
	:: atomic { place[c] == RECORD -> goto leaving }
#endif
	OR_ENDS
	fi;

#ifndef LOCAL
	/* ----- the claim is in the record: COMMIT, or PREPARE and then COMMIT ----- */
leaving:
	if
	:: atomic { commit(TOKEN); goto holding }
	:: atomic { prepared[c] = true }
	OR_ENDS
	fi;
	if
	:: atomic { commit(TOKEN); goto holding }
	:: goto answered
	fi;
#endif
ending:
	if
	:: atomic { commit(TOKEN); goto ended }
	:: atomic { prepared[c] = true }
	OR_ENDS
	fi;
	if
	:: atomic { commit(TOKEN); goto ended }
	:: goto answered
	fi;

	/* ----- the holder, between its transactions: it may stall anywhere ----- */
#ifndef LOCAL
holding:
	if
	:: goto ended								/* and is never seen again */
	:: atomic { !acted -> take_effect(); acted = true; goto holding }
#ifndef LTL										/* so that a lease does not run out for ever */
	:: atomic { w == NOBODY && st == IN_FLIGHT && own == TOKEN && lease_over ->
			lease_over = false; all_moved(); goto holding }	/* renew */
#endif
	:: goto finishing
	fi;

	/* ----- idem_commit, idem_fail or idem_release in a later transaction ----- */
finishing:
	atomic { in_tx[c] = true; CALLS(true) };
look:
	if
	:: atomic { w != NOBODY -> goto wait }
	:: atomic { st == NONE || !IS_OWNER || st != IN_FLIGHT -> goto answered }	/* NONE, NOT_OWNER, OK, ALREADY */
	:: atomic { st == IN_FLIGHT && IS_OWNER -> judged[c] = CURRENT }	/* a dirty scan may miss a rival */
	OR_ENDS
	fi;
	if
	:: atomic { w == NOBODY && !UNMOVED -> judged[c] = NOTHING; goto look }
	:: atomic { w == NOBODY && UNMOVED ->		/* the row's lock */
			judged[c] = NOTHING;
			if
			:: acted -> write(DONE, own, att, TOKEN, false)
			:: !acted -> write(FAILED, own, att, TOKEN, false)
			:: !acted -> write(RELEASED, own, att, TOKEN, false)
			fi
		}
	OR_ENDS
	fi;
	if
	:: atomic { commit(TOKEN); CALLS(false); goto ended }
	:: atomic { commit(TOKEN); CALLS(false); goto finishing }	/* the reply was lost: once more */
#ifndef LTL										/* so that nobody locks the row for ever, once and again */
	:: atomic { roll_back(c); goto finishing }	/* the transaction was: once more */
#endif
	OR_ENDS
	fi;
wait:
	if
	:: atomic { w == NOBODY -> goto look }
	OR_ENDS
	fi;
#endif

	/* an answer that granted nothing, or a transaction that ends otherwise: it changed nothing */
answered:
	atomic { roll_back(c); CALLS(false) };
ended:
	atomic {
		CALLS(false); acted = false; try++;
		if
		:: try < TRIES -> goto begin
		:: try == TRIES
		fi;
		try = 0
	}
}

#ifdef LTL
#define AGAIN_FROM(label) skip
#else
#define AGAIN_FROM(label) goto label
#endif

/* An operator gives verdicts, insisting if need be. */
#ifndef LOCAL
active proctype Operator()
{
	byte verdict = NONE;

end:
judge:
	atomic {
		(st == IN_FLIGHT || (st == RELEASED && !lapsed)) && w == NOBODY ->
		judged[2] = CURRENT;
		if
#ifdef QUERYABLE
		:: effects > 0 -> verdict = DONE
		:: effects == 0 -> verdict = RELEASED
		:: effects == 0 -> verdict = FAILED
#else
		:: verdict = DONE
		:: verdict = RELEASED
		:: verdict = FAILED
#endif
		fi
	};
	atomic {
		w == NOBODY;
		if
		:: judged[2] != CURRENT -> verdict = NONE; judged[2] = NOTHING; goto judge
		:: judged[2] == CURRENT -> judged[2] = NOTHING; w = OPERATOR; wst = verdict; wown = own; watt = att; wres = OPERATOR_TOKEN; wgrant = false
		fi
	};
	atomic {
		if
		:: w == OPERATOR ->
			if
			:: wst == RELEASED -> said_retry = true
			:: else
			fi;
			install(wst, wown, watt, wres, false, OPERATOR_TOKEN); clear_w()
		:: w == OPERATOR -> clear_w()			/* rolled back */
		fi;
		verdict = NONE;
		AGAIN_FROM(judge)
	}
}
#endif

active proctype Purger()
{
end:
look:
	atomic {
		w == NOBODY && MAY_GO -> w = PURGE
	};
	atomic {
		if
		:: w == PURGE ->
			assert(st != IN_FLIGHT);			/* P5 */
			assert(lapsed);						/* P2 */
			clear_w(); st = NONE; own = 0; att = 0; res = 0; lease_over = false; lapsed = false;
			all_moved()
		:: w == PURGE -> clear_w()
		fi;
		AGAIN_FROM(look)
	}
}

/* The clock. */
active proctype Clock()
{
end:
	do
	:: atomic { st == IN_FLIGHT && !lease_over -> lease_over = true }
	:: atomic { !expired -> expired = true }
#ifdef BUG_SHORT_RETENTION
	:: atomic { st != NONE && st != IN_FLIGHT && !lapsed -> lapsed = true }
#else
	/* not before the fingerprint */
	:: atomic { st != NONE && st != IN_FLIGHT && !lapsed && expired ->
			lapsed = true;
			if
			:: frow != 0 -> fold = true
			:: else
			fi
		}
#endif
	od
}

/* Who loses the fast table: by a crash, which leaves prepared transactions alone, or by TRUNCATE, which waits for the others. */
active proctype Fate()
{
#define OPEN(i) (in_tx[i] && !prepared[i])
end:
	do
	:: atomic { frow != 0 && ((!OPEN(0) && !OPEN(1)) || (!flock[0] && !flock[1])) ->
#ifdef BUG_TRUST_MISS
			fkept = false;
#else
			assert(fdel);						/* P8: nothing to lose between transactions */
#endif
			frow = 0; fspec = false; fdel = false; fold = false }
	od
}

init
{
	atomic { run Client(0); run Client(1) }
}

#ifdef LTL
ltl done_stays { [] ((st == DONE) -> ((st == DONE) W lapsed)) }
ltl failed_stays { [] ((st == FAILED) -> ((st == FAILED) W lapsed)) }
ltl answered { [] (calling[0] -> <> !calling[0]) }
#endif
