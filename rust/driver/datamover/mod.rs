// SPDX-License-Identifier: GPL-2.0

//! Datamovers: what transmits when the poster cannot, or has used up its turn.
//!
//! They are the workers of a per-CPU queue. A QP is queued there at most once, by the transmit token; when its turn is over and there is
//! more to send it goes to the end of the queue, so QPs of a CPU take turns. A QP that waits for space is not queued at all.

use crate::driver::{QpObj, QpRef};
use crate::kapi::context;
use crate::kapi::sync::SpinLockIrq;
use crate::new_spinlock_irq;
use kernel::impl_has_work;
use kernel::prelude::*;
use kernel::sync::aref::ARef;
use kernel::sync::Arc;
use kernel::workqueue::{new_work, Work, WorkItem};

/// The work item of a QP. It keeps the QP alive only while it is queued.
#[pin_data]
pub(crate) struct Mover {
    #[pin]
    work: Work<Self>,
    #[pin]
    qp: SpinLockIrq<Option<QpRef>>,
}

impl_has_work! {
    impl HasWork<Self> for Mover { self.work }
}

impl Mover {
    pub(crate) fn new() -> Result<Arc<Self>> {
        Arc::pin_init(
            pin_init!(Self {
                work <- new_work!("siw_tx"),
                qp <- new_spinlock_irq!(None),
            }),
            GFP_KERNEL,
        )
    }
}

impl WorkItem for Mover {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        let qp = this.qp.lock().take();
        if let Some(qp) = qp {
            qp.run_mover();
        }
    }
}

impl QpObj {
    /// Puts the QP at the end of the queue of this CPU, where its data is warm. Only with the token in state "queued".
    pub(crate) fn enqueue_mover(&self) {
        let mover = self.stream.mover.clone();
        let old = mover.qp.lock().replace(ARef::from(self));
        drop(old);
        // It was not queued, so this cannot be refused.
        let _ = self.dev.shared.movers.enqueue_on(context::cpu(), mover);
    }
}
