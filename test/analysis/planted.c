/*
 * planted.c: faults for the analysers to find.
 *
 * test/suites/analysis asks each tool, in the way it is asked about src/, for the one that is its own: a tool that
 * is silent because it reads nothing would be found out.  Never built into anything.
 */
#include "compat.h"

extern int	planted_overflow(void);
extern char planted_null(const char *name);
extern int	planted_use_after_free(void);

/* cppcheck: arrayIndexOutOfBounds */
int
planted_overflow(void)
{
	int			digits[4] = {0};

	digits[4] = 1;
	return digits[0];
}

/* clang-tidy: clang-analyzer-core.NullDereference; to see that it takes an ereport for an end, there is one too */
char
planted_null(const char *name)
{
	if (name == NULL)
		ereport(ERROR, (errmsg("no name")));
	if (name[0] == '\0')
		name = NULL;
	return name[1];
}

/* gcc: -Wanalyzer-use-after-free */
int
planted_use_after_free(void)
{
	int		   *counter = malloc(sizeof(int));
	int			result;

	if (counter == NULL)
		return 0;
	*counter = 1;
	free(counter);
	result = *counter;
	return result;
}
