// SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause

//! Receive queues, shared ones included.

use super::{
    store_list,
    Ring,
    SGE_WORDS,
    VALID, //
};
use crate::sys::{
    abi::MAX_SGE,
    Errno,
    Offer,
    Sge, //
};
use core::sync::atomic::Ordering::{
    Acquire,
    Relaxed,
    Release, //
};

/// Words of an element: `struct siw_rqe`.
const WORDS: usize = 2 + MAX_SGE * SGE_WORDS;

/// A receive queue.
pub(crate) struct Recvs {
    ring: Ring<WORDS>,
    /// Index of the next element; wraps.
    put: u32,
}

impl Recvs {
    /// Maps a queue, whose next element is `put`.
    pub(crate) fn map(offer: &Offer, put: u32) -> Result<Self, Errno> {
        Ok(Self {
            ring: Ring::map(offer, 0)?,
            put,
        })
    }

    /// Appends a work request. `EINVAL` if it has too many elements, `ENOMEM` if the queue is full.
    pub(crate) fn push(&mut self, id: u64, sges: &[Sge]) -> Result<(), Errno> {
        if sges.len() > MAX_SGE {
            return Err(Errno::EINVAL);
        }
        let num = u64::try_from(sges.len()).map_err(|_| Errno::EINVAL)?;
        let [wr_id, head, list @ ..] = self.ring.element(self.put).ok_or(Errno::EPROTO)?;
        // The driver has read the element that was here.
        if head.load(Acquire) & VALID != 0 {
            return Err(Errno::ENOMEM);
        }
        wr_id.store(id, Relaxed);
        store_list(list, sges);
        head.store(VALID | (num << 16), Release);
        self.put = self.put.wrapping_add(1);
        Ok(())
    }
}
