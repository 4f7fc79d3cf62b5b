// SPDX-License-Identifier: GPL-2.0

//! Objects that the RDMA core allocates.
//!
//! The core allocates `size_ib_<x>` zeroed bytes, fills in the C structure at offset 0, calls
//! `create_<x>`, and after `destroy_<x>` returned 0 frees the memory at once
//! (`drivers/infiniband/core/verbs.c`). An [`Object`] passes through these states:
//!
//! 1. *Raw*: only the C structure is initialised. [`New`] gives access to it.
//! 2. *Live*: the payload is initialised, the creation reference is held.
//! 3. *Dying*: `destroy_<x>` was called; the provider drops its references.
//! 4. *Drained*: the creation reference was dropped and the last `ARef` is gone. The payload is
//!    dropped and the memory goes back to the core.

use core::{
    marker::PhantomData,
    ops::Deref,
    ptr::NonNull, //
};

use kernel::{
    prelude::*,
    sync::{
        aref::AlwaysRefCounted,
        atomic::{
            Acquire,
            Atomic,
            Release, //
        },
        Completion,
        Refcount, //
    },
    types::Opaque,
};

use super::{
    device::{
        Device,
        Driver, //
    },
    ops::Borrowed,
    ucontext::{
        Customer,
        Ucontext, //
    }, //
};
use crate::kapi::{
    bindings::{
        self,
        ib_device,
        ib_ucontext, //
    },
    version, //
};

/// A C structure of the core that can carry a payload of `D`.
///
/// # Safety
///
/// `device` returns the device of an object whose C structure the core has initialised.
pub(crate) unsafe trait Base<D: Driver>: Sized {
    /// The payload that follows the C structure.
    type Data: Send + Sync;

    /// The device of the object.
    ///
    /// # Safety
    ///
    /// `this` points to a C structure that the core has initialised.
    unsafe fn device(this: *const Self) -> *mut ib_device;
}

/// Has a C structure with a field `device` carry a payload: the associated type of [`Driver`] with
/// that name.
macro_rules! impl_base {
    ($base:ty => $payload:ident) => {
        // SAFETY: The core sets `device` before it calls the provider.
        unsafe impl<D: $crate::kapi::rdma::device::Driver> $crate::kapi::rdma::object::Base<D>
            for $base
        {
            type Data = D::$payload;

            unsafe fn device(this: *const Self) -> *mut $crate::kapi::bindings::ib_device {
                // SAFETY: By the requirements of this function; the field is never changed later.
                unsafe { (*this).device }
            }
        }
    };
}

pub(super) use impl_base;

/// An object of the core with the provider's payload.
///
/// # Invariants
///
/// `base` was initialised by the core. While a reference to the object or an `ARef` exists,
/// `refs` is positive, `data` is initialised and the core does not free the memory.
#[repr(C)]
pub(crate) struct Object<D: Driver, B: Base<D>> {
    base: Opaque<B>,
    refs: Refcount,
    dying: Atomic<bool>,
    user: bool,
    idle: Completion,
    data: B::Data,
}

// SAFETY: The C structure is only read, or changed through functions of the core that do their
// own locking; the payload is `Send` by the bound of `Base::Data`.
unsafe impl<D: Driver, B: Base<D>> Send for Object<D, B> {}

// SAFETY: As above; the payload is `Sync` by the bound of `Base::Data`.
unsafe impl<D: Driver, B: Base<D>> Sync for Object<D, B> {}

// SAFETY: `Object::destroy` gives the memory back only when `refs` has dropped to zero. Too many
// references saturate it, and then it never does.
unsafe impl<D: Driver, B: Base<D>> AlwaysRefCounted for Object<D, B> {
    fn inc_ref(&self) {
        self.refs.inc();
    }

    unsafe fn dec_ref(obj: NonNull<Self>) {
        // SAFETY: The caller owns a reference, so that the object is live up to the decrement.
        let this = unsafe { obj.as_ref() };
        if this.refs.dec_and_test() {
            // `destroy` waits for this, and takes the completion's lock after the waker has let
            // go of it: the object is there for as long as this call touches it.
            this.idle.complete_all();
        }
    }
}

impl<D: Driver, B: Base<D>> Deref for Object<D, B> {
    type Target = B::Data;

    fn deref(&self) -> &B::Data {
        &self.data
    }
}

/// Names an object of the core by its address, without a reference.
///
/// Two objects that exist at the same time differ. It is never dereferenced.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ObjId(usize);

impl<D: Driver, B: Base<D>> Object<D, B> {
    /// The number of bytes that the core has to allocate.
    pub(super) const SIZE: usize = {
        assert!(core::mem::offset_of!(Self, base) == 0);
        // The core uses kmalloc. It guarantees more alignment only for a power of two, which this
        // size usually is not.
        assert!(align_of::<Self>() <= bindings::ARCH_KMALLOC_MINALIGN);
        size_of::<Self>()
    };

    /// The object around a C structure.
    ///
    /// # Safety
    ///
    /// `base` is in the state *live* or *dying*, and stays there for `'a`.
    pub(super) unsafe fn from_raw<'a>(base: *const B) -> &'a Self {
        // SAFETY: `base` is at offset 0 of the object, which is initialised by the requirements
        // of this function.
        unsafe { &*base.cast::<Self>() }
    }

    pub(super) fn as_raw(&self) -> *mut B {
        self.base.get()
    }

    /// Takes a raw object to the state live and calls `publish` on it.
    ///
    /// # Safety
    ///
    /// `base` is a raw object of [`Self::SIZE`] bytes that nobody else uses yet.
    pub(super) unsafe fn create(
        base: *mut B,
        user: bool,
        data: impl PinInit<B::Data, Error>,
        publish: impl FnOnce(&Self) -> Result,
    ) -> Result {
        let this = base.cast::<Self>();
        // SAFETY: `this` points to enough memory by the requirements of this function, and the
        // field is not in use yet. The memory does not move until the core frees it.
        unsafe { version::init(data, &raw mut (*this).data) }?;
        // SAFETY: `this` points to enough memory, and the field is not in use yet.
        unsafe { (&raw mut (*this).refs).write(Refcount::new(1)) };
        // SAFETY: `this` points to enough memory, and the field is not in use yet.
        unsafe { (&raw mut (*this).dying).write(Atomic::new(false)) };
        // SAFETY: `this` points to enough memory, and the field is not in use yet.
        unsafe { (&raw mut (*this).user).write(user) };
        // SAFETY: `this` points to enough memory that does not move, and the field is not in use
        // yet.
        let Ok(()) = unsafe { version::init(Completion::new(), &raw mut (*this).idle) };

        // INVARIANT: All fields are initialised and the creation reference is held.
        // SAFETY: As just said.
        publish(unsafe { &*this }).inspect_err(|_| {
            // SAFETY: The object is live, and after an error the core frees it.
            unsafe { Self::destroy(base, |_| {}) };
        })
    }

    /// Takes a live object to the state drained, calling `quiesce` when it is dying.
    ///
    /// # Safety
    ///
    /// `base` is a live object. The core makes no use of the payload any more.
    pub(super) unsafe fn destroy(base: *mut B, quiesce: impl FnOnce(&Self)) {
        let this = base.cast::<Self>();
        {
            // SAFETY: The object is live by the requirements of this function.
            let this = unsafe { &*this };
            this.dying.store(true, Release);
            quiesce(this);
        }
        // SAFETY: This gives up the creation reference, of which nobody else makes use.
        unsafe { Self::dec_ref(NonNull::new_unchecked(this)) };
        // SAFETY: The field stays initialised; it has nothing to drop.
        unsafe { &(*this).idle }.wait_for_completion();
        // SAFETY: `refs` is zero: no reference is left, and none can be made.
        unsafe { core::ptr::drop_in_place(&raw mut (*this).data) };
    }

    /// The device the object belongs to.
    pub(crate) fn device(&self) -> &Device<D> {
        // SAFETY: The core initialised the structure by the type invariants.
        let dev = unsafe { B::device(self.as_raw()) };
        // SAFETY: A device outlives its objects; it is one of ours, or it would not have called us.
        unsafe { Device::from_raw(dev) }
    }

    /// Names this object.
    pub(crate) fn id(&self) -> ObjId {
        ObjId(self.as_raw() as usize)
    }

    /// Whether a user program, not a kernel consumer, owns the object.
    pub(crate) fn is_user(&self) -> bool {
        self.user
    }

    /// Whether its destruction has begun.
    pub(crate) fn is_destroying(&self) -> bool {
        self.dying.load(Acquire)
    }
}

/// An object under construction: the C structure is there, the payload is not.
pub(crate) struct New<'a, D: Driver, B: Base<D>> {
    base: *mut B,
    ucontext: *mut ib_ucontext,
    _p: Borrowed<'a, B, D>,
}

impl<'a, D: Driver, B: Base<D>> New<'a, D, B> {
    /// # Safety
    ///
    /// `base` is a raw object that nobody else uses during `'a`. `ucontext` is null or the live
    /// context of the user who asks for the object.
    pub(super) unsafe fn from_raw(base: *mut B, ucontext: *mut ib_ucontext) -> Self {
        Self {
            base,
            ucontext,
            _p: PhantomData,
        }
    }

    pub(super) fn as_raw(&self) -> *mut B {
        self.base
    }

    /// The device the object will belong to.
    pub(crate) fn device(&self) -> &'a Device<D> {
        // SAFETY: The core initialised the structure by the requirements of `from_raw`.
        let dev = unsafe { B::device(self.base) };
        // SAFETY: A device outlives its objects; it is one of ours, or it would not have called us.
        unsafe { Device::from_raw(dev) }
    }

    /// The user who asks for the object; none for a kernel consumer.
    pub(crate) fn customer(&self) -> Option<Customer<'a, D>> {
        if self.ucontext.is_null() {
            return None;
        }
        // SAFETY: It is live during `'a` by the requirements of `from_raw`.
        Some(Customer::new(unsafe { Ucontext::from_raw(self.ucontext) }))
    }
}
