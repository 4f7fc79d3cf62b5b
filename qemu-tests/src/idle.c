// SPDX-License-Identifier: GPL-2.0
/*
 * Many idle connections. "idle server ADDRESS N" and "idle client ADDRESS N" make N of them. Either
 * end sends the number of the connection over it once. Then the programs print "up" and wait to be
 * killed.
 */
#include <arpa/inet.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/epoll.h>
#include <unistd.h>

#include <rdma/rdma_cma.h>

#include "must.h"

#define PORT 7475
/* Connections that are made at the same time. */
#define WINDOW 4

struct end {
	struct rdma_cm_id *id;
	uint32_t out, in; /* messages */
	int left; /* completions to come */
};

static bool server;
static int n, made, up;
static struct sockaddr_in address = { .sin_family = AF_INET, .sin_port = 0 };
static struct end *ends;
static struct rdma_event_channel *events;
static struct ibv_comp_channel *completions;
static struct ibv_pd *pd;
static struct ibv_cq *cq;
static struct ibv_mr *mr;
static int poller;

static void watch(int fd)
{
	struct epoll_event on = { .events = EPOLLIN, .data.fd = fd };

	must(epoll_ctl(poller, EPOLL_CTL_ADD, fd, &on));
}

/* All queue pairs share these. */
static void make_shared(struct ibv_context *verbs)
{
	if (pd)
		return;
	must(!(pd = ibv_alloc_pd(verbs)));
	must(!(completions = ibv_create_comp_channel(verbs)));
	must(!(cq = ibv_create_cq(verbs, 2 * WINDOW * 2, NULL, completions, 0)));
	must(!(mr = ibv_reg_mr(pd, ends, n * sizeof(*ends), IBV_ACCESS_LOCAL_WRITE)));
	must(ibv_req_notify_cq(cq, 0));
	watch(completions->fd);
}

static void make_qp(struct end *e, struct rdma_cm_id *id)
{
	struct ibv_qp_init_attr init = {
		.qp_type = IBV_QPT_RC,
		.cap = { .max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1 },
	};
	struct ibv_sge sge = { .addr = (uintptr_t)&e->in, .length = sizeof(e->in), .lkey = 0 };
	struct ibv_recv_wr *bad, wr = { .wr_id = e - ends, .sg_list = &sge, .num_sge = 1 };

	make_shared(id->verbs);
	init.send_cq = cq;
	init.recv_cq = cq;
	must(rdma_create_qp(id, pd, &init));
	e->id = id;
	e->left = 2;
	sge.lkey = mr->lkey;
	must(ibv_post_recv(id->qp, &wr, &bad));
}

static void send_one(struct end *e)
{
	struct ibv_sge sge = { .addr = (uintptr_t)&e->out, .length = sizeof(e->out), .lkey = mr->lkey };
	struct ibv_send_wr *bad, wr = {
		.wr_id = e - ends, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND,
		.send_flags = IBV_SEND_SIGNALED,
	};

	must(ibv_post_send(e->id->qp, &wr, &bad));
}

static void connect_next(void)
{
	struct end *e = &ends[made++];

	e->out = e - ends;
	must(rdma_create_id(events, &e->id, e, RDMA_PS_TCP));
	must(rdma_resolve_addr(e->id, NULL, (struct sockaddr *)&address, 60000));
}

static void completed(const struct ibv_wc *wc)
{
	struct end *e = &ends[wc->wr_id];

	if (wc->status)
		die("%s of number %d", ibv_wc_status_str(wc->status), (int)(e - ends));
	if (wc->opcode == IBV_WC_RECV) {
		if (server) {
			e->out = e->in;
			send_one(e);
		} else if (e->in != e->out) {
			die("%u came in place of %u", e->in, e->out);
		}
	}
	if (--e->left)
		return;
	if (++up == n) {
		puts("up");
		fflush(stdout);
	}
	if (!server && made < n)
		connect_next();
}

static void take_completions(void)
{
	struct ibv_wc wcs[16];
	struct ibv_cq *of;
	void *context;
	int got;

	must(ibv_get_cq_event(completions, &of, &context));
	ibv_ack_cq_events(of, 1);
	must(ibv_req_notify_cq(cq, 0));
	while ((got = ibv_poll_cq(cq, 16, wcs)) > 0)
		for (int i = 0; i < got; i++)
			completed(&wcs[i]);
	must(got);
}

static void take_event(void)
{
	struct rdma_conn_param param = { .responder_resources = 1, .initiator_depth = 1 };
	struct rdma_cm_event *event;
	struct rdma_cm_id *id;

	must(rdma_get_cm_event(events, &event));
	id = event->id;
	switch (event->event) {
	case RDMA_CM_EVENT_CONNECT_REQUEST:
		must(made == n);
		make_qp(&ends[made++], id);
		must(rdma_accept(id, &param));
		break;
	case RDMA_CM_EVENT_ADDR_RESOLVED:
		must(rdma_resolve_route(id, 60000));
		break;
	case RDMA_CM_EVENT_ROUTE_RESOLVED:
		make_qp(id->context, id);
		must(rdma_connect(id, &param));
		break;
	case RDMA_CM_EVENT_ESTABLISHED:
		if (!server)
			send_one(id->context);
		break;
	case RDMA_CM_EVENT_DISCONNECTED:
	case RDMA_CM_EVENT_TIMEWAIT_EXIT:
		/* The other end was killed first. */
		if (up == n)
			break;
		/* fall through */
	default:
		die("%s (%d), with %d made and %d up", rdma_event_str(event->event), event->status, made, up);
	}
	must(rdma_ack_cm_event(event));
}

int main(int argc, char **argv)
{
	struct rdma_cm_id *listener;
	struct epoll_event ready;

	must(argc != 4 || !inet_aton(argv[2], &address.sin_addr));
	server = !strcmp(argv[1], "server");
	n = atoi(argv[3]);
	address.sin_port = htons(PORT);
	must(n <= 0 || !(ends = calloc(n, sizeof(*ends))));
	must(!(events = rdma_create_event_channel()));
	must((poller = epoll_create1(0)) < 0);
	watch(events->fd);
	if (server) {
		must(rdma_create_id(events, &listener, NULL, RDMA_PS_TCP));
		must(rdma_bind_addr(listener, (struct sockaddr *)&address));
		must(rdma_listen(listener, 2 * WINDOW));
	} else {
		while (made < n && made < WINDOW)
			connect_next();
	}
	for (;;) {
		must(epoll_wait(poller, &ready, 1, -1) != 1);
		if (ready.data.fd == events->fd)
			take_event();
		else
			take_completions();
	}
}
