// SPDX-License-Identifier: GPL-2.0
/*
 * Direct I/O between a block device and memory of a PCI device, which is mapped from a node that
 * provides such memory (a test GPU's, or p2pmem/allocate in sysfs). Uses no ABI of kvblk: proves
 * what the kernel alone can do.
 *
 * usage: guest_p2p_plain trip MEMORY DEVICE BYTES [OFFSET]
 *		writes random bytes from memory to the device, reads them back,
 *		and compares the device's content through host memory
 *	  guest_p2p_plain write|read MEMORY DEVICE BYTES [OFFSET]
 *		one way, no check
 *	  guest_p2p_plain loop MEMORY DEVICE BYTES
 *		reads until an error ends it, which is expected
 *	  guest_p2p_plain hold MEMORY BYTES
 *		maps and writes, prints "ready", waits for a line on stdin, then
 *		reads: exit code 0 if the memory is still mapped, 3 if it
 *		was revoked
 *
 * MEMORY "host" is ordinary memory. If I/O fails, prints which one and the errno's name, and
 * exits with 2.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <unistd.h>

#define WRONG		1
#define IO_FAILED	2
#define REVOKED		3

static void __attribute__((noreturn)) end(int code, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vprintf(format, args);
	va_end(args);
	putchar('\n');
	fflush(stdout);
	_exit(code);
}

static void *map(const char *memory, size_t size)
{
	int flags = MAP_SHARED, fd = -1;
	void *p;

	if (!strcmp(memory, "host")) {
		flags |= MAP_ANONYMOUS;
	} else {
		fd = open(memory, O_RDWR);
		if (fd < 0)
			end(WRONG, "open %s: %s", memory, strerrorname_np(errno));
	}
	p = mmap(NULL, size, PROT_READ | PROT_WRITE, flags, fd, 0);
	if (p == MAP_FAILED)
		end(WRONG, "mmap %s: %s", memory, strerrorname_np(errno));
	return p;
}

static void io(int fd, void *p, size_t size, off_t offset, bool write)
{
	const char *what = write ? "write" : "read";
	ssize_t n = write ? pwrite(fd, p, size, offset) : pread(fd, p, size, offset);

	if (n < 0)
		end(IO_FAILED, "%s: %s", what, strerrorname_np(errno));
	if ((size_t)n != size)
		end(WRONG, "%s: %zd of %zu bytes", what, n, size);
}

static void random_bytes(void *p, size_t size)
{
	for (size_t done = 0; done < size;) {
		ssize_t n = getrandom(p + done, size - done, 0);

		if (n < 0)
			end(WRONG, "getrandom: %s", strerrorname_np(errno));
		done += n;
	}
}

/* A short read has reached the end of the memory; the next read returns the error. */
static void __attribute__((noreturn)) loop(void *p, int fd, size_t size)
{
	puts("ready");
	fflush(stdout);
	while (pread(fd, p, size, 0) >= 0)
		;
	end(IO_FAILED, "read: %s", strerrorname_np(errno));
}

/*
 * Access 8 bytes at a time: each access to an emulated CMB exits to QEMU, and mem*() may choose
 * narrower accesses.
 */
static void copy(volatile uint64_t *to, const uint64_t *from, size_t size)
{
	for (size_t i = 0; i < size / sizeof(*to); i++)
		to[i] = from ? from[i] : 0;
}

static void same(const volatile uint64_t *got, const uint64_t *want, size_t size, const char *where)
{
	for (size_t i = 0; i < size / sizeof(*got); i++) {
		if (got[i] != want[i])
			end(WRONG, "%s differs at byte %zu", where, i * sizeof(*got));
	}
}

static void trip(uint64_t *p, int fd, size_t size, off_t offset)
{
	uint64_t *want = map("host", size), *host = map("host", size);

	random_bytes(want, size);
	copy(p, want, size);
	io(fd, p, size, offset, true);
	io(fd, host, size, offset, false);
	same(host, want, size, "what is on the device");
	copy(p, NULL, size);
	io(fd, p, size, offset, false);
	same(p, want, size, "what was read");
}

static void revoked(int signal)
{
	static const char text[] = "revoked\n";

	(void)!write(1, text, sizeof(text) - 1);
	_exit(REVOKED);
}

static void hold(volatile uint8_t *p, size_t size)
{
	signal(SIGBUS, revoked);
	for (size_t i = 0; i < size; i += 4096)
		p[i] = 0x5a;
	puts("ready");
	fflush(stdout);
	getchar();
	for (size_t i = 0; i < size; i += 4096) {
		if (p[i] != 0x5a)
			end(WRONG, "the memory changed at byte %zu", i);
	}
}

int main(int argc, char **argv)
{
	const char *verb = argc > 1 ? argv[1] : "";
	void *p;
	size_t size;
	off_t offset;
	int fd;

	if (argc == 4 && !strcmp(verb, "hold")) {
		size = strtoull(argv[3], NULL, 0);
		hold(map(argv[2], size), size);
		return 0;
	}
	if (argc < 5)
		end(WRONG, "usage: see the top of p2p_plain.c");
	size = strtoull(argv[4], NULL, 0);
	offset = argc > 5 ? strtoll(argv[5], NULL, 0) : 0;
	fd = open(argv[3], O_RDWR | O_DIRECT);
	if (fd < 0)
		end(WRONG, "open %s: %s", argv[3], strerrorname_np(errno));
	p = map(argv[2], size);
	if (!strcmp(verb, "trip")) {
		trip(p, fd, size, offset);
	} else if (!strcmp(verb, "write") || !strcmp(verb, "read")) {
		io(fd, p, size, offset, *verb == 'w');
	} else if (!strcmp(verb, "loop")) {
		loop(p, fd, size);
	} else {
		end(WRONG, "no such verb: %s", verb);
	}
	return 0;
}
