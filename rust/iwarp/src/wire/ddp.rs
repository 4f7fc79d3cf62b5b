// SPDX-License-Identifier: GPL-2.0

//! DDP headers (RFC 5041 4) with the RDMAP control octet that follows the DDP one (RFC 5040 4.1).

use super::bytes::{
    Reader,
    Writer, //
};
use crate::{
    error::Result,
    mem::stag::Stag, //
};

/// DV, the version of DDP.
pub const VERSION: u8 = 1;
/// Untagged queue of Sends (RFC 5040 4.1).
pub const QN_SEND: u32 = 0;
/// Untagged queue of Read Requests.
pub const QN_READ: u32 = 1;
/// Untagged queue of Terminates.
pub const QN_TERMINATE: u32 = 2;
/// Untagged queue of Atomic Responses (RFC 7306 4.1).
pub const QN_ATOMIC_RESPONSE: u32 = 3;
/// Bytes of a tagged DDP header, the RDMAP control octet included and the MPA length excluded.
pub const TAGGED_LEN: u16 = 14;
/// Bytes of an untagged DDP header, the RDMAP control octet and the Invalidate STag field included
/// and the MPA length excluded.
pub const UNTAGGED_LEN: u16 = 18;

/// The two control octets of every segment: `T|L|rsvd(4)|DV(2)` of DDP and
/// `RV(2)|rsvd(2)|opcode(4)` of RDMAP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Control {
    /// T: tagged.
    pub tagged: bool,
    /// L: last segment of its message.
    pub last: bool,
    /// DV as on the wire.
    pub version: u8,
    /// RV as on the wire.
    pub rdmap_version: u8,
    /// RDMAP opcode as on the wire, 4 bits; with the experimental one 5, because the reserved bit
    /// in front of it tells two messages apart.
    pub opcode: u8,
}

/// The opcode for experiments (RFC 6580 3.4).
pub(super) const EXPERIMENTAL: u8 = 0x0f;
/// The reserved bit in front of an opcode.
pub(super) const RESERVED: u8 = 0x10;

impl Control {
    /// Splits the two octets. Other reserved bits are not looked at (RFC 5041 4.1).
    pub const fn from_bytes([ddp, rdmap]: [u8; 2]) -> Self {
        let opcode = match rdmap & EXPERIMENTAL {
            EXPERIMENTAL => rdmap & (RESERVED | EXPERIMENTAL),
            opcode => opcode,
        };
        Self {
            tagged: ddp & 0x80 != 0,
            last: ddp & 0x40 != 0,
            version: ddp & 0x03,
            rdmap_version: rdmap >> 6,
            opcode,
        }
    }

    /// The two octets, other reserved bits zero.
    pub const fn to_bytes(self) -> [u8; 2] {
        let tagged = if self.tagged { 0x80 } else { 0 };
        let last = if self.last { 0x40 } else { 0 };
        [
            tagged | last | (self.version & 0x03),
            ((self.rdmap_version & 0x03) << 6) | (self.opcode & (RESERVED | EXPERIMENTAL)),
        ]
    }
}

/// Where a tagged segment goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tagged {
    /// Steering tag of the sink buffer.
    pub stag: Stag,
    /// Tagged offset of the segment's first payload byte.
    pub to: u64,
}

/// Where an untagged segment goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Untagged {
    /// Queue number.
    pub qn: u32,
    /// Message sequence number, from 1, one per message of the queue.
    pub msn: u32,
    /// Offset of the segment's first payload byte in its message.
    pub mo: u32,
}

impl Tagged {
    #[inline]
    pub(crate) fn read(r: &mut Reader<'_>) -> Result<Self> {
        Ok(Self {
            stag: Stag(r.u32()?),
            to: r.u64()?,
        })
    }

    #[inline]
    pub(super) fn write(&self, w: &mut Writer<'_>) -> Result<()> {
        w.u32(self.stag.0)?;
        w.u64(self.to)
    }
}

impl Untagged {
    #[inline]
    pub(crate) fn read(r: &mut Reader<'_>) -> Result<Self> {
        Ok(Self {
            qn: r.u32()?,
            msn: r.u32()?,
            mo: r.u32()?,
        })
    }

    #[inline]
    pub(super) fn write(&self, w: &mut Writer<'_>) -> Result<()> {
        w.u32(self.qn)?;
        w.u32(self.msn)?;
        w.u32(self.mo)
    }
}
