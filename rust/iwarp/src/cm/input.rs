// SPDX-License-Identifier: GPL-2.0

//! What the host tells an endpoint.

use super::{
    super::{
        error::MpaError,
        mpa::{
            Established,
            Reply,
            Request, //
        }, //
    },
    Teardown, //
};

/// State of the TCP connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Tcp {
    /// The SYN is out, or is being answered.
    Opening,
    /// Both directions are open.
    Established,
    /// The peer's FIN has come; ours is not out (`CLOSE_WAIT`).
    PeerClosed,
    /// Our FIN is out and not acknowledged (`FIN_WAIT1`, `CLOSING`, `LAST_ACK`).
    Closing,
    /// Our FIN is acknowledged; the peer's has not come (`FIN_WAIT2`).
    FinAcked,
    /// Over, in whatever way (`TIME_WAIT`, `CLOSE`).
    Over,
}

impl Tcp {
    /// Whether data may be sent.
    pub const fn is_open(self) -> bool {
        matches!(self, Self::Established | Self::PeerClosed)
    }
}

/// The connection at the time of an input. These are levels: the same ones again change nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Facts {
    /// State of the TCP connection.
    pub tcp: Tcp,
    /// The strongest request to end the connection, see [`super::Notes`].
    pub asked: Option<Teardown>,
    /// The deadline has passed. False if none is set.
    pub expired: bool,
    /// The QP has received a good FPDU.
    pub first_fpdu: bool,
    /// The listener of the connection is open.
    pub listening: bool,
    /// The QP has something to send, but its peer is gone.
    pub vain: bool,
}

/// Outcome of reading a frame of the MPA handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Read<T, E> {
    /// The frame is whole.
    Whole(T),
    /// More has to come.
    Pending,
    /// The connection has ended.
    End(E),
    /// The peer's frame is not acceptable.
    Bad(MpaError),
}

/// How far a Terminate has got.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Pushed {
    /// TCP has all of it.
    Sent,
    /// TCP has no space; its callback tells when there is some.
    NoSpace,
    /// TCP has no memory, and no callback tells when there is some.
    NoMemory,
    /// It will not be sent: the connection is gone.
    Lost,
}

/// What happens to an endpoint. From [`Self::RequestSent`] on: the outcome of the action of the
/// same name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Input<E> {
    /// Something may have changed: a socket callback, the timer, a note.
    Look,
    /// The socket connects, or is accepted, and its callbacks are set. The first input.
    Begun(Result<(), E>),
    /// A listener needs the place of a connection without a complete request.
    Evict,
    /// The consumer accepts the request.
    Accept,
    /// The consumer rejects the request.
    Reject,

    /// Of `SendRequest`.
    RequestSent(Result<(), E>),
    /// Of `ReadError`.
    SocketError(E),
    /// Of `ReadReply`.
    Reply(Read<Reply, E>),
    /// Of `SendTerminate`: whether TCP has it.
    TerminateSent(bool),
    /// Of `Start`.
    Started(Result<(), E>),
    /// Of `Join`.
    Joined {
        /// This connection has ended the wait of the QP: no other attempt follows.
        claimed: bool,
        /// Whether the QP has the stream.
        result: Result<(), E>,
    },
    /// Of `ReportConnected`.
    Reported(Result<(), E>),
    /// Of `ReadRequest`.
    Request(Read<Request, E>),
    /// Of `Offer`.
    Offered(Result<(), E>),
    /// Of `Meet`: `None` if no QP waits for this peer.
    Met(Option<Result<(), E>>),
    /// Of `Meet`: the TCP connection is a session's now.
    Passed,
    /// Of `Answer`.
    Answered(Result<Established, E>),
    /// Of `Refuse`.
    Refused(Result<(), E>),
    /// Of `Settle`.
    Settled {
        /// As in the action.
        late: bool,
        /// There are bytes of the peer that nobody has taken.
        unread: bool,
    },
    /// Of `Quiesce`.
    Quiesced {
        /// As in the action.
        how: Teardown,
        /// TCP has bytes of ours that the peer has not acknowledged.
        unsent: bool,
    },
    /// Of `BeginTerminate`: whether there is one to send.
    TerminateReady(bool),
    /// Of `PushTerminate`.
    Pushed(Pushed),
    /// Of `SendFin`: whether TCP took it.
    FinSent(bool),
    /// Of `Peek`: whether there are bytes of the peer that nobody has taken.
    Unread(bool),
}
