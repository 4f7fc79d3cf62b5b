// SPDX-License-Identifier: GPL-2.0

//! Objects that the RDMA core allocates.
//!
//! The core allocates `size_ib_<x>` zeroed bytes, fills in the C structure at offset 0, calls
//! `create_<x>`, and after `destroy_<x>` returned 0 frees the memory at once
//! (`drivers/infiniband/core/verbs.c`). An [`Object`] passes through these states:
//!
//! 1. *Raw*: only the C structure is initialised. [`New`] gives access to it.
//! 2. *Live*: the payload is initialised, the creation reference is held: by [`Live`] while
//!    `create_<x>` runs, and by the core afterwards.
//! 3. *Dying*: `destroy_<x>` was called; the provider drops its references.
//! 4. *Drained*: the creation reference was dropped and the last `ARef` is gone. The payload is
//!    dropped and the memory goes back to the core.

use core::{
    cell::Cell,
    marker::PhantomData,
    mem::ManuallyDrop,
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
    types::Opaque, //
};

use crate::{
    device::{
        Device,
        Driver, //
    },
    ucontext::Customer,
    udata::Udata, //
};
use base::{
    bindings::{
        self,
        ib_device,
        ib_udata, //
    },
    version, //
};

/// A C structure of the core that can carry a payload of `D`.
///
/// # Safety
///
/// `device` returns the device of an object whose C structure the core has initialised.
pub unsafe trait Base<D: Driver>: Sized {
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
        unsafe impl<D: $crate::device::Driver> $crate::object::Base<D> for $base {
            type Data = D::$payload;

            unsafe fn device(this: *const Self) -> *mut base::bindings::ib_device {
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
pub struct Object<D: Driver, B: Base<D>> {
    base: Opaque<B>,
    refs: Refcount,
    dying: Atomic<bool>,
    user: bool,
    idle: Completion,
    data: B::Data,
}

// SAFETY: The C structure is only read, or changed through functions of the core that do their
// own locking. What is set here is set before anybody else sees the object, or under a lock of the
// core. The payload is `Send` by the bound of `Base::Data`.
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
pub struct ObjId(usize);

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

    /// Has `make` take a raw object to the state live. If that fails, the object is raw again.
    ///
    /// `make` gets a [`New`] of a lifetime of its own, so it cannot return any other object's
    /// [`Live`].
    ///
    /// # Safety
    ///
    /// `base` is a raw object of [`Self::SIZE`] bytes that nobody else uses yet. `udata` is null,
    /// or of the verb that is being executed, and `customer` is the one who asks.
    pub(super) unsafe fn create(
        base: *mut B,
        udata: *mut ib_udata,
        customer: Option<Customer<'_, D>>,
        make: impl for<'a> FnOnce(New<'a, D, B>, Option<&mut Udata<'_>>) -> Result<Live<'a, D, B>>,
    ) -> Result {
        let is_live = Cell::new(false);
        // INVARIANT: By the requirements of this function. Nobody else refers to `is_live`.
        let new = New {
            base,
            user: !udata.is_null(),
            customer,
            is_live: &is_live,
            _brand: PhantomData,
        };
        // SAFETY: By the requirements of this function.
        let mut udata = unsafe { Udata::from_raw(udata) };
        let result = make(new, udata.as_mut()).map(|live| {
            // The creation reference passes to the core.
            let _ = ManuallyDrop::new(live);
        });
        if result.is_err() && is_live.get() {
            // `make` has leaked the `Live`.
            // SAFETY: The object is live, and after an error the core only frees it.
            unsafe { Self::destroy(base, |_| {}) };
        }
        result
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
    pub fn device(&self) -> &Device<D> {
        // SAFETY: The core initialised the structure by the type invariants.
        let dev = unsafe { B::device(self.as_raw()) };
        // SAFETY: A device outlives its objects; it is one of ours, or it would not have called us.
        unsafe { Device::from_raw(dev) }
    }

    /// Names this object.
    pub fn id(&self) -> ObjId {
        ObjId(self.as_raw() as usize)
    }

    /// Whether a user program, not a kernel consumer, owns the object.
    pub fn is_user(&self) -> bool {
        self.user
    }

    /// Whether its destruction has begun.
    pub fn is_destroying(&self) -> bool {
        self.dying.load(Acquire)
    }
}

/// The mark of the object that is being made. Lifetimes that differ do not match, not even if one
/// is longer, and every object has a lifetime of its own.
type Brand<'a> = PhantomData<fn(&'a ()) -> &'a ()>;

/// An object under construction: the C structure is there, the payload is not.
///
/// [`Self::init`] makes a [`Live`] of it, which the operation returns.
///
/// # Examples
///
/// ```ignore
/// fn create<'a>(
///     new: cq::New<'a, MyDriver>,
///     attr: &cq::InitAttr,
///     udata: Option<&mut Udata<'_>>,
/// ) -> Result<cq::Live<'a, MyDriver>> {
///     let ring = Ring::new(attr.cqe)?;
///     let cq = new.init(pin_init!(Cq {
///         ring <- new_spinlock!(ring),
///     }))?;
///     // From here on, an error takes the object down and drops the payload.
///     if let Some(udata) = udata {
///         udata.respond_full(&Response { entries: cq.entries() })?;
///     }
///     Ok(cq)
/// }
/// ```
///
/// # Invariants
///
/// `base` is a raw object of [`Object::SIZE`] bytes that nobody else uses during `'a`, and
/// `is_live`, which is false, is of this object alone.
pub struct New<'a, D: Driver, B: Base<D>> {
    base: *mut B,
    user: bool,
    customer: Option<Customer<'a, D>>,
    is_live: &'a Cell<bool>,
    _brand: Brand<'a>,
}

impl<'a, D: Driver, B: Base<D>> New<'a, D, B> {
    pub(super) fn as_raw(&self) -> *mut B {
        self.base
    }

    /// The device the object will belong to.
    pub fn device(&self) -> &'a Device<D> {
        // SAFETY: The core initialised the structure by the type invariants.
        let dev = unsafe { B::device(self.base) };
        // SAFETY: A device outlives its objects; it is one of ours, or it would not have called us.
        unsafe { Device::from_raw(dev) }
    }

    /// The user who asks for the object; none for a kernel consumer, and for a user context.
    pub fn customer(&self) -> Option<Customer<'a, D>> {
        self.customer
    }

    /// Initialises the payload, and takes the object to the state live.
    ///
    /// Fails with the error of `data`. The object is then still raw, and stays so.
    pub fn init<E>(self, data: impl PinInit<B::Data, E>) -> Result<Live<'a, D, B>>
    where
        Error: From<E>,
    {
        let this = self.base.cast::<Object<D, B>>();
        // SAFETY: `this` points to enough memory by the type invariants, and the field is not in
        // use yet. The memory does not move until the core frees it.
        unsafe { version::init(data, &raw mut (*this).data) }?;
        // SAFETY: `this` points to enough memory, and the field is not in use yet.
        unsafe { (&raw mut (*this).refs).write(Refcount::new(1)) };
        // SAFETY: `this` points to enough memory, and the field is not in use yet.
        unsafe { (&raw mut (*this).dying).write(Atomic::new(false)) };
        // SAFETY: `this` points to enough memory, and the field is not in use yet.
        unsafe { (&raw mut (*this).user).write(self.user) };
        // SAFETY: `this` points to enough memory that does not move, and the field is not in use
        // yet.
        let Ok(()) = unsafe { version::init(Completion::new(), &raw mut (*this).idle) };
        self.is_live.set(true);
        // INVARIANT: All fields are initialised and the creation reference is held.
        Ok(Live {
            base: self.base,
            is_live: self.is_live,
            _p: PhantomData,
            _brand: PhantomData,
        })
    }
}

/// An object that is complete, as the operation that makes it returns it.
///
/// Dropping it takes the object down again: it waits until every [`ARef`](kernel::sync::aref::ARef)
/// is gone, and drops the payload, without a call of the operation that destroys an object. May
/// sleep.
///
/// # Invariants
///
/// `base` is a live object. This owns the creation reference, and `is_live`, which is true, is of
/// this object alone.
pub struct Live<'a, D: Driver, B: Base<D>> {
    base: *mut B,
    is_live: &'a Cell<bool>,
    _p: PhantomData<Object<D, B>>,
    _brand: Brand<'a>,
}

impl<D: Driver, B: Base<D>> Deref for Live<'_, D, B> {
    type Target = Object<D, B>;

    fn deref(&self) -> &Object<D, B> {
        // SAFETY: The object is live by the type invariants, as long as the borrow lasts.
        unsafe { Object::from_raw(self.base) }
    }
}

impl<D: Driver, B: Base<D>> Drop for Live<'_, D, B> {
    fn drop(&mut self) {
        self.is_live.set(false);
        // SAFETY: The object is live by the type invariants. The core does not use it: the
        // operation has not returned, and now can only fail.
        unsafe { Object::<D, B>::destroy(self.base, |_| {}) };
    }
}
