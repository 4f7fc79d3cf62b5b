// SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause

//! LIDs, by which programs name their peers unless they are told to use GIDs.
//!
//! iWARP has none, and the RDMA core does not pass them on to a driver for it. Here the LID of a
//! port is the low half of its IPv4 address. In a network of that size or smaller it names a
//! host: [`Local::route`] makes an address vector with GIDs of it, which the driver understands.

use super::{
    bindings::{
        self,
        ibv_ah_attr,
        ibv_context,
        ibv_gid,
        ibv_global_route,
        ifaddrs,
        sockaddr,
        sockaddr_in,
        AF_INET, //
    },
    private, //
};
use core::{
    ptr::null_mut,
    sync::atomic::{
        AtomicU16,
        Ordering::Relaxed, //
    }, //
};

/// The network has this prefix, or a longer one, in bits.
const PREFIX: u32 = 16;

/// What begins the GID of an IPv4 address.
const V4_MAPPED: [u8; 12] = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff];

/// The IPv4 address of a port whose low half is its LID.
#[derive(Clone, Copy)]
pub(super) struct Local {
    /// The index of its GID.
    index: u8,
    /// The bytes of the address: first the network's half, then the host's.
    addr: [u8; 4],
}

impl Local {
    /// The first IPv4 address of the port. `None` if there is none, or if it cannot stand for a
    /// LID: its network is larger, no interface of this network namespace has it, or its low half
    /// is zero, which is no LID.
    ///
    /// # Safety
    ///
    /// `context` is valid.
    pub(super) unsafe fn of(context: *mut ibv_context, port: u8) -> Option<Self> {
        // One of the GIDs is not an address. The C driver has no others.
        for index in 0..=u8::MAX {
            // SAFETY: By the requirements of this function.
            let gid = unsafe { gid(context, port, index) }?;
            let Some(addr) = ipv4(gid) else { continue };
            let local = Self { index, addr };
            return (local.lid() != 0 && prefix(addr) >= Some(PREFIX)).then_some(local);
        }
        None
    }

    /// The LID.
    pub(super) fn lid(&self) -> u16 {
        let [.., high, low] = self.addr;
        u16::from_be_bytes([high, low])
    }

    /// `ah`, which names the peer by its LID alone, with the GIDs of both ends.
    pub(super) fn route(&self, ah: &ibv_ah_attr) -> ibv_ah_attr {
        let [a, b, ..] = self.addr;
        let [c, d] = ah.dlid.to_be_bytes();
        let mut raw = [0; 16];
        for (to, from) in raw
            .iter_mut()
            .zip(V4_MAPPED.into_iter().chain([a, b, c, d]))
        {
            *to = from;
        }
        ibv_ah_attr {
            grh: ibv_global_route {
                dgid: ibv_gid { raw },
                sgid_index: self.index,
                ..Default::default()
            },
            is_global: 1,
            ..*ah
        }
    }
}

/// The address vector for the driver, in place of one that names the peer by a LID. `None` if `ah`
/// has a GID, or if no LID can be meant: the driver then answers that it names nobody.
///
/// # Safety
///
/// `context` is valid.
pub(super) unsafe fn routed(context: *mut ibv_context, ah: &ibv_ah_attr) -> Option<ibv_ah_attr> {
    if ah.is_global != 0 || ah.dlid == 0 {
        return None;
    }
    // SAFETY: By the requirements of this function.
    let local = unsafe { Local::of(context, ah.port_num) }?;
    Some(local.route(ah))
}

/// The LID by which a program has named the peer of a queue pair; 0 if it has named a GID.
#[derive(Default)]
pub(super) struct Dlid(AtomicU16);

impl Dlid {
    /// Remembers what the program has set.
    pub(super) fn set(&self, lid: u16) {
        self.0.store(lid, Relaxed);
    }

    /// Makes of the driver's address vector what the program has set.
    pub(super) fn restore(&self, ah: &mut ibv_ah_attr) {
        let dlid = self.0.load(Relaxed);
        if dlid != 0 {
            *ah = ibv_ah_attr {
                grh: ibv_global_route::default(),
                dlid,
                is_global: 0,
                ..*ah
            };
        }
    }
}

/// Entry `index` of the GID table; `None` if there is none, or if it is empty.
///
/// # Safety
///
/// `context` is valid.
unsafe fn gid(context: *mut ibv_context, port: u8, index: u8) -> Option<[u8; 16]> {
    let mut gid = ibv_gid { raw: [0; 16] };
    // SAFETY: The context is valid, and there is room for the GID.
    if unsafe { private::ibv_query_gid(context, port, index.into(), &mut gid) } != 0 {
        return None;
    }
    // SAFETY: Any bytes are valid, whichever field of the union was set.
    let raw = unsafe { gid.raw };
    (raw != [0; 16]).then_some(raw)
}

/// The IPv4 address that a GID stands for.
fn ipv4(gid: [u8; 16]) -> Option<[u8; 4]> {
    gid.strip_prefix(&V4_MAPPED)?.try_into().ok()
}

/// The length in bits of the network's prefix, for an address of this machine. The shortest one, if
/// several interfaces have the address.
fn prefix(addr: [u8; 4]) -> Option<u32> {
    let list = Interfaces::new()?;
    let mut shortest = None;
    let mut at = list.0;
    // SAFETY: The list is valid, and ends with null.
    while let Some(entry) = unsafe { at.as_ref() } {
        at = entry.ifa_next;
        // SAFETY: The list is valid, and so are its addresses.
        if unsafe { v4(entry.ifa_addr) } != Some(addr) {
            continue;
        }
        // SAFETY: The list is valid, and the masks have the families of the addresses.
        let mask = unsafe { v4(entry.ifa_netmask) }?;
        let bits = u32::from_be_bytes(mask).leading_ones();
        shortest = Some(shortest.map_or(bits, |least: u32| least.min(bits)));
    }
    shortest
}

/// The IPv4 address in a `struct sockaddr`.
///
/// # Safety
///
/// `addr` is null or valid for its family.
unsafe fn v4(addr: *const sockaddr) -> Option<[u8; 4]> {
    // SAFETY: By the requirements of this function.
    let family = unsafe { addr.as_ref() }?.sa_family;
    if u32::from(family) != AF_INET {
        return None;
    }
    // SAFETY: It is an address of this family. Nothing is said about its alignment.
    let addr: sockaddr_in = unsafe { addr.cast::<sockaddr_in>().read_unaligned() };
    Some(addr.sin_addr.s_addr.to_ne_bytes())
}

/// The addresses of the interfaces of this network namespace.
///
/// # Invariants
///
/// It is a list of `getifaddrs()`.
struct Interfaces(*mut ifaddrs);

impl Interfaces {
    fn new() -> Option<Self> {
        let mut list = null_mut();
        // SAFETY: There is room for the pointer.
        let result = unsafe { bindings::getifaddrs(&mut list) };
        // INVARIANT: The call has succeeded.
        (result == 0).then_some(Self(list))
    }
}

impl Drop for Interfaces {
    fn drop(&mut self) {
        // SAFETY: By the type invariants, and nobody uses it any more.
        unsafe { bindings::freeifaddrs(self.0) };
    }
}
