/* SPDX-License-Identifier: MIT */
/* TCP ports for the servers of tests. */
#ifndef KVBLKD_TEST_FREE_PORT_H
#define KVBLKD_TEST_FREE_PORT_H

#include <arpa/inet.h>
#include <stdint.h>
#include <sys/socket.h>
#include <unistd.h>

/* Bind a TCP socket to *@port of 127.0.0.1, or to a free one for 0. Returns the socket, -1 on failure. */
static inline int bind_port(int *port)
{
	struct sockaddr_in address = { .sin_family = AF_INET, .sin_port = htons((uint16_t)*port),
				       .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	socklen_t len = sizeof(address);

	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &(int){ 1 }, sizeof(int));
	if (fd < 0 || bind(fd, (struct sockaddr *)&address, len) ||
	    getsockname(fd, (struct sockaddr *)&address, &len)) {
		close(fd);
		return -1;
	}
	*port = ntohs(address.sin_port);
	return fd;
}

/*
 * Find a port that is free, and stays so: another one at each call, in a range for each of the tests
 * that run at once, and none of those that the kernel gives to connections. So a server that died can
 * have its port again.
 */
static inline int free_port(void)
{
	static int port;
	int fd;

	if (!port)
		port = 10240 + getpid() % 217 * 100;
	do {
		port = port < 32000 ? port + 1 : 10240;
		fd = bind_port(&port);
	} while (fd < 0);
	close(fd);
	return port;
}

#endif /* KVBLKD_TEST_FREE_PORT_H */
