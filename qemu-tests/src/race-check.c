// SPDX-License-Identifier: GPL-2.0
/*
 * Checks of calls that meet what happens at the same time: the overrun of a completion queue, by
 * chance. Run as "race-check DEVICE GID-INDEX SEED TEST".
 */
#include <sched.h>

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

static const struct {
	const char *name;
	void (*run)(void);
} tests[] = {
	{ "overrun", test_overrun },
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
