// SPDX-License-Identifier: GPL-2.0

//! The flush: what is still posted to a dead QP completes with a flush error, in the order of
//! posting.
//!
//! It begins when nothing can be placed or sent any more. Work requests posted later are flushed
//! the same way.

use crate::{
    qp::{
        completions::Wr,
        rq::RecvWr,
        rx::Receipt,
        send_wr::SendWr,
        state::Phase,
        Qp, //
    },
    stats::Counter,
    QpObj, //
};
use base::sync::AccessOnce;
use iwarp::{
    qp::flush,
    verdict::WcStatus, //
};
use kernel::{
    sync::atomic::{
        Acquire,
        Full,
        Relaxed,
        Release, //
    },
    time::{
        delay::fsleep,
        Delta, //
    }, //
};
use rdma::qp;

/// Rounds of a flush for a program that keeps posting.
const ROUNDS: u32 = 8;

impl Qp {
    /// Enters Error, and flushes all that was in progress or posted. Later work requests are
    /// flushed by their posters. The socket must be detached, if there was one. Sleeps.
    pub(crate) fn enter_error(self: &QpObj) {
        self.stop_tx();
        // Claims the flush before a poster can see the phase. The first flush frees memory, which a
        // poster's context may not do, and the events of the caller come after its completions. A
        // poster that saw the Error before a RESET may have the claim for a moment.
        let ours = match self.phase() {
            Phase::Error => self.claim_flush(),
            _ => {
                self.hold_flush();
                true
            }
        };
        self.advance(Phase::Error);
        if ours {
            self.flush_progress();
            self.flush_rounds();
        }
    }

    /// Raises `LAST_WQE_REACHED` if the QP has a shared receive queue, and starts the reaper.
    /// Called after [`Self::enter_error`]. Sleeps.
    pub(crate) fn flushed(self: &QpObj) {
        if self.resets.read_once() {
            return;
        }
        if self.rq.is_srq() && !self.stream.last_wqe.xchg(true, Relaxed) {
            self.event(qp::Event::LastWqeReached);
        }
        self.start_reaper();
    }

    /// Flushes work requests posted to a dead QP. Any context.
    ///
    /// The first caller works for all that come meanwhile, which keeps the order.
    pub(crate) fn restart_flush(self: &QpObj) {
        if self.phase() == Phase::Error && self.claim_flush() {
            self.flush_rounds();
        }
    }

    /// Takes the flush away from all others, until [`Self::release_flush`]. Sleeps.
    pub(super) fn hold_flush(self: &QpObj) {
        while !self.claim_flush() {
            // A flush has a limited number of rounds.
            fsleep(Delta::from_micros(100));
        }
    }

    /// Ends [`Self::hold_flush`], without a flush.
    pub(super) fn release_flush(self: &QpObj) {
        self.stream.flushes.store(flush::IDLE, Release);
    }

    /// Claims the flush. If `true`, the caller must call [`Self::flush_rounds`]. A full barrier.
    fn claim_flush(self: &QpObj) -> bool {
        let mut now = self.stream.flushes.read_once();
        loop {
            let (next, ours) = flush::claim(now);
            match self.stream.flushes.cmpxchg(now, next, Full) {
                Ok(_) => return ours,
                Err(other) => now = other,
            }
        }
    }

    /// Flushes until no claim is left. The caller has the claim.
    fn flush_rounds(self: &QpObj) {
        for round in 1u32.. {
            let seen = self.stream.flushes.load(Acquire);
            // The queue pair may have begun anew before the claim, but not since.
            if self.phase() == Phase::Error {
                self.flush_all();
            }
            let mut now = seen;
            while let Some(next) = flush::release(now, seen) {
                match self.stream.flushes.cmpxchg(now, next, Full) {
                    Ok(_) => return,
                    Err(other) => now = other,
                }
            }
            // A program that keeps ringing gets no more rounds. The reaper finds what it has
            // posted.
            if self.is_user() && round >= ROUNDS {
                self.stream.flushes.store(flush::IDLE, Release);
                return;
            }
        }
    }

    /// Ends the data path of a QP that is being destroyed, and drops what it holds. Nothing is
    /// posted any more. Sleeps.
    pub(crate) fn finish(self: &QpObj) {
        self.enter_error();
        // The FIFO stays empty, so no release of memory is awaited again.
        self.stream.releases.forget();
        self.stop_reaper();
        let left = (self.stream.tx.take(), self.stream.rx.take());
        drop(left);
        self.stream.tx_pager.forget();
        self.stream.rx_pager.forget();
        self.forget_late();
        self.stream.clear_reads();
    }

    /// Flushes what was in progress, which comes before the queues. Sleeps.
    fn flush_progress(self: &QpObj) {
        // The references to memory go before the completions: the consumer of a REG_MR may map its
        // next list at once.
        let tx = self.stream.tx.take();
        let rx = self.stream.rx.take();
        let sent = tx.as_ref().map(|tx| tx.socket().sent());
        drop(tx);
        // What could not be brought may be there in the next life of the queue pair.
        self.stream.tx_pager.forget();
        self.stream.rx_pager.forget();
        self.forget_late();
        self.stop_control();
        self.unbind_windows();
        self.retire_all(sent);
        self.stream.clear_reads();
        if let Some(id) = rx.as_ref().and_then(|rx| rx.unfinished()) {
            self.flush_recv(id);
        }
    }

    fn flush_all(self: &QpObj) {
        self.flush_sq();
        if !self.rq.is_srq() {
            self.flush_rq();
        }
    }

    fn flush_sq(self: &QpObj) {
        // A program that scribbles into its ring meanwhile gets a few laps and no more.
        let (mut at, mut next) = (self.sq.cursor(), SendWr::empty());
        for _ in 0..self.sq.size().saturating_mul(4) {
            let (id, op) = match self.sq.take(&mut at, &mut next) {
                Ok(false) => return,
                Ok(true) => (next.id(), next.op.wc()),
                Err(bad) => (bad.id, bad.op),
            };
            self.stats.inc(Counter::Flushed);
            next.reg = None;
            let wr = Wr {
                id,
                op,
                bytes: 0,
                signalled: true,
            };
            self.complete_send(&wr, WcStatus::WrFlushErr);
        }
    }

    fn flush_rq(self: &QpObj) {
        let mut next = RecvWr::empty();
        for _ in 0..self.rq.size().saturating_mul(4) {
            if !self.rq.take(&mut next) {
                return;
            }
            self.flush_recv(next.id());
        }
    }

    fn flush_recv(self: &QpObj, id: u64) {
        self.stats.inc(Counter::Flushed);
        self.complete_recv(id, &Receipt::failed(WcStatus::WrFlushErr));
    }
}
