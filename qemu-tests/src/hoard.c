// SPDX-License-Identifier: GPL-2.0
/*
 * "hoard DEVICE N [windows]": makes N queue pairs of the largest size, or N memory windows, or
 * fewer if memory runs out. Prints their number, and waits for the end of its input.
 */
#include <stdbool.h>
#include <unistd.h>

#include <infiniband/verbs.h>

#include "must.h"

int main(int argc, char **argv)
{
	struct ibv_device **devices = ibv_get_device_list(NULL), **device = devices;
	int n, most = argc > 2 ? atoi(argv[2]) : 0;
	struct ibv_device_attr limits;
	struct ibv_context *context;
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	bool windows = argc > 3;
	char byte;

	while (device && *device && strcmp(ibv_get_device_name(*device), argv[1]))
		device++;
	if (!most || !device || !*device)
		die("what? hoard DEVICE N [windows]");
	context = ibv_open_device(*device);
	must(!context || ibv_query_device(context, &limits));
	pd = ibv_alloc_pd(context);
	cq = ibv_create_cq(context, 1, NULL, NULL, 0);
	if (!pd || !cq)
		die("%s", strerror(errno));
	for (n = 0; n < most; n++) {
		struct ibv_qp_init_attr init = {
			.send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC,
			.cap = { .max_send_wr = limits.max_qp_wr, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1 },
		};

		if (windows ? !ibv_alloc_mw(pd, IBV_MW_TYPE_2) : !ibv_create_qp(pd, &init)) {
			printf("%d, then %s\n", n, strerror(errno));
			break;
		}
	}
	if (n == most)
		printf("%d\n", n);
	fflush(stdout);
	while (read(0, &byte, 1) > 0)
		;
	return 0;
}
