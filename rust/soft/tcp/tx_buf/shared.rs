// SPDX-License-Identifier: GPL-2.0

//! Bytes that TCP gets by reference.

use crate::tcp::mark::Marker;
use base::bindings;
use kernel::{
    alloc::flags::{
        GFP_ATOMIC,
        __GFP_NOWARN, //
    },
    page::PAGE_SIZE,
    prelude::*, //
};

/// Bytes in pages of others, to be sent by reference.
///
/// # Invariants
///
/// Each element of `runs` describes a part of a page, which it has a reference of. All in front of
/// `first` is with TCP, and has none any more. There is room for `MAX` elements, or none.
pub(super) struct Shared {
    pub(super) runs: KVec<bindings::bio_vec>,
    first: usize,
    /// The mark of all of them.
    pub(super) marker: Option<Marker>,
    /// The message is complete.
    pub(super) complete: bool,
}

impl Shared {
    const MAX: usize = 128;

    pub(super) const fn new() -> Self {
        Self {
            runs: KVec::new(),
            first: 0,
            marker: None,
            complete: false,
        }
    }

    /// Makes room for `n` runs.
    pub(super) fn make_room(&mut self, n: usize) -> bool {
        if self.runs.capacity() == 0 {
            match KVec::with_capacity(Self::MAX, GFP_ATOMIC | __GFP_NOWARN) {
                Ok(runs) => self.runs = runs,
                Err(_) => return false,
            }
        }
        let left = self.first..self.runs.len();
        if self.first != 0 && self.runs.spare_capacity_mut().len() < n {
            let count = left.len();
            self.runs.copy_within(left, 0);
            // INVARIANT: Those that are with TCP are forgotten.
            self.runs.truncate(count);
            self.first = 0;
        }
        self.runs.spare_capacity_mut().len() >= n
    }

    /// Appends `len` bytes at `addr`. Returns whether there was room.
    ///
    /// # Safety
    ///
    /// They must be in one allocation of pages that are in the kernel's linear mapping, not of the
    /// slab allocator, and referenced by somebody now.
    pub(super) unsafe fn push(&mut self, addr: *const u8, len: usize) -> bool {
        if self.runs.spare_capacity_mut().is_empty() {
            return false;
        }
        // SAFETY: By the contract of this function.
        let page = unsafe { bindings::get_page_of(addr.cast()) };
        let run = bindings::bio_vec {
            bv_page: page,
            bv_len: len as u32,
            bv_offset: (addr as usize % PAGE_SIZE) as u32,
        };
        // INVARIANT: With the reference just taken.
        self.runs.push_within_capacity(run).is_ok()
    }

    /// Removes all runs but the first `len`.
    pub(super) fn cut(&mut self, len: usize) {
        while self.runs.len() > len.max(self.first) {
            if let Some(run) = self.runs.pop() {
                // SAFETY: Its reference is ours by the type invariants.
                unsafe { bindings::put_page(run.bv_page) };
            }
        }
    }

    pub(super) fn pending(&self) -> &[bindings::bio_vec] {
        self.runs.get(self.first..).unwrap_or(&[])
    }

    pub(super) fn consume(&mut self, mut len: usize) {
        while let Some(run) = self.runs.get_mut(self.first) {
            let taken = len.min(run.bv_len as usize);
            len -= taken;
            run.bv_offset += taken as u32;
            run.bv_len -= taken as u32;
            if run.bv_len != 0 {
                return;
            }
            // SAFETY: Our reference by the type invariants; TCP has its own.
            unsafe { bindings::put_page(run.bv_page) };
            // INVARIANT: That one has none any more.
            self.first += 1;
        }
        self.runs.clear();
        self.first = 0;
        self.end();
    }

    /// Drops the mark if TCP has all bytes of the message.
    pub(super) fn end(&mut self) {
        if self.complete && self.runs.is_empty() {
            self.marker = None;
        }
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.cut(0);
    }
}
