// SPDX-License-Identifier: GPL-2.0

//! Send completions: work requests of the SQ complete in the order of posting.
//!
//! Each work request taken from the SQ enters the FIFO before anything of it is sent; `Unqueued` in
//! `tx` is the exception. The head leaves, and posts its CQE if it is signalled or failed, once it
//! is done. A copied message is done when TCP has accepted its last byte, or the peer has
//! acknowledged it, as the settings say. A message sent by reference is done when the peer has
//! acknowledged that byte and nothing refers to the memory any more. A Read is done when its
//! response is placed. Later work requests wait: the completion of a Send tells the consumer that
//! earlier Reads are done too (RFC 5040 5.5, rule 15). `iwarp::qp::completions` has these rules.
//!
//! Acknowledgements are read with the socket locked: after each handoff, when data comes in, and at
//! each ACK while anything waits for it. `write_space` announces ACKs as long as the driver asks
//! for space.

mod glance;
mod retire;

use self::glance::Glance;
use super::{
    fifo::Ring,
    loans::ByRef, //
};
use crate::wc::WcOp;
use base::sync::SpinLockIrq;
use iwarp::{
    qp::{
        completions::{
            self,
            Fifo,
            Item,
            Next, //
        },
        delivery::Rule, //
    },
    verdict::WcStatus, //
};
use kernel::{
    prelude::*,
    sync::{
        self,
        atomic::{
            Acquire,
            Atomic,
            Release, //
        },
        Arc, //
    }, //
};

/// What the completion of a work request of the SQ will report.
pub(super) struct Wr {
    pub(super) id: u64,
    pub(super) op: WcOp,
    pub(super) bytes: u32,
    pub(super) signalled: bool,
}

/// A work request in the FIFO.
struct Request {
    wr: Wr,
    /// The memory of a message sent by reference.
    by_ref: Option<ByRef>,
}

impl completions::Request for Request {
    fn is_signalled(&self) -> bool {
        self.wr.signalled
    }

    fn is_held(&self) -> bool {
        self.by_ref.as_ref().is_some_and(ByRef::is_held)
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
}

/// Work requests that leave the FIFO before its lock is released for a moment. Interrupts are off
/// meanwhile.
const HOLD: u32 = 64;

/// What [`SendCompletions::run`] did.
#[derive(Default)]
struct Outcome {
    /// The FIFO was full.
    full: bool,
    /// More is due, and nobody posts.
    more: bool,
}

/// A work request that has entered the FIFO.
#[derive(Clone, Copy)]
pub(super) struct Pushed {
    /// Its number.
    pub(super) seq: u32,
    /// It is to be flushed instead of executed. Until it has left, that does not end.
    pub(super) drained: bool,
}

/// What the lock of the FIFO protects.
struct Locked {
    fifo: Fifo<Ring<Item<Request>>>,
    /// Items that wait for an acknowledgement, or will.
    unacked: u32,
    /// The memory of a message that failed when TCP had a part of it. The stream ends with it, so
    /// there is one at most. What a flush leaves here comes after the reset, and nobody needs it.
    cut: Option<ByRef>,
    /// The FIFO is empty, all completions are posted, and none failed.
    quiet: bool,
}

impl Locked {
    fn glance(&self) -> Glance {
        let mut word = u64::from(self.fifo.queue.len());
        if self.quiet {
            word |= Glance::QUIET;
        }
        if self.unacked != 0 {
            word |= Glance::UNACKED;
        }
        if self.fifo.is_drained() {
            word |= Glance::DRAINED;
        }
        Glance(word)
    }
}

/// The FIFO of send completions of a QP.
#[pin_data]
pub(super) struct SendCompletions {
    #[pin]
    locked: SpinLockIrq<Locked>,
    /// Completed when the context that posts for [`Self::finish`] has posted all.
    #[pin]
    idle: SpinLockIrq<Arc<sync::Completion>>,
    /// The [`Glance`], stored with the lock held.
    glance: Atomic<u64>,
    limit: u32,
}

impl SendCompletions {
    /// A FIFO for an SQ of `sq_size` elements. Sleeps.
    pub(super) fn new(sq_size: u32) -> impl PinInit<Self, Error> {
        // One more, so that a full SQ fits while the last completion of the lap before is being
        // posted.
        let limit = sq_size.saturating_add(1);
        try_pin_init!(Self {
            locked <- ranked_spinlock!(Rank::Completions, Locked {
                fifo: Fifo::new(Ring::new(limit)?, Rule::Hsn),
                unacked: 0,
                cut: None,
                quiet: true,
            }),
            idle <- ranked_spinlock!(
                Rank::Idle,
                Arc::pin_init(sync::Completion::new(), GFP_KERNEL_ACCOUNT)?
            ),
            glance: Atomic::new(Glance::QUIET),
            limit,
        })
    }

    /// The queue pair begins anew: what [`Self::finish`] waits for has not happened. Nobody posts.
    pub(super) fn renew(&self, idle: Arc<sync::Completion>) {
        let old = core::mem::replace(&mut *self.idle.lock(), idle);
        drop(old);
    }

    /// Begins a new stream: positions count from zero.
    pub(super) fn restart(&self, rule: Rule) {
        let mut locked = self.locked.lock();
        locked.fifo.restart(rule);
        locked.quiet = locked.fifo.queue.is_empty();
        self.show(&locked);
    }

    /// The state of the FIFO now. A completion that is posted because the FIFO is quiet comes after
    /// all that left the FIFO.
    pub(super) fn glance(&self) -> Glance {
        Glance(self.glance.load(Acquire))
    }

    fn show(&self, locked: &Locked) {
        self.glance.store(locked.glance().0, Release);
    }

    /// Whether the FIFO was full at this glance. Only [`Self::push`] makes it so.
    pub(super) fn was_full(&self, glance: Glance) -> bool {
        glance.len() >= self.limit
    }

    pub(super) fn is_full(&self) -> bool {
        self.was_full(self.glance())
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub(super) fn len(&self) -> u32 {
        self.glance().len()
    }

    /// Whether an item waits for an acknowledgement of the peer, or will.
    pub(super) fn awaits_ack(&self) -> bool {
        self.glance().awaits_ack()
    }

    /// Appends a work request; `None` if the FIFO is full.
    pub(super) fn push(&self, wr: Wr) -> Option<Pushed> {
        let mut locked = self.locked.lock();
        let item = Item::new(Request { wr, by_ref: None });
        let seq = locked.fifo.queue.push(item);
        locked.quiet = false;
        self.show(&locked);
        Some(Pushed {
            seq: seq.ok()?,
            drained: locked.fifo.is_drained(),
        })
    }

    fn with(&self, seq: u32, f: impl FnOnce(&mut Item<Request>)) {
        if let Some(item) = self.locked.lock().fifo.queue.by_seq(seq) {
            f(item);
        }
    }

    /// Marks item `seq` as a Read of `bytes` bytes, which waits for [`Self::read_done`].
    pub(super) fn reading(&self, seq: u32, bytes: u32) {
        self.with(seq, |item| {
            item.request.wr.bytes = bytes;
            item.under_way = true;
        });
    }

    /// Has item `seq` wait for the acknowledgement, and for its memory if that is sent by
    /// reference. Called once, before TCP gets any of it.
    pub(super) fn until_acked(&self, seq: u32, by_ref: Option<ByRef>) {
        let mut locked = self.locked.lock();
        let Some(item) = locked.fifo.queue.by_seq(seq) else {
            return;
        };
        item.awaits_ack = true;
        item.request.by_ref = by_ref;
        locked.unacked = locked.unacked.saturating_add(1);
        self.show(&locked);
    }

    /// Whether `f` holds for the memory of an item, or of a message that was cut off.
    pub(super) fn any_by_ref(&self, f: impl Fn(&ByRef) -> bool) -> bool {
        let locked = self.locked.lock();
        let queue = &locked.fifo.queue;
        let items = match locked.unacked {
            0 => 0,
            _ => queue.len(),
        };
        locked.cut.as_ref().is_some_and(&f)
            || (0..items)
                .filter_map(|n| queue.get(n)?.request.by_ref.as_ref())
                .any(f)
    }

    /// Forgets the message that was cut off. Its connection has ended.
    pub(super) fn forget_cut(&self) {
        let cut = self.locked.lock().cut.take();
        drop(cut);
    }

    /// Notes that item `seq`, with `bytes` bytes of payload, ends at stream position `end`.
    pub(super) fn encoded(&self, seq: u32, bytes: u32, end: u64) {
        self.with(seq, |item| {
            if !item.under_way {
                item.request.wr.bytes = bytes;
            }
            item.end = end;
        });
    }

    /// Marks item `seq` as handed to the control pipeline, which reports with [`Self::read_done`]
    /// or [`Self::failed`]. It comes after all up to stream position `end`.
    pub(super) fn handed_over(&self, seq: u32, end: u64) {
        self.with(seq, |item| {
            item.under_way = true;
            item.end = end;
        });
    }

    /// Notes that the response of Read `seq` is placed, or control operation `seq` is done.
    pub(super) fn read_done(&self, seq: u32) {
        self.with(seq, |item| item.under_way = false);
    }

    /// Notes that item `seq` has failed.
    pub(super) fn failed(&self, seq: u32, status: WcStatus) {
        self.with(seq, |item| item.failed = Some(status));
    }

    /// Notes that item `seq` has failed, and that those behind it, which are not executed, fail
    /// with it. The stream stays up.
    pub(super) fn drain(&self, seq: u32, status: WcStatus) {
        let mut locked = self.locked.lock();
        if let Some(item) = locked.fifo.queue.by_seq(seq) {
            item.failed = Some(status);
        }
        locked.fifo.drain();
        self.show(&locked);
    }

    /// Ends [`Self::drain`]; `false` if something is in the FIFO.
    pub(super) fn resume(&self) -> bool {
        let mut locked = self.locked.lock();
        if !locked.fifo.queue.is_empty() {
            return false;
        }
        locked.quiet = locked.fifo.resume();
        self.show(&locked);
        true
    }

    /// Fails all items that are not done with a flush error, and waits until all are posted. From
    /// then on the FIFO is empty, and nobody posts for long. The stream must have been stopped. One
    /// caller at a time. Sleeps, but not for the network.
    fn finish(&self, post: impl FnMut(&Wr, WcStatus)) {
        let begin = |fifo: &mut Fifo<_>| {
            fifo.flush();
            fifo.begin_or_wait()
        };
        if self.run(begin, |_| false, || {}, post).is_none() {
            // A datamover is posting: it continues what others left, without the token.
            let idle = self.idle.lock().clone();
            idle.wait_for_completion();
        }
    }

    /// If `begin` agrees, posts the completions that are due, in order, until `spent` holds for
    /// their number.
    ///
    /// If the head waits only for its memory, calls `watch` and then looks once more.
    fn run(
        &self,
        begin: impl FnOnce(&mut Fifo<Ring<Item<Request>>>) -> bool,
        spent: impl Fn(u32) -> bool,
        watch: impl Fn(),
        mut post: impl FnMut(&Wr, WcStatus),
    ) -> Option<Outcome> {
        let mut locked = self.locked.lock();
        if !begin(&mut locked.fifo) {
            return None;
        }
        let mut outcome = Outcome::default();
        let mut watched = false;
        let (mut left, mut held) = (0u32, 0u32);
        loop {
            let was_full = locked.fifo.queue.is_full();
            let next = locked.fifo.next(watched, spent(left));
            watched = matches!(next, Next::Watch);
            match next {
                Next::Watch => watch(),
                Next::Left(mut item, status) => {
                    left = left.saturating_add(1);
                    held = held.wrapping_add(1);
                    if let Some(cut) = item.request.by_ref.take_if(|by_ref| by_ref.is_held()) {
                        locked.cut = Some(cut);
                    }
                    outcome.full |= was_full;
                    if item.awaits_ack {
                        locked.unacked = locked.unacked.saturating_sub(1);
                    }
                    self.show(&locked);
                    if status.is_some() || held >= HOLD {
                        drop(locked);
                        if let Some(status) = status {
                            post(&item.request.wr, status);
                        }
                        held = 0;
                        locked = self.locked.lock();
                    }
                }
                Next::Hand => {
                    outcome.more = true;
                    return Some(outcome);
                }
                Next::Leave { wake, quiet } => {
                    if wake {
                        self.idle.lock().complete_all();
                    }
                    if quiet {
                        locked.quiet = true;
                        self.show(&locked);
                    }
                    return Some(outcome);
                }
            }
        }
    }
}
