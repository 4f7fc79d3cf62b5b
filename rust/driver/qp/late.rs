// SPDX-License-Identifier: GPL-2.0

//! Late receives: the stall of a stream whose next message finds no receive posted.
//!
//! A kernel consumer's post ends the stall. A program posts to a mapped queue without a system
//! call, so a timer looks at the queue (`iwarp::qp::intake::next_look`). The timer also ends the
//! stall when the message may wait no longer; the receiver then refuses the message.

use crate::{
    driver::{
        QpObj,
        QpRef, //
    },
    kapi::{
        context,
        sync::SpinLockIrq,
        timer::OnTimer, //
    }, //
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
pub(in crate::driver::qp) struct Wait {
    since: Instant<Monotonic>,
    limit: Msecs,
}

impl Wait {
    /// A wait of at most `limit` that begins now.
    pub(in crate::driver::qp) fn begin(limit: Msecs) -> Self {
        Self {
            since: Instant::now(),
            limit,
        }
    }

    /// True if the message may wait no longer.
    pub(in crate::driver::qp) fn is_over(&self) -> bool {
        self.next_look().is_none()
    }

    /// Milliseconds until the next look at the receive queue; `None` if the wait is over.
    fn next_look(&self) -> Option<Msecs> {
        let waited = self.since.elapsed().as_millis();
        intake::next_look(u32::try_from(waited).unwrap_or(u32::MAX), self.limit)
    }
}

/// The queue pair that the timer serves.
#[pin_data]
pub(in crate::driver::qp) struct Late {
    #[pin]
    watch: SpinLockIrq<Option<(QpRef, Wait)>>,
}

impl Late {
    pub(in crate::driver::qp) fn new() -> impl PinInit<Self> {
        pin_init!(Self {
            watch <- ranked_spinlock!(Rank::Late, None),
        })
    }
}

impl OnTimer for Late {
    fn on_timer(&self) {
        let mut watch = self.watch.lock();
        if let Some((qp, wait)) = &*watch {
            if qp.stream.awaits_recv() && !qp.rq.has_work() {
                if let Some(pause) = wait.next_look() {
                    qp.look_again(pause);
                    return;
                }
            }
        }
        let over = watch.take();
        drop(watch);
        if let Some((qp, _)) = over {
            qp.recv_posted();
        }
    }
}

impl QpObj {
    /// Starts the timer for a message that is stalled. The socket is locked.
    #[cold]
    pub(in crate::driver::qp) fn await_recv(&self, wait: Wait) {
        let mut watch = self.stream.late.target().watch.lock();
        let old = watch.replace((QpRef::from(self), wait));
        // One that is over already ends in the timer, too.
        self.look_again(wait.next_look().unwrap_or(0));
        drop(watch);
        drop(old);
    }

    fn look_again(&self, pause: Msecs) {
        let nanos = pause.saturating_mul(NSEC_PER_MSEC as u32);
        self.stream.late.start(nanos);
    }

    /// Ends a stall for a receive: one was posted, or the message may wait no longer. Any context.
    pub(crate) fn recv_posted(&self) {
        if self.stream.unstall_rx(Stall::Receive) {
            self.enqueue_mover(context::cpu());
        }
    }

    /// Forgets the stall of a queue pair that has ended: nobody receives for it.
    pub(in crate::driver::qp) fn forget_late(&self) {
        self.rq.strike(self);
        let old = self.stream.late.target().watch.lock().take();
        drop(old);
    }
}
