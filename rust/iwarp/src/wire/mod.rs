// SPDX-License-Identifier: GPL-2.0

//! Bytes on the wire: constants, headers, `parse` and `emit`, one module per protocol.
//!
//! Numbers are big endian on the wire and host order in the structs. Values this driver does not
//! know are kept, not refused, unless the RFC makes them an error; the machines above decide.

mod atomic;
pub(super) mod bytes;
pub mod ddp;
pub mod mpa;
mod opcode;
pub mod rdmap;
pub mod session;
pub mod terminate;
