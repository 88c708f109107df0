/*
 * history.c: what a client intended and was answered.
 *
 * Each row is one write(2) to a file opened for appending: a client that is killed has lost nothing of what it knew.
 */
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <unistd.h>

#include "torture.h"

void
history_open(History *history, int client)
{
	char		path[400];

	snprintf(path, sizeof(path), "%s/history/%d", options.folder, client);
	history->client = client;
	history->fd = open(path, O_WRONLY | O_CREAT | O_APPEND, 0600);
	if (history->fd < 0)
		fatal("cannot open %s", path);
}

static const char *
text_or_null(const char *text)
{
	return text == NULL || text[0] == '\0' ? NUL : text;
}

static const char *
number_or_null(int64_t number, bool known, char *room, size_t size)
{
	if (!known)
		return NUL;
	snprintf(room, size, "%" PRId64, number);
	return room;
}

void
history_write(History *history, const Entry *e)
{
	char		row[1200];
	char		room[5][24];
	int			length;

	length = snprintf(row, sizeof(row),
					  "%d\t%" PRIu64 "\t%c\t%" PRId64 "\t%" PRIu64 "\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n",
					  history->client, e->seq, e->kind, now_us(), e->txn, text_or_null(e->call),
					  e->op == NULL ? NUL : scope_names[e->op->scope],
					  number_or_null(e->op ? (int64_t) e->op->number : 0, e->op != NULL, room[0], sizeof(room[0])),
					  number_or_null(e->op ? (int64_t) e->op->item : 0, e->op != NULL, room[1], sizeof(room[1])),
					  text_or_null(e->key),
					  number_or_null(e->attempt, e->attempt > 0, room[2], sizeof(room[2])),
					  text_or_null(e->owner), text_or_null(e->asked), text_or_null(e->answer),
					  e->replayed < 0 ? NUL : e->replayed ? "t" : "f",
					  text_or_null(e->result),
					  number_or_null(e->lease, e->lease > 0, room[4], sizeof(room[4])));
	if (length >= (int) sizeof(row) || write(history->fd, row, length) != length)
		fatal("cannot write the history of client %d", history->client);
}
