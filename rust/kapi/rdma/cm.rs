// SPDX-License-Identifier: GPL-2.0

//! The iWARP connection manager.
//!
//! C header: [`include/rdma/iw_cm.h`](srctree/include/rdma/iw_cm.h)

use core::{
    marker::PhantomData,
    ptr::{
        null_mut,
        without_provenance_mut,
        NonNull, //
    },
};

use kernel::{
    error::to_result,
    ffi,
    prelude::*,
    sync::{
        Arc,
        Completion, //
    },
};

use super::{
    object::Qp,
    ops::Driver, //
};
use crate::kapi::{
    bindings::{
        self,
        __kernel_sockaddr_storage as Storage, //
        iw_cm_conn_param,
        iw_cm_id,
    },
    context,
    errno,
    net::SockAddr, //
};

/// The parameters of a connection to be made.
pub(crate) struct ConnParam<'a> {
    pub(crate) ord: u32,
    pub(crate) ird: u32,
    pub(crate) qpn: u32,
    pub(crate) pdata: &'a [u8],
}

impl<'a> ConnParam<'a> {
    /// # Safety
    ///
    /// `raw` and its private data are valid during `'a`.
    pub(super) unsafe fn from_raw(raw: *const iw_cm_conn_param) -> Self {
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
pub(super) unsafe fn bytes<'a>(data: *const ffi::c_void, len: usize) -> &'a [u8] {
    if data.is_null() || len == 0 {
        return &[];
    }
    // SAFETY: By the requirements of this function.
    unsafe { core::slice::from_raw_parts(data.cast(), len) }
}

/// Takes the data that the provider left in an identifier.
///
/// # Safety
///
/// `id` is valid, and its `provider_data` is null or from [`Arc::into_raw`] of a `T`.
pub(super) unsafe fn take_provider_data<T>(id: *mut iw_cm_id) -> Result<Arc<T>> {
    // SAFETY: By the requirements of this function. The core serialises the calls for an
    // identifier.
    let data = unsafe { core::mem::replace(&mut (*id).provider_data, null_mut()) };
    if data.is_null() {
        return Err(EINVAL);
    }
    // SAFETY: By the requirements of this function; nobody else finds it any more.
    Ok(unsafe { Arc::from_raw(data.cast::<T>()) })
}

/// Waits until the core takes the ESTABLISHED event of an identifier that a user has accepted.
///
/// Until a work item of the core has done so, it lets the identifier be accepted or rejected once
/// more (`iw_cm_accept`: `CONN_RECV`), loses the reference to the QP, and answers the event with
/// `BUG()`. Kernel consumers do no such thing; what keeps a user off is `ucma`, which lets one call
/// for an identifier in at a time: `accept` may not return earlier.
///
/// The core calls the consumer next, so this handler takes the consumer's place for that call. The
/// consumer then waits for a mutex that `ucma` holds meanwhile. This is no deadlock: nothing else
/// that is queued ahead needs this `accept` to be over.
#[pin_data]
pub(super) struct Established {
    handler: bindings::iw_cm_handler,
    #[pin]
    seen: Completion,
}

impl Established {
    /// Expects the event. Called before it is raised. Returns `None` if there is no need to wait.
    ///
    /// # Safety
    ///
    /// `id` is being accepted. Then [`Self::wait`] or [`Self::cancel`] follows.
    pub(super) unsafe fn expect(id: *mut iw_cm_id) -> Result<Option<Arc<Self>>> {
        // Only threads of the kernel accept in the core's work item.
        if context::in_kthread() {
            return Ok(None);
        }
        // SAFETY: By the requirements of this function. The core is not calling it now: the event
        // of the connect request is over, and `ESTABLISHED` to come.
        let handler = unsafe { (*id).cm_handler };
        let this = Arc::pin_init(
            pin_init!(Self {
                handler,
                seen <- Completion::new(),
            }),
            GFP_KERNEL,
        )?;
        // SAFETY: As above; the field is ours, and was read before.
        unsafe { (*id).provider_data = Arc::into_raw(this.clone()).cast_mut().cast() };
        // SAFETY: The core reads the handler for the next event, which has not been raised yet.
        unsafe { (*id).cm_handler = Some(established) };
        Ok(Some(this))
    }

    /// Waits for the event, which has been raised. May sleep.
    pub(super) fn wait(&self) {
        self.seen.wait_for_completion();
    }

    /// Stops expecting the event.
    ///
    /// # Safety
    ///
    /// As for `expect`, with the same `id`, and the event was not raised.
    pub(super) unsafe fn cancel(&self, id: *mut iw_cm_id) {
        // SAFETY: By the requirements of this function.
        drop(unsafe { Self::take(id) });
    }

    /// Restores the consumer's handler.
    ///
    /// # Safety
    ///
    /// `expect` has been called for `id`, and this has not.
    unsafe fn take(id: *mut iw_cm_id) -> Arc<Self> {
        // SAFETY: By the requirements of this function; `expect` set it.
        let data = unsafe { core::mem::replace(&mut (*id).provider_data, null_mut()) };
        // SAFETY: As above; the reference is taken over.
        let this = unsafe { Arc::from_raw(data.cast::<Self>()) };
        // SAFETY: The core calls no handler now: either `established` is being called, or there is
        // no event.
        unsafe { (*id).cm_handler = this.handler };
        this
    }
}

/// The handler while [`Established`] is expected.
///
/// # Safety
///
/// Called by the core, with the first event of an identifier `expect` was called for.
unsafe extern "C" fn established(
    id: *mut iw_cm_id,
    event: *mut bindings::iw_cm_event,
) -> ffi::c_int {
    // SAFETY: By the requirements of this function. Events come one after the other.
    let this = unsafe { Established::take(id) };
    this.seen.complete_all();
    match this.handler {
        // SAFETY: The core would have called it with the same arguments.
        Some(handler) => unsafe { handler(id, event) },
        None => 0,
    }
}

/// A counted reference to an identifier.
///
/// # Invariants
///
/// `raw` is an identifier on a device of `D`, and the reference is counted.
pub(crate) struct CmId<D: Driver> {
    raw: NonNull<iw_cm_id>,
    _p: PhantomData<fn() -> D>,
}

// SAFETY: The functions of the core lock as needed.
unsafe impl<D: Driver> Send for CmId<D> {}

// SAFETY: As above; what is read does not change while the provider has the identifier.
unsafe impl<D: Driver> Sync for CmId<D> {}

impl<D: Driver> Clone for CmId<D> {
    fn clone(&self) -> Self {
        // SAFETY: Valid by the type invariants.
        unsafe { Self::from_raw(self.raw.as_ptr()) }
    }
}

impl<D: Driver> Drop for CmId<D> {
    fn drop(&mut self) {
        let id = self.raw.as_ptr();
        // SAFETY: Valid by the type invariants; the core sets the function.
        if let Some(rem_ref) = unsafe { (*id).rem_ref } {
            // SAFETY: Counted by the type invariants.
            unsafe { rem_ref(id) };
        }
    }
}

impl<D: Driver> CmId<D> {
    /// Takes a reference.
    ///
    /// # Safety
    ///
    /// `raw` is an identifier on a device of `D` that exists now.
    pub(super) unsafe fn from_raw(raw: *mut iw_cm_id) -> Self {
        // SAFETY: By the requirements of this function; the core sets the function.
        if let Some(add_ref) = unsafe { (*raw).add_ref } {
            // SAFETY: The identifier exists by the requirements of this function.
            unsafe { add_ref(raw) };
        }
        // INVARIANT: Just counted.
        Self {
            // SAFETY: Not null by the requirements of this function.
            raw: unsafe { NonNull::new_unchecked(raw) },
            _p: PhantomData,
        }
    }

    fn id(&self) -> &iw_cm_id {
        // SAFETY: Valid by the type invariants. What is read through it does not change while the
        // provider has the identifier, apart from `provider_data`, which is not.
        unsafe { self.raw.as_ref() }
    }

    fn addr(addr: &Storage) -> Result<SockAddr> {
        // SAFETY: A reference to a whole address is valid.
        unsafe { SockAddr::from_raw(addr) }.ok_or_else(errno::eafnosupport)
    }

    /// The local address as the consumer knows it.
    pub(crate) fn local_addr(&self) -> Result<SockAddr> {
        Self::addr(&self.id().local_addr)
    }

    /// The remote address as the consumer knows it.
    pub(crate) fn remote_addr(&self) -> Result<SockAddr> {
        Self::addr(&self.id().remote_addr)
    }

    /// The remote address to use.
    pub(crate) fn m_remote_addr(&self) -> Result<SockAddr> {
        Self::addr(&self.id().m_remote_addr)
    }

    /// The type of service, if one was set.
    pub(crate) fn tos(&self) -> Option<u8> {
        let id = self.id();
        id.tos_set().then_some(id.tos)
    }

    /// Whether to listen for this address family only.
    pub(crate) fn afonly(&self) -> bool {
        self.id().afonly()
    }

    /// Whether the consumer has bound the QP to the identifier, as kernel consumers do with
    /// `rdma_create_qp()`. No program can.
    pub(crate) fn has_qp(&self, qp: &Qp<D>) -> bool {
        // SAFETY: The identifier is valid by the type invariants; its consumer keeps its own for as
        // long. Of the QP only the address is used.
        unsafe { bindings::kapi_cm_id_has_qp(self.raw.as_ptr(), qp.as_raw()) }
    }

    /// Reports an event. Any context. If it fails, the consumer does not get the event.
    pub(crate) fn upcall(&self, event: CmEvent<'_>) -> Result {
        let mut ev: bindings::iw_cm_event = pin_init::zeroed();
        match event {
            CmEvent::ConnectRequest {
                number,
                local,
                remote,
                ird,
                ord,
                pdata,
            } => {
                ev.event = bindings::iw_cm_event_type_IW_CM_EVENT_CONNECT_REQUEST;
                fill(&mut ev, local, remote, ird, ord, pdata)?;
                ev.provider_data = without_provenance_mut(number);
            }
            CmEvent::ConnectReply {
                status,
                local,
                remote,
                ird,
                ord,
                pdata,
            } => {
                ev.event = bindings::iw_cm_event_type_IW_CM_EVENT_CONNECT_REPLY;
                ev.status = to_errno(status);
                fill(&mut ev, local, remote, ird, ord, pdata)?;
            }
            CmEvent::Established { ird, ord } => {
                ev.event = bindings::iw_cm_event_type_IW_CM_EVENT_ESTABLISHED;
                ev.ird = ird;
                ev.ord = ord;
            }
            CmEvent::Close { status } => {
                ev.event = bindings::iw_cm_event_type_IW_CM_EVENT_CLOSE;
                ev.status = to_errno(status);
            }
        }
        let id = self.raw.as_ptr();
        match self.id().event_handler {
            // SAFETY: The identifier is valid; the core copies the event and the private data.
            Some(handler) => to_result(unsafe { handler(id, &mut ev) }),
            None => Err(EINVAL),
        }
    }
}

fn to_errno(status: Result) -> ffi::c_int {
    status.map_or_else(Error::to_errno, |()| 0)
}

fn fill(
    ev: &mut bindings::iw_cm_event,
    local: SockAddr,
    remote: SockAddr,
    ird: u8,
    ord: u8,
    pdata: &[u8],
) -> Result {
    // SAFETY: A `RawAddr` is a whole `sockaddr_storage`.
    ev.local_addr = unsafe { local.to_raw().as_mut_ptr::<Storage>().read() };
    // SAFETY: A `RawAddr` is a whole `sockaddr_storage`.
    ev.remote_addr = unsafe { remote.to_raw().as_mut_ptr::<Storage>().read() };
    ev.ird = ird;
    ev.ord = ord;
    ev.private_data_len = u8::try_from(pdata.len()).map_err(|_| EINVAL)?;
    if !pdata.is_empty() {
        ev.private_data = pdata.as_ptr().cast_mut().cast();
    }
    Ok(())
}

/// An event of a connection.
pub(crate) enum CmEvent<'a> {
    /// To the identifier of the listener.
    ConnectRequest {
        /// Comes back with the answer. It is a number and not a reference, because the core drops a
        /// request silently if the listener is destroyed first, or for lack of memory.
        number: usize,
        local: SockAddr,
        remote: SockAddr,
        ird: u8,
        ord: u8,
        pdata: &'a [u8],
    },
    ConnectReply {
        status: Result,
        local: SockAddr,
        remote: SockAddr,
        ird: u8,
        ord: u8,
        pdata: &'a [u8],
    },
    Established {
        ird: u8,
        ord: u8,
    },
    Close {
        status: Result,
    },
}
