// SPDX-License-Identifier: GPL-2.0
/*
 * What leaves of memory that was sent by reference, after its program has taken it back.
 *
 * "recall holder ADDRESS" has a buffer on each of the connections, to which the owner writes. At
 * the first SIGUSR1 it reads the owner's memory on one of them. It ends with an error as soon as a
 * buffer has data that is NEW, and at SIGTERM if the data that must have come is not there.
 *
 * "recall owner ADDRESS" writes to it, by reference, and takes the memory back at once. It goes on
 * at each SIGUSR1: it writes once more, on three connections, and takes the memory of two of them
 * back, and what the holder reads. It puts NEW data there. The third connection goes on.
 */
#include <signal.h>
#include <unistd.h>

#include "cm.h"
#include "times.h"

#define SIZE 65536
/* Longest time that taking memory back may take, with much to spare for a slow machine. */
#define LONGEST 3.0

enum { OLD = 1, NEW };

/* What happens to the memory of each connection. */
enum { ACKED, DEREG, REREG, READ, KEPT, LANES };

struct region {
	uint64_t addr;
	uint32_t rkey;
};

static struct lane {
	struct rdma_cm_id *id;
	struct ibv_mr *mr;
	struct region theirs;
	uint8_t *buffer;
} lanes[LANES];
static volatile sig_atomic_t told, stops;

static void tell(int sig)
{
	if (sig == SIGUSR1)
		told++;
	else
		stops++;
}

static void await(int times)
{
	while (told < times)
		usleep(1000);
}

static void furnish(struct lane *l, uint8_t value)
{
	struct ibv_qp_init_attr attr = {
		.qp_type = IBV_QPT_RC,
		.cap = { .max_send_wr = 4, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1 },
	};

	must(rdma_create_qp(l->id, NULL, &attr));
	must(posix_memalign((void **)&l->buffer, 4096, SIZE));
	memset(l->buffer, value, SIZE);
	l->mr = ibv_reg_mr(l->id->pd, l->buffer, SIZE,
			   IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ);
	if (!l->mr)
		die("ibv_reg_mr: %s", strerror(errno));
}

/* Posts a work request for the whole buffer, and if it has no completion one that has. */
static void post(struct lane *l, enum ibv_wr_opcode op, bool signalled)
{
	struct ibv_sge sge = { .addr = (uintptr_t)l->buffer, .length = SIZE, .lkey = l->mr->lkey };
	struct ibv_send_wr last = { .opcode = IBV_WR_RDMA_WRITE, .send_flags = IBV_SEND_SIGNALED }, *bad;
	struct ibv_send_wr wr = { .sg_list = &sge, .num_sge = 1, .opcode = op };

	wr.wr.rdma.remote_addr = l->theirs.addr;
	wr.wr.rdma.rkey = l->theirs.rkey;
	wr.send_flags = signalled ? IBV_SEND_SIGNALED : 0;
	wr.next = signalled ? NULL : &last;
	must(ibv_post_send(l->id->qp, &wr, &bad));
}

static enum ibv_wc_status status(struct lane *l)
{
	double end = now() + 60;
	struct ibv_wc wc;
	int n;

	while ((n = ibv_poll_cq(l->id->send_cq, 1, &wc)) == 0 && now() < end)
		usleep(1000);
	if (n != 1)
		die("lane %d: no completion", (int)(l - lanes));
	return wc.status;
}

static void expect_status(int lane, enum ibv_wc_status wanted)
{
	enum ibv_wc_status s = status(&lanes[lane]);

	if (s != wanted)
		die("lane %d: %s", lane, ibv_wc_status_str(s));
}

/* ---- holder ---- */

static void accept_one(struct lane *l)
{
	struct rdma_conn_param param = { .responder_resources = 1, .initiator_depth = 1 };
	struct rdma_cm_event *event = expect(RDMA_CM_EVENT_CONNECT_REQUEST);
	struct region mine;

	l->id = event->id;
	memcpy(&l->theirs, event->param.conn.private_data, sizeof(l->theirs));
	must(rdma_ack_cm_event(event));
	furnish(l, 0);
	mine = (struct region){ .addr = (uintptr_t)l->buffer, .rkey = l->mr->rkey };
	param.private_data = &mine;
	param.private_data_len = sizeof(mine);
	must(rdma_accept(l->id, &param));
	swallow(RDMA_CM_EVENT_ESTABLISHED);
}

static bool has(const struct lane *l, uint8_t value)
{
	return memchr(l->buffer, value, SIZE);
}

static void holder(const char *host)
{
	bool reads = false;

	listener(host);
	for (int i = 0; i < LANES; i++)
		accept_one(&lanes[i]);
	for (; !stops; usleep(1000)) {
		if (told && !reads) {
			post(&lanes[READ], IBV_WR_RDMA_READ, true);
			reads = true;
		}
		for (int i = 0; i < LANES; i++)
			if (has(&lanes[i], NEW))
				die("lane %d: data that was not sent", i);
	}
	if (has(&lanes[ACKED], 0) || has(&lanes[KEPT], 0))
		die("not all data that was sent");
}

/* ---- owner ---- */

static void connect_one(struct lane *l, const char *host)
{
	struct rdma_conn_param param = { .responder_resources = 1, .initiator_depth = 1, .retry_count = 7 };
	struct rdma_cm_event *event;
	struct region mine;

	l->id = resolved(host);
	furnish(l, OLD);
	mine = (struct region){ .addr = (uintptr_t)l->buffer, .rkey = l->mr->rkey };
	param.private_data = &mine;
	param.private_data_len = sizeof(mine);
	must(rdma_connect(l->id, &param));
	event = expect(RDMA_CM_EVENT_ESTABLISHED);
	memcpy(&l->theirs, event->param.conn.private_data, sizeof(l->theirs));
	must(rdma_ack_cm_event(event));
}

/* Takes the memory back, and writes to it. */
static void take_back(int lane)
{
	struct lane *l = &lanes[lane];
	double start = now(), took;

	if (lane == REREG)
		must(ibv_rereg_mr(l->mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, IBV_ACCESS_LOCAL_WRITE));
	else
		must(ibv_dereg_mr(l->mr));
	took = now() - start;
	memset(l->buffer, NEW, SIZE);
	printf("lane %d: %.3f s\n", lane, took);
	if (took > LONGEST)
		die("that is too long");
}

static void owner(const char *host)
{
	for (int i = 0; i < LANES; i++)
		connect_one(&lanes[i], host);
	post(&lanes[ACKED], IBV_WR_RDMA_WRITE, false);
	take_back(ACKED);
	expect_status(ACKED, IBV_WC_SUCCESS);
	printf("acknowledged\n");
	await(1);
	post(&lanes[DEREG], IBV_WR_RDMA_WRITE, false);
	post(&lanes[REREG], IBV_WR_RDMA_WRITE, false);
	post(&lanes[KEPT], IBV_WR_RDMA_WRITE, false);
	printf("written\n");
	await(2);
	take_back(DEREG);
	take_back(REREG);
	take_back(READ);
	expect_status(DEREG, IBV_WC_WR_FLUSH_ERR);
	expect_status(REREG, IBV_WC_WR_FLUSH_ERR);
	printf("taken back\n");
	expect_status(KEPT, IBV_WC_SUCCESS);
	printf("gone on\n");
}

int main(int argc, char **argv)
{
	setvbuf(stdout, NULL, _IOLBF, 0);
	signal(SIGUSR1, tell);
	signal(SIGTERM, tell);
	channel = rdma_create_event_channel();
	if (!channel)
		die("no RDMA device");
	if (argc == 3 && !strcmp(argv[1], "holder"))
		holder(argv[2]);
	else if (argc == 3 && !strcmp(argv[1], "owner"))
		owner(argv[2]);
	else
		die("usage: recall holder|owner ADDRESS");
	/* The objects end with the program. */
	return 0;
}
