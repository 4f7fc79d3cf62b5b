// SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause

//! The port of the device, as libibverbs and libc tell of it, and the peer of a queue pair.

use super::{
    fake::*,
    *, //
};

#[no_mangle]
extern "C" fn ibv_query_gid(
    _context: *mut ibv_context,
    _port: u8,
    index: c_int,
    gid: *mut ibv_gid,
) -> c_int {
    let [a, b, c, d] = kernel(|kernel| kernel.addr);
    let raw = match index {
        0 => [0xfe; 16],
        1 => [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 255, 255, a, b, c, d],
        _ => return -1,
    };
    // SAFETY: There is room for a GID.
    unsafe { *gid = ibv_gid { raw } };
    0
}

/// In place of libc's. There are two interfaces, and the first has another address.
#[no_mangle]
extern "C" fn getifaddrs(list: *mut *mut ifaddrs) -> c_int {
    let address = |bytes| {
        let address = sockaddr_in {
            sin_family: AF_INET as _,
            sin_addr: in_addr {
                s_addr: u32::from_ne_bytes(bytes),
            },
            ..Default::default()
        };
        Box::into_raw(Box::new(address)).cast()
    };
    let (addr, netmask) = kernel(|kernel| (kernel.addr, kernel.netmask));
    let second = ifaddrs {
        ifa_addr: address(addr),
        ifa_netmask: address(netmask),
        ..Default::default()
    };
    let first = ifaddrs {
        ifa_next: Box::into_raw(Box::new(second)),
        ifa_addr: address([127, 0, 0, 1]),
        ifa_netmask: address([255, 0, 0, 0]),
        ..Default::default()
    };
    // SAFETY: There is room for the pointer.
    unsafe { *list = Box::into_raw(Box::new(first)) };
    0
}

#[no_mangle]
extern "C" fn freeifaddrs(mut list: *mut ifaddrs) {
    while !list.is_null() {
        // SAFETY: From `getifaddrs`, and nobody uses it any more.
        let entry = unsafe { Box::from_raw(list) };
        for address in [entry.ifa_addr, entry.ifa_netmask] {
            // SAFETY: From `getifaddrs`, too, which gives each address to one entry.
            drop(unsafe { Box::from_raw(address.cast::<sockaddr_in>()) });
        }
        list = entry.ifa_next;
    }
}

#[no_mangle]
extern "C" fn ibv_cmd_query_port(
    _context: *mut ibv_context,
    _port: u8,
    _attr: *mut ibv_port_attr,
    _cmd: Private,
    _cmd_size: usize,
) -> c_int {
    result()
}

#[no_mangle]
extern "C" fn ibv_cmd_modify_qp(
    _qp: *mut ibv_qp,
    attr: *mut ibv_qp_attr,
    _mask: c_int,
    _cmd: Private,
    _cmd_size: usize,
) -> c_int {
    // SAFETY: The attributes are valid.
    let ah = unsafe { (*attr).ah_attr };
    kernel(|kernel| {
        if kernel.result == 0 {
            // The core drops it.
            kernel.ah = ibv_ah_attr { dlid: 0, ..ah };
        }
        kernel.result
    })
}

#[no_mangle]
extern "C" fn ibv_cmd_query_qp(
    _qp: *mut ibv_qp,
    attr: *mut ibv_qp_attr,
    _mask: c_int,
    _init: *mut ibv_qp_init_attr,
    _cmd: Private,
    _cmd_size: usize,
) -> c_int {
    // SAFETY: There is room for the attributes.
    unsafe { (*attr).ah_attr = kernel(|kernel| kernel.ah) };
    result()
}
