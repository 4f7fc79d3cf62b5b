// SPDX-License-Identifier: GPL-2.0
/*
 * Checks of how regions translate addresses: long tables, large pages, dmabufs. Both ends are in
 * this process, the accepting one with a device in another network namespace, so that data goes by
 * reference. Run as root, as "region-check NEAR-DEVICE FAR-DEVICE NAMESPACE FAR-ADDRESS TEST...".
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include <linux/dma-heap.h>
#include <linux/udmabuf.h>

#define WC_MS 20000
#include "ends.h"
#include "rng.h"

#define PAGE 4096ul
#define HUGE (2ul << 20)
#define RIGHTS (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ)
#define PART (SIZE / 2)

static const char *devices[2];
static int nets[2];
static struct pair p;
static struct rng rng;

static void enter(int end)
{
	must(setns(nets[end], CLONE_NEWNET));
}

/* Memory that is registered at both ends, and what should be in it. */
struct region {
	char *at, *model;
	size_t len;
	uint64_t iova;
	struct ibv_mr *source; /* of end A, for work requests */
	struct ibv_mr *target; /* of end B, for the peer */
};

static void set_page_max(size_t size)
{
	for (int i = 0; i < 2; i++) {
		char path[128];
		FILE *f;

		snprintf(path, sizeof(path), "/sys/class/infiniband/%s/settings/att_page_max", devices[i]);
		must(!(f = fopen(path, "w")));
		must(fprintf(f, "%zu", size) < 0 || fclose(f));
	}
}

/* The order of a region's table, and the size of the pages in it. */
static void table_of(struct ibv_mr *mr, char order[16], size_t *page_size)
{
	char path[128], line[512];
	uint32_t stag;
	FILE *f;

	snprintf(path, sizeof(path), "/sys/kernel/debug/siw/%s/tpt", ibv_get_device_name(mr->context->device));
	must(!(f = fopen(path, "r")));
	do {
		expect(fgets(line, sizeof(line), f));
	} while (sscanf(line, "%x %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %15s %zu", &stag, order, page_size) != 3 ||
		 stag != mr->rkey);
	fclose(f);
}

static void check_table(struct ibv_mr *mr, const char *order, size_t page_size)
{
	char got[16];
	size_t size;

	table_of(mr, got, &size);
	if (strcmp(got, order) || size != page_size)
		die("%s with pages of %zu in place of %s with %zu, for %zu bytes", got, size, order, page_size, mr->length);
}

static void randomize(char *at, size_t len)
{
	for (size_t i = 0; i < len; i++)
		at[i] = next(&rng);
}

static void same(const char *what, struct region *r, const char *got, size_t at, size_t len)
{
	for (size_t i = 0; i < len; i++)
		if (got[i] != r->model[at + i])
			die("%s: byte %zu of %zu is wrong", what, at + i, r->len);
}

/* A Read of LEN bytes into the second half of A's buffer, perhaps with a Write in front of it. */
static void transfer(struct ibv_send_wr *write, uint64_t from, uint32_t rkey, size_t len)
{
	char *to = p.a.buf + PART;
	struct ibv_sge sge = { .addr = (uintptr_t)to, .length = len, .lkey = p.a.mr->lkey };
	struct ibv_send_wr read = {
		.wr_id = 7, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_READ, .send_flags = IBV_SEND_SIGNALED,
		.wr.rdma = { .remote_addr = from, .rkey = rkey },
	}, *bad;

	randomize(to, len);
	if (write)
		write->next = &read;
	must(ibv_post_send(p.a.id->qp, write ?: &read, &bad));
	expect_wc(p.a.scq, 7, IBV_WC_SUCCESS);
}

/* The peer reads a part. */
static void fetch(struct region *r, size_t at, size_t len)
{
	transfer(NULL, r->iova + at, r->target->rkey, len);
	same("Read", r, p.a.buf + PART, at, len);
}

/* The peer writes a part. */
static void put(struct region *r, size_t at, size_t len)
{
	struct ibv_sge sge = { .addr = (uintptr_t)p.a.buf, .length = len, .lkey = p.a.mr->lkey };
	struct ibv_send_wr write = {
		.sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE,
		.wr.rdma = { .remote_addr = r->iova + at, .rkey = r->target->rkey },
	};

	randomize(p.a.buf, len);
	memcpy(r->model + at, p.a.buf, len);
	transfer(&write, r->iova + at, r->target->rkey, len);
	same("Read of what was written", r, p.a.buf + PART, at, len);
	same("Write", r, r->at + at, at, len);
}

/* A part is written to the peer. */
static void give(struct region *r, size_t at, size_t len)
{
	struct ibv_sge sge = { .addr = r->iova + at, .length = len, .lkey = r->source->lkey };
	struct ibv_send_wr write = {
		.sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE,
		.wr.rdma = { .remote_addr = (uintptr_t)p.b.buf, .rkey = p.b.mr->rkey },
	};

	transfer(&write, (uintptr_t)p.b.buf, p.b.mr->rkey, len);
	same("source of a Write", r, p.a.buf + PART, at, len);
}

/* The bytes around each multiple of STEP, and parts at RANDOM places. */
static void use(struct region *r, size_t step, int random)
{
	for (size_t at = 0; at <= r->len; at += step) {
		size_t from = at > 100 ? at - 100 : 0;
		size_t to = at + 100 < r->len ? at + 100 : r->len;

		fetch(r, from, to - from);
		put(r, from, to - from);
		give(r, from, to - from);
	}
	for (int i = 0; i < random; i++) {
		size_t at = below(&rng, r->len);
		size_t len = 1 + below(&rng, r->len - at < PART ? r->len - at : PART);

		fetch(r, at, len);
		put(r, at, len);
		give(r, at, len);
	}
	same("memory", r, r->at, 0, r->len);
}

static void fill(struct region *r)
{
	must(!(r->model = malloc(r->len)));
	randomize(r->model, r->len);
	memcpy(r->at, r->model, r->len);
}

static void reg_as(struct region *r, uint64_t iova)
{
	r->iova = iova;
	must(!(r->source = ibv_reg_mr_iova(p.a.pd, r->at, r->len, iova, RIGHTS)));
	must(!(r->target = ibv_reg_mr_iova(p.b.pd, r->at, r->len, iova, RIGHTS)));
}

static void reg(struct region *r)
{
	reg_as(r, (uintptr_t)r->at);
}

static void dereg(struct region *r)
{
	must(ibv_dereg_mr(r->source));
	must(ibv_dereg_mr(r->target));
}

static char *memory(size_t len, int flags)
{
	char *at = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | flags, -1, 0);

	must(at == MAP_FAILED);
	return at;
}

/* A protection domain of this process: a child does not share that of its parent. */
static struct ibv_pd *open_near(void)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_context *context;
	struct ibv_pd *pd;

	while (*list && strcmp(ibv_get_device_name(*list), devices[0]))
		list++;
	must(!*list || !(context = ibv_open_device(*list)) || !(pd = ibv_alloc_pd(context)));
	return pd;
}

/* Tables around the lengths where the order changes. The settings make pages as small as that. */
static void test_orders(void)
{
	static const struct {
		size_t pages, size;
		const char *order;
	} tables[] = {
		{ 1, PAGE, "Direct" }, { 512, PAGE, "Direct" }, { 513, PAGE, "First" },
		{ 1, 64, "Direct" }, { 512, 64, "Direct" }, { 513, 64, "First" },
		{ 262144, 64, "First" }, { 262145, 64, "Second" }, { 262144 + 513, 64, "Second" },
	};

	for (size_t i = 0; i < sizeof(tables) / sizeof(*tables); i++) {
		struct region r = { .len = tables[i].pages * tables[i].size };

		r.at = memory(r.len, 0);
		fill(&r);
		set_page_max(tables[i].size);
		reg(&r);
		check_table(r.target, tables[i].order, tables[i].size);
		check_table(r.source, tables[i].order, tables[i].size);
		/* Borders of lists, but not all of the many that the long tables have. */
		use(&r, (tables[i].pages > 10000 ? 32 * 512 : 512) * tables[i].size, 20);
		for (size_t at = 0; at < r.len; at += PART)
			fetch(&r, at, r.len - at < PART ? r.len - at : PART);
		dereg(&r);
		free(r.model);
		munmap(r.at, r.len);
	}
	set_page_max(1 << 30);
}

/* Makes tables, and does not use them. */
static void test_tables(void)
{
	static const size_t sizes[] = { 1, 513 * 64, (262144 + 513) * 64 };
	struct ibv_pd *pd = open_near();

	set_page_max(64);
	for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
		struct ibv_mr *mr = ibv_reg_mr(pd, memory(sizes[i], 0), sizes[i], RIGHTS);

		must(!mr || ibv_dereg_mr(mr));
	}
	set_page_max(1 << 30);
}

/*
 * Pages of a file in any order: of as many sizes as they make runs. Peers may know another address.
 */
static void test_runs(void)
{
	enum { PAGES = 64, ROUNDS = 20 };
	int file = memfd_create("runs", 0);

	must(file < 0 || ftruncate(file, PAGES * PAGE));
	for (int round = 0; round < ROUNDS; round++) {
		size_t run = 1ul << below(&rng, 6), pages = 1 + below(&rng, PAGES), groups[PAGES];
		char *at = memory(pages * PAGE, 0);
		struct region r;

		/* No page twice: it could not have two contents. */
		for (size_t i = 0; i < PAGES / run; i++) {
			size_t other = below(&rng, i + 1);

			groups[i] = groups[other];
			groups[other] = i;
		}
		for (size_t i = 0; i < pages; i++)
			must(mmap(at + i * PAGE, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file,
				  (groups[i / run] * run + i % run) * PAGE) == MAP_FAILED);
		r.len = round ? 1 + below(&rng, pages * PAGE) : 1;
		r.at = at + below(&rng, pages * PAGE - r.len + 1);
		fill(&r);
		set_page_max(1ul << (6 + below(&rng, 25)));
		reg_as(&r, round % 2 ? 0x6000000000 + (uintptr_t)r.at % PAGE : (uintptr_t)r.at);
		use(&r, PAGE, 3);
		dereg(&r);
		free(r.model);
		munmap(at, pages * PAGE);
	}
	close(file);
	set_page_max(1 << 30);
}

/* The table has an entry for each huge page, wherever in it the region begins and ends. */
static void test_huge(void)
{
	enum { PAGES = 8 };
	char *at = memory(PAGES * HUGE, MAP_HUGETLB);

	for (int round = 0; round < 20; round++) {
		size_t from = round ? below(&rng, HUGE) : 0, to = round ? below(&rng, HUGE) : HUGE;
		struct region r = { .at = at + from, .len = (PAGES - 1) * HUGE + to - from };
		size_t size;
		char order[16];

		fill(&r);
		reg(&r);
		table_of(r.target, order, &size);
		expect(!strcmp(order, "Direct") && size >= HUGE);
		use(&r, HUGE, 5);
		dereg(&r);
		free(r.model);
	}
	munmap(at, PAGES * HUGE);
}

/* More than a program may lock. */
static void test_limit(void)
{
	struct rlimit few = { 16 * PAGE, 16 * PAGE };
	char *at = memory(64 * PAGE, 0);
	int status;
	pid_t child;

	if (!(child = fork())) {
		struct ibv_pd *pd = open_near();

		must(setrlimit(RLIMIT_MEMLOCK, &few) || setuid(65534));
		expect(!ibv_reg_mr(pd, at, 64 * PAGE, RIGHTS) && errno == ENOMEM);
		must(!ibv_reg_mr(pd, at, 8 * PAGE, RIGHTS));
		exit(0);
	}
	must(child < 0 || waitpid(child, &status, 0) < 0 || status);
	munmap(at, 64 * PAGE);
}

/* Dmabufs. */

/* How many there are on this machine. */
static int dmabufs(void)
{
	FILE *f = fopen("/sys/kernel/debug/dma_buf/bufinfo", "r");
	char line[512];
	int n = -1;

	must(!f);
	while (fgets(line, sizeof(line), f))
		sscanf(line, "Total %d objects", &n);
	fclose(f);
	expect(n >= 0);
	return n;
}

/* How many devices use them. */
static int attachments(void)
{
	FILE *f = fopen("/sys/kernel/debug/dma_buf/bufinfo", "r");
	char line[512];
	int n, sum = 0;

	must(!f);
	while (fgets(line, sizeof(line), f))
		if (sscanf(line, "Total %d", &n) == 1 && strstr(line, "devices attached"))
			sum += n;
	fclose(f);
	return sum;
}

static bool dmabufs_become(int n)
{
	for (int i = 0; i < 5000; i++, usleep(1000))
		if (dmabufs() == n)
			return true;
	return false;
}

/* A dmabuf of LEN bytes of a file, and its memory. */
static int udmabuf(size_t len, char **at)
{
	int node = open("/dev/udmabuf", O_RDWR), file = memfd_create("udmabuf", MFD_ALLOW_SEALING), fd;
	struct udmabuf_create create = { .memfd = file, .flags = UDMABUF_FLAGS_CLOEXEC, .size = len };

	must(node < 0 || file < 0 || ftruncate(file, len) || fcntl(file, F_ADD_SEALS, F_SEAL_SHRINK));
	must((fd = ioctl(node, UDMABUF_CREATE, &create)) < 0);
	*at = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
	must(*at == MAP_FAILED);
	close(file);
	close(node);
	return fd;
}

/* One of the system heap. */
static int heap(size_t len, int flags, char **at)
{
	struct dma_heap_allocation_data alloc = { .len = len, .fd_flags = flags | O_CLOEXEC };
	int node = open("/dev/dma_heap/system", O_RDWR);

	must(node < 0);
	must(ioctl(node, DMA_HEAP_IOCTL_ALLOC, &alloc));
	close(node);
	*at = NULL;
	if (flags == O_RDWR) {
		*at = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_SHARED, alloc.fd, 0);
		must(*at == MAP_FAILED);
	}
	return alloc.fd;
}

static void use_dmabuf(int fd, char *at, size_t size)
{
	static const struct {
		size_t from, behind;
	} parts[] = { { 0, 0 }, { PAGE, 0 }, { 3 * PAGE + 123, 77 }, { 0, PAGE + 1 } };

	for (size_t i = 0; i < sizeof(parts) / sizeof(*parts); i++) {
		size_t from = parts[i].from;
		struct region r = { .at = at + from, .len = size - from - parts[i].behind };

		fill(&r);
		r.iova = 0x7000000000 + from % PAGE;
		must(!(r.source = ibv_reg_dmabuf_mr(p.a.pd, from, r.len, r.iova, fd, RIGHTS)));
		must(!(r.target = ibv_reg_dmabuf_mr(p.b.pd, from, r.len, r.iova, fd, RIGHTS)));
		use(&r, size / 4, 20);
		dereg(&r);
		free(r.model);
	}
}

static void refused(int fd, size_t from, size_t len, int access, int error)
{
	errno = 0;
	if (ibv_reg_dmabuf_mr(p.a.pd, from, len, from, fd, access) || errno != error)
		die("errno is %d, not %d", errno, error);
}

static void check_refused(int fd, size_t size)
{
	int file = memfd_create("file", 0);

	must(file < 0 || ftruncate(file, size));
	refused(-1, 0, PAGE, RIGHTS, EBADF);
	refused(file, 0, PAGE, RIGHTS, EINVAL);
	refused(fd, 0, 0, RIGHTS, EINVAL);
	refused(fd, 0, size + 1, RIGHTS, EINVAL);
	refused(fd, size, PAGE, RIGHTS, EINVAL);
	refused(fd, -PAGE, 2 * PAGE, RIGHTS, EINVAL);
	close(file);
}

/* What a killed program had is released. */
static void check_killed(int fd, int before)
{
	int ready[2], status;
	char byte;
	pid_t child;

	must(pipe(ready));
	child = fork();
	if (!child) {
		must(!ibv_reg_dmabuf_mr(open_near(), 0, PAGE, 0, fd, IBV_ACCESS_REMOTE_READ));
		close(fd);
		must(write(ready[1], "", 1) != 1);
		pause();
	}
	close(ready[1]);
	must(read(ready[0], &byte, 1) != 1);
	close(ready[0]);
	close(fd);
	expect(dmabufs() == before + 1);
	must(kill(child, SIGKILL) || waitpid(child, &status, 0) < 0);
	expect(dmabufs_become(before));
}

static void test_udmabuf(void)
{
	const size_t size = 40 * PAGE;
	int before = dmabufs(), fd;
	struct ibv_mr *mr;
	char *at;

	fd = udmabuf(size, &at);
	use_dmabuf(fd, at, size);
	check_refused(fd, size);
	/* The region keeps the buffer. */
	must(!(mr = ibv_reg_dmabuf_mr(p.a.pd, 0, size, 0, fd, RIGHTS)));
	close(fd);
	/* And asks it to stay where it is. */
	expect(dmabufs() == before + 1 && attachments() == 1);
	must(ibv_dereg_mr(mr));
	expect(dmabufs_become(before) && attachments() == 0);
	munmap(at, size);

	fd = udmabuf(size, &at);
	munmap(at, size);
	check_killed(fd, before);
}

static void test_heap(void)
{
	const size_t size = 3 * HUGE;
	int before = dmabufs(), fd;
	struct ibv_mr *mr;
	char *at;

	fd = heap(size, O_RDWR, &at);
	use_dmabuf(fd, at, size);
	check_refused(fd, size);
	close(fd);
	munmap(at, size);
	/* A descriptor for reading gives no right to write. */
	fd = heap(size, O_RDONLY, &at);
	refused(fd, 0, PAGE, IBV_ACCESS_LOCAL_WRITE, EACCES);
	must(!(mr = ibv_reg_dmabuf_mr(p.a.pd, 0, PAGE, 0, fd, IBV_ACCESS_REMOTE_READ)));
	must(ibv_dereg_mr(mr));
	check_killed(fd, before);
}

/* The stock library has no such verb. */
static void test_no_dmabuf(void)
{
	refused(0, 0, PAGE, RIGHTS, EOPNOTSUPP);
}

static const struct {
	const char *name;
	void (*run)(void);
	bool alone; /* without a connection */
} tests[] = {
	{ "orders", test_orders, false }, { "runs", test_runs, false }, { "huge", test_huge, false },
	{ "limit", test_limit, true }, { "tables", test_tables, true }, { "udmabuf", test_udmabuf, false },
	{ "heap", test_heap, false }, { "no-dmabuf", test_no_dmabuf, false },
};

int main(int argc, char **argv)
{
	if (argc < 6)
		die("usage: region-check NEAR-DEVICE FAR-DEVICE NAMESPACE FAR-ADDRESS TEST...");
	devices[0] = argv[1];
	devices[1] = argv[2];
	must((nets[0] = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC)) < 0);
	must((nets[1] = open(argv[3], O_RDONLY | O_CLOEXEC)) < 0);
	enter_net = enter;
	address = argv[4];
	rng = rng_of(1, 0);
	setvbuf(stdout, NULL, _IOLBF, 0);
	for (int i = 5; i < argc; i++) {
		size_t t = 0;

		while (t < sizeof(tests) / sizeof(*tests) && strcmp(tests[t].name, argv[i]))
			t++;
		if (t == sizeof(tests) / sizeof(*tests))
			die("no test %s", argv[i]);
		if (!tests[t].alone && !p.listener) {
			connect_pair(&p, &usual, &usual);
			settle(&p);
		}
		tests[t].run();
		printf("ok %s\n", argv[i]);
	}
	if (p.listener)
		disconnect_pair(&p);
	return 0;
}
