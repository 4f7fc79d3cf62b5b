// SPDX-License-Identifier: GPL-2.0
/*
 * Lone large Writes, on a connection with other traffic in both directions:
 *   lone server ADDRESS PORT SIZE          echoes Sends, and lends memory
 *   lone client ADDRESS PORT SIZE N        N times: a few Sends and their echoes, then a Write of
 *                                          up to SIZE; prints the times from its post to its
 *                                          completion, in microseconds
 * The sizes vary, so that some Writes end with a single unacknowledged segment.
 */
#include <stdint.h>

#include <rdma/rdma_cma.h>
#include <rdma/rdma_verbs.h>

#include "must.h"
#include "times.h"

#define ECHOES 4
#define MESSAGE 64
#define STEP 700
#define SPAN 65536

struct target {
	uint64_t addr;
	uint32_t rkey;
};

static struct rdma_cm_id *id;
static struct ibv_mr *mr, *messages;
static char in[MESSAGE], out[MESSAGE];

static struct rdma_cm_id *endpoint(const char *host, const char *port, int flags)
{
	struct rdma_addrinfo hints = { .ai_flags = flags, .ai_port_space = RDMA_PS_TCP }, *found;
	struct ibv_qp_init_attr init = {
		.cap = { .max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1 },
		.sq_sig_all = 1, .qp_type = IBV_QPT_RC,
	};
	struct rdma_cm_id *ep;

	must(rdma_getaddrinfo(host, port, &hints, &found));
	must(rdma_create_ep(&ep, found, NULL, &init));
	rdma_freeaddrinfo(found);
	return ep;
}

static void lend(size_t size)
{
	char *memory = calloc(1, size);

	must(!memory || !(mr = rdma_reg_write(id, memory, size)));
	must(!(messages = rdma_reg_msgs(id, in, MESSAGE)));
	must(rdma_post_recv(id, NULL, in, MESSAGE, messages));
}

/* Polls, so that nothing but the wire takes time. */
static void completion(struct ibv_cq *cq)
{
	struct ibv_wc wc;
	int n;

	while ((n = ibv_poll_cq(cq, 1, &wc)) == 0)
		;
	if (n < 0 || wc.status)
		die("%s", n < 0 ? "poll" : ibv_wc_status_str(wc.status));
}

static void send_one(void)
{
	must(rdma_post_send(id, NULL, out, MESSAGE, NULL, IBV_SEND_INLINE));
	completion(id->send_cq);
}

static void serve(const char *host, const char *port, size_t size)
{
	struct rdma_cm_id *listener = endpoint(host, port, RAI_PASSIVE);
	struct target target;
	struct rdma_conn_param param = {
		.private_data = &target, .private_data_len = sizeof(target), .responder_resources = 1, .initiator_depth = 1,
	};
	struct ibv_wc wc;

	must(rdma_listen(listener, 1));
	must(rdma_get_request(listener, &id));
	lend(size);
	target.addr = (uintptr_t)mr->addr;
	target.rkey = mr->rkey;
	must(rdma_accept(id, &param));
	while (rdma_get_recv_comp(id, &wc) > 0 && !wc.status) {
		must(rdma_post_recv(id, NULL, in, MESSAGE, messages));
		send_one();
	}
}

static void client(const char *host, const char *port, size_t size, int n)
{
	struct rdma_conn_param param = { .responder_resources = 1, .initiator_depth = 1 };
	double *took = calloc(n, sizeof(*took));
	struct target to;

	id = endpoint(host, port, 0);
	lend(size);
	must(!took || rdma_connect(id, &param));
	memcpy(&to, id->event->param.conn.private_data, sizeof(to));
	for (int i = 0; i < n; i++) {
		double start;

		for (int echo = 0; echo < ECHOES; echo++) {
			send_one();
			completion(id->recv_cq);
			must(rdma_post_recv(id, NULL, in, MESSAGE, messages));
		}
		start = now();
		must(rdma_post_write(id, NULL, mr->addr, size - i * STEP % SPAN, mr, 0, to.addr, to.rkey));
		completion(id->send_cq);
		took[i] = (now() - start) * 1e6;
	}
	print_times(took, n);
	rdma_disconnect(id);
}

int main(int argc, char **argv)
{
	if (argc == 5 && !strcmp(argv[1], "server"))
		serve(argv[2], argv[3], atol(argv[4]));
	else if (argc == 6 && !strcmp(argv[1], "client"))
		client(argv[2], argv[3], atol(argv[4]), atoi(argv[5]));
	else
		die("what? see the head of lone.c");
	return 0;
}
