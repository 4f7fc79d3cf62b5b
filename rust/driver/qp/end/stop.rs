// SPDX-License-Identifier: GPL-2.0

//! Failure and stop: the causes of a stream's end, and how its two directions come to rest.

use crate::{
    cm::Teardown,
    qp::{
        state::Phase,
        Qp, //
    },
    stats::Counter,
    QpObj, //
};
use base::sync::AccessOnce;
use iwarp::{
    error::Error as IwarpError,
    qp::{
        fsm,
        owner::{
            self,
            Action, //
        }, //
    },
    verdict::QpEvent as Event,
    wire::terminate::{
        TermCode,
        Terminate, //
    }, //
};
use kernel::{
    pr_info_once,
    prelude::*,
    sync::Arc, //
};
use rdma::qp;

/// The cause of a stream's failure.
pub(crate) enum Cause {
    /// A work request of the SQ has failed.
    Local(IwarpError),
    /// The peer has violated the protocol, or has named memory that it may not access.
    Stream {
        error: IwarpError,
        term: Option<Terminate>,
    },
    /// The peer has sent a Terminate.
    PeerTerminate(Terminate),
    /// TCP has lost the connection.
    Lost(Error),
}

impl Qp {
    /// Fails the stream. The first cause counts. The endpoint tears the connection down. Any
    /// context.
    pub(crate) fn fail(self: &QpObj, cause: Cause) {
        if let Cause::PeerTerminate(term) = &cause {
            self.stats.inc(Counter::RxTerminate);
            trace_terminate(self.qp_num(), true, term.code);
            if term.code == TermCode::WRONG_CRC && self.stats.get(Counter::ZcopyWrs) > 0 {
                pr_info_once!(
                    "a peer found a wrong CRC. If a program writes to memory while it is sent, set zcopy_min to 0\n"
                );
            }
            let blamed = self.stream.orq.lock().blamed(term);
            if let Some((seq, status)) = blamed {
                self.stream.completions.failed(seq, status);
            }
        }
        if !self.advance(Phase::Terminating) {
            return;
        }
        let (step, event, term, how) = match cause {
            Cause::Local(error) => (
                fsm::Event::TerminateDue,
                error.qp_event(),
                error.terminate().map(Terminate::bare),
                Teardown::Terminate,
            ),
            Cause::Stream { error, term } => (
                fsm::Event::TerminateDue,
                error.qp_event(),
                term,
                Teardown::Terminate,
            ),
            Cause::PeerTerminate(_) => (
                fsm::Event::PeerTerminate,
                Event::None,
                None,
                Teardown::Terminate,
            ),
            Cause::Lost(error) => (
                fsm::Event::LlpLost,
                Event::None,
                None,
                Teardown::Abort(error),
            ),
        };
        *self.stream.owed.lock() = term;
        // The teardown performs the actions, in its own order.
        let _ = self.step(step);
        match event {
            Event::None => {}
            Event::Fatal => self.event(qp::Event::Fatal),
            Event::ReqErr => self.event(qp::Event::ReqErr),
            Event::AccessErr => self.event(qp::Event::AccessErr),
        }
        let link = self.link.lock().clone();
        if let Some(ep) = link {
            ep.request_teardown(how);
        }
    }

    /// A control operation of the SQ has failed. If the SQ alone stops, and the stream does not,
    /// this notes the status of the work request and returns `true`. Any context.
    pub(in crate::qp) fn drains(self: &QpObj, seq: u32, error: IwarpError) -> bool {
        // The state changes before the consumer can see the completion and ask for RTS.
        let step = self.step(fsm::Event::ControlFailed);
        let drains = step.is_ok_and(|actions| actions.contains(fsm::Actions::DRAIN_SQ));
        if drains {
            self.stream.completions.drain(seq, error.wc_status());
            self.stats.inc(Counter::SqDrained);
        }
        drains
    }

    /// Fails the stream for a reason on this side. Any context.
    pub(crate) fn fail_here(self: &QpObj, error: IwarpError) {
        self.fail(Cause::Local(error));
    }

    /// Fails a queue pair that has begun to work, because a completion queue of it has overrun. One
    /// that has not, or begins anew, fails when it has something to complete. Process context.
    pub(crate) fn overrun(self: &QpObj) {
        // A change of state ends with this, too. To wait for it here could hold up the end of the
        // connection that RESET waits for, which is work of the same work queue.
        let Some(_alone) = self.modify.try_lock() else {
            return;
        };
        if self.phase() == Phase::Idle {
            return;
        }
        self.fail_here(IwarpError::LocalCatastrophic);
        // The teardown of a connection flushes the rest.
        if self.link.lock().is_none() {
            self.abandon();
        }
    }

    /// Notes that the peer is gone; the next flushed work request reports it.
    pub(crate) fn peer_gone(self: &QpObj) {
        // A flush follows an advance of the phase, whose barrier orders this before it.
        self.stream.unreachable.write_once(true);
    }

    /// Stops reception: nothing is placed after the return. Sleeps.
    pub(crate) fn stop_rx(self: &QpObj) {
        self.stream.stop_rx();
        // Reception runs with the socket locked, so a run that has begun ends before the lock is
        // granted.
        let link = self.link.lock().clone();
        let Some(ep) = link else { return };
        loop {
            let socket = ep.socket();
            drop(socket.lock());
            // The stream may have gone over to another one. If it does so later, reception has
            // ended by then.
            if Arc::ptr_eq(&socket, &ep.socket()) {
                return;
            }
        }
    }

    /// Stops transmission: nobody sends after the return. Sleeps.
    pub(crate) fn stop_tx(self: &QpObj) {
        let given_up = self.stream.given_up();
        if let Action::Wait = self.stream.step(owner::INITIAL, owner::stop) {
            // Short: owners never wait for the network.
            given_up.wait_for_completion();
        }
    }
}

pub(super) fn trace_terminate(qpn: u32, received: bool, code: TermCode) {
    trace::terminate(|| (qpn, received, code.layer, code.etype, code.ecode));
}
