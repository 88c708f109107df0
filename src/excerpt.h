/*
 * excerpt.h: the beginning of a JSON value as text, for the log.
 */
#ifndef IDEM_EXCERPT_H
#define IDEM_EXCERPT_H

#include "lib/stringinfo.h"
#include "utils/jsonb.h"

/*
 * Append a value as text until out is longer than max bytes, and not much longer, or all of it is written.  Time and
 * memory depend on max and on one number's digits, not on the value's size.
 */
extern void excerpt_append(StringInfo out, Jsonb *value, int max);

/*
 * Append some bytes of valid text as a JSON string, in quotes, in which a character that a terminal or a reader of the
 * log may take for more than itself is an escape \uXXXX: controls, and what changes the direction or ends a line.
 */
extern void excerpt_append_string(StringInfo out, const char *text, size_t length);

/* The same of a message in plain words: without quotes, and with those inside and backslashes as they are. */
extern void excerpt_append_plain(StringInfo out, const char *text);

#endif							/* IDEM_EXCERPT_H */
