// SPDX-License-Identifier: GPL-2.0

//! `rdma link add NAME type siw netdev DEV`, and the events of the network device afterwards.

use super::{
    Device,
    IbDevice,
    Shared, //
};
use base::{
    addr::SockAddr,
    netdev::{
        arphrd,
        NetDev, //
    },
    slot, //
};
use kernel::{
    prelude::*,
    str::CStr,
    sync::Arc, //
};
use rdma::LinkOps;
use soft::netdev::notifier::{
    AddrEvent,
    NetdevEvent,
    NetdevEvents, //
};

/// The link type `siw`.
pub(crate) struct Link;

impl LinkOps for Link {
    fn newlink(name: &CStr, ndev: &NetDev) -> Result {
        // Ethernet-like devices and those without a hardware address (tun, wireguard).
        if !matches!(
            ndev.arphrd(),
            arphrd::ETHER | arphrd::IEEE802 | arphrd::NONE | arphrd::LOOPBACK
        ) {
            return Err(EINVAL);
        }
        let shared = slot::with(|shared: &Arc<Shared>| shared.clone()).ok_or(ENODEV)?;
        // Held until the device can be found. Otherwise two requests at once would make two
        // devices.
        let _adding = shared.adding.lock();
        if IbDevice::find(ndev).is_some() {
            return Err(EEXIST);
        }
        Device::add(shared.clone(), name, ndev)
    }
}

/// Follows the network devices under RDMA devices.
pub(crate) struct Events;

impl NetdevEvents for Events {
    fn netdev(&self, ndev: &NetDev, event: NetdevEvent) {
        let Some(dev) = IbDevice::find(ndev) else {
            return;
        };
        match event {
            // The device holds a reference to the netdev until it is gone.
            NetdevEvent::Unregister => {
                dev.endpoints.abort_all();
                dev.unregister();
            }
            // The core reports port changes for plain devices, but leaves bond masters to the
            // driver; it drops repeated states (`ib_dispatch_port_state_event`).
            NetdevEvent::Up => {
                dev.port_state(ndev);
                dev.check_gids();
            }
            NetdevEvent::Change => {
                dev.port_state(ndev);
                dev.endpoints.look_at_paths();
            }
            // At module exit the notifier reports "down" and "unregister" for devices that stay.
            NetdevEvent::Down if !ndev.is_up() => {
                dev.port_state(ndev);
                dev.endpoints.look_at_paths();
            }
            NetdevEvent::ChangeAddr => {
                dev.mac_changed();
                dev.check_gids();
            }
            // The MTU is read where it is used; TCP's MSS follows by itself. The name of the netdev
            // is not used.
            _ => (),
        }
    }

    fn addr(&self, ndev: &NetDev, _addr: SockAddr, event: AddrEvent) {
        let Some(dev) = IbDevice::find(ndev) else {
            return;
        };
        if event == AddrEvent::Removed {
            dev.check_addrs();
        }
        dev.attend_doors();
        // The GIDs are the addresses.
        dev.check_gids();
    }
}
