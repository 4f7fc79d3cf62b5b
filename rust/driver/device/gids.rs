// SPDX-License-Identifier: GPL-2.0

//! The GIDs of a device's port, which follow the addresses of its network device.

use crate::{
    limits,
    Device,
    IbDevice, //
};
use base::addr::SockAddr;
use kernel::{
    prelude::*,
    sync::Arc,
    workqueue::WorkItem, //
};

/// The GIDs of a device's port. Zeros: no GID.
pub(super) type Gids = [Gid; limits::GIDS as usize];

type Gid = [u8; 16];

const NO_GID: Gid = [0; 16];

pub(super) const NO_GIDS: Gids = [NO_GID; limits::GIDS as usize];

/// Kinds of GIDs, the best first. A GID of the best kind present has index 0.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    V4,
    V6,
    LinkLocal,
    Hardware,
    None,
}

impl Kind {
    fn of(gid: &Gid, hardware: &Gid) -> Self {
        match SockAddr::from_gid(*gid, 0, 1) {
            _ if *gid == NO_GID => Self::None,
            _ if gid == hardware => Self::Hardware,
            SockAddr::V4 { .. } => Self::V4,
            SockAddr::V6 { scope: 0, .. } => Self::V6,
            SockAddr::V6 { .. } => Self::LinkLocal,
        }
    }
}

impl WorkItem<3> for Device {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        // While the network device is down it may be about to go. Another check follows when it is
        // up.
        if !this.netdev.is_up() {
            return;
        }
        let Some(dev) = IbDevice::find(&this.netdev) else {
            return;
        };
        // The core may be about to store what it was told, or to remove what is gone since.
        let told = dev.told_gids.lock();
        let cached = cached(&dev);
        if dev
            .gids(cached)
            .is_ok_and(|gids| gids != cached || gids != *told)
        {
            dev.gids_changed();
        }
    }
}

/// The GIDs that the core knows.
fn cached(dev: &IbDevice) -> Gids {
    core::array::from_fn(|index| dev.cached_gid(index))
}

fn put(gids: &mut Gids, index: usize, gid: Gid) {
    if let Some(place) = gids.get_mut(index) {
        *place = gid;
    }
}

impl Device {
    /// Tells the core, soon, if the GIDs have changed. Any context.
    pub(crate) fn check_gids(self: &Arc<Self>) {
        self.shared.cm.mod_delayed::<_, 3>(self.clone(), 0);
    }

    /// The GIDs that follow `cached`: the network device's addresses, IPv4 first and in the form
    /// `::ffff:a.b.c.d`, and [`Self::hw_gid`]. If there are too many for the table, the last ones
    /// are left out. May sleep.
    ///
    /// A GID keeps its index, also while the core reads one after the other. But one of a better
    /// [kind](Kind::of) than that at index 0 takes its place; the one that was there goes to a free
    /// one. Index 0 must exist: the core asks it for the network device (`cma_validate_port`).
    fn gids(&self, cached: Gids) -> Result<Gids> {
        let addrs = self.netdev.addrs()?;
        let hardware = self.hw_gid();
        let present = || Iterator::chain(addrs.iter().map(|addr| addr.to_gid()), [hardware]);
        let kind = |gid: &Gid| Kind::of(gid, &hardware);
        let mut gids = NO_GIDS;
        for (index, gid) in cached.into_iter().enumerate() {
            // The core may have read index 0, and not yet the one that the GID had before.
            if present().any(|other| other == gid) && !gids.contains(&gid) {
                put(&mut gids, index, gid);
            }
        }
        if let Some(best) = present().min_by_key(kind) {
            if gids.first().is_some_and(|first| kind(&best) < kind(first)) {
                if let Some(index) = gids.iter().position(|gid| *gid == best) {
                    put(&mut gids, index, NO_GID);
                }
                put(&mut gids, 0, best);
            }
        }
        for gid in present() {
            if !gids.contains(&gid) {
                if let Some(index) = gids.iter().position(|gid| *gid == NO_GID) {
                    put(&mut gids, index, gid);
                }
            }
        }
        Ok(gids)
    }

    /// GID `index`, for the core, which keeps it. May sleep.
    pub(super) fn read_gid(dev: &IbDevice, index: usize) -> Result<Gid> {
        let mut told = dev.told_gids.lock();
        let gids = dev.gids(cached(dev))?;
        let gid = *gids.get(index).ok_or(EINVAL)?;
        put(&mut told, index, gid);
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
