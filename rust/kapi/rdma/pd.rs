// SPDX-License-Identifier: GPL-2.0

//! Protection domains.

use kernel::error::from_result;

use super::{
    device::Driver,
    object::{
        impl_base,
        New,
        Object, //
    },
    ops::Int,
    ucontext::ucontext, //
};
use crate::kapi::bindings::{
    ib_pd,
    ib_udata, //
};

/// A protection domain.
pub(crate) type Pd<D> = Object<D, ib_pd>;

impl_base!(ib_pd => Pd);

/// # Safety
///
/// As `ops` says.
pub(super) unsafe extern "C" fn alloc_pd<D: Driver>(pd: *mut ib_pd, udata: *mut ib_udata) -> Int {
    // SAFETY: By the requirements of this function.
    let new = unsafe { New::<D, _>::from_raw(pd, ucontext(udata)) };
    from_result(|| {
        let init = D::alloc_pd(&new)?;
        // SAFETY: The core allocated the object.
        unsafe { Object::<D, _>::create(pd, !udata.is_null(), init, |_| Ok(())) }?;
        Ok(0)
    })
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
