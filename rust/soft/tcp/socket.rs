// SPDX-License-Identifier: GPL-2.0

//! TCP connections.
//!
//! C header: [`include/linux/net.h`](srctree/include/linux/net.h)

use crate::tcp::{
    callbacks::{
        self,
        Owner,
        SocketEvents,
        Stock, //
    },
    locked::{
        self,
        LockedSock,
        SendSeq, //
    },
    state::TcpState, //
};
use base::{
    addr::{
        Family,
        RawAddr,
        SockAddr, //
    },
    bindings,
    errno,
    netdev::NetNs,
    release::ReleaseRef, //
};
use core::{
    mem::ManuallyDrop,
    ptr::{
        null_mut,
        NonNull, //
    }, //
};
use kernel::{
    error::to_result,
    ffi,
    new_work,
    prelude::*,
    sync::{
        atomic::Atomic,
        Arc, //
    },
    task::might_sleep,
    workqueue::{
        impl_has_work,
        Work,
        WorkItem, //
    }, //
};

/// How far [`Socket::connect`] got.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Connect {
    /// The connection is established.
    Done,
    /// [`SocketEvents::state_change`] will report the outcome.
    InProgress,
}

/// The directions that [`Handle::shutdown`] ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Shutdown {
    /// Sending: a FIN follows the data.
    Send,
    /// Both.
    Both,
}

/// A C socket, and the means to release it from process context.
///
/// # Invariants
///
/// `sock` is a valid TCP socket with a `struct sock`, owned by this; `stock` is what its callbacks
/// were before ours.
#[pin_data]
pub(super) struct Handle {
    #[pin]
    work: Work<Handle>,
    sock: NonNull<bindings::socket>,
    stock: Stock,
    user: ReleaseRef,
    /// It is frozen, see [`Frozen`](super::Frozen).
    pub(super) frozen: Atomic<bool>,
}

// SAFETY: A socket may be used and released from any thread.
unsafe impl Send for Handle {}
// SAFETY: As above; the C side locks.
unsafe impl Sync for Handle {}

impl_has_work! {
    impl HasWork<Self> for Handle { self.work }
}

impl WorkItem for Handle {
    type Pointer = Pin<KBox<Self>>;

    /// Releases the socket after it was dropped.
    fn run(this: Pin<KBox<Self>>) {
        this.detach();
        this.reset_frozen();
        // SAFETY: Owned by the type invariants, and nobody uses it any more.
        unsafe { bindings::sock_release(this.sock.as_ptr()) };
    }
}

impl Handle {
    /// Takes over a socket. If `stock` is given, its callbacks are set to that. May sleep.
    ///
    /// # Safety
    ///
    /// `sock` must be a valid TCP socket with a `struct sock`, which the caller owns; it is
    /// released on an error too. Nobody else uses it yet. If its callbacks are not the stock ones,
    /// then `stock` must be given.
    unsafe fn take(
        user: ReleaseRef,
        sock: *mut bindings::socket,
        stock: Option<&Stock>,
    ) -> Result<Pin<KBox<Self>>> {
        // SAFETY: Valid by the contract of this function.
        let sk = unsafe { (*sock).sk }.cast();
        let mut found = Stock::default();
        // SAFETY: `sk` is that of the valid `sock`, and nobody else uses it yet.
        unsafe { bindings::soft_sk_prepare(sk, &mut found) };
        let swapped = match stock {
            // SAFETY: As above. The callbacks are the socket's own.
            Some(stock) => unsafe { callbacks::swap(sk, stock, None) },
            None => Ok(()),
        };
        let stock = *stock.unwrap_or(&found);
        let handle = swapped.and_then(|()| {
            KBox::pin_init(
                // INVARIANT: By the contract of this function.
                pin_init!(Self {
                    work <- new_work!("Socket::release"),
                    // SAFETY: Not null, since it is valid.
                    sock: unsafe { NonNull::new_unchecked(sock) },
                    stock,
                    user,
                    frozen: Atomic::new(false),
                }),
                GFP_KERNEL_ACCOUNT,
            )
        });
        if handle.is_err() {
            // SAFETY: The caller gave it to us.
            unsafe { bindings::sock_release(sock) };
        }
        handle
    }

    /// Releases the socket soon, in process context. Any context.
    pub(super) fn release_later(self: Pin<KBox<Self>>) {
        let user = self.user.clone();
        user.enqueue(self);
    }

    /// Makes a socket. May sleep.
    pub(super) fn create(user: ReleaseRef, ns: &NetNs, family: Family) -> Result<Pin<KBox<Self>>> {
        might_sleep();
        let mut sock = null_mut();
        // SAFETY: The namespace is valid as long as `ns` is, the socket takes its own reference.
        to_result(unsafe { bindings::soft_sock_create(ns.as_raw(), family.as_raw(), &mut sock) })?;
        // SAFETY: It was just made, with its own callbacks.
        unsafe { Handle::take(user, sock, None) }
    }

    /// Accepts a connection, if there is one. May sleep.
    pub(super) fn accept(&self) -> Result<Option<Socket>> {
        might_sleep();
        let mut child = null_mut();
        // SAFETY: Valid by the type invariants.
        let ret = unsafe {
            bindings::kernel_accept(self.sock(), &mut child, bindings::O_NONBLOCK as ffi::c_int)
        };
        match to_result(ret) {
            Err(EAGAIN) => return Ok(None),
            Err(e) => return Err(e),
            Ok(()) => (),
        }
        // SAFETY: The child is ours. It inherited our `data_ready`, so its own callbacks are given:
        // those that the listener had.
        let handle = unsafe { Handle::take(self.user.clone(), child, Some(&self.stock)) }?;
        Ok(Some(Socket::from_handle(handle)))
    }

    pub(super) fn sock(&self) -> *mut bindings::socket {
        self.sock.as_ptr()
    }

    pub(super) fn sk(&self) -> *mut bindings::sock {
        // SAFETY: Valid by the type invariants; set once, until the socket is released.
        unsafe { (*self.sock.as_ptr()).sk }.cast()
    }

    pub(super) fn stock(&self) -> &Stock {
        &self.stock
    }

    /// Removes our callbacks. May sleep.
    pub(super) fn detach(&self) {
        // SAFETY: Valid by the type invariants. The callbacks are the socket's own.
        let _ = unsafe { callbacks::swap(self.sk(), &self.stock, None) };
    }

    /// Binds to an address. May sleep.
    pub(super) fn bind(&self, addr: &SockAddr) -> Result {
        // The port may be bound again while a former connection is in TIME-WAIT.
        // SAFETY: Valid by the type invariants.
        unsafe { bindings::sock_set_reuseaddr(self.sk()) };
        let mut addr = addr.to_raw();
        // SAFETY: The address is valid for reads of that length.
        to_result(unsafe { bindings::kernel_bind(self.sock(), addr.as_mut_ptr(), RawAddr::LEN) })
    }

    /// Whether the port is one that TCP gives to sockets whose owners choose none.
    pub(super) fn is_ephemeral(&self, port: u16) -> bool {
        let (mut low, mut high) = (0, 0);
        // SAFETY: The socket is valid by the type invariants, both numbers for writes.
        unsafe { bindings::inet_sk_get_local_port_range(self.sk(), &mut low, &mut high) };
        (low..=high).contains(&i32::from(port))
    }

    /// Binds to a device, or to none if that is 0. May sleep.
    pub(super) fn bind_to_device(&self, ifindex: u32) -> Result {
        let ifindex = i32::try_from(ifindex)?;
        // SAFETY: Valid by the type invariants.
        to_result(unsafe { bindings::sock_bindtoindex(self.sk(), ifindex, true) })
    }

    pub(super) fn set_v6only(&self) -> Result {
        // SAFETY: Valid by the type invariants.
        to_result(unsafe { bindings::sock_set_v6only(self.sk()) })
    }

    pub(super) fn set_tos(&self, tos: u8) -> Result {
        // SAFETY: Valid by the type invariants.
        to_result(unsafe { bindings::soft_sock_set_tos(self.sock(), tos) })
    }

    pub(super) fn shutdown(&self, how: Shutdown) -> Result {
        might_sleep();
        let how = match how {
            Shutdown::Send => bindings::sock_shutdown_cmd_SHUT_WR,
            Shutdown::Both => bindings::sock_shutdown_cmd_SHUT_RDWR,
        };
        // SAFETY: Valid by the type invariants.
        to_result(unsafe { bindings::kernel_sock_shutdown(self.sock(), how) })
    }

    pub(super) fn local_addr(&self) -> Result<SockAddr> {
        might_sleep();
        let mut addr = RawAddr::new();
        // SAFETY: Valid by the type invariants; there is room for any address.
        let len = unsafe { bindings::kernel_getsockname(self.sock(), addr.as_mut_ptr()) };
        to_result(len.min(0))?;
        addr.parse().ok_or(EINVAL)
    }
}

/// A TCP connection, or a socket that will be one.
///
/// Share it as an `Arc<Socket>`: all methods take `&self`. It may be dropped in any context, and is
/// then released a little later, in process context. For an immediate effect call [`Self::detach`],
/// [`Self::abort`] or [`Self::send_fin`].
///
/// Methods may sleep, unless they say otherwise. None waits for the network.
pub struct Socket(ManuallyDrop<Pin<KBox<Handle>>>);

impl Socket {
    /// Makes a socket in the namespace `ns`, which it keeps alive.
    pub fn new(user: ReleaseRef, ns: &NetNs, family: Family) -> Result<Self> {
        Ok(Self::from_handle(Handle::create(user, ns, family)?))
    }

    fn from_handle(handle: Pin<KBox<Handle>>) -> Self {
        Self(ManuallyDrop::new(handle))
    }

    /// Binds to an address, which may be in use by other connections of this module. A port of 0
    /// means any free one. Fails with EADDRINUSE if the port is another program's, even one of
    /// which only a connection in TIME-WAIT is left. May be called again after that.
    pub fn bind(&self, addr: &SockAddr) -> Result {
        self.0.bind(addr)
    }

    /// Whether the port is one that TCP gives to sockets whose owners choose none
    /// (`ip_local_port_range`). Any context.
    pub fn is_ephemeral(&self, port: u16) -> bool {
        self.0.is_ephemeral(port)
    }

    /// Binds to the device or VRF with this index, or to none if that is 0. Addresses, ports and
    /// routes are then those of the device. Must be called before [`Self::bind`].
    pub fn bind_to_device(&self, ifindex: u32) -> Result {
        self.0.bind_to_device(ifindex)
    }

    /// Starts connecting.
    pub fn connect(&self, addr: &SockAddr) -> Result<Connect> {
        might_sleep();
        let mut addr = addr.to_raw();
        // SAFETY: The socket is valid by the type invariants of `Handle`, the address for reads.
        let ret = unsafe {
            bindings::kernel_connect(
                self.0.sock(),
                addr.as_mut_ptr(),
                RawAddr::LEN,
                bindings::O_NONBLOCK as ffi::c_int,
            )
        };
        match to_result(ret) {
            Ok(()) => Ok(Connect::Done),
            Err(e) if e.to_errno() == -(bindings::EINPROGRESS as ffi::c_int) => {
                Ok(Connect::InProgress)
            }
            Err(e) => Err(e),
        }
    }

    /// The local address.
    pub fn local_addr(&self) -> Result<SockAddr> {
        self.0.local_addr()
    }

    /// The peer's address.
    pub fn peer_addr(&self) -> Result<SockAddr> {
        might_sleep();
        let mut addr = RawAddr::new();
        // SAFETY: Valid by the type invariants; there is room for any address.
        let len = unsafe { bindings::kernel_getpeername(self.0.sock(), addr.as_mut_ptr()) };
        to_result(len.min(0))?;
        addr.parse().ok_or(EINVAL)
    }

    fn recv_flags(&self, buf: &mut [u8], flags: u32) -> Result<usize> {
        might_sleep();
        // SAFETY: The socket is valid by the type invariants, `buf` for writes.
        let ret = unsafe {
            bindings::soft_sock_recv(
                self.0.sock(),
                buf.as_mut_ptr().cast(),
                buf.len(),
                flags as ffi::c_int,
            )
        };
        usize::try_from(ret).map_err(|_| Error::from_errno(ret))
    }

    /// Reads received data: `EAGAIN` if there is none, 0 at the end of the stream.
    pub fn recv(&self, buf: &mut [u8]) -> Result<usize> {
        self.recv_flags(buf, 0)
    }

    /// As [`Self::recv`], but leaves the data in the socket.
    pub fn peek(&self, buf: &mut [u8]) -> Result<usize> {
        self.recv_flags(buf, bindings::MSG_PEEK)
    }

    /// The state of the connection, which may change at any time. Any context.
    pub fn state(&self) -> TcpState {
        // SAFETY: Valid by the type invariants.
        TcpState::from_raw(unsafe { bindings::sk_state(self.0.sk()) })
    }

    /// The error of the socket, which is cleared. Any context.
    pub fn take_error(&self) -> Result {
        // SAFETY: Valid by the type invariants.
        to_result(unsafe { bindings::sock_error(self.0.sk()) })
    }

    /// What TCP has sent, and what the peer has acknowledged of it, if nothing is sent any more.
    /// Any context.
    pub fn sent(&self) -> SendSeq {
        // SAFETY: Valid by the type invariants.
        unsafe { locked::sent(self.0.sk()) }
    }

    /// Whether memory of others that is sent by reference stays where it is on its way out. Any
    /// context.
    pub fn can_share(&self) -> bool {
        // SAFETY: Valid by the type invariants.
        unsafe { bindings::soft_sk_can_share(self.0.sk()) }
    }

    /// Ends the sending direction: a FIN follows the data. Nobody sends meanwhile.
    ///
    /// Fails with `ENOTCONN` if this end is closed already, and with `ENOMEM` if TCP has no memory
    /// for the FIN. TCP does not try again then (`tcp_send_fin()`), and the closed socket goes on
    /// answering the peer's probes. So the caller has to reset the connection.
    pub fn send_fin(&self) -> Result {
        if !self.state().is_open() {
            return Err(errno::enotconn());
        }
        let before = self.sent().next;
        self.0.shutdown(Shutdown::Send)?;
        // A FIN takes a sequence number.
        match self.sent().next == before {
            true => Err(ENOMEM),
            false => Ok(()),
        }
    }

    pub(super) fn handle(&self) -> &Handle {
        &self.0
    }

    /// Bounds how long data and probes may stay unacknowledged; 0: as TCP does by itself.
    pub fn set_user_timeout(&self, ms: u32) -> Result {
        let ms = ffi::c_int::try_from(ms)?;
        // SAFETY: Valid by the type invariants.
        to_result(unsafe { bindings::tcp_sock_set_user_timeout(self.0.sk(), ms) })
    }

    /// The type of service or traffic class.
    pub fn set_tos(&self, tos: u8) -> Result {
        self.0.set_tos(tos)
    }

    /// Probes an idle connection after `idle_s` seconds, and then every `interval_s` seconds.
    pub fn set_keepalive(&self, idle_s: u16, interval_s: u16) -> Result {
        let sk = self.0.sk();
        // SAFETY: Valid by the type invariants.
        to_result(unsafe { bindings::tcp_sock_set_keepidle(sk, idle_s.into()) })?;
        // SAFETY: Valid by the type invariants; the one field that is stored may be read at any
        // time.
        to_result(unsafe { bindings::tcp_sock_set_keepintvl(sk, interval_s.into()) })?;
        // SAFETY: Valid by the type invariants; the function locks the socket itself.
        unsafe { bindings::sock_set_keepalive(sk) };
        Ok(())
    }

    /// Changes when [`Self::set_keepalive`] probes: after `idle_s` seconds of silence. A silence
    /// that has lasted so long already is probed at once.
    pub fn set_keepidle(&self, idle_s: u16) -> Result {
        // SAFETY: Valid by the type invariants; the function locks the socket itself.
        to_result(unsafe { bindings::tcp_sock_set_keepidle(self.0.sk(), idle_s.into()) })
    }

    /// Leaves IPv4 to other sockets.
    pub fn set_v6only(&self) -> Result {
        self.0.set_v6only()
    }

    /// Makes `owner` the handler of the events. When this returns, no callback of an earlier owner
    /// runs.
    ///
    /// For bytes that have arrived already, call [`Self::run_data_ready`]. Not from a callback.
    pub fn attach(&self, owner: Arc<dyn SocketEvents>) -> Result {
        let owner = KBox::new(Owner::Stream(owner), GFP_KERNEL_ACCOUNT)?;
        // SAFETY: Valid by the type invariants. Callbacks and owner fit.
        unsafe { callbacks::swap(self.0.sk(), &callbacks::STREAM, Some(owner)) }
    }

    /// Undoes [`Self::attach`]. Not from a callback.
    pub fn detach(&self) {
        self.0.detach();
    }

    /// Calls the owner's [`SocketEvents::data_ready`], if there is one.
    pub fn run_data_ready(&self) {
        let _locked = self.lock();
        // SAFETY: Valid by the type invariants, and locked.
        unsafe { callbacks::data_ready(self.0.sk()) };
    }

    /// Locks the socket; its softirq work waits until the guard is dropped.
    pub fn lock(&self) -> LockedSock<'_> {
        might_sleep();
        // SAFETY: Valid by the type invariants.
        unsafe { bindings::lock_sock(self.0.sk()) };
        // SAFETY: Locked just now, and `self` is borrowed.
        unsafe { LockedSock::new(self.0.sk(), true) }
    }

    /// Locks the socket as a softirq does, if it is not locked and interrupts are on.
    ///
    /// Any context. The holder of the guard must not sleep.
    pub fn try_lock_bh(&self) -> Option<LockedSock<'_>> {
        // SAFETY: Valid by the type invariants.
        if !unsafe { bindings::soft_trylock_sock_bh(self.0.sk()) } {
            return None;
        }
        // SAFETY: Locked just now, and `self` is borrowed.
        Some(unsafe { LockedSock::new(self.0.sk(), false) })
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        // SAFETY: Not used after this.
        Handle::release_later(unsafe { ManuallyDrop::take(&mut self.0) });
    }
}
