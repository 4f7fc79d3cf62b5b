// SPDX-License-Identifier: GPL-2.0

//! What a session is told, and what it asks of its host.

use crate::wire::session::{
    Positions,
    Refusal,
    Refused,
    Resume,
    Resumed, //
};

/// What happens to a session.
///
/// TCP connections have names: the first carrier is 0, any other one is the `gen` of its
/// [`Resume`]. What is said about one that the session does not use, or no more, changes nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Event {
    /// The time has come that [`Step::due`] gave, or nothing has happened.
    Look,
    /// The path of the carrier is lost (see [`super::Path::is_suspect`]), or is to be left.
    PathLost {
        /// The carrier.
        carrier: u32,
    },
    /// A new TCP connection brings a request. For the responder.
    Request {
        /// The request.
        resume: Resume,
        /// Where this end is at the moment, if it has not given up its carrier.
        at: Positions,
    },
    /// The connection ends for another reason.
    End,

    /// Of [`Action::GiveUp`]. It may take a while: what TCP has acknowledged has to be consumed.
    GivenUp {
        /// The carrier.
        carrier: u32,
        /// Where this end is, for good.
        at: Positions,
    },
    /// Of [`Action::Connect`]: TCP is up.
    Connected {
        /// The attempt.
        gen: u32,
    },
    /// Of [`Action::Connect`], [`Action::SendResume`] and [`Action::Abandon`]: the attempt has
    /// failed, and its TCP connection is closed.
    Failed {
        /// The attempt.
        gen: u32,
    },
    /// Of [`Action::SendResume`] and [`Action::Abandon`]: the whole reply is there.
    Replied {
        /// The attempt.
        gen: u32,
        /// The reply. For one that makes no sense: [`Event::Failed`].
        reply: Result<Resumed, Refused>,
    },
    /// Of [`Action::Adopt`].
    Adopted {
        /// The attempt.
        gen: u32,
        /// Whether the attempt is the carrier now. If not, its TCP connection is closed, and
        /// nothing of the stream has been sent on it.
        ok: bool,
    },
}

/// What the host does next. After each, except [`Self::Wait`] and [`Self::Fail`], it calls the
/// machine again: with the outcome, when there is one, or after [`Self::Refuse`] with
/// [`Event::Look`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// Nothing, until something happens or is due.
    Wait,
    /// Give up the carrier. From now on its TCP sends nothing, neither data nor an acknowledgement
    /// nor an RST, which the peer would take for the end. Then consume what it has acknowledged,
    /// and keep what it has not got acknowledged.
    GiveUp {
        /// The carrier.
        carrier: u32,
    },
    /// Connect to an address of the offer.
    Connect {
        /// The name of the new TCP connection.
        gen: u32,
        /// Index of the address.
        address: usize,
    },
    /// Send this in the MPA request of the attempt.
    SendResume(Resume),
    /// The attempt takes too long. If the whole reply has come meanwhile, it counts. If not, close
    /// the TCP connection, which acknowledges nothing more before that is decided.
    Abandon {
        /// The attempt.
        gen: u32,
    },
    /// Make the attempt the carrier. After the reply, if there is one to send, the stream goes on
    /// with what has been kept, then with what is new.
    Adopt {
        /// The attempt.
        gen: u32,
        /// Private data of the MPA reply. For the responder.
        reply: Option<Resumed>,
        /// Bytes at the beginning of what has been kept that the peer has.
        skip: u64,
    },
    /// Send this in an MPA reply that rejects the new TCP connection, and close that one. Whatever
    /// else the session does goes on.
    Refuse(Refused),
    /// The session is over: PATH_MIG_ERR, and the end of the connection.
    Fail,
}

/// What the host does, in the order of the fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Step {
    /// Close this attempt; it has no outcome any more.
    pub drop: Option<u32>,
    /// Report PATH_MIG.
    pub migrated: bool,
    /// Count a request or a reply that was not good.
    pub refused: Option<Refusal>,
    /// Call again with [`Event::Look`] at this time; the timer of the call before is void.
    pub due: Option<u64>,
    /// What to do.
    pub action: Action,
}
