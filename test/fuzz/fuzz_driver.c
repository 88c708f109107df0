/*
 * fuzz_driver.c: libFuzzer inside a PostgreSQL process.
 *
 * CALL idem_fuzz(target, libFuzzer's arguments...) runs one target.  Each input is run in a memory context of its
 * own, whose blocks are so small that nearly every allocation is one of malloc's, where the sanitizer sees what
 * is read or written beside it.  The heap that a run takes is counted in malloc as well.
 */
#include "compat.h"

#include <signal.h>

#include "catalog/pg_type.h"
#include "executor/spi.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/memutils.h"

#include "fuzz.h"

PG_FUNCTION_INFO_V1(idem_fuzz);

extern int	LLVMFuzzerRunDriver(int *argc, char ***argv, int (*callback) (const uint8 *data, size_t size));
extern int	__sanitizer_install_malloc_and_free_hooks(void (*on_malloc) (const volatile void *, size_t),
													  void (*on_free) (const volatile void *));

#define SMALL_BLOCK 1024

static const Target *const targets[] = {
	&target_base64url, &target_payload, &target_token, &target_pointers, &target_canonical, &target_text,
	&target_calls
};

static const Target *target;
static MemoryContext context;	/* of one run */
static size_t allocated;		/* bytes, in this run */

void
finding(const char *format,...)
{
	va_list		arguments;

	va_start(arguments, format);
	fputs("FINDING: ", stderr);
	vfprintf(stderr, format, arguments);
	fputc('\n', stderr);
	va_end(arguments);
	abort();
}

static void
count_malloc(const volatile void *at, size_t size)
{
	allocated += size;
}

static void
ignore_free(const volatile void *at)
{
}

/* Is this an error that the caller reckons with? */
static void
judge_error(const ErrorData *error, const int *allowed)
{
	while (*allowed != 0)
		if (*allowed++ == error->sqlerrcode)
			return;
	finding("unexpected error %s: %s (%s:%d)", unpack_sql_state(error->sqlerrcode), error->message,
			error->filename, error->lineno);
}

int
attempt(void (*run) (void *argument), void *argument, const int *allowed)
{
	MemoryContext before = CurrentMemoryContext;
	volatile int code = 0;

	PG_TRY();
	{
		run(argument);
	}
	PG_CATCH();
	{
		ErrorData  *error;

		MemoryContextSwitchTo(before);
		error = CopyErrorData();
		FlushErrorState();
		judge_error(error, allowed);
		code = error->sqlerrcode;
		FreeErrorData(error);
	}
	PG_END_TRY();
	return code;
}

static void
run_target(void *argument)
{
	const Input *input = argument;

	target->run(input->at, input->end - input->at);
}

static int
run_input(const uint8 *data, size_t size)
{
	static const int none[] = {0};
	Input		input = {data, data + size};
	MemoryContext before = MemoryContextSwitchTo(context);

	allocated = 0;
	attempt(run_target, &input, none);
	if (target->bytes_fixed > 0 && allocated > target->bytes_fixed + target->bytes_each * size)
		finding("%zu bytes of input took %zu bytes of heap", size, allocated);
	MemoryContextSwitchTo(before);
	MemoryContextReset(context);
	return 0;
}

static void
choose_target(const char *name)
{
	target = NULL;
	for (int i = 0; i < (int) lengthof(targets); i++)
		if (strcmp(targets[i]->name, name) == 0)
			target = targets[i];
	if (target == NULL)
		ereport(ERROR, errcode(ERRCODE_INVALID_PARAMETER_VALUE), errmsg("there is no target \"%s\"", name));
}

/* libFuzzer wants the signals for itself: to tell a crash or a hang, and to stop in good order. */
static void
give_up_signals(void)
{
	static const int signals[] = {SIGALRM, SIGINT, SIGTERM, SIGFPE, SIGHUP};

	for (int i = 0; i < (int) lengthof(signals); i++)
		signal(signals[i], SIG_DFL);
}

/* CALL idem_fuzz(target text, VARIADIC words text[]): the first word stands for the program's name. */
Datum
idem_fuzz(PG_FUNCTION_ARGS)
{
	ArrayType  *words = PG_GETARG_ARRAYTYPE_P(1);
	MemoryContext lasting = AllocSetContextCreate(TopMemoryContext, "fuzzing", ALLOCSET_DEFAULT_SIZES);
	Datum	   *word;
	int			argc;
	char	  **argv;

	choose_target(text_to_cstring(PG_GETARG_TEXT_PP(0)));
	MemoryContextSwitchTo(lasting);
	deconstruct_array(words, TEXTOID, -1, false, TYPALIGN_INT, &word, NULL, &argc);
	argv = palloc0(sizeof(char *) * (argc + 1));
	for (int i = 0; i < argc; i++)
		argv[i] = TextDatumGetCString(word[i]);
	context = AllocSetContextCreate(lasting, "input", 0, SMALL_BLOCK, SMALL_BLOCK);
	SPI_connect_ext(SPI_OPT_NONATOMIC);
	if (target->begin != NULL)
		target->begin();
	__sanitizer_install_malloc_and_free_hooks(count_malloc, ignore_free);
	give_up_signals();
	LLVMFuzzerRunDriver(&argc, &argv, run_input);
	SPI_finish();
	PG_RETURN_VOID();
}
