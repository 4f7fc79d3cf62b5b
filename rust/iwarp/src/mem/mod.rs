// SPDX-License-Identifier: GPL-2.0

//! Memory that peers name: STags, and the rights they carry.

pub mod access;
pub mod atomic;
pub mod pending;
pub mod stag;
