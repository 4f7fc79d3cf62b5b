// SPDX-License-Identifier: GPL-2.0
/*
 * Checks of connection management that rdmacm-utils lack: private data of every
 * length in both directions, reject with private data, peers that refuse, stay silent
 * or send garbage, ports in use, and how connections end.
 * Run as "cm-check server|client TEST ADDRESS".
 */
#include <arpa/inet.h>
#include <netdb.h>
#include <poll.h>
#include <stdbool.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "cm.h"

/* The core carries lengths of private data in eight bits; C siw fails beyond 248. */
static int lengths[] = { 0, 1, 3, 4, 56, 196, 247, 255 };
#define COUNT ((int)(sizeof(lengths) / sizeof(lengths[0])))

static bool c_siw;

static unsigned char pattern(int seed, int i)
{
	return seed * 31 + i * 7 + 1;
}

static const void *make(int seed, int len)
{
	static unsigned char data[256];

	for (int i = 0; i < len; i++)
		data[i] = pattern(seed, i);
	return data;
}

static void check(const struct rdma_conn_param *p, int seed, int len)
{
	const unsigned char *data = p->private_data;

	if (p->private_data_len != len)
		die("private data of %d bytes, not %d", p->private_data_len, len);
	for (int i = 0; i < len; i++)
		if (data[i] != pattern(seed, i))
			die("private data (length %d) differs at byte %d", len, i);
}

static void create_qp(struct rdma_cm_id *id)
{
	struct ibv_qp_init_attr attr = {
		.qp_type = IBV_QPT_RC,
		.cap = { .max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1 },
	};

	must(rdma_create_qp(id, NULL, &attr));
}

/* An identifier with a queue pair. */
static struct rdma_cm_id *client(const char *host)
{
	struct rdma_cm_id *id = resolved(host);

	create_qp(id);
	return id;
}

static void release(struct rdma_cm_id *id)
{
	rdma_destroy_qp(id);
	must(rdma_destroy_id(id));
}

static struct rdma_conn_param param(int seed, int len)
{
	return (struct rdma_conn_param){
		.private_data = make(seed, len), .private_data_len = len,
		.responder_resources = 1, .initiator_depth = 1,
	};
}

static struct rdma_cm_id *requested(int seed, int len)
{
	struct rdma_cm_event *event = expect(RDMA_CM_EVENT_CONNECT_REQUEST);
	struct rdma_cm_id *id = event->id;

	check(&event->param.conn, seed, len);
	must(rdma_ack_cm_event(event));
	return id;
}

static void private_server(const char *host)
{
	struct rdma_cm_id *id, *listen = listener(host);

	for (int i = 0; i < COUNT; i++) {
		/* The lengths of the two directions differ. */
		struct rdma_conn_param p = param(i + 100, lengths[COUNT - 1 - i]);

		id = requested(i, lengths[i]);
		create_qp(id);
		p.private_data = make(i + 100, p.private_data_len);
		must(rdma_accept(id, &p));
		swallow(RDMA_CM_EVENT_ESTABLISHED);
		swallow(RDMA_CM_EVENT_DISCONNECTED);
		rdma_disconnect(id);
		release(id);
	}
	for (int i = 0; i < COUNT; i++) {
		id = requested(i, lengths[i]);
		must(rdma_reject(id, make(i + 50, lengths[i]), lengths[i]));
		must(rdma_destroy_id(id));
	}
	must(rdma_destroy_id(listen));
}

static void private_client(const char *host)
{
	struct rdma_cm_event *event;
	struct rdma_conn_param p;
	struct rdma_cm_id *id;

	for (int i = 0; i < COUNT; i++) {
		id = client(host);
		p = param(i, lengths[i]);
		must(rdma_connect(id, &p));
		event = expect(RDMA_CM_EVENT_ESTABLISHED);
		check(&event->param.conn, i + 100, lengths[COUNT - 1 - i]);
		must(rdma_ack_cm_event(event));
		must(rdma_disconnect(id));
		swallow(RDMA_CM_EVENT_DISCONNECTED);
		release(id);
	}
	for (int i = 0; i < COUNT; i++) {
		id = client(host);
		p = param(i, lengths[i]);
		must(rdma_connect(id, &p));
		event = next(60);
		/* C siw can see the end of the connection before the reply, or lose its data. */
		if (c_siw && event && event->event == RDMA_CM_EVENT_CONNECT_ERROR) {
			must(rdma_ack_cm_event(event));
			release(id);
			continue;
		}
		if (!event || event->event != RDMA_CM_EVENT_REJECTED)
			die("%s instead of a reject", event ? rdma_event_str(event->event) : "nothing");
		/* C siw reports -ECONNRESET, on which kernel consumers drop the data. */
		if (event->status != -ECONNREFUSED && !c_siw)
			die("rejected with status %d", event->status);
		if (!c_siw)
			check(&event->param.conn, i + 50, lengths[i]);
		must(rdma_ack_cm_event(event));
		release(id);
	}
}

/* Connecting fails: nobody listens, or a plain TCP program does. */
static void connect_fails(const char *host)
{
	struct rdma_cm_id *id = client(host);
	struct rdma_conn_param p = param(1, 10);
	struct rdma_cm_event *event;
	time_t start = time(NULL);

	/* A refusal may come back at once or as an event. */
	if (rdma_connect(id, &p)) {
		printf("refused at once: %s\n", strerror(errno));
		if (!c_siw)
			die("connecting must not wait for the network");
	} else {
		event = next(60);
		if (!event)
			die("no event");
		printf("%s, status %d, after %ld s\n", rdma_event_str(event->event), event->status,
		       (long)(time(NULL) - start));
		if (event->event != RDMA_CM_EVENT_REJECTED && event->event != RDMA_CM_EVENT_UNREACHABLE &&
		    event->event != RDMA_CM_EVENT_CONNECT_ERROR)
			die("unexpected");
		must(rdma_ack_cm_event(event));
	}
	release(id);
}

static int tcp(const char *host, bool passive)
{
	struct addrinfo hints = { .ai_socktype = SOCK_STREAM }, *addr;
	int one = 1, fd;

	if (getaddrinfo(host, PORT, &hints, &addr))
		die("getaddrinfo");
	fd = socket(addr->ai_family, SOCK_STREAM, 0);
	if (passive) {
		must(setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one)));
		must(bind(fd, addr->ai_addr, addr->ai_addrlen));
		must(listen(fd, 8));
	} else {
		must(connect(fd, addr->ai_addr, addr->ai_addrlen));
	}
	freeaddrinfo(addr);
	return fd;
}

static const char garbage[] = "HTTP/1.1 400 Bad Request, and more than one MPA frame of it\r\n\r\n";

static bool closed(int fd, int seconds)
{
	struct pollfd p = { .fd = fd, .events = POLLIN };
	char buf[512];

	while (poll(&p, 1, seconds * 1000) > 0)
		if (recv(fd, buf, sizeof(buf), 0) <= 0)
			return true;
	return false;
}

/* A TCP peer that accepts connections: the first gets no answer, the second garbage. */
static void tcp_server(const char *host)
{
	int listen = tcp(host, true);

	for (int i = 0; i < 2; i++) {
		int fd = accept(listen, NULL, NULL);

		if (i == 1)
			must(write(fd, garbage, sizeof(garbage)) < 0);
		if (!closed(fd, 60))
			die("connection %d still open", i);
		close(fd);
	}
}

static void tcp_client(const char *host)
{
	connect_fails(host);
	connect_fails(host);
}

/* TCP clients of an RDMA listener: none may lead to a connection request. */
static void intruder_server(const char *host)
{
	struct rdma_cm_id *id, *listen = listener(host);
	struct rdma_conn_param p = param(2, 20);

	id = requested(1, 10);
	create_qp(id);
	must(rdma_accept(id, &p));
	swallow(RDMA_CM_EVENT_ESTABLISHED);
	swallow(RDMA_CM_EVENT_DISCONNECTED);
	release(id);
	must(rdma_destroy_id(listen));
}

static void intruder_client(const char *host)
{
	/* Key, flags (CRC), revision 1, and a length of 0xffff. */
	static const char too_long[20] = "MPA ID Req Frame\x40\x01\xff\xff";
	static const char short_part[] = "MPA ID Re";
	struct rdma_conn_param p = param(1, 10);
	struct rdma_cm_id *id;
	int fd[4];

	for (int i = 0; i < 4; i++)
		fd[i] = tcp(host, false);
	must(write(fd[1], garbage, sizeof(garbage)) < 0);
	must(write(fd[2], too_long, sizeof(too_long)) < 0);
	must(write(fd[3], short_part, sizeof(short_part) - 1) < 0);
	for (int i = 0; i < 4; i++) {
		if (!closed(fd[i], 60))
			die("connection %d still open", i);
		close(fd[i]);
	}
	/* The listener still works. */
	id = client(host);
	must(rdma_connect(id, &p));
	swallow(RDMA_CM_EVENT_ESTABLISHED);
	must(rdma_disconnect(id));
	swallow(RDMA_CM_EVENT_DISCONNECTED);
	release(id);
}

/* The peer's process ends without disconnecting. */
static void death_server(const char *host)
{
	struct rdma_cm_id *id;
	struct rdma_conn_param p = param(2, 0);

	listener(host);
	id = requested(1, 0);
	create_qp(id);
	must(rdma_accept(id, &p));
	swallow(RDMA_CM_EVENT_ESTABLISHED);
	_exit(0);
}

static void death_client(const char *host)
{
	struct rdma_cm_id *id = client(host);
	struct rdma_conn_param p = param(1, 0);

	must(rdma_connect(id, &p));
	swallow(RDMA_CM_EVENT_ESTABLISHED);
	swallow(RDMA_CM_EVENT_DISCONNECTED);
	release(id);
}

/*
 * An accepted id is accepted and rejected once more, at once: that must fail, and
 * neither stop iw_cm (BUG_ON) nor lose a reference to the QP (no end of release()).
 */
#define ROUNDS 20

static void twice_server(const char *host)
{
	struct rdma_cm_id *id, *listen = listener(host);

	for (int i = 0; i < ROUNDS; i++) {
		struct rdma_conn_param p = param(2, 0);
		struct ibv_qp *qp;

		id = requested(1, 0);
		create_qp(id);
		qp = id->qp;
		p.qp_num = qp->qp_num;
		must(rdma_accept(id, &p));
		/* Without the QP the library asks the kernel right away. */
		id->qp = NULL;
		if (!(i % 2) && !rdma_accept(id, &p))
			die("accepted twice");
		if (!rdma_reject(id, NULL, 0))
			die("rejected what was accepted");
		id->qp = qp;
		swallow(RDMA_CM_EVENT_ESTABLISHED);
		swallow(RDMA_CM_EVENT_DISCONNECTED);
		release(id);
	}
	must(rdma_destroy_id(listen));
}

static void twice_client(const char *host)
{
	for (int i = 0; i < ROUNDS; i++) {
		struct rdma_cm_id *id = client(host);
		struct rdma_conn_param p = param(1, 0);

		must(rdma_connect(id, &p));
		swallow(RDMA_CM_EVENT_ESTABLISHED);
		must(rdma_disconnect(id));
		swallow(RDMA_CM_EVENT_DISCONNECTED);
		release(id);
	}
}

/* A TCP socket of this program that holds the port; -1 if it is taken. */
static int held(struct sockaddr_storage addr, in_port_t port)
{
	int fd = socket(addr.ss_family, SOCK_STREAM, 0);

	/* The port is at the same place in both families. */
	((struct sockaddr_in *)&addr)->sin_port = port;
	if (!bind(fd, (struct sockaddr *)&addr, sizeof(addr)))
		return fd;
	must(errno != EADDRINUSE);
	close(fd);
	return -1;
}

/* The local port of a connection is another program's in TCP. */
static void port_server(const char *host)
{
	struct rdma_cm_id *id, *listen = listener(host);
	struct rdma_conn_param p = param(2, 0);

	id = requested(1, 0);
	create_qp(id);
	must(rdma_accept(id, &p));
	swallow(RDMA_CM_EVENT_ESTABLISHED);
	swallow(RDMA_CM_EVENT_DISCONNECTED);
	release(id);
	must(rdma_destroy_id(listen));
}

static void port_client(const char *host)
{
	struct rdma_conn_param p = param(1, 0);
	struct rdma_addrinfo *addr = address(host, false);
	struct sockaddr_storage local;
	struct rdma_cm_id *id;
	int fd;

	/*
	 * A port that rdma_cm has chosen: the connection gets another one. It may have chosen
	 * one that an earlier connection has in TIME_WAIT.
	 */
	while (true) {
		id = client(host);
		local = id->route.addr.src_storage;
		fd = held(local, rdma_get_src_port(id));
		if (fd >= 0)
			break;
		release(id);
	}
	must(rdma_connect(id, &p));
	swallow(RDMA_CM_EVENT_ESTABLISHED);
	must(rdma_disconnect(id));
	swallow(RDMA_CM_EVENT_DISCONNECTED);
	release(id);
	close(fd);

	/* A port that the program has chosen. */
	fd = held(local, htons(7500));
	if (fd < 0)
		die("port 7500 is taken");
	((struct sockaddr_in *)&local)->sin_port = htons(7500);
	must(rdma_create_id(channel, &id, NULL, RDMA_PS_TCP));
	must(rdma_bind_addr(id, (struct sockaddr *)&local));
	must(rdma_resolve_addr(id, NULL, addr->ai_dst_addr, 10000));
	swallow(RDMA_CM_EVENT_ADDR_RESOLVED);
	must(rdma_resolve_route(id, 10000));
	swallow(RDMA_CM_EVENT_ROUTE_RESOLVED);
	create_qp(id);
	if (!rdma_connect(id, &p) || errno != EADDRINUSE)
		die("connecting from a port in use: %s", strerror(errno));
	release(id);
	close(fd);
	rdma_freeaddrinfo(addr);
}

/* Accepts connections, which stay until the program is killed. */
static void lasting_server(const char *host)
{
	struct rdma_conn_param p = param(2, 0);

	listener(host);
	for (;;) {
		struct rdma_cm_event *event;

		must(rdma_get_cm_event(channel, &event));
		if (event->event == RDMA_CM_EVENT_CONNECT_REQUEST) {
			create_qp(event->id);
			must(rdma_accept(event->id, &p));
		}
		must(rdma_ack_cm_event(event));
	}
}

/* Writes without payload, as many as are executed: they need no memory of the peer. */
static void write_on(struct rdma_cm_id *id)
{
	struct ibv_send_wr wr = { .opcode = IBV_WR_RDMA_WRITE, .send_flags = IBV_SEND_SIGNALED }, *bad;
	static int room = 4;
	struct ibv_wc wc;

	while (ibv_poll_cq(id->send_cq, 1, &wc) > 0)
		room++;
	for (; room && !ibv_post_send(id->qp, &wr, &bad); room--)
		;
}

/* Prints how the connection ends. If BUSY, data is under way all the time. */
static void lasting_client(const char *host, bool busy)
{
	struct rdma_cm_id *id = client(host);
	struct rdma_conn_param p = param(1, 0);
	struct pollfd fd = { .fd = channel->fd, .events = POLLIN };
	struct rdma_cm_event *event;

	must(rdma_connect(id, &p));
	swallow(RDMA_CM_EVENT_ESTABLISHED);
	printf("up\n");
	while (poll(&fd, 1, busy ? 10 : -1) <= 0)
		write_on(id);
	event = expect(RDMA_CM_EVENT_DISCONNECTED);
	printf("disconnected: %d\n", event->status);
	must(rdma_ack_cm_event(event));
	release(id);
}

static void idle_client(const char *host)
{
	lasting_client(host, false);
}

static void busy_client(const char *host)
{
	lasting_client(host, true);
}

static void nothing(const char *host)
{
	(void)host;
}

static const struct {
	const char *name;
	void (*server)(const char *host);
	void (*client)(const char *host);
} tests[] = {
	{ "private", private_server, private_client },
	{ "refused", nothing, connect_fails },
	{ "tcp", tcp_server, tcp_client },
	{ "intruder", intruder_server, intruder_client },
	{ "death", death_server, death_client },
	{ "twice", twice_server, twice_client },
	{ "port", port_server, port_client },
	{ "idle", lasting_server, idle_client },
	{ "busy", lasting_server, busy_client },
};

int main(int argc, char **argv)
{
	const char *driver = getenv("DRIVER"), *peer = getenv("PEER_DRIVER");

	if (argc != 4)
		die("usage: cm-check server|client TEST ADDRESS");
	setvbuf(stdout, NULL, _IOLBF, 0);
	c_siw = driver && !strcmp(driver, "c-siw");
	if (c_siw)
		patience = 20;
	if (c_siw || (peer && !strcmp(peer, "c-siw")))
		lengths[COUNT - 1] = 248;
	channel = rdma_create_event_channel();
	for (size_t i = 0; i < sizeof(tests) / sizeof(tests[0]); i++)
		if (!strcmp(tests[i].name, argv[2])) {
			(strcmp(argv[1], "server") ? tests[i].client : tests[i].server)(argv[3]);
			return 0;
		}
	die("no test %s", argv[2]);
}
