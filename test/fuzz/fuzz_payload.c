/*
 * fuzz_payload.c: the reader of what is inside a fingerprint, against the server's own JSON parser.
 *
 * What ours takes, the server's takes and reads alike; what the server's reads as a payload in the form that is
 * allowed, ours takes.
 */
#include "compat.h"

#include "mb/pg_wchar.h"
#include "utils/builtins.h"
#include "utils/fmgrprotos.h"

#include "args.h"
#include "base64url.h"
#include "fuzz.h"
#include "key.h"
#include "payload.h"

#define HASH_TEXT_LENGTH BASE64URL_LENGTH(SHA256_LENGTH)

/* What is seen of a JSON text without understanding it; it must be JSON. */
typedef struct Shape
{
	int			members;		/* of the outer object, duplicates counted */
	bool		plain;			/* all numbers are digits alone */
} Shape;

static Shape
shape_of(const char *json)
{
	Shape		shape = {0, true};
	int			depth = 0;
	bool		inside = false;

	for (const char *at = json; *at != '\0'; at++)
	{
		if (inside && *at == '\\')
			at++;
		else if (*at == '"')
			inside = !inside;
		else if (!inside && strchr("{[", *at) != NULL)
			depth++;
		else if (!inside && strchr("}]", *at) != NULL)
			depth--;
		else if (!inside && *at == ':' && depth == 1)
			shape.members++;
		else if (!inside && (strchr(".+-E", *at) != NULL || (*at == 'e' && at[-1] >= '0' && at[-1] <= '9')))
			shape.plain = false;
	}
	return shape;
}

static JsonbValue *
member(Jsonb *object, const char *name, JsonbValue *value)
{
	return getKeyJsonValueFromContainer(&object->root, name, strlen(name), value);
}

/* A string member as a text, or NULL. */
static char *
string_member(Jsonb *object, const char *name)
{
	JsonbValue	value;

	if (member(object, name, &value) == NULL || value.type != jbvString)
		return NULL;
	return pnstrdup(value.val.string.val, value.val.string.len);
}

/* A number of digits alone, or -1 for none and -2 for another member or one over max. */
static int64
integer_member(Jsonb *object, const char *name, int64 max)
{
	JsonbValue	value;
	char	   *digits;
	int64		integer;

	if (member(object, name, &value) == NULL)
		return -1;
	if (value.type != jbvNumeric)
		return -2;
	digits = DatumGetCString(DirectFunctionCall1(numeric_out, NumericGetDatum(value.val.numeric)));
	if (strlen(digits) > 18)
		return -2;
	integer = strtoll(digits, NULL, 10);
	return integer > max ? -2 : integer;
}

static bool
is_uuid_v7(const char *text)
{
	pg_uuid_t  *uuid;
	char	   *again;

	if (text == NULL || strlen(text) != 36 || strspn(text, "0123456789abcdef-") != 36)
		return false;
	for (int i = 0; i < 36; i++)
		if ((text[i] == '-') != (i == 8 || i == 13 || i == 18 || i == 23))
			return false;
	uuid = DatumGetUUIDP(DirectFunctionCall1(uuid_in, CStringGetDatum(text)));
	again = DatumGetCString(DirectFunctionCall1(uuid_out, UUIDPGetDatum(uuid)));
	return strcmp(again, text) == 0 && text[14] == '7' && strchr("89ab", text[19]) != NULL;
}

static bool
is_label(const char *text)
{
	return text != NULL && *text != '\0' && strlen(text) <= LABEL_MAX_LENGTH;
}

static bool
is_hash(const char *text)
{
	uint8		hash[SHA256_LENGTH];

	return text != NULL && strlen(text) == HASH_TEXT_LENGTH && base64url_decode(text, HASH_TEXT_LENGTH, hash);
}

/* Is this a payload, by the server's parser? */
static bool
is_payload(const char *json, Jsonb *object)
{
	Shape		shape = shape_of(json);
	JsonbValue	value;
	int			known = 5;
	int64		version = integer_member(object, "v", PG_INT32_MAX);

	if (!JB_ROOT_IS_OBJECT(object) || !shape.plain)
		return false;
	if (member(object, "r", &value) != NULL)
	{
		known++;
		if (value.type != jbvBool || !value.val.boolean)
			return false;
	}
	if (version != -1)
		known++;
	return version != -2 && shape.members == known && JB_ROOT_COUNT(object) == (uint32) known &&
		integer_member(object, "exp", FINGERPRINT_MAX_EXPIRY) > 0 &&
		is_uuid_v7(string_member(object, "n")) && is_hash(string_member(object, "p")) &&
		is_label(string_member(object, "u")) && is_label(string_member(object, "s"));
}

/* Does the server's parser read the same out of it? */
static void
check_same(const Fingerprint *fingerprint, Jsonb *object)
{
	char	   *nonce = DatumGetCString(DirectFunctionCall1(uuid_out, UUIDPGetDatum(&fingerprint->nonce)));
	char		hash[HASH_TEXT_LENGTH + 1] = {0};
	JsonbValue	value;

	base64url_encode(fingerprint->param_hash, SHA256_LENGTH, hash);
	CHECK(strcmp(string_member(object, "n"), nonce) == 0);
	CHECK(strcmp(string_member(object, "p"), hash) == 0);
	CHECK(strcmp(string_member(object, "u"), fingerprint->subject) == 0);
	CHECK(strcmp(string_member(object, "s"), fingerprint->scope) == 0);
	CHECK(strlen(fingerprint->subject) == fingerprint->subject_length);
	CHECK(strlen(fingerprint->scope) == fingerprint->scope_length);
	CHECK(integer_member(object, "exp", FINGERPRINT_MAX_EXPIRY) == fingerprint->expires);
	CHECK(Max(integer_member(object, "v", PG_INT32_MAX), 0) == fingerprint->version);
	CHECK((member(object, "r", &value) != NULL) == fingerprint->confirmed_repeat);
}

/* What was read is written so that it is read again, and written alike. */
static void
check_again(const Fingerprint *fingerprint)
{
	Fingerprint again;
	StringInfoData once;
	StringInfoData twice;

	initStringInfo(&once);
	initStringInfo(&twice);
	payload_append(&once, fingerprint);
	CHECK(payload_read(once.data, once.len, &again));
	payload_append(&twice, &again);
	CHECK(strcmp(once.data, twice.data) == 0);
}

static void
run_payload(const uint8 *data, size_t size)
{
	char	   *json = malloc(size + 1);	/* where a byte too many is seen */
	char	   *terminated = palloc(size + 1);
	Fingerprint fingerprint;
	bool		read;

	memcpy(json, data, size);
	json = realloc(json, size);
	memcpy(terminated, data, size);
	terminated[size] = '\0';
	read = payload_read(json, size, &fingerprint);
	free(json);
	if (strlen(terminated) == size && pg_verify_mbstr(PG_UTF8, terminated, size, true))
	{
		Jsonb	   *object = read_jsonb(terminated);

		if (read != (object != NULL && is_payload(terminated, object)))
			finding("%s: %s", read ? "taken" : "refused", terminated);
		if (read)
			check_same(&fingerprint, object);
	}
	else
		CHECK(!read);
	if (read)
		check_again(&fingerprint);
}

const Target target_payload = {"payload", run_payload, NULL, 256 * 1024, 512};
