// SPDX-License-Identifier: GPL-2.0

//! Completion queues.
//!
//! A program's queue is a ring in memory that it maps; it polls and arms without a system call. A
//! kernel consumer's queue is private to the driver.

use super::{
    limits::{
        self,
        Count,
        Counted, //
    },
    queue::{
        Queue,
        Slots, //
    },
    stats::Counter,
    wc::{
        status_to_abi,
        status_to_ib,
        Completion, //
    },
    CqObj,
    CqRef,
    QpObj,
    Siw, //
};
use crate::uapi::abi;
use base::{
    errno,
    random,
    sync::{
        AccessOnce,
        SpinLockIrq, //
    }, //
};
use iwarp::{
    error::Error as ProtocolError,
    wire::rdmap::With, //
};
use kernel::prelude::*;
use rdma::{
    cq,
    Customer,
    Details,
    MmapEntry,
    RingMem,
    Udata,
    Wc,
    WcOut,
    WcWith, //
};
use soft::mem::ring::{
    CtrlWord,
    UserRing, //
};

#[derive(Clone, Copy, PartialEq, Eq)]
enum Armed {
    No,
    Solicited,
    Any,
}

/// A program's entries, and its request for notification.
struct UserCq {
    ring: UserRing<abi::Cqe>,
    ctrl: CtrlWord,
    /// Index of the next entry to be filled; wraps.
    put: u32,
    /// How many were filled before the ring was made; wraps.
    earlier: u32,
    /// The offer to map them.
    offer: MmapEntry<Siw>,
}

/// A kernel consumer's entries, and its request for notification.
struct KernelCq {
    slots: Slots<Wc>,
    armed: Armed,
}

struct Entries {
    queue: Queue<UserCq, KernelCq>,
    /// The queue has overrun, and takes no more completions.
    dead: bool,
}

enum Posted {
    Quiet,
    Notify,
    Overflow,
    Dead,
}

impl Entries {
    fn post(&mut self, qp: &QpObj, c: &Completion) -> Posted {
        if self.dead {
            return Posted::Dead;
        }
        let notify = match &mut self.queue {
            Queue::User(user) => user.post(qp, c),
            Queue::Kernel(kernel) => kernel.post(qp, c),
        };
        match notify {
            Some(true) => Posted::Notify,
            Some(false) => Posted::Quiet,
            None => {
                self.dead = true;
                Posted::Overflow
            }
        }
    }

    /// Removes the completions of `qp`, which is about to go, from a kernel consumer's queue. A
    /// program polls its own memory, and QP numbers are not reused soon.
    fn purge(&mut self, qp: &QpObj) -> u64 {
        match &mut self.queue {
            Queue::User(_) => 0,
            Queue::Kernel(kernel) => kernel.slots.retain(|wc| wc.qp != qp.tag()),
        }
    }
}

impl UserCq {
    /// An empty queue for `size` entries, a power of two, which `user` may map. Sleeps.
    fn new(user: Customer<'_, Siw>, size: u32) -> Result<Self> {
        let bytes = (size as usize)
            .checked_mul(size_of::<abi::Cqe>())
            .ok_or(EINVAL)?;
        let mem = RingMem::new(bytes.checked_add(abi::CQ_CTRL_SIZE).ok_or(EINVAL)?)?;
        Ok(Self {
            ring: UserRing::new(mem.clone(), 0, size)?,
            ctrl: CtrlWord::new(mem.clone(), bytes)?,
            put: 0,
            earlier: 0,
            offer: MmapEntry::new(user, mem)?,
        })
    }

    /// Whether the program has yet to poll more than `max` entries. It polls in order, so the flags
    /// of one entry tell.
    fn holds_more_than(&self, max: u32) -> bool {
        let last = self.put.wrapping_sub(max).wrapping_sub(1);
        max < self.ring.entries() && self.ring.flags(last) != 0
    }

    /// Posts a completion. Returns whether to notify the consumer, or `None` if there is no room.
    #[inline]
    fn post(&mut self, qp: &QpObj, c: &Completion) -> Option<bool> {
        // The write of the entry depends on these flags, so it comes after this.
        if self.ring.flags(self.put) != 0 {
            return None;
        }
        let (with, imm_or_stag) = match c.with {
            With::Nothing => (0, 0),
            With::Invalidate(stag) => (abi::wqe::REM_INVAL, stag.0),
            With::Immediate(data) => (abi::wqe::WITH_IMM, u32::from_ne_bytes(data)),
        };
        let flags = abi::wqe::VALID | with;
        let cqe = abi::Cqe {
            id: c.wr_id,
            opcode: c.op.to_abi(),
            status: status_to_abi(c.status, qp.extended),
            bytes: c.bytes,
            imm_or_stag: imm_or_stag.into(),
            qp_id: u64::from(qp.qp_num()),
            ..Default::default()
        };
        // The consumer arms, then polls once more. The driver publishes, then reads the flags, with
        // a full barrier in between. So one of the two sees the other.
        self.ring.publish(self.put, &cqe, flags);
        self.put = self.put.wrapping_add(1);
        let armed = self.ctrl.load();
        let notify = armed & abi::notify::NEXT_COMPLETION != 0
            || (armed & abi::notify::SOLICITED != 0 && c.wakes_solicited());
        if notify {
            // The consumer arms again when it has the event. The lock of its event queue orders
            // that after this.
            self.ctrl.store(abi::notify::NOT);
        }
        Some(notify)
    }
}

impl KernelCq {
    /// Posts a completion. Returns whether to notify the consumer, or `None` if there is no room.
    #[inline]
    fn post(&mut self, qp: &QpObj, c: &Completion) -> Option<bool> {
        let wc = Wc {
            wr_id: c.wr_id,
            status: status_to_ib(c.status),
            opcode: c.op.to_ib(),
            byte_len: c.bytes,
            qp: qp.tag(),
            with: match c.with {
                With::Nothing => WcWith::Nothing,
                With::Invalidate(stag) => WcWith::Invalidate(stag.0),
                With::Immediate(data) => WcWith::Immediate(data),
            },
        };
        self.slots.push(wc).ok()?;
        let notify =
            self.armed == Armed::Any || (self.armed == Armed::Solicited && c.wakes_solicited());
        if notify {
            self.armed = Armed::No;
        }
        Some(notify)
    }
}

/// The driver's part of a completion queue.
#[pin_data]
pub(crate) struct Cq {
    #[pin]
    entries: SpinLockIrq<Entries>,
    counted: Counted,
}

/// The number of entries that a consumer gets which asks for `cqe`.
fn size(cqe: u32) -> Result<u32> {
    if !(1..=limits::CQE).contains(&cqe) {
        return Err(EINVAL);
    }
    Ok(cqe.next_power_of_two())
}

#[vtable]
impl cq::Operations<Siw> for Cq {
    fn create<'a>(
        new: cq::New<'a, Siw>,
        attr: &cq::InitAttr,
        udata: Option<&mut Udata<'_>>,
    ) -> Result<cq::Live<'a, Siw>> {
        if attr.flags != 0 {
            return Err(errno::eopnotsupp());
        }
        let size = size(attr.cqe)?;
        let counted = Count::take(new.device(), |dev| &dev.counts.cq, limits::CQ)?;
        let queue = match new.customer() {
            Some(user) => Queue::User(UserCq::new(user, size)?),
            None => Queue::Kernel(KernelCq {
                slots: Slots::new(size)?,
                armed: Armed::No,
            }),
        };
        let key = queue.user().map(|user| user.offer.key());
        let entries = Entries { queue, dead: false };
        new.set_cqe(size);
        let cq = new.init(try_pin_init!(Self {
            entries <- ranked_spinlock!(Rank::Cq, entries),
            counted,
        }? Error))?;
        if let (Some(udata), Some(cq_key)) = (udata, key) {
            udata.respond_full(&abi::RespCreateCq {
                cq_id: random::u32(),
                num_cqe: size,
                cq_key,
            })?;
        }
        Ok(cq)
    }

    fn poll(cq: &CqObj, out: &mut WcOut<'_, Siw>) -> Result {
        let mut entries = cq.entries.lock();
        let Queue::Kernel(kernel) = &mut entries.queue else {
            return Err(EINVAL);
        };
        while !out.is_full() {
            let Some(wc) = kernel.slots.pop() else { break };
            out.push(wc);
        }
        Ok(())
    }

    fn req_notify(cq: &CqObj, how: cq::Notify) -> Result<u32> {
        let mut entries = cq.entries.lock();
        match &mut entries.queue {
            Queue::User(user) => {
                // The consumer polls once more after this.
                user.ctrl.xchg(if how.solicited_only {
                    abi::notify::SOLICITED
                } else {
                    abi::notify::ALL
                });
                Ok(0)
            }
            Queue::Kernel(KernelCq { slots, armed }) => {
                // A request for any completion includes one for solicited completions.
                if !how.solicited_only {
                    *armed = Armed::Any;
                } else if *armed == Armed::No {
                    *armed = Armed::Solicited;
                }
                Ok(if how.report_missed { slots.len() } else { 0 })
            }
        }
    }

    /// Posts to a new ring from now on. The program polls what is in the old one, which stays
    /// mapped, before that. So nothing is copied, and the entries keep their order.
    fn resize(cq: &CqObj, cqe: u32, user: Customer<'_, Siw>, udata: &mut Udata<'_>) -> Result<u32> {
        let size = size(cqe)?;
        let mut new = UserCq::new(user, size)?;
        udata.respond_full(&abi::RespResizeCq {
            num_cqe: size,
            reserved: 0,
            cq_key: new.offer.key(),
        })?;
        let mut entries = cq.entries.lock();
        let Queue::User(old) = &mut entries.queue else {
            return Err(EINVAL);
        };
        if old.holds_more_than(size) {
            return Err(EINVAL);
        }
        new.ctrl.store(old.ctrl.load());
        new.earlier = old.earlier.wrapping_add(old.put);
        core::mem::swap(old, &mut new);
        drop(entries);
        // The release of the old ring may sleep.
        drop(new);
        Ok(size)
    }

    /// For `rdma resource show cq -dd`.
    fn describe(cq: &CqObj, out: &mut Details<'_>) -> Result {
        let (posted, dead) = {
            let entries = cq.entries.lock();
            let posted = match &entries.queue {
                Queue::User(user) => user.earlier.wrapping_add(user.put),
                Queue::Kernel(kernel) => kernel.slots.appended(),
            };
            (posted, entries.dead)
        };
        out.number(c"posted", posted.into())?;
        out.number(c"overrun", dead.into())
    }
}

impl Cq {
    /// Posts a completion, and notifies the consumer if it waits. Any context; no lock from
    /// `Rank::QpPair` on may be held, because this may call the consumer.
    ///
    /// A queue pair that is being destroyed, or begins anew, completes nothing: its number must not
    /// turn up after `destroy_qp`, nor its old work requests after `modify_qp`.
    pub(crate) fn post(self: &CqObj, qp: &QpObj, c: &Completion) {
        trace::complete(|| {
            let status = status_to_ib(c.status).as_raw();
            (qp.qp_num(), c.wr_id, c.op.to_abi(), status)
        });
        if qp.is_destroying() || qp.resets.read_once() {
            return;
        }
        let posted = self.entries.lock().post(qp, c);
        match posted {
            Posted::Quiet => (),
            Posted::Notify => self.notify(),
            Posted::Overflow => self.overflow(),
            // This fails the queue pairs that `overflow` could not reach.
            Posted::Dead => qp.fail_here(ProtocolError::LocalCatastrophic),
        }
    }

    /// Fails the queue and all its queue pairs, because a completion is lost. Other queues are not
    /// affected (RFC 5040 8.1.1).
    fn overflow(self: &CqObj) {
        let dev = self.counted.dev();
        dev.stats.inc(Counter::CqOverflow);
        self.event(cq::Event::Err);
        let cq = CqRef::from(self);
        let work = move || {
            let id = cq.id();
            cq.counted.dev().qps.for_each(|_, qp| {
                if qp.scq.id() == id || qp.rcq.id() == id {
                    qp.overrun();
                }
            });
        };
        // Without memory, each queue pair fails at its next completion, see `post`.
        let _ = dev.shared.cm.try_spawn(GFP_ATOMIC, work);
    }

    /// Whether a completion was lost.
    pub(crate) fn is_dead(self: &CqObj) -> bool {
        self.entries.lock().dead
    }

    /// Removes the completions of `qp`, which posts nothing any more.
    pub(crate) fn purge(self: &CqObj, qp: &QpObj) {
        let purged = self.entries.lock().purge(qp);
        self.counted.dev().stats.add(Counter::CqePurged, purged);
    }
}
