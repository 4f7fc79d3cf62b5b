// SPDX-License-Identifier: GPL-2.0

//! Send queues.
//!
//! A program writes elements into memory that it maps, and could change them at any time. So an
//! element is copied once and checked in the copy; its slot is free at once. A kernel consumer's
//! requests never touch mapped memory.

use super::send_wr::{
    BadSqe,
    SendWr, //
};
use crate::{
    queue::{
        Queue,
        Slots, //
    },
    uapi::abi,
    Siw, //
};
use base::sync::{
    AccessOnce,
    SpinLockIrq, //
};
use kernel::{
    prelude::*,
    sync::atomic::Atomic, //
};
use rdma::{
    self,
    Customer,
    MmapEntry,
    RingMem, //
};
use soft::mem::ring::UserRing;

/// The position of the next element in a program's ring, for the context that takes elements: the
/// owner of the token, or the flush after it.
pub(crate) struct Cursor(u32);

/// The program's ring, and the position of the next element, which moves with a [`Cursor`].
struct UserSq {
    ring: UserRing<abi::Sqe>,
    get: Atomic<u32>,
    entry: MmapEntry<Siw>,
    /// The additions that the library knows.
    features: u32,
}

/// The send queue of a queue pair.
pub(crate) struct Sq {
    queue: Queue<UserSq, Pin<KBox<SpinLockIrq<Slots<SendWr>>>>>,
    size: u32,
    max_sge: u32,
    sig_all: bool,
}

impl Sq {
    /// A queue for `wrs` requests. Sleeps.
    pub(crate) fn new(
        user: Option<Customer<'_, Siw>>,
        wrs: u32,
        max_sge: u32,
        sig_all: bool,
    ) -> Result<Self> {
        let size = wrs.next_power_of_two();
        let queue = match user {
            Some(user) => {
                let mem = RingMem::new(size as usize * size_of::<abi::Sqe>())?;
                Queue::User(UserSq {
                    ring: UserRing::new(mem.clone(), 0, size)?,
                    get: Atomic::new(0),
                    entry: MmapEntry::new(user, mem)?,
                    features: user.ucontext().features,
                })
            }
            None => {
                let slots = Slots::new(size)?;
                Queue::Kernel(KBox::pin_init(
                    ranked_spinlock!(Rank::Sq, slots),
                    GFP_KERNEL_ACCOUNT,
                )?)
            }
        };
        Ok(Self {
            queue,
            size,
            max_sge,
            sig_all,
        })
    }

    /// Elements of the ring.
    pub(crate) fn size(&self) -> u32 {
        self.size
    }

    /// The key with which a program maps the ring.
    pub(crate) fn key(&self) -> u64 {
        self.queue.user().map_or(0, |user| user.entry.key())
    }

    /// Whether a request waits. Any context.
    pub(crate) fn has_work(&self) -> bool {
        self.has_work_at(&self.cursor())
    }

    /// The same as [`Self::has_work`], for the context that takes requests.
    pub(crate) fn has_work_at(&self, at: &Cursor) -> bool {
        match &self.queue {
            Queue::User(user) => user.ring.flags(at.0) & abi::wqe::VALID != 0,
            Queue::Kernel(slots) => !slots.lock().is_empty(),
        }
    }

    /// The position at which a context begins to take requests. What excludes other takers, the
    /// token or the claim of the flush, also orders this after their last [`Self::take`]. Without
    /// such exclusion it is a hint.
    pub(crate) fn cursor(&self) -> Cursor {
        Cursor(match &self.queue {
            Queue::User(user) => user.get.read_once(),
            Queue::Kernel(_) => 0,
        })
    }

    /// Takes the next request into `wr`; `false` if there is none. Any context, but one caller at a
    /// time.
    ///
    /// The slot is freed here, not at completion: libsiw rings the doorbell only if the element
    /// before its new one is free. So either the driver sees the new element, or libsiw the freed
    /// one.
    #[inline]
    pub(crate) fn take(&self, at: &mut Cursor, wr: &mut SendWr) -> Result<bool, BadSqe> {
        let user = match &self.queue {
            Queue::User(user) => user,
            Queue::Kernel(slots) => {
                let next = slots.lock().pop();
                let Some(next) = next else { return Ok(false) };
                *wr = next;
                return Ok(true);
            }
        };
        if !user.ring.take(at.0, abi::wqe::VALID, &mut wr.sqe) {
            return Ok(false);
        }
        user.ring.free_fenced(at.0);
        at.0 = at.0.wrapping_add(1);
        user.get.write_once(at.0);
        wr.parse(user.features)?;
        Ok(true)
    }

    /// Posts a kernel consumer's request. Any context.
    pub(crate) fn post(&self, wr: &rdma::SendWr<'_, Siw>) -> Result {
        let Queue::Kernel(slots) = &self.queue else {
            return Err(EINVAL);
        };
        let new = SendWr::of_consumer(wr, self.sig_all, self.max_sge)?;
        let pushed = slots.lock().push(new);
        // What does not fit is dropped after the lock.
        pushed.map_err(|_| ENOMEM)
    }
}
