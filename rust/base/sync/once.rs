// SPDX-License-Identifier: GPL-2.0

//! Loads and stores of atomics that order nothing, without a call.
//!
//! [`Atomic::load`] and [`Atomic::store`] call functions of the kernel's C code, unless that was
//! built with inlined helpers. For [`Relaxed`] those functions are `READ_ONCE()` and
//! `WRITE_ONCE()`, which are volatile accesses. With `CONFIG_LTO` on arm64, `READ_ONCE()` also
//! orders the accesses that depend on its value; [`AccessOnce::read_once`] does not.
//!
//! C header: [`include/asm-generic/rwonce.h`](srctree/include/asm-generic/rwonce.h)
//!
//! [`Relaxed`]: kernel::sync::atomic::Relaxed

use kernel::sync::atomic::{
    Atomic,
    AtomicType, //
};

/// Access to an atomic as by `READ_ONCE()` and `WRITE_ONCE()`. Any context.
pub trait AccessOnce<T> {
    /// The value now. Orders nothing, as [`Atomic::load`] with `Relaxed`.
    fn read_once(&self) -> T;

    /// Replaces the value. Orders nothing, as [`Atomic::store`] with `Relaxed`.
    fn write_once(&self, value: T);
}

impl<T: AtomicType> AccessOnce<T> for Atomic<T> {
    #[inline(always)]
    fn read_once(&self) -> T {
        const { assert!(size_of::<T>() <= size_of::<usize>(), "more than one access") };
        // SAFETY: `as_ptr` is valid and aligned. Others may store at the same time: they do so
        // with atomics of the kernel, whose memory model allows that for a volatile access.
        unsafe { self.as_ptr().read_volatile() }
    }

    #[inline(always)]
    fn write_once(&self, value: T) {
        const { assert!(size_of::<T>() <= size_of::<usize>(), "more than one access") };
        // SAFETY: As in `read_once`. With `ARCH_SUPPORTS_ATOMIC_RMW`, which the kernel's
        // `atomic/internal.rs` asserts, one access is atomic against read-modify-write operations.
        unsafe { self.as_ptr().write_volatile(value) }
    }
}
