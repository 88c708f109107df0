/*
 * payload.h: the JSON object inside a fingerprint (docs/format.md).
 *
 * Pure: no table, no clock.
 */
#ifndef IDEM_PAYLOAD_H
#define IDEM_PAYLOAD_H

#include "lib/stringinfo.h"

#include "fingerprint.h"

/* Append the payload: members in their order, no white space, the string escapes of RFC 8785. */
extern void payload_append(StringInfo out, const Fingerprint *fingerprint);

/*
 * Read a payload whose signature holds.  Accepts any JSON (RFC 8259) spelling of exactly the members known,
 * each once and in its range; returns false for all else.  The strings of *fingerprint are allocated in the
 * current memory context.
 */
extern bool payload_read(const char *json, size_t length, Fingerprint *fingerprint);

#endif							/* IDEM_PAYLOAD_H */
