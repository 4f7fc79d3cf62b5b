// SPDX-License-Identifier: GPL-2.0

//! Failing and stopping: why a stream ends, and how its two halves are brought to rest.

use crate::driver::cm::Teardown;
use crate::driver::qp::state::Phase;
use crate::driver::stats::Counter;
use crate::driver::QpObj;
use crate::kapi::rdma::QpEvent;
use crate::kapi::trace;
use iwarp::error::{Error as IwarpError, QpEvent as Event, TermCode};
use iwarp::qp::fsm;
use iwarp::qp::owner::{self, Action};
use iwarp::wire::terminate::Terminate;
use kernel::prelude::*;
use kernel::sync::atomic::Release;

/// Why a stream ends before its time.
pub(crate) enum Cause {
    /// A work request of the SQ could not be done.
    Local(IwarpError),
    /// The peer broke a rule, or named memory it may not touch.
    Stream {
        error: IwarpError,
        term: Option<Terminate>,
    },
    /// The peer has sent a Terminate.
    PeerTerminate(Terminate),
    /// TCP has lost the connection.
    Lost(Error),
}

impl QpObj {
    /// The stream has failed. The first cause counts; the endpoint then tears it down. Any context.
    pub(crate) fn fail(&self, cause: Cause) {
        if let Cause::PeerTerminate(term) = &cause {
            self.stats.inc(Counter::RxTerminate);
            trace_terminate(self.qp_num(), true, term.code);
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
        // The teardown brings the actions about, in its own order.
        let _ = self.step(step);
        match event {
            Event::None => {}
            Event::Fatal => self.event(QpEvent::Fatal),
            Event::ReqErr => self.event(QpEvent::ReqErr),
            Event::AccessErr => self.event(QpEvent::AccessErr),
        }
        let link = self.link.lock().clone();
        if let Some(ep) = link {
            ep.request_teardown(how);
        }
    }

    /// The peer is not there any more: the next work request that is flushed says so.
    pub(crate) fn peer_gone(&self) {
        self.stream.unreachable.store(true, Release);
    }

    /// Stops receiving: when it returns nothing is placed any more. Sleeps.
    pub(crate) fn stop_rx(&self) {
        self.stream.rx_stopped.store(1, Release);
        // Receiving happens with the socket locked, so whoever had begun is out once we have had the lock.
        let link = self.link.lock().clone();
        if let Some(ep) = link {
            drop(ep.socket().lock());
        }
    }

    /// Stops transmitting: when it returns nobody is sending, and nobody will begin. Sleeps.
    pub(crate) fn stop_tx(&self) {
        if let Action::Wait = self.stream.step(owner::stop) {
            // Owners never wait for the network, so this is short.
            self.stream.given_up.wait_for_completion();
        }
    }
}

pub(super) fn trace_terminate(qpn: u32, received: bool, code: TermCode) {
    trace::terminate(qpn, received, code.layer, code.etype, code.ecode);
}
