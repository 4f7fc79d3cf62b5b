// SPDX-License-Identifier: GPL-2.0

//! What comes in: segments, and what they amount to.

use crate::{
    mem::stag::Stag,
    wire::{
        ddp::Tagged,
        rdmap::{
            AtomicRequest,
            Immediate,
            Opcode,
            ReadRequest,
            With, //
        },
        terminate::Terminate, //
    }, //
};

/// What a segment is part of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A Send, with what comes with it.
    Send(With),
    /// An RDMA Write, and where this part of it goes.
    Write(Tagged),
    /// A Read Request.
    ReadRequest,
    /// A Read Response, and where this part of it goes.
    ReadResponse(Tagged),
    /// A Terminate.
    Terminate,
    /// Immediate Data.
    Immediate,
    /// An Atomic Request.
    AtomicRequest,
    /// An Atomic Response.
    AtomicResponse,
}

/// A segment whose header has come in and has passed the checks of the stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// What it is part of.
    pub kind: Kind,
    pub(super) opcode: Opcode,
    /// Payload bytes.
    pub len: u16,
    /// Payload bytes of the message before this segment.
    pub offset: u32,
    /// It begins a message.
    pub first: bool,
    /// It ends a message.
    pub last: bool,
    /// It is a zero-length Send that stands for "ready to receive": it takes no receive buffer and
    /// is not shown to the ULP.
    pub rtr: bool,
}

/// The oldest outstanding Read, which a Read Response must answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadExpect {
    /// STag of the sink.
    pub stag: Stag,
    /// Offset of the sink.
    pub to: u64,
    /// Bytes that were asked for.
    pub len: u32,
}

/// The oldest outstanding Read or atomic operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expect {
    /// A Read.
    Read(ReadExpect),
    /// An atomic operation, with the identifier of the request.
    Atomic(u32),
}

/// What a complete FPDU, its CRC found good, means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// More segments of the message follow.
    Partial,
    /// A Write is complete.
    Write {
        /// Bytes of the whole message.
        len: u32,
    },
    /// A Send is complete.
    Send {
        /// Bytes of the whole message.
        len: u32,
        /// With solicited event.
        se: bool,
        /// What comes with it. An STag is to be invalidated before the completion is shown.
        with: With,
        /// Its MSN.
        msn: u32,
    },
    /// The peer wants to read.
    ReadRequest {
        /// Its MSN, to be named if the request fails later.
        msn: u32,
        /// What it wants.
        request: ReadRequest,
    },
    /// The oldest outstanding Read is done.
    ReadResponse {
        /// Bytes of the whole message.
        len: u32,
    },
    /// The peer has given up; nothing else will come.
    Terminate(Terminate),
    /// The zero-length Send that lets a responder start.
    Rtr,
    /// Immediate Data.
    Immediate {
        /// The data.
        data: Immediate,
        /// With solicited event.
        se: bool,
        /// Its MSN.
        msn: u32,
    },
    /// The peer wants an atomic operation.
    AtomicRequest {
        /// Its MSN, to be named if the request fails later.
        msn: u32,
        /// What it wants.
        request: AtomicRequest,
    },
    /// The oldest outstanding atomic operation is done.
    AtomicResponse {
        /// What the target was before.
        original: u64,
    },
}
