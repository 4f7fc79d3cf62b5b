// SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause

//! Commands of uverbs: what the core wants, followed by what the driver wants.

use super::{
    bindings::{
        self,
        ib_uverbs_cmd_hdr, //
    },
    private::Private, //
};
use core::mem::{
    offset_of,
    zeroed, //
};

/// Plain numbers of C, for which zeros are valid.
///
/// # Safety
///
/// All bytes may be zero, and may be overwritten by the kernel with any others.
pub(super) unsafe trait Plain {}

macro_rules! plain {
    ($($name:ty,)*) => {$(
        // SAFETY: Its fields are numbers, and arrays of them.
        unsafe impl Plain for $name {}
    )*};
}

plain! {
    (),
    bindings::ib_uverbs_get_context,
    bindings::ib_uverbs_get_context_resp,
    bindings::siw_ureq_alloc_ctx,
    bindings::siw_uresp_alloc_ctx,
    bindings::ib_uverbs_query_port,
    bindings::ib_uverbs_ex_query_device_resp,
    bindings::ib_uverbs_alloc_pd,
    bindings::ib_uverbs_alloc_pd_resp,
    bindings::ib_uverbs_alloc_mw,
    bindings::ib_uverbs_alloc_mw_resp,
    bindings::ib_uverbs_reg_mr,
    bindings::ib_uverbs_reg_mr_resp,
    bindings::ib_uverbs_rereg_mr,
    bindings::ib_uverbs_rereg_mr_resp,
    bindings::siw_ureq_reg_mr,
    bindings::siw_uresp_reg_mr,
    bindings::ib_uverbs_create_cq,
    bindings::ib_uverbs_create_cq_resp,
    bindings::siw_uresp_create_cq,
    bindings::ib_uverbs_resize_cq,
    bindings::ib_uverbs_resize_cq_resp,
    bindings::siw_uresp_resize_cq,
    bindings::ib_uverbs_create_qp,
    bindings::ib_uverbs_create_qp_resp,
    bindings::siw_uresp_create_qp,
    bindings::ib_uverbs_query_qp,
    bindings::ib_uverbs_modify_qp,
    bindings::ib_uverbs_create_srq,
    bindings::ib_uverbs_create_srq_resp,
    bindings::siw_uresp_create_srq,
    bindings::ib_uverbs_query_srq,
    bindings::ib_uverbs_modify_srq,
    bindings::siw_ureq_modify_srq,
}

/// A request, which libibverbs calls `struct ibv_NAME` if nothing is for the driver. It fills in
/// the header and the core's part.
#[repr(C)]
pub(super) struct Request<Core, Driver = ()> {
    header: ib_uverbs_cmd_hdr,
    core: Core,
    /// The driver's part.
    pub(super) driver: Driver,
}

/// A response, which the kernel fills in.
#[repr(C)]
pub(super) struct Response<Core, Driver = ()> {
    /// The core's part.
    pub(super) core: Core,
    /// The driver's part.
    pub(super) driver: Driver,
}

/// What is common to requests and responses.
pub(super) trait Message: Sized {
    /// One that is all zeros.
    fn zeroed() -> Self;

    /// Its address, and its size in bytes, for a call of libibverbs.
    fn parts(&mut self) -> (Private, usize) {
        ((&raw mut *self).cast(), size_of::<Self>())
    }
}

impl<Core: Plain, Driver: Plain> Message for Request<Core, Driver> {
    fn zeroed() -> Self {
        const {
            assert!(offset_of!(Self, driver) == size_of::<ib_uverbs_cmd_hdr>() + size_of::<Core>());
            assert!(size_of::<Self>() == offset_of!(Self, driver) + size_of::<Driver>());
        }
        // SAFETY: Zeros are valid for both parts, which are `Plain`, and for the header.
        unsafe { zeroed() }
    }
}

impl<Core: Plain, Driver: Plain> Message for Response<Core, Driver> {
    fn zeroed() -> Self {
        const {
            assert!(offset_of!(Self, driver) == size_of::<Core>());
            assert!(size_of::<Self>() == offset_of!(Self, driver) + size_of::<Driver>());
        }
        // SAFETY: Zeros are valid for both parts, which are `Plain`.
        unsafe { zeroed() }
    }
}
