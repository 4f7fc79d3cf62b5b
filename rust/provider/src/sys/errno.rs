// SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause

//! Error numbers, as verbs return them.

use super::bindings;
use core::{
    ffi::c_int,
    ptr::null_mut, //
};

/// Why a verb failed: a positive error number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Errno(c_int);

impl Errno {
    /// It is in use.
    pub(crate) const EBUSY: Self = Self(bindings::EBUSY as c_int);
    /// The caller may not do it.
    pub(crate) const EACCES: Self = Self(bindings::EACCES as c_int);
    /// The caller asks for something that cannot be.
    pub(crate) const EINVAL: Self = Self(bindings::EINVAL as c_int);
    /// The queue is lost.
    pub(crate) const EIO: Self = Self(bindings::EIO as c_int);
    /// There is no memory, or no room in a queue.
    pub(crate) const ENOMEM: Self = Self(bindings::ENOMEM as c_int);
    /// There is nothing.
    pub(crate) const ENOENT: Self = Self(bindings::ENOENT as c_int);
    /// The caller asks for something that the library or the driver does not have.
    pub(crate) const EOPNOTSUPP: Self = Self(bindings::EOPNOTSUPP as c_int);
    /// The kernel's answer makes no sense.
    pub(crate) const EPROTO: Self = Self(bindings::EPROTO as c_int);

    /// What a command of libibverbs returned.
    pub(super) fn check(ret: c_int) -> Result<(), Self> {
        match ret {
            0 => Ok(()),
            error => Err(Self(error.saturating_abs())),
        }
    }

    /// What a call of libc has left in `errno`.
    pub(super) fn last() -> Self {
        // SAFETY: No requirements.
        let errno = unsafe { bindings::__errno_location() };
        // SAFETY: It points to this thread's variable, which nobody else uses.
        Self(unsafe { errno.read() })
    }

    /// The number alone, for a result that is no failure.
    pub(super) fn number(self) -> c_int {
        self.0
    }

    /// Leaves the number in `errno`.
    fn set(self) {
        // SAFETY: No requirements.
        let errno = unsafe { bindings::__errno_location() };
        // SAFETY: It points to this thread's variable, which nobody else uses.
        unsafe { errno.write(self.0) };
    }
}

/// A result as verbs with an error number return it. The number is left in `errno` as well, as the
/// commands of libibverbs leave theirs: many programs print it.
pub(super) fn number(result: Result<(), Errno>) -> c_int {
    result.err().map_or(0, |error| {
        error.set();
        error.number()
    })
}

/// A result as the verbs return it that make an object: null and `errno` for an error.
pub(super) fn object<T>(result: Result<*mut T, Errno>) -> *mut T {
    result.unwrap_or_else(|error| {
        error.set();
        null_mut()
    })
}
