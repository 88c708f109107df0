/**
 * Sign idem's fingerprints outside the database.
 *
 *     const token = sign(secret, 'alice', 'charge', '{"amount": 199.90, "payee": "acct_42"}',
 *                        { material: ['/amount', '/payee'] })
 *
 * The token is what idem_sign() makes in SQL, and idem_acquire() takes it, where the secret is one that the database
 * has (idem_import_secret, idem_export_secret) and the lists are those of the scope in idem_policy. README.md beside
 * this folder says more. Standard library only, Node.js 18 or later.
 *
 * Parameters are JSON text, or a document: plain object or Map, array, string, number, bigint, boolean, null. Text
 * is read exactly, as jsonb would read it: no number goes through a double, of duplicate members the last counts,
 * and what jsonb refuses throws. In a document a number stands for what JSON.stringify would write; an integer
 * beyond 2^53 is refused, since it may have lost digits already: give text or a bigint.
 *
 * @typedef {string[] | null} Pointers  RFC 6901, '*' for every element of an array; null: no list
 * @typedef {{ material?: Pointers, immaterial?: Pointers }} Lists
 * @typedef {{ key: string, exp: number, subject: string, scope: string, paramHash: Buffer, version: number,
 *             confirmedRepeat: boolean }} Fingerprint  exp in Unix seconds: past where exp <= Date.now() / 1000
 */
import { createHash, createHmac, randomBytes, timingSafeEqual } from 'node:crypto'

const TOKEN_MAX = 4096 // bytes
const EXPIRY_MAX = 253402300799 // 9999-12-31T23:59:59Z
const SCALE_MAX = 16383 // decimals of a jsonb number
const LEAD_MAX = 131071 // its first digit stands for 10 to this power at most
const EXPONENT_MAX = 2 ** 30 - 2 // as written
const UUID = /^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$/
const UUID_V7 = /^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/

/** Nothing of the parameters is material: a fingerprint would bind nothing. */
export class NothingMaterial extends Error {}

// Canonical JSON

/** A JSON number, every digit of it. */
export class ExactNumber {
  /** @param {string} text as JSON writes it */
  constructor(text) {
    this.text = text
    this.canonical = numberText(text)
    Object.freeze(this)
  }
}

/**
 * The document of a JSON text, with every object a Map and every number an ExactNumber. Throws for what jsonb would
 * refuse.
 *
 * @param {string} text
 */
export function parse(text) {
  return new Reader(text).document()
}

/**
 * The canonical JSON of the parameters' material part, without lists all of it: what idem_canonical() returns. Throws
 * NothingMaterial where there is a list and nothing is left, and other errors for what is no JSON.
 *
 * @param {any} params
 * @param {Lists} [lists]
 * @returns {string}
 */
export function canonical(params, { material = null, immaterial = null } = {}) {
  const root = pointerTree(material, immaterial)
  const document = typeof params === 'string' ? parse(params) : params
  if (root && !isContainer(document)) throw new NothingMaterial('a scalar has no members to select')
  const text = shallow(() => write(document, root ? [root] : [], material === null))
  if (root && (text === undefined || text === '{}' || text === '[]')) {
    throw new NothingMaterial('nothing of the parameters is material')
  }
  return text
}

/** SHA-256 of the canonical JSON: what idem_param_hash() returns. @param {any} params @param {Lists} [lists] */
export function paramHash(params, lists) {
  return sha256(canonical(params, lists))
}

/** The version of two lists, which a fingerprint carries; 0 without any. @param {Lists} [lists] */
export function listVersion({ material = null, immaterial = null } = {}) {
  if (pointerTree(material, immaterial) === null) return 0
  const text = canonical({ immaterial: immaterial && asSet(immaterial), material: material && asSet(material) })
  return (sha256(text).readUInt32BE() & 0x7fffffff) || 1
}

/** A list sorted by the bytes of UTF-8, without duplicates. */
function asSet(list) {
  return [...new Set(list)].sort((a, b) => Buffer.compare(Buffer.from(a), Buffer.from(b)))
}

/** Reads JSON (RFC 8259). JSON.parse would make doubles of its numbers. */
class Reader {
  constructor(text, { duplicates = true } = {}) {
    this.text = text
    this.at = 0
    this.duplicates = duplicates
  }

  document() {
    const value = shallow(() => this.value())
    if (this.next() !== undefined) this.fail()
    return value
  }

  fail() {
    throw new SyntaxError(`no JSON at character ${this.at}`)
  }

  /** The next character that is no white space. */
  next() {
    while (' \t\n\r'.includes(this.text[this.at] ?? 'end')) this.at++
    return this.text[this.at]
  }

  /** Step over this character; false where another one comes. */
  take(character) {
    if (this.next() !== character) return false
    this.at++
    return true
  }

  value() {
    switch (this.next()) {
      case '{': return this.object()
      case '[': return this.array()
      case '"': return this.string()
      default: return this.word()
    }
  }

  object() {
    const members = new Map()
    this.take('{')
    if (this.take('}')) return members
    do {
      if (this.next() !== '"') this.fail()
      const name = this.string()
      if (!this.take(':') || (!this.duplicates && members.has(name))) this.fail()
      members.set(name, this.value())
    } while (this.take(','))
    if (!this.take('}')) this.fail()
    return members
  }

  array() {
    const elements = []
    this.take('[')
    if (this.take(']')) return elements
    do elements.push(this.value())
    while (this.take(','))
    if (!this.take(']')) this.fail()
    return elements
  }

  string() {
    let end = this.at + 1
    for (; this.text[end] !== '"'; end++) {
      if (this.text[end] === '\\') end++
      if (end >= this.text.length) this.fail()
    }
    const token = this.text.slice(this.at, end + 1)
    this.at = end + 1
    return checkString(JSON.parse(token))
  }

  /** A number, true, false or null. */
  word() {
    const pattern = /true|false|null|-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?/y
    pattern.lastIndex = this.at
    const word = pattern.exec(this.text)?.[0] ?? this.fail()
    this.at = pattern.lastIndex
    return word === 'null' ? null : word === 'true' ? true : word === 'false' ? false : new ExactNumber(word)
  }
}

/** Run something recursive; too deep a nesting throws, as any refusal does. */
function shallow(recursive) {
  try {
    return recursive()
  } catch (error) {
    if (error instanceof RangeError && /call stack/.test(error.message)) throw new RangeError('nested too deeply')
    throw error
  }
}

function checkString(text) {
  if (typeof text !== 'string') throw new TypeError('a string is wanted')
  if (text.includes('\0')) throw new RangeError('a string holds U+0000, which PostgreSQL cannot store')
  if (/\p{Surrogate}/u.test(text)) throw new RangeError('a string holds a lone surrogate')
  return text
}

/**
 * The pointers of two lists as a tree of their tokens, or null without lists.
 *
 * @param {Pointers} material
 * @param {Pointers} immaterial
 */
function pointerTree(material, immaterial) {
  if (material === null && immaterial === null) return null
  const root = { children: new Map() }
  for (const [kind, list] of Object.entries({ material, immaterial })) {
    if (list === null) continue
    if (!Array.isArray(list) || list.length < 1 || list.length > 1000) {
      throw new RangeError(`${kind} must be null or a list of 1 to 1000 pointers`)
    }
    for (const pointer of list) plant(root, pointer)[kind] = true
  }
  if (root.immaterial) throw new RangeError('the parameters cannot be immaterial as a whole')
  return root
}

function plant(node, pointer) {
  if (!/^(?:\/(?:[^/~]|~[01])*)*$/.test(checkString(pointer)) || Buffer.byteLength(pointer) > 1024) {
    throw new RangeError('a list holds a string that is no JSON Pointer of at most 1024 bytes')
  }
  for (const part of pointer.split('/').slice(1)) {
    const token = part.replaceAll('~1', '/').replaceAll('~0', '~')
    if (!node.children.has(token)) node.children.set(token, { children: new Map() })
    node = node.children.get(token)
  }
  return node
}

function follow(nodes, ...tokens) {
  return nodes.flatMap(({ children }) => tokens.map(token => children.get(token))).filter(node => node !== undefined)
}

/**
 * A value's canonical JSON, or undefined where nothing of it is material. The nodes are where the pointers have come
 * to on the way here; selected says that a pointer above was material.
 */
function write(value, nodes, selected) {
  if (nodes.some(node => node.immaterial)) return undefined
  selected ||= nodes.some(node => node.material)
  if (!selected && nodes.length === 0) return undefined
  if (Array.isArray(value)) return writeArray(value, nodes, selected)
  if (isContainer(value)) return writeObject(value, nodes, selected)
  return selected ? scalarText(value) : undefined
}

function writeObject(object, nodes, selected) {
  const members = []
  // the default order of strings is that of their UTF-16 code units
  const entries = object instanceof Map ? [...object] : Object.entries(object)
  entries.sort(([a], [b]) => (a < b ? -1 : 1))
  for (const [name, value] of entries) {
    if (value === null || value === undefined) continue // null and absent are one and the same
    const text = write(value, follow(nodes, name), selected)
    if (text !== undefined) members.push(`${stringText(name)}:${text}`)
  }
  return members.length > 0 || selected ? `{${members.join(',')}}` : undefined
}

function writeArray(array, nodes, selected) {
  const elements = []
  let found = selected
  for (let i = 0; i < array.length; i++) {
    const text = write(array[i], follow(nodes, String(i), '*'), selected)
    found ||= text !== undefined
    elements.push(text ?? 'null') // so that places and their number stay bound
  }
  return found ? `[${elements.join(',')}]` : undefined
}

function isContainer(value) {
  if (typeof value !== 'object' || value === null || value instanceof ExactNumber) return false
  if (Array.isArray(value) || value instanceof Map) return true
  const prototype = Object.getPrototypeOf(value)
  if (prototype !== Object.prototype && prototype !== null) throw new TypeError('an object is no plain one')
  return true
}

function scalarText(value) {
  switch (typeof value) {
    case 'string':
      return stringText(value)
    case 'boolean':
    case 'bigint':
      return typeof value === 'bigint' ? numberText(String(value)) : String(value)
    case 'number':
      if (!Number.isFinite(value) || (Number.isInteger(value) && !Number.isSafeInteger(value))) break
      return numberText(String(value))
    case 'object':
      return value === null ? 'null' : value.canonical
  }
  throw new TypeError(`a ${typeof value} is no exact JSON value`)
}

/** JSON.stringify escapes as RFC 8785 wants it, once lone surrogates are out. */
function stringText(text) {
  return JSON.stringify(checkString(text))
}

/** All digits of a number, as Number's toString would lay them out. @param {string} text */
function numberText(text) {
  const match = /^(-?)(\d+)(?:\.(\d+))?(?:[eE]([+-]?\d+))?$/.exec(text)
  const [, sign, whole, fraction = '', exponent = '0'] = match
  const power = Number(exponent)
  if (Math.abs(power) > EXPONENT_MAX || fraction.length - power > SCALE_MAX) {
    throw new RangeError('a number is out of range')
  }
  const all = whole + fraction
  let first = 0
  let end = all.length
  while (first < end && all[first] === '0') first++
  while (end > first && all[end - 1] === '0') end--
  if (first === end) return '0'
  const lead = whole.length - 1 - first + power
  if (lead > LEAD_MAX) throw new RangeError('a number is out of range')
  return sign + layOut(all.slice(first, end), lead)
}

/** Lay out digits, the first of which stands for 10 to the power of lead. */
function layOut(digits, lead) {
  if (lead < -6 || lead > 20) {
    return `${digits[0]}${digits.length > 1 ? '.' : ''}${digits.slice(1)}e${lead < 0 ? '' : '+'}${lead}`
  }
  if (lead < 0) return `0.${'0'.repeat(-lead - 1)}${digits}`
  const fraction = digits.slice(lead + 1)
  return digits.slice(0, lead + 1).padEnd(lead + 1, '0') + (fraction && `.${fraction}`)
}

// Keys

/** A fresh UUID of version 7 (RFC 9562): the time in Unix milliseconds, the rest random. */
export function uuid7(milliseconds = Date.now()) {
  const bytes = randomBytes(16)
  bytes.writeUIntBE(milliseconds, 0, 6)
  return stamp(bytes, 7)
}

/**
 * The key of a direct call, by the client's key or else by the parameters: what idem_key() returns.
 *
 * @param {string} subject
 * @param {string} scope
 * @param {any} params
 * @param {Lists & { clientKey?: string | null }} [options]
 */
export function directKey(subject, scope, params, { clientKey = null, ...lists } = {}) {
  const parts = clientKey === null
    ? ['content', label(scope, 'scope'), label(subject, 'subject'), canonical(params, lists)]
    : ['client', label(scope, 'scope'), label(subject, 'subject'), label(clientKey, 'clientKey')]
  return nameOf('idem:key:1', ...parts)
}

/**
 * The key for one downstream step of an operation: what idem_downstream_key() returns.
 *
 * @param {string} key
 * @param {string} step
 */
export function stepKey(key, step) {
  if (!UUID.test(key.toLowerCase())) throw new RangeError('key must be a UUID')
  return nameOf('idem:step:1', Buffer.from(key.replaceAll('-', ''), 'hex'), label(step, 'step'))
}

function nameOf(...parts) {
  const hash = createHash('sha256')
  for (const part of parts) {
    const length = Buffer.alloc(4)
    length.writeUInt32BE(Buffer.byteLength(part))
    hash.update(length).update(part)
  }
  return stamp(hash.digest().subarray(0, 16), 8)
}

function stamp(bytes, version) {
  bytes[6] = (bytes[6] & 0x0f) | (version << 4)
  bytes[8] = (bytes[8] & 0x3f) | 0x80
  return bytes.toString('hex').replace(/^(.{8})(.{4})(.{4})(.{4})/, '$1-$2-$3-$4-')
}

function label(text, name) {
  const length = Buffer.byteLength(checkString(text))
  if (length < 1 || length > 255) throw new RangeError(`${name} must have 1 to 255 bytes`)
  return text
}

function sha256(text) {
  return createHash('sha256').update(text).digest()
}

// Fingerprints

/**
 * A fingerprint for one operation, good for ttl seconds (15 minutes), or until exp, a time in whole Unix seconds.
 *
 * The secret has 32 to 64 bytes; never log or print it. confirmRepeat says that a person has confirmed a likely
 * repeat. The key is a fresh one; tests may bring their own.
 *
 * @param {Uint8Array} secret
 * @param {string} subject
 * @param {string} scope
 * @param {any} params
 * @param {Lists & { ttl?: number, exp?: number, confirmRepeat?: boolean, key?: string }} [options]
 * @returns {string}
 */
export function sign(secret, subject, scope, params, options = {}) {
  const { ttl = 900, exp = expiryIn(ttl), confirmRepeat = false, key = uuid7(), ...lists } = options
  if (!Number.isSafeInteger(exp) || exp < 1 || exp > EXPIRY_MAX) {
    throw new RangeError('exp must be whole Unix seconds, before the year 10000')
  }
  if (!isV7(key)) throw new RangeError('key must be a UUID of version 7 in lower case')
  const version = listVersion(lists)
  const payload = JSON.stringify({
    n: key,
    exp,
    u: label(subject, 'subject'),
    s: label(scope, 'scope'),
    p: paramHash(params, lists).toString('base64url'),
    ...(version !== 0 && { v: version }),
    ...(confirmRepeat && { r: true }),
  })
  const text = Buffer.from(payload).toString('base64url')
  const token = `${text}.${mac(secret, text).toString('base64url')}`
  if (token.length > TOKEN_MAX) {
    throw new RangeError('the fingerprint would be too long: use a shorter subject and scope')
  }
  return token
}

function expiryIn(ttl) {
  const exp = Math.floor(Date.now() / 1000 + ttl)
  if (!(exp > Date.now() / 1000)) throw new RangeError('the fingerprint would already be expired')
  return exp
}

/**
 * What a fingerprint says, where one of the secrets has signed it; null otherwise. As idem_inspect() in SQL: whether
 * its time is past is for the caller to see, and what a model adds at the ends when it copies a token is forgiven.
 *
 * @param {Iterable<Uint8Array>} secrets
 * @param {string} token
 * @returns {Fingerprint | null}
 */
export function verify(secrets, token) {
  if (token.length > TOKEN_MAX) return null
  const trimmed = trim(token)
  const text = trimmed.slice(0, -44)
  const given = unbase64(trimmed.slice(-43))
  if (text === '' || trimmed.at(-44) !== '.' || given?.length !== 32) return null
  let genuine = false
  for (const secret of secrets) genuine = timingSafeEqual(mac(secret, text), given) || genuine
  const payload = genuine ? unbase64(text) : null
  if (payload === null) return null
  try {
    return readPayload(new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(payload))
  } catch {
    return null
  }
}

/** Without what models add at the ends of a token: white space, quotes, backticks and one trailing full stop. */
function trim(token) {
  const forgiven = ' \t\n\v\f\r"\'`'
  let start = 0
  let end = token.length
  let stops = 1
  while (start < end && forgiven.includes(token[start])) start++
  while (end > start && (forgiven.includes(token[end - 1]) || (token[end - 1] === '.' && stops-- > 0))) end--
  return token.slice(start, end)
}

function readPayload(text) {
  const members = new Reader(text, { duplicates: false }).document()
  if (!(members instanceof Map)) throw new TypeError('a payload is an object')
  const { n, exp, u, s, p, v = new ExactNumber('0'), r, ...others } = Object.fromEntries(members)
  const paramHash = typeof p === 'string' ? unbase64(p) : null
  const confirmedRepeat = members.has('r')
  if (Object.keys(others).length > 0 || !isV7(n) || paramHash?.length !== 32 || (confirmedRepeat && r !== true)) {
    throw new TypeError('these are not the members of a payload')
  }
  const fingerprint = {
    key: n,
    exp: natural(exp, EXPIRY_MAX),
    subject: label(u, 'u'),
    scope: label(s, 's'),
    paramHash,
    version: natural(v, 2 ** 31 - 1),
    confirmedRepeat,
  }
  if (fingerprint.exp === 0) throw new RangeError('exp is 0')
  return fingerprint
}

/** An integer from 0 to max, written without sign, fraction and exponent. */
function natural(number, max) {
  if (!(number instanceof ExactNumber) || !/^\d+$/.test(number.text) || Number(number.text) > max) {
    throw new RangeError('a number is out of range')
  }
  return Number(number.text)
}

function isV7(key) {
  return typeof key === 'string' && UUID_V7.test(key)
}

function mac(secret, text) {
  if (!(secret instanceof Uint8Array) || secret.length < 32 || secret.length > 64) {
    throw new RangeError('a secret has 32 to 64 bytes')
  }
  return createHmac('sha256', secret).update(text).digest()
}

/** The bytes that have this spelling and no other, or null. */
function unbase64(text) {
  const bytes = Buffer.from(text, 'base64url')
  return bytes.toString('base64url') === text ? bytes : null
}
