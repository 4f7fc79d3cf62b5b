// SPDX-License-Identifier: GPL-2.0

//! The data path of RDMA providers in software: memory that the CPU copies to and from, and TCP
//! sockets inside the kernel. It knows no protocol above TCP.

#![allow(
    clippy::len_without_is_empty,
    clippy::new_without_default,
    reason = "for generic users, and there are none"
)]

pub mod mem;
pub mod netdev;
pub mod tcp;

/// The prefix of this crate's messages: the name of the module that it is a part of.
const __LOG_PREFIX: &[u8] = concat!(env!("MODULE_NAME"), "\0").as_bytes();
