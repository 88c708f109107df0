/*
 * number.c: numeric -> canonical text, digit by digit.
 *
 * The digits are read from numeric's binary output (numeric_send), the wire format that every binary client
 * relies on: 16-bit big-endian words ndigits, weight, sign, dscale, then ndigits digits in base 10000, the
 * first standing for 10000^weight.  Its text output is of no use here: it writes 1e131071 as 131072 digits.
 */
#include "compat.h"

#include "utils/fmgrprotos.h"

#include "number.h"

#define WIRE_HEADER_LENGTH 8	/* four words come before the digits */
#define WIRE_NEGATIVE 0x4000
#define WIRE_SPECIAL_MASK 0x8000	/* NaN and the infinities, which jsonb cannot hold */
#define DIGITS_PER_WORD 4

#define PLAIN_MIN_EXPONENT (-6) /* ECMAScript: 0.000001 is plain, 1e-7 is not */
#define PLAIN_MAX_EXPONENT 20	/* ECMAScript: 100000000000000000000 is plain, 1e+21 is not */

/* What surrounds the digits at the longest: sign, "0.", zeros or point and exponent. */
#define LAYOUT_MAX_LENGTH 40

static inline int
wire_word(const unsigned char *at)
{
	return (at[0] << 8) | at[1];
}

/*
 * Write count words as decimal digits, the first without leading zeros (it is not 0).  Returns how many
 * digits are left once trailing zeros are dropped.
 */
static int
write_digits(char *digits, const unsigned char *words, int count)
{
	int			length = 0;

	for (int i = 0; i < count; i++)
	{
		int			word = wire_word(words + 2 * (size_t) i);
		int			unit = 1000;

		if (i == 0)
			while (unit > word)
				unit /= 10;
		for (; unit > 0; unit /= 10)
			digits[length++] = '0' + word / unit % 10;
	}
	while (length > 0 && digits[length - 1] == '0')
		length--;
	return length;
}

/* Move the digits from place on one to the right and put the point there. */
static int
insert_point(char *digits, int length, int place)
{
	memmove(digits + place + 1, digits + place, length - place);
	digits[place] = '.';
	return length + 1;
}

/*
 * Lay out length digits that stand at out's end, the first of which stands for 10^exponent, and count them in.
 * The caller has made room for LAYOUT_MAX_LENGTH more bytes.
 */
static void
lay_out(StringInfo out, int length, int exponent)
{
	char	   *digits = out->data + out->len;

	if (exponent < PLAIN_MIN_EXPONENT || exponent > PLAIN_MAX_EXPONENT)
	{
		if (length > 1)
			length = insert_point(digits, length, 1);
		length += sprintf(digits + length, "e%+d", exponent);
	}
	else if (exponent < 0)
	{
		int			zeros = -exponent;

		memmove(digits + zeros + 1, digits, length);
		memset(digits, '0', zeros + 1);
		digits[1] = '.';
		length += zeros + 1;
	}
	else if (exponent + 1 < length)
		length = insert_point(digits, length, exponent + 1);
	else
	{
		memset(digits + length, '0', exponent + 1 - length);
		length = exponent + 1;
	}
	out->len += length;
	out->data[out->len] = '\0';
}

void
number_append(StringInfo out, Numeric number)
{
	bytea	   *sent = DatumGetByteaPP(DirectFunctionCall1(numeric_send, NumericGetDatum(number)));
	const unsigned char *wire = (const unsigned char *) VARDATA_ANY(sent);
	const unsigned char *words = wire + WIRE_HEADER_LENGTH;
	int			count = wire_word(wire);
	int			weight = (int16) wire_word(wire + 2);
	int			sign = wire_word(wire + 4);

	if (sign & WIRE_SPECIAL_MASK)
		elog(ERROR, "a number in jsonb is not finite");
	/* numeric keeps no leading zeros, but its wire format does not forbid them */
	while (count > 0 && wire_word(words) == 0)
	{
		words += 2;
		count--;
		weight--;
	}
	if (count == 0)
		appendStringInfoChar(out, '0');
	else
	{
		int			first = wire_word(words);
		int			exponent = weight * DIGITS_PER_WORD +
			(first >= 1000 ? 3 : first >= 100 ? 2 : first >= 10 ? 1 : 0);

		enlargeStringInfo(out, count * DIGITS_PER_WORD + LAYOUT_MAX_LENGTH);
		if (sign == WIRE_NEGATIVE)
			appendStringInfoCharMacro(out, '-');
		lay_out(out, write_digits(out->data + out->len, words, count), exponent);
	}
	pfree(sent);
}
