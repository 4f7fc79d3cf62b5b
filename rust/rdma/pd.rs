// SPDX-License-Identifier: GPL-2.0

//! Protection domains.

use kernel::prelude::*;

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
        Object, //
    },
    ucontext::Customer,
    udata::Udata, //
};
use base::bindings::{
    ib_pd,
    ib_udata, //
};

/// A protection domain, with the provider's payload [`Driver::Pd`]. Regions, SRQs and QPs are made
/// in one, and a QP only reaches regions of its own.
pub type Pd<D> = Object<D, ib_pd>;
/// A protection domain under construction.
pub type New<'a, D> = object::New<'a, D, ib_pd>;
/// A protection domain that is complete, as [`Operations::alloc`] returns it.
pub type Live<'a, D> = object::Live<'a, D, ib_pd>;

impl_base!(ib_pd => Pd);

/// The operations of protection domains, which their payload implements. `()` has none of them.
///
/// All of them may sleep.
///
/// # Examples
///
/// `rust/samples/rdma_null.rs` has protection domains, and counts them.
#[vtable]
#[allow(unused_variables, reason = "what is missing uses nothing")]
pub trait Operations<D: Driver>: Sized + Send + Sync {
    /// A consumer wants a protection domain. `udata` is there if the consumer is a program.
    fn alloc<'a>(new: New<'a, D>, udata: Option<&mut Udata<'_>>) -> Result<Live<'a, D>> {
        missing()
    }

    /// The protection domain is being deallocated. Nothing is in it any more.
    fn dealloc(pd: &Pd<D>) {}
}

#[vtable]
impl<D: Driver> Operations<D> for () {}

/// # Safety
///
/// As `callback` says.
pub(super) unsafe extern "C" fn alloc_pd<D: Driver>(pd: *mut ib_pd, udata: *mut ib_udata) -> Int {
    // SAFETY: By *verb*, and by *live* for the context.
    let customer = unsafe { Customer::from_raw(udata) };
    // SAFETY: The core allocated `size_ib_pd` bytes for this call, and uses them only when it is
    // over. `udata` is valid by *verb*, and names the customer.
    to_errno(unsafe {
        Object::create(pd, udata, customer, |new, udata| <D::Pd>::alloc(new, udata))
    })
}

/// # Safety
///
/// As `callback` says.
pub(super) unsafe extern "C" fn dealloc_pd<D: Driver>(
    pd: *mut ib_pd,
    _udata: *mut ib_udata,
) -> Int {
    // SAFETY: By the requirements of this function.
    unsafe { Object::destroy(pd, <D::Pd>::dealloc) };
    0
}
