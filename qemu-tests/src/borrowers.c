// SPDX-License-Identifier: GPL-2.0
/*
 * Many connections that borrow one region.
 *
 * "borrowers holder ADDRESS N" accepts N connections and lends a buffer to each.
 *
 * "borrowers owner ADDRESS N" makes them, and then registers its memory. At SIGUSR1 it writes it on
 * each of them, by reference. Both wait to be killed. The objects end with the program, the newest
 * first.
 */
#include <signal.h>
#include <unistd.h>

#include "cm.h"

#define SIZE 65536
#define MOST 200

struct region {
	uint64_t addr;
	uint32_t rkey;
};

static struct rdma_cm_id *ids[MOST];
static struct region theirs[MOST];
static char buffer[SIZE] __attribute__((aligned(4096)));
static struct rdma_conn_param param = { .responder_resources = 1, .initiator_depth = 1, .retry_count = 7 };

static void furnish(struct rdma_cm_id *id)
{
	struct ibv_qp_init_attr attr = {
		.qp_type = IBV_QPT_RC,
		.cap = { .max_send_wr = 2, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1 },
	};

	must(rdma_create_qp(id, NULL, &attr));
}

/* All connections share a protection domain. */
static struct ibv_mr *lend(void)
{
	struct ibv_mr *mr = ibv_reg_mr(ids[0]->pd, buffer, SIZE, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);

	must(!mr);
	return mr;
}

static void holder(const char *host, int n)
{
	struct ibv_mr *mr = NULL;
	struct region mine;

	listener(host);
	/* A connection may be requested before the one before it is established. */
	for (int made = 0, up = 0; up < n;) {
		struct rdma_cm_event *event = next(patience);

		must(!event);
		if (event->event == RDMA_CM_EVENT_CONNECT_REQUEST && made < n) {
			struct rdma_cm_id *id = event->id;

			ids[made++] = id;
			furnish(id);
			mr = mr ?: lend();
			mine = (struct region){ .addr = (uintptr_t)buffer, .rkey = mr->rkey };
			param.private_data = &mine;
			param.private_data_len = sizeof(mine);
			must(rdma_accept(id, &param));
		} else if (event->event == RDMA_CM_EVENT_ESTABLISHED) {
			up++;
		} else {
			die("event %s", rdma_event_str(event->event));
		}
		must(rdma_ack_cm_event(event));
	}
}

static void owner(const char *host, int n)
{
	struct ibv_mr *mr;
	sigset_t set;
	int sig;

	sigemptyset(&set);
	sigaddset(&set, SIGUSR1);
	must(sigprocmask(SIG_BLOCK, &set, NULL));
	for (int i = 0; i < n; i++) {
		struct rdma_cm_event *event;

		ids[i] = resolved(host);
		furnish(ids[i]);
		must(rdma_connect(ids[i], &param));
		event = expect(RDMA_CM_EVENT_ESTABLISHED);
		memcpy(&theirs[i], event->param.conn.private_data, sizeof(theirs[i]));
		must(rdma_ack_cm_event(event));
	}
	mr = lend();
	printf("connected\n");
	must(sigwait(&set, &sig));
	for (int i = 0; i < n; i++) {
		struct ibv_sge sge = { .addr = (uintptr_t)buffer, .length = SIZE, .lkey = mr->lkey };
		struct ibv_send_wr wr = { .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE }, *bad;

		wr.wr.rdma.remote_addr = theirs[i].addr;
		wr.wr.rdma.rkey = theirs[i].rkey;
		must(ibv_post_send(ids[i]->qp, &wr, &bad));
	}
	printf("written\n");
}

int main(int argc, char **argv)
{
	int n = argc == 4 ? atoi(argv[3]) : 0;

	setvbuf(stdout, NULL, _IOLBF, 0);
	must(n < 1 || n > MOST);
	must(!(channel = rdma_create_event_channel()));
	if (!strcmp(argv[1], "holder"))
		holder(argv[2], n);
	else
		owner(argv[2], n);
	for (;;)
		pause();
}
