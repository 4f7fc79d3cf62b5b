// SPDX-License-Identifier: GPL-2.0

//! A reader-writer semaphore.
//!
//! C header: [`include/linux/rwsem.h`](srctree/include/linux/rwsem.h)

use crate::kapi::bindings;
use core::{
    cell::UnsafeCell,
    marker::PhantomPinned,
    ops::{
        Deref,
        DerefMut, //
    },
    pin::Pin, //
};
use kernel::{
    prelude::*,
    sync::LockClassKey,
    task::might_sleep,
    types::{
        NotThreadSafe,
        Opaque, //
    },
};

/// Creates a [`RwSem`] initialiser with the given name and a newly-created lock class.
#[macro_export]
macro_rules! new_rw_sem {
    ($inner:expr $(, $name:literal)? $(,)?) => {
        $crate::kapi::sync::RwSem::new(
            $inner, ::kernel::optional_name!($($name)?), ::kernel::static_lock_class!())
    };
}

/// Data that many may read at a time and one may change.
///
/// # Invariants
///
/// `sem` is initialised.
#[pin_data]
pub(crate) struct RwSem<T> {
    #[pin]
    sem: Opaque<bindings::rw_semaphore>,
    #[pin]
    _pin: PhantomPinned,
    data: UnsafeCell<T>,
}

// SAFETY: The semaphore goes with the data it protects.
unsafe impl<T: Send> Send for RwSem<T> {}
// SAFETY: Writers are exclusive, which needs `T: Send`; readers share the data, hence `T: Sync`.
unsafe impl<T: Send + Sync> Sync for RwSem<T> {}

impl<T> RwSem<T> {
    /// Makes a semaphore that protects `data`; see [`new_rw_sem!`](crate::new_rw_sem).
    pub(crate) fn new(
        data: T,
        name: &'static CStr,
        key: Pin<&'static LockClassKey>,
    ) -> impl PinInit<Self> {
        // INVARIANT: `__init_rwsem()` initialises the semaphore.
        pin_init!(Self {
            data: UnsafeCell::new(data),
            _pin: PhantomPinned,
            sem <- Opaque::ffi_init(|slot| {
                // SAFETY: `slot` is valid for writes; name and key are static.
                unsafe { bindings::__init_rwsem(slot, name.as_char_ptr(), key.as_ptr()) }
            }),
        })
    }

    /// Waits until no writer is about. May sleep.
    pub(crate) fn read(&self) -> RwSemReadGuard<'_, T> {
        might_sleep();
        // SAFETY: Initialised, by the type invariants.
        unsafe { bindings::down_read(self.sem.get()) };
        RwSemReadGuard {
            sem: self,
            _not_send: NotThreadSafe,
        }
    }

    /// Reads if no writer is about. Never sleeps; the guard may be dropped in softirq.
    pub(crate) fn try_read(&self) -> Option<RwSemReadGuard<'_, T>> {
        // SAFETY: Initialised, by the type invariants.
        let taken = unsafe { bindings::down_read_trylock(self.sem.get()) };
        (taken != 0).then_some(RwSemReadGuard {
            sem: self,
            _not_send: NotThreadSafe,
        })
    }

    /// Waits until nobody else is about. May sleep.
    pub(crate) fn write(&self) -> RwSemWriteGuard<'_, T> {
        might_sleep();
        // SAFETY: Initialised, by the type invariants.
        unsafe { bindings::down_write(self.sem.get()) };
        RwSemWriteGuard {
            sem: self,
            _not_send: NotThreadSafe,
        }
    }
}

/// Read access to the data of a [`RwSem`].
///
/// # Invariants
///
/// The semaphore is held for reading.
pub(crate) struct RwSemReadGuard<'a, T> {
    sem: &'a RwSem<T>,
    _not_send: NotThreadSafe,
}

impl<T> Deref for RwSemReadGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: No writer is about, by the type invariants.
        unsafe { &*self.sem.data.get() }
    }
}

impl<T> Drop for RwSemReadGuard<'_, T> {
    fn drop(&mut self) {
        // SAFETY: Held for reading, by the type invariants.
        unsafe { bindings::up_read(self.sem.sem.get()) };
    }
}

/// Exclusive access to the data of a [`RwSem`].
///
/// # Invariants
///
/// The semaphore is held for writing.
pub(crate) struct RwSemWriteGuard<'a, T> {
    sem: &'a RwSem<T>,
    _not_send: NotThreadSafe,
}

impl<T> Deref for RwSemWriteGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: Nobody else is about, by the type invariants.
        unsafe { &*self.sem.data.get() }
    }
}

impl<T> DerefMut for RwSemWriteGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: Nobody else is about, by the type invariants.
        unsafe { &mut *self.sem.data.get() }
    }
}

impl<T> Drop for RwSemWriteGuard<'_, T> {
    fn drop(&mut self) {
        // SAFETY: Held for writing, by the type invariants.
        unsafe { bindings::up_write(self.sem.sem.get()) };
    }
}
