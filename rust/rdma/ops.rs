// SPDX-License-Identifier: GPL-2.0

//! The table of callbacks (`struct ib_device_ops`).
//!
//! The callbacks are with their objects; [`callback`](super::callback) has their contract.

use core::{
    marker::PhantomData,
    ptr::null_mut, //
};

use kernel::prelude::*;

use crate::{
    cq::{
        self,
        Operations as _, //
    },
    device::{
        callbacks as device,
        counter,
        gid,
        traffic,
        Driver,
        Protocol, //
    },
    iwcm::{
        self,
        Provider as _, //
    },
    mmap,
    mr::{
        self,
        Operations as _, //
    },
    mw::{
        self,
        Operations as _, //
    },
    pd::{
        self,
        Operations as _, //
    },
    qp::{
        self,
        Operations as _, //
    },
    srq::{
        self,
        Operations as _, //
    },
    ucontext::{
        self,
        Operations as _, //
    }, //
};
use base::bindings::{
    attribute_group,
    ib_device_ops,
    rdma_counter, //
};

/// A callback, if the provider has the operation.
macro_rules! op {
    ($has:expr, $callback:expr) => {
        if $has {
            Some($callback)
        } else {
            None
        }
    };
}

/// The table of a provider.
pub(super) struct Table<D: Driver>(PhantomData<D>);

impl<D: Driver> Table<D> {
    /// Whether the provider has the operations of connections. iw_cm calls each of them for a port
    /// of iWARP, and never looks whether it is there.
    const HAS_IW: bool = {
        let iwarp = matches!(D::PROTOCOL, Protocol::Iwarp);
        assert!(
            <D::Iwcm>::HAS_ACCEPT == iwarp
                && <D::Iwcm>::HAS_CONNECT == iwarp
                && <D::Iwcm>::HAS_CREATE_LISTEN == iwarp
                && <D::Iwcm>::HAS_DESTROY_LISTEN == iwarp
                && <D::Iwcm>::HAS_GET_QP == iwarp
                && <D::Iwcm>::HAS_REJECT == iwarp,
            "a provider of iWARP, and no other, has all operations of `iwcm`"
        );
        iwarp
    };

    const fn port_groups() -> &'static [*const attribute_group; 2] {
        &traffic::Files::<D>::GROUPS
    }

    /// `owner` is set by [`Device::new`](super::device::Device::new).
    pub(super) const OPS: ib_device_ops = ib_device_ops {
        driver_id: D::DRIVER_ID,
        uverbs_abi_ver: D::ABI_VERSION,

        advise_mr: op!(<D::Mr>::HAS_ADVISE, mr::advise_mr::<D>),
        alloc_hw_port_stats: op!(!D::COUNTERS.is_empty(), device::alloc_hw_port_stats::<D>),
        alloc_mr: op!(<D::Mr>::HAS_ALLOC, mr::alloc_mr::<D>),
        alloc_mw: op!(<D::Mw>::HAS_ALLOC, mw::alloc_mw::<D>),
        alloc_pd: op!(<D::Pd>::HAS_ALLOC, pd::alloc_pd::<D>),
        alloc_ucontext: op!(<D::Ucontext>::HAS_ALLOC, ucontext::alloc_ucontext::<D>),
        counter_alloc_stats: op!(D::HAS_BIND_COUNTER, counter::counter_alloc_stats::<D>),
        counter_bind_qp: op!(D::HAS_BIND_COUNTER, counter::counter_bind_qp::<D>),
        counter_dealloc: op!(D::HAS_BIND_COUNTER, counter::counter_dealloc::<D>),
        counter_init: op!(D::HAS_BIND_COUNTER, counter::counter_init),
        counter_unbind_qp: op!(D::HAS_BIND_COUNTER, counter::counter_unbind_qp::<D>),
        counter_update_stats: op!(D::HAS_BIND_COUNTER, counter::counter_update_stats::<D>),
        create_cq: op!(<D::Cq>::HAS_CREATE, cq::create_cq::<D>),
        create_qp: op!(<D::Qp>::HAS_CREATE, qp::create_qp::<D>),
        create_srq: op!(<D::Srq>::HAS_CREATE, srq::create_srq::<D>),
        dealloc_driver: Some(device::dealloc::<D>),
        dealloc_mw: op!(<D::Mw>::HAS_ALLOC, mw::dealloc_mw::<D>),
        dealloc_pd: op!(<D::Pd>::HAS_ALLOC, pd::dealloc_pd::<D>),
        dealloc_ucontext: op!(<D::Ucontext>::HAS_ALLOC, ucontext::dealloc_ucontext::<D>),
        dereg_mr: op!(<D::Mr>::HAS_DEREG, mr::dereg_mr::<D>),
        destroy_cq: op!(<D::Cq>::HAS_CREATE, cq::destroy_cq::<D>),
        destroy_qp: op!(<D::Qp>::HAS_CREATE, qp::destroy_qp::<D>),
        destroy_srq: op!(<D::Srq>::HAS_CREATE, srq::destroy_srq::<D>),
        disassociate_ucontext: op!(
            <D::Ucontext>::HAS_ALLOC,
            ucontext::disassociate_ucontext::<D>
        ),
        enable_driver: op!(D::HAS_ENABLE_DRIVER, device::enable_driver::<D>),
        fill_res_cq_entry: op!(<D::Cq>::HAS_DESCRIBE, cq::fill_res_cq_entry::<D>),
        fill_res_mr_entry: op!(<D::Mr>::HAS_DESCRIBE, mr::fill_res_mr_entry::<D>),
        fill_res_qp_entry: op!(<D::Qp>::HAS_DESCRIBE, qp::fill_res_qp_entry::<D>),
        get_dev_fw_str: op!(D::HAS_FW_VERSION, device::get_dev_fw_str::<D>),
        get_dma_mr: op!(<D::Mr>::HAS_GET_DMA, mr::get_dma_mr::<D>),
        get_hw_stats: op!(!D::COUNTERS.is_empty(), device::get_hw_stats::<D>),
        get_netdev: op!(Self::HAS_IW && D::HAS_QUERY_GID, gid::get_netdev::<D>),
        get_port_immutable: Some(device::get_port_immutable::<D>),
        iw_accept: op!(Self::HAS_IW, iwcm::iw_accept::<D>),
        iw_add_ref: op!(Self::HAS_IW, iwcm::iw_add_ref::<D>),
        iw_connect: op!(Self::HAS_IW, iwcm::iw_connect::<D>),
        iw_create_listen: op!(Self::HAS_IW, iwcm::iw_create_listen::<D>),
        iw_destroy_listen: op!(Self::HAS_IW, iwcm::iw_destroy_listen::<D>),
        iw_get_qp: op!(Self::HAS_IW, iwcm::iw_get_qp::<D>),
        iw_reject: op!(Self::HAS_IW, iwcm::iw_reject::<D>),
        iw_rem_ref: op!(Self::HAS_IW, iwcm::iw_rem_ref::<D>),
        map_mr_sg: op!(<D::Mr>::HAS_MAP_SG, mr::map_mr_sg::<D>),
        mmap: Some(mmap::mmap_callback),
        mmap_free: Some(mmap::mmap_free_callback),
        modify_qp: op!(<D::Qp>::HAS_MODIFY, qp::modify_qp::<D>),
        modify_srq: op!(<D::Srq>::HAS_MODIFY, srq::modify_srq::<D>),
        port_groups: if D::HAS_TRAFFIC {
            (&raw const *Self::port_groups()).cast_mut().cast()
        } else {
            null_mut()
        },
        poll_cq: op!(<D::Cq>::HAS_POLL, cq::poll_cq::<D>),
        post_recv: op!(<D::Qp>::HAS_POST_RECV, qp::post_recv::<D>),
        post_send: op!(<D::Qp>::HAS_POST_SEND, qp::post_send::<D>),
        post_srq_recv: op!(<D::Srq>::HAS_POST_RECV, srq::post_srq_recv::<D>),
        query_device: Some(device::query_device::<D>),
        query_gid: op!(D::HAS_QUERY_GID, gid::query_gid::<D>),
        query_pkey: Some(device::query_pkey),
        query_port: Some(device::query_port::<D>),
        query_qp: op!(<D::Qp>::HAS_QUERY, qp::query_qp::<D>),
        query_srq: op!(<D::Srq>::HAS_QUERY, srq::query_srq::<D>),
        query_ucontext: op!(<D::Ucontext>::HAS_QUERY, ucontext::query_ucontext::<D>),
        reg_user_mr: op!(<D::Mr>::HAS_REG_USER, mr::reg_user_mr::<D>),
        reg_user_mr_dmabuf: op!(<D::Mr>::HAS_REG_DMABUF, mr::reg_user_mr_dmabuf::<D>),
        req_notify_cq: op!(<D::Cq>::HAS_REQ_NOTIFY, cq::req_notify_cq::<D>),
        rereg_user_mr: op!(<D::Mr>::HAS_REREG_USER, mr::rereg_user_mr::<D>),
        resize_user_cq: op!(<D::Cq>::HAS_RESIZE, cq::resize_user_cq::<D>),

        size_ib_cq: cq::Cq::<D>::SIZE,
        size_ib_mw: mw::Mw::<D>::SIZE,
        size_ib_pd: pd::Pd::<D>::SIZE,
        size_ib_qp: qp::Qp::<D>::SIZE,
        size_ib_srq: srq::Srq::<D>::SIZE,
        size_ib_ucontext: ucontext::Ucontext::<D>::SIZE,
        size_rdma_counter: size_of::<rdma_counter>(),
        ..pin_init::zeroed()
    };
}
