// SPDX-License-Identifier: GPL-2.0

//! The FIFO of send completions: work requests complete in the order in which they were posted
//! (RFC 5040 5.5, rule 15).
//!
//! The machine owns neither the memory of the queue, nor its lock, nor the CQ. Its caller holds the
//! lock for each call and posts completions without it. One context at a time posts, or order would
//! be lost between the lock and the CQ: [`Fifo::begin`] says which. That context looks at the head
//! again before it leaves, so all others may go on.

use crate::{
    qp::delivery::{
        is_only_held,
        may_retire,
        Entry,
        Progress,
        Rule,
        Sent, //
    },
    verdict::WcStatus, //
};

/// A work request, as far as its completion is concerned.
pub trait Request {
    /// Whether its success is reported.
    fn is_signalled(&self) -> bool;

    /// Whether TCP, a queue or a device still refers to its memory.
    fn is_held(&self) -> bool;
}

/// A work request in the FIFO.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Item<R> {
    /// The work request.
    pub request: R,
    /// Stream position behind its last byte; `u64::MAX` as long as not all of it is encoded.
    pub end: u64,
    /// It is not done before the peer has acknowledged its last byte. Otherwise TCP need only have
    /// taken it.
    pub awaits_ack: bool,
    /// It is a Read whose response is not complete, or in the control pipeline.
    pub under_way: bool,
    /// How it failed.
    pub failed: Option<WcStatus>,
}

impl<R: Request> Item<R> {
    /// A work request of which nothing is encoded yet.
    pub const fn new(request: R) -> Self {
        Self {
            request,
            end: u64::MAX,
            awaits_ack: false,
            under_way: false,
            failed: None,
        }
    }

    fn entry(&self) -> Entry {
        Entry {
            end: self.end,
            awaits_ack: self.awaits_ack,
            under_way: self.under_way,
            held: self.awaits_ack && self.request.is_held(),
        }
    }

    fn is_done(&self, progress: &Progress) -> bool {
        self.failed.is_some() || may_retire(&self.entry(), progress)
    }

    fn is_only_held(&self, progress: &Progress) -> bool {
        self.failed.is_none() && is_only_held(&self.entry(), progress)
    }
}

/// The memory of a FIFO.
pub trait Queue {
    /// The work requests in it.
    type Request: Request;

    /// The oldest item.
    fn front(&self) -> Option<&Item<Self::Request>>;

    /// Takes the oldest item.
    fn pop(&mut self) -> Option<Item<Self::Request>>;
}

/// What the posting context does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next<R> {
    /// Post this completion, without the lock, if there is a status; the item has left the FIFO.
    Left(Item<R>, Option<WcStatus>),
    /// The head waits only for its memory. Arrange for a call upon its release, then ask again with
    /// `watched`.
    Watch,
    /// The context has posted its share and no longer posts. More is due: arrange for another
    /// context to call [`Fifo::begin`], soon.
    Hand,
    /// Nothing more is done; the context no longer posts. Whoever waits for that is to be woken.
    Leave {
        /// A context waits since [`Fifo::begin_or_wait`].
        wake: bool,
        /// All that was ever in the FIFO has completed successfully.
        quiet: bool,
    },
}

/// The FIFO.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Fifo<Q> {
    /// Its items, for lookup and for adding new ones at the end.
    pub queue: Q,
    progress: Progress,
    /// A work request has failed, so those behind it can only be flushed.
    broken: bool,
    /// One has failed that leaves the stream up; those behind it are not executed.
    drained: bool,
    /// What is not done fails with a flush.
    flushed: bool,
    /// A context is posting.
    posting: bool,
    /// A context waits for the one that is posting.
    awaited: bool,
}

impl<Q: Queue> Fifo<Q> {
    /// A FIFO over `queue`, for a new stream.
    pub const fn new(queue: Q, rule: Rule) -> Self {
        Self {
            queue,
            progress: Progress::new(rule),
            broken: false,
            drained: false,
            flushed: false,
            posting: false,
            awaited: false,
        }
    }

    /// A new stream begins: positions count from zero again.
    pub fn restart(&mut self, rule: Rule) {
        self.progress = Progress::new(rule);
        self.drained = false;
        self.flushed = false;
        self.broken = false;
    }

    /// A work request has failed, and the stream stays up.
    pub fn drain(&mut self) {
        self.drained = true;
    }

    /// Whether work requests are to be flushed instead of executed, since [`Self::drain`].
    pub const fn is_drained(&self) -> bool {
        self.drained
    }

    /// Ends that: what is added from now on can succeed. Nothing is in the FIFO. Returns whether
    /// all completions are posted.
    pub fn resume(&mut self) -> bool {
        self.drained = false;
        self.broken = false;
        !self.posting && self.queue.front().is_none()
    }

    /// TCP has taken everything up to stream position `upto`; its next byte is `next`.
    pub fn handed(&mut self, upto: u64, next: u32) {
        self.progress.handed(upto, next);
    }

    /// What TCP has sent now.
    pub fn sent(&mut self, sent: Sent) {
        self.progress.sent(sent);
    }

    /// Whether the caller is to post; if so it calls [`Self::next`] until that says
    /// [`Next::Leave`] or [`Next::Hand`].
    pub fn begin(&mut self) -> bool {
        let ours = !self.posting;
        self.posting = true;
        ours
    }

    /// The same after [`Self::flush`], for the last time: if another context is posting, the caller
    /// waits until that one wakes it. Either of them leaves the FIFO empty. One caller at a time.
    pub fn begin_or_wait(&mut self) -> bool {
        let ours = self.begin();
        self.awaited = !ours;
        ours
    }

    /// The next action of the posting context.
    ///
    /// `watched`: it has just performed [`Next::Watch`]. `spent`: it has posted its share, and goes
    /// on only for a context that waits.
    pub fn next(&mut self, watched: bool, spent: bool) -> Next<Q::Request> {
        let progress = self.progress;
        let head = self.queue.front();
        if !watched && !self.flushed && head.is_some_and(|head| head.is_only_held(&progress)) {
            return Next::Watch;
        }
        let due = head.is_some_and(|head| self.flushed || head.is_done(&progress));
        if due && spent && !self.awaited {
            self.posting = false;
            return Next::Hand;
        }
        let item = if due { self.queue.pop() } else { None };
        match item {
            Some(item) => {
                let status = match item.failed {
                    Some(status) => status,
                    None if self.broken || !item.is_done(&progress) => WcStatus::WrFlushErr,
                    None => WcStatus::Success,
                };
                self.broken |= status != WcStatus::Success;
                let told = item.request.is_signalled() || status != WcStatus::Success;
                Next::Left(item, told.then_some(status))
            }
            None => {
                self.posting = false;
                Next::Leave {
                    wake: core::mem::take(&mut self.awaited),
                    quiet: self.queue.front().is_none() && !self.broken && !self.drained,
                }
            }
        }
    }

    /// Fails all items that are not done with a flush error. The stream must have been stopped.
    pub fn flush(&mut self) {
        self.flushed = true;
    }
}
