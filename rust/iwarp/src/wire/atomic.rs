// SPDX-License-Identifier: GPL-2.0

//! The headers of atomic operations (RFC 7306 5.2).

use super::bytes::{
    Reader,
    Writer, //
};
use crate::{
    error::{
        Error,
        Result, //
    },
    mem::{
        atomic::AtomicOp,
        stag::Stag, //
    }, //
};

/// Bytes of an Atomic Request header behind the DDP header (RFC 7306 5.2.1).
pub(super) const REQUEST_LEN: u16 = 52;
/// Bytes of an Atomic Response header behind the DDP header (RFC 7306 5.2.2).
pub(super) const RESPONSE_LEN: u16 = 12;

/// The Atomic Request header (RFC 7306 5.2.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AtomicRequest {
    /// The requester's name of the request.
    pub id: u32,
    /// STag of the responder's buffer.
    pub stag: Stag,
    /// Offset in the responder's buffer.
    pub to: u64,
    /// The operation.
    pub op: AtomicOp,
}

/// AOpCode of FetchAdd.
const FETCH_ADD: u32 = 0;
/// AOpCode of CmpSwap.
const CMP_SWAP: u32 = 2;
/// The bits of an AOpCode.
const AOPCODE: u32 = 0x0f;

impl AtomicRequest {
    /// [`Error::Opcode`] for an operation that does not exist.
    pub(super) fn read(r: &mut Reader<'_>) -> Result<Self> {
        let code = r.u32()? & AOPCODE;
        let (id, stag, to) = (r.u32()?, Stag(r.u32()?), r.u64()?);
        let (data, mask) = (r.u64()?, r.u64()?);
        let (compare, compare_mask) = (r.u64()?, r.u64()?);
        let op = match code {
            FETCH_ADD => AtomicOp::FetchAdd { add: data, mask },
            CMP_SWAP => AtomicOp::CmpSwap {
                compare,
                compare_mask,
                swap: data,
                swap_mask: mask,
            },
            _ => return Err(Error::Opcode),
        };
        Ok(Self { id, stag, to, op })
    }

    pub(crate) fn write(&self, w: &mut Writer<'_>) -> Result<()> {
        let (code, data, mask, compare, compare_mask) = match self.op {
            AtomicOp::FetchAdd { add, mask } => (FETCH_ADD, add, mask, 0, u64::MAX),
            AtomicOp::CmpSwap {
                compare,
                compare_mask,
                swap,
                swap_mask,
            } => (CMP_SWAP, swap, swap_mask, compare, compare_mask),
        };
        w.u32(code)?;
        w.u32(self.id)?;
        w.u32(self.stag.0)?;
        w.u64(self.to)?;
        w.u64(data)?;
        w.u64(mask)?;
        w.u64(compare)?;
        w.u64(compare_mask)
    }
}

/// The Atomic Response header (RFC 7306 5.2.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AtomicResponse {
    /// The requester's name of the request.
    pub id: u32,
    /// What the target was before.
    pub original: u64,
}

impl AtomicResponse {
    pub(super) fn read(r: &mut Reader<'_>) -> Result<Self> {
        Ok(Self {
            id: r.u32()?,
            original: r.u64()?,
        })
    }

    pub(crate) fn write(&self, w: &mut Writer<'_>) -> Result<()> {
        w.u32(self.id)?;
        w.u64(self.original)
    }
}
