// SPDX-License-Identifier: GPL-2.0

//! Callbacks for objects that the core allocates.

use core::ptr::null_mut;

use kernel::{
    error::from_result,
    prelude::*, //
};

use super::{
    count,
    to_errno,
    ucontext,
    Int, //
};
use crate::kapi::{
    bindings::{
        self,
        ib_cq,
        ib_cq_init_attr,
        ib_pd,
        ib_qp,
        ib_qp_attr,
        ib_qp_init_attr,
        ib_recv_wr,
        ib_send_wr,
        ib_srq,
        ib_srq_attr,
        ib_srq_init_attr,
        ib_ucontext,
        ib_udata,
        ib_wc,
        sk_buff,
        uverbs_attr_bundle, //
    },
    rdma::{
        attr::{
            CqAttr,
            Notify,
            QpAttr,
            QpInitAttr,
            SrqAttr,
            SrqInitAttr,
            SrqMask, //
        },
        details::Details,
        object::{
            Cq,
            New,
            Object,
            Qp,
            Srq,
            Ucontext, //
        },
        ops::Driver,
        udata::Udata,
        wc::WcOut,
        wr::{
            RecvWrs,
            SendWrs, //
        },
    },
};

/// # Safety
///
/// As the parent module says.
pub(super) unsafe extern "C" fn alloc_ucontext<D: Driver>(
    ctx: *mut ib_ucontext,
    udata: *mut ib_udata,
) -> Int {
    // SAFETY: By the requirements of this function.
    let new = unsafe { New::<D, _>::from_raw(ctx, null_mut()) };
    // SAFETY: By *verb*: null, or of the verb that this call executes.
    let udata = unsafe { Udata::from_raw(udata) };
    from_result(|| {
        let mut udata = udata.ok_or(EINVAL)?;
        let init = D::alloc_ucontext(&new)?;
        // SAFETY: The core allocated the object.
        unsafe { Object::create(ctx, true, init, |ctx| D::ucontext_created(ctx, &mut udata)) }?;
        Ok(0)
    })
}

/// # Safety
///
/// As the parent module says.
pub(super) unsafe extern "C" fn dealloc_ucontext<D: Driver>(ctx: *mut ib_ucontext) {
    // SAFETY: By the requirements of this function.
    unsafe { Object::destroy(ctx, D::dealloc_ucontext) };
}

/// # Safety
///
/// As the parent module says.
pub(super) unsafe extern "C" fn disassociate_ucontext<D: Driver>(ctx: *mut ib_ucontext) {
    // SAFETY: By the requirements of this function.
    D::disassociate_ucontext(unsafe { Ucontext::from_raw(ctx) });
}

/// # Safety
///
/// As the parent module says.
pub(super) unsafe extern "C" fn alloc_pd<D: Driver>(pd: *mut ib_pd, udata: *mut ib_udata) -> Int {
    // SAFETY: By the requirements of this function.
    let new = unsafe { New::<D, _>::from_raw(pd, ucontext(udata)) };
    from_result(|| {
        let init = D::alloc_pd(&new)?;
        // SAFETY: The core allocated the object.
        unsafe { Object::<D, _>::create(pd, !udata.is_null(), init, |_| Ok(())) }?;
        Ok(0)
    })
}

/// # Safety
///
/// As the parent module says.
pub(super) unsafe extern "C" fn dealloc_pd<D: Driver>(
    pd: *mut ib_pd,
    _udata: *mut ib_udata,
) -> Int {
    // SAFETY: By the requirements of this function.
    unsafe { Object::destroy(pd, D::dealloc_pd) };
    0
}

/// # Safety
///
/// As the parent module says.
pub(super) unsafe extern "C" fn create_cq<D: Driver>(
    cq: *mut ib_cq,
    attr: *const ib_cq_init_attr,
    attrs: *mut uverbs_attr_bundle,
) -> Int {
    let udata: *mut ib_udata = if attrs.is_null() {
        null_mut()
    } else {
        // SAFETY: By the requirements of this function.
        unsafe { bindings::kapi_bundle_udata(attrs) }
    };
    // SAFETY: By the requirements of this function.
    let new = unsafe { New::<D, _>::from_raw(cq, ucontext(udata)) };
    // SAFETY: By *valid*: the core does not change the attributes during the call.
    let attr = unsafe { &*attr };
    let attr = CqAttr {
        cqe: attr.cqe,
        flags: attr.flags,
    };
    // SAFETY: By *verb*: null, or of the verb that this call executes.
    let mut ud = unsafe { Udata::from_raw(udata) };
    from_result(|| {
        let init = D::create_cq(&new, &attr)?;
        // SAFETY: The core allocated the object.
        unsafe {
            Object::create(cq, !udata.is_null(), init, |cq| {
                D::cq_created(cq, ud.as_mut())
            })
        }?;
        Ok(0)
    })
}

/// # Safety
///
/// As the parent module says.
pub(super) unsafe extern "C" fn destroy_cq<D: Driver>(
    cq: *mut ib_cq,
    _udata: *mut ib_udata,
) -> Int {
    // SAFETY: By the requirements of this function.
    unsafe { Object::destroy(cq, D::destroy_cq) };
    0
}

/// # Safety
///
/// As the parent module says.
pub(super) unsafe extern "C" fn poll_cq<D: Driver>(
    cq: *mut ib_cq,
    num: Int,
    wc: *mut ib_wc,
) -> Int {
    // SAFETY: By the requirements of this function.
    let cq = unsafe { Cq::<D>::from_raw(cq) };
    let num = usize::try_from(num).unwrap_or(0);
    // SAFETY: By *valid*: the consumer has room for `num` completions there.
    let mut out = unsafe { WcOut::from_raw(wc, num) };
    match D::poll_cq(cq, &mut out) {
        Err(e) if out.count() == 0 => e.to_errno(),
        _ => count(out.count()),
    }
}

/// # Safety
///
/// As the parent module says.
pub(super) unsafe extern "C" fn req_notify_cq<D: Driver>(
    cq: *mut ib_cq,
    flags: bindings::ib_cq_notify_flags,
) -> Int {
    // SAFETY: By the requirements of this function.
    let cq = unsafe { Cq::<D>::from_raw(cq) };
    let kind = flags & bindings::ib_cq_notify_flags_IB_CQ_SOLICITED_MASK;
    let notify = Notify {
        solicited_only: kind == bindings::ib_cq_notify_flags_IB_CQ_SOLICITED,
        report_missed: flags & bindings::ib_cq_notify_flags_IB_CQ_REPORT_MISSED_EVENTS != 0,
    };
    match D::req_notify_cq(cq, notify) {
        Ok(missed) if notify.report_missed => count(missed as usize),
        other => to_errno(other.map(|_| ())),
    }
}

/// # Safety
///
/// As the parent module says.
pub(super) unsafe extern "C" fn create_qp<D: Driver>(
    qp: *mut ib_qp,
    attr: *mut ib_qp_init_attr,
    udata: *mut ib_udata,
) -> Int {
    // SAFETY: By the requirements of this function.
    let new = unsafe { New::<D, _>::from_raw(qp, ucontext(udata)) };
    // SAFETY: By *valid* for the attributes, and by *live* for the queues they name.
    let attr = unsafe { QpInitAttr::<D>::from_raw(attr) };
    // SAFETY: By *verb*: null, or of the verb that this call executes.
    let mut ud = unsafe { Udata::from_raw(udata) };
    from_result(|| {
        let init = D::create_qp(&new, &attr)?;
        // SAFETY: The core allocated the object.
        unsafe {
            Object::create(qp, !udata.is_null(), init, |qp| {
                D::qp_created(qp, &attr, ud.as_mut())
            })
        }?;
        Ok(0)
    })
}

/// # Safety
///
/// As the parent module says.
pub(super) unsafe extern "C" fn modify_qp<D: Driver>(
    qp: *mut ib_qp,
    attr: *mut ib_qp_attr,
    mask: Int,
    _udata: *mut ib_udata,
) -> Int {
    // SAFETY: By the requirements of this function.
    let qp = unsafe { Qp::<D>::from_raw(qp) };
    // SAFETY: By *valid*: the core does not change the attributes during the call.
    let attr = unsafe { &*attr };
    // SAFETY: The core has looked the GID up, and holds its entry for the call (`_ib_modify_qp`).
    let attr = unsafe { QpAttr::new(attr, mask as u32) };
    to_errno(D::modify_qp(qp, &attr))
}

/// # Safety
///
/// As the parent module says.
pub(super) unsafe extern "C" fn query_qp<D: Driver>(
    qp: *mut ib_qp,
    attr: *mut ib_qp_attr,
    _mask: Int,
    init: *mut ib_qp_init_attr,
) -> Int {
    // SAFETY: By the requirements of this function.
    let this = unsafe { Qp::<D>::from_raw(qp) };
    // SAFETY: By *valid*: `attr` is for this call to fill.
    let attr = unsafe { &mut *attr };
    // SAFETY: By *valid*: `init` is for this call to fill, and is not `attr`.
    let init = unsafe { &mut *init };
    from_result(|| {
        D::query_qp(this)?.fill(attr, init);
        // SAFETY: The structure is initialised; these do not change.
        unsafe { init.qp_type = (*qp).qp_type };
        // SAFETY: By *live*: the queue was set at creation, and stays.
        unsafe { init.send_cq = (*qp).send_cq };
        // SAFETY: By *live*: the queue was set at creation, and stays.
        unsafe { init.recv_cq = (*qp).recv_cq };
        // SAFETY: By *live*: the queue was set at creation, and stays.
        unsafe { init.srq = (*qp).srq };
        Ok(0)
    })
}

/// # Safety
///
/// As the parent module says.
pub(super) unsafe extern "C" fn destroy_qp<D: Driver>(
    qp: *mut ib_qp,
    _udata: *mut ib_udata,
) -> Int {
    // SAFETY: By the requirements of this function.
    unsafe { Object::destroy(qp, D::destroy_qp) };
    0
}

/// # Safety
///
/// As the parent module says.
pub(super) unsafe extern "C" fn post_send<D: Driver>(
    qp: *mut ib_qp,
    wr: *const ib_send_wr,
    bad: *mut *const ib_send_wr,
) -> Int {
    // SAFETY: By the requirements of this function.
    let qp = unsafe { Qp::<D>::from_raw(qp) };
    // Requests that uverbs copies from a user have user addresses. For inline data they would be
    // taken for kernel addresses. The user posts in its own ring, and rings the doorbell without a
    // request.
    if qp.is_user() && !wr.is_null() {
        // SAFETY: By *valid*: the core gives each post a place for the request that failed.
        unsafe { *bad = wr };
        return EINVAL.to_errno();
    }
    // SAFETY: By *valid*: the list ends in null, and stays until the call returns. By *live*: it is
    // for a QP of `D`.
    let mut wrs = unsafe { SendWrs::from_raw(wr) };
    to_errno(D::post_send(qp, &mut wrs).inspect_err(|_| {
        // SAFETY: By *valid*: the core gives each post a place for the request that failed.
        unsafe { *bad = wrs.bad() };
    }))
}

/// # Safety
///
/// As the parent module says.
pub(super) unsafe extern "C" fn post_recv<D: Driver>(
    qp: *mut ib_qp,
    wr: *const ib_recv_wr,
    bad: *mut *const ib_recv_wr,
) -> Int {
    // SAFETY: By the requirements of this function.
    let qp = unsafe { Qp::<D>::from_raw(qp) };
    // SAFETY: By *valid*: the list ends in null, and stays until the call returns.
    let mut wrs = unsafe { RecvWrs::from_raw(wr) };
    to_errno(D::post_recv(qp, &mut wrs).inspect_err(|_| {
        // SAFETY: By *valid*: the core gives each post a place for the request that failed.
        unsafe { *bad = wrs.bad() };
    }))
}

/// # Safety
///
/// As the parent module says.
pub(super) unsafe extern "C" fn create_srq<D: Driver>(
    srq: *mut ib_srq,
    attr: *mut ib_srq_init_attr,
    udata: *mut ib_udata,
) -> Int {
    // SAFETY: By the requirements of this function.
    let new = unsafe { New::<D, _>::from_raw(srq, ucontext(udata)) };
    // SAFETY: By *valid*: the core does not change the attributes during the call.
    let attr = unsafe { &*attr };
    let attr = SrqInitAttr {
        basic: attr.srq_type == bindings::ib_srq_type_IB_SRQT_BASIC,
        attr: SrqAttr::new(&attr.attr),
    };
    // SAFETY: By *verb*: null, or of the verb that this call executes.
    let mut ud = unsafe { Udata::from_raw(udata) };
    from_result(|| {
        let init = D::create_srq(&new, &attr)?;
        // SAFETY: The core allocated the object.
        unsafe {
            Object::create(srq, !udata.is_null(), init, |srq| {
                D::srq_created(srq, ud.as_mut())
            })
        }?;
        Ok(0)
    })
}

/// # Safety
///
/// As the parent module says.
pub(super) unsafe extern "C" fn modify_srq<D: Driver>(
    srq: *mut ib_srq,
    attr: *mut ib_srq_attr,
    mask: bindings::ib_srq_attr_mask,
    _udata: *mut ib_udata,
) -> Int {
    // SAFETY: By the requirements of this function.
    let srq = unsafe { Srq::<D>::from_raw(srq) };
    // SAFETY: By *valid*: the core does not change the attributes during the call.
    let attr = SrqAttr::new(unsafe { &*attr });
    let mask = SrqMask {
        max_wr: mask & bindings::ib_srq_attr_mask_IB_SRQ_MAX_WR != 0,
        limit: mask & bindings::ib_srq_attr_mask_IB_SRQ_LIMIT != 0,
    };
    to_errno(D::modify_srq(srq, &attr, mask))
}

/// # Safety
///
/// As the parent module says.
pub(super) unsafe extern "C" fn query_srq<D: Driver>(
    srq: *mut ib_srq,
    attr: *mut ib_srq_attr,
) -> Int {
    // SAFETY: By the requirements of this function.
    let srq = unsafe { Srq::<D>::from_raw(srq) };
    // SAFETY: By *valid*: only this call writes to `attr`.
    let out = unsafe { &mut *attr };
    to_errno(D::query_srq(srq).map(|attr| attr.fill(out)))
}

/// # Safety
///
/// As the parent module says.
pub(super) unsafe extern "C" fn destroy_srq<D: Driver>(
    srq: *mut ib_srq,
    _udata: *mut ib_udata,
) -> Int {
    // SAFETY: By the requirements of this function.
    unsafe { Object::destroy(srq, D::destroy_srq) };
    0
}

/// # Safety
///
/// As the parent module says.
pub(super) unsafe extern "C" fn post_srq_recv<D: Driver>(
    srq: *mut ib_srq,
    wr: *const ib_recv_wr,
    bad: *mut *const ib_recv_wr,
) -> Int {
    // SAFETY: By the requirements of this function.
    let srq = unsafe { Srq::<D>::from_raw(srq) };
    // SAFETY: By *valid*: the list ends in null, and stays until the call returns.
    let mut wrs = unsafe { RecvWrs::from_raw(wr) };
    to_errno(D::post_srq_recv(srq, &mut wrs).inspect_err(|_| {
        // SAFETY: By *valid*: the core gives each post a place for the request that failed.
        unsafe { *bad = wrs.bad() };
    }))
}

/// # Safety
///
/// As the parent module says. The core keeps the QP during the call.
pub(super) unsafe extern "C" fn fill_res_qp_entry<D: Driver>(
    msg: *mut sk_buff,
    qp: *mut ib_qp,
) -> Int {
    // SAFETY: By the requirements of this function.
    let qp = unsafe { Qp::<D>::from_raw(qp) };
    // SAFETY: By *valid*: the core is filling `msg`, and waits for this call.
    to_errno(unsafe { Details::put(msg, |out| D::describe_qp(qp, out)) })
}

/// # Safety
///
/// As the parent module says. The core keeps the CQ during the call.
pub(super) unsafe extern "C" fn fill_res_cq_entry<D: Driver>(
    msg: *mut sk_buff,
    cq: *mut ib_cq,
) -> Int {
    // SAFETY: By the requirements of this function.
    let cq = unsafe { Cq::<D>::from_raw(cq) };
    // SAFETY: By *valid*: the core is filling `msg`, and waits for this call.
    to_errno(unsafe { Details::put(msg, |out| D::describe_cq(cq, out)) })
}
