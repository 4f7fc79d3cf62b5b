// SPDX-License-Identifier: GPL-2.0

//! Memory of programs: pinned, or a dmabuf.
//!
//! C header: [`include/rdma/ib_umem.h`](srctree/include/rdma/ib_umem.h)
//!
//! Unpinning may sleep (`folio_lock`), and so may the release of a large page array. But the
//! last reference to a region may be dropped in softirq, so a work item does both in that case.

use core::ptr::{
    null_mut,
    NonNull, //
};

use kernel::{
    error::from_err_ptr,
    page::PAGE_SIZE,
    prelude::*,
    sync::atomic::{
        Acquire,
        Atomic,
        Full, //
    },
    types::Opaque,
};

use super::{
    att::{
        Att,
        Translation, //
    },
    device::{
        Device,
        Driver, //
    },
    dmabuf::DmaBuf,
    page_layout::{
        PageLayout,
        Runs, //
    }, //
};
use crate::kapi::{
    bindings::{
        self,
        ib_umem,
        work_struct,
        workqueue_struct, //
    },
    context::cond_resched, //
};

static QUEUE: Atomic<*mut workqueue_struct> = Atomic::new(null_mut());

/// Runs deferred releases. There is one in the module, which keeps it until nobody uses memory that
/// the devices had. The drop waits for the releases.
///
/// # Invariants
///
/// `QUEUE` is the queue that `new` made.
pub(crate) struct ReleaseQueue(());

impl ReleaseQueue {
    /// Makes the queue, and names it `name`. May sleep.
    ///
    /// Fails with `EBUSY` if there is one, or with `ENOMEM`.
    pub(crate) fn new(name: &CStr) -> Result<Self> {
        let flags = bindings::wq_flags_WQ_UNBOUND;
        // SAFETY: The name is valid during the call, which copies it.
        let queue = unsafe { bindings::kapi_alloc_workqueue(name.as_char_ptr(), flags, 0) };
        if queue.is_null() {
            return Err(ENOMEM);
        }
        if QUEUE.cmpxchg(null_mut(), queue, Full).is_err() {
            // SAFETY: Made above, and nobody else knows it.
            unsafe { bindings::destroy_workqueue(queue) };
            return Err(EBUSY);
        }
        // INVARIANT: Just set.
        Ok(Self(()))
    }
}

impl Drop for ReleaseQueue {
    fn drop(&mut self) {
        let queue = QUEUE.xchg(null_mut(), Full);
        // SAFETY: From `new` by the type invariants. It runs what is still queued.
        unsafe { bindings::destroy_workqueue(queue) };
    }
}

/// Runs the releases that are deferred now. May sleep.
///
/// Unpinning looks at the device, so this comes before a device is freed.
pub(super) fn flush_releases() {
    let queue = QUEUE.load(Acquire);
    if !queue.is_null() {
        // SAFETY: It exists as long as `QUEUE` says so: it is dropped after the devices.
        unsafe { bindings::kapi_flush_workqueue(queue) };
    }
}

/// Memory that `ib_umem_get` has pinned. The drop may sleep.
///
/// # Invariants
///
/// The pointer is from there.
struct Pinned(NonNull<ib_umem>);

impl Pinned {
    /// Calls `f` for each run of contiguous bytes, with its address and length. May sleep.
    fn for_each(&self, mut f: impl FnMut(u64, u64) -> Result) -> Result {
        // SAFETY: Valid by the type invariants, and not changed any more.
        let umem = unsafe { self.0.as_ref() };
        // What the first page has in front of the memory.
        let mut skip = umem.address as u64 % PAGE_SIZE as u64;
        let mut left = umem.length as u64;
        let mut sg = umem.sgt_append.sgt.sgl;
        while !sg.is_null() && left != 0 {
            let (mut addr, mut len) = (0, 0);
            // SAFETY: An element of the list of this memory, which has its addresses.
            sg = unsafe { bindings::kapi_sg_next(sg, &mut addr, &mut len) };
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
        unsafe { bindings::ib_umem_release(self.0.as_ptr()) };
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
#[repr(C)]
struct Inner {
    /// At offset 0, for `release`.
    work: Opaque<work_struct>,
    source: Source,
    att: Att,
    layout: PageLayout,
    len: u64,
}

/// User memory that stays where it is, and stays mapped in the kernel.
///
/// # Invariants
///
/// The box is there until it is dropped.
pub(crate) struct Umem(Option<KBox<Inner>>);

// SAFETY: The pages may be accessed from any thread; they are pinned.
unsafe impl Send for Umem {}

// SAFETY: As above; a data race on them is one with the user, whose memory it is.
unsafe impl Sync for Umem {}

impl Umem {
    /// Pins `len` bytes from `start` on of the current process. The table of its pages takes them
    /// as large as they are, up to `1 << max_shift` bytes. May sleep.
    pub(crate) fn get<D: Driver>(
        dev: &Device<D>,
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
            bindings::kapi_umem_get(dev.as_raw(), start as usize, len as usize, access as i32)
        })?;
        // INVARIANT: Just pinned, which does not give null.
        let pinned = Pinned(NonNull::new(umem).ok_or(EFAULT)?);
        let (layout, att) = pinned.translate(max_shift)?;
        Self::new(Source::Pinned(pinned), att, layout, len)
    }

    /// Maps `len` bytes from `offset` on of the dmabuf `fd` of the current process. May sleep.
    ///
    /// Fails with `EINVAL` if it does not have them, with `EACCES` if `write` is asked for and the
    /// descriptor is for reading, and with `EOPNOTSUPP` if the CPU cannot access it as memory, or
    /// its driver may move it.
    pub(crate) fn get_dmabuf<D: Driver>(
        dev: &Device<D>,
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
        Self::new(Source::DmaBuf(buf), att, layout, len)
    }

    fn new(source: Source, att: Att, layout: PageLayout, len: u64) -> Result<Umem> {
        if QUEUE.load(Acquire).is_null() {
            return Err(ENODEV);
        }
        let inner = KBox::new(
            Inner {
                work: Opaque::uninit(),
                source,
                att,
                layout,
                len,
            },
            GFP_KERNEL_ACCOUNT,
        )?;
        // SAFETY: The box is a valid place for a work item, and stays where it is.
        unsafe { bindings::kapi_release_work_init(inner.work.get(), Some(release)) };
        // INVARIANT: It is there.
        Ok(Self(Some(inner)))
    }

    /// The pinned memory; `None` for a dmabuf.
    fn pinned(&self) -> Option<&ib_umem> {
        match &self.0.as_ref()?.source {
            // SAFETY: Valid by the type invariants, and not changed any more.
            Source::Pinned(pinned) => Some(unsafe { pinned.0.as_ref() }),
            Source::DmaBuf(_) => None,
        }
    }

    /// The number of bytes.
    pub(crate) fn len(&self) -> u64 {
        self.0.as_ref().map_or(0, |inner| inner.len)
    }

    /// The address of the first byte in the program; 0 for a dmabuf.
    pub(crate) fn start(&self) -> u64 {
        self.pinned().map_or(0, |umem| umem.address as u64)
    }

    /// Whether it is of the current process: only there its address means this memory. A dmabuf is
    /// of none. Process context.
    pub(crate) fn is_of_current(&self) -> bool {
        let Some(umem) = self.pinned() else {
            return false;
        };
        // The core keeps the `mm_struct` of the owner, so that no other one has its address.
        current!()
            .mm()
            .is_some_and(|mm| mm.as_raw() == umem.owning_mm.cast())
    }

    /// Whether it may be written.
    pub(crate) fn is_writable(&self) -> bool {
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
        let Some(inner) = self.0.take() else {
            return;
        };
        let work = KBox::into_raw(inner).cast::<work_struct>();
        // SAFETY: The work item is in an `Inner` that is ours.
        unsafe { run_or_queue(work, release) };
    }
}

/// Calls `release` here if this context may sleep, or else from the queue.
///
/// # Safety
///
/// `release` may be called with `work`, which was initialised with it.
pub(super) unsafe fn run_or_queue(
    work: *mut work_struct,
    release: unsafe extern "C" fn(*mut work_struct),
) {
    let queue = QUEUE.load(Acquire);
    // SAFETY: No requirements.
    if unsafe { bindings::kapi_may_sleep() } || queue.is_null() {
        // SAFETY: By the requirements of this function.
        unsafe { release(work) };
    } else {
        // SAFETY: Both are valid; the work item is not queued yet, and belongs to it now.
        unsafe { bindings::kapi_release_work_queue(queue, work) };
    }
}

/// Gives the memory back.
///
/// # Safety
///
/// `work` is in an [`Inner`] from [`KBox::into_raw`] that nobody else uses.
unsafe extern "C" fn release(work: *mut work_struct) {
    // SAFETY: By the requirements of this function; `work` is at offset 0.
    drop(unsafe { KBox::from_raw(work.cast::<Inner>()) });
}
