// SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause

//! Queues in memory that is shared with the kernel.
//!
//! An element is a few 64-bit words. One of them, the head, has flags that say whose it is: with
//! `VALID` it is the consumer's of the queue, without it the producer's. The driver's side is
//! `rust/soft/mem/ring.rs`. Both sides follow this protocol:
//!
//! - The producer fills in the other words, then stores the head with `VALID` (Release).
//! - The consumer sees `VALID` (Acquire), reads the other words, and clears the flags (Release).
//!
//! The other side can break the protocol at any time. So a word is read once, and no number that
//! was read is used as an index or a length.

#![forbid(unsafe_code)]

mod completions;
mod recvs;
mod sends;
#[cfg(test)]
pub(crate) mod tests;

pub(crate) use self::{
    completions::{
        Completions,
        Entry,
        Notifier, //
    },
    recvs::Recvs,
    sends::{
        Payload,
        Sends,
        Wqe, //
    },
};

use crate::sys::{
    abi::wqe,
    Errno,
    Offer,
    Sge,
    Shared, //
};
use core::sync::atomic::{
    AtomicU64,
    Ordering::Relaxed, //
};

// Flags are in the low bits of a head.
const _: () = assert!(cfg!(target_endian = "little"));

const VALID: u64 = wqe::VALID as u64;

/// Elements of `WORDS` words each, and perhaps others behind them.
struct Ring<const WORDS: usize> {
    memory: Shared,
    /// The number of elements, a power of two, less one.
    mask: u32,
}

impl<const WORDS: usize> Ring<WORDS> {
    /// Maps the elements, and `more` words behind them. `EPROTO` if the offer makes no sense.
    fn map(offer: &Offer, more: usize) -> Result<Self, Errno> {
        // Indices wrap at 2^32.
        if !offer.entries.is_power_of_two() {
            return Err(Errno::EPROTO);
        }
        let words = usize::try_from(offer.entries)
            .ok()
            .and_then(|entries| entries.checked_mul(WORDS)?.checked_add(more))
            .ok_or(Errno::EPROTO)?;
        Ok(Self {
            memory: Shared::map(offer, words)?,
            mask: offer.entries.wrapping_sub(1),
        })
    }

    /// Element `index`, modulo their number.
    fn element(&self, index: u32) -> Option<&[AtomicU64; WORDS]> {
        let start = usize::try_from(index & self.mask)
            .ok()?
            .checked_mul(WORDS)?;
        self.memory.get(start..)?.first_chunk()
    }

    /// The words behind the elements.
    fn rest(&self) -> &[AtomicU64] {
        let elements = usize::try_from(self.mask).map_or(usize::MAX, |mask| mask.saturating_add(1));
        self.memory
            .get(elements.saturating_mul(WORDS)..)
            .unwrap_or_default()
    }
}

/// Words of an [`Sge`].
const SGE_WORDS: usize = size_of::<Sge>() / size_of::<u64>();

/// Stores a list; what does not fit is left out.
fn store_list(words: &[AtomicU64], list: &[Sge]) {
    for (to, sge) in words.chunks_exact(SGE_WORDS).zip(list) {
        if let [addr, rest] = to {
            addr.store(sge.addr, Relaxed);
            let (length, lkey) = (u64::from(sge.length), u64::from(sge.lkey));
            rest.store(length | (lkey << 32), Relaxed);
        }
    }
}
