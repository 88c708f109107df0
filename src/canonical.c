/*
 * canonical.c: jsonb -> canonical bytes, whole or only the material part.
 *
 * The walk reads the jsonb containers in place and writes straight into the output.  Only members need a
 * place of their own, since jsonb keeps them by length and the canonical form by UTF-16 code units: they stand
 * on a stack in the Walk, one stretch for each object being written, and are sorted there.  Time is linear
 * in the size of the input, but for that sorting.
 *
 * The material part.  Along the way goes the set of pointer nodes that the path so far matches: more than one
 * where an array's element is met both by its number and by "*".  A value is selected at and below a material
 * node (anywhere, without a material list); it is written unless it is immaterial, and a container that is
 * not selected itself is written only where something below it was.  What is not written is left out of an
 * object and stands as null in an array, so that an element's place, and how many there are, stay bound.
 */
#include "compat.h"

#include "miscadmin.h"

#include "material.h"
#include "number.h"

/* A value in its container. */
typedef struct Value
{
	JEntry		type;			/* JENTRY_ISxxx */
	int			length;
	const char *data;
} Value;

/* Reads the values of a container one after the other. */
typedef struct Cursor
{
	const JEntry *entry;
	const char *base;
	uint32		offset;
} Cursor;

/* What the pointers say of a value: some nodes of the walk's stack, and whether we are at or below a material one. */
typedef struct Match
{
	bool		selected;
	int			first;
	int			count;
} Match;

/* A member of an object being written. */
typedef struct Member
{
	const char *name;
	int			length;
	Value		value;
	Match		match;
} Member;

typedef struct Walk
{
	StringInfo	out;
	Member	   *members;
	int			nmembers;
	int			maxmembers;
	const PointerNode **nodes;
	int			nnodes;
	int			maxnodes;
} Walk;

static bool append_container(Walk *walk, const JsonbContainer *container, Match match);

/* A cursor that starts at the n-th value of a container. */
static inline Cursor
cursor_at(const JsonbContainer *container, uint32 n)
{
	uint32		nvalues = JsonContainerSize(container);
	Cursor		cursor;

	if (JsonContainerIsObject(container))
		nvalues *= 2;
	cursor.entry = container->children + n;
	cursor.base = (const char *) (container->children + nvalues);
	cursor.offset = getJsonbOffset(container, n);
	return cursor;
}

static inline Value
cursor_next(Cursor *cursor)
{
	JEntry		entry = *cursor->entry++;
	uint32		start = cursor->offset;
	Value		value;

	JBE_ADVANCE_OFFSET(cursor->offset, entry);
	value.type = entry & JENTRY_TYPEMASK;
	if (value.type == JENTRY_ISNUMERIC || value.type == JENTRY_ISCONTAINER)
		start = INTALIGN(start);
	value.data = cursor->base + start;
	value.length = cursor->offset - start;
	return value;
}

/* Escapes of one letter (RFC 8785 section 3.2.2.2), or 0. */
static inline char
short_escape(unsigned char c)
{
	switch (c)
	{
		case '"':
		case '\\':
			return c;
		case '\b':
			return 'b';
		case '\t':
			return 't';
		case '\n':
			return 'n';
		case '\f':
			return 'f';
		case '\r':
			return 'r';
		default:
			return 0;
	}
}

void
canonical_append_string(StringInfo out, const char *string, size_t length)
{
	size_t		written = 0;

	appendStringInfoChar(out, '"');
	for (size_t i = 0; i < length; i++)
	{
		unsigned char c = string[i];
		char		letter;

		if (c >= 0x20 && c != '"' && c != '\\')
			continue;
		appendBinaryStringInfo(out, string + written, i - written);
		written = i + 1;
		letter = short_escape(c);
		if (letter != 0)
		{
			appendStringInfoChar(out, '\\');
			appendStringInfoChar(out, letter);
		}
		else
			appendStringInfo(out, "\\u%04x", c);
	}
	appendBinaryStringInfo(out, string + written, length - written);
	appendStringInfoChar(out, '"');
}

static inline void
cut_back(StringInfo out, int length)
{
	out->len = length;
	out->data[length] = '\0';
}

static void
push_node(Walk *walk, const PointerNode *node)
{
	if (walk->nnodes == walk->maxnodes)
	{
		walk->maxnodes = Max(walk->maxnodes * 2, 16);
		walk->nodes = walk->nodes == NULL
			? palloc(sizeof(*walk->nodes) * walk->maxnodes)
			: repalloc_huge(walk->nodes, sizeof(*walk->nodes) * walk->maxnodes);
	}
	walk->nodes[walk->nnodes++] = node;
}

static void
push_member(Walk *walk, const Member *member)
{
	if (walk->nmembers == walk->maxmembers)
	{
		walk->maxmembers = Max(walk->maxmembers * 2, 16);
		walk->members = walk->members == NULL
			? palloc(sizeof(Member) * walk->maxmembers)
			: repalloc_huge(walk->members, sizeof(Member) * (Size) walk->maxmembers);
	}
	walk->members[walk->nmembers++] = *member;
}

/*
 * settle_match completes a match whose nodes, from match->first on, were just pushed.  Returns false where
 * the value cannot be written: it is immaterial, or neither selected nor on the way to anything.
 */
static bool
settle_match(const Walk *walk, Match *match)
{
	match->count = walk->nnodes - match->first;
	for (int i = match->first; i < walk->nnodes; i++)
	{
		if (walk->nodes[i]->immaterial)
			return false;
		if (walk->nodes[i]->material)
			match->selected = true;
	}
	return match->selected || match->count > 0;
}

/* match_member follows the nodes of an object's match to one of its members; returns as settle_match does. */
static bool
match_member(Walk *walk, const Match *object, const char *name, int length, Match *member)
{
	member->selected = object->selected;
	member->first = walk->nnodes;
	for (int i = object->first; i < object->first + object->count; i++)
	{
		const PointerNode *node = material_member(walk->nodes[i], name, length);

		if (node != NULL)
			push_node(walk, node);
	}
	return settle_match(walk, member);
}

/* match_element does the same for an element of an array, which "*" leads to as well as its number. */
static bool
match_element(Walk *walk, const Match *array, uint32 index, Match *element)
{
	element->selected = array->selected;
	element->first = walk->nnodes;
	for (int i = array->first; i < array->first + array->count; i++)
	{
		const PointerNode *node = material_element(walk->nodes[i], index);

		if (node != NULL)
			push_node(walk, node);
		if (walk->nodes[i]->every != NULL)
			push_node(walk, walk->nodes[i]->every);
	}
	return settle_match(walk, element);
}

/* append_value writes a value, or nothing where nothing of it is material; returns whether it did. */
static bool
append_value(Walk *walk, const Value *value, Match match)
{
	if (value->type == JENTRY_ISCONTAINER)
		return append_container(walk, (const JsonbContainer *) value->data, match);
	if (!match.selected)
		return false;
	switch (value->type)
	{
		case JENTRY_ISSTRING:
			canonical_append_string(walk->out, value->data, value->length);
			break;
		case JENTRY_ISNUMERIC:
			number_append(walk->out, (Numeric) value->data);
			break;
		case JENTRY_ISBOOL_TRUE:
			appendBinaryStringInfo(walk->out, "true", 4);
			break;
		case JENTRY_ISBOOL_FALSE:
			appendBinaryStringInfo(walk->out, "false", 5);
			break;
		case JENTRY_ISNULL:
			appendBinaryStringInfo(walk->out, "null", 4);
			break;
		default:
			elog(ERROR, "unexpected type of a value in jsonb");
	}
	return true;
}

/*
 * The rank of a byte of UTF-8 in the order of UTF-16 code units.  The two orders agree but for U+E000..U+FFFF
 * (first byte EE or EF), which come after the surrogates of what is beyond U+FFFF (first byte F0 to F4).
 * Where two strings first differ, the bytes are both first bytes or both not, so this is enough.
 */
static inline int
utf16_rank(unsigned char c)
{
	return (c & 0xFE) == 0xEE ? c + 0x10 : c;
}

static int
compare_members(const void *left, const void *right)
{
	const Member *a = left;
	const Member *b = right;
	int			common = Min(a->length, b->length);

	for (int i = 0; i < common; i++)
		if (a->name[i] != b->name[i])
			return utf16_rank(a->name[i]) - utf16_rank(b->name[i]);
	return a->length - b->length;
}

/* push_members pushes those members of an object that may be written, in canonical order. */
static void
push_members(Walk *walk, const JsonbContainer *object, const Match *match)
{
	uint32		count = JsonContainerSize(object);
	int			first = walk->nmembers;
	Cursor		names = cursor_at(object, 0);
	Cursor		values = cursor_at(object, count);

	for (uint32 i = 0; i < count; i++)
	{
		Value		name = cursor_next(&names);
		Member		member;

		CHECK_FOR_INTERRUPTS();
		member.name = name.data;
		member.length = name.length;
		member.value = cursor_next(&values);
		/* null and absent are one and the same */
		if (member.value.type == JENTRY_ISNULL)
			continue;
		if (match->count == 0)
			member.match = *match;
		else if (!match_member(walk, match, name.data, name.length, &member.match))
		{
			walk->nnodes = member.match.first;
			continue;
		}
		push_member(walk, &member);
	}
	if (walk->nmembers - first > 1)
		qsort(walk->members + first, walk->nmembers - first, sizeof(Member), compare_members);
}

/* append_object writes "{...}" and returns whether there is anything in it. */
static bool
append_object(Walk *walk, const JsonbContainer *object, const Match *match)
{
	StringInfo	out = walk->out;
	int			first_node = walk->nnodes;
	int			first = walk->nmembers;
	int			end;
	bool		any = false;

	push_members(walk, object, match);
	end = walk->nmembers;
	appendStringInfoChar(out, '{');
	for (int i = first; i < end; i++)
	{
		/* the stack may move while the value is written */
		const Member *member = &walk->members[i];
		int			before = out->len;

		if (any)
			appendStringInfoChar(out, ',');
		canonical_append_string(out, member->name, member->length);
		appendStringInfoChar(out, ':');
		if (append_value(walk, &member->value, member->match))
			any = true;
		else
			cut_back(out, before);
	}
	appendStringInfoChar(out, '}');
	walk->nmembers = first;
	walk->nnodes = first_node;
	return any;
}

/* append_array writes "[...]" and returns whether anything in it was written for its own sake. */
static bool
append_array(Walk *walk, const JsonbContainer *array, const Match *match)
{
	StringInfo	out = walk->out;
	uint32		count = JsonContainerSize(array);
	int			first_node = walk->nnodes;
	Cursor		cursor = cursor_at(array, 0);
	bool		any = false;

	appendStringInfoChar(out, '[');
	for (uint32 i = 0; i < count; i++)
	{
		Value		value = cursor_next(&cursor);
		Match		element = *match;

		CHECK_FOR_INTERRUPTS();
		if (i > 0)
			appendStringInfoChar(out, ',');
		if ((match->count == 0 || match_element(walk, match, i, &element)) &&
			append_value(walk, &value, element))
			any = true;
		else
			appendBinaryStringInfo(out, "null", 4);
		walk->nnodes = first_node;
	}
	appendStringInfoChar(out, ']');
	return any;
}

/* append_container writes an object or array, or nothing where nothing of it is material. */
static bool
append_container(Walk *walk, const JsonbContainer *container, Match match)
{
	int			before = walk->out->len;
	bool		any;

	check_stack_depth();
	any = JsonContainerIsObject(container)
		? append_object(walk, container, &match)
		: append_array(walk, container, &match);
	if (any || match.selected)
		return true;
	cut_back(walk->out, before);
	return false;
}

bool
canonical_append(StringInfo out, Jsonb *params, const MaterialPart *part)
{
	Walk		walk = {.out = out};
	Match		match = {.selected = (part == NULL || part->everything || part->root.material)};
	int			before = out->len;
	bool		written;

	if (JB_ROOT_IS_SCALAR(params))
	{
		Cursor		cursor = cursor_at(&params->root, 0);
		Value		value = cursor_next(&cursor);

		return part == NULL && append_value(&walk, &value, match);
	}
	if (part != NULL)
	{
		push_node(&walk, &part->root);
		match.count = 1;
	}
	written = append_container(&walk, &params->root, match);
	if (walk.members != NULL)
		pfree(walk.members);
	if (walk.nodes != NULL)
		pfree(walk.nodes);
	/* an empty object or array binds nothing */
	if (part != NULL && (!written || out->len - before <= 2))
	{
		cut_back(out, before);
		return false;
	}
	return true;
}

bool
canonical_hash(Jsonb *params, const MaterialPart *part, uint8 hash[SHA256_LENGTH])
{
	StringInfoData bytes;
	bool		written;

	initStringInfo(&bytes);
	written = canonical_append(&bytes, params, part);
	if (written)
		sha256(bytes.data, bytes.len, hash);
	pfree(bytes.data);
	return written;
}
