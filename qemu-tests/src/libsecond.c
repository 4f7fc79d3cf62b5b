// SPDX-License-Identifier: GPL-2.0
/*
 * For LD_PRELOAD: perftest with -R makes a second connection at once. If the server
 * does not listen for it yet, it is refused, and the program fails. With this library
 * the server's second rdma_listen() signals the event READY to the other guest, and
 * the client's second rdma_connect() waits for it.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <rdma/rdma_cma.h>

/* The agent's port to the host, see guest/agent. */
#define AGENT 3

int rdma_listen(struct rdma_cm_id *id, int backlog)
{
	int (*real)(struct rdma_cm_id *, int) = dlsym(RTLD_NEXT, "rdma_listen");
	const char *ready = getenv("READY");
	int rc = real(id, backlog);
	static int calls;

	if (!rc && ++calls == 2 && ready)
		dprintf(AGENT, "event %s\n", ready);
	return rc;
}

int rdma_connect(struct rdma_cm_id *id, struct rdma_conn_param *param)
{
	int (*real)(struct rdma_cm_id *, struct rdma_conn_param *) = dlsym(RTLD_NEXT, "rdma_connect");
	const char *ready = getenv("READY");
	struct pollfd fd = { .events = POLLIN };
	static int calls;
	char path[128];

	if (++calls == 2 && ready) {
		snprintf(path, sizeof(path), "/run/event/%s", ready);
		mkfifo(path, 0600);
		fd.fd = open(path, O_RDWR);
		if (fd.fd < 0 || poll(&fd, 1, 60000) <= 0)
			fprintf(stderr, "the server does not listen again\n");
		close(fd.fd);
	}
	return real(id, param);
}
