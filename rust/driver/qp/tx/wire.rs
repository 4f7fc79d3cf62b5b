// SPDX-License-Identifier: GPL-2.0

//! The sockets that the owner of the token may hold. The formats on the wire are `iwarp::wire`.

use crate::kapi::net::{
    LockedSock,
    Replay,
    RxSock,
    SockView,
    TxBuf,
    TxSock, //
};
use core::ops::Deref;
use kernel::prelude::*;

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

/// Bytes that TCP takes at present. If none, asks for `write_space`.
pub(super) fn send_space(sock: &SockView) -> usize {
    match sock.space() {
        0 => {
            sock.set_nospace();
            sock.space()
        }
        space => space,
    }
}
