// SPDX-License-Identifier: GPL-2.0

//! Notification of when consumers may use a device, and of when they no longer may.
//!
//! The core takes a device from its clients in the reverse order of their registration, and each of
//! them waits for its objects on the device. A provider is called at the very end, unless it is a
//! client, too. This also happens when the device changes its namespace. The clients get the device
//! back afterwards.

use core::marker::PhantomData;

use kernel::{
    error::to_result,
    ffi,
    prelude::*,
    types::Opaque, //
};

use super::device::{
    Device,
    Driver, //
};
use crate::kapi::bindings::{
    self,
    ib_client,
    ib_device, //
};

/// Calls [`Driver::going`] and [`Driver::coming`]. It is made before any device, and dropped after
/// all of them. The drop may sleep.
///
/// # Invariants
///
/// The client is registered, and does not move.
pub(crate) struct Notice<D: Driver> {
    client: KBox<Opaque<ib_client>>,
    _p: PhantomData<fn() -> D>,
}

// SAFETY: The core locks its lists.
unsafe impl<D: Driver> Send for Notice<D> {}

// SAFETY: There is nothing to be done with a shared reference.
unsafe impl<D: Driver> Sync for Notice<D> {}

impl<D: Driver> Notice<D> {
    /// Registers it. May sleep.
    pub(crate) fn register(name: &'static CStr) -> Result<Self> {
        let client = ib_client {
            name: name.as_char_ptr(),
            add: Some(add::<D>),
            remove: Some(remove::<D>),
            ..pin_init::zeroed()
        };
        let client = KBox::new(Opaque::new(client), GFP_KERNEL)?;
        // SAFETY: It is complete, and stays where it is until it is unregistered.
        to_result(unsafe { bindings::ib_register_client(client.get()) })?;
        // INVARIANT: Just registered.
        Ok(Self {
            client,
            _p: PhantomData,
        })
    }
}

impl<D: Driver> Drop for Notice<D> {
    fn drop(&mut self) {
        // SAFETY: Registered by the type invariants. It waits for calls.
        unsafe { bindings::ib_unregister_client(self.client.get()) };
    }
}

/// # Safety
///
/// Called by the core with a device that is being registered.
unsafe extern "C" fn add<D: Driver>(dev: *mut ib_device) -> ffi::c_int {
    // SAFETY: By the requirements of this function.
    if !unsafe { Device::<D>::is_ours(dev) } {
        // The core does not call again for this device.
        return ENODEV.to_errno();
    }
    // SAFETY: `is_ours` says that it is of `D`, and the core keeps it registered during the call.
    D::coming(unsafe { Device::<D>::from_raw(dev) });
    0
}

/// # Safety
///
/// Called by the core with a device that `add` wanted, and that is still registered.
unsafe extern "C" fn remove<D: Driver>(dev: *mut ib_device, _data: *mut ffi::c_void) {
    // SAFETY: By the requirements of this function.
    D::going(unsafe { Device::<D>::from_raw(dev) });
}
