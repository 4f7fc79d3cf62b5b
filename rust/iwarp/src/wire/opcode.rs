// SPDX-License-Identifier: GPL-2.0

//! RDMAP opcodes, and what they say of a message.

use super::{
    ddp,
    rdmap::{
        ATOMIC_REQUEST_HEADER,
        ATOMIC_RESPONSE_HEADER,
        IMMEDIATE_HEADER,
        READ_REQUEST_HEADER,
        SEND_HEADER,
        TAGGED_HEADER, //
    },
    terminate, //
};

/// RDMAP opcode (RFC 5040 4.1, figure 4; RFC 7306 4.1, figure 2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Opcode {
    /// RDMA Write.
    Write,
    /// RDMA Read Request.
    ReadRequest,
    /// RDMA Read Response.
    ReadResponse,
    /// Send.
    Send,
    /// Send with Invalidate.
    SendInv,
    /// Send with Solicited Event.
    SendSe,
    /// Send with Solicited Event and Invalidate.
    SendSeInv,
    /// Terminate.
    Terminate,
    /// Immediate Data.
    Immediate,
    /// Immediate Data with Solicited Event.
    ImmediateSe,
    /// Atomic Request.
    AtomicRequest,
    /// Atomic Response.
    AtomicResponse,
    /// Send with Immediate Data.
    SendImm,
    /// Send with Solicited Event and Immediate Data.
    SendSeImm,
    /// One this driver does not know.
    Unknown(u8),
}

/// The bits of a Send with Solicited Event and Immediate Data.
const SEND_SE_IMM: u8 = ddp::RESERVED | ddp::EXPERIMENTAL;

impl Opcode {
    /// From the bits on the wire, as in [`ddp::Control::opcode`].
    pub const fn from_wire(bits: u8) -> Self {
        match bits {
            0 => Self::Write,
            1 => Self::ReadRequest,
            2 => Self::ReadResponse,
            3 => Self::Send,
            4 => Self::SendInv,
            5 => Self::SendSe,
            6 => Self::SendSeInv,
            7 => Self::Terminate,
            8 => Self::Immediate,
            9 => Self::ImmediateSe,
            10 => Self::AtomicRequest,
            11 => Self::AtomicResponse,
            ddp::EXPERIMENTAL => Self::SendImm,
            SEND_SE_IMM => Self::SendSeImm,
            other => Self::Unknown(other),
        }
    }

    /// The bits on the wire, as in [`ddp::Control::opcode`].
    pub const fn to_wire(self) -> u8 {
        match self {
            Self::Write => 0,
            Self::ReadRequest => 1,
            Self::ReadResponse => 2,
            Self::Send => 3,
            Self::SendInv => 4,
            Self::SendSe => 5,
            Self::SendSeInv => 6,
            Self::Terminate => 7,
            Self::Immediate => 8,
            Self::ImmediateSe => 9,
            Self::AtomicRequest => 10,
            Self::AtomicResponse => 11,
            Self::SendImm => ddp::EXPERIMENTAL,
            Self::SendSeImm => SEND_SE_IMM,
            Self::Unknown(bits) => bits,
        }
    }

    /// Whether the message uses the tagged buffer model; `None` for an unknown opcode (RFC 5040
    /// figure 4).
    pub const fn is_tagged(self) -> Option<bool> {
        match self {
            Self::Write | Self::ReadResponse => Some(true),
            Self::Unknown(_) => None,
            _ => Some(false),
        }
    }

    /// Whether the message asks for a solicited event.
    pub const fn is_solicited(self) -> bool {
        matches!(
            self,
            Self::SendSe | Self::SendSeInv | Self::SendSeImm | Self::ImmediateSe
        )
    }

    /// Queue the message must name; `None` if tagged or unknown.
    pub const fn queue(self) -> Option<u32> {
        match self {
            Self::Send
            | Self::SendInv
            | Self::SendSe
            | Self::SendSeInv
            | Self::SendImm
            | Self::SendSeImm
            | Self::Immediate
            | Self::ImmediateSe => Some(ddp::QN_SEND),
            Self::ReadRequest | Self::AtomicRequest => Some(ddp::QN_READ),
            Self::Terminate => Some(ddp::QN_TERMINATE),
            Self::AtomicResponse => Some(ddp::QN_ATOMIC_RESPONSE),
            Self::Write | Self::ReadResponse | Self::Unknown(_) => None,
        }
    }

    /// Bytes of header from the MPA length on, for a Terminate the least; `None` for an unknown
    /// opcode.
    pub const fn header_len(self) -> Option<u16> {
        match self {
            Self::Write | Self::ReadResponse => Some(TAGGED_HEADER),
            Self::Send
            | Self::SendInv
            | Self::SendSe
            | Self::SendSeInv
            | Self::SendImm
            | Self::SendSeImm => Some(SEND_HEADER),
            Self::Immediate | Self::ImmediateSe => Some(IMMEDIATE_HEADER),
            Self::ReadRequest => Some(READ_REQUEST_HEADER),
            Self::AtomicRequest => Some(ATOMIC_REQUEST_HEADER),
            Self::AtomicResponse => Some(ATOMIC_RESPONSE_HEADER),
            Self::Terminate => Some(SEND_HEADER + terminate::CONTROL_LEN),
            Self::Unknown(_) => None,
        }
    }
}
