/*
 * gateway.mjs: the three tools, over MCP on standard input and output.
 *
 * Environment: PGHOST, PGUSER, ... for the role with signer and caller; OPERATOR_USER, if set, for a second
 * connection with operator; SUBJECT, whom this process acts for; BANK_URL; DOWNSTREAM, what the bank can do, as in
 * idem_policy; BANK_TIMEOUT and BANK_BACKOFF in milliseconds.
 */
import { McpServer } from '@modelcontextprotocol/sdk/server/mcp.js';
import { StdioServerTransport } from '@modelcontextprotocol/sdk/server/stdio.js';
import pg from 'pg';
import { z } from 'zod';
import { bank } from './bank.mjs';
import { charges } from './charge.mjs';

const { SUBJECT, OPERATOR_USER, BANK_URL, BANK_TIMEOUT = '30000', BANK_BACKOFF = '200', DOWNSTREAM = 'opaque' } = process.env;
if (!SUBJECT || !BANK_URL) throw new Error('SUBJECT and BANK_URL must be set');

function pool(options) {
	const it = new pg.Pool({ max: 10, allowExitOnIdle: true, connectionTimeoutMillis: 5_000, ...options });
	it.on('error', () => {}); // an idle connection broke: the next call gets another
	return it;
}

const charge = charges({
	db: pool(),
	operator: OPERATOR_USER ? pool({ user: OPERATOR_USER, max: 2 }) : undefined,
	bank: bank({ url: BANK_URL, downstream: DOWNSTREAM, timeout: Number(BANK_TIMEOUT), backoff: Number(BANK_BACKOFF) }),
	subject: SUBJECT,
});

const server = new McpServer({ name: 'charge-gateway', version: '1.0.0' });

const operation = {
	amount: z.number().positive().lt(1e9).multipleOf(0.01).describe('amount, at most two decimals'),
	currency: z.string().regex(/^[A-Z]{3}$/).describe('ISO 4217 code'),
	payee: z.string().min(1).max(100).describe('account to pay to'),
	memo: z.string().max(500).optional().describe('free text for the payee; may be reworded'),
};
const fingerprint = z.string().describe('the fingerprint of the preview, copied unchanged');

/* The reply is the answer: a refusal is one to go on from, not an error that breaks the agent's work off. */
async function answer(work) {
	try {
		const reply = await work();
		return { content: [{ type: 'text', text: reply }] };
	} catch (error) {
		console.error(`charge-gateway: ${error.code ?? error.name}: ${error.message}`);
		return { content: [{ type: 'text', text: JSON.stringify(outOfOrder) }], isError: true };
	}
}

/* What a model is told where idem could not be asked: the one text that is not idem_reply's. */
const outOfOrder = {
	status: 'outcome_unknown',
	meaning: 'The gateway cannot reach its records. Whether the charge has happened is unknown.',
	instruction: 'Do not call this tool again and do not make another preview. Tell the user that the outcome is unknown. '
		+ 'When the user asks about it later, call charge_status with the fingerprint, if there is one.',
	retryable: false,
	effect: 'unknown',
	poll_with: 'charge_status',
};

/* Whether a person wants an equal charge once more. A model that says so is no person: the person is asked. */
function personWants({ amount, currency, payee }) {
	if (!server.server.getClientCapabilities()?.elicitation) return undefined;
	return async (reply) => {
		const before = reply.result?.order ? `made before (${reply.result.order})` : 'begun before, its outcome not known yet,';
		const said = await server.server.elicitInput({
			message: `An equal charge was ${before} a short while ago. Charge ${amount} ${currency} to ${JSON.stringify(payee)} a second time?`,
			requestedSchema: {
				type: 'object',
				properties: { second_charge: { type: 'boolean', title: 'Yes, charge a second time' } },
				required: ['second_charge'],
			},
		}, { timeout: 600_000 });
		return said.action === 'accept' && said.content?.second_charge === true;
	};
}

server.registerTool('charge_preview', {
	description: 'Prepare a charge. Nothing is charged. Returns a fingerprint for charge_confirm.',
	inputSchema: {
		...operation,
		once_more: z.boolean().optional()
			.describe('only after likely_repeat, when the user wants a second charge; the user is then asked to confirm'),
	},
	annotations: { readOnlyHint: true },
}, ({ once_more, ...params }) => answer(() => charge.preview(params, once_more ? personWants(params) : undefined)));

server.registerTool('charge_confirm', {
	description: 'Make the charge that charge_preview prepared, with its fingerprint and the same parameters.',
	inputSchema: { fingerprint, ...operation },
	annotations: { destructiveHint: true, idempotentHint: true },
}, ({ fingerprint, ...params }) => answer(() => charge.confirm(fingerprint, params)));

server.registerTool('charge_status', {
	description: 'What became of a charge, by its fingerprint. Charges nothing.',
	inputSchema: { fingerprint },
	annotations: { readOnlyHint: true },
}, ({ fingerprint }) => answer(() => charge.status(fingerprint)));

await server.connect(new StdioServerTransport());
