// SPDX-License-Identifier: GPL-2.0

//! Address translation: in which page of a region a byte lies, and where the page's address is
//! kept.
//!
//! Nothing here needs a kernel: the host tests of `rust/iwarp` include this file.

/// The layout of a region in its pages, which have one size. The region may begin anywhere in the
/// first page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PageLayout {
    shift: u32,
    /// The size of a page in bytes, minus one.
    mask: u64,
    first: u64,
}

/// The position of a byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    /// The page, counted from the region's first.
    pub page: usize,
    /// The byte in the page.
    pub within: usize,
    /// Bytes from there to the end of the page; not 0.
    pub room: usize,
}

impl PageLayout {
    /// Pages of `1 << shift` bytes; the region begins where `addr` is in its page. `None` if a page
    /// would have 2^64 bytes or more.
    #[inline]
    pub(super) const fn new(shift: u32, addr: u64) -> Option<Self> {
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

    /// The size of a page in bytes.
    pub(super) const fn size(&self) -> u64 {
        self.mask.wrapping_add(1)
    }

    /// The number of pages that `len` bytes take; `None` if it does not fit 64 bits.
    #[inline]
    pub(super) fn pages(&self, len: u64) -> Option<u64> {
        Some(self.first.checked_add(len)?.div_ceil(self.size()))
    }

    /// The number of bytes of a region that `pages` pages hold.
    #[inline]
    pub(super) fn capacity(&self, pages: u64) -> u64 {
        pages.saturating_mul(self.size()).saturating_sub(self.first)
    }

    /// The position of the byte at `offset` of the region; `None` if it does not fit 64 bits.
    #[inline]
    pub(super) fn locate(&self, offset: u64) -> Option<Place> {
        let at = self.first.checked_add(offset)?;
        let within = at & self.mask;
        Some(Place {
            // A page has fewer than 2^64 bytes.
            page: usize::try_from(at.wrapping_shr(self.shift)).ok()?,
            within: usize::try_from(within).ok()?,
            room: usize::try_from(self.size().wrapping_sub(within)).ok()?,
        })
    }
}

impl PageLayout {
    /// The layout of `len` bytes that are contiguous: one page has all of them. `None` for 2^63
    /// bytes or more.
    pub(super) const fn whole(len: u64) -> Option<Self> {
        Self::new(u64::BITS.saturating_sub(len.leading_zeros()), 0)
    }

    /// The pages that begin in a run of contiguous bytes, by number and address. The run is the
    /// `len` bytes of the region from `offset` on, and is at `addr`. The first page begins in the
    /// first run, or before it.
    pub(super) fn starts(
        &self,
        offset: u64,
        addr: u64,
        len: u64,
    ) -> impl Iterator<Item = (usize, u64)> {
        let layout = *self;
        // Bytes from the beginning of the first page on.
        let at = self.first.saturating_add(offset);
        let end = at.saturating_add(len);
        let first = match offset {
            0 => Some(0),
            _ => at.checked_next_multiple_of(self.size()),
        };
        core::iter::successors(first, move |start| start.checked_add(layout.size()))
            .take_while(move |start| *start < end)
            .map_while(move |start| {
                let page = usize::try_from(start.checked_shr(layout.shift)?).ok()?;
                Some((page, addr.wrapping_add(start.wrapping_sub(at))))
            })
    }
}

const PAGE_SHIFT: u32 = 12;

/// What is known of memory that comes in runs of contiguous bytes, one after the other.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Runs {
    /// The address of the first byte.
    start: u64,
    /// The address behind the last one.
    end: u64,
    len: u64,
    /// All addresses where a run ends and another one begins, by `or`: a page ends there, too.
    borders: u64,
}

impl Runs {
    /// Adds a run of `len` bytes at `addr`, which may continue the last one.
    pub(super) fn add(&mut self, addr: u64, len: u64) {
        if self.len == 0 {
            self.start = addr;
        } else if self.end != addr {
            self.borders |= self.end | addr;
        }
        self.end = addr.wrapping_add(len);
        self.len = self.len.saturating_add(len);
    }

    /// Whether a run at `addr` continues the last one.
    pub(super) fn is_continued(&self, addr: u64) -> bool {
        self.len != 0 && self.end == addr
    }

    /// The number of bytes so far.
    pub(super) fn len(&self) -> u64 {
        self.len
    }

    /// The layout with the largest pages of up to `1 << max` bytes that all runs consist of. The
    /// first page may begin before the first byte and the last one may end behind the last. A
    /// page of more than 4 KiB is not larger than it takes to be the only one.
    pub(super) fn layout(&self, max: u32) -> Option<PageLayout> {
        let last = self.end.wrapping_sub(1);
        let differ = u64::BITS.saturating_sub((self.start ^ last).leading_zeros());
        let shift = match self.borders {
            0 => differ.max(PAGE_SHIFT),
            borders => borders.trailing_zeros(),
        };
        PageLayout::new(shift.min(max), self.start)
    }
}

/// The number of entries of a list that fills a page of memory.
pub(super) const LIST: usize = 512;

/// How a table of entries is divided into lists of a page each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// One list of entries.
    Direct,
    /// A list of such lists.
    First,
    /// A list of lists of such lists. Beyond `LIST` to the third power the first one is longer than
    /// a page.
    Second,
}

impl Order {
    /// The lowest order that has room for so many entries.
    pub(super) const fn of(entries: usize) -> Self {
        if entries <= LIST {
            Self::Direct
        } else if entries <= LIST * LIST {
            Self::First
        } else {
            Self::Second
        }
    }
}

/// The list in which entry `index` is, and its place there.
#[inline]
pub(super) const fn split(index: usize) -> (usize, usize) {
    (index / LIST, index % LIST)
}

/// The last of `count` pieces that begins at `offset` or before, if the first does. `start` tells
/// where a piece begins; each begins behind the one before.
pub(super) fn find_piece(
    count: usize,
    offset: u64,
    start: impl Fn(usize) -> Option<u64>,
) -> Option<usize> {
    let (mut low, mut high) = (0usize, count);
    // Those in front of `low` begin at `offset` or before, those from `high` on behind it.
    while low < high {
        let mid = low.midpoint(high);
        if start(mid)? <= offset {
            low = mid.checked_add(1)?;
        } else {
            high = mid;
        }
    }
    low.checked_sub(1)
}
