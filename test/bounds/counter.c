/*
 * counter.c: counts what a process takes from malloc and gives back.  Loaded before all else (LD_PRELOAD) into a
 * server, where every context's blocks come from malloc; read by bounds.c.
 */
#include <errno.h>
#include <malloc.h>
#include <stddef.h>

extern void *__libc_malloc(size_t size);
extern void *__libc_calloc(size_t count, size_t size);
extern void *__libc_realloc(void *old, size_t size);
extern void *__libc_memalign(size_t alignment, size_t size);
extern void __libc_free(void *memory);

long		counter_bytes;		/* held now */
long		counter_peak;		/* the most since it was last set to counter_bytes */
long		counter_calls;		/* of malloc and its like */

static void *
taken(void *memory)
{
	if (memory != NULL)
	{
		counter_calls++;
		counter_bytes += malloc_usable_size(memory);
		if (counter_bytes > counter_peak)
			counter_peak = counter_bytes;
	}
	return memory;
}

void *
malloc(size_t size)
{
	return taken(__libc_malloc(size));
}

void *
calloc(size_t count, size_t size)
{
	return taken(__libc_calloc(count, size));
}

/* While a block moves, both places are held. */
void *
realloc(void *old, size_t size)
{
	size_t		before = old == NULL ? 0 : malloc_usable_size(old);
	void	   *now = taken(__libc_realloc(old, size));

	if (now != NULL || size == 0)
		counter_bytes -= before;
	return now;
}

int
posix_memalign(void **into, size_t alignment, size_t size)
{
	*into = taken(__libc_memalign(alignment, size));
	return *into == NULL ? ENOMEM : 0;
}

void *
aligned_alloc(size_t alignment, size_t size)
{
	return taken(__libc_memalign(alignment, size));
}

void
free(void *memory)
{
	if (memory != NULL)
		counter_bytes -= malloc_usable_size(memory);
	__libc_free(memory);
}
