/* SPDX-License-Identifier: MIT */
/*
 * A connection to a Valkey server on an sd_event loop: pipelined commands, each with one reply, in
 * their order. Built on hiredis' buffers and parser. Not on its asynchronous context, which aborts
 * the process at a reply that no command waits for.
 */
#ifndef KVBLKD_POD_VALKEY_H
#define KVBLKD_POD_VALKEY_H

#include <hiredis/hiredis.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <systemd/sd-event.h>

#define VALKEY_COMMANDS	4096u	/* most commands without a reply */

/*
 * Handle a reply; NULL: the connection ended before. Returns false to end the connection: the
 * reply was unexpected. Must not call valkey_close().
 */
typedef bool valkey_reply(void *arg, const redisReply *reply);

/* Called at most once, when the connection has ended; @why is valid during the call. Call valkey_close(). */
typedef void valkey_down(void *arg, const char *why);

struct valkey;

/**
 * valkey_open() - connect in the background
 * @event: the loop
 * @ip: IP address
 * @port: port
 * @down: called when the connection cannot be made or ends
 * @arg: argument of @down
 * @conn: set on success
 *
 * Return: 0 or a negative errno.
 */
int valkey_open(sd_event *event, const char *ip, int port, valkey_down *down, void *arg,
		struct valkey **conn);

/* Close the connection, then call the handlers of all missing replies with NULL. */
void valkey_close(struct valkey *conn);

/**
 * valkey_send() - send a command
 * @conn: the connection
 * @argc: number of arguments, with the command's name
 * @argv: arguments
 * @len: their lengths
 * @fn: called once, for the reply
 * @arg: argument of @fn
 *
 * Return: false if VALKEY_COMMANDS commands have no reply, or without memory; @fn is not called then.
 */
bool valkey_send(struct valkey *conn, int argc, const char **argv, const size_t *len,
		 valkey_reply *fn, void *arg);

/* Returns the microseconds for which the oldest command without a reply waits; 0: there is none. */
uint64_t valkey_age(const struct valkey *conn);

#endif
