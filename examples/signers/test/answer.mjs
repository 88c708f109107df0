// Answer requests, one JSON object a line, with one line each: how test/suites/signers asks the signer in Node.js.
import { createInterface } from 'node:readline'
import * as signer from '../node/idem_signer.mjs'

const hex = text => Buffer.from(text).toString('hex')
const bytes = text => Buffer.from(text, 'hex')

function answer({ op, params, subject, scope, material, immaterial, ...ask }) {
  const lists = { material, immaterial }
  switch (op) {
    case 'canonical':
      return [
        hex(signer.canonical(params, lists)),
        hex(signer.paramHash(params, lists)),
        signer.directKey(subject, scope, params, lists),
      ].join(' ')
    case 'document':
      return signer.canonical(params, lists)
    case 'inexact':
      return signer.canonical({ amount: 2 ** 53 })
    case 'version':
      return String(signer.listVersion(lists))
    case 'sign': {
      const { secret, exp, ttl, key, confirm_repeat: confirmRepeat } = ask
      return signer.sign(bytes(secret), subject, scope, params, { ...lists, exp, ttl, key, confirmRepeat })
    }
    case 'verify': {
      const said = signer.verify(ask.secrets.map(bytes), ask.token)
      if (said === null) return 'invalid'
      const { key, exp, paramHash, version, confirmedRepeat } = said
      return [key, exp, hex(said.subject), hex(said.scope), hex(paramHash), version, confirmedRepeat].join(' ')
    }
    case 'key':
      return signer.directKey(subject, scope, params, { ...lists, clientKey: ask.client_key })
    case 'step':
      return signer.stepKey(ask.key, ask.step)
  }
  throw new Error(`no such request: ${op}`)
}

const out = []
for await (const line of createInterface({ input: process.stdin, crlfDelay: Infinity })) {
  try {
    out.push(answer(JSON.parse(line)))
  } catch (error) {
    out.push(error instanceof signer.NothingMaterial ? 'immaterial' : 'refused')
  }
}
process.stdout.write(out.map(text => `${text}\n`).join(''))
