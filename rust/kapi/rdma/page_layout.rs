// SPDX-License-Identifier: GPL-2.0

//! Address translation: in which page of a region a byte lies.
//!
//! Nothing here needs a kernel: the host tests of `rust/iwarp` include this file.

/// The layout of a region in its pages, which have one size. The region may begin anywhere in the
/// first page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PageLayout {
    shift: u32,
    /// The size of a page in bytes, minus one.
    mask: u64,
    first: u64,
}

/// The position of a byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    /// The page, counted from the region's first.
    pub(crate) page: usize,
    /// The byte in the page.
    pub(crate) within: usize,
    /// Bytes from there to the end of the page; not 0.
    pub(crate) room: usize,
}

impl PageLayout {
    /// Pages of `1 << shift` bytes; the region begins where `addr` is in its page. `None` if a page
    /// would have 2^64 bytes or more.
    #[inline]
    pub(crate) const fn new(shift: u32, addr: u64) -> Option<Self> {
        match 1u64.checked_shl(shift) {
            Some(size) => {
                let mask = size.wrapping_sub(1);
                Some(Self {
                    shift,
                    mask,
                    first: addr & mask,
                })
            }
            None => None,
        }
    }

    const fn size(&self) -> u64 {
        self.mask.wrapping_add(1)
    }

    /// The number of pages that `len` bytes take; `None` if it does not fit 64 bits.
    #[inline]
    pub(crate) fn pages(&self, len: u64) -> Option<u64> {
        Some(self.first.checked_add(len)?.div_ceil(self.size()))
    }

    /// The number of bytes of a region that `pages` pages hold.
    #[inline]
    pub(crate) fn capacity(&self, pages: u64) -> u64 {
        pages.saturating_mul(self.size()).saturating_sub(self.first)
    }

    /// The position of the byte at `offset` of the region; `None` if it does not fit 64 bits.
    #[inline]
    pub(crate) fn locate(&self, offset: u64) -> Option<Place> {
        let at = self.first.checked_add(offset)?;
        let within = at & self.mask;
        Some(Place {
            page: usize::try_from(at.checked_shr(self.shift)?).ok()?,
            within: usize::try_from(within).ok()?,
            room: usize::try_from(self.size().wrapping_sub(within)).ok()?,
        })
    }
}
