// SPDX-License-Identifier: GPL-2.0

//! Pinned user memory.
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
    page::{
        PAGE_SHIFT, //
    },
    prelude::*,
    sync::atomic::{
        Acquire,
        Atomic,
        Full, //
    },
    types::{
        Opaque,
        ScopeGuard, //
    },
};

use super::{
    device::{
        Device,
        Driver, //
    },
    page_layout::PageLayout, //
};
use crate::kapi::bindings::{
    self,
    ib_umem,
    work_struct,
    workqueue_struct, //
};

static QUEUE: Atomic<*mut workqueue_struct> = Atomic::new(null_mut());

/// Runs deferred releases, and brings pages on demand. There is one in the module. The drop waits
/// for all of them.
///
/// # Invariants
///
/// `QUEUE` is the queue that `new` made.
pub(super) struct ReleaseQueue(());

impl ReleaseQueue {
    /// Makes the queue, and names it `name`. May sleep.
    ///
    /// Fails with `EBUSY` if there is one, or with `ENOMEM`.
    pub(super) fn new(name: &CStr) -> Result<Self> {
        let flags = bindings::wq_flags_WQ_UNBOUND;
        // SAFETY: The name is valid during the call, which copies it.
        let queue = unsafe { bindings::kapi_alloc_workqueue(name.as_char_ptr(), flags) };
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

/// Waits for the releases that are deferred now, and for the pages that are under way. May sleep.
///
/// Unpinning looks at the device, so this comes before a device is freed.
pub(super) fn flush_releases() {
    let queue = QUEUE.load(Acquire);
    if !queue.is_null() {
        // SAFETY: It exists as long as `QUEUE` says so: it is dropped after the devices.
        unsafe { bindings::kapi_flush_workqueue(queue) };
    }
}

/// # Invariants
///
/// `umem` came from `ib_umem_get`; `pages` are the kernel addresses of its pages, in order.
#[repr(C)]
struct Inner {
    /// At offset 0, for `release`.
    work: Opaque<work_struct>,
    umem: NonNull<ib_umem>,
    pages: KVVec<usize>,
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
    /// Pins `len` bytes from `start` on of the current process. May sleep.
    pub(crate) fn get<D: Driver>(
        dev: &Device<D>,
        start: u64,
        len: u64,
        access: u32,
    ) -> Result<Umem> {
        if QUEUE.load(Acquire).is_null() {
            return Err(ENODEV);
        }
        start.checked_add(len).ok_or(EINVAL)?;
        let layout = PageLayout::new(PAGE_SHIFT as u32, start).ok_or(EINVAL)?;
        let count = layout.pages(len).ok_or(EINVAL)?;
        let count = usize::try_from(count).map_err(|_| EINVAL)?;
        // No allocation is larger than this (`kvmalloc`).
        if len == 0 || count > i32::MAX as usize / size_of::<usize>() {
            return Err(if len == 0 { EINVAL } else { ENOMEM });
        }
        // The user chooses the length. So memory is spent only on pages that exist, and within the
        // user's limits.
        // SAFETY: The device is registered, or on its way there.
        let umem = from_err_ptr(unsafe {
            bindings::kapi_umem_get(dev.as_raw(), start as usize, len as usize, access as i32)
        })?;
        let unpin = ScopeGuard::new(|| {
            // SAFETY: Pinned above, and used by nobody.
            unsafe { bindings::ib_umem_release(umem) }
        });
        let mut inner = KBox::<Inner>::new_uninit(GFP_KERNEL_ACCOUNT)?;
        let mut pages = KVVec::<usize>::with_capacity(count, GFP_KERNEL_ACCOUNT)?;
        // SAFETY: `umem` is valid; there is room for `count` addresses.
        let filled = unsafe { bindings::kapi_umem_pages(umem, pages.as_mut_ptr(), count) };
        if filled != count {
            return Err(EINVAL);
        }
        unpin.dismiss();
        // SAFETY: `count` addresses have been written.
        unsafe { pages.inc_len(count) };
        // SAFETY: Not an error, and not null.
        let umem = unsafe { NonNull::new_unchecked(umem) };

        // SAFETY: The slot is valid for a work item.
        unsafe {
            bindings::kapi_release_work_init(
                (&raw mut (*inner.as_mut_ptr()).work).cast(),
                Some(release),
            )
        };
        // SAFETY: The slot is valid for the field.
        unsafe { (&raw mut (*inner.as_mut_ptr()).umem).write(umem) };
        // SAFETY: The slot is valid for the field, which has no value yet.
        unsafe { (&raw mut (*inner.as_mut_ptr()).pages).write(pages) };
        // SAFETY: The slot is valid for the field, which has no value yet.
        unsafe { (&raw mut (*inner.as_mut_ptr()).layout).write(layout) };
        // SAFETY: The slot is valid for the field, which has no value yet.
        unsafe { (&raw mut (*inner.as_mut_ptr()).len).write(len) };
        // INVARIANT: As pinned above.
        // SAFETY: All fields are written.
        Ok(Self(Some(unsafe { inner.assume_init() })))
    }

    /// The number of bytes.
    pub(crate) fn len(&self) -> u64 {
        self.0.as_ref().map_or(0, |inner| inner.len)
    }

    /// The address of the first byte in the program.
    pub(crate) fn start(&self) -> u64 {
        self.0.as_ref().map_or(0, |inner| {
            // SAFETY: Valid by the type invariants, and not changed any more.
            unsafe { (*inner.umem.as_ptr()).address as u64 }
        })
    }

    /// Whether it is of the current process: only there its address means this memory. Process
    /// context.
    pub(crate) fn is_of_current(&self) -> bool {
        let Some(inner) = &self.0 else { return false };
        // SAFETY: Valid by the type invariants, and not changed any more.
        let owner = unsafe { (*inner.umem.as_ptr()).owning_mm };
        // The core keeps the `mm_struct` of the owner, so that no other one has its address.
        current!()
            .mm()
            .is_some_and(|mm| mm.as_raw() == owner.cast())
    }

    /// Whether it was pinned to be written.
    pub(crate) fn is_writable(&self) -> bool {
        self.0.as_ref().is_some_and(|inner| {
            // SAFETY: Valid by the type invariants, and not changed any more.
            unsafe { inner.umem.as_ref() }.writable() != 0
        })
    }

    /// The address of the byte at `offset`, and the number of bytes from it to the end of its page.
    pub(super) fn locate(&self, offset: u64) -> Option<(NonNull<u8>, usize)> {
        let inner = self.0.as_ref()?;
        let place = inner.layout.locate(offset)?;
        let page = *inner.pages.get(place.page)?;
        // The address of a page is aligned.
        Some((NonNull::new((page | place.within) as *mut u8)?, place.room))
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
    // SAFETY: No requirements.
    if unsafe { bindings::kapi_may_sleep() } || QUEUE.load(Acquire).is_null() {
        // SAFETY: By the requirements of this function.
        unsafe { release(work) };
    } else {
        queue(work);
    }
}

/// Queues a valid work item. `false` if it is in a queue already, or if the module ends.
pub(super) fn queue(work: *mut work_struct) -> bool {
    let queue = QUEUE.load(Acquire);
    if queue.is_null() {
        return false;
    }
    // SAFETY: The queue is valid until all devices are gone, and callers have one.
    unsafe { bindings::kapi_release_work_queue(queue, work) }
}

/// Unpins the memory.
///
/// # Safety
///
/// `work` is in an [`Inner`] from [`KBox::into_raw`] that nobody else uses.
unsafe extern "C" fn release(work: *mut work_struct) {
    // SAFETY: By the requirements of this function; `work` is at offset 0.
    let inner = unsafe { KBox::from_raw(work.cast::<Inner>()) };
    // SAFETY: Valid by the type invariants, and not used any more.
    unsafe { bindings::ib_umem_release(inner.umem.as_ptr()) };
}
