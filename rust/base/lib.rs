// SPDX-License-Identifier: GPL-2.0

//! Gaps of the kernel crate: each file is what a patch to that crate would add, under the name that
//! it would have there. Nothing here knows RDMA.
//!
//! The bindings of all C functions that the crates above call are here, too, as `rust/bindings` is
//! below the kernel crate.

#![allow(
    clippy::new_without_default,
    reason = "for generic users, and there are none"
)]

pub mod addr;
#[doc(hidden)]
pub mod bindings;
pub mod context;
pub mod crc32c;
pub mod errno;
pub mod netdev;
pub mod process;
pub mod random;
pub mod release;
pub mod slot;
pub mod sync;
pub mod table;
pub mod timer;
pub mod version;
pub mod wq;

/// The prefix of this crate's messages: the name of the module that it is a part of.
const __LOG_PREFIX: &[u8] = concat!(env!("MODULE_NAME"), "\0").as_bytes();
