// SPDX-License-Identifier: GPL-2.0

//! Memory that user programs map.

use core::ptr::NonNull;

use kernel::{
    error::to_result,
    ffi,
    mm::virt::VmaNew,
    page::{
        page_align,
        PAGE_SIZE, //
    },
    prelude::*,
    sync::{
        aref::ARef,
        Arc, //
    },
    task::might_sleep,
    types::Opaque, //
};

use crate::{
    callback::to_errno,
    device::Driver,
    ucontext::{
        Customer,
        Ucontext, //
    }, //
};
use base::bindings::{
    self,
    ib_ucontext,
    rdma_user_mmap_entry,
    vm_area_struct, //
};

/// Zeroed memory for queues.
///
/// Pages that a user has mapped live on until they are unmapped. The last reference may not be
/// dropped under a spinlock or with interrupts off (`vfree`).
///
/// # Examples
///
/// ```ignore
/// // In `cq::Operations::create` for a program, which gets the key of the entry with the response.
/// let mem = RingMem::new(entries as usize * size_of::<Elem>())?;
/// let ring = UserRing::<Elem>::new(mem.clone(), 0, entries)?;
/// let entry = MmapEntry::new(customer, mem)?;
/// ```
///
/// # Invariants
///
/// `ptr` came from `ring_alloc` for `len` bytes.
pub struct RingMem {
    ptr: NonNull<u8>,
    len: usize,
}

// SAFETY: It is plain memory, accessed through `UserRing` and `CtrlWord` only.
unsafe impl Send for RingMem {}

// SAFETY: Accesses through a shared one are those of `UserRing` and `CtrlWord`: volatile or atomic.
unsafe impl Sync for RingMem {}

impl RingMem {
    /// Allocates `len` bytes. May sleep.
    pub fn new(len: usize) -> Result<Arc<RingMem>> {
        if len == 0 {
            return Err(EINVAL);
        }
        // SAFETY: No requirements.
        let ptr = unsafe { bindings::ring_alloc(len) };
        // INVARIANT: As just allocated.
        let mem = Self {
            ptr: NonNull::new(ptr.cast()).ok_or(ENOMEM)?,
            len,
        };
        Ok(Arc::new(mem, GFP_KERNEL_ACCOUNT)?)
    }

    /// The number of bytes.
    pub fn size(&self) -> usize {
        self.len
    }

    /// The `len` bytes from `offset` on, if they are all inside.
    pub fn range(&self, offset: usize, len: usize) -> Option<NonNull<u8>> {
        if offset.checked_add(len)? > self.len {
            return None;
        }
        // SAFETY: `offset` is inside, as just checked.
        Some(unsafe { self.ptr.add(offset) })
    }
}

impl Drop for RingMem {
    fn drop(&mut self) {
        // SAFETY: Allocated by `ring_alloc` by the type invariants; nobody uses it any more.
        unsafe { bindings::vfree(self.ptr.as_ptr().cast()) };
    }
}

/// The entry that the core keeps.
#[repr(C)]
struct Inner {
    entry: Opaque<rdma_user_mmap_entry>,
    mem: Arc<RingMem>,
}

/// An offer to a user context to map a [`RingMem`]. Dropping it withdraws the offer, and may sleep;
/// what is mapped stays.
///
/// It holds a reference to the context, which the core destroys after all objects of its user. So
/// it belongs in the payload of such an object. In the payload of the context itself it would make
/// the destruction wait forever.
///
/// # Invariants
///
/// `entry` is in an [`Inner`] that was inserted into `ctx`, and the driver's reference to it is
/// held.
pub struct MmapEntry<D: Driver> {
    entry: NonNull<rdma_user_mmap_entry>,
    /// Dropped after `entry` has been removed.
    _ctx: ARef<Ucontext<D>>,
}

// SAFETY: The functions of the core that are called lock as needed.
unsafe impl<D: Driver> Send for MmapEntry<D> {}

// SAFETY: A shared entry only gives its key, which does not change.
unsafe impl<D: Driver> Sync for MmapEntry<D> {}

impl<D: Driver> MmapEntry<D> {
    /// The first page offset to assign.
    const FIRST_PGOFF: u32 = {
        let pgoff = D::MMAP_MIN_KEY.div_ceil(bindings::PAGE_SIZE as u64);
        assert!(pgoff <= u32::MAX as u64);
        pgoff as u32
    };

    /// Offers `mem` to `user`. May sleep.
    pub fn new(user: Customer<'_, D>, mem: Arc<RingMem>) -> Result<Self> {
        let len = mem.size();
        let inner = KBox::new(
            Inner {
                entry: Opaque::zeroed(),
                mem,
            },
            GFP_KERNEL_ACCOUNT,
        )?;
        let raw = KBox::into_raw(inner);
        // `entry` is at offset 0.
        let entry = raw.cast::<rdma_user_mmap_entry>();
        // SAFETY: The context is live, the entry is zeroed and stays where it is.
        let ret = unsafe {
            bindings::rdma_user_mmap_entry_insert_range(
                user.ucontext().as_raw(),
                entry,
                len,
                Self::FIRST_PGOFF,
                u32::MAX,
            )
        };
        to_result(ret).inspect_err(|_| {
            // SAFETY: From `into_raw` above; the core did not take it.
            drop(unsafe { KBox::from_raw(raw) });
        })?;
        // INVARIANT: Just inserted. `raw` is not null.
        Ok(Self {
            entry: NonNull::new(entry).ok_or(EINVAL)?,
            _ctx: user.ucontext().into(),
        })
    }

    /// The offset that the user passes to `mmap`.
    pub fn key(&self) -> u64 {
        // SAFETY: Valid by the type invariants; the field does not change after insertion.
        let pgoff = unsafe { (*self.entry.as_ptr()).start_pgoff };
        (pgoff as u64) << bindings::PAGE_SHIFT
    }
}

impl<D: Driver> Drop for MmapEntry<D> {
    fn drop(&mut self) {
        might_sleep();
        // SAFETY: The reference that this gives up is held, and the context live, by the type
        // invariants.
        unsafe { bindings::rdma_user_mmap_entry_remove(self.entry.as_ptr()) };
    }
}

/// `ib_device_ops.mmap`: maps what an entry offers.
///
/// # Safety
///
/// Called by the core: all entries of `ctx` are of [`MmapEntry`], and `vma` is being set up.
pub(super) unsafe extern "C" fn mmap_callback(
    ctx: *mut ib_ucontext,
    vma: *mut vm_area_struct,
) -> ffi::c_int {
    // SAFETY: By the requirements of this function. It checks the size and that it is shared.
    let entry = unsafe { bindings::rdma_user_mmap_entry_get(ctx, vma) };
    if entry.is_null() {
        return EINVAL.to_errno();
    }
    // SAFETY: The entry is in an `Inner`; the reference just taken keeps it.
    let mem = unsafe { &(*entry.cast::<Inner>()).mem };
    // SAFETY: By the requirements of this function.
    let result = unsafe { map(vma, mem) };
    // SAFETY: Taken above, and `mem` is not used any more.
    unsafe { bindings::rdma_user_mmap_entry_put(entry) };
    to_errno(result)
}

/// Maps all of `mem`. As `remap_vmalloc_range`, which takes only memory of `vmalloc_user`.
///
/// # Safety
///
/// `vma` is being set up.
unsafe fn map(vma: *mut vm_area_struct, mem: &RingMem) -> Result {
    // SAFETY: By the requirements of this function.
    let new = unsafe { VmaNew::from_raw(vma) };
    if Some(new.end() - new.start()) != page_align(mem.len) {
        return Err(EINVAL);
    }
    for offset in (0..mem.len).step_by(PAGE_SIZE) {
        // SAFETY: `offset` is inside.
        let at = unsafe { mem.ptr.add(offset) };
        // SAFETY: It came from `ring_alloc` by the type invariants.
        let page = unsafe { bindings::vmalloc_to_page(at.as_ptr().cast()) };
        // SAFETY: By the requirements of this function; the mapping gets a reference to the page.
        to_result(unsafe { bindings::vm_insert_page(vma, new.start() + offset, page) })?;
    }
    new.set_dontexpand();
    new.set_dontdump();
    Ok(())
}

/// `ib_device_ops.mmap_free`: the last reference to an entry is gone.
///
/// # Safety
///
/// Called by the core, once for each entry, in process context.
pub(super) unsafe extern "C" fn mmap_free_callback(entry: *mut rdma_user_mmap_entry) {
    // SAFETY: `MmapEntry::new` left it to the core, and the core is done with it.
    drop(unsafe { KBox::from_raw(entry.cast::<Inner>()) });
}
