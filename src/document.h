/*
 * document.h: JSON values, put together piece by piece.
 *
 * Every function that adds something takes the name of the member, which is NULL for an element of an array.  Names
 * and strings are not copied: they must stay until document_jsonb() has returned.
 */
#ifndef IDEM_DOCUMENT_H
#define IDEM_DOCUMENT_H

#include "datatype/timestamp.h"
#include "utils/jsonb.h"

#include "args.h"

/* A document in the making; begins zeroed. */
typedef struct Document
{
	JsonbParseState *state;
	JsonbValue *whole;			/* what was closed last */
} Document;

/* Open an object or array, the outermost one with a NULL name; what is added until it is closed belongs to it. */
extern void document_open_object(Document *document, const char *name);
extern void document_close_object(Document *document);
extern void document_open_array(Document *document, const char *name);
extern void document_close_array(Document *document);

extern void document_add_value(Document *document, const char *name, JsonbValue *value);
extern void document_add_null(Document *document, const char *name);
extern void document_add_bool(Document *document, const char *name, bool value);
extern void document_add_number(Document *document, const char *name, int64 value);
extern void document_add_string(Document *document, const char *name, const char *value);

/* A time as to_jsonb writes it: ISO 8601, in the session's time zone. */
extern void document_add_time(Document *document, const char *name, TimestampTz value);

/* These two add nothing where there is no value (data NULL, NULL). */
extern void document_add_span(Document *document, const char *name, Span value);
extern void document_add_jsonb(Document *document, const char *name, Jsonb *value);

/* The document, once its outermost object or array is closed, in the current memory context. */
extern Jsonb *document_jsonb(const Document *document);

#endif							/* IDEM_DOCUMENT_H */
