// SPDX-License-Identifier: GPL-2.0

//! States of a queue pair: which changes are allowed, and what each of them sets off.
//!
//! The states are those of RFC 5040's verbs; users see them under the InfiniBand names. A change
//! that verbs do not have is refused, except for one to an end: a connection manager asks for that
//! in any state. The error state is final until the queue pair begins anew.

/// State of a queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// New, or begun anew. A connection manager connects it as well as one in `Idle`.
    Reset,
    /// No stream. `INIT` to users.
    Idle,
    /// No stream, user has asked for `RTR`.
    Rtr,
    /// In operation.
    Rts,
    /// As `Rts`, but a control operation of the SQ has failed, and what is posted to the SQ is
    /// flushed. `SQE` to users.
    Drained,
    /// Being closed in an orderly way. `SQD` to users.
    Closing,
    /// A Terminate is on its way. `SQE` to users.
    Terminate,
    /// Dead. `ERR` to users.
    Error,
}

impl State {
    /// From `enum ib_qp_state`.
    pub const fn from_ib(state: u32) -> Option<Self> {
        Some(match state {
            0 => Self::Reset,
            1 => Self::Idle,
            2 => Self::Rtr,
            3 => Self::Rts,
            4 => Self::Closing,
            5 => Self::Terminate,
            6 => Self::Error,
            _ => return None,
        })
    }

    /// To `enum ib_qp_state`.
    pub const fn to_ib(self) -> u32 {
        match self {
            Self::Reset => 0,
            Self::Idle => 1,
            Self::Rtr => 2,
            Self::Rts => 3,
            Self::Closing => 4,
            Self::Drained | Self::Terminate => 5,
            Self::Error => 6,
        }
    }
}

/// What happens to a queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// The user, or iw_cm for it, asks for a state. For RESET use [`Event::Renewed`].
    Modify(State),
    /// The MPA handshake is done.
    Established,
    /// The peer has closed its side (FIN) and all it sent has been taken in.
    PeerClosed,
    /// A Terminate came in.
    PeerTerminate,
    /// A registration, an invalidation or a bind has failed, and the device is set to go on without
    /// the SQ.
    ControlFailed,
    /// An error was found here, and the peer is owed a Terminate.
    TerminateDue,
    /// The stream is lost: reset, timeout, device gone.
    LlpLost,
    /// The teardown that an earlier transition set off is finished.
    Closed,
    /// The queue pair begins anew: its stream and all that was posted are gone.
    Renewed,
}

/// What else a transition depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Facts {
    /// Work requests are waiting, in progress, or waiting for a Read Response.
    pub sq_busy: bool,
    /// There is a stream.
    pub connected: bool,
}

/// What a transition sets off. To be done in the order of the constants (the teardown order:
/// nothing is placed or sent after a flush).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Actions(u32);

impl Actions {
    /// Nothing.
    pub const NONE: Self = Self(0);
    /// Start sending and receiving FPDUs.
    pub const START_STREAM: Self = Self(1);
    /// Send the Terminate, wait a bounded time for it to leave, then abort.
    pub const SEND_TERMINATE: Self = Self(1 << 1);
    /// Close in order: FIN, bounded wait, then abort.
    pub const CLOSE_GRACEFUL: Self = Self(1 << 2);
    /// Abort the stream: RST, nothing queued is sent any more.
    pub const ABORT: Self = Self(1 << 3);
    /// Flush ORQ, work in progress and SQ.
    pub const FLUSH_SQ: Self = Self(1 << 4);
    /// Flush the RQ.
    pub const FLUSH_RQ: Self = Self(1 << 5);
    /// Tell iw_cm that the connection is closed, with the cause.
    pub const UPCALL_CLOSE: Self = Self(1 << 6);
    /// Stop to execute what is posted to the SQ, and flush it.
    pub const DRAIN_SQ: Self = Self(1 << 7);
    /// Execute again what is posted to the SQ.
    pub const RESUME_SQ: Self = Self(1 << 8);

    const FLUSH: Self = Self::FLUSH_SQ.union(Self::FLUSH_RQ);

    /// Both sets.
    #[must_use]
    pub const fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Whether all of `other` is to be done.
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Whether there is nothing to do.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }
}

/// The user asked for something that is not possible; the state stays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Invalid {
    /// `RTS` without a connection.
    NotConnected,
    /// Verbs have no such change.
    NoSuchChange,
    /// A return to operation while being closed.
    Closing,
    /// A return to operation before all that was posted to the SQ has completed. What is posted
    /// behind a work request that is flushed must not be executed.
    Busy,
}

/// The state after `event`, and what to do.
pub const fn step(state: State, event: Event, facts: Facts) -> Result<(State, Actions), Invalid> {
    let stay = (state, Actions::NONE);
    let dead = (
        State::Error,
        if facts.connected {
            Actions::ABORT.union(Actions::FLUSH)
        } else {
            Actions::FLUSH
        },
    );
    let terminate = if facts.connected {
        (State::Terminate, Actions::SEND_TERMINATE)
    } else {
        dead
    };
    let renewed = (State::Reset, Actions::NONE);
    let closed = (State::Error, Actions::FLUSH.union(Actions::UPCALL_CLOSE));
    Ok(match state {
        State::Reset | State::Idle | State::Rtr => match event {
            Event::Established => (State::Rts, Actions::START_STREAM),
            Event::Modify(State::Rts) if facts.connected => (State::Rts, Actions::START_STREAM),
            Event::Modify(State::Rts) => return Err(Invalid::NotConnected),
            Event::Modify(State::Error) => dead,
            Event::Modify(State::Reset) => return Err(Invalid::NoSuchChange),
            Event::Modify(to @ (State::Idle | State::Rtr)) => (to, Actions::NONE),
            Event::Modify(State::Closing | State::Terminate | State::Drained) => stay,
            Event::ControlFailed => stay,
            Event::TerminateDue => terminate,
            // A failed attempt to connect ends the queue pair, as in the C driver.
            Event::PeerClosed | Event::PeerTerminate | Event::LlpLost => dead,
            Event::Closed => (State::Error, Actions::FLUSH),
            Event::Renewed => renewed,
        },
        State::Rts | State::Drained => match event {
            Event::ControlFailed => match state {
                State::Rts => (State::Drained, Actions::DRAIN_SQ),
                _ => stay,
            },
            Event::Modify(State::Rts) if matches!(state, State::Drained) => {
                if facts.sq_busy {
                    return Err(Invalid::Busy);
                }
                (State::Rts, Actions::RESUME_SQ)
            }
            Event::Modify(State::Closing) | Event::PeerClosed => close(event, facts),
            Event::Modify(State::Terminate) | Event::TerminateDue => terminate,
            Event::Modify(State::Error) | Event::PeerTerminate | Event::LlpLost => dead,
            Event::Modify(State::Rts) => stay,
            Event::Modify(_) => return Err(Invalid::NoSuchChange),
            Event::Established => stay,
            Event::Closed => closed,
            Event::Renewed => renewed,
        },
        State::Closing => match event {
            Event::Modify(State::Closing) | Event::PeerClosed => stay,
            Event::Established | Event::ControlFailed => stay,
            Event::Renewed => renewed,
            Event::Modify(State::Error) | Event::PeerTerminate | Event::LlpLost => dead,
            Event::Modify(_) => return Err(Invalid::Closing),
            Event::TerminateDue => terminate,
            Event::Closed => closed,
        },
        State::Terminate => match event {
            Event::Modify(State::Error) | Event::LlpLost => dead,
            Event::Closed => closed,
            Event::Renewed => renewed,
            Event::Modify(State::Reset | State::Idle | State::Rtr | State::Rts) => {
                return Err(Invalid::NoSuchChange);
            }
            // The Terminate is still leaving; its bounded wait ends in `Closed`.
            _ => stay,
        },
        State::Error => match event {
            Event::Closed => closed,
            Event::Renewed => renewed,
            Event::Modify(State::Reset | State::Idle | State::Rtr | State::Rts) => {
                return Err(Invalid::NoSuchChange);
            }
            _ => stay,
        },
    })
}

/// An orderly close, if there is nothing left to send; else it is not one (RFC 5040 6.2 leaves it
/// to the ULP to be done first).
const fn close(event: Event, facts: Facts) -> (State, Actions) {
    let how = match (facts.connected, facts.sq_busy) {
        (false, _) => Actions::NONE,
        (true, false) => Actions::CLOSE_GRACEFUL,
        (true, true) => Actions::ABORT,
    };
    let rq = how.union(Actions::FLUSH_RQ);
    if facts.sq_busy || !facts.connected || matches!(event, Event::PeerClosed) {
        (State::Error, rq.union(Actions::FLUSH_SQ))
    } else {
        (State::Closing, rq)
    }
}
