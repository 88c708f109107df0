/*
 * provider.mjs: a fake payment provider, its own process with its own ledger.
 *
 * Environment: LEDGER, a file to which it appends one JSON line for each request and each charge; KIND, what it can
 * do: idempotent (deduplicates on the Idempotency-Key), queryable (GET /charges/KEY says what became of one), opaque.
 * It listens on PORT (0: any) of the loopback interface, and prints the number.
 *
 * POST /next with a JSON array says how it meets the next requests; without, "ok":
 *   ok      charges and answers
 *   hang    charges and never answers
 *   hold    charges and answers when POST /go comes
 *   refuse  charges nothing and answers 402
 */
import { once, EventEmitter } from 'node:events';
import { appendFileSync, readFileSync } from 'node:fs';
import { createServer } from 'node:http';

const { LEDGER, KIND = 'opaque', PORT = '0' } = process.env;
const known = new Map(); // key -> the first outcome; a ledger that is there already is taken over
const gate = new EventEmitter();
let orders = 1000;
let next = [];

function note(line) {
	appendFileSync(LEDGER, JSON.stringify(line) + '\n');
	take(line);
}

function take({ event, key, outcome }) {
	if (event === 'charge') orders++;
	if (event !== 'request' && !known.has(key)) known.set(key, outcome);
}

try {
	readFileSync(LEDGER, 'utf8').split('\n').filter(Boolean).map((line) => JSON.parse(line)).forEach(take);
} catch (error) {
	if (error.code !== 'ENOENT') throw error;
}

async function charge(key, { amount, currency, payee }) {
	const how = next.shift() ?? 'ok';
	note({ event: 'request', key, amount, currency, payee, how });
	if (how === 'hold') await once(gate, 'go');
	if (KIND === 'idempotent' && known.has(key)) return { how, outcome: known.get(key) };
	if (how === 'refuse') {
		const outcome = { state: 'refused', reason: { code: 'insufficient_funds', message: 'the account does not cover it' } };
		note({ event: 'refusal', key, outcome });
		return { how, outcome };
	}
	const outcome = { state: 'charged', result: { order: `ORD-${orders + 1}`, amount, currency, payee } };
	note({ event: 'charge', key, amount, currency, payee, outcome });
	return { how, outcome };
}

function send(response, status, body) {
	response.writeHead(status, { 'Content-Type': 'application/json' });
	response.end(JSON.stringify(body));
}

async function read(request) {
	let text = '';
	for await (const part of request) text += part;
	return JSON.parse(text);
}

const server = createServer(async (request, response) => {
	const [, what, key] = request.url.split('/');
	if (request.method === 'POST' && what === 'next') {
		next = await read(request);
		send(response, 200, {});
	} else if (request.method === 'POST' && what === 'go') {
		gate.emit('go');
		send(response, 200, {});
	} else if (request.method === 'POST' && what === 'charges') {
		const header = (request.headers['idempotency-key'] ?? '').replace(/^"(.*)"$/, '$1');
		const { how, outcome } = await charge(header, await read(request));
		if (how === 'hang') return;
		send(response, outcome.state === 'charged' ? 200 : 402, outcome.result ?? outcome.reason);
	} else if (request.method === 'GET' && what === 'charges' && KIND !== 'opaque') {
		send(response, known.has(key) ? 200 : 404, known.get(key) ?? {});
	} else {
		send(response, 501, {});
	}
});
server.listen(Number(PORT), '127.0.0.1', () => console.log(server.address().port));
