/*
 * canonical.h: jsonb -> canonical bytes, whole or only the material part.
 *
 * Pure: no table, no clock.  Canonical JSON is RFC 8785 with two differences (docs/format.md): object
 * members that are null are left out, and numbers are exact, never rounded.
 */
#ifndef IDEM_CANONICAL_H
#define IDEM_CANONICAL_H

#include "lib/stringinfo.h"
#include "utils/array.h"
#include "utils/jsonb.h"

#include "digest.h"

/* The two pointer lists of a policy, parsed (RFC 6901, '*' standing for every element of an array). */
typedef struct MaterialPart MaterialPart;

/*
 * Parse the lists; either may be NULL (material NULL: everything is material).  The result lives in the
 * current memory context.  Returns NULL where both are NULL.  Raises 22023 for a null element, an empty list,
 * a pointer that RFC 6901 does not allow, an empty pointer in immaterial, a pointer over 1024 bytes and a list
 * over 1000 pointers; material_version does too.
 */
extern MaterialPart *material_parse(ArrayType *material, ArrayType *immaterial);

/*
 * The version of two lists: the first 4 bytes of SHA-256 over their canonical JSON, big-endian, top bit
 * cleared, 0 read as 1; 0 where both are NULL.
 */
extern int32 material_version(ArrayType *material, ArrayType *immaterial);

/* A list as the set that it is: sorted by bytes, each pointer once. Raises as material_parse does. */
extern ArrayType *material_sorted(ArrayType *list);

/*
 * Append the canonical bytes of params to out; part NULL means everything.  Returns false, having appended
 * nothing, where part is given and nothing of params is material.  Raises 54001 for nesting too deep for the
 * stack.
 */
extern bool canonical_append(StringInfo out, Jsonb *params, const MaterialPart *part);

/* SHA-256 of the canonical bytes: the parameter hash.  Returns false as canonical_append does. */
extern bool canonical_hash(Jsonb *params, const MaterialPart *part, uint8 hash[SHA256_LENGTH]);

/* Append a string, quotes included, with the escapes of RFC 8785 section 3.2.2.2. */
extern void canonical_append_string(StringInfo out, const char *string, size_t length);

#endif							/* IDEM_CANONICAL_H */
