// SPDX-License-Identifier: GPL-2.0

//! The states of a queue pair: the verbs' state machine, and the phase that posters look at.

use super::Qp;
use crate::QpObj;
use base::sync::{
    smp_mb,
    AccessOnce, //
};
use iwarp::qp::{
    fsm::{
        self,
        Actions,
        Event,
        Facts,
        State, //
    },
    phase, //
};
use kernel::{
    prelude::*,
    sync::atomic::Full, //
};

pub(crate) use iwarp::qp::phase::Phase;

impl Qp {
    /// The phase. Any context.
    pub(crate) fn phase(&self) -> Phase {
        Phase::from_word(self.phase.read_once())
    }

    /// Advances to `to`, and returns whether the phase was behind. Any context; always a full
    /// barrier.
    pub(crate) fn advance(&self, to: Phase) -> bool {
        let mut now = self.phase.read_once();
        while let Some(next) = phase::advance(now, to) {
            match self.phase.cmpxchg(now, next, Full) {
                Ok(_) => return true,
                Err(other) => now = other,
            }
        }
        smp_mb();
        false
    }

    /// The state that verbs report.
    pub(crate) fn state(&self) -> State {
        *self.fsm.lock()
    }
}

impl Qp {
    /// Whether work requests of the SQ are waiting or in progress.
    pub(crate) fn is_busy(self: &QpObj) -> bool {
        self.stream.busy() || self.sq.has_work()
    }

    /// Takes one step of the state machine; the caller carries out the actions. Any context.
    pub(crate) fn step(self: &QpObj, event: Event) -> Result<Actions> {
        // A QP without a connection manager may enter RTS before it has a connection. `pair` is
        // read before `link`, because `link` is set before the wait ends.
        let to_come = matches!(event, Event::Modify(State::Rts)) && self.pair.lock().is_some();
        let connected = to_come || self.link.lock().is_some();
        let mut state = self.fsm.lock();
        let facts = Facts {
            sq_busy: self.is_busy(),
            connected,
        };
        let (next, actions) = fsm::step(*state, event, facts).map_err(|_| EINVAL)?;
        // What is posted meanwhile either is in the FIFO, or can succeed.
        if actions.contains(Actions::RESUME_SQ) && !self.stream.completions.resume() {
            return Err(EINVAL);
        }
        *state = next;
        Ok(actions)
    }
}
