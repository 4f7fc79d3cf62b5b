// SPDX-License-Identifier: GPL-2.0

//! Transmit scheduling: acquires and releases the owner token (`iwarp::qp::owner`), and locks the
//! socket for the owner.
//!
//! A program's doorbell and an arriving Read Request or Read Response transmit at once. An ACK that
//! makes space transmits if no process owns the socket, and a kernel poster if the socket is free.
//! Everything else, and the rest of a turn that takes too long, goes to a datamover. A timer serves
//! the doorbells of a program that posts small messages in a row (`iwarp::qp::coalesce`).

use super::{
    burst,
    space::is_enough,
    TxCtx, //
};
use crate::{
    qp::Qp,
    stats::Counter,
    QpObj,
    QpRef, //
};
use base::{
    context,
    sync::{
        smp_mb,
        AccessOnce,
        SpinLockIrq, //
    },
    timer::OnTimer, //
};
use iwarp::qp::{
    coalesce::{
        self,
        Gather, //
    },
    fairness::Share,
    owner::{
        self,
        Action,
        Leave,
        Wake, //
    },
    phase::Posted, //
};
use kernel::{
    prelude::*,
    sync::atomic::Relaxed, //
};
use soft::tcp::{
    SendSock,
    SockView, //
};

/// Bursts of a turn that a poster or a datamover begins, if no other QP waits. During that of a
/// kernel poster its CPU runs no softirq, and one of another CPU spins that has a packet for the
/// same socket.
const TURN: usize = 4;

/// Bursts of a turn that a packet, the timer or the end of the silence at the start begins, mostly
/// in softirq. All other work of the CPU waits meanwhile, and packets of many QPs may come at once.
const SHORT_TURN: usize = 1;

/// Delay of a coalesced doorbell, in nanoseconds.
const LATER: u32 = 25_000;

/// The reason for a turn.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Reason {
    /// The turn of a datamover.
    Mover,
    /// A program's doorbell, served at once.
    Doorbell,
    /// A program's doorbell, served by the timer.
    Later,
    /// TCP has space again.
    Space,
    /// A kernel consumer has posted, data has come in, or the stream begins.
    Other,
}

/// A turn.
#[derive(Clone, Copy)]
struct Turn {
    reason: Reason,
    /// Its limit, in [bursts](burst), if no other QP waits.
    bursts: usize,
}

/// The kind of poster.
#[derive(Clone, Copy)]
pub(crate) enum Poster {
    /// A user program, in its system call: may sleep.
    User,
    /// A kernel consumer, in any context.
    Kernel,
}

impl Qp {
    /// Transmits, or arranges for it, after work requests were posted. Any context that suits
    /// `who`.
    pub(crate) fn kick(self: &QpObj, who: Poster) {
        // Pairs with the barrier of `advance()`: either the phase read here is Error, or the flush
        // sees the work request.
        smp_mb();
        match self.phase().posted() {
            Posted::Transmit => {}
            Posted::Flush => return self.restart_flush(),
            Posted::Connect => {
                let pair = self.pair.lock().clone();
                if let Some(pair) = pair {
                    pair.posted();
                }
                return;
            }
            Posted::Fail => {
                let link = self.link.lock().clone();
                if let Some(ep) = link {
                    ep.in_vain();
                }
                return;
            }
            Posted::Leave => return,
        }
        if matches!(who, Poster::User) && self.stream.gathers.read_once() {
            return self.kick_later();
        }
        if self.try_own(Wake::Post, true) {
            match who {
                Poster::User => self.run_in_process(Turn::new(Reason::Doorbell, TURN)),
                Poster::Kernel => self.run_in_atomic(Turn::new(Reason::Other, TURN)),
            }
        } else {
            self.stream.home.write_once(context::cpu());
        }
    }

    /// Leaves posted work requests to a timer, because more are expected. Any context.
    fn kick_later(self: &QpObj) {
        let action = self.stream.step(Wake::Post.usual(), |word| {
            owner::kick(word, Wake::Post, false)
        });
        if let Action::Enqueue = action {
            *self.stream.later.target().qp.lock() = Some(QpRef::from(self));
            self.stream.later.start(LATER);
        } else {
            self.stream.home.write_once(context::cpu());
        }
    }

    /// Ends the silence that a responder keeps since the start. Any context.
    ///
    /// Transmits at once if it can. A datamover would own the socket meanwhile, and TCP
    /// acknowledges backlogged data before the driver places it.
    pub(crate) fn end_hold(self: &QpObj) {
        if self.try_own(Wake::Open, true) {
            self.run_in_atomic(Turn::new(Reason::Other, SHORT_TURN));
        }
    }

    /// Leaves the QP to a datamover.
    pub(in crate::qp) fn wake_mover(self: &QpObj, wake: Wake) {
        self.try_own(wake, false);
    }

    /// Transmits after the arrival of data that may unblock the QP. The caller holds the socket and
    /// has finished reading.
    pub(in crate::qp) fn kick_from_rx(self: &QpObj, wake: Wake, sk: &SendSock) {
        if self.try_own(wake, true) {
            if let Some(tx) = self.own_tx() {
                self.transmit(tx, sk, Turn::new(Reason::Other, SHORT_TURN));
            }
        }
    }

    /// Resumes transmission: TCP has space (`write_space`). The socket is locked, possibly by the
    /// driver's own send; `tx` is `None` if it may not be sent to.
    pub(crate) fn tx_space(self: &QpObj, sk: &SockView, tx: Option<&SendSock>) {
        self.await_acks(sk);
        if !is_enough(sk) || sk.space() == 0 {
            return;
        }
        if !self.stream.completions.awaits_ack() {
            sk.clear_nospace();
        }
        // Sends here if possible: a datamover may have to wait until a polling program has used up
        // its time slice.
        let Some(sock) = tx else {
            return self.wake_mover(Wake::Space);
        };
        if self.try_own(Wake::Space, true) {
            if let Some(tx) = self.own_tx() {
                self.transmit(tx, sock, Turn::new(Reason::Space, SHORT_TURN));
            }
        }
    }

    /// A datamover's turn.
    pub(crate) fn run_mover(self: &QpObj) {
        self.receive_on();
        self.retire_on();
        if self.stream.starved.xchg(false, Relaxed) {
            context::msleep(1);
        }
        if let Action::Run = self.stream.step(owner::QUEUED, owner::take) {
            self.stats.inc(Counter::MoverRuns);
            self.run_in_process(Turn::new(Reason::Mover, TURN));
        }
    }

    /// Has a datamover try again after a while, when there may be memory.
    pub(in crate::qp) fn starve(self: &QpObj) -> Leave {
        self.stream.starved.write_once(true);
        Leave::Budget
    }

    /// Offers to transmit (`direct`), or asks for a datamover. `true` if the caller now owns the
    /// token.
    fn try_own(self: &QpObj, wake: Wake, direct: bool) -> bool {
        let kick = |word| owner::kick(word, wake, direct);
        match self.stream.step(wake.usual(), kick) {
            Action::Run => true,
            Action::Enqueue => {
                if let Wake::Space = wake {
                    self.stats.inc(Counter::TxResumed);
                }
                self.enqueue_mover(self.stream.home.read_once());
                false
            }
            _ => false,
        }
    }

    /// Takes the transmit state for the owner of the token. Before the start and after the end
    /// there is none; the token is then released.
    fn own_tx(self: &QpObj) -> Option<KBox<TxCtx>> {
        loop {
            let tx = self.stream.tx.take();
            // A note keeps the token here; it may be the one of the start.
            if tx.is_some() || !self.release(Leave::Hold) {
                return tx;
            }
        }
    }

    /// Locks the socket and transmits. The caller owns the token. Sleeps.
    fn run_in_process(self: &QpObj, turn: Turn) {
        let Some(tx) = self.own_tx() else { return };
        let sock = tx.socket();
        self.transmit(tx, &sock.lock(), turn);
    }

    /// Transmits if the socket is free, else leaves the QP to a datamover. The caller owns the
    /// token. Any context.
    fn run_in_atomic(self: &QpObj, turn: Turn) {
        let Some(tx) = self.own_tx() else { return };
        let sock = tx.socket();
        let locked = sock.try_lock_bh();
        match locked {
            Some(sk) => self.transmit(tx, &sk, turn),
            None => {
                self.stream.tx.put(tx);
                self.leave_direct(turn, Leave::Budget);
                self.release(Leave::Budget);
            }
        }
    }

    /// Runs the owner's turn. Releases the token with the socket still locked, so that
    /// `write_space` cannot fall between the last look at the space and the release.
    fn transmit(self: &QpObj, mut tx: KBox<TxCtx>, sk: &SendSock, turn: Turn) {
        let limit = turn.bursts.saturating_mul(burst(sk));
        let (mut left, charged) = self.begin_turn(&mut tx.pace.share, turn.reason, limit);
        let (sent, taken) = (tx.accepted(), tx.taken);
        loop {
            let resumed = core::mem::take(&mut tx.pace.paused);
            let (before, accepted) = (left, tx.accepted());
            let why = match left {
                0 => Leave::Budget,
                _ => tx.run(self, sk, &mut left),
            };
            let why = match why {
                // The next ACK that makes enough space brings the next turn, without a datamover.
                Leave::Budget
                    if turn.reason == Reason::Space && left == 0 && !charged && !is_enough(sk) =>
                {
                    sk.set_nospace();
                    Leave::Space
                }
                // A note may have been left; the next turn answers it.
                Leave::Idle | Leave::Blocked if left == 0 => Leave::Budget,
                why => why,
            };
            if charged {
                // An FPDU goes out whole even if less was left.
                let sent = tx.accepted().wrapping_sub(accepted) as usize;
                tx.pace.share.charge(before.saturating_sub(left).max(sent));
            }
            tx.pace.turns = tx.pace.turns.wrapping_add(1);
            self.stream.turns.write_once(tx.pace.turns);
            self.stream.sent.write_once(tx.accepted());
            self.stream.kept.write_once(tx.kept());
            if let Leave::Space = why {
                tx.pace.paused = true;
                if resumed && accepted == tx.accepted() {
                    self.stats.inc(Counter::TxResumedInVain);
                }
            }
            self.gather(&mut tx, turn, sent, taken);
            self.stream.tx.put(tx);
            self.leave_direct(turn, why);
            if !self.release(why) {
                return;
            }
            match self.own_tx() {
                Some(again) => {
                    tx = again;
                    tx.pace.paused = false;
                }
                None => return,
            }
        }
    }

    /// Decides after a turn whether the next doorbell is left to the timer.
    #[inline]
    fn gather(self: &QpObj, tx: &mut TxCtx, turn: Turn, sent: u64, taken: u32) {
        let later = match turn.reason {
            Reason::Doorbell => false,
            Reason::Later => true,
            Reason::Mover | Reason::Space | Reason::Other => return,
        };
        let gathers = tx.pace.gather.ended(coalesce::Turn {
            later,
            requests: tx.taken.wrapping_sub(taken),
            bytes: tx.accepted().wrapping_sub(sent) as usize,
            received: self.stats.get(Counter::RxFpdus),
            tick: context::jiffies() as u32,
        });
        if gathers != tx.pace.gathers {
            tx.pace.gathers = gathers;
            self.stream.gathers.write_once(gathers);
        }
    }

    /// The bytes that a turn may send, at most `limit`, and whether they are charged because other
    /// QPs wait.
    #[inline]
    fn begin_turn(self: &QpObj, share: &mut Share, reason: Reason, limit: usize) -> (usize, bool) {
        let by_mover = reason == Reason::Mover;
        match reason {
            Reason::Mover => {}
            Reason::Later => self.stats.inc(Counter::TxGathered),
            Reason::Space => self.stats.inc(Counter::TxResumed),
            Reason::Doorbell | Reason::Other => self.stats.inc(Counter::TxDirect),
        }
        let Some(others) = self.dev.shared.movers.others(&self.stream.mover) else {
            return (limit, false);
        };
        let credit = match by_mover {
            true => share.turn(others.turns, others.sharers),
            false => share.direct(others.turns, others.waiting, others.sharers),
        };
        (limit.min(credit as usize), true)
    }

    /// Notes, after a turn outside a datamover, who goes on if there is more to send: the datamover
    /// of this CPU, except after a turn in an ACK's softirq. The CPU on which ACKs arrive says
    /// nothing about the poster.
    fn leave_direct(self: &QpObj, turn: Turn, why: Leave) {
        if turn.reason == Reason::Mover {
            return;
        }
        if turn.reason != Reason::Space && matches!(why, Leave::Budget | Leave::Space) {
            self.stream.home.write_once(context::cpu());
        }
        if let Leave::Budget = why {
            self.stats.inc(Counter::TxDelegated);
        }
    }

    /// Releases the token; `true` if the caller still owns it, because somebody has left a note.
    fn release(self: &QpObj, why: Leave) -> bool {
        let leave = |word| owner::leave(word, why);
        match self.stream.step(owner::DIRECT, leave) {
            Action::Again => true,
            Action::Enqueue => {
                self.enqueue_mover(self.stream.home.read_once());
                false
            }
            Action::Stopped => {
                self.stream.given_up().complete_all();
                false
            }
            Action::Released => {
                if let Leave::Space = why {
                    self.stats.inc(Counter::TxPaused);
                }
                false
            }
            _ => false,
        }
    }
}

/// The scheduler's part of a transmitter.
pub(super) struct Pace {
    /// Decides when doorbells are answered.
    gather: Gather,
    /// What it has decided, as in `Stream::gathers`.
    gathers: bool,
    /// Credit while other QPs wait for the same datamover.
    share: Share,
    /// The last run ended because TCP had too little space.
    paused: bool,
    /// Runs since the start.
    turns: u64,
}

impl Pace {
    pub(super) fn new() -> Self {
        Self {
            gather: Gather::new(),
            gathers: false,
            share: Share::new(),
            paused: false,
            turns: 0,
        }
    }
}

impl Turn {
    fn new(reason: Reason, bursts: usize) -> Self {
        Self { reason, bursts }
    }
}

/// A queue pair whose doorbell the timer serves.
#[pin_data]
pub(in crate::qp) struct Later {
    #[pin]
    qp: SpinLockIrq<Option<QpRef>>,
}

impl Later {
    pub(in crate::qp) fn new() -> impl PinInit<Self> {
        pin_init!(Self {
            qp <- ranked_spinlock!(Rank::Later, None),
        })
    }
}

impl OnTimer for Later {
    fn on_timer(&self) {
        let qp = self.qp.lock().take();
        let Some(qp) = qp else { return };
        if let Action::Run = qp.stream.step(owner::QUEUED, owner::take) {
            qp.run_in_atomic(Turn::new(Reason::Later, SHORT_TURN));
        }
    }
}
