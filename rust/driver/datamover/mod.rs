// SPDX-License-Identifier: GPL-2.0

//! Datamovers: transmit when the poster cannot or has used up its turn, and receive what is too
//! much for one run.
//!
//! A datamover is the worker of a per-CPU queue. A QP is queued at most once. After its turn it
//! goes to the end of the queue if there is more to send, so the QPs of a CPU take turns of a
//! number of bytes (`iwarp::qp::fairness`). The QPs of a [`tenant`] share what one would get. A QP
//! that waits for space is not queued. If a CPU goes offline, other CPUs do its work.

mod tenant;

use crate::{
    Qp,
    QpObj,
    QpRef, //
};
use base::{
    context,
    sync::{
        AccessOnce,
        SpinLockIrq, //
    },
    wq::{
        Kind,
        WorkQueue, //
    }, //
};
use kernel::{
    alloc::Flags,
    cpu::nr_cpu_ids,
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
    task::Kuid,
    workqueue::{
        new_work,
        Work,
        WorkItem, //
    }, //
};
use tenant::{
    Membership,
    Tenants, //
};

/// The datamovers of all CPUs.
pub(crate) struct Movers {
    queue: WorkQueue,
    lanes: KVec<Lane>,
    tenants: Arc<Tenants>,
    /// QPs that wait for a turn, of whatever CPU.
    waiting: Atomic<u32>,
}

/// The load of one CPU's datamover.
struct Lane {
    /// QPs that wait for a turn.
    waiting: Atomic<u32>,
    /// Turns given; wraps at 2^32.
    turns: Atomic<u32>,
}

/// The competition for a datamover.
pub(crate) struct Others {
    /// QPs that wait for the datamover.
    pub(crate) waiting: u32,
    /// Turns that the datamover has given.
    pub(crate) turns: u32,
    /// QPs that divide the tenant's share.
    pub(crate) sharers: u32,
}

/// Creates one value for each possible CPU.
fn by_cpu<T>(make: impl Fn() -> T, flags: Flags) -> Result<KVec<T>> {
    let cpus = nr_cpu_ids() as usize;
    let mut all = KVec::with_capacity(cpus, flags)?;
    for _ in 0..cpus {
        all.push(make(), flags)?;
    }
    Ok(all)
}

impl Movers {
    pub(crate) fn new() -> Result<Self> {
        let lane = || Lane {
            waiting: Atomic::new(0),
            turns: Atomic::new(0),
        };
        let lanes = by_cpu(lane, GFP_KERNEL)?;
        Ok(Self {
            queue: WorkQueue::new(c"siw_tx", Kind::PerCpu)?,
            lanes,
            tenants: Tenants::new()?,
            waiting: Atomic::new(0),
        })
    }

    /// The competition on this CPU while the QP of `mover` transmits; `None` if no other QP waits.
    pub(crate) fn others(&self, mover: &Mover) -> Option<Others> {
        // The usual case reads one word, which hardly ever changes.
        if self.waiting.read_once() == 0 {
            return None;
        }
        let cpu = context::cpu();
        let lane = self.lanes.get(cpu as usize)?;
        let waiting = lane.waiting.read_once();
        (waiting != 0).then(|| Others {
            waiting,
            turns: lane.turns.read_once(),
            sharers: mover.member.sharers(cpu, waiting),
        })
    }

    /// Waits until all queued work has run. Sleeps.
    pub(crate) fn flush(&self) {
        self.queue.flush();
    }

    fn joined(&self, member: &Membership, cpu: u32) {
        self.waiting.add(1, Relaxed);
        if let Some(waiting) = member.waiting(cpu) {
            waiting.add(1, Relaxed);
        }
        if let Some(lane) = self.lanes.get(cpu as usize) {
            lane.waiting.add(1, Relaxed);
        }
    }

    fn left(&self, member: &Membership, cpu: u32) {
        self.waiting.fetch_sub(1, Relaxed);
        if let Some(waiting) = member.waiting(cpu) {
            waiting.fetch_sub(1, Relaxed);
        }
        if let Some(lane) = self.lanes.get(cpu as usize) {
            lane.waiting.fetch_sub(1, Relaxed);
            lane.turns.add(1, Relaxed);
        }
    }
}

/// The work item of a QP. It keeps the QP alive only while it is queued.
#[pin_data]
pub(crate) struct Mover {
    member: Membership,
    #[pin]
    work: Work<Self>,
    #[pin]
    queued: SpinLockIrq<Option<Queued>>,
}

/// A QP in the queue of a CPU.
struct Queued {
    qp: QpRef,
    cpu: u32,
}

impl_has_work! {
    impl HasWork<Self> for Mover { self.work }
}

impl Mover {
    /// The work item of a new queue pair of user `uid`; `None`: of the kernel. Sleeps.
    pub(crate) fn new(movers: &Movers, uid: Option<Kuid>) -> Result<Arc<Self>> {
        let member = movers.tenants.join(uid)?;
        Arc::pin_init(
            pin_init!(Self {
                member,
                work <- new_work!("siw_tx"),
                queued <- ranked_spinlock!(Rank::Mover, None),
            }),
            GFP_KERNEL_ACCOUNT,
        )
    }
}

impl WorkItem for Mover {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        let queued = this.queued.lock().take();
        if let Some(Queued { qp, cpu }) = queued {
            qp.dev.shared.movers.left(&this.member, cpu);
            qp.run_mover();
        }
        // A worker that always has work never sleeps. `synchronize_tasks()` waits for it to pass
        // here.
        context::cond_resched();
    }
}

impl Qp {
    /// Queues the QP at the end of the queue of `cpu`, unless it is queued. Any context.
    pub(crate) fn enqueue_mover(self: &QpObj, cpu: u32) {
        let movers = &self.dev.shared.movers;
        let mover = &self.stream.mover;
        {
            let mut queued = mover.queued.lock();
            // Another context is about to queue it, or has queued it, and it has not run yet.
            if queued.is_some() {
                return;
            }
            *queued = Some(Queued {
                qp: ARef::from(self),
                cpu,
            });
            movers.joined(&mover.member, cpu);
        }
        // It was not queued, so the queue accepts it.
        let _ = movers.queue.enqueue_on(cpu, mover.clone());
    }
}
