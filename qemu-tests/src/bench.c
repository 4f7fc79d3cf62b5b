// SPDX-License-Identifier: GPL-2.0
/*
 * Measurements of make bench that perftest lacks:
 *   bench serve OP ADDRESS PORT N         the other end of OP, for N queue pairs
 *   bench OP ADDRESS PORT N SIZE MS       operations of SIZE over N queue pairs at a time, for MS
 *                                         milliseconds: write, send, read, atomic (SIZE is 8),
 *                                         write_imm (with immediate data), or write_send (a Write
 *                                         and a Send of 4 bytes)
 *   bench echo OP ADDRESS PORT            the other end of ping
 *   bench ping OP ADDRESS PORT SIZE N     N round trips by write_imm or write_send
 *   bench bind ADDRESS PORT MS            how many windows are bound and invalidated (to "serve
 *                                         write"), and regions of the same 4 KiB registered and
 *                                         deregistered, one after the other, for MS milliseconds
 *   bench beside ADDRESS PORT STALLED SIZE MS TIMES TIMES over: Writes of SIZE over a queue pair
 *                                         (to "serve write") without, and with one beside it that
 *                                         is stalled: by its peer, at the port STALLED, which reads
 *                                         nothing; or, to the same server and one of 1 + TIMES
 *                                         there, by a page that does not come (STALLED is "page")
 *                                         or by binds of a window that take long ("bind")
 *   bench regions ADDRESS PORT N MS       N regions of 4 KiB: the time to register one and to
 *                                         deregister it, its memory, and the rate of Writes of 64
 *                                         bytes (to "serve write"), each from another region
 *   bench reg DEVICE MIB                  time to register, and to deregister, a region: of small
 *                                         pages, and of huge ones
 *   bench tcp-serve PORT [sleep]          the other end of tcp
 *   bench tcp ADDRESS PORT SIZE N [sleep] N round trips over plain TCP; polls, or sleeps
 * Figures are printed one a line, "NAME VALUE". Busy times are those of all CPUs of this machine,
 * in and out of the kernel; the programs themselves sleep for completions.
 */
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <rdma/rdma_cma.h>

#include "must.h"
#include "times.h"

#define RIGHTS (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ)
#define REGION (4 << 20)
#define READS 32 /* outstanding on a queue pair */

static const struct {
	const char *name;
	enum ibv_wr_opcode code;
	bool and_send; /* each is followed by a Send */
} ops[] = {
	{ "write", IBV_WR_RDMA_WRITE, false }, { "send", IBV_WR_SEND, false }, { "read", IBV_WR_RDMA_READ, false },
	{ "atomic", IBV_WR_ATOMIC_FETCH_AND_ADD, false }, { "write_imm", IBV_WR_RDMA_WRITE_WITH_IMM, false },
	{ "write_send", IBV_WR_RDMA_WRITE, true },
};

/* Private data of either end. */
struct target {
	uint64_t address;
	uint32_t rkey;
	uint32_t size; /* of what echo sends */
};

struct conn {
	struct rdma_cm_id *id;
	struct target to;
	uint64_t done;
};

static struct rdma_event_channel *events;
static struct ibv_comp_channel *completions;
static struct ibv_pd *pd;
static struct ibv_cq *cq;
static struct ibv_mr *mr;
static enum ibv_wr_opcode op = IBV_WR_RDMA_WRITE;
static bool and_send;

/* Operations that each of N queue pairs keeps posted. */
static int depth(int n)
{
	return n <= 16 ? 32 : n <= 256 ? 512 / n : 2;
}

static bool takes_receives(void)
{
	return op == IBV_WR_SEND || op == IBV_WR_RDMA_WRITE_WITH_IMM || and_send;
}

/*
 * Receives that an accepting end keeps posted to each of N queue pairs: as many as TCP buffers
 * small messages, because iWARP cannot refuse a message temporarily.
 */
static int receives(int n)
{
	return !takes_receives() ? 1 : n < 16 ? 4096 / n : 256;
}

/* Seconds that the CPUs of this machine were not idle. */
static double busy(void)
{
	unsigned long long user, nice, system, idle, iowait, irq, softirq;
	FILE *f = fopen("/proc/stat", "r");

	if (!f || fscanf(f, "cpu %llu %llu %llu %llu %llu %llu %llu", &user, &nice, &system, &idle, &iowait, &irq,
			 &softirq) != 7)
		die("/proc/stat");
	fclose(f);
	return (double)(user + nice + system + irq + softirq) / sysconf(_SC_CLK_TCK);
}

/* A number of /proc/meminfo, in bytes. */
static double meminfo(const char *name)
{
	FILE *f = fopen("/proc/sys/vm/stat_refresh", "w");
	unsigned long long kib;
	char line[128];

	/* A CPU may count some pages later. */
	if (f) {
		fputs("1", f);
		fclose(f);
	}
	f = fopen("/proc/meminfo", "r");
	while (f && fgets(line, sizeof(line), f))
		if (!strncmp(line, name, strlen(name)) && sscanf(line + strlen(name), ": %llu", &kib) == 1) {
			fclose(f);
			return kib * 1024.0;
		}
	die("/proc/meminfo: %s", name);
}

static double free_memory(void)
{
	return meminfo("MemFree");
}

/* The kernel's own memory. A CPU may count a hundred pages before it tells the others. */
static double kernel_memory(void)
{
	FILE *f = fopen("/proc/sys/vm/stat_refresh", "w");

	/* A kernel for one CPU has no such file. */
	if (f && (putc('1', f) == EOF || fclose(f)))
		die("/proc/sys/vm/stat_refresh");
	return meminfo("SUnreclaim") + meminfo("VmallocUsed");
}

static struct sockaddr_in address_of(const char *host, const char *port)
{
	struct addrinfo hints = { .ai_family = AF_INET }, *found;
	struct sockaddr_in sa;

	must(getaddrinfo(host, port, &hints, &found));
	memcpy(&sa, found->ai_addr, sizeof(sa));
	freeaddrinfo(found);
	return sa;
}

static struct rdma_cm_event *await(enum rdma_cm_event_type type)
{
	struct rdma_cm_event *event;

	must(rdma_get_cm_event(events, &event));
	while (event->event == RDMA_CM_EVENT_TIMEWAIT_EXIT) { /* of an identifier that is gone */
		must(rdma_ack_cm_event(event));
		must(rdma_get_cm_event(events, &event));
	}
	if (event->event != type)
		die("%s (%d) in place of %s", rdma_event_str(event->event), event->status, rdma_event_str(type));
	return event;
}

static void *pages(size_t size)
{
	void *at = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);

	if (at == MAP_FAILED)
		die("no memory");
	return at;
}

/* All queue pairs share these. */
static void make_shared(struct ibv_context *verbs, int n)
{
	if (pd)
		return;
	must(!(pd = ibv_alloc_pd(verbs)));
	must(!(completions = ibv_create_comp_channel(verbs)));
	must(!(cq = ibv_create_cq(verbs, n * (depth(n) + receives(n)), NULL, completions, 0)));
	/* Other regions have the rights that C siw knows. */
	must(!(mr = ibv_reg_mr(pd, pages(REGION), REGION,
			       RIGHTS | (op == IBV_WR_ATOMIC_FETCH_AND_ADD ? IBV_ACCESS_REMOTE_ATOMIC : 0))));
}

static void make_qp(struct rdma_cm_id *id, int n, struct ibv_cq *other)
{
	struct ibv_qp_init_attr init = {
		.qp_type = IBV_QPT_RC,
		.cap = { .max_send_wr = (1 + and_send) * depth(n), .max_recv_wr = receives(n), .max_send_sge = 1, .max_recv_sge = 1 },
	};

	init.send_cq = other ? other : cq;
	init.recv_cq = init.send_cq;
	must(rdma_create_qp(id, pd, &init));
}

static void post_receive(struct ibv_qp *qp, uint64_t number)
{
	struct ibv_sge sge = { .addr = (uintptr_t)mr->addr, .length = REGION, .lkey = mr->lkey };
	struct ibv_recv_wr *bad, wr = { .wr_id = number, .sg_list = &sge, .num_sge = 1 };

	must(ibv_post_recv(qp, &wr, &bad));
}

static bool has_come(struct ibv_wc *wc)
{
	/* A flushed receive means that its peer has left. */
	if (wc->status && wc->status != IBV_WC_WR_FLUSH_ERR)
		die("receive: %s", ibv_wc_status_str(wc->status));
	return !wc->status;
}

/* Takes all completions, and asks for an event of the next one. */
static void receive_all(struct rdma_cm_id **ids)
{
	struct ibv_wc wcs[16];
	bool armed = false;
	struct ibv_cq *of;
	void *context;
	int got;

	must(ibv_get_cq_event(completions, &of, &context));
	ibv_ack_cq_events(of, 1);
	for (;;) {
		got = ibv_poll_cq(cq, 16, wcs);
		for (int i = 0; i < got; i++)
			if (has_come(&wcs[i]))
				post_receive(ids[wcs[i].wr_id]->qp, wcs[i].wr_id);
		if (got)
			continue;
		if (armed)
			return;
		must(ibv_req_notify_cq(cq, 0));
		armed = true;
	}
}

/* Serves until the next event of the connection manager. */
static struct rdma_cm_event *serve_until_event(struct rdma_cm_id **ids)
{
	struct rdma_cm_event *event;

	for (;;) {
		struct pollfd on[] = { { .fd = events->fd, .events = POLLIN },
				       { .fd = completions ? completions->fd : -1, .events = POLLIN } };

		must(poll(on, 2, -1) < 0);
		if (on[1].revents)
			receive_all(ids);
		if (on[0].revents) {
			must(rdma_get_cm_event(events, &event));
			return event;
		}
	}
}

static void serve(const char *host, const char *port, int n)
{
	struct sockaddr_in sa = address_of(host, port);
	struct rdma_cm_id *listener, *ids[n];
	struct rdma_cm_event *event;
	int made = 0, up = 0, gone = 0;
	double start = 0;

	must(rdma_create_id(events, &listener, NULL, RDMA_PS_TCP));
	must(rdma_bind_addr(listener, (struct sockaddr *)&sa));
	must(rdma_listen(listener, 128));
	while (gone < n) {
		event = serve_until_event(ids);
		if (event->event == RDMA_CM_EVENT_CONNECT_REQUEST && made < n) {
			struct rdma_cm_id *id = event->id;
			struct target target = { 0 };
			struct rdma_conn_param param = {
				.private_data = &target, .private_data_len = sizeof(target),
				.responder_resources = READS, .initiator_depth = 1,
			};

			make_shared(id->verbs, n);
			make_qp(id, n, NULL);
			target.address = (uintptr_t)mr->addr;
			target.rkey = mr->rkey;
			if (takes_receives())
				for (int i = 0; i < receives(n); i++)
					post_receive(id->qp, made);
			must(ibv_req_notify_cq(cq, 0));
			ids[made++] = id;
			must(rdma_accept(id, &param));
		} else if (event->event == RDMA_CM_EVENT_ESTABLISHED) {
			if (++up == n)
				start = busy();
		} else if (event->event == RDMA_CM_EVENT_DISCONNECTED) {
			if (!gone++)
				printf("busy %.3f\n", busy() - start);
		} else if (event->event != RDMA_CM_EVENT_TIMEWAIT_EXIT) {
			die("%s (%d)", rdma_event_str(event->event), event->status);
		}
		must(rdma_ack_cm_event(event));
	}
	for (int i = 0; i < n; i++) {
		rdma_destroy_qp(ids[i]);
		rdma_destroy_id(ids[i]);
	}
}

/*
 * Connects one of N queue pairs in all. A queue pair that completes at OTHER, if given, is not one
 * of them.
 */
static void connect_one(struct conn *c, struct sockaddr_in *sa, int n, struct ibv_cq *other)
{
	struct target own = { .size = c->to.size };
	struct rdma_conn_param param = {
		.private_data = &own, .private_data_len = sizeof(own), .responder_resources = 1, .initiator_depth = READS,
		.retry_count = 7,
	};
	struct rdma_cm_event *event;

	must(rdma_create_id(events, &c->id, NULL, RDMA_PS_TCP));
	must(rdma_resolve_addr(c->id, NULL, (struct sockaddr *)sa, 5000));
	rdma_ack_cm_event(await(RDMA_CM_EVENT_ADDR_RESOLVED));
	must(rdma_resolve_route(c->id, 5000));
	rdma_ack_cm_event(await(RDMA_CM_EVENT_ROUTE_RESOLVED));
	make_shared(c->id->verbs, n);
	make_qp(c->id, n, other);
	own.address = (uintptr_t)mr->addr;
	own.rkey = mr->rkey;
	must(rdma_connect(c->id, &param));
	event = await(RDMA_CM_EVENT_ESTABLISHED);
	/* The peer that reads nothing sends no private data either. */
	if (event->param.conn.private_data_len >= sizeof(c->to))
		memcpy(&c->to, event->param.conn.private_data, sizeof(c->to));
	rdma_ack_cm_event(event);
}

static void post(struct conn *c, uint64_t number, int size)
{
	struct ibv_sge sge = { .addr = (uintptr_t)mr->addr, .length = size, .lkey = mr->lkey };
	struct ibv_sge word = { .addr = (uintptr_t)mr->addr, .length = 4, .lkey = mr->lkey };
	struct ibv_send_wr *bad, note = {
		.wr_id = number, .sg_list = &word, .num_sge = 1, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED,
	}, wr = {
		.wr_id = number, .sg_list = &sge, .num_sge = 1, .opcode = op,
		.send_flags = and_send ? 0 : IBV_SEND_SIGNALED, .next = and_send ? &note : NULL,
		.wr.rdma = { .remote_addr = c->to.address, .rkey = c->to.rkey },
	};

	if (op == IBV_WR_ATOMIC_FETCH_AND_ADD) {
		wr.wr.atomic.remote_addr = c->to.address;
		wr.wr.atomic.rkey = c->to.rkey;
		wr.wr.atomic.compare_add = 1;
	}
	must(ibv_post_send(c->id->qp, &wr, &bad));
}

static int reap(struct conn *conns, int size, bool again)
{
	struct ibv_wc wcs[16];
	int got = ibv_poll_cq(cq, 16, wcs);

	if (got < 0)
		die("poll: %d", got);
	for (int i = 0; i < got; i++) {
		if (wcs[i].status)
			die("%s", ibv_wc_status_str(wcs[i].status));
		conns[wcs[i].wr_id].done++;
		if (again)
			post(&conns[wcs[i].wr_id], wcs[i].wr_id, size);
	}
	return got;
}

/* Waits for a completion or more. With AGAIN, a new operation replaces each. */
static int next(struct conn *conns, int size, bool again)
{
	struct ibv_cq *of;
	void *context;
	int got;

	for (;;) {
		got = reap(conns, size, again);
		if (got)
			return got;
		must(ibv_req_notify_cq(cq, 0));
		got = reap(conns, size, again);
		if (got)
			return got;
		must(ibv_get_cq_event(completions, &of, &context));
		ibv_ack_cq_events(of, 1);
	}
}

static void until(double end, struct conn *conns, int size)
{
	while (now() < end)
		next(conns, size, true);
}

static void transfers(const char *host, const char *port, int n, int size, int ms)
{
	struct sockaddr_in sa = address_of(host, port);
	struct conn *conns = calloc(n, sizeof(*conns));
	double start, took, memory = 0, cpu, sum = 0, squares = 0, all = 0;
	int outstanding = n * depth(n);

	must(!conns || size > REGION);
	for (int i = 0; i < n; i++) {
		/* Memory that the first queue pair needs is shared by all. */
		if (i == 1)
			memory = free_memory();
		connect_one(&conns[i], &sa, n, NULL);
	}
	if (n > 1)
		printf("memory %.0f\n", (memory - free_memory()) / (n - 1));

	cpu = busy();
	for (int i = 0; i < outstanding; i++)
		post(&conns[i % n], i % n, size);
	until(now() + ms / 4000.0, conns, size);
	for (int i = 0; i < n; i++) {
		all += conns[i].done;
		conns[i].done = 0;
	}
	start = now();
	until(start + ms / 1000.0, conns, size);
	took = now() - start;
	for (int i = 0; i < n; i++) {
		sum += conns[i].done;
		squares += (double)conns[i].done * conns[i].done;
	}
	printf("gbps %.4f\nrate %.3f\n", sum * size * 8e-9 / took, sum / took / 1e3);
	printf("jain %.4f\n", sum * sum / (n * squares));
	while (outstanding > 0) {
		int got = next(conns, size, false);

		outstanding -= got;
		all += got;
	}
	printf("busy %.3f\nbytes %.0f\n", busy() - cpu, (all + sum) * size);
	for (int i = 0; i < n; i++)
		rdma_disconnect(conns[i].id);
	for (int i = 0; i < n; i++)
		rdma_ack_cm_event(await(RDMA_CM_EVENT_DISCONNECTED));
	for (int i = 0; i < n; i++) {
		rdma_destroy_qp(conns[i].id);
		rdma_destroy_id(conns[i].id);
	}
}

/* The speed of a busy queue pair, in gigabits a second. */
static double speed(struct conn *c, int size, int ms)
{
	double start;

	until(now() + ms / 4000.0, c, size);
	c->done = 0;
	start = now();
	until(start + ms / 1000.0, c, size);
	return c->done * size * 8e-9 / (now() - start);
}

/* A Write of a page from REGION, without a completion. */
static void write_page(struct conn *c, struct ibv_mr *region)
{
	struct ibv_sge sge = { .addr = (uintptr_t)region->addr, .length = 4096, .lkey = region->lkey };
	struct ibv_send_wr *bad, wr = {
		.sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE,
		.wr.rdma = { .remote_addr = c->to.address, .rkey = c->to.rkey },
	};

	must(ibv_post_send(c->id->qp, &wr, &bad));
}

/* Writes from pages that are never there. */
static struct ibv_mr *write_missing(struct conn *c)
{
	struct uffdio_api api = { .api = UFFD_API };
	struct uffdio_register range = { .mode = UFFDIO_REGISTER_MODE_MISSING };
	void *at = mmap(NULL, REGION, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	int fd = syscall(SYS_userfaultfd, O_CLOEXEC);
	struct ibv_mr *missing;

	must(at == MAP_FAILED || fd < 0 || ioctl(fd, UFFDIO_API, &api));
	range.range.start = (uintptr_t)at;
	range.range.len = REGION;
	must(ioctl(fd, UFFDIO_REGISTER, &range));
	must(!(missing = ibv_reg_mr(pd, at, REGION, IBV_ACCESS_ON_DEMAND)));
	for (int i = 0; i < depth(1); i++)
		write_page(c, missing);
	return missing;
}

/* Binds a window again and again, with Writes between. */
static struct ibv_mw *bind_slowly(struct conn *c, struct ibv_mr *all)
{
	struct ibv_mw *mw = ibv_alloc_mw(pd, IBV_MW_TYPE_1);

	must(!mw);
	for (int i = 0; i < depth(1) / 2; i++) {
		struct ibv_mw_bind bind = {
			.bind_info = {
				.mr = all, .addr = (uintptr_t)all->addr, .length = 4096,
				.mw_access_flags = IBV_ACCESS_REMOTE_READ,
			},
		};

		must(ibv_bind_mw(c->id->qp, mw, &bind));
		write_page(c, all);
	}
	return mw;
}

static void beside(const char *host, const char *port, const char *stalled, int size, int ms, int times)
{
	bool page = !strcmp(stalled, "page"), bind = !strcmp(stalled, "bind");
	struct sockaddr_in sa = address_of(host, port), to = page || bind ? sa : address_of(host, stalled);
	struct ibv_mr *missing = NULL, *all = NULL;
	struct ibv_mw *mw = NULL;
	struct conn c = { 0 };
	int outstanding = depth(1);

	connect_one(&c, &sa, 1, NULL);
	for (int i = 0; i < outstanding; i++)
		post(&c, 0, size);
	if (bind)
		must(!(all = ibv_reg_mr(pd, mr->addr, REGION, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND)));
	for (int t = 0; t < times; t++) {
		double without = speed(&c, size, ms);
		struct conn dead = { 0 };
		struct ibv_cq *other;

		must(!(other = ibv_create_cq(c.id->verbs, depth(1) + receives(1), NULL, NULL, 0)));
		connect_one(&dead, &to, 1, other);
		if (page)
			missing = write_missing(&dead);
		else if (bind)
			mw = bind_slowly(&dead, all);
		else
			for (int i = 0; i < depth(1); i++)
				post(&dead, 0, size);
		printf("without %.4f\nbeside %.4f\n", without, speed(&c, size, ms));
		rdma_destroy_qp(dead.id);
		rdma_destroy_id(dead.id);
		if (page)
			must(munmap(missing->addr, REGION) || ibv_dereg_mr(missing));
		if (bind)
			must(ibv_dealloc_mw(mw));
		must(ibv_destroy_cq(other));
	}
	while (outstanding > 0)
		outstanding -= next(&c, size, false);
	rdma_disconnect(c.id);
	rdma_ack_cm_event(await(RDMA_CM_EVENT_DISCONNECTED));
	rdma_destroy_qp(c.id);
	rdma_destroy_id(c.id);
}

/* Polls for a completion of the kind, and passes over the others. */
static void poll_for(bool receive)
{
	struct ibv_wc wc;
	int got;

	do {
		got = ibv_poll_cq(cq, 1, &wc);
		if (got < 0 || (got && wc.status))
			die("%s", got < 0 ? "poll" : ibv_wc_status_str(wc.status));
	} while (!got || (wc.opcode & IBV_WC_RECV ? !receive : receive));
}

/* Whether a receive completes before the connection ends. */
static bool is_asked(void)
{
	struct pollfd end = { .fd = events->fd, .events = POLLIN };
	struct ibv_wc wc;

	for (unsigned int i = 1;; i++) {
		int got = ibv_poll_cq(cq, 1, &wc);

		must(got < 0);
		if (got && !has_come(&wc))
			return false;
		if (got && wc.opcode & IBV_WC_RECV)
			return true;
		if (i % 4096 == 0 && poll(&end, 1, 0) > 0)
			return false;
	}
}

static void echo(const char *host, const char *port)
{
	struct sockaddr_in sa = address_of(host, port);
	struct rdma_conn_param param = { .responder_resources = 1, .initiator_depth = 1 };
	struct rdma_cm_id *listener;
	struct rdma_cm_event *event;
	struct target own = { 0 };
	struct conn c = { 0 };

	must(rdma_create_id(events, &listener, NULL, RDMA_PS_TCP));
	must(rdma_bind_addr(listener, (struct sockaddr *)&sa));
	must(rdma_listen(listener, 1));
	event = await(RDMA_CM_EVENT_CONNECT_REQUEST);
	c.id = event->id;
	memcpy(&c.to, event->param.conn.private_data, sizeof(c.to));
	rdma_ack_cm_event(event);
	make_shared(c.id->verbs, 1);
	make_qp(c.id, 1, NULL);
	post_receive(c.id->qp, 0);
	own.address = (uintptr_t)mr->addr;
	own.rkey = mr->rkey;
	param.private_data = &own;
	param.private_data_len = sizeof(own);
	must(rdma_accept(c.id, &param));
	rdma_ack_cm_event(await(RDMA_CM_EVENT_ESTABLISHED));
	while (is_asked()) {
		post_receive(c.id->qp, 0);
		post(&c, 0, c.to.size);
	}
	rdma_ack_cm_event(await(RDMA_CM_EVENT_DISCONNECTED));
	rdma_destroy_qp(c.id);
	rdma_destroy_id(c.id);
}

static void ping(const char *host, const char *port, int size, int n)
{
	struct sockaddr_in sa = address_of(host, port);
	double *took = calloc(n, sizeof(*took));
	struct conn c = { .to.size = size };

	must(!took || size > REGION);
	connect_one(&c, &sa, 1, NULL);
	for (int i = 0; i < n; i++) {
		double start;

		post_receive(c.id->qp, 0);
		start = now();
		post(&c, 0, size);
		poll_for(true);
		/* One way, as in perftest. */
		took[i] = (now() - start) * 1e6 / 2;
	}
	print_times(took, n);
	rdma_disconnect(c.id);
	rdma_ack_cm_event(await(RDMA_CM_EVENT_DISCONNECTED));
	rdma_destroy_qp(c.id);
	rdma_destroy_id(c.id);
}

static void bind_windows(const char *host, const char *port, int ms)
{
	struct sockaddr_in sa = address_of(host, port);
	struct conn c = { 0 };
	struct ibv_mr *all;
	struct ibv_mw *mw;
	double start;
	int n;

	connect_one(&c, &sa, 1, NULL);
	must(!(all = ibv_reg_mr(pd, mr->addr, REGION, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND)));
	must(!(mw = ibv_alloc_mw(pd, IBV_MW_TYPE_2)));
	start = now();
	for (n = 0; now() < start + ms / 1000.0; n++) {
		uint32_t rkey = ibv_inc_rkey(mw->rkey);
		struct ibv_send_wr *bad, end = {
			.opcode = IBV_WR_LOCAL_INV, .send_flags = IBV_SEND_SIGNALED, .invalidate_rkey = rkey,
		}, bind = {
			.next = &end, .opcode = IBV_WR_BIND_MW,
			.bind_mw = { .mw = mw, .rkey = rkey, .bind_info = {
				.mr = all, .addr = (uintptr_t)all->addr, .length = 4096,
				.mw_access_flags = IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE,
			} },
		};

		must(ibv_post_send(c.id->qp, &bind, &bad));
		mw->rkey = rkey;
		poll_for(false);
	}
	printf("bind %.3f\n", n / (now() - start) / 1e3);
	must(ibv_dealloc_mw(mw) || ibv_dereg_mr(all));
	start = now();
	for (n = 0; now() < start + ms / 1000.0; n++) {
		must(!(all = ibv_reg_mr(pd, mr->addr, 4096, RIGHTS)));
		must(ibv_dereg_mr(all));
	}
	printf("reg-small %.3f\n", n / (now() - start) / 1e3);
	rdma_disconnect(c.id);
	rdma_ack_cm_event(await(RDMA_CM_EVENT_DISCONNECTED));
	rdma_destroy_qp(c.id);
	rdma_destroy_id(c.id);
}

/* A Write of 64 bytes from a region. */
static void write_from(struct conn *c, struct ibv_mr *from)
{
	struct ibv_sge sge = { .addr = (uintptr_t)from->addr, .length = 64, .lkey = from->lkey };
	struct ibv_send_wr *bad, wr = {
		.sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE, .send_flags = IBV_SEND_SIGNALED,
		.wr.rdma = { .remote_addr = c->to.address, .rkey = c->to.rkey },
	};

	must(ibv_post_send(c->id->qp, &wr, &bad));
}

static void regions(const char *host, const char *port, int n, int ms)
{
	struct sockaddr_in sa = address_of(host, port);
	struct ibv_mr **all = calloc(n, sizeof(*all));
	uint64_t sent = 0, done = 0, at = 0;
	double start, end, memory;
	struct conn c = { 0 };

	must(!all);
	connect_one(&c, &sa, 1, NULL);
	memory = kernel_memory();
	start = now();
	for (int i = 0; i < n; i++)
		must(!(all[i] = ibv_reg_mr(pd, (char *)mr->addr + i % (REGION / 4096) * 4096, 4096, RIGHTS)));
	printf("reg %.3f\nmemory %.0f\n", (now() - start) * 1e6 / n, (kernel_memory() - memory) / n);
	start = now();
	end = start + ms / 1000.0;
	while (done < sent || now() < end) {
		for (; sent < done + depth(1) && now() < end; sent++) {
			/* Meets all of a power of ten, in no order: it has no divisor of ten. */
			at = (at + 618033989) % n;
			write_from(&c, all[at]);
		}
		done += next(&c, 0, false);
	}
	printf("rate %.3f\n", done / (now() - start) / 1e3);
	start = now();
	for (int i = 0; i < n; i++)
		must(ibv_dereg_mr(all[i]));
	printf("dereg %.3f\n", (now() - start) * 1e6 / n);
	rdma_disconnect(c.id);
	rdma_ack_cm_event(await(RDMA_CM_EVENT_DISCONNECTED));
	rdma_destroy_qp(c.id);
	rdma_destroy_id(c.id);
}

/* NAME tells the pages apart, and ADVICE asks for them. */
static void reg_pages(const char *name, int advice, size_t mib)
{
	void *at = mmap(NULL, mib << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	double start, memory;

	if (at == MAP_FAILED)
		die("no memory");
	/* Not all kernels have huge pages. */
	madvise(at, mib << 20, advice);
	/* Small pages that are touched one after the other may be neighbours in memory. */
	for (size_t parity = 0; parity < 2; parity++)
		for (size_t page = parity; page < mib << 8; page += 2)
			((volatile char *)at)[page << 12] = 1;
	memory = kernel_memory();
	start = now();
	must(!(mr = ibv_reg_mr(pd, at, mib << 20, RIGHTS)));
	printf("reg%s %.3f\n", name, (now() - start) * 1e3 * 1024 / mib);
	printf("reg%s-memory %.0f\n", name, (kernel_memory() - memory) * 1024 / mib);
	start = now();
	must(ibv_dereg_mr(mr));
	printf("dereg%s %.3f\n", name, (now() - start) * 1e3 * 1024 / mib);
	munmap(at, mib << 20);
}

static void reg(const char *device, size_t mib)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_context *verbs = NULL;

	for (; list && *list; list++)
		if (!strcmp(ibv_get_device_name(*list), device))
			verbs = ibv_open_device(*list);
	if (!verbs)
		die("no device %s", device);
	must(!(pd = ibv_alloc_pd(verbs)));
	reg_pages("", MADV_NOHUGEPAGE, mib);
	reg_pages("-huge", MADV_HUGEPAGE, mib);
}

static void transfer(int fd, char *buf, int size, ssize_t (*call)(int, void *, size_t))
{
	for (int at = 0; at < size;) {
		ssize_t n = call(fd, buf + at, size - at);

		if (n < 0 && errno == EAGAIN)
			continue;
		if (n <= 0)
			exit(n < 0);
		at += n;
	}
}

static ssize_t send_(int fd, void *buf, size_t size)
{
	return send(fd, buf, size, MSG_DONTWAIT);
}

/* Unless it shall sleep, it polls, as perftest does for completions. */
static int recv_flags = MSG_DONTWAIT;

static ssize_t recv_(int fd, void *buf, size_t size)
{
	return recv(fd, buf, size, recv_flags);
}

static void tcp_serve(const char *port)
{
	struct sockaddr_in sa = address_of("0.0.0.0", port);
	int one = 1, size, fd, listener = socket(AF_INET, SOCK_STREAM, 0);
	static char buf[1 << 20];

	must(setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one)));
	must(bind(listener, (struct sockaddr *)&sa, sizeof(sa)));
	must(listen(listener, 1));
	fd = accept(listener, NULL, NULL);
	must(setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one)));
	transfer(fd, (char *)&size, sizeof(size), recv_);
	must(size < 1 || size > (int)sizeof(buf));
	for (;;) {
		transfer(fd, buf, size, recv_);
		transfer(fd, buf, size, send_);
	}
}

static void tcp(const char *host, const char *port, int size, int n)
{
	struct sockaddr_in sa = address_of(host, port);
	int one = 1, fd = socket(AF_INET, SOCK_STREAM, 0);
	double *took = calloc(n, sizeof(*took));
	static char buf[1 << 20];

	must(!took || size > (int)sizeof(buf));
	must(connect(fd, (struct sockaddr *)&sa, sizeof(sa)));
	must(setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one)));
	transfer(fd, (char *)&size, sizeof(size), send_);
	for (int i = 0; i < n; i++) {
		double start = now();

		transfer(fd, buf, size, send_);
		transfer(fd, buf, size, recv_);
		/* One way, as in perftest. */
		took[i] = (now() - start) * 1e6 / 2;
	}
	print_times(took, n);
}

static bool is_op(const char *name)
{
	for (size_t i = 0; i < sizeof(ops) / sizeof(*ops); i++)
		if (!strcmp(name, ops[i].name)) {
			op = ops[i].code;
			and_send = ops[i].and_send;
			return true;
		}
	return false;
}

int main(int argc, char **argv)
{
	const char *what = argc > 1 ? argv[1] : "";

	events = rdma_create_event_channel();
	if (!strncmp(what, "tcp", 3) && !strcmp(argv[argc - 1], "sleep")) {
		recv_flags = 0;
		argc--;
	}
	if (!strcmp(what, "serve") && argc == 6 && is_op(argv[2]))
		serve(argv[3], argv[4], atoi(argv[5]));
	else if (is_op(what) && argc == 7)
		transfers(argv[2], argv[3], atoi(argv[4]), atoi(argv[5]), atoi(argv[6]));
	else if (!strcmp(what, "beside") && argc == 8)
		beside(argv[2], argv[3], argv[4], atoi(argv[5]), atoi(argv[6]), atoi(argv[7]));
	else if (!strcmp(what, "echo") && argc == 5 && is_op(argv[2]))
		echo(argv[3], argv[4]);
	else if (!strcmp(what, "ping") && argc == 7 && is_op(argv[2]))
		ping(argv[3], argv[4], atoi(argv[5]), atoi(argv[6]));
	else if (!strcmp(what, "bind") && argc == 5)
		bind_windows(argv[2], argv[3], atoi(argv[4]));
	else if (!strcmp(what, "regions") && argc == 6)
		regions(argv[2], argv[3], atoi(argv[4]), atoi(argv[5]));
	else if (!strcmp(what, "reg") && argc == 4)
		reg(argv[2], atoi(argv[3]));
	else if (!strcmp(what, "tcp-serve") && argc == 3)
		tcp_serve(argv[2]);
	else if (!strcmp(what, "tcp") && argc == 6)
		tcp(argv[2], argv[3], atoi(argv[4]), atoi(argv[5]));
	else
		die("what? see the head of bench.c");
	return 0;
}
