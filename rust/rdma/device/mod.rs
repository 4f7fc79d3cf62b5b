// SPDX-License-Identifier: GPL-2.0

//! RDMA devices.
//!
//! The core allocates the device ([`Device::new`]), and from its registration on owns it:
//! `ib_unregister_device_queued` or `ib_unregister_driver` end in `dealloc_driver`, where the
//! payload is dropped, after all objects are gone and no callback can run any more.

mod attr;
pub(super) mod callbacks;
pub(super) mod counter;
pub(super) mod gid;
mod provider;
pub(super) mod traffic;

use core::{
    marker::PhantomData,
    mem::ManuallyDrop,
    ops::Deref,
    ptr::{
        null_mut,
        NonNull, //
    }, //
};

use kernel::{
    device,
    error::to_result,
    prelude::*,
    types::Opaque, //
};

use crate::{
    ops,
    qp::Operations as _,
    setting::Files,
    ucontext::Operations as _, //
};
use base::{
    bindings::{
        self,
        ib_device,
        rdma_stat_desc, //
    },
    netdev::{
        NetDev,
        NetNs, //
    },
    version, //
};

pub(super) use self::attr::{
    mtu_enum,
    PKEYS, //
};
use self::gid::KeptGid;
pub use self::{
    attr::{
        port_cap,
        DeviceAttr,
        PortAttr, //
    },
    provider::Driver,
    traffic::Traffic, //
};

/// The only port.
pub(super) const PORT: u32 = 1;

/// A device with the provider's payload.
///
/// # Examples
///
/// ```ignore
/// let ns = ndev.net().ok_or(ENODEV)?;
/// let cfg = DeviceConfig {
///     net: Some(&ns),
///     node_guid: GUID,
///     node_desc: c"My RDMA device",
///     num_comp_vectors: 1,
/// };
/// let data = pin_init!(Data { room: Atomic::new(16) });
/// Device::<MyDriver>::new(module, &cfg, data)?.register(c"mine%d")?;
/// ```
///
/// # Invariants
///
/// `base` was allocated by the core; all fields are initialised.
#[repr(C)]
pub struct Device<D: Driver> {
    base: Opaque<ib_device>,
    stats: KVec<rdma_stat_desc>,
    settings: Files<D>,
    kept_gid: KeptGid,
    data: D::Data,
}

// SAFETY: The C structure is only changed by functions of the core that lock as needed.
unsafe impl<D: Driver> Send for Device<D> {}

// SAFETY: As above; the payload is `Sync` by the bound of `Driver::Data`.
unsafe impl<D: Driver> Sync for Device<D> {}

impl<D: Driver> Deref for Device<D> {
    type Target = D::Data;

    fn deref(&self) -> &D::Data {
        &self.data
    }
}

/// The kind of a device (`enum rdma_node_type`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeType {
    /// An RDMA NIC, of iWARP.
    Rnic,
    /// None of those that the core knows.
    Unspecified,
}

impl NodeType {
    fn as_raw(self) -> u8 {
        match self {
            Self::Rnic => bindings::RDMA_NODE_RNIC as u8,
            Self::Unspecified => bindings::RDMA_NODE_UNSPECIFIED as u8,
        }
    }
}

/// The protocol of a port, which says what the core does for it (`RDMA_CORE_PORT_*`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// iWARP: connections are set up by iw_cm.
    Iwarp,
    /// None that the core knows.
    None,
}

impl Protocol {
    pub(super) fn core_cap_flags(self) -> u32 {
        match self {
            Self::Iwarp => bindings::RDMA_CORE_PORT_IWARP,
            Self::None => 0,
        }
    }
}

/// The attributes of a new device.
pub struct DeviceConfig<'a> {
    /// The network namespace of the device, `None` for the initial one. If the core shares devices
    /// between namespaces it ignores this and takes the initial one.
    pub net: Option<&'a NetNs>,
    /// An EUI-64.
    pub node_guid: [u8; 8],
    /// A name for humans, of at most 63 bytes; what is longer is cut off.
    pub node_desc: &'a CStr,
    /// The number of completion vectors.
    pub num_comp_vectors: u32,
}

/// The name of a device and the network namespace in which it is unique.
#[derive(Clone, Copy)]
pub struct DeviceName<'a> {
    /// The name.
    pub name: &'a CStr,
    /// Inode number of the namespace. `None` for the initial one.
    pub netns: Option<u32>,
}

impl DeviceName<'_> {
    /// # Safety
    ///
    /// `dev` is being registered or is registered. During the lifetime the core neither renames it
    /// nor moves it to another namespace.
    pub(super) unsafe fn from_raw(dev: *mut ib_device) -> Self {
        // SAFETY: The core has written the name, which ends with a zero. By the requirements of
        // this function it stays as it is.
        let name = unsafe { CStr::from_char_ptr((&raw const (*dev).name).cast()) };
        // SAFETY: By the requirements of this function the device has a namespace, and stays there.
        let netns = unsafe { bindings::ib_netns(dev) };
        Self {
            name,
            netns: (netns != 0).then_some(netns),
        }
    }
}

impl<D: Driver> AsRef<device::Device> for Device<D> {
    fn as_ref(&self) -> &device::Device {
        // SAFETY: The device is initialised.
        let dev = unsafe { &raw mut (*self.as_raw()).__bindgen_anon_1.dev };
        // SAFETY: It is valid as long as this.
        unsafe { device::Device::from_raw(dev.cast()) }
    }
}

impl<D: Driver> Device<D> {
    /// Allocates a device. May sleep.
    #[expect(clippy::new_ret_no_self, reason = "it is owned until it is registered")]
    pub fn new<'a, E>(
        module: &'static ThisModule,
        cfg: &DeviceConfig<'a>,
        data: impl PinInit<D::Data, E>,
    ) -> Result<NewDevice<'a, D>>
    where
        Error: From<E>,
    {
        const { assert!(align_of::<Self>() <= bindings::ARCH_KMALLOC_MINALIGN) };
        // Drivers without a number of their own have this one, so unregistering by it would take
        // their devices, too.
        const { assert!(D::DRIVER_ID != bindings::rdma_driver_id_RDMA_DRIVER_UNKNOWN) };
        let mut stats = KVec::with_capacity(D::COUNTERS.len(), GFP_KERNEL)?;
        for name in D::COUNTERS {
            let desc = rdma_stat_desc {
                name: name.as_char_ptr(),
                ..pin_init::zeroed()
            };
            stats.push(desc, GFP_KERNEL)?;
        }
        let settings = Files::<D>::new()?;
        let group = settings.group();

        let net = cfg.net.map_or(&raw mut bindings::init_net, NetNs::as_raw);
        // SAFETY: `init_net` is there forever. Otherwise the namespace is borrowed until the device
        // is registered; from then on the core moves the device out of it before it ends.
        let dev = unsafe { bindings::_ib_alloc_device(size_of::<Self>(), net) };
        if dev.is_null() {
            return Err(ENOMEM);
        }
        let this = dev.cast::<Self>();
        // SAFETY: The core allocated enough, and does not move it.
        unsafe { version::init(data, &raw mut (*this).data) }.inspect_err(|_| {
            // SAFETY: Allocated above; there are no callbacks yet.
            unsafe { bindings::ib_dealloc_device(dev) };
        })?;
        // SAFETY: The core allocated enough, and nobody else uses the field yet.
        unsafe { (&raw mut (*this).stats).write(stats) };
        // SAFETY: The core allocated enough, and nobody else uses the field yet.
        unsafe { (&raw mut (*this).settings).write(settings) };
        // SAFETY: The core allocated enough, and nobody else uses the field yet.
        unsafe { (&raw mut (*this).kept_gid).write(KeptGid::new()) };
        // SAFETY: Nobody else knows the device yet.
        unsafe { Self::configure(&mut *dev, module, cfg) };
        // SAFETY: As above. The files live as long as the device.
        unsafe { (*dev).ops.device_group = group };
        // INVARIANT: Allocated and initialised above, not registered yet.
        Ok(NewDevice {
            dev: this,
            _p: PhantomData,
        })
    }

    fn configure(dev: &mut ib_device, module: &'static ThisModule, cfg: &DeviceConfig<'_>) {
        dev.node_guid = u64::from_ne_bytes(cfg.node_guid);
        dev.node_type = D::NODE_TYPE.as_raw();
        // The array is zeroed; the last byte stays.
        let desc = cfg.node_desc.to_bytes();
        let room = dev.node_desc.len() - 1;
        for (to, from) in dev.node_desc.iter_mut().take(room).zip(desc) {
            *to = *from;
        }
        dev.phys_port_cnt = PORT;
        dev.num_comp_vectors = i32::try_from(cfg.num_comp_vectors).unwrap_or(1);
        if <D::Qp>::HAS_POST_SEND {
            // The doorbell of a mapped send queue. Without the commands for receives, no receive
            // of a program comes to `post_recv`.
            dev.uverbs_cmd_mask |= 1 << bindings::ib_uverbs_write_cmds_IB_USER_VERBS_CMD_POST_SEND;
        }
        // Connections are sockets of the host: a port mapper would keep them apart from its own.
        dev.iw_driver_flags = bindings::iw_flags_IW_F_NO_PORT_MAP;
        if <D::Ucontext>::HAS_QUERY {
            dev.driver_def = (&raw const bindings::rust_rdma_driver_def).cast();
        }
        dev.ops.owner = module.as_ptr();
        // SAFETY: `dev` is valid; what the structure points to is static.
        unsafe { bindings::ib_set_device_ops(&raw mut *dev, &ops::Table::<D>::OPS) };
    }

    /// # Safety
    ///
    /// `dev` is in a device of `D`, initialised, and stays so during `'a`.
    pub(super) unsafe fn from_raw<'a>(dev: *const ib_device) -> &'a Self {
        // SAFETY: By the requirements of this function; `base` is at offset 0.
        unsafe { &*dev.cast() }
    }

    /// Whether a device was made here.
    ///
    /// # Safety
    ///
    /// `dev` is registered, or being registered.
    pub(super) unsafe fn is_ours(dev: *const ib_device) -> bool {
        // SAFETY: By the requirements of this function.
        let dealloc = unsafe { (*dev).ops.dealloc_driver };
        dealloc.map(|f| f as usize) == Some(callbacks::dealloc::<D> as usize)
    }

    /// The device for a function of C.
    pub fn as_raw(&self) -> *mut ib_device {
        self.base.get()
    }

    pub(super) fn stats(&self) -> &[rdma_stat_desc] {
        &self.stats
    }

    /// Drops what the core did not make.
    ///
    /// # Safety
    ///
    /// `dev` is in a device of `D`, initialised, and nobody uses it any more.
    pub(super) unsafe fn drop_payload(dev: *mut ib_device) {
        let this = dev.cast::<Self>();
        // SAFETY: By the requirements of this function.
        unsafe { core::ptr::drop_in_place(&raw mut (*this).data) };
        // SAFETY: As above; the core has removed the statistics before.
        unsafe { core::ptr::drop_in_place(&raw mut (*this).stats) };
        // SAFETY: As above; the files are gone from sysfs.
        unsafe { core::ptr::drop_in_place(&raw mut (*this).settings) };
    }

    /// The network device below. May sleep.
    pub fn netdev(&self) -> Option<NetDev> {
        // SAFETY: The device is initialised.
        let ndev = unsafe { bindings::ib_device_get_netdev(self.as_raw(), PORT) };
        if ndev.is_null() {
            return None;
        }
        // SAFETY: It is held.
        let held = unsafe { NetDev::from_raw(ndev) };
        // SAFETY: `held` has a reference of its own; this is the one just taken.
        unsafe { bindings::dev_put(ndev) };
        Some(held)
    }

    /// The device above `ndev`, if there is one that is registered. Any context.
    pub fn find(ndev: &NetDev) -> Option<DeviceRef<D>> {
        // SAFETY: `ndev` is valid.
        let dev = unsafe { bindings::ib_device_get_by_netdev(ndev.as_raw(), D::DRIVER_ID) };
        let raw = NonNull::new(dev)?;
        // Any driver could use our number.
        // SAFETY: It is held.
        if !unsafe { Self::is_ours(dev) } {
            // SAFETY: Taken above.
            unsafe { bindings::ib_device_put(dev) };
            return None;
        }
        // INVARIANT: Taken above.
        Some(DeviceRef { dev: raw.cast() })
    }

    /// The speed and width of the port as verbs count them. May sleep; takes the RTNL.
    pub fn eth_speed(&self) -> Result<(u16, u8)> {
        let (mut speed, mut width) = (0, 0);
        // SAFETY: The device is initialised.
        to_result(unsafe {
            bindings::ib_get_eth_speed(self.as_raw(), PORT, &mut speed, &mut width)
        })?;
        Ok((speed, width))
    }

    /// Tells the consumers if the state of the port has changed with that of `ndev`. Any context.
    pub fn port_state(&self, ndev: &NetDev) {
        // SAFETY: Both are valid.
        unsafe { bindings::ib_dispatch_port_state_event(self.as_raw(), ndev.as_raw().cast()) };
    }
}

/// A device that is not registered yet. Dropping it may sleep.
///
/// # Invariants
///
/// `dev` is an initialised device that only this refers to.
pub struct NewDevice<'a, D: Driver> {
    dev: *mut Device<D>,
    /// The device, and its namespace, to which the core takes no reference.
    _p: PhantomData<(Device<D>, &'a NetNs)>,
}

impl<D: Driver> Deref for NewDevice<'_, D> {
    type Target = Device<D>;

    fn deref(&self) -> &Device<D> {
        // SAFETY: Valid by the type invariants.
        unsafe { &*self.dev }
    }
}

impl<D: Driver> NewDevice<'_, D> {
    /// Puts the device on top of `ndev`. May sleep.
    pub fn set_netdev(&self, ndev: &NetDev) -> Result {
        let dev = self.as_raw();
        // SAFETY: Both are valid; the core takes a reference.
        to_result(unsafe { bindings::ib_device_set_netdev(dev, ndev.as_raw(), PORT) })?;
        // SAFETY: Nobody else uses the device yet.
        let ifname = unsafe { &mut (*dev).iw_ifname };
        // The last byte stays zero.
        let room = ifname.len() - 1;
        let name = ndev.name();
        for (to, from) in ifname.iter_mut().take(room).zip(name.as_bytes()) {
            *to = *from;
        }
        Ok(())
    }

    /// Registers the device; a `%d` of the name becomes a number. May sleep; takes the RTNL.
    pub fn register(self, name: &CStr) -> Result {
        let dev = self.as_raw();
        // SAFETY: The device is not known to anybody yet.
        unsafe { bindings::ib_mark_name_assigned_by_user(dev) };
        // SAFETY: The device is complete.
        to_result(unsafe { bindings::ib_register_device(dev, name.as_char_ptr(), null_mut()) })?;
        // The core owns it now.
        let _ = ManuallyDrop::new(self);
        Ok(())
    }
}

impl<D: Driver> Drop for NewDevice<'_, D> {
    fn drop(&mut self) {
        // SAFETY: It is not registered by the type invariants. This calls `dealloc_driver`.
        unsafe { bindings::ib_dealloc_device(self.as_raw()) };
    }
}

/// A reference that keeps the device registered. It should be short-lived: the unregistration
/// waits for it.
///
/// # Invariants
///
/// `dev` is a registered device, and the reference is counted.
pub struct DeviceRef<D: Driver> {
    dev: NonNull<Device<D>>,
}

// SAFETY: `Device` is `Sync`.
unsafe impl<D: Driver> Send for DeviceRef<D> {}

// SAFETY: `Device` is `Sync`.
unsafe impl<D: Driver> Sync for DeviceRef<D> {}

impl<D: Driver> DeviceRef<D> {
    /// Has the device unregistered, later and once. Any context.
    pub fn unregister(&self) {
        // SAFETY: The reference is there by the type invariants.
        unsafe { bindings::ib_unregister_device_queued(self.as_raw()) };
    }
}

impl<D: Driver> Deref for DeviceRef<D> {
    type Target = Device<D>;

    fn deref(&self) -> &Device<D> {
        // SAFETY: Valid by the type invariants.
        unsafe { self.dev.as_ref() }
    }
}

impl<D: Driver> Drop for DeviceRef<D> {
    fn drop(&mut self) {
        // SAFETY: Counted by the type invariants.
        unsafe { bindings::ib_device_put(self.as_raw()) };
    }
}

/// Whether a port on this network device is active (`ib_get_curr_port_state`).
pub fn port_active(ndev: &NetDev) -> bool {
    // SAFETY: `ndev` is valid.
    unsafe { bindings::ib_port_active(ndev.as_raw()) }
}

/// The number of CPUs that there may be.
pub fn num_possible_cpus() -> u32 {
    // SAFETY: No requirements.
    unsafe { bindings::num_possible_cpus() }
}

/// The GUID made of a MAC address (`addrconf_addr_eui48`).
pub fn eui48_to_guid(mac: [u8; 6]) -> [u8; 8] {
    let [a, b, c, d, e, f] = mac;
    [a ^ 2, b, c, 0xff, 0xfe, d, e, f]
}
