/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Both ends of a connection in one process, which rdma_cm connects at "address". A program that
 * includes this defines WC_MS, see wc.h.
 */
#ifndef ENDS_H
#define ENDS_H

#include <poll.h>
#include <stdbool.h>
#include <unistd.h>

#include <rdma/rdma_cma.h>

#include "port.h"
#include "wc.h"

#define SIZE 65536

static const char *address;
/*
 * Enters the network namespace of an end, 1 for the accepting one, if they are in different ones.
 */
static void (*enter_net)(int end);

/* One end of a connection. */
struct end {
	struct rdma_cm_id *id;
	struct ibv_pd *pd;
	bool guest; /* the protection domain is another end's */
	struct ibv_comp_channel *channel;
	struct ibv_cq *scq, *rcq;
	struct ibv_srq *srq;
	struct ibv_mr *mr;
	char *buf;
};

struct shape {
	int sends, recvs, cqe, access, srq;
	bool sig_all, one_cq;
	struct ibv_pd *pd; /* its own, or another end's */
};

static const struct shape usual = {
	.sends = 32, .recvs = 32, .cqe = 128,
	.access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ,
};

static void furnish(struct end *e, struct rdma_cm_id *id, const struct shape *s)
{
	struct ibv_qp_init_attr attr = {
		.qp_type = IBV_QPT_RC, .sq_sig_all = s->sig_all,
		.cap = { .max_send_wr = s->sends, .max_recv_wr = s->recvs,
			 .max_send_sge = 6, .max_recv_sge = 6, .max_inline_data = 80 },
	};

	e->id = id;
	e->guest = s->pd;
	must(!(e->pd = s->pd ?: ibv_alloc_pd(id->verbs)));
	must(!(e->channel = ibv_create_comp_channel(id->verbs)));
	must(!(e->scq = ibv_create_cq(id->verbs, s->cqe, NULL, e->channel, 0)));
	e->rcq = e->scq;
	if (!s->one_cq)
		must(!(e->rcq = ibv_create_cq(id->verbs, s->cqe, NULL, e->channel, 0)));
	if (s->srq) {
		struct ibv_srq_init_attr srq = { .attr = { .max_wr = s->srq, .max_sge = 1 } };

		must(!(e->srq = ibv_create_srq(e->pd, &srq)));
		attr.srq = e->srq;
	}
	attr.send_cq = e->scq;
	attr.recv_cq = e->rcq;
	must(rdma_create_qp(id, e->pd, &attr));
	must(!(e->buf = calloc(1, SIZE)));
	must(!(e->mr = ibv_reg_mr(e->pd, e->buf, SIZE, s->access)));
}

static struct rdma_cm_event *event_of(struct rdma_event_channel *ec, enum rdma_cm_event_type type)
{
	struct rdma_cm_event *ev;

	must(rdma_get_cm_event(ec, &ev));
	if (ev->event != type)
		die("%s (%d) in place of %s", rdma_event_str(ev->event), ev->status,
		    rdma_event_str(type));
	return ev;
}

struct pair {
	struct rdma_event_channel *ec[2];
	struct rdma_cm_id *listener;
	struct end a, b; /* b accepted */
};

static void connect_pair(struct pair *p, const struct shape *sa, const struct shape *sb)
{
	struct rdma_conn_param param = { .responder_resources = 8, .initiator_depth = 8 };
	struct rdma_addrinfo hints = { .ai_port_space = RDMA_PS_TCP, .ai_flags = RAI_PASSIVE }, *addr;
	struct rdma_cm_id *id;
	struct rdma_cm_event *ev;

	memset(p, 0, sizeof(*p));
	for (int i = 0; i < 2; i++)
		must(!(p->ec[i] = rdma_create_event_channel()));
	must(rdma_getaddrinfo(address, NULL, &hints, &addr));
	/* An identifier is in the namespace of who makes it. */
	if (enter_net)
		enter_net(1);
	must(rdma_create_id(p->ec[1], &p->listener, NULL, RDMA_PS_TCP));
	bind_listener(p->listener, addr->ai_src_addr);
	must(rdma_listen(p->listener, 8));
	if (enter_net)
		enter_net(0);
	must(rdma_create_id(p->ec[0], &id, NULL, RDMA_PS_TCP));
	must(rdma_resolve_addr(id, NULL, rdma_get_local_addr(p->listener), 5000));
	rdma_ack_cm_event(event_of(p->ec[0], RDMA_CM_EVENT_ADDR_RESOLVED));
	must(rdma_resolve_route(id, 5000));
	rdma_ack_cm_event(event_of(p->ec[0], RDMA_CM_EVENT_ROUTE_RESOLVED));
	furnish(&p->a, id, sa);
	must(rdma_connect(id, &param));
	ev = event_of(p->ec[1], RDMA_CM_EVENT_CONNECT_REQUEST);
	id = ev->id;
	rdma_ack_cm_event(ev);
	furnish(&p->b, id, sb);
	must(rdma_accept(id, &param));
	rdma_ack_cm_event(event_of(p->ec[0], RDMA_CM_EVENT_ESTABLISHED));
	rdma_ack_cm_event(event_of(p->ec[1], RDMA_CM_EVENT_ESTABLISHED));
	rdma_freeaddrinfo(addr);
}

static void strip(struct end *e)
{
	struct rdma_cm_id *id = e->id;

	rdma_destroy_qp(id);
	if (e->mr)
		must(ibv_dereg_mr(e->mr));
	if (e->srq)
		must(ibv_destroy_srq(e->srq));
	must(ibv_destroy_cq(e->scq));
	if (e->rcq != e->scq)
		must(ibv_destroy_cq(e->rcq));
	must(ibv_destroy_comp_channel(e->channel));
	if (!e->guest)
		must(ibv_dealloc_pd(e->pd));
	free(e->buf);
}

static void disconnect_pair(struct pair *p)
{
	struct rdma_cm_event *ev;

	strip(&p->a);
	strip(&p->b);
	/* Either side may have got DISCONNECTED. */
	for (int i = 0; i < 2; i++) {
		struct pollfd pfd = { .fd = p->ec[i]->fd, .events = POLLIN };

		while (poll(&pfd, 1, 0) > 0 && !rdma_get_cm_event(p->ec[i], &ev))
			rdma_ack_cm_event(ev);
	}
	must(rdma_destroy_id(p->a.id));
	must(rdma_destroy_id(p->b.id));
	must(rdma_destroy_id(p->listener));
	for (int i = 0; i < 2; i++)
		rdma_destroy_event_channel(p->ec[i]);
}

static int post_recv(struct end *e, uint64_t id, int offset, int len)
{
	struct ibv_sge sge = { .addr = (uintptr_t)e->buf + offset, .length = len, .lkey = e->mr->lkey };
	struct ibv_recv_wr wr = { .wr_id = id, .sg_list = &sge, .num_sge = 1 }, *bad;

	return e->srq ? ibv_post_srq_recv(e->srq, &wr, &bad) : ibv_post_recv(e->id->qp, &wr, &bad);
}

static int post(struct end *e, enum ibv_wr_opcode op, uint64_t id, int len, int flags, struct ibv_mr *to)
{
	struct ibv_sge sge = { .addr = (uintptr_t)e->buf, .length = len, .lkey = e->mr->lkey };
	struct ibv_send_wr wr = { .wr_id = id, .sg_list = &sge, .num_sge = 1, .opcode = op, .send_flags = flags }, *bad;

	if (to) {
		wr.wr.rdma.remote_addr = (uintptr_t)to->addr;
		wr.wr.rdma.rkey = to->rkey;
	}
	return ibv_post_send(e->id->qp, &wr, &bad);
}

static inline bool cq_event(struct end *e, int ms)
{
	struct pollfd pfd = { .fd = e->channel->fd, .events = POLLIN };
	struct ibv_cq *cq;
	void *context;

	if (poll(&pfd, 1, ms) <= 0)
		return false;
	must(ibv_get_cq_event(e->channel, &cq, &context));
	ibv_ack_cq_events(cq, 1);
	return true;
}

/* Whether an asynchronous event TYPE comes within MS milliseconds. Others are ignored. */
static inline bool async_event(struct ibv_context *context, enum ibv_event_type type, int ms)
{
	struct pollfd pfd = { .fd = context->async_fd, .events = POLLIN };
	struct ibv_async_event ev;

	while (poll(&pfd, 1, ms) > 0) {
		must(ibv_get_async_event(context, &ev));
		ibv_ack_async_event(&ev);
		if (ev.event_type == type)
			return true;
	}
	return false;
}

static inline enum ibv_qp_state state(struct end *e)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;

	must(ibv_query_qp(e->id->qp, &attr, IBV_QP_STATE, &init));
	return attr.qp_state;
}

static inline bool becomes(struct end *e, enum ibv_qp_state want)
{
	for (int i = 0; i < 5000; i++, usleep(1000))
		if (state(e) == want)
			return true;
	return false;
}

static inline void to_error(struct end *e)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_ERR };

	must(ibv_modify_qp(e->id->qp, &attr, IBV_QP_STATE));
}

/* The initiator's first message, so that both may send. */
static void settle(struct pair *p)
{
	must(post_recv(&p->b, 1, 0, 64));
	must(post(&p->a, IBV_WR_SEND, 1, 8, IBV_SEND_SIGNALED, NULL));
	expect_wc(p->a.scq, 1, IBV_WC_SUCCESS);
	expect_wc(p->b.rcq, 1, IBV_WC_SUCCESS);
}

#endif
