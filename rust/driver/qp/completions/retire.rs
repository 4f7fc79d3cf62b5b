// SPDX-License-Identifier: GPL-2.0

//! Retires work requests of the SQ: posts the completions that are due.

use super::{
    Item,
    Request,
    Ring,
    Wr, //
};
use crate::{
    qp::Qp,
    stats::Counter,
    wc::Completion,
    QpObj, //
};
use base::context;
use iwarp::{
    qp::{
        completions::Fifo,
        delivery::Sent,
        owner::Wake, //
    },
    verdict::WcStatus,
    wire::rdmap::With, //
};
use kernel::sync::aref::ARef;
use soft::tcp::{
    SendSeq,
    SockView, //
};

/// Work requests that complete in one go, before a datamover continues: a burst of the shortest
/// messages.
const TURN: u32 = 4096;

/// The same in softirq or with softirqs off, as a single packet can begin it: all other work of the
/// CPU waits meanwhile. Interrupts are never off: a caller holds the socket, which nobody locks
/// with interrupts off (`Socket::try_lock_bh`), or may sleep.
const SHORT_TURN: u32 = 512;

impl Qp {
    /// Posts the completions that are due. If these are many a datamover posts the rest. Any
    /// context; no lock from `Rank::QpPair` on may be held.
    pub(in crate::qp) fn retire(self: &QpObj) {
        self.retire_after(|_| {});
    }

    /// Applies `news`, then the same as [`Self::retire`]. Returns whether the FIFO was full.
    fn retire_after(self: &QpObj, news: impl FnOnce(&mut Fifo<Ring<Item<Request>>>)) -> bool {
        let begin = |fifo: &mut Fifo<_>| {
            news(fifo);
            fifo.begin()
        };
        let outcome = self.stream.completions.run(
            begin,
            |left| left >= TURN || left >= SHORT_TURN && context::in_softirq(),
            || *self.stream.releases.qp.lock() = Some(ARef::from(self)),
            |wr, status| self.complete_send(wr, status),
        );
        let Some(outcome) = outcome else {
            return false;
        };
        if outcome.more {
            self.stats.inc(Counter::WcDeferred);
            self.enqueue_mover(context::cpu());
        }
        outcome.full
    }

    /// The same as [`Self::retire`], when TCP has accepted all up to stream position `upto`, and no
    /// more.
    pub(in crate::qp) fn retire_upto(self: &QpObj, upto: u64, sk: &SockView) {
        let next = sk.sent().next;
        self.retire_after(|fifo| fifo.handed(upto, next));
    }

    /// The same as [`Self::retire`], with what TCP has `sent`.
    pub(in crate::qp) fn retire_acked(self: &QpObj, SendSeq { una, next }: SendSeq) {
        // The owner of the token may have left because the FIFO was full.
        if self.retire_after(|fifo| fifo.sent(Sent { una, next })) {
            self.wake_mover(Wake::Unblock);
        }
    }

    /// The same as [`Self::retire`], in a datamover: after a release of memory, or a call that left
    /// completions to it.
    pub(in crate::qp) fn retire_on(self: &QpObj) {
        if !self.stream.completions.is_empty() && self.retire_after(|_| {}) {
            self.wake_mover(Wake::Unblock);
        }
    }

    /// Posts what the peer has acknowledged, if anything waits for that, and asks TCP to announce
    /// the next ACK.
    pub(in crate::qp) fn await_acks(self: &QpObj, sk: &SockView) {
        if self.stream.completions.awaits_ack() {
            sk.set_nospace();
            self.retire_acked(sk.sent());
        }
    }

    /// Fails all that is left in the FIFO, in order, and waits until it is posted. The stream must
    /// have been stopped; `sent` says how far it came. Sleeps.
    pub(in crate::qp) fn retire_all(self: &QpObj, sent: Option<SendSeq>) {
        if let Some(sent) = sent {
            self.retire_acked(sent);
        }
        self.stream
            .completions
            .finish(|wr, status| self.complete_send(wr, status));
    }

    /// Posts the CQE of a work request of the SQ.
    pub(in crate::qp) fn complete_send(self: &QpObj, wr: &Wr, status: WcStatus) {
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
