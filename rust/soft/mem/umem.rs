// SPDX-License-Identifier: GPL-2.0

//! Memory of programs: pinned, or a dmabuf.
//!
//! C header: [`include/rdma/ib_umem.h`](srctree/include/rdma/ib_umem.h)
//!
//! Unpinning may sleep (`folio_lock`), and so may the release of a large page array. But the
//! last reference to a region may be dropped in softirq, so a work item does both in that case.

use core::ptr::NonNull;

use kernel::{
    device,
    error::from_err_ptr,
    impl_has_work,
    new_work,
    page::PAGE_SIZE,
    prelude::*,
    sync::aref::ARef,
    workqueue::{
        Work,
        WorkItem, //
    }, //
};

use crate::mem::{
    att::{
        Att,
        Translation, //
    },
    dmabuf::DmaBuf,
    page_layout::{
        PageLayout,
        Runs, //
    }, //
};
use base::{
    bindings::{
        self,
        ib_umem, //
    },
    context::cond_resched,
    release::ReleaseRef, //
};
use rdma::{
    Device,
    Driver, //
};

/// Memory that `ib_umem_get` has pinned. The drop may sleep.
///
/// # Invariants
///
/// `umem` is from there, for `_device`, which the core reads when it unpins.
struct Pinned {
    umem: NonNull<ib_umem>,
    _device: ARef<device::Device>,
}

impl Pinned {
    /// Calls `f` for each run of contiguous bytes, with its address and length. May sleep.
    fn for_each(&self, mut f: impl FnMut(u64, u64) -> Result) -> Result {
        // SAFETY: Valid by the type invariants, and not changed any more.
        let umem = unsafe { self.umem.as_ref() };
        // What the first page has in front of the memory.
        let mut skip = umem.address as u64 % PAGE_SIZE as u64;
        let mut left = umem.length as u64;
        let mut sg = umem.sgt_append.sgt.sgl;
        while !sg.is_null() && left != 0 {
            let (mut addr, mut len) = (0, 0);
            // SAFETY: An element of the list of this memory, which has its addresses.
            sg = unsafe { bindings::sg_next_dma(sg, &mut addr, &mut len) };
            let run = len.saturating_sub(skip).min(left);
            f(addr.wrapping_add(skip), run)?;
            skip = 0;
            left -= run;
            cond_resched();
        }
        if left == 0 {
            Ok(())
        } else {
            Err(EINVAL)
        }
    }

    /// The pages, as large as they are and up to `1 << max` bytes, and their addresses.
    fn translate(&self, max: u32) -> Result<(PageLayout, Att)> {
        let mut runs = Runs::default();
        self.for_each(|addr, len| {
            runs.add(addr, len);
            Ok(())
        })?;
        let layout = runs.layout(max).ok_or(EINVAL)?;
        let pages = layout.pages(runs.len()).ok_or(EINVAL)?;
        let pages = usize::try_from(pages).map_err(|_| ENOMEM)?;
        let mut att = Att::new(pages, GFP_KERNEL_ACCOUNT)?;
        let mut offset = 0;
        self.for_each(|addr, len| {
            for (page, addr) in layout.starts(offset, addr, len) {
                att.set(page, addr)?;
            }
            offset += len;
            Ok(())
        })?;
        Ok((layout, att))
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        // SAFETY: Valid by the type invariants, and not used any more.
        unsafe { bindings::ib_umem_release(self.umem.as_ptr()) };
    }
}

/// Whose memory it is.
enum Source {
    Pinned(Pinned),
    DmaBuf(DmaBuf),
}

/// # Invariants
///
/// `att` has the kernel addresses of the pages of `source`, which `layout` describes, for `len`
/// bytes.
#[pin_data]
struct Inner {
    #[pin]
    work: Work<Self>,
    source: Source,
    att: Att,
    layout: PageLayout,
    len: u64,
    /// Dropped last: the end of the module waits for it.
    user: ReleaseRef,
}

// SAFETY: `source` may be released by any thread.
unsafe impl Send for Inner {}

impl_has_work! {
    impl HasWork<Self> for Inner { self.work }
}

impl WorkItem for Inner {
    type Pointer = Pin<KBox<Self>>;

    /// Gives the memory back.
    fn run(this: Pin<KBox<Self>>) {
        drop(this);
    }
}

/// User memory that stays where it is, and stays mapped in the kernel.
///
/// # Invariants
///
/// The box is there until it is dropped.
pub struct Umem(Option<Pin<KBox<Inner>>>);

// SAFETY: The pages may be accessed from any thread; they are pinned.
unsafe impl Send for Umem {}

// SAFETY: As above; a data race on them is one with the user, whose memory it is.
unsafe impl Sync for Umem {}

impl Umem {
    /// Pins `len` bytes from `start` on of the current process. The table of its pages takes them
    /// as large as they are, up to `1 << max_shift` bytes. May sleep.
    pub fn get<D: Driver>(
        dev: &Device<D>,
        user: ReleaseRef,
        start: u64,
        len: u64,
        access: u32,
        max_shift: u32,
    ) -> Result<Umem> {
        start.checked_add(len).ok_or(EINVAL)?;
        if len == 0 {
            return Err(EINVAL);
        }
        // The user chooses the length. So memory is spent only on pages that exist, and within the
        // user's limits.
        // SAFETY: The device is registered, or on its way there.
        let umem = from_err_ptr(unsafe {
            bindings::ib_umem_get_va(dev.as_raw(), start as usize, len as usize, access as i32)
        })?;
        // INVARIANT: Just pinned, which does not give null.
        let pinned = Pinned {
            umem: NonNull::new(umem).ok_or(EFAULT)?,
            _device: dev.as_ref().into(),
        };
        let (layout, att) = pinned.translate(max_shift)?;
        Self::new(Source::Pinned(pinned), att, layout, len, user)
    }

    /// Maps `len` bytes from `offset` on of the dmabuf `fd` of the current process. May sleep.
    ///
    /// Fails with `EINVAL` if it does not have them, with `EACCES` if `write` is asked for and the
    /// descriptor is for reading, and with `EOPNOTSUPP` if the CPU cannot access it as memory, or
    /// its driver may move it.
    pub fn get_dmabuf<D: Driver>(
        dev: &Device<D>,
        user: ReleaseRef,
        fd: i32,
        offset: u64,
        len: u64,
        write: bool,
    ) -> Result<Umem> {
        let end = offset.checked_add(len).ok_or(EINVAL)?;
        let buf = DmaBuf::get(dev, fd, write)?;
        if len == 0 || end > buf.len() {
            return Err(EINVAL);
        }
        let layout = PageLayout::whole(len).ok_or(EINVAL)?;
        let mut att = Att::new(1, GFP_KERNEL_ACCOUNT)?;
        // Inside, as just checked.
        att.set(0, buf.addr().wrapping_add(offset))?;
        Self::new(Source::DmaBuf(buf), att, layout, len, user)
    }

    fn new(
        source: Source,
        att: Att,
        layout: PageLayout,
        len: u64,
        user: ReleaseRef,
    ) -> Result<Umem> {
        let inner = KBox::pin_init(
            pin_init!(Inner {
                work <- new_work!("umem"),
                source,
                att,
                layout,
                len,
                user,
            }),
            GFP_KERNEL_ACCOUNT,
        )?;
        // INVARIANT: It is there.
        Ok(Self(Some(inner)))
    }

    /// The pinned memory; `None` for a dmabuf.
    fn pinned(&self) -> Option<&ib_umem> {
        match &self.0.as_ref()?.source {
            // SAFETY: Valid by the type invariants, and not changed any more.
            Source::Pinned(pinned) => Some(unsafe { pinned.umem.as_ref() }),
            Source::DmaBuf(_) => None,
        }
    }

    /// The number of bytes.
    pub fn len(&self) -> u64 {
        self.0.as_ref().map_or(0, |inner| inner.len)
    }

    /// The address of the first byte in the program; 0 for a dmabuf.
    pub fn start(&self) -> u64 {
        self.pinned().map_or(0, |umem| umem.address as u64)
    }

    /// Whether it is of the current process: only there its address means this memory. A dmabuf is
    /// of none. Process context.
    pub fn is_of_current(&self) -> bool {
        let Some(umem) = self.pinned() else {
            return false;
        };
        // The core keeps the `mm_struct` of the owner, so that no other one has its address.
        current!()
            .mm()
            .is_some_and(|mm| mm.as_raw() == umem.owning_mm.cast())
    }

    /// Whether it may be written.
    pub fn is_writable(&self) -> bool {
        match self.0.as_ref().map(|inner| &inner.source) {
            Some(Source::DmaBuf(buf)) => buf.is_writable(),
            _ => self.pinned().is_some_and(|umem| umem.writable() != 0),
        }
    }

    /// Whether its pages may be given to others, which keep them.
    pub(super) fn has_pages(&self) -> bool {
        self.pinned().is_some()
    }

    /// How addresses are translated.
    pub(super) fn translation(&self) -> Option<Translation> {
        self.0.as_ref().map(|inner| Translation {
            order: inner.att.order(),
            page_size: inner.layout.size(),
        })
    }

    /// The address of the byte at `offset`, and the number of bytes from it to the end of its page.
    #[inline]
    pub(super) fn locate(&self, offset: u64) -> Option<(NonNull<u8>, usize)> {
        let inner = self.0.as_ref()?;
        let place = inner.layout.locate(offset)?;
        let page = inner.att.get(place.page)? as usize;
        let addr = page.wrapping_add(place.within);
        Some((NonNull::new(addr as *mut u8)?, place.room))
    }
}

impl Drop for Umem {
    fn drop(&mut self) {
        if let Some(inner) = self.0.take() {
            let user = inner.user.clone();
            user.run(inner);
        }
    }
}
