// SPDX-License-Identifier: GPL-2.0

//! RDMAP messages (RFC 5040 4, RFC 7306 4) and the whole header of an FPDU, from the MPA length
//! field to the payload.
//!
//! Verbs have a Send with Immediate Data, for which the RFCs have no message. Two of our own ends
//! that have agreed on it use the opcode for experiments: the message is a Send, and the field for
//! the STag to invalidate holds the data.

use super::{
    atomic,
    bytes::{
        Reader,
        Writer, //
    },
    ddp::{
        self,
        Control,
        Tagged,
        Untagged, //
    },
    mpa,
    terminate::{
        self,
        Terminate, //
    }, //
};
use crate::{
    error::{
        Error,
        Result, //
    },
    mem::stag::Stag, //
};

pub use super::{
    atomic::{
        AtomicRequest,
        AtomicResponse, //
    },
    opcode::Opcode, //
};

/// RV, the version of RDMAP.
pub const VERSION: u8 = 1;
/// Bytes of a Read Request header behind the DDP header.
pub const READ_REQUEST_LEN: u16 = 28;
/// Bytes of Immediate Data (RFC 7306 6.2).
pub const IMMEDIATE_LEN: u16 = 8;
/// Bytes of the header of a tagged segment, from the MPA length on: Write and Read Response.
pub const TAGGED_HEADER: u16 = mpa::LENGTH_LEN + ddp::TAGGED_LEN;
/// Bytes of the header of a Send segment, from the MPA length on.
pub const SEND_HEADER: u16 = mpa::LENGTH_LEN + ddp::UNTAGGED_LEN;
pub(crate) const SEND_HEADER_LEN: usize = 20;
const _: () = assert!(SEND_HEADER == 20);
const TAGGED_HEADER_LEN: usize = 16;
const _: () = assert!(TAGGED_HEADER == 16);
/// Bytes of a whole Read Request, from the MPA length on.
pub const READ_REQUEST_HEADER: u16 = SEND_HEADER + READ_REQUEST_LEN;
/// Bytes of a whole Immediate Data message, from the MPA length on.
pub const IMMEDIATE_HEADER: u16 = SEND_HEADER + IMMEDIATE_LEN;
/// Bytes of a whole Atomic Request, from the MPA length on.
pub const ATOMIC_REQUEST_HEADER: u16 = SEND_HEADER + atomic::REQUEST_LEN;
/// Bytes of a whole Atomic Response, from the MPA length on.
pub const ATOMIC_RESPONSE_HEADER: u16 = SEND_HEADER + atomic::RESPONSE_LEN;
/// Bytes of the longest Terminate, from the MPA length on; no header is longer.
pub const MAX_HEADER: u16 = SEND_HEADER + terminate::MAX_LEN;
const _: () = assert!(MAX_HEADER >= ATOMIC_REQUEST_HEADER);

/// The Read Request header (RFC 5040 4.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadRequest {
    /// STag of the requester's buffer.
    pub sink_stag: Stag,
    /// Offset in the requester's buffer.
    pub sink_to: u64,
    /// Bytes to read.
    pub len: u32,
    /// STag of the responder's buffer.
    pub source_stag: Stag,
    /// Offset in the responder's buffer.
    pub source_to: u64,
}

impl ReadRequest {
    pub(super) fn read(r: &mut Reader<'_>) -> Result<Self> {
        Ok(Self {
            sink_stag: Stag(r.u32()?),
            sink_to: r.u64()?,
            len: r.u32()?,
            source_stag: Stag(r.u32()?),
            source_to: r.u64()?,
        })
    }

    pub(crate) fn write(&self, w: &mut Writer<'_>) -> Result<()> {
        w.u32(self.sink_stag.0)?;
        w.u64(self.sink_to)?;
        w.u32(self.len)?;
        w.u32(self.source_stag.0)?;
        w.u64(self.source_to)
    }
}

/// Immediate Data as verbs have it: 32 bits whose order is the consumer's affair.
///
/// The RFC leaves open where they are in its 64 bits. They are in front, as those of other iWARP
/// devices, and the others are zero.
pub type Immediate = [u8; 4];

fn read_immediate(r: &mut Reader<'_>) -> Result<Immediate> {
    let data = r.array()?;
    let [_, _, _, _] = r.array()?;
    Ok(data)
}

pub(crate) fn write_immediate(data: Immediate, w: &mut Writer<'_>) -> Result<()> {
    w.array(data)?;
    w.u32(0)
}

/// The words in front of every header: ULPDU length and control octets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Preamble {
    /// ULPDU length: everything between the length field and the pad.
    pub ulpdu: u16,
    /// DDP and RDMAP control.
    pub control: Control,
}

impl Preamble {
    /// Reads the first four bytes of an FPDU.
    pub fn parse(bytes: &[u8]) -> Result<Self> {
        Self::read(&mut Reader(bytes))
    }

    #[inline]
    pub(crate) fn read(r: &mut Reader<'_>) -> Result<Self> {
        Ok(Self {
            ulpdu: r.u16()?,
            control: Control::from_bytes(r.array()?),
        })
    }
}

/// The header of one FPDU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Header {
    /// Segment of an RDMA Write.
    Write(Tagged),
    /// RDMA Read Request.
    ReadRequest(Untagged, ReadRequest),
    /// Segment of a Read Response.
    ReadResponse(Tagged),
    /// Segment of a Send.
    Send {
        /// With solicited event.
        se: bool,
        /// What comes with it.
        with: With,
        /// Queue, MSN, offset.
        ddp: Untagged,
    },
    /// Terminate.
    Terminate(Untagged, Terminate),
    /// Immediate Data.
    Immediate {
        /// With solicited event.
        se: bool,
        /// The data.
        data: Immediate,
        /// Queue, MSN, offset.
        ddp: Untagged,
    },
    /// Atomic Request.
    AtomicRequest(Untagged, AtomicRequest),
    /// Atomic Response.
    AtomicResponse(Untagged, AtomicResponse),
}

/// What comes with a Send, in the field for the STag to invalidate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum With {
    /// Nothing.
    Nothing,
    /// STag to invalidate.
    Invalidate(Stag),
    /// Immediate Data.
    Immediate(Immediate),
}

impl With {
    /// What `field` of a Send with this opcode is.
    pub(crate) const fn of(opcode: Opcode, field: u32) -> Self {
        match opcode {
            Opcode::SendInv | Opcode::SendSeInv => Self::Invalidate(Stag(field)),
            Opcode::SendImm | Opcode::SendSeImm => Self::Immediate(field.to_be_bytes()),
            _ => Self::Nothing,
        }
    }

    /// The opcode of a Send with this.
    pub(crate) const fn opcode(self, se: bool) -> Opcode {
        match (self, se) {
            (Self::Nothing, false) => Opcode::Send,
            (Self::Nothing, true) => Opcode::SendSe,
            (Self::Invalidate(_), false) => Opcode::SendInv,
            (Self::Invalidate(_), true) => Opcode::SendSeInv,
            (Self::Immediate(_), false) => Opcode::SendImm,
            (Self::Immediate(_), true) => Opcode::SendSeImm,
        }
    }

    /// The field.
    const fn field(self) -> u32 {
        match self {
            Self::Nothing => 0,
            Self::Invalidate(stag) => stag.0,
            Self::Immediate(data) => u32::from_be_bytes(data),
        }
    }
}

impl Header {
    /// Reads a header from the MPA length field on.
    ///
    /// For a Terminate `bytes` should hold the whole of it. Only the layout is judged:
    /// [`Error::Opcode`] for an opcode that is unknown or contradicts the T bit,
    /// [`Error::Short`] for too few bytes.
    pub fn parse(bytes: &[u8]) -> Result<(Preamble, Self)> {
        let mut r = Reader(bytes);
        let preamble = Preamble::read(&mut r)?;
        let opcode = Opcode::from_wire(preamble.control.opcode);
        if opcode.is_tagged() != Some(preamble.control.tagged) {
            return Err(Error::Opcode);
        }
        if preamble.control.tagged {
            let tagged = Tagged::read(&mut r)?;
            let header = match opcode {
                Opcode::ReadResponse => Self::ReadResponse(tagged),
                _ => Self::Write(tagged),
            };
            return Ok((preamble, header));
        }
        let field = r.u32()?;
        let ddp = Untagged::read(&mut r)?;
        let se = opcode.is_solicited();
        let header = match opcode {
            Opcode::Send
            | Opcode::SendInv
            | Opcode::SendSe
            | Opcode::SendSeInv
            | Opcode::SendImm
            | Opcode::SendSeImm => Self::Send {
                se,
                with: With::of(opcode, field),
                ddp,
            },
            Opcode::ReadRequest => Self::ReadRequest(ddp, ReadRequest::read(&mut r)?),
            Opcode::Terminate => Self::Terminate(ddp, Terminate::parse(r.0)?),
            Opcode::Immediate | Opcode::ImmediateSe => Self::Immediate {
                se,
                data: read_immediate(&mut r)?,
                ddp,
            },
            Opcode::AtomicRequest => Self::AtomicRequest(ddp, AtomicRequest::read(&mut r)?),
            Opcode::AtomicResponse => Self::AtomicResponse(ddp, AtomicResponse::read(&mut r)?),
            Opcode::Write | Opcode::ReadResponse | Opcode::Unknown(_) => return Err(Error::Opcode),
        };
        Ok((preamble, header))
    }

    /// The opcode this header has on the wire.
    pub const fn opcode(&self) -> Opcode {
        match self {
            Self::Write(_) => Opcode::Write,
            Self::ReadRequest(..) => Opcode::ReadRequest,
            Self::ReadResponse(_) => Opcode::ReadResponse,
            Self::Send { se, with, .. } => with.opcode(*se),
            Self::Terminate(..) => Opcode::Terminate,
            Self::Immediate { se: false, .. } => Opcode::Immediate,
            Self::Immediate { se: true, .. } => Opcode::ImmediateSe,
            Self::AtomicRequest(..) => Opcode::AtomicRequest,
            Self::AtomicResponse(..) => Opcode::AtomicResponse,
        }
    }

    /// Bytes of this header, the MPA length field included.
    pub fn len(&self) -> u16 {
        match self {
            Self::Write(_) | Self::ReadResponse(_) => TAGGED_HEADER,
            Self::ReadRequest(..) => READ_REQUEST_HEADER,
            Self::Send { .. } => SEND_HEADER,
            Self::Terminate(_, term) => SEND_HEADER.saturating_add(term.len()),
            Self::Immediate { .. } => IMMEDIATE_HEADER,
            Self::AtomicRequest(..) => ATOMIC_REQUEST_HEADER,
            Self::AtomicResponse(..) => ATOMIC_RESPONSE_HEADER,
        }
    }

    /// Never: every FPDU has a header.
    pub const fn is_empty(&self) -> bool {
        false
    }

    /// Writes the header of an FPDU with `payload` bytes of payload and returns its length.
    pub fn emit(&self, payload: u16, last: bool, out: &mut [u8]) -> Result<usize> {
        let start = Start {
            opcode: self.opcode(),
            header_len: self.len(),
            payload,
            last,
        };
        match self {
            Self::Write(tagged) | Self::ReadResponse(tagged) => start.tagged(tagged, out),
            Self::Send { with, ddp, .. } => start.untagged(*with, ddp, out, |_| Ok(())),
            Self::ReadRequest(ddp, read) => {
                start.untagged(With::Nothing, ddp, out, |w| read.write(w))
            }
            Self::Terminate(ddp, term) => {
                start.untagged(With::Nothing, ddp, out, |w| term.write(w))
            }
            Self::Immediate { data, ddp, .. } => {
                start.untagged(With::Nothing, ddp, out, |w| write_immediate(*data, w))
            }
            Self::AtomicRequest(ddp, request) => {
                start.untagged(With::Nothing, ddp, out, |w| request.write(w))
            }
            Self::AtomicResponse(ddp, response) => {
                start.untagged(With::Nothing, ddp, out, |w| response.write(w))
            }
        }
    }
}

/// How a header is begun.
pub(crate) struct Start {
    pub(crate) opcode: Opcode,
    /// Bytes of the whole header, the MPA length field included.
    pub(crate) header_len: u16,
    /// Bytes behind it.
    pub(crate) payload: u16,
    pub(crate) last: bool,
}

impl Start {
    #[inline]
    fn write(&self, w: &mut Writer<'_>) -> Result<()> {
        let ulpdu = self
            .header_len
            .checked_sub(mpa::LENGTH_LEN)
            .and_then(|len| len.checked_add(self.payload))
            .ok_or(Error::Buffer)?;
        let control = Control {
            tagged: self.opcode.is_tagged() == Some(true),
            last: self.last,
            version: ddp::VERSION,
            rdmap_version: VERSION,
            opcode: self.opcode.to_wire(),
        };
        w.u16(ulpdu)?;
        w.array(control.to_bytes())
    }

    /// Writes the header of a tagged segment; returns its length.
    #[inline]
    pub(crate) fn tagged(&self, tagged: &Tagged, out: &mut [u8]) -> Result<usize> {
        // One look at the room for it.
        let out = out
            .first_chunk_mut::<TAGGED_HEADER_LEN>()
            .ok_or(Error::Buffer)?;
        let mut w = Writer::new(out);
        self.write(&mut w)?;
        tagged.write(&mut w)?;
        Ok(w.written())
    }

    /// Writes the header of an untagged segment, of which `rest` writes what follows that of DDP;
    /// returns its length.
    #[inline]
    pub(crate) fn untagged(
        &self,
        with: With,
        ddp: &Untagged,
        out: &mut [u8],
        rest: impl FnOnce(&mut Writer<'_>) -> Result<()>,
    ) -> Result<usize> {
        let (out, behind) = out
            .split_first_chunk_mut::<SEND_HEADER_LEN>()
            .ok_or(Error::Buffer)?;
        let mut w = Writer::new(out);
        self.write(&mut w)?;
        w.u32(with.field())?;
        ddp.write(&mut w)?;
        let mut after = Writer::new(behind);
        rest(&mut after)?;
        Ok(w.written().wrapping_add(after.written()))
    }
}
