/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Helpers of rust/kapi/net, rust/kapi/sync and the small modules beside them,
 * see rust/helpers/net.c.
 */
#ifndef SIW_HELPERS_NET_H
#define SIW_HELPERS_NET_H

#include <linux/bvec.h>
#include <linux/net.h>
#include <linux/netdevice.h>
#include <linux/socket.h>
#include <linux/spinlock.h>
#include <linux/workqueue.h>
#include <net/sock.h>

/* The four callbacks of a TCP socket that we replace. */
struct siw_sk_callbacks {
	void (*state_change)(struct sock *sk);
	void (*data_ready)(struct sock *sk);
	void (*write_space)(struct sock *sk);
	void (*error_report)(struct sock *sk);
};

/* Locks */
unsigned long siw_helper_spin_lock_irqsave(spinlock_t *lock);
void siw_helper_spin_unlock_irqrestore(spinlock_t *lock, unsigned long flags);
bool siw_helper_spin_trylock_irqsave(spinlock_t *lock, unsigned long *flags);

/* Context */
u32 siw_helper_cpu(void);
bool siw_helper_cpu_online(u32 cpu);
void siw_helper_cond_resched(void);
unsigned long siw_helper_jiffies(void);
void siw_helper_synchronize_tasks(void);

/* Work queues */
struct workqueue_struct *siw_helper_alloc_workqueue(const char *name,
						    unsigned int flags);
void siw_helper_flush_workqueue(struct workqueue_struct *wq);

/* Pages */
struct page *siw_helper_alloc_tx_pages(unsigned int order);
void *siw_helper_page_address(struct page *page);
void siw_helper_put_page(struct page *page);
phys_addr_t siw_helper_page_to_phys(struct page *page);
struct page *siw_helper_phys_to_page(phys_addr_t addr);
struct page *siw_helper_get_page_of(const void *addr);
int siw_helper_page_refs(const struct page *page);

/* Marks of buffers that are sent by reference */
u32 siw_helper_ubuf_refs(const struct ubuf_info *ubuf);
bool siw_helper_ubuf_put(struct ubuf_info *ubuf);

/* Network devices and namespaces */
struct net *siw_helper_get_net(struct net *net);
void siw_helper_put_net(struct net *net);
void siw_helper_dev_hold(struct net_device *dev);
void siw_helper_dev_put(struct net_device *dev);
void siw_helper_dev_name(const struct net_device *dev, char name[IFNAMSIZ]);
u32 siw_helper_dev_hw_addr(const struct net_device *dev, u8 addr[MAX_ADDR_LEN]);
u32 siw_helper_dev_ifindex(const struct net_device *dev);
u32 siw_helper_dev_mtu(const struct net_device *dev);
u32 siw_helper_dev_max_mtu(const struct net_device *dev);
u16 siw_helper_dev_type(const struct net_device *dev);
bool siw_helper_dev_is_up(const struct net_device *dev);
struct net *siw_helper_dev_net(struct net_device *dev);
bool siw_helper_net_has_addr(struct net *net,
			     const struct __kernel_sockaddr_storage *addr);
u32 siw_helper_dev_addrs(struct net_device *dev,
			 struct __kernel_sockaddr_storage *out, u32 max);
struct net_device *siw_helper_notifier_dev(void *info);
struct net_device *siw_helper_inetaddr(void *ifa,
				       struct __kernel_sockaddr_storage *out);
struct net_device *siw_helper_inet6addr(void *ifa,
					struct __kernel_sockaddr_storage *out);

/* Sockets: creation and the calls that take the socket lock themselves */
int siw_helper_sock_create(struct net *net, int family, struct socket **res);
void siw_helper_sk_prepare(struct sock *sk, struct siw_sk_callbacks *stock);
int siw_helper_sk_swap(struct sock *sk, const struct siw_sk_callbacks *cb,
		       void *owner, void **old);
int siw_helper_sock_recv(struct socket *sock, void *buf, size_t len, int flags);
int siw_helper_sock_set_tos(struct socket *sock, u8 tos);
int siw_helper_sock_set_v6only(struct sock *sk);
int siw_helper_sk_take_error(struct sock *sk);

/* Sockets: callbacks */
void *siw_helper_sk_owner(const struct sock *sk);
void siw_helper_sk_callback_lock(struct sock *sk);
void siw_helper_sk_callback_unlock(struct sock *sk);
void siw_helper_trace_data_ready(struct sock *sk);

/* Sockets: under the socket lock (the first three, and the sequence numbers, also without it) */
int siw_helper_sk_state(const struct sock *sk);
int siw_helper_sk_err(const struct sock *sk);
u32 siw_helper_sk_mss(const struct sock *sk);
u32 siw_helper_sk_write_seq(const struct sock *sk);
u32 siw_helper_sk_snd_una(const struct sock *sk);
int siw_helper_sk_space(const struct sock *sk);
int siw_helper_sk_sndbuf(const struct sock *sk);
int siw_helper_sk_wmem_queued(const struct sock *sk);
bool siw_helper_sk_owned(const struct sock *sk);
void siw_helper_sk_set_nospace(struct sock *sk);
void siw_helper_sk_clear_nospace(struct sock *sk);
void siw_helper_lock_sock(struct sock *sk);
void siw_helper_sk_flush_backlog(struct sock *sk);
bool siw_helper_trylock_sock_bh(struct sock *sk);
void siw_helper_unlock_sock_bh(struct sock *sk);
bool siw_helper_skb_has_nested_list(const struct sk_buff *skb);
bool siw_helper_sk_can_share(const struct sock *sk);
int siw_helper_sk_send_bytes(struct sock *sk, void *data, size_t len,
			     bool more);
int siw_helper_sk_send_pages(struct sock *sk, struct bio_vec *bvec,
			     unsigned int nr, size_t len, bool more,
			     struct ubuf_info *mark);
void siw_helper_sk_ack_now(struct sock *sk);
void siw_helper_sk_ack_unread(struct sock *sk);
int siw_helper_sk_read(struct sock *sk, void *arg, sk_read_actor_t actor);
u32 siw_helper_rx_behind(const struct sock *sk, const struct sk_buff *skb,
			 u32 at);
struct sk_buff *siw_helper_rx_next(struct sock *sk, struct sk_buff *skb,
				   u32 at, u32 *where);
u32 siw_helper_skb_len(const struct sk_buff *skb);
bool siw_helper_rx_stuck(const struct sock *sk);

/* Tracepoints, rust/trace.c */
void siw_helper_trace_connect(u32 qpn, u32 step, int status);
void siw_helper_trace_send(u32 qpn, u32 fpdus, u32 bytes, u32 accepted);
void siw_helper_trace_place(u32 qpn, u32 stag, u64 to, u32 len);
void siw_helper_trace_complete(u32 qpn, u64 wr_id, u8 opcode, u32 status);
void siw_helper_trace_terminate(u32 qpn, bool rx, u8 layer, u8 etype, u8 code);

#endif
