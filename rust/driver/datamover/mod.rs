// SPDX-License-Identifier: GPL-2.0

//! Datamovers: what transmits when the poster cannot, or has used up its turn, and receives what is
//! too much at once.
//!
//! They are the workers of a per-CPU queue. A QP is queued there at most once; when its turn is
//! over and there is more to send it goes to the end of the queue, so QPs of a CPU take turns, of
//! so many bytes each (`iwarp::qp::fairness`); those of a [`tenant`] share what one gets. A QP that
//! waits for space is not queued at all. Work that is queued for a CPU that goes offline is done by
//! others.

mod tenant;

use crate::{
    driver::{
        QpObj,
        QpRef, //
    },
    kapi::{
        context,
        sync::{
            Atomic,
            SpinLockIrq, //
        },
        wq::{
            Kind,
            WorkQueue, //
        }, //
    }, //
};
use kernel::{
    alloc::Flags,
    cpu::nr_cpu_ids,
    impl_has_work,
    prelude::*,
    sync::{
        aref::ARef,
        atomic::Relaxed,
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

/// What there is to know of the mover of one CPU.
struct Lane {
    /// QPs that wait for a turn.
    waiting: Atomic<u32>,
    /// Turns given; wraps.
    turns: Atomic<u32>,
}

/// Who else would transmit on a CPU.
pub(crate) struct Others {
    /// How many wait for the mover.
    pub(crate) waiting: u32,
    /// Turns the mover has given.
    pub(crate) turns: u32,
    /// Among how many QPs the share of the tenant is divided.
    pub(crate) sharers: u32,
}

/// One of it for each CPU there can be.
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

    /// Who waits for the mover of this CPU while the QP of `mover` transmits; `None` if nobody
    /// does.
    pub(crate) fn others(&self, mover: &Mover) -> Option<Others> {
        // The usual case costs one look at a word that hardly ever changes.
        if self.waiting.load(Relaxed) == 0 {
            return None;
        }
        let cpu = context::cpu();
        let lane = self.lanes.get(cpu as usize)?;
        let waiting = lane.waiting.load(Relaxed);
        (waiting != 0).then(|| Others {
            waiting,
            turns: lane.turns.load(Relaxed),
            sharers: mover.member.sharers(cpu, waiting),
        })
    }

    /// Waits until all that is queued now has run. Sleeps.
    pub(crate) fn flush(&self) {
        self.queue.flush();
    }

    fn joined(&self, member: &Membership, cpu: u32) {
        self.waiting.fetch_add(1, Relaxed);
        if let Some(waiting) = member.waiting(cpu) {
            waiting.fetch_add(1, Relaxed);
        }
        if let Some(lane) = self.lanes.get(cpu as usize) {
            lane.waiting.fetch_add(1, Relaxed);
        }
    }

    fn left(&self, member: &Membership, cpu: u32) {
        self.waiting.fetch_sub(1, Relaxed);
        if let Some(waiting) = member.waiting(cpu) {
            waiting.fetch_sub(1, Relaxed);
        }
        if let Some(lane) = self.lanes.get(cpu as usize) {
            lane.waiting.fetch_sub(1, Relaxed);
            lane.turns.fetch_add(1, Relaxed);
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
    /// Of a queue pair that a program of `uid` makes, or the kernel. Sleeps.
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
        // A worker that always has something to do never sleeps, and somebody may wait for that.
        context::cond_resched();
    }
}

impl QpObj {
    /// Puts the QP at the end of the queue of `cpu`, unless it is in a queue. Any context.
    pub(crate) fn enqueue_mover(&self, cpu: u32) {
        let movers = &self.dev.shared.movers;
        let mover = &self.stream.mover;
        {
            let mut queued = mover.queued.lock();
            // Whoever put it there is about to queue it, or has done so; and it has not run yet.
            if queued.is_some() {
                return;
            }
            *queued = Some(Queued {
                qp: ARef::from(self),
                cpu,
            });
            movers.joined(&mover.member, cpu);
        }
        // It was not queued, so this cannot be refused.
        let _ = movers.queue.enqueue_on(cpu, mover.clone());
    }
}
