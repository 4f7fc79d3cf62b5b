// SPDX-License-Identifier: GPL-2.0
/*
 * "numbers DEVICE N": makes N queue pairs and N regions, says "there", and waits to be killed.
 */
#include <unistd.h>

#include <infiniband/verbs.h>

#include "must.h"

int main(int argc, char **argv)
{
	struct ibv_device **devices = ibv_get_device_list(NULL), **device = devices;
	struct ibv_qp_init_attr init = {
		.qp_type = IBV_QPT_RC,
		.cap = { .max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1 },
	};
	struct ibv_context *context;
	static char memory[64];
	struct ibv_pd *pd;

	while (argc == 3 && device && *device && strcmp(ibv_get_device_name(*device), argv[1]))
		device++;
	if (argc != 3 || !device || !*device)
		die("what? numbers DEVICE N");
	must(!(context = ibv_open_device(*device)));
	must(!(pd = ibv_alloc_pd(context)));
	must(!(init.send_cq = ibv_create_cq(context, 1, NULL, NULL, 0)));
	init.recv_cq = init.send_cq;
	for (int n = atoi(argv[2]); n; n--) {
		must(!ibv_create_qp(pd, &init));
		must(!ibv_reg_mr(pd, memory, sizeof(memory), IBV_ACCESS_LOCAL_WRITE));
	}
	printf("there\n");
	fflush(stdout);
	for (;;)
		pause();
}
