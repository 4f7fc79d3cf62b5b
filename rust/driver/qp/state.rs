// SPDX-License-Identifier: GPL-2.0

//! The states of a queue pair: the verbs' state machine, and the phase posters look at.

use super::Qp;
use crate::driver::QpObj;
use crate::kapi::sync::smp_mb;
use iwarp::qp_fsm::{
    self,
    Actions,
    Event,
    Facts,
    State, //
};
use kernel::{
    prelude::*,
    sync::atomic::{
        Full,
        Relaxed, //
    },
};

/// How far a queue pair has come; it only goes forward, but for [`Qp::retreat`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Phase {
    /// Not connected yet.
    Idle,
    /// Work requests may be posted, and wait for the stream.
    Connecting,
    /// The stream is up.
    Rts,
    /// The peer is gone, which matters to the next one who posts.
    Alone,
    /// The stream is being torn down.
    Terminating,
    /// The stream is dead: what is posted is flushed.
    Error,
}

impl Phase {
    fn from_word(word: u32) -> Self {
        match word {
            0 => Self::Idle,
            1 => Self::Connecting,
            2 => Self::Rts,
            3 => Self::Alone,
            4 => Self::Terminating,
            _ => Self::Error,
        }
    }
}

impl Qp {
    /// The phase. Any context.
    pub(crate) fn phase(&self) -> Phase {
        Phase::from_word(self.phase.load(Relaxed))
    }

    /// Goes forward to `to`; returns whether it was behind. Any context; a full barrier in any
    /// case.
    pub(crate) fn advance(&self, to: Phase) -> bool {
        let mut now = self.phase.load(Relaxed);
        loop {
            if Phase::from_word(now) >= to {
                smp_mb();
                return false;
            }
            match self.phase.cmpxchg(now, to as u32, Full) {
                Ok(_) => return true,
                Err(other) => now = other,
            }
        }
    }

    /// Back from waiting to the start, unless something else has happened.
    pub(crate) fn retreat(&self) {
        let _ = self
            .phase
            .cmpxchg(Phase::Connecting as u32, Phase::Idle as u32, Full);
    }

    /// The state the verbs know.
    pub(crate) fn state(&self) -> State {
        *self.fsm.lock()
    }
}

impl QpObj {
    /// Whether work requests of the SQ are waiting or in progress.
    pub(crate) fn is_busy(&self) -> bool {
        self.stream.busy() || self.sq.has_work()
    }

    /// Takes one step of the state machine; the caller carries out the actions. Any context.
    pub(crate) fn step(&self, event: Event) -> Result<Actions> {
        // One that connects without a connection manager may go to RTS before there is a connection. This
        // comes before the look at the link: the wait ends after the link is there.
        let to_come = matches!(event, Event::Modify(State::Rts)) && self.pair.lock().is_some();
        let facts = Facts {
            sq_busy: self.is_busy(),
            connected: to_come || self.link.lock().is_some(),
        };
        let mut state = self.fsm.lock();
        let (next, actions) = qp_fsm::step(*state, event, facts).map_err(|_| EINVAL)?;
        *state = next;
        Ok(actions)
    }
}
