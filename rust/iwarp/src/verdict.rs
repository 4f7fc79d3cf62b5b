// SPDX-License-Identifier: GPL-2.0

//! What follows from an error: the Terminate code, the completion status, the event of the QP.
//!
//! The mappings are total, so no caller invents a code of its own.

use crate::{
    error::{
        AccessError,
        AccessOp,
        Error,
        MpaError, //
    },
    wire::terminate::{
        self as term,
        TermCode, //
    }, //
};

/// Who is to blame: decides whether the stream gets a Terminate because of the peer or because of
/// us.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The local user, or this driver.
    Local,
    /// The peer.
    Remote,
}

/// Asynchronous event of the QP, as the verbs name them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QpEvent {
    /// None.
    None,
    /// `IB_EVENT_QP_FATAL`.
    Fatal,
    /// `IB_EVENT_QP_REQ_ERR`.
    ReqErr,
    /// `IB_EVENT_QP_ACCESS_ERR`.
    AccessErr,
}

/// Status of a work completion, as the verbs name them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum WcStatus {
    /// `IB_WC_SUCCESS`.
    Success,
    /// `IB_WC_LOC_LEN_ERR`.
    LocLenErr,
    /// `IB_WC_LOC_QP_OP_ERR`.
    LocQpOpErr,
    /// `IB_WC_LOC_PROT_ERR`.
    LocProtErr,
    /// `IB_WC_WR_FLUSH_ERR`.
    WrFlushErr,
    /// `IB_WC_RETRY_EXC_ERR`.
    RetryExcErr,
    /// `IB_WC_MW_BIND_ERR`.
    MwBindErr,
    /// `IB_WC_REM_INV_REQ_ERR`; the verbs have it as `REM_INV_REQ`.
    RemInvReqErr,
    /// `IB_WC_REM_ACCESS_ERR`.
    RemAccessErr,
    /// `IB_WC_REM_OP_ERR`.
    RemOpErr,
    /// `IB_WC_GENERAL_ERR`.
    GeneralErr,
}

const fn rdmap_protection(ecode: u8) -> TermCode {
    TermCode::new(term::LAYER_RDMAP, term::RDMAP_PROTECTION, ecode)
}

const fn rdmap_operation(ecode: u8) -> TermCode {
    TermCode::new(term::LAYER_RDMAP, term::RDMAP_OPERATION, ecode)
}

const fn ddp_tagged(ecode: u8) -> TermCode {
    TermCode::new(term::LAYER_DDP, term::DDP_TAGGED, ecode)
}

const fn ddp_untagged(ecode: u8) -> TermCode {
    TermCode::new(term::LAYER_DDP, term::DDP_UNTAGGED, ecode)
}

const fn mpa(ecode: u8) -> TermCode {
    TermCode::new(term::LAYER_LLP, term::LLP_MPA, ecode)
}

impl TermCode {
    /// Status of the Read or atomic operation that a received Terminate with this code names: the
    /// peer refused access, found the target of an `atomic` operation not aligned (RFC 7306 8.2),
    /// or could not do it.
    pub const fn requester_status(self, atomic: bool) -> WcStatus {
        match (self.layer, self.etype, self.ecode) {
            (term::LAYER_RDMAP, term::RDMAP_PROTECTION, _)
            | (term::LAYER_DDP, term::DDP_TAGGED, _) => WcStatus::RemAccessErr,
            (term::LAYER_RDMAP, term::RDMAP_OPERATION, term::RDMAP_STREAM) if atomic => {
                WcStatus::RemInvReqErr
            }
            _ => WcStatus::RemOpErr,
        }
    }
}

impl Error {
    /// The code to terminate the stream with; `None` when no Terminate is due or possible.
    pub const fn terminate(self) -> Option<TermCode> {
        Some(match self {
            Self::Crc => TermCode::WRONG_CRC,
            Self::FpduLength => mpa(term::MPA_LENGTH),
            Self::DdpVersion { tagged: true } => ddp_tagged(term::DDP_T_VERSION),
            Self::DdpVersion { tagged: false } => ddp_untagged(term::DDP_U_VERSION),
            Self::InvalidQn => ddp_untagged(term::DDP_U_INVALID_QN),
            Self::NoBuffer | Self::NoReadSlot => ddp_untagged(term::DDP_U_NO_BUFFER),
            Self::MsnRange => ddp_untagged(term::DDP_U_MSN_RANGE),
            Self::InvalidMo => ddp_untagged(term::DDP_U_INVALID_MO),
            Self::TooLong => ddp_untagged(term::DDP_U_TOO_LONG),
            Self::RdmapVersion => rdmap_operation(term::RDMAP_VERSION),
            Self::Opcode => rdmap_operation(term::RDMAP_OPCODE),
            Self::Short | Self::ResponseId => rdmap_operation(term::RDMAP_UNSPECIFIED),
            Self::Unaligned => rdmap_operation(term::RDMAP_STREAM),
            Self::ResponseStag | Self::WriteStag => ddp_tagged(term::DDP_T_INVALID_STAG),
            Self::ResponseBounds | Self::WriteBounds => ddp_tagged(term::DDP_T_BOUNDS),
            Self::Access { error, op } => return access_code(error, op),
            Self::LocalOp | Self::LocalCatastrophic | Self::Buffer | Self::State => {
                TermCode::CATASTROPHIC
            }
            Self::Mpa(MpaError::InsufficientIrd) => mpa(term::MPA_INSUFFICIENT_IRD),
            Self::Mpa(MpaError::NoMatchingRtr) => mpa(term::MPA_NO_RTR),
            Self::Mpa(MpaError::LocalCatastrophic) => mpa(term::MPA_CATASTROPHIC),
            // A bad start-up frame closes the connection at once and silently (RFC 5044 7.1.2 and
            // 8).
            Self::Mpa(_) | Self::Flushed => return None,
        })
    }

    /// Status of the work request the error hit.
    pub const fn wc_status(self) -> WcStatus {
        match self {
            Self::TooLong => WcStatus::LocLenErr,
            Self::LocalOp => WcStatus::LocQpOpErr,
            Self::Flushed
            | Self::Access {
                error: AccessError::Pending,
                ..
            } => WcStatus::WrFlushErr,
            Self::Access { op, .. } => match op {
                AccessOp::Send | AccessOp::Recv | AccessOp::ReadResponse => WcStatus::LocProtErr,
                AccessOp::Invalidate => WcStatus::RemInvReqErr,
                AccessOp::LocalInvalidate | AccessOp::Register => WcStatus::LocQpOpErr,
                AccessOp::Bind => WcStatus::MwBindErr,
                // These hit no work request of ours.
                AccessOp::Write | AccessOp::ReadRequest | AccessOp::AtomicRequest => {
                    WcStatus::GeneralErr
                }
            },
            _ => WcStatus::GeneralErr,
        }
    }

    /// Who is to blame.
    pub const fn fault(self) -> Fault {
        match self {
            Self::LocalOp
            | Self::LocalCatastrophic
            | Self::Flushed
            | Self::Buffer
            | Self::State
            | Self::NoBuffer
            | Self::Access {
                error: AccessError::Pending,
                ..
            }
            | Self::Mpa(MpaError::LocalCatastrophic) => Fault::Local,
            Self::Access { op, .. } => match op {
                AccessOp::Write
                | AccessOp::ReadRequest
                | AccessOp::AtomicRequest
                | AccessOp::Invalidate => Fault::Remote,
                _ => Fault::Local,
            },
            _ => Fault::Remote,
        }
    }

    /// The event the QP raises.
    pub const fn qp_event(self) -> QpEvent {
        match self {
            Self::Access {
                error: AccessError::Pending,
                ..
            } => QpEvent::None,
            Self::Access { op, .. } => match op {
                AccessOp::Recv
                | AccessOp::Write
                | AccessOp::ReadResponse
                | AccessOp::ReadRequest
                | AccessOp::AtomicRequest => QpEvent::AccessErr,
                AccessOp::Invalidate => QpEvent::ReqErr,
                _ => QpEvent::Fatal,
            },
            Self::NoReadSlot | Self::MsnRange | Self::Unaligned => QpEvent::ReqErr,
            Self::Flushed | Self::Mpa(_) => QpEvent::None,
            _ => QpEvent::Fatal,
        }
    }
}

/// `None` for what is no error.
const fn access_code(error: AccessError, op: AccessOp) -> Option<TermCode> {
    if matches!(error, AccessError::Pending) {
        return None;
    }
    Some(match op {
        AccessOp::Write | AccessOp::ReadResponse => match error {
            AccessError::WrongPd | AccessError::WrongQp => ddp_tagged(term::DDP_T_NOT_ASSOCIATED),
            AccessError::Bounds | AccessError::Length => ddp_tagged(term::DDP_T_BOUNDS),
            AccessError::Wrap => ddp_tagged(term::DDP_T_TO_WRAP),
            // DDP has no code for rights (RFC 5041 7.2); RDMAP's is the exact one.
            AccessError::Rights => rdmap_protection(term::RDMAP_RIGHTS),
            AccessError::UnknownStag
            | AccessError::NotValid
            | AccessError::Spent
            | AccessError::WrongKind
            | AccessError::WrongKey
            | AccessError::Windows => ddp_tagged(term::DDP_T_INVALID_STAG),
            AccessError::Pending => return None,
        },
        AccessOp::ReadRequest | AccessOp::AtomicRequest => rdmap_protection(match error {
            AccessError::WrongPd | AccessError::WrongQp => term::RDMAP_NOT_ASSOCIATED,
            AccessError::Bounds | AccessError::Length => term::RDMAP_BOUNDS,
            AccessError::Wrap => term::RDMAP_TO_WRAP,
            AccessError::Rights => term::RDMAP_RIGHTS,
            AccessError::UnknownStag
            | AccessError::NotValid
            | AccessError::Spent
            | AccessError::WrongKind
            | AccessError::WrongKey
            | AccessError::Windows => term::RDMAP_INVALID_STAG,
            AccessError::Pending => return None,
        }),
        AccessOp::Invalidate => match error {
            AccessError::WrongPd | AccessError::WrongQp => {
                rdmap_protection(term::RDMAP_CANNOT_INVALIDATE)
            }
            AccessError::Rights => rdmap_protection(term::RDMAP_RIGHTS),
            _ => rdmap_operation(term::RDMAP_CANNOT_INVALIDATE),
        },
        AccessOp::Recv => TermCode::new(term::LAYER_DDP, term::DDP_CATASTROPHIC, 0),
        AccessOp::Send | AccessOp::LocalInvalidate | AccessOp::Register | AccessOp::Bind => {
            TermCode::CATASTROPHIC
        }
    })
}
