/*
 * first.c: starts the address sanitizer before anything else.
 *
 * It starts itself at the first malloc, and then asks the linker for a function that is not there, whose error
 * message is translated.  Where that malloc is one of bindtextdomain's, in the start of a library, the two wait for
 * each other.  This library is linked to be the first that is started (-z initfirst).
 */
#include <stdlib.h>

static __attribute__((constructor)) void
start_sanitizer(void)
{
	free(malloc(1));
}
