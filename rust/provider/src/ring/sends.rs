// SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause

//! Send queues.

use super::{
    store_list,
    Ring,
    SGE_WORDS,
    VALID, //
};
use crate::sys::{
    abi::{
        wqe,
        MAX_INLINE,
        MAX_SGE, //
    },
    Errno,
    Offer,
    Sge, //
};
use core::sync::atomic::{
    fence,
    AtomicU64,
    Ordering::{
        Acquire,
        Relaxed,
        Release,
        SeqCst, //
    }, //
};

/// Words of an element: `struct siw_sqe`.
const WORDS: usize = 3 + MAX_SGE * SGE_WORDS;

/// What a work request sends, or where a Read puts it.
#[derive(Clone, Copy)]
pub(crate) enum Payload<'a> {
    /// Registered memory: [`MAX_SGE`] elements at most.
    List(&'a [Sge]),
    /// These bytes: [`MAX_INLINE`] at most. Behind them immediate data, or 0.
    Inline(&'a [u8], u32),
}

/// An element of a send queue, before it is laid out in words.
#[derive(Clone, Copy)]
pub(crate) struct Wqe<'a> {
    /// The number that the program gave it.
    pub(crate) id: u64,
    /// An operation of [`op`](crate::sys::abi::op).
    pub(crate) op: u8,
    /// Flags of [`wqe`] other than `VALID` and `INLINE`.
    pub(crate) flags: u16,
    /// Address and key at the peer, 0 and the key to invalidate, or length and key of a window.
    pub(crate) remote: (u64, u32),
    /// The local side.
    pub(crate) payload: Payload<'a>,
}

impl Wqe<'_> {
    /// The second word of the element, without `VALID`. `EINVAL` if there are too many elements or
    /// bytes.
    fn head(&self) -> Result<u64, Errno> {
        let (num, flags) = match self.payload {
            Payload::List(list) if list.len() <= MAX_SGE => (list.len(), 0),
            Payload::Inline(bytes, _) if bytes.len() <= MAX_INLINE => (1, wqe::INLINE),
            _ => return Err(Errno::EINVAL),
        };
        let num = u64::try_from(num).map_err(|_| Errno::EINVAL)?;
        Ok(u64::from(flags | self.flags)
            | (num << 16)
            | (u64::from(self.op) << 24)
            | (u64::from(self.remote.1) << 32))
    }
}

/// The send queue of a queue pair.
///
/// Elements are filled in one after the other, and then published together, or not at all.
pub(crate) struct Sends {
    ring: Ring<WORDS>,
    /// Index of the first element that is not published; wraps.
    put: u32,
    /// The number of elements from there on that are filled in.
    filled: u32,
}

impl Sends {
    /// Maps a queue.
    pub(crate) fn map(offer: &Offer) -> Result<Self, Errno> {
        Ok(Self {
            ring: Ring::map(offer, 0)?,
            put: 0,
            filled: 0,
        })
    }

    /// Appends a work request, of which the driver knows nothing before [`Self::publish`]. `ENOMEM`
    /// if the queue is full.
    pub(crate) fn push(&mut self, wr: &Wqe<'_>) -> Result<(), Errno> {
        let new = wr.head()?;
        // The element would be the first of those that are filled in.
        if self.filled > self.ring.mask {
            return Err(Errno::ENOMEM);
        }
        let index = self.put.wrapping_add(self.filled);
        let [id, head, remote, list @ ..] = self.ring.element(index).ok_or(Errno::EPROTO)?;
        // The driver has read the element that was here.
        if head.load(Acquire) & VALID != 0 {
            return Err(Errno::ENOMEM);
        }
        id.store(wr.id, Relaxed);
        remote.store(wr.remote.0, Relaxed);
        match wr.payload {
            Payload::List(sges) => store_list(list, sges),
            Payload::Inline(bytes, immediate) => store_inline(list, bytes, immediate),
        }
        head.store(new, Relaxed);
        self.filled = self.filled.saturating_add(1);
        Ok(())
    }

    /// Gives the driver the elements that are filled in, in their order.
    pub(crate) fn publish(&mut self) {
        for _ in 0..self.filled {
            if let Some([_, head, ..]) = self.ring.element(self.put) {
                head.store(head.load(Relaxed) | VALID, Release);
            }
            self.put = self.put.wrapping_add(1);
        }
        self.filled = 0;
    }

    /// Forgets the elements that are filled in.
    pub(crate) fn discard(&mut self) {
        self.filled = 0;
    }

    /// The index of the first element that is not published.
    pub(crate) fn position(&self) -> u32 {
        self.put
    }

    /// Whether the driver has to be told of the elements from `first` on.
    ///
    /// If it has not taken the element before them, it will find them as well: it clears flags
    /// before it looks for the next element. And here the flags are read after the elements were
    /// stored, with full barriers in between on either side.
    pub(crate) fn needs_doorbell(&self, first: u32) -> bool {
        // The one before is one of the new elements.
        if self.put.wrapping_sub(first) > self.ring.mask {
            return true;
        }
        fence(SeqCst);
        let before = self.ring.element(first.wrapping_sub(1));
        before.is_none_or(|[_, head, ..]| head.load(Relaxed) & VALID == 0)
    }

    /// Takes back what was published from `first` on, if the driver has not taken it. Returns the
    /// number of elements that it has.
    ///
    /// A driver that takes one meanwhile may still execute it.
    pub(crate) fn take_back(&mut self, first: u32) -> u32 {
        while self.put != first {
            let last = self.put.wrapping_sub(1);
            let Some([_, head, ..]) = self.ring.element(last) else {
                break;
            };
            let seen = head.load(Relaxed);
            if seen & VALID == 0 || head.compare_exchange(seen, 0, Relaxed, Relaxed).is_err() {
                break;
            }
            self.put = last;
        }
        self.put.wrapping_sub(first)
    }
}

/// Stores payload behind the first element of the list, which has its length and immediate data.
fn store_inline(words: &[AtomicU64], bytes: &[u8], immediate: u32) {
    let [_, length, rest @ ..] = words else {
        return;
    };
    let len = u32::try_from(bytes.len()).unwrap_or(0);
    length.store(u64::from(len) | (u64::from(immediate) << 32), Relaxed);
    for (to, from) in rest.iter().zip(bytes.chunks(size_of::<u64>())) {
        let mut word = [0; size_of::<u64>()];
        for (to, from) in word.iter_mut().zip(from) {
            *to = *from;
        }
        to.store(u64::from_le_bytes(word), Relaxed);
    }
}
