// SPDX-License-Identifier: GPL-2.0

//! Sessions: a connection between two of our drivers that goes on over another TCP connection when
//! its path is lost.
//!
//! After MPA start-up each direction is a stream of bytes with positions, and TCP connections are
//! its carriers, one at a time. The receiver says how many bytes it has consumed, and the sender,
//! whose TCP keeps what is not acknowledged, goes on from there. This is the machine of either end:
//!
//! ```text
//! initiator                                        responder
//! Up -> GivingUp -> Connecting -> Resuming -.      Up -> GivingUp -> Parted -> Adopting -> Up
//!                      ^  |          |       \            ^   |                   ^
//!                      |  v          v        \     RESUME    '-------------------'
//!                    Pausing <- Abandoning ----> Adopting -> Up       RESUME
//! ```
//!
//! Three rules keep every byte, and each once:
//!
//! - A carrier that is given up acknowledges nothing more. Otherwise the peer would forget bytes
//!   that this end has not consumed.
//! - An attempt that is given up is looked at a last time. If the reply is there, the peer may have
//!   sent bytes behind it, and TCP may have acknowledged them.
//! - The initiator sends nothing before it has the reply, so an attempt that fails has taken
//!   nothing of what the responder receives.

mod machine;
mod path;
mod step;

pub use self::{
    machine::{
        Role,
        Session, //
    },
    path::Path,
    step::{
        Action,
        Event,
        Step, //
    }, //
};

/// How long a session may be without a carrier.
pub const RESUME_MS: u64 = 15_000;
/// How long TCP may take to connect to one address.
pub const CONNECT_MS: u64 = 1_000;
/// How long the responder may take to reply, which includes what it takes to consume what has come.
pub const REPLY_MS: u64 = 3_000;
/// Pause after all addresses have failed.
pub const PAUSE_MS: u64 = 250;
