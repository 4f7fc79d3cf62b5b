// SPDX-License-Identifier: GPL-2.0
/*
 * Only the process that created a queue pair may connect it: no other process may, of
 * another user or of the same one. Run as "foreign ADDRESS", with the address of this
 * host's device, or as "foreign ADDRESS NUMBER", for one existing queue pair.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cm.h"

#define OWNER 1001
#define OTHER 1002

static struct ibv_qp *make_qp(struct rdma_cm_id *id)
{
	struct ibv_qp_init_attr attr = {
		.qp_type = IBV_QPT_RC,
		.cap = { .max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1 },
	};
	struct ibv_pd *pd = ibv_alloc_pd(id->verbs);
	struct ibv_qp *qp;

	attr.send_cq = attr.recv_cq = ibv_create_cq(id->verbs, 16, NULL, NULL, 0);
	if (!pd || !attr.send_cq)
		die("no PD or CQ: %s", strerror(errno));
	qp = ibv_create_qp(pd, &attr);
	if (!qp)
		die("no QP: %s", strerror(errno));
	return qp;
}

static struct rdma_conn_param with(uint32_t qpn)
{
	return (struct rdma_conn_param){ .qp_num = qpn, .responder_resources = 1, .initiator_depth = 1 };
}

static void become(uid_t uid)
{
	must(setresgid(uid, uid, uid));
	must(setresuid(uid, uid, uid));
	channel = rdma_create_event_channel();
	if (!channel)
		die("no event channel: %s", strerror(errno));
}

static void denied(const char *what, int rc)
{
	if (!rc)
		die("%s with the queue pair of another process", what);
	if (errno != EACCES)
		die("%s with the queue pair of another process: %s", what, strerror(errno));
}

/* Tries to connect, and to accept, with a queue pair of another process. */
static void steal(const char *host, uint32_t qpn)
{
	struct rdma_cm_id *id = resolved(host), *listen, *taken;
	struct rdma_conn_param theirs = with(qpn), ours = with(make_qp(id)->qp_num);
	struct rdma_cm_event *event;

	denied("connected", rdma_connect(id, &theirs));
	listen = listener(host);
	/* The refused call has not changed the identifier. */
	must(rdma_connect(id, &ours));
	event = expect(RDMA_CM_EVENT_CONNECT_REQUEST);
	taken = event->id;
	must(rdma_ack_cm_event(event));
	denied("accepted", rdma_accept(taken, &theirs));
	swallow(RDMA_CM_EVENT_REJECTED);
	must(rdma_destroy_id(taken));
	must(rdma_destroy_id(listen));
}

struct making {
	struct rdma_cm_id *id;
	struct ibv_qp *qp;
};

static void *make_in_thread(void *arg)
{
	struct making *making = arg;

	making->qp = make_qp(making->id);
	return NULL;
}

/*
 * Writes the number of its queue pair, and later connects it, after others have tried.
 */
static void own(const char *host, int tell, int go)
{
	struct rdma_cm_id *id = resolved(host), *listen, *taken;
	struct making making = { .id = id };
	struct ibv_qp_init_attr init;
	struct rdma_conn_param p;
	struct ibv_qp_attr attr;
	struct rdma_cm_event *event;
	pthread_t thread;
	char c;

	/* Another thread creates it, and has ended by then. */
	must(pthread_create(&thread, NULL, make_in_thread, &making));
	must(pthread_join(thread, NULL));
	must(write(tell, &making.qp->qp_num, sizeof(uint32_t)) != sizeof(uint32_t));
	must(read(go, &c, 1) != 1);
	must(ibv_query_qp(making.qp, &attr, IBV_QP_STATE, &init));
	if (attr.qp_state != IBV_QPS_INIT)
		die("the queue pair is in state %d", attr.qp_state);
	listen = listener(host);
	p = with(making.qp->qp_num);
	must(rdma_connect(id, &p));
	event = expect(RDMA_CM_EVENT_CONNECT_REQUEST);
	taken = event->id;
	must(rdma_ack_cm_event(event));
	p = with(make_qp(id)->qp_num);
	must(rdma_accept(taken, &p));
	/* One event for each end. */
	swallow(RDMA_CM_EVENT_ESTABLISHED);
	swallow(RDMA_CM_EVENT_ESTABLISHED);
	must(rdma_destroy_id(listen));
}

static void reap(pid_t pid)
{
	int status;

	must(waitpid(pid, &status, 0) != pid);
	if (status)
		exit(1);
}

int main(int argc, char **argv)
{
	int tell[2], go[2];
	uint32_t qpn;
	pid_t owner;

	if (argc == 3) {
		become(OTHER);
		steal(argv[1], strtoul(argv[2], NULL, 0));
		return 0;
	}
	if (argc != 2)
		die("what address?");
	must(pipe(tell));
	must(pipe(go));
	owner = fork();
	if (!owner) {
		become(OWNER);
		own(argv[1], tell[1], go[0]);
		return 0;
	}
	close(tell[1]);
	must(read(tell[0], &qpn, sizeof(qpn)) != sizeof(qpn));
	for (int i = 0; i < 2; i++) {
		pid_t thief = fork();

		if (!thief) {
			become(i ? OWNER : OTHER);
			steal(argv[1], qpn);
			return 0;
		}
		reap(thief);
	}
	must(write(go[1], "", 1) != 1);
	reap(owner);
	return 0;
}
