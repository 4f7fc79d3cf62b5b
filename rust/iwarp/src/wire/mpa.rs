// SPDX-License-Identifier: GPL-2.0

//! MPA: the start-up frames (RFC 5044 7.1.1, RFC 6581 6 and 9) and the sizes of FPDUs (RFC 5044 4).

use super::bytes::{
    Reader,
    Writer, //
};
use crate::error::{
    Error,
    MpaError,
    Result, //
};

/// Key of a Request Frame.
pub const KEY_REQ: [u8; 16] = *b"MPA ID Req Frame";
/// Key of a Reply Frame.
pub const KEY_REP: [u8; 16] = *b"MPA ID Rep Frame";
/// Bytes of a start-up frame without private data.
pub const FRAME_LEN: usize = 20;
/// Most private data a start-up frame carries, the enhanced data included (RFC 5044 7.1.1).
pub const MAX_PRIVATE_DATA: usize = 512;
/// Bytes of the enhanced connection data in front of the ULP's private data (RFC 6581 9).
pub const ENHANCED_LEN: usize = 4;
/// The bits of an IRD or ORD on the wire.
pub const IRD_ORD_MASK: u16 = 0x3fff;
/// IRD or ORD value meaning "do not negotiate, the ULP does" (RFC 6581 9.1).
pub const IRD_ORD_MANUAL: u16 = 0x3fff;

/// Bytes of the ULPDU length field that starts an FPDU.
pub const LENGTH_LEN: u16 = 2;
/// Bytes of the CRC field that ends an FPDU; always present (RFC 5044 4.1).
pub const CRC_LEN: u16 = 4;
/// Distance between markers in the stream, in bytes (RFC 5044 4.3).
pub const MARKER_INTERVAL: u16 = 512;
/// Bytes of a marker.
pub const MARKER_LEN: u16 = 4;
/// Largest ULPDU a sender may use (RFC 5044 3).
pub const MAX_ULPDU: u16 = 64768;
/// Smallest value a sender's MULPDU may shrink to (RFC 5044 4.5).
pub const MIN_MULPDU: u16 = 128;

const FLAG_MARKERS: u8 = 0x80;
const FLAG_CRC: u8 = 0x40;
const FLAG_REJECT: u8 = 0x20;
const FLAG_ENHANCED: u8 = 0x10;
/// Flag of a request, reserved in RFC 5044. It is the experimental "GSO" flag of the C driver, with
/// the same meaning.
const FLAG_LARGE: u8 = 0x08;
/// Flag of a reply that agrees, also reserved. Some peers copy the reserved bits of the request
/// into their reply. So it is another bit, and it does not count if the request's bit is set with
/// it.
const FLAG_LARGE_YES: u8 = 0x04;
/// Flags of the same kind about Sends with Immediate Data.
const FLAG_SEND_IMM: u8 = 0x02;
const FLAG_SEND_IMM_YES: u8 = 0x01;
/// Flag of a request: its sender can resume a connection on another TCP connection, and understands
/// an [`Offer`](super::session::Offer) in the reply. The offer itself is the answer, so no flag of
/// a reply is needed. All four reserved bits have a meaning, but the last one has none in a
/// request. A peer that copies it into its reply does not agree to Sends with Immediate Data: if
/// those are asked for, their flag is copied, too, and if not, the reply does not count.
const FLAG_RESUME: u8 = 0x01;

/// Which of the two start-up frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameKind {
    /// From the initiator.
    Request,
    /// From the responder.
    Reply,
}

/// The fixed part of a start-up frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame {
    /// Request or reply.
    pub kind: FrameKind,
    /// M: the sender wants markers in what it receives.
    pub markers: bool,
    /// C: the sender wants CRCs.
    pub crc: bool,
    /// R: the connection is refused; meaningful in a reply only.
    pub reject: bool,
    /// S: the private data begins with [`Enhanced`].
    pub enhanced: bool,
    /// The sender of the frame takes FPDUs of many TCP segments and wants to send such FPDUs. A
    /// reply says so only if the request does. The flag is in reserved bits, which other
    /// implementations do not check, and leave zero or as they got them.
    pub large: bool,
    /// The sender of the frame takes Sends with Immediate Data. The flag is as the one before.
    pub send_imm: bool,
    /// Request: the sender can resume a connection. False in a reply.
    pub resume: bool,
    /// Revision of MPA.
    pub revision: u8,
    /// Bytes of private data that follow, enhanced data included.
    pub pd_len: u16,
}

impl Frame {
    /// Whether a start-up frame can begin with `bytes`, however few they are.
    pub fn may_begin(bytes: &[u8]) -> bool {
        [KEY_REQ, KEY_REP]
            .iter()
            .any(|key| bytes.iter().zip(key).all(|(byte, wanted)| byte == wanted))
    }

    /// Reads a frame from its first [`FRAME_LEN`] bytes.
    ///
    /// Fails with [`MpaError::Key`] for anything that is no start-up frame and with
    /// [`MpaError::PrivateDataLength`] for a length above [`MAX_PRIVATE_DATA`]. The revision is
    /// not judged here.
    pub fn parse(bytes: &[u8]) -> Result<Self, MpaError> {
        let fields = || -> Result<([u8; 16], u8, u8, u16)> {
            let mut r = Reader(bytes);
            Ok((r.array()?, r.u8()?, r.u8()?, r.u16()?))
        };
        let (key, flags, revision, pd_len) = fields().map_err(|_| MpaError::Key)?;
        let kind = match key {
            KEY_REQ => FrameKind::Request,
            KEY_REP => FrameKind::Reply,
            _ => return Err(MpaError::Key),
        };
        if usize::from(pd_len) > MAX_PRIVATE_DATA {
            return Err(MpaError::PrivateDataLength);
        }
        let offered = |asks, agrees| match kind {
            FrameKind::Request => flags & asks != 0,
            FrameKind::Reply => flags & (asks | agrees) == agrees,
        };
        Ok(Self {
            kind,
            markers: flags & FLAG_MARKERS != 0,
            crc: flags & FLAG_CRC != 0,
            reject: flags & FLAG_REJECT != 0,
            enhanced: flags & FLAG_ENHANCED != 0,
            large: offered(FLAG_LARGE, FLAG_LARGE_YES),
            send_imm: offered(FLAG_SEND_IMM, FLAG_SEND_IMM_YES),
            resume: kind == FrameKind::Request && flags & FLAG_RESUME != 0,
            revision,
            pd_len,
        })
    }

    /// Writes the fixed part and returns its length. Other reserved bits go out as zero.
    pub fn emit(&self, out: &mut [u8]) -> Result<usize> {
        let flag = |on: bool, bit: u8| if on { bit } else { 0 };
        let (key, large, send_imm, resume) = match self.kind {
            FrameKind::Request => (&KEY_REQ, FLAG_LARGE, FLAG_SEND_IMM, FLAG_RESUME),
            FrameKind::Reply => (&KEY_REP, FLAG_LARGE_YES, FLAG_SEND_IMM_YES, 0),
        };
        let mut w = Writer::new(out);
        w.put(key)?;
        w.u8(flag(self.markers, FLAG_MARKERS)
            | flag(self.crc, FLAG_CRC)
            | flag(self.reject, FLAG_REJECT)
            | flag(self.enhanced, FLAG_ENHANCED)
            | flag(self.large, large)
            | flag(self.send_imm, send_imm)
            | flag(self.resume, resume))?;
        w.u8(self.revision)?;
        w.u16(self.pd_len)?;
        Ok(w.written())
    }
}

/// One kind of zero-length message that tells the responder it may send (RFC 6581 9.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RtrKind {
    /// A Send; it is swallowed and takes no receive buffer.
    Send,
    /// An RDMA Write.
    Write,
    /// An RDMA Read Request; it is answered.
    Read,
}

/// A set of [`RtrKind`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct RtrSet(u8);

impl RtrSet {
    /// No kind.
    pub const NONE: Self = Self(0);
    /// Zero-length Send, control flag B.
    pub const SEND: Self = Self(1);
    /// Zero-length Write, control flag C.
    pub const WRITE: Self = Self(2);
    /// Zero-length Read, control flag D.
    pub const READ: Self = Self(4);
    /// All three.
    pub const ALL: Self = Self(7);

    /// The set of one kind.
    pub const fn of(kind: RtrKind) -> Self {
        match kind {
            RtrKind::Send => Self::SEND,
            RtrKind::Write => Self::WRITE,
            RtrKind::Read => Self::READ,
        }
    }

    /// Elements of either set.
    #[must_use]
    pub const fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Elements of both sets.
    #[must_use]
    pub const fn intersect(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    /// The set without `kind`.
    #[must_use]
    pub const fn without(self, kind: RtrKind) -> Self {
        Self(self.0 & !Self::of(kind).0)
    }

    /// Whether `kind` is in the set.
    pub const fn contains(self, kind: RtrKind) -> bool {
        self.0 & Self::of(kind).0 != 0
    }

    /// Whether the set is empty.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }
}

/// The enhanced connection data: `A|B|IRD|C|D|ORD` (RFC 6581 9).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Enhanced {
    /// A: peer-to-peer connection, the initiator opens with an RTR message.
    pub p2p: bool,
    /// B, C and D. To be ignored when `p2p` is unset; [`Enhanced::parse`] then gives the empty
    /// set.
    pub rtr: RtrSet,
    /// Inbound Read depth of the sender of this frame, 14 bits.
    pub ird: u16,
    /// Outbound Read depth of the sender of this frame, 14 bits.
    pub ord: u16,
}

impl Enhanced {
    const HIGH: u16 = 0x8000;
    const LOW: u16 = 0x4000;

    /// Reads the first [`ENHANCED_LEN`] bytes of the private data.
    pub fn parse(bytes: &[u8]) -> Result<Self, MpaError> {
        let mut r = Reader(bytes);
        let ird = r.u16().map_err(|_| MpaError::EnhancedData)?;
        let ord = r.u16().map_err(|_| MpaError::EnhancedData)?;
        let p2p = ird & Self::HIGH != 0;
        let mut rtr = RtrSet::NONE;
        if p2p {
            for (bit, kind) in [
                (ird & Self::LOW, RtrSet::SEND),
                (ord & Self::HIGH, RtrSet::WRITE),
                (ord & Self::LOW, RtrSet::READ),
            ] {
                if bit != 0 {
                    rtr = rtr.union(kind);
                }
            }
        }
        Ok(Self {
            p2p,
            rtr,
            ird: ird & IRD_ORD_MASK,
            ord: ord & IRD_ORD_MASK,
        })
    }

    /// The four bytes. B, C and D are zero without `p2p` (RFC 6581 9.2).
    pub fn to_bytes(self) -> [u8; ENHANCED_LEN] {
        let flag = |on: bool, bit: u16| if on && self.p2p { bit } else { 0 };
        let ird = (self.ird & IRD_ORD_MASK)
            | flag(true, Self::HIGH)
            | flag(self.rtr.contains(RtrKind::Send), Self::LOW);
        let ord = (self.ord & IRD_ORD_MASK)
            | flag(self.rtr.contains(RtrKind::Write), Self::HIGH)
            | flag(self.rtr.contains(RtrKind::Read), Self::LOW);
        let [a, b] = ird.to_be_bytes();
        let [c, d] = ord.to_be_bytes();
        [a, b, c, d]
    }
}

/// Pad bytes behind a ULPDU of `ulpdu` bytes: length field, ULPDU and pad fill 4-byte units (RFC
/// 5044 4.1).
pub const fn pad(ulpdu: u16) -> u8 {
    match ulpdu & 3 {
        0 => 2,
        1 => 1,
        2 => 0,
        _ => 3,
    }
}

/// Stream bytes of an FPDU that carries `ulpdu` bytes: length field, ULPDU, pad and CRC field,
/// without markers.
pub fn fpdu_len(ulpdu: u16) -> u32 {
    u32::from(ulpdu)
        .saturating_add(u32::from(LENGTH_LEN))
        .saturating_add(u32::from(pad(ulpdu)))
        .saturating_add(u32::from(CRC_LEN))
}

/// MULPDU: the largest ULPDU whose FPDU fits in `emss` bytes of stream (RFC 5044 4.5).
///
/// Without markers a full FPDU is exactly one `emss` that is a multiple of 4, so TSO cuts on FPDU
/// boundaries; otherwise it is up to three bytes shorter. With markers the worst-case number of
/// them is allowed for. The result is within [`MIN_MULPDU`] and [`MAX_ULPDU`].
pub fn mulpdu(emss: u32, markers: bool) -> u16 {
    let marker_room = if markers {
        emss.div_ceil(u32::from(MARKER_INTERVAL))
            .saturating_mul(u32::from(MARKER_LEN))
    } else {
        0
    };
    let overhead = u32::from(LENGTH_LEN)
        .saturating_add(u32::from(CRC_LEN))
        .saturating_add(emss & 3)
        .saturating_add(marker_room);
    u16::try_from(emss.saturating_sub(overhead))
        .unwrap_or(MAX_ULPDU)
        .clamp(MIN_MULPDU, MAX_ULPDU)
}

/// The frame `kind` with the enhanced data and private data, which is in two parts, appended;
/// returns its length.
pub fn emit_frame(
    frame: &Frame,
    enhanced: Option<Enhanced>,
    [private, more]: [&[u8]; 2],
    out: &mut [u8],
) -> Result<usize> {
    let extra = if enhanced.is_some() { ENHANCED_LEN } else { 0 };
    let pd_len = private
        .len()
        .saturating_add(more.len())
        .saturating_add(extra);
    if pd_len > MAX_PRIVATE_DATA {
        return Err(Error::Buffer);
    }
    let frame = Frame {
        enhanced: enhanced.is_some(),
        pd_len: u16::try_from(pd_len).map_err(|_| Error::Buffer)?,
        ..*frame
    };
    let fixed = frame.emit(out)?;
    let mut w = Writer::new(out.get_mut(fixed..).ok_or(Error::Buffer)?);
    if let Some(e) = enhanced {
        w.put(&e.to_bytes())?;
    }
    w.put(private)?;
    w.put(more)?;
    fixed.checked_add(w.written()).ok_or(Error::Buffer)
}
