/*
 * number.h: the canonical text of a number.
 */
#ifndef IDEM_NUMBER_H
#define IDEM_NUMBER_H

#include "lib/stringinfo.h"
#include "utils/numeric.h"

/*
 * Append a finite number, exact, as ECMAScript's Number-to-string lays one out: plain for a decimal exponent
 * from -6 to 20, else scientific, without trailing zeros, zero without sign.  The work is bounded by the size
 * of the number's stored digits, whatever its exponent.
 */
extern void number_append(StringInfo out, Numeric number);

#endif							/* IDEM_NUMBER_H */
