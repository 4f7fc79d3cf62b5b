// SPDX-License-Identifier: GPL-2.0
/*
 * Checks every byte that the verbs move. Run as "verify server|client ADDRESS [TEST]".
 * Both sides run the same tests, one after the other, each on connections of its own.
 * Payload is a function of a seed and the position, so that either side knows what must
 * be in a buffer, and what must not have changed around it.
 *
 * EXTENDED=1 in the environment of one side or both makes it use extended verbs.
 *
 * "verify server|client ADDRESS endless SECONDS [LANES]" goes on until the connections, three if
 * nothing else is said, end in any way, or the client disconnects during traffic, after that time
 * or at SIGTERM. Then all successfully completed data must be right, and no memory may change any
 * more. The exit status is 0 if so, 1 if something is wrong, and 3 if there was no connection to
 * begin with. Events of established connections and of their paths are printed, and the longest
 * time in which nothing completed on one of them. At SIGUSR1 the queue pairs leave their paths.
 */
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <time.h>
#include <unistd.h>

#include <rdma/rdma_cma.h>
#include <rdma/rdma_verbs.h>

static bool server, c_siw, c_siw_peer, endless;
static const char *host;

/* A failed call ends an endless run with a status of its own. */
#define DIE_STATUS (endless ? 3 : 1)
#include "must.h"
#include "times.h"
#define wrong(...) give_up(1, __VA_ARGS__)

#define PORT "7472"
#define LANES 8
#define ROUNDS 40
/*
 * A round is sent when the peer's round AHEAD before it has arrived, so at most 2 * AHEAD are in
 * flight.
 */
#define AHEAD 4
#define SLOTS (2 * AHEAD)
#define MAX_LEN 70000
#define GUARD 64
#define GUARD_SEED 9000
#define SLOT_SIZE (MAX_LEN + 3 * GUARD)
#define MAX_SGE 6

/* ---- extended verbs ---- */

/*
 * With EXTENDED=1 in the environment, queues are extended, and used by their own functions. The
 * other end need not know.
 */
static bool extended;

static struct ibv_cq *create_cq(struct ibv_context *verbs, struct ibv_comp_channel *events)
{
	struct ibv_cq_init_attr_ex attr = { .cqe = 256, .channel = events, .wc_flags = IBV_WC_STANDARD_FLAGS };

	if (!extended)
		return ibv_create_cq(verbs, 256, NULL, events, 0);
	return ibv_cq_ex_to_cq(ibv_create_cq_ex(verbs, &attr));
}

static int create_qp(struct rdma_cm_id *id, struct ibv_pd *pd, struct ibv_qp_init_attr *attr)
{
	struct ibv_qp_init_attr_ex ex = {
		.send_cq = attr->send_cq, .recv_cq = attr->recv_cq, .srq = attr->srq,
		.cap = attr->cap, .qp_type = attr->qp_type,
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS, .pd = pd,
		.send_ops_flags = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_INV |
				  IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_READ,
	};

	return extended ? rdma_create_qp_ex(id, &ex) : rdma_create_qp(id, pd, attr);
}

static int poll_cq(struct ibv_cq *cq, struct ibv_wc *wc)
{
	struct ibv_cq_ex *ex = (struct ibv_cq_ex *)cq;
	struct ibv_poll_cq_attr attr = {};
	int rc;

	if (!extended)
		return ibv_poll_cq(cq, 1, wc);
	rc = ibv_start_poll(ex, &attr);
	if (rc)
		return rc == ENOENT ? 0 : -rc;
	*wc = (struct ibv_wc){
		.wr_id = ex->wr_id, .status = ex->status, .opcode = ibv_wc_read_opcode(ex),
		.vendor_err = ibv_wc_read_vendor_err(ex), .byte_len = ibv_wc_read_byte_len(ex),
		.qp_num = ibv_wc_read_qp_num(ex), .wc_flags = ibv_wc_read_wc_flags(ex),
		.invalidated_rkey = ibv_wc_read_invalidated_rkey(ex),
	};
	ibv_end_poll(ex);
	return 1;
}

static void build(struct ibv_qp_ex *ex, const struct ibv_send_wr *wr)
{
	ex->wr_id = wr->wr_id;
	ex->wr_flags = wr->send_flags & ~IBV_SEND_INLINE;
	switch (wr->opcode) {
	case IBV_WR_SEND:
		ibv_wr_send(ex);
		break;
	case IBV_WR_SEND_WITH_INV:
		ibv_wr_send_inv(ex, wr->invalidate_rkey);
		break;
	case IBV_WR_RDMA_WRITE:
		ibv_wr_rdma_write(ex, wr->wr.rdma.rkey, wr->wr.rdma.remote_addr);
		break;
	case IBV_WR_RDMA_READ:
		ibv_wr_rdma_read(ex, wr->wr.rdma.rkey, wr->wr.rdma.remote_addr);
		break;
	default:
		die("opcode %d", wr->opcode);
	}
	if (wr->send_flags & IBV_SEND_INLINE) {
		struct ibv_data_buf bufs[MAX_SGE];

		for (int i = 0; i < wr->num_sge; i++)
			bufs[i] = (struct ibv_data_buf){ .addr = (void *)(uintptr_t)wr->sg_list[i].addr,
							 .length = wr->sg_list[i].length };
		ibv_wr_set_inline_data_list(ex, wr->num_sge, bufs);
	} else {
		ibv_wr_set_sge_list(ex, wr->num_sge, wr->sg_list);
	}
}

/* Posts one work request, after some that are given up and must leave no trace. */
static int post(struct ibv_qp *qp, struct ibv_send_wr *wr)
{
	struct ibv_qp_ex *ex;
	struct ibv_send_wr *bad;

	if (!extended)
		return ibv_post_send(qp, wr, &bad);
	ex = ibv_qp_to_qp_ex(qp);
	ibv_wr_start(ex);
	build(ex, wr);
	build(ex, wr);
	ibv_wr_abort(ex);
	ibv_wr_start(ex);
	build(ex, wr);
	ibv_wr_send(ex);
	ibv_wr_set_inline_data(ex, ex, 4096);
	if (ibv_wr_complete(ex) != EINVAL)
		wrong("too much inline data was taken");
	ibv_wr_start(ex);
	build(ex, wr);
	return ibv_wr_complete(ex);
}

/* ---- payload ---- */

static uint32_t mix(uint32_t x)
{
	x ^= x >> 16;
	x *= 0x7feb352d;
	x ^= x >> 15;
	x *= 0x846ca68b;
	return x ^ x >> 16;
}

static uint8_t byte_at(uint32_t seed, uint32_t pos)
{
	return mix(seed ^ (pos >> 2)) >> (pos & 3) * 8;
}

static void fill(uint8_t *buf, uint32_t seed, uint32_t pos, uint32_t len)
{
	uint32_t word = mix(seed ^ (pos >> 2));

	for (uint32_t i = 0; i < len; i++) {
		if (((pos + i) & 3) == 0)
			word = mix(seed ^ ((pos + i) >> 2));
		buf[i] = word >> ((pos + i) & 3) * 8;
	}
}

static void check(const uint8_t *buf, uint32_t seed, uint32_t pos, uint32_t len, const char *what)
{
	uint32_t word = mix(seed ^ (pos >> 2));

	for (uint32_t i = 0; i < len; i++) {
		if (((pos + i) & 3) == 0)
			word = mix(seed ^ ((pos + i) >> 2));
		if (buf[i] != (uint8_t)(word >> ((pos + i) & 3) * 8))
			wrong("%s: byte %u of %u is %02x, not %02x (seed %x)", what, i, len, buf[i],
			      byte_at(seed, pos + i), seed);
	}
}

/* ---- connections ---- */

struct link {
	struct rdma_cm_id *id;
	struct ibv_pd *pd;
	struct ibv_comp_channel *events;
	struct ibv_cq *cq; /* of both queues */
	struct ibv_qp *qp;
	struct ibv_wc kept[16]; /* early completions of the other queue */
	int n_kept;
	bool gone; /* in an endless run: the device has refused a call */
};

/* Private data of either side. */
struct region {
	uint64_t addr;
	uint32_t rkey;
	uint32_t lane;
};

static struct rdma_event_channel *channel;

/* The next event of that type. Those of other connections may come in between. */
static struct rdma_cm_event *expect(enum rdma_cm_event_type type)
{
	static struct rdma_cm_event *kept[2 * LANES];
	struct pollfd fd = { .fd = channel->fd, .events = POLLIN };
	struct rdma_cm_event *event;

	for (int i = 0; i < 2 * LANES; i++)
		if (kept[i] && kept[i]->event == type) {
			event = kept[i];
			memmove(kept + i, kept + i + 1, (2 * LANES - i - 1) * sizeof(*kept));
			kept[2 * LANES - 1] = NULL;
			return event;
		}
	for (int n = 0; n < 2 * LANES;) {
		if (kept[n]) {
			n++;
			continue;
		}
		if (poll(&fd, 1, 60000) <= 0)
			die("no event, %s expected", rdma_event_str(type));
		must(rdma_get_cm_event(channel, &event));
		if (event->event == type)
			return event;
		if (event->event != RDMA_CM_EVENT_CONNECT_REQUEST && event->event != RDMA_CM_EVENT_ESTABLISHED &&
		    event->event != RDMA_CM_EVENT_DISCONNECTED)
			die("event %s (status %d), %s expected", rdma_event_str(event->event),
			    event->status, rdma_event_str(type));
		kept[n] = event;
	}
	die("too many events, none of them %s", rdma_event_str(type));
}

static struct rdma_cm_id *listen_id;

static void start_listening(void)
{
	struct rdma_addrinfo hints = { .ai_port_space = RDMA_PS_TCP, .ai_flags = RAI_PASSIVE }, *addr;

	must(rdma_getaddrinfo(host, PORT, &hints, &addr));
	must(rdma_create_id(channel, &listen_id, NULL, RDMA_PS_TCP));
	must(rdma_bind_addr(listen_id, addr->ai_src_addr));
	must(rdma_listen(listen_id, LANES));
	rdma_freeaddrinfo(addr);
}

/* The next connection's id, its device known: by request, or by resolving. */
static struct rdma_cm_id *next_id(struct region *theirs)
{
	struct rdma_addrinfo hints = { .ai_port_space = RDMA_PS_TCP }, *addr;
	struct rdma_cm_event *event;
	struct rdma_cm_id *id;

	if (server) {
		event = expect(RDMA_CM_EVENT_CONNECT_REQUEST);
		id = event->id;
		if (event->param.conn.private_data_len < sizeof(*theirs))
			die("private data of %d bytes", event->param.conn.private_data_len);
		memcpy(theirs, event->param.conn.private_data, sizeof(*theirs));
		must(rdma_ack_cm_event(event));
		return id;
	}
	must(rdma_getaddrinfo(host, PORT, &hints, &addr));
	must(rdma_create_id(channel, &id, NULL, RDMA_PS_TCP));
	must(rdma_resolve_addr(id, NULL, addr->ai_dst_addr, 10000));
	must(rdma_ack_cm_event(expect(RDMA_CM_EVENT_ADDR_RESOLVED)));
	must(rdma_resolve_route(id, 10000));
	must(rdma_ack_cm_event(expect(RDMA_CM_EVENT_ROUTE_RESOLVED)));
	rdma_freeaddrinfo(addr);
	return id;
}

static void make_qp(struct link *l, struct rdma_cm_id *id, struct ibv_srq *srq)
{
	struct ibv_qp_init_attr attr = {
		.qp_type = IBV_QPT_RC,
		.cap = { .max_send_wr = 128, .max_recv_wr = 64, .max_send_sge = MAX_SGE,
			 .max_recv_sge = MAX_SGE, .max_inline_data = 64 },
		.srq = srq,
	};

	l->id = id;
	if (!l->pd)
		l->pd = ibv_alloc_pd(id->verbs);
	l->events = ibv_create_comp_channel(id->verbs);
	l->cq = create_cq(id->verbs, l->events);
	if (!l->pd || !l->events || !l->cq)
		die("creating the CQ: %s", strerror(errno));
	attr.send_cq = attr.recv_cq = l->cq;
	must(create_qp(id, l->pd, &attr));
	l->qp = id->qp;
}

/* Call after receives are posted: iWARP does not retry a message that finds none. */
static void join(struct link *l, const struct region *mine, struct region *theirs)
{
	struct rdma_conn_param p = {
		.private_data = mine, .private_data_len = sizeof(*mine),
		.responder_resources = 16, .initiator_depth = 16,
	};
	struct rdma_cm_event *event;

	must(server ? rdma_accept(l->id, &p) : rdma_connect(l->id, &p));
	event = expect(RDMA_CM_EVENT_ESTABLISHED);
	if (!server) {
		if (event->param.conn.private_data_len < sizeof(*theirs))
			die("private data of %d bytes", event->param.conn.private_data_len);
		memcpy(theirs, event->param.conn.private_data, sizeof(*theirs));
	}
	must(rdma_ack_cm_event(event));
}

static void part(struct link *l)
{
	/* Both sides call it. The first one causes the other's event. */
	rdma_disconnect(l->id);
	must(rdma_ack_cm_event(expect(RDMA_CM_EVENT_DISCONNECTED)));
}

static void free_link(struct link *l)
{
	if (l->id->qp)
		rdma_destroy_qp(l->id);
	must(ibv_destroy_cq(l->cq));
	must(ibv_destroy_comp_channel(l->events));
	must(ibv_dealloc_pd(l->pd));
	must(rdma_destroy_id(l->id));
}

static struct ibv_mr *reg(struct ibv_pd *pd, void *buf, size_t len)
{
	struct ibv_mr *mr = ibv_reg_mr(pd, buf, len,
				       IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ);

	if (!mr)
		die("ibv_reg_mr: %s", strerror(errno));
	return mr;
}

/* The next completion, by way of the completion channel; false if none comes in time. */
static bool next_wc(struct link *l, struct ibv_wc *wc, int ms)
{
	struct pollfd fd = { .fd = l->events->fd, .events = POLLIN };
	struct ibv_cq *cq;
	void *context;
	int n;

	for (;;) {
		n = poll_cq(l->cq, wc);
		if (n < 0)
			die("polling: %d", n);
		if (n)
			return true;
		must(ibv_req_notify_cq(l->cq, 0));
		/* Completions before the request caused no event. */
		n = poll_cq(l->cq, wc);
		if (n)
			return true;
		if (poll(&fd, 1, ms) <= 0)
			return poll_cq(l->cq, wc) == 1;
		if (ibv_get_cq_event(l->events, &cq, &context)) {
			if (!endless)
				die("ibv_get_cq_event: %s", strerror(errno));
			l->gone = true;
			return poll_cq(l->cq, wc) == 1;
		}
		ibv_ack_cq_events(cq, 1);
	}
}

static struct ibv_wc wait_wc(struct link *l)
{
	struct ibv_wc wc;

	if (!next_wc(l, &wc, 30000))
		die("no completion");
	return wc;
}

static void want(struct ibv_wc wc, uint64_t wr_id, enum ibv_wc_status status)
{
	if (wc.wr_id != wr_id || wc.status != status)
		wrong("completion of %llx with \"%s\", not of %llx with \"%s\"", (unsigned long long)wc.wr_id,
		      ibv_wc_status_str(wc.status), (unsigned long long)wr_id, ibv_wc_status_str(status));
}

/* Waits for the success of that WR. Completions of the other queue may come before it. */
static void wait_for(struct link *l, uint64_t wr_id)
{
	for (int i = 0; i < l->n_kept; i++)
		if (l->kept[i].wr_id == wr_id) {
			l->n_kept--;
			memmove(l->kept + i, l->kept + i + 1, (l->n_kept - i) * sizeof(*l->kept));
			return;
		}
	for (;;) {
		struct ibv_wc wc = wait_wc(l);

		want(wc, wc.wr_id, IBV_WC_SUCCESS);
		if (wc.wr_id == wr_id)
			return;
		if (l->n_kept == 16)
			die("no completion of %llx", (unsigned long long)wr_id);
		l->kept[l->n_kept++] = wc;
	}
}

static void post_recv(struct link *l, uint64_t wr_id, struct ibv_sge *sge, int n)
{
	struct ibv_recv_wr wr = { .wr_id = wr_id, .sg_list = sge, .num_sge = n }, *bad;

	if (ibv_post_recv(l->qp, &wr, &bad)) {
		if (!endless)
			die("ibv_post_recv: %s", strerror(errno));
		l->gone = true;
	}
}

static void post_send(struct link *l, struct ibv_send_wr *wr)
{
	int rc = post(l->qp, wr);

	if (rc) {
		if (!endless)
			die("posting: %s", strerror(rc > 0 ? rc : errno));
		l->gone = true;
	}
}

/* A SEND, with completion; the wr can be changed before it is posted. */
static struct ibv_send_wr send_wr(uint64_t wr_id, struct ibv_sge *sge, int n)
{
	return (struct ibv_send_wr){ .wr_id = wr_id, .sg_list = sge, .num_sge = n,
				     .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED };
}

/* ---- data: eight lanes, both directions at once ---- */

/*
 * A round of one direction of a lane is WRITEs and READs of random shape, and a SEND
 * at its end, on which the receiver checks what was written. Both sides know all rounds
 * of both directions, which follow from lane, side and number.
 */
struct round {
	uint32_t seed;
	uint32_t send_len, write_len, read_len, read_pos;
	bool send_inline, write, read, fence, write_signalled;
};

static uint32_t length(uint32_t r, uint32_t max)
{
	static const uint32_t scale[] = { 1, 16, 200, 1500, 5000, 20000, MAX_LEN };
	uint32_t limit = scale[mix(r) % 7];

	if (limit > max)
		limit = max;
	return mix(r + 1) % (limit + 1);
}

static struct round round_of(int lane, bool of_server, int number)
{
	uint32_t seed = mix(lane * 1000 + number * 2 + of_server + 77);
	struct round r = { .seed = seed };

	r.send_inline = seed % 5 == 0;
	r.send_len = length(seed + 1, r.send_inline ? 64 : MAX_LEN);
	r.write = seed % 3 != 0;
	r.write_signalled = seed % 2;
	r.write_len = length(seed + 2, MAX_LEN);
	r.read = seed % 7 < 4;
	r.read_len = length(seed + 3, MAX_LEN);
	/* C siw mistakes the response to an empty READ. */
	if (!r.read_len && (c_siw || c_siw_peer))
		r.read = false;
	r.read_pos = mix(seed + 4) % (SLOT_SIZE - MAX_LEN);
	/* A fenced SEND carries the data of the READ before it. */
	r.fence = r.read && !r.send_inline && seed % 2 && r.read_len;
	if (r.fence)
		r.send_len = r.read_len;
	return r;
}

/* The seed of the data that a side offers for READs. */
static uint32_t offer_seed(int lane, bool of_server)
{
	return mix(lane * 2 + of_server + 5000);
}

/* Cuts LEN bytes at BUF into up to MAX pieces of uneven size. */
static int cut(struct ibv_sge *sge, uint32_t seed, uint8_t *buf, uint32_t len, uint32_t lkey, int max)
{
	int n = mix(seed) % max + 1, used = 0;
	uint32_t pos = 0;

	for (int i = 0; i < n; i++) {
		uint32_t piece = i == n - 1 ? len - pos : mix(seed + i + 1) % (len - pos + 1);

		/*
		 * An empty piece behind others makes C siw follow a null pointer. libsiw
		 * refuses a receive without pieces.
		 */
		if (piece || !c_siw || (i == n - 1 && !used))
			sge[used++] = (struct ibv_sge){ .addr = (uintptr_t)buf + pos, .length = piece, .lkey = lkey };
		pos += piece;
	}
	return used;
}

/* The wr_ids of receives begin here. */
#define RECV (1ULL << 32)

struct lane {
	int number;
	struct link link;
	struct region theirs;
	pthread_t thread;
	/*
	 * One block of slots each: receive, send, written to by the peer, read into, and the offer.
	 */
	uint8_t *recv, *send, *target, *sink, *offer;
	struct ibv_mr *recv_mr, *send_mr, *target_mr, *sink_mr, *offer_mr;
	int sent, received, completed;
	uint64_t next_wr, signalled[1024];
	unsigned int head, tail;
	bool in_round;
	/* In an endless run: the connection has ended; the lane has ended, too. */
	bool over, done;
	double pause;
};

static uint8_t *slot(uint8_t *base, int number)
{
	return base + (size_t)(number % SLOTS) * SLOT_SIZE;
}

/* Unaligned: its first byte is one to 63 beyond the guard. */
static uint8_t *payload(uint8_t *base, int number, uint32_t seed)
{
	return slot(base, number) + GUARD + mix(seed + 8) % 63 + 1;
}

/* Fills the guard around LEN bytes at P, before data comes. */
static void guard(uint8_t *p, uint32_t len)
{
	fill(p - GUARD, GUARD_SEED, 0, GUARD);
	fill(p + len, GUARD_SEED, GUARD, GUARD);
}

/* Checks that LEN bytes at P are of SEED (from POS on), and that the guard is intact. */
static void check_guarded(const uint8_t *p, uint32_t seed, uint32_t pos, uint32_t len, const char *what)
{
	check(p, seed, pos, len, what);
	check(p - GUARD, GUARD_SEED, 0, GUARD, "guard before");
	check(p + len, GUARD_SEED, GUARD, GUARD, "guard behind");
}

static void arm_recv(struct lane *t, int number)
{
	struct round r = round_of(t->number, !server, number);
	struct ibv_sge sge[MAX_SGE];
	uint8_t *p = payload(t->recv, number, r.seed);
	/* Sometimes there is room beyond the message. */
	uint32_t room = r.seed % 4 ? 0 : 20;
	int n = cut(sge, r.seed + 50, p, r.send_len + room, t->recv_mr->lkey, MAX_SGE);

	guard(p, r.send_len);
	post_recv(&t->link, RECV + number, sge, n);
}

/* Prepares the target of the peer's WRITE of that round, which comes when this slot is free. */
static void arm_target(struct lane *t, int number)
{
	struct round r = round_of(t->number, !server, number);

	guard(payload(t->target, number, r.seed + 2), r.write_len);
}

static void signal_wr(struct lane *t, struct ibv_send_wr *wr)
{
	wr->send_flags |= IBV_SEND_SIGNALED;
	t->signalled[t->tail++ % 1024] = wr->wr_id;
}

static void send_round(struct lane *t)
{
	struct round r = round_of(t->number, server, t->sent);
	struct ibv_sge sge[MAX_SGE];
	struct ibv_send_wr wr;
	uint8_t *p;
	int n;

	if (r.write) {
		p = payload(t->send, t->sent, r.seed + 1);
		fill(p, r.seed + 1, 0, r.write_len);
		n = cut(sge, r.seed + 60, p, r.write_len, t->send_mr->lkey, MAX_SGE);
		wr = send_wr(t->next_wr++, sge, n);
		wr.send_flags = 0;
		wr.opcode = IBV_WR_RDMA_WRITE;
		wr.wr.rdma.rkey = t->theirs.rkey;
		/* The peer's target block starts at the address it told. */
		wr.wr.rdma.remote_addr = t->theirs.addr + (payload((uint8_t *)NULL, t->sent, r.seed + 2) - (uint8_t *)NULL);
		if (r.write_signalled)
			signal_wr(t, &wr);
		post_send(&t->link, &wr);
	}
	if (r.read) {
		p = payload(t->sink, t->sent, r.seed + 3);
		guard(p, r.read_len);
		sge[0] = (struct ibv_sge){ .addr = (uintptr_t)p, .length = r.read_len, .lkey = t->sink_mr->lkey };
		wr = send_wr(t->next_wr++, sge, 1);
		wr.send_flags = 0;
		wr.opcode = IBV_WR_RDMA_READ;
		wr.wr.rdma.rkey = t->theirs.rkey;
		wr.wr.rdma.remote_addr = t->theirs.addr + (uint64_t)SLOTS * SLOT_SIZE + r.read_pos;
		post_send(&t->link, &wr);
	}
	if (r.fence) {
		p = payload(t->sink, t->sent, r.seed + 3);
		n = cut(sge, r.seed + 70, p, r.send_len, t->sink_mr->lkey, MAX_SGE);
	} else {
		/* The second half of the slot's block: the WRITE's source is still in use. */
		p = payload(t->send, t->sent, r.seed + 4) + (size_t)SLOTS * SLOT_SIZE;
		fill(p, r.seed, 0, r.send_len);
		n = cut(sge, r.seed + 70, p, r.send_len, t->send_mr->lkey, MAX_SGE);
	}
	wr = send_wr(t->next_wr++, sge, n);
	/* C siw completes a SEND before the READ that was posted before it. */
	wr.send_flags = (r.fence || (r.read && c_siw) ? IBV_SEND_FENCE : 0) | (r.send_inline ? IBV_SEND_INLINE : 0);
	signal_wr(t, &wr);
	post_send(&t->link, &wr);
	if (r.send_inline)
		memset(p, 0xee, r.send_len);
	t->sent++;
}

static void received(struct lane *t, const struct ibv_wc *wc)
{
	struct round r = round_of(t->number, !server, t->received);
	uint8_t *p = payload(t->recv, t->received, r.seed);

	want(*wc, RECV + t->received, IBV_WC_SUCCESS);
	if (wc->opcode != IBV_WC_RECV || wc->byte_len != r.send_len)
		wrong("round %d: opcode %d, %u bytes, not %u", t->received, wc->opcode, wc->byte_len, r.send_len);
	if (r.fence)
		check_guarded(p, offer_seed(t->number, server), r.read_pos, r.send_len, "fenced send of what was read");
	else
		check_guarded(p, r.seed, 0, r.send_len, "send");
	if (r.write)
		check_guarded(payload(t->target, t->received, r.seed + 2), r.seed + 1, 0, r.write_len, "write");
	arm_target(t, t->received + SLOTS);
	t->received++;
	/* One more than the rounds, for the final SEND. */
	if (endless || t->received + SLOTS - 1 <= ROUNDS)
		arm_recv(t, t->received + SLOTS - 1);
}

/* The SEND of a round has completed, and so has the whole round. */
static void completed(struct lane *t)
{
	struct round r = round_of(t->number, server, t->completed);

	if (r.read)
		check_guarded(payload(t->sink, t->completed, r.seed + 3), offer_seed(t->number, !server), r.read_pos,
			      r.read_len, "read");
	t->completed++;
}

/* A WR of the send queue has completed. The rounds tell what it was. */
static void sent(struct lane *t, const struct ibv_wc *wc)
{
	struct round r = round_of(t->number, server, t->completed);

	want(*wc, t->signalled[t->head++ % 1024], IBV_WC_SUCCESS);
	if (r.write && r.write_signalled && !t->in_round) {
		t->in_round = true;
		if (wc->opcode != IBV_WC_RDMA_WRITE)
			wrong("opcode %d for a write", wc->opcode);
	} else {
		t->in_round = false;
		if (wc->opcode != IBV_WC_SEND)
			wrong("opcode %d for a send", wc->opcode);
		completed(t);
	}
}

/*
 * A round must wait until the peer has freed its slot, and until our earlier round of this slot has
 * completed, because its source is still read.
 */
static bool may_send(const struct lane *t)
{
	return t->sent < t->received + AHEAD && t->sent < t->completed + SLOTS;
}

static void *run_lane(void *arg)
{
	struct lane *t = arg;
	bool farewell = false;

	while (t->received < ROUNDS || t->completed < ROUNDS) {
		struct ibv_wc wc;

		while (t->sent < ROUNDS && may_send(t))
			send_round(t);
		wc = wait_wc(&t->link);
		if (wc.wr_id == RECV + ROUNDS) {
			/* The peer may receive the last SEND before it completes here. */
			want(wc, RECV + ROUNDS, IBV_WC_SUCCESS);
			farewell = true;
		} else if (wc.wr_id >= RECV) {
			received(t, &wc);
		} else {
			sent(t, &wc);
		}
	}
	/* The stream must not end while the peer still waits for the data of a READ. */
	struct ibv_send_wr bye = send_wr(0, NULL, 0);

	bye.send_flags = 0;
	post_send(&t->link, &bye);
	if (!farewell)
		want(wait_wc(&t->link), RECV + ROUNDS, IBV_WC_SUCCESS);
	return NULL;
}

static uint8_t *block(size_t slots)
{
	uint8_t *p = NULL;

	if (posix_memalign((void **)&p, 4096, slots * SLOT_SIZE))
		die("no memory");
	return p;
}

static struct lane lanes[LANES];
static int n_lanes = LANES;

static void connect_lanes(void)
{
	for (int i = 0; i < n_lanes; i++) {
		struct lane *t = &lanes[i];
		struct region mine;
		struct rdma_cm_id *id = next_id(&t->theirs);

		t->number = i;
		make_qp(&t->link, id, NULL);
		t->recv = block(SLOTS);
		t->send = block(2 * SLOTS);
		/*
		 * One region, so one key: the target of the peer's WRITEs, then the source of its
		 * READs.
		 */
		t->target = block(SLOTS + 1);
		t->offer = t->target + (size_t)SLOTS * SLOT_SIZE;
		t->sink = block(SLOTS);
		for (int s = 0; s < SLOTS; s++)
			arm_target(t, s);
		fill(t->offer, offer_seed(i, server), 0, SLOT_SIZE);
		t->recv_mr = reg(t->link.pd, t->recv, (size_t)SLOTS * SLOT_SIZE);
		t->send_mr = reg(t->link.pd, t->send, (size_t)2 * SLOTS * SLOT_SIZE);
		t->target_mr = reg(t->link.pd, t->target, (size_t)(SLOTS + 1) * SLOT_SIZE);
		t->sink_mr = reg(t->link.pd, t->sink, (size_t)SLOTS * SLOT_SIZE);
		for (int s = 0; s < SLOTS; s++)
			arm_recv(t, s);
		mine = (struct region){ .addr = (uintptr_t)t->target, .rkey = t->target_mr->rkey, .lane = i };
		join(&t->link, &mine, &t->theirs);
		if (t->theirs.lane != (uint32_t)i)
			die("lane %u met lane %d", t->theirs.lane, i);
	}
}

static void data_test(void)
{
	connect_lanes();
	for (int i = 0; i < n_lanes; i++)
		must(pthread_create(&lanes[i].thread, NULL, run_lane, &lanes[i]));
	for (int i = 0; i < n_lanes; i++)
		must(pthread_join(lanes[i].thread, NULL));
	for (int i = 0; i < n_lanes; i++)
		check(lanes[i].offer, offer_seed(i, server), 0, SLOT_SIZE, "what is only read");
	for (int i = 0; i < n_lanes; i++)
		part(&lanes[i].link);
	for (int i = 0; i < n_lanes; i++) {
		struct lane *t = &lanes[i];

		must(ibv_dereg_mr(t->recv_mr));
		must(ibv_dereg_mr(t->send_mr));
		must(ibv_dereg_mr(t->target_mr));
		must(ibv_dereg_mr(t->sink_mr));
		free_link(&t->link);
	}
}

/* ---- endless: the same until the connections end ---- */

/*
 * The first completion with an error, and those behind it. Queues keep their order. Nothing is
 * placed after a flush, so no success follows. All posted requests complete, unless the device is
 * gone.
 */
static void flushed(struct lane *t, struct ibv_wc wc)
{
	uint64_t next_recv = RECV + t->received, next_send = 0;
	double end = now() + 60;
	bool flush = false;

	for (;;) {
		if (wc.status == IBV_WC_SUCCESS && flush)
			wrong("lane %d: success of %llx behind a flush", t->number, (unsigned long long)wc.wr_id);
		flush |= wc.status == IBV_WC_WR_FLUSH_ERR;
		if (wc.wr_id >= RECV) {
			if (wc.wr_id != next_recv++)
				wrong("lane %d: receive %llx flushed, not %llx", t->number, (unsigned long long)wc.wr_id,
				      (unsigned long long)next_recv - 1);
		} else {
			if (wc.wr_id < next_send || wc.wr_id >= t->next_wr)
				wrong("lane %d: send %llx flushed, behind %llx of %llx", t->number,
				      (unsigned long long)wc.wr_id, (unsigned long long)next_send,
				      (unsigned long long)t->next_wr);
			next_send = wc.wr_id + 1;
		}
		/* Perhaps no sends were left. */
		while (!next_wc(&t->link, &wc, 500)) {
			if (t->link.gone || (next_recv == RECV + t->received + SLOTS && (!next_send || next_send == t->next_wr)))
				return;
			if (now() > end)
				wrong("lane %d: receives to %llx of %llx flushed, sends to %llx of %llx", t->number,
				      (unsigned long long)next_recv, (unsigned long long)RECV + t->received + SLOTS,
				      (unsigned long long)next_send, (unsigned long long)t->next_wr);
		}
		if (wc.status == IBV_WC_SUCCESS && !flush)
			wrong("lane %d: success of %llx behind an error", t->number, (unsigned long long)wc.wr_id);
	}
}

static void *run_endless(void *arg)
{
	struct lane *t = arg;
	double moved = now();
	struct ibv_wc wc;

	while (!t->link.gone) {
		while (!t->link.gone && may_send(t))
			send_round(t);
		if (next_wc(&t->link, &wc, 500)) {
			if (now() - moved > t->pause)
				t->pause = now() - moved;
			moved = now();
			if (wc.status != IBV_WC_SUCCESS) {
				flushed(t, wc);
				break;
			}
			if (wc.wr_id >= RECV)
				received(t, &wc);
			else
				sent(t, &wc);
		} else if (now() > moved + 60) {
			wrong("lane %d: nothing completes%s", t->number, t->over ? ", and the connection is gone" : "");
		}
	}
	t->done = true;
	return NULL;
}

static bool lanes_done(void)
{
	for (int i = 0; i < n_lanes; i++)
		if (!lanes[i].done)
			return false;
	return true;
}

/* Events about the ends of connections. A removed device takes its completions with it. */
static void endless_event(void)
{
	struct rdma_cm_event *event;

	must(rdma_get_cm_event(channel, &event));
	for (int i = 0; i < n_lanes; i++) {
		if (event->id != lanes[i].link.id)
			continue;
		printf("lane %d: %s\n", i, rdma_event_str(event->event));
		lanes[i].over = true;
		if (event->event == RDMA_CM_EVENT_DEVICE_REMOVAL)
			lanes[i].link.gone = true;
	}
	must(rdma_ack_cm_event(event));
}

/* Events of paths. Others of queue pairs are told by completions, too. */
static void path_event(struct ibv_context *verbs)
{
	struct ibv_async_event event;

	must(ibv_get_async_event(verbs, &event));
	for (int i = 0; i < n_lanes; i++)
		if ((event.event_type == IBV_EVENT_PATH_MIG || event.event_type == IBV_EVENT_PATH_MIG_ERR) &&
		    event.element.qp == lanes[i].link.id->qp)
			printf("lane %d: %s\n", i, event.event_type == IBV_EVENT_PATH_MIG ? "PATH_MIG" : "PATH_MIG_ERR");
	ibv_ack_async_event(&event);
}

static volatile sig_atomic_t enough, elsewhere;

static void no_more(int sig)
{
	(void)sig;
	enough = true;
}

static void another_path(int sig)
{
	(void)sig;
	elsewhere = true;
}

static void leave_paths(void)
{
	struct ibv_qp_attr attr = { .path_mig_state = IBV_MIG_MIGRATED };

	for (int i = 0; i < n_lanes; i++) {
		int e = ibv_modify_qp(lanes[i].link.id->qp, &attr, IBV_QP_PATH_MIG_STATE);

		if (e)
			printf("lane %d: %s\n", i, strerror(e));
	}
}

static void endless_run(double seconds)
{
	const size_t sizes[] = { SLOTS * SLOT_SIZE, (SLOTS + 1) * SLOT_SIZE, SLOTS * SLOT_SIZE };
	uint8_t *copies[LANES][3];
	bool disconnected = false;
	double end, pause = 0;
	long rounds = 0;

	signal(SIGTERM, no_more);
	signal(SIGUSR1, another_path);
	connect_lanes();
	printf("up\n");
	end = now() + seconds;
	for (int i = 0; i < n_lanes; i++)
		must(pthread_create(&lanes[i].thread, NULL, run_endless, &lanes[i]));
	while (!lanes_done()) {
		struct ibv_context *verbs = lanes[0].link.id->verbs;
		struct pollfd fds[] = {
			{ .fd = channel->fd, .events = POLLIN },
			{ .fd = verbs->async_fd, .events = POLLIN },
		};

		if (poll(fds, 2, 100) > 0) {
			if (fds[0].revents)
				endless_event();
			if (fds[1].revents & POLLIN)
				path_event(verbs);
		}
		if (elsewhere) {
			elsewhere = false;
			leave_paths();
		}
		if (!server && !disconnected && (enough || now() > end)) {
			disconnected = true;
			for (int i = 0; i < n_lanes; i++)
				rdma_disconnect(lanes[i].link.id);
		}
	}
	for (int i = 0; i < n_lanes; i++) {
		must(pthread_join(lanes[i].thread, NULL));
		rounds += lanes[i].received;
		if (lanes[i].pause > pause)
			pause = lanes[i].pause;
		/*
		 * From here on nothing may be placed. The device may be gone already.
		 */
		rdma_destroy_qp(lanes[i].link.id);
	}
	for (int i = 0; i < n_lanes; i++) {
		uint8_t *blocks[] = { lanes[i].recv, lanes[i].target, lanes[i].sink };

		for (int b = 0; b < 3; b++)
			memcpy(copies[i][b] = block(sizes[b] / SLOT_SIZE), blocks[b], sizes[b]);
	}
	usleep(200000);
	for (int i = 0; i < n_lanes; i++) {
		uint8_t *blocks[] = { lanes[i].recv, lanes[i].target, lanes[i].sink };

		for (int b = 0; b < 3; b++)
			if (memcmp(copies[i][b], blocks[b], sizes[b]))
				wrong("lane %d: memory changed after the end of its connection", i);
		check(lanes[i].offer, offer_seed(i, server), 0, SLOT_SIZE, "what is only read");
	}
	printf("longest pause %.1f s\n", pause);
	printf("%ld rounds\n", rounds);
}

/* ---- smaller tests, on one connection with one buffer ---- */

#define BUF 16384

struct small {
	struct link link;
	struct region theirs;
	uint8_t *buf;
	struct ibv_mr *mr;
};

static struct ibv_sge at(struct small *s, uint32_t pos, uint32_t len)
{
	return (struct ibv_sge){ .addr = (uintptr_t)s->buf + pos, .length = len, .lkey = s->mr->lkey };
}

/* Receives from the start: COUNT of 64 bytes each, wr_ids from zero. */
static void open_small(struct small *s, int recvs, struct ibv_srq *(*make_srq)(struct ibv_pd *pd), struct ibv_srq **srq)
{
	struct rdma_cm_id *id = next_id(&s->theirs);
	struct region mine;

	if (make_srq) {
		s->link.pd = ibv_alloc_pd(id->verbs);
		*srq = make_srq(s->link.pd);
	}
	make_qp(&s->link, id, make_srq ? *srq : NULL);
	s->buf = block(1);
	fill(s->buf, 1, 0, BUF);
	s->mr = reg(s->link.pd, s->buf, BUF);
	for (int i = 0; i < recvs; i++) {
		struct ibv_sge sge = at(s, 64 * i, 64);
		struct ibv_recv_wr wr = { .wr_id = i, .sg_list = &sge, .num_sge = 1 }, *bad;

		must(make_srq ? ibv_post_srq_recv(*srq, &wr, &bad) : ibv_post_recv(s->link.qp, &wr, &bad));
	}
	mine = (struct region){ .addr = (uintptr_t)s->buf, .rkey = s->mr->rkey };
	join(&s->link, &mine, &s->theirs);
}

static void close_small(struct small *s)
{
	if (s->mr)
		must(ibv_dereg_mr(s->mr));
	free(s->buf);
	free_link(&s->link);
}

static void send_small(struct small *s, uint64_t wr_id, uint32_t len, int flags)
{
	struct ibv_sge sge = at(s, BUF - 64, len);
	struct ibv_send_wr wr = send_wr(wr_id, &sge, 1);

	wr.send_flags |= flags;
	post_send(&s->link, &wr);
}

/* The connecting side sends first. Until then MPA keeps the other side silent. */
static void hello(struct small *s)
{
	if (server) {
		wait_for(&s->link, 0);
	} else {
		send_small(s, 99, 8, 0);
		wait_for(&s->link, 99);
	}
}

static void spin(struct link *l, uint64_t wr_id)
{
	struct ibv_wc wc;

	for (int i = 0; i < 20000; i++) {
		if (poll_cq(l->cq, &wc) == 1) {
			want(wc, wr_id, IBV_WC_SUCCESS);
			return;
		}
		usleep(1000);
	}
	die("no completion of %llx", (unsigned long long)wr_id);
}

/*
 * The client waits for solicited events only. A plain SEND must cause none, a solicited
 * one must. C siw, as the receiver, gets this wrong.
 */
static void solicited_test(void)
{
	struct small s = { 0 };
	struct pollfd fd;
	struct ibv_cq *cq;
	void *context;

	open_small(&s, 4, NULL, NULL);
	if (server) {
		wait_for(&s.link, 0); /* the client is armed */
		send_small(&s, 100, 8, 0);
		wait_for(&s.link, 100);
		wait_for(&s.link, 1); /* it saw no event */
		send_small(&s, 101, 8, IBV_SEND_SOLICITED);
		wait_for(&s.link, 101);
	} else {
		/* wait_wc() would ask for events of all completions. */
		fd = (struct pollfd){ .fd = s.link.events->fd, .events = POLLIN };
		must(ibv_req_notify_cq(s.link.cq, 1));
		send_small(&s, 100, 8, 0);
		spin(&s.link, 100);
		spin(&s.link, 0);
		if (poll(&fd, 1, 300) > 0 && !c_siw)
			die("an event for a SEND that is not solicited");
		send_small(&s, 101, 8, 0);
		spin(&s.link, 101);
		if (!c_siw) {
			if (poll(&fd, 1, 20000) <= 0)
				die("no event for a solicited SEND");
			must(ibv_get_cq_event(s.link.events, &cq, &context));
			ibv_ack_cq_events(cq, 1);
		}
		spin(&s.link, 1);
	}
	part(&s.link);
	close_small(&s);
}

/* A SEND that asks to invalidate, or a WRITE to the peer's region. */
static void post_keyed(struct small *s, uint64_t wr_id, enum ibv_wr_opcode opcode, uint32_t len)
{
	struct ibv_sge sge = at(s, 8192, len);
	struct ibv_send_wr wr = send_wr(wr_id, &sge, 1);

	wr.opcode = opcode;
	wr.invalidate_rkey = s->theirs.rkey;
	/* libsiw takes the key to invalidate from here, too. */
	wr.wr.rdma.rkey = s->theirs.rkey;
	wr.wr.rdma.remote_addr = s->theirs.addr + 4096;
	post_send(&s->link, &wr);
}

/*
 * The server asks to invalidate the client's region. A peer may not invalidate a region
 * that a program registered: the stream ends, the region stays. C siw invalidates it,
 * and then a WRITE to it ends the stream.
 */
static void invalidate_test(void)
{
	bool lets_go = server ? c_siw_peer : c_siw;
	struct small s = { 0 };
	struct ibv_sge sge;
	struct ibv_wc wc;
	struct ibv_send_wr wr;

	open_small(&s, 4, NULL, NULL);
	hello(&s);
	if (server) {
		fill(s.buf + 8192, 2, 0, 1000);
		post_keyed(&s, 100, IBV_WR_RDMA_WRITE, 1000);
		post_keyed(&s, 101, IBV_WR_SEND_WITH_INV, 10);
		wait_for(&s.link, 100);
		if (lets_go) {
			wait_for(&s.link, 101);
			wait_for(&s.link, 1); /* the client has looked */
			fill(s.buf + 8192, 3, 0, 1000);
			post_keyed(&s, 102, IBV_WR_RDMA_WRITE, 1000);
		}
	} else {
		/* The message itself is placed in that region, before the invalidation. */
		wc = wait_wc(&s.link);
		want(wc, 0, lets_go ? IBV_WC_SUCCESS : wc.status);
		if (!lets_go && wc.status == IBV_WC_SUCCESS)
			die("a peer invalidated a user's region");
		check(s.buf + 4096, 2, 0, 1000, "write before the invalidation");
		if (lets_go) {
			/* Inline, because the own region is no longer valid as a source. */
			sge = at(&s, BUF - 64, 8);
			wr = send_wr(100, &sge, 1);
			wr.send_flags |= IBV_SEND_INLINE;
			post_send(&s.link, &wr);
			wait_for(&s.link, 100);
		}
	}
	must(rdma_ack_cm_event(expect(RDMA_CM_EVENT_DISCONNECTED)));
	if (!server)
		check(s.buf + 4096, 2, 0, 1000, "region after a write that was forbidden");
	rdma_disconnect(s.link.id);
	close_small(&s);
}

static struct ibv_srq *make_srq(struct ibv_pd *pd)
{
	struct ibv_srq_init_attr attr = { .attr = { .max_wr = 32, .max_sge = 2 } };
	struct ibv_srq *srq = ibv_create_srq(pd, &attr);

	if (!srq)
		die("ibv_create_srq: %s", strerror(errno));
	return srq;
}

/* The server's queue is shared; the client's SENDs take its receives below the limit. */
static void srq_test(void)
{
	struct ibv_srq_attr attr = { .srq_limit = 4 };
	struct ibv_async_event event;
	struct ibv_srq *srq = NULL;
	struct small s = { 0 };

	open_small(&s, 8, server ? make_srq : NULL, &srq);
	if (server) {
		wait_for(&s.link, 0);
		must(ibv_modify_srq(srq, &attr, IBV_SRQ_LIMIT));
		send_small(&s, 100, 8, 0);
		wait_for(&s.link, 100);
		for (int i = 1; i < 7; i++) {
			wait_for(&s.link, i);
			check(s.buf + 64 * i, 30 + i, 0, 33, "send into a shared queue");
		}
		struct pollfd fd = { .fd = s.link.id->verbs->async_fd, .events = POLLIN };

		if (poll(&fd, 1, 20000) <= 0)
			die("no event for the SRQ's limit");
		must(ibv_get_async_event(s.link.id->verbs, &event));
		if (event.event_type != IBV_EVENT_SRQ_LIMIT_REACHED || event.element.srq != srq)
			die("async event %d", event.event_type);
		ibv_ack_async_event(&event);
		send_small(&s, 101, 8, 0);
		wait_for(&s.link, 101);
	} else {
		for (int i = 0; i < 7; i++) {
			fill(s.buf + BUF - 64, 30 + i, 0, 33);
			send_small(&s, 100 + i, 33, 0);
			wait_for(&s.link, 100 + i);
			if (i == 0)
				wait_for(&s.link, 0); /* the limit is set */
		}
		wait_for(&s.link, 1);
	}
	part(&s.link);
	rdma_destroy_qp(s.link.id);
	if (srq)
		must(ibv_destroy_srq(srq));
	close_small(&s);
}

/* After a disconnect all receives are flushed, in order, and so are later WRs of both kinds. */
static void flush_test(void)
{
	struct small s = { 0 };
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;
	struct ibv_sge sge;

	open_small(&s, 20, NULL, NULL);
	must(ibv_query_qp(s.link.qp, &attr, IBV_QP_STATE, &init));
	if (attr.qp_state != IBV_QPS_RTS || init.cap.max_send_wr < 128 || init.cap.max_recv_sge < MAX_SGE)
		die("connected QP: state %d, %u WRs, %u SGEs", attr.qp_state, init.cap.max_send_wr,
		    init.cap.max_recv_sge);
	send_small(&s, 100, 8, 0);
	wait_for(&s.link, 100);
	wait_for(&s.link, 0);
	part(&s.link);
	/* C siw takes no more WRs, and may forget to flush those it has. */
	if (c_siw)
		goto out;
	for (int i = 1; i < 20; i++)
		want(wait_wc(&s.link), i, IBV_WC_WR_FLUSH_ERR);
	must(ibv_query_qp(s.link.qp, &attr, IBV_QP_STATE, &init));
	if (attr.qp_state != IBV_QPS_ERR)
		die("state %d after the end of the connection", attr.qp_state);
	for (int i = 0; i < 3; i++) {
		send_small(&s, 200 + i, 8, 0);
		want(wait_wc(&s.link), 200 + i, IBV_WC_WR_FLUSH_ERR);
		sge = at(&s, 0, 64);
		post_recv(&s.link, 300 + i, &sge, 1);
		want(wait_wc(&s.link), 300 + i, IBV_WC_WR_FLUSH_ERR);
	}
out:
	close_small(&s);
}

/* WRs complete in order: successes, one error, then flushes. */
static void collect(struct small *s, int first, int count)
{
	bool bad = false;

	for (int i = 0; i < count; i++) {
		struct ibv_wc wc = wait_wc(&s->link);

		while (wc.wr_id < 64) { /* a receive, flushed */
			want(wc, wc.wr_id, IBV_WC_WR_FLUSH_ERR);
			wc = wait_wc(&s->link);
		}
		if (wc.wr_id != (uint64_t)first + i)
			die("completion %llu, not %d", (unsigned long long)wc.wr_id, first + i);
		if (wc.status == IBV_WC_SUCCESS && bad)
			die("success of %d behind a failure", first + i);
		bad |= wc.status != IBV_WC_SUCCESS;
	}
	if (!bad)
		die("nothing failed");
}

enum forbidden { WRONG_KEY, BEYOND_END, BEFORE_START, WRAP, READ_WRONG_KEY, READ_BEYOND_END, NO_RECEIVE, TOO_LONG, FORBIDDEN };

/* The server tries forbidden access. The client's memory does not change, and the stream ends. */
static void forbidden(enum forbidden what)
{
	static const char *const names[] = { "wrong key", "write beyond end", "write before start", "write wraps",
					     "read, wrong key", "read beyond end", "send without receive",
					     "send longer than receive" };
	struct small s = { 0 };
	struct ibv_send_wr wr;
	struct ibv_sge sge;

	open_small(&s, what == NO_RECEIVE && !server ? 0 : 4, NULL, NULL);
	hello(&s);
	if (server) {
		sge = at(&s, 8192, 512);
		wr = send_wr(100, &sge, 1);
		wr.opcode = what >= NO_RECEIVE ? IBV_WR_SEND : what >= READ_WRONG_KEY ? IBV_WR_RDMA_READ : IBV_WR_RDMA_WRITE;
		wr.wr.rdma.rkey = s.theirs.rkey;
		wr.wr.rdma.remote_addr = s.theirs.addr;
		if (what == WRONG_KEY || what == READ_WRONG_KEY)
			wr.wr.rdma.rkey ^= 0x5500;
		else if (what == BEYOND_END || what == READ_BEYOND_END)
			wr.wr.rdma.remote_addr += BUF - 511;
		else if (what == BEFORE_START)
			wr.wr.rdma.remote_addr -= 1;
		else if (what == WRAP)
			wr.wr.rdma.remote_addr = UINT64_MAX - 100;
		post_send(&s.link, &wr);
	}
	must(rdma_ack_cm_event(expect(RDMA_CM_EVENT_DISCONNECTED)));
	if (server && !c_siw) {
		for (int i = 1; i < 4; i++)
			send_small(&s, 100 + i, 8, 0);
		collect(&s, 100, 4);
		if (what == READ_WRONG_KEY || what == READ_BEYOND_END)
			check(s.buf + 8192, 1, 8192, 512, names[what]);
	} else if (!server) {
		check(s.buf + 256, 1, 256, BUF - 256, names[what]);
		if (what != TOO_LONG)
			check(s.buf, 1, 0, 256, names[what]);
	}
	rdma_disconnect(s.link.id);
	close_small(&s);
}

static void forbidden_test(void)
{
	for (int i = 0; i < FORBIDDEN; i++)
		forbidden(i);
}

/* A region is deregistered while the peer writes to it. After that returns, no byte changes. */
static void revoke_test(void)
{
	struct small s = { 0 };
	struct ibv_send_wr wr;
	struct ibv_sge sge;
	struct ibv_wc wc;

	open_small(&s, 4, NULL, NULL);
	hello(&s);
	if (server) {
		for (unsigned int i = 0;; i++) {
			memset(s.buf + 8192, i, 4096);
			sge = at(&s, 8192, 4096);
			wr = send_wr(100, &sge, 1);
			wr.opcode = IBV_WR_RDMA_WRITE;
			wr.wr.rdma.rkey = s.theirs.rkey;
			wr.wr.rdma.remote_addr = s.theirs.addr + 4096;
			if (post(s.link.qp, &wr))
				break;
			wc = wait_wc(&s.link);
			while (wc.wr_id < 64)
				wc = wait_wc(&s.link);
			if (wc.status != IBV_WC_SUCCESS)
				break;
		}
	} else {
		volatile uint8_t *first = s.buf + 4096;
		static uint8_t copy[4096];

		for (int i = 0; i < 5000 && *first != 20; i++)
			usleep(1000);
		must(ibv_dereg_mr(s.mr));
		s.mr = NULL;
		memcpy(copy, s.buf + 4096, 4096);
		usleep(300000);
		if (memcmp(copy, s.buf + 4096, 4096))
			die("the buffer changed after ibv_dereg_mr");
	}
	must(rdma_ack_cm_event(expect(RDMA_CM_EVENT_DISCONNECTED)));
	rdma_disconnect(s.link.id);
	close_small(&s);
}

/* A region whose addresses on the wire are not those in memory. C siw ignores that. */
static void iova_test(void)
{
	static const uint64_t iova = 0x123456789000;
	struct small s = { 0 };
	struct region mine;
	struct ibv_send_wr wr;
	struct ibv_sge sge;
	struct ibv_mr *mr;

	if (c_siw || c_siw_peer)
		return;
	struct rdma_cm_id *id = next_id(&s.theirs);

	make_qp(&s.link, id, NULL);
	s.buf = block(1);
	fill(s.buf, 1, 0, BUF);
	s.mr = reg(s.link.pd, s.buf, BUF);
	mr = ibv_reg_mr_iova2(s.link.pd, s.buf + 100, 8000, iova + 100,
			      IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	if (!mr)
		die("ibv_reg_mr_iova2: %s", strerror(errno));
	sge = at(&s, 64, 16);
	post_recv(&s.link, 0, &sge, 1);
	mine = (struct region){ .addr = iova, .rkey = mr->rkey };
	join(&s.link, &mine, &s.theirs);
	fill(s.buf + 12000, 9, 0, 4000);
	sge = at(&s, 12000, 4000);
	wr = send_wr(100, &sge, 1);
	wr.opcode = IBV_WR_RDMA_WRITE;
	wr.wr.rdma.rkey = s.theirs.rkey;
	wr.wr.rdma.remote_addr = s.theirs.addr + 333;
	post_send(&s.link, &wr);
	send_small(&s, 101, 8, 0);
	wait_for(&s.link, 100);
	wait_for(&s.link, 101);
	wait_for(&s.link, 0);
	check(s.buf + 333, 9, 0, 4000, "write to a region with an iova");
	check(s.buf + 100, 1, 100, 233, "before it");
	check(s.buf + 4333, 1, 4333, 7000, "behind it");
	part(&s.link);
	must(ibv_dereg_mr(mr));
	close_small(&s);
}

static const struct {
	const char *name;
	void (*run)(void);
} tests[] = {
	{ "data", data_test },
	{ "solicited", solicited_test },
	{ "invalidate", invalidate_test },
	{ "srq", srq_test },
	{ "flush", flush_test },
	{ "forbidden", forbidden_test },
	{ "revoke", revoke_test },
	{ "iova", iova_test },
};

int main(int argc, char **argv)
{
	const char *driver = getenv("DRIVER"), *peer = getenv("PEER_DRIVER");

	if (argc < 3)
		die("usage: verify server|client ADDRESS [TEST]");
	setvbuf(stdout, NULL, _IOLBF, 0);
	server = !strcmp(argv[1], "server");
	host = argv[2];
	extended = getenv("EXTENDED");
	c_siw = driver && !strcmp(driver, "c-siw");
	c_siw_peer = peer && !strcmp(peer, "c-siw");
	channel = rdma_create_event_channel();
	if (!channel)
		die("no RDMA device");
	endless = argc >= 5 && !strcmp(argv[3], "endless");
	if (server)
		start_listening();
	if (endless) {
		n_lanes = argc > 5 ? atoi(argv[5]) : 3;
		if (n_lanes < 1 || n_lanes > LANES)
			die("one to %d lanes", LANES);
		endless_run(atof(argv[4]));
		/* The objects end with the program, as with one that is killed. */
		return 0;
	}
	for (size_t i = 0; i < sizeof(tests) / sizeof(tests[0]); i++) {
		struct timespec a, b;

		if (argc > 3 && strcmp(tests[i].name, argv[3]))
			continue;
		clock_gettime(CLOCK_MONOTONIC, &a);
		tests[i].run();
		clock_gettime(CLOCK_MONOTONIC, &b);
		printf("%s: ok (%.1f s)\n", tests[i].name,
		       b.tv_sec - a.tv_sec + (b.tv_nsec - a.tv_nsec) / 1e9);
	}
	if (server)
		must(rdma_destroy_id(listen_id));
	rdma_destroy_event_channel(channel);
	return 0;
}
