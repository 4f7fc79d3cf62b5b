// SPDX-License-Identifier: GPL-2.0

//! Callbacks for memory regions.

use kernel::{
    ffi,
    prelude::*, //
};

use super::{
    count,
    to_errno,
    Int, //
};
use crate::kapi::{
    bindings::{
        self,
        ib_dmah,
        ib_mr,
        ib_pd,
        ib_udata,
        scatterlist,
        sk_buff, //
    },
    errno,
    rdma::{
        attr::{
            MrType,
            UserMrReq, //
        },
        details::Details,
        mem::{
            DmaGrant,
            SgList, //
        },
        mr::Mr,
        object::Pd,
        ops::Driver,
        udata::Udata,
    },
};

fn mr_ptr(result: Result<*mut ib_mr>) -> *mut ib_mr {
    result.unwrap_or_else(Error::to_ptr)
}

/// # Safety
///
/// As the parent module says.
pub(super) unsafe extern "C" fn reg_user_mr<D: Driver>(
    pd: *mut ib_pd,
    start: u64,
    len: u64,
    iova: u64,
    access: Int,
    dmah: *mut ib_dmah,
    udata: *mut ib_udata,
) -> *mut ib_mr {
    if !dmah.is_null() {
        return errno::eopnotsupp().to_ptr();
    }
    // SAFETY: By the requirements of this function.
    let pd = unsafe { Pd::<D>::from_raw(pd) };
    // SAFETY: By *verb*: null, or of the verb that this call executes.
    let mut udata = unsafe { Udata::from_raw(udata) };
    let req = UserMrReq {
        start,
        len,
        iova,
        access: access as u32,
    };
    mr_ptr(Mr::<D>::create(|| D::reg_user_mr(pd, &req, udata.as_mut())))
}

/// # Safety
///
/// As the parent module says.
pub(super) unsafe extern "C" fn alloc_mr<D: Driver>(
    pd: *mut ib_pd,
    kind: bindings::ib_mr_type,
    max_sg: u32,
) -> *mut ib_mr {
    // SAFETY: By the requirements of this function.
    let pd = unsafe { Pd::<D>::from_raw(pd) };
    mr_ptr(Mr::<D>::create(|| {
        D::alloc_mr(pd, MrType::from_raw(kind), max_sg)
    }))
}

/// # Safety
///
/// As the parent module says.
pub(super) unsafe extern "C" fn get_dma_mr<D: Driver>(pd: *mut ib_pd, access: Int) -> *mut ib_mr {
    // SAFETY: By the requirements of this function.
    let pd = unsafe { Pd::<D>::from_raw(pd) };
    if pd.is_user() {
        return EPERM.to_ptr();
    }
    mr_ptr(Mr::<D>::create(|| {
        // SAFETY: The PD, and thus the caller, is not a user's.
        let grant = unsafe { DmaGrant::new() };
        D::get_dma_mr(pd, access as u32, grant)
    }))
}

/// # Safety
///
/// As the parent module says.
pub(super) unsafe extern "C" fn map_mr_sg<D: Driver>(
    mr: *mut ib_mr,
    sg: *mut scatterlist,
    nents: Int,
    offset: *mut ffi::c_uint,
) -> Int {
    // SAFETY: By the requirements of this function.
    let mr = unsafe { Mr::<D>::from_raw(mr) };
    // SAFETY: By *valid*: the list and `offset` are those of this call. The consumer keeps the
    // memory that it maps, see `ib_map_mr_sg()`.
    let sg = unsafe { SgList::from_raw(mr.base(), sg, nents, offset) };
    D::map_mr_sg(mr, sg).map_or_else(Error::to_errno, count)
}

/// # Safety
///
/// As the parent module says.
pub(super) unsafe extern "C" fn dereg_mr<D: Driver>(mr: *mut ib_mr, _udata: *mut ib_udata) -> Int {
    // SAFETY: By the requirements of this function.
    let this = unsafe { Mr::<D>::from_raw(mr) };
    to_errno(D::dereg_mr(this).inspect(|()| {
        // SAFETY: The core does not use it any more if this succeeds.
        unsafe { Mr::<D>::destroy(mr) };
    }))
}

/// # Safety
///
/// As the parent module says. The core keeps the region during the call.
pub(super) unsafe extern "C" fn fill_res_mr_entry<D: Driver>(
    msg: *mut sk_buff,
    mr: *mut ib_mr,
) -> Int {
    // SAFETY: By the requirements of this function.
    let mr = unsafe { Mr::<D>::from_raw(mr) };
    // SAFETY: By *valid*: the core is filling `msg`, and waits for this call.
    to_errno(unsafe { Details::put(msg, |out| D::describe_mr(mr, out)) })
}
