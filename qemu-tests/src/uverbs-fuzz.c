// SPDX-License-Identifier: GPL-2.0
/*
 * Gives random commands to the kernel's RDMA devices, without a library. Run as
 * "uverbs-fuzz UVERBS-DEVICE ADDRESS SECONDS [SEED]", with the device file of a siw
 * device of this machine and an address of it.
 *
 * The threads of a process share open files of /dev/infiniband, and a list of the
 * objects they made there. Each thread issues commands about them, most of which are
 * valid: it makes and destroys objects, connects queue pairs with those of any process,
 * posts and polls in mapped rings. Some commands are then spoiled: cut, extended, bits
 * flipped, other objects, bad pointers. Files are duplicated, children inherit them,
 * processes end or are killed at any time. The kernel's answers do not matter here. The
 * caller checks that the kernel survives, and that nothing is left.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <linux/dma-buf.h>
#include <linux/dma-heap.h>
#include <linux/udmabuf.h>
#include <rdma/ib_user_ioctl_cmds.h>
#include <rdma/ib_user_ioctl_verbs.h>
#include <rdma/ib_user_verbs.h>
#include <rdma/rdma_user_cm.h>
#include <rdma/rdma_user_ioctl_cmds.h>
#include <rdma/siw-abi.h>

#include "../../include/siw_uapi.h"
#include "must.h"
#include "rng.h"
#include "times.h"

#define PROCESSES 3
#define THREADS 3
#define SLOTS 24
#define PORTS 64
#define PAGE 4096ul
#define ARENA (1024 * PAGE)
#define ROOM (256 * PAGE)
#define ANY_ACCESS 0x3ff007ff

static const char *device;
static struct sockaddr_in address;
static uint64_t seed;
static double deadline;

/* ---- shared by the threads ---- */

enum kind { PD, MR, MW, CHANNEL, CQ, QP, SRQ, ID, KINDS };

/* An object. Any thread may change it, or use it after its end. */
struct object {
	uint32_t handle;
	bool there;
	uint32_t num, size, size2; /* QP: number, send and receive queue; MR: lkey, length */
	uint64_t key, key2; /* of rings; MR: its address */
	int stage; /* ID: what comes next; QP: whether it has been connected */
	bool listens, requested; /* ID: it may be a listener; it is of a request that came in */
};

static struct object object[KINDS][SLOTS];

static struct tally {
	atomic_ulong processes, killed, children, commands, taken, ioctls, ioctls_taken, cm, cm_taken, made[KINDS], established, mapped, posted;
	atomic_ulong dmabufs; /* registered */
	atomic_uint port[PORTS]; /* ports with a listener, present or past */
} *tally;

static __thread int uverbs, cm, channel = -1;
static __thread struct rng rng;
static bool is_child;
static char *arena;
static uint64_t *bad_page; /* cannot be written */
static int dmabufs[2]; /* or -1, if the kernel has none of that kind */

static uint64_t rnd(uint64_t n)
{
	return below(&rng, n);
}

static bool one_in(uint64_t n)
{
	return !rnd(n);
}

/* An object of that kind, or any number. */
static struct object *some(enum kind kind)
{
	static __thread struct object none;

	if (one_in(60))
		kind = rnd(KINDS);
	for (int i = 0; i < 8; i++) {
		struct object *o = &object[kind][rnd(SLOTS)];

		if (o->there)
			return o;
	}
	none.handle = rnd(40);
	return &none;
}

static struct object *free_slot(enum kind kind)
{
	return &object[kind][rnd(SLOTS)];
}

/* An unusual number. */
static uint64_t odd(void)
{
	static const uint64_t odds[] = { 0, 1, 2, 63, 64, 65, 0x7f, 0xff, 0x7fff, 0x8000, 0xffff, 0x7fffffff, 0x80000000, 0xffffffff,
					 0x100000000, ~0ull, ~0ull >> 1, 1ull << 63, 4095, 4096, 32768, 32769 };

	return one_in(4) ? next(&rng) : odds[rnd(sizeof(odds) / sizeof(odds[0]))];
}

/* A size that is mostly sensible, and does not take all memory. */
static uint32_t size(uint32_t usual)
{
	uint32_t n = odd();

	return one_in(12) && (n < 40000 || n > 10000000) ? n : 1 + rnd(usual);
}

/*
 * Room for an answer, with a large reserve, because the answer to a spoiled command may be longer.
 * When the command is done, the contents are copied to TO.
 */
#define answer(to) room_for(to, sizeof(*(to)))

static __thread struct {
	char *at;
	void *to;
	size_t len;
} rooms[8];
static __thread int num_rooms;

static void *room_for(void *to, size_t len)
{
	int i = num_rooms++;

	if (!rooms[i].at) {
		rooms[i].at = mmap(NULL, ROOM, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
		must(rooms[i].at == MAP_FAILED);
	}
	memset(to, 0, len);
	memset(rooms[i].at, 0, len);
	rooms[i].to = to;
	rooms[i].len = len;
	return rooms[i].at;
}

/*
 * A pointer for an answer must not be spoiled, or the kernel would overwrite any memory of this
 * program.
 */
static bool is_room(uint64_t pointer)
{
	for (int i = 0; i < num_rooms; i++)
		if (pointer == (uintptr_t)rooms[i].at)
			return true;
	return pointer == (uintptr_t)bad_page;
}

static void take_answers(void)
{
	for (int i = 0; i < num_rooms; i++)
		memcpy(rooms[i].to, rooms[i].at, rooms[i].len);
	num_rooms = 0;
}

/* Room for an answer, or another pointer. */
#define response(to) mostly(answer(to))

static void *mostly(void *good)
{
	switch (rnd(40)) {
	case 0: return bad_page;
	case 1: return NULL;
	case 2: return (void *)0xffff888000000000;
	default: return good;
	}
}

/* ---- write() commands ---- */

/*
 * REQ has LEN bytes of a command with its header, the answer has RESP_LEN. True if the kernel took
 * the command and its answer is valid.
 */
static bool command(int number, void *req, size_t len, size_t resp_len)
{
	uint32_t words[256] = { 0 };
	struct ib_uverbs_cmd_hdr *hdr = (void *)words;
	bool spoiled = one_in(10);
	ssize_t done;
	size_t at;

	memcpy(words, req, len);
	hdr->command = number;
	hdr->in_words = len / 4;
	hdr->out_words = resp_len / 4;
	if (spoiled)
		switch (rnd(7)) {
		case 0: hdr->in_words = rnd(len / 4 + 1); break;
		case 1: hdr->in_words = len / 4 + rnd(100); break;
		case 2: hdr->out_words = rnd(resp_len / 4 + 1); break;
		case 3: hdr->command = rnd(60); break;
		case 4: hdr->command |= next(&rng); break;
		case 5:
		case 6:
			at = 2 + rnd(len / 4 - 2);
			if (!is_room(*(uint64_t *)(words + at / 2 * 2)))
				words[at] = one_in(2) ? words[at] ^ 1u << rnd(32) : odd();
			break;
		}
	if (hdr->in_words > 250)
		hdr->in_words = 250;
	done = write(uverbs, words, hdr->in_words * 4);
	take_answers();
	tally->commands++;
	if (done != hdr->in_words * 4)
		return false;
	tally->taken++;
	return !spoiled;
}

#define COMMAND(name, ...)                                                                          \
	struct {                                                                                    \
		struct ib_uverbs_cmd_hdr hdr;                                                       \
		struct ib_uverbs_##name cmd;                                                        \
	} __attribute__((packed)) req = { .cmd = { __VA_ARGS__ } }

#define ISSUE(number, resp) command(number, &req, sizeof(req), sizeof(resp))

static void get_context(void)
{
	struct {
		struct ib_uverbs_get_context_resp core;
		struct siw_uresp_alloc_ctx ours;
	} resp;
	struct {
		struct ib_uverbs_cmd_hdr hdr;
		struct ib_uverbs_get_context cmd;
		uint32_t want, reserved; /* struct siw_ureq_alloc_ctx */
	} __attribute__((packed)) req = { .cmd = { .response = (uintptr_t)answer(&resp) },
					  .want = one_in(4) ? odd() : 3, .reserved = one_in(20) ? odd() : 0 };

	command(IB_USER_VERBS_CMD_GET_CONTEXT, &req, sizeof(req) - (one_in(4) ? 8 : 0), sizeof(resp));
}

static void made(enum kind kind, struct object o)
{
	o.there = true;
	*free_slot(kind) = o;
	tally->made[kind]++;
}

static void alloc_pd(void)
{
	struct ib_uverbs_alloc_pd_resp resp;
	COMMAND(alloc_pd, .response = (uintptr_t)response(&resp));

	if (ISSUE(IB_USER_VERBS_CMD_ALLOC_PD, resp))
		made(PD, (struct object){ .handle = resp.pd_handle });
}

/* LEN bytes of memory and a guard page, so that a longer region does not reach other memory. */
static char *fenced(size_t len)
{
	char *at = mmap(NULL, len + PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	must(at == MAP_FAILED || mprotect(at + len, PAGE, PROT_NONE));
	return at;
}

/* Memory to register, *MOST bytes at most. */
static void *some_memory(uint64_t *most)
{
	static __thread char *small, *ring;
	struct object *cq;

	switch (rnd(12)) {
	case 0: return bad_page;
	case 1: return (void *)odd();
	case 2:
		/* The registration is the first to write to it. */
		if (small)
			munmap(small, 17 * PAGE);
		small = fenced(16 * PAGE);
		return small;
	case 3:
		/* A queue. */
		*most = PAGE;
		cq = some(CQ);
		if (ring)
			munmap(ring, PAGE);
		ring = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, uverbs, cq->key);
		return ring == MAP_FAILED ? ring = NULL : ring;
	default:
		return arena + rnd(ARENA);
	}
}

static void reg_mr(void)
{
	static const uint32_t usual[] = { 0, 1, 3, 7, 5, 0x100007, 0x27, 0x47 };
	struct {
		struct ib_uverbs_reg_mr_resp core;
		struct siw_uresp_reg_mr ours;
	} resp;
	uint64_t most = ~0ull, start = (uintptr_t)some_memory(&most), length = one_in(10) ? odd() : rnd(3) ? rnd(3 * PAGE) : rnd(ARENA);
	struct {
		struct ib_uverbs_cmd_hdr hdr;
		struct ib_uverbs_reg_mr cmd;
		struct siw_ureq_reg_mr ours;
	} __attribute__((packed)) req = { .cmd = {
		.response = (uintptr_t)response(&resp), .start = start,
		.length = length < most ? length : most,
		.hca_va = one_in(3) ? (start & (PAGE - 1)) + PAGE * rnd(1000) : one_in(20) ? odd() : start,
		.pd_handle = some(PD)->handle,
		.access_flags = one_in(4) ? next(&rng) & ANY_ACCESS : usual[rnd(8)],
	}, .ours = { .stag_key = next(&rng), .pad = one_in(20), .reserved = { one_in(20) } } };

	if (ISSUE(IB_USER_VERBS_CMD_REG_MR, resp))
		made(MR, (struct object){ .handle = resp.core.mr_handle, .num = resp.core.lkey, .key = req.cmd.hca_va,
					  .size = req.cmd.length });
}

static void alloc_mw(void)
{
	struct ib_uverbs_alloc_mw_resp resp;
	COMMAND(alloc_mw, .response = (uintptr_t)response(&resp), .pd_handle = some(PD)->handle,
		.mw_type = one_in(20) ? next(&rng) : 1 + rnd(2));

	if (ISSUE(IB_USER_VERBS_CMD_ALLOC_MW, resp))
		made(MW, (struct object){ .handle = resp.mw_handle, .num = resp.rkey });
}

static void rereg_mr(void)
{
	struct ib_uverbs_rereg_mr_resp resp;
	struct object *mr = some(MR);
	COMMAND(rereg_mr, .response = (uintptr_t)response(&resp), .mr_handle = mr->handle, .flags = rnd(8),
		.start = (uintptr_t)arena, .length = rnd(ARENA), .hca_va = (uintptr_t)arena, .pd_handle = some(PD)->handle,
		.access_flags = rnd(8) | (one_in(4) ? 0x40 : 0));

	if (ISSUE(IB_USER_VERBS_CMD_REREG_MR, resp))
		mr->num = resp.lkey;
}

static void create_channel(void)
{
	struct ib_uverbs_create_comp_channel_resp resp;
	COMMAND(create_comp_channel, .response = (uintptr_t)answer(&resp));

	if (channel < 0 && ISSUE(IB_USER_VERBS_CMD_CREATE_COMP_CHANNEL, resp)) {
		channel = resp.fd;
		fcntl(channel, F_SETFL, O_NONBLOCK);
		tally->made[CHANNEL]++;
	}
}

static void read_channel(void)
{
	char events[256];

	/* After a bad answer the channel may be one that blocks. */
	if (channel < 0 || poll(&(struct pollfd){ .fd = channel, .events = POLLIN }, 1, 0) <= 0 ||
	    read(channel, events, rnd(sizeof(events))) < 0 || one_in(20)) {
		close(channel);
		channel = -1;
	}
}

static void create_cq(void)
{
	struct {
		struct ib_uverbs_create_cq_resp core;
		struct siw_uresp_create_cq ours;
	} resp;
	COMMAND(create_cq, .response = (uintptr_t)response(&resp), .user_handle = next(&rng), .cqe = size(256),
		.comp_vector = one_in(20) ? odd() : 0, .comp_channel = one_in(3) ? channel : -1);

	if (ISSUE(IB_USER_VERBS_CMD_CREATE_CQ, resp))
		made(CQ, (struct object){ .handle = resp.core.cq_handle, .size = resp.ours.num_cqe, .key = resp.ours.cq_key });
}

static void resize_cq(void)
{
	struct {
		struct ib_uverbs_resize_cq_resp core;
		struct siw_uresp_resize_cq ours;
	} resp;
	struct object *cq = some(CQ);
	COMMAND(resize_cq, .response = (uintptr_t)response(&resp), .cq_handle = cq->handle, .cqe = size(256));

	/* Otherwise the old queue goes on being mapped, and polled. */
	if (ISSUE(IB_USER_VERBS_CMD_RESIZE_CQ, resp) && rnd(4)) {
		cq->size = resp.ours.num_cqe;
		cq->key = resp.ours.cq_key;
	}
}

static void create_srq(void)
{
	struct {
		struct ib_uverbs_create_srq_resp core;
		struct siw_uresp_create_srq ours;
	} resp;
	COMMAND(create_srq, .response = (uintptr_t)response(&resp), .user_handle = next(&rng), .pd_handle = some(PD)->handle,
		.max_wr = size(128), .max_sge = 1 + rnd(6), .srq_limit = one_in(2) ? 0 : size(20));

	if (ISSUE(IB_USER_VERBS_CMD_CREATE_SRQ, resp))
		made(SRQ, (struct object){ .handle = resp.core.srq_handle, .size = resp.ours.num_rqe, .key = resp.ours.srq_key });
}

static void create_qp(void)
{
	struct {
		struct ib_uverbs_create_qp_resp core;
		struct siw_uresp_create_qp ours;
	} resp;
	COMMAND(create_qp, .response = (uintptr_t)response(&resp), .user_handle = next(&rng), .pd_handle = some(PD)->handle,
		.send_cq_handle = some(CQ)->handle, .recv_cq_handle = some(CQ)->handle, .srq_handle = some(SRQ)->handle,
		.max_send_wr = size(64), .max_recv_wr = one_in(5) ? 0 : size(64), .max_send_sge = one_in(20) ? odd() : rnd(7),
		.max_recv_sge = one_in(20) ? odd() : rnd(7), .max_inline_data = one_in(20) ? odd() : rnd(81),
		.sq_sig_all = rnd(2), .qp_type = one_in(20) ? rnd(256) : IB_UVERBS_QPT_RC, .is_srq = one_in(3));

	if (ISSUE(IB_USER_VERBS_CMD_CREATE_QP, resp))
		made(QP, (struct object){ .handle = resp.core.qp_handle, .num = resp.core.qpn, .size = resp.ours.num_sqe,
					  .size2 = resp.ours.num_rqe, .key = resp.ours.sq_key, .key2 = resp.ours.rq_key });
}

static void modify_qp(void)
{
	struct ib_uverbs_query_qp_resp resp;
	COMMAND(modify_qp, .qp_handle = some(QP)->handle, .attr_mask = one_in(3) ? next(&rng) & 0x1ffffff : 1,
		.qp_state = rnd(one_in(10) ? 256 : 7), .cur_qp_state = rnd(7), .qp_access_flags = rnd(16), .port_num = 1,
		.max_rd_atomic = next(&rng), .max_dest_rd_atomic = next(&rng), .dest_qp_num = next(&rng),
		.dest = { .port_num = rnd(2), .is_global = 1 });

	for (int i = 0; i < 16; i++)
		req.cmd.dest.dgid[i] = next(&rng);
	if (one_in(6)) {
		/* As a program that connects without a connection manager. */
		req.cmd.attr_mask = one_in(2) ? 0x129181 : 0x12e01;
		req.cmd.qp_state = one_in(2) ? 2 : 3;
		memset(req.cmd.dest.dgid, 0, 16);
		req.cmd.dest.dgid[10] = req.cmd.dest.dgid[11] = 0xff;
		memcpy(req.cmd.dest.dgid + 12, &address.sin_addr, 4);
		req.cmd.dest_qp_num = some(QP)->num;
		req.cmd.dest.port_num = 1;
	}
	ISSUE(IB_USER_VERBS_CMD_MODIFY_QP, resp);
}

static void query(void)
{
	struct ib_uverbs_query_qp_resp resp;
	static const int numbers[] = { IB_USER_VERBS_CMD_QUERY_QP, IB_USER_VERBS_CMD_QUERY_SRQ, IB_USER_VERBS_CMD_QUERY_DEVICE,
				       IB_USER_VERBS_CMD_QUERY_PORT };
	int which = rnd(4);
	COMMAND(query_qp, .response = (uintptr_t)response(&resp), .qp_handle = some(which ? SRQ : QP)->handle, .attr_mask = next(&rng));

	if (which == 3)
		req.cmd.qp_handle = 1;
	ISSUE(numbers[which], resp);
}

static void modify_srq(void)
{
	struct ib_uverbs_query_srq_resp none;
	struct siw_uresp_modify_srq resp;
	struct object *srq = some(SRQ);
	struct {
		struct ib_uverbs_cmd_hdr hdr;
		struct ib_uverbs_modify_srq cmd;
		struct siw_ureq_modify_srq ours;
	} __attribute__((packed)) req = {
		.cmd = { .srq_handle = srq->handle, .attr_mask = rnd(4), .max_wr = size(100), .srq_limit = one_in(2) ? 0 : size(100) },
		.ours = { .response = (uintptr_t)response(&resp) },
	};

	if (ISSUE(IB_USER_VERBS_CMD_MODIFY_SRQ, none) && (req.cmd.attr_mask & 1) && rnd(4)) {
		srq->size = resp.num_rqe;
		srq->key = resp.srq_key;
	}
}

static void cq_commands(void)
{
	struct {
		struct ib_uverbs_poll_cq_resp resp;
		char wc[4 * sizeof(struct ib_uverbs_wc)];
	} resp;
	COMMAND(poll_cq, .response = (uintptr_t)response(&resp), .cq_handle = some(CQ)->handle, .ne = rnd(5));

	if (one_in(2)) {
		COMMAND(req_notify_cq, .cq_handle = some(CQ)->handle, .solicited_only = rnd(2));

		ISSUE(IB_USER_VERBS_CMD_REQ_NOTIFY_CQ, resp);
		return;
	}
	ISSUE(IB_USER_VERBS_CMD_POLL_CQ, resp);
}

/* Requests as arguments, which a provider with its own rings must not take. */
static void post_command(void)
{
	struct ib_uverbs_post_send_resp resp;
	struct {
		struct ib_uverbs_cmd_hdr hdr;
		struct ib_uverbs_post_send cmd;
		struct ib_uverbs_send_wr wr;
		struct ib_uverbs_sge sge[2];
	} __attribute__((packed)) req = {
		.cmd = { .response = (uintptr_t)response(&resp), .qp_handle = some(one_in(4) ? SRQ : QP)->handle, .wr_count = rnd(2),
			 .sge_count = 2, .wqe_size = sizeof(struct ib_uverbs_send_wr) },
		.wr = { .num_sge = rnd(3), .opcode = rnd(14), .send_flags = next(&rng) & 31 },
		.sge = { { .addr = odd(), .length = rnd(80) }, { .addr = (uintptr_t)arena, .length = rnd(80) } },
	};
	static const int numbers[] = { IB_USER_VERBS_CMD_POST_SEND, IB_USER_VERBS_CMD_POST_RECV, IB_USER_VERBS_CMD_POST_SRQ_RECV };

	ISSUE(numbers[rnd(3)], resp);
}

static void bell(uint32_t qp)
{
	if (is_child)
		return;
	struct ib_uverbs_post_send_resp resp;
	COMMAND(post_send, .response = (uintptr_t)answer(&resp), .qp_handle = qp, .wqe_size = sizeof(struct ib_uverbs_send_wr));

	ISSUE(IB_USER_VERBS_CMD_POST_SEND, resp);
}

static void destroy(void)
{
	static const struct {
		enum kind kind;
		int number;
		bool answers; /* the handle comes after a response */
	} ways[] = {
		{ PD, IB_USER_VERBS_CMD_DEALLOC_PD, false }, { MR, IB_USER_VERBS_CMD_DEREG_MR, false },
		{ MW, IB_USER_VERBS_CMD_DEALLOC_MW, false },
		{ CQ, IB_USER_VERBS_CMD_DESTROY_CQ, true }, { QP, IB_USER_VERBS_CMD_DESTROY_QP, true },
		{ SRQ, IB_USER_VERBS_CMD_DESTROY_SRQ, true },
	};
	int way = rnd(6);
	struct object *o = some(ways[way].kind);
	struct ib_uverbs_destroy_cq_resp resp;

	if (ways[way].answers) {
		COMMAND(destroy_cq, .response = (uintptr_t)response(&resp), .cq_handle = o->handle);

		if (ISSUE(ways[way].number, resp))
			o->there = false;
	} else {
		COMMAND(dealloc_pd, .pd_handle = o->handle);

		if (ISSUE(ways[way].number, resp))
			o->there = false;
	}
}

/* Any command, with a header of either kind and handles for words. */
static void nonsense(void)
{
	uint32_t req[64] = { 0 }, resp[64];
	bool extended = one_in(2);
	int words = extended ? 6 + rnd(50) : 2 + rnd(60);
	struct ib_uverbs_cmd_hdr *hdr = (void *)req;
	struct ib_uverbs_ex_cmd_hdr *ex = (void *)(hdr + 1);

	for (int i = 4; i < words; i++)
		req[i] = one_in(3) ? odd() : rnd(30);
	hdr->command = rnd(extended ? 70 : 45);
	if (extended) {
		int own = rnd(words - 5);

		hdr->command |= IB_USER_VERBS_CMD_FLAG_EXTENDED;
		hdr->in_words = own / 2;
		hdr->out_words = rnd(16);
		ex->response = (uintptr_t)response(&resp);
		ex->provider_in_words = (words - 6) / 2 - own / 2;
		ex->provider_out_words = rnd(16);
		ex->cmd_hdr_reserved = one_in(20);
	} else {
		hdr->in_words = words;
		hdr->out_words = rnd(64);
		*(uint64_t *)(req + 2) = (uintptr_t)response(&resp);
	}
	tally->commands++;
	if (write(uverbs, req, words * 4) > 0)
		tally->taken++;
	take_answers();
}

/* ---- ioctls ---- */

struct attrs {
	struct ib_uverbs_ioctl_hdr hdr;
	struct ib_uverbs_attr attr[24];
};

static void add(struct attrs *a, int id, uint64_t data, int len)
{
	a->attr[a->hdr.num_attrs++] = (struct ib_uverbs_attr){ .attr_id = id, .len = len, .data = data, .flags = UVERBS_ATTR_F_MANDATORY };
}

static bool issue(struct attrs *a, int object, int method)
{
	bool spoiled = one_in(8);
	int refused;

	a->hdr.object_id = object;
	a->hdr.method_id = method;
	a->hdr.driver_id = RDMA_DRIVER_SIW;
	if (spoiled && a->hdr.num_attrs) {
		struct ib_uverbs_attr *attr = &a->attr[rnd(a->hdr.num_attrs)];

		switch (rnd(10)) {
		case 0: attr->attr_id = rnd(20); break;
		case 1: attr->attr_id ^= 1 << rnd(16); break;
		case 2: attr->len = odd(); break;
		case 3: attr->flags = next(&rng); break;
		case 4: attr->data = odd(); break;
		case 5: attr->data = (uintptr_t)bad_page; break;
		case 6: attr->attr_data.reserved = next(&rng); break;
		case 7: a->hdr.num_attrs -= 1; break;
		case 8: a->hdr.method_id = rnd(12); break;
		case 9: a->hdr.object_id = rnd(20); break;
		}
	}
	a->hdr.length = sizeof(a->hdr) + a->hdr.num_attrs * sizeof(a->attr[0]);
	if (spoiled && one_in(10))
		a->hdr.length += 8 * (rnd(3) - 1);
	tally->ioctls++;
	refused = ioctl(uverbs, RDMA_VERBS_IOCTL, a);
	take_answers();
	if (refused)
		return false;
	tally->ioctls_taken++;
	return !spoiled;
}

static void ioctl_cq(void)
{
	struct siw_uresp_create_cq ours = { 0 };
	uint32_t resp = 0;
	struct attrs a = { 0 };

	add(&a, UVERBS_ATTR_CREATE_CQ_HANDLE, 0, 0);
	add(&a, UVERBS_ATTR_CREATE_CQ_CQE, size(256), 4);
	add(&a, UVERBS_ATTR_CREATE_CQ_USER_HANDLE, next(&rng), 8);
	add(&a, UVERBS_ATTR_CREATE_CQ_COMP_VECTOR, 0, 4);
	add(&a, UVERBS_ATTR_CREATE_CQ_RESP_CQE, (uintptr_t)response(&resp), 4);
	if (channel >= 0 && one_in(2))
		add(&a, UVERBS_ATTR_CREATE_CQ_COMP_CHANNEL, channel, 0);
	if (one_in(8))
		add(&a, UVERBS_ATTR_CREATE_CQ_FLAGS, rnd(4), 4);
	add(&a, UVERBS_ATTR_UHW_OUT, (uintptr_t)response(&ours), sizeof(ours));
	if (issue(&a, UVERBS_OBJECT_CQ, UVERBS_METHOD_CQ_CREATE))
		made(CQ, (struct object){ .handle = a.attr[0].data, .size = ours.num_cqe, .key = ours.cq_key });
}

static void ioctl_qp(void)
{
	struct siw_uresp_create_qp ours = { 0 };
	struct ib_uverbs_qp_cap cap = { .max_send_wr = size(64), .max_recv_wr = size(64), .max_send_sge = rnd(7),
					.max_recv_sge = rnd(7), .max_inline_data = rnd(81) }, got;
	uint32_t num = 0;
	struct attrs a = { 0 };

	add(&a, UVERBS_ATTR_CREATE_QP_HANDLE, 0, 0);
	add(&a, UVERBS_ATTR_CREATE_QP_PD_HANDLE, some(PD)->handle, 0);
	add(&a, UVERBS_ATTR_CREATE_QP_SEND_CQ_HANDLE, some(CQ)->handle, 0);
	add(&a, UVERBS_ATTR_CREATE_QP_RECV_CQ_HANDLE, some(CQ)->handle, 0);
	if (one_in(3))
		add(&a, UVERBS_ATTR_CREATE_QP_SRQ_HANDLE, some(SRQ)->handle, 0);
	add(&a, UVERBS_ATTR_CREATE_QP_USER_HANDLE, next(&rng), 8);
	add(&a, UVERBS_ATTR_CREATE_QP_CAP, (uintptr_t)&cap, sizeof(cap));
	add(&a, UVERBS_ATTR_CREATE_QP_TYPE, IB_UVERBS_QPT_RC, 4);
	if (one_in(8))
		add(&a, UVERBS_ATTR_CREATE_QP_FLAGS, odd(), 4);
	add(&a, UVERBS_ATTR_CREATE_QP_RESP_CAP, (uintptr_t)response(&got), sizeof(got));
	add(&a, UVERBS_ATTR_CREATE_QP_RESP_QP_NUM, (uintptr_t)response(&num), 4);
	add(&a, UVERBS_ATTR_UHW_OUT, (uintptr_t)response(&ours), sizeof(ours));
	if (issue(&a, UVERBS_OBJECT_QP, UVERBS_METHOD_QP_CREATE))
		made(QP, (struct object){ .handle = a.attr[0].data, .num = num, .size = ours.num_sqe, .size2 = ours.num_rqe,
					  .key = ours.sq_key, .key2 = ours.rq_key });
}

static void ioctl_destroy(void)
{
	static const struct {
		enum kind kind;
		int object, method;
	} ways[] = {
		{ PD, UVERBS_OBJECT_PD, UVERBS_METHOD_PD_DESTROY }, { MR, UVERBS_OBJECT_MR, UVERBS_METHOD_MR_DESTROY },
		{ MW, UVERBS_OBJECT_MW, UVERBS_METHOD_MW_DESTROY },
		{ CQ, UVERBS_OBJECT_CQ, UVERBS_METHOD_CQ_DESTROY }, { QP, UVERBS_OBJECT_QP, UVERBS_METHOD_QP_DESTROY },
		{ SRQ, UVERBS_OBJECT_SRQ, UVERBS_METHOD_SRQ_DESTROY },
	};
	struct ib_uverbs_destroy_qp_resp resp;
	int way = rnd(6);
	struct object *o = some(ways[way].kind);
	struct attrs a = { 0 };

	add(&a, 0, o->handle, 0);
	if (way > 2)
		add(&a, 1, (uintptr_t)response(&resp), 4);
	if (issue(&a, ways[way].object, ways[way].method))
		o->there = false;
}

#define DMABUF (16 * PAGE)

/* A dmabuf of pages of a file, and one of pages of the kernel. */
static void make_dmabufs(void)
{
	struct dma_heap_allocation_data alloc = { .len = DMABUF, .fd_flags = O_RDWR | O_CLOEXEC };
	struct udmabuf_create create = { .flags = UDMABUF_FLAGS_CLOEXEC, .size = DMABUF };
	struct dma_buf_sync begin = { DMA_BUF_SYNC_START | DMA_BUF_SYNC_RW };
	int node, file;

	dmabufs[0] = dmabufs[1] = -1;
	node = open("/dev/udmabuf", O_RDWR | O_CLOEXEC);
	if (node >= 0) {
		must((file = memfd_create("fuzz", MFD_ALLOW_SEALING | MFD_CLOEXEC)) < 0);
		must(ftruncate(file, DMABUF) || fcntl(file, F_ADD_SEALS, F_SEAL_SHRINK));
		create.memfd = file;
		must((dmabufs[0] = ioctl(node, UDMABUF_CREATE, &create)) < 0);
		/*
		 * Its first access makes a table. Two first ones at a time would leak one
		 * (begin_cpu_udmabuf()).
		 */
		must(ioctl(dmabufs[0], DMA_BUF_IOCTL_SYNC, &begin));
		close(file);
		close(node);
	}
	node = open("/dev/dma_heap/system", O_RDWR | O_CLOEXEC);
	if (node >= 0) {
		must(ioctl(node, DMA_HEAP_IOCTL_ALLOC, &alloc));
		dmabufs[1] = alloc.fd;
		close(node);
	}
}

static void ioctl_dmabuf(void)
{
	uint64_t offset = one_in(10) ? odd() : one_in(2) ? 0 : rnd(DMABUF), length = one_in(10) ? odd() : 1 + rnd(DMABUF - offset % DMABUF);
	uint64_t iova = one_in(20) ? odd() : 0x7000000000 + offset % PAGE;
	uint32_t lkey = 0, rkey = 0;
	struct attrs a = { 0 };

	add(&a, UVERBS_ATTR_REG_DMABUF_MR_HANDLE, 0, 0);
	add(&a, UVERBS_ATTR_REG_DMABUF_MR_PD_HANDLE, some(PD)->handle, 0);
	add(&a, UVERBS_ATTR_REG_DMABUF_MR_OFFSET, offset, 8);
	add(&a, UVERBS_ATTR_REG_DMABUF_MR_LENGTH, length, 8);
	add(&a, UVERBS_ATTR_REG_DMABUF_MR_IOVA, iova, 8);
	/* Or some other file of this process. */
	add(&a, UVERBS_ATTR_REG_DMABUF_MR_FD, one_in(10) ? rnd(20) : (uint32_t)dmabufs[rnd(2)], 4);
	add(&a, UVERBS_ATTR_REG_DMABUF_MR_ACCESS_FLAGS, one_in(4) ? next(&rng) & ANY_ACCESS : 7, 4);
	add(&a, UVERBS_ATTR_REG_DMABUF_MR_RESP_LKEY, (uintptr_t)response(&lkey), 4);
	add(&a, UVERBS_ATTR_REG_DMABUF_MR_RESP_RKEY, (uintptr_t)response(&rkey), 4);
	if (issue(&a, UVERBS_OBJECT_MR, UVERBS_METHOD_REG_DMABUF_MR)) {
		made(MR, (struct object){ .handle = a.attr[0].data, .num = lkey, .key = iova, .size = length });
		tally->dmabufs++;
	}
}

/* What a library asks that imports the device. */
static void ioctl_query(void)
{
	struct siw_uresp_alloc_ctx ours = { 0 };
	uint32_t vectors;
	struct attrs a = { 0 };

	add(&a, UVERBS_ATTR_QUERY_CONTEXT_NUM_COMP_VECTORS, (uintptr_t)response(&vectors), 4);
	add(&a, 1U << UVERBS_ID_NS_SHIFT, (uintptr_t)response(&ours), one_in(4) ? rnd(100) : sizeof(ours));
	issue(&a, UVERBS_OBJECT_DEVICE, UVERBS_METHOD_QUERY_CONTEXT);
}

/* Any method of any object. */
static void ioctl_nonsense(void)
{
	char room[512];
	struct attrs a = { 0 };

	for (int i = rnd(8); i > 0; i--)
		switch (rnd(4)) {
		case 0: add(&a, rnd(14), rnd(30), 0); break;
		case 1: add(&a, rnd(14), odd(), 4 << rnd(2)); break;
		case 2: add(&a, rnd(14), (uintptr_t)response(&room), rnd(sizeof(room))); break;
		case 3: add(&a, UVERBS_ATTR_UHW_IN + rnd(2), (uintptr_t)response(&room), 8 * rnd(8)); break;
		}
	issue(&a, rnd(18), rnd(10));
}

/* ---- rings ---- */

static void *map_ring(uint64_t key, size_t len)
{
	static const int prots[] = { PROT_NONE, PROT_READ, PROT_WRITE };
	void *at;

	if (one_in(10)) {
		/* Maps anything, and does not use it. */
		if (one_in(2))
			len = PAGE * (1 + rnd(64));
		at = mmap(NULL, len, prots[rnd(3)], one_in(2) ? MAP_SHARED : MAP_PRIVATE, uverbs,
			  one_in(2) ? key : (PAGE * rnd(4096)));
		if (at != MAP_FAILED)
			munmap(at, len);
		return NULL;
	}
	if (!len)
		return NULL;
	at = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_SHARED, uverbs, key);
	if (at == MAP_FAILED)
		return NULL;
	tally->mapped++;
	return at;
}

static void sges(struct siw_sge *sge, int n)
{
	for (int i = 0; i < n; i++) {
		struct object *mr = some(MR);

		sge[i].lkey = mr->num;
		sge[i].length = one_in(30) ? odd() : rnd(one_in(4) ? mr->size : 200);
		sge[i].laddr = one_in(30) ? odd() : mr->key + (one_in(2) ? 0 : rnd(mr->size));
	}
}

static void post_ring(void)
{
	struct object qp = *some(QP), *mr;
	struct siw_sqe *sq = map_ring(qp.key, qp.size * sizeof(*sq));
	struct siw_rqe *rq;

	for (uint32_t i = 0; sq && i < qp.size; i++)
		if (!sq[i].flags && rnd(3)) {
			mr = some(MR);
			sq[i].id = next(&rng);
			/* The last ones are additions of the driver, see include/siw_uapi.h. */
			sq[i].opcode = one_in(20) ? next(&rng) : (uint8_t[]){ 0, 1, 3, 5, 4, 6, 7, 10, 12, 13 }[rnd(10)];
			sq[i].num_sge = one_in(20) ? next(&rng) : sq[i].opcode == SIW_OP_READ ? 1 : rnd(7);
			sq[i].rkey = mr->num;
			sq[i].raddr = mr->key;
			sges(sq[i].sge, 6);
			__atomic_store_n(&sq[i].flags, SIW_WQE_VALID | (next(&rng) & (one_in(10) ? 0x3f : 0x1c)), __ATOMIC_RELEASE);
			tally->posted++;
		}
	if (sq)
		munmap(sq, qp.size * sizeof(*sq));
	if (one_in(3))
		qp = *some(SRQ);
	else
		qp.size = qp.size2, qp.key = qp.key2;
	rq = map_ring(qp.key, qp.size * sizeof(*rq));
	for (uint32_t i = 0; rq && i < qp.size; i++)
		if (!rq[i].flags && rnd(3)) {
			rq[i].id = next(&rng);
			rq[i].num_sge = one_in(20) ? next(&rng) : rnd(7);
			sges(rq[i].sge, 6);
			__atomic_store_n(&rq[i].flags, SIW_WQE_VALID, __ATOMIC_RELEASE);
		}
	if (rq)
		munmap(rq, qp.size * sizeof(*rq));
	bell(qp.handle);
}

static void poll_ring(void)
{
	struct object cq = *some(CQ);
	size_t len = cq.size * sizeof(struct siw_cqe) + sizeof(struct siw_cq_ctrl);
	struct siw_cqe *ring = cq.size < 100000 ? map_ring(cq.key, len) : NULL;

	for (uint32_t i = 0; ring && i < cq.size; i++)
		ring[i].flags = 0;
	if (ring) {
		((struct siw_cq_ctrl *)(ring + cq.size))->flags = rnd(8);
		munmap(ring, len);
	}
}

/* ---- connections ---- */

/*
 * Assumptions of the RDMA core, on any iWARP device, that it does not check:
 * - A program destroys an identifier, or moves it to another file, only after it has been told of
 *   it. The event of a connection request points to the identifier of the request until the event
 *   is read, even when the listener moves. Numbers are reused at once. So a thread that destroys or
 *   moves an identifier takes its number from where it is kept, once.
 * - iw_cm_accept() and iw_cm_reject() are called for requests only. They mark an identifier that is
 *   being connected as done, and its destruction then runs into a BUG().
 */
static pthread_mutex_t kept = PTHREAD_MUTEX_INITIALIZER;

static bool is_delicate(uint32_t command)
{
	return command == RDMA_USER_CM_CMD_DESTROY_ID || command == RDMA_USER_CM_CMD_MIGRATE_ID ||
	       command == RDMA_USER_CM_CMD_ACCEPT || command == RDMA_USER_CM_CMD_REJECT;
}

static void keep_id(struct object *to, uint32_t handle, bool requested)
{
	pthread_mutex_lock(&kept);
	*to = (struct object){ .handle = handle, .there = true, .stage = requested ? 3 : 0, .requested = requested };
	pthread_mutex_unlock(&kept);
}

/* The number for COMMAND, if the command is permitted. */
static bool take_id(struct object *from, uint32_t command, uint32_t *handle)
{
	bool permitted = from >= object[ID] && from < object[ID] + SLOTS;

	pthread_mutex_lock(&kept);
	permitted = permitted && from->there;
	switch (command) {
	case RDMA_USER_CM_CMD_MIGRATE_ID: permitted = permitted && !from->listens; /* fall through */
	case RDMA_USER_CM_CMD_DESTROY_ID: from->there = from->there && !permitted; break;
	default: permitted = permitted && from->requested;
	}
	*handle = from->handle;
	pthread_mutex_unlock(&kept);
	return permitted;
}

static bool cm_command(int number, void *body, size_t len, size_t resp_len)
{
	struct {
		struct rdma_ucm_cmd_hdr hdr;
		char body[1024];
	} __attribute__((packed)) req = { .hdr = { .cmd = number, .in = len, .out = resp_len } };
	bool spoiled = one_in(12);
	uint32_t other;
	ssize_t done;
	size_t at;

	memcpy(req.body, body, len);
	if (spoiled)
		switch (rnd(4)) {
		case 0: req.hdr.in = rnd(len + 1); break;
		case 1: req.hdr.out = rnd(resp_len + 1); break;
		case 2:
			other = rnd(26);
			if (!is_delicate(other))
				req.hdr.cmd = other;
			break;
		case 3:
			at = rnd(len);
			if (!is_delicate(number) && !is_room(*(uint64_t *)(req.body + at / 8 * 8)))
				req.body[at] ^= 1 << rnd(8);
			break;
		}
	tally->cm++;
	done = write(cm, &req, sizeof(req.hdr) + req.hdr.in);
	take_answers();
	if (done < 0)
		return false;
	tally->cm_taken++;
	return !spoiled;
}

/* The number of an identifier in a file that is closed at once must not be kept. */
static void create_id(bool keep)
{
	struct rdma_ucm_create_id_resp resp;
	struct object *o = free_slot(ID);
	struct rdma_ucm_create_id req = { .uid = o - object[ID], .response = (uintptr_t)response(&resp),
					  .ps = one_in(30) ? next(&rng) : RDMA_PS_TCP, .qp_type = 2 };

	if (cm_command(RDMA_USER_CM_CMD_CREATE_ID, &req, sizeof(req), sizeof(resp))) {
		if (keep)
			keep_id(o, resp.id, false);
		tally->made[ID]++;
	}
}

static void cm_create(void)
{
	create_id(true);
}

static void cm_destroy(struct object *id)
{
	struct rdma_ucm_destroy_id_resp resp;
	struct rdma_ucm_destroy_id req = { .response = (uintptr_t)answer(&resp) };

	if (take_id(id, RDMA_USER_CM_CMD_DESTROY_ID, &req.id))
		cm_command(RDMA_USER_CM_CMD_DESTROY_ID, &req, sizeof(req), sizeof(resp));
}

static void set_addr(struct __kernel_sockaddr_storage *to, uint16_t port)
{
	struct sockaddr_in sin = address;

	sin.sin_port = port;
	if (one_in(30))
		sin.sin_addr.s_addr = next(&rng);
	if (one_in(30))
		sin.sin_family = rnd(40);
	memcpy(to, &sin, sizeof(sin));
}

static void cm_listen(struct object *id)
{
	struct rdma_ucm_bind bind = { .id = id->handle, .addr_size = sizeof(struct sockaddr_in) };
	struct rdma_ucm_listen listen = { .id = id->handle, .backlog = rnd(2) ? rnd(10) : odd() };
	struct rdma_ucm_query query = { .id = id->handle, .option = RDMA_USER_CM_QUERY_ADDR };
	struct rdma_ucm_query_addr_resp addr;

	set_addr(&bind.addr, 0);
	cm_command(RDMA_USER_CM_CMD_BIND, &bind, sizeof(bind), 0);
	id->listens = true;
	if (!cm_command(RDMA_USER_CM_CMD_LISTEN, &listen, sizeof(listen), 0))
		return;
	query.response = (uintptr_t)answer(&addr);
	if (cm_command(RDMA_USER_CM_CMD_QUERY, &query, sizeof(query), sizeof(addr)))
		tally->port[rnd(PORTS)] = ((struct sockaddr_in *)&addr.src_addr)->sin_port;
}

static uint16_t some_port(void)
{
	for (int i = 0; i < 100; i++) {
		uint16_t port = tally->port[rnd(PORTS)];

		if (port)
			return port;
	}
	return next(&rng);
}

static void cm_resolve(struct object *id)
{
	struct rdma_ucm_resolve_addr req = { .id = id->handle, .timeout_ms = 1000, .dst_size = sizeof(struct sockaddr_in) };

	set_addr(&req.dst_addr, one_in(20) ? next(&rng) : some_port());
	cm_command(RDMA_USER_CM_CMD_RESOLVE_ADDR, &req, sizeof(req), 0);
}

static struct rdma_ucm_conn_param conn_param(void)
{
	struct object *qp = some(QP);

	for (int i = 0; i < 8 && qp->stage; i++)
		qp = some(QP);
	qp->stage = 1;

	struct rdma_ucm_conn_param p = { .qp_num = qp->num, .private_data_len = rnd(2) ? 0 : rnd(256), .responder_resources = rnd(20),
					 .initiator_depth = rnd(20), .valid = 1 };

	if (one_in(20))
		p.responder_resources = p.initiator_depth = next(&rng);
	return p;
}

/* The command that comes next for an identifier, or any other. */
static void cm_step(void)
{
	struct object *id = some(ID);

	/* Preferably one that need not wait. */
	for (int i = 0; i < 8 && id->stage == 4; i++)
		id = some(ID);

	int stage = one_in(15) ? (int)rnd(8) : id->stage;
	struct rdma_ucm_resolve_route route = { .id = id->handle, .timeout_ms = 1000 };
	struct rdma_ucm_connect connect = { .id = id->handle };
	struct rdma_ucm_accept accept = { .uid = id - object[ID] };
	struct rdma_ucm_disconnect disconnect = { .id = id->handle };
	struct rdma_ucm_init_qp_attr init = { .id = id->handle, .qp_state = rnd(8) };
	struct rdma_ucm_reject reject = { .private_data_len = rnd(256), .reason = 28 };
	struct ib_uverbs_qp_attr attr;

	init.response = (uintptr_t)answer(&attr);
	switch (stage) {
	case 0:
		if (one_in(3))
			cm_listen(id);
		else
			cm_resolve(id);
		/* Listeners stay a while; the others wait for their event. */
		id->stage = 4;
		break;
	case 1:
		cm_command(RDMA_USER_CM_CMD_RESOLVE_ROUTE, &route, sizeof(route), 0);
		id->stage = 4;
		break;
	case 2:
		connect.conn_param = conn_param();
		cm_command(RDMA_USER_CM_CMD_CONNECT, &connect, sizeof(connect), 0);
		id->stage = 4;
		break;
	case 3:
		accept.conn_param = conn_param();
		if (one_in(6) && take_id(id, RDMA_USER_CM_CMD_REJECT, &reject.id))
			cm_command(RDMA_USER_CM_CMD_REJECT, &reject, sizeof(reject), 0);
		else if (take_id(id, RDMA_USER_CM_CMD_ACCEPT, &accept.id))
			cm_command(RDMA_USER_CM_CMD_ACCEPT, &accept, sizeof(accept), 0);
		id->stage = 4;
		break;
	case 4:
		if (one_in(12))
			id->stage = 5;
		break;
	case 5:
		cm_command(RDMA_USER_CM_CMD_DISCONNECT, &disconnect, sizeof(disconnect), 0);
		id->stage = 6;
		break;
	case 6:
		cm_destroy(id);
		break;
	case 7:
		cm_command(RDMA_USER_CM_CMD_INIT_QP_ATTR, &init, sizeof(init), sizeof(attr));
		break;
	}
}

static void cm_event(void)
{
	struct rdma_ucm_event_resp resp;
	struct rdma_ucm_get_event req = { .response = (uintptr_t)response(&resp) };
	struct object *id;

	if (!cm_command(RDMA_USER_CM_CMD_GET_EVENT, &req, sizeof(req), sizeof(resp)))
		return;
	id = &object[ID][resp.uid % SLOTS];
	switch (resp.event) {
	case 0: id->stage = 1; break; /* address */
	case 2: id->stage = 2; break; /* route */
	case 4: /* request */
		keep_id(free_slot(ID), resp.id, true);
		break;
	case 9: tally->established++; break;
	default: id->stage = 6;
	}
}

static void cm_nonsense(void)
{
	uint32_t body[100], resp[100], command = rnd(26);

	if (is_delicate(command))
		return;
	for (int i = 0; i < 100; i++)
		body[i] = one_in(3) ? odd() : rnd(30);
	if (one_in(2))
		*(uint64_t *)(body + 2 * rnd(3)) = (uintptr_t)answer(&resp);
	cm_command(command, body, rnd(sizeof(body)), rnd(sizeof(resp)));
}

/* ---- files and processes ---- */

static void files(void)
{
	char events[128];
	int fd;

	switch (rnd(4)) {
	case 0:
		fd = uverbs;
		uverbs = dup(uverbs);
		alloc_pd();
		destroy();
		close(uverbs);
		uverbs = fd;
		break;
	case 1:
		/* Another context, which ends with all its objects. */
		fd = uverbs;
		uverbs = open(device, O_RDWR | O_CLOEXEC);
		if (uverbs >= 0) {
			get_context();
			if (one_in(2))
				get_context();
			alloc_pd();
			create_cq();
			close(uverbs);
		}
		uverbs = fd;
		break;
	case 2:
		fd = open("/dev/infiniband/rdma_cm", O_RDWR | O_NONBLOCK | O_CLOEXEC);
		if (fd < 0)
			break;
		/* An identifier moves to another file, and ends with it. */
		struct rdma_ucm_migrate_id {
			uint64_t response;
			uint32_t id, fd;
		} req = { .fd = cm };
		int here = cm;
		uint32_t resp[4];

		req.response = (uintptr_t)answer(&resp);
		cm = fd;
		if (take_id(some(ID), RDMA_USER_CM_CMD_MIGRATE_ID, &req.id))
			cm_command(RDMA_USER_CM_CMD_MIGRATE_ID, &req, sizeof(req), sizeof(resp));
		create_id(false);
		cm = here;
		close(fd);
		break;
	case 3:
		if (poll(&(struct pollfd){ .fd = uverbs, .events = POLLIN }, 1, 0) > 0 && read(uverbs, events, sizeof(events)) < 0)
			break;
		break;
	}
}

static void (*const actions[])(void) = {
	alloc_pd, reg_mr, reg_mr, reg_mr, alloc_mw, alloc_mw, rereg_mr, create_channel, read_channel, create_cq, create_cq, resize_cq, create_srq, create_qp,
	create_qp, create_qp, create_qp, modify_qp, query, modify_srq, cq_commands, post_command, destroy, destroy, nonsense,
	ioctl_cq, ioctl_qp, ioctl_qp, ioctl_dmabuf, ioctl_destroy, ioctl_query, ioctl_nonsense, ioctl_nonsense, post_ring, post_ring, post_ring, poll_ring,
	poll_ring, cm_create, cm_create, cm_step, cm_step, cm_step, cm_step, cm_step, cm_step, cm_event, cm_event, cm_event, cm_event, cm_nonsense,
	files,
};

/* A child inherits the files, but may write no commands to them. It may be their last holder. */
static void child(void)
{
	pid_t pid = fork();

	if (pid)
		return;
	is_child = true;
	tally->children++;
	rng = rng_of(next(&rng), 0);
	for (int i = rnd(60); i > 0; i--)
		(void (*[])(void)){ ioctl_cq, ioctl_qp, ioctl_dmabuf, ioctl_destroy, ioctl_query, ioctl_nonsense, post_ring, poll_ring }[rnd(8)]();
	_exit(0);
}

struct start {
	uint64_t which;
	int uverbs, cm;
};

static void *work(void *arg)
{
	struct start *start = arg;

	rng = rng_of(seed, start->which);
	uverbs = start->uverbs;
	cm = start->cm;
	for (;;) {
		/* Forgets the room of commands that were not given. */
		num_rooms = 0;
		if (rnd(200))
			actions[rnd(sizeof(actions) / sizeof(actions[0]))]();
		else
			child();
	}
	return NULL;
}

static void live(uint64_t which)
{
	struct rng r = rng_of(seed, which);
	struct start start[THREADS];
	pthread_t thread;

	rng = r;
	uverbs = open(device, O_RDWR);
	cm = open("/dev/infiniband/rdma_cm", O_RDWR | O_NONBLOCK);
	if (uverbs < 0 || cm < 0)
		die("%s, rdma_cm: %s", device, strerror(errno));
	arena = fenced(ARENA);
	bad_page = mmap(NULL, PAGE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	must(bad_page == MAP_FAILED);
	make_dmabufs();
	get_context();
	for (int i = 0; i < THREADS; i++) {
		start[i] = (struct start){ .which = which * 100 + i, .uverbs = uverbs, .cm = cm };
		must(pthread_create(&thread, NULL, work, &start[i]));
	}
	usleep(500000 + below(&r, 8000000));
	/* At any time for the threads, but perhaps not for the files. */
	if (below(&r, 2))
		close(uverbs);
	if (below(&r, 2))
		close(cm);
	_exit(0);
}

int main(int argc, char **argv)
{
	pid_t pid[PROCESSES] = { 0 };
	struct rng r;
	int status;

	setvbuf(stdout, NULL, _IOLBF, 0);
	if (argc < 4)
		die("usage: %s UVERBS-DEVICE ADDRESS SECONDS [SEED]", argv[0]);
	device = argv[1];
	address.sin_family = AF_INET;
	must(inet_pton(AF_INET, argv[2], &address.sin_addr) != 1);
	deadline = now() + atof(argv[3]);
	seed = argc > 4 ? strtoull(argv[4], NULL, 0) : (uint64_t)time(NULL);
	printf("seed %llu\n", (unsigned long long)seed);
	tally = mmap(NULL, sizeof(*tally), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	must(tally == MAP_FAILED);
	r = rng_of(seed, 0);
	while (now() < deadline) {
		for (int i = 0; i < PROCESSES; i++) {
			if (pid[i] && waitpid(pid[i], &status, WNOHANG) != pid[i])
				continue;
			if (pid[i] && status && status != SIGKILL)
				die("a process ended with status %x", status);
			pid[i] = fork();
			must(pid[i] < 0);
			if (!pid[i])
				live(tally->processes);
			tally->processes++;
		}
		usleep(100000);
		if (below(&r, 25) == 0) {
			kill(pid[below(&r, PROCESSES)], SIGKILL);
			tally->killed++;
		}
	}
	for (int i = 0; i < PROCESSES; i++) {
		must(waitpid(pid[i], &status, 0) != pid[i]);
		if (status && status != SIGKILL)
			die("a process ended with status %x", status);
	}
	printf("exercised %lu processes\n", tally->processes);
	printf("exercised %lu verbs commands\n", tally->commands + tally->ioctls);
	printf("exercised %lu connection commands\n", tally->cm);
	printf("%lu killed, %lu children; %lu of %lu commands, %lu of %lu ioctls, %lu of %lu of connections taken\n", tally->killed,
	       tally->children, tally->taken, tally->commands, tally->ioctls_taken, tally->ioctls, tally->cm_taken, tally->cm);
	printf("%lu PDs, %lu MRs, %lu MWs, %lu channels, %lu CQs, %lu QPs, %lu SRQs, %lu identifiers, %lu connections\n", tally->made[PD],
	       tally->made[MR], tally->made[MW], tally->made[CHANNEL], tally->made[CQ], tally->made[QP], tally->made[SRQ], tally->made[ID],
	       tally->established);
	printf("%lu rings mapped, %lu requests posted, %lu dmabufs registered\n", tally->mapped, tally->posted, tally->dmabufs);
	if (!access("/dev/udmabuf", R_OK) && !tally->dmabufs)
		die("no dmabuf was registered");
	return 0;
}
