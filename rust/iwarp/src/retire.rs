// SPDX-License-Identifier: GPL-2.0

//! When a work request that has been handed to TCP is finished: one FIFO per queue pair, popped in
//! order.
//!
//! A copied request is finished at the handoff. One sent by reference is finished when the peer's
//! TCP has acknowledged its last byte, since until then its memory may be sent again. A Read is
//! finished when its response is in place. Order is kept for all: an entry is only finished when
//! those before it are (RFC 5040 5.5, rule 15).

/// Extends TCP's 32-bit sequence numbers to 64 bits.
///
/// Right as long as it sees the number at least once per 2^31 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extend64(u64);

impl Extend64 {
    /// Starts at `seq`.
    pub fn new(seq: u32) -> Self {
        Self(u64::from(seq))
    }

    /// Takes in a newer number, and returns the extended value. An older one changes nothing:
    /// another CPU may have been faster.
    pub fn update(&mut self, seq: u32) -> u64 {
        self.0 = self.peek(seq).max(self.0);
        self.0
    }

    /// The extended value of `seq`, which is within 2^31 of the current one, without taking it in.
    pub fn peek(&self, seq: u32) -> u64 {
        let [_, _, _, _, a, b, c, d] = self.0.to_be_bytes();
        let ahead = seq.wrapping_sub(u32::from_be_bytes([a, b, c, d]));
        if ahead < 1 << 31 {
            self.0.wrapping_add(u64::from(ahead))
        } else {
            self.0.saturating_sub(u64::from(ahead.wrapping_neg()))
        }
    }

    /// The current value.
    pub const fn get(&self) -> u64 {
        self.0
    }
}

/// What decides about the entry at the head of the FIFO.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its payload was handed to TCP by reference.
    pub zero_copy: bool,
    /// Sequence number behind its last byte, extended: `write_seq` right after the handoff.
    pub hsn: u64,
    /// It is a Read whose response is not complete.
    pub read_pending: bool,
    /// TCP, or a device below it, still refers to the payload.
    pub ubuf_busy: bool,
}

/// Whether the entry at the head may be popped, with everything before `una` acknowledged.
///
/// When all is acknowledged `una` equals the `hsn` of the last entry, so the comparison is not
/// strict. With `strict` a reference that is left in a device's queue counts too; otherwise it only
/// keeps the memory pinned.
pub const fn may_retire(entry: &Entry, una: u64, strict: bool) -> bool {
    if entry.read_pending {
        return false;
    }
    !entry.zero_copy || (una >= entry.hsn && !(strict && entry.ubuf_busy))
}

/// Whether a request needs no place in the FIFO at all: nothing is before it and nothing holds it.
pub const fn completes_at_handoff(fifo_is_empty: bool, entry: &Entry) -> bool {
    fifo_is_empty && !entry.zero_copy && !entry.read_pending
}
