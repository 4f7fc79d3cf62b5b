/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Checks that programs share, mostly of completions. A program that includes this sets the time
 * that it waits for one in WC_MS.
 */
#ifndef WC_H
#define WC_H

#include <infiniband/verbs.h>
#include <stdbool.h>
#include <stdint.h>
#include <unistd.h>

#include "must.h"

#define expect(what)                                                     \
	do {                                                             \
		if (!(what))                                             \
			die("not so: %s", #what);                        \
	} while (0)

/* The next completion of CQ, or false after MS milliseconds. */
static bool next_wc(struct ibv_cq *cq, struct ibv_wc *wc, int ms)
{
	for (int i = 0; i <= ms; i++) {
		int n = ibv_poll_cq(cq, 1, wc);

		expect(n >= 0);
		if (n)
			return true;
		usleep(1000);
	}
	return false;
}

static void expect_wc(struct ibv_cq *cq, uint64_t id, enum ibv_wc_status status)
{
	struct ibv_wc wc;

	if (!next_wc(cq, &wc, WC_MS))
		die("no completion %d", (int)id);
	if (wc.wr_id != id || wc.status != status)
		die("completion %d: %s in place of %d: %s", (int)wc.wr_id, ibv_wc_status_str(wc.status),
		    (int)id, ibv_wc_status_str(status));
}

#endif
