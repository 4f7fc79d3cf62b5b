// SPDX-License-Identifier: GPL-2.0

//! VRFs of sockets. A socket is in a VRF (see [`NetDev::vrf`](base::netdev::NetDev::vrf)) if it is
//! bound to it, or to a device in it.
//!
//! C header: [`include/net/l3mdev.h`](srctree/include/net/l3mdev.h)

use crate::tcp::Socket;
use base::{
    addr::SockAddr,
    bindings, //
};
use kernel::{
    error::to_result,
    prelude::*, //
};

impl Socket {
    /// Replaces the binding to a device by one to its VRF, or by none if it is in no VRF. The
    /// stream can then follow a route through another device.
    pub fn bind_to_vrf(&self) -> Result {
        // SAFETY: The socket is valid by the type invariants of `Handle`.
        to_result(unsafe { bindings::soft_sk_bind_to_vrf(self.handle().sk()) })
    }

    /// True if the host has this address in the namespace and the VRF of the socket. The port does
    /// not matter. Any context.
    pub fn has_addr(&self, addr: &SockAddr) -> bool {
        let mut addr = addr.to_raw();
        // SAFETY: The socket is valid by the type invariants of `Handle`, the address for reads.
        unsafe { bindings::soft_sk_has_addr(self.handle().sk(), addr.as_mut_ptr()) }
    }
}
