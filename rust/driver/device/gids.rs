// SPDX-License-Identifier: GPL-2.0

//! The GIDs of a device's port, which follow the addresses of its network device.

use crate::{
    limits,
    Device,
    IbDevice, //
};
use kernel::{
    prelude::*,
    sync::Arc,
    workqueue::WorkItem, //
};
use rdma::PortEvent;

/// The GIDs of a device's port. Zeros: no GID.
pub(super) type Gids = [[u8; 16]; limits::GIDS as usize];

/// An empty table.
pub(super) const NO_GIDS: Gids = [[0; 16]; limits::GIDS as usize];

impl WorkItem<3> for Device {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        // While the network device is down it may be about to go. Another check follows when it is
        // up.
        if !this.netdev.is_up() {
            return;
        }
        // While the core reads its table again, nobody can resolve or bind an address of the device
        // (ENODEV): it removes each GID, equal or not, before it stores the new one.
        let known = *this.known_gids.lock();
        if this.gids().is_ok_and(|gids| gids != known) {
            if let Some(dev) = IbDevice::find(&this.netdev) {
                dev.port_event(PortEvent::GidChange);
            }
        }
    }
}

impl Device {
    /// Has the core read the GIDs again if they have changed. Any context.
    pub(crate) fn check_gids(self: &Arc<Self>) {
        self.shared.cm.mod_delayed::<_, 3>(self.clone(), 0);
    }

    /// The GIDs: the network device's addresses, IPv4 first and in the form `::ffff:a.b.c.d`, then
    /// [`Self::hw_gid`], then zeros. So an interface without an address has one entry. If there are
    /// too many addresses for the table, the last ones are left out. May sleep.
    ///
    /// Entry 0 must exist: the core asks it for the network device (`cma_validate_port`).
    fn gids(&self) -> Result<Gids> {
        let addrs = self.netdev.addrs()?;
        let mut gids = NO_GIDS;
        let last = addrs.len().min(gids.len() - 1);
        for (index, gid) in gids.iter_mut().enumerate() {
            match addrs.get(index) {
                _ if index == last => *gid = self.hw_gid(),
                Some(addr) if index < last => *gid = addr.to_gid(),
                _ => break,
            }
        }
        Ok(gids)
    }

    /// GID `index`, for the core, which keeps it. May sleep.
    pub(super) fn read_gid(&self, index: usize) -> Result<[u8; 16]> {
        let gid = *self.gids()?.get(index).ok_or(EINVAL)?;
        if let Some(known) = self.known_gids.lock().get_mut(index) {
            *known = gid;
        }
        Ok(gid)
    }

    /// The GID that names the device itself: the hardware address followed by zeros, the only GID
    /// of the C driver. No peer can be reached by it.
    pub(crate) fn hw_gid(&self) -> [u8; 16] {
        let mut gid = [0; 16];
        let mac = *self.mac.lock();
        for (to, from) in gid.iter_mut().zip(mac) {
            *to = from;
        }
        gid
    }
}
