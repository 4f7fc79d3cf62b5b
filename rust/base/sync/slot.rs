// SPDX-License-Identifier: GPL-2.0

//! A place for a box that a context takes out, uses alone and puts back.

use core::{
    marker::PhantomData,
    ptr::null_mut, //
};
use kernel::{
    ffi,
    prelude::*,
    sync::atomic::{
        ordering::Ordering,
        Acquire,
        Atomic,
        Full, //
    }, //
};

/// A place for a box. Any context; cheaper than a lock.
///
/// # Invariants
///
/// `ptr` is null, or from [`KBox::into_raw`] and owned by this.
pub struct Slot<T> {
    ptr: Atomic<*mut ffi::c_void>,
    _p: PhantomData<KBox<T>>,
}

// SAFETY: It hands boxes from one thread to another, and gives no reference to what is in them.
unsafe impl<T: Send> Send for Slot<T> {}

// SAFETY: A shared place only swaps boxes, atomically; it gives no reference to what is in them.
unsafe impl<T: Send> Sync for Slot<T> {}

impl<T> Slot<T> {
    /// An empty place.
    pub const fn new() -> Self {
        Self {
            ptr: Atomic::new(null_mut()),
            _p: PhantomData,
        }
    }

    /// Takes the box out. Writes that were made to it before it was put in are visible.
    pub fn take(&self) -> Option<KBox<T>> {
        self.swap(null_mut(), Acquire)
    }

    /// Puts a box in, and returns the one that was there.
    pub fn put(&self, value: KBox<T>) -> Option<KBox<T>> {
        // It gives one box away and takes another, for which Release or Acquire is not enough.
        self.swap(KBox::into_raw(value).cast(), Full)
    }

    /// `new` is null or from [`KBox::into_raw`].
    fn swap(&self, new: *mut ffi::c_void, ordering: impl Ordering) -> Option<KBox<T>> {
        // INVARIANT: `new` is this one's now, the old one the caller's.
        let old = self.ptr.xchg(new, ordering);
        // SAFETY: Not null, so from `KBox::into_raw` and ours by the type invariants.
        (!old.is_null()).then(|| unsafe { KBox::from_raw(old.cast()) })
    }
}

impl<T> Drop for Slot<T> {
    fn drop(&mut self) {
        drop(self.take());
    }
}
