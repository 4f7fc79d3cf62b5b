// SPDX-License-Identifier: GPL-2.0

//! The end of a QP: whatever is still posted completes with a flush error, in the order it was posted.
//!
//! It begins when nothing can be placed or sent any more. Work requests posted to a dead QP are flushed the same way.

use crate::driver::qp::completions::Wr;
use crate::driver::qp::rq::RecvWr;
use crate::driver::qp::sq::SendWr;
use crate::driver::qp::state::Phase;
use crate::driver::stats::Counter;
use crate::driver::QpObj;
use crate::kapi::rdma::QpEvent;
use iwarp::error::WcStatus;
use iwarp::qp::flush;
use kernel::sync::atomic::{Acquire, Full, Relaxed, Release};

/// How often whoever flushes the queues of a program begins anew because the program has posted more.
const ROUNDS: u32 = 8;

impl QpObj {
    /// The stream is dead: when it returns all that was in progress, and that had been posted, is flushed. What is posted from now on is
    /// flushed by who posts it. The socket is detached or there never was one. Sleeps.
    pub(crate) fn enter_error(&self) {
        self.stop_tx();
        // Claimed before a poster can see that the QP is dead: the first flush frees a lot, for which the context of a poster does not do,
        // and what is said after it comes after the completions. Only of a QP without a connection two may announce the end at a time.
        let ours = self.claim_flush();
        self.advance(Phase::Error);
        if ours {
            self.flush_progress();
            self.flush_rounds();
        }
    }

    /// Tells a consumer with a shared receive queue that it got its last completion, and begins to look after the rings of a program.
    /// After [`Self::enter_error`]. Sleeps.
    pub(crate) fn flushed(&self) {
        if self.rq.is_srq() && self.stream.last_wqe.xchg(1, Full) == 0 {
            self.event(QpEvent::LastWqeReached);
        }
        self.start_reaper();
    }

    /// Flushes what has been posted to a dead QP. Any context.
    ///
    /// Whoever comes first works for all who come meanwhile, so order is kept.
    pub(crate) fn restart_flush(&self) {
        if self.phase() == Phase::Error && self.claim_flush() {
            self.flush_rounds();
        }
    }

    /// Whether the caller is the one to flush; if so it calls [`Self::flush_rounds`]. A full barrier.
    fn claim_flush(&self) -> bool {
        let mut now = self.stream.flushes.load(Relaxed);
        loop {
            let (next, ours) = flush::claim(now);
            match self.stream.flushes.cmpxchg(now, next, Full) {
                Ok(_) => return ours,
                Err(other) => now = other,
            }
        }
    }

    /// Flushes until nobody wants more. The caller has the claim.
    fn flush_rounds(&self) {
        for round in 1u32.. {
            let seen = self.stream.flushes.load(Acquire);
            self.flush_all();
            let mut now = seen;
            while let Some(next) = flush::release(now, seen) {
                match self.stream.flushes.cmpxchg(now, next, Full) {
                    Ok(_) => return,
                    Err(other) => now = other,
                }
            }
            // A program that never stops ringing gets no more of our time. The reaper finds what it has posted.
            if self.is_user() && round >= ROUNDS {
                self.stream.flushes.store(flush::IDLE, Release);
                return;
            }
        }
    }

    /// Ends the data path of a QP that is being destroyed: what it still holds is let go of, nothing is posted any more. Sleeps.
    pub(crate) fn finish(&self) {
        self.enter_error();
        // The FIFO is empty for good: nobody will wait again.
        self.stream.releases.forget();
        self.stop_reaper();
        let left = (self.stream.tx.take(), self.stream.rx.take());
        drop(left);
        self.stream.clear_reads();
    }

    /// Flushes what was in progress. It goes before the queues. Sleeps.
    fn flush_progress(&self) {
        // Its memory is let go of before it completes: who hears of a REG_MR may map the next list at once.
        let tx = self.stream.tx.take();
        let rx = self.stream.rx.take();
        let sent = tx.as_ref().map(|tx| tx.socket().sent());
        drop(tx);
        self.retire_all(sent);
        self.stream.clear_reads();
        if let Some(id) = rx.as_ref().and_then(|rx| rx.unfinished()) {
            self.flush_recv(id);
        }
    }

    fn flush_all(&self) {
        self.flush_sq();
        if !self.rq.is_srq() {
            self.flush_rq();
        }
    }

    /// Forgets what is posted. Nobody posts or transmits meanwhile.
    pub(in crate::driver::qp) fn discard(&self) {
        let mut next = SendWr::empty();
        for _ in 0..self.sq.size().saturating_mul(4) {
            if let Ok(false) = self.sq.take(&mut next) {
                break;
            }
        }
        if self.rq.is_srq() {
            return;
        }
        let mut next = RecvWr::empty();
        for _ in 0..self.rq.size().saturating_mul(4) {
            if !self.rq.take(&mut next) {
                break;
            }
        }
    }

    fn flush_sq(&self) {
        // A program that goes on scribbling into its ring gets no more than a few laps of it.
        let mut next = SendWr::empty();
        for _ in 0..self.sq.size().saturating_mul(4) {
            let (id, op) = match self.sq.take(&mut next) {
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

    fn flush_rq(&self) {
        let mut next = RecvWr::empty();
        for _ in 0..self.rq.size().saturating_mul(4) {
            if !self.rq.take(&mut next) {
                return;
            }
            self.flush_recv(next.id());
        }
    }

    fn flush_recv(&self, id: u64) {
        self.stats.inc(Counter::Flushed);
        self.complete_recv(id, WcStatus::WrFlushErr, 0, false, None);
    }
}
