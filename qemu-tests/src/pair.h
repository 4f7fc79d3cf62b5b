/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Queue pairs of this process that connect without a connection manager. A program that includes
 * this sets the time that it waits for a completion in WC_MS.
 */
#ifndef PAIR_H
#define PAIR_H

#include <time.h>

#include "wc.h"

#define SIZE 4096
#define RIGHTS (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC)

static struct ibv_context *device;
static struct ibv_pd *pd;
static union ibv_gid gid;
static int gid_index;

/* One queue pair, and the data that its program gives to the other one. */
struct end {
	struct ibv_cq *scq, *rcq;
	struct ibv_qp *qp;
	struct ibv_mr *mr;
	char *buf;
	uint32_t psn;
};

/* Makes one whose completions of receives have room for CQE. */
static inline void make_for(struct end *e, int cqe)
{
	struct ibv_qp_init_attr init = {
		.qp_type = IBV_QPT_RC,
		.cap = { .max_send_wr = 16, .max_recv_wr = 16, .max_send_sge = 1, .max_recv_sge = 1 },
	};
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = RIGHTS };

	must(!(e->scq = ibv_create_cq(device, 32, NULL, NULL, 0)));
	must(!(e->rcq = ibv_create_cq(device, cqe, NULL, NULL, 0)));
	init.send_cq = e->scq;
	init.recv_cq = e->rcq;
	must(!(e->qp = ibv_create_qp(pd, &init)));
	must(!(e->buf = calloc(1, SIZE)));
	must(!(e->mr = ibv_reg_mr(pd, e->buf, SIZE, RIGHTS)));
	e->psn = lrand48() & 0xffffff;
	must(ibv_modify_qp(e->qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS));
}

static inline void make(struct end *e)
{
	make_for(e, 32);
}

static inline void unmake(struct end *e)
{
	must(ibv_destroy_qp(e->qp));
	must(ibv_dereg_mr(e->mr));
	must(ibv_destroy_cq(e->scq));
	must(ibv_destroy_cq(e->rcq));
	free(e->buf);
}

#define RTR_ATTRS (IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | \
		   IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER)
#define RTS_ATTRS (IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC)

static inline struct ibv_qp_attr rtr_attr(uint32_t qpn, uint32_t psn)
{
	return (struct ibv_qp_attr){
		.qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024, .dest_qp_num = qpn, .rq_psn = psn,
		.max_dest_rd_atomic = 4, .min_rnr_timer = 12,
		.ah_attr = { .is_global = 1, .port_num = 1,
			     .grh = { .dgid = gid, .sgid_index = gid_index, .hop_limit = 1 } },
	};
}

/* With the attributes of a MASK alone. */
static inline int to_rtr_with(struct end *e, uint32_t qpn, uint32_t psn, int mask)
{
	struct ibv_qp_attr attr = rtr_attr(qpn, psn);

	return ibv_modify_qp(e->qp, &attr, IBV_QP_STATE | mask);
}

static inline int to_rtr(struct end *e, uint32_t qpn, uint32_t psn)
{
	return to_rtr_with(e, qpn, psn, RTR_ATTRS);
}

static inline struct ibv_qp_attr rts_attr(struct end *e, int timeout)
{
	return (struct ibv_qp_attr){
		.qp_state = IBV_QPS_RTS, .sq_psn = e->psn, .timeout = timeout, .retry_cnt = 7, .rnr_retry = 7,
		.max_rd_atomic = 4,
	};
}

static inline int to_rts_with(struct end *e, int timeout, int mask)
{
	struct ibv_qp_attr attr = rts_attr(e, timeout);

	return ibv_modify_qp(e->qp, &attr, IBV_QP_STATE | mask);
}

static inline int to_rts_within(struct end *e, int timeout)
{
	return to_rts_with(e, timeout, RTS_ATTRS);
}

/* This machine may be slow. */
static inline int to_rts(struct end *e)
{
	return to_rts_within(e, 22);
}

static inline int to(struct end *e, enum ibv_qp_state state)
{
	struct ibv_qp_attr attr = { .qp_state = state };

	return ibv_modify_qp(e->qp, &attr, IBV_QP_STATE);
}

static inline enum ibv_qp_state state(struct end *e)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;

	must(ibv_query_qp(e->qp, &attr, IBV_QP_STATE, &init));
	return attr.qp_state;
}

static inline void post_recv(struct end *e, uint64_t id)
{
	struct ibv_sge sge = { .addr = (uintptr_t)e->buf, .length = 64, .lkey = e->mr->lkey };
	struct ibv_recv_wr wr = { .wr_id = id, .sg_list = &sge, .num_sge = 1 }, *bad;

	must(ibv_post_recv(e->qp, &wr, &bad));
}

static inline void post(struct end *e, enum ibv_wr_opcode op, uint64_t id, struct ibv_mr *target)
{
	struct ibv_sge sge = { .addr = (uintptr_t)e->buf, .length = 8, .lkey = e->mr->lkey };
	struct ibv_send_wr wr = { .wr_id = id, .sg_list = &sge, .num_sge = 1, .opcode = op,
				  .send_flags = IBV_SEND_SIGNALED }, *bad;

	if (op == IBV_WR_ATOMIC_FETCH_AND_ADD) {
		wr.wr.atomic.remote_addr = (uintptr_t)target->addr;
		wr.wr.atomic.rkey = target->rkey;
	} else if (target) {
		wr.wr.rdma.remote_addr = (uintptr_t)target->addr;
		wr.wr.rdma.rkey = target->rkey;
	}
	must(ibv_post_send(e->qp, &wr, &bad));
}

static inline void send_one(struct end *from, struct end *into)
{
	post_recv(into, 1);
	post(from, IBV_WR_SEND, 2, NULL);
	expect_wc(into->rcq, 1, IBV_WC_SUCCESS);
	expect_wc(from->scq, 2, IBV_WC_SUCCESS);
}

static inline void make_two(struct end *a, struct end *b)
{
	make(a);
	make(b);
}

static inline void both_to_rts(struct end *a, struct end *b)
{
	must(to_rtr(a, b->qp->qp_num, b->psn));
	must(to_rts(a));
	must(to_rtr(b, a->qp->qp_num, a->psn));
	must(to_rts(b));
}

static inline void to_init(struct end *e)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = RIGHTS };

	e->psn = lrand48() & 0xffffff;
	must(ibv_modify_qp(e->qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS));
}

/* Opens the device NAME, to connect from and to its GID INDEX. */
static inline void open_device(const char *name, int index)
{
	struct ibv_device **list;

	must(!(list = ibv_get_device_list(NULL)));
	while (*list && strcmp(ibv_get_device_name(*list), name))
		list++;
	expect(*list);
	must(!(device = ibv_open_device(*list)));
	must(!(pd = ibv_alloc_pd(device)));
	gid_index = index;
	must(ibv_query_gid(device, 1, index, &gid));
	srand48(time(NULL));
}

/* A counter of the driver. */
static inline uint64_t counter(const char *name)
{
	char line[200], key[50];
	uint64_t value;
	FILE *rdma;

	/* Linux caches the counters for a tenth of a second. */
	usleep(200000);
	snprintf(line, sizeof(line), "rdma statistic show link %s/1", ibv_get_device_name(device->device));
	must(!(rdma = popen(line, "r")));
	while (fgets(line, sizeof(line), rdma))
		if (sscanf(line, " %49s %lu", key, &value) == 2 && !strcmp(key, name)) {
			while (fgets(line, sizeof(line), rdma))
				;
			pclose(rdma);
			return value;
		}
	die("no such counter");
}

#endif
