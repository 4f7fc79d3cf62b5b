/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Prototypes of rust/helpers/net.c.
 */
#ifndef KAPI_HELPERS_NET_H
#define KAPI_HELPERS_NET_H

#include <linux/bvec.h>
#include <linux/net.h>
#include <linux/netdevice.h>
#include <linux/socket.h>
#include <linux/spinlock.h>
#include <linux/workqueue.h>
#include <net/sock.h>

/* The four callbacks of a TCP socket that we replace. */
struct kapi_sk_callbacks {
	void (*state_change)(struct sock *sk);
	void (*data_ready)(struct sock *sk);
	void (*write_space)(struct sock *sk);
	void (*error_report)(struct sock *sk);
};

/* What a connection knows of its path. */
struct kapi_sk_path {
	u32 packets_out;
	u32 retransmits;
	u32 probes_out;
	bool down;
};

/*
 * A contiguous piece of a buffer.
 * @part: the buffer itself, or one of its list; NULL: no piece
 * @index: 0: the head of @part, else its fragment @index - 1
 * @start: the offset of its first byte in the buffer
 */
struct kapi_skb_piece {
	const struct sk_buff *part;
	u32 index;
	u32 start;
};

/* Locks */
unsigned long kapi_spin_lock_irqsave(spinlock_t *lock);
void kapi_spin_unlock_irqrestore(spinlock_t *lock, unsigned long flags);
bool kapi_spin_trylock_irqsave(spinlock_t *lock, unsigned long *flags);

/* Context */
u32 kapi_cpu(void);
bool kapi_in_softirq(void);
bool kapi_cpu_online(u32 cpu);
void kapi_cond_resched(void);
unsigned long kapi_jiffies(void);
void kapi_synchronize_tasks(void);

/* Work queues */
struct workqueue_struct *kapi_alloc_workqueue(const char *name,
					      unsigned int flags,
					      int max_active);
void kapi_flush_workqueue(struct workqueue_struct *wq);

/* Pages */
struct page *kapi_alloc_tx_pages(unsigned int order);
void *kapi_page_address(struct page *page);
void kapi_put_page(struct page *page);
phys_addr_t kapi_page_to_phys(struct page *page);
struct page *kapi_phys_to_page(phys_addr_t addr);
struct page *kapi_get_page_of(const void *addr);
int kapi_page_refs(const struct page *page);

/* Marks of buffers that are sent by reference */
u32 kapi_ubuf_refs(const struct ubuf_info *ubuf);
bool kapi_ubuf_put(struct ubuf_info *ubuf);

/* Network devices and namespaces */
struct net *kapi_get_net(struct net *net);
void kapi_put_net(struct net *net);
void kapi_dev_hold(struct net_device *dev);
void kapi_dev_put(struct net_device *dev);
void kapi_dev_name(const struct net_device *dev, char name[IFNAMSIZ]);
u32 kapi_dev_hw_addr(const struct net_device *dev, u8 addr[MAX_ADDR_LEN]);
u32 kapi_dev_ifindex(const struct net_device *dev);
u32 kapi_dev_vrf(struct net_device *dev);
u32 kapi_dev_mtu(const struct net_device *dev);
u32 kapi_dev_max_mtu(const struct net_device *dev);
u16 kapi_dev_type(const struct net_device *dev);
bool kapi_dev_is_up(const struct net_device *dev);
struct net *kapi_dev_net(struct net_device *dev);
u32 kapi_dev_addrs(struct net_device *dev,
		   struct __kernel_sockaddr_storage *out, u32 max);
u32 kapi_net_addrs(struct net *net, u32 vrf,
		   struct __kernel_sockaddr_storage *out, u32 *index, u32 max);
struct net_device *kapi_notifier_dev(void *info);
struct net_device *kapi_inetaddr(void *ifa,
				 struct __kernel_sockaddr_storage *out);
struct net_device *kapi_inet6addr(void *ifa,
				  struct __kernel_sockaddr_storage *out);

/* Sockets: creation and the calls that take the socket lock themselves */
int kapi_sock_create(struct net *net, int family, struct socket **res);
int kapi_sk_bind_to_vrf(struct sock *sk);
bool kapi_sk_has_addr(const struct sock *sk,
		      const struct __kernel_sockaddr_storage *addr);
void kapi_sk_prepare(struct sock *sk, struct kapi_sk_callbacks *stock);
int kapi_sk_swap(struct sock *sk, const struct kapi_sk_callbacks *cb,
		 void *owner, void **old);
int kapi_sock_recv(struct socket *sock, void *buf, size_t len, int flags);
int kapi_sock_set_tos(struct socket *sock, u8 tos);
int kapi_sock_set_v6only(struct sock *sk);
int kapi_sk_take_error(struct sock *sk);

/* Sockets: callbacks */
void *kapi_sk_owner(const struct sock *sk);
void kapi_sk_callback_lock(struct sock *sk);
void kapi_sk_callback_unlock(struct sock *sk);
void kapi_trace_data_ready(struct sock *sk);

/* Sockets: under the socket lock (the first three, and the sequence numbers, also without it) */
int kapi_sk_state(const struct sock *sk);
int kapi_sk_err(const struct sock *sk);
u32 kapi_sk_mss(const struct sock *sk);
u32 kapi_sk_write_seq(const struct sock *sk);
u32 kapi_sk_snd_una(const struct sock *sk);
int kapi_sk_space(const struct sock *sk);
int kapi_sk_sndbuf(const struct sock *sk);
int kapi_sk_wmem_queued(const struct sock *sk);
bool kapi_sk_owned(const struct sock *sk);
void kapi_sk_set_nospace(struct sock *sk);
void kapi_sk_clear_nospace(struct sock *sk);
void kapi_lock_sock(struct sock *sk);
void kapi_unlock_sock(struct sock *sk);
void kapi_sk_flush_backlog(struct sock *sk);
bool kapi_trylock_sock_bh(struct sock *sk);
void kapi_unlock_sock_bh(struct sock *sk);
bool kapi_sk_can_share(const struct sock *sk);
int kapi_sk_send_bytes(struct sock *sk, void *data, size_t len, bool more);
void kapi_drop_frags(void);
int kapi_sk_send_pages(struct sock *sk, struct bio_vec *bvec,
		       unsigned int nr, size_t len, bool more,
		       struct ubuf_info *mark);
void kapi_sk_ack_now(struct sock *sk);
void kapi_sk_ack_unread(struct sock *sk);
int kapi_sk_read(struct sock *sk, void *arg, sk_read_actor_t actor);
u32 kapi_rx_behind(const struct sock *sk, const struct sk_buff *skb, u32 at);
struct sk_buff *kapi_rx_next(struct sock *sk, struct sk_buff *skb,
			     u32 at, u32 *where);
u32 kapi_skb_len(const struct sk_buff *skb);
const void *kapi_skb_at(const struct sk_buff *skb, u32 at, u32 *len,
			struct kapi_skb_piece *piece);
int kapi_skb_copy(const struct sk_buff *skb, u32 at, void *to, u32 len,
		  struct kapi_skb_piece *first);
bool kapi_rx_over(const struct sock *sk);
bool kapi_rx_stuck(const struct sock *sk);

/* Sockets: what a connection knows of its path */
void kapi_sk_path(const struct sock *sk, struct kapi_sk_path *path);

/* Sockets that are frozen */
bool kapi_sk_freeze(struct sock *sk);
void kapi_sk_thaw(struct sock *sk);
void kapi_sk_reset_frozen(struct sock *sk);
struct sk_buff *kapi_frozen_next(const struct sock *sk, struct sk_buff *skb);
u32 kapi_frozen_seq(const struct sk_buff *skb);
int kapi_sk_send_again(struct sock *sk, struct sk_buff *skb, u32 from,
		       bool more);

#endif
