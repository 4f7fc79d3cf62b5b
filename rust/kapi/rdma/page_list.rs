// SPDX-License-Identifier: GPL-2.0

//! Memory of kernel consumers that work requests register.

use core::ptr::NonNull;

use kernel::{
    ffi,
    prelude::*, //
};

use super::{
    att::{
        Att,
        Translation, //
    },
    mr::MrBase,
    page_layout::{
        find_piece,
        PageLayout,
        Runs, //
    }, //
};
use crate::kapi::bindings::{
    self,
    ib_mr,
    scatterlist, //
};

/// A consumer's list of buffers, to be mapped to a region.
///
/// # Invariants
///
/// The pointers are those of a `map_mr_sg` call that is being executed. What they describe is
/// mapped in the kernel as long as it may be registered: until the region is invalidated or
/// deregistered.
pub(crate) struct SgList<'a> {
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

    /// Where in the first element the memory begins.
    fn offset(&self) -> u64 {
        if self.offset.is_null() {
            return 0;
        }
        // SAFETY: Valid by the type invariants.
        unsafe { *self.offset }.into()
    }

    /// Says where in the first element that was not mapped the rest begins.
    fn set_offset(&self, offset: u32) {
        if !self.offset.is_null() {
            // SAFETY: Valid by the type invariants.
            unsafe { *self.offset = offset };
        }
    }
}

/// What a [`PageList`] has in its table.
#[derive(Clone, Copy)]
enum Mapped {
    Nothing,
    /// The addresses of so many pages.
    Pages(PageLayout, usize),
    /// So many pieces, for each the offset where it begins, and its address.
    Pieces(usize),
}

/// Memory of the kernel, as a region made by `alloc_mr` has it.
///
/// It belongs to the consumer. Code that revokes access to it must not use the list until the
/// consumer registers it again.
///
/// # Invariants
///
/// `len` bytes of what `mapped` describes are what a consumer mapped, and has not asked back if the
/// list is the one of a valid region. The pieces begin one behind the other, the first at 0.
pub(crate) struct PageList {
    att: Att,
    /// Whether it has pieces of any length.
    gaps: bool,
    mapped: Mapped,
    len: u64,
}

impl PageList {
    /// An empty list with room for `max` pages; if `gaps`, for so many pieces of any length and
    /// alignment. May sleep.
    pub(crate) fn new(max: usize, gaps: bool) -> Result<Self> {
        let entries = if gaps { 2 } else { 1 };
        let entries = max.checked_mul(entries).ok_or(EINVAL)?;
        Ok(Self {
            att: Att::new(entries, GFP_KERNEL_ACCOUNT)?,
            gaps,
            mapped: Mapped::Nothing,
            len: 0,
        })
    }

    /// The number of bytes that the list has room for, with the pages that it has now.
    pub(crate) fn max_len(&self) -> u64 {
        match self.mapped {
            Mapped::Pages(layout, _) => layout.size().saturating_mul(self.att.len() as u64),
            Mapped::Nothing | Mapped::Pieces(_) => u64::MAX,
        }
    }

    /// The number of bytes.
    pub(crate) fn len(&self) -> u64 {
        self.len
    }

    /// How addresses are translated.
    pub(crate) fn translation(&self) -> Translation {
        let page_size = match self.mapped {
            Mapped::Pages(layout, _) => layout.size(),
            Mapped::Nothing | Mapped::Pieces(_) => 0,
        };
        Translation {
            order: self.att.order(),
            page_size,
        }
    }

    /// Replaces the list by what the consumer wants to map, and returns how many of its buffers
    /// that is. Sets `iova` and `length` of the region. Any context.
    pub(crate) fn fill(&mut self, sg: SgList<'_>) -> Result<usize> {
        self.forget();
        if self.gaps {
            self.fill_pieces(&sg)
        } else {
            self.fill_pages(&sg)
        }
    }

    fn fill_pages(&mut self, sg: &SgList<'_>) -> Result<usize> {
        let page_size = sg.mr.page_size();
        if !page_size.is_power_of_two() {
            return Err(EINVAL);
        }
        let layout = PageLayout::new(page_size.trailing_zeros(), 0).ok_or(EINVAL)?;
        self.mapped = Mapped::Pages(layout, 0);
        let mr = sg.mr.as_raw();
        sg.mr.begin_sink(&raw mut *self);
        // SAFETY: The list is valid by the type invariants; `set_page` finds this list.
        let ret =
            unsafe { bindings::ib_sg_to_pages(mr, sg.sg, sg.nents, sg.offset, Some(set_page)) };
        sg.mr.end_sink();
        let mapped = usize::try_from(ret).map_err(|_| Error::from_errno(ret))?;

        let Mapped::Pages(_, pages) = self.mapped else {
            return Err(EINVAL);
        };
        let layout = PageLayout::new(page_size.trailing_zeros(), sg.mr.iova()).ok_or(EINVAL)?;
        self.mapped = Mapped::Pages(layout, pages);
        // INVARIANT: Not more than there are pages.
        self.len = sg.mr.len().min(layout.capacity(pages as u64));
        Ok(mapped)
    }

    /// Adds the address of a page.
    fn push(&mut self, page: u64) -> Result {
        let Mapped::Pages(_, pages) = &mut self.mapped else {
            return Err(EINVAL);
        };
        self.att.set(*pages, page)?;
        *pages = pages.saturating_add(1);
        Ok(())
    }

    fn fill_pieces(&mut self, sg: &SgList<'_>) -> Result<usize> {
        let mut offset = sg.offset();
        let mut next = sg.sg;
        let mut used = 0usize;
        let mut runs = Runs::default();
        let mut mapped = 0usize;
        for _ in 0..sg.nents {
            if next.is_null() {
                break;
            }
            let (mut addr, mut len) = (0, 0);
            // SAFETY: An element of the list, which is valid by the type invariants.
            next = unsafe { bindings::kapi_sg_next(next, &mut addr, &mut len) };
            let len = len.checked_sub(offset).ok_or(EINVAL)?;
            let addr = addr.wrapping_add(offset);
            offset = 0;
            if mapped == 0 {
                sg.mr.set_iova(addr);
            }
            // What continues the last piece is part of it.
            if len != 0 && !runs.is_continued(addr) {
                let entry = used.saturating_mul(2);
                if self.att.set(entry.saturating_add(1), addr).is_err() {
                    break;
                }
                self.att.set(entry, runs.len())?;
                used = used.saturating_add(1);
            }
            if len != 0 {
                runs.add(addr, len);
            }
            mapped = mapped.saturating_add(1);
        }
        if mapped == 0 {
            return Err(EINVAL);
        }
        sg.mr.set_len(runs.len());
        sg.set_offset(0);
        self.mapped = Mapped::Pieces(used);
        // INVARIANT: So much the pieces have.
        self.len = runs.len();
        Ok(mapped)
    }

    /// Gives the memory back: the list gives access to nothing any more. Any context.
    fn forget(&mut self) {
        self.mapped = Mapped::Nothing;
        // INVARIANT: Empty.
        self.len = 0;
    }

    /// The address of the byte at `offset`, which is less than `len`, and the number of bytes from
    /// it to the end of its page or piece.
    pub(super) fn locate(&self, offset: u64) -> Option<(NonNull<u8>, usize)> {
        let (start, within, room) = match self.mapped {
            Mapped::Nothing => return None,
            Mapped::Pages(layout, _) => {
                let place = layout.locate(offset)?;
                (self.att.get(place.page)?, place.within as u64, place.room)
            }
            Mapped::Pieces(count) => {
                let start = |piece: usize| self.att.get(piece.checked_mul(2)?);
                let piece = find_piece(count, offset, start)?;
                let addr = self.att.get(piece.checked_mul(2)?.checked_add(1)?)?;
                let end = match piece.checked_add(1)? {
                    next if next < count => start(next)?,
                    _ => self.len,
                };
                let room = usize::try_from(end.checked_sub(offset)?).ok()?;
                (addr, offset.checked_sub(start(piece)?)?, room)
            }
        };
        let addr = start.checked_add(within)?;
        Some((NonNull::new(addr as usize as *mut u8)?, room))
    }
}

/// Adds a page to the list that [`PageList::fill`] is filling.
///
/// # Safety
///
/// Called by `ib_sg_to_pages` as that function called it.
unsafe extern "C" fn set_page(mr: *mut ib_mr, page: u64) -> ffi::c_int {
    // SAFETY: `ib_mr` is at the beginning of the base of our regions.
    let base = unsafe { MrBase::from_raw(mr) };
    // SAFETY: `fill` set it, borrows it and waits for this call.
    let list = unsafe { &mut *base.sink() };
    match list.push(page) {
        Ok(()) => 0,
        Err(e) => e.to_errno(),
    }
}
