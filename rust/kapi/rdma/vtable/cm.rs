// SPDX-License-Identifier: GPL-2.0

//! Callbacks of the iWARP connection manager.

use core::ptr::{
    null_mut,
    NonNull, //
};

use kernel::{
    ffi,
    sync::{
        aref::ARef,
        Arc, //
    },
};

use super::{
    to_errno,
    Int, //
};
use crate::kapi::{
    bindings::{
        ib_device,
        ib_qp,
        iw_cm_conn_param,
        iw_cm_id, //
    },
    rdma::{
        cm::{
            self,
            CmId,
            ConnParam,
            Established, //
        },
        device::Device,
        object::Qp,
        ops::Driver,
    },
};

/// # Safety
///
/// As the parent module says.
///
/// The reference passes to the core with the QP. The core calls `iw_add_ref` next, in both places
/// (`drivers/infiniband/core/iwcm.c`). If only that took a reference, the QP could be destroyed in
/// between.
pub(super) unsafe extern "C" fn iw_get_qp<D: Driver>(dev: *mut ib_device, qpn: Int) -> *mut ib_qp {
    // SAFETY: By the requirements of this function.
    let dev = unsafe { Device::<D>::from_raw(dev) };
    D::iw_get_qp(dev, qpn as u32).map_or(null_mut(), |qp| ARef::into_raw(qp).as_ptr().cast())
}

/// # Safety
///
/// As the parent module says. `iw_get_qp` has just returned the QP, with a reference.
pub(super) unsafe extern "C" fn iw_add_ref<D: Driver>(_qp: *mut ib_qp) {}

/// # Safety
///
/// As the parent module says.
pub(super) unsafe extern "C" fn iw_rem_ref<D: Driver>(qp: *mut ib_qp) {
    // SAFETY: Not null by the requirements of this function; the object begins with it.
    let qp = unsafe { NonNull::new_unchecked(qp.cast::<Qp<D>>()) };
    // SAFETY: The core gives up the reference it got from `iw_get_qp`.
    drop(unsafe { ARef::from_raw(qp) });
}

/// The device of an identifier. Our reference to an identifier does not keep it, the core's use of
/// the identifier does.
///
/// # Safety
///
/// The core calls for `id`, which is on a device of `D`; `'a` is the time of the call.
unsafe fn device<'a, D: Driver>(id: *mut iw_cm_id) -> &'a Device<D> {
    // SAFETY: By the requirements of this function.
    let dev = unsafe { (*id).device };
    // SAFETY: The device exists during `'a` by the requirements of this function.
    unsafe { Device::from_raw(dev) }
}

/// # Safety
///
/// As the parent module says.
pub(super) unsafe extern "C" fn iw_connect<D: Driver>(
    id: *mut iw_cm_id,
    param: *mut iw_cm_conn_param,
) -> Int {
    // SAFETY: By the requirements of this function.
    let dev = unsafe { device::<D>(id) };
    // SAFETY: By *live*: an identifier is not freed while the core calls for it.
    let id = unsafe { CmId::from_raw(id) };
    // SAFETY: By *valid*: the parameters and their private data are the consumer's, who waits.
    let param = unsafe { ConnParam::from_raw(param) };
    to_errno(D::iw_connect(dev, id, &param))
}

/// # Safety
///
/// As the parent module says.
pub(super) unsafe extern "C" fn iw_accept<D: Driver>(
    raw: *mut iw_cm_id,
    param: *mut iw_cm_conn_param,
) -> Int {
    // SAFETY: By the requirements of this function. The core sets it from our connect request.
    let number = unsafe { (*raw).provider_data }.addr();
    // SAFETY: By *live*: the identifier is on a device of `D`.
    let dev = unsafe { device::<D>(raw) };
    // SAFETY: By *live*: an identifier is not freed while the core calls for it.
    let id = unsafe { CmId::from_raw(raw) };
    // SAFETY: By *valid*: the parameters and their private data are the consumer's, who waits.
    let param = unsafe { ConnParam::from_raw(param) };
    // SAFETY: As above; called off or waited for right below.
    let established = match unsafe { Established::expect(raw) } {
        Ok(established) => established,
        Err(e) => {
            // The core no longer has a request that could not be accepted.
            let _ = D::iw_reject(dev, number, &[]);
            return e.to_errno();
        }
    };
    let result = D::iw_accept(dev, id, number, &param);
    match (&result, &established) {
        (Ok(()), Some(established)) => established.wait(),
        // SAFETY: No event of an identifier whose accept failed, says `iw_accept`.
        (Err(_), Some(established)) => unsafe { established.cancel(raw) },
        (_, None) => {}
    }
    to_errno(result)
}

/// # Safety
///
/// As the parent module says.
pub(super) unsafe extern "C" fn iw_reject<D: Driver>(
    id: *mut iw_cm_id,
    pdata: *const ffi::c_void,
    len: u8,
) -> Int {
    // SAFETY: By the requirements of this function. The core sets it from our connect request.
    let number = unsafe { (*id).provider_data }.addr();
    // SAFETY: By *live*: the identifier is on a device of `D`.
    let dev = unsafe { device::<D>(id) };
    // SAFETY: By *valid*: `pdata` is null, or has `len` bytes of the consumer, who waits.
    let pdata = unsafe { cm::bytes(pdata, len.into()) };
    to_errno(D::iw_reject(dev, number, pdata))
}

/// # Safety
///
/// As the parent module says.
pub(super) unsafe extern "C" fn iw_create_listen<D: Driver>(
    raw: *mut iw_cm_id,
    backlog: Int,
) -> Int {
    // SAFETY: By the requirements of this function.
    let dev = unsafe { device::<D>(raw) };
    // SAFETY: By *live*: an identifier is not freed while the core calls for it.
    let id = unsafe { CmId::from_raw(raw) };
    let backlog = u32::try_from(backlog).unwrap_or(0);
    to_errno(D::iw_create_listen(dev, id, backlog).map(|listener| {
        let listener = Arc::into_raw(listener).cast_mut().cast();
        // SAFETY: As above; the field is ours.
        unsafe { (*raw).provider_data = listener };
    }))
}

/// # Safety
///
/// As the parent module says.
pub(super) unsafe extern "C" fn iw_destroy_listen<D: Driver>(id: *mut iw_cm_id) -> Int {
    // SAFETY: By the requirements of this function; `iw_create_listen` set it.
    let listener = unsafe { cm::take_provider_data::<D::Listener>(id) };
    to_errno(listener.and_then(D::iw_destroy_listen))
}
