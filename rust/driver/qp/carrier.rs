// SPDX-License-Identifier: GPL-2.0

//! The stream goes from one TCP connection, its carrier, to another one.
//!
//! Positions count the bytes of each direction from the first FPDU. While the stream has no
//! carrier, the token is suspended (`iwarp::qp::owner`), so the transmit state is at rest, and the
//! socket of the last carrier is frozen, so nothing comes in.

use super::Qp;
use crate::QpObj;
use base::{
    errno,
    sync::AccessOnce, //
};
use iwarp::{
    qp::owner::{
        self,
        Action, //
    },
    wire::session::Positions, //
};
use kernel::{
    prelude::*,
    sync::Arc, //
};
use soft::tcp::{
    SendSock,
    Socket, //
};

impl Qp {
    /// Suspends transmission. `false` if somebody is still sending, who leaves soon, or if the
    /// stream has ended.
    pub(crate) fn suspend_tx(self: &QpObj) -> bool {
        let action = self.stream.step(owner::INITIAL, owner::suspend);
        matches!(action, Action::Released)
    }

    /// Lets the QP transmit again.
    pub(crate) fn resume_tx(self: &QpObj) {
        if let Action::Enqueue = self.stream.step(owner::INITIAL, owner::resume) {
            self.enqueue_mover(self.stream.home.read_once());
        }
    }

    /// Gives up the carrier, on which the stream began at `base`. What it may not have delivered is
    /// kept. Transmission is suspended. Fails with `ENOTCONN` if the connection has ended. Sleeps.
    pub(crate) fn give_up(self: &QpObj, carrier: &Arc<Socket>, base: u64) -> Result {
        let frozen = carrier.freeze()?;
        let Some(mut tx) = self.stream.tx.take() else {
            frozen.thaw();
            return Err(ENOMEM);
        };
        let sent = carrier.sent();
        self.retire_acked(sent);
        // TCP may have bytes in front of those of the stream: the handshake.
        let here = tx.with_tcp().saturating_sub(base);
        let kept = tx.keep(frozen, here.min(sent.queued().into()));
        self.stream.tx.put(tx);
        kept.map_err(|frozen| {
            frozen.thaw();
            ENOMEM
        })
    }

    /// Where the stream is, on a carrier on which it began at `base`. Sleeps.
    pub(crate) fn positions(self: &QpObj, carrier: &Socket, base: u64) -> Positions {
        let locked = carrier.lock();
        let sent = self.stream.sent.read_once();
        let with_tcp = sent.saturating_sub(self.stream.kept.read_once());
        let queued = u64::from(locked.sent().queued());
        let here = with_tcp.saturating_sub(base);
        Positions {
            rx: self.rx_position(),
            una: with_tcp.saturating_sub(here.min(queued)),
            sent,
        }
    }

    /// Where the stream is without a carrier; `frozen` is the last one. Sleeps.
    pub(crate) fn positions_parted(self: &QpObj, frozen: &Socket) -> Positions {
        // A datamover may still be receiving from it.
        let _locked = frozen.lock();
        let Some(tx) = self.stream.tx.take() else {
            return Positions::default();
        };
        let (sent, kept) = (tx.accepted(), tx.kept());
        self.stream.tx.put(tx);
        Positions {
            rx: self.rx_position(),
            una: sent.saturating_sub(kept),
            sent,
        }
    }

    /// Bytes received. The caller excludes reception.
    fn rx_position(self: &QpObj) -> u64 {
        let Some(rx) = self.stream.rx.take() else {
            return 0;
        };
        let position = rx.position();
        self.stream.rx.put(rx);
        position
    }

    /// Goes over to `carrier`; the peer has the first `skip` of the bytes that are kept. `tell`
    /// sends what precedes the stream. Returns the position of the first byte on this carrier.
    /// Nothing is sent before [`Self::resume_tx`]. Sleeps.
    pub(crate) fn go_over(
        self: &QpObj,
        carrier: &Arc<Socket>,
        skip: u64,
        tell: impl FnOnce(&SendSock) -> Result,
    ) -> Result<u64> {
        let mut tx = self.stream.tx.take().ok_or_else(errno::econnaborted)?;
        let mut locked = carrier.lock();
        let result = tell(&mut locked).map(|()| tx.go_over(carrier, skip));
        if let Ok(base) = result {
            self.stream.sent.write_once(tx.accepted());
            self.stream.kept.write_once(tx.kept());
            // Acknowledgements are from now on those of this carrier.
            self.retire_upto(base, &locked);
        }
        self.stream.tx.put(tx);
        result
    }
}
