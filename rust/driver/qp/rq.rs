// SPDX-License-Identifier: GPL-2.0

//! Receive queues: a queue pair's own or a shared one, behind one interface.

use crate::{
    queue::{
        Queue,
        Slots, //
    },
    uapi::abi,
    QpObj,
    Siw,
    SrqObj,
    SrqRef, //
};
use base::sync::SpinLockIrq;
use iwarp::mem::access::PdId;
use kernel::{
    prelude::*,
    time::{
        Instant,
        Monotonic, //
    }, //
};
use rdma::{
    self,
    Customer,
    MmapEntry,
    RingMem,
    Sge, //
};
use soft::mem::ring::UserRing;

/// Bytes that the first `num` elements of a list span. `None` if the list has fewer, or if a
/// message cannot be as long (RFC 5041 5.2).
#[inline]
pub(super) fn listed(num: u8, list: &[Sge; abi::MAX_SGE]) -> Option<u32> {
    let list = list.get(..usize::from(num))?;
    let mut sum = 0u32;
    for sge in list {
        sum = sum.checked_add(sge.len)?;
    }
    Some(sum)
}

/// A receive work request taken off its queue.
pub(crate) struct RecvWr {
    rqe: abi::Rqe,
    /// The protection domain its memory belongs to: that of the shared queue, if it came from one.
    pub(crate) pd: PdId,
}

impl RecvWr {
    /// An empty one, to be taken into.
    pub(crate) fn empty() -> Self {
        Self {
            rqe: abi::Rqe::default(),
            pd: PdId(0),
        }
    }

    pub(crate) fn id(&self) -> u64 {
        self.rqe.id
    }

    /// How many bytes it can take; `None` if the user wrote an impossible element, to be completed
    /// with an error.
    pub(crate) fn bytes(&self) -> Option<u32> {
        listed(self.rqe.num_sge, &self.rqe.sge)
    }

    /// Its list.
    pub(crate) fn sges(&self) -> &[Sge] {
        self.rqe
            .sge
            .get(..usize::from(self.rqe.num_sge))
            .unwrap_or_default()
    }
}

/// The elements of a receive queue.
pub(crate) struct RecvRing(Queue<UserRecv, Slots<RecvWr>>);

/// A program's ring, and the position of the next element.
#[derive(Clone)]
struct UserRecv {
    ring: UserRing<abi::Rqe>,
    get: u32,
}

/// A program's ring as it was.
pub(crate) struct Snapshot(UserRecv);

impl RecvRing {
    /// A ring for `wrs` requests, its size, and its mapping for `user` if there is one. Sleeps.
    pub(crate) fn new(
        wrs: u32,
        user: Option<Customer<'_, Siw>>,
    ) -> Result<(Self, u32, Option<MmapEntry<Siw>>)> {
        let size = wrs.next_power_of_two();
        let Some(user) = user else {
            return Ok((Self(Queue::Kernel(Slots::new(size)?)), size, None));
        };
        let mem = RingMem::new(size as usize * size_of::<abi::Rqe>())?;
        let ring = UserRecv {
            ring: UserRing::new(mem.clone(), 0, size)?,
            get: 0,
        };
        let entry = MmapEntry::new(user, mem)?;
        Ok((Self(Queue::User(ring)), size, Some(entry)))
    }

    /// The ring of a program as it is now, and stays as long as the program does not post.
    pub(crate) fn snapshot(&self) -> Result<Snapshot> {
        self.0.user().cloned().map(Snapshot).ok_or(EINVAL)
    }

    /// The number of elements that have been taken since.
    pub(crate) fn taken_since(&self, then: &Snapshot) -> u32 {
        self.0
            .user()
            .map_or(0, |now| now.get.wrapping_sub(then.0.get))
    }

    /// Copies what was posted to this ring, which is empty and not in use, and returns the number
    /// of elements. They include those that are taken meanwhile: `taken` says how many of them
    /// there are since the snapshot. `EINVAL` if there is no room. Takes long.
    pub(crate) fn fill(&self, from: &Snapshot, taken: impl Fn() -> u32) -> Result<u32> {
        let (Some(to), UserRecv { ring, get }) = (self.0.user(), &from.0) else {
            return Err(EINVAL);
        };
        let mut rqe = abi::Rqe::default();
        for count in 0..ring.entries() {
            let is_posted = ring.take(get.wrapping_add(count), abi::wqe::VALID, &mut rqe);
            if !is_posted && count >= taken() {
                return Ok(count);
            }
            if count >= to.ring.entries() {
                return Err(EINVAL);
            }
            if is_posted {
                to.ring.store(count, &rqe);
            }
        }
        Ok(ring.entries())
    }

    /// Goes on to element `index` of a program's ring, and frees those before it.
    pub(crate) fn skip_to(&mut self, index: u32) {
        if let Queue::User(UserRecv { ring, get }) = &mut self.0 {
            while *get < index {
                ring.free(*get);
                *get = get.wrapping_add(1);
            }
        }
    }

    /// True if a program posts to it.
    pub(crate) fn is_user(&self) -> bool {
        self.0.user().is_some()
    }

    /// Whether the `nth` element from the head is posted.
    pub(crate) fn has(&self, nth: u32) -> bool {
        match &self.0 {
            Queue::User(UserRecv { ring, get }) => {
                ring.flags(get.wrapping_add(nth)) & abi::wqe::VALID != 0
            }
            Queue::Kernel(slots) => slots.len() > nth,
        }
    }

    /// Takes the next element into `wr` and frees its slot. `false` if there is none.
    pub(crate) fn take(&mut self, pd: PdId, wr: &mut RecvWr) -> bool {
        match &mut self.0 {
            Queue::User(UserRecv { ring, get }) => {
                if !ring.take(*get, abi::wqe::VALID, &mut wr.rqe) {
                    return false;
                }
                ring.free(*get);
                *get = get.wrapping_add(1);
            }
            Queue::Kernel(slots) => {
                let Some(next) = slots.pop() else {
                    return false;
                };
                *wr = next;
            }
        }
        wr.pd = pd;
        true
    }

    /// Posts a kernel consumer's request.
    pub(crate) fn post(&mut self, wr: &rdma::RecvWr<'_>, max_sge: u32) -> Result {
        let Queue::Kernel(slots) = &mut self.0 else {
            return Err(EINVAL);
        };
        if slots.is_full() {
            return Err(ENOMEM);
        }
        if wr.sges().len() > max_sge as usize {
            return Err(EINVAL);
        }
        let mut new = RecvWr::empty();
        new.rqe.id = wr.wr_id();
        new.rqe.num_sge = wr.sges().len() as u8;
        new.rqe
            .sge
            .get_mut(..wr.sges().len())
            .ok_or(EINVAL)?
            .copy_from_slice(wr.sges());
        slots.push(new).map_err(|_| ENOMEM)
    }
}

/// The receive side of a queue pair.
#[pin_data]
pub(crate) struct Rq {
    /// Its own ring; `None` if the queue is shared.
    #[pin]
    own: SpinLockIrq<Option<RecvRing>>,
    srq: Option<SrqRef>,
    size: u32,
    max_sge: u32,
    entry: Option<MmapEntry<Siw>>,
    pd: PdId,
}

impl Rq {
    /// A receive queue for `wrs` requests, or a shared one, whose size then counts (verbs ignore
    /// `wrs`).
    pub(crate) fn new(
        pd: PdId,
        user: Option<Customer<'_, Siw>>,
        srq: Option<&SrqObj>,
        wrs: u32,
        max_sge: u32,
    ) -> Result<impl PinInit<Self> + use<>> {
        let (own, size, entry) = if srq.is_none() {
            let (ring, size, entry) = RecvRing::new(wrs, user)?;
            (Some(ring), size, entry)
        } else {
            (None, 0, None)
        };
        let srq = srq.map(SrqRef::from);
        Ok(pin_init!(Self {
            own <- ranked_spinlock!(Rank::Rq, own),
            srq,
            size,
            max_sge,
            entry,
            pd,
        }))
    }

    /// Elements of its own ring; 0 if the queue is shared.
    pub(crate) fn size(&self) -> u32 {
        self.size
    }

    /// The key with which a program maps the ring.
    pub(crate) fn key(&self) -> u64 {
        // libsiw does not map this ring, but refuses the invalid key.
        self.entry.as_ref().map_or(0, MmapEntry::key)
    }

    /// Whether the buffers come from a shared queue.
    pub(crate) fn is_srq(&self) -> bool {
        self.srq.is_some()
    }

    /// True if a request is posted. Any context.
    pub(crate) fn has_work(&self) -> bool {
        match &self.srq {
            Some(srq) => srq.has_work(),
            None => self.own.lock().as_ref().is_some_and(|ring| ring.has(0)),
        }
    }

    /// Registers `qp`, which owns this, to be woken by a post. Its message has waited since
    /// `since`. Returns true if a post wakes it; otherwise only a look finds the request. Any
    /// context.
    pub(crate) fn enlist(&self, qp: &QpObj, since: Instant<Monotonic>) -> bool {
        match &self.srq {
            Some(srq) => srq.enlist(qp, since),
            None => !qp.is_user(),
        }
    }

    /// Undoes [`Self::enlist`]: `qp` does not wait, and another one may be woken in its place. Any
    /// context.
    pub(crate) fn strike(&self, qp: &QpObj) {
        if let Some(srq) = &self.srq {
            srq.strike(qp);
        }
    }

    /// Takes the next request into `wr`. `false` if there is none. Any context.
    pub(crate) fn take(&self, wr: &mut RecvWr) -> bool {
        match &self.srq {
            Some(srq) => srq.take(wr),
            None => Option::as_mut(&mut self.own.lock()).is_some_and(|own| own.take(self.pd, wr)),
        }
    }

    /// Posts a kernel consumer's request. Any context.
    pub(crate) fn post(&self, wr: &rdma::RecvWr<'_>) -> Result {
        Option::as_mut(&mut self.own.lock())
            .ok_or(EINVAL)?
            .post(wr, self.max_sge)
    }
}
