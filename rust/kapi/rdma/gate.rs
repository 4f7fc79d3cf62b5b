// SPDX-License-Identifier: GPL-2.0

//! A gate that can be closed while nobody is inside.

use core::{
    cell::UnsafeCell,
    ops::Deref, //
};

use kernel::{
    prelude::*,
    types::{
        NotThreadSafe,
        Opaque, //
    },
};

use crate::kapi::bindings::{
    self,
    rwlock_t, //
};

/// A value that is used while the gate is open.
///
/// [`Self::update`] runs when the last user is gone: what users did inside has happened by then, and
/// if it closes the gate, does not happen afterwards.
///
/// All of it may be called from softirq and with interrupts off, but not from a hard interrupt. So
/// never inside of a lock that hard interrupts take: they would wait for a CPU that waits for the
/// one they hold up. And no gate twice on one CPU, not even to enter: whoever wants to update it in
/// between is let in first if interrupts are off, and waits for the other entry.
///
/// # Invariants
///
/// `open` and `value` are read under the lock, and changed under its write side.
#[pin_data]
pub(crate) struct InUse<T = ()> {
    #[pin]
    lock: Opaque<rwlock_t>,
    open: UnsafeCell<bool>,
    value: UnsafeCell<T>,
}

// SAFETY: The lock serialises; the value may be dropped, and changed, by any thread.
unsafe impl<T: Send> Send for InUse<T> {}

// SAFETY: The lock serialises; users on several CPUs share the value, the write side changes it.
unsafe impl<T: Send + Sync> Sync for InUse<T> {}

impl<T> InUse<T> {
    /// A gate, open or closed.
    pub(crate) fn new(open: bool, value: T) -> impl PinInit<Self> {
        pin_init!(Self {
            lock <- Opaque::ffi_init(|slot| {
                // SAFETY: `slot` is a valid place for a lock.
                unsafe { bindings::siw_helper_gate_init(slot) }
            }),
            open: UnsafeCell::new(open),
            value: UnsafeCell::new(value),
        })
    }

    /// Goes inside, if the gate is open.
    ///
    /// The user may not sleep, and may not close or update a gate. It is in the way of those who
    /// do: one piece of work of bounded size is what it may do.
    pub(crate) fn enter(&self) -> Option<Access<'_, T>> {
        // SAFETY: The lock is initialised and pinned.
        let bh = unsafe { bindings::siw_helper_gate_enter(self.lock.get()) };
        let access = Access {
            gate: self,
            bh,
            _not_send: NotThreadSafe,
        };
        // SAFETY: The read side of the lock is held.
        unsafe { *self.open.get() }.then_some(access)
    }

    /// Changes the value and the state of the gate while nobody is inside.
    ///
    /// What the change replaces should be returned, to be dropped outside of the lock.
    pub(crate) fn update<R>(&self, change: impl FnOnce(&mut T, &mut bool) -> R) -> R {
        // SAFETY: The lock is initialised and pinned.
        let bh = unsafe { bindings::siw_helper_gate_lock(self.lock.get()) };
        // SAFETY: The write side of the lock is held.
        let value = unsafe { &mut *self.value.get() };
        // SAFETY: As above.
        let open = unsafe { &mut *self.open.get() };
        let ret = change(value, open);
        // SAFETY: Locked above.
        unsafe { bindings::siw_helper_gate_unlock(self.lock.get(), bh) };
        ret
    }
}

/// A user inside of an [`InUse`].
///
/// # Invariants
///
/// The read side of the gate's lock is held.
pub(crate) struct Access<'a, T> {
    gate: &'a InUse<T>,
    bh: bool,
    _not_send: NotThreadSafe,
}

impl<T> Deref for Access<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: The read side of the lock is held by the type invariants.
        unsafe { &*self.gate.value.get() }
    }
}

impl<T> Drop for Access<'_, T> {
    fn drop(&mut self) {
        // SAFETY: The read side of the lock is held by the type invariants.
        unsafe { bindings::siw_helper_gate_exit(self.gate.lock.get(), self.bh) };
    }
}
