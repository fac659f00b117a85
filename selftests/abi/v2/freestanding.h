/* SPDX-License-Identifier: GPL-2.0 */
/*
 * System calls and output for programs that are built for 32 bits, too, where there is no C library
 * to be had: gcc -m32 -nostdlib. On 64 bits the C library has main() and syscall().
 */
#ifndef ABI_FREESTANDING_H
#define ABI_FREESTANDING_H

#include <asm/unistd.h>
#include <linux/errno.h>
#include <linux/fcntl.h>
#include <linux/mman.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __i386__
#include <stdarg.h>

/* Make system call @nr with up to five arguments. Returns its result or a negative errno. */
static long system_call(long nr, long a, long b, long c, long d, long e)
{
	long ret;

	asm volatile("int $0x80" : "=a" (ret) : "a" (nr), "b" (a), "c" (b), "d" (c), "S" (d),
		     "D" (e) : "memory");
	return ret;
}

/* the compiler may call these */
void *memcpy(void *to, const void *from, size_t len)
{
	for (size_t i = 0; i < len; i++)
		((uint8_t *)to)[i] = ((const uint8_t *)from)[i];
	return to;
}

void *memset(void *to, int value, size_t len)
{
	for (size_t i = 0; i < len; i++)
		((uint8_t *)to)[i] = (uint8_t)value;
	return to;
}

int memcmp(const void *a, const void *b, size_t len)
{
	for (size_t i = 0; i < len; i++)
		if (((const uint8_t *)a)[i] != ((const uint8_t *)b)[i])
			return 1;
	return 0;
}

size_t strlen(const char *text)
{
	size_t len = 0;

	while (text[len])
		len++;
	return len;
}

/* Map @len bytes: old mmap(2) has its arguments in memory. */
static void *map(size_t len, int flags, int fd, unsigned long offset)
{
	unsigned long args[] = {
		0, len, PROT_READ | PROT_WRITE, (unsigned long)flags, (unsigned long)fd, offset,
	};
	long ret = system_call(__NR_mmap, (long)args, 0, 0, 0, 0);

	return (unsigned long)ret > -4096ul ? NULL : (void *)ret;
}

int main(int argc, char **argv);

__attribute__((used, noreturn)) static void begin(long *stack)
{
	int code = main((int)stack[0], (char **)(stack + 1));

	for (;;)
		system_call(__NR_exit_group, code, 0, 0, 0, 0);
}

asm(".globl _start\n"
    "_start:\n"
    "	xor %ebp, %ebp\n"
    "	mov %esp, %eax\n"
    "	and $-16, %esp\n"
    "	sub $12, %esp\n"
    "	push %eax\n"
    "	call begin\n");
#else
#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static long system_call(long nr, long a, long b, long c, long d, long e)
{
	long ret = syscall(nr, a, b, c, d, e, 0l);

	return ret < 0 ? -errno : ret;
}

static void *map(size_t len, int flags, int fd, unsigned long offset)
{
	void *p = mmap(NULL, len, PROT_READ | PROT_WRITE, flags, fd, (off_t)offset);

	return p == MAP_FAILED ? NULL : p;
}
#endif

static void print(const char *text)
{
	system_call(__NR_write, 1, (long)text, (long)strlen(text), 0, 0);
}

/* Print in hexadecimal: 32 bits have no division of 64-bit numbers without a library. */
static void print_number(uint64_t value)
{
	char text[19] = "0x";
	unsigned int at = 2;

	for (int shift = 60; shift >= 0; shift -= 4)
		if (value >> shift || !shift)
			text[at++] = "0123456789abcdef"[value >> shift & 15];
	text[at] = '\0';
	print(text);
}

#endif
