// SPDX-License-Identifier: GPL-2.0

//! Completions, and their numbers for programs and for kernel consumers.

use crate::uapi::abi;
use iwarp::{
    verdict::WcStatus,
    wire::rdmap::With, //
};
use rdma::{
    self,
    WcOpcode, //
};

/// The operation that a completion reports.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum WcOp {
    Send,
    SendInv,
    Write,
    Read,
    ReadInv,
    LocalInv,
    RegMr,
    BindMw,
    Recv,
    SendImm,
    WriteImm,
    RecvRdmaImm,
    FetchAdd,
    CmpSwap,
}

impl WcOp {
    /// The opcode in a program's ring.
    pub(crate) fn to_abi(self) -> u8 {
        match self {
            Self::Send => abi::op::SEND,
            Self::SendInv => abi::op::SEND_REMOTE_INV,
            Self::Write => abi::op::WRITE,
            Self::Read => abi::op::READ,
            Self::ReadInv => abi::op::READ_LOCAL_INV,
            Self::LocalInv => abi::op::INVAL_STAG,
            Self::RegMr => abi::op::REG_MR,
            Self::BindMw => abi::op::BIND_MW,
            Self::Recv => abi::op::RECEIVE,
            Self::SendImm => abi::op::SEND_WITH_IMM,
            Self::WriteImm => abi::op::WRITE_WITH_IMM,
            Self::RecvRdmaImm => abi::op::RECV_RDMA_IMM,
            Self::FetchAdd => abi::op::FETCH_AND_ADD,
            Self::CmpSwap => abi::op::COMP_AND_SWAP,
        }
    }

    pub(super) fn to_ib(self) -> WcOpcode {
        match self {
            Self::Send | Self::SendInv | Self::SendImm => WcOpcode::Send,
            Self::Write | Self::WriteImm => WcOpcode::RdmaWrite,
            Self::Read | Self::ReadInv => WcOpcode::RdmaRead,
            Self::LocalInv => WcOpcode::LocalInv,
            Self::RegMr => WcOpcode::RegMr,
            Self::BindMw => WcOpcode::BindMw,
            Self::Recv => WcOpcode::Recv,
            Self::RecvRdmaImm => WcOpcode::RecvRdmaImm,
            Self::FetchAdd => WcOpcode::FetchAdd,
            Self::CmpSwap => WcOpcode::CmpSwap,
        }
    }
}

/// The status in a program's ring; `extended`: the library knows those that the ABI has not.
pub(super) fn status_to_abi(status: WcStatus, extended: bool) -> u16 {
    match status {
        WcStatus::Success => abi::wc::SUCCESS,
        WcStatus::LocLenErr => abi::wc::LOC_LEN_ERR,
        WcStatus::LocQpOpErr => abi::wc::LOC_QP_OP_ERR,
        WcStatus::LocProtErr => abi::wc::LOC_PROT_ERR,
        WcStatus::WrFlushErr => abi::wc::WR_FLUSH_ERR,
        WcStatus::RemInvReqErr => abi::wc::REM_INV_REQ_ERR,
        WcStatus::RemAccessErr => abi::wc::REM_ACCESS_ERR,
        // Only programs that know the code can bind.
        WcStatus::MwBindErr => abi::wc::MW_BIND_ERR,
        WcStatus::RemOpErr if extended => abi::wc::REM_OP_ERR,
        WcStatus::RetryExcErr if extended => abi::wc::RETRY_EXC_ERR,
        WcStatus::RetryExcErr | WcStatus::RemOpErr | WcStatus::GeneralErr => abi::wc::GENERAL_ERR,
    }
}

pub(super) fn status_to_ib(status: WcStatus) -> rdma::WcStatus {
    match status {
        WcStatus::Success => rdma::WcStatus::Success,
        WcStatus::LocLenErr => rdma::WcStatus::LocLenErr,
        WcStatus::LocQpOpErr => rdma::WcStatus::LocQpOpErr,
        WcStatus::LocProtErr => rdma::WcStatus::LocProtErr,
        WcStatus::WrFlushErr => rdma::WcStatus::WrFlushErr,
        WcStatus::RemInvReqErr => rdma::WcStatus::RemInvReqErr,
        WcStatus::RemAccessErr => rdma::WcStatus::RemAccessErr,
        WcStatus::RetryExcErr => rdma::WcStatus::RetryExcErr,
        WcStatus::RemOpErr => rdma::WcStatus::RemOpErr,
        WcStatus::MwBindErr => rdma::WcStatus::MwBindErr,
        WcStatus::GeneralErr => rdma::WcStatus::GeneralErr,
    }
}

/// The completion of a work request.
pub(crate) struct Completion {
    pub(crate) wr_id: u64,
    pub(crate) op: WcOp,
    pub(crate) status: WcStatus,
    pub(crate) bytes: u32,
    /// The peer asked for a solicited event (receive requests only).
    pub(crate) solicited: bool,
    /// What came with the message: the STag that it invalidated, or Immediate Data.
    pub(crate) with: With,
}

impl Completion {
    /// Whether the completion wakes a consumer that waits for solicited ones: it is solicited, or
    /// has failed (`ibv_req_notify_cq(3)`).
    pub(super) fn wakes_solicited(&self) -> bool {
        self.solicited || self.status != WcStatus::Success
    }
}
