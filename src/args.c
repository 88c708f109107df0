/*
 * args.c: the arguments of the SQL functions, checked at the door.
 *
 * Lengths are read from the value's header before it is fetched or decompressed, so that an over-long argument
 * costs nothing.  Messages name the argument and count its bytes; none carries the value.
 */
#include "compat.h"

#include "access/detoast.h"
#include "common/int.h"
#include "parser/scansup.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"

#include "args.h"
#include "fingerprint.h"

/* The longest interval that makes sense anywhere, in microseconds: 100 years of 12 months of 30 days */
#define INTERVAL_MAX (INT64CONST(36000) * USECS_PER_DAY)

static void refuse_null(const char *name) pg_attribute_noreturn();
static void check_label_length(size_t length, const char *name);
static Span fetch_text(FunctionCallInfo fcinfo, int n);

/*
 * args_label: argument n, a text of 1 to LABEL_MAX_LENGTH bytes.  Raises 22004 where it is null, 22023 where it
 * is empty or too long.
 */
Span
args_label(FunctionCallInfo fcinfo, int n, const char *name)
{
	if (PG_ARGISNULL(n))
		refuse_null(name);
	return args_optional_label(fcinfo, n, name);
}

/*
 * args_optional_label: the same, with NULL data where the argument is null.
 */
Span
args_optional_label(FunctionCallInfo fcinfo, int n, const char *name)
{
	Span		none = {NULL, 0};

	if (PG_ARGISNULL(n))
		return none;
	check_label_length(toast_raw_datum_size(PG_GETARG_DATUM(n)) - VARHDRSZ, name);
	return fetch_text(fcinfo, n);
}

/*
 * args_text: argument n, a text of any length; NULL data where it is null.  Raises nothing of its own.
 */
Span
args_text(FunctionCallInfo fcinfo, int n)
{
	Span		none = {NULL, 0};

	return PG_ARGISNULL(n) ? none : fetch_text(fcinfo, n);
}

/*
 * args_token: argument n, a token; NULL data where it is null or has more than FINGERPRINT_MAX_LENGTH bytes.  Raises
 * nothing of its own: it comes from a model.
 */
Span
args_token(FunctionCallInfo fcinfo, int n)
{
	Span		none = {NULL, 0};

	if (PG_ARGISNULL(n) || toast_raw_datum_size(PG_GETARG_DATUM(n)) - VARHDRSZ > FINGERPRINT_MAX_LENGTH)
		return none;
	return fetch_text(fcinfo, n);
}

/*
 * args_params: argument n, the parameters of an operation.  Raises 22004 where they are SQL's null; a JSON null
 * is a value like any other.
 */
Jsonb *
args_params(FunctionCallInfo fcinfo, int n)
{
	if (PG_ARGISNULL(n))
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("argument \"params\" must not be null"),
				 errhint("An operation without parameters has the parameters {}.")));
	return PG_GETARG_JSONB_P(n);
}

/*
 * args_jsonb: argument n, a JSON value.  Raises 22004 where it is SQL's null; a JSON null will do.
 */
Jsonb *
args_jsonb(FunctionCallInfo fcinfo, int n, const char *name)
{
	if (PG_ARGISNULL(n))
		refuse_null(name);
	return PG_GETARG_JSONB_P(n);
}

/*
 * args_note: argument n, a text of 1 to NOTE_MAX_LENGTH bytes that are not all white space.  Raises 22004 where
 * it is null, 22023 where it is blank or too long.
 */
Span
args_note(FunctionCallInfo fcinfo, int n, const char *name)
{
	Span		note;

	if (PG_ARGISNULL(n))
		refuse_null(name);
	if (toast_raw_datum_size(PG_GETARG_DATUM(n)) - VARHDRSZ > NOTE_MAX_LENGTH)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("argument \"%s\" is too long", name),
				 errhint("Give it at most %d bytes.", NOTE_MAX_LENGTH)));
	note = fetch_text(fcinfo, n);
	for (size_t i = 0; i < note.length; i++)
		if (!scanner_isspace(note.data[i]))
			return note;
	ereport(ERROR,
			(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
			 errmsg("argument \"%s\" must not be blank", name),
			 errhint("Say why, for whoever looks later.")));
}

/*
 * args_result_ref: argument n, a text of at most RESULT_REF_MAX_LENGTH bytes, or NULL data where it is null.
 * Raises 22023 where it is too long.
 */
Span
args_result_ref(FunctionCallInfo fcinfo, int n)
{
	Span		none = {NULL, 0};

	if (PG_ARGISNULL(n))
		return none;
	if (toast_raw_datum_size(PG_GETARG_DATUM(n)) - VARHDRSZ > RESULT_REF_MAX_LENGTH)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("argument \"result_ref\" is too long"),
				 errdetail("At most %d bytes are allowed.", RESULT_REF_MAX_LENGTH),
				 errhint("Put the whole into \"result\", and a reference to it here.")));
	return fetch_text(fcinfo, n);
}

/*
 * args_uuid: argument n, a UUID.  Raises 22004 where it is null.
 */
pg_uuid_t *
args_uuid(FunctionCallInfo fcinfo, int n, const char *name)
{
	if (PG_ARGISNULL(n))
		refuse_null(name);
	return PG_GETARG_UUID_P(n);
}

/*
 * args_optional_uuid: the same, with NULL where the argument is null.
 */
pg_uuid_t *
args_optional_uuid(FunctionCallInfo fcinfo, int n)
{
	return PG_ARGISNULL(n) ? NULL : PG_GETARG_UUID_P(n);
}

/*
 * args_bool: argument n, true or false.  Raises 22004 where it is null.
 */
bool
args_bool(FunctionCallInfo fcinfo, int n, const char *name)
{
	if (PG_ARGISNULL(n))
		refuse_null(name);
	return PG_GETARG_BOOL(n);
}

/*
 * args_interval: argument n in microseconds, a month counted as 30 days and a day as 24 hours.  Raises 22004
 * where it is null, 22023 where it is negative, zero without zero_allowed, or over 100 years.
 */
int64
args_interval(FunctionCallInfo fcinfo, int n, const char *name, bool zero_allowed)
{
	Interval   *interval;
	int64		days;
	int64		total;

	if (PG_ARGISNULL(n))
		refuse_null(name);
	interval = PG_GETARG_INTERVAL_P(n);
	days = (int64) interval->month * DAYS_PER_MONTH + interval->day;

	/* where the sum overflows, the days outweigh the time or have its sign */
	if (pg_mul_s64_overflow(days, USECS_PER_DAY, &total) ||
		pg_add_s64_overflow(total, interval->time, &total))
		total = days < 0 ? PG_INT64_MIN : PG_INT64_MAX;

	if (total < 0 || (total == 0 && !zero_allowed))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 zero_allowed ? errmsg("argument \"%s\" must not be negative", name) :
				 errmsg("argument \"%s\" must be positive", name),
				 errhint("Give a span of time such as '30 s'.")));
	if (total > INTERVAL_MAX)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("argument \"%s\" is too long", name),
				 errdetail("It must not exceed 100 years."),
				 errhint("Give a span of time such as '30 s'.")));
	return total;
}

/*
 * Raise 22004 for a required argument.
 */
static void
refuse_null(const char *name)
{
	ereport(ERROR,
			(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
			 errmsg("argument \"%s\" must not be null", name),
			 errhint("Give a value for it.")));
}

/*
 * Raise 22023 for a label that is empty or too long.
 */
static void
check_label_length(size_t length, const char *name)
{
	if (length == 0)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("argument \"%s\" must not be empty", name),
				 errhint("Give it 1 to %d bytes.", LABEL_MAX_LENGTH)));
	if (length > LABEL_MAX_LENGTH)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("argument \"%s\" is too long", name),
				 errdetail("It has %zu bytes; at most %d are allowed.", length, LABEL_MAX_LENGTH),
				 errhint("Give it 1 to %d bytes, a hash of a longer value for instance.", LABEL_MAX_LENGTH)));
}

/*
 * The bytes of a text that is not null, whole and decompressed.
 */
static Span
fetch_text(FunctionCallInfo fcinfo, int n)
{
	text	   *value = PG_GETARG_TEXT_PP(n);
	Span		span;

	span.data = VARDATA_ANY(value);
	span.length = VARSIZE_ANY_EXHDR(value);
	return span;
}
