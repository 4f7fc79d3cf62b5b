// SPDX-License-Identifier: GPL-2.0

//! The state machine of one connection.

use super::{
    super::{
        error,
        mpa::{
            Established,
            Reply,
            Rtr, //
        }, //
    },
    Action,
    Cause,
    Count,
    Deadline,
    End,
    Facts,
    Input,
    Owed,
    Read,
    Step,
    Tcp,
    Teardown,
    Timer, //
};

/// How often a request is offered to a consumer whose backlog is full.
const MAX_OFFERS: u32 = 200;

/// Which end of the handshake this is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Side {
    /// Connects and sends the MPA request.
    Active,
    /// Accepts and sends the MPA reply.
    Passive,
}

/// State of an endpoint; the picture is in [`super`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum State {
    /// Not begun.
    New,
    /// The SYN is out.
    Connecting,
    /// The MPA request is out.
    AwaitReply,
    /// The peer's MPA request is not complete.
    AwaitRequest,
    /// The consumer does not know of the request yet.
    Offering,
    /// The consumer has the request.
    Offered,
    /// The QP has the stream.
    Up,
    /// The peer has closed or is lost. The QP takes what has come until then.
    Settling,
    /// The connection is over, and the QP does not care: it was connected without a connection
    /// manager.
    Alone,
    /// TCP is taking our Terminate, and what goes before it.
    Terminating,
    /// Our FIN is out, or the peer is to send its own first; either takes a bounded time.
    Draining,
    /// The end. The socket is dead, the last event is reported.
    Closed,
}

/// One connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Endpoint {
    side: Side,
    pub(super) paired: bool,
    pub(super) state: State,
    owed: Owed,
    pub(super) deadline: Option<Deadline>,
    /// An RTR message was agreed and has not come.
    pub(super) rtr_due: bool,
    offers: u32,
    /// The listener needs the place of this connection.
    evicted: bool,
    /// Draining has the short deadline.
    pub(super) hurried: bool,
}

impl Endpoint {
    /// A connection that is about to begin. `paired` if it is for QPs that connect without a
    /// connection manager (see [`super::pair`]): there is no consumer to report to.
    pub const fn new(side: Side, paired: bool) -> Self {
        Self {
            side,
            paired,
            state: State::New,
            owed: Owed::Nothing,
            deadline: None,
            rtr_due: false,
            offers: 0,
            evicted: false,
            hurried: false,
        }
    }

    /// The state.
    pub const fn state(&self) -> State {
        self.state
    }

    /// The last event the consumer is still to get.
    pub const fn owed(&self) -> Owed {
        self.owed
    }

    /// The deadline the current state has.
    pub const fn deadline(&self) -> Option<Deadline> {
        self.deadline
    }

    /// Whether the connection is for QPs that connect without a connection manager.
    pub const fn is_paired(&self) -> bool {
        self.paired
    }

    /// Takes one step. An input that makes no sense in the state changes nothing.
    pub fn step<E>(&mut self, facts: Facts, input: Input<E>) -> Step<E> {
        match (self.state, input) {
            (_, Input::Look) => self.look(facts),
            (State::New, Input::Begun(result)) => self.begun(result),
            (State::AwaitRequest | State::Offering, Input::Evict) => {
                self.evicted = true;
                self.within(Deadline::Evict, Action::Look)
            }
            (State::Offered, Input::Accept) => Action::Answer.into(),
            (State::Offered, Input::Reject) => Action::Refuse.into(),
            (_, Input::Accept | Input::Reject) => Action::Decline.into(),

            (State::Connecting, Input::RequestSent(Ok(()))) => {
                let deadline = match self.paired {
                    true => Deadline::Join,
                    false => Deadline::Reply,
                };
                self.enter(State::AwaitReply, deadline)
            }
            (State::Connecting, Input::RequestSent(Err(e)) | Input::SocketError(e)) => {
                self.fail(Cause::Host(e))
            }
            (State::AwaitReply, Input::Reply(read)) => self.reply(facts, read),
            (State::AwaitReply, Input::TerminateSent(true)) => {
                self.hurried = true;
                Step {
                    note: Some(Cause::Protocol),
                    ..self.drain(facts)
                }
            }
            (State::AwaitReply, Input::TerminateSent(false)) => self.fail(Cause::Protocol),
            (State::AwaitReply, Input::Started(Ok(()))) => {
                self.state = State::Up;
                Action::ReportConnected.into()
            }
            (State::AwaitReply, Input::Started(Err(e))) => self.fail(Cause::Host(e)),
            (State::AwaitReply, Input::Joined { claimed, result }) if self.paired => {
                if claimed {
                    self.owed = Owed::Nothing;
                }
                match result {
                    Ok(()) => {
                        self.state = State::Up;
                        self.untimed(Action::Look)
                    }
                    Err(e) => self.fail(Cause::Host(e)),
                }
            }
            (State::Up, Input::Reported(result)) if self.owed == Owed::Reply => match result {
                Ok(()) => {
                    self.owed = Owed::Close;
                    Action::Look.into()
                }
                // Without memory for the event the application cannot learn of the connection.
                Err(e) => Step {
                    note: Some(Cause::Host(e)),
                    ..Action::Quiesce(Teardown::Abort(())).into()
                },
            },

            (State::AwaitRequest, Input::Request(read)) => self.request(facts, read),
            (State::Offering, Input::Offered(result)) => self.offered(result),
            (State::Offering, Input::Met(None)) => Action::Refuse.into(),
            (State::Offering, Input::Passed) => {
                self.state = State::Closed;
                self.untimed(Action::Release)
            }
            (State::Offering, Input::Met(Some(result))) => match result {
                // The peer's RTR message lets this end send: by then the peer is ready to receive.
                Ok(()) => self.answered(true, Action::Look),
                Err(e) => self.fail(Cause::Host(e)),
            },
            (State::Offered, Input::Answered(result)) => match result {
                Ok(Established { rtr, .. }) => {
                    self.owed = Owed::Close;
                    // What came while the reply was made, an end of the connection included, has to
                    // be looked at.
                    self.answered(matches!(rtr, Rtr::Expect(_)), Action::Look)
                }
                Err(e) => self.fail(Cause::Host(e)),
            },
            (State::Offering | State::Offered, Input::Refused(result)) => match result {
                // The peer closes first, within a short time. Our own close could overtake the
                // rejection, and not every peer reads on when it has seen the close.
                Ok(()) => {
                    self.hurried = true;
                    self.enter(State::Draining, Deadline::Brief)
                }
                Err(e) => self.fail(Cause::Host(e)),
            },

            (State::Settling, Input::Settled { late, unread }) => self.settled(facts, late, unread),
            (State::Up | State::Settling, Input::Quiesced { how, unsent }) => {
                self.quiesced(facts, how, unsent)
            }
            (State::Up | State::Settling, Input::TerminateReady(true)) => {
                self.enter(State::Terminating, Deadline::Terminate)
            }
            (State::Up | State::Settling, Input::TerminateReady(false)) => self.reset(),
            (State::Terminating, Input::Pushed(pushed)) => self.pushed(facts, pushed),
            (
                State::AwaitReply | State::Up | State::Settling | State::Terminating,
                Input::FinSent(sent),
            ) => {
                if !sent {
                    return self.reset();
                }
                let deadline = match self.hurried {
                    true => Deadline::Brief,
                    false => Deadline::Graceful,
                };
                self.enter(State::Draining, deadline)
            }
            (State::Draining, Input::Unread(unread)) => match unread {
                // The peer's FIN cannot come if there is more before it than we let in.
                true => self.finish(End::Drained),
                false => self.drain_on(facts),
            },
            _ => Action::Wait.into(),
        }
    }

    fn look<E>(&mut self, facts: Facts) -> Step<E> {
        match self.state {
            State::New | State::Closed => return Action::Wait.into(),
            State::Up => return self.up(facts),
            State::Settling => return self.settling(facts),
            State::Alone => return self.alone(facts),
            State::Terminating => return Action::PushTerminate.into(),
            State::Draining => return self.draining(facts),
            _ if facts.asked.is_some() => return self.fail(Cause::Aborted),
            _ => {}
        }
        match (self.state, facts.tcp) {
            (State::Connecting, Tcp::Opening) => self.check_deadline(facts),
            (State::Connecting, tcp) if tcp.is_open() => Action::SendRequest.into(),
            (State::Connecting, _) => Action::ReadError.into(),
            (State::AwaitReply, _) => Action::ReadReply.into(),
            (State::AwaitRequest | State::Offering, _) if !facts.listening => {
                self.fail(Cause::Aborted)
            }
            (State::AwaitRequest, _) => Action::ReadRequest.into(),
            // The backlog was full. Whatever wakes the endpoint, the next offer is after the pause.
            (State::Offering, Tcp::Established) if self.deadline.is_some() && !facts.expired => {
                Action::Wait.into()
            }
            (State::Offering, Tcp::Established) if self.paired => Action::Meet.into(),
            (State::Offering, Tcp::Established) => Action::Offer.into(),
            (State::Offered, Tcp::Established) => self.check_deadline(facts),
            _ => self.fail(Cause::Reset),
        }
    }

    fn begun<E>(&mut self, result: Result<(), E>) -> Step<E> {
        if result.is_err() {
            self.state = State::Closed;
            return Action::Drop.into();
        }
        let (state, deadline) = match self.side {
            Side::Active => (State::Connecting, Deadline::Connect),
            Side::Passive => (State::AwaitRequest, Deadline::Request),
        };
        self.owed = match (self.side, self.paired) {
            (Side::Active, false) => Owed::Reply,
            (Side::Active, true) => Owed::Retry,
            (Side::Passive, _) => Owed::Nothing,
        };
        // TCP may be further than that already.
        self.enter(state, deadline)
    }

    fn reply<E>(&mut self, facts: Facts, read: Read<Reply, E>) -> Step<E> {
        match read {
            Read::Pending => self.check_deadline(facts),
            Read::End(e) => self.fail(Cause::Host(e)),
            // Where the peer agreed to a stream, it learns of it in a Terminate (RFC 6581 9.1,
            // 9.2).
            Read::Bad(error) => match error::Error::Mpa(error).terminate() {
                Some(code) => Action::SendTerminate(code).into(),
                None => self.fail(Cause::Protocol),
            },
            Read::Whole(Reply::Rejected(_)) => Step {
                count: Some(Count::Reject),
                ..self.fail(Cause::Rejected)
            },
            Read::Whole(Reply::Accepted(est)) if self.paired => Action::Join(est).into(),
            Read::Whole(Reply::Accepted(est)) => self.untimed(Action::Start(est)),
        }
    }

    fn request<T, E>(&mut self, facts: Facts, read: Read<T, E>) -> Step<E> {
        match read {
            Read::Pending => self.check_deadline(facts),
            // Closed without a reply (RFC 5044 7.1.2).
            Read::End(e) => self.fail(Cause::Host(e)),
            Read::Bad(_) => self.fail(Cause::Protocol),
            Read::Whole(_) => {
                self.state = State::Offering;
                self.untimed(Action::Look)
            }
        }
    }

    fn offered<E>(&mut self, result: Result<(), E>) -> Step<E> {
        match result {
            Ok(()) => {
                (self.offers, self.evicted) = (0, false);
                self.enter(State::Offered, Deadline::Accept)
            }
            Err(_) if self.evicted => self.evict(),
            // More requests are on their way to the application than it gave as backlog.
            Err(_) if self.offers < MAX_OFFERS => {
                self.offers = self.offers.saturating_add(1);
                self.within(Deadline::Retry, Action::Wait)
            }
            Err(e) => self.fail(Cause::Host(e)),
        }
    }

    /// The reply is out, and the QP has the stream.
    fn answered<E>(&mut self, rtr_due: bool, next: Action) -> Step<E> {
        self.state = State::Up;
        self.rtr_due = rtr_due;
        let deadline = match (rtr_due, self.paired) {
            (true, true) => Deadline::Join,
            (true, false) => Deadline::Rtr,
            (false, _) => Deadline::Hold,
        };
        self.within(deadline, next)
    }

    /// Nothing has come in, which is no error until the deadline.
    fn check_deadline<E>(&mut self, facts: Facts) -> Step<E> {
        match self.is_late(facts) {
            true if self.evicted => self.evict(),
            true => Step {
                count: Some(Count::Timeout),
                ..self.fail(Cause::TimedOut)
            },
            false => Action::Wait.into(),
        }
    }

    fn evict<E>(&mut self) -> Step<E> {
        Step {
            count: Some(Count::Eviction),
            ..self.fail(Cause::Aborted)
        }
    }

    pub(super) fn is_late(&self, facts: Facts) -> bool {
        facts.expired && self.deadline.is_some()
    }

    /// Ends a connection that never came up, or of which the consumer does not know that it did.
    pub(super) fn fail<E>(&mut self, cause: Cause<E>) -> Step<E> {
        Step {
            note: Some(cause),
            ..self.finish(End::Reset)
        }
    }

    /// Resets a connection after its handshake.
    pub(super) fn reset<E>(&mut self) -> Step<E> {
        Step {
            count: Some(Count::Abort),
            ..self.finish(End::Reset)
        }
    }

    /// The last step, from any state.
    pub(super) fn finish<E>(&mut self, end: End) -> Step<E> {
        self.state = State::Closed;
        let owed = core::mem::replace(&mut self.owed, Owed::Nothing);
        self.untimed(Action::Finish { end, owed })
    }

    /// Goes to `state`, which may last until `deadline`, and looks at once.
    pub(super) fn enter<E>(&mut self, state: State, deadline: Deadline) -> Step<E> {
        self.state = state;
        self.within(deadline, Action::Look)
    }

    pub(super) fn within<E>(&mut self, deadline: Deadline, action: Action) -> Step<E> {
        self.deadline = Some(deadline);
        Step {
            timer: Timer::Set(deadline),
            ..action.into()
        }
    }

    pub(super) fn untimed<E>(&mut self, action: Action) -> Step<E> {
        Step {
            timer: self.disarm(),
            ..action.into()
        }
    }

    pub(super) fn disarm(&mut self) -> Timer {
        match self.deadline.take() {
            Some(_) => Timer::Stop,
            None => Timer::Keep,
        }
    }
}
