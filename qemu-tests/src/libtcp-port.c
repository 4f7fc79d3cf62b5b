// SPDX-License-Identifier: GPL-2.0
/*
 * For LD_PRELOAD: moves a program's own TCP sockets one port up. cmtime opens one on
 * the same port at which it listens with rdma_cm, and on iWARP that is TCP, too. The
 * other ends of these sockets leave the ephemeral ports to rdma_cm: C siw fails if it
 * is given one of a former TCP connection.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <dlfcn.h>
#include <linux/in.h>
#include <string.h>
#include <sys/socket.h>

static struct sockaddr_storage moved(const struct sockaddr *addr, socklen_t len)
{
	struct sockaddr_storage copy = { 0 };

	memcpy(&copy, addr, len);
	/* The port is at the same place in both families. */
	if (addr->sa_family == AF_INET || addr->sa_family == AF_INET6) {
		struct sockaddr_in *in = (struct sockaddr_in *)&copy;

		in->sin_port = htons(ntohs(in->sin_port) + 1);
	}
	return copy;
}

int bind(int fd, const struct sockaddr *addr, socklen_t len)
{
	int (*real)(int, const struct sockaddr *, socklen_t) = dlsym(RTLD_NEXT, "bind");
	struct sockaddr_storage copy = moved(addr, len);

	return real(fd, (struct sockaddr *)&copy, len);
}

int connect(int fd, const struct sockaddr *addr, socklen_t len)
{
	int (*real)(int, const struct sockaddr *, socklen_t) = dlsym(RTLD_NEXT, "connect");
	struct sockaddr_storage copy = moved(addr, len);
	uint32_t ports = 20000 | 30000U << 16;

	if (setsockopt(fd, IPPROTO_IP, IP_LOCAL_PORT_RANGE, &ports, sizeof(ports)))
		return -1;

	return real(fd, (struct sockaddr *)&copy, len);
}
