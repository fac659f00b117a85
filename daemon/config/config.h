/* SPDX-License-Identifier: MIT */
/* The wanted state of the host: validated values, independent of the file's syntax. */
#ifndef KVBLKD_CONFIG_CONFIG_H
#define KVBLKD_CONFIG_CONFIG_H

#include "common/tunables.h"
#include "config/settings.h"

#define CONFIG_MASTER_KEY	"user:kvblk"
#define CONFIG_PATH	"/etc/kvblk/kvblkd.conf"
#define CONFIG_DISCOVERY_NQN	"nqn.2014-08.org.nvmexpress.discovery"
#define CONFIG_IP_LEN	64		/* an IP address with its interface ("%eth0") */

/**
 * struct config_fabric - an address of a subsystem or a discovery controller
 * @nqn: NQN of the subsystem
 * @transport: tcp, rdma, fc or loop
 * @address: address of the target, NULL for loop
 * @port: port of the target
 * @host_address: source address, or NULL
 * @host_interface: source interface, or NULL
 * @host_nqn: NQN of this host, or NULL: from /etc/nvme/hostnqn
 * @host_id: id of this host, or NULL: from /etc/nvme/hostid
 * @secret_file: DH-HMAC-CHAP secret of the host, or NULL
 * @ctrl_secret_file: DH-HMAC-CHAP secret of the target, or NULL
 * @tls: encrypt the connection
 * @tls_key_file: TLS key, or NULL: from the keyring
 * @io_queues: queues for I/O, 0: driver's default
 * @write_queues: extra queues for writes, 0: none
 * @poll_queues: polled queues, 0: none
 * @queue_size: entries of a queue
 * @fast_io_fail: seconds; -1: off
 * @ctrl_loss: seconds; -1: never
 * @reconnect_delay: seconds
 * @keep_alive: seconds
 * @header_digest: header checksums of the transport
 * @data_digest: data checksums of the transport
 * @named: @address is a host name
 * @ip: address that the name resolved to when the connection was made or found; "": unknown;
 *	written by apply() only
 * @looked: the name was resolved once to find an earlier connection; written by apply() only
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
 * struct config_budget - write budget of each member of a pool; the lowest limit applies
 * @drive_writes: full drive writes a day; 0: no limit
 * @bytes: bytes a day; 0: no limit
 * @life_days: days that the drive is to last from now on; 0: no limit
 * @interval: seconds between two runs of the governor
 */
struct config_budget {
	double drive_writes;
	int64_t bytes;
	int64_t life_days;
	int64_t interval;
};

/**
 * struct config_reserve - reserve of free segments
 * @seconds: time that the free segments are to last, 0: low_permille and high_permille stay as
 *	set
 * @most_permille: upper limit of the reserve, permille of all segments
 */
struct config_reserve {
	int64_t seconds;
	int64_t most_permille;
};

/**
 * struct config_pod - pod of a pool
 * @name: name, or NULL: any pod, or none
 * @seed_of: device of another pool of the pod, or NULL: the pool begins the pod
 * @follow: follow the members of the pod's other pools
 * @adopt_after: seconds without a beat after which another node's pool is adopted; 0: never
 */
struct config_pod {
	char *name;
	char *seed_of;
	bool follow;
	int64_t adopt_after;
};

/* Most tenants of a pool, with "default". */
#define POOL_TENANTS	704

/**
 * struct config_tenant - a tenant of a pool; a number is -1, a text NULL if it stays unchanged
 * @name: name
 * @mode: mode of the device node, octal
 * @owner: owner of the device node, a name or a number
 * @group: group of the device node, a name or a number
 * @quota_bytes: most bytes on members, 0: no limit
 * @quota_bytes_soft: bytes from which on blocks are dropped, 0: 15/16 of @quota_bytes
 * @quota_blocks: most blocks on members, 0: no limit
 * @quota_blocks_soft: blocks from which on blocks are dropped, 0: 15/16 of @quota_blocks
 * @quota_dram: most bytes in memory, 0: no limit
 * @weight: share of bandwidth
 * @shared: tenant whose blocks this one may read, too; "": none
 * @encrypted: payloads are encrypted, with a key that kvblkd keeps
 * @uid: user id of @owner
 * @gid: group id of @group
 */
struct config_tenant {
	char *name;
	char *mode;
	char *owner;
	char *group;
	int64_t quota_bytes;
	int64_t quota_bytes_soft;
	int64_t quota_blocks;
	int64_t quota_blocks_soft;
	int64_t quota_dram;
	int64_t weight;
	char *shared;
	int64_t uid;
	int64_t gid;
	bool encrypted;
};

/**
 * struct config_pool - a pool
 * @name: name
 * @uuid: UUID, or NULL: the only pool of this name
 * @members: UUIDs or device paths; none: the member list of the superblock
 * @pod: pod that its members must be of
 * @degraded_after: seconds to wait for missing members; -1: no limit
 * @index_slots: index entries at an import, 0: unchanged
 * @block_size: typical block size in bytes, 0: unknown
 * @model: model of the blocks, or NULL
 * @ready: members that must serve before the pool is ready: "any", "all" or "N%"; NULL: any
 * @ready_below: percent of the pool that leases and readers may pin while it is ready, 0: any
 * @tunables: values in sysfs format, by row; NULL: unchanged
 * @budget: write budget
 * @reserve: reserve of free segments
 * @tenants: tenants, of &struct config_tenant
 */
struct config_pool {
	char *name;
	char *uuid;
	struct texts members;
	struct config_pod pod;
	int64_t degraded_after;
	int64_t index_slots;
	int64_t block_size;
	char *model;
	char *ready;
	int64_t ready_below;
	char *tunables[TUNABLES_MAX];
	struct config_budget budget;
	struct config_reserve reserve;
	struct groups tenants;
};

/**
 * struct config_metrics - metrics exporter
 * @address: address to listen on, or NULL: disabled
 * @port: port to listen on
 */
struct config_metrics {
	char *address;
	int64_t port;
};

/* Pools that the KV event exporter reports at most. */
#define KVEVENTS_POOLS	64

/**
 * struct config_kv_events - KV event exporter
 * @endpoint: endpoint of the published batches, or NULL: disabled
 * @replay: endpoint of the replay socket
 * @topic: topic of the messages
 * @medium: medium that the events name
 * @pools: pools to report; none: all configured pools
 * @sources: endpoints of engines that publish tokens
 * @hash_only: report blocks without known tokens, too
 * @parts: blocks of a hash
 * @buffer_bytes: memory for batches kept for replay
 * @token_bytes: memory for tokens
 * @changes: records that the change feed holds for kvblkd, a power of two
 * @repeat: seconds of silence before the last batch is sent again, 0: never
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
	int64_t changes;
	int64_t repeat;
};

/**
 * struct config_prestage - socket for prefetch hints
 * @socket: path, or NULL: disabled
 * @group: group of the socket, or NULL: root
 * @mode: mode of the socket, octal
 * @pools: pools that clients may use
 * @parallel: prefetches that run at a time
 * @waiting: requests of a user that may wait or hold a lease
 * @waiting_bytes: memory of a user's requests
 * @bandwidth: bytes a second of all requests, 0: no limit
 * @request_bytes: bytes that a request may prefetch, 0: no limit
 * @body: longest request, bytes
 * @sessions: sessions whose chains are kept
 * @session_bytes: memory of the chains
 * @lease: longest lease, seconds
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

/* Most peers that the configuration may name. */
#define POD_PEERS	1024

/**
 * struct config_peers - connections to the kvblkd of other nodes of pods
 * @listen: endpoint at which touches are published, or NULL: disabled
 * @peers: endpoints of the other nodes
 */
struct config_peers {
	char *listen;
	struct texts peers;
};

/**
 * struct config_directory - directory of the anchors of pods
 * @engine: kind of the servers, or NULL: disabled
 * @servers: addresses of servers
 * @password_file: file with the password of the servers, or NULL
 * @span: blocks for each anchor
 * @ask_ms: longest time that a lookup waits for an answer, milliseconds
 * @ttl_s: time that a server keeps an anchor, seconds
 */
struct config_directory {
	char *engine;
	struct texts servers;
	char *password_file;
	int64_t span;
	int64_t ask_ms;
	int64_t ttl_s;
};

/**
 * struct config - wanted state of a host
 * @modules: modules to load in addition to those needed anyway
 * @host_nqn: default of the fabrics' host_nqn, or NULL
 * @host_id: default of the fabrics' host_id, or NULL
 * @master_key: key of the keyrings that wraps the keys of encrypted tenants
 * @salt: file of the deployment's salt; NULL: KVBLK_SALT_FILE; "": none
 * @wrong_host_nqn: @host_nqn is NULL because the file's value is invalid
 * @wrong_host_id: @host_id is NULL because the file's value is invalid
 * @subsystems: subsystems to connect to
 * @nr_subsystems: entries of @subsystems
 * @discovery: discovery controllers whose subsystems to connect to
 * @nr_discovery: entries of @discovery
 * @pools: pools to import
 * @nr_pools: entries of @pools
 * @metrics: metrics exporter
 * @kv_events: KV event exporter
 * @prestage: socket for prefetch hints
 * @pod: connections to other nodes
 * @directory: directory of the anchors of pods
 * @unreadable: the main file could not be read; drop-ins may have been
 */
struct config {
	struct texts modules;
	char *host_nqn;
	char *host_id;
	char *salt;
	char *master_key;
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
	struct config_peers pod;
	struct config_directory directory;
	bool unreadable;
};

/*
 * Load @path, then the drop-ins in @path.d that end in .conf, in alphabetical order. Each error is a line to
 * @errors. An invalid setting is skipped; its group is skipped, too, if the group would mean
 * something else without it. A drop-in with a syntax error is skipped as a whole. Returns the
 * number of errors; config_free() is needed in any case.
 */
unsigned int config_load(const char *path, struct config *config, FILE *errors);
void config_free(struct config *config);

/* Returns true if @pool has a write budget. */
bool config_has_budget(const struct config_pool *pool);

/* Returns true if the governor moves @tunable of @pool; the plan must not set it then. */
bool config_is_governed(const struct config_pool *pool, const char *tunable);

/* Parse a configuration from a string, for tests. */
unsigned int config_parse(const char *text, struct config *config, FILE *errors);

/* Print all settings in the form of kvblkd.conf(5). */
void config_print_settings(FILE *to);

/* Returns whether @endpoint may be one of &struct config_peers.peers. */
bool config_is_peer(const char *endpoint);

#endif
