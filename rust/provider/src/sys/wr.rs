// SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause

//! Work requests, as programs post them.

use super::{
    bindings::{
        ibv_recv_wr,
        ibv_send_wr, //
    },
    errno::Errno, //
};
use core::{
    marker::PhantomData,
    ptr::copy_nonoverlapping,
    slice, //
};

pub(crate) use super::bindings::ibv_sge as Sge;

/// A work request of a list.
pub(crate) trait Linked {
    /// The one after it, or null.
    fn next(&self) -> *mut Self;
}

impl Linked for ibv_send_wr {
    fn next(&self) -> *mut Self {
        self.next
    }
}

impl Linked for ibv_recv_wr {
    fn next(&self) -> *mut Self {
        self.next
    }
}

/// The list of work requests that one call posts, and how far it has come.
///
/// # Invariants
///
/// `head` and `at` are of a list of valid work requests, which ends with null.
pub(crate) struct Wrs<'a, T> {
    head: *mut T,
    at: *mut T,
    _p: PhantomData<&'a T>,
}

impl<'a, T: Linked> Wrs<'a, T> {
    /// # Safety
    ///
    /// `head` is a list of work requests, or null, that are valid and do not change during the
    /// lifetime. So are the lists of their elements.
    pub(super) unsafe fn new(head: *mut T) -> Self {
        // INVARIANT: By the requirements of this function.
        Self {
            head,
            at: head,
            _p: PhantomData,
        }
    }

    /// The one that is to be posted next.
    fn peek(&self) -> Option<&'a T> {
        // SAFETY: Valid, or null, by the type invariants.
        unsafe { self.at.as_ref() }
    }

    /// Goes on to the next one.
    pub(crate) fn step(&mut self) {
        if let Some(wr) = self.peek() {
            self.at = wr.next();
        }
    }

    /// Goes back to the one after the first `done`.
    pub(crate) fn rewind(&mut self, done: u32) {
        self.at = self.head;
        for _ in 0..done {
            self.step();
        }
    }

    /// The first one that is not posted, or null.
    pub(super) fn rest(&self) -> *mut T {
        self.at
    }
}

impl<'a> Wrs<'a, ibv_send_wr> {
    /// The one that is to be posted next.
    pub(crate) fn current(&self) -> Option<SendWr<'a>> {
        self.peek().map(SendWr)
    }
}

impl<'a> Wrs<'a, ibv_recv_wr> {
    /// The one that is to be posted next.
    pub(crate) fn current(&self) -> Option<RecvWr<'a>> {
        self.peek().map(RecvWr)
    }
}

/// Send work requests of one call.
pub(crate) type SendWrs<'a> = Wrs<'a, ibv_send_wr>;
/// Receive work requests of one call.
pub(crate) type RecvWrs<'a> = Wrs<'a, ibv_recv_wr>;

/// A list of elements; `EINVAL` if there cannot be one.
///
/// # Safety
///
/// `list` has `num` elements during the lifetime, unless one of the two says that there is no list.
unsafe fn list<'a>(list: *mut Sge, num: i32) -> Result<&'a [Sge], Errno> {
    let num = usize::try_from(num).map_err(|_| Errno::EINVAL)?;
    if num == 0 {
        return Ok(&[]);
    }
    if list.is_null() {
        return Err(Errno::EINVAL);
    }
    // SAFETY: By the requirements of this function.
    Ok(unsafe { slice::from_raw_parts(list, num) })
}

/// A receive work request: `struct ibv_recv_wr`.
pub(crate) struct RecvWr<'a>(&'a ibv_recv_wr);

impl<'a> RecvWr<'a> {
    /// The number that the program gave it.
    pub(crate) fn id(&self) -> u64 {
        self.0.wr_id
    }

    /// Where the message goes; `EINVAL` if the list makes no sense.
    pub(crate) fn sges(&self) -> Result<&'a [Sge], Errno> {
        // SAFETY: The list is valid, see `Wrs::new`.
        unsafe { list(self.0.sg_list, self.0.num_sge) }
    }
}

/// The bind of a window.
#[derive(Clone, Copy)]
pub(crate) struct Bind {
    /// The key that the window gets: its index, and eight bits of the program's choice.
    pub(crate) rkey: u32,
    /// The key of the region; 0 if the window is to be unbound.
    pub(crate) region: u32,
    /// The address of the first byte.
    pub(crate) addr: u64,
    /// The number of bytes; 0: unbind.
    pub(crate) length: u64,
    /// The rights of the window: flags of `enum ibv_access_flags`.
    pub(crate) access: u32,
}

/// A send work request: `struct ibv_send_wr`.
pub(crate) struct SendWr<'a>(&'a ibv_send_wr);

impl<'a> SendWr<'a> {
    /// # Safety
    ///
    /// The work request is valid, and so is the list of its elements.
    pub(super) unsafe fn new(wr: &'a ibv_send_wr) -> Self {
        Self(wr)
    }

    /// The number that the program gave it.
    pub(crate) fn id(&self) -> u64 {
        self.0.wr_id
    }

    /// `enum ibv_wr_opcode`.
    pub(crate) fn opcode(&self) -> u32 {
        self.0.opcode
    }

    /// Flags of `enum ibv_send_flags`.
    pub(crate) fn flags(&self) -> u32 {
        self.0.send_flags
    }

    /// Local memory; `EINVAL` if the list makes no sense.
    pub(crate) fn sges(&self) -> Result<&'a [Sge], Errno> {
        // SAFETY: The list is valid, see `Wrs::new`.
        unsafe { list(self.0.sg_list, self.0.num_sge) }
    }

    /// The address and the key at the peer, for a Write or a Read.
    pub(crate) fn remote(&self) -> (u64, u32) {
        // SAFETY: Any bytes are valid for these numbers. A program sets them for these operations.
        let rdma = unsafe { self.0.wr.rdma };
        (rdma.remote_addr, rdma.rkey)
    }

    /// The key that a Send with Invalidate gives to the peer.
    pub(crate) fn invalidate_rkey(&self) -> u32 {
        // SAFETY: Any bytes are valid for this number. A program sets it for this operation.
        unsafe { self.0.__bindgen_anon_1.invalidate_rkey }
    }

    /// The immediate data, in the byte order in which the program gave it.
    pub(crate) fn immediate(&self) -> u32 {
        // SAFETY: Any bytes are valid for this number. A program sets it for these operations.
        unsafe { self.0.__bindgen_anon_1.imm_data }
    }

    /// The target of an atomic operation at the peer, as an address and a key.
    pub(crate) fn target(&self) -> (u64, u32) {
        // SAFETY: Any bytes are valid for these numbers. A program sets them for these operations.
        let atomic = unsafe { self.0.wr.atomic };
        (atomic.remote_addr, atomic.rkey)
    }

    /// The operands of an atomic operation: what to add or to compare with, and the new value.
    pub(crate) fn operands(&self) -> [u64; 2] {
        // SAFETY: Any bytes are valid for these numbers. A program sets them for these operations.
        let atomic = unsafe { self.0.wr.atomic };
        [atomic.compare_add, atomic.swap]
    }

    /// What a bind asks for. `EINVAL` if it names no window, or no region but some of its memory.
    pub(crate) fn bind(&self) -> Result<Bind, Errno> {
        const KEY: u32 = 0xff;
        // SAFETY: Any bytes are valid for these numbers and addresses. A program sets them for this
        // operation.
        let wr = unsafe { self.0.__bindgen_anon_2.bind_mw };
        // SAFETY: By the contract of `ibv_post_send` the window is valid, or null.
        let window = unsafe { wr.mw.as_ref() }.ok_or(Errno::EINVAL)?;
        let info = wr.bind_info;
        let region = if info.length == 0 {
            0
        } else {
            // SAFETY: By the contract of `ibv_post_send` the region is valid, or null.
            let mr = unsafe { info.mr.as_ref() };
            mr.ok_or(Errno::EINVAL)?.lkey
        };
        Ok(Bind {
            rkey: window.rkey & !KEY | wr.rkey & KEY,
            region,
            addr: info.addr,
            length: info.length,
            access: info.mw_access_flags,
        })
    }

    /// Copies the payload to the beginning of `to`, and returns its length. `EINVAL` if it is
    /// longer.
    pub(crate) fn copy_inline(&self, to: &mut [u8]) -> Result<usize, Errno> {
        let mut done: usize = 0;
        for sge in self.sges()? {
            let len = usize::try_from(sge.length).map_err(|_| Errno::EINVAL)?;
            let end = done.checked_add(len).ok_or(Errno::EINVAL)?;
            let piece = to.get_mut(done..end).ok_or(Errno::EINVAL)?;
            let from = core::ptr::with_exposed_provenance::<u8>(sge.addr as usize);
            // A null pointer may stand for nothing.
            if len != 0 {
                // SAFETY: By the contract of `ibv_post_send` the program can read that much there.
                // `piece` is as long, and is not the program's.
                unsafe { copy_nonoverlapping(from, piece.as_mut_ptr(), len) };
            }
            done = end;
        }
        Ok(done)
    }
}
