// SPDX-License-Identifier: GPL-2.0

//! What a provider implements.

use core::fmt;

use kernel::{
    error::VTABLE_DEFAULT_ERROR,
    prelude::*,
    sync::{
        aref::ARef,
        Arc, //
    },
};

use super::{
    Device,
    DeviceAttr,
    NodeType,
    PortAttr,
    Protocol, //
};
use crate::kapi::rdma::{
    cq::{
        self,
        Cq,
        CqAttr,
        Notify, //
    },
    details::Details,
    iwcm::{
        CmId,
        ConnParam, //
    },
    mem::{
        DmaGrant,
        SgList, //
    },
    mr::{
        Mr,
        MrType,
        NewMr,
        UserMrReq, //
    },
    pd::{
        self,
        Pd, //
    },
    qp::{
        self,
        Qp,
        QpAttr,
        QpInfo,
        QpInitAttr, //
    },
    setting::Setting,
    srq::{
        self,
        Srq,
        SrqAttr,
        SrqInitAttr,
        SrqMask, //
    },
    ucontext::{
        self,
        Ucontext, //
    },
    udata::Udata,
    wc::WcOut,
    wr::{
        RecvWrs,
        SendWrs, //
    }, //
};

/// An operation that the provider does not have: the core never gets its callback.
fn missing<T>() -> T {
    build_error!(VTABLE_DEFAULT_ERROR)
}

/// A provider (`struct ib_device_ops`).
///
/// Operations that a provider leaves out are null for the core, which answers `EOPNOTSUPP`. Which
/// of them belong together is in `include/rdma/ib_verbs.h`: a device whose consumers may be in the
/// kernel needs those of `ib_device_check_mandatory()`, one that programs use needs
/// [`Self::alloc_ucontext`]. Those of connections, `iw_*`, come all or none, and a port of
/// [`Protocol::Iwarp`] needs them: the compiler sees to that.
///
/// An operation may sleep unless its description says that any context calls it. The core calls
/// operations of different objects at the same time, and of the same object unless it says
/// otherwise.
///
/// An operation that makes an object gets a [`New`](crate::kapi::rdma::object::New), initialises
/// the payload by it, and returns the [`Live`](crate::kapi::rdma::object::Live) that this gives,
/// after it has answered the program. If it fails in between, the payload is dropped, without a
/// call of `destroy_x`. After `destroy_x` the payload is dropped as soon as the last [`ARef`] of
/// the object is gone; the provider has to let go of those it keeps.
///
/// # Examples
///
/// `rust/samples/rdma_null.rs` is a complete provider of devices and protection domains.
///
/// ```ignore
/// #[vtable]
/// impl Driver for MyDriver {
///     const ABI_VERSION: u32 = 1;
///     // ...
///     fn query_device(dev: &Device<Self>) -> DeviceAttr {
///         DeviceAttr { max_pd: dev.max_pd, ..DeviceAttr::default() }
///     }
/// }
/// ```
#[vtable]
#[allow(unused_variables, reason = "what is missing uses nothing")]
pub(crate) trait Driver: Sized + Send + Sync + 'static {
    /// `enum rdma_driver_id`: libraries in user space recognise the devices by it, and
    /// [`DriverRegistration`](crate::kapi::rdma::DriverRegistration) unregisters all that have it.
    /// So it is no other driver's, and not `RDMA_DRIVER_UNKNOWN`.
    const DRIVER_ID: u32;
    /// The version of the private interface with the library in user space.
    const ABI_VERSION: u32;
    /// The kind of its devices.
    const NODE_TYPE: NodeType = NodeType::Unspecified;
    /// The protocol of their ports.
    const PROTOCOL: Protocol = Protocol::None;
    /// The least key of memory that programs map
    /// ([`MmapEntry::key`](crate::kapi::rdma::MmapEntry::key)). The library may mean something else
    /// by those below.
    const MMAP_MIN_KEY: u64 = 0;
    /// The names of the counters of a port, and of those that queue pairs are bound to.
    const COUNTERS: &'static [&'static CStr] = &[];
    /// What the administrator may change.
    const SETTINGS: &'static [Setting<Self::Data>] = &[];

    /// Payload of [`Device`].
    type Data: Send + Sync + 'static;
    /// Payload of [`Ucontext`].
    type Ucontext: Send + Sync;
    /// Payload of [`Pd`].
    type Pd: Send + Sync;
    /// Payload of [`Cq`].
    type Cq: Send + Sync;
    /// Payload of [`Qp`].
    type Qp: Send + Sync;
    /// Payload of [`Srq`].
    type Srq: Send + Sync;
    /// Payload of [`Mr`].
    type Mr: Send + Sync;
    /// A socket that listens for connections.
    type Listener: Send + Sync + 'static;

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
    /// Tells about a QP what the core does not know.
    fn describe_qp(qp: &Qp<Self>, out: &mut Details<'_>) -> Result {
        missing()
    }
    /// Tells about a CQ what the core does not know.
    fn describe_cq(cq: &Cq<Self>, out: &mut Details<'_>) -> Result {
        missing()
    }
    /// Tells about a region what the core does not know.
    fn describe_mr(mr: &Mr<Self>, out: &mut Details<'_>) -> Result {
        missing()
    }
    /// Consumers may use the device.
    fn coming(dev: &Device<Self>) {}
    /// Consumers may not use the device any more: the core takes from them what they have on it
    /// next.
    fn going(dev: &Device<Self>) {}
    /// The device is not used any more; the payload is dropped next.
    fn dealloc_driver(dev: &Device<Self>) {}

    /// A program opens the device.
    fn alloc_ucontext<'a>(
        new: ucontext::New<'a, Self>,
        udata: &mut Udata<'_>,
    ) -> Result<ucontext::Live<'a, Self>> {
        missing()
    }
    /// The program has closed the device, or has ended.
    fn dealloc_ucontext(ctx: &Ucontext<Self>) {}
    /// The device goes away while a program has the context open.
    fn disassociate_ucontext(ctx: &Ucontext<Self>) {}

    /// A consumer wants a protection domain.
    fn alloc_pd<'a>(
        new: pd::New<'a, Self>,
        udata: Option<&mut Udata<'_>>,
    ) -> Result<pd::Live<'a, Self>> {
        missing()
    }
    /// The protection domain goes; nothing is in it any more.
    fn dealloc_pd(pd: &Pd<Self>) {}

    /// A consumer wants a completion queue.
    fn create_cq<'a>(
        new: cq::New<'a, Self>,
        attr: &CqAttr,
        udata: Option<&mut Udata<'_>>,
    ) -> Result<cq::Live<'a, Self>> {
        missing()
    }
    /// The completion queue goes; no QP completes into it any more.
    fn destroy_cq(cq: &Cq<Self>) {}
    /// Moves completions to `out`, as many as it has room for. Any context.
    fn poll_cq(cq: &Cq<Self>, out: &mut WcOut<'_, Self>) -> Result {
        missing()
    }
    /// Asks for a notification. Returns how many completions wait, if that is asked for. Any
    /// context.
    fn req_notify_cq(cq: &Cq<Self>, notify: Notify) -> Result<u32> {
        missing()
    }

    /// A consumer wants a queue pair.
    fn create_qp<'a>(
        new: qp::New<'a, Self>,
        attr: &QpInitAttr<'_, Self>,
        udata: Option<&mut Udata<'_>>,
    ) -> Result<qp::Live<'a, Self>> {
        missing()
    }
    /// Changes the state or attributes of a queue pair.
    fn modify_qp(qp: &Qp<Self>, attr: &QpAttr<'_>) -> Result {
        missing()
    }
    /// The state and attributes of a queue pair.
    fn query_qp(qp: &Qp<Self>) -> Result<QpInfo> {
        missing()
    }
    /// The queue pair goes.
    fn destroy_qp(qp: &Qp<Self>) {}
    /// Posts to the send queue. `wrs` is empty if a program owns the QP: it rings the bell of its
    /// mapped queue. Any context.
    fn post_send(qp: &Qp<Self>, wrs: &mut SendWrs<'_, Self>) -> Result {
        missing()
    }
    /// Posts to the receive queue. Any context.
    fn post_recv(qp: &Qp<Self>, wrs: &mut RecvWrs<'_>) -> Result {
        missing()
    }

    /// A consumer wants a shared receive queue.
    fn create_srq<'a>(
        new: srq::New<'a, Self>,
        attr: &SrqInitAttr,
        udata: Option<&mut Udata<'_>>,
    ) -> Result<srq::Live<'a, Self>> {
        missing()
    }
    /// Changes what `mask` names.
    fn modify_srq(srq: &Srq<Self>, attr: &SrqAttr, mask: SrqMask) -> Result {
        missing()
    }
    /// The attributes of a shared receive queue.
    fn query_srq(srq: &Srq<Self>) -> Result<SrqAttr> {
        missing()
    }
    /// The shared receive queue goes; no QP uses it any more.
    fn destroy_srq(srq: &Srq<Self>) {}
    /// Posts to a shared receive queue. Any context.
    fn post_srq_recv(srq: &Srq<Self>, wrs: &mut RecvWrs<'_>) -> Result {
        missing()
    }

    /// A program registers memory of its own.
    fn reg_user_mr(
        pd: &Pd<Self>,
        req: &UserMrReq,
        udata: Option<&mut Udata<'_>>,
    ) -> Result<NewMr<Self::Mr>> {
        missing()
    }
    /// A consumer of the kernel wants a region for `max_sg` pages, for fast registration.
    fn alloc_mr(pd: &Pd<Self>, kind: MrType, max_sg: u32) -> Result<NewMr<Self::Mr>> {
        missing()
    }
    /// A consumer of the kernel wants a region of all memory.
    fn get_dma_mr(pd: &Pd<Self>, access: u32, grant: DmaGrant) -> Result<NewMr<Self::Mr>> {
        missing()
    }
    /// Maps a list into a region. Returns how many of its elements were mapped. Any context.
    fn map_mr_sg(mr: &Mr<Self>, sg: SgList<'_>) -> Result<usize> {
        missing()
    }
    /// The region goes. If it fails the region stays, or else the payload is dropped.
    fn dereg_mr(mr: &Mr<Self>) -> Result {
        missing()
    }

    /// The queue pair with that number. Any context.
    fn iw_get_qp(dev: &Device<Self>, qpn: u32) -> Option<ARef<Qp<Self>>> {
        missing()
    }
    /// Connects a queue pair. Success means that an event will tell how it went.
    fn iw_connect(dev: &Device<Self>, id: CmId<Self>, param: &ConnParam<'_>) -> Result {
        missing()
    }
    /// Accepts a connect request; `number` is the one of the request. When it returns it has raised
    /// `Established`, or failed and raised nothing.
    fn iw_accept(
        dev: &Device<Self>,
        id: CmId<Self>,
        number: usize,
        param: &ConnParam<'_>,
    ) -> Result {
        missing()
    }
    /// Rejects a connect request, with private data for the peer.
    fn iw_reject(dev: &Device<Self>, number: usize, pdata: &[u8]) -> Result {
        missing()
    }
    /// Listens for connections.
    fn iw_create_listen(
        dev: &Device<Self>,
        id: CmId<Self>,
        backlog: u32,
    ) -> Result<Arc<Self::Listener>> {
        missing()
    }
    /// Listens no longer.
    fn iw_destroy_listen(listener: Arc<Self::Listener>) -> Result {
        missing()
    }
}
