// SPDX-License-Identifier: GPL-2.0

//! The Terminate header (RFC 5040 4.8) and the codes of all layers (RFC 5040 4.8, RFC 5041 7.2, RFC
//! 5044 8, RFC 6581 8).

use super::{
    atomic,
    bytes::{
        put_at,
        Reader,
        Writer, //
    },
    ddp::{
        self,
        Control,
        Tagged,
        Untagged, //
    },
    rdmap::{
        self,
        Opcode,
        ReadRequest, //
    }, //
};
use crate::error::Result;

/// Layer RDMAP.
pub const LAYER_RDMAP: u8 = 0;
/// Layer DDP.
pub const LAYER_DDP: u8 = 1;
/// Layer LLP, that is MPA.
pub const LAYER_LLP: u8 = 2;

/// RDMAP: local catastrophic error; no codes.
pub const RDMAP_CATASTROPHIC: u8 = 0;
/// RDMAP: remote protection error.
pub const RDMAP_PROTECTION: u8 = 1;
/// RDMAP: remote operation error.
pub const RDMAP_OPERATION: u8 = 2;
/// RDMAP: invalid STag.
pub const RDMAP_INVALID_STAG: u8 = 0x00;
/// RDMAP: base or bounds violation.
pub const RDMAP_BOUNDS: u8 = 0x01;
/// RDMAP: access rights violation.
pub const RDMAP_RIGHTS: u8 = 0x02;
/// RDMAP: STag not associated with the stream.
pub const RDMAP_NOT_ASSOCIATED: u8 = 0x03;
/// RDMAP: tagged offset wraps.
pub const RDMAP_TO_WRAP: u8 = 0x04;
/// RDMAP: invalid RDMAP version.
pub const RDMAP_VERSION: u8 = 0x05;
/// RDMAP: unexpected opcode.
pub const RDMAP_OPCODE: u8 = 0x06;
/// RDMAP: catastrophic error of the stream.
pub const RDMAP_STREAM: u8 = 0x07;
/// RDMAP: STag cannot be invalidated.
pub const RDMAP_CANNOT_INVALIDATE: u8 = 0x09;
/// RDMAP: unspecified error.
pub const RDMAP_UNSPECIFIED: u8 = 0xff;

/// DDP: local catastrophic error.
pub const DDP_CATASTROPHIC: u8 = 0;
/// DDP: tagged buffer error.
pub const DDP_TAGGED: u8 = 1;
/// DDP: untagged buffer error.
pub const DDP_UNTAGGED: u8 = 2;
/// DDP tagged: invalid STag.
pub const DDP_T_INVALID_STAG: u8 = 0x00;
/// DDP tagged: base or bounds violation.
pub const DDP_T_BOUNDS: u8 = 0x01;
/// DDP tagged: STag not associated with the stream.
pub const DDP_T_NOT_ASSOCIATED: u8 = 0x02;
/// DDP tagged: tagged offset wraps.
pub const DDP_T_TO_WRAP: u8 = 0x03;
/// DDP tagged: invalid DDP version.
pub const DDP_T_VERSION: u8 = 0x04;
/// DDP untagged: invalid queue number.
pub const DDP_U_INVALID_QN: u8 = 0x01;
/// DDP untagged: invalid MSN, no buffer available.
pub const DDP_U_NO_BUFFER: u8 = 0x02;
/// DDP untagged: invalid MSN, out of range.
pub const DDP_U_MSN_RANGE: u8 = 0x03;
/// DDP untagged: invalid message offset.
pub const DDP_U_INVALID_MO: u8 = 0x04;
/// DDP untagged: message too long for the buffer.
pub const DDP_U_TOO_LONG: u8 = 0x05;
/// DDP untagged: invalid DDP version.
pub const DDP_U_VERSION: u8 = 0x06;

/// LLP: the one error type of MPA.
pub const LLP_MPA: u8 = 0;
/// MPA: CRC error.
pub const MPA_CRC: u8 = 0x02;
/// MPA: marker and ULPDU length disagree, or the length is impossible.
pub const MPA_LENGTH: u8 = 0x03;
/// MPA: invalid start-up frame.
pub const MPA_BAD_FRAME: u8 = 0x04;
/// MPA: local catastrophic error.
pub const MPA_CATASTROPHIC: u8 = 0x05;
/// MPA: insufficient IRD resources.
pub const MPA_INSUFFICIENT_IRD: u8 = 0x06;
/// MPA: no matching RTR option.
pub const MPA_NO_RTR: u8 = 0x07;

const FLAG_M: u8 = 0x80;
const FLAG_D: u8 = 0x40;
const FLAG_R: u8 = 0x20;
/// M, D and R where C siw puts them on a little-endian host.
const SWAPPED_M: u8 = 0x01;
const SWAPPED_D: u8 = 0x02;
const SWAPPED_R: u8 = 0x04;
const SWAPPED_FLAGS: u8 = SWAPPED_M | SWAPPED_D | SWAPPED_R;

/// Length of the control word that begins a Terminate header.
pub const CONTROL_LEN: u16 = 4;
/// Longest Terminate header: control word, segment length, untagged DDP header, Read Request
/// header.
pub const MAX_LEN: u16 = CONTROL_LEN + 2 + ddp::UNTAGGED_LEN + rdmap::READ_REQUEST_LEN;

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
    pub const CATASTROPHIC: Self = Self::new(LAYER_RDMAP, RDMAP_CATASTROPHIC, 0);
    /// The CRC of an FPDU is wrong.
    pub const WRONG_CRC: Self = Self::new(LAYER_LLP, LLP_MPA, MPA_CRC);

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
            (LAYER_RDMAP, RDMAP_CATASTROPHIC) => true,
            (LAYER_RDMAP, RDMAP_PROTECTION) => {
                matches!(self.ecode, 0..=4 | 9 | 0xff)
            }
            (LAYER_RDMAP, RDMAP_OPERATION) => matches!(self.ecode, 5..=9 | 0xff),
            (LAYER_DDP, DDP_CATASTROPHIC) => self.ecode == 0,
            (LAYER_DDP, DDP_TAGGED) => self.ecode <= 4,
            (LAYER_DDP, DDP_UNTAGGED) => matches!(self.ecode, 1..=6),
            (LAYER_LLP, LLP_MPA) => matches!(self.ecode, 1..=7),
            _ => false,
        }
    }
}

/// A copy of the DDP header a Terminate is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DdpCopy([u8; 18]);

impl DdpCopy {
    /// Copies the DDP header at the front of `bytes` (which begin with the DDP control octet);
    /// `None` if they are too few.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let len = usize::from(Self::len_of(bytes.first().copied()?));
        let from = bytes.get(..len)?;
        let mut copy = [0; 18];
        put_at(&mut copy, 0, from)?;
        Some(Self(copy))
    }

    const fn len_of(first: u8) -> u16 {
        if first & 0x80 != 0 {
            ddp::TAGGED_LEN
        } else {
            ddp::UNTAGGED_LEN
        }
    }

    /// The header: 14 bytes if tagged, 18 if not.
    pub fn as_bytes(&self) -> &[u8] {
        let len = usize::from(Self::len_of(self.0.first().copied().unwrap_or(0)));
        self.0.get(..len).unwrap_or(&[])
    }

    /// Its control octets.
    pub fn control(&self) -> Control {
        let [ddp, rdmap, ..] = self.0;
        Control::from_bytes([ddp, rdmap])
    }

    /// STag and offset, if the header is a tagged one.
    pub fn tagged(&self) -> Option<Tagged> {
        let mut r = Reader(self.as_bytes().get(2..)?);
        if !self.control().tagged {
            return None;
        }
        Tagged::read(&mut r).ok()
    }

    /// Queue, MSN and offset, if the header is an untagged one.
    pub fn untagged(&self) -> Option<Untagged> {
        let mut r = Reader(self.as_bytes().get(6..)?);
        if self.control().tagged {
            return None;
        }
        Untagged::read(&mut r).ok()
    }
}

/// A Terminate header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Terminate {
    /// What went wrong.
    pub code: TermCode,
    /// M: length of the offending DDP segment, header included, as its FPDU gave it.
    pub ddp_len: Option<u16>,
    /// D: header of the offending DDP segment.
    pub ddp: Option<DdpCopy>,
    /// R: header of the offending Read Request, brought up to how far it got.
    pub read: Option<ReadRequest>,
    /// Received in the bit order of C siw on a little-endian host. Always `false` for what we
    /// send.
    pub nibbles_swapped: bool,
}

impl Terminate {
    /// A Terminate that carries no header of an offending message.
    pub const fn bare(code: TermCode) -> Self {
        Self {
            code,
            ddp_len: None,
            ddp: None,
            read: None,
            nibbles_swapped: false,
        }
    }

    /// A Terminate about the Read Request `msn`, found while its response was made: `done` bytes of
    /// it had been sent.
    ///
    /// The request is moved on by `done` (RFC 5040 4.8).
    pub fn for_read(code: TermCode, msn: u32, request: &ReadRequest, done: u32) -> Self {
        let moved = u64::from(done);
        Self {
            read: Some(ReadRequest {
                sink_to: request.sink_to.wrapping_add(moved),
                len: request.len.saturating_sub(done),
                source_to: request.source_to.wrapping_add(moved),
                ..*request
            }),
            ..Self::for_request(code, msn, Opcode::ReadRequest, rdmap::READ_REQUEST_LEN)
        }
    }

    /// A Terminate about the Atomic Request `msn`, found when its turn came. It does not carry the
    /// request (RFC 7306 8.1).
    pub fn for_atomic(code: TermCode, msn: u32) -> Self {
        Self::for_request(code, msn, Opcode::AtomicRequest, atomic::REQUEST_LEN)
    }

    /// A Terminate with the DDP header of the request `msn`, which has `len` bytes.
    fn for_request(code: TermCode, msn: u32, opcode: Opcode, len: u16) -> Self {
        let [ddp, rdmap] = Control {
            tagged: false,
            last: true,
            version: ddp::VERSION,
            rdmap_version: rdmap::VERSION,
            opcode: opcode.to_wire(),
        }
        .to_bytes();
        let mut header = [0; 18];
        let mut w = Writer::new(&mut header);
        let untagged = Untagged {
            qn: ddp::QN_READ,
            msn,
            mo: 0,
        };
        let built = w
            .put(&[ddp, rdmap, 0, 0, 0, 0])
            .and_then(|()| untagged.write(&mut w));
        if built.is_err() {
            return Self::bare(code);
        }
        Self {
            ddp_len: Some(ddp::UNTAGGED_LEN.saturating_add(len)),
            ddp: Some(DdpCopy(header)),
            ..Self::bare(code)
        }
    }

    /// Reads what follows the untagged DDP header. Included headers that are cut short are left
    /// out.
    ///
    /// C siw writes the control word through little-endian bit fields, so on such a host layer and
    /// type have changed places and M, D and R are the low bits of their octet. A word is taken
    /// as swapped when one of those bits is set (RFC 5040 4.8 reserves them), or when
    /// no flag is set and only the swapped reading is a code that exists.
    pub fn parse(bytes: &[u8]) -> Result<Self> {
        let mut r = Reader(bytes);
        let [kind, ecode, flags, _reserved]: [u8; 4] = r.array()?;
        let straight = TermCode {
            layer: kind >> 4,
            etype: kind & 0x0f,
            ecode,
        };
        let turned = TermCode {
            layer: kind & 0x0f,
            etype: kind >> 4,
            ecode,
        };
        let any_flag = flags & (FLAG_M | FLAG_D | FLAG_R) != 0;
        let nibbles_swapped = !any_flag
            && (flags & SWAPPED_FLAGS != 0 || (!straight.is_known() && turned.is_known()));
        let (code, m, d, read_flag) = if nibbles_swapped {
            (turned, SWAPPED_M, SWAPPED_D, SWAPPED_R)
        } else {
            (straight, FLAG_M, FLAG_D, FLAG_R)
        };
        let mut term = Self {
            nibbles_swapped,
            ..Self::bare(code)
        };
        if flags & (m | d) == 0 {
            return Ok(term);
        }
        let Ok(len) = r.u16() else {
            return Ok(term);
        };
        term.ddp_len = (flags & m != 0).then_some(len);
        if flags & d == 0 {
            return Ok(term);
        }
        term.ddp = DdpCopy::from_bytes(r.0);
        if let Some(copy) = term.ddp {
            if flags & read_flag != 0 && r.slice(copy.as_bytes().len()).is_ok() {
                term.read = ReadRequest::read(&mut r).ok();
            }
        }
        Ok(term)
    }

    /// Writes the header in the order of the RFC; returns its length.
    pub fn emit(&self, out: &mut [u8]) -> Result<usize> {
        let mut w = Writer::new(out);
        self.write(&mut w)?;
        Ok(w.written())
    }

    pub(crate) fn write(&self, w: &mut Writer<'_>) -> Result<()> {
        let flag = |on: bool, bit: u8| if on { bit } else { 0 };
        w.u8((self.code.layer << 4) | (self.code.etype & 0x0f))?;
        w.u8(self.code.ecode)?;
        w.u8(flag(self.ddp_len.is_some(), FLAG_M)
            | flag(self.ddp.is_some(), FLAG_D)
            | flag(self.carries_read(), FLAG_R))?;
        w.u8(0)?;
        if self.ddp_len.is_some() || self.ddp.is_some() {
            w.u16(self.ddp_len.unwrap_or(0))?;
        }
        if let Some(copy) = &self.ddp {
            w.put(copy.as_bytes())?;
        }
        match self.read {
            Some(read) if self.carries_read() => read.write(w),
            _ => Ok(()),
        }
    }

    /// Length of the header in bytes.
    pub fn len(&self) -> u16 {
        let mut len = CONTROL_LEN;
        if self.ddp_len.is_some() || self.ddp.is_some() {
            len = len.saturating_add(2);
        }
        if let Some(copy) = &self.ddp {
            len = len.saturating_add(DdpCopy::len_of(copy.0.first().copied().unwrap_or(0)));
        }
        if self.carries_read() {
            len = len.saturating_add(rdmap::READ_REQUEST_LEN);
        }
        len
    }

    /// Never: the control word is always there.
    pub const fn is_empty(&self) -> bool {
        false
    }

    /// The RDMA header is only found behind a DDP header.
    fn carries_read(&self) -> bool {
        self.ddp.is_some() && self.read.is_some()
    }
}
