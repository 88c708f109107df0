/*
 * material.c: a policy's two pointer lists: checked, given a version, and made into a tree.
 *
 * Pointers are RFC 6901's, with one token more: "*" stands for every element of an array.  On an object "*" is
 * the member of that name, and a token of digits is a member's name on an object, an element's number on an
 * array.  "-" and numbers with a leading zero name no element.
 */
#include "compat.h"

#include "catalog/pg_type.h"
#include "utils/builtins.h"

#include "material.h"

/* One pointer as the list has it. */
typedef struct PointerText
{
	const char *data;
	int			length;
} PointerText;

static void
refuse_pointer(const char *list, const char *hint)
{
	ereport(ERROR,
			errcode(ERRCODE_INVALID_PARAMETER_VALUE),
			errmsg("%s holds a string that is no JSON Pointer", list),
			errhint("%s", hint));
}

/* check_pointer raises 22023 unless this is a pointer of RFC 6901 section 3, within our limit. */
static void
check_pointer(const char *list, const PointerText *pointer, bool root_allowed)
{
	if (pointer->length > POINTER_MAX_LENGTH)
		ereport(ERROR,
				errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				errmsg("%s holds a pointer that is too long", list),
				errhint("A pointer has at most %d bytes.", POINTER_MAX_LENGTH));
	if (pointer->length == 0)
	{
		if (!root_allowed)
			refuse_pointer(list, "The empty pointer stands for the whole of the parameters, "
						   "which cannot all be immaterial.");
		return;
	}
	if (pointer->data[0] != '/')
		refuse_pointer(list, "A pointer starts with a slash, as in /amount or /items/*/sku.");
	for (int i = 0; i < pointer->length; i++)
		if (pointer->data[i] == '~' &&
			(i + 1 == pointer->length || (pointer->data[i + 1] != '0' && pointer->data[i + 1] != '1')))
			refuse_pointer(list, "Write ~0 for a tilde and ~1 for a slash in a member's name.");
}

/*
 * read_list returns the pointers of a list, *count of them, each checked.  They point into array where it is
 * not toasted.
 */
static PointerText *
read_list(ArrayType *array, const char *list, bool root_allowed, int *count)
{
	Datum	   *elements;
	bool	   *nulls;
	PointerText *pointers;

	if (ARR_ELEMTYPE(array) != TEXTOID)
		elog(ERROR, "%s is no array of text", list);
	if (ARR_NDIM(array) != 1)
		ereport(ERROR,
				errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				errmsg("%s must be a list with at least one pointer", list),
				errhint("Use null where there is nothing to list, and no array of arrays."));
	deconstruct_array(array, TEXTOID, -1, false, TYPALIGN_INT, &elements, &nulls, count);
	if (*count > POINTER_MAX_COUNT)
		ereport(ERROR,
				errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				errmsg("%s holds too many pointers", list),
				errhint("A list has at most %d pointers.", POINTER_MAX_COUNT));
	pointers = palloc(sizeof(PointerText) * *count);
	for (int i = 0; i < *count; i++)
	{
		text	   *element;

		if (nulls[i])
			ereport(ERROR,
					errcode(ERRCODE_INVALID_PARAMETER_VALUE),
					errmsg("%s holds a null", list),
					errhint("Each element of the list is a JSON Pointer."));
		element = DatumGetTextPP(elements[i]);
		pointers[i].data = VARDATA_ANY(element);
		pointers[i].length = VARSIZE_ANY_EXHDR(element);
		check_pointer(list, &pointers[i], root_allowed);
	}
	pfree(elements);
	pfree(nulls);
	return pointers;
}

/* Tokens by length, then by bytes: any order will do, and this one seldom compares bytes. */
static int
compare_token(const PointerNode *node, const char *token, int length)
{
	if (node->length != length)
		return node->length < length ? -1 : 1;
	return memcmp(node->token, token, length);
}

/* Where the child with this token is, or (with *found false) would be. */
static int
child_place(const PointerNode *node, const char *token, int length, bool *found)
{
	int			low = 0;
	int			high = node->nchildren;

	while (low < high)
	{
		int			middle = low + (high - low) / 2;
		int			order = compare_token(node->children[middle], token, length);

		if (order == 0)
		{
			*found = true;
			return middle;
		}
		if (order < 0)
			low = middle + 1;
		else
			high = middle;
	}
	*found = false;
	return low;
}

/* child_of returns the child with this token, made if need be; the token's bytes are not copied. */
static PointerNode *
child_of(PointerNode *node, const char *token, int length)
{
	bool		found;
	int			place = child_place(node, token, length, &found);
	PointerNode *child;

	if (found)
		return node->children[place];
	if (node->children == NULL)
	{
		node->maxchildren = 4;
		node->children = palloc(sizeof(PointerNode *) * node->maxchildren);
	}
	else if (node->nchildren == node->maxchildren)
	{
		node->maxchildren *= 2;
		node->children = repalloc(node->children, sizeof(PointerNode *) * node->maxchildren);
	}
	memmove(node->children + place + 1, node->children + place,
			sizeof(PointerNode *) * (node->nchildren - place));
	child = palloc0(sizeof(PointerNode));
	child->token = token;
	child->length = length;
	node->children[place] = child;
	node->nchildren++;
	if (length == 1 && token[0] == '*')
		node->every = child;
	if (length > 0 && token[0] >= '0' && token[0] <= '9')
		node->has_index = true;
	return child;
}

/* plant_pointer follows a checked pointer from the root, making what is missing, to the node it ends at. */
static PointerNode *
plant_pointer(PointerNode *root, const PointerText *pointer)
{
	PointerNode *node = root;
	const char *at = pointer->data;
	const char *end = at + pointer->length;
	char	   *token = palloc(pointer->length + 1);

	while (at < end)
	{
		int			length = 0;

		for (at++; at < end && *at != '/'; at++)
		{
			if (*at == '~')
				token[length++] = *++at == '0' ? '~' : '/';
			else
				token[length++] = *at;
		}
		node = child_of(node, token, length);
		token += length;
	}
	return node;
}

MaterialPart *
material_parse(ArrayType *material, ArrayType *immaterial)
{
	MaterialPart *part;
	PointerText *pointers;
	int			count;

	if (material == NULL && immaterial == NULL)
		return NULL;
	part = palloc0(sizeof(MaterialPart));
	part->everything = (material == NULL);
	if (material != NULL)
	{
		pointers = read_list(material, "material", true, &count);
		for (int i = 0; i < count; i++)
			plant_pointer(&part->root, &pointers[i])->material = true;
		pfree(pointers);
	}
	if (immaterial != NULL)
	{
		pointers = read_list(immaterial, "immaterial", false, &count);
		for (int i = 0; i < count; i++)
			plant_pointer(&part->root, &pointers[i])->immaterial = true;
		pfree(pointers);
	}
	return part;
}

const PointerNode *
material_member(const PointerNode *node, const char *name, int length)
{
	bool		found;
	int			place = child_place(node, name, length, &found);

	return found ? node->children[place] : NULL;
}

const PointerNode *
material_element(const PointerNode *node, uint32 index)
{
	char		token[16];

	/* most arrays on the way are met by "*" alone */
	if (!node->has_index)
		return NULL;
	return material_member(node, token, pg_ultoa_n(index, token));
}

static int
compare_pointers(const void *left, const void *right)
{
	const PointerText *a = left;
	const PointerText *b = right;
	int			order = memcmp(a->data, b->data, Min(a->length, b->length));

	if (order != 0)
		return order;
	return a->length < b->length ? -1 : a->length > b->length;
}

/* append_list adds one member of the object that a version is the hash of: the list as a set, sorted. */
static void
append_list(StringInfo out, ArrayType *array, const char *list, bool root_allowed)
{
	int			count;
	PointerText *pointers;

	if (array == NULL)
		return;
	pointers = read_list(array, list, root_allowed, &count);
	qsort(pointers, count, sizeof(PointerText), compare_pointers);
	if (out->len > 1)
		appendStringInfoChar(out, ',');
	canonical_append_string(out, list, strlen(list));
	appendStringInfoString(out, ":[");
	for (int i = 0; i < count; i++)
	{
		if (i > 0 && compare_pointers(&pointers[i - 1], &pointers[i]) == 0)
			continue;
		if (i > 0)
			appendStringInfoChar(out, ',');
		canonical_append_string(out, pointers[i].data, pointers[i].length);
	}
	appendStringInfoChar(out, ']');
	pfree(pointers);
}

ArrayType *
material_sorted(ArrayType *list)
{
	int			count;
	PointerText *pointers = read_list(list, "list", true, &count);
	Datum	   *elements = palloc(sizeof(Datum) * count);
	int			kept = 0;

	qsort(pointers, count, sizeof(PointerText), compare_pointers);
	for (int i = 0; i < count; i++)
	{
		if (i == 0 || compare_pointers(&pointers[i - 1], &pointers[i]) != 0)
			elements[kept++] = PointerGetDatum(cstring_to_text_with_len(pointers[i].data, pointers[i].length));
	}
	pfree(pointers);
	return construct_array(elements, kept, TEXTOID, -1, false, TYPALIGN_INT);
}

int32
material_version(ArrayType *material, ArrayType *immaterial)
{
	StringInfoData lists;
	uint8		hash[SHA256_LENGTH];
	int32		version;

	if (material == NULL && immaterial == NULL)
		return 0;
	initStringInfo(&lists);
	appendStringInfoChar(&lists, '{');
	append_list(&lists, immaterial, "immaterial", false);
	append_list(&lists, material, "material", true);
	appendStringInfoChar(&lists, '}');
	sha256(lists.data, lists.len, hash);
	pfree(lists.data);
	version = ((hash[0] & 0x7f) << 24) | (hash[1] << 16) | (hash[2] << 8) | hash[3];
	return version == 0 ? 1 : version;
}
