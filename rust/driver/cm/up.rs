// SPDX-License-Identifier: GPL-2.0

//! The stream: how a QP gets it, and how its end begins.

use super::super::{
    params::Silence,
    qp::{
        state::Phase,
        stream::StreamParams, //
    },
    Device,
    QpRef,
    Siw, //
};
use super::{
    endpoint::{
        Endpoint,
        Inner,
        Stage, //
    },
    to_event,
    Step, //
};
use base::{
    context,
    errno,
    sync::AccessOnce, //
};
use iwarp::{
    cm::{
        End,
        Input,
        Teardown, //
    },
    mpa::Established,
    qp::fsm::Event, //
};
use kernel::{
    prelude::*,
    sync::Arc, //
};
use rdma::iwcm::CmId;
use soft::tcp::{
    SendSock,
    Socket,
    TcpState, //
};

/// Further probes of an idle peer follow each other in this part of the time before the first.
const PROBES: u16 = 5;
/// With a session probes show that the path is lost: the seconds before the first, and between two.
const PROBES_OF_SESSION: (u16, u16) = (1, 1);

/// The queue pair `qpn`, if the caller may connect it.
///
/// The core takes the number from a program and does not check who owns the queue pair. A program
/// may connect only queue pairs that it has created itself. A kernel consumer runs in a kernel
/// thread, or in a program's system call (such as `mount`); in the latter case it has tied the
/// queue pair to `id`.
pub(super) fn find_qp(dev: &Device, id: &CmId<Siw>, qpn: u32) -> Result<QpRef> {
    let qp = dev.qps.get(qpn).ok_or(EINVAL)?;
    let allowed = context::in_kthread()
        || match &qp.owner {
            Some(owner) => owner.is_current(),
            None => id.has_qp(&qp),
        };
    allowed.then_some(qp).ok_or_else(errno::eacces)
}

impl Endpoint {
    /// Makes this the connection of `qp`, which must be new and wait for no other peer.
    pub(super) fn bind_new_qp(self: &Arc<Self>, qp: QpRef) -> Result {
        let waits = qp.pair.lock();
        if waits.is_some() {
            return Err(EINVAL);
        }
        self.bind_qp(qp.clone(), Phase::Idle)?;
        qp.managed.write_once(true);
        Ok(())
    }

    /// Makes this the connection of `qp`, whose phase must not be past `latest`.
    pub(super) fn bind_qp(self: &Arc<Self>, qp: QpRef, latest: Phase) -> Result {
        {
            let mut link = qp.link.lock();
            // `destroy_qp` leaves Idle before it looks at the link, so it cannot miss this
            // endpoint.
            if link.is_some() || qp.phase() > latest {
                return Err(EINVAL);
            }
            *link = Some(self.clone());
        }
        self.qp.populate(qp);
        Ok(())
    }

    /// Gives the connection to the QP, which then receives, and transmits unless it has to wait for
    /// the peer's first FPDU. `tell` sends the reply, if any, that lets the peer send.
    #[inline(never)] // The contexts of the QP are made on the stack.
    pub(super) fn start_stream(
        self: &Arc<Self>,
        inner: &mut Inner,
        est: &Established,
        tell: impl FnOnce(&SendSock) -> Result,
    ) -> Result {
        let qp = self.qp.as_ref().ok_or(EINVAL)?;
        if !inner.fsm.is_paired() {
            // The QP of a pair enters RTS when its program says so.
            qp.step(Event::Established)?;
        }
        self.watch_peer(&self.socket(), est.session.is_some())?;
        inner.depth = (to_event(est.ird), to_event(est.ord));
        qp.set_depths(est.ird, est.ord);
        let params = StreamParams {
            net: est.net,
            ird: u32::from(est.ird),
            ord: u32::from(est.ord),
            hold_tx: est.hold_tx,
            rtr: est.rtr,
        };
        qp.start(self, params, |sock| {
            tell(sock)?;
            self.set_stage(Stage::Stream);
            Ok(())
        })?;
        if let Some(offer) = &est.session {
            self.begin_session(inner, offer);
        }
        self.trace(Step::Up, &Ok(()));
        // Takes what arrived before the QP had the stream.
        self.socket().run_data_ready();
        if !est.hold_tx {
            qp.end_hold();
        }
        Ok(())
    }

    /// Bounds how long the peer may be silent.
    ///
    /// TCP probes only an idle peer. The user timeout bounds both that and the acknowledgement of
    /// data. Without one TCP counts probes and retransmissions (`tcp_keepalive_probes`,
    /// `tcp_retries2`).
    pub(super) fn watch_peer(&self, sock: &Socket, session: bool) -> Result {
        let Silence {
            keepalive,
            dead_after,
        } = self.dev.params.lock().silence;
        let (idle, interval) = match session {
            true => PROBES_OF_SESSION,
            false => (keepalive, (keepalive / PROBES).max(1)),
        };
        if idle != 0 {
            sock.set_keepalive(idle, interval)?;
            self.probing.begin(idle);
        }
        sock.set_user_timeout(dead_after)
    }

    /// Lets the QP transmit.
    pub(super) fn end_hold(&self) {
        if let Some(qp) = self.qp.as_ref() {
            qp.end_hold();
        }
    }

    /// Makes the QP receive what has arrived. If a datamover is doing that, [`Self::received`]
    /// wakes the endpoint afterwards. If `late`, this context receives instead of the datamover.
    pub(super) fn settle(&self, late: bool) -> Input<Error> {
        if let (true, Some(qp)) = (late, self.qp.as_ref()) {
            qp.receive_here();
        }
        self.socket().run_data_ready();
        let undelivered = {
            let socket = self.socket();
            let _locked = socket.lock();
            let qp = self.qp.as_ref();
            qp.is_some_and(|qp| qp.has_undelivered())
        };
        Input::Settled {
            late,
            unread: undelivered || self.unread(),
        }
    }

    /// A datamover has finished a deferred reception. Any context.
    pub(crate) fn received(self: &Arc<Self>) {
        if self.socket().state() != TcpState::Established {
            self.wake();
        }
    }

    /// Whether the socket holds unread bytes of the peer.
    pub(super) fn unread(&self) -> bool {
        self.socket().peek(&mut [0]).is_ok_and(|n| n > 0)
    }

    /// Ends the stream. `event` is for the QP, `how` for the connection.
    pub(super) fn end_stream(&self, event: Event, how: Teardown) {
        // Before a consumer can see that the QP is dead.
        if let Some(qp) = self.qp.as_ref() {
            qp.advance(Phase::Terminating);
        }
        self.step_qp(event);
        self.notes.lock().ask(how);
    }

    /// The QP has something to send, but its peer is gone. Any context.
    pub(crate) fn in_vain(self: &Arc<Self>) {
        self.notes.lock().send_in_vain();
        self.wake();
    }

    /// Closes the socket of a QP that was connected without a connection manager, and is quiet now.
    /// It stays as it is until it has something to send, see `super::pair`.
    pub(super) fn leave_alone(self: &Arc<Self>, inner: &mut Inner, end: End) {
        let Some(qp) = self.qp.as_ref() else { return };
        qp.peer_gone();
        self.end_socket(inner, end);
        if let End::Fin = end {
            self.fin_or_reset();
        }
        qp.advance(Phase::PeerGone);
        // Work requests posted before the phase changed have not been noticed.
        if qp.is_busy() {
            self.in_vain();
        }
    }
}
