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

use self::glance::Glance;
use super::{
    fifo::Ring,
    loans::ByRef, //
};
use crate::{
    driver::{
        wc::{
            Completion,
            WcOp, //
        },
        QpObj, //
    },
    kapi::{
        net::{
            SendSeq,
            SockView, //
        },
        sync::SpinLockIrq, //
    }, //
};
use iwarp::{
    qp::{
        completions::{
            self,
            Fifo,
            Item,
            Next, //
        },
        delivery::{
            Rule,
            Sent, //
        },
        owner::Wake, //
    },
    verdict::WcStatus,
    wire::rdmap::With, //
};
use kernel::{
    prelude::*,
    sync::{
        self,
        aref::ARef,
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

    fn for_each(&mut self, f: impl FnMut(&mut Item<Request>)) {
        Ring::for_each(self, f);
    }
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
    /// The context that was posting when [`Self::wait`] began no longer does.
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

    /// The queue pair begins anew: what [`Self::wait`] waits for has not happened. Nobody posts.
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

    /// Fails all items that are not done with a flush error. The stream must have been stopped.
    fn flush(&self) {
        self.locked.lock().fifo.flush();
    }

    /// Waits until the posting context has posted all, after [`Self::flush`]. From then on the FIFO
    /// is empty, and nobody posts for long. One caller at a time. Sleeps, but not for the network.
    fn wait(&self) {
        let posting = self.locked.lock().fifo.wait();
        if posting {
            let idle = self.idle.lock().clone();
            idle.wait_for_completion();
        }
    }

    /// Applies `news`, then posts the completions that are due, in order. Returns whether the FIFO
    /// was full.
    ///
    /// If the head waits only for its memory, calls `watch` and then looks once more.
    fn run(
        &self,
        news: impl FnOnce(&mut Fifo<Ring<Item<Request>>>),
        watch: impl Fn(),
        mut post: impl FnMut(&Wr, WcStatus),
    ) -> bool {
        let mut locked = self.locked.lock();
        news(&mut locked.fifo);
        if !locked.fifo.begin() {
            return false;
        }
        let mut full = false;
        let mut watched = false;
        loop {
            let was_full = locked.fifo.queue.is_full();
            let next = locked.fifo.next(watched);
            watched = matches!(next, Next::Watch);
            match next {
                Next::Watch => watch(),
                Next::Left(mut item, status) => {
                    if let Some(cut) = item.request.by_ref.take_if(|by_ref| by_ref.is_held()) {
                        locked.cut = Some(cut);
                    }
                    full |= was_full;
                    if item.awaits_ack {
                        locked.unacked = locked.unacked.saturating_sub(1);
                    }
                    self.show(&locked);
                    if let Some(status) = status {
                        drop(locked);
                        post(&item.request.wr, status);
                        locked = self.locked.lock();
                    }
                }
                Next::Leave { wake, quiet } => {
                    if wake {
                        self.idle.lock().complete_all();
                    }
                    if quiet {
                        locked.quiet = true;
                        self.show(&locked);
                    }
                    return full;
                }
            }
        }
    }
}

impl QpObj {
    /// Posts the completions that are due. Any context; no lock from `Rank::QpPair` on may be held.
    pub(super) fn retire(&self) {
        self.retire_after(|_| {});
    }

    /// Applies `news`, then the same as [`Self::retire`]. Returns whether the FIFO was full.
    fn retire_after(&self, news: impl FnOnce(&mut Fifo<Ring<Item<Request>>>)) -> bool {
        self.stream.completions.run(
            news,
            || *self.stream.releases.qp.lock() = Some(ARef::from(self)),
            |wr, status| self.complete_send(wr, status),
        )
    }

    /// The same as [`Self::retire`], when TCP has accepted all up to stream position `upto`, and no
    /// more.
    pub(super) fn retire_upto(&self, upto: u64, sk: &SockView) {
        let next = sk.sent().next;
        self.retire_after(|fifo| fifo.handed(upto, next));
    }

    /// The same as [`Self::retire`], with what TCP has `sent`.
    pub(super) fn retire_acked(&self, SendSeq { una, next }: SendSeq) {
        // The owner of the token may have left because the FIFO was full.
        if self.retire_after(|fifo| fifo.sent(Sent { una, next })) {
            self.wake_mover(Wake::Unblock);
        }
    }

    /// The same as [`Self::retire`], after a release of memory.
    pub(super) fn retire_released(&self) {
        if self.stream.completions.awaits_ack() && self.retire_after(|_| {}) {
            self.wake_mover(Wake::Unblock);
        }
    }

    /// Posts what the peer has acknowledged, if anything waits for that, and asks TCP to announce
    /// the next ACK.
    pub(super) fn await_acks(&self, sk: &SockView) {
        if self.stream.completions.awaits_ack() {
            sk.set_nospace();
            self.retire_acked(sk.sent());
        }
    }

    /// Fails all that is left in the FIFO, in order, and waits until it is posted. The stream must
    /// have been stopped; `sent` says how far it came. Sleeps.
    pub(super) fn retire_all(&self, sent: Option<SendSeq>) {
        if let Some(sent) = sent {
            self.retire_acked(sent);
        }
        self.stream.completions.flush();
        self.retire();
        // A datamover may be posting: it serves releases of memory without the token.
        self.stream.completions.wait();
    }

    /// Posts the CQE of a work request of the SQ.
    pub(super) fn complete_send(&self, wr: &Wr, status: WcStatus) {
        let status = match status {
            WcStatus::WrFlushErr if self.stream.take_unreachable() => WcStatus::RetryExcErr,
            status => status,
        };
        self.scq.post(
            self,
            &Completion {
                wr_id: wr.id,
                op: wr.op,
                status,
                bytes: wr.bytes,
                solicited: false,
                with: With::Nothing,
            },
        );
    }
}
