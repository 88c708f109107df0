/*
 * args.h: the arguments of the SQL functions, checked at the door.
 *
 * A required argument that is null raises 22004, one that is empty, too long or out of range 22023, each with
 * a hint.  No message carries the value.
 */
#ifndef IDEM_ARGS_H
#define IDEM_ARGS_H

#include "datatype/timestamp.h"
#include "fmgr.h"
#include "utils/jsonb.h"
#include "utils/uuid.h"

#define LABEL_MAX_LENGTH 255	/* bytes: subject, scope, holder, trace_id, client key, step */
#define RESULT_REF_MAX_LENGTH 1024	/* bytes */
#define NOTE_MAX_LENGTH 4096	/* bytes */

/* Some bytes of text, not terminated; data is NULL where the argument was null. */
typedef struct Span
{
	const char *data;
	size_t		length;
} Span;

extern Span args_label(FunctionCallInfo fcinfo, int n, const char *name);
extern Span args_optional_label(FunctionCallInfo fcinfo, int n, const char *name);

/* Text of any length, NULL data for a null argument; nothing is refused. */
extern Span args_text(FunctionCallInfo fcinfo, int n);

/* A token: the same, and NULL data also for one that is too long to be a fingerprint, which is then not fetched. */
extern Span args_token(FunctionCallInfo fcinfo, int n);

extern Jsonb *args_params(FunctionCallInfo fcinfo, int n);
extern Jsonb *args_jsonb(FunctionCallInfo fcinfo, int n, const char *name);

/* A required text of at most NOTE_MAX_LENGTH bytes, with something in it but white space. */
extern Span args_note(FunctionCallInfo fcinfo, int n, const char *name);

/* A reference to a result, at most RESULT_REF_MAX_LENGTH bytes; NULL data for a null argument. */
extern Span args_result_ref(FunctionCallInfo fcinfo, int n);

extern pg_uuid_t *args_uuid(FunctionCallInfo fcinfo, int n, const char *name);
extern pg_uuid_t *args_optional_uuid(FunctionCallInfo fcinfo, int n);
extern bool args_bool(FunctionCallInfo fcinfo, int n, const char *name);

/*
 * An interval in microseconds, a month counted as 30 days and a day as 24 hours.  Refused: null, negative, and
 * over 100 years; zero too unless zero_allowed.
 */
extern int64 args_interval(FunctionCallInfo fcinfo, int n, const char *name, bool zero_allowed);

#endif							/* IDEM_ARGS_H */
