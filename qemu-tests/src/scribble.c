// SPDX-License-Identifier: GPL-2.0
/*
 * A program that breaks the rules of the queues that it maps. Run as
 * "scribble ADDRESS SECONDS [SEED]", with an address of a siw device of this machine.
 *
 * Each of its processes has many short lives. It connects two queue pairs of its own
 * with each other and runs valid traffic over them. Meanwhile threads write into all
 * rings (send, receive, shared receive, completion), ring doorbells at random, map and
 * unmap the rings in all ways, and fork with them. The queue pairs are destroyed during
 * that. The kernel must refuse what is wrong and survive. Memory that the connections
 * have no right to must not change, nor must its contents turn up in their memory.
 *
 * The seed reproduces the decisions, but not the timing of the threads.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <rdma/ib_user_verbs.h>
#include <rdma/rdma_cma.h>
#include <rdma/siw-abi.h>

#include "must.h"
#include "port.h"
#include "rng.h"
#include "times.h"

#define PROCESSES 2
#define PAGE 4096ul
#define ARENA (64 * PAGE)
#define MAX_RINGS 16
/* Additions of the driver, see include/siw_uapi.h. */
#define SIW_OP_BIND_MW SIW_NUM_OPCODES
#define SIW_OP_WRITE_WITH_IMM (SIW_NUM_OPCODES + 1)
/* Contents of memory that may not be read, and of memory that may not be written. */
#define SECRET 0x5ec7e75ec7e75ec7ull
#define SEALED 0x5ea1ed5ea1ed5ea1ull

static const char *address;
static uint64_t seed;
static double deadline;

/* The counts of all processes. */
static struct tally {
	atomic_ulong lives, connected, posted, good, failed, scribbles, bells, commands, maps, refused, forks;
} *tally;

/* ---- rings, as the provider library maps them ---- */

enum kind { SQ, RQ, CQ };

struct ring {
	enum kind kind;
	char *at; /* a mapping of ours, which stays when the library's goes */
	size_t len, stride;
	off_t key;
	uint32_t mask;
	uint32_t next; /* of the thread that keeps the rules */
};

static struct {
	size_t len;
	off_t key;
	int fd;
} mapped[8];
static int num_mapped;

/* Replaces the C library's mmap, to see what the provider maps. */
void *mmap(void *addr, size_t len, int prot, int flags, int fd, off_t offset)
{
	void *at = (void *)syscall(SYS_mmap, addr, len, prot, flags, fd, offset);

	if (fd >= 0 && at != MAP_FAILED && num_mapped < 8) {
		mapped[num_mapped].len = len;
		mapped[num_mapped].key = offset;
		mapped[num_mapped++].fd = fd;
	}
	return at;
}

void *mmap64(void *addr, size_t len, int prot, int flags, int fd, off_t offset)
{
	return mmap(addr, len, prot, flags, fd, offset);
}

static void *raw_map(void *addr, size_t len, int prot, int flags, int fd, off_t key)
{
	return (void *)syscall(SYS_mmap, addr, len, prot, flags, fd, key);
}

static size_t whole_pages(size_t len)
{
	return (len + PAGE - 1) & ~(PAGE - 1);
}

/* ---- one life ---- */

struct end {
	struct rdma_cm_id *id;
	struct ibv_pd *pd;
	struct ibv_comp_channel *channel;
	struct ibv_cq *cq[2];
	struct ibv_srq *srq;
	struct ibv_mr *mr;
	struct ibv_mw *mw[2];
	char *arena;
	int fd;
	uint32_t qp_handle;
	atomic_int credits; /* receives without a Send */
};

static struct life {
	struct end end[2];
	struct rdma_event_channel *ec[2];
	struct rdma_cm_id *listener;
	struct ibv_pd *foreign_pd;
	struct ibv_mr *foreign, *sealed; /* of another protection domain; the first end's, but not writable */
	uint64_t *foreign_at, *sealed_at;
	struct ring ring[MAX_RINGS];
	int rings;
	bool wild; /* mostly wrong contents, or mostly wrong timing */
	atomic_bool scribbling, over;
	uint64_t seed;
} life;

/*
 * An object must not be destroyed during a command about it. Commands hold this lock for reading;
 * it is taken for writing before the end.
 */
static pthread_rwlock_t commands = PTHREAD_RWLOCK_INITIALIZER;

static ssize_t execute(int which, const void *req, size_t len)
{
	ssize_t done;

	if (pthread_rwlock_tryrdlock(&commands))
		return -1;
	done = write(life.end[which].fd, req, len);
	pthread_rwlock_unlock(&commands);
	return done;
}

static void add_rings(const enum kind *kinds, int n)
{
	if (num_mapped != n)
		die("the library mapped %d rings, not %d", num_mapped, n);
	for (int i = 0; i < n; i++) {
		struct ring *r = &life.ring[life.rings++];
		static const size_t strides[] = { sizeof(struct siw_sqe), sizeof(struct siw_rqe), sizeof(struct siw_cqe) };

		*r = (struct ring){ .kind = kinds[i], .len = mapped[i].len, .key = mapped[i].key,
				    .stride = strides[kinds[i]] };
		r->mask = (r->len - (r->kind == CQ ? sizeof(struct siw_cq_ctrl) : 0)) / r->stride - 1;
		r->at = raw_map(NULL, r->len, PROT_READ | PROT_WRITE, MAP_SHARED, mapped[i].fd, r->key);
		must(r->at == MAP_FAILED);
		must(r->mask & (r->mask + 1)); /* a power of two */
	}
	num_mapped = 0;
}

static struct ring *ring_of(int end, enum kind kind, int nth)
{
	for (int i = 0; i < life.rings; i++)
		if (life.ring[i].kind == kind && (i >= MAX_RINGS / 2) == end && !nth--)
			return &life.ring[i];
	return NULL;
}

static struct siw_cq_ctrl *ctrl_of(struct ring *cq)
{
	return (void *)(cq->at + (cq->mask + 1) * cq->stride);
}

static void furnish(struct rng *r, int which, struct rdma_cm_id *id)
{
	struct end *e = &life.end[which];
	int size = 4 << below(r, 5);
	struct ibv_qp_init_attr attr = {
		.qp_type = IBV_QPT_RC, .sq_sig_all = below(r, 2),
		.cap = { .max_send_wr = size, .max_recv_wr = size, .max_send_sge = 6, .max_recv_sge = 6,
			 .max_inline_data = 80 },
	};

	memset(e, 0, sizeof(*e));
	/* The rings of the other end are in the other half. */
	life.rings = which * MAX_RINGS / 2;
	num_mapped = 0;
	e->id = id;
	e->fd = id->verbs->cmd_fd;
	must(!(e->pd = ibv_alloc_pd(id->verbs)));
	must(!(e->channel = ibv_create_comp_channel(id->verbs)));
	must(fcntl(e->channel->fd, F_SETFL, O_NONBLOCK));
	for (int i = 0; i < 2; i++) {
		must(!(e->cq[i] = ibv_create_cq(id->verbs, below(r, 4) ? 1024 : 8, NULL, e->channel, 0)));
		add_rings((enum kind[]){ CQ }, 1);
		if (i == 0 && below(r, 3) == 0) {
			e->cq[1] = e->cq[0];
			break;
		}
	}
	if (below(r, 3) == 0) {
		struct ibv_srq_init_attr srq = { .attr = { .max_wr = size, .max_sge = 6, .srq_limit = below(r, size) } };

		must(!(e->srq = ibv_create_srq(e->pd, &srq)));
		add_rings((enum kind[]){ RQ }, 1);
		attr.srq = e->srq;
	}
	attr.send_cq = e->cq[0];
	attr.recv_cq = e->cq[1];
	must(rdma_create_qp(id, e->pd, &attr));
	add_rings((enum kind[]){ SQ, RQ }, e->srq ? 1 : 2);
	e->qp_handle = id->qp->handle;
	must((e->arena = raw_map(NULL, ARENA, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)) == MAP_FAILED);
	must(!(e->mr = ibv_reg_mr(e->pd, e->arena, ARENA, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
				  IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_MW_BIND)));
	/* The stock provider library has none. */
	e->mw[0] = ibv_alloc_mw(e->pd, IBV_MW_TYPE_1);
	e->mw[1] = ibv_alloc_mw(e->pd, IBV_MW_TYPE_2);
}

static uint64_t *fill(uint64_t value)
{
	uint64_t *at = raw_map(NULL, ARENA, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	must(at == MAP_FAILED);
	for (size_t i = 0; i < ARENA / 8; i++)
		at[i] = value;
	return at;
}

static void check(void)
{
	for (size_t i = 0; i < ARENA / 8; i++) {
		if (life.foreign_at[i] != SECRET || life.sealed_at[i] != SEALED)
			die("word %zu of memory that was not to be written: %llx, %llx", i,
			    (unsigned long long)life.foreign_at[i], (unsigned long long)life.sealed_at[i]);
		for (int end = 0; end < 2; end++)
			if (((uint64_t *)life.end[end].arena)[i] == SECRET)
				die("word %zu: memory of another protection domain was read", i);
	}
}

/* ---- valid requests ---- */

static void bell(int which)
{
	struct {
		struct ib_uverbs_cmd_hdr hdr;
		struct ib_uverbs_post_send cmd;
	} req = { .hdr = { .command = IB_USER_VERBS_CMD_POST_SEND, .in_words = sizeof(req) / 4, .out_words = 1 } };
	struct ib_uverbs_post_send_resp resp;

	req.cmd.response = (uintptr_t)&resp;
	req.cmd.qp_handle = life.end[which].qp_handle;
	req.cmd.wqe_size = sizeof(struct ib_uverbs_send_wr);
	if (execute(which, &req, sizeof(req)) == sizeof(req))
		tally->bells++;
}

static void sensible_sges(struct rng *r, struct siw_sge *sge, int n, int which)
{
	struct end *e = &life.end[which];

	for (int i = 0; i < n; i++) {
		sge[i].length = below(r, 4) ? below(r, 300) : below(r, ARENA / 16);
		sge[i].laddr = (uintptr_t)e->arena + below(r, ARENA - sge[i].length);
		sge[i].lkey = e->mr->lkey;
	}
}

/* Memory that this end has no right to use, or not in this way, with its key. */
static bool steal(struct rng *r, __u64 *addr, __u32 *key)
{
	bool sealed = below(r, 2);

	if (!life.scribbling || below(r, 30))
		return false;
	*addr = (uintptr_t)(sealed ? life.sealed_at : life.foreign_at) + below(r, ARENA - 300);
	*key = sealed ? life.sealed->lkey : life.foreign->lkey;
	return true;
}

/*
 * Gives an element of an atomic operation its operands, and of one with immediate data a place for
 * that.
 */
static void extend(struct rng *r, struct siw_sqe *sqe, int which)
{
	if (sqe->opcode == SIW_OP_WRITE_WITH_IMM) {
		sqe->num_sge += sqe->num_sge < 6;
		return;
	}
	sensible_sges(r, sqe->sge, 1, which);
	sqe->sge[0].laddr = (uintptr_t)life.end[which].arena + below(r, ARENA - 8);
	sqe->sge[0].length = below(r, 50) ? 8 : below(r, 17);
	sqe->sge[1].laddr = next(r);
	sqe->sge[2].laddr = next(r);
	sqe->num_sge = sqe->opcode == SIW_OP_FETCH_AND_ADD ? 2 : 3;
	if (below(r, 50))
		sqe->raddr &= ~7ull;
}

/* A valid or nearly valid element, without its flags, which are returned. */
static uint16_t sensible_sqe(struct rng *r, struct siw_sqe *sqe, int which)
{
	static const uint8_t ops[] = { SIW_OP_SEND, SIW_OP_SEND, SIW_OP_WRITE, SIW_OP_WRITE, SIW_OP_READ,
				       SIW_OP_WRITE_WITH_IMM, SIW_OP_FETCH_AND_ADD, SIW_OP_COMP_AND_SWAP };
	/* A library that has no windows has not agreed on the others either. */
	bool extended = life.end[which].mw[0];
	struct end *peer = &life.end[!which];
	uint16_t flags = SIW_WQE_VALID;

	memset(sqe, 0, sizeof(*sqe));
	sqe->id = next(r);
	sqe->opcode = ops[below(r, extended ? 8 : 5)];
	if ((sqe->opcode == SIW_OP_SEND || sqe->opcode == SIW_OP_WRITE_WITH_IMM) && atomic_fetch_sub(&peer->credits, 1) <= 0) {
		peer->credits++;
		sqe->opcode = SIW_OP_WRITE;
	}
	sqe->rkey = peer->mr->rkey;
	sqe->raddr = (uintptr_t)peer->arena + below(r, ARENA / 2);
	flags |= below(r, 2) ? SIW_WQE_SIGNALLED : 0;
	flags |= below(r, 4) ? 0 : SIW_WQE_SOLICITED;
	flags |= below(r, 8) ? 0 : SIW_WQE_READ_FENCE;
	if (sqe->opcode == SIW_OP_FETCH_AND_ADD || sqe->opcode == SIW_OP_COMP_AND_SWAP) {
		extend(r, sqe, which);
	} else if (sqe->opcode != SIW_OP_READ && below(r, 4) == 0) {
		flags |= SIW_WQE_INLINE;
		sqe->sge[0].laddr = (uintptr_t)&sqe->sge[1];
		sqe->sge[0].length = below(r, 81);
		sqe->num_sge = 1;
	} else {
		sqe->num_sge = sqe->opcode == SIW_OP_READ ? 1 : below(r, 7);
		sensible_sges(r, sqe->sge, sqe->num_sge, which);
		/* Receives have this total size. */
		if (sqe->opcode == SIW_OP_SEND)
			for (int i = 0; i < sqe->num_sge; i++)
				sqe->sge[i].length %= 300;
		for (int i = 0; i < sqe->num_sge; i++)
			if (steal(r, &sqe->sge[i].laddr, &sqe->sge[i].lkey))
				sqe->sge[i].length %= 300;
		if (sqe->opcode == SIW_OP_WRITE_WITH_IMM)
			extend(r, sqe, which);
	}
	if (steal(r, &sqe->raddr, &sqe->rkey))
		sqe->sge[0].length %= 81;
	return flags;
}

static void post_recv(struct rng *r, int which, struct ring *rq)
{
	struct siw_rqe *rqe = (void *)(rq->at + (rq->next & rq->mask) * rq->stride);
	struct siw_rqe new = { .id = next(r), .num_sge = 6 };

	if (__atomic_load_n(&rqe->flags, __ATOMIC_ACQUIRE))
		return;
	for (int i = 0; i < 6; i++)
		new.sge[i] = (struct siw_sge){ .laddr = (uintptr_t)life.end[which].arena + below(r, ARENA - 300), .length = 300,
					       .lkey = life.end[which].mr->lkey };
	steal(r, &new.sge[0].laddr, &new.sge[0].lkey);
	*rqe = new;
	__atomic_store_n(&rqe->flags, SIW_WQE_VALID, __ATOMIC_RELEASE);
	rq->next++;
	life.end[which].credits++;
}

static void post_some(struct rng *r, int which, struct ring *sq, struct ring *rq)
{
	bool ring = false;

	for (int n = below(r, 8); n > 0; n--) {
		struct siw_sqe *sqe = (void *)(sq->at + (sq->next & sq->mask) * sq->stride);
		struct siw_sqe new;
		uint16_t flags;

		post_recv(r, which, rq);
		if (__atomic_load_n(&sqe->flags, __ATOMIC_ACQUIRE))
			continue;
		flags = sensible_sqe(r, &new, which);
		*sqe = new;
		__atomic_store_n(&sqe->flags, flags, __ATOMIC_RELEASE);
		sq->next++;
		tally->posted++;
		ring = true;
	}
	if (ring)
		bell(which);
}

static void poll_some(struct ring *cq)
{
	for (int n = 0; n < 64; n++) {
		struct siw_cqe *cqe = (void *)(cq->at + (cq->next & cq->mask) * cq->stride);

		if (!__atomic_load_n(&cqe->flags, __ATOMIC_ACQUIRE))
			return;
		if (cqe->status == SIW_WC_SUCCESS)
			tally->good++;
		else
			tally->failed++;
		__atomic_store_n(&cqe->flags, 0, __ATOMIC_RELEASE);
		cq->next++;
	}
}

static void *traffic_thread(void *arg)
{
	int which = (intptr_t)arg;
	struct rng r = rng_of(life.seed, 10 + which);
	struct ring *sq = ring_of(which, SQ, 0), *rq = ring_of(which, RQ, 0);

	while (!life.over) {
		struct ring *cq;
		struct ibv_cq *by;
		void *context;

		for (int i = 0; (cq = ring_of(which, CQ, i)); i++)
			poll_some(cq);
		post_some(&r, which, sq, rq);
		cq = ring_of(which, CQ, below(&r, 2));
		if (cq && below(&r, 16) == 0)
			__atomic_store_n(&ctrl_of(cq)->flags, 1 + below(&r, 2), __ATOMIC_SEQ_CST);
		while (!ibv_get_cq_event(life.end[which].channel, &by, &context))
			ibv_ack_cq_events(by, 1);
		if (below(&r, 4) == 0)
			sched_yield();
	}
	return NULL;
}

/* ---- invalid requests ---- */

/* Whether wrong contents are written; otherwise valid contents come at the wrong time. */
static bool harmful(struct rng *r)
{
	return life.wild || below(r, 50) == 0;
}

static uint32_t some_key(struct rng *r)
{
	struct ibv_mw *mw = life.end[below(r, 2)].mw[below(r, 2)];

	switch (below(r, 10)) {
	case 8:
	case 9:
		if (mw)
			return (mw->rkey & ~0xffu) | below(r, 3);
		/* fall through */
	case 0: return life.foreign->lkey;
	case 1: return life.sealed->lkey;
	case 2: return next(r);
	case 3: return life.end[1].mr->lkey ^ 1u << below(r, 32);
	default: return life.end[below(r, 2)].mr->rkey;
	}
}

static uint64_t some_addr(struct rng *r)
{
	switch (below(r, 10)) {
	case 0: return (uintptr_t)life.foreign_at + below(r, ARENA);
	case 1: return (uintptr_t)life.sealed_at + below(r, ARENA);
	case 2: return (uintptr_t)life.end[0].arena + ARENA - below(r, 3);
	case 3: return (uintptr_t)life.end[0].arena - below(r, 3);
	case 4: return next(r);
	case 5: return -below(r, 300);
	default: return (uintptr_t)life.end[below(r, 2)].arena + below(r, ARENA);
	}
}

static uint32_t some_length(struct rng *r)
{
	static const uint32_t odd[] = { 0, 1, 0x7fffffff, 0x80000000, 0xffffffff, ARENA, ARENA + 1, 81, 0xfffffff0 };

	switch (below(r, 4)) {
	case 0: return odd[below(r, sizeof(odd) / sizeof(odd[0]))];
	case 1: return next(r);
	default: return below(r, ARENA / 4);
	}
}

/* The bind or the invalidation of a window, with memory that may be bound or not. */
static void scribble_window(struct rng *r, struct siw_sqe *sqe)
{
	sqe->opcode = below(r, 2) ? SIW_OP_BIND_MW : SIW_OP_INVAL_STAG;
	sqe->num_sge = 1;
	sqe->rkey = some_key(r);
	sqe->raddr = some_length(r);
	sqe->sge[0] = (struct siw_sge){ .laddr = some_addr(r), .length = next(r) & 0x2000003f, .lkey = some_key(r) };
}

static void scribble_wqe(struct rng *r, struct ring *ring, char *at)
{
	int which = ring >= &life.ring[MAX_RINGS / 2];
	struct end *e = &life.end[which], *peer = &life.end[!which];
	struct siw_sqe *sqe = (void *)at; /* Receives have a subset of these fields. */
	struct siw_sge *sge = &sqe->sge[below(r, 6)];
	bool harm = harmful(r);

	switch (below(r, 11)) {
	case 10:
		if (ring->kind == SQ && harm)
			scribble_window(r, sqe);
		break;
	case 0:
		if (ring->kind == SQ || harm)
			sqe->opcode = harm ? next(r) : (uint8_t[]){ SIW_OP_SEND, SIW_OP_WRITE }[below(r, 2)];
		break;
	case 1:
		sqe->num_sge = harm ? next(r) : below(r, 7);
		break;
	case 2:
		sge->length = harm ? some_length(r) : below(r, 300);
		break;
	case 3:
		sge->lkey = harm ? some_key(r) : e->mr->lkey;
		break;
	case 4:
		sge->laddr = harm ? some_addr(r) : (uintptr_t)e->arena + below(r, ARENA - 300);
		break;
	case 5:
		if (ring->kind == SQ)
			sqe->rkey = harm ? some_key(r) : peer->mr->rkey;
		break;
	case 6:
		if (ring->kind == SQ)
			sqe->raddr = harm ? some_addr(r) : (uintptr_t)peer->arena + below(r, ARENA / 2);
		break;
	case 7:
		if (harm)
			__atomic_xor_fetch(&sqe->flags, SIW_WQE_VALID, __ATOMIC_RELAXED);
		break;
	case 8:
		if (harm)
			__atomic_store_n(&sqe->flags, next(r), __ATOMIC_RELAXED);
		else if (sqe->flags)
			__atomic_store_n(&sqe->flags, SIW_WQE_VALID | (next(r) & 0x1c), __ATOMIC_RELAXED);
		break;
	case 9:
		if (harm)
			for (size_t i = below(r, ring->stride); i < ring->stride; i++)
				at[i] = next(r);
		break;
	}
}

static void scribble_cqe(struct rng *r, struct ring *ring, char *at)
{
	struct siw_cqe *cqe = (void *)at;
	struct siw_cq_ctrl *ctrl = ctrl_of(ring);
	bool harm = harmful(r);

	switch (below(r, 6)) {
	case 0:
		if (harm)
			__atomic_xor_fetch(&cqe->flags, SIW_WQE_VALID, __ATOMIC_RELAXED);
		break;
	case 1:
		ctrl->flags = harm ? next(r) : below(r, 8);
		break;
	case 2:
		ctrl->pad = next(r);
		break;
	default:
		/* Without HARM the flags are left alone. */
		at[harm ? below(r, ring->stride) : 9 + below(r, ring->stride - 9)] = next(r);
	}
}

static void scribble_once(struct rng *r)
{
	struct ring *ring = &life.ring[below(r, MAX_RINGS)];
	char *at;

	if (!ring->at)
		return;
	at = ring->at + below(r, ring->mask + 1) * ring->stride;
	if (ring->kind == CQ)
		scribble_cqe(r, ring, at);
	else
		scribble_wqe(r, ring, at);
}

static void *scribble_thread(void *arg)
{
	struct rng r = rng_of(life.seed, 20 + (intptr_t)arg);

	while (!life.over) {
		if (!life.scribbling) {
			usleep(1000);
			continue;
		}
		for (int i = life.wild ? 200 : 10; i > 0; i--)
			scribble_once(&r);
		tally->scribbles += life.wild ? 200 : 10;
		if (!life.wild)
			usleep(100);
	}
	return NULL;
}

/* A command with random contents. */
static void command(struct rng *r, int which)
{
	struct end *e = &life.end[which];
	struct {
		struct ib_uverbs_cmd_hdr hdr;
		uint64_t response;
		uint32_t handle, words[15];
	} req = { .response = (uintptr_t)(char[256]){ 0 }, .handle = e->qp_handle };
	static const int numbers[] = { IB_USER_VERBS_CMD_POST_SEND, IB_USER_VERBS_CMD_POST_RECV, IB_USER_VERBS_CMD_POLL_CQ,
					IB_USER_VERBS_CMD_REQ_NOTIFY_CQ, IB_USER_VERBS_CMD_MODIFY_SRQ,
					IB_USER_VERBS_CMD_QUERY_QP, IB_USER_VERBS_CMD_POST_SRQ_RECV, IB_USER_VERBS_CMD_QUERY_SRQ };

	req.hdr.command = numbers[below(r, 8)];
	req.hdr.in_words = 6 + below(r, 15);
	req.hdr.out_words = 64;
	for (int i = 0; i < 15; i++)
		req.words[i] = below(r, 2) ? below(r, 64) : next(r);
	if (below(r, 2))
		req.handle = below(r, 2) ? e->cq[below(r, 2)]->handle : e->srq ? e->srq->handle : 0;
	/* Any result will do. */
	if (execute(which, &req, req.hdr.in_words * 4) > 0)
		tally->commands++;
}

static void *bell_thread(void *arg)
{
	struct rng r = rng_of(life.seed, 30 + (intptr_t)arg);

	while (!life.over) {
		if (!life.scribbling) {
			usleep(1000);
			continue;
		}
		if (below(&r, 4))
			bell(below(&r, 2));
		else
			command(&r, below(&r, 2));
		if (below(&r, 8) == 0)
			usleep(below(&r, 500));
	}
	return NULL;
}

/* Tries mappings that must be refused. */
static void map_wrongly(struct rng *r, struct ring *ring, int fd)
{
	size_t len = ring->len, whole = whole_pages(len);
	int flags = MAP_SHARED, prot = PROT_READ | PROT_WRITE;
	off_t key = ring->key;
	void *at;

	switch (below(r, 6)) {
	case 0: key += PAGE << 20; break; /* above all keys */
	case 1: key = below(r, ring->key / PAGE) / 16 * PAGE; break; /* below all keys in use */
	case 2: flags = MAP_PRIVATE; break;
	case 3: len = whole + PAGE; break;
	case 4: len = whole + (PAGE << below(r, 20)); break;
	case 5:
		if (whole == PAGE)
			return;
		len = whole - PAGE;
		break;
	}
	at = raw_map(NULL, len, prot, flags, fd, key);
	if (at != MAP_FAILED)
		die("key %lx of a ring of %zu bytes at %lx was mapped with %zu bytes, flags %x", key, ring->len,
		    ring->key, len, flags);
	tally->refused++;
}

static void map_rightly(struct rng *r, struct ring *ring, int fd)
{
	static const int prots[] = { PROT_NONE, PROT_READ, PROT_WRITE, PROT_READ | PROT_WRITE };
	size_t whole = whole_pages(ring->len);
	char *at, *moved;
	bool cut = false;

	at = raw_map(NULL, ring->len, prots[below(r, 4)], MAP_SHARED | (below(r, 4) ? 0 : MAP_POPULATE), fd, ring->key);
	/* The mapping is gone with its queue. */
	if (at == MAP_FAILED)
		return;
	tally->maps++;
	for (int i = below(r, 4); i > 0; i--)
		switch (below(r, 5)) {
		case 0:
			if (!cut && mremap(at, whole, whole + PAGE, MREMAP_MAYMOVE) != MAP_FAILED)
				die("a mapped ring grew");
			break;
		case 1:
			moved = mremap(at, whole, whole, MREMAP_MAYMOVE | MREMAP_FIXED,
				       raw_map(NULL, whole, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
			if (moved != MAP_FAILED)
				at = moved;
			break;
		case 2:
			mprotect(at, below(r, 2) ? whole : PAGE, prots[below(r, 4)]);
			break;
		case 3:
			madvise(at, whole, (int[]){ MADV_DONTNEED, MADV_DONTFORK, MADV_WILLNEED, MADV_HUGEPAGE, MADV_DOFORK,
						    MADV_REMOVE, MADV_COLD, MADV_PAGEOUT }[below(r, 8)]);
			break;
		case 4:
			/* No hole is left, because another thread could fill it. */
			cut = true;
			raw_map(at + (whole - PAGE), PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
			break;
		}
	munmap(at, whole);
}

/* A child has the rings as well, may outlive the queues, and may be killed. */
static void fork_with_rings(struct rng *r)
{
	pid_t pid = fork();

	if (pid < 0)
		return;
	if (!pid) {
		struct rng child = rng_of(next(r), 0);

		for (int i = below(r, 100); i > 0; i--) {
			for (int j = 0; j < 50; j++)
				scribble_once(&child);
			usleep(100);
		}
		_exit(0);
	}
	tally->forks++;
	if (below(r, 2))
		kill(pid, SIGKILL);
}

static void *map_thread(void *arg)
{
	struct rng r = rng_of(life.seed, 40);

	(void)arg;
	while (!life.over) {
		struct ring *ring = &life.ring[below(&r, MAX_RINGS)];
		int which = ring >= &life.ring[MAX_RINGS / 2];

		if (!ring->at)
			continue;
		if (below(&r, 2))
			map_wrongly(&r, ring, life.end[which].fd);
		else
			map_rightly(&r, ring, life.end[which].fd);
		if (life.scribbling && below(&r, 100) == 0)
			fork_with_rings(&r);
		usleep(below(&r, 1000));
	}
	return NULL;
}

/* ---- beginning and end ---- */

static enum rdma_cm_event_type event(struct rdma_event_channel *ec, struct rdma_cm_id **id)
{
	struct pollfd pfd = { .fd = ec->fd, .events = POLLIN };
	enum rdma_cm_event_type type;
	struct rdma_cm_event *ev;

	if (poll(&pfd, 1, 120000) <= 0)
		die("no event in two minutes");
	must(rdma_get_cm_event(ec, &ev));
	type = ev->event;
	if (id)
		*id = ev->id;
	rdma_ack_cm_event(ev);
	return type;
}

static bool connect_ends(struct rng *r, bool tidy)
{
	struct rdma_conn_param param = { .responder_resources = 1 + below(r, 16), .initiator_depth = 1 + below(r, 16) };
	struct rdma_addrinfo hints = { .ai_port_space = RDMA_PS_TCP, .ai_flags = RAI_NUMERICHOST | RAI_PASSIVE }, *addr;
	struct rdma_cm_id *id;
	struct sockaddr to;
	int got;

	for (int i = 0; i < 2; i++)
		must(!(life.ec[i] = rdma_create_event_channel()));
	must(rdma_getaddrinfo(address, NULL, &hints, &addr));
	must(rdma_create_id(life.ec[1], &life.listener, NULL, RDMA_PS_TCP));
	bind_listener(life.listener, addr->ai_src_addr);
	must(rdma_listen(life.listener, 8));
	to = *rdma_get_local_addr(life.listener);
	rdma_freeaddrinfo(addr);
	must(rdma_create_id(life.ec[0], &id, NULL, RDMA_PS_TCP));
	must(rdma_resolve_addr(id, NULL, &to, 20000));
	must(event(life.ec[0], NULL) != RDMA_CM_EVENT_ADDR_RESOLVED);
	must(rdma_resolve_route(id, 20000));
	must(event(life.ec[0], NULL) != RDMA_CM_EVENT_ROUTE_RESOLVED);
	furnish(r, 0, id);
	must(rdma_connect(id, &param));
	got = event(life.ec[1], &id);
	if (got != RDMA_CM_EVENT_CONNECT_REQUEST)
		die("%s in place of a request", rdma_event_str(got));
	furnish(r, 1, id);
	must(!(life.foreign_pd = ibv_alloc_pd(id->verbs)));
	must(!(life.foreign = ibv_reg_mr(life.foreign_pd, life.foreign_at, ARENA, IBV_ACCESS_LOCAL_WRITE |
					 IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ)));
	must(!(life.sealed = ibv_reg_mr(life.end[0].pd, life.sealed_at, ARENA, IBV_ACCESS_REMOTE_READ)));
	/* The scribbling may begin before the connection is up. */
	if (!tidy)
		for (int i = 0; i < 200; i++)
			scribble_once(r);
	must(rdma_accept(id, &param));
	for (int i = 0; i < 2; i++) {
		got = event(life.ec[i], NULL);
		if (got != RDMA_CM_EVENT_ESTABLISHED) {
			if (tidy)
				die("end %d: %s", i, rdma_event_str(got));
			return false;
		}
	}
	return true;
}

static void drain_events(void)
{
	struct ibv_async_event ev;

	for (int i = 0; i < 2; i++) {
		struct pollfd async = { .fd = life.end[i].id->verbs->async_fd, .events = POLLIN };
		struct pollfd cm = { .fd = life.ec[i]->fd, .events = POLLIN };

		while (poll(&async, 1, 0) > 0 && !ibv_get_async_event(life.end[i].id->verbs, &ev))
			ibv_ack_async_event(&ev);
		while (poll(&cm, 1, 0) > 0)
			event(life.ec[i], NULL);
	}
}

static void destroy_end(struct end *e)
{
	rdma_destroy_qp(e->id);
	if (e->srq)
		must(ibv_destroy_srq(e->srq));
	if (e->cq[1] != e->cq[0])
		must(ibv_destroy_cq(e->cq[1]));
	must(ibv_destroy_cq(e->cq[0]));
}

static void live(struct rng *r)
{
	static void *(*const threads[])(void *) = { traffic_thread, traffic_thread, scribble_thread, scribble_thread, bell_thread,
					      bell_thread, map_thread };
	enum { THREADS = sizeof(threads) / sizeof(threads[0]) };
	pthread_t thread[THREADS];
	int first;

	memset(&life, 0, sizeof(life));
	life.seed = next(r);
	life.wild = below(r, 2);
	life.foreign_at = fill(SECRET);
	life.sealed_at = fill(SEALED);
	if (connect_ends(r, below(r, 4)))
		tally->connected++;
	for (intptr_t i = 0; i < THREADS; i++)
		must(pthread_create(&thread[i], NULL, threads[i], (void *)(i & 1)));
	usleep(below(r, 100000));
	life.scribbling = true;
	usleep(below(r, life.wild ? 100000 : 400000));
	first = below(r, 2);
	switch (below(r, 4)) {
	case 0:
		rdma_disconnect(life.end[first].id);
		break;
	case 1:
		ibv_modify_qp(life.end[first].id->qp, &(struct ibv_qp_attr){ .qp_state = IBV_QPS_ERR }, IBV_QP_STATE);
		usleep(below(r, 30000));
		break;
	}
	drain_events();
	must(pthread_rwlock_wrlock(&commands));
	destroy_end(&life.end[first]);
	destroy_end(&life.end[!first]);
	life.over = true;
	for (int i = 0; i < THREADS; i++)
		must(pthread_join(thread[i], NULL));
	must(pthread_rwlock_unlock(&commands));
	check();
	drain_events();
	must(ibv_dereg_mr(life.foreign));
	must(ibv_dealloc_pd(life.foreign_pd));
	must(ibv_dereg_mr(life.sealed));
	for (int i = 0; i < 2; i++) {
		struct end *e = &life.end[i];

		for (int j = 0; j < 2; j++)
			if (e->mw[j])
				must(ibv_dealloc_mw(e->mw[j]));
		must(ibv_dereg_mr(e->mr));
		must(ibv_destroy_comp_channel(e->channel));
		must(ibv_dealloc_pd(e->pd));
		munmap(e->arena, ARENA);
		must(rdma_destroy_id(e->id));
	}
	must(rdma_destroy_id(life.listener));
	for (int i = 0; i < 2; i++)
		rdma_destroy_event_channel(life.ec[i]);
	for (int i = 0; i < MAX_RINGS; i++)
		if (life.ring[i].at)
			munmap(life.ring[i].at, whole_pages(life.ring[i].len));
	munmap(life.foreign_at, ARENA);
	munmap(life.sealed_at, ARENA);
	while (waitpid(-1, NULL, WNOHANG) > 0)
		;
	tally->lives++;
}

static pid_t start(int which)
{
	pid_t pid = fork();

	must(pid < 0);
	if (!pid) {
		struct rng r = rng_of(seed, which);

		while (now() < deadline)
			live(&r);
		exit(0);
	}
	return pid;
}

int main(int argc, char **argv)
{
	struct rng r;
	pid_t pid[PROCESSES];
	int started = 0;

	setvbuf(stdout, NULL, _IOLBF, 0);
	if (argc < 3)
		die("usage: %s ADDRESS SECONDS [SEED]", argv[0]);
	address = argv[1];
	deadline = now() + atof(argv[2]);
	seed = argc > 3 ? strtoull(argv[3], NULL, 0) : (uint64_t)time(NULL);
	printf("seed %llu\n", (unsigned long long)seed);
	tally = raw_map(NULL, sizeof(*tally), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	must(tally == MAP_FAILED);
	r = rng_of(seed, 1000);
	while (started < PROCESSES) {
		pid[started] = start(started);
		started++;
	}
	/* The first process is killed now and then. */
	while (now() < deadline - 1) {
		double until = now() + 0.3 + below(&r, 2000) / 1000.0;
		int status;

		while (now() < until && now() < deadline - 1) {
			usleep(10000);
			for (int i = 0; i < PROCESSES; i++)
				if (waitpid(pid[i], &status, WNOHANG))
					die("process %d ended with status %x", i, status);
		}
		kill(pid[0], SIGKILL);
		must(waitpid(pid[0], &status, 0) != pid[0]);
		pid[0] = start(started++);
	}
	for (int i = 0; i < PROCESSES; i++) {
		int status;

		must(waitpid(pid[i], &status, 0) != pid[i]);
		if (status)
			die("process %d ended with status %x", i, status);
	}
	printf("exercised %lu scribbles\n", tally->scribbles);
	printf("exercised %lu bells\n", tally->bells);
	printf("%lu lives, %lu connected, %d processes, %lu forks\n", tally->lives, tally->connected, started, tally->forks);
	printf("%lu requests posted, %lu commands taken, %lu completions good, %lu not\n", tally->posted, tally->commands, tally->good,
	       tally->failed);
	printf("%lu maps, %lu maps refused\n", tally->maps, tally->refused);
	return 0;
}
