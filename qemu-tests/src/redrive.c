// SPDX-License-Identifier: GPL-2.0
/*
 * What is left of a connection whose path has gone silent, when its program does the work again on
 * another path.
 *
 * "redrive server ADDRESS ADDRESS" lends one buffer on two connections, one after the other.
 * "redrive client ADDRESS ADDRESS" writes to it without end, until SIGTERM comes and nothing
 * completes any more. It gives that connection up, connects to the other address and fills the
 * buffer with other data. The server tells when that data is complete. From then on the buffer must
 * not change. SIGTERM ends the server, and a second one the client.
 */
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <unistd.h>

#include "cm.h"
#include "times.h"

#define SIZE (1 << 20)
#define PIECE 65536
#define DEPTH 64
#define QUIET 0.5 /* seconds without a completion */

/* What the buffer holds at first, and then. */
enum { NOTHING, OLD, NEW };

struct region {
	uint64_t addr;
	uint32_t rkey;
};

static uint8_t *buffer;
static volatile sig_atomic_t stops;

static void stop(int sig)
{
	(void)sig;
	stops++;
}

static uint8_t *filled(uint8_t value)
{
	uint8_t *p;

	must(posix_memalign((void **)&p, 4096, SIZE));
	memset(p, value, SIZE);
	return p;
}

static void furnish(struct rdma_cm_id *id)
{
	struct ibv_qp_init_attr attr = {
		.qp_type = IBV_QPT_RC,
		.cap = { .max_send_wr = DEPTH, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1 },
	};

	must(rdma_create_qp(id, NULL, &attr));
}

static struct ibv_mr *reg(struct rdma_cm_id *id, void *p)
{
	struct ibv_mr *mr = ibv_reg_mr(id->pd, p, SIZE, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);

	if (!mr)
		die("ibv_reg_mr: %s", strerror(errno));
	return mr;
}

/* Whether a work request completes within that time. */
static bool completes(struct ibv_cq *cq, struct ibv_wc *wc, double seconds)
{
	double end = now() + seconds;
	int n;

	do {
		n = ibv_poll_cq(cq, 1, wc);
		if (n < 0)
			die("polling: %d", n);
		if (n)
			return true;
		usleep(1000);
	} while (now() < end);
	return false;
}

/* ---- server ---- */

/* The next connection. The end of the one before it may be noticed at any time. */
static struct rdma_cm_id *accepted(void)
{
	struct rdma_conn_param param = { .responder_resources = 1, .initiator_depth = 1 };
	struct ibv_sge sge = { .addr = (uintptr_t)buffer, .length = 1 };
	struct ibv_recv_wr wr = { .sg_list = &sge, .num_sge = 1 }, *bad;
	struct rdma_cm_event *event;
	struct rdma_cm_id *id;
	struct region mine;
	struct ibv_mr *mr;

	while ((event = next(patience)) && event->event == RDMA_CM_EVENT_DISCONNECTED)
		must(rdma_ack_cm_event(event));
	if (!event || event->event != RDMA_CM_EVENT_CONNECT_REQUEST)
		die("%s instead of a request", event ? rdma_event_str(event->event) : "nothing");
	id = event->id;
	must(rdma_ack_cm_event(event));
	furnish(id);
	mr = reg(id, buffer);
	sge.lkey = mr->lkey;
	mine = (struct region){ .addr = (uintptr_t)buffer, .rkey = mr->rkey };
	must(ibv_post_recv(id->qp, &wr, &bad));
	param.private_data = &mine;
	param.private_data_len = sizeof(mine);
	must(rdma_accept(id, &param));
	swallow(RDMA_CM_EVENT_ESTABLISHED);
	return id;
}

static void server(const char *first, const char *second)
{
	uint8_t *wanted = filled(NEW);
	struct rdma_cm_id *id;
	struct ibv_wc wc;

	buffer = filled(NOTHING);
	listener(first);
	listener(second);
	printf("listening\n");
	accepted();
	id = accepted();
	if (!completes(id->recv_cq, &wc, 60) || wc.status)
		die("the client has not written everything");
	if (memcmp(buffer, wanted, SIZE))
		die("not the data that the client wrote last");
	printf("complete\n");
	for (; !stops; usleep(1000))
		for (int i = 0; i < SIZE; i++)
			if (buffer[i] != NEW)
				die("byte %d is %d again", i, buffer[i]);
}

/* ---- client ---- */

static struct rdma_cm_id *connected(const char *host, struct region *theirs)
{
	struct rdma_conn_param param = { .responder_resources = 1, .initiator_depth = 1, .retry_count = 7 };
	struct rdma_cm_id *id = resolved(host);
	struct rdma_cm_event *event;

	furnish(id);
	must(rdma_connect(id, &param));
	event = expect(RDMA_CM_EVENT_ESTABLISHED);
	memcpy(theirs, event->param.conn.private_data, sizeof(*theirs));
	must(rdma_ack_cm_event(event));
	return id;
}

/* Posts the WRITE of piece N of the buffer. */
static void write_piece(struct rdma_cm_id *id, const struct ibv_mr *mr, const struct region *to, int n)
{
	size_t offset = (size_t)n * PIECE % SIZE;
	struct ibv_sge sge = { .addr = (uintptr_t)mr->addr + offset, .length = PIECE, .lkey = mr->lkey };
	struct ibv_send_wr wr = { .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE,
				  .send_flags = IBV_SEND_SIGNALED }, *bad;

	wr.wr.rdma.remote_addr = to->addr + offset;
	wr.wr.rdma.rkey = to->rkey;
	must(ibv_post_send(id->qp, &wr, &bad));
}

static void client(const char *first, const char *second)
{
	struct ibv_send_wr last = { .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED }, *bad;
	struct rdma_cm_id *id;
	struct region theirs;
	struct ibv_mr *mr;
	struct ibv_wc wc;
	int posted = 0, done = 0;

	id = connected(first, &theirs);
	mr = reg(id, filled(OLD));
	for (;;) {
		while (posted < done + DEPTH)
			write_piece(id, mr, &theirs, posted++);
		if (completes(id->send_cq, &wc, QUIET)) {
			if (wc.status)
				die("%s", ibv_wc_status_str(wc.status));
			if (++done == DEPTH)
				printf("writing\n");
		} else if (stops) {
			break;
		}
	}
	must(rdma_disconnect(id));
	for (; done < posted; done++)
		if (!completes(id->send_cq, &wc, 30))
			die("a work request is not flushed");
	swallow(RDMA_CM_EVENT_DISCONNECTED);
	rdma_destroy_qp(id);

	id = connected(second, &theirs);
	mr = reg(id, filled(NEW));
	for (int i = 0; i < SIZE / PIECE; i++)
		write_piece(id, mr, &theirs, i);
	must(ibv_post_send(id->qp, &last, &bad));
	for (int i = 0; i <= SIZE / PIECE; i++)
		if (!completes(id->send_cq, &wc, 30) || wc.status)
			die("the other path does not work");
	printf("written again\n");
	while (stops < 2)
		usleep(10000);
}

int main(int argc, char **argv)
{
	setvbuf(stdout, NULL, _IOLBF, 0);
	signal(SIGTERM, stop);
	channel = rdma_create_event_channel();
	if (!channel)
		die("no RDMA device");
	if (argc == 4 && !strcmp(argv[1], "server"))
		server(argv[2], argv[3]);
	else if (argc == 4 && !strcmp(argv[1], "client"))
		client(argv[2], argv[3]);
	else
		die("usage: redrive server|client ADDRESS ADDRESS");
	/* The objects end with the program. */
	return 0;
}
