// SPDX-License-Identifier: GPL-2.0
/*
 * Sockets that are frozen, so that what was sent over them and is not acknowledged can be
 * sent over another one.
 *
 * A frozen socket is one of an established connection, but for its state. TCP finds
 * it, and drops segments for a closed one without an answer. Timers, deferred
 * work and sends leave a closed one alone, too. So nothing is sent or acknowledged,
 * not even an RST, and the queues stay as they are. What has been received can be
 * read.
 *
 * TCP_REPAIR is the nearest that the kernel has. It stops sends, not acknowledgements,
 * and is set by setsockopt() for who may administer the network; the queues are read by
 * copies.
 *
 * It breaks, without an error of the compiler, if TCP does anything for a closed socket
 * in its table, or keeps what is not acknowledged elsewhere than in tcp_rtx_queue and
 * sk_write_queue. The cases in qemu-tests/cases/path notice both.
 */

#include <linux/bvec.h>
#include <net/tcp.h>

#include "rust_c.h"

/* For the process that owns the socket. */
bool soft_sk_freeze(struct sock *sk)
{
	sk_flush_backlog(sk);
	if (sk->sk_state != TCP_ESTABLISHED)
		return false;
	/* Not by tcp_set_state(), which would take it out of the hash table. */
	smp_store_release(&sk->sk_state, TCP_CLOSE);
	return true;
}

void soft_sk_thaw(struct sock *sk)
{
	lock_sock(sk);
	/* As inet_sk_state_store() does it, which is not exported. */
	smp_store_release(&sk->sk_state, TCP_ESTABLISHED);
	release_sock(sk);
}

/* With the lock held throughout: a live socket would send what it has. */
void soft_sk_reset_frozen(struct sock *sk)
{
	lock_sock(sk);
	/* As in soft_sk_thaw(). */
	smp_store_release(&sk->sk_state, TCP_ESTABLISHED);
	sk->sk_prot->disconnect(sk, 0);
	release_sock(sk);
}

/* The buffer behind @skb, or the first one, of those that are not acknowledged. */
struct sk_buff *soft_frozen_next(const struct sock *sk, struct sk_buff *skb)
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

u32 soft_frozen_seq(const struct sk_buff *skb)
{
	return TCP_SKB_CB(skb)->seq;
}

/*
 * Sends what the frozen @skb has from the byte @from on; returns how much of it TCP
 * took. Nobody writes to the pages, or they have a mark.
 */
int soft_sk_send_again(struct sock *sk, struct sk_buff *skb, u32 from,
		       bool more)
{
	const struct skb_shared_info *info = skb_shinfo(skb);
	struct bio_vec bvec[MAX_SKB_FRAGS];
	unsigned int i, nr = 0;
	u32 head, size;
	size_t len = 0;

	head = skb_headlen(skb);
	if (from < head)
		return soft_sk_send_bytes(sk, skb->data + from, head - from,
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
	return soft_sk_send_pages(sk, bvec, nr, len, more, skb_zcopy(skb));
}
