// SPDX-License-Identifier: GPL-2.0

//! VRFs: parts of a namespace with addresses, routes and TCP ports of their own. Each is a network
//! device, the L3 master of the devices in it. A socket is in one if it is bound to such a device.
//!
//! C header: [`include/net/l3mdev.h`](srctree/include/net/l3mdev.h)

use super::{
    NetDev,
    SockAddr,
    Socket, //
};
use crate::kapi::bindings;
use kernel::{
    error::to_result,
    prelude::*, //
};

impl NetDev {
    /// The index of the VRF that it is in, or of itself if it is one; 0: none. It may change at any
    /// time.
    pub(crate) fn vrf(&self) -> u32 {
        // SAFETY: Valid as long as `self` is.
        unsafe { bindings::kapi_dev_vrf(self.as_raw()) }
    }
}

impl Socket {
    /// Replaces the binding to a device by one to its VRF, or by none if it is in no VRF. The
    /// stream can then follow a route through another device.
    pub(crate) fn bind_to_vrf(&self) -> Result {
        // SAFETY: The socket is valid by the type invariants of `Handle`.
        to_result(unsafe { bindings::kapi_sk_bind_to_vrf(self.handle().sk()) })
    }

    /// True if the host has this address in the namespace and the VRF of the socket. The port does
    /// not matter. Any context.
    pub(crate) fn has_addr(&self, addr: &SockAddr) -> bool {
        let mut addr = addr.to_raw();
        // SAFETY: The socket is valid by the type invariants of `Handle`, the address for reads.
        unsafe { bindings::kapi_sk_has_addr(self.handle().sk(), addr.as_mut_ptr()) }
    }
}
