// SPDX-License-Identifier: GPL-2.0

//! Callbacks of the RDMA core: their contract, and the conversions that all of them need.
//!
//! The callbacks only convert arguments and results. All have one contract: the RDMA core calls
//! them as `include/rdma/ib_verbs.h` says, for a device that
//! [`Device::new`](super::device::Device::new) made, and for objects of that device which the
//! callbacks have created and not destroyed yet. `SAFETY:` comments use these names for what
//! follows from it:
//!
//! - *live*: the device is initialised, and objects are live, with all that they refer to.
//! - *valid*: pointers to attributes, lists and results are valid for the call, and nobody else
//!   accesses what they point to.
//! - *verb*: `udata` is null for a kernel consumer, or else of a verb that is being executed.
//!
//! Callbacks overlap, those for one object included. Only those of iw_cm, which finds QPs by number
//! and holds references, overlap the creation or the destruction of an object.

use core::marker::PhantomData;

use kernel::{
    error::VTABLE_DEFAULT_ERROR,
    ffi,
    prelude::*, //
};

/// The mark of a value that is borrowed from the core for a call of `D`.
pub(super) type Borrowed<'a, T, D> = PhantomData<(&'a T, fn() -> D)>;

/// An operation that the provider does not have: the core never gets its callback.
pub(super) fn missing<T>() -> T {
    build_error!(VTABLE_DEFAULT_ERROR)
}

/// The `int` of C.
pub(super) type Int = ffi::c_int;

/// 0, or the error number, for C.
pub(super) fn to_errno(result: Result) -> Int {
    result.map_or_else(Error::to_errno, |()| 0)
}

/// A count for C.
pub(super) fn count(n: usize) -> Int {
    Int::try_from(n).unwrap_or(Int::MAX)
}
