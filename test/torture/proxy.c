/*
 * proxy.c: between the clients and the servers; it delays, and loses requests and replies.
 *
 * A lost reply is read from the server and thrown away, a lost request is never sent on; either way the connection
 * ends, as it would after a broken network.  One process serves all connections.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <signal.h>
#include <unistd.h>

#include "torture.h"

#define MAX_PAIRS 256

/* Bytes on their way in one direction. */
typedef struct Way
{
	char		bytes[16384];
	size_t		length;
	size_t		sent;
	int64_t		not_before;
} Way;

typedef struct Pair
{
	bool		used;
	int			fd[2];			/* the client's, the server's */
	Way			way[2];			/* from the client, from the server */
} Pair;

static Pair pairs[MAX_PAIRS];

/* A listening socket on the loopback interface, at a port that was free. */
int
proxy_listen(int *port)
{
	struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t	length = sizeof(address);
	int			fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if (fd < 0 || bind(fd, (struct sockaddr *) &address, length) < 0 || listen(fd, 128) < 0 ||
		getsockname(fd, (struct sockaddr *) &address, &length) < 0)
		fatal("the proxy cannot listen: %s", strerror(errno));
	*port = ntohs(address.sin_port);
	return fd;
}

static void
close_pair(Pair *pair)
{
	close(pair->fd[0]);
	close(pair->fd[1]);
	pair->used = false;
}

static void
accept_one(int listener, const char *path)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int			one = 1;
	int			client = accept4(listener, NULL, NULL, SOCK_NONBLOCK);
	int			server;
	Pair	   *pair = NULL;

	if (client < 0)
		return;
	(void) setsockopt(client, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	for (int i = 0; i < MAX_PAIRS && pair == NULL; i++)
		if (!pairs[i].used)
			pair = &pairs[i];
	server = socket(AF_UNIX, SOCK_STREAM, 0);
	snprintf(address.sun_path, sizeof(address.sun_path), "%s", path);
	if (pair == NULL || server < 0 || connect(server, (struct sockaddr *) &address, sizeof(address)) < 0)
	{
		close(client);
		if (server >= 0)
			close(server);
		return;
	}
	(void) fcntl(server, F_SETFL, O_NONBLOCK);
	memset(pair, 0, sizeof(*pair));
	pair->used = true;
	pair->fd[0] = client;
	pair->fd[1] = server;
}

static void
count(Fault fault)
{
	atomic_fetch_add(&shared->faults[fault], 1);
}

/* Something came in on a way; false where the connection is to end. */
static bool
receive(Pair *pair, int from, Random *random)
{
	Way		   *way = &pair->way[from];
	ssize_t		got = read(pair->fd[from], way->bytes, sizeof(way->bytes));

	if (got < 0 && (errno == EAGAIN || errno == EINTR))
		return true;
	if (got <= 0)
		return false;
	way->length = got;
	way->sent = 0;
	way->not_before = 0;
	if (atomic_load(&shared->calm))
		return true;
	if (random_percent(random, 0.25))
	{
		count(from == 0 ? FAULT_REQUEST_DROPPED : FAULT_REPLY_DROPPED);
		return false;
	}
	if (random_percent(random, 0.5))
	{
		count(FAULT_DELAYED);
		way->not_before = now_us() + 1000 * (int64_t) random_below(random, random_percent(random, 10) ? 2500 : 120);
	}
	return true;
}

/* Send on what waits on a way; false where the connection is to end. */
static bool
forward(Pair *pair, int from)
{
	Way		   *way = &pair->way[from];
	ssize_t		sent = send(pair->fd[1 - from], way->bytes + way->sent, way->length - way->sent, MSG_NOSIGNAL);

	if (sent < 0)
		return errno == EAGAIN || errno == EINTR;
	way->sent += sent;
	if (way->sent == way->length)
		way->length = way->sent = 0;
	return true;
}

static void
serve(Pair *pair, const struct pollfd *polled, Random *random)
{
	for (int from = 0; from < 2; from++)
	{
		bool		good = true;

		if (pair->way[from].length == 0 && (polled[from].revents & (POLLIN | POLLHUP | POLLERR)))
			good = receive(pair, from, random);
		if (good && pair->way[from].length > 0 && now_us() >= pair->way[from].not_before)
			good = forward(pair, from);
		if (!good)
		{
			close_pair(pair);
			return;
		}
	}
}

static void
watch(struct pollfd *polled, Pair *pair)
{
	for (int side = 0; side < 2; side++)
	{
		polled[side].fd = pair->fd[side];
		polled[side].events = pair->way[side].length == 0 ? POLLIN : 0;
		if (pair->way[1 - side].length > 0 && now_us() >= pair->way[1 - side].not_before)
			polled[side].events |= POLLOUT;
	}
	/* a way that is held up is not asked whether its end is still there: it would answer without end */
	for (int side = 0; side < 2; side++)
		if (polled[side].events == 0)
			polled[side].fd = -1;
}

void
proxy_run(const int listeners[2], const char *const sockets[2])
{
	Random		random = random_of(options.seed, 999);

	(void) prctl(PR_SET_PDEATHSIG, SIGKILL);
	for (;;)
	{
		struct pollfd polled[2 + 2 * MAX_PAIRS];
		Pair	   *of[MAX_PAIRS];
		int			n = 0;
		bool		held = false;

		for (int i = 0; i < 2; i++)
			polled[i] = (struct pollfd) {listeners[i], POLLIN, 0};
		for (int i = 0; i < MAX_PAIRS; i++)
			if (pairs[i].used)
			{
				held = held || pairs[i].way[0].not_before > 0 || pairs[i].way[1].not_before > 0;
				watch(&polled[2 + 2 * n], &pairs[i]);
				of[n++] = &pairs[i];
			}
		if (poll(polled, 2 + 2 * n, held ? 5 : 200) < 0)
			continue;
		for (int i = 0; i < n; i++)
			serve(of[i], &polled[2 + 2 * i], &random);
		for (int i = 0; i < 2; i++)
			if (polled[i].revents & POLLIN)
				accept_one(listeners[i], sockets[i]);
	}
}
