// SPDX-License-Identifier: GPL-2.0

//! Memory that messages are sent from by reference, and the end of that.
//!
//! TCP keeps the pages of such a message until the peer has acknowledged it, and sends them again
//! with the contents that they have then. So the owner gets the memory back only when no buffer
//! refers to it any more. A peer that acknowledges nothing loses its connection instead.
//!
//! What can be invalidated without a wait, a window or a one-touch region, is not lent.

use super::entry::Entry;
use crate::Device;
use base::context;
use iwarp::mem::access::PdId;
use kernel::{
    alloc::flags::GFP_KERNEL_ACCOUNT,
    prelude::*,
    sync::{
        atomic::{
            Acquire,
            Atomic,
            Relaxed,
            Release, //
        },
        Arc, //
    }, //
};

/// How long peers may take to acknowledge what has been sent, in milliseconds.
const PATIENCE_MS: u32 = 1000;

/// The time for the end of the connections whose peers did not, in rounds of so many milliseconds.
const ROUNDS: u32 = 10;
const ROUND_MS: u32 = 50;

/// The memory of a region, from one registration to the next.
pub(crate) struct Lent {
    /// Messages that refer to it.
    out: Atomic<u64>,
    /// Protection domain of the region. Only its queue pairs borrow the memory.
    pub(crate) pd: PdId,
}

impl Lent {
    pub(super) fn new(pd: PdId) -> Result<Arc<Self>> {
        let out = Atomic::new(0);
        Ok(Arc::new(Self { out, pd }, GFP_KERNEL_ACCOUNT)?)
    }

    /// Lends the memory to a message. The caller is inside of the gate, and the message gives it
    /// back with [`Self::give_back`]. Any context.
    pub(super) fn lend(self: &Arc<Self>) -> Arc<Self> {
        // Each of them has memory of its own, so 64 bits do not overflow.
        self.out.fetch_add(1, Relaxed);
        self.clone()
    }

    /// Nothing of the message refers to the memory any more. Any context.
    pub(crate) fn give_back(&self) {
        // The owner writes to the memory afterwards.
        self.out.fetch_sub(1, Release);
    }

    fn is_back(&self) -> bool {
        self.out.load(Acquire) == 0
    }

    /// Waits until the memory is given back. It is not lent any more: its gate is closed, or it has
    /// been registered anew. Connections whose peers do not acknowledge what refers to it end.
    ///
    /// The wait is bounded. What is left then waits in a queue of this machine, behind which no
    /// connection is. Process context, with no lock of the driver held.
    pub(super) fn call_in(&self, dev: &Device) {
        if self.is_back() {
            return;
        }
        if context::exiting() {
            // Its connections end in any case, and each may take a second; so all take it together.
            dev.qps.for_each(|_, qp| qp.end_borrower(self));
        }
        if context::poll(PATIENCE_MS, 1, || self.is_back()) {
            return;
        }
        for _ in 0..ROUNDS {
            // Each time, because one may just go over to another path.
            dev.endpoints.for_each_qp(|qp| qp.call_in(self));
            if context::poll(ROUND_MS, 1, || self.is_back()) {
                return;
            }
        }
    }
}

impl Entry {
    /// The memory, as far as it may be lent. Process context.
    pub(super) fn lent(&self) -> Option<Arc<Lent>> {
        self.gate.update(|state, _| state.lent.clone())
    }
}
