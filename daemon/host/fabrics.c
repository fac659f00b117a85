// SPDX-License-Identifier: MIT
/*
 * NVMe-oF, see fabrics.h. apply/host_state.c reads the connections from sysfs instead: libnvme
 * identifies each namespace, which blocks while its target is unreachable.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <libnvme.h>
#include <netdb.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <sys/socket.h>
#include <syslog.h>
#include <unistd.h>

#include "host/fabrics.h"
#include "host/secret.h"

#define LOG_PAGE_TRIES	4

static int refuse(char *why, size_t len, const char *format, ...)
	__attribute__((format(printf, 3, 4)));
static int refuse(char *why, size_t len, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vsnprintf(why, len, format, args);
	va_end(args);
	return -1;
}

static int set_secrets(nvme_host_t host, nvme_ctrl_t ctrl, const struct config_fabric *fabric,
		       char *why, size_t len)
{
	char secret[SECRET_LEN];

	if (fabric->secret_file) {
		if (secret_read(fabric->secret_file, secret, why, len))
			return -1;
		nvme_host_set_dhchap_key(host, secret);
		nvme_ctrl_set_dhchap_host_key(ctrl, secret);
	}
	if (fabric->ctrl_secret_file) {
		if (secret_read(fabric->ctrl_secret_file, secret, why, len))
			return -1;
		nvme_ctrl_set_dhchap_key(ctrl, secret);
	}
	explicit_bzero(secret, sizeof(secret));
	return 0;
}

#ifdef FABRICS_TLS_KEYS
static int set_tls_key(const struct config_fabric *fabric, const char *host_nqn,
		       struct nvme_fabrics_config *cfg, char *why, size_t len)
{
	char secret[SECRET_LEN];
	unsigned char *key;
	unsigned int hmac;
	int key_len;
	long id;

	if (secret_read(fabric->tls_key_file, secret, why, len))
		return -1;
	key = nvme_import_tls_key(secret, &key_len, &hmac);
	explicit_bzero(secret, sizeof(secret));
	if (!key)
		return refuse(why, len, "%s holds no key of the form NVMeTLSkey-1:...",
			      fabric->tls_key_file);
	id = nvme_insert_tls_key_versioned(NULL, "psk", host_nqn, fabric->nqn, 1,
					   (int)hmac, key, key_len);
	explicit_bzero(key, (size_t)key_len);
	free(key);
	if (id <= 0)
		return refuse(why, len, "cannot insert the key of %s into the keyring .nvme: %s",
			      fabric->tls_key_file, strerror(errno));
	cfg->tls_key = id;
	return 0;
}
#else
static int set_tls_key(const struct config_fabric *fabric, const char *host_nqn,
		       struct nvme_fabrics_config *cfg, char *why, size_t len)
{
	return refuse(why, len, "cannot use %s: the libnvme of this build is too old; insert the key into the keyring with nvme(1)",
		      fabric->tls_key_file);
}
#endif

static void set_options(const struct config_fabric *fabric, struct nvme_fabrics_config *cfg)
{
	nvmf_default_config(cfg);
	cfg->host_traddr = fabric->host_address;
	cfg->host_iface = fabric->host_interface;
	cfg->queue_size = (int)fabric->queue_size;
	cfg->nr_io_queues = (int)fabric->io_queues;
	cfg->nr_write_queues = (int)fabric->write_queues;
	cfg->nr_poll_queues = (int)fabric->poll_queues;
	cfg->reconnect_delay = (int)fabric->reconnect_delay;
	cfg->ctrl_loss_tmo = (int)fabric->ctrl_loss;
	cfg->fast_io_fail_tmo = (int)fabric->fast_io_fail;
	cfg->keep_alive_tmo = (int)fabric->keep_alive;
	cfg->hdr_digest = fabric->header_digest;
	cfg->data_digest = fabric->data_digest;
	cfg->tls = fabric->tls;
}

static int connect_as(nvme_root_t root, const struct config_fabric *fabric,
		      const char *address, const char *host_nqn, const char *host_id,
		      char *why, size_t len)
{
	bool discovery = !strcmp(fabric->nqn, CONFIG_DISCOVERY_NQN);
	nvme_host_t host = nvme_lookup_host(root, host_nqn, host_id);
	struct nvme_fabrics_config cfg;
	nvme_ctrl_t ctrl;
	char port[24];
	int err;

	snprintf(port, sizeof(port), "%" PRId64, fabric->port);
	ctrl = nvme_create_ctrl(root, fabric->nqn, fabric->transport, address,
				fabric->host_address, fabric->host_interface,
				strcmp(fabric->transport, "loop") ? port : NULL);
	if (!host || !ctrl)
		return refuse(why, len, "out of memory");
	set_options(fabric, &cfg);
	err = set_secrets(host, ctrl, fabric, why, len);
	if (!err && fabric->tls_key_file)
		err = set_tls_key(fabric, host_nqn, &cfg, why, len);
	if (!err) {
		nvme_ctrl_set_discovery_ctrl(ctrl, discovery);
		nvme_ctrl_set_persistent(ctrl, discovery);
		errno = 0;
		err = nvmf_add_ctrl(host, ctrl, &cfg);
		if (err && (errno == ENVME_CONNECT_ALREADY || errno == EALREADY))
			err = 0;
		else if (err)
			refuse(why, len, "%s", nvme_errno_to_string(errno));
	}
	nvme_free_ctrl(ctrl);
	return err ? -1 : 0;
}

size_t fabrics_resolve(const char *name, char ips[FABRICS_IPS][CONFIG_IP_LEN], char *why,
		       size_t len)
{
	const struct addrinfo hints = { .ai_socktype = SOCK_STREAM };
	struct addrinfo *list, *one;
	size_t nr = 0;
	int err = getaddrinfo(name, NULL, &hints, &list);

	if (err) {
		refuse(why, len, "cannot resolve %s: %s", name,
		       err == EAI_SYSTEM ? strerror(errno) : gai_strerror(err));
		return 0;
	}
	for (one = list; one && nr < FABRICS_IPS; one = one->ai_next)
		nr += !getnameinfo(one->ai_addr, one->ai_addrlen, ips[nr], CONFIG_IP_LEN, NULL, 0,
				   NI_NUMERICHOST);
	freeaddrinfo(list);
	if (!nr)
		refuse(why, len, "%s resolves to no address", name);
	return nr;
}

/* Connect to the first address of the name that responds. @why describes the last failure. */
static int connect_by_name(nvme_root_t root, struct config_fabric *fabric,
			   const char *host_nqn, const char *host_id, char *why, size_t len)
{
	char ips[FABRICS_IPS][CONFIG_IP_LEN], reason[256];
	size_t nr = fabrics_resolve(fabric->address, ips, why, len);

	for (size_t i = 0; i < nr; i++) {
		if (!connect_as(root, fabric, ips[i], host_nqn, host_id, reason, sizeof(reason))) {
			memcpy(fabric->ip, ips[i], sizeof(fabric->ip));
			return 0;
		}
		refuse(why, len, "%s: %s", ips[i], reason);
	}
	return -1;
}

int fabrics_connect(struct config_fabric *fabric, char *why, size_t len)
{
	nvme_root_t root = nvme_create_root(stderr, LOG_EMERG);
	char *host_nqn, *host_id;
	int ret = -1;

	host_nqn = fabric->host_nqn ? strdup(fabric->host_nqn) : nvmf_hostnqn_from_file();
	host_id = fabric->host_id ? strdup(fabric->host_id) : nvmf_hostid_from_file();
	if (!root)
		refuse(why, len, "out of memory");
	else if (!host_nqn)
		refuse(why, len, "this host has no NQN; set host_nqn, or create /etc/nvme/hostnqn with nvme gen-hostnqn");
	else if (fabric->named)
		ret = connect_by_name(root, fabric, host_nqn, host_id, why, len);
	else
		ret = connect_as(root, fabric, fabric->address, host_nqn, host_id, why, len);
	free(host_nqn);
	free(host_id);
	if (root)
		nvme_free_tree(root);
	return ret;
}

/* Copy a field of a log page, without its padding of blanks or zeroes. */
static char *field_text(const char *field, size_t size)
{
	size_t len = strnlen(field, size);

	while (len && field[len - 1] == ' ')
		len--;
	return strndup(field, len);
}

static void free_entry(struct config_fabric *entry)
{
	free(entry->nqn);
	free(entry->transport);
	free(entry->address);
}

/*
 * Accept an IP transport with a port, and any other transport only if @by uses it: a log page
 * must not send this host to its own loop target, nor from IP to Fibre Channel.
 */
static bool is_reached(const struct config_fabric *fabric, const struct config_fabric *by)
{
	bool ip = !strcmp(fabric->transport, "tcp") || !strcmp(fabric->transport, "rdma");

	return ip ? fabric->port > 0 : !strcmp(fabric->transport, by->transport);
}

static int keep_entry(const struct nvmf_disc_log_entry *entry, const struct config_fabric *by,
		      struct config_fabric **list, size_t *nr)
{
	struct config_fabric *more = reallocarray(*list, *nr + 1, sizeof(*more));
	struct config_fabric *fabric;
	char *port;

	if (!more)
		return -1;
	*list = more;
	fabric = &more[*nr];
	*fabric = *by;
	fabric->named = false;
	fabric->nqn = field_text(entry->subnqn, sizeof(entry->subnqn));
	fabric->address = field_text(entry->traddr, sizeof(entry->traddr));
	fabric->transport = strdup(nvmf_trtype_str(entry->trtype));
	port = field_text(entry->trsvcid, sizeof(entry->trsvcid));
	fabric->port = port ? port_of(port) : 0;
	free(port);
	/* the log page comes from the network: check it as strictly as the file */
	if (!fabric->nqn || !fabric->address || !fabric->transport || !is_nqn(fabric->nqn) ||
	    !is_address(fabric->address) || !is_reached(fabric, by)) {
		free_entry(fabric);
		return 0;
	}
	(*nr)++;
	return 0;
}

int fabrics_discover(const char *name, const struct config_fabric *by,
		     struct config_fabric **list, size_t *nr)
{
	nvme_root_t root = nvme_create_root(stderr, LOG_EMERG);
	nvme_ctrl_t ctrl = root ? nvme_scan_ctrl(root, name) : NULL;
	struct nvmf_discovery_log *log = NULL;
	int err = -1;

	if (ctrl)
		err = nvmf_get_discovery_log(ctrl, &log, LOG_PAGE_TRIES);
	for (uint64_t i = 0; !err && log && i < le64toh(log->numrec); i++) {
		if (log->entries[i].subtype == NVME_NQN_NVME)
			err = keep_entry(&log->entries[i], by, list, nr);
	}
	free(log);
	if (root)
		nvme_free_tree(root);
	return err ? -1 : 0;
}

void fabrics_free(struct config_fabric *list, size_t nr)
{
	for (size_t i = 0; i < nr; i++)
		free_entry(&list[i]);
	free(list);
}

/* bytes; data unit of the SMART log: 1000 blocks of 512 bytes */
#define SMART_UNIT	512000.0
#define GROUP_UNIT	1e9		/* bytes; data unit of the endurance group log */

/* Convert a little-endian number of 128 bits. */
static double number(const uint8_t bytes[16])
{
	double value = 0;

	for (int i = 15; i >= 0; i--)
		value = value * 256 + bytes[i];
	return value;
}

/* Prefer the wear of the endurance group: the namespace's flash belongs to the group. */
static void group_smart(int fd, uint32_t nsid, struct smart *smart)
{
	struct nvme_endurance_group_log log;
	struct nvme_id_ns id;

	if (nvme_identify_ns(fd, nsid, &id) || !id.endgid ||
	    nvme_get_log_endurance_group(fd, le16toh(id.endgid), &log) ||
	    !(number(log.data_units_written) > 0))
		return;
	smart->rated = true;
	smart->warning |= log.critical_warning;
	smart->used = log.percent_used;
	smart->spare = log.avl_spare;
	smart->spare_least = log.avl_spare_threshold;
	smart->written = number(log.data_units_written) * GROUP_UNIT;
}

void fabrics_smart(const char *path, struct smart *smart)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	struct nvme_smart_log log;
	uint32_t nsid;

	if (fd < 0)
		return;
	/* fails for devices that are not NVMe */
	if (!nvme_get_nsid(fd, &nsid) && !nvme_get_log_smart(fd, NVME_NSID_ALL, true, &log)) {
		*smart = (struct smart){
			.valid = true,
			/* Linux's target reports zeroes; the temperature of a drive is never 0 K */
			.rated = log.avail_spare || log.spare_thresh || log.percent_used ||
				 log.temperature[0] || log.temperature[1],
			.warning = log.critical_warning,
			.used = log.percent_used,
			.spare = log.avail_spare,
			.spare_least = log.spare_thresh,
			.written = number(log.data_units_written) * SMART_UNIT,
			.time = time(NULL),
		};
		group_smart(fd, nsid, smart);
	}
	close(fd);
}
