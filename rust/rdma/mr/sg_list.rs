// SPDX-License-Identifier: GPL-2.0

//! Lists of buffers that kernel consumers map to regions (`ib_map_mr_sg()`).

use core::marker::PhantomData;

use kernel::{
    ffi,
    prelude::*, //
};

use crate::mr::common::{
    MrBase,
    Sink, //
};
use base::bindings::{
    self,
    ib_mr,
    scatterlist, //
};

/// A consumer's list of buffers, to be mapped to a region.
///
/// # Invariants
///
/// The pointers are those of a `map_mr_sg` call that is being executed. The memory that the list
/// describes stays mapped in the kernel until the region is invalidated or deregistered.
pub struct SgList<'a> {
    mr: &'a MrBase,
    sg: *mut scatterlist,
    nents: i32,
    offset: *mut u32,
}

impl<'a> SgList<'a> {
    /// # Safety
    ///
    /// The pointers are those of a `map_mr_sg` call for `mr` that lasts during `'a`. The consumer
    /// keeps the memory as the type invariants say.
    pub(super) unsafe fn from_raw(
        mr: &'a MrBase,
        sg: *mut scatterlist,
        nents: i32,
        offset: *mut u32,
    ) -> Self {
        // INVARIANT: By the requirements of this function.
        Self {
            mr,
            sg,
            nents,
            offset,
        }
    }

    /// log2 of the size in bytes of the pages that the consumer wants; `None` if that is no power
    /// of two.
    pub fn page_shift(&self) -> Option<u32> {
        let size = self.mr.page_size();
        size.is_power_of_two().then(|| size.trailing_zeros())
    }

    /// The address of the first byte in work requests, as the last call of [`Self::map_pages`] or
    /// [`Self::set_mapped`] has set it.
    pub fn iova(&self) -> u64 {
        self.mr.iova()
    }

    /// The number of bytes mapped, as [`Self::iova`].
    pub fn size(&self) -> u64 {
        self.mr.len()
    }

    /// Calls `push` with the address of each page of the list, until it fails. Sets the address and
    /// the length of the region. Returns the number of elements that were mapped. Any context.
    pub fn map_pages(&mut self, mut push: Sink<'_>) -> Result<usize> {
        let mr = self.mr.as_raw();
        self.mr.begin_sink(&raw mut push);
        // SAFETY: The list is valid by the type invariants; `set_page` finds `push`.
        let ret = unsafe {
            bindings::ib_sg_to_pages(mr, self.sg, self.nents, self.offset, Some(set_page))
        };
        self.mr.end_sink();
        usize::try_from(ret).map_err(|_| Error::from_errno(ret))
    }

    /// The elements of the list, each with its address and its length in bytes. The first one
    /// begins where the consumer says.
    ///
    /// Fails with `EINVAL` if that is behind its end.
    pub fn elements(&self) -> Elements<'_> {
        let skip = match self.offset.is_null() {
            true => 0,
            // SAFETY: Valid by the type invariants.
            false => unsafe { *self.offset },
        };
        // INVARIANT: By the type invariants of the list.
        Elements {
            next: self.sg,
            left: self.nents,
            skip: skip.into(),
            _p: PhantomData,
        }
    }

    /// Sets the address and the length of the region: whole elements were mapped.
    pub fn set_mapped(&self, iova: u64, len: u64) {
        self.mr.set_iova(iova);
        self.mr.set_len(len);
        if !self.offset.is_null() {
            // SAFETY: Valid by the type invariants.
            unsafe { *self.offset = 0 };
        }
    }
}

/// The elements of a [`SgList`].
///
/// # Invariants
///
/// `next` is null or an element of a list that stays during `'a`.
pub struct Elements<'a> {
    next: *mut scatterlist,
    left: i32,
    skip: u64,
    _p: PhantomData<&'a SgList<'a>>,
}

impl Iterator for Elements<'_> {
    type Item = Result<(u64, u64)>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.left <= 0 || self.next.is_null() {
            return None;
        }
        self.left -= 1;
        let (mut addr, mut len) = (0, 0);
        // SAFETY: An element by the type invariants.
        // INVARIANT: The element behind it, or null.
        self.next = unsafe { bindings::sg_next_dma(self.next, &mut addr, &mut len) };
        let skip = core::mem::take(&mut self.skip);
        let element = len.checked_sub(skip).ok_or(EINVAL);
        Some(element.map(|len| (addr.wrapping_add(skip), len)))
    }
}

/// Gives a page to the sink of [`SgList::map_pages`].
///
/// # Safety
///
/// Called by `ib_sg_to_pages` as that function called it.
unsafe extern "C" fn set_page(mr: *mut ib_mr, page: u64) -> ffi::c_int {
    // SAFETY: `ib_mr` is at the beginning of the base of our regions.
    let base = unsafe { MrBase::from_raw(mr) };
    // SAFETY: `map_pages` set it, and waits for this call. It has borrowed the list exclusively, so
    // `push` cannot make another such call.
    let push = unsafe { &mut *base.sink() };
    match push(page) {
        Ok(()) => 0,
        Err(e) => e.to_errno(),
    }
}
