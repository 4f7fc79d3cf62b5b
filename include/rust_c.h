/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Functions of rust/c. The prefix is the crate that they are for.
 */
#ifndef RUST_C_H
#define RUST_C_H

#include <linux/bvec.h>
#include <linux/net.h>
#include <linux/netdevice.h>
#include <linux/socket.h>
#include <linux/spinlock.h>
#include <net/sock.h>
#include <rdma/ib_verbs.h>

struct dma_buf_attachment;
struct mem_cgroup;

/* addrs.c */
u32 base_dev_addrs(struct net_device *dev,
		   struct __kernel_sockaddr_storage *out, u32 max);
u32 base_net_addrs(struct net *net, u32 vrf,
		   struct __kernel_sockaddr_storage *out, u32 *index, u32 max);
struct net_device *base_inetaddr(void *ifa,
				 struct __kernel_sockaddr_storage *out);
struct net_device *base_inet6addr(void *ifa,
				  struct __kernel_sockaddr_storage *out);

/* gate.c */
struct soft_gate {
	raw_spinlock_t lock;
	bool locked;
	/* Those that have ever been inside. */
	atomic_long_t cpus;
};

void soft_gate_init(struct soft_gate *gate);
void soft_gate_unlock(struct soft_gate *gate, bool stayed);
bool soft_gate_enter(struct soft_gate *gate);
void soft_gate_exit(bool stayed);
bool soft_gate_lock(struct soft_gate *gate);
bool soft_gate_enter_deeper(struct soft_gate *gate);
void soft_gate_exit_deeper(bool stayed);
void soft_gate_wait_deeper(struct soft_gate *gate);

/* dmabuf.c */
struct dma_buf_attachment *soft_dmabuf_get(struct ib_device *dev, int fd, bool write,
					   void **addr, size_t *len);
void soft_dmabuf_put(struct dma_buf_attachment *attach, void *addr);

/* odp.c */
struct soft_odp_range;

/* The owner of memory on demand. */
struct soft_odp {
	/* Forgets pages, by their number. May run until release() returns. */
	void (*clear)(struct soft_odp *owner, size_t first, size_t end);
};

struct soft_odp_range *soft_odp_get(unsigned long start, size_t pages);
void soft_odp_own(struct soft_odp_range *odp, struct soft_odp *owner);
bool soft_odp_is_of_current(const struct soft_odp_range *odp);
struct mem_cgroup *soft_odp_charge(const struct soft_odp_range *odp);
void soft_odp_charged(struct mem_cgroup *old);
int soft_odp_map(struct soft_odp_range *odp, size_t page, size_t count, bool write,
		 bool fault, unsigned long *pfns);
unsigned long soft_odp_page(unsigned long pfn, bool write);
void soft_odp_unlock(struct soft_odp_range *odp);
void soft_odp_dirty(unsigned long addr);
void soft_odp_release(struct soft_odp_range *odp, struct soft_odp *owner);

/* sock.c */
/* The four callbacks of a TCP socket that we replace. */
struct soft_sk_callbacks {
	void (*state_change)(struct sock *sk);
	void (*data_ready)(struct sock *sk);
	void (*write_space)(struct sock *sk);
	void (*error_report)(struct sock *sk);
};

/* What a connection knows of its path. */
struct soft_sk_path {
	u32 packets_out;
	u32 retransmits;
	u32 probes_out;
	bool down;
};

int soft_sock_create(struct net *net, int family, struct socket **res);
int soft_sk_bind_to_vrf(struct sock *sk);
bool soft_sk_has_addr(const struct sock *sk,
		      const struct __kernel_sockaddr_storage *addr);
void soft_sk_prepare(struct sock *sk, struct soft_sk_callbacks *stock);
int soft_sk_swap(struct sock *sk, const struct soft_sk_callbacks *cb,
		 void *owner, void **old);
void *soft_sk_owner(const struct sock *sk);
int soft_sock_recv(struct socket *sock, void *buf, size_t len, int flags);
int soft_sock_set_tos(struct socket *sock, u8 tos);
void soft_sk_set_nospace(struct sock *sk);
void soft_sk_clear_nospace(struct sock *sk);
bool soft_trylock_sock_bh(struct sock *sk);
void soft_unlock_sock_bh(struct sock *sk);
void soft_unlock_sock(struct sock *sk);
void soft_sk_ack_now(struct sock *sk);
void soft_sk_ack_unread(struct sock *sk);
int soft_sk_read(struct sock *sk, void *arg, sk_read_actor_t actor);
bool soft_rx_over(const struct sock *sk);
bool soft_rx_stuck(const struct sock *sk);
void soft_sk_path(const struct sock *sk, struct soft_sk_path *path);

/* frags.c */
void soft_drop_frags(void);
int soft_sk_send_bytes(struct sock *sk, void *data, size_t len, bool more);
bool soft_sk_can_share(const struct sock *sk);
int soft_sk_send_pages(struct sock *sk, struct bio_vec *bvec,
		       unsigned int nr, size_t len, bool more,
		       struct ubuf_info *mark);

/* skb.c */
/*
 * A contiguous piece of a buffer.
 * @part: the buffer itself, or one of its list; NULL: no piece
 * @index: 0: the head of @part, else its fragment @index - 1
 * @start: the offset of its first byte in the buffer
 */
struct soft_skb_piece {
	const struct sk_buff *part;
	u32 index;
	u32 start;
};

u32 soft_rx_behind(const struct sock *sk, const struct sk_buff *skb, u32 at);
struct sk_buff *soft_rx_next(struct sock *sk, struct sk_buff *skb,
			     u32 at, u32 *where);
const void *soft_skb_at(const struct sk_buff *skb, u32 at, u32 *len,
			struct soft_skb_piece *piece);
int soft_skb_copy(const struct sk_buff *skb, u32 at, void *to, u32 len,
		  struct soft_skb_piece *first);

/* frozen.c */
bool soft_sk_freeze(struct sock *sk);
void soft_sk_thaw(struct sock *sk);
void soft_sk_reset_frozen(struct sock *sk);
struct sk_buff *soft_frozen_next(const struct sock *sk, struct sk_buff *skb);
u32 soft_frozen_seq(const struct sk_buff *skb);
int soft_sk_send_again(struct sock *sk, struct sk_buff *skb, u32 from,
		       bool more);

#endif
