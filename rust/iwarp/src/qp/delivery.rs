// SPDX-License-Identifier: GPL-2.0

//! When a work request that has been handed to TCP is finished: one FIFO per queue pair, popped in
//! order.
//!
//! A copied request is finished at the handoff. A request sent by reference is finished when two
//! conditions hold. The peer's TCP has acknowledged its last byte: until then its memory may be
//! sent again. And nothing on this host refers to the memory any more: a peer may acknowledge what
//! has not been sent. A Read is finished when its response is in place. Order is kept for all: an
//! entry is only finished when those before it are (RFC 5040 5.5, rule 15).

/// How to tell what the peer has acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Rule {
    /// Highest sequence number: the first unacknowledged byte is not before the one that was next
    /// when the request had been handed over.
    Hsn,
    /// Expected queue length: TCP has no more queued than what was handed over behind the request.
    Eql,
}

/// The sender's side of TCP, both read at one time: sequence numbers of the first byte that the
/// peer has not acknowledged, and of the next one that TCP will take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sent {
    /// `snd_una`.
    pub una: u32,
    /// `write_seq`.
    pub next: u32,
}

impl Sent {
    /// Bytes that are not acknowledged.
    pub const fn queued(self) -> u32 {
        self.next.wrapping_sub(self.una)
    }
}

/// How far a stream has got, in bytes from its beginning.
///
/// Positions have 64 bits. TCP's sequence numbers wrap, so only the distance of two of them counts.
/// The result is right even if nobody has looked for a long time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Progress {
    rule: Rule,
    handed: u64,
    /// The sequence number behind that.
    next: u32,
    acked: u64,
}

impl Progress {
    /// Progress of a new stream.
    pub const fn new(rule: Rule) -> Self {
        Self {
            rule,
            handed: 0,
            next: 0,
            acked: 0,
        }
    }

    /// TCP has taken everything up to `upto`; its next byte is `next`.
    pub fn handed(&mut self, upto: u64, next: u32) {
        self.handed = upto;
        self.next = next;
    }

    /// What TCP has sent now.
    ///
    /// If TCP has taken more than [`Self::handed`] knows of, or bytes that are none of the
    /// stream's, this errs to the safe side. Older numbers change nothing.
    pub fn sent(&mut self, sent: Sent) {
        let missing = match self.rule {
            // Less than half of all numbers are ever under way, so more means that it is behind.
            Rule::Hsn => match self.next.wrapping_sub(sent.una) {
                behind @ 0..=0x7fff_ffff => behind,
                _ => 0,
            },
            Rule::Eql => sent.queued(),
        };
        let acked = self.handed.saturating_sub(u64::from(missing));
        self.acked = self.acked.max(acked);
    }
}

/// What decides about the entry at the head of the FIFO.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Position behind its last byte; `u64::MAX` as long as not all of it is encoded.
    pub end: u64,
    /// It is not done before the peer has acknowledged its last byte.
    pub awaits_ack: bool,
    /// It is a Read whose response is not complete, or in the control pipeline.
    pub under_way: bool,
    /// TCP, a queue or a device still refers to its memory.
    pub held: bool,
}

/// Whether the entry at the head may be popped.
///
/// The comparison is not strict: when all is acknowledged, that is up to the end of the last entry.
pub const fn may_retire(entry: &Entry, progress: &Progress) -> bool {
    let reached = if entry.awaits_ack {
        progress.acked
    } else {
        progress.handed
    };
    entry.end <= reached && !entry.under_way && !entry.held
}

/// Whether the entry at the head waits for nothing but its memory.
pub const fn is_only_held(entry: &Entry, progress: &Progress) -> bool {
    let free = Entry {
        held: false,
        ..*entry
    };
    entry.held && may_retire(&free, progress)
}
