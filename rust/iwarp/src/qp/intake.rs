// SPDX-License-Identifier: GPL-2.0

//! Reception of a queue pair: a word of reasons why the receiver leaves data in the socket, and the
//! limit of one of them.
//!
//! The receiver has the socket locked, and looks at the word first. It leaves the rest to a
//! datamover when it has done enough. It stalls when a message needs memory that is not there yet,
//! or when no receive is posted for an untagged message. It then notes the reason ([`stall`]),
//! looks once more, and leaves. The other side makes memory appear, or posts a receive, and then
//! applies [`unstall`].
//!
//! The functions are pure; the caller stores the result by compare-and-exchange, again with the
//! fresh value until it succeeds. The exchange must be a full barrier, and must be made even if the
//! new value equals the old. So either the receiver's second look finds what it needs, or the other
//! side finds the note. A side that takes the lock of the receive queue for its look, or for its
//! post, needs no barrier: it may omit the exchange if the word, read after the lock was released,
//! has no such note.
//!
//! A stall for memory ends when the memory is there, or cannot be. A stall for a receive has a
//! limit for each message ([`next_look`]), because a receive may never be posted.

/// The word when nothing keeps the receiver.
pub const OPEN: u32 = 0;

/// Reception has ended.
const STOPPED: u32 = 1;
/// A datamover has to continue.
const DUE: u32 = 2;
/// The receiver waits for memory.
const NO_MEMORY: u32 = 4;
/// The receiver waits for a receive.
const NO_RECEIVE: u32 = 8;

/// Reason of a stall.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Stall {
    /// Memory is not there yet.
    Memory,
    /// No receive is posted for a message.
    Receive,
}

impl Stall {
    const ALL: u32 = Self::Memory.bit() | Self::Receive.bit();

    const fn bit(self) -> u32 {
        match self {
            Self::Memory => NO_MEMORY,
            Self::Receive => NO_RECEIVE,
        }
    }
}

/// State of reception, for debugging.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Data is received as it arrives.
    Open,
    /// A datamover continues.
    Deferred,
    /// Stalled for memory.
    NoMemory,
    /// Stalled for a receive.
    NoReceive,
    /// Reception has ended.
    Stopped,
}

/// State of reception, for debugging.
pub const fn state(word: u32) -> State {
    if word & STOPPED != 0 {
        State::Stopped
    } else if waits(word, Stall::Receive) {
        State::NoReceive
    } else if waits(word, Stall::Memory) {
        State::NoMemory
    } else if is_due(word) {
        State::Deferred
    } else {
        State::Open
    }
}

/// Whether the receiver may take what has come in.
pub const fn is_open(word: u32) -> bool {
    word == OPEN
}

/// Whether a datamover has to continue.
pub const fn is_due(word: u32) -> bool {
    word & DUE != 0
}

/// Whether reception goes on without new data: in a datamover, or at the end of a stall.
pub const fn goes_on(word: u32) -> bool {
    word & (DUE | Stall::ALL) != 0
}

/// Ends reception.
pub const fn stop(word: u32) -> u32 {
    word | STOPPED
}

/// Leaves reception to a datamover, which the caller queues afterwards.
pub const fn defer(word: u32) -> u32 {
    word | DUE
}

/// Takes reception over from the datamover, or as the datamover. It was due if [`is_due`] says so
/// of the word before.
pub const fn take(word: u32) -> u32 {
    word & !DUE
}

/// Notes that the receiver stalls, and for what alone. It must look once more.
pub const fn stall(word: u32, reason: Stall) -> u32 {
    end_stall(word) | reason.bit()
}

/// Takes the note back: the second look has found what was missing.
pub const fn end_stall(word: u32) -> u32 {
    word & !Stall::ALL
}

/// Ends a stall for `reason`: the memory has appeared, a receive was posted, or the limit has
/// passed. If the receiver is stalled for that, reception is left to a datamover, which the caller
/// queues if [`waits`] says so of the word before.
pub const fn unstall(word: u32, reason: Stall) -> u32 {
    if waits(word, reason) {
        defer(end_stall(word))
    } else {
        word
    }
}

/// True if the receiver is stalled for `reason`, and reception has not ended.
pub const fn waits(word: u32, reason: Stall) -> bool {
    word & (STOPPED | reason.bit()) == reason.bit()
}

/// Longest pause between two looks, in milliseconds.
const LOOK_MS: u32 = 64;

/// Returns the milliseconds until the next look at the receive queue, for a message that has waited
/// for `waited` milliseconds and may wait for `limit`; `None` if it may wait no longer.
///
/// A program posts to a mapped queue without a system call, so only a look finds its receive. The
/// pause is as long as the wait so far. So a message waits no more than twice as long as its
/// receive is late, or 64 ms longer, and the number of looks is about `limit / 64`.
pub const fn next_look(waited: u32, limit: u32) -> Option<u32> {
    let pause = match waited {
        0 => 1,
        1..LOOK_MS => waited,
        _ => LOOK_MS,
    };
    match limit.checked_sub(waited) {
        None | Some(0) => None,
        Some(left) if left < pause => Some(left),
        Some(_) => Some(pause),
    }
}
