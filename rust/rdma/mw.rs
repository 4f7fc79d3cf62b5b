// SPDX-License-Identifier: GPL-2.0

//! Memory windows.
//!
//! Only programs have them: the kernel's own consumers can neither allocate nor bind one. A bind is
//! a work request in a program's mapped queue, which the core never sees.

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
    pd::Pd,
    ucontext::Customer,
    udata::Udata, //
};
use base::bindings::{
    self,
    ib_mw,
    ib_udata, //
};

/// A memory window, with the provider's payload [`Driver::Mw`].
pub type Mw<D> = Object<D, ib_mw>;
/// A memory window under construction.
pub type New<'a, D> = object::New<'a, D, ib_mw>;
/// A memory window that is complete, as [`Operations::alloc`] returns it.
pub type Live<'a, D> = object::Live<'a, D, ib_mw>;

impl_base!(ib_mw => Mw);

/// The operations of memory windows, which their payload implements. `()` has none of them.
///
/// All of them may sleep.
///
/// # Examples
///
/// ```ignore
/// #[vtable]
/// impl mw::Operations<MyDriver> for Window {
///     fn alloc<'a>(
///         new: mw::New<'a, MyDriver>,
///         _udata: Option<&mut Udata<'_>>,
///     ) -> Result<mw::Live<'a, MyDriver>> {
///         let window = Window::new(new.pd(), new.kind())?;
///         new.set_rkey(window.key());
///         new.init(window)
///     }
///
///     // ...
/// }
/// ```
#[vtable]
#[allow(unused_variables, reason = "what is missing uses nothing")]
pub trait Operations<D: Driver>: Sized + Send + Sync {
    /// A program wants a window, which is not bound yet.
    fn alloc<'a>(new: New<'a, D>, udata: Option<&mut Udata<'_>>) -> Result<Live<'a, D>> {
        missing()
    }

    /// The window is being deallocated. It may be bound.
    fn dealloc(mw: &Mw<D>) {}
}

#[vtable]
impl<D: Driver> Operations<D> for () {}

/// The type of a window (`enum ib_mw_type`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Type {
    /// Any queue pair of its protection domain may use it.
    One,
    /// Only the queue pair that has bound it may use it.
    Two,
}

impl<'a, D: Driver> New<'a, D> {
    /// The protection domain of the window.
    pub fn pd(&self) -> &'a Pd<D> {
        // SAFETY: The core initialised the structure.
        let pd = unsafe { (*self.as_raw()).pd };
        // SAFETY: The core set it and counts its users.
        unsafe { Pd::from_raw(pd) }
    }

    /// The requested type.
    pub fn kind(&self) -> Type {
        // SAFETY: The core initialised the structure.
        match unsafe { (*self.as_raw()).type_ } {
            bindings::ib_mw_type_IB_MW_TYPE_1 => Type::One,
            // The core lets no other pass.
            _ => Type::Two,
        }
    }

    /// Tells the core the key, which the program gets.
    pub fn set_rkey(&self, rkey: u32) {
        // SAFETY: The core initialised the structure, and reads the key when this call is over.
        unsafe { (*self.as_raw()).rkey = rkey };
    }
}

impl<D: Driver> Mw<D> {
    /// The protection domain of the window.
    pub fn pd(&self) -> &Pd<D> {
        // SAFETY: The core initialised the structure.
        let pd = unsafe { (*self.as_raw()).pd };
        // SAFETY: The core set it and counts its users.
        unsafe { Pd::from_raw(pd) }
    }
}

/// # Safety
///
/// As `callback` says.
pub(super) unsafe extern "C" fn alloc_mw<D: Driver>(mw: *mut ib_mw, udata: *mut ib_udata) -> Int {
    // SAFETY: By *verb*, and by *live* for the context.
    let customer = unsafe { Customer::from_raw(udata) };
    // SAFETY: The core allocated `size_ib_mw` bytes for this call, and uses them only when it is
    // over. `udata` is valid by *verb*, and names the customer.
    to_errno(unsafe {
        Object::create(mw, udata, customer, |new, udata| <D::Mw>::alloc(new, udata))
    })
}

/// # Safety
///
/// As `callback` says.
pub(super) unsafe extern "C" fn dealloc_mw<D: Driver>(mw: *mut ib_mw) -> Int {
    // SAFETY: By the requirements of this function.
    unsafe { Object::destroy(mw, <D::Mw>::dealloc) };
    0
}
