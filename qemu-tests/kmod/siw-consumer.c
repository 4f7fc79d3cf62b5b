// SPDX-License-Identifier: GPL-2.0
/*
 * A kernel consumer that does what few others do, and checks the results:
 *
 *	insmod siw-consumer.ko device=siw0 address=192.0.2.1 check=NAME
 *
 * connects the device with itself, runs one check, and takes everything down again. The
 * module loads if the check passes. Otherwise insmod fails, and the log names the line
 * of the failure.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/completion.h>
#include <linux/dma-buf.h>
#include <linux/inet.h>
#include <linux/kprobes.h>
#include <linux/kthread.h>
#include <linux/module.h>
#include <linux/net.h>
#include <linux/nsproxy.h>
#include <linux/scatterlist.h>
#include <linux/sched.h>
#include <linux/slab.h>
#include <linux/wait.h>
#include <net/net_namespace.h>
#include <net/sock.h>
#include <rdma/ib_verbs.h>
#include <rdma/rdma_cm.h>

static char *device = "siw0";
module_param(device, charp, 0444);
MODULE_PARM_DESC(device, "name of the device");

static char *address;
module_param(address, charp, 0444);
MODULE_PARM_DESC(address, "an IPv4 address of its interface");

static char *check;
module_param(check, charp, 0444);
MODULE_PARM_DESC(check, "name of the check");

#define ORDER	4
#define PAGES	BIT(ORDER)
#define SIZE	(PAGES * PAGE_SIZE)
#define DEPTH	64
#define PATIENCE	(20 * HZ)
#define NEVER	-1

/* The thread that runs the check. */
static struct task_struct *checker;

static void disconnect_both(void);

static bool is_so(bool what, const char *text, int line)
{
	if (!what) {
		pr_err("%s: line %d: not so: %s\n", check, line, text);
		/* Requests are on the stack of the check. */
		if (current == checker)
			disconnect_both();
	}
	return what;
}

#define expect(what)						\
	do {							\
		if (!is_so(what, #what, __LINE__))		\
			return -EPROTO;				\
	} while (0)

/* For what returns 0 or an errno. */
#define must(what)						\
	do {							\
		int rc_ = what;					\
								\
		if (!is_so(!rc_, #what, __LINE__)) {		\
			pr_err("it is %d\n", rc_);		\
			return rc_;				\
		}						\
	} while (0)

struct end {
	struct rdma_cm_id *id;
	struct ib_pd *pd;
	struct ib_cq *cq;
	struct ib_qp *qp;
	/* The shared receive queue of the QP, if it has one. */
	struct ib_srq *srq;
	struct ib_mr *mr;
	u8 *buf;
	u64 dma;
	struct scatterlist sg[PAGES];
	/* Events so far, and the event whose handler ends the identifier. */
	unsigned long seen;
	int last;
	/* The handler destroys the QP as well. */
	bool strips;
};

static struct ib_device *dev;
static struct rdma_cm_id *listener;
static struct end client, server;
/* A second connection, and the end that accepts the next one. */
static struct end client2, server2;
static struct end *accepts = &server;
/* The server is in the protection domain of the client. */
static bool one_pd;
static DECLARE_WAIT_QUEUE_HEAD(events);

/* A work request and its result. */
struct request {
	struct ib_cqe cqe;
	struct completion done;
	enum ib_wc_status status;
	enum ib_wc_opcode opcode;
	struct ib_qp *qp;
	u32 len;
	__be32 imm;
	u32 invalidated;
	int flags;
	/* The place among all completions. */
	int place;
	/* Called in the completion handler. */
	void (*hook)(struct request *r);
	int ret;
};

static atomic_t places;

static void request_done(struct ib_cq *cq, struct ib_wc *wc)
{
	struct request *r = container_of(wc->wr_cqe, struct request, cqe);

	r->status = wc->status;
	r->opcode = wc->opcode;
	r->qp = wc->qp;
	r->len = wc->byte_len;
	r->imm = wc->ex.imm_data;
	r->invalidated = wc->ex.invalidate_rkey;
	r->flags = wc->wc_flags;
	r->place = atomic_inc_return(&places);
	if (r->hook)
		r->hook(r);
	complete(&r->done);
}

static void request_init(struct request *r)
{
	*r = (struct request){ .cqe.done = request_done };
	init_completion(&r->done);
}

static int completed(struct request *r, enum ib_wc_status status)
{
	expect(wait_for_completion_timeout(&r->done, PATIENCE));
	if (r->status != status)
		pr_err("it is %s\n", ib_wc_status_msg(r->status));
	expect(r->status == status);
	return 0;
}

static int succeeded(struct request *r, struct end *e, enum ib_wc_opcode op)
{
	must(completed(r, IB_WC_SUCCESS));
	expect(r->opcode == op);
	expect(r->qp == e->qp);
	return 0;
}

static enum ib_qp_state state_of(struct ib_qp *qp)
{
	struct ib_qp_init_attr init;
	struct ib_qp_attr attr;

	if (ib_query_qp(qp, &attr, IB_QP_STATE, &init))
		return IB_QPS_RESET;
	return attr.qp_state;
}

/* A consumer gets an event for the end of the connection, but the state may change first. */
static bool fails(struct ib_qp *qp)
{
	unsigned long end = jiffies + PATIENCE;

	while (state_of(qp) != IB_QPS_ERR) {
		if (time_after(jiffies, end))
			return false;
		schedule_timeout_uninterruptible(1);
	}
	return true;
}

static int to_error(struct ib_qp *qp)
{
	struct ib_qp_attr attr = { .qp_state = IB_QPS_ERR };

	return ib_modify_qp(qp, &attr, IB_QP_STATE);
}

/* Work requests. All are signalled. */

static int post_recv(struct end *e, struct request *r, u32 offset, u32 len)
{
	struct ib_sge sge = {
		.addr = e->dma + offset, .length = len,
		.lkey = e->pd->local_dma_lkey,
	};
	struct ib_recv_wr wr = {
		.wr_cqe = &r->cqe, .sg_list = &sge, .num_sge = 1,
	};

	request_init(r);
	return ib_post_recv(e->qp, &wr, NULL);
}

struct work {
	union {
		struct ib_send_wr wr;
		struct ib_rdma_wr rdma;
		struct ib_atomic_wr atomic;
		struct ib_reg_wr reg;
	};
	struct ib_sge sge;
};

static struct work *new_work(struct work *w, struct request *r,
			     enum ib_wr_opcode op, int flags)
{
	request_init(r);
	memset(w, 0, sizeof(*w));
	w->wr.wr_cqe = &r->cqe;
	w->wr.opcode = op;
	w->wr.send_flags = IB_SEND_SIGNALED | flags;
	return w;
}

/* A Send, or a Write or Read of the peer's memory from @to on. */
static struct work *transfer(struct work *w, struct request *r, struct end *e,
			     enum ib_wr_opcode op, u32 len, u64 to, u32 rkey)
{
	new_work(w, r, op, 0);
	w->sge = (struct ib_sge){
		.addr = e->dma, .length = len, .lkey = e->pd->local_dma_lkey,
	};
	w->wr.sg_list = &w->sge;
	w->wr.num_sge = 1;
	if (op != IB_WR_SEND) {
		w->rdma.remote_addr = to;
		w->rdma.rkey = rkey;
	}
	return w;
}

static struct work *atomic(struct work *w, struct request *r, struct end *e,
			   enum ib_wr_opcode op, u64 to, u32 rkey, u64 operand,
			   u64 swap)
{
	transfer(w, r, e, op, sizeof(u64), 0, 0);
	w->atomic.remote_addr = to;
	w->atomic.rkey = rkey;
	w->atomic.compare_add = operand;
	w->atomic.swap = swap;
	return w;
}

static struct work *reg_mr(struct work *w, struct request *r, struct end *e,
			   int flags)
{
	new_work(w, r, IB_WR_REG_MR, flags);
	w->reg.mr = e->mr;
	w->reg.key = e->mr->rkey;
	w->reg.access = IB_ACCESS_LOCAL_WRITE | IB_ACCESS_REMOTE_WRITE |
			IB_ACCESS_REMOTE_READ | IB_ACCESS_REMOTE_ATOMIC;
	return w;
}

static struct work *local_inv(struct work *w, struct request *r, u32 key,
			      int flags)
{
	new_work(w, r, IB_WR_LOCAL_INV, flags);
	w->wr.ex.invalidate_rkey = key;
	return w;
}

static int post(struct end *e, struct work *w)
{
	return ib_post_send(e->qp, &w->wr, NULL);
}

static int map(struct end *e)
{
	return ib_map_mr_sg(e->mr, e->sg, PAGES, NULL, PAGE_SIZE);
}

/* Gives @e's region its buffer. */
static int register_now(struct end *e)
{
	struct request r;
	struct work w;

	expect(map(e) == PAGES);
	must(post(e, reg_mr(&w, &r, e, 0)));
	must(succeeded(&r, e, IB_WC_REG_MR));
	return 0;
}

static int invalidate_now(struct end *e, u32 key)
{
	struct request r;
	struct work w;

	must(post(e, local_inv(&w, &r, key, 0)));
	must(succeeded(&r, e, IB_WC_LOCAL_INV));
	return 0;
}

static int transfer_now(struct end *e, enum ib_wr_opcode op, struct end *to)
{
	static const enum ib_wc_opcode opcode[] = {
		[IB_WR_RDMA_WRITE] = IB_WC_RDMA_WRITE,
		[IB_WR_RDMA_READ] = IB_WC_RDMA_READ,
	};
	struct request r;
	struct work w;

	must(post(e, transfer(&w, &r, e, op, SIZE, to->mr->iova,
			      to->mr->rkey)));
	must(succeeded(&r, e, opcode[op]));
	return 0;
}

/* A Send of the client arrives. From then on the server may send. */
static int settle(void)
{
	struct request s, r;
	struct work w;

	must(post_recv(&server, &r, 0, 64));
	must(post(&client, transfer(&w, &s, &client, IB_WR_SEND, 64, 0, 0)));
	must(succeeded(&s, &client, IB_WC_SEND));
	must(succeeded(&r, &server, IB_WC_RECV));
	return 0;
}

/* Ends and connections. */

static int furnish(struct end *e)
{
	struct ib_qp_init_attr attr = {
		.qp_type = IB_QPT_RC, .sq_sig_type = IB_SIGNAL_REQ_WR,
		.cap = {
			.max_send_wr = DEPTH, .max_recv_wr = DEPTH,
			.max_send_sge = 1, .max_recv_sge = 1,
		},
	};
	int i;

	expect(e->id->device == dev);
	e->pd = one_pd && e == &server ? client.pd : ib_alloc_pd(dev, 0);
	expect(!IS_ERR(e->pd));
	/* Completions come in softirq, as with most consumers. */
	e->cq = ib_alloc_cq(dev, NULL, 3 * DEPTH, 0, IB_POLL_SOFTIRQ);
	expect(!IS_ERR(e->cq));
	e->mr = ib_alloc_mr(e->pd, IB_MR_TYPE_MEM_REG, PAGES);
	expect(!IS_ERR(e->mr));
	e->buf = (u8 *)__get_free_pages(GFP_KERNEL | __GFP_ZERO, ORDER);
	expect(e->buf);
	e->dma = ib_dma_map_single(dev, e->buf, SIZE, DMA_BIDIRECTIONAL);
	expect(!ib_dma_mapping_error(dev, e->dma));
	sg_init_table(e->sg, PAGES);
	for (i = 0; i < PAGES; i++)
		sg_set_page(&e->sg[i], virt_to_page(e->buf + i * PAGE_SIZE),
			    PAGE_SIZE, 0);
	expect(ib_dma_map_sg(dev, e->sg, PAGES, DMA_BIDIRECTIONAL) == PAGES);
	attr.send_cq = e->cq;
	attr.recv_cq = e->cq;
	attr.srq = e->srq;
	must(rdma_create_qp(e->id, e->pd, &attr));
	e->qp = e->id->qp;
	return 0;
}

/* The handler of both ends. The context is the end, or NULL for a request. */
static int handler(struct rdma_cm_id *id, struct rdma_cm_event *event)
{
	struct rdma_conn_param param = {
		.responder_resources = 8, .initiator_depth = 8,
	};
	struct end *e = id->context ?: accepts;
	int ret = e->last == event->event;

	if (event->event == RDMA_CM_EVENT_CONNECT_REQUEST) {
		id->context = e;
		if (!ret) {
			e->id = id;
			if (furnish(e) || rdma_accept(id, &param))
				pr_err("%s: cannot accept\n", check);
		}
	}
	if (ret) {
		/* The core destroys it. */
		e->id = NULL;
		if (e->strips) {
			rdma_destroy_qp(id);
			e->qp = NULL;
		}
	}
	set_bit(event->event, &e->seen);
	wake_up_all(&events);
	return ret;
}

static bool comes(struct end *e, enum rdma_cm_event_type type)
{
	return wait_event_timeout(events, test_bit(type, &e->seen), PATIENCE);
}

/* An end begins to connect to @port. */
static int start_as(struct end *e, __be16 port)
{
	struct rdma_conn_param param = {
		.responder_resources = 8, .initiator_depth = 8,
	};
	struct sockaddr_in to = {
		.sin_family = AF_INET, .sin_port = port,
		.sin_addr.s_addr = in_aton(address),
	};

	e->id = rdma_create_id(current->nsproxy->net_ns, handler, e,
			       RDMA_PS_TCP, IB_QPT_RC);
	expect(!IS_ERR(e->id));
	must(rdma_resolve_addr(e->id, NULL, (struct sockaddr *)&to, 5000));
	expect(comes(e, RDMA_CM_EVENT_ADDR_RESOLVED));
	must(rdma_resolve_route(e->id, 5000));
	expect(comes(e, RDMA_CM_EVENT_ROUTE_RESOLVED));
	must(furnish(e));
	must(rdma_connect(e->id, &param));
	return 0;
}

static int start(__be16 port)
{
	return start_as(&client, port);
}

static __be16 listens_at(void)
{
	return ((struct sockaddr_in *)&listener->route.addr.src_addr)->sin_port;
}

/* A listener, and a client that connects to it. */
static int start_both(void)
{
	struct sockaddr_in at = {
		.sin_family = AF_INET, .sin_addr.s_addr = in_aton(address),
	};

	listener = rdma_create_id(current->nsproxy->net_ns, handler, NULL,
				  RDMA_PS_TCP, IB_QPT_RC);
	expect(!IS_ERR(listener));
	must(rdma_bind_addr(listener, (struct sockaddr *)&at));
	must(rdma_listen(listener, 8));
	return start(listens_at());
}

static int connect_both(void)
{
	must(start_both());
	expect(comes(&client, RDMA_CM_EVENT_ESTABLISHED));
	expect(comes(&server, RDMA_CM_EVENT_ESTABLISHED));
	return settle();
}

static void strip(struct end *e)
{
	if (e->id && !IS_ERR(e->id)) {
		rdma_disconnect(e->id);
		/* No event comes after this. */
		rdma_destroy_id(e->id);
	}
	if (e->qp) {
		ib_drain_qp(e->qp);
		ib_destroy_qp(e->qp);
	}
	if (e->mr && !IS_ERR(e->mr))
		ib_dereg_mr(e->mr);
	if (e->buf) {
		ib_dma_unmap_sg(dev, e->sg, PAGES, DMA_BIDIRECTIONAL);
		ib_dma_unmap_single(dev, e->dma, SIZE, DMA_BIDIRECTIONAL);
		free_pages((unsigned long)e->buf, ORDER);
	}
	if (e->cq && !IS_ERR(e->cq))
		ib_free_cq(e->cq);
	/* The server comes last. */
	if (e->pd && !IS_ERR(e->pd) && !(e == &client && e->pd == server.pd))
		ib_dealloc_pd(e->pd);
}

static void strip_many(void);
static void strip_shared(void);
static void end_poster(void);

static void disconnect_both(void)
{
	/* Once. */
	checker = NULL;
	end_poster();
	if (listener && !IS_ERR(listener))
		rdma_destroy_id(listener);
	strip_many();
	strip(&client);
	strip(&server);
	strip(&client2);
	strip(&server2);
	strip_shared();
}

/* The checks. */

/* Posting with interrupts off: small and large messages, both ways. */
static int check_irqs(void)
{
	enum { ROUNDS = 50 };
	struct request s, r, w, d;
	struct work sw, ww, dw;
	unsigned long flags;
	static DEFINE_SPINLOCK(lock);
	int i, rc[4];

	must(connect_both());
	must(register_now(&server));
	for (i = 0; i < ROUNDS; i++) {
		u32 len = i % 2 ? 64 : SIZE;

		memset(client.buf, i, SIZE);
		memset(server.buf, ~i, SIZE);
		transfer(&ww, &w, &client, IB_WR_RDMA_WRITE, SIZE,
			 server.mr->iova, server.mr->rkey);
		transfer(&dw, &d, &client, IB_WR_RDMA_READ, SIZE,
			 server.mr->iova, server.mr->rkey);
		spin_lock_irqsave(&lock, flags);
		rc[0] = post(&client, &ww);
		rc[1] = post(&client, &dw);
		spin_unlock_irqrestore(&lock, flags);
		expect(!rc[0] && !rc[1]);
		must(succeeded(&w, &client, IB_WC_RDMA_WRITE));
		must(succeeded(&d, &client, IB_WC_RDMA_READ));
		expect(!memchr_inv(server.buf, i, SIZE));
		expect(!memchr_inv(client.buf, i, SIZE));

		memset(server.buf, ~i, SIZE);
		transfer(&sw, &s, &server, IB_WR_SEND, len, 0, 0);
		spin_lock_irqsave(&lock, flags);
		rc[2] = post_recv(&client, &r, 0, SIZE);
		rc[3] = post(&server, &sw);
		spin_unlock_irqrestore(&lock, flags);
		expect(!rc[2] && !rc[3]);
		must(succeeded(&s, &server, IB_WC_SEND));
		must(succeeded(&r, &client, IB_WC_RECV));
		expect(r.len == len);
		expect(!memchr_inv(client.buf, ~i, len));
	}
	expect(state_of(client.qp) == IB_QPS_RTS);
	expect(state_of(server.qp) == IB_QPS_RTS);
	return 0;
}

/* A Write with immediate data takes a receive of the peer, whose buffer has none of it. */
static int check_write_imm(void)
{
	struct request w, r;
	struct work ww;
	u32 len;

	must(connect_both());
	must(register_now(&server));
	for (len = 0; len <= SIZE; len += SIZE / 2) {
		memset(client.buf, 0x5a, SIZE);
		memset(server.buf, 0, SIZE);
		must(post_recv(&server, &r, 0, 0));
		transfer(&ww, &w, &client, IB_WR_RDMA_WRITE_WITH_IMM, len,
			 server.mr->iova, server.mr->rkey);
		ww.wr.ex.imm_data = cpu_to_be32(0x12345678 + len);
		must(post(&client, &ww));
		must(succeeded(&w, &client, IB_WC_RDMA_WRITE));
		must(succeeded(&r, &server, IB_WC_RECV_RDMA_WITH_IMM));
		expect(!r.len);
		expect(r.flags & IB_WC_WITH_IMM);
		expect(r.imm == cpu_to_be32(0x12345678 + len));
		expect(!memchr_inv(server.buf, 0x5a, len));
		expect(!memchr_inv(server.buf + len, 0, SIZE - len));
	}
	return 0;
}

/* Over rdma_cm the two ends agree on a Send with immediate data only if large_fpdus is set. */
static int check_send_imm(void)
{
	struct request s;
	struct work w;

	must(connect_both());
	transfer(&w, &s, &client, IB_WR_SEND_WITH_IMM, 64, 0, 0);
	must(post(&client, &w));
	must(completed(&s, IB_WC_LOC_QP_OP_ERR));
	expect(fails(client.qp));
	return 0;
}

static int check_send_imm_agreed(void)
{
	struct request s, r;
	struct work w;

	must(connect_both());
	must(post_recv(&server, &r, 0, SIZE));
	transfer(&w, &s, &client, IB_WR_SEND_WITH_IMM, SIZE, 0, 0);
	w.wr.ex.imm_data = cpu_to_be32(7);
	must(post(&client, &w));
	must(succeeded(&s, &client, IB_WC_SEND));
	must(succeeded(&r, &server, IB_WC_RECV));
	expect(r.len == SIZE && r.flags & IB_WC_WITH_IMM);
	expect(r.imm == cpu_to_be32(7));
	return 0;
}

static int check_atomic(void)
{
	struct request r;
	u64 *target, *sink;
	struct work w;
	u64 i;

	must(connect_both());
	target = (u64 *)server.buf;
	sink = (u64 *)client.buf;
	must(register_now(&server));
	memset(server.buf, 0, SIZE);
	/* A sink is as long as the target. */
	for (i = 0; i <= 16; i += 4) {
		atomic(&w, &r, &client, IB_WR_ATOMIC_FETCH_AND_ADD,
		       server.mr->iova, server.mr->rkey, 3, 0);
		w.sge.length = i;
		expect(i == 8 || post(&client, &w) == -EINVAL);
	}
	for (i = 0; i < 100; i++) {
		must(post(&client, atomic(&w, &r, &client, IB_WR_ATOMIC_FETCH_AND_ADD,
					  server.mr->iova, server.mr->rkey, 3, 0)));
		must(succeeded(&r, &client, IB_WC_FETCH_ADD));
		expect(*sink == 3 * i && *target == 3 * (i + 1));
	}
	must(post(&client, atomic(&w, &r, &client, IB_WR_ATOMIC_CMP_AND_SWP,
				  server.mr->iova, server.mr->rkey, 1, 2)));
	must(succeeded(&r, &client, IB_WC_COMP_SWAP));
	expect(*sink == 300 && *target == 300);
	must(post(&client, atomic(&w, &r, &client, IB_WR_ATOMIC_CMP_AND_SWP,
				  server.mr->iova, server.mr->rkey, 300, 2)));
	must(succeeded(&r, &client, IB_WC_COMP_SWAP));
	expect(*sink == 300 && *target == 2);
	expect(!memchr_inv(server.buf + 8, 0, SIZE - 8));
	/* Not aligned. */
	must(post(&client, atomic(&w, &r, &client, IB_WR_ATOMIC_FETCH_AND_ADD,
				  server.mr->iova + 4, server.mr->rkey, 1, 0)));
	must(completed(&r, IB_WC_REM_INV_REQ_ERR));
	expect(*target == 2 && !memchr_inv(server.buf + 8, 0, SIZE - 8));
	return 0;
}

/*
 * The region of @e is free: its old key is dead, and it is registered anew without LOCAL_INV. The
 * peer then breaks the connection by a Write to the old key.
 */
static int is_free(struct end *e, struct end *peer)
{
	struct request w, r;
	u32 old = e->mr->rkey;
	struct work ww;

	ib_update_fast_reg_key(e->mr, ib_inc_rkey(old));
	must(register_now(e));
	memset(e->buf, 0x55, SIZE);
	must(transfer_now(peer, IB_WR_RDMA_READ, e));
	must(post_recv(e, &r, 0, 64));
	memset(peer->buf, 0xaa, SIZE);
	must(post(peer, transfer(&ww, &w, peer, IB_WR_RDMA_WRITE, SIZE,
				 e->mr->iova, old)));
	expect(wait_for_completion_timeout(&w.done, PATIENCE));
	must(completed(&r, IB_WC_WR_FLUSH_ERR));
	expect(fails(e->qp) && fails(peer->qp));
	expect(!memchr_inv(e->buf, 0x55, SIZE));
	return 0;
}

/* READ_WITH_INV ends its sink, which the peer could write to. */
static int check_read_inv(void)
{
	struct request r;
	struct work w;

	must(connect_both());
	must(register_now(&server));
	must(register_now(&client));
	memset(server.buf, 0x77, SIZE);
	must(transfer_now(&server, IB_WR_RDMA_WRITE, &client));
	memset(client.buf, 0, SIZE);
	transfer(&w, &r, &client, IB_WR_RDMA_READ_WITH_INV, SIZE,
		 server.mr->iova, server.mr->rkey);
	w.wr.ex.invalidate_rkey = client.mr->rkey;
	w.sge.addr = client.mr->iova;
	w.sge.lkey = client.mr->lkey;
	must(post(&client, &w));
	must(succeeded(&r, &client, IB_WC_RDMA_READ));
	expect(!memchr_inv(client.buf, 0x77, SIZE));
	return is_free(&client, &server);
}

/*
 * A Read of nothing ends a region like any other, and a registration of the region waits until it
 * has.
 */
static int check_read_inv_empty(void)
{
	enum { ROUNDS = 20 };
	struct request rd, reg;
	struct work dw, gw;
	int i;

	must(connect_both());
	must(register_now(&server));
	must(register_now(&client));
	for (i = 0; i < ROUNDS; i++) {
		transfer(&dw, &rd, &client, IB_WR_RDMA_READ_WITH_INV, 0,
			 server.mr->iova, server.mr->rkey);
		dw.wr.ex.invalidate_rkey = client.mr->rkey;
		dw.sge.lkey = client.mr->lkey;
		ib_update_fast_reg_key(client.mr, ib_inc_rkey(client.mr->rkey));
		expect(map(&client) == PAGES);
		reg_mr(&gw, &reg, &client, 0);
		dw.wr.next = &gw.wr;
		must(post(&client, &dw));
		must(succeeded(&rd, &client, IB_WC_RDMA_READ));
		must(succeeded(&reg, &client, IB_WC_REG_MR));
		memset(server.buf, i, SIZE);
		must(transfer_now(&server, IB_WR_RDMA_WRITE, &client));
	}
	transfer(&dw, &rd, &client, IB_WR_RDMA_READ_WITH_INV, 0,
		 server.mr->iova, server.mr->rkey);
	dw.wr.ex.invalidate_rkey = client.mr->rkey;
	dw.sge.lkey = client.mr->lkey;
	must(post(&client, &dw));
	must(succeeded(&rd, &client, IB_WC_RDMA_READ));
	return is_free(&client, &server);
}

/* A sink that cannot be invalidated. */
static int check_read_inv_dma(void)
{
	struct request r, after;
	struct work w, aw;

	must(connect_both());
	must(register_now(&server));
	transfer(&w, &r, &client, IB_WR_RDMA_READ_WITH_INV, SIZE,
		 server.mr->iova, server.mr->rkey);
	w.wr.ex.invalidate_rkey = client.pd->local_dma_lkey;
	must(post(&client, &w));
	must(completed(&r, IB_WC_LOC_QP_OP_ERR));
	transfer(&aw, &after, &client, IB_WR_SEND, 64, 0, 0);
	must(post(&client, &aw));
	must(completed(&after, IB_WC_WR_FLUSH_ERR));
	expect(fails(client.qp) && fails(server.qp));
	return 0;
}

/* A Send of the peer ends a region, and the receive names it. */
static int check_send_inv(void)
{
	struct request s, r;
	struct work w;

	must(connect_both());
	must(register_now(&server));
	must(transfer_now(&client, IB_WR_RDMA_WRITE, &server));
	must(post_recv(&server, &r, 0, 64));
	transfer(&w, &s, &client, IB_WR_SEND, 64, 0, 0);
	w.wr.opcode = IB_WR_SEND_WITH_INV;
	w.wr.ex.invalidate_rkey = server.mr->rkey;
	must(post(&client, &w));
	must(succeeded(&s, &client, IB_WC_SEND));
	must(succeeded(&r, &server, IB_WC_RECV));
	expect(r.len == 64 && r.flags & IB_WC_WITH_INVALIDATE);
	expect(r.invalidated == server.mr->rkey);
	return is_free(&server, &client);
}

/*
 * Each turn registers the region with another key and tells the server, which writes to it and ends
 * it with its answer. The next turn begins in the handler of that.
 */
enum { TURNS = 1000 };
static struct turn {
	struct request reg, snd, recv, wr, inv, answer;
	struct work gw, sw, ww, iw;
} turns[2];
static int turn;
static DECLARE_COMPLETION(turned);

static void answer_turn(struct request *r)
{
	struct turn *t = container_of(r, struct turn, recv);

	transfer(&t->ww, &t->wr, &server, IB_WR_RDMA_WRITE, SIZE - 64, client.mr->iova + 64,
		 client.mr->rkey);
	transfer(&t->iw, &t->inv, &server, IB_WR_SEND, 64, 0, 0);
	t->iw.wr.opcode = IB_WR_SEND_WITH_INV;
	t->iw.wr.ex.invalidate_rkey = client.mr->rkey;
	t->ww.wr.next = &t->iw.wr;
	r->ret = post(&server, &t->ww);
}

static void end_turn(struct request *r);

static int begin_turn(void)
{
	struct turn *t = &turns[turn % 2];

	ib_update_fast_reg_key(client.mr, turn);
	expect(map(&client) == PAGES);
	must(post_recv(&client, &t->answer, 0, 64));
	t->answer.hook = end_turn;
	must(post_recv(&server, &t->recv, SIZE - 64, 64));
	t->recv.hook = answer_turn;
	reg_mr(&t->gw, &t->reg, &client, 0);
	transfer(&t->sw, &t->snd, &client, IB_WR_SEND, 64, 0, 0);
	t->gw.wr.next = &t->sw.wr;
	return post(&client, &t->gw);
}

static void end_turn(struct request *r)
{
	if (r->status == IB_WC_SUCCESS && r->flags & IB_WC_WITH_INVALIDATE &&
	    r->invalidated == client.mr->rkey && ++turn < TURNS) {
		r->ret = begin_turn();
		if (!r->ret)
			return;
	}
	complete(&turned);
}

static int check_turns(void)
{
	must(connect_both());
	memset(server.buf, 0x77, SIZE);
	must(begin_turn());
	expect(wait_for_completion_timeout(&turned, 6 * PATIENCE));
	if (turn < TURNS)
		pr_err("after %d turns: %s\n", turn, ib_wc_status_msg(turns[turn % 2].answer.status));
	expect(turn == TURNS);
	expect(state_of(client.qp) == IB_QPS_RTS);
	expect(!memchr_inv(client.buf + 64, 0x77, SIZE - 64));
	return 0;
}

/* A one-touch region is free after the first message of the peer, and may be registered anew. */
static int check_touch(void)
{
	enum { ONE_TOUCH = 1 << 29 };
	struct request r;
	struct work w;
	int i;

	must(connect_both());
	for (i = 1; i < 4; i++) {
		expect(map(&server) == PAGES);
		reg_mr(&w, &r, &server, 0);
		w.reg.access |= ONE_TOUCH;
		must(post(&server, &w));
		must(succeeded(&r, &server, IB_WC_REG_MR));
		memset(client.buf, i, SIZE);
		must(transfer_now(&client, IB_WR_RDMA_WRITE, &server));
		/* What the client sends arrives in order. */
		must(settle());
		expect(!memchr_inv(server.buf + 64, i, SIZE - 64));
	}
	return is_free(&server, &client);
}

static void map_in_handler(struct request *r)
{
	r->ret = map(&client);
}

/* Takes completions in the context that posts them, so nothing after a completion has been done. */
static void at_once(struct ib_cq *cq, void *context)
{
	do
		ib_process_cq_direct(cq, -1);
	while (ib_req_notify_cq(cq, IB_CQ_NEXT_COMP |
				IB_CQ_REPORT_MISSED_EVENTS) > 0);
}

/* The list of a flushed registration may be mapped again when it completes. */
static int check_flush(void)
{
	struct request before, reg, after, r;
	struct work w, rw, aw;

	must(connect_both());
	client.cq->comp_handler = at_once;
	expect(map(&client) == PAGES);
	must(post_recv(&client, &r, 0, 64));
	must(to_error(client.qp));
	transfer(&w, &before, &client, IB_WR_SEND, 64, 0, 0);
	reg_mr(&rw, &reg, &client, 0);
	reg.hook = map_in_handler;
	transfer(&aw, &after, &client, IB_WR_SEND, 64, 0, 0);
	w.wr.next = &rw.wr;
	rw.wr.next = &aw.wr;
	must(post(&client, &w));
	must(completed(&r, IB_WC_WR_FLUSH_ERR));
	must(completed(&before, IB_WC_WR_FLUSH_ERR));
	must(completed(&reg, IB_WC_WR_FLUSH_ERR));
	expect(reg.ret == PAGES);
	must(completed(&after, IB_WC_WR_FLUSH_ERR));
	expect(before.place < reg.place && reg.place < after.place);
	expect(state_of(client.qp) == IB_QPS_ERR);
	expect(fails(server.qp));
	return 0;
}

/* A queue pair that goes takes along what it has left in a completion queue. */
static int check_purge(void)
{
	struct ib_qp_init_attr attr = {
		.qp_type = IB_QPT_RC, .sq_sig_type = IB_SIGNAL_REQ_WR,
		.cap = {
			.max_send_wr = 1, .max_recv_wr = 4,
			.max_send_sge = 1, .max_recv_sge = 1,
		},
	};
	struct request r[3];
	struct end lone;
	int i;

	must(connect_both());
	lone = client;
	lone.cq = ib_alloc_cq(dev, NULL, 8, 0, IB_POLL_DIRECT);
	expect(!IS_ERR(lone.cq));
	attr.send_cq = lone.cq;
	attr.recv_cq = lone.cq;
	lone.qp = ib_create_qp(lone.pd, &attr);
	expect(!IS_ERR(lone.qp));
	must(to_error(lone.qp));
	for (i = 0; i < ARRAY_SIZE(r); i++)
		must(post_recv(&lone, &r[i], 0, 64));
	ib_destroy_qp(lone.qp);
	expect(!ib_process_cq_direct(lone.cq, -1));
	ib_free_cq(lone.cq);
	return settle();
}

/* Messages that arrive before their receive is posted. */

static u64 counter(const char *name)
{
	struct rdma_hw_stats *stats = dev->ops.alloc_hw_port_stats(dev, 1);
	u64 value = 0;
	int i;

	if (!stats)
		return 0;
	for (i = 0; i < stats->num_counters; i++) {
		if (strcmp(stats->descs[i].name, name))
			continue;
		dev->ops.get_hw_stats(dev, stats, 1, i);
		value = stats->value[i];
	}
	rdma_free_hw_stats_struct(stats);
	return value;
}

/* Sends a message, and waits until it waits for its receive: one more than @late did. */
static int send_early(struct end *e, u64 *late)
{
	unsigned long end = jiffies + PATIENCE;
	struct request s;
	struct work w;

	must(post(e, transfer(&w, &s, e, IB_WR_SEND, 64, 0, 0)));
	must(succeeded(&s, e, IB_WC_SEND));
	*late += 1;
	while (counter("recv_late") < *late) {
		expect(!time_after(jiffies, end));
		schedule_timeout_uninterruptible(1);
	}
	/* The softirq that has counted it is over. */
	synchronize_rcu();
	return 0;
}

/* A post ends the wait at once. Without that the message takes the receive after 4 s of waiting. */
static int check_late(void)
{
	u64 late = counter("recv_late");
	struct request r;
	int i;

	must(connect_both());
	for (i = 0; i < 3; i++) {
		unsigned long since;

		must(send_early(&client, &late));
		since = jiffies;
		must(post_recv(&server, &r, 0, 64));
		must(succeeded(&r, &server, IB_WC_RECV));
		expect(time_before(jiffies, since + 3 * HZ));
	}
	return 0;
}

static struct ib_srq *shared;
static struct ib_pd *shared_pd;

static void strip_shared(void)
{
	if (shared && !IS_ERR(shared))
		ib_destroy_srq(shared);
	if (shared_pd && !IS_ERR(shared_pd))
		ib_dealloc_pd(shared_pd);
}

/* Two connections whose servers share a receive queue. */
static int connect_shared(void)
{
	struct ib_srq_init_attr attr = {
		.attr = { .max_wr = DEPTH, .max_sge = 1 },
	};

	shared_pd = ib_alloc_pd(dev, 0);
	expect(!IS_ERR(shared_pd));
	shared = ib_create_srq(shared_pd, &attr);
	expect(!IS_ERR(shared));
	server.srq = shared;
	server2.srq = shared;
	must(start_both());
	expect(comes(&client, RDMA_CM_EVENT_ESTABLISHED));
	expect(comes(&server, RDMA_CM_EVENT_ESTABLISHED));
	accepts = &server2;
	must(start_as(&client2, listens_at()));
	expect(comes(&client2, RDMA_CM_EVENT_ESTABLISHED));
	expect(comes(&server2, RDMA_CM_EVENT_ESTABLISHED));
	return 0;
}

/* Posts N receives at once. */
static int post_shared(struct request *r, int n)
{
	struct ib_sge sge = {
		.addr = server2.dma, .length = 64, .lkey = shared_pd->local_dma_lkey,
	};
	struct ib_recv_wr wr[2] = { };

	for (int i = 0; i < n; i++) {
		wr[i] = (struct ib_recv_wr){
			.wr_cqe = &r[i].cqe, .sg_list = &sge, .num_sge = 1,
		};
		if (i)
			wr[i - 1].next = &wr[i];
		request_init(&r[i]);
	}
	return ib_post_srq_recv(shared, wr, NULL);
}

/*
 * A receive goes to the message that has waited longest. Two of them serve both messages. A QP that
 * is destroyed while its message waits leaves the next receive to the other one.
 */
static int check_late_shared(void)
{
	u64 late = counter("recv_late");
	struct request r[2];
	int i;

	must(connect_shared());
	for (i = 0; i < 6; i++) {
		must(send_early(i % 2 ? &client2 : &client, &late));
		must(send_early(i % 2 ? &client : &client2, &late));
		must(post_shared(r, 1));
		must(succeeded(r, i % 2 ? &server2 : &server, IB_WC_RECV));
		must(post_shared(r, 1));
		must(succeeded(r, i % 2 ? &server : &server2, IB_WC_RECV));
	}
	must(send_early(&client, &late));
	must(send_early(&client2, &late));
	must(post_shared(r, 2));
	must(completed(&r[0], IB_WC_SUCCESS));
	must(completed(&r[1], IB_WC_SUCCESS));
	expect(r[0].qp != r[1].qp);

	must(send_early(&client, &late));
	must(send_early(&client2, &late));
	rdma_destroy_qp(server.id);
	server.qp = NULL;
	must(post_shared(r, 1));
	return succeeded(r, &server2, IB_WC_RECV);
}

/*
 * Each round reads into a region, invalidates it behind a fence, and registers it again with
 * another key for the next round. Without the fence the key would end while the answer is still
 * placed.
 */
static int check_fence(void)
{
	enum { ROUNDS = 200 };
	struct request reg, rd, inv;
	struct work gw, dw, iw;
	int i;

	must(connect_both());
	must(register_now(&server));
	for (i = 0; i < ROUNDS; i++) {
		memset(server.buf, i, SIZE);
		memset(client.buf, ~i, SIZE);
		ib_update_fast_reg_key(client.mr, i);
		expect(map(&client) == PAGES);
		reg_mr(&gw, &reg, &client, IB_SEND_FENCE);
		transfer(&dw, &rd, &client, IB_WR_RDMA_READ, SIZE,
			 server.mr->iova, server.mr->rkey);
		dw.sge.addr = client.mr->iova;
		dw.sge.lkey = client.mr->lkey;
		local_inv(&iw, &inv, client.mr->rkey, IB_SEND_FENCE);
		gw.wr.next = &dw.wr;
		dw.wr.next = &iw.wr;
		must(post(&client, &gw));
		must(succeeded(&inv, &client, IB_WC_LOCAL_INV));
		/* The requests before it have completed. */
		expect(completion_done(&reg.done) && completion_done(&rd.done));
		must(succeeded(&reg, &client, IB_WC_REG_MR));
		must(succeeded(&rd, &client, IB_WC_RDMA_READ));
		expect(reg.place < rd.place && rd.place < inv.place);
		expect(!memchr_inv(client.buf, i, SIZE));
	}
	expect(state_of(client.qp) == IB_QPS_RTS);
	return 0;
}

/*
 * A Write that needs no receive, since it may be sent while the operation before it is still
 * pending. If that is one of the client's region it uses the region, and waits.
 */
static struct work *behind(struct work *w, struct request *r, struct work *op)
{
	transfer(w, r, &client, IB_WR_RDMA_WRITE, 0, 0, 0);
	w->wr.num_sge = 0;
	if (op->wr.opcode == IB_WR_REG_MR && op->reg.mr == client.mr) {
		w->wr.num_sge = 1;
		w->sge = (struct ib_sge){
			.addr = client.mr->iova, .length = 64,
			.lkey = client.mr->lkey,
		};
	}
	return w;
}

/* Posts a request that must fail: the QP ends, and the requests behind it are flushed. */
static int must_fail(struct work *w, struct request *bad)
{
	struct request before, after, r;
	struct work bw, aw;

	must(post_recv(&client, &r, 0, 64));
	transfer(&bw, &before, &client, IB_WR_RDMA_WRITE, 0, 0, 0);
	bw.wr.num_sge = 0;
	behind(&aw, &after, w);
	bw.wr.next = &w->wr;
	w->wr.next = &aw.wr;
	must(post(&client, &bw));
	must(succeeded(&before, &client, IB_WC_RDMA_WRITE));
	must(completed(bad, IB_WC_LOC_QP_OP_ERR));
	must(completed(&after, IB_WC_WR_FLUSH_ERR));
	must(completed(&r, IB_WC_WR_FLUSH_ERR));
	expect(before.place < bad->place && bad->place < after.place);
	expect(state_of(client.qp) == IB_QPS_ERR);
	expect(fails(server.qp));
	expect(comes(&client, RDMA_CM_EVENT_DISCONNECTED));
	expect(comes(&server, RDMA_CM_EVENT_DISCONNECTED));
	return 0;
}

static int check_reg_index(void)
{
	struct request bad;
	struct work w;

	must(connect_both());
	expect(map(&client) == PAGES);
	reg_mr(&w, &bad, &client, 0);
	w.reg.key ^= 0x100;
	return must_fail(&w, &bad);
}

static int check_reg_empty(void)
{
	struct request bad;
	struct work w;

	must(connect_both());
	return must_fail(reg_mr(&w, &bad, &client, 0), &bad);
}

static int check_reg_twice(void)
{
	struct request bad;
	struct work w;

	must(connect_both());
	must(register_now(&client));
	expect(map(&client) == PAGES);
	return must_fail(reg_mr(&w, &bad, &client, 0), &bad);
}

/* Without a new list, a region gets the pages that it had, as servers of RTRS rely on. */
static int check_reg_again(void)
{
	struct request r;
	struct work w;
	int i;

	must(connect_both());
	must(register_now(&server));
	for (i = 0; i < 3; i++) {
		must(invalidate_now(&server, server.mr->rkey));
		ib_update_fast_reg_key(server.mr,
				       ib_inc_rkey(server.mr->rkey));
		must(post(&server, reg_mr(&w, &r, &server, 0)));
		must(succeeded(&r, &server, IB_WC_REG_MR));
		memset(client.buf, i, SIZE);
		memset(server.buf, ~i, SIZE);
		must(transfer_now(&client, IB_WR_RDMA_WRITE, &server));
		must(settle());
		expect(!memchr_inv(server.buf + 64, i, SIZE - 64));
	}
	return 0;
}

/* A region of another protection domain. */
static int check_reg_foreign(void)
{
	struct request bad;
	struct work w;

	must(connect_both());
	expect(map(&server) == PAGES);
	return must_fail(reg_mr(&w, &bad, &server, 0), &bad);
}

/*
 * The same, but only the SQ stops: what the peer sends and reads goes on. After all has been
 * flushed, the QP works again.
 */
static int must_drain(struct work *w, struct request *bad, u32 key)
{
	struct ib_qp_attr rts = { .qp_state = IB_QPS_RTS };
	struct request before, control, after, apart, late, r, s, t;
	struct work bw, cw, aw, pw, lw, sw;

	must(post_recv(&client, &r, 0, 64));
	transfer(&bw, &before, &client, IB_WR_SEND, 64, 0, 0);
	behind(&aw, &after, w);
	must(post_recv(&server, &s, 0, 64));
	must(post_recv(&server, &t, 0, 64));
	local_inv(&cw, &control, key ?: client.mr->rkey, 0);
	transfer(&pw, &apart, &client, IB_WR_SEND, 64, 0, 0);
	bw.wr.next = &w->wr;
	w->wr.next = &cw.wr;
	cw.wr.next = &pw.wr;
	pw.wr.next = &aw.wr;
	must(post(&client, &bw));
	must(succeeded(&before, &client, IB_WC_SEND));
	must(completed(bad, IB_WC_LOC_QP_OP_ERR));
	/* These use nothing of the request that fails, and are neither executed nor sent. */
	must(completed(&control, IB_WC_WR_FLUSH_ERR));
	must(completed(&apart, IB_WC_WR_FLUSH_ERR));
	must(completed(&after, IB_WC_WR_FLUSH_ERR));
	expect(before.place < bad->place && bad->place < control.place &&
	       control.place < apart.place && apart.place < after.place);
	must(succeeded(&s, &server, IB_WC_RECV));
	expect(state_of(client.qp) == IB_QPS_SQE);
	expect(state_of(server.qp) == IB_QPS_RTS);
	must(post(&client, transfer(&lw, &late, &client, IB_WR_SEND, 64, 0, 0)));
	must(completed(&late, IB_WC_WR_FLUSH_ERR));

	must(post(&server, transfer(&sw, &s, &server, IB_WR_SEND, 64, 0, 0)));
	must(succeeded(&s, &server, IB_WC_SEND));
	must(succeeded(&r, &client, IB_WC_RECV));
	expect(!completion_done(&t.done));
	if (key) {
		memset(client.buf, 0x3c, SIZE);
		must(post(&server, transfer(&sw, &s, &server, IB_WR_RDMA_READ,
					    SIZE, client.mr->iova, key)));
		must(succeeded(&s, &server, IB_WC_RDMA_READ));
		expect(!memchr_inv(server.buf, 0x3c, SIZE));
	}
	expect(state_of(client.qp) == IB_QPS_SQE);

	must(ib_modify_qp(client.qp, &rts, IB_QP_STATE));
	expect(state_of(client.qp) == IB_QPS_RTS);
	must(post(&client, transfer(&lw, &late, &client, IB_WR_SEND, 64, 0, 0)));
	must(succeeded(&late, &client, IB_WC_SEND));
	must(succeeded(&t, &server, IB_WC_RECV));
	if (key)
		must(invalidate_now(&client, key));
	ib_update_fast_reg_key(client.mr, ib_inc_rkey(client.mr->rkey));
	must(register_now(&client));
	must(transfer_now(&server, IB_WR_RDMA_WRITE, &client));
	must(settle());
	return 0;
}

static int check_drain_index(void)
{
	struct request bad;
	struct work w;

	must(connect_both());
	expect(map(&client) == PAGES);
	reg_mr(&w, &bad, &client, 0);
	w.reg.key ^= 0x100;
	return must_drain(&w, &bad, 0);
}

static int check_drain_twice(void)
{
	struct request bad;
	struct work w;

	must(connect_both());
	must(register_now(&client));
	expect(map(&client) == PAGES);
	return must_drain(reg_mr(&w, &bad, &client, 0), &bad, client.mr->rkey);
}

static int check_drain_inv(void)
{
	struct request bad;
	struct work w;

	must(connect_both());
	must(register_now(&client));
	local_inv(&w, &bad, client.mr->rkey ^ 1, 0);
	return must_drain(&w, &bad, client.mr->rkey);
}

/* Posts Writes of nothing, one after the other. They succeed or are flushed. */
static int post_on(void *unused)
{
	struct request r;
	struct work w;
	int rc = 0;

	while (!kthread_should_stop() && !rc) {
		transfer(&w, &r, &client, IB_WR_RDMA_WRITE, 0, 0, 0);
		rc = post(&client, &w);
		if (!rc)
			wait_for_completion(&r.done);
		if (!rc && r.status != IB_WC_SUCCESS && r.status != IB_WC_WR_FLUSH_ERR)
			rc = -EPROTO;
	}
	while (!kthread_should_stop())
		schedule_timeout_interruptible(1);
	return rc;
}

/* The SQ stops, and goes on as soon as it can. */
static int resume_once(void)
{
	enum { BEHIND = 8 };
	struct ib_qp_attr rts = { .qp_state = IB_QPS_RTS };
	static struct request bad, behind[BEHIND], next;
	static struct work w[BEHIND + 1], nw;
	int i;

	local_inv(&w[0], &bad, 1, 0);
	for (i = 0; i < BEHIND; i++) {
		transfer(&w[i + 1], &behind[i], &client, IB_WR_RDMA_WRITE, 0, 0, 0);
		w[i].wr.next = &w[i + 1].wr;
	}
	must(post(&client, w));
	must(completed(&bad, IB_WC_LOC_QP_OP_ERR));
	while (ib_modify_qp(client.qp, &rts, IB_QP_STATE))
		expect(state_of(client.qp) == IB_QPS_SQE);
	for (i = 0; i < BEHIND; i++)
		must(completed(&behind[i], IB_WC_WR_FLUSH_ERR));
	must(post(&client, transfer(&nw, &next, &client, IB_WR_RDMA_WRITE, 0, 0, 0)));
	must(succeeded(&next, &client, IB_WC_RDMA_WRITE));
	return 0;
}

static struct task_struct *poster;
static int posted;

static void end_poster(void)
{
	if (!IS_ERR_OR_NULL(poster))
		posted = kthread_stop(poster);
	poster = NULL;
}

/* Nothing that is posted before the SQ goes on again is executed, and nothing behind it flushed. */
static int check_drain_resume(void)
{
	enum { ROUNDS = 300 };
	int i;

	must(connect_both());
	poster = kthread_run(post_on, NULL, "siw-poster");
	expect(!IS_ERR(poster));
	for (i = 0; i < ROUNDS; i++)
		must(resume_once());
	end_poster();
	must(posted);
	return 0;
}

/*
 * A registration that takes long. What does not use the region goes on, what uses it waits, and
 * completions keep their order.
 */
static int check_pipe_order(void)
{
	struct request reg, snd, wr, recv;
	struct work gw, sw, ww;

	must(connect_both());
	must(register_now(&server));
	memset(client.buf, 0x5a, SIZE);
	memset(server.buf, 0, SIZE);
	expect(map(&client) == PAGES);
	must(post_recv(&server, &recv, 0, 64));
	reg_mr(&gw, &reg, &client, 0);
	transfer(&sw, &snd, &client, IB_WR_SEND, 64, 0, 0);
	transfer(&ww, &wr, &client, IB_WR_RDMA_WRITE, SIZE, server.mr->iova,
		 server.mr->rkey);
	ww.sge.addr = client.mr->iova;
	ww.sge.lkey = client.mr->lkey;
	gw.wr.next = &sw.wr;
	sw.wr.next = &ww.wr;
	must(post(&client, &gw));
	must(succeeded(&recv, &server, IB_WC_RECV));
	/* The request has the list. */
	expect(map(&client) < 0);
	expect(!completion_done(&reg.done) && !completion_done(&snd.done));
	expect(!memchr_inv(server.buf + 64, 0, SIZE - 64));
	must(succeeded(&reg, &client, IB_WC_REG_MR));
	must(succeeded(&snd, &client, IB_WC_SEND));
	must(succeeded(&wr, &client, IB_WC_RDMA_WRITE));
	expect(recv.place < reg.place && reg.place < snd.place &&
	       snd.place < wr.place);
	must(settle());
	expect(!memchr_inv(server.buf + 64, 0x5a, SIZE - 64));
	return 0;
}

/* The server uses the client's region as soon as it hears of it. */
static struct request used, told;
static struct work use_work, tell_work;

static void use_at_once(struct request *r)
{
	r->ret = post(&server, &use_work);
}

/* The client tells the server of a region that is still being registered. */
static int tell_early(struct request *reg, struct request *snd,
		      struct request *recv)
{
	struct work gw, sw;

	recv->hook = use_at_once;
	reg_mr(&gw, reg, &client, 0);
	transfer(&sw, snd, &client, IB_WR_SEND, 64, 0, 0);
	gw.wr.next = &sw.wr;
	must(post(&client, &gw));
	must(succeeded(recv, &server, IB_WC_RECV));
	must(recv->ret);
	expect(!completion_done(&reg->done));
	return 0;
}

static int peer_at_once(enum ib_wr_opcode op)
{
	struct request reg, snd, recv, back;

	must(connect_both());
	memset(client.buf, 0x11, SIZE);
	memset(server.buf, 0x77, SIZE);
	expect(map(&client) == PAGES);
	must(post_recv(&server, &recv, 0, 64));
	must(post_recv(&client, &back, 0, 64));
	transfer(&tell_work, &told, &server, IB_WR_SEND, 64, 0, 0);
	if (op == IB_WR_SEND_WITH_INV) {
		tell_work.wr.opcode = op;
		tell_work.wr.ex.invalidate_rkey = client.mr->rkey;
		use_work = tell_work;
		use_work.wr.sg_list = &use_work.sge;
	} else {
		transfer(&use_work, &used, &server, op, SIZE, client.mr->iova,
			 client.mr->rkey);
		use_work.wr.next = &tell_work.wr;
		if (op == IB_WR_RDMA_READ)
			tell_work.wr.send_flags |= IB_SEND_FENCE;
	}
	must(tell_early(&reg, &snd, &recv));
	must(succeeded(&back, &client, IB_WC_RECV));
	expect(recv.place < reg.place && reg.place < back.place);
	must(succeeded(&reg, &client, IB_WC_REG_MR));
	must(succeeded(&snd, &client, IB_WC_SEND));
	must(succeeded(&told, &server, IB_WC_SEND));
	if (op == IB_WR_RDMA_WRITE)
		expect(!memchr_inv(client.buf + 64, 0x77, SIZE - 64));
	if (op == IB_WR_RDMA_READ)
		expect(!memchr_inv(server.buf + 64, 0x11, SIZE - 64));
	if (op == IB_WR_SEND_WITH_INV) {
		expect(back.flags & IB_WC_WITH_INVALIDATE);
		/* A valid region could not be registered. */
		must(register_now(&client));
	}
	expect(state_of(client.qp) == IB_QPS_RTS);
	expect(state_of(server.qp) == IB_QPS_RTS);
	return 0;
}

static int check_pipe_write(void)
{
	return peer_at_once(IB_WR_RDMA_WRITE);
}

static int check_pipe_read(void)
{
	return peer_at_once(IB_WR_RDMA_READ);
}

static int check_pipe_inv(void)
{
	return peer_at_once(IB_WR_SEND_WITH_INV);
}

/* The peer answers into a region that is being registered. */
static int check_pipe_recv(void)
{
	struct request reg, snd, recv, back;
	struct ib_sge sge;
	struct ib_recv_wr wr = {
		.wr_cqe = &back.cqe, .sg_list = &sge, .num_sge = 1,
	};

	must(connect_both());
	memset(client.buf, 0x11, SIZE);
	memset(server.buf, 0x77, SIZE);
	expect(map(&client) == PAGES);
	request_init(&back);
	sge = (struct ib_sge){
		.addr = client.mr->iova + 128, .length = 64, .lkey = client.mr->lkey,
	};
	must(ib_post_recv(client.qp, &wr, NULL));
	must(post_recv(&server, &recv, 128, 64));
	transfer(&use_work, &used, &server, IB_WR_SEND, 64, 0, 0);
	must(tell_early(&reg, &snd, &recv));
	must(succeeded(&back, &client, IB_WC_RECV));
	must(succeeded(&reg, &client, IB_WC_REG_MR));
	must(succeeded(&snd, &client, IB_WC_SEND));
	must(succeeded(&used, &server, IB_WC_SEND));
	expect(reg.place < back.place);
	expect(!memchr_inv(client.buf + 128, 0x77, 64));
	return 0;
}

/* The peer has closed the connection before its last message can be delivered. */
static int check_pipe_close(void)
{
	struct request reg, snd, recv, back;

	must(connect_both());
	expect(map(&client) == PAGES);
	must(post_recv(&server, &recv, 0, 64));
	must(post_recv(&client, &back, 0, 64));
	transfer(&use_work, &used, &server, IB_WR_SEND, 64, 0, 0);
	use_work.wr.opcode = IB_WR_SEND_WITH_INV;
	use_work.wr.ex.invalidate_rkey = client.mr->rkey;
	must(tell_early(&reg, &snd, &recv));
	must(succeeded(&used, &server, IB_WC_SEND));
	must(rdma_disconnect(server.id));
	must(succeeded(&back, &client, IB_WC_RECV));
	expect(back.flags & IB_WC_WITH_INVALIDATE);
	must(succeeded(&reg, &client, IB_WC_REG_MR));
	must(succeeded(&snd, &client, IB_WC_SEND));
	expect(comes(&client, RDMA_CM_EVENT_DISCONNECTED));
	return 0;
}

/* An invalidation that cannot succeed does not overtake the registration before it. */
static int fails_behind(u32 key)
{
	struct request reg, bad, after;
	struct work gw, bw, aw;

	expect(map(&client) == PAGES);
	reg_mr(&gw, &reg, &client, 0);
	local_inv(&bw, &bad, key, 0);
	transfer(&aw, &after, &client, IB_WR_RDMA_WRITE, 0, 0, 0);
	gw.wr.next = &bw.wr;
	bw.wr.next = &aw.wr;
	must(post(&client, &gw));
	must(succeeded(&reg, &client, IB_WC_REG_MR));
	must(completed(&bad, IB_WC_LOC_QP_OP_ERR));
	must(completed(&after, IB_WC_WR_FLUSH_ERR));
	expect(reg.place < bad.place && bad.place < after.place);
	expect(fails(client.qp) && fails(server.qp));
	return 0;
}

static int check_pipe_unknown(void)
{
	must(connect_both());
	return fails_behind(1);
}

static int check_pipe_foreign(void)
{
	must(connect_both());
	must(register_now(&server));
	return fails_behind(server.mr->rkey);
}

/*
 * Two queue pairs and one region. What is in the pipeline of one does not delay the messages of
 * the other, which see the region as it is. Operations of both keep their order.
 */
static int check_pipe_shared(void)
{
	enum { FULL = 4 };
	static struct request invs[FULL];
	static struct work iw[FULL];
	struct request reg, other, snd, recv, wr;
	struct work gw, ow, sw, ww;
	u32 key;
	int i;

	one_pd = true;
	must(connect_both());
	must(register_now(&client));
	key = client.mr->rkey;

	/* The server sends from the region while its invalidation is pending. */
	expect(map(&server) == PAGES);
	must(post_recv(&client, &recv, 0, 64));
	must(post(&client, local_inv(&iw[0], &invs[0], key, 0)));
	must(post(&server, reg_mr(&gw, &reg, &server, 0)));
	transfer(&sw, &snd, &server, IB_WR_SEND, 64, 0, 0);
	sw.sge.addr = client.mr->iova;
	sw.sge.lkey = client.mr->lkey;
	must(post(&server, &sw));
	must(succeeded(&recv, &client, IB_WC_RECV));
	expect(!completion_done(&invs[0].done));
	must(succeeded(&invs[0], &client, IB_WC_LOCAL_INV));
	must(succeeded(&reg, &server, IB_WC_REG_MR));
	must(succeeded(&snd, &server, IB_WC_SEND));

	/* There is no room for the operation of the server, until one of the client's is done. */
	for (i = 0; i < FULL; i++) {
		local_inv(&iw[i], &invs[i], key, 0);
		if (i)
			iw[i - 1].wr.next = &iw[i].wr;
	}
	must(post(&client, iw));
	must(post(&server, local_inv(&ow, &other, key, 0)));
	for (i = 0; i < FULL; i++)
		must(succeeded(&invs[i], &client, IB_WC_LOCAL_INV));
	must(succeeded(&other, &server, IB_WC_LOCAL_INV));
	expect(invs[FULL - 1].place < other.place);

	/* The server does not know of the registration that makes the region valid. */
	ib_update_fast_reg_key(client.mr, ib_inc_rkey(key));
	expect(map(&client) == PAGES);
	must(post(&server, local_inv(&ow, &other, server.mr->rkey, 0)));
	must(post(&client, reg_mr(&gw, &reg, &client, 0)));
	must(post(&client, transfer(&ww, &wr, &client, IB_WR_RDMA_WRITE, 64,
				    client.mr->iova, client.mr->rkey)));
	expect(fails(server.qp) && fails(client.qp));
	must(completed(&reg, IB_WC_WR_FLUSH_ERR));
	expect(wait_for_completion_timeout(&wr.done, PATIENCE));
	expect(wait_for_completion_timeout(&other.done, PATIENCE));
	return 0;
}

/*
 * A Read into a region, and its invalidation without a fence, which waits for the Read all the
 * same.
 */
static int check_pipe_chain(void)
{
	enum { ROUNDS = 100 };
	struct request reg, rd, inv;
	struct work gw, dw, iw;
	int i;

	must(connect_both());
	must(register_now(&server));
	for (i = 0; i < ROUNDS; i++) {
		memset(server.buf, i, SIZE);
		memset(client.buf, ~i, SIZE);
		ib_update_fast_reg_key(client.mr, i);
		expect(map(&client) == PAGES);
		reg_mr(&gw, &reg, &client, 0);
		transfer(&dw, &rd, &client, IB_WR_RDMA_READ, SIZE,
			 server.mr->iova, server.mr->rkey);
		dw.sge.addr = client.mr->iova;
		dw.sge.lkey = client.mr->lkey;
		local_inv(&iw, &inv, client.mr->rkey, 0);
		gw.wr.next = &dw.wr;
		dw.wr.next = &iw.wr;
		must(post(&client, &gw));
		must(succeeded(&inv, &client, IB_WC_LOCAL_INV));
		must(succeeded(&reg, &client, IB_WC_REG_MR));
		must(succeeded(&rd, &client, IB_WC_RDMA_READ));
		expect(reg.place < rd.place && rd.place < inv.place);
		expect(!memchr_inv(client.buf, i, SIZE));
	}
	expect(state_of(client.qp) == IB_QPS_RTS);
	return 0;
}

/* A registration that is taken back at once. */
static int check_pipe_undo(void)
{
	enum { ROUNDS = 100 };
	struct request reg, inv;
	struct work gw, iw;
	int i;

	must(connect_both());
	for (i = 0; i < ROUNDS; i++) {
		ib_update_fast_reg_key(client.mr, i);
		expect(map(&client) == PAGES);
		reg_mr(&gw, &reg, &client, 0);
		local_inv(&iw, &inv, client.mr->rkey, 0);
		gw.wr.next = &iw.wr;
		must(post(&client, &gw));
		must(succeeded(&reg, &client, IB_WC_REG_MR));
		must(succeeded(&inv, &client, IB_WC_LOCAL_INV));
		expect(reg.place < inv.place);
	}
	return 0;
}

/* Many regions: all are registered, then used, then invalidated, and all that is posted at once. */
enum { MANY = 20 };
static struct ib_mr *mrs[MANY];
static struct request chain[3 * MANY];

static int alloc_many(void)
{
	int i;

	for (i = 0; i < MANY; i++) {
		mrs[i] = ib_alloc_mr(client.pd, IB_MR_TYPE_MEM_REG, PAGES);
		if (IS_ERR(mrs[i])) {
			mrs[i] = NULL;
			return -ENOMEM;
		}
	}
	return 0;
}

static void strip_many(void)
{
	int i;

	for (i = 0; i < MANY && mrs[i]; i++)
		ib_dereg_mr(mrs[i]);
}

static int map_many(void)
{
	int i;

	for (i = 0; i < MANY; i++) {
		ib_update_fast_reg_key(mrs[i], ib_inc_rkey(mrs[i]->rkey));
		expect(ib_map_mr_sg(mrs[i], client.sg, PAGES, NULL,
				    PAGE_SIZE) == PAGES);
	}
	return 0;
}

static int post_many(void)
{
	static struct work works[3 * MANY];
	struct ib_mr *mr = client.mr;
	int i;

	for (i = 0; i < MANY; i++) {
		struct work *reg = &works[i], *use = &works[MANY + i];

		client.mr = mrs[i];
		reg_mr(reg, &chain[i], &client, 0);
		transfer(use, &chain[MANY + i], &client, IB_WR_RDMA_WRITE, SIZE,
			 server.mr->iova, server.mr->rkey);
		use->sge.addr = mrs[i]->iova;
		use->sge.lkey = mrs[i]->lkey;
		local_inv(&works[2 * MANY + i], &chain[2 * MANY + i], mrs[i]->rkey, 0);
	}
	client.mr = mr;
	for (i = 1; i < 3 * MANY; i++)
		works[i - 1].wr.next = &works[i].wr;
	return post(&client, works);
}

static int check_pipe_many(void)
{
	static const enum ib_wc_opcode opcode[] = {
		IB_WC_REG_MR, IB_WC_RDMA_WRITE, IB_WC_LOCAL_INV,
	};
	enum { ROUNDS = 60 };
	int round, i;

	must(connect_both());
	must(register_now(&server));
	must(alloc_many());
	for (round = 0; round < ROUNDS; round++) {
		memset(client.buf, round, SIZE);
		must(map_many());
		must(post_many());
		for (i = 0; i < 3 * MANY; i++) {
			must(succeeded(&chain[i], &client, opcode[i / MANY]));
			expect(!i || chain[i - 1].place < chain[i].place);
		}
		must(settle());
		expect(!memchr_inv(server.buf + 64, round, SIZE - 64));
	}
	return 0;
}

/*
 * As rw.c of the kernel: each region is invalidated, registered and read into, while Reads into
 * others are under way.
 */
static int check_pipe_reads(void)
{
	static const enum ib_wc_opcode opcode[] = {
		IB_WC_LOCAL_INV, IB_WC_REG_MR, IB_WC_RDMA_READ,
	};
	static struct work works[3 * MANY];
	struct ib_mr *mr;
	enum { ROUNDS = 40 };
	int round, i;

	must(connect_both());
	must(register_now(&server));
	must(alloc_many());
	mr = client.mr;
	for (round = 0; round < ROUNDS; round++) {
		memset(server.buf, round, SIZE);
		memset(client.buf, ~round, SIZE);
		for (i = 0; i < MANY; i++) {
			struct request *r = &chain[3 * i];
			struct work *w = &works[3 * i];

			local_inv(&w[0], &r[0], mrs[i]->rkey, 0);
			ib_update_fast_reg_key(mrs[i], ib_inc_rkey(mrs[i]->rkey));
			expect(ib_map_mr_sg(mrs[i], client.sg, PAGES, NULL, PAGE_SIZE) == PAGES);
			client.mr = mrs[i];
			reg_mr(&w[1], &r[1], &client, 0);
			client.mr = mr;
			transfer(&w[2], &r[2], &client, IB_WR_RDMA_READ, SIZE,
				 server.mr->iova, server.mr->rkey);
			w[2].sge.addr = mrs[i]->iova;
			w[2].sge.lkey = mrs[i]->lkey;
			w[0].wr.next = &w[1].wr;
			w[1].wr.next = &w[2].wr;
			w[2].wr.next = i + 1 < MANY ? &w[3].wr : NULL;
		}
		must(post(&client, works));
		for (i = 0; i < 3 * MANY; i++) {
			must(succeeded(&chain[i], &client, opcode[i % 3]));
			expect(!i || chain[i - 1].place < chain[i].place);
		}
		expect(!memchr_inv(client.buf, round, SIZE));
	}
	return 0;
}

/*
 * The QP fails while registrations are pending: all complete in order, and the lists can be mapped
 * again.
 */
static int check_pipe_flush(void)
{
	bool flushed = false;
	int i;

	must(connect_both());
	must(register_now(&server));
	must(alloc_many());
	must(map_many());
	must(post_many());
	must(succeeded(&chain[3], &client, IB_WC_REG_MR));
	must(to_error(client.qp));
	for (i = 0; i < 3 * MANY; i++) {
		if (i == 3)
			continue;
		expect(wait_for_completion_timeout(&chain[i].done, PATIENCE));
		flushed |= chain[i].status == IB_WC_WR_FLUSH_ERR;
		expect(chain[i].status ==
		       (flushed ? IB_WC_WR_FLUSH_ERR : IB_WC_SUCCESS));
		expect(!i || chain[i - 1].place < chain[i].place);
	}
	expect(flushed);
	return map_many();
}

/* Everything goes while operations are pending. */
static int check_pipe_end(void)
{
	must(connect_both());
	must(register_now(&server));
	must(alloc_many());
	must(map_many());
	must(post_many());
	return 0;
}

/* The end of a region waits for its registration. */
static int check_pipe_dereg(void)
{
	struct request reg;
	struct work w;

	must(connect_both());
	expect(map(&client) == PAGES);
	must(post(&client, reg_mr(&w, &reg, &client, 0)));
	must(ib_dereg_mr(client.mr));
	client.mr = NULL;
	must(succeeded(&reg, &client, IB_WC_REG_MR));
	must(settle());
	return 0;
}

static int check_inv_key(void)
{
	struct request bad;
	struct work w;

	must(connect_both());
	must(register_now(&client));
	local_inv(&w, &bad, client.mr->rkey ^ 1, 0);
	return must_fail(&w, &bad);
}

static int check_inv_unknown(void)
{
	struct request bad;
	struct work w;

	must(connect_both());
	/* No region has the index 0. */
	return must_fail(local_inv(&w, &bad, 1, 0), &bad);
}

/* The key to all memory of the kernel cannot be invalidated. */
static int check_inv_dma(void)
{
	struct request bad;
	struct work w;

	must(connect_both());
	local_inv(&w, &bad, client.pd->local_dma_lkey, 0);
	return must_fail(&w, &bad);
}

static int check_inv_foreign(void)
{
	struct request bad;
	struct work w;

	must(connect_both());
	must(register_now(&server));
	local_inv(&w, &bad, server.mr->rkey, 0);
	return must_fail(&w, &bad);
}

/* A region has a new key. Access by the peer with the old key is refused. */
static int old_key(enum ib_wr_opcode op)
{
	struct request r, after, recv;
	struct work w, aw;
	u32 old;

	must(connect_both());
	must(register_now(&server));
	old = server.mr->rkey;
	must(transfer_now(&client, op, &server));
	must(invalidate_now(&server, old));
	ib_update_fast_reg_key(server.mr, ib_inc_rkey(old));
	expect(server.mr->rkey != old);
	must(register_now(&server));
	must(transfer_now(&client, op, &server));
	/* A Write is done when it is sent. */
	must(settle());

	memset(server.buf, 0x55, SIZE);
	memset(client.buf, 0xaa, SIZE);
	must(post_recv(&server, &recv, 0, 64));
	transfer(&w, &r, &client, op, SIZE, server.mr->iova, old);
	transfer(&aw, &after, &client, IB_WR_RDMA_READ, 64, server.mr->iova,
		 server.mr->rkey);
	w.wr.next = &aw.wr;
	must(post(&client, &w));
	expect(wait_for_completion_timeout(&r.done, PATIENCE));
	expect(op == IB_WR_RDMA_WRITE || r.status == IB_WC_REM_ACCESS_ERR);
	expect(wait_for_completion_timeout(&after.done, PATIENCE));
	expect(after.status != IB_WC_SUCCESS);
	must(completed(&recv, IB_WC_WR_FLUSH_ERR));
	expect(fails(client.qp) && fails(server.qp));
	expect(!memchr_inv(server.buf, 0x55, SIZE));
	expect(!memchr_inv(client.buf, 0xaa, SIZE));
	return 0;
}

static int check_old_write(void)
{
	return old_key(IB_WR_RDMA_WRITE);
}

static int check_old_read(void)
{
	return old_key(IB_WR_RDMA_READ);
}

/* The handler of a request returns an error, which rejects the request. */
static int check_end_request(void)
{
	server.last = RDMA_CM_EVENT_CONNECT_REQUEST;
	must(start_both());
	expect(comes(&client, RDMA_CM_EVENT_REJECTED));
	expect(comes(&server, RDMA_CM_EVENT_CONNECT_REQUEST));
	expect(!test_bit(RDMA_CM_EVENT_ESTABLISHED, &client.seen));
	return 0;
}

/* Ends as soon as it is connected: the other side gets an event, and the QP fails. */
static int end_established(struct end *e, struct end *other)
{
	e->last = RDMA_CM_EVENT_ESTABLISHED;
	must(start_both());
	expect(comes(e, RDMA_CM_EVENT_ESTABLISHED));
	expect(comes(other, RDMA_CM_EVENT_DISCONNECTED) ||
	       /* If the client is that fast. */
	       test_bit(RDMA_CM_EVENT_CONNECT_ERROR, &other->seen));
	expect(fails(e->qp) && fails(other->qp));
	expect(!test_bit(RDMA_CM_EVENT_DISCONNECTED, &e->seen));
	return 0;
}

static int check_end_connected(void)
{
	return end_established(&client, &server);
}

static int check_end_accepted(void)
{
	return end_established(&server, &client);
}

/* The QP ends with the identifier, in the handler itself. */
static int end_disconnected(struct end *e, struct end *other)
{
	struct request r;

	e->last = RDMA_CM_EVENT_DISCONNECTED;
	e->strips = true;
	must(connect_both());
	must(post_recv(e, &r, 0, 64));
	must(rdma_disconnect(other->id));
	expect(comes(e, RDMA_CM_EVENT_DISCONNECTED));
	must(completed(&r, IB_WC_WR_FLUSH_ERR));
	expect(comes(other, RDMA_CM_EVENT_DISCONNECTED));
	expect(fails(other->qp));
	return 0;
}

static int check_end_disconnected(void)
{
	return end_disconnected(&client, &server);
}

static int check_end_accepted_disconnected(void)
{
	return end_disconnected(&server, &client);
}

/* The connection fails, and the QP ends with the identifier, in the handler itself. */
static int end_failed(__be16 port, enum rdma_cm_event_type type)
{
	client.last = type;
	client.strips = true;
	must(start(port));
	expect(comes(&client, type));
	expect(!client.qp);
	return 0;
}

/* A TCP socket that listens instead of a peer. */
static struct socket *tcp_listener(__be16 *port)
{
	struct sockaddr_in at = {
		.sin_family = AF_INET, .sin_addr.s_addr = in_aton(address),
	};
	struct socket *sock;

	if (sock_create_kern(current->nsproxy->net_ns, PF_INET, SOCK_STREAM,
			     IPPROTO_TCP, &sock))
		return NULL;
	if (kernel_bind(sock, (void *)&at, sizeof(at)) ||
	    kernel_listen(sock, 8) ||
	    kernel_getsockname(sock, (struct sockaddr *)&at) < 0) {
		sock_release(sock);
		return NULL;
	}
	*port = at.sin_port;
	return sock;
}

/* Nobody listens. */
static int check_end_rejected(void)
{
	struct socket *sock;
	__be16 port;

	sock = tcp_listener(&port);
	expect(sock);
	sock_release(sock);
	return end_failed(port, RDMA_CM_EVENT_REJECTED);
}

/* The peer sends nothing. */
static int check_end_unreachable(void)
{
	struct socket *sock;
	__be16 port;
	int rc;

	sock = tcp_listener(&port);
	expect(sock);
	rc = end_failed(port, RDMA_CM_EVENT_UNREACHABLE);
	sock_release(sock);
	return rc;
}

/* The peer sends another protocol. */
static int answer_wrongly(struct socket *sock)
{
	static char wrong[] = "HTTP/1.1 400 Bad Request\r\n\r\n";
	struct kvec vec = { .iov_base = wrong, .iov_len = sizeof(wrong) - 1 };
	struct msghdr msg = {};
	struct socket *peer;
	int rc;

	must(kernel_accept(sock, &peer, 0));
	rc = kernel_sendmsg(peer, &msg, &vec, 1, vec.iov_len);
	if (is_so(rc == vec.iov_len, "all is sent", __LINE__) &&
	    is_so(comes(&client, RDMA_CM_EVENT_CONNECT_ERROR),
		  "CONNECT_ERROR comes", __LINE__))
		rc = 0;
	else
		rc = -EPROTO;
	sock_release(peer);
	return rc;
}

static int check_end_error(void)
{
	struct socket *sock;
	__be16 port;
	int rc;

	sock = tcp_listener(&port);
	expect(sock);
	client.last = RDMA_CM_EVENT_CONNECT_ERROR;
	client.strips = true;
	rc = start(port) ?: answer_wrongly(sock);
	sock_release(sock);
	return rc;
}

/* Long lists, large pages and lists with gaps. */

/* Pages, or pieces, of a long list. */
enum { LENGTH = 600 };

static u8 *many[LENGTH];

static int get_many(void)
{
	int i;

	for (i = 0; i < LENGTH; i++) {
		many[i] = (u8 *)get_zeroed_page(GFP_KERNEL);
		expect(many[i]);
	}
	return 0;
}

static void put_many(void)
{
	int i;

	for (i = 0; i < LENGTH; i++) {
		free_page((unsigned long)many[i]);
		many[i] = NULL;
	}
}

/* Runs @check with both ends connected, the buffers, and a list for them. */
static int with_many(int (*check)(struct scatterlist *sg))
{
	struct scatterlist *sg;
	int rc;

	must(connect_both());
	sg = kcalloc(LENGTH, sizeof(*sg), GFP_KERNEL);
	expect(sg);
	rc = get_many() ?: check(sg);
	put_many();
	kfree(sg);
	return rc;
}

/* The byte that belongs at @offset of a region. */
static u8 byte_at(u64 offset)
{
	return offset * 251 >> 3 ^ offset;
}

/* Gives the server another region, of @max pages or pieces. */
static int exchange_mr(enum ib_mr_type type, u32 max)
{
	must(ib_dereg_mr(server.mr));
	server.mr = ib_alloc_mr(server.pd, type, max);
	expect(!IS_ERR(server.mr));
	return 0;
}

/* The client writes to all of the server's region, and reads it back. */
static int use_region(u64 len)
{
	struct request w, r;
	struct work ww, rw;
	u64 at;
	u32 i, n;

	for (at = 0; at < len; at += n) {
		n = min_t(u64, len - at, SIZE - at % 1000);
		for (i = 0; i < n; i++)
			client.buf[i] = byte_at(at + i);
		must(post(&client, transfer(&ww, &w, &client, IB_WR_RDMA_WRITE, n,
					    server.mr->iova + at, server.mr->rkey)));
		must(succeeded(&w, &client, IB_WC_RDMA_WRITE));
		memset(client.buf, 0, n);
		must(post(&client, transfer(&rw, &r, &client, IB_WR_RDMA_READ, n,
					    server.mr->iova + at, server.mr->rkey)));
		must(succeeded(&r, &client, IB_WC_RDMA_READ));
		for (i = 0; i < n; i++)
			expect(client.buf[i] == byte_at(at + i));
	}
	return 0;
}

static int register_list(struct scatterlist *sg, int n, unsigned int *offset,
			 unsigned int page_size)
{
	struct request r;
	struct work w;

	expect(ib_map_mr_sg(server.mr, sg, n, offset, page_size) == n);
	must(post(&server, reg_mr(&w, &r, &server, 0)));
	must(succeeded(&r, &server, IB_WC_REG_MR));
	return 0;
}

static int with_long_list(struct scatterlist *sg)
{
	u64 offset = 0;
	int i, j;

	sg_init_table(sg, LENGTH);
	for (i = 0; i < LENGTH; i++)
		sg_set_page(&sg[i], virt_to_page(many[i]), i ? PAGE_SIZE : PAGE_SIZE - 24,
			    i ? 0 : 24);
	sg[LENGTH - 1].length = 100;
	expect(dev->attrs.max_fast_reg_page_list_len >= LENGTH);
	expect(ib_dma_map_sg(dev, sg, LENGTH, DMA_BIDIRECTIONAL) == LENGTH);
	must(exchange_mr(IB_MR_TYPE_MEM_REG, LENGTH));
	must(register_list(sg, LENGTH, NULL, PAGE_SIZE));
	expect(server.mr->length == LENGTH * PAGE_SIZE - 24 - (PAGE_SIZE - 100));
	must(use_region(server.mr->length));
	for (i = 0; i < LENGTH; i++) {
		expect(!memchr_inv(many[i], 0, sg[i].offset));
		for (j = 0; j < sg[i].length; j++)
			expect(many[i][sg[i].offset + j] == byte_at(offset++));
		expect(!memchr_inv(many[i] + sg[i].offset + j, 0,
				   PAGE_SIZE - sg[i].offset - j));
	}
	return 0;
}

static int check_long_list(void)
{
	return with_many(with_long_list);
}

/* Two pages of 2 MiB, from somewhere in the first one on. */
enum { LARGE_ORDER = 9 };

static int with_large_pages(u8 *page[2])
{
	const u64 large = PAGE_SIZE << LARGE_ORDER;
	unsigned int first = 12345;
	struct scatterlist sg[2];
	u64 i;

	sg_init_table(sg, 2);
	sg_set_buf(&sg[0], page[0], large);
	sg_set_buf(&sg[1], page[1], 54321);
	expect(ib_dma_map_sg(dev, sg, 2, DMA_BIDIRECTIONAL) == 2);
	must(exchange_mr(IB_MR_TYPE_MEM_REG, 2));
	must(register_list(sg, 2, &first, large));
	expect(server.mr->length == large - 12345 + 54321);
	must(use_region(server.mr->length));
	expect(!memchr_inv(page[0], 0, 12345));
	for (i = 12345; i < large; i++)
		expect(page[0][i] == byte_at(i - 12345));
	for (i = 0; i < 54321; i++)
		expect(page[1][i] == byte_at(large - 12345 + i));
	expect(!memchr_inv(page[1] + 54321, 0, large - 54321));
	return 0;
}

static int check_large_page(void)
{
	u8 *page[2];
	int rc = -ENOMEM;

	must(connect_both());
	page[0] = (u8 *)__get_free_pages(GFP_KERNEL | __GFP_ZERO, LARGE_ORDER);
	page[1] = (u8 *)__get_free_pages(GFP_KERNEL | __GFP_ZERO, LARGE_ORDER);
	if (page[0] && page[1])
		rc = with_large_pages(page);
	free_pages((unsigned long)page[0], LARGE_ORDER);
	free_pages((unsigned long)page[1], LARGE_ORDER);
	return rc;
}

/* Pieces of any length anywhere in their pages, some of which continue the one before. */
static int with_gaps(struct scatterlist *sg)
{
	unsigned int first = 5;
	struct request r;
	u64 offset = 0;
	struct work w;
	u32 key;
	int i, j;

	sg_init_table(sg, LENGTH);
	for (i = 0; i < LENGTH; i++) {
		u32 at = i * 37 % 4000, len = 1 + i * 53 % (PAGE_SIZE - at);

		sg_set_page(&sg[i], virt_to_page(many[i]), len, at);
	}
	sg[0].length += first;
	for (i = 1; i < LENGTH; i += 7)
		sg_set_page(&sg[i], virt_to_page(many[i - 1]), 3,
			    sg[i - 1].offset + sg[i - 1].length);
	expect(ib_dma_map_sg(dev, sg, LENGTH, DMA_BIDIRECTIONAL) == LENGTH);
	expect(dev->attrs.kernel_cap_flags & IBK_SG_GAPS_REG);

	/* As many as there is room for. Those that continue another one need none. */
	must(exchange_mr(IB_MR_TYPE_SG_GAPS, 6));
	expect(ib_map_mr_sg(server.mr, sg, LENGTH, &first, PAGE_SIZE) == 7);
	expect(!first);
	first = 5;

	must(exchange_mr(IB_MR_TYPE_SG_GAPS, LENGTH));
	must(register_list(sg, LENGTH, &first, PAGE_SIZE));
	for (i = 0; i < LENGTH; i++)
		offset += sg[i].length;
	expect(server.mr->length == offset - 5);
	must(use_region(server.mr->length));
	offset = 0;
	for (i = 0; i < LENGTH; i++) {
		u8 *at = sg_virt(&sg[i]);

		j = i ? 0 : 5;
		expect(i % 7 == 1 || !memchr_inv(many[i], 0, sg[i].offset + j));
		for (; j < sg[i].length; j++)
			expect(at[j] == byte_at(offset++));
		if (i % 7 != 1 && i % 7 != 0)
			expect(!memchr_inv(at + j, 0, PAGE_SIZE - sg[i].offset - j));
	}

	/* A byte more is refused, and none of it written. */
	key = server.mr->rkey;
	memset(client.buf, 0xee, 8);
	must(post(&client, transfer(&w, &r, &client, IB_WR_RDMA_READ, 8,
				    server.mr->iova + offset - 7, key)));
	must(completed(&r, IB_WC_REM_ACCESS_ERR));
	expect(!memchr_inv(client.buf, 0xee, 8));
	return 0;
}

static int check_gaps(void)
{
	return with_many(with_gaps);
}

/* A dmabuf whose driver may move it while nobody has pinned it. */
static int movable_pin(struct dma_buf_attachment *attach)
{
	return 0;
}

static void movable_unpin(struct dma_buf_attachment *attach)
{
}

static struct sg_table *movable_map(struct dma_buf_attachment *attach, enum dma_data_direction dir)
{
	return ERR_PTR(-EOPNOTSUPP);
}

static void movable_unmap(struct dma_buf_attachment *attach, struct sg_table *sgt,
			  enum dma_data_direction dir)
{
}

static int movable_vmap(struct dma_buf *buf, struct iosys_map *map)
{
	iosys_map_set_vaddr(map, buf->priv);
	return 0;
}

static void movable_release(struct dma_buf *buf)
{
	free_page((unsigned long)buf->priv);
}

static const struct dma_buf_ops movable = {
	.pin = movable_pin, .unpin = movable_unpin, .map_dma_buf = movable_map, .unmap_dma_buf = movable_unmap,
	.vmap = movable_vmap, .release = movable_release,
};

/* It is refused: the CPU would go on using the place where it was. */
static int check_dmabuf_movable(void)
{
	DEFINE_DMA_BUF_EXPORT_INFO(info);
	struct dma_buf *buf;
	struct ib_mr *mr;
	int fd;

	must(connect_both());
	info.ops = &movable;
	info.size = PAGE_SIZE;
	info.flags = O_RDWR | O_CLOEXEC;
	info.priv = (void *)get_zeroed_page(GFP_KERNEL);
	expect(info.priv);
	buf = dma_buf_export(&info);
	expect(!IS_ERR(buf));
	/* It goes with insmod. */
	fd = dma_buf_fd(buf, O_CLOEXEC);
	expect(fd >= 0);
	mr = dev->ops.reg_user_mr_dmabuf(client.pd, 0, PAGE_SIZE, 0, fd, IB_ACCESS_LOCAL_WRITE, NULL, NULL);
	expect(mr == ERR_PTR(-EOPNOTSUPP));
	return 0;
}

/*
 * The device is removed while its last identifier releases it, and the releasing thread loses its
 * CPU between the release of the device and that of its GID (docs/upstream/0004).
 */
static struct task_struct *leaver;
static DECLARE_COMPLETION(device_left);
static bool hogged;

static int puts_gid(struct kprobe *probe, struct pt_regs *regs)
{
	if (current == leaver)
		complete_all(&device_left);
	return 0;
}

/* Occupies the CPU for longer than the removal of a device takes. */
static int hog(void *unused)
{
	unsigned long end;

	wait_for_completion(&device_left);
	end = jiffies + 3 * HZ;
	while (!time_after(jiffies, end))
		cpu_relax();
	WRITE_ONCE(hogged, true);
	return 0;
}

static int leave_late(void)
{
	struct sockaddr_in at = {
		.sin_family = AF_INET, .sin_addr.s_addr = in_aton(address),
	};

	client.id = rdma_create_id(current->nsproxy->net_ns, handler, &client,
				   RDMA_PS_TCP, IB_QPT_RC);
	expect(!IS_ERR(client.id));
	must(rdma_bind_addr(client.id, (struct sockaddr *)&at));
	expect(client.id->device == dev);
	expect(ib_device_try_get(dev));
	ib_unregister_device_queued(dev);
	ib_device_put(dev);
	expect(comes(&client, RDMA_CM_EVENT_DEVICE_REMOVAL));
	leaver = current;
	rdma_destroy_id(client.id);
	client.id = NULL;
	/* The thread was between the two releases all that time. */
	expect(READ_ONCE(hogged));
	return 0;
}

static int check_late_gid(void)
{
	struct kprobe probe = {
		.symbol_name = "rdma_put_gid_attr", .pre_handler = puts_gid,
	};
	struct task_struct *hogger;
	int rc;

	must(set_cpus_allowed_ptr(current, cpumask_of(0)));
	must(register_kprobe(&probe));
	hogger = kthread_create(hog, NULL, "siw-hog");
	if (IS_ERR(hogger)) {
		unregister_kprobe(&probe);
		return PTR_ERR(hogger);
	}
	get_task_struct(hogger);
	kthread_bind(hogger, 0);
	sched_set_fifo(hogger);
	wake_up_process(hogger);
	rc = leave_late();
	unregister_kprobe(&probe);
	complete_all(&device_left);
	kthread_stop(hogger);
	put_task_struct(hogger);
	return rc;
}

/*
 * Threads are stopped where the functions "hold_at" begin, until the test lets them go on, or for
 * ten seconds. Their CPUs do nothing else meanwhile. Such threads are those whose names begin with
 * "hold_who", from the time "hold_nth" on that they come there. If there is a name "hold_as", only
 * those times count when the argument is the one that a thread of that name had there last. "held"
 * counts the times, and "let_go" says how many of them are over.
 */
#define STOPS 2

static char *hold_at[STOPS], *hold_who[STOPS], *hold_as[STOPS];
static int hold_nth[STOPS] = { 1, 1 };
static int held[STOPS], let_go[STOPS];
module_param_array(hold_at, charp, NULL, 0);
module_param_array(hold_who, charp, NULL, 0);
module_param_array(hold_as, charp, NULL, 0);
module_param_array(hold_nth, int, NULL, 0);
module_param_array(held, int, NULL, 0444);
module_param_array(let_go, int, NULL, 0644);

static struct stop {
	struct kprobe probe;
	unsigned long argument;
	atomic_t came;
} stops[STOPS];

/* The first argument of a function that begins. */
static unsigned long argument_of(struct pt_regs *regs)
{
#ifdef CONFIG_KPROBES
	return regs_get_kernel_argument(regs, 0);
#else
	return 0;
#endif
}

static bool is_named(const char *name)
{
	return name && !strncmp(current->comm, name, strlen(name));
}

static int hold(struct kprobe *probe, struct pt_regs *regs)
{
	struct stop *p = container_of(probe, struct stop, probe);
	unsigned long argument = argument_of(regs);
	int nr = p - stops, turn;
	u64 end;

	if (is_named(hold_as[nr]))
		WRITE_ONCE(p->argument, argument);
	if (!is_named(hold_who[nr]) ||
	    (hold_as[nr] && READ_ONCE(p->argument) != argument))
		return 0;
	turn = atomic_inc_return(&p->came) - hold_nth[nr] + 1;
	if (turn <= READ_ONCE(let_go[nr]))
		return 0;
	WRITE_ONCE(held[nr], turn);
	end = ktime_get_mono_fast_ns() + 10ull * NSEC_PER_SEC;
	while (READ_ONCE(let_go[nr]) < turn && ktime_get_mono_fast_ns() < end)
		cpu_relax();
	return 0;
}

static void end_hold(void)
{
	for (int nr = 0; nr < STOPS; nr++)
		if (stops[nr].probe.pre_handler)
			unregister_kprobe(&stops[nr].probe);
}

/* Begins to hold threads; the end is that of the module. */
static int check_hold(void)
{
	int rc;

	for (int nr = 0; nr < STOPS && hold_at[nr]; nr++) {
		stops[nr].probe.symbol_name = hold_at[nr];
		stops[nr].probe.pre_handler = hold;
		rc = register_kprobe(&stops[nr].probe);
		if (rc) {
			stops[nr].probe.pre_handler = NULL;
			end_hold();
			return rc;
		}
	}
	return 0;
}

static const struct {
	const char *name;
	int (*run)(void);
} checks[] = {
	{ "irqs", check_irqs },
	{ "write-imm", check_write_imm },
	{ "send-imm", check_send_imm },
	{ "send-imm-agreed", check_send_imm_agreed },
	{ "atomic", check_atomic },
	{ "read-inv", check_read_inv },
	{ "read-inv-dma", check_read_inv_dma },
	{ "read-inv-empty", check_read_inv_empty },
	{ "send-inv", check_send_inv },
	{ "turns", check_turns },
	{ "touch", check_touch },
	{ "flush", check_flush },
	{ "purge", check_purge },
	{ "fence", check_fence },
	{ "reg-index", check_reg_index },
	{ "reg-empty", check_reg_empty },
	{ "reg-twice", check_reg_twice },
	{ "reg-again", check_reg_again },
	{ "reg-foreign", check_reg_foreign },
	{ "long-list", check_long_list },
	{ "large-page", check_large_page },
	{ "gaps", check_gaps },
	{ "drain-index", check_drain_index },
	{ "drain-twice", check_drain_twice },
	{ "drain-inv", check_drain_inv },
	{ "drain-resume", check_drain_resume },
	{ "pipe-order", check_pipe_order },
	{ "pipe-write", check_pipe_write },
	{ "pipe-read", check_pipe_read },
	{ "pipe-inv", check_pipe_inv },
	{ "pipe-recv", check_pipe_recv },
	{ "pipe-close", check_pipe_close },
	{ "pipe-unknown", check_pipe_unknown },
	{ "pipe-foreign", check_pipe_foreign },
	{ "pipe-shared", check_pipe_shared },
	{ "pipe-chain", check_pipe_chain },
	{ "pipe-reads", check_pipe_reads },
	{ "pipe-undo", check_pipe_undo },
	{ "pipe-many", check_pipe_many },
	{ "pipe-flush", check_pipe_flush },
	{ "pipe-end", check_pipe_end },
	{ "pipe-dereg", check_pipe_dereg },
	{ "inv-key", check_inv_key },
	{ "inv-unknown", check_inv_unknown },
	{ "inv-dma", check_inv_dma },
	{ "inv-foreign", check_inv_foreign },
	{ "old-write", check_old_write },
	{ "old-read", check_old_read },
	{ "end-request", check_end_request },
	{ "end-connected", check_end_connected },
	{ "end-accepted", check_end_accepted },
	{ "end-disconnected", check_end_disconnected },
	{ "end-accepted-disconnected", check_end_accepted_disconnected },
	{ "end-rejected", check_end_rejected },
	{ "end-unreachable", check_end_unreachable },
	{ "end-error", check_end_error },
	{ "dmabuf-movable", check_dmabuf_movable },
	{ "late-gid", check_late_gid },
	{ "late", check_late },
	{ "late-shared", check_late_shared },
	{ "hold", check_hold },
};

static int add_one(struct ib_device *one)
{
	if (!strcmp(dev_name(&one->dev), device))
		dev = one;
	return 0;
}

/* The device must not be removed under a running check. */
static void remove_one(struct ib_device *one, void *data)
{
}

static struct ib_client ib_client = {
	.name = KBUILD_MODNAME, .add = add_one, .remove = remove_one,
};

static int __init consumer_init(void)
{
	int rc = -EINVAL, i;

	if (!address || !check)
		return -EINVAL;
	rc = ib_register_client(&ib_client);
	if (rc)
		return rc;
	rc = dev ? -EINVAL : -ENODEV;
	client.last = NEVER;
	server.last = NEVER;
	client2.last = NEVER;
	server2.last = NEVER;
	for (i = 0; dev && i < ARRAY_SIZE(checks); i++) {
		if (strcmp(checks[i].name, check))
			continue;
		checker = current;
		rc = checks[i].run();
		if (checker)
			disconnect_both();
	}
	ib_unregister_client(&ib_client);
	return rc;
}
module_init(consumer_init);

static void __exit consumer_exit(void)
{
	end_hold();
}
module_exit(consumer_exit);

MODULE_DESCRIPTION("Kernel consumer that tests siw");
MODULE_LICENSE("GPL");
MODULE_IMPORT_NS("DMA_BUF");
