// SPDX-License-Identifier: GPL-2.0

//! The MPA start-up handshake (RFC 5044 7.1, RFC 6581) for both sides, without I/O.
//!
//! Bytes of the peer's frame go in with `feed`, in pieces of any size but never more than `need`
//! asks for: what follows the frame in the stream are FPDUs and stays with the caller. Frames to
//! send come out of `request`, `accept` and `reject`. Timeouts are the caller's.

mod collector;
mod initiator;
mod responder;

use crate::{
    error::MpaError,
    mem::stag::Stag,
    tx::Message,
    wire::{
        mpa::{
            ENHANCED_LEN,
            FRAME_LEN,
            MAX_PRIVATE_DATA, //
        },
        rdmap::{
            ReadRequest,
            With, //
        },
        session::Offer, //
    }, //
};

pub use self::{
    initiator::Initiator,
    responder::Responder, //
};
pub use crate::wire::mpa::{
    RtrKind,
    RtrSet, //
};

/// Longest start-up frame: room for the output of `request`, `accept` and `reject`.
pub const MAX_FRAME: usize = FRAME_LEN + MAX_PRIVATE_DATA;

/// Revision of MPA an initiator asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Revision {
    /// RFC 5044: no negotiation of read depths, no RTR.
    One,
    /// RFC 6581, with the enhanced data.
    Two,
}

impl Revision {
    const fn to_wire(self) -> u8 {
        match self {
            Self::One => 1,
            Self::Two => 2,
        }
    }
}

/// What this side wants of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// Revision to ask for. A responder follows the request.
    pub revision: Revision,
    /// Prefer CRCs. They are used if either side does (RFC 5044 7.1.1).
    pub crc: bool,
    /// Offer FPDUs larger than a TCP segment, and take up the offer of others. Both sides have to
    /// offer them.
    pub large_fpdus: bool,
    /// Offer Sends with Immediate Data, and take up the offer of others.
    pub send_imm: bool,
    /// Initiator: understand the offer of a session (see [`crate::session`]). Responder: one may be
    /// made with [`Responder::offer`].
    pub resume: bool,
    /// Inbound Read depth wanted, as initiator.
    pub ird: u16,
    /// Outbound Read depth wanted, as initiator.
    pub ord: u16,
    /// Largest inbound Read depth this side can serve.
    pub max_ird: u16,
    /// Largest outbound Read depth this side can use.
    pub max_ord: u16,
    /// Initiator: ask for peer-to-peer mode and offer these RTR messages; the empty set does not
    /// ask. Responder: what it takes; the empty set stands for all.
    pub rtr: RtrSet,
}

/// Read depths as the peer sent them, to be shown to the ULP (RFC 6581 9.1). `None` without
/// enhanced data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct PeerDepth {
    /// The peer's inbound depth; [`crate::wire::mpa::IRD_ORD_MANUAL`] is kept as it is.
    pub ird: Option<u16>,
    /// The peer's outbound depth.
    pub ord: Option<u16>,
}

/// How FPDUs are made on this connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Negotiated {
    /// CRCs are made and checked, in both directions.
    pub crc: bool,
    /// The peer wants markers in what we send. We never ask for them in what we receive.
    pub tx_markers: bool,
    /// Both sides want FPDUs larger than a TCP segment.
    pub large_fpdus: bool,
    /// Both sides know Sends with Immediate Data.
    pub send_imm: bool,
    /// Revision of the peer's frame.
    pub revision: u8,
    /// Both frames have enhanced data.
    pub enhanced: bool,
}

/// What happens first on the established stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rtr {
    /// Nothing special.
    None,
    /// Initiator: this zero-length message goes out before any other FPDU (RFC 6581 5); see
    /// [`rtr_message`].
    Emit(RtrKind),
    /// Responder: the first FPDU is one of these.
    Expect(RtrSet),
}

/// An accepted connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Established {
    /// CRC, markers, revision.
    pub net: Negotiated,
    /// Inbound Read depth of this side.
    pub ird: u16,
    /// Outbound Read depth of this side.
    pub ord: u16,
    /// What the peer said.
    pub peer: PeerDepth,
    /// RTR message to send or expect.
    pub rtr: Rtr,
    /// Send no FPDU before one has been received and found good: the responder's duty (RFC 5044
    /// 7.1.2).
    pub hold_tx: bool,
    /// The session the responder has offered: the connection can be resumed.
    pub session: Option<Offer>,
}

/// The peer's answer to our request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reply {
    /// Go ahead.
    Accepted(Established),
    /// Refused by the peer's ULP; its reason is in the private data.
    Rejected(PeerDepth),
}

/// A connection request of the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// Revision of the request.
    pub revision: u8,
    /// It has enhanced data.
    pub enhanced: bool,
    /// The peer wants to open with an RTR message.
    pub p2p: bool,
    /// Read depths of the peer.
    pub peer: PeerDepth,
    /// Inbound depth that serves the peer, within our limit.
    pub ird: u16,
    /// Outbound depth the peer serves, within our limit.
    pub ord: u16,
}

/// The zero-length message of an RTR kind, and its length for
/// [`crate::tx::TxStream::begin`].
pub const fn rtr_message(kind: RtrKind) -> Message<'static> {
    match kind {
        RtrKind::Send => Message::Send {
            se: false,
            with: With::Nothing,
        },
        RtrKind::Write => Message::Write {
            stag: Stag::RTR,
            to: 0,
        },
        RtrKind::Read => Message::ReadRequest(ReadRequest {
            sink_stag: Stag::RTR,
            sink_to: 0,
            len: 0,
            source_stag: Stag::RTR,
            source_to: 0,
        }),
    }
}

const fn known_revision(revision: u8) -> Result<(), MpaError> {
    // Revision 0 is the RDMA consortium's, whose RDMAP version is another one too.
    match revision {
        1 | 2 => Ok(()),
        other => Err(MpaError::Revision(other)),
    }
}

const fn max_private(enhanced: bool) -> usize {
    if enhanced {
        MAX_PRIVATE_DATA - ENHANCED_LEN
    } else {
        MAX_PRIVATE_DATA
    }
}
