// SPDX-License-Identifier: GPL-2.0

//! Callbacks of devices and their port.

use kernel::{
    error::from_result,
    ffi,
    prelude::*, //
};

use crate::{
    callback::{
        count,
        to_errno,
        Int, //
    },
    device::{
        attr::PKEYS,
        Device,
        Driver, //
    },
    text::Clipped,
    udata::Udata, //
};
use base::{
    bindings::{
        self,
        ib_device,
        ib_device_attr,
        ib_port_attr,
        ib_port_immutable,
        ib_udata,
        rdma_hw_stats, //
    },
    context, //
};

/// The P_Key of a port without partitions (`IB_DEFAULT_PKEY_FULL`).
const DEFAULT_PKEY: u16 = 0xffff;

/// # Safety
///
/// As `callback` says.
pub(crate) unsafe extern "C" fn query_device<D: Driver>(
    dev: *mut ib_device,
    attr: *mut ib_device_attr,
    udata: *mut ib_udata,
) -> Int {
    // SAFETY: By the requirements of this function.
    let dev = unsafe { Device::<D>::from_raw(dev) };
    // SAFETY: By *valid*: only this call writes to `attr`.
    let attr = unsafe { &mut *attr };
    // SAFETY: By *verb*: null, or of the verb that this call executes.
    let mut udata = unsafe { Udata::from_raw(udata) };
    from_result(|| {
        if let Some(udata) = &mut udata {
            udata.expect_no_request()?;
        }
        D::query_device(dev).fill(attr);
        if let Some(udata) = &mut udata {
            udata.respond_nothing()?;
        }
        Ok(0)
    })
}

/// # Safety
///
/// As `callback` says.
pub(crate) unsafe extern "C" fn query_port<D: Driver>(
    dev: *mut ib_device,
    _port: u32,
    attr: *mut ib_port_attr,
) -> Int {
    // SAFETY: By the requirements of this function.
    let dev = unsafe { Device::<D>::from_raw(dev) };
    // SAFETY: By *valid*: only this call writes to `attr`.
    let out = unsafe { &mut *attr };
    to_errno(D::query_port(dev).map(|attr| attr.fill(out)))
}

/// # Safety
///
/// As `callback` says.
pub(crate) unsafe extern "C" fn get_port_immutable<D: Driver>(
    dev: *mut ib_device,
    _port: u32,
    immutable: *mut ib_port_immutable,
) -> Int {
    // SAFETY: By the requirements of this function.
    let dev = unsafe { Device::<D>::from_raw(dev) };
    // SAFETY: By *valid*: only this call writes to `immutable`.
    let out = unsafe { &mut *immutable };
    to_errno(D::query_port(dev).map(|attr| {
        out.gid_tbl_len = count(attr.gid_tbl_len as usize);
        out.pkey_tbl_len = PKEYS.into();
        out.core_cap_flags = D::PROTOCOL.core_cap_flags();
    }))
}

/// # Safety
///
/// As `callback` says.
pub(crate) unsafe extern "C" fn query_pkey(
    _dev: *mut ib_device,
    _port: u32,
    index: u16,
    pkey: *mut u16,
) -> Int {
    if index >= PKEYS {
        return EINVAL.to_errno();
    }
    // SAFETY: By *valid*.
    unsafe { *pkey = DEFAULT_PKEY };
    0
}

/// # Safety
///
/// As `callback` says.
pub(crate) unsafe extern "C" fn get_dev_fw_str<D: Driver>(
    dev: *mut ib_device,
    out: *mut ffi::c_char,
) {
    let mut text = [0u8; bindings::IB_FW_VERSION_NAME_MAX as usize];
    // SAFETY: By the requirements of this function.
    let dev = unsafe { Device::<D>::from_raw(dev) };
    let room = text.len() - 1;
    // An error means that the text is truncated.
    let _ = D::fw_version(dev, &mut Clipped::new(&mut text[..room]));
    // SAFETY: `out` has `IB_FW_VERSION_NAME_MAX` bytes.
    unsafe { core::ptr::copy_nonoverlapping(text.as_ptr(), out.cast(), text.len()) };
}

/// # Safety
///
/// As `callback` says.
pub(crate) unsafe extern "C" fn alloc_hw_port_stats<D: Driver>(
    dev: *mut ib_device,
    _port: u32,
) -> *mut rdma_hw_stats {
    // SAFETY: By the requirements of this function.
    let stats = unsafe { Device::<D>::from_raw(dev) }.stats();
    // SAFETY: The descriptions live as long as the device. 10 ms is the core's default.
    unsafe { bindings::rdma_alloc_hw_stats_struct(stats.as_ptr(), count(stats.len()), 10) }
}

/// # Safety
///
/// As `callback` says.
pub(crate) unsafe extern "C" fn get_hw_stats<D: Driver>(
    dev: *mut ib_device,
    stats: *mut rdma_hw_stats,
    _port: u32,
    _index: Int,
) -> Int {
    // SAFETY: By the requirements of this function.
    let dev = unsafe { Device::<D>::from_raw(dev) };
    let num = dev.stats().len();
    // SAFETY: `alloc_hw_port_stats` made it for as many values.
    let values = unsafe { (*stats).value.as_mut_slice(num) };
    D::counter_values(dev, None, values);
    count(num)
}

/// # Safety
///
/// As `callback` says.
pub(crate) unsafe extern "C" fn enable_driver<D: Driver>(dev: *mut ib_device) -> Int {
    // SAFETY: By the requirements of this function.
    D::enable_driver(unsafe { Device::<D>::from_raw(dev) });
    0
}

/// # Safety
///
/// As `callback` says.
pub(crate) unsafe extern "C" fn dealloc<D: Driver>(dev: *mut ib_device) {
    // SAFETY: By the requirements of this function.
    D::dealloc_driver(unsafe { Device::<D>::from_raw(dev) });
    // SAFETY: This is the last callback.
    unsafe { Device::<D>::drop_payload(dev) };
    // A thread may still be between the device and its GID (docs/upstream/0004). It does not sleep
    // there; then the GID is in the core's queue, which looks at the device.
    context::synchronize_tasks();
    // SAFETY: The core makes its queue before anybody can have a device, and nothing on it removes
    // one.
    unsafe { bindings::flush_workqueue(bindings::ib_wq) };
}
