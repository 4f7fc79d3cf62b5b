// SPDX-License-Identifier: GPL-2.0

//! RDMAP messages (RFC 5040 4) and the whole header of an FPDU, from the MPA length field to the
//! payload.

use super::{
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

/// RV, the version of RDMAP.
pub const VERSION: u8 = 1;
/// Bytes of a Read Request header behind the DDP header.
pub const READ_REQUEST_LEN: u16 = 28;
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
/// Bytes of the longest Terminate, from the MPA length on; no header is longer.
pub const MAX_HEADER: u16 = SEND_HEADER + terminate::MAX_LEN;

/// RDMAP opcode (RFC 5040 4.1, figure 4).
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
    /// One this driver does not know.
    Unknown(u8),
}

impl Opcode {
    /// From the four bits on the wire.
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
            other => Self::Unknown(other),
        }
    }

    /// The four bits on the wire.
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

    /// Queue the message must name; `None` if tagged or unknown.
    pub const fn queue(self) -> Option<u32> {
        match self {
            Self::Send | Self::SendInv | Self::SendSe | Self::SendSeInv => Some(ddp::QN_SEND),
            Self::ReadRequest => Some(ddp::QN_READ),
            Self::Terminate => Some(ddp::QN_TERMINATE),
            Self::Write | Self::ReadResponse | Self::Unknown(_) => None,
        }
    }

    /// Bytes of header from the MPA length on, for a Terminate the least; `None` for an unknown
    /// opcode.
    pub const fn header_len(self) -> Option<u16> {
        match self {
            Self::Write | Self::ReadResponse => Some(TAGGED_HEADER),
            Self::Send | Self::SendInv | Self::SendSe | Self::SendSeInv => Some(SEND_HEADER),
            Self::ReadRequest => Some(READ_REQUEST_HEADER),
            Self::Terminate => Some(SEND_HEADER + terminate::CONTROL_LEN),
            Self::Unknown(_) => None,
        }
    }
}

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
        /// STag to invalidate.
        inv: Option<Stag>,
        /// Queue, MSN, offset.
        ddp: Untagged,
    },
    /// Terminate.
    Terminate(Untagged, Terminate),
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
        let inv = Stag(r.u32()?);
        let ddp = Untagged::read(&mut r)?;
        let send = |se, inv| Self::Send { se, inv, ddp };
        let header = match opcode {
            Opcode::Send => send(false, None),
            Opcode::SendInv => send(false, Some(inv)),
            Opcode::SendSe => send(true, None),
            Opcode::SendSeInv => send(true, Some(inv)),
            Opcode::ReadRequest => Self::ReadRequest(ddp, ReadRequest::read(&mut r)?),
            Opcode::Terminate => Self::Terminate(ddp, Terminate::parse(r.0)?),
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
            Self::Send { se, inv, .. } => match (*se, inv.is_some()) {
                (false, false) => Opcode::Send,
                (false, true) => Opcode::SendInv,
                (true, false) => Opcode::SendSe,
                (true, true) => Opcode::SendSeInv,
            },
            Self::Terminate(..) => Opcode::Terminate,
        }
    }

    /// Bytes of this header, the MPA length field included.
    pub fn len(&self) -> u16 {
        match self {
            Self::Write(_) | Self::ReadResponse(_) => TAGGED_HEADER,
            Self::ReadRequest(..) => READ_REQUEST_HEADER,
            Self::Send { .. } => SEND_HEADER,
            Self::Terminate(_, term) => SEND_HEADER.saturating_add(term.len()),
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
            Self::Send { inv, ddp, .. } => start.untagged(*inv, ddp, out, |_| Ok(())),
            Self::ReadRequest(ddp, read) => start.untagged(None, ddp, out, |w| read.write(w)),
            Self::Terminate(ddp, term) => start.untagged(None, ddp, out, |w| term.write(w)),
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
        inv: Option<Stag>,
        ddp: &Untagged,
        out: &mut [u8],
        rest: impl FnOnce(&mut Writer<'_>) -> Result<()>,
    ) -> Result<usize> {
        let (out, behind) = out
            .split_first_chunk_mut::<SEND_HEADER_LEN>()
            .ok_or(Error::Buffer)?;
        let mut w = Writer::new(out);
        self.write(&mut w)?;
        w.u32(inv.map_or(0, |stag| stag.0))?;
        ddp.write(&mut w)?;
        let mut after = Writer::new(behind);
        rest(&mut after)?;
        Ok(w.written().wrapping_add(after.written()))
    }
}
