// SPDX-License-Identifier: GPL-2.0

//! Retirement: work requests of the SQ complete in the order they were posted.
//!
//! Every work request taken from the SQ gets an entry, in order, before anything of it is sent (but for one that is alone, see `tx`). The
//! head leaves, and posts its CQE if it is signalled or failed, once `iwarp::qp::delivery` says so: when TCP has accepted its last byte, or the
//! peer has acknowledged that if it is sent by reference and nothing here refers to its memory any more, and when the response of a Read is in place. Later ones wait behind it: the
//! completion of a Send tells the consumer that the Reads before it are done as well (RFC 5040 5.5, rule 15).
//!
//! What is acknowledged is looked at under the socket lock: after each handoff, whenever data comes in, and, as long as something waits
//! for it, for each ACK, of which `write_space` tells while we ask for space.

use super::fifo::Ring;
use crate::driver::cq::{Completion, WcOp};
use crate::driver::{QpObj, QpRef};
use crate::kapi::net::{Mark, OnRelease, SockView};
use crate::kapi::sync::{Atomic, SpinLockIrq};
use crate::{kapi::trace, new_spinlock_irq};
use iwarp::error::WcStatus;
use iwarp::qp::completions::{self, Fifo, Item, Next};
use iwarp::qp::delivery::{Rule, Sent};
use iwarp::qp::owner::Wake;
use kernel::prelude::*;
use kernel::sync::aref::ARef;
use kernel::sync::atomic::{Acquire, Relaxed, Release};
use kernel::sync::{self, Arc};

/// What the completion of a work request says.
pub(super) struct Wr {
    pub(super) id: u64,
    pub(super) op: WcOp,
    pub(super) bytes: u32,
    pub(super) signalled: bool,
}

/// A work request in the FIFO.
struct Request {
    wr: Wr,
    /// Tells whether its memory is referred to, if it is sent by reference.
    mark: Option<Mark>,
}

impl completions::Request for Request {
    fn is_signalled(&self) -> bool {
        self.wr.signalled
    }

    fn is_held(&self) -> bool {
        self.mark.as_ref().is_some_and(|mark| !mark.is_released())
    }
}

impl completions::Queue for Ring<Item<Request>> {
    type Request = Request;

    fn front(&self) -> Option<&Item<Request>> {
        Ring::front(self)
    }

    fn pop(&mut self) -> Option<Item<Request>> {
        Ring::pop(self)
    }

    fn for_each(&mut self, f: impl FnMut(&mut Item<Request>)) {
        Ring::for_each(self, f);
    }
}

/// A queue pair whose FIFO waits for memory to be released.
#[pin_data]
pub(super) struct Releases {
    #[pin]
    qp: SpinLockIrq<Option<QpRef>>,
}

impl Releases {
    pub(super) fn new() -> Result<Arc<Self>> {
        Arc::pin_init(
            pin_init!(Self {
                qp <- new_spinlock_irq!(None),
            }),
            GFP_KERNEL_ACCOUNT,
        )
    }

    /// Nobody waits any more.
    pub(super) fn forget(&self) {
        let qp = self.qp.lock().take();
        drop(qp);
    }
}

impl OnRelease for Releases {
    /// The locks that whoever frees a buffer holds are none that a consumer may meet: a datamover goes on.
    fn released(&self) {
        let qp = self.qp.lock().take();
        if let Some(qp) = qp {
            qp.enqueue_mover(qp.stream.home.load(Relaxed));
        }
    }
}

/// The FIFO of send completions of a QP.
#[pin_data]
pub(super) struct SendCompletions {
    #[pin]
    fifo: SpinLockIrq<Fifo<Ring<Item<Request>>>>,
    /// The context that was posting when [`Self::wait`] began no longer does.
    #[pin]
    idle: sync::Completion,
    /// Entries in the FIFO, to look at without its lock, and how many of them are sent by reference.
    len: Atomic<u32>,
    by_ref: Atomic<u32>,
    /// There are none, and the completions of all that there were have been posted, and none had failed.
    quiet: Atomic<bool>,
    limit: u32,
}

impl SendCompletions {
    /// A FIFO for as many work requests as the SQ holds. Sleeps.
    pub(super) fn new(sq_size: u32) -> impl PinInit<Self, Error> {
        // One more, so that a full SQ can be taken over while the last one of the lap before waits to be posted.
        let limit = sq_size.saturating_add(1);
        try_pin_init!(Self {
            fifo <- new_spinlock_irq!(Fifo::new(Ring::new(limit)?, Rule::Hsn)),
            idle <- sync::Completion::new(),
            len: Atomic::new(0),
            by_ref: Atomic::new(0),
            quiet: Atomic::new(true),
            limit,
        })
    }

    /// A new stream: positions count from zero again.
    pub(super) fn restart(&self, rule: Rule) {
        let mut fifo = self.fifo.lock();
        fifo.restart(rule);
        self.quiet.store(fifo.queue.is_empty(), Relaxed);
    }

    /// Whether there is no room. If there is, only a [`Self::push`] changes that.
    pub(super) fn is_full(&self) -> bool {
        self.len() >= self.limit
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether all that was pushed has completed, and well. If so, only a [`Self::push`] changes that.
    pub(super) fn is_quiet(&self) -> bool {
        self.quiet.load(Acquire)
    }

    pub(super) fn len(&self) -> u32 {
        self.len.load(Relaxed)
    }

    /// Whether something waits for the peer to acknowledge it, or will.
    pub(super) fn awaits_ack(&self) -> bool {
        self.by_ref.load(Relaxed) != 0
    }

    /// Appends a work request; `None` when full.
    pub(super) fn push(&self, wr: Wr) -> Option<u32> {
        let mut fifo = self.fifo.lock();
        let seq = fifo.queue.push(Item::new(Request { wr, mark: None }));
        self.len.store(fifo.queue.len(), Relaxed);
        self.quiet.store(false, Relaxed);
        seq.ok()
    }

    fn with(&self, seq: u32, f: impl FnOnce(&mut Item<Request>)) {
        if let Some(item) = self.fifo.lock().queue.by_seq(seq) {
            f(item);
        }
    }

    /// Read `seq` asks for `bytes` bytes, and waits for [`Self::read_done`].
    pub(super) fn reading(&self, seq: u32, bytes: u32) {
        self.with(seq, |item| {
            item.request.wr.bytes = bytes;
            item.reading = true;
        });
    }

    /// Payload of `seq` goes to TCP by reference, with that mark. Before any of it does.
    pub(super) fn by_ref(&self, seq: u32, mark: Mark) {
        self.with(seq, |item| {
            item.by_reference = true;
            item.request.mark = Some(mark);
        });
        self.by_ref.fetch_add(1, Relaxed);
    }

    /// All of `seq`, with `bytes` bytes of payload, is encoded; its last byte ends at stream position `end`.
    pub(super) fn encoded(&self, seq: u32, bytes: u32, end: u64) {
        self.with(seq, |item| {
            if !item.reading {
                item.request.wr.bytes = bytes;
            }
            item.end = end;
        });
    }

    /// The response of Read `seq` has been placed.
    pub(super) fn read_done(&self, seq: u32) {
        self.with(seq, |item| item.reading = false);
    }

    /// `seq` failed.
    pub(super) fn failed(&self, seq: u32, status: WcStatus) {
        self.with(seq, |item| item.failed = Some(status));
    }

    /// Whatever is not done fails with a flush. The stream must have been stopped.
    fn flush(&self) {
        self.fifo.lock().flush();
    }

    /// Waits until the posting context has posted all, after [`Self::flush`]. From then on the FIFO
    /// is empty, and nobody posts for long. One caller at a time. Sleeps, but not for the network.
    fn wait(&self) {
        let posting = self.fifo.lock().wait();
        if posting {
            self.idle.wait_for_completion();
        }
    }

    /// Posts what is done, in order, after `news`; whether it was full.
    ///
    /// If the head waits for its memory, `watch` is called before that is looked at once more.
    fn run(
        &self,
        news: impl FnOnce(&mut Fifo<Ring<Item<Request>>>),
        watch: impl Fn(),
        mut post: impl FnMut(&Wr, WcStatus),
    ) -> bool {
        let mut fifo = self.fifo.lock();
        news(&mut fifo);
        if !fifo.begin() {
            return false;
        }
        let mut full = false;
        let mut watched = false;
        loop {
            let was_full = fifo.queue.is_full();
            let next = fifo.next(watched);
            watched = matches!(next, Next::Watch);
            match next {
                Next::Watch => watch(),
                Next::Left(item, status) => {
                    full |= was_full;
                    self.len.store(fifo.queue.len(), Relaxed);
                    if item.by_reference {
                        self.by_ref.fetch_sub(1, Relaxed);
                    }
                    if let Some(status) = status {
                        drop(fifo);
                        post(&item.request.wr, status);
                        fifo = self.fifo.lock();
                    }
                }
                Next::Leave { wake, quiet } => {
                    if wake {
                        self.idle.complete_all();
                    }
                    if quiet {
                        self.quiet.store(true, Release);
                    }
                    return full;
                }
            }
        }
    }
}

impl QpObj {
    /// Posts the completions that are due. Any context, no lock of rank 6 or more held.
    pub(super) fn retire(&self) {
        self.retire_after(|_| {});
    }

    /// As [`Self::retire`], after `news`; whether the FIFO was full.
    fn retire_after(&self, news: impl FnOnce(&mut Fifo<Ring<Item<Request>>>)) -> bool {
        self.stream.completions.run(
            news,
            || *self.stream.releases.qp.lock() = Some(ARef::from(self)),
            |wr, status| self.complete_send(wr, status),
        )
    }

    /// As [`Self::retire`], now that TCP has accepted everything up to stream position `upto`, and nothing since.
    pub(super) fn retire_upto(&self, upto: u64, sk: &SockView) {
        let next = sk.sent().next;
        self.retire_after(|fifo| fifo.handed(upto, next));
    }

    /// As [`Self::retire`], now that TCP has `sent` so much.
    fn retire_acked(&self, sent: Sent) {
        // The owner of the token has seen it full, or will see it as it is now.
        if self.retire_after(|fifo| fifo.sent(sent)) {
            self.wake_mover(Wake::Unblock);
        }
    }

    /// As [`Self::retire`], now that memory may have been released.
    pub(super) fn retire_released(&self) {
        if self.stream.completions.awaits_ack() && self.retire_after(|_| {}) {
            self.wake_mover(Wake::Unblock);
        }
    }

    /// Looks at what the peer has acknowledged, if something waits for that, and has TCP tell when there is more.
    pub(super) fn await_acks(&self, sk: &SockView) {
        if self.stream.completions.awaits_ack() {
            sk.set_nospace();
            self.retire_acked(sk.sent());
        }
    }

    /// Fails whatever the FIFO still holds, in order; when it returns that is posted. The stream must have been stopped, with so much
    /// `sent` if there was one. Sleeps.
    pub(super) fn retire_all(&self, sent: Option<Sent>) {
        if let Some(sent) = sent {
            self.retire_acked(sent);
        }
        self.stream.completions.flush();
        self.retire();
        // A datamover may be at it, which looks after what was sent by reference without having the token.
        self.stream.completions.wait();
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
