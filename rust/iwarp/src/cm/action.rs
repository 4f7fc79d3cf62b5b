// SPDX-License-Identifier: GPL-2.0

//! Actions: what an endpoint asks of its host.

use super::{
    Cause,
    Teardown, //
};
use crate::{
    mpa::Established,
    qp::fsm::Event,
    wire::terminate::TermCode, //
};

/// How long a state may last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Deadline {
    /// Time for the TCP connection to come up. TCP's own limit is beyond two minutes.
    Connect,
    /// Time for the MPA reply, which includes what the peer's application takes to accept.
    Reply,
    /// The same, and time for the RTR message, between QPs that connect without a connection
    /// manager. If one end gave up when the other one had joined, both QPs would be lost. And on a
    /// busy machine, hundreds of connections at a time may take more than ten seconds.
    Join,
    /// Time for the MPA request on a new connection.
    Request,
    /// No time at all: a listener needs the place of the connection.
    Evict,
    /// Pause before a request is offered again to a consumer whose backlog is full.
    Retry,
    /// Time for the consumer to answer a request. It may never do so: if the listener goes first,
    /// the core drops the request silently.
    Accept,
    /// Time for the first FPDU when an RTR message was agreed.
    Rtr,
    /// How long a responder is silent at the most when no RTR message was agreed.
    ///
    /// RFC 5044 7.1.2 wants it silent until the first FPDU, but then a program whose accepting side
    /// speaks first waits for ever, and most programs know nothing of that rule. By now the
    /// initiator has read our reply and is no longer in the state that the rule protects.
    Hold,
    /// How long what TCP has acknowledged may take to be placed before the peer's FIN is acted
    /// upon.
    Settle,
    /// How long the peer may take to receive what was under way before a Terminate.
    Terminate,
    /// How long a graceful end waits for the peer to acknowledge all.
    Graceful,
    /// How long a Terminate, or what was sent before a local end, may take to arrive.
    Brief,
    /// How long a QP without a connection manager sends in vain before it learns that its peer is
    /// gone. It is about the time that the attributes of most programs give InfiniBand. Meanwhile a
    /// program can receive on other queue pairs what its peer has sent, and end: `ibv_srq_pingpong`
    /// sends more than it waits for.
    Vain,
}

impl Deadline {
    /// Milliseconds from when it is set.
    pub const fn ms(self) -> u32 {
        match self {
            Self::Connect | Self::Reply | Self::Request | Self::Rtr => 10_000,
            Self::Evict => 0,
            Self::Retry => 50,
            Self::Accept | Self::Join => 60_000,
            Self::Hold => 100,
            Self::Settle | Self::Graceful => 5_000,
            Self::Terminate | Self::Vain => 500,
            Self::Brief => 1_000,
        }
    }
}

/// What becomes of the deadline.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Timer {
    /// It stays, if there is one.
    Keep,
    /// There is a new one, from now.
    Set(Deadline),
    /// There is none any more.
    Stop,
}

/// What is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Count {
    /// A handshake that has timed out.
    Timeout,
    /// A connection closed without a complete request, or with one that the consumer had no room
    /// for, because its listener needed the place.
    Eviction,
    /// A rejection by the peer.
    Reject,
    /// A connection reset after its handshake, by this end, or by the peer before our FIN.
    Abort,
    /// A connection reset because its orderly close has timed out.
    DrainTimeout,
}

/// How the socket ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum End {
    /// The connection has ended, or TCP has nothing left to do but to wait.
    Drained,
    /// Our FIN is still to be sent. All before it is acknowledged.
    Fin,
    /// With an RST.
    Reset,
}

/// The last event the consumer has to get.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Owed {
    /// None: the consumer does not know of this connection, or has been told all.
    Nothing,
    /// CONNECT_REPLY, with an error.
    Reply,
    /// CLOSE.
    Close,
    /// A pair learns that its attempt has failed, and makes another one.
    Retry,
}

/// What the host does next. After each, except [`Self::Wait`], [`Self::WaitFor`],
/// [`Self::EndHold`], [`Self::Decline`], [`Self::Drop`], [`Self::Release`] and [`Self::Finish`], it
/// calls the machine again: with the outcome, or if there is none with [`super::Input::Look`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Nothing, until something changes or the deadline passes.
    Wait,
    /// As `Wait`, but for so many milliseconds at the most.
    WaitFor(u32),
    /// Look again at once.
    Look,
    /// Accept or Reject came too late, or twice: it fails, and nothing else happens.
    Decline,
    /// The connection has not begun. Close the socket and report nothing.
    Drop,
    /// The TCP connection goes on as that of a session. Leave the socket open and report nothing.
    Release,

    /// Send the MPA request.
    SendRequest,
    /// TCP could not connect: find out why.
    ReadError,
    /// Read what has come of the MPA reply.
    ReadReply,
    /// Send this Terminate as the first and only FPDU, if a stream was agreed (RFC 6581 9.1, 9.2).
    SendTerminate(TermCode),
    /// Hand the stream to the QP.
    Start(Established),
    /// End the wait of the pair whose attempt this is, if the reply is its peer's, and hand the
    /// stream to its QP.
    Join(Established),
    /// CONNECT_REPLY without an error.
    ReportConnected,
    /// Read what has come of the MPA request.
    ReadRequest,
    /// CONNECT_REQUEST.
    Offer,
    /// Find the pair that waits for this peer, hand the stream to its QP and send the reply. Or
    /// find the session that is to go on over this TCP connection.
    Meet,
    /// Hand the stream to the consumer's QP, send the reply, report ESTABLISHED.
    Answer,
    /// Send a rejecting reply.
    Refuse,
    /// The QP need not be silent any more.
    EndHold,

    /// The stream has come to its end: have the QP take what has come. If `late`, now, even if a
    /// datamover was to do it.
    Settle {
        /// The deadline has passed.
        late: bool,
    },
    /// The QP learns of the end of the stream. The end of the connection is asked for.
    StreamOver {
        /// For the QP's state machine.
        event: Event,
        /// To be noted.
        how: Teardown,
    },
    /// Close the socket, in this way, and leave the QP, which is quiet, as it is.
    LeaveAlone(End),
    /// Teardown begins: when this is done the QP neither places nor sends anything.
    Quiesce(Teardown),
    /// Put the Terminate that is due behind what was being sent.
    BeginTerminate,
    /// Give TCP as much as it takes of the Terminate and of what precedes it.
    PushTerminate,
    /// Shut down the sending direction.
    SendFin,
    /// Find out whether there are bytes of the peer that nobody has taken.
    Peek,
    /// The last one: close the socket, flush the QP, report the end.
    Finish {
        /// How the socket ends.
        end: End,
        /// What to report. The status is in [`super::Notes`].
        owed: Owed,
    },
}

/// What the host does, in the order of the fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step<E> {
    /// A reason of failure, for [`super::Notes::note`].
    pub note: Option<Cause<E>>,
    /// What to count.
    pub count: Option<Count>,
    /// What becomes of the deadline.
    pub timer: Timer,
    /// What to do.
    pub action: Action,
}

impl<E> From<Action> for Step<E> {
    fn from(action: Action) -> Self {
        Self {
            note: None,
            count: None,
            timer: Timer::Keep,
            action,
        }
    }
}
