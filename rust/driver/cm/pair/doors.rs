// SPDX-License-Identifier: GPL-2.0

//! The ports of pairs: the listeners of the accepting ends, and the source ports of the connecting
//! ends.

use super::super::super::DeviceRef;
use super::super::listener::{
    self,
    Listener,
    Waiting,
    FIRST_FREE_PORT, //
};
use super::PORT;
use base::{
    addr::SockAddr,
    errno,
    sync::AccessOnce, //
};
use core::ops::Range;
use kernel::{
    prelude::*,
    sync::{
        atomic::{
            Atomic,
            Relaxed, //
        },
        Arc,
        Mutex, //
    }, //
};

/// Source ports that are tried before a pause.
pub(super) const ATTEMPTS: usize = 16;

/// Connections that may wait to be accepted.
const BACKLOG: u32 = 4096;

/// The listeners of a device's pairs, one for each address, and the source ports.
#[pin_data]
pub(crate) struct Doors {
    port: Atomic<u32>,
    /// Sessions that this end has offered.
    sessions: Atomic<u32>,
    /// Doors that have been opened.
    opened: Atomic<usize>,
    #[pin]
    list: Mutex<KVec<Opened>>,
}

struct Opened {
    addr: SockAddr,
    /// The VRF in which it listens.
    vrf: u32,
    listener: Arc<Listener>,
}

impl Opened {
    fn is_at(&self, addr: SockAddr, vrf: u32) -> bool {
        self.addr == addr && self.vrf == vrf
    }
}

impl Doors {
    /// No listeners.
    pub(crate) fn new() -> impl PinInit<Self> {
        pin_init!(Self {
            port: Atomic::new(0),
            sessions: Atomic::new(0),
            opened: Atomic::new(0),
            list <- ranked_mutex!(Rank::Doors, KVec::new()),
        })
    }

    /// The next privileged source port. They are used in turn, because the last one may not be free
    /// yet.
    pub(super) fn next_port(&self, attempt: usize) -> u16 {
        // NFS uses the upper ports, so they are tried last. Those below 512 belong to services.
        let range: Range<u16> = if attempt < ATTEMPTS / 2 {
            512..665
        } else {
            665..FIRST_FREE_PORT
        };
        let turn = self.port.fetch_add(1, Relaxed) as usize;
        range.clone().nth(turn % range.len()).unwrap_or(range.start)
    }

    /// Closes all listeners that no session needs. A pair with a share in one goes on waiting, in
    /// vain. Sleeps.
    pub(crate) fn close(&self) {
        let mut list = self.list.lock();
        for open in list.iter() {
            open.listener.forget_all();
        }
        close_unused(&mut list);
    }

    /// While there are sessions, listens at all addresses that the host has got. Another device or
    /// program may listen at one, and is left alone. Fails if the caller has to try again in a
    /// moment. Sleeps.
    pub(crate) fn attend(&self, dev: &DeviceRef) -> Result {
        let mut list = self.list.lock();
        if self.sessions.read_once() == 0 {
            for open in list.iter() {
                open.listener.set_public(false);
            }
            close_unused(&mut list);
            return Ok(());
        }
        let Some(net) = dev.netdev.net() else {
            return Ok(());
        };
        let mut result = Ok(());
        let vrf = dev.netdev.vrf();
        for (addr, _) in net.addrs(vrf)?.iter() {
            let addr = addr.with_port(PORT);
            if let Some(open) = list.iter().find(|open| open.is_at(addr, vrf)) {
                open.listener.set_public(true);
                continue;
            }
            list.reserve(1, GFP_KERNEL)?;
            match listener::listen_for_pairs(dev, &addr, vrf, BACKLOG, None) {
                // There is room.
                Ok(listener) => {
                    let opened = Opened {
                        addr,
                        vrf,
                        listener,
                    };
                    list.push(opened, GFP_KERNEL)?;
                }
                // The peer may be told of the address, so it is not given up for lack of memory.
                Err(ENOMEM) => result = Err(ENOMEM),
                Err(_) => {}
            }
        }
        result
    }
}

/// Ends the listeners that nobody needs.
fn close_unused(list: &mut KVec<Opened>) {
    let unused = |open: &Opened| !open.listener.is_public() && open.listener.expects_nobody();
    while let Some(at) = list.iter().position(unused) {
        // Destroyed under the lock, because the next listener needs the address.
        if let Ok(closed) = list.remove(at) {
            let _ = listener::destroy_listen(closed.listener);
        }
    }
}

/// A session that this end has offered: meanwhile the device listens for its peer.
pub(in super::super) struct Lease(DeviceRef);

impl Lease {
    pub(in super::super) fn new(dev: &DeviceRef) -> Self {
        dev.doors.sessions.fetch_add(1, Relaxed);
        dev.attend_doors();
        Self(dev.clone())
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.0.doors.sessions.fetch_sub(1, Relaxed);
        self.0.attend_doors();
    }
}

/// A share in the listener of an address, which listens as long as there is a share. Dropping it
/// sleeps.
pub(super) struct Door {
    dev: DeviceRef,
    listener: Arc<Listener>,
    waiting: Waiting,
}

impl Door {
    /// Listens at `addr` for `peer`.
    pub(super) fn open(dev: &DeviceRef, addr: SockAddr, peer: [u8; 16]) -> Result<Self> {
        let mut list = dev.doors.list.lock();
        // Checked under the lock, so that `Doors::close` sees every listener that began before it.
        if !dev.params.lock().pairs {
            return Err(errno::eopnotsupp());
        }
        let waiting = (peer, dev.doors.opened.fetch_add(1, Relaxed));
        let vrf = dev.netdev.vrf();
        let listener = match list.iter().find(|open| open.is_at(addr, vrf)) {
            Some(open) => {
                open.listener.remember(waiting)?;
                open.listener.clone()
            }
            None => {
                list.reserve(1, GFP_KERNEL)?;
                let listener = listener::listen_for_pairs(dev, &addr, vrf, BACKLOG, Some(waiting))?;
                let opened = Opened {
                    addr,
                    vrf,
                    listener: listener.clone(),
                };
                list.push(opened, GFP_KERNEL)?;
                listener
            }
        };
        Ok(Self {
            dev: dev.clone(),
            listener,
            waiting,
        })
    }
}

impl Drop for Door {
    fn drop(&mut self) {
        let mut list = self.dev.doors.list.lock();
        self.listener.forget(&self.waiting);
        close_unused(&mut list);
    }
}
