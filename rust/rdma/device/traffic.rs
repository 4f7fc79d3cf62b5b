// SPDX-License-Identifier: GPL-2.0

//! Traffic counters of the port, under the names and in the units of InfiniBand:
//! `/sys/class/infiniband/DEVICE/ports/1/counters`.
//!
//! The core makes that folder for drivers that answer performance MADs only. Monitoring programs
//! expect it of every device.

use core::{
    marker::PhantomData,
    ptr::null_mut, //
};

use kernel::{
    ffi,
    prelude::*, //
};

use crate::device::{
    Device,
    Driver, //
};
use base::bindings::{
    self,
    attribute,
    attribute_group,
    ib_device,
    ib_port_attribute, //
};

/// What has passed a port. The numbers wrap.
#[derive(Clone, Copy, Default)]
pub struct Traffic {
    /// Bytes sent.
    pub tx_bytes: u64,
    /// Packets sent.
    pub tx_packets: u64,
    /// Bytes received.
    pub rx_bytes: u64,
    /// Packets received.
    pub rx_packets: u64,
}

impl Traffic {
    /// Bytes in the unit of the data counters, which are "in 32-bit words" (InfiniBand
    /// Architecture Specification 16.1.3.5, `Documentation/ABI/stable/sysfs-class-infiniband`).
    const WORD: u64 = 4;

    /// The file number `index` of [`Files`].
    fn value(&self, index: usize) -> u64 {
        match index {
            0 => self.tx_bytes / Self::WORD,
            1 => self.rx_bytes / Self::WORD,
            2 => self.tx_packets,
            _ => self.rx_packets,
        }
    }
}

/// The files of a provider.
pub(crate) struct Files<D: Driver>(PhantomData<D>);

impl<D: Driver> Files<D> {
    const FILES: [ib_port_attribute; 4] = [
        Self::file::<0>(c"port_xmit_data"),
        Self::file::<1>(c"port_rcv_data"),
        Self::file::<2>(c"port_xmit_packets"),
        Self::file::<3>(c"port_rcv_packets"),
    ];
    const LIST: [*mut attribute; 5] = [
        Self::attr(&Self::FILES[0]),
        Self::attr(&Self::FILES[1]),
        Self::attr(&Self::FILES[2]),
        Self::attr(&Self::FILES[3]),
        null_mut(),
    ];
    const GROUP: attribute_group = {
        let mut group = attribute_group {
            name: c"counters".to_bytes_with_nul().as_ptr(),
            ..pin_init::zeroed()
        };
        group.__bindgen_anon_2.attrs = (&raw const *Self::list()).cast_mut().cast();
        group
    };

    /// The value of `ib_device_ops::port_groups`.
    pub(crate) const GROUPS: [*const attribute_group; 2] = [&Self::GROUP, core::ptr::null()];

    const fn list() -> &'static [*mut attribute; 5] {
        &Self::LIST
    }

    const fn file<const INDEX: usize>(name: &'static CStr) -> ib_port_attribute {
        let mut file: ib_port_attribute = pin_init::zeroed();
        file.attr.name = name.to_bytes_with_nul().as_ptr();
        file.attr.mode = 0o444;
        file.show = Some(show::<D, INDEX>);
        file
    }

    /// The attribute of a file; nobody writes to it.
    const fn attr(file: &'static ib_port_attribute) -> *mut attribute {
        (&raw const file.attr).cast_mut()
    }
}

/// # Safety
///
/// Called by the core for a port of a device of `D`; `buf` is a page.
unsafe extern "C" fn show<D: Driver, const INDEX: usize>(
    dev: *mut ib_device,
    _port: u32,
    _attr: *mut ib_port_attribute,
    buf: *mut ffi::c_char,
) -> isize {
    // SAFETY: By the requirements of this function: sysfs waits for its callers before the port
    // goes.
    let dev = unsafe { Device::<D>::from_raw(dev) };
    let value = D::traffic(dev).value(INDEX);
    // SAFETY: By the requirements of this function; the format is for one number.
    let len = unsafe { bindings::sysfs_emit(buf, c"%llu\n".as_char_ptr(), value) };
    len as isize
}
