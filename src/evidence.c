/*
 * evidence.c: the first and the latest late result of an operation.
 *
 * Results alone are kept: a call that brings none, such as a heartbeat, is there as long as there is nothing better, and
 * never takes a result's place.
 */
#include "compat.h"

#include "document.h"
#include "evidence.h"

/* The members of a detail that say what was brought, and by which call. */
static const char *const brought[] = {"call", "result", "result_size", "result_ref"};

static JsonbValue *
member(JsonbContainer *object, const char *name, JsonbValue *value)
{
	return getKeyJsonValueFromContainer(object, name, strlen(name), value);
}

static bool
has_result(JsonbContainer *detail)
{
	JsonbValue	value;

	for (size_t i = 1; i < lengthof(brought); i++)
		if (member(detail, brought[i], &value) != NULL)
			return true;
	return false;
}

/* The detail under a name of a document, and its length; NULL where there is none, or a hand has put something else. */
static JsonbContainer *
kept(Jsonb *document, const char *name, int *length)
{
	JsonbValue	value;

	if (document == NULL || !JB_ROOT_IS_OBJECT(document) || member(&document->root, name, &value) == NULL ||
		value.type != jbvBinary || !JsonContainerIsObject(value.val.binary.data))
		return NULL;
	*length = value.val.binary.len;
	return value.val.binary.data;
}

/* Compared as whole documents: a scalar is kept as one with a single element. */
static bool
same_value(JsonbValue *a, JsonbValue *b)
{
	if (a == NULL || b == NULL)
		return a == b;
	return compareJsonbContainers(&JsonbValueToJsonb(a)->root, &JsonbValueToJsonb(b)->root) == 0;
}

static bool
same_result(JsonbContainer *a, JsonbContainer *b)
{
	JsonbValue	left;
	JsonbValue	right;

	for (size_t i = 0; i < lengthof(brought); i++)
		if (!same_value(member(a, brought[i], &left), member(b, brought[i], &right)))
			return false;
	return true;
}

static void
add(Document *document, const char *name, JsonbContainer *detail, int length)
{
	JsonbValue	value;

	value.type = jbvBinary;
	value.val.binary.data = detail;
	value.val.binary.len = length;
	document_add_value(document, name, &value);
}

bool
evidence_has_result(Jsonb *detail)
{
	return has_result(&detail->root);
}

bool
evidence_is_new(Jsonb *document, Jsonb *detail)
{
	int			length;
	JsonbContainer *first = kept(document, "first", &length);
	JsonbContainer *latest = kept(document, "latest", &length);

	return has_result(&detail->root) &&
		!(first != NULL && same_result(first, &detail->root)) &&
		!(latest != NULL && same_result(latest, &detail->root));
}

Jsonb *
evidence_add(Jsonb *document, Jsonb *detail)
{
	Document	into = {0};
	JsonbContainer *latest = &detail->root;
	int			length = VARSIZE(detail) - VARHDRSZ;
	int			first_length;
	JsonbContainer *first = kept(document, "first", &first_length);

	document_open_object(&into, NULL);
	if (first != NULL && has_result(first))
		add(&into, "first", first, first_length);
	else
		add(&into, "first", latest, length);
	add(&into, "latest", latest, length);
	document_close_object(&into);
	return document_jsonb(&into);
}
