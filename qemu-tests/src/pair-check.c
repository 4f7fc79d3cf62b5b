// SPDX-License-Identifier: GPL-2.0
/*
 * Checks of queue pairs that connect without a connection manager, by modify_qp alone.
 * Both ends are in this process. Run as "pair-check DEVICE GID-INDEX [TEST]".
 */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdbool.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <infiniband/verbs.h>

#define WC_MS 60000
#include "pair.h"

#define PORT 290

/* The library is ours. */
static bool ours;
/* The first status when the peer does not come: the stock library has no code for it. */
static enum ibv_wc_status unreachable = IBV_WC_GENERAL_ERR;

/* Either end comes first, by any time. Work requests posted before the other end comes wait. */
static void test_order(void)
{
	/* a: RTR, RTS; b: RTR, RTS; p and q: a and b post a send; w: a while passes */
	static const char *const orders[] = {
		"ABabpq", "AaBbpq", "BbAapq", "BAbaqp", "AapwBbq", "BbqwAap", "AwBwawbwpq", "AaBwpbq", "BbAwqap",
		"AwBabpq",
	};

	for (unsigned int i = 0; i < sizeof(orders) / sizeof(orders[0]); i++)
		for (int swap = 0; swap < 2; swap++) {
			struct end one, two, *a = swap ? &two : &one, *b = swap ? &one : &two;

			make_two(&one, &two);
			post_recv(a, 1);
			post_recv(b, 2);
			for (const char *c = orders[i]; *c; c++)
				switch (*c) {
				case 'A': must(to_rtr(a, b->qp->qp_num, b->psn)); break;
				case 'B': must(to_rtr(b, a->qp->qp_num, a->psn)); break;
				case 'a': must(to_rts(a)); break;
				case 'b': must(to_rts(b)); break;
				case 'p': post(a, IBV_WR_SEND, 3, NULL); break;
				case 'q': post(b, IBV_WR_SEND, 4, NULL); break;
				case 'w': usleep(700000); break;
				}
			expect_wc(a->scq, 3, IBV_WC_SUCCESS);
			expect_wc(b->rcq, 2, IBV_WC_SUCCESS);
			expect_wc(b->scq, 4, IBV_WC_SUCCESS);
			expect_wc(a->rcq, 1, IBV_WC_SUCCESS);
			expect(state(a) == IBV_QPS_RTS && state(b) == IBV_QPS_RTS);
			unmake(&one);
			unmake(&two);
		}
}

/* The target of Writes and Reads may stay in RTR. */
static void test_target(void)
{
	for (int swap = 0; swap < 2; swap++) {
		struct end one, two, *a = swap ? &two : &one, *b = swap ? &one : &two;

		make_two(&one, &two);
		must(to_rtr(b, a->qp->qp_num, a->psn));
		must(to_rtr(a, b->qp->qp_num, b->psn));
		must(to_rts(a));
		strcpy(a->buf, "written");
		post(a, IBV_WR_RDMA_WRITE, 1, b->mr);
		expect_wc(a->scq, 1, IBV_WC_SUCCESS);
		memset(a->buf, 0, SIZE);
		post(a, IBV_WR_RDMA_READ, 2, b->mr);
		expect_wc(a->scq, 2, IBV_WC_SUCCESS);
		expect(!strcmp(a->buf, "written"));
		expect(state(b) == IBV_QPS_RTR);
		must(to_rts(b));
		send_one(b, a);
		unmake(&one);
		unmake(&two);
	}
}

static void expect_event(struct end *e, enum ibv_event_type type)
{
	struct ibv_async_event event;
	bool found;

	do {
		must(ibv_get_async_event(device, &event));
		found = event.event_type == type && event.element.qp == e->qp;
		ibv_ack_async_event(&event);
	} while (!found);
}

static void allow(struct end *e, int flags)
{
	struct ibv_qp_attr attr = { .qp_access_flags = flags };

	must(ibv_modify_qp(e->qp, &attr, IBV_QP_ACCESS_FLAGS));
}

/*
 * A peer cannot do what the access flags of a queue pair forbid, even if the region allows it.
 */
static void test_rights(void)
{
	/* The stock library has no atomic operations. */
	static const enum ibv_wr_opcode ops[] = { IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ, IBV_WR_ATOMIC_FETCH_AND_ADD };
	static const int needs[] = { IBV_ACCESS_REMOTE_WRITE, IBV_ACCESS_REMOTE_READ, IBV_ACCESS_REMOTE_ATOMIC };
	static const int flags[] = {
		0, IBV_ACCESS_LOCAL_WRITE, IBV_ACCESS_REMOTE_WRITE, IBV_ACCESS_REMOTE_READ, IBV_ACCESS_REMOTE_ATOMIC, RIGHTS,
	};
	const int n = ours ? 3 : 2;

	for (unsigned int i = 0; i < 2 * n * sizeof(flags) / sizeof(flags[0]); i++) {
		int op = i % n, late = i / n % 2, given = flags[i / n / 2];
		struct end a, b;
		struct ibv_wc wc;

		make_two(&a, &b);
		allow(&b, late ? RIGHTS : given);
		both_to_rts(&a, &b);
		send_one(&a, &b);
		send_one(&b, &a);
		if (late)
			allow(&b, given);
		strcpy(a.buf, "of a");
		strcpy(b.buf, "of b");
		post_recv(&b, 1);
		post(&a, ops[op], 2, b.mr);
		if (given & needs[op]) {
			expect_wc(a.scq, 2, IBV_WC_SUCCESS);
			post(&a, IBV_WR_SEND, 3, NULL);
			expect_wc(b.rcq, 1, IBV_WC_SUCCESS);
			expect(!strcmp(a.buf, b.buf));
		} else {
			expect_wc(b.rcq, 1, IBV_WC_WR_FLUSH_ERR);
			expect_event(&b, IBV_EVENT_QP_ACCESS_ERR);
			expect(next_wc(a.scq, &wc, WC_MS) && wc.wr_id == 2);
			/* A Write is complete when it is sent. */
			expect(wc.status != IBV_WC_SUCCESS || ops[op] == IBV_WR_RDMA_WRITE);
			expect(!strcmp(a.buf, "of a") && !strcmp(b.buf, "of b"));
		}
		unmake(&a);
		unmake(&b);
	}
}

static void test_query(void)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;
	struct end a, b;

	make_two(&a, &b);
	for (int connected = 0; connected < 2; connected++) {
		if (!connected) {
			must(to_rtr(&a, b.qp->qp_num, b.psn));
			must(to_rts(&a));
		} else {
			must(to_rtr(&b, a.qp->qp_num, a.psn));
			must(to_rts(&b));
			send_one(&a, &b);
		}
		must(ibv_query_qp(a.qp, &attr, IBV_QP_STATE | IBV_QP_AV, &init));
		expect(attr.qp_state == IBV_QPS_RTS && attr.dest_qp_num == b.qp->qp_num);
		expect(attr.rq_psn == b.psn && attr.sq_psn == a.psn && attr.path_mtu == IBV_MTU_1024);
		expect(attr.timeout == 22 && attr.retry_cnt == 7 && attr.rnr_retry == 7 && attr.min_rnr_timer == 12);
		expect(attr.max_rd_atomic == 4 && attr.max_dest_rd_atomic == 4);
		expect(attr.ah_attr.is_global && attr.ah_attr.grh.sgid_index == gid_index);
		expect(!memcmp(&attr.ah_attr.grh.dgid, &gid, sizeof(gid)));
	}
	unmake(&a);
	unmake(&b);
}

/* The peer is missing, or not the named one: the first work request reports it. libsiw has no
 * code for "retries exceeded". */
static void test_wrong(void)
{
	struct end ends[8][2];

	for (int i = 0; i < 8; i++) {
		struct end *a = &ends[i][i & 1], *b = &ends[i][!(i & 1)];
		uint32_t there, back, psn;

		make_two(&ends[i][0], &ends[i][1]);
		there = b->qp->qp_num;
		back = a->qp->qp_num;
		psn = a->psn;
		switch (i / 2) {
		case 0: there ^= 0x800000; break; /* no queue pair has this number */
		case 1: back ^= 0x800000; break; /* it waits for another peer */
		case 2: psn ^= 1; break; /* this number, but an earlier queue pair */
		case 3: break; /* it never gets to RTR */
		}
		must(to_rtr(a, there, b->psn));
		must(to_rts_within(a, 14));
		post_recv(a, 9);
		post(a, IBV_WR_SEND, 1, NULL);
		post(a, IBV_WR_SEND, 2, NULL);
		if (i / 2 != 3) {
			must(to_rtr(b, back, psn));
			must(to_rts(b));
		}
	}
	for (int i = 0; i < 8; i++) {
		struct end *a = &ends[i][i & 1];

		expect_wc(a->scq, 1, unreachable);
		expect_wc(a->scq, 2, IBV_WC_WR_FLUSH_ERR);
		expect_wc(a->rcq, 9, IBV_WC_WR_FLUSH_ERR);
		expect(state(a) == IBV_QPS_ERR);
	}
	for (int i = 0; i < 16; i++)
		unmake(&ends[i / 2][i & 1]);
}

/* Invalid requests are refused at once. */
static void test_invalid(void)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_RTR, .dest_qp_num = 2, .ah_attr = { .port_num = 1 } };
	struct end a, b;

	make_two(&a, &b);
	/* connected with itself */
	expect(to_rtr(&a, a.qp->qp_num, a.psn) == EINVAL);
	/* no address */
	expect(ibv_modify_qp(a.qp, &attr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
			     IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER) == EINVAL);
	/* RTS before RTR */
	expect(to_rts(&a) == EINVAL);
	must(to_rtr(&a, b.qp->qp_num, b.psn));
	/* twice */
	expect(to_rtr(&a, b.qp->qp_num, b.psn) == EINVAL);
	unmake(&a);
	unmake(&b);
}

/* The state E is in, to which none of these leads with the state alone. */
static void expect_stuck(struct end *e, enum ibv_qp_state now)
{
	for (enum ibv_qp_state next = IBV_QPS_INIT; next <= IBV_QPS_RTS; next++)
		if (next != now)
			expect(to(e, next) == EINVAL);
	/* RESET is shown as INIT. */
	expect(state(e) == (now == IBV_QPS_RESET ? IBV_QPS_INIT : now));
}

/*
 * Changes of state that verbs do not have, and those without all of their attributes. With fewer,
 * both ends would show RTS, and what is posted would never complete.
 */
static void test_changes(void)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_RTS, .cur_qp_state = IBV_QPS_RTR };
	struct end a, b;

	make_two(&a, &b);
	must(to(&a, IBV_QPS_RESET));
	expect_stuck(&a, IBV_QPS_RESET);
	expect(to_rtr(&a, b.qp->qp_num, b.psn) == EINVAL);
	to_init(&a);
	expect_stuck(&a, IBV_QPS_INIT);
	for (int bit = 1; bit <= RTR_ATTRS; bit <<= 1)
		if (bit & RTR_ATTRS)
			expect(to_rtr_with(&a, b.qp->qp_num, b.psn, RTR_ATTRS & ~bit) == EINVAL);
	expect(to_rtr_with(&a, b.qp->qp_num, b.psn, RTR_ATTRS | IBV_QP_CAP) == EINVAL);
	must(to_rtr(&a, b.qp->qp_num, b.psn));
	expect_stuck(&a, IBV_QPS_RTR);
	for (int bit = 1; bit <= RTS_ATTRS; bit <<= 1)
		if (bit & RTS_ATTRS)
			expect(to_rts_with(&a, 22, RTS_ATTRS & ~bit) == EINVAL);
	must(to_rts(&a));
	must(to_rtr(&b, a.qp->qp_num, a.psn));
	must(to_rts(&b));
	send_one(&a, &b);
	expect(to(&a, IBV_QPS_INIT) == EINVAL && to(&a, IBV_QPS_RTR) == EINVAL);
	expect(ibv_modify_qp(a.qp, &attr, IBV_QP_STATE | IBV_QP_CUR_STATE) == EINVAL);
	attr.cur_qp_state = IBV_QPS_RTS;
	must(ibv_modify_qp(a.qp, &attr, IBV_QP_STATE | IBV_QP_CUR_STATE));
	send_one(&b, &a);
	must(to(&a, IBV_QPS_ERR));
	expect_stuck(&a, IBV_QPS_ERR);
	unmake(&a);
	unmake(&b);
}

/*
 * Values that the device does not have, or verbs cannot express, are refused, and change nothing.
 */
static void test_ranges(void)
{
	struct ibv_qp_attr init = { .qp_state = IBV_QPS_INIT, .pkey_index = 1, .port_num = 1 };
	struct ibv_qp_init_attr made;
	struct ibv_device_attr has;
	struct ibv_qp_attr attr;
	struct end a, b;

	must(ibv_query_device(device, &has));
	make_two(&a, &b);
	must(to(&a, IBV_QPS_RESET));
	expect(ibv_modify_qp(a.qp, &init, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS) == EINVAL);
	to_init(&a);

	attr = rtr_attr(b.qp->qp_num, b.psn);
	attr.max_dest_rd_atomic = has.max_qp_rd_atom + 1;
	expect(ibv_modify_qp(a.qp, &attr, IBV_QP_STATE | RTR_ATTRS) == EINVAL);
	attr.max_dest_rd_atomic = has.max_qp_rd_atom;
	must(ibv_modify_qp(a.qp, &attr, IBV_QP_STATE | RTR_ATTRS));

	attr = rts_attr(&a, 32);
	attr.max_rd_atomic = has.max_qp_init_rd_atom;
	expect(ibv_modify_qp(a.qp, &attr, IBV_QP_STATE | RTS_ATTRS) == EINVAL);
	attr.timeout = 31;
	attr.max_rd_atomic = has.max_qp_init_rd_atom + 1;
	expect(ibv_modify_qp(a.qp, &attr, IBV_QP_STATE | RTS_ATTRS) == EINVAL);
	expect(state(&a) == IBV_QPS_RTR);
	attr.max_rd_atomic = has.max_qp_init_rd_atom;
	must(ibv_modify_qp(a.qp, &attr, IBV_QP_STATE | RTS_ATTRS));
	must(ibv_query_qp(a.qp, &attr, IBV_QP_STATE, &made));
	expect(attr.max_rd_atomic == has.max_qp_init_rd_atom && attr.max_dest_rd_atomic == has.max_qp_rd_atom);
	expect(attr.timeout == 31 && attr.pkey_index == 0);
	unmake(&a);
	unmake(&b);
}

/* The end of a wait, in every way, at every stage. */
static void test_ends(void)
{
	static const enum ibv_qp_state ways[] = { IBV_QPS_ERR, IBV_QPS_RESET, IBV_QPS_SQD, IBV_QPS_UNKNOWN };
	struct ibv_wc wc;

	for (unsigned int way = 0; way < sizeof(ways) / sizeof(ways[0]); way++)
		for (int when = 0; when < 8; when++) {
			struct end one, two, *a = when & 1 ? &two : &one, *b = when & 1 ? &one : &two;

			make_two(&one, &two);
			must(to_rtr(a, b->qp->qp_num, b->psn));
			if (when & 2) {
				must(to_rts(a));
				post_recv(a, 1);
				post(a, IBV_WR_SEND, 2, NULL);
			}
			/* With and without time to begin the search for the peer. */
			if (when & 4)
				usleep(100000);
			switch (ways[way]) {
			case IBV_QPS_UNKNOWN: /* destroyed, in unmake() */
				break;
			case IBV_QPS_RESET:
				must(to(a, IBV_QPS_RESET));
				expect(!next_wc(a->scq, &wc, 5) && !next_wc(a->rcq, &wc, 5));
				/* as new */
				expect(state(a) == IBV_QPS_INIT);
				to_init(a);
				both_to_rts(a, b);
				send_one(a, b);
				send_one(b, a);
				break;
			default:
				must(to(a, ways[way]));
				if (when & 2) {
					expect_wc(a->scq, 2, IBV_WC_WR_FLUSH_ERR);
					expect_wc(a->rcq, 1, IBV_WC_WR_FLUSH_ERR);
				}
				break;
			}
			unmake(&one);
			unmake(&two);
		}
}

/* As in InfiniBand, a program hears that its peer is gone only when it sends something. */
static void test_gone(void)
{
	struct end a, b;
	struct ibv_wc wc;

	for (int swap = 0; swap < 2; swap++) {
		make_two(&a, &b);
		both_to_rts(&a, &b);
		send_one(&a, &b);
		send_one(&b, &a);
		post_recv(swap ? &b : &a, 9);
		unmake(swap ? &a : &b);
		expect(!next_wc((swap ? &b : &a)->rcq, &wc, 300));
		expect(state(swap ? &b : &a) == IBV_QPS_RTS);
		post(swap ? &b : &a, IBV_WR_SEND, 1, NULL);
		expect_wc((swap ? &b : &a)->scq, 1, unreachable);
		expect_wc((swap ? &b : &a)->rcq, 9, IBV_WC_WR_FLUSH_ERR);
		unmake(swap ? &b : &a);
	}
}

/* Nothing of this queue pair is to be polled. */
static void expect_none(struct end *e)
{
	struct ibv_wc wc;

	expect(!next_wc(e->scq, &wc, 5) && !next_wc(e->rcq, &wc, 5));
}

/* A queue pair begins anew after RESET, from RTS and from ERR, idle and with all queues in use. */
static void test_again(void)
{
	struct ibv_wc wc;
	struct end a, b;

	make_two(&a, &b);
	for (int round = 0; round < 40; round++) {
		struct end *first = round & 1 ? &a : &b, *second = round & 1 ? &b : &a;

		both_to_rts(&a, &b);
		send_one(&a, &b);
		send_one(&b, &a);
		post(&a, IBV_WR_RDMA_READ, 3, b.mr);
		expect_wc(a.scq, 3, IBV_WC_SUCCESS);
		if (round & 2)
			for (int i = 0; i < 12; i++) {
				post_recv(&a, 70 + i);
				post_recv(&b, 70 + i);
				post(second, i & 1 ? IBV_WR_RDMA_WRITE : IBV_WR_RDMA_READ, 50 + i, first->mr);
			}
		if (round & 4) {
			must(to(first, IBV_QPS_ERR));
			for (int i = 0; round & 2 && i < 12; i++)
				expect_wc(first->rcq, 70 + i, IBV_WC_WR_FLUSH_ERR);
			expect_none(first);
		}
		must(to(first, IBV_QPS_RESET));
		expect(state(first) == IBV_QPS_INIT);
		/* What arrives now, or what the peer finds out, is of the old connection. */
		expect_none(first);
		if (round & 8)
			usleep(20000);
		must(to(second, IBV_QPS_RESET));
		/* What was complete before may be polled. */
		while (next_wc(second->scq, &wc, 0) || next_wc(second->rcq, &wc, 0))
			;
		expect_none(second);
		if (round & 16) {
			/* another peer */
			unmake(second);
			make(second);
		} else {
			to_init(second);
		}
		memset(first->buf, round, SIZE);
		to_init(first);
	}
	unmake(&a);
	unmake(&b);
}

/* So does one that was never connected. What is posted to it is dropped. */
static void test_unconnected(void)
{
	struct end a, b;

	for (int failed = 0; failed < 2; failed++) {
		make_two(&a, &b);
		for (int i = 0; i < 16; i++)
			post_recv(&a, 70 + i);
		if (failed) {
			must(to(&a, IBV_QPS_ERR));
			for (int i = 0; i < 16; i++)
				expect_wc(a.rcq, 70 + i, IBV_WC_WR_FLUSH_ERR);
		}
		must(to(&a, IBV_QPS_RESET));
		expect_none(&a);
		to_init(&a);
		both_to_rts(&a, &b);
		send_one(&a, &b);
		send_one(&b, &a);
		unmake(&a);
		unmake(&b);
	}
}

enum answer { ACCEPTED, REJECTED, RESET };
enum { PRIVILEGED, ANY_PORT, FROM_LOOPBACK };

/* A connection to an end that waits for its peer. */
static int call(int from)
{
	struct sockaddr_in to = { .sin_family = AF_INET, .sin_port = htons(PORT) }, source = { .sin_family = AF_INET };
	int fd;

	memcpy(&to.sin_addr, gid.raw + 12, 4);
	if (from == FROM_LOOPBACK)
		source.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	for (int tries = 0;; tries++) {
		must((fd = socket(AF_INET, SOCK_STREAM, 0)) < 0);
		if (from != ANY_PORT)
			must(bindresvport(fd, &source));
		/* A refusal may arrive before connect() returns. */
		if (!connect(fd, (void *)&to, sizeof(to)) || errno == ECONNRESET)
			return fd;
		/* Nobody listens yet, or the port was used a moment ago. */
		if ((errno != ECONNREFUSED && errno != EADDRNOTAVAIL) || tries == 1000)
			die("connect: %s", strerror(errno));
		close(fd);
		usleep(10000);
	}
}

/* The answer to a request. */
static enum answer ask(int fd, const void *data, size_t len)
{
	char answer[64];
	ssize_t n;

	/* The connection may be refused before the request is sent. */
	n = send(fd, data, len, MSG_NOSIGNAL);
	expect(n == (ssize_t)len || (n < 0 && (errno == ECONNRESET || errno == EPIPE)));
	n = read(fd, answer, sizeof(answer));
	close(fd);
	if (n <= 0)
		return RESET;
	expect(n >= 20);
	return answer[16] & 0x20 ? REJECTED : ACCEPTED;
}

#define WORDS 13
/* The request that B would send to A, with one word of its hello changed. */
struct request {
	unsigned char frame[20 + 4 + 4 * WORDS];
};

/* The request if the device of B were another one, in life EPOCH since boot BOOT of its host. */
static struct request request_in(struct end *a, struct end *b, uint32_t boot, uint32_t epoch, int word,
				 uint32_t change)
{
	uint32_t hello[WORDS] = {
		0x73697751, 0x02010000, b->qp->qp_num, a->qp->qp_num, a->psn, b->psn,
		0, 0, 0, 77, 0, boot, epoch,
	};
	struct request r = { 0 };

	hello[word] ^= change;
	for (int i = 0; i < WORDS; i++)
		hello[i] = htonl(hello[i]);
	memcpy(r.frame, "MPA ID Req Frame\x50\x02\0\x38", 20);
	memcpy(r.frame + 24, hello, sizeof(hello));
	return r;
}

static struct request request(struct end *a, struct end *b, int word, uint32_t change)
{
	return request_in(a, b, 1, 1, word, change);
}

static enum answer stranger(int from, struct request r)
{
	return ask(call(from), &r, sizeof(r));
}

/* Makes two ends, of which a waits for b, and b does not come yet. */
static void make_waiting(struct end *one, struct end *two, struct end **a, struct end **b)
{
	make_two(one, two);
	/* The end with the smaller number listens. */
	*a = one->qp->qp_num < two->qp->qp_num ? one : two;
	*b = *a == one ? two : one;
	must(to_rtr(*a, (*b)->qp->qp_num, (*b)->psn));
	must(to_rts(*a));
}

/* The answer to R. It may meet the listener of the last pair, which is about to go. */
static enum answer answer_to(struct request r)
{
	enum answer answer;

	do
		answer = stranger(PRIVILEGED, r);
	while (answer == RESET);
	return answer;
}

/* The queue pair that waits, and the one that is waited for, with a wrong PSN. */
static void test_guesses(void)
{
	struct end one, two, *a, *b;

	for (int word = 4; word <= 5; word++) {
		make_waiting(&one, &two, &a, &b);
		expect(answer_to(request(a, b, word, 1)) == REJECTED);
		unmake(&one);
		unmake(&two);
	}
}

/* Other queue pairs of the peer's host do not keep the true one waiting: they guess nothing. */
static void test_others(void)
{
	struct end one, two, *a, *b;

	make_waiting(&one, &two, &a, &b);
	for (uint32_t other = 1; other < 8; other++)
		expect(answer_to(request(a, b, 2, other)) == REJECTED);
	expect(answer_to(request(a, b, 0, 0)) == ACCEPTED);
	unmake(&one);
	unmake(&two);
}

static void test_stranger(void)
{
	static const char v6_free[12] = { 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, -1, -1 };
	static const struct {
		int word;
		uint32_t change;
	} wrong[] = {
		{ 0, 1 }, /* other private data */
		{ 1, 0x03000000 }, /* another version */
		{ 2, 1 }, /* another queue pair */
	};
	struct end one, two, *a, *b;
	struct timespec from, to;
	struct request guess;
	enum answer again;
	uint64_t before;
	int first, second;

	if (memcmp(gid.raw, v6_free, 12)) {
		printf("  not with IPv6\n");
		return;
	}
	test_others();
	test_guesses();
	make_waiting(&one, &two, &a, &b);
	before = counter("pair_refused");
	/*
	 * The request is right, but the port is not privileged, or the host is not the peer's.
	 * There is no answer.
	 */
	expect(stranger(ANY_PORT, request(a, b, 0, 0)) == RESET);
	expect(stranger(FROM_LOOPBACK, request(a, b, 0, 0)) == RESET);
	for (unsigned int i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
		expect(stranger(PRIVILEGED, request(a, b, wrong[i].word, wrong[i].change)) == REJECTED);
	/* A second guess within a second is refused, although it is right. */
	first = call(PRIVILEGED);
	second = call(PRIVILEGED);
	guess = request(a, b, 4, 1);
	clock_gettime(CLOCK_MONOTONIC, &from);
	expect(ask(first, &guess, sizeof(guess)) == REJECTED);
	guess = request(a, b, 0, 0);
	again = ask(second, &guess, sizeof(guess));
	clock_gettime(CLOCK_MONOTONIC, &to);
	if (again != REJECTED) {
		if ((to.tv_sec - from.tv_sec) * 1000 + (to.tv_nsec - from.tv_nsec) / 1000000 < 1000)
			die("a second guess is let in");
		/* This machine was too slow, and the right guess was admitted. */
		unmake(&one);
		unmake(&two);
		test_stranger();
		return;
	}
	before = counter("pair_refused") - before;
	if (before != 4 + sizeof(wrong) / sizeof(wrong[0]))
		die("%lu refused", before);
	/* The true peer, which is late, is admitted. */
	must(to_rtr(b, a->qp->qp_num, a->psn));
	must(to_rts(b));
	send_one(a, b);
	send_one(b, a);
	unmake(&one);
	unmake(&two);
}

/* Requests of a device that has begun anew since, and for a queue pair that is gone. */
static void test_lives(void)
{
	static const struct {
		uint32_t boot, epoch;
		enum answer answer;
	} lives[] = {
		{ 7, 5, ACCEPTED }, { 7, 4, REJECTED }, { 7, 5, ACCEPTED }, { 7, 6, ACCEPTED },
		{ 8, 1, ACCEPTED }, { 7, 7, REJECTED }, { 8, 1, ACCEPTED },
	};
	uint64_t before = counter("pair_stale");
	struct end one, two, *a, *b;
	enum answer answer;
	struct request old;

	if (gid.raw[10] != 0xff) {
		printf("  not with IPv6\n");
		return;
	}
	for (unsigned int i = 0; i < sizeof(lives) / sizeof(lives[0]); i++) {
		make_waiting(&one, &two, &a, &b);
		old = request_in(a, b, lives[i].boot, lives[i].epoch, 0, 0);
		answer = answer_to(old);
		if (answer != lives[i].answer)
			die("answer %d to request %d", answer, i);
		unmake(&one);
		unmake(&two);
	}
	make_waiting(&one, &two, &a, &b);
	expect(stranger(PRIVILEGED, old) == REJECTED);
	expect(counter("pair_stale") == before + 3);
	/* The true peer is let in. */
	must(to_rtr(b, a->qp->qp_num, a->psn));
	must(to_rts(b));
	send_one(a, b);
	send_one(b, a);
	unmake(&one);
	unmake(&two);
}

#define RECORD "/run/pair-request"

/* Records a request for the device as it is now. */
static void test_record(void)
{
	struct end one, two, *a, *b;
	struct request r;
	FILE *file;

	make_waiting(&one, &two, &a, &b);
	r = request(a, b, 0, 0);
	must(!(file = fopen(RECORD, "w")));
	must(fwrite(&r, sizeof(r), 1, file) != 1);
	must(fclose(file));
	unmake(&one);
	unmake(&two);
}

/* Replays it to the device that has taken the place of that one. */
static void test_replay(void)
{
	uint64_t before = counter("pair_stale");
	struct end one, two, *a, *b;
	struct request r;
	FILE *file;

	must(!(file = fopen(RECORD, "r")));
	must(fread(&r, sizeof(r), 1, file) != 1);
	must(fclose(file));
	make_waiting(&one, &two, &a, &b);
	expect(stranger(PRIVILEGED, r) == REJECTED);
	expect(counter("pair_stale") == before + 1 && state(a) == IBV_QPS_RTS);
	must(to_rtr(b, a->qp->qp_num, a->psn));
	must(to_rts(b));
	send_one(a, b);
	send_one(b, a);
	unmake(&one);
	unmake(&two);
}

/* The setting, as a file of sysfs. */
static void set_pairs(const char *value)
{
	char path[200];
	FILE *file;

	snprintf(path, sizeof(path), "/sys/class/infiniband/%s/settings/pairs", ibv_get_device_name(device->device));
	must(!(file = fopen(path, "w")));
	must(fputs(value, file) < 0);
	must(fclose(file));
}

/* With the setting 0 no listener and no wait exists. */
static void test_off(void)
{
	struct end one, two, *a, *b;

	make_two(&one, &two);
	a = one.qp->qp_num < two.qp->qp_num ? &one : &two;
	b = a == &one ? &two : &one;
	must(to_rtr(a, b->qp->qp_num, b->psn));
	if (gid.raw[10] == 0xff) {
		struct sockaddr_in to = { .sin_family = AF_INET, .sin_port = htons(PORT) };
		int fd = socket(AF_INET, SOCK_STREAM, 0);

		close(call(PRIVILEGED));
		set_pairs("0");
		memcpy(&to.sin_addr, gid.raw + 12, 4);
		expect(connect(fd, (void *)&to, sizeof(to)) < 0 && errno == ECONNREFUSED);
		close(fd);
	}
	set_pairs("0");
	expect(to_rtr(b, a->qp->qp_num, a->psn) && errno == EOPNOTSUPP);
	set_pairs("1");
	unmake(&one);
	unmake(&two);
	make_two(&one, &two);
	both_to_rts(&one, &two);
	send_one(&one, &two);
	unmake(&one);
	unmake(&two);
}

/*
 * Waits until A waits: the listener then looks for the queue pair that a request from B's host is
 * for.
 */
static void until_waiting(struct end *a, struct end *b)
{
	uint64_t before;

	do {
		before = counter("pair_stale");
		expect(stranger(PRIVILEGED, request(a, b, 3, 0x800000)) == REJECTED);
	} while (counter("pair_stale") == before);
}

/*
 * While a session keeps the listener, the setting 0 ends the waits of queue pairs but not the
 * listener. When such a queue pair is destroyed later, one that has begun to wait since goes on.
 */
static void test_kept(void)
{
	struct end old[2], new[2], *a, *b;

	make_waiting(&old[0], &old[1], &a, &b);
	until_waiting(a, b);
	set_pairs("0");
	set_pairs("1");
	make_waiting(&new[0], &new[1], &a, &b);
	until_waiting(a, b);
	unmake(&old[0]);
	unmake(&old[1]);
	must(to_rtr(b, a->qp->qp_num, a->psn));
	must(to_rts(b));
	send_one(a, b);
	send_one(b, a);
	unmake(&new[0]);
	unmake(&new[1]);
}

/*
 * The time that a killed program takes to end, with COUNT queue pairs that each have data the peer
 * does not take.
 */
static long killed_ms(int count)
{
	struct timespec from, to;
	struct end one, two;
	int ready[2], status;
	pid_t pid;
	char c;

	must(pipe(ready));
	fflush(stdout);
	pid = fork();
	if (!pid) {
		struct end *ends;

		must(!(device = ibv_open_device(device->device)));
		must(!(pd = ibv_alloc_pd(device)));
		must(!(ends = calloc(count, sizeof(*ends))));
		for (int i = 0; i < count; i++) {
			make_two(&one, &two);
			both_to_rts(&one, &two);
			send_one(&one, &two);
			send_one(&two, &one);
			ends[i] = one;
		}
		must(system("tc qdisc add dev lo root netem loss 100%"));
		for (int i = 0; i < count; i++)
			post(&ends[i], IBV_WR_SEND, i, NULL);
		for (int i = 0; i < count; i++)
			expect_wc(ends[i].scq, i, IBV_WC_SUCCESS);
		must(write(ready[1], "", 1) != 1);
		pause();
	}
	close(ready[1]);
	must(read(ready[0], &c, 1) != 1);
	close(ready[0]);
	clock_gettime(CLOCK_MONOTONIC, &from);
	must(kill(pid, SIGKILL));
	must(waitpid(pid, &status, 0) != pid);
	clock_gettime(CLOCK_MONOTONIC, &to);
	must(system("tc qdisc del dev lo root"));
	return (to.tv_sec - from.tv_sec) * 1000 + (to.tv_nsec - from.tv_nsec) / 1000000;
}

static void test_killed(void)
{
	long one = killed_ms(1), many = killed_ms(16);

	printf("  1 queue pair: %ld ms, 16: %ld ms\n", one, many);
	expect(many < 5 * one);
}

/* Many at once. An end waits a minute for its peer, so each peer comes soon after it. */
static void test_many(void)
{
	enum { N = 500, WAITING = 50 };
	struct timespec from, to;
	struct end *ends;

	must(!(ends = calloc(2 * N, sizeof(*ends))));
	for (int i = 0; i < 2 * N; i++)
		make(&ends[i]);
	clock_gettime(CLOCK_MONOTONIC, &from);
	for (int i = 0; i < N + WAITING; i++) {
		int j = i - WAITING;

		if (i < N) {
			must(to_rtr(&ends[i], ends[N + i].qp->qp_num, ends[N + i].psn));
			must(to_rts(&ends[i]));
			post_recv(&ends[i], i);
		}
		if (j >= 0) {
			must(to_rtr(&ends[N + j], ends[j].qp->qp_num, ends[j].psn));
			must(to_rts(&ends[N + j]));
			post(&ends[N + j], IBV_WR_SEND, j, NULL);
		}
	}
	for (int i = 0; i < N; i++) {
		expect_wc(ends[i].rcq, i, IBV_WC_SUCCESS);
		expect_wc(ends[N + i].scq, i, IBV_WC_SUCCESS);
	}
	clock_gettime(CLOCK_MONOTONIC, &to);
	printf("  %d pairs in %ld ms\n", N, (to.tv_sec - from.tv_sec) * 1000 + (to.tv_nsec - from.tv_nsec) / 1000000);
	for (int i = 0; i < 2 * N; i++)
		unmake(&ends[i]);
	free(ends);
}

static const struct {
	const char *name;
	void (*run)(void);
} tests[] = {
	{ "order", test_order }, { "target", test_target }, { "rights", test_rights },
	{ "query", test_query }, { "invalid", test_invalid }, { "changes", test_changes }, { "ranges", test_ranges },
	{ "ends", test_ends }, { "gone", test_gone }, { "again", test_again }, { "unconnected", test_unconnected },
	{ "stranger", test_stranger }, { "wrong", test_wrong },
	{ "lives", test_lives }, { "off", test_off }, { "killed", test_killed }, { "many", test_many },
};

/* These need what the case prepares, and run only if they are named. */
static const struct {
	const char *name;
	void (*run)(void);
} parts[] = {
	{ "record", test_record }, { "replay", test_replay }, { "kept", test_kept },
};

int main(int argc, char **argv)
{
	struct ibv_device_attr attr;

	setvbuf(stdout, NULL, _IOLBF, 0);
	if (argc < 3)
		die("usage: %s DEVICE GID-INDEX [TEST]", argv[0]);
	open_device(argv[1], atoi(argv[2]));
	must(ibv_query_device(device, &attr));
	ours = attr.atomic_cap != IBV_ATOMIC_NONE;
	if (ours)
		unreachable = IBV_WC_RETRY_EXC_ERR;
	for (unsigned int i = 0; i < sizeof(tests) / sizeof(tests[0]); i++)
		if (argc < 4 || !strcmp(argv[3], tests[i].name)) {
			printf("%s\n", tests[i].name);
			tests[i].run();
		}
	for (unsigned int i = 0; i < sizeof(parts) / sizeof(parts[0]); i++)
		if (argc > 3 && !strcmp(argv[3], parts[i].name))
			parts[i].run();
	return 0;
}
