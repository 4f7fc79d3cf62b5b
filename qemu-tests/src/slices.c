// SPDX-License-Identifier: GPL-2.0
/*
 * A store that clients share and cannot spoil for each other:
 *   slices server ADDRESS            until "stop"; then checks what the clients have left
 *   slices client ADDRESS            an honest client, until SIGTERM
 *   slices doomed ADDRESS            one that is killed
 *   slices hostile ADDRESS SECONDS   one that breaks a rule on each connection
 *   slices stop ADDRESS
 *
 * The server registers the store as one region without remote rights, and gives each client a
 * window of type 2 on a slice. In each round a client fills its slice by Writes and an atomic swap,
 * reads it, and counts at a counter that all share. Then it sends a request, which names a region
 * for one message, the reply. The server invalidates the window, checks the slice, binds the window
 * under another key, and writes the reply with immediate data. At the end the client writes how
 * much it has counted into such a region of the server.
 */
#include <endian.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <unistd.h>

#include "cm.h"
#include "times.h"

#define SLOTS 32
#define SLICE 8192
#define WORDS (SLICE / 8)
#define ONE_TOUCH (1 << 29)
#define FAREWELL 0xfa4e3e11

enum kind { HONEST, DOOMED, HOSTILE, STOP };

/* What a client sends. */
struct request {
	uint64_t reply;
	uint32_t rkey;
	uint32_t round;
	uint64_t seed; /* of what is in the slice; 0: of nothing to be checked */
};

/* What the server writes into the client's region. */
struct grant {
	uint64_t slice, counter, farewell;
	uint32_t slice_rkey, counter_rkey, farewell_rkey;
	uint32_t round;
};

static uint64_t mix(uint64_t x)
{
	x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
	x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
	return x ^ (x >> 31);
}

/* What a client fills its slice with. It swaps the last word for its complement. */
static uint64_t word_of(uint64_t seed, int i)
{
	return mix(seed + (uint64_t)i * 0x9e3779b97f4a7c15);
}

static struct ibv_wc completion(struct ibv_cq *cq, struct ibv_comp_channel *events)
{
	struct ibv_cq *of;
	struct ibv_wc wc;
	void *context;

	while (ibv_poll_cq(cq, 1, &wc) != 1) {
		struct pollfd fd = { .fd = events->fd, .events = POLLIN };

		must(ibv_req_notify_cq(cq, 0));
		if (ibv_poll_cq(cq, 1, &wc) == 1)
			break;
		if (poll(&fd, 1, patience * 1000) <= 0)
			die("no completion");
		must(ibv_get_cq_event(events, &of, &context));
		ibv_ack_cq_events(of, 1);
	}
	return wc;
}

static struct ibv_mr *reg(struct ibv_pd *pd, void *at, size_t size, int access)
{
	struct ibv_mr *mr = ibv_reg_mr(pd, at, size, IBV_ACCESS_LOCAL_WRITE | access);

	if (!mr)
		die("ibv_reg_mr: %s", strerror(errno));
	return mr;
}

static void make_qp(struct rdma_cm_id *id, struct ibv_pd *pd, struct ibv_cq *cq)
{
	struct ibv_qp_init_attr init = {
		.qp_type = IBV_QPT_RC, .send_cq = cq, .recv_cq = cq,
		.cap = { .max_send_wr = 64, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1 },
	};

	must(rdma_create_qp(id, pd, &init));
}

/* ---- server ---- */

enum { REQUEST, INVALIDATED, REPLIED };

struct guest {
	struct rdma_cm_id *id; /* NULL: the slot is free */
	enum kind kind;
	struct ibv_mw *mw;
	uint32_t rkey; /* of the bound window; 0: it is not bound */
	struct ibv_mr *farewell_mr;
	uint64_t farewell, counted;
	bool broken, gone, said;
	uint64_t seal; /* the sum of the slice when the window was last invalidated */
	struct request in;
	struct grant out;
};

static struct {
	/* Nobody has a window on what is between the slices. */
	struct {
		uint64_t slice[WORDS], fallow[WORDS];
	} store[SLOTS];
	uint64_t counter, beyond; /* an operation that is not aligned reaches both */
	struct guest guests[SLOTS];
} server;

static struct ibv_pd *pd;
static struct ibv_cq *cq;
static struct ibv_comp_channel *completions;
static struct ibv_mr *store_mr, *counter_mr, *guests_mr;
static uint64_t counted, rounds, farewells;
static int in_use;
static bool stopping;

static int slot_of(const struct guest *g)
{
	return g - server.guests;
}

static uint64_t seal_of(const struct guest *g)
{
	uint64_t sum = 0;

	for (int i = 0; i < WORDS; i++)
		sum = mix(sum + server.store[slot_of(g)].slice[i]);
	return sum;
}

static void post(struct guest *g, struct ibv_send_wr *wr)
{
	struct ibv_send_wr *bad;

	/* A client that is gone has ended the queue pair. */
	if (ibv_post_send(g->id->qp, wr, &bad) && g->kind == HONEST)
		die("slot %d: ibv_post_send: %s", slot_of(g), strerror(errno));
}

static void receive(struct guest *g)
{
	struct ibv_sge sge = { .addr = (uintptr_t)&g->in, .length = sizeof(g->in), .lkey = guests_mr->lkey };
	struct ibv_recv_wr *bad, wr = { .wr_id = slot_of(g) * 4 + REQUEST, .sg_list = &sge, .num_sge = 1 };

	if (ibv_post_recv(g->id->qp, &wr, &bad) && g->kind == HONEST)
		die("slot %d: ibv_post_recv: %s", slot_of(g), strerror(errno));
}

static void bind_and_reply(struct guest *g)
{
	struct ibv_sge sge = { .addr = (uintptr_t)&g->out, .length = sizeof(g->out), .lkey = guests_mr->lkey };
	struct ibv_send_wr reply = {
		.wr_id = slot_of(g) * 4 + REPLIED, .sg_list = &sge, .num_sge = 1,
		.opcode = IBV_WR_RDMA_WRITE_WITH_IMM, .send_flags = IBV_SEND_SIGNALED,
		.imm_data = htobe32(g->in.round),
		.wr.rdma = { .remote_addr = g->in.reply, .rkey = g->in.rkey },
	}, bind = {
		.wr_id = reply.wr_id, .next = &reply, .opcode = IBV_WR_BIND_MW,
		.bind_mw = { .mw = g->mw, .rkey = ibv_inc_rkey(g->mw->rkey), .bind_info = {
			.mr = store_mr, .addr = (uintptr_t)server.store[slot_of(g)].slice, .length = SLICE,
			.mw_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC,
		} },
	};

	g->mw->rkey = g->rkey = bind.bind_mw.rkey;
	g->out = (struct grant){
		.slice = (uintptr_t)server.store[slot_of(g)].slice, .slice_rkey = g->rkey,
		.counter = (uintptr_t)&server.counter, .counter_rkey = counter_mr->rkey,
		.farewell = (uintptr_t)&g->farewell, .farewell_rkey = g->farewell_mr->rkey,
		.round = g->in.round,
	};
	receive(g);
	post(g, &bind);
}

static void asked(struct guest *g, const struct ibv_wc *wc)
{
	struct ibv_send_wr invalidate = {
		.wr_id = slot_of(g) * 4 + INVALIDATED, .opcode = IBV_WR_LOCAL_INV, .send_flags = IBV_SEND_SIGNALED,
		.invalidate_rkey = g->rkey,
	};

	if (wc->opcode == IBV_WC_RECV_RDMA_WITH_IMM) {
		if (!(wc->wc_flags & IBV_WC_WITH_IMM) || wc->imm_data != htobe32(FAREWELL) || g->said)
			die("slot %d: a farewell with %#x", slot_of(g), be32toh(wc->imm_data));
		g->said = true;
		g->counted = g->farewell;
		return;
	}
	if (wc->opcode != IBV_WC_RECV || wc->byte_len != sizeof(g->in))
		die("slot %d: a request of %u bytes", slot_of(g), wc->byte_len);
	if (g->rkey)
		post(g, &invalidate);
	else
		bind_and_reply(g);
}

/* Nobody can change the slice any more. */
static void invalidated(struct guest *g)
{
	const uint64_t *slice = server.store[slot_of(g)].slice;

	for (int i = 0; g->in.seed && i < WORDS; i++) {
		uint64_t word = word_of(g->in.seed, i);

		if (slice[i] != (i < WORDS - 1 ? word : ~word))
			die("slot %d, round %u: word %d is %#llx", slot_of(g), g->in.round, i, (unsigned long long)slice[i]);
	}
	g->seal = seal_of(g);
	rounds++;
	bind_and_reply(g);
}

static void complete_all(void)
{
	struct ibv_wc wc;

	while (ibv_poll_cq(cq, 1, &wc) == 1) {
		struct guest *g = &server.guests[wc.wr_id / 4];

		if (wc.status) {
			/* The flush of its last receives is the end of an honest one. */
			if (g->kind == HONEST && !(g->said && wc.status == IBV_WC_WR_FLUSH_ERR))
				die("slot %d: %s", slot_of(g), ibv_wc_status_str(wc.status));
			g->broken = true;
		}
		if (g->broken)
			continue;
		if (wc.wr_id % 4 == REQUEST)
			asked(g, &wc);
		else if (wc.wr_id % 4 == INVALIDATED)
			invalidated(g);
	}
}

static void leave(struct guest *g)
{
	/* All that it has sent before is here. */
	complete_all();
	if (g->kind == HONEST) {
		if (!g->said)
			die("slot %d: no farewell", slot_of(g));
		counted += g->counted;
		farewells++;
	}
	rdma_destroy_qp(g->id);
	must(ibv_dealloc_mw(g->mw));
	must(ibv_dereg_mr(g->farewell_mr));
	/* An honest one does not write after its last request, and a hostile one cannot. */
	if (g->kind != DOOMED && g->seal != seal_of(g))
		die("slot %d, round %u: the slice has changed since", slot_of(g), g->in.round);
	if (g->said && g->farewell != g->counted)
		die("slot %d: two farewells", slot_of(g));
	must(rdma_destroy_id(g->id));
	g->id = NULL;
	in_use--;
}

static void welcome(struct rdma_cm_id *id, enum kind kind)
{
	struct rdma_conn_param param = { .responder_resources = 16, .initiator_depth = 16 };
	struct guest *g = server.guests;

	while (g->id)
		if (++g == server.guests + SLOTS)
			die("no slot is free");
	if (!pd) {
		must(!(pd = ibv_alloc_pd(id->verbs)));
		must(!(completions = ibv_create_comp_channel(id->verbs)));
		must(!(cq = ibv_create_cq(id->verbs, SLOTS * 80, NULL, completions, 0)));
		store_mr = reg(pd, server.store, sizeof(server.store), IBV_ACCESS_MW_BIND);
		counter_mr = reg(pd, &server.counter, 2 * sizeof(server.counter), IBV_ACCESS_REMOTE_ATOMIC);
		guests_mr = reg(pd, server.guests, sizeof(server.guests), 0);
		must(ibv_req_notify_cq(cq, 0));
	}
	*g = (struct guest){ .id = id, .kind = kind };
	in_use++;
	id->context = g;
	must(!(g->mw = ibv_alloc_mw(pd, IBV_MW_TYPE_2)));
	g->farewell_mr = reg(pd, &g->farewell, sizeof(g->farewell),
			     IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | ONE_TOUCH);
	memset(server.store[slot_of(g)].slice, 0, SLICE);
	g->seal = seal_of(g);
	make_qp(id, pd, cq);
	receive(g);
	receive(g);
	/* One that was killed meanwhile cannot be accepted. */
	if (rdma_accept(id, &param)) {
		if (kind != DOOMED)
			die("rdma_accept: %s", strerror(errno));
		leave(g);
	}
}

/* Acknowledged before the identifier is destroyed, which waits for that. */
static void happened(struct rdma_cm_event *event)
{
	enum rdma_cm_event_type type = event->event;
	struct rdma_cm_id *id = event->id;
	enum kind kind = STOP;

	if (type == RDMA_CM_EVENT_CONNECT_REQUEST)
		memcpy(&kind, event->param.conn.private_data, sizeof(kind));
	must(rdma_ack_cm_event(event));
	if (type == RDMA_CM_EVENT_CONNECT_REQUEST && kind == STOP) {
		stopping = true;
		must(rdma_reject(id, NULL, 0));
		must(rdma_destroy_id(id));
	} else if (type == RDMA_CM_EVENT_CONNECT_REQUEST) {
		welcome(id, kind);
	} else if (type == RDMA_CM_EVENT_DISCONNECTED || type == RDMA_CM_EVENT_CONNECT_ERROR) {
		leave(id->context);
	} else if (type != RDMA_CM_EVENT_ESTABLISHED) {
		die("event %s", rdma_event_str(type));
	}
}

static void serve(const char *host)
{
	struct rdma_cm_id *listening = listener(host);
	struct rdma_cm_event *event;
	struct ibv_cq *of;
	void *context;

	while (!stopping || in_use) {
		struct pollfd on[] = { { .fd = channel->fd, .events = POLLIN },
				       { .fd = completions ? completions->fd : -1, .events = POLLIN } };

		must(poll(on, 2, -1) < 0);
		if (on[1].revents) {
			must(ibv_get_cq_event(completions, &of, &context));
			ibv_ack_cq_events(of, 1);
			must(ibv_req_notify_cq(cq, 0));
			complete_all();
		}
		if (on[0].revents) {
			must(rdma_get_cm_event(channel, &event));
			happened(event);
		}
	}
	for (int i = 0; i < SLOTS * WORDS; i++)
		if (server.store[i / WORDS].fallow[i % WORDS])
			die("word %d behind slice %d is not 0", i % WORDS, i / WORDS);
	/* Those that were killed have counted in the high half. */
	if ((uint32_t)server.counter != counted || server.beyond)
		die("the counter is at %u, the clients counted %llu", (uint32_t)server.counter, (unsigned long long)counted);
	if (!farewells || !counted || !rounds)
		die("%llu clients, %llu rounds: nothing was tested", (unsigned long long)farewells, (unsigned long long)rounds);
	printf("clients %llu\nrounds %llu\ncounted %llu\n", (unsigned long long)farewells, (unsigned long long)rounds,
	       (unsigned long long)counted);
	must(rdma_destroy_id(listening));
	must(ibv_dereg_mr(guests_mr) || ibv_dereg_mr(counter_mr) || ibv_dereg_mr(store_mr));
	must(ibv_destroy_cq(cq) || ibv_destroy_comp_channel(completions) || ibv_dealloc_pd(pd));
}

/* ---- clients ---- */

struct end {
	struct rdma_cm_id *id;
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	struct ibv_comp_channel *events;
	struct ibv_mr *mr; /* of this structure, without remote rights */
	struct ibv_mr *reply_mr;
	struct grant reply, to; /* what is being written, and the last one */
	uint32_t rounds;
	uint64_t unit, counted, last; /* steps of the counter */
	uint64_t seed; /* of what is in the slice */
	struct request out;
	uint64_t answer, total;
	uint64_t data[WORDS], back[WORDS];
};

static const char *host;

static struct end *join(enum kind kind, uint64_t unit)
{
	struct rdma_conn_param param = {
		.private_data = &kind, .private_data_len = sizeof(kind), .responder_resources = 16, .initiator_depth = 16,
	};
	struct end *e = calloc(1, sizeof(*e));

	must(!e);
	e->unit = unit;
	e->id = resolved(host);
	must(!(e->pd = ibv_alloc_pd(e->id->verbs)));
	must(!(e->events = ibv_create_comp_channel(e->id->verbs)));
	must(!(e->cq = ibv_create_cq(e->id->verbs, 128, NULL, e->events, 0)));
	e->mr = reg(e->pd, e, sizeof(*e), 0);
	make_qp(e->id, e->pd, e->cq);
	must(rdma_connect(e->id, &param));
	swallow(RDMA_CM_EVENT_ESTABLISHED);
	return e;
}

static void part(struct end *e)
{
	rdma_destroy_qp(e->id);
	must(e->reply_mr && ibv_dereg_mr(e->reply_mr));
	must(ibv_dereg_mr(e->mr));
	must(ibv_destroy_cq(e->cq));
	must(ibv_destroy_comp_channel(e->events));
	must(ibv_dealloc_pd(e->pd));
	must(rdma_destroy_id(e->id));
	free(e);
}

/* A work request on LENGTH bytes AT. The caller adds an atomic operation's operands. */
static void begin(struct end *e, struct ibv_send_wr wr, void *at, uint32_t length)
{
	struct ibv_sge sge = { .addr = (uintptr_t)at, .length = length, .lkey = e->mr->lkey };
	struct ibv_send_wr *bad;

	wr.sg_list = &sge;
	wr.num_sge = 1;
	wr.send_flags |= IBV_SEND_SIGNALED;
	must(ibv_post_send(e->id->qp, &wr, &bad));
}

static struct ibv_send_wr tagged(enum ibv_wr_opcode opcode, uint64_t to, uint32_t rkey)
{
	return (struct ibv_send_wr){ .opcode = opcode, .wr.rdma = { .remote_addr = to, .rkey = rkey } };
}

static struct ibv_send_wr atomic(enum ibv_wr_opcode opcode, uint64_t to, uint32_t rkey, uint64_t value, uint64_t swap)
{
	return (struct ibv_send_wr){ .opcode = opcode, .wr.atomic = { .remote_addr = to, .rkey = rkey,
								       .compare_add = value, .swap = swap } };
}

static struct ibv_wc done(struct end *e)
{
	struct ibv_wc wc = completion(e->cq, e->events);

	if (wc.status)
		die("round %u: %s", e->rounds, ibv_wc_status_str(wc.status));
	return wc;
}

/* Asks for a window, and has the slice checked if SEED is not 0. */
static void request(struct end *e, uint64_t seed)
{
	struct ibv_recv_wr *bad, wr = { .num_sge = 0 };

	e->rounds++;
	memset(&e->reply, 0xff, sizeof(e->reply));
	e->reply_mr = reg(e->pd, &e->reply, sizeof(e->reply), IBV_ACCESS_REMOTE_WRITE | ONE_TOUCH);
	must(ibv_post_recv(e->id->qp, &wr, &bad));
	e->out = (struct request){ .reply = (uintptr_t)&e->reply, .rkey = e->reply_mr->rkey, .round = e->rounds, .seed = seed };
	begin(e, (struct ibv_send_wr){ .opcode = IBV_WR_SEND }, &e->out, sizeof(e->out));
}

static void ask(struct end *e, uint64_t seed)
{
	bool come = false, sent = false;

	request(e, seed);
	while (!come || !sent) {
		struct ibv_wc wc = done(e);

		if (wc.opcode == IBV_WC_SEND) {
			sent = true;
		} else if (wc.opcode == IBV_WC_RECV_RDMA_WITH_IMM && !come) {
			if (!(wc.wc_flags & IBV_WC_WITH_IMM) || wc.imm_data != htobe32(e->rounds) ||
			    wc.byte_len != sizeof(e->reply) || e->reply.round != e->rounds)
				die("round %u: reply %u, of %u bytes, to %u", e->rounds, be32toh(wc.imm_data), wc.byte_len,
				    e->reply.round);
			come = true;
		} else {
			die("round %u: completion of operation %d", e->rounds, wc.opcode);
		}
	}
	must(ibv_dereg_mr(e->reply_mr));
	e->reply_mr = NULL;
	e->to = e->reply;
}

static void count(struct end *e, uint32_t steps)
{
	uint64_t old, mask = e->unit == 1 ? UINT32_MAX : ~(uint64_t)UINT32_MAX;

	begin(e, atomic(IBV_WR_ATOMIC_FETCH_AND_ADD, e->to.counter, e->to.counter_rkey, e->unit * steps, 0), &e->answer,
	      sizeof(e->answer));
	done(e);
	old = e->answer & mask;
	if (old < e->last)
		die("round %u: the counter goes back from %#llx to %#llx", e->rounds, (unsigned long long)e->last,
		    (unsigned long long)old);
	e->last = old + e->unit * steps;
	e->counted += steps;
}

/* Swaps the last word, which must be FOUND, if it is EXPECTED. */
static void swap_last(struct end *e, uint64_t expected, uint64_t found)
{
	begin(e, atomic(IBV_WR_ATOMIC_CMP_AND_SWP, e->to.slice + SLICE - 8, e->to.slice_rkey, expected, ~found), &e->answer,
	      sizeof(e->answer));
	done(e);
	if (e->answer != found)
		die("round %u: the last word was %#llx, not %#llx", e->rounds, (unsigned long long)e->answer,
		    (unsigned long long)found);
}

static void fill(struct end *e)
{
	uint64_t last;
	int pieces = 0;

	e->seed = mix(now() * 1e9) | 1;
	for (int i = 0; i < WORDS; i++)
		e->data[i] = word_of(e->seed, i);
	for (uint32_t at = 0, length; at < SLICE; at += length, pieces++) {
		length = 1 + mix(e->seed + at) % (SLICE / 2);
		/* At most 16 are posted, and their completions wait. */
		if (pieces == 15 || length > SLICE - at)
			length = SLICE - at;
		begin(e, tagged(IBV_WR_RDMA_WRITE, e->to.slice + at, e->to.slice_rkey), (char *)e->data + at, length);
	}
	while (pieces--)
		done(e);
	last = word_of(e->seed, WORDS - 1);
	swap_last(e, last + 1, last);
	swap_last(e, last, last);
	begin(e, tagged(IBV_WR_RDMA_READ, e->to.slice, e->to.slice_rkey), e->back, SLICE);
	done(e);
	e->data[WORDS - 1] = ~last;
	if (memcmp(e->data, e->back, SLICE))
		die("round %u: not what was written is read", e->rounds);
}

static void round_trip(struct end *e)
{
	fill(e);
	for (int i = mix(e->seed) % 4; e->unit && i >= 0; i--)
		count(e, 1 + mix(e->seed + i) % 100);
	ask(e, e->seed);
}

static void say_farewell(struct end *e, uint64_t total)
{
	struct ibv_send_wr wr = tagged(IBV_WR_RDMA_WRITE_WITH_IMM, e->to.farewell, e->to.farewell_rkey);

	e->total = total;
	wr.imm_data = htobe32(FAREWELL);
	begin(e, wr, &e->total, sizeof(e->total));
	done(e);
}

static void leave_in_peace(struct end *e)
{
	must(rdma_disconnect(e->id));
	swallow(RDMA_CM_EVENT_DISCONNECTED);
	part(e);
}

static void honest(void)
{
	sigset_t term, pending;
	struct end *e;

	sigemptyset(&term);
	sigaddset(&term, SIGTERM);
	must(sigprocmask(SIG_BLOCK, &term, NULL));
	e = join(HONEST, 1);
	ask(e, 0);
	do {
		round_trip(e);
		must(sigpending(&pending));
	} while (!sigismember(&pending, SIGTERM));
	say_farewell(e, e->counted);
	leave_in_peace(e);
}

static void doomed(void)
{
	struct end *e = join(DOOMED, 1ULL << 32);

	for (ask(e, 0);;)
		round_trip(e);
}

/* ---- the hostile one ---- */

enum place { BEHIND, ACROSS, FOREIGN, OLD, GUESSED, COUNTER, UNALIGNED, SPENT };

static const struct {
	enum place place;
	enum ibv_wr_opcode opcode;
} attacks[] = {
	{ BEHIND, IBV_WR_RDMA_WRITE }, { BEHIND, IBV_WR_RDMA_WRITE_WITH_IMM },
	{ BEHIND, IBV_WR_RDMA_READ }, { BEHIND, IBV_WR_ATOMIC_FETCH_AND_ADD }, { BEHIND, IBV_WR_ATOMIC_CMP_AND_SWP },
	{ ACROSS, IBV_WR_RDMA_WRITE }, { ACROSS, IBV_WR_RDMA_READ },
	{ FOREIGN, IBV_WR_RDMA_WRITE }, { FOREIGN, IBV_WR_RDMA_READ },
	{ FOREIGN, IBV_WR_ATOMIC_FETCH_AND_ADD }, { FOREIGN, IBV_WR_ATOMIC_CMP_AND_SWP },
	{ OLD, IBV_WR_RDMA_WRITE }, { OLD, IBV_WR_RDMA_READ }, { OLD, IBV_WR_ATOMIC_FETCH_AND_ADD },
	{ GUESSED, IBV_WR_RDMA_WRITE }, { GUESSED, IBV_WR_RDMA_READ }, { GUESSED, IBV_WR_ATOMIC_FETCH_AND_ADD },
	{ COUNTER, IBV_WR_RDMA_WRITE }, { COUNTER, IBV_WR_RDMA_READ },
	{ UNALIGNED, IBV_WR_ATOMIC_FETCH_AND_ADD }, { UNALIGNED, IBV_WR_ATOMIC_CMP_AND_SWP },
	{ SPENT, IBV_WR_RDMA_WRITE }, { SPENT, IBV_WR_RDMA_WRITE_WITH_IMM }, { SPENT, IBV_WR_RDMA_READ },
};
#define ATTACKS (int)(sizeof(attacks) / sizeof(*attacks))

/* The end of a connection whose peer has refused a message. */
static void thrown_out(struct end *e)
{
	swallow(RDMA_CM_EVENT_DISCONNECTED);
	part(e);
}

static void attack(int number)
{
	enum ibv_wr_opcode opcode = attacks[number].opcode;
	enum place place = attacks[number].place;
	bool writes = opcode == IBV_WR_RDMA_WRITE || opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
	/* A Write completes when TCP has taken it. */
	enum ibv_wc_status expected = writes ? IBV_WC_SUCCESS : place == UNALIGNED ? IBV_WC_REM_INV_REQ_ERR : IBV_WC_REM_ACCESS_ERR;
	struct end *e = join(HOSTILE, 0), *other = NULL;
	struct ibv_send_wr wr;
	uint32_t rkey;
	uint64_t to;
	struct ibv_wc wc;

	ask(e, 0);
	rkey = e->to.slice_rkey;
	round_trip(e);
	to = e->to.slice;
	if (place != OLD)
		rkey = e->to.slice_rkey;
	if (place == BEHIND) {
		to += SLICE;
	} else if (place == ACROSS) {
		to += SLICE - 4;
	} else if (place == FOREIGN) {
		other = join(HOSTILE, 0);
		ask(other, 0);
		fill(other);
		to = other->to.slice;
		rkey = other->to.slice_rkey;
	} else if (place == GUESSED) {
		rkey ^= 0x5a5a5a00;
	} else if (place == COUNTER) {
		to = e->to.counter;
		rkey = e->to.counter_rkey;
	} else if (place == UNALIGNED) {
		to = e->to.counter + 4;
		rkey = e->to.counter_rkey;
	} else if (place == SPENT) {
		say_farewell(e, 1);
		to = e->to.farewell;
		rkey = e->to.farewell_rkey;
	}
	if (opcode == IBV_WR_ATOMIC_FETCH_AND_ADD || opcode == IBV_WR_ATOMIC_CMP_AND_SWP)
		wr = atomic(opcode, to, rkey, 0x77, 0x77);
	else
		wr = tagged(opcode, to, rkey);
	wr.imm_data = htobe32(FAREWELL);
	e->answer = 0x7777777777777777;
	begin(e, wr, &e->answer, sizeof(e->answer));
	wc = completion(e->cq, e->events);
	if (wc.status != expected)
		die("attack %d: %s", number, ibv_wc_status_str(wc.status));
	if (e->answer != 0x7777777777777777)
		die("attack %d has read %#llx", number, (unsigned long long)e->answer);
	thrown_out(e);
	if (other) {
		/* Nobody has changed its slice. */
		ask(other, other->seed);
		leave_in_peace(other);
	}
}

/* Goes on writing after the request that makes the server invalidate the window. */
static void overrun(void)
{
	struct end *e = join(HOSTILE, 0);
	struct ibv_wc wc;
	int posted = 0;

	ask(e, 0);
	request(e, 0);
	do {
		struct ibv_sge sge = { .addr = (uintptr_t)e->data, .length = SLICE, .lkey = e->mr->lkey };
		struct ibv_send_wr *bad, write = tagged(IBV_WR_RDMA_WRITE, e->to.slice, e->to.slice_rkey);

		write.sg_list = &sge;
		write.num_sge = 1;
		write.send_flags = IBV_SEND_SIGNALED;
		for (; posted < 16 && !ibv_post_send(e->id->qp, &write, &bad); posted++)
			e->data[0]++;
		wc = completion(e->cq, e->events);
		posted -= wc.opcode == IBV_WC_RDMA_WRITE;
	} while (!wc.status);
	if (wc.status != IBV_WC_WR_FLUSH_ERR)
		die("overrun: %s", ibv_wc_status_str(wc.status));
	thrown_out(e);
}

static void hostile(double seconds)
{
	double end = now() + seconds;
	int passes = 0;

	do {
		for (int i = 0; i < ATTACKS; i++)
			attack(i);
		overrun();
		passes++;
	} while (now() < end);
	printf("passes %d\nattacks %d\n", passes, passes * (ATTACKS + 1));
}

static void stop(void)
{
	enum kind kind = STOP;
	struct rdma_conn_param param = { .private_data = &kind, .private_data_len = sizeof(kind) };
	struct rdma_cm_id *id = resolved(host);
	struct ibv_pd *of = ibv_alloc_pd(id->verbs);
	struct ibv_cq *to = ibv_create_cq(id->verbs, 1, NULL, NULL, 0);

	must(!of || !to);
	make_qp(id, of, to);
	must(rdma_connect(id, &param));
	swallow(RDMA_CM_EVENT_REJECTED);
	rdma_destroy_qp(id);
	must(ibv_destroy_cq(to) || ibv_dealloc_pd(of) || rdma_destroy_id(id));
}

int main(int argc, char **argv)
{
	const char *what = argc > 2 ? argv[1] : "";

	must(!(channel = rdma_create_event_channel()));
	host = argv[2];
	if (!strcmp(what, "server"))
		serve(host);
	else if (!strcmp(what, "client"))
		honest();
	else if (!strcmp(what, "doomed"))
		doomed();
	else if (!strcmp(what, "hostile") && argc == 4)
		hostile(atof(argv[3]));
	else if (!strcmp(what, "stop"))
		stop();
	else
		die("what? see the head of slices.c");
	return 0;
}
