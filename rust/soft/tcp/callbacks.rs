// SPDX-License-Identifier: GPL-2.0

//! Callbacks of sockets.
//!
//! `sk_user_data` is a pointer to a boxed [`Owner`], tagged so that TCP does not copy it to a
//! listener's children. How a change of it is kept apart from running callbacks depends on the
//! socket:
//! - TCP calls those of a connection with the socket locked, by the process that owns it, or by a
//!   softirq if no process does. The change is made by a process that owns it. No other lock is
//!   needed. `sk_callback_lock` could not be taken: a callback that sends may be called again from
//!   inside TCP's send, and its second read lock would deadlock with a waiting writer.
//! - A listener's `data_ready` is called for a child, with the child locked. It takes
//!   `sk_callback_lock`, and so does the change.

use crate::tcp::locked::{
    RxSock,
    SendSock,
    SockView, //
};
use base::bindings;
use core::ptr::null_mut;
use kernel::{
    error::to_result,
    ffi,
    prelude::*,
    sync::Arc,
    task::might_sleep, //
};

/// The handler of a connection's events.
///
/// All methods are called with the socket locked, in softirq or in the process that owns it. They
/// must neither sleep nor call a function that locks a socket.
pub trait SocketEvents: Send + Sync {
    /// There is something to read: data or the peer's FIN.
    fn data_ready(&self, sk: &mut RxSock<'_>);

    /// There is space to send, after a request by [`SockView::set_nospace`].
    ///
    /// Called again until [`SockView::clear_nospace`] is called. May be called from inside TCP's
    /// transmission, of our data or upon an ACK.
    ///
    /// With `tx` the callback may send. There is no `tx` if a process owns the socket: inside a
    /// send, the data that TCP has just sent may be acknowledged and freed while TCP still uses it
    /// (`tcp_write_xmit()`, `sk_flush_backlog()`).
    fn write_space(&self, sk: &SockView, tx: Option<&SendSock>);

    /// The connection is established, or ends.
    fn state_change(&self, sk: &SockView);

    /// The socket has an error.
    fn error_report(&self, _sk: &SockView) {}
}

/// The acceptor of a listener's connections.
pub trait Acceptor: Send + Sync {
    /// There is a connection to accept. Called in softirq: must not sleep.
    fn connection_ready(&self);
}

/// What `sk_user_data` points to.
pub(super) enum Owner {
    Stream(Arc<dyn SocketEvents>),
    Listener(Arc<dyn Acceptor>),
}

pub(super) type Stock = bindings::soft_sk_callbacks;

/// The callbacks of a connection with an owner.
pub(super) const STREAM: Stock = Stock {
    state_change: Some(state_change),
    data_ready: Some(data_ready),
    write_space: Some(write_space),
    error_report: Some(error_report),
};

/// The callbacks of a listener: `stock`, except for `data_ready`.
pub(super) fn listener(stock: &Stock) -> Stock {
    Stock {
        data_ready: Some(connection_ready),
        ..*stock
    }
}

/// Replaces the callbacks and the owner of a socket. Drops the former owner.
///
/// When it returns, no callback runs for the former owner. May sleep.
///
/// # Safety
///
/// `sk` must be a valid TCP socket. `callbacks` must match `owner`: [`STREAM`] for
/// [`Owner::Stream`], [`listener`] for [`Owner::Listener`], and the socket's own for none.
pub(super) unsafe fn swap(
    sk: *mut bindings::sock,
    callbacks: &Stock,
    owner: Option<KBox<Owner>>,
) -> Result {
    might_sleep();
    let new = owner.map_or(null_mut(), KBox::into_raw);
    let mut old: *mut ffi::c_void = null_mut();
    // SAFETY: The socket is valid by the contract of this function, the pointers are.
    let ret = unsafe { bindings::soft_sk_swap(sk, callbacks, new.cast(), &mut old) };
    // The box that the socket does not point to is ours: the former owner, or on an error the new
    // one.
    let unused = if ret == 0 { old.cast() } else { new };
    if !unused.is_null() {
        // SAFETY: It came from `KBox::into_raw` here, now or earlier: only this function stores
        // pointers with that tag. No callback uses it any more, see the top of this file.
        drop(unsafe { KBox::<Owner>::from_raw(unused) });
    }
    to_result(ret)
}

/// Calls `f` with the owner of a connection, if it has one.
///
/// # Safety
///
/// `sk` must be a valid socket, locked by this context as TCP does for callbacks.
unsafe fn with_stream(sk: *mut bindings::sock, f: impl FnOnce(&dyn SocketEvents)) {
    // SAFETY: The socket is valid.
    let owner = unsafe { bindings::soft_sk_owner(sk) }.cast::<Owner>();
    // SAFETY: Null or an `Owner`, by the tag. It is not freed while the socket is locked, since
    // `swap()` locks it.
    if let Some(Owner::Stream(events)) = unsafe { owner.as_ref() } {
        f(&**events);
    }
}

/// # Safety
///
/// As [`with_stream`].
pub(super) unsafe extern "C" fn data_ready(sk: *mut bindings::sock) {
    // SAFETY: The socket is valid.
    unsafe { bindings::trace_sk_data_ready(sk) };
    // SAFETY: By the contract of this function; the view does not outlive the call.
    let mut rx = unsafe { RxSock::new(sk) };
    // SAFETY: By the contract of this function.
    unsafe { with_stream(sk, |events| events.data_ready(&mut rx)) };
}

/// # Safety
///
/// As [`with_stream`].
unsafe extern "C" fn write_space(sk: *mut bindings::sock) {
    // SAFETY: By the contract of this function; the view does not outlive the call.
    let view = unsafe { SockView::new(sk) };
    // SAFETY: The socket is valid.
    let owned = unsafe { bindings::sock_owned_by_user(sk) };
    // SAFETY: By the contract of this function, and nobody owns the socket; it does not outlive the
    // call.
    let tx = (!owned).then(|| unsafe { SendSock::new(sk, false) });
    // SAFETY: By the contract of this function.
    unsafe { with_stream(sk, |events| events.write_space(&view, tx.as_ref())) };
}

/// # Safety
///
/// As [`with_stream`].
unsafe extern "C" fn state_change(sk: *mut bindings::sock) {
    // SAFETY: By the contract of this function; the view does not outlive the call.
    let view = unsafe { SockView::new(sk) };
    // SAFETY: By the contract of this function.
    unsafe { with_stream(sk, |events| events.state_change(&view)) };
}

/// # Safety
///
/// As [`with_stream`]. TCP calls it without the lock only for events that are never enabled here:
/// time stamps and, with IP_RECVERR, ICMP messages.
unsafe extern "C" fn error_report(sk: *mut bindings::sock) {
    // SAFETY: By the contract of this function; the view does not outlive the call.
    let view = unsafe { SockView::new(sk) };
    // SAFETY: By the contract of this function.
    unsafe { with_stream(sk, |events| events.error_report(&view)) };
}

/// The `data_ready` of a listener, and of its children until they are accepted. They have no owner.
///
/// # Safety
///
/// `sk` must be a valid socket. It need not be locked.
unsafe extern "C" fn connection_ready(sk: *mut bindings::sock) {
    // SAFETY: The socket is valid.
    unsafe { bindings::trace_sk_data_ready(sk) };
    // SAFETY: The socket is valid. Not recursive: the callback only queues work.
    unsafe { bindings::sk_callback_lock(sk) };
    // SAFETY: The socket is valid.
    let owner = unsafe { bindings::soft_sk_owner(sk) }.cast::<Owner>();
    // SAFETY: Null or an `Owner`, by the tag. It is not freed under this lock, since `swap()`
    // takes it.
    if let Some(Owner::Listener(acceptor)) = unsafe { owner.as_ref() } {
        acceptor.connection_ready();
    }
    // SAFETY: Taken above.
    unsafe { bindings::sk_callback_unlock(sk) };
}
