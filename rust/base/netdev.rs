// SPDX-License-Identifier: GPL-2.0

//! Network devices and network namespaces.
//!
//! C header: [`include/linux/netdevice.h`](srctree/include/linux/netdevice.h)

use crate::{
    addr::{
        RawAddr,
        SockAddr, //
    },
    bindings, //
};
use core::ptr::NonNull;
use kernel::{
    fmt,
    prelude::*,
    task::might_sleep, //
};

/// Device types, `ARPHRD_*`.
pub mod arphrd {
    use crate::bindings;

    /// Ethernet.
    pub const ETHER: u16 = bindings::ARPHRD_ETHER as u16;
    /// IEEE 802 as such.
    pub const IEEE802: u16 = bindings::ARPHRD_IEEE802 as u16;
    /// The loopback device.
    pub const LOOPBACK: u16 = bindings::ARPHRD_LOOPBACK as u16;
    /// No link layer address.
    pub const NONE: u16 = bindings::ARPHRD_NONE as u16;
}

/// The index of the loopback device of each namespace (`LOOPBACK_IFINDEX`).
pub const LOOPBACK_IFINDEX: u32 = 1;

/// A counted reference to a network namespace.
///
/// # Invariants
///
/// The pointer is valid, and this owns a reference to it.
pub struct NetNs(NonNull<bindings::net>);

// SAFETY: A namespace may be used and put from any thread.
unsafe impl Send for NetNs {}
// SAFETY: Shared use counts references and looks up addresses, which any thread may do at any time.
unsafe impl Sync for NetNs {}

impl NetNs {
    /// Takes over a reference.
    ///
    /// # Safety
    ///
    /// `net` must be a valid namespace, and the caller must own a reference to it.
    pub unsafe fn from_raw(net: *mut bindings::net) -> Self {
        // INVARIANT: By the contract of this function.
        // SAFETY: Not null, since it is valid.
        Self(unsafe { NonNull::new_unchecked(net) })
    }

    /// The namespace for a function of C.
    pub fn as_raw(&self) -> *mut bindings::net {
        self.0.as_ptr()
    }

    /// The addresses in the namespace that other hosts can use, with port 0, and the index of the
    /// device of each: those in the VRF `vrf`, or outside of VRFs if that is 0, see
    /// [`NetDev::vrf`]. May sleep.
    pub fn addrs(&self, vrf: u32) -> Result<KVec<(SockAddr, u32)>> {
        read_addrs(|out, index, max| {
            // SAFETY: Valid by the type invariants; both have `max` elements.
            unsafe { bindings::base_net_addrs(self.as_raw(), vrf, out, index, max) }
        })
    }
}

impl Clone for NetNs {
    fn clone(&self) -> Self {
        // SAFETY: Valid by the type invariants.
        unsafe { bindings::get_net(self.0.as_ptr()) };
        // INVARIANT: The reference was just taken.
        Self(self.0)
    }
}

impl Drop for NetNs {
    fn drop(&mut self) {
        // SAFETY: The reference is ours by the type invariants.
        unsafe { bindings::put_net(self.0.as_ptr()) };
    }
}

impl PartialEq for NetNs {
    fn eq(&self, other: &Self) -> bool {
        self.0 == other.0
    }
}

/// The name that a device had when it was read.
#[derive(Clone, Copy)]
pub struct DevName([u8; bindings::IFNAMSIZ as usize]);

impl DevName {
    /// The characters of the name.
    pub fn as_bytes(&self) -> &[u8] {
        self.0.split(|c| *c == 0).next().unwrap_or_default()
    }
}

impl fmt::Display for DevName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // A device's name is not necessarily UTF-8.
        write!(f, "{}", self.as_bytes().escape_ascii())
    }
}

/// A link layer address.
#[derive(Clone, Copy)]
pub struct HwAddr {
    addr: [u8; bindings::MAX_ADDR_LEN as usize],
    len: usize,
}

impl HwAddr {
    /// The bytes of the address; none if the device has no such address.
    pub fn as_bytes(&self) -> &[u8] {
        self.addr.get(..self.len).unwrap_or_default()
    }
}

/// A counted reference to a network device.
///
/// # Invariants
///
/// The pointer is valid, and this owns a reference to it.
pub struct NetDev(NonNull<bindings::net_device>);

// SAFETY: A device may be used and put from any thread.
unsafe impl Send for NetDev {}
// SAFETY: As above; all methods read what may be read at any time.
unsafe impl Sync for NetDev {}

impl NetDev {
    /// Takes a reference to a device.
    ///
    /// # Safety
    ///
    /// `dev` must be a valid device.
    pub unsafe fn from_raw(dev: *mut bindings::net_device) -> Self {
        // SAFETY: Valid by the contract of this function.
        unsafe { bindings::dev_hold(dev) };
        // SAFETY: Not null, since it is valid.
        // INVARIANT: The reference was just taken.
        Self(unsafe { NonNull::new_unchecked(dev) })
    }

    /// The C device, valid as long as `self` is.
    pub fn as_raw(&self) -> *mut bindings::net_device {
        self.0.as_ptr()
    }

    /// The name; the device may be renamed at any time.
    pub fn name(&self) -> DevName {
        let mut name = [0; bindings::IFNAMSIZ as usize];
        // SAFETY: Valid by the type invariants; `name` has the length that is written.
        unsafe { bindings::netdev_name(self.0.as_ptr(), name.as_mut_ptr().cast()) };
        DevName(name)
    }

    /// The link layer address.
    pub fn hw_addr(&self) -> HwAddr {
        let mut addr = [0; bindings::MAX_ADDR_LEN as usize];
        // SAFETY: Valid by the type invariants; `addr` has the length that is written at most.
        let len = unsafe { bindings::dev_hw_addr(self.0.as_ptr(), addr.as_mut_ptr()) };
        HwAddr {
            addr,
            len: len as usize,
        }
    }

    /// The index in its namespace.
    pub fn ifindex(&self) -> u32 {
        // SAFETY: Valid by the type invariants.
        unsafe { bindings::dev_ifindex(self.0.as_ptr()) }
    }

    /// The MTU.
    pub fn mtu(&self) -> u32 {
        // SAFETY: Valid by the type invariants.
        unsafe { bindings::dev_mtu(self.0.as_ptr()) }
    }

    /// The largest MTU it can have; 0 if there is no bound.
    pub fn max_mtu(&self) -> u32 {
        // SAFETY: Valid by the type invariants.
        unsafe { bindings::dev_max_mtu(self.0.as_ptr()) }
    }

    /// The type of the link, see [`arphrd`].
    pub fn arphrd(&self) -> u16 {
        // SAFETY: Valid by the type invariants.
        unsafe { bindings::dev_type(self.0.as_ptr()) }
    }

    /// Whether the device is up.
    pub fn is_up(&self) -> bool {
        // SAFETY: Valid by the type invariants.
        unsafe { bindings::dev_is_up(self.0.as_ptr()) }
    }

    /// The namespace, unless it is being dismantled.
    pub fn net(&self) -> Option<NetNs> {
        // SAFETY: Valid by the type invariants.
        let net = unsafe { bindings::dev_get_net(self.0.as_ptr()) };
        // INVARIANT: The helper took a reference for us, or returned null.
        NonNull::new(net).map(NetNs)
    }

    /// The addresses, IPv4 first, with port 0. A link-local one has the device's index as its
    /// scope.
    ///
    /// May sleep.
    pub fn addrs(&self) -> Result<KVec<SockAddr>> {
        let read = read_addrs(|out, _, max| {
            // SAFETY: Valid by the type invariants; `out` has `max` elements.
            unsafe { bindings::base_dev_addrs(self.0.as_ptr(), out, max) }
        })?;
        let mut addrs = KVec::with_capacity(read.len(), GFP_KERNEL)?;
        for (addr, _) in read {
            addrs.push(addr, GFP_KERNEL)?;
        }
        Ok(addrs)
    }

    /// The index of its VRF, or of itself if it is one; 0: none. It may change at any time.
    ///
    /// A VRF is a part of a namespace with addresses, routes and TCP ports of its own. It is a
    /// device, the L3 master of the devices in it ([`include/net/l3mdev.h`]).
    ///
    /// [`include/net/l3mdev.h`]: srctree/include/net/l3mdev.h
    pub fn vrf(&self) -> u32 {
        // SAFETY: Valid as long as `self` is.
        unsafe { bindings::l3mdev_master_ifindex(self.as_raw()) }
    }
}

/// Calls `read` until there is room for all addresses, and a number for each. It writes as many as
/// fit, and returns how many there are. May sleep.
fn read_addrs(
    read: impl Fn(*mut bindings::__kernel_sockaddr_storage, *mut u32, u32) -> u32,
) -> Result<KVec<(SockAddr, u32)>> {
    might_sleep();
    let mut room = 16;
    loop {
        let mut raw = KVec::<RawAddr>::with_capacity(room, GFP_KERNEL)?;
        for _ in 0..room {
            raw.push(RawAddr::new(), GFP_KERNEL)?;
        }
        let mut numbers = KVec::from_elem(0u32, room, GFP_KERNEL)?;
        let max = u32::try_from(room)?;
        let n = read(raw.as_mut_ptr().cast(), numbers.as_mut_ptr(), max);
        if n > max {
            // Addresses come and go: leave some room.
            room = (n as usize).saturating_add(16);
            continue;
        }
        let mut addrs = KVec::with_capacity(n as usize, GFP_KERNEL)?;
        for (raw, number) in raw.iter().zip(numbers).take(n as usize) {
            if let Some(addr) = raw.parse() {
                addrs.push((addr, number), GFP_KERNEL)?;
            }
        }
        return Ok(addrs);
    }
}

impl Clone for NetDev {
    fn clone(&self) -> Self {
        // SAFETY: Valid by the type invariants.
        unsafe { NetDev::from_raw(self.0.as_ptr()) }
    }
}

impl Drop for NetDev {
    fn drop(&mut self) {
        // SAFETY: The reference is ours by the type invariants.
        unsafe { bindings::dev_put(self.0.as_ptr()) };
    }
}

impl PartialEq for NetDev {
    fn eq(&self, other: &Self) -> bool {
        self.0 == other.0
    }
}
