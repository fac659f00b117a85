/* SPDX-License-Identifier: MIT */
/*
 * Shared by the QEMU TCG plugins icount_plugin.c and lines_plugin.c: the plugin interface, and the
 * marks of icount_ops.
 *
 * Debian has no package with qemu-plugin.h, and the header requires glib: the parts used of
 * version 3 of the interface (QEMU 9.1 and later) are declared here.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))

struct qemu_plugin_tb;
struct qemu_plugin_insn;
struct qemu_plugin_scoreboard;

typedef uint64_t qemu_plugin_id_t;

typedef struct {
	const char *target_name;
	struct {
		int min;
		int cur;
	} version;
	bool system_emulation;
	struct {
		int smp_vcpus;
		int max_vcpus;
	} system;
} qemu_info_t;

typedef struct {
	struct qemu_plugin_scoreboard *score;
	size_t offset;
} qemu_plugin_u64;

typedef uint32_t qemu_plugin_meminfo_t;

/* public parts of glib's arrays */
typedef struct {
	uint8_t *data;
	unsigned int len;
} GByteArray;

typedef struct {
	char *data;
	unsigned int len;
} GArray;

typedef struct {
	struct qemu_plugin_register *handle;
	const char *name;
	const char *feature;
} qemu_plugin_reg_descriptor;

enum qemu_plugin_op { QEMU_PLUGIN_INLINE_ADD_U64 };
enum qemu_plugin_cb_flags { QEMU_PLUGIN_CB_NO_REGS, QEMU_PLUGIN_CB_R_REGS };
enum qemu_plugin_mem_rw { QEMU_PLUGIN_MEM_RW = 3 };

typedef void (*tb_trans_cb)(qemu_plugin_id_t id, struct qemu_plugin_tb *tb);
typedef void (*vcpu_simple_cb)(qemu_plugin_id_t id, unsigned int vcpu);
typedef void (*vcpu_udata_cb)(unsigned int vcpu, void *udata);
typedef void (*vcpu_mem_cb)(unsigned int vcpu, qemu_plugin_meminfo_t info,
			    uint64_t vaddr, void *udata);

void qemu_plugin_register_vcpu_tb_trans_cb(qemu_plugin_id_t id, tb_trans_cb cb);
size_t qemu_plugin_tb_n_insns(const struct qemu_plugin_tb *tb);
struct qemu_plugin_insn *qemu_plugin_tb_get_insn(const struct qemu_plugin_tb *tb,
						 size_t idx);
uint64_t qemu_plugin_insn_vaddr(const struct qemu_plugin_insn *insn);
size_t qemu_plugin_insn_size(const struct qemu_plugin_insn *insn);
size_t qemu_plugin_insn_data(const struct qemu_plugin_insn *insn, void *dest,
			     size_t len);
void qemu_plugin_register_vcpu_insn_exec_cb(struct qemu_plugin_insn *insn,
					    vcpu_udata_cb cb,
					    enum qemu_plugin_cb_flags flags,
					    void *udata);
void qemu_plugin_register_vcpu_insn_exec_inline_per_vcpu(
	struct qemu_plugin_insn *insn, enum qemu_plugin_op op,
	qemu_plugin_u64 entry, uint64_t imm);
struct qemu_plugin_scoreboard *qemu_plugin_scoreboard_new(size_t element_size);
void *qemu_plugin_scoreboard_find(struct qemu_plugin_scoreboard *score,
				  unsigned int vcpu);
void qemu_plugin_register_vcpu_mem_cb(struct qemu_plugin_insn *insn,
				      vcpu_mem_cb cb,
				      enum qemu_plugin_cb_flags flags,
				      enum qemu_plugin_mem_rw rw, void *udata);
bool qemu_plugin_mem_is_store(qemu_plugin_meminfo_t info);
unsigned int qemu_plugin_mem_size_shift(qemu_plugin_meminfo_t info);
void qemu_plugin_register_vcpu_init_cb(qemu_plugin_id_t id, vcpu_simple_cb cb);
GArray *qemu_plugin_get_registers(void);
int qemu_plugin_read_register(struct qemu_plugin_register *handle, GByteArray *buf);
GByteArray *g_byte_array_new(void);
GByteArray *g_byte_array_set_size(GByteArray *array, unsigned int length);

EXPORT int qemu_plugin_version = 3;

static FILE *out;

static _Noreturn void die(const char *why)
{
	fprintf(stderr, "the plugin of bench/icount: %s\n", why);
	exit(1);
}

static void write_words(uint64_t first, uint64_t second, size_t nr)
{
	uint64_t words[] = { first, second };

	if (fwrite(words, sizeof(words[0]), nr, out) != nr)
		die("can't write the counts");
}

/* nopl 0x0062766b(%rax) starts, nopl 0x0162766b(%rax) stops */
static void look_for_mark(struct qemu_plugin_insn *insn, vcpu_udata_cb start,
			  vcpu_udata_cb stop)
{
	static const uint8_t mark[] = { 0x0f, 0x1f, 0x80, 'k', 'v', 'b' };
	uint8_t code[sizeof(mark) + 1];

	if (qemu_plugin_insn_size(insn) != sizeof(code) ||
	    qemu_plugin_insn_data(insn, code, sizeof(code)) != sizeof(code) ||
	    memcmp(code, mark, sizeof(mark)) != 0 || code[sizeof(mark)] > 1)
		return;
	qemu_plugin_register_vcpu_insn_exec_cb(
		insn, code[sizeof(mark)] ? stop : start,
		QEMU_PLUGIN_CB_NO_REGS, NULL);
}
