// SPDX-License-Identifier: GPL-2.0

//! User contexts.

use kernel::prelude::*;

use super::{
    device::Driver,
    object::{
        self,
        impl_base,
        ObjId,
        Object, //
    },
    ops::{
        to_errno,
        Int, //
    },
};
use crate::kapi::bindings::{
    self,
    ib_ucontext,
    ib_udata, //
};

/// A user context.
pub(crate) type Ucontext<D> = Object<D, ib_ucontext>;
/// A user context under construction.
pub(crate) type New<'a, D> = object::New<'a, D, ib_ucontext>;
/// A user context that is complete, as `alloc_ucontext` returns it.
pub(crate) type Live<'a, D> = object::Live<'a, D, ib_ucontext>;

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
    /// The user who asks for an object; none for a kernel consumer.
    ///
    /// # Safety
    ///
    /// `udata` is null, or of a verb that is being executed during `'a`, in a live context.
    pub(super) unsafe fn from_raw(udata: *mut ib_udata) -> Option<Self> {
        if udata.is_null() {
            return None;
        }
        // SAFETY: By the requirements of this function.
        let ctx = unsafe { bindings::kapi_udata_ucontext(udata) };
        if ctx.is_null() {
            return None;
        }
        // SAFETY: It is live during `'a` by the requirements of this function.
        Some(Self(unsafe { Ucontext::from_raw(ctx) }))
    }

    /// Names the user context, which outlives all that is made in it.
    pub(crate) fn id(self) -> ObjId {
        self.0.id()
    }

    pub(super) fn ucontext(&self) -> &'a Ucontext<D> {
        self.0
    }
}

/// # Safety
///
/// As `ops` says.
pub(super) unsafe extern "C" fn alloc_ucontext<D: Driver>(
    ctx: *mut ib_ucontext,
    udata: *mut ib_udata,
) -> Int {
    // SAFETY: The core allocated the object for this call. `udata` is valid by *verb*.
    to_errno(unsafe {
        Object::create(ctx, udata, None, |new, udata| {
            D::alloc_ucontext(new, udata.ok_or(EINVAL)?)
        })
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
