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
    Siw,
    SrqObj, //
};
use crate::{
    kapi::{
        errno,
        rdma::{
            srq,
            MmapEntry,
            RecvWrs,
            Udata, //
        },
        sync::SpinLockIrq, //
    },
    uapi::abi, //
};
use iwarp::mem::access::PdId;
use kernel::prelude::*;

struct Queue {
    ring: RecvRing,
    /// Raise the limit event once fewer requests than this are left; 0: never.
    limit: u32,
}

/// The driver's part of a shared receive queue.
#[pin_data]
pub(crate) struct Srq {
    #[pin]
    queue: SpinLockIrq<Queue>,
    pd: PdId,
    size: u32,
    max_sge: u32,
    entry: Option<MmapEntry<Siw>>,
    _counted: Counted,
}

#[vtable]
impl srq::Operations<Siw> for Srq {
    fn create<'a>(
        new: srq::New<'a, Siw>,
        init: &srq::InitAttr,
        udata: Option<&mut Udata<'_>>,
    ) -> Result<srq::Live<'a, Siw>> {
        if !init.basic {
            return Err(errno::eopnotsupp());
        }
        let attr = &init.attr;
        if attr.max_wr == 0
            || attr.max_wr > limits::SRQ_WR
            || attr.max_sge > limits::SGE
            || attr.limit > attr.max_wr
        {
            return Err(EINVAL);
        }
        let pd = new.pd();
        let counted = Count::take(pd.dev(), |dev| &dev.counts.srq, limits::SRQ)?;
        let (ring, size, entry) = RecvRing::new(attr.max_wr, new.customer())?;
        let queue = Queue {
            ring,
            limit: attr.limit,
        };
        let max_sge = attr.max_sge;
        let pd = pd.id;
        let srq = new.init(try_pin_init!(Self {
            queue <- ranked_spinlock!(Rank::Srq, queue),
            pd,
            size,
            max_sge,
            entry,
            _counted: counted,
        }? Error))?;
        if let (Some(udata), Some(entry)) = (udata, &srq.entry) {
            udata.respond_full(&abi::RespCreateSrq {
                num_rqe: srq.size,
                pad: 0,
                srq_key: entry.key(),
            })?;
        }
        Ok(srq)
    }

    /// Arms the limit event.
    fn modify(srq: &SrqObj, attr: &srq::Attr, mask: srq::Mask) -> Result {
        if mask.max_wr {
            return Err(errno::eopnotsupp());
        }
        if mask.limit {
            if attr.limit > srq.size {
                return Err(EINVAL);
            }
            srq.queue.lock().limit = attr.limit;
        }
        Ok(())
    }

    /// The limit is 0 after it was reached.
    fn query(srq: &SrqObj) -> Result<srq::Attr> {
        Ok(srq::Attr {
            max_wr: srq.size,
            max_sge: srq.max_sge,
            limit: srq.queue.lock().limit,
        })
    }

    fn post_recv(srq: &SrqObj, wrs: &mut RecvWrs<'_>) -> Result {
        let mut queue = srq.queue.lock();
        while let Some(wr) = wrs.next() {
            queue.ring.post(&wr, srq.max_sge)?;
        }
        Ok(())
    }
}

impl SrqObj {
    /// Takes the next request into `wr`; `false` if there is none. Raises the limit event when the
    /// queue runs low. Any context; no lock from `Rank::QpPair` on may be held.
    pub(crate) fn take(&self, wr: &mut RecvWr) -> bool {
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
