// SPDX-License-Identifier: GPL-2.0

//! Outbound Read Queue (ORQ): Reads and atomic operations sent and not answered yet, at most ORD of
//! them. Reads stand for both here.
//!
//! A Read enters before TCP gets its request, because the response may arrive before the call
//! returns. Responses come in the order of the requests (RFC 5040 5.5, rule 20), so only the head
//! matters.

use super::fifo::Ring;
use crate::tpt::mem_ref::MemRef;
use iwarp::{
    mem::stag::Stag,
    qp::credits::{
        Gate,
        ReadCredits, //
    },
    rx::Expect,
    verdict::WcStatus,
    wire::{
        ddp::QN_READ,
        terminate::Terminate, //
    }, //
};
use kernel::prelude::*;

/// A Read on its way.
pub(super) struct Read {
    /// Its number in the FIFO of completions; `None` for an RTR Read.
    pub(super) seq: Option<u32>,
    pub(super) msn: u32,
    pub(super) expect: Expect,
    /// The STag of the sink; `None` for a Read of length 0.
    pub(super) stag: Option<Stag>,
    /// The sink, until the response comes; `None` for a Read of length 0.
    pub(super) sink: Option<MemRef>,
    /// Local STag to invalidate when the response is in place.
    pub(super) inval: Option<Stag>,
}

/// The ORQ. `Rank::Orq`.
pub(super) struct Orq {
    ring: Ring<Read>,
    credits: ReadCredits,
}

impl Orq {
    pub(super) fn empty() -> Self {
        Self {
            ring: Ring::empty(),
            credits: ReadCredits::new(0, 0),
        }
    }

    /// For `ord` Reads. Sleeps.
    pub(super) fn new(ord: u16) -> Result<Self> {
        Ok(Self {
            ring: Ring::new(u32::from(ord))?,
            credits: ReadCredits::new(0, ord),
        })
    }

    pub(super) fn is_empty(&self) -> bool {
        self.ring.is_empty()
    }

    pub(super) fn len(&self) -> u32 {
        self.ring.len()
    }

    /// Whether the next work request of the SQ may start.
    pub(super) fn gate(&self, is_read: bool, fence: bool) -> Gate {
        self.credits.gate(is_read, fence)
    }

    /// Enters a Read; gives it back when there is no room.
    pub(super) fn push(&mut self, read: Read) -> Result<(), Read> {
        if !self.credits.try_start() {
            return Err(read);
        }
        self.ring.push(read).map(|_| ())
    }

    /// The Read that the next response must answer.
    pub(super) fn expect(&self) -> Option<Expect> {
        self.ring.front().map(|r| r.expect)
    }

    /// Takes the sink of the oldest Read while its response comes in.
    pub(super) fn take_sink(&mut self) -> Option<MemRef> {
        self.ring.front_mut()?.sink.take()
    }

    /// Whether a Read has its sink in the entry of `stag`, or is to invalidate it.
    pub(super) fn uses(&self, stag: Stag) -> bool {
        (0..self.ring.len())
            .filter_map(|n| self.ring.get(n))
            .flat_map(|read| [read.stag, read.inval])
            .flatten()
            .any(|used| used.index() == stag.index())
    }

    /// Number of the oldest Read in the FIFO of completions.
    pub(super) fn head_seq(&self) -> Option<u32> {
        self.ring.front()?.seq
    }

    /// Takes the oldest Read, which is answered.
    pub(super) fn pop(&mut self) -> Option<Read> {
        let read = self.ring.pop()?;
        self.credits.finish();
        Some(read)
    }

    /// The Read that the peer's Terminate names, and its status.
    pub(super) fn blamed(&self, term: &Terminate) -> Option<(u32, WcStatus)> {
        let ddp = term.ddp.as_ref()?.untagged()?;
        if ddp.qn != QN_READ {
            return None;
        }
        let read = (0..self.ring.len())
            .filter_map(|n| self.ring.get(n))
            .find(|r| r.msn == ddp.msn)?;
        let atomic = matches!(read.expect, Expect::Atomic(_));
        Some((read.seq?, term.code.requester_status(atomic)))
    }
}
