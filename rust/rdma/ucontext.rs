// SPDX-License-Identifier: GPL-2.0

//! User contexts: the use of a device by a program.

use core::marker::PhantomData;

use kernel::{
    error::to_result,
    prelude::*, //
};
use zerocopy::Immutable;

use crate::{
    callback::{
        missing,
        to_errno,
        Int, //
    },
    device::Driver,
    object::{
        self,
        impl_base,
        ObjId,
        Object, //
    },
    udata::Udata, //
};
use base::bindings::{
    self,
    ib_ucontext,
    ib_udata,
    uverbs_attr_bundle, //
};

/// A user context, with the provider's payload [`Driver::Ucontext`].
pub type Ucontext<D> = Object<D, ib_ucontext>;
/// A user context under construction.
pub type New<'a, D> = object::New<'a, D, ib_ucontext>;
/// A user context that is complete, as [`Operations::alloc`] returns it.
pub type Live<'a, D> = object::Live<'a, D, ib_ucontext>;

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
pub trait Operations<D: Driver>: Sized + Send + Sync {
    /// A program opens the device. A device that programs use needs this operation.
    ///
    /// On success the program has the answer that was written to `udata`.
    fn alloc<'a>(new: New<'a, D>, udata: &mut Udata<'_>) -> Result<Live<'a, D>> {
        missing()
    }

    /// A library wants to know the context, which another one in the program has opened: it is
    /// imported. The answer is the attribute [`Answer::ATTR`] of `UVERBS_METHOD_QUERY_CONTEXT`.
    fn query(ctx: &Ucontext<D>, answer: &mut Answer<'_>) -> Result {
        missing()
    }

    /// The program has closed the device, or has ended. All that was made in the context is gone.
    fn dealloc(ctx: &Ucontext<D>) {}

    /// The device goes away while a program has the context open. `dealloc` follows.
    fn disassociate(ctx: &Ucontext<D>) {}
}

#[vtable]
impl<D: Driver> Operations<D> for () {}

/// The driver's answer to [`Operations::query`].
///
/// # Invariants
///
/// `raw` is the bundle of a method that is being executed, which has the attribute.
pub struct Answer<'a> {
    raw: *mut uverbs_attr_bundle,
    _p: PhantomData<&'a mut uverbs_attr_bundle>,
}

impl Answer<'_> {
    /// The number of the attribute: the first of those that are drivers'.
    pub const ATTR: u32 = bindings::rust_rdma_attr_RUST_RDMA_ATTR_QUERY_CONTEXT;

    /// Writes the answer, cut off where the room for it ends. May sleep.
    pub fn respond<T: Immutable + IntoBytes>(&mut self, resp: &T) -> Result {
        // SAFETY: `raw` is valid by the type invariants. `resp` has no uninitialised bytes,
        // because it is `IntoBytes`, and none that change meanwhile, because it is `Immutable`.
        to_result(unsafe {
            bindings::uverbs_copy_to_struct_or_zero(
                self.raw,
                Self::ATTR as usize,
                (&raw const *resp).cast(),
                size_of::<T>(),
            )
        })
    }
}

/// The user who calls a verb. It exists only during the call.
pub struct Customer<'a, D: Driver>(&'a Ucontext<D>);

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
        let ctx = unsafe { bindings::udata_ucontext(udata) };
        if ctx.is_null() {
            return None;
        }
        // SAFETY: It is live during `'a` by the requirements of this function.
        Some(Self(unsafe { Ucontext::from_raw(ctx) }))
    }

    /// Names the user context, which outlives all that is made in it.
    pub fn id(self) -> ObjId {
        self.0.id()
    }

    /// The user context.
    pub fn ucontext(&self) -> &'a Ucontext<D> {
        self.0
    }
}

/// # Safety
///
/// As `callback` says.
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
/// As `callback` says.
pub(super) unsafe extern "C" fn query_ucontext<D: Driver>(
    ctx: *mut ib_ucontext,
    attrs: *mut uverbs_attr_bundle,
) -> Int {
    // INVARIANT: By *valid*. The core demands the attribute, as `rust_rdma_driver_def` says.
    let mut answer = Answer {
        raw: attrs,
        _p: PhantomData,
    };
    // SAFETY: By *live*.
    let ctx = unsafe { Ucontext::from_raw(ctx) };
    to_errno(<D::Ucontext>::query(ctx, &mut answer))
}

/// # Safety
///
/// As `callback` says.
pub(super) unsafe extern "C" fn dealloc_ucontext<D: Driver>(ctx: *mut ib_ucontext) {
    // SAFETY: By the requirements of this function.
    unsafe { Object::destroy(ctx, <D::Ucontext>::dealloc) };
}

/// # Safety
///
/// As `callback` says.
pub(super) unsafe extern "C" fn disassociate_ucontext<D: Driver>(ctx: *mut ib_ucontext) {
    // SAFETY: By the requirements of this function.
    <D::Ucontext>::disassociate(unsafe { Ucontext::from_raw(ctx) });
}
