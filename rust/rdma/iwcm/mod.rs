// SPDX-License-Identifier: GPL-2.0

//! The iWARP connection manager.
//!
//! C header: [`include/rdma/iw_cm.h`](srctree/include/rdma/iw_cm.h)

mod established;
mod id;

use core::ptr::{
    null_mut,
    NonNull, //
};

use kernel::{
    ffi,
    prelude::*,
    sync::{
        aref::ARef,
        Arc, //
    }, //
};

use crate::{
    callback::{
        missing,
        to_errno,
        Int, //
    },
    device::{
        Device,
        Driver, //
    },
    iwcm::established::Established,
    qp::Qp, //
};
use base::bindings::{
    ib_device,
    ib_qp,
    iw_cm_conn_param,
    iw_cm_id, //
};

pub use self::id::{
    CmEvent,
    CmId, //
};

/// The operations of connections (`iw_*` of `struct ib_device_ops`).
///
/// They come all or none: a provider of [`Protocol::Iwarp`](super::Protocol::Iwarp) has all of
/// them, and no other has any. The compiler sees to that. `()` has none of them.
///
/// An operation may sleep unless its description says that any context calls it. The core calls one
/// at a time for an identifier.
///
/// # Examples
///
/// ```ignore
/// #[vtable]
/// impl iwcm::Provider<MyDriver> for MyDriver {
///     type Listener = Listener;
///
///     fn connect(dev: &Device<Self>, id: CmId<Self>, param: &ConnParam<'_>) -> Result {
///         let qp = dev.qps.get(param.qpn).ok_or(EINVAL)?;
///         // A work item reports `CmEvent::ConnectReply` later.
///         Connection::start(qp, id, param.pdata)
///     }
///
///     // ...
/// }
/// ```
#[vtable]
#[allow(unused_variables, reason = "what is missing uses nothing")]
pub trait Provider<D: Driver> {
    /// A socket that listens for connections.
    type Listener: Send + Sync + 'static;

    /// The queue pair with that number. Any context.
    fn get_qp(dev: &Device<D>, qpn: u32) -> Option<ARef<Qp<D>>> {
        missing()
    }

    /// Connects a queue pair. Success means that [`CmEvent::ConnectReply`] will tell how it went.
    fn connect(dev: &Device<D>, id: CmId<D>, param: &ConnParam<'_>) -> Result {
        missing()
    }

    /// Accepts a connect request; `number` is the one of the request. When it returns it has raised
    /// [`CmEvent::Established`], or failed and raised nothing.
    fn accept(dev: &Device<D>, id: CmId<D>, number: usize, param: &ConnParam<'_>) -> Result {
        missing()
    }

    /// Rejects a connect request, with private data for the peer.
    fn reject(dev: &Device<D>, number: usize, pdata: &[u8]) -> Result {
        missing()
    }

    /// Listens for connections, which [`CmEvent::ConnectRequest`] reports. `backlog` is the number
    /// of those that may wait for an answer.
    fn create_listen(dev: &Device<D>, id: CmId<D>, backlog: u32) -> Result<Arc<Self::Listener>> {
        missing()
    }

    /// Stops listening.
    fn destroy_listen(listener: Arc<Self::Listener>) -> Result {
        missing()
    }
}

#[vtable]
impl<D: Driver> Provider<D> for () {
    type Listener = ();
}

/// The parameters of a connection to be made (`struct iw_cm_conn_param`).
pub struct ConnParam<'a> {
    /// The number of Reads that this side may have outstanding.
    pub ord: u32,
    /// The number of Reads that the peer may have outstanding.
    pub ird: u32,
    /// The number of the queue pair.
    pub qpn: u32,
    /// The private data for the peer.
    pub pdata: &'a [u8],
}

impl<'a> ConnParam<'a> {
    /// # Safety
    ///
    /// `raw` and its private data are valid during `'a`.
    unsafe fn from_raw(raw: *const iw_cm_conn_param) -> Self {
        // SAFETY: By the requirements of this function.
        let raw = unsafe { &*raw };
        Self {
            ord: raw.ord,
            ird: raw.ird,
            qpn: raw.qpn,
            // SAFETY: The private data is valid during `'a` by the requirements of this function.
            pdata: unsafe { bytes(raw.private_data, raw.private_data_len.into()) },
        }
    }
}

/// # Safety
///
/// `data` is null, or points to `len` bytes that do not change during `'a`.
unsafe fn bytes<'a>(data: *const ffi::c_void, len: usize) -> &'a [u8] {
    if data.is_null() || len == 0 {
        return &[];
    }
    // SAFETY: By the requirements of this function.
    unsafe { core::slice::from_raw_parts(data.cast(), len) }
}

/// The sockets of a provider that listen.
type Listener<D> = <<D as Driver>::Iwcm as Provider<D>>::Listener;

/// Takes the data that the provider left in an identifier.
///
/// # Safety
///
/// `id` is valid, and its `provider_data` is null or from [`Arc::into_raw`] of a `T`.
unsafe fn take_provider_data<T>(id: *mut iw_cm_id) -> Result<Arc<T>> {
    // SAFETY: By the requirements of this function. The core serialises the calls for an
    // identifier.
    let data = unsafe { core::mem::replace(&mut (*id).provider_data, null_mut()) };
    if data.is_null() {
        return Err(EINVAL);
    }
    // SAFETY: By the requirements of this function; nobody else finds it any more.
    Ok(unsafe { Arc::from_raw(data.cast::<T>()) })
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
/// As `callback` says.
///
/// The reference passes to the core with the QP. The core calls `iw_add_ref` next, in both places
/// (`drivers/infiniband/core/iwcm.c`). If only that took a reference, the QP could be destroyed in
/// between.
pub(super) unsafe extern "C" fn iw_get_qp<D: Driver>(dev: *mut ib_device, qpn: Int) -> *mut ib_qp {
    // SAFETY: By the requirements of this function.
    let dev = unsafe { Device::<D>::from_raw(dev) };
    <D::Iwcm>::get_qp(dev, qpn as u32).map_or(null_mut(), |qp| ARef::into_raw(qp).as_ptr().cast())
}

/// # Safety
///
/// As `callback` says. `iw_get_qp` has just returned the QP, with a reference.
pub(super) unsafe extern "C" fn iw_add_ref<D: Driver>(_qp: *mut ib_qp) {}

/// # Safety
///
/// As `callback` says.
pub(super) unsafe extern "C" fn iw_rem_ref<D: Driver>(qp: *mut ib_qp) {
    // SAFETY: Not null by the requirements of this function; the object begins with it.
    let qp = unsafe { NonNull::new_unchecked(qp.cast::<Qp<D>>()) };
    // SAFETY: The core gives up the reference it got from `iw_get_qp`.
    drop(unsafe { ARef::from_raw(qp) });
}

/// # Safety
///
/// As `callback` says.
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
    to_errno(<D::Iwcm>::connect(dev, id, &param))
}

/// # Safety
///
/// As `callback` says.
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
            let _ = <D::Iwcm>::reject(dev, number, &[]);
            return e.to_errno();
        }
    };
    let result = <D::Iwcm>::accept(dev, id, number, &param);
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
/// As `callback` says.
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
    let pdata = unsafe { bytes(pdata, len.into()) };
    to_errno(<D::Iwcm>::reject(dev, number, pdata))
}

/// # Safety
///
/// As `callback` says.
pub(super) unsafe extern "C" fn iw_create_listen<D: Driver>(
    raw: *mut iw_cm_id,
    backlog: Int,
) -> Int {
    // SAFETY: By the requirements of this function.
    let dev = unsafe { device::<D>(raw) };
    // SAFETY: By *live*: an identifier is not freed while the core calls for it.
    let id = unsafe { CmId::from_raw(raw) };
    let backlog = u32::try_from(backlog).unwrap_or(0);
    to_errno(<D::Iwcm>::create_listen(dev, id, backlog).map(|listener| {
        let listener = Arc::into_raw(listener).cast_mut().cast();
        // SAFETY: As above; the field is ours.
        unsafe { (*raw).provider_data = listener };
    }))
}

/// # Safety
///
/// As `callback` says.
pub(super) unsafe extern "C" fn iw_destroy_listen<D: Driver>(id: *mut iw_cm_id) -> Int {
    // SAFETY: By the requirements of this function; `iw_create_listen` set it.
    let listener = unsafe { take_provider_data::<Listener<D>>(id) };
    to_errno(listener.and_then(<D::Iwcm>::destroy_listen))
}
