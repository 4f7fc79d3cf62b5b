/* SPDX-License-Identifier: GPL-2.0 */
/* Calls of rdma_cm that test programs share, and the events that they expect. */
#ifndef CM_H
#define CM_H

#include <poll.h>
#include <stdbool.h>

#include <rdma/rdma_cma.h>

#include "must.h"

#define PORT "7471"

static struct rdma_event_channel *channel;
/* How long an event may take, in seconds. */
static int patience = 60;

/* The next event, or NULL if none comes in that time. */
static struct rdma_cm_event *next(int seconds)
{
	struct pollfd fd = { .fd = channel->fd, .events = POLLIN };
	struct rdma_cm_event *event;

	if (poll(&fd, 1, seconds * 1000) <= 0)
		return NULL;
	must(rdma_get_cm_event(channel, &event));
	return event;
}

static struct rdma_cm_event *expect(enum rdma_cm_event_type type)
{
	struct rdma_cm_event *event = next(patience);

	if (!event)
		die("no event, %s expected", rdma_event_str(type));
	if (event->event != type)
		die("event %s (status %d), %s expected", rdma_event_str(event->event),
		    event->status, rdma_event_str(type));
	return event;
}

static void swallow(enum rdma_cm_event_type type)
{
	must(rdma_ack_cm_event(expect(type)));
}

static struct rdma_addrinfo *address(const char *host, bool passive)
{
	struct rdma_addrinfo hints = { .ai_port_space = RDMA_PS_TCP }, *res;

	if (passive)
		hints.ai_flags = RAI_PASSIVE;
	must(rdma_getaddrinfo(host, PORT, &hints, &res));
	return res;
}

static struct rdma_cm_id *listener(const char *host)
{
	struct rdma_addrinfo *addr = address(host, true);
	struct rdma_cm_id *id;

	must(rdma_create_id(channel, &id, NULL, RDMA_PS_TCP));
	must(rdma_bind_addr(id, addr->ai_src_addr));
	must(rdma_listen(id, 8));
	rdma_freeaddrinfo(addr);
	return id;
}

/* An identifier with the route to HOST resolved, without a queue pair. */
static struct rdma_cm_id *resolved(const char *host)
{
	struct rdma_addrinfo *addr = address(host, false);
	struct rdma_cm_id *id;

	must(rdma_create_id(channel, &id, NULL, RDMA_PS_TCP));
	must(rdma_resolve_addr(id, NULL, addr->ai_dst_addr, 10000));
	swallow(RDMA_CM_EVENT_ADDR_RESOLVED);
	must(rdma_resolve_route(id, 10000));
	swallow(RDMA_CM_EVENT_ROUTE_RESOLVED);
	rdma_freeaddrinfo(addr);
	return id;
}

#endif
