// SPDX-License-Identifier: GPL-2.0

//! Regions, for those who do not know the provider.

use core::{
    cell::UnsafeCell,
    ptr::null_mut, //
};

use kernel::{
    prelude::*,
    types::Opaque, //
};

use base::bindings::ib_mr;

/// The consumer of the addresses that `ib_sg_to_pages` finds.
pub(super) type Sink<'a> = &'a mut dyn FnMut(u64) -> Result;

/// The part of a region that does not depend on the provider.
///
/// # Invariants
///
/// `ibmr` was initialised by [`Mr::create`](super::Mr) and by the core.
#[repr(C)]
pub(super) struct MrBase {
    ibmr: Opaque<ib_mr>,
    /// The sink of the `map_mr_sg` that is being executed. Consumers may not make two such calls at
    /// a time for a region.
    sink: UnsafeCell<*mut Sink<'static>>,
}

impl MrBase {
    /// Of a region that the core does not know yet.
    pub(super) fn new(ibmr: ib_mr) -> Self {
        // INVARIANT: The caller is `Mr::create`, which gives it to the core.
        Self {
            ibmr: Opaque::new(ibmr),
            sink: UnsafeCell::new(null_mut()),
        }
    }

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

    /// For the `map_mr_sg` that is being executed.
    pub(super) fn set_iova(&self, iova: u64) {
        // SAFETY: Valid by the type invariants; nobody else sets it meanwhile.
        unsafe { (*self.as_raw()).iova = iova };
    }

    /// As [`Self::set_iova`].
    pub(super) fn set_len(&self, len: u64) {
        // SAFETY: Valid by the type invariants; nobody else sets it meanwhile.
        unsafe { (*self.as_raw()).length = len };
    }

    pub(super) fn begin_sink(&self, sink: *mut Sink<'_>) {
        // SAFETY: Only the `map_mr_sg` that is being executed accesses it.
        unsafe { *self.sink.get() = sink.cast() };
    }

    pub(super) fn end_sink(&self) {
        self.begin_sink(null_mut());
    }

    pub(super) fn sink(&self) -> *mut Sink<'static> {
        // SAFETY: Only the `map_mr_sg` that is being executed accesses it.
        unsafe { *self.sink.get() }
    }
}
