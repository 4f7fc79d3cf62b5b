// SPDX-License-Identifier: GPL-2.0
/*
 * Two independent users of one device:
 *
 *   tenant own ADDRESS            has a connection with itself, prints the number of another queue
 *                                 pair, and the key and address of a region, and sends and checks
 *                                 data until its standard input ends
 *   tenant intrude ADDRESS KEY TO uses that key (and keys near its own ones), at TO, in every way
 *
 * ADDRESS is that of this host's device. Both print what they did.
 */
#include <poll.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <unistd.h>

#include <rdma/rdma_cma.h>
#include <rdma/rdma_verbs.h>

#include "must.h"

#define SIZE 65536
#define RIGHTS (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ)

struct end {
	struct rdma_cm_id *id;
	struct ibv_mr *mr;
	uint8_t *buf;
};

static const char *host, *port;

static void *connect_it(void *arg)
{
	must(rdma_connect(arg, NULL));
	return NULL;
}

static void make_region(struct end *e)
{
	e->buf = aligned_alloc(4096, SIZE);
	memset(e->buf, 0, SIZE);
	e->mr = ibv_reg_mr(e->id->pd, e->buf, SIZE, RIGHTS);
	if (!e->mr)
		die("no region: %s", strerror(errno));
}

static void connect_ends(struct end *a, struct end *b)
{
	struct ibv_qp_init_attr attr = {
		.qp_type = IBV_QPT_RC,
		.sq_sig_all = 1,
		.cap = { .max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1 },
	};
	struct rdma_addrinfo hints = { .ai_port_space = RDMA_PS_TCP, .ai_flags = RAI_PASSIVE }, *passive, *active;
	struct ibv_qp_init_attr second = attr;
	struct rdma_cm_id *listen;
	pthread_t thread;

	must(rdma_getaddrinfo(host, port, &hints, &passive));
	hints.ai_flags = 0;
	must(rdma_getaddrinfo(host, port, &hints, &active));
	must(rdma_create_ep(&listen, passive, NULL, &attr));
	must(rdma_listen(listen, 1));
	must(rdma_create_ep(&a->id, active, NULL, &second));
	must(pthread_create(&thread, NULL, connect_it, a->id));
	must(rdma_get_request(listen, &b->id));
	must(rdma_accept(b->id, NULL));
	must(pthread_join(thread, NULL));
	rdma_destroy_ep(listen);
	rdma_freeaddrinfo(active);
	rdma_freeaddrinfo(passive);
	make_region(a);
	make_region(b);
}

static void disconnect_ends(struct end *a, struct end *b)
{
	struct end *ends[] = { a, b };

	for (int i = 0; i < 2; i++) {
		rdma_disconnect(ends[i]->id);
		must(ibv_dereg_mr(ends[i]->mr));
		free(ends[i]->buf);
		rdma_destroy_ep(ends[i]->id);
	}
}

static enum ibv_wc_status completion(struct rdma_cm_id *id)
{
	struct ibv_wc wc;

	if (rdma_get_send_comp(id, &wc) != 1)
		die("no completion: %s", strerror(errno));
	return wc.status;
}

static enum ibv_wc_status post(struct end *e, enum ibv_wr_opcode op, uint32_t lkey, uint64_t to, uint32_t rkey)
{
	struct ibv_sge sge = { .addr = (uintptr_t)e->buf, .length = 64, .lkey = lkey };
	struct ibv_send_wr wr = {
		.sg_list = &sge, .num_sge = 1, .opcode = op,
		.wr.rdma = { .remote_addr = to, .rkey = rkey },
	}, *bad;

	must(ibv_post_send(e->id->qp, &wr, &bad));
	return completion(e->id);
}

static void own(void)
{
	struct pollfd in = { .fd = 0, .events = POLLIN };
	struct ibv_qp_init_attr attr = {
		.qp_type = IBV_QPT_RC,
		.cap = { .max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1 },
	};
	struct ibv_qp *waiting;
	struct end a, b;
	uint8_t round = 0;

	connect_ends(&a, &b);
	/* A queue pair that is not connected yet. */
	attr.send_cq = attr.recv_cq = a.id->send_cq;
	waiting = ibv_create_qp(a.id->pd, &attr);
	if (!waiting)
		die("no queue pair: %s", strerror(errno));
	printf("%u %#x %#llx\n", waiting->qp_num, b.mr->rkey, (unsigned long long)(uintptr_t)b.buf);
	fflush(stdout);
	do {
		/* Nobody writes to the second half of the region. */
		memset(a.buf, ++round, 64);
		if (post(&a, IBV_WR_RDMA_WRITE, a.mr->lkey, (uintptr_t)b.buf, b.mr->rkey) ||
		    post(&a, IBV_WR_RDMA_READ, a.mr->lkey, (uintptr_t)b.buf, b.mr->rkey))
			die("round %u failed", round);
		for (int i = 0; i < SIZE; i++) {
			if (b.buf[i] != (i < 64 ? round : 0))
				die("byte %d of the region is %#x", i, b.buf[i]);
		}
		must(poll(&in, 1, 1) < 0);
	} while (!in.revents);
	must(ibv_destroy_qp(waiting));
	disconnect_ends(&a, &b);
}

/* Using that local or remote key at TO is refused, and the connection ends. */
static void refused(bool local, uint32_t key, uint64_t to)
{
	static const enum ibv_wr_opcode ops[] = { IBV_WR_RDMA_READ, IBV_WR_RDMA_WRITE, IBV_WR_SEND };

	for (int i = 0; i < 3; i++) {
		enum ibv_wc_status status;
		struct end a, b;

		if (!local && ops[i] == IBV_WR_SEND)
			continue;
		connect_ends(&a, &b);
		must(rdma_post_recv(b.id, NULL, b.buf, 64, b.mr));
		memset(a.buf, 0xee, 64);
		if (local) {
			status = post(&a, ops[i], key, (uintptr_t)b.buf, b.mr->rkey);
			if (status != IBV_WC_LOC_PROT_ERR)
				die("local key %#x, operation %d: %s", key, ops[i], ibv_wc_status_str(status));
		} else {
			status = post(&a, ops[i], a.mr->lkey, to, key);
			/*
			 * A Write completes when it is sent, a Read behind it when the peer has
			 * taken the Write.
			 */
			if (ops[i] == IBV_WR_RDMA_WRITE)
				status = post(&a, IBV_WR_RDMA_READ, a.mr->lkey, (uintptr_t)b.buf, b.mr->rkey);
			if (!status)
				die("remote key %#x, operation %d", key, ops[i]);
		}
		disconnect_ends(&a, &b);
	}
}

static void intrude(uint32_t theirs, uint64_t to)
{
	struct end a, b;
	uint32_t mine;

	connect_ends(&a, &b);
	mine = b.mr->rkey;
	disconnect_ends(&a, &b);
	refused(true, theirs, to);
	refused(false, theirs, to);
	/*
	 * The next key of the same region, the next region, those before, and keys that are never
	 * assigned.
	 */
	for (int i = 0; i < 6; i++) {
		static const uint32_t steps[] = { 1, -1, 0x100, -0x100, 0x10000, -0x10000 };

		refused(true, mine + steps[i], to);
		refused(false, mine + steps[i], to);
	}
	refused(true, 0, to);
	refused(false, 0, to);
}

int main(int argc, char **argv)
{
	if (argc > 2 && !strcmp(argv[1], "own")) {
		host = argv[2], port = "7501";
		own();
	} else if (argc > 4 && !strcmp(argv[1], "intrude")) {
		host = argv[2], port = "7502";
		intrude(strtoul(argv[3], NULL, 0), strtoull(argv[4], NULL, 0));
	} else {
		die("own ADDRESS, or intrude ADDRESS KEY TO");
	}
	return 0;
}
