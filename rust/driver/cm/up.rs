// SPDX-License-Identifier: GPL-2.0

//! The stream: how a QP gets it, and how its end begins.

use super::{
    super::{
        qp::{
            state::Phase,
            stream::StreamParams, //
        },
        Device,
        QpRef,
        Siw, //
    },
    endpoint::{
        Endpoint,
        Inner,
        Stage, //
    },
    to_event,
    Step, //
};
use crate::kapi::{
    context,
    errno,
    net::{
        LockedSock,
        Shutdown,
        TcpState, //
    },
    rdma::CmId, //
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

/// A peer that is silent while the connection is idle is found dead after 20 s: probes after 10 s,
/// every 2 s, 5 of them.
const KEEPALIVE: (u16, u16, u8) = (10, 2, 5);
/// The same while data is in flight, where TCP sends no probes.
const USER_TIMEOUT_MS: u32 = 20_000;

/// The queue pair of that number, if it is the caller's to connect.
///
/// The core takes the number from a program and does not ask whose it is. A program may name what
/// it has made itself; a kernel consumer runs in a thread of the kernel, or (as in a `mount`) in a
/// program's system call, and then it has tied the queue pair to `id`.
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
    /// Makes this the connection of `qp`, which has come to `latest` at the most.
    pub(super) fn bind_qp(self: &Arc<Self>, qp: QpRef, latest: Phase) -> Result {
        {
            let mut link = qp.link.lock();
            // `destroy_qp` leaves Idle before it looks at the link, so it cannot miss us.
            if link.is_some() || qp.phase() > latest {
                return Err(EINVAL);
            }
            *link = Some(self.clone());
        }
        self.qp.populate(qp);
        Ok(())
    }

    /// Gives the QP the connection: it receives, and it transmits if it need not wait for the
    /// peer's first FPDU. `tell` lets the peer send, if it could not before.
    #[inline(never)] // The contexts of the QP are made on the stack.
    pub(super) fn start_stream(
        self: &Arc<Self>,
        inner: &mut Inner,
        est: &Established,
        tell: impl FnOnce(&mut LockedSock<'_>) -> Result,
    ) -> Result {
        let qp = self.qp.as_ref().ok_or(EINVAL)?;
        if !inner.fsm.is_paired() {
            // Else the program says when it is in RTS.
            qp.step(Event::Established)?;
        }
        let (idle, interval, count) = KEEPALIVE;
        self.sock.set_keepalive(idle, interval, count)?;
        self.sock.set_user_timeout(USER_TIMEOUT_MS)?;
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
        self.trace(Step::Up, &Ok(()));
        // What was there already.
        self.sock.run_data_ready();
        if !est.hold_tx {
            qp.end_hold();
        }
        Ok(())
    }

    /// The QP need not be silent any more.
    pub(super) fn end_hold(&self) {
        if let Some(qp) = self.qp.as_ref() {
            qp.end_hold();
        }
    }

    /// Has the QP take what has come, unless a datamover is doing that: then [`Self::received`]
    /// tells. If `late` it is done here.
    pub(super) fn settle(&self, late: bool) -> Input<Error> {
        if let (true, Some(qp)) = (late, self.qp.as_ref()) {
            qp.receive_here();
        }
        self.sock.run_data_ready();
        Input::Settled {
            late,
            unread: self.unread(),
        }
    }

    /// A datamover has received the rest of what was too much at once. Any context.
    pub(crate) fn received(self: &Arc<Self>) {
        if self.sock.state() != TcpState::Established {
            self.wake();
        }
    }

    /// Whether there are bytes of the peer that nobody has taken.
    pub(super) fn unread(&self) -> bool {
        self.sock.peek(&mut [0]).is_ok_and(|n| n > 0)
    }

    /// The stream is over: `event` is for the QP, `how` for the connection.
    pub(super) fn end_stream(&self, event: Event, how: Teardown) {
        // Before a consumer can see that the QP is dead.
        if let Some(qp) = self.qp.as_ref() {
            qp.advance(Phase::Terminating);
        }
        self.step_qp(event);
        self.notes.lock().ask(how);
    }

    /// The QP has something to send, and no peer any more. Any context.
    pub(crate) fn in_vain(self: &Arc<Self>) {
        self.notes.lock().send_in_vain();
        self.wake();
    }

    /// Closes the socket of a QP that was connected without a connection manager and does not care
    /// as long as it has nothing to send, see `super::pair`.
    pub(super) fn leave_alone(self: &Arc<Self>, inner: &mut Inner, end: End) {
        let Some(qp) = self.qp.as_ref() else { return };
        qp.peer_gone();
        self.quiesce();
        self.end_socket(inner, end);
        if let End::Fin = end {
            let _ = self.sock.shutdown(Shutdown::Send);
        }
        qp.advance(Phase::PeerGone);
        // Somebody who has posted before that has found nobody to care for it.
        if qp.is_busy() {
            self.in_vain();
        }
    }
}
