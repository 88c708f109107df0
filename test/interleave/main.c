/*
 * main.c: interleave [all | sequences WHOLE CHANGING | schedules CALLS IDLE STROLLS | design FILE]
 *
 * Without a word: as much as a check has time for.  The server is where libpq's environment variables lead.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "interleave.h"
#include "server.h"

void
situation_add(Tally *tally, unsigned long situation)
{
	unsigned long at = situation * 0x9e3779b97f4a7c15UL >> 48;

	while (tally->situations[at] != 0)
	{
		if (tally->situations[at] == situation)
			return;
		at = (at + 1) % MOST_SITUATIONS;
	}
	if (tally->nsituations < MOST_SITUATIONS - 1)
		tally->situations[at] = situation;
	tally->nsituations++;
}

void
situation_reached(Tally *tally, const World *world)
{
	situation_add(tally, world_situation(world) + 1);
}

static bool
report(const char *what, const Tally *tally)
{
	printf("%s: %ld, of %ld steps; %d situations reached; %ld calls that waited; %ld not as computed\n",
		   what, tally->runs, tally->steps, tally->nsituations, tally->waits, tally->disagreements);
	fflush(stdout);
	return tally->disagreements == 0;
}

int
main(int argc, char **argv)
{
	static Tally sequences;
	static Tally schedules;
	Extent		extent = {.whole_length = 2, .changing_length = 4, .calls = 1, .idle = 1, .strolls = 1500};
	const char *what = argc > 1 ? argv[1] : "check";
	bool		right = true;

	if (strcmp(what, "design") == 0 && argc == 3)
		return check_design(argv[2]) == 0 ? 0 : 1;
	if (strcmp(what, "all") == 0)
		extent = (Extent) {.whole_length = 4, .changing_length = 7, .calls = 2, .idle = 0, .strolls = 100000, .all = true};
	if (strcmp(what, "sequences") == 0 && argc == 4)
	{
		extent.whole_length = atoi(argv[2]);
		extent.changing_length = atoi(argv[3]);
	}
	if (strcmp(what, "schedules") == 0 && argc == 5)
	{
		extent.calls = atoi(argv[2]);
		extent.idle = atoi(argv[3]);
		extent.strolls = atol(argv[4]);
	}
	server_set_up();
	if (strcmp(what, "schedules") != 0)
	{
		run_sequences(&extent, &sequences);
		right &= report("sequences of single transactions", &sequences);
	}
	if (strcmp(what, "sequences") != 0)
	{
		run_schedules(&extent, &schedules);
		right &= report("schedules of two transactions", &schedules);
	}
	return right ? 0 : 1;
}
