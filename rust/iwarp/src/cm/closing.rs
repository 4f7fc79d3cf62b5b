// SPDX-License-Identifier: GPL-2.0

//! The end of a connection: from the stream that is up to the last event.

use super::{
    Action,
    Cause,
    Count,
    Deadline,
    End,
    Endpoint,
    Facts,
    Pushed,
    State,
    Step,
    Tcp,
    Teardown,
    Timer, //
};
use crate::qp::fsm::Event;

/// Pause before TCP is asked again when it had no memory, in milliseconds.
const MEMORY_MS: u32 = 5;

impl Endpoint {
    /// The stream is up: its end may have come, or the first FPDU if that is awaited.
    pub(super) fn up<E>(&mut self, facts: Facts) -> Step<E> {
        let timer = match facts.first_fpdu {
            true => self.disarm(),
            false => Timer::Keep,
        };
        if let Some(how) = facts.asked {
            return Step {
                timer,
                ..Action::Quiesce(how).into()
            };
        }
        if facts.tcp != Tcp::Established {
            return self.enter(State::Settling, Deadline::Settle);
        }
        if !self.is_late(facts) {
            return Step {
                timer,
                ..Action::Wait.into()
            };
        }
        if self.rtr_due {
            return Step {
                note: Some(Cause::TimedOut),
                count: Some(Count::Timeout),
                ..Action::Quiesce(Teardown::Abort(())).into()
            };
        }
        self.untimed(Action::EndHold)
    }

    /// The stream has come to its end. The peer counts as delivered what TCP has acknowledged, so
    /// the QP takes that first.
    pub(super) fn settling<E>(&mut self, facts: Facts) -> Step<E> {
        match facts.asked {
            Some(how) => Action::Quiesce(how),
            None => Action::Settle {
                late: self.is_late(facts),
            },
        }
        .into()
    }

    pub(super) fn settled<E>(&mut self, facts: Facts, late: bool, unread: bool) -> Step<E> {
        if facts.asked.is_some() {
            return Action::Look.into();
        }
        if unread && !late {
            return Action::Wait.into();
        }
        let closed = facts.tcp == Tcp::PeerClosed;
        if self.paired {
            return Action::Quiesce(match closed {
                true => Teardown::Local,
                false => Teardown::Abort(()),
            })
            .into();
        }
        if closed {
            return Action::StreamOver {
                event: Event::PeerClosed,
                how: Teardown::Local,
            }
            .into();
        }
        Step {
            note: Some(Cause::Reset),
            ..Action::StreamOver {
                event: Event::LlpLost,
                how: Teardown::Abort(()),
            }
            .into()
        }
    }

    /// Closes the connection under the QP of a pair. A peer that has closed places nothing any
    /// more, so bytes that it has not acknowledged are not left to TCP: they could leave after the
    /// QP is flushed, or destroyed, and with what the memory of a message sent by reference has
    /// become by then.
    fn leave_alone<E>(&mut self, how: Teardown, unsent: bool) -> Step<E> {
        self.state = State::Alone;
        let end = match how {
            Teardown::Local if !unsent => End::Fin,
            _ => End::Reset,
        };
        Step {
            count: (end == End::Reset).then_some(Count::Abort),
            ..self.untimed(Action::LeaveAlone(end))
        }
    }

    /// The QP has lost its peer. It learns of it when it has sent in vain for a while.
    pub(super) fn alone<E>(&mut self, facts: Facts) -> Step<E> {
        if facts.asked.is_some() || self.is_late(facts) {
            self.finish(End::Drained)
        } else if facts.vain && self.deadline.is_none() {
            self.within(Deadline::Vain, Action::Wait)
        } else {
            Action::Wait.into()
        }
    }

    /// The QP neither places nor sends any more. `unsent` if TCP has bytes that the peer has not
    /// acknowledged. From here on they have a bounded time to arrive, or none: when the QP is
    /// flushed, no byte of the stream is given to IP any more.
    pub(super) fn quiesced<E>(&mut self, facts: Facts, how: Teardown, unsent: bool) -> Step<E> {
        // Nobody has asked for the end: the peer has closed or is lost.
        if self.paired && self.state == State::Settling && facts.asked.is_none() {
            return self.leave_alone(how, unsent);
        }
        match how {
            Teardown::Graceful => self.drain(facts),
            // Nothing of ours is on its way, so there is nothing to wait for.
            Teardown::Local if !unsent => self.finish(End::Fin),
            Teardown::Local => self.drain_briefly(facts),
            Teardown::Terminate => Action::BeginTerminate.into(),
            Teardown::Abort(()) => self.reset(),
        }
    }

    pub(super) fn pushed<E>(&mut self, facts: Facts, pushed: Pushed) -> Step<E> {
        let pause = match pushed {
            Pushed::Sent => return self.drain_briefly(facts),
            Pushed::Lost => return self.reset(),
            // A callback comes when there is space. The deadline ends the wait for it.
            Pushed::NoSpace => Deadline::Terminate.ms(),
            Pushed::NoMemory => MEMORY_MS,
        };
        if facts.asked == Some(Teardown::Abort(())) || self.is_late(facts) {
            return self.reset();
        }
        Action::WaitFor(pause).into()
    }

    /// Sends our FIN; then [`Self::draining`] awaits that it is acknowledged, with all before it.
    pub(super) fn drain<E>(&mut self, facts: Facts) -> Step<E> {
        match facts.tcp.is_open() {
            true => Action::SendFin.into(),
            false => self.reset(),
        }
    }

    /// Gives a Terminate, or what was sent before a local end, a short time to arrive.
    fn drain_briefly<E>(&mut self, facts: Facts) -> Step<E> {
        self.hurried = true;
        self.drain(facts)
    }

    pub(super) fn draining<E>(&mut self, facts: Facts) -> Step<E> {
        match facts.tcp {
            Tcp::Over => self.finish(End::Drained),
            // Only after a rejection: in all other cases our FIN is out.
            Tcp::PeerClosed => self.finish(End::Fin),
            // All is acknowledged. An orderly close also waits for the peer's FIN: when this end
            // reports the end of the connection, the peer has closed it, too.
            Tcp::FinAcked if self.hurried || hurries(facts) => self.finish(End::Drained),
            Tcp::FinAcked => Action::Peek.into(),
            _ => self.drain_on(facts),
        }
    }

    /// The connection has not ended yet.
    pub(super) fn drain_on<E>(&mut self, facts: Facts) -> Step<E> {
        if facts.asked == Some(Teardown::Abort(())) {
            return self.reset();
        }
        if self.is_late(facts) {
            return Step {
                count: Some(Count::DrainTimeout),
                ..self.finish(End::Reset)
            };
        }
        if hurries(facts) && !self.hurried {
            self.hurried = true;
            return self.within(Deadline::Brief, Action::Wait);
        }
        Action::Wait.into()
    }
}

/// Whether the end is wanted soon: a QP that is being destroyed does not wait as long as one that
/// is only disconnected.
fn hurries(facts: Facts) -> bool {
    facts.asked >= Some(Teardown::Local)
}
