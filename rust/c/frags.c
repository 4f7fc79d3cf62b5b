// SPDX-License-Identifier: GPL-2.0
/*
 * Sends, with the socket locked, and the pages that TCP copies to.
 *
 * sock_sendmsg() and its kin lock the socket themselves, and may sleep.
 * tcp_sendmsg_locked() is exported, but its argument is built by inline functions. It
 * copies to a page fragment of the socket or of the task (sk_page_frag()); here it finds
 * one of the CPU in the socket for the time of the call.
 *
 * It breaks, without an error of the compiler, if TCP keeps a fragment across calls in
 * another place than sk->sk_frag, or refers to pages sent by reference without their
 * mark elsewhere than in a probe of the path's MTU.
 */

#include <linux/bvec.h>
#include <linux/percpu.h>
#include <net/tcp.h>

#include "rust_c.h"

/*
 * The pages that TCP copies to. It would keep 32 KiB for each socket, idle or not.
 * Softirq has its own: it may send in the middle of the send of a process on its
 * CPU, and in the middle of a swap, too. Hard interrupts never send. So no two
 * contexts swap the same pages while preemption is off.
 */
static DEFINE_PER_CPU(struct page_frag, frags[2]);

/* Has @sk take the pages of this CPU, or leave them. */
static void swap_frag(struct sock *sk)
{
	preempt_disable();
	swap(sk->sk_frag, *this_cpu_ptr(&frags[!!in_serving_softirq()]));
	preempt_enable();
}

static void drop_frag(struct page_frag *frag)
{
	if (frag->page)
		put_page(frag->page);
	frag->page = NULL;
}

/* Frees all these pages. No stream may send any more. */
void soft_drop_frags(void)
{
	int cpu, i;

	for_each_possible_cpu(cpu)
		for (i = 0; i < 2; i++)
			drop_frag(per_cpu_ptr(&frags[i], cpu));
}

/* A few bytes, which TCP copies. */
int soft_sk_send_bytes(struct sock *sk, void *data, size_t len, bool more)
{
	struct kvec vec = { .iov_base = data, .iov_len = len };
	struct msghdr msg = {
		.msg_flags = MSG_DONTWAIT | MSG_NOSIGNAL,
	};
	int rv;

	if (more)
		msg.msg_flags |= MSG_MORE;
	iov_iter_kvec(&msg.msg_iter, ITER_SOURCE, &vec, 1, len);
	swap_frag(sk);
	rv = tcp_sendmsg_locked(sk, &msg, len);
	swap_frag(sk);
	/* Another process has left some, or the send began on another CPU. */
	drop_frag(&sk->sk_frag);
	return rv;
}

/*
 * Whether what TCP gets by reference stays where it is until it is on the wire:
 * sk_route_caps has SG in any case, see sk_setup_caps(), and the device layer
 * copies for who cannot do it.
 */
bool soft_sk_can_share(const struct sock *sk)
{
	const netdev_features_t csum = NETIF_F_HW_CSUM | NETIF_F_IP_CSUM |
				       NETIF_F_IPV6_CSUM;
	const struct net_device *dev;
	struct dst_entry *dst;
	bool can = false;

	/* A probe of the path's MTU refers to the memory, and has no mark. */
	if (inet_csk(sk)->icsk_mtup.enabled ||
	    READ_ONCE(sock_net(sk)->ipv4.sysctl_tcp_mtu_probing))
		return false;
	rcu_read_lock();
	dst = rcu_dereference(sk->sk_dst_cache);
	if (dst) {
		dev = dst_dev_rcu(dst);
		can = (dev->features & NETIF_F_SG) && (dev->features & csum) &&
		      !(dev->flags & IFF_LOOPBACK);
	}
	rcu_read_unlock();
	return can;
}

/*
 * With @mark the pages belong to others who may change them once the peer has
 * them. Without, they are written once and never again, so TCP need not treat
 * them as shared.
 */
int soft_sk_send_pages(struct sock *sk, struct bio_vec *bvec,
		       unsigned int nr, size_t len, bool more,
		       struct ubuf_info *mark)
{
	struct msghdr msg = {
		.msg_flags = MSG_DONTWAIT | MSG_NOSIGNAL,
		.msg_ubuf = mark,
	};

	if (mark)
		msg.msg_flags |= MSG_ZEROCOPY;
	else
		msg.msg_flags |= MSG_SPLICE_PAGES | MSG_NO_SHARED_FRAGS;
	if (more)
		msg.msg_flags |= MSG_MORE;
	iov_iter_bvec(&msg.msg_iter, ITER_SOURCE, bvec, nr, len);
	return tcp_sendmsg_locked(sk, &msg, len);
}
