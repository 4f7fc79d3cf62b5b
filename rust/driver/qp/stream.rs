// SPDX-License-Identifier: GPL-2.0

//! The data path of one QP: what it consists of, how it starts, how it fails, how it is stopped.
//!
//! Transmit and receive each have one owner at a time, and the owner has the state to himself: it lies in a slot and is taken out for the
//! time of a run. For receive the owner is whoever has the socket locked; for transmit it is who wins the token (`iwarp::qp::owner`). No lock is
//! held across a call into TCP, because TCP calls us back from inside our own sends.

use super::completions::{Releases, SendCompletions};
use super::end::Reaper;
use super::irrq::{Irrq, Request};
use super::orq::Orq;
use super::rx::RxCtx;
use super::state::Phase;
use super::tx::sched::Later;
use super::tx::TxCtx;
use crate::driver::cm::Endpoint;
use crate::driver::datamover::Mover;
use crate::driver::QpObj;
use crate::kapi::context;
use crate::kapi::net::LockedSock;
use crate::kapi::sync::{Atomic, Slot, SpinLockIrq};
use crate::kapi::timer::Timer;
use crate::new_spinlock_irq;
use iwarp::mpa::{Negotiated, Rtr};
use iwarp::qp::owner::{self, Action};
use iwarp::rx::RxConfig;
use iwarp::wire::mpa::{RtrKind, RtrSet};
use iwarp::wire::terminate::Terminate;
use kernel::alloc::flags::GFP_KERNEL_ACCOUNT;
use kernel::prelude::*;
use kernel::sync::atomic::{Acquire, Full, Relaxed, Release};
use kernel::sync::{Arc, Completion};

/// What was agreed when the connection was made.
pub(crate) struct StreamParams {
    pub(crate) net: Negotiated,
    /// Reads the peer may have outstanding.
    pub(crate) ird: u32,
    /// Reads we may have outstanding.
    pub(crate) ord: u32,
    /// Send nothing before the peer's first FPDU (RFC 5044 7.1.2): we are the responder.
    pub(crate) hold_tx: bool,
    pub(crate) rtr: Rtr,
}

/// The data path of a QP.
#[pin_data]
pub(crate) struct Stream {
    /// Who transmits: the word of `iwarp::qp::owner`.
    owner: Atomic<u32>,
    /// An owner that was asked to give up has done so.
    #[pin]
    pub(super) given_up: Completion,
    pub(super) tx: Slot<TxCtx>,
    pub(super) rx: Slot<RxCtx>,
    pub(super) rx_stopped: Atomic<u32>,
    /// A datamover is to go on receiving.
    pub(super) rx_due: Atomic<bool>,
    #[pin]
    pub(super) orq: SpinLockIrq<Orq>,
    #[pin]
    irrq: SpinLockIrq<Irrq>,
    /// Requests in the IRRQ, to look at without its lock. Only a hint: whoever adds one wakes the owner afterwards.
    requests: Atomic<u32>,
    #[pin]
    pub(super) completions: SendCompletions,
    /// Who is told that memory sent by reference is released.
    pub(super) releases: Arc<Releases>,
    /// The Terminate we owe the peer.
    #[pin]
    pub(super) owed: SpinLockIrq<Option<Terminate>>,
    /// The CPU of the last poster, or of the last Read Request that could not be answered on the spot: its mover takes the QP on.
    pub(super) home: Atomic<u32>,
    /// Doorbells are answered later, and by what.
    pub(super) gathers: Atomic<bool>,
    #[pin]
    pub(super) later: Timer<Later>,
    /// Turns begun and bytes TCP has accepted, as the owner has it; for debugfs.
    pub(super) turns: Atomic<u64>,
    pub(super) sent: Atomic<u64>,
    /// The last turn ended for want of memory.
    pub(super) starved: Atomic<bool>,
    /// The claim of the flush: the word of `iwarp::qp::flush`.
    pub(super) flushes: Atomic<u32>,
    /// The next work request to be flushed is the first that the peer was not there for.
    pub(super) unreachable: Atomic<bool>,
    /// `LAST_WQE_REACHED` has been raised.
    pub(super) last_wqe: Atomic<u32>,
    /// Work items: for transmission by a datamover, and for what comes after the end.
    pub(crate) mover: Arc<Mover>,
    pub(super) reaper: Arc<Reaper>,
}

impl Stream {
    /// The data path of a QP whose SQ has `sq_size` elements, not connected yet. Sleeps.
    pub(crate) fn new(sq_size: u32, mover: Arc<Mover>) -> impl PinInit<Self, Error> {
        try_pin_init!(Self {
            owner: Atomic::new(owner::INITIAL),
            given_up <- Completion::new(),
            tx: Slot::new(),
            rx: Slot::new(),
            rx_stopped: Atomic::new(0),
            rx_due: Atomic::new(false),
            orq <- new_spinlock_irq!(Orq::empty()),
            irrq <- new_spinlock_irq!(Irrq::empty()),
            requests: Atomic::new(0),
            completions <- SendCompletions::new(sq_size),
            releases: Releases::new()?,
            owed <- new_spinlock_irq!(None),
            home: Atomic::new(0),
            gathers: Atomic::new(false),
            later <- Timer::new(Later::new()),
            turns: Atomic::new(0),
            sent: Atomic::new(0),
            starved: Atomic::new(false),
            flushes: Atomic::new(0),
            unreachable: Atomic::new(false),
            last_wqe: Atomic::new(0),
            mover,
            reaper: Reaper::new()?,
        })
    }

    /// Whether work requests of the SQ are in progress.
    pub(crate) fn busy(&self) -> bool {
        !self.completions.is_empty() || !self.orq.lock().is_empty()
    }

    /// Who transmits; for debugfs.
    pub(crate) fn owner(&self) -> owner::Phase {
        owner::phase(self.owner.load(Relaxed))
    }

    /// Turns begun, bytes sent, and the CPU whose datamover goes on; for debugfs.
    pub(crate) fn progress(&self) -> (u64, u64, u32) {
        (
            self.turns.load(Relaxed),
            self.sent.load(Relaxed),
            self.home.load(Relaxed),
        )
    }

    /// Work requests taken and not completed, Reads outstanding, Reads of the peer waiting; for debugfs.
    pub(crate) fn depths(&self) -> (u32, u32, u32) {
        (
            self.completions.len(),
            self.orq.lock().len(),
            self.irrq.lock().len(),
        )
    }

    /// Moves the transmit token by `f`, which may be called several times.
    ///
    /// The exchange is a full barrier also when the word stays as it is: what the caller did before is then seen by the owner, who looks
    /// once more before he leaves.
    pub(super) fn step(&self, f: impl Fn(u32) -> owner::Step) -> Action {
        let mut now = self.owner.load(Relaxed);
        loop {
            let step = f(now);
            match self.owner.cmpxchg(now, step.next, Full) {
                Ok(_) => return step.action,
                Err(other) => now = other,
            }
        }
    }

    /// Whether the transmit owner is asked to give up.
    pub(super) fn tx_stopping(&self) -> bool {
        owner::is_stopping(self.owner.load(Relaxed))
    }

    pub(super) fn rx_stopped(&self) -> bool {
        self.rx_stopped.load(Acquire) != 0
    }

    /// Enters a Read Request of the peer; the transmit side is to be woken afterwards.
    pub(super) fn add_request(&self, request: Request) -> iwarp::error::Result<()> {
        self.irrq.lock().push(request)?;
        self.requests.fetch_add(1, Release);
        Ok(())
    }

    /// Whether there are Read Requests to answer.
    pub(super) fn has_requests(&self) -> bool {
        self.requests.load(Acquire) != 0
    }

    /// The next Read Request to answer.
    pub(super) fn take_request(&self) -> Option<Request> {
        let request = self.irrq.lock().take()?;
        self.requests.fetch_sub(1, Relaxed);
        Some(request)
    }

    /// A Read Request that was taken is answered.
    pub(super) fn responded(&self) {
        self.irrq.lock().responded();
    }

    /// Whether this is the first work request that the peer was not there for.
    pub(super) fn take_unreachable(&self) -> bool {
        self.unreachable.load(Relaxed) && self.unreachable.xchg(false, Full)
    }

    /// Drops the queues of Reads. What they held is dropped with no lock held.
    pub(super) fn clear_reads(&self) {
        let orq = core::mem::replace(&mut *self.orq.lock(), Orq::empty());
        let irrq = core::mem::replace(&mut *self.irrq.lock(), Irrq::empty());
        self.requests.store(0, Relaxed);
        drop((orq, irrq));
    }
}

impl QpObj {
    /// Connects the data path to the socket of `ep`; `open`, with the socket locked, lets data come. Until [`Self::end_hold`] or, for a
    /// responder, the peer's first FPDU nothing is sent. Sleeps.
    ///
    /// Afterwards the endpoint runs `data_ready` once by hand, for what had come in before.
    pub(crate) fn start(
        &self,
        ep: &Arc<Endpoint>,
        p: StreamParams,
        open: impl FnOnce(&mut LockedSock<'_>) -> Result,
    ) -> Result {
        let stream = &self.stream;
        // The Read that says "ready to receive" needs a place, even if no other Reads were agreed (RFC 6581 9.2).
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
        };
        let held = p.hold_tx.then(|| ep.clone());
        let params = *self.dev.params.lock();
        let tx = KBox::new(
            TxCtx::new(ep.socket(), &p.net, rtr, &params),
            GFP_KERNEL_ACCOUNT,
        )?;
        let rx = KBox::new(RxCtx::new(config, held), GFP_KERNEL_ACCOUNT)?;
        if let Some(read) = tx.rtr_read() {
            orq.push(read).map_err(|_| EINVAL)?;
        }
        let sock = ep.socket();
        // What TCP acknowledges the peer counts as delivered, and it reports the work requests as done. So TCP takes in nothing until all
        // of that comes here.
        let mut locked = sock.lock();
        let _old = (
            core::mem::replace(&mut *stream.orq.lock(), orq),
            core::mem::replace(&mut *stream.irrq.lock(), irrq),
        );
        stream.completions.restart(params.rule);
        stream.home.store(context::cpu(), Relaxed);
        stream.gathers.store(false, Relaxed);
        stream.tx.put(tx);
        stream.rx.put(rx);
        if !self.advance(Phase::Rts) {
            return Err(EINVAL);
        }
        open(&mut locked)
    }
}
