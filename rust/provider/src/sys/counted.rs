// SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause

//! A value with several owners, in memory that may be refused: the standard library's ends the
//! program if there is none.

use super::errno::Errno;
use core::{
    ops::Deref,
    ptr::NonNull,
    sync::atomic::{
        AtomicUsize,
        Ordering::{
            AcqRel,
            Relaxed, //
        }, //
    },
};
use std::alloc::{
    alloc,
    dealloc,
    Layout, //
};

struct Inner<T> {
    owners: AtomicUsize,
    value: T,
}

/// An owner of a value.
///
/// # Invariants
///
/// `inner` was allocated for its type and is initialised. This is one of its `owners`, the last of
/// which frees it.
pub(crate) struct Counted<T> {
    inner: NonNull<Inner<T>>,
}

// SAFETY: The owners share the value, and any of them may drop it.
unsafe impl<T: Send + Sync> Send for Counted<T> {}

// SAFETY: The owners share the value, and any of them may drop it.
unsafe impl<T: Send + Sync> Sync for Counted<T> {}

impl<T> Counted<T> {
    /// Its first owner. `ENOMEM` if there is no memory; then the value is dropped.
    pub(crate) fn new(value: T) -> Result<Self, Errno> {
        // SAFETY: The size is not zero.
        let inner = unsafe { alloc(Layout::new::<Inner<T>>()) };
        let inner = NonNull::new(inner.cast::<Inner<T>>()).ok_or(Errno::ENOMEM)?;
        let owners = AtomicUsize::new(1);
        // SAFETY: It was just allocated for this type.
        unsafe { inner.write(Inner { owners, value }) };
        // INVARIANT: As just made.
        Ok(Self { inner })
    }
}

impl<T> Deref for Counted<T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: Valid by the type invariants, and only shared.
        &unsafe { self.inner.as_ref() }.value
    }
}

impl<T> Clone for Counted<T> {
    fn clone(&self) -> Self {
        // SAFETY: Valid by the type invariants, and only shared.
        unsafe { self.inner.as_ref() }.owners.fetch_add(1, Relaxed);
        // INVARIANT: It was just counted.
        Self { inner: self.inner }
    }
}

impl<T> Drop for Counted<T> {
    fn drop(&mut self) {
        // SAFETY: Valid by the type invariants, and only shared.
        let before = unsafe { self.inner.as_ref() }.owners.fetch_sub(1, AcqRel);
        // What the others did with it comes before it is freed.
        if before == 1 {
            // SAFETY: Valid by the type invariants, and nobody else has it any more.
            unsafe { self.inner.drop_in_place() };
            let layout = Layout::new::<Inner<T>>();
            // SAFETY: Allocated with this layout by the type invariants.
            unsafe { dealloc(self.inner.as_ptr().cast(), layout) };
        }
    }
}
