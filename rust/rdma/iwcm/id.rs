// SPDX-License-Identifier: GPL-2.0

//! Identifiers of connections and listeners, and their events.

use core::{
    marker::PhantomData,
    ptr::{
        without_provenance_mut,
        NonNull, //
    }, //
};

use kernel::{
    error::to_result,
    prelude::*, //
};

use crate::{
    callback::to_errno,
    device::Driver,
    qp::Qp, //
};
use base::{
    addr::SockAddr,
    bindings::{
        self,
        __kernel_sockaddr_storage as Storage,
        iw_cm_id, //
    },
    errno,
    netdev::NetNs, //
};

/// A counted reference to an identifier (`struct iw_cm_id`): one end of a connection, or a
/// listener.
///
/// # Examples
///
/// ```ignore
/// // The consumer waits for the outcome of `connect`.
/// let _ = id.upcall(CmEvent::ConnectReply {
///     status: Err(ECONNREFUSED),
///     local: id.local_addr()?,
///     remote: id.remote_addr()?,
///     ird: 0,
///     ord: 0,
///     pdata: &[],
/// });
/// ```
///
/// # Invariants
///
/// `raw` is an identifier on a device of `D`, and the reference is counted.
pub struct CmId<D: Driver> {
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
    pub fn local_addr(&self) -> Result<SockAddr> {
        Self::addr(&self.id().local_addr)
    }

    /// The remote address as the consumer knows it.
    pub fn remote_addr(&self) -> Result<SockAddr> {
        Self::addr(&self.id().remote_addr)
    }

    /// The remote address to use.
    pub fn m_remote_addr(&self) -> Result<SockAddr> {
        Self::addr(&self.id().m_remote_addr)
    }

    /// The type of service, if one was set.
    pub fn tos(&self) -> Option<u8> {
        let id = self.id();
        id.tos_set().then_some(id.tos)
    }

    /// Whether to listen for this address family only.
    pub fn afonly(&self) -> bool {
        self.id().afonly()
    }

    /// Whether the consumer has bound the QP to the identifier, as kernel consumers do with
    /// `rdma_create_qp()`. No program can.
    pub fn has_qp(&self, qp: &Qp<D>) -> bool {
        // SAFETY: The identifier is valid by the type invariants; its consumer keeps its own for as
        // long. Of the QP only the address is used.
        unsafe { bindings::cm_id_has_qp(self.raw.as_ptr(), qp.as_raw()) }
    }

    /// The namespace in which the consumer made the identifier.
    pub fn net(&self) -> NetNs {
        // SAFETY: The identifier is valid by the type invariants; its consumer keeps its own, and
        // with it the namespace, for as long.
        let net = unsafe { bindings::cm_id_get_net(self.raw.as_ptr()) };
        // SAFETY: The reference was just taken.
        unsafe { NetNs::from_raw(net) }
    }

    /// True if the device of the identifier may be used in the namespace `ns`. In the core's mode
    /// "shared" this is true of all.
    pub fn sees_device(&self, ns: &NetNs) -> bool {
        // SAFETY: An identifier keeps its device, and `ns` is valid.
        unsafe { bindings::rdma_dev_access_netns(self.id().device, ns.as_raw()) }
    }

    /// Identifies the server of a listener. rdma_cm makes a listener on each device for a server
    /// that is bound to no device; these have the same number, for as long as one of them exists.
    pub fn server(&self) -> usize {
        // SAFETY: The identifier is valid by the type invariants; its consumer keeps its own for as
        // long. What that refers to is only a number here.
        unsafe { bindings::cm_id_server(self.raw.as_ptr()) }
    }

    /// Reports an event. Any context. If it fails, the consumer does not get the event.
    pub fn upcall(&self, event: CmEvent<'_>) -> Result {
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

/// An event of a connection (`struct iw_cm_event`).
pub enum CmEvent<'a> {
    /// To the identifier of the listener: a peer wants to connect.
    ConnectRequest {
        /// Comes back with the answer. It is a number and not a reference, because the core drops a
        /// request silently if the listener is destroyed first, or for lack of memory.
        number: usize,
        /// The address of this side.
        local: SockAddr,
        /// The address of the peer.
        remote: SockAddr,
        /// The number of Reads that the peer may have outstanding.
        ird: u8,
        /// The number of Reads that this side may have outstanding.
        ord: u8,
        /// The private data of the peer.
        pdata: &'a [u8],
    },
    /// To the identifier that connects: the outcome, and the peer's answer.
    ConnectReply {
        /// Success, or the reason.
        status: Result,
        /// The address of this side.
        local: SockAddr,
        /// The address of the peer.
        remote: SockAddr,
        /// The number of Reads that the peer may have outstanding.
        ird: u8,
        /// The number of Reads that this side may have outstanding.
        ord: u8,
        /// The private data of the peer.
        pdata: &'a [u8],
    },
    /// To the identifier that accepts, from within `accept`.
    Established {
        /// The number of Reads that the peer may have outstanding.
        ird: u8,
        /// The number of Reads that this side may have outstanding.
        ord: u8,
    },
    /// The connection has ended. To either side, after a success.
    Close {
        /// Success, or the reason.
        status: Result,
    },
}
