// SPDX-License-Identifier: MIT
/*
 * QEMU TCG plugin for bench/lines: records the cache lines of the kernel that two CPUs touch and
 * at least one CPU writes, between two marks of icount_ops.
 *
 * The rule: each CPU's accesses are counted apart, in tables of its own, so the result does not
 * depend on how the CPUs interleave. Symbols are assigned afterwards.
 *
 * A CPU's accesses to a line count as a visit if fewer than VISIT accesses to other lines are
 * between them, because a line does not move to another CPU faster. A visit with a store is a
 * write, without one a read.
 *
 * The second mark appends a record to the file out=, in 64-bit words: the number of lines; for
 * each line the address, reads and writes by the first and by the second CPU, and the number of
 * places; for each place the addresses of the instruction and of the last call, the bytes touched
 * as a bitmap, loads and stores. The last call is the caller if the function is a leaf, such as
 * spin_lock().
 *
 * With -icount, QEMU runs both CPUs in turns in a single thread, and QEMU 10.0 passes the CPU that
 * translated the code to a plugin, not the CPU that runs the code. So the base of the segment GS,
 * where the kernel has the data of a CPU, identifies the CPU.
 */
#include "icount_plugin.h"

#define CPUS		2
#define LINE_SHIFT	6
#define LINE_BYTES	(1u << LINE_SHIFT)
#define VISIT		100
/* limits of a CPU's lines and places in a round, powers of two */
#define LINES		(1u << 18)
#define PLACES		(1u << 19)
#define UPPER_HALF	(1ull << 63)
/* addresses from here on map other memory on each CPU, and devices */
#define FIXMAP		0xffffffffff000000ull

struct line {
	uint64_t number;		/* address / LINE_BYTES; 0: unused */
	uint64_t last;			/* the CPU's clock at the last access */
	uint64_t reads;
	uint64_t writes;
	bool wrote;			/* the last visit is a write */
	uint32_t place;			/* index of the latest one, 0: none */
	uint32_t nr_places;
};

struct place {
	uint64_t number;		/* of the line; 0: unused */
	uint64_t insn;
	uint64_t call;
	uint64_t bytes;
	uint64_t loads;
	uint64_t stores;
	uint32_t next;			/* of the same line, 0: none */
};

/* lines that a CPU touched */
static struct cpu {
	uint64_t base;			/* of GS in the kernel, 0: not seen yet */
	struct line lines[LINES];
	/* entry 0 is not used */
	struct place places[PLACES];
	unsigned int nr_lines;
	unsigned int nr_places;
	uint64_t clock;			/* accesses */
} cpus[CPUS];

/* of either CPU: QEMU switches between them seldom */
static uint64_t last_call;
static struct qemu_plugin_register *gs_base;
static GByteArray *value;
static bool counting;

static size_t hash(uint64_t word)
{
	return word * 0x9e3779b97f4a7c15ull >> 32;
}

/* Return the entry of a line, or the unused one that is its place. */
static struct line *find_line(struct cpu *cpu, uint64_t number)
{
	for (size_t slot = hash(number);; slot++) {
		struct line *line = &cpu->lines[slot & (LINES - 1)];

		if (line->number == number || !line->number)
			return line;
	}
}

static struct line *line_of(struct cpu *cpu, uint64_t number)
{
	struct line *line = find_line(cpu, number);

	if (!line->number && ++cpu->nr_lines > LINES / 4 * 3)
		die("too many cache lines");
	line->number = number;
	return line;
}

static struct place *place_of(struct cpu *cpu, struct line *line, uint64_t insn,
			      uint64_t call)
{
	for (size_t slot = hash(line->number ^ hash(insn ^ hash(call)));; slot++) {
		uint32_t index = slot & (PLACES - 1);
		struct place *place = &cpu->places[index];

		if (!index)
			continue;
		if (place->number == line->number && place->insn == insn &&
		    place->call == call)
			return place;
		if (place->number)
			continue;
		if (++cpu->nr_places > PLACES / 4 * 3)
			die("too many places in the code");
		*place = (struct place){ .number = line->number, .insn = insn,
					 .call = call, .next = line->place };
		line->place = index;
		line->nr_places++;
		return place;
	}
}

static void visit(struct line *line, uint64_t now, bool store)
{
	if (!(line->reads + line->writes) || now - line->last >= VISIT) {
		line->wrote = store;
		line->writes += store;
		line->reads += !store;
	} else if (store && !line->wrote) {
		line->wrote = true;
		line->writes++;
		line->reads--;
	}
	line->last = now;
}

/* Return the CPU that runs, NULL between entry to the kernel and the switch to its GS. */
static struct cpu *current(void)
{
	uint64_t base;

	g_byte_array_set_size(value, 0);
	if (qemu_plugin_read_register(gs_base, value) != sizeof(base))
		die("no base of GS");
	memcpy(&base, value->data, sizeof(base));
	if (!(base & UPPER_HALF))
		return NULL;
	for (struct cpu *cpu = cpus; cpu < cpus + CPUS; cpu++) {
		if (!cpu->base)
			cpu->base = base;
		if (cpu->base == base)
			return cpu;
	}
	die("more than two bases of GS");
}

static void on_access(unsigned int vcpu, qemu_plugin_meminfo_t info, uint64_t address,
		      void *insn)
{
	unsigned int size = 1u << qemu_plugin_mem_size_shift(info);
	unsigned int offset = address & (LINE_BYTES - 1);
	bool store = qemu_plugin_mem_is_store(info);
	struct cpu *cpu;
	struct line *line;
	struct place *place;

	(void)vcpu;
	if (!counting || !(address & UPPER_HALF) || address >= FIXMAP)
		return;
	cpu = current();
	if (!cpu)
		return;
	line = line_of(cpu, address >> LINE_SHIFT);
	visit(line, ++cpu->clock, store);
	place = place_of(cpu, line, (uintptr_t)insn, last_call);
	place->loads += !store;
	place->stores += store;
	for (unsigned int i = offset; i < offset + size && i < LINE_BYTES; i++)
		place->bytes |= 1ull << i;
}

static void on_call(unsigned int vcpu, void *insn)
{
	(void)vcpu;
	last_call = (uintptr_t)insn;
}

/* Both tasks are in user space at the marks. */
static void on_start(unsigned int vcpu, void *unused)
{
	(void)vcpu;
	(void)unused;
	memset(cpus, 0, sizeof(cpus));
	counting = true;
}

/* Return what CPU 1 has of a line of CPU 0, or NULL if they do not compete for it. */
static const struct line *other_of(const struct line *line)
{
	const struct line *other;

	if (!line->number)
		return NULL;
	other = find_line(&cpus[1], line->number);
	return other->number && line->writes + other->writes ? other : NULL;
}

static void write_places(const struct cpu *cpu, uint32_t at)
{
	const struct place *place;

	for (; at; at = place->next) {
		place = &cpu->places[at];
		write_words(place->insn, place->call, 2);
		write_words(place->bytes, 0, 1);
		write_words(place->loads, place->stores, 2);
	}
}

static void on_stop(unsigned int vcpu, void *unused)
{
	uint64_t nr = 0;

	(void)vcpu;
	(void)unused;
	counting = false;
	for (size_t i = 0; i < LINES; i++)
		nr += !!other_of(&cpus[0].lines[i]);
	write_words(nr, 0, 1);
	for (size_t i = 0; i < LINES; i++) {
		const struct line *line = &cpus[0].lines[i], *other = other_of(line);

		if (!other)
			continue;
		write_words(line->number << LINE_SHIFT, line->reads, 2);
		write_words(line->writes, other->reads, 2);
		write_words(other->writes, line->nr_places + other->nr_places, 2);
		write_places(&cpus[0], line->place);
		write_places(&cpus[1], other->place);
	}
	if (fflush(out))
		die("can't write the counts");
}

static bool is_call(const struct qemu_plugin_insn *insn)
{
	uint8_t code[8];
	size_t nr = qemu_plugin_insn_data(insn, code, sizeof(code));
	size_t i = 0;

	/* segment prefixes are padding here */
	while (i < nr && (code[i] == 0x2e || code[i] == 0x3e || (code[i] & 0xf0) == 0x40))
		i++;
	return (i < nr && code[i] == 0xe8) ||
	       (i + 1 < nr && code[i] == 0xff && (code[i + 1] >> 3 & 7) == 2);
}

static void on_translation(qemu_plugin_id_t id, struct qemu_plugin_tb *tb)
{
	(void)id;
	for (size_t i = 0; i < qemu_plugin_tb_n_insns(tb); i++) {
		struct qemu_plugin_insn *insn = qemu_plugin_tb_get_insn(tb, i);
		uint64_t address = qemu_plugin_insn_vaddr(insn);

		if (!(address & UPPER_HALF)) {
			look_for_mark(insn, on_start, on_stop);
			continue;
		}
		qemu_plugin_register_vcpu_mem_cb(insn, on_access, QEMU_PLUGIN_CB_R_REGS,
						 QEMU_PLUGIN_MEM_RW,
						 (void *)(uintptr_t)address);
		if (is_call(insn))
			qemu_plugin_register_vcpu_insn_exec_cb(insn, on_call,
							       QEMU_PLUGIN_CB_NO_REGS,
							       (void *)(uintptr_t)address);
	}
}

static void on_cpu(qemu_plugin_id_t id, unsigned int vcpu)
{
	GArray *registers = qemu_plugin_get_registers();
	const qemu_plugin_reg_descriptor *one = (void *)registers->data;

	(void)id;
	(void)vcpu;
	for (unsigned int i = 0; i < registers->len; i++) {
		if (strcmp(one[i].name, "gs_base") == 0)
			gs_base = one[i].handle;
	}
	if (!gs_base)
		die("no register gs_base");
}

EXPORT int qemu_plugin_install(qemu_plugin_id_t id, const qemu_info_t *info,
			       int argc, char **argv)
{
	if (argc != 1 || strncmp(argv[0], "out=", 4) != 0)
		die("give out=FILE");
	if (strcmp(info->target_name, "x86_64") != 0 || !info->system_emulation ||
	    info->system.max_vcpus != CPUS)
		die("only for an x86_64 machine with two CPUs");
	out = fopen(argv[0] + 4, "wb");
	if (!out)
		die("can't write there");
	value = g_byte_array_new();
	qemu_plugin_register_vcpu_init_cb(id, on_cpu);
	qemu_plugin_register_vcpu_tb_trans_cb(id, on_translation);
	return 0;
}
