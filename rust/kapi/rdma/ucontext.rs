// SPDX-License-Identifier: GPL-2.0

//! User contexts: the use of a device by a program.

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
        missing,
        to_errno,
        Int, //
    },
    udata::Udata, //
};
use crate::kapi::bindings::{
    self,
    ib_ucontext,
    ib_udata, //
};

/// A user context, with the provider's payload [`Driver::Ucontext`].
pub(crate) type Ucontext<D> = Object<D, ib_ucontext>;
/// A user context under construction.
pub(crate) type New<'a, D> = object::New<'a, D, ib_ucontext>;
/// A user context that is complete, as [`Operations::alloc`] returns it.
pub(crate) type Live<'a, D> = object::Live<'a, D, ib_ucontext>;

impl_base!(ib_ucontext => Ucontext);

/// The operations of user contexts, which their payload implements. `()` has none of them.
///
/// All of them may sleep.
///
/// # Examples
///
/// ```ignore
/// struct Context;
///
/// #[vtable]
/// impl ucontext::Operations<MyDriver> for Context {
///     fn alloc<'a>(
///         new: ucontext::New<'a, MyDriver>,
///         udata: &mut Udata<'_>,
///     ) -> Result<ucontext::Live<'a, MyDriver>> {
///         let ctx = new.init(Self)?;
///         udata.respond_full(&AllocResponse { version: 1 })?;
///         Ok(ctx)
///     }
/// }
/// ```
#[vtable]
#[allow(unused_variables, reason = "what is missing uses nothing")]
pub(crate) trait Operations<D: Driver>: Sized + Send + Sync {
    /// A program opens the device. A device that programs use needs this operation.
    ///
    /// On success the program has the answer that was written to `udata`.
    fn alloc<'a>(new: New<'a, D>, udata: &mut Udata<'_>) -> Result<Live<'a, D>> {
        missing()
    }

    /// The program has closed the device, or has ended. All that was made in the context is gone.
    fn dealloc(ctx: &Ucontext<D>) {}

    /// The device goes away while a program has the context open. `dealloc` follows.
    fn disassociate(ctx: &Ucontext<D>) {}
}

#[vtable]
impl<D: Driver> Operations<D> for () {}

/// The user who calls a verb. It exists only during the call.
pub(crate) struct Customer<'a, D: Driver>(&'a Ucontext<D>);

impl<D: Driver> Clone for Customer<'_, D> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<D: Driver> Copy for Customer<'_, D> {}

impl<'a, D: Driver> Customer<'a, D> {
    /// The user who asks; none for a kernel consumer, or if the verb has no object.
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

    /// The user context.
    pub(crate) fn ucontext(&self) -> &'a Ucontext<D> {
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
    // SAFETY: The core allocated `size_ib_ucontext` bytes for this call, and uses them only when it
    // is over. `udata` is valid by *verb*. A context is made in no other.
    to_errno(unsafe {
        Object::create(ctx, udata, None, |new, udata| {
            <D::Ucontext>::alloc(new, udata.ok_or(EINVAL)?)
        })
    })
}

/// # Safety
///
/// As `ops` says.
pub(super) unsafe extern "C" fn dealloc_ucontext<D: Driver>(ctx: *mut ib_ucontext) {
    // SAFETY: By the requirements of this function.
    unsafe { Object::destroy(ctx, <D::Ucontext>::dealloc) };
}

/// # Safety
///
/// As `ops` says.
pub(super) unsafe extern "C" fn disassociate_ucontext<D: Driver>(ctx: *mut ib_ucontext) {
    // SAFETY: By the requirements of this function.
    <D::Ucontext>::disassociate(unsafe { Ucontext::from_raw(ctx) });
}
