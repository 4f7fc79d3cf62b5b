// SPDX-License-Identifier: GPL-2.0

//! Work requests of kernel consumers.
//!
//! A list is walked with `next`. If the verb fails, the consumer gets the request that `next`
//! returned last.
//!
//! # Examples
//!
//! ```ignore
//! fn post_recv(qp: &Qp<MyDriver>, wrs: &mut RecvWrs<'_>) -> Result {
//!     let mut queue = qp.recv_queue.lock();
//!     while let Some(wr) = wrs.next() {
//!         queue.push(wr.wr_id(), wr.sges()).map_err(|_| ENOMEM)?;
//!     }
//!     Ok(())
//! }
//! ```

use core::marker::PhantomData;

use kernel::prelude::*;
use zerocopy_derive::Immutable;

use crate::{
    callback::Borrowed,
    device::Driver,
    mr::Mr, //
};
use base::bindings::{
    self,
    ib_atomic_wr,
    ib_rdma_wr,
    ib_recv_wr,
    ib_reg_wr,
    ib_send_wr,
    ib_sge, //
};

/// `enum ib_send_flags`.
pub mod send_flags {
    use base::bindings as b;

    /// Begin after all Reads before it are done.
    pub const FENCE: u32 = b::ib_send_flags_IB_SEND_FENCE as u32;
    /// Complete with an entry of the CQ.
    pub const SIGNALED: u32 = b::ib_send_flags_IB_SEND_SIGNALED as u32;
    /// The receipt is a solicited event.
    pub const SOLICITED: u32 = b::ib_send_flags_IB_SEND_SOLICITED as u32;
    /// The payload is copied while the request is posted.
    pub const INLINE: u32 = b::ib_send_flags_IB_SEND_INLINE as u32;
}

/// A scatter/gather element (`struct ib_sge`).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, Immutable, IntoBytes)]
pub struct Sge {
    /// The address of the first byte.
    pub addr: u64,
    /// The number of bytes.
    pub len: u32,
    /// The key of the region that contains them.
    pub lkey: u32,
}

// A list of one is read as a list of the other.
const _: () = assert!(
    size_of::<Sge>() == size_of::<ib_sge>()
        && core::mem::offset_of!(Sge, addr) == core::mem::offset_of!(ib_sge, addr)
        && core::mem::offset_of!(Sge, len) == core::mem::offset_of!(ib_sge, length)
        && core::mem::offset_of!(Sge, lkey) == core::mem::offset_of!(ib_sge, lkey)
);

/// # Safety
///
/// `list` points to `num` elements that do not change during `'a`.
pub(super) unsafe fn sges<'a>(list: *const ib_sge, num: i32) -> &'a [Sge] {
    match usize::try_from(num) {
        // SAFETY: By the requirements of this function; the layouts are the same, see [`Sge`].
        Ok(num) if num > 0 && !list.is_null() => unsafe {
            core::slice::from_raw_parts(list.cast(), num)
        },
        _ => &[],
    }
}

/// A list of send work requests.
///
/// # Invariants
///
/// `next` and `last` are null or requests of a list that is valid during `'a`.
pub struct SendWrs<'a, D: Driver> {
    first: *const ib_send_wr,
    next: *const ib_send_wr,
    last: *const ib_send_wr,
    _p: Borrowed<'a, ib_send_wr, D>,
}

impl<'a, D: Driver> SendWrs<'a, D> {
    /// # Safety
    ///
    /// `first` is null or the first of a list of requests, valid and unchanged during `'a`, to a
    /// QP of `D`.
    pub(super) unsafe fn from_raw(first: *const ib_send_wr) -> Self {
        // INVARIANT: By the requirements of this function.
        Self {
            first,
            next: first,
            last: first,
            _p: PhantomData,
        }
    }

    pub(super) fn bad(&self) -> *const ib_send_wr {
        self.last
    }

    /// Whether there is no list at all: a user reports new requests in its mapped queue.
    pub fn is_doorbell(&self) -> bool {
        self.first.is_null()
    }
}

impl<'a, D: Driver> Iterator for SendWrs<'a, D> {
    type Item = SendWr<'a, D>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.next.is_null() {
            return None;
        }
        // INVARIANT: Both are requests of the list.
        self.last = self.next;
        // SAFETY: Valid by the type invariants.
        let raw = unsafe { &*self.last };
        self.next = raw.next;
        Some(SendWr {
            raw,
            _p: PhantomData,
        })
    }
}

/// A send work request.
pub struct SendWr<'a, D: Driver> {
    raw: &'a ib_send_wr,
    _p: PhantomData<fn() -> D>,
}

/// The operation of a send work request.
///
/// Addresses and keys are those of the peer, but for `LocalInv` and `RegMr`.
pub enum SendOp<'a, D: Driver> {
    /// RDMA Write.
    Write {
        /// The address in the region.
        raddr: u64,
        /// The key of the region.
        rkey: u32,
    },
    /// Send.
    Send,
    /// Send, and have the peer invalidate its region `rkey`.
    SendInv {
        /// The key of the region.
        rkey: u32,
    },
    /// RDMA Read.
    Read {
        /// The address in the region.
        raddr: u64,
        /// The key of the region.
        rkey: u32,
    },
    /// RDMA Read, and invalidate the region of the buffer afterwards.
    ReadInv {
        /// The address in the region.
        raddr: u64,
        /// The key of the region.
        rkey: u32,
    },
    /// RDMA Write, and Immediate Data behind it.
    WriteImm {
        /// The address in the region.
        raddr: u64,
        /// The key of the region.
        rkey: u32,
        /// Immediate Data, as it is on the wire.
        imm: [u8; 4],
    },
    /// Send with Immediate Data.
    SendImm {
        /// Immediate Data, as it is on the wire.
        imm: [u8; 4],
    },
    /// Add to 64 bits of the peer's memory.
    FetchAdd {
        /// The address in the region.
        raddr: u64,
        /// The key of the region.
        rkey: u32,
        /// The summand.
        add: u64,
    },
    /// Replace 64 bits of the peer's memory by `swap` if they are equal to `compare`.
    CmpSwap {
        /// The address in the region.
        raddr: u64,
        /// The key of the region.
        rkey: u32,
        /// The value to compare with.
        compare: u64,
        /// The new value.
        swap: u64,
    },
    /// Invalidate the region `rkey` of this side.
    LocalInv {
        /// The key of the region.
        rkey: u32,
    },
    /// Register what is mapped to `mr`, with a new `key` and the rights `access`.
    RegMr {
        /// The region.
        mr: &'a Mr<D>,
        /// Its new key.
        key: u32,
        /// Its new rights (`IB_ACCESS_*`).
        access: u32,
    },
    /// Any other.
    Other,
}

impl<'a, D: Driver> SendWr<'a, D> {
    /// The consumer's name of the request.
    pub fn wr_id(&self) -> u64 {
        // SAFETY: Of either member any bit pattern is a valid integer.
        unsafe { self.raw.__bindgen_anon_1.wr_id }
    }

    /// See [`send_flags`].
    pub fn flags(&self) -> u32 {
        self.raw.send_flags as u32
    }

    /// The buffers.
    pub fn sges(&self) -> &'a [Sge] {
        // SAFETY: The consumer's list is valid as long as the request.
        unsafe { sges(self.raw.sg_list, self.raw.num_sge) }
    }

    fn inv_rkey(&self) -> u32 {
        // SAFETY: Any bit pattern is a valid integer.
        unsafe { self.raw.ex.invalidate_rkey }
    }

    /// The Immediate Data, in the consumer's byte order.
    fn imm(&self) -> [u8; 4] {
        // SAFETY: Any bit pattern is a valid integer.
        unsafe { self.raw.ex.imm_data }.to_ne_bytes()
    }

    /// The operation, with what belongs to it.
    pub fn op(&self) -> SendOp<'a, D> {
        let rdma = || {
            // SAFETY: Requests with these opcodes are in an `ib_rdma_wr`, at offset 0.
            let wr = unsafe { &*(&raw const *self.raw).cast::<ib_rdma_wr>() };
            (wr.remote_addr, wr.rkey)
        };
        let atomic = || {
            // SAFETY: Requests with these opcodes are in an `ib_atomic_wr`, at offset 0.
            unsafe { &*(&raw const *self.raw).cast::<ib_atomic_wr>() }
        };
        match self.raw.opcode {
            bindings::ib_wr_opcode_IB_WR_RDMA_WRITE_WITH_IMM => {
                let ((raddr, rkey), imm) = (rdma(), self.imm());
                SendOp::WriteImm { raddr, rkey, imm }
            }
            bindings::ib_wr_opcode_IB_WR_SEND_WITH_IMM => SendOp::SendImm { imm: self.imm() },
            bindings::ib_wr_opcode_IB_WR_ATOMIC_FETCH_AND_ADD => {
                let wr = atomic();
                SendOp::FetchAdd {
                    raddr: wr.remote_addr,
                    rkey: wr.rkey,
                    add: wr.compare_add,
                }
            }
            bindings::ib_wr_opcode_IB_WR_ATOMIC_CMP_AND_SWP => {
                let wr = atomic();
                SendOp::CmpSwap {
                    raddr: wr.remote_addr,
                    rkey: wr.rkey,
                    compare: wr.compare_add,
                    swap: wr.swap,
                }
            }
            bindings::ib_wr_opcode_IB_WR_RDMA_WRITE => {
                let (raddr, rkey) = rdma();
                SendOp::Write { raddr, rkey }
            }
            bindings::ib_wr_opcode_IB_WR_RDMA_READ => {
                let (raddr, rkey) = rdma();
                SendOp::Read { raddr, rkey }
            }
            bindings::ib_wr_opcode_IB_WR_RDMA_READ_WITH_INV => {
                let (raddr, rkey) = rdma();
                SendOp::ReadInv { raddr, rkey }
            }
            bindings::ib_wr_opcode_IB_WR_SEND => SendOp::Send,
            bindings::ib_wr_opcode_IB_WR_SEND_WITH_INV => SendOp::SendInv {
                rkey: self.inv_rkey(),
            },
            bindings::ib_wr_opcode_IB_WR_LOCAL_INV => SendOp::LocalInv {
                rkey: self.inv_rkey(),
            },
            bindings::ib_wr_opcode_IB_WR_REG_MR => {
                // SAFETY: Requests with this opcode are in an `ib_reg_wr`, at offset 0.
                let wr = unsafe { &*(&raw const *self.raw).cast::<ib_reg_wr>() };
                if wr.mr.is_null() {
                    return SendOp::Other;
                }
                SendOp::RegMr {
                    // SAFETY: The consumer names a region of this device, and may not deregister
                    // it before the request has completed.
                    mr: unsafe { Mr::from_raw(wr.mr) },
                    key: wr.key,
                    access: wr.access as u32,
                }
            }
            _ => SendOp::Other,
        }
    }

    /// Gathers the payload of a request with [`send_flags::INLINE`] into `dst`, and returns its
    /// length in bytes. Fails with `EINVAL` if it does not fit, or if the request is another one.
    pub fn copy_inline(&self, dst: &mut [u8]) -> Result<usize> {
        if self.flags() & send_flags::INLINE == 0 {
            return Err(EINVAL);
        }
        let mut used = 0usize;
        for sge in self.sges() {
            let end = used.checked_add(sge.len as usize).ok_or(EINVAL)?;
            let dst = dst.get_mut(used..end).ok_or(EINVAL)?;
            if !dst.is_empty() {
                let src = sge.addr as usize as *const u8;
                if src.is_null() {
                    return Err(EFAULT);
                }
                // SAFETY: A device without DMA gets kernel virtual addresses (`ib_verbs.h`,
                // `ib_uses_virt_dma`); inline payload is the consumer's during the call.
                unsafe { core::ptr::copy_nonoverlapping(src, dst.as_mut_ptr(), dst.len()) };
            }
            used = end;
        }
        Ok(used)
    }
}

/// A list of receive work requests.
///
/// # Invariants
///
/// `next` and `last` are null or requests of a list that is valid during `'a`.
pub struct RecvWrs<'a> {
    next: *const ib_recv_wr,
    last: *const ib_recv_wr,
    _p: PhantomData<&'a ib_recv_wr>,
}

impl<'a> RecvWrs<'a> {
    /// # Safety
    ///
    /// `first` is null or the first of a list of requests, valid and unchanged during `'a`.
    pub(super) unsafe fn from_raw(first: *const ib_recv_wr) -> Self {
        // INVARIANT: By the requirements of this function.
        Self {
            next: first,
            last: first,
            _p: PhantomData,
        }
    }

    pub(super) fn bad(&self) -> *const ib_recv_wr {
        self.last
    }
}

impl<'a> Iterator for RecvWrs<'a> {
    type Item = RecvWr<'a>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.next.is_null() {
            return None;
        }
        // INVARIANT: Both are requests of the list.
        self.last = self.next;
        // SAFETY: Valid by the type invariants.
        let raw = unsafe { &*self.last };
        self.next = raw.next;
        Some(RecvWr { raw })
    }
}

/// A receive work request.
pub struct RecvWr<'a> {
    raw: &'a ib_recv_wr,
}

impl<'a> RecvWr<'a> {
    /// The consumer's name of the request.
    pub fn wr_id(&self) -> u64 {
        // SAFETY: Of either member any bit pattern is a valid integer.
        unsafe { self.raw.__bindgen_anon_1.wr_id }
    }

    /// The buffers.
    pub fn sges(&self) -> &'a [Sge] {
        // SAFETY: The consumer's list is valid as long as the request.
        unsafe { sges(self.raw.sg_list, self.raw.num_sge) }
    }
}
