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

#endif							/* IDEM_EXCERPT_H */
