// SPDX-License-Identifier: GPL-2.0

//! Socket addresses.

use crate::bindings;
use kernel::fmt;

/// The address family of a socket.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Family {
    /// `AF_INET`.
    V4,
    /// `AF_INET6`.
    V6,
}

impl Family {
    /// `AF_INET` or `AF_INET6`.
    pub fn as_raw(self) -> i32 {
        match self {
            Family::V4 => AF_INET.into(),
            Family::V6 => AF_INET6.into(),
        }
    }
}

const AF_INET: u16 = bindings::AF_INET as u16;
const AF_INET6: u16 = bindings::AF_INET6 as u16;

/// An IP address and a TCP port, the port in host byte order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SockAddr {
    /// IPv4.
    V4 {
        /// The address.
        addr: [u8; 4],
        /// The port.
        port: u16,
    },
    /// IPv6.
    V6 {
        /// The address.
        addr: [u8; 16],
        /// The port.
        port: u16,
        /// The interface of a link-local address, or 0.
        scope: u32,
    },
}

/// The bytes of a `struct sockaddr_storage` that are read: those of a `struct sockaddr_in6`.
const USED: usize = 28;

/// A `struct sockaddr_storage` to pass to C.
#[repr(C, align(8))]
pub struct RawAddr([u8; 128]);

impl RawAddr {
    /// The size in bytes.
    pub const LEN: i32 = 128;

    /// An address of no family.
    pub fn new() -> Self {
        Self([0; 128])
    }

    /// The address for a function of C, which knows it as `T`.
    pub fn as_mut_ptr<T>(&mut self) -> *mut T {
        self.0.as_mut_ptr().cast()
    }

    /// The address, if it is an IP address.
    pub fn parse(&self) -> Option<SockAddr> {
        SockAddr::parse(self.0.first_chunk()?)
    }
}

const _: () = assert!(size_of::<RawAddr>() == size_of::<bindings::__kernel_sockaddr_storage>());

/// An IPv4 address in the last bytes of an IPv6 address (RFC 4291, 2.5.5.2).
const V4_MAPPED: [u8; 12] = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff];

impl SockAddr {
    /// The family.
    pub fn family(&self) -> Family {
        match self {
            SockAddr::V4 { .. } => Family::V4,
            SockAddr::V6 { .. } => Family::V6,
        }
    }

    /// Whether this is the unspecified address.
    pub fn is_any(&self) -> bool {
        match self {
            SockAddr::V4 { addr, .. } => *addr == [0; 4],
            SockAddr::V6 { addr, .. } => *addr == [0; 16],
        }
    }

    /// True for an address that means the host itself: 127.0.0.0/8 and `::1`.
    pub fn is_loopback(&self) -> bool {
        match *self {
            SockAddr::V4 { addr, .. } => core::net::Ipv4Addr::from(addr).is_loopback(),
            SockAddr::V6 { addr, .. } => core::net::Ipv6Addr::from(addr).is_loopback(),
        }
    }

    /// The port.
    pub fn port(&self) -> u16 {
        match *self {
            SockAddr::V4 { port, .. } | SockAddr::V6 { port, .. } => port,
        }
    }

    /// True if both are the same address, whatever their ports.
    pub fn is_same_host(&self, other: &Self) -> bool {
        self.with_port(0) == other.with_port(0)
    }

    /// The address with another port.
    pub fn with_port(self, port: u16) -> Self {
        match self {
            SockAddr::V4 { addr, .. } => SockAddr::V4 { addr, port },
            SockAddr::V6 { addr, scope, .. } => SockAddr::V6 { addr, port, scope },
        }
    }

    /// The address as a GID: an IPv4 address is mapped to `::ffff:a.b.c.d`.
    pub fn to_gid(self) -> [u8; 16] {
        match self {
            SockAddr::V4 { addr, .. } => {
                let mut gid = [0; 16];
                let (prefix, suffix) = gid.split_at_mut(V4_MAPPED.len());
                prefix.copy_from_slice(&V4_MAPPED);
                suffix.copy_from_slice(&addr);
                gid
            }
            SockAddr::V6 { addr, .. } => addr,
        }
    }

    /// The inverse of [`Self::to_gid`]. `scope` is used for a link-local address.
    pub fn from_gid(gid: [u8; 16], port: u16, scope: u32) -> Self {
        if let Some(addr) = gid
            .strip_prefix(&V4_MAPPED)
            .and_then(|addr| addr.first_chunk())
        {
            return SockAddr::V4 { addr: *addr, port };
        }
        let [first, second, ..] = gid;
        // fe80::/10 (RFC 4291, 2.5.6).
        let link_local = first == 0xfe && second & 0xc0 == 0x80;
        SockAddr::V6 {
            addr: gid,
            port,
            scope: if link_local { scope } else { 0 },
        }
    }

    /// Reads the bytes of a `struct sockaddr_in` or `struct sockaddr_in6`.
    fn parse(raw: &[u8; USED]) -> Option<Self> {
        let [f0, f1, p0, p1, rest @ ..] = raw;
        let port = u16::from_be_bytes([*p0, *p1]);
        match u16::from_ne_bytes([*f0, *f1]) {
            AF_INET => Some(SockAddr::V4 {
                addr: *rest.first_chunk()?,
                port,
            }),
            AF_INET6 => {
                // Four bytes of flow information come first.
                let (_, rest) = rest.split_first_chunk::<4>()?;
                let (addr, scope) = rest.split_first_chunk::<16>()?;
                Some(SockAddr::V6 {
                    addr: *addr,
                    port,
                    scope: u32::from_ne_bytes(*scope.first_chunk()?),
                })
            }
            _ => None,
        }
    }

    /// The address as a C structure.
    pub fn to_raw(self) -> RawAddr {
        let mut raw = RawAddr::new();
        let buf = &mut raw.0;
        match self {
            SockAddr::V4 { addr, port } => {
                buf[0..2].copy_from_slice(&AF_INET.to_ne_bytes());
                buf[2..4].copy_from_slice(&port.to_be_bytes());
                buf[4..8].copy_from_slice(&addr);
            }
            SockAddr::V6 { addr, port, scope } => {
                buf[0..2].copy_from_slice(&AF_INET6.to_ne_bytes());
                buf[2..4].copy_from_slice(&port.to_be_bytes());
                buf[8..24].copy_from_slice(&addr);
                buf[24..28].copy_from_slice(&scope.to_ne_bytes());
            }
        }
        raw
    }

    /// Reads a C address. Returns `None` if it is not an IP address.
    ///
    /// # Safety
    ///
    /// `raw` must be valid for reads.
    pub unsafe fn from_raw(raw: *const bindings::__kernel_sockaddr_storage) -> Option<Self> {
        // SAFETY: Valid by the contract of this function; a `sockaddr_storage` is larger.
        SockAddr::parse(&unsafe { raw.cast::<[u8; USED]>().read_unaligned() })
    }
}

impl fmt::Display for SockAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            SockAddr::V4 { addr, port } => {
                write!(f, "{}:{port}", core::net::Ipv4Addr::from(addr))
            }
            SockAddr::V6 { addr, port, scope } => {
                write!(f, "[{}", core::net::Ipv6Addr::from(addr))?;
                if scope != 0 {
                    write!(f, "%{scope}")?;
                }
                write!(f, "]:{port}")
            }
        }
    }
}
