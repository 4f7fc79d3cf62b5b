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
type Gids = [Gid; limits::GIDS as usize];

type Gid = [u8; 16];

const NO_GID: Gid = [0; 16];

const NO_GIDS: Gids = [NO_GID; limits::GIDS as usize];

/// Kinds of GIDs, the best first.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    V4,
    V6,
    LinkLocal,
    Hardware,
    None,
}

impl WorkItem<3> for Device {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        // While the network device is down it may be about to go. Another check follows when it is
        // up.
        if !this.netdev.is_up() {
            return;
        }
        if let Some(dev) = IbDevice::find(&this.netdev) {
            let cached = cached(&dev);
            if this.gids(cached).is_ok_and(|gids| gids != cached) {
                dev.gids_changed();
            }
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
    /// Has the core read the GIDs again if they have changed. Any context.
    pub(crate) fn check_gids(self: &Arc<Self>) {
        self.shared.cm.mod_delayed::<_, 3>(self.clone(), 0);
    }

    /// The GIDs that follow `cached`: the network device's addresses, IPv4 first and in the form
    /// `::ffff:a.b.c.d`, and [`Self::hw_gid`]. If there are too many for the table, the last ones
    /// are left out. May sleep.
    ///
    /// A GID keeps its index, also while the core reads one after the other, but for one of a
    /// better [kind](Self::kind) than that at index 0, which takes its place. Index 0 must exist:
    /// the core asks it for the network device (`cma_validate_port`).
    fn gids(&self, cached: Gids) -> Result<Gids> {
        let addrs = self.netdev.addrs()?;
        let present = || Iterator::chain(addrs.iter().map(|addr| addr.to_gid()), [self.hw_gid()]);
        let mut gids = NO_GIDS;
        for (index, gid) in cached.into_iter().enumerate() {
            // The core may have read index 0, and not yet the one that the GID had before.
            if present().any(|other| other == gid) && !gids.contains(&gid) {
                put(&mut gids, index, gid);
            }
        }
        if let Some(best) = present().min_by_key(|gid| self.kind(gid)) {
            if gids
                .first()
                .is_some_and(|first| self.kind(&best) < self.kind(first))
            {
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

    /// The kind of a GID. The best of those that there are has index 0.
    fn kind(&self, gid: &Gid) -> Kind {
        match (gid, SockAddr::from_gid(*gid, 0, 1)) {
            (&NO_GID, _) => Kind::None,
            (gid, _) if *gid == self.hw_gid() => Kind::Hardware,
            (_, SockAddr::V4 { .. }) => Kind::V4,
            (_, SockAddr::V6 { scope: 0, .. }) => Kind::V6,
            _ => Kind::LinkLocal,
        }
    }

    /// GID `index`, for the core, which keeps it. May sleep.
    pub(super) fn read_gid(dev: &IbDevice, index: usize) -> Result<Gid> {
        let gids = dev.gids(cached(dev))?;
        gids.get(index).copied().ok_or(EINVAL)
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
