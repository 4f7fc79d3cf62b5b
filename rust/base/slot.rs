// SPDX-License-Identifier: GPL-2.0

//! One place per module for the data of callbacks without a context pointer.
//!
//! `struct rdma_link_ops` and other C callbacks carry no private pointer, so the module's data
//! has to be found through a static. [`install`] fills the place, and the drop of [`Installed`]
//! empties it.

use core::any::Any;
use kernel::{
    prelude::*,
    sync::{
        atomic::{
            Atomic,
            Relaxed, //
        },
        Arc,
        SetOnce, //
    }, //
};

kernel::sync::global_lock! {
    // SAFETY: Every user of the lock checks `READY` first, which is set after `init()`.
    unsafe(uninit) static PLACE: Mutex<Option<Arc<dyn Any + Send + Sync>>> = None;
}

/// Whether somebody initialises `PLACE`, or has.
static CLAIMED: Atomic<bool> = Atomic::new(false);

/// Whether `PLACE` is initialised.
static READY: SetOnce<()> = SetOnce::new();

/// Keeps the value reachable; dropping it empties the place.
pub struct Installed(());

/// Makes `value` reachable through [`with`]. Once per module, from its `init`.
///
/// Fails with `EBUSY` if a value was installed before. May sleep.
pub fn install(value: Arc<dyn Any + Send + Sync>) -> Result<Installed> {
    if CLAIMED.xchg(true, Relaxed) {
        return Err(EBUSY);
    }
    // SAFETY: Called once, because the claim is never given back.
    unsafe { PLACE.init() };
    *PLACE.lock() = Some(value);
    READY.populate(());
    Ok(Installed(()))
}

/// Calls `f` with the installed value, if there is one of type `T`. May sleep.
pub fn with<T: Any, R>(f: impl FnOnce(&T) -> R) -> Option<R> {
    READY.as_ref()?;
    let place = PLACE.lock();
    place.as_ref()?.downcast_ref::<T>().map(f)
}

impl Drop for Installed {
    fn drop(&mut self) {
        let old = PLACE.lock().take();
        // The lock is released first, because the last drop may sleep for long.
        drop(old);
    }
}
