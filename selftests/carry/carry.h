/* SPDX-License-Identifier: MIT */
/*
 * A pool in a VM, for programs of the host: what goes over the wire between preload.c,
 * which takes their system calls, and server.c, which makes these in the VM.
 *
 * Rule: a request and its reply are alone on their connection. The connection that
 * opened a node owns the open file; when it ends, however it does, the file is closed.
 */
#ifndef CARRY_H
#define CARRY_H

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>
#include <unistd.h>

/**
 * enum carry_what - what is asked for
 * @CARRY_OPEN: payload: the node's path. The answer is the session
 * @CARRY_PLAIN: payload: an ioctl's structure, which names no memory. So is the reply's
 * @CARRY_SUBMIT: payload: see put_op() of preload.c
 * @CARRY_LOOKUP: payload: the structure, keys, lengths if there are any
 * @CARRY_RUN: payload: a command for bash, which has guest.bash. The answer is its exit
 *	code, the reply's payload what it printed
 */
enum carry_what {
	CARRY_OPEN	= 1,
	CARRY_PLAIN	= 2,
	CARRY_SUBMIT	= 3,
	CARRY_LOOKUP	= 4,
	CARRY_RUN	= 5,
};

/* what the VM's side sends first */
#define CARRY_HELLO	"k"

struct carry_request {
	uint32_t what;
	uint32_t session;
	uint64_t ioctl;
	uint64_t len;		/* of the payload that follows */
};

struct carry_reply {
	int32_t ret;		/* or a negative errno */
	uint32_t reserved;
	uint64_t len;
};

static inline bool send_all(int fd, const void *data, size_t len)
{
	while (len) {
		ssize_t n = send(fd, data, len, MSG_NOSIGNAL);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return false;
		data = (const char *)data + n;
		len -= (size_t)n;
	}
	return true;
}

static inline bool receive_all(int fd, void *data, size_t len)
{
	while (len) {
		ssize_t n = read(fd, data, len);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return false;
		data = (char *)data + n;
		len -= (size_t)n;
	}
	return true;
}

#endif
