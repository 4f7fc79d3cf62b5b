// SPDX-License-Identifier: GPL-2.0

//! Connections.

pub mod pair;
