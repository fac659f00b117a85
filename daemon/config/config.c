// SPDX-License-Identifier: MIT
/* The configuration file: sections, rows of settings, and rules between settings. See config.h. */
#include <arpa/inet.h>
#include <ctype.h>
#include <errno.h>
#include <glob.h>
#include <inttypes.h>
#include <libgen.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <linux/kvblk.h>

#include "common/owner.h"
#include "config/config.h"

#define DISCOVERY_PORT	8009
#define POOL_MEMBERS	64
#define KV_EVENTS_SOURCES	256
#define KV_EVENTS_CHANGES	65536
#define DIRECTORY_SERVERS	64

#define ROOT(field)	.offset = offsetof(struct config, field)
#define FABRIC(field)	.offset = offsetof(struct config_fabric, field)
#define POOL(field)	.offset = offsetof(struct config_pool, field)

#define AN_NQN		"an NQN, nqn. and up to 219 characters without blanks and commas"
#define A_UUID		"a UUID"
#define A_PATH		"a path that begins with a slash"

/* Accept a path, or "" for none. */
static bool is_path_or_none(const char *text)
{
	return !*text || is_path(text);
}

/* Accept what the kernel takes for the master key of a key of the type "encrypted". */
static bool is_master_key(const char *text)
{
	const char *name = strchr(text, ':');

	return name && name[1] && strlen(text) < 128 &&
	       (!strncmp(text, "user:", 5) || !strncmp(text, "trusted:", 8)) &&
	       !strpbrk(text, " \t\n");
}

static const struct setting root_rows[] = {
	{ .name = "modules", .type = SETTING_LIST, ROOT(modules), .most = 64,
	  .valid = is_module_name, .allowed = "the name of a kernel module",
	  .doc = "Kernel modules to load. Modules that subsystems and pools need are loaded in any case." },
	{ .name = "host_nqn", .type = SETTING_TEXT, ROOT(host_nqn),
	  .valid = is_nqn, .allowed = AN_NQN,
	  .doc = "NQN of this host, for subsystems without host_nqn. Default: the NQN in /etc/nvme/hostnqn." },
	{ .name = "host_id", .type = SETTING_TEXT, ROOT(host_id),
	  .valid = is_uuid, .allowed = A_UUID,
	  .doc = "UUID of this host, for subsystems without host_id. Default: the UUID in /etc/nvme/hostid." },
	{ .name = "salt", .type = SETTING_TEXT, ROOT(salt),
	  .valid = is_path_or_none, .allowed = A_PATH ", or an empty one",
	  .doc = "File of the deployment's salt, which kvblkd makes when it starts if there is none. Connectors read the default path unless their option salt_file names another. Default: /etc/kvblk/salt. An empty string: none." },
	{ .name = "master_key", .type = SETTING_TEXT, ROOT(master_key),
	  .valid = is_master_key, .allowed = "user: or trusted:, and the name of a key without blanks",
	  .doc = "Key of the kernel's keyrings that wraps the keys of encrypted tenants. It must be in a keyring of kvblkd whenever kvblkd creates an encrypted tenant or imports its pool; see kvblkd(8). Default: " CONFIG_MASTER_KEY "." },
	{ 0 },
};

static const struct setting fabric_rows[] = {
	{ .name = "nqn", .type = SETTING_TEXT, FABRIC(nqn), .vital = true, .required = true,
	  .valid = is_nqn, .allowed = AN_NQN,
	  .doc = "NQN of the subsystem." },
	{ .name = "transport", .type = SETTING_TEXT, FABRIC(transport), .vital = true,
	  .valid = is_transport, .allowed = "tcp, rdma, fc or loop",
	  .doc = "Transport of the connection. Default: tcp." },
	{ .name = "address", .type = SETTING_TEXT, FABRIC(address), .vital = true,
	  .valid = is_address, .allowed = "an address without blanks and commas",
	  .doc = "Address of the target. For tcp and rdma: an IPv4 address, an IPv6 address or a host name. kvblkd resolves a host name at each attempt to connect, and connects once: to the first of its addresses that responds. An established connection does not follow a later change of the name. Required for each transport but loop." },
	{ .name = "port", .type = SETTING_NUMBER, FABRIC(port), .vital = true, .least = 1, .most = 65535,
	  .standard = 4420,
	  .doc = "Port of the target. Default: 4420, or 8009 for a discovery controller." },
	{ .name = "host_address", .type = SETTING_TEXT, FABRIC(host_address), .vital = true,
	  .valid = is_address, .allowed = "an address without blanks and commas",
	  .doc = "Address of this host from which to connect." },
	{ .name = "host_interface", .type = SETTING_TEXT, FABRIC(host_interface), .vital = true,
	  .valid = is_address, .allowed = "the name of a network interface",
	  .doc = "Network interface from which to connect." },
	{ .name = "host_nqn", .type = SETTING_TEXT, FABRIC(host_nqn), .vital = true,
	  .valid = is_nqn, .allowed = AN_NQN,
	  .doc = "NQN of this host for this subsystem. Default: host_nqn of the host." },
	{ .name = "host_id", .type = SETTING_TEXT, FABRIC(host_id), .vital = true,
	  .valid = is_uuid, .allowed = A_UUID,
	  .doc = "UUID of this host for this subsystem. Default: host_id of the host." },
	{ .name = "dhchap_secret_file", .type = SETTING_TEXT, FABRIC(secret_file), .vital = true,
	  .valid = is_path, .allowed = A_PATH,
	  .doc = "File with this host's DH-HMAC-CHAP secret (DHHC-1:...). Its mode must deny access to group and others, as 0600 does." },
	{ .name = "dhchap_ctrl_secret_file", .type = SETTING_TEXT, FABRIC(ctrl_secret_file), .vital = true,
	  .valid = is_path, .allowed = A_PATH,
	  .doc = "File with the target's DH-HMAC-CHAP secret, for bidirectional authentication. Requires dhchap_secret_file, and the same mode." },
	{ .name = "tls", .type = SETTING_BOOL, FABRIC(tls), .vital = true,
	  .doc = "Encrypt the connection with TLS. Requires tcp and tlshd. Default: false." },
	{ .name = "tls_key_file", .type = SETTING_TEXT, FABRIC(tls_key_file), .vital = true,
	  .valid = is_path, .allowed = A_PATH,
	  .doc = "File with a TLS key (NVMeTLSkey-1:...). Requires tls, and the same mode as dhchap_secret_file. Default: the key is already in the keyring." },
	{ .name = "io_queues", .type = SETTING_NUMBER, FABRIC(io_queues), .most = 65535,
	  .doc = "Number of I/O queues. Default: 0, the driver's choice." },
	{ .name = "write_queues", .type = SETTING_NUMBER, FABRIC(write_queues), .most = 65535,
	  .doc = "Number of additional queues for writes only. Default: 0." },
	{ .name = "poll_queues", .type = SETTING_NUMBER, FABRIC(poll_queues), .most = 65535,
	  .doc = "Number of additional queues that are polled. Default: 0." },
	{ .name = "queue_size", .type = SETTING_NUMBER, FABRIC(queue_size), .least = 16,
	  .most = 1024, .standard = 128, .doc = "Entries of each queue. Default: 128." },
	{ .name = "fast_io_fail", .type = SETTING_NUMBER, FABRIC(fast_io_fail), .least = -1,
	  .most = 86400, .standard = 8,
	  .doc = "Seconds after which I/O to an unreachable target fails. Recommended: slightly more than the tunable suspect_ms. Default: 8. -1: I/O fails only after ctrl_loss." },
	{ .name = "ctrl_loss", .type = SETTING_NUMBER, FABRIC(ctrl_loss), .least = -1,
	  .most = 86400, .standard = 600,
	  .doc = "Seconds after which the driver stops reconnecting to an unreachable target. kvblkd then retries the connection. Default: 600. -1: the driver never stops." },
	{ .name = "reconnect_delay", .type = SETTING_NUMBER, FABRIC(reconnect_delay),
	  .least = 1, .most = 3600, .standard = 2,
	  .doc = "Seconds between two attempts of the driver to reconnect. Default: 2." },
	{ .name = "keep_alive", .type = SETTING_NUMBER, FABRIC(keep_alive), .least = 1,
	  .most = 86400, .standard = 5,
	  .doc = "Keep-alive timeout in seconds: a connection without a response for this long is lost. Default: 5." },
	{ .name = "header_digest", .type = SETTING_BOOL, FABRIC(header_digest),
	  .doc = "Use the transport's header digest. Default: false." },
	{ .name = "data_digest", .type = SETTING_BOOL, FABRIC(data_digest),
	  .doc = "Use the transport's data digest. kvblk then copies the payload of each put. Default: false." },
	{ 0 },
};

#define BUDGET(field)	.offset = offsetof(struct config_budget, field)
#define RESERVE(field)	.offset = offsetof(struct config_reserve, field)

static const struct setting budget_rows[] = {
	{ .name = "drive_writes", .type = SETTING_REAL, BUDGET(drive_writes), .most = 1000,
	  .doc = "Drive writes per day (DWPD): how often a member may be written in full each day. See the drive's data sheet." },
	{ .name = "bytes", .type = SETTING_SIZE, BUDGET(bytes), .least = 1 << 20,
	  .most = 1ll << 50, .doc = "Bytes that may be written to a member each day." },
	{ .name = "life_days", .type = SETTING_NUMBER, BUDGET(life_days), .least = 1,
	  .most = 36500,
	  .doc = "Days that each drive must last, counted anew at each measurement. The daily budget is computed from two fields of the SMART log: percentage used, data units written. A drive without a SMART log, or with 0 % used, is not limited by this setting." },
	{ .name = "interval", .type = SETTING_NUMBER, BUDGET(interval), .least = 1,
	  .most = 3600, .standard = 300,
	  .doc = "Seconds between two measurements. Unused and exceeded budget is carried over for 288 intervals: one day with the default of 300 s. A shorter interval enforces the budget over shorter periods, and costs hits." },
	{ 0 },
};

static const struct setting reserve_rows[] = {
	{ .name = "seconds", .type = SETTING_NUMBER, RESERVE(seconds), .most = 3600,
	  .doc = "Seconds that the free segments must last at the peak write rate and the peak reclaim rate of the last hour. Default: 0, kvblkd does not change low_permille and high_permille." },
	{ .name = "most_permille", .type = SETTING_NUMBER, RESERVE(most_permille), .least = 2,
	  .most = 500, .standard = 100,
	  .doc = "Upper limit of low_permille. Default: 100." },
	{ 0 },
};

#define POD(field)	.offset = offsetof(struct config_pod, field)
#define A_POOL_NAME	"1 to 31 letters, digits, '.', '-' or '_', the first one a letter or digit"

static const struct setting pod_rows[] = {
	{ .name = "name", .type = SETTING_TEXT, POD(name), .vital = true, .required = true,
	  .valid = is_pool_name, .allowed = A_POOL_NAME,
	  .doc = "Name of the pod." },
	{ .name = "seed_of", .type = SETTING_TEXT, POD(seed_of),
	  .valid = is_path, .allowed = A_PATH,
	  .doc = "Member of another pool of the pod, as kvblk pool create --seed-of takes it. Default: this pool begins the pod." },
	{ .name = "follow", .type = SETTING_BOOL, POD(follow), .standard = true,
	  .doc = "Follow the other pools of the pod: read every visible device that is a member of one of them, as kvblk member follow does. kvblkd looks for such devices every 30 seconds and when a device appears, and follows a member again after its owner formatted it. A member that kvblk member unfollow ended stays so until kvblkd is reloaded. false: kvblkd neither follows nor unfollows. Default: true, also without the group pod, because nodes of a pod share nothing until they follow each other." },
	{ .name = "adopt_after", .type = SETTING_NUMBER, POD(adopt_after), .least = 10,
	  .most = 86400, .standard = 0,
	  .doc = "Seconds without a write of another node of the pod after which kvblkd adopts the node's pool, as kvblk pool adopt does. The members of that pool must all be found, and this pool must be up. Default: never." },
	{ 0 },
};

static bool is_user(const char *text)
{
	uint32_t id;

	return owner_user(text, &id);
}

static bool is_group(const char *text)
{
	uint32_t id;

	return owner_group(text, &id);
}

static bool is_tenant_name(const char *text)
{
	return is_pool_name(text) && strcmp(text, "changes") != 0 && strcmp(text, "peers") != 0;
}

static bool is_tenant_or_none(const char *text)
{
	return !*text || is_tenant_name(text);
}

/* Accept three or four octal digits. */
static bool is_mode(const char *text)
{
	size_t len = strlen(text);

	return (len == 3 || (len == 4 && *text == '0')) && strspn(text, "01234567") == len;
}

static bool is_node_mode(const char *text)
{
	return is_mode(text) && strtoul(text, NULL, 8);
}

#define TENANT(field)	.offset = offsetof(struct config_tenant, field)
#define UNCHANGED	.standard = -1

/* all vital: without one of them the tenant would be open to others, or take more than it may */
static const struct setting tenant_rows[] = {
	{ .name = "name", .type = SETTING_TEXT, TENANT(name), .vital = true, .required = true,
	  .valid = is_tenant_name, .allowed = A_POOL_NAME "; not changes or peers",
	  .doc = "Name of the tenant." },
	{ .name = "mode", .type = SETTING_TEXT, TENANT(mode), .vital = true,
	  .valid = is_node_mode, .allowed = "an octal mode except 0, such as 0660",
	  .doc = "Mode of the device node. Default: 0660 for a new tenant." },
	{ .name = "owner", .type = SETTING_TEXT, TENANT(owner), .vital = true,
	  .valid = is_user, .allowed = "the name of a user of this host, or a number",
	  .doc = "Owner of the device node. Default: root for a new tenant." },
	{ .name = "group", .type = SETTING_TEXT, TENANT(group), .vital = true,
	  .valid = is_group, .allowed = "the name of a group of this host, or a number",
	  .doc = "Group of the device node. Default: root for a new tenant." },
	{ .name = "quota_bytes", .type = SETTING_SIZE, TENANT(quota_bytes), .vital = true,
	  .most = 1ll << 60, UNCHANGED,
	  .doc = "Most bytes that blocks of the tenant take on members, with their headers: a put beyond it fails with EDQUOT. 0: no limit." },
	{ .name = "quota_bytes_soft", .type = SETTING_SIZE, TENANT(quota_bytes_soft), .vital = true,
	  .most = 1ll << 60, UNCHANGED,
	  .doc = "Bytes from which on the tenant's own coldest blocks are dropped, at most quota_bytes. 0: 15/16 of quota_bytes." },
	{ .name = "quota_blocks", .type = SETTING_NUMBER, TENANT(quota_blocks), .vital = true,
	  .most = 1ll << 36, UNCHANGED,
	  .doc = "Most blocks of the tenant on members. 0: no limit." },
	{ .name = "quota_blocks_soft", .type = SETTING_NUMBER, TENANT(quota_blocks_soft), .vital = true,
	  .most = 1ll << 36, UNCHANGED,
	  .doc = "Blocks from which on the tenant's own coldest are dropped, at most quota_blocks. 0: 15/16 of quota_blocks." },
	{ .name = "quota_dram", .type = SETTING_SIZE, TENANT(quota_dram), .vital = true,
	  .most = 1ll << 60, UNCHANGED,
	  .doc = "Most bytes that blocks of the tenant take in memory; blocks beyond it go to members at once. 0: no limit." },
	{ .name = "weight", .type = SETTING_NUMBER, TENANT(weight), .vital = true, .least = 1,
	  .most = 10000, UNCHANGED,
	  .doc = "Share of a member's bandwidth while several tenants ask for it, relative to the weights of the others; the module's default is 100." },
	{ .name = "shared", .type = SETTING_TEXT, TENANT(shared), .vital = true,
	  .valid = is_tenant_or_none, .allowed = "the name of another tenant of the pool, or an empty one",
	  .doc = "Tenant whose blocks this one may read, too. An empty string: none." },
	{ .name = "encrypted", .type = SETTING_BOOL, TENANT(encrypted), .vital = true,
	  .doc = "Payloads are encrypted on members. kvblkd makes a random key for a new tenant, keeps it, wrapped by master_key, in /var/lib/kvblkd, and gives it to the pool after each import; see kvblkd(8). A tenant of this name that is not encrypted is reported, and its pool is not imported. kvblkd does not import a pool with such a tenant either that is older than kvblkd saw it. Default: false, a new tenant is not encrypted." },
	{ 0 },
};

static void check_tenant(const config_setting_t *group, const struct groups *former, void *item,
			 struct config_errors *errors)
{
	const struct config_tenant *others = former->item;
	struct config_tenant *tenant = item;
	uint32_t id;
	bool fixed;

	tenant->uid = tenant->owner && owner_user(tenant->owner, &id) ? (int64_t)id : -1;
	tenant->gid = tenant->group && owner_group(tenant->group, &id) ? (int64_t)id : -1;
	if (!tenant->name)
		return;
	for (size_t i = 0; i < former->nr; i++) {
		if (!strcmp(others[i].name, tenant->name))
			config_vital_error(errors, group, "duplicate: an earlier group of this list has the name %s",
					   tenant->name);
	}
	fixed = !strcmp(tenant->name, "default") || !strcmp(tenant->name, "nvme-kv");
	if (fixed && tenant->encrypted)
		config_vital_error(errors, group, "%s cannot be encrypted: create another tenant", tenant->name);
	if (fixed && (tenant->mode || tenant->owner || tenant->group))
		config_vital_error(errors, group, "%s must not have mode, owner or group: udev sets those of its node",
				   tenant->name);
	if (tenant->quota_bytes > 0 && tenant->quota_bytes_soft > tenant->quota_bytes)
		config_vital_error(errors, group, "quota_bytes_soft %" PRId64 " must not exceed quota_bytes %" PRId64,
				   tenant->quota_bytes_soft, tenant->quota_bytes);
	if (tenant->quota_blocks > 0 && tenant->quota_blocks_soft > tenant->quota_blocks)
		config_vital_error(errors, group, "quota_blocks_soft %" PRId64 " must not exceed quota_blocks %" PRId64,
				   tenant->quota_blocks_soft, tenant->quota_blocks);
	if (tenant->shared && !strcmp(tenant->shared, tenant->name))
		config_vital_error(errors, group, "shared must name another tenant");
}

static const struct setting pool_rows[] = {
	{ .name = "name", .type = SETTING_TEXT, POOL(name), .vital = true, .required = true,
	  .valid = is_pool_name,
	  .allowed = A_POOL_NAME,
	  .doc = "Name of the pool. A later file may name the pool again, to change some of its settings." },
	{ .name = "uuid", .type = SETTING_TEXT, POOL(uuid), .vital = true,
	  .valid = is_uuid, .allowed = A_UUID,
	  .doc = "UUID of the pool. Required if several pools have this name, or if another node of a pod owns the pool. Without it, pools of the pod's other nodes do not count." },
	{ .name = "members", .type = SETTING_LIST, POOL(members), .vital = true, .most = POOL_MEMBERS,
	  .valid = is_member, .allowed = "the UUID of a member or the path of a device, preferably in /dev/disk/by-id",
	  .doc = "Members of the pool. Default: the members that the superblocks list. kvblkd never formats a device." },
	{ .name = "pod", .type = SETTING_GROUP, POOL(pod), .rows = pod_rows,
	  .doc = "Pod that the pool is part of. kvblkd imports a pool only if its members are of this pod. While there is none, it reports the command that creates the pool. Default: any pod, or none." },
	{ .name = "degraded_after", .type = SETTING_NUMBER, POOL(degraded_after), .least = -1,
	  .most = 86400, .standard = -1,
	  .doc = "Seconds after which the pool is imported without its missing members. Default: -1, never." },
	{ .name = "index_slots", .type = SETTING_NUMBER, POOL(index_slots), .least = 64,
	  .most = 1ll << 36, .standard = 0,
	  .doc = "Entries of the pool's index, the upper limit of its blocks. Takes effect at the next import. A smaller number than the present one is rejected. Default: the present number." },
	{ .name = "block_size", .type = SETTING_SIZE, POOL(block_size), .least = 1,
	  .most = 64 << 20, .standard = 0,
	  .doc = "Bytes of the blocks that runtimes put. A hint for the operator; kvblkd ignores it." },
	{ .name = "model", .type = SETTING_TEXT, POOL(model),
	  .valid = is_any, .allowed = "printable characters",
	  .doc = "Model to which the blocks belong. A hint for the operator; kvblkd ignores it." },
	{ .name = "ready", .type = SETTING_TEXT, POOL(ready),
	  .valid = is_share, .allowed = "any, all, or a percentage from 1% to 100%",
	  .doc = "Members that must serve before /ready reports the pool as ready: any one of them, all, or a percentage. Default: any, because a get of a block on another member is a miss, which is always allowed." },
	{ .name = "ready_below", .type = SETTING_NUMBER, POOL(ready_below), .most = 100,
	  .doc = "Percentage of the pool that leases and readers may withhold from reclaim. From this percentage on, /ready reports the pool as not ready. Default: 0, no limit." },
	{ .name = "tunables", .type = SETTING_TUNABLES, POOL(tunables),
	  .doc = "Tunables, by their names in sysfs. Tunables that are not listed stay unchanged." },
	{ .name = "budget", .type = SETTING_GROUP, POOL(budget), .rows = budget_rows,
	  .doc = "Write budget of each member: at least one of drive_writes, bytes and life_days. The smallest of them applies. kvblkd enforces the budget by admission: it changes admit_permille, first_permille and second_permille. It never raises them above the values in tunables, or above those that an operator set." },
	{ .name = "reserve", .type = SETTING_GROUP, POOL(reserve), .rows = reserve_rows,
	  .doc = "Free segments to keep for bursts of writes. kvblkd changes low_permille and high_permille, but never below their original values." },
	{ .name = "tenants", .type = SETTING_GROUPS, POOL(tenants), .most = POOL_TENANTS,
	  .rows = tenant_rows, .size = sizeof(struct config_tenant), .check = check_tenant,
	  .doc = "Tenants of the pool, each a group. kvblkd creates those that are missing, and sets what differs, also after each import, because limits are not on media. A setting without a value stays unchanged. kvblkd never removes a tenant: it reports those that the list lacks. Default: none." },
	{ 0 },
};

static bool is_ip(const char *address)
{
	unsigned char bytes[16];
	char bare[64];

	snprintf(bare, sizeof(bare), "%.*s", (int)strcspn(address, "%"), address);
	return inet_pton(AF_INET, address, bytes) == 1 || inet_pton(AF_INET6, bare, bytes) == 1;
}

/* Accept letters, digits, hyphens and dots; an all-digit last label may be an IP address. */
static bool is_host_name(const char *name)
{
	const char *last = name;

	for (const char *c = name; *c; c++) {
		if (!isalnum((unsigned char)*c) && (c == last || (*c != '-' && *c != '.')))
			return false;
		if (*c == '.')
			last = c + 1;
	}
	return *last && strlen(name) <= 253 && last[strspn(last, "0123456789")];
}

static const struct setting metrics_rows[] = {
	{ .name = "address", .type = SETTING_TEXT, .offset = offsetof(struct config_metrics, address),
	  .valid = is_ip, .allowed = "an IPv4 or IPv6 address",
	  .doc = "Address to listen on. Default: 127.0.0.1." },
	{ .name = "port", .type = SETTING_NUMBER, .offset = offsetof(struct config_metrics, port),
	  .least = 1, .most = 65535, .standard = 9733,
	  .doc = "Port to listen on. kvblkd has no capability to bind a port below 1024. Default: 9733." },
	{ 0 },
};

/* Returns HOST of "tcp://HOST:PORT", allocated; NULL if @endpoint has another form. */
static char *endpoint_host(const char *endpoint)
{
	const char *port = strrchr(endpoint, ':');
	unsigned long number;
	char *rest;

	if (strncmp(endpoint, "tcp://", 6) != 0 || !is_address(endpoint) || port < endpoint + 7 ||
	    !isdigit((unsigned char)port[1]))
		return NULL;
	number = strtoul(port + 1, &rest, 10);
	if (*rest || !number || number > 65535)
		return NULL;
	return strndup(endpoint + 6, (size_t)(port - endpoint) - 6);
}

static bool is_ipc(const char *endpoint)
{
	return !strncmp(endpoint, "ipc://", 6) && is_path(endpoint + 6);
}

/* Accept an IPv4 address, or an IPv6 address in brackets. */
static bool is_host_ip(char *host)
{
	size_t len = strlen(host);

	if (*host != '[' || host[len - 1] != ']')
		return is_ip(host) && !strchr(host, ':');
	host[len - 1] = '\0';
	return is_ip(host + 1) && strchr(host + 1, ':');
}

static bool is_own_endpoint(const char *endpoint)
{
	char *host = endpoint_host(endpoint);
	bool is = host && (!strcmp(host, "*") || is_host_ip(host));

	free(host);
	return is;
}

static bool is_other_endpoint(const char *endpoint)
{
	char *host = endpoint_host(endpoint);
	bool is = host && (is_host_ip(host) || !strpbrk(host, ":/[]*;"));

	free(host);
	return is || is_ipc(endpoint);
}

#define KV_EVENTS(field)	.offset = offsetof(struct config_kv_events, field)
/* No ipc://: with UMask=0077 only root could connect to such a socket, without it every user. */
#define AN_OWN_ENDPOINT	"tcp://ADDRESS:PORT, where ADDRESS is an IPv4 address, an IPv6 address in brackets or *"

static const struct setting kv_events_rows[] = {
	{ .name = "endpoint", .type = SETTING_TEXT, KV_EVENTS(endpoint),
	  .valid = is_own_endpoint, .allowed = AN_OWN_ENDPOINT,
	  .doc = "Endpoint at which batches of events are published. Default: tcp://127.0.0.1:5557." },
	{ .name = "replay", .type = SETTING_TEXT, KV_EVENTS(replay),
	  .valid = is_own_endpoint, .allowed = AN_OWN_ENDPOINT,
	  .doc = "Endpoint at which subscribers request missed batches. Default: tcp://127.0.0.1:5558." },
	{ .name = "topic", .type = SETTING_TEXT, KV_EVENTS(topic),
	  .valid = is_any, .allowed = "printable characters",
	  .doc = "Topic of all messages. Default: none." },
	{ .name = "medium", .type = SETTING_TEXT, KV_EVENTS(medium),
	  .valid = is_module_name, .allowed = "up to 55 characters without blanks, commas and slashes",
	  .doc = "Medium that the events name. A router uses it to weigh where a block is stored. Default: STORAGE." },
	{ .name = "pools", .type = SETTING_LIST, KV_EVENTS(pools), .vital = true, .most = KVEVENTS_POOLS,
	  .valid = is_pool_name, .allowed = "the name of a pool",
	  .doc = "Pools whose blocks the events report. Default: all pools of the configuration." },
	{ .name = "sources", .type = SETTING_LIST, KV_EVENTS(sources), .most = KV_EVENTS_SOURCES,
	  .valid = is_other_endpoint, .allowed = "tcp://HOST:PORT or ipc:///PATH",
	  .doc = "Endpoints at which the engines that use the pools publish their own KV events. kvblkd learns the tokens of blocks from these events. It can connect to a socket at PATH only if users other than the owner may write to the socket. kvblkd trusts the publisher, which can make it allocate any amount of memory. Default: none." },
	{ .name = "hash_only", .type = SETTING_BOOL, KV_EVENTS(hash_only),
	  .doc = "Report a block as stored even if its tokens are unknown, by its hash alone. Default: false." },
	{ .name = "parts", .type = SETTING_NUMBER, KV_EVENTS(parts), .least = 1, .most = 4096,
	  .standard = 1,
	  .doc = "Blocks with the same hash that the pools must hold before the hash is reported as stored: for example, one block of each rank of an engine with tensor parallelism. Default: 1." },
	{ .name = "buffer_bytes", .type = SETTING_SIZE, KV_EVENTS(buffer_bytes), .least = 64 << 10,
	  .most = 1ll << 40, .standard = 64 << 20,
	  .doc = "Memory for batches that subscribers may request again. A subscriber that requests older batches gets the complete set of stored blocks instead. The queue of each subscriber may take about as much memory. Default: 64M." },
	{ .name = "token_bytes", .type = SETTING_SIZE, KV_EVENTS(token_bytes), .least = 1 << 20,
	  .most = 1ll << 45, .standard = 1 << 30,
	  .doc = "Memory for the tokens of blocks: about 300 bytes for a block of 16 tokens, 1000 bytes for a block of 256. When it is full, kvblkd drops the tokens of blocks that are in no pool. If that is not enough, it treats the tokens of further blocks as unknown. Default: 1G." },
	{ .name = "changes", .type = SETTING_NUMBER, KV_EVENTS(changes), .least = 1024,
	  .most = 4194304, .standard = KV_EVENTS_CHANGES,
	  .doc = "Entries of each pool's change feed, a power of two. If the feed overflows, kvblkd reads the whole pool again. Default: 65536." },
	{ .name = "repeat", .type = SETTING_NUMBER, KV_EVENTS(repeat), .most = 3600, .standard = 5,
	  .doc = "Seconds without an event after which the last batch is sent again, for new subscribers and for those that lost it. Default: 5. 0: never." },
	{ 0 },
};

/* Accept a path that fits into sun_path. */
static bool is_socket_path(const char *path)
{
	return is_path(path) && strlen(path) < sizeof(((struct sockaddr_un *)0)->sun_path);
}

#define PRESTAGE(field)	.offset = offsetof(struct config_prestage, field)

static const struct setting prestage_rows[] = {
	{ .name = "socket", .type = SETTING_TEXT, PRESTAGE(socket),
	  .valid = is_socket_path, .allowed = "a path that begins with a slash, at most 107 characters",
	  .doc = "Path of the socket. Default: /run/kvblkd/prestage.sock." },
	{ .name = "group", .type = SETTING_TEXT, PRESTAGE(group), .vital = true,
	  .valid = is_module_name, .allowed = "the name of a group",
	  .doc = "Group of the socket. kvblkd can set it only when it starts, because it drops the capability then. Default: root." },
	{ .name = "mode", .type = SETTING_TEXT, PRESTAGE(mode), .vital = true,
	  .valid = is_mode, .allowed = "an octal mode, such as 0660",
	  .doc = "Mode of the socket. A user with write permission may have blocks of the pools loaded, demoted and released. Default: 0660." },
	{ .name = "pools", .type = SETTING_LIST, PRESTAGE(pools), .vital = true, .most = POOL_MEMBERS, .required = true,
	  .valid = is_pool_name, .allowed = "the name of a pool",
	  .doc = "Pools that callers may use." },
	{ .name = "parallel", .type = SETTING_NUMBER, PRESTAGE(parallel), .least = 1, .most = 16,
	  .standard = 2,
	  .doc = "Requests that load blocks at the same time, each with up to 64 MiB in flight. Default: 2." },
	{ .name = "waiting", .type = SETTING_NUMBER, PRESTAGE(waiting), .least = 1, .most = 10000,
	  .standard = 256,
	  .doc = "Requests of each user that may be queued or hold a lease. Further requests are deferred. kvblkd remembers as many completed requests. Default: 256." },
	{ .name = "waiting_bytes", .type = SETTING_SIZE, PRESTAGE(waiting_bytes), .least = 1 << 20, .most = 1ll << 40,
	  .standard = 64 << 20,
	  .doc = "Memory for the requests of each user. Further requests are deferred. More than 8 users share eight times this size. Default: 64M." },
	{ .name = "bandwidth", .type = SETTING_SIZE, PRESTAGE(bandwidth), .most = 1ll << 50,
	  .doc = "Bytes per second that all requests together may load. Default: 0, no limit; gets still have priority." },
	{ .name = "request_bytes", .type = SETTING_SIZE, PRESTAGE(request_bytes), .most = 1ll << 50,
	  .doc = "Bytes that one request may load. A larger request is clipped. Default: 0, no limit." },
	{ .name = "body", .type = SETTING_SIZE, PRESTAGE(body), .least = 4096, .most = 64 << 20,
	  .standard = 8 << 20,
	  .doc = "Longest request in bytes. A user may send four requests of this length at the same time. Default: 8M." },
	{ .name = "sessions", .type = SETTING_NUMBER, PRESTAGE(sessions), .most = 10000000,
	  .standard = 10000,
	  .doc = "Sessions whose keys are remembered. If there are more, or if they exceed session_bytes, kvblkd drops the least recently used session of the user that has most sessions or uses most of session_bytes. Default: 10000." },
	{ .name = "session_bytes", .type = SETTING_SIZE, PRESTAGE(session_bytes), .most = 1ll << 40,
	  .standard = 64 << 20,
	  .doc = "Memory for the keys of sessions. Default: 64M." },
	{ .name = "lease", .type = SETTING_NUMBER, PRESTAGE(lease), .least = 1, .most = 3600,
	  .standard = 60,
	  .doc = "Longest lease that a caller may request, in seconds. Default: 60." },
	{ 0 },
};

bool config_is_peer(const char *endpoint)
{
	return is_other_endpoint(endpoint) && !is_ipc(endpoint);
}

#define PEERS(field)	.offset = offsetof(struct config_peers, field)

static const struct setting peers_rows[] = {
	{ .name = "listen", .type = SETTING_TEXT, PEERS(listen), .vital = true, .required = true,
	  .valid = is_own_endpoint, .allowed = AN_OWN_ENDPOINT,
	  .doc = "Endpoint at which this host publishes what it got from other nodes' members, and asks their owners to delete blocks. Whoever reaches it learns which blocks are got and deleted." },
	{ .name = "peers", .type = SETTING_LIST, PEERS(peers), .most = POD_PEERS,
	  .valid = config_is_peer, .allowed = "tcp://HOST:PORT",
	  .doc = "Endpoints of the other nodes, as their listen, from which this host learns what they got from its members and want to delete. kvblkd trusts them: a peer can make blocks stay longer than they deserve, and delete blocks. With a directory, the nodes that it lists are peers, too: each whose listen has an address of its own, not *, 0.0.0.0 or [::]. Default: none." },
	{ 0 },
};

static bool is_engine(const char *text)
{
	return !strcmp(text, "valkey");
}

/* Accept ADDRESS:PORT. No host name, because the resolver may block for many seconds. */
static bool is_server(const char *text)
{
	char endpoint[CONFIG_IP_LEN + 16], *host;
	bool is;

	if (snprintf(endpoint, sizeof(endpoint), "tcp://%s", text) >= (int)sizeof(endpoint))
		return false;
	host = endpoint_host(endpoint);
	is = host && is_host_ip(host);
	free(host);
	return is;
}

#define DIRECTORY(field)	.offset = offsetof(struct config_directory, field)

static const struct setting directory_rows[] = {
	{ .name = "engine", .type = SETTING_TEXT, DIRECTORY(engine), .vital = true, .required = true,
	  .valid = is_engine, .allowed = "valkey",
	  .doc = "Kind of the servers. valkey: separate servers of Valkey, or one cluster." },
	{ .name = "servers", .type = SETTING_LIST, DIRECTORY(servers), .vital = true, .required = true,
	  .most = DIRECTORY_SERVERS,
	  .valid = is_server, .allowed = "ADDRESS:PORT, where ADDRESS is an IPv4 address or an IPv6 address in brackets",
	  .doc = "Servers. Of a cluster, some of its nodes: kvblkd learns the others from them. Separate servers share the anchors by the order of this list, so all nodes of a pod must have the same list." },
	{ .name = "password_file", .type = SETTING_TEXT, DIRECTORY(password_file), .vital = true,
	  .valid = is_path, .allowed = A_PATH,
	  .doc = "File with the password of the servers (requirepass), in one line. Its mode must deny access to group and others, as 0600 does. Connections are not encrypted. Default: none." },
	{ .name = "span", .type = SETTING_NUMBER, DIRECTORY(span), .vital = true, .least = 1,
	  .most = KVBLK_PEERS_SPAN_MAX, .standard = 16,
	  .doc = "Blocks for each anchor: one of so many blocks of a segment is in the directory, besides the first block of each run of puts. Default: 16." },
	{ .name = "ask_ms", .type = SETTING_NUMBER, DIRECTORY(ask_ms), .least = 1, .most = 1000,
	  .standard = 5,
	  .doc = "Longest time in milliseconds that a lookup waits for the directory. Default: 5." },
	{ .name = "ttl_s", .type = SETTING_NUMBER, DIRECTORY(ttl_s), .least = 60, .most = 2592000,
	  .standard = 86400,
	  .doc = "Seconds that a server keeps an anchor. kvblkd publishes the anchors of all present blocks again after half of it. Default: 86400, a day." },
	{ 0 },
};

/**
 * struct section - a list of groups in the file
 * @name: name of the list
 * @rows: settings of each group
 * @doc: text of the man page
 */
struct section {
	const char *name;
	const struct setting *rows;
	const char *doc;
};

static const struct section sections[] = {
	{ "subsystems", fabric_rows, "NVMe-oF subsystems to connect to. Each address of a subsystem has its own group." },
	{ "discovery", fabric_rows, "Discovery controllers. kvblkd connects to the subsystems that they report, with the settings of the group." },
	{ "pools", pool_rows, "Pools to import." },
};

/* Append a zeroed entry to *array. Returns the entry, NULL without memory. */
static void *grow(void *array, size_t *nr, size_t size)
{
	char **where = array;
	char *more = reallocarray(*where, *nr + 1, size);

	if (!more)
		return NULL;
	*where = more;
	more += (*nr)++ * size;
	return memset(more, 0, size);
}

static bool same(const char *a, const char *b)
{
	return a && b ? !strcmp(a, b) : a == b;
}

static bool same_fabric(const struct config_fabric *a, const struct config_fabric *b)
{
	return same(a->nqn, b->nqn) && same(a->transport, b->transport) &&
	       same(a->address, b->address) && a->port == b->port &&
	       same(a->host_address, b->host_address) &&
	       same(a->host_interface, b->host_interface);
}

static void set_text(char **text, const char *standard)
{
	if (!*text)
		*text = standard ? strdup(standard) : NULL;
}

static void read_fabric(const config_setting_t *group, bool discovery,
			struct config_fabric **list, size_t *nr, struct config_errors *errors)
{
	static const char *const others[] = { NULL };
	const struct setting *rows = discovery ? fabric_rows + 1 : fabric_rows;
	struct config_fabric *fabric = grow(list, nr, sizeof(*fabric));
	unsigned int before = errors->vital;

	if (!fabric) {
		config_error(errors, group, "out of memory");
		return;
	}
	settings_default(rows, fabric);
	if (discovery)
		fabric->port = DISCOVERY_PORT;
	settings_read(rows, group, others, fabric, errors);
	set_text(&fabric->transport, "tcp");
	if (discovery)
		set_text(&fabric->nqn, CONFIG_DISCOVERY_NQN);
	if (!fabric->address && !same(fabric->transport, "loop"))
		config_vital_error(errors, group, "address is missing");
	if (fabric->address && !is_ip(fabric->address) &&
	    (same(fabric->transport, "tcp") || same(fabric->transport, "rdma"))) {
		fabric->named = is_host_name(fabric->address);
		if (!fabric->named)
			config_vital_error(errors, group, "address %s must be an IPv4 or IPv6 address or a host name",
					   fabric->address);
	}
	if (fabric->tls && !same(fabric->transport, "tcp"))
		config_vital_error(errors, group, "tls requires the transport tcp");
	if (fabric->tls_key_file && !fabric->tls)
		config_vital_error(errors, group, "tls_key_file requires tls = true");
	if (fabric->ctrl_secret_file && !fabric->secret_file)
		config_vital_error(errors, group, "dhchap_ctrl_secret_file requires dhchap_secret_file");
	if (fabric->fast_io_fail > fabric->ctrl_loss && fabric->ctrl_loss >= 0)
		config_vital_error(errors, group, "fast_io_fail %" PRId64 " must not exceed ctrl_loss %" PRId64,
			     fabric->fast_io_fail, fabric->ctrl_loss);
	for (size_t i = 0; fabric->nqn && i < *nr - 1; i++) {
		if (same_fabric(&(*list)[i], fabric))
			config_vital_error(errors, group, "duplicate: an earlier group has the same subsystem and address");
	}
	if (errors->vital == before)
		return;
	settings_free(fabric_rows, fabric);
	(*nr)--;
}

/* Returns the pool that an earlier file named, or a new one; NULL after reporting an error. */
static struct config_pool *pool_of(struct config *config, size_t nr_before,
				   const config_setting_t *group,
				   struct config_errors *errors)
{
	const config_setting_t *name = config_setting_get_member(group, "name");
	const char *text = name ? config_setting_get_string(name) : NULL;
	struct config_pool *pool;

	for (size_t i = 0; text && i < config->nr_pools; i++) {
		if (!same(config->pools[i].name, text))
			continue;
		if (i < nr_before)
			return &config->pools[i];
		config_error(errors, group, "duplicate: an earlier group of this file has the name %s", text);
		return NULL;
	}
	pool = grow(&config->pools, &config->nr_pools, sizeof(*pool));
	if (pool)
		settings_default(pool_rows, pool);
	else
		config_error(errors, group, "out of memory");
	return pool;
}

static void drop_text(char **text)
{
	free(*text);
	*text = NULL;
}

static void check_watermarks(const config_setting_t *group, struct config_pool *pool,
			     struct config_errors *errors)
{
	char **low = &pool->tunables[tunable_find("low_permille") - tunables];
	char **high = &pool->tunables[tunable_find("high_permille") - tunables];

	if (!*low || !*high || strtoul(*low, NULL, 10) < strtoul(*high, NULL, 10))
		return;
	config_error(errors, group, "low_permille %s must be below high_permille %s", *low, *high);
	drop_text(low);
	drop_text(high);
}

bool config_has_budget(const struct config_pool *pool)
{
	return pool->budget.drive_writes > 0 || pool->budget.bytes || pool->budget.life_days;
}

bool config_is_governed(const struct config_pool *pool, const char *tunable)
{
	return config_has_budget(pool) && (!strcmp(tunable, "admit_permille") ||
					   !strcmp(tunable, "first_permille") ||
					   !strcmp(tunable, "second_permille"));
}

static void check_policy(const config_setting_t *group, struct config_pool *pool,
			 struct config_errors *errors)
{
	static const char *const moved[] = { "low_permille", "high_permille" };
	const config_setting_t *budget = config_setting_get_member(group, "budget");

	if (budget && config_setting_is_group(budget) && !config_has_budget(pool))
		config_error(errors, budget, "drive_writes, bytes or life_days is missing");
	for (int i = 0; i < 2; i++) {
		char **text = &pool->tunables[tunable_find(moved[i]) - tunables];

		if (!pool->reserve.seconds || !*text)
			continue;
		config_error(errors, group, "%s must not be among the tunables, because reserve changes it",
			     moved[i]);
		drop_text(text);
	}
}

static void check_members(const config_setting_t *group, const struct config_pool *pool,
			  struct config_errors *errors)
{
	for (size_t i = 0; i < pool->members.nr; i++) {
		for (size_t j = 0; j < i; j++) {
			if (same(pool->members.text[i], pool->members.text[j]))
				config_vital_error(errors, group, "members: %s is listed twice",
						   pool->members.text[i]);
		}
	}
}

/* Report the group's errors. Returns false if one of them invalidates the whole group. */
static bool try_pool(const config_setting_t *group, struct config_errors *errors)
{
	static const char *const others[] = { NULL };
	unsigned int before = errors->vital;
	struct config_pool pool = { 0 };

	settings_read(pool_rows, group, others, &pool, errors);
	check_members(group, &pool, errors);
	settings_free(pool_rows, &pool);
	return errors->vital == before;
}

static void read_pool(const config_setting_t *group, size_t nr_before,
		      struct config *config, struct config_errors *errors)
{
	static const char *const others[] = { NULL };
	struct config_errors told = { 0 };
	struct config_pool *pool;

	/* an invalid group must not change what an earlier file set for the pool */
	pool = try_pool(group, errors) ? pool_of(config, nr_before, group, errors) : NULL;
	if (!pool)
		return;
	settings_read(pool_rows, group, others, pool, &told);
	check_watermarks(group, pool, errors);
	check_policy(group, pool, errors);
}

static void read_section(const struct section *section, const config_setting_t *list,
			 struct config *config, struct config_errors *errors)
{
	size_t nr_pools = config->nr_pools;
	const config_setting_t *group;

	if (!config_setting_is_list(list)) {
		config_error(errors, list, "must be a list of groups: ( { ... }, { ... } )");
		return;
	}
	for (unsigned int i = 0; (group = config_setting_get_elem(list, i)); i++) {
		if (!config_setting_is_group(group))
			config_error(errors, group, "must be a group: { ... }");
		else if (section->rows == pool_rows)
			read_pool(group, nr_pools, config, errors);
		else if (!strcmp(section->name, "discovery"))
			read_fabric(group, true, &config->discovery, &config->nr_discovery, errors);
		else
			read_fabric(group, false, &config->subsystems, &config->nr_subsystems, errors);
	}
}

/* Drop @own and duplicates from @list, the setting @name of endpoints to connect to. */
static void check_others(const config_setting_t *group, const char *name, struct texts *list,
			 const char *own, struct config_errors *errors)
{
	for (size_t i = 0; i < list->nr;) {
		if (!same(list->text[i], own)) {
			i++;
			continue;
		}
		config_error(errors, group, "%s: %s is kvblkd's own endpoint", name, own);
		texts_remove(list, own);
	}
	for (size_t i = 0; i < list->nr; i++) {
		for (size_t j = 0; j < i; j++) {
			if (!same(list->text[i], list->text[j]))
				continue;
			config_error(errors, group, "%s: %s is listed twice", name, list->text[i]);
			free(list->text[i]);
			list->text[i--] = list->text[--list->nr];
			break;
		}
	}
}

static void check_kv_events(const config_setting_t *group, struct config_kv_events *kv,
			    struct config_errors *errors)
{
	if (same(kv->endpoint, kv->replay))
		config_vital_error(errors, group, "endpoint and replay must differ");
	if (kv->changes & (kv->changes - 1)) {
		config_error(errors, group, "changes %" PRId64 " must be a power of two", kv->changes);
		kv->changes = KV_EVENTS_CHANGES;
	}
	check_others(group, "sources", &kv->sources, kv->endpoint, errors);
}

/*
 * Read the group @name of @exporters into @object and set the text @first if the group leaves it
 * unset. Returns the group, NULL if there is none. An exporter runs if its group exists.
 */
static const config_setting_t *read_exporter(const config_setting_t *exporters, const char *name,
					     const struct setting *rows, void *object,
					     char **first, const char *standard,
					     struct config_errors *errors)
{
	static const char *const others[] = { NULL };
	const config_setting_t *group = config_setting_get_member(exporters, name);

	if (!group)
		return NULL;
	if (!config_setting_is_group(group)) {
		config_error(errors, group, "must be a group: { ... }");
		return NULL;
	}
	if (!*first)
		settings_default(rows, object);
	settings_read(rows, group, others, object, errors);
	set_text(first, standard);
	return group;
}

/* Replace *@now by @next if @taken; otherwise drop @next and keep an earlier file's settings. */
static void take_group(const struct setting *rows, void *now, void *next, size_t size, bool taken)
{
	settings_free(rows, taken ? now : next);
	if (taken)
		memcpy(now, next, size);
}

static void read_kv_events(const config_setting_t *exporters, struct config_kv_events *kv,
			   struct config_errors *errors)
{
	unsigned int before = errors->vital;
	struct config_kv_events next = *kv;
	bool whole = settings_own(kv_events_rows, &next);
	const config_setting_t *group = read_exporter(exporters, "kv_events", kv_events_rows, &next,
						      &next.endpoint, "tcp://127.0.0.1:5557", errors);

	if (group) {
		set_text(&next.replay, "tcp://127.0.0.1:5558");
		set_text(&next.topic, "");
		set_text(&next.medium, "STORAGE");
		check_kv_events(group, &next, errors);
	}
	take_group(kv_events_rows, kv, &next, sizeof(next), group && whole && errors->vital == before);
}

/* Read "exporters: { metrics: { ... }; }". Exporters without a group do not run. */
static void read_exporters(const config_setting_t *group, struct config *config,
			   struct config_errors *errors)
{
	static const char *const names[] = { "metrics", "kv_events", NULL };
	static const struct setting none[] = { { 0 } };

	if (!config_setting_is_group(group)) {
		config_error(errors, group, "must be a group: { ... }");
		return;
	}
	settings_read(none, group, names, config, errors);
	read_exporter(group, "metrics", metrics_rows, &config->metrics, &config->metrics.address,
		      "127.0.0.1", errors);
	read_kv_events(group, &config->kv_events, errors);
}

static void read_prestage(const config_setting_t *root, struct config_prestage *prestage,
			  struct config_errors *errors)
{
	unsigned int before = errors->vital;
	struct config_prestage next = *prestage;
	bool whole = settings_own(prestage_rows, &next);
	bool named = read_exporter(root, "prestage", prestage_rows, &next, &next.socket,
				   "/run/kvblkd/prestage.sock", errors);

	if (named)
		set_text(&next.mode, "0660");
	take_group(prestage_rows, prestage, &next, sizeof(next), named && whole && errors->vital == before);
}

static void read_peers(const config_setting_t *root, struct config_peers *peers,
		       struct config_errors *errors)
{
	unsigned int before = errors->vital;
	struct config_peers next = *peers;
	bool whole = settings_own(peers_rows, &next);
	const config_setting_t *group = read_exporter(root, "pod", peers_rows, &next, &next.listen,
						      NULL, errors);

	if (group)
		check_others(group, "peers", &next.peers, next.listen, errors);
	take_group(peers_rows, peers, &next, sizeof(next), group && whole && errors->vital == before);
}

static void read_directory(const config_setting_t *root, struct config_directory *directory,
			   struct config_errors *errors)
{
	unsigned int before = errors->vital;
	struct config_directory next = *directory;
	bool whole = settings_own(directory_rows, &next);
	const config_setting_t *group = read_exporter(root, "directory", directory_rows, &next,
						      &next.engine, NULL, errors);
	unsigned int others = errors->nr;

	if (group)
		check_others(group, "servers", &next.servers, "", errors);
	/* each server's share of the anchors follows from the list */
	errors->vital += errors->nr - others;
	if (group && !next.servers.nr && errors->vital == before)
		config_vital_error(errors, group, "servers is empty");
	take_group(directory_rows, directory, &next, sizeof(next), group && whole && errors->vital == before);
}

static void read_root(const config_t *file, struct config *config,
		      struct config_errors *errors)
{
	static const char *const names[] = { "subsystems", "discovery", "pools", "exporters",
					     "prestage", "pod", "directory", NULL };
	const config_setting_t *root = config_root_setting(file), *list;

	settings_read(root_rows, root, names, config, errors);
	config->wrong_host_nqn = !config->host_nqn && (config->wrong_host_nqn || config_setting_get_member(root, "host_nqn"));
	config->wrong_host_id = !config->host_id && (config->wrong_host_id || config_setting_get_member(root, "host_id"));
	for (size_t i = 0; i < sizeof(sections) / sizeof(sections[0]); i++) {
		list = config_setting_get_member(root, sections[i].name);
		if (list)
			read_section(&sections[i], list, config, errors);
	}
	list = config_setting_get_member(root, "exporters");
	if (list)
		read_exporters(list, config, errors);
	read_prestage(root, &config->prestage, errors);
	read_peers(root, &config->pod, errors);
	read_directory(root, &config->directory, errors);
}

static void syntax_error(const config_t *file, const char *path, struct config_errors *errors)
{
	errors->nr++;
	if (config_error_type(file) == CONFIG_ERR_FILE_IO)
		fprintf(errors->to, "%s: %s\n", path, errno ? strerror(errno) :
			"cannot read the file, or a file that it includes");
	else
		fprintf(errors->to, "%s:%d: %s\n",
			config_error_file(file) ? config_error_file(file) : path,
			config_error_line(file), config_error_text(file));
}

/* Returns false if the file cannot be read or parsed. */
static bool read_file(const char *path, struct config *config, struct config_errors *errors)
{
	char *copy = strdup(path);
	config_t file;
	bool is;

	config_init(&file);
	/* @include is relative to the file */
	if (copy)
		config_set_include_dir(&file, dirname(copy));
	errno = 0;
	is = config_read_file(&file, path);
	if (is)
		read_root(&file, config, errors);
	else
		syntax_error(&file, path, errors);
	config_destroy(&file);
	free(copy);
	return is;
}

/* Use the host's NQN and id for a fabric that has none. */
static void inherit(const struct config *config, struct config_fabric *fabric)
{
	set_text(&fabric->host_nqn, config->host_nqn);
	set_text(&fabric->host_id, config->host_id);
}

/*
 * Complete the fabrics of @list. Drop those whose inherited NQN or id was rejected, or else they
 * would connect under the identity in /etc/nvme.
 */
static void inherit_all(const struct config *config, struct config_fabric *list, size_t *nr)
{
	size_t kept = 0;

	for (size_t i = 0; i < *nr; i++) {
		inherit(config, &list[i]);
		if ((config->wrong_host_nqn && !list[i].host_nqn) || (config->wrong_host_id && !list[i].host_id))
			settings_free(fabric_rows, &list[i]);
		else
			list[kept++] = list[i];
	}
	*nr = kept;
}

static unsigned int finish(struct config *config, const struct config_errors *errors)
{
	inherit_all(config, config->subsystems, &config->nr_subsystems);
	inherit_all(config, config->discovery, &config->nr_discovery);
	set_text(&config->master_key, CONFIG_MASTER_KEY);
	return errors->nr;
}

unsigned int config_load(const char *path, struct config *config, FILE *to)
{
	struct config_errors errors = { .to = to };
	char *pattern = NULL;
	glob_t drop_ins;

	*config = (struct config){ 0 };
	config->unreadable = !read_file(path, config, &errors);
	if (asprintf(&pattern, "%s.d/*.conf", path) > 0 && !glob(pattern, 0, NULL, &drop_ins)) {
		for (size_t i = 0; i < drop_ins.gl_pathc; i++)
			read_file(drop_ins.gl_pathv[i], config, &errors);
		globfree(&drop_ins);
	}
	free(pattern);
	return finish(config, &errors);
}

unsigned int config_parse(const char *text, struct config *config, FILE *to)
{
	struct config_errors errors = { .to = to };
	config_t file;

	*config = (struct config){ 0 };
	config_init(&file);
	if (config_read_string(&file, text))
		read_root(&file, config, &errors);
	else
		syntax_error(&file, "text", &errors);
	config_destroy(&file);
	return finish(config, &errors);
}

void config_free(struct config *config)
{
	settings_free(root_rows, config);
	settings_free(metrics_rows, &config->metrics);
	settings_free(kv_events_rows, &config->kv_events);
	settings_free(prestage_rows, &config->prestage);
	settings_free(peers_rows, &config->pod);
	settings_free(directory_rows, &config->directory);
	for (size_t i = 0; i < config->nr_subsystems; i++)
		settings_free(fabric_rows, &config->subsystems[i]);
	for (size_t i = 0; i < config->nr_discovery; i++)
		settings_free(fabric_rows, &config->discovery[i]);
	for (size_t i = 0; i < config->nr_pools; i++)
		settings_free(pool_rows, &config->pools[i]);
	free(config->subsystems);
	free(config->discovery);
	free(config->pools);
	*config = (struct config){ 0 };
}

static void print_rows(FILE *to, const struct setting *rows)
{
	char allowed[256];

	for (; rows->name; rows++) {
		fprintf(to, ".TP\n.BR %s \" (%s)\"%s\n%s\n", rows->name,
			setting_allowed(rows, allowed, sizeof(allowed)),
			rows->required ? " \" \\- required\"" : "", rows->doc);
		if (rows->type != SETTING_GROUP && rows->type != SETTING_GROUPS)
			continue;
		fputs(".RS\n", to);
		print_rows(to, rows->rows);
		fputs(".RE\n", to);
	}
}

void config_print_settings(FILE *to)
{
	print_rows(to, root_rows);
	for (size_t i = 0; i < sizeof(sections) / sizeof(sections[0]); i++) {
		fprintf(to, ".SS %s\n%s\n", sections[i].name, sections[i].doc);
		if (!strcmp(sections[i].name, "discovery"))
			fputs("The settings are those of subsystems, without nqn.\n", to);
		else
			print_rows(to, sections[i].rows);
	}
	fputs(".SS exporters.metrics\nHTTP server with the pages /metrics for Prometheus, /ready and /healthz. "
	      "exporters and metrics are groups. Without the group metrics no server runs.\n", to);
	print_rows(to, metrics_rows);
	fputs(".SS exporters.kv_events\nKV events for routers, over ZeroMQ, in the format of vLLM and SGLang. "
	      "kv_events is a group. Without it nothing is published.\n", to);
	print_rows(to, kv_events_rows);
	fputs(".SS prestage\nSocket that accepts hints of blocks that will be needed, which kvblkd then loads into the pools' memory, and hints on stored blocks; see kvblkd(8). "
	      "prestage is a group. Without it there is no socket.\n", to);
	print_rows(to, prestage_rows);
	fputs(".SS pod\nConnections to the kvblkd of the other nodes of this host's pods, which tell each other what they get from the others' members, and delete blocks for each other; see kvblkd(8). "
	      "pod is a group. Without it each node knows its own gets only, and deletes of other nodes' blocks fail.\n", to);
	print_rows(to, peers_rows);
	fputs(".SS directory\nDirectory of the blocks of pods, for more nodes than an index can hold; see kvblkd(8). "
	      "directory is a group. Without it, lookups find foreign blocks of the index only.\n", to);
	print_rows(to, directory_rows);
}
