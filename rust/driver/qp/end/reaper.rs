// SPDX-License-Identifier: GPL-2.0

//! The reaper: flushes work requests that a program posts to a dead QP.
//!
//! A receive goes into mapped memory without a system call, so nothing else would flush it. The
//! reaper polls the rings until the QP is destroyed.

use crate::{
    qp::Qp,
    QpObj,
    QpRef, //
};
use base::{
    sync::SpinLockIrq,
    wq, //
};
use kernel::{
    prelude::*,
    sync::{
        aref::ARef,
        Arc, //
    },
    time::{
        msecs_to_jiffies,
        Msecs, //
    },
    workqueue::{
        impl_has_delayed_work,
        new_delayed_work,
        DelayedWork,
        WorkItem, //
    }, //
};

/// Time between two looks in milliseconds; it doubles from the first to the last.
const FIRST_MS: Msecs = 20;
const LAST_MS: Msecs = 1000;

/// The QP to look at, and the delay.
struct Watch {
    qp: Option<QpRef>,
    delay: Msecs,
}

/// The periodic look at a QP's rings.
#[pin_data]
pub(in crate::qp) struct Reaper {
    #[pin]
    work: DelayedWork<Self>,
    #[pin]
    watch: SpinLockIrq<Watch>,
}

impl_has_delayed_work! {
    impl HasDelayedWork<Self> for Reaper { self.work }
}

impl Reaper {
    pub(in crate::qp) fn new() -> Result<Arc<Self>> {
        Arc::pin_init(
            pin_init!(Self {
                work <- new_delayed_work!("siw_reaper"),
                watch <- ranked_spinlock!(Rank::Reaper, Watch {
                    qp: None,
                    delay: FIRST_MS,
                }),
            }),
            GFP_KERNEL_ACCOUNT,
        )
    }

    /// Begins with short delays again.
    pub(in crate::qp) fn renew(&self) {
        self.watch.lock().delay = FIRST_MS;
    }

    /// The QP, and the time until the next look in milliseconds.
    fn next(&self) -> Option<(QpRef, Msecs)> {
        let mut watch = self.watch.lock();
        let delay = watch.delay;
        watch.delay = delay.saturating_mul(2).min(LAST_MS);
        Some((watch.qp.clone()?, delay))
    }
}

impl WorkItem for Reaper {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        if let Some((qp, delay)) = this.next() {
            qp.restart_flush();
            qp.dev.shared.cm.mod_delayed(this, msecs_to_jiffies(delay));
        }
    }
}

impl Qp {
    /// Starts the reaper of a dead QP whose rings a program maps. Sleeps.
    pub(in crate::qp) fn start_reaper(self: &QpObj) {
        if !self.is_user() {
            return;
        }
        let reaper = &self.stream.reaper;
        let mut watch = reaper.watch.lock();
        // Not after `stop_reaper`, which nothing would follow: the core's reference to the QP lets
        // a disconnect get here during, and after, the QP's destruction, and that waits for the
        // reference taken here.
        if self.is_destroying() {
            return;
        }
        watch.qp.get_or_insert_with(|| ARef::from(self));
        // Under the lock: `stop_reaper` would not find what is queued after it has looked, and the
        // queue could go before the timer.
        self.dev
            .shared
            .cm
            .mod_delayed(reaper.clone(), msecs_to_jiffies(FIRST_MS));
    }

    /// Stops the reaper. Sleeps.
    pub(in crate::qp) fn stop_reaper(self: &QpObj) {
        let reaper = &self.stream.reaper;
        // Takes the reference first, so that a look that has begun is the last one.
        let qp = reaper.watch.lock().qp.take();
        wq::cancel_delayed_sync(reaper);
        drop(qp);
    }
}
