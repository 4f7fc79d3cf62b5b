// SPDX-License-Identifier: GPL-2.0

//! Memory that peers name: STags, their rights, and where the bytes are.

pub mod access;
pub mod layout;
pub mod stag;
