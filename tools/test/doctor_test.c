// SPDX-License-Identifier: MIT
/* kvblk doctor on an emulated host: a tree of files, and pools as the module reports them. */
#include "host/doctor.h"
#include "tree.h"

#define MEMLOCK	"Max locked memory         "

static struct doctor doctor;

/* A healthy host, which tests change. */
static int setup(void **state)
{
	char group[64];

	if (tree_make(state))
		return -1;
	make("/proc/sys/kernel/osrelease", "6.12.117+deb13-amd64\n");
	make("/sys/module/kvblk/version", "1.2\n");
	make("/proc/self/limits", "Limit  Soft  Hard  Units\n" MEMLOCK "unlimited  unlimited  bytes\n");
	make("/proc/sys/kernel/io_uring_disabled", "0\n");
	snprintf(group, sizeof(group), "root:x:0:\nkvblk:x:%u:vllm\n", getgid());
	make("/etc/group", group);
	make("/dev/kvblk/kv0/default", "");
	chmod(path_of("/dev/kvblk/kv0/default"), 0660);
	/* a kernel name that another device has now */
	make("/sys/class/kvblk/kv0/members/nvme1n1/path", "/dev/nvme7n7\n");
	make("/sys/class/kvblk/kv0/members/nvme1n1/device", "nvme1n1\n");
	make("/sys/class/kvblk/kv0/integrity", "full\n");
	make("/sys/module/nvme_core/parameters/io_timeout", "30\n");
	make("/sys/devices/nvme1/transport", "tcp\n");
	make("/sys/devices/nvme1/state", "live\n");
	make("/sys/devices/nvme1/fast_io_fail_tmo", "8\n");
	make("/sys/devices/nvme1/ctrl_loss_tmo", "600\n");
	make("/sys/class/block/nvme1n1/size", "1\n");
	return symlink("../../../devices/nvme1", path_of("/sys/class/block/nvme1n1/device"));
}

static void look(const struct snapshot *snapshot)
{
	static const struct snapshot none;

	doctor_look(root, "1.2", snapshot ? snapshot : &none, &doctor);
}

/* Check that exactly one line of @check has @health, @what and @act ("": none). */
static void said(enum health health, const char *check, const char *what, const char *act)
{
	unsigned int found = 0;

	for (size_t i = 0; i < doctor.nr; i++) {
		const struct doctor_line *line = &doctor.lines[i];

		if (strcmp(line->check, check) != 0 || line->health != health ||
		    !strstr(line->what, what))
			continue;
		found++;
		if (*act ? !strstr(line->act, act) : *line->act)
			fail_msg("%s: \"%s\", not \"%s\"", line->what, line->act, act);
	}
	if (found == 1)
		return;
	for (size_t i = 0; i < doctor.nr; i++)
		print_error("%s %s: %s -> %s\n", doctor_verdict(doctor.lines[i].health),
			    doctor.lines[i].check, doctor.lines[i].what, doctor.lines[i].act);
	fail_msg("%u lines %s %s: %s", found, doctor_verdict(health), check, what);
}

/* Change a file, look, and check the line of @check. */
static void change(const char *path, const char *text, enum health health, const char *check,
		   const char *what, const char *act)
{
	make(path, text);
	look(NULL);
	said(health, check, what, act);
}

TEST_WITH(well, setup, tree_remove)
{
	look(NULL);
	said(HEALTH_OK, "kernel", "Linux 6.12.117+deb13-amd64", "");
	said(HEALTH_OK, "module", "kvblk 1.2 is loaded", "");
	said(HEALTH_OK, "memlock", "any amount", "");
	said(HEALTH_OK, "io_uring", "is there", "");
	said(HEALTH_OK, "p2p", "0 devices", "");
	said(HEALTH_OK, "group", "has the id", "");
	said(HEALTH_OK, "node", "/dev/kvblk/kv0/default: group", "");
	said(HEALTH_OK, "nvme", "io_timeout is 30 s", "");
	said(HEALTH_OK, "nvme", "nvme1 of member nvme1n1: fast_io_fail_tmo 8 s, ctrl_loss_tmo 600 s", "");
	assert_int_equal(doctor.health, HEALTH_OK);
	assert_int_equal(doctor.nr, 9);
}

TEST_WITH(kernel, setup, tree_remove)
{
	static const char *const old[] = { "6.11.9\n", "5.19.0-generic\n" };
	static const char *const fit[] = { "6.12.0\n", "7.0.1\n", "10.1\n" };

	for (size_t i = 0; i < 2; i++) {
		make("/proc/sys/kernel/osrelease", old[i]);
		look(NULL);
		said(HEALTH_DOWN, "kernel", "Linux", "6.12 or later");
	}
	assert_int_equal(doctor.health, HEALTH_DOWN);
	for (size_t i = 0; i < 3; i++) {
		make("/proc/sys/kernel/osrelease", fit[i]);
		look(NULL);
		said(HEALTH_OK, "kernel", "Linux", "");
	}
	change("/proc/sys/kernel/osrelease", "what\n", HEALTH_NOTE, "kernel", "cannot be read", "");
}

TEST_WITH(module, setup, tree_remove)
{
	change("/sys/module/kvblk/version", "1.1\n", HEALTH_NOTE, "module",
	       "version 1.1 is loaded, and this command is of version 1.2", "one version");
	unlink(path_of("/sys/module/kvblk/version"));
	look(NULL);
	said(HEALTH_OK, "module", "without a version", "");
	rmdir(path_of("/sys/module/kvblk"));
	look(NULL);
	said(HEALTH_DOWN, "module", "not loaded", "modprobe kvblk");
}

TEST_WITH(limits, setup, tree_remove)
{
	change("/proc/self/limits", MEMLOCK "8388608  8388608  bytes\n", HEALTH_NOTE, "memlock",
	       "lock 8 MiB of memory", "LimitMEMLOCK=infinity");
	change("/proc/self/limits", MEMLOCK "8589934592  8589934592  bytes\n", HEALTH_OK, "memlock",
	       "lock 8 GiB of memory", "");
	change("/proc/self/limits", "", HEALTH_NOTE, "memlock", "cannot be read", "");
	change("/proc/sys/kernel/io_uring_disabled", "1\n", HEALTH_NOTE, "io_uring",
	       "without CAP_SYS_ADMIN", "io_uring_disabled=0");
	change("/proc/sys/kernel/io_uring_disabled", "2\n", HEALTH_NOTE, "io_uring",
	       "is disabled", "io_uring_disabled=0");
}

TEST_WITH(nodes, setup, tree_remove)
{
	chmod(path_of("/dev/kvblk/kv0/default"), 0666);
	look(NULL);
	said(HEALTH_DEGRADED, "node", "by anybody (mode 0666)", "60-kvblk.rules");
	chmod(path_of("/dev/kvblk/kv0/default"), 0600);
	look(NULL);
	said(HEALTH_DEGRADED, "node", "cannot be opened by group kvblk", "60-kvblk.rules");
	chmod(path_of("/dev/kvblk/kv0/default"), 0660);
	change("/etc/group", "kvblk:x:54321:\n", HEALTH_DEGRADED, "node",
	       "cannot be opened by group kvblk", "60-kvblk.rules");
	change("/etc/group", "notkvblk:x:54321:\n", HEALTH_NOTE, "group",
	       "no group kvblk", "systemd-sysusers");
	said(HEALTH_OK, "node", "kv0", "");
	unlink(path_of("/dev/kvblk/kv0/default"));
	look(NULL);
	said(HEALTH_DEGRADED, "node", "is not there", "devtmpfs");
}

TEST_WITH(timeouts, setup, tree_remove)
{
	change("/sys/devices/nvme1/fast_io_fail_tmo", "off\n", HEALTH_DEGRADED, "nvme",
	       "waits until ctrl_loss_tmo, 600 s", "echo 8 > /sys/class/nvme/nvme1/fast_io_fail_tmo");
	change("/sys/devices/nvme1/ctrl_loss_tmo", "off\n", HEALTH_DEGRADED, "nvme",
	       "for ever", "--fast_io_fail_tmo=8");
	change("/sys/devices/nvme1/fast_io_fail_tmo", "300\n", HEALTH_NOTE, "nvme",
	       "fast_io_fail_tmo is 300 s", "--fast_io_fail_tmo=8");
	change("/sys/devices/nvme1/fast_io_fail_tmo", "6\n", HEALTH_OK, "nvme", "(for ever)", "");
	change("/sys/devices/nvme1/ctrl_loss_tmo", "10\n", HEALTH_NOTE, "nvme",
	       "ctrl_loss_tmo is 10 s", "--ctrl-loss-tmo=600");
	make("/sys/devices/nvme1/ctrl_loss_tmo", "600\n");
	change("/sys/devices/nvme1/state", "connecting\n", HEALTH_DEGRADED, "nvme",
	       "nvme1 of member nvme1n1 is connecting", "list-subsys");
	change("/sys/module/nvme_core/parameters/io_timeout", "300\n", HEALTH_NOTE, "nvme",
	       "io_timeout is 300 s", "io_timeout=30");
}

/* Timeouts of the network are not checked for a local drive; a multipath head has two paths. */
TEST_WITH(paths, setup, tree_remove)
{
	make("/sys/devices/nvme1/transport", "pcie\n");
	look(NULL);
	assert_int_equal(doctor.nr, 8);
	unlink(path_of("/sys/devices/nvme1/transport"));
	make("/sys/devices/nvme1/nvme4/transport", "rdma\n");
	make("/sys/devices/nvme1/nvme4/state", "live\n");
	make("/sys/devices/nvme1/nvme4/fast_io_fail_tmo", "5\n");
	make("/sys/devices/nvme1/nvme5/transport", "rdma\n");
	make("/sys/devices/nvme1/nvme5/state", "connecting\n");
	make("/sys/devices/nvme1/nvme5/fast_io_fail_tmo", "off\n");
	change("/sys/devices/nvme1/nvme1n1/size", "1\n", HEALTH_OK, "nvme",
	       "nvme4 of member nvme1n1: fast_io_fail_tmo 5 s", "");
	said(HEALTH_DEGRADED, "nvme", "nvme5 of member nvme1n1 is connecting", "list-subsys");
	said(HEALTH_DEGRADED, "nvme", "nvme5 of member nvme1n1: fast_io_fail_tmo is off", "nvme5/fast_io");
}

TEST_WITH(p2p, setup, tree_remove)
{
	make("/sys/bus/pci/devices/0000:81:00.0/class", "0x030200\n");
	change("/proc/kallsyms", "ffffffff81000000 T other\n", HEALTH_NOTE, "p2p",
	       "no P2PDMA", "CONFIG_PCI_P2PDMA");
	change("/proc/kallsyms", "ffffffff81000000 T pci_p2pdma_add_resource\n", HEALTH_NOTE, "p2p",
	       "0 devices with P2P memory; 1 GPU or accelerator without", "kvblk topo");
	change("/sys/bus/pci/devices/0000:81:00.0/p2pmem/size", "4096\n", HEALTH_OK, "p2p",
	       "1 device with P2P memory", "");
}

TEST_WITH(pools, setup, tree_remove)
{
	struct kvblk_member_state member = { .pool = "kv0", .name = "nvme1n1",
					     .state = KVBLK_MEMBER_STATUS_UP };
	struct kvblk_pool_state pool = { .name = "kv0", .nr_members = 1, .nr_segments = 100,
					 .free_segments = 40, .capacity = 1000, .free = 400,
					 .index_slots = 1000, .index_used = 950 };
	struct snapshot snapshot = { .pools = &pool, .members = &member };

	look(&snapshot);
	said(HEALTH_NOTE, "pool", "kv0: the index is full", "--index-slots");
	said(HEALTH_OK, "pool", "kv0: 1 of 1 members serve, 40 % of the flash is free, the index is 95 % full", "");
	assert_int_equal(doctor.health, HEALTH_NOTE);
	member.suspect = true;
	look(&snapshot);
	said(HEALTH_DEGRADED, "pool", "kv0: member nvme1n1 does not answer", "dmesg");
	said(HEALTH_DOWN, "pool", "kv0: 0 of 1 members serve", "lines above");
	assert_int_equal(doctor.health, HEALTH_DOWN);
}

TEST_WITH(not_told, setup, tree_remove)
{
	doctor_look(root, "1.2", NULL, &doctor);
	said(HEALTH_NOTE, "pool", "does not report", "group kvblk-monitor");
}

TEST(nothing)
{
	doctor_look("/nowhere", "1.2", NULL, &doctor);
	said(HEALTH_DOWN, "module", "not loaded", "modprobe");
}

TEST_MAIN("doctor")
