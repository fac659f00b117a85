// SPDX-License-Identifier: GPL-2.0
/*
 * Simulates memory errors: writing a number to /sys/module/kvblk_flip/parameters/word flips a bit
 * in each page that begins with the number. "flipped" counts the flips.
 *
 * The rule: only pages in use are examined, except for slab pages.
 */
#include <linux/memory_hotplug.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/sched.h>

static unsigned int flipped;
module_param(flipped, uint, 0444);

static bool page_flip(struct page *page, u64 word)
{
	u64 *words = page_address(page);

	if (!page_count(page) || PageReserved(page) || PageSlab(page) || !words ||
	    READ_ONCE(*words) != word)
		return false;
	words[PAGE_SIZE / sizeof(u64) / 2] ^= 1;
	return true;
}

static int word_set(const char *text, const struct kernel_param *param)
{
	unsigned long pfn;
	struct page *page;
	u64 word;
	int err;

	err = kstrtou64(text, 0, &word);
	if (err)
		return err;
	for (pfn = 0; pfn < get_num_physpages(); pfn++) {
		page = pfn_to_online_page(pfn);
		if (page)
			flipped += page_flip(page, word);
		if (!(pfn % 4096))
			cond_resched();
	}
	return 0;
}

static const struct kernel_param_ops word_ops = { .set = word_set };
module_param_cb(word, &word_ops, NULL, 0200);

MODULE_DESCRIPTION("Flips a bit in pages that begin with a given word");
MODULE_LICENSE("GPL");
