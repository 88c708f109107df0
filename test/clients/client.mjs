// client.mjs STORY RUN MODE: the story told by pg (node-postgres), in mode text, prepared or pipeline.
import { randomUUID } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import pg from 'pg';

// recipe
const AGAIN = ['40001', '40P01'];

// Run work() in a transaction, again for as long as a concurrent one is in its way.
async function transaction(client, level, work) {
  for (;;) {
    try {
      await client.query(`BEGIN ISOLATION LEVEL ${level}`);
      const result = await work();
      await client.query('COMMIT');
      return result;
    } catch (error) {
      await client.query('ROLLBACK').catch(() => {}); // where the connection is lost the first error tells
      if (!AGAIN.includes(error.code)) throw error;
    }
  }
}

// Cause the effect of an operation once; returns what became of it, and its result. The grant is committed before
// the effect starts. owner is a fresh UUID, kept by the caller: after a lost connection the same call on a new one
// goes on. Where effect() throws, its outcome is unknown.
async function once(client, fingerprint, subject, scope, params, owner, effect) {
  const { rows: [claim] } = await client.query(
    'SELECT outcome, key, result FROM idem_acquire($1, $2, $3, $4, owner => $5)',
    [fingerprint, subject, scope, JSON.stringify(params), owner]);
  if (claim.outcome !== 'ACQUIRED') return claim;
  const result = await effect(claim.key); // the key is the request's Idempotency-Key
  const { rows: [{ ack }] } = await client.query(
    'SELECT idem_commit($1, $2, $3) AS ack', [claim.key, owner, JSON.stringify(result)]);
  if (ack === 'OK') return { outcome: 'DONE', key: claim.key, result };
  const { rows: [status] } = await client.query(
    'SELECT outcome, key, result FROM idem_status_key($1, $2)', [claim.key, subject]);
  return status;
}
// end of recipe

const [story, run, mode] = process.argv.slice(2);
const hosts = { main: process.env.PGHOST, other: process.env.PGHOST, standby: process.env.STANDBY_HOST };
const clients = {};
const names = { run };
let failed = 0;

// jsonb is left as the text that the server sent: JSON.parse() would round the numbers in it. There is no binary
// mode: pg takes the bytes of a value for UTF-8, which those of a uuid are not.
const types = { getTypeParser: (oid, format) => (oid === 3802 ? String : pg.types.getTypeParser(oid, format)) };

async function connect(name) {
  const client = clients[name] = new pg.Client({ host: hosts[name], types, pipeline: mode === 'pipeline' });
  client.on('error', () => {}); // a lost connection is told to the next query
  await client.connect();
}

const value = (type, text) => (type === 'int' ? Number(text) : type === 'timestamptz' ? new Date(text) : text);
const text = (got) => (got === null ? 'null' : got instanceof Date ? got.toISOString() : String(got));
const filled = (given) => given.replace(/<(\w+)>/g, (_, name) => names[name]);

function say(name, problem) {
  if (problem !== undefined) failed++;
  console.log(problem === undefined ? `ok - ${name}` : `not ok - ${name}: ${problem}`);
}

// Run a statement; what the transaction's repetition needs is thrown.
async function perform(step) {
  let problem;
  try {
    const { rows: [row] } = await clients[step.on].query({
      text: step.sql,
      values: step.args.map(([type, given]) => (given === null ? null : value(type, filled(given)))),
      name: mode === 'prepared' ? String(step.number) : undefined,
    });
    for (const [column, wanted] of step.is) {
      if (text(row[column]) !== filled(wanted)) problem = `${column} is ${text(row[column])}, not ${filled(wanted)}`;
    }
    for (const column of step.keep) names[column] = text(row[column]);
    if (step.error) problem = 'it did not fail';
  } catch (error) {
    if (AGAIN.includes(error.code)) throw error;
    if (error.code !== step.error) problem = `${error.code} ${error.message}`;
  }
  say(step.name, problem);
}

async function retried(level, steps, wanted) {
  let runs = 0;
  await transaction(clients.main, level, async () => {
    runs++;
    for (const step of steps) if (runs === 1 || !step.first) await perform(step);
  });
  say(`${level}, repeated`, runs === Number(wanted) ? undefined : `${runs} runs`);
}

// All are sent before the first is answered; without pg's pipeline mode one after the other.
async function pipelined(steps) {
  if (mode === 'pipeline') await Promise.all(steps.map(perform));
  else for (const step of steps) await perform(step);
  if (mode === 'pipeline') say('pipelined');
  else console.log('skip - pipelined: only in its mode');
}

async function lost(name, what) {
  await clients[name].query('SELECT 1').then(() => say(what, 'the connection is there'), () => say(what));
  await clients[name].end().catch(() => {});
  await connect(name);
}

async function cut(name, what) {
  clients[name].connection.stream.destroy();
  await lost(name, what);
}

// Read the story and act on each line; a step is performed when all its lines are read.
async function tell() {
  let step, block, level, number = 0;
  for (const line of readFileSync(story, 'utf8').split('\n')) {
    const [, word, rest] = line.match(/^(\S*) ?(.*)$/);
    const [, first, second] = rest.match(/^(\S*) ?(.*)$/);
    if (word === 'arg') step.args.push([first, second]);
    else if (word === 'null') step.args.push([first, null]);
    else if (word === 'is') step.is.push([first, second]);
    else if (word === 'keep') step.keep.push(rest);
    else if (['on', 'sql', 'error', 'first'].includes(word)) step[word] = rest || true;
    else if (word && word !== '#') {
      const before = step;
      if (step && block) block.push(step);
      else if (step) await perform(step);
      step = undefined;
      if (word === 'step') step = { name: rest, number: number++, on: 'main', args: [], is: [], keep: [] };
      else if (word === 'new') names[rest] = randomUUID();
      else if (word === 'retry' || word === 'pipeline') [block, level] = [[], rest];
      else if (word === 'end') {
        await (level ? retried(level, block, rest) : pipelined(block));
        block = undefined;
      } else if (word === 'lost') await lost(rest, `lost after: ${before.name}`);
      else if (word === 'cut') await cut(rest, `cut after: ${before.name}`);
    }
  }
  await perform(step);
}

async function recipe() {
  const client = new pg.Client();
  await client.connect();
  const params = { amount: 20, payee: run, currency: 'EUR' };
  const { rows: [{ fp }] } = await client.query("SELECT idem_sign($1, 'charge', $2) AS fp", [run, JSON.stringify(params)]);
  const effect = async (key) => {
    await clients.other.query('INSERT INTO sent VALUES ($1)', [key]);
    return { sent: key };
  };
  const answers = [];
  for (let i = 0; i < 2; i++) answers.push(await once(client, fp, run, 'charge', params, randomUUID(), effect));
  const { rows: [{ n }] } = await clients.other.query('SELECT count(*) AS n FROM sent WHERE idem_key = $1', [answers[0].key]);
  const same = JSON.stringify(answers[0]) === JSON.stringify(answers[1]) && answers[0].outcome === 'DONE';
  say('recipe', same && n === '1' ? undefined : `${JSON.stringify(answers)} ${n}`);
  await client.end();
}

for (const name of Object.keys(hosts)) await connect(name);
await tell();
await recipe();
for (const client of Object.values(clients)) await client.end();
console.log(`# pg ${createRequire(import.meta.url)('pg/package.json').version}, Node.js ${process.versions.node}`);
process.exit(failed > 0 ? 1 : 0);
