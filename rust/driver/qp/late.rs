// SPDX-License-Identifier: GPL-2.0

//! Late receives: the stall of a stream whose next message finds no receive posted.
//!
//! A kernel consumer's post ends the stall. Of queue pairs that share a queue it wakes those whose
//! messages have waited longest, as many as it has requests. A program posts to a mapped queue
//! without a system call, so a timer looks at the queue (`iwarp::qp::intake::next_look`). The timer
//! also ends the stall when the message may wait no longer; the receiver then refuses the message.

use super::Qp;
use crate::{
    QpObj,
    QpRef, //
};
use base::{
    context,
    sync::SpinLockIrq,
    timer::OnTimer, //
};
use iwarp::qp::intake::{
    self,
    Stall, //
};
use kernel::{
    prelude::*,
    time::{
        Instant,
        Monotonic,
        Msecs,
        NSEC_PER_MSEC, //
    }, //
};

/// The wait of one message for a receive.
#[derive(Clone, Copy)]
pub(in crate::qp) struct Wait {
    pub(in crate::qp) since: Instant<Monotonic>,
    limit: Msecs,
}

impl Wait {
    /// A wait of at most `limit` that begins now.
    pub(in crate::qp) fn begin(limit: Msecs) -> Self {
        Self {
            since: Instant::now(),
            limit,
        }
    }

    /// True if the message may wait no longer.
    pub(in crate::qp) fn is_over(&self) -> bool {
        self.waited() >= self.limit
    }

    /// Milliseconds waited so far.
    fn waited(&self) -> Msecs {
        u32::try_from(self.since.elapsed().as_millis()).unwrap_or(u32::MAX)
    }
}

/// A queue pair that is stalled.
struct Watch {
    qp: QpRef,
    wait: Wait,
    /// True if only the timer finds the receive.
    looks: bool,
}

impl Watch {
    /// Milliseconds until the timer is due; `None` if the wait is over.
    fn pause(&self) -> Option<Msecs> {
        let (waited, limit) = (self.wait.waited(), self.wait.limit);
        match self.looks {
            true => intake::next_look(waited, limit),
            false => limit.checked_sub(waited).filter(|left| *left != 0),
        }
    }
}

/// The queue pair that the timer serves.
#[pin_data]
pub(in crate::qp) struct Late {
    #[pin]
    watch: SpinLockIrq<Option<Watch>>,
}

impl Late {
    pub(in crate::qp) fn new() -> impl PinInit<Self> {
        pin_init!(Self {
            watch <- ranked_spinlock!(Rank::Late, None),
        })
    }
}

impl OnTimer for Late {
    fn on_timer(&self) {
        let mut watch = self.watch.lock();
        if let Some(it) = &*watch {
            if it.qp.stream.awaits_recv() && !(it.looks && it.qp.rq.has_work()) {
                if let Some(pause) = it.pause() {
                    it.qp.look_again(pause);
                    return;
                }
            }
        }
        let over = watch.take();
        drop(watch);
        if let Some(it) = over {
            it.qp.recv_posted();
        }
    }
}

impl Qp {
    /// Starts the timer for a message that is stalled; `looks`: a post does not wake the queue
    /// pair. The socket is locked.
    #[cold]
    pub(in crate::qp) fn await_recv(self: &QpObj, wait: Wait, looks: bool) {
        let qp = QpRef::from(self);
        let mut watch = self.stream.late.target().watch.lock();
        let new = Watch { qp, wait, looks };
        // A wait that is over also ends in the timer.
        self.look_again(new.pause().unwrap_or(0));
        let old = watch.replace(new);
        drop(watch);
        drop(old);
    }

    fn look_again(self: &QpObj, pause: Msecs) {
        let nanos = pause.saturating_mul(NSEC_PER_MSEC as u32);
        self.stream.late.start(nanos);
    }

    /// Ends a stall for a receive: one was posted, or the message may wait no longer. Returns
    /// whether there was such a stall. Any context.
    pub(crate) fn recv_posted(self: &QpObj) -> bool {
        let stalled = self.stream.unstall_rx(Stall::Receive);
        if stalled {
            self.enqueue_mover(context::cpu());
        }
        stalled
    }

    /// Forgets the stall of a queue pair that has ended: nobody receives for it.
    pub(in crate::qp) fn forget_late(self: &QpObj) {
        self.rq.strike(self);
        let old = self.stream.late.target().watch.lock().take();
        drop(old);
    }
}
