// SPDX-License-Identifier: GPL-2.0
/*
 * TCP sockets of a protocol in the kernel: their callbacks, the lock as softirq takes
 * it, and what follows for the window of the receiver.
 *
 * The exported functions for sockets of the kernel sleep (kernel_sendmsg()). None sets
 * the callbacks of a socket, or takes its lock without sleeping: net/sunrpc,
 * drivers/nvme and net/smc do that by fields and inline functions, as this file does.
 *
 * It breaks, without an error of the compiler, with a change of the order of the
 * socket's lock and sk_callback_lock, of the flags of sk_user_data, and of when TCP
 * announces a window (tcp_cleanup_rbuf()): the peer would send less than it could.
 */

#include <linux/inetdevice.h>
#include <net/addrconf.h>
#include <net/ip.h>
#include <net/ip_fib.h>
#include <net/ipv6.h>
#include <net/l3mdev.h>
#include <net/tcp.h>

#include "rust_c.h"

/*
 * The stock classes tell sockets by family only: without classes of our own,
 * lockdep would mix ours with those of a ULP that is run over us. They are
 * subclasses of the stock ones, at a number that nobody nests to: with keys of
 * ours, as in siw_reclassify_socket() of the C driver, each socket would pin the
 * module (sk_owner), also those that TCP keeps after we closed them.
 */
static void reclassify(struct sock *sk)
{
	lockdep_set_subclass(&sk->sk_lock.slock, 4);
	lockdep_set_subclass(&sk->sk_lock, 4);
}

int soft_sock_create(struct net *net, int family, struct socket **res)
{
	int rv;

	rv = sock_create_kern(net, family, SOCK_STREAM, IPPROTO_TCP, res);
	if (rv)
		return rv;
	/* The caller's reference of @net is its own: the socket takes one. */
	sk_net_refcnt_upgrade((*res)->sk);
	reclassify((*res)->sk);
	return 0;
}

/* Replaces the binding of @sk to a device by one to its VRF, or by none. */
int soft_sk_bind_to_vrf(struct sock *sk)
{
	int ifindex = READ_ONCE(sk->sk_bound_dev_if);

	ifindex = l3mdev_master_ifindex_by_index(sock_net(sk), ifindex);
	return sock_bindtoindex(sk, ifindex, true);
}

/*
 * True if this host has @addr in the namespace and the VRF of @sk, on any device.
 * As in __inet_bind() and __inet6_bind().
 */
bool soft_sk_has_addr(const struct sock *sk,
		      const struct __kernel_sockaddr_storage *addr)
{
	const struct sockaddr_in6 *sin6 = (const struct sockaddr_in6 *)addr;
	const struct sockaddr_in *sin = (const struct sockaddr_in *)addr;
	int ifindex = READ_ONCE(sk->sk_bound_dev_if);
	struct net *net = sock_net(sk);
	struct net_device *dev;
	bool has;

	rcu_read_lock();
	dev = dev_get_by_index_rcu(net, ifindex);
	if (ifindex && !dev)
		has = false; /* The device is gone. */
	else if (addr->ss_family == AF_INET)
		has = inet_addr_type_dev_table(net, dev,
					       sin->sin_addr.s_addr) ==
		      RTN_LOCAL;
	else
		has = ipv6_chk_addr(net, &sin6->sin6_addr, dev, 0);
	rcu_read_unlock();
	return has;
}

/*
 * For a socket nobody else works on yet. Sends happen in atomic context, and
 * never on behalf of the task whose page fragment TCP would use otherwise.
 */
void soft_sk_prepare(struct sock *sk, struct soft_sk_callbacks *stock)
{
	tcp_sock_set_nodelay(sk);
	lock_sock(sk);
	sk->sk_allocation = GFP_ATOMIC | __GFP_NOWARN;
	sk->sk_use_task_frag = false;
	write_lock_bh(&sk->sk_callback_lock);
	stock->state_change = sk->sk_state_change;
	stock->data_ready = sk->sk_data_ready;
	stock->write_space = sk->sk_write_space;
	stock->error_report = sk->sk_error_report;
	write_unlock_bh(&sk->sk_callback_lock);
	release_sock(sk);
}

/*
 * Exchanges callbacks and owner, and hands out the old owner. Both locks: a
 * stream's callbacks run in the owner of the socket lock or under its spinlock
 * with no owner about, a listener's data_ready under sk_callback_lock.
 */
int soft_sk_swap(struct sock *sk, const struct soft_sk_callbacks *cb,
		 void *owner, void **old)
{
	uintptr_t data;
	int rv = 0;

	*old = NULL;
	lock_sock(sk);
	write_lock_bh(&sk->sk_callback_lock);
	data = (uintptr_t)sk->sk_user_data;
	/* Ours has the NOCOPY tag only, so that no child inherits it. */
	if (data && (data & ~SK_USER_DATA_PTRMASK) != SK_USER_DATA_NOCOPY) {
		rv = -EBUSY;
		goto out;
	}
	*old = (void *)(data & SK_USER_DATA_PTRMASK);
	if (owner)
		__rcu_assign_sk_user_data_with_flags(sk, owner,
						     SK_USER_DATA_NOCOPY);
	else
		rcu_assign_sk_user_data(sk, NULL);
	sk->sk_state_change = cb->state_change;
	sk->sk_data_ready = cb->data_ready;
	sk->sk_write_space = cb->write_space;
	sk->sk_error_report = cb->error_report;
out:
	write_unlock_bh(&sk->sk_callback_lock);
	release_sock(sk);
	return rv;
}

void *soft_sk_owner(const struct sock *sk)
{
	uintptr_t data = (uintptr_t)READ_ONCE(sk->sk_user_data);

	if ((data & ~SK_USER_DATA_PTRMASK) != SK_USER_DATA_NOCOPY)
		return NULL;
	return (void *)(data & SK_USER_DATA_PTRMASK);
}

int soft_sock_recv(struct socket *sock, void *buf, size_t len, int flags)
{
	struct kvec vec = { .iov_base = buf, .iov_len = len };
	struct msghdr msg = {};

	return kernel_recvmsg(sock, &msg, &vec, 1, len, flags | MSG_DONTWAIT);
}

int soft_sock_set_tos(struct socket *sock, u8 tos)
{
	int val = tos;

	if (sock->sk->sk_family == AF_INET) {
		ip_sock_set_tos(sock->sk, val);
		return 0;
	}
	return READ_ONCE(sock->ops)->setsockopt(sock, SOL_IPV6, IPV6_TCLASS,
						KERNEL_SOCKPTR(&val),
						sizeof(val));
}

void soft_sk_set_nospace(struct sock *sk)
{
	struct socket *sock = sk->sk_socket;

	if (sock)
		set_bit(SOCK_NOSPACE, &sock->flags);
	/* Pairs with the one in tcp_check_space(). */
	smp_mb();
}

void soft_sk_clear_nospace(struct sock *sk)
{
	struct socket *sock = sk->sk_socket;

	if (sock)
		clear_bit(SOCK_NOSPACE, &sock->flags);
}

/*
 * Whether the peer may send less than half of what there is room for. Also without
 * the lock.
 */
static bool window_lags(const struct sock *sk)
{
	const struct tcp_sock *tp = tcp_sk(sk);
	u32 now = tcp_receive_window(tp);
	int room;

	if (now >= tp->rcv_ssthresh / 2)
		return false;
	if (inet_sk_state_load(sk) != TCP_ESTABLISHED)
		return false;
	room = min_t(int, tcp_space(sk), tp->rcv_ssthresh);
	if (room <= 0)
		return false;
	/* As __tcp_select_window(): with less room the window is zero. */
	room = round_down(room, 1 << tp->rx_opt.rcv_wscale);
	return room / 2 > now && room >= inet_csk(sk)->icsk_ack.rcv_mss &&
	       room >= tcp_full_space(sk) >> 4;
}

/*
 * The socket as softirq has it: spinlock held, no owner. Never waits, so that a
 * poster in any context may try it.
 */
bool soft_trylock_sock_bh(struct sock *sk)
{
	if (in_hardirq() || in_nmi() || irqs_disabled())
		return false;
	local_bh_disable();
	if (spin_trylock(&sk->sk_lock.slock)) {
		if (!sock_owned_by_user(sk))
			return true;
		spin_unlock(&sk->sk_lock.slock);
	}
	local_bh_enable();
	return false;
}

void soft_unlock_sock_bh(struct sock *sk)
{
	spin_unlock(&sk->sk_lock.slock);
	local_bh_enable();
}

/*
 * What has come since the socket was locked is processed here, and read at once. All
 * of it counts as backlog until the last of it is processed, so the acknowledgements
 * announce too small a window, or none. TCP corrects that at the next read only, and
 * there is nothing left to read.
 */
void soft_unlock_sock(struct sock *sk)
{
	release_sock(sk);
	if (likely(!window_lags(sk)))
		return;
	/* Not as a process: a peer on this host would answer into the backlog. */
	local_bh_disable();
	spin_lock(&sk->sk_lock.slock);
	/* Or another process unlocks it later. */
	if (!sock_owned_by_user(sk) && window_lags(sk))
		__tcp_send_ack(sk, tcp_sk(sk)->rcv_nxt, 0);
	soft_unlock_sock_bh(sk);
}

void soft_sk_ack_now(struct sock *sk)
{
	if (inet_csk_ack_scheduled(sk))
		__tcp_send_ack(sk, tcp_sk(sk)->rcv_nxt, 0);
}

/* As tcp_cleanup_rbuf() does for what is read: every second segment. */
void soft_sk_ack_unread(struct sock *sk)
{
	if (tcp_sk(sk)->rcv_nxt - tcp_sk(sk)->rcv_wup >
	    inet_csk(sk)->icsk_ack.rcv_mss)
		soft_sk_ack_now(sk);
}

/*
 * MPA has no use for urgent data, and tcp_read_sock() never gets over it: the
 * stream would stand still for ever. It is marked before its data is queued.
 */
int soft_sk_read(struct sock *sk, void *arg, sk_read_actor_t actor)
{
	read_descriptor_t desc = { .arg.data = arg, .count = 1 };

	if (unlikely(READ_ONCE(tcp_sk(sk)->urg_data)))
		return -EPROTO;
	return tcp_read_sock(sk, &desc, actor);
}

/* tcp_done() sets this, too; soft_sk_freeze() does not. */
bool soft_rx_over(const struct sock *sk)
{
	return sk->sk_shutdown & RCV_SHUTDOWN;
}

/* Whether no more can come before what is here has been read. */
bool soft_rx_stuck(const struct sock *sk)
{
	return sk->sk_state == TCP_CLOSE || tcp_epollin_ready(sk, INT_MAX) ||
	       inet_csk(sk)->icsk_ack.pending & ICSK_ACK_NOMEM;
}

void soft_sk_path(const struct sock *sk, struct soft_sk_path *path)
{
	const struct inet_connection_sock *icsk = inet_csk(sk);
	const struct net_device *dev;
	struct dst_entry *dst;

	path->packets_out = READ_ONCE(tcp_sk(sk)->packets_out);
	path->retransmits = READ_ONCE(icsk->icsk_retransmits);
	path->probes_out = READ_ONCE(icsk->icsk_probes_out);
	path->down = false;
	rcu_read_lock();
	dst = rcu_dereference(sk->sk_dst_cache);
	if (dst) {
		dev = dst_dev_rcu(dst);
		path->down = dev == blackhole_netdev || !netif_running(dev) ||
			     !netif_carrier_ok(dev);
	}
	rcu_read_unlock();
}
