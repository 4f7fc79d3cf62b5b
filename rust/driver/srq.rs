// SPDX-License-Identifier: GPL-2.0

//! Shared receive queues.

use super::{
    limits::{
        self,
        Count,
        Counted, //
    },
    qp::rq::{
        RecvRing,
        RecvWr, //
    },
    QpObj,
    QpRef,
    Siw,
    SrqObj, //
};
use crate::uapi::abi;
use base::{
    errno,
    sync::SpinLockIrq, //
};
use iwarp::mem::access::PdId;
use kernel::{
    alloc::flags::{
        GFP_NOWAIT,
        __GFP_NOWARN, //
    },
    prelude::*,
    sync::Mutex,
    time::{
        Instant,
        Monotonic, //
    }, //
};
use rdma::{
    srq,
    Customer,
    MmapEntry,
    RecvWrs,
    Udata, //
};

struct Queue {
    ring: RecvRing,
    size: u32,
    /// Raise the limit event once fewer requests than this are left; 0: never.
    limit: u32,
    /// Queue pairs that are stalled for a request of a kernel consumer. The message that has waited
    /// longest is last.
    late: KVec<Late>,
}

/// A queue pair whose next message waits for a request.
struct Late {
    since: Instant<Monotonic>,
    qpn: u32,
    qp: QpRef,
}

/// The driver's part of a shared receive queue.
#[pin_data]
pub(crate) struct Srq {
    #[pin]
    queue: SpinLockIrq<Queue>,
    pd: PdId,
    max_sge: u32,
    /// The offer to map the ring of a program.
    #[pin]
    offer: Mutex<Option<MmapEntry<Siw>>>,
    _counted: Counted,
}

#[vtable]
impl srq::Operations<Siw> for Srq {
    fn create<'a>(
        new: srq::New<'a, Siw>,
        init: &srq::InitAttr,
        udata: Option<&mut Udata<'_>>,
    ) -> Result<(srq::Live<'a, Siw>, srq::Attr)> {
        if !init.basic {
            return Err(errno::eopnotsupp());
        }
        let attr = &init.attr;
        if !(1..=limits::SRQ_WR).contains(&attr.max_wr)
            || attr.max_sge > limits::SGE
            || attr.limit > attr.max_wr
        {
            return Err(EINVAL);
        }
        let pd = new.pd();
        let counted = Count::take(pd.dev(), |dev| &dev.counts.srq, limits::SRQ)?;
        let (ring, size, entry) = RecvRing::new(attr.max_wr, new.customer())?;
        let key = entry.as_ref().map(MmapEntry::key);
        let queue = Queue {
            ring,
            size,
            limit: attr.limit,
            late: KVec::new(),
        };
        let max_sge = attr.max_sge;
        let pd = pd.id;
        let srq = new.init(try_pin_init!(Self {
            queue <- ranked_spinlock!(Rank::Srq, queue),
            pd,
            max_sge,
            offer <- ranked_mutex!(Rank::SrqOffer, entry),
            _counted: counted,
        }? Error))?;
        if let (Some(udata), Some(srq_key)) = (udata, key) {
            udata.respond_full(&abi::RespCreateSrq {
                num_rqe: size,
                pad: 0,
                srq_key,
            })?;
        }
        let actual = Self::query(&srq)?;
        Ok((srq, actual))
    }

    /// Arms the limit event, and resizes the queue of a program whose library can go over to
    /// another one.
    fn modify(
        srq: &SrqObj,
        attr: &srq::Attr,
        mask: srq::Mask,
        program: Option<(Customer<'_, Siw>, &mut Udata<'_>)>,
    ) -> Result {
        let limit = mask.limit.then_some(attr.limit);
        if mask.max_wr {
            let (user, udata) = program.ok_or(errno::eopnotsupp())?;
            if udata.inlen() == 0 {
                return Err(errno::eopnotsupp());
            }
            return srq.resize(attr.max_wr, limit, user, udata);
        }
        if let Some(limit) = limit {
            let mut queue = srq.queue.lock();
            if limit > queue.size {
                return Err(EINVAL);
            }
            queue.limit = limit;
        }
        Ok(())
    }

    /// The limit is 0 after it was reached.
    fn query(srq: &SrqObj) -> Result<srq::Attr> {
        let queue = srq.queue.lock();
        Ok(srq::Attr {
            max_wr: queue.size,
            max_sge: srq.max_sge,
            limit: queue.limit,
        })
    }

    fn post_recv(srq: &SrqObj, wrs: &mut RecvWrs<'_>) -> Result {
        let mut result = Ok(());
        let mut posted = 0u32;
        let mut queue = srq.queue.lock();
        for wr in wrs {
            result = queue.ring.post(&wr, srq.max_sge);
            if result.is_err() {
                break;
            }
            posted = posted.wrapping_add(1);
        }
        drop(queue);
        for _ in 0..posted {
            if !srq.wake_late() {
                break;
            }
        }
        result
    }
}

impl Srq {
    /// Goes over to another ring with what is posted. The program posts nothing meanwhile, but
    /// messages keep coming in. So the requests are copied without the spinlock, and those that
    /// were taken meanwhile are left out in the end.
    fn resize(
        self: &SrqObj,
        max_wr: u32,
        limit: Option<u32>,
        user: Customer<'_, Siw>,
        udata: &mut Udata<'_>,
    ) -> Result {
        if !(1..=limits::SRQ_WR).contains(&max_wr) {
            return Err(EINVAL);
        }
        let req = udata.read::<abi::ReqModifySrq>(size_of::<abi::ReqModifySrq>())?;
        let (mut ring, size, entry) = RecvRing::new(max_wr, Some(user))?;
        let entry = entry.ok_or(EINVAL)?;
        let mut offer = self.offer.lock();
        let old = self.queue.lock().ring.snapshot()?;
        let taken = || self.queue.lock().ring.taken_since(&old);
        let put = ring.fill(&old, taken)?;
        let resp = abi::RespModifySrq {
            num_rqe: size,
            put,
            srq_key: entry.key(),
        };
        udata.respond_at(req.response, &resp)?;
        // Few are left for the second time.
        ring.skip_to(taken().min(put));

        let mut queue = self.queue.lock();
        let limit = limit.unwrap_or(queue.limit);
        if limit > size {
            return Err(EINVAL);
        }
        let taken = queue.ring.taken_since(&old);
        ring.skip_to(taken.min(put));
        core::mem::swap(&mut queue.ring, &mut ring);
        queue.size = size;
        queue.limit = limit;
        drop(queue);
        *offer = Some(entry);
        Ok(())
    }

    /// True if a request is posted. Any context; no lock from `Rank::Rq` on may be held.
    pub(crate) fn has_work(self: &SrqObj) -> bool {
        self.queue.lock().ring.has(0)
    }

    /// Registers `qp` to be woken by a post. Its message has waited since `since`. Returns `false`
    /// if there is no memory for that, or if the queue is a program's, whose posts are no calls.
    /// Any context, as [`Self::has_work`].
    pub(crate) fn enlist(self: &SrqObj, qp: &QpObj, since: Instant<Monotonic>) -> bool {
        let mut queue = self.queue.lock();
        if queue.ring.is_user() {
            return false;
        }
        let late = &mut queue.late;
        let qpn = qp.qp_num();
        late.retain(|other| other.qpn != qpn);
        if late.reserve(1, GFP_NOWAIT | __GFP_NOWARN).is_err() {
            return false;
        }
        let at = late.partition_point(|other| (other.since - since).as_nanos() > 0);
        let qp = QpRef::from(qp);
        late.insert_within_capacity(at, Late { since, qpn, qp })
            .is_ok()
    }

    /// Undoes [`Self::enlist`]. If `qp` has been woken meanwhile, and a request is left, another
    /// queue pair is woken for it. Any context, as [`Self::has_work`].
    pub(crate) fn strike(self: &SrqObj, qp: &QpObj) {
        let mut queue = self.queue.lock();
        let (before, qpn) = (queue.late.len(), qp.qp_num());
        queue.late.retain(|late| late.qpn != qpn);
        let was_listed = queue.late.len() != before;
        drop(queue);
        if !was_listed {
            self.wake_late();
        }
    }

    /// Wakes the queue pair whose message has waited longest, if there is a request for it. Returns
    /// whether one was woken. Any context, as [`Self::has_work`].
    fn wake_late(self: &SrqObj) -> bool {
        loop {
            let mut queue = self.queue.lock();
            let next = match queue.ring.has(0) {
                true => queue.late.pop(),
                false => None,
            };
            drop(queue);
            match next {
                None => return false,
                // Otherwise it has found one itself, or has ended.
                Some(late) if late.qp.recv_posted() => return true,
                Some(_) => {}
            }
        }
    }

    /// Takes the next request into `wr`; `false` if there is none. Raises the limit event when the
    /// queue runs low. Any context; no lock from `Rank::QpPair` on may be held.
    pub(crate) fn take(self: &SrqObj, wr: &mut RecvWr) -> bool {
        let mut queue = self.queue.lock();
        if !queue.ring.take(self.pd, wr) {
            return false;
        }
        // Fewer than `limit` are left if the `limit`th element is not posted.
        let low = queue
            .limit
            .checked_sub(1)
            .is_some_and(|last| !queue.ring.has(last));
        if low {
            queue.limit = 0;
        }
        drop(queue);
        if low {
            self.event(srq::Event::LimitReached);
        }
        true
    }
}
