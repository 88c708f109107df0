/*
 * fuzz.h: what a fuzz target and the driver agree on.
 */
#ifndef IDEM_FUZZ_H
#define IDEM_FUZZ_H

#include "lib/stringinfo.h"
#include "utils/array.h"
#include "utils/jsonb.h"

/* One target: what is run on each input, and how many bytes of heap a run may take in all. */
typedef struct Target
{
	const char *name;
	void		(*run) (const uint8 *data, size_t size);
	void		(*begin) (void);	/* once, or NULL */
	size_t		bytes_fixed;	/* 0: not bounded */
	size_t		bytes_each;		/* more for each byte of input */
} Target;

/* Tell that an invariant does not hold, and end: libFuzzer keeps the input. */
extern void finding(const char *format,...) __attribute__((format(printf, 1, 2), noreturn));

#define CHECK(condition) do { if (!(condition)) finding("%s:%d: not so: %s", __FILE__, __LINE__, #condition); } while (0)

/*
 * Run something that may raise an error; returns the error's SQLSTATE, or 0.  An internal error is a finding, and so
 * is one that is not among the allowed, a list that ends with 0.
 */
extern int	attempt(void (*run) (void *argument), void *argument, const int *allowed);

/* The input, read from its front; what is past its end reads as zero. */
typedef struct Input
{
	const uint8 *at;
	const uint8 *end;
} Input;

extern uint8 take_byte(Input *input);

/* A text of at most max bytes of valid UTF-8 without NUL: a length, and so many bytes, mended where they are not. */
extern char *take_text(Input *input, size_t max);

/* A JSON text, always valid, that jsonb may still refuse for the range of a number. */
extern char *take_document(Input *input);

/* An array of text, perhaps with nulls; NULL for none. */
extern ArrayType *take_list(Input *input);

/* Make a text valid UTF-8 without NUL, in place: each byte that is not becomes a question mark. */
extern void mend_utf8(char *text);

/* Text -> jsonb; NULL where jsonb refuses it. */
extern Jsonb *read_jsonb(const char *text);

extern const Target target_base64url;
extern const Target target_payload;
extern const Target target_token;
extern const Target target_pointers;
extern const Target target_canonical;
extern const Target target_text;
extern const Target target_calls;

#endif							/* IDEM_FUZZ_H */
