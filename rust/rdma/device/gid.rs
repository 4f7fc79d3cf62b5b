// SPDX-License-Identifier: GPL-2.0

//! Callbacks of the table of GIDs.
//!
//! When a provider reports a change, the core reads the whole table again, and removes each GID,
//! equal or not, before it stores the new one (`add_modify_gid`). For each bind and each
//! connection, of whatever address, rdma_cm takes the network device of an iWARP port from GID 0
//! (`cma_validate_port`). It refuses (`ENODEV`) if there is no GID 0, and dereferences a null
//! pointer if the core removes GID 0 at that moment. So GIDs that have not changed must stay.
//!
//! The core skips a GID of an iWARP port without a network device (`config_non_roce_gid_cache`). It
//! calls `query_gid`, and then `get_netdev`. If the GID is the one in the core's table,
//! [`get_netdev`] returns none, once.

use core::ptr::null_mut;

use kernel::{
    current,
    error::from_result,
    prelude::*,
    sync::atomic::{
        Atomic,
        Relaxed, //
    }, //
};

use crate::{
    callback::{
        count,
        Int, //
    },
    device::{
        Device,
        DeviceRef,
        Driver,
        PORT, //
    }, //
};
use base::{
    bindings::{
        self,
        ib_device,
        ib_gid,
        net_device, //
    },
    sync::AccessOnce, //
};

/// The thread that asked last for a GID that the core has, until it asks for the network device.
/// 0: none.
///
/// The core asks for GIDs under a lock, so there is one such thread.
pub(super) struct KeptGid(Atomic<i32>);

impl KeptGid {
    pub(super) fn new() -> Self {
        Self(Atomic::new(0))
    }
}

impl<D: Driver> DeviceRef<D> {
    /// Reports that the table has changed (`IB_EVENT_GID_CHANGE`); the core then reads it again,
    /// later. Any context.
    pub fn gids_changed(&self) {
        let mut event: bindings::ib_event = pin_init::zeroed();
        event.event = bindings::ib_event_type_IB_EVENT_GID_CHANGE;
        event.device = self.as_raw();
        event.element.port_num = PORT;
        // SAFETY: The device is registered, which the reference keeps; the event is copied.
        unsafe { bindings::ib_dispatch_event(&event) };
    }
}

impl<D: Driver> Device<D> {
    /// The GID that the core has at that index of its table. Zeros: none. Any context.
    pub fn cached_gid(&self, index: usize) -> [u8; 16] {
        let mut gid = ib_gid { raw: [0; 16] };
        if self.has_gid_table() {
            let index = count(index);
            // SAFETY: The table is there, and stays as long as the device; there is room for the
            // result, which the core writes only if there is a GID.
            let _ = unsafe { bindings::rdma_query_gid(self.as_raw(), PORT, index, &mut gid) };
        }
        // SAFETY: All members are as long, and have no other contents.
        unsafe { gid.raw }
    }

    /// Whether the core has made its table, as it does when the device is registered.
    fn has_gid_table(&self) -> bool {
        // SAFETY: The device is valid. The core sets the field once.
        let ports = unsafe { (*self.as_raw()).port_data };
        if ports.is_null() {
            return false;
        }
        // SAFETY: The array starts at 0, and is there as long as the device.
        let port = unsafe { &raw const (*ports.add(PORT as usize)).cache.gid };
        // SAFETY: As above. The core sets the field before anybody knows the device.
        !unsafe { *port }.is_null()
    }
}

/// # Safety
///
/// As `callback` says.
pub(crate) unsafe extern "C" fn query_gid<D: Driver>(
    dev: *mut ib_device,
    _port: u32,
    index: Int,
    gid: *mut ib_gid,
) -> Int {
    // SAFETY: By the requirements of this function.
    let dev = unsafe { Device::<D>::from_raw(dev) };
    from_result(|| {
        let index = usize::try_from(index).map_err(|_| EINVAL)?;
        let raw = D::query_gid(dev, index)?;
        let kept = raw == dev.cached_gid(index);
        let thread = if kept { current!().pid() } else { 0 };
        dev.kept_gid.0.write_once(thread);
        // SAFETY: By the requirements of this function.
        unsafe { *gid = ib_gid { raw } };
        Ok(0)
    })
}

/// # Safety
///
/// As `callback` says.
///
/// The result is null or has a reference for the caller.
pub(crate) unsafe extern "C" fn get_netdev<D: Driver>(
    dev: *mut ib_device,
    _port: u32,
) -> *mut net_device {
    // SAFETY: By the requirements of this function.
    let this = unsafe { Device::<D>::from_raw(dev) };
    // Only this thread can have stored its number. An idle CPU, in whose place a softirq may run,
    // has number 0.
    let thread = current!().pid();
    if thread != 0 && this.kept_gid.0.cmpxchg(thread, 0, Relaxed).is_ok() {
        return null_mut();
    }
    // SAFETY: By *live*: the core made its array of ports, which starts at 0, before it asks.
    let port = unsafe { (*dev).port_data.add(PORT as usize) };
    // SAFETY: The lock is initialised along with the array, and is there as long.
    let lock = unsafe { &raw mut (*port).netdev_lock };
    // SAFETY: The lock is valid, and no caller holds it: the core calls this in its place.
    let flags = unsafe { bindings::spin_lock_irqsave(lock) };
    // SAFETY: The core changes the field with the lock held.
    let netdev = unsafe { (*port).netdev };
    if !netdev.is_null() {
        // SAFETY: The port has a reference for as long as the lock is held.
        unsafe { bindings::dev_hold(netdev) };
    }
    // SAFETY: Locked above, with these flags.
    unsafe { bindings::spin_unlock_irqrestore(lock, flags) };
    netdev
}
