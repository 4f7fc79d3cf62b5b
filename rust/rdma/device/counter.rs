// SPDX-License-Identifier: GPL-2.0

//! Callbacks of counters that queue pairs are bound to.

use core::ptr::null_mut;

use crate::{
    callback::{
        to_errno,
        Int, //
    },
    device::{
        callbacks::alloc_hw_port_stats,
        Device,
        Driver,
        PORT, //
    },
    qp::Qp, //
};
use base::bindings::{
    ib_qp,
    rdma_counter,
    rdma_hw_stats, //
};

/// # Safety
///
/// As `callback` says.
///
/// The core adds the values of all counters to those of the port, so their number is the same.
pub(crate) unsafe extern "C" fn counter_alloc_stats<D: Driver>(
    counter: *mut rdma_counter,
) -> *mut rdma_hw_stats {
    // SAFETY: By the requirements of this function.
    let dev = unsafe { (*counter).device };
    // SAFETY: By *live*: the core makes counters for devices that are registered.
    unsafe { alloc_hw_port_stats::<D>(dev, PORT) }
}

/// # Safety
///
/// As `callback` says. The structure is zeroed, and there is nothing behind it.
pub(crate) unsafe extern "C" fn counter_init(_counter: *mut rdma_counter) {}

/// # Safety
///
/// As `callback` says.
pub(crate) unsafe extern "C" fn counter_update_stats<D: Driver>(counter: *mut rdma_counter) -> Int {
    // SAFETY: By the requirements of this function.
    let dev = unsafe { (*counter).device };
    // SAFETY: By *live*: it is the device that the counter was made for.
    let dev = unsafe { Device::<D>::from_raw(dev) };
    // SAFETY: By *live*: statistics are made along with a counter, which the core has locked.
    let (id, stats) = unsafe { ((*counter).id, (*counter).stats) };
    // SAFETY: `counter_alloc_stats` made it for as many values.
    let values = unsafe { (*stats).value.as_mut_slice(dev.stats().len()) };
    D::counter_values(dev, Some(id), values);
    0
}

/// # Safety
///
/// As `callback` says. The counter is locked.
pub(crate) unsafe extern "C" fn counter_bind_qp<D: Driver>(
    counter: *mut rdma_counter,
    raw: *mut ib_qp,
    _port: u32,
) -> Int {
    // SAFETY: By the requirements of this function.
    let qp = unsafe { Qp::<D>::from_raw(raw) };
    // SAFETY: As above. A new one has no number.
    let id = Some(unsafe { (*counter).id }).filter(|id| *id != 0);
    to_errno(D::bind_counter(qp, id).map(|id| {
        // SAFETY: As above; the field is the provider's to set.
        unsafe { (*counter).id = id };
        // SAFETY: The core has locked the counter; the field is the provider's to set.
        unsafe { (*raw).counter = counter };
    }))
}

/// # Safety
///
/// As `callback` says. The counter is locked.
pub(crate) unsafe extern "C" fn counter_unbind_qp<D: Driver>(raw: *mut ib_qp, _port: u32) -> Int {
    // SAFETY: By the requirements of this function.
    D::unbind_counter(unsafe { Qp::<D>::from_raw(raw) });
    // SAFETY: As above; the field is the provider's to set.
    unsafe { (*raw).counter = null_mut() };
    0
}

/// # Safety
///
/// As `callback` says.
pub(crate) unsafe extern "C" fn counter_dealloc<D: Driver>(counter: *mut rdma_counter) -> Int {
    // SAFETY: By the requirements of this function.
    let (dev, id) = unsafe { ((*counter).device, (*counter).id) };
    // SAFETY: By *live*: it is the device that the counter was made for.
    D::close_counter(unsafe { Device::<D>::from_raw(dev) }, id);
    0
}
