// differ.mjs ask DOCUMENTS: print a request for examples/signers/test/answer.* for each document.
// differ.mjs compare DOCUMENTS ANSWERS: hold what the database made of each against canonicalize, an RFC 8785
// library, and against the signer's answers.
//
// DOCUMENTS has a line for each: JSON, a tabulator, and the database's canonical JSON. RFC 8785 takes numbers for
// doubles and keeps members that are null; so the library is asked for those documents only whose numbers have at
// most 15 significant digits and are well within a double's range, and is given them without null members.
import { createReadStream } from "node:fs"
import { createInterface } from "node:readline"
import canonicalize from "canonicalize"

const lines = (file) => createInterface({ input: createReadStream(file), crlfDelay: Infinity })[Symbol.asyncIterator]()
const strings = /"(?:[^"\\]|\\.)*"/gs
const numbers = /-?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?/g

function common(document) {
	for (const number of document.replace(strings, '""').match(numbers) ?? []) {
		const digits = number.toLowerCase().split("e")[0].replace(/[-.]/g, "").replace(/^0+|0+$/g, "")
		const size = Math.abs(Number(number))
		if (digits.length > 15 || (digits !== "" && !(size > 1e-290 && size < 1e290))) return false
	}
	return true
}

function withoutNulls(value) {
	if (Array.isArray(value)) return value.map(withoutNulls)
	if (value === null || typeof value !== "object") return value
	return Object.fromEntries(Object.entries(value).filter(([, member]) => member !== null).map(([name, member]) => [name, withoutNulls(member)]))
}

async function ask(documents) {
	for await (const line of lines(documents))
		console.log(JSON.stringify({ op: "canonical", params: line.split("\t")[0], subject: "s", scope: "s" }))
}

async function compare(documents, answers) {
	const others = lines(answers)
	const count = { documents: 0, library: 0, differ: 0 }
	const differ = (...words) => { if (++count.differ <= 5) console.log(...words) }
	for await (const line of lines(documents)) {
		const [document, canonical] = line.split("\t")
		const [other] = ((await others.next()).value ?? "nothing").split(" ")
		count.documents++
		if (Buffer.from(other, "hex").toString() !== canonical)
			differ(`${document}\n  database ${canonical}\n  signer   ${Buffer.from(other, "hex").toString() || other}`)
		if (!common(document)) continue
		count.library++
		const theirs = canonicalize(withoutNulls(JSON.parse(document)))
		if (theirs !== canonical) differ(`${document}\n  database ${canonical}\n  library  ${theirs}`)
	}
	console.log(`${count.documents} documents as the signer makes them, ${count.library} of them as canonicalize does; ${count.differ} differ`)
	process.exitCode = count.differ > 0 || count.library === 0 ? 1 : 0
}

const [mode, ...files] = process.argv.slice(2)
await { ask, compare }[mode](...files)
