// SPDX-License-Identifier: GPL-2.0

//! What is shared with `libsiw`: mirrors of [`include/uapi/rdma/siw-abi.h`](srctree/include/uapi/rdma/siw-abi.h).
//!
//! Every byte belongs to a field, so that no padding reaches a user.

use super::udata::Pod;
use crate::kapi::bindings as b;

/// `RDMA_DRIVER_SIW`: what libsiw looks for.
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
    use crate::kapi::bindings as b;

    pub(crate) const WRITE: u8 = b::siw_opcode_SIW_OP_WRITE as u8;
    pub(crate) const READ: u8 = b::siw_opcode_SIW_OP_READ as u8;
    pub(crate) const READ_LOCAL_INV: u8 = b::siw_opcode_SIW_OP_READ_LOCAL_INV as u8;
    pub(crate) const SEND: u8 = b::siw_opcode_SIW_OP_SEND as u8;
    pub(crate) const SEND_REMOTE_INV: u8 = b::siw_opcode_SIW_OP_SEND_REMOTE_INV as u8;
    pub(crate) const RECEIVE: u8 = b::siw_opcode_SIW_OP_RECEIVE as u8;
    pub(crate) const INVAL_STAG: u8 = b::siw_opcode_SIW_OP_INVAL_STAG as u8;
    pub(crate) const REG_MR: u8 = b::siw_opcode_SIW_OP_REG_MR as u8;
}

/// `enum siw_wqe_flags`.
pub(crate) mod wqe {
    use crate::kapi::bindings as b;

    pub(crate) const VALID: u16 = b::siw_wqe_flags_SIW_WQE_VALID as u16;
    pub(crate) const INLINE: u16 = b::siw_wqe_flags_SIW_WQE_INLINE as u16;
    pub(crate) const SIGNALLED: u16 = b::siw_wqe_flags_SIW_WQE_SIGNALLED as u16;
    pub(crate) const SOLICITED: u16 = b::siw_wqe_flags_SIW_WQE_SOLICITED as u16;
    pub(crate) const READ_FENCE: u16 = b::siw_wqe_flags_SIW_WQE_READ_FENCE as u16;
    pub(crate) const REM_INVAL: u16 = b::siw_wqe_flags_SIW_WQE_REM_INVAL as u16;
}

/// `enum siw_notify_flags`.
pub(crate) mod notify {
    use crate::kapi::bindings as b;

    pub(crate) const NOT: u32 = b::siw_notify_flags_SIW_NOTIFY_NOT;
    pub(crate) const SOLICITED: u32 = b::siw_notify_flags_SIW_NOTIFY_SOLICITED;
    pub(crate) const NEXT_COMPLETION: u32 = b::siw_notify_flags_SIW_NOTIFY_NEXT_COMPLETION;
    pub(crate) const ALL: u32 = b::siw_notify_flags_SIW_NOTIFY_ALL;
}

/// `enum siw_wc_status`.
pub(crate) mod wc {
    use crate::kapi::bindings as b;

    pub(crate) const SUCCESS: u16 = b::siw_wc_status_SIW_WC_SUCCESS as u16;
    pub(crate) const LOC_LEN_ERR: u16 = b::siw_wc_status_SIW_WC_LOC_LEN_ERR as u16;
    pub(crate) const LOC_PROT_ERR: u16 = b::siw_wc_status_SIW_WC_LOC_PROT_ERR as u16;
    pub(crate) const LOC_QP_OP_ERR: u16 = b::siw_wc_status_SIW_WC_LOC_QP_OP_ERR as u16;
    pub(crate) const WR_FLUSH_ERR: u16 = b::siw_wc_status_SIW_WC_WR_FLUSH_ERR as u16;
    pub(crate) const REM_ACCESS_ERR: u16 = b::siw_wc_status_SIW_WC_REM_ACCESS_ERR as u16;
    pub(crate) const REM_INV_REQ_ERR: u16 = b::siw_wc_status_SIW_WC_REM_INV_REQ_ERR as u16;
    pub(crate) const GENERAL_ERR: u16 = b::siw_wc_status_SIW_WC_GENERAL_ERR as u16;
}

/// `struct siw_sge`, which is `struct ib_sge` as well.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sge {
    pub(crate) addr: u64,
    pub(crate) len: u32,
    pub(crate) lkey: u32,
}

/// `struct siw_sqe`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
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
    /// The bytes behind the first element, where inline payload is.
    pub(crate) fn inline_bytes(&self) -> &[u8; MAX_INLINE] {
        let [_, rest @ ..] = &self.sge;
        // SAFETY: The elements are `MAX_INLINE` initialised bytes without padding.
        unsafe { &*(&raw const *rest).cast() }
    }

    /// As [`Self::inline_bytes`].
    pub(crate) fn inline_bytes_mut(&mut self) -> &mut [u8; MAX_INLINE] {
        let [_, rest @ ..] = &mut self.sge;
        // SAFETY: As above; any bytes make valid elements.
        unsafe { &mut *(&raw mut *rest).cast() }
    }
}

/// `struct siw_rqe`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
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
#[derive(Clone, Copy, Debug, Default)]
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
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct RespCreateCq {
    pub(crate) cq_id: u32,
    pub(crate) num_cqe: u32,
    pub(crate) cq_key: u64,
}

/// `struct siw_uresp_create_qp`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
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
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ReqRegMr {
    pub(crate) stag_key: u8,
    pub(crate) reserved: [u8; 3],
    pub(crate) pad: u32,
}

/// `struct siw_uresp_reg_mr`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct RespRegMr {
    pub(crate) stag: u32,
    pub(crate) pad: u32,
}

/// `struct siw_uresp_create_srq`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct RespCreateSrq {
    pub(crate) num_rqe: u32,
    pub(crate) pad: u32,
    pub(crate) srq_key: u64,
}

/// `struct siw_uresp_alloc_ctx`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct RespAllocCtx {
    pub(crate) dev_id: u32,
    pub(crate) pad: u32,
}

macro_rules! mirrors {
    ($($ours:ident($($field:ident = $size:expr),*) = $theirs:ident;)*) => {$(
        const _: () = {
            assert!(size_of::<$ours>() == size_of::<b::$theirs>());
            assert!(align_of::<$ours>() == align_of::<b::$theirs>());
            // The fields fill the structure: there is no padding.
            assert!(0 $(+ $size)* == size_of::<$ours>());
        };
        // SAFETY: All fields are integers, of which any value is valid, and by the assertion
        // above there is no padding.
        unsafe impl Pod for $ours {}
    )*};
}

mirrors! {
    Sge(addr = 8, len = 4, lkey = 4) = siw_sge;
    Sqe(id = 8, flags = 2, num_sge = 1, opcode = 1, rkey = 4, raddr = 8, sge = 16 * MAX_SGE)
        = siw_sqe;
    Rqe(id = 8, flags = 2, num_sge = 1, opcode = 1, unused = 4, sge = 16 * MAX_SGE) = siw_rqe;
    Cqe(id = 8, flags = 1, opcode = 1, status = 2, bytes = 4, imm_or_stag = 8, qp_id = 8)
        = siw_cqe;
    RespCreateCq(cq_id = 4, num_cqe = 4, cq_key = 8) = siw_uresp_create_cq;
    RespCreateQp(qp_id = 4, num_sqe = 4, num_rqe = 4, pad = 4, sq_key = 8, rq_key = 8)
        = siw_uresp_create_qp;
    ReqRegMr(stag_key = 1, reserved = 3, pad = 4) = siw_ureq_reg_mr;
    RespRegMr(stag = 4, pad = 4) = siw_uresp_reg_mr;
    RespCreateSrq(num_rqe = 4, pad = 4, srq_key = 8) = siw_uresp_create_srq;
    RespAllocCtx(dev_id = 4, pad = 4) = siw_uresp_alloc_ctx;
}

macro_rules! same_offsets {
    ($($ours:ident { $($field:ident),* } = $theirs:ident;)*) => {$($(
        const _: () = assert!(
            core::mem::offset_of!($ours, $field) == core::mem::offset_of!(b::$theirs, $field)
        );
    )*)*};
}

same_offsets! {
    Sge { lkey } = siw_sge;
    Sqe { id, flags, num_sge, opcode, rkey } = siw_sqe;
    Rqe { id, flags, num_sge, opcode, unused, sge } = siw_rqe;
    Cqe { id, flags, opcode, status, bytes } = siw_cqe;
    RespCreateCq { cq_id, num_cqe, cq_key } = siw_uresp_create_cq;
    RespCreateQp { qp_id, num_sqe, num_rqe, sq_key, rq_key } = siw_uresp_create_qp;
    ReqRegMr { stag_key, pad } = siw_ureq_reg_mr;
    RespRegMr { stag } = siw_uresp_reg_mr;
    RespCreateSrq { num_rqe, srq_key } = siw_uresp_create_srq;
    RespAllocCtx { dev_id } = siw_uresp_alloc_ctx;
}

// The same memory is read as either.
const _: () = assert!(
    size_of::<Sge>() == size_of::<b::ib_sge>()
        && core::mem::offset_of!(Sge, addr) == core::mem::offset_of!(b::ib_sge, addr)
        && core::mem::offset_of!(Sge, len) == core::mem::offset_of!(b::ib_sge, length)
        && core::mem::offset_of!(Sge, lkey) == core::mem::offset_of!(b::ib_sge, lkey)
);
