/*
 * fuzz_pointers.c: a policy's two lists: which are refused, and that a version is one of sets.
 */
#include "compat.h"

#include "catalog/pg_type.h"
#include "utils/builtins.h"

#include "canonical.h"
#include "fuzz.h"
#include "material.h"

typedef struct Version
{
	ArrayType  *material;
	ArrayType  *immaterial;
	int32		version;
} Version;

static const int refusals[] = {ERRCODE_INVALID_PARAMETER_VALUE, 0};

static void
compute_version(void *argument)
{
	Version    *it = argument;

	it->version = material_version(it->material, it->immaterial);
}

static void
parse(void *argument)
{
	Version    *it = argument;

	material_parse(it->material, it->immaterial);
}

/* RFC 6901 section 3 as it stands there: every token after a slash, every tilde before 0 or 1. */
static bool
is_pointer(text *pointer, bool root_allowed)
{
	char	   *at = text_to_cstring(pointer);

	if (strlen(at) > POINTER_MAX_LENGTH || (*at == '\0' && !root_allowed) || (*at != '\0' && *at != '/'))
		return false;
	for (at = strchr(at, '~'); at != NULL; at = strchr(at + 1, '~'))
		if (at[1] != '0' && at[1] != '1')
			return false;
	return true;
}

static bool
is_list(ArrayType *list, bool root_allowed)
{
	Datum	   *pointers;
	bool	   *nulls;
	int			count;

	if (list == NULL)
		return true;
	if (ARR_NDIM(list) != 1)
		return false;
	deconstruct_array(list, TEXTOID, -1, false, TYPALIGN_INT, &pointers, &nulls, &count);
	for (int i = 0; i < count; i++)
		if (nulls[i] || !is_pointer(DatumGetTextPP(pointers[i]), root_allowed))
			return false;
	return true;
}

/* The same list, turned round, its first pointer once more at the end. */
static ArrayType *
turn_round(ArrayType *list)
{
	Datum	   *pointers;
	Datum	   *turned;
	int			count;

	if (list == NULL)
		return NULL;
	deconstruct_array(list, TEXTOID, -1, false, TYPALIGN_INT, &pointers, NULL, &count);
	turned = palloc(sizeof(Datum) * (count + 1));
	for (int i = 0; i < count; i++)
		turned[i] = pointers[count - 1 - i];
	turned[count] = pointers[0];
	return construct_array(turned, count + 1, TEXTOID, -1, false, TYPALIGN_INT);
}

static void
run_pointers(const uint8 *data, size_t size)
{
	Input		input = {data, data + size};
	Version		it = {take_list(&input), take_list(&input), -1};
	Version		other = {NULL, NULL, -1};
	bool		good = is_list(it.material, true) && is_list(it.immaterial, false);

	CHECK((attempt(compute_version, &it, refusals) == 0) == good);
	CHECK((attempt(parse, &it, refusals) == 0) == good);
	if (!good)
		return;
	CHECK(it.version >= 0 && (it.version == 0) == (it.material == NULL && it.immaterial == NULL));
	other.material = turn_round(it.material);
	other.immaterial = turn_round(it.immaterial);
	compute_version(&other);
	CHECK(other.version == it.version);
	/* the two lists are not one another */
	other.material = it.immaterial;
	other.immaterial = it.material;
	if (is_list(other.immaterial, false) && (it.material == NULL) != (it.immaterial == NULL))
	{
		compute_version(&other);
		CHECK(other.version != it.version);
	}
}

const Target target_pointers = {"pointers", run_pointers, NULL, 256 * 1024, 256};
