/*
 * server.c: the servers, as children of this process.
 *
 * The controller is the reaper of everything below it: a killed server must vanish from the process table before
 * another can start in its place.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "torture.h"

void
say(const char *format,...)
{
	va_list		args;

	va_start(args, format);
	vprintf(format, args);
	va_end(args);
	putchar('\n');
	fflush(stdout);
}

void
fatal(const char *format,...)
{
	va_list		args;

	va_start(args, format);
	fputs("torture: ", stderr);
	vfprintf(stderr, format, args);
	va_end(args);
	fputc('\n', stderr);
	exit(1);
}

PGresult *
must(PGconn *db, const char *sql)
{
	PGresult   *result = PQexec(db, sql);

	if (PQresultStatus(result) != PGRES_COMMAND_OK && PQresultStatus(result) != PGRES_TUPLES_OK)
		fatal("%s: %s", sql, PQerrorMessage(db));
	return result;
}

/* Take in whoever has died. */
void
reap(void)
{
	while (waitpid(-1, NULL, WNOHANG) > 0)
		;
}

static void
shell(const char *format,...)
{
	char		command[1500];
	va_list		args;
	int			status;

	va_start(args, format);
	vsnprintf(command, sizeof(command), format, args);
	va_end(args);
	status = system(command);
	if (status != 0)
		fatal("failed with %d: %s", status, command);
}

static void
append(const Server *server, const char *file, const char *text)
{
	char		path[400];
	FILE	   *out;

	snprintf(path, sizeof(path), "%s/data/%s", server->folder, file);
	out = fopen(path, "a");
	if (out == NULL || fputs(text, out) < 0 || fclose(out) != 0)
		fatal("cannot write %s", path);
}

static void
name(Server *server, int number)
{
	server->number = number;
	server->pid = 0;
	snprintf(server->folder, sizeof(server->folder), "%s/s%d", options.folder, number);
	(void) mkdir(server->folder, 0700);
}

/* The settings that a server has by its place, after those that were copied. */
static void
settle_in(Server *server)
{
	char		text[600];

	snprintf(text, sizeof(text), "unix_socket_directories = '%s'\nlisten_addresses = ''\nport = 5432\n", server->folder);
	append(server, "postgresql.conf", text);
}

void
server_make(Server *server, int number, const char *settings)
{
	name(server, number);
	shell("initdb -D %s/data -E UTF8 --locale=C.UTF-8 -A trust -N >%s/initdb.log 2>&1", server->folder, server->folder);
	append(server, "postgresql.conf", settings);
	settle_in(server);
}

void
be_silent(void *arg, const char *message)
{
	(void) arg;
	(void) message;
}

PGconn *
server_connect(const Server *server, const char *dbname)
{
	char		conninfo[500];
	PGconn	   *db;

	snprintf(conninfo, sizeof(conninfo),
			 "host=%s port=5432 dbname=%s connect_timeout=10 client_encoding=UTF8 application_name=rig options='-c client_min_messages=warning'",
			 server->folder, dbname);
	db = PQconnectdb(conninfo);
	(void) PQsetNoticeProcessor(db, be_silent, NULL);
	return db;
}

static void
launch(Server *server)
{
	char		data[400];
	char		log[400];
	int			fd;

	snprintf(data, sizeof(data), "%s/data", server->folder);
	snprintf(log, sizeof(log), "%s/log", server->folder);
	fflush(NULL);
	server->pid = fork();
	if (server->pid != 0)
		return;
	(void) prctl(PR_SET_PDEATHSIG, SIGQUIT);
	fd = open(log, O_WRONLY | O_CREAT | O_APPEND, 0600);
	(void) dup2(fd, 1);
	(void) dup2(fd, 2);
	execlp("postgres", "postgres", "-D", data, (char *) NULL);
	_exit(127);
}

bool
server_alive(Server *server)
{
	reap();
	return server->pid > 0 && kill(server->pid, 0) == 0;
}

/* Start it, again and again while the remains of its predecessor hold on to the shared memory. */
void
server_start(Server *server)
{
	char		lock[400];

	snprintf(lock, sizeof(lock), "%s/data/postmaster.pid", server->folder);
	for (int i = 0; i < 600; i++)
	{
		PGconn	   *db;
		bool		good;

		if (!server_alive(server))
			launch(server);
		nap_ms(100);
		db = server_connect(server, "postgres");
		good = PQstatus(db) == CONNECTION_OK;
		PQfinish(db);
		if (good)
			return;
	}
	fatal("server %d does not come back; see %s/log", server->number, server->folder);
}

static void
await_end(Server *server)
{
	for (int i = 0; i < 600 && server_alive(server); i++)
		nap_ms(20);
	server->pid = 0;
}

void
server_stop(Server *server)
{
	if (!server_alive(server))
		return;
	kill(server->pid, SIGINT);
	await_end(server);
}

/* Kill the children of a process. */
static void
kill_children(pid_t parent)
{
	DIR		   *proc = opendir("/proc");
	struct dirent *entry;

	while (proc != NULL && (entry = readdir(proc)) != NULL)
	{
		char		path[300];
		FILE	   *stat;
		int			pid;
		int			ppid;

		if (entry->d_name[0] < '0' || entry->d_name[0] > '9')
			continue;
		snprintf(path, sizeof(path), "/proc/%s/stat", entry->d_name);
		stat = fopen(path, "r");
		if (stat == NULL)
			continue;
		if (fscanf(stat, "%d (%*[^)]) %*c %d", &pid, &ppid) == 2 && ppid == parent)
			kill(pid, SIGKILL);
		fclose(stat);
	}
	if (proc != NULL)
		closedir(proc);
}

void
server_crash(Server *server, Crash kind)
{
	if (!server_alive(server))
		return;
	switch (kind)
	{
		case CRASH_IMMEDIATE:
			kill(server->pid, SIGQUIT);
			break;
		case CRASH_POSTMASTER:
			kill(server->pid, SIGKILL);
			break;
		case CRASH_POWER:
			kill(server->pid, SIGSTOP);
			kill_children(server->pid);
			kill(server->pid, SIGKILL);
			break;
	}
	await_end(server);
}

/* Make a standby of a running server. */
void
server_clone(Server *standby, const Server *primary)
{
	int			number = standby->number;

	name(standby, number);
	shell("rm -rf %s/data", standby->folder);
	shell("pg_basebackup -h %s -p 5432 -D %s/data -R -c fast -X stream -N >%s/basebackup.log 2>&1",
		  primary->folder, standby->folder, standby->folder);
	settle_in(standby);
	server_start(standby);
}

void
server_promote(Server *standby)
{
	PGconn	   *db = server_connect(standby, "postgres");

	PQclear(must(db, "SELECT pg_promote(true, 60)"));
	PQfinish(db);
}
