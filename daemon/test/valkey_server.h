/* SPDX-License-Identifier: MIT */
/* Valkey servers for tests, each a process that dies with the test, with data in memory only. */
#ifndef KVBLKD_TEST_VALKEY_SERVER_H
#define KVBLKD_TEST_VALKEY_SERVER_H

#include <fcntl.h>
#include <hiredis/hiredis.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "free_port.h"

#define VALKEY_SERVER	"valkey-server"
#define VALKEY_ARGS	40

/**
 * struct valkey_server - a server
 * @pid: process, or 0
 * @port: port on 127.0.0.1
 * @bus: port of the cluster's bus
 * @address: 127.0.0.1 and @port
 * @dir: directory of its own, or ""
 * @control: connection of the test
 */
struct valkey_server {
	pid_t pid;
	int port;
	int bus;
	char address[32];
	char dir[32];
	redisContext *control;
};

static inline bool valkey_server_exists(void)
{
	return !system("command -v " VALKEY_SERVER " >/dev/null");
}

static inline void valkey_server_exec(const struct valkey_server *server, const char *const *more)
{
	char port[12], bus[12];
	const char *argv[VALKEY_ARGS] = { VALKEY_SERVER, "--bind", "127.0.0.1", "--port", port, "--save", "",
					  "--appendonly", "no", "--dir", server->dir, "--loglevel", "warning",
					  "--cluster-port", bus };
	int nr = 15, null = open("/dev/null", O_WRONLY);

	snprintf(port, sizeof(port), "%d", server->port);
	snprintf(bus, sizeof(bus), "%d", server->bus);
	while (more && *more && nr < VALKEY_ARGS - 1)
		argv[nr++] = *more++;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	dup2(null, STDOUT_FILENO);
	execvp(argv[0], (char **)argv);
	_exit(127);
}

static inline void valkey_server_stop(struct valkey_server *server)
{
	char remove[64];

	if (!server->pid)
		return;
	kill(server->pid, SIGKILL);
	waitpid(server->pid, NULL, 0);
	redisFree(server->control);
	snprintf(remove, sizeof(remove), "rm -r %s", server->dir);
	if (system(remove))
		perror(remove);
	server->pid = 0;
	server->control = NULL;
}

/* Returns whether the server is @pid, and no other one at the same port. */
static inline bool valkey_server_is(redisContext *control, pid_t pid)
{
	redisReply *reply = control && !control->err ? redisCommand(control, "INFO server") : NULL;
	const char *at = reply && reply->str ? strstr(reply->str, "process_id:") : NULL;
	bool is = at && strtol(at + strlen("process_id:"), NULL, 10) == pid;

	freeReplyObject(reply);
	return is;
}

/* Start the server at the ports in @server, and wait for it. Returns false if the process ended. */
static inline bool valkey_server_try(struct valkey_server *server, const char *const *more)
{
	snprintf(server->address, sizeof(server->address), "127.0.0.1:%d", server->port);
	snprintf(server->dir, sizeof(server->dir), "/tmp/valkey_server.XXXXXX");
	if (!mkdtemp(server->dir)) {
		perror("mkdtemp");
		exit(1);
	}
	server->pid = fork();
	if (!server->pid)
		valkey_server_exec(server, more);
	for (;;) {
		if (waitpid(server->pid, NULL, WNOHANG)) {
			valkey_server_stop(server);
			return false;
		}
		server->control = redisConnect("127.0.0.1", server->port);
		if (valkey_server_is(server->control, server->pid))
			return true;
		redisFree(server->control);
		usleep(10000);
	}
}

/* Stop the server's process, until SIGCONT. */
static inline void valkey_server_hang(const struct valkey_server *server)
{
	kill(server->pid, SIGSTOP);
	waitpid(server->pid, NULL, WUNTRACED);
}

/* Start a server at free ports with the options @more, which end with NULL. */
static inline void valkey_server_start(struct valkey_server *server, const char *const *more)
{
	/* another process may take a free port first */
	do {
		server->port = free_port();
		server->bus = free_port();
	} while (!valkey_server_try(server, more));
}


#endif
