// SPDX-License-Identifier: GPL-2.0

//! What a provider implements.

use core::fmt;

use kernel::prelude::*;

use crate::{
    callback::missing,
    cq,
    device::{
        Device,
        DeviceAttr,
        DeviceName,
        NodeType,
        PortAttr,
        Protocol,
        Traffic, //
    },
    iwcm,
    mr,
    mw,
    pd,
    qp::{
        self,
        Qp, //
    },
    setting::Setting,
    srq,
    ucontext, //
};

/// A provider (`struct ib_device_ops`): what concerns its devices. The operations of objects are
/// those of the payloads, which are named here.
///
/// Operations that a provider leaves out are null for the core, which answers `EOPNOTSUPP`. Which
/// of them belong together is in `include/rdma/ib_verbs.h`: a device whose consumers may be in the
/// kernel needs those of `ib_device_check_mandatory()`, one that programs use needs
/// [`ucontext::Operations::alloc`]. An object that a provider does not have gets the payload `()`,
/// which leaves out all operations.
///
/// An operation may sleep unless its description says that any context calls it. The core calls
/// operations of different objects at the same time, and of the same object unless it says
/// otherwise.
///
/// An operation that makes an object gets a [`New`](crate::object::New), initialises
/// the payload with it, answers the program, and returns the
/// [`Live`](crate::object::Live) that the initialisation gave. If it fails in between,
/// the payload is dropped, without a call of `destroy`. After `destroy` the payload is dropped as
/// soon as the last [`ARef`](kernel::sync::aref::ARef) of the object is gone; the provider has to
/// let go of those it keeps.
///
/// # Examples
///
/// `rust/samples/rdma_null.rs` is a complete provider of devices and protection domains.
///
/// ```ignore
/// #[vtable]
/// impl Driver for MyDriver {
///     const DRIVER_ID: u32 = MY_ID;
///     const ABI_VERSION: u32 = 1;
///
///     type Data = Data;
///     type Ucontext = Context;
///     type Pd = Pd;
///     type Cq = Cq;
///     type Qp = Qp;
///     type Srq = ();
///     type Mr = Region;
///     type Mw = ();
///     type Iwcm = ();
///
///     fn query_device(dev: &Device<Self>) -> DeviceAttr {
///         DeviceAttr { max_pd: dev.max_pd, ..DeviceAttr::default() }
///     }
///
///     // ...
/// }
/// ```
#[vtable]
#[allow(unused_variables, reason = "what is missing uses nothing")]
pub trait Driver: Sized + Send + Sync + 'static {
    /// `enum rdma_driver_id`: libraries in user space recognise the devices by it, and
    /// [`DriverRegistration`](crate::DriverRegistration) unregisters all that have it.
    /// So it is no other driver's, and not `RDMA_DRIVER_UNKNOWN`.
    const DRIVER_ID: u32;
    /// The version of the private interface with the library in user space.
    const ABI_VERSION: u32;
    /// The kind of its devices.
    const NODE_TYPE: NodeType = NodeType::Unspecified;
    /// The protocol of their ports.
    const PROTOCOL: Protocol = Protocol::None;
    /// The least key of memory that programs map
    /// ([`MmapEntry::key`](crate::MmapEntry::key)). The library may mean something else
    /// by those below.
    const MMAP_MIN_KEY: u64 = 0;
    /// The names of the counters of a port, and of those that queue pairs are bound to.
    const COUNTERS: &'static [&'static CStr] = &[];
    /// What the administrator may change.
    const SETTINGS: &'static [Setting<Self::Data>] = &[];

    /// Payload of [`Device`].
    type Data: Send + Sync + 'static;
    /// Payload of [`Ucontext`](ucontext::Ucontext).
    type Ucontext: ucontext::Operations<Self>;
    /// Payload of [`Pd`](pd::Pd).
    type Pd: pd::Operations<Self>;
    /// Payload of [`Cq`](cq::Cq).
    type Cq: cq::Operations<Self>;
    /// Payload of [`Qp`].
    type Qp: qp::Operations<Self>;
    /// Payload of [`Srq`](srq::Srq).
    type Srq: srq::Operations<Self>;
    /// Payload of [`Mr`](mr::Mr).
    type Mr: mr::Operations<Self>;
    /// Payload of [`Mw`](mw::Mw).
    type Mw: mw::Operations<Self>;
    /// The operations of connections; `()` unless [`Self::PROTOCOL`] is iWARP.
    type Iwcm: iwcm::Provider<Self>;

    /// The capabilities of a device.
    fn query_device(dev: &Device<Self>) -> DeviceAttr;

    /// The state of its port.
    fn query_port(dev: &Device<Self>) -> Result<PortAttr>;

    /// The GID with that index. `EINVAL` if there is none.
    fn query_gid(dev: &Device<Self>, index: usize) -> Result<[u8; 16]> {
        missing()
    }

    /// Writes the version of the firmware.
    fn fw_version(dev: &Device<Self>, w: &mut dyn fmt::Write) -> fmt::Result {
        missing()
    }

    /// Stores the values of [`Self::COUNTERS`], of the port or of the counter with that number.
    /// What counts for such a counter does not count for the port: the core adds both.
    fn counter_values(dev: &Device<Self>, of: Option<u32>, values: &mut [u64]) {
        missing()
    }

    /// Returns what has passed the port, for the counters that monitoring programs know from
    /// InfiniBand. May sleep.
    fn traffic(dev: &Device<Self>) -> Traffic {
        missing()
    }

    /// From now on the QP counts for the counter `id`, or for a new one. Returns its number, which
    /// is not 0.
    fn bind_counter(qp: &Qp<Self>, id: Option<u32>) -> Result<u32> {
        missing()
    }

    /// The QP counts for the port again.
    fn unbind_counter(qp: &Qp<Self>) {
        missing()
    }

    /// No QP is bound to the counter any more; what it counted is the core's.
    fn close_counter(dev: &Device<Self>, id: u32) {
        missing()
    }

    /// The core adds the device to its clients next, by calls of this thread: the device is being
    /// registered, or has moved to another network namespace. May sleep.
    fn enable_driver(dev: &Device<Self>) {
        missing()
    }

    /// Consumers may use the device.
    fn coming(dev: &Device<Self>) {}

    /// The device has this name now: it is being registered, or the administrator has renamed it or
    /// moved it to another network namespace. The core makes one such call at a time for a device.
    fn named(dev: &Device<Self>, name: DeviceName<'_>) {}

    /// Consumers may not use the device any more: the core takes from them what they have on it
    /// next.
    fn going(dev: &Device<Self>) {}

    /// The device is not used any more; the payload is dropped next.
    fn dealloc_driver(dev: &Device<Self>) {}
}
