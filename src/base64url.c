/*
 * base64url.c: unpadded base64url (RFC 4648 section 5) with exactly one spelling for each value.
 */
#include "compat.h"

#include "base64url.h"

static const char alphabet[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

/*
 * What a digit stands for, plus one; 0 for what is no digit.  A table, since comparing ranges took a
 * twelfth of a replay's instructions; written out, as nothing about letters may depend on a locale.
 */
/* *INDENT-OFF* */
static const uint8 digits[256] = {
	['A'] = 1, ['B'] = 2, ['C'] = 3, ['D'] = 4, ['E'] = 5, ['F'] = 6, ['G'] = 7, ['H'] = 8,
	['I'] = 9, ['J'] = 10, ['K'] = 11, ['L'] = 12, ['M'] = 13, ['N'] = 14, ['O'] = 15, ['P'] = 16,
	['Q'] = 17, ['R'] = 18, ['S'] = 19, ['T'] = 20, ['U'] = 21, ['V'] = 22, ['W'] = 23, ['X'] = 24,
	['Y'] = 25, ['Z'] = 26, ['a'] = 27, ['b'] = 28, ['c'] = 29, ['d'] = 30, ['e'] = 31, ['f'] = 32,
	['g'] = 33, ['h'] = 34, ['i'] = 35, ['j'] = 36, ['k'] = 37, ['l'] = 38, ['m'] = 39, ['n'] = 40,
	['o'] = 41, ['p'] = 42, ['q'] = 43, ['r'] = 44, ['s'] = 45, ['t'] = 46, ['u'] = 47, ['v'] = 48,
	['w'] = 49, ['x'] = 50, ['y'] = 51, ['z'] = 52, ['0'] = 53, ['1'] = 54, ['2'] = 55, ['3'] = 56,
	['4'] = 57, ['5'] = 58, ['6'] = 59, ['7'] = 60, ['8'] = 61, ['9'] = 62, ['-'] = 63, ['_'] = 64,
};
/* *INDENT-ON* */

size_t
base64url_encode(const uint8 *bytes, size_t length, char *out)
{
	char	   *start = out;
	uint32		pending = 0;
	int			bits = 0;

	for (size_t i = 0; i < length; i++)
	{
		pending = (pending << 8) | bytes[i];
		for (bits += 8; bits >= 6; bits -= 6)
			*out++ = alphabet[(pending >> (bits - 6)) & 0x3f];
	}
	if (bits > 0)
		*out++ = alphabet[(pending << (6 - bits)) & 0x3f];
	return out - start;
}

/* Four digits, three bytes. */
static bool
decode_quartet(const char *text, uint8 *out)
{
	uint32		a = digits[(unsigned char) text[0]];
	uint32		b = digits[(unsigned char) text[1]];
	uint32		c = digits[(unsigned char) text[2]];
	uint32		d = digits[(unsigned char) text[3]];
	uint32		value = (a - 1) << 18 | (b - 1) << 12 | (c - 1) << 6 | (d - 1);

	/* what is no digit has set every bit above its place */
	if (value >> 24 != 0)
		return false;
	out[0] = value >> 16;
	out[1] = value >> 8;
	out[2] = value;
	return true;
}

/* Two or three digits at the end, one or two bytes; unused bits would be a second spelling of the same bytes. */
static bool
decode_rest(const char *text, size_t length, uint8 *out)
{
	char		quartet[4] = {text[0], text[1], length == 3 ? text[2] : 'A', 'A'};
	uint8		bytes[3];

	if (!decode_quartet(quartet, bytes) || bytes[2] != 0 || (length == 2 && bytes[1] != 0))
		return false;
	memcpy(out, bytes, length - 1);
	return true;
}

bool
base64url_decode(const char *text, size_t length, uint8 *out)
{
	if (length % 4 == 1)
		return false;
	for (; length >= 4; text += 4, length -= 4, out += 3)
		if (!decode_quartet(text, out))
			return false;
	return length == 0 || decode_rest(text, length, out);
}
