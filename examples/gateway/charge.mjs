/*
 * charge.mjs: preview, confirm and status of a charge that happens once. This file is what you take over.
 *
 * Two transactions with the effect between them: acquire commits, so that everybody knows of the claim before the
 * bank is asked; the result is committed when it is known. Where this process dies in between, the claim is on
 * record, and whoever comes next is told that the outcome is unknown, never "go ahead".
 *
 * What comes back is the text of idem_reply as the database wrote it, for the model to read.
 */
import { randomUUID } from 'node:crypto';
import { setTimeout as pause } from 'node:timers/promises';

const PREVIEW = 'SELECT idem_preview($1, $2, $3, confirm_repeat => $4)::text AS reply';
const ACQUIRE = `SELECT c.outcome, c.key, c.owner, c.attempt, idem_reply(c)::text AS reply,
		extract(epoch FROM c.lease_until - clock_timestamp())::float8 * 1000 AS lease_ms
	FROM idem_acquire($1, $2, $3, $4, owner => $5, trace_id => $6) AS c`;
const STATUS = 'SELECT c.outcome, c.key, idem_reply(c)::text AS reply FROM idem_status($1, $2) AS c';
// the answer to the call that did it: the same, but not a replay
const DONE_NOW = `SELECT idem_reply(jsonb_populate_record(c, '{"replayed": false}'))::text AS reply
	FROM idem_status($1, $2) AS c`;

/*
 * db and operator are pools (operator may be missing: then a person reconciles), bank is bank.mjs's, subject is whom
 * this gateway acts for, as it knows from its own authentication and never from the model.
 */
export function charges({ db, operator, bank, subject, scope = 'charge' }) {
	/* askPerson(reply), where given, resolves to whether a person wants an equal charge a second time. */
	async function preview(params, askPerson) {
		const reply = (await one(db, PREVIEW, [subject, scope, params, false])).reply;
		const again = JSON.parse(reply).status === 'likely_repeat' && askPerson && (await askPerson(JSON.parse(reply)));
		return again ? (await one(db, PREVIEW, [subject, scope, params, true])).reply : reply;
	}

	async function confirm(fingerprint, params) {
		// an own owner token: if the answer to acquire is lost, asking again with it finds the same grant
		const call = [fingerprint, subject, scope, params, randomUUID(), randomUUID()];
		let asked = performance.now();
		let claim = await one(db, ACQUIRE, call);
		if (claim.outcome === 'RECONCILE' && (await settle(claim.key))) {
			asked = performance.now();
			claim = await one(db, ACQUIRE, call);
		}
		if (claim.outcome !== 'ACQUIRED') return claim.reply;

		const lease = keepLease(claim, asked);
		const answer = await bank.charge(claim.key, params, lease).finally(lease.stop);
		const now = (await record(claim, answer)) === 'OK' && answer.state === 'charged';
		return (await one(db, now ? DONE_NOW : STATUS, [fingerprint, subject])).reply;
	}

	async function status(fingerprint) {
		let claim = await one(db, STATUS, [fingerprint, subject]);
		if (claim.outcome === 'RECONCILE' && (await settle(claim.key))) claim = await one(db, STATUS, [fingerprint, subject]);
		return claim.reply;
	}

	/* What the bank said. An answer that is not OK means that the claim is somebody else's now: theirs counts. */
	async function record({ key, owner, attempt }, { state, result, reason }) {
		if (state === 'charged')
			return ack('idem_commit($1, $2, $3, $4)', [key, owner, result, result.order]);
		if (state === 'refused')
			return ack('idem_fail($1, $2, $3)', [key, owner, reason]);
		// nothing was sent; but an attempt before this one may have been, and releasing would deny that
		if (state === 'unsent' && attempt === 1)
			return ack('idem_release($1, $2)', [key, owner]);
		if (state === 'unsent')
			return ack('idem_fail($1, $2, $3, retryable => true)', [key, owner, { code: 'bank_unreachable' }]);
		return null; // nobody knows: the claim stays, and its lease decides when to look
	}

	const ack = async (call, values) => (await one(db, `SELECT ${call} AS ack`, values)).ack;

	/*
	 * Renew a claim's lease until told to stop. mayTry resolves to whether the bank may be asked now: only with half
	 * a lease ahead, so that the bank is done when others may ask what became of it. A process that stalled (a
	 * stopped machine, a full swap) may wake when the claim is somebody else's; the signal then stops a request on
	 * its way out, the timer being served before any socket.
	 */
	function keepLease({ key, owner, lease_ms }, since) {
		const stalled = new AbortController();
		const fresh = () => !stalled.signal.aborted && performance.now() - since < lease_ms / 2;
		let tick = since;
		async function renew() {
			const now = performance.now();
			const said = await ack('idem_renew($1, $2)', [key, owner]).catch(() => null);
			if (said !== null) since = said === 'OK' ? now : -Infinity;
		}
		const timer = setInterval(() => {
			if (performance.now() - tick > lease_ms / 2) stalled.abort();
			tick = performance.now();
			renew();
		}, lease_ms / 8);
		return {
			mayTry: async () => fresh() || (await renew(), fresh()),
			stalled: stalled.signal,
			stop: () => clearInterval(timer),
		};
	}

	/*
	 * An attempt broke off. Ask the bank, by the key, and record what it says; false: only a person can find out.
	 * That the bank knows nothing of the key is proof here, since half a lease is longer than the bank's slowest answer.
	 */
	async function settle(key) {
		const found = operator ? await bank.find(key) : null;
		if (!found) return false;
		const [verdict, note, result, ref] = {
			charged: ['DONE', 'the bank has the charge', found.result, found.result?.order],
			refused: ['FAILED', 'the bank refused it', found.reason],
			absent: ['RETRY', 'the bank knows nothing of it'],
		}[found.state];
		try {
			await one(operator, 'SELECT idem_reconcile($1, $2, $3, $4, $5)', [key, verdict, note, result, ref]);
		} catch (error) {
			if (error.code !== '55000') throw error; // somebody has settled it meanwhile, and an attempt runs
		}
		return true;
	}

	return { preview, confirm, status };
}

/*
 * The row that a statement returns. Every call to idem may be repeated, so a lost connection, a restart of the
 * server and a serialization failure are: the repetition learns what stands.
 */
async function one(pool, text, values, tries = 5) {
	for (let n = 1; ; n++) {
		try {
			return (await pool.query(text, values)).rows[0];
		} catch (error) {
			const passing = error.code === undefined || /^(08|40|53|57P|E[A-Z]+$)/.test(error.code);
			if (!passing || n === tries) throw error;
			await pause(50 * 2 ** n * (0.5 + Math.random()));
		}
	}
}
