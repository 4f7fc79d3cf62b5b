// SPDX-License-Identifier: GPL-2.0

//! The ports of pairs: the listeners of those that are waited for, and where the others call from.

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
    net::SockAddr,
    sync::Atomic, //
};
use core::ops::Range;
use kernel::{
    prelude::*,
    sync::{
        atomic::Relaxed,
        Arc,
        Mutex, //
    }, //
};

/// Ports tried to call from, before a pause.
pub(super) const ATTEMPTS: usize = 16;

/// Connections that may wait to be accepted.
const BACKLOG: u32 = 4096;

/// The listeners of a device's pairs, one for an address, and the ports they call from.
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
    /// None yet.
    pub(crate) fn new() -> impl PinInit<Self> {
        pin_init!(Self {
            port: Atomic::new(0),
            list <- ranked_mutex!(Rank::Doors, KVec::new()),
        })
    }

    /// A privileged port to call from, each in its turn: the last one may not be free yet.
    pub(super) fn next_port(&self, attempt: usize) -> u16 {
        // NFS takes the upper ones, and wants them for itself; below are services.
        let range: Range<u16> = if attempt < ATTEMPTS / 2 {
            512..665
        } else {
            665..FIRST_FREE_PORT
        };
        let turn = self.port.fetch_add(1, Relaxed) as usize;
        range.clone().nth(turn % range.len()).unwrap_or(range.start)
    }

    /// Closes all listeners. Who has a share in one waits on, for nobody. Sleeps.
    pub(crate) fn close(&self) {
        let mut list = self.list.lock();
        for closed in core::mem::take(&mut *list) {
            let _ = listener::destroy_listen(closed.listener);
        }
    }
}

/// A share in the listener of an address: it listens as long as there is one. Dropping it sleeps.
pub(super) struct Door {
    dev: DeviceRef,
    listener: Arc<Listener>,
    peer: [u8; 16],
}

impl Door {
    /// Listens at `addr` for `peer`.
    pub(super) fn open(dev: &DeviceRef, addr: SockAddr, peer: [u8; 16]) -> Result<Self> {
        let mut list = dev.doors.list.lock();
        // Under the lock: `Doors::close` is to see what begins before it.
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
        // Under the lock: the next one needs the address.
        if let Ok(closed) = list.remove(at) {
            let _ = listener::destroy_listen(closed.listener);
        }
    }
}
