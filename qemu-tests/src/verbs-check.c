// SPDX-License-Identifier: GPL-2.0
/*
 * Checks of the verbs that perftest and pyverbs lack: events, arming, flush, queries,
 * overrun queues, and refused access. Both ends are in this process. Run as
 * "verbs-check ADDRESS [TEST [SECONDS]]", with an address of a siw device of this machine.
 */
#include <arpa/inet.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <rdma/ib_user_verbs.h>
#include <rdma/rdma_cma.h>

#include "must.h"
#define WC_MS 5000
#include "ends.h"
#include "rng.h"

static int seconds;

static void test_arm(void)
{
	struct pair p;

	connect_pair(&p, &usual, &usual);
	settle(&p);
	for (int i = 0; i < 4; i++)
		must(post_recv(&p.b, i, 0, 64));
	must(ibv_req_notify_cq(p.b.rcq, 1));
	must(post(&p.a, IBV_WR_SEND, 0, 8, 0, NULL));
	expect(!cq_event(&p.b, 300));
	expect_wc(p.b.rcq, 0, IBV_WC_SUCCESS);
	must(post(&p.a, IBV_WR_SEND, 0, 8, IBV_SEND_SOLICITED, NULL));
	expect(cq_event(&p.b, 5000));
	expect_wc(p.b.rcq, 1, IBV_WC_SUCCESS);
	/* One event for one arming. */
	must(post(&p.a, IBV_WR_SEND, 0, 8, IBV_SEND_SOLICITED, NULL));
	expect_wc(p.b.rcq, 2, IBV_WC_SUCCESS);
	expect(!cq_event(&p.b, 300));
	must(ibv_req_notify_cq(p.b.rcq, 0));
	must(post(&p.a, IBV_WR_SEND, 0, 8, 0, NULL));
	expect(cq_event(&p.b, 5000));
	expect_wc(p.b.rcq, 3, IBV_WC_SUCCESS);
	/* A failed completion wakes a consumer that waits for solicited ones. */
	must(post_recv(&p.b, 9, 0, 64));
	must(ibv_req_notify_cq(p.b.rcq, 1));
	to_error(&p.b);
	expect(cq_event(&p.b, 5000));
	expect_wc(p.b.rcq, 9, IBV_WC_WR_FLUSH_ERR);
	disconnect_pair(&p);
}

static void test_signal(void)
{
	struct shape all = usual;
	struct ibv_wc wc;
	struct pair p;

	connect_pair(&p, &usual, &usual);
	settle(&p);
	for (int i = 0; i < 8; i++) {
		must(post_recv(&p.b, i, 0, 64));
		must(post(&p.a, IBV_WR_SEND, i, 8, i == 7 ? IBV_SEND_SIGNALED : 0, NULL));
	}
	expect_wc(p.a.scq, 7, IBV_WC_SUCCESS);
	expect(!next_wc(p.a.scq, &wc, 50));
	disconnect_pair(&p);

	all.sig_all = true;
	connect_pair(&p, &all, &usual);
	for (int i = 0; i < 8; i++) {
		must(post_recv(&p.b, i, 0, 64));
		must(post(&p.a, IBV_WR_SEND, i, 8, 0, NULL));
		expect_wc(p.a.scq, i, IBV_WC_SUCCESS);
	}
	disconnect_pair(&p);
}

static void test_inline(void)
{
	struct ibv_sge sges[6];
	struct ibv_send_wr wr = { .opcode = IBV_WR_SEND, .sg_list = sges, .send_flags = IBV_SEND_SIGNALED }, *bad;
	struct ibv_wc wc;
	struct pair p;

	connect_pair(&p, &usual, &usual);
	for (int i = 0; i < 256; i++)
		p.a.buf[i] = i;
	/* Inline payload of every length; its keys do not matter. */
	for (int len = 0; len <= 80; len += 8) {
		must(post_recv(&p.b, len, 1000, 200));
		sges[0] = (struct ibv_sge){ .addr = (uintptr_t)p.a.buf, .length = len, .lkey = 77 };
		wr.wr_id = len;
		wr.num_sge = 1;
		wr.send_flags = IBV_SEND_SIGNALED | IBV_SEND_INLINE;
		must(ibv_post_send(p.a.id->qp, &wr, &bad));
		expect_wc(p.a.scq, len, IBV_WC_SUCCESS);
		expect(next_wc(p.b.rcq, &wc, 5000) && wc.byte_len == (unsigned int)len);
		expect(!memcmp(p.b.buf + 1000, p.a.buf, len));
	}
	sges[0].length = 81;
	expect(ibv_post_send(p.a.id->qp, &wr, &bad));
	/* Six elements gathered, one of them empty. */
	must(post_recv(&p.b, 6, 1000, 200));
	for (int i = 0; i < 6; i++)
		sges[i] = (struct ibv_sge){ .addr = (uintptr_t)p.a.buf + 10 * i, .length = i, .lkey = p.a.mr->lkey };
	wr.wr_id = 6;
	wr.num_sge = 6;
	wr.send_flags = IBV_SEND_SIGNALED;
	must(ibv_post_send(p.a.id->qp, &wr, &bad));
	expect_wc(p.a.scq, 6, IBV_WC_SUCCESS);
	expect(next_wc(p.b.rcq, &wc, 5000) && wc.byte_len == 15);
	for (int i = 0, at = 1000; i < 6; at += i++)
		expect(!memcmp(p.b.buf + at, p.a.buf + 10 * i, i));
	disconnect_pair(&p);
}

static void test_query(void)
{
	struct ibv_qp_attr reset = { .qp_state = IBV_QPS_RESET };
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;
	struct pair p;

	connect_pair(&p, &usual, &usual);
	must(ibv_query_qp(p.a.id->qp, &attr, IBV_QP_STATE | IBV_QP_CAP | IBV_QP_MAX_QP_RD_ATOMIC |
			  IBV_QP_MAX_DEST_RD_ATOMIC, &init));
	expect(attr.qp_state == IBV_QPS_RTS);
	expect(attr.cap.max_send_wr >= 32 && attr.cap.max_recv_wr >= 32);
	expect(attr.cap.max_send_sge == 6 && attr.cap.max_recv_sge == 6);
	expect(attr.cap.max_inline_data == 80);
	expect(attr.max_rd_atomic == 8 && attr.max_dest_rd_atomic == 8);
	expect(init.qp_type == IBV_QPT_RC && !init.sq_sig_all);
	/* A connection manager's queue pairs cannot be used again. */
	expect(ibv_modify_qp(p.a.id->qp, &reset, IBV_QP_STATE) == EINVAL);
	expect(state(&p.a) == IBV_QPS_RTS);
	to_error(&p.a);
	expect(state(&p.a) == IBV_QPS_ERR);
	expect(becomes(&p.b, IBV_QPS_ERR));
	expect(ibv_modify_qp(p.b.id->qp, &reset, IBV_QP_STATE) == EINVAL);
	disconnect_pair(&p);
}

/* Work requests posted before and after the end are flushed, in order. */
static void test_flush(void)
{
	struct pair p;

	for (int round = 0; round < 2; round++) {
		connect_pair(&p, &usual, &usual);
		settle(&p);
		for (int i = 0; i < 10; i++)
			must(post_recv(&p.b, i, 0, 64));
		if (round)
			to_error(&p.b);
		else
			must(rdma_disconnect(p.a.id));
		expect(becomes(&p.b, IBV_QPS_ERR));
		for (int i = 0; i < 10; i++)
			expect_wc(p.b.rcq, i, IBV_WC_WR_FLUSH_ERR);
		for (int i = 0; i < 10; i++) {
			must(post_recv(&p.b, 100 + i, 0, 64));
			must(post(&p.b, IBV_WR_SEND, 200 + i, 8, 0, NULL));
		}
		for (int i = 0; i < 10; i++) {
			expect_wc(p.b.rcq, 100 + i, IBV_WC_WR_FLUSH_ERR);
			expect_wc(p.b.scq, 200 + i, IBV_WC_WR_FLUSH_ERR);
		}
		disconnect_pair(&p);
	}
}

/* Asks the kernel directly, because libsiw does not. */
static struct ib_uverbs_query_srq_resp query_srq(struct ibv_srq *srq)
{
	struct ib_uverbs_query_srq_resp resp = {};
	struct {
		struct ib_uverbs_cmd_hdr hdr;
		struct ib_uverbs_query_srq cmd;
	} __attribute__((packed)) req = {
		.hdr = { .command = IB_USER_VERBS_CMD_QUERY_SRQ, .in_words = sizeof(req) / 4, .out_words = sizeof(resp) / 4 },
		.cmd = { .response = (uintptr_t)&resp, .srq_handle = srq->handle },
	};

	expect(write(srq->context->cmd_fd, &req, sizeof(req)) == sizeof(req));
	return resp;
}

static void test_srq(void)
{
	struct ib_uverbs_query_srq_resp shown;
	struct ibv_srq_attr attr = { .srq_limit = 4 };
	struct shape shared = usual;
	struct pair p;

	shared.srq = 16;
	connect_pair(&p, &usual, &shared);
	for (int i = 0; i < 16; i++)
		must(post_recv(&p.b, i, 0, 64));
	expect(post_recv(&p.b, 16, 0, 64));
	must(ibv_modify_srq(p.b.srq, &attr, IBV_SRQ_LIMIT));
	shown = query_srq(p.b.srq);
	expect(shown.max_wr == 16 && shown.max_sge == 1 && shown.srq_limit == 4);
	for (int i = 0; i < 12; i++) {
		must(post(&p.a, IBV_WR_SEND, i, 8, IBV_SEND_SIGNALED, NULL));
		expect_wc(p.a.scq, i, IBV_WC_SUCCESS);
		expect_wc(p.b.rcq, i, IBV_WC_SUCCESS);
	}
	expect(!async_event(p.b.id->verbs, IBV_EVENT_SRQ_LIMIT_REACHED, 100));
	must(post(&p.a, IBV_WR_SEND, 12, 8, IBV_SEND_SIGNALED, NULL));
	expect_wc(p.b.rcq, 12, IBV_WC_SUCCESS);
	expect(async_event(p.b.id->verbs, IBV_EVENT_SRQ_LIMIT_REACHED, 5000));
	expect(query_srq(p.b.srq).srq_limit == 0);
	attr.srq_limit = 17;
	expect(ibv_modify_srq(p.b.srq, &attr, IBV_SRQ_LIMIT));
	expect(query_srq(p.b.srq).srq_limit == 0);
	to_error(&p.b);
	expect(async_event(p.b.id->verbs, IBV_EVENT_QP_LAST_WQE_REACHED, 5000));
	disconnect_pair(&p);
}

/*
 * Posts a work request of WR_SIZE bytes by a command of uverbs, because libsiw never does. Returns
 * the error, which is that of the first request, unless there is no such command.
 */
static int post_by_command(struct ibv_context *context, int command, uint32_t handle, size_t wr_size)
{
	struct ib_uverbs_post_recv_resp resp = { 0 };
	struct {
		struct ib_uverbs_cmd_hdr hdr;
		struct ib_uverbs_post_recv cmd; /* those of all queues have this layout */
		char list[sizeof(struct ib_uverbs_send_wr) + sizeof(struct ibv_sge)];
	} req = {
		.cmd = { .response = (uintptr_t)&resp, .qp_handle = handle, .wr_count = 1, .sge_count = 1, .wqe_size = wr_size },
	};
	size_t size = offsetof(typeof(req), list) + wr_size + sizeof(struct ibv_sge);
	struct ib_uverbs_recv_wr wr = { .num_sge = 1 }; /* every request begins like this */

	req.hdr = (struct ib_uverbs_cmd_hdr){ .command = command, .in_words = size / 4, .out_words = 1 };
	memcpy(req.list, &wr, sizeof(wr));
	if (write(context->cmd_fd, &req, size) >= 0)
		return 0;
	expect(errno == EOPNOTSUPP || resp.bad_wr == 1);
	return errno;
}

/* The addresses in such a request are the program's, and nobody takes them for the kernel's. */
static void test_command(void)
{
	struct shape shared = usual;
	struct ibv_context *c;
	struct pair p;

	shared.srq = 16;
	connect_pair(&p, &usual, &shared);
	c = p.a.id->verbs;
	expect(post_by_command(c, IB_USER_VERBS_CMD_POST_SEND, p.a.id->qp->handle, sizeof(struct ib_uverbs_send_wr)) == EINVAL);
	expect(post_by_command(c, IB_USER_VERBS_CMD_POST_RECV, p.a.id->qp->handle, sizeof(struct ib_uverbs_recv_wr)) == EOPNOTSUPP);
	c = p.b.id->verbs;
	expect(post_by_command(c, IB_USER_VERBS_CMD_POST_SRQ_RECV, p.b.srq->handle, sizeof(struct ib_uverbs_recv_wr)) == EOPNOTSUPP);
	disconnect_pair(&p);
}

static void test_overrun(void)
{
	struct shape small = usual;
	struct pair p;

	small.cqe = 4;
	connect_pair(&p, &usual, &small);
	for (int i = 0; i < 8; i++)
		must(post_recv(&p.b, i, 0, 64));
	for (int i = 0; i < 8; i++)
		must(post(&p.a, IBV_WR_SEND, i, 8, 0, NULL));
	expect(async_event(p.b.id->verbs, IBV_EVENT_CQ_ERR, 5000));
	expect(becomes(&p.b, IBV_QPS_ERR));
	expect(becomes(&p.a, IBV_QPS_ERR));
	/* The existing objects are intact. */
	for (int i = 0; i < 4; i++)
		expect_wc(p.b.rcq, i, IBV_WC_SUCCESS);
	disconnect_pair(&p);
}

/* A work request with memory that it may not use fails. Nothing is sent, the rest is flushed. */
static void test_local(void)
{
	struct ibv_wc wc;
	struct pair p;

	for (int round = 0; round < 4; round++) {
		struct ibv_sge sge[2];
		struct ibv_send_wr wr = { .wr_id = 5, .opcode = IBV_WR_SEND, .sg_list = sge, .num_sge = 2 }, *bad;
		struct ibv_pd *pd;
		struct ibv_mr *mr;

		connect_pair(&p, &usual, &usual);
		settle(&p);
		must(post_recv(&p.b, 2, 0, 64));
		must(!(pd = ibv_alloc_pd(p.a.id->verbs)));
		must(!(mr = ibv_reg_mr(pd, p.a.buf, SIZE, IBV_ACCESS_LOCAL_WRITE)));
		sge[0] = (struct ibv_sge){ .addr = (uintptr_t)p.a.buf, .length = 8, .lkey = p.a.mr->lkey };
		sge[1] = sge[0];
		switch (round) {
		case 0: /* no such key */
			sge[1].lkey ^= 1;
			break;
		case 1: /* one byte too many */
			sge[1].addr += SIZE - 7;
			break;
		case 2: /* another protection domain */
			sge[1].lkey = mr->lkey;
			break;
		case 3: /* wraps */
			sge[1].addr = -4ull;
			break;
		}
		must(ibv_post_send(p.a.id->qp, &wr, &bad));
		must(post(&p.a, IBV_WR_SEND, 6, 8, 0, NULL));
		expect_wc(p.a.scq, 5, IBV_WC_LOC_PROT_ERR);
		expect_wc(p.a.scq, 6, IBV_WC_WR_FLUSH_ERR);
		expect(becomes(&p.a, IBV_QPS_ERR));
		expect(next_wc(p.b.rcq, &wc, 5000) && wc.status == IBV_WC_WR_FLUSH_ERR);
		must(ibv_dereg_mr(mr));
		must(ibv_dealloc_pd(pd));
		disconnect_pair(&p);
	}
}

/* Forbidden access by a peer: nothing is placed, and both ends get an error. */
static void test_remote(void)
{
	static const struct {
		enum ibv_wr_opcode op;
		int access, key, offset;
	} tests[] = {
		{ IBV_WR_RDMA_WRITE, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ, 0, 0 },
		{ IBV_WR_RDMA_WRITE, IBV_ACCESS_LOCAL_WRITE, 0, 0 },
		{ IBV_WR_RDMA_READ, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE, 0, 0 },
		{ IBV_WR_RDMA_READ, IBV_ACCESS_LOCAL_WRITE, 0, 0 },
		{ IBV_WR_RDMA_WRITE, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE, 1, 0 },
		{ IBV_WR_RDMA_WRITE, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE, 256, 0 },
		{ IBV_WR_RDMA_WRITE, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE, 0, SIZE - 7 },
		{ IBV_WR_RDMA_WRITE, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE, 0, -1 },
		{ IBV_WR_RDMA_READ, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ, 0, SIZE - 7 },
	};

	for (unsigned int i = 0; i < sizeof(tests) / sizeof(tests[0]); i++) {
		bool read = tests[i].op == IBV_WR_RDMA_READ;
		struct shape shape = usual;
		struct ibv_mr to;
		struct ibv_wc wc;
		struct pair p;

		shape.access = tests[i].access;
		connect_pair(&p, &usual, &shape);
		settle(&p);
		memset(p.a.buf, 0xaa, 64);
		memset(p.b.buf, 0x55, SIZE);
		to = *p.b.mr;
		to.rkey ^= tests[i].key;
		to.addr = (char *)to.addr + tests[i].offset;
		must(post(&p.a, tests[i].op, 5, 8, IBV_SEND_SIGNALED, &to));
		expect(next_wc(p.a.scq, &wc, 5000) && wc.wr_id == 5);
		if (read && wc.status != IBV_WC_REM_ACCESS_ERR)
			die("test %u: %s", i, ibv_wc_status_str(wc.status));
		expect(becomes(&p.a, IBV_QPS_ERR) && becomes(&p.b, IBV_QPS_ERR));
		if (!async_event(p.b.id->verbs, IBV_EVENT_QP_ACCESS_ERR, 5000))
			die("test %u: no event", i);
		for (int at = 0; at < SIZE; at++)
			expect(p.b.buf[at] == 0x55);
		if (read)
			for (int at = 0; at < 64; at++)
				expect(p.a.buf[at] == (char)0xaa);
		disconnect_pair(&p);
	}
}

/* A deregistered region stays inaccessible, for late arrivals too. */
static void test_dereg(void)
{
	struct ibv_mr to;
	uint32_t *seen;
	struct pair p;

	connect_pair(&p, &usual, &usual);
	must(!(seen = calloc(2000, sizeof(*seen))));
	for (int i = 0; i < 2000; i++) {
		struct ibv_mr *mr = ibv_reg_mr(p.a.pd, p.a.buf, SIZE, IBV_ACCESS_LOCAL_WRITE);

		must(!mr);
		seen[i] = mr->rkey;
		expect(mr->rkey & 0xff);
		for (int j = 0; j < i; j++)
			expect(seen[j] != seen[i]);
		must(ibv_dereg_mr(mr));
	}
	free(seen);
	settle(&p);
	/* Writes may be in flight when the region is deregistered, and one comes later. */
	to = *p.b.mr;
	for (int i = 0; i < 16; i++)
		must(post(&p.a, IBV_WR_RDMA_WRITE, i, SIZE, 0, &to));
	must(ibv_dereg_mr(p.b.mr));
	p.b.mr = NULL;
	memset(p.b.buf, 0x55, SIZE);
	post(&p.a, IBV_WR_RDMA_WRITE, 16, SIZE, 0, &to);
	expect(becomes(&p.a, IBV_QPS_ERR) && becomes(&p.b, IBV_QPS_ERR));
	for (int at = 0; at < SIZE; at++)
		expect(p.b.buf[at] == 0x55);
	disconnect_pair(&p);
}

/*
 * A region that peers write to as fast as they can: its deregistration does not wait for a pause of
 * theirs.
 */
static atomic_bool going;

struct gun {
	pthread_t thread;
	struct pair p;
	struct ibv_mr to;
	atomic_ulong hits, late; /* Writes done: in all, and since deregistration began */
};

static void *fire(void *arg)
{
	enum { AHEAD = 8, PATIENCE = 200000 };
	unsigned long posted = 0, polled = 0;
	struct gun *g = arg;
	struct ibv_wc wc;

	while (true) {
		for (; posted < polled + AHEAD; posted++)
			if (post(&g->p.a, IBV_WR_RDMA_WRITE, posted, SIZE, IBV_SEND_SIGNALED, &g->to))
				return NULL;
		if (!ibv_poll_cq(g->p.a.scq, 1, &wc))
			continue;
		if (wc.status != IBV_WC_SUCCESS)
			return NULL;
		polled++;
		g->hits++;
		if (going && ++g->late > PATIENCE)
			die("%lu writes since the region is to go, and it is still there", g->late);
	}
}

static void test_fire(void)
{
	enum { GUNS = 4 };
	time_t end = time(NULL) + seconds;
	unsigned long hits = 0, late = 0;
	int rounds = 0;

	do {
		struct gun gun[GUNS];
		struct shape guest = usual;
		struct ibv_mr *target;

		going = false;
		for (int i = 0; i < GUNS; i++) {
			connect_pair(&gun[i].p, &usual, &guest);
			guest.pd = gun[0].p.b.pd;
			settle(&gun[i].p);
		}
		must(!(target = ibv_reg_mr(guest.pd, gun[0].p.b.buf, SIZE, usual.access)));
		for (int i = 0; i < GUNS; i++) {
			gun[i].to = *target;
			gun[i].hits = gun[i].late = 0;
			must(pthread_create(&gun[i].thread, NULL, fire, &gun[i]));
		}
		/* Waits until all of them write. */
		for (int i = 0; i < GUNS; i++)
			while (gun[i].hits < 8)
				sched_yield();
		going = true;
		must(ibv_dereg_mr(target));
		memset(gun[0].p.b.buf, 0x55, SIZE);
		for (int i = 0; i < GUNS; i++) {
			must(pthread_join(gun[i].thread, NULL));
			hits += gun[i].hits;
			late += gun[i].late;
		}
		for (int at = 0; at < SIZE; at++)
			expect(gun[0].p.b.buf[at] == 0x55);
		/* The first one owns the protection domain. */
		for (int i = GUNS - 1; i >= 0; i--)
			disconnect_pair(&gun[i].p);
	} while (++rounds < 10 || time(NULL) < end);
	printf("exercised %d regions under fire\nexercised %lu writes to them\n", rounds, hits);
	printf("%lu of them when it was to go\n", late);
}

/* What a queue pair leaves in a completion queue must not turn up as another one's. */
static void test_numbers(void)
{
	struct ibv_send_wr wr = { .wr_id = 99, .opcode = IBV_WR_SEND }, *bad;
	struct ibv_qp_attr error = { .qp_state = IBV_QPS_ERR };
	uint32_t before = 0;
	struct ibv_wc wc;
	struct pair p;

	connect_pair(&p, &usual, &usual);
	settle(&p);
	for (int i = 0; i < 20; i++) {
		struct ibv_qp_init_attr attr = {
			.qp_type = IBV_QPT_RC, .send_cq = p.a.scq, .recv_cq = p.a.scq,
			.cap = { .max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1 },
		};
		struct ibv_qp *qp = ibv_create_qp(p.a.pd, &attr);

		expect(qp && qp->qp_num != p.a.id->qp->qp_num && qp->qp_num != p.b.id->qp->qp_num);
		if (i) {
			expect(next_wc(p.a.scq, &wc, 5000) && wc.wr_id == 99);
			expect(wc.qp_num == before && wc.qp_num != qp->qp_num);
		}
		before = qp->qp_num;
		must(ibv_req_notify_cq(p.a.scq, 0));
		must(ibv_modify_qp(qp, &error, IBV_QP_STATE));
		must(ibv_post_send(qp, &wr, &bad));
		expect(cq_event(&p.a, 5000));
		must(ibv_destroy_qp(qp));
	}
	disconnect_pair(&p);
}

/* A program learns what it got when it makes a queue, and a new queue pair shows INIT. */
static void test_sizes(void)
{
	struct ibv_srq_init_attr srq = { .attr = { .max_wr = 20, .max_sge = 1 } };
	struct ibv_qp_init_attr shown, attr = {
		.qp_type = IBV_QPT_RC,
		.cap = { .max_send_wr = 200, .max_recv_wr = 100, .max_send_sge = 3, .max_recv_sge = 2 },
	};
	struct ibv_qp_attr now;
	struct ibv_srq *queue;
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	struct pair p;

	connect_pair(&p, &usual, &usual);
	must(!(cq = ibv_create_cq(p.a.id->verbs, 100, NULL, NULL, 0)));
	expect(cq->cqe >= 100);
	attr.send_cq = attr.recv_cq = cq;
	must(!(qp = ibv_create_qp(p.a.pd, &attr)));
	must(ibv_query_qp(qp, &now, IBV_QP_STATE | IBV_QP_CAP, &shown));
	expect(now.qp_state == IBV_QPS_INIT);
	expect(attr.cap.max_send_wr == 256 && attr.cap.max_recv_wr == 128 && attr.cap.max_inline_data >= 80);
	expect(attr.cap.max_send_sge == 3 && attr.cap.max_recv_sge == 2);
	expect(!memcmp(&attr.cap, &now.cap, sizeof(now.cap)) && !memcmp(&attr.cap, &shown.cap, sizeof(now.cap)));
	must(ibv_destroy_qp(qp));
	must(!(queue = ibv_create_srq(p.a.pd, &srq)));
	expect(srq.attr.max_wr == 32 && srq.attr.max_wr == query_srq(queue).max_wr);
	must(ibv_destroy_srq(queue));
	must(ibv_destroy_cq(cq));
	disconnect_pair(&p);
}

static void test_limits(void)
{
	struct ibv_srq_init_attr srq = { .attr = { .max_wr = 16, .max_sge = 1 } };
	struct ibv_device_attr dev;
	struct ibv_mr *mr;
	struct pair p;

	connect_pair(&p, &usual, &usual);
	must(ibv_query_device(p.a.id->verbs, &dev));
	for (int i = 0; i < 6; i++) {
		struct ibv_qp_init_attr attr = {
			.qp_type = IBV_QPT_RC, .send_cq = p.a.scq, .recv_cq = p.a.rcq,
			.cap = { .max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1 },
		};
		struct ibv_qp *qp;
		int error = EINVAL;

		switch (i) {
		case 0: attr.cap.max_send_wr = dev.max_qp_wr + 1; break;
		case 1: attr.cap.max_recv_wr = dev.max_qp_wr + 1; break;
		case 2: attr.cap.max_send_sge = dev.max_sge + 1; break;
		case 3: attr.cap.max_recv_sge = dev.max_sge + 1; break;
		case 4: attr.cap.max_inline_data = 81; break;
		case 5: attr.qp_type = IBV_QPT_UD; error = EOPNOTSUPP; break;
		}
		errno = 0;
		qp = ibv_create_qp(p.a.pd, &attr);
		if (qp || errno != error)
			die("QP %d: %s", i, strerror(errno));
	}
	/* A queue pair may be for sending only, or for receiving only. */
	for (int i = 0; i < 2; i++) {
		struct ibv_qp_init_attr attr = {
			.qp_type = IBV_QPT_RC, .send_cq = p.a.scq, .recv_cq = p.a.rcq,
			.cap = { .max_send_wr = i, .max_recv_wr = !i, .max_send_sge = 1, .max_recv_sge = 1 },
		};
		struct ibv_qp *qp = ibv_create_qp(p.a.pd, &attr);

		expect(qp && !ibv_destroy_qp(qp));
	}
	srq.attr.max_sge = dev.max_srq_sge + 1;
	expect(!ibv_create_srq(p.a.pd, &srq));
	expect(!ibv_create_cq(p.a.id->verbs, dev.max_cqe + 1, NULL, NULL, 0));
	expect(!ibv_reg_mr(p.a.pd, p.a.buf, SIZE, IBV_ACCESS_REMOTE_WRITE));
	/* The right to atomics is granted, because there are none that could use it. */
	mr = ibv_reg_mr(p.a.pd, p.a.buf, SIZE, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_ATOMIC);
	expect(mr && !ibv_dereg_mr(mr));
	expect(!ibv_reg_mr(p.a.pd, NULL, SIZE, IBV_ACCESS_LOCAL_WRITE));
	disconnect_pair(&p);
}

/*
 * Many threads post to a queue, more than fits, while others ring its doorbell. It completes in
 * order, and when the queue pair is ended under them, the rest is flushed in order, too.
 */
#define ROOM 192
struct crowd {
	struct end *e;
	struct ibv_mr *to;
	pthread_mutex_t lock;
	struct rng rng;
	uint64_t posted, polled; /* the numbers of the next */
	bool signalled[ROOM];
	bool flushing;
	unsigned int room;
	atomic_ulong good;
	atomic_bool stop;
};

static struct {
	atomic_ulong posted, full, flushed, bells;
} crowds;

static void *post_crowd(void *arg)
{
	static const int ops[] = { IBV_WR_RDMA_WRITE, IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ };
	struct crowd *c = arg;

	while (!c->stop) {
		pthread_mutex_lock(&c->lock);
		if (c->posted - c->polled < c->room) {
			int op = ops[below(&c->rng, 3)];
			/*
			 * The last one that fits must be signalled, or none of those before it
			 * frees its slot.
			 */
			bool last = c->posted - c->polled == c->room - 1;
			bool signalled = last || below(&c->rng, 2);
			int len = below(&c->rng, 10) ? below(&c->rng, 512) : below(&c->rng, SIZE);
			int rc, flags = signalled ? IBV_SEND_SIGNALED : 0;

			if (op == IBV_WR_RDMA_WRITE && len <= 80)
				flags |= IBV_SEND_INLINE;
			if (below(&c->rng, 8) == 0)
				flags |= IBV_SEND_FENCE;
			rc = post(c->e, op, c->posted, len, flags, c->to);
			if (!rc) {
				c->signalled[c->posted++ % ROOM] = signalled;
				crowds.posted++;
			} else if (abs(rc) == ENOMEM) {
				crowds.full++;
			} else {
				die("posted %d: %s", (int)c->posted, strerror(rc));
			}
		}
		pthread_mutex_unlock(&c->lock);
		sched_yield();
	}
	return NULL;
}

static void *ring_crowd(void *arg)
{
	struct crowd *c = arg;
	struct ibv_qp *qp = c->e->id->qp;
	struct ib_uverbs_post_send_resp resp;
	struct {
		struct ib_uverbs_cmd_hdr hdr;
		struct ib_uverbs_post_send cmd;
	} req = {
		.hdr = { .command = IB_USER_VERBS_CMD_POST_SEND, .in_words = sizeof(req) / 4, .out_words = 1 },
		.cmd = { .response = (uintptr_t)&resp, .qp_handle = qp->handle, .wqe_size = sizeof(struct ib_uverbs_send_wr) },
	};

	while (!c->stop) {
		expect(write(qp->context->cmd_fd, &req, sizeof(req)) == sizeof(req));
		crowds.bells++;
		sched_yield();
	}
	return NULL;
}

/* Polls for one completion, which must be the next one that is due. */
static bool poll_crowd(struct crowd *c)
{
	struct ibv_wc wc;
	int n = ibv_poll_cq(c->e->scq, 1, &wc);

	expect(n >= 0);
	if (!n)
		return false;
	pthread_mutex_lock(&c->lock);
	if (wc.status != IBV_WC_SUCCESS) {
		if (wc.status != IBV_WC_WR_FLUSH_ERR)
			die("%d: %s", (int)wc.wr_id, ibv_wc_status_str(wc.status));
		crowds.flushed++;
	} else {
		if (c->flushing)
			die("%d succeeded after others were flushed", (int)wc.wr_id);
		c->good++;
	}
	if (wc.wr_id >= c->posted || wc.wr_id < c->polled)
		die("completion %d, of %d to %d", (int)wc.wr_id, (int)c->polled, (int)c->posted);
	for (; c->polled < wc.wr_id; c->polled++)
		/*
		 * Unsignalled success gives no completion, but every flushed request gives one.
		 */
		if (c->flushing || c->signalled[c->polled % ROOM])
			die("no completion %d, but %d", (int)c->polled, (int)wc.wr_id);
	c->polled++;
	c->flushing |= wc.status != IBV_WC_SUCCESS;
	pthread_mutex_unlock(&c->lock);
	return true;
}

static time_t last_progress;

/* Polls two queues until WHAT is true. */
#define poll_until(c, what)                                                         \
	do {                                                                        \
		last_progress = time(NULL);                                         \
		while (!(what)) {                                                   \
			if (poll_crowd(&(c)[0]) | poll_crowd(&(c)[1]))              \
				last_progress = time(NULL);                         \
			else if (time(NULL) > last_progress + 60)                   \
				die("no completion in a minute, waiting for %s: %d of %d, %d of %d", #what, \
				    (int)(c)[0].polled, (int)(c)[0].posted, (int)(c)[1].polled, (int)(c)[1].posted); \
			else                                                        \
				sched_yield();                                      \
		}                                                                   \
	} while (0)

/*
 * Whether all completions that are due have come. If the last request was unsignalled and
 * succeeded, there is nothing to wait for.
 */
static bool complete(struct crowd *c)
{
	uint64_t id = c->polled;

	while (id < c->posted && !c->signalled[id % ROOM])
		id++;
	return id == c->posted;
}

static void live_with_crowds(struct rng *r)
{
	enum { CROWDS = 2, THREADS = 4 };
	pthread_t thread[CROWDS][THREADS];
	struct crowd c[CROWDS];
	struct pair p[CROWDS];
	unsigned long enough = below(r, 500);
	int how = below(r, 5);

	memset(c, 0, sizeof(c));
	for (int i = 0; i < CROWDS; i++) {
		struct shape shape = usual;

		shape.sends = 1 << below(r, 6);
		c[i].room = shape.sends + 1 + below(r, ROOM - shape.sends);
		shape.cqe = c[i].room;
		connect_pair(&p[i], &shape, &usual);
		c[i].e = &p[i].a;
		c[i].to = p[i].b.mr;
		c[i].rng = rng_of(next(r), 0);
		pthread_mutex_init(&c[i].lock, NULL);
		for (int j = 0; j < THREADS; j++)
			must(pthread_create(&thread[i][j], NULL, j == 3 ? ring_crowd : post_crowd, &c[i]));
	}
	poll_until(c, c[0].good >= enough && c[1].good >= enough);
	switch (how) {
	case 0: to_error(&p[0].a); break;
	case 1: must(rdma_disconnect(p[0].a.id)); break;
	case 2: to_error(&p[0].b); break;
	case 3: must(rdma_disconnect(p[0].b.id)); break;
	}
	if (how < 4) {
		/* The other one goes on undisturbed. */
		enough = c[1].good + below(r, 200);
		poll_until(c, c[0].flushing && c[1].good >= enough);
	}
	for (int i = 0; i < CROWDS; i++)
		c[i].stop = true;
	for (int i = 0; i < CROWDS; i++)
		for (int j = 0; j < THREADS; j++)
			must(pthread_join(thread[i][j], NULL));
	poll_until(c, c[0].flushing ? c[0].polled == c[0].posted : complete(&c[0]));
	poll_until(c, complete(&c[1]));
	expect(!c[1].flushing);
	for (int i = 0; i < CROWDS; i++) {
		expect(!poll_crowd(&c[i]));
		disconnect_pair(&p[i]);
	}
}

/*
 * Work requests posted after the end are flushed, even while another thread sends earlier ones. A
 * consumer that drains its queue depends on that (ib_drain_sq()).
 */
static void test_drain(void)
{
	/*
	 * With headers less than the driver encodes at once, because it checks for the end in
	 * between.
	 */
	enum { WRS = 700, LAST };
	struct shape shape = usual;
	time_t end = time(NULL) + seconds;
	int rounds = 0;

	shape.sends = LAST + 1;
	shape.cqe = 2 * LAST;
	do {
		struct ibv_send_wr wr[WRS], *bad;
		struct crowd c = { 0 };
		struct ibv_sge sge;
		pthread_t bell;
		struct pair p;
		struct ibv_wc wc;

		connect_pair(&p, &shape, &usual);
		settle(&p);
		sge = (struct ibv_sge){ .addr = (uintptr_t)p.a.buf, .length = 64 };
		for (int i = 0; i < WRS; i++)
			wr[i] = (struct ibv_send_wr){
				.wr_id = i, .next = i + 1 < WRS ? &wr[i + 1] : NULL, .sg_list = &sge, .num_sge = 1,
				.opcode = IBV_WR_RDMA_WRITE, .send_flags = IBV_SEND_INLINE,
				.wr.rdma = { .remote_addr = (uintptr_t)p.b.buf, .rkey = p.b.mr->rkey },
			};
		c.e = &p.a;
		must(pthread_create(&bell, NULL, ring_crowd, &c));
		must(ibv_post_send(p.a.id->qp, wr, &bad));
		to_error(&p.a);
		must(post(&p.a, IBV_WR_RDMA_WRITE, LAST, 8, 0, p.b.mr));
		do {
			if (!next_wc(p.a.scq, &wc, WC_MS))
				die("round %d: what was posted after the end does not complete", rounds);
			expect(wc.status == IBV_WC_WR_FLUSH_ERR);
		} while (wc.wr_id != LAST);
		c.stop = true;
		must(pthread_join(bell, NULL));
		disconnect_pair(&p);
	} while (++rounds < 10 || time(NULL) < end);
	printf("exercised %d ends\n", rounds);
}

static void test_crowd(void)
{
	time_t seed = time(NULL), end = seed + seconds;
	struct rng r = rng_of(seed, 0);
	int lives = 0;

	printf("seed %ld\n", (long)seed);
	do
		live_with_crowds(&r);
	while (++lives < 2 || time(NULL) < end);
	printf("exercised %lu requests posted\nexercised %lu requests flushed\n", crowds.posted, crowds.flushed);
	printf("%d lives, %lu times no room, %lu bells\n", lives, crowds.full, crowds.bells);
}

/*
 * What is refused has its error, and bad_wr names it; what was before it is posted. A receive may
 * have no elements.
 */
static void test_refused(void)
{
	struct ibv_recv_wr recv = { .wr_id = 3 }, *bad_recv = NULL;
	struct ibv_send_wr wr[3], *bad = NULL;
	struct shape shared = usual;
	struct ibv_srq_attr attr;
	struct ibv_wc wc;
	struct pair p;
	int n = 0;

	shared.srq = 4;
	connect_pair(&p, &usual, &shared);
	must(post_recv(&p.b, 0, 0, 64));
	must(ibv_post_srq_recv(p.b.srq, &recv, &bad_recv));
	for (int i = 0; i < 3; i++)
		wr[i] = (struct ibv_send_wr){ .wr_id = i, .next = i < 2 ? &wr[i + 1] : NULL, .opcode = IBV_WR_SEND,
					      .send_flags = IBV_SEND_SIGNALED };
	wr[1].opcode = IBV_WR_TSO;
	errno = 0;
	expect(ibv_post_send(p.a.id->qp, wr, &bad) == EINVAL && bad == &wr[1] && errno == EINVAL);
	expect_wc(p.a.scq, 0, IBV_WC_SUCCESS);
	expect_wc(p.b.rcq, 0, IBV_WC_SUCCESS);
	wr[2].send_flags |= IBV_SEND_INLINE;
	must(ibv_post_send(p.a.id->qp, &wr[2], &bad));
	expect_wc(p.a.scq, 2, IBV_WC_SUCCESS);
	expect(next_wc(p.b.rcq, &wc, 5000) && wc.wr_id == 3 && wc.status == IBV_WC_SUCCESS && wc.byte_len == 0);
	expect(wc.opcode == IBV_WC_RECV && wc.qp_num == p.b.id->qp->qp_num && wc.wc_flags == 0);

	expect(ibv_post_recv(p.b.id->qp, &recv, &bad_recv) == EINVAL && bad_recv == &recv);
	while (!(n = ibv_post_srq_recv(p.b.srq, &recv, &bad_recv)))
		;
	expect(n == ENOMEM && bad_recv == &recv);
	must(ibv_query_srq(p.b.srq, &attr));
	expect(attr.max_wr == 4 && attr.max_sge == 1);
	expect(ibv_poll_cq(p.b.rcq, -1, &wc) < 0);
	expect(!ibv_qp_to_qp_ex(p.a.id->qp));
	/* A queue that cannot be destroyed stays usable. */
	expect(ibv_destroy_cq(p.a.scq) == EBUSY);
	errno = 0;
	expect(ibv_dealloc_pd(p.a.pd) == EBUSY && errno == EBUSY);
	must(post(&p.a, IBV_WR_SEND, 7, 0, IBV_SEND_SIGNALED, NULL));
	expect_wc(p.a.scq, 7, IBV_WC_SUCCESS);
	disconnect_pair(&p);
}

/* A queue pair that is not connected takes no Send, and does not execute it later. */
static void test_early(void)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = 1 };
	struct ibv_send_wr wr = { .opcode = IBV_WR_SEND }, *bad = NULL;
	struct ibv_qp_init_attr init = {
		.qp_type = IBV_QPT_RC,
		.cap = { .max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1 },
	};
	struct ibv_qp *qp;
	struct ibv_wc wc;
	struct pair p;

	connect_pair(&p, &usual, &usual);
	init.send_cq = p.a.scq;
	init.recv_cq = p.a.rcq;
	must(!(qp = ibv_create_qp(p.a.pd, &init)));
	must(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS));
	for (int i = 0; i < 8; i++)
		expect(ibv_post_send(qp, &wr, &bad) == ENOTCONN && bad == &wr);
	attr.qp_state = IBV_QPS_ERR;
	must(ibv_modify_qp(qp, &attr, IBV_QP_STATE));
	expect(!next_wc(p.a.scq, &wc, 200));
	must(ibv_destroy_qp(qp));
	disconnect_pair(&p);
}

static struct ibv_send_wr bind_of(uint64_t id, struct ibv_mw *mw, struct ibv_mr *mr, size_t at, size_t len)
{
	return (struct ibv_send_wr){
		.wr_id = id, .opcode = IBV_WR_BIND_MW, .send_flags = IBV_SEND_SIGNALED,
		.bind_mw = { .mw = mw, .rkey = ibv_inc_rkey(mw->rkey), .bind_info = {
			.mr = mr, .addr = (uintptr_t)mr->addr + at, .length = len,
			.mw_access_flags = IBV_ACCESS_REMOTE_READ,
		} },
	};
}

static struct ibv_send_wr inv_of(uint64_t id, uint32_t rkey)
{
	return (struct ibv_send_wr){
		.wr_id = id, .opcode = IBV_WR_LOCAL_INV, .send_flags = IBV_SEND_SIGNALED, .invalidate_rkey = rkey,
	};
}

/* A bind is of the window that it names, whatever key it asks for. */
static void test_window(void)
{
	struct shape lender = usual;
	struct ibv_send_wr wr, *bad;
	struct ibv_mw *mw, *other;
	uint32_t index, key;
	struct pair p;

	lender.access |= IBV_ACCESS_MW_BIND;
	connect_pair(&p, &lender, &usual);
	settle(&p);
	must(!(mw = ibv_alloc_mw(p.a.pd, IBV_MW_TYPE_2)));
	must(!(other = ibv_alloc_mw(p.a.pd, IBV_MW_TYPE_2)));
	index = mw->rkey >> 8;
	for (int round = 0; round < 2; round++) {
		struct ibv_mr target = { .addr = p.a.buf };

		/* The key of another window, and the bits alone that are the program's. */
		key = round ? 0x5a : ibv_inc_rkey(other->rkey);
		wr = bind_of(round, mw, p.a.mr, 0, SIZE);
		wr.bind_mw.rkey = key;
		must(ibv_post_send(p.a.id->qp, &wr, &bad));
		expect_wc(p.a.scq, round, IBV_WC_SUCCESS);
		mw->rkey = index << 8 | (key & 0xff);
		memset(p.a.buf, round + 1, 8);
		target.rkey = mw->rkey;
		must(post(&p.b, IBV_WR_RDMA_READ, round, 8, IBV_SEND_SIGNALED, &target));
		expect_wc(p.b.scq, round, IBV_WC_SUCCESS);
		expect(!memcmp(p.a.buf, p.b.buf, 8));
		wr = inv_of(9, mw->rkey);
		must(ibv_post_send(p.a.id->qp, &wr, &bad));
		expect_wc(p.a.scq, 9, IBV_WC_SUCCESS);
	}
	wr = bind_of(5, mw, p.a.mr, 0, SIZE);
	wr.bind_mw.mw = NULL;
	expect(ibv_post_send(p.a.id->qp, &wr, &bad) == EINVAL && bad == &wr);
	must(ibv_dealloc_mw(mw));
	must(ibv_dealloc_mw(other));
	disconnect_pair(&p);
}

/* What became of the process PID: 0 for success. */
static int outcome(pid_t pid)
{
	int status;

	must(waitpid(pid, &status, 0) != pid);
	return status;
}

/*
 * A program may post after it has given up root, and a child of it after fork(). From then on the
 * kernel refuses what they write to the device.
 */
static void test_credentials(void)
{
	struct pair p;
	pid_t pid;

	fflush(stdout);
	pid = fork();
	if (!pid) {
		connect_pair(&p, &usual, &usual);
		settle(&p);
		must(setuid(65534));
		for (int i = 0; i < 3; i++)
			settle(&p);
		pid = fork();
		if (!pid) {
			settle(&p);
			_exit(0);
		}
		/* The queues are where the child has left them, which only the child knows. */
		_exit(outcome(pid) != 0);
	}
	must(outcome(pid));
}

/*
 * Windows that are bound, told to the peer at once, read by it, and invalidated. With a control
 * pipeline that takes long the peer comes before the window is there, and waits.
 */
static void test_windows(void)
{
	enum { WINDOWS = 8, PART = SIZE / WINDOWS, TOLD = 100 };
	struct ibv_send_wr wr[WINDOWS + 1], *bad;
	struct shape lender = usual;
	struct ibv_mw *mw[WINDOWS];
	time_t end = time(NULL) + seconds;
	struct ibv_sge sge;
	struct pair p;
	int rounds = 0;

	lender.access |= IBV_ACCESS_MW_BIND;
	connect_pair(&p, &lender, &usual);
	settle(&p);
	sge = (struct ibv_sge){ .addr = (uintptr_t)p.a.buf, .length = 8, .lkey = p.a.mr->lkey };
	for (int i = 0; i < WINDOWS; i++)
		must(!(mw[i] = ibv_alloc_mw(p.a.pd, IBV_MW_TYPE_2)));
	do {
		must(post_recv(&p.b, TOLD, 0, 64));
		for (int i = 0; i < WINDOWS; i++) {
			memset(p.a.buf + i * PART, rounds + i, PART);
			wr[i] = bind_of(i, mw[i], p.a.mr, i * PART, PART);
			wr[i].next = &wr[i + 1];
			mw[i]->rkey = wr[i].bind_mw.rkey;
		}
		wr[WINDOWS] = (struct ibv_send_wr){
			.wr_id = TOLD, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED, .sg_list = &sge, .num_sge = 1,
		};
		must(ibv_post_send(p.a.id->qp, wr, &bad));
		expect_wc(p.b.rcq, TOLD, IBV_WC_SUCCESS);
		memset(p.b.buf, ~rounds, SIZE);
		for (int i = 0; i < WINDOWS; i++) {
			struct ibv_sge sink = { .addr = (uintptr_t)p.b.buf + i * PART, .length = PART, .lkey = p.b.mr->lkey };
			struct ibv_send_wr rd = {
				.wr_id = i, .opcode = IBV_WR_RDMA_READ, .send_flags = IBV_SEND_SIGNALED, .sg_list = &sink, .num_sge = 1,
				.wr.rdma = { .remote_addr = (uintptr_t)p.a.buf + i * PART, .rkey = mw[i]->rkey },
			};

			must(ibv_post_send(p.b.id->qp, &rd, &bad));
		}
		for (int i = 0; i < WINDOWS; i++)
			expect_wc(p.a.scq, i, IBV_WC_SUCCESS);
		expect_wc(p.a.scq, TOLD, IBV_WC_SUCCESS);
		for (int i = 0; i < WINDOWS; i++)
			expect_wc(p.b.scq, i, IBV_WC_SUCCESS);
		expect(!memcmp(p.b.buf, p.a.buf, SIZE));
		for (int i = 0; i < WINDOWS; i++) {
			wr[i] = inv_of(i, mw[i]->rkey);
			wr[i].next = i + 1 < WINDOWS ? &wr[i + 1] : NULL;
		}
		must(ibv_post_send(p.a.id->qp, wr, &bad));
		for (int i = 0; i < WINDOWS; i++)
			expect_wc(p.a.scq, i, IBV_WC_SUCCESS);
	} while (++rounds < 10 || time(NULL) < end);
	for (int i = 0; i < WINDOWS; i++)
		must(ibv_dealloc_mw(mw[i]));
	disconnect_pair(&p);
	printf("exercised %d windows bound\n", rounds * WINDOWS);
}

/*
 * Binds and invalidations in a row, posted together. The last one alone is signalled. A turn takes
 * few of them, which the case sees from outside.
 */
static void test_row(void)
{
	enum { ROW = 4096 };
	struct ibv_send_wr *wr, *bad;
	struct shape lender = usual;
	struct ibv_mw *mw;
	struct pair p;

	lender.access |= IBV_ACCESS_MW_BIND;
	lender.sends = ROW;
	connect_pair(&p, &lender, &usual);
	settle(&p);
	must(!(mw = ibv_alloc_mw(p.a.pd, IBV_MW_TYPE_2)));
	must(!(wr = calloc(ROW, sizeof(*wr))));
	for (int i = 0; i < ROW; i += 2) {
		wr[i] = bind_of(i, mw, p.a.mr, 0, SIZE);
		mw->rkey = wr[i].bind_mw.rkey;
		wr[i + 1] = inv_of(i + 1, mw->rkey);
		wr[i].send_flags = wr[i + 1].send_flags = 0;
		wr[i].next = &wr[i + 1];
		wr[i + 1].next = &wr[i + 2];
	}
	wr[ROW - 1].next = NULL;
	wr[ROW - 1].send_flags = IBV_SEND_SIGNALED;
	must(ibv_post_send(p.a.id->qp, wr, &bad));
	expect_wc(p.a.scq, ROW - 1, IBV_WC_SUCCESS);
	free(wr);
	must(ibv_dealloc_mw(mw));
	disconnect_pair(&p);
}

/*
 * With reg_failure 1, a bind or an invalidation that fails stops the send queue only: the rest of
 * it is flushed, and what the peer sends and reads goes on. Then the queue pair works again.
 */
static void test_drained(void)
{
	static const enum ibv_wc_status status[] = { IBV_WC_MW_BIND_ERR, IBV_WC_LOC_QP_OP_ERR, IBV_WC_LOC_QP_OP_ERR };

	for (int round = 0; round < 3; round++) {
		struct ibv_qp_attr rts = { .qp_state = IBV_QPS_RTS };
		struct shape lender = usual;
		struct ibv_send_wr bad, good, *first;
		struct ibv_mw *mw;
		struct ibv_wc wc;
		struct pair p;

		lender.access |= IBV_ACCESS_MW_BIND;
		connect_pair(&p, &lender, &usual);
		settle(&p);
		must(!(mw = ibv_alloc_mw(p.a.pd, IBV_MW_TYPE_2)));
		good = bind_of(1, mw, p.a.mr, 0, SIZE);
		must(ibv_post_send(p.a.id->qp, &good, &first));
		expect_wc(p.a.scq, 1, IBV_WC_SUCCESS);
		mw->rkey = good.bind_mw.rkey;
		must(post_recv(&p.a, 10, 0, 64));
		must(post_recv(&p.b, 11, 0, 64));
		must(post_recv(&p.b, 12, 0, 64));
		switch (round) {
		case 0: /* more than the region */
			bad = bind_of(3, mw, p.a.mr, 0, SIZE + 1);
			break;
		case 1: /* another key */
			bad = inv_of(3, mw->rkey ^ 1);
			break;
		case 2: /* no such key */
			bad = inv_of(3, 1);
			break;
		}
		must(post(&p.a, IBV_WR_SEND, 2, 8, IBV_SEND_SIGNALED, NULL));
		must(ibv_post_send(p.a.id->qp, &bad, &first));
		must(post(&p.a, IBV_WR_SEND, 4, 8, 0, NULL));
		must(post(&p.a, IBV_WR_RDMA_READ, 5, 8, IBV_SEND_SIGNALED, p.b.mr));
		expect_wc(p.a.scq, 2, IBV_WC_SUCCESS);
		expect_wc(p.a.scq, 3, status[round]);
		expect_wc(p.a.scq, 4, IBV_WC_WR_FLUSH_ERR);
		expect_wc(p.a.scq, 5, IBV_WC_WR_FLUSH_ERR);
		expect_wc(p.b.rcq, 11, IBV_WC_SUCCESS);
		expect(state(&p.a) == IBV_QPS_SQE && state(&p.b) == IBV_QPS_RTS);
		must(post(&p.a, IBV_WR_SEND, 6, 8, 0, NULL));
		expect_wc(p.a.scq, 6, IBV_WC_WR_FLUSH_ERR);

		must(post(&p.b, IBV_WR_SEND, 7, 8, IBV_SEND_SIGNALED, NULL));
		expect_wc(p.b.scq, 7, IBV_WC_SUCCESS);
		expect_wc(p.a.rcq, 10, IBV_WC_SUCCESS);
		memset(p.a.buf, 0x3c, SIZE);
		must(post(&p.b, IBV_WR_RDMA_READ, 8, SIZE, IBV_SEND_SIGNALED,
			  &(struct ibv_mr){ .addr = p.a.buf, .rkey = mw->rkey }));
		expect_wc(p.b.scq, 8, IBV_WC_SUCCESS);
		expect(!memcmp(p.b.buf, p.a.buf, SIZE));
		expect(state(&p.a) == IBV_QPS_SQE);
		/* Nothing that was flushed has arrived. */
		expect(!next_wc(p.b.rcq, &wc, 0));

		must(ibv_modify_qp(p.a.id->qp, &rts, IBV_QP_STATE));
		expect(state(&p.a) == IBV_QPS_RTS);
		must(post(&p.a, IBV_WR_SEND, 9, 8, IBV_SEND_SIGNALED, NULL));
		expect_wc(p.a.scq, 9, IBV_WC_SUCCESS);
		expect_wc(p.b.rcq, 12, IBV_WC_SUCCESS);
		good = inv_of(13, mw->rkey);
		must(ibv_post_send(p.a.id->qp, &good, &first));
		expect_wc(p.a.scq, 13, IBV_WC_SUCCESS);
		must(ibv_dealloc_mw(mw));
		disconnect_pair(&p);
	}
}

struct test {
	const char *name;
	void (*run)(void);
};

/*
 * The shape of a tutorial: the server posts its only receive some time after the connection is
 * there, and the next one when it has handled a message. The client sends all its messages at once.
 * The last receive is flushed at the end.
 */
static void late_receives(const struct shape *server)
{
	enum { MESSAGES = 6, STEP = 9000, GREETING = 100, LAST = 101 };
	struct ibv_wc wc;
	struct pair p;

	connect_pair(&p, &usual, server);
	memset(p.a.buf, 0x5a, SIZE);
	must(post_recv(&p.a, GREETING, SIZE - 64, 64));
	must(post(&p.b, IBV_WR_SEND, GREETING, 16, IBV_SEND_SIGNALED, NULL));
	for (int i = 0; i < MESSAGES; i++)
		must(post(&p.a, IBV_WR_SEND, i, i * STEP, IBV_SEND_SIGNALED, NULL));
	for (int i = 0; i < MESSAGES; i++) {
		usleep(i ? 2000 : 20000);
		memset(p.b.buf, 0, SIZE);
		must(post_recv(&p.b, i, 0, SIZE));
		expect(next_wc(p.b.rcq, &wc, WC_MS));
		if (wc.status || wc.wr_id != (uint64_t)i || wc.byte_len != (uint32_t)i * STEP)
			die("message %d: %s, %u bytes", i, ibv_wc_status_str(wc.status), wc.byte_len);
		expect(!memcmp(p.a.buf, p.b.buf, i * STEP));
		expect_wc(p.a.scq, i, IBV_WC_SUCCESS);
	}
	expect_wc(p.b.scq, GREETING, IBV_WC_SUCCESS);
	expect_wc(p.a.rcq, GREETING, IBV_WC_SUCCESS);
	must(post_recv(&p.b, LAST, 0, SIZE));
	must(rdma_disconnect(p.a.id));
	/* Those of a shared queue stay for other queue pairs. */
	if (!p.b.srq)
		expect_wc(p.b.rcq, LAST, IBV_WC_WR_FLUSH_ERR);
	disconnect_pair(&p);
}

static void test_late(void)
{
	struct shape shared = usual;

	shared.srq = 4;
	for (int i = 0; i < (seconds ?: 1); i++) {
		late_receives(&usual);
		late_receives(&shared);
	}
}

/*
 * While a message waits for its receive, another queue pair works; the sender may disconnect, and
 * the message is still delivered; an error of the receiver ends the connection, before the message
 * has waited too long; and the queue pair may be destroyed.
 */
static void test_late_ends(void)
{
	struct pair p, other;

	connect_pair(&p, &usual, &usual);
	connect_pair(&other, &usual, &usual);
	must(post(&p.a, IBV_WR_SEND, 1, 8, IBV_SEND_SIGNALED, NULL));
	expect_wc(p.a.scq, 1, IBV_WC_SUCCESS);
	settle(&other);
	must(rdma_disconnect(p.a.id));
	must(post_recv(&p.b, 1, 0, 64));
	expect_wc(p.b.rcq, 1, IBV_WC_SUCCESS);
	disconnect_pair(&p);

	connect_pair(&p, &usual, &usual);
	settle(&p);
	must(post(&p.a, IBV_WR_SEND, 1, 8, IBV_SEND_SIGNALED, NULL));
	expect_wc(p.a.scq, 1, IBV_WC_SUCCESS);
	p.b.mr->lkey ^= 1;
	must(post(&p.b, IBV_WR_SEND, 2, 8, IBV_SEND_SIGNALED, NULL));
	p.b.mr->lkey ^= 1;
	expect_wc(p.b.scq, 2, IBV_WC_LOC_PROT_ERR);
	expect(becomes(&p.a, IBV_QPS_ERR));
	expect(becomes(&p.b, IBV_QPS_ERR));
	disconnect_pair(&p);
	must(post(&other.a, IBV_WR_SEND, 2, 8, IBV_SEND_SIGNALED, NULL));
	expect_wc(other.a.scq, 2, IBV_WC_SUCCESS);
	disconnect_pair(&other);
}

/* The receive comes too late: the connection has ended. */
static void test_too_late(void)
{
	struct pair p;

	connect_pair(&p, &usual, &usual);
	must(post(&p.a, IBV_WR_SEND, 1, 8, IBV_SEND_SIGNALED, NULL));
	expect(becomes(&p.b, IBV_QPS_ERR));
	must(post_recv(&p.b, 1, 0, 64));
	expect_wc(p.b.rcq, 1, IBV_WC_WR_FLUSH_ERR);
	expect(becomes(&p.a, IBV_QPS_ERR));
	disconnect_pair(&p);
}

static const struct test tests[] = {
	{ "arm", test_arm }, { "signal", test_signal }, { "inline", test_inline }, { "query", test_query },
	{ "flush", test_flush }, { "srq", test_srq }, { "command", test_command }, { "overrun", test_overrun },
	{ "local", test_local }, { "remote", test_remote }, { "dereg", test_dereg }, { "numbers", test_numbers },
	{ "sizes", test_sizes }, { "limits", test_limits }, { "crowd", test_crowd }, { "drain", test_drain }, { "fire", test_fire },
};

/* The stock library fails these. */
static const struct test tests_of_ours[] = {
	{ "refused", test_refused }, { "early", test_early }, { "window", test_window },
	{ "windows", test_windows }, { "credentials", test_credentials },
};

/* These run only if they are named, with settings or counters that their cases see to. */
static const struct test tests_by_name[] = {
	{ "drained", test_drained }, { "row", test_row }, { "late", test_late },
	{ "late-ends", test_late_ends }, { "too-late", test_too_late },
};

/* Runs the test of that name, or all. */
static void run(const struct test *list, size_t count, const char *name)
{
	for (size_t i = 0; i < count; i++)
		if (!name || !strcmp(name, list[i].name)) {
			printf("%s\n", list[i].name);
			list[i].run();
		}
}

int main(int argc, char **argv)
{
	const char *provider = getenv("PROVIDER"), *name = argc > 2 ? argv[2] : NULL;

	setvbuf(stdout, NULL, _IOLBF, 0);
	if (argc < 2)
		die("usage: %s ADDRESS [TEST [SECONDS]]", argv[0]);
	address = argv[1];
	seconds = argc > 3 ? atoi(argv[3]) : 0;
	run(tests, sizeof(tests) / sizeof(*tests), name);
	if (provider && !strcmp(provider, "ours"))
		run(tests_of_ours, sizeof(tests_of_ours) / sizeof(*tests_of_ours), name);
	if (name)
		run(tests_by_name, sizeof(tests_by_name) / sizeof(*tests_by_name), name);
	return 0;
}
