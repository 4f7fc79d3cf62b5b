// SPDX-License-Identifier: GPL-2.0

//! A spinlock that disables interrupts while it is held.
//!
//! Kernel consumers may post work requests and poll completion queues with interrupts off or in
//! hard interrupt context. So the locks of those paths must be taken this way everywhere.
//!
//! C header: [`include/linux/spinlock.h`](srctree/include/linux/spinlock.h)

use crate::bindings;
use kernel::{
    ffi,
    sync::lock::{
        self,
        Backend, //
    }, //
};

/// A `spinlock_t` that is always taken with `spin_lock_irqsave()`.
///
/// Guards nest: the last one dropped must be the first one taken.
pub type SpinLockIrq<T> = lock::Lock<T, IrqSave>;

/// The backend of [`SpinLockIrq`].
pub struct IrqSave;

// SAFETY: `spinlock_t` gives mutual exclusion, and `relock` is the default, which calls `lock`.
unsafe impl Backend for IrqSave {
    type State = bindings::spinlock_t;
    /// The interrupt flags to restore.
    type GuardState = ffi::c_ulong;

    unsafe fn init(
        ptr: *mut Self::State,
        name: *const ffi::c_char,
        key: *mut bindings::lock_class_key,
    ) {
        // SAFETY: `ptr` is valid for writes, `name` and `key` for reads, by the contract of `init`.
        unsafe { bindings::__spin_lock_init(ptr, name, key) }
    }

    #[inline]
    unsafe fn lock(ptr: *mut Self::State) -> Self::GuardState {
        // SAFETY: The lock is initialised, by the contract of `lock`.
        unsafe { bindings::spin_lock_irqsave(ptr) }
    }

    #[inline]
    unsafe fn unlock(ptr: *mut Self::State, flags: &Self::GuardState) {
        // SAFETY: The caller owns the lock, and `flags` is what locking it returned.
        unsafe { bindings::spin_unlock_irqrestore(ptr, *flags) }
    }

    #[inline]
    unsafe fn try_lock(ptr: *mut Self::State) -> Option<Self::GuardState> {
        let mut flags = 0;
        // SAFETY: The lock is initialised, by the contract of `try_lock`.
        unsafe { bindings::spin_trylock_irqsave(ptr, &mut flags) }.then_some(flags)
    }

    #[inline]
    unsafe fn assert_is_held(ptr: *mut Self::State) {
        // Without lockdep this would be a call without effect at each locking.
        if cfg!(CONFIG_LOCKDEP) {
            // SAFETY: The lock is initialised, by the contract of `assert_is_held`.
            unsafe { bindings::spin_assert_is_held(ptr) }
        }
    }
}
