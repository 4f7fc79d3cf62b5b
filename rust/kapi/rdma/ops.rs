// SPDX-License-Identifier: GPL-2.0

//! What a provider implements.

use core::{
    fmt,
    marker::PhantomData, //
};

use kernel::{
    prelude::*,
    sync::{
        aref::ARef,
        Arc, //
    },
};

use super::{
    attr::{
        CqAttr,
        DeviceAttr,
        MrType,
        Notify,
        PortAttr,
        QpAttr,
        QpInfo,
        QpInitAttr,
        SrqAttr,
        SrqInitAttr,
        SrqMask,
        UserMrReq, //
    },
    cm::{
        CmId,
        ConnParam, //
    },
    details::Details,
    device::Device,
    mem::{
        DmaGrant,
        SgList, //
    },
    mr::{
        Mr,
        NewMr, //
    },
    object::{
        Cq,
        New,
        Pd,
        Qp,
        Srq,
        Ucontext, //
    },
    setting::Setting,
    udata::Udata,
    wc::WcOut,
    wr::{
        RecvWrs,
        SendWrs, //
    },
};
use crate::kapi::bindings::{
    ib_cq,
    ib_pd,
    ib_qp,
    ib_srq,
    ib_ucontext, //
};

/// What something borrowed from the core for a call of `D` is marked with.
pub(super) type Borrowed<'a, T, D> = PhantomData<(&'a T, fn() -> D)>;

/// A provider (`struct ib_device_ops`).
///
/// What is not said to run in any context may sleep. An object is made in two steps: `create_x`
/// gives the initialiser of its payload, and `x_created` publishes it. If the latter fails, the
/// payload is dropped, without a call of `destroy_x`. After `destroy_x` the payload is dropped as
/// soon as the last [`ARef`] of the object is gone; the provider has to let go of those it keeps.
pub(crate) trait Driver: Sized + Send + Sync + 'static {
    /// `enum rdma_driver_id`.
    const DRIVER_ID: u32;
    /// The version of the private interface with the user's library.
    const ABI_VERSION: u32;
    /// The least key of memory that programs map ([`MmapEntry::key`](super::MmapEntry::key)). The
    /// library may mean something else by those below.
    const MMAP_MIN_KEY: u64 = 0;
    /// The names of the counters of a port, and of those that queue pairs are bound to.
    const COUNTERS: &'static [&'static CStr];
    /// What the administrator may change.
    const SETTINGS: &'static [Setting<Self::Data>];

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
    /// What listens.
    type Listener: Send + Sync + 'static;

    fn query_device(dev: &Device<Self>) -> DeviceAttr;
    fn query_port(dev: &Device<Self>) -> Result<PortAttr>;
    fn query_gid(dev: &Device<Self>, index: usize) -> Result<[u8; 16]>;
    fn fw_version(dev: &Device<Self>, w: &mut dyn fmt::Write) -> fmt::Result;
    /// The values of [`Self::COUNTERS`], of the port or of the counter with that number. What counts for such a one does
    /// not count for the port: the core adds both. May sleep.
    fn counter_values(dev: &Device<Self>, of: Option<u32>, values: &mut [u64]);
    /// From now on the QP counts for the counter `id`, or for a new one. Returns its number, which is not 0. May sleep.
    fn bind_counter(qp: &Qp<Self>, id: Option<u32>) -> Result<u32>;
    /// The QP counts for the port again. May sleep.
    fn unbind_counter(qp: &Qp<Self>);
    /// No QP is bound to the counter any more; what it counted is the core's. May sleep.
    fn close_counter(dev: &Device<Self>, id: u32);
    /// Says about an object what the core does not know. May sleep.
    fn describe_qp(qp: &Qp<Self>, out: &mut Details<'_>) -> Result;
    fn describe_cq(cq: &Cq<Self>, out: &mut Details<'_>) -> Result;
    fn describe_mr(mr: &Mr<Self>, out: &mut Details<'_>) -> Result;
    /// Consumers may use the device. May sleep.
    fn coming(_dev: &Device<Self>) {}
    /// They may not any more: what they have on it goes next. May sleep.
    fn going(_dev: &Device<Self>) {}
    /// The device is not used any more; the payload is dropped next.
    fn dealloc_driver(_dev: &Device<Self>) {}

    fn alloc_ucontext(
        new: &New<'_, Self, ib_ucontext>,
    ) -> Result<impl PinInit<Self::Ucontext, Error>>;
    fn ucontext_created(ctx: &Ucontext<Self>, udata: &mut Udata<'_>) -> Result;
    fn dealloc_ucontext(_ctx: &Ucontext<Self>) {}
    /// The device goes away while a user has the context open.
    fn disassociate_ucontext(_ctx: &Ucontext<Self>) {}

    fn alloc_pd(new: &New<'_, Self, ib_pd>) -> Result<impl PinInit<Self::Pd, Error>>;
    fn dealloc_pd(_pd: &Pd<Self>) {}

    fn create_cq(
        new: &New<'_, Self, ib_cq>,
        attr: &CqAttr,
    ) -> Result<impl PinInit<Self::Cq, Error>>;
    fn cq_created(cq: &Cq<Self>, udata: Option<&mut Udata<'_>>) -> Result;
    fn destroy_cq(cq: &Cq<Self>);
    /// Any context.
    fn poll_cq(cq: &Cq<Self>, out: &mut WcOut<'_, Self>) -> Result;
    /// Any context. Returns how many completions wait, if that is asked for.
    fn req_notify_cq(cq: &Cq<Self>, notify: Notify) -> Result<u32>;

    fn create_qp(
        new: &New<'_, Self, ib_qp>,
        attr: &QpInitAttr<'_, Self>,
    ) -> Result<impl PinInit<Self::Qp, Error>>;
    fn qp_created(
        qp: &Qp<Self>,
        attr: &QpInitAttr<'_, Self>,
        udata: Option<&mut Udata<'_>>,
    ) -> Result;
    fn modify_qp(qp: &Qp<Self>, attr: &QpAttr<'_>) -> Result;
    fn query_qp(qp: &Qp<Self>) -> Result<QpInfo>;
    fn destroy_qp(qp: &Qp<Self>);
    /// Any context. `wrs` is empty if a user owns the QP.
    fn post_send(qp: &Qp<Self>, wrs: &mut SendWrs<'_, Self>) -> Result;
    /// Any context.
    fn post_recv(qp: &Qp<Self>, wrs: &mut RecvWrs<'_>) -> Result;

    fn create_srq(
        new: &New<'_, Self, ib_srq>,
        attr: &SrqInitAttr,
    ) -> Result<impl PinInit<Self::Srq, Error>>;
    fn srq_created(srq: &Srq<Self>, udata: Option<&mut Udata<'_>>) -> Result;
    fn modify_srq(srq: &Srq<Self>, attr: &SrqAttr, mask: SrqMask) -> Result;
    fn query_srq(srq: &Srq<Self>) -> Result<SrqAttr>;
    fn destroy_srq(srq: &Srq<Self>);
    /// Any context.
    fn post_srq_recv(srq: &Srq<Self>, wrs: &mut RecvWrs<'_>) -> Result;

    fn reg_user_mr(
        pd: &Pd<Self>,
        req: &UserMrReq,
        udata: Option<&mut Udata<'_>>,
    ) -> Result<NewMr<Self::Mr>>;
    fn alloc_mr(pd: &Pd<Self>, kind: MrType, max_sg: u32) -> Result<NewMr<Self::Mr>>;
    fn get_dma_mr(pd: &Pd<Self>, access: u32, grant: DmaGrant) -> Result<NewMr<Self::Mr>>;
    /// Any context. Returns how many elements of the list were mapped.
    fn map_mr_sg(mr: &Mr<Self>, sg: SgList<'_>) -> Result<usize>;
    /// If it fails the region stays, or else the payload is dropped.
    fn dereg_mr(mr: &Mr<Self>) -> Result;

    /// Any context.
    fn iw_get_qp(dev: &Device<Self>, qpn: u32) -> Option<ARef<Qp<Self>>>;
    fn iw_connect(dev: &Device<Self>, id: CmId<Self>, param: &ConnParam<'_>) -> Result;
    /// `number` is the one of the connect request. When it returns it has raised `Established`, or
    /// failed and raised nothing.
    fn iw_accept(
        dev: &Device<Self>,
        id: CmId<Self>,
        number: usize,
        param: &ConnParam<'_>,
    ) -> Result;
    fn iw_reject(dev: &Device<Self>, number: usize, pdata: &[u8]) -> Result;
    fn iw_create_listen(
        dev: &Device<Self>,
        id: CmId<Self>,
        backlog: u32,
    ) -> Result<Arc<Self::Listener>>;
    fn iw_destroy_listen(listener: Arc<Self::Listener>) -> Result;
}
