// SPDX-License-Identifier: GPL-2.0

//! Bytes of a stream that TCP took on connections that have been given up, and that may not have
//! arrived.
//!
//! TCP keeps what it sends until it is acknowledged. So when a connection is given up, its queues
//! have exactly the bytes that another connection has to send again. They stay where they are: the
//! socket is [frozen](Frozen), and TCP gets references of its own to the pages. Memory of others
//! keeps its mark.
//!
//! C header: [`include/net/tcp.h`](srctree/include/net/tcp.h)

use crate::tcp::frozen::Frozen;
use base::bindings;
use core::ptr::null_mut;
use kernel::prelude::*;

/// Part of what the queues of a frozen socket have.
///
/// # Invariants
///
/// `skb` is null only if `left` is 0. Else it is in a queue of the socket; `from` is less than its
/// length, and `left` bytes from there on are in it and behind it.
struct Part {
    socket: Frozen,
    skb: *mut bindings::sk_buff,
    from: u32,
    left: u64,
}

// SAFETY: The buffers are of no particular thread, and the socket keeps them.
unsafe impl Send for Part {}
// SAFETY: As above; what a shared one gives is numbers.
unsafe impl Sync for Part {}

/// Bytes to be sent again.
pub struct Replay {
    /// The last one comes first.
    parts: KVec<Part>,
}

impl Replay {
    /// Nothing.
    pub const fn new() -> Self {
        Self { parts: KVec::new() }
    }

    /// Puts the last `len` bytes that TCP took on a connection before all that is here. Returns the
    /// connection if there is no memory.
    pub fn put_first(&mut self, socket: Frozen, len: u64) -> Result<(), Frozen> {
        if self.parts.reserve(1, GFP_KERNEL).is_err() {
            return Err(socket);
        }
        // INVARIANT: Nothing is left until it is found.
        let mut part = Part {
            socket,
            skb: null_mut(),
            from: 0,
            left: 0,
        };
        part.seek(len);
        // There is room, so this cannot fail.
        let _ = self.parts.push(part, GFP_KERNEL);
        self.forget_sent();
        Ok(())
    }

    /// The number of bytes.
    pub fn left(&self) -> u64 {
        self.parts.iter().map(|part| part.left).sum()
    }

    /// Whether there is nothing. In any context.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }

    /// Leaves out the first `len` bytes.
    pub fn skip(&mut self, mut len: u64) {
        while let (Some((_, _, run)), true) = (self.next(), len != 0) {
            let run = u64::from(run).min(len);
            self.took(run as usize);
            len = len.saturating_sub(run);
        }
    }

    /// The first bytes: a buffer, the place in it, and their number.
    pub(super) fn next(&self) -> Option<(*mut bindings::sk_buff, u32, u32)> {
        let part = self.parts.last()?;
        Some((part.skb, part.from, part.run()))
    }

    /// Removes the first `len` bytes, no more than [`Self::next`] has.
    pub(super) fn took(&mut self, len: usize) {
        if let Some(part) = self.parts.last_mut() {
            part.took(len as u32);
        }
        self.forget_sent();
    }

    /// Lets go of connections of which nothing is left.
    fn forget_sent(&mut self) {
        while self.parts.last().is_some_and(|part| part.left == 0) {
            drop(self.parts.pop());
        }
    }
}

impl Part {
    /// The buffer behind `skb`, or the first one.
    fn after(&self, skb: *mut bindings::sk_buff) -> *mut bindings::sk_buff {
        // SAFETY: The socket is frozen, so its queues do not change; `skb` is null or in one.
        unsafe { bindings::soft_frozen_next(self.socket.socket().handle().sk(), skb) }
    }

    fn skb_len(skb: *mut bindings::sk_buff) -> u32 {
        if skb.is_null() {
            return 0;
        }
        // SAFETY: Not null: it is in a queue of the frozen socket.
        unsafe { bindings::skb_len(skb) }
    }

    /// Goes to the last `len` bytes of the queues.
    fn seek(&mut self, len: u64) {
        let queued = self.socket.socket().sent();
        let len = len.min(queued.queued().into());
        let first = queued.next.wrapping_sub(len as u32);
        let mut skb = self.after(null_mut());
        while !skb.is_null() {
            // SAFETY: Not null: it is in a queue of the frozen socket.
            let from = first.wrapping_sub(unsafe { bindings::soft_frozen_seq(skb) });
            // The first buffer may begin with bytes that are acknowledged.
            if from < Self::skb_len(skb) {
                // INVARIANT: The queues have all bytes from `snd_una` to `write_seq`.
                (self.skb, self.from, self.left) = (skb, from, len);
                return;
            }
            skb = self.after(skb);
        }
    }

    /// The bytes in the first buffer.
    fn run(&self) -> u32 {
        let here = Self::skb_len(self.skb).saturating_sub(self.from);
        u32::try_from(self.left).map_or(here, |left| here.min(left))
    }

    /// Removes the first `len` bytes, which are in the first buffer.
    fn took(&mut self, len: u32) {
        let len = len.min(self.run());
        self.from = self.from.saturating_add(len);
        self.left = self.left.saturating_sub(len.into());
        while self.left != 0 && self.from >= Self::skb_len(self.skb) {
            self.from = 0;
            self.skb = self.after(self.skb);
            if self.skb.is_null() {
                // It does not happen; without it the loop would begin again.
                self.left = 0;
            }
        }
    }
}
