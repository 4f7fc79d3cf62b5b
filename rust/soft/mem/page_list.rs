// SPDX-License-Identifier: GPL-2.0

//! Memory of kernel consumers that work requests register.

use core::ptr::NonNull;

use kernel::prelude::*;

use crate::mem::{
    att::{
        Att,
        Translation, //
    },
    page_layout::{
        find_piece,
        PageLayout,
        Runs, //
    }, //
};
use rdma::mr::SgList;

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
pub struct PageList {
    att: Att,
    /// Whether it has pieces of any length.
    gaps: bool,
    mapped: Mapped,
    len: u64,
}

impl PageList {
    /// An empty list with room for `max` pages; if `gaps`, for so many pieces of any length and
    /// alignment. May sleep.
    pub fn new(max: usize, gaps: bool) -> Result<Self> {
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
    pub fn max_len(&self) -> u64 {
        match self.mapped {
            Mapped::Pages(layout, _) => layout.size().saturating_mul(self.att.len() as u64),
            Mapped::Nothing | Mapped::Pieces(_) => u64::MAX,
        }
    }

    /// The number of bytes.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// How addresses are translated.
    pub fn translation(&self) -> Translation {
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
    pub fn fill(&mut self, mut sg: SgList<'_>) -> Result<usize> {
        self.forget();
        if self.gaps {
            self.fill_pieces(&sg)
        } else {
            self.fill_pages(&mut sg)
        }
    }

    fn fill_pages(&mut self, sg: &mut SgList<'_>) -> Result<usize> {
        let shift = sg.page_shift().ok_or(EINVAL)?;
        let layout = PageLayout::new(shift, 0).ok_or(EINVAL)?;
        self.mapped = Mapped::Pages(layout, 0);
        let mapped = sg.map_pages(&mut |page| self.push(page))?;
        let Mapped::Pages(_, pages) = self.mapped else {
            return Err(EINVAL);
        };
        let layout = PageLayout::new(shift, sg.iova()).ok_or(EINVAL)?;
        self.mapped = Mapped::Pages(layout, pages);
        // INVARIANT: Not more than there are pages.
        self.len = sg.size().min(layout.capacity(pages as u64));
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
        let mut used = 0usize;
        let mut runs = Runs::default();
        let mut mapped = 0usize;
        let mut iova = None;
        for element in sg.elements() {
            let (addr, len) = element?;
            let iova = *iova.get_or_insert(addr);
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
            sg.set_mapped(iova, runs.len());
        }
        if mapped == 0 {
            return Err(EINVAL);
        }
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
