// SPDX-License-Identifier: MIT
/*
 * QEMU TCG plugin for bench/icount: counts how often each kernel instruction is executed between
 * two marks of a guest program, and the total of user-space instructions.
 *
 * The rule: it handles addresses only. Symbols and kinds are assigned afterwards.
 *
 * A mark is a no-operation that nothing else uses, in user space: see icount_ops.c. The first
 * mark starts counting at 0. The second one appends a record to the file out=: the number of
 * entries, then for each an address and its count, all as 64-bit words. A repeated string
 * instruction is counted for each byte or word that it copies or stores; bit 63 of its address is
 * 0, bit 62 is 1 if it copies, and bits 61 and 60 are the binary logarithm of the word's bytes.
 * User space has one entry, 1, for all instructions, and entries of 8 plus bits 62 to 60 for all
 * string instructions of a kind. One CPU only.
 */
#include "icount_plugin.h"

/* limit of different kernel instructions in a run, a power of two */
#define SLOTS	(1u << 21)
#define LOAD_MAX (SLOTS / 4 * 3)
#define UPPER_HALF (1ull << 63)
#define STRING_SHIFT 60
#define STRING_COPIES 4
#define USER 1
#define USER_STRING 8

/* hash table of addresses, open addressing, in the output's form */
static uint64_t addresses[SLOTS];
static unsigned int nr_addresses;
static struct qemu_plugin_scoreboard *counts;

static size_t slot_of(uint64_t address)
{
	size_t slot = address * 0x9e3779b97f4a7c15ull >> 32;

	for (;; slot++) {
		slot &= SLOTS - 1;
		if (addresses[slot] == address)
			return slot;
		if (addresses[slot])
			continue;
		if (++nr_addresses > LOAD_MAX)
			die("too many different instructions");
		addresses[slot] = address;
		return slot;
	}
}

static void on_start(unsigned int vcpu, void *unused)
{
	(void)unused;
	memset(qemu_plugin_scoreboard_find(counts, vcpu), 0,
	       SLOTS * sizeof(uint64_t));
}

static void on_stop(unsigned int vcpu, void *unused)
{
	const uint64_t *count = qemu_plugin_scoreboard_find(counts, vcpu);
	uint64_t nr = 0;

	(void)unused;
	for (size_t i = 0; i < SLOTS; i++)
		nr += count[i] != 0;
	write_words(nr, 0, 1);
	for (size_t i = 0; i < SLOTS; i++) {
		if (count[i])
			write_words(addresses[i], count[i], 2);
	}
	if (fflush(out))
		die("can't write the counts");
}

/* Return the three bits that identify a rep movs or rep stos, -1 for other instructions. */
static int string_kind(const struct qemu_plugin_insn *insn)
{
	uint8_t code[3];
	size_t nr = qemu_plugin_insn_data(insn, code, sizeof(code));
	/* an operand-size prefix may be in between */
	size_t op = nr > 2 && (code[1] & 0xf0) == 0x40 ? 2 : 1;
	int width = op == 2 && code[1] & 8 ? 3 : 2;

	if (nr <= op || code[0] != 0xf3)
		return -1;
	switch (code[op]) {
	case 0xa4:
		return STRING_COPIES;
	case 0xa5:
		return STRING_COPIES + width;
	case 0xaa:
		return 0;
	case 0xab:
		return width;
	default:
		return -1;
	}
}

static uint64_t entry_of(const struct qemu_plugin_insn *insn, uint64_t address)
{
	int kind = string_kind(insn);

	if (!(address & UPPER_HALF))
		return kind < 0 ? USER : USER_STRING + (uint64_t)kind;
	if (kind < 0)
		return address;
	return (address & ~(0xfull << STRING_SHIFT)) |
	       (uint64_t)kind << STRING_SHIFT;
}

static void count(struct qemu_plugin_insn *insn, uint64_t address)
{
	size_t slot = slot_of(entry_of(insn, address));

	qemu_plugin_register_vcpu_insn_exec_inline_per_vcpu(
		insn, QEMU_PLUGIN_INLINE_ADD_U64,
		(qemu_plugin_u64){ counts, slot * sizeof(uint64_t) }, 1);
}

static void on_translation(qemu_plugin_id_t id, struct qemu_plugin_tb *tb)
{
	(void)id;
	for (size_t i = 0; i < qemu_plugin_tb_n_insns(tb); i++) {
		struct qemu_plugin_insn *insn = qemu_plugin_tb_get_insn(tb, i);
		uint64_t address = qemu_plugin_insn_vaddr(insn);

		count(insn, address);
		/* marks are in user space, the lower half */
		if (!(address & UPPER_HALF))
			look_for_mark(insn, on_start, on_stop);
	}
}

EXPORT int qemu_plugin_install(qemu_plugin_id_t id, const qemu_info_t *info,
			       int argc, char **argv)
{
	if (argc != 1 || strncmp(argv[0], "out=", 4) != 0)
		die("give out=FILE");
	if (strcmp(info->target_name, "x86_64") != 0 || !info->system_emulation ||
	    info->system.max_vcpus != 1)
		die("only for an x86_64 machine with one CPU");
	out = fopen(argv[0] + 4, "wb");
	if (!out)
		die("can't write there");
	counts = qemu_plugin_scoreboard_new(SLOTS * sizeof(uint64_t));
	qemu_plugin_register_vcpu_tb_trans_cb(id, on_translation);
	return 0;
}
