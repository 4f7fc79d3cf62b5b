// SPDX-License-Identifier: GPL-2.0
/*
 * Inline functions, macros and fields of bitfield-ridden types of memory and sockets
 * that rust/soft cannot reach by itself.
 */

#include <linux/mm.h>
#include <linux/skbuff.h>
#include <net/ipv6.h>
#include <net/tcp.h>
#include <rdma/ib_umem.h>
#include <trace/events/sock.h>

#include "rust_helpers.h"

struct page *crate_helper_alloc_tx_pages(unsigned int order)
{
	/* Zeroed, as Debian's kernel does anyhow: what is in there goes to the peer. */
	gfp_t gfp = GFP_ATOMIC | __GFP_NOWARN | __GFP_ZERO;

	if (order)
		gfp |= __GFP_COMP | __GFP_NORETRY;
	return alloc_pages(gfp, order);
}

void *crate_helper_page_address(struct page *page)
{
	return page_address(page);
}

void crate_helper_put_page(struct page *page)
{
	put_page(page);
}

phys_addr_t crate_helper_page_to_phys(struct page *page)
{
	return page_to_phys(page);
}

struct page *crate_helper_phys_to_page(phys_addr_t addr)
{
	return pfn_to_page(PHYS_PFN(addr));
}

struct page *crate_helper_get_page_of(const void *addr)
{
	struct page *page = virt_to_page(addr);

	get_page(page);
	return page;
}

int crate_helper_page_refs(const struct page *page)
{
	/* Whoever let go of it did so before what the caller does next. */
	return atomic_read_acquire(&page_folio(page)->_refcount);
}

/* How many bytes from @addr on are in its page of the direct map. */
size_t crate_helper_direct_map_room(unsigned long addr)
{
	return virt_addr_valid(addr) ? PAGE_SIZE - offset_in_page(addr) : 0;
}

struct ib_umem *crate_helper_ib_umem_get_va(struct ib_device *dev, unsigned long start,
					    size_t len, int access)
{
	return ib_umem_get_va(dev, start, len, access);
}

u32 crate_helper_ubuf_refs(const struct ubuf_info *ubuf)
{
	/* Whoever let go of it did so before what the caller does next. */
	return atomic_read_acquire(&ubuf->refcnt.refs);
}

/* Whether it was the last one. */
bool crate_helper_ubuf_put(struct ubuf_info *ubuf)
{
	return refcount_dec_and_test(&ubuf->refcnt);
}

struct net_device *crate_helper_netdev_notifier_info_to_dev(void *info)
{
	return netdev_notifier_info_to_dev(info);
}

int crate_helper_sock_set_v6only(struct sock *sk)
{
	return ip6_sock_set_v6only(sk);
}

int crate_helper_sock_error(struct sock *sk)
{
	return sock_error(sk);
}

void crate_helper_sk_callback_lock(struct sock *sk)
{
	read_lock_bh(&sk->sk_callback_lock);
}

void crate_helper_sk_callback_unlock(struct sock *sk)
{
	read_unlock_bh(&sk->sk_callback_lock);
}

void crate_helper_trace_sk_data_ready(struct sock *sk)
{
	trace_sk_data_ready(sk);
}

int crate_helper_sk_state(const struct sock *sk)
{
	return inet_sk_state_load(sk);
}

int crate_helper_sk_err(const struct sock *sk)
{
	return READ_ONCE(sk->sk_err);
}

u32 crate_helper_sk_mss(const struct sock *sk)
{
	return READ_ONCE(tcp_sk(sk)->mss_cache);
}

u32 crate_helper_sk_write_seq(const struct sock *sk)
{
	return READ_ONCE(tcp_sk(sk)->write_seq);
}

u32 crate_helper_sk_snd_una(const struct sock *sk)
{
	return READ_ONCE(tcp_sk(sk)->snd_una);
}

int crate_helper_sk_space(const struct sock *sk)
{
	if (!sk_stream_memory_free(sk))
		return 0;
	return READ_ONCE(sk->sk_sndbuf) - READ_ONCE(sk->sk_wmem_queued);
}

int crate_helper_sk_sndbuf(const struct sock *sk)
{
	return READ_ONCE(sk->sk_sndbuf);
}

int crate_helper_sk_wmem_queued(const struct sock *sk)
{
	return READ_ONCE(sk->sk_wmem_queued);
}

bool crate_helper_sock_owned_by_user(const struct sock *sk)
{
	return sock_owned_by_user_nocheck(sk);
}

void crate_helper_lock_sock(struct sock *sk)
{
	lock_sock(sk);
}

/* For the process that owns the socket. */
void crate_helper_sk_flush_backlog(struct sock *sk)
{
	sk_flush_backlog(sk);
}

u32 crate_helper_skb_len(const struct sk_buff *skb)
{
	return skb->len;
}
