// SPDX-License-Identifier: GPL-2.0

//! The end of a connection.
//!
//! The order matters (it is what makes a flush mean something): receiving stops, transmitting
//! stops, a Terminate that is due goes out, the connection is drained for a bounded time or reset,
//! the QP goes to ERROR, its work requests are flushed, and only then the core is told. So once the
//! first flush completion is seen no byte of the stream is given to IP any more, and none is
//! placed: an orphan socket that goes on retransmitting would let old Writes reach the peer after
//! the application has started over on another connection.
//!
//! What of this the peer can hold up is a state of the endpoint, with a deadline.

use super::super::{
    qp::{end::terminate::Progress, state::Phase},
    stats::Counter,
    Siw,
};
use super::{
    endpoint::{shown, Endpoint, Handshake, Inner, Owed, Stage, State},
    Step,
};
use crate::kapi::{
    errno,
    net::{Shutdown, TcpState},
    rdma::{CmEvent, CmId},
};
use iwarp::qp::fsm::Event;
use kernel::{prelude::*, sync::Arc, time::Msecs};

/// How long a graceful end waits for the peer to acknowledge all.
const GRACEFUL_MS: Msecs = 5_000;
/// How long a Terminate, or what was sent before a local end, may take to arrive.
const LOCAL_MS: Msecs = 1_000;
/// How long the peer has to take what was under way before a Terminate, and how long until TCP is asked
/// again that had no memory.
const TERMINATE_MS: Msecs = 500;
const MEMORY_MS: Msecs = 5;
/// How long what TCP has acknowledged may take to be placed before the peer's FIN is acted upon.
const SETTLE_MS: Msecs = 5_000;

/// How long a QP without a connection manager sends in vain before it knows that its peer is gone: about what the attributes
/// of most programs are for InfiniBand. A program may be done meanwhile with what its peer has sent on other queue pairs, as
/// `ibv_srq_pingpong` is, which sends more than it waits for.
const VAIN_MS: Msecs = 500;

/// How a connection is to end, in rising strength; of two requests the stronger wins.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Teardown {
    /// SQD, `rdma_disconnect`: FIN, and time for all that was sent to arrive.
    Graceful,
    /// ERR, QP destroyed, FIN of the peer: FIN, and a short time for what was sent.
    Local,
    /// The QP has a Terminate to send.
    Terminate,
    /// RST at once. The error is the status of the CLOSE event.
    Abort(Error),
}

impl Teardown {
    fn strength(self) -> u8 {
        match self {
            Self::Graceful => 1,
            Self::Local => 2,
            Self::Terminate => 3,
            Self::Abort(_) => 4,
        }
    }
}

/// How the socket ends.
#[derive(Clone, Copy)]
pub(super) enum End {
    /// It has ended, or all that is left to do for TCP is to wait.
    Drained,
    /// All we sent is acknowledged, but for the FIN that is still to go.
    Fin,
    /// With an RST.
    Reset,
}

/// Notes from any context about the end of a connection.
pub(super) struct Close {
    how: Option<Teardown>,
    /// First reason the connection failed.
    cause: Option<Error>,
    /// The QP has something to send, and no peer any more.
    vain: bool,
}

impl Close {
    pub(super) fn new() -> Self {
        Self {
            how: None,
            cause: None,
            vain: false,
        }
    }

    fn raise(&mut self, how: Teardown) {
        if let Teardown::Abort(e) = how {
            self.cause.get_or_insert(e);
        }
        if self.how.map_or(0, Teardown::strength) < how.strength() {
            self.how = Some(how);
        }
    }

    fn status(&self) -> Result {
        match (self.cause, self.how) {
            (Some(e), _) => Err(e),
            (None, Some(Teardown::Terminate)) => Err(errno::eproto()),
            _ => Ok(()),
        }
    }
}

impl Endpoint {
    /// Asks for the end of the connection. Any context; idempotent.
    pub(crate) fn request_teardown(self: &Arc<Self>, how: Teardown) {
        self.close.lock().raise(how);
        self.wake();
    }

    /// Ends the connection and waits until it is over: the QP is flushed and the core has been
    /// told. Sleeps, for a second and a half at most.
    pub(crate) fn teardown_sync(self: &Arc<Self>) {
        self.request_teardown(Teardown::Local);
        self.wait_closed();
    }

    pub(super) fn wait_closed(&self) {
        self.closed.wait_for_completion();
    }

    pub(super) fn teardown_asked(&self) -> Option<Teardown> {
        self.close.lock().how
    }

    /// Keeps the first reason. Any context.
    pub(super) fn note_cause(&self, e: Error) {
        self.close.lock().cause.get_or_insert(e);
    }

    /// Puts a better reason in the place of what the socket said.
    pub(super) fn set_cause(&self, e: Error) {
        self.close.lock().cause = Some(e);
    }

    pub(super) fn cause(&self) -> Option<Error> {
        self.close.lock().cause
    }

    /// The stream is up: look for its end, or for the first FPDU if that is still to come.
    pub(super) fn turn_up(self: &Arc<Self>, inner: &mut Inner) -> bool {
        if self.seen_fpdu() {
            self.disarm(inner);
        }
        if let Some(how) = self.teardown_asked() {
            return self.begin_teardown(inner, how);
        }
        if self.sock.state() != TcpState::Established {
            inner.state = State::Settling;
            self.arm(inner, SETTLE_MS);
            return true;
        }
        if !self.expired(inner) {
            return false;
        }
        if inner.rtr_due {
            self.dev.stats.inc(Counter::Timeouts);
            self.close.lock().raise(Teardown::Abort(ETIMEDOUT));
            return true;
        }
        self.disarm(inner);
        if let Some(qp) = self.qp.as_ref() {
            qp.end_hold();
        }
        false
    }

    /// The stream has come to its end. What TCP has acknowledged the peer counts as delivered: first the
    /// QP is to consume that.
    pub(super) fn turn_settling(self: &Arc<Self>, inner: &mut Inner) -> bool {
        if let Some(how) = self.teardown_asked() {
            return self.begin_teardown(inner, how);
        }
        let late = self.expired(inner);
        if let (true, Some(qp)) = (late, self.qp.as_ref()) {
            qp.receive_here();
        }
        // Takes all there is, unless a datamover is to go on: then that tells, see `received`.
        self.sock.run_data_ready();
        if self.teardown_asked().is_some() {
            return true;
        }
        if self.unread() && !late {
            return false;
        }
        if self.leave_alone(inner) {
            return true;
        }
        // Before a consumer can see that the QP is dead.
        if let Some(qp) = self.qp.as_ref() {
            qp.advance(Phase::Terminating);
        }
        let (event, how) = match self.sock.state() {
            TcpState::CloseWait => (Event::PeerClosed, Teardown::Local),
            _ => {
                let cause = self.cause().unwrap_or_else(errno::econnreset);
                (Event::LlpLost, Teardown::Abort(cause))
            }
        };
        self.step_qp(event);
        self.close.lock().raise(how);
        true
    }

    /// A datamover has received the rest of what was too much at once. Any context.
    pub(crate) fn received(self: &Arc<Self>) {
        if self.sock.state() != TcpState::Established {
            self.wake();
        }
    }

    /// The QP has something to send, and no peer any more. Any context.
    pub(crate) fn in_vain(self: &Arc<Self>) {
        self.close.lock().vain = true;
        self.wake();
    }

    /// The QP has lost its peer; look whether it is time for it to know.
    pub(super) fn turn_alone(self: &Arc<Self>, inner: &mut Inner) -> bool {
        let (asked, vain) = {
            let close = self.close.lock();
            (close.how.is_some(), close.vain)
        };
        if asked || self.expired(inner) {
            self.finish(inner, End::Drained);
        } else if vain && !inner.is_armed() {
            self.arm(inner, VAIN_MS);
        }
        false
    }

    /// Whether there are bytes of the peer that nobody has taken.
    fn unread(&self) -> bool {
        self.sock.peek(&mut [0]).is_ok_and(|n| n > 0)
    }

    /// Reports to the QP's state machine. What it would have us do is done in any case.
    fn step_qp(&self, event: Event) {
        if let Some(qp) = self.qp.as_ref() {
            let _ = qp.step(event);
        }
    }

    fn begin_teardown(self: &Arc<Self>, inner: &mut Inner, how: Teardown) -> bool {
        self.trace(Step::Teardown, &self.close.lock().status());
        self.quiesce();
        match how {
            Teardown::Graceful => self.start_draining(inner, GRACEFUL_MS),
            // Nothing of ours is on its way, so there is nothing to wait for.
            Teardown::Local if self.sock.sent().queued() == 0 => {
                self.finish(inner, End::Fin);
                false
            }
            Teardown::Local => self.drain_briefly(inner),
            Teardown::Terminate if self.qp.as_ref().is_some_and(|qp| qp.begin_terminate()) => {
                self.set_stage(Stage::Terminating);
                inner.state = State::Terminating;
                self.arm(inner, TERMINATE_MS);
                true
            }
            Teardown::Terminate | Teardown::Abort(_) => self.reset(inner),
        }
    }

    /// Has TCP taken the Terminate?
    pub(super) fn turn_terminating(self: &Arc<Self>, inner: &mut Inner) -> bool {
        let Some(qp) = self.qp.as_ref() else {
            return self.reset(inner);
        };
        let pause = match qp.push_terminate(&self.sock) {
            Progress::Sent => return self.drain_briefly(inner),
            // Until the deadline, if nothing else comes.
            Progress::NoSpace => TERMINATE_MS,
            Progress::NoMemory => MEMORY_MS,
            Progress::Lost => return self.reset(inner),
        };
        let hopeless = matches!(self.teardown_asked(), Some(Teardown::Abort(_)));
        if hopeless || self.expired(inner) {
            return self.reset(inner);
        }
        self.look_again(inner, pause);
        false
    }

    /// Ends the connection with an RST.
    fn reset(self: &Arc<Self>, inner: &mut Inner) -> bool {
        self.dev.stats.inc(Counter::Aborts);
        self.finish(inner, End::Reset);
        false
    }

    /// Leaves it to the peer to close, for a short time: our refusal must not be overtaken by the
    /// end of the connection, and not every peer reads on when it has seen that.
    pub(super) fn await_close(self: &Arc<Self>, inner: &mut Inner) {
        self.set_stage(Stage::Closed);
        inner.hurried = true;
        inner.state = State::Draining;
        self.arm(inner, LOCAL_MS);
    }

    /// Gives a Terminate, or what was sent before a local end, a short time to arrive.
    pub(super) fn drain_briefly(self: &Arc<Self>, inner: &mut Inner) -> bool {
        inner.hurried = true;
        self.start_draining(inner, LOCAL_MS)
    }

    /// Sends our FIN and leaves it to [`Self::turn_draining`] to see it acknowledged, with all
    /// before it.
    fn start_draining(self: &Arc<Self>, inner: &mut Inner, ms: Msecs) -> bool {
        self.set_stage(Stage::Closed);
        if !self.sock.state().is_open() || self.sock.shutdown(Shutdown::Send).is_err() {
            self.finish(inner, End::Reset);
            return false;
        }
        inner.state = State::Draining;
        self.arm(inner, ms);
        true
    }

    pub(super) fn turn_draining(self: &Arc<Self>, inner: &mut Inner) -> bool {
        let asked = self.teardown_asked();
        // A QP that is to be destroyed does not wait as long as one that is only to be
        // disconnected.
        let hurry = asked.map_or(0, Teardown::strength) >= Teardown::Local.strength();
        let end = match self.sock.state() {
            TcpState::TimeWait | TcpState::Close => End::Drained,
            // Only after `await_close`; else our FIN is out.
            TcpState::CloseWait => End::Fin,
            // All is acknowledged. An orderly close also waits for the peer's FIN: when we report
            // the end, the peer has done so, too.
            // It cannot come if there is more before it than we let in.
            TcpState::FinWait2 if hurry || inner.hurried || self.unread() => End::Drained,
            _ if matches!(asked, Some(Teardown::Abort(_))) => End::Reset,
            _ if self.expired(inner) => {
                self.dev.stats.inc(Counter::DrainTimeouts);
                End::Reset
            }
            _ => {
                if hurry && !inner.hurried {
                    inner.hurried = true;
                    self.arm(inner, LOCAL_MS);
                }
                return false;
            }
        };
        self.finish(inner, end);
        false
    }

    /// When it returns the QP neither places nor sends anything.
    pub(super) fn quiesce(&self) {
        if let Some(qp) = self.qp.as_ref() {
            qp.stop_rx();
            qp.stop_tx();
        }
    }

    /// The last act, from any state: after it the endpoint is only memory.
    pub(super) fn finish(self: &Arc<Self>, inner: &mut Inner, end: End) {
        self.quiesce();
        self.end_socket(inner, end);
        if let Some(qp) = self.qp.as_ref() {
            self.step_qp(Event::Closed);
            qp.enter_error();
            qp.flushed();
        }
        self.tell_end(inner);
        // The core's reference goes only after the last upcall.
        inner.cm_id = None;
        if let End::Fin = end {
            // Not before: the peer may answer it with its next connection request, and the core is
            // to hear of this end first.
            let _ = self.sock.shutdown(Shutdown::Send);
        }
        self.trace(Step::Closed, &self.close.lock().status());
        self.retire();
    }

    /// Ends the connection.
    pub(super) fn end_socket(self: &Arc<Self>, inner: &mut Inner, end: End) {
        inner.state = State::Closed;
        self.set_stage(Stage::Closed);
        self.disarm(inner);
        self.sock.detach();
        if let End::Reset = end {
            self.sock
                .abort(self.cause().unwrap_or_else(errno::econnaborted));
        }
        self.leave_listener(inner);
    }

    /// Takes the endpoint off the books; whoever waits for its end goes on.
    pub(super) fn retire(&self) {
        if let Some(qp) = self.qp.as_ref() {
            let link = qp.link.lock().take();
            drop(link);
        }
        self.dev.endpoints.remove(self.id);
        self.closed.complete_all();
    }

    /// Tells the core that the connection is no more.
    fn tell_end(&self, inner: &mut Inner) {
        if let Some(pair) = inner.pair.take() {
            pair.retry();
        }
        let status = self.close.lock().status();
        let hs = core::mem::replace(&mut inner.hs, Handshake::None);
        let Some(id) = &inner.cm_id else { return };
        match inner.owed {
            Owed::Close => {
                let _ = id.upcall(CmEvent::Close { status });
            }
            Owed::Reply => {
                self.dev.stats.inc(Counter::ConnectFailures);
                let e = status.err().unwrap_or_else(errno::econnreset);
                // The reason a peer gives for its refusal is in the private data.
                let refused = match &hs {
                    Handshake::Initiator(machine, _) if e == errno::econnrefused() => {
                        shown(machine.private_data())
                    }
                    _ => &[],
                };
                // Without memory to copy the private data the core must still be told.
                if tell_refused(id, e, refused).is_err() {
                    let _ = tell_refused(id, e, &[]);
                }
            }
            Owed::Nothing => {}
        }
        inner.owed = Owed::Nothing;
    }
}

fn tell_refused(id: &CmId<Siw>, e: Error, pdata: &[u8]) -> Result {
    id.upcall(CmEvent::ConnectReply {
        status: Err(e),
        local: id.local_addr()?,
        remote: id.remote_addr()?,
        ird: 0,
        ord: 0,
        pdata,
    })
}
