// SPDX-License-Identifier: GPL-2.0

//! Operations on a locked socket.

use crate::tcp::{
    replay::Replay,
    skb::Skb,
    socket::Socket,
    state::TcpState,
    tx_buf::TxBuf, //
};
use base::bindings;
use core::{
    marker::PhantomData,
    mem::MaybeUninit,
    ops::Deref,
    ptr::null_mut, //
};
use kernel::{
    ffi,
    prelude::*, //
};

/// A TCP socket locked by this context.
///
/// # Invariants
///
/// The socket is valid, and locked by a process that owns it or as in softirq, as long as this
/// exists.
pub struct SockView {
    // A raw pointer makes this neither `Send` nor `Sync`: the lock belongs to this context.
    sk: *mut bindings::sock,
}

impl SockView {
    /// # Safety
    ///
    /// `sk` must be valid and locked by this context until the view is gone.
    pub(super) unsafe fn new(sk: *mut bindings::sock) -> Self {
        // INVARIANT: By the contract of this function.
        Self { sk }
    }

    /// The state of the connection.
    pub fn state(&self) -> TcpState {
        // SAFETY: Valid by the type invariants.
        TcpState::from_raw(unsafe { bindings::sk_state(self.sk) })
    }

    /// The error of the socket, which is not cleared.
    pub fn error(&self) -> Option<Error> {
        // SAFETY: Valid by the type invariants.
        let err = unsafe { bindings::sk_err(self.sk) };
        (err != 0).then(|| Error::from_errno(err.wrapping_neg()))
    }

    /// The number of bytes in a full segment.
    pub fn mss(&self) -> u32 {
        // SAFETY: Valid by the type invariants.
        unsafe { bindings::sk_mss(self.sk) }
    }

    /// The number of bytes of memory that TCP still takes: the free part of the send buffer, or 0
    /// if it takes no new segment.
    pub fn space(&self) -> usize {
        // SAFETY: Valid by the type invariants.
        usize::try_from(unsafe { bindings::sk_space(self.sk) }).unwrap_or(0)
    }

    /// The size of the send buffer, in bytes of memory.
    pub fn sndbuf(&self) -> usize {
        // SAFETY: Valid by the type invariants.
        usize::try_from(unsafe { bindings::sk_sndbuf(self.sk) }).unwrap_or(0)
    }

    /// How much of the send buffer is in use.
    pub fn wmem_queued(&self) -> usize {
        // SAFETY: Valid by the type invariants.
        usize::try_from(unsafe { bindings::sk_wmem_queued(self.sk) }).unwrap_or(0)
    }

    /// Asks for [`write_space`](super::SocketEvents::write_space).
    ///
    /// Check [`Self::space`] again afterwards: space may have become free in between.
    pub fn set_nospace(&self) {
        // SAFETY: Valid by the type invariants.
        unsafe { bindings::soft_sk_set_nospace(self.sk) };
    }

    /// Asks for no more [`write_space`](super::SocketEvents::write_space).
    pub fn clear_nospace(&self) {
        // SAFETY: Valid by the type invariants.
        unsafe { bindings::soft_sk_clear_nospace(self.sk) };
    }

    /// The sender's sequence numbers.
    pub fn sent(&self) -> SendSeq {
        // SAFETY: Valid by the type invariants.
        unsafe { sent(self.sk) }
    }
}

/// A locked socket that may be sent to.
///
/// Callbacks of the socket may run inside of its methods.
pub struct SendSock {
    view: SockView,
    /// A process owns the socket, and is not in one of its callbacks.
    owned: bool,
}

impl SendSock {
    /// # Safety
    ///
    /// As [`SockView::new`]. If `owned`, this process owns the socket, and is in no callback of it.
    /// If not, no process owns it, or the caller is its `data_ready`.
    pub(super) unsafe fn new(sk: *mut bindings::sock, owned: bool) -> Self {
        Self {
            // SAFETY: By the contract of this function.
            view: unsafe { SockView::new(sk) },
            owned,
        }
    }

    /// Hands all pending data in `buf` to TCP, in one call. Returns the number of bytes that TCP
    /// took.
    ///
    /// 0 means that there is no space now; [`write_space`](super::SocketEvents::write_space) will
    /// follow. With `more`, a partial segment waits for the next call.
    #[inline]
    pub fn send(&self, buf: &mut TxBuf, more: bool) -> Result<usize> {
        let Some(bytes) = buf.few() else {
            return self.send_pages(buf, more);
        };
        let taken = self.send_few(bytes, more)?;
        buf.forget_few(taken);
        Ok(taken)
    }

    /// Hands `bytes` to TCP, which copies them. Returns how many it took, as [`Self::send`] does.
    pub fn send_bytes(&self, bytes: &[u8]) -> Result<usize> {
        self.send_few(bytes, false)
    }

    #[inline(always)]
    fn send_few(&self, bytes: &[u8], more: bool) -> Result<usize> {
        let (data, len) = (bytes.as_ptr().cast_mut().cast(), bytes.len());
        // SAFETY: The socket is valid and locked by the type invariants. The bytes are only
        // read, and not looked at any more when it returns.
        accepted(unsafe { bindings::soft_sk_send_bytes(self.sk, data, len, more) })
    }

    /// Hands `replay` to TCP, as far as it takes it. Returns the number of bytes that it took, as
    /// [`Self::send`] does.
    #[inline(never)]
    pub fn send_again(&self, replay: &mut Replay, more: bool) -> Result<usize> {
        let mut taken = 0usize;
        while let Some((skb, from, len)) = replay.next() {
            let more = more || replay.left() > u64::from(len);
            // SAFETY: The socket is valid and locked by the type invariants. The buffer is in a
            // queue of a frozen socket, and has `len` bytes from `from` on.
            let ret = unsafe { bindings::soft_sk_send_again(self.sk, skb, from, more) };
            let now = accepted(ret)?;
            if now == 0 {
                break;
            }
            replay.took(now);
            taken = taken.saturating_add(now);
        }
        Ok(taken)
    }

    /// Makes TCP process segments that have arrived since a process locked the socket. Does nothing
    /// in a callback, or with the socket locked as in softirq. May sleep otherwise.
    pub fn flush_backlog(&self) {
        if self.owned {
            // SAFETY: The socket is valid, and owned by this process, by the contract of `new`.
            unsafe { bindings::sk_flush_backlog(self.sk) };
        }
    }

    /// As [`Self::send`], for data that TCP gets by reference.
    #[inline(never)]
    fn send_pages(&self, buf: &mut TxBuf, more: bool) -> Result<usize> {
        if buf.shared().is_empty() {
            return self.send_copied(buf, more);
        }
        let shared = self.send_shared(buf, more || buf.pending() != 0)?;
        if !buf.shared().is_empty() || buf.pending() == 0 {
            return Ok(shared);
        }
        // If there was an error, it comes again.
        Ok(shared.saturating_add(self.send(buf, more).unwrap_or(0)))
    }

    fn send_copied(&self, buf: &mut TxBuf, more: bool) -> Result<usize> {
        let mut bvec = [const { MaybeUninit::uninit() }; TxBuf::CHUNKS];
        let (n, len) = buf.fill(&mut bvec);
        if len == 0 {
            return Ok(0);
        }
        let first = bvec.as_mut_ptr().cast();
        // SAFETY: The socket is valid and locked by the type invariants. The first `n` elements are
        // written and describe `len` bytes of pages. TCP takes its own references to the pages that
        // it keeps.
        let ret = unsafe { bindings::soft_sk_send_pages(self.sk, first, n, len, more, null_mut()) };
        let taken = accepted(ret)?;
        buf.consume(taken);
        Ok(taken)
    }

    /// Hands the data to be sent by reference to TCP, in one call.
    fn send_shared(&self, buf: &mut TxBuf, more: bool) -> Result<usize> {
        let runs = buf.shared();
        let len = runs.iter().map(|run| run.bv_len as usize).sum();
        let first = runs.as_ptr().cast_mut();
        let n = runs.len() as u32;
        // Memory of others is never sent without a mark.
        let mark = buf.marker().ok_or(EINVAL)?;
        // SAFETY: As in `send_copied()`; the elements are read only. The mark is valid during the
        // call; TCP takes references of its own.
        let ret = unsafe { bindings::soft_sk_send_pages(self.sk, first, n, len, more, mark) };
        let taken = accepted(ret)?;
        buf.consume_shared(taken);
        Ok(taken)
    }
}

/// The sender's sequence numbers, both read at the same time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SendSeq {
    /// The first byte that the peer has not acknowledged (`snd_una`).
    pub una: u32,
    /// The next byte that TCP will take (`write_seq`).
    pub next: u32,
}

impl SendSeq {
    /// The number of bytes that TCP has taken and the peer has not acknowledged.
    pub const fn queued(self) -> u32 {
        self.next.wrapping_sub(self.una)
    }
}

/// See [`SockView::sent`].
///
/// # Safety
///
/// `sk` must be valid.
pub(super) unsafe fn sent(sk: *const bindings::sock) -> SendSeq {
    SendSeq {
        // SAFETY: By the contract of this function.
        una: unsafe { bindings::sk_snd_una(sk) },
        // SAFETY: `sk` is valid by the contract of this function.
        next: unsafe { bindings::sk_write_seq(sk) },
    }
}

/// The number of bytes that TCP took, 0 if it has no space.
fn accepted(ret: ffi::c_int) -> Result<usize> {
    match usize::try_from(ret) {
        Ok(taken) => Ok(taken),
        Err(_) => match Error::from_errno(ret) {
            EAGAIN => Ok(0),
            e => Err(e),
        },
    }
}

impl Deref for SendSock {
    type Target = SockView;

    fn deref(&self) -> &SockView {
        &self.view
    }
}

/// A socket locked by [`Socket::lock`] or [`Socket::try_lock_bh`].
pub struct LockedSock<'a> {
    sock: SendSock,
    _socket: PhantomData<&'a Socket>,
}

impl<'a> LockedSock<'a> {
    /// # Safety
    ///
    /// `sk` must be the socket of a [`Socket`] that is borrowed for `'a`, locked by this context,
    /// as the process that owns it if `owned`, and else as in softirq; the lock passes to the
    /// guard.
    pub(super) unsafe fn new(sk: *mut bindings::sock, owned: bool) -> Self {
        Self {
            // SAFETY: By the contract of this function.
            sock: unsafe { SendSock::new(sk, owned) },
            _socket: PhantomData,
        }
    }
}

impl Deref for LockedSock<'_> {
    type Target = SendSock;

    fn deref(&self) -> &SendSock {
        &self.sock
    }
}

impl Drop for LockedSock<'_> {
    fn drop(&mut self) {
        if self.owned {
            // SAFETY: Locked that way, see `new()`.
            unsafe { bindings::soft_unlock_sock(self.sk) };
        } else {
            // SAFETY: Locked that way, see `new()`.
            unsafe { bindings::soft_unlock_sock_bh(self.sk) };
        }
    }
}

/// A socket that may be read and sent to, in [`data_ready`](super::SocketEvents::data_ready).
pub struct RxSock<'a> {
    sock: SendSock,
    _call: PhantomData<&'a mut SendSock>,
}

impl RxSock<'_> {
    /// # Safety
    ///
    /// As [`SockView::new`], and the caller is a `data_ready` callback.
    pub(super) unsafe fn new(sk: *mut bindings::sock) -> Self {
        Self {
            // SAFETY: By the contract of this function.
            sock: unsafe { SendSock::new(sk, false) },
            _call: PhantomData,
        }
    }

    /// Reads received data: `f` gets it range by range, and returns how many bytes of the range it
    /// consumed. Reading stops when `f` does not consume a whole range.
    ///
    /// Returns the number of bytes consumed. The rest comes again at the next call. Fails with
    /// EPROTO if the peer has sent urgent data, because nothing behind that can be read.
    pub fn read<F: FnMut(&mut Skb<'_>) -> usize>(&mut self, f: F) -> Result<usize> {
        let mut reader = Reader {
            f,
            sk: self.sk,
            stop: false,
        };
        // SAFETY: The socket is valid and locked by the type invariants of the view. The actor
        // fits the argument.
        let ret = unsafe {
            bindings::soft_sk_read(self.sk, (&raw mut reader).cast(), Some(Reader::<F>::actor))
        };
        usize::try_from(ret).map_err(|_| Error::from_errno(ret))
    }

    /// Whether nothing more will arrive: the peer has sent all its data, or the connection has
    /// ended. A frozen one has not.
    pub fn is_over(&self) -> bool {
        // SAFETY: The socket is valid and locked by the type invariants of the view.
        unsafe { bindings::soft_rx_over(self.sk) }
    }

    /// Whether nothing more can arrive until the received data is read: there is no room for it, or
    /// the connection is frozen.
    pub fn is_stuck(&self) -> bool {
        // SAFETY: The socket is valid and locked by the type invariants of the view.
        unsafe { bindings::soft_rx_stuck(self.sk) }
    }

    /// Sends a delayed acknowledgement now. In a bidirectional stream TCP delays it for up to 40
    /// ms, to send it with data.
    pub fn ack_now(&mut self) {
        // SAFETY: The socket is valid and locked by the type invariants of the view.
        unsafe { bindings::soft_sk_ack_now(self.sk) };
    }

    /// Acknowledges data that is received but not read, if it is more than a segment. TCP itself
    /// does so only for data that is read.
    pub fn ack_unread(&mut self) {
        // SAFETY: The socket is valid and locked by the type invariants of the view.
        unsafe { bindings::soft_sk_ack_unread(self.sk) };
    }
}

impl Deref for RxSock<'_> {
    type Target = SendSock;

    fn deref(&self) -> &SendSock {
        &self.sock
    }
}

/// The argument of the read actor.
struct Reader<F> {
    f: F,
    /// The socket, which is locked.
    sk: *mut bindings::sock,
    /// The last range was not consumed as a whole. `tcp_read_sock()` still offers the rest of its
    /// buffer.
    stop: bool,
}

impl<F: FnMut(&mut Skb<'_>) -> usize> Reader<F> {
    /// # Safety
    ///
    /// Called by `tcp_read_sock()` with a descriptor whose argument is a `Reader<F>`, a valid
    /// `skb`, and a range inside it.
    unsafe extern "C" fn actor(
        desc: *mut bindings::read_descriptor_t,
        skb: *mut bindings::sk_buff,
        offset: ffi::c_uint,
        len: usize,
    ) -> ffi::c_int {
        // SAFETY: The descriptor is valid.
        let arg = unsafe { (*desc).arg };
        // SAFETY: We set the pointer.
        let data = unsafe { arg.data };
        // SAFETY: It is a `Reader<F>`, which nobody else uses during the call.
        let this = unsafe { &mut *data.cast::<Self>() };
        if this.stop {
            return 0;
        }
        // Lengths of buffers fit an `int`.
        let len = len.min(ffi::c_int::MAX as usize);
        // SAFETY: The range is inside the buffer, which stays in the queue during the call.
        let mut range = unsafe { Skb::new(this.sk, skb, offset as usize, len) };
        let used = (this.f)(&mut range).min(len);
        this.stop = used < len;
        used as ffi::c_int
    }
}
