// SPDX-License-Identifier: GPL-2.0

//! Memory on demand: has the pages brought for which a queue pair waits.
//!
//! Each direction of a queue pair waits for one access at a time, and has a work item for it. That
//! runs in a queue of the program whose memory it is, because the program may decide itself when a
//! page comes. So a program may delay its own pages, but not those of others. A queue pair that
//! ends waits for none of it.

use crate::{
    driver::{
        stats::Counter,
        tpt::mem_ref::Missing,
        QpObj,
        QpRef, //
    },
    kapi::sync::SpinLockIrq, //
};
use iwarp::error::AccessError;
use kernel::{
    alloc::flags::GFP_KERNEL_ACCOUNT,
    impl_has_work,
    prelude::*,
    sync::Arc,
    workqueue::{
        new_work,
        Work,
        WorkItem, //
    }, //
};

/// The work item of one direction.
#[pin_data]
pub(in crate::driver::qp) struct Pager {
    #[pin]
    work: Work<Self>,
    #[pin]
    state: SpinLockIrq<State>,
}

struct State {
    /// What is to be brought next.
    wanted: Option<Missing>,
    /// What could not be brought, until its access has been told.
    failed: Option<Missing>,
    /// The queue pair that waits. Its end takes it out.
    qp: Option<QpRef>,
}

impl_has_work! {
    impl HasWork<Self> for Pager { self.work }
}

impl Pager {
    pub(in crate::driver::qp) fn new() -> Result<Arc<Self>> {
        let state = State {
            wanted: None,
            failed: None,
            qp: None,
        };
        Arc::pin_init(
            pin_init!(Self {
                work <- new_work!("siw_pager"),
                state <- ranked_spinlock!(Rank::Pager, state),
            }),
            GFP_KERNEL_ACCOUNT,
        )
    }

    /// Has `missing` brought for an access of `qp`, which goes on by [`QpObj::unstall`]. An error
    /// if that was tried for the same access, and failed. Any context except hard interrupts.
    pub(in crate::driver::qp) fn ask(
        self: &Arc<Self>,
        qp: &QpObj,
        missing: Missing,
    ) -> Result<(), AccessError> {
        let memory = missing.memory();
        let (failed, replaced) = {
            let mut state = self.state.lock();
            let failed = state.failed.take();
            match &failed {
                Some(failed) if failed.is(&missing) => (true, Some(missing)),
                _ => {
                    if state.qp.is_none() {
                        state.qp = Some(QpRef::from(qp));
                    }
                    (false, state.wanted.replace(missing))
                }
            }
        };
        // Outside of the lock: the last user of the memory may give it back.
        drop(replaced);
        if failed {
            qp.stats.inc(Counter::PageFaultErrors);
            return Err(AccessError::Bounds);
        }
        // The queue is there as long as the memory, which the item may have given back.
        if let Some(queue) = memory.queue() {
            // An item that runs just now runs once more, and finds this, or runs at the same time
            // in the queue of another program. The queue returns a reference that it does not take.
            let _ = queue.enqueue(self.clone());
        }
        Ok(())
    }

    /// Forgets the queue pair, which ends, and what it waits for. Nobody asks any more.
    pub(in crate::driver::qp) fn forget(&self) {
        let mut state = self.state.lock();
        let left = (state.wanted.take(), state.failed.take(), state.qp.take());
        drop(state);
        drop(left);
    }
}

impl WorkItem for Pager {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        let wanted = this.state.lock().wanted.take();
        let Some(missing) = wanted else { return };
        let brought = missing.bring();
        let mut state = this.state.lock();
        let awaited = state.qp.is_some();
        // If more is wanted, the next run wakes the queue pair.
        let qp = match state.wanted {
            None => state.qp.take(),
            Some(_) => None,
        };
        let old = match brought {
            Err(_) if awaited && state.wanted.is_none() => state.failed.replace(missing),
            _ => Some(missing),
        };
        drop(state);
        drop(old);
        if let Some(qp) = qp {
            qp.stats.add(Counter::PageFaults, brought.unwrap_or(0));
            qp.unstall();
        }
    }
}
