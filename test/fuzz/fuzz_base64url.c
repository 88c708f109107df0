/*
 * fuzz_base64url.c: one spelling for each value, and no byte beside the buffers.
 */
#include "compat.h"

#include "base64url.h"
#include "fuzz.h"

/* What a text stands for is written as that very text. */
static void
check_decode(const uint8 *data, size_t size)
{
	uint8	   *bytes = malloc(BASE64URL_BYTES(size) + 1);
	char	   *text = malloc(size + 1);

	memset(bytes, 0x5a, BASE64URL_BYTES(size) + 1);
	if (base64url_decode((const char *) data, size, bytes))
	{
		CHECK(bytes[BASE64URL_BYTES(size)] == 0x5a);
		CHECK(base64url_encode(bytes, BASE64URL_BYTES(size), text) == size);
		CHECK(memcmp(text, data, size) == 0);
	}
	free(text);
	free(bytes);
}

/* What is written is read as the same bytes. */
static void
check_encode(const uint8 *data, size_t size)
{
	size_t		length = BASE64URL_LENGTH(size);
	char	   *text = malloc(length + 1);
	uint8	   *bytes = malloc(size + 1);

	CHECK(base64url_encode(data, size, text) == length);
	CHECK(base64url_decode(text, length, bytes));
	CHECK(memcmp(bytes, data, size) == 0);
	free(text);
	free(bytes);
}

static void
run_base64url(const uint8 *data, size_t size)
{
	check_decode(data, size);
	check_encode(data, size);
}

const Target target_base64url = {"base64url", run_base64url, NULL, 16 * 1024, 16};
