// SPDX-License-Identifier: GPL-2.0

//! Who may send on a queue pair: one `u32` that passes from hand to hand, instead of a lock.
//!
//! TCP calls back into the driver from inside the driver's own send, so no spinlock can be held
//! across it. Instead a queue pair has at most one owner at a time: the context that changed the
//! word to `DIRECT` (it sends on the spot) or `RUNNING` (a datamover or a timer). Everybody else
//! leaves a note, the `KICK` bit, and goes on. The functions are pure; the caller loads or guesses
//! the word, applies one of them and tries to store the result by compare-and-exchange, again with
//! the fresh value until it succeeds, and then does the action.
//!
//! The exchange must be a full barrier, and must be made even if the new value equals the old. For
//! [`kick`] it orders "work published" before "word read"; for [`leave`] it orders "`KICK` cleared"
//! before "queues read again". Without it both sides could miss each other.

/// State of the word when a queue pair is made: nothing may be sent until [`Wake::Open`].
pub const INITIAL: u32 = PAUSED_HOLD;

const IDLE: u32 = 0;
/// The word that the owner finds when it leaves, most of the time.
pub const DIRECT: u32 = 1;
/// The word that a datamover or the timer finds, most of the time.
pub const QUEUED: u32 = 2;
const RUNNING: u32 = 3;
const PAUSED_SPACE: u32 = 4;
const PAUSED_BLOCKED: u32 = 5;
const PAUSED_HOLD: u32 = 6;
const STOPPED: u32 = 7;
const SUSPENDED: u32 = 8;
const PHASE: u32 = 0xff;
/// Something happened while the owner was at work: it must look once more before it leaves.
const KICK: u32 = 1 << 8;
/// The owner must give up.
const STOP: u32 = 1 << 9;
/// The owner must give up for a while.
const SUSPEND: u32 = 1 << 10;

/// The word, read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// No owner, no work.
    Idle,
    /// A context sends on the spot: a poster, a callback of TCP.
    Direct,
    /// On a datamover's list, or left to the timer of a coalesced doorbell.
    Queued,
    /// A datamover is sending, or that timer.
    Running,
    /// No owner: TCP has no space, or too little for a turn.
    PausedSpace,
    /// No owner: the work request at the head of the SQ waits for a Read, or for room in the FIFO
    /// of completions.
    PausedBlocked,
    /// No owner: the stream is not up, or the peer has to send first.
    PausedHold,
    /// Nobody will send any more.
    Stopped,
    /// Nobody sends before [`resume`].
    Suspended,
}

/// The phase of `word`.
pub const fn phase(word: u32) -> Phase {
    match word & PHASE {
        IDLE => Phase::Idle,
        DIRECT => Phase::Direct,
        QUEUED => Phase::Queued,
        RUNNING => Phase::Running,
        PAUSED_SPACE => Phase::PausedSpace,
        PAUSED_BLOCKED => Phase::PausedBlocked,
        PAUSED_HOLD => Phase::PausedHold,
        SUSPENDED => Phase::Suspended,
        _ => Phase::Stopped,
    }
}

/// Whether the owner is asked to give up. It should look between FPDUs, and then [`leave`].
pub const fn is_stopping(word: u32) -> bool {
    word & (STOP | SUSPEND) != 0
}

/// What to do after the exchange succeeded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Nothing; whoever owns the queue pair, or will, takes care.
    None,
    /// You are the owner now: send, then [`leave`].
    Run,
    /// Put the queue pair on a datamover's list, with a reference, and wake the datamover. Or start
    /// the timer of a coalesced doorbell.
    Enqueue,
    /// You are still the owner: look for work again.
    Again,
    /// You are no longer the owner. After [`Leave::Space`]: test the space once more, and if there
    /// is some, kick with [`Wake::Space`].
    Released,
    /// The word is, or has just become, stopped. The owner that has given up wakes whoever waits
    /// for it; a datamover drops its reference.
    Stopped,
    /// To [`stop`] and [`suspend`]: the owner will get to it; wait for it.
    Wait,
}

/// A transition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// The word to store.
    pub next: u32,
    /// What to do once it is stored.
    pub action: Action,
}

const fn to(next: u32, action: Action) -> Step {
    Step { next, action }
}

/// Why somebody kicks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Wake {
    /// A work request was posted.
    Post,
    /// A Read Request of the peer is to be answered.
    ReadRequest,
    /// TCP has space again, above the threshold.
    Space,
    /// A Read has finished, or the FIFO of completions has room again: the head of the SQ may go
    /// on.
    Unblock,
    /// The stream is up; for a responder, the first FPDU has come in, or its silence has lasted
    /// long enough.
    Open,
}

impl Wake {
    /// The word that it finds, most of the time.
    pub const fn usual(self) -> u32 {
        match self {
            Self::Post | Self::ReadRequest | Self::Unblock => IDLE,
            Self::Space => PAUSED_SPACE,
            Self::Open => PAUSED_HOLD,
        }
    }
}

/// Asks for work to be done. With `direct` the caller offers to do it itself.
pub const fn kick(word: u32, wake: Wake, direct: bool) -> Step {
    if is_stopping(word) {
        return to(word, Action::None);
    }
    let start = match word & PHASE {
        DIRECT | RUNNING => return to(word | KICK, Action::None),
        IDLE => matches!(wake, Wake::Post | Wake::ReadRequest | Wake::Open),
        PAUSED_SPACE => matches!(wake, Wake::Space),
        // A fence holds the SQ only. Responses must flow, or two peers with full ORQs wait for each
        // other.
        PAUSED_BLOCKED => matches!(wake, Wake::Unblock | Wake::ReadRequest | Wake::Open),
        PAUSED_HOLD => matches!(wake, Wake::Open),
        _ => false,
    };
    match (start, direct) {
        (false, _) => to(word, Action::None),
        (true, true) => to(DIRECT, Action::Run),
        (true, false) => to(QUEUED, Action::Enqueue),
    }
}

/// A datamover has taken the queue pair off its list, or the timer has fired.
pub const fn take(word: u32) -> Step {
    match phase(word) {
        Phase::Queued => to(RUNNING, Action::Run),
        // Since it was put on the list.
        Phase::Stopped => to(word, Action::Stopped),
        // Nothing to send: the datamover was called for something else, such as reception.
        _ => to(word, Action::None),
    }
}

/// Why the owner leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Leave {
    /// All work is done.
    Idle,
    /// TCP has no space, or too little for a turn. Before this, the owner sets `SOCK_NOSPACE`,
    /// makes it visible and tests again.
    Space,
    /// Only blocked work is left.
    Blocked,
    /// There is work, but nothing may be sent yet.
    Hold,
    /// The turn is over.
    Budget,
}

/// The owner wants to leave.
pub const fn leave(word: u32, why: Leave) -> Step {
    if !matches!(word & PHASE, DIRECT | RUNNING) {
        return to(word, Action::None);
    }
    if word & STOP != 0 {
        return to(STOPPED, Action::Stopped);
    }
    // Whoever resumes looks for work.
    if word & SUSPEND != 0 {
        return to(SUSPENDED, Action::Released);
    }
    // Queued means it will be looked at again anyway, so the note has served.
    if matches!(why, Leave::Budget) {
        return to(QUEUED, Action::Enqueue);
    }
    if word & KICK != 0 {
        return to(word & PHASE, Action::Again);
    }
    let next = match why {
        Leave::Idle => IDLE,
        Leave::Space => PAUSED_SPACE,
        Leave::Blocked => PAUSED_BLOCKED,
        Leave::Hold => PAUSED_HOLD,
        Leave::Budget => QUEUED,
    };
    to(next, Action::Released)
}

/// Ends all sending, for good. After [`Action::Wait`] the caller waits for the owner's
/// [`Action::Stopped`]. A queue pair that is only on a datamover's list is stopped at once: the
/// list may be long.
pub const fn stop(word: u32) -> Step {
    match word & PHASE {
        DIRECT | RUNNING => to(word | STOP, Action::Wait),
        _ => to(STOPPED, Action::Stopped),
    }
}

/// Ends sending for a while. After [`Action::Wait`] the caller asks again, until it gets
/// [`Action::Released`]: now nobody sends before [`resume`].
pub const fn suspend(word: u32) -> Step {
    match word & PHASE {
        DIRECT | RUNNING => to(word | SUSPEND, Action::Wait),
        STOPPED => to(word, Action::Stopped),
        _ => to(SUSPENDED, Action::Released),
    }
}

/// Ends [`suspend`]. All that has happened meanwhile is left to a datamover.
pub const fn resume(word: u32) -> Step {
    match word & PHASE {
        SUSPENDED => to(QUEUED, Action::Enqueue),
        // The owner has not given up yet.
        DIRECT | RUNNING if word & SUSPEND != 0 => to(word & !SUSPEND | KICK, Action::None),
        _ => to(word, Action::None),
    }
}
