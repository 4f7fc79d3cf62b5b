// SPDX-License-Identifier: GPL-2.0

//! Registration by work request: IB_WR_REG_MR.
//!
//! `map_mr_sg` fills a shadow page list. Posting REG_MR moves that list into the work request, so
//! that the consumer cannot change it before the request is executed. Execution copies it into the
//! live list, and the drop of the request returns the shadow.

use super::{
    entry::Entry,
    region, //
};
use crate::{
    driver::Siw,
    kapi::{
        rdma::{
            self,
            Backing,
            PageList,
            RcuArc,
            SgList, //
        },
        sync::SpinLockIrq, //
    }, //
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
use kernel::prelude::*;

/// The page list between `map_mr_sg` and REG_MR. Empty while a posted request has it, and for other
/// kinds of regions.
#[pin_data]
pub(super) struct Shadow {
    #[pin]
    list: SpinLockIrq<Option<PageList>>,
}

impl Shadow {
    pub(super) fn new(list: Option<PageList>) -> impl PinInit<Self> {
        pin_init!(Self {
            list <- ranked_spinlock!(Rank::Shadow, list),
        })
    }

    /// `EINVAL` for other kinds of regions, and while a request has the list.
    pub(super) fn fill(&self, sg: SgList<'_>) -> Result<usize> {
        Option::as_mut(&mut self.list.lock())
            .ok_or(EINVAL)?
            .fill(sg)
    }
}

/// A posted REG_MR.
pub(crate) struct RegWr {
    entry: RcuArc<Entry>,
    list: Option<PageList>,
    stag: Stag,
    rights: Rights,
    base: u64,
}

impl RegWr {
    /// Snapshot at post time. Any context.
    pub(crate) fn new(mr: &rdma::Mr<Siw>, key: u32, access: u32) -> Result<Self> {
        let rights = region::rights(access)?;
        let list = mr.entry().shadow.list.lock().take().ok_or(EINVAL)?;
        Ok(Self {
            entry: mr.entry().clone(),
            list: Some(list),
            stag: Stag(key),
            rights,
            // Not the address of `map_mr_sg`: the consumer may have changed it since, as NFS does.
            base: mr.iova(),
        })
    }

    /// Executes the registration. Any context except hard interrupts.
    pub(super) fn execute(&self, pd: PdId) -> Result<(), AccessError> {
        let list = self.list.as_ref().ok_or(AccessError::NotValid)?;
        let wanted = FastReg {
            stag: self.stag,
            rights: self.rights,
            len: list.len(),
            max_len: list.max_len(),
            pd,
        };
        self.entry.register(|region, state| {
            access::check_fast_reg(Some(region), &wanted)?;
            let Some(Backing::Pages(live)) = state.backing.as_mut() else {
                return Err(AccessError::WrongKind);
            };
            live.copy_from(list).map_err(|_| AccessError::Length)?;
            state.stag = self.stag;
            state.rights = self.rights;
            state.base = if self.rights.contains(Rights::ZERO_BASED) {
                0
            } else {
                self.base
            };
            state.len = list.len();
            Ok(())
        })
    }
}

impl Drop for RegWr {
    fn drop(&mut self) {
        let list = self.list.take();
        let old = core::mem::replace(&mut *self.entry.shadow.list.lock(), list);
        // `take()` left it empty, and only this request returns the list.
        drop(old);
    }
}
