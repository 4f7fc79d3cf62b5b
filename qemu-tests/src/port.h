/* SPDX-License-Identifier: GPL-2.0 */
#ifndef PORT_H
#define PORT_H

#include <arpa/inet.h>
#include <unistd.h>

#include <rdma/rdma_cma.h>

#include "must.h"

/*
 * Binds LISTENER to ADDR and a free port above those that the kernel chooses: one of these may be
 * in use by a TCP connection, which rdma_cm does not see, and then rdma_listen() fails.
 */
static void bind_listener(struct rdma_cm_id *listener, const struct sockaddr *addr)
{
	enum { FIRST = 61000, PORTS = 4500 };
	struct sockaddr_storage to = { 0 };

	memcpy(&to, addr, addr->sa_family == AF_INET6 ? sizeof(struct sockaddr_in6) : sizeof(struct sockaddr_in));
	for (int i = 0; i < PORTS; i++) {
		/* It is at the same place in both families. */
		((struct sockaddr_in *)&to)->sin_port = htons(FIRST + (getpid() * 16 + i) % PORTS);
		if (!rdma_bind_addr(listener, (struct sockaddr *)&to))
			return;
		must(errno != EADDRINUSE);
	}
	die("no port is free");
}

#endif
