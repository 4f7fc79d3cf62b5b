// SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause

//! The functions of libibverbs that the library calls: most belong to the private interface.

use super::{
    bindings::{
        ibv_comp_channel,
        ibv_context,
        ibv_cq,
        ibv_device,
        ibv_device_attr_ex,
        ibv_gid,
        ibv_mw,
        ibv_pd,
        ibv_port_attr,
        ibv_qp,
        ibv_qp_attr,
        ibv_qp_ex,
        ibv_qp_init_attr,
        ibv_query_device_ex_input,
        ibv_send_wr,
        ibv_sge,
        ibv_srq,
        ibv_srq_attr,
        ibv_srq_init_attr,
        verbs_context, //
    },
    private::{
        CommandBuffer,
        Private,
        VerbsContextOps,
        VerbsDeviceOps,
        VerbsMr, //
    }, //
};
use core::ffi::{
    c_int,
    c_void, //
};

// Those that return an error return a positive number, and 0 for success. The commands and their
// responses are those of `command::Request` and `command::Response`, with their sizes in bytes.
#[cfg_attr(not(any(test, fuzzing)), link(name = "ibverbs"))]
unsafe extern "C" {
    #[link_name = "verbs_register_driver_34"]
    pub(super) fn verbs_register_driver(ops: *const VerbsDeviceOps);
    /// Takes the descriptor over, even if it fails: then it returns null and sets `errno`.
    pub(super) fn _verbs_init_and_alloc_context(
        device: *mut ibv_device,
        cmd_fd: c_int,
        size: usize,
        offset: *mut verbs_context,
        driver_id: u32,
    ) -> Private;
    /// Releases what the context holds, the descriptor included, but not its memory.
    pub(super) fn verbs_uninit_context(context: *mut verbs_context);
    pub(super) fn verbs_set_ops(context: *mut verbs_context, ops: *const VerbsContextOps);

    pub(super) fn ibv_cmd_get_context(
        context: *mut verbs_context,
        cmd: Private,
        cmd_size: usize,
        resp: Private,
        resp_size: usize,
    ) -> c_int;
    /// Asks for a context that is open already. `driver` has the driver's attributes.
    pub(super) fn ibv_cmd_query_context(
        context: *mut ibv_context,
        driver: *mut CommandBuffer,
    ) -> c_int;
    pub(super) fn ibv_cmd_query_device_any(
        context: *mut ibv_context,
        input: *const ibv_query_device_ex_input,
        attr: *mut ibv_device_attr_ex,
        attr_size: usize,
        resp: Private,
        resp_size: *mut usize,
    ) -> c_int;
    pub(super) fn ibv_cmd_query_port(
        context: *mut ibv_context,
        port: u8,
        attr: *mut ibv_port_attr,
        cmd: Private,
        cmd_size: usize,
    ) -> c_int;
    /// Not a command, but public. Of an entry that is empty it stores zeros.
    pub(super) fn ibv_query_gid(
        context: *mut ibv_context,
        port: u8,
        index: c_int,
        gid: *mut ibv_gid,
    ) -> c_int;
    pub(super) fn ibv_cmd_alloc_pd(
        context: *mut ibv_context,
        pd: *mut ibv_pd,
        cmd: Private,
        cmd_size: usize,
        resp: Private,
        resp_size: usize,
    ) -> c_int;
    pub(super) fn ibv_cmd_dealloc_pd(pd: *mut ibv_pd) -> c_int;
    pub(super) fn ibv_cmd_alloc_mw(
        pd: *mut ibv_pd,
        kind: u32,
        mw: *mut ibv_mw,
        cmd: Private,
        cmd_size: usize,
        resp: Private,
        resp_size: usize,
    ) -> c_int;
    pub(super) fn ibv_cmd_dealloc_mw(mw: *mut ibv_mw) -> c_int;
    pub(super) fn ibv_cmd_reg_mr(
        pd: *mut ibv_pd,
        addr: *mut c_void,
        length: usize,
        hca_va: u64,
        access: c_int,
        mr: *mut VerbsMr,
        cmd: Private,
        cmd_size: usize,
        resp: Private,
        resp_size: usize,
    ) -> c_int;
    /// `driver` has the driver's attributes, or is null. Before 49.0 there is no such parameter,
    /// and nobody looks at it.
    pub(super) fn ibv_cmd_reg_dmabuf_mr(
        pd: *mut ibv_pd,
        offset: u64,
        length: usize,
        iova: u64,
        fd: c_int,
        access: c_int,
        mr: *mut VerbsMr,
        driver: *mut CommandBuffer,
    ) -> c_int;
    pub(super) fn ibv_cmd_rereg_mr(
        mr: *mut VerbsMr,
        flags: u32,
        addr: *mut c_void,
        length: usize,
        hca_va: u64,
        access: c_int,
        pd: *mut ibv_pd,
        cmd: Private,
        cmd_size: usize,
        resp: Private,
        resp_size: usize,
    ) -> c_int;
    pub(super) fn ibv_cmd_advise_mr(
        pd: *mut ibv_pd,
        advice: u32,
        flags: u32,
        sges: *mut ibv_sge,
        num_sge: u32,
    ) -> c_int;
    pub(super) fn ibv_cmd_dereg_mr(mr: *mut VerbsMr) -> c_int;
    /// Fills in the region.
    pub(super) fn ibv_cmd_query_mr(pd: *mut ibv_pd, mr: *mut VerbsMr, handle: u32) -> c_int;
    pub(super) fn ibv_cmd_create_cq(
        context: *mut ibv_context,
        cqe: c_int,
        channel: *mut ibv_comp_channel,
        comp_vector: c_int,
        cq: *mut ibv_cq,
        cmd: Private,
        cmd_size: usize,
        resp: Private,
        resp_size: usize,
    ) -> c_int;
    pub(super) fn ibv_cmd_resize_cq(
        cq: *mut ibv_cq,
        cqe: c_int,
        cmd: Private,
        cmd_size: usize,
        resp: Private,
        resp_size: usize,
    ) -> c_int;
    pub(super) fn ibv_cmd_destroy_cq(cq: *mut ibv_cq) -> c_int;
    pub(super) fn ibv_cmd_create_qp(
        pd: *mut ibv_pd,
        qp: *mut ibv_qp,
        attr: *mut ibv_qp_init_attr,
        cmd: Private,
        cmd_size: usize,
        resp: Private,
        resp_size: usize,
    ) -> c_int;
    pub(super) fn ibv_cmd_query_qp(
        qp: *mut ibv_qp,
        attr: *mut ibv_qp_attr,
        mask: c_int,
        init: *mut ibv_qp_init_attr,
        cmd: Private,
        cmd_size: usize,
    ) -> c_int;
    pub(super) fn ibv_cmd_modify_qp(
        qp: *mut ibv_qp,
        attr: *mut ibv_qp_attr,
        mask: c_int,
        cmd: Private,
        cmd_size: usize,
    ) -> c_int;
    /// Works in any process that has the device, too: the command is an `ioctl()`.
    pub(super) fn ibv_cmd_post_send(
        qp: *mut ibv_qp,
        wr: *mut ibv_send_wr,
        bad_wr: *mut *mut ibv_send_wr,
    ) -> c_int;
    pub(super) fn ibv_cmd_destroy_qp(qp: *mut ibv_qp) -> c_int;
    pub(super) fn ibv_cmd_create_srq(
        pd: *mut ibv_pd,
        srq: *mut ibv_srq,
        attr: *mut ibv_srq_init_attr,
        cmd: Private,
        cmd_size: usize,
        resp: Private,
        resp_size: usize,
    ) -> c_int;
    pub(super) fn ibv_cmd_query_srq(
        srq: *mut ibv_srq,
        attr: *mut ibv_srq_attr,
        cmd: Private,
        cmd_size: usize,
    ) -> c_int;
    pub(super) fn ibv_cmd_modify_srq(
        srq: *mut ibv_srq,
        attr: *mut ibv_srq_attr,
        mask: c_int,
        cmd: Private,
        cmd_size: usize,
    ) -> c_int;
    pub(super) fn ibv_cmd_destroy_srq(srq: *mut ibv_srq) -> c_int;
    /// Not a command, but public.
    pub(super) fn ibv_qp_to_qp_ex(qp: *mut ibv_qp) -> *mut ibv_qp_ex;
    fn ibv_query_qp_data_in_order(qp: *mut ibv_qp, op: u32, flags: u32) -> c_int;
}

/// A symbol that came with the last operation, and has a version of its own (`IBVERBS_1.14`). It is
/// not called.
pub(super) const NEEDED: unsafe extern "C" fn(*mut ibv_qp, u32, u32) -> c_int =
    ibv_query_qp_data_in_order;
