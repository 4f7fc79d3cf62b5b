// SPDX-License-Identifier: GPL-2.0

//! The data path of a QP: its state, and its start.
//!
//! Transmission and reception have one owner each. The owner takes the state out of its slot for
//! the time of a run. The owner of reception is the context that has the socket locked; the owner
//! of transmission is the one that wins the token (`iwarp::qp::owner`). No lock is held across a
//! call into TCP, because TCP calls back from inside the driver's own sends.

use super::{
    completions::SendCompletions,
    control::Control,
    end::Reaper,
    irrq::{
        Irrq,
        Request, //
    },
    late::Late,
    loans::Responses,
    orq::Orq,
    pager::Pager,
    releases::Releases,
    rx::RxCtx,
    state::Phase,
    tx::{
        sched::Later,
        TxCtx, //
    },
    Qp, //
};
use crate::{
    cm::Endpoint,
    datamover::Mover,
    QpObj, //
};
use base::{
    context,
    sync::{
        AccessOnce,
        Slot,
        SpinLockIrq, //
    },
    timer::Timer, //
};
use iwarp::{
    mpa::{
        Negotiated,
        Rtr, //
    },
    qp::{
        intake::{
            self,
            Stall, //
        },
        owner::{
            self,
            Action, //
        }, //
    },
    rx::RxConfig,
    wire::{
        mpa::{
            RtrKind,
            RtrSet, //
        },
        terminate::Terminate, //
    }, //
};
use kernel::{
    alloc::flags::GFP_KERNEL_ACCOUNT,
    prelude::*,
    sync::{
        atomic::{
            Atomic,
            Full,
            Relaxed,
            Release, //
        },
        Arc,
        Completion, //
    }, //
};
use soft::tcp::SendSock;

/// The outcome of the handshake.
pub(crate) struct StreamParams {
    pub(crate) net: Negotiated,
    /// Reads that the peer may have outstanding.
    pub(crate) ird: u32,
    /// Reads that this side may have outstanding.
    pub(crate) ord: u32,
    /// This side is the responder: it sends nothing before the peer's first FPDU (RFC 5044 7.1.2).
    pub(crate) hold_tx: bool,
    pub(crate) rtr: Rtr,
}

/// The data path of a QP.
#[pin_data]
pub(crate) struct Stream {
    /// The transmit token: the word of `iwarp::qp::owner`.
    owner: Atomic<u32>,
    /// Completed when an owner has given the token up on request.
    #[pin]
    given_up: SpinLockIrq<Arc<Completion>>,
    pub(super) tx: Slot<TxCtx>,
    pub(super) rx: Slot<RxCtx>,
    /// Why `data_ready` receives nothing: the word of `iwarp::qp::intake`.
    rx_shut: Atomic<u32>,
    #[pin]
    pub(super) orq: SpinLockIrq<Orq>,
    #[pin]
    irrq: SpinLockIrq<Irrq>,
    /// Requests in the IRRQ, stored with its lock held and read without it. A hint only: adding a
    /// request wakes the owner afterwards.
    requests: Atomic<u32>,
    #[pin]
    pub(super) completions: SendCompletions,
    /// Notified when memory sent by reference is released.
    pub(super) releases: Arc<Releases>,
    /// The Read Responses that were sent by reference.
    #[pin]
    pub(super) responses: Responses,
    /// The Terminate that is due.
    #[pin]
    pub(super) owed: SpinLockIrq<Option<Terminate>>,
    /// The CPU whose datamover transmits for the QP: that of the last poster that did not transmit
    /// itself, or of the last turn outside a datamover that left something to send, except a
    /// turn that an ACK began.
    pub(super) home: Atomic<u32>,
    /// Doorbells are left to the timer `later`.
    pub(super) gathers: Atomic<bool>,
    #[pin]
    pub(super) later: Timer<Later>,
    /// Looks for the receive of a message that is stalled for it.
    #[pin]
    pub(super) late: Timer<Late>,
    /// Turns begun and bytes accepted by TCP, copied from the owner for debugfs.
    pub(super) turns: Atomic<u64>,
    pub(super) sent: Atomic<u64>,
    /// Bytes that are sent again, copied likewise.
    pub(super) kept: Atomic<u64>,
    /// The last turn ended for lack of memory.
    pub(super) starved: Atomic<bool>,
    /// The claim of the flush: the word of `iwarp::qp::flush`.
    pub(super) flushes: Atomic<u32>,
    /// The next flushed work request reports that the peer is gone.
    pub(super) unreachable: Atomic<bool>,
    /// `LAST_WQE_REACHED` has been raised.
    pub(super) last_wqe: Atomic<bool>,
    /// Bring the pages that transmission and reception wait for.
    pub(super) tx_pager: Arc<Pager>,
    pub(super) rx_pager: Arc<Pager>,
    /// The control pipeline.
    pub(crate) control: Arc<Control>,
    /// Work items of the datamover and of the reaper.
    pub(crate) mover: Arc<Mover>,
    pub(super) reaper: Arc<Reaper>,
}

impl Stream {
    /// The data path of a QP whose SQ has `sq_size` elements, not connected yet. Sleeps.
    pub(crate) fn new(
        sq_size: u32,
        mover: Arc<Mover>,
        given_up: Arc<Completion>,
    ) -> impl PinInit<Self, Error> {
        try_pin_init!(Self {
            owner: Atomic::new(owner::INITIAL),
            given_up <- ranked_spinlock!(Rank::GivenUp, given_up),
            tx: Slot::new(),
            rx: Slot::new(),
            rx_shut: Atomic::new(intake::OPEN),
            orq <- ranked_spinlock!(Rank::Orq, Orq::empty()),
            irrq <- ranked_spinlock!(Rank::Irrq, Irrq::empty()),
            requests: Atomic::new(0),
            completions <- SendCompletions::new(sq_size),
            releases: Releases::new()?,
            responses <- Responses::new(),
            owed <- ranked_spinlock!(Rank::Owed, None),
            home: Atomic::new(0),
            gathers: Atomic::new(false),
            later <- Timer::new(Later::new()),
            late <- Timer::new(Late::new()),
            turns: Atomic::new(0),
            sent: Atomic::new(0),
            kept: Atomic::new(0),
            starved: Atomic::new(false),
            flushes: Atomic::new(0),
            unreachable: Atomic::new(false),
            last_wqe: Atomic::new(false),
            tx_pager: Pager::new()?,
            rx_pager: Pager::new()?,
            control: Control::new(sq_size)?,
            mover,
            reaper: Reaper::new()?,
        })
    }

    /// Makes the data path as new. It has ended, nobody uses it, and the caller has claimed the
    /// flush.
    pub(super) fn renew(&self, given_up: Arc<Completion>, idle: Arc<Completion>) {
        let old = core::mem::replace(&mut *self.given_up.lock(), given_up);
        drop(old);
        self.completions.renew(idle);
        self.set_rx_shut(|_| intake::OPEN);
        *self.owed.lock() = None;
        self.unreachable.write_once(false);
        self.last_wqe.write_once(false);
        self.control.renew();
        self.reaper.renew();
        self.owner.store(owner::INITIAL, Release);
    }

    /// What is completed when an owner has given the token up on request.
    pub(super) fn given_up(&self) -> Arc<Completion> {
        self.given_up.lock().clone()
    }

    /// Whether work requests of the SQ are in progress.
    pub(crate) fn busy(&self) -> bool {
        !self.completions.is_empty() || !self.orq.lock().is_empty()
    }

    /// The state of the token, for debugfs.
    pub(crate) fn owner(&self) -> owner::Phase {
        owner::phase(self.owner.read_once())
    }

    /// Turns begun, bytes sent, and the CPU whose datamover goes on; for debugfs.
    pub(crate) fn progress(&self) -> (u64, u64, u32) {
        (
            self.turns.read_once(),
            self.sent.read_once(),
            self.home.read_once(),
        )
    }

    /// Work requests taken and not completed, Reads outstanding, Reads of the peer waiting; for
    /// debugfs.
    pub(crate) fn depths(&self) -> (u32, u32, u32) {
        (
            self.completions.len(),
            self.orq.lock().len(),
            self.irrq.lock().len(),
        )
    }

    /// Applies `f` to the transmit token; `f` may be called several times. `guess` is the word that
    /// is expected there. A right guess saves the look; a wrong one costs an exchange that fails.
    ///
    /// The exchange is a full barrier even if the word stays the same. What the caller did before
    /// is visible to the owner, which looks once more before it leaves.
    pub(super) fn step(&self, guess: u32, f: impl Fn(u32) -> owner::Step) -> Action {
        let mut now = guess;
        loop {
            let step = f(now);
            match self.owner.cmpxchg(now, step.next, Full) {
                Ok(_) => return step.action,
                Err(other) => now = other,
            }
        }
    }

    /// Whether the owner of the token is asked to give it up.
    pub(super) fn tx_stopping(&self) -> bool {
        owner::is_stopping(self.owner.read_once())
    }

    /// Whether `data_ready` may receive. The caller holds the socket, whose lock orders this: what
    /// [`Self::stop_rx`] does before the lock is taken is seen by all who take it later.
    pub(super) fn rx_is_open(&self) -> bool {
        intake::is_open(self.rx_shut.read_once())
    }

    /// Ends reception, except for a run that has begun and holds the socket.
    pub(super) fn stop_rx(&self) {
        self.set_rx_shut(intake::stop);
    }

    /// Leaves reception to a datamover. The lock of `Mover::queued` orders this before its turn.
    pub(super) fn defer_rx(&self) {
        self.set_rx_shut(intake::defer);
    }

    /// Takes reception over from the datamover, or as the datamover. Returns whether it was due.
    /// The caller receives with the socket locked, which orders this for other receivers.
    pub(super) fn take_rx(&self) -> bool {
        intake::is_due(self.rx_shut.read_once()) && intake::is_due(self.set_rx_shut(intake::take))
    }

    /// State of reception, for debugfs.
    pub(crate) fn rx_state(&self) -> intake::State {
        intake::state(self.rx_shut.read_once())
    }

    /// Whether reception goes on without new data: in a datamover, or at the end of a stall.
    pub(super) fn rx_goes_on(&self) -> bool {
        intake::goes_on(self.rx_shut.read_once())
    }

    /// Notes that reception is stalled for `reason`. The caller looks once more.
    pub(super) fn stall_rx(&self, reason: Stall) {
        self.set_rx_shut(|word| intake::stall(word, reason));
    }

    /// Takes the note back, because what was missing has been found.
    pub(super) fn end_rx_stall(&self) {
        self.set_rx_shut(intake::end_stall);
    }

    /// Leaves reception to a datamover, to be queued, if it is stalled for `reason`; returns
    /// whether it was. The caller has made memory appear, or posted a receive.
    pub(super) fn unstall_rx(&self, reason: Stall) -> bool {
        intake::waits(
            self.set_rx_shut(|word| intake::unstall(word, reason)),
            reason,
        )
    }

    /// True if reception is stalled for a receive. The lock of the receive queue orders this: a
    /// poster that has released the lock sees the note of a receiver that has found the queue
    /// empty before.
    pub(super) fn awaits_recv(&self) -> bool {
        intake::waits(self.rx_shut.read_once(), Stall::Receive)
    }

    /// Applies `f` to the word, and returns what it was. The exchange is a full barrier even if the
    /// word stays the same.
    fn set_rx_shut(&self, f: impl Fn(u32) -> u32) -> u32 {
        let mut now = self.rx_shut.read_once();
        loop {
            match self.rx_shut.cmpxchg(now, f(now), Full) {
                Ok(old) => return old,
                Err(other) => now = other,
            }
        }
    }

    /// Enters a Read Request of the peer. The caller wakes the transmitter afterwards.
    pub(super) fn add_request(&self, request: Request) -> iwarp::error::Result<()> {
        let mut irrq = self.irrq.lock();
        let pushed = irrq.push(request);
        self.requests.write_once(irrq.len());
        drop(irrq);
        // A refused request is dropped outside of the lock: it may end the life of its memory.
        pushed.map_err(|(error, _)| error)
    }

    /// Whether there are Read Requests to answer.
    pub(super) fn has_requests(&self) -> bool {
        self.requests.read_once() != 0
    }

    /// The next Read Request to answer.
    pub(super) fn take_request(&self) -> Option<Request> {
        let mut irrq = self.irrq.lock();
        let request = irrq.take()?;
        self.requests.write_once(irrq.len());
        Some(request)
    }

    /// Notes that a Read Request that was taken is answered.
    pub(super) fn responded(&self) {
        self.irrq.lock().responded();
    }

    /// Whether the caller flushes the first work request after the peer was gone.
    pub(super) fn take_unreachable(&self) -> bool {
        self.unreachable.read_once() && self.unreachable.xchg(false, Relaxed)
    }

    /// Empties the queues of Reads, and forgets the responses to those of the peer and a message
    /// that was cut off. Their contents are dropped without a lock.
    pub(super) fn clear_reads(&self) {
        let orq = core::mem::replace(&mut *self.orq.lock(), Orq::empty());
        let mut waiting = self.irrq.lock();
        let irrq = core::mem::replace(&mut *waiting, Irrq::empty());
        self.requests.write_once(0);
        drop(waiting);
        drop((orq, irrq));
        self.responses.clear();
        self.completions.forget_cut();
    }
}

impl Qp {
    /// Connects the data path to the socket of `ep`. `open`, called with the socket locked, admits
    /// data. Nothing is sent before [`Self::end_hold`] or, as responder, before the peer's first
    /// FPDU. Sleeps.
    ///
    /// The endpoint then runs `data_ready` once, for data that came in before.
    pub(crate) fn start(
        self: &QpObj,
        ep: &Arc<Endpoint>,
        p: StreamParams,
        open: impl FnOnce(&SendSock) -> Result,
    ) -> Result {
        let stream = &self.stream;
        // An RTR Read needs a place even if the depth is 0 (RFC 6581 9.2).
        let (rtr, expected) = match p.rtr {
            Rtr::None => (None, RtrSet::NONE),
            Rtr::Emit(kind) => (Some(kind), RtrSet::NONE),
            Rtr::Expect(set) => (None, set),
        };
        let ord = p.ord.max(u32::from(rtr == Some(RtrKind::Read)));
        let ird = p.ird.max(u32::from(expected.contains(RtrKind::Read)));
        let ord = u16::try_from(ord).map_err(|_| EINVAL)?;
        let ird = u16::try_from(ird).map_err(|_| EINVAL)?;
        let mut orq = Orq::new(ord)?;
        let irrq = Irrq::new(ird)?;
        let config = RxConfig {
            crc: p.net.crc,
            rtr: expected,
            immediate: self.extended,
            send_imm: self.extended && p.net.send_imm,
        };
        let held = p.hold_tx.then(|| ep.clone());
        let params = *self.dev.params.lock();
        let tx = KBox::new(
            TxCtx::new(ep.socket(), &p.net, rtr, &params, self.sq.cursor()),
            GFP_KERNEL_ACCOUNT,
        )?;
        let rx = KBox::new(
            RxCtx::new(config, held, params.recv_wait),
            GFP_KERNEL_ACCOUNT,
        )?;
        if let Some(read) = tx.rtr_read() {
            orq.push(read).map_err(|_| EINVAL)?;
        }
        let sock = ep.socket();
        // The peer reports work requests as done when TCP acknowledges them. So TCP takes in
        // nothing before the QP can receive.
        let mut locked = sock.lock();
        let _old = (
            core::mem::replace(&mut *stream.orq.lock(), orq),
            core::mem::replace(&mut *stream.irrq.lock(), irrq),
        );
        stream.completions.restart(params.rule);
        stream.home.write_once(context::cpu());
        stream.gathers.write_once(false);
        stream.sent.write_once(0);
        stream.kept.write_once(0);
        stream.tx.put(tx);
        stream.rx.put(rx);
        if !self.advance(Phase::Rts) {
            return Err(EINVAL);
        }
        open(&mut locked)
    }
}
