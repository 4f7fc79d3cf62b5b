// SPDX-License-Identifier: GPL-2.0
/*
 * Many threads on many queue pairs. "lanes server ADDRESS [qps=N]" lends memory. In "lanes client
 * ADDRESS [KEY=VALUE...]" every thread WRITEs random data into its own part of it, READs it back
 * and compares, for a number of rounds or seconds. At the end the client prints how much each queue
 * pair moved, and how fair that was (Jain's index).
 *   qps=N        queue pairs (1)
 *   threads=N    threads that post to each of them (1)
 *   size=N,N...  sizes of WRITEs; queue pairs take them in turn (65536)
 *   depth=N      WRITEs of each thread in progress (4)
 *   read=0       WRITEs only, nothing is compared
 *   rounds=N     WRITEs of each thread; 0: until the time is over (100)
 *   seconds=N    with rounds=0 (5)
 *   stalled=PORT connect one more queue pair to that port, where the peer only does the handshake,
 *                and fill it before the others begin. None of its work requests may complete or
 *                fail while the others run.
 *   turns=N      N WRITEs of each queue pair, without comparing and threads: tests whether queue
 *                pairs take turns
 *   users=2      the first queue pair belongs to one user, all others to another one (1)
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <rdma/rdma_cma.h>

#include "must.h"

#define PORT 7473
#define MAX_QPS 256
#define MAX_THREADS 8
#define MAX_DEPTH 16
#define MAX_SIZE (1 << 20)
#define MAX_TURNS 256
#define PATIENCE 60 /* seconds without a completion */

struct region {
	uint64_t addr;
	uint32_t rkey;
};

struct slot {
	sem_t done;
	uint8_t *out, *in;
	uint64_t to;
	bool used;
};

struct thread {
	struct lane *lane;
	pthread_t id;
	int number;
	struct slot slots[MAX_DEPTH];
	uint64_t seed;
};

struct lane {
	struct rdma_cm_id *id;
	struct ibv_comp_channel *events;
	struct ibv_cq *cq;
	struct ibv_mr *mr;
	uint8_t *memory;
	struct region theirs;
	pthread_t poller;
	int number;
	uint32_t size;
	atomic_ulong bytes;
	struct thread threads[MAX_THREADS];
};

static int qps = 1, n_threads = 1, depth = 4, rounds = 100, seconds = 5, stalled, read_back = 1, turns,
	   users = 1;
static uint32_t sizes[8] = { 65536 };
static int n_sizes = 1;
static struct lane lanes[MAX_QPS + 1];
static struct rdma_event_channel *channel;
static atomic_bool stop;
/* With turns: the CQ of all queue pairs, which gives their completions one order. */
static struct ibv_cq *common;

static void parse(int argc, char **argv)
{
	static const struct {
		const char *name;
		int *value, least, most;
	} options[] = {
		{ "qps", &qps, 1, MAX_QPS },	    { "threads", &n_threads, 1, MAX_THREADS },
		{ "depth", &depth, 1, MAX_DEPTH },  { "rounds", &rounds, 0, 1 << 30 },
		{ "seconds", &seconds, 1, 1 << 20 }, { "stalled", &stalled, 1, 65535 },
		{ "read", &read_back, 0, 1 },	    { "turns", &turns, 0, MAX_TURNS },
		{ "users", &users, 1, 2 },
	};

	for (; argc > 0; argc--, argv++) {
		char *value = strchr(*argv, '=');
		bool known = false;

		if (!value)
			die("no KEY=VALUE: %s", *argv);
		*value++ = 0;
		if (!strcmp(*argv, "size")) {
			for (n_sizes = 0; value && n_sizes < 8; n_sizes++) {
				char *item = strsep(&value, ",");

				sizes[n_sizes] = atoi(item);
				if (!sizes[n_sizes] || sizes[n_sizes] > MAX_SIZE)
					die("no size: %s", item);
			}
			continue;
		}
		for (size_t i = 0; i < sizeof(options) / sizeof(*options); i++)
			if (!strcmp(*argv, options[i].name)) {
				*options[i].value = atoi(value);
				if (*options[i].value < options[i].least || *options[i].value > options[i].most)
					die("%s cannot be %s", *argv, value);
				known = true;
			}
		if (!known)
			die("no option %s", *argv);
	}
}

static struct rdma_cm_event *expect(enum rdma_cm_event_type type)
{
	struct rdma_cm_event *event;

	must(rdma_get_cm_event(channel, &event));
	if (event->event != type)
		die("event %s (status %d), not %s", rdma_event_str(event->event), event->status, rdma_event_str(type));
	return event;
}

struct order {
	uid_t user;
	struct rdma_cm_id *id;
	struct ibv_pd *pd;
	struct ibv_qp_init_attr *attr;
};

/*
 * Runs in a thread of its own, because rdma_cm takes no more calls from one that was another user.
 */
static void *as_user(void *arg)
{
	struct order *o = arg;

	must(syscall(SYS_setresuid, -1, o->user, -1));
	must(!(o->id->qp = ibv_create_qp(o->pd, o->attr)));
	return NULL;
}

/* Does the work of rdma_create_qp. */
static void make_qp_of_user(struct order *o)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT };
	pthread_t thread;
	int mask;

	must(pthread_create(&thread, NULL, as_user, o));
	must(pthread_join(thread, NULL));
	must(rdma_init_qp_attr(o->id, &attr, &mask));
	must(ibv_modify_qp(o->id->qp, &attr, mask));
}

static void make_qp(struct lane *l, size_t size)
{
	struct ibv_qp_init_attr attr = {
		.qp_type = IBV_QPT_RC,
		.cap = { .max_send_wr = 2 * MAX_THREADS * MAX_DEPTH, .max_recv_wr = 1, .max_send_sge = 1,
			 .max_recv_sge = 1 },
	};
	struct ibv_pd *pd = ibv_alloc_pd(l->id->verbs);

	l->events = ibv_create_comp_channel(l->id->verbs);
	if (!turns)
		l->cq = ibv_create_cq(l->id->verbs, 4 * MAX_THREADS * MAX_DEPTH, NULL, l->events, 0);
	else if (!common)
		common = ibv_create_cq(l->id->verbs, qps * turns, NULL, NULL, 0);
	l->cq = l->cq ?: common;
	if (!pd || !l->events || !l->cq)
		die("creating the CQ: %s", strerror(errno));
	attr.send_cq = attr.recv_cq = l->cq;
	if (users == 1)
		must(rdma_create_qp(l->id, pd, &attr));
	else
		make_qp_of_user(&(struct order){ l == lanes ? 1001 : 1002, l->id, pd, &attr });
	if (posix_memalign((void **)&l->memory, 4096, size))
		die("no memory");
	memset(l->memory, 0, size);
	l->mr = ibv_reg_mr(pd, l->memory, size, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ);
	if (!l->mr)
		die("ibv_reg_mr: %s", strerror(errno));
}

/* Room for the largest WRITE. */
static size_t room(void)
{
	uint32_t most = 0;

	for (int i = 0; i < n_sizes; i++)
		if (sizes[i] > most)
			most = sizes[i];
	return most;
}

/* The memory that all threads write to, or read into. */
static size_t area(void)
{
	return n_threads * depth * room();
}

/* ---- server ---- */

static void serve(struct sockaddr_in *addr)
{
	struct rdma_cm_id *listener;
	int gone = 0, come = 0;

	must(rdma_create_id(channel, &listener, NULL, RDMA_PS_TCP));
	must(rdma_bind_addr(listener, (struct sockaddr *)addr));
	must(rdma_listen(listener, MAX_QPS));
	while (gone < qps) {
		struct rdma_cm_event *event;
		enum rdma_cm_event_type type;

		must(rdma_get_cm_event(channel, &event));
		type = event->event;
		if (type == RDMA_CM_EVENT_CONNECT_REQUEST) {
			struct lane *l = &lanes[come++];
			struct rdma_conn_param p = { .responder_resources = 16, .initiator_depth = 16 };
			struct region mine;
			uint64_t size;

			if (come > qps)
				die("one more than %d", qps);
			memcpy(&size, event->param.conn.private_data, sizeof(size));
			l->id = event->id;
			make_qp(l, size);
			mine = (struct region){ .addr = (uintptr_t)l->memory, .rkey = l->mr->rkey };
			p.private_data = &mine;
			p.private_data_len = sizeof(mine);
			must(rdma_accept(l->id, &p));
		} else if (type == RDMA_CM_EVENT_DISCONNECTED) {
			gone++;
		} else if (type != RDMA_CM_EVENT_ESTABLISHED) {
			die("event %s", rdma_event_str(type));
		}
		must(rdma_ack_cm_event(event));
	}
}

/* ---- client ---- */

static void join(struct lane *l, const struct sockaddr_in *addr, int port)
{
	struct sockaddr_in to = *addr;
	uint64_t size = area();
	struct rdma_conn_param p = {
		.private_data = &size, .private_data_len = sizeof(size), .responder_resources = 16, .initiator_depth = 16,
	};
	struct rdma_cm_event *event;

	to.sin_port = htons(port);
	must(rdma_create_id(channel, &l->id, NULL, RDMA_PS_TCP));
	must(rdma_resolve_addr(l->id, NULL, (struct sockaddr *)&to, 10000));
	must(rdma_ack_cm_event(expect(RDMA_CM_EVENT_ADDR_RESOLVED)));
	must(rdma_resolve_route(l->id, 10000));
	must(rdma_ack_cm_event(expect(RDMA_CM_EVENT_ROUTE_RESOLVED)));
	make_qp(l, 2 * area());
	must(rdma_connect(l->id, &p));
	event = expect(RDMA_CM_EVENT_ESTABLISHED);
	if (port == PORT)
		memcpy(&l->theirs, event->param.conn.private_data, sizeof(l->theirs));
	must(rdma_ack_cm_event(event));
}

static void *poll_lane(void *arg)
{
	struct lane *l = arg;
	struct ibv_wc wc[16];
	struct ibv_cq *cq;
	void *context;
	int n;

	for (;;) {
		must(ibv_req_notify_cq(l->cq, 0));
		while ((n = ibv_poll_cq(l->cq, 16, wc)) > 0)
			for (int i = 0; i < n; i++) {
				if (wc[i].wr_id == UINT64_MAX)
					return NULL;
				if (wc[i].status != IBV_WC_SUCCESS)
					die("queue pair %d: %s", l->number, ibv_wc_status_str(wc[i].status));
				sem_post(&l->threads[wc[i].wr_id / MAX_DEPTH].slots[wc[i].wr_id % MAX_DEPTH].done);
			}
		must(ibv_get_cq_event(l->events, &cq, &context));
		ibv_ack_cq_events(cq, 1);
	}
}

static void finish(struct thread *t, struct slot *s)
{
	struct timespec end;

	if (!s->used)
		return;
	clock_gettime(CLOCK_REALTIME, &end);
	end.tv_sec += PATIENCE;
	while (sem_timedwait(&s->done, &end))
		if (errno != EINTR)
			die("queue pair %d, thread %d: no completion in %d s", t->lane->number, t->number, PATIENCE);
	if (read_back && memcmp(s->out, s->in, t->lane->size))
		die("queue pair %d, thread %d: not what was written is read", t->lane->number, t->number);
	t->lane->bytes += t->lane->size;
	s->used = false;
}

static void *post_lane(void *arg)
{
	struct thread *t = arg;
	struct lane *l = t->lane;
	struct ibv_send_wr *bad;

	for (int n = 0; rounds ? n < rounds : !stop; n++) {
		struct slot *s = &t->slots[n % depth];
		struct ibv_sge out = { .addr = (uintptr_t)s->out, .length = l->size, .lkey = l->mr->lkey };
		struct ibv_sge in = { .addr = (uintptr_t)s->in, .length = l->size, .lkey = l->mr->lkey };
		struct ibv_send_wr read = {
			.wr_id = t->number * MAX_DEPTH + n % depth, .sg_list = &in, .num_sge = 1, .opcode = IBV_WR_RDMA_READ,
			.send_flags = IBV_SEND_SIGNALED, .wr.rdma = { .remote_addr = s->to, .rkey = l->theirs.rkey },
		};
		struct ibv_send_wr write = read;

		finish(t, s);
		if (read_back)
			for (uint32_t i = 0; i + 8 <= l->size; i += 8) {
				t->seed ^= t->seed << 13;
				t->seed ^= t->seed >> 7;
				t->seed ^= t->seed << 17;
				memcpy(s->out + i, &t->seed, 8);
			}
		write.sg_list = &out;
		write.opcode = IBV_WR_RDMA_WRITE;
		if (read_back) {
			write.send_flags = 0;
			write.next = &read;
		}
		s->used = true;
		must(ibv_post_send(l->id->qp, &write, &bad));
	}
	for (int i = 0; i < depth; i++)
		finish(t, &t->slots[i]);
	return NULL;
}

static void start(struct lane *l)
{
	must(pthread_create(&l->poller, NULL, poll_lane, l));
	for (int i = 0; i < n_threads; i++) {
		struct thread *t = &l->threads[i];

		t->lane = l;
		t->number = i;
		t->seed = 0x9e3779b97f4a7c15 * (l->number * MAX_THREADS + i + 1);
		for (int s = 0; s < depth; s++) {
			size_t at = (i * depth + s) * room();

			sem_init(&t->slots[s].done, 0, 0);
			t->slots[s].out = l->memory + at;
			t->slots[s].in = l->memory + area() + at;
			t->slots[s].to = l->theirs.addr + at;
		}
		must(pthread_create(&t->id, NULL, post_lane, t));
	}
}

/* Posts until the queue is full, and returns the number posted. Posting never blocks. */
static int fill(struct lane *l)
{
	struct ibv_sge sge = { .addr = (uintptr_t)l->memory, .length = room(), .lkey = l->mr->lkey };
	struct ibv_send_wr wr = {
		.sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE, .send_flags = IBV_SEND_SIGNALED,
	}, *bad;
	int n = 0, rc;

	while (!(rc = ibv_post_send(l->id->qp, &wr, &bad)))
		n++;
	if (abs(rc) != ENOMEM)
		die("the full queue says %s", strerror(abs(rc)));
	return n;
}

static void schedule(int policy, int priority)
{
	if (sched_setscheduler(0, policy, &(struct sched_param){ .sched_priority = priority }))
		die("sched_setscheduler: %s", strerror(errno));
}

/*
 * No other thread, and no datamover, gets this CPU before everything is posted. The first queue
 * pair and every second one post with one doorbell, the others with a doorbell for each WRITE. So
 * all have something to send until the first one is done, on a machine of any speed, and the order
 * of completions shows how far one queue pair was ahead of another.
 */
static void take_turns(void)
{
	struct ibv_send_wr wrs[MAX_TURNS], *bad;
	int done[MAX_QPS] = { 0 }, left = qps * turns, at_once = 0, lead = 0, idle = 0, others = 0;
	struct ibv_wc wc;
	cpu_set_t here;

	CPU_ZERO(&here);
	CPU_SET(sched_getcpu(), &here);
	if (sched_setaffinity(0, sizeof(here), &here))
		die("sched_setaffinity: %s", strerror(errno));
	schedule(SCHED_FIFO, 1);
	for (int i = 0; i < qps; i++) {
		struct lane *l = &lanes[i];
		struct ibv_sge sge = { .addr = (uintptr_t)l->memory, .length = l->size, .lkey = l->mr->lkey };
		bool chained = i % 2 == 0;

		for (int n = 0; n < turns; n++)
			wrs[n] = (struct ibv_send_wr){
				.wr_id = i, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE,
				.send_flags = IBV_SEND_SIGNALED,
				.wr.rdma = { .remote_addr = l->theirs.addr, .rkey = l->theirs.rkey },
				.next = chained && n + 1 < turns ? &wrs[n + 1] : NULL,
			};
		for (int n = 0; n < (chained ? 1 : turns); n++)
			must(ibv_post_send(l->id->qp, &wrs[n], &bad));
	}
	for (bool posted = true; left;) {
		int n = ibv_poll_cq(common, 1, &wc), least = turns;

		if (n <= 0 && posted) {
			posted = false;
			at_once = qps * turns - left;
			schedule(SCHED_OTHER, 0);
		}
		if (n <= 0) {
			if (++idle == PATIENCE * 1000)
				die("no completion in %d s", PATIENCE);
			usleep(1000);
			continue;
		}
		idle = 0;
		if (wc.status != IBV_WC_SUCCESS)
			die("queue pair %d: %s", (int)wc.wr_id, ibv_wc_status_str(wc.status));
		left--;
		lanes[wc.wr_id].bytes += lanes[wc.wr_id].size;
		done[wc.wr_id]++;
		if (!wc.wr_id && done[0] == turns)
			others = qps * turns - left - turns;
		for (int i = 0; i < qps; i++)
			if (done[i] < least)
				least = done[i];
		if (done[wc.wr_id] - least > lead)
			lead = done[wc.wr_id] - least;
	}
	printf("%d of %d WRITEs completed on the spot; one was ahead of another by %d at the most\n", at_once, qps * turns, lead);
	printf("when the first queue pair was through, %d of the others had completed\n", others);
}

/* The line of a queue pair in the driver's debugfs file. */
static void state_of(uint32_t qpn, char line[256])
{
	char path[128];
	FILE *f;

	snprintf(path, sizeof(path), "/sys/kernel/debug/siw/%s/qps", getenv("DEV"));
	f = fopen(path, "r");
	if (!f)
		die("%s: %s", path, strerror(errno));
	while (fgets(line, 256, f))
		if (strtoul(line, NULL, 10) == qpn) {
			fclose(f);
			return;
		}
	die("no queue pair %u", qpn);
}

/* Waits until it waits for send space, and has sent nothing for a second. */
static void settle(uint32_t qpn, char line[256])
{
	char last[256] = "";

	for (int i = 0; i < PATIENCE; i++) {
		state_of(qpn, line);
		if (strstr(line, " PausedSpace ") && !strcmp(line, last))
			return;
		strcpy(last, line);
		sleep(1);
	}
	die("the stalled one does not come to rest: %s", line);
}

/* Everything is done, so the driver must be idle, or about to be. */
static void at_rest(struct lane *l)
{
	char line[256];

	for (int i = 0; i < PATIENCE * 100; i++) {
		state_of(l->id->qp->qp_num, line);
		if (strstr(line, " Idle 0 0 0 "))
			return;
		usleep(10000);
	}
	die("queue pair %d is not at rest: %s", l->number, line);
}

static void run(const struct sockaddr_in *addr)
{
	struct lane *dead = &lanes[MAX_QPS];
	double sum = 0, squares = 0;
	struct timespec a, b;
	struct ibv_wc wc;
	int posted = 0, before = 0, n;
	char line[256];

	if (stalled) {
		join(dead, addr, stalled);
		posted = fill(dead);
		settle(dead->id->qp->qp_num, line);
		/* These fitted into TCP's buffers. */
		while ((n = ibv_poll_cq(dead->cq, 1, &wc)) > 0) {
			if (wc.status != IBV_WC_SUCCESS)
				die("the stalled one: %s", ibv_wc_status_str(wc.status));
			before++;
		}
		printf("stalled: %d posted, %d completed: %s", posted, before, line);
	}
	for (int i = 0; i < qps; i++) {
		lanes[i].number = i;
		lanes[i].size = sizes[i % n_sizes];
		join(&lanes[i], addr, PORT);
	}
	clock_gettime(CLOCK_MONOTONIC, &a);
	if (turns)
		take_turns();
	for (int i = 0; i < qps && !turns; i++)
		start(&lanes[i]);
	if (!turns && !rounds) {
		nanosleep(&(struct timespec){ .tv_sec = seconds }, NULL);
		stop = true;
	}
	for (int i = 0; i < qps; i++)
		for (int t = 0; t < n_threads && !turns; t++)
			must(pthread_join(lanes[i].threads[t].id, NULL));
	clock_gettime(CLOCK_MONOTONIC, &b);
	for (int i = 0; i < qps; i++) {
		double bytes = lanes[i].bytes;

		printf("queue pair %d: %.0f bytes in WRITEs of %u\n", i, bytes, lanes[i].size);
		sum += bytes;
		squares += bytes * bytes;
	}
	printf("%.0f bytes in %.2f s, Jain's index %.3f\n", sum, b.tv_sec - a.tv_sec + (b.tv_nsec - a.tv_nsec) / 1e9,
	       sum * sum / (qps * squares));
	if (stalled) {
		char now[256];

		state_of(dead->id->qp->qp_num, now);
		if (strcmp(now, line))
			die("the stalled one is not as it was: %s", now);
		if (ibv_poll_cq(dead->cq, 1, &wc))
			die("the stalled one completed something more");
	}
	for (int i = 0; i < qps; i++)
		at_rest(&lanes[i]);
	for (int i = 0; i < qps; i++)
		rdma_disconnect(lanes[i].id);
}

int main(int argc, char **argv)
{
	struct sockaddr_in addr = { .sin_family = AF_INET, .sin_port = htons(PORT) };

	if (argc < 3)
		die("usage: lanes server|client ADDRESS [KEY=VALUE...]");
	setvbuf(stdout, NULL, _IOLBF, 0);
	if (inet_pton(AF_INET, argv[2], &addr.sin_addr) != 1)
		die("no address: %s", argv[2]);
	parse(argc - 3, argv + 3);
	channel = rdma_create_event_channel();
	if (!channel)
		die("no RDMA device");
	if (!strcmp(argv[1], "server"))
		serve(&addr);
	else
		run(&addr);
	return 0;
}
