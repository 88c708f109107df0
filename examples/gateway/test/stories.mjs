/*
 * stories.mjs: what agents do with charges, and one charge each time (npm test).
 *
 * PGHOST and the like lead, as a superuser, to a server that has idem installed; a database and two roles are made
 * there and removed. Without PGHOST, test/check builds idem and lends a server. Prints a transcript and TAP.
 */
import { spawnSync } from 'node:child_process';
import { agent, close, open, openBank, operator, say, sql, until } from './world.mjs';

if (!process.env.PGHOST) {
	const check = new URL('../../../test/check', import.meta.url).pathname;
	process.exit(spawnSync(check, ['suites', 'gateway'], { stdio: 'inherit' }).status ?? 1);
}

let checks = 0;
let failed = 0;

function ok(condition, what) {
	checks++;
	if (!condition) failed++;
	say(`${condition ? 'ok' : 'not ok'} ${checks} - ${what}`);
}

async function story(what, kind, tell) {
	const title = `${what} (${kind} bank)`;
	say();
	say(`--- ${title}`);
	say();
	const bank = await openBank(kind);
	try {
		await tell(bank, title);
	} catch (error) {
		say(error.stack);
		ok(false, `${title}: breaks off`);
	}
	await bank.close();
}

/* The bank's book has so many charges, and its every request carried the key of an operation of the subject's. */
async function ends(bank, title, subject, charges = 1) {
	bank.tell();
	const charged = bank.ledger('charge');
	const keys = (await sql('SELECT key::text FROM idem_audit WHERE subject = $1', [subject])).map((row) => row.key);
	ok(charged.length === charges, `${title}: ${charges === 1 ? 'one charge' : `${charges} charges`} in the ledger`);
	ok(new Set(charged.map((line) => line.key)).size === charges, `${title}: each charge under a key of its own`);
	ok(bank.ledger('request').every((line) => keys.includes(line.key)),
		`${title}: every request carried the claim's key`);
}

await open();

const dinner = { amount: 199.5, currency: 'EUR', payee: 'acct_42', memo: 'please hurry' };

// P1, P3: an agent that saw a time-out calls again, while the first call still runs and after it
await story('time-out, then re-plan', 'idempotent', async (bank, title) => {
	const alice = await agent('alice', bank, { env: { BANK_TIMEOUT: '1500' } });
	const { fingerprint } = await alice.call('charge_preview', dinner);
	await bank.meet('hang', 'hang', 'ok');
	const call = alice.call('charge_confirm', { fingerprint, ...dinner }, 600);
	await until('a request', () => bank.ledger('request').length === 1);
	ok((await call) === null, `${title}: the agent sees a time-out`);
	const again = await alice.call('charge_confirm', { fingerprint, ...dinner });
	ok(again.status === 'in_progress' && again.effect === 'unknown', `${title}: its second call is told to wait`);
	const status = await alice.poll(fingerprint);
	ok(status.status === 'already_completed' && status.result.order, `${title}: it learns the outcome`);
	const late = await alice.call('charge_confirm', { fingerprint, ...dinner });
	ok(late.status === 'already_completed' && late.result.order === status.result.order, `${title}: a retry gets the first result`);
	ok(bank.ledger('request').length === 3 && new Set(bank.ledger('request').map((line) => line.key)).size === 1,
		`${title}: three internal tries, one key`);
	await ends(bank, title, 'alice');
	await alice.close();
});

// P1: the lease is kept while a slow bank works for longer than it, and nobody takes over meanwhile
await story('the bank takes longer than the lease', 'opaque', async (bank, title) => {
	const bruno = await agent('bruno', bank);
	const { fingerprint } = await bruno.call('charge_preview', dinner);
	await bank.meet('hold');
	const first = bruno.call('charge_confirm', { fingerprint, ...dinner });
	await until('a request', () => bank.ledger('request').length === 1);
	const [{ lease }] = await sql("SELECT lease_until AS lease FROM idem_audit WHERE subject = 'bruno'");
	await until('the first lease is over', async () => (await sql('SELECT clock_timestamp() > $1 AS over', [lease]))[0].over);
	const again = await bruno.call('charge_confirm', { fingerprint, ...dinner });
	ok(again.status === 'in_progress', `${title}: a second call is told to wait, the lease having been renewed`);
	await bank.go();
	ok((await first).status === 'already_completed', `${title}: the first call gets its result`);
	await ends(bank, title, 'bruno');
	await bruno.close();
});

// P3: what the scope does not count as material may change; and a token may come back in a model's quotes
await story('the memo is reworded', 'opaque', async (bank, title) => {
	const chen = await agent('chen', bank);
	const { fingerprint } = await chen.call('charge_preview', dinner);
	const first = await chen.call('charge_confirm', { fingerprint, ...dinner });
	ok(first.status === 'already_completed' && first.effect === 'happened', `${title}: charged`);
	const again = await chen.call('charge_confirm', { ...dinner, fingerprint: `\`${fingerprint}\``, memo: 'as soon as possible, please' });
	ok(again.status === 'already_completed' && JSON.stringify(again.result) === JSON.stringify(first.result),
		`${title}: the same result`);
	const cut = await chen.call('charge_confirm', { ...dinner, fingerprint: fingerprint.slice(0, -4) });
	ok(cut.status === 'not_recognised' && cut.effect === 'unknown', `${title}: a shortened fingerprint is not recognised`);
	await ends(bank, title, 'chen');
	await chen.close();
});

// P7: other parameters than those previewed, before and after
await story('the amount is changed', 'opaque', async (bank, title) => {
	const dana = await agent('dana', bank);
	const { fingerprint } = await dana.call('charge_preview', dinner);
	const before = await dana.call('charge_confirm', { ...dinner, fingerprint, amount: 1.5 });
	ok(before.status === 'parameters_changed' && before.must_equal.includes('/amount'), `${title}: refused, with what must be equal`);
	ok(bank.ledger().length === 0, `${title}: the bank was not asked`);
	await dana.call('charge_confirm', { fingerprint, ...dinner });
	const after = await dana.call('charge_confirm', { ...dinner, fingerprint, amount: 1999.5 });
	ok(after.status === 'parameters_changed' && !('result' in after), `${title}: refused after the charge, without its result`);
	const [alert] = await sql("SELECT count FROM idem_alert WHERE kind LIKE 'param%' AND subject = 'dana'");
	ok(alert !== undefined, `${title}: there is an alert`);
	await ends(bank, title, 'dana');
	await dana.close();
});

// P7: somebody else's fingerprint
await story('another subject presents the fingerprint', 'opaque', async (bank, title) => {
	const emil = await agent('emil', bank);
	const mallory = await agent('mallory', bank);
	const { fingerprint } = await emil.call('charge_preview', dinner);
	const before = await mallory.call('charge_confirm', { fingerprint, ...dinner });
	await emil.call('charge_confirm', { fingerprint, ...dinner });
	const after = await mallory.call('charge_confirm', { fingerprint, ...dinner });
	const status = await mallory.call('charge_status', { fingerprint });
	const same = (one, other) => ['status', 'meaning', 'instruction', 'effect', 'result'].every((name) => one[name] === other[name]);
	ok(before.status === 'not_yours' && same(before, after), `${title}: the same answer before and after the charge`);
	ok(status.status === 'not_yours' && !('result' in status), `${title}: nor does the status say anything`);
	await ends(bank, title, 'emil');
	await emil.close();
	await mallory.close();
});

// P5, repeat_guard: a fresh preview of what has been done; "once more" that means the first one
await story('memory lost, previewed again; "once more" means: did it work?', 'opaque', async (bank, title) => {
	const fatima = await agent('fatima', bank, { person: () => false });
	const first = await fatima.call('charge_preview', dinner);
	const spare = await fatima.call('charge_preview', dinner);
	const done = await fatima.call('charge_confirm', { ...dinner, fingerprint: first.fingerprint });
	const again = await fatima.call('charge_preview', { ...dinner, memo: 'for the dinner' });
	ok(again.status === 'likely_repeat' && !('fingerprint' in again) && again.result.order === done.result.order,
		`${title}: the preview tells of the first charge and gives no fingerprint`);
	const other = await fatima.call('charge_confirm', { ...dinner, fingerprint: spare.fingerprint });
	ok(other.status === 'likely_repeat', `${title}: a fingerprint from before is not granted either`);
	const asked = await fatima.call('charge_preview', { ...dinner, once_more: true });
	ok(asked.status === 'likely_repeat' && asked.result.order === done.result.order,
		`${title}: the person says no, and the first result is the answer`);
	await ends(bank, title, 'fatima');
	await fatima.close();
});

// repeat_guard: "once more" that means a second charge
await story('"once more" means: a second charge', 'opaque', async (bank, title) => {
	const asked = [];
	const goran = await agent('goran', bank, { person: (question) => asked.push(question) > 0 });
	const first = await goran.call('charge_preview', dinner);
	const one = await goran.call('charge_confirm', { ...dinner, fingerprint: first.fingerprint });
	const second = await goran.call('charge_preview', { ...dinner, once_more: true });
	ok(second.status === 'preview_ready' && asked.length === 1 && asked[0].includes(one.result.order),
		`${title}: the person was asked, told of the first charge`);
	const two = await goran.call('charge_confirm', { ...dinner, fingerprint: second.fingerprint });
	ok(two.status === 'already_completed' && two.result.order !== one.result.order, `${title}: charged a second time`);
	const retry = await goran.call('charge_confirm', { ...dinner, fingerprint: second.fingerprint });
	ok(retry.result.order === two.result.order, `${title}: and a retry of that does not make a third`);
	await ends(bank, title, 'goran', 2);
	await goran.close();

	const alone = await agent('goran', bank);
	const unasked = await alone.call('charge_preview', { ...dinner, once_more: true });
	ok(unasked.status === 'likely_repeat', `${title}: a model whose client cannot ask a person gets no fingerprint`);
	await alone.close();
});

/* A charge whose gateway is killed after the bank has charged; resolves to its fingerprint and the next agent. */
async function killed(bank, subject, title, options) {
	const first = await agent(subject, bank);
	const second = await agent(subject, bank, options);
	const { fingerprint } = await first.call('charge_preview', dinner);
	await bank.meet('hang');
	const call = first.call('charge_confirm', { fingerprint, ...dinner });
	await until('a charge', () => bank.ledger('charge').length === 1);
	await first.kill();
	ok((await call) === null, `${title}: the agent gets no answer`);
	return [fingerprint, second];
}

// P1, P5: killed between the charge and the commit; the bank deduplicates, so that the retry goes on with its key
await story('the gateway is killed mid-flight', 'idempotent', async (bank, title) => {
	const [fingerprint, hana] = await killed(bank, 'hana', title);
	const status = await hana.call('charge_status', { fingerprint });
	const [{ runs }] = await sql("SELECT lease_until > clock_timestamp() AS runs FROM idem_audit WHERE subject = 'hana'");
	ok(status.status === 'in_progress' || !runs, `${title}: while the lease runs, it is in progress`);
	const over = await hana.poll(fingerprint);
	ok(over.retryable && over.effect === 'unknown', `${title}: then the same operation may go on`);
	const retry = await hana.call('charge_confirm', { fingerprint, ...dinner });
	ok(retry.status === 'already_completed' && retry.result.order, `${title}: it goes on, and has a result`);
	ok(bank.ledger('request').length === 2, `${title}: the bank was asked twice`);
	await ends(bank, title, 'hana');
	await hana.close();
});

// P5: the same; the bank can be asked, so that the gateway finds out and records it
await story('the gateway is killed mid-flight', 'queryable', async (bank, title) => {
	const [fingerprint, ivan] = await killed(bank, 'ivan', title);
	const status = await ivan.poll(fingerprint);
	ok(status.status === 'already_completed' && status.result.order, `${title}: the gateway asked the bank, and knows`);
	const retry = await ivan.call('charge_confirm', { fingerprint, ...dinner });
	ok(retry.status === 'already_completed', `${title}: and so does a retry`);
	const [audit] = await sql("SELECT reconciled_by, reconcile_note FROM idem_audit WHERE subject = 'ivan'");
	ok(audit.reconciled_by === 'idem_example_operator' && audit.reconcile_note, `${title}: it is on record who said so`);
	ok(bank.ledger('request').length === 1, `${title}: nothing was sent twice`);
	await ends(bank, title, 'ivan');
	await ivan.close();
});

// P5: killed before the bank has charged: it knows nothing of the key, and the operation goes on
await story('the gateway is killed before the charge', 'queryable', async (bank, title) => {
	const first = await agent('jana', bank);
	const { fingerprint } = await first.call('charge_preview', dinner);
	await bank.meet('hold');
	const call = first.call('charge_confirm', { fingerprint, ...dinner });
	await until('a request', () => bank.ledger('request').length === 1);
	await first.kill();
	await call;
	await bank.close();
	await bank.open();
	say('  the bank restarts: the request is lost, the ledger is not');
	const jana = await agent('jana', bank);
	const status = await jana.poll(fingerprint);
	ok(status.retryable, `${title}: the gateway asked the bank, and the operation may go on`);
	const retry = await jana.call('charge_confirm', { fingerprint, ...dinner });
	ok(retry.status === 'already_completed', `${title}: it goes on`);
	await ends(bank, title, 'jana');
	await jana.close();
});

// P1, P4: a gateway that stalls, and wakes when its operation is somebody else's, sends nothing more
await story('the gateway stalls before it has sent anything', 'queryable', async (bank, title) => {
	const first = await agent('pavel', bank, { env: { BANK_BACKOFF: '1000' } });
	const pavel = await agent('pavel', bank);
	const { fingerprint } = await first.call('charge_preview', dinner);
	await bank.close();
	const call = first.call('charge_confirm', { fingerprint, ...dinner });
	await until('a claim', async () => (await sql("SELECT FROM idem_audit WHERE subject = 'pavel'")).length === 1);
	const goOn = first.stall();
	await bank.open();
	await pavel.poll(fingerprint);
	const retry = await pavel.call('charge_confirm', { fingerprint, ...dinner });
	ok(retry.status === 'already_completed', `${title}: another gateway goes on with it`);
	goOn();
	const late = await call;
	ok(late.status === 'already_completed' && late.result.order === retry.result.order,
		`${title}: the one that had stalled answers with the result of the other`);
	ok(bank.ledger('request').length === 1, `${title}: and has sent nothing`);
	await ends(bank, title, 'pavel');
	await first.close();
	await pavel.close();
});

// P5: killed mid-flight, with a bank that cannot say: only a person can find out; in Chinese
await story('the gateway is killed mid-flight', 'opaque', async (bank, title) => {
	const [fingerprint, kang] = await killed(bank, 'kang', title, { env: { PGOPTIONS: '-c idem.lang=zh' } });
	const status = await kang.poll(fingerprint);
	ok(status.status === 'outcome_unknown' && !status.retryable && status.effect === 'unknown',
		`${title}: the outcome is unknown`);
	const retry = await kang.call('charge_confirm', { fingerprint, ...dinner });
	ok(retry.status === 'outcome_unknown', `${title}: a retry is not granted`);
	const again = await kang.call('charge_preview', dinner);
	ok(again.status === 'likely_repeat' && again.effect === 'unknown', `${title}: nor is a new preview a way around`);

	const [{ key, order }] = bank.ledger('charge').map((line) => ({ key: line.key, order: line.outcome.result.order }));
	say(`  the operator finds ${order} on the bank's statement, and says so`);
	const verdict = await operator("SELECT idem_reconcile($1, 'DONE', 'line 17 of the statement', $2, $3) AS ack",
		[key, { order }, order]);
	ok(verdict.ack === 'OK', `${title}: the verdict is taken`);
	const known = await kang.call('charge_confirm', { fingerprint, ...dinner });
	ok(known.status === 'already_completed' && known.result.order === order, `${title}: from then on every retry knows`);
	await ends(bank, title, 'kang');
	await kang.close();
});

// P5: the same without an operator's connection: a gateway that may not say what happened leaves it to a person
await story('the gateway is killed mid-flight and has no operator', 'queryable', async (bank, title) => {
	const [fingerprint, lena] = await killed(bank, 'lena', title, { settles: false });
	const status = await lena.poll(fingerprint);
	ok(status.status === 'outcome_unknown', `${title}: it says that a person must look`);
	await ends(bank, title, 'lena');
	await lena.close();
});

// P3: a refusal is final, and replayed
await story('the bank refuses', 'opaque', async (bank, title) => {
	const mira = await agent('mira', bank);
	const { fingerprint } = await mira.call('charge_preview', dinner);
	await bank.meet('refuse');
	const first = await mira.call('charge_confirm', { fingerprint, ...dinner });
	ok(first.status === 'already_failed' && first.result.code === 'insufficient_funds', `${title}: the reason is told`);
	const again = await mira.call('charge_confirm', { fingerprint, ...dinner });
	ok(again.status === 'already_failed' && again.result.code === 'insufficient_funds', `${title}: and told again`);
	ok(bank.ledger('request').length === 1, `${title}: the bank was asked once`);
	const anew = await mira.call('charge_preview', dinner);
	ok(anew.status === 'preview_ready', `${title}: the user may want it anew: nothing was charged`);
	await ends(bank, title, 'mira', 0);
	await mira.close();
});

// P5: nothing was sent, so that the claim is given up and goes on later
await story('the bank is down', 'opaque', async (bank, title) => {
	const nils = await agent('nils', bank);
	const { fingerprint } = await nils.call('charge_preview', dinner);
	await bank.close();
	const down = await nils.call('charge_confirm', { fingerprint, ...dinner });
	ok(down.effect === 'none' && down.retryable, `${title}: nothing has happened, and the same operation may go on`);
	await bank.open();
	const up = await nils.call('charge_confirm', { fingerprint, ...dinner });
	ok(up.status === 'already_completed', `${title}: it goes on when the bank is there again`);
	await ends(bank, title, 'nils');
	await nils.close();
});

// P3: connections to the database break while the bank works; the result is kept all the same
await story('the database connections break mid-flight', 'opaque', async (bank, title) => {
	const olga = await agent('olga', bank);
	const { fingerprint } = await olga.call('charge_preview', dinner);
	await bank.meet('hold');
	const call = olga.call('charge_confirm', { fingerprint, ...dinner });
	await until('a request', () => bank.ledger('request').length === 1);
	const [{ broken }] = await sql("SELECT count(pg_terminate_backend(pid))::int AS broken FROM pg_stat_activity WHERE usename = 'idem_example_gateway'");
	say(`  connections broken: ${broken}`);
	await bank.go();
	const first = await call;
	ok(broken > 0 && first.status === 'already_completed', `${title}: the gateway connects again and keeps the result`);
	await ends(bank, title, 'olga');
	await olga.close();
});

await close();
say();
say(`1..${checks}`);
process.exitCode = failed ? 1 : 0;
