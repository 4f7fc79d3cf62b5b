// SPDX-License-Identifier: GPL-2.0

//! The control pipeline: registrations, invalidations and binds that the SQ does not wait for.
//!
//! The owner of the transmit token hands an operation over, notes that on the entry of the table
//! (`iwarp::mem::pending`), and takes the next work request. Only messages that use the entry wait:
//! its own to any operation, those of the peer to one that gives rights. A worker executes the
//! operations of a queue pair in the order of the SQ, and goes on while another queue pair's takes
//! long. Their completions keep their places in the order of the SQ.
//!
//! An operation that is handed over never waits for data, so data may wait for it.

use super::{
    end::Cause,
    fifo::Ring,
    state::Phase,
    Qp, //
};
use crate::{
    stats::Counter,
    tpt::{
        entry::Entry,
        fast_reg::RegWr, //
    },
    QpObj,
    QpRef, //
};
use base::{
    sync::SpinLockIrq,
    table::RcuArc,
    wq, //
};
use iwarp::{
    error::{
        AccessError,
        AccessOp,
        Error as IwarpError, //
    },
    mem::{
        access::Bind,
        pending::{
            Look,
            Removed, //
        },
        stag::Stag, //
    },
    qp::owner::Wake,
    verdict::WcStatus, //
};
use kernel::{
    impl_has_delayed_work,
    prelude::*,
    sync::{
        aref::ARef,
        atomic::{
            Acquire,
            Atomic,
            Full, //
        },
        Arc, //
    },
    time::{
        delay::fsleep,
        Delta, //
    },
    workqueue::{
        new_delayed_work,
        DelayedWork,
        WorkItem, //
    }, //
};

/// Most operations of a queue pair in its pipeline. More of them wait in the SQ.
const DEPTH: u32 = 16;

/// A control operation of the SQ.
pub(super) enum What {
    Register(RegWr),
    Invalidate(Stag),
    Bind(Bind),
}

impl What {
    /// Executes the operation. What a registration holds is given back on return. Any context
    /// except hard interrupts.
    pub(super) fn execute(self, qp: &QpObj) -> Result<(), IwarpError> {
        let tpt = &qp.dev.tpt;
        match self {
            Self::Register(mut reg) => tpt
                .fast_reg(qp.pd, &mut reg)
                .map_err(|error| error.during(AccessOp::Register)),
            Self::Invalidate(stag) => tpt
                .invalidate(stag, &qp.accessor(), false)
                .map_err(|error| error.during(AccessOp::LocalInvalidate)),
            Self::Bind(bind) => tpt
                .bind(&qp.pd().windows, &bind)
                .map_err(|error| error.during(AccessOp::Bind)),
        }
    }
}

/// An operation in the pipeline.
pub(super) struct Op {
    /// Its number in the FIFO of completions.
    pub(super) seq: u32,
    pub(super) entry: RcuArc<Entry>,
    pub(super) what: What,
    /// A failure stops the SQ, and not the stream.
    pub(super) drains: bool,
    /// What it takes more, in microseconds.
    pub(super) delay: u32,
}

/// What waits for the worker.
struct Lane {
    ops: Ring<Op>,
    /// The queue pair, as long as there are operations.
    qp: Option<QpRef>,
    /// The queue pair has ended.
    stopped: bool,
}

/// The control pipeline of a queue pair.
#[pin_data]
pub(crate) struct Control {
    #[pin]
    work: DelayedWork<Self>,
    #[pin]
    lane: SpinLockIrq<Lane>,
    /// Operations that are handed over and not done. The hot path reads no more than this.
    busy: Atomic<u32>,
}

impl_has_delayed_work! {
    impl HasDelayedWork<Self> for Control { self.work }
}

impl Control {
    /// For a queue pair whose SQ has `sq_size` elements. Sleeps.
    pub(super) fn new(sq_size: u32) -> Result<Arc<Self>> {
        let lane = Lane {
            ops: Ring::new(DEPTH.min(sq_size))?,
            qp: None,
            stopped: false,
        };
        Arc::pin_init(
            pin_init!(Self {
                work <- new_delayed_work!("siw_control"),
                lane <- ranked_spinlock!(Rank::Control, lane),
                busy: Atomic::new(0),
            }),
            GFP_KERNEL_ACCOUNT,
        )
    }

    /// Takes operations again, after the queue pair has begun anew.
    pub(super) fn renew(&self) {
        self.lane.lock().stopped = false;
    }

    /// Operations that are handed over and not done.
    ///
    /// Whoever hands one over publishes it before what the peer can answer to, and before its own
    /// next message. Whoever sees that one is done sees what it did, and whether it stopped the SQ.
    #[inline]
    pub(crate) fn busy(&self) -> u32 {
        self.busy.load(Acquire)
    }

    /// Whether the owner of the token can hand one over.
    pub(super) fn has_room(&self) -> bool {
        !self.lane.lock().ops.is_full()
    }

    /// The entry of the next operation, and the queue pair.
    fn peek(&self) -> Option<(QpRef, RcuArc<Entry>)> {
        let lane = self.lane.lock();
        let op = lane.ops.front()?;
        Some((lane.qp.clone()?, op.entry.clone()))
    }

    /// The next operation, unless the queue pair has ended.
    fn take(&self) -> Option<Op> {
        let mut lane = self.lane.lock();
        match lane.stopped {
            true => None,
            false => lane.ops.pop(),
        }
    }

    /// Whether there are more operations. If not, the queue pair may go.
    fn goes_on(&self) -> bool {
        let mut lane = self.lane.lock();
        if !lane.ops.is_empty() {
            return !lane.stopped;
        }
        let qp = lane.qp.take();
        drop(lane);
        drop(qp);
        false
    }
}

impl WorkItem for Control {
    type Pointer = Arc<Self>;

    /// Executes one operation.
    fn run(this: Arc<Self>) {
        let Some((qp, entry)) = this.peek() else {
            return;
        };
        // Otherwise whoever removes the notification before it queues this again.
        if !entry.pending().may_run(qp.qp_num()) {
            return;
        }
        let Some(op) = this.take() else { return };
        qp.run_control(op);
        if this.goes_on() {
            qp.wake_control();
        }
    }
}

impl Qp {
    /// Hands an operation over. Its notification is on the entry, and there is room. Any context.
    pub(super) fn hand_over(self: &QpObj, op: Op) {
        let control = &self.stream.control;
        self.stats.inc(Counter::CtrlQueued);
        control.busy.fetch_add(1, Full);
        let mut lane = control.lane.lock();
        lane.qp.get_or_insert_with(|| ARef::from(self));
        let pushed = lane.ops.push(op);
        drop(lane);
        // There was room, and nobody else pushes.
        drop(pushed);
        self.wake_control();
    }

    /// Queues the pipeline, unless it is queued. Any context.
    fn wake_control(self: &QpObj) {
        let queue = &self.dev.shared.control;
        // The queue returns a reference that it does not take.
        let _ = queue.enqueue_delayed(self.stream.control.clone(), 0);
    }

    /// Executes an operation whose turn it is. Process context.
    fn run_control(self: &QpObj, op: Op) {
        let Op {
            seq,
            entry,
            what,
            drains,
            delay,
        } = op;
        if delay != 0 {
            fsleep(Delta::from_micros(delay.into()));
        }
        let completions = &self.stream.completions;
        let mut done = false;
        if self.phase() >= Phase::Terminating {
            // The flush completes it.
            drop(what);
        } else if completions.glance().is_drained() {
            drop(what);
            self.stats.inc(Counter::Flushed);
            completions.failed(seq, WcStatus::WrFlushErr);
        } else {
            match what.execute(self) {
                Ok(()) => done = true,
                // Before the messages that wait go on: they are flushed, and not refused.
                Err(error) if drains && self.drains(seq, error) => {}
                Err(error) => {
                    completions.failed(seq, error.wc_status());
                    self.fail(Cause::Local(error));
                }
            }
        }
        let removed = entry.settle(|pending| pending.done(self.qp_num()));
        self.after_control(removed);
        if done {
            completions.read_done(seq);
        }
        self.retire();
        self.unstall();
    }

    /// After an operation of this queue pair is gone.
    fn after_control(self: &QpObj, removed: Removed) {
        self.stream.control.busy.fetch_sub(1, Full);
        if removed.room {
            // It is not known who waits, and this is rare.
            self.dev
                .qps
                .for_each(|_, other| other.wake_mover(Wake::Unblock));
        }
        let next = removed.next.and_then(|next| self.dev.qps.get(next));
        if let Some(next) = next {
            next.wake_control();
        }
    }

    /// Ends the pipeline: waits for the operation that is being executed, and drops the others.
    /// Transmission has been stopped. Sleeps.
    pub(super) fn stop_control(self: &QpObj) {
        let control = &self.stream.control;
        control.lane.lock().stopped = true;
        wq::cancel_delayed_sync(control);
        loop {
            let op = control.lane.lock().ops.pop();
            let Some(op) = op else { break };
            // What a registration holds goes before its completion.
            drop(op.what);
            let removed = op.entry.settle(|pending| pending.drop_qp(self.qp_num()));
            self.after_control(removed);
        }
        let qp = control.lane.lock().qp.take();
        drop(qp);
    }

    /// Whether a message of the queue pair that uses `stag` has to wait for its control operations.
    pub(super) fn waits_outbound(self: &QpObj, stag: Stag) -> bool {
        let entry = self.dev.tpt.entry(stag);
        entry.is_some_and(|entry| entry.pending().outbound(self.qp_num()) == Look::Stall)
    }

    /// The same for a message to the queue pair, as [`AccessError::Pending`].
    #[inline]
    pub(super) fn check_inbound(self: &QpObj, stag: Stag) -> Result<(), AccessError> {
        match self.stream.control.busy() {
            0 => Ok(()),
            _ => self.look_inbound(stag),
        }
    }

    #[cold]
    fn look_inbound(self: &QpObj, stag: Stag) -> Result<(), AccessError> {
        match self.dev.tpt.entry(stag) {
            Some(entry) if entry.pending().inbound(self.qp_num()) == Look::Stall => {
                Err(AccessError::Pending)
            }
            _ => Ok(()),
        }
    }
}
