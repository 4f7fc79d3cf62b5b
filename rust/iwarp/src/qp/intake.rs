// SPDX-License-Identifier: GPL-2.0

//! Why the receiver of a queue pair does not take what has come in: a word of reasons.
//!
//! The receiver has the socket locked, and looks at the word first. It leaves the rest to a
//! datamover when it has done enough, and waits when it comes to memory that is not there yet. Then
//! it notes so ([`stall`]), looks for the memory once more, and leaves. Whoever makes memory appear
//! does so first, and then applies [`unstall`].
//!
//! The functions are pure; the caller stores the result by compare-and-exchange, again with the
//! fresh value until it succeeds. The exchange must be a full barrier, and must be made even if the
//! new value equals the old. So either the receiver's second look finds the memory, or the other
//! side finds the note.

/// The word when nothing keeps the receiver.
pub const OPEN: u32 = 0;

/// Reception has ended.
const STOPPED: u32 = 1;
/// A datamover has to continue.
const DUE: u32 = 2;
/// The receiver waits for memory.
const STALLED: u32 = 4;

/// Whether the receiver may take what has come in.
pub const fn is_open(word: u32) -> bool {
    word == OPEN
}

/// Whether a datamover has to continue.
pub const fn is_due(word: u32) -> bool {
    word & DUE != 0
}

/// Whether reception goes on without new data: in a datamover, or when memory is there.
pub const fn goes_on(word: u32) -> bool {
    word & (DUE | STALLED) != 0
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

/// Notes that the receiver waits for memory. It must look once more.
pub const fn stall(word: u32) -> u32 {
    word | STALLED
}

/// Takes the note back: the memory was there after all.
pub const fn end_stall(word: u32) -> u32 {
    word & !STALLED
}

/// Memory has appeared. If the receiver waits, reception is left to a datamover, which the caller
/// queues if [`waits`] says so of the word before.
pub const fn unstall(word: u32) -> u32 {
    if waits(word) {
        defer(end_stall(word))
    } else {
        word
    }
}

/// Whether the receiver waits for memory.
pub const fn waits(word: u32) -> bool {
    word & STALLED != 0
}
