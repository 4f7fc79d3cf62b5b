// SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause

//! Objects of libibverbs with what the provider keeps with each.

use super::errno::Errno;
use core::{
    cell::UnsafeCell,
    mem::{
        ManuallyDrop,
        MaybeUninit, //
    },
    ptr::NonNull,
    sync::atomic::{
        AtomicUsize,
        Ordering::{
            Acquire,
            Relaxed,
            Release, //
        }, //
    },
};
use std::alloc::{
    alloc_zeroed,
    dealloc,
    Layout, //
};

/// An object of C, which begins it, and what belongs to it.
#[repr(C)]
struct Object<Base, Payload> {
    base: Base,
    payload: MaybeUninit<Payload>,
}

/// The memory of an object that is being made: all zeros, which is what a C provider's `calloc()`
/// gives.
///
/// # Invariants
///
/// `object` was allocated for its type, and is freed only by this.
pub(super) struct Fresh<Base, Payload> {
    object: NonNull<Object<Base, Payload>>,
}

impl<Base, Payload> Fresh<Base, Payload> {
    /// Allocates one.
    pub(super) fn new() -> Result<Self, Errno> {
        let layout = const {
            let layout = Layout::new::<Object<Base, Payload>>();
            assert!(layout.size() != 0);
            layout
        };
        // SAFETY: The size is not zero.
        let object = unsafe { alloc_zeroed(layout) };
        // INVARIANT: As just allocated.
        Ok(Self {
            object: NonNull::new(object.cast()).ok_or(Errno::ENOMEM)?,
        })
    }

    /// Allocates one that libibverbs does not fill in.
    pub(super) fn with(base: Base) -> Result<Self, Errno> {
        let mut object = Self::new()?;
        // SAFETY: Allocated by the type invariants, and nobody else knows it.
        unsafe { object.base().write(base) };
        Ok(object)
    }

    /// The object of C, for libibverbs to fill in. It stays at this address for its life.
    pub(super) fn base(&mut self) -> *mut Base {
        self.base_ptr().as_ptr()
    }

    /// The same, for who keeps it.
    pub(super) fn base_ptr(&mut self) -> NonNull<Base> {
        self.object.cast()
    }

    /// The finished object, which [`free`] frees.
    pub(super) fn finish(self, payload: Payload) -> *mut Base {
        let object = ManuallyDrop::new(self).object;
        // SAFETY: Allocated by the type invariants, and nobody else knows the payload.
        unsafe { &mut (*object.as_ptr()).payload }.write(payload);
        object.as_ptr().cast()
    }
}

impl<Base, Payload> Drop for Fresh<Base, Payload> {
    fn drop(&mut self) {
        let layout = Layout::new::<Object<Base, Payload>>();
        // SAFETY: Allocated with this layout by the type invariants.
        unsafe { dealloc(self.object.as_ptr().cast(), layout) };
    }
}

/// What belongs to the object.
///
/// # Safety
///
/// `base` came from [`Fresh::finish`] for these types, and is not freed during the lifetime.
pub(super) unsafe fn payload<'a, Base, Payload>(base: *mut Base) -> &'a Payload {
    let object: *const Object<Base, Payload> = base.cast();
    // SAFETY: Allocated by the requirements of this function; the payload is only shared.
    let payload = unsafe { &(*object).payload };
    // SAFETY: `finish` has written it.
    unsafe { payload.assume_init_ref() }
}

/// Frees an object and drops what belongs to it.
///
/// # Safety
///
/// `base` came from [`Fresh::finish`] for these types, and nobody uses it any more.
pub(super) unsafe fn free<Base, Payload>(base: *mut Base) {
    let object: *mut Object<Base, Payload> = base.cast();
    // SAFETY: Allocated by the requirements of this function, which also make it exclusive.
    let payload = unsafe { &mut (*object).payload };
    // SAFETY: `finish` has written it.
    unsafe { payload.assume_init_drop() };
    // SAFETY: Allocated with this layout by the requirements of this function.
    unsafe { dealloc(object.cast(), Layout::new::<Object<Base, Payload>>()) };
}

/// How many others use an object.
#[derive(Default)]
pub(super) struct Users(AtomicUsize);

impl Users {
    /// `EBUSY` if there are any.
    pub(super) fn none(&self) -> Result<(), Errno> {
        match self.0.load(Acquire) {
            0 => Ok(()),
            _ => Err(Errno::EBUSY),
        }
    }
}

/// A use of an object, which [`Users::none`] sees.
///
/// # Invariants
///
/// The users are valid until this is dropped, and it is one of them.
pub(super) struct Use(NonNull<Users>);

impl Use {
    /// One more use.
    ///
    /// # Safety
    ///
    /// The object of `users` is not freed while [`Users::none`] fails.
    pub(super) unsafe fn new(users: &Users) -> Self {
        users.0.fetch_add(1, Relaxed);
        // INVARIANT: It was just counted, so the users stay valid by the requirements.
        Self(users.into())
    }
}

impl Drop for Use {
    fn drop(&mut self) {
        // SAFETY: Valid by the type invariants.
        unsafe { self.0.as_ref() }.0.fetch_sub(1, Release);
    }
}

/// What belongs to a critical section of a program, from one call to another; empty outside.
pub(super) struct Section<T>(UnsafeCell<Option<T>>);

impl<T> Section<T> {
    /// One that nobody is in.
    pub(super) fn new() -> Self {
        Self(UnsafeCell::new(None))
    }

    /// One with something inside.
    pub(super) fn of(it: T) -> Self {
        Self(UnsafeCell::new(Some(it)))
    }

    /// What is inside.
    ///
    /// # Safety
    ///
    /// Nobody else is in the section, or calls this, during the lifetime.
    #[allow(clippy::mut_from_ref, reason = "the caller is alone in the section")]
    pub(super) unsafe fn inside(&self) -> &mut Option<T> {
        // SAFETY: By the requirements of this function.
        unsafe { &mut *self.0.get() }
    }
}
