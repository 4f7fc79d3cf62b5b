// SPDX-License-Identifier: GPL-2.0

//! Protection domains.

use super::{
    device::Driver,
    object::{
        self,
        impl_base,
        Object, //
    },
    ops::{
        to_errno,
        Int, //
    },
    ucontext::Customer, //
};
use crate::kapi::bindings::{
    ib_pd,
    ib_udata, //
};

/// A protection domain.
pub(crate) type Pd<D> = Object<D, ib_pd>;
/// A protection domain under construction.
pub(crate) type New<'a, D> = object::New<'a, D, ib_pd>;
/// A protection domain that is complete, as `alloc_pd` returns it.
pub(crate) type Live<'a, D> = object::Live<'a, D, ib_pd>;

impl_base!(ib_pd => Pd);

/// # Safety
///
/// As `ops` says.
pub(super) unsafe extern "C" fn alloc_pd<D: Driver>(pd: *mut ib_pd, udata: *mut ib_udata) -> Int {
    // SAFETY: By *verb*, and by *live* for the context.
    let customer = unsafe { Customer::from_raw(udata) };
    // SAFETY: The core allocated the object for this call. `udata` is valid by *verb*.
    to_errno(unsafe { Object::create(pd, udata, customer, |new, udata| D::alloc_pd(new, udata)) })
}

/// # Safety
///
/// As `ops` says.
pub(super) unsafe extern "C" fn dealloc_pd<D: Driver>(
    pd: *mut ib_pd,
    _udata: *mut ib_udata,
) -> Int {
    // SAFETY: By the requirements of this function.
    unsafe { Object::destroy(pd, D::dealloc_pd) };
    0
}
