// SPDX-License-Identifier: GPL-2.0

//! The state of the FIFO, for those who do not lock it.

/// What is read of the FIFO without its lock, in one word.
#[derive(Clone, Copy)]
pub(in crate::qp) struct Glance(pub(super) u64);

impl Glance {
    /// The FIFO is empty, all completions are posted, and none failed.
    pub(super) const QUIET: u64 = 1 << 63;
    /// An item waits for an acknowledgement, or will.
    pub(super) const UNACKED: u64 = 1 << 62;
    /// Work requests are flushed instead of executed.
    pub(super) const DRAINED: u64 = 1 << 61;
    const LEN: u64 = u32::MAX as u64;

    /// Items in the FIFO.
    pub(super) fn len(self) -> u32 {
        (self.0 & Self::LEN) as u32
    }

    /// Whether all work requests have completed with success. Only
    /// [`push`](super::SendCompletions::push) ends that.
    pub(in crate::qp) fn is_quiet(self) -> bool {
        self.0 & Self::QUIET != 0
    }

    /// Whether work requests are flushed instead of executed.
    pub(in crate::qp) fn is_drained(self) -> bool {
        self.0 & Self::DRAINED != 0
    }

    pub(super) fn awaits_ack(self) -> bool {
        self.0 & Self::UNACKED != 0
    }
}
