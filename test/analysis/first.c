/*
 * first.c: preloaded beside AddressSanitizer's runtime and initialised before every other library (-z initfirst).
 *
 * The runtime begins at the first malloc().  Left to itself that is libgpg-error's in bindtextdomain(), inside
 * gettext's lock, which the runtime's own dlerror() then takes and leaves unlocked once too often: the next
 * bindtextdomain() waits for ever.
 */
#include <stdlib.h>

__attribute__((constructor)) static void
begin(void)
{
	void	   *volatile memory = malloc(1);

	free(memory);
}
