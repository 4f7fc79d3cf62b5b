// SPDX-License-Identifier: GPL-2.0
/*
 * Checks of the verbs that change an object in place. Both ends are in this process. Run as
 * "change-check ADDRESS [TEST]", with an address of a siw device of this machine.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <sys/mman.h>

#define WC_MS 5000
#include "ends.h"
#include "rng.h"

#define ONE_TOUCH (1 << 29)

/* Lines of /proc/self/maps that name the device. */
static int mappings(void)
{
	FILE *f = fopen("/proc/self/maps", "r");
	char line[512];
	int n = 0;

	must(!f);
	while (fgets(line, sizeof(line), f))
		n += strstr(line, "infiniband") != NULL;
	fclose(f);
	return n;
}

/* Polls what has completed, which must be the next work requests in their order. */
static void poll_next(struct ibv_cq *cq, uint64_t *next)
{
	struct ibv_wc wc[8];
	int n;

	expect((n = ibv_poll_cq(cq, 8, wc)) >= 0);
	for (int i = 0; i < n; i++)
		expect(wc[i].status == IBV_WC_SUCCESS && wc[i].wr_id == (*next)++);
}

/* Sends messages FROM to TO, and waits until all of them have arrived. Polls the sender only. */
static void send_all(struct pair *p, int from, int to)
{
	for (int i = from; i <= to; i++)
		must(post_recv(&p->b, i, 0, 64));
	must(ibv_req_notify_cq(p->b.rcq, 1));
	for (int i = from; i <= to; i++)
		must(post(&p->a, IBV_WR_SEND, i, 8, IBV_SEND_SIGNALED | (i == to ? IBV_SEND_SOLICITED : 0), NULL));
	for (int i = from; i <= to; i++)
		expect_wc(p->a.scq, i, IBV_WC_SUCCESS);
	expect(cq_event(&p->b, 5000));
}

/* Completions that have not been polled are kept, in their order. */
static void test_cq(void)
{
	struct shape small = usual;
	struct ibv_cq *cq;
	struct pair p;
	int before;

	small.cqe = 8;
	connect_pair(&p, &usual, &small);
	settle(&p);
	cq = p.b.rcq;
	before = mappings();
	send_all(&p, 0, 5);
	expect(ibv_resize_cq(cq, 4) == EINVAL);
	expect(ibv_resize_cq(cq, 1 << 30) == EINVAL);
	expect(ibv_resize_cq(cq, 0) == EINVAL);
	expect(cq->cqe == 8);
	must(ibv_resize_cq(cq, 33));
	expect(cq->cqe == 64);
	/* More than there was room for. */
	send_all(&p, 6, 31);
	must(ibv_resize_cq(cq, 128));
	send_all(&p, 32, 34);
	for (int i = 0; i <= 34; i++)
		expect_wc(cq, i, IBV_WC_SUCCESS);
	must(ibv_resize_cq(cq, 1));
	expect(cq->cqe == 1);
	send_all(&p, 35, 35);
	must(ibv_resize_cq(cq, 1));
	expect_wc(cq, 35, IBV_WC_SUCCESS);
	for (int i = 0; i < 1000; i++)
		must(ibv_resize_cq(cq, 1 + i % 64));
	/* Some may have been one with their neighbours. */
	expect(mappings() < before + 10);
	disconnect_pair(&p);
}

/* A request for an event is not lost with the queue that it was made for. */
static void test_cq_event(void)
{
	struct ibv_wc wc;
	struct pair p;

	connect_pair(&p, &usual, &usual);
	settle(&p);
	for (int solicited = 0; solicited < 2; solicited++) {
		for (int i = 0; i < 2; i++)
			must(post_recv(&p.b, i, 0, 64));
		must(ibv_req_notify_cq(p.b.rcq, solicited));
		must(ibv_resize_cq(p.b.rcq, 16 << solicited));
		expect(!cq_event(&p.b, 100));
		must(post(&p.a, IBV_WR_SEND, 0, 8, IBV_SEND_SIGNALED | (solicited ? IBV_SEND_SOLICITED : 0), NULL));
		expect(cq_event(&p.b, 5000));
		must(ibv_resize_cq(p.b.rcq, 64));
		expect_wc(p.b.rcq, 0, IBV_WC_SUCCESS);
		/* It was answered, and is not repeated. */
		must(post(&p.a, IBV_WR_SEND, 1, 8, IBV_SEND_SIGNALED, NULL));
		expect_wc(p.b.rcq, 1, IBV_WC_SUCCESS);
		expect(!cq_event(&p.b, 100));
		expect_wc(p.a.scq, 0, IBV_WC_SUCCESS);
		expect_wc(p.a.scq, 1, IBV_WC_SUCCESS);
	}
	expect(!next_wc(p.b.rcq, &wc, 0));
	disconnect_pair(&p);
}

struct resizer {
	struct ibv_cq *cq[2];
	int least;
	atomic_bool over;
};

enum { DEPTH = 32, TIMES = 1000 };

static void *resize(void *arg)
{
	struct resizer *z = arg;
	struct rng r = rng_of(1, 0);

	for (int i = 0; i < TIMES; i++)
		must(ibv_resize_cq(z->cq[i % 2], z->least + below(&r, 8 * z->least)));
	z->over = true;
	return NULL;
}

/* Each completion is polled once and in order while the queues of both ends are resized. */
static void test_cq_busy(void)
{
	struct resizer z = { .least = 2 * DEPTH };
	uint64_t sent = 0, done = 0, recvs = 0, got = 0;
	struct shape shape = usual;
	pthread_t thread;
	struct pair p;

	shape.sends = shape.recvs = DEPTH;
	connect_pair(&p, &shape, &shape);
	settle(&p);
	z.cq[0] = p.a.scq;
	z.cq[1] = p.b.rcq;
	must(pthread_create(&thread, NULL, resize, &z));
	while (!z.over || got < recvs || done < recvs) {
		while (!z.over && recvs - got < DEPTH)
			must(post_recv(&p.b, recvs++, 0, 64));
		/* There is a receive for each. */
		while (sent < recvs && sent - done < DEPTH)
			must(post(&p.a, IBV_WR_SEND, sent++, 8, IBV_SEND_SIGNALED, NULL));
		poll_next(p.a.scq, &done);
		poll_next(p.b.rcq, &got);
	}
	must(pthread_join(thread, NULL));
	printf("%lu messages\n", got);
	disconnect_pair(&p);
}

static int resize_srq(struct ibv_srq *srq, int max_wr, int limit)
{
	struct ibv_srq_attr attr = { .max_wr = max_wr, .srq_limit = limit };

	return ibv_modify_srq(srq, &attr, IBV_SRQ_MAX_WR | (limit < 0 ? 0 : IBV_SRQ_LIMIT));
}

static bool shows(struct ibv_srq *srq, uint32_t max_wr, uint32_t limit)
{
	struct ibv_srq_attr attr;

	must(ibv_query_srq(srq, &attr));
	return attr.max_wr == max_wr && attr.srq_limit == limit;
}

/* Receives FROM to TO are the next ones that complete. */
static void use_recvs(struct pair *p, int from, int to)
{
	for (int i = from; i <= to; i++) {
		must(post(&p->a, IBV_WR_SEND, i, 8, IBV_SEND_SIGNALED, NULL));
		expect_wc(p->a.scq, i, IBV_WC_SUCCESS);
		expect_wc(p->b.rcq, i, IBV_WC_SUCCESS);
	}
}

/* Requests that have not been used are kept, in their order, and so is the limit. */
static void test_srq(void)
{
	struct shape shared = usual;
	struct ibv_device_attr_ex more;
	struct ibv_device_attr attr;
	struct ibv_context *c;
	struct ibv_srq *srq;
	struct pair p;
	int before;

	shared.srq = 16;
	connect_pair(&p, &usual, &shared);
	settle(&p);
	srq = p.b.srq;
	c = p.b.id->verbs;
	must(ibv_query_device(c, &attr));
	expect(attr.device_cap_flags & IBV_DEVICE_SRQ_RESIZE);
	must(ibv_query_device_ex(c, NULL, &more));
	expect(more.device_cap_flags_ex == more.orig_attr.device_cap_flags && more.device_cap_flags_ex == attr.device_cap_flags);
	before = mappings();
	for (int i = 0; i < 16; i++)
		must(post_recv(&p.b, i, 0, 64));
	use_recvs(&p, 0, 4);
	expect(resize_srq(srq, 8, 0) == EINVAL);
	expect(resize_srq(srq, 64, 65) == EINVAL);
	expect(resize_srq(srq, 0, -1) == EINVAL);
	expect(resize_srq(srq, attr.max_srq_wr + 1, -1) == EINVAL);
	expect(shows(srq, 16, 0));
	must(resize_srq(srq, 33, 3));
	expect(shows(srq, 64, 3));
	for (int i = 16; i < 16 + 64 - 11; i++)
		must(post_recv(&p.b, i, 0, 64));
	expect(post_recv(&p.b, 99, 0, 64) == ENOMEM);
	use_recvs(&p, 5, 65);
	/* Three are left: the limit is kept, and a queue that it is too large for is refused. */
	expect(resize_srq(srq, 2, -1) == EINVAL);
	must(resize_srq(srq, 4, -1));
	expect(shows(srq, 4, 3));
	expect(!async_event(c, IBV_EVENT_SRQ_LIMIT_REACHED, 100));
	must(post_recv(&p.b, 69, 0, 64));
	use_recvs(&p, 66, 66);
	expect(!async_event(c, IBV_EVENT_SRQ_LIMIT_REACHED, 100));
	use_recvs(&p, 67, 67);
	expect(async_event(c, IBV_EVENT_SRQ_LIMIT_REACHED, 5000));
	expect(shows(srq, 4, 0));
	must(resize_srq(srq, 2, -1));
	expect(resize_srq(srq, 1, -1) == EINVAL);
	use_recvs(&p, 68, 69);
	for (int i = 0; i < 1000; i++)
		must(resize_srq(srq, 1 + i % 64, -1));
	expect(mappings() < before + 10);
	disconnect_pair(&p);
}

struct srq_resizer {
	struct ibv_srq *srq;
	int small;
	atomic_bool over;
};

static void *keep_resizing_srq(void *arg)
{
	struct srq_resizer *z = arg;
	struct rng r = rng_of(2, 0);

	for (int i = 0; i < TIMES; i++) {
		int rc = resize_srq(z->srq, 1 + below(&r, 4 * DEPTH), -1);

		expect(rc == 0 || rc == EINVAL);
		z->small += rc == EINVAL;
	}
	z->over = true;
	return NULL;
}

/* Each request is used once and in order while the queue is resized. */
static void test_srq_busy(void)
{
	struct srq_resizer z = {};
	uint64_t sent = 0, done = 0, recvs = 0, got = 0;
	struct shape shape = usual;
	pthread_t thread;
	struct pair p;

	shape.srq = shape.sends = DEPTH;
	connect_pair(&p, &usual, &shape);
	settle(&p);
	z.srq = p.b.srq;
	must(pthread_create(&thread, NULL, keep_resizing_srq, &z));
	while (!z.over || got < recvs || done < recvs) {
		/* There may be no room. */
		while (!z.over && recvs - got < DEPTH && !post_recv(&p.b, recvs, 0, 64))
			recvs++;
		while (sent < recvs && sent - done < DEPTH)
			must(post(&p.a, IBV_WR_SEND, sent++, 8, IBV_SEND_SIGNALED, NULL));
		poll_next(p.a.scq, &done);
		poll_next(p.b.rcq, &got);
	}
	must(pthread_join(thread, NULL));
	printf("%lu messages, %d times too small\n", got, z.small);
	expect(z.small < TIMES);
	disconnect_pair(&p);
}

/* Reads with that key and address from B. Returns the status; after an error both ends are done. */
static enum ibv_wc_status read_from(struct pair *p, void *addr, uint32_t rkey)
{
	struct ibv_mr there = { .addr = addr, .rkey = rkey };
	struct ibv_wc wc;

	must(post(&p->a, IBV_WR_RDMA_READ, 7, 64, IBV_SEND_SIGNALED, &there));
	expect(next_wc(p->a.scq, &wc, 5000) && wc.wr_id == 7);
	return wc.status;
}

static const int all_rights = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_MW_BIND;

/*
 * What is changed holds for the new key, and the old one is refused. Other rights alone keep the
 * key.
 */
static void test_mr(void)
{
	enum { AGAIN, RIGHTS, MEMORY, DOMAIN, ALL };
	char *other = calloc(1, SIZE);
	struct pair p;

	strcpy(other, "other");
	for (int round = 0; round < 2 * ALL; round++) {
		int what = round / 2, flags = IBV_REREG_MR_CHANGE_ACCESS;
		struct ibv_pd *pd;
		struct ibv_mr *mr;
		uint32_t old;

		connect_pair(&p, &usual, &usual);
		settle(&p);
		mr = p.b.mr;
		old = mr->rkey;
		strcpy(p.b.buf, "first");
		expect(read_from(&p, p.b.buf, old) == IBV_WC_SUCCESS && !strcmp(p.a.buf, "first"));
		must(!(pd = ibv_alloc_pd(p.b.id->verbs)));
		if (what == AGAIN)
			must(ibv_rereg_mr(mr, flags, NULL, NULL, 0, all_rights));
		else if (what == RIGHTS)
			must(ibv_rereg_mr(mr, flags, NULL, NULL, 0, IBV_ACCESS_LOCAL_WRITE));
		else if (what == MEMORY)
			must(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_TRANSLATION, NULL, other, SIZE / 2, 0));
		else
			must(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_PD, pd, NULL, 0, 0));
		expect((mr->rkey == old) == (what == AGAIN || what == RIGHTS) && mr->rkey == mr->lkey && mr->rkey >> 8 == old >> 8);
		if (round % 2 && mr->rkey != old) {
			expect(read_from(&p, p.b.buf, old) == IBV_WC_REM_ACCESS_ERR);
		} else if (what == AGAIN) {
			expect(read_from(&p, p.b.buf, mr->rkey) == IBV_WC_SUCCESS);
		} else if (what == MEMORY) {
			expect(read_from(&p, other, mr->rkey) == IBV_WC_SUCCESS && !strcmp(p.a.buf, "other"));
			expect(read_from(&p, other + SIZE / 2, mr->rkey) == IBV_WC_REM_ACCESS_ERR);
		} else {
			expect(read_from(&p, p.b.buf, mr->rkey) == IBV_WC_REM_ACCESS_ERR);
		}
		disconnect_pair(&p);
		must(ibv_dealloc_pd(pd));
	}
	free(other);
}

/* A region that could not be written before gets pages of its own. */
static void test_mr_write(void)
{
	struct shape closed = usual;
	struct pair p;

	closed.access = 0;
	connect_pair(&p, &usual, &closed);
	strcpy(p.a.buf, "written");
	must(ibv_rereg_mr(p.b.mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, all_rights));
	must(post(&p.a, IBV_WR_RDMA_WRITE, 1, 64, IBV_SEND_SIGNALED, p.b.mr));
	expect_wc(p.a.scq, 1, IBV_WC_SUCCESS);
	expect(read_from(&p, p.b.buf, p.b.mr->rkey) == IBV_WC_SUCCESS);
	expect(!strcmp(p.b.buf, "written"));
	disconnect_pair(&p);
}

/* A one-touch region that is spent takes one message more after each change, and no second one. */
static void test_mr_touch(void)
{
	struct shape once = usual;
	struct pair p;

	once.access |= ONE_TOUCH;
	connect_pair(&p, &usual, &once);
	for (int round = 0; round < 3; round++) {
		expect(read_from(&p, p.b.buf, p.b.mr->rkey) == IBV_WC_SUCCESS);
		must(ibv_rereg_mr(p.b.mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, once.access));
	}
	expect(read_from(&p, p.b.buf, p.b.mr->rkey) == IBV_WC_SUCCESS);
	expect(read_from(&p, p.b.buf, p.b.mr->rkey) == IBV_WC_REM_ACCESS_ERR);
	disconnect_pair(&p);
}

/* Whether the region can be used as before. */
static bool is_as_before(struct pair *p, struct ibv_mr before)
{
	struct ibv_mr *mr = p->b.mr;

	return mr->rkey == before.rkey && mr->lkey == before.lkey && read_from(p, p->b.buf, before.rkey) == IBV_WC_SUCCESS;
}

/* What is refused changes nothing. */
static void test_mr_refused(void)
{
	struct ibv_mw_bind bind = { .wr_id = 9, .send_flags = IBV_SEND_SIGNALED };
	int access = IBV_REREG_MR_CHANGE_ACCESS, memory = IBV_REREG_MR_CHANGE_TRANSLATION;
	char *hole = mmap(NULL, SIZE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct shape shape = usual;
	struct ibv_mr before;
	struct ibv_mw *mw;
	struct pair p;

	must(hole == MAP_FAILED);
	shape.access = all_rights;
	connect_pair(&p, &usual, &shape);
	settle(&p);
	before = *p.b.mr;
	expect(ibv_rereg_mr(p.b.mr, access, NULL, NULL, 0, IBV_ACCESS_REMOTE_WRITE) == IBV_REREG_MR_ERR_CMD);
	expect(is_as_before(&p, before));
	expect(ibv_rereg_mr(p.b.mr, access, NULL, NULL, 0, 1 << 19) == IBV_REREG_MR_ERR_CMD);
	expect(is_as_before(&p, before));
	expect(ibv_rereg_mr(p.b.mr, memory, NULL, hole, SIZE, 0) == IBV_REREG_MR_ERR_CMD);
	expect(is_as_before(&p, before));
	expect(ibv_rereg_mr(p.b.mr, memory, NULL, (void *)-1ul, SIZE, 0) == IBV_REREG_MR_ERR_CMD);
	expect(is_as_before(&p, before));

	must(!(mw = ibv_alloc_mw(p.b.pd, IBV_MW_TYPE_1)));
	bind.bind_info = (struct ibv_mw_bind_info){ .mr = p.b.mr, .addr = (uintptr_t)p.b.buf, .length = 64,
						    .mw_access_flags = IBV_ACCESS_REMOTE_READ };
	must(ibv_bind_mw(p.b.id->qp, mw, &bind));
	expect_wc(p.b.scq, 9, IBV_WC_SUCCESS);
	expect(ibv_rereg_mr(p.b.mr, access, NULL, NULL, 0, all_rights) == IBV_REREG_MR_ERR_CMD && errno == EBUSY);
	expect(is_as_before(&p, before));
	expect(read_from(&p, p.b.buf, mw->rkey) == IBV_WC_SUCCESS);
	must(ibv_dealloc_mw(mw));
	must(ibv_rereg_mr(p.b.mr, access, NULL, NULL, 0, all_rights));
	expect(read_from(&p, p.b.buf, p.b.mr->rkey) == IBV_WC_SUCCESS);
	disconnect_pair(&p);
	munmap(hole, SIZE);
}

/* Nothing is placed by old rights after the call, in the midst of Writes. */
static void test_mr_busy(void)
{
	struct rng r = rng_of(3, 0);
	unsigned long in_time = 0;

	for (int round = 0; round < 40; round++) {
		struct ibv_mr to;
		struct pair p;

		connect_pair(&p, &usual, &usual);
		settle(&p);
		to = *p.b.mr;
		memset(p.a.buf, 1, SIZE);
		for (int i = 0; i < 32; i++)
			must(post(&p.a, IBV_WR_RDMA_WRITE, i, SIZE, 0, &to));
		usleep(below(&r, 1500));
		must(ibv_rereg_mr(p.b.mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, IBV_ACCESS_LOCAL_WRITE));
		memset(p.b.buf, 2, SIZE);
		/* The Writes that are left end the connection. If there are none, this does. */
		in_time += read_from(&p, p.b.buf, to.rkey) != IBV_WC_SUCCESS;
		expect(becomes(&p.b, IBV_QPS_ERR));
		for (int i = 0; i < SIZE; i++)
			expect(p.b.buf[i] == 2);
		disconnect_pair(&p);
	}
	expect(in_time == 40);
}

static const struct {
	const char *name;
	void (*run)(void);
} tests[] = {
	{ "cq", test_cq }, { "cq-event", test_cq_event }, { "cq-busy", test_cq_busy },
	{ "srq", test_srq }, { "srq-busy", test_srq_busy },
	{ "mr", test_mr }, { "mr-write", test_mr_write }, { "mr-touch", test_mr_touch }, { "mr-refused", test_mr_refused }, { "mr-busy", test_mr_busy },
};

int main(int argc, char **argv)
{
	setvbuf(stdout, NULL, _IOLBF, 0);
	if (argc < 2)
		die("usage: %s ADDRESS [TEST]", argv[0]);
	address = argv[1];
	for (size_t i = 0; i < sizeof(tests) / sizeof(*tests); i++)
		if (argc < 3 || !strcmp(argv[2], tests[i].name)) {
			printf("%s\n", tests[i].name);
			tests[i].run();
		}
	return 0;
}
