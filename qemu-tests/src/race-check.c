// SPDX-License-Identifier: GPL-2.0
/*
 * Checks of calls that meet what happens at the same time: the overrun of a completion queue, by
 * chance; the arrival of a peer, a bind, the end of a window, and the use of memory on demand, by
 * siw-consumer, which holds threads ("hold"); the end of this program. Run as "race-check DEVICE
 * GID-INDEX SEED TEST".
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <sys/mman.h>

#define WC_MS 60000
#include "pair.h"
#include "rng.h"

static struct rng r;
/* Seconds of a test by chance. */
static int seconds = 3;
static struct timespec began;

static bool time_left(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec - began.tv_sec < seconds;
}

/* Up to MAX microseconds, with and without giving up the CPU. */
static void pause_upto(int max)
{
	uint64_t ns = 1000 * below(&r, max);
	struct timespec from, now;

	if (below(&r, 4) == 0) {
		usleep(ns / 1000);
		return;
	}
	clock_gettime(CLOCK_MONOTONIC, &from);
	do
		clock_gettime(CLOCK_MONOTONIC, &now);
	while ((now.tv_sec - from.tv_sec) * 1000000000ull + now.tv_nsec - from.tv_nsec < ns);
}

/* The next completion, without a delay that a race would lose. */
static enum ibv_wc_status wait_wc(struct ibv_cq *cq, uint64_t id)
{
	struct ibv_wc wc;
	int n;

	while (!(n = ibv_poll_cq(cq, 1, &wc)))
		sched_yield();
	expect(n == 1 && wc.wr_id == id);
	return wc.status;
}

static void forget_completions(struct end *e)
{
	struct ibv_wc wc;

	while (ibv_poll_cq(e->scq, 1, &wc) > 0 || ibv_poll_cq(e->rcq, 1, &wc) > 0)
		;
}

/* Connects, and waits until both ends are. */
static void connect(struct end *a, struct end *b)
{
	both_to_rts(a, b);
	post(a, IBV_WR_RDMA_READ, 8, b->mr);
	expect(wait_wc(a->scq, 8) == IBV_WC_SUCCESS);
}

static void reset(struct end *a, struct end *b)
{
	must(to(a, IBV_QPS_RESET));
	must(to(b, IBV_QPS_RESET));
	forget_completions(a);
	forget_completions(b);
	to_init(a);
	to_init(b);
}

/*
 * RESET succeeds although a completion queue overruns. The queue pair then begins anew, until
 * something of it completes there.
 */
static void test_overrun(void)
{
	int rounds, dead = 0;

	for (rounds = 0; time_left(); rounds++) {
		struct end a, b;
		struct ibv_wc wc;

		make_for(&a, 1);
		make(&b);
		connect(&a, &b);
		for (int i = 0; i < 4; i++)
			post_recv(&a, i);
		for (int i = 0; i < 4; i++)
			post(&b, IBV_WR_SEND, i, NULL);
		pause_upto(100);
		must(to(&a, IBV_QPS_RESET));
		expect(state(&a) == IBV_QPS_INIT);
		reset(&a, &b);
		both_to_rts(&a, &b);
		post_recv(&a, 1);
		post(&b, IBV_WR_SEND, 2, NULL);
		while (state(&a) != IBV_QPS_ERR && ibv_poll_cq(a.rcq, 1, &wc) != 1)
			sched_yield();
		dead += state(&a) == IBV_QPS_ERR;
		unmake(&a);
		unmake(&b);
	}
	printf("  %d rounds, the queue was lost in %d\n", rounds, dead);
}

/* A file in which siw-consumer shares two numbers, one for each place where it holds threads. */
static FILE *numbers(const char *name, const char *mode)
{
	char path[200];
	FILE *file;

	snprintf(path, sizeof(path), "/sys/module/siw_consumer/parameters/%s", name);
	must(!(file = fopen(path, mode)));
	return file;
}

/* Waits until a thread is held at place NR for the time TURN. */
static void await_held(int nr, int turn)
{
	for (int i = 0;; i++) {
		FILE *file = numbers("held", "r");
		int held[2];

		must(fscanf(file, "%d,%d", &held[0], &held[1]) != 2);
		fclose(file);
		if (held[nr] >= turn)
			return;
		if (i == WC_MS)
			die("no thread has come to place %d", nr);
		usleep(1000);
	}
}

/* Lets threads go on, so many times at each place. */
static void let_go(int first, int second)
{
	FILE *file = numbers("let_go", "w");

	must(fprintf(file, "%d,%d", first, second) < 0);
	must(fclose(file));
}

enum { ALL = 1000 };

/*
 * A peer that has come when RESET takes the wait for it away is not let in. The thread that lets it
 * in is held meanwhile.
 */
static void test_join(void)
{
	struct end a, b, *here, *there;
	uint64_t before;

	make(&a);
	make(&b);
	/* The end with the smaller number listens. */
	here = a.qp->qp_num < b.qp->qp_num ? &b : &a;
	there = here == &a ? &b : &a;
	must(to_rtr(there, here->qp->qp_num, here->psn));
	must(to_rts(there));
	post(there, IBV_WR_RDMA_READ, 1, here->mr);
	before = counter("passive_connects");
	must(to_rtr(here, there->qp->qp_num, there->psn));
	/* The other end has let us in, or an attempt has failed because it does not listen yet. */
	for (int turn = 1;; turn++) {
		await_held(0, turn);
		if (counter("passive_connects") > before)
			break;
		let_go(turn, 0);
	}
	must(to(here, IBV_QPS_RESET));
	let_go(ALL, 0);
	expect(wait_wc(there->scq, 1) != IBV_WC_SUCCESS);
	to_init(here);
	/* This fails if there is a peer. */
	must(to_rtr(here, there->qp->qp_num ^ 0x800000, there->psn));
	unmake(&a);
	unmake(&b);
}

struct binder {
	struct end *from;
	struct ibv_mw *mw;
	struct ibv_mr *mr;
	int access;
	bool bound;
};

static const int all_rights = RIGHTS | IBV_ACCESS_MW_BIND;

static void *bind(void *arg)
{
	struct binder *z = arg;
	struct ibv_mw_bind bind = {
		.wr_id = 5, .send_flags = IBV_SEND_SIGNALED,
		.bind_info = { .mr = z->mr, .addr = (uintptr_t)z->from->buf, .length = 64,
			       .mw_access_flags = IBV_ACCESS_REMOTE_READ },
	};

	must(ibv_bind_mw(z->from->qp, z->mw, &bind));
	z->bound = wait_wc(z->from->scq, 5) == IBV_WC_SUCCESS;
	return NULL;
}

static void *rereg(void *arg)
{
	struct binder *z = arg;

	must(ibv_rereg_mr(z->mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, z->access));
	return NULL;
}

/* Starts a thread by whose name siw-consumer knows it. */
static pthread_t start(const char *name, void *(*run)(void *), void *arg)
{
	pthread_t thread;
	char own[16];

	/* The name is inherited. */
	must(pthread_getname_np(pthread_self(), own, sizeof(own)));
	must(pthread_setname_np(pthread_self(), name));
	must(pthread_create(&thread, NULL, run, arg));
	must(pthread_setname_np(pthread_self(), own));
	return thread;
}

/*
 * No bind outlives a re-registration. It has looked at the region as it was, and is held where it
 * locks the windows until the change is done. siw-consumer knows that lock as the last one that a
 * re-registration takes.
 */
static void test_bind(void)
{
	struct end a, b;
	struct binder z = { .from = &a, .access = all_rights };
	pthread_t binds;

	make(&a);
	make(&b);
	must(!(z.mr = ibv_reg_mr(pd, a.buf, SIZE, all_rights)));
	must(!(z.mw = ibv_alloc_mw(pd, IBV_MW_TYPE_1)));
	connect(&a, &b);
	must(pthread_join(start("rereg", rereg, &z), NULL));
	binds = start("bind", bind, &z);
	await_held(0, 1);
	z.access = IBV_ACCESS_LOCAL_WRITE;
	must(pthread_join(start("rereg", rereg, &z), NULL));
	let_go(ALL, 0);
	must(pthread_join(binds, NULL));
	expect(!z.bound);
	/* EBUSY if there is a window. */
	must(ibv_rereg_mr(z.mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, all_rights));
	must(ibv_dealloc_mw(z.mw));
	must(ibv_dereg_mr(z.mr));
	unmake(&a);
	unmake(&b);
}

static void *dealloc(void *arg)
{
	must(ibv_dealloc_mw(arg));
	return NULL;
}

/*
 * A window that is being deallocated gives no access to its region after the region has ended. The
 * thread that deallocates it is held after it has left the list of windows.
 */
static void test_freed(void)
{
	struct end a, b;
	struct binder z = { .from = &a };
	struct ibv_mr window;
	pthread_t freer;

	make(&a);
	make(&b);
	must(!(z.mr = ibv_reg_mr(pd, a.buf, SIZE, all_rights)));
	must(!(z.mw = ibv_alloc_mw(pd, IBV_MW_TYPE_1)));
	connect(&a, &b);
	bind(&z);
	expect(z.bound);
	window = (struct ibv_mr){ .addr = a.buf, .rkey = z.mw->rkey };
	post(&b, IBV_WR_RDMA_READ, 7, &window);
	expect(wait_wc(b.scq, 7) == IBV_WC_SUCCESS);
	freer = start("freer", dealloc, z.mw);
	await_held(0, 1);
	must(ibv_dereg_mr(z.mr));
	post(&b, IBV_WR_RDMA_READ, 8, &window);
	expect(wait_wc(b.scq, 8) == IBV_WC_REM_ACCESS_ERR);
	let_go(ALL, 0);
	must(pthread_join(freer, NULL));
	unmake(&a);
	unmake(&b);
}

/* As many binds as the SQ has room for, until this program is killed. */
static void test_binds(void)
{
	enum { WINDOWS = 8, DEPTH = 14 };
	struct ibv_mw *mw[WINDOWS];
	struct ibv_mr *mr;
	struct end a, b;

	make_two(&a, &b);
	connect(&a, &b);
	must(!(mr = ibv_reg_mr(pd, a.buf, SIZE, all_rights)));
	for (int i = 0; i < WINDOWS; i++)
		must(!(mw[i] = ibv_alloc_mw(pd, IBV_MW_TYPE_1)));
	for (int i = 0;; i++) {
		struct ibv_mw_bind bind = {
			.wr_id = 5, .send_flags = IBV_SEND_SIGNALED,
			.bind_info = { .mr = mr, .addr = (uintptr_t)a.buf, .length = 64,
				       .mw_access_flags = IBV_ACCESS_REMOTE_READ },
		};

		if (i >= DEPTH)
			expect_wc(a.scq, 5, IBV_WC_SUCCESS);
		must(ibv_bind_mw(a.qp, mw[i % WINDOWS], &bind));
	}
}

/* Memory on demand that one thread sends, and another one takes away. */
struct lent {
	struct end from, to;
	struct ibv_mr *mr;
	char *page;
	atomic_bool gone;
};

static void lend(struct lent *z)
{
	make_two(&z->from, &z->to);
	connect(&z->from, &z->to);
	z->gone = false;
	z->page = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	expect(z->page != MAP_FAILED);
	must(!(z->mr = ibv_reg_mr(pd, z->page, SIZE, IBV_ACCESS_ON_DEMAND)));
}

static void unlend(struct lent *z)
{
	must(munmap(z->page, SIZE));
	unmake(&z->from);
	unmake(&z->to);
}

/* Writes the page to the other end. */
static void *send_page(void *arg)
{
	struct lent *z = arg;
	struct ibv_sge sge = { .addr = (uintptr_t)z->page, .length = 64, .lkey = z->mr->lkey };
	struct ibv_send_wr wr = {
		.wr_id = 6, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE, .send_flags = IBV_SEND_SIGNALED,
		.wr.rdma = { .remote_addr = (uintptr_t)z->to.buf, .rkey = z->to.mr->rkey },
	}, *bad;

	must(ibv_post_send(z->from.qp, &wr, &bad));
	return NULL;
}

static void *take_page(void *arg)
{
	struct lent *z = arg;

	must(madvise(z->page, SIZE, MADV_DONTNEED));
	z->gone = true;
	return NULL;
}

/* The kernel takes a page away only after who reads it, who is held, has done so. */
static void test_page(void)
{
	pthread_t reader, taker;
	struct lent z;

	lend(&z);
	strcpy(z.page, "as it was");
	/* This brings it. */
	send_page(&z);
	expect_wc(z.from.scq, 6, IBV_WC_SUCCESS);
	reader = start("reader", send_page, &z);
	await_held(0, 1);
	taker = start("taker", take_page, &z);
	await_held(1, 1);
	let_go(0, ALL);
	usleep(200000);
	expect(!z.gone);
	let_go(ALL, ALL);
	must(pthread_join(reader, NULL));
	must(pthread_join(taker, NULL));
	expect_wc(z.from.scq, 6, IBV_WC_SUCCESS);
	must(ibv_dereg_mr(z.mr));
	unlend(&z);
}

/* The region goes after a page of it was not there, and before that is asked for. */
static void test_gone(void)
{
	pthread_t reader;
	struct lent z;

	lend(&z);
	reader = start("reader", send_page, &z);
	await_held(0, 1);
	must(ibv_dereg_mr(z.mr));
	let_go(ALL, ALL);
	must(pthread_join(reader, NULL));
	expect_wc(z.from.scq, 6, IBV_WC_LOC_PROT_ERR);
	unlend(&z);
}

static const struct {
	const char *name;
	void (*run)(void);
} tests[] = {
	{ "overrun", test_overrun }, { "join", test_join }, { "bind", test_bind }, { "freed", test_freed },
	{ "binds", test_binds }, { "page", test_page }, { "gone", test_gone },
};

int main(int argc, char **argv)
{
	setvbuf(stdout, NULL, _IOLBF, 0);
	if (argc < 5)
		die("usage: %s DEVICE GID-INDEX SEED TEST", argv[0]);
	open_device(argv[1], atoi(argv[2]));
	if (getenv("TEST_SECONDS"))
		seconds = atoi(getenv("TEST_SECONDS"));
	for (unsigned int i = 0; i < sizeof(tests) / sizeof(tests[0]); i++)
		if (!strcmp(argv[4], tests[i].name)) {
			r = rng_of(strtoul(argv[3], NULL, 0), i);
			clock_gettime(CLOCK_MONOTONIC, &began);
			tests[i].run();
		}
	return 0;
}
