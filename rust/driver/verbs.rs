// SPDX-License-Identifier: GPL-2.0

//! The operations that the RDMA core calls, each implemented in the room of its object.

use super::{
    cm,
    cq,
    device,
    params,
    pd,
    qp,
    srq,
    stats,
    tpt::region,
    ucontext,
    CqObj,
    DeviceRef,
    IbDevice,
    QpObj,
    QpRef,
    Siw,
    SrqObj,
    VERSION, //
};
use crate::{
    kapi::rdma::{
        self,
        CmId,
        ConnParam,
        CqAttr,
        Details,
        DeviceAttr,
        DmaGrant,
        Driver,
        MrType,
        NewMr,
        NodeType,
        Notify,
        PortAttr,
        Protocol,
        QpAttr,
        QpInfo,
        QpInitAttr,
        RecvWrs,
        SendWrs,
        SgList,
        SrqAttr,
        SrqInitAttr,
        SrqMask,
        Udata,
        UserMrReq,
        WcOut, //
    },
    uapi::abi, //
};
use core::fmt::Write;
use kernel::{
    prelude::*,
    str::CStr,
    sync::Arc, //
};

#[vtable]
impl Driver for Siw {
    /// `RDMA_DRIVER_SIW`: selects libsiw.
    const DRIVER_ID: u32 = abi::DRIVER_ID;
    const ABI_VERSION: u32 = abi::ABI_VERSION;
    const NODE_TYPE: NodeType = NodeType::Rnic;
    const PROTOCOL: Protocol = Protocol::Iwarp;
    /// Otherwise a program with many queues would get the key that libsiw takes for none.
    const MMAP_MIN_KEY: u64 = abi::INVAL_UOBJ_KEY + 1;
    const COUNTERS: &'static [&'static CStr] = stats::NAMES;
    const SETTINGS: &'static [rdma::Setting<DeviceRef>] = params::SETTINGS;

    type Data = DeviceRef;
    type Ucontext = ucontext::Ucontext;
    type Pd = pd::Pd;
    type Cq = cq::Cq;
    type Qp = qp::Qp;
    type Srq = srq::Srq;
    type Mr = region::Mr;
    type Listener = cm::Listener;

    fn query_device(dev: &IbDevice) -> DeviceAttr {
        device::query(dev)
    }

    fn query_port(dev: &IbDevice) -> Result<PortAttr> {
        device::query_port(dev)
    }

    fn query_gid(dev: &IbDevice, index: usize) -> Result<[u8; 16]> {
        dev.gid(index)
    }

    fn fw_version(_dev: &IbDevice, w: &mut dyn Write) -> core::fmt::Result {
        let [major, minor, patch] = VERSION;
        write!(w, "{major}.{minor}.{patch}")
    }

    fn describe_qp(qp: &QpObj, out: &mut Details<'_>) -> Result {
        qp::verbs::describe(qp, out)
    }

    fn describe_cq(cq: &CqObj, out: &mut Details<'_>) -> Result {
        cq::describe(cq, out)
    }

    fn describe_mr(mr: &rdma::Mr<Self>, out: &mut Details<'_>) -> Result {
        region::describe(mr, out)
    }

    fn counter_values(dev: &IbDevice, of: Option<u32>, values: &mut [u64]) {
        dev.counter_values(of, values);
    }

    fn bind_counter(qp: &QpObj, id: Option<u32>) -> Result<u32> {
        qp.dev.bind_counter(qp, id)
    }

    fn unbind_counter(qp: &QpObj) {
        qp.dev.unbind_counter(qp);
    }

    fn close_counter(dev: &IbDevice, id: u32) {
        dev.close_counter(id);
    }

    fn coming(dev: &IbDevice) {
        dev.endpoints.admit();
    }

    fn going(dev: &IbDevice) {
        // An orderly close would let each connection take as long as its peer likes.
        dev.endpoints.abort_all();
    }

    fn dealloc_driver(dev: &IbDevice) {
        dev.gone();
    }

    fn alloc_ucontext<'a>(
        new: rdma::ucontext::New<'a, Self>,
        udata: &mut Udata<'_>,
    ) -> Result<rdma::ucontext::Live<'a, Self>> {
        ucontext::alloc(new, udata)
    }

    fn alloc_pd<'a>(
        new: rdma::pd::New<'a, Self>,
        udata: Option<&mut Udata<'_>>,
    ) -> Result<rdma::pd::Live<'a, Self>> {
        pd::alloc(new, udata)
    }

    fn create_cq<'a>(
        new: rdma::cq::New<'a, Self>,
        attr: &CqAttr,
        udata: Option<&mut Udata<'_>>,
    ) -> Result<rdma::cq::Live<'a, Self>> {
        cq::create(new, attr, udata)
    }

    fn destroy_cq(_cq: &CqObj) {}

    fn poll_cq(cq: &CqObj, out: &mut WcOut<'_, Self>) -> Result {
        cq::poll(cq, out)
    }

    fn req_notify_cq(cq: &CqObj, how: Notify) -> Result<u32> {
        cq::arm(cq, how)
    }

    fn create_qp<'a>(
        new: rdma::qp::New<'a, Self>,
        attr: &QpInitAttr<'_, Self>,
        udata: Option<&mut Udata<'_>>,
    ) -> Result<rdma::qp::Live<'a, Self>> {
        qp::verbs::create(new, attr, udata)
    }

    fn modify_qp(qp: &QpObj, attr: &QpAttr<'_>) -> Result {
        qp::verbs::modify(qp, attr)
    }

    fn query_qp(qp: &QpObj) -> Result<QpInfo> {
        Ok(qp::verbs::query(qp))
    }

    fn destroy_qp(qp: &QpObj) {
        qp::verbs::destroy(qp);
    }

    fn post_send(qp: &QpObj, wrs: &mut SendWrs<'_, Self>) -> Result {
        qp::verbs::post_send(qp, wrs)
    }

    fn post_recv(qp: &QpObj, wrs: &mut RecvWrs<'_>) -> Result {
        qp::verbs::post_recv(qp, wrs)
    }

    fn create_srq<'a>(
        new: rdma::srq::New<'a, Self>,
        attr: &SrqInitAttr,
        udata: Option<&mut Udata<'_>>,
    ) -> Result<rdma::srq::Live<'a, Self>> {
        srq::create(new, attr, udata)
    }

    fn modify_srq(srq: &SrqObj, attr: &SrqAttr, mask: SrqMask) -> Result {
        srq::modify(srq, attr, mask)
    }

    fn query_srq(srq: &SrqObj) -> Result<SrqAttr> {
        Ok(srq::query(srq))
    }

    fn destroy_srq(_srq: &SrqObj) {}

    fn post_srq_recv(srq: &SrqObj, wrs: &mut RecvWrs<'_>) -> Result {
        srq::post(srq, wrs)
    }

    fn reg_user_mr(
        pd: &rdma::Pd<Self>,
        req: &UserMrReq,
        udata: Option<&mut Udata<'_>>,
    ) -> Result<NewMr<Self::Mr>> {
        region::reg_user(pd, req, udata)
    }

    fn alloc_mr(pd: &rdma::Pd<Self>, kind: MrType, max_sg: u32) -> Result<NewMr<Self::Mr>> {
        region::alloc(pd, kind, max_sg)
    }

    fn get_dma_mr(pd: &rdma::Pd<Self>, access: u32, grant: DmaGrant) -> Result<NewMr<Self::Mr>> {
        region::dma(pd, access, grant)
    }

    fn map_mr_sg(mr: &rdma::Mr<Self>, sg: SgList<'_>) -> Result<usize> {
        region::map_sg(mr, sg)
    }

    fn dereg_mr(_mr: &rdma::Mr<Self>) -> Result {
        // The drop of the region revokes its rights and waits for its users.
        Ok(())
    }

    fn iw_get_qp(dev: &IbDevice, qpn: u32) -> Option<QpRef> {
        dev.qps.get(qpn)
    }

    fn iw_connect(dev: &IbDevice, id: CmId<Self>, param: &ConnParam<'_>) -> Result {
        cm::connect(dev, id, param)
    }

    fn iw_accept(dev: &IbDevice, id: CmId<Self>, number: usize, param: &ConnParam<'_>) -> Result {
        cm::accept(dev, id, number, param)
    }

    fn iw_reject(dev: &IbDevice, number: usize, private: &[u8]) -> Result {
        cm::reject(dev, number, private)
    }

    fn iw_create_listen(
        dev: &IbDevice,
        id: CmId<Self>,
        backlog: u32,
    ) -> Result<Arc<Self::Listener>> {
        cm::create_listen(dev, id, backlog)
    }

    fn iw_destroy_listen(listener: Arc<Self::Listener>) -> Result {
        cm::destroy_listen(listener)
    }
}
