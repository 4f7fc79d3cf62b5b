// SPDX-License-Identifier: GPL-2.0
/*
 * For LD_PRELOAD: qperf's server sends the port to its client before it listens there, and a client
 * that is faster fails. With this library the server listens as soon as it has the port.
 */
#define _GNU_SOURCE
#include <dlfcn.h>

#include <rdma/rdma_cma.h>

int rdma_bind_addr(struct rdma_cm_id *id, struct sockaddr *addr)
{
	int (*bind)(struct rdma_cm_id *, struct sockaddr *) = dlsym(RTLD_NEXT, "rdma_bind_addr");
	int (*listen)(struct rdma_cm_id *, int) = dlsym(RTLD_NEXT, "rdma_listen");
	int rc = bind(id, addr);

	return rc ? rc : listen(id, 0);
}

int rdma_listen(struct rdma_cm_id *id, int backlog)
{
	(void)id;
	(void)backlog;
	return 0;
}
