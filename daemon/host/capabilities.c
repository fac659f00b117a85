// SPDX-License-Identifier: MIT
/* Capabilities, see capabilities.h. */
#include <errno.h>
#include <grp.h>
#include <linux/capability.h>
#include <stdint.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "host/capabilities.h"

gid_t rights_join(const char *group)
{
	const struct group *found = getgrnam(group);

	/* root's own groups are left, because the owner's rights are enough */
	if (!found || setgroups(1, &found->gr_gid))
		return (gid_t)-1;
	return found->gr_gid;
}

int rights_drop(void)
{
	const uint64_t kept = 1ull << CAP_SYS_ADMIN | 1ull << CAP_SYS_MODULE;
	struct __user_cap_header_struct header = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct data[2] = { 0 };

	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
		return -errno;
	/* ignore errors: the kernel has no such capability, or kvblkd may not drop it */
	for (int cap = 0; cap <= CAP_LAST_CAP; cap++) {
		if (!(kept >> cap & 1))
			prctl(PR_CAPBSET_DROP, cap, 0, 0, 0);
	}
	if (syscall(SYS_capget, &header, data))
		return -errno;
	for (int i = 0; i < 2; i++) {
		data[i].permitted &= (uint32_t)(kept >> 32 * i);
		data[i].effective = data[i].permitted;
		data[i].inheritable = 0;
	}
	return syscall(SYS_capset, &header, data) ? -errno : 0;
}
