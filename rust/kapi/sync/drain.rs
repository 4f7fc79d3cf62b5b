// SPDX-License-Identifier: GPL-2.0

//! Users of an object, waited for at its end.

use kernel::{
    prelude::*,
    sync::{
        atomic::{
            Atomic,
            Full,
            Relaxed, //
        },
        Completion, //
    },
    task::might_sleep, //
};

/// The top bit: `drain()` began, no new users.
const CLOSED: u32 = 1 << 31;

/// Counts the users of an object whose memory somebody else frees.
///
/// Unlike a reference count it has an owner, who calls [`DrainRef::drain`] before the memory goes.
#[pin_data]
pub(crate) struct DrainRef {
    /// Users, one for the owner, and [`CLOSED`].
    state: Atomic<u32>,
    #[pin]
    gone: Completion,
}

impl DrainRef {
    /// Makes a count that holds the owner's reference.
    pub(crate) fn new() -> impl PinInit<Self> {
        pin_init!(Self {
            state: Atomic::new(1),
            gone <- Completion::new(),
        })
    }

    /// Takes a reference, unless the owner has begun to wait. Any context.
    #[must_use]
    pub(crate) fn try_get(&self) -> bool {
        self.change(|old| {
            let users = old & !CLOSED;
            (old & CLOSED == 0 && users < CLOSED - 1).then_some(old.wrapping_add(1))
        })
        .is_some()
    }

    /// Gives back a reference that [`Self::try_get`] gave. Any context.
    pub(crate) fn put(&self) {
        // One too many must not free the object under its users.
        let old = self.change(|old| (old & !CLOSED > 0).then_some(old.wrapping_sub(1)));
        match old {
            Some(old) if old & !CLOSED == 1 => self.gone.complete_all(),
            Some(_) => (),
            None => {
                kernel::warn_on!(true);
            }
        }
    }

    /// Refuses new users and waits until those there are have gone. May sleep.
    pub(crate) fn drain(&self) {
        might_sleep();
        let first = self.change(|old| (old & CLOSED == 0).then_some(old | CLOSED));
        if first.is_some() {
            self.put();
        }
        self.gone.wait_for_completion();
    }

    /// Applies `f` atomically; returns the old value, or `None` if `f` refuses.
    fn change(&self, f: impl Fn(u32) -> Option<u32>) -> Option<u32> {
        let mut old = self.state.load(Relaxed);
        loop {
            match self.state.cmpxchg(old, f(old)?, Full) {
                Ok(old) => return Some(old),
                Err(now) => old = now,
            }
        }
    }
}
