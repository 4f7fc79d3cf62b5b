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
    device::Device,
    ops::{
        Borrowed,
        Driver, //
    },
};
use crate::kapi::{
    bindings::{
        self,
        ib_cq,
        ib_device,
        ib_pd,
        ib_qp,
        ib_srq,
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

macro_rules! impl_base {
    ($($base:ty => $payload:ident),* $(,)?) => {$(
        // SAFETY: The core sets `device` before it calls the provider.
        unsafe impl<D: Driver> Base<D> for $base {
            type Data = D::$payload;

            unsafe fn device(this: *const Self) -> *mut ib_device {
                // SAFETY: By the requirements of this function; the field is never changed later.
                unsafe { (*this).device }
            }
        }
    )*};
}

impl_base! {
    ib_ucontext => Ucontext,
    ib_pd => Pd,
    ib_cq => Cq,
    ib_qp => Qp,
    ib_srq => Srq,
}

/// A user context.
pub(crate) type Ucontext<D> = Object<D, ib_ucontext>;
/// A protection domain.
pub(crate) type Pd<D> = Object<D, ib_pd>;
/// A completion queue.
pub(crate) type Cq<D> = Object<D, ib_cq>;
/// A queue pair.
pub(crate) type Qp<D> = Object<D, ib_qp>;
/// A shared receive queue.
pub(crate) type Srq<D> = Object<D, ib_srq>;

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

/// The name of a QP in a [`Wc`](super::Wc): its address, which is handed to the consumer and never
/// dereferenced here.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct QpTag(*mut ib_qp);

// SAFETY: The pointer is a value only.
unsafe impl Send for QpTag {}

// SAFETY: The pointer is a value only.
unsafe impl Sync for QpTag {}

impl QpTag {
    pub(super) fn as_raw(self) -> *mut ib_qp {
        self.0
    }
}

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
        Some(Customer(unsafe { Ucontext::from_raw(self.ucontext) }))
    }
}

/// The user for whom an object is being made. It exists only during the creation.
pub(crate) struct Customer<'a, D: Driver>(&'a Ucontext<D>);

impl<D: Driver> Clone for Customer<'_, D> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<D: Driver> Copy for Customer<'_, D> {}

impl<'a, D: Driver> Customer<'a, D> {
    /// Names the user context, which outlives all that is made in it.
    pub(crate) fn id(self) -> ObjId {
        self.0.id()
    }

    pub(super) fn ucontext(&self) -> &'a Ucontext<D> {
        self.0
    }
}

impl<'a, D: Driver> New<'a, D, ib_qp> {
    /// The protection domain of the QP.
    pub(crate) fn pd(&self) -> &'a Pd<D> {
        // SAFETY: The core initialised the structure.
        let pd = unsafe { (*self.base).pd };
        // SAFETY: The core checked it (`create_qp` of verbs.c needs one) and counts its users.
        unsafe { Pd::from_raw(pd) }
    }
}

impl<'a, D: Driver> New<'a, D, ib_srq> {
    /// The protection domain of the SRQ.
    pub(crate) fn pd(&self) -> &'a Pd<D> {
        // SAFETY: The core initialised the structure.
        let pd = unsafe { (*self.base).pd };
        // SAFETY: The core set it and counts its users.
        unsafe { Pd::from_raw(pd) }
    }
}

impl<D: Driver> New<'_, D, ib_cq> {
    /// Tells the core how many entries the CQ has.
    pub(crate) fn set_cqe(&self, entries: u32) {
        // SAFETY: The object is ours alone until its creation is complete.
        unsafe { (*self.base).cqe = entries.min(i32::MAX as u32) as i32 };
    }
}

/// An asynchronous event of a QP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum QpEvent {
    Fatal,
    ReqErr,
    AccessErr,
    LastWqeReached,
}

/// An asynchronous event of an SRQ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SrqEvent {
    LimitReached,
}

/// An asynchronous event of a CQ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CqEvent {
    Err,
}

impl<D: Driver> Qp<D> {
    /// The number of the QP.
    pub(crate) fn qp_num(&self) -> u32 {
        // SAFETY: The structure is initialised; only `set_qp_num` writes the field.
        unsafe { (&raw const (*self.as_raw()).qp_num).read_volatile() }
    }

    /// Sets the number of the QP, once, before user or consumer can see it.
    pub(crate) fn set_qp_num(&self, num: u32) {
        // SAFETY: The structure is initialised. The field is a plain word.
        unsafe { (&raw mut (*self.as_raw()).qp_num).write_volatile(num) };
    }

    /// The name of the QP in completions.
    pub(crate) fn tag(&self) -> QpTag {
        QpTag(self.as_raw())
    }

    /// Reports an event to the consumer. Any context; no lock of the provider may be held.
    pub(crate) fn event(&self, event: QpEvent) {
        if self.is_destroying() {
            return;
        }
        let qp = self.as_raw();
        let mut ev: bindings::ib_event = pin_init::zeroed();
        ev.event = match event {
            QpEvent::Fatal => bindings::ib_event_type_IB_EVENT_QP_FATAL,
            QpEvent::ReqErr => bindings::ib_event_type_IB_EVENT_QP_REQ_ERR,
            QpEvent::AccessErr => bindings::ib_event_type_IB_EVENT_QP_ACCESS_ERR,
            QpEvent::LastWqeReached => bindings::ib_event_type_IB_EVENT_QP_LAST_WQE_REACHED,
        };
        // SAFETY: The structure is initialised.
        ev.device = unsafe { (*qp).device };
        ev.element.qp = qp;
        // SAFETY: As above; the core sets the handler before creation.
        if let Some(handler) = unsafe { (*qp).event_handler } {
            // SAFETY: The QP is live. Its context was set along with the handler.
            let context = unsafe { (*qp).qp_context };
            // SAFETY: The QP exists, and the event describes it.
            unsafe { handler(&mut ev, context) };
        }
    }
}

impl<D: Driver> Srq<D> {
    /// Reports an event to the consumer. Any context; no lock of the provider may be held.
    pub(crate) fn event(&self, event: SrqEvent) {
        if self.is_destroying() {
            return;
        }
        let srq = self.as_raw();
        let mut ev: bindings::ib_event = pin_init::zeroed();
        ev.event = match event {
            SrqEvent::LimitReached => bindings::ib_event_type_IB_EVENT_SRQ_LIMIT_REACHED,
        };
        // SAFETY: The structure is initialised.
        ev.device = unsafe { (*srq).device };
        ev.element.srq = srq;
        // SAFETY: As above; the core sets the handler before creation.
        if let Some(handler) = unsafe { (*srq).event_handler } {
            // SAFETY: The SRQ is live. Its context was set along with the handler.
            let context = unsafe { (*srq).srq_context };
            // SAFETY: The SRQ exists, and the event describes it.
            unsafe { handler(&mut ev, context) };
        }
    }
}

impl<D: Driver> Cq<D> {
    /// Calls the completion handler. Any context; no lock of the provider may be held.
    pub(crate) fn notify(&self) {
        if self.is_destroying() {
            return;
        }
        let cq = self.as_raw();
        // SAFETY: The structure is initialised; the core sets the handler before the CQ is used.
        if let Some(handler) = unsafe { (*cq).comp_handler } {
            // SAFETY: The CQ is live. Its context was set along with the handler.
            let context = unsafe { (*cq).cq_context };
            // SAFETY: The CQ exists.
            unsafe { handler(cq, context) };
        }
    }

    /// Reports an event to the consumer. Any context; no lock of the provider may be held.
    pub(crate) fn event(&self, event: CqEvent) {
        if self.is_destroying() {
            return;
        }
        let cq = self.as_raw();
        let mut ev: bindings::ib_event = pin_init::zeroed();
        ev.event = match event {
            CqEvent::Err => bindings::ib_event_type_IB_EVENT_CQ_ERR,
        };
        // SAFETY: The structure is initialised.
        ev.device = unsafe { (*cq).device };
        ev.element.cq = cq;
        // SAFETY: As above; the core sets the handler before creation.
        if let Some(handler) = unsafe { (*cq).event_handler } {
            // SAFETY: The CQ is live. Its context was set along with the handler.
            let context = unsafe { (*cq).cq_context };
            // SAFETY: The CQ exists, and the event describes it.
            unsafe { handler(&mut ev, context) };
        }
    }
}
