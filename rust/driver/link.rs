// SPDX-License-Identifier: GPL-2.0

//! `rdma link add NAME type siw netdev DEV`, and what happens to the network device afterwards.

use super::{
    Device,
    IbDevice,
    Shared, //
};
use crate::kapi::{
    net::{
        arphrd,
        AddrEvent,
        NetDev,
        NetdevEvent,
        NetdevEvents,
        SockAddr, //
    },
    rdma::{
        LinkOps,
        PortEvent, //
    },
    slot, //
};
use kernel::{
    prelude::*,
    str::CStr,
    sync::Arc, //
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
        if IbDevice::find(ndev).is_some() {
            return Err(EEXIST);
        }
        let shared = slot::with(|shared: &Arc<Shared>| shared.clone()).ok_or(ENODEV)?;
        Device::add(shared, name, ndev)
    }
}

/// Follows the network devices of ours.
pub(crate) struct Events;

impl NetdevEvents for Events {
    fn netdev(&self, ndev: &NetDev, event: NetdevEvent) {
        let Some(dev) = IbDevice::find(ndev) else {
            return;
        };
        match event {
            // The device keeps the netdev busy until it is gone itself.
            NetdevEvent::Unregister => {
                dev.endpoints.abort_all();
                dev.unregister();
            }
            // The core reports port changes for plain devices, but leaves bond masters to the
            // driver; it drops repeated states (`ib_dispatch_port_state_event`).
            NetdevEvent::Up => {
                dev.port_state(ndev);
                dev.port_event(PortEvent::GidChange);
            }
            NetdevEvent::Change => dev.port_state(ndev),
            // When the module goes, the notifier is told "down" and "unregister" of devices that
            // are as well as before.
            NetdevEvent::Down if !ndev.is_up() => dev.port_state(ndev),
            NetdevEvent::ChangeAddr => {
                dev.mac_changed();
                dev.port_event(PortEvent::GidChange);
            }
            // The MTU is read where it is used; TCP's MSS follows by itself. The name is only used
            // for the debugfs folder, which is the RDMA device's.
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
        // GID 1.. are the addresses: the core reads the table again. It looks at the network
        // device when it comes to it, so this is left for later if the device is down, on its way
        // out perhaps.
        if ndev.is_up() {
            dev.port_event(PortEvent::GidChange);
        }
    }
}
