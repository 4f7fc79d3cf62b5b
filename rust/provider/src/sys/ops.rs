// SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause

//! The tables of operations, and the registration.
//!
//! libibverbs calls the operations, on behalf of a program, with what the manual pages of the verbs
//! demand: objects and attributes are valid, room for results is the caller's alone, and an object
//! is destroyed when no other call uses it. The objects are those that the operations here have
//! made. The operations rely on that.

use super::{
    bindings::SIW_ABI_VERSION,
    cq,
    device,
    domain,
    memory,
    private::{
        self,
        VerbsContextOps,
        VerbsDeviceOps,
        VerbsMatchEnt,
        MATCH_DRIVER_ID, //
    },
    provider::Provider,
    qp,
    srq,
    window, //
};
use core::{
    hint::black_box,
    ptr::null_mut, //
};

/// A function that the dynamic linker calls.
pub(crate) type Constructor = extern "C" fn();

/// The devices that the library is for, and the end of the table.
static MATCH_TABLE: Table = Table([
    VerbsMatchEnt {
        kind: MATCH_DRIVER_ID,
        driver_id: device::DRIVER_ID as u64,
        ..NO_MATCH
    },
    NO_MATCH,
]);

const NO_MATCH: VerbsMatchEnt = VerbsMatchEnt {
    driver_data: null_mut(),
    driver_id: 0,
    vendor: 0,
    device: 0,
    kind: 0,
};

struct Table([VerbsMatchEnt; 2]);

// SAFETY: It is constant.
unsafe impl Sync for Table {}

/// Registers the provider with libibverbs.
pub(crate) extern "C" fn register<V: Provider>() {
    // Without a use the linker of the library would leave the symbol out.
    black_box(private::NEEDED);
    // SAFETY: The table is constant, and all that it points to.
    unsafe { private::verbs_register_driver(const { &device_ops::<V>() }) };
}

const fn device_ops<V: Provider>() -> VerbsDeviceOps {
    VerbsDeviceOps {
        name: c"siw".as_ptr(),
        match_min_abi_version: SIW_ABI_VERSION,
        match_max_abi_version: SIW_ABI_VERSION,
        match_table: &raw const MATCH_TABLE.0 as *const VerbsMatchEnt,
        static_providers: null_mut(),
        match_device: None,
        alloc_context: Some(device::alloc_context::<V>),
        import_context: Some(device::import_context::<V>),
        alloc_device: Some(device::alloc_device),
        uninit_device: Some(device::uninit_device),
    }
}

/// The operations of a context whose driver has windows.
pub(super) const fn context_ops_with_windows<V: Provider>() -> VerbsContextOps {
    VerbsContextOps {
        alloc_mw: Some(window::alloc_mw),
        bind_mw: Some(window::bind_mw::<V>),
        dealloc_mw: Some(window::dealloc_mw),
        ..context_ops::<V>()
    }
}

/// The operations of a context.
pub(super) const fn context_ops<V: Provider>() -> VerbsContextOps {
    VerbsContextOps {
        advise_mr: Some(memory::advise_mr),
        alloc_dm: [None; 1],
        alloc_mw: None,
        alloc_null_mr: [None; 1],
        alloc_parent_domain: Some(domain::alloc_parent_domain),
        alloc_pd: Some(domain::alloc_pd),
        alloc_td: Some(domain::alloc_td),
        async_event_to_attach_mcast: [None; 3],
        bind_mw: None,
        close_xrcd_to_create_counters: [None; 4],
        create_cq: Some(cq::create_cq::<V>),
        create_cq_ex: Some(cq::create_cq_ex::<V>),
        create_flow_to_create_flow_action_esp: [None; 2],
        create_qp: Some(qp::create_qp::<V>),
        create_qp_ex: Some(qp::create_qp_ex::<V>),
        create_rwq_ind_table: [None; 1],
        create_srq: Some(srq::create_srq::<V>),
        create_srq_ex_to_create_wq: [None; 2],
        dealloc_mw: None,
        dealloc_pd: Some(domain::dealloc_pd),
        dealloc_td: Some(domain::dealloc_td),
        dereg_mr: Some(memory::dereg_mr),
        destroy_ah_to_destroy_counters: [None; 2],
        destroy_cq: Some(cq::destroy_cq::<V>),
        destroy_flow_to_destroy_flow_action: [None; 2],
        destroy_qp: Some(qp::destroy_qp::<V>),
        destroy_rwq_ind_table: [None; 1],
        destroy_srq: Some(srq::destroy_srq::<V>),
        destroy_wq_to_detach_mcast: [None; 2],
        free_context: Some(device::free_context),
        free_dm_to_import_dm: [None; 3],
        import_mr: Some(memory::import_mr),
        import_pd: Some(domain::import_pd),
        modify_cq_to_modify_flow_action_esp: [None; 2],
        modify_qp: Some(qp::modify_qp::<V>),
        modify_qp_rate_limit: [None; 1],
        modify_srq: Some(srq::modify_srq::<V>),
        modify_wq_to_open_xrcd: [None; 3],
        poll_cq: Some(cq::poll_cq::<V>),
        post_recv: Some(qp::post_recv::<V>),
        post_send: Some(qp::post_send::<V>),
        post_srq_ops: [None; 1],
        post_srq_recv: Some(srq::post_srq_recv::<V>),
        query_device_ex: Some(device::query_device_ex),
        query_ece: [None; 1],
        query_port: Some(device::query_port),
        query_qp: Some(qp::query_qp::<V>),
        query_qp_data_in_order_to_query_rt_values: [None; 2],
        query_srq: Some(srq::query_srq),
        read_counters_to_reg_dm_mr: [None; 2],
        reg_dmabuf_mr: Some(memory::reg_dmabuf_mr),
        reg_mr: Some(memory::reg_mr),
        req_notify_cq: Some(cq::req_notify_cq::<V>),
        rereg_mr: Some(memory::rereg_mr),
        resize_cq: Some(cq::resize_cq::<V>),
        set_ece_to_unimport_dm: [None; 2],
        unimport_mr: Some(memory::unimport_mr),
        unimport_pd: Some(domain::unimport_pd),
    }
}
