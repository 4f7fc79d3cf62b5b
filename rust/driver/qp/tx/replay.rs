// SPDX-License-Identifier: GPL-2.0

//! The stream goes on over another connection: what TCP may not have delivered is sent again.

use super::{
    space::send_space,
    TxCtx,
    LOOK, //
};
use crate::{
    qp::end::Cause,
    QpObj, //
};
use iwarp::qp::owner::Leave;
use kernel::{
    prelude::*,
    sync::Arc, //
};
use soft::tcp::{
    Frozen,
    SendSock,
    Socket, //
};

impl TxCtx {
    /// Position of the stream up to which the TCP of this connection has it.
    pub(in crate::qp) fn with_tcp(&self) -> u64 {
        self.framer.accepted.saturating_sub(self.replay.left())
    }

    /// Keeps the last `len` bytes that TCP took on a connection that is given up. Sleeps.
    pub(in crate::qp) fn keep(&mut self, socket: Frozen, len: u64) -> Result<(), Frozen> {
        self.replay.put_first(socket, len)
    }

    /// Bytes that are kept.
    pub(in crate::qp) fn kept(&self) -> u64 {
        self.replay.left()
    }

    /// Goes over to another connection. The peer has the first `skip` of the bytes that are kept.
    /// Returns the position of the next byte.
    pub(in crate::qp) fn go_over(&mut self, sock: &Arc<Socket>, skip: u64) -> u64 {
        self.replay.skip(skip);
        self.sock = sock.clone();
        self.with_tcp()
    }

    pub(super) fn push_again(&mut self, sock: &SendSock) -> Result<usize> {
        let more = self.framer.pending() != 0;
        sock.send_again(&mut self.replay, more)
    }

    /// Sends what is kept. Returns why the owner has to leave before all of it is with TCP.
    #[cold]
    #[inline(never)]
    pub(super) fn send_again(
        &mut self,
        qp: &QpObj,
        sock: &SendSock,
        budget: &mut usize,
    ) -> Option<Leave> {
        if send_space(sock, 1) == 0 {
            return Some(Leave::Space);
        }
        let sent = match self.push_again(sock) {
            Ok(sent) => sent,
            Err(error) => {
                qp.fail(Cause::Lost(error));
                return Some(Leave::Hold);
            }
        };
        self.retire(qp, sock);
        *budget = budget.saturating_sub(sent.max(LOOK));
        if self.replay.is_empty() {
            return None;
        }
        Some(match send_space(sock, 1) {
            0 => Leave::Space,
            // TCP has space but no memory.
            _ if sent == 0 => qp.starve(),
            _ => Leave::Budget,
        })
    }
}
