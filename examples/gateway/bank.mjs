/*
 * bank.mjs: the payment provider's client. Put your own provider's in its place.
 *
 * The key goes along as Idempotency-Key, the same on every try. What a try that was not answered means depends on
 * what the provider can do, which is also what idem_policy.downstream says:
 *   idempotent  it deduplicates on the key: the request is sent again
 *   queryable   it can be asked what became of a key: it is asked, and nothing is sent again
 *   opaque      neither: nobody knows
 */
import { setTimeout as pause } from 'node:timers/promises';

export function bank({ url, downstream, timeout, backoff, tries = 3 }) {
	/*
	 * Charge, once per key. Resolves to a state: charged (result), refused (reason), unsent (certainly nothing has
	 * happened), unknown. No try is begun unless lease.mayTry() resolves to true.
	 */
	async function charge(key, params, lease) {
		let sent = false;
		for (let n = 0; n < tries; n++) {
			if (n > 0) await pause(backoff * 2 ** (n - 1) * (0.5 + Math.random()));
			if (!(await lease.mayTry())) break;
			const answer = await request(key, params, lease.stalled);
			if (answer.state === 'charged' || answer.state === 'refused') return answer;
			sent ||= answer.state !== 'unsent';
			if (sent && downstream !== 'idempotent') break;
		}
		if (!sent) return { state: 'unsent' };
		// that the key is absent proves nothing yet: the request may still be on its way
		const found = downstream === 'queryable' ? await find(key) : null;
		return found && found.state !== 'absent' ? found : { state: 'unknown' };
	}

	async function request(key, { amount, currency, payee, memo }, stalled) {
		try {
			const response = await fetch(`${url}/charges`, {
				method: 'POST',
				headers: { 'Content-Type': 'application/json', 'Idempotency-Key': `"${key}"` },
				body: JSON.stringify({ amount, currency, payee, memo }),
				signal: AbortSignal.any([stalled, AbortSignal.timeout(timeout)]),
			});
			if (response.ok) return { state: 'charged', result: await response.json() };
			if (response.status === 402) return { state: 'refused', reason: await response.json() };
			return { state: 'unknown' };
		} catch (error) {
			return { state: error.cause?.code === 'ECONNREFUSED' ? 'unsent' : 'unknown' };
		}
	}

	/* What became of a key: charged, refused, absent; null where the provider cannot say. */
	async function find(key) {
		if (downstream === 'opaque') return null;
		try {
			const response = await fetch(`${url}/charges/${key}`, { signal: AbortSignal.timeout(timeout) });
			if (response.status === 404) return { state: 'absent' };
			return response.ok ? await response.json() : null;
		} catch {
			return null;
		}
	}

	return { charge, find };
}
