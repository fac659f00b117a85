// SPDX-License-Identifier: MIT
/* Checks of the host, see doctor.h. Each function checks one thing. */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "host/doctor.h"
#include "host/sysroot.h"
#include "host/topo.h"

/* oldest supported kernel */
#define KERNEL_MAJOR	6
#define KERNEL_MINOR	12

/* below this limit a runtime cannot register its memory, or create a ring */
#define MEMLOCK_LOW	(64ull << 20)

/*
 * timeouts of nvme, seconds: larger ones delay I/O, a smaller ctrl_loss_tmo loses members
 * needlessly
 */
#define FAST_IO_FAIL_HIGH	60
#define CTRL_LOSS_LOW		60
#define IO_TIMEOUT_HIGH		60

const char *doctor_verdict(enum health health)
{
	static const char *const names[] = {
		[HEALTH_OK] = "ok",
		[HEALTH_NOTE] = "note",
		[HEALTH_DEGRADED] = "change",
		[HEALTH_DOWN] = "fails",
	};

	return names[health];
}

/* Add a line; @act is no format. */
__attribute__((format(printf, 5, 6)))
static void tell(struct doctor *doctor, enum health health, const char *check,
		 const char *act, const char *format, ...)
{
	struct doctor_line *line;
	va_list args;

	if (health > doctor->health)
		doctor->health = health;
	if (doctor->nr == DOCTOR_LINES_MAX)
		return;
	line = &doctor->lines[doctor->nr++];
	line->health = health;
	snprintf(line->check, sizeof(line->check), "%s", check);
	snprintf(line->act, sizeof(line->act), "%s", act);
	va_start(args, format);
	vsnprintf(line->what, sizeof(line->what), format, args);
	va_end(args);
}

/* ---- the host ---- */

static void look_at_kernel(const char *root, struct doctor *doctor)
{
	unsigned int major = 0, minor = 0;
	char path[PATH_MAX], release[96];
	bool old;

	tree_path(path, root, "/proc/sys/kernel/osrelease");
	tree_text(path, release, sizeof(release));
	if (sscanf(release, "%u.%u", &major, &minor) != 2) {
		tell(doctor, HEALTH_NOTE, "kernel", "", "its release cannot be read");
		return;
	}
	old = major < KERNEL_MAJOR || (major == KERNEL_MAJOR && minor < KERNEL_MINOR);
	tell(doctor, old ? HEALTH_DOWN : HEALTH_OK, "kernel",
	     old ? "boot Linux 6.12 or later" : "", "Linux %s", release);
}

static void look_at_module(const char *root, const char *version, struct doctor *doctor)
{
	char path[PATH_MAX], loaded[64];

	tree_path(path, root, "/sys/module/kvblk");
	if (access(path, F_OK)) {
		tell(doctor, HEALTH_DOWN, "module",
		     "load it (modprobe kvblk); if it is not found, install it (apt install kvblk-dkms linux-headers-$(uname -r)), or build it (make && make install)",
		     "kvblk is not loaded");
		return;
	}
	tree_path(path, root, "/sys/module/kvblk/version");
	tree_text(path, loaded, sizeof(loaded));
	if (*loaded && strcmp(loaded, version) != 0)
		tell(doctor, HEALTH_NOTE, "module",
		     "install both of one version, and load the module again",
		     "version %s is loaded, and this command is of version %s", loaded, version);
	else
		tell(doctor, HEALTH_OK, "module", "", "kvblk %s is loaded",
		     *loaded ? loaded : "(without a version)");
}

static void look_at_memlock(const char *root, struct doctor *doctor)
{
	static const char act[] =
		"raise it where runtimes start: LimitMEMLOCK=infinity in the unit, memlock in /etc/security/limits.conf, --ulimit memlock=-1 of the container";
	char path[PATH_MAX], line[256], soft[32] = "", text[32];
	unsigned long long bytes;
	FILE *file;

	tree_path(path, root, "/proc/self/limits");
	file = fopen(path, "re");
	while (file && !*soft && fgets(line, sizeof(line), file)) {
		if (sscanf(line, "Max locked memory %31s", soft) != 1)
			soft[0] = '\0';
	}
	if (file)
		fclose(file);
	bytes = strtoull(soft, NULL, 10);
	if (!*soft)
		tell(doctor, HEALTH_NOTE, "memlock", "", "its limit cannot be read");
	else if (!strcmp(soft, "unlimited"))
		tell(doctor, HEALTH_OK, "memlock", "", "this user may lock any amount of memory");
	else
		tell(doctor, bytes < MEMLOCK_LOW ? HEALTH_NOTE : HEALTH_OK, "memlock",
		     bytes < MEMLOCK_LOW ? act : "",
		     "this user may lock %s of memory, which is the most that its processes can register%s",
		     cli_format_bytes(bytes, text, sizeof(text)),
		     bytes < MEMLOCK_LOW ? " without CAP_IPC_LOCK" : "");
}

static void look_at_io_uring(const char *root, struct doctor *doctor)
{
	char path[PATH_MAX];
	int disabled;

	tree_path(path, root, "/proc/sys/kernel/io_uring_disabled");
	disabled = tree_int(path, 0);
	if (!disabled)
		tell(doctor, HEALTH_OK, "io_uring", "", "is there");
	else
		tell(doctor, HEALTH_NOTE, "io_uring",
		     "sysctl kernel.io_uring_disabled=0, or 1 and kernel.io_uring_group; without it runtimes have ioctl",
		     "is disabled%s", disabled == 1 ? " for users without CAP_SYS_ADMIN" : "");
}

static void look_at_p2p(const struct topo *topo, struct doctor *doctor)
{
	unsigned int providers = 0, lacking = 0;

	for (size_t i = 0; i < topo->nr_devices; i++) {
		providers += topo->devices[i].provider;
		lacking += !topo->devices[i].provider;
	}
	if (topo->p2pdma == 0 && topo->nr_devices)
		tell(doctor, HEALTH_NOTE, "p2p", "take a kernel with CONFIG_PCI_P2PDMA",
		     "this kernel has no P2PDMA: blocks of GPUs' memory go through the host's");
	else if (lacking)
		tell(doctor, HEALTH_NOTE, "p2p", "kvblk topo tells why",
		     "%u device%s with P2P memory; %u GPU%s or accelerator%s without: their blocks go through the host's",
		     providers, providers == 1 ? "" : "s", lacking, lacking == 1 ? "" : "s",
		     lacking == 1 ? "" : "s");
	else
		tell(doctor, HEALTH_OK, "p2p", "", "%u device%s with P2P memory",
		     providers, providers == 1 ? "" : "s");
}

/* ---- permissions of the nodes ---- */

/* Returns the id of group kvblk, or -1. */
static long group_id(const char *root)
{
	char path[PATH_MAX], line[1024];
	long id = -1;
	FILE *file;

	tree_path(path, root, "/etc/group");
	file = fopen(path, "re");
	while (file && id < 0 && fgets(line, sizeof(line), file)) {
		if (sscanf(line, "kvblk:%*[^:]:%ld", &id) != 1)
			id = -1;
	}
	if (file)
		fclose(file);
	return id;
}

static void look_at_node(const char *root, const char *pool, long group, struct doctor *doctor)
{
	static const char act[] = "install 60-kvblk.rules, then: udevadm control --reload; udevadm trigger -s kvblk";
	char path[PATH_MAX];
	struct stat st;

	tree_path(path, root, "/dev/kvblk/%s/default", pool);
	if (stat(path, &st))
		tell(doctor, HEALTH_DEGRADED, "node",
		     "is devtmpfs mounted, or the node handed to this container?",
		     "/dev/kvblk/%s/default is not there", pool);
	else if (st.st_mode & 07)
		tell(doctor, HEALTH_DEGRADED, "node", act,
		     "/dev/kvblk/%s/default may be opened by anybody (mode %04o)", pool,
		     st.st_mode & 07777);
	else if (group >= 0 && ((long)st.st_gid != group || (st.st_mode & 060) != 060))
		tell(doctor, HEALTH_DEGRADED, "node", act,
		     "/dev/kvblk/%s/default cannot be opened by group kvblk (group %u, mode %04o)",
		     pool, st.st_gid, st.st_mode & 07777);
	else
		tell(doctor, HEALTH_OK, "node", "", "/dev/kvblk/%s/default: group %u, mode %04o",
		     pool, st.st_gid, st.st_mode & 07777);
}

static void look_at_nodes(const char *root, const struct topo *topo, struct doctor *doctor)
{
	long group = group_id(root);

	if (group < 0)
		tell(doctor, HEALTH_NOTE, "group",
		     "systemd-sysusers kvblk.conf, or groupadd -r kvblk; then usermod -aG kvblk USER",
		     "there is no group kvblk: only root can open the nodes of pools");
	else
		tell(doctor, HEALTH_OK, "group", "", "kvblk has the id %ld", group);
	for (size_t i = 0; i < topo->nr_pools; i++)
		look_at_node(root, topo->pools[i].name, group, doctor);
}

/* ---- members ---- */

/* Returns the timeout in seconds; -1: off; -2: the file does not exist. */
static int timeout_in(const char *dir, const char *name)
{
	char path[PATH_MAX], text[32];

	tree_path(path, dir, "/%s", name);
	tree_text(path, text, sizeof(text));
	if (!strcmp(text, "off"))
		return -1;
	return *text ? atoi(text) : -2;
}

static void look_at_timeouts(const char *dir, const char *ctrl, const char *member,
			     struct doctor *doctor)
{
	int fast = timeout_in(dir, "fast_io_fail_tmo"), loss = timeout_in(dir, "ctrl_loss_tmo");
	char act[192], whole[64];

	snprintf(whole, sizeof(whole), "%s of member %s", ctrl, member);
	snprintf(act, sizeof(act), "echo 8 > /sys/class/nvme/%s/fast_io_fail_tmo; and nvme connect --fast_io_fail_tmo=8",
		 ctrl);
	if (fast == -1 && loss == -1)
		tell(doctor, HEALTH_DEGRADED, "nvme", act,
		     "%s: fast_io_fail_tmo is off: I/O to a lost target waits for ever", whole);
	else if (fast == -1)
		tell(doctor, HEALTH_DEGRADED, "nvme", act,
		     "%s: fast_io_fail_tmo is off: I/O to a lost target waits until ctrl_loss_tmo, %d s",
		     whole, loss);
	else if (fast > FAST_IO_FAIL_HIGH)
		tell(doctor, HEALTH_NOTE, "nvme", act,
		     "%s: fast_io_fail_tmo is %d s: so long I/O to a lost target waits", whole, fast);
	else if (loss >= 0 && loss < CTRL_LOSS_LOW)
		tell(doctor, HEALTH_NOTE, "nvme", "nvme connect --ctrl-loss-tmo=600, or -1",
		     "%s: ctrl_loss_tmo is %d s: after so short an outage the member is dead", whole, loss);
	else if (fast >= 0)
		tell(doctor, HEALTH_OK, "nvme", "", "%s: fast_io_fail_tmo %d s, ctrl_loss_tmo %d s%s",
		     whole, fast, loss, loss < 0 ? " (for ever)" : "");
}

/* Check the controller @dir. A directory that is no controller has no transport. */
static void look_at_controller(const char *dir, const char *member, struct doctor *doctor)
{
	char path[PATH_MAX], transport[TREE_NAME], state[TREE_NAME], real[PATH_MAX];
	const char *name;

	tree_path(path, dir, "/transport");
	tree_text(path, transport, sizeof(transport));
	if (!*transport || !realpath(dir, real))
		return;
	name = strrchr(real, '/') + 1;
	tree_path(path, dir, "/state");
	tree_text(path, state, sizeof(state));
	if (*state && strcmp(state, "live") != 0)
		tell(doctor, HEALTH_DEGRADED, "nvme",
		     "look at the target and the network: nvme list-subsys, dmesg",
		     "%s of member %s is %s", name, member, state);
	if (strcmp(transport, "pcie") != 0)
		look_at_timeouts(dir, name, member, doctor);
}

static void look_at_member(const char *root, const char *pool, const char *member,
			   struct doctor *doctor)
{
	char path[PATH_MAX], block[TREE_NAME], dir[PATH_MAX];
	char **names;

	tree_member_block(root, pool, member, block);
	if (!*block)
		return;
	tree_path(dir, root, "/sys/class/block/%s/device", block);
	look_at_controller(dir, member, doctor);
	/* for a multipath head, the directory is the subsystem and contains the controllers */
	names = tree_names(dir);
	for (char **ctrl = names; ctrl && *ctrl; ctrl++) {
		if (strncmp(*ctrl, "nvme", 4) != 0)
			continue;
		tree_path(path, dir, "/%s", *ctrl);
		look_at_controller(path, member, doctor);
	}
	tree_free_names(names);
}

static void look_at_io_timeout(const char *root, struct doctor *doctor)
{
	char path[PATH_MAX];
	int seconds;

	tree_path(path, root, "/sys/module/nvme_core/parameters/io_timeout");
	seconds = tree_int(path, -1);
	if (seconds < 0)
		return;
	tell(doctor, seconds > IO_TIMEOUT_HIGH ? HEALTH_NOTE : HEALTH_OK, "nvme",
	     seconds > IO_TIMEOUT_HIGH ? "nvme_core.io_timeout=30 on the kernel's command line" : "",
	     "io_timeout is %d s: so long a controller that is silent may keep an I/O", seconds);
}

/* ---- pools ---- */

static void look_at_pools(const struct snapshot *snapshot, struct doctor *doctor)
{
	struct health_report report;

	for (const struct kvblk_pool_state *p = snapshot->pools; p; p = p->next) {
		health_of(p, snapshot, &report);
		for (size_t i = 0; i < report.nr_findings; i++)
			tell(doctor, report.findings[i].health, "pool", report.findings[i].act,
			     "%s: %s", p->name, report.findings[i].what);
		tell(doctor, report.nr_up ? HEALTH_OK : HEALTH_DOWN, "pool",
		     report.nr_up ? "" : "none of its members serves: see the lines above",
		     "%s: %u of %u members serve, %.0f %% of the flash is free, the index is %.0f %% full",
		     p->name, report.nr_up, p->nr_members,
		     p->capacity ? 100.0 * (double)p->free / (double)p->capacity : 0,
		     p->index_slots ? 100.0 * (double)p->index_used / (double)p->index_slots : 0);
	}
}

void doctor_look(const char *root, const char *version, const struct snapshot *snapshot,
		 struct doctor *doctor)
{
	struct topo topo;

	doctor->health = HEALTH_OK;
	doctor->nr = 0;
	look_at_kernel(root, doctor);
	look_at_module(root, version, doctor);
	look_at_memlock(root, doctor);
	look_at_io_uring(root, doctor);
	if (!topo_scan(root, &topo)) {
		look_at_p2p(&topo, doctor);
		look_at_nodes(root, &topo, doctor);
		look_at_io_timeout(root, doctor);
		for (size_t i = 0; i < topo.nr_pools; i++) {
			for (size_t j = 0; j < topo.pools[i].nr_members; j++)
				look_at_member(root, topo.pools[i].name,
					       topo.pools[i].members[j].name, doctor);
		}
	}
	if (snapshot)
		look_at_pools(snapshot, doctor);
	else if (topo.module)
		tell(doctor, HEALTH_NOTE, "pool", "run this as root, or in the group kvblk-monitor, and out of a container",
		     "the module does not report on its pools here");
	topo_free(&topo);
}
