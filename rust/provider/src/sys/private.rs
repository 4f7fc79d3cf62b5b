// SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause

//! The private interface of libibverbs, version 34, by hand.
//!
//! Distributions do not package its header, `libibverbs/driver.h` of rdma-core. These are the few
//! structures that a provider needs, and in [`calls`](super::calls) the functions that it calls.
//!
//! The dynamic linker sees to it that the release is the right one. Those from 57.0 on have another
//! version than `IBVERBS_PRIVATE_34`. Those before 36.0 have that one with fewer operations, but
//! not the symbol that [`NEEDED`] names. What is declared here is the same in all between, except
//! for [`VerbsQp`]. Everything that depends on the release is in these two files.

use super::{
    bindings::{
        ib_uverbs_attr,
        ib_uverbs_ioctl_hdr,
        ibv_comp_channel,
        ibv_context,
        ibv_cq,
        ibv_cq_ex,
        ibv_cq_init_attr_ex,
        ibv_device,
        ibv_device_attr_ex,
        ibv_mr,
        ibv_mw,
        ibv_mw_bind,
        ibv_parent_domain_init_attr,
        ibv_pd,
        ibv_port_attr,
        ibv_qp,
        ibv_qp_attr,
        ibv_qp_ex,
        ibv_qp_init_attr,
        ibv_qp_init_attr_ex,
        ibv_query_device_ex_input,
        ibv_recv_wr,
        ibv_send_wr,
        ibv_sge,
        ibv_srq,
        ibv_srq_attr,
        ibv_srq_init_attr,
        ibv_td,
        ibv_td_init_attr,
        ibv_wc,
        uverbs_default_objects_UVERBS_OBJECT_DEVICE,
        verbs_context,
        UVERBS_ATTR_F_MANDATORY, //
    },
    command::Plain, //
};
use core::{
    ffi::{
        c_char,
        c_int,
        c_void, //
    },
    mem::offset_of,
    ptr::null_mut, //
};

pub(super) use super::calls::*;

/// Something that libibverbs keeps in a structure of the provider's.
pub(super) type Private = *mut c_void;

/// `VERBS_MATCH_DRIVER_ID`.
pub(super) const MATCH_DRIVER_ID: u8 = 3;

/// `struct verbs_match_ent`. One of kind 0 ends the table.
#[repr(C)]
pub(super) struct VerbsMatchEnt {
    pub(super) driver_data: Private,
    /// A union with a pointer.
    pub(super) driver_id: u64,
    pub(super) vendor: u16,
    pub(super) device: u16,
    pub(super) kind: u8,
}

/// `struct verbs_device_ops`.
#[repr(C)]
pub(super) struct VerbsDeviceOps {
    pub(super) name: *const c_char,
    pub(super) match_min_abi_version: u32,
    pub(super) match_max_abi_version: u32,
    pub(super) match_table: *const VerbsMatchEnt,
    pub(super) static_providers: Private,
    pub(super) match_device: Unused,
    pub(super) alloc_context: Option<
        unsafe extern "C" fn(
            device: *mut ibv_device,
            cmd_fd: c_int,
            private_data: Private,
        ) -> *mut verbs_context,
    >,
    pub(super) import_context:
        Option<unsafe extern "C" fn(device: *mut ibv_device, cmd_fd: c_int) -> *mut verbs_context>,
    pub(super) alloc_device: Option<unsafe extern "C" fn(found: Private) -> *mut VerbsDevice>,
    pub(super) uninit_device: Option<unsafe extern "C" fn(device: *mut VerbsDevice)>,
}

// SAFETY: What it points to is constant.
unsafe impl Sync for VerbsDeviceOps {}

/// `struct verbs_device`. The provider allocates it, and libibverbs fills it in.
#[repr(C)]
pub(super) struct VerbsDevice {
    device: ibv_device,
    ops: *const VerbsDeviceOps,
    refcount: c_int,
    entry: [Private; 2],
    sysfs: Private,
    core_support: u64,
}

/// `struct verbs_mr`.
#[repr(C)]
pub(super) struct VerbsMr {
    pub(super) mr: ibv_mr,
    mr_type: u32,
    access: c_int,
}

/// `struct verbs_qp`, as it is from 45.0 on. Before, `comp_mask` was further to the front, see
/// [`Self::COMP_MASKS`].
#[repr(C)]
pub(super) struct VerbsQp {
    /// A union with the `struct ibv_qp` that it begins with.
    pub(super) qp: ibv_qp_ex,
    comp_mask: u32,
    xrcd: Private,
}

impl VerbsQp {
    /// `VERBS_QP_EX`: programs may build work requests.
    pub(super) const EXTENDED: u32 = 2;

    /// Offsets of `comp_mask` in bytes: from 45.0 on, in 44.0 and before. The structure in front of
    /// it has grown by one operation each time. Those two operations stay null in all queue pairs.
    const COMP_MASKS: [usize; 3] = [360, 352, 344];

    /// Marks it as extended where this release looks.
    pub(super) fn extend(&mut self) {
        let qp = &raw mut *self;
        for offset in Self::COMP_MASKS {
            let mask: *mut u32 = qp.wrapping_byte_add(offset).cast();
            // SAFETY: It is a part of the queue pair, which is the caller's alone.
            unsafe { mask.write(Self::EXTENDED) };
            // SAFETY: The queue pair is valid. The call only looks at it.
            if !unsafe { ibv_qp_to_qp_ex(qp.cast()) }.is_null() {
                return;
            }
            // SAFETY: As the write before.
            unsafe { mask.write(0) };
        }
    }
}

/// `struct ibv_command_buffer` with one attribute, which has a place in the structure of its own
/// only here: attributes that the driver adds to a command of the core.
#[repr(C)]
pub(super) struct CommandBuffer {
    next: Private,
    next_attr: *mut ib_uverbs_attr,
    last_attr: *mut ib_uverbs_attr,
    uhw_in_idx: u8,
    uhw_out_idx: u8,
    uhw_in_headroom_dwords: u8,
    uhw_out_headroom_dwords: u8,
    /// Bits that say what to do on kernels that have no such command.
    flags: u8,
    hdr: ib_uverbs_ioctl_hdr,
    attr: ib_uverbs_attr,
}

impl CommandBuffer {
    /// Makes one for a method of the core's object of the device, with room for the answer, and
    /// calls `f` with it.
    pub(super) fn with_answer<Answer: Plain, R>(
        method: u16,
        id: u16,
        answer: &mut Answer,
        f: impl FnOnce(*mut Self) -> R,
    ) -> R {
        let mut buffer = Self {
            next: null_mut(),
            next_attr: null_mut(),
            last_attr: null_mut(),
            // `_UHW_NO_INDEX`: the command has nothing else of the driver's.
            uhw_in_idx: 0xff,
            uhw_out_idx: 0xff,
            uhw_in_headroom_dwords: 0,
            uhw_out_headroom_dwords: 0,
            flags: 0,
            hdr: ib_uverbs_ioctl_hdr {
                object_id: uverbs_default_objects_UVERBS_OBJECT_DEVICE as u16,
                method_id: method,
                ..Default::default()
            },
            attr: ib_uverbs_attr {
                attr_id: id,
                len: const {
                    assert!(size_of::<Answer>() <= u16::MAX as usize);
                    size_of::<Answer>() as u16
                },
                flags: UVERBS_ATTR_F_MANDATORY as u16,
                ..Default::default()
            },
        };
        buffer.attr.__bindgen_anon_1.data = (&raw mut *answer).expose_provenance() as u64;
        // One attribute is filled in, and there is no room for another one.
        buffer.next_attr = (&raw mut buffer.attr).wrapping_add(1);
        buffer.last_attr = buffer.next_attr;
        f(&mut buffer)
    }
}

#[cfg(any(test, fuzzing))]
impl CommandBuffer {
    /// What the kernel sees of it.
    pub(super) fn parts(&self) -> (&ib_uverbs_ioctl_hdr, ib_uverbs_attr) {
        (&self.hdr, self.attr)
    }
}

/// An operation that the provider leaves out; libibverbs answers `EOPNOTSUPP`.
pub(super) type Unused = Option<unsafe extern "C" fn()>;

/// `struct verbs_context_ops`: the operations in the order of their names.
#[repr(C)]
pub(super) struct VerbsContextOps {
    pub(super) advise_mr: Option<
        unsafe extern "C" fn(
            *mut ibv_pd,
            advice: u32,
            flags: u32,
            *mut ibv_sge,
            num_sge: u32,
        ) -> c_int,
    >,
    pub(super) alloc_dm: [Unused; 1],
    pub(super) alloc_mw: Option<unsafe extern "C" fn(*mut ibv_pd, kind: u32) -> *mut ibv_mw>,
    pub(super) alloc_null_mr: [Unused; 1],
    pub(super) alloc_parent_domain: Option<
        unsafe extern "C" fn(*mut ibv_context, *mut ibv_parent_domain_init_attr) -> *mut ibv_pd,
    >,
    pub(super) alloc_pd: Option<unsafe extern "C" fn(*mut ibv_context) -> *mut ibv_pd>,
    pub(super) alloc_td:
        Option<unsafe extern "C" fn(*mut ibv_context, *mut ibv_td_init_attr) -> *mut ibv_td>,
    pub(super) async_event_to_attach_mcast: [Unused; 3],
    pub(super) bind_mw:
        Option<unsafe extern "C" fn(*mut ibv_qp, *mut ibv_mw, *mut ibv_mw_bind) -> c_int>,
    pub(super) close_xrcd_to_create_counters: [Unused; 4],
    pub(super) create_cq: Option<
        unsafe extern "C" fn(*mut ibv_context, c_int, *mut ibv_comp_channel, c_int) -> *mut ibv_cq,
    >,
    pub(super) create_cq_ex:
        Option<unsafe extern "C" fn(*mut ibv_context, *mut ibv_cq_init_attr_ex) -> *mut ibv_cq_ex>,
    pub(super) create_flow_to_create_flow_action_esp: [Unused; 2],
    pub(super) create_qp:
        Option<unsafe extern "C" fn(*mut ibv_pd, *mut ibv_qp_init_attr) -> *mut ibv_qp>,
    pub(super) create_qp_ex:
        Option<unsafe extern "C" fn(*mut ibv_context, *mut ibv_qp_init_attr_ex) -> *mut ibv_qp>,
    pub(super) create_rwq_ind_table: [Unused; 1],
    pub(super) create_srq:
        Option<unsafe extern "C" fn(*mut ibv_pd, *mut ibv_srq_init_attr) -> *mut ibv_srq>,
    pub(super) create_srq_ex_to_create_wq: [Unused; 2],
    pub(super) dealloc_mw: Option<unsafe extern "C" fn(*mut ibv_mw) -> c_int>,
    pub(super) dealloc_pd: Option<unsafe extern "C" fn(*mut ibv_pd) -> c_int>,
    pub(super) dealloc_td: Option<unsafe extern "C" fn(*mut ibv_td) -> c_int>,
    pub(super) dereg_mr: Option<unsafe extern "C" fn(*mut VerbsMr) -> c_int>,
    pub(super) destroy_ah_to_destroy_counters: [Unused; 2],
    pub(super) destroy_cq: Option<unsafe extern "C" fn(*mut ibv_cq) -> c_int>,
    pub(super) destroy_flow_to_destroy_flow_action: [Unused; 2],
    pub(super) destroy_qp: Option<unsafe extern "C" fn(*mut ibv_qp) -> c_int>,
    pub(super) destroy_rwq_ind_table: [Unused; 1],
    pub(super) destroy_srq: Option<unsafe extern "C" fn(*mut ibv_srq) -> c_int>,
    pub(super) destroy_wq_to_detach_mcast: [Unused; 2],
    pub(super) free_context: Option<unsafe extern "C" fn(*mut ibv_context)>,
    pub(super) free_dm_to_import_dm: [Unused; 3],
    pub(super) import_mr: Option<unsafe extern "C" fn(*mut ibv_pd, handle: u32) -> *mut ibv_mr>,
    pub(super) import_pd:
        Option<unsafe extern "C" fn(*mut ibv_context, handle: u32) -> *mut ibv_pd>,
    pub(super) modify_cq_to_modify_flow_action_esp: [Unused; 2],
    pub(super) modify_qp:
        Option<unsafe extern "C" fn(*mut ibv_qp, *mut ibv_qp_attr, c_int) -> c_int>,
    pub(super) modify_qp_rate_limit: [Unused; 1],
    pub(super) modify_srq:
        Option<unsafe extern "C" fn(*mut ibv_srq, *mut ibv_srq_attr, c_int) -> c_int>,
    pub(super) modify_wq_to_open_xrcd: [Unused; 3],
    pub(super) poll_cq: Option<unsafe extern "C" fn(*mut ibv_cq, c_int, *mut ibv_wc) -> c_int>,
    pub(super) post_recv:
        Option<unsafe extern "C" fn(*mut ibv_qp, *mut ibv_recv_wr, *mut *mut ibv_recv_wr) -> c_int>,
    pub(super) post_send:
        Option<unsafe extern "C" fn(*mut ibv_qp, *mut ibv_send_wr, *mut *mut ibv_send_wr) -> c_int>,
    pub(super) post_srq_ops: [Unused; 1],
    pub(super) post_srq_recv: Option<
        unsafe extern "C" fn(*mut ibv_srq, *mut ibv_recv_wr, *mut *mut ibv_recv_wr) -> c_int,
    >,
    pub(super) query_device_ex: Option<
        unsafe extern "C" fn(
            *mut ibv_context,
            *const ibv_query_device_ex_input,
            *mut ibv_device_attr_ex,
            usize,
        ) -> c_int,
    >,
    pub(super) query_ece: [Unused; 1],
    pub(super) query_port:
        Option<unsafe extern "C" fn(*mut ibv_context, u8, *mut ibv_port_attr) -> c_int>,
    pub(super) query_qp: Option<
        unsafe extern "C" fn(*mut ibv_qp, *mut ibv_qp_attr, c_int, *mut ibv_qp_init_attr) -> c_int,
    >,
    pub(super) query_qp_data_in_order_to_query_rt_values: [Unused; 2],
    pub(super) query_srq: Option<unsafe extern "C" fn(*mut ibv_srq, *mut ibv_srq_attr) -> c_int>,
    pub(super) read_counters_to_reg_dm_mr: [Unused; 2],
    pub(super) reg_dmabuf_mr: Option<
        unsafe extern "C" fn(*mut ibv_pd, u64, usize, u64, c_int, c_int) -> *mut ibv_mr, //
    >,
    pub(super) reg_mr:
        Option<unsafe extern "C" fn(*mut ibv_pd, *mut c_void, usize, u64, c_int) -> *mut ibv_mr>,
    pub(super) req_notify_cq: Option<unsafe extern "C" fn(*mut ibv_cq, c_int) -> c_int>,
    pub(super) rereg_mr: Option<
        unsafe extern "C" fn(
            *mut VerbsMr,
            flags: c_int,
            *mut ibv_pd,
            *mut c_void,
            usize,
            access: c_int,
        ) -> c_int,
    >,
    pub(super) resize_cq: Option<unsafe extern "C" fn(*mut ibv_cq, cqe: c_int) -> c_int>,
    pub(super) set_ece_to_unimport_dm: [Unused; 2],
    pub(super) unimport_mr: Option<unsafe extern "C" fn(*mut ibv_mr)>,
    pub(super) unimport_pd: Option<unsafe extern "C" fn(*mut ibv_pd)>,
}

// The layouts, as a C compiler lays out the header of 56.1 on x86-64.
const _: () = {
    assert!(size_of::<VerbsMatchEnt>() == 24 && offset_of!(VerbsMatchEnt, kind) == 20);
    assert!(size_of::<VerbsDeviceOps>() == 72);
    assert!(offset_of!(VerbsDeviceOps, alloc_context) == 40);
    assert!(offset_of!(VerbsDeviceOps, uninit_device) == 64);
    assert!(size_of::<VerbsDevice>() == 712 && offset_of!(VerbsDevice, ops) == 664);
    assert!(offset_of!(CommandBuffer, hdr) == 32 && offset_of!(CommandBuffer, attr) == 56);
    assert!(size_of::<VerbsMr>() == 56 && offset_of!(VerbsMr, mr_type) == 48);
    assert!(size_of::<VerbsQp>() == 376 && offset_of!(VerbsQp, comp_mask) == 360);
    assert!(size_of::<VerbsContextOps>() == 76 * 8);
    assert!(offset_of!(VerbsContextOps, alloc_mw) == 2 * 8);
    assert!(offset_of!(VerbsContextOps, alloc_parent_domain) == 4 * 8);
    assert!(offset_of!(VerbsContextOps, alloc_pd) == 5 * 8);
    assert!(offset_of!(VerbsContextOps, alloc_td) == 6 * 8);
    assert!(offset_of!(VerbsContextOps, bind_mw) == 10 * 8);
    assert!(offset_of!(VerbsContextOps, create_cq) == 15 * 8);
    assert!(offset_of!(VerbsContextOps, create_cq_ex) == 16 * 8);
    assert!(offset_of!(VerbsContextOps, create_qp) == 19 * 8);
    assert!(offset_of!(VerbsContextOps, create_qp_ex) == 20 * 8);
    assert!(offset_of!(VerbsContextOps, create_srq) == 22 * 8);
    assert!(offset_of!(VerbsContextOps, dealloc_mw) == 25 * 8);
    assert!(offset_of!(VerbsContextOps, dealloc_pd) == 26 * 8);
    assert!(offset_of!(VerbsContextOps, dealloc_td) == 27 * 8);
    assert!(offset_of!(VerbsContextOps, dereg_mr) == 28 * 8);
    assert!(offset_of!(VerbsContextOps, destroy_cq) == 31 * 8);
    assert!(offset_of!(VerbsContextOps, destroy_qp) == 34 * 8);
    assert!(offset_of!(VerbsContextOps, destroy_srq) == 36 * 8);
    assert!(offset_of!(VerbsContextOps, free_context) == 39 * 8);
    assert!(offset_of!(VerbsContextOps, import_mr) == 43 * 8);
    assert!(offset_of!(VerbsContextOps, import_pd) == 44 * 8);
    assert!(offset_of!(VerbsContextOps, modify_qp) == 47 * 8);
    assert!(offset_of!(VerbsContextOps, modify_srq) == 49 * 8);
    assert!(offset_of!(VerbsContextOps, poll_cq) == 53 * 8);
    assert!(offset_of!(VerbsContextOps, post_recv) == 54 * 8);
    assert!(offset_of!(VerbsContextOps, post_send) == 55 * 8);
    assert!(offset_of!(VerbsContextOps, post_srq_recv) == 57 * 8);
    assert!(offset_of!(VerbsContextOps, query_device_ex) == 58 * 8);
    assert!(offset_of!(VerbsContextOps, query_port) == 60 * 8);
    assert!(offset_of!(VerbsContextOps, query_qp) == 61 * 8);
    assert!(offset_of!(VerbsContextOps, query_srq) == 64 * 8);
    assert!(offset_of!(VerbsContextOps, reg_dmabuf_mr) == 67 * 8);
    assert!(offset_of!(VerbsContextOps, reg_mr) == 68 * 8);
    assert!(offset_of!(VerbsContextOps, req_notify_cq) == 69 * 8);
    assert!(offset_of!(VerbsContextOps, rereg_mr) == 70 * 8);
    assert!(offset_of!(VerbsContextOps, resize_cq) == 71 * 8);
    assert!(offset_of!(VerbsContextOps, unimport_mr) == 74 * 8);
    assert!(offset_of!(VerbsContextOps, unimport_pd) == 75 * 8);
    assert!(size_of::<ibv_cq_ex>() == 288 && offset_of!(ibv_cq_ex, start_poll) == 144);
    assert!(offset_of!(ibv_qp_ex, comp_mask) == 160 && size_of::<ibv_qp_ex>() == 360);
};
