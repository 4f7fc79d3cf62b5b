// SPDX-License-Identifier: GPL-2.0

//! The ports of pairs: the listeners of the accepting ends, and the source ports of the connecting
//! ends.

use super::super::{
    super::DeviceRef,
    listener::{
        self,
        Listener,
        FIRST_FREE_PORT, //
    }, //
};
use crate::kapi::{
    errno,
    net::SockAddr, //
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
    #[pin]
    list: Mutex<KVec<Opened>>,
}

struct Opened {
    addr: SockAddr,
    listener: Arc<Listener>,
}

impl Doors {
    /// No listeners.
    pub(crate) fn new() -> impl PinInit<Self> {
        pin_init!(Self {
            port: Atomic::new(0),
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

    /// Closes all listeners. A pair with a share in one goes on waiting, in vain. Sleeps.
    pub(crate) fn close(&self) {
        let mut list = self.list.lock();
        for closed in core::mem::take(&mut *list) {
            let _ = listener::destroy_listen(closed.listener);
        }
    }
}

/// A share in the listener of an address, which listens as long as there is a share. Dropping it
/// sleeps.
pub(super) struct Door {
    dev: DeviceRef,
    listener: Arc<Listener>,
    peer: [u8; 16],
}

impl Door {
    /// Listens at `addr` for `peer`.
    pub(super) fn open(dev: &DeviceRef, addr: SockAddr, peer: [u8; 16]) -> Result<Self> {
        let mut list = dev.doors.list.lock();
        // Checked under the lock, so that `Doors::close` sees every listener that began before it.
        if !dev.params.lock().pairs {
            return Err(errno::eopnotsupp());
        }
        let listener = match list.iter().find(|open| open.addr == addr) {
            Some(open) => {
                open.listener.expect_from(peer)?;
                open.listener.clone()
            }
            None => {
                list.reserve(1, GFP_KERNEL)?;
                let listener = listener::listen_for_pairs(dev, &addr, BACKLOG)?;
                if let Err(e) = listener.expect_from(peer) {
                    let _ = listener::destroy_listen(listener);
                    return Err(e);
                }
                let opened = Opened {
                    addr,
                    listener: listener.clone(),
                };
                list.push(opened, GFP_KERNEL)?;
                listener
            }
        };
        Ok(Self {
            dev: dev.clone(),
            listener,
            peer,
        })
    }
}

impl Drop for Door {
    fn drop(&mut self) {
        let mut list = self.dev.doors.list.lock();
        if !self.listener.forget(&self.peer) {
            return;
        }
        let Some(at) = list
            .iter()
            .position(|open| Arc::ptr_eq(&open.listener, &self.listener))
        else {
            return;
        };
        // Destroyed under the lock, because the next listener needs the address.
        if let Ok(closed) = list.remove(at) {
            let _ = listener::destroy_listen(closed.listener);
        }
    }
}
