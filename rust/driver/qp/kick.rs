// SPDX-License-Identifier: GPL-2.0

//! Who transmits: taking and giving back the token of `iwarp::tx_owner`, and where the owner gets a locked socket from.
//!
//! A user's doorbell and the arrival of a Read Request are served on the spot; kernel posters too, if the socket happens to be free;
//! a turn that gets too long, and a stream that gets its send space back, go to a datamover.

use super::state::Phase;
use super::tx::{TxCtx, Wire};
use crate::driver::stats::Counter;
use crate::driver::QpObj;
use crate::kapi::context;
use crate::kapi::net::{RxSock, SockView};
use iwarp::tx_owner::{self, Action, Leave, Wake};
use iwarp::tx_share::Share;
use kernel::prelude::*;
use kernel::sync::atomic::{Full, Relaxed};
use kernel::sync::barrier::smp_mb;

/// Bytes a turn may take if no other QP waits for one: in process context, and where others have to wait for us.
const TURN: usize = 256 * 1024;
const SHORT_TURN: usize = 128 * 1024;

/// A turn.
#[derive(Clone, Copy)]
struct Turn {
    /// Given by a datamover, not taken on the spot.
    by_mover: bool,
    /// Its limit in bytes, if nobody waits.
    limit: usize,
}

/// Who has posted.
#[derive(Clone, Copy)]
pub(crate) enum Kick {
    /// A user program, in its system call: may sleep.
    Poster,
    /// A kernel ULP, in any context.
    KernelPoster,
}

impl QpObj {
    /// Work requests have been posted. Any context that suits `who`.
    pub(crate) fn kick(&self, who: Kick) {
        // What was posted is visible before the phase is read: either we see that the QP is dead, or its flush sees the work request.
        smp_mb();
        match self.phase() {
            Phase::Rts => {}
            Phase::Error => return self.restart_flush(),
            Phase::Connecting => {
                let pair = self.pair.lock().clone();
                if let Some(pair) = pair {
                    pair.posted();
                }
                return;
            }
            Phase::Alone => {
                let link = self.link.lock().clone();
                if let Some(ep) = link {
                    ep.in_vain();
                }
                return;
            }
            // Not yet connected, or on its way out: the start or the flush will find them.
            Phase::Idle | Phase::Closing | Phase::Terminating => return,
        }
        if self.try_own(Wake::Post, true) {
            match who {
                Kick::Poster => self.run_in_process(false),
                Kick::KernelPoster => self.run_in_atomic(),
            }
        } else {
            self.stream.home.store(context::cpu(), Relaxed);
        }
    }

    /// Lets a responder transmit that has not heard from its peer yet. Any context.
    pub(crate) fn end_hold(&self) {
        self.wake_mover(Wake::Open);
    }

    /// Has a datamover look at the QP.
    pub(super) fn wake_mover(&self, wake: Wake) {
        self.try_own(wake, false);
    }

    /// Something came in that may let us send. The caller holds the socket and has finished reading.
    pub(super) fn kick_from_rx(&self, wake: Wake, sk: &mut RxSock<'_>) {
        if self.try_own(wake, true) {
            if let Some(tx) = self.own_tx() {
                self.transmit(tx, sk, Turn::direct(SHORT_TURN));
            }
        }
    }

    /// TCP has space: `write_space` of the endpoint. The socket is locked, possibly by our own send.
    pub(crate) fn tx_space(&self, sk: &SockView) {
        // Waking for every acknowledged segment would be a lot of turns with little to send. Until there is a good part of the buffer
        // free the flag stays set, and we are asked again at the next ACK.
        let space = sk.space();
        let enough = space >= sk.sndbuf() / 4 || sk.wmem_queued() == 0;
        self.await_acks(sk);
        if enough && space != 0 {
            if !self.stream.retire.awaits_ack() {
                sk.clear_nospace();
            }
            self.wake_mover(Wake::Space);
        }
    }

    /// A datamover's turn.
    pub(crate) fn run_mover(&self) {
        self.receive_on();
        if self.stream.starved.xchg(false, Full) {
            context::msleep(1);
        }
        if let Action::Run = self.stream.step(tx_owner::take) {
            self.stats.inc(Counter::MoverRuns);
            self.run_in_process(true);
        }
    }

    /// There is no memory: has a datamover try again in a while.
    pub(super) fn starve(&self) -> Leave {
        self.stream.starved.store(true, Relaxed);
        Leave::Budget
    }

    /// Offers to transmit (`direct`) or asks for a datamover; `true` if the caller now owns the transmit side.
    fn try_own(&self, wake: Wake, direct: bool) -> bool {
        match self.stream.step(|word| tx_owner::kick(word, wake, direct)) {
            Action::Run => true,
            Action::Enqueue => {
                if let Wake::Space = wake {
                    self.stats.inc(Counter::TxResumed);
                }
                self.enqueue_mover(self.stream.home.load(Relaxed));
                false
            }
            _ => false,
        }
    }

    /// The transmit state, for the owner of the token. It is in its slot whenever nobody owns the token, but for the time before the start
    /// and after the end; then the token is given back.
    fn own_tx(&self) -> Option<KBox<TxCtx>> {
        loop {
            let tx = self.stream.tx.take();
            // If somebody has left a note, the token is still ours; the note may be the start's.
            if tx.is_some() || !self.release(Leave::Hold) {
                return tx;
            }
        }
    }

    /// Transmits with the socket locked. Token held; sleeps.
    fn run_in_process(&self, by_mover: bool) {
        let Some(tx) = self.own_tx() else { return };
        let sock = tx.socket();
        let turn = Turn {
            by_mover,
            limit: TURN,
        };
        self.transmit(tx, &mut sock.lock(), turn);
    }

    /// Transmits if the socket is free, else leaves it to a datamover. Token held; any context.
    fn run_in_atomic(&self) {
        let Some(tx) = self.own_tx() else { return };
        let sock = tx.socket();
        let locked = sock.try_lock_bh();
        match locked {
            Some(mut sk) => self.transmit(tx, &mut sk, Turn::direct(SHORT_TURN)),
            None => {
                self.stream.tx.put(tx);
                self.leave_direct(Leave::Budget);
                self.release(Leave::Budget);
            }
        }
    }

    /// The owner's run. The token is given back with the socket still locked, so that `write_space` cannot fall between the last look at
    /// the space and the release.
    fn transmit(&self, mut tx: KBox<TxCtx>, sk: &mut impl Wire, turn: Turn) {
        let (mut left, charged) = self.begin_turn(&mut tx.share, turn);
        loop {
            let resumed = core::mem::take(&mut tx.paused);
            let (before, accepted) = (left, tx.accepted());
            let why = match left {
                0 => Leave::Budget,
                _ => tx.run(self, sk, &mut left),
            };
            let why = match why {
                // A note may have been left; its answer is for the next turn.
                Leave::Idle | Leave::Blocked if left == 0 => Leave::Budget,
                why => why,
            };
            if charged {
                tx.share.charge(before.saturating_sub(left));
            }
            tx.turns = tx.turns.wrapping_add(1);
            self.stream.turns.store(tx.turns, Relaxed);
            self.stream.sent.store(tx.accepted(), Relaxed);
            if let Leave::Space = why {
                tx.paused = true;
                if resumed && accepted == tx.accepted() {
                    self.stats.inc(Counter::TxResumedInVain);
                }
            }
            self.stream.tx.put(tx);
            if !turn.by_mover {
                self.leave_direct(why);
            }
            if !self.release(why) {
                return;
            }
            match self.own_tx() {
                Some(again) => {
                    tx = again;
                    tx.paused = false;
                }
                None => return,
            }
        }
    }

    /// How many bytes may be sent, and whether they are charged, as others wait.
    #[inline]
    fn begin_turn(&self, share: &mut Share, turn: Turn) -> (usize, bool) {
        if !turn.by_mover {
            self.stats.inc(Counter::TxDirect);
        }
        let Some(others) = self.dev.shared.movers.others() else {
            return (turn.limit, false);
        };
        let credit = match turn.by_mover {
            true => share.turn(others.turns),
            false => share.direct(others.turns, others.waiting),
        };
        (turn.limit.min(credit as usize), true)
    }

    /// Who transmitted on the spot leaves; a datamover on his CPU may have to go on.
    fn leave_direct(&self, why: Leave) {
        if matches!(why, Leave::Budget | Leave::Space) {
            self.stream.home.store(context::cpu(), Relaxed);
        }
        if let Leave::Budget = why {
            self.stats.inc(Counter::TxDelegated);
        }
    }

    /// Gives the token back; `true` if it is still ours, because somebody has left a note.
    fn release(&self, why: Leave) -> bool {
        match self.stream.step(|word| tx_owner::leave(word, why)) {
            Action::Again => true,
            Action::Enqueue => {
                self.enqueue_mover(self.stream.home.load(Relaxed));
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

impl Turn {
    fn direct(limit: usize) -> Self {
        Self {
            by_mover: false,
            limit,
        }
    }
}
