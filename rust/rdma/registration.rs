// SPDX-License-Identifier: GPL-2.0

//! Registration of a provider.
//!
//! The provider is a client of the core, too. The core takes a device from its clients in the
//! reverse order of their registration, and each of them waits for its objects on the device. As a
//! client the provider is called before the others have taken theirs away, and not only at the very
//! end. This also happens when the device changes its namespace. The clients get the device back
//! afterwards.

use core::marker::PhantomData;

use kernel::{
    error::to_result,
    ffi,
    prelude::*,
    types::Opaque, //
};

use crate::device::{
    Device,
    DeviceName,
    Driver, //
};
use base::bindings::{
    self,
    ib_client,
    ib_device, //
};

/// A registered provider. It stands for its devices: the drop unregisters them all.
///
/// A module has one at most. It makes this before its first device, and drops it when nothing can
/// make a device any more. The drop may sleep.
///
/// # Invariants
///
/// The client is registered, and does not move.
///
/// # Examples
///
/// ```ignore
/// struct Module {
///     _devices: DriverRegistration<MyDriver>,
/// }
///
/// impl kernel::Module for Module {
///     fn init(module: &'static ThisModule) -> Result<Self> {
///         // Made first, so that an error unregisters the devices that there are.
///         let devices = DriverRegistration::new(c"my_driver")?;
///         add_devices(module)?;
///         Ok(Self { _devices: devices })
///     }
/// }
/// ```
pub struct DriverRegistration<D: Driver> {
    client: KBox<Opaque<ib_client>>,
    _p: PhantomData<fn() -> D>,
}

// SAFETY: The core locks its lists.
unsafe impl<D: Driver> Send for DriverRegistration<D> {}

// SAFETY: There is nothing to be done with a shared reference.
unsafe impl<D: Driver> Sync for DriverRegistration<D> {}

impl<D: Driver> DriverRegistration<D> {
    /// Registers the provider as a client of that name. From then on the core calls
    /// [`Driver::coming`], [`Driver::named`] and [`Driver::going`]. May sleep.
    ///
    /// Fails with `ENOMEM`.
    pub fn new(name: &'static CStr) -> Result<Self> {
        let client = ib_client {
            name: name.as_char_ptr(),
            add: Some(add::<D>),
            remove: Some(remove::<D>),
            rename: Some(rename::<D>),
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

impl<D: Driver> Drop for DriverRegistration<D> {
    fn drop(&mut self) {
        // SAFETY: All devices of the driver have a `dealloc_driver`.
        unsafe { bindings::ib_unregister_driver(D::DRIVER_ID) };
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
    let this = unsafe { Device::<D>::from_raw(dev) };
    D::coming(this);
    // SAFETY: The core holds `devices_rwsem`, without which it neither renames nor moves a device.
    D::named(this, unsafe { DeviceName::from_raw(dev) });
    0
}

/// # Safety
///
/// Called by the core with a device that `add` wanted, and that is still registered.
unsafe extern "C" fn rename<D: Driver>(dev: *mut ib_device, _data: *mut ffi::c_void) {
    // SAFETY: By the requirements of this function.
    let this = unsafe { Device::<D>::from_raw(dev) };
    // SAFETY: As in `add`, the core holds `devices_rwsem`.
    D::named(this, unsafe { DeviceName::from_raw(dev) });
}

/// # Safety
///
/// Called by the core with a device that `add` wanted, and that is still registered.
unsafe extern "C" fn remove<D: Driver>(dev: *mut ib_device, _data: *mut ffi::c_void) {
    // SAFETY: By the requirements of this function.
    D::going(unsafe { Device::<D>::from_raw(dev) });
}
