// SPDX-License-Identifier: GPL-2.0

//! Memory regions.

use core::{
    cell::UnsafeCell,
    marker::PhantomData,
    ops::Deref,
    ptr::null_mut, //
};

use kernel::{
    prelude::*,
    types::Opaque, //
};

use super::{
    mem::PageList,
    ops::Driver, //
};
use crate::kapi::bindings::ib_mr;

/// The part of a region that does not depend on the provider.
///
/// # Invariants
///
/// `ibmr` was initialised by [`Mr::create`] and by the core.
#[repr(C)]
pub(super) struct MrBase {
    ibmr: Opaque<ib_mr>,
    /// The list that a `map_mr_sg` fills. Consumers may not make two such calls at a time for a
    /// region.
    sink: UnsafeCell<*mut PageList>,
}

impl MrBase {
    /// # Safety
    ///
    /// `raw` is in a region of ours that stays during `'a`.
    pub(super) unsafe fn from_raw<'a>(raw: *const ib_mr) -> &'a Self {
        // SAFETY: By the requirements of this function; `ibmr` is at offset 0.
        unsafe { &*raw.cast() }
    }

    pub(super) fn as_raw(&self) -> *mut ib_mr {
        self.ibmr.get()
    }

    pub(super) fn page_size(&self) -> u32 {
        // SAFETY: Valid by the type invariants.
        unsafe { (*self.as_raw()).page_size }
    }

    pub(super) fn iova(&self) -> u64 {
        // SAFETY: Valid by the type invariants.
        unsafe { (*self.as_raw()).iova }
    }

    pub(super) fn len(&self) -> u64 {
        // SAFETY: Valid by the type invariants.
        unsafe { (*self.as_raw()).length }
    }

    pub(super) fn begin_sink(&self, list: *mut PageList) {
        // SAFETY: Only the `map_mr_sg` that is being executed accesses it.
        unsafe { *self.sink.get() = list };
    }

    pub(super) fn end_sink(&self) {
        self.begin_sink(null_mut());
    }

    pub(super) fn sink(&self) -> *mut PageList {
        // SAFETY: Only the `map_mr_sg` that is being executed accesses it.
        unsafe { *self.sink.get() }
    }
}

/// A region that a provider has made for a request.
pub(crate) struct NewMr<T> {
    pub(crate) data: T,
    pub(crate) lkey: u32,
    pub(crate) rkey: u32,
    pub(crate) iova: u64,
    pub(crate) len: u64,
}

/// A memory region with the provider's payload.
#[repr(C)]
pub(crate) struct Mr<D: Driver> {
    base: MrBase,
    _p: PhantomData<fn() -> D>,
    data: D::Mr,
}

// SAFETY: The C structure is only read, or changed by the one call that may do so.
unsafe impl<D: Driver> Send for Mr<D> {}

// SAFETY: As above; the payload is `Sync` by the bound of `Driver::Mr`.
unsafe impl<D: Driver> Sync for Mr<D> {}

impl<D: Driver> Deref for Mr<D> {
    type Target = D::Mr;

    fn deref(&self) -> &D::Mr {
        &self.data
    }
}

impl<D: Driver> Mr<D> {
    /// Makes a region with `make`, and gives it to the core.
    pub(super) fn create(make: impl FnOnce() -> Result<NewMr<D::Mr>>) -> Result<*mut ib_mr> {
        let slot = KBox::<Self>::new_uninit(GFP_KERNEL_ACCOUNT)?;
        let new = make()?;
        let mut ibmr: ib_mr = pin_init::zeroed();
        ibmr.lkey = new.lkey;
        ibmr.rkey = new.rkey;
        ibmr.iova = new.iova;
        ibmr.length = new.len;
        let mr = slot.write(Self {
            base: MrBase {
                ibmr: Opaque::new(ibmr),
                sink: UnsafeCell::new(null_mut()),
            },
            _p: PhantomData,
            data: new.data,
        });
        Ok(KBox::into_raw(mr).cast())
    }

    /// # Safety
    ///
    /// `raw` is from [`Self::create`], initialised by the core, and stays during `'a`.
    pub(super) unsafe fn from_raw<'a>(raw: *const ib_mr) -> &'a Self {
        // SAFETY: By the requirements of this function; `ibmr` is at offset 0.
        unsafe { &*raw.cast() }
    }

    /// # Safety
    ///
    /// `raw` is from [`Self::create`], and nobody uses it any more.
    pub(super) unsafe fn destroy(raw: *mut ib_mr) {
        // SAFETY: By the requirements of this function.
        drop(unsafe { KBox::from_raw(raw.cast::<Self>()) });
    }

    /// The address of the first byte, as the consumer has it now.
    pub(crate) fn iova(&self) -> u64 {
        self.base.iova()
    }

    pub(super) fn base(&self) -> &MrBase {
        &self.base
    }
}
