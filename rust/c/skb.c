// SPDX-License-Identifier: GPL-2.0
/*
 * Received bytes, read in the buffers of TCP.
 *
 * skb_seq_read() and skb_copy_bits() find a byte by a walk from the front of the buffer.
 * A buffer has many FPDUs, so that would be quadratic. Here the walk goes on where it
 * ended, and beyond the buffer that tcp_read_sock() has passed, in the receive queue.
 * tcp_recv_skb() walks from the front of that queue, and frees all before the byte.
 *
 * It breaks with a change of how a buffer lists its pieces (struct skb_shared_info), and
 * of what TCP_SKB_CB() holds for those in the receive queue.
 */

#include <net/tcp.h>

#include "rust_c.h"

/*
 * How much has been received from the byte @at of @skb on, which is in the receive
 * queue.
 */
u32 soft_rx_behind(const struct sock *sk, const struct sk_buff *skb, u32 at)
{
	/* A reset shuts down, too, and has no place in the sequence. */
	u32 fin = sock_flag(sk, SOCK_DONE);

	return tcp_sk(sk)->rcv_nxt - fin - (TCP_SKB_CB(skb)->seq + at);
}

/*
 * The buffer that has the byte @at, as counted in @skb, and where: that one or one
 * behind it, which may begin with what is in it, too.
 */
struct sk_buff *soft_rx_next(struct sock *sk, struct sk_buff *skb,
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

/*
 * The byte @at of @skb; @len gets the length of the rest of its piece.
 * @piece: where the search begins, unless it is behind the byte; gets its piece
 * NULL: the byte is behind the end, not readable, or at or behind a buffer of the
 * list that has a list itself. There is no @piece then.
 */
const void *soft_skb_at(const struct sk_buff *skb, u32 at, u32 *len,
			struct soft_skb_piece *piece)
{
	BUILD_BUG_ON(IS_ENABLED(CONFIG_HIGHMEM));
	if (!piece->part || at < piece->start)
		*piece = (struct soft_skb_piece){ .part = skb };
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
 * @first: as @piece of soft_skb_at(), of the first byte
 */
int soft_skb_copy(const struct sk_buff *skb, u32 at, void *to, u32 len,
		  struct soft_skb_piece *first)
{
	struct soft_skb_piece piece = *first;
	const void *from;
	u32 done, run;

	for (done = 0; done < len; done += run) {
		from = soft_skb_at(skb, at + done, &run, &piece);
		if (!from)
			return skb_copy_bits(skb, at, to, len);
		if (!done)
			*first = piece;
		run = min(run, len - done);
		memcpy(to + done, from, run);
	}
	return 0;
}
