// SPDX-License-Identifier: GPL-2.0

//! The callbacks of `struct ib_device_ops`: conversion only.
//!
//! All of them have the same contract: the RDMA core calls them as `include/rdma/ib_verbs.h`
//! says, for a device that [`Device::new`](super::device::Device::new) made, and for objects of
//! that device which the callbacks here have created and not destroyed yet. What follows from it:
//!
//! - The device is initialised, and objects are live.
//! - Pointers to attributes and lists are valid for the call.
//! - `udata` is null for a kernel consumer, or else of a verb that is being executed.

mod cm;
pub(super) mod device;
mod mr;
mod object;

use core::{
    marker::PhantomData,
    ptr::null_mut, //
};

use kernel::{
    ffi,
    prelude::*, //
};

use crate::kapi::{
    bindings::{
        self,
        ib_device_ops,
        ib_ucontext,
        ib_udata,
        rdma_counter, //
    },
    rdma::{
        mmap,
        object::{
            Cq,
            Pd,
            Qp,
            Srq,
            Ucontext, //
        },
        ops::Driver,
    },
};

pub(super) struct Vtable<D: Driver>(PhantomData<D>);

impl<D: Driver> Vtable<D> {
    /// `owner` is set by [`Device::new`](super::device::Device::new).
    pub(super) const OPS: ib_device_ops = ib_device_ops {
        driver_id: D::DRIVER_ID,
        uverbs_abi_ver: D::ABI_VERSION,

        alloc_hw_port_stats: Some(device::alloc_hw_port_stats::<D>),
        alloc_mr: Some(mr::alloc_mr::<D>),
        alloc_pd: Some(object::alloc_pd::<D>),
        alloc_ucontext: Some(object::alloc_ucontext::<D>),
        counter_alloc_stats: Some(device::counter_alloc_stats::<D>),
        counter_bind_qp: Some(device::counter_bind_qp::<D>),
        counter_dealloc: Some(device::counter_dealloc::<D>),
        counter_init: Some(device::counter_init),
        counter_unbind_qp: Some(device::counter_unbind_qp::<D>),
        counter_update_stats: Some(device::counter_update_stats::<D>),
        create_cq: Some(object::create_cq::<D>),
        create_qp: Some(object::create_qp::<D>),
        create_srq: Some(object::create_srq::<D>),
        dealloc_driver: Some(device::dealloc_driver::<D>),
        dealloc_pd: Some(object::dealloc_pd::<D>),
        dealloc_ucontext: Some(object::dealloc_ucontext::<D>),
        dereg_mr: Some(mr::dereg_mr::<D>),
        destroy_cq: Some(object::destroy_cq::<D>),
        destroy_qp: Some(object::destroy_qp::<D>),
        destroy_srq: Some(object::destroy_srq::<D>),
        disassociate_ucontext: Some(object::disassociate_ucontext::<D>),
        fill_res_cq_entry: Some(object::fill_res_cq_entry::<D>),
        fill_res_mr_entry: Some(mr::fill_res_mr_entry::<D>),
        fill_res_qp_entry: Some(object::fill_res_qp_entry::<D>),
        get_dev_fw_str: Some(device::get_dev_fw_str::<D>),
        get_dma_mr: Some(mr::get_dma_mr::<D>),
        get_hw_stats: Some(device::get_hw_stats::<D>),
        get_port_immutable: Some(device::get_port_immutable::<D>),
        iw_accept: Some(cm::iw_accept::<D>),
        iw_add_ref: Some(cm::iw_add_ref::<D>),
        iw_connect: Some(cm::iw_connect::<D>),
        iw_create_listen: Some(cm::iw_create_listen::<D>),
        iw_destroy_listen: Some(cm::iw_destroy_listen::<D>),
        iw_get_qp: Some(cm::iw_get_qp::<D>),
        iw_reject: Some(cm::iw_reject::<D>),
        iw_rem_ref: Some(cm::iw_rem_ref::<D>),
        map_mr_sg: Some(mr::map_mr_sg::<D>),
        mmap: Some(mmap::mmap_callback),
        mmap_free: Some(mmap::mmap_free_callback),
        modify_qp: Some(object::modify_qp::<D>),
        modify_srq: Some(object::modify_srq::<D>),
        poll_cq: Some(object::poll_cq::<D>),
        post_recv: Some(object::post_recv::<D>),
        post_send: Some(object::post_send::<D>),
        post_srq_recv: Some(object::post_srq_recv::<D>),
        query_device: Some(device::query_device::<D>),
        query_gid: Some(device::query_gid::<D>),
        query_port: Some(device::query_port::<D>),
        query_qp: Some(object::query_qp::<D>),
        query_srq: Some(object::query_srq::<D>),
        reg_user_mr: Some(mr::reg_user_mr::<D>),
        req_notify_cq: Some(object::req_notify_cq::<D>),

        size_ib_cq: Cq::<D>::SIZE,
        size_ib_pd: Pd::<D>::SIZE,
        size_ib_qp: Qp::<D>::SIZE,
        size_ib_srq: Srq::<D>::SIZE,
        size_ib_ucontext: Ucontext::<D>::SIZE,
        size_rdma_counter: size_of::<rdma_counter>(),
        ..pin_init::zeroed()
    };
}

type Int = ffi::c_int;

fn to_errno(result: Result) -> Int {
    result.map_or_else(Error::to_errno, |()| 0)
}

/// A count for C.
fn count(n: usize) -> Int {
    Int::try_from(n).unwrap_or(Int::MAX)
}

/// The context of the user who asks.
///
/// # Safety
///
/// As the module says.
unsafe fn ucontext(udata: *mut ib_udata) -> *mut ib_ucontext {
    if udata.is_null() {
        return null_mut();
    }
    // SAFETY: By the requirements of this function.
    unsafe { bindings::kapi_udata_ucontext(udata) }
}
