/*
 * random.c: seeded choices, and time.
 */
#include <errno.h>
#include <inttypes.h>
#include <sys/time.h>
#include <time.h>

#include "torture.h"

/* A generator (splitmix64) for a role: other roles' choices do not disturb it. */
Random
random_of(uint64_t seed, uint64_t role)
{
	Random		random = {seed * UINT64_C(0x9E3779B97F4A7C15) + role * UINT64_C(0xD1B54A32D192ED03)};

	(void) random_next(&random);
	return random;
}

uint64_t
random_next(Random *random)
{
	uint64_t	z = (random->state += UINT64_C(0x9E3779B97F4A7C15));

	z = (z ^ (z >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
	z = (z ^ (z >> 27)) * UINT64_C(0x94D049BB133111EB);
	return z ^ (z >> 31);
}

uint64_t
random_below(Random *random, uint64_t limit)
{
	return limit == 0 ? 0 : random_next(random) % limit;
}

bool
random_percent(Random *random, double percent)
{
	return random_below(random, 1000000) < (uint64_t) (percent * 10000);
}

void
random_uuid(Random *random, char *text)
{
	uint64_t	a = random_next(random);
	uint64_t	b = random_next(random);

	snprintf(text, UUID_TEXT, "%08x-%04x-4%03x-8%03x-%012" PRIx64,
			 (unsigned) (a >> 32), (unsigned) (a >> 16) & 0xffff, (unsigned) a & 0xfff,
			 (unsigned) (b >> 48) & 0xfff, b & UINT64_C(0xffffffffffff));
}

int64_t
now_us(void)
{
	struct timeval now;

	gettimeofday(&now, NULL);
	return (int64_t) now.tv_sec * 1000000 + now.tv_usec;
}

void
nap_ms(int64_t milliseconds)
{
	struct timespec left = {milliseconds / 1000, milliseconds % 1000 * 1000000};

	while (nanosleep(&left, &left) < 0 && errno == EINTR)
		;
}
