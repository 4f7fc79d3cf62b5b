// SPDX-License-Identifier: GPL-2.0

//! Who flushes a dead queue pair: one word that counts those who want it flushed.
//!
//! Several contexts may find work requests in the queues of a dead queue pair. The first one claims
//! the flush and works for all who come meanwhile, so completions stay in order. The caller applies
//! the functions by compare-and-exchange with a full barrier, again with the fresh word until it
//! succeeds.

/// The word while nobody flushes.
pub const IDLE: u32 = 0;

/// A context wants the queues flushed: the next word, and whether the caller is the one to do it.
pub const fn claim(word: u32) -> (u32, bool) {
    // The count wraps to 1, not to 0, which is `IDLE`.
    let next = match word.checked_add(1) {
        Some(next) => next,
        None => 1,
    };
    (next, word == IDLE)
}

/// The claimant has flushed all that was posted when the word was `seen`: the next word; `None` if
/// somebody else came meanwhile, for whom it has to flush again.
pub const fn release(word: u32, seen: u32) -> Option<u32> {
    if word == seen {
        Some(IDLE)
    } else {
        None
    }
}
