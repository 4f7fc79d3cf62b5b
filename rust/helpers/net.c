// SPDX-License-Identifier: GPL-2.0
/*
 * C of networking, locks and tasks that Rust cannot call by itself: inline
 * functions, macros, fields of bitfield-ridden types.
 * Part of rust/helpers.c.
 */

#include <linux/inetdevice.h>
#include <net/addrconf.h>
#include <net/ip.h>
#include <net/ip_fib.h>
#include <net/ipv6.h>
#include <net/l3mdev.h>
#include <net/net_namespace.h>
#include <net/tcp.h>
#include <trace/events/sock.h>

#include "kapi_helpers_net.h"

/* Locks */

unsigned long kapi_spin_lock_irqsave(spinlock_t *lock)
{
	unsigned long flags;

	spin_lock_irqsave(lock, flags);
	return flags;
}

void kapi_spin_unlock_irqrestore(spinlock_t *lock, unsigned long flags)
{
	spin_unlock_irqrestore(lock, flags);
}

bool kapi_spin_trylock_irqsave(spinlock_t *lock, unsigned long *flags)
{
	unsigned long saved;

	if (!spin_trylock_irqsave(lock, saved))
		return false;
	*flags = saved;
	return true;
}

/* Context */

u32 kapi_cpu(void)
{
	return raw_smp_processor_id();
}

bool kapi_in_softirq(void)
{
	return softirq_count();
}

bool kapi_cpu_online(u32 cpu)
{
	return cpu < nr_cpu_ids && cpu_online(cpu);
}

void kapi_cond_resched(void)
{
	cond_resched_tasks_rcu_qs();
}

unsigned long kapi_jiffies(void)
{
	return jiffies;
}

/* Waits until every task has given up the CPU by itself. */
void kapi_synchronize_tasks(void)
{
	synchronize_rcu_tasks();
}

/* Work queues */

/* @max_active: how many items run at a time; 0: as many as is usual. */
struct workqueue_struct *kapi_alloc_workqueue(const char *name,
					      unsigned int flags,
					      int max_active)
{
	return alloc_workqueue("%s", flags, max_active, name);
}

void kapi_flush_workqueue(struct workqueue_struct *wq)
{
	flush_workqueue(wq);
}

/* Pages */

struct page *kapi_alloc_tx_pages(unsigned int order)
{
	/* Zeroed, as Debian's kernel does anyhow: what is in there goes to the peer. */
	gfp_t gfp = GFP_ATOMIC | __GFP_NOWARN | __GFP_ZERO;

	if (order)
		gfp |= __GFP_COMP | __GFP_NORETRY;
	return alloc_pages(gfp, order);
}

void *kapi_page_address(struct page *page)
{
	return page_address(page);
}

void kapi_put_page(struct page *page)
{
	put_page(page);
}

phys_addr_t kapi_page_to_phys(struct page *page)
{
	return page_to_phys(page);
}

struct page *kapi_phys_to_page(phys_addr_t addr)
{
	return pfn_to_page(PHYS_PFN(addr));
}

struct page *kapi_get_page_of(const void *addr)
{
	struct page *page = virt_to_page(addr);

	get_page(page);
	return page;
}

int kapi_page_refs(const struct page *page)
{
	/* Whoever let go of it did so before what the caller does next. */
	return atomic_read_acquire(&page_folio(page)->_refcount);
}

/* Marks of buffers that are sent by reference */

u32 kapi_ubuf_refs(const struct ubuf_info *ubuf)
{
	/* Whoever let go of it did so before what the caller does next. */
	return atomic_read_acquire(&ubuf->refcnt.refs);
}

/* Whether it was the last one. */
bool kapi_ubuf_put(struct ubuf_info *ubuf)
{
	return refcount_dec_and_test(&ubuf->refcnt);
}

/* Network devices and namespaces */

struct net *kapi_get_net(struct net *net)
{
	return get_net(net);
}

void kapi_put_net(struct net *net)
{
	put_net(net);
}

void kapi_dev_hold(struct net_device *dev)
{
	dev_hold(dev);
}

void kapi_dev_put(struct net_device *dev)
{
	dev_put(dev);
}

void kapi_dev_name(const struct net_device *dev, char name[IFNAMSIZ])
{
	strscpy_pad(name, dev->name, IFNAMSIZ);
}

u32 kapi_dev_hw_addr(const struct net_device *dev, u8 addr[MAX_ADDR_LEN])
{
	u32 len = min_t(u32, dev->addr_len, MAX_ADDR_LEN);

	memcpy(addr, dev->dev_addr, len);
	return len;
}

u32 kapi_dev_ifindex(const struct net_device *dev)
{
	return READ_ONCE(dev->ifindex);
}

/* Index of the VRF of @dev, or of @dev itself if it is a VRF; 0 if none. */
u32 kapi_dev_vrf(struct net_device *dev)
{
	return l3mdev_master_ifindex(dev);
}

u32 kapi_dev_mtu(const struct net_device *dev)
{
	return READ_ONCE(dev->mtu);
}

u32 kapi_dev_max_mtu(const struct net_device *dev)
{
	return READ_ONCE(dev->max_mtu);
}

bool kapi_dev_is_up(const struct net_device *dev)
{
	return READ_ONCE(dev->flags) & IFF_UP;
}

u16 kapi_dev_type(const struct net_device *dev)
{
	return dev->type;
}

struct net *kapi_dev_net(struct net_device *dev)
{
	struct net *net;

	rcu_read_lock();
	net = maybe_get_net(dev_net_rcu(dev));
	rcu_read_unlock();
	return net;
}

static void siw_set_v4(struct __kernel_sockaddr_storage *out, __be32 addr)
{
	struct sockaddr_in *sin = (struct sockaddr_in *)out;

	memset(out, 0, sizeof(*out));
	sin->sin_family = AF_INET;
	sin->sin_addr.s_addr = addr;
}

static void siw_set_v6(struct __kernel_sockaddr_storage *out,
		       const struct in6_addr *addr, const struct net_device *dev)
{
	struct sockaddr_in6 *sin6 = (struct sockaddr_in6 *)out;

	memset(out, 0, sizeof(*out));
	sin6->sin6_family = AF_INET6;
	sin6->sin6_addr = *addr;
	if (ipv6_addr_type(addr) & IPV6_ADDR_LINKLOCAL)
		sin6->sin6_scope_id = dev->ifindex;
}

/*
 * Appends the addresses of @dev to the @n that there are, of which at most @max are
 * written; returns how many there are then. With @global only those that other
 * hosts can use.
 */
static u32 siw_add_addrs(struct net_device *dev, bool global,
			 struct __kernel_sockaddr_storage *out, u32 max, u32 n)
{
	const struct in_ifaddr *ifa;
	struct inet6_ifaddr *ifp;
	struct inet6_dev *idev;
	struct in_device *in_dev;

	in_dev = __in_dev_get_rcu(dev);
	if (in_dev) {
		in_dev_for_each_ifa_rcu(ifa, in_dev) {
			if (global && ifa->ifa_scope != RT_SCOPE_UNIVERSE)
				continue;
			if (n < max)
				siw_set_v4(&out[n], ifa->ifa_local);
			n++;
		}
	}
	idev = __in6_dev_get(dev);
	if (idev) {
		read_lock_bh(&idev->lock);
		list_for_each_entry(ifp, &idev->addr_list, if_list) {
			if (ifp->flags & (IFA_F_TENTATIVE | IFA_F_DADFAILED))
				continue;
			if (global && ifp->scope)
				continue;
			if (n < max)
				siw_set_v6(&out[n], &ifp->addr, dev);
			n++;
		}
		read_unlock_bh(&idev->lock);
	}
	return n;
}

/* The device's addresses, at most @max of them; returns how many there are. */
u32 kapi_dev_addrs(struct net_device *dev,
		   struct __kernel_sockaddr_storage *out, u32 max)
{
	u32 n;

	rcu_read_lock();
	n = siw_add_addrs(dev, false, out, max, 0);
	rcu_read_unlock();
	return n;
}

/*
 * The same, for the addresses of a namespace that other hosts can use, of the VRF
 * with the index @vrf, or outside of VRFs. @index gets the index of the device of
 * each.
 */
u32 kapi_net_addrs(struct net *net, u32 vrf,
		   struct __kernel_sockaddr_storage *out, u32 *index, u32 max)
{
	struct net_device *dev;
	u32 i, n = 0;

	rcu_read_lock();
	for_each_netdev_rcu(net, dev) {
		if (dev->flags & IFF_LOOPBACK ||
		    l3mdev_master_ifindex_rcu(dev) != vrf)
			continue;
		i = n;
		n = siw_add_addrs(dev, true, out, max, n);
		for (; i < min(n, max); i++)
			index[i] = dev->ifindex;
	}
	rcu_read_unlock();
	return n;
}

struct net_device *kapi_notifier_dev(void *info)
{
	return netdev_notifier_info_to_dev(info);
}

struct net_device *kapi_inetaddr(void *ifa,
				 struct __kernel_sockaddr_storage *out)
{
	const struct in_ifaddr *in = ifa;

	siw_set_v4(out, in->ifa_local);
	return in->ifa_dev->dev;
}

struct net_device *kapi_inet6addr(void *ifa,
				  struct __kernel_sockaddr_storage *out)
{
	const struct inet6_ifaddr *in6 = ifa;

	siw_set_v6(out, &in6->addr, in6->idev->dev);
	return in6->idev->dev;
}

/* Sockets: creation and the calls that take the socket lock themselves */

/*
 * The stock classes tell sockets by family only: without classes of our own,
 * lockdep would mix ours with those of a ULP that is run over us. They are
 * subclasses of the stock ones, at a number that nobody nests to: with keys of
 * ours, as in siw_reclassify_socket() of the C driver, each socket would pin the
 * module (sk_owner), also those that TCP keeps after we closed them.
 */
static void siw_reclassify(struct sock *sk)
{
	lockdep_set_subclass(&sk->sk_lock.slock, 4);
	lockdep_set_subclass(&sk->sk_lock, 4);
}

int kapi_sock_create(struct net *net, int family, struct socket **res)
{
	int rv;

	rv = sock_create_kern(net, family, SOCK_STREAM, IPPROTO_TCP, res);
	if (rv)
		return rv;
	/* The caller's reference of @net is its own: the socket takes one. */
	sk_net_refcnt_upgrade((*res)->sk);
	siw_reclassify((*res)->sk);
	return 0;
}

/* Replaces the binding of @sk to a device by one to its VRF, or by none. */
int kapi_sk_bind_to_vrf(struct sock *sk)
{
	int ifindex = READ_ONCE(sk->sk_bound_dev_if);

	ifindex = l3mdev_master_ifindex_by_index(sock_net(sk), ifindex);
	return sock_bindtoindex(sk, ifindex, true);
}

/*
 * True if this host has @addr in the namespace and the VRF of @sk, on any device.
 * As in __inet_bind() and __inet6_bind().
 */
bool kapi_sk_has_addr(const struct sock *sk,
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
void kapi_sk_prepare(struct sock *sk, struct kapi_sk_callbacks *stock)
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
int kapi_sk_swap(struct sock *sk, const struct kapi_sk_callbacks *cb,
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

int kapi_sock_recv(struct socket *sock, void *buf, size_t len, int flags)
{
	struct kvec vec = { .iov_base = buf, .iov_len = len };
	struct msghdr msg = {};

	return kernel_recvmsg(sock, &msg, &vec, 1, len, flags | MSG_DONTWAIT);
}

int kapi_sock_set_tos(struct socket *sock, u8 tos)
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

int kapi_sock_set_v6only(struct sock *sk)
{
	return ip6_sock_set_v6only(sk);
}

int kapi_sk_take_error(struct sock *sk)
{
	return sock_error(sk);
}

/* Sockets: callbacks */

void *kapi_sk_owner(const struct sock *sk)
{
	uintptr_t data = (uintptr_t)READ_ONCE(sk->sk_user_data);

	if ((data & ~SK_USER_DATA_PTRMASK) != SK_USER_DATA_NOCOPY)
		return NULL;
	return (void *)(data & SK_USER_DATA_PTRMASK);
}

void kapi_sk_callback_lock(struct sock *sk)
{
	read_lock_bh(&sk->sk_callback_lock);
}

void kapi_sk_callback_unlock(struct sock *sk)
{
	read_unlock_bh(&sk->sk_callback_lock);
}

void kapi_trace_data_ready(struct sock *sk)
{
	trace_sk_data_ready(sk);
}

/* Sockets: under the socket lock (the first three also without it) */

int kapi_sk_state(const struct sock *sk)
{
	return inet_sk_state_load(sk);
}

int kapi_sk_err(const struct sock *sk)
{
	return READ_ONCE(sk->sk_err);
}

u32 kapi_sk_mss(const struct sock *sk)
{
	return READ_ONCE(tcp_sk(sk)->mss_cache);
}

u32 kapi_sk_write_seq(const struct sock *sk)
{
	return READ_ONCE(tcp_sk(sk)->write_seq);
}

u32 kapi_sk_snd_una(const struct sock *sk)
{
	return READ_ONCE(tcp_sk(sk)->snd_una);
}

int kapi_sk_space(const struct sock *sk)
{
	if (!sk_stream_memory_free(sk))
		return 0;
	return READ_ONCE(sk->sk_sndbuf) - READ_ONCE(sk->sk_wmem_queued);
}

int kapi_sk_sndbuf(const struct sock *sk)
{
	return READ_ONCE(sk->sk_sndbuf);
}

int kapi_sk_wmem_queued(const struct sock *sk)
{
	return READ_ONCE(sk->sk_wmem_queued);
}

bool kapi_sk_owned(const struct sock *sk)
{
	return sock_owned_by_user_nocheck(sk);
}

void kapi_sk_set_nospace(struct sock *sk)
{
	struct socket *sock = sk->sk_socket;

	if (sock)
		set_bit(SOCK_NOSPACE, &sock->flags);
	/* Pairs with the one in tcp_check_space(). */
	smp_mb();
}

void kapi_sk_clear_nospace(struct sock *sk)
{
	struct socket *sock = sk->sk_socket;

	if (sock)
		clear_bit(SOCK_NOSPACE, &sock->flags);
}

void kapi_lock_sock(struct sock *sk)
{
	lock_sock(sk);
}

/*
 * Whether the peer may send less than half of what there is room for. Also without
 * the lock.
 */
static bool siw_window_lags(const struct sock *sk)
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
 * What has come since the socket was locked is processed here, and read at once. All
 * of it counts as backlog until the last of it is processed, so the acknowledgements
 * announce too small a window, or none. TCP corrects that at the next read only, and
 * there is nothing left to read.
 */
void kapi_unlock_sock(struct sock *sk)
{
	release_sock(sk);
	if (likely(!siw_window_lags(sk)))
		return;
	/* Not as a process: a peer on this host would answer into the backlog. */
	local_bh_disable();
	spin_lock(&sk->sk_lock.slock);
	/* Or another process unlocks it later. */
	if (!sock_owned_by_user(sk) && siw_window_lags(sk))
		__tcp_send_ack(sk, tcp_sk(sk)->rcv_nxt, 0);
	kapi_unlock_sock_bh(sk);
}

/* For the process that owns the socket. */
void kapi_sk_flush_backlog(struct sock *sk)
{
	sk_flush_backlog(sk);
}

/*
 * The socket as softirq has it: spinlock held, no owner. Never waits, so that a
 * poster in any context may try it.
 */
bool kapi_trylock_sock_bh(struct sock *sk)
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

void kapi_unlock_sock_bh(struct sock *sk)
{
	spin_unlock(&sk->sk_lock.slock);
	local_bh_enable();
}

/*
 * Whether what TCP gets by reference stays where it is until it is on the wire:
 * sk_route_caps has SG in any case, see sk_setup_caps(), and the device layer
 * copies for who cannot do it.
 */
bool kapi_sk_can_share(const struct sock *sk)
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
 * The pages that TCP copies to. It would keep 32 KiB for each socket, idle or not.
 * Softirq has its own: it may send in the middle of the send of a process on its
 * CPU, and in the middle of a swap, too. Hard interrupts never send. So no two
 * contexts swap the same pages while preemption is off.
 */
static DEFINE_PER_CPU(struct page_frag, kapi_frags[2]);

/* Has @sk take the pages of this CPU, or leave them. */
static void siw_swap_frag(struct sock *sk)
{
	preempt_disable();
	swap(sk->sk_frag, *this_cpu_ptr(&kapi_frags[!!in_serving_softirq()]));
	preempt_enable();
}

static void siw_drop_frag(struct page_frag *frag)
{
	if (frag->page)
		put_page(frag->page);
	frag->page = NULL;
}

/* Frees all these pages. No stream may send any more. */
void kapi_drop_frags(void)
{
	int cpu, i;

	for_each_possible_cpu(cpu)
		for (i = 0; i < 2; i++)
			siw_drop_frag(per_cpu_ptr(&kapi_frags[i], cpu));
}

/* A few bytes, which TCP copies. */
int kapi_sk_send_bytes(struct sock *sk, void *data, size_t len, bool more)
{
	struct kvec vec = { .iov_base = data, .iov_len = len };
	struct msghdr msg = {
		.msg_flags = MSG_DONTWAIT | MSG_NOSIGNAL,
	};
	int rv;

	if (more)
		msg.msg_flags |= MSG_MORE;
	iov_iter_kvec(&msg.msg_iter, ITER_SOURCE, &vec, 1, len);
	siw_swap_frag(sk);
	rv = tcp_sendmsg_locked(sk, &msg, len);
	siw_swap_frag(sk);
	/* Another process has left some, or the send began on another CPU. */
	siw_drop_frag(&sk->sk_frag);
	return rv;
}

/*
 * With @mark the pages belong to others who may change them once the peer has
 * them. Without, they are written once and never again, so TCP need not treat
 * them as shared.
 */
int kapi_sk_send_pages(struct sock *sk, struct bio_vec *bvec,
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

void kapi_sk_ack_now(struct sock *sk)
{
	if (inet_csk_ack_scheduled(sk))
		__tcp_send_ack(sk, tcp_sk(sk)->rcv_nxt, 0);
}

/* As tcp_cleanup_rbuf() does for what is read: every second segment. */
void kapi_sk_ack_unread(struct sock *sk)
{
	if (tcp_sk(sk)->rcv_nxt - tcp_sk(sk)->rcv_wup >
	    inet_csk(sk)->icsk_ack.rcv_mss)
		kapi_sk_ack_now(sk);
}

/*
 * MPA has no use for urgent data, and tcp_read_sock() never gets over it: the
 * stream would stand still for ever. It is marked before its data is queued.
 */
int kapi_sk_read(struct sock *sk, void *arg, sk_read_actor_t actor)
{
	read_descriptor_t desc = { .arg.data = arg, .count = 1 };

	if (unlikely(READ_ONCE(tcp_sk(sk)->urg_data)))
		return -EPROTO;
	return tcp_read_sock(sk, &desc, actor);
}

/*
 * How much has been received from the byte @at of @skb on, which is in the receive
 * queue.
 */
u32 kapi_rx_behind(const struct sock *sk, const struct sk_buff *skb, u32 at)
{
	/* A reset shuts down, too, and has no place in the sequence. */
	u32 fin = sock_flag(sk, SOCK_DONE);

	return tcp_sk(sk)->rcv_nxt - fin - (TCP_SKB_CB(skb)->seq + at);
}

/*
 * The buffer that has the byte @at, as counted in @skb, and where: that one or one
 * behind it, which may begin with what is in it, too.
 */
struct sk_buff *kapi_rx_next(struct sock *sk, struct sk_buff *skb,
			     u32 at, u32 *where)
{
	u32 seq = TCP_SKB_CB(skb)->seq + at;

	skb_queue_walk_from(&sk->sk_receive_queue, skb) {
		*where = seq - TCP_SKB_CB(skb)->seq;
		if (*where < skb->len)
			return skb;
	}
	return NULL;
}

u32 kapi_skb_len(const struct sk_buff *skb)
{
	return skb->len;
}

/*
 * The byte @at of @skb; @len gets the length of the rest of its piece.
 * @piece: where the search begins, unless it is behind the byte; gets its piece
 * NULL: the byte is behind the end, not readable, or at or behind a buffer of the
 * list that has a list itself. There is no @piece then.
 */
const void *kapi_skb_at(const struct sk_buff *skb, u32 at, u32 *len,
			struct kapi_skb_piece *piece)
{
	BUILD_BUG_ON(IS_ENABLED(CONFIG_HIGHMEM));
	if (!piece->part || at < piece->start)
		*piece = (struct kapi_skb_piece){ .part = skb };
	do {
		const struct sk_buff *part = piece->part;
		const struct skb_shared_info *info = skb_shinfo(part);
		const skb_frag_t *frag = NULL;
		u32 size = skb_headlen(part), off = at - piece->start;

		if (piece->index) {
			frag = &info->frags[piece->index - 1];
			size = skb_frag_size(frag);
		}
		if (off < size) {
			if (frag && !skb_frags_readable(part))
				break;
			*len = size - off;
			return (frag ? skb_frag_address(frag) : part->data) + off;
		}
		piece->start += size;
		if (piece->index < info->nr_frags) {
			piece->index++;
			continue;
		}
		piece->index = 0;
		piece->part = part == skb ? info->frag_list : part->next;
	} while (piece->part &&
		 (piece->part == skb || !skb_has_frag_list(piece->part)));
	piece->part = NULL;
	return NULL;
}

/*
 * Copies as skb_copy_bits(), which begins every search at the front of the buffer.
 * @first: as @piece of kapi_skb_at(), of the first byte
 */
int kapi_skb_copy(const struct sk_buff *skb, u32 at, void *to, u32 len,
		  struct kapi_skb_piece *first)
{
	struct kapi_skb_piece piece = *first;
	const void *from;
	u32 done, run;

	for (done = 0; done < len; done += run) {
		from = kapi_skb_at(skb, at + done, &run, &piece);
		if (!from)
			return skb_copy_bits(skb, at, to, len);
		if (!done)
			*first = piece;
		run = min(run, len - done);
		memcpy(to + done, from, run);
	}
	return 0;
}

/* tcp_done() sets this, too; kapi_sk_freeze() does not. */
bool kapi_rx_over(const struct sock *sk)
{
	return sk->sk_shutdown & RCV_SHUTDOWN;
}

/* Whether no more can come before what is here has been read. */
bool kapi_rx_stuck(const struct sock *sk)
{
	return sk->sk_state == TCP_CLOSE || tcp_epollin_ready(sk, INT_MAX) ||
	       inet_csk(sk)->icsk_ack.pending & ICSK_ACK_NOMEM;
}

/* Sockets: what a connection knows of its path */

void kapi_sk_path(const struct sock *sk, struct kapi_sk_path *path)
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

/*
 * Sockets that are frozen
 *
 * A frozen socket is one of an established connection, but for its state. TCP finds
 * it, and drops what comes for a closed one without an answer. Timers, deferred
 * work and sends leave a closed one alone, too. So nothing is sent or acknowledged,
 * not even an RST, and the queues stay as they are. What has been received can be
 * read.
 */

/* For the process that owns the socket. */
bool kapi_sk_freeze(struct sock *sk)
{
	sk_flush_backlog(sk);
	if (sk->sk_state != TCP_ESTABLISHED)
		return false;
	/* Not by tcp_set_state(), which would take it out of the hash table. */
	smp_store_release(&sk->sk_state, TCP_CLOSE);
	return true;
}

void kapi_sk_thaw(struct sock *sk)
{
	lock_sock(sk);
	/* As inet_sk_state_store() does it, which is not exported. */
	smp_store_release(&sk->sk_state, TCP_ESTABLISHED);
	release_sock(sk);
}

/* With the lock held throughout: a live socket would send what it has. */
void kapi_sk_reset_frozen(struct sock *sk)
{
	lock_sock(sk);
	/* As in kapi_sk_thaw(). */
	smp_store_release(&sk->sk_state, TCP_ESTABLISHED);
	sk->sk_prot->disconnect(sk, 0);
	release_sock(sk);
}

/* The buffer behind @skb, or the first one, of those that are not acknowledged. */
struct sk_buff *kapi_frozen_next(const struct sock *sk, struct sk_buff *skb)
{
	struct sk_buff *next = NULL;

	if (!skb)
		next = tcp_rtx_queue_head(sk);
	else if (before(TCP_SKB_CB(skb)->seq, tcp_sk(sk)->snd_nxt))
		next = skb_rb_next(skb);
	else if (skb_queue_is_last(&sk->sk_write_queue, skb))
		return NULL;
	else
		return skb_queue_next(&sk->sk_write_queue, skb);
	return next ?: skb_peek(&sk->sk_write_queue);
}

u32 kapi_frozen_seq(const struct sk_buff *skb)
{
	return TCP_SKB_CB(skb)->seq;
}

/*
 * Sends what the frozen @skb has from the byte @from on; returns how much of it TCP
 * took. Nobody writes to the pages, or they have a mark.
 */
int kapi_sk_send_again(struct sock *sk, struct sk_buff *skb, u32 from,
		       bool more)
{
	const struct skb_shared_info *info = skb_shinfo(skb);
	struct bio_vec bvec[MAX_SKB_FRAGS];
	unsigned int i, nr = 0;
	u32 head, size;
	size_t len = 0;

	head = skb_headlen(skb);
	if (from < head)
		return kapi_sk_send_bytes(sk, skb->data + from, head - from,
					  more || info->nr_frags);
	from -= head;
	for (i = 0; i < info->nr_frags; i++) {
		const skb_frag_t *frag = &info->frags[i];

		size = skb_frag_size(frag);
		if (from >= size) {
			from -= size;
			continue;
		}
		bvec_set_page(&bvec[nr++], skb_frag_page(frag), size - from,
			      skb_frag_off(frag) + from);
		len += size - from;
		from = 0;
	}
	return kapi_sk_send_pages(sk, bvec, nr, len, more, skb_zcopy(skb));
}
