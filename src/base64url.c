/*
 * base64url.c: unpadded base64url (RFC 4648 section 5) with exactly one spelling for each value.
 */
#include "compat.h"

#include "base64url.h"

static const char alphabet[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

static int	digit_value(char c);

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

bool
base64url_decode(const char *text, size_t length, uint8 *out)
{
	uint32		pending = 0;
	int			bits = 0;

	if (length % 4 == 1)
		return false;
	for (size_t i = 0; i < length; i++)
	{
		int			value = digit_value(text[i]);

		if (value < 0)
			return false;
		pending = (pending << 6) | value;
		bits += 6;
		if (bits >= 8)
		{
			bits -= 8;
			*out++ = (uint8) (pending >> bits);
		}
	}

	/* the last digit's unused bits would be a second spelling of the same bytes */
	return (pending & ((1u << bits) - 1)) == 0;
}

/*
 * What a digit stands for, or -1.  Written out, as nothing about letters may depend on a locale.
 */
static int
digit_value(char c)
{
	if (c >= 'A' && c <= 'Z')
		return c - 'A';
	if (c >= 'a' && c <= 'z')
		return c - 'a' + 26;
	if (c >= '0' && c <= '9')
		return c - '0' + 52;
	if (c == '-')
		return 62;
	if (c == '_')
		return 63;
	return -1;
}
