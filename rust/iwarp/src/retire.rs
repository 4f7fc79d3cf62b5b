// SPDX-License-Identifier: GPL-2.0

//! When a work request that has been handed to TCP is finished: one FIFO per queue pair, popped in
//! order.
//!
//! A copied request is finished at the handoff. One sent by reference is finished when the peer's
//! TCP has acknowledged its last byte, since until then its memory may be sent again. A Read is
//! finished when its response is in place. Order is kept for all: an entry is only finished when
//! those before it are (RFC 5040 5.5, rule 15).

/// How far a stream has got, in bytes from its beginning.
///
/// Positions have 64 bits; what TCP's sequence numbers, which wrap, are asked for is only how many
/// bytes are in its queues. That is right also if it is not looked at for a long time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    handed: u64,
    acked: u64,
}

impl Progress {
    /// Of a new stream.
    pub const fn new() -> Self {
        Self {
            handed: 0,
            acked: 0,
        }
    }

    /// TCP has taken everything up to `upto`.
    pub fn handed(&mut self, upto: u64) {
        self.handed = upto;
    }

    /// `queued` bytes are with TCP that the peer has not acknowledged: `write_seq - snd_una`, both
    /// read at one time.
    ///
    /// If TCP has taken more than [`Self::handed`] knows of, or bytes that are none of the stream's,
    /// this errs to the safe side. An older number changes nothing.
    pub fn queued(&mut self, queued: u32) {
        let acked = self.handed.saturating_sub(u64::from(queued));
        self.acked = self.acked.max(acked);
    }
}

impl Default for Progress {
    fn default() -> Self {
        Self::new()
    }
}

/// What decides about the entry at the head of the FIFO.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Position behind its last byte; `u64::MAX` as long as not all of it is encoded.
    pub end: u64,
    /// Its payload is handed to TCP by reference.
    pub by_reference: bool,
    /// It is a Read whose response is not complete.
    pub reading: bool,
}

/// Whether the entry at the head may be popped.
///
/// When all is acknowledged, that is as far as the end of the last entry: the comparison is not
/// strict.
pub const fn may_retire(entry: &Entry, progress: &Progress) -> bool {
    let reached = if entry.by_reference {
        progress.acked
    } else {
        progress.handed
    };
    entry.end <= reached && !entry.reading
}
