// SPDX-License-Identifier: GPL-2.0

//! Mirrors of [`include/uapi/rdma/siw-abi.h`](srctree/include/uapi/rdma/siw-abi.h), and of the
//! additions in `include/siw_uapi.h`.
//!
//! The C types have unions and reserved fields with names that say little. A mirror has the same
//! layout, which is checked at compile time, and no padding: every byte belongs to a field, so that
//! none that is not initialised reaches a program. [`IntoBytes`] cannot be derived otherwise.

use super::generated as b;
use kernel::prelude::*;
use rdma::{
    ucontext::Answer,
    Sge, //
};
use soft::mem::ring::RingElem;
use zerocopy_derive::Immutable;

/// 64-bit words of an [`Sge`].
const SGE_WORDS: usize = size_of::<Sge>() / size_of::<u64>();

/// `RDMA_DRIVER_SIW`: how `libsiw` recognises the devices.
pub(crate) const DRIVER_ID: u32 = b::rdma_driver_id_RDMA_DRIVER_SIW;
/// `SIW_ABI_VERSION`.
pub(crate) const ABI_VERSION: u32 = b::SIW_ABI_VERSION;
/// `SIW_MAX_SGE`: the elements that a work request can have.
pub(crate) const MAX_SGE: usize = b::SIW_MAX_SGE as usize;
/// `SIW_MAX_INLINE`: the payload that fits behind the first element.
pub(crate) const MAX_INLINE: usize = (MAX_SGE - 1) * size_of::<Sge>();
/// `SIW_INVAL_UOBJ_KEY`: the key of something that is not there.
pub(crate) const INVAL_UOBJ_KEY: u64 = b::SIW_INVAL_UOBJ_KEY as u64;
/// The size of `struct siw_cq_ctrl`, which follows the elements of a CQ.
pub(crate) const CQ_CTRL_SIZE: usize = size_of::<b::siw_cq_ctrl>();

/// `enum siw_opcode`.
pub(crate) mod op {
    use crate::uapi::generated as b;

    pub(crate) const WRITE: u8 = b::siw_opcode_SIW_OP_WRITE as u8;
    pub(crate) const READ: u8 = b::siw_opcode_SIW_OP_READ as u8;
    pub(crate) const READ_LOCAL_INV: u8 = b::siw_opcode_SIW_OP_READ_LOCAL_INV as u8;
    pub(crate) const SEND: u8 = b::siw_opcode_SIW_OP_SEND as u8;
    pub(crate) const SEND_REMOTE_INV: u8 = b::siw_opcode_SIW_OP_SEND_REMOTE_INV as u8;
    pub(crate) const RECEIVE: u8 = b::siw_opcode_SIW_OP_RECEIVE as u8;
    pub(crate) const INVAL_STAG: u8 = b::siw_opcode_SIW_OP_INVAL_STAG as u8;
    pub(crate) const REG_MR: u8 = b::siw_opcode_SIW_OP_REG_MR as u8;
    pub(crate) const BIND_MW: u8 = b::SIW_OP_BIND_MW as u8;
    pub(crate) const SEND_WITH_IMM: u8 = b::siw_opcode_SIW_OP_SEND_WITH_IMM as u8;
    pub(crate) const WRITE_WITH_IMM: u8 = b::SIW_OP_WRITE_WITH_IMM as u8;
    pub(crate) const RECV_RDMA_IMM: u8 = b::SIW_OP_RECV_RDMA_IMM as u8;
    pub(crate) const FETCH_AND_ADD: u8 = b::siw_opcode_SIW_OP_FETCH_AND_ADD as u8;
    pub(crate) const COMP_AND_SWAP: u8 = b::siw_opcode_SIW_OP_COMP_AND_SWAP as u8;
}

/// `enum siw_wqe_flags`.
pub(crate) mod wqe {
    use crate::uapi::generated as b;

    pub(crate) const VALID: u16 = b::siw_wqe_flags_SIW_WQE_VALID as u16;
    pub(crate) const INLINE: u16 = b::siw_wqe_flags_SIW_WQE_INLINE as u16;
    pub(crate) const SIGNALLED: u16 = b::siw_wqe_flags_SIW_WQE_SIGNALLED as u16;
    pub(crate) const SOLICITED: u16 = b::siw_wqe_flags_SIW_WQE_SOLICITED as u16;
    pub(crate) const READ_FENCE: u16 = b::siw_wqe_flags_SIW_WQE_READ_FENCE as u16;
    pub(crate) const REM_INVAL: u16 = b::siw_wqe_flags_SIW_WQE_REM_INVAL as u16;
    pub(crate) const WITH_IMM: u16 = b::SIW_WQE_WITH_IMM as u16;
}

/// `enum siw_notify_flags`.
pub(crate) mod notify {
    use crate::uapi::generated as b;

    pub(crate) const NOT: u32 = b::siw_notify_flags_SIW_NOTIFY_NOT;
    pub(crate) const SOLICITED: u32 = b::siw_notify_flags_SIW_NOTIFY_SOLICITED;
    pub(crate) const NEXT_COMPLETION: u32 = b::siw_notify_flags_SIW_NOTIFY_NEXT_COMPLETION;
    pub(crate) const ALL: u32 = b::siw_notify_flags_SIW_NOTIFY_ALL;
}

/// `enum siw_wc_status`.
pub(crate) mod wc {
    use crate::uapi::generated as b;

    pub(crate) const SUCCESS: u16 = b::siw_wc_status_SIW_WC_SUCCESS as u16;
    pub(crate) const LOC_LEN_ERR: u16 = b::siw_wc_status_SIW_WC_LOC_LEN_ERR as u16;
    pub(crate) const LOC_PROT_ERR: u16 = b::siw_wc_status_SIW_WC_LOC_PROT_ERR as u16;
    pub(crate) const LOC_QP_OP_ERR: u16 = b::siw_wc_status_SIW_WC_LOC_QP_OP_ERR as u16;
    pub(crate) const WR_FLUSH_ERR: u16 = b::siw_wc_status_SIW_WC_WR_FLUSH_ERR as u16;
    pub(crate) const REM_ACCESS_ERR: u16 = b::siw_wc_status_SIW_WC_REM_ACCESS_ERR as u16;
    pub(crate) const REM_INV_REQ_ERR: u16 = b::siw_wc_status_SIW_WC_REM_INV_REQ_ERR as u16;
    pub(crate) const GENERAL_ERR: u16 = b::siw_wc_status_SIW_WC_GENERAL_ERR as u16;
    pub(crate) const MW_BIND_ERR: u16 = b::SIW_WC_MW_BIND_ERR as u16;
    pub(crate) const REM_OP_ERR: u16 = b::SIW_WC_REM_OP_ERR as u16;
    pub(crate) const RETRY_EXC_ERR: u16 = b::SIW_WC_RETRY_EXC_ERR as u16;
}

/// `struct siw_sqe`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes)]
pub(crate) struct Sqe {
    pub(crate) id: u64,
    pub(crate) flags: u16,
    pub(crate) num_sge: u8,
    pub(crate) opcode: u8,
    pub(crate) rkey: u32,
    /// Also `base_mr`.
    pub(crate) raddr: u64,
    pub(crate) sge: [Sge; MAX_SGE],
}

impl Sqe {
    /// The bytes behind the first element, where inline payload is: [`MAX_INLINE`] of them.
    pub(crate) fn inline_bytes(&self) -> &[u8] {
        let [_, rest @ ..] = &self.sge;
        rest.as_bytes()
    }

    /// As [`Self::inline_bytes`].
    pub(crate) fn inline_bytes_mut(&mut self) -> &mut [u8] {
        let [_, rest @ ..] = &mut self.sge;
        rest.as_mut_bytes()
    }
}

/// `struct siw_rqe`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes)]
pub(crate) struct Rqe {
    pub(crate) id: u64,
    pub(crate) flags: u16,
    pub(crate) num_sge: u8,
    pub(crate) opcode: u8,
    pub(crate) unused: u32,
    pub(crate) sge: [Sge; MAX_SGE],
}

/// `struct siw_cqe`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes)]
pub(crate) struct Cqe {
    pub(crate) id: u64,
    pub(crate) flags: u8,
    pub(crate) opcode: u8,
    pub(crate) status: u16,
    pub(crate) bytes: u32,
    pub(crate) imm_or_stag: u64,
    pub(crate) qp_id: u64,
}

/// `struct siw_uresp_create_cq`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, FromBytes, Immutable, IntoBytes)]
pub(crate) struct RespCreateCq {
    pub(crate) cq_id: u32,
    pub(crate) num_cqe: u32,
    pub(crate) cq_key: u64,
}

/// `struct siw_uresp_resize_cq`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, FromBytes, Immutable, IntoBytes)]
pub(crate) struct RespResizeCq {
    pub(crate) num_cqe: u32,
    pub(crate) reserved: u32,
    pub(crate) cq_key: u64,
}

/// `struct siw_uresp_create_qp`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, FromBytes, Immutable, IntoBytes)]
pub(crate) struct RespCreateQp {
    pub(crate) qp_id: u32,
    pub(crate) num_sqe: u32,
    pub(crate) num_rqe: u32,
    pub(crate) pad: u32,
    pub(crate) sq_key: u64,
    pub(crate) rq_key: u64,
}

/// `struct siw_ureq_reg_mr`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes)]
pub(crate) struct ReqRegMr {
    pub(crate) stag_key: u8,
    pub(crate) reserved: [u8; 3],
    pub(crate) pad: u32,
}

/// `struct siw_uresp_reg_mr`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, FromBytes, Immutable, IntoBytes)]
pub(crate) struct RespRegMr {
    pub(crate) stag: u32,
    pub(crate) pad: u32,
}

/// `struct siw_uresp_create_srq`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, FromBytes, Immutable, IntoBytes)]
pub(crate) struct RespCreateSrq {
    pub(crate) num_rqe: u32,
    pub(crate) pad: u32,
    pub(crate) srq_key: u64,
}

/// `struct siw_ureq_modify_srq`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes)]
pub(crate) struct ReqModifySrq {
    pub(crate) response: u64,
}

/// `struct siw_uresp_modify_srq`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, FromBytes, Immutable, IntoBytes)]
pub(crate) struct RespModifySrq {
    pub(crate) num_rqe: u32,
    pub(crate) put: u32,
    pub(crate) srq_key: u64,
}

/// `enum siw_feature`: what a program's library has asked for and got.
pub(crate) mod feature {
    use crate::uapi::generated as b;

    pub(crate) const WINDOWS: u32 = b::siw_feature_SIW_FEATURE_WINDOWS;
    pub(crate) const RFC7306: u32 = b::siw_feature_SIW_FEATURE_RFC7306;
    pub(crate) const RESIZE_SRQ: u32 = b::siw_feature_SIW_FEATURE_RESIZE_SRQ;
    pub(crate) const ALL: u32 = WINDOWS | RFC7306 | RESIZE_SRQ;
}

/// `struct siw_ureq_alloc_ctx`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes)]
pub(crate) struct ReqAllocCtx {
    pub(crate) want: u32,
    pub(crate) reserved: u32,
}

/// `struct siw_uresp_alloc_ctx`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, FromBytes, Immutable, IntoBytes)]
pub(crate) struct RespAllocCtx {
    pub(crate) dev_id: u32,
    /// `pad`.
    pub(crate) features: u32,
}

impl RingElem for Sqe {
    const FLAGS: usize = core::mem::offset_of!(Self, flags);
    const WIDE: bool = true;
    const HEAD: usize = core::mem::offset_of!(Self, sge) / size_of::<u64>();

    fn set_flags(&mut self, flags: u16) {
        self.flags = flags;
    }

    fn body(&self) -> usize {
        if self.flags & wqe::INLINE != 0 {
            MAX_SGE * SGE_WORDS
        } else {
            usize::from(self.num_sge) * SGE_WORDS
        }
    }
}

impl RingElem for Rqe {
    const FLAGS: usize = core::mem::offset_of!(Self, flags);
    const WIDE: bool = true;
    const HEAD: usize = core::mem::offset_of!(Self, sge) / size_of::<u64>();

    fn set_flags(&mut self, flags: u16) {
        self.flags = flags;
    }

    fn body(&self) -> usize {
        usize::from(self.num_sge) * SGE_WORDS
    }
}

impl RingElem for Cqe {
    const FLAGS: usize = core::mem::offset_of!(Self, flags);
    const WIDE: bool = false;

    fn set_flags(&mut self, flags: u16) {
        self.flags = flags as u8;
    }
}

macro_rules! same_sizes {
    ($($ours:ident = $theirs:ident;)*) => {$(
        const _: () = {
            assert!(size_of::<$ours>() == size_of::<b::$theirs>());
            assert!(align_of::<$ours>() == align_of::<b::$theirs>());
        };
    )*};
}

same_sizes! {
    Sge = siw_sge;
    Sqe = siw_sqe;
    Rqe = siw_rqe;
    Cqe = siw_cqe;
    RespCreateCq = siw_uresp_create_cq;
    RespResizeCq = siw_uresp_resize_cq;
    RespCreateQp = siw_uresp_create_qp;
    ReqRegMr = siw_ureq_reg_mr;
    RespRegMr = siw_uresp_reg_mr;
    RespCreateSrq = siw_uresp_create_srq;
    ReqModifySrq = siw_ureq_modify_srq;
    RespModifySrq = siw_uresp_modify_srq;
    ReqAllocCtx = siw_ureq_alloc_ctx;
    RespAllocCtx = siw_uresp_alloc_ctx;
}

macro_rules! same_offsets {
    ($($ours:ident { $($field:ident),* } = $theirs:ident;)*) => {$($(
        const _: () = assert!(
            core::mem::offset_of!($ours, $field) == core::mem::offset_of!(b::$theirs, $field)
        );
    )*)*};
}

same_offsets! {
    Sqe { id, flags, num_sge, opcode, rkey } = siw_sqe;
    Rqe { id, flags, num_sge, opcode, unused, sge } = siw_rqe;
    Cqe { id, flags, opcode, status, bytes } = siw_cqe;
    RespCreateCq { cq_id, num_cqe, cq_key } = siw_uresp_create_cq;
    RespResizeCq { num_cqe, reserved, cq_key } = siw_uresp_resize_cq;
    RespCreateQp { qp_id, num_sqe, num_rqe, sq_key, rq_key } = siw_uresp_create_qp;
    ReqRegMr { stag_key, pad } = siw_ureq_reg_mr;
    RespRegMr { stag } = siw_uresp_reg_mr;
    RespCreateSrq { num_rqe, srq_key } = siw_uresp_create_srq;
    ReqModifySrq { response } = siw_ureq_modify_srq;
    RespModifySrq { num_rqe, put, srq_key } = siw_uresp_modify_srq;
    ReqAllocCtx { want, reserved } = siw_ureq_alloc_ctx;
    RespAllocCtx { dev_id } = siw_uresp_alloc_ctx;
}

// The attribute is the one that `rdma` has for the answer.
const _: () = assert!(b::siw_query_context_attrs_SIW_ATTR_QUERY_CONTEXT_RESP == Answer::ATTR);

// The core's scatter/gather element is the library's.
const _: () = assert!(
    core::mem::offset_of!(Sge, addr) == core::mem::offset_of!(b::siw_sge, laddr)
        && core::mem::offset_of!(Sge, len) == core::mem::offset_of!(b::siw_sge, length)
        && core::mem::offset_of!(Sge, lkey) == core::mem::offset_of!(b::siw_sge, lkey)
);
