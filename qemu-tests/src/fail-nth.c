// SPDX-License-Identifier: GPL-2.0
/*
 * fail-nth N CMD...: runs CMD with its Nth memory allocation in the kernel failing. Only
 * allocations that pass the stack filter of failslab and fail_page_alloc count.
 */
#include <fcntl.h>
#include <unistd.h>

#include "must.h"

int main(int argc, char **argv)
{
	int fd;

	if (argc < 3)
		die("usage: fail-nth N CMD...");
	fd = open("/proc/thread-self/fail-nth", O_WRONLY | O_CLOEXEC);
	if (fd < 0 || write(fd, argv[1], strlen(argv[1])) < 0)
		die("fail-nth: %s", strerror(errno));
	execvp(argv[2], argv + 2);
	die("%s: %s", argv[2], strerror(errno));
}
