// SPDX-License-Identifier: GPL-2.0

//! Registration by work request: IB_WR_REG_MR.
//!
//! `map_mr_sg` fills a shadow page list. Posting REG_MR moves that list into the work request, so
//! that the consumer cannot change it before the request is executed. Execution exchanges it for
//! the live list, and the drop of the request makes that one the shadow. Without a `map_mr_sg` in
//! between, REG_MR registers the pages of the last registration again, as RTRS servers do.

use super::{
    entry::Entry,
    region, //
};
use crate::Siw;
use base::{
    sync::SpinLockIrq,
    table::RcuArc, //
};
use iwarp::{
    error::AccessError,
    mem::{
        access::{
            self,
            FastReg,
            PdId,
            Rights, //
        },
        stag::Stag, //
    }, //
};
use kernel::{
    page::PAGE_SIZE,
    prelude::*, //
};
use rdma::{
    self,
    SgList, //
};
use soft::mem::{
    backing::Backing,
    page_list::PageList, //
};

/// The page list between `map_mr_sg` and REG_MR.
struct Next {
    /// `None` while a posted request has it, and for other kinds of regions.
    list: Option<PageList>,
    /// `map_mr_sg` was called since the last registration.
    mapped: bool,
}

/// What the next REG_MR registers.
#[pin_data]
pub(super) struct Shadow {
    #[pin]
    next: SpinLockIrq<Next>,
}

impl Shadow {
    pub(super) fn new(list: Option<PageList>) -> impl PinInit<Self> {
        let next = Next {
            list,
            mapped: false,
        };
        pin_init!(Self {
            next <- ranked_spinlock!(Rank::Shadow, next),
        })
    }

    /// `EINVAL` for other kinds of regions, and while a request has the list.
    pub(super) fn fill(&self, sg: SgList<'_>) -> Result<usize> {
        let mut next = self.next.lock();
        let list = next.list.as_mut().ok_or(EINVAL)?;
        let filled = list.fill(sg);
        next.mapped = true;
        filled
    }
}

/// A posted REG_MR.
pub(crate) struct RegWr {
    entry: RcuArc<Entry>,
    list: Option<PageList>,
    /// The list is to be registered; else that of the last registration.
    mapped: bool,
    stag: Stag,
    rights: Rights,
    base: u64,
}

impl RegWr {
    /// Snapshot at post time. Any context.
    pub(crate) fn new(mr: &rdma::Mr<Siw>, key: u32, access: u32) -> Result<Self> {
        let rights = region::rights(access)?;
        let entry = mr.entry().clone();
        let mut next = entry.shadow.next.lock();
        let (list, mapped) = (next.list.take().ok_or(EINVAL)?, next.mapped);
        drop(next);
        Ok(Self {
            entry,
            list: Some(list),
            mapped,
            stag: Stag(key),
            rights,
            // Not the address of `map_mr_sg`: the consumer may have changed it since, as NFS does.
            base: mr.iova(),
        })
    }

    /// The region.
    pub(crate) fn entry(&self) -> &RcuArc<Entry> {
        &self.entry
    }

    /// The STag that the region will have.
    pub(crate) fn stag(&self) -> Stag {
        self.stag
    }

    /// Pages of the kernel that the new list spans.
    pub(crate) fn pages(&self) -> u64 {
        match &self.list {
            Some(list) if self.mapped => list.len().div_ceil(PAGE_SIZE as u64),
            _ => 0,
        }
    }

    /// Executes the registration. Any context except hard interrupts.
    pub(super) fn execute(&mut self, pd: PdId) -> Result<(), AccessError> {
        let list = self.list.as_mut().ok_or(AccessError::NotValid)?;
        let mapped = &mut self.mapped;
        let mut wanted = FastReg {
            stag: self.stag,
            rights: self.rights,
            len: list.len(),
            max_len: list.max_len(),
            pd,
        };
        self.entry.register(|region, state| {
            let Some(Backing::Pages(live)) = state.backing.as_mut() else {
                return Err(AccessError::WrongKind);
            };
            if !*mapped {
                (wanted.len, wanted.max_len) = (live.len(), live.max_len());
            }
            access::check_fast_reg(Some(region), &wanted)?;
            if *mapped {
                core::mem::swap(live, list);
                *mapped = false;
            }
            state.stag = wanted.stag;
            state.rights = wanted.rights;
            state.base = if wanted.rights.contains(Rights::ZERO_BASED) {
                0
            } else {
                self.base
            };
            state.len = wanted.len;
            Ok(())
        })
    }
}

impl Drop for RegWr {
    fn drop(&mut self) {
        let mut next = self.entry.shadow.next.lock();
        // `take()` left it empty, and only this request returns the list.
        let old = core::mem::replace(&mut next.list, self.list.take());
        next.mapped = self.mapped;
        drop(next);
        drop(old);
    }
}
