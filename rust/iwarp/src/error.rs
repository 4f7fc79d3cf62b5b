// SPDX-License-Identifier: GPL-2.0

//! What can go wrong, and what follows from it: the Terminate code, the completion status, the QP
//! event.
//!
//! An [`Error`] says what was broken. The mappings are total, so no caller invents a code of its
//! own.

use crate::mem::access::{AccessError, AccessOp};
use crate::wire::terminate as term;

/// Result of this crate.
pub type Result<T, E = Error> = core::result::Result<T, E>;

/// What the peer, the user or the caller broke.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Error {
    /// The CRC of an FPDU is wrong (RFC 5044 8, error 2).
    Crc,
    /// The ULPDU length of an FPDU cannot be: shorter than a DDP header (RFC 5044 8, error 3).
    FpduLength,
    /// DV is not 1 (RFC 5041 7.2).
    DdpVersion {
        /// The segment is a tagged one.
        tagged: bool,
    },
    /// The queue number does not exist or does not suit the opcode.
    InvalidQn,
    /// No receive buffer is posted for a Send.
    NoBuffer,
    /// The MSN is not the next one of its queue.
    MsnRange,
    /// The message offset does not continue the message.
    InvalidMo,
    /// The message is longer than its buffer.
    TooLong,
    /// RV is not 1 (RFC 5040 4.8).
    RdmapVersion,
    /// The opcode is unknown, contradicts the T bit, or comes where it must not.
    Opcode,
    /// The message is shorter than its RDMAP header.
    Short,
    /// More Read Requests than the agreed IRD.
    NoReadSlot,
    /// A Read Response names another sink than the oldest outstanding Read.
    ResponseStag,
    /// A Read Response is not at the offset, or not of the length, of the oldest outstanding Read.
    ResponseBounds,
    /// A later segment of a Write has another STag than the first.
    WriteStag,
    /// A Write is longer than a message can be.
    WriteBounds,
    /// A check of [`crate::mem::access`] failed.
    Access {
        /// The rule that was broken.
        error: AccessError,
        /// What was being done.
        op: AccessOp,
    },
    /// A work request of the local user is malformed.
    LocalOp,
    /// Something failed here that is nobody's fault.
    LocalCatastrophic,
    /// The work request was flushed.
    Flushed,
    /// The handshake failed.
    Mpa(MpaError),
    /// The output slice is too small, or the private data too long: a mistake of the caller.
    Buffer,
    /// A method was called out of turn: a mistake of the caller.
    State,
}

/// Why a handshake failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MpaError {
    /// The key is none of MPA, or a responder got a Reply.
    Key,
    /// An initiator got a Request: both sides started (RFC 5044 7.1.2).
    BothInitiators,
    /// A revision we cannot work with.
    Revision(u8),
    /// More than 512 bytes of private data announced.
    PrivateDataLength,
    /// Our enhanced request was answered in the old form. The peer may have taken the enhanced
    /// data for private data, so the connection is of no use; a new one may be tried with
    /// revision 1 (RFC 6581 10).
    Downgrade,
    /// S is set but the private data is too short for the enhanced data.
    EnhancedData,
    /// The responder wants to read deeper than we can serve (RFC 6581 9.1).
    InsufficientIrd,
    /// The responder supports none of the RTR messages we can send (RFC 6581 9.2).
    NoMatchingRtr,
    /// Anything else that stops us (RFC 6581 9.3).
    LocalCatastrophic,
}

impl MpaError {
    /// Whether a second attempt with revision 1 makes sense. It also does when the peer closes the
    /// connection without a reply.
    pub const fn may_downgrade(self) -> bool {
        matches!(self, Self::Downgrade)
    }
}

impl From<MpaError> for Error {
    fn from(error: MpaError) -> Self {
        Self::Mpa(error)
    }
}

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

/// Layer, type and code of a Terminate (RFC 5040 4.8).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TermCode {
    /// 0 RDMAP, 1 DDP, 2 MPA.
    pub layer: u8,
    /// Error type of the layer, 4 bits.
    pub etype: u8,
    /// Error code of the type.
    pub ecode: u8,
}

impl TermCode {
    /// "Local catastrophic error" of RDMAP: what a QP that is told to terminate sends.
    pub const CATASTROPHIC: Self = Self::new(term::LAYER_RDMAP, term::RDMAP_CATASTROPHIC, 0);

    /// Puts a code together.
    pub const fn new(layer: u8, etype: u8, ecode: u8) -> Self {
        Self {
            layer,
            etype,
            ecode,
        }
    }

    /// Whether an RFC defines this combination (RFC 7306's additions included).
    pub const fn is_known(self) -> bool {
        match (self.layer, self.etype) {
            (term::LAYER_RDMAP, term::RDMAP_CATASTROPHIC) => true,
            (term::LAYER_RDMAP, term::RDMAP_PROTECTION) => {
                matches!(self.ecode, 0..=4 | 9 | 0xff)
            }
            (term::LAYER_RDMAP, term::RDMAP_OPERATION) => matches!(self.ecode, 5..=9 | 0xff),
            (term::LAYER_DDP, term::DDP_CATASTROPHIC) => self.ecode == 0,
            (term::LAYER_DDP, term::DDP_TAGGED) => self.ecode <= 4,
            (term::LAYER_DDP, term::DDP_UNTAGGED) => matches!(self.ecode, 1..=6),
            (term::LAYER_LLP, term::LLP_MPA) => matches!(self.ecode, 1..=7),
            _ => false,
        }
    }

    /// Status of the Read that a received Terminate with this code names: the peer refused access,
    /// or could not do it.
    pub const fn requester_status(self) -> WcStatus {
        match (self.layer, self.etype) {
            (term::LAYER_RDMAP, term::RDMAP_PROTECTION) | (term::LAYER_DDP, term::DDP_TAGGED) => {
                WcStatus::RemAccessErr
            }
            _ => WcStatus::RemOpErr,
        }
    }
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

impl Error {
    /// The code to terminate the stream with; `None` when no Terminate is due or possible.
    pub const fn terminate(self) -> Option<TermCode> {
        Some(match self {
            Self::Crc => mpa(term::MPA_CRC),
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
            Self::Short => rdmap_operation(term::RDMAP_UNSPECIFIED),
            Self::ResponseStag | Self::WriteStag => ddp_tagged(term::DDP_T_INVALID_STAG),
            Self::ResponseBounds | Self::WriteBounds => ddp_tagged(term::DDP_T_BOUNDS),
            Self::Access { error, op } => access_code(error, op),
            Self::LocalOp | Self::LocalCatastrophic | Self::Buffer | Self::State => {
                TermCode::CATASTROPHIC
            }
            Self::Mpa(MpaError::InsufficientIrd) => mpa(term::MPA_INSUFFICIENT_IRD),
            Self::Mpa(MpaError::NoMatchingRtr) => mpa(term::MPA_NO_RTR),
            Self::Mpa(MpaError::LocalCatastrophic) => mpa(term::MPA_CATASTROPHIC),
            // A bad start-up frame closes the connection at once, without a word (RFC 5044 7.1.2
            // and 8).
            Self::Mpa(_) | Self::Flushed => return None,
        })
    }

    /// Status of the work request the error hit.
    pub const fn wc_status(self) -> WcStatus {
        match self {
            Self::TooLong => WcStatus::LocLenErr,
            Self::LocalOp => WcStatus::LocQpOpErr,
            Self::Flushed => WcStatus::WrFlushErr,
            Self::Access { op, .. } => match op {
                AccessOp::Send | AccessOp::Recv | AccessOp::ReadResponse => WcStatus::LocProtErr,
                AccessOp::Invalidate => WcStatus::RemInvReqErr,
                AccessOp::LocalInvalidate | AccessOp::Register => WcStatus::LocQpOpErr,
                AccessOp::Bind => WcStatus::MwBindErr,
                // These hit no work request of ours.
                AccessOp::Write | AccessOp::ReadRequest => WcStatus::GeneralErr,
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
            | Self::Mpa(MpaError::LocalCatastrophic) => Fault::Local,
            Self::Access { op, .. } => match op {
                AccessOp::Write | AccessOp::ReadRequest | AccessOp::Invalidate => Fault::Remote,
                _ => Fault::Local,
            },
            _ => Fault::Remote,
        }
    }

    /// The event the QP raises.
    pub const fn qp_event(self) -> QpEvent {
        match self {
            Self::Access { op, .. } => match op {
                AccessOp::Recv
                | AccessOp::Write
                | AccessOp::ReadResponse
                | AccessOp::ReadRequest => QpEvent::AccessErr,
                AccessOp::Invalidate => QpEvent::ReqErr,
                _ => QpEvent::Fatal,
            },
            Self::NoReadSlot | Self::MsnRange => QpEvent::ReqErr,
            Self::Flushed | Self::Mpa(_) => QpEvent::None,
            _ => QpEvent::Fatal,
        }
    }
}

const fn access_code(error: AccessError, op: AccessOp) -> TermCode {
    match op {
        AccessOp::Write | AccessOp::ReadResponse => match error {
            AccessError::WrongPd | AccessError::WrongQp => ddp_tagged(term::DDP_T_NOT_ASSOCIATED),
            AccessError::Bounds | AccessError::Length => ddp_tagged(term::DDP_T_BOUNDS),
            AccessError::Wrap => ddp_tagged(term::DDP_T_TO_WRAP),
            // DDP has no code for rights (RFC 5041 7.2); RDMAP's is the exact one.
            AccessError::Rights => rdmap_protection(term::RDMAP_RIGHTS),
            AccessError::UnknownStag
            | AccessError::NotValid
            | AccessError::WrongKind
            | AccessError::WrongKey
            | AccessError::Windows => ddp_tagged(term::DDP_T_INVALID_STAG),
        },
        AccessOp::ReadRequest => rdmap_protection(match error {
            AccessError::WrongPd | AccessError::WrongQp => term::RDMAP_NOT_ASSOCIATED,
            AccessError::Bounds | AccessError::Length => term::RDMAP_BOUNDS,
            AccessError::Wrap => term::RDMAP_TO_WRAP,
            AccessError::Rights => term::RDMAP_RIGHTS,
            AccessError::UnknownStag
            | AccessError::NotValid
            | AccessError::WrongKind
            | AccessError::WrongKey
            | AccessError::Windows => term::RDMAP_INVALID_STAG,
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
    }
}
