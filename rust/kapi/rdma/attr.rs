// SPDX-License-Identifier: GPL-2.0

//! Attributes that verbs carry.

mod device;
mod qp;

pub(crate) use self::{
    device::*,
    qp::*, //
};
use crate::kapi::bindings::{
    self,
    ib_srq_attr, //
};

/// Access rights of regions, windows and QPs.
pub(crate) mod access {
    use crate::kapi::bindings as b;

    pub(crate) const LOCAL_WRITE: u32 = b::ib_access_flags_IB_ACCESS_LOCAL_WRITE;
    pub(crate) const REMOTE_WRITE: u32 = b::ib_access_flags_IB_ACCESS_REMOTE_WRITE;
    pub(crate) const REMOTE_READ: u32 = b::ib_access_flags_IB_ACCESS_REMOTE_READ;
    pub(crate) const REMOTE_ATOMIC: u32 = b::ib_access_flags_IB_ACCESS_REMOTE_ATOMIC;
    pub(crate) const MW_BIND: u32 = b::ib_access_flags_IB_ACCESS_MW_BIND;
    pub(crate) const ZERO_BASED: u32 = b::ib_access_flags_IB_ZERO_BASED;
    /// Rights a provider may ignore.
    pub(crate) const OPTIONAL_RANGE: u32 = 0x3ff0_0000;
}

/// The requested attributes of a CQ.
#[derive(Clone, Copy)]
pub(crate) struct CqAttr {
    pub(crate) cqe: u32,
    pub(crate) flags: u32,
}

/// The requested attributes of an SRQ.
#[derive(Clone, Copy)]
pub(crate) struct SrqInitAttr {
    /// Whether it is of the basic type, the only one of iWARP.
    pub(crate) basic: bool,
    pub(crate) attr: SrqAttr,
}

/// The attributes of an SRQ.
#[derive(Clone, Copy, Default)]
pub(crate) struct SrqAttr {
    pub(crate) max_wr: u32,
    pub(crate) max_sge: u32,
    pub(crate) limit: u32,
}

impl SrqAttr {
    pub(super) fn new(raw: &ib_srq_attr) -> Self {
        Self {
            max_wr: raw.max_wr,
            max_sge: raw.max_sge,
            limit: raw.srq_limit,
        }
    }

    pub(super) fn fill(&self, out: &mut ib_srq_attr) {
        out.max_wr = self.max_wr;
        out.max_sge = self.max_sge;
        out.srq_limit = self.limit;
    }
}

/// The requested changes to an SRQ.
#[derive(Clone, Copy)]
pub(crate) struct SrqMask {
    pub(crate) max_wr: bool,
    pub(crate) limit: bool,
}

/// The completions that a CQ notifies of.
#[derive(Clone, Copy)]
pub(crate) struct Notify {
    pub(crate) solicited_only: bool,
    pub(crate) report_missed: bool,
}

/// A region of user memory to be registered.
#[derive(Clone, Copy)]
pub(crate) struct UserMrReq {
    pub(crate) start: u64,
    pub(crate) len: u64,
    pub(crate) iova: u64,
    pub(crate) access: u32,
}

/// The kind of region that a kernel consumer requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MrType {
    MemReg,
    SgGaps,
    Other(u32),
}

impl MrType {
    pub(super) fn from_raw(raw: bindings::ib_mr_type) -> Self {
        match raw {
            bindings::ib_mr_type_IB_MR_TYPE_MEM_REG => Self::MemReg,
            bindings::ib_mr_type_IB_MR_TYPE_SG_GAPS => Self::SgGaps,
            other => Self::Other(other),
        }
    }
}
