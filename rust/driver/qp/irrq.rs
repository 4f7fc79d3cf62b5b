// SPDX-License-Identifier: GPL-2.0

//! Inbound Read Request Queue (IRRQ): the peer's Reads and atomic operations that await a response,
//! at most IRD of them.

use super::fifo::Ring;
use crate::tpt::{
    mem_ref::MemRef,
    touch::Touch, //
};
use iwarp::{
    error::{
        Error,
        Result, //
    },
    qp::credits::ReadCredits,
    wire::rdmap::{
        AtomicRequest,
        ReadRequest, //
    }, //
};

/// What the peer asks for.
pub(super) enum Asked {
    /// A Read of this memory; `None` for a Read of length 0.
    Read(ReadRequest, Option<MemRef>),
    /// An atomic operation in this memory. It is executed when its turn to be answered comes, after
    /// the Reads before it (RFC 7306 7).
    Atomic(AtomicRequest, MemRef),
}

/// A Read Request or an Atomic Request of the peer.
pub(super) struct Request {
    pub(super) msn: u32,
    pub(super) asked: Asked,
    /// The memory is a one-touch entry: the end of the response invalidates it.
    pub(super) touch: Option<Touch>,
}

/// The IRRQ. `Rank::Irrq`.
pub(super) struct Irrq {
    ring: Ring<Request>,
    credits: ReadCredits,
}

impl Irrq {
    pub(super) fn empty() -> Self {
        Self {
            ring: Ring::empty(),
            credits: ReadCredits::new(0, 0),
        }
    }

    /// For `ird` requests. Sleeps.
    pub(super) fn new(ird: u16) -> kernel::error::Result<Self> {
        Ok(Self {
            ring: Ring::new(u32::from(ird))?,
            credits: ReadCredits::new(ird, 0),
        })
    }

    /// Enters a request, or gives it back. More than IRD, the depth agreed at connection set-up,
    /// are an error of the peer.
    pub(super) fn push(&mut self, request: Request) -> Result<(), (Error, Request)> {
        if let Err(error) = self.credits.accept() {
            return Err((error, request));
        }
        let pushed = self.ring.push(request);
        pushed.map_err(|request| (Error::NoReadSlot, request))?;
        Ok(())
    }

    /// The next request to answer. It keeps its slot until [`Self::responded`].
    pub(super) fn take(&mut self) -> Option<Request> {
        self.ring.pop()
    }

    /// The response of a request that was taken is encoded.
    pub(super) fn responded(&mut self) {
        self.credits.responded();
    }

    pub(super) fn len(&self) -> u32 {
        self.ring.len()
    }
}
