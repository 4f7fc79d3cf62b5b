// SPDX-License-Identifier: GPL-2.0

//! Differences between the kernel versions that this module builds for. `Kbuild` distinguishes
//! them: it sets `linux_since_7_3` from the version of the tree.

use core::borrow::Borrow;

use pin_init::PinInit;

/// A full memory barrier between CPUs.
#[cfg(linux_since_7_3)]
pub fn smp_mb() {
    use kernel::sync::barrier;

    barrier::smp_mb(barrier::Full);
}

#[cfg(not(linux_since_7_3))]
pub use kernel::sync::barrier::smp_mb;

/// Runs `init` on `slot`.
///
/// # Safety
///
/// As for `PinInit::__init` of the crate `pin_init`: `slot` is valid for writes, is not touched
/// after an error, and does not move until it is dropped.
pub unsafe fn init<T, E>(init: impl PinInit<T, E>, slot: *mut T) -> Result<(), E> {
    #[cfg(linux_since_7_3)]
    // SAFETY: By the requirements of this function.
    return unsafe { init.__init(slot) };
    #[cfg(not(linux_since_7_3))]
    // SAFETY: By the requirements of this function.
    return unsafe { init.__pinned_init(slot) };
}

/// The value of a module parameter. `ModuleParamAccess::value` returns a reference before Linux
/// 7.3, and a copy since then.
pub fn param(value: impl Borrow<u32>) -> u32 {
    *value.borrow()
}

/// An integer in which the core counts objects: `int` in `ib_device_attr` and `ib_port_attr`
/// before Linux 7.3, `u32` in the former since.
pub trait Count {
    /// The greatest number not above `n`.
    fn at_most(n: u32) -> Self;
}

impl Count for i32 {
    fn at_most(n: u32) -> Self {
        Self::try_from(n).unwrap_or(Self::MAX)
    }
}

impl Count for u32 {
    fn at_most(n: u32) -> Self {
        n
    }
}

/// The module to which the implementations of `#[vtable]` traits in a crate without `module!`
/// belong, for the macro of Linux 7.3. Nothing takes a reference to it, so no trait of the kernel
/// crate may be implemented with it.
#[cfg(linux_since_7_3)]
pub struct LocalModule;

#[cfg(linux_since_7_3)]
impl kernel::ModuleMetadata for LocalModule {
    const NAME: &'static kernel::str::CStr = c"";

    const THIS_MODULE: kernel::ThisModule = {
        // SAFETY: The functions of the kernel that take a module ignore null.
        unsafe { kernel::ThisModule::from_ptr(core::ptr::null_mut()) }
    };
}
