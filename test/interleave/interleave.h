/*
 * interleave.h: what is run, how far, and what came of it.
 */
#ifndef INTERLEAVE_H
#define INTERLEAVE_H

#include "model.h"

#define MOST_SHOWN 20			/* disagreements told in full */
#define MOST_SITUATIONS 65536

typedef struct Extent
{
	int			whole_length;	/* sequences: all of this length */
	int			changing_length;	/* and up to this one where all steps but the last change something */
	int			calls;			/* schedules: all with so many calls in each transaction */
	int			idle;			/* of which so many change nothing */
	long		strolls;		/* and so many longer ones, by chance */
	bool		all;			/* every sequence through every door, every schedule in each isolation level */
} Extent;

typedef struct Tally
{
	long		runs;
	long		steps;
	long		waits;			/* calls that had to wait for the other transaction */
	long		disagreements;
	int			nsituations;
	unsigned long situations[MOST_SITUATIONS];	/* a hash table; 0 is empty */
} Tally;

extern void situation_add(Tally *tally, unsigned long situation);
extern void situation_reached(Tally *tally, const World *world);

extern void run_sequences(const Extent *extent, Tally *tally);
extern void run_schedules(const Extent *extent, Tally *tally);

/* Compare state_decide with a table read from a file; the number of disagreements. */
extern long check_design(const char *file);

#endif							/* INTERLEAVE_H */
