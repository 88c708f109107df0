/*
 * design.c: the transition table against the design's, cell by cell.
 */
#include <stdio.h>
#include <string.h>

#include "interleave.h"
#include "server.h"

#define MOST_LINES 200
#define NFACTS 7

typedef struct Line
{
	char		call[24];
	char		states[8];
	unsigned	with;
	unsigned	without;
	char		answer[16];
	char		becomes[16];
} Line;

static const struct
{
	const char *name;
	Fact		fact;
}			facts[NFACTS] = {
	{"lapsed", FACT_LAPSED}, {"over", FACT_LEASE_OVER}, {"dedup", FACT_DEDUPLICATES}, {"expired", FACT_EXPIRED},
	{"owner", FACT_OWNER}, {"same", FACT_SAME_RESULT}, {"forced", FACT_FORCED},
};

static const char *const events[] = {
	"acquire", "status", "commit", "fail", "retryable", "release", "renew",
	"verdict_DONE", "verdict_FAILED", "verdict_RETRY", "purge"
};

static const char *const outcomes[OUTCOME_COUNT] = {
	"ACQUIRED", "IN_FLIGHT", "DONE", "FAILED", "RECONCILE", "PARAM_MISMATCH", "SUBJECT_MISMATCH",
	"SCOPE_MISMATCH", "EXPIRED", "INVALID", "REPEAT", "NONE", "UNKNOWN", "RETRYABLE"
};
static const char *const acks[ACK_COUNT] = {"OK", "NOT_OWNER", "ALREADY", "NONE"};

/* The words of a line: call, states, facts, answer, what becomes of the record. */
static void
read_line(char *text, Line *line)
{
	char	   *words[16];
	int			n = 0;

	for (char *word = strtok(text, " \t\n"); word != NULL && n < 16; word = strtok(NULL, " \t\n"))
		words[n++] = word;
	if (n < 5)
		die("a line is too short");
	memset(line, 0, sizeof(*line));
	snprintf(line->call, sizeof(line->call), "%s", words[0]);
	snprintf(line->states, sizeof(line->states), "%s", words[1]);
	for (int i = 2; i < n - 2; i++)
	{
		bool		not = words[i][0] == '!';
		bool		known = strcmp(words[i], ".") == 0;

		for (int j = 0; j < NFACTS; j++)
			if (strcmp(words[i] + not, facts[j].name) == 0)
			{
				known = true;
				*(not ? &line->without : &line->with) |= facts[j].fact;
			}
		if (!known)
			die("unknown fact: %s", words[i]);
	}
	snprintf(line->answer, sizeof(line->answer), "%s", words[n - 2]);
	snprintf(line->becomes, sizeof(line->becomes), "%s", words[n - 1]);
}

static int
read_lines(const char *name, Line *lines)
{
	FILE	   *file = fopen(name, "r");
	char		text[256];
	int			n = 0;

	if (file == NULL)
		die("cannot read %s", name);
	while (fgets(text, sizeof(text), file) != NULL)
		if (text[0] != '#' && text[0] != '\n')
		{
			if (n == MOST_LINES)
				die("too many lines");
			read_line(text, &lines[n++]);
		}
	fclose(file);
	return n;
}

/* What the code decides, in the file's words. */
static void
tell_decision(Event event, State state, unsigned known, const char **answer, char *becomes)
{
	Decision	decision = state_decide(state, event, known);

	*answer = decision.action == ACTION_REFUSE_TOKEN ? "22023" : decision.action == ACTION_REFUSE_VERDICT ? "55000" :
		event == EVENT_ACQUIRE || event == EVENT_STATUS ? outcomes[decision.outcome] : acks[decision.ack];
	switch (decision.action)
	{
		case ACTION_START:
			strcpy(becomes, "start");
			break;
		case ACTION_CONTINUE:
		case ACTION_TAKE_OVER:
			strcpy(becomes, "continue");
			break;
		case ACTION_EXTEND:
			strcpy(becomes, "extend");
			break;
		case ACTION_DELETE:
			strcpy(becomes, "delete");
			break;
		case ACTION_FINISH:
		case ACTION_RELEASE:
			snprintf(becomes, 16, "%c", decision.next);
			break;
		default:
			strcpy(becomes, decision.next == state ? "keep" : "moved");
	}
}

/* One cell; returns the number of disagreements. */
static int
check_cell(const Line *lines, int n, Event event, State state, unsigned known)
{
	const Line *fits = NULL;
	const char *answer;
	char		becomes[16];
	int			fitting = 0;
	bool		absent = state == STATE_NONE ||
		((known & FACT_LAPSED) && state != STATE_IN_FLIGHT && event != EVENT_PURGE);

	for (int i = 0; i < n; i++)
		if (strcmp(lines[i].call, events[event]) == 0 &&
			strchr(lines[i].states, absent ? '-' : (int) state) != NULL &&
			(known & lines[i].with) == lines[i].with && (known & lines[i].without) == 0)
		{
			fits = &lines[i];
			fitting++;
		}
	tell_decision(event, state, known, &answer, becomes);
	if (fitting == 1 && strcmp(fits->answer, answer) == 0 && strcmp(fits->becomes, becomes) == 0)
		return 0;
	printf("%s, state %c, facts %02x: %s, %s; ", events[event], absent ? '-' : (int) state, known, answer, becomes);
	if (fitting == 1)
		printf("the design has %s, %s\n", fits->answer, fits->becomes);
	else
		printf("%d lines of the design fit\n", fitting);
	return 1;
}

long
check_design(const char *file)
{
	static const State states[] = {STATE_NONE, STATE_IN_FLIGHT, STATE_DONE, STATE_FAILED, STATE_RELEASED};
	Line		lines[MOST_LINES];
	int			n = read_lines(file, lines);
	long		cells = 0;
	long		wrong = 0;

	for (Event event = EVENT_ACQUIRE; event <= EVENT_PURGE; event++)
		for (size_t i = 0; i < sizeof(states) / sizeof(states[0]); i++)
			for (unsigned known = 0; known < 1U << NFACTS; known++)
			{
				/* where there is no record nothing can be said of it */
				if (states[i] == STATE_NONE && (known & ~(FACT_EXPIRED | FACT_FORCED)) != 0)
					continue;
				cells++;
				wrong += check_cell(lines, n, event, states[i], known);
			}
	printf("%ld cells of the transition table, %d lines of the design, %ld not as written\n", cells, n, wrong);
	return wrong;
}
