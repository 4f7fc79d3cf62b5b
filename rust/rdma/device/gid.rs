// SPDX-License-Identifier: GPL-2.0

//! Callbacks of the table of GIDs.
//!
//! When a provider reports a change, the core reads the whole table again, and removes each GID,
//! equal or not, before it stores the new one (`add_modify_gid`). rdma_cm reads GID 0 of an iWARP
//! port for each bind and each connection, of whatever address, for its netdev
//! (`cma_validate_port`): without one it refuses (`ENODEV`), and with one that goes at that moment
//! it dereferences a null pointer. So GIDs that have not changed must stay.
//!
//! For iWARP the core leaves a GID alone whose port has no network device
//! (`config_non_roce_gid_cache`). It asks for that by `get_netdev`, after it asked for the GID, and
//! [`get_netdev`] tells it so once, if the GID is the one that it has.

use core::ptr::null_mut;

use kernel::{
    current,
    error::from_result,
    prelude::*,
    sync::{
        atomic::{
            Atomic,
            Relaxed, //
        },
        rcu, //
    }, //
};

use crate::{
    callback::{
        count,
        Int, //
    },
    device::{
        Device,
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

impl<D: Driver> Device<D> {
    /// Has the core read the GIDs again (`IB_EVENT_GID_CHANGE`). Any context.
    pub fn gids_changed(&self) {
        let mut event: bindings::ib_event = pin_init::zeroed();
        event.event = bindings::ib_event_type_IB_EVENT_GID_CHANGE;
        event.device = self.as_raw();
        event.element.port_num = PORT;
        // SAFETY: The device is initialised; the event is copied.
        unsafe { bindings::ib_dispatch_event(&event) };
    }

    /// The GID that the core has at that index of its table. Zeros: none. Any context.
    pub fn cached_gid(&self, index: usize) -> [u8; 16] {
        let mut gid = ib_gid { raw: [0; 16] };
        let index = count(index);
        // SAFETY: The device is initialised, and there is room for the result, which the core
        // writes only if there is a GID.
        let _ = unsafe { bindings::rdma_query_gid(self.as_raw(), PORT, index, &mut gid) };
        // SAFETY: All members are as long, and have no other contents.
        unsafe { gid.raw }
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
        if raw == dev.cached_gid(index) {
            dev.kept_gid.0.write_once(current!().pid());
        }
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
    // Only this thread could have stored its number, or replace it.
    let thread = current!().pid();
    if this.kept_gid.0.cmpxchg(thread, 0, Relaxed).is_ok() {
        return null_mut();
    }
    // SAFETY: By *live*: the core made its array of ports, which starts at 0, before it asks.
    let netdev = unsafe { &raw const (*(*dev).port_data.add(PORT as usize)).netdev };
    let _guard = rcu::read_lock();
    // SAFETY: The field is valid; the core changes it as a whole.
    let netdev = unsafe { netdev.read_volatile() };
    if !netdev.is_null() {
        // SAFETY: The port had a reference in this grace period, and a network device does not end
        // in the one in which its last reference was put.
        unsafe { bindings::dev_hold(netdev) };
    }
    netdev
}
