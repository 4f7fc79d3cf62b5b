// SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause

//! Numbers of C, in the types of their fields.

use super::bindings as b;
use core::mem::offset_of;

/// `SIW_MAX_SGE`: elements of a work request.
pub(crate) const MAX_SGE: usize = b::SIW_MAX_SGE as usize;
/// `SIW_MAX_INLINE`: bytes of payload that fit behind the first element.
pub(crate) const MAX_INLINE: usize = (MAX_SGE - 1) * size_of::<b::siw_sge>();

/// `enum siw_opcode`: operations in queues.
pub(crate) mod op {
    use super::b;

    pub(crate) const WRITE: u8 = b::siw_opcode_SIW_OP_WRITE as u8;
    pub(crate) const READ: u8 = b::siw_opcode_SIW_OP_READ as u8;
    pub(crate) const READ_LOCAL_INV: u8 = b::siw_opcode_SIW_OP_READ_LOCAL_INV as u8;
    pub(crate) const SEND: u8 = b::siw_opcode_SIW_OP_SEND as u8;
    pub(crate) const SEND_REMOTE_INV: u8 = b::siw_opcode_SIW_OP_SEND_REMOTE_INV as u8;
    pub(crate) const RECEIVE: u8 = b::siw_opcode_SIW_OP_RECEIVE as u8;
    pub(crate) const INVAL_STAG: u8 = b::siw_opcode_SIW_OP_INVAL_STAG as u8;
    pub(crate) const BIND_MW: u8 = b::SIW_OP_BIND_MW as u8;
    pub(crate) const SEND_WITH_IMM: u8 = b::siw_opcode_SIW_OP_SEND_WITH_IMM as u8;
    pub(crate) const WRITE_WITH_IMM: u8 = b::SIW_OP_WRITE_WITH_IMM as u8;
    pub(crate) const RECV_RDMA_IMM: u8 = b::SIW_OP_RECV_RDMA_IMM as u8;
    pub(crate) const FETCH_AND_ADD: u8 = b::siw_opcode_SIW_OP_FETCH_AND_ADD as u8;
    pub(crate) const COMP_AND_SWAP: u8 = b::siw_opcode_SIW_OP_COMP_AND_SWAP as u8;
}

/// `enum siw_feature`: what library and driver agree on.
pub(crate) mod feature {
    use super::b;

    pub(crate) const WINDOWS: u32 = b::siw_feature_SIW_FEATURE_WINDOWS;
    pub(crate) const RFC7306: u32 = b::siw_feature_SIW_FEATURE_RFC7306;
    pub(crate) const RESIZE_SRQ: u32 = b::siw_feature_SIW_FEATURE_RESIZE_SRQ;
}

/// `enum siw_wqe_flags`: flags of elements.
pub(crate) mod wqe {
    use super::b;

    pub(crate) const VALID: u16 = b::siw_wqe_flags_SIW_WQE_VALID as u16;
    pub(crate) const INLINE: u16 = b::siw_wqe_flags_SIW_WQE_INLINE as u16;
    pub(crate) const SIGNALLED: u16 = b::siw_wqe_flags_SIW_WQE_SIGNALLED as u16;
    pub(crate) const SOLICITED: u16 = b::siw_wqe_flags_SIW_WQE_SOLICITED as u16;
    pub(crate) const READ_FENCE: u16 = b::siw_wqe_flags_SIW_WQE_READ_FENCE as u16;
    pub(crate) const REM_INVAL: u16 = b::siw_wqe_flags_SIW_WQE_REM_INVAL as u16;
    pub(crate) const WITH_IMM: u16 = b::SIW_WQE_WITH_IMM as u16;
}

/// `enum siw_notify_flags`: the completions that raise an event.
pub(crate) mod notify {
    use super::b;

    pub(crate) const SOLICITED: u32 = b::siw_notify_flags_SIW_NOTIFY_SOLICITED;
    pub(crate) const NEXT_COMPLETION: u32 = b::siw_notify_flags_SIW_NOTIFY_NEXT_COMPLETION;
}

/// `enum siw_wc_status`: statuses in completion queues.
pub(crate) mod status {
    use super::b;

    pub(crate) const SUCCESS: u16 = b::siw_wc_status_SIW_WC_SUCCESS as u16;
    pub(crate) const LOC_LEN_ERR: u16 = b::siw_wc_status_SIW_WC_LOC_LEN_ERR as u16;
    pub(crate) const LOC_PROT_ERR: u16 = b::siw_wc_status_SIW_WC_LOC_PROT_ERR as u16;
    pub(crate) const LOC_QP_OP_ERR: u16 = b::siw_wc_status_SIW_WC_LOC_QP_OP_ERR as u16;
    pub(crate) const WR_FLUSH_ERR: u16 = b::siw_wc_status_SIW_WC_WR_FLUSH_ERR as u16;
    pub(crate) const BAD_RESP_ERR: u16 = b::siw_wc_status_SIW_WC_BAD_RESP_ERR as u16;
    pub(crate) const LOC_ACCESS_ERR: u16 = b::siw_wc_status_SIW_WC_LOC_ACCESS_ERR as u16;
    pub(crate) const REM_ACCESS_ERR: u16 = b::siw_wc_status_SIW_WC_REM_ACCESS_ERR as u16;
    pub(crate) const REM_INV_REQ_ERR: u16 = b::siw_wc_status_SIW_WC_REM_INV_REQ_ERR as u16;
    pub(crate) const MW_BIND_ERR: u16 = b::SIW_WC_MW_BIND_ERR as u16;
    pub(crate) const REM_OP_ERR: u16 = b::SIW_WC_REM_OP_ERR as u16;
    pub(crate) const RETRY_EXC_ERR: u16 = b::SIW_WC_RETRY_EXC_ERR as u16;
}

/// The same numbers as programs know them: `enum ibv_wc_status`.
pub(crate) mod wc_status {
    pub(crate) use super::b::{
        ibv_wc_status_IBV_WC_BAD_RESP_ERR as BAD_RESP_ERR,
        ibv_wc_status_IBV_WC_GENERAL_ERR as GENERAL_ERR,
        ibv_wc_status_IBV_WC_LOC_ACCESS_ERR as LOC_ACCESS_ERR,
        ibv_wc_status_IBV_WC_LOC_LEN_ERR as LOC_LEN_ERR,
        ibv_wc_status_IBV_WC_LOC_PROT_ERR as LOC_PROT_ERR,
        ibv_wc_status_IBV_WC_LOC_QP_OP_ERR as LOC_QP_OP_ERR,
        ibv_wc_status_IBV_WC_MW_BIND_ERR as MW_BIND_ERR,
        ibv_wc_status_IBV_WC_REM_ACCESS_ERR as REM_ACCESS_ERR,
        ibv_wc_status_IBV_WC_REM_INV_REQ_ERR as REM_INV_REQ_ERR,
        ibv_wc_status_IBV_WC_REM_OP_ERR as REM_OP_ERR,
        ibv_wc_status_IBV_WC_RETRY_EXC_ERR as RETRY_EXC_ERR,
        ibv_wc_status_IBV_WC_SUCCESS as SUCCESS,
        ibv_wc_status_IBV_WC_WR_FLUSH_ERR as WR_FLUSH_ERR, //
    };
}

/// `enum ibv_wc_opcode`: operations in completions.
pub(crate) mod wc_opcode {
    pub(crate) use super::b::{
        ibv_wc_opcode_IBV_WC_BIND_MW as BIND_MW,
        ibv_wc_opcode_IBV_WC_COMP_SWAP as COMP_SWAP,
        ibv_wc_opcode_IBV_WC_FETCH_ADD as FETCH_ADD,
        ibv_wc_opcode_IBV_WC_LOCAL_INV as LOCAL_INV,
        ibv_wc_opcode_IBV_WC_RDMA_READ as RDMA_READ,
        ibv_wc_opcode_IBV_WC_RDMA_WRITE as RDMA_WRITE,
        ibv_wc_opcode_IBV_WC_RECV as RECV,
        ibv_wc_opcode_IBV_WC_RECV_RDMA_WITH_IMM as RECV_RDMA_WITH_IMM,
        ibv_wc_opcode_IBV_WC_SEND as SEND, //
    };
}

/// `enum ibv_wr_opcode`: operations of send work requests.
pub(crate) mod wr_opcode {
    pub(crate) use super::b::{
        ibv_wr_opcode_IBV_WR_ATOMIC_CMP_AND_SWP as ATOMIC_CMP_AND_SWP,
        ibv_wr_opcode_IBV_WR_ATOMIC_FETCH_AND_ADD as ATOMIC_FETCH_AND_ADD,
        ibv_wr_opcode_IBV_WR_BIND_MW as BIND_MW,
        ibv_wr_opcode_IBV_WR_LOCAL_INV as LOCAL_INV,
        ibv_wr_opcode_IBV_WR_RDMA_READ as RDMA_READ,
        ibv_wr_opcode_IBV_WR_RDMA_WRITE as RDMA_WRITE,
        ibv_wr_opcode_IBV_WR_RDMA_WRITE_WITH_IMM as RDMA_WRITE_WITH_IMM,
        ibv_wr_opcode_IBV_WR_SEND as SEND,
        ibv_wr_opcode_IBV_WR_SEND_WITH_IMM as SEND_WITH_IMM,
        ibv_wr_opcode_IBV_WR_SEND_WITH_INV as SEND_WITH_INV, //
    };
}

/// `enum ibv_send_flags`: flags of send work requests.
pub(crate) mod send_flags {
    pub(crate) use super::b::{
        ibv_send_flags_IBV_SEND_FENCE as FENCE,
        ibv_send_flags_IBV_SEND_INLINE as INLINE,
        ibv_send_flags_IBV_SEND_SIGNALED as SIGNALED,
        ibv_send_flags_IBV_SEND_SOLICITED as SOLICITED, //
    };
}

/// `enum ibv_qp_create_send_ops_flags`: the work requests that a program wants to build.
pub(crate) mod send_ops {
    use super::b;

    pub(crate) const SEND: u64 = b::ibv_qp_create_send_ops_flags_IBV_QP_EX_WITH_SEND as u64;
    pub(crate) const SEND_WITH_INV: u64 =
        b::ibv_qp_create_send_ops_flags_IBV_QP_EX_WITH_SEND_WITH_INV as u64;
    pub(crate) const RDMA_WRITE: u64 =
        b::ibv_qp_create_send_ops_flags_IBV_QP_EX_WITH_RDMA_WRITE as u64;
    pub(crate) const RDMA_READ: u64 =
        b::ibv_qp_create_send_ops_flags_IBV_QP_EX_WITH_RDMA_READ as u64;
    pub(crate) const LOCAL_INV: u64 =
        b::ibv_qp_create_send_ops_flags_IBV_QP_EX_WITH_LOCAL_INV as u64;
    pub(crate) const BIND_MW: u64 = b::ibv_qp_create_send_ops_flags_IBV_QP_EX_WITH_BIND_MW as u64;
    pub(crate) const SEND_WITH_IMM: u64 =
        b::ibv_qp_create_send_ops_flags_IBV_QP_EX_WITH_SEND_WITH_IMM as u64;
    pub(crate) const RDMA_WRITE_WITH_IMM: u64 =
        b::ibv_qp_create_send_ops_flags_IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM as u64;
    pub(crate) const ATOMIC_CMP_AND_SWP: u64 =
        b::ibv_qp_create_send_ops_flags_IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP as u64;
    pub(crate) const ATOMIC_FETCH_AND_ADD: u64 =
        b::ibv_qp_create_send_ops_flags_IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD as u64;
}

// The queues take elements as 64-bit words: what they are made of.
const _: () = {
    assert!(size_of::<b::siw_sge>() == 16 && size_of::<super::Sge>() == 16);
    assert!(offset_of!(super::Sge, length) == 8 && offset_of!(b::siw_sge, length) == 8);
    assert!(offset_of!(super::Sge, lkey) == 12 && offset_of!(b::siw_sge, lkey) == 12);

    assert!(size_of::<b::siw_sqe>() == 24 + MAX_SGE * 16);
    assert!(offset_of!(b::siw_sqe, flags) == 8 && offset_of!(b::siw_sqe, num_sge) == 10);
    assert!(offset_of!(b::siw_sqe, opcode) == 11 && offset_of!(b::siw_sqe, rkey) == 12);
    assert!(offset_of!(b::siw_sqe, __bindgen_anon_1) == 16);
    assert!(offset_of!(b::siw_sqe, __bindgen_anon_2) == 24);

    assert!(size_of::<b::siw_rqe>() == 16 + MAX_SGE * 16);
    assert!(offset_of!(b::siw_rqe, flags) == 8 && offset_of!(b::siw_rqe, num_sge) == 10);
    assert!(offset_of!(b::siw_rqe, sge) == 16);

    assert!(size_of::<b::siw_cqe>() == 32 && size_of::<b::siw_cq_ctrl>() == 8);
    assert!(offset_of!(b::siw_cqe, flags) == 8 && offset_of!(b::siw_cqe, opcode) == 9);
    assert!(offset_of!(b::siw_cqe, status) == 10 && offset_of!(b::siw_cqe, bytes) == 12);
    assert!(offset_of!(b::siw_cqe, __bindgen_anon_1) == 16);
    assert!(offset_of!(b::siw_cqe, __bindgen_anon_2) == 24);
    assert!(offset_of!(b::siw_cq_ctrl, flags) == 0);
};
