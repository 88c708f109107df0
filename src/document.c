/*
 * document.c: JSON values, put together piece by piece.
 */
#include "compat.h"

#include "catalog/pg_type_d.h"
#include "utils/json.h"
#include "utils/numeric.h"
#include "utils/timestamp.h"

#include "document.h"

static void
name_member(Document *document, const char *name)
{
	JsonbValue	key;

	if (name == NULL)
		return;
	key.type = jbvString;
	key.val.string.val = unconstify(char *, name);
	key.val.string.len = strlen(name);
	(void) pushJsonbValue(&document->state, WJB_KEY, &key);
}

void
document_add_value(Document *document, const char *name, JsonbValue *value)
{
	name_member(document, name);
	(void) pushJsonbValue(&document->state, name == NULL ? WJB_ELEM : WJB_VALUE, value);
}

void
document_open_object(Document *document, const char *name)
{
	name_member(document, name);
	(void) pushJsonbValue(&document->state, WJB_BEGIN_OBJECT, NULL);
}

void
document_close_object(Document *document)
{
	document->whole = pushJsonbValue(&document->state, WJB_END_OBJECT, NULL);
}

void
document_open_array(Document *document, const char *name)
{
	name_member(document, name);
	(void) pushJsonbValue(&document->state, WJB_BEGIN_ARRAY, NULL);
}

void
document_close_array(Document *document)
{
	document->whole = pushJsonbValue(&document->state, WJB_END_ARRAY, NULL);
}

void
document_add_null(Document *document, const char *name)
{
	JsonbValue	value = {.type = jbvNull};

	document_add_value(document, name, &value);
}

void
document_add_bool(Document *document, const char *name, bool value)
{
	JsonbValue	given = {.type = jbvBool, .val.boolean = value};

	document_add_value(document, name, &given);
}

void
document_add_number(Document *document, const char *name, int64 value)
{
	JsonbValue	given = {.type = jbvNumeric, .val.numeric = int64_to_numeric(value)};

	document_add_value(document, name, &given);
}

void
document_add_string(Document *document, const char *name, const char *value)
{
	document_add_span(document, name, (Span) {value, strlen(value)});
}

void
document_add_time(Document *document, const char *name, TimestampTz value)
{
	document_add_string(document, name, JsonEncodeDateTime(NULL, TimestampTzGetDatum(value), TIMESTAMPTZOID, NULL));
}

void
document_add_span(Document *document, const char *name, Span value)
{
	JsonbValue	given;

	if (value.data == NULL)
		return;
	given.type = jbvString;
	given.val.string.val = unconstify(char *, value.data);
	given.val.string.len = value.length;
	document_add_value(document, name, &given);
}

void
document_add_jsonb(Document *document, const char *name, Jsonb *value)
{
	JsonbValue	given;

	if (value == NULL)
		return;
	if (JB_ROOT_IS_SCALAR(value))
		JsonbExtractScalar(&value->root, &given);
	else
	{
		given.type = jbvBinary;
		given.val.binary.data = &value->root;
		given.val.binary.len = VARSIZE(value) - VARHDRSZ;
	}
	document_add_value(document, name, &given);
}

Jsonb *
document_jsonb(const Document *document)
{
	return JsonbValueToJsonb(document->whole);
}
