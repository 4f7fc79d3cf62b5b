// SPDX-License-Identifier: GPL-2.0

//! Work completions for kernel consumers.

use core::marker::PhantomData;

use crate::{
    callback::Borrowed,
    device::Driver,
    qp, //
};
use base::bindings::{
    self,
    ib_wc, //
};

/// The status of a completed work request (`enum ib_wc_status`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WcStatus {
    /// It is done.
    Success,
    /// The payload and the buffers of the request do not fit.
    LocLenErr,
    /// The QP has failed by a fault on this side.
    LocQpOpErr,
    /// The request names memory that this QP may not access.
    LocProtErr,
    /// The QP went to the error state before the request was done.
    WrFlushErr,
    /// The peer has not answered.
    RetryExcErr,
    /// The peer has refused the request.
    RemInvReqErr,
    /// The request names memory of the peer that it may not access.
    RemAccessErr,
    /// The peer has failed.
    RemOpErr,
    /// The window cannot be bound so.
    MwBindErr,
    /// Any other error.
    GeneralErr,
}

impl WcStatus {
    /// `enum ib_wc_status`.
    pub fn as_raw(self) -> bindings::ib_wc_status {
        match self {
            Self::Success => bindings::ib_wc_status_IB_WC_SUCCESS,
            Self::LocLenErr => bindings::ib_wc_status_IB_WC_LOC_LEN_ERR,
            Self::LocQpOpErr => bindings::ib_wc_status_IB_WC_LOC_QP_OP_ERR,
            Self::LocProtErr => bindings::ib_wc_status_IB_WC_LOC_PROT_ERR,
            Self::WrFlushErr => bindings::ib_wc_status_IB_WC_WR_FLUSH_ERR,
            Self::RetryExcErr => bindings::ib_wc_status_IB_WC_RETRY_EXC_ERR,
            Self::RemInvReqErr => bindings::ib_wc_status_IB_WC_REM_INV_REQ_ERR,
            Self::RemAccessErr => bindings::ib_wc_status_IB_WC_REM_ACCESS_ERR,
            Self::RemOpErr => bindings::ib_wc_status_IB_WC_REM_OP_ERR,
            Self::MwBindErr => bindings::ib_wc_status_IB_WC_MW_BIND_ERR,
            Self::GeneralErr => bindings::ib_wc_status_IB_WC_GENERAL_ERR,
        }
    }
}

/// The operation of a completed work request (`enum ib_wc_opcode`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WcOpcode {
    /// A Send, with or without Invalidate.
    Send,
    /// An RDMA Write.
    RdmaWrite,
    /// An RDMA Read, with or without Invalidate.
    RdmaRead,
    /// The invalidation of a region of this side.
    LocalInv,
    /// A fast registration.
    RegMr,
    /// The bind of a window.
    BindMw,
    /// The receipt of a Send.
    Recv,
    /// The receipt of an RDMA Write with Immediate Data.
    RecvRdmaImm,
    /// An addition in the peer's memory.
    FetchAdd,
    /// A compare-and-swap in the peer's memory.
    CmpSwap,
}

impl WcOpcode {
    fn as_raw(self) -> bindings::ib_wc_opcode {
        match self {
            Self::Send => bindings::ib_wc_opcode_IB_WC_SEND,
            Self::RdmaWrite => bindings::ib_wc_opcode_IB_WC_RDMA_WRITE,
            Self::RdmaRead => bindings::ib_wc_opcode_IB_WC_RDMA_READ,
            Self::LocalInv => bindings::ib_wc_opcode_IB_WC_LOCAL_INV,
            Self::BindMw => bindings::ib_wc_opcode_IB_WC_BIND_MW,
            Self::RegMr => bindings::ib_wc_opcode_IB_WC_REG_MR,
            Self::Recv => bindings::ib_wc_opcode_IB_WC_RECV,
            Self::RecvRdmaImm => bindings::ib_wc_opcode_IB_WC_RECV_RDMA_WITH_IMM,
            Self::FetchAdd => bindings::ib_wc_opcode_IB_WC_FETCH_ADD,
            Self::CmpSwap => bindings::ib_wc_opcode_IB_WC_COMP_SWAP,
        }
    }
}

/// A work completion (`struct ib_wc`).
#[derive(Clone, Copy)]
pub struct Wc {
    /// The consumer's name of the request.
    pub wr_id: u64,
    /// The outcome. After an error only `wr_id` and `qp` count.
    pub status: WcStatus,
    /// The operation.
    pub opcode: WcOpcode,
    /// The number of bytes that were transferred.
    pub byte_len: u32,
    /// The QP of the request.
    pub qp: qp::Tag,
    /// What came with the message.
    pub with: WcWith,
}

/// What comes with a message, apart from its payload.
#[derive(Clone, Copy)]
pub enum WcWith {
    /// Nothing.
    Nothing,
    /// The STag that the peer invalidated.
    Invalidate(u32),
    /// Immediate Data, in the byte order of the peer's consumer.
    Immediate([u8; 4]),
}

/// The array that a consumer polls completions into.
///
/// # Invariants
///
/// `wc` points to `max` elements, of which the first `count` are written.
pub struct WcOut<'a, D: Driver> {
    wc: *mut ib_wc,
    max: usize,
    count: usize,
    _p: Borrowed<'a, ib_wc, D>,
}

impl<D: Driver> WcOut<'_, D> {
    /// # Safety
    ///
    /// `wc` points to `max` elements that may be written during the lifetime.
    pub(super) unsafe fn from_raw(wc: *mut ib_wc, max: usize) -> Self {
        // INVARIANT: By the requirements of this function.
        Self {
            wc,
            max,
            count: 0,
            _p: PhantomData,
        }
    }

    /// The number of completions added.
    pub fn count(&self) -> usize {
        self.count
    }

    /// The number of completions that still fit.
    pub fn remaining(&self) -> usize {
        self.max - self.count
    }

    /// Whether the array is full.
    pub fn is_full(&self) -> bool {
        self.remaining() == 0
    }

    /// Adds a completion. Returns `false` if there is no room for it.
    pub fn push(&mut self, wc: Wc) -> bool {
        if self.is_full() {
            return false;
        }
        let mut raw: ib_wc = pin_init::zeroed();
        raw.__bindgen_anon_1.wr_id = wc.wr_id;
        raw.status = wc.status.as_raw();
        raw.opcode = wc.opcode.as_raw();
        raw.byte_len = wc.byte_len;
        raw.qp = wc.qp.as_raw();
        raw.port_num = 1;
        match wc.with {
            WcWith::Nothing => (),
            WcWith::Invalidate(rkey) => {
                raw.ex.invalidate_rkey = rkey;
                raw.wc_flags |= bindings::ib_wc_flags_IB_WC_WITH_INVALIDATE as i32;
            }
            WcWith::Immediate(data) => {
                raw.ex.imm_data = u32::from_ne_bytes(data);
                raw.wc_flags |= bindings::ib_wc_flags_IB_WC_WITH_IMM as i32;
            }
        }
        // SAFETY: There is room by the type invariants.
        unsafe { self.wc.add(self.count).write(raw) };
        // INVARIANT: One more is written.
        self.count += 1;
        true
    }
}
