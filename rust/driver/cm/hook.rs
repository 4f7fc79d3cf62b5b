// SPDX-License-Identifier: GPL-2.0

//! The callbacks of a connection's sockets.

use super::endpoint::{
    Endpoint,
    Stage, //
};
use iwarp::cm::Cause;
use kernel::{
    prelude::*,
    sync::{
        atomic::{
            Acquire,
            Atomic,
            Release, //
        },
        Arc, //
    }, //
};
use soft::tcp::{
    RxSock,
    SendSock,
    SockView,
    SocketEvents,
    TcpState, //
};

/// A socket's hold on the endpoint. The callbacks need a counted reference to queue it.
pub(super) struct Hook {
    ep: Arc<Endpoint>,
    /// The socket is the connection's. It may be about to become that.
    is_carrier: Atomic<bool>,
}

impl Hook {
    pub(super) fn new(ep: &Arc<Endpoint>, is_carrier: bool) -> Result<Arc<Self>> {
        let hook = Self {
            ep: ep.clone(),
            is_carrier: Atomic::new(is_carrier),
        };
        Ok(Arc::new(hook, GFP_KERNEL_ACCOUNT)?)
    }

    /// From now on the socket is the connection's.
    pub(super) fn take_over(&self) {
        self.is_carrier.store(true, Release);
    }

    /// The endpoint, unless the socket is not its own.
    fn ep(&self) -> Option<&Arc<Endpoint>> {
        let is_carrier = self.is_carrier.load(Acquire);
        if !is_carrier {
            self.ep.wake();
        }
        is_carrier.then_some(&self.ep)
    }
}

impl SocketEvents for Hook {
    fn data_ready(&self, sk: &mut RxSock<'_>) {
        let Some(ep) = self.ep() else { return };
        match ep.stage() {
            // In `Closed`, a peer that goes on sending may rule out an orderly end.
            Stage::Handshake | Stage::Closed => ep.wake(),
            Stage::Stream => {
                if let Some(qp) = ep.qp.as_ref() {
                    qp.rx_ready(sk);
                }
            }
            Stage::Terminating => {}
        }
    }

    fn write_space(&self, sk: &SockView, tx: Option<&SendSock>) {
        let Some(ep) = self.ep() else {
            return sk.clear_nospace();
        };
        match (ep.stage(), ep.qp.as_ref()) {
            (Stage::Stream, Some(qp)) => qp.tx_space(sk, tx),
            (Stage::Terminating, _) if sk.space() == 0 => {}
            (stage, _) => {
                sk.clear_nospace();
                if stage == Stage::Terminating {
                    ep.wake();
                }
            }
        }
    }

    fn state_change(&self, sk: &SockView) {
        let Some(ep) = self.ep() else { return };
        // The error is kept for the status of the CLOSE upcall, because the next call into the
        // socket may clear it. An error after our FIN is not the cause of the end.
        let stage = ep.stage();
        if let (TcpState::Close, Some(e), true) = (sk.state(), sk.error(), stage != Stage::Closed) {
            let first = ep.notes.lock().note(Cause::Host(e));
            if first && stage != Stage::Handshake {
                ep.count_loss(e);
            }
        }
        ep.wake();
    }

    fn error_report(&self, sk: &SockView) {
        self.state_change(sk);
    }
}
