/*
 * world.mjs: what the stories take place in: a database with the gateway's scope and roles, a bank of a given kind
 * with a fresh ledger, agents that speak MCP to gateway processes of their own. All of it is told as it happens.
 */
import { spawn } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as pause } from 'node:timers/promises';
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StdioClientTransport } from '@modelcontextprotocol/sdk/client/stdio.js';
import { ElicitRequestSchema } from '@modelcontextprotocol/sdk/types.js';
import pg from 'pg';

const here = new URL('..', import.meta.url).pathname;
const patience = 30_000;
const roles = ['idem_example_gateway', 'idem_example_operator'];
const folder = mkdtempSync(join(tmpdir(), 'gateway.'));
const lent = process.env.PGDATABASE ?? 'postgres';
const database = 'idem_example_gateway';
const running = new Set();
const banks = new Set();
let db;
let ledgers = 0;

export const say = (text = '') => console.log(text);

// ---------------------------------------------------------------------------------------------------------
// The database
// ---------------------------------------------------------------------------------------------------------

/* A database of our own with the extension, the roles, and the policy with times short enough for a story. */
export async function open() {
	await onServer(forget, `CREATE DATABASE ${database} TEMPLATE template0 ENCODING 'UTF8'`,
		...roles.map((role) => `CREATE ROLE ${role} LOGIN`));
	process.env.PGDATABASE = database;
	db = new pg.Client();
	await db.connect();
	await db.query('SET client_min_messages = warning');
	await db.query('CREATE EXTENSION idem CASCADE');
	await db.query(readFileSync(join(here, 'policy.sql'), 'utf8'));
	await db.query(`UPDATE idem_policy SET downstream_max = '300 ms', gateway_timeout = '300 ms', retry_backoff = '300 ms',
		in_flight_ttl = '2 s', poll_after = '200 ms' WHERE scope = 'charge'`);
}

const forget = [`DROP DATABASE IF EXISTS ${database} WITH (FORCE)`, ...roles.map((role) => `DROP ROLE IF EXISTS ${role}`)];

async function onServer(...statements) {
	const server = new pg.Client({ database: lent });
	await server.connect();
	for (const statement of statements.flat()) await server.query(statement);
	await server.end();
}

export async function close() {
	for (const it of [...running]) await it.close();
	await db.end();
	await onServer(forget);
}

// a story that breaks off leaves no bank behind; a gateway ends when its agent does
process.on('exit', () => {
	for (const child of banks) child.kill('SIGKILL');
	rmSync(folder, { recursive: true });
});

export const sql = async (text, values) => (await db.query(text, values)).rows;

/* The operator's verdict, as a person would type it. */
export async function operator(text, values) {
	const person = new pg.Client({ user: roles[1] });
	await person.connect();
	try {
		return (await person.query(text, values)).rows[0];
	} finally {
		await person.end();
	}
}

// ---------------------------------------------------------------------------------------------------------
// The bank
// ---------------------------------------------------------------------------------------------------------

export async function openBank(kind) {
	await db.query("UPDATE idem_policy SET downstream = $1 WHERE scope = 'charge'", [kind]);
	const file = join(folder, `ledger.${++ledgers}`);
	let child;
	const bank = { kind, meet, go, ledger, tell, open, close };

	async function open() {
		child = spawn(process.execPath, [join(here, 'provider.mjs')],
			{ env: { ...process.env, LEDGER: file, KIND: kind, PORT: bank.port ?? '0' }, stdio: ['ignore', 'pipe', 'inherit'] });
		running.add(bank);
		banks.add(child);
		bank.port = await new Promise((resolve, reject) => {
			child.stdout.once('data', (text) => resolve(String(text).trim()));
			child.once('exit', () => reject(new Error('the bank does not start')));
		});
		bank.url = `http://127.0.0.1:${bank.port}`;
	}

	async function close() {
		running.delete(bank);
		const gone = new Promise((resolve) => child.once('exit', resolve));
		child.kill('SIGKILL');
		await gone;
		banks.delete(child);
	}

	/* How the next requests are met: see provider.mjs. */
	async function meet(...answers) {
		await fetch(`${bank.url}/next`, { method: 'POST', body: JSON.stringify(answers) });
	}

	/* Let go what it holds. */
	async function go() {
		await fetch(`${bank.url}/go`, { method: 'POST' });
	}

	function ledger(event) {
		let text = '';
		try {
			text = readFileSync(file, 'utf8');
		} catch (error) {
			if (error.code !== 'ENOENT') throw error;
		}
		return text.split('\n').filter(Boolean).map((line) => JSON.parse(line)).filter((line) => !event || line.event === event);
	}

	function tell() {
		say();
		say("  the bank's ledger");
		for (const { event, key, amount, currency, payee, how, outcome } of ledger())
			say('    ' + [event.padEnd(8), key, amount, currency, payee, how && `(${how})`, outcome?.result?.order,
				outcome?.reason?.code].filter((part) => part !== undefined).join(' '));
	}

	await open();
	return bank;
}

// ---------------------------------------------------------------------------------------------------------
// The agent
// ---------------------------------------------------------------------------------------------------------

/*
 * An agent of a user, connected to a gateway process of its own. person answers what the gateway asks the user; a
 * gateway without an operator connection (settles: false) leaves broken off charges to people.
 */
export async function agent(subject, bank, { person, settles = true, env = {} } = {}) {
	const client = new Client({ name: 'scripted-agent', version: '1.0.0' }, { capabilities: person ? { elicitation: {} } : {} });
	const transport = new StdioClientTransport({
		command: process.execPath,
		args: [join(here, 'gateway.mjs')],
		env: {
			...process.env, PGUSER: roles[0], OPERATOR_USER: settles ? roles[1] : '', SUBJECT: subject,
			BANK_URL: bank.url, BANK_TIMEOUT: '20000', DOWNSTREAM: bank.kind, ...env,
		},
	});
	if (person)
		client.setRequestHandler(ElicitRequestSchema, ({ params }) => {
			const yes = person(params.message);
			say(`  gateway asks ${subject}: ${params.message}`);
			say(`  ${subject}: ${yes ? 'yes' : 'no'}`);
			return { action: 'accept', content: { second_charge: yes } };
		});
	await client.connect(transport);
	const it = { call, poll, stall, kill, close };
	running.add(it);

	/* Call a tool; resolves to the reply, or to null if none came in time (milliseconds). */
	async function call(tool, args, timeout = patience) {
		say(`  agent of ${subject}: ${tool} ${JSON.stringify(args, brief)}`);
		try {
			const result = await client.callTool({ name: tool, arguments: args }, undefined, { timeout });
			const reply = result.isError && !result.content[0].text.startsWith('{')
				? { status: 'error', meaning: result.content[0].text } : JSON.parse(result.content[0].text);
			tellReply(reply);
			return reply;
		} catch (error) {
			say(`    <- no answer (${error.message})`);
			return null;
		}
	}

	/* Ask for the status, as the replies say, until it is another than in_progress. */
	async function poll(fingerprint) {
		const end = Date.now() + patience;
		for (;;) {
			const result = await client.callTool({ name: 'charge_status', arguments: { fingerprint } });
			const reply = JSON.parse(result.content[0].text);
			if (reply.status !== 'in_progress' || Date.now() > end) {
				say(`  agent of ${subject}: charge_status ${JSON.stringify({ fingerprint }, brief)}, until it is no longer in_progress`);
				tellReply(reply);
				return reply;
			}
			await pause(reply.poll_after_ms);
		}
	}

	/* Stop the gateway; resolves to a function that lets it go on. */
	function stall() {
		process.kill(transport.pid, 'SIGSTOP');
		say('  the gateway stalls (SIGSTOP)');
		return () => {
			process.kill(transport.pid, 'SIGCONT');
			say('  the stalled gateway goes on (SIGCONT)');
		};
	}

	async function kill() {
		running.delete(it);
		const gone = new Promise((resolve) => { client.onclose = resolve; });
		process.kill(transport.pid, 'SIGKILL');
		say('  the gateway is killed (SIGKILL)');
		await gone;
	}

	async function close() {
		running.delete(it);
		await client.close();
	}

	return it;
}

/* A signature is nobody's to read, in a transcript neither. */
const brief = (name, value) => (name === 'fingerprint' && value?.length > 24 ? `${value.slice(0, 12)}...` : value);

/* The long texts are printed once each. */
const told = new Set();

function tellReply(reply) {
	say(`    <- ${reply.status}, effect ${reply.effect}`);
	for (const name of ['meaning', 'instruction', 'must_equal', 'result', 'fingerprint']) {
		const text = typeof reply[name] === 'string' ? brief(name, reply[name]) : JSON.stringify(reply[name]);
		const texts = name === 'meaning' || name === 'instruction';
		if (text !== undefined && !(texts && told.has(text))) say(`       ${name}: ${text}`);
		if (texts) told.add(text);
	}
}

/* Wait for a condition. */
export async function until(what, condition) {
	const end = Date.now() + patience;
	while (!(await condition())) {
		if (Date.now() > end) throw new Error(`never: ${what}`);
		await pause(20);
	}
}
