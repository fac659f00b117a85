/* SPDX-License-Identifier: MIT */
/*
 * What /etc/kvblk/kvblkd.conf describes: the state that a host is to have. Rule: a
 * plain struct that holds values that are allowed, and nothing of the file but where
 * a thing is said.
 */
#ifndef KVBLKD_CONFIG_H
#define KVBLKD_CONFIG_H

#include "common/tunables.h"
#include "config/settings.h"

#define CONFIG_PATH	"/etc/kvblk/kvblkd.conf"
#define CONFIG_DISCOVERY_NQN	"nqn.2014-08.org.nvmexpress.discovery"
#define CONFIG_IP_LEN	64		/* of an address with the interface that it is of */

/**
 * struct config_fabric - a subsystem, or a discovery controller, by one address
 * @nqn: of the subsystem
 * @transport: tcp, rdma, fc or loop
 * @address: of the target, NULL for loop
 * @port: of the target
 * @host_address: that it is reached from, or NULL
 * @host_interface: likewise
 * @host_nqn: this host's, or NULL: the one in /etc/nvme
 * @host_id: likewise
 * @secret_file: of DH-HMAC-CHAP, the host's, or NULL
 * @ctrl_secret_file: the target's, or NULL
 * @tls: on the connection
 * @tls_key_file: a key for it, or NULL: the keyring has one
 * @io_queues: 0: the driver decides, as for the next three
 * @write_queues: of their own, beside @io_queues
 * @poll_queues: likewise
 * @queue_size: entries
 * @fast_io_fail: seconds; -1: off
 * @ctrl_loss: seconds; -1: never
 * @reconnect_delay: seconds
 * @keep_alive: seconds
 * @header_digest: of the transport
 * @data_digest: likewise
 * @named: @address is a host name
 * @ip: where the name led to when the connection was made or found; "": not known;
 *	written by apply() alone
 * @looked: the name was looked up once, to find a connection that was there before; as @ip
 */
struct config_fabric {
	char *nqn;
	char *transport;
	char *address;
	int64_t port;
	char *host_address;
	char *host_interface;
	char *host_nqn;
	char *host_id;
	char *secret_file;
	char *ctrl_secret_file;
	bool tls;
	char *tls_key_file;
	int64_t io_queues;
	int64_t write_queues;
	int64_t poll_queues;
	int64_t queue_size;
	int64_t fast_io_fail;
	int64_t ctrl_loss;
	int64_t reconnect_delay;
	int64_t keep_alive;
	bool header_digest;
	bool data_digest;
	bool named;
	char ip[CONFIG_IP_LEN];
	bool looked;
};

/**
 * struct config_budget - what may be written to each member of a pool; the least counts
 * @drive_writes: its size so many times a day; 0: not said
 * @bytes: bytes a day; 0: not said
 * @life_days: that the drive is to last from now on; 0: not said
 * @interval: seconds between two looks of the governor
 */
struct config_budget {
	double drive_writes;
	int64_t bytes;
	int64_t life_days;
	int64_t interval;
};

/**
 * struct config_reserve - free segments that are kept
 * @seconds: that they are to last for, 0: low_permille and high_permille are left alone
 * @most_permille: of all segments, however short that is
 */
struct config_reserve {
	int64_t seconds;
	int64_t most_permille;
};

/**
 * struct config_pool - a pool
 * @name: its name
 * @uuid: its identity, or NULL: that of the one pool of this name
 * @members: uuids, or paths of devices; none: those that the pool knows
 * @degraded_after: seconds that missing members are waited for; -1: as long as it takes
 * @index_slots: entries of the index at an import, 0: as many as before
 * @block_size: that runtimes put, 0: not known
 * @model: that the blocks are of, or NULL
 * @ready: members that serve when the pool is ready: "any", "all" or "N%"; NULL: any
 * @ready_below: percent of the pool that leases and readers may hold, 0: any
 * @tunables: by row, as sysfs shows them; NULL: left alone
 * @budget: of writes
 * @reserve: of free segments
 */
struct config_pool {
	char *name;
	char *uuid;
	struct texts members;
	int64_t degraded_after;
	int64_t index_slots;
	int64_t block_size;
	char *model;
	char *ready;
	int64_t ready_below;
	char *tunables[TUNABLES_MAX];
	struct config_budget budget;
	struct config_reserve reserve;
};

/**
 * struct config_metrics - the exporter of metrics
 * @address: that it listens on, or NULL: there is none
 * @port: likewise
 */
struct config_metrics {
	char *address;
	int64_t port;
};

/**
 * struct config_kv_events - the exporter of KV events
 * @endpoint: that batches are published at, or NULL: there is none
 * @replay: that batches are asked for at
 * @topic: of the messages
 * @medium: that events name
 * @pools: whose blocks they are about; none: @config's pools
 * @sources: endpoints of engines that tell tokens
 * @hash_only: blocks whose tokens are not known are told as stored, too
 * @parts: blocks that a hash has
 * @buffer_bytes: memory of batches that are kept
 * @token_bytes: memory of tokens
 * @journal: records that wait for kvblkd, a power of two
 * @repeat: seconds, 0: never
 */
struct config_kv_events {
	char *endpoint;
	char *replay;
	char *topic;
	char *medium;
	struct texts pools;
	struct texts sources;
	bool hash_only;
	int64_t parts;
	int64_t buffer_bytes;
	int64_t token_bytes;
	int64_t journal;
	int64_t repeat;
};

/**
 * struct config_prestage - the socket that takes hints of what will be wanted
 * @socket: its path, or NULL: there is none
 * @group: that may connect, or NULL: root's
 * @mode: of the socket, octal
 * @pools: that callers may use
 * @parallel: prefetches that run at a time
 * @waiting: of a user that wait for their turn, or hold a lease
 * @waiting_bytes: memory of those, of a user
 * @bandwidth: bytes a second of all together, 0: no limit
 * @request_bytes: that one of them brings in, 0: no limit
 * @body: bytes of a request
 * @sessions: whose chains are remembered
 * @session_bytes: memory of those
 * @lease: longest one, seconds
 */
struct config_prestage {
	char *socket;
	char *group;
	char *mode;
	struct texts pools;
	int64_t parallel;
	int64_t waiting;
	int64_t waiting_bytes;
	int64_t bandwidth;
	int64_t request_bytes;
	int64_t body;
	int64_t sessions;
	int64_t session_bytes;
	int64_t lease;
};

/**
 * struct config - the state that a host is to have
 * @modules: beside those that are needed anyway
 * @host_nqn: for all that have none, or NULL
 * @host_id: likewise
 * @wrong_host_nqn: @host_nqn is NULL because what the file has is wrong
 * @wrong_host_id: likewise
 * @subsystems: to connect to
 * @nr_subsystems: how many
 * @discovery: controllers whose subsystems are to be connected to
 * @nr_discovery: how many
 * @pools: to have up
 * @nr_pools: how many
 * @metrics: exporter
 * @kv_events: exporter
 * @prestage: socket for hints
 * @unreadable: nothing of the file itself could be read, whatever drop-ins say
 */
struct config {
	struct texts modules;
	char *host_nqn;
	char *host_id;
	bool wrong_host_nqn;
	bool wrong_host_id;
	struct config_fabric *subsystems;
	size_t nr_subsystems;
	struct config_fabric *discovery;
	size_t nr_discovery;
	struct config_pool *pools;
	size_t nr_pools;
	struct config_metrics metrics;
	struct config_kv_events kv_events;
	struct config_prestage prestage;
	bool unreadable;
};

/*
 * Reads @path, and after it what is in the directory @path.d and is called *.conf, in
 * the order of the names. Returns how many errors there were, each of which is a line
 * to @errors; config_free() is due in any case. An error costs the setting that is wrong,
 * or its group if the group would mean something else without it, or a drop-in that is
 * no configuration: @config has the rest.
 */
unsigned int config_load(const char *path, struct config *config, FILE *errors);
void config_free(struct config *config);

/* Whether @pool has a budget of writes. */
bool config_has_budget(const struct config_pool *pool);

/* Whether this tunable of @pool is moved to keep to its budget: it is not set then. */
bool config_is_governed(const struct config_pool *pool, const char *tunable);

/* A text that is no file, for tests. */
unsigned int config_parse(const char *text, struct config *config, FILE *errors);

/* All settings, as the man page has them. */
void config_print_settings(FILE *to);

#endif
