// SPDX-License-Identifier: GPL-2.0

//! Memory on demand: has the pages brought for which a queue pair waits.
//!
//! Each direction of a queue pair waits for one access at a time, and has a work item for it. That
//! runs in the queue of the program whose memory it is, because the program may decide itself when
//! a page comes. So a program may delay the pages of those that share its queue, but not those of
//! other users. A queue pair that ends waits for none of it.

use crate::{
    stats::Counter,
    tpt::mem_ref::Missing,
    QpObj,
    QpRef, //
};
use base::sync::SpinLockIrq;
use iwarp::{
    error::AccessError,
    qp::faults::{
        Answer,
        Faults, //
    }, //
};
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
use soft::mem::odp::OdpUmem;

/// The work item of one direction. It is in one queue at a time, and brings only the pages of that
/// program: so what it waits for in a queue keeps the program there.
#[pin_data]
pub(in crate::qp) struct Pager {
    #[pin]
    work: Work<Self>,
    #[pin]
    state: SpinLockIrq<State>,
}

struct State {
    faults: Faults<Missing>,
    /// The queue pair that waits. Its end takes it out.
    qp: Option<QpRef>,
    /// Memory of the program in whose queue the item is, or runs. It then goes on by itself to the
    /// queue of what is wanted.
    place: Option<Arc<OdpUmem>>,
}

impl_has_work! {
    impl HasWork<Self> for Pager { self.work }
}

impl Pager {
    pub(in crate::qp) fn new() -> Result<Arc<Self>> {
        let state = State {
            faults: Faults::new(),
            qp: None,
            place: None,
        };
        Arc::pin_init(
            pin_init!(Self {
                work <- new_work!("siw_pager"),
                state <- ranked_spinlock!(Rank::Pager, state),
            }),
            GFP_KERNEL_ACCOUNT,
        )
    }

    /// Has `missing` brought for an access of `qp`, which goes on by
    /// [`unstall`](crate::Qp::unstall). An error if that was tried for the same access, and failed.
    /// Any context except hard interrupts.
    pub(in crate::qp) fn ask(
        self: &Arc<Self>,
        qp: &QpObj,
        missing: Missing,
    ) -> Result<(), AccessError> {
        let memory = missing.memory();
        let mut state = self.state.lock();
        let answer = state.faults.ask(missing, Missing::is);
        let mut starts = false;
        if matches!(answer, Answer::Wait(_)) {
            if state.qp.is_none() {
                state.qp = Some(QpRef::from(qp));
            }
            starts = state.place.is_none();
            if starts {
                state.place = Some(memory.clone());
            }
        }
        // What the answer returns is dropped without the lock: the last user of the memory may give
        // it back.
        drop(state);
        if matches!(answer, Answer::Refused(_)) {
            qp.stats.inc(Counter::PageFaultErrors);
            return Err(AccessError::Bounds);
        }
        if starts {
            self.enqueue(&memory);
        }
        Ok(())
    }

    /// The access for which `ask` was called last has gone through. Any context except hard
    /// interrupts.
    #[cold]
    pub(in crate::qp) fn passed(&self) {
        let failed = self.state.lock().faults.passed();
        drop(failed);
    }

    /// Queues the item, which is in no queue, at its place: with the program of `memory`.
    fn enqueue(self: &Arc<Self>, memory: &OdpUmem) {
        // The queue is there as long as the memory.
        if let Some(queue) = memory.queue() {
            let _ = queue.enqueue(self.clone());
        }
    }

    /// Forgets the queue pair, which ends, and what it waits for. Nobody asks any more.
    pub(in crate::qp) fn forget(&self) {
        let mut state = self.state.lock();
        let left = (state.faults.clear(), state.qp.take());
        drop(state);
        drop(left);
    }
}

/// Whether the pages of both are brought in the same queue.
fn share_queue(a: &OdpUmem, b: &OdpUmem) -> bool {
    match (a.queue(), b.queue()) {
        (Some(a), Some(b)) => core::ptr::eq(a, b),
        _ => false,
    }
}

impl WorkItem for Pager {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        let wanted = {
            let mut state = this.state.lock();
            let State { faults, place, .. } = &mut *state;
            faults.take(|missing| {
                let place = place.as_ref();
                place.is_some_and(|place| share_queue(place, &missing.memory()))
            })
        };
        let brought = wanted.map(|missing| (missing.bring(), missing));
        let mut state = this.state.lock();
        let next = state.faults.wanted().map(Missing::memory);
        let place = core::mem::replace(&mut state.place, next.clone());
        // If more is wanted, the next run wakes the queue pair.
        let qp = match next {
            None => state.qp.take(),
            Some(_) => None,
        };
        let (pages, old) = match brought {
            // Told to the access when that is tried again.
            Some((Err(_), missing)) if qp.is_some() => (0, state.faults.fail(missing)),
            Some((pages, missing)) => (pages.unwrap_or(0), Some(missing)),
            None => (0, None),
        };
        drop(state);
        drop((old, place));
        if let Some(memory) = next {
            this.enqueue(&memory);
        }
        if let Some(qp) = qp {
            qp.stats.add(Counter::PageFaults, pages);
            qp.unstall();
        }
    }
}
