// SPDX-License-Identifier: GPL-2.0

//! Notification of changes of network devices and their addresses.

use base::{
    addr::{
        RawAddr,
        SockAddr, //
    },
    bindings,
    netdev::NetDev, //
};
use core::ptr::null_mut;
use kernel::{
    error::to_result,
    ffi,
    prelude::*,
    sync::Arc,
    task::might_sleep,
    types::{
        Opaque,
        ScopeGuard, //
    }, //
};

/// What happened to a device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NetdevEvent {
    /// It was registered.
    Register,
    /// It is being unregistered; references must be dropped.
    Unregister,
    /// It was brought up.
    Up,
    /// It is about to be brought down.
    GoingDown,
    /// It was brought down.
    Down,
    /// Its flags or its link changed.
    Change,
    /// Its MTU changed.
    ChangeMtu,
    /// Its link layer address changed.
    ChangeAddr,
    /// Its name changed.
    ChangeName,
    /// The system is going down.
    Reboot,
    /// Something else.
    Other,
}

/// What happened to an address of a device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AddrEvent {
    /// It was added.
    Added,
    /// It was removed.
    Removed,
}

/// The handler of events.
pub trait NetdevEvents: Send + Sync {
    /// Called with RTNL held. May sleep. Must neither take RTNL nor wait for a context that does.
    fn netdev(&self, dev: &NetDev, event: NetdevEvent);

    /// Called in any context. Must not sleep.
    fn addr(&self, _dev: &NetDev, _addr: SockAddr, _event: AddrEvent) {}
}

/// The notifier blocks, each of which leads to the handler.
struct Blocks {
    netdev: Opaque<bindings::notifier_block>,
    inet: Opaque<bindings::notifier_block>,
    inet6: Opaque<bindings::notifier_block>,
    handler: Arc<dyn NetdevEvents>,
}

/// A registration for the events of all devices in all namespaces.
///
/// # Invariants
///
/// All three blocks are registered, and are so only here.
pub struct NetdevNotifier(KBox<Blocks>);

// SAFETY: The handler is `Send` and `Sync`; the C side locks its lists.
unsafe impl Send for NetdevNotifier {}
// SAFETY: A shared registration can do nothing: the callbacks alone use the handler, which is
// `Sync`.
unsafe impl Sync for NetdevNotifier {}

type Call = unsafe extern "C" fn(
    *mut bindings::notifier_block,
    ffi::c_ulong,
    *mut ffi::c_void,
) -> ffi::c_int;

fn block(call: Call) -> Opaque<bindings::notifier_block> {
    Opaque::new(bindings::notifier_block {
        notifier_call: Some(call),
        next: null_mut(),
        priority: 0,
    })
}

impl NetdevNotifier {
    /// Registers `handler`. May sleep; not under RTNL.
    ///
    /// For a device that exists already, the handler gets `Register`, and `Up` if the device is up.
    pub fn register(handler: Arc<dyn NetdevEvents>) -> Result<Self> {
        might_sleep();
        let blocks = KBox::new(
            Blocks {
                netdev: block(netdev_callback),
                inet: block(inet_callback),
                inet6: block(inet6_callback),
                handler,
            },
            GFP_KERNEL,
        )?;
        // SAFETY: The block is initialised, and stays where it is until it is unregistered.
        to_result(unsafe { bindings::register_inetaddr_notifier(blocks.inet.get()) })?;
        let undo_inet = ScopeGuard::new(|| {
            // SAFETY: It was registered above. Cannot fail then.
            unsafe { bindings::unregister_inetaddr_notifier(blocks.inet.get()) };
        });
        // SAFETY: The block is initialised, and the box keeps it in place until it is unregistered.
        to_result(unsafe { bindings::register_inet6addr_notifier(blocks.inet6.get()) })?;
        let undo_inet6 = ScopeGuard::new(|| {
            // SAFETY: It was registered above. Cannot fail then.
            unsafe { bindings::unregister_inet6addr_notifier(blocks.inet6.get()) };
        });
        // SAFETY: The block is initialised, and the box keeps it in place until it is unregistered.
        to_result(unsafe { bindings::register_netdevice_notifier(blocks.netdev.get()) })?;
        undo_inet6.dismiss();
        undo_inet.dismiss();
        // INVARIANT: All three were just registered.
        Ok(Self(blocks))
    }
}

impl Drop for NetdevNotifier {
    fn drop(&mut self) {
        might_sleep();
        // SAFETY: Registered, by the type invariants. No callback runs after it.
        unsafe { bindings::unregister_netdevice_notifier(self.0.netdev.get()) };
        // SAFETY: Registered, by the type invariants, and only here.
        unsafe { bindings::unregister_inet6addr_notifier(self.0.inet6.get()) };
        // SAFETY: Registered, by the type invariants, and only here.
        unsafe { bindings::unregister_inetaddr_notifier(self.0.inet.get()) };
    }
}

/// # Safety
///
/// Called by the netdevice chain only: `nb` is the `netdev` of a registered [`Blocks`].
unsafe extern "C" fn netdev_callback(
    nb: *mut bindings::notifier_block,
    event: ffi::c_ulong,
    info: *mut ffi::c_void,
) -> ffi::c_int {
    // CAST: `Opaque<T>` is transparent to `T`.
    // SAFETY: By the contract of this function.
    let blocks = unsafe {
        &*kernel::container_of!(
            nb.cast::<Opaque<bindings::notifier_block>>(),
            Blocks,
            netdev
        )
    };
    // SAFETY: The chain passes a `netdev_notifier_info`.
    let dev = unsafe { bindings::netdev_notifier_info_to_dev(info) };
    // SAFETY: The device is valid during the call.
    let dev = unsafe { NetDev::from_raw(dev) };
    let event = match event as u32 {
        bindings::netdev_cmd_NETDEV_REGISTER => NetdevEvent::Register,
        bindings::netdev_cmd_NETDEV_UNREGISTER => NetdevEvent::Unregister,
        bindings::netdev_cmd_NETDEV_UP => NetdevEvent::Up,
        bindings::netdev_cmd_NETDEV_GOING_DOWN => NetdevEvent::GoingDown,
        bindings::netdev_cmd_NETDEV_DOWN => NetdevEvent::Down,
        bindings::netdev_cmd_NETDEV_CHANGE => NetdevEvent::Change,
        bindings::netdev_cmd_NETDEV_CHANGEMTU => NetdevEvent::ChangeMtu,
        bindings::netdev_cmd_NETDEV_CHANGEADDR => NetdevEvent::ChangeAddr,
        bindings::netdev_cmd_NETDEV_CHANGENAME => NetdevEvent::ChangeName,
        bindings::netdev_cmd_NETDEV_REBOOT => NetdevEvent::Reboot,
        _ => NetdevEvent::Other,
    };
    blocks.handler.netdev(&dev, event);
    bindings::NOTIFY_DONE as ffi::c_int
}

/// Reports an event of an address, which `read` extracts from `ifa`.
///
/// # Safety
///
/// `ifa` must be what `read` takes.
unsafe fn address_event(
    handler: &dyn NetdevEvents,
    event: ffi::c_ulong,
    ifa: *mut ffi::c_void,
    read: unsafe extern "C" fn(
        *mut ffi::c_void,
        *mut bindings::__kernel_sockaddr_storage,
    ) -> *mut bindings::net_device,
) -> ffi::c_int {
    let event = match event as u32 {
        bindings::netdev_cmd_NETDEV_UP => Some(AddrEvent::Added),
        bindings::netdev_cmd_NETDEV_DOWN => Some(AddrEvent::Removed),
        _ => None,
    };
    let mut addr = RawAddr::new();
    // SAFETY: By the contract of this function.
    let dev = unsafe { read(ifa, addr.as_mut_ptr()) };
    // SAFETY: The device is valid during the call.
    let dev = unsafe { NetDev::from_raw(dev) };
    if let (Some(event), Some(addr)) = (event, addr.parse()) {
        handler.addr(&dev, addr, event);
    }
    bindings::NOTIFY_DONE as ffi::c_int
}

/// # Safety
///
/// Called by the IPv4 address chain only: `nb` is the `inet` of a registered [`Blocks`].
unsafe extern "C" fn inet_callback(
    nb: *mut bindings::notifier_block,
    event: ffi::c_ulong,
    ifa: *mut ffi::c_void,
) -> ffi::c_int {
    // CAST: `Opaque<T>` is transparent to `T`.
    // SAFETY: By the contract of this function.
    let blocks = unsafe {
        &*kernel::container_of!(nb.cast::<Opaque<bindings::notifier_block>>(), Blocks, inet)
    };
    // SAFETY: The chain passes a `struct in_ifaddr`.
    unsafe { address_event(&*blocks.handler, event, ifa, bindings::base_inetaddr) }
}

/// # Safety
///
/// Called by the IPv6 address chain only: `nb` is the `inet6` of a registered [`Blocks`].
unsafe extern "C" fn inet6_callback(
    nb: *mut bindings::notifier_block,
    event: ffi::c_ulong,
    ifa: *mut ffi::c_void,
) -> ffi::c_int {
    // CAST: `Opaque<T>` is transparent to `T`.
    // SAFETY: By the contract of this function.
    let blocks = unsafe {
        &*kernel::container_of!(nb.cast::<Opaque<bindings::notifier_block>>(), Blocks, inet6)
    };
    // SAFETY: The chain passes a `struct inet6_ifaddr`.
    unsafe { address_event(&*blocks.handler, event, ifa, bindings::base_inet6addr) }
}
