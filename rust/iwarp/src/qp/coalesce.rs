// SPDX-License-Identifier: GPL-2.0

//! Whether a doorbell is answered at once or a moment later.
//!
//! Small messages that are sent one by one cost a system call, a segment and an acknowledgement
//! each. A moment later there may be more of them, which then leave together. A program whose last
//! request is still in the queue rings no doorbell for the next one. Network cards moderate their
//! interrupts in the same way.
//!
//! A delay must not hold up a program that waits for the peer's answer. So doorbells are answered
//! later only after a row of small turns during which the peer has sent nothing, and only as long
//! as the delay gathers enough requests. If it does not, the next row has to be longer. Turns are
//! no row if the clock ticks more often than doorbells ring: then a delay gathers nothing.

/// Bytes of a turn that is still small: a larger one gains nothing from a delay.
pub const SMALL: usize = 8 * 1024;

/// Requests that a delay has to gather.
pub const ENOUGH: u32 = 8;

/// How many turns make a row: at first, and at the most.
pub const ROW: u32 = 16;
/// See [`ROW`].
pub const LONGEST_ROW: u32 = 4096;

/// What is known of the posts of one queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gather {
    row: u32,
    /// The tick of its first turn.
    began: u32,
    needed: u32,
    /// FPDUs that had been received when the last turn ended.
    received: u64,
}

/// A turn that a doorbell has brought about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Turn {
    /// It came later than its doorbell.
    pub later: bool,
    /// Work requests taken.
    pub requests: u32,
    /// Bytes sent.
    pub bytes: usize,
    /// FPDUs received so far.
    pub received: u64,
    /// What the clock says, in ticks; wraps.
    pub tick: u32,
}

impl Gather {
    /// State of a queue pair that has posted nothing.
    pub const fn new() -> Self {
        Self {
            row: 0,
            began: 0,
            needed: ROW,
            received: 0,
        }
    }

    /// A turn has ended: whether the next doorbell is answered later.
    pub fn ended(&mut self, turn: Turn) -> bool {
        let answered = turn.received != self.received;
        self.received = turn.received;
        if turn.later {
            let enough = turn.requests >= ENOUGH;
            self.row = 0;
            self.needed = match enough {
                true => ROW,
                false => self.needed.saturating_mul(2).min(LONGEST_ROW),
            };
            return enough;
        }
        if answered || turn.requests >= ENOUGH || turn.bytes > SMALL {
            self.row = 0;
            return false;
        }
        if turn.tick.wrapping_sub(self.began) >= self.row {
            self.row = 0;
            self.began = turn.tick;
        }
        self.row = self.row.saturating_add(1);
        self.row >= self.needed
    }
}

impl Default for Gather {
    fn default() -> Self {
        Self::new()
    }
}
