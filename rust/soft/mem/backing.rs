// SPDX-License-Identifier: GPL-2.0

//! The memory behind a region, and access to it.

use core::ptr::NonNull;

use kernel::{
    page::PAGE_SIZE,
    prelude::*,
    sync::{
        atomic::{
            Atomic,
            Full, //
        },
        Arc, //
    }, //
};

use crate::{
    mem::{
        att::Translation,
        odp::{
            Inside,
            OdpUmem, //
        },
        page_list::PageList,
        umem::Umem, //
    },
    tcp::{
        Skb,
        TxBuf, //
    }, //
};
use base::{
    bindings,
    crc32c::Crc32c,
    sync::AccessOnce, //
};
use rdma::DmaGrant;

/// Pages during an access.
enum Pages<'a> {
    Fixed(&'a Backing),
    Odp(Inside<'a>),
}

impl Pages<'_> {
    /// The address of the byte at `offset`, and the number of bytes from it to the end of its page.
    #[inline]
    fn locate(&self, offset: u64, write: bool) -> Result<(NonNull<u8>, usize)> {
        match self {
            Self::Fixed(backing) => backing.locate(offset).ok_or(EFAULT),
            Self::Odp(inside) => inside.locate(offset, write),
        }
    }
}

/// Calls `f` for each part of `len` bytes from `offset` on, see [`Backing::for_each`]. `locate`
/// finds the parts.
#[inline(always)]
fn walk(
    offset: u64,
    len: usize,
    locate: impl Fn(u64) -> Result<(NonNull<u8>, usize)>,
    mut f: impl FnMut(NonNull<u8>, usize, usize) -> Result,
) -> Result {
    let mut done = 0;
    while done < len {
        let (ptr, room) = locate(offset + done as u64)?;
        let part = room.min(len - done);
        f(ptr, part, done)?;
        done += part;
    }
    Ok(())
}

/// The memory behind a region.
pub enum Backing {
    /// Shared by a region and the windows that are bound to it.
    User(Arc<Umem>),
    /// The same, for memory whose pages come on demand.
    Odp(Arc<OdpUmem>),
    /// Pages that a consumer in the kernel has mapped.
    Pages(PageList),
    /// Offsets are addresses of the kernel.
    Dma(DmaGrant),
}

impl Backing {
    /// The number of bytes.
    pub fn size(&self) -> u64 {
        match self {
            Self::User(umem) => umem.len(),
            Self::Odp(umem) => umem.len(),
            Self::Pages(list) => list.len(),
            Self::Dma(_) => u64::MAX,
        }
    }

    /// The memory, if it is a program's, for another user of it.
    pub fn share_user(&self) -> Option<Self> {
        match self {
            Self::User(umem) => Some(Self::User(umem.clone())),
            Self::Odp(umem) => Some(Self::Odp(umem.clone())),
            Self::Pages(_) | Self::Dma(_) => None,
        }
    }

    /// How addresses are translated; `None` if they are not.
    pub fn translation(&self) -> Option<Translation> {
        match self {
            Self::User(umem) => umem.translation(),
            Self::Pages(list) => Some(list.translation()),
            Self::Odp(_) | Self::Dma(_) => None,
        }
    }

    /// The address of the first byte in the program; 0 for other memory.
    pub fn start(&self) -> u64 {
        match self {
            Self::User(umem) => umem.start(),
            Self::Odp(umem) => umem.start(),
            Self::Pages(_) | Self::Dma(_) => 0,
        }
    }

    /// Whether it is memory of the current process. Process context.
    pub fn is_of_current(&self) -> bool {
        match self {
            Self::User(umem) => umem.is_of_current(),
            Self::Odp(umem) => umem.is_of_current(),
            Self::Pages(_) | Self::Dma(_) => false,
        }
    }

    /// Whether it can be written to, as far as that is known before a page is there.
    pub fn is_writable(&self) -> bool {
        match self {
            Self::User(umem) => umem.is_writable(),
            _ => true,
        }
    }

    /// Keeps pages where they are during an access.
    #[inline]
    fn enter(&self) -> Pages<'_> {
        match self {
            Self::Odp(umem) => match umem.enter() {
                Some(inside) => Pages::Odp(inside),
                None => Pages::Fixed(self),
            },
            _ => Pages::Fixed(self),
        }
    }

    /// Whether [`Self::share`] is possible: for pinned memory of a program, because no contract
    /// covers other pages.
    pub fn can_share(&self) -> bool {
        matches!(self, Self::User(umem) if umem.has_pages())
    }

    /// The address of the byte at `offset`, and the number of bytes from it on that are contiguous.
    #[inline]
    fn locate(&self, offset: u64) -> Option<(NonNull<u8>, usize)> {
        match self {
            Self::User(umem) => umem.locate(offset),
            Self::Odp(_) => None,
            Self::Pages(list) => list.locate(offset),
            Self::Dma(_) => {
                let addr = usize::try_from(offset).ok()?;
                // SAFETY: No requirements. It keeps addresses out that no consumer can mean.
                let room = unsafe { bindings::direct_map_room(addr) };
                (room != 0).then_some((NonNull::new(addr as *mut u8)?, room))
            }
        }
    }

    /// Calls `f` for each contiguous part with its address, its length and how many bytes came
    /// before it. `EAGAIN`: a page is not there, or not to be written to; parts before it may have
    /// been done.
    fn for_each(
        &self,
        offset: u64,
        len: usize,
        write: bool,
        f: impl FnMut(NonNull<u8>, usize, usize) -> Result,
    ) -> Result {
        let end = offset.checked_add(len as u64).ok_or(EFAULT)?;
        if end > self.size() {
            return Err(EFAULT);
        }
        match self.enter() {
            Pages::Fixed(backing) => walk(
                offset,
                len,
                |offset| backing.locate(offset).ok_or(EFAULT),
                f,
            ),
            Pages::Odp(inside) => walk(offset, len, |offset| inside.locate(offset, write), f),
        }
    }

    /// Copies out of the memory, from `offset` on. Not from a hard interrupt.
    pub fn read(&self, offset: u64, dst: &mut [u8]) -> Result {
        let len = dst.len();
        let dst = dst.as_mut_ptr();
        self.for_each(offset, len, false, |src, part, done| {
            // SAFETY: `done + part` is at most `len`.
            let dst = unsafe { dst.add(done) };
            // SAFETY: `part` bytes from `src` on are pinned, kept or the consumer's, and mapped.
            // They may change meanwhile; then what is copied is the consumer's fault, as on the
            // wire. `dst` is borrowed from the driver's own memory, which is in no region.
            unsafe { core::ptr::copy_nonoverlapping(src.as_ptr(), dst, part) };
            Ok(())
        })
    }

    /// Copies `src` into the memory, from `offset` on. Not from a hard interrupt.
    pub fn write(&self, offset: u64, src: &[u8]) -> Result {
        let len = src.len();
        let src = src.as_ptr();
        self.for_each(offset, len, true, |dst, part, done| {
            // SAFETY: `done + part` is at most `len`.
            let src = unsafe { src.add(done) };
            // SAFETY: As in `read`, with the roles exchanged.
            unsafe { core::ptr::copy_nonoverlapping(src, dst.as_ptr(), part) };
            Ok(())
        })
    }

    /// The 64 bits at `offset`, for atomic access: of this driver and of programs. `None` if they
    /// are not aligned in memory. Not from a hard interrupt.
    fn word<'a>(&self, pages: &'a Pages<'_>, offset: u64) -> Result<Option<&'a Atomic<u64>>> {
        let len = size_of::<u64>();
        let end = offset.checked_add(len as u64).ok_or(EFAULT)?;
        if end > self.size() {
            return Err(EFAULT);
        }
        let (ptr, room) = pages.locate(offset, true)?;
        let ptr = ptr.cast::<u64>();
        if !ptr.is_aligned() {
            return Ok(None);
        }
        if room < len {
            return Err(EFAULT);
        }
        // SAFETY: Eight aligned bytes that are pinned, kept or the consumer's, and mapped, as long
        // as `pages` are. Accesses at the same time are those of a program, which answers for
        // them, and copies of the driver, which consumers must not mix with atomic operations (RFC
        // 7306 5).
        Ok(Some(unsafe { Atomic::from_ptr(ptr.as_ptr()) }))
    }

    /// Whether 64 bits can be accessed atomically at `offset`.
    pub fn is_word(&self, offset: u64) -> Result<bool> {
        match self {
            Self::Odp(umem) => umem.is_word(offset).ok_or(EFAULT),
            _ => Ok(self.word(&Pages::Fixed(self), offset)?.is_some()),
        }
    }

    /// Replaces the 64 bits at `offset` by what `f` makes of them, and returns what they were.
    /// Atomic with respect to other atomic accesses, also of programs. Fails with `EINVAL` if the
    /// bits are not aligned. Not from a hard interrupt.
    pub fn fetch_update(&self, offset: u64, f: impl Fn(u64) -> u64) -> Result<u64> {
        let pages = self.enter();
        let word = self.word(&pages, offset)?.ok_or(EINVAL)?;
        let mut old = word.read_once();
        loop {
            // A program that writes to it all the time can make this fail, but not for long: the
            // failed attempt has brought the line to this CPU.
            match word.cmpxchg(old, f(old), Full) {
                Ok(old) => return Ok(old),
                Err(now) => old = now,
            }
        }
    }

    /// Adds the memory to `buf`, to be sent by reference, and to `crc`. `EINVAL` if that is not
    /// [possible](Self::can_share).
    ///
    /// After an error, part of the memory may be in `buf`.
    pub fn share(
        &self,
        offset: u64,
        len: usize,
        buf: &mut TxBuf,
        mut crc: Option<&mut Crc32c>,
    ) -> Result {
        if !self.can_share() {
            return Err(EINVAL);
        }
        // What waits to be shared: contiguous bytes in one page of the kernel.
        let (mut start, mut ready) = (0usize, 0usize);
        let mut push = |start: usize, ready: usize| {
            // SAFETY: These bytes are pinned and mapped, in one page. Pages of a user are not of
            // the slab allocator.
            if ready == 0 || unsafe { buf.share(start as *const u8, ready) } {
                Ok(())
            } else {
                Err(ENOMEM)
            }
        };
        self.for_each(offset, len, false, |src, part, _| {
            if let Some(crc) = &mut crc {
                // SAFETY: `part` bytes from `src` on are pinned and mapped.
                unsafe { crc.update_at(src, part) };
            }
            let (mut at, mut left) = (src.as_ptr() as usize, part);
            while left != 0 {
                let take = left.min(PAGE_SIZE - at % PAGE_SIZE);
                if at == start.wrapping_add(ready) && at % PAGE_SIZE != 0 {
                    ready = ready.saturating_add(take);
                } else {
                    push(start, ready)?;
                    (start, ready) = (at, take);
                }
                at = at.wrapping_add(take);
                left -= take;
            }
            Ok(())
        })?;
        push(start, ready)
    }

    /// Copies `len` bytes from `skb_off` on of `skb` into the memory, from `offset` on. Not from
    /// a hard interrupt.
    pub fn write_from_skb(&self, offset: u64, len: usize, skb: &Skb<'_>, skb_off: usize) -> Result {
        skb_off
            .checked_add(len)
            .filter(|end| *end <= skb.len())
            .ok_or(EINVAL)?;
        self.for_each(offset, len, true, |dst, part, done| {
            // SAFETY: `part` bytes from `dst` on are pinned, kept or the consumer's, and mapped.
            unsafe { skb.copy_to_ptr(skb_off + done, dst.as_ptr(), part) }
        })
    }
}
