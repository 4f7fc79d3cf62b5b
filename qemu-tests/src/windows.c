// SPDX-License-Identifier: GPL-2.0
/*
 * "windows ADDRESS": a program with many memory windows, whose regions and queue pairs end.
 *
 * An end may take longer because of the windows that are bound to what ends, not because of all
 * others. So each round of ends is repeated with many windows, and compared with the first one.
 */
#define WC_MS 60000
#include "ends.h"
#include "times.h"

enum { WINDOWS = 8000, REGIONS = 1000, PAIRS = 40, DEPTH = 16 };

/* Regions on demand cost no locked memory, of which an ordinary user has little. */
static const int on_demand = IBV_ACCESS_ON_DEMAND | IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND;
static char page[4096] __attribute__((aligned(4096)));
static struct ibv_mw *windows[WINDOWS];
static struct ibv_mr *regions[REGIONS];
static struct pair binder, pairs[PAIRS];

static void bind_one(struct end *e, struct ibv_mw *mw, struct ibv_mr *mr, int id)
{
	struct ibv_send_wr wr = {
		.wr_id = id, .opcode = IBV_WR_BIND_MW, .send_flags = IBV_SEND_SIGNALED,
		.bind_mw = { .mw = mw, .rkey = ibv_inc_rkey(mw->rkey), .bind_info = {
			.mr = mr, .addr = (uintptr_t)page, .length = sizeof(page), .mw_access_flags = IBV_ACCESS_REMOTE_READ,
		} },
	}, *bad;

	must(ibv_post_send(e->id->qp, &wr, &bad));
}

/* Binds N windows from FIRST on: all to MR, or each to a region of its own. */
static void bind_all(int first, int n, struct ibv_mr *mr)
{
	for (int i = 0; i < n; i++) {
		if (i >= DEPTH)
			expect_wc(binder.a.scq, i - DEPTH, IBV_WC_SUCCESS);
		bind_one(&binder.a, windows[first + i], mr ?: regions[i], i);
	}
	for (int i = n < DEPTH ? 0 : n - DEPTH; i < n; i++)
		expect_wc(binder.a.scq, i, IBV_WC_SUCCESS);
}

static void make_regions(void)
{
	for (int i = 0; i < REGIONS; i++)
		must(!(regions[i] = ibv_reg_mr(binder.a.pd, page, sizeof(page), on_demand)));
}

static double end_regions(void)
{
	double began = now();

	for (int i = 0; i < REGIONS; i++)
		must(ibv_dereg_mr(regions[i]));
	return now() - began;
}

/* Each queue pair ends by a bind that is refused. */
static double end_pairs(struct ibv_mw *mw)
{
	struct shape shape = usual;
	double began, took;

	shape.pd = binder.a.pd;
	for (int i = 0; i < PAIRS; i++) {
		connect_pair(&pairs[i], &shape, &usual);
		settle(&pairs[i]);
	}
	began = now();
	for (int i = 0; i < PAIRS; i++) {
		struct ibv_mr nothing = { .lkey = 0xffffff00, .rkey = 0xffffff00 };

		bind_one(&pairs[i].a, mw, &nothing, 1);
	}
	for (int i = 0; i < PAIRS; i++) {
		struct ibv_wc wc;

		expect(next_wc(pairs[i].a.scq, &wc, WC_MS) && wc.status == IBV_WC_MW_BIND_ERR);
		while (state(&pairs[i].a) != IBV_QPS_ERR)
			usleep(1000);
	}
	took = now() - began;
	for (int i = 0; i < PAIRS; i++)
		disconnect_pair(&pairs[i]);
	return took;
}

static void compare(const char *what, double few, double many)
{
	printf("%s: %.3f s, with %d windows %.3f s\n", what, few, WINDOWS, many);
	if (many > 3 * few + 0.5)
		die("that is too long");
}

int main(int argc, char **argv)
{
	double few, pairs_few;
	struct ibv_mr *sink;
	struct ibv_mw *mw;

	setvbuf(stdout, NULL, _IOLBF, 0);
	expect(argc == 2);
	address = argv[1];
	connect_pair(&binder, &usual, &usual);
	settle(&binder);
	must(!(mw = ibv_alloc_mw(binder.a.pd, IBV_MW_TYPE_2)));
	make_regions();
	few = end_regions();
	pairs_few = end_pairs(mw);

	for (int i = 0; i < WINDOWS; i++)
		must(!(windows[i] = ibv_alloc_mw(binder.a.pd, IBV_MW_TYPE_2)));
	make_regions();
	compare("regions", few, end_regions());
	must(!(sink = ibv_reg_mr(binder.a.pd, page, sizeof(page), on_demand)));
	bind_all(REGIONS, WINDOWS / 2, sink);
	make_regions();
	bind_all(0, REGIONS, NULL);
	compare("regions with a window each", few, end_regions());
	compare("queue pairs", pairs_few, end_pairs(mw));
	/* All of these end with the program. */
	make_regions();
	printf("exercised %d windows\n", WINDOWS);
	return 0;
}
