/* SPDX-License-Identifier: MIT */
/*
 * Wire format between preload.c, which forwards system calls of programs on the host, and
 * server.c, which makes the calls on a pool in a VM.
 *
 * The rule: a connection carries a single request and reply at a time. The connection on which a
 * node was opened owns the open file; the file is closed when the connection ends for any reason.
 */
#ifndef CARRY_H
#define CARRY_H

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>
#include <unistd.h>

/**
 * enum carry_what - type of a request
 * @CARRY_OPEN: payload: path of a node. ret: the session
 * @CARRY_PLAIN: payload: an ioctl's structure without pointers. Reply's payload: the same
 *     structure
 * @CARRY_SUBMIT: payload: see put_op() of preload.c
 * @CARRY_LOOKUP: payload: the structure, keys, lengths if any
 * @CARRY_RUN: payload: a command for bash, with guest.bash. ret: exit code. Reply's payload:
 *     output
 */
enum carry_what {
	CARRY_OPEN	= 1,
	CARRY_PLAIN	= 2,
	CARRY_SUBMIT	= 3,
	CARRY_LOOKUP	= 4,
	CARRY_RUN	= 5,
};

/* first byte from the server */
#define CARRY_HELLO	"k"

struct carry_request {
	uint32_t what;
	uint32_t session;
	uint64_t ioctl;
	uint64_t len;		/* bytes of payload behind the request */
};

struct carry_reply {
	int32_t ret;		/* result, or a negative errno */
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
