// SPDX-License-Identifier: GPL-2.0

//! How far a queue pair has come, in one word that posters read without a lock.
//!
//! A poster publishes its work request, then reads the word; whoever ends the queue pair advances
//! the word, then looks at the queues. With a full barrier in between on both sides, either the
//! poster sees that the queue pair is dead, or the flush sees the work request. The caller applies
//! [`advance`] by compare-and-exchange, again with the fresh word until it succeeds.

/// The phase of a queue pair. It only goes forward, until the queue pair begins anew when its
/// stream and all that was posted are gone.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Phase {
    /// Not connected yet.
    Idle,
    /// Waiting for a stream; work requests may be posted.
    Connecting,
    /// The stream is up.
    Rts,
    /// The peer has closed; the next post fails the queue pair.
    PeerGone,
    /// The stream is being torn down.
    Terminating,
    /// The stream is dead; what is posted is flushed.
    Error,
}

/// What a context does after it has posted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Posted {
    /// Transmit.
    Transmit,
    /// Tell whoever connects the queue pair.
    Connect,
    /// Fail the queue pair.
    Fail,
    /// Flush.
    Flush,
    /// Nothing: the start of the stream or the flush will find the work request.
    Leave,
}

impl Phase {
    /// The phase that `word` says.
    pub const fn from_word(word: u32) -> Self {
        match word {
            0 => Self::Idle,
            1 => Self::Connecting,
            2 => Self::Rts,
            3 => Self::PeerGone,
            4 => Self::Terminating,
            _ => Self::Error,
        }
    }

    /// The word for the phase.
    pub const fn word(self) -> u32 {
        match self {
            Self::Idle => 0,
            Self::Connecting => 1,
            Self::Rts => 2,
            Self::PeerGone => 3,
            Self::Terminating => 4,
            Self::Error => 5,
        }
    }

    /// What a context does that finds this phase after it has posted.
    pub const fn posted(self) -> Posted {
        match self {
            Self::Idle | Self::Terminating => Posted::Leave,
            Self::Connecting => Posted::Connect,
            Self::Rts => Posted::Transmit,
            Self::PeerGone => Posted::Fail,
            Self::Error => Posted::Flush,
        }
    }
}

/// The word after an advance to `to`; `None` if it is there already, or beyond.
pub const fn advance(word: u32, to: Phase) -> Option<u32> {
    if word >= to.word() {
        None
    } else {
        Some(to.word())
    }
}
