// SPDX-License-Identifier: GPL-2.0

//! The sockets that the owner of the token may hold. The formats on the wire are `iwarp::wire`.

use core::ops::Deref;
use kernel::prelude::*;
use soft::tcp::{
    LockedSock,
    Replay,
    RxSock,
    SockView,
    TxBuf,
    TxSock, //
};

/// A locked socket that can send.
pub(super) trait Wire: Deref<Target = SockView> {
    fn push(&mut self, buf: &mut TxBuf, more: bool) -> Result<usize>;

    fn push_again(&mut self, replay: &mut Replay, more: bool) -> Result<usize>;

    /// Has TCP process its backlog, if that would otherwise wait for the end of the turn.
    fn flush_backlog(&mut self) {}
}

impl Wire for LockedSock<'_> {
    #[inline]
    fn push(&mut self, buf: &mut TxBuf, more: bool) -> Result<usize> {
        self.send(buf, more)
    }

    fn push_again(&mut self, replay: &mut Replay, more: bool) -> Result<usize> {
        self.send_again(replay, more)
    }

    #[inline]
    fn flush_backlog(&mut self) {
        LockedSock::flush_backlog(self);
    }
}

impl Wire for TxSock<'_> {
    #[inline]
    fn push(&mut self, buf: &mut TxBuf, more: bool) -> Result<usize> {
        self.send(buf, more)
    }

    fn push_again(&mut self, replay: &mut Replay, more: bool) -> Result<usize> {
        self.send_again(replay, more)
    }
}

impl Wire for RxSock<'_> {
    #[inline]
    fn push(&mut self, buf: &mut TxBuf, more: bool) -> Result<usize> {
        self.send(buf, more)
    }

    fn push_again(&mut self, replay: &mut Replay, more: bool) -> Result<usize> {
        self.send_again(replay, more)
    }
}

/// Bytes that TCP takes at present: none, unless `least` or [enough](is_enough) are free. If none,
/// asks for `write_space`.
pub(super) fn send_space(sock: &SockView, least: usize) -> usize {
    let free = || match sock.space() {
        space if space >= least || is_enough(sock) => space,
        _ => 0,
    };
    match free() {
        0 => {
            sock.set_nospace();
            free()
        }
        space => space,
    }
}

/// Whether TCP has enough space to make a turn worthwhile. A turn for each acknowledged segment
/// would send little. The socket's flag stays set until a good part of the buffer is free, so the
/// next ACK asks again.
pub(super) fn is_enough(sk: &SockView) -> bool {
    sk.space() >= sk.sndbuf() / 4 || sk.wmem_queued() == 0
}
