// SPDX-License-Identifier: GPL-2.0

//! How many Reads may be under way in each direction (RFC 5040 5.2, RFC 6581 9.1), and what a fence
//! waits for.

use crate::error::{
    Error,
    Result, //
};

/// Counts outbound Reads against ORD and inbound ones against IRD.
#[derive(Clone, Debug)]
pub struct ReadCredits {
    ird: u16,
    ord: u16,
    outbound: u16,
    inbound: u16,
}

/// Whether a work request may start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gate {
    /// Yes.
    Go,
    /// When a Read finishes: all of ORD is in use.
    WaitSlot,
    /// When all Reads have finished: it is fenced.
    WaitFence,
    /// Never: a Read on a connection with ORD 0.
    Never,
}

impl ReadCredits {
    /// For a connection with these depths.
    pub const fn new(ird: u16, ord: u16) -> Self {
        Self {
            ird,
            ord,
            outbound: 0,
            inbound: 0,
        }
    }

    /// Whether a work request may start. The fence counts for Reads as well: all that was read
    /// before must be in place.
    pub const fn gate(&self, is_read: bool, fence: bool) -> Gate {
        if is_read && self.ord == 0 {
            return Gate::Never;
        }
        if fence && self.outbound != 0 {
            return Gate::WaitFence;
        }
        if is_read && self.outbound >= self.ord {
            return Gate::WaitSlot;
        }
        Gate::Go
    }

    /// Takes a slot for a Read Request to be sent; `false` if there is none.
    #[must_use]
    pub fn try_start(&mut self) -> bool {
        if self.outbound >= self.ord {
            return false;
        }
        self.outbound = self.outbound.saturating_add(1);
        true
    }

    /// Gives back the slot of the oldest Read: its response is complete.
    pub fn finish(&mut self) {
        self.outbound = self.outbound.saturating_sub(1);
    }

    /// Reads that wait for their response.
    pub const fn outstanding(&self) -> u16 {
        self.outbound
    }

    /// Takes a slot for a Read Request that came in; [`Error::NoReadSlot`] if the peer sends more
    /// than was agreed.
    pub fn accept(&mut self) -> Result<()> {
        if self.inbound >= self.ird {
            return Err(Error::NoReadSlot);
        }
        self.inbound = self.inbound.saturating_add(1);
        Ok(())
    }

    /// Gives back the slot of the oldest request: all of its response is encoded.
    pub fn responded(&mut self) {
        self.inbound = self.inbound.saturating_sub(1);
    }

    /// Requests that wait to be answered.
    pub const fn pending(&self) -> u16 {
        self.inbound
    }

    /// The agreed inbound depth.
    pub const fn ird(&self) -> u16 {
        self.ird
    }

    /// The agreed outbound depth.
    pub const fn ord(&self) -> u16 {
        self.ord
    }
}
