// SPDX-License-Identifier: GPL-2.0

//! User contexts.

use core::ptr::null_mut;

use kernel::{
    error::from_result,
    prelude::*, //
};

use super::{
    device::Driver,
    object::{
        impl_base,
        New,
        ObjId,
        Object, //
    },
    ops::Int,
    udata::Udata, //
};
use crate::kapi::bindings::{
    self,
    ib_ucontext,
    ib_udata, //
};

/// A user context.
pub(crate) type Ucontext<D> = Object<D, ib_ucontext>;

impl_base!(ib_ucontext => Ucontext);

/// The user for whom an object is being made. It exists only during the creation.
pub(crate) struct Customer<'a, D: Driver>(&'a Ucontext<D>);

impl<D: Driver> Clone for Customer<'_, D> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<D: Driver> Copy for Customer<'_, D> {}

impl<'a, D: Driver> Customer<'a, D> {
    pub(super) fn new(ctx: &'a Ucontext<D>) -> Self {
        Self(ctx)
    }

    /// Names the user context, which outlives all that is made in it.
    pub(crate) fn id(self) -> ObjId {
        self.0.id()
    }

    pub(super) fn ucontext(&self) -> &'a Ucontext<D> {
        self.0
    }
}

/// The context of the user who asks.
///
/// # Safety
///
/// As `ops` says.
pub(super) unsafe fn ucontext(udata: *mut ib_udata) -> *mut ib_ucontext {
    if udata.is_null() {
        return null_mut();
    }
    // SAFETY: By the requirements of this function.
    unsafe { bindings::kapi_udata_ucontext(udata) }
}

/// # Safety
///
/// As `ops` says.
pub(super) unsafe extern "C" fn alloc_ucontext<D: Driver>(
    ctx: *mut ib_ucontext,
    udata: *mut ib_udata,
) -> Int {
    // SAFETY: By the requirements of this function.
    let new = unsafe { New::<D, _>::from_raw(ctx, null_mut()) };
    // SAFETY: By *verb*: null, or of the verb that this call executes.
    let udata = unsafe { Udata::from_raw(udata) };
    from_result(|| {
        let mut udata = udata.ok_or(EINVAL)?;
        let init = D::alloc_ucontext(&new)?;
        // SAFETY: The core allocated the object.
        unsafe { Object::create(ctx, true, init, |ctx| D::ucontext_created(ctx, &mut udata)) }?;
        Ok(0)
    })
}

/// # Safety
///
/// As `ops` says.
pub(super) unsafe extern "C" fn dealloc_ucontext<D: Driver>(ctx: *mut ib_ucontext) {
    // SAFETY: By the requirements of this function.
    unsafe { Object::destroy(ctx, D::dealloc_ucontext) };
}

/// # Safety
///
/// As `ops` says.
pub(super) unsafe extern "C" fn disassociate_ucontext<D: Driver>(ctx: *mut ib_ucontext) {
    // SAFETY: By the requirements of this function.
    D::disassociate_ucontext(unsafe { Ucontext::from_raw(ctx) });
}
