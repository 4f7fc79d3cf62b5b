// SPDX-License-Identifier: GPL-2.0

//! iWARP without the I/O: RDMAP (RFC 5040), DDP (RFC 5041) and MPA (RFC 5044, RFC 6581) as data
//! types and state machines.
//!
//! The protocol layer of the driver. Nothing here allocates, locks, sleeps, reads a clock or
//! touches payload bytes: a caller hands in header bytes and numbers, and gets back decisions. The
//! same sources are tested on the host with Cargo and compiled into the kernel module, where a
//! panic is a crash. So every function is total: whatever a peer or a user program sends ends in a
//! value or an [`error::Error`].

#![no_std]
#![forbid(unsafe_code)]
#![deny(missing_docs, unreachable_pub, rust_2018_idioms, non_ascii_idents)]
#![cfg_attr(
    not(test),
    deny(
        clippy::arithmetic_side_effects,
        clippy::as_conversions,
        clippy::expect_used,
        clippy::indexing_slicing,
        clippy::panic,
        clippy::todo,
        clippy::unimplemented,
        clippy::unwrap_used
    )
)]

pub mod cm;
pub mod error;
pub mod mem;
pub mod mpa;
pub mod qp;
pub mod rx;
pub mod session;
pub mod tx;
pub mod verdict;
pub mod wire;
