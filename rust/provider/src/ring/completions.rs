// SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause

//! Completion queues.

use super::{
    Ring,
    VALID, //
};
use crate::sys::{
    abi::{
        notify,
        wqe, //
    },
    Counted,
    Errno,
    Offer,
    With, //
};
use core::sync::atomic::{
    fence,
    Ordering::{
        Acquire,
        Relaxed,
        Release,
        SeqCst, //
    }, //
};

/// Words of an element: `struct siw_cqe`.
const WORDS: usize = 4;
/// Words behind the elements: `struct siw_cq_ctrl`.
const CTRL_WORDS: usize = 1;

/// An entry of a completion queue, as the driver wrote it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Entry {
    /// The number of the work request.
    pub(crate) id: u64,
    /// An operation of [`op`](crate::sys::abi::op), or something unknown.
    pub(crate) op: u8,
    /// A status of [`status`](crate::sys::abi::status), or something unknown.
    pub(crate) status: u16,
    /// Length of the message in bytes.
    pub(crate) bytes: u32,
    /// The number of the queue pair.
    pub(crate) qp_num: u32,
    /// What came with the message.
    pub(crate) with: With,
}

/// A completion queue.
pub(crate) struct Completions {
    ring: Counted<Ring<WORDS>>,
    /// Index of the next entry; wraps.
    get: u32,
}

impl Completions {
    /// Maps a queue.
    pub(crate) fn map(offer: &Offer) -> Result<Self, Errno> {
        Ok(Self {
            ring: Counted::new(Ring::map(offer, CTRL_WORDS)?)?,
            get: 0,
        })
    }

    /// Takes the next entry, if there is one.
    pub(crate) fn take(&mut self) -> Option<Entry> {
        let [id, head, extra, qp_num] = self.ring.element(self.get)?;
        let seen = head.load(Acquire);
        if seen & VALID == 0 {
            return None;
        }
        let [flags, op, status @ .., b0, b1, b2, b3] = seen.to_le_bytes();
        let flags = u16::from(flags);
        let extra = low(extra.load(Relaxed));
        let with = if flags & wqe::WITH_IMM != 0 {
            With::Immediate(extra)
        } else if flags & wqe::REM_INVAL != 0 {
            With::Invalidate(extra)
        } else {
            With::Nothing
        };
        let entry = Entry {
            id: id.load(Relaxed),
            op,
            status: u16::from_le_bytes(status),
            bytes: u32::from_le_bytes([b0, b1, b2, b3]),
            qp_num: low(qp_num.load(Relaxed)),
            with,
        };
        // The driver may write the next entry here.
        head.store(0, Release);
        self.get = self.get.wrapping_add(1);
        Some(entry)
    }

    /// Whether there is no entry to take.
    pub(crate) fn is_empty(&self) -> bool {
        let head = self.ring.element(self.get).map(|[_, head, ..]| head);
        head.is_none_or(|head| head.load(Relaxed) & VALID == 0)
    }

    /// What asks for notifications of this queue.
    pub(crate) fn notifier(&self) -> Notifier {
        Notifier(self.ring.clone())
    }
}

/// Asks for notifications of a completion queue.
pub(crate) struct Notifier(Counted<Ring<WORDS>>);

impl Notifier {
    /// Asks for an event at the next entry, or at the next one that is solicited or has failed. A
    /// request for any entry is not weakened by one for the latter. Entries that are taken after
    /// this need no event: the driver stores an entry before it looks for requests.
    pub(crate) fn arm(&self, solicited_only: bool) {
        let mut flags = notify::SOLICITED;
        if !solicited_only {
            flags |= notify::NEXT_COMPLETION;
        }
        if let [ctrl, ..] = self.0.rest() {
            ctrl.fetch_or(flags.into(), Relaxed);
        }
        fence(SeqCst);
    }
}

/// The low half of a word.
fn low(word: u64) -> u32 {
    let [b0, b1, b2, b3, ..] = word.to_le_bytes();
    u32::from_le_bytes([b0, b1, b2, b3])
}
