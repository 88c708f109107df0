/*
 * fuzz_canonical.c: canonical JSON, whole and in part, of documents and lists made from the input.
 *
 * The canonical text is a fixpoint, stands for the same value without its null members, and is bounded by the
 * document's length, whatever the exponents.  Where IDEM_FUZZ_DOCUMENTS names a file, a share of the documents is
 * written there with what was made of them, for other programs to do the same.
 */
#include "compat.h"

#include "catalog/pg_collation.h"
#include "mb/pg_wchar.h"
#include "utils/builtins.h"
#include "utils/fmgrprotos.h"

#include "canonical.h"
#include "fuzz.h"

#define DOCUMENTS_MAX_LENGTH 4096
#define DOCUMENTS_SHARE 8

static FILE *documents;
static long wanted;				/* how many more documents */

static void
begin_canonical(void)
{
	const char *file = getenv("IDEM_FUZZ_DOCUMENTS");
	const char *count = getenv("IDEM_FUZZ_DOCUMENTS_COUNT");

	if (file == NULL)
		return;
	documents = fopen(file, "a");
	CHECK(documents != NULL);
	wanted = count != NULL ? atol(count) : 10000;
}

static void
keep_document(const char *text, const char *canonical)
{
	static unsigned int seen = 0;

	if (documents == NULL || wanted == 0 || strpbrk(text, "\n\r\t") != NULL || strlen(text) < 12 || strlen(text) > DOCUMENTS_MAX_LENGTH || seen++ % DOCUMENTS_SHARE != 0)
		return;
	fprintf(documents, "%s\t%s\n", text, canonical);
	if (--wanted % 100 == 0)
		fflush(documents);
}

/* The canonical text of a part, or NULL; its hash must be that of the text. */
static char *
canonical_of(Jsonb *params, const MaterialPart *part, int *length)
{
	StringInfoData out;
	uint8		hash[SHA256_LENGTH];
	uint8		expected[SHA256_LENGTH];
	bool		written;

	initStringInfo(&out);
	appendStringInfoChar(&out, '!');
	written = canonical_append(&out, params, part);
	CHECK(out.data[0] == '!' && out.data[out.len] == '\0');
	CHECK(canonical_hash(params, part, hash) == written);
	if (!written)
	{
		CHECK(out.len == 1);
		return NULL;
	}
	sha256(out.data + 1, out.len - 1, expected);
	CHECK(memcmp(hash, expected, SHA256_LENGTH) == 0);
	CHECK(strlen(out.data) == (size_t) out.len);
	*length = out.len - 1;
	return out.data + 1;
}

/* What was written is JSON, and the canonical text of itself. */
static Jsonb *
check_fixpoint(const char *text, const MaterialPart *part)
{
	Jsonb	   *read = read_jsonb(text);
	int			length;
	char	   *again;

	if (read == NULL)
		finding("canonical text is no JSON: %s", text);
	again = canonical_of(read, part, &length);
	if (again == NULL || strcmp(again, text) != 0)
		finding("canonical text of\n%s\nis\n%s", text, again != NULL ? again : "(nothing)");
	return read;
}

static void
check_whole(const char *document, Jsonb *params)
{
	int			length;
	char	   *text = canonical_of(params, NULL, &length);
	Jsonb	   *read;
	Jsonb	   *stripped;

	CHECK(text != NULL);
	if ((size_t) length > 6 * strlen(document) + 32)
		finding("%zu bytes became %d: %s", strlen(document), length, document);
	read = check_fixpoint(text, NULL);
	stripped = DatumGetJsonbP(DirectFunctionCall1(jsonb_strip_nulls, JsonbPGetDatum(params)));
	if (compareJsonbContainers(&read->root, &stripped->root) != 0)
		finding("%s became %s, which is another value", document, text);
	keep_document(document, text);
}

typedef struct Lists
{
	ArrayType  *material;
	ArrayType  *immaterial;
	MaterialPart *part;
} Lists;

static void
parse_lists(void *argument)
{
	Lists	   *lists = argument;

	lists->part = material_parse(lists->material, lists->immaterial);
}

/* Pointers with a blank between them, up to the line's end; NULL for an empty line. */
static ArrayType *
read_line_of_pointers(Input *input)
{
	const char *end = memchr(input->at, '\n', input->end - input->at);
	char	   *line;

	if (end == NULL)
		end = (const char *) input->end;
	line = pnstrdup((const char *) input->at, end - (const char *) input->at);
	input->at = Min((const uint8 *) end + 1, input->end);
	if (*line == '\0')
		return NULL;
	mend_utf8(line);
	return DatumGetArrayTypeP(DirectFunctionCall2Coll(text_to_array, C_COLLATION_OID, CStringGetTextDatum(line),
												  CStringGetTextDatum(" ")));
}

/* An input is made into lists and a document, or has them as text: an L, two lines of pointers, and JSON. */
static char *
read_input(const uint8 *data, size_t size, Lists *lists)
{
	Input		input = {data, data + size};

	lists->part = NULL;
	if (size > 0 && data[0] == 'L')
	{
		input.at++;
		lists->material = read_line_of_pointers(&input);
		lists->immaterial = read_line_of_pointers(&input);
		return pnstrdup((const char *) input.at, input.end - input.at);
	}
	lists->material = take_list(&input);
	lists->immaterial = take_list(&input);
	return take_document(&input);
}

static void
run_canonical(const uint8 *data, size_t size)
{
	static const int refusals[] = {ERRCODE_INVALID_PARAMETER_VALUE, 0};
	Lists		lists;
	char	   *document = read_input(data, size, &lists);
	Jsonb	   *params;
	char	   *text;
	int			length;

	if (!pg_verify_mbstr(PG_UTF8, document, strlen(document), true))
		return;
	params = read_jsonb(document);
	if (params == NULL)
		return;
	check_whole(document, params);
	if (attempt(parse_lists, &lists, refusals) != 0)
		return;
	CHECK((lists.part == NULL) == (lists.material == NULL && lists.immaterial == NULL));
	text = canonical_of(params, lists.part, &length);
	if (text != NULL)
		check_fixpoint(text, lists.part);
}

const Target target_canonical = {"canonical", run_canonical, begin_canonical, 256 * 1024, 4096};
