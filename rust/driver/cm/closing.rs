// SPDX-License-Identifier: GPL-2.0

//! The end of a connection.
//!
//! The order gives a flush its meaning: reception stops, transmission stops, a Terminate that is
//! due is sent, the connection is drained for a bounded time or reset, the QP goes to ERROR, its
//! work requests are flushed, and then the core gets its event. So after the first flush completion
//! no byte of the stream is given to IP, and none is placed. Otherwise an orphaned socket could
//! retransmit old Writes after the application has started over on another connection.
//!
//! Each step that the peer can delay is a state of the endpoint, with a deadline.

use super::super::qp::end::terminate::Progress;
use super::{
    endpoint::{
        Endpoint,
        Handshake,
        Inner,
        Stage, //
    },
    Step,
    Teardown, //
};
use crate::stats::Counter;
use base::errno;
use iwarp::{
    cm::{
        self,
        Cause,
        End,
        Input,
        Owed,
        Pushed, //
    },
    qp::fsm::Event, //
};
use kernel::{
    prelude::*,
    sync::Arc, //
};
use rdma::iwcm::CmEvent;

fn errno(cause: Cause<Error>) -> Error {
    match cause {
        Cause::TimedOut => ETIMEDOUT,
        Cause::Reset => errno::econnreset(),
        Cause::Aborted => errno::econnaborted(),
        Cause::Rejected => errno::econnrefused(),
        Cause::Protocol => errno::eproto(),
        Cause::Host(e) => e,
    }
}

impl Endpoint {
    /// Asks for the end of the connection. Any context; idempotent.
    pub(crate) fn request_teardown(self: &Arc<Self>, how: Teardown) {
        self.notes.lock().raise(how);
        self.wake();
    }

    /// Ends the connection and waits until the QP is flushed and the core has its event. Sleeps,
    /// for 1.5 s at most.
    pub(crate) fn teardown_sync(self: &Arc<Self>) {
        self.request_teardown(Teardown::Local);
        self.wait_closed();
    }

    pub(super) fn wait_closed(&self) {
        self.closed.wait_for_completion();
    }

    /// Status of the last event.
    fn status(&self) -> Result {
        self.notes.lock().status().map_err(errno)
    }

    /// Gives `event` to the QP's state machine. The result is ignored, because the teardown does
    /// everything that it could ask for.
    pub(super) fn step_qp(&self, event: Event) {
        if let Some(qp) = self.qp.as_ref() {
            let _ = qp.step(event);
        }
    }

    /// Stops the QP: after this it neither places nor sends anything.
    pub(super) fn quiesce(&self) {
        if let Some(qp) = self.qp.as_ref() {
            qp.stop_rx();
            qp.stop_tx();
        }
    }

    /// Begins the teardown.
    pub(super) fn begin_teardown(&self, how: cm::Teardown) -> Input<Error> {
        self.trace(Step::Teardown, &self.status());
        self.quiesce();
        Input::Quiesced {
            how,
            unsent: self.socket().sent().queued() != 0,
        }
    }

    /// Queues the Terminate that is due behind the data being sent. Returns whether there is one.
    pub(super) fn begin_terminate(&self) -> bool {
        let begun = self.qp.as_ref().is_some_and(|qp| qp.begin_terminate());
        if begun {
            self.set_stage(Stage::Terminating);
        }
        begun
    }

    /// Gives TCP as much as it takes of the Terminate and of the data before it.
    pub(super) fn push_terminate(&self) -> Pushed {
        let Some(qp) = self.qp.as_ref() else {
            return Pushed::Lost;
        };
        match qp.push_terminate(&self.socket()) {
            Progress::Sent => Pushed::Sent,
            Progress::NoSpace => Pushed::NoSpace,
            Progress::NoMemory => Pushed::NoMemory,
            Progress::Lost => Pushed::Lost,
        }
    }

    /// Sends our FIN. What the peer still sends is not read.
    pub(super) fn send_fin(&self) -> bool {
        self.set_stage(Stage::Closed);
        self.socket().send_fin().is_ok()
    }

    /// Sends our FIN, which nothing precedes any more. If there is no memory for it, a peer that
    /// has not closed gets an RST. One that has closed knows that the end is near, and bounds the
    /// wait for our FIN itself.
    pub(super) fn fin_or_reset(&self) {
        if let Err(ENOMEM) = self.socket().send_fin() {
            self.dev.stats.inc(Counter::Aborts);
            self.socket().abort(errno::econnaborted());
        }
    }

    /// The last step, from any state. Afterwards the endpoint is only memory.
    pub(super) fn finish(self: &Arc<Self>, inner: &mut Inner, end: End, owed: Owed) {
        self.end_session(inner);
        self.quiesce();
        self.end_socket(inner, end);
        if let Some(qp) = self.qp.as_ref() {
            self.step_qp(Event::Closed);
            qp.enter_error();
            qp.flushed();
        }
        self.report_end(inner, owed);
        // The core's reference goes only after the last upcall.
        inner.cm_id = None;
        if let End::Fin = end {
            // The FIN comes last: the peer may answer it with its next connection request, and the
            // core must hear of this end first.
            self.fin_or_reset();
        }
        self.trace(Step::Closed, &self.status());
        self.retire();
    }

    /// Closes the socket.
    pub(super) fn end_socket(self: &Arc<Self>, inner: &mut Inner, end: End) {
        self.set_stage(Stage::Closed);
        self.socket().detach();
        if let End::Reset = end {
            let cause = self.notes.lock().cause().unwrap_or(Cause::Aborted);
            self.socket().abort(errno(cause));
        }
        self.leave_listener(inner);
    }

    /// Removes the endpoint from its QP and from the device's table, and wakes those that wait for
    /// its end.
    pub(super) fn retire(&self) {
        if let Some(qp) = self.qp.as_ref() {
            let link = qp.link.lock().take();
            drop(link);
        }
        self.dev.endpoints.remove(self.id);
        self.closed.complete_all();
    }

    /// Reports the end of the connection.
    fn report_end(&self, inner: &mut Inner, owed: Owed) {
        let hs = core::mem::replace(&mut inner.hs, Handshake::None);
        let pair = inner.pair.take();
        let status = self.status();
        match (owed, &inner.cm_id) {
            (Owed::Close, Some(id)) => {
                let _ = id.upcall(CmEvent::Close { status });
            }
            (Owed::Reply, Some(id)) => {
                let e = status.err().unwrap_or_else(errno::econnreset);
                self.report_failed(id, &hs, e);
            }
            (Owed::Retry, _) => {
                if let Some(pair) = pair {
                    pair.retry();
                }
            }
            _ => {}
        }
    }
}
