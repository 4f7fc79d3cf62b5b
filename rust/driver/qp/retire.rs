// SPDX-License-Identifier: GPL-2.0

//! Retirement: work requests of the SQ complete in the order they were posted.
//!
//! Every work request taken from the SQ gets an entry, in order, before anything of it is sent. The head leaves, and posts its CQE if it
//! is signalled or failed, once TCP has accepted its last byte and, for a Read, the response is in place. Later ones wait behind it: the
//! completion of a Send tells the consumer that the Reads before it are done as well (RFC 5040 5.5, rule 15).
//!
//! A zero copy entry will also wait for the peer's ACK; the place for that is [`Entry::is_done`].

use super::ring::Ring;
use crate::driver::cq::{Completion, WcOp};
use crate::driver::QpObj;
use crate::kapi::sync::SpinLockIrq;
use crate::{kapi::trace, new_spinlock_irq};
use iwarp::error::WcStatus;
use kernel::prelude::*;
use kernel::sync::atomic::{Atomic, Relaxed};

/// What the completion of a work request says.
pub(super) struct Wr {
    pub(super) id: u64,
    pub(super) op: WcOp,
    pub(super) bytes: u32,
    pub(super) signalled: bool,
}

struct Entry {
    wr: Wr,
    /// Stream position of its last byte; `u64::MAX` until all of it is encoded.
    end: u64,
    /// The response of this Read is still to come.
    reading: bool,
    /// How it failed.
    failed: Option<WcStatus>,
}

impl Entry {
    fn is_done(&self, accepted: u64) -> bool {
        self.failed.is_some() || (self.end <= accepted && !self.reading)
    }
}

struct Fifo {
    ring: Ring<Entry>,
    /// Stream bytes TCP has accepted.
    accepted: u64,
    /// A work request has failed, so those behind it can only be flushed.
    broken: bool,
    /// Somebody is posting; he looks at the head again before he leaves, so everybody else may go.
    busy: bool,
}

/// The retire FIFO of a QP.
#[pin_data]
pub(super) struct Retire {
    #[pin]
    fifo: SpinLockIrq<Fifo>,
    /// Entries in the FIFO, to look at without its lock.
    len: Atomic<u32>,
    limit: u32,
}

impl Retire {
    /// A FIFO for as many work requests as the SQ holds. Sleeps.
    pub(super) fn new(sq_size: u32) -> impl PinInit<Self, Error> {
        // One more, so that a full SQ can be taken over while the last one of the lap before waits to be posted.
        let limit = sq_size.saturating_add(1);
        try_pin_init!(Self {
            fifo <- new_spinlock_irq!(Fifo {
                ring: Ring::new(limit)?,
                accepted: 0,
                broken: false,
                busy: false,
            }),
            len: Atomic::new(0),
            limit,
        })
    }

    /// A new stream: positions count from zero again.
    pub(super) fn restart(&self) {
        let mut fifo = self.fifo.lock();
        fifo.accepted = 0;
        fifo.broken = false;
    }

    /// Whether there is no room. If there is, only a [`Self::push`] changes that.
    pub(super) fn is_full(&self) -> bool {
        self.len() >= self.limit
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub(super) fn len(&self) -> u32 {
        self.len.load(Relaxed)
    }

    /// Appends a work request; `None` when full.
    pub(super) fn push(&self, wr: Wr) -> Option<u32> {
        let mut fifo = self.fifo.lock();
        let seq = fifo.ring.push(Entry {
            wr,
            end: u64::MAX,
            reading: false,
            failed: None,
        });
        self.len.store(fifo.ring.len(), Relaxed);
        seq.ok()
    }

    fn with(&self, seq: u32, f: impl FnOnce(&mut Entry)) {
        if let Some(entry) = self.fifo.lock().ring.by_seq(seq) {
            f(entry);
        }
    }

    /// Read `seq` asks for `bytes` bytes, and waits for [`Self::read_done`].
    pub(super) fn reading(&self, seq: u32, bytes: u32) {
        self.with(seq, |e| {
            e.wr.bytes = bytes;
            e.reading = true;
        });
    }

    /// All of `seq`, with `bytes` bytes of payload, is encoded; its last byte ends at stream position `end`.
    pub(super) fn encoded(&self, seq: u32, bytes: u32, end: u64) {
        self.with(seq, |e| {
            if !e.reading {
                e.wr.bytes = bytes;
            }
            e.end = end;
        });
    }

    /// The response of Read `seq` has been placed.
    pub(super) fn read_done(&self, seq: u32) {
        self.with(seq, |e| e.reading = false);
    }

    /// `seq` failed.
    pub(super) fn failed(&self, seq: u32, status: WcStatus) {
        self.with(seq, |e| e.failed = Some(status));
    }

    /// Whatever is not done fails with a flush. The stream must have been stopped.
    fn flush(&self) {
        let mut fifo = self.fifo.lock();
        let accepted = fifo.accepted;
        fifo.ring.for_each(|e| {
            if !e.is_done(accepted) {
                e.failed = Some(WcStatus::WrFlushErr);
            }
        });
    }

    /// Posts what is done, in order. One poster at a time, or order would be lost between the lock and the CQ.
    fn run(&self, accepted: Option<u64>, mut post: impl FnMut(&Wr, WcStatus)) {
        let mut fifo = self.fifo.lock();
        if let Some(upto) = accepted {
            fifo.accepted = upto;
        }
        if fifo.busy {
            return;
        }
        fifo.busy = true;
        loop {
            let accepted = fifo.accepted;
            if !fifo.ring.front().is_some_and(|e| e.is_done(accepted)) {
                break;
            }
            let Some(entry) = fifo.ring.pop() else { break };
            self.len.store(fifo.ring.len(), Relaxed);
            let status = match entry.failed {
                Some(status) => status,
                None if fifo.broken => WcStatus::WrFlushErr,
                None => WcStatus::Success,
            };
            fifo.broken |= status != WcStatus::Success;
            if entry.wr.signalled || status != WcStatus::Success {
                drop(fifo);
                post(&entry.wr, status);
                fifo = self.fifo.lock();
            }
        }
        fifo.busy = false;
    }
}

impl QpObj {
    /// Posts the completions that are due. Any context, no lock of rank 6 or more held.
    pub(super) fn retire(&self) {
        self.stream
            .retire
            .run(None, |wr, status| self.complete_send(wr, status));
    }

    /// As [`Self::retire`], now that TCP has accepted everything up to stream position `upto`.
    pub(super) fn retire_upto(&self, upto: u64) {
        self.stream
            .retire
            .run(Some(upto), |wr, status| self.complete_send(wr, status));
    }

    /// Fails whatever the FIFO still holds, in order. The stream must have been stopped.
    pub(super) fn retire_all(&self) {
        self.stream.retire.flush();
        self.retire();
    }

    /// Posts the CQE of a work request of the SQ.
    pub(super) fn complete_send(&self, wr: &Wr, status: WcStatus) {
        let status = match status {
            WcStatus::WrFlushErr if self.stream.take_unreachable() => WcStatus::RetryExcErr,
            status => status,
        };
        trace::complete(self.qp_num(), wr.id, wr.op as u8, status as u32);
        self.scq.post(
            self,
            &Completion {
                wr_id: wr.id,
                op: wr.op,
                status,
                bytes: wr.bytes,
                solicited: false,
                inval: None,
            },
        );
    }
}
