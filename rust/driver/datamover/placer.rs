// SPDX-License-Identifier: GPL-2.0

//! Placers: receive from a sender on this host, on another CPU than the sender's.
//!
//! What a process sends to its own host arrives in a softirq of its own CPU. If all of it were
//! placed there, one CPU would do the work of both ends. A placer is a worker that the scheduler
//! puts on a CPU that is free. Once there are as many placers as other CPUs, the rest is placed by
//! the CPUs that send: a worker would only take their data out of their caches.

use super::Movers;
use crate::{
    driver::{
        QpObj,
        QpRef, //
    },
    kapi::{
        context,
        sync::{
            AccessOnce,
            SpinLockIrq, //
        }, //
    }, //
};
use kernel::{
    alloc::flags::GFP_KERNEL_ACCOUNT,
    impl_has_work,
    prelude::*,
    sync::{
        aref::ARef,
        atomic::{
            Atomic,
            Relaxed, //
        },
        Arc, //
    },
    workqueue::{
        new_work,
        Work,
        WorkItem, //
    }, //
};

/// The work item of a QP. It keeps the QP alive only while it is queued.
#[pin_data]
pub(crate) struct Placer {
    #[pin]
    work: Work<Self>,
    #[pin]
    queued: SpinLockIrq<Option<QpRef>>,
    /// It is one of `Movers::placing`.
    counted: Atomic<bool>,
}

impl_has_work! {
    impl HasWork<Self> for Placer { self.work }
}

impl Placer {
    /// The work item of a new queue pair. Sleeps.
    pub(crate) fn new() -> Result<Arc<Self>> {
        Arc::pin_init(
            pin_init!(Self {
                work <- new_work!("siw_rx"),
                queued <- ranked_spinlock!(Rank::Placer, None),
                counted: Atomic::new(false),
            }),
            GFP_KERNEL_ACCOUNT,
        )
    }
}

impl WorkItem for Placer {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        let queued = this.queued.lock().take();
        if let Some(qp) = queued {
            qp.receive_on();
            let again = this.queued.lock().is_some();
            if !again && this.counted.xchg(false, Relaxed) {
                qp.dev.shared.movers.placing.fetch_sub(1, Relaxed);
            }
        }
        // As a datamover does.
        context::cond_resched();
    }
}

impl QpObj {
    /// Leaves reception, which is due, to the placer of the QP. Any context.
    pub(crate) fn enqueue_placer(&self) {
        let placer = &self.stream.placer;
        {
            let mut queued = placer.queued.lock();
            // It is in the queue, or about to be, and finds what is due.
            if queued.is_some() {
                return;
            }
            *queued = Some(ARef::from(self));
        }
        let movers = &self.dev.shared.movers;
        if !placer.counted.xchg(true, Relaxed) {
            movers.placing.add(1, Relaxed);
        }
        // It was not queued, so the queue accepts it.
        let _ = movers.placers.enqueue(placer.clone());
    }
}

impl Movers {
    /// Whether `placer` is at work, or a CPU besides this one may be free for it. A hint only.
    pub(crate) fn has_room_to_place(&self, placer: &Placer) -> bool {
        let cpus = context::cpus();
        cpus > 1
            && (placer.counted.read_once() || self.placing.read_once().saturating_add(1) < cpus)
    }
}
