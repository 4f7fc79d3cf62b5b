// SPDX-License-Identifier: GPL-2.0

//! Whose turn it is to send: deficit round robin (Shreedhar and Varghese, SIGCOMM 1995), in bytes
//! of the stream.
//!
//! The queue pairs a datamover works for take turns. A turn adds a quantum to what a queue pair may
//! send; what it sends beyond that, because FPDUs are not divided, is taken from its next turn. A
//! context that sends at once, without a datamover, draws on the same account.
//!
//! The quantum belongs to a tenant. While other tenants wait for the datamover, the waiting queue
//! pairs of one tenant divide its quantum: more queue pairs get no more.

/// Bytes that a turn adds: a few messages of 64 KiB with their headers, so that not each of them
/// ends in the midst of a turn.
pub const QUANTUM: i32 = 256 * 1024;

/// The account of one queue pair. It counts only while others wait: a queue pair that is alone
/// sends without limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    credit: i32,
    /// Turns the datamover had given when this one's last began.
    seen: u32,
}

impl Share {
    /// A full account.
    pub const fn new() -> Self {
        Self {
            credit: QUANTUM,
            seen: 0,
        }
    }

    /// A turn begins, given by a datamover that has given `turns` so far; returns how many bytes
    /// may be sent, 0 if the queue pair has still to make up for its last turn. The quantum is
    /// divided among `sharers`, this one included.
    ///
    /// What was left of earlier turns is lost, or a queue pair with little to send would save up
    /// for a burst.
    pub fn turn(&mut self, turns: u32, sharers: u32) -> u32 {
        self.seen = turns;
        let sharers = i32::try_from(sharers).unwrap_or(i32::MAX);
        // Never 0, or a queue pair in debt would stay there.
        let quantum = QUANTUM.checked_div(sharers).unwrap_or(QUANTUM).max(1);
        self.credit = self.credit.min(0).saturating_add(quantum);
        self.left()
    }

    /// As [`Self::turn`], for a context that wants to send ahead of `waiting` other queue pairs. If
    /// all of them have had a turn since the last one of this queue pair, a turn begins. Otherwise
    /// the rest of the last turn is all there is.
    pub fn direct(&mut self, turns: u32, waiting: u32, sharers: u32) -> u32 {
        if turns.wrapping_sub(self.seen) >= waiting {
            return self.turn(turns, sharers);
        }
        self.left()
    }

    /// So many bytes were sent.
    pub fn charge(&mut self, bytes: usize) {
        let bytes = i32::try_from(bytes).unwrap_or(i32::MAX);
        self.credit = self.credit.saturating_sub(bytes);
    }

    /// Bytes that may be sent now.
    fn left(&self) -> u32 {
        u32::try_from(self.credit).unwrap_or(0)
    }
}

impl Default for Share {
    fn default() -> Self {
        Self::new()
    }
}
