// SPDX-License-Identifier: GPL-2.0
/*
 * Checks of memory on demand. Both ends are in this process. Run as
 *   odp-check ADDRESS [TEST]		all tests that every provider library passes, or one of all
 *   odp-check ADDRESS large MIB	reads so much address space, and writes parts of it
 *   odp-check ADDRESS fire SECONDS	traffic while the memory comes and goes
 *   odp-check ADDRESS crowd PAIRS	all of these pairs wait for memory, until it is killed
 * with an address of a siw device of this machine.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/capability.h>
#include <linux/userfaultfd.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#define WC_MS 20000
#include "ends.h"
#include "rng.h"
#include "times.h"

#define PAGE 4096UL
#define MIB (1UL << 20)

static const int all_rights = IBV_ACCESS_ON_DEMAND | IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
			      IBV_ACCESS_REMOTE_READ;

static void *map(size_t len)
{
	void *at = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	expect(at != MAP_FAILED);
	return at;
}

static void unmap(void *at, size_t len)
{
	must(munmap(at, len));
}

static struct ibv_mr *lend(struct end *e, void *at, size_t len, int access)
{
	struct ibv_mr *mr;

	must(!(mr = ibv_reg_mr(e->pd, at, len, access)));
	return mr;
}

/* Bytes that differ by place and by SEED. */
static void paint(char *at, size_t len, unsigned int seed)
{
	for (size_t i = 0; i < len; i++)
		at[i] = (i * 7 + (i >> 12) * 13 + seed) & 0xff;
}

static bool painted(const char *at, size_t len, unsigned int seed)
{
	for (size_t i = 0; i < len; i++)
		if (at[i] != (char)((i * 7 + (i >> 12) * 13 + seed) & 0xff))
			return false;
	return true;
}

static bool blank(const char *at, size_t len)
{
	for (size_t i = 0; i < len; i++)
		if (at[i])
			return false;
	return true;
}

/* Posts a request of E: LEN bytes at LOCAL of MR, and the peer's memory at REMOTE. */
static void ask(struct end *e, enum ibv_wr_opcode op, struct ibv_mr *mr, void *local, uint32_t len,
		struct ibv_mr *to, void *remote)
{
	struct ibv_sge sge = { .addr = (uintptr_t)local, .length = len, .lkey = mr->lkey };
	struct ibv_send_wr wr = { .wr_id = op, .sg_list = &sge, .num_sge = 1, .opcode = op, .send_flags = IBV_SEND_SIGNALED }, *bad;

	if (to) {
		wr.wr.rdma.remote_addr = (uintptr_t)remote;
		wr.wr.rdma.rkey = to->rkey;
	}
	must(ibv_post_send(e->id->qp, &wr, &bad));
}

static void expect_op(struct end *e, enum ibv_wr_opcode op)
{
	expect_wc(e->scq, op, IBV_WC_SUCCESS);
}

/* A of P reads REMOTE of the other end into its ordinary buffer. */
static void read_in(struct pair *p, struct ibv_mr *mr, void *remote, uint32_t len)
{
	ask(&p->a, IBV_WR_RDMA_READ, p->a.mr, p->a.buf, len, mr, remote);
	expect_op(&p->a, IBV_WR_RDMA_READ);
}

/*
 * A of P writes its buffer to REMOTE of the other end. What it sends behind tells that it is there.
 */
static void write_out(struct pair *p, struct ibv_mr *mr, void *remote, uint32_t len)
{
	must(post_recv(&p->b, 2, SIZE - 64, 64));
	ask(&p->a, IBV_WR_RDMA_WRITE, p->a.mr, p->a.buf, len, mr, remote);
	ask(&p->a, IBV_WR_SEND, p->a.mr, p->a.buf, 8, NULL, NULL);
	expect_op(&p->a, IBV_WR_RDMA_WRITE);
	expect_op(&p->a, IBV_WR_SEND);
	expect_wc(p->b.rcq, 2, IBV_WC_SUCCESS);
}

static void take(struct end *e, struct ibv_mr *mr, void *at, uint32_t len)
{
	struct ibv_sge sge = { .addr = (uintptr_t)at, .length = len, .lkey = mr->lkey };
	struct ibv_recv_wr wr = { .wr_id = 3, .sg_list = &sge, .num_sge = 1 }, *bad;

	must(e->srq ? ibv_post_srq_recv(e->srq, &wr, &bad) : ibv_post_recv(e->id->qp, &wr, &bad));
}

static void test_caps(void)
{
	uint32_t want = IBV_ODP_SUPPORT_SEND | IBV_ODP_SUPPORT_RECV | IBV_ODP_SUPPORT_WRITE | IBV_ODP_SUPPORT_READ |
			IBV_ODP_SUPPORT_SRQ_RECV;
	struct ibv_device_attr_ex attr;
	struct pair p;

	connect_pair(&p, &usual, &usual);
	must(ibv_query_device_ex(p.a.id->verbs, NULL, &attr));
	/* With stock libsiw there are no atomic operations. */
	if (attr.orig_attr.atomic_cap == IBV_ATOMIC_GLOB)
		want |= IBV_ODP_SUPPORT_ATOMIC;
	expect(attr.odp_caps.general_caps == IBV_ODP_SUPPORT);
	expect(attr.odp_caps.per_transport_caps.rc_odp_caps == want);
	disconnect_pair(&p);
}

/* All of memory that nobody has touched: both directions, as source and as sink. */
static void flow(struct pair *p, size_t len, size_t shift)
{
	char *far = map(len + shift), *near = map(len + shift);
	struct ibv_mr *theirs = lend(&p->b, far, len + shift, all_rights);
	struct ibv_mr *ours = lend(&p->a, near, len + shift, all_rights);

	/* Zeros are read, too: the sink is not what it was. */
	paint(near + shift, len, 1);
	must(madvise(near, len + shift, MADV_DONTNEED));
	ask(&p->a, IBV_WR_RDMA_READ, ours, near + shift, len, theirs, far + shift);
	expect_op(&p->a, IBV_WR_RDMA_READ);
	expect(blank(near + shift, len));

	paint(far + shift, len, 2);
	ask(&p->a, IBV_WR_RDMA_READ, ours, near + shift, len, theirs, far + shift);
	expect_op(&p->a, IBV_WR_RDMA_READ);
	expect(painted(near + shift, len, 2));

	paint(near + shift, len, 3);
	must(madvise(far, len + shift, MADV_DONTNEED));
	must(post_recv(&p->b, 2, 0, 64));
	ask(&p->a, IBV_WR_RDMA_WRITE, ours, near + shift, len, theirs, far + shift);
	ask(&p->a, IBV_WR_SEND, p->a.mr, p->a.buf, 8, NULL, NULL);
	expect_op(&p->a, IBV_WR_RDMA_WRITE);
	expect_op(&p->a, IBV_WR_SEND);
	expect_wc(p->b.rcq, 2, IBV_WC_SUCCESS);
	expect(painted(far + shift, len, 3));

	must(madvise(far, len + shift, MADV_DONTNEED));
	paint(near + shift, len, 4);
	take(&p->b, theirs, far + shift, len);
	ask(&p->a, IBV_WR_SEND, ours, near + shift, len, NULL, NULL);
	expect_op(&p->a, IBV_WR_SEND);
	expect_wc(p->b.rcq, 3, IBV_WC_SUCCESS);
	expect(painted(far + shift, len, 4));

	must(ibv_dereg_mr(ours));
	must(ibv_dereg_mr(theirs));
	unmap(near, len + shift);
	unmap(far, len + shift);
}

static void test_flow(void)
{
	struct shape srq = usual;
	struct pair p;

	connect_pair(&p, &usual, &usual);
	settle(&p);
	flow(&p, 1, 0);
	flow(&p, 8, PAGE - 4);
	flow(&p, PAGE, 0);
	flow(&p, 5000, 3);
	flow(&p, 70000, 77);
	flow(&p, 3 * MIB, 4091);
	disconnect_pair(&p);
	srq.srq = 16;
	connect_pair(&p, &usual, &srq);
	settle(&p);
	flow(&p, 5000, 3);
	flow(&p, MIB, 0);
	disconnect_pair(&p);
}

/* Lists of elements in several regions, some of them on demand. */
static void test_lists(void)
{
	char *far = map(MIB), *near = map(MIB);
	struct ibv_mr *theirs, *ours;
	struct ibv_send_wr wr = { .wr_id = 9, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED }, *bad;
	struct ibv_recv_wr recv = { .wr_id = 9 }, *bad_recv;
	struct pair p;

	connect_pair(&p, &usual, &usual);
	settle(&p);
	theirs = lend(&p.b, far, MIB, all_rights);
	ours = lend(&p.a, near, MIB, all_rights);
	struct ibv_sge out[] = {
		{ (uintptr_t)near + PAGE - 100, 200, ours->lkey },
		{ (uintptr_t)p.a.buf, 300, p.a.mr->lkey },
		{ (uintptr_t)near + 40 * PAGE + 7, 2 * PAGE, ours->lkey },
		{ (uintptr_t)near + 80 * PAGE, 50000, ours->lkey },
	};
	struct ibv_sge in[] = {
		{ (uintptr_t)far + 9, 100, theirs->lkey },
		{ (uintptr_t)far + 17 * PAGE - 1, 5000, theirs->lkey },
		{ (uintptr_t)p.b.buf, 1000, p.b.mr->lkey },
		{ (uintptr_t)far + 90 * PAGE, 60000, theirs->lkey },
	};
	char *sent = malloc(SIZE), *got = malloc(SIZE);
	size_t len = 200 + 300 + 2 * PAGE + 50000, at = 0;

	paint(sent, len, 5);
	for (int i = 0; i < 4; at += out[i++].length)
		memcpy((char *)(uintptr_t)out[i].addr, sent + at, out[i].length);
	wr.sg_list = out;
	recv.sg_list = in;
	wr.num_sge = recv.num_sge = 4;
	for (int round = 0; round < 2; round++) {
		must(ibv_post_recv(p.b.id->qp, &recv, &bad_recv));
		must(ibv_post_send(p.a.id->qp, &wr, &bad));
		expect_wc(p.a.scq, 9, IBV_WC_SUCCESS);
		expect_wc(p.b.rcq, 9, IBV_WC_SUCCESS);
		at = 0;
		for (int i = 0; i < 4 && at < len; at += in[i++].length) {
			size_t n = len - at < in[i].length ? len - at : in[i].length;

			memcpy(got + at, (char *)(uintptr_t)in[i].addr, n);
		}
		expect(!memcmp(sent, got, len));
		must(madvise(far, MIB, MADV_DONTNEED));
	}
	free(sent);
	free(got);
	must(ibv_dereg_mr(ours));
	must(ibv_dereg_mr(theirs));
	disconnect_pair(&p);
	unmap(near, MIB);
	unmap(far, MIB);
}

/* What the program makes of its memory is what peers find there. */
static void test_changes(void)
{
	size_t len = 16 * PAGE;
	char *far = map(len);
	struct ibv_mr *mr;
	struct pair p;
	int fd;

	connect_pair(&p, &usual, &usual);
	settle(&p);
	mr = lend(&p.b, far, len, all_rights);
	paint(far, len, 1);
	read_in(&p, mr, far, len);
	expect(painted(p.a.buf, len, 1));
	/* Thrown away, then new. */
	must(madvise(far, len, MADV_DONTNEED));
	read_in(&p, mr, far, len);
	expect(blank(p.a.buf, len));
	paint(far, len, 2);
	read_in(&p, mr, far, len);
	expect(painted(p.a.buf, len, 2));
	/* Other memory at the same place. */
	expect(mmap(far, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == far);
	paint(far, len, 3);
	read_in(&p, mr, far, len);
	expect(painted(p.a.buf, len, 3));
	paint(p.a.buf, len, 4);
	write_out(&p, mr, far, len);
	expect(painted(far, len, 4));
	/* A file, which writes reach. */
	expect((fd = memfd_create("odp", 0)) >= 0);
	must(ftruncate(fd, len));
	expect(mmap(far, len, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0) == far);
	paint(p.a.buf, len, 5);
	write_out(&p, mr, far, len);
	memset(p.a.buf, 0, len);
	expect(pread(fd, p.a.buf, len, 0) == (ssize_t)len && painted(p.a.buf, len, 5));
	/* Read only: it can still be read. */
	must(mprotect(far, len, PROT_READ));
	read_in(&p, mr, far, len);
	expect(painted(p.a.buf, len, 5));
	close(fd);
	must(ibv_dereg_mr(mr));
	disconnect_pair(&p);
	unmap(far, len);
}

/* A child has the memory of its parent as it was, and the device has the parent's as it is. */
static void test_fork(void)
{
	size_t len = 8 * PAGE;
	char *far = map(len);
	int go[2], told[2], status;
	struct ibv_mr *mr;
	struct pair p;
	char byte = 0;
	pid_t child;

	connect_pair(&p, &usual, &usual);
	settle(&p);
	mr = lend(&p.b, far, len, all_rights);
	paint(far, len, 1);
	paint(p.a.buf, len, 1);
	write_out(&p, mr, far, len);
	must(pipe(go));
	must(pipe(told));
	expect((child = fork()) >= 0);
	if (!child) {
		if (!painted(far, len, 1))
			_exit(1);
		paint(far, PAGE, 9);
		if (write(told[1], &byte, 1) != 1 || read(go[0], &byte, 1) != 1)
			_exit(2);
		_exit(painted(far, PAGE, 9) && far[PAGE] == (char)(PAGE * 7 + 13 + 1) ? 0 : 3);
	}
	expect(read(told[0], &byte, 1) == 1);
	/* The child has changed its own copy. */
	read_in(&p, mr, far, len);
	expect(painted(p.a.buf, len, 1));
	paint(p.a.buf, len, 2);
	write_out(&p, mr, far, len);
	expect(painted(far, len, 2));
	far[0] = 77;
	read_in(&p, mr, far, len);
	expect(p.a.buf[0] == 77 && !memcmp(p.a.buf, far, len));
	expect(write(go[1], &byte, 1) == 1);
	expect(waitpid(child, &status, 0) == child);
	if (status)
		die("the child: %#x", status);
	must(ibv_dereg_mr(mr));
	disconnect_pair(&p);
	unmap(far, len);
}

enum how { UNMAPPED, READ_ONLY, TRUNCATED, SECRET };

/* Memory of B that is not there, or not to be written to, and that B or a peer uses. */
static void refuse(enum how how, bool by_peer, enum ibv_wr_opcode op)
{
	size_t len = 4 * PAGE;
	char *far = map(len);
	int fd = -1;
	struct ibv_mr *mr;
	struct pair p;

	connect_pair(&p, &usual, &usual);
	settle(&p);
	if (how == TRUNCATED) {
		expect((fd = memfd_create("odp", 0)) >= 0);
		must(ftruncate(fd, len));
		expect(mmap(far, len, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0) == far);
	}
	mr = lend(&p.b, far, len, all_rights);
	/* It was there before. */
	paint(p.a.buf, len, 1);
	write_out(&p, mr, far, len);
	switch (how) {
	case UNMAPPED:
		unmap(far + PAGE, PAGE);
		break;
	case READ_ONLY:
		must(mprotect(far + PAGE, PAGE, PROT_READ));
		break;
	case TRUNCATED:
		must(ftruncate(fd, PAGE));
		break;
	case SECRET:
		/* The kernel does not map it for itself. */
		expect((fd = syscall(SYS_memfd_secret, 0)) >= 0);
		must(ftruncate(fd, PAGE));
		expect(mmap(far + PAGE, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0) == far + PAGE);
		far[PAGE] = 1;
		break;
	}
	/* The page before is not affected. */
	write_out(&p, mr, far, 64);
	if (by_peer) {
		ask(&p.a, op, p.a.mr, p.a.buf, 2 * PAGE, mr, far);
		if (op == IBV_WR_RDMA_READ)
			expect_wc(p.a.scq, op, IBV_WC_REM_ACCESS_ERR);
	} else if (op == IBV_WR_RDMA_READ) {
		ask(&p.b, op, mr, far, 2 * PAGE, p.a.mr, p.a.buf);
		expect_wc(p.b.scq, op, IBV_WC_LOC_PROT_ERR);
	} else if (op == IBV_WR_SEND) {
		ask(&p.b, op, mr, far, 2 * PAGE, NULL, NULL);
		expect_wc(p.b.scq, op, IBV_WC_LOC_PROT_ERR);
	} else {
		take(&p.b, mr, far, 2 * PAGE);
		ask(&p.a, IBV_WR_SEND, p.a.mr, p.a.buf, 2 * PAGE, NULL, NULL);
		expect_wc(p.b.rcq, 3, IBV_WC_LOC_PROT_ERR);
	}
	expect(becomes(&p.b, IBV_QPS_ERR));
	must(ibv_dereg_mr(mr));
	disconnect_pair(&p);
	if (fd >= 0)
		close(fd);
	munmap(far, len);
}

static void test_refusals(void)
{
	int secret = syscall(SYS_memfd_secret, 0);
	/* Not every kernel has it. */
	enum how last = secret < 0 ? TRUNCATED : SECRET;

	close(secret);
	for (enum how how = UNMAPPED; how <= last; how++) {
		if (how != READ_ONLY) {
			refuse(how, true, IBV_WR_RDMA_READ);
			refuse(how, false, IBV_WR_SEND);
		}
		refuse(how, true, IBV_WR_RDMA_WRITE);
		refuse(how, false, IBV_WR_RDMA_READ);
		refuse(how, false, IBV_WR_RDMA_WRITE);
	}
}

/* Rights are those of the registration, also for memory that allows more. */
static void test_rights(void)
{
	char *far = map(PAGE);
	struct ibv_mr *mr;
	struct pair p;

	connect_pair(&p, &usual, &usual);
	settle(&p);
	mr = lend(&p.b, far, PAGE, IBV_ACCESS_ON_DEMAND | IBV_ACCESS_REMOTE_READ);
	strcpy(far, "as it was");
	read_in(&p, mr, far, PAGE);
	ask(&p.a, IBV_WR_RDMA_WRITE, p.a.mr, p.a.buf, 64, mr, far);
	expect(becomes(&p.b, IBV_QPS_ERR));
	expect(!strcmp(far, "as it was"));
	must(ibv_dereg_mr(mr));
	disconnect_pair(&p);
	unmap(far, PAGE);
}

/* No memory is locked, and none is touched. */
static void test_unlocked(void)
{
	struct __user_cap_header_struct head = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct caps[2];
	struct rlimit none = { 0, 0 };
	char *far = map(64 * MIB);
	unsigned char there[1];
	struct ibv_mr *mr;
	struct pair p;

	must(syscall(SYS_capget, &head, caps));
	caps[0].effective &= ~(1u << CAP_IPC_LOCK);
	caps[0].permitted &= ~(1u << CAP_IPC_LOCK);
	must(syscall(SYS_capset, &head, caps));
	/* Only now: who opens a device must not change afterwards. */
	connect_pair(&p, &usual, &usual);
	settle(&p);
	must(setrlimit(RLIMIT_MEMLOCK, &none));
	expect(!ibv_reg_mr(p.b.pd, far, PAGE, IBV_ACCESS_REMOTE_READ) && (errno == EPERM || errno == ENOMEM));
	mr = lend(&p.b, far, 64 * MIB, all_rights);
	must(mincore(far + 32 * MIB, PAGE, there));
	expect(!(there[0] & 1));
	paint(p.a.buf, SIZE / 2, 1);
	write_out(&p, mr, far + 32 * MIB, SIZE / 2);
	expect(painted(far + 32 * MIB, SIZE / 2, 1));
	must(ibv_dereg_mr(mr));
	disconnect_pair(&p);
	unmap(far, 64 * MIB);
}

/* What cannot be. */
static void test_limits(void)
{
	struct pair p;

	connect_pair(&p, &usual, &usual);
	expect(!ibv_reg_mr(p.b.pd, (void *)PAGE, 1UL << 47, all_rights) && errno == ENOMEM);
	expect(!ibv_reg_mr(p.b.pd, (void *)PAGE, 0, all_rights) && errno == EINVAL);
	disconnect_pair(&p);
}

/* Bytes of the kernel's that are charged to the control group of this process. */
static long charged(void)
{
	char path[256], group[128], line[128];
	FILE *f = fopen("/proc/self/cgroup", "r");
	long n = -1;

	must(!f || fscanf(f, "0::%127s", group) != 1);
	fclose(f);
	snprintf(path, sizeof(path), "/sys/fs/cgroup%s/memory.stat", group);
	must(!(f = fopen(path, "r")));
	while (fgets(line, sizeof(line), f))
		sscanf(line, "slab %ld", &n);
	fclose(f);
	expect(n >= 0);
	return n;
}

/* What the kernel keeps of the pages is charged to the program, whoever brings them. */
static void test_charge(void)
{
	/* Each a page of the table, for 2 MiB. */
	enum { LISTS = 256 };
	char *far = map(LISTS * 2 * MIB);
	struct ibv_mr *mr;
	struct pair p;
	long before;

	connect_pair(&p, &usual, &usual);
	settle(&p);
	mr = lend(&p.b, far, LISTS * 2 * MIB, IBV_ACCESS_ON_DEMAND | IBV_ACCESS_REMOTE_READ);
	read_in(&p, mr, far, 8);
	before = charged();
	for (int i = 1; i < LISTS; i++)
		read_in(&p, mr, far + i * 2 * MIB, 8);
	printf("%ld bytes\n", charged() - before);
	expect(charged() - before >= LISTS * (long)PAGE * 3 / 4);
	must(ibv_dereg_mr(mr));
	disconnect_pair(&p);
	unmap(far, LISTS * 2 * MIB);
}

static int fault_fd(char *at, size_t len)
{
	struct uffdio_api api = { .api = UFFD_API };
	struct uffdio_register reg = {
		.range = { .start = (uintptr_t)at, .len = len }, .mode = UFFDIO_REGISTER_MODE_MISSING,
	};
	int fd = syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK);

	expect(fd >= 0);
	must(ioctl(fd, UFFDIO_API, &api));
	must(ioctl(fd, UFFDIO_REGISTER, &reg));
	return fd;
}

/* The kernel wants the page at AT. */
static void expect_fault(int fd, const char *at)
{
	struct pollfd pfd = { .fd = fd, .events = POLLIN };
	struct uffd_msg msg;

	expect(poll(&pfd, 1, 10000) == 1);
	expect(read(fd, &msg, sizeof(msg)) == sizeof(msg));
	expect(msg.event == UFFD_EVENT_PAGEFAULT);
	expect((msg.arg.pagefault.address & ~(PAGE - 1)) == (uintptr_t)at);
}

static void supply(int fd, char *at, char *from)
{
	struct uffdio_copy copy = { .dst = (uintptr_t)at, .src = (uintptr_t)from, .len = PAGE };

	must(ioctl(fd, UFFDIO_COPY, &copy));
}

/* A Send of FROM arrives at TO. */
static void say(struct end *from, struct end *to)
{
	must(post_recv(to, 4, SIZE - 64, 64));
	ask(from, IBV_WR_SEND, from->mr, from->buf, 8, NULL, NULL);
	expect_op(from, IBV_WR_SEND);
	expect_wc(to->rcq, 4, IBV_WC_SUCCESS);
}

/* While a queue pair waits for memory, all that does not need it goes on. */
static void test_stall(void)
{
	char *far = map(4 * PAGE), *page = map(PAGE);
	struct pair p, other;
	struct ibv_mr *mr;
	struct ibv_wc wc;
	int fd;

	connect_pair(&p, &usual, &usual);
	connect_pair(&other, &usual, &usual);
	settle(&p);
	settle(&other);
	fd = fault_fd(far, 4 * PAGE);
	mr = lend(&p.b, far, 4 * PAGE, all_rights);

	/* The response to a Read waits; what comes in is taken. */
	ask(&p.a, IBV_WR_RDMA_READ, p.a.mr, p.a.buf, 100, mr, far);
	expect_fault(fd, far);
	must(post_recv(&p.b, 5, SIZE - 64, 64));
	ask(&p.a, IBV_WR_SEND, p.a.mr, p.a.buf, 8, NULL, NULL);
	expect_wc(p.b.rcq, 5, IBV_WC_SUCCESS);
	say(&other.a, &other.b);
	say(&other.b, &other.a);
	expect(!next_wc(p.a.scq, &wc, 200));
	paint(page, PAGE, 1);
	supply(fd, far, page);
	expect_op(&p.a, IBV_WR_RDMA_READ);
	expect_op(&p.a, IBV_WR_SEND);
	expect(painted(p.a.buf, 100, 1));

	/* What comes in behind a Write waits; what goes out does not. */
	paint(p.a.buf, 100, 2);
	must(post_recv(&p.b, 5, SIZE - 64, 64));
	ask(&p.a, IBV_WR_RDMA_WRITE, p.a.mr, p.a.buf, 100, mr, far + PAGE);
	ask(&p.a, IBV_WR_SEND, p.a.mr, p.a.buf, 8, NULL, NULL);
	expect_fault(fd, far + PAGE);
	expect(!next_wc(p.b.rcq, &wc, 200));
	say(&p.b, &p.a);
	say(&other.a, &other.b);
	supply(fd, far + PAGE, page);
	expect_op(&p.a, IBV_WR_RDMA_WRITE);
	expect_op(&p.a, IBV_WR_SEND);
	expect_wc(p.b.rcq, 5, IBV_WC_SUCCESS);
	expect(painted(far + PAGE, 100, 2));

	/* The SQ keeps its order; the receiver of the same queue pair goes on. */
	must(post_recv(&p.a, 6, 1024, 200));
	must(post_recv(&p.a, 7, 2048, 64));
	ask(&p.b, IBV_WR_SEND, mr, far + 2 * PAGE, 100, NULL, NULL);
	ask(&p.b, IBV_WR_SEND, p.b.mr, p.b.buf, 8, NULL, NULL);
	expect_fault(fd, far + 2 * PAGE);
	say(&p.a, &p.b);
	expect(!next_wc(p.a.rcq, &wc, 200));
	supply(fd, far + 2 * PAGE, page);
	expect_op(&p.b, IBV_WR_SEND);
	expect_op(&p.b, IBV_WR_SEND);
	expect_wc(p.a.rcq, 6, IBV_WC_SUCCESS);
	expect_wc(p.a.rcq, 7, IBV_WC_SUCCESS);
	expect(painted(p.a.buf + 1024, 100, 1));

	/* The sink of a Read. */
	paint(p.a.buf, 100, 3);
	ask(&p.b, IBV_WR_RDMA_READ, mr, far + 3 * PAGE, 100, p.a.mr, p.a.buf);
	expect_fault(fd, far + 3 * PAGE);
	expect(!next_wc(p.b.scq, &wc, 200));
	supply(fd, far + 3 * PAGE, page);
	expect_op(&p.b, IBV_WR_RDMA_READ);
	expect(painted(far + 3 * PAGE, 100, 3));
	must(ibv_dereg_mr(mr));
	disconnect_pair(&p);
	disconnect_pair(&other);
	close(fd);
	unmap(far, 4 * PAGE);
	unmap(page, PAGE);
}

/* Nothing that ends waits for memory. */
static void test_end(void)
{
	for (int what = 0; what < 4; what++) {
		bool reads = what & 1, dereg_first = what & 2;
		/* Stays: a fault that is still under way would hit what comes there next. */
		char *far = map(2 * PAGE);
		struct ibv_mr *mr;
		struct pair p;
		double began;
		int fd;

		connect_pair(&p, &usual, &usual);
		settle(&p);
		fd = fault_fd(far, 2 * PAGE);
		mr = lend(&p.b, far, 2 * PAGE, all_rights);
		ask(&p.a, reads ? IBV_WR_RDMA_READ : IBV_WR_RDMA_WRITE, p.a.mr, p.a.buf, 100, mr, far);
		expect_fault(fd, far);
		began = now();
		if (dereg_first) {
			must(ibv_dereg_mr(mr));
		} else {
			/* With the queue pair. */
			must(ibv_dereg_mr(p.b.mr));
			p.b.mr = mr;
		}
		disconnect_pair(&p);
		printf("end %d: %.1f s\n", what, now() - began);
		expect(now() - began < 4);
		/* The fault has still got no page. */
		close(fd);
	}
}

/*
 * One late Read completes all work requests behind it. Every EVERYth of these is signalled, and all
 * are sent before the Read is done. With ABRUPT the queue pair ends at that moment: each work
 * request still completes once, in order, the last ones perhaps with a flush.
 */
static void complete_behind(uint64_t every, bool abrupt)
{
	enum { MANY = 12000, LIST = 200 };
	struct shape deep = usual;
	char *far = map(PAGE), *page = map(PAGE);
	uint64_t id = 0, want = 1;
	bool flushed = false;
	struct ibv_mr *mr;
	struct ibv_wc wc;
	struct pair p;
	int fd;

	deep.sends = MANY + 2;
	deep.cqe = MANY + 2;
	connect_pair(&p, &deep, &usual);
	settle(&p);
	fd = fault_fd(far, PAGE);
	mr = lend(&p.b, far, PAGE, all_rights);
	must(post_recv(&p.b, 5, SIZE - 64, 64));
	must(post(&p.a, IBV_WR_RDMA_READ, id++, 100, IBV_SEND_SIGNALED, mr));
	expect_fault(fd, far);
	while (id <= MANY) {
		struct ibv_send_wr wrs[LIST] = {}, *bad;

		for (int i = 0; i < LIST; i++, id++)
			wrs[i] = (struct ibv_send_wr){
				.wr_id = id, .next = i + 1 < LIST ? &wrs[i + 1] : NULL, .opcode = IBV_WR_RDMA_WRITE,
				.send_flags = id % every ? 0 : IBV_SEND_SIGNALED,
				.wr.rdma = { (uintptr_t)far, mr->rkey },
			};
		must(ibv_post_send(p.a.id->qp, wrs, &bad));
	}
	must(post(&p.a, IBV_WR_SEND, id, 8, IBV_SEND_SIGNALED, NULL));
	expect_wc(p.b.rcq, 5, IBV_WC_SUCCESS);
	expect(!ibv_poll_cq(p.a.scq, 1, &wc));
	supply(fd, far, page);
	if (abrupt)
		to_error(&p.a);
	for (want = 0; want <= id; want++) {
		if (want % every && want < id && !flushed)
			continue;
		expect(next_wc(p.a.scq, &wc, WC_MS));
		/* From here on all complete, with an error. */
		if (wc.status != IBV_WC_SUCCESS && !flushed) {
			expect(abrupt && wc.status == IBV_WC_WR_FLUSH_ERR && wc.wr_id <= want);
			flushed = true;
			want = wc.wr_id;
		}
		if (wc.wr_id != want || (wc.status != IBV_WC_SUCCESS) != flushed)
			die("completion %llu: %s in place of %llu", (unsigned long long)wc.wr_id,
			    ibv_wc_status_str(wc.status), (unsigned long long)want);
	}
	expect(!next_wc(p.a.scq, &wc, 100));
	must(ibv_dereg_mr(mr));
	disconnect_pair(&p);
	close(fd);
	unmap(far, PAGE);
	unmap(page, PAGE);
}

static void test_behind(void)
{
	complete_behind(1, false);
	complete_behind(3000, false);
	complete_behind(1, true);
	complete_behind(7, true);
}

/* Both directions of each queue pair of B wait for a page that this program never supplies. */
static void test_crowd(int count)
{
	char *far = map(2 * count * PAGE);

	fault_fd(far, 2 * count * PAGE);
	for (int i = 0; i < count; i++) {
		char *at = far + 2 * i * PAGE;
		struct ibv_mr *mr;
		struct pair p;

		connect_pair(&p, &usual, &usual);
		settle(&p);
		mr = lend(&p.b, at, 2 * PAGE, all_rights);
		ask(&p.a, IBV_WR_RDMA_READ, p.a.mr, p.a.buf, 100, mr, at);
		ask(&p.a, IBV_WR_RDMA_WRITE, p.a.mr, p.a.buf, 100, mr, at + PAGE);
	}
	pause();
}

/* A region that changes in place. */
static void test_rereg(void)
{
	char *far = map(4 * PAGE), *other = map(4 * PAGE);
	struct ibv_mr *mr;
	struct pair p;

	connect_pair(&p, &usual, &usual);
	settle(&p);
	mr = lend(&p.b, far, 4 * PAGE, all_rights);
	paint(far, 4 * PAGE, 1);
	paint(other, 4 * PAGE, 2);
	read_in(&p, mr, far, 4 * PAGE);
	must(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, IBV_ACCESS_ON_DEMAND | IBV_ACCESS_REMOTE_READ));
	read_in(&p, mr, far, 4 * PAGE);
	expect(painted(p.a.buf, 4 * PAGE, 1));
	expect(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, IBV_ACCESS_REMOTE_READ) == IBV_REREG_MR_ERR_CMD);
	must(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_TRANSLATION, NULL, other, 4 * PAGE, 0));
	read_in(&p, mr, other, 4 * PAGE);
	expect(painted(p.a.buf, 4 * PAGE, 2));
	must(madvise(other, 4 * PAGE, MADV_DONTNEED));
	read_in(&p, mr, other, 4 * PAGE);
	expect(blank(p.a.buf, 4 * PAGE));
	must(ibv_dereg_mr(mr));
	disconnect_pair(&p);
	unmap(far, 4 * PAGE);
	unmap(other, 4 * PAGE);
}

/* A right that its owner takes away in the midst of a message ends at once. */
static void withdraw(enum ibv_wr_opcode op)
{
	char *far = map(2 * PAGE), *page = map(PAGE);
	struct ibv_mr *mr;
	struct pair p;
	int fd;

	connect_pair(&p, &usual, &usual);
	settle(&p);
	fd = fault_fd(far, 2 * PAGE);
	supply(fd, far, page);
	mr = lend(&p.b, far, 2 * PAGE, all_rights);
	paint(p.a.buf, 2 * PAGE, 1);
	ask(&p.a, op, p.a.mr, p.a.buf, 2 * PAGE, mr, far);
	expect_fault(fd, far + PAGE);
	must(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, IBV_ACCESS_ON_DEMAND | IBV_ACCESS_LOCAL_WRITE));
	supply(fd, far + PAGE, page);
	if (op == IBV_WR_RDMA_READ)
		expect_wc(p.a.scq, op, IBV_WC_REM_ACCESS_ERR);
	expect(becomes(&p.b, IBV_QPS_ERR));
	expect(blank(far + PAGE, PAGE));
	must(ibv_dereg_mr(mr));
	disconnect_pair(&p);
	close(fd);
	unmap(far, 2 * PAGE);
	unmap(page, PAGE);
}

static void test_withdraw(void)
{
	withdraw(IBV_WR_RDMA_READ);
	withdraw(IBV_WR_RDMA_WRITE);
}

/* Atomic operations on memory that is not there, their answers into such memory. */
static void test_atomic(void)
{
	struct shape lent = usual;
	char *far = map(PAGE), *near = map(PAGE);
	struct ibv_mr *theirs, *ours;
	struct ibv_sge sge;
	struct ibv_send_wr wr = {
		.wr_id = 8, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_ATOMIC_FETCH_AND_ADD, .send_flags = IBV_SEND_SIGNALED,
	}, *bad;
	struct pair p;

	lent.access |= IBV_ACCESS_REMOTE_ATOMIC;
	connect_pair(&p, &usual, &lent);
	settle(&p);
	theirs = lend(&p.b, far, PAGE, all_rights | IBV_ACCESS_REMOTE_ATOMIC);
	ours = lend(&p.a, near, PAGE, all_rights);
	sge = (struct ibv_sge){ (uintptr_t)near + 16, 8, ours->lkey };
	wr.wr.atomic.remote_addr = (uintptr_t)far + 64;
	wr.wr.atomic.rkey = theirs->rkey;
	wr.wr.atomic.compare_add = 5;
	for (uint64_t sum = 0; sum < 100; sum += 5) {
		must(ibv_post_send(p.a.id->qp, &wr, &bad));
		expect_wc(p.a.scq, 8, IBV_WC_SUCCESS);
		expect(*(uint64_t *)(near + 16) == sum && *(uint64_t *)(far + 64) == sum + 5);
		must(madvise(near, PAGE, MADV_DONTNEED));
		if (sum == 50) {
			must(madvise(far, PAGE, MADV_PAGEOUT));
		}
	}
	must(ibv_dereg_mr(ours));
	must(ibv_dereg_mr(theirs));
	disconnect_pair(&p);
	unmap(near, PAGE);
	unmap(far, PAGE);
}

/* A window on memory on demand. */
static void test_window(void)
{
	struct ibv_mw_bind bind = { .wr_id = 11, .send_flags = IBV_SEND_SIGNALED };
	char *far = map(4 * PAGE);
	struct ibv_mr *mr, view;
	struct ibv_mw *mw;
	struct pair p;

	connect_pair(&p, &usual, &usual);
	settle(&p);
	mr = lend(&p.b, far, 4 * PAGE, IBV_ACCESS_ON_DEMAND | IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND);
	must(!(mw = ibv_alloc_mw(p.b.pd, IBV_MW_TYPE_1)));
	bind.bind_info = (struct ibv_mw_bind_info){
		.mr = mr, .addr = (uintptr_t)far + PAGE, .length = PAGE,
		.mw_access_flags = IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE,
	};
	must(ibv_bind_mw(p.b.id->qp, mw, &bind));
	expect_wc(p.b.scq, 11, IBV_WC_SUCCESS);
	view = *mr;
	view.rkey = mw->rkey;
	paint(p.a.buf, PAGE, 1);
	write_out(&p, &view, far + PAGE, PAGE);
	expect(painted(far + PAGE, PAGE, 1));
	must(madvise(far, 4 * PAGE, MADV_DONTNEED));
	read_in(&p, &view, far + PAGE, PAGE);
	expect(blank(p.a.buf, PAGE));
	must(ibv_dealloc_mw(mw));
	must(ibv_dereg_mr(mr));
	disconnect_pair(&p);
	unmap(far, 4 * PAGE);
}

static bool is_there(char *at)
{
	unsigned char there;

	must(mincore(at, PAGE, &there));
	return there & 1;
}

static void test_advise(void)
{
	char *far = map(4 * MIB);
	struct ibv_mr *mr, *pinned, *reading;
	struct ibv_sge sge;
	struct pair p;

	/* Only a kernel without huge pages refuses this. */
	madvise(far, 4 * MIB, MADV_NOHUGEPAGE);
	connect_pair(&p, &usual, &usual);
	mr = lend(&p.b, far, 4 * MIB, all_rights);
	sge = (struct ibv_sge){ (uintptr_t)far + PAGE, 3 * MIB, mr->lkey };
	must(ibv_advise_mr(p.b.pd, IBV_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT, IBV_ADVISE_MR_FLAG_FLUSH, &sge, 1));
	expect(!is_there(far + PAGE));
	must(ibv_advise_mr(p.b.pd, IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE, IBV_ADVISE_MR_FLAG_FLUSH, &sge, 1));
	expect(!is_there(far) && is_there(far + PAGE) && is_there(far + 3 * MIB) && !is_there(far + 3 * MIB + PAGE));
	must(ibv_advise_mr(p.b.pd, IBV_ADVISE_MR_ADVICE_PREFETCH, 0, &sge, 1));
	unmap(far + 2 * MIB, PAGE);
	expect(ibv_advise_mr(p.b.pd, IBV_ADVISE_MR_ADVICE_PREFETCH, IBV_ADVISE_MR_FLAG_FLUSH, &sge, 1) == EFAULT);
	must(ibv_advise_mr(p.b.pd, IBV_ADVISE_MR_ADVICE_PREFETCH, 0, &sge, 1));
	sge.length = 4 * MIB;
	expect(ibv_advise_mr(p.b.pd, IBV_ADVISE_MR_ADVICE_PREFETCH, 0, &sge, 1) == EINVAL);
	sge.length = MIB;
	must(!(pinned = ibv_reg_mr(p.b.pd, far, MIB, IBV_ACCESS_LOCAL_WRITE)));
	sge.lkey = pinned->lkey;
	expect(ibv_advise_mr(p.b.pd, IBV_ADVISE_MR_ADVICE_PREFETCH, 0, &sge, 1) == EINVAL);
	reading = lend(&p.b, far, 2 * MIB, IBV_ACCESS_ON_DEMAND);
	sge.lkey = reading->lkey;
	must(ibv_advise_mr(p.b.pd, IBV_ADVISE_MR_ADVICE_PREFETCH, 0, &sge, 1));
	expect(ibv_advise_mr(p.b.pd, IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE, 0, &sge, 1) == EPERM);
	must(ibv_dereg_mr(reading));
	must(ibv_dereg_mr(pinned));
	must(ibv_dereg_mr(mr));
	disconnect_pair(&p);
	munmap(far, 4 * MIB);
}

/*
 * More address space than memory. All of it is read by a peer, who also writes a mark of its place
 * into every eighth chunk first. Another thread takes away what has been read.
 */
#define CHUNK MIB

static atomic_size_t behind;
static char *large;

static void *reclaim(void *arg)
{
	size_t done = 0, all = *(size_t *)arg;

	while (done < all) {
		size_t to = atomic_load(&behind);

		if (to > done)
			must(madvise(large + done, to - done, MADV_DONTNEED));
		else
			usleep(1000);
		done = to;
	}
	return NULL;
}

static bool marked(const size_t at)
{
	return at / CHUNK % 8 == 0;
}

static void test_large(size_t mib)
{
	size_t all = mib * MIB;
	char *near = map(CHUNK);
	struct ibv_mr *theirs, *ours;
	pthread_t thread;
	struct pair p;

	connect_pair(&p, &usual, &usual);
	settle(&p);
	large = map(all);
	theirs = lend(&p.b, large, all, all_rights);
	ours = lend(&p.a, near, CHUNK, IBV_ACCESS_LOCAL_WRITE);
	must(pthread_create(&thread, NULL, reclaim, &all));
	for (size_t at = 0; at < all; at += CHUNK) {
		if (marked(at)) {
			for (size_t i = 0; i < CHUNK; i += 512)
				*(uint64_t *)(near + i) = at + i + 1;
			ask(&p.a, IBV_WR_RDMA_WRITE, ours, near, CHUNK, theirs, large + at);
			expect_op(&p.a, IBV_WR_RDMA_WRITE);
		}
		memset(near, 0xff, CHUNK);
		ask(&p.a, IBV_WR_RDMA_READ, ours, near, CHUNK, theirs, large + at);
		expect_op(&p.a, IBV_WR_RDMA_READ);
		for (size_t i = 0; i < CHUNK; i += 512)
			expect(*(uint64_t *)(near + i) == (marked(at) ? at + i + 1 : 0));
		atomic_store(&behind, at + CHUNK);
	}
	must(pthread_join(thread, NULL));
	/* All is gone. */
	for (size_t at = 0; at < all; at += all / 64 / CHUNK * CHUNK) {
		ask(&p.a, IBV_WR_RDMA_READ, ours, near, CHUNK, theirs, large + at);
		expect_op(&p.a, IBV_WR_RDMA_READ);
		expect(blank(near, CHUNK));
	}
	must(ibv_dereg_mr(theirs));
	must(ibv_dereg_mr(ours));
	disconnect_pair(&p);
	unmap(large, all);
	unmap(near, CHUNK);
	printf("%zu MiB\n", mib);
}

/*
 * Fire. A thread changes the memory of B all the time. The first word of each of its pages counts
 * the lives of the page: what a Read finds there is the life when it began, or a later one, or 0
 * for a page that is just being made. What A writes goes behind that word. The pages that B has
 * given up go to somebody else, whom no Write may reach.
 */
#define PAGES 64

static _Atomic uint64_t lives[PAGES];
static atomic_bool over;
static char *field;

static void *churn(void *arg)
{
	struct rng r = rng_of((uintptr_t)arg, 1);
	uint64_t n = 0;

	while (!atomic_load(&over)) {
		size_t i = below(&r, PAGES);
		char *page = field + i * PAGE, *other;
		pid_t child;
		int status;

		switch (below(&r, 8)) {
		case 0:
		case 1:
			must(madvise(page, PAGE, MADV_DONTNEED));
			break;
		case 2:
			expect(mmap(page, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == page);
			break;
		case 3:
			/* The page lives on elsewhere for a moment, where nothing may change it. */
			other = map(PAGE);
			expect(mremap(page, PAGE, PAGE, MREMAP_MAYMOVE | MREMAP_FIXED | MREMAP_DONTUNMAP, other) == other);
			uint64_t before[PAGE / 8];
			memcpy(before, other, PAGE);
			sched_yield();
			expect(!memcmp(before, other, PAGE));
			unmap(other, PAGE);
			break;
		case 4:
			if (n % 16 == 0) {
				expect((child = fork()) >= 0);
				if (!child) {
					memset(field, 0xee, PAGES * PAGE);
					_exit(0);
				}
				*(volatile char *)(page + PAGE - 1) = 1;
				expect(waitpid(child, &status, 0) == child && !status);
			}
			break;
		case 5:
			/* Not mprotect(): a Write may come at the wrong moment. */
			must(madvise(page, PAGE, MADV_FREE));
			break;
		case 6:
			/* User Mode Linux has none. */
			madvise(field, PAGES * PAGE, below(&r, 2) ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
			break;
		case 7:
			must(madvise(page, PAGE, MADV_PAGEOUT));
			break;
		}
		n++;
		*(_Atomic uint64_t *)page = lives[i] + 1;
		atomic_fetch_add(&lives[i], 1);
	}
	printf("%llu changes\n", (unsigned long long)n);
	return NULL;
}

static void test_fire(int seconds)
{
	struct rng r = rng_of(getpid(), 2);
	double end = now() + seconds;
	unsigned long ops = 0, hits = 0;
	struct ibv_mr *mr;
	pthread_t thread;
	struct pair p;

	connect_pair(&p, &usual, &usual);
	settle(&p);
	field = map(PAGES * PAGE);
	mr = lend(&p.b, field, PAGES * PAGE, all_rights);
	must(pthread_create(&thread, NULL, churn, (void *)(uintptr_t)getpid()));
	while (now() < end) {
		size_t first = below(&r, PAGES), n = 1 + below(&r, PAGES - first < 15 ? PAGES - first : 15);
		uint64_t before[PAGES];

		if (below(&r, 3) == 0) {
			ask(&p.a, IBV_WR_RDMA_WRITE, p.a.mr, p.a.buf + 8, PAGE - 16, mr, field + first * PAGE + 8);
			expect_op(&p.a, IBV_WR_RDMA_WRITE);
			ops++;
			continue;
		}
		for (size_t i = 0; i < n; i++)
			before[i] = lives[first + i];
		read_in(&p, mr, field + first * PAGE, n * PAGE);
		for (size_t i = 0; i < n; i++) {
			uint64_t found = *(uint64_t *)(p.a.buf + i * PAGE), after = lives[first + i];

			if (found && (found < before[i] || found > after + 1))
				die("page %zu: life %llu, between %llu and %llu", first + i, (unsigned long long)found,
				    (unsigned long long)before[i], (unsigned long long)after);
			hits += found != 0;
		}
		ops++;
	}
	atomic_store(&over, true);
	must(pthread_join(thread, NULL));
	must(ibv_dereg_mr(mr));
	disconnect_pair(&p);
	unmap(field, PAGES * PAGE);
	printf("%lu requests, %lu pages read\n", ops, hits);
	expect(hits);
}

static const struct {
	const char *name;
	void (*run)(void);
	bool usual; /* with every kernel and provider library */
} tests[] = {
	{ "caps", test_caps, true },
	{ "flow", test_flow, true },
	{ "lists", test_lists, true },
	{ "changes", test_changes, true },
	{ "fork", test_fork, true },
	{ "refusals", test_refusals, true },
	{ "rights", test_rights, true },
	{ "unlocked", test_unlocked, false },
	{ "limits", test_limits, true },
	{ "charge", test_charge, false },
	{ "stall", test_stall, false },
	{ "end", test_end, false },
	{ "behind", test_behind, false },
	{ "rereg", test_rereg, false },
	{ "withdraw", test_withdraw, false },
	{ "atomic", test_atomic, false },
	{ "window", test_window, false },
	{ "advise", test_advise, false },
};

int main(int argc, char **argv)
{
	const char *what = argc > 2 ? argv[2] : NULL;

	setvbuf(stdout, NULL, _IOLBF, 0);
	expect(argc > 1);
	address = argv[1];
	if (what && argc > 3) {
		if (!strcmp(what, "large"))
			test_large(atoi(argv[3]));
		else if (!strcmp(what, "crowd"))
			test_crowd(atoi(argv[3]));
		else
			test_fire(atoi(argv[3]));
		return 0;
	}
	for (size_t i = 0; i < sizeof(tests) / sizeof(tests[0]); i++) {
		if (what ? strcmp(tests[i].name, what) != 0 : !tests[i].usual)
			continue;
		printf("%s\n", tests[i].name);
		tests[i].run();
	}
	return 0;
}
