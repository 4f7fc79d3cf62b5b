// SPDX-License-Identifier: GPL-2.0

//! What regions are made of and changed to: rights, memory, kinds.

use crate::{
    device::Driver,
    pd::Pd, //
};
use base::bindings;

/// Access rights of regions, windows and QPs (`enum ib_access_flags`).
pub mod access {
    use super::bindings as b;

    /// The region's own side may write to it.
    pub const LOCAL_WRITE: u32 = b::ib_access_flags_IB_ACCESS_LOCAL_WRITE;
    /// A peer may write to it.
    pub const REMOTE_WRITE: u32 = b::ib_access_flags_IB_ACCESS_REMOTE_WRITE;
    /// A peer may read it.
    pub const REMOTE_READ: u32 = b::ib_access_flags_IB_ACCESS_REMOTE_READ;
    /// A peer may change it by atomic operations.
    pub const REMOTE_ATOMIC: u32 = b::ib_access_flags_IB_ACCESS_REMOTE_ATOMIC;
    /// Memory windows may be bound to it.
    pub const MW_BIND: u32 = b::ib_access_flags_IB_ACCESS_MW_BIND;
    /// Offsets, not addresses, name the bytes.
    pub const ZERO_BASED: u32 = b::ib_access_flags_IB_ZERO_BASED;
    /// Its pages come when they are used. Not a right.
    pub const ON_DEMAND: u32 = b::ib_access_flags_IB_ACCESS_ON_DEMAND;
    /// Rights a provider may ignore.
    pub const OPTIONAL_RANGE: u32 = 0x3ff0_0000;
}

/// A region of user memory to be registered.
#[derive(Clone, Copy)]
pub struct UserReq {
    /// The address of the first byte in the program.
    pub start: u64,
    /// The number of bytes.
    pub len: u64,
    /// The address of the first byte in work requests.
    pub iova: u64,
    /// The requested rights, of [`access`].
    pub access: u32,
}

/// A part of a dmabuf to be registered.
#[derive(Clone, Copy)]
pub struct DmabufReq {
    /// The descriptor in the current process.
    pub fd: i32,
    /// The first byte.
    pub offset: u64,
    /// The number of bytes.
    pub len: u64,
    /// The address of the first byte in work requests.
    pub iova: u64,
    /// The requested rights, of [`access`].
    pub access: u32,
}

/// The advice of a program about its memory (`ibv_advise_mr(3)`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Advice {
    /// The pages are to be brought, not only found if they are there.
    pub fault: bool,
    /// They will be written to.
    pub write: bool,
    /// The program waits, and wants to know of failures.
    pub flush: bool,
}

/// What becomes of a region (`ibv_rereg_mr(3)`); what is `None` stays.
pub struct Change<'a, D: Driver> {
    /// Other memory: address of the first byte in the program, number of bytes, and address of the
    /// first byte in work requests.
    pub memory: Option<(u64, u64, u64)>,
    /// Another protection domain.
    pub pd: Option<&'a Pd<D>>,
    /// Other rights, of [`access`].
    pub access: Option<u32>,
}

/// Permission to access all memory of the kernel, one for each `get_dma_mr`. It cannot be
/// copied.
///
/// Addresses in such a region are the kernel's own, and kernel consumers answer for them as they do
/// for any other pointer. A provider must let only QPs of kernel consumers use it, and only for
/// local access.
///
/// # Invariants
///
/// A kernel consumer asked for it, which vouches for every address in its work requests with the
/// key of the region: the memory is there until the request completes.
pub struct DmaGrant(());

impl DmaGrant {
    /// # Safety
    ///
    /// The caller is executing `get_dma_mr` for a kernel consumer.
    pub(super) unsafe fn new() -> Self {
        // INVARIANT: By the requirements of this function, and the contract of `ib_sge`.
        Self(())
    }
}

/// The kind of region that a kernel consumer requests (`enum ib_mr_type`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Type {
    /// Whole pages, except at both ends.
    MemReg,
    /// Elements of any length and alignment.
    SgGaps,
    /// Any other, by its number.
    Other(u32),
}

impl Type {
    pub(super) fn from_raw(raw: bindings::ib_mr_type) -> Self {
        match raw {
            bindings::ib_mr_type_IB_MR_TYPE_MEM_REG => Self::MemReg,
            bindings::ib_mr_type_IB_MR_TYPE_SG_GAPS => Self::SgGaps,
            other => Self::Other(other),
        }
    }
}
