// SPDX-License-Identifier: GPL-2.0

//! The callbacks of `struct ib_device_ops`: conversion only.
//!
//! All of them have the same contract: the RDMA core calls them as `include/rdma/ib_verbs.h`
//! says, for a device that [`Device::new`] made, and for objects of that device which the
//! callbacks here have created and not destroyed yet. What follows from it:
//!
//! - The device is initialised, and objects are live.
//! - Pointers to attributes and lists are valid for the call.
//! - `udata` is null for a kernel consumer, or else of a verb that is being executed.

use core::{
    fmt::{
        self,
        Write, //
    },
    marker::PhantomData,
    ptr::{
        null_mut,
        NonNull, //
    },
};

use kernel::{
    error::from_result,
    ffi,
    prelude::*,
    sync::{
        aref::ARef,
        Arc, //
    },
};

use super::{
    attr::{
        CqAttr,
        MrType,
        Notify,
        QpAttr,
        QpInitAttr,
        SrqAttr,
        SrqInitAttr,
        SrqMask,
        UserMrReq, //
    },
    cm::{
        self,
        CmId,
        ConnParam, //
    },
    device::Device,
    errno,
    mem::{
        DmaGrant,
        SgList, //
    },
    mmap,
    mr::Mr,
    object::{
        Cq,
        New,
        Object,
        Pd,
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
};
use crate::kapi::bindings::{
    self,
    ib_cq,
    ib_cq_init_attr,
    ib_device,
    ib_device_attr,
    ib_device_ops,
    ib_dmah,
    ib_gid,
    ib_mr,
    ib_pd,
    ib_port_attr,
    ib_port_immutable,
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
    iw_cm_conn_param,
    iw_cm_id,
    rdma_hw_stats,
    scatterlist,
    uverbs_attr_bundle, //
};

pub(super) struct Vtable<D: Driver>(PhantomData<D>);

impl<D: Driver> Vtable<D> {
    /// `owner` is set by [`Device::new`].
    pub(super) const OPS: ib_device_ops = ib_device_ops {
        driver_id: D::DRIVER_ID,
        uverbs_abi_ver: D::ABI_VERSION,

        alloc_hw_port_stats: Some(alloc_hw_port_stats::<D>),
        alloc_mr: Some(alloc_mr::<D>),
        alloc_pd: Some(alloc_pd::<D>),
        alloc_ucontext: Some(alloc_ucontext::<D>),
        create_cq: Some(create_cq::<D>),
        create_qp: Some(create_qp::<D>),
        create_srq: Some(create_srq::<D>),
        dealloc_driver: Some(dealloc_driver::<D>),
        dealloc_pd: Some(dealloc_pd::<D>),
        dealloc_ucontext: Some(dealloc_ucontext::<D>),
        dereg_mr: Some(dereg_mr::<D>),
        destroy_cq: Some(destroy_cq::<D>),
        destroy_qp: Some(destroy_qp::<D>),
        destroy_srq: Some(destroy_srq::<D>),
        disassociate_ucontext: Some(disassociate_ucontext::<D>),
        get_dev_fw_str: Some(get_dev_fw_str::<D>),
        get_dma_mr: Some(get_dma_mr::<D>),
        get_hw_stats: Some(get_hw_stats::<D>),
        get_port_immutable: Some(get_port_immutable::<D>),
        iw_accept: Some(iw_accept::<D>),
        iw_add_ref: Some(iw_add_ref::<D>),
        iw_connect: Some(iw_connect::<D>),
        iw_create_listen: Some(iw_create_listen::<D>),
        iw_destroy_listen: Some(iw_destroy_listen::<D>),
        iw_get_qp: Some(iw_get_qp::<D>),
        iw_reject: Some(iw_reject::<D>),
        iw_rem_ref: Some(iw_rem_ref::<D>),
        map_mr_sg: Some(map_mr_sg::<D>),
        mmap: Some(mmap::mmap_callback),
        mmap_free: Some(mmap::mmap_free_callback),
        modify_qp: Some(modify_qp::<D>),
        modify_srq: Some(modify_srq::<D>),
        poll_cq: Some(poll_cq::<D>),
        post_recv: Some(post_recv::<D>),
        post_send: Some(post_send::<D>),
        post_srq_recv: Some(post_srq_recv::<D>),
        query_device: Some(query_device::<D>),
        query_gid: Some(query_gid::<D>),
        query_port: Some(query_port::<D>),
        query_qp: Some(query_qp::<D>),
        query_srq: Some(query_srq::<D>),
        reg_user_mr: Some(reg_user_mr::<D>),
        req_notify_cq: Some(req_notify_cq::<D>),

        size_ib_cq: Cq::<D>::SIZE,
        size_ib_pd: Pd::<D>::SIZE,
        size_ib_qp: Qp::<D>::SIZE,
        size_ib_srq: Srq::<D>::SIZE,
        size_ib_ucontext: Ucontext::<D>::SIZE,
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
    unsafe { bindings::siw_helper_udata_ucontext(udata) }
}

// Device.

/// # Safety
///
/// As the module says.
unsafe extern "C" fn query_device<D: Driver>(
    dev: *mut ib_device,
    attr: *mut ib_device_attr,
    udata: *mut ib_udata,
) -> Int {
    // SAFETY: By the requirements of this function.
    let dev = unsafe { Device::<D>::from_raw(dev) };
    // SAFETY: As above.
    let attr = unsafe { &mut *attr };
    // SAFETY: As above.
    let mut udata = unsafe { Udata::from_raw(udata) };
    from_result(|| {
        if let Some(udata) = &mut udata {
            udata.expect_no_request()?;
        }
        D::query_device(dev).fill(attr);
        if let Some(udata) = &mut udata {
            udata.respond_nothing()?;
        }
        Ok(0)
    })
}

/// # Safety
///
/// As the module says.
unsafe extern "C" fn query_port<D: Driver>(
    dev: *mut ib_device,
    _port: u32,
    attr: *mut ib_port_attr,
) -> Int {
    // SAFETY: By the requirements of this function.
    let dev = unsafe { Device::<D>::from_raw(dev) };
    // SAFETY: As above.
    let out = unsafe { &mut *attr };
    to_errno(D::query_port(dev).map(|attr| attr.fill(out)))
}

/// # Safety
///
/// As the module says.
unsafe extern "C" fn get_port_immutable<D: Driver>(
    dev: *mut ib_device,
    _port: u32,
    immutable: *mut ib_port_immutable,
) -> Int {
    // SAFETY: By the requirements of this function.
    let dev = unsafe { Device::<D>::from_raw(dev) };
    // SAFETY: As above.
    let out = unsafe { &mut *immutable };
    to_errno(D::query_port(dev).map(|attr| {
        out.gid_tbl_len = count(attr.gid_tbl_len as usize);
        out.core_cap_flags = bindings::RDMA_CORE_PORT_IWARP;
    }))
}

/// # Safety
///
/// As the module says.
unsafe extern "C" fn query_gid<D: Driver>(
    dev: *mut ib_device,
    _port: u32,
    index: Int,
    gid: *mut ib_gid,
) -> Int {
    // SAFETY: By the requirements of this function.
    let dev = unsafe { Device::<D>::from_raw(dev) };
    from_result(|| {
        let index = usize::try_from(index).map_err(|_| EINVAL)?;
        let raw = D::query_gid(dev, index)?;
        // SAFETY: By the requirements of this function.
        unsafe { *gid = ib_gid { raw } };
        Ok(0)
    })
}

/// Writes into an array, cut off at its end.
struct Clipped<'a>(core::slice::IterMut<'a, u8>);

impl Write for Clipped<'_> {
    fn write_str(&mut self, s: &str) -> fmt::Result {
        for byte in s.bytes() {
            *self.0.next().ok_or(fmt::Error)? = byte;
        }
        Ok(())
    }
}

/// # Safety
///
/// As the module says.
unsafe extern "C" fn get_dev_fw_str<D: Driver>(dev: *mut ib_device, out: *mut ffi::c_char) {
    let mut text = [0u8; bindings::IB_FW_VERSION_NAME_MAX as usize];
    // SAFETY: By the requirements of this function.
    let dev = unsafe { Device::<D>::from_raw(dev) };
    let room = text.len() - 1;
    // An error means that it is cut off.
    let _ = D::fw_version(dev, &mut Clipped(text[..room].iter_mut()));
    // SAFETY: `out` has `IB_FW_VERSION_NAME_MAX` bytes.
    unsafe { core::ptr::copy_nonoverlapping(text.as_ptr(), out.cast(), text.len()) };
}

/// # Safety
///
/// As the module says.
unsafe extern "C" fn alloc_hw_port_stats<D: Driver>(
    dev: *mut ib_device,
    _port: u32,
) -> *mut rdma_hw_stats {
    // SAFETY: By the requirements of this function.
    let stats = unsafe { Device::<D>::from_raw(dev) }.stats();
    // SAFETY: The descriptions live as long as the device. 10 ms is the core's default.
    unsafe { bindings::rdma_alloc_hw_stats_struct(stats.as_ptr(), count(stats.len()), 10) }
}

/// # Safety
///
/// As the module says.
unsafe extern "C" fn get_hw_stats<D: Driver>(
    dev: *mut ib_device,
    stats: *mut rdma_hw_stats,
    _port: u32,
    _index: Int,
) -> Int {
    // SAFETY: By the requirements of this function.
    let dev = unsafe { Device::<D>::from_raw(dev) };
    let num = dev.stats().len();
    // SAFETY: `alloc_hw_port_stats` made it for as many values.
    let values = unsafe { (*stats).value.as_mut_slice(num) };
    for (index, value) in values.iter_mut().enumerate() {
        *value = D::port_counter(dev, index);
    }
    count(num)
}

/// # Safety
///
/// As the module says.
pub(super) unsafe extern "C" fn dealloc_driver<D: Driver>(dev: *mut ib_device) {
    // SAFETY: By the requirements of this function.
    D::dealloc_driver(unsafe { Device::<D>::from_raw(dev) });
    // SAFETY: This is the last callback.
    unsafe { Device::<D>::drop_payload(dev) };
}

// User contexts and protection domains.

/// # Safety
///
/// As the module says.
unsafe extern "C" fn alloc_ucontext<D: Driver>(ctx: *mut ib_ucontext, udata: *mut ib_udata) -> Int {
    // SAFETY: By the requirements of this function.
    let new = unsafe { New::<D, _>::from_raw(ctx, null_mut()) };
    // SAFETY: As above.
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
/// As the module says.
unsafe extern "C" fn dealloc_ucontext<D: Driver>(ctx: *mut ib_ucontext) {
    // SAFETY: By the requirements of this function.
    unsafe { Object::destroy(ctx, D::dealloc_ucontext) };
}

/// # Safety
///
/// As the module says.
unsafe extern "C" fn disassociate_ucontext<D: Driver>(ctx: *mut ib_ucontext) {
    // SAFETY: By the requirements of this function.
    D::disassociate_ucontext(unsafe { Ucontext::from_raw(ctx) });
}

/// # Safety
///
/// As the module says.
unsafe extern "C" fn alloc_pd<D: Driver>(pd: *mut ib_pd, udata: *mut ib_udata) -> Int {
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
/// As the module says.
unsafe extern "C" fn dealloc_pd<D: Driver>(pd: *mut ib_pd, _udata: *mut ib_udata) -> Int {
    // SAFETY: By the requirements of this function.
    unsafe { Object::destroy(pd, D::dealloc_pd) };
    0
}

// Completion queues.

/// # Safety
///
/// As the module says.
unsafe extern "C" fn create_cq<D: Driver>(
    cq: *mut ib_cq,
    attr: *const ib_cq_init_attr,
    attrs: *mut uverbs_attr_bundle,
) -> Int {
    let udata: *mut ib_udata = if attrs.is_null() {
        null_mut()
    } else {
        // SAFETY: By the requirements of this function.
        unsafe { bindings::siw_helper_bundle_udata(attrs) }
    };
    // SAFETY: By the requirements of this function.
    let new = unsafe { New::<D, _>::from_raw(cq, ucontext(udata)) };
    // SAFETY: As above.
    let attr = unsafe { &*attr };
    let attr = CqAttr {
        cqe: attr.cqe,
        comp_vector: attr.comp_vector,
        flags: attr.flags,
    };
    // SAFETY: As above.
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
/// As the module says.
unsafe extern "C" fn destroy_cq<D: Driver>(cq: *mut ib_cq, _udata: *mut ib_udata) -> Int {
    // SAFETY: By the requirements of this function.
    unsafe { Object::destroy(cq, D::destroy_cq) };
    0
}

/// # Safety
///
/// As the module says.
unsafe extern "C" fn poll_cq<D: Driver>(cq: *mut ib_cq, num: Int, wc: *mut ib_wc) -> Int {
    // SAFETY: By the requirements of this function.
    let cq = unsafe { Cq::<D>::from_raw(cq) };
    let num = usize::try_from(num).unwrap_or(0);
    // SAFETY: As above.
    let mut out = unsafe { WcOut::from_raw(wc, num) };
    match D::poll_cq(cq, &mut out) {
        Err(e) if out.count() == 0 => e.to_errno(),
        _ => count(out.count()),
    }
}

/// # Safety
///
/// As the module says.
unsafe extern "C" fn req_notify_cq<D: Driver>(
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

// Queue pairs.

/// # Safety
///
/// As the module says.
unsafe extern "C" fn create_qp<D: Driver>(
    qp: *mut ib_qp,
    attr: *mut ib_qp_init_attr,
    udata: *mut ib_udata,
) -> Int {
    // SAFETY: By the requirements of this function.
    let new = unsafe { New::<D, _>::from_raw(qp, ucontext(udata)) };
    // SAFETY: As above.
    let attr = unsafe { QpInitAttr::<D>::from_raw(attr) };
    // SAFETY: As above.
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
/// As the module says.
unsafe extern "C" fn modify_qp<D: Driver>(
    qp: *mut ib_qp,
    attr: *mut ib_qp_attr,
    mask: Int,
    _udata: *mut ib_udata,
) -> Int {
    // SAFETY: By the requirements of this function.
    let qp = unsafe { Qp::<D>::from_raw(qp) };
    // SAFETY: As above.
    let attr = unsafe { &*attr };
    to_errno(D::modify_qp(qp, &QpAttr::new(attr, mask as u32)))
}

/// # Safety
///
/// As the module says.
unsafe extern "C" fn query_qp<D: Driver>(
    qp: *mut ib_qp,
    attr: *mut ib_qp_attr,
    _mask: Int,
    init: *mut ib_qp_init_attr,
) -> Int {
    // SAFETY: By the requirements of this function.
    let this = unsafe { Qp::<D>::from_raw(qp) };
    // SAFETY: As above.
    let attr = unsafe { &mut *attr };
    // SAFETY: As above.
    let init = unsafe { &mut *init };
    from_result(|| {
        D::query_qp(this)?.fill(attr, init);
        // SAFETY: The structure is initialised; these do not change.
        unsafe { init.qp_type = (*qp).qp_type };
        // SAFETY: As above.
        unsafe { init.send_cq = (*qp).send_cq };
        // SAFETY: As above.
        unsafe { init.recv_cq = (*qp).recv_cq };
        // SAFETY: As above.
        unsafe { init.srq = (*qp).srq };
        Ok(0)
    })
}

/// # Safety
///
/// As the module says.
unsafe extern "C" fn destroy_qp<D: Driver>(qp: *mut ib_qp, _udata: *mut ib_udata) -> Int {
    // SAFETY: By the requirements of this function.
    unsafe { Object::destroy(qp, D::destroy_qp) };
    0
}

/// # Safety
///
/// As the module says.
unsafe extern "C" fn post_send<D: Driver>(
    qp: *mut ib_qp,
    wr: *const ib_send_wr,
    bad: *mut *const ib_send_wr,
) -> Int {
    // SAFETY: By the requirements of this function.
    let qp = unsafe { Qp::<D>::from_raw(qp) };
    // SAFETY: As above.
    let mut wrs = unsafe { SendWrs::from_raw(wr) };
    to_errno(D::post_send(qp, &mut wrs).inspect_err(|_| {
        // SAFETY: As above.
        unsafe { *bad = wrs.bad() };
    }))
}

/// # Safety
///
/// As the module says.
unsafe extern "C" fn post_recv<D: Driver>(
    qp: *mut ib_qp,
    wr: *const ib_recv_wr,
    bad: *mut *const ib_recv_wr,
) -> Int {
    // SAFETY: By the requirements of this function.
    let qp = unsafe { Qp::<D>::from_raw(qp) };
    // SAFETY: As above.
    let mut wrs = unsafe { RecvWrs::from_raw(wr) };
    to_errno(D::post_recv(qp, &mut wrs).inspect_err(|_| {
        // SAFETY: As above.
        unsafe { *bad = wrs.bad() };
    }))
}

// Shared receive queues.

/// # Safety
///
/// As the module says.
unsafe extern "C" fn create_srq<D: Driver>(
    srq: *mut ib_srq,
    attr: *mut ib_srq_init_attr,
    udata: *mut ib_udata,
) -> Int {
    // SAFETY: By the requirements of this function.
    let new = unsafe { New::<D, _>::from_raw(srq, ucontext(udata)) };
    // SAFETY: As above.
    let attr = unsafe { &*attr };
    let attr = SrqInitAttr {
        basic: attr.srq_type == bindings::ib_srq_type_IB_SRQT_BASIC,
        attr: SrqAttr::new(&attr.attr),
    };
    // SAFETY: As above.
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
/// As the module says.
unsafe extern "C" fn modify_srq<D: Driver>(
    srq: *mut ib_srq,
    attr: *mut ib_srq_attr,
    mask: bindings::ib_srq_attr_mask,
    _udata: *mut ib_udata,
) -> Int {
    // SAFETY: By the requirements of this function.
    let srq = unsafe { Srq::<D>::from_raw(srq) };
    // SAFETY: As above.
    let attr = SrqAttr::new(unsafe { &*attr });
    let mask = SrqMask {
        max_wr: mask & bindings::ib_srq_attr_mask_IB_SRQ_MAX_WR != 0,
        limit: mask & bindings::ib_srq_attr_mask_IB_SRQ_LIMIT != 0,
    };
    to_errno(D::modify_srq(srq, &attr, mask))
}

/// # Safety
///
/// As the module says.
unsafe extern "C" fn query_srq<D: Driver>(srq: *mut ib_srq, attr: *mut ib_srq_attr) -> Int {
    // SAFETY: By the requirements of this function.
    let srq = unsafe { Srq::<D>::from_raw(srq) };
    // SAFETY: As above.
    let out = unsafe { &mut *attr };
    to_errno(D::query_srq(srq).map(|attr| attr.fill(out)))
}

/// # Safety
///
/// As the module says.
unsafe extern "C" fn destroy_srq<D: Driver>(srq: *mut ib_srq, _udata: *mut ib_udata) -> Int {
    // SAFETY: By the requirements of this function.
    unsafe { Object::destroy(srq, D::destroy_srq) };
    0
}

/// # Safety
///
/// As the module says.
unsafe extern "C" fn post_srq_recv<D: Driver>(
    srq: *mut ib_srq,
    wr: *const ib_recv_wr,
    bad: *mut *const ib_recv_wr,
) -> Int {
    // SAFETY: By the requirements of this function.
    let srq = unsafe { Srq::<D>::from_raw(srq) };
    // SAFETY: As above.
    let mut wrs = unsafe { RecvWrs::from_raw(wr) };
    to_errno(D::post_srq_recv(srq, &mut wrs).inspect_err(|_| {
        // SAFETY: As above.
        unsafe { *bad = wrs.bad() };
    }))
}

// Memory regions.

fn mr_ptr(result: Result<*mut ib_mr>) -> *mut ib_mr {
    result.unwrap_or_else(Error::to_ptr)
}

/// # Safety
///
/// As the module says.
unsafe extern "C" fn reg_user_mr<D: Driver>(
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
    // SAFETY: As above.
    let mut udata = unsafe { Udata::from_raw(udata) };
    let req = UserMrReq {
        start,
        len,
        iova,
        access: access as u32,
    };
    mr_ptr(Mr::<D>::create(true, || {
        D::reg_user_mr(pd, &req, udata.as_mut())
    }))
}

/// # Safety
///
/// As the module says.
unsafe extern "C" fn alloc_mr<D: Driver>(
    pd: *mut ib_pd,
    kind: bindings::ib_mr_type,
    max_sg: u32,
) -> *mut ib_mr {
    // SAFETY: By the requirements of this function.
    let pd = unsafe { Pd::<D>::from_raw(pd) };
    mr_ptr(Mr::<D>::create(false, || {
        D::alloc_mr(pd, MrType::from_raw(kind), max_sg)
    }))
}

/// # Safety
///
/// As the module says.
unsafe extern "C" fn get_dma_mr<D: Driver>(pd: *mut ib_pd, access: Int) -> *mut ib_mr {
    // SAFETY: By the requirements of this function.
    let pd = unsafe { Pd::<D>::from_raw(pd) };
    mr_ptr(Mr::<D>::create(false, || {
        D::get_dma_mr(pd, access as u32, DmaGrant::new())
    }))
}

/// # Safety
///
/// As the module says.
unsafe extern "C" fn map_mr_sg<D: Driver>(
    mr: *mut ib_mr,
    sg: *mut scatterlist,
    nents: Int,
    offset: *mut ffi::c_uint,
) -> Int {
    // SAFETY: By the requirements of this function.
    let mr = unsafe { Mr::<D>::from_raw(mr) };
    // SAFETY: As above.
    let sg = unsafe { SgList::from_raw(mr.base(), sg, nents, offset) };
    D::map_mr_sg(mr, sg).map_or_else(Error::to_errno, count)
}

/// # Safety
///
/// As the module says.
unsafe extern "C" fn dereg_mr<D: Driver>(mr: *mut ib_mr, _udata: *mut ib_udata) -> Int {
    // SAFETY: By the requirements of this function.
    let this = unsafe { Mr::<D>::from_raw(mr) };
    to_errno(D::dereg_mr(this).inspect(|()| {
        // SAFETY: The core does not use it any more if this succeeds.
        unsafe { Mr::<D>::destroy(mr) };
    }))
}

// The iWARP connection manager.

/// # Safety
///
/// As the module says.
///
/// The reference goes to the core with the QP. The core calls `iw_add_ref` next, in both places
/// (`drivers/infiniband/core/iwcm.c`); if only that took one, the QP could go in between.
unsafe extern "C" fn iw_get_qp<D: Driver>(dev: *mut ib_device, qpn: Int) -> *mut ib_qp {
    // SAFETY: By the requirements of this function.
    let dev = unsafe { Device::<D>::from_raw(dev) };
    D::iw_get_qp(dev, qpn as u32).map_or(null_mut(), |qp| ARef::into_raw(qp).as_ptr().cast())
}

/// # Safety
///
/// As the module says. `iw_get_qp` has just returned the QP, with a reference.
unsafe extern "C" fn iw_add_ref<D: Driver>(_qp: *mut ib_qp) {}

/// # Safety
///
/// As the module says.
unsafe extern "C" fn iw_rem_ref<D: Driver>(qp: *mut ib_qp) {
    // SAFETY: Not null by the requirements of this function; the object begins with it.
    let qp = unsafe { NonNull::new_unchecked(qp.cast::<Qp<D>>()) };
    // SAFETY: The core gives up the reference it got from `iw_get_qp`.
    drop(unsafe { ARef::from_raw(qp) });
}

/// # Safety
///
/// As the module says.
unsafe extern "C" fn iw_connect<D: Driver>(id: *mut iw_cm_id, param: *mut iw_cm_conn_param) -> Int {
    // SAFETY: By the requirements of this function.
    let id = unsafe { CmId::<D>::from_raw(id) };
    // SAFETY: As above.
    let param = unsafe { ConnParam::from_raw(param) };
    to_errno(D::iw_connect(id, &param))
}

/// # Safety
///
/// As the module says.
unsafe extern "C" fn iw_accept<D: Driver>(id: *mut iw_cm_id, param: *mut iw_cm_conn_param) -> Int {
    // SAFETY: By the requirements of this function; the core sets it from our connect request.
    let ep = unsafe { cm::take_provider_data::<D::Endpoint>(id) };
    // SAFETY: As above.
    let id = unsafe { CmId::<D>::from_raw(id) };
    // SAFETY: As above.
    let param = unsafe { ConnParam::from_raw(param) };
    to_errno(ep.and_then(|ep| D::iw_accept(id, ep, &param)))
}

/// # Safety
///
/// As the module says.
unsafe extern "C" fn iw_reject<D: Driver>(
    id: *mut iw_cm_id,
    pdata: *const ffi::c_void,
    len: u8,
) -> Int {
    // SAFETY: By the requirements of this function; the core sets it from our connect request.
    let ep = unsafe { cm::take_provider_data::<D::Endpoint>(id) };
    // SAFETY: As above.
    let id = unsafe { CmId::<D>::from_raw(id) };
    // SAFETY: As above.
    let pdata = unsafe { cm::bytes(pdata, len.into()) };
    to_errno(ep.and_then(|ep| D::iw_reject(id, ep, pdata)))
}

/// # Safety
///
/// As the module says.
unsafe extern "C" fn iw_create_listen<D: Driver>(raw: *mut iw_cm_id, backlog: Int) -> Int {
    // SAFETY: By the requirements of this function.
    let id = unsafe { CmId::<D>::from_raw(raw) };
    let backlog = u32::try_from(backlog).unwrap_or(0);
    to_errno(D::iw_create_listen(id, backlog).map(|listener| {
        let listener = Arc::into_raw(listener).cast_mut().cast();
        // SAFETY: As above; the field is ours.
        unsafe { (*raw).provider_data = listener };
    }))
}

/// # Safety
///
/// As the module says.
unsafe extern "C" fn iw_destroy_listen<D: Driver>(id: *mut iw_cm_id) -> Int {
    // SAFETY: By the requirements of this function; `iw_create_listen` set it.
    let listener = unsafe { cm::take_provider_data::<D::Listener>(id) };
    to_errno(listener.and_then(D::iw_destroy_listen))
}
