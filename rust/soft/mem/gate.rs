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
    }, //
};

use base::bindings::{
    self,
    soft_gate, //
};

/// A value that is used while the gate is open.
///
/// [`Self::update`] runs when the last user has left. The effects of users inside are visible to
/// it, and if it closes the gate, there are none afterwards. It waits for at most one piece of work
/// of each CPU: later users are let in after it. To enter costs a barrier, and no write to memory
/// that CPUs share.
///
/// All methods may be called from softirq and with interrupts off, but not from a hard interrupt.
/// Nor may they be called under a lock that hard interrupts take: an interrupt would wait for a CPU
/// that waits for the interrupted one. Gates do not nest, neither in a user nor in a change, but
/// for that of memory on demand, which comes inside. Users and changes may neither sleep nor take a
/// lock that sleeps with `PREEMPT_RT`.
///
/// # Examples
///
/// ```ignore
/// // `gate` is a pinned `InUse<KVec<u8>>`. Until the access is dropped, nobody changes the vector.
/// if let Some(bytes) = gate.enter() {
///     dst.copy_from_slice(bytes.get(..dst.len()).ok_or(EINVAL)?);
/// }
///
/// // No access is left, and none comes.
/// let old = gate.update(|bytes, open| {
///     *open = false;
///     core::mem::take(bytes)
/// });
/// drop(old);
/// ```
///
/// # Invariants
///
/// `open` and `value` are read inside of the gate or with it locked, and changed with it locked.
#[pin_data]
pub struct InUse<T = ()> {
    #[pin]
    gate: Opaque<soft_gate>,
    open: UnsafeCell<bool>,
    value: UnsafeCell<T>,
}

// SAFETY: The gate serialises; the value may be dropped, and changed, by any thread.
unsafe impl<T: Send> Send for InUse<T> {}

// SAFETY: The gate serialises; users on several CPUs share the value, its lock's holder changes it.
unsafe impl<T: Send + Sync> Sync for InUse<T> {}

impl<T> InUse<T> {
    /// A gate, open or closed.
    pub fn new(open: bool, value: T) -> impl PinInit<Self> {
        pin_init!(Self {
            gate <- Opaque::ffi_init(|slot| {
                // SAFETY: `slot` is a valid place for a gate.
                unsafe { bindings::soft_gate_init(slot) }
            }),
            open: UnsafeCell::new(open),
            value: UnsafeCell::new(value),
        })
    }

    /// Enters, if the gate is open.
    ///
    /// The user delays updates, so it may do only one piece of work of bounded size.
    pub fn enter(&self) -> Option<Access<'_, T>> {
        // SAFETY: The gate is initialised and pinned.
        let stayed = unsafe { bindings::soft_gate_enter(self.gate.get()) };
        // INVARIANT: Just entered.
        let access = Access {
            gate: self,
            stayed,
            _not_send: NotThreadSafe,
        };
        // SAFETY: Inside, the state is only read.
        unsafe { *self.open.get() }.then_some(access)
    }

    /// Changes the value and the state of the gate while nobody is inside.
    ///
    /// The change should return what it replaces, so that the drop is outside of the lock.
    pub fn update<R>(&self, change: impl FnOnce(&mut T, &mut bool) -> R) -> R {
        // SAFETY: The gate is initialised and pinned.
        let stayed = unsafe { bindings::soft_gate_lock(self.gate.get()) };
        // SAFETY: The gate is locked: nobody else refers to the value.
        let value = unsafe { &mut *self.value.get() };
        // SAFETY: The gate is locked: nobody else refers to the state.
        let open = unsafe { &mut *self.open.get() };
        let ret = change(value, open);
        // SAFETY: Locked above.
        unsafe { bindings::soft_gate_unlock(self.gate.get(), stayed) };
        ret
    }
}

/// A user inside of an [`InUse`].
///
/// # Invariants
///
/// This CPU is inside of the gate, and stays on this piece of work until it leaves.
pub struct Access<'a, T> {
    gate: &'a InUse<T>,
    stayed: bool,
    _not_send: NotThreadSafe,
}

impl<T> Deref for Access<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: Inside, by the type invariants, the value is only read.
        unsafe { &*self.gate.value.get() }
    }
}

impl<T> Drop for Access<'_, T> {
    fn drop(&mut self) {
        // SAFETY: This CPU is inside of a gate by the type invariants.
        unsafe { bindings::soft_gate_exit(self.stayed) };
    }
}
